//! What people are told of libraries: drives, tapes, and what waits for which tape. Summed up over what the engine knows whenever
//! somebody may ask.

use super::TapeLibraries;
use super::care::{CareStatus, VerificationStatus, care_status, lost_files};
use super::catalogue::LiveBytes;
use super::library_clock::LibraryClock;
use crate::drive_account::MountStatus;
use crate::nearline::wording::{
    DiskIncident, WaitStatus, disk_incident_code, library_incident, library_incident_code,
    library_wait,
};
use crate::nearline::{NearlineIncident, NearlineStatus};
use crate::tape_counts::{TapeCounts, WorkCounts};
use crate::tape_meter::MeterState;
use penstock_model::Timestamp;
use penstock_tape::amount::TapeAmount;
use penstock_tape::drive_pool::{DriveState, DriveWork, MountPurpose};
use penstock_tape::live_set::LiveSet;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::record::TapeState;
use penstock_tape::request::FamilyName;
use penstock_tape::request_engine::QueueWait;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Mounts that are told of.
const MOUNTS_TOLD: usize = 200;

/// All libraries.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct LibrariesStatus {
    pub drives: Vec<DriveStatus>,
    pub tapes: Vec<TapeStatus>,
    /// Families of which files are to be written.
    pub families: Vec<FamilyStatus>,
    /// The last mounts that have ended, the newest first.
    pub mounts: Vec<MountStatus>,
    pub care: CareStatus,
}

/// What a drive does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DriveActivity {
    Free,
    Mounting,
    Idle,
    Reading,
    Writing,
    Syncing,
    Dismounting,
    Down,
}

impl DriveActivity {
    pub(crate) const ALL: [DriveActivity; 8] = [
        DriveActivity::Free,
        DriveActivity::Mounting,
        DriveActivity::Idle,
        DriveActivity::Reading,
        DriveActivity::Writing,
        DriveActivity::Syncing,
        DriveActivity::Dismounting,
        DriveActivity::Down,
    ];

    /// The word in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DriveActivity::Free => "free",
            DriveActivity::Mounting => "mounting",
            DriveActivity::Idle => "idle",
            DriveActivity::Reading => "reading",
            DriveActivity::Writing => "writing",
            DriveActivity::Syncing => "syncing",
            DriveActivity::Dismounting => "dismounting",
            DriveActivity::Down => "down",
        }
    }

    pub(super) fn of(state: &DriveState) -> DriveActivity {
        match state {
            DriveState::Free => DriveActivity::Free,
            DriveState::Mounting { .. } => DriveActivity::Mounting,
            DriveState::Dismounting { .. } => DriveActivity::Dismounting,
            DriveState::Down { .. } => DriveActivity::Down,
            DriveState::Mounted(mount) => match mount.work {
                DriveWork::Idle { .. } => DriveActivity::Idle,
                DriveWork::Reading(_) => DriveActivity::Reading,
                DriveWork::Writing(_) | DriveWork::WritingAggregate(_) => DriveActivity::Writing,
                DriveWork::Syncing => DriveActivity::Syncing,
            },
        }
    }
}

/// A drive.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DriveStatus {
    pub name: String,
    pub library: String,
    pub kind: String,
    pub state: DriveActivity,
    pub since: Option<Timestamp>,
    /// The tape that is in it, or on its way.
    pub tape: Option<String>,
    /// The family that is written; `None`: its tape is there to be read, or for nothing.
    pub family: Option<String>,
    /// Files that were read or written since the tape is in it.
    pub files: u64,
}

/// A tape.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TapeStatus {
    pub name: String,
    pub library: String,
    pub kind: String,
    pub state: &'static str,
    pub family: Option<String>,
    pub capacity_bytes: u64,
    /// From its beginning to the end of what was written, whether that is needed or not.
    pub written_bytes: u64,
    /// What of that is needed still: by files, and by those that were removed and can be brought back for a while.
    pub live: LiveBytes,
    /// The rest: its room comes back when the tape is written anew.
    pub dead_bytes: u64,
    pub verification: VerificationStatus,
    /// Wraps of which a drive has told where they end.
    pub wraps_known: u64,
    /// Locates on it from which it is learnt how long others take.
    pub locates_known: u64,
    pub drive: Option<String>,
    /// Files that are to be read from it.
    pub queued: TapeAmount,
    pub oldest_waiting: Option<Timestamp>,
    /// Why it is not read now. `None`: it is in a drive or on its way, or nothing waits.
    pub waits_for: Option<WaitStatus>,
}

/// Files that are to be written to tapes of their own, and are in no drive.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FamilyStatus {
    pub name: String,
    pub queued: TapeAmount,
    pub oldest_waiting: Option<Timestamp>,
    /// Why no further drive writes them. `None`: one is about to, or does already.
    pub waits_for: Option<WaitStatus>,
}

