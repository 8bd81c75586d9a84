//! The nearest extent next, again and again. Extents lie in classes of equal constant costs, sorted along the tape, so that
//! a step looks at a few neighbours of each class and not at all extents.

use super::Costs;
use crate::geometry::Position;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NearestBy {
    /// By the locate alone.
    Locate,
    /// By the locate and the reading.
    Service,
}

/// Neighbours of a class that are looked at on either side.
const NEIGHBOURS: usize = 3;

/// Band, half and direction.
type Class = (u32, bool, u32);

struct Remaining {
    classes: BTreeMap<Class, BTreeSet<(u32, usize)>>,
    wraps: BTreeMap<u32, BTreeSet<(u32, usize)>>,
}

impl Remaining {
    fn of(costs: &Costs<'_>) -> Remaining {
        let mut remaining = Remaining {
            classes: BTreeMap::new(),
            wraps: BTreeMap::new(),
        };
        for (index, extent) in costs.extents.iter().enumerate() {
            let place = (extent.entry.longitudinal, index);
            let class = class(extent.entry);
            remaining.classes.entry(class).or_default().insert(place);
            let wrap = remaining.wraps.entry(extent.entry.wrap).or_default();
            wrap.insert(place);
        }
        remaining
    }

    fn remove(&mut self, costs: &Costs<'_>, index: usize) {
        let entry = costs.extents[index].entry;
        let place = (entry.longitudinal, index);
        let class = class(entry);
        let sets = [
            self.classes.get_mut(&class),
            self.wraps.get_mut(&entry.wrap),
        ];
        for set in sets.into_iter().flatten() {
            set.remove(&place);
        }
    }

    /// What may be nearest to a place.
    fn near(&self, from: Position) -> impl Iterator<Item = usize> {
        let sets = self.classes.values().chain(self.wraps.get(&from.wrap));
        sets.flat_map(move |set| {
            let place = (from.longitudinal, 0);
            let above = set.range(place..).take(NEIGHBOURS);
            let below = set.range(..place).rev().take(NEIGHBOURS);
            above.chain(below).map(|(_, index)| *index)
        })
    }
}

fn class(at: Position) -> Class {
    (at.band, at.is_far, at.wrap % 2)
}

pub(super) fn sequence(costs: &Costs<'_>, by: NearestBy) -> Vec<usize> {
    let mut remaining = Remaining::of(costs);
    let mut order = Vec::with_capacity(costs.extents.len());
    let mut last = None;
    while order.len() < costs.extents.len() {
        let head = last.map_or(costs.plan.head, |last: usize| costs.extents[last].exit);
        let cost = |index: usize| {
            let locate = costs.step(last, index);
            match by {
                NearestBy::Locate => locate,
                NearestBy::Service => locate + costs.extents[index].read_ns,
            }
        };
        let nearest = remaining.near(head).map(|index| (cost(index), index)).min();
        let Some((_, index)) = nearest else { break };
        remaining.remove(costs, index);
        order.push(index);
        last = Some(index);
    }
    order
}
