//! What rows of records tell of the storage elements at the ends of links, beside the transfers: of their pools and hosts, as
//! `penstock records collect` takes them from a site. A machine belongs to the storage element whose host has its name.
//!
//! Rows are read twice: machines first, of which so many are looked at as there is room for, then what they did.

use crate::host::facts::FactChange;
use crate::host::report::{DiskInfo, InterfaceInfo};
use crate::host_rows::{disk_of, fact_of, interface_of, sample_of};
use crate::host_signals::{HostEquipment, HostFold};
use crate::pool_rows::{pool_of, tape_of};
use crate::pool_signals::{PoolFold, own_end};
use crate::store::{Reader, StoreError};
use penstock_decide::explain::signals::Signals;
use penstock_model::observation::{Change, ChangeKind, Sample, SubjectKind, Text};
use penstock_model::{PoolSamples, TimeWindow, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Bins of all machines together at most, some 100 MB.
const MACHINE_BINS_MAX: usize = 400_000;
/// Bins of all interfaces, disks and pools together at most, some 100 MB.
const PART_BINS_MAX: usize = 1_000_000;
/// Of a machine its samples, and of what is in it, tell this.
const KINDS: [SubjectKind; 6] = [
    SubjectKind::Server,
    SubjectKind::Interface,
    SubjectKind::Device,
    SubjectKind::Database,
    SubjectKind::Pool,
    SubjectKind::Tape,
];

/// What is in a machine.
#[derive(Debug, Default)]
struct Equipment {
    interfaces: BTreeMap<Text, InterfaceInfo>,
    disks: BTreeMap<Text, DiskInfo>,
    pools: BTreeSet<Text>,
}

/// What a machine did.
struct MachineFold<'a> {
    equipment: &'a Equipment,
    host: HostFold<'a>,
    pools: PoolFold,
    /// Pools of one interval, until one of another comes.
    open: Option<PoolSamples>,
    facts: Vec<FactChange>,
}

/// Adds what rows of a window tell of these storage elements to the signals of their links.
pub(crate) fn tell(
    reader: &mut Reader,
    window: TimeWindow,
    signals: &mut Signals,
) -> Result<(), StoreError> {
    let machines = machines(reader, window, signals)?;
    if machines.is_empty() {
        return Ok(());
    }
    let lists: BTreeMap<&Text, (Vec<InterfaceInfo>, Vec<DiskInfo>)> = machines
        .iter()
        .map(|(name, machine)| {
            let interfaces = machine.interfaces.values().cloned().collect();
            (
                name,
                (interfaces, machine.disks.values().cloned().collect()),
            )
        })
        .collect();
    let fold = |(name, equipment)| {
        let (interfaces, disks) = &lists[name];
        let of_host = HostEquipment { interfaces, disks };
        let fold = MachineFold {
            equipment,
            host: HostFold::of(signals, of_host),
            pools: PoolFold::of(signals),
            open: None,
            facts: Vec::new(),
        };
        (name, fold)
    };
    let mut folds: BTreeMap<&Text, MachineFold<'_>> = machines.iter().map(fold).collect();
    reader.each(window, &[], |row: &Sample| {
        if let Some(fold) = name_of(row).and_then(|name| folds.get_mut(name)) {
            fold.take(row);
        }
    })?;
    reader.each(window, &[], |row: &Change| {
        let fold = folds.get_mut(&row.subject);
        if let (ChangeKind::Fact, Some(fold)) = (row.kind, fold) {
            fold.facts.push(fact_of(row));
        }
    })?;
    for (name, fold) in folds {
        fold.tell(name, signals);
    }
    Ok(())
}

/// The machine of which a row tells.
fn name_of(row: &Sample) -> Option<&Text> {
    let is_of_machine = KINDS.contains(&row.subject_kind) && row.interval_ms.is_some();
    row.server.as_ref().filter(|_| is_of_machine)
}

