//! Outcomes as tables of a page for people.

use super::tally::{Tally, TallyRow};
use super::{Fault, QuietOutcome, Strength};
use penstock_decide::explain::Cause;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The head of a table of faults.
pub const HEAD: &str = "| cause | fault | strength | trials | found | first cause right | found within 3 minutes | median delay | fix as told | named instead |";
const RULE: &str = "|---|---|---|---:|---:|---:|---:|---:|---:|---|";

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
            let _ = writeln!(
                text,
                "| `{code}` | {} | {strength} | {} |",
                fault.words(),
                cells(row)
            );
        }
    }
    let all = tally.of(|fault| faults.contains(&fault));
    let _ = writeln!(text, "| **all** | | | {} |", cells(&all));
    text
}

/// The head of a table of causes.
pub const HEAD_OF_CAUSES: &str = "| cause | trials | first cause right |";

/// A row for each cause: strengths and faults together.
pub fn causes(tally: &Tally, faults: &[Fault]) -> String {
    let mut text = format!("{HEAD_OF_CAUSES}\n|---|---:|---:|\n");
    let all: BTreeSet<Cause> = faults.iter().map(|fault| fault.cause()).collect();
    for cause in all {
        let row = tally.of(|fault| faults.contains(&fault) && fault.cause() == cause);
        let _ = writeln!(
            text,
            "| `{}` | {} | {} |",
            cause.code(),
            row.trials,
            percent(row.right_part())
        );
    }
    text
}

fn cells(row: &TallyRow) -> String {
    let found = super::tally::part(row.found, row.trials);
    let delay = row
        .delay(0.5)
        .map_or("–".to_owned(), |seconds| format!("{seconds:.0} s"));
    format!(
        "{} | {} | {} | {} | {delay} | {} | {}",
        row.trials,
        percent(found),
        percent(row.right_part()),
        percent(row.prompt_part()),
        percent(row.gain_part()),
        others(row)
    )
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

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
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
