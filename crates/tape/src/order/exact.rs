//! The best order of a few extents, over all subsets (Held and Karp, 1962).

use super::{Costs, OrderGoal};

/// Above this it takes too long.
pub(super) const EXTENTS_MAX: usize = 11;

pub(super) fn sequence(costs: &Costs<'_>) -> Vec<usize> {
    let count = costs.extents.len();
    if count == 0 {
        return Vec::new();
    }
    let all = (1_usize << count) - 1;
    let weights: Vec<i64> = (0..count).map(|extent| costs.weight(extent)).collect();
    let read = |extent: usize| costs.extents[extent].read_ns;
    // A moment counts for all that are not read yet; for the drive's time it counts once.
    let weight_left = |done: usize| match costs.plan.goal {
        OrderGoal::DriveTime => 1,
        OrderGoal::MeanWait => (0..count)
            .filter(|extent| done & (1 << extent) == 0)
            .map(|extent| weights[extent])
            .sum::<i64>(),
    };
    // The least cost of having read a set with this one last, and the one before it.
    let mut best: Vec<Option<(i128, Option<usize>)>> = vec![None; (all + 1) * count];
    for done in 1..=all {
        for last in (0..count).filter(|last| done & (1 << last) != 0) {
            let before = done & !(1 << last);
            let weight = i128::from(weight_left(before));
            let cost = |from: Option<usize>| {
                let reached = match from {
                    None => 0,
                    Some(from) => best[before * count + from].map_or(i128::MAX, |(cost, _)| cost),
                };
                let took = i128::from(costs.step(from, last) + read(last)) * weight;
                (reached.saturating_add(took), from)
            };
            let found = match before {
                0 => Some(cost(None)),
                _ => (0..count)
                    .filter(|from| before & (1 << from) != 0)
                    .map(|from| cost(Some(from)))
                    .min(),
            };
            best[done * count + last] = found;
        }
    }
    let ends = (0..count).filter_map(|last| best[all * count + last].map(|(cost, _)| (cost, last)));
    let mut last = ends.min().map(|(_, last)| last);
    let (mut order, mut done) = (Vec::with_capacity(count), all);
    while let Some(extent) = last {
        order.push(extent);
        last = best[done * count + extent].and_then(|(_, before)| before);
        done &= !(1 << extent);
    }
    order.reverse();
    order
}
