//! In which order the files of one tape are read.
//!
//! On a serpentine tape the order of positions is nearly as slow as chance, because neighbours along the tape lie in other
//! wraps. Orders here begin with the nearest file by time and are improved by moving short runs of files; small sets are
//! solved exactly (Held and Karp, 1962). The head may stand anywhere, so late arrivals are ordered anew from where it is.

mod exact;
mod improving;
mod nearest;

use crate::drive::DriveModel;
use crate::geometry::{Geometry, Position};
use crate::recall::{Extent, RecallFile, extents};
use serde::Serialize;

/// What an order is to make small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderGoal {
    /// The time of the drive, to the end of the last file.
    DriveTime,
    /// The mean time that requests wait.
    MeanWait,
}

/// How an order is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderPolicy {
    /// As they were asked for.
    Fifo,
    /// From the beginning of the tape to its end, as most systems do.
    Position,
    /// Along the tape: files of even wraps there, those of odd wraps back.
    Scan,
    /// The file next that is reached soonest.
    NearestLocate,
    /// The file next that is reached and read soonest.
    NearestService,
    /// The best of these, improved; exact for small sets.
    Best,
}

/// How much is tried to improve an order: evaluations of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderEffort(pub u64);

impl OrderEffort {
    /// Some tenths of a second.
    pub const USUAL: OrderEffort = OrderEffort(12_000_000);
    /// To know how good a usual order is.
    pub const THOROUGH: OrderEffort = OrderEffort(60_000_000);
}

/// One tape in one drive, with what is to be read from it.
#[derive(Debug, Clone)]
pub struct RecallPlan<'a> {
    pub drive: &'a DriveModel,
    /// The cartridge.
    pub geometry: &'a Geometry,
    /// Where the head stands.
    pub head: Position,
    /// What is to be read.
    pub files: &'a [RecallFile],
    /// What is to become small.
    pub goal: OrderGoal,
}

/// One file in its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTurn {
    /// Its place in the list of files.
    pub file: usize,
    /// Time to locate, before it; none for a file that follows at once.
    pub locate_ns: i64,
    /// When it has been read, from now on.
    pub read_at_ns: i64,
}

/// An order with what it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecallOrder {
    /// All files, in their order.
    pub turns: Vec<FileTurn>,
    /// All locates.
    pub locate_ns: i64,
    pub read_ns: i64,
    /// Sum over all requests of the time that they wait.
    pub waits_ns: i128,
    /// Whether no order is better.
    pub is_optimal: bool,
}

/// Files whose neighbours are ordered apart for the mean wait. Of more, neighbours are read in one go, which takes less time
/// to find and may be a little worse.
const FILES_APART_MAX: usize = 1_000;

impl RecallOrder {
    /// The time of the drive.
    pub fn drive_ns(&self) -> i64 {
        self.locate_ns + self.read_ns
    }

    /// The figure that the goal makes small.
    pub fn cost_ns(&self, goal: OrderGoal) -> i128 {
        match goal {
            OrderGoal::DriveTime => i128::from(self.drive_ns()),
            OrderGoal::MeanWait => self.waits_ns,
        }
    }
}

