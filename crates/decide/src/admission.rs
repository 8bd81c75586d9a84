//! Which mover of a pool runs next, which must wait, and which one ends so that somebody else is served.
//!
//! A bounded number of movers runs; the others wait in a bounded queue. VOs take turns; inside a VO the user with the
//! fewest running movers comes first. No user may hold all slots, and those who have not said who they are share a
//! fixed part. When the queue is full, the user who waits most often makes room. Which mover ends for another is in
//! `preemption`.
//!
//! A pure data structure: it knows movers, not sockets.

mod preemption;

pub use preemption::{PreemptionGroup, PreemptionReason};

use crate::Decision;
use core::net::IpAddr;
use penstock_model::{UserName, VoName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// The bounds of `Retry-After`: long enough to matter, short enough that a freed pool is found again.
const RETRY_AFTER_SECONDS: std::ops::RangeInclusive<u64> = 1..=60;
/// One part in so many of the slots stays free of any one user, and is the part of all anonymous clients.
const SHARE_PARTS: u32 = 4;

/// How many movers a pool runs, and how many may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLimits {
    /// Running at once.
    pub movers_max: u32,
    /// Waiting at once.
    pub queue_max: u32,
    /// Running at once for one user. `None`: three quarters of `movers_max`.
    pub movers_per_user_max: Option<u32>,
    /// Running at once for all anonymous clients together. `None`: a quarter of `movers_max`.
    pub movers_anonymous_max: Option<u32>,
}

impl QueueLimits {
    /// What one user may hold.
    pub fn per_user_max(&self) -> u32 {
        let share = self.movers_max - self.movers_max / SHARE_PARTS;
        self.movers_per_user_max
            .unwrap_or(share)
            .min(self.movers_max)
    }

    /// What all anonymous clients may hold together.
    pub fn anonymous_max(&self) -> u32 {
        let share = (self.movers_max / SHARE_PARTS).max(1);
        self.movers_anonymous_max
            .unwrap_or(share)
            .min(self.movers_max)
    }
}

impl Default for QueueLimits {
    fn default() -> Self {
        QueueLimits {
            movers_max: 100,
            queue_max: 1000,
            movers_per_user_max: None,
            movers_anonymous_max: None,
        }
    }
}

/// One mover that runs or waits. Given by the caller, never twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoverNumber(pub u64);

/// Who wants a mover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester {
    /// On whose behalf.
    pub vo: Option<VoName>,
    /// `None`: anonymous.
    pub user: Option<UserName>,
    /// The client's IPv4 address, or its IPv6 network of 64 bits.
    pub address: IpAddr,
}

impl Requester {
    fn holder(&self) -> Holder {
        match &self.user {
            Some(user) => Holder::User(user.clone()),
            None => Holder::Anonymous(self.address),
        }
    }
}

/// To whom movers are counted: a user wherever they come from; somebody anonymous by their address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    User(UserName),
    Anonymous(IpAddr),
}

/// What happens to a mover that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It runs now.
    Start,
    /// It waits until [`MoverQueue::leave`] names it.
    Wait {
        /// This one no longer waits: the queue was full, and its user waits most often.
        displaced: Option<MoverNumber>,
    },
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
    SlotFree {
        /// Running, this one included.
        active: u32,
        /// May run.
        movers_max: u32,
    },
    SlotsTaken {
        /// Running.
        active: u32,
        /// May run.
        movers_max: u32,
        /// Waiting, this one included.
        queued: u32,
    },
    /// The user holds as many slots as one user may.
    UserShareTaken {
        /// The user's running movers.
        running: u32,
        /// May run for one user.
        per_user_max: u32,
        /// May run in all.
        movers_max: u32,
    },
    /// Anonymous clients hold their part of the slots.
    AnonymousShareTaken {
        /// Running for anonymous clients.
        running: u32,
        /// May run for them.
        anonymous_max: u32,
        /// May run in all.
        movers_max: u32,
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
            AdmissionReason::UserShareTaken {
                running,
                per_user_max,
                movers_max,
            } => write!(
                out,
                "{running} of the user's movers run; one user may have {per_user_max} of {movers_max}"
            ),
            AdmissionReason::AnonymousShareTaken {
                running,
                anonymous_max,
                movers_max,
            } => write!(
                out,
                "{running} movers of anonymous clients run; these may have {anonymous_max} of {movers_max}; \
                 with a token or a certificate there may be more"
            ),
            AdmissionReason::QueueFull { queued, queue_max } => {
                write!(out, "{queued} of {queue_max} movers wait; try again later")
            }
        }
    }
}

