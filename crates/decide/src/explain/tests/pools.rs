//! What pools, stages and failures of a live service tell, on a link whose rate fell to a third in the middle of a window.

use super::super::signals::{
    Change, DataPathStage, FailureGroup, LinkSignals, PoolSignals, Series, ServerName,
    ServerSignals, Setting, Signals, StageSignals,
};
use super::*;
use penstock_model::{Errno, Phase, PoolName, Side, StorageId, Timestamp};

const HALF: usize = 20;

fn far_to_here() -> LinkId {
    LinkId {
        source: StorageId::new("https://far.org"),
        destination: StorageId::new("https://here.org"),
    }
}

/// One value in the first half of the window and another in the second.
fn step(before: f64, after: f64) -> Series {
    let values = (0..2 * HALF).map(|bin| if bin < HALF { before } else { after });
    Series::known(values)
}

/// Everything is as usual but the rate.
fn window(low: f64) -> Signals {
    let mut signals = Signals::unknown(Timestamp(0), 60, 2 * HALF);
    let link = LinkSignals {
        copied_bytes: step(900e6, low),
        active: step(4.0, 4.0),
        limit: step(4.0, 4.0),
        queued: step(50.0, 50.0),
        finished_files: step(9.0, low / 100e6),
        file_bytes: step(100e6, 100e6),
        ..LinkSignals::default()
    };
    signals.links.insert(far_to_here(), link);
    signals
}

/// Four pools at an end, with what each tells.
fn pools(signals: &mut Signals, end: &StorageId, of: impl Fn(usize) -> PoolSignals) {
    for number in 0..4 {
        let pool = PoolSignals {
            storage: Some(end.clone()),
            ..of(number)
        };
        let name = PoolName::new(format!("p{number}"));
        signals.pools.insert(name, pool);
    }
}

/// A pool as usual; all but the first move nothing in the second half.
fn usual(number: usize) -> PoolSignals {
    let after = if number == 0 { 300e6 } else { 0.0 };
    PoolSignals {
        bytes_in: step(225e6, after),
        bytes_out: step(225e6, after),
        free_bytes: step(5e12, 5e12),
        reserve_bytes: step(0.0, 0.0),
        up: step(1.0, 1.0),
        writable: step(1.0, 1.0),
        failed: step(0.0, 0.0),
        ..PoolSignals::default()
    }
}

fn fail(signals: &mut Signals, side: Side, errno: i32) {
    let group = FailureGroup::new(side, Phase::Transfer, Errno(errno), "text");
    let link = signals.links.get_mut(&far_to_here()).expect("there");
    link.failures.insert(group, step(0.0, 20.0));
}

/// The causes, each with what came of it.
fn causes(signals: &Signals) -> Vec<(Cause, Vec<Cause>)> {
    let told = explain(signals, &[far_to_here()]);
    let [told] = &told[..] else {
        panic!("one stretch: {told:?}");
    };
    let causes = told.causes.iter();
    causes
        .map(|named| (named.cause, named.followers.clone()))
        .collect()
}

#[test]
fn one_pool_of_four_that_carries_all_at_either_end() {
    for end in [far_to_here().source, far_to_here().destination] {
        let mut signals = window(300e6);
        pools(&mut signals, &end, usual);
        assert_eq!(causes(&signals), [(Cause::ServerSkew, vec![])]);
    }
}

#[test]
fn a_storage_element_is_one_whatever_the_scheme_of_its_urls() {
    let mut signals = window(300e6);
    pools(&mut signals, &StorageId::new("davs://here.org"), usual);
    assert_eq!(causes(&signals), [(Cause::ServerSkew, vec![])]);
}

#[test]
fn pools_without_room_for_a_file_are_full() {
    let mut signals = window(300e6);
    let end = far_to_here().destination;
    pools(&mut signals, &end, |number| PoolSignals {
        free_bytes: step(5e12, if number == 0 { 5e12 } else { 90e6 }),
        ..usual(number)
    });
    let expected = [(Cause::PoolFull, vec![Cause::ServerSkew])];
    assert_eq!(causes(&signals), expected);
}

