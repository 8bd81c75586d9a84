//! Each rule against faults of a small grid, in two strengths, and the events of the service challenges as text.

mod confusions;
mod events;
mod incidents;
mod plant;
mod pools;
mod rate_changes;
mod recalls;
mod standstill;
mod ways;

use super::*;
use penstock_model::{ANY, StorageId};
use plant::{Conditions, Noise, run, watched};
use signals::{Change, Setting};

/// Eight hours; from the fifth to the sixth something is different.
const BINS: usize = 480;
const FAULT: Range<usize> = 240..330;

type Fault = fn(&mut Conditions, f64);

fn faulty(fault: Fault, strength: f64, seed: u64, base: &Conditions) -> Signals {
    run(BINS, seed, 0.03, |bin| {
        let mut conditions = base.clone();
        if FAULT.contains(&bin) {
            fault(&mut conditions, strength);
        }
        conditions
    })
}

/// What is named first for the longest stretch.
fn first_cause(signals: &Signals) -> Option<(Cause, Explanation)> {
    let told = explain(signals, &[watched()]);
    let longest = told
        .into_iter()
        .max_by_key(|told| told.to.0 - told.from.0)?;
    Some((longest.causes.first()?.cause, longest))
}

fn check(expected: Cause, strengths: [f64; 2], fault: Fault) {
    check_from(&Conditions::default(), expected, strengths, fault, |_| {});
}

fn check_from(
    base: &Conditions,
    expected: Cause,
    strengths: [f64; 2],
    fault: Fault,
    record: fn(&mut Signals),
) {
    for strength in strengths {
        for seed in 0..3 {
            let mut signals = faulty(fault, strength, seed, base);
            record(&mut signals);
            let told = first_cause(&signals);
            let text: Vec<String> = explain(&signals, &[watched()])
                .iter()
                .map(crate::wording::explanation)
                .collect();
            let named = told.map(|(cause, _)| cause);
            assert_eq!(
                named,
                Some(expected),
                "{expected:?} at {strength}, seed {seed}:\n{}",
                text.join("\n")
            );
        }
    }
}

#[test]
fn a_grid_without_faults_has_no_drops() {
    for seed in 0..5 {
        let signals = run(BINS, seed, 0.03, |_| Conditions::default());
        assert_eq!(explain(&signals, &[watched()]), [], "seed {seed}");
    }
}

#[test]
fn a_link_that_is_not_fed() {
    check(Cause::NotFed, [0.5, 0.25], |c, pace| c.pace = pace);
}

#[test]
fn a_generator_that_stopped() {
    check(Cause::FewerSubmissions, [0.1, 0.03], |c, submits| {
        c.submit_max = submits
    });
}

#[test]
fn other_links_that_take_the_slots() {
    check(Cause::ServiceShare, [200.0, 500.0], |c, want| {
        c.others_want = want
    });
}

#[test]
fn a_lower_limit() {
    check(Cause::SlotLimit, [6.0, 3.0], |c, limit| c.limit = limit);
}

#[test]
fn a_service_that_starts_nothing() {
    check(Cause::ControlPlane, [0.0, 0.2], |c, pace| {
        c.pace_all = pace;
        c.service_up = pace > 0.0;
    });
}

#[test]
fn a_database_that_is_slow() {
    check(Cause::DatabaseLoad, [1.0, 4.0], |c, seconds| {
        c.query = seconds
    });
    check(Cause::DatabaseLoad, [8.0, 20.0], |c, seconds| {
        c.namespace_operation = seconds;
        c.namespace_io = 0.6;
    });
}

#[test]
fn a_drain() {
    check_from(
        &Conditions::default(),
        Cause::Drain,
        [2.0, 3.0],
        |c, servers| c.servers_drained = servers as usize,
        |signals| {
            signals.changes.push(Change {
                at: signals.begin_of(FAULT.start),
                who: "operator".into(),
                place: "ccxfer09".into(),
                setting: Setting::Drain,
                old: None,
                new: Some("drained".into()),
            });
        },
    );
}

