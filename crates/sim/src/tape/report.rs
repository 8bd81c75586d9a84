//! What a simulated library has done.

use super::library_world::LibraryWorld;
use super::phases::Phase;
use super::plan::ReadPolicy;
use super::usage::{Activity, DrivePeak, LateRecalls, VoUsage};
use penstock_tape::locate::SECOND_NS;
use serde::Serialize;
use std::collections::BTreeMap;

/// How long requests waited, from the request to the file on disk or safely on tape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Waits {
    pub p50_seconds: f64,
    pub p95_seconds: f64,
    pub max_seconds: f64,
}

/// The time of all mounts together in one phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseSum {
    pub phase: &'static str,
    pub seconds: f64,
}

/// What requests waited, divided by what was foretold when they were asked for: a tenth took less than `p10` times what was foretold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Foretold {
    pub requests: u64,
    pub p10: f64,
    pub p50: f64,
    pub p90: f64,
}

fn foretold(ratios: &[f64]) -> Foretold {
    let mut ratios = ratios.to_vec();
    ratios.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let place = (ratios.len() * percent).div_ceil(100).saturating_sub(1);
        ratios.get(place).copied().unwrap_or(0.0)
    };
    Foretold {
        requests: ratios.len() as u64,
        p10: at(10),
        p50: at(50),
        p90: at(90),
    }
}

/// The report of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TapeReport {
    pub policy: ReadPolicy,
    pub requests: u64,
    pub recalled: u64,
    pub archived: u64,
    pub failed: u64,
    /// Without an end when the simulation ended.
    pub open: u64,
    pub hours: f64,
    pub mounts: u64,
    pub distinct_tapes: u64,
    /// Mounts, divided by the sum over days of different tapes that were mounted.
    pub mounts_per_tape_day: f64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// From each order to mount to the empty drive.
    pub occupied_seconds: f64,
    /// Bytes moved, divided by what drives would have moved at their native rate in that time.
    pub efficiency: f64,
    pub recall_waits: Waits,
    /// The same by VO.
    pub vo_waits: BTreeMap<String, Waits>,
    pub archive_waits: Waits,
    /// They sum to `occupied_seconds`.
    pub phases: Vec<PhaseSum>,
    /// Occupied time that is in no phase, in nanoseconds: none.
    pub unaccounted_ns: i64,
    pub incidents: u64,
    pub foretold: Foretold,
    /// What a site would have persisted.
    pub records: u64,
    /// By VO, recalls and archiving apart.
    pub usage: Vec<VoUsage>,
    /// By kind.
    pub drive_peaks: Vec<DrivePeak>,
    pub late: LateRecalls,
}

impl TapeReport {
    /// What a VO had of the drives.
    pub fn usage_of(&self, vo: &str, activity: Activity) -> Option<&VoUsage> {
        let mut all = self.usage.iter();
        all.find(|one| one.vo == vo && one.activity == activity)
    }
}

fn seconds(time_ns: i64) -> f64 {
    time_ns as f64 / SECOND_NS as f64
}

fn waits(all: &[i64]) -> Waits {
    let mut all = all.to_vec();
    all.sort_unstable();
    let at = |percent: usize| {
        let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
        all.get(place).copied().map_or(0.0, seconds)
    };
    Waits {
        p50_seconds: at(50),
        p95_seconds: at(95),
        max_seconds: at(100),
    }
}

impl LibraryWorld<'_> {
    pub(super) fn report(&self, policy: ReadPolicy) -> TapeReport {
        let sums = &self.sums;
        let moved = (sums.read_bytes + sums.written_bytes) as f64;
        let phases = Phase::ALL.iter().map(|(phase, name)| PhaseSum {
            phase: name,
            seconds: seconds(sums.phases.of(*phase)),
        });
        TapeReport {
            policy,
            requests: self.asked(),
            recalled: sums.recall_waits_ns.len() as u64,
            archived: sums.archive_waits_ns.len() as u64,
            failed: sums.failed,
            open: self.open(),
            hours: seconds(self.now_ns) / 3_600.0,
            mounts: sums.mounts,
            distinct_tapes: sums.tapes.len() as u64,
            mounts_per_tape_day: sums.mounts as f64 / (sums.tape_days.len().max(1)) as f64,
            read_bytes: sums.read_bytes,
            written_bytes: sums.written_bytes,
            occupied_seconds: seconds(sums.occupied_ns),
            efficiency: if sums.native_bytes > 0.0 {
                moved / sums.native_bytes
            } else {
                0.0
            },
            recall_waits: waits(&sums.recall_waits_ns),
            vo_waits: sums
                .vo_waits_ns
                .iter()
                .map(|(vo, all)| (vo.0.to_string(), waits(all)))
                .collect(),
            archive_waits: waits(&sums.archive_waits_ns),
            phases: phases.filter(|one| one.seconds > 0.0).collect(),
            unaccounted_ns: sums.occupied_ns - sums.phases.total_ns(),
            incidents: sums.incidents,
            foretold: foretold(&sums.foretold),
            records: sums.records,
            usage: sums.usage.of_vos(),
            drive_peaks: sums.usage.peaks(),
            late: self.late(),
        }
    }
}
