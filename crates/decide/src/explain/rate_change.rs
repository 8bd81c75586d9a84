//! Where rates fell and rose in a window, each with an id that stays: what people and programs ask for.
//!
//! Which links there are, and whose bytes are counted on them, is told from outside; the rest is
//! [`explain`](super::explain).

use super::answer::{Cause, Explanation, RateChangeKind};
use super::change::{rises_of, stretches_of};
use super::rule_input::concerns;
use super::signals::{Change, LinkSignals, PoolSignals, Signals};
use super::{explain_change_of, explain_low, together};
use crate::timed_id::{TimedId, timed_id_text};
use penstock_model::{LinkId, PoolName, StorageId, Timestamp, VoName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    /// All that moves into a storage element.
    Into(StorageId),
    /// All that moves out of one.
    OutOf(StorageId),
    /// All that a pool takes and gives.
    Pool(PoolName),
}

impl fmt::Display for Population {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Population::Link(link) => write!(out, "{link}"),
            Population::Into(storage) => write!(out, "into {storage}"),
            Population::OutOf(storage) => write!(out, "out of {storage}"),
            Population::Pool(pool) => write!(out, "pool {pool}"),
        }
    }
}

impl Population {
    /// What is known of it, as of one link.
    fn signals(&self, signals: &Signals, links: &[LinkId]) -> LinkSignals {
        match self {
            Population::Link(_) | Population::Into(_) | Population::OutOf(_) => {
                together(signals, links)
            }
            Population::Pool(pool) => signals.pools.get(pool).map(of_pool).unwrap_or_default(),
        }
    }
}

/// A pool's movers are what runs, waits and may run there.
fn of_pool(pool: &PoolSignals) -> LinkSignals {
    LinkSignals {
        copied_bytes: pool.bytes_in.plus(&pool.bytes_out),
        active: pool.movers.clone(),
        limit: pool.movers_limit.clone(),
        queued: pool.movers_queued.clone(),
        stalled: pool.movers_stalled.clone(),
        progress_age_seconds: pool.progress_age_seconds.clone(),
        ..LinkSignals::default()
    }
}

/// Whose rates are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PopulationChoice {
    /// Of each link.
    #[default]
    Links,
    /// Of the links that fit a text: `SOURCE-DESTINATION`, each by host or with scheme, or `*`.
    Link(String),
    /// Of each link on which files of a VO move or wait.
    Vo(VoName),
    /// Of all links of a storage element together: those that end there, and those that begin there. By host or with scheme.
    Server(String),
    /// Of a pool of the storage element that runs at the same site.
    Pool(PoolName),
    /// Of whatever a change was told of, by its id: it has room however many links there are.
    OfChange(RateChangeId),
}

