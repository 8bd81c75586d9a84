//! The tables of the page.

use super::super::efficiency::{EfficiencyCell, EfficiencyMatrix};
use super::super::quality::Quality;
use super::super::reading::Advice;
use super::super::servers::ServerLine;
use super::super::tables::{AccountRow, AccountTable, Day};
use super::super::{Account, AccountKey, EVENT, OTHERS, SUCCESS_RULE, Statement, UNKNOWN};
use super::{Part, counts, name};
use crate::rate::UNIT;
use penstock_model::text::plural;
use penstock_model::{Bytes, Timestamp};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Rows of a table; JSON has all.
const ROWS_MAX: usize = 40;
/// Sources, and destinations, of a matrix that are told apart.
const ENDS_MAX: usize = 24;
/// Columns of the table of days.
const DAY_NAMES_MAX: usize = 6;

/// The figures that people look for first.
pub(super) fn add_cards(out: &mut String, account: &Account, part: Part) {
    let lines = account.table.lines.iter();
    let lines = lines.filter(|line| part.has(line.view, line.operation));
    let (mut arrived, mut files, mut rate) = (0_u128, 0, 0.0);
    for line in lines {
        arrived += u128::from(line.arrived.0);
        files += line.succeeded;
        rate += line
            .rate
            .as_ref()
            .map_or(0.0, |rate| rate.rate.megabits_per_second);
    }
    let arrived = Bytes(u64::try_from(arrived).unwrap_or(u64::MAX));
    out.push_str("<div class=\"cards\">");
    let mut card = |what: &str, value: String| {
        let _ = write!(out, "<div><b>{value}</b>{what}</div>");
    };
    card("arrived", arrived.to_string());
    card("Mb/s over the whole window", number(rate));
    card("successes", files.to_string());
    let mut all = account.quality.iter();
    if let Some(quality) = all.find(|of| part.has(of.view, of.operation)) {
        let errors = percent(quality.error_percent, 2);
        card(
            "errors",
            format!("{} <small>{errors}</small>", quality.errors),
        );
        card("incidents", quality.incidents.to_string());
    }
    out.push_str("</div>\n");
    let population = format!(
        "all {} attempts that arrived; errors: those that failed",
        part.operation.word()
    );
    out.push_str(&counts(Some(&statement_of(part, population))));
}

/// Volumes, rates and quality by one kind of name. Nothing where no attempt tells that name.
pub(super) fn add_lines(out: &mut String, table: &AccountTable, part: Part) {
    let lines = table.lines.iter();
    let mut lines: Vec<&AccountRow> = lines
        .filter(|line| part.has(line.view, line.operation))
        .collect();
    if table.by != AccountKey::Vo && lines.iter().all(|line| is_unknown(&line.name)) {
        return;
    }
    lines.sort_by(|a, b| (b.arrived, &a.name).cmp(&(a.arrived, &b.name)));
    begin(out, &format!("Volumes by {}", table.by.words()));
    let heads = [
        table.by.words(),
        "arrived",
        "Mb/s",
        "moved",
        "succeeded",
        "failed",
        "incidents",
        "stopped",
        "efficiency",
    ];
    head(out, &heads);
    for line in lines.iter().take(ROWS_MAX) {
        let rate = line.rate.as_ref().map(|rate| rate.rate.megabits_per_second);
        let told = match line.without_bytes {
            0 => String::new(),
            without => format!(
                " <small>no bytes known for {}</small>",
                plural(without, "success")
            ),
        };
        row(
            out,
            &[
                format!("{}{told}", name(&line.name)),
                line.arrived.to_string(),
                rate.map_or_else(|| "-".to_owned(), number),
                line.moved.to_string(),
                line.succeeded.to_string(),
                line.failed.to_string(),
                line.incidents.to_string(),
                line.aborted.to_string(),
                percent(line.efficiency_percent, 1),
            ],
        );
    }
    let population = format!(
        "{} attempts, by {}",
        part.operation.word(),
        table.by.words()
    );
    end(out, lines.len(), Some(&statement_of(part, population)));
}

