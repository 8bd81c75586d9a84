//! Makes an order better: short runs of extents move elsewhere (Or, 1976), and when no move helps, the order is cut in four
//! and put together differently (Martin, Otto and Felten, 1991), from where it goes on.

use super::{Costs, OrderEffort, OrderGoal};
use std::ops::Range;

/// The longest run that moves.
const RUN_MAX: usize = 3;
/// Places between the first and the last of the cuts, and how far runs move after them.
const CUTS_SPAN: usize = 50;

/// An order with the sums that tell what a move costs.
struct Tour<'a> {
    costs: &'a Costs<'a>,
    order: Vec<usize>,
    /// When each extent of the order has been read.
    read_at: Vec<i64>,
    /// Weights up to each place, and with it.
    weights: Vec<i64>,
    cost: i128,
}

impl<'a> Tour<'a> {
    fn new(costs: &'a Costs<'a>, order: Vec<usize>) -> Tour<'a> {
        let mut tour = Tour {
            costs,
            order,
            read_at: Vec::new(),
            weights: Vec::new(),
            cost: 0,
        };
        tour.sum_from(0);
        tour.cost = costs.of(&tour.order);
        tour
    }

    /// The sums of all places from one on; those before it stand.
    fn sum_from(&mut self, place: usize) {
        self.read_at.truncate(place);
        self.weights.truncate(place);
        let mut now = self.read_at.last().copied().unwrap_or(0);
        let mut weight = self.weights.last().copied().unwrap_or(0);
        let mut before = place.checked_sub(1).map(|place| self.order[place]);
        for extent in &self.order[place..] {
            now += self.costs.step(before, *extent) + self.costs.extents[*extent].read_ns;
            weight += self.costs.weight(*extent);
            self.read_at.push(now);
            self.weights.push(weight);
            before = Some(*extent);
        }
    }

    fn step(&self, from: Option<usize>, to: Option<usize>) -> i64 {
        let from = from.map(|from| self.order[from]);
        to.map_or(0, |to| self.costs.step(from, self.order[to]))
    }

    /// Weights of the places from `begin` to before `end`.
    fn weight(&self, begin: usize, end: usize) -> i64 {
        let up_to = |end: usize| end.checked_sub(1).map_or(0, |last| self.weights[last]);
        up_to(end) - up_to(begin)
    }

    /// By how much the cost changes when the neighbouring runs `a..b` and `b..c` change places.
    fn change(&self, a: usize, b: usize, c: usize) -> i128 {
        let before = a.checked_sub(1);
        let behind = (c < self.order.len()).then_some(c);
        let (into_first, into_second) =
            (self.step(before, Some(a)), self.step(Some(b - 1), Some(b)));
        let out = self.step(Some(c - 1), behind);
        let (to_second, to_first) = (self.step(before, Some(b)), self.step(Some(c - 1), Some(a)));
        let new_out = self.step(Some(b - 1), behind);
        let total = to_second + to_first + new_out - into_first - into_second - out;
        if self.costs.plan.goal == OrderGoal::DriveTime {
            return i128::from(total);
        }
        let end = |place: Option<usize>| place.map_or(0, |place| self.read_at[place]);
        // The second run begins when the first did; the first one when the second has ended.
        let second_begins = end(Some(b - 1)) + into_second;
        let second_moves = end(before) + to_second - second_begins;
        let second_lasts = end(Some(c - 1)) - second_begins;
        let first_begins = end(before) + into_first;
        let first_moves = end(before) + to_second + second_lasts + to_first - first_begins;
        let moved = |weight: i64, by: i64| i128::from(weight) * i128::from(by);
        moved(self.weight(a, b), first_moves)
            + moved(self.weight(b, c), second_moves)
            + moved(self.weight(c, self.order.len()), total)
    }

    /// Changes two neighbouring runs, which changes the cost by `change`.
    fn swap(&mut self, (a, b, c): (usize, usize, usize), change: i128) {
        self.order[a..c].rotate_left(b - a);
        self.cost += change;
        if self.costs.plan.goal == OrderGoal::MeanWait {
            self.sum_from(a);
        }
    }

    /// Moves runs that begin at these places, as long as that helps, over `reach` places at most.
    fn improve(&mut self, places: Range<usize>, reach: usize, effort: &mut u64) {
        let count = self.order.len();
        let mut places = places;
        while !places.is_empty() {
            let mut moved: Option<Range<usize>> = None;
            for begin in places {
                for length in 1..=RUN_MAX.min(count - begin) {
                    let end = begin + length;
                    let there = (end + 1..=count.min(end + reach)).map(|to| (begin, end, to));
                    let back = (begin.saturating_sub(reach)..begin).map(|from| (from, begin, end));
                    let moves = there.chain(back);
                    let best = moves.map(|(a, b, c)| (self.change(a, b, c), a, b, c)).min();
                    *effort = effort.saturating_sub(2 * reach as u64);
                    if let Some((change, a, b, c)) = best
                        && change < 0
                    {
                        self.swap((a, b, c), change);
                        moved = Some(match moved {
                            None => a..c,
                            Some(before) => before.start.min(a)..before.end.max(c),
                        });
                    }
                    if *effort == 0 {
                        return;
                    }
                }
            }
            places = moved.unwrap_or(0..0);
        }
    }
}