impl PopulationChoice {
    /// The words before a name of that of which rates may be asked for.
    pub const WORDS: [&'static str; 4] = ["link", "vo", "server", "pool"];

    /// Of what a name means after one of these words; `None`: it is none of them.
    pub fn named(word: &str, name: &str) -> Option<PopulationChoice> {
        match word {
            "link" => Some(PopulationChoice::Link(name.to_owned())),
            "vo" => Some(PopulationChoice::Vo(VoName::new(name))),
            "server" => {
                let name = name.trim().to_ascii_lowercase();
                Some(PopulationChoice::Server(name))
            }
            "pool" => Some(PopulationChoice::Pool(PoolName::new(name))),
            _ => None,
        }
    }

    /// Whether a link may be a part of what is asked for.
    pub fn may_have(&self, link: &LinkId) -> bool {
        match self {
            PopulationChoice::Links | PopulationChoice::Vo(_) | PopulationChoice::Pool(_) => true,
            PopulationChoice::Link(_)
            | PopulationChoice::Server(_)
            | PopulationChoice::OfChange(_) => self.names(link),
        }
    }

    /// Whether a link is asked for by name, so that it has room beside all others.
    pub fn names(&self, link: &LinkId) -> bool {
        match self {
            PopulationChoice::Links | PopulationChoice::Vo(_) | PopulationChoice::Pool(_) => false,
            PopulationChoice::Link(text) => link.is_called(text),
            PopulationChoice::Server(text) => {
                link.source.is_called(text) || link.destination.is_called(text)
            }
            PopulationChoice::OfChange(id) => {
                let alone = Population::Link(link.clone());
                id.is_of(&alone) || ways_of(link).iter().any(|way| id.is_of(way))
            }
        }
    }

    /// Those that are asked for among all that are known, each with the links on which its bytes are counted.
    pub fn populations(&self, signals: &Signals) -> Vec<(Population, Vec<LinkId>)> {
        let links = || signals.links.keys();
        let alone = |link: &LinkId| (Population::Link(link.clone()), vec![link.clone()]);
        match self {
            PopulationChoice::Links => links().map(alone).collect(),
            PopulationChoice::Link(_) => {
                links().filter(|link| self.names(link)).map(alone).collect()
            }
            PopulationChoice::Vo(vo) => {
                let of_vo = signals
                    .links
                    .iter()
                    .filter(|(_, known)| known.vos.contains(vo));
                of_vo.map(|(link, _)| alone(link)).collect()
            }
            PopulationChoice::Server(text) => {
                let mut both = of_servers(signals);
                both.retain(|(population, _)| match population {
                    Population::Into(storage) | Population::OutOf(storage) => {
                        storage.is_called(text)
                    }
                    Population::Link(_) | Population::Pool(_) => false,
                });
                both
            }
            PopulationChoice::Pool(pool) => of_pools(signals, |name| name == pool),
            PopulationChoice::OfChange(id) => {
                let mut all: Vec<_> = links().map(alone).collect();
                all.extend(of_servers(signals));
                all.extend(of_pools(signals, |_| true));
                all.retain(|(population, _)| id.is_of(population));
                all
            }
        }
    }
}

/// Both ways of which a link is a part.
fn ways_of(link: &LinkId) -> [Population; 2] {
    let (into, out_of) = (link.destination.clone(), link.source.clone());
    [Population::Into(into), Population::OutOf(out_of)]
}

/// Each storage element with the links that end there, and with those that begin there.
fn of_servers(signals: &Signals) -> Vec<(Population, Vec<LinkId>)> {
    let mut of_ways: BTreeMap<Population, Vec<LinkId>> = BTreeMap::new();
    for link in signals.links.keys() {
        for way in ways_of(link) {
            of_ways.entry(way).or_default().push(link.clone());
        }
    }
    of_ways.into_iter().collect()
}

/// Pools, each with the links of its storage element.
fn of_pools(
    signals: &Signals,
    wanted: impl Fn(&PoolName) -> bool,
) -> Vec<(Population, Vec<LinkId>)> {
    let pools = signals.pools.iter().filter(|(name, _)| wanted(name));
    pools
        .map(|(name, pool)| {
            let host = pool.storage.as_ref().map(StorageId::host);
            let is_its = |storage: &StorageId| Some(storage.host()) == host;
            let its = signals.links.keys();
            let its = its.filter(|link| is_its(&link.source) || is_its(&link.destination));
            (Population::Pool(name.clone()), its.cloned().collect())
        })
        .collect()
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
#[error("this is not an id of a drop, a rise or a lull: expected the form 1a2b3c4d-5e6f7a8b")]
pub struct InvalidRateChangeId;

timed_id_text!(RateChangeId, InvalidRateChangeId);

/// A rate that fell or rose, explained.
#[derive(Debug, Clone, PartialEq)]
pub struct RateChange {
    /// Its name.
    pub id: RateChangeId,
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
    /// What the rate did.
    pub fn kind(&self) -> RateChangeKind {
        self.explanation.kind
    }

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
    let link = population.signals(signals, links);
    let last = (0..signals.bins)
        .rev()
        .find(|bin| link.copied_bytes.at(*bin).is_some());
    let end = last.map_or(signals.begin, |last| signals.begin_of(last + 1));
    let change = |is_over: bool, explanation: Explanation| RateChange {
        id: RateChangeId::new(population, explanation.from),
        population: population.clone(),
        is_over,
        explanation,
        earlier: Vec::new(),
    };
    let low = stretches_of(&link, signals.bin_seconds).low;
    let mut changes: Vec<RateChange> = explain_low(signals, links, &link, &low)
        .into_iter()
        .map(|low| change(low.to < end, low))
        .collect();
    let rises = rises_of(&link, &low, signals.bin_seconds).into_iter();
    changes.extend(rises.filter_map(|rise| {
        let told = explain_change_of(signals, links, &link, rise.low, rise.usual)?;
        (told.kind == RateChangeKind::Rise).then(|| change(true, told))
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
        other.kind() == change.kind() && cause.is_some() && other.first_cause() == cause
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
