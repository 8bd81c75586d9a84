//! Cuts a series into segments of one level each.

use super::{DROP_BINS_MIN, SIGMA_MIN, median};
use std::ops::Range;

/// Sums are compared so many at once.
const LANES: usize = 4;
/// Values that are compared at a distance are taken from a window of so many times the distance.
const BINS_PER_LAG_MIN: usize = 8;

/// Optimal segments under a penalty for each (PELT: Killick, Fearnhead, Eckley 2012), squared error, BIC.
pub(super) fn segment(values: &[f64], sigma: f64) -> Vec<Range<usize>> {
    let n = values.len();
    if n < 2 * DROP_BINS_MIN {
        return std::iter::once(0..n)
            .filter(|whole| !whole.is_empty())
            .collect();
    }
    let penalty = 2.0 * sigma * sigma * (n as f64).ln();
    let (mut sums, mut squares) = (vec![0.0; n + 1], vec![0.0; n + 1]);
    for (n, value) in values.iter().enumerate() {
        sums[n + 1] = sums[n] + value;
        squares[n + 1] = squares[n] + value * value;
    }
    let mut best = vec![f64::INFINITY; n + 1];
    let mut last = vec![0; n + 1];
    best[0] = -penalty;
    let mut begins = Begins::default();
    for to in DROP_BINS_MIN..=n {
        let from = to - DROP_BINS_MIN;
        // Before a segment that begins there is none, or a whole one.
        if from == 0 || from >= DROP_BINS_MIN {
            begins.push(from, best[from], sums[from], squares[from]);
        }
        begins.weigh(to, sums[to], squares[to], penalty);
        (best[to], last[to]) = begins.least();
        begins.prune(penalty, best[to]);
    }
    let mut ends = Vec::new();
    let mut to = n;
    while to > 0 {
        ends.push(last[to]..to);
        to = last[to];
    }
    ends.reverse();
    ends
}

/// Where the last segment may begin, column by column: a processor then weighs several at once. Of a series of a day without a
/// change there are hundreds at each of its bins.
#[derive(Debug, Default)]
struct Begins {
    at: Vec<usize>,
    /// The same, to be computed with.
    place: Vec<f64>,
    /// The least cost of all before.
    best: Vec<f64>,
    sums: Vec<f64>,
    squares: Vec<f64>,
    /// The cost up to the end that was weighed last.
    totals: Vec<f64>,
}

impl Begins {
    fn push(&mut self, at: usize, best: f64, sum: f64, square: f64) {
        self.at.push(at);
        self.place.push(at as f64);
        self.best.push(best);
        self.sums.push(sum);
        self.squares.push(square);
    }

    fn weigh(&mut self, to: usize, sum: f64, square: f64, penalty: f64) {
        let to = to as f64;
        let sums = self.place.iter().zip(&self.sums);
        let costs = self.best.iter().zip(&self.squares);
        self.totals.clear();
        self.totals
            .extend(sums.zip(costs).map(|((from, before), (best, squares))| {
                let sum = sum - before;
                best + (square - squares - sum * sum / (to - from)) + penalty
            }));
    }

    /// The least cost and where the last segment begins then, of equals the earliest.
    fn least(&self) -> (f64, usize) {
        let (lanes, rest) = self.totals.as_chunks::<LANES>();
        let mut least = [f64::INFINITY; LANES];
        for lane in lanes {
            for (least, total) in least.iter_mut().zip(lane) {
                *least = if *total < *least { *total } else { *least };
            }
        }
        let least = least.iter().chain(rest);
        let least = least.copied().fold(f64::INFINITY, f64::min);
        let place = self.totals.iter().position(|total| *total == least);
        (least, place.map_or(0, |place| self.at[place]))
    }

    /// Forgets those that no later end can make the best.
    fn prune(&mut self, penalty: f64, best: f64) {
        let may_be_best = |total: f64| total - penalty <= best;
        if self.totals.iter().all(|total| may_be_best(*total)) {
            return;
        }
        let mut kept = 0;
        for place in 0..self.totals.len() {
            if may_be_best(self.totals[place]) {
                self.at[kept] = self.at[place];
                self.place[kept] = self.place[place];
                self.best[kept] = self.best[place];
                self.sums[kept] = self.sums[place];
                self.squares[kept] = self.squares[place];
                kept += 1;
            }
        }
        self.at.truncate(kept);
        self.place.truncate(kept);
        self.best.truncate(kept);
        self.sums.truncate(kept);
        self.squares.truncate(kept);
    }
}

/// The noise from bin to bin: from differences, which steps of the level hardly touch, made larger when neighbours are
/// alike, because segments would follow slow noise. In a short window a step is in most differences of bins far apart, so
/// that these would hide it.
pub(super) fn sigma(values: &[f64]) -> f64 {
    let steps = |lag: usize| {
        let steps = values
            .windows(lag + 1)
            .map(|pair| (pair[lag] - pair[0]).abs());
        median(steps).unwrap_or(0.0) * 1.4826 / std::f64::consts::SQRT_2
    };
    let lags = [1, 3, 7].into_iter();
    let lags = lags.filter(|lag| *lag == 1 || lag * BINS_PER_LAG_MIN <= values.len());
    lags.map(steps).fold(SIGMA_MIN, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, begin by begin: what the columns must give.
    fn one_by_one(values: &[f64], sigma: f64) -> Vec<Range<usize>> {
        let n = values.len();
        let penalty = 2.0 * sigma * sigma * (n as f64).ln();
        let (mut sums, mut squares) = (vec![0.0], vec![0.0]);
        for (n, value) in values.iter().enumerate() {
            sums.push(sums[n] + value);
            squares.push(squares[n] + value * value);
        }
        let cost = |from: usize, to: usize| {
            let sum: f64 = sums[to] - sums[from];
            squares[to] - squares[from] - sum * sum / (to - from) as f64
        };
        let mut best = vec![(f64::INFINITY, 0); n + 1];
        best[0] = (-penalty, 0);
        let mut begins = vec![0];
        for to in DROP_BINS_MIN..=n {
            let long = |from: &usize| to - *from >= DROP_BINS_MIN;
            let total = |from: usize| best[from].0 + cost(from, to) + penalty;
            let totals: Vec<(f64, usize)> = begins
                .iter()
                .filter(|from| long(from))
                .map(|from| (total(*from), *from))
                .collect();
            for (total, from) in totals {
                if total < best[to].0 {
                    best[to] = (total, from);
                }
            }
            let kept = |from: &usize| {
                !long(from) || best[*from].0 + cost(*from, to) + penalty - penalty <= best[to].0
            };
            begins.retain(kept);
            begins.push(to);
        }
        let (mut ends, mut to) = (Vec::new(), n);
        while to > 0 {
            ends.push(best[to].1..to);
            to = best[to].1;
        }
        ends.reverse();
        ends
    }

    #[test]
    fn segments_are_those_that_are_found_begin_by_begin() {
        let mut state = 1_u64;
        let mut noise = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f64 / (1 << 24) as f64 - 0.5
        };
        for length in [4, 5, 7, 64, 300] {
            for step in [0.0, 0.3, 2.0] {
                let level = |n: usize| step * ((n / 37) % 3) as f64;
                let values: Vec<f64> = (0..length).map(|n| level(n) + noise()).collect();
                let found = segment(&values, sigma(&values));
                assert_eq!(
                    found,
                    one_by_one(&values, sigma(&values)),
                    "{length} {step}"
                );
                assert_eq!(found.last().map(|last| last.end), Some(length));
            }
        }
    }
}