/// How much waits and how much runs, for samples.
pub(super) fn meter_state(libraries: &TapeLibraries, counts: &TapeCounts) -> MeterState {
    let drives = libraries.engine.live().drives.0.values();
    let up = drives.filter(|drive| !matches!(drive.state, DriveState::Down { .. }));
    let (mut busy, mut all) = (0, 0);
    for drive in up {
        all += 1;
        busy += u64::from(drive.state != DriveState::Free);
    }
    let cycle_ns = libraries.engine.policy().mount.archive_age_ns.unwrap_or(0);
    let cycle_ns = cycle_ns / i64::from(libraries.factor);
    MeterState {
        drives_busy: busy,
        drives_max: all,
        write_cycle_seconds: u64::try_from(cycle_ns / SECOND_NS).ok(),
        mounts: Some(libraries.read_mounts),
        write_mounts: Some(libraries.write_mounts),
        ..MeterState::of_counts(counts)
    }
}

pub(super) fn status(libraries: &TapeLibraries) -> NearlineStatus {
    let live = libraries.engine.live();
    let times = &libraries.times;
    let incidents = libraries.incidents.iter();
    let incidents = incidents.map(|(incident, since_ns)| NearlineIncident {
        code: library_incident_code(incident),
        what: library_incident(incident, live),
        since: times.wall(*since_ns),
        fault: None,
    });
    let lost = lost_files(libraries).map(|(since_ns, what)| NearlineIncident {
        code: disk_incident_code(DiskIncident::FilesWithoutCopy),
        what,
        since: times.wall(since_ns),
        fault: None,
    });
    NearlineStatus {
        counts: counts(libraries, times),
        incidents: incidents.chain(lost).collect(),
        outlooks: Default::default(),
        hsm: None,
        libraries: Some(LibrariesStatus {
            drives: drives(libraries, times),
            tapes: tapes(libraries, times),
            families: families(libraries, times),
            mounts: mounts(live, times, None),
            care: care_status(libraries, times),
        }),
    }
}

fn drives(libraries: &TapeLibraries, times: &LibraryClock) -> Vec<DriveStatus> {
    let drives = libraries.engine.live().drives.0.iter();
    let drives = drives.map(|(name, drive)| {
        let since = libraries.activities.get(name);
        let family = drive.state.purpose().and_then(family_of);
        let files = match &drive.state {
            DriveState::Mounted(mount) => mount.files,
            DriveState::Free
            | DriveState::Mounting { .. }
            | DriveState::Dismounting { .. }
            | DriveState::Down { .. } => 0,
        };
        DriveStatus {
            name: name.0.to_string(),
            library: drive.library.0.to_string(),
            kind: drive.kind.clone(),
            state: DriveActivity::of(&drive.state),
            since: since.map(|(_, since_ns)| times.wall(*since_ns)),
            tape: drive.state.tape().map(|tape| tape.0.to_string()),
            family,
            files,
        }
    });
    drives.collect()
}

/// The family that is written, if one is.
fn family_of(purpose: &MountPurpose) -> Option<String> {
    match purpose {
        MountPurpose::Archive(family) => Some(family.0.to_string()),
        MountPurpose::Recall => None,
    }
}

fn tapes(libraries: &TapeLibraries, times: &LibraryClock) -> Vec<TapeStatus> {
    let live = libraries.engine.live();
    let waits = libraries.engine.recall_waits(libraries.now_ns());
    let tapes = live.tapes.iter().map(|(name, tape)| {
        let (mut queued, mut oldest_ns) = (TapeAmount::default(), None);
        let files = live.queues.get(name).into_iter();
        let files = files.flat_map(|queue| &queue.files);
        for entry in files.filter_map(|file| live.recalls.get(file)) {
            queued.add(entry.size_bytes);
            oldest_ns = Some(oldest_ns.unwrap_or(i64::MAX).min(entry.since_ns));
        }
        let drive = live.drives.drive_of(name);
        let unverified = Default::default();
        let care = live.care.get(name);
        let verification = care.map_or(&unverified, |care| &care.verification);
        TapeStatus {
            name: name.0.to_string(),
            library: tape.library.0.to_string(),
            kind: tape.kind.clone(),
            state: match tape.state {
                _ if live.retired.contains(name) => "not-configured",
                TapeState::Active => "active",
                TapeState::ReadOnly => "read-only",
                TapeState::Disabled => "disabled",
                TapeState::Broken => "broken",
            },
            family: tape.family.as_ref().map(|family| family.0.to_string()),
            capacity_bytes: tape.holds_bytes(),
            written_bytes: tape.written_bytes,
            // Whoever asks finds it out from the namespace.
            live: LiveBytes::default(),
            dead_bytes: 0,
            verification: VerificationStatus::of(verification, times),
            wraps_known: tape.wrap_ends_bytes.as_ref().map_or(0, Vec::len) as u64,
            locates_known: live.locates.get(name).map_or(0, VecDeque::len) as u64,
            drive: drive.map(|(drive, _)| drive.0.to_string()),
            queued,
            oldest_waiting: oldest_ns.map(|at_ns| times.wall(at_ns)),
            waits_for: waits
                .get(name)
                .map(|wait| library_wait(wait, |at_ns| times.wall(at_ns))),
        }
    });
    tapes.collect()
}

