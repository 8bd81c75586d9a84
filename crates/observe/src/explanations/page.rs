//! The table of rules in `docs/observe/explain.md`, which is made from the rules and from what each source tells: a rule is
//! tested where all its inputs are known of a record in which everything is filled that the source can hold.

use super::reading::ExplainWindow;
use super::rows::read_rows;
use crate::ended_copies::RecordView;
use crate::host::databases::{DatabaseActivity, DatabaseKind, DatabaseSample};
use crate::host::disks::DiskActivity;
use crate::host::interfaces::{InterfaceRole, InterfaceTraffic};
use crate::host::pressure::Pressure;
use crate::host::processor::ProcessorTime;
use crate::host::report::{DiskInfo, InterfaceInfo};
use crate::host::sample::{DiskSample, HostSample, InterfaceSample, Pressures, ProcessUse};
use crate::host_rows;
use crate::host_signals::{HostEquipment, HostFold};
use crate::pool_rows;
use crate::pool_signals::PoolFold;
use crate::signals::RecordSignals;
use crate::store::{Reader, Store};
use penstock_decide::explain::PopulationChoice;
use penstock_decide::explain::RuleInput;
use penstock_decide::explain::rules::{RULES, Rule, missing};
use penstock_decide::explain::signals::{self, Setting, Signals};
use penstock_decide::explain::split::Factors;
use penstock_decide::wording;
use penstock_model::observation::{
    self, ChangeKind, Observation, Operation, Outcome, Sample, SubjectKind,
};
use penstock_model::{
    Attempt, Bytes, CopyMode, JobId, LedgerEntry, LinkId, LinkSample, MinuteKey, MinuteRow,
    MinuteSamples, MinuteSums, MoverReport, PoolName, PoolSample, PoolSamples, PoolTraffic, Slots,
    StageClocks, StorageId, StreamUse, TapeSample, TcpSummary, Timestamp, TransferEvent,
    TransferId,
};
use std::fmt::Write;

/// Set, it has the section written anew.
const WRITE: &str = "PENSTOCK_WRITE_EXPLAIN_PAGE";
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observe/explain.md");
const HEADING: &str = "\n## The rules\n";
const NEXT: &str = "\n## Who sees what\n";
const MINUTES: i64 = 8;
const HOSTS: [&str; 2] = ["https://a.org", "https://b.org"];
/// Not the number of a row's time: any that is not 0.
const SOME_US: u64 = 1_000;

fn link(number: usize) -> LinkId {
    LinkId {
        source: StorageId::new(HOSTS[number]),
        destination: StorageId::new("https://c.org"),
    }
}

/// All that a mover can tell of a copy.
fn full_report() -> MoverReport {
    MoverReport {
        moved: Bytes(7),
        stages: StageClocks {
            wait_us: SOME_US,
            source_read_us: SOME_US,
            network_us: SOME_US,
            write_us: SOME_US,
            checksum_us: SOME_US,
            commit_us: SOME_US,
        },
        tcp: Some(TcpSummary {
            rtt_us: 9,
            min_rtt_us: 9,
            congestion_window_segments: 9,
            segment_bytes: 1448,
            sent_segments: 9,
            busy_us: SOME_US,
            receiver_limited_us: SOME_US,
            send_buffer_limited_us: SOME_US,
            ..TcpSummary::default()
        }),
        streams: Some(StreamUse {
            asked: Some(4),
            used: 4,
            ..StreamUse::default()
        }),
        ..MoverReport::default()
    }
}

/// The same of a copy that its receiver reports.
fn report_of_receiver() -> MoverReport {
    MoverReport {
        tcp: Some(TcpSummary {
            rtt_us: 9,
            min_rtt_us: 9,
            received_segments: 9,
            ..TcpSummary::default()
        }),
        ..full_report()
    }
}