/// Whose turn it is inside a VO: the lowest. Fields compare top to bottom: the order of declaration is the policy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    running_of_holder: u32,
    running_of_address: u32,
    mover: MoverNumber,
}

/// Tickets of one VO that wait, by user, each user's in the order in which they came.
type WaitingMovers = BTreeMap<Holder, VecDeque<(MoverNumber, IpAddr)>>;

/// The movers of one pool: which run, and who waits.
#[derive(Debug, Default)]
pub struct MoverQueue {
    limits: QueueLimits,
    running: BTreeMap<MoverNumber, (Holder, IpAddr)>,
    /// Those of them that were told to end for others.
    ending: BTreeSet<MoverNumber>,
    running_of_holder: BTreeMap<Holder, u32>,
    running_of_address: BTreeMap<IpAddr, u32>,
    running_anonymous: u32,
    /// Only VOs and users with waiting movers are present.
    waiting: BTreeMap<Option<VoName>, WaitingMovers>,
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
        u32::try_from(self.running.len()).unwrap_or(u32::MAX)
    }

    /// Movers that wait.
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// The bounds in effect.
    pub fn limits(&self) -> QueueLimits {
        self.limits
    }

    /// Nobody new could run or wait without displacing another.
    pub fn is_full(&self) -> bool {
        self.queued >= self.limits.queue_max && self.active() >= self.limits.movers_max
    }

    /// A mover of theirs that arrives now would be refused.
    pub fn refuses(&self, requester: &Requester) -> bool {
        let holder = requester.holder();
        self.queued >= self.limits.queue_max
            && self.share_taken(&holder).is_some()
            && self.displaceable(&holder, requester.address).is_none()
    }

    /// A mover asks to run. `mean_duration` of the movers that ended lately makes the `Retry-After` of a
    /// refusal.
    pub fn arrive(
        &mut self,
        mover: MoverNumber,
        requester: &Requester,
        mean_duration: Duration,
    ) -> Decision<Admission, AdmissionReason> {
        let QueueLimits {
            movers_max,
            queue_max,
            ..
        } = self.limits;
        let holder = requester.holder();
        // Whoever could run does so already, so a newcomer who may run overtakes nobody.
        let Some(mut reason) = self.share_taken(&holder) else {
            self.start(mover, holder, requester.address);
            let active = self.active();
            return Decision::new(
                Admission::Start,
                AdmissionReason::SlotFree { active, movers_max },
            );
        };
        let mut displaced = None;
        if self.queued >= queue_max {
            displaced = self.displaceable(&holder, requester.address);
            let Some(other) = displaced else {
                let retry_after_seconds = self.retry_after_seconds(mean_duration);
                let queued = self.queued;
                return Decision::new(
                    Admission::Refuse {
                        retry_after_seconds,
                    },
                    AdmissionReason::QueueFull { queued, queue_max },
                );
            };
            self.withdraw(other);
        }
        self.waiting
            .entry(requester.vo.clone())
            .or_default()
            .entry(holder)
            .or_default()
            .push_back((mover, requester.address));
        self.queued += 1;
        if let AdmissionReason::SlotsTaken { queued, .. } = &mut reason {
            *queued = self.queued;
        }
        Decision::new(Admission::Wait { displaced }, reason)
    }

    /// A running mover has ended. Names the ones that run now; they count as running from here on.
    pub fn leave(&mut self, mover: MoverNumber) -> Vec<MoverNumber> {
        self.ending.remove(&mover);
        if let Some((holder, address)) = self.running.remove(&mover) {
            self.running_anonymous -= u32::from(matches!(holder, Holder::Anonymous(_)));
            uncount(&mut self.running_of_holder, &holder);
            uncount(&mut self.running_of_address, &address);
        }
        self.start_waiting()
    }

    /// A waiting mover is no longer wanted. True when it was waiting; false when it runs already (then it
    /// must [`MoverQueue::leave`]) or is unknown.
    pub fn withdraw(&mut self, mover: MoverNumber) -> bool {
        let found = self.waiting.iter_mut().find_map(|(vo, holders)| {
            let (holder, at) = holders.iter().find_map(|(holder, movers)| {
                let at = movers.iter().position(|(waiting, _)| *waiting == mover)?;
                Some((holder.clone(), at))
            })?;
            holders.get_mut(&holder)?.remove(at);
            Some((vo.clone(), holder))
        });
        let Some((vo, holder)) = found else {
            return false;
        };
        self.forget_if_empty(&vo, &holder);
        self.queued -= 1;
        true
    }

    /// Changes the bounds. Names movers that run now because there are more slots; running movers are
    /// never stopped.
    pub fn set_limits(&mut self, limits: QueueLimits) -> Vec<MoverNumber> {
        self.limits = limits;
        self.start_waiting()
    }

    /// Why a mover of theirs may not run now; `None`: it may.
    fn share_taken(&self, holder: &Holder) -> Option<AdmissionReason> {
        let movers_max = self.limits.movers_max;
        if self.active() >= movers_max {
            return Some(AdmissionReason::SlotsTaken {
                active: self.active(),
                movers_max,
                queued: self.queued,
            });
        }
        match holder {
            Holder::User(_) => {
                let (running, per_user_max) = (
                    count(&self.running_of_holder, holder).unwrap_or(0),
                    self.limits.per_user_max(),
                );
                (running >= per_user_max).then_some(AdmissionReason::UserShareTaken {
                    running,
                    per_user_max,
                    movers_max,
                })
            }
            Holder::Anonymous(_) => {
                let (running, anonymous_max) =
                    (self.running_anonymous, self.limits.anonymous_max());
                (running >= anonymous_max).then_some(AdmissionReason::AnonymousShareTaken {
                    running,
                    anonymous_max,
                    movers_max,
                })
            }
        }
    }

    /// Whose place in the full queue a newcomer takes: the latest of the user who waits most often, or else of such an
    /// address. `None`: nobody waits clearly more often than the newcomer.
    fn displaceable(&self, holder: &Holder, address: IpAddr) -> Option<MoverNumber> {
        let mut of_holder: BTreeMap<&Holder, (u32, MoverNumber)> = BTreeMap::new();
        let mut of_address: BTreeMap<IpAddr, (u32, MoverNumber)> = BTreeMap::new();
        for (other, movers) in self.waiting.values().flatten() {
            for (mover, from) in movers {
                let count = of_holder.entry(other).or_insert((0, *mover));
                *count = (count.0 + 1, count.1.max(*mover));
                let count = of_address.entry(*from).or_insert((0, *mover));
                *count = (count.0 + 1, count.1.max(*mover));
            }
        }
        let own = of_holder.get(holder).map_or(0, |(count, _)| *count);
        let most = of_holder.values().max()?;
        if most.0 > own + 1 {
            return Some(most.1);
        }
        let own = of_address.get(&address).map_or(0, |(count, _)| *count);
        let most = of_address.values().max()?;
        (most.0 > own + 1).then_some(most.1)
    }

    fn start(&mut self, mover: MoverNumber, holder: Holder, address: IpAddr) {
        self.running_anonymous += u32::from(matches!(holder, Holder::Anonymous(_)));
        *self.running_of_holder.entry(holder.clone()).or_default() += 1;
        *self.running_of_address.entry(address).or_default() += 1;
        self.running.insert(mover, (holder, address));
    }

    fn start_waiting(&mut self) -> Vec<MoverNumber> {
        let mut started = Vec::new();
        while self.active() < self.limits.movers_max && self.queued > 0 {
            let Some(mover) = self.start_next() else {
                break;
            };
            started.push(mover);
        }
        started
    }

    /// Starts the next mover of the VO whose turn it is, among those with users who may have a slot.
    fn start_next(&mut self) -> Option<MoverNumber> {
        use std::ops::Bound;
        let after = match &self.served_last {
            Some(last) => Bound::Excluded(last.clone()),
            None => Bound::Unbounded,
        };
        let later = self.waiting.range((after, Bound::Unbounded));
        let mut in_order = later.chain(self.waiting.iter());
        let (vo, holder) =
            in_order.find_map(|(vo, holders)| Some((vo.clone(), self.next_of(holders)?)))?;
        let (mover, address) = self.waiting.get_mut(&vo)?.get_mut(&holder)?.pop_front()?;
        self.forget_if_empty(&vo, &holder);
        self.queued -= 1;
        self.served_last = Some(vo);
        self.start(mover, holder, address);
        Some(mover)
    }

    /// The user of a VO whose turn it is; `None`: each has their share.
    fn next_of(&self, holders: &WaitingMovers) -> Option<Holder> {
        let turns = holders.iter().filter_map(|(holder, movers)| {
            let (mover, address) = *movers.front()?;
            let turn = Turn {
                running_of_holder: count(&self.running_of_holder, holder).unwrap_or(0),
                running_of_address: count(&self.running_of_address, &address).unwrap_or(0),
                mover,
            };
            self.share_taken(holder).is_none().then_some((turn, holder))
        });
        let (_, holder) = turns.min_by(|(one, _), (other, _)| one.cmp(other))?;
        Some(holder.clone())
    }

    fn forget_if_empty(&mut self, vo: &Option<VoName>, holder: &Holder) {
        let Some(holders) = self.waiting.get_mut(vo) else {
            return;
        };
        if holders.get(holder).is_some_and(VecDeque::is_empty) {
            holders.remove(holder);
        }
        if holders.is_empty() {
            self.waiting.remove(vo);
        }
    }

    /// When the queue will have moved on by its own length, at the pace of late.
    fn retry_after_seconds(&self, mean_duration: Duration) -> u64 {
        let rounds = u64::from(self.queued) / u64::from(self.limits.movers_max.max(1)) + 1;
        let seconds = mean_duration.as_secs().saturating_mul(rounds);
        seconds.clamp(*RETRY_AFTER_SECONDS.start(), *RETRY_AFTER_SECONDS.end())
    }
}

