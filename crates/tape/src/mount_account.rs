//! What the time of each mount went to, and what it brought. Made of records alone, so that a restart knows the same, and phases
//! are all of the time of a mount, to the nanosecond: each record ends what went on before it.
//!
//! Bytes count when the file they belong to is done: of reads when it is on disk, of writes when its sync has returned. What was
//! moved and had to be moved again is in `moved_bytes` only.

mod metrics;

pub use metrics::{TapeMetrics, VoTapeUsage, tape_metrics};

use crate::aggregate::index_bytes;
use crate::drive_pool::MountPurpose;
use crate::live_set::LiveSet;
use crate::record::DriveRecord;
use crate::request::{
    ActivityName, ChallengeName, DriveName, FileId, LibraryName, TapeName, VoName,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// A part of the time for which a drive has a tape, as the engine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountPhase {
    /// From the order to the loaded tape: the robot and the drive.
    Mounting,
    Locating,
    Reading,
    Writing,
    Syncing,
    Idle,
    /// Work that was not ended: it is done again.
    Lost,
    /// From the order to the empty drive: rewind, unload, the robot.
    Dismounting,
}

impl MountPhase {
    /// All, in the order of a mount.
    pub const ALL: [MountPhase; 8] = [
        MountPhase::Mounting,
        MountPhase::Locating,
        MountPhase::Reading,
        MountPhase::Writing,
        MountPhase::Syncing,
        MountPhase::Idle,
        MountPhase::Lost,
        MountPhase::Dismounting,
    ];
}

/// Who a drive works for.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DriveUser {
    /// `None`: nobody's files were done.
    pub vo: Option<VoName>,
    pub activity: Option<ActivityName>,
    #[serde(default)]
    pub challenge: Option<ChallengeName>,
}

/// What a mount did for one user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserShare {
    pub files: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Time in which the drive worked on the user's files.
    pub work_ns: i64,
}

/// One mount, from the order to the empty drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountAccount {
    pub drive: DriveName,
    pub tape: TapeName,
    pub library: LibraryName,
    /// Of drive and tape.
    pub kind: String,
    pub purpose: MountPurpose,
    pub begin_ns: i64,
    pub end_ns: i64,
    /// They sum to `end_ns - begin_ns`.
    pub phases_ns: BTreeMap<MountPhase, i64>,
    #[serde(with = "crate::as_pairs")]
    pub users: BTreeMap<DriveUser, UserShare>,
    /// Bytes that the drive has read and written: indexes, those that had to be moved again, and those that were read over on the
    /// way to a file are among them.
    pub moved_bytes: u64,
    /// Mounts of the same tape that ended in the day before this one began.
    pub mounts_before: u64,
}

impl MountAccount {
    pub fn wall_ns(&self) -> i64 {
        self.end_ns - self.begin_ns
    }

    /// Bytes of files that were done.
    pub fn payload_bytes(&self) -> u64 {
        let users = self.users.values();
        users
            .map(|share| share.read_bytes + share.written_bytes)
            .sum()
    }

    pub fn phase_ns(&self, phase: MountPhase) -> i64 {
        self.phases_ns.get(&phase).copied().unwrap_or(0)
    }

    /// Bytes of files in a second of all the time that the drive was occupied.
    pub fn payload_rate(&self) -> f64 {
        rate(self.payload_bytes(), self.wall_ns())
    }

    /// Bytes in a second while the drive read or wrote.
    pub fn drive_rate(&self) -> f64 {
        let phases = [MountPhase::Reading, MountPhase::Writing];
        rate(
            self.moved_bytes,
            phases.map(|phase| self.phase_ns(phase)).iter().sum(),
        )
    }

    /// Bytes moved for a byte that was of use; `None` when none was.
    pub fn amplification(&self) -> Option<f64> {
        let payload = self.payload_bytes();
        (payload > 0).then(|| self.moved_bytes as f64 / payload as f64)
    }

    /// All of its time by user. What was spent on nobody's files in particular is shared as the work on files; the shares sum to the
    /// wall time.
    pub fn time_by_user(&self) -> BTreeMap<DriveUser, i64> {
        let work: i64 = self.users.values().map(|share| share.work_ns).sum();
        let mut left = self.wall_ns();
        let mut times = BTreeMap::new();
        let last = self.users.len().saturating_sub(1);
        for (number, (user, share)) in self.users.iter().enumerate() {
            let part = i128::from(self.wall_ns()) * i128::from(share.work_ns);
            let part = match number == last || work == 0 {
                true => left,
                false => i64::try_from(part / i128::from(work)).unwrap_or(left),
            };
            left -= part;
            times.insert(user.clone(), part);
        }
        if times.is_empty() {
            times.insert(DriveUser::default(), left);
        }
        times
    }
}