/// All that the record of a transfer service can tell, of two links.
fn of_service() -> Signals {
    let mut signals = RecordSignals::new(Timestamp(0), 60, MINUTES as usize);
    let reports = [full_report(), report_of_receiver()];
    let attempt = Attempt(1);
    for second in 0..MINUTES * 60 {
        let number = second as u64;
        let link = link(second as usize % 2);
        signals.take_sample(&LinkSample {
            at: Timestamp(second * 1000 + 1000),
            link: link.clone(),
            moved: Bytes(7),
            active: Slots(1),
            limit: Slots(2),
            queued: 1,
        });
        let events = [
            TransferEvent::Submitted,
            TransferEvent::Started {
                attempt,
                node: None,
            },
            TransferEvent::Prepared {
                attempt,
                size: None,
                checksum: None,
                replaces: false,
            },
            TransferEvent::Landed {
                attempt,
                size: Bytes(7),
                mode: Some(CopyMode::Pull),
                report: Box::new(reports[second as usize / 2 % 2].clone()),
                archives: false,
            },
        ];
        for event in events {
            let entry = LedgerEntry {
                sequence: number,
                at: Timestamp(second * 1000),
                monotonic_us: 0,
                job: JobId(uuid::Uuid::nil()),
                transfer: TransferId(number),
                event,
            };
            signals.take_entry(&entry, &link);
        }
    }
    for minute in 0..MINUTES {
        let row = |key| MinuteRow {
            key,
            sums: MinuteSums {
                samples: 60,
                active: 60,
                limit: 120,
                ..MinuteSums::default()
            },
            failures: Vec::new(),
        };
        let minute = MinuteSamples {
            from: Timestamp(minute * 60_000),
            to: Timestamp(minute * 60_000 + 60_000),
            rows: vec![row(MinuteKey::Link(link(0))), row(MinuteKey::Service)],
        };
        signals.take_minute(&minute, |_, _| true);
    }
    signals.take_change(signals::Change {
        at: Timestamp(0),
        who: "operator".to_owned(),
        place: HOSTS[0].to_owned(),
        setting: Setting::Ban,
        old: None,
        new: Some("banned".to_owned()),
    });
    signals.finish()
}

/// The same with all that a storage element can tell of its pools, and a sampler of its host.
fn of_element() -> Signals {
    let mut signals = of_service();
    let mut fold = PoolFold::of(&signals);
    for minute in 0..MINUTES {
        fold.take(&pool_minute(minute));
    }
    let hosts = ["c.org".to_owned()];
    fold.tell(&hosts, &mut signals);
    let equipment = equipment();
    let mut fold = HostFold::of(&signals, equipment.of_host());
    for minute in 0..MINUTES {
        fold.take(&host_minute(minute));
    }
    fold.tell(&hosts, &[], &mut signals);
    signals
}

/// All that is known of two pools.
fn pool_minute(minute: i64) -> PoolSamples {
    let traffic = PoolTraffic {
        bytes_in: 7,
        bytes_out: 7,
        ..PoolTraffic::new(None, Operation::Copy)
    };
    let pool = |name: &str| PoolSample {
        looks: 60,
        reachable: 60,
        accepting: 60,
        free_bytes: 7,
        active: 60,
        limit: 120,
        started: Some(1),
        read_wait_us: Some(1),
        traffic: vec![traffic.clone()],
        ..PoolSample::new(PoolName::new(name))
    };
    PoolSamples {
        from: Timestamp(minute * 60_000),
        to: Timestamp(minute * 60_000 + 60_000),
        pools: vec![pool("a"), pool("b")],
        // What tape libraries tell. The program of an HSM tells the same, but nothing of tapes and drives behind it.
        tape: Some(TapeSample {
            looks: 60,
            recalls_started: 1,
            mounts: Some(1),
            read_bytes: Some(7),
            buffer_used_permille: Some(60),
            write_cycle_seconds: Some(60),
            ..TapeSample::default()
        }),
    }
}

const INTERFACES: [(&str, InterfaceRole); 2] = [
    ("wan0", InterfaceRole::Wan),
    ("in0", InterfaceRole::Internal),
];

/// What is in the host.
struct Equipment {
    interfaces: [InterfaceInfo; 2],
    disks: [DiskInfo; 1],
}

impl Equipment {
    fn of_host(&self) -> HostEquipment<'_> {
        HostEquipment {
            interfaces: &self.interfaces,
            disks: &self.disks,
        }
    }
}

