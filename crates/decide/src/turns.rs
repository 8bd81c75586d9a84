//! Whose turn it is among several that wait, each with a weight: start-time fair queueing.
//!
//! Each has a tag, the virtual time at which its next turn begins; the lowest goes next, and a turn raises the tag by
//! its cost, which is the smaller the larger the weight. Whoever comes back after a pause begins at the present
//! virtual time: nobody can save turns up, and nobody has to make up for those of others. A turn costs the logarithm
//! of how many wait.

use penstock_model::Weight;
use std::collections::{BTreeMap, BTreeSet};

/// What a millisecond costs of virtual time at weight one. Weights have six decimal places and go up to a million, so
/// that every cost is a number with at least six digits.
const COST_OF_ONE: u128 = 1_000_000_000_000;
/// How many that have left are remembered before those without a claim are dropped.
const LEFT_MAX: usize = 64;

/// Those that wait, in the order of their turns.
#[derive(Debug, Clone)]
pub(crate) struct Turns<K> {
    now: u128,
    line: BTreeSet<(u128, K)>,
    tags: BTreeMap<K, u128>,
    /// Where those would go on who wait no longer, and had more than their share.
    left: BTreeMap<K, u128>,
    /// How many of these had a claim when they were last looked at.
    left_with_claim: usize,
}

impl<K> Default for Turns<K> {
    fn default() -> Turns<K> {
        Turns {
            now: 0,
            line: BTreeSet::new(),
            tags: BTreeMap::new(),
            left: BTreeMap::new(),
            left_with_claim: 0,
        }
    }
}

/// What a turn costs that lasts for so many milliseconds.
pub(crate) fn cost(weight: Weight, ms: u64) -> u128 {
    /// A year: what lasts longer is not told apart.
    const MS_MAX: u64 = 365 * 86_400_000;
    // Weights of zero get no turns; nothing is divided by them.
    let of_one = COST_OF_ONE * u128::from(Weight::ONE.millionths());
    of_one / u128::from(weight.millionths().max(1)) * u128::from(ms.min(MS_MAX))
}

impl<K: Ord + Clone> Turns<K> {
    /// Nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Who waits.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &K> {
        self.tags.keys()
    }

    /// Waits from now on.
    pub(crate) fn enter(&mut self, key: &K) {
        if self.tags.contains_key(key) {
            return;
        }
        let tag = self.left.remove(key).unwrap_or(0).max(self.now);
        self.tags.insert(key.clone(), tag);
        self.line.insert((tag, key.clone()));
    }

    /// Waits no longer.
    pub(crate) fn leave(&mut self, key: &K) {
        let Some(tag) = self.tags.remove(key) else {
            return;
        };
        self.line.remove(&(tag, key.clone()));
        self.keep(key, tag);
    }

    /// Whose turn it is.
    pub(crate) fn next(&self) -> Option<&K> {
        self.line.first().map(|(_, key)| key)
    }

    /// This one had a turn, whether it was its own, another's, or taken without waiting.
    pub(crate) fn had(&mut self, key: &K, cost: u128) {
        if let Some((first, _)) = self.line.first() {
            self.now = self.now.max(*first);
        }
        match self.tags.get_mut(key) {
            Some(tag) => {
                self.line.remove(&(*tag, key.clone()));
                *tag += cost;
                self.line.insert((*tag, key.clone()));
            }
            None => {
                let begun = self.left.remove(key).unwrap_or(0).max(self.now);
                self.keep(key, begun + cost);
            }
        }
    }

    /// A turn for which this one was charged has cost something else.
    pub(crate) fn correct(&mut self, key: &K, charged: u128, cost: u128) {
        if let Some(tag) = self.tags.get_mut(key) {
            self.line.remove(&(*tag, key.clone()));
            *tag = (*tag + cost).saturating_sub(charged);
            self.line.insert((*tag, key.clone()));
        } else if let Some(tag) = self.left.remove(key) {
            self.keep(key, (tag + cost).saturating_sub(charged));
        } else if cost > charged {
            self.keep(key, self.now + (cost - charged));
        }
    }

    fn keep(&mut self, key: &K, tag: u128) {
        if tag > self.now {
            self.left.insert(key.clone(), tag);
        }
        // When most of them have a claim, it is not looked at each time anew.
        if self.left.len() > (2 * self.left_with_claim).max(LEFT_MAX) {
            let now = self.now;
            self.left.retain(|_, tag| *tag > now);
            self.left_with_claim = self.left.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(turns: &mut Turns<char>, weights: &[(char, u32)], count: usize) -> String {
        let of = |key: char| {
            weights
                .iter()
                .find(|(one, _)| *one == key)
                .expect("known")
                .1
        };
        let mut order = String::new();
        for _ in 0..count {
            let next = *turns.next().expect("somebody waits");
            turns.had(&next, cost(Weight::whole(of(next)), 1));
            order.push(next);
        }
        order
    }

    #[test]
    fn turns_go_by_weight_and_are_spread() {
        let mut line = Turns::default();
        ['a', 'b'].iter().for_each(|key| line.enter(key));
        assert_eq!(turns(&mut line, &[('a', 3), ('b', 1)], 8), "abaaabaa");
    }

    #[test]
    fn whoever_comes_back_has_saved_nothing_up() {
        let mut line = Turns::default();
        let weights = [('a', 1), ('b', 1)];
        line.enter(&'a');
        turns(&mut line, &weights, 100);
        line.enter(&'b');
        let shared = turns(&mut line, &weights, 10);
        assert!((4..=6).contains(&shared.matches('a').count()), "{shared}");
        line.leave(&'a');
        turns(&mut line, &weights, 100);
        line.enter(&'a');
        let shared = turns(&mut line, &weights, 10);
        assert!((4..=6).contains(&shared.matches('a').count()), "{shared}");
    }

    #[test]
    fn a_turn_that_took_longer_than_expected_is_paid_for() {
        let mut line = Turns::default();
        ['a', 'b'].iter().for_each(|key| line.enter(key));
        let mut held = std::collections::BTreeMap::new();
        for _ in 0..1000 {
            let next = *line.next().expect("somebody waits");
            let expected = cost(Weight::ONE, 10);
            line.had(&next, expected);
            // What 'a' does takes three times as long as expected, what 'b' does half.
            let took = if next == 'a' { 30 } else { 5 };
            line.correct(&next, expected, cost(Weight::ONE, took));
            *held.entry(next).or_insert(0) += took;
        }
        let (a, b) = (held[&'a'] as f64, held[&'b'] as f64);
        assert!((a / b - 1.0).abs() < 0.05, "{held:?}");
    }

    #[test]
    fn leaving_and_coming_back_at_once_gains_nothing() {
        let mut line = Turns::default();
        ['a', 'b'].iter().for_each(|key| line.enter(key));
        let mut order = String::new();
        for _ in 0..10 {
            let next = *line.next().expect("somebody waits");
            line.had(&next, cost(Weight::ONE, 1));
            line.leave(&next);
            line.enter(&next);
            order.push(next);
        }
        assert_eq!(order, "ababababab");
    }
}
