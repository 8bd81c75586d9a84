//! What a run has shown, in numbers. [`page`] draws them, [`words`] tells them.

pub mod page;
#[cfg(test)]
mod tests;
pub mod words;

use serde::Serialize;
use std::collections::BTreeMap;

/// How a run went.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// The plan's name.
    pub name: String,
    /// By which rule the number of transfers on a link was found.
    pub policy: String,
    /// Of chance.
    pub seed: u64,
    /// Virtual seconds until everything had ended, or the plan's length.
    pub seconds: f64,
    /// Seconds in which transfers were open.
    pub work_seconds: f64,
    /// How transfers stand at the end, by FTS's words.
    pub states: BTreeMap<String, u64>,
    /// Jobs that the service turned away.
    pub jobs_refused: u64,
    /// Bytes of files that arrived.
    pub bytes: f64,
    /// Seconds from submission to the start of the first attempt.
    pub wait_seconds: Waits,
    /// Attempts that failed.
    pub failures: u64,
    /// Attempts that were lost with a leader.
    pub losses: u64,
    /// Seconds in which transfers held slots.
    pub slot_seconds: SlotTime,
    /// Seconds that files waited after they might have started, by reason, over all files.
    pub waiting_seconds: BTreeMap<String, f64>,
    /// Jain's index: 1 when all are alike, 1/n when one has all.
    pub fairness: Fairness,
    /// Of each link that was used.
    pub links: Vec<LinkReport>,
    pub vos: Vec<VoReport>,
    /// Inputs that the engine took.
    pub inputs: u64,
    /// All of it over time.
    pub series: Series,
}

/// How long files waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Waits {
    /// Half of them not longer than this.
    pub median: f64,
    /// 99 in 100 not longer than this.
    pub of_99: f64,
    pub longest: f64,
}

/// What slots were held for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SlotTime {
    /// All attempts.
    pub all: f64,
    /// Attempts that failed.
    pub failed: f64,
    /// Attempts that were lost with a leader.
    pub lost: f64,
}

/// How evenly things were spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Fairness {
    /// Bytes over the links.
    pub links: f64,
    /// Slot time over the VOs, in proportion to their shares.
    pub vos: f64,
}

/// How one link went.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LinkReport {
    pub from: String,
    pub to: String,
    /// Files that arrived.
    pub files: u64,
    /// Bytes that moved.
    pub bytes: f64,
    /// Most that ran at once.
    pub active_max: u32,
    /// Seconds in which transfers held its slots.
    pub slot_seconds: f64,
    /// Seconds in which its transfers were open.
    pub work_seconds: f64,
}

/// How one VO went.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VoReport {
    pub name: String,
    /// Files that arrived.
    pub files: u64,
    pub bytes: f64,
    /// Seconds in which its transfers held slots.
    pub slot_seconds: f64,
    /// The longest time from a submission to the start of the first attempt, in seconds.
    pub wait_longest: f64,
    /// Its share, in proportion to the others'. `None`: VOs have none.
    pub share: Option<f64>,
}

/// Everything at points in time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Series {
    /// Seconds between two points. Rates are means over them, all else is as it was at their ends.
    pub step: f64,
    /// In order, the first after one step.
    pub points: Vec<Point>,
}

/// How things were.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Point {
    /// Bytes that moved since the point before, over all links.
    pub bytes: f64,
    /// Of the links in [`Report::links`], in that order; links that came later are missing.
    pub links: Vec<LinkPoint>,
    /// Transfers of each VO in [`Report::vos`] that ran, and that were open.
    pub vos: Vec<(u32, u32)>,
    /// Files that waited, by reason.
    pub waiting: BTreeMap<&'static str, f64>,
}

/// How a link was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LinkPoint {
    /// Bytes that moved since the point before.
    pub bytes: f64,
    /// Transfers that ran.
    pub active: f64,
    /// Transfers that might have started.
    pub queued: f64,
    /// Transfers that were allowed.
    pub limit: f64,
}

impl Report {
    /// Bytes per second on average.
    pub fn rate(&self) -> f64 {
        self.bytes / self.seconds.max(1.0)
    }

    /// How many transfers stand so, by FTS's word.
    pub fn in_state(&self, name: &str) -> u64 {
        self.states.get(name).copied().unwrap_or(0)
    }

    /// How many have not ended.
    pub fn open(&self) -> u64 {
        let ended = ["FINISHED", "FAILED", "CANCELED"];
        let open = self
            .states
            .iter()
            .filter(|(name, _)| !ended.contains(&name.as_str()));
        open.map(|(_, count)| count).sum()
    }
}

/// Jain, Chiu, Hawe (DEC-TR-301, 1984).
pub(crate) fn jain(parts: impl Iterator<Item = f64> + Clone) -> f64 {
    let (sum, squares) = parts.clone().fold((0.0, 0.0), |(sum, squares), part| {
        (sum + part, squares + part * part)
    });
    match squares > 0.0 {
        true => sum * sum / (parts.count() as f64 * squares),
        false => 1.0,
    }
}
