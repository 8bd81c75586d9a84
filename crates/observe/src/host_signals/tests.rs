//! From rows of a host to the cause that is named.

use super::*;
use crate::explanations::reading::ExplainedWindow;
use crate::explanations::{Disclosure, element_rows};
use crate::host::databases::DatabaseSample;
use crate::host::disks::DiskActivity;
use crate::host::interfaces::InterfaceTraffic;
use crate::host::processor::ProcessorTime;
use crate::host::sample::{DiskSample, InterfaceSample, Pressures, ProcessUse};
use crate::store::{Reader, Store};
use crate::{host_rows, pool_rows};
use penstock_decide::explain::PopulationChoice;
use penstock_decide::explain::signals::{DataPathStage, LinkSignals, StageSignals};
use penstock_decide::explain::{Cause, RateChange};
use penstock_model::observation::Text;
use penstock_model::{LinkId, PoolName, PoolSample, PoolSamples, Timestamp};
use std::ops::Range;

const MINUTE: i64 = 60_000;
const MINUTE_US: u64 = 60_000_000;
const MINUTES: usize = 120;
const FAULT: Range<usize> = 70..110;
/// Of an interface.
const SPEED: u64 = 1_250_000_000;

/// A link into the storage element of this host, with less than half of its rate in the fault: the time of each copy goes
/// into this stage.
fn signals(stage: Option<DataPathStage>) -> Signals {
    let mut signals = Signals::unknown(Timestamp(0), 60, MINUTES);
    let link = LinkId {
        source: StorageId::new("davs://far.org"),
        destination: StorageId::new("davs://here.org"),
    };
    let rate = |bin: usize| {
        let usual = 6e9 + ((bin * 7_919) % 97) as f64 * 1e7;
        usual * if FAULT.contains(&bin) { 0.4 } else { 1.0 }
    };
    let known = |value: &dyn Fn(usize) -> f64| Series::known((0..MINUTES).map(value));
    let busy = |slow: DataPathStage| StageSignals {
        busy: known(&|bin| match FAULT.contains(&bin) && stage == Some(slow) {
            true => 200.0,
            false => 60.0,
        }),
        ..StageSignals::default()
    };
    let stages = [
        DataPathStage::SourceRead,
        DataPathStage::Network,
        DataPathStage::DestinationWrite,
    ];
    let of_link = LinkSignals {
        copied_bytes: known(&rate),
        active: Series::constant(5.0, MINUTES),
        limit: Series::constant(5.0, MINUTES),
        queued: Series::constant(50.0, MINUTES),
        finished_files: known(&|bin| rate(bin) / 1e9),
        file_bytes: Series::constant(1e9, MINUTES),
        stages: stages
            .into_iter()
            .map(|stage| (stage, busy(stage)))
            .collect(),
        ..LinkSignals::default()
    };
    signals.links.insert(link, of_link);
    signals
}

fn interface(name: &str, role: Option<InterfaceRole>) -> InterfaceInfo {
    InterfaceInfo {
        name: name.to_owned(),
        role,
        speed_bytes_per_second: Some(SPEED),
        mtu_bytes: Some(9000),
        state: None,
    }
}

fn disk() -> DiskInfo {
    DiskInfo {
        name: "sda".to_owned(),
        device: "8:0".to_owned(),
        holds: vec!["pool a".to_owned()],
        model: None,
    }
}

