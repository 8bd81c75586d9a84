//! Which mover of a pool runs next, and which must wait.
//!
//! A bounded number of movers runs; the others wait in a bounded queue, first come first served inside a
//! VO, and the VOs take turns, so that one VO's flood cannot starve another. Nothing is refused while the
//! queue has room. A pure data structure: it knows tickets, not sockets.

use crate::Decision;
use penstock_model::VoName;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// The bounds of `Retry-After`: long enough to matter, short enough that a freed pool is found again.
const RETRY_AFTER_SECONDS: std::ops::RangeInclusive<u64> = 1..=60;

/// How many movers a pool runs, and how many may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLimits {
    /// Running at once.
    pub movers_max: u32,
    /// Waiting at once.
    pub queue_max: u32,
}

impl Default for QueueLimits {
    fn default() -> Self {
        QueueLimits {
            movers_max: 100,
            queue_max: 1000,
        }
    }
}

/// One mover that runs or waits. Given by the caller, never twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What happens to a mover that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It runs now.
    Start,
    /// It waits until [`MoverQueue::leave`] names it.
    Wait,
    /// It cannot wait either; trying again is worth it after this many seconds.
    Refuse {
        /// For `Retry-After`.
        retry_after_seconds: u64,
    },
}

/// Why a mover runs, waits or is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum AdmissionReason {
    /// A slot was free.
    SlotFree {
        /// Running, this one included.
        active: u32,
        /// May run.
        movers_max: u32,
    },
    /// All slots are taken.
    SlotsTaken {
        /// Running.
        active: u32,
        /// May run.
        movers_max: u32,
        /// Waiting, this one included.
        queued: u32,
    },
    /// All slots are taken and the queue is full.
    QueueFull {
        /// Waiting.
        queued: u32,
        /// May wait.
        queue_max: u32,
    },
}

impl fmt::Display for AdmissionReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdmissionReason::SlotFree { active, movers_max } => {
                write!(out, "a mover slot was free: {active} of {movers_max} run")
            }
            AdmissionReason::SlotsTaken {
                active,
                movers_max,
                queued,
            } => write!(out, "{active} of {movers_max} movers run, {queued} wait"),
            AdmissionReason::QueueFull { queued, queue_max } => {
                write!(out, "{queued} of {queue_max} movers wait; try again later")
            }
        }
    }
}

/// The movers of one pool: how many run, and who waits.
#[derive(Debug, Default)]
pub struct MoverQueue {
    limits: QueueLimits,
    active: u32,
    /// Waiting tickets per VO; only VOs with waiting tickets are present. `None`: nobody was authenticated.
    waiting: BTreeMap<Option<VoName>, VecDeque<Ticket>>,
    queued: u32,
    /// The VO that was served last; the next one in order comes next.
    served_last: Option<Option<VoName>>,
}

impl MoverQueue {
    /// An empty queue.
    pub fn new(limits: QueueLimits) -> MoverQueue {
        MoverQueue {
            limits,
            ..MoverQueue::default()
        }
    }

    /// Movers that run.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// Movers that wait.
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// The bounds in effect.
    pub fn limits(&self) -> QueueLimits {
        self.limits
    }

    /// A mover that arrives now would be refused.
    pub fn is_full(&self) -> bool {
        self.queued >= self.limits.queue_max && self.active >= self.limits.movers_max
    }

    /// A mover asks to run. `mean_duration` of the movers that ended lately makes the `Retry-After` of a
    /// refusal.
    pub fn arrive(
        &mut self,
        ticket: Ticket,
        vo: Option<&VoName>,
        mean_duration: Duration,
    ) -> Decision<Admission, AdmissionReason> {
        let QueueLimits {
            movers_max,
            queue_max,
        } = self.limits;
        // While others wait nobody overtakes them, even when a slot has just become free.
        if self.active < movers_max && self.queued == 0 {
            self.active += 1;
            let active = self.active;
            return Decision::new(
                Admission::Start,
                AdmissionReason::SlotFree { active, movers_max },
            );
        }
        if self.queued >= queue_max {
            let retry_after_seconds = self.retry_after_seconds(mean_duration);
            let queued = self.queued;
            return Decision::new(
                Admission::Refuse {
                    retry_after_seconds,
                },
                AdmissionReason::QueueFull { queued, queue_max },
            );
        }
        self.waiting
            .entry(vo.cloned())
            .or_default()
            .push_back(ticket);
        self.queued += 1;
        Decision::new(
            Admission::Wait,
            AdmissionReason::SlotsTaken {
                active: self.active,
                movers_max,
                queued: self.queued,
            },
        )
    }

    /// A running mover has ended. Names the ones that run now; they count as running from here on.
    pub fn leave(&mut self) -> Vec<Ticket> {
        self.active = self.active.saturating_sub(1);
        self.start_waiting()
    }

