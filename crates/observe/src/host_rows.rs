//! What was sampled of a host as rows that any site can fill, and back: a sample of the machine, of each interface, disk and
//! database, and a change for each fact that became another one.

use crate::host::databases::{DatabaseActivity, DatabaseKind, DatabaseSample};
use crate::host::disks::DiskActivity;
use crate::host::facts::FactChange;
use crate::host::interfaces::{InterfaceRole, InterfaceTraffic};
use crate::host::pressure::Pressure;
use crate::host::processor::ProcessorTime;
use crate::host::report::{DiskInfo, InterfaceInfo};
use crate::host::sample::{DiskSample, HostSample, InterfaceSample, ProcessUse};
use crate::host_signals::{HostEquipment, LOOPBACK, POOL};
use penstock_model::observation::{Change, ChangeKind, Sample, SubjectKind, Text, View};
use penstock_model::{Bytes, Timestamp};
use std::time::Duration;

const ROLES: [InterfaceRole; 3] = [
    InterfaceRole::Wan,
    InterfaceRole::Hsm,
    InterfaceRole::Internal,
];
const DATABASES: [(DatabaseKind, &str); 2] = [
    (DatabaseKind::Journal, "journal"),
    (DatabaseKind::Namespace, "namespace"),
];
/// Between the names of pools.
const COMMA: char = ',';

/// The rows of an interval. `server` is the name by which rows of this host know it.
pub fn samples_of(sample: &HostSample, equipment: HostEquipment<'_>, server: &Text) -> Vec<Sample> {
    let interval_ms = sample.covered_us / 1000;
    let row = |subject_kind, subject: Text| Sample {
        at: sample.from + Duration::from_millis(interval_ms),
        view: View::Site,
        subject_kind,
        subject,
        interval_ms: Some(interval_ms),
        server: Some(server.clone()),
        ..Sample::default()
    };
    let mut rows = vec![machine_row(
        sample,
        row(SubjectKind::Server, server.clone()),
    )];
    let interfaces = sample.interfaces.iter();
    for one in interfaces.filter(|one| *one.name != *LOOPBACK) {
        let info = equipment
            .interfaces
            .iter()
            .find(|info| info.name == *one.name);
        let row = row(SubjectKind::Interface, Text::from(&*one.name));
        rows.push(interface_row(one, info, row));
    }
    for one in &sample.disks {
        let info = equipment.disks.iter().find(|info| info.name == *one.name);
        let row = row(SubjectKind::Device, Text::from(&*one.name));
        rows.push(disk_row(one, info, interval_ms, row));
    }
    for one in &sample.databases {
        let row = row(SubjectKind::Database, database_name(one.kind).into());
        rows.push(database_row(&one.activity, row));
    }
    rows
}

fn machine_row(sample: &HostSample, row: Sample) -> Sample {
    let busy = sample.processor.and_then(|time| {
        let used = time.user.saturating_add(time.system);
        let used = used.saturating_add(time.stolen);
        used.saturating_mul(1000).checked_div(time.total())
    });
    Sample {
        busy_permille: busy,
        memory_full_us: sample.pressure.memory.map(|stall| stall.full_us),
        io_some_us: sample.pressure.io.map(|stall| stall.some_us),
        io_full_us: sample.pressure.io.map(|stall| stall.full_us),
        open_files: sample.process.and_then(|process| process.open_files),
        open_files_max: sample.process.and_then(|process| process.open_files_max),
        ..row
    }
}

fn interface_row(sample: &InterfaceSample, info: Option<&InterfaceInfo>, row: Sample) -> Sample {
    let role = info.and_then(|info| info.role);
    Sample {
        bytes_in: Some(Bytes(sample.traffic.received_bytes)),
        bytes_out: Some(Bytes(sample.traffic.sent_bytes)),
        operations_in: Some(sample.traffic.received_packets),
        operations_out: Some(sample.traffic.sent_packets),
        capacity_bytes_per_second: info.and_then(|info| info.speed_bytes_per_second),
        role: role.map(|role| role.name().into()),
        ..row
    }
}

fn disk_row(sample: &DiskSample, info: Option<&DiskInfo>, interval_ms: u64, row: Sample) -> Sample {
    let held = info.into_iter().flat_map(|info| &info.holds);
    let pools: Vec<&str> = held.filter_map(|name| name.strip_prefix(POOL)).collect();
    let done = &sample.activity;
    Sample {
        bytes_in: Some(Bytes(done.written_bytes)),
        bytes_out: Some(Bytes(done.read_bytes)),
        operations_in: Some(done.reads),
        operations_out: Some(done.writes),
        busy_permille: done.busy_ms.saturating_mul(1000).checked_div(interval_ms),
        pools: (!pools.is_empty()).then(|| pools.join(&COMMA.to_string()).into()),
        ..row
    }
}

