//! A place whose slots several links share: its slots, its rate, and the links in line for one.

use super::SlotUse;
use super::rate::RateGate;
use super::slot_queue::WaitingLinks;
use penstock_model::{SlotBound, Slots};

/// One direction of a storage element, or the agents, or those with a gfal process.
#[derive(Debug, Default)]
pub(super) struct SharedPlace {
    pub(super) slots: Count,
    pub(super) rate: RateGate,
    pub(super) lines: WaitingLinks,
    /// Kept for links that need a slot of another kind as well, and had to let go of this kind too often.
    pub(super) kept: u32,
}

impl SharedPlace {
    pub(super) fn new(limit: u32) -> SharedPlace {
        SharedPlace {
            slots: Count::new(limit),
            ..SharedPlace::default()
        }
    }

    /// Whether one more may start that has `own` slots kept for it.
    pub(super) fn has_room(&self, own: u32, now_ms: u64) -> bool {
        let taken = self.slots.active + self.kept.saturating_sub(own);
        taken < self.slots.in_effect() && self.rate.is_open(now_ms)
    }
}

/// How many run, and how many may.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) active: u32,
    /// What operators allow.
    pub(super) limit: u32,
    /// What the service finds best.
    pub(super) tuned: Option<u32>,
}

impl Count {
    pub(super) fn new(limit: u32) -> Count {
        Count {
            limit,
            ..Count::default()
        }
    }

    /// What is tuned never raises what operators allow, and never stops what they let run.
    pub(super) fn in_effect(&self) -> u32 {
        let tuned = self.tuned.map(|tuned| tuned.max(1));
        tuned.map_or(self.limit, |tuned| tuned.min(self.limit))
    }

    pub(super) fn slot_use(&self) -> SlotUse {
        SlotUse {
            active: Slots(self.active),
            limit: Slots(self.in_effect()),
        }
    }

    /// What keeps one more from starting when no slot is free.
    pub(super) fn bound(&self) -> SlotBound {
        let (active, limit) = (Slots(self.active), Slots(self.limit));
        let effective = self.in_effect();
        match self.active < self.limit && self.active >= effective {
            true => SlotBound::Tuned {
                active,
                tuned: Slots(effective),
                limit,
            },
            false => SlotBound::Limit { active, limit },
        }
    }
}