fn rate(bytes: u64, time_ns: i64) -> f64 {
    match time_ns > 0 {
        true => bytes as f64 * 1e9 / time_ns as f64,
        false => 0.0,
    }
}

/// Time and bytes of a user on drives of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveTime {
    pub mounts: u64,
    pub occupied_ns: i64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// Mounts that go on, those of the last day, and sums over all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountLedger {
    open: BTreeMap<DriveName, OpenMount>,
    /// By their end, the oldest first.
    closed: VecDeque<MountAccount>,
    /// Since the first record.
    times: DriveTimeSums,
    /// By the day of the end of a mount.
    #[serde(default)]
    days: BTreeMap<i64, DriveTimeSums>,
    /// The end of the last mount that is not among the closed ones any more.
    #[serde(default)]
    dropped_ns: Option<i64>,
    /// Read and written, by minute and VO, of the last day.
    moved: BTreeMap<i64, BTreeMap<VoName, (u64, u64)>>,
}

/// Sums by user and kind of drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DriveTimeSums(
    #[serde(with = "crate::as_pairs")] pub BTreeMap<(DriveUser, String), DriveTime>,
);

impl DriveTimeSums {
    /// Adds all of a mount that has ended. Users beyond `users_max` count as nobody in particular.
    fn add(&mut self, account: &MountAccount, users_max: usize) {
        for (mut user, occupied_ns) in account.time_by_user() {
            let share = account.users.get(&user).copied().unwrap_or_default();
            let is_known = self.0.contains_key(&(user.clone(), account.kind.clone()));
            if !is_known && self.0.len() >= users_max {
                user = DriveUser::default();
            }
            let time = self.0.entry((user, account.kind.clone())).or_default();
            time.mounts += 1;
            time.occupied_ns += occupied_ns;
            time.read_bytes += share.read_bytes;
            time.written_bytes += share.written_bytes;
        }
    }

    fn merge(&mut self, other: &DriveTimeSums) {
        for (key, more) in &other.0 {
            let time = self.0.entry(key.clone()).or_default();
            time.mounts += more.mounts;
            time.occupied_ns += more.occupied_ns;
            time.read_bytes += more.read_bytes;
            time.written_bytes += more.written_bytes;
        }
    }
}

/// What drives did since some moment, as exactly as that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveTimeSince {
    /// From when on mounts are counted, by their ends; at the moment that was asked for, or before it.
    pub from_ns: i64,
    pub sums: DriveTimeSums,
}

/// Closed mounts are kept for a day, this many at most.
const CLOSED_MAX: usize = 20_000;
/// This many are kept for longer.
const CLOSED_MIN: usize = 200;
/// Users are told apart up to this many; clients name activities.
const USERS_MAX: usize = 1_000;
/// Of each day up to this many, and so many days.
const DAY_USERS_MAX: usize = 100;
const DAYS_MAX: usize = 400;
pub(crate) const DAY_NS: i64 = 24 * 3_600 * 1_000_000_000;
const MINUTE_NS: i64 = 60 * 1_000_000_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenMount {
    account: MountAccount,
    doing: MountPhase,
    /// Up to here its time is accounted for.
    accounted_ns: i64,
    /// Written and not safe: by user, with the time it took.
    #[serde(with = "crate::as_pairs")]
    unsynced: BTreeMap<DriveUser, UserShare>,
    /// What is read over before the file that is being read.
    #[serde(default)]
    over_bytes: u64,
}

impl OpenMount {
    /// Ends what goes on, which took until then. Returns how long it took.
    fn turn(&mut self, at_ns: i64, spent_on: MountPhase, next: MountPhase) -> i64 {
        let took_ns = at_ns.saturating_sub(self.accounted_ns).max(0);
        *self.account.phases_ns.entry(spent_on).or_default() += took_ns;
        self.accounted_ns += took_ns;
        self.doing = next;
        took_ns
    }

    fn end_lost(&mut self, at_ns: i64) {
        let phase = match self.doing {
            MountPhase::Idle => MountPhase::Idle,
            _ => MountPhase::Lost,
        };
        self.turn(at_ns, phase, MountPhase::Idle);
    }
}

impl MountLedger {
    /// Mounts that have ended, the oldest first.
    pub fn closed(&self) -> impl DoubleEndedIterator<Item = &MountAccount> {
        self.closed.iter()
    }

    /// Time of drives by user and kind of drive, over all mounts that have ended.
    pub fn times(&self) -> &DriveTimeSums {
        &self.times
    }

