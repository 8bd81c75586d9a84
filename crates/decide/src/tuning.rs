//! How many transfers may run at once: found by trying, for each link and each storage element.
//!
//! A tuner raises its limit while that pays, in large steps at first; when it does not, it narrows down between the
//! last two limits, holds the better one, and looks now and then whether more or less would do. More pays when work
//! grows by at least [`WORTH`] of what the number grows, both in logarithms: doubling must bring 3.5 %. What a tuner
//! knows are differences between rates at different numbers, with their errors; a difference within its error is
//! looked at longer. While it is not its limit that keeps transfers from starting, it learns nothing and changes nothing.
//!
//! Sources: gradient and utility as in Arifuzzaman and Arslan, "Online Optimization of File Transfers in High-Speed
//! Networks" (SC'21), with a cost that is relative to the number instead of absolute, so that long thin links may run
//! hundreds; what is shared is tuned where it is shared, so competing links do not outbid each other.

mod fts3;
mod rate;
#[cfg(test)]
mod tests;

pub use fts3::{Fts3Mode, Fts3Rules, Fts3Seen};
pub use rate::{Rate, Sample};

use rate::Window;

/// Which part of a larger number must come back as work, in logarithms.
const WORTH: f64 = 0.05;
/// Where a tuner begins that knows nothing.
const FIRST: u32 = 4;
/// Up to here the number doubles; then it grows by half.
const DOUBLES_UP_TO: u32 = 32;
/// Seconds after a change that say nothing of it: transfers begin slowly.
const SETTLE: f64 = 1.0;
/// Seconds that are looked at, at least and at most, before a change is judged.
const LOOK_MIN: f64 = 2.0;
const LOOK_MAX: f64 = 6.0;
/// Seconds between looks at a little more and a little less, while all is well.
const HOLD: f64 = 8.0;
/// Seconds in which a change of the situation shows.
const CHANGE_SEEN: f64 = 3.0;
/// A rate that is so far from what it was, in logarithms, is another situation.
const CHANGED: f64 = 0.2;
/// By how much a probe differs.
const PROBE: f64 = 1.25;
/// Two numbers that are further apart than so are narrowed down once more.
const WIDE: f64 = 1.6;
/// What is left of the number when a storage element says that it is too much.
const BACK_OFF: f64 = 0.7;

/// Between which numbers a tuner may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// At least; not 0.
    pub min: u32,
    /// At most.
    pub max: u32,
}

impl Bounds {
    fn clamp(self, number: u32) -> u32 {
        number.clamp(self.min.max(1), self.max.max(self.min).max(1))
    }
}

/// Why a limit was changed, or kept.
#[derive(Debug, Clone, PartialEq)]
pub enum TuneReason {
    /// Nothing is known yet.
    Begins,
    /// More has paid; even more is tried.
    Pays {
        /// At the smaller number.
        before: Rate,
        /// At the present one.
        now: Rate,
    },
    /// The last step did not pay.
    DoesNotPay {
        /// At the smaller number.
        before: Rate,
        /// At the larger one.
        now: Rate,
    },
    /// Something between the last two is tried.
    Narrows,
    /// The best of what was tried is kept.
    Keeps {
        /// What it gave.
        best: Rate,
    },
    /// A little more or less is tried, because things may have changed.
    Probes,
    /// The rate is another than it was at the same number.
    Changed {
        /// Then.
        was: Rate,
        /// Now.
        now: Rate,
    },
    /// A storage element said that it is overloaded.
    PushedBack,
    /// Somebody else changed what is allowed.
    Bounded,
}

/// A number that holds from now on, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// The number.
    pub limit: u32,
    /// Why.
    pub because: TuneReason,
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    /// Up, in large steps. `before`: the last that paid.
    Rising { before: Option<Rate> },
    /// Down, in large steps, because less did as well. `above`: what the larger number gave.
    Falling { above: Rate },
    /// Between the two that the last step led from and to.
    Narrowing { low: Rate, high: Rate },
    /// Well, until so many seconds have passed.
    Holding { level: Rate, left: f64, probes: u32 },
    /// A little more or less than what is held.
    Probing { held: Rate, up: bool, probes: u32 },
}