/// A minute of a host that has little to do.
fn quiet(minute: usize) -> HostSample {
    let some = 1 + minute as u64 % 7;
    let carried = |name: &str, bytes: u64| InterfaceSample {
        name: name.into(),
        traffic: InterfaceTraffic {
            received_bytes: bytes,
            sent_bytes: bytes / 50,
            ..InterfaceTraffic::default()
        },
        received_bytes_per_second_max: 0,
        sent_bytes_per_second_max: 0,
    };
    let database = |kind| DatabaseSample {
        kind,
        activity: DatabaseActivity {
            operations: 60,
            operation_us: 60 * 2000 * some,
            transactions: 50,
            transaction_us: 50 * 1500 * some,
            ..DatabaseActivity::default()
        },
    };
    HostSample {
        from: Timestamp(minute as i64 * MINUTE),
        covered_us: MINUTE_US,
        processor: Some(ProcessorTime {
            user: 1000 * some,
            idle: 12_000 - 1000 * some,
            ..ProcessorTime::default()
        }),
        pressure: Pressures {
            memory: Some(Pressure::default()),
            io: Some(Pressure {
                some_us: MINUTE_US / 100 * some,
                full_us: MINUTE_US / 200 * some,
            }),
            ..Pressures::default()
        },
        process: Some(ProcessUse {
            open_files: Some(200 + some),
            open_files_max: Some(1000),
            ..ProcessUse::default()
        }),
        disks: vec![DiskSample {
            name: "sda".into(),
            activity: DiskActivity {
                written_bytes: 6_000_000_000,
                busy_ms: 30_000,
                ..DiskActivity::default()
            },
        }],
        interfaces: vec![carried("wan0", 6_000_000_000), carried("in0", 1_000_000)],
        databases: vec![
            database(DatabaseKind::Journal),
            database(DatabaseKind::Namespace),
        ],
        ..HostSample::default()
    }
}

/// Of the pools of a minute, in which so many movers began and so many ran.
fn pools(minute: usize, started: u64, active: u64) -> PoolSamples {
    PoolSamples {
        from: Timestamp(minute as i64 * MINUTE),
        to: Timestamp(minute as i64 * MINUTE + MINUTE),
        pools: vec![PoolSample {
            looks: 60,
            reachable: 60,
            accepting: 60,
            free_bytes: 1 << 40,
            active: active * 60,
            limit: 6000,
            started: Some(started),
            ..PoolSample::new(PoolName::new("a"))
        }],
        tape: None,
    }
}

struct ExplainedHost {
    signals: Signals,
    changes: Vec<RateChange>,
}

impl ExplainedHost {
    fn cause(&self) -> Option<Cause> {
        let [drop] = &self.changes[..] else {
            panic!("one drop: {:?}", self.changes);
        };
        drop.first_cause()
    }
}

/// Explains what `fault` makes of the minutes of the fault, with what is known of pools.
fn explain_with(
    signals: Signals,
    pools: impl Fn(usize) -> PoolSamples,
    fault: impl Fn(usize, &mut HostSample),
    facts: &[FactChange],
) -> ExplainedHost {
    let row = |minute: usize| {
        let mut sample = quiet(minute);
        if FAULT.contains(&minute) {
            fault(minute, &mut sample);
        }
        sample
    };
    explain_rows(signals, pools, row, facts)
}

/// The same of any minutes.
fn explain_rows(
    mut signals: Signals,
    pools: impl Fn(usize) -> PoolSamples,
    row: impl Fn(usize) -> HostSample,
    facts: &[FactChange],
) -> ExplainedHost {
    let hosts = ["here.org".to_owned()];
    let recorded = explain_records(signals.clone(), &pools, &row, facts);
    let mut fold = crate::pool_signals::PoolFold::of(&signals);
    (0..MINUTES).for_each(|minute| fold.take(&pools(minute)));
    fold.tell(&hosts, &mut signals);
    let (interfaces, disks) = (interfaces(), [disk()]);
    let equipment = HostEquipment {
        interfaces: &interfaces,
        disks: &disks,
    };
    let mut fold = HostFold::of(&signals, equipment);
    (0..MINUTES).for_each(|minute| fold.take(&row(minute)));
    fold.tell(&hosts, facts, &mut signals);
    let read = ExplainedWindow::of(signals.clone(), &PopulationChoice::Links);
    let changes = read.changes();
    let causes = |changes: &[RateChange]| -> Vec<Option<Cause>> {
        changes.iter().map(RateChange::first_cause).collect()
    };
    assert_eq!(
        causes(&recorded),
        causes(&changes),
        "of records another cause is told"
    );
    ExplainedHost { signals, changes }
}

fn interfaces() -> [InterfaceInfo; 3] {
    [
        interface("lo", Some(InterfaceRole::Internal)),
        interface("wan0", Some(InterfaceRole::Wan)),
        interface("in0", Some(InterfaceRole::Internal)),
    ]
}