#[test]
fn pools_that_were_drained_and_had_taken_files_are_drained() {
    let mut signals = window(300e6);
    pools(&mut signals, &far_to_here().destination, usual);
    for number in 1..4 {
        signals.changes.push(Change {
            at: signals.begin_of(HALF),
            who: "operator".into(),
            place: format!("p{number}"),
            setting: Setting::Drain,
            old: None,
            new: Some("drained".into()),
        });
    }
    assert_eq!(causes(&signals), [(Cause::Drain, vec![Cause::ServerSkew])]);
}

#[test]
fn a_few_files_without_space_explain_a_part_of_what_was_lost() {
    let mut signals = window(300e6);
    let link = signals.links.get_mut(&far_to_here()).expect("there");
    let no_space = FailureGroup::new(Side::Destination, Phase::Transfer, Errno::ENOSPC, "text");
    link.failures.insert(no_space, step(0.0, 0.3));
    let told = explain(&signals, &[far_to_here()]);
    let first = &told[0].causes[0];
    assert_eq!(first.cause, Cause::OutOfSpace);
    assert!(first.share < Permille(500), "{first:?}");
}

#[test]
fn pools_that_are_filled_just_after_the_rate_fell_are_full() {
    let filled_at = HALF + 2;
    let free = Series::known((0..2 * HALF).map(|bin| if bin < filled_at { 5e12 } else { 0.0 }));
    let mut signals = window(1e6);
    fail(&mut signals, Side::Destination, 11);
    pools(&mut signals, &far_to_here().destination, |number| {
        PoolSignals {
            free_bytes: free.clone(),
            ..usual(number)
        }
    });
    assert_eq!(causes(&signals)[0].0, Cause::OutOfSpace);
}

#[test]
fn pools_whose_disks_fail_are_down_for_what_is_written_there() {
    let fails = |number: usize| PoolSignals {
        writable: step(1.0, if number == 0 { 1.0 } else { 0.0 }),
        ..usual(number)
    };
    let mut signals = window(300e6);
    pools(&mut signals, &far_to_here().destination, fails);
    let expected = [(Cause::Crash, vec![Cause::ServerSkew])];
    assert_eq!(causes(&signals), expected);
    // They still give what they have.
    let mut signals = window(300e6);
    pools(&mut signals, &far_to_here().source, fails);
    assert_eq!(causes(&signals), [(Cause::ServerSkew, vec![])]);
}

#[test]
fn pools_may_be_lost_before_what_runs_on_them_has_ended() {
    let lost_at = HALF - 5;
    let writable = Series::known((0..2 * HALF).map(|bin| if bin < lost_at { 1.0 } else { 0.0 }));
    let mut signals = window(300e6);
    pools(&mut signals, &far_to_here().destination, |number| {
        PoolSignals {
            writable: match number {
                0 => step(1.0, 1.0),
                _ => writable.clone(),
            },
            ..usual(number)
        }
    });
    let expected = [(Cause::Crash, vec![Cause::ServerSkew])];
    assert_eq!(causes(&signals), expected);
}

#[test]
fn pools_that_make_copies_wait_for_their_disks_are_slow() {
    let slow_at = |signals: &mut Signals, waited: Series, end: &StorageId| {
        pools(signals, end, |_| PoolSignals {
            bytes_in: step(75e6, 25e6),
            bytes_out: step(225e6, 75e6),
            read_wait_seconds: waited.clone(),
            ..usual(0)
        });
    };
    let of_source = |waited: Series, end: &StorageId| {
        let mut signals = window(300e6);
        slow_at(&mut signals, waited, end);
        causes(&signals)
    };
    let (source, destination) = (far_to_here().source, far_to_here().destination);
    let slow = || step(3.0, 50.0);
    assert_eq!(
        of_source(slow(), &source),
        [(Cause::DiskController, vec![])]
    );
    assert_eq!(of_source(slow(), &destination), []);
    // Busy processors make no disk slow.
    let mut signals = window(300e6);
    slow_at(&mut signals, slow(), &source);
    let busy = ServerSignals {
        storage: Some(source.clone()),
        cpu: step(0.5, 0.99),
        ..ServerSignals::default()
    };
    signals.servers.insert(ServerName("far".to_owned()), busy);
    assert_eq!(causes(&signals)[0].0, Cause::DiskController);
    // For less of their time, and for no longer than before.
    assert_eq!(of_source(step(1.0, 10.0), &source), []);
    assert_eq!(of_source(step(90.0, 50.0), &source), []);
}

