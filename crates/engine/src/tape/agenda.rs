//! What is due when, at tape systems. Each thing has one time; a later word replaces an earlier one.

use super::leaving::LeavingKey;
use crate::TapePlace;
use crate::clock_set_back::bring_forward_set;
use penstock_model::{Timestamp, TransferId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Something that is due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Due {
    /// A file must be on disk, or on tape, by now.
    Deadline(TransferId),
    /// Files that have gathered may be asked for.
    Ask(Arc<TapePlace>),
    /// A stage request is looked at.
    Look(u64),
    /// Files that wait to be on tape are looked for.
    Locate(Arc<TapePlace>),
    /// Replicas of files that wait for tape are looked for.
    Find(Arc<TapePlace>),
    /// A tape system is told that files are not needed any more.
    Leave(LeavingKey),
    /// The source of a file that is on tape is removed.
    RemoveSource(TransferId),
}

/// All that is due.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    order: BTreeSet<(Timestamp, Due)>,
    times: HashMap<Due, Timestamp>,
}

impl Agenda {
    /// It is due then, whatever was said before.
    pub(super) fn set(&mut self, due: Due, at: Timestamp) {
        self.drop(&due);
        self.order.insert((at, due.clone()));
        self.times.insert(due, at);
    }

    /// It is due then, unless it is due earlier.
    pub(super) fn set_by(&mut self, due: Due, at: Timestamp) {
        if self.times.get(&due).is_none_or(|known| *known > at) {
            self.set(due, at);
        }
    }

    /// It is not due any more.
    pub(super) fn drop(&mut self, due: &Due) {
        if let Some((due, at)) = self.times.remove_entry(due) {
            self.order.remove(&(at, due));
        }
    }

    /// Makes everything due earlier by this much.
    pub(super) fn bring_forward(&mut self, by: Duration) {
        bring_forward_set(&mut self.order, by);
        self.times.values_mut().for_each(|at| *at = *at - by);
    }

    /// When it is due.
    pub(super) fn at(&self, due: &Due) -> Option<Timestamp> {
        self.times.get(due).copied()
    }

    /// When the first thing is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The first thing that is due by now.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        let (_, due) = self.order.pop_first()?;
        self.times.remove(&due);
        Some(due)
    }
}
