//! Accounts as text for people.

use super::efficiency::EfficiencyCell;
use super::reading::Advice;
use super::reconcile::Reconciliation;
use super::{Account, EVENT, SUCCESS_RULE};
use crate::rate::UNIT;
use penstock_model::Bytes;
use penstock_model::text::{one_line, plural};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Incidents of one view and operation in the text.
const KINDS_MAX: usize = 10;
/// Destinations that fit beside each other in a terminal.
const COLUMNS_MAX: usize = 8;
/// Things with a capacity in the text.
const UTILISATIONS_MAX: usize = 20;

impl Account {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = match self.window {
            None => "There are no records of ended attempts.\n".to_owned(),
            Some(window) => format!(
                "Window: {} ({}). Event: {EVENT}. Successes: {SUCCESS_RULE}.\nRates are means over the whole window of what \
                 arrived, in {UNIT}. Views are never added.\n\n",
                window.words(),
                window.rule.words()
            ),
        };
        match (self.table.lines.is_empty(), self.window) {
            (false, _) => self.add_lines(&mut text),
            (true, Some(_)) => {
                text.push_str("There are no records of ended attempts in this window.\n")
            }
            (true, None) => {}
        }
        self.add_days(&mut text);
        self.add_quality(&mut text);
        self.add_efficiency(&mut text);
        self.add_servers(&mut text);
        self.add_utilisation(&mut text);
        self.add_readings(&mut text);
        if self.open > 0 {
            let _ = writeln!(
                text,
                "\n{} rows have no end of an attempt and are not included.",
                self.open
            );
        }
        for impossible in &self.impossible {
            let _ = writeln!(text, "\nCannot be true, {}", impossible.words());
        }
        text
    }

    fn add_lines(&self, text: &mut String) {
        let width = self
            .table
            .lines
            .iter()
            .map(|line| one_line(&line.name).chars().count())
            .max()
            .unwrap_or(4);
        let width = width.clamp(4, 80);
        let _ = writeln!(
            text,
            "{:<8} {:<9} {:<width$} {:>9} {:>7} {:>9} {:>10} {:>10} {:>10} {:>10}",
            "view",
            "operation",
            "name",
            "succeeded",
            "failed",
            "incidents",
            "efficiency",
            "arrived",
            "moved",
            "rate"
        );
        for line in &self.table.lines {
            let efficiency = line.efficiency_percent;
            let rate = line.rate.as_ref().map(|rate| rate.rate.megabits_per_second);
            let _ = writeln!(
                text,
                "{:<8} {:<9} {:<width$} {:>9} {:>7} {:>9} {:>10} {:>10} {:>10} {:>10}",
                line.view.word(),
                line.operation.word(),
                one_line(&line.name),
                line.succeeded,
                line.failed,
                line.incidents,
                efficiency.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %")),
                line.arrived.to_string(),
                line.moved.to_string(),
                rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")),
            );
            if line.without_bytes > 0 {
                let _ = writeln!(
                    text,
                    "         no bytes are known for {} successes",
                    line.without_bytes
                );
            }
        }
    }

    fn add_days(&self, text: &mut String) {
        if self.table.days.is_empty() {
            return;
        }
        text.push_str("\nDays in UTC; rates are over the part of the day that is in the window\n");
        for day in &self.table.days {
            let _ = writeln!(
                text,
                "{:<8} {:<9} {} {} {:>10} {:>10} Mb/s, since the beginning {}",
                day.view.word(),
                day.operation.word(),
                one_line(&day.name),
                day.day,
                day.arrived.to_string(),
                day.rate.as_ref().map_or_else(
                    || "-".to_owned(),
                    |rate| format!("{:.1}", rate.rate.megabits_per_second)
                ),
                day.cumulative
            );
        }
    }

    fn add_quality(&self, text: &mut String) {
        for quality in self.quality.iter().filter(|quality| quality.errors > 0) {
            let percent = |percent: Option<f64>| {
                percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.2} %"))
            };
            let _ = writeln!(
                text,
                "\nErrors and incidents, {} {}: {} of {} ({}), {}; without the largest incident {}",
                quality.view.word(),
                quality.operation.word(),
                plural(quality.errors, "error"),
                plural(quality.ended, "attempt"),
                percent(quality.error_percent),
                plural(quality.incidents, "incident"),
                percent(quality.error_percent_without_largest)
            );
            for kind in quality.kinds.iter().take(KINDS_MAX) {
                let _ = writeln!(
                    text,
                    "{:>9} {} ({}Z to {}Z)",
                    kind.errors,
                    one_line(&kind.fingerprint),
                    kind.first.to_fts(),
                    kind.last.to_fts()
                );
            }
            if let Some(more) = quality.incidents.checked_sub(KINDS_MAX as u64)
                && more > 0
            {
                let more = plural(more, "more incident");
                let _ = writeln!(text, "          and {more}; --json and --html show all");
            }
        }
    }

    /// The matrix, where it is small enough for a terminal.
    fn add_efficiency(&self, text: &mut String) {
        for matrix in &self.efficiency {
            let column = |cell: &EfficiencyCell| one_line(&cell.destination).into_owned();
            let columns: BTreeSet<String> = matrix.cells.iter().map(column).collect();
            let _ = writeln!(
                text,
                "\nEfficiency in percent, {} {}, from source (rows) to destination (columns)",
                matrix.view.word(),
                matrix.operation.word()
            );
            if columns.len() > COLUMNS_MAX {
                let count = columns.len();
                let _ = writeln!(
                    text,
                    "{count} destinations: --html FILE draws it, --json has it"
                );
                continue;
            }
            for (number, name) in (1..).zip(&columns) {
                let _ = writeln!(text, "  ({number}) {name}");
            }
            let mut rows: BTreeMap<&str, BTreeMap<String, &EfficiencyCell>> = BTreeMap::new();
            for cell in &matrix.cells {
                rows.entry(&cell.source)
                    .or_default()
                    .insert(column(cell), cell);
            }
            for number in 1..=columns.len() {
                let head = format!("({number})");
                let _ = write!(text, "{head:>7}");
            }
            text.push('\n');
            for (source, cells) in rows {
                let cells = columns.iter().map(|name| {
                    let percent = cells.get(name).and_then(|cell| cell.efficiency_percent);
                    percent
                        .map_or_else(|| "      -".to_owned(), |percent| format!("{percent:>7.1}"))
                });
                let _ = writeln!(text, "{}  {}", cells.collect::<String>(), one_line(source));
            }
        }
    }

    fn add_utilisation(&self, text: &mut String) {
        let told = self.utilisation.iter();
        let told: Vec<_> = told.filter_map(|of| Some((of, of.percent?))).collect();
        if told.is_empty() {
            return;
        }
        text.push_str("\nUtilisation, of the capacity while it was told\n");
        for (of, percent) in told.iter().take(UTILISATIONS_MAX) {
            let _ = writeln!(
                text,
                "{:<8} {:<9} {}: {} of {} ({percent:.1} %)",
                of.view.word(),
                of.subject_kind.word(),
                one_line(&of.name),
                of.carried,
                of.capacity
            );
        }
    }

    fn add_servers(&self, text: &mut String) {
        if self.servers.is_empty() {
            return;
        }
        text.push_str("\nServers\n");
        let told =
            |bytes: Option<Bytes>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        for server in &self.servers {
            let _ = write!(
                text,
                "{:<8} {}: written {}, read {}; interfaces in {}, out {}",
                server.view.word(),
                one_line(&server.server),
                server.written,
                server.read,
                told(server.interfaces_in),
                told(server.interfaces_out)
            );
            if let Some(ratio) = server.relay_ratio {
                let _ = write!(
                    text,
                    "; {ratio:.2} bytes inside the site for each other one"
                );
            }
            if let Some(percent) = server.utilisation_percent {
                let _ = write!(text, "; {percent:.1} % of its capacity");
            }
            text.push('\n');
        }
    }

    fn add_readings(&self, text: &mut String) {
        if self.readings.is_empty() {
            return;
        }
        text.push_str("\nFiles that were read\n");
        for file in &self.readings {
            let advice = match file.advice {
                Advice::Copy => "copy it: clients read as much as copies would move",
                Advice::Direct => "read it directly",
            };
            let _ = writeln!(
                text,
                "{}: {:.1} % of {} in each of {} openings by {} clients; {advice}",
                one_line(&file.file),
                file.read_percent,
                file.size,
                file.opens,
                file.clients
            );
        }
    }
}

