//! When a receiver is told what.

use super::*;
use crate::clock::ClockDoubt;
use crate::explain::{Population, RateChangeId};
use crate::incidents::{IncidentDrop, IncidentFingerprint, IncidentPlace};
use penstock_model::{Bytes, IncidentClass, LinkId, Rate, StorageId, UserName, VoName};
use proptest::prelude::*;

const MINUTE: i64 = 60_000;
const POLICY: AlertPolicy = AlertPolicy {
    lasting_min: Duration::from_secs(600),
    repeat_after: Duration::from_secs(4 * 3600),
};

fn link() -> LinkId {
    LinkId {
        source: StorageId::new("https://a"),
        destination: StorageId::new("https://b"),
    }
}

/// A drop from one minute to another, of one VO.
fn incident(class: IncidentClass, from: i64, to: i64, is_open: bool) -> Incident {
    let fingerprint = IncidentFingerprint {
        class,
        cause: None,
        object: None,
        place: IncidentPlace::Link(link()),
    };
    let (first_seen, last_seen) = (Timestamp(from * MINUTE), Timestamp(to * MINUTE));
    let drop = IncidentDrop {
        from: first_seen,
        to: last_seen,
        id: RateChangeId::new(&Population::Link(link()), first_seen),
        usual_bytes_per_second: Rate(2),
        low_bytes_per_second: Rate(1),
        bytes_lost: Bytes(1),
    };
    Incident {
        id: IncidentId::new(&fingerprint, first_seen),
        fingerprint,
        first_seen,
        last_seen,
        is_open,
        failed_attempts: 0,
        drops: 1,
        latest_drops: vec![drop],
        bytes_lost: Some(Bytes(1)),
        links: BTreeSet::from([link()]),
        vos: BTreeSet::from([VoName::new("dteam")]),
        worst: None,
    }
}

fn told(incident: &Incident, minute: i64) -> ToldAlert {
    ToldAlert {
        id: incident.id,
        told_at: Timestamp(minute * MINUTE),
    }
}

fn mute(scope: MuteScope, until: i64) -> Mute {
    Mute {
        scope,
        since: Timestamp(0),
        until: Timestamp(until * MINUTE),
        by: UserName::new("root"),
        why: "work".to_owned(),
    }
}

/// All links were looked at.
fn found(incidents: &[Incident]) -> KnownIncidents<'_> {
    KnownIncidents {
        found: incidents,
        since: Timestamp(0),
        clock: ClockTrust::Credible,
        links_left_out: 0,
    }
}

#[test]
fn what_may_go_on_where_nobody_looked_is_not_over() {
    let one = incident(IncidentClass::ALL[0], 10, 30, true);
    let steps = |links_left_out| {
        let known = KnownIncidents {
            found: &[],
            since: Timestamp(0),
            clock: ClockTrust::Credible,
            links_left_out,
        };
        alert_steps(
            &[told(&one, 20)],
            known,
            &[],
            POLICY,
            Timestamp(40 * MINUTE),
        )
        .len()
    };
    assert_eq!((steps(0), steps(1)), (1, 0));
}

fn words(told: &[ToldAlert], incidents: &[Incident], mutes: &[Mute], minute: i64) -> Vec<String> {
    let incidents = found(incidents);
    let steps = alert_steps(told, incidents, mutes, POLICY, Timestamp(minute * MINUTE));
    let word = |step: &AlertStep<'_>| match step {
        AlertStep::Resolve { ended: None, .. } => "resolve, not found".to_owned(),
        AlertStep::Resolve {
            ended: Some(at), ..
        } => format!("resolve {}", at.0 / MINUTE),
        AlertStep::Raise(incident) => format!("raise {}", incident.fingerprint.class),
        AlertStep::Repeat { incident, .. } => format!("repeat {}", incident.fingerprint.class),
        AlertStep::Suppress { scope, .. } => format!("suppress by {scope}"),
    };
    steps.iter().map(word).collect()
}

