//! What is told of incidents: the form of `GET /api/v1/incidents` and of `penstock incidents --json`.
//!
//! What is one incident is decided by `decide::incidents`; here it gets its form (`docs/observe/incidents.md`).

use crate::explanations::reading::ExplainedWindow;
use crate::explanations::{Disclosure, EvidenceRow, HIDDEN, disclosed, is_zero, percent, word};
use penstock_decide::explain::answer::Measure;
use penstock_decide::incidents::{
    Incident, IncidentDrop, IncidentId, IncidentPlace, IncidentTimes, Month, MonthShares,
    incident_named, months_of,
};
use penstock_decide::wording;
use penstock_model::observation::View;
use penstock_model::{IncidentClass, LinkId, Timestamp};
use serde::{Deserialize, Serialize};

/// Incidents in one answer at most: of more, the latest.
pub const INCIDENTS_MAX: usize = 1000;
/// Links of one incident that are named at most.
const LINKS_MAX: usize = 100;

/// The incidents of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IncidentList {
    /// Where the window begins, on a whole interval.
    pub from: Timestamp,
    /// Where it ends.
    pub to: Timestamp,
    /// Seconds of one interval.
    pub resolution_seconds: u32,
    /// From when on the record is complete, when that is later than the begin of the window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub complete_since: Option<Timestamp>,
    /// Of rows of records: which view of them is told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub view: Option<View>,
    /// Links that were looked at.
    pub links: usize,
    /// Links that were not looked at, because there are too many for so long a window.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub links_left_out: usize,
    /// Earlier incidents that are counted in their months and not listed.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub incidents_left_out: usize,
    /// In the order in which they were first seen.
    pub incidents: Vec<IncidentRow>,
    /// Of all classes, by the month in which they were first seen.
    pub months: Vec<MonthRow>,
}

/// An incident in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IncidentRow {
    /// Its name.
    pub id: IncidentId,
    /// Who has to act.
    pub class: IncidentClass,
    /// The cause, where the explainer has a name for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
    /// The short code of the cause.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// What is in the way: a pool, a server, a setting's place, or a failure without particulars.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub object: Option<String>,
    pub place: IncidentPlace,
    /// What went wrong, for people.
    pub text: String,
    /// When the first of it began.
    pub first_seen: Timestamp,
    /// When the last of it ended.
    pub last_seen: Timestamp,
    /// It goes on, or was seen a moment ago.
    pub is_open: bool,
    pub failed_attempts: u64,
    /// Drops of rates with it as their first cause.
    pub drops: u64,
    /// What did not move in the drops and would have at the usual rates. Absent: there was no drop.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_lost: Option<u64>,
    /// Links on which it was seen.
    pub links: u64,
}

/// The incidents of a month.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MonthRow {
    /// Which, in UTC.
    pub month: Month,
    pub incidents: u64,
    /// By class; the shares add up to 100.
    pub classes: Vec<ClassRow>,
}

/// The incidents of one class in a month.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassRow {
    pub class: IncidentClass,
    pub incidents: u64,
    /// Their part of the month's incidents.
    pub share_percent: f64,
    pub failed_attempts: u64,
    /// What did not move in their drops. Absent: there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_lost: Option<u64>,
}

/// An incident with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IncidentDetail {
    /// As in a list.
    #[serde(flatten)]
    pub row: IncidentRow,
    /// The links on which it was seen, a hundred at most.
    pub link_names: Vec<LinkId>,
    pub latest_drops: Vec<IncidentDrop>,
    /// How the first cause of the drop in which most was lost is known.
    pub evidence: Vec<EvidenceRow>,
    /// What was not measured and might explain the rest of that drop.
    pub missing: Vec<Measure>,
    /// What is asked of those who can end it.
    pub request: String,
    /// How they can verify that it has ended.
    pub verification: String,
    /// A ticket for them, as text.
    pub ticket: String,
}

