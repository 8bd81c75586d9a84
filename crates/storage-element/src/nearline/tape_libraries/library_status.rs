//! What people are told of libraries: drives, tapes, and what waits for which tape. Summed up over what the engine knows whenever
//! somebody may ask.

use super::TapeLibraries;
use super::care::{CareStatus, VerificationStatus, care_status};
use super::catalogue::LiveBytes;
use crate::drive_account::MountStatus;
use crate::nearline::{NearlineIncident, NearlineStatus};
use crate::tape_meter::MeterState;
use penstock_model::Timestamp;
use penstock_tape::drive_pool::{DriveState, DriveWork, MountPurpose};
use penstock_tape::hsm_queue::{HsmAmount, HsmCounts, HsmKind, HsmKindCounts};
use penstock_tape::live_set::LiveSet;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::mount_decision::MountTarget;
use penstock_tape::record::TapeState;
use penstock_tape::request_engine::TapeIncident;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Mounts that are told of.
const MOUNTS_TOLD: usize = 200;

/// All libraries.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct LibrariesStatus {
    pub drives: Vec<DriveStatus>,
    pub tapes: Vec<TapeStatus>,
    /// The last mounts that have ended, the newest first.
    pub mounts: Vec<MountStatus>,
    pub care: CareStatus,
}

/// What a drive does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
    pub queued: HsmAmount,
    pub oldest_waiting: Option<Timestamp>,
}

/// From the time of libraries to that of people.
pub(super) struct Times {
    now_ns: i64,
    wall: Timestamp,
    factor: i64,
}

impl Times {
    pub(super) fn of(libraries: &TapeLibraries) -> Times {
        Times {
            now_ns: libraries.now_ns(),
            wall: libraries.wall(),
            factor: i64::from(libraries.factor),
        }
    }

    /// The same the other way round.
    pub(super) fn of_library(&self, at: Timestamp) -> i64 {
        let ago_ns = self.wall.0.saturating_sub(at.0).saturating_mul(1_000_000);
        self.now_ns
            .saturating_sub(ago_ns.saturating_mul(self.factor))
    }

    pub(super) fn wall(&self, at_ns: i64) -> Timestamp {
        let ago_ms = self.now_ns.saturating_sub(at_ns) / self.factor / 1_000_000;
        Timestamp(self.wall.0.saturating_sub(ago_ms))
    }
}

/// How much waits and how much runs, for samples.
pub(super) fn meter_state(libraries: &TapeLibraries, counts: &HsmCounts) -> MeterState {
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
        drives: Some(libraries.read_totals),
        ..MeterState::of_counts(counts)
    }
}

pub(super) fn status(libraries: &TapeLibraries) -> NearlineStatus {
    let live = libraries.engine.live();
    let times = Times::of(libraries);
    let incidents = libraries.incidents.iter();
    let incidents = incidents.map(|(incident, since_ns)| NearlineIncident {
        what: words(incident),
        since: times.wall(*since_ns),
        fault: None,
    });
    NearlineStatus {
        counts: counts(live, &times),
        is_admitting: live.libraries.len() < libraries.libraries.len(),
        incidents: incidents.collect(),
        expected: Default::default(),
        libraries: Some(LibrariesStatus {
            drives: drives(libraries, &times),
            tapes: tapes(live, &times),
            mounts: mounts(live, &times, None),
            care: care_status(libraries, &times),
        }),
    }
}

fn drives(libraries: &TapeLibraries, times: &Times) -> Vec<DriveStatus> {
    let drives = libraries.engine.live().drives.0.iter();
    let drives = drives.map(|(name, drive)| {
        let since = libraries.activities.get(name);
        let family = drive.state.purpose().and_then(family_of);
        let files = match &drive.state {
            DriveState::Mounted(mount) => mount.files,
            _ => 0,
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

fn tapes(live: &LiveSet, times: &Times) -> Vec<TapeStatus> {
    let tapes = live.tapes.iter().map(|(name, tape)| {
        let (mut queued, mut oldest_ns) = (HsmAmount::default(), None);
        let files = live.queues.get(name).into_iter();
        let files = files.flat_map(|queue| &queue.files);
        for entry in files.filter_map(|file| live.recalls.get(file)) {
            queued.files += 1;
            queued.bytes += entry.size_bytes;
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
        }
    });
    tapes.collect()
}

/// The last mounts, of those that ended since a moment if one is given.
pub(super) fn mounts(live: &LiveSet, times: &Times, from_ns: Option<i64>) -> Vec<MountStatus> {
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

/// In the same words as of an HSM that is driven by commands: what users wait for.
fn counts(live: &LiveSet, times: &Times) -> HsmCounts {
    let all = HsmKind::ALL.map(|kind| (kind, HsmKindCounts::default()));
    let mut kinds = BTreeMap::from(all);
    let mut count = |kind, size_bytes: u64, waits_since_ns: Option<i64>| {
        let counts = kinds.entry(kind).or_default();
        let amount = match waits_since_ns {
            Some(_) => &mut counts.queued,
            None => &mut counts.running,
        };
        amount.files += 1;
        amount.bytes += size_bytes;
        if let Some(since_ns) = waits_since_ns {
            let since_ns = times.wall(since_ns).0.saturating_mul(1_000_000);
            let oldest = counts.oldest_waiting_ns.unwrap_or(i64::MAX);
            counts.oldest_waiting_ns = Some(oldest.min(since_ns));
        }
    };
    for entry in live.archives.values().filter(|entry| !entry.is_background) {
        let since_ns = entry.copies.is_empty().then_some(entry.since_ns);
        count(HsmKind::Put, entry.size_bytes, since_ns);
    }
    for entry in live.recalls.values().filter(|entry| !entry.is_background()) {
        let since_ns = entry.read_by.is_none().then_some(entry.since_ns);
        count(HsmKind::Get, entry.size_bytes, since_ns);
    }
    HsmCounts {
        kinds,
        requests: live.requests.len() as u64,
        settled: 0,
        lost: 0,
    }
}

/// An incident in words.
fn words(incident: &TapeIncident) -> String {
    match incident {
        TapeIncident::DriveDown(drive) => format!(
            "drive {0} is down; when it works again: penstock tape drive {0} --up",
            drive.0
        ),
        TapeIncident::TapeBroken(tape) => format!(
            "tape {0} cannot be used; when it can be again: penstock tape tape {0} --enable",
            tape.0
        ),
        TapeIncident::FilesUnreadable(tape) => format!(
            "files on tape {} cannot be read; those with another copy are written again, and penstock tape status lists the others",
            tape.0
        ),
        TapeIncident::LibraryPaused(library) => format!(
            "library {} does not work; one mount after the other tries it",
            library.0
        ),
        TapeIncident::LibraryFull(library) => format!(
            "library {} has no room for more data: free space on its disk; files wait on the pools, and reading goes on",
            library.0
        ),
        TapeIncident::OldestWaits(MountTarget::Recall(tape)) => format!(
            "files on tape {} wait too long to be read although a drive is free",
            tape.0
        ),
        TapeIncident::OldestWaits(MountTarget::Archive(family, _)) => format!(
            "files of family {} wait too long to be written although a drive is free",
            family.0
        ),
        TapeIncident::NoTapeLeft(family) => format!(
            "no tape is left for files of family {}: give its library more (tapes of [storage.tape.library])",
            family.0
        ),
    }
}