/// The machines at the ends of links, and that with the journal, with what is in them: as many as there is room for.
fn machines(
    reader: &mut Reader,
    window: TimeWindow,
    signals: &Signals,
) -> Result<BTreeMap<Text, Equipment>, StoreError> {
    let bins = signals.bins.max(1);
    let (most, mut room) = (MACHINE_BINS_MAX / bins, PART_BINS_MAX / bins);
    let mut machines: BTreeMap<Text, Equipment> = BTreeMap::new();
    // Whether a name is that of an end, as it is looked up for each row.
    let mut known: BTreeMap<Text, bool> = BTreeMap::new();
    let columns = [
        "subject_kind",
        "subject",
        "interval_ms",
        "server",
        "capacity_bytes_per_second",
        "role",
        "pools",
    ];
    reader.each(window, &columns, |row: &Sample| {
        let Some(name) = name_of(row) else { return };
        let is_end = match known.get(name) {
            Some(is_end) => *is_end,
            None if known.len() >= MACHINE_BINS_MAX => false,
            None => {
                let is_end = own_end(&[name.to_string()], signals).is_some();
                known.insert(name.clone(), is_end);
                is_end
            }
        };
        let is_wanted = is_end || row.subject_kind == SubjectKind::Database;
        if !is_wanted || machines.len() >= most && !machines.contains_key(name) {
            return;
        }
        machines
            .entry(name.clone())
            .or_default()
            .add(row, &mut room);
    })?;
    Ok(machines)
}

impl Equipment {
    /// Notes what a row is of, if there is room for it.
    fn add(&mut self, row: &Sample, room: &mut usize) {
        let name = &row.subject;
        let is_new = match row.subject_kind {
            SubjectKind::Interface => !self.interfaces.contains_key(name),
            SubjectKind::Device => row.pools.is_some() && !self.disks.contains_key(name),
            SubjectKind::Pool => !self.pools.contains(name),
            SubjectKind::Link
            | SubjectKind::Server
            | SubjectKind::Drive
            | SubjectKind::Connection
            | SubjectKind::Service
            | SubjectKind::Database
            | SubjectKind::Tape => false,
        };
        if !is_new || *room == 0 {
            return;
        }
        *room -= 1;
        if row.subject_kind == SubjectKind::Interface {
            self.interfaces.insert(name.clone(), interface_of(row));
        } else if row.subject_kind == SubjectKind::Device {
            self.disks.insert(name.clone(), disk_of(row));
        } else {
            self.pools.insert(name.clone());
        }
    }
}

impl MachineFold<'_> {
    fn take(&mut self, row: &Sample) {
        if row.subject_kind == SubjectKind::Tape {
            if let Some((from, tape)) = tape_of(row) {
                self.pools.take_tape(from, row.at, &tape);
            }
            return;
        }
        if row.subject_kind != SubjectKind::Pool {
            if let Some(sample) = sample_of(row) {
                self.host.take(&sample);
            }
            return;
        }
        // What one kind of work did is in the row of all.
        let is_wanted = row.operation.is_none() && self.equipment.pools.contains(&row.subject);
        let Some((from, pool)) = pool_of(row).filter(|_| is_wanted) else {
            return;
        };
        let times = |open: &PoolSamples| (open.from, open.to) == (from, row.at);
        if !self.open.as_ref().is_some_and(times) {
            self.end_interval();
        }
        let open = self.open.get_or_insert_with(|| PoolSamples {
            from,
            to: row.at,
            ..PoolSamples::default()
        });
        // A row that was taken in twice counts once.
        if open.pools.iter().all(|known| known.pool != pool.pool) {
            open.pools.push(pool);
        }
    }

    fn end_interval(&mut self) {
        if let Some(open) = self.open.take() {
            self.pools.take(&open);
        }
    }

    fn tell(mut self, name: &Text, signals: &mut Signals) {
        self.end_interval();
        self.facts.sort_by_key(|fact: &FactChange| fact.at);
        let hosts = [name.to_string()];
        self.pools.tell(&hosts, signals);
        self.host.tell(&hosts, &self.facts, signals);
    }
}

/// From the begin of a window on, to where its last interval ends.
pub(crate) fn window_of(signals: &Signals) -> TimeWindow {
    TimeWindow {
        from: signals.begin,
        // What began in the window ends behind it.
        to: Timestamp(signals.begin_of(signals.bins).0.saturating_add(LONGEST_MS)),
    }
}

/// Of no longer interval at the end of a window its part is told.
const LONGEST_MS: i64 = 60_000;