/// The first cause of a halved rate when a ban was set at a place and lifted, in bins from the begin of the drop.
fn cause_beside_a_ban(place: &str, set: i64, lifted: Option<i64>) -> Option<Cause> {
    let mut signals = faulty(|c, pace| c.pace = pace, 0.5, 1, &Conditions::default());
    let begin = signals.begin_of(FAULT.start);
    let mut change = |bins: i64, new: Option<&str>| {
        signals.changes.push(Change {
            at: penstock_model::Timestamp(begin.0 + bins * 60_000),
            who: "operator".into(),
            place: place.into(),
            setting: Setting::Ban,
            old: None,
            new: new.map(str::to_owned),
        });
    };
    change(set, Some("banned"));
    lifted.into_iter().for_each(|bins| change(bins, None));
    first_cause(&signals).map(|(cause, _)| cause)
}

#[test]
fn a_ban_is_a_cause_only_where_and_while_it_is_in_force() {
    let source = watched().source.as_str().to_owned();
    let check = |place: &str, set: i64, lifted: Option<i64>, expected: Cause| {
        let cause = cause_beside_a_ban(place, set, lifted);
        assert_eq!(cause, Some(expected), "{place} {set} {lifted:?}");
    };
    check(&source, -3, None, Cause::Drain);
    check(&source, 0, Some(90), Cause::Drain);
    check(&source, -8, Some(-2), Cause::NotFed);
    check(&source, 0, Some(10), Cause::NotFed);
    check(&source, 5, None, Cause::NotFed);
    check("https://on-no-link.example", -3, None, Cause::NotFed);
}

#[test]
fn a_rate_limit_is_a_cause_where_it_is_lower_and_reached() {
    let cause = |old: Option<&str>, new: Option<&str>| {
        let mut signals = faulty(|c, pace| c.pace = pace, 0.5, 1, &Conditions::default());
        signals.changes.push(Change {
            at: signals.begin_of(FAULT.start),
            who: "operator".into(),
            place: watched().to_string(),
            setting: Setting::RateLimit,
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
        });
        first_cause(&signals).map(|(cause, _)| cause)
    };
    assert_eq!(cause(None, Some("120 MB/s")), Some(Cause::RateLimit));
    assert_eq!(
        cause(Some("1.0 GB/s"), Some("120 MB/s")),
        Some(Cause::RateLimit)
    );
    assert_eq!(cause(None, Some("1.0 TB/s")), Some(Cause::NotFed));
    assert_eq!(
        cause(Some("1.0 MB/s"), Some("120 MB/s")),
        Some(Cause::NotFed)
    );
    assert_eq!(cause(Some("120 MB/s"), None), Some(Cause::NotFed));
}

#[test]
fn a_drain_that_was_taken_back_is_what_had_held_a_rate_down() {
    let mut signals = faulty(|c, pace| c.pace = pace, 0.5, 1, &Conditions::default());
    for (bin, new) in [(FAULT.start, Some("drained")), (FAULT.end, None)] {
        signals.changes.push(Change {
            at: signals.begin_of(bin),
            who: "operator".into(),
            place: watched().source.as_str().to_owned(),
            setting: Setting::Drain,
            old: None,
            new: new.map(str::to_owned),
        });
    }
    let told = explain_change(&signals, &[watched()], 245..325, 332..400).expect("known");
    assert_eq!(told.kind, RateChangeKind::Rise);
    assert_eq!(told.causes[0].cause, Cause::Drain);
}

#[test]
fn no_rate_without_a_cause_is_lower_and_no_fix_without_gain_is_told() {
    let factors = |rate: f64, limit: f64, active: f64| Factors {
        rate,
        limit: Some(limit),
        active: Some(active),
        moving_share: None,
        success: None,
    };
    // Nothing was in any sample before, so that the factor of the slots in use rose from nothing.
    let (usual, low) = (factors(2e6, 10.0, 0.0), factors(1e6, 10.0, 1.0));
    let parts = vec![Part {
        factors: vec![Factor::Fed],
        from: 0.0,
        to: 0.1,
        change: -1e6,
    }];
    let rule = rule_of(Cause::NotFed).expect("in the table");
    let finding = Finding::whole(Vec::new()).expect("some");
    let (causes, ..) = name_causes(group(vec![(rule, finding)]), &parts, &low, &usual);
    assert_eq!(causes[0].rate_without, 1e6);
}

fn record_change(signals: &mut Signals, place: &str, setting: Setting, new: &str) {
    signals.changes.push(Change {
        at: signals.begin_of(FAULT.start),
        who: "operator".into(),
        place: place.into(),
        setting,
        old: None,
        new: Some(new.into()),
    });
}

