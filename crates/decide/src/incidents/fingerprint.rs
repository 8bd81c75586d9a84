//! What makes occurrences one incident: the class, the cause, the object that was in the way, and the place.

use crate::explain::Cause;
use crate::explain::answer::{Evidence, Explanation};
use crate::explain::signals::{FailureGroup, SERVICE_PLACE, ServerName, Setting, Signals};
use penstock_model::{Actor, Errno, IncidentClass, Layer, LinkId, Phase, Side, StorageId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who has to act on a cause.
fn class_of(cause: Cause) -> IncidentClass {
    match cause {
        Cause::ControlPlane
        | Cause::NotFed
        | Cause::ServiceShare
        | Cause::SlotLimit
        | Cause::RateLimit
        | Cause::DatabaseLoad => IncidentClass::Service,
        Cause::FewerSubmissions | Cause::SmallFiles => IncidentClass::Client,
        Cause::TooManyStreams
        | Cause::TcpWindow
        | Cause::WindowUnopened
        | Cause::IdleStreams
        | Cause::NetworkPath
        | Cause::SiteNetwork => IncidentClass::Network,
        Cause::TapeWriteStopped
        | Cause::TapeBufferFull
        | Cause::TapeDrives
        | Cause::ScatteredFiles
        | Cause::AggregateRead => IncidentClass::Tape,
        Cause::Drain
        | Cause::SourceErrors
        | Cause::DestinationErrors
        | Cause::StalledMover
        | Cause::PoolFull
        | Cause::OutOfSpace
        | Cause::ServerSkew
        | Cause::Crash
        | Cause::UndersizedHost
        | Cause::NamespaceThreads
        | Cause::BatchDelay
        | Cause::RandomWrites
        | Cause::Relay
        | Cause::DiskController
        | Cause::Multipath
        | Cause::StartBurst
        | Cause::CompetingLoad
        | Cause::DescriptorLeak
        | Cause::Accounting => IncidentClass::Storage,
    }
}

/// Where the cause lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentPlace {
    Link(LinkId),
    /// At a storage element.
    Storage(StorageId),
    /// In the transfer service.
    Service,
}

impl fmt::Display for IncidentPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IncidentPlace::Link(link) => write!(out, "{link}"),
            IncidentPlace::Storage(storage) => write!(out, "{storage}"),
            IncidentPlace::Service => out.write_str(SERVICE_PLACE),
        }
    }
}

/// Equal for all that one cause does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IncidentFingerprint {
    /// Who has to act.
    pub class: IncidentClass,
    /// The cause, as the explainer names it; `None`: failures that no rule is for, or nothing explains the drop.
    pub cause: Option<Cause>,
    /// What is in the way: a pool, a server, a setting's place, or a failure's text without particulars.
    pub object: Option<String>,
    pub place: IncidentPlace,
}

impl fmt::Display for IncidentFingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.map_or("-", Cause::code);
        let object = self.object.as_deref().unwrap_or("-");
        write!(out, "{}|{cause}|{object}|{}", self.class, self.place)
    }
}

impl IncidentFingerprint {
    /// Whether the object is the text of a failure.
    pub fn is_of_failure_text(&self) -> bool {
        match self.cause {
            None | Some(Cause::SourceErrors | Cause::DestinationErrors) => self.object.is_some(),
            Some(_) => false,
        }
    }

    /// Of failures of one kind on a link.
    pub fn of_failures(group: &FailureGroup, link: &LinkId) -> IncidentFingerprint {
        let (side, phase, errno) = (group.side, group.phase, group.errno);
        let place = match side {
            Side::Source => IncidentPlace::Storage(link.source.clone()),
            Side::Destination => IncidentPlace::Storage(link.destination.clone()),
            Side::Network => IncidentPlace::Link(link.clone()),
            Side::Service => IncidentPlace::Service,
        };
        let is_tape = matches!(phase, Phase::Staging | Phase::Archiving);
        let is_full = errno == Errno::ENOSPC && side == Side::Destination && !is_tape;
        let facts = errno.problem_code(side, phase).facts();
        // Who copied says that it lies between both ends, and means either of these where no connection failed.
        let is_of_end = errno != Errno(0) && facts.layer == Layer::Peer;
        let (class, cause) = match side {
            _ if is_tape => (IncidentClass::Tape, None),
            _ if is_full => (IncidentClass::Storage, Some(Cause::OutOfSpace)),
            _ if facts.advice.actor == Actor::User => (IncidentClass::Client, None),
            Side::Source => (IncidentClass::Storage, Some(Cause::SourceErrors)),
            Side::Destination => (IncidentClass::Storage, Some(Cause::DestinationErrors)),
            Side::Network if is_of_end => (IncidentClass::Storage, None),
            Side::Network => (IncidentClass::Network, None),
            Side::Service => (IncidentClass::Service, None),
        };
        // A full storage element says so in as many ways as it has doors.
        let object = (!is_full).then(|| group.fingerprint.clone());
        IncidentFingerprint {
            class,
            cause,
            object,
            place,
        }
    }