fn database_row(done: &DatabaseActivity, row: Sample) -> Sample {
    Sample {
        operations: Some(done.operations),
        operation_us: Some(done.operation_us),
        transactions: Some(done.transactions),
        transaction_us: Some(done.transaction_us),
        operations_queued_us: Some(done.queued_us),
        transaction_running_us: Some(done.running_us),
        ..row
    }
}

fn database_name(kind: DatabaseKind) -> &'static str {
    let named = DATABASES.iter().find(|(known, _)| *known == kind);
    named.map_or("", |(_, name)| name)
}

/// A fact that changed, as a row.
pub fn change_of(fact: &FactChange, server: &Text) -> Change {
    let text = |value: &Option<String>| value.as_deref().map(Text::from);
    Change {
        at: fact.at,
        view: View::Site,
        kind: ChangeKind::Fact,
        subject: server.clone(),
        name: fact.name.as_str().into(),
        old: text(&fact.before),
        new: text(&fact.after),
        ..Change::default()
    }
}

/// The fact of a row.
pub(crate) fn fact_of(row: &Change) -> FactChange {
    let text = |value: &Option<Text>| value.as_ref().map(ToString::to_string);
    FactChange {
        at: row.at,
        name: row.name.to_string(),
        before: text(&row.old),
        after: text(&row.new),
    }
}

/// What a row tells of its host. `None`: nothing, or nobody knows of how long a time.
pub(crate) fn sample_of(row: &Sample) -> Option<HostSample> {
    let interval_ms = row.interval_ms.filter(|interval| *interval > 0)?;
    let whole = HostSample {
        from: Timestamp(row.at.0.checked_sub_unsigned(interval_ms)?),
        covered_us: interval_ms.checked_mul(1000)?,
        ..HostSample::default()
    };
    let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
    match row.subject_kind {
        SubjectKind::Server => Some(with_machine(row, whole)),
        SubjectKind::Interface => {
            let traffic = InterfaceTraffic {
                received_bytes: bytes(row.bytes_in)?,
                sent_bytes: bytes(row.bytes_out)?,
                ..InterfaceTraffic::default()
            };
            let interface = InterfaceSample {
                name: row.subject.to_string().into(),
                traffic,
                received_bytes_per_second_max: 0,
                sent_bytes_per_second_max: 0,
            };
            Some(HostSample {
                interfaces: vec![interface],
                ..whole
            })
        }
        SubjectKind::Device => {
            let busy = u128::from(row.busy_permille?) * u128::from(interval_ms) / 1000;
            let activity = DiskActivity {
                written_bytes: bytes(row.bytes_in)?,
                read_bytes: bytes(row.bytes_out)?,
                busy_ms: u64::try_from(busy).unwrap_or(u64::MAX),
                ..DiskActivity::default()
            };
            let disk = DiskSample {
                name: row.subject.to_string().into(),
                activity,
            };
            Some(HostSample {
                disks: vec![disk],
                ..whole
            })
        }
        SubjectKind::Database => {
            let named = DATABASES.iter().find(|(_, name)| *name == &*row.subject);
            let database = DatabaseSample {
                kind: named?.0,
                activity: DatabaseActivity {
                    operations: row.operations?,
                    operation_us: row.operation_us?,
                    transactions: row.transactions?,
                    transaction_us: row.transaction_us?,
                    queued_us: row.operations_queued_us?,
                    running_us: row.transaction_running_us?,
                },
            };
            Some(HostSample {
                databases: vec![database],
                ..whole
            })
        }
        SubjectKind::Link
        | SubjectKind::Pool
        | SubjectKind::Drive
        | SubjectKind::Connection
        | SubjectKind::Service
        | SubjectKind::Tape => None,
    }
}

fn with_machine(row: &Sample, whole: HostSample) -> HostSample {
    let mut sample = whole;
    sample.processor = row.busy_permille.map(|busy| ProcessorTime {
        user: busy.min(1000),
        idle: 1000 - busy.min(1000),
        ..ProcessorTime::default()
    });
    // Of memory only the one matters that is told.
    sample.pressure.memory = row.memory_full_us.map(|full_us| Pressure {
        some_us: full_us,
        full_us,
    });
    let io = row.io_some_us.zip(row.io_full_us);
    sample.pressure.io = io.map(|(some_us, full_us)| Pressure { some_us, full_us });
    let is_told = row.open_files.is_some() || row.open_files_max.is_some();
    sample.process = is_told.then(|| ProcessUse {
        open_files: row.open_files,
        open_files_max: row.open_files_max,
        ..ProcessUse::default()
    });
    sample
}

