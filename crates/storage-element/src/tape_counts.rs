//! How many files wait to be put on tape or to be read from it, and how many are worked on, whatever the tape system is.

use penstock_model::Timestamp;
use penstock_tape::amount::TapeAmount;
use penstock_tape::hsm_queue::{HsmCounts, HsmKind, HsmKindCounts};
use serde::Serialize;

/// Of files that are to be written, read or removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct WorkCounts {
    /// They wait for others, with which they are written together. Of what is written only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collecting: Option<TapeAmount>,
    /// They wait for a command, or for a tape in a drive.
    pub queued: TapeAmount,
    pub running: TapeAmount,
    /// They wait for their next try.
    pub delayed: TapeAmount,
    /// When the oldest that does not run was asked for.
    pub oldest_waiting: Option<Timestamp>,
}

impl WorkCounts {
    pub(crate) fn waits_since(&mut self, since: Timestamp) {
        let oldest = self
            .oldest_waiting
            .map_or(since, |oldest| oldest.min(since));
        self.oldest_waiting = Some(oldest);
    }

    /// All that is not worked on.
    pub(crate) fn waiting(&self) -> TapeAmount {
        let collecting = self.collecting.unwrap_or_default();
        TapeAmount::sum([collecting, self.queued, self.delayed])
    }
}

/// Of a tape system. What it does not have is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TapeCounts {
    pub archives: WorkCounts,
    pub recalls: WorkCounts,
    /// From an HSM. Libraries remove nothing: what is not needed goes when a tape is written anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removals: Option<WorkCounts>,
    /// Commands of an HSM that did not end when they were stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_commands: Option<u64>,
}

impl TapeCounts {
    pub(crate) fn of_hsm(counts: &HsmCounts) -> TapeCounts {
        let of = |kind| {
            let counts = counts.kinds.get(&kind).copied().unwrap_or_default();
            work_counts(kind, &counts)
        };
        TapeCounts {
            archives: of(HsmKind::Put),
            recalls: of(HsmKind::Get),
            removals: Some(of(HsmKind::Remove)),
            lost_commands: Some(counts.lost),
        }
    }
}

fn work_counts(kind: HsmKind, counts: &HsmKindCounts) -> WorkCounts {
    let oldest_ns = counts.oldest_waiting_ns;
    WorkCounts {
        collecting: (kind == HsmKind::Put).then_some(counts.collecting),
        queued: counts.queued,
        running: counts.running,
        delayed: counts.delayed,
        oldest_waiting: oldest_ns.map(|at_ns| Timestamp(at_ns / 1_000_000)),
    }
}
