//! Which running mover ends so that somebody who has none is served: one that is slow, and one of many of its user or
//! address, when somebody without any has waited for long.

use super::{Holder, MoverNumber, MoverQueue, Requester, count};
use crate::Decision;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Who holds more than one part in so many of the slots may lose a mover to somebody who has none.
const CROWD_PARTS: u32 = 8;
/// Fewer are no crowd, however few slots there are: who is ended keeps at least as many as the waiting one gets.
const CROWD_RUNNING_MIN: u32 = 2;
/// A mover at least as fast as this is never ended for others: its file will be done soon, or worth its slot.
const PREEMPTED_BYTES_PER_SECOND_MAX: u64 = 1_000_000;

/// Why a running mover is ended for one that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptionReason {
    /// Of whom there were too many.
    pub crowd: PreemptionGroup,
    /// The crowd's running movers.
    pub running: u32,
    /// May run in all.
    pub movers_max: u32,
    /// How fast the ended one was.
    pub bytes_per_second: u64,
}

/// What the movers of which one is ended have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptionGroup {
    User,
    /// The address that they come from.
    Address,
}

impl fmt::Display for PreemptionReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PreemptionReason {
            crowd,
            running,
            movers_max,
            bytes_per_second,
        } = self;
        let whose = match crowd {
            PreemptionGroup::User => "its user",
            PreemptionGroup::Address => "its address",
        };
        write!(
            out,
            "ended because somebody else waited for a mover: {whose} had {running} of {movers_max}, and this one was \
             the slowest with {bytes_per_second} bytes a second; try again with fewer transfers at once"
        )
    }
}

/// Who is ended first: the lowest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PreemptionRank {
    crowd: std::cmp::Reverse<u32>,
    bytes_per_second: u64,
    mover: std::cmp::Reverse<MoverNumber>,
}

impl MoverQueue {
    /// One of theirs runs. The same user elsewhere is somebody else: a link that was shared may be used by strangers in
    /// its owner's name.
    pub fn has_mover(&self, requester: &Requester) -> bool {
        let holder = requester.holder();
        let mut running = self.running.values();
        running.any(|(other, address)| *other == holder && *address == requester.address)
    }

    /// The running mover that ends so that somebody who has none is served: the slowest of the user, or of the address,
    /// that holds most. `waiting` is who has waited for long; `bytes_per_second` are the running movers whose pace is
    /// known and that can be ended. `None`: all are fast, or nobody holds many, or the waiting one has a mover already or
    /// could not start even so.
    pub fn choose_preemption(
        &self,
        waiting: &Requester,
        bytes_per_second: &BTreeMap<MoverNumber, u64>,
    ) -> Option<Decision<MoverNumber, PreemptionReason>> {
        let holder = waiting.holder();
        // With fewer slots than movers, or with slots to spare, the end of one lets nobody start.
        if self.has_mover(waiting) || self.active() != self.limits.movers_max {
            return None;
        }
        let candidates = self.running.iter().filter_map(|(mover, (other, address))| {
            let pace = *bytes_per_second.get(mover)?;
            if self.ending.contains(mover) || !self.may_start_without(&holder, other) {
                return None;
            }
            let of_user = Some(self.staying(|(holder, _)| holder == other));
            let of_user = of_user.filter(|_| *other != holder);
            let of_address = Some(self.staying(|(_, from)| from == address));
            let of_address = of_address.filter(|_| *address != waiting.address);
            let (running, crowd) = match (of_user, of_address) {
                (Some(user), Some(address)) if address > user => {
                    (address, PreemptionGroup::Address)
                }
                (Some(user), _) => (user, PreemptionGroup::User),
                (None, Some(address)) => (address, PreemptionGroup::Address),
                (None, None) => return None,
            };
            let is_crowd = running >= CROWD_RUNNING_MIN
                && running.saturating_mul(CROWD_PARTS) > self.limits.movers_max;
            (is_crowd && pace < PREEMPTED_BYTES_PER_SECOND_MAX).then(|| {
                let rank = PreemptionRank {
                    crowd: std::cmp::Reverse(running),
                    bytes_per_second: pace,
                    mover: std::cmp::Reverse(*mover),
                };
                (rank, crowd)
            })
        });
        let (rank, crowd) = candidates.min_by(|(one, _), (other, _)| one.cmp(other))?;
        Some(Decision::new(
            rank.mover.0,
            PreemptionReason {
                crowd,
                running: rank.crowd.0,
                movers_max: self.limits.movers_max,
                bytes_per_second: rank.bytes_per_second,
            },
        ))
    }

    /// This mover was told to end; until it leaves it counts as one that runs, but no more as one of a crowd.
    pub fn mark_ending(&mut self, mover: MoverNumber) {
        if self.running.contains_key(&mover) {
            self.ending.insert(mover);
        }
    }

    /// Running movers of some kind that are not about to end.
    fn staying(&self, is_one: impl Fn(&(Holder, IpAddr)) -> bool) -> u32 {
        let staying = self.running.iter();
        let staying = staying.filter(|(mover, who)| is_one(who) && !self.ending.contains(mover));
        u32::try_from(staying.count()).unwrap_or(u32::MAX)
    }