    /// The same for mounts that ended since a moment: those alone while each of them is kept, else from the begin of its day on.
    pub fn times_since(&self, since_ns: i64) -> DriveTimeSince {
        let mut sums = DriveTimeSums::default();
        if self.dropped_ns.is_none_or(|dropped| dropped < since_ns) {
            let closed = self.closed.iter();
            closed
                .filter(|account| account.end_ns >= since_ns)
                .for_each(|account| sums.add(account, USERS_MAX));
            return DriveTimeSince {
                from_ns: since_ns,
                sums,
            };
        }
        let first = since_ns.div_euclid(DAY_NS);
        let days = self.days.range(first..);
        days.for_each(|(_, day)| sums.merge(day));
        DriveTimeSince {
            from_ns: first.saturating_mul(DAY_NS),
            sums,
        }
    }

    /// Takes a record, before the live set does. Long because each record is told of.
    pub(crate) fn take(&mut self, live: &LiveSet, record: &DriveRecord) {
        match record {
            DriveRecord::MountBegun {
                at_ns,
                drive,
                tape,
                purpose,
            } => self.begin(live, *at_ns, (drive, tape, purpose)),
            DriveRecord::MountReady { at_ns, drive } => self.turn(drive, *at_ns, MountPhase::Idle),
            DriveRecord::ReadBegun {
                at_ns,
                drive,
                over_bytes,
                ..
            } => {
                self.turn(drive, *at_ns, MountPhase::Reading);
                if let Some(open) = self.open.get_mut(drive) {
                    open.over_bytes = *over_bytes;
                }
            }
            DriveRecord::WriteBegun { at_ns, drive, .. }
            | DriveRecord::AggregateBegun { at_ns, drive, .. } => {
                self.turn(drive, *at_ns, MountPhase::Writing);
            }
            DriveRecord::SyncBegun { at_ns, drive } => {
                self.turn(drive, *at_ns, MountPhase::Syncing)
            }
            DriveRecord::DismountBegun { at_ns, drive } => {
                self.turn(drive, *at_ns, MountPhase::Dismounting);
            }
            DriveRecord::ReadEnded {
                at_ns,
                drive,
                file,
                located_ns,
            } => self.end_read(live, drive, (*at_ns, *file, *located_ns)),
            DriveRecord::WriteEnded { at_ns, drive, file } => {
                self.end_write(live, drive, (*at_ns, &[*file], 0));
            }
            DriveRecord::AggregateEnded { at_ns, drive } => {
                let members = live.mount(drive).map(|mount| mount.work.members().to_vec());
                let members = members.unwrap_or_default();
                let index = index_bytes(members.len());
                self.end_write(live, drive, (*at_ns, &members, index));
            }
            DriveRecord::SyncEnded { at_ns, drive } => self.end_sync(drive, *at_ns),
            DriveRecord::WorkReturned { at_ns, drive } => {
                if let Some(open) = self.open.get_mut(drive) {
                    open.end_lost(*at_ns);
                    open.unsynced.clear();
                }
            }
            // What was written before the work that was given up stays.
            DriveRecord::WorkGivenUp { at_ns, drive } => {
                if let Some(open) = self.open.get_mut(drive) {
                    open.end_lost(*at_ns);
                }
            }
            DriveRecord::DriveFreed { at_ns, drive }
            | DriveRecord::DriveDown { at_ns, drive, .. }
            | DriveRecord::DriveRemoved { at_ns, drive } => self.close(drive, *at_ns),
        }
    }

    fn begin(
        &mut self,
        live: &LiveSet,
        at_ns: i64,
        (drive, tape, purpose): (&DriveName, &TapeName, &MountPurpose),
    ) {
        let Some(facts) = live.drives.0.get(drive) else {
            return;
        };
        let recent = self.closed.iter().rev();
        let recent = recent.take_while(|one| one.end_ns > at_ns.saturating_sub(DAY_NS));
        let account = MountAccount {
            drive: drive.clone(),
            tape: tape.clone(),
            library: facts.library.clone(),
            kind: facts.kind.clone(),
            purpose: purpose.clone(),
            begin_ns: at_ns,
            end_ns: at_ns,
            phases_ns: BTreeMap::new(),
            users: BTreeMap::new(),
            moved_bytes: 0,
            mounts_before: recent.filter(|one| one.tape == *tape).count() as u64,
        };
        let open = OpenMount {
            account,
            doing: MountPhase::Mounting,
            accounted_ns: at_ns,
            unsynced: BTreeMap::new(),
            over_bytes: 0,
        };
        self.open.insert(drive.clone(), open);
    }

    fn turn(&mut self, drive: &DriveName, at_ns: i64, next: MountPhase) {
        if let Some(open) = self.open.get_mut(drive) {
            open.turn(at_ns, open.doing, next);
        }
    }

