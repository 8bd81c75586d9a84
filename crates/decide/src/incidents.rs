//! Incidents: all that one cause did. Drops of rates and failed attempts with one fingerprint (class, cause, object and
//! place) are one incident, however many they are, until it has been quiet for long.
//!
//! Why a rate fell is found by [`explain`](crate::explain); here it is only grouped. Sentences are in `wording`.

mod fingerprint;
mod months;
mod occurrence;

pub use fingerprint::{IncidentFingerprint, IncidentPlace};
pub use months::{ClassShare, InvalidMonth, Month, MonthShares, months_of};
pub use occurrence::{Occurrence, known_until, occurrences_of};

use crate::explain::{RateChange, RateChangeId};
use crate::timed_id::{TimedId, timed_id_text};
use penstock_model::{Bytes, LinkId, Rate, Timestamp, VoName};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Drops of one incident that are told one by one; further ones are counted.
pub const DROPS_MAX: usize = 50;
/// An id still means the incident that was first seen so much earlier or later: with more of the record around it, a
/// beginning may move a little.
const ID_REACH: Duration = Duration::from_secs(3600);

/// What separates two incidents of one cause, and when one is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncidentTimes {
    /// What comes back after a longer quiet is a new incident.
    pub quiet_max: Duration,
    /// An incident is open for so long after it was last seen.
    pub open_for: Duration,
}

impl Default for IncidentTimes {
    fn default() -> IncidentTimes {
        IncidentTimes {
            quiet_max: Duration::from_secs(6 * 3600),
            open_for: Duration::from_secs(15 * 60),
        }
    }
}

/// The name of an incident: from its fingerprint and when it was first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IncidentId(TimedId);

/// A text that is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not an id of an incident: expected the form 1a2b3c4d-5e6f7a8b")]
pub struct InvalidIncidentId;

timed_id_text!(IncidentId, InvalidIncidentId);

impl IncidentId {
    /// Of what was first seen then.
    pub fn new(fingerprint: &IncidentFingerprint, first_seen: Timestamp) -> IncidentId {
        IncidentId(TimedId::new(&fingerprint.to_string(), first_seen))
    }

    /// When it was first seen, when the id was given.
    pub fn begin(self) -> Timestamp {
        self.0.begin()
    }

    fn has_cause_of(self, incident: &Incident) -> bool {
        self.0.is_of(&incident.fingerprint.to_string())
    }

    fn is_of(self, incident: &Incident) -> bool {
        let begin = self.begin();
        let from = Timestamp(
            incident
                .first_seen
                .0
                .saturating_sub(ID_REACH.as_millis() as i64),
        );
        let is_within = from <= begin && begin <= incident.last_seen + ID_REACH;
        is_within && self.has_cause_of(incident)
    }
}

/// A drop of a rate that belongs to an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct IncidentDrop {
    /// When it began.
    pub from: Timestamp,
    /// When it ended, or where what is known ends.
    pub to: Timestamp,
    /// Its name.
    pub id: RateChangeId,
    /// The rate before it, in bytes per second.
    pub usual_bytes_per_second: Rate,
    /// The rate in it, in bytes per second.
    pub low_bytes_per_second: Rate,
    /// The usual rate less the low one, times its length.
    pub bytes_lost: Bytes,
}

impl IncidentDrop {
    fn of(change: &RateChange) -> IncidentDrop {
        let told = &change.explanation;
        let rate = |rate: f64| Rate(rate.max(0.0).round() as u64);
        let seconds = told.to.since(told.from).as_secs_f64();
        let lost = (told.usual.rate - told.low.rate).max(0.0) * seconds;
        IncidentDrop {
            from: told.from,
            to: told.to,
            id: change.id,
            usual_bytes_per_second: rate(told.usual.rate),
            low_bytes_per_second: rate(told.low.rate),
            bytes_lost: Bytes(lost.round() as u64),
        }
    }
}

/// All that one cause did.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    /// Its name.
    pub id: IncidentId,
    /// What makes it one.
    pub fingerprint: IncidentFingerprint,
    /// When the first of it began.
    pub first_seen: Timestamp,
    /// When the last of it ended, or where what is known ends.
    pub last_seen: Timestamp,
    /// It goes on, or was seen a moment ago.
    pub is_open: bool,
    pub failed_attempts: u64,
    /// Drops of rates with this as their first cause.
    pub drops: u64,
    /// The latest of these, at most [`DROPS_MAX`], in order.
    pub latest_drops: Vec<IncidentDrop>,
    /// What did not move in the drops and would have at the usual rates; `None`: there was no drop.
    pub bytes_lost: Option<Bytes>,
    /// The links on which it was seen.
    pub links: BTreeSet<LinkId>,
    /// The VOs for which files moved on these links, as far as that is known.
    pub vos: BTreeSet<VoName>,
    /// The drop in which most was lost, with its explanation.
    pub worst: Option<Box<RateChange>>,
}

