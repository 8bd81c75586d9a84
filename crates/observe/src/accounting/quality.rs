//! Quality in errors and in incidents: a full disk writes one error for each file, and is one incident.

use super::{EVENT, OTHERS, SUCCESS_RULE, Statement, UNKNOWN};
use crate::rate::Window;
use penstock_model::observation::{Attempt, Operation, Outcome, Text, View};
use penstock_model::{Side, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;

/// Kinds of failure that are told apart in one view and operation at most.
const KINDS_MAX: usize = 1_000;
/// Kinds that are told, those with most errors first.
const KINDS_TOLD_MAX: usize = 50;

/// How well attempts of one view and operation went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quality {
    pub view: View,
    pub operation: Operation,
    /// Attempts that succeeded or failed.
    pub ended: u64,
    /// Attempts that failed.
    pub errors: u64,
    /// In percent of `ended`.
    pub error_percent: Option<f64>,
    /// Kinds of failure.
    pub incidents: u64,
    /// Errors of all other incidents in percent of all other attempts: what one incident hides.
    pub error_percent_without_largest: Option<f64>,
    /// What failed, the most frequent first.
    pub kinds: Vec<FailureKind>,
    /// `None`: nobody named a time and no record tells one.
    pub statement: Option<Statement>,
}

/// Failures alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailureKind {
    /// The failure without what differs from file to file.
    pub fingerprint: String,
    /// Where the fault lies, of the first that was taken.
    pub side: Option<Side>,
    pub errors: u64,
    /// When the first of them ended.
    pub first: Timestamp,
    /// When the last of them did.
    pub last: Timestamp,
}

#[derive(Debug, Default)]
struct Sum {
    ended: u64,
    errors: u64,
    kinds: BTreeMap<Text, FailureKind>,
}

/// Takes attempts of which an end is told.
#[derive(Debug, Default)]
pub(super) struct QualitySums {
    sums: BTreeMap<(View, Operation), Sum>,
}

impl QualitySums {
    pub(super) fn take(&mut self, row: &Attempt, outcome: Outcome) {
        if outcome == Outcome::Abort {
            return;
        }
        let sum = self.sums.entry((row.view, row.operation)).or_default();
        sum.ended += 1;
        if outcome != Outcome::Failure {
            return;
        }
        sum.errors += 1;
        let name = row.fingerprint.clone().unwrap_or_else(|| UNKNOWN.into());
        let name = match sum.kinds.len() >= KINDS_MAX && !sum.kinds.contains_key(&name) {
            true => OTHERS.into(),
            false => name,
        };
        let kind = sum
            .kinds
            .entry(name.clone())
            .or_insert_with(|| FailureKind {
                fingerprint: name.to_string(),
                side: row.side,
                errors: 0,
                first: row.at,
                last: row.at,
            });
        kind.errors += 1;
        kind.first = kind.first.min(row.at);
        kind.last = kind.last.max(row.at);
    }

    pub(super) fn of(self, window: Option<Window>) -> Vec<Quality> {
        let all = self.sums.into_iter().map(|((view, operation), sum)| {
            let Sum {
                ended,
                errors,
                kinds,
            } = sum;
            let incidents = kinds.len() as u64;
            let mut kinds: Vec<FailureKind> = kinds.into_values().collect();
            kinds.sort_by(|a, b| (b.errors, &a.fingerprint).cmp(&(a.errors, &b.fingerprint)));
            kinds.truncate(KINDS_TOLD_MAX);
            let percent =
                |part: u64, all: u64| (all > 0).then(|| 100.0 * part as f64 / all as f64);
            let largest = kinds.first().map(|kind| kind.errors);
            Quality {
                view,
                operation,
                ended,
                errors,
                error_percent: percent(errors, ended),
                incidents,
                error_percent_without_largest: largest
                    .and_then(|largest| percent(errors - largest, ended - largest)),
                kinds,
                statement: window.map(|window| Statement {
                    population: format!(
                        "{} attempts that succeeded or failed; failures alike, but for what differs from file to \
                         file, are one incident",
                        operation.word()
                    ),
                    window,
                    event: EVENT,
                    unit: "attempts; errors in percent of attempts",
                    success_rule: SUCCESS_RULE,
                    view,
                }),
            }
        });
        all.collect()
    }
}