fn equipment() -> Equipment {
    let interfaces = INTERFACES.map(|(name, role)| InterfaceInfo {
        name: name.to_owned(),
        role: Some(role),
        speed_bytes_per_second: Some(9),
        mtu_bytes: None,
        state: None,
    });
    let disk = DiskInfo {
        name: "sda".to_owned(),
        device: "8:0".to_owned(),
        holds: vec!["pool a".to_owned(), "pool b".to_owned()],
        model: None,
    };
    Equipment {
        interfaces,
        disks: [disk],
    }
}

/// All that can be sampled of a host.
fn host_minute(minute: i64) -> HostSample {
    let database = |kind| DatabaseSample {
        kind,
        activity: DatabaseActivity {
            operations: 1,
            transactions: 1,
            ..DatabaseActivity::default()
        },
    };
    HostSample {
        from: Timestamp(minute * 60_000),
        covered_us: 60_000_000,
        processor: Some(ProcessorTime {
            idle: 9,
            ..ProcessorTime::default()
        }),
        pressure: Pressures {
            memory: Some(Pressure::default()),
            io: Some(Pressure::default()),
            ..Pressures::default()
        },
        process: Some(ProcessUse {
            open_files: Some(1),
            open_files_max: Some(9),
            ..ProcessUse::default()
        }),
        disks: vec![DiskSample {
            name: "sda".into(),
            activity: DiskActivity::default(),
        }],
        interfaces: INTERFACES.map(|(name, _)| carried(name)).to_vec(),
        databases: vec![
            database(DatabaseKind::Journal),
            database(DatabaseKind::Namespace),
        ],
        ..HostSample::default()
    }
}

fn carried(name: &str) -> InterfaceSample {
    InterfaceSample {
        name: name.into(),
        traffic: InterfaceTraffic::default(),
        received_bytes_per_second_max: 0,
        sent_bytes_per_second_max: 0,
    }
}

/// All that a row can tell of a copy.
fn full_row(second: i64) -> observation::Attempt {
    let at = |ms: i64| Some(Timestamp(second * 1000 + ms));
    observation::Attempt {
        at: Timestamp(second * 1000 + 500),
        operation: Operation::Copy,
        source_host: Some(HOSTS[second as usize % 2].into()),
        destination_host: Some("https://c.org".into()),
        bytes_moved: Some(Bytes(7)),
        file_bytes: Some(Bytes(7)),
        submitted: at(0),
        started: at(100),
        first_byte: at(200),
        last_byte: at(400),
        ended: at(500),
        wait_us: Some(SOME_US),
        prepare_us: Some(SOME_US),
        source_read_us: Some(SOME_US),
        network_us: Some(SOME_US),
        write_us: Some(SOME_US),
        checksum_us: Some(SOME_US),
        commit_us: Some(SOME_US),
        streams: Some(4),
        rtt_us: Some(9),
        min_rtt_us: Some(9),
        retransmitted_segments: Some(1),
        sent_segments: Some(9),
        received_segments: Some([0, 20][second as usize / 2 % 2]),
        busy_us: Some(SOME_US),
        receiver_limited_us: Some(SOME_US),
        send_buffer_limited_us: Some(SOME_US),
        outcome: Some(Outcome::Success),
        ..observation::Attempt::default()
    }
}

fn append_collected(store: &mut Store) {
    let equipment = equipment();
    for minute in 0..MINUTES {
        let server: observation::Text = "c.org".into();
        let host = host_rows::samples_of(&host_minute(minute), equipment.of_host(), &server);
        let pools = pool_rows::samples_of(&pool_minute(minute), &Some(server));
        for row in host.into_iter().chain(pools) {
            store.append(&Observation::from(row)).expect("written");
        }
    }
}

/// All that rows of records can tell, of two links: with what `penstock records collect` takes of a storage element and its
/// host, or without.
fn of_records(is_collected: bool) -> Signals {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(directory.path()).expect("a store");
    for second in 0..MINUTES * 60 {
        let row = full_row(second);
        let sample = Sample {
            at: Timestamp(second * 1000 + 500),
            view: row.view,
            subject_kind: SubjectKind::Link,
            source_host: row.source_host.clone(),
            destination_host: row.destination_host.clone(),
            limit: Some(2),
            queued: Some(1),
            ..Sample::default()
        };
        for row in [Observation::from(row), Observation::from(sample)] {
            store.append(&row).expect("written");
        }
    }
    for kind in ChangeKind::ALL {
        let change = observation::Change {
            at: Timestamp(1000),
            kind: *kind,
            subject: HOSTS[0].into(),
            name: "drain".into(),
            until: Some(Timestamp(2000)),
            ..observation::Change::default()
        };
        store.append(&Observation::from(change)).expect("written");
    }
    if is_collected {
        append_collected(&mut store);
    }
    store.flush().expect("written");
    drop(store);
    let mut reader = Reader::open(directory.path()).expect("readable");
    let window = ExplainWindow::new(Timestamp(0), Timestamp(MINUTES * 60_000), None);
    let read = read_rows(
        &mut reader,
        window,
        &RecordView::default(),
        &PopulationChoice::Links,
    );
    read.expect("readable").signals
}