fn count<K: Ord>(counts: &BTreeMap<K, u32>, key: &K) -> Option<u32> {
    counts.get(key).copied()
}

fn uncount<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const SECOND: Duration = Duration::from_secs(1);
    pub(super) const WAIT: Admission = Admission::Wait { displaced: None };

    pub(super) fn limits(movers_max: u32, queue_max: u32) -> QueueLimits {
        QueueLimits {
            movers_max,
            queue_max,
            ..QueueLimits::default()
        }
    }

    pub(super) fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// `vo/user@7`, with a last byte of the address; `@7` alone is anonymous.
    pub(super) fn requester(text: &str) -> Requester {
        let (who, last) = text.split_once('@').expect("an address");
        let (vo, user) = match who.split_once('/') {
            Some((vo, user)) => (Some(VoName::new(vo)), Some(UserName::new(user))),
            None => (None, None),
        };
        Requester {
            vo,
            user,
            address: address(last.parse().expect("a byte")),
        }
    }

    pub(super) fn arrive(queue: &mut MoverQueue, mover: u64, who: &str) -> Admission {
        let decision = queue.arrive(MoverNumber(mover), &requester(who), SECOND);
        decision.choice
    }

    /// The movers that start one after the other, when each is ended by the next.
    fn order(queue: &mut MoverQueue, running: u64, count: usize) -> Vec<u64> {
        let mut order = Vec::new();
        let mut last = MoverNumber(running);
        while order.len() < count {
            let started = queue.leave(last);
            let [next] = started.as_slice() else {
                break;
            };
            last = *next;
            order.push(next.0);
        }
        order
    }

    #[test]
    fn movers_run_up_to_the_limit_then_wait_then_are_refused() {
        let mut queue = MoverQueue::new(limits(2, 1));
        assert_eq!(arrive(&mut queue, 1, "a/u@1"), Admission::Start);
        assert_eq!(arrive(&mut queue, 2, "a/u@1"), Admission::Start);
        assert_eq!(arrive(&mut queue, 3, "a/u@1"), WAIT);
        assert!(queue.is_full() && queue.refuses(&requester("a/u@1")));
        assert_eq!(
            arrive(&mut queue, 4, "a/u@1"),
            Admission::Refuse {
                retry_after_seconds: 1
            }
        );
        assert_eq!(queue.leave(MoverNumber(1)), [MoverNumber(3)]);
        assert_eq!((queue.active(), queue.queued()), (2, 0));
    }

    #[test]
    fn a_flood_of_one_vo_does_not_hold_up_another() {
        let mut queue = MoverQueue::new(limits(1, 100));
        assert_eq!(arrive(&mut queue, 0, "flood/u@1"), Admission::Start);
        for mover in 1..=10 {
            arrive(&mut queue, mover, "flood/u@1");
        }
        arrive(&mut queue, 11, "quiet/v@2");
        arrive(&mut queue, 12, "quiet/v@2");
        assert_eq!(order(&mut queue, 0, 5), [1, 11, 2, 12, 3]);
    }

    #[test]
    fn inside_a_vo_the_user_with_the_fewest_movers_comes_first() {
        let mut queue = MoverQueue::new(limits(3, 100));
        (0..3).for_each(|mover| assert_ne!(arrive(&mut queue, mover, "a/u@1"), WAIT));
        (3..9).for_each(|mover| assert_eq!(arrive(&mut queue, mover, "a/u@1"), WAIT));
        arrive(&mut queue, 9, "a/v@1");
        arrive(&mut queue, 10, "a/w@2");
        // Of two without any, the one whose address has fewer; then the other; then who came first.
        assert_eq!(queue.leave(MoverNumber(0)), [MoverNumber(10)]);
        assert_eq!(queue.leave(MoverNumber(1)), [MoverNumber(9)]);
        assert_eq!(queue.leave(MoverNumber(2)), [MoverNumber(3)]);
    }

    #[test]
    fn one_user_leaves_a_quarter_of_the_slots_to_others() {
        let mut queue = MoverQueue::new(limits(100, 1000));
        let started = (0..112).filter(|n| arrive(&mut queue, *n, "a/flood@1") == Admission::Start);
        assert_eq!(started.count(), 75);
        let reason = queue.arrive(MoverNumber(112), &requester("a/flood@9"), SECOND);
        assert_eq!(
            reason.because[0].to_string(),
            "75 of the user's movers run; one user may have 75 of 100"
        );
        assert_eq!(arrive(&mut queue, 200, "a/other@1"), Admission::Start);
        // A slot that becomes free goes to the user again, who waits for their own only.
        assert_eq!(queue.leave(MoverNumber(3)), [MoverNumber(75)]);
        assert_eq!(queue.leave(MoverNumber(200)), []);
    }

    #[test]
    fn few_slots_are_not_kept_from_anybody() {
        for movers_max in 1..4 {
            let mut queue = MoverQueue::new(limits(movers_max, 0));
            let started = (0..10).filter(|n| arrive(&mut queue, *n, "a/u@1") == Admission::Start);
            assert_eq!(started.count() as u32, movers_max);
        }
    }

    #[test]
    fn anonymous_clients_share_a_part_whatever_their_addresses() {
        let mut queue = MoverQueue::new(limits(100, 1000));
        let started = (0..60u64)
            .filter(|n| arrive(&mut queue, *n, &format!("@{n}")) == Admission::Start)
            .count();
        assert_eq!(started, 25);
        assert_eq!(arrive(&mut queue, 100, "a/u@1"), Admission::Start);
        let mut queue = MoverQueue::new(QueueLimits {
            movers_anonymous_max: Some(90),
            ..limits(100, 1000)
        });
        let started = (0..100).filter(|n| arrive(&mut queue, *n, "@1") == Admission::Start);
        assert_eq!(started.count(), 90);
    }

    #[test]
    fn a_full_queue_has_room_for_who_waits_less_often() {
        let mut queue = MoverQueue::new(limits(1, 4));
        (0..5).for_each(|mover| {
            arrive(&mut queue, mover, "a/flood@1");
        });
        assert!(!queue.refuses(&requester("b/v@2")));
        let displaced = |mover| Admission::Wait {
            displaced: Some(MoverNumber(mover)),
        };
        assert_eq!(arrive(&mut queue, 5, "b/v@2"), displaced(4));
        assert_eq!(arrive(&mut queue, 6, "b/v@2"), displaced(3));
        // Two and two: nobody gives way any more.
        assert!(queue.refuses(&requester("b/v@2")));
        assert_eq!(queue.queued(), 4);
        assert_eq!(order(&mut queue, 0, 4), [1, 5, 2, 6]);
    }

    #[test]
    fn many_names_at_one_address_do_not_fill_the_queue_for_others() {
        let mut queue = MoverQueue::new(limits(1, 4));
        (0..5).for_each(|n| {
            arrive(&mut queue, n, &format!("a/u{n}@1"));
        });
        let displaced = Admission::Wait {
            displaced: Some(MoverNumber(4)),
        };
        assert_eq!(arrive(&mut queue, 5, "a/v@2"), displaced);
    }

    #[test]
    fn a_mover_that_gives_up_waiting_gives_its_place_back() {
        let mut queue = MoverQueue::new(limits(1, 2));
        arrive(&mut queue, 1, "a/u@1");
        arrive(&mut queue, 2, "a/u@1");
        arrive(&mut queue, 3, "b/v@1");
        assert!(queue.withdraw(MoverNumber(2)));
        assert!(!queue.withdraw(MoverNumber(2)) && !queue.withdraw(MoverNumber(1)));
        assert_eq!(arrive(&mut queue, 4, "a/u@1"), WAIT);
        assert_eq!(order(&mut queue, 1, 2), [4, 3]);
        assert_eq!(queue.leave(MoverNumber(3)), []);
        assert_eq!(queue.leave(MoverNumber(3)), []);
        assert_eq!((queue.active(), queue.queued()), (0, 0));
    }

    #[test]
    fn more_slots_start_waiting_movers_and_fewer_stop_none() {
        let mut queue = MoverQueue::new(limits(1, 10));
        (1..=4).for_each(|mover| {
            arrive(&mut queue, mover, "a/u@1");
        });
        assert_eq!(
            queue.set_limits(limits(3, 10)),
            [MoverNumber(2), MoverNumber(3)]
        );
        assert_eq!(queue.set_limits(limits(1, 10)), []);
        assert_eq!(queue.leave(MoverNumber(1)), []);
        assert_eq!(queue.leave(MoverNumber(2)), []);
        assert_eq!(queue.leave(MoverNumber(3)), [MoverNumber(4)]);
    }

    #[test]
    fn nobody_overtakes_those_who_wait() {
        let mut queue = MoverQueue::new(limits(0, 10));
        assert_eq!(arrive(&mut queue, 1, "a/u@1"), WAIT);
        assert_eq!(queue.set_limits(limits(1, 10)), [MoverNumber(1)]);
        assert_eq!(arrive(&mut queue, 2, "b/v@1"), WAIT);
    }

    #[test]
    fn retry_after_follows_the_pace_and_stays_in_bounds() {
        let mut queue = MoverQueue::new(limits(1, 3));
        (0..4).for_each(|mover| {
            arrive(&mut queue, mover, "a/u@1");
        });
        let refused = |queue: &mut MoverQueue, mean| {
            let decision = queue.arrive(MoverNumber(9), &requester("a/u@1"), mean);
            decision.choice
        };
        let after = |seconds| Admission::Refuse {
            retry_after_seconds: seconds,
        };
        assert_eq!(refused(&mut queue, Duration::ZERO), after(1));
        assert_eq!(refused(&mut queue, Duration::from_secs(5)), after(20));
        assert_eq!(refused(&mut queue, Duration::from_secs(500)), after(60));
    }

    proptest! {
        /// Whatever comes and goes: no bound is exceeded, nobody waits who could run, and all is counted.
        #[test]
        fn no_bound_is_exceeded_and_no_slot_is_idle_in_vain(
            movers_max in 1u32..9,
            queue_max in 0u32..9,
            steps in prop::collection::vec((0u8..4, 0u8..6, 1u8..4), 1..120),
        ) {
            let mut queue = MoverQueue::new(limits(movers_max, queue_max));
            let (mut running, mut waiting) = (BTreeMap::new(), BTreeMap::new());
            for (mover, (what, who, from)) in (0..).zip(steps) {
                let mover = MoverNumber(mover);
                let name = match who {
                    0 => format!("@{from}"),
                    who => format!("v{}/u{who}@{from}", who % 2),
                };
                match (what, running.first_key_value(), waiting.first_key_value()) {
                    (0, Some((first, _)), _) => {
                        let first: MoverNumber = *first;
                        running.remove(&first);
                        for started in queue.leave(first) {
                            let name = waiting.remove(&started).expect("it waited");
                            running.insert(started, name);
                        }
                    }
                    (1, _, Some((first, _))) => {
                        let first: MoverNumber = *first;
                        waiting.remove(&first);
                        prop_assert!(queue.withdraw(first));
                    }
                    _ => match queue.arrive(mover, &requester(&name), SECOND).choice {
                        Admission::Start => {
                            running.insert(mover, name);
                        }
                        Admission::Wait { displaced } => {
                            if let Some(displaced) = displaced {
                                prop_assert!(waiting.remove(&displaced).is_some());
                            }
                            waiting.insert(mover, name);
                        }
                        Admission::Refuse { .. } => {
                            prop_assert_eq!(waiting.len(), queue_max as usize);
                        }
                    },
                }
                let running_now: BTreeSet<MoverNumber> = queue.running.keys().copied().collect();
                prop_assert_eq!(running_now, running.keys().copied().collect());
                prop_assert_eq!(queue.queued() as usize, waiting.len());
                prop_assert!(queue.active() <= movers_max && queue.queued() <= queue_max);
                let limits = queue.limits();
                prop_assert!(queue.running_anonymous <= limits.anonymous_max());
                for (holder, count) in &queue.running_of_holder {
                    let per_user = !matches!(holder, Holder::User(_)) || *count <= limits.per_user_max();
                    prop_assert!(per_user);
                }
                for name in waiting.values() {
                    prop_assert!(queue.share_taken(&requester(name).holder()).is_some());
                }
            }
        }
    }
}
