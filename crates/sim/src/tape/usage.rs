//! Who used drives, for how long, and how many bytes moved in which hour.

use penstock_tape::drive_pool::MountPurpose;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::request::VoName;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

const HOUR_NS: i64 = 3_600 * SECOND_NS;

/// What a tape is in a drive for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    Recall,
    Archive,
}

/// One mount, as far as it is known whose it is.
#[derive(Debug, Clone)]
pub(super) struct DriveUse {
    pub(super) activity: Activity,
    pub(super) vo: Option<VoName>,
}

impl DriveUse {
    pub(super) fn of(purpose: &MountPurpose) -> DriveUse {
        let activity = match purpose {
            MountPurpose::Recall => Activity::Recall,
            MountPurpose::Archive(_) => Activity::Archive,
        };
        DriveUse { activity, vo: None }
    }
}

/// What one VO had of the drives for one activity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VoUsage {
    pub vo: String,
    pub activity: Activity,
    pub files: u64,
    pub bytes: u64,
    pub mounts: u64,
    /// The most drives at the same time.
    pub drives_max: u32,
    /// From each order to mount to the empty drive.
    pub occupied_seconds: f64,
    /// Bytes moved, divided by what drives would have moved at their native rate in that time.
    pub efficiency: f64,
    /// Bytes of each hour, by the time at which a file had moved.
    pub hourly_bytes: Vec<u64>,
}

impl VoUsage {
    /// Bytes per second of some hours, those without a byte included.
    pub fn wall_clock_rate(&self, hours: Range<usize>) -> f64 {
        let seconds = hours.len() as f64 * 3_600.0;
        self.bytes_of(hours) as f64 / seconds.max(1.0)
    }

    /// Bytes per second of those hours in which some moved.
    pub fn active_rate(&self, hours: Range<usize>) -> f64 {
        let active = self.hours(hours.clone()).filter(|bytes| *bytes > 0).count();
        self.bytes_of(hours) as f64 / (active.max(1) as f64 * 3_600.0)
    }

    /// Bytes per second of the hour in which most moved.
    pub fn busiest_rate(&self, hours: Range<usize>) -> f64 {
        self.hours(hours).max().unwrap_or(0) as f64 / 3_600.0
    }

    fn bytes_of(&self, hours: Range<usize>) -> u64 {
        self.hours(hours).sum()
    }

    fn hours(&self, hours: Range<usize>) -> impl Iterator<Item = u64> + '_ {
        hours.map(|hour| self.hourly_bytes.get(hour).copied().unwrap_or(0))
    }
}

/// The most drives of one kind that had a tape at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrivePeak {
    pub kind: String,
    pub recall: u32,
    pub archive: u32,
    pub all: u32,
}

/// Recalls that ended after their deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LateRecalls {
    pub all: u64,
    /// Of those, for how many a drive of their kind was free after the deadline and before their tape was mounted.
    pub beside_idle_drives: u64,
}

#[derive(Debug, Clone, Default)]
struct Sum {
    files: u64,
    bytes: u64,
    mounts: u64,
    drives_max: u32,
    occupied_ns: i64,
    native_bytes: f64,
    hourly_bytes: Vec<u64>,
}

/// When a kind of drives could have read something and did not.
#[derive(Debug, Clone, Default)]
struct IdleTimes {
    since_ns: Option<i64>,
    /// In the order of time.
    over: Vec<Range<i64>>,
}

/// All of it, as it comes up.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage {
    sums: BTreeMap<(VoName, Activity), Sum>,
    peaks: BTreeMap<String, DrivePeak>,
    idle: BTreeMap<String, IdleTimes>,
    pub(super) late: LateRecalls,
}

impl Usage {
    pub(super) fn moved(&mut self, now_ns: i64, of: (VoName, Activity), bytes: u64) {
        let sum = self.sums.entry(of).or_default();
        sum.files += 1;
        sum.bytes += bytes;
        let hour = usize::try_from(now_ns / HOUR_NS).unwrap_or(0);
        if sum.hourly_bytes.len() <= hour {
            sum.hourly_bytes.resize(hour + 1, 0);
        }
        sum.hourly_bytes[hour] += bytes;
    }

    pub(super) fn unmounted(&mut self, of: DriveUse, occupied_ns: i64, native_rate: f64) {
        // A mount in which nothing was read belongs to nobody.
        let Some(vo) = of.vo else { return };
        let sum = self.sums.entry((vo, of.activity)).or_default();
        sum.mounts += 1;
        sum.occupied_ns += occupied_ns;
        sum.native_bytes += native_rate * occupied_ns as f64 / SECOND_NS as f64;
    }

    pub(super) fn see_drives_of(&mut self, of: (VoName, Activity), count: u32) {
        let sum = self.sums.entry(of).or_default();
        sum.drives_max = sum.drives_max.max(count);
    }

    pub(super) fn see_drives(&mut self, kind: &str, uses: impl Iterator<Item = Activity>) {
        let (mut recall, mut archive) = (0, 0);
        for activity in uses {
            match activity {
                Activity::Recall => recall += 1,
                Activity::Archive => archive += 1,
            }
        }
        let peak = self.peaks.entry(kind.to_owned()).or_insert(DrivePeak {
            kind: kind.to_owned(),
            recall: 0,
            archive: 0,
            all: 0,
        });
        peak.recall = peak.recall.max(recall);
        peak.archive = peak.archive.max(archive);
        peak.all = peak.all.max(recall + archive);
    }

    pub(super) fn set_idle(&mut self, now_ns: i64, kind: &str, is_idle: bool) {
        let times = self.idle.entry(kind.to_owned()).or_default();
        match (times.since_ns, is_idle) {
            (None, true) => times.since_ns = Some(now_ns),
            (Some(since_ns), false) => {
                times.since_ns = None;
                if since_ns < now_ns {
                    times.over.push(since_ns..now_ns);
                }
            }
            _ => {}
        }
    }

    /// A recall was late; for this time its tape was in no drive although the deadline had passed.
    pub(super) fn late(&mut self, kind: &str, waited: Range<i64>) {
        self.late.all += 1;
        let Some(times) = self.idle.get(kind).filter(|_| !waited.is_empty()) else {
            return;
        };
        let since = times.since_ns.map(|since_ns| since_ns..i64::MAX);
        let mut idle = times
            .over
            .iter()
            .rev()
            .take_while(|one| one.end > waited.start);
        let overlaps = |one: &Range<i64>| one.start < waited.end && waited.start < one.end;
        if idle.any(overlaps) || since.is_some_and(|one| overlaps(&one)) {
            self.late.beside_idle_drives += 1;
        }
    }

    pub(super) fn of_vos(&self) -> Vec<VoUsage> {
        let one = |((vo, activity), sum): (&(VoName, Activity), &Sum)| VoUsage {
            vo: vo.0.to_string(),
            activity: *activity,
            files: sum.files,
            bytes: sum.bytes,
            mounts: sum.mounts,
            drives_max: sum.drives_max,
            occupied_seconds: sum.occupied_ns as f64 / SECOND_NS as f64,
            efficiency: match sum.native_bytes > 0.0 {
                true => sum.bytes as f64 / sum.native_bytes,
                false => 0.0,
            },
            hourly_bytes: sum.hourly_bytes.clone(),
        };
        self.sums.iter().map(one).collect()
    }

    pub(super) fn peaks(&self) -> Vec<DrivePeak> {
        self.peaks.values().cloned().collect()
    }
}
