//! Slots of one kind, and the bytes per second that move through them.

use super::line::VoLines;
use super::rate::RateGate;
use penstock_model::Slots;

/// Slots of one kind, with the links that wait for one of them.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) slots: Count,
    pub(super) rate: RateGate,
    pub(super) lines: VoLines,
    /// Kept for links that need a slot of another kind as well, and had to let go of this kind too often.
    pub(super) kept: u32,
}

impl Pool {
    pub(super) fn new(limit: u32) -> Pool {
        Pool {
            slots: Count::new(limit),
            ..Pool::default()
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

    /// The slots that are tuned and allowed, when it is the tuning that leaves no room.
    pub(super) fn tuned_out(&self) -> Option<(Slots, Slots)> {
        let effective = self.in_effect();
        let binds = self.active < self.limit && self.active >= effective;
        binds.then_some((Slots(effective), Slots(self.limit)))
    }
}