/// What is explained of the same minutes when they were collected as rows of records.
fn explain_records(
    mut signals: Signals,
    pools: impl Fn(usize) -> PoolSamples,
    row: impl Fn(usize) -> HostSample,
    facts: &[FactChange],
) -> Vec<RateChange> {
    let (interfaces, disks) = (interfaces(), [disk()]);
    let equipment = HostEquipment {
        interfaces: &interfaces,
        disks: &disks,
    };
    let server = Text::from("here.org");
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(directory.path()).expect("a store");
    for minute in 0..MINUTES {
        let host = host_rows::samples_of(&row(minute), equipment, &server);
        let pools = pool_rows::samples_of(&pools(minute), &Some(server.clone()));
        for row in pools.into_iter().chain(host) {
            store.append_row(&row).expect("written");
        }
    }
    for fact in facts {
        let row = host_rows::change_of(fact, &server);
        store.append_row(&row).expect("written");
    }
    store.flush().expect("written");
    drop(store);
    let mut reader = Reader::open(directory.path()).expect("readable");
    let window = element_rows::window_of(&signals);
    element_rows::tell(&mut reader, window, &mut signals).expect("readable");
    ExplainedWindow::of(signals, &PopulationChoice::Links).changes()
}

fn explain(stage: Option<DataPathStage>, fault: impl Fn(usize, &mut HostSample)) -> ExplainedHost {
    explain_with(signals(stage), |minute| pools(minute, 6, 5), fault, &[])
}

#[test]
fn a_quiet_host_is_no_cause() {
    let told = explain(None, |_, _| ());
    assert_eq!(told.cause(), None, "{:?}", told.changes);
    let server = &told.signals.servers[&ServerName("here.org".to_owned())];
    let all = 0..MINUTES;
    let mean = |series: &Series| series.mean(std::slice::from_ref(&all));
    assert!(mean(&server.cpu).is_some_and(|cpu| cpu > 0.2 && cpu < 0.5));
    assert_eq!(mean(&server.descriptors_limit), Some(1000.0));
    assert!(mean(&server.interface).is_some_and(|part| (part - 0.08).abs() < 0.001));
    assert_eq!(server.devices["sda"].utilisation.at(3), Some(0.5));
}

#[test]
fn descriptors_that_end_are_named_whether_more_are_open_or_fewer_allowed() {
    let process = |sample: &mut HostSample, open, limit| {
        sample.process = Some(ProcessUse {
            open_files: Some(open),
            open_files_max: Some(limit),
            ..ProcessUse::default()
        });
    };
    let lowered = explain(None, |_, sample| process(sample, 205, 200));
    assert_eq!(lowered.cause(), Some(Cause::DescriptorLeak));
    let burst = explain(None, |_, sample| process(sample, 1000, 1000));
    assert_eq!(burst.cause(), Some(Cause::DescriptorLeak));
    let has_room = explain(None, |_, sample| process(sample, 700, 1000));
    assert_eq!(has_room.cause(), None);
    let always = |minute: usize| HostSample {
        process: Some(ProcessUse {
            open_files: Some(950),
            open_files_max: Some(1000),
            ..ProcessUse::default()
        }),
        ..quiet(minute)
    };
    let as_ever = explain_rows(signals(None), |minute| pools(minute, 6, 5), always, &[]);
    assert_eq!(as_ever.cause(), None);
    let leaking = |minute: usize| HostSample {
        process: Some(ProcessUse {
            open_files: Some(200 + 7 * minute as u64),
            open_files_max: Some(1000),
            ..ProcessUse::default()
        }),
        ..quiet(minute)
    };
    let leak = explain_rows(signals(None), |minute| pools(minute, 6, 5), leaking, &[]);
    assert_eq!(leak.cause(), Some(Cause::DescriptorLeak));
    let no_limit = explain(None, |_, sample| {
        sample.process = sample.process.map(|process| ProcessUse {
            open_files_max: None,
            ..process
        });
    });
    assert_eq!(no_limit.cause(), None);
}

