//! What waits of one user: by priority and age. A step of priority is worth a head start of some hours, so that urgent
//! files go first, and no file is passed by others that were submitted more than all head starts after it.

use crate::prediction::SizeClass;
use penstock_model::{Priority, Timestamp, TransferId};
use std::collections::{BTreeMap, VecDeque};

/// By how much a transfer goes before those of the next lower priority: six hours.
pub const PRIORITY_HEAD_START_MS: i64 = 6 * 3_600_000;
/// Entries of a part of the line. A part is what is searched and shifted when one comes or goes.
const PART_MAX: usize = 512;

/// The place of a transfer in its line. The lowest goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// When it was submitted, less its head start.
    from_ms: i64,
    pub(super) transfer: TransferId,
}

impl Rank {
    pub(super) fn of(transfer: TransferId, priority: Priority, since: Timestamp) -> Rank {
        let head_start = i64::from(priority.get()) * PRIORITY_HEAD_START_MS;
        Rank {
            from_ms: since.0.saturating_sub(head_start),
            transfer,
        }
    }
}

/// How much waits, in terms from which its time follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Backlog {
    /// Transfers of known size.
    pub(super) sized: u64,
    pub(super) bytes: u64,
    /// Transfers of unknown size.
    pub(super) unsized_ones: u64,
}

impl Backlog {
    pub(super) fn count(&self) -> u64 {
        self.sized + self.unsized_ones
    }

    pub(super) fn add(&mut self, size: SizeClass) {
        match size.size() {
            Some(size) => {
                self.sized += 1;
                self.bytes = self.bytes.saturating_add(size.0);
            }
            None => self.unsized_ones += 1,
        }
    }

    pub(super) fn take(&mut self, size: SizeClass) {
        match size.size() {
            Some(size) => {
                self.sized -= 1;
                self.bytes = self.bytes.saturating_sub(size.0);
            }
            None => self.unsized_ones -= 1,
        }
    }

    fn join(&mut self, other: &Backlog) {
        self.sized += other.sized;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.unsized_ones += other.unsized_ones;
    }
}

/// The line, in parts, so that a million cost little more than their names.
#[derive(Debug, Default)]
pub(super) struct AgedLine {
    /// By a rank that is not behind any in the part.
    parts: BTreeMap<Rank, Part>,
}

#[derive(Debug, Default)]
struct Part {
    ranks: VecDeque<Rank>,
    sizes: VecDeque<SizeClass>,
    load: Backlog,
}

impl AgedLine {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// False when it stood there already.
    pub(super) fn insert(&mut self, rank: Rank, size: SizeClass) -> bool {
        let Some(key) = self.part_of(rank) else {
            // Before all, or the first: into the first part, under its own rank.
            let first = self.parts.pop_first();
            let mut part = first.map_or_else(Part::default, |(_, part)| part);
            part.insert(0, rank, size);
            self.parts.insert(rank, part);
            self.split_if_full(rank);
            return true;
        };
        let part = self.parts.get_mut(&key).expect("found above");
        match part.ranks.binary_search(&rank) {
            Ok(_) => false,
            Err(at) if at == PART_MAX => {
                // What comes in order begins a part of its own, so that parts are full.
                let mut next = Part::default();
                next.insert(0, rank, size);
                self.parts.insert(rank, next);
                true
            }
            Err(at) => {
                part.insert(at, rank, size);
                self.split_if_full(key);
                true
            }
        }
    }

    /// False when it did not stand there.
    pub(super) fn remove(&mut self, rank: Rank) -> Option<SizeClass> {
        let key = self.part_of(rank)?;
        let part = self.parts.get_mut(&key)?;
        let at = part.ranks.binary_search(&rank).ok()?;
        let (_, size) = part.remove(at)?;
        if part.ranks.is_empty() {
            self.parts.remove(&key);
        }
        Some(size)
    }

    /// The size of the first one.
    pub(super) fn first(&self) -> Option<SizeClass> {
        let (_, part) = self.parts.first_key_value()?;
        part.sizes.front().copied()
    }

    /// Takes the first one out.
    pub(super) fn pop(&mut self) -> Option<(TransferId, SizeClass)> {
        let mut first = self.parts.first_entry()?;
        let (rank, size) = first.get_mut().remove(0)?;
        if first.get().ranks.is_empty() {
            first.remove();
        }
        Some((rank.transfer, size))
    }

