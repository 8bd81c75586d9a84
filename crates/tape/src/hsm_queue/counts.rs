//! How much waits and how much runs: summed up over the entries themselves whenever somebody asks.

use super::entry::HsmStage;
use super::live_set::HsmLiveSet;
use super::work::HsmKind;
use crate::amount::TapeAmount;
use serde::Serialize;
use std::collections::BTreeMap;

/// Of one kind of commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HsmKindCounts {
    pub collecting: TapeAmount,
    pub queued: TapeAmount,
    pub running: TapeAmount,
    pub delayed: TapeAmount,
    /// When the oldest that does not run was asked for.
    pub oldest_waiting_ns: Option<i64>,
}

/// Of an HSM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HsmCounts {
    pub kinds: BTreeMap<HsmKind, HsmKindCounts>,
    /// Requests that have not ended.
    pub requests: u64,
    /// Requests whose end is certain and may not have been told.
    pub settled: u64,
    /// Commands that did not end when they were stopped.
    pub lost: u64,
}

impl HsmLiveSet {
    /// How much waits and how much runs.
    pub fn counts(&self) -> HsmCounts {
        let all = HsmKind::ALL.map(|kind| (kind, HsmKindCounts::default()));
        let mut kinds = BTreeMap::from(all);
        for (target, entry) in &self.entries {
            let counts = kinds.entry(target.kind()).or_default();
            let amount = match entry.stage {
                HsmStage::Collecting => &mut counts.collecting,
                HsmStage::Queued => &mut counts.queued,
                HsmStage::Running(_) => &mut counts.running,
                HsmStage::Delayed { .. } => &mut counts.delayed,
            };
            amount.add(entry.work.size_bytes());
            if !matches!(entry.stage, HsmStage::Running(_)) {
                let oldest = counts.oldest_waiting_ns.unwrap_or(i64::MAX);
                counts.oldest_waiting_ns = Some(oldest.min(entry.since_ns));
            }
        }
        HsmCounts {
            kinds,
            requests: self.requests.len() as u64,
            settled: self.settled.len() as u64,
            lost: self.lost.len() as u64,
        }
    }
}