#[test]
fn a_host_without_memory_processors_or_network_is_named() {
    let memory = explain(None, |_, sample| {
        sample.pressure.memory = Some(Pressure {
            some_us: MINUTE_US / 5,
            full_us: MINUTE_US / 20,
        });
    });
    assert_eq!(memory.cause(), Some(Cause::UndersizedHost));
    let processors = explain(None, |_, sample| {
        sample.processor = Some(ProcessorTime {
            user: 11_900,
            idle: 100,
            ..ProcessorTime::default()
        });
    });
    assert_eq!(processors.cause(), Some(Cause::UndersizedHost));
    let network = explain(Some(DataPathStage::Network), |_, sample| {
        sample.interfaces[0].traffic.received_bytes = SPEED * 59;
    });
    assert_eq!(network.cause(), Some(Cause::UndersizedHost));
    let of_another_kind = explain(None, |_, sample| {
        sample.interfaces[0].traffic.received_bytes = SPEED * 40;
    });
    assert_eq!(of_another_kind.cause(), None);
}

fn slow_database(sample: &mut HostSample, kind: DatabaseKind, operation_us: u64, queued: u64) {
    let database = sample.databases.iter_mut().find(|one| one.kind == kind);
    let activity = &mut database.expect("sampled").activity;
    activity.operation_us = activity.operations * operation_us;
    activity.transaction_us = activity.transactions * operation_us;
    activity.queued_us = queued * MINUTE_US;
}

#[test]
fn slow_commits_and_slow_operations_of_the_namespace_are_a_database_that_is_overloaded() {
    let journal = explain(None, |_, sample| {
        slow_database(sample, DatabaseKind::Journal, 900_000, 0);
    });
    assert_eq!(journal.cause(), Some(Cause::DatabaseLoad));
    // Also when it is always busy with that.
    let namespace = explain(None, |_, sample| {
        slow_database(sample, DatabaseKind::Namespace, 4_000_000, 20);
    });
    assert_eq!(namespace.cause(), Some(Cause::DatabaseLoad));
    let not_felt = explain(None, |_, sample| {
        slow_database(sample, DatabaseKind::Journal, 60_000, 0);
        slow_database(sample, DatabaseKind::Namespace, 60_000, 0);
    });
    assert_eq!(not_felt.cause(), None);
    // One that has not ended for minutes.
    let hangs = explain(None, |minute, sample| {
        sample.databases[0].activity = DatabaseActivity {
            running_us: (minute - FAULT.start + 1) as u64 * MINUTE_US,
            ..DatabaseActivity::default()
        };
    });
    assert_eq!(hangs.cause(), Some(Cause::DatabaseLoad));
}

#[test]
fn many_operations_for_the_thread_of_the_namespace_are_too_few_threads() {
    let mut signals = signals(None);
    let link = signals.links.values_mut().next().expect("one");
    // What suffers is the time between copies.
    link.overhead_seconds = Series::known((0..MINUTES).map(|bin| match FAULT.contains(&bin) {
        true => 90.0,
        false => 2.0,
    }));
    let told = explain_with(
        signals,
        |minute| pools(minute, 6, 5),
        |_, sample| {
            let namespace = &mut sample.databases[1].activity;
            namespace.operations = 30_000;
            namespace.operation_us = 30_000 * 400_000;
            namespace.transactions = 10_000;
            namespace.transaction_us = 59_000_000;
            namespace.queued_us = 300 * MINUTE_US;
        },
        &[],
    );
    assert_eq!(told.cause(), Some(Cause::NamespaceThreads));
}

fn stalled(sample: &mut HostSample) {
    sample.pressure.io = Some(Pressure {
        some_us: MINUTE_US / 2,
        full_us: MINUTE_US / 3,
    });
}

#[test]
fn many_starts_at_once_whose_disks_then_stall_are_a_start_burst() {
    let burst = |minute: usize| match minute {
        minute if minute == FAULT.start => pools(minute, 200, 80),
        minute if FAULT.contains(&minute) => pools(minute, 4, 80),
        minute => pools(minute, 6, 5),
    };
    let told = explain_with(signals(None), burst, |_, sample| stalled(sample), &[]);
    assert_eq!(told.cause(), Some(Cause::StartBurst));
    let no_stall = explain_with(signals(None), burst, |_, _| (), &[]);
    assert_eq!(no_stall.cause(), None);
    let no_burst = explain(None, |_, sample| stalled(sample));
    assert_eq!(no_burst.cause(), None);
}