#[test]
fn a_drop_is_told_once_when_it_has_lasted_and_again_after_long_and_when_it_is_over() {
    let class = IncidentClass::Network;
    let at = |to: i64, is_open: bool| [incident(class, 100, to, is_open)];
    assert_eq!(words(&[], &at(109, true), &[], 109), [""; 0]);
    assert_eq!(words(&[], &at(110, true), &[], 110), ["raise network"]);
    let once = [told(&at(110, true)[0], 110)];
    assert_eq!(words(&once, &at(111, true), &[], 111), [""; 0]);
    assert_eq!(words(&once, &at(349, true), &[], 349), [""; 0]);
    assert_eq!(words(&once, &at(350, true), &[], 350), ["repeat network"]);
    assert_eq!(words(&once, &at(200, false), &[], 216), ["resolve 200"]);
    assert_eq!(words(&once, &[], &[], 216), ["resolve, not found"]);
    // What began and ended while nobody could be told is not told.
    assert_eq!(words(&[], &at(200, false), &[], 216), [""; 0]);
}

#[test]
fn failures_without_a_drop_alert_nobody() {
    let mut failures = incident(IncidentClass::Client, 0, 100, true);
    (failures.drops, failures.latest_drops) = (0, Vec::new());
    assert_eq!(words(&[], &[failures], &[], 100), [""; 0]);
}

#[test]
fn a_mute_holds_back_what_it_covers_until_its_expiry() {
    let incidents = [incident(IncidentClass::Tape, 0, 100, true)];
    let check = |scope: MuteScope, expected: &str| {
        let mutes = [mute(scope, 200)];
        assert_eq!(words(&[], &incidents, &mutes, 100), [expected]);
        assert_eq!(words(&[], &incidents, &mutes, 200), ["raise tape"]);
    };
    check(
        MuteScope::Class(IncidentClass::Tape),
        "suppress by class tape",
    );
    check(MuteScope::Class(IncidentClass::Storage), "raise tape");
    check(MuteScope::Link("a-b".into()), "suppress by link a-b");
    check(MuteScope::Link("*-b".into()), "suppress by link *-b");
    check(MuteScope::Link("b-a".into()), "raise tape");
    check(MuteScope::Vo(VoName::new("dteam")), "suppress by VO dteam");
    check(MuteScope::Vo(VoName::new("cms")), "raise tape");
    // What was told before it is not repeated, and its end is told.
    let once = [told(&incidents[0], 10)];
    let mutes = [mute(MuteScope::Class(IncidentClass::Tape), 1000)];
    assert_eq!(words(&once, &incidents, &mutes, 500), [""; 0]);
    let over = [incident(IncidentClass::Tape, 0, 100, false)];
    assert_eq!(words(&once, &over, &mutes, 500), ["resolve 100"]);
}

#[test]
fn a_mute_of_one_link_does_not_hide_another() {
    let mut both = incident(IncidentClass::Storage, 0, 100, true);
    let other = LinkId {
        source: StorageId::new("https://c"),
        destination: StorageId::new("https://b"),
    };
    both.links.insert(other);
    let mutes = [mute(MuteScope::Link("a-b".into()), 200)];
    assert_eq!(words(&[], &[both.clone()], &mutes, 100), ["raise storage"]);
    let mutes = [mute(MuteScope::Link("*-b".into()), 200)];
    assert_eq!(words(&[], &[both], &mutes, 100), ["suppress by link *-b"]);
}

