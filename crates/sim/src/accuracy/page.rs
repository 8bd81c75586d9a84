//! Outcomes as tables of a page for people.

use super::tally::{Tally, TallyRow};
use super::{Fault, QuietOutcome, Strength};
use penstock_decide::explain::Cause;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The head of a table of faults.
pub const HEAD: &str = "| cause | fault | strength | trials | beside them without loss | drop found | first cause right | named within 3 minutes | median time until it is named | fix as predicted | named instead |";
const RULE: &str = "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|";

/// A table of some faults, a row for each and its strengths.
pub fn table(tally: &Tally, faults: &[Fault]) -> String {
    let mut text = format!("{HEAD}\n{RULE}\n");
    for fault in faults {
        for strength in Strength::ALL {
            let Some(row) = tally.rows.get(&(*fault, strength)) else {
                continue;
            };
            let strength = match strength {
                Strength::Weak => "weak",
                Strength::Strong => "strong",
            };
            let code = fault.cause().code();
            let delay = row
                .delay(0.5)
                .map_or("–".to_owned(), |seconds| format!("{seconds:.0} s"));
            let _ = writeln!(
                text,
                "| `{code}` | {} | {strength} | {} | {} | {} | {} | {} | {delay} | {} | {} |",
                fault.words(),
                row.trials,
                row.without_loss,
                percent(row.found, row.trials),
                percent(row.right, row.trials),
                prompt(row, fault.is_rate_fault()),
                fixes(row),
                others(row)
            );
        }
    }
    text
}

/// The head of a table of causes.
pub const HEAD_OF_CAUSES: &str = "| cause | trials | beside them without loss | first cause right | rate faults: named within 3 minutes | first fix brings 75 to 125 % of its prediction |";

/// A row for each cause, strengths and faults together, and one for all.
pub fn causes(tally: &Tally, faults: &[Fault]) -> String {
    let mut text = format!("{HEAD_OF_CAUSES}\n|---|---:|---:|---:|---:|---:|\n");
    let mut row = |name: &str, is_of: &dyn Fn(Fault) -> bool| {
        let its = |fault: Fault| faults.contains(&fault) && is_of(fault);
        let (all, of_rate) = (
            tally.of(its),
            tally.of(|fault| its(fault) && fault.is_rate_fault()),
        );
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} |",
            all.trials,
            all.without_loss,
            percent(all.right, all.trials),
            prompt(&of_rate, of_rate.trials > 0),
            fixes(&all)
        );
    };
    let all: BTreeSet<Cause> = faults.iter().map(|fault| fault.cause()).collect();
    for cause in all {
        row(&format!("`{}`", cause.code()), &|fault| {
            fault.cause() == cause
        });
    }
    row("**all**", &|_| true);
    text
}

fn prompt(row: &TallyRow, is_rate_fault: bool) -> String {
    match is_rate_fault {
        true => percent(row.prompt(), row.trials),
        false => "–".to_owned(),
    }
}

fn fixes(row: &TallyRow) -> String {
    let (told, held) = row.gains;
    match told {
        0 => "–".to_owned(),
        told => format!("{} of {told}", percent(held, told)),
    }
}

fn others(row: &TallyRow) -> String {
    let mut others: Vec<_> = row.others.iter().collect();
    others.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let each = others.into_iter().take(3).map(|(named, count)| {
        let named = named.map_or("nothing".to_owned(), |cause| format!("`{}`", cause.code()));
        format!("{named} {count}")
    });
    each.collect::<Vec<_>>().join(", ")
}

fn percent(count: u32, of: u32) -> String {
    format!("{:.1} %", 100.0 * f64::from(count) / f64::from(of.max(1)))
}

/// What was explained in quiet days.
pub fn quiet(outcome: &QuietOutcome) -> String {
    let explained = outcome.false_drops.iter().filter(|drop| drop.2.is_some());
    format!(
        "{} links in {} quiet days: {} drops were explained, at most {} of one link, and {} more were found without a cause.\n",
        outcome.links,
        outcome.days,
        explained.clone().count(),
        outcome.explained_max(),
        outcome.false_drops.len() - explained.count(),
    )
}