#[test]
fn a_source_that_breaks_off_is_to_blame_when_it_tells_that_it_failed() {
    let mut signals = window(300e6);
    fail(&mut signals, Side::Network, 5);
    assert_eq!(causes(&signals), []);
    pools(&mut signals, &far_to_here().source, |_| PoolSignals {
        failed: step(0.0, 5.0),
        ..PoolSignals::default()
    });
    assert_eq!(causes(&signals)[0].0, Cause::SourceErrors);
}

#[test]
fn an_end_at_which_nobody_answers_is_down() {
    let mut signals = window(0.0);
    fail(&mut signals, Side::Source, 111);
    let expected = [(Cause::Crash, vec![Cause::SourceErrors])];
    assert_eq!(causes(&signals), expected);
    let mut signals = window(300e6);
    fail(&mut signals, Side::Source, 2);
    assert_eq!(causes(&signals)[0].0, Cause::SourceErrors);
}

#[test]
fn transfers_that_all_stand_still_and_do_not_fail_are_stalled() {
    assert_eq!(causes(&window(0.0)), [(Cause::StalledMover, vec![])]);
    assert_eq!(causes(&window(1e6)), []);
}

#[test]
fn a_disk_that_takes_longer_for_a_byte_is_slow() {
    let stages = |signals: &mut Signals, write: f64, network: f64| {
        let link = signals.links.get_mut(&far_to_here()).expect("there");
        for (stage, seconds) in [
            (DataPathStage::DestinationWrite, write),
            (DataPathStage::Network, network),
        ] {
            let busy = StageSignals {
                busy: step(30.0, seconds),
                ..StageSignals::default()
            };
            link.stages.insert(stage, busy);
        }
    };
    let mut slow = window(300e6);
    stages(&mut slow, 100.0, 10.0);
    assert_eq!(causes(&slow), [(Cause::DiskController, vec![])]);
    let mut fast = window(300e6);
    stages(&mut fast, 10.0, 100.0);
    assert_eq!(causes(&fast), []);
}

#[test]
fn a_disk_is_not_slow_because_no_file_landed_in_some_minutes() {
    let landed = |bin: usize| bin < 10 || bin % 5 < 3;
    let told = |read_seconds: f64| {
        let mut signals = window(900e6);
        signals.bins = 20;
        let when_landed = |value: &dyn Fn(usize) -> f64| {
            Series((0..20).map(|bin| landed(bin).then(|| value(bin))).collect())
        };
        let link = signals.links.get_mut(&far_to_here()).expect("there");
        link.copied_bytes = Series::known((0..20).map(|bin| if bin < 10 { 1e9 } else { 6e8 }));
        let files = |bin| f64::from(u8::from(landed(bin)));
        link.finished_files = Series::known((0..20).map(files));
        link.file_bytes = when_landed(&|_| 1e9);
        for (stage, busy) in [
            (DataPathStage::Network, when_landed(&|_| 50.0)),
            (
                DataPathStage::SourceRead,
                when_landed(&|bin| if bin < 10 { 9.0 } else { read_seconds }),
            ),
        ] {
            let signals = StageSignals {
                busy,
                ..StageSignals::default()
            };
            link.stages.insert(stage, signals);
        }
        let told = explain_change(&signals, &[far_to_here()], 0..10, 10..20).expect("known");
        told.causes
            .iter()
            .map(|named| named.cause)
            .collect::<Vec<_>>()
    };
    assert_eq!(told(9.0 * 1.4), []);
    assert_eq!(told(9.0 * 3.0), [Cause::DiskController]);
}