    /// How much goes before a place in the line: a sum over the parts before it, and over one part.
    pub(super) fn ahead_of(&self, rank: Rank) -> Backlog {
        let mut ahead = Backlog::default();
        let mut last = None;
        for (_, part) in self.parts.range(..=rank) {
            if let Some(before) = last.replace(part) {
                ahead.join(&before.load);
            }
        }
        if let Some(part) = last {
            let at = part.ranks.partition_point(|other| *other < rank);
            part.sizes.iter().take(at).for_each(|size| ahead.add(*size));
        }
        ahead
    }

    /// All of it, in order.
    pub(super) fn into_all(self) -> impl Iterator<Item = (Rank, SizeClass)> {
        let parts = self.parts.into_values();
        parts.flat_map(|part| part.ranks.into_iter().zip(part.sizes))
    }

    fn part_of(&self, rank: Rank) -> Option<Rank> {
        let mut before = self.parts.range(..=rank);
        before.next_back().map(|(key, _)| *key)
    }

    fn split_if_full(&mut self, key: Rank) {
        let part = self.parts.get_mut(&key).expect("the caller has it");
        if part.ranks.len() <= PART_MAX {
            return;
        }
        let middle = part.ranks.len() / 2;
        let mut behind = Part {
            ranks: part.ranks.split_off(middle),
            sizes: part.sizes.split_off(middle),
            load: Backlog::default(),
        };
        for size in &behind.sizes {
            behind.load.add(*size);
            part.load.take(*size);
        }
        let first = behind.ranks[0];
        self.parts.insert(first, behind);
    }
}

impl Part {
    fn insert(&mut self, at: usize, rank: Rank, size: SizeClass) {
        self.ranks.insert(at, rank);
        self.sizes.insert(at, size);
        self.load.add(size);
    }

    fn remove(&mut self, at: usize) -> Option<(Rank, SizeClass)> {
        let (rank, size) = (self.ranks.remove(at)?, self.sizes.remove(at)?);
        self.load.take(size);
        Some((rank, size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::Bytes;
    use proptest::prelude::*;

    fn rank(id: u64, priority: i64, since: i64) -> Rank {
        Rank::of(
            TransferId(id),
            Priority::clamped(priority),
            Timestamp(since),
        )
    }

    #[test]
    fn urgent_files_go_first_and_none_waits_longer_than_the_head_starts() {
        let mut line = AgedLine::default();
        let old = rank(1, 1, 0);
        let day = 24 * 3_600_000;
        line.insert(old, SizeClass::default());
        line.insert(rank(2, 5, day - 1), SizeClass::default());
        line.insert(rank(3, 5, day + 1), SizeClass::default());
        line.insert(rank(4, 3, 0), SizeClass::default());
        let order: Vec<u64> = std::iter::from_fn(|| line.pop())
            .map(|(id, _)| id.0)
            .collect();
        assert_eq!(order, [4, 2, 1, 3]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_line_is_in_order_and_knows_what_is_ahead(
            steps in proptest::collection::vec((0u64..4000, 1i64..=5, any::<bool>(), 0u64..100), 0..3000),
        ) {
            let (mut line, mut model) = (AgedLine::default(), BTreeMap::new());
            for (id, priority, inserts, size) in steps {
                // Most come in order, as in life.
                let rank = rank(id, priority, id as i64);
                let size = SizeClass::of(Some(Bytes(size)));
                match inserts || id % 3 == 0 {
                    true => {
                        let fresh = !model.contains_key(&rank);
                        prop_assert_eq!(line.insert(rank, size), fresh);
                        model.entry(rank).or_insert(size);
                    }
                    false => prop_assert_eq!(line.remove(rank), model.remove(&rank)),
                }
            }
            if let Some(middle) = model.keys().nth(model.len() / 2) {
                let mut ahead = Backlog::default();
                model.range(..*middle).for_each(|(_, size)| ahead.add(*size));
                prop_assert_eq!(line.ahead_of(*middle), ahead);
            }
            let popped: Vec<TransferId> = std::iter::from_fn(|| line.pop()).map(|(id, _)| id).collect();
            let expected: Vec<TransferId> = model.keys().map(|rank| rank.transfer).collect();
            prop_assert_eq!(popped, expected);
            prop_assert!(line.is_empty());
        }
    }
}