/// A better order, or the same.
pub(super) fn improve(costs: &Costs<'_>, order: Vec<usize>, effort: OrderEffort) -> Vec<usize> {
    let OrderEffort(mut effort) = effort;
    let count = order.len();
    let mut tour = Tour::new(costs, order);
    // How far a run moves: all over a short order, in a long one as far as two passes may.
    let per_run = effort / (count as u64 * RUN_MAX as u64 * 4).max(1);
    let reach = usize::try_from(per_run)
        .unwrap_or(count)
        .clamp(4, count.max(4));
    tour.improve(0..count, reach, &mut effort);
    // Always the same numbers: the same files give the same order.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound.max(1) as u64).unwrap_or(0)
    };
    let (mut best, mut best_cost) = (tour.order.clone(), tour.cost);
    while effort > 0 && count >= 8 {
        // Cuts that lie near each other change little, which is most often better.
        let span = count.min(CUTS_SPAN);
        let begin = draw(count - span + 1);
        let mut cuts = [0; 3].map(|_| begin + draw(span + 1));
        cuts.sort_unstable();
        let [a, b, c] = cuts;
        effort = effort.saturating_sub(1);
        if a == b || b == c {
            continue;
        }
        let change = tour.change(a, b, c);
        tour.swap((a, b, c), change);
        let (from, to) = (a.saturating_sub(RUN_MAX), count.min(c + RUN_MAX));
        tour.improve(from..to, CUTS_SPAN, &mut effort);
        if tour.cost < best_cost {
            best_cost = tour.cost;
            best.clone_from(&tour.order);
        } else if tour.cost > best_cost {
            tour.order.clone_from(&best);
            tour.cost = best_cost;
            tour.sum_from(0);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::{OrderGoal, RecallPlan};
    use super::*;
    use crate::drive::DriveModel;
    use crate::recall::{RecallFile, extents};

    #[test]
    fn a_move_costs_what_the_whole_order_tells() {
        let drive = DriveModel::LTO_8;
        let geometry = drive.geometry();
        let file = |index: u64| RecallFile {
            name: String::new(),
            begin_bytes: index * 7_919_000_000_000 % 11_900_000_000_000,
            size_bytes: 2_000_000_000,
            requests: 1 + index % 3,
        };
        let files: Vec<RecallFile> = (0..30).map(file).collect();
        for goal in [OrderGoal::DriveTime, OrderGoal::MeanWait] {
            let plan = RecallPlan {
                drive: &drive,
                geometry: &geometry,
                head: geometry.begin_of_tape(),
                files: &files,
                goal,
            };
            let extents = extents(&drive, &geometry, &files);
            let count = extents.len();
            let costs = Costs {
                plan: &plan,
                extents: &extents,
            };
            let tour = Tour::new(&costs, (0..count).collect());
            for (a, b, c) in [
                (0, 1, 2),
                (0, 3, 9),
                (4, 6, count),
                (count - 2, count - 1, count),
            ] {
                let mut order = tour.order.clone();
                order[a..c].rotate_left(b - a);
                assert_eq!(
                    tour.cost + tour.change(a, b, c),
                    costs.of(&order),
                    "{a} {b} {c}"
                );
            }
        }
    }
}