#[test]
fn a_lower_limit_of_a_storage_element() {
    let base = Conditions::default();
    check_from(
        &base,
        Cause::SlotLimit,
        [0.5, 0.25],
        |c, pace| c.pace = pace,
        |signals| record_change(signals, "in2p3", Setting::InboundLimit, "5"),
    );
    // What may go out of the destination does not hold up what comes in.
    check_from(
        &base,
        Cause::NotFed,
        [0.5, 0.25],
        |c, pace| c.pace = pace,
        |signals| record_change(signals, "in2p3", Setting::OutboundLimit, "5"),
    );
}

#[test]
fn a_service_that_is_drained() {
    let base = Conditions::default();
    check_from(
        &base,
        Cause::Drain,
        [0.0, 0.1],
        |c, pace| c.pace_all = pace,
        |signals| record_change(signals, signals::SERVICE_PLACE, Setting::Drain, "drained"),
    );
}

#[test]
fn all_links_that_are_half_fed() {
    check(Cause::NotFed, [0.6, 0.45], |c, pace| c.pace_all = pace);
}

#[test]
fn few_losses_on_a_long_path() {
    check(Cause::NetworkPath, [3e-5, 8e-5], |c, loss| c.loss = loss);
}

#[test]
fn errors_at_either_end() {
    check(Cause::SourceErrors, [0.6, 0.85], |c, part| {
        c.fails_source = part
    });
    check(Cause::DestinationErrors, [0.6, 0.85], |c, part| {
        c.fails_destination = part
    });
}

#[test]
fn movers_that_are_stalled() {
    check(Cause::StalledMover, [4.0, 8.0], |c, movers| {
        c.stalled = movers
    });
}

#[test]
fn transfers_that_stand_still_where_no_pool_tells_of_its_movers() {
    let fault: Fault = |c, stalled| c.stalled = stalled;
    check_from(
        &Conditions::default(),
        Cause::StalledMover,
        [4.0, 8.0],
        fault,
        |signals| {
            let pools = signals.pools.values_mut();
            let of_pools: Vec<_> = pools
                .map(|pool| std::mem::take(&mut pool.movers_stalled))
                .collect();
            let link = signals.links.get_mut(&watched()).expect("watched");
            let stalled = of_pools.into_iter().reduce(|sum, one| sum.plus(&one));
            link.stalled = stalled.expect("pools");
            let age = |stalled: &Option<f64>| stalled.map(|stalled| 700.0 * stalled.min(1.0));
            link.progress_age_seconds.0 = link.stalled.0.iter().map(age).collect();
        },
    );
}

#[test]
fn pools_that_are_full() {
    check(Cause::PoolFull, [2.0, 3.0], |c, servers| {
        c.fills = servers as usize
    });
}

#[test]
fn a_destination_without_space() {
    check(Cause::OutOfSpace, [4.0, 4.0], |c, servers| {
        c.fills = servers as usize
    });
}

#[test]
fn servers_that_are_down() {
    check(Cause::Crash, [2.0, 3.0], |c, servers| {
        c.servers_down = servers as usize
    });
}

#[test]
fn servers_that_get_no_files_for_a_reason_that_is_not_known() {
    check(Cause::ServerSkew, [2.0, 3.0], |c, servers| {
        c.servers_drained = servers as usize
    });
}

#[test]
fn a_tape_system_that_takes_nothing() {
    check(Cause::TapeWriteStopped, [0.0, 0.0], |c, _| {
        c.tape_writes = false
    });
    check(Cause::TapeBufferFull, [0.99, 1.0], |c, used| {
        c.tape_buffer = used
    });
}

#[test]
fn small_files() {
    check(Cause::SmallFiles, [1e8, 3e7], |c, bytes| c.file = bytes);
}

#[test]
fn a_namespace_without_threads() {
    check(Cause::NamespaceThreads, [3000.0, 8000.0], |c, clients| {
        c.namespace_clients = clients
    });
}

#[test]
fn a_batch_system_that_delays() {
    check(Cause::BatchDelay, [60.0, 200.0], |c, seconds| {
        c.batch = seconds
    });
}

#[test]
fn many_connections() {
    check(Cause::TooManyStreams, [15.0, 30.0], |c, streams| {
        c.streams = streams
    });
}

#[test]
fn small_windows() {
    check(Cause::TcpWindow, [500e3, 87e3], |c, bytes| c.window = bytes);
}

#[test]
fn a_service_that_loses_slots_of_its_own_is_full_and_others_took_none() {
    check(Cause::NotFed, [20.0, 12.0], |c, slots| c.slots_cap = slots);
}