impl IncidentList {
    /// Of the incidents of a window, those of a class, as far as somebody may see them.
    pub fn of(
        incidents: &[Incident],
        window: &ExplainedWindow,
        class: Option<IncidentClass>,
        disclosure: Disclosure,
    ) -> IncidentList {
        let is_wanted = |one: &&Incident| class.is_none_or(|class| one.fingerprint.class == class);
        let wanted: Vec<&Incident> = incidents.iter().filter(is_wanted).collect();
        let left_out = wanted.len().saturating_sub(INCIDENTS_MAX);
        let listed = wanted.iter().skip(left_out);
        IncidentList {
            from: window.signals.begin,
            to: window.to,
            resolution_seconds: window.signals.bin_seconds,
            complete_since: window.complete_since,
            view: window.view,
            links: window.links().len(),
            links_left_out: window.links_left_out,
            incidents_left_out: left_out,
            incidents: listed
                .map(|one| IncidentRow::of(&as_disclosed((*one).clone(), disclosure)))
                .collect(),
            months: months_of(incidents).iter().map(MonthRow::of).collect(),
        }
    }
}

/// The incident that an id names, as far as somebody may see it.
pub fn incident_detail(
    incidents: &[Incident],
    id: IncidentId,
    disclosure: Disclosure,
) -> Option<IncidentDetail> {
    let incident = incident_named(incidents, id)?;
    // The name by which it was asked for stays its name.
    let incident = Incident {
        id,
        ..incident.clone()
    };
    Some(IncidentDetail::of(&as_disclosed(incident, disclosure)))
}

/// The incidents of the record of a service, as of the end of a window.
pub fn incidents_of_service(window: &ExplainedWindow) -> Vec<Incident> {
    window.incidents(IncidentTimes::default(), window.to)
}

impl IncidentRow {
    pub fn of(incident: &Incident) -> IncidentRow {
        let of = &incident.fingerprint;
        IncidentRow {
            id: incident.id,
            class: of.class,
            cause: of.cause.map(|cause| word(&cause)),
            code: of.cause.map(|cause| cause.code().to_owned()),
            object: of.object.clone(),
            place: of.place.clone(),
            text: wording::incident(of),
            first_seen: incident.first_seen,
            last_seen: incident.last_seen,
            is_open: incident.is_open,
            failed_attempts: incident.failed_attempts,
            drops: incident.drops,
            bytes_lost: incident.bytes_lost.map(|bytes| bytes.0),
            links: incident.links.len() as u64,
        }
    }
}

impl MonthRow {
    fn of(month: &MonthShares) -> MonthRow {
        let classes = month.classes.iter().map(|class| ClassRow {
            class: class.class,
            incidents: class.incidents,
            share_percent: percent(class.share),
            failed_attempts: class.failed_attempts,
            bytes_lost: class.bytes_lost.map(|bytes| bytes.0),
        });
        MonthRow {
            month: month.month,
            incidents: month.incidents,
            classes: classes.collect(),
        }
    }
}

impl IncidentDetail {
    pub fn of(incident: &Incident) -> IncidentDetail {
        let of = &incident.fingerprint;
        let told = incident.worst.as_ref().map(|worst| &worst.explanation);
        let first = told.and_then(|told| told.causes.first());
        let evidence = first.map_or(&[][..], |named| &named.evidence);
        IncidentDetail {
            row: IncidentRow::of(incident),
            link_names: incident.links.iter().take(LINKS_MAX).cloned().collect(),
            latest_drops: incident.latest_drops.clone(),
            evidence: evidence.iter().map(EvidenceRow::of).collect(),
            missing: told.map_or(Vec::new(), |told| told.missing.clone()),
            request: wording::incident_request(of).to_owned(),
            verification: wording::incident_verification(of.class).to_owned(),
            ticket: wording::incident_ticket(incident),
        }
    }
}