    fn end_read(
        &mut self,
        live: &LiveSet,
        drive: &DriveName,
        (at_ns, file, located_ns): (i64, FileId, Option<i64>),
    ) {
        let Some(open) = self.open.get_mut(drive) else {
            return;
        };
        // What the drive tells may be more than what is left of the time.
        let located_ns = located_ns.unwrap_or(0).max(0);
        let located_at = open.accounted_ns.saturating_add(located_ns).min(at_ns);
        let mut took_ns = open.turn(located_at, MountPhase::Locating, MountPhase::Reading);
        took_ns += open.turn(at_ns, MountPhase::Reading, MountPhase::Idle);
        let Some(entry) = live.recalls.get(&file) else {
            return;
        };
        let user = DriveUser {
            vo: entry.vo.clone(),
            activity: entry.activity.clone(),
            challenge: entry.challenge.clone(),
        };
        open.account.moved_bytes += entry.size_bytes + std::mem::take(&mut open.over_bytes);
        let share = open.account.users.entry(user.clone()).or_default();
        share.files += 1;
        share.read_bytes += entry.size_bytes;
        share.work_ns += took_ns;
        self.add_moved(at_ns, user.vo, (entry.size_bytes, 0));
    }

    fn end_write(
        &mut self,
        live: &LiveSet,
        drive: &DriveName,
        (at_ns, files, index): (i64, &[FileId], u64),
    ) {
        let Some(open) = self.open.get_mut(drive) else {
            return;
        };
        let took_ns = open.turn(at_ns, MountPhase::Writing, MountPhase::Idle);
        let entries: Vec<_> = files
            .iter()
            .filter_map(|file| live.archives.get(file))
            .collect();
        let bytes: u64 = entries.iter().map(|entry| entry.size_bytes).sum();
        open.account.moved_bytes += bytes + index;
        let mut left_ns = took_ns;
        for (number, entry) in entries.iter().enumerate() {
            let part = i128::from(took_ns) * i128::from(entry.size_bytes);
            let part = match number + 1 == entries.len() {
                true => left_ns,
                false => i64::try_from(part / i128::from(bytes.max(1))).unwrap_or(0),
            };
            left_ns -= part;
            let user = DriveUser {
                vo: entry.vo.clone(),
                activity: entry.activity.clone(),
                challenge: entry.challenge.clone(),
            };
            let share = open.unsynced.entry(user).or_default();
            share.files += 1;
            share.written_bytes += entry.size_bytes;
            share.work_ns += part;
        }
    }

    fn end_sync(&mut self, drive: &DriveName, at_ns: i64) {
        let Some(open) = self.open.get_mut(drive) else {
            return;
        };
        open.turn(at_ns, MountPhase::Syncing, MountPhase::Idle);
        let mut written = Vec::new();
        for (user, synced) in std::mem::take(&mut open.unsynced) {
            let share = open.account.users.entry(user.clone()).or_default();
            share.files += synced.files;
            share.written_bytes += synced.written_bytes;
            share.work_ns += synced.work_ns;
            written.push((user.vo, synced.written_bytes));
        }
        for (vo, bytes) in written {
            self.add_moved(at_ns, vo, (0, bytes));
        }
    }

    fn add_moved(&mut self, at_ns: i64, vo: Option<VoName>, (read, written): (u64, u64)) {
        let Some(vo) = vo else { return };
        let minute = at_ns.div_euclid(MINUTE_NS);
        let sums = self.moved.entry(minute).or_default().entry(vo);
        let sums = sums.or_default();
        sums.0 += read;
        sums.1 += written;
        let oldest = minute - DAY_NS / MINUTE_NS;
        self.moved = self.moved.split_off(&oldest);
    }

    /// The drive is empty, or down with the tape in it.
    fn close(&mut self, drive: &DriveName, at_ns: i64) {
        let Some(mut open) = self.open.remove(drive) else {
            return;
        };
        match open.doing {
            MountPhase::Dismounting | MountPhase::Idle => {
                open.turn(at_ns, open.doing, MountPhase::Idle);
            }
            _ => open.end_lost(at_ns),
        }
        let mut account = open.account;
        account.end_ns = open.accounted_ns;
        self.times.add(&account, USERS_MAX);
        let day = account.end_ns.div_euclid(DAY_NS);
        self.days
            .entry(day)
            .or_default()
            .add(&account, DAY_USERS_MAX);
        while self.days.len() > DAYS_MAX {
            self.days.pop_first();
        }
        let oldest_ns = account.end_ns.saturating_sub(DAY_NS);
        self.closed.push_back(account);
        while self.closed.len() > CLOSED_MAX
            || self.closed.len() > CLOSED_MIN
                && self
                    .closed
                    .front()
                    .is_some_and(|one| one.end_ns < oldest_ns)
        {
            let dropped = self.closed.pop_front();
            self.dropped_ns = dropped.map(|one| one.end_ns).max(self.dropped_ns);
        }
    }
}

#[cfg(test)]
mod tests;