#[test]
fn windows_that_stay_small_although_buffers_may_grow() {
    check(Cause::WindowUnopened, [500e3, 87e3], |c, bytes| {
        c.window = bytes;
        c.buffer = Some(16e6);
    });
}

#[test]
fn connections_without_bytes_beside_others_at_their_window() {
    let base = Conditions {
        streams: 4.0,
        buffer: Some(16e6),
        ..Conditions::default()
    };
    let fault: Fault = |c, part| {
        c.window = 150e3;
        c.unused_streams = part;
    };
    check_from(&base, Cause::IdleStreams, [0.8, 0.9], fault, |_| {});
    // What small windows take is told beside it, and both leave nothing.
    let (_, told) = first_cause(&faulty(fault, 0.8, 0, &base)).expect("a drop");
    let causes: Vec<Cause> = told.causes.iter().map(|named| named.cause).collect();
    assert_eq!(causes, [Cause::IdleStreams, Cause::WindowUnopened]);
    assert!(told.unexplained <= Permille(50), "{told:#?}");
}

#[test]
fn windows_explain_no_more_than_what_they_allow() {
    // The window falls to a hundredth; what it allows is still more than half of what a file had.
    let base = Conditions {
        streams: 4.0,
        ..Conditions::default()
    };
    let signals = faulty(
        |c, part| {
            c.window = 150e3;
            c.unused_streams = part;
        },
        0.8,
        0,
        &base,
    );
    let (first, told) = first_cause(&signals).expect("a drop");
    assert_eq!(first, Cause::IdleStreams, "{told:#?}");
    let window = (told.causes.iter()).find(|named| named.cause == Cause::TcpWindow);
    let share = window.map(|named| named.share);
    assert!(
        share.is_some_and(|share| share < Permille(500)),
        "{told:#?}"
    );
}

#[test]
fn some_pools_write_nothing_to_tape_and_others_do() {
    let mut signals = run(BINS, 0, 0.0, |bin| Conditions {
        servers_drained: if FAULT.contains(&bin) { 2 } else { 0 },
        ..Conditions::default()
    });
    let silent = |bin: usize, number: usize| number < 2 && (100..FAULT.start + 20).contains(&bin);
    for (number, pool) in signals.pools.values_mut().enumerate() {
        let written = |bin| if silent(bin, number) { 0.0 } else { 1e9 };
        pool.tape_written_bytes = Series::known((0..BINS).map(written));
        pool.tape_unwritten_bytes = Series::constant(1e12, BINS);
    }
    let told = explain(&signals, &[watched()]);
    assert_eq!(
        told[0].causes[0].cause,
        Cause::TapeWriteStopped,
        "{told:#?}"
    );
    let evidence = crate::wording::evidence(&told[0].causes[0].evidence[0]);
    assert!(
        evidence.starts_with("pool0: bytes not on tape yet"),
        "{evidence}"
    );
    assert_eq!(told[0].causes[0].followers, [Cause::ServerSkew]);
}

#[test]
fn a_lossy_path() {
    check(Cause::NetworkPath, [1.5e-4, 2e-3], |c, loss| c.loss = loss);
}

#[test]
fn a_narrow_site() {
    check(Cause::SiteNetwork, [200e6, 100e6], |c, uplink| {
        c.uplink = uplink
    });
}

#[test]
fn random_writes() {
    check(Cause::RandomWrites, [0.8, 1.0], |c, part| c.random = part);
}

#[test]
fn a_hop_more() {
    check(Cause::Relay, [0.4, 0.8], |c, part| c.relay = part);
}

#[test]
fn an_array_that_is_slow() {
    check(Cause::DiskController, [0.4, 0.15], |c, part| c.array = part);
    check(Cause::Multipath, [0.4, 0.15], |c, part| {
        c.array = part;
        c.path_switches = 5.0;
    });
}