/// Of figures that are over the whole window and count what arrived.
fn statement_of(part: Part, population: String) -> Statement {
    Statement {
        population,
        window: part.window,
        event: EVENT,
        unit: UNIT,
        success_rule: SUCCESS_RULE,
        view: part.view,
    }
}

fn is_unknown(name: &str) -> bool {
    name.split(" → ").all(|part| part == UNKNOWN)
}

/// Daily averages: a row for each day, a column for each of the largest names.
pub(super) fn add_days(out: &mut String, table: &AccountTable, part: Part) {
    let days = table.days.iter();
    let days: Vec<&Day> = days
        .filter(|day| part.has(day.view, day.operation))
        .collect();
    let mut volumes: BTreeMap<&str, u128> = BTreeMap::new();
    let mut rows: BTreeMap<&str, BTreeMap<&str, &Day>> = BTreeMap::new();
    for day in &days {
        *volumes.entry(&day.name).or_default() += u128::from(day.arrived.0);
        rows.entry(&day.day).or_default().insert(&day.name, day);
    }
    let mut names: Vec<&str> = volumes.keys().copied().collect();
    names.sort_by_key(|name| (std::cmp::Reverse(volumes[name]), *name));
    let hidden = names.len().saturating_sub(DAY_NAMES_MAX);
    names.truncate(DAY_NAMES_MAX);
    if rows.is_empty() {
        return;
    }
    begin(
        out,
        &format!("Daily averages by {}, Mb/s", table.by.words()),
    );
    let shown: Vec<String> = names.iter().map(|each| name(each)).collect();
    let mut heads = vec!["day"];
    heads.extend(shown.iter().map(String::as_str));
    head(out, &heads);
    for (day, of) in rows.iter().rev().take(ROWS_MAX) {
        let mut cells = vec![(*day).to_owned()];
        cells.extend(names.iter().map(|name| {
            let rate = of.get(name).and_then(|day| day.rate.as_ref());
            let value = rate.map(|rate| number(rate.rate.megabits_per_second));
            value.unwrap_or_else(|| "-".to_owned())
        }));
        row(out, &cells);
    }
    let more = match hidden {
        0 => String::new(),
        hidden => format!(
            "; {} are in the JSON form",
            plural(hidden as u64, "more name")
        ),
    };
    let population = format!(
        "{} attempts that arrived, by {}{more}; each day on its own, the first and the last one as far as they are in the \
         window",
        part.operation.word(),
        table.by.words()
    );
    end(out, rows.len(), Some(&statement_of(part, population)));
}