    /// Of a drop: of its first cause, unless more of it is unexplained than that cause takes.
    pub fn of_drop(explanation: &Explanation, signals: &Signals) -> IncidentFingerprint {
        let first = explanation.causes.first();
        let Some(named) = first.filter(|named| named.share >= explanation.unexplained) else {
            return IncidentFingerprint {
                class: IncidentClass::Unexplained,
                cause: None,
                object: None,
                place: link_place(explanation),
            };
        };
        if let Some(of_failures) =
            most_frequent_failures(named.cause, &named.evidence, explanation, signals)
        {
            return of_failures;
        }
        let object = named.evidence.iter().find_map(place_of);
        let place = cause_place(named.cause, object.as_deref(), explanation, signals);
        let class = match (named.cause, &place) {
            // The database of a storage element's namespace.
            (Cause::DatabaseLoad, IncidentPlace::Storage(_)) => IncidentClass::Storage,
            (cause, _) => class_of(cause),
        };
        IncidentFingerprint {
            class,
            cause: Some(named.cause),
            object: object.filter(|_| named.cause != Cause::OutOfSpace),
            place,
        }
    }
}

/// Of a drop that failures make, the incident of the most frequent ones, so that both are one.
fn most_frequent_failures(
    cause: Cause,
    evidence: &[Evidence],
    explanation: &Explanation,
    signals: &Signals,
) -> Option<IncidentFingerprint> {
    let is_of_failures = matches!(cause, Cause::SourceErrors | Cause::DestinationErrors);
    let text = evidence.iter().find_map(|known| match known {
        Evidence::Failures { fingerprint, .. } => Some(fingerprint),
        _ => None,
    });
    let text = text.filter(|_| is_of_failures)?;
    explanation.links.iter().find_map(|link| {
        let kinds = signals.links.get(link)?.failures.keys();
        let group = { kinds }.find(|group| group.fingerprint == *text)?;
        Some(IncidentFingerprint::of_failures(group, link))
    })
}

/// The thing that a piece of evidence is of.
fn place_of(evidence: &Evidence) -> Option<String> {
    match evidence {
        Evidence::Value { place, .. } | Evidence::Links { place, .. } => place.clone(),
        // A fact of a host tells why something is in the way, and is a matter of the host's administrators.
        Evidence::Change(change) if change.setting == Setting::Fact => None,
        Evidence::Change(change) => Some(change.place.clone()),
        Evidence::Maintenance(_)
        | Evidence::Recurrence { .. }
        | Evidence::Failures { .. }
        | Evidence::Bottleneck { .. } => None,
    }
}

fn link_place(explanation: &Explanation) -> IncidentPlace {
    match explanation.links.first() {
        Some(link) => IncidentPlace::Link(link.clone()),
        None => IncidentPlace::Service,
    }
}

/// Where a cause lies: at the storage element of the object that is in the way, else where causes of its kind lie.
fn cause_place(
    cause: Cause,
    object: Option<&str>,
    explanation: &Explanation,
    signals: &Signals,
) -> IncidentPlace {
    if let Some(storage) = object.and_then(|object| storage_of(object, explanation, signals)) {
        return IncidentPlace::Storage(storage);
    }
    let destination = explanation.links.first().map(|link| &link.destination);
    match cause {
        Cause::ControlPlane | Cause::DatabaseLoad | Cause::DescriptorLeak => IncidentPlace::Service,
        Cause::OutOfSpace | Cause::TapeWriteStopped | Cause::TapeBufferFull => destination
            .map_or(IncidentPlace::Service, |id| {
                IncidentPlace::Storage(id.clone())
            }),
        _ => link_place(explanation),
    }
}

/// The storage element that an object is, or belongs to.
fn storage_of(object: &str, explanation: &Explanation, signals: &Signals) -> Option<StorageId> {
    let ends = explanation.links.iter();
    let mut ends = ends.flat_map(|link| [&link.source, &link.destination]);
    if let Some(end) = ends.find(|end| end.as_str() == object || end.host() == object) {
        return Some(end.clone());
    }
    let server = signals.servers.get(&ServerName(object.to_owned()));
    if let Some(storage) = server.and_then(|server| server.storage.clone()) {
        return Some(storage);
    }
    let mut pools = signals.pools.iter();
    let pool = pools.find(|(name, _)| name.as_str() == object);
    pool.and_then(|(_, pool)| pool.storage.clone())
}
