//! One file of the queue of an HSM, one command that runs, and what is known of an outage.

use super::work::{HsmCommandId, HsmFault, HsmKind, HsmStop, HsmTarget, HsmWork};
use crate::request::{Asker, FamilyName, RequestId, VoName};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Where the work for a file stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmStage {
    /// A put waits for others of its family.
    Collecting,
    /// It waits for a slot.
    Queued,
    Running(HsmCommandId),
    /// It waits until then for its next try.
    Delayed {
        until_ns: i64,
    },
}

/// Work for a file, whoever asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmEntry {
    pub work: HsmWork,
    /// Whose slot it takes: the VO of whoever asked first.
    pub vo: VoName,
    pub askers: BTreeMap<RequestId, Asker>,
    /// When the first of them asked.
    pub since_ns: i64,
    /// When it could have been run first.
    pub ready_ns: i64,
    pub tries: u32,
    pub stage: HsmStage,
    /// Of the last try.
    pub fault: Option<HsmFault>,
}

impl HsmEntry {
    /// Whether it goes on although nobody is told.
    pub fn is_wanted(&self) -> bool {
        !self.askers.is_empty() || matches!(self.work, HsmWork::Remove { .. })
    }

    /// Whether it waits for something else than a slot.
    pub fn is_held(&self) -> bool {
        match self.stage {
            HsmStage::Collecting | HsmStage::Delayed { .. } => true,
            HsmStage::Queued | HsmStage::Running(_) => false,
        }
    }

    /// Its place among others of its VO.
    pub fn rank(&self) -> HsmRank {
        let deadlines = self.askers.values().filter_map(|asker| asker.deadline_ns);
        let priorities = self.askers.values().map(|asker| asker.priority);
        HsmRank {
            priority: Reverse(priorities.max().unwrap_or(0)),
            deadline_ns: deadlines.min().unwrap_or(i64::MAX),
            ready_ns: self.ready_ns,
            family: self.work.family().cloned(),
            since_ns: self.since_ns,
            target: self.work.target(),
        }
    }
}

/// Lower goes first. Fields compare top to bottom: the order of declaration is the policy. The files of a batch, which are
/// ready at the same moment, stay together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HsmRank {
    pub priority: Reverse<u8>,
    pub deadline_ns: i64,
    pub ready_ns: i64,
    pub family: Option<FamilyName>,
    pub since_ns: i64,
    pub target: HsmTarget,
}

/// A command that has a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmRun {
    pub target: HsmTarget,
    pub vo: VoName,
    pub begun_ns: i64,
    pub is_canary: bool,
    /// When it was told to stop, and why.
    pub stop: Option<(i64, HsmStop)>,
}

/// Commands of one kind are not started, except a canary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmPause {
    /// When the next canary starts, if there is none.
    pub probe_ns: i64,
    pub pause_ns: i64,
    /// Files that canaries have failed with; others are tried first.
    pub tried: BTreeSet<HsmTarget>,
}

/// The HSM as a whole does not work: one incident, whatever it concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmOutage {
    pub since_ns: i64,
    /// By which it was known.
    pub fault: HsmFault,
    pub pauses: BTreeMap<HsmKind, HsmPause>,
    /// Files that had waited for kinds that work again.
    pub files: u64,
    pub bytes: u64,
}
