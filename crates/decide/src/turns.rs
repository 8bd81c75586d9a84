//! Whose turn it is among several that wait, each with a weight: start-time fair queueing.
//!
//! Each has a tag, the virtual time at which its next turn begins; the lowest goes next, and a turn raises the tag by
//! its cost, which is the smaller the larger the weight. A turn costs what it is expected to last until it has ended, and
//! then what it lasted. Whoever comes, or comes back after a pause, begins beside the first in line: nobody can save turns
//! up, and nobody has to make up for those of others. A refund for an over-estimated turn that began before a newcomer
//! arrived may move its owner back to the newcomer's tag at most. A turn costs the logarithm of how many wait.

use penstock_model::Weight;
use std::collections::{BTreeMap, BTreeSet};

/// What a millisecond costs of virtual time at weight one. Weights have six decimal places and go up to a million, so
/// that every cost is a number with at least six digits.
const COST_OF_ONE: u128 = 1_000_000_000_000;
/// How many debtors are remembered before those whose debt is over are dropped.
const DEBTORS_MAX: usize = 64;
/// A year in milliseconds: what lasts longer is not told apart.
const MS_MAX: u64 = 365 * 86_400_000;

/// A turn that somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrantedTurn {
    /// Its number, in the order in which turns begin, from 1 on.
    pub(crate) number: u64,
    /// What it costs until it has ended.
    pub(crate) expected_ms: u64,
}

/// The turns of one key that were charged and have not ended.
#[derive(Debug, Clone, Copy)]
struct RunningTurns {
    count: u64,
    /// The first of them since there was none.
    first: u64,
    /// The latest arrival when this key was last examined.
    latest_arrival: LatestArrival,
    /// How far this key's tag then exceeded that arrival's: the most that may be refunded for older turns.
    refund_max: u128,
}

/// The newest key that joined others: its first tag, and the latest turn before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LatestArrival {
    tag: u128,
    after: u64,
}

/// Those that wait, in the order of their turns.
#[derive(Debug, Clone)]
pub(crate) struct Turns<K> {
    now: u128,
    /// The latest turn.
    latest: u64,
    line: BTreeSet<(u128, K)>,
    tags: BTreeMap<K, u128>,
    running: BTreeMap<K, RunningTurns>,
    latest_arrival: LatestArrival,
    /// Keys that no longer wait and have had more than their share, with the tags at which they would go on.
    debtors: BTreeMap<K, u128>,
    /// How many of them were still in debt when they were last counted.
    debtors_in_debt: usize,
}

impl<K> Default for Turns<K> {
    fn default() -> Turns<K> {
        Turns {
            now: 0,
            latest: 0,
            line: BTreeSet::new(),
            tags: BTreeMap::new(),
            running: BTreeMap::new(),
            latest_arrival: LatestArrival::default(),
            debtors: BTreeMap::new(),
            debtors_in_debt: 0,
        }
    }
}

/// What so many milliseconds of a turn cost.
fn cost(weight: Weight, ms: u64) -> u128 {
    // Weights of zero get no turns; nothing is divided by them.
    let of_one = COST_OF_ONE * u128::from(Weight::ONE.millionths());
    of_one / u128::from(weight.millionths().max(1)) * u128::from(ms.min(MS_MAX))
}