/// The interface that a row tells of.
pub(crate) fn interface_of(row: &Sample) -> InterfaceInfo {
    let role = |word: &Text| ROLES.into_iter().find(|role| role.name() == &**word);
    InterfaceInfo {
        name: row.subject.to_string(),
        role: row.role.as_ref().and_then(role),
        speed_bytes_per_second: row.capacity_bytes_per_second,
        mtu_bytes: None,
        state: None,
    }
}

/// The disk that a row tells of.
pub(crate) fn disk_of(row: &Sample) -> DiskInfo {
    let pools = row.pools.iter().flat_map(|pools| pools.split(COMMA));
    DiskInfo {
        name: row.subject.to_string(),
        device: String::new(),
        holds: pools.map(|pool| format!("{POOL}{pool}")).collect(),
        model: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::sample::Pressures;

    fn interface() -> InterfaceInfo {
        InterfaceInfo {
            name: "eth0".to_owned(),
            role: Some(InterfaceRole::Wan),
            speed_bytes_per_second: Some(125),
            mtu_bytes: None,
            state: None,
        }
    }

    fn disk() -> DiskInfo {
        DiskInfo {
            name: "sda".to_owned(),
            device: String::new(),
            holds: vec!["pool a".to_owned(), "pool b".to_owned()],
            model: None,
        }
    }

    fn minute() -> HostSample {
        let database = |kind| DatabaseSample {
            kind,
            activity: DatabaseActivity {
                operations: 1,
                operation_us: 2,
                transactions: 3,
                transaction_us: 4,
                queued_us: 5,
                running_us: 6,
            },
        };
        HostSample {
            from: Timestamp(60_000),
            covered_us: 60_000_000,
            processor: Some(ProcessorTime {
                user: 250,
                idle: 750,
                ..ProcessorTime::default()
            }),
            pressure: Pressures {
                memory: Some(Pressure {
                    some_us: 7,
                    full_us: 7,
                }),
                io: Some(Pressure {
                    some_us: 9,
                    full_us: 8,
                }),
                ..Pressures::default()
            },
            process: Some(ProcessUse {
                open_files: Some(10),
                open_files_max: Some(11),
                ..ProcessUse::default()
            }),
            interfaces: vec![InterfaceSample {
                name: "eth0".into(),
                traffic: InterfaceTraffic {
                    received_bytes: 12,
                    sent_bytes: 13,
                    ..InterfaceTraffic::default()
                },
                received_bytes_per_second_max: 0,
                sent_bytes_per_second_max: 0,
            }],
            disks: vec![DiskSample {
                name: "sda".into(),
                activity: DiskActivity {
                    written_bytes: 14,
                    read_bytes: 15,
                    busy_ms: 30_000,
                    ..DiskActivity::default()
                },
            }],
            databases: vec![
                database(DatabaseKind::Journal),
                database(DatabaseKind::Namespace),
            ],
            ..HostSample::default()
        }
    }

    #[test]
    fn rows_of_a_minute_tell_what_was_sampled() {
        let server: Text = "here.org".into();
        let equipment = HostEquipment {
            interfaces: &[interface()],
            disks: &[disk()],
        };
        let rows = samples_of(&minute(), equipment, &server);
        assert_eq!(rows.len(), 5);
        let mut read = HostSample::default();
        for sample in rows.iter().filter_map(sample_of) {
            assert_eq!(sample.covered_us, 60_000_000);
            read.add(&sample);
        }
        read.covered_us = 60_000_000;
        assert_eq!(read, minute());
        let interfaces: Vec<InterfaceInfo> = rows
            .iter()
            .filter(|row| row.subject_kind == SubjectKind::Interface)
            .map(interface_of)
            .collect();
        assert_eq!(interfaces, [interface()]);
        let disks = rows.iter();
        let mut disks = disks.filter(|row| row.subject_kind == SubjectKind::Device);
        assert_eq!(disks.next().map(disk_of), Some(disk()));
    }

    #[test]
    fn a_fact_is_read_as_it_was_written() {
        let fact = FactChange {
            at: Timestamp(9),
            name: "limit open files".to_owned(),
            before: Some("1024".to_owned()),
            after: None,
        };
        assert_eq!(fact_of(&change_of(&fact, &"here.org".into())), fact);
    }
}