/// Groups what happened, in any order, into incidents in the order in which they were first seen.
pub fn incidents_of(occurrences: Vec<Occurrence>, times: IncidentTimes) -> Vec<Incident> {
    let mut of_fingerprint: BTreeMap<IncidentFingerprint, Vec<Occurrence>> = BTreeMap::new();
    for occurrence in occurrences {
        let fingerprint = occurrence.fingerprint.clone();
        of_fingerprint
            .entry(fingerprint)
            .or_default()
            .push(occurrence);
    }
    let mut incidents: Vec<Incident> = Vec::new();
    for (_, mut occurrences) in of_fingerprint {
        occurrences.sort_by_key(Occurrence::order);
        let mut runs: Vec<Vec<Occurrence>> = Vec::new();
        let mut last_seen = Timestamp(i64::MIN);
        for occurrence in occurrences {
            let is_new = occurrence.from.since(last_seen) > times.quiet_max;
            last_seen = last_seen.max(occurrence.to);
            match runs.last_mut().filter(|_| !is_new) {
                Some(run) => run.push(occurrence),
                None => runs.push(vec![occurrence]),
            }
        }
        incidents.extend(runs.into_iter().filter_map(incident_of));
    }
    incidents.sort_by_key(|incident| (incident.first_seen, incident.id));
    incidents
}

/// Of occurrences of one fingerprint in the order of their beginnings; `None`: there are none.
fn incident_of(occurrences: Vec<Occurrence>) -> Option<Incident> {
    let first = occurrences.first()?;
    let (fingerprint, first_seen) = (first.fingerprint.clone(), first.from);
    let mut incident = Incident {
        id: IncidentId::new(&fingerprint, first_seen),
        fingerprint,
        first_seen,
        last_seen: first.to,
        is_open: false,
        failed_attempts: 0,
        drops: 0,
        latest_drops: Vec::new(),
        bytes_lost: None,
        links: BTreeSet::new(),
        vos: BTreeSet::new(),
        worst: None,
    };
    let mut lost_most: Option<IncidentDrop> = None;
    for occurrence in occurrences {
        incident.last_seen = incident.last_seen.max(occurrence.to);
        incident.is_open |= occurrence.goes_on;
        incident.failed_attempts += occurrence.failed_attempts;
        incident.links.extend(occurrence.links);
        incident.vos.extend(occurrence.vos);
        let Some(change) = occurrence.drop else {
            continue;
        };
        let drop = IncidentDrop::of(&change);
        incident.drops += 1;
        incident.latest_drops.push(drop);
        let lost = incident.bytes_lost.unwrap_or(Bytes(0)).0;
        incident.bytes_lost = Some(Bytes(lost.saturating_add(drop.bytes_lost.0)));
        let rank = |drop: &IncidentDrop| (drop.bytes_lost, drop.id);
        if lost_most.is_none_or(|most| rank(&drop) > rank(&most)) {
            lost_most = Some(drop);
            incident.worst = Some(change);
        }
    }
    let excess = incident.latest_drops.len().saturating_sub(DROPS_MAX);
    incident.latest_drops.drain(..excess);
    Some(incident)
}

/// The incident that an id names among others: of those with its fingerprint, the one in whose time it was given.
pub fn incident_named(incidents: &[Incident], id: IncidentId) -> Option<&Incident> {
    let candidates = incidents.iter().filter(|incident| id.is_of(incident));
    candidates.min_by_key(|incident| (incident.first_seen.0 - id.begin().0).abs())
}

/// The same where only what happened from `since` on is known: of an incident that began before, the first part that is
/// known has another beginning.
pub fn incident_named_since(
    incidents: &[Incident],
    id: IncidentId,
    since: Timestamp,
) -> Option<&Incident> {
    let goes_on = || {
        let began_before = id.begin() <= since + ID_REACH;
        let later = incidents.iter().filter(|incident| {
            began_before && incident.first_seen > id.begin() && id.has_cause_of(incident)
        });
        later.min_by_key(|incident| incident.first_seen)
    };
    incident_named(incidents, id).or_else(goes_on)
}

#[cfg(test)]
mod tests;