impl<K: Ord + Clone> Turns<K> {
    /// Nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &K> {
        self.tags.keys()
    }

    /// Waits from now on.
    pub(crate) fn enter(&mut self, key: &K) {
        if self.tags.contains_key(key) {
            return;
        }
        // When all are before it, the present time was one of expectations.
        let last = self.line.last().map(|(tag, _)| *tag);
        let present = last.map_or(self.now, |last| last.min(self.now));
        let claimed = self.debtors.remove(key).unwrap_or(0);
        // Others are those in line, and those who wait for nothing more but still have turns.
        let is_alone = last.is_none() && self.running.is_empty();
        if !is_alone && claimed <= present {
            self.latest_arrival = LatestArrival {
                tag: present,
                after: self.latest,
            };
        }
        let tag = claimed.max(present);
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

    /// These are gone for good: who has their names from now on is somebody else, and has no claims of theirs.
    pub(crate) fn forget(&mut self, gone: &BTreeSet<K>) {
        self.line.retain(|(_, key)| !gone.contains(key));
        self.tags.retain(|key, _| !gone.contains(key));
        self.running.retain(|key, _| !gone.contains(key));
        self.debtors.retain(|key, _| !gone.contains(key));
    }

    /// Whose turn it is.
    pub(crate) fn next(&self) -> Option<&K> {
        self.line.first().map(|(_, key)| key)
    }

    /// Who waits, in the order of their turns.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &K> {
        self.line.iter().map(|(_, key)| key)
    }

    /// This one has a turn, whether it was its own, another's, or taken without waiting.
    pub(crate) fn had(&mut self, key: &K, weight: Weight, turn: GrantedTurn) {
        if let Some((first, _)) = self.line.first() {
            self.now = self.now.max(*first);
        }
        self.latest = self.latest.max(turn.number);
        let running = self.running.entry(key.clone()).or_insert(RunningTurns {
            count: 0,
            first: turn.number,
            latest_arrival: LatestArrival::default(),
            refund_max: 0,
        });
        running.count += 1;
        self.note_latest_arrival(key);
        let cost = cost(weight, turn.expected_ms);
        match self.tags.get(key) {
            Some(tag) => self.move_to(key, *tag, tag + cost),
            None => {
                let begun = self.debtors.remove(key).unwrap_or(0).max(self.now);
                self.keep(key, begun + cost);
            }
        }
    }

    /// A turn has ended and has lasted for so long.
    pub(crate) fn ended(&mut self, key: &K, weight: Weight, turn: GrantedTurn, lasted_ms: u64) {
        self.note_latest_arrival(key);
        // What was not counted here, because weights have changed since or nobody waited, is not given back here.
        let counted = self.running.get_mut(key);
        let Some(running) = counted.filter(|running| turn.number >= running.first) else {
            return;
        };
        let (charged, cost) = (cost(weight, turn.expected_ms), cost(weight, lasted_ms));
        let mut given_back = charged.saturating_sub(cost);
        if turn.number <= running.latest_arrival.after {
            given_back = given_back.min(running.refund_max);
            running.refund_max -= given_back;
        }
        running.count -= 1;
        if running.count == 0 {
            self.running.remove(key);
        }
        let more = cost.saturating_sub(charged);
        let corrected = |tag: u128| (tag + more).saturating_sub(given_back);
        if let Some(&tag) = self.tags.get(key) {
            self.move_to(key, tag, corrected(tag));
        } else if let Some(tag) = self.debtors.remove(key) {
            self.keep(key, corrected(tag));
        } else if more > 0 {
            self.keep(key, self.now + more);
        }
    }

    /// Remembers how far the tag of a key with running turns exceeds the latest arrival's, before it changes.
    fn note_latest_arrival(&mut self, key: &K) {
        let Some(running) = self.running.get_mut(key) else {
            return;
        };
        if running.latest_arrival == self.latest_arrival {
            return;
        }
        let tag = self.tags.get(key).or_else(|| self.debtors.get(key));
        running.refund_max = tag.map_or(0, |tag| tag.saturating_sub(self.latest_arrival.tag));
        running.latest_arrival = self.latest_arrival;
    }

    fn move_to(&mut self, key: &K, from: u128, to: u128) {
        self.line.remove(&(from, key.clone()));
        self.line.insert((to, key.clone()));
        self.tags.insert(key.clone(), to);
    }

    fn keep(&mut self, key: &K, tag: u128) {
        if tag > self.now {
            self.debtors.insert(key.clone(), tag);
        }
        // When most of them have a claim, it is not looked at each time anew.
        if self.debtors.len() > (2 * self.debtors_in_debt).max(DEBTORS_MAX) {
            let now = self.now;
            self.debtors.retain(|_, tag| *tag > now);
            self.debtors_in_debt = self.debtors.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: GrantedTurn = GrantedTurn {
        number: 2,
        expected_ms: 1000,
    };

    /// Turns that last as long as expected.
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
            let weight = Weight::whole(of(next));
            turns.had(&next, weight, SECOND);
            turns.ended(&next, weight, SECOND, 1000);
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
        let mut held = BTreeMap::new();
        for _ in 0..1000 {
            let next = *line.next().expect("somebody waits");
            line.had(&next, Weight::ONE, SECOND);
            // What 'a' does takes three times as long as expected, what 'b' does half.
            let took = if next == 'a' { 3000 } else { 500 };
            line.ended(&next, Weight::ONE, SECOND, took);
            *held.entry(next).or_insert(0) += took;
        }
        let (a, b) = (held[&'a'] as f64, held[&'b'] as f64);
        assert!((a / b - 1.0).abs() < 0.05, "{held:?}");
    }

    #[test]
    fn whoever_comes_pays_nothing_for_what_was_expected_wrongly_of_others() {
        let hour = |number| GrantedTurn {
            number,
            expected_ms: 3_600_000,
        };
        for ends_before in [0, 10, 30] {
            let mut line = Turns::default();
            line.enter(&'a');
            (0..30).for_each(|_| line.had(&'a', Weight::ONE, hour(1)));
            // They last for three seconds each; some end before somebody comes.
            (0..ends_before).for_each(|_| line.ended(&'a', Weight::ONE, hour(1), 3_000));
            line.enter(&'b');
            (ends_before..30).for_each(|_| line.ended(&'a', Weight::ONE, hour(1), 3_000));
            let shared = turns(&mut line, &[('a', 1), ('b', 1)], 40);
            assert_eq!(shared.matches('b').count(), 20, "{ends_before}: {shared}");
        }
    }

    #[test]
    fn what_is_given_back_of_before_takes_nothing_off_what_came_afterwards() {
        let mut line = Turns::default();
        let hour = |number| GrantedTurn {
            number,
            expected_ms: 3_600_000,
        };
        line.enter(&'a');
        (1..=20).for_each(|number| line.had(&'a', Weight::ONE, hour(number)));
        line.enter(&'b');
        // Each that ends makes room for another one, of which as much too much is expected.
        let mut lasting: Vec<(char, u64)> = (1..=20).map(|number| ('a', number)).collect();
        let mut begun = BTreeMap::new();
        for number in 21..=220 {
            let (key, ended) = lasting.remove(0);
            line.ended(&key, Weight::ONE, hour(ended), 3_000);
            let next = *line.next().expect("somebody waits");
            line.had(&next, Weight::ONE, hour(number));
            *begun.entry(next).or_insert(0) += 1;
            lasting.push((next, number));
        }
        let b: i32 = begun[&'b'];
        assert!((95..=115).contains(&b), "{begun:?}");
    }

    #[test]
    fn whoever_comes_while_all_others_wait_for_nothing_more_is_not_passed_for_what_was_expected_of_them()
     {
        let mut line = Turns::default();
        let hour = GrantedTurn {
            number: 1,
            expected_ms: 3_600_000,
        };
        line.enter(&'a');
        (0..20).for_each(|_| line.had(&'a', Weight::ONE, hour));
        line.leave(&'a');
        line.enter(&'b');
        line.enter(&'a');
        (0..20).for_each(|_| line.ended(&'a', Weight::ONE, hour, 3_000));
        let shared = turns(&mut line, &[('a', 1), ('b', 1)], 40);
        assert_eq!(shared.matches('b').count(), 20, "{shared}");
    }

    #[test]
    fn what_was_expected_wrongly_while_both_waited_is_made_up_for() {
        let mut line = Turns::default();
        ['a', 'b'].iter().for_each(|key| line.enter(key));
        let minute = GrantedTurn {
            number: 1,
            expected_ms: 60_000,
        };
        line.had(&'a', Weight::ONE, minute);
        // Meanwhile it is always the other's turn.
        assert_eq!(turns(&mut line, &[('b', 1)], 20), "b".repeat(20));
        line.ended(&'a', Weight::ONE, minute, 1_000);
        assert_eq!(turns(&mut line, &[('a', 1)], 19), "a".repeat(19));
    }

    #[test]
    fn what_was_not_counted_is_not_given_back() {
        let mut line = Turns::default();
        ['a', 'b'].iter().for_each(|key| line.enter(key));
        turns(&mut line, &[('a', 1), ('b', 1)], 100);
        (0..10).for_each(|_| line.ended(&'a', Weight::ONE, SECOND, 1));
        let shared = turns(&mut line, &[('a', 1), ('b', 1)], 10);
        assert_eq!(shared.matches('a').count(), 5, "{shared}");
    }

    #[test]
    fn leaving_and_coming_back_at_once_gains_nothing() {
        let mut line = Turns::default();
        ['a', 'b'].iter().for_each(|key| line.enter(key));
        let mut order = String::new();
        for _ in 0..10 {
            let next = *line.next().expect("somebody waits");
            line.had(&next, Weight::ONE, SECOND);
            line.leave(&next);
            line.enter(&next);
            order.push(next);
        }
        assert_eq!(order, "ababababab");
    }
}