    /// The share of `holder` has room for a mover once one of `leaving` is gone.
    fn may_start_without(&self, holder: &Holder, leaving: &Holder) -> bool {
        let is_anonymous = |holder: &Holder| matches!(holder, Holder::Anonymous(_));
        let (running, running_max, is_of_share) = match holder {
            Holder::User(_) => (
                count(&self.running_of_holder, holder).unwrap_or(0),
                self.limits.per_user_max(),
                leaving == holder,
            ),
            Holder::Anonymous(_) => (
                self.running_anonymous,
                self.limits.anonymous_max(),
                is_anonymous(leaving),
            ),
        };
        running.saturating_sub(u32::from(is_of_share)) < running_max
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{WAIT, arrive, limits, requester};
    use super::super::{Admission, QueueLimits};
    use super::*;

    /// Slots are full with those of `running`; each has this pace. What `waiting` gets.
    fn preempted(movers_max: u32, running: &[(&str, u64)], waiting: &str) -> Option<(u64, String)> {
        let mut queue = MoverQueue::new(QueueLimits {
            movers_per_user_max: Some(movers_max),
            movers_anonymous_max: Some(movers_max),
            ..limits(movers_max, 1000)
        });
        let mut paces = BTreeMap::new();
        for (mover, (who, pace)) in (0..).zip(running) {
            assert_eq!(arrive(&mut queue, mover, who), Admission::Start);
            paces.insert(MoverNumber(mover), *pace);
        }
        assert_eq!(arrive(&mut queue, 9999, waiting), WAIT);
        let chosen = queue.choose_preemption(&requester(waiting), &paces)?;
        Some((chosen.choice.0, chosen.because[0].to_string()))
    }

    #[test]
    fn the_slowest_of_who_holds_most_ends_for_somebody_without_any() {
        let running = [
            ("a/few@9", 10),
            ("a/most@1", 3000),
            ("a/most@1", 1500),
            ("a/most@3", 2000),
        ];
        let (mover, why) = preempted(4, &running, "b/v@2").expect("one ends");
        assert_eq!(mover, 2);
        assert!(
            why.starts_with(
                "ended because somebody else waited for a mover: its user had 3 of 4, and this one was \
                 the slowest with 1500 bytes a second"
            ),
            "{why}"
        );
    }

    #[test]
    fn many_names_at_one_address_are_a_crowd_for_somebody_elsewhere() {
        let names: Vec<String> = (0..16).map(|n| format!("a/u{n}@1")).collect();
        let running: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 5)).collect();
        let (_, why) = preempted(16, &running, "a/v@2").expect("one ends");
        assert!(why.contains("its address had 16 of 16"), "{why}");
        // Behind the same address they are colleagues, of whom each has one.
        assert_eq!(preempted(16, &running, "a/v@1"), None);
    }

    #[test]
    fn nothing_ends_that_is_fast_or_for_somebody_who_has_a_mover() {
        assert_eq!(preempted(2, &[("a/u@1", 1_000_000); 2], "b/v@2"), None);
        assert_eq!(preempted(2, &[("a/u@1", 1); 2], "a/u@1"), None);
        assert!(preempted(2, &[("a/u@1", 999_999); 2], "b/v@2").is_some());
        // The same user elsewhere: a link that was shared may be used by strangers in its owner's name.
        assert!(preempted(2, &[("a/u@1", 1); 2], "a/u@2").is_some());
    }

    #[test]
    fn the_only_mover_of_a_user_is_no_crowd() {
        let running = [("a/u@1", 0), ("a/v@2", 0), ("a/w@3", 0)];
        assert_eq!(preempted(3, &running, "b/x@9"), None);
        let running = [("a/u@1", 0), ("a/v@2", 0), ("a/v@2", 0)];
        let (mover, _) = preempted(3, &running, "b/x@9").expect("one of two ends");
        assert_eq!(mover, 2);
    }

    #[test]
    fn of_a_crowd_whose_movers_are_ending_one_stays() {
        let mut queue = MoverQueue::new(QueueLimits {
            movers_per_user_max: Some(2),
            ..limits(2, 9)
        });
        (0..2).for_each(|mover| assert_ne!(arrive(&mut queue, mover, "a/u@1"), WAIT));
        let (first, second) = (requester("b/v@2"), requester("b/w@3"));
        assert_eq!(arrive(&mut queue, 2, "b/v@2"), WAIT);
        assert_eq!(arrive(&mut queue, 3, "b/w@3"), WAIT);
        let paces = BTreeMap::from([(MoverNumber(0), 0), (MoverNumber(1), 0)]);
        let chosen = queue.choose_preemption(&first, &paces).expect("one ends");
        queue.mark_ending(chosen.choice);
        assert_eq!(queue.choose_preemption(&second, &paces), None);
    }

    #[test]
    fn nothing_ends_for_somebody_who_could_not_start_even_so() {
        let mut queue = MoverQueue::new(QueueLimits {
            movers_per_user_max: Some(2),
            ..limits(4, 9)
        });
        // The part of anonymous clients is taken, by one.
        assert_eq!(arrive(&mut queue, 0, "@1"), Admission::Start);
        (1..3).for_each(|n| assert_eq!(arrive(&mut queue, n, "a/u@2"), Admission::Start));
        assert_eq!(arrive(&mut queue, 3, "@3"), WAIT);
        let paces: BTreeMap<MoverNumber, u64> = (0..5).map(|n| (MoverNumber(n), 0)).collect();
        let refused = |queue: &MoverQueue, who| queue.choose_preemption(&requester(who), &paces);
        assert_eq!(refused(&queue, "@3"), None, "a slot is free");
        assert_eq!(arrive(&mut queue, 4, "b/v@4"), Admission::Start);
        assert_eq!(
            refused(&queue, "@3"),
            None,
            "all are taken, and the part is"
        );
        assert!(refused(&queue, "c/w@5").is_some());
        // A user with the share of a user, elsewhere, and a mover of somebody else's would not help.
        assert_eq!(
            refused(&queue, "a/u@9").map(|chosen| chosen.choice),
            Some(MoverNumber(2))
        );
        queue.set_limits(limits(3, 9));
        assert_eq!(refused(&queue, "c/w@5"), None, "more run than may");
    }
}
