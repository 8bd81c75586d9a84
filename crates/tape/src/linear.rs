//! Tapes without wraps, the case that is understood best: a line, a head at its right end, requests that are served when their
//! file has been passed from left to right, and a price for each turn. Orders for it are references; serpentine tapes have
//! [`crate::order`].
//!
//! The exact program and its simple variant are those of Honoré, Simon and Suter, "An Exact Algorithm for the Linear Tape
//! Scheduling Problem", ICAPS 2022, arXiv 2112.09384.

mod program;

use program::{Detours, ExactProgram, SimpleProgram};

/// A file with requests. Lengths and times are in bytes: the head passes one in a unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearFile {
    pub begin: u64,
    pub size: u64,
    pub requests: u64,
}

impl LinearFile {
    fn end(&self) -> u64 {
        self.begin + self.size
    }
}

/// A tape, with its files from left to right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearTape {
    files: Vec<LinearFile>,
    head: u64,
    turn_cost: u64,
}

/// Why there is no such tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinearTapeError {
    /// There is no file.
    NoFiles,
    /// The file at this place of the list begins before the one before it ends.
    Overlap(usize),
    /// The head stands before the end of the last file.
    HeadBeforeEnd,
    /// Nobody asks for the file at this place of the list.
    NoRequests(usize),
}

/// How an order is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinearPolicy {
    /// To the first file, then all in one sweep.
    NoDetour,
    /// Each file alone when the head first comes to it (GS).
    EachFile,
    /// The best set of detours of which none lies in another (SimpleDP).
    SimpleDp,
    /// The best order there is (DP).
    ExactDp,
}

/// A file that has been served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearRead {
    /// Its place among the files of the tape.
    pub file: usize,
    /// When it has been passed.
    pub read_at: u64,
}

/// An order with its cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearOrder {
    pub reads: Vec<LinearRead>,
    /// The sum over all requests of when they are served.
    pub cost: u128,
}

/// States of the exact program above which it is not tried.
const EXACT_STATES_MAX: u128 = 4_000_000;

impl LinearTape {
    /// A tape whose head stands at `head` and moves to the left.
    pub fn new(
        files: Vec<LinearFile>,
        head: u64,
        turn_cost: u64,
    ) -> Result<LinearTape, LinearTapeError> {
        if let Some(place) = files.iter().position(|file| file.requests == 0) {
            return Err(LinearTapeError::NoRequests(place));
        }
        let overlap = files
            .windows(2)
            .position(|pair| pair[1].begin < pair[0].end());
        if let Some(place) = overlap {
            return Err(LinearTapeError::Overlap(place + 1));
        }
        let last = files.last().ok_or(LinearTapeError::NoFiles)?;
        if head < last.end() {
            return Err(LinearTapeError::HeadBeforeEnd);
        }
        Ok(LinearTape {
            files,
            head,
            turn_cost,
        })
    }

    /// An order by a policy; `None` where the exact program would take too long.
    pub fn order(&self, policy: LinearPolicy) -> Option<LinearOrder> {
        let detours = match policy {
            LinearPolicy::NoDetour => Detours::new(),
            LinearPolicy::EachFile => (1..self.files.len()).map(|file| (file, file)).collect(),
            LinearPolicy::SimpleDp => SimpleProgram::new(self).detours(),
            LinearPolicy::ExactDp if self.exact_states() > EXACT_STATES_MAX => return None,
            LinearPolicy::ExactDp => ExactProgram::new(self).detours(),
        };
        Some(self.run(&detours))
    }

    /// What no order can be below: each file served as if it were alone.
    pub fn lower_bound(&self) -> u128 {
        let alone = |file: &LinearFile| {
            let served = self.head - file.begin + file.size + self.turn_cost;
            u128::from(served) * u128::from(file.requests)
        };
        self.files.iter().map(alone).sum()
    }

    fn exact_states(&self) -> u128 {
        let files = self.files.len() as u128;
        let requests: u128 = self
            .files
            .iter()
            .map(|file| u128::from(file.requests))
            .sum();
        files * files * requests
    }

    /// Moves the head as the detours say, from right to left, and through the rest from left to right.
    fn run(&self, detours: &Detours) -> LinearOrder {
        let mut reads = Vec::with_capacity(self.files.len());
        let mut is_read = vec![false; self.files.len()];
        let (mut now, mut head) = (0, self.head);
        let mut pass = |first: usize, last: usize, now: u64| {
            let passed = is_read.iter_mut().enumerate();
            for (file, is_read) in passed.take(last + 1).skip(first) {
                if !std::mem::replace(is_read, true) {
                    let passed = self.files[file].end() - self.files[first].begin;
                    reads.push(LinearRead {
                        file,
                        read_at: now + passed,
                    });
                }
            }
        };
        for (first, last) in detours.iter().rev() {
            let begin = self.files[*first].begin;
            let length = self.files[*last].end() - begin;
            now += head - begin + self.turn_cost;
            pass(*first, *last, now);
            now += length + self.turn_cost + length;
            head = begin;
        }
        now += head - self.files[0].begin + self.turn_cost;
        pass(0, self.files.len() - 1, now);
        let wait = |read: &LinearRead| {
            u128::from(read.read_at) * u128::from(self.files[read.file].requests)
        };
        LinearOrder {
            cost: reads.iter().map(wait).sum(),
            reads,
        }
    }
}

#[cfg(test)]
mod tests;
