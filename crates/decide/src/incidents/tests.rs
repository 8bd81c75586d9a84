//! How drops and failures become incidents, and how these are counted by month.

use super::*;
use crate::explain::signals::{FailureGroup, LinkSignals, Series, Signals};
use crate::explain::{Cause, Permille};
use penstock_model::{Errno, IncidentClass, Phase, Side, StorageId};
use proptest::prelude::*;

const BIN_SECONDS: u32 = 60;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

fn link(source: &str, destination: &str) -> LinkId {
    LinkId {
        source: StorageId::new(source),
        destination: StorageId::new(destination),
    }
}

fn group(side: Side, phase: Phase, errno: Errno, text: &str) -> FailureGroup {
    FailureGroup::new(side, phase, errno, text)
}

/// How many attempts failed in which bin.
type Counts<'a> = &'a [(usize, f64)];

/// Signals with failures in some bins of some links, and nothing else.
fn failing(bins: usize, failures: &[(&LinkId, FailureGroup, Counts<'_>)]) -> Signals {
    let mut signals = Signals::unknown(Timestamp(0), BIN_SECONDS, bins);
    for (link, group, counts) in failures {
        let mut attempts = vec![0.0; bins];
        counts
            .iter()
            .for_each(|(bin, count)| attempts[*bin] += count);
        let of_link = signals.links.entry((*link).clone());
        let of_link: &mut LinkSignals = of_link.or_default();
        of_link.copied_bytes = Series::constant(1e9, bins);
        of_link
            .failures
            .insert(group.clone(), Series::known(attempts));
    }
    signals
}

fn incidents_in(signals: &Signals) -> Vec<Incident> {
    let links = signals.links.keys().cloned().collect();
    let times = IncidentTimes::default();
    let until = known_until(signals);
    incidents_of(occurrences_of(signals, &links, &[], times, until), times)
}

fn told(incidents: &[Incident]) -> Vec<String> {
    let one = |incident: &Incident| {
        format!(
            "{} {} to {} min, {} failed, {}, {} link(s){}",
            incident.fingerprint,
            incident.first_seen.0 / MINUTE,
            incident.last_seen.0 / MINUTE,
            incident.failed_attempts,
            incident
                .bytes_lost
                .map_or("-".to_owned(), |lost| lost.to_string()),
            incident.links.len(),
            if incident.is_open { ", open" } else { "" },
        )
    };
    incidents.iter().map(one).collect()
}

#[test]
fn failures_of_one_cause_are_one_incident_however_many_they_are() {
    let (one, other) = (
        link("https://a", "https://tape"),
        link("https://b", "https://tape"),
    );
    // As when the disk buffer of a tape system was full for a day, and each file failed for it.
    let full = group(
        Side::Destination,
        Phase::Archiving,
        Errno::ENOSPC,
        "no space left",
    );
    let signals = failing(
        600,
        &[
            (&one, full.clone(), &[(10, 100.0), (200, 100.0)]),
            (&other, full, &[(300, 106.0)]),
        ],
    );
    assert_eq!(
        told(&incidents_in(&signals)),
        ["tape|-|no space left|https://tape 10 to 301 min, 306 failed, -, 2 link(s)"]
    );
}

#[test]
fn each_class_has_its_failures() {
    let link = link("https://a", "https://b");
    let check = |side, phase, errno, expected: &str| {
        let group = group(side, phase, errno, "text");
        let fingerprint = IncidentFingerprint::of_failures(&group, &link);
        assert_eq!(fingerprint.to_string(), expected);
    };
    use Phase::{Archiving, Service, Staging, Transfer};
    check(
        Side::Source,
        Transfer,
        Errno::EIO,
        "storage|SRCERR|text|https://a",
    );
    check(
        Side::Destination,
        Transfer,
        Errno::EIO,
        "storage|DSTERR|text|https://b",
    );
    check(
        Side::Destination,
        Transfer,
        Errno::ENOSPC,
        "storage|SPACE|-|https://b",
    );
    check(
        Side::Source,
        Staging,
        Errno::ETIMEDOUT,
        "tape|-|text|https://a",
    );
    check(
        Side::Destination,
        Archiving,
        Errno::ETIMEDOUT,
        "tape|-|text|https://b",
    );
    check(
        Side::Network,
        Transfer,
        Errno::ETIMEDOUT,
        "network|-|text|https://a → https://b",
    );
    check(
        Side::Network,
        Transfer,
        Errno::EIO,
        "storage|-|text|https://a → https://b",
    );
    check(
        Side::Service,
        Service,
        Errno::EIO,
        "service|-|text|the transfer service",
    );
    check(
        Side::Source,
        Transfer,
        Errno::ENOENT,
        "client|-|text|https://a",
    );
    check(
        Side::Destination,
        Transfer,
        Errno::EEXIST,
        "client|-|text|https://b",
    );
}

#[test]
fn what_comes_back_after_a_long_quiet_is_another_incident() {
    let link = link("https://a", "https://b");
    let broken = group(Side::Source, Phase::Transfer, Errno::EIO, "broken");
    let signals = failing(
        1440,
        &[(
            &link,
            broken,
            &[(0, 1.0), (360, 2.0), (722, 3.0), (1430, 1.0)],
        )],
    );
    let incidents = incidents_in(&signals);
    assert_eq!(
        told(&incidents),
        [
            "storage|SRCERR|broken|https://a 0 to 361 min, 3 failed, -, 1 link(s)",
            "storage|SRCERR|broken|https://a 722 to 723 min, 3 failed, -, 1 link(s)",
            "storage|SRCERR|broken|https://a 1430 to 1431 min, 1 failed, -, 1 link(s), open",
        ]
    );
    // Each is found by its id, also by one that was given while its begin lay elsewhere.
    for incident in &incidents {
        let found = incident_named(&incidents, incident.id).expect("known");
        assert_eq!(found.first_seen, incident.first_seen);
    }
    let later = IncidentId::new(&incidents[0].fingerprint, Timestamp(4 * HOUR));
    let found = incident_named(&incidents, later).expect("in its time");
    assert_eq!(found.id, incidents[0].id);
    let elsewhere = IncidentId::new(&incidents[0].fingerprint, Timestamp(100 * HOUR));
    assert_eq!(incident_named(&incidents, elsewhere), None);
}

#[test]
fn an_id_is_read_as_it_is_written() {
    let fingerprint = IncidentFingerprint {
        class: IncidentClass::Service,
        cause: Some(Cause::ControlPlane),
        object: None,
        place: IncidentPlace::Service,
    };
    let id = IncidentId::new(&fingerprint, Timestamp(1_143_849_600_999));
    assert_eq!(id.to_string().parse(), Ok(id));
    assert_eq!(id.begin(), Timestamp(1_143_849_600_000));
    assert_eq!("x".parse::<IncidentId>(), Err(InvalidIncidentId));
}

#[test]
fn a_month_is_whole() {
    let check = |text: &str, days: u64| {
        let month: Month = text.parse().expect(text);
        let window = month.window();
        assert_eq!(month.to_string(), text);
        assert_eq!(
            window.to.since(window.from).as_secs() / 86_400,
            days,
            "{text}"
        );
        assert_eq!(Month::of(window.from), month);
        assert_eq!(Month::of(Timestamp(window.to.0 - 1)), month);
        assert_ne!(Month::of(window.to), month);
    };
    check("1970-01", 31);
    check("2024-02", 29);
    check("2026-02", 28);
    check("2026-11", 30);
    check("2026-12", 31);
    check("9999-11", 30);
    for wrong in [
        "2026",
        "2026-13",
        "2026-00",
        "26-11",
        "2026-1",
        "2026-11-01",
        "+026-11",
    ] {
        assert_eq!(wrong.parse::<Month>(), Err(InvalidMonth), "{wrong}");
    }
}

/// Failures of some kinds at any time of three days.
fn occurrences() -> impl Strategy<Value = Vec<Occurrence>> {
    let class = proptest::sample::select(IncidentClass::ALL.to_vec());
    let one = (
        class,
        0..3u8,
        0..4320i64,
        0..200i64,
        1..50u64,
        any::<bool>(),
    );
    let one = one.prop_map(
        |(class, object, from, length, failed_attempts, goes_on)| Occurrence {
            fingerprint: IncidentFingerprint {
                class,
                cause: None,
                object: Some(object.to_string()),
                place: IncidentPlace::Service,
            },
            from: Timestamp(from * MINUTE),
            to: Timestamp((from + length) * MINUTE),
            goes_on,
            links: BTreeSet::from([link("https://a", &object.to_string())]),
            vos: BTreeSet::new(),
            failed_attempts,
            drop: None,
        },
    );
    proptest::collection::vec(one, 0..60)
}

proptest! {
    #[test]
    fn every_failure_is_in_one_incident_and_the_order_does_not_matter(
        given in occurrences(),
        turn in any::<prop::sample::Index>(),
    ) {
        let times = IncidentTimes::default();
        let incidents = incidents_of(given.clone(), times);
        let mut turned = given.clone();
        turned.rotate_left(turn.index(given.len().max(1)).min(given.len()));
        turned.reverse();
        prop_assert_eq!(&incidents, &incidents_of(turned, times));
        let count = |all: &mut dyn Iterator<Item = u64>| all.sum::<u64>();
        let counted = count(&mut incidents.iter().map(|one| one.failed_attempts));
        prop_assert_eq!(counted, count(&mut given.iter().map(|one| one.failed_attempts)));
        for one in &given {
            let of_it = incidents.iter().filter(|incident| {
                incident.fingerprint == one.fingerprint
                    && incident.first_seen <= one.from
                    && one.to <= incident.last_seen
            });
            prop_assert_eq!(of_it.count(), 1);
        }
        // Two of one fingerprint have a long quiet between them, and ids tell all apart.
        for (number, earlier) in incidents.iter().enumerate() {
            for later in &incidents[number + 1..] {
                prop_assert!(earlier.first_seen <= later.first_seen);
                if earlier.fingerprint == later.fingerprint {
                    prop_assert!(later.first_seen.since(earlier.last_seen) > times.quiet_max);
                }
                prop_assert_ne!(earlier.id, later.id);
            }
        }
    }

    #[test]
    fn shares_of_a_month_add_up_to_the_whole(given in occurrences()) {
        let incidents = incidents_of(given, IncidentTimes::default());
        let months = months_of(&incidents);
        let counted: u64 = months.iter().map(|month| month.incidents).sum();
        prop_assert_eq!(counted, incidents.len() as u64);
        for month in months {
            let of_classes: u64 = month.classes.iter().map(|class| class.incidents).sum();
            prop_assert_eq!(of_classes, month.incidents);
            let shares: u16 = month.classes.iter().map(|class| class.share.0).sum();
            prop_assert_eq!(Permille(shares), Permille::WHOLE);
        }
    }
}
