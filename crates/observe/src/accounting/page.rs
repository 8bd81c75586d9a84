//! An account as one HTML page that needs nothing else: plots and tables, each with what it counts.
//!
//! Names come from strangers: each is escaped, and the page allows no script and fetches nothing.

mod figures;
mod tables;

use super::tables::AccountTable;
use super::{Account, Statement};
use crate::html::page_head;
use crate::rate::{Window, view_words};
use crate::svg::escaped;
use penstock_model::observation::{Operation, View};
use penstock_model::text::{one_line, plural};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Names are cut off after so many characters; JSON has all.
const NAME_MAX: usize = 160;
/// The page of an account. `unread` is how many bytes of the records could not be read.
pub fn page(account: &Account, unread: u64) -> String {
    let mut out = page_head("Account of data movement");
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
        view_words(part.view)
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
        view_words(*view)
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
