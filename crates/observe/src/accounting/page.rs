//! An account as one HTML page that needs nothing else: plots and tables, each with what it counts.
//!
//! Names come from strangers: each is escaped, and the page allows no script and fetches nothing.

mod figures;
mod tables;

use super::tables::AccountTable;
use super::{Account, Statement};
use crate::rate::Window;
use crate::svg::escaped;
use penstock_model::observation::{Operation, View};
use penstock_model::text::{one_line, plural};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Names are cut off after so many characters; JSON has all.
const NAME_MAX: usize = 160;
const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#f4f6f9;--card:#fff;--line:#d9dfe7;--text:#18202a;--muted:#556170;--bar:#2f7fd6;\
--bar-in:#1f9d86}\
@media(prefers-color-scheme:dark){:root{--ground:#0e1218;--card:#171d26;--line:#2b3442;--text:#e7ecf3;--muted:#9fabba;\
--bar:#58a6ff;--bar-in:#46c5ab}}\
*{box-sizing:border-box}body{margin:0 auto;padding:0 16px 48px;max-width:70rem;background:var(--ground);color:var(--text);\
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}\
h1{font-size:22px;margin:24px 0 4px}h2{font-size:19px;margin:40px 0 8px}h3{font-size:15px;margin:0 0 8px}\
.part,figure{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;margin:14px 0;\
min-width:0}\
figcaption{font-weight:600}small,.counts,.none{color:var(--muted);font-weight:400}.counts{font-size:12px;margin:8px 0 0}\
.counts b{font-weight:600}.scroll,figure{overflow-x:auto}\
svg{display:block;width:100%;height:auto}svg text{font-size:12px;fill:currentColor}.grid{stroke:currentColor;opacity:.15}\
.legend{font-size:13px;margin:6px 0 0}.legend span{margin-right:1em}\
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}\
table{border-collapse:collapse;font-size:13px;min-width:100%}\
th,td{padding:4px 8px;text-align:right;border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums;\
white-space:nowrap}\
th{color:var(--muted);font-weight:600;vertical-align:bottom}\
th:first-child,td:first-child,.left{text-align:left;white-space:normal;min-width:9em}\
.matrix{min-width:0}.matrix td{text-align:center}.matrix td:first-child{text-align:left}.matrix th.turned{vertical-align:bottom;padding:4px;white-space:normal;min-width:0}\
.turned span{writing-mode:vertical-rl;transform:rotate(180deg);max-height:24em;text-align:left}\
.e0{background:#d55e0099}.e1{background:#e69f0088}.e2{background:#f0e44266}.e3{background:#56b4e955}\
.e4{background:#009e7344}.e5{background:#009e7388}\
.bar{display:block;height:8px;border-radius:4px;background:var(--bar);min-width:1px}.bar.in{background:var(--bar-in)}\
.bars{min-width:110px}.key i{display:inline-block;padding:0 .6em;margin-right:.3em;font-style:normal}\
.cards{display:flex;flex-wrap:wrap;gap:10px}.cards div{background:var(--card);border:1px solid var(--line);\
border-radius:10px;padding:10px 14px;flex:1 1 130px}.cards b{display:block;font-size:20px}\
ul{padding-left:1.2em;margin:6px 0}\
@media(max-width:640px){svg{min-width:540px}svg text{font-size:19px}}";

/// The page of an account. `unread` is how many bytes of the records could not be read.
pub fn page(account: &Account, unread: u64) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"referrer\" content=\"no-referrer\">\
         <title>Account of data movement</title><style>{STYLE}</style></head><body>\n\
         <h1>Account of data movement</h1>\n"
    );
    match account.window {
        Some(window) => {
            let _ = writeln!(
                out,
                "<p>{} ({}). Times are UTC. Views are never added: the same transfers look different from another \
                 side.</p>",
                window.words(),
                window.rule.words()
            );
        }
        None => out.push_str("<p>There are no records of ended attempts.</p>\n"),
    }
    let parts = parts_of(account);
    if parts.is_empty() && account.window.is_some() {
        out.push_str("<p>There are no records of ended attempts in this window.</p>\n");
    }
    for part in parts {
        add_part(&mut out, account, part);
    }
    add_site(&mut out, account);
    add_remarks(&mut out, account, unread);
    out.push_str("</body></html>\n");
    out
}

/// What is never added to anything else, and over which time.
#[derive(Debug, Clone, Copy)]
struct Part {
    view: View,
    operation: Operation,
    window: Window,
}

impl Part {
    fn has(self, view: View, operation: Operation) -> bool {
        (self.view, self.operation) == (view, operation)
    }
}

/// What there are tables of, in order.
fn parts_of(account: &Account) -> Vec<Part> {
    let Some(window) = account.window else {
        return Vec::new();
    };
    let lines = account.table.lines.iter();
    let parts: BTreeSet<_> = lines.map(|line| (line.view, line.operation)).collect();
    let parts = parts.into_iter().map(|(view, operation)| Part {
        view,
        operation,
        window,
    });
    parts.collect()
}

/// The table that was asked for, then the others.
fn all_tables(account: &Account) -> impl Iterator<Item = &AccountTable> {
    [&account.table].into_iter().chain(&account.others)
}

fn add_part(out: &mut String, account: &Account, part: Part) {
    let _ = writeln!(
        out,
        "<h2>{}, {}</h2>",
        operation_words(part.operation),
        super::rate_view(part.view).words()
    );
    tables::add_cards(out, account, part);
    for table in all_tables(account) {
        figures::add_rates(out, table, part);
    }
    figures::add_cumulative(out, &account.table, part);
    tables::add_days(out, &account.table, part);
    for table in all_tables(account) {
        tables::add_lines(out, table, part);
    }
    let matrices = account.efficiency.iter();
    for matrix in matrices.filter(|of| part.has(of.view, of.operation)) {
        tables::add_matrix(out, matrix);
    }
    let all = account.quality.iter();
    for quality in all.filter(|of| part.has(of.view, of.operation)) {
        tables::add_quality(out, quality);
    }
}

/// What is of servers and files, whatever was attempted.
fn add_site(out: &mut String, account: &Account) {
    if !account.servers.is_empty() || !account.utilisation.is_empty() {
        out.push_str("<h2>Servers</h2>\n");
    }
    tables::add_servers(out, account);
    figures::add_utilisation(out, &account.utilisation);
    if !account.readings.is_empty() {
        out.push_str("<h2>Files</h2>\n");
        tables::add_readings(out, account);
    }
}

/// What is in no figure, and what cannot be true.
fn add_remarks(out: &mut String, account: &Account, unread: u64) {
    let mut remarks: Vec<String> = Vec::new();
    if account.open > 0 {
        remarks.push(format!(
            "{} without an end of an attempt: in no figure.",
            plural(account.open, "row")
        ));
    }
    if unread > 0 {
        remarks.push(format!(
            "{} of the records could not be read: in no figure.",
            plural(unread, "byte")
        ));
    }
    for found in &account.impossible {
        remarks.push(format!("Cannot be true, {}", escaped(&found.words())));
    }
    if remarks.is_empty() {
        return;
    }
    out.push_str("<h2>Remarks</h2>\n<div class=\"part\"><ul>\n");
    for remark in remarks {
        let _ = writeln!(out, "<li>{remark}</li>");
    }
    out.push_str("</ul></div>\n");
}

/// What a figure counts, below it.
fn counts(statement: Option<&Statement>) -> String {
    let Some(statement) = statement else {
        return String::new();
    };
    let Statement {
        population,
        window,
        event,
        unit,
        success_rule,
        view,
    } = statement;
    format!(
        "<p class=\"counts\"><b>Population:</b> {}. <b>Window:</b> {}, {}. <b>Event:</b> {}. <b>Unit:</b> {}. \
         <b>Success rule:</b> {}. <b>View:</b> {}.</p>\n",
        name(population),
        window.words(),
        window.rule.words(),
        escaped(event),
        escaped(unit),
        escaped(success_rule),
        view.words()
    )
}

/// A text of somebody else: on one line, not longer than it may be, escaped.
fn name(text: &str) -> String {
    escaped(&shown(text))
}

/// The same, for what is escaped later.
fn shown(text: &str) -> String {
    let line = one_line(text);
    let mut characters = line.chars();
    let mut short: String = characters.by_ref().take(NAME_MAX).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

fn operation_words(operation: Operation) -> &'static str {
    match operation {
        Operation::Copy => "Copies",
        Operation::Read => "Reads by clients",
        Operation::Write => "Writes by clients",
        Operation::PoolCopy => "Copies between pools",
        Operation::Recall => "Recalls from tape",
        Operation::Migration => "Migrations to tape",
        Operation::Removal => "Removals",
        Operation::Request => "Requests",
    }
}

#[cfg(test)]
mod tests;