#[test]
fn bytes_over_another_path_are_not_told_as_changes_of_the_path() {
    let fault = |c: &mut Conditions, part: f64| {
        c.array = part;
        c.path_switches = 0.2;
        c.other_path_bytes = 1e9;
    };
    check(Cause::Multipath, [0.4, 0.15], fault);
    let signals = faulty(fault, 0.4, 0, &Conditions::default());
    let told = explain(&signals, &[watched()]);
    let text = told
        .first()
        .map(crate::wording::explanation)
        .unwrap_or_default();
    for line in [
        "changes of the path to the disk array 0.2, 0.0 before",
        "bytes over a path that the disk array does not prefer per interval 1.0 GB, 0 B before",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_burst_of_starts() {
    check(Cause::StartBurst, [60.0, 150.0], |c, jobs| c.jobs = jobs);
}

#[test]
fn a_server_without_processors() {
    check(Cause::UndersizedHost, [150e6, 60e6], |c, rate| {
        c.checksum = rate
    });
}

#[test]
fn tape_drives() {
    let base = Conditions {
        recalls: true,
        ..Conditions::default()
    };
    check_from(
        &base,
        Cause::TapeDrives,
        [3.0, 3.7],
        |c, drives| c.drives_of_others = drives,
        |_| {},
    );
    check_from(
        &base,
        Cause::ScatteredFiles,
        [2.0, 1.0],
        |c, files| c.files_per_mount = files,
        |_| {},
    );
    check_from(
        &base,
        Cause::AggregateRead,
        [6.0, 15.0],
        |c, times| c.amplification = times,
        |_| {},
    );
}

#[test]
fn a_shortage_of_tape_drives_tells_how_long_files_have_waited() {
    let base = Conditions {
        recalls: true,
        ..Conditions::default()
    };
    let mut signals = faulty(|c, drives| c.drives_of_others = drives, 3.7, 0, &base);
    let bins = signals.bins;
    for storage in signals.storages.values_mut() {
        storage.tape.recall_age_seconds = Series::constant(7200.0, bins);
    }
    let (cause, told) = first_cause(&signals).expect("a drop");
    assert_eq!(cause, Cause::TapeDrives);
    let text = crate::wording::explanation(&told);
    assert!(text.contains("longest wait of a file for tape"), "{text}");
}

#[test]
fn load_of_other_links() {
    check(Cause::CompetingLoad, [25.0, 60.0], |c, files| {
        c.rival_want = files
    });
}

#[test]
fn an_end_that_is_not_known_is_no_storage_element_that_links_share() {
    let mut signals = faulty(
        |c, files| c.rival_want = files,
        60.0,
        0,
        &Conditions::default(),
    );
    let unknown = |id: &LinkId| LinkId {
        destination: match id.destination == watched().destination {
            true => StorageId::new(ANY),
            false => id.destination.clone(),
        },
        ..id.clone()
    };
    let links = std::mem::take(&mut signals.links);
    signals.links = links
        .into_iter()
        .map(|(id, link)| (unknown(&id), link))
        .collect();
    let own = unknown(&watched());
    let others = signals.links.keys().filter(|id| **id != own);
    assert!(others.clone().any(|id| id.destination == own.destination));
    let told = explain(&signals, std::slice::from_ref(&own));
    assert!(!told.is_empty());
    let mut causes = told.iter().flat_map(|told| &told.causes);
    assert!(causes.all(|named| named.cause != Cause::CompetingLoad));
}

#[test]
fn a_leak_of_descriptors() {
    let base = Conditions {
        descriptors_leak: 4.4,
        ..Conditions::default()
    };
    check_from(
        &base,
        Cause::DescriptorLeak,
        [4.4, 5.0],
        |c, leak| c.descriptors_leak = leak,
        |_| {},
    );
}

#[test]
fn books_that_differ_are_a_remark_and_take_nothing_from_the_rate() {
    for catalogue in [0.97, 0.91] {
        let base = Conditions {
            catalogue,
            ..Conditions::default()
        };
        let signals = faulty(|c, pace| c.pace = pace, 0.5, 1, &base);
        let (cause, told) = first_cause(&signals).expect("a drop");
        assert_eq!(cause, Cause::NotFed);
        assert_eq!(told.remarks[0].0, Cause::Accounting);
    }
}

#[test]
fn every_cause_has_a_rule_and_chains_end() {
    for cause in Cause::ALL {
        let rule = rule_of(*cause).expect("in the table");
        assert!(rule.leads_to.iter().all(|next| next != cause));
    }
    assert_eq!(RULES.len(), Cause::ALL.len());
}

#[test]
fn shares_and_the_unexplained_part_are_the_whole_and_equal_windows_give_equal_answers() {
    let faults: [(Fault, f64); 5] = [
        (|c, pace| c.pace = pace, 0.5),
        (|c, loss| c.loss = loss, 1e-3),
        (|c, files| c.rival_want = files, 20.0),
        (
            |c, part| {
                c.pace = part;
                c.fails_source = 0.5
            },
            0.6,
        ),
        (|c, servers| c.servers_drained = servers as usize, 2.0),
    ];
    for (fault, strength) in faults {
        let signals = faulty(fault, strength, 5, &Conditions::default());
        let told = explain(&signals, &[watched()]);
        assert!(!told.is_empty());
        for one in &told {
            let shares: u16 = one.causes.iter().map(|named| named.share.0).sum();
            assert_eq!(shares + one.unexplained.0, 1000, "{one:?}");
            assert!(one.causes.len() <= CAUSES_MAX);
        }
        assert_eq!(explain(&signals.clone(), &[watched()]), told);
    }
}

#[test]
fn what_was_not_measured_is_told_and_not_guessed() {
    // 4 April 2006: nothing but the rate is known.
    let full = faulty(|c, pace| c.pace = pace, 0.5, 1, &Conditions::default());
    let mut bare = Signals::unknown(full.begin, full.bin_seconds, full.bins);
    let copied_bytes = full.links[&watched()].copied_bytes.clone();
    bare.links.insert(
        watched(),
        LinkSignals {
            copied_bytes,
            ..LinkSignals::default()
        },
    );
    let told = explain(&bare, &[watched()]);
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].causes.len(), told[0].unexplained),
        (0, Permille::WHOLE)
    );
    for needed in [
        Measure::Active,
        Measure::Limit,
        Measure::Queued,
        Measure::FinishedFiles,
        Measure::PoolFree,
    ] {
        assert!(
            told[0].missing.contains(&needed),
            "{needed:?} of {:?}",
            told[0].missing
        );
    }
}

