//! Where rates fell and rose in a window, each with an id that stays: what people and programs ask for.
//!
//! Which links there are, and whose bytes are counted on them, is told from outside; the rest is
//! [`explain`](super::explain).

use super::answer::{Cause, Explanation};
use super::change::{DropOrLull, rises_of, stretches_of};
use super::rule_input::concerns;
use super::signals::{Change, Signals};
use super::{explain_change, explain_low, together};
use crate::timed_id::{TimedId, timed_id_text};
use penstock_model::{LinkId, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Earlier changes of the same cause that are told, the latest first.
const EARLIER_MAX: usize = 5;
/// What was set so many seconds before or after the end of a drop may have ended it.
const REMEDY_SECONDS: i64 = 600;
/// An id still means the change that begins so many bins later or earlier than when it was given: with more bins
/// around it a beginning may move a little.
const ID_BINS: i64 = 10;

/// Whose rate it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Population {
    /// All that moves on a link.
    Link(LinkId),
}

impl fmt::Display for Population {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Population::Link(link) => write!(out, "{link}"),
        }
    }
}

/// The name of a change of a rate: from whose rate it is and when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateChangeId(TimedId);

impl RateChangeId {
    /// Of a change that began then. The years from 1970 to 2106 have ids.
    pub fn new(population: &Population, begin: Timestamp) -> RateChangeId {
        RateChangeId(TimedId::new(&population.to_string(), begin))
    }

    /// When it began, when the id was given.
    pub fn begin(self) -> Timestamp {
        self.0.begin()
    }

    /// Whether it may be of this population.
    pub fn is_of(self, population: &Population) -> bool {
        self.0.is_of(&population.to_string())
    }
}

/// A text that is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id of a drop is two times eight hexadecimal digits with a dash between")]
pub struct InvalidRateChangeId;

timed_id_text!(RateChangeId, InvalidRateChangeId);

/// What a rate did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateChangeKind {
    /// It fell although there was work.
    Drop,
    /// It rose beyond what was usual.
    Rise,
    /// There was less work: nothing was queued.
    Lull,
}

/// A rate that fell or rose, explained.
#[derive(Debug, Clone, PartialEq)]
pub struct RateChange {
    /// Its name.
    pub id: RateChangeId,
    /// What the rate did.
    pub kind: RateChangeKind,
    /// Whose rate.
    pub population: Population,
    /// It has ended within the window; of a rise, always.
    pub is_over: bool,
    pub explanation: Explanation,
    /// Earlier drops of the same population with the same first cause, the latest first.
    pub earlier: Vec<PrecedentChange>,
}

/// A drop that had the same first cause.
#[derive(Debug, Clone, PartialEq)]
pub struct PrecedentChange {
    /// Its name.
    pub id: RateChangeId,
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// What was set about when it ended; `None`: nothing that is known.
    pub remedy: Option<Change>,
}

impl RateChange {
    /// By what changes are ordered.
    pub fn order(&self) -> (Timestamp, RateChangeId) {
        (self.explanation.from, self.id)
    }

    /// The cause with the largest share.
    pub fn first_cause(&self) -> Option<Cause> {
        self.explanation.causes.first().map(|named| named.cause)
    }
}

/// All changes of the rates of some populations, in the order of their beginnings. Of each population the links on
/// which its bytes are counted.
pub fn rate_changes(
    signals: &Signals,
    populations: &[(Population, Vec<LinkId>)],
) -> Vec<RateChange> {
    let mut changes: Vec<RateChange> = populations
        .iter()
        .flat_map(|(population, links)| of_population(signals, population, links))
        .collect();
    changes.sort_by_key(RateChange::order);
    changes
}

/// The change that an id names among others: that of its population which begins then, or nearest to it.
pub fn named(changes: &[RateChange], id: RateChangeId, bin_seconds: u32) -> Option<&RateChange> {
    let distance = |change: &RateChange| {
        let bin = i64::from(bin_seconds.max(1)) * 1000;
        (change.explanation.from.0 - id.begin().0).abs() / bin
    };
    let of_population = changes
        .iter()
        .filter(|change| id.is_of(&change.population) && distance(change) <= ID_BINS);
    of_population.min_by_key(|change| distance(change))
}

fn of_population(signals: &Signals, population: &Population, links: &[LinkId]) -> Vec<RateChange> {
    let link = together(signals, links);
    let last = (0..signals.bins)
        .rev()
        .find(|bin| link.copied_bytes.at(*bin).is_some());
    let end = last.map_or(signals.begin, |last| signals.begin_of(last + 1));
    let change = |kind: RateChangeKind, is_over: bool, explanation: Explanation| RateChange {
        id: RateChangeId::new(population, explanation.from),
        kind,
        population: population.clone(),
        is_over,
        explanation,
        earlier: Vec::new(),
    };
    let low = stretches_of(&link, signals.bin_seconds).low;
    let mut changes: Vec<RateChange> = explain_low(signals, links, &link, &low)
        .into_iter()
        .map(|low| {
            let kind = match low.kind {
                DropOrLull::Drop => RateChangeKind::Drop,
                DropOrLull::NoWork => RateChangeKind::Lull,
            };
            change(kind, low.to < end, low)
        })
        .collect();
    let rises = rises_of(&link, &low, signals.bin_seconds).into_iter();
    changes.extend(rises.filter_map(|rise| {
        let told = explain_change(signals, links, rise.before, rise.during)?;
        told.is_rise
            .then(|| change(RateChangeKind::Rise, true, told))
    }));
    changes.sort_by_key(|change| change.explanation.from);
    for later in 1..changes.len() {
        changes[later].earlier = earlier(signals, links, &changes[..later], &changes[later]);
    }
    changes
}

fn earlier(
    signals: &Signals,
    links: &[LinkId],
    before: &[RateChange],
    change: &RateChange,
) -> Vec<PrecedentChange> {
    let cause = change.first_cause();
    let is_alike = |other: &&RateChange| {
        other.kind == change.kind && cause.is_some() && other.first_cause() == cause
    };
    let remedy = |end: Timestamp| {
        let at_end = |one: &&Change| (one.at.0 - end.0).abs() <= REMEDY_SECONDS * 1000;
        let of_links = |one: &&Change| concerns(signals, links, &one.place);
        let set = signals.changes.iter().filter(at_end).filter(of_links);
        set.min_by_key(|one| (one.at.0 - end.0).abs()).cloned()
    };
    let alike = before.iter().rev().filter(is_alike).take(EARLIER_MAX);
    alike
        .map(|other| PrecedentChange {
            id: other.id,
            from: other.explanation.from,
            to: other.explanation.to,
            remedy: remedy(other.explanation.to),
        })
        .collect()
}