impl Reconciliation {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::from(
            "From the first view (files that arrived in its window) to the second (bytes that moved in its window)\n",
        );
        let all = [("all", &self.all)];
        let by_vo = self.by_vo.iter().map(|(vo, bridge)| (vo.as_str(), bridge));
        for (name, bridge) in all.into_iter().chain(by_vo) {
            let _ = writeln!(
                text,
                "\n{}: {} attempts in both, {} only in the first, {} only in the second",
                one_line(name),
                bridge.matched,
                bridge.first_only,
                bridge.second_only
            );
            let _ = writeln!(text, "  {:<16} {:>24} bytes", "first view", bridge.first);
            for (term, bytes) in bridge.terms.named() {
                if bytes != 0 || term == "residue" {
                    let _ = writeln!(text, "  {term:<16} {bytes:>+24} bytes");
                }
            }
            let _ = writeln!(text, "  {:<16} {:>24} bytes", "second view", bridge.second);
        }
        if let Some(skew) = self.clock_skew_ms {
            let _ = writeln!(
                text,
                "\nThe second view's times are {skew} ms later (median)."
            );
        }
        for item in &self.residue {
            let _ = writeln!(
                text,
                "residue: {} ({}), {:+} bytes: {}",
                one_line(&item.row),
                one_line(&item.vo),
                item.bytes,
                item.why
            );
        }
        let both = [
            ("first", &self.impossible_in_first),
            ("second", &self.impossible_in_second),
        ];
        for (view, found) in both {
            for impossible in found {
                let words = impossible.words();
                let _ = writeln!(text, "\nCannot be true in the {view} view, {words}");
            }
        }
        text
    }
}