/// Thirty days of links on which nothing is wrong but noise, slow and fast: one false explanation at most.
#[test]
fn noise_is_not_explained() {
    let mut false_answers = Vec::new();
    for seed in 0..30u64 {
        let sigma = [0.05, 0.1, 0.15][seed as usize % 3];
        let mut chance = Noise(seed * 7 + 3);
        let mut moods = vec![1.0];
        for _ in 0..24 {
            moods.push((chance.normal() * 0.05).exp());
        }
        let signals = run(1440, seed, sigma, |bin| Conditions {
            loss: 2e-6 * moods[bin / 60],
            others_want: 20.0 * moods[bin / 60],
            ..Conditions::default()
        });
        for told in explain(&signals, &[watched()]) {
            false_answers.extend(told.causes.first().map(|named| (seed, named.cause)));
        }
    }
    assert!(false_answers.len() <= 1, "{false_answers:?}");
}

/// 10 April 2006: half the rate, no errors, no network problem, too few files at once.
#[test]
fn half_of_the_files_is_told_with_the_rate_that_all_of_them_would_have() {
    let signals = faulty(|c, pace| c.pace = pace, 0.5, 1, &Conditions::default());
    let (_, told) = first_cause(&signals).expect("a drop");
    let text = crate::wording::explanation(&told);
    for words in [
        "cern → in2p3: ",
        " instead of ",
        "left slots free although files were queued [FEED]",
        "slots in use 5.",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    let rate = told.causes[0].rate_without;
    assert!(
        (rate / told.usual.rate - 1.0).abs() < 0.05,
        "{rate} of {}",
        told.usual.rate
    );
}

/// 7 April 2006: more than 200 MB/s after the channel was raised to 30 files.
#[test]
fn a_rise_is_explained_by_what_held_the_rate_down_before_it() {
    let signals = faulty(|c, limit| c.limit = limit, 15.0, 1, &Conditions::default());
    let told = explain_change(&signals, &[watched()], 100..230, 250..320).expect("known");
    assert_eq!(told.kind, RateChangeKind::Rise);
    assert_eq!(told.causes[0].cause, Cause::SlotLimit);
}

/// 20 April 2006: a mover hung, the pools of its server filled, and all files went to the others.
#[test]
fn of_a_chain_the_root_is_named_with_what_came_of_it() {
    let fault: Fault = |c, movers| {
        c.stalled = movers;
        c.fills = 2;
    };
    let signals = faulty(fault, 1.0, 1, &Conditions::default());
    let (cause, told) = first_cause(&signals).expect("a drop");
    assert_eq!(cause, Cause::StalledMover);
    assert_eq!(
        told.causes[0].followers,
        [Cause::PoolFull, Cause::ServerSkew]
    );
}
