//! What happens next: a heap by time, and by order of arrival among equals.

use crate::field::PredictedArrival;
use crate::plan::Hopeless;
use penstock_model::{Attempt, TransferId};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// What happens at a time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Next {
    /// The next job of a load.
    Submit(usize),
    /// Both ends of an attempt were looked at.
    Looked(TransferId, Attempt),
    Fails(TransferId, Attempt, Trouble),
    /// An attempt gives up if it has not moved more than so many bytes.
    Stalls(TransferId, Attempt, f64),
    /// The next file of a lane arrives, unless rates have changed.
    Arrives(PredictedArrival),
    /// A copy that went on without its agent ends at this place.
    Lands(String),
    /// An agent that was stopped, or has tidied up, has ended.
    Stopped(TransferId, Attempt),
    /// Another second has passed.
    Second,
    /// The engine wants to be looked after.
    Wake,
    /// An event of the plan begins.
    Begins(usize),
    /// An event of the plan is over.
    Over(usize),
    /// Another leader takes over.
    TakesOver,
    /// A node has found its leader.
    Joins(usize),
    /// The leader notices that this session of a node has ended.
    Missed(usize, u64),
    /// A node whose process died runs again.
    Returns(usize),
    /// A node may have been without a leader for too long.
    Orphans(usize),
}

/// What makes an attempt fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The file cannot be read.
    Broken,
    /// The destination cannot write it.
    Unwritable,
    /// The destination has no space for it.
    Full,
    /// Nothing listens.
    Refused,
    /// Nothing answers.
    Silent,
    /// The destination refuses because something is there, or is being written.
    Occupied,
    /// No file of its load can arrive.
    Hopeless(Hopeless),
}

#[derive(Debug, PartialEq)]
struct Due {
    at: f64,
    number: u64,
    next: Next,
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        let by_time = self.at.total_cmp(&other.at);
        by_time.then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Everything that is to happen.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    due: BinaryHeap<Reverse<Due>>,
    numbers: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: f64, next: Next) {
        self.numbers += 1;
        let number = self.numbers;
        self.due.push(Reverse(Due { at, number, next }));
    }

    pub(crate) fn pop(&mut self) -> Option<(f64, Next)> {
        let Reverse(due) = self.due.pop()?;
        Some((due.at, due.next))
    }
}