impl RecallPlan<'_> {
    /// Orders all files.
    pub fn order(&self, policy: OrderPolicy, effort: OrderEffort) -> RecallOrder {
        let extents = match policy {
            OrderPolicy::Fifo => self.one_by_one(),
            // Who waits for a small file need not wait for the large one before it.
            OrderPolicy::Best if self.may_part_neighbours() => {
                let mut extents = self.one_by_one();
                extents.sort_by_key(|extent| extent.begin_bytes);
                extents
            }
            _ => extents(self.drive, self.geometry, self.files),
        };
        let (sequence, is_optimal) = self.sequence(&extents, policy, effort);
        self.cost(&extents, &sequence, is_optimal)
    }

    /// What an order of files costs on another drive or cartridge, or by another model.
    pub fn cost_of(&self, files: &[usize]) -> RecallOrder {
        let extents = self.one_by_one();
        self.cost(&extents, files, false)
    }

    /// Whether files that lie behind one another may be read apart.
    fn may_part_neighbours(&self) -> bool {
        self.goal == OrderGoal::MeanWait && self.files.len() <= FILES_APART_MAX
    }

    fn one_by_one(&self) -> Vec<Extent> {
        let extent = |(index, file): (usize, &RecallFile)| {
            let alone = std::slice::from_ref(file);
            let mut extent = extents(self.drive, self.geometry, alone).remove(0);
            extent.files = vec![index];
            extent
        };
        self.files.iter().enumerate().map(extent).collect()
    }

    fn sequence(
        &self,
        extents: &[Extent],
        policy: OrderPolicy,
        effort: OrderEffort,
    ) -> (Vec<usize>, bool) {
        let costs = Costs {
            plan: self,
            extents,
        };
        let of_nearest = |by| nearest::sequence(&costs, by);
        match policy {
            // Extents come from the beginning of the tape on.
            OrderPolicy::Fifo | OrderPolicy::Position => ((0..extents.len()).collect(), false),
            OrderPolicy::Scan => (scan(extents), false),
            OrderPolicy::NearestLocate => (of_nearest(nearest::NearestBy::Locate), false),
            OrderPolicy::NearestService => (of_nearest(nearest::NearestBy::Service), false),
            OrderPolicy::Best if extents.len() <= exact::EXTENTS_MAX => {
                let is_of_files = extents.iter().all(|extent| extent.files.len() == 1);
                let is_optimal = self.goal == OrderGoal::DriveTime || is_of_files;
                (exact::sequence(&costs), is_optimal)
            }
            OrderPolicy::Best => {
                let candidates = [
                    of_nearest(nearest::NearestBy::Locate),
                    of_nearest(nearest::NearestBy::Service),
                    scan(extents),
                    // Where extents are many on each wrap, this is near the best.
                    (0..extents.len()).collect(),
                ];
                let begun = candidates.into_iter().min_by_key(|order| costs.of(order));
                let begun = begun.unwrap_or_default();
                (improving::improve(&costs, begun, effort), false)
            }
        }
    }

    fn cost(&self, extents: &[Extent], sequence: &[usize], is_optimal: bool) -> RecallOrder {
        let (mut head, mut now, mut located, mut waits) = (self.head, 0_i64, 0_i64, 0_i128);
        let mut turns = Vec::with_capacity(self.files.len());
        for index in sequence {
            let extent = &extents[*index];
            let locate = self.drive.locate.cost_ns(head, extent.entry);
            let begun = now + locate;
            for (place, file) in extent.files.iter().enumerate() {
                let end = self.files[*file].end_bytes();
                let read = self.drive.read_ns(self.geometry, extent.begin_bytes, end);
                turns.push(FileTurn {
                    file: *file,
                    locate_ns: if place == 0 { locate } else { 0 },
                    read_at_ns: begun + read,
                });
                waits += i128::from(begun + read) * i128::from(self.files[*file].requests);
            }
            located += locate;
            now = begun + extent.read_ns;
            head = extent.exit;
        }
        RecallOrder {
            turns,
            locate_ns: located,
            read_ns: now - located,
            waits_ns: waits,
            is_optimal,
        }
    }
}

/// There on even wraps, back on odd ones.
fn scan(extents: &[Extent]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..extents.len()).collect();
    order.sort_by_key(|index| {
        let entry = extents[*index].entry;
        match entry.wrap.is_multiple_of(2) {
            true => (0, i64::from(entry.longitudinal), *index),
            false => (1, -i64::from(entry.longitudinal), *index),
        }
    });
    order
}

/// What steps of an order cost.
struct Costs<'a> {
    plan: &'a RecallPlan<'a>,
    extents: &'a [Extent],
}

impl Costs<'_> {
    /// To get from one extent to another; `None` is where the head stands.
    fn step(&self, from: Option<usize>, to: usize) -> i64 {
        let from = from.map_or(self.plan.head, |from| self.extents[from].exit);
        let entry = self.extents[to].entry;
        self.plan.drive.locate.cost_ns(from, entry)
    }

    /// How much a moment counts while this extent is being reached and read, beside what comes behind it.
    fn weight(&self, extent: usize) -> i64 {
        match self.plan.goal {
            OrderGoal::DriveTime => 0,
            OrderGoal::MeanWait => i64::try_from(self.extents[extent].requests).unwrap_or(i64::MAX),
        }
    }

    /// The whole of an order: what the goal makes small, where files within an extent count as its end.
    fn of(&self, order: &[usize]) -> i128 {
        let (mut now, mut sum, mut before) = (0_i64, 0_i128, None);
        for extent in order {
            now += self.step(before, *extent) + self.extents[*extent].read_ns;
            sum += i128::from(now) * i128::from(self.weight(*extent));
            before = Some(*extent);
        }
        match self.plan.goal {
            OrderGoal::DriveTime => i128::from(now),
            OrderGoal::MeanWait => sum,
        }
    }
}

#[cfg(test)]
mod tests;
