//! Slots of one kind, and the bytes per second that move through them.

use super::line::VoLines;
use penstock_model::{Rate, Slots};
use std::time::Duration;

/// Over which time a rate must not be above its cap.
const WINDOW_MS: u64 = 10_000;

/// Slots of one kind, with the links that wait for one of them.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) slots: Count,
    pub(super) rate: Moving,
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
    pub(super) fn has_room(&self, own: u32) -> bool {
        let taken = self.slots.active + self.kept.saturating_sub(own);
        taken < self.slots.in_effect() && self.rate.allows(self.slots.active)
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

/// What moves, and what may.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moving {
    pub(super) cap: Option<u64>,
    /// Bytes per second that what runs is expected to move: predictions, corrected by what was measured.
    pub(super) expected: u64,
    /// Measured, over the last seconds.
    pub(super) measured: u64,
}

impl Moving {
    /// One transfer may always run. Another may when it, if it is like those that run, does not lead above the cap; and
    /// nothing may while more moves than that.
    pub(super) fn allows(&self, active: u32) -> bool {
        let Some(cap) = self.cap else {
            return true;
        };
        if self.measured > cap {
            return false;
        }
        let (active, expected) = (u128::from(active), u128::from(self.expected));
        active == 0 || expected * (active + 1) <= u128::from(cap) * active
    }

    /// What a transfer that waits for the rate is told: how much there is, and how much there may be.
    pub(super) fn told(&self) -> Option<(Rate, Rate)> {
        let rate = self.measured.max(self.expected);
        self.cap.map(|cap| (Rate(rate), Rate(cap)))
    }

    /// So many bytes moved in a period.
    pub(super) fn measure(&mut self, bytes: u64, period: Duration) {
        self.measured = towards(self.measured, bytes, period);
    }
}

/// The average over the window: each period counts as much as it is of the window.
pub(super) fn towards(average: u64, bytes: u64, period: Duration) -> u64 {
    let ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = u128::from(bytes) * 1000 / u128::from(ms);
    let part = u128::from(ms.min(WINDOW_MS));
    let (window, before) = (u128::from(WINDOW_MS), u128::from(average));
    let after = (before * (window - part) + rate * part) / window;
    u64::try_from(after).unwrap_or(u64::MAX)
}
