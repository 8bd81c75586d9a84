//! What happened in a window, as incidents are made of it: each drop of a rate, and each run of failures of one kind on
//! one link.

use super::IncidentTimes;
use super::fingerprint::IncidentFingerprint;
use crate::explain::signals::{FailureGroup, Series, Signals};
use crate::explain::{RateChange, RateChangeId, RateChangeKind};
use penstock_model::{LinkId, Timestamp, VoName};
use std::collections::BTreeSet;

/// One drop, or failures of one kind on one link, also of its tape systems.
#[derive(Debug, Clone, PartialEq)]
pub struct Occurrence {
    pub fingerprint: IncidentFingerprint,
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// It had not ended a moment before the time until which things are known.
    pub goes_on: bool,
    pub links: BTreeSet<LinkId>,
    /// For which VOs files moved there.
    pub vos: BTreeSet<VoName>,
    pub failed_attempts: u64,
    /// The drop, with its explanation.
    pub drop: Option<Box<RateChange>>,
}

impl Occurrence {
    /// The place among others of its fingerprint.
    pub(super) fn order(&self) -> (Timestamp, Timestamp, Option<RateChangeId>) {
        let id = self.drop.as_ref().map(|drop| drop.id);
        (self.from, self.to, id)
    }
}

/// Where what is known of any link ends.
pub fn known_until(signals: &Signals) -> Timestamp {
    let is_known = |bin: &usize| {
        let mut links = signals.links.values();
        links.any(|link| link.copied_bytes.at(*bin).is_some())
    };
    let last = (0..signals.bins).rev().find(is_known);
    last.map_or(signals.begin, |last| signals.begin_of(last + 1))
}

/// All drops among some changes of rates, and all failures on these links. What was seen a moment before `until` goes
/// on.
pub fn occurrences_of(
    signals: &Signals,
    links: &BTreeSet<LinkId>,
    changes: &[RateChange],
    times: IncidentTimes,
    until: Timestamp,
) -> Vec<Occurrence> {
    let is_recent = |to: Timestamp| until.since(to) <= times.open_for;
    let drops = changes
        .iter()
        .filter(|change| change.kind() == RateChangeKind::Drop);
    let mut occurrences: Vec<Occurrence> = drops
        .map(|drop| Occurrence {
            fingerprint: IncidentFingerprint::of_drop(&drop.explanation, signals),
            from: drop.explanation.from,
            to: drop.explanation.to,
            goes_on: !drop.is_over && is_recent(drop.explanation.to),
            links: drop.explanation.links.iter().cloned().collect(),
            vos: vos_of(signals, &drop.explanation.links),
            failed_attempts: 0,
            drop: Some(Box::new(drop.clone())),
        })
        .collect();
    for (link, of_link) in &signals.links {
        if !links.contains(link) {
            continue;
        }
        for (group, attempts) in of_link.failures.iter().chain(&of_link.tape_failures) {
            let runs = failure_runs(signals, link, group, attempts, times);
            occurrences.extend(runs.into_iter().map(|run| Occurrence {
                goes_on: is_recent(run.to),
                // The last interval may reach beyond what is known.
                to: run.to.min(until).max(run.from),
                ..run
            }));
        }
    }
    occurrences
}

fn vos_of(signals: &Signals, links: &[LinkId]) -> BTreeSet<VoName> {
    let links = links.iter().filter_map(|link| signals.links.get(link));
    links.flat_map(|link| link.vos.iter().cloned()).collect()
}

/// Failures of one kind on one link, without long quiet between them.
fn failure_runs(
    signals: &Signals,
    link: &LinkId,
    group: &FailureGroup,
    attempts: &Series,
    times: IncidentTimes,
) -> Vec<Occurrence> {
    let mut runs: Vec<Occurrence> = Vec::new();
    for bin in 0..signals.bins {
        let failed = attempts.at(bin).unwrap_or(0.0).round().max(0.0) as u64;
        if failed == 0 {
            continue;
        }
        let (from, to) = (signals.begin_of(bin), signals.begin_of(bin + 1));
        let run = runs.last_mut();
        match run.filter(|run| from.since(run.to) <= times.quiet_max) {
            Some(run) => {
                run.failed_attempts += failed;
                run.to = to;
            }
            None => runs.push(Occurrence {
                fingerprint: IncidentFingerprint::of_failures(group, link),
                from,
                to,
                goes_on: false,
                links: BTreeSet::from([link.clone()]),
                vos: vos_of(signals, std::slice::from_ref(link)),
                failed_attempts: failed,
                drop: None,
            }),
        }
    }
    runs
}
