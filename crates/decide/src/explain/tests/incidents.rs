//! Drops of a small grid as incidents: with the failures that made them, over links, and what was lost.

use super::plant::{Conditions, run, watched};
use super::*;
use crate::incidents::{Incident, IncidentTimes, incidents_of, known_until, occurrences_of};

fn incidents_in(signals: &Signals) -> Vec<Incident> {
    let links: BTreeSet<LinkId> = signals.links.keys().cloned().collect();
    let populations: Vec<(Population, Vec<LinkId>)> = links
        .iter()
        .map(|link| (Population::Link(link.clone()), vec![link.clone()]))
        .collect();
    let changes = rate_changes(signals, &populations);
    let times = IncidentTimes::default();
    let until = known_until(signals);
    incidents_of(
        occurrences_of(signals, &links, &changes, times, until),
        times,
    )
}

fn with_fault(bins: Range<usize>, fault: impl Fn(&mut Conditions)) -> Signals {
    run(BINS, 1, 0.02, |bin| {
        let mut conditions = Conditions::default();
        if bins.contains(&bin) {
            fault(&mut conditions);
        }
        conditions
    })
}

#[test]
fn a_drop_and_the_failures_that_made_it_are_one_incident() {
    let signals = with_fault(FAULT, |c| c.fails_source = 0.8);
    let incidents = incidents_in(&signals);
    let with_drop: Vec<&Incident> = incidents.iter().filter(|one| one.drops > 0).collect();
    let [incident] = with_drop.as_slice() else {
        panic!("{incidents:#?}");
    };
    assert_eq!(incident.fingerprint.class.word(), "storage");
    assert_eq!(incident.fingerprint.cause, Some(Cause::SourceErrors));
    assert!(
        incident.failed_attempts > 100,
        "{}",
        incident.failed_attempts
    );
    assert!(!incident.is_open);
}

#[test]
fn what_was_lost_is_what_the_usual_rate_would_have_moved() {
    let signals = with_fault(FAULT, |c| c.limit = 5.0);
    let incidents = incidents_in(&signals);
    let [incident] = incidents.as_slice() else {
        panic!("{incidents:#?}");
    };
    assert_eq!(
        incident.fingerprint.to_string(),
        format!("service|SLOTS|-|{}", watched())
    );
    let worst = incident.worst.as_ref().expect("a drop").explanation.clone();
    let seconds = worst.to.since(worst.from).as_secs_f64();
    let lost = (worst.usual.rate - worst.low.rate) * seconds;
    let told = incident.bytes_lost.expect("a drop").0 as f64;
    assert!((told - lost).abs() < 2.0, "{told} {lost}");
    // About half of what 233 MB/s move in an hour and a half.
    assert!((3e11..1.3e12).contains(&told), "{told}");
}

#[test]
fn a_drop_that_goes_on_is_an_open_incident_until_nothing_is_known_of_it_for_a_while() {
    let signals = with_fault(400..BINS, |c| c.limit = 5.0);
    let open: Vec<bool> = incidents_in(&signals)
        .iter()
        .map(|one| one.is_open)
        .collect();
    assert_eq!(open, [true]);
    let links = BTreeSet::from([watched()]);
    let changes = rate_changes(&signals, &[(Population::Link(watched()), vec![watched()])]);
    let times = IncidentTimes::default();
    let later = known_until(&signals) + times.open_for + std::time::Duration::from_secs(1);
    let occurrences = occurrences_of(&signals, &links, &changes, times, later);
    assert!(
        occurrences.iter().all(|one| !one.goes_on),
        "{occurrences:#?}"
    );
}

#[test]
fn the_network_of_a_site_is_an_incident_of_the_site_and_not_of_a_link() {
    let signals = with_fault(FAULT, |c| c.uplink = 150e6);
    let incidents = incidents_in(&signals);
    let of_site: Vec<&Incident> = incidents
        .iter()
        .filter(|one| one.fingerprint.cause == Some(Cause::SiteNetwork))
        .collect();
    let [incident] = of_site.as_slice() else {
        panic!("{incidents:#?}");
    };
    let told = incident.fingerprint.to_string();
    assert!(
        ["network|NETSITE|cern|cern", "network|NETSITE|in2p3|in2p3"].contains(&told.as_str()),
        "{told}"
    );
}

#[test]
fn a_drop_that_nothing_explains_is_said_to_be_unexplained() {
    let mut signals = with_fault(FAULT, |c| c.limit = 5.0);
    for link in signals.links.values_mut() {
        let (copied, queued) = (link.copied_bytes.clone(), link.queued.clone());
        *link = LinkSignals {
            copied_bytes: copied,
            queued,
            ..LinkSignals::default()
        };
    }
    let incidents = incidents_in(&signals);
    let told: Vec<String> = incidents
        .iter()
        .map(|one| one.fingerprint.to_string())
        .collect();
    assert_eq!(told, [format!("unexplained|-|-|{}", watched())]);
    assert!(incidents[0].bytes_lost.is_some());
}

#[test]
fn a_fact_of_a_host_is_evidence_and_never_the_object_of_an_incident() {
    let mut signals = with_fault(FAULT, |c| c.window = 87e3);
    signals.changes.push(Change {
        at: signals.begin_of(FAULT.start),
        who: "the host".into(),
        place: "bnl tcp_rmem".into(),
        setting: Setting::Fact,
        old: Some("1048576".into()),
        new: Some("87380".into()),
    });
    let incidents = incidents_in(&signals);
    let windows = incidents
        .iter()
        .find(|one| one.fingerprint.cause == Some(Cause::TcpWindow));
    let incident = windows.unwrap_or_else(|| panic!("{incidents:#?}"));
    assert_eq!(incident.fingerprint.object, None);
    let worst = incident.worst.as_ref().expect("a drop");
    let evidence = &worst.explanation.causes[0].evidence;
    let is_fact = |known: &answer::Evidence| matches!(known, answer::Evidence::Change(_));
    assert!(evidence.iter().any(is_fact), "{evidence:?}");
}