/// Whether all inputs of a rule are known. A rule that needs nothing measured needs to be told what operators set.
fn is_tested(rule: &Rule, signals: &Signals) -> bool {
    let links = [link(0)];
    let together = signals.together(&[&links[0]]);
    let (first, second) = (1..3, 3..6);
    let (usual_bins, low_bins) = ([first], [second]);
    let factors = |bins| Factors::of(&together, signals.bin_seconds, bins).expect("known");
    let view = RuleInput {
        signals,
        links: &links,
        link: &together,
        usual_bins: &usual_bins,
        low_bins: &low_bins,
        usual: factors(&usual_bins),
        low: factors(&low_bins),
        parts: &[],
        stage: None,
        period_seconds: None,
    };
    missing(rule, &view).is_empty() && (!rule.needs.is_empty() || !signals.changes.is_empty())
}

/// Its inputs: of each group one must be known.
fn needs(rule: &Rule) -> String {
    let group = |group: &&[_]| {
        let names = group.iter().map(|measure| wording::measure(*measure));
        names.collect::<Vec<_>>().join(" or ")
    };
    match rule.needs {
        [] => "settings by operators".to_owned(),
        needs => needs.iter().map(group).collect::<Vec<_>>().join("; "),
    }
}

fn section() -> String {
    let (service, element, records) = (of_service(), of_element(), of_records(false));
    let collected = of_records(true);
    let (mut rows, mut unsourced) = (String::new(), 0);
    for rule in RULES {
        let sources = match (is_tested(rule, &service), is_tested(rule, &records)) {
            (true, true) => "both",
            (true, false) => "service",
            (false, true) => "records",
            (false, false) if is_tested(rule, &element) => {
                let code = rule.cause.code();
                assert!(is_tested(rule, &collected), "{code} of collected rows");
                "element"
            }
            (false, false) => {
                unsourced += 1;
                "**none yet**"
            }
        };
        let (code, cause) = (rule.cause.code(), wording::cause(rule.cause));
        let _ = writeln!(rows, "| `{code}` | {cause} | {} | {sources} |", needs(rule));
    }
    format!(
        "\nEach cause has a rule, which is applied when its inputs are known. Inputs are separated by `;`; of alternatives one \
         is enough. The last\ncolumn names their source: the record of the transfer service (`service`), that of a storage \
         element of the same site and of its host as well (`element`; also as rows that `penstock records collect` has taken),\nrows of other systems (`records`), or `both` the service and records. \
         {unsourced} of the {} rules have no source for all their inputs yet, so\nthey never name a cause today; where one of them \
         might explain a drop, its inputs are listed as not measured. The table is generated from the\n\
         rules, and a test compares them.\n\n| code | cause | inputs | source |\n|---|---|---|---|\n{rows}",
        RULES.len()
    )
}

#[test]
fn the_page_says_of_each_rule_whether_its_inputs_have_a_source() {
    let page = std::fs::read_to_string(PATH).expect("the page");
    let (before, rest) = page.split_once(HEADING).expect("the section");
    let (found, behind) = rest.split_once(NEXT).expect("the section after it");
    let section = section();
    if std::env::var_os(WRITE).is_some() {
        let page = format!("{before}{HEADING}{section}{NEXT}{behind}");
        std::fs::write(PATH, page).expect("the page can be written");
        return;
    }
    assert!(
        found == section,
        "docs/observe/explain.md does not tell of the rules as they are; write it anew and review it: {WRITE}=1 cargo test \
         -p penstock-observe --lib the_page_says"
    );
}
