//! What a run has shown.

use serde::Serialize;
use std::collections::BTreeMap;

/// How a run went.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// The plan's name.
    pub name: String,
    /// Virtual seconds.
    pub seconds: f64,
    /// How transfers stand at the end, by FTS's words.
    pub states: BTreeMap<String, u64>,
    /// Bytes of files that arrived.
    pub bytes: f64,
    /// Seconds from submission to the start of the first attempt: the median, of 99 in 100, and the longest.
    pub waits: [f64; 3],
    /// Attempts that failed.
    pub failures: u64,
    /// Of each link that moved something.
    pub links: Vec<LinkReport>,
    /// Files that arrived, by VO.
    pub vos: BTreeMap<String, u64>,
    /// Inputs that the engine took.
    pub inputs: u64,
}

/// How one link went.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LinkReport {
    /// From where.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Files that arrived.
    pub files: u64,
    /// Bytes that arrived.
    pub bytes: f64,
    /// Megabytes that arrived in each minute.
    pub minutes: Vec<f64>,
    /// Most that ran at once.
    pub active_max: u32,
}

impl Report {
    /// Jain's index of what arrived over the links: 1 when all are alike, 1/n when one has all.
    pub fn fairness(&self) -> f64 {
        jain(self.links.iter().map(|link| link.bytes))
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
