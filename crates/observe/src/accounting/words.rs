//! Accounts as text for people.

use super::reading::Advice;
use super::reconcile::Reconciliation;
use super::{Account, EVENT, SUCCESS_RULE};
use crate::rate::UNIT;
use penstock_model::Bytes;
use penstock_model::text::one_line;
use std::fmt::Write;

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
        match (self.lines.is_empty(), self.window) {
            (false, _) => self.add_lines(&mut text),
            (true, Some(_)) => {
                text.push_str("There are no records of ended attempts in this window.\n")
            }
            (true, None) => {}
        }
        self.add_days(&mut text);
        self.add_servers(&mut text);
        self.add_readings(&mut text);
        if self.open > 0 {
            let _ = writeln!(
                text,
                "\n{} rows tell no end of an attempt and are in no figure.",
                self.open
            );
        }
        for impossible in &self.impossible {
            let _ = writeln!(
                text,
                "\nCannot be true, {} times: {} ({})",
                impossible.count,
                impossible.what,
                one_line(&impossible.examples.join("; "))
            );
        }
        text
    }

    fn add_lines(&self, text: &mut String) {
        let width = self
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
        for line in &self.lines {
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
                    "         of {} successes no bytes are told",
                    line.without_bytes
                );
            }
        }
    }

    fn add_days(&self, text: &mut String) {
        if self.days.is_empty() {
            return;
        }
        text.push_str("\nDays in UTC\n");
        for day in &self.days {
            let _ = writeln!(
                text,
                "{:<8} {:<9} {} {} {:>10} {:>10.1} Mb/s, since the beginning {}",
                day.view.word(),
                day.operation.word(),
                one_line(&day.name),
                day.day,
                day.arrived.to_string(),
                day.megabits_per_second,
                day.cumulative
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
                "{}: written {}, read {}; interfaces in {}, out {}",
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
        text
    }
}