#[test]
fn a_disk_that_is_busy_with_little_is_slow_and_one_that_is_idle_is_not() {
    let slow = |busy_ms: u64, bytes: u64| {
        explain(Some(DataPathStage::DestinationWrite), move |_, sample| {
            let done = &mut sample.disks[0].activity;
            (done.busy_ms, done.written_bytes) = (busy_ms, bytes);
        })
    };
    let full = slow(59_500, 2_000_000_000);
    assert_eq!(full.cause(), Some(Cause::DiskController));
    let text = format!("{:?}", full.changes);
    assert!(text.contains("here.org sda"), "{text}");
    assert_eq!(slow(6_000, 2_000_000_000).cause(), None);
}

#[test]
fn bytes_that_came_and_go_on_inside_the_site_are_relayed() {
    let told = explain(Some(DataPathStage::Network), |_, sample| {
        sample.interfaces[1].traffic.sent_bytes = 5_000_000_000;
    });
    assert_eq!(told.cause(), Some(Cause::Relay));
    let own_traffic = explain(Some(DataPathStage::Network), |_, sample| {
        sample.interfaces[1].traffic.received_bytes = 5_000_000_000;
    });
    assert_eq!(own_traffic.cause(), None);
}

#[test]
fn facts_that_changed_about_when_a_drop_began_are_told_beside_it() {
    let changed = |minute: usize, name: &str| FactChange {
        at: Timestamp(minute as i64 * MINUTE),
        name: name.to_owned(),
        before: Some("4096 131072 6291456".to_owned()),
        after: Some("4096 65536 65536".to_owned()),
    };
    let unread = FactChange {
        after: None,
        ..changed(FAULT.start, "vm.dirty_ratio")
    };
    let facts = [
        changed(20, "net.core.rmem_max"),
        changed(FAULT.start, "net.ipv4.tcp_rmem"),
        unread,
    ];
    let quiet = |minute| pools(minute, 6, 5);
    let told = explain_with(signals(None), quiet, |_, _| (), &facts);
    let [drop] = &told.changes[..] else {
        panic!("one drop: {:?}", told.changes);
    };
    let named: Vec<&str> = (drop.explanation.facts.iter())
        .map(|fact| fact.place.as_str())
        .collect();
    assert_eq!(named, ["here.org net.ipv4.tcp_rmem"]);
    let text = penstock_decide::wording::rate_change(drop);
    let expected = "host setting at here.org net.ipv4.tcp_rmem: 4096 65536 65536 instead of 4096 131072 6291456";
    assert!(text.contains(expected), "{text}");
    // Versions and paths of a host are for its administrators.
    let public = crate::explanations::disclosed(drop.clone(), Disclosure::Counts);
    let text = penstock_decide::wording::rate_change(&public);
    assert!(!text.contains("tcp_rmem"), "{text}");
    // What belongs to the host of nobody's link is not told.
    let mut signals = signals(None);
    let mut fold = HostFold::of(
        &signals,
        HostEquipment {
            interfaces: &[],
            disks: &[],
        },
    );
    fold.take(&super::tests::quiet(5));
    fold.tell(&["other.org".to_owned()], &facts, &mut signals);
    assert!(signals.changes.is_empty() && signals.servers.is_empty());
    assert!(signals.service.journal_seconds.at(5).is_some());
}

#[test]
fn time_that_nobody_sampled_is_unknown_and_seconds_are_spread_over_their_bins() {
    let mut signals = signals(None);
    signals.bin_seconds = 1;
    let disks = [disk()];
    let mut fold = HostFold::of(
        &signals,
        HostEquipment {
            interfaces: &[],
            disks: &disks,
        },
    );
    for second in [0, 1, 4] {
        let mut sample = quiet(0);
        sample.from = Timestamp(second * 1000 + 300);
        sample.covered_us = 1_000_000;
        sample.disks[0].activity.busy_ms = 500;
        fold.take(&sample);
    }
    fold.tell(&["here.org".to_owned()], &[], &mut signals);
    let server = &signals.servers[&ServerName("here.org".to_owned())];
    let busy = &server.devices["sda"].utilisation;
    let told: Vec<Option<f64>> = (0..6).map(|bin| busy.at(bin)).collect();
    assert_eq!(told, [Some(0.5), Some(0.5), None, None, Some(0.5), None]);
    assert_eq!(server.memory_full.at(1), Some(0.0));
    assert_eq!(server.memory_full.at(2), None);
}