/// Source × destination, coloured.
pub(super) fn add_matrix(out: &mut String, matrix: &EfficiencyMatrix) {
    let sources = largest(matrix, |cell| &cell.source);
    let destinations = largest(matrix, |cell| &cell.destination);
    let place = |names: &[&str], name: &str| {
        let found = names.iter().position(|known| *known == name);
        found.unwrap_or(names.len())
    };
    let mut cells: BTreeMap<(usize, usize), (u64, u64, u128)> = BTreeMap::new();
    for cell in &matrix.cells {
        let at = (
            place(&sources, &cell.source),
            place(&destinations, &cell.destination),
        );
        let sum = cells.entry(at).or_default();
        sum.0 += cell.succeeded;
        sum.1 += cell.failed;
        sum.2 += u128::from(cell.arrived.0);
    }
    let rows = cells.keys().map(|at| at.0).max().map_or(0, |last| last + 1);
    let columns = cells.keys().map(|at| at.1).max().map_or(0, |last| last + 1);
    let label = |names: &[&str], at: usize| name(names.get(at).copied().unwrap_or(OTHERS));
    begin(out, "Efficiency, source (rows) × destination (columns)");
    out.push_str("<table class=\"matrix\"><tr><th></th>");
    for column in 0..columns {
        let _ = write!(
            out,
            "<th class=\"turned\"><span>{}</span></th>",
            label(&destinations, column)
        );
    }
    out.push_str("</tr>\n");
    for source in 0..rows {
        let _ = write!(out, "<tr><td>{}</td>", label(&sources, source));
        for column in 0..columns {
            let Some((succeeded, failed, arrived)) = cells.get(&(source, column)) else {
                out.push_str("<td></td>");
                continue;
            };
            let ended = succeeded + failed;
            let arrived = Bytes(u64::try_from(*arrived).unwrap_or(u64::MAX));
            let told = format!("{succeeded} of {ended} attempts succeeded, {arrived}");
            match super::super::efficiency_percent(*succeeded, *failed) {
                Some(percent) => {
                    let colour = colour(percent);
                    let shown = floor_percent(percent);
                    let _ = write!(out, "<td class=\"{colour}\" title=\"{told}\">{shown}</td>");
                }
                None => out.push_str("<td title=\"all were stopped\">-</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str(
        "</table></div><p class=\"counts key\"><i class=\"e5\">99 and more</i> <i class=\"e4\">95</i> \
         <i class=\"e3\">90</i> <i class=\"e2\">80</i> <i class=\"e1\">50</i> <i class=\"e0\">less</i></p>\n",
    );
    out.push_str(&counts(matrix.statement.as_ref()));
    out.push_str("</div>\n");
}

/// The ends with most attempts.
fn largest<'a>(
    matrix: &'a EfficiencyMatrix,
    end: impl Fn(&'a EfficiencyCell) -> &'a str,
) -> Vec<&'a str> {
    let mut attempts: BTreeMap<&str, u64> = BTreeMap::new();
    for cell in &matrix.cells {
        *attempts.entry(end(cell)).or_default() += cell.succeeded + cell.failed;
    }
    let mut names: Vec<&str> = attempts.keys().copied().collect();
    names.sort_by_key(|name| (std::cmp::Reverse(attempts[name]), *name));
    names.truncate(ENDS_MAX);
    names.sort_unstable();
    names
}

fn colour(percent: f64) -> &'static str {
    match percent {
        percent if percent >= 99.0 => "e5",
        percent if percent >= 95.0 => "e4",
        percent if percent >= 90.0 => "e3",
        percent if percent >= 80.0 => "e2",
        percent if percent >= 50.0 => "e1",
        _ => "e0",
    }
}

/// Never 100 while anything failed.
fn floor_percent(percent: f64) -> String {
    match percent {
        percent if percent >= 100.0 => "100".to_owned(),
        percent => format!("{:.1}", (percent * 10.0).floor() / 10.0),
    }
}

/// Errors, and what they are when those alike count once.
pub(super) fn add_quality(out: &mut String, quality: &Quality) {
    begin(out, "Quality in errors and in incidents");
    let _ = write!(
        out,
        "<p>{} of {} ({}), {}.",
        plural(quality.errors, "error"),
        plural(quality.ended, "attempt"),
        percent(quality.error_percent, 2),
        plural(quality.incidents, "incident")
    );
    if quality.incidents > 1 {
        let rest = percent(quality.error_percent_without_largest, 2);
        let _ = write!(out, " Without the largest incident: {rest}.");
    }
    out.push_str("</p>\n");
    if !quality.kinds.is_empty() {
        head(
            out,
            &["incident", "side", "errors", "share", "first", "last"],
        );
    }
    for kind in quality.kinds.iter().take(ROWS_MAX) {
        let share = 100.0 * kind.errors as f64 / quality.errors.max(1) as f64;
        let side = kind.side.map_or("-", |side| side.word());
        row(
            out,
            &[
                name(&kind.fingerprint),
                side.to_owned(),
                kind.errors.to_string(),
                format!("{share:.1} %"),
                moment(kind.first),
                moment(kind.last),
            ],
        );
    }
    let told = quality.incidents as usize;
    match quality.kinds.is_empty() {
        true => {
            out.push_str("</div>\n");
            out.push_str(&counts(quality.statement.as_ref()));
            out.push_str("</div>\n");
        }
        false => end(out, told, quality.statement.as_ref()),
    }
}

/// In and out of each server, and what is relayed.
pub(super) fn add_servers(out: &mut String, account: &Account) {
    if account.servers.is_empty() {
        return;
    }
    let mut servers: Vec<&ServerLine> = account.servers.iter().collect();
    let total = |line: &ServerLine| {
        let interfaces = line.interfaces_in.unwrap_or_default().0;
        (line.written.0.saturating_add(line.read.0)).max(interfaces)
    };
    servers.sort_by_key(|line| std::cmp::Reverse(total(line)));
    let most = servers
        .iter()
        .map(|line| line.written.0.max(line.read.0))
        .max()
        .unwrap_or(0)
        .max(1);
    begin(out, "In and out of each server or pool");
    out.push_str(
        "<p class=\"counts\">Upper bar: written to it; lower bar: read from it. Relay ratio: bytes that stayed inside the \
         site for each other byte.</p>\n",
    );
    head(
        out,
        &[
            "server",
            "view",
            "in and out",
            "written",
            "read",
            "interfaces in",
            "interfaces out",
            "relay ratio",
            "utilisation",
        ],
    );
    let told =
        |bytes: Option<Bytes>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    for line in servers.iter().take(ROWS_MAX) {
        let part = |bytes: Bytes| 100.0 * bytes.0 as f64 / most as f64;
        let bars = format!(
            "<span class=\"bar in\" style=\"width:{:.1}%\"></span><span class=\"bar\" style=\"width:{:.1}%\"></span>",
            part(line.written),
            part(line.read)
        );
        let ratio = line
            .relay_ratio
            .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        row(
            out,
            &[
                name(&line.server),
                line.view.word().to_owned(),
                format!("<div class=\"bars\">{bars}</div>"),
                line.written.to_string(),
                line.read.to_string(),
                told(line.interfaces_in),
                told(line.interfaces_out),
                ratio,
                percent(line.utilisation_percent, 1),
            ],
        );
    }
    end(out, servers.len(), account.servers_statement.as_ref());
}

/// How much of each file is read, with advice.
pub(super) fn add_readings(out: &mut String, account: &Account) {
    begin(
        out,
        "Fraction of each file that was read, and whether to copy it",
    );
    head(
        out,
        &[
            "file",
            "size",
            "openings",
            "clients",
            "read",
            "of the file",
            "advice",
        ],
    );
    for file in account.readings.iter().take(ROWS_MAX) {
        row(
            out,
            &[
                name(&file.file),
                file.size.to_string(),
                file.opens.to_string(),
                file.clients.to_string(),
                file.read.to_string(),
                format!("{:.1} %", file.read_percent),
                match file.advice {
                    Advice::Copy => "copy it: clients read as much as copies would move".to_owned(),
                    Advice::Direct => "read it directly".to_owned(),
                },
            ],
        );
    }
    end(
        out,
        account.readings.len(),
        account.readings_statement.as_ref(),
    );
}

fn begin(out: &mut String, title: &str) {
    let _ = writeln!(
        out,
        "<div class=\"part\"><h3>{title}</h3><div class=\"scroll\">"
    );
}

fn head(out: &mut String, names: &[&str]) {
    out.push_str("<table><tr>");
    for name in names {
        let _ = write!(out, "<th>{name}</th>");
    }
    out.push_str("</tr>\n");
}

/// Cells are HTML.
fn row(out: &mut String, cells: &[String]) {
    out.push_str("<tr>");
    for cell in cells {
        let _ = write!(out, "<td>{cell}</td>");
    }
    out.push_str("</tr>\n");
}

fn end(out: &mut String, rows: usize, statement: Option<&Statement>) {
    out.push_str("</table></div>\n");
    if let Some(more) = rows.checked_sub(ROWS_MAX).filter(|more| *more > 0) {
        let more = plural(more as u64, "more row");
        let _ = writeln!(
            out,
            "<p class=\"counts\">… and {more}; the JSON form has all.</p>"
        );
    }
    out.push_str(&counts(statement));
    out.push_str("</div>\n");
}

fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$} %"))
}

fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        value => format!("{value:.3}"),
    }
}

fn moment(at: Timestamp) -> String {
    format!("{}Z", at.to_fts())
}
