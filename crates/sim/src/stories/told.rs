//! A line of what authors wrote, beside what the explainer says of the same time.

use penstock_decide::explain::signals::Signals;
use penstock_decide::explain::{Cause, Explanation, Permille, explain_change, rate_changes};
use penstock_decide::explain::{Population, RateChange, RateChangeKind};
use penstock_decide::wording;
use penstock_model::{LinkId, Timestamp};
use std::fmt::Write;
use std::ops::Range;

/// From this part in percent on, a table names what was not measured.
const UNEXPLAINED_LARGE: u16 = 10;
/// So many of it.
const MISSING_NAMED: usize = 4;

/// What happened, as authors saw it and as it is told now.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// When, in the words of the document.
    pub when: &'static str,
    /// What its authors wrote.
    pub authors: &'static str,
    /// What is told: the change of the rate that weighs most in that time.
    pub told: Option<Explanation>,
    /// Changes of that time with the same first cause.
    pub changes: usize,
}

/// Of which time a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl Line {
    /// The cause that is named first.
    pub fn first_cause(&self) -> Option<Cause> {
        Some(self.told.as_ref()?.causes.first()?.cause)
    }

    /// The share of a cause.
    pub fn share_of(&self, cause: Cause) -> Option<Permille> {
        let causes = &self.told.as_ref()?.causes;
        let named = causes.iter().find(|named| named.cause == cause);
        named.map(|named| named.share)
    }

    /// Of the drops and lulls that begin in one of these spans, the one that weighs most.
    pub(super) fn of_falls(
        (when, authors): (&'static str, &'static str),
        changes: &[RateChange],
        spans: &[Span],
    ) -> Line {
        let falls = changes.iter().filter(|change| {
            let from = change.explanation.from;
            let mut spans = spans.iter();
            change.kind() != RateChangeKind::Rise
                && spans.any(|span| span.from <= from && from < span.to)
        });
        let falls: Vec<&RateChange> = falls.collect();
        let weight = |change: &&&RateChange| {
            let told = &change.explanation;
            let seconds = told.to.since(told.from).as_secs_f64();
            ((told.usual.rate - told.low.rate) * seconds) as u64
        };
        let heaviest = falls.iter().max_by_key(weight).copied();
        let cause = heaviest.and_then(|change| change.first_cause());
        let alike = falls.iter().filter(|change| change.first_cause() == cause);
        Line {
            when,
            authors,
            told: heaviest.map(|change| change.explanation.clone()),
            changes: alike.count(),
        }
    }

    /// Of two spans of time that authors compare.
    pub(super) fn of_spans(
        (when, authors): (&'static str, &'static str),
        signals: &Signals,
        links: &[LinkId],
        before: Range<usize>,
        during: Range<usize>,
    ) -> Line {
        let told = explain_change(signals, links, before, during);
        Line {
            when,
            authors,
            changes: usize::from(told.is_some()),
            told,
        }
    }

    /// What is told, in a few words for a table.
    pub(super) fn brief(&self) -> String {
        let Some(told) = &self.told else {
            return "nothing: no change of the rate".to_owned();
        };
        let mut text = String::new();
        if told.kind == RateChangeKind::Rise {
            text.push_str("a rise; held down before by: ");
        } else if told.kind == RateChangeKind::Lull {
            text.push_str("no drop, but a lack of work: ");
        }
        for named in &told.causes {
            let percent = (named.share.0 + 5) / 10;
            let _ = write!(
                text,
                "{percent} % {} `{}`",
                wording::cause(named.cause),
                named.cause.code()
            );
            for follower in &named.followers {
                let _ = write!(
                    text,
                    ", hence {} `{}`",
                    wording::cause(*follower),
                    follower.code()
                );
            }
            text.push_str("; ");
        }
        let named: u16 = told
            .causes
            .iter()
            .map(|named| (named.share.0 + 5) / 10)
            .sum();
        let left = 100 - named.min(100);
        if left > 0 {
            let _ = write!(text, "{left} % **unexplained**");
            if left >= UNEXPLAINED_LARGE {
                text.push_str(&not_measured(told));
            }
            text.push_str("; ");
        }
        if self.changes > 1 {
            let _ = write!(text, "{} times; ", self.changes);
        }
        text.trim_end_matches("; ").to_owned()
    }
}

/// What was not measured and might explain it, the first ones by name.
fn not_measured(told: &Explanation) -> String {
    let names = told.missing.iter().take(MISSING_NAMED);
    let names: Vec<&str> = names.map(|missing| wording::measure(*missing)).collect();
    match told.missing.len().saturating_sub(MISSING_NAMED) {
        _ if names.is_empty() => String::new(),
        0 => format!(" (not measured: {})", names.join(", ")),
        others => format!(" (not measured: {}, and {others} others)", names.join(", ")),
    }
}

/// All changes of one population's rate.
pub(super) fn changes_of(signals: &Signals, link: &LinkId, links: &[LinkId]) -> Vec<RateChange> {
    rate_changes(signals, &[(Population::Link(link.clone()), links.to_vec())])
}

/// Lines as a table of a page.
pub(super) fn table<'a>(lines: impl IntoIterator<Item = &'a Line>) -> String {
    let mut text =
        "| when | what the authors wrote | what Penstock says |\n|---|---|---|\n".to_owned();
    for line in lines {
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            line.when,
            line.authors,
            line.brief()
        );
    }
    text
}

/// What is told of lines in full, as `penstock explain` prints it.
pub(super) fn in_full<'a>(lines: impl IntoIterator<Item = &'a Line>) -> String {
    let told = lines.into_iter().filter_map(|line| line.told.as_ref());
    let texts: Vec<String> = told.map(wording::explanation).collect();
    format!("```\n{}```\n", texts.join("\n"))
}