/// Without what is not for everybody who may see rates.
fn as_disclosed(mut incident: Incident, disclosure: Disclosure) -> Incident {
    if disclosure == Disclosure::Everything {
        return incident;
    }
    if incident.fingerprint.is_of_failure_text() {
        incident.fingerprint.object = Some(HIDDEN.to_owned());
    }
    incident.worst = incident
        .worst
        .map(|worst| Box::new(disclosed(*worst, disclosure)));
    incident
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explanations;
    use crate::signals::RecordSignals;
    use penstock_decide::explain::answer::{Evidence, NamedCause, Permille};
    use penstock_decide::explain::rate_change::{PrecedentChange, RateChange};
    use penstock_decide::explain::signals::{
        Change, FailureGroup, LinkSignals, Series, Setting, Signals,
    };
    use penstock_decide::explain::{Cause, PopulationChoice};
    use penstock_model::{
        Concern, Errno, Failure, JobId, LedgerEntry, Phase, Retry, Side, StorageId, TransferEvent,
        TransferId,
    };

    fn window() -> ExplainedWindow {
        let link = LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new("https://b"),
        };
        let text = "SOURCE [5] https://a: the disk of alice is broken";
        let group = FailureGroup::new(Side::Source, Phase::Transfer, Errno::EIO, text);
        let mut signals = Signals::unknown(Timestamp(0), 60, 100);
        let of_link = signals.links.entry(link).or_default();
        let attempts = Series::known((0..100).map(|bin| f64::from(u8::from(bin > 50))));
        of_link.failures.insert(group, attempts);
        ExplainedWindow::of(signals, &PopulationChoice::Links)
    }

    #[test]
    fn links_are_counted_once_whatever_rates_are_asked_for() {
        let mut signals = window().signals;
        let more = [("https://a", "https://c"), ("https://c", "https://a")];
        for (source, destination) in more {
            let link = LinkId {
                source: StorageId::new(source),
                destination: StorageId::new(destination),
            };
            signals.links.entry(link).or_default();
        }
        for wanted in [
            PopulationChoice::Links,
            PopulationChoice::Server("https://a".into()),
        ] {
            let window = ExplainedWindow::of(signals.clone(), &wanted);
            let list = IncidentList::of(&[], &window, None, Disclosure::Everything);
            assert_eq!(list.links, 3, "{wanted:?}");
        }
    }

    #[test]
    fn texts_of_failures_are_for_administrators_and_counts_for_everybody() {
        let window = window();
        let incidents = incidents_of_service(&window);
        let list = |disclosure| IncidentList::of(&incidents, &window, None, disclosure);
        let (all, counts) = (list(Disclosure::Everything), list(Disclosure::Counts));
        assert!(all.incidents[0].text.contains("alice"), "{all:?}");
        let hidden = serde_json::to_string(&counts).expect("plain data serialises");
        assert!(!hidden.contains("alice"), "{hidden}");
        assert_eq!(
            all.incidents[0].failed_attempts,
            counts.incidents[0].failed_attempts
        );
        assert_eq!(
            (all.incidents[0].id, all.incidents[0].is_open),
            (counts.incidents[0].id, true)
        );
        assert_eq!(all.months, counts.months);
        let detail = |disclosure| {
            let detail = incident_detail(&incidents, all.incidents[0].id, disclosure);
            serde_json::to_string(&detail.expect("known")).expect("plain data serialises")
        };
        assert!(detail(Disclosure::Everything).contains("alice"));
        assert!(!detail(Disclosure::Counts).contains("alice"));
    }

    #[test]
    fn facts_of_hosts_are_for_administrators_wherever_they_are_told() {
        let fact = Change {
            at: Timestamp(51 * 60_000),
            who: "the host".to_owned(),
            place: "a tcp_secret_rmem".to_owned(),
            setting: Setting::Fact,
            old: Some("1048576".to_owned()),
            new: Some("87380".to_owned()),
        };
        let changes = drop_of_host(&fact);
        let detail = |disclosure| {
            let told = explanations::detail(&changes, changes[0].id, 60, disclosure);
            serde_json::to_string(&told.expect("known")).expect("plain data serialises")
        };
        let (all, counts) = (detail(Disclosure::Everything), detail(Disclosure::Counts));
        for text in [
            "tcp_secret_rmem",
            "87380",
            "host setting",
            "descriptor_limit",
            "65535",
        ] {
            assert!(all.contains(text), "{text}: {all}");
            assert!(!counts.contains(text), "{text}: {counts}");
        }
        assert!(
            counts.contains("\"descriptors\""),
            "what was measured: {counts}"
        );
    }

    /// A drop for which facts of a host are evidence and the remedy of before.
    fn drop_of_host(fact: &Change) -> Vec<RateChange> {
        let link = window().populations[0].1[0].clone();
        let rate = |bin: usize| if (40..70).contains(&bin) { 2e8 } else { 1e9 };
        let signals = LinkSignals {
            copied_bytes: Series::known((0..120).map(rate)),
            active: Series::constant(5.0, 120),
            ..LinkSignals::default()
        };
        let mut all = Signals::unknown(Timestamp(0), 60, 120);
        all.links.insert(link, signals);
        let mut changes = ExplainedWindow::of(all, &PopulationChoice::Links).changes();
        let change = &mut changes[0];
        let value = |measure, now| Evidence::Value {
            measure,
            place: Some("a".to_owned()),
            usual: Some(now),
            value: now,
        };
        change.explanation.causes = vec![NamedCause {
            cause: Cause::DescriptorLeak,
            share: Permille(900),
            evidence: vec![
                value(Measure::Descriptors, 60_000.0),
                value(Measure::DescriptorLimit, 65_535.0),
                Evidence::Change(fact.clone()),
            ],
            followers: Vec::new(),
            rate_without: 1e9,
        }];
        change.explanation.facts = vec![fact.clone()];
        change.earlier = vec![PrecedentChange {
            id: change.id,
            from: Timestamp(0),
            to: Timestamp(60_000),
            remedy: Some(fact.clone()),
        }];
        changes
    }

    fn failed_recall(at: Timestamp) -> LedgerEntry {
        LedgerEntry {
            sequence: 1,
            at,
            monotonic_us: 0,
            job: JobId(uuid::Uuid::nil()),
            transfer: TransferId(9),
            event: TransferEvent::StageFailed {
                failure: Failure {
                    side: Side::Source,
                    retry: Retry::Later,
                    concern: Concern::StorageElement,
                    phase: Phase::Staging,
                    errno: Errno::ETIMEDOUT,
                    detail: "the drive did not answer".to_owned(),
                    found: None,
                    busy: None,
                    code: None,
                },
                retry_at: None,
                excused: false,
            },
        }
    }

    #[test]
    fn a_failed_recall_is_an_incident_of_tape_and_no_failed_attempt_of_a_copy() {
        let link = LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new("https://b"),
        };
        let mut record = RecordSignals::new(Timestamp(0), 60, 10);
        record.take_entry(&failed_recall(Timestamp(70_000)), &link);
        let window = ExplainedWindow::of(record.finish(), &PopulationChoice::Links);
        assert!(window.signals.links[&link].failures.is_empty());
        let incidents = incidents_of_service(&window);
        let told: Vec<(IncidentClass, u64)> = incidents
            .iter()
            .map(|one| (one.fingerprint.class, one.failed_attempts))
            .collect();
        assert_eq!(told, [(IncidentClass::Tape, 1)]);
    }

    #[test]
    fn a_class_is_listed_alone_and_months_tell_of_all() {
        let window = window();
        let incidents = incidents_of_service(&window);
        let of_class =
            |class| IncidentList::of(&incidents, &window, Some(class), Disclosure::Everything);
        let (network, storage) = (
            of_class(IncidentClass::Network),
            of_class(IncidentClass::Storage),
        );
        assert_eq!((network.incidents.len(), storage.incidents.len()), (0, 1));
        assert_eq!(network.months, storage.months);
        assert_eq!(network.months[0].month.to_string(), "1970-01");
        // What is printed is read by the command that asks.
        let text = serde_json::to_string(&storage).expect("plain data serialises");
        assert_eq!(
            serde_json::from_str::<IncidentList>(&text).expect("its own form"),
            storage
        );
    }
}
