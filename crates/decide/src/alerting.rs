//! Of which incidents people are alerted, when again, and when they are told that one is over.
//!
//! The steps follow from the incidents of now and from what a receiver was told before, and not from what happened in
//! between: so a receiver that was away is told what holds when it is back.

use crate::clock::ClockTrust;
use crate::incidents::{Incident, IncidentId, incident_named_since};
use penstock_model::{Mute, MuteScope, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// When people are alerted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlertPolicy {
    /// Only of incidents with a drop that has lasted for so long.
    pub lasting_min: Duration,
    /// Again of the same incident, when it is still open, after so long.
    pub repeat_after: Duration,
}

/// What a receiver was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldAlert {
    pub id: IncidentId,
    /// When it was told last.
    pub told_at: Timestamp,
}

/// What a receiver has to be told, or is not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AlertStep<'a> {
    /// An incident that it was told of is over.
    Resolve {
        /// By the name by which it was told.
        id: IncidentId,
        /// When it ended; `None`: it is not found any more, for instance because another cause explains it now.
        ended: Option<Timestamp>,
    },
    /// A new one.
    Raise(&'a Incident),
    /// One that it was told of long ago goes on.
    Repeat {
        /// By the name by which it was told.
        id: IncidentId,
        incident: &'a Incident,
    },
    /// Nothing is told because of a mute.
    Suppress {
        incident: &'a Incident,
        scope: &'a MuteScope,
    },
}

/// The incidents that are known now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnownIncidents<'a> {
    /// Those that were found.
    pub found: &'a [Incident],
    /// From when on was looked at: an incident may have begun before.
    pub since: Timestamp,
    /// Whether the clock is believed by which they are open or over.
    pub clock: ClockTrust,
    /// Links on which there may be others, because they were not looked at.
    pub links_left_out: usize,
}

/// What a receiver has to be told now: first what is over. What is not found is over only if all links were looked at. By a
/// clock that leapt ahead everything would be over, so that while it is doubted nothing is told.
pub fn alert_steps<'a>(
    told: &[ToldAlert],
    known_incidents: KnownIncidents<'a>,
    mutes: &'a [Mute],
    policy: AlertPolicy,
    now: Timestamp,
) -> Vec<AlertStep<'a>> {
    if known_incidents.clock != ClockTrust::Credible {
        return Vec::new();
    }
    let incidents = known_incidents.found;
    let mut steps = Vec::new();
    let mut repeats = Vec::new();
    let mut known: BTreeSet<IncidentId> = BTreeSet::new();
    for one in told {
        let incident = incident_named_since(incidents, one.id, known_incidents.since);
        let open = incident.filter(|incident| incident.is_open && !known.contains(&incident.id));
        let Some(open) = open else {
            if incident.is_none() && known_incidents.links_left_out > 0 {
                continue;
            }
            steps.push(AlertStep::Resolve {
                id: one.id,
                ended: incident.map(|incident| incident.last_seen),
            });
            continue;
        };
        known.insert(open.id);
        let is_due = now.since(one.told_at) >= policy.repeat_after;
        if is_due && mute_of(open, mutes, now).is_none() {
            repeats.push(AlertStep::Repeat {
                id: one.id,
                incident: open,
            });
        }
    }
    let lasting = incidents.iter().filter(|one| lasts(one, policy));
    for incident in lasting.filter(|one| !known.contains(&one.id)) {
        steps.push(match mute_of(incident, mutes, now) {
            Some(mute) => AlertStep::Suppress {
                incident,
                scope: &mute.scope,
            },
            None => AlertStep::Raise(incident),
        });
    }
    steps.extend(repeats);
    steps
}

fn lasts(incident: &Incident, policy: AlertPolicy) -> bool {
    let mut drops = incident.latest_drops.iter();
    incident.is_open && drops.any(|drop| drop.to.since(drop.from) >= policy.lasting_min)
}

/// A mute that covers all of an incident: a part that nobody muted would be missed otherwise.
fn mute_of<'a>(incident: &Incident, mutes: &'a [Mute], now: Timestamp) -> Option<&'a Mute> {
    let mut in_force = mutes.iter().filter(|mute| mute.is_in_force(now));
    in_force.find(|mute| match &mute.scope {
        MuteScope::Class(class) => incident.fingerprint.class == *class,
        MuteScope::Link(text) => {
            !incident.links.is_empty() && incident.links.iter().all(|link| link.is_called(text))
        }
        MuteScope::Vo(vo) => !incident.vos.is_empty() && incident.vos.iter().all(|one| one == vo),
    })
}

#[cfg(test)]
mod tests;
