//! What drives did for whom: summed up by the engine over its records, told in the time of people.

use super::TapeLibraries;
use super::library_status::{MountStatus, Times, mounts};
use penstock_model::Timestamp;
use penstock_tape::data_set::{HintSource, HintVerdict};
use serde::Serialize;

/// What drives did, for administrators.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DriveAccount {
    /// From when on mounts are counted, by their ends; `None`: all.
    pub from: Option<Timestamp>,
    pub until: Timestamp,
    /// By VO, activity, challenge and kind of drive.
    pub drive_times: Vec<DriveTimeStatus>,
    /// The last mounts of those, the newest first.
    pub mounts: Vec<MountStatus>,
    /// What was said of data sets that are done, and what that was worth.
    pub hints: Vec<HintVerdictStatus>,
}

/// What drives of one kind did for one user.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DriveTimeStatus {
    /// `None`: nobody's files were done.
    pub vo: Option<String>,
    pub activity: Option<String>,
    pub challenge: Option<String>,
    pub kind: String,
    pub mounts: u64,
    /// In the time of the library.
    pub occupied_ns: i64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// So many data sets of one source came to this.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HintVerdictStatus {
    pub source: HintSource,
    pub verdict: HintVerdict,
    pub data_sets: u64,
}

pub(super) fn account(libraries: &TapeLibraries, since: Option<Timestamp>) -> DriveAccount {
    let live = libraries.engine.live();
    let times = Times::of(libraries);
    let ledger = &live.mounts;
    let (from_ns, sums) = match since {
        Some(since) => {
            let since = ledger.times_since(times.of_library(since));
            (Some(since.from_ns), since.sums)
        }
        None => (None, ledger.times().clone()),
    };
    let drive_times = sums
        .0
        .into_iter()
        .map(|((user, kind), time)| DriveTimeStatus {
            vo: user.vo.map(|vo| vo.0.to_string()),
            activity: user.activity.map(|activity| activity.0.to_string()),
            challenge: user.challenge.map(|challenge| challenge.0.to_string()),
            kind,
            mounts: time.mounts,
            occupied_ns: time.occupied_ns,
            read_bytes: time.read_bytes,
            written_bytes: time.written_bytes,
        });
    let hints = live.hint_verdicts.iter();
    let hints = hints.map(|((source, verdict), data_sets)| HintVerdictStatus {
        source: *source,
        verdict: *verdict,
        data_sets: *data_sets,
    });
    DriveAccount {
        from: from_ns.map(|from_ns| times.wall(from_ns)),
        until: libraries.wall(),
        drive_times: drive_times.collect(),
        mounts: mounts(live, &times, from_ns),
        hints: hints.collect(),
    }
}