#[test]
fn a_clock_that_leaps_ahead_and_back_ends_no_alert_and_begins_none() {
    let class = IncidentClass::Storage;
    let told = [told(&incident(class, 0, 100, true), 10)];
    let steps = |minute: i64, clock: ClockTrust, incidents: &[Incident]| {
        let known = KnownIncidents {
            clock,
            ..found(incidents)
        };
        alert_steps(&told, known, &[], POLICY, Timestamp(minute * MINUTE)).len()
    };
    let doubted = ClockTrust::Doubted {
        because: ClockDoubt::LeaptForward(Duration::from_secs(3600)),
        left: Duration::from_secs(3600),
    };
    let is_open = |is_open| [incident(class, 0, 100, is_open)];
    assert_eq!(steps(100, ClockTrust::Credible, &is_open(true)), 0);
    // Seen from an hour later it ended long ago.
    assert_eq!(steps(160, ClockTrust::Credible, &is_open(false)), 1);
    assert_eq!(steps(160, doubted, &is_open(false)), 0);
    assert_eq!(steps(101, ClockTrust::Credible, &is_open(true)), 0);
}

#[test]
fn an_incident_whose_begin_is_no_longer_looked_at_goes_on() {
    let class = IncidentClass::Network;
    let steps = |incidents: &[Incident], since: i64, told: &[ToldAlert]| {
        let known = KnownIncidents {
            since: Timestamp(since * MINUTE),
            ..found(incidents)
        };
        let now = Timestamp((since + 24 * 60) * MINUTE);
        let steps = alert_steps(told, known, &[], POLICY, now);
        let word = |step: &AlertStep<'_>| match step {
            AlertStep::Resolve { ended, .. } => match ended {
                Some(_) => "resolve",
                None => "resolve, not found",
            },
            AlertStep::Raise(_) => "raise",
            AlertStep::Repeat { .. } => "repeat",
            AlertStep::Suppress { .. } => "suppress",
        };
        steps.iter().map(word).collect::<Vec<_>>()
    };
    // It was told when it was first seen at 0, and what is looked at begins an hour later.
    let began = incident(class, 0, 100, true);
    let lately = [told(&began, 23 * 60)];
    let goes_on = incident(class, 70, 25 * 60, true);
    assert_eq!(steps(std::slice::from_ref(&goes_on), 60, &lately), [""; 0]);
    let long_ago = [told(&began, 10)];
    assert_eq!(steps(&[goes_on], 60, &long_ago), ["repeat"]);
    // Its end is told, and what came after it is another.
    let both = [
        incident(class, 70, 100, false),
        incident(class, 900, 1500, true),
    ];
    assert_eq!(steps(&both, 60, &lately), ["resolve", "raise"]);
    // Of a time that is looked at everything is known.
    let later = [incident(class, 400, 1500, true)];
    let of_later = [told(&incident(class, 200, 300, true), 23 * 60)];
    assert_eq!(
        steps(&later, 60, &of_later),
        ["resolve, not found", "raise"]
    );
}

proptest! {
    /// A receiver that does what it is told knows of an incident exactly while it is open and has lasted.
    #[test]
    fn each_incident_is_raised_once_and_resolved_once(length in 1..600i64, silence in 0..30i64) {
        let class = IncidentClass::Storage;
        let mut known: Vec<ToldAlert> = Vec::new();
        let (mut raised, mut resolved, mut repeated) = (0, 0, 0);
        for minute in 0..(length + 60) {
            let is_open = minute <= length + 15;
            let incidents = [incident(class, 0, minute.min(length), is_open)];
            // The receiver was away for a while.
            if (20..20 + silence).contains(&minute) {
                continue;
            }
            let now = Timestamp(minute * MINUTE);
            for step in alert_steps(&known, found(&incidents), &[], POLICY, now) {
                match step {
                    AlertStep::Raise(incident) => {
                        raised += 1;
                        known.push(ToldAlert { id: incident.id, told_at: now });
                    }
                    AlertStep::Repeat { .. } => {
                        repeated += 1;
                        known[0].told_at = now;
                    }
                    AlertStep::Resolve { id, .. } => {
                        resolved += 1;
                        known.retain(|one| one.id != id);
                    }
                    AlertStep::Suppress { .. } => {}
                }
            }
        }
        prop_assert_eq!(raised, resolved);
        prop_assert!(raised <= 1 && known.is_empty());
        prop_assert_eq!(raised == 1, length >= 10);
        prop_assert!(i64::from(repeated) <= (length + 15) / 240);
    }
}
