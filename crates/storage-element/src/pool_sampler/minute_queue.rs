//! Minutes of pools until the namespace has recorded them. It is read from their rows whether pools were looked at, so that
//! a minute that was only not written must not look like one in which nobody looked.

use penstock_model::PoolSamples;
use std::collections::VecDeque;

/// Minutes that wait at most; the oldest of more become one interval.
const MINUTES_MAX: usize = 120;
/// Pools in all of these together at most, some tens of MB.
const POOL_MINUTES_MAX: usize = 20_000;

/// The oldest first.
#[derive(Default)]
pub(super) struct MinuteQueue {
    minutes: VecDeque<PoolSamples>,
    /// The first one has been handed to the namespace, which has not answered yet.
    is_writing: bool,
    /// The namespace did not take one: it is asked again when another minute is over.
    waits: bool,
}

impl MinuteQueue {
    /// Adds a minute that is over.
    pub(super) fn push(&mut self, minute: PoolSamples) {
        self.waits = false;
        let most = MINUTES_MAX.min(POOL_MINUTES_MAX / minute.pools.len().max(1));
        self.minutes.push_back(minute);
        let oldest = usize::from(self.is_writing);
        while self.minutes.len() > most.max(oldest + 2) {
            let Some(later) = self.minutes.remove(oldest + 1) else {
                return;
            };
            if let Some(earlier) = self.minutes.get_mut(oldest) {
                earlier.add(&later);
            }
        }
    }

    /// The minute that is to be handed over now.
    pub(super) fn begin_next(&mut self) -> Option<PoolSamples> {
        let next = self
            .minutes
            .front()
            .filter(|_| !self.is_writing && !self.waits);
        let next = next.cloned()?;
        self.is_writing = true;
        Some(next)
    }

    /// The one that was handed over is recorded.
    pub(super) fn recorded(&mut self) {
        if std::mem::take(&mut self.is_writing) {
            self.minutes.pop_front();
        }
    }

    /// It was not taken.
    pub(super) fn refused(&mut self) {
        self.is_writing = false;
        self.waits = true;
    }

    /// All that nobody has been handed, at the end.
    pub(super) fn take_rest(&mut self) -> VecDeque<PoolSamples> {
        let handed = usize::from(self.is_writing).min(self.minutes.len());
        self.minutes.split_off(handed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{PoolName, PoolSample, Timestamp};

    const MINUTE: i64 = 60_000;

    fn minute(number: i64) -> PoolSamples {
        PoolSamples {
            from: Timestamp(number * MINUTE),
            to: Timestamp((number + 1) * MINUTE),
            pools: vec![PoolSample {
                looks: 60,
                ..PoolSample::new(PoolName::new("a"))
            }],
            tape: None,
        }
    }

    #[test]
    fn minutes_that_the_namespace_did_not_take_are_recorded_in_order_when_it_takes_them() {
        let (mut queue, mut recorded) = (MinuteQueue::default(), Vec::new());
        for second in 0..20 * 60 {
            if second % 60 == 0 {
                queue.push(minute(second / 60));
            }
            let Some(next) = queue.begin_next() else {
                continue;
            };
            // Its disk is full for nine minutes.
            match (300..840).contains(&second) {
                true => queue.refused(),
                false => {
                    queue.recorded();
                    recorded.push(next);
                }
            }
        }
        assert_eq!(recorded, (0..20).map(minute).collect::<Vec<_>>());
    }

    #[test]
    fn a_namespace_that_takes_nothing_is_asked_once_a_minute_and_not_while_it_has_not_answered() {
        let mut queue = MinuteQueue::default();
        queue.push(minute(0));
        assert!(queue.begin_next().is_some() && queue.begin_next().is_none());
        queue.refused();
        assert_eq!(queue.begin_next(), None);
        queue.push(minute(1));
        assert_eq!(queue.begin_next(), Some(minute(0)));
        assert_eq!(queue.take_rest(), [minute(1)]);
    }

    #[test]
    fn of_many_minutes_the_oldest_become_one_interval_and_none_is_lost() {
        let mut queue = MinuteQueue::default();
        let many = MINUTES_MAX as i64 + 30;
        for number in 0..many {
            queue.push(minute(number));
            if number == 0 {
                queue.begin_next();
            }
        }
        assert_eq!(queue.minutes.len(), MINUTES_MAX);
        assert_eq!(queue.minutes[0], minute(0));
        let ends = (queue.minutes[1].from, queue.minutes[1].to);
        assert_eq!(ends, (Timestamp(MINUTE), Timestamp(32 * MINUTE)));
        assert_eq!(queue.minutes[1].pools[0].looks, 31 * 60);
    }
}
