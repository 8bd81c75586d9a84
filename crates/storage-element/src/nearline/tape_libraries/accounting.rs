//! What drives did for whom: summed up by the engine over its records, told in the time of people.

use super::TapeLibraries;
use super::library_status::mounts;
use crate::drive_account::{DriveAccount, DriveTimeStatus, HintVerdictStatus};
use penstock_model::Timestamp;

pub(super) fn account(libraries: &TapeLibraries, since: Option<Timestamp>) -> DriveAccount {
    let live = libraries.engine.live();
    let times = &libraries.times;
    let ledger = &live.mounts;
    let (from_ns, sums) = match since {
        Some(since) => {
            let since = ledger.times_since(times.library_ns(since));
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
        until: times.wall(libraries.now_ns()),
        drive_times: drive_times.collect(),
        mounts: mounts(live, times, from_ns),
        hints: hints.collect(),
    }
}