/// The last mounts, of those that ended since a moment if one is given.
pub(super) fn mounts(
    live: &LiveSet,
    times: &LibraryClock,
    from_ns: Option<i64>,
) -> Vec<MountStatus> {
    let from_ns = from_ns.unwrap_or(i64::MIN);
    let newest = live.mounts.closed().rev();
    let newest = newest.take_while(|mount| mount.end_ns >= from_ns);
    let newest = newest.take(MOUNTS_TOLD);
    let told = newest.map(|mount| {
        let mut vos: BTreeMap<String, u64> = BTreeMap::new();
        for (user, share) in &mount.users {
            let vo = user.vo.as_ref().map_or("none", |vo| &*vo.0);
            *vos.entry(vo.to_owned()).or_default() += share.files;
        }
        MountStatus {
            drive: mount.drive.0.to_string(),
            tape: mount.tape.0.to_string(),
            library: mount.library.0.to_string(),
            kind: mount.kind.clone(),
            family: family_of(&mount.purpose),
            begin: times.wall(mount.begin_ns),
            end: times.wall(mount.end_ns),
            wall_ns: mount.wall_ns(),
            phases_ns: mount.phases_ns.clone(),
            files: mount.users.values().map(|share| share.files).sum(),
            payload_bytes: mount.payload_bytes(),
            moved_bytes: mount.moved_bytes,
            payload_rate: mount.payload_rate() as u64,
            drive_rate: mount.drive_rate() as u64,
            amplification: mount.amplification(),
            mounts_before: mount.mounts_before,
            vos,
        }
    });
    told.collect()
}

fn families(libraries: &TapeLibraries, times: &LibraryClock) -> Vec<FamilyStatus> {
    let waits = libraries.engine.archive_waits();
    let mut queued: BTreeMap<&FamilyName, (TapeAmount, i64)> = BTreeMap::new();
    for entry in libraries.engine.live().archives.values() {
        if entry.copies.is_empty() {
            let (amount, oldest_ns) = queued
                .entry(&entry.family)
                .or_insert((TapeAmount::default(), i64::MAX));
            amount.add(entry.size_bytes);
            *oldest_ns = (*oldest_ns).min(entry.since_ns);
        }
    }
    let families = queued
        .into_iter()
        .map(|(name, (queued, oldest_ns))| FamilyStatus {
            name: name.0.to_string(),
            queued,
            oldest_waiting: Some(times.wall(oldest_ns)),
            waits_for: waits
                .get(name)
                .map(|wait| library_wait(wait, |at_ns| times.wall(at_ns))),
        });
    families.collect()
}

/// What users wait for. What is to be asked for again later the engine does not know.
fn counts(libraries: &TapeLibraries, times: &LibraryClock) -> TapeCounts {
    let live = libraries.engine.live();
    let waits = libraries.engine.archive_waits();
    let is_collecting = |family| matches!(waits.get(family), Some(QueueWait::Collecting { .. }));
    let (mut archives, mut recalls) = (WorkCounts::default(), WorkCounts::default());
    let mut collecting = TapeAmount::default();
    for entry in live.archives.values().filter(|entry| !entry.is_background) {
        let size = entry.size_bytes;
        if !entry.copies.is_empty() {
            archives.running.add(size);
            continue;
        }
        match is_collecting(&entry.family) {
            true => collecting.add(size),
            false => archives.queued.add(size),
        }
        archives.waits_since(times.wall(entry.since_ns));
    }
    archives.collecting = Some(collecting);
    for entry in live.recalls.values().filter(|entry| !entry.is_background()) {
        let size = entry.size_bytes;
        match entry.read_by {
            Some(_) => recalls.running.add(size),
            None => {
                recalls.queued.add(size);
                recalls.waits_since(times.wall(entry.since_ns));
            }
        }
    }
    TapeCounts {
        archives,
        recalls,
        removals: None,
        lost_commands: None,
    }
}