    /// A waiting mover is no longer wanted. True when it was waiting; false when it runs already (then it
    /// must [`MoverQueue::leave`]) or is unknown.
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        let found = self.waiting.iter_mut().find_map(|(vo, tickets)| {
            let at = tickets.iter().position(|waiting| *waiting == ticket)?;
            tickets.remove(at);
            Some((vo.clone(), tickets.is_empty()))
        });
        let Some((vo, emptied)) = found else {
            return false;
        };
        if emptied {
            self.waiting.remove(&vo);
        }
        self.queued -= 1;
        true
    }

    /// Changes the bounds. Names movers that run now because there are more slots; running movers are
    /// never stopped.
    pub fn set_limits(&mut self, limits: QueueLimits) -> Vec<Ticket> {
        self.limits = limits;
        self.start_waiting()
    }

    fn start_waiting(&mut self) -> Vec<Ticket> {
        let mut started = Vec::new();
        while self.active < self.limits.movers_max {
            let Some(ticket) = self.take_next() else {
                break;
            };
            self.active += 1;
            started.push(ticket);
        }
        started
    }

    /// The oldest ticket of the VO whose turn it is.
    fn take_next(&mut self) -> Option<Ticket> {
        use std::ops::Bound;
        let after = self.served_last.as_ref().and_then(|last| {
            let later = (Bound::Excluded(last), Bound::Unbounded);
            self.waiting.range::<Option<VoName>, _>(later).next()
        });
        let vo = after.or_else(|| self.waiting.iter().next())?.0.clone();
        let tickets = self.waiting.get_mut(&vo)?;
        let ticket = tickets.pop_front();
        if tickets.is_empty() {
            self.waiting.remove(&vo);
        }
        self.queued -= u32::from(ticket.is_some());
        self.served_last = Some(vo);
        ticket
    }

    /// When the queue will have moved on by its own length, at the pace of late.
    fn retry_after_seconds(&self, mean_duration: Duration) -> u64 {
        let rounds = u64::from(self.queued) / u64::from(self.limits.movers_max.max(1)) + 1;
        let seconds = mean_duration.as_secs().saturating_mul(rounds);
        seconds.clamp(*RETRY_AFTER_SECONDS.start(), *RETRY_AFTER_SECONDS.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(movers_max: u32, queue_max: u32) -> QueueLimits {
        QueueLimits {
            movers_max,
            queue_max,
        }
    }

    fn arrive(queue: &mut MoverQueue, ticket: u64, vo: &str) -> Admission {
        queue
            .arrive(Ticket(ticket), Some(&VoName::new(vo)), SECOND)
            .choice
    }

    #[test]
    fn movers_run_up_to_the_limit_then_wait_then_are_refused() {
        let mut queue = MoverQueue::new(limits(2, 1));
        assert_eq!(arrive(&mut queue, 1, "a"), Admission::Start);
        assert_eq!(arrive(&mut queue, 2, "a"), Admission::Start);
        assert_eq!(arrive(&mut queue, 3, "a"), Admission::Wait);
        assert!(queue.is_full());
        assert_eq!(
            arrive(&mut queue, 4, "a"),
            Admission::Refuse {
                retry_after_seconds: 1
            }
        );
        assert_eq!(queue.leave(), [Ticket(3)]);
        assert_eq!((queue.active(), queue.queued()), (2, 0));
    }

    #[test]
    fn a_flood_of_one_vo_does_not_hold_up_another() {
        let mut queue = MoverQueue::new(limits(1, 100));
        assert_eq!(arrive(&mut queue, 0, "flood"), Admission::Start);
        for ticket in 1..=10 {
            arrive(&mut queue, ticket, "flood");
        }
        arrive(&mut queue, 11, "quiet");
        arrive(&mut queue, 12, "quiet");
        let order: Vec<u64> = (0..5)
            .flat_map(|_| queue.leave())
            .map(|ticket| ticket.0)
            .collect();
        assert_eq!(order, [1, 11, 2, 12, 3]);
    }

    #[test]
    fn a_mover_that_gives_up_waiting_gives_its_place_back() {
        let mut queue = MoverQueue::new(limits(1, 2));
        arrive(&mut queue, 1, "a");
        arrive(&mut queue, 2, "a");
        arrive(&mut queue, 3, "b");
        assert!(queue.withdraw(Ticket(2)));
        assert!(!queue.withdraw(Ticket(2)) && !queue.withdraw(Ticket(1)));
        assert_eq!(arrive(&mut queue, 4, "a"), Admission::Wait);
        let order: Vec<u64> = (0..2)
            .flat_map(|_| queue.leave())
            .map(|ticket| ticket.0)
            .collect();
        assert_eq!(order, [4, 3]);
        assert_eq!(queue.leave(), []);
        assert_eq!(queue.leave(), []);
        assert_eq!((queue.active(), queue.queued()), (0, 0));
    }

    #[test]
    fn more_slots_start_waiting_movers_and_fewer_stop_none() {
        let mut queue = MoverQueue::new(limits(1, 10));
        (1..=4).for_each(|ticket| {
            arrive(&mut queue, ticket, "a");
        });
        assert_eq!(queue.set_limits(limits(3, 10)), [Ticket(2), Ticket(3)]);
        assert_eq!(queue.set_limits(limits(1, 10)), []);
        assert_eq!(queue.leave(), []);
        assert_eq!(queue.leave(), []);
        assert_eq!(queue.leave(), [Ticket(4)]);
    }

    #[test]
    fn nobody_overtakes_those_who_wait() {
        let mut queue = MoverQueue::new(limits(0, 10));
        assert_eq!(arrive(&mut queue, 1, "a"), Admission::Wait);
        assert_eq!(queue.set_limits(limits(1, 10)), [Ticket(1)]);
        assert_eq!(arrive(&mut queue, 2, "b"), Admission::Wait);
    }

    #[test]
    fn retry_after_follows_the_pace_and_stays_in_bounds() {
        let mut queue = MoverQueue::new(limits(1, 3));
        (0..4).for_each(|ticket| {
            arrive(&mut queue, ticket, "a");
        });
        let refused = |queue: &mut MoverQueue, mean| queue.arrive(Ticket(9), None, mean).choice;
        let after = |seconds| Admission::Refuse {
            retry_after_seconds: seconds,
        };
        assert_eq!(refused(&mut queue, Duration::ZERO), after(1));
        assert_eq!(refused(&mut queue, Duration::from_secs(5)), after(20));
        assert_eq!(refused(&mut queue, Duration::from_secs(500)), after(60));
    }
}