/// Finds the number for one link, or for one direction of one storage element.
#[derive(Debug, Clone)]
pub struct Tuner {
    bounds: Bounds,
    limit: u32,
    stage: Stage,
    window: Window,
    /// Seconds for which nothing is raised, because a storage element said so.
    quiet: f64,
}

impl Tuner {
    /// One that knows nothing yet.
    pub fn new(bounds: Bounds) -> Tuner {
        Tuner {
            bounds,
            limit: bounds.clamp(FIRST),
            stage: Stage::Rising { before: None },
            window: Window::default(),
            quiet: 0.0,
        }
    }

    /// What holds now.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Other bounds hold from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) -> Option<Tuned> {
        self.bounds = bounds;
        let within = bounds.clamp(self.limit);
        let is_out = within != self.limit;
        is_out.then(|| self.rise_to(within, None, TuneReason::Bounded))
    }

    /// Takes what was seen in about a second; `Some` when something was decided.
    pub fn see(&mut self, sample: &Sample) -> Option<Tuned> {
        self.quiet = (self.quiet - sample.seconds).max(0.0);
        if sample.pushed_back > 0 {
            return self.push_back(sample);
        }
        if let Stage::Holding { left, .. } = &mut self.stage {
            *left -= sample.seconds;
        }
        self.window.take(sample, self.limit, SETTLE);
        let now = self.window.rate(LOOK_MIN)?;
        match self.stage.clone() {
            Stage::Rising { before } => self.rise(before, now),
            Stage::Falling { above } => self.fall(above, now),
            Stage::Narrowing { low, high } => self.narrow(low, high, now),
            Stage::Holding {
                level,
                left,
                probes,
            } => self.hold(level, now, left, probes),
            Stage::Probing { held, up, probes } => self.probed(held, now, up, probes),
        }
    }

    fn rise(&mut self, before: Option<Rate>, now: Rate) -> Option<Tuned> {
        let Some(before) = before else {
            return self.further(now, TuneReason::Begins);
        };
        match self.pays(before, now)? {
            true => self.further(now, TuneReason::Pays { before, now }),
            false => self.narrow_between(before, now, TuneReason::DoesNotPay { before, now }),
        }
    }

    /// The next larger number, if there may be one.
    fn further(&mut self, now: Rate, because: TuneReason) -> Option<Tuned> {
        match self.limit >= self.bounds.max || self.quiet > 0.0 {
            true => Some(self.hold_at(now, because, 1)),
            false => Some(self.rise_to(self.larger(), Some(now), because)),
        }
    }

    fn fall(&mut self, above: Rate, now: Rate) -> Option<Tuned> {
        match self.pays(now, above)? {
            // The larger number was worth it.
            true => {
                let because = TuneReason::DoesNotPay {
                    before: now,
                    now: above,
                };
                self.narrow_between(now, above, because)
            }
            false if self.limit <= self.bounds.min => {
                Some(self.hold_at(now, TuneReason::Keeps { best: now }, 1))
            }
            false => Some(self.fall_from(now, TuneReason::Changed { was: above, now })),
        }
    }

    /// Tries what lies between two numbers.
    fn narrow_between(&mut self, low: Rate, high: Rate, because: TuneReason) -> Option<Tuned> {
        let middle = (low.active * high.active).sqrt().round() as u32;
        let middle = self.bounds.clamp(middle);
        if middle <= low.active.round() as u32 || middle >= high.active.round() as u32 {
            return Some(self.hold_at(better(low, high), because, 1));
        }
        self.stage = Stage::Narrowing { low, high };
        Some(self.change(middle, because))
    }

    fn narrow(&mut self, low: Rate, high: Rate, now: Rate) -> Option<Tuned> {
        let known = better(low, high);
        // Enough is seen when it is clear beside the better end, or when there is no more time.
        match known.active > now.active {
            true => self.pays(now, known)?,
            false => self.pays(known, now)?,
        };
        let best = better(known, now);
        let because = TuneReason::Keeps { best };
        let beside = if known == low { low } else { high };
        match best == now && high.active / low.active > WIDE {
            // Once more, towards the better end.
            true if beside.active < now.active => self.narrow_between(beside, now, because),
            true => self.narrow_between(now, beside, because),
            false => Some(self.hold_at(best, because, 1)),
        }
    }

    fn hold(&mut self, level: Rate, now: Rate, left: f64, probes: u32) -> Option<Tuned> {
        let latest = self.window.latest(CHANGE_SEEN)?;
        let difference = latest.ln - level.ln;
        if difference.abs() > CHANGED + 2.0 * latest.error_beside(level) {
            let because = TuneReason::Changed {
                was: level,
                now: latest,
            };
            return match difference > 0.0 {
                true => self.further(latest, because),
                false => Some(self.fall_from(latest, because)),
            };
        }
        if left > 0.0 {
            return None;
        }
        // More is tried twice as often as less, because trying it costs nothing where it does not pay.
        let up = !probes.is_multiple_of(3) && self.quiet == 0.0;
        let factor = if up { PROBE } else { 1.0 / PROBE };
        let probe = f64::from(self.limit) * factor;
        let probe = self
            .bounds
            .clamp(if up { probe.ceil() } else { probe.floor() } as u32);
        let probes = probes.wrapping_add(1);
        if probe == self.limit {
            self.stage = Stage::Holding {
                level: now,
                left: patience(probes),
                probes,
            };
            return None;
        }
        self.stage = Stage::Probing {
            held: now,
            up,
            probes,
        };
        Some(self.change(probe, TuneReason::Probes))
    }

    fn probed(&mut self, held: Rate, now: Rate, up: bool, probes: u32) -> Option<Tuned> {
        let (smaller, larger) = if up { (held, now) } else { (now, held) };
        let because = match self.pays(smaller, larger)? {
            true => TuneReason::Pays {
                before: smaller,
                now: larger,
            },
            false => TuneReason::DoesNotPay {
                before: smaller,
                now: larger,
            },
        };
        match (up, &because) {
            (true, TuneReason::Pays { .. }) => self.further(now, because),
            // Less costs nothing: further down.
            (false, TuneReason::DoesNotPay { .. }) if self.limit > self.bounds.min => {
                Some(self.fall_from(now, because))
            }
            (false, TuneReason::DoesNotPay { .. }) => Some(self.hold_at(now, because, probes)),
            _ => Some(self.hold_at(held, because, probes)),
        }
    }

    fn push_back(&mut self, sample: &Sample) -> Option<Tuned> {
        self.quiet = self.quiet.max(sample.quiet_for.max(SETTLE));
        let less = f64::from(self.limit).min(sample.active.max(1.0)) * BACK_OFF;
        let less = self.bounds.clamp(less as u32);
        self.stage = Stage::Rising { before: None };
        (less < self.limit).then(|| self.change(less, TuneReason::PushedBack))
    }

    /// Whether the larger of two numbers is worth it. `None`: not known yet.
    fn pays(&self, smaller: Rate, larger: Rate) -> Option<bool> {
        let is_patient = self.window.seconds() < LOOK_MAX;
        larger.pays_beside(smaller, WORTH, is_patient)
    }

    fn larger(&self) -> u32 {
        let next = match self.limit < DOUBLES_UP_TO {
            true => self.limit.saturating_mul(2),
            false => self.limit.saturating_add(self.limit / 2),
        };
        self.bounds.clamp(next)
    }

    fn rise_to(&mut self, to: u32, before: Option<Rate>, because: TuneReason) -> Tuned {
        self.stage = Stage::Rising { before };
        self.change(to, because)
    }

    fn fall_from(&mut self, above: Rate, because: TuneReason) -> Tuned {
        self.stage = Stage::Falling { above };
        let half = self.bounds.clamp(self.limit / 2);
        self.change(half, because)
    }

    fn hold_at(&mut self, level: Rate, because: TuneReason, probes: u32) -> Tuned {
        self.stage = Stage::Holding {
            level,
            left: patience(probes),
            probes,
        };
        let number = self.bounds.clamp(level.active.round() as u32);
        self.change(number, because)
    }

    fn change(&mut self, limit: u32, because: TuneReason) -> Tuned {
        if limit != self.limit {
            self.limit = limit;
            self.window = Window::default();
        }
        Tuned { limit, because }
    }
}

/// Seconds until the next probe: more and more while none changes anything.
fn patience(probes: u32) -> f64 {
    HOLD * f64::from(probes.clamp(1, 4))
}

/// The one that is worth more.
fn better(one: Rate, other: Rate) -> Rate {
    let value = |rate: Rate| rate.ln - WORTH * rate.active.max(1.0).ln();
    match value(one) >= value(other) {
        true => one,
        false => other,
    }
}
