//! How many transfers may run at once: found by trying, for each link and each storage element.
//!
//! A tuner raises its limit while that pays, in large steps at first; when it does not, it narrows down between the
//! last two limits, holds the better one, and looks now and then whether more or less would do. More pays when work
//! grows by at least [`WORK_LN_SHARE_MIN`] of what the number grows, both in logarithms: doubling must bring 3.5 %.
//! What a tuner knows are differences between rates at different numbers, with their errors; a difference within its
//! error is looked at longer. While it is not its limit that keeps transfers from starting, it learns nothing and
//! changes nothing.
//!
//! Sources: gradient and utility as in Arifuzzaman and Arslan, "Online Optimization of File Transfers in High-Speed
//! Networks" (SC'21), with a cost that is relative to the number instead of absolute, so that long thin links may run
//! hundreds; what is shared is tuned where it is shared, so competing links do not outbid each other.
//!
//! Long because the five stages of a tuner hand over to each other, and its constants stand beside them.

mod fts3;
mod grid;
mod rate;
mod streams;
#[cfg(test)]
mod tests;

pub use fts3::{Fts3Mode, Fts3Observation, Fts3Sample, Fts3Tuner, LandedFiles};
pub use grid::{
    AttemptEnd, EndLimits, FleetTuning, LinkLoad, LinkObservation, LinkRules, LinkTuning,
    TunedSlots, TuningChanges,
};
pub use rate::Sample;
pub use streams::StreamTuner;

use penstock_model::{Slots, TrialResult, TuneReason, TuningCandidate};
use rate::{Comparison, MeanDifference, Noise, Window};
use std::collections::VecDeque;

/// Which part of a larger number must come back as work, in logarithms.
const WORK_LN_SHARE_MIN: f64 = 0.05;
/// Where a tuner begins that knows nothing: FTS's number for a link of which it knows nothing.
const SLOTS_FIRST: u32 = 10;
/// Up to here the number doubles; then it grows by half, unless doubling has nearly doubled the rate.
const DOUBLING_SLOTS_MAX: u32 = 32;
/// A step is nearly linear when it brings this part of the ideal gain: twice the number, twice the rate.
const NEARLY_LINEAR_SHARE: f64 = 0.7;
/// Seconds after a change that say nothing of it: transfers begin slowly.
const SETTLE_SECONDS: f64 = 1.0;
/// Seconds that are looked at, at least and at most, before a change is judged that is not clear at once.
const LOOK_SECONDS_MIN: f64 = 2.0;
const LOOK_SECONDS_MAX: f64 = 8.0;
/// So many errors make a difference clear at once, or after a while.
const CLEAR_AT_ONCE_ERRORS: f64 = 3.0;
const CLEAR_ERRORS: f64 = 1.6;
/// So many errors below what it must bring, a larger number is given up when nothing better is known.
const GIVE_UP_ERRORS: f64 = 0.7;
/// So many errors below what it must bring, a smaller number is taken.
const TAKE_LESS_ERRORS: f64 = 0.7;
/// Seconds between looks at a little more and a little less, while all is well.
const HOLD_SECONDS: f64 = 6.0;
const HOLD_SECONDS_MAX: f64 = 90.0;
/// Which part of the rate looking may cost, over time.
const PROBE_COST_SHARE_MAX: f64 = 0.01;
/// Seconds in which a change of the situation shows.
const CHANGE_SECONDS: f64 = 3.0;
/// A rate that is so far from what it was, in logarithms, is another situation.
const CHANGE_LN_MIN: f64 = 0.2;
/// By how much a probe differs: less of a number is tried in larger steps, because it has to show that nothing is lost.
const PROBE_UP_RATIO: f64 = 1.12;
const PROBE_DOWN_RATIO: f64 = 1.15;
/// The first step from a number that was good before.
const KNOWN_STEP_RATIO: f64 = 1.25;
/// Two numbers that are further apart than so are narrowed down once more.
const BRACKET_RATIO_MAX: f64 = 1.3;
/// What is left of the number when a storage element says that it is too much.
const BACK_OFF_RATIO: f64 = 0.7;
/// Numbers whose results are kept, to be told.
const TRIED_MAX: usize = 6;
/// Files that are faster than so, all of a round, are many: it is not waited for the next second.
const QUICK_ROUND_SECONDS: f64 = 0.5;
/// Files of a round, at least.
const ROUND_FILES_MIN: u32 = 16;
/// What a quick step must bring.
const QUICK_GAIN_RATIO_MIN: f64 = 1.1;

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

/// A number that holds from now on, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedLimit {
    /// The number.
    pub limit: u32,
    pub because: TuneReason,
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    /// Up. `before`: the last that paid; `factor`: of the step that is looked at.
    Rising {
        before: Option<TrialResult>,
        factor: f64,
        is_first: bool,
    },
    /// Down, because less did as well. `above`: what the larger number gave, when it is known.
    Falling {
        above: Option<TrialResult>,
        factor: f64,
    },
    /// Between the two that the last step led from and to.
    Narrowing { low: TrialResult, high: TrialResult },
    /// Well, until so many seconds have passed.
    Holding {
        level: TrialResult,
        left: f64,
        probes: u32,
    },
    /// A probe a little above or below the held number.
    Probing {
        held: TrialResult,
        up: bool,
        probes: u32,
    },
}

/// Whether a larger number is worth it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum GainVerdict {
    Clear(bool),
    /// It cannot be told in the time that there is.
    Doubtful(MeanDifference),
}

/// Small files, counted between samples.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    /// Seconds of the caller's clock.
    since: f64,
    files: u32,
    /// Files per second of the round before, at a smaller number.
    before: Option<f64>,
    is_over: bool,
}

/// Finds the number for one link, or for one direction of one storage element.
#[derive(Debug, Clone)]
pub struct Tuner {
    bounds: Bounds,
    worth: f64,
    limit: u32,
    stage: Stage,
    window: Window,
    noise: Noise,
    round: Round,
    /// Evidence from inconclusive probes below and above the held number.
    doubts: [MeanDifference; 2],
    /// What the last numbers gave.
    tried: VecDeque<TrialResult>,
    /// Seconds between reports of how far transfers are.
    lag: f64,
    /// Seconds for which nothing is raised, because a storage element said so.
    quiet: f64,
}

impl Tuner {
    /// One that knows nothing yet.
    pub fn new(bounds: Bounds) -> Tuner {
        Tuner::begin(bounds, SLOTS_FIRST, 2.0)
    }

    /// One that begins with a number that was found before: it is not left far behind at once.
    pub fn from(bounds: Bounds, limit: u32) -> Tuner {
        Tuner::begin(bounds, limit, KNOWN_STEP_RATIO)
    }

    /// One that begins with any number.
    pub fn at(bounds: Bounds, limit: u32) -> Tuner {
        Tuner::begin(bounds, limit, 2.0)
    }

    fn begin(bounds: Bounds, limit: u32, factor: f64) -> Tuner {
        Tuner {
            bounds,
            worth: WORK_LN_SHARE_MIN,
            limit: bounds.clamp(limit),
            stage: Stage::Rising {
                before: None,
                factor,
                is_first: true,
            },
            window: Window::default(),
            noise: Noise::default(),
            round: Round::default(),
            doubts: Default::default(),
            tried: VecDeque::new(),
            lag: 0.0,
            quiet: 0.0,
        }
    }

    /// Runs more for less: an operator wants the last few percent.
    pub fn set_aggressive(&mut self, is_aggressive: bool) {
        self.worth = if is_aggressive {
            WORK_LN_SHARE_MIN / 2.0
        } else {
            WORK_LN_SHARE_MIN
        };
    }

    /// Whether something was seen that it goes by.
    pub fn knows(&self) -> bool {
        !self.tried.is_empty()
    }

    /// What the last numbers gave, and what that is worth.
    pub fn candidates(&self) -> Vec<TuningCandidate> {
        let each = self.tried.iter().map(|tried| TuningCandidate {
            slots: Slots(tried.active.round() as u32),
            work: tried.work(),
            error: tried.error,
            utility: self.value(*tried),
        });
        each.collect()
    }

    fn remember(&mut self, now: TrialResult) {
        let number = now.active.round();
        self.tried.retain(|tried| tried.active.round() != number);
        if self.tried.len() == TRIED_MAX {
            self.tried.pop_front();
        }
        self.tried.push_back(now);
    }

    /// What holds now.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Other bounds hold from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) -> Option<TunedLimit> {
        self.bounds = bounds;
        let within = bounds.clamp(self.limit);
        let is_out = within != self.limit;
        is_out.then(|| self.rise_to(within, None, 2.0, TuneReason::Bounded))
    }

    /// A file arrived while more waited that this limit keeps from starting. Files that take a blink are too many to
    /// wait for the next second: the number grows from round to round, while that brings more of them.
    pub fn landed(&mut self, seconds: f64) -> Option<TunedLimit> {
        let is_first = matches!(self.stage, Stage::Rising { before: None, .. });
        if self.round.is_over || !is_first || self.quiet > 0.0 {
            return None;
        }
        if self.round.files == 0 {
            self.round.since = seconds;
        }
        self.round.files += 1;
        if self.round.files <= self.limit.max(ROUND_FILES_MIN) {
            return None;
        }
        let took = seconds - self.round.since;
        let rate = f64::from(self.round.files - 1) / took.max(1e-3);
        let before = self.round.before;
        self.round = Round::default();
        if took > QUICK_ROUND_SECONDS || self.limit >= self.bounds.max {
            return None;
        }
        if before.is_some_and(|before| rate < QUICK_GAIN_RATIO_MIN * before) {
            self.round.is_over = true;
            return None;
        }
        self.round.before = Some(rate);
        let more = self.larger(2.0);
        let at = |files: f64| TrialResult {
            active: f64::from(self.limit),
            ln: files.max(1.0).ln(),
            error: 0.0,
        };
        let because = match before {
            Some(before) => TuneReason::Pays {
                before: at(before),
                now: at(rate),
            },
            None => TuneReason::Begins,
        };
        Some(self.change(more, because))
    }

    /// Takes what was seen in about a second; `Some` when something was decided.
    pub fn see(&mut self, sample: &Sample) -> Option<TunedLimit> {
        self.quiet = (self.quiet - sample.seconds).max(0.0);
        self.lag = sample.lag;
        if sample.pushed_back > 0 {
            return self.push_back(sample);
        }
        if let Stage::Holding { left, .. } = &mut self.stage {
            *left -= sample.seconds;
        }
        let settle = SETTLE_SECONDS.max(self.lag);
        self.window
            .take(sample, self.limit, settle, &mut self.noise);
        if self.window.seconds() < self.lag {
            return None;
        }
        let now = self.window.rate(self.noise)?;
        self.remember(now);
        match self.stage.clone() {
            Stage::Rising {
                before,
                factor,
                is_first,
            } => self.rise(before, now, factor, is_first),
            Stage::Falling { above, factor } => self.fall(above, now, factor),
            Stage::Narrowing { low, high } => self.narrow(low, high, now),
            Stage::Holding {
                level,
                left,
                probes,
            } => self.hold(level, now, left, probes),
            Stage::Probing { held, up, probes } => self.probed(held, now, up, probes),
        }
    }

    fn rise(
        &mut self,
        before: Option<TrialResult>,
        now: TrialResult,
        factor: f64,
        is_first: bool,
    ) -> Option<TunedLimit> {
        let Some(before) = before else {
            if self.window.seconds() < LOOK_SECONDS_MIN {
                return None;
            }
            let tuned = self.further(now, factor, TuneReason::Begins);
            if let Stage::Rising {
                is_first: first, ..
            } = &mut self.stage
            {
                *first = is_first;
            }
            return tuned;
        };
        if !self.rather_pays(before, now)? {
            let because = TuneReason::DoesNotPay { before, now };
            if is_first {
                // Less than what it began with was never tried.
                self.limit = self.bounds.clamp(before.active.round() as u32);
                return Some(self.fall_from(before, factor, because));
            }
            return self.narrow_between(before, now, because);
        }
        let grown = (now.active / before.active).ln();
        let nearly_all = now.ln - before.ln > NEARLY_LINEAR_SHARE * grown;
        let next = match factor < 1.5 {
            true => factor * factor,
            false if nearly_all || self.limit < DOUBLING_SLOTS_MAX => 2.0,
            false => 1.5,
        };
        self.further(now, next.min(2.0), TuneReason::Pays { before, now })
    }

    /// The next larger number, if there may be one.
    fn further(
        &mut self,
        now: TrialResult,
        factor: f64,
        because: TuneReason,
    ) -> Option<TunedLimit> {
        match self.limit >= self.bounds.max || self.quiet > 0.0 {
            true => Some(self.hold_at(now, because, 0.0, 1)),
            false => Some(self.rise_to(self.larger(factor), Some(now), factor, because)),
        }
    }

    fn fall(
        &mut self,
        above: Option<TrialResult>,
        now: TrialResult,
        factor: f64,
    ) -> Option<TunedLimit> {
        let Some(above) = above else {
            return match self.window.seconds() >= LOOK_SECONDS_MIN {
                true => Some(self.fall_from(now, factor, TuneReason::Probes)),
                false => None,
            };
        };
        match self.judge(now, above)? != GainVerdict::Clear(false) {
            // The larger number was worth it.
            true => {
                let because = TuneReason::DoesNotPay {
                    before: now,
                    now: above,
                };
                self.narrow_between(now, above, because)
            }
            false if self.limit <= self.bounds.min => {
                Some(self.hold_at(now, TuneReason::Keeps { best: now }, 0.0, 1))
            }
            false => {
                let because = TuneReason::DoesNotPay {
                    before: now,
                    now: above,
                };
                let next = (factor * factor).min(2.0);
                Some(self.fall_from(now, next, because))
            }
        }
    }

    /// Tries what lies between two numbers.
    fn narrow_between(
        &mut self,
        low: TrialResult,
        high: TrialResult,
        because: TuneReason,
    ) -> Option<TunedLimit> {
        let middle = (low.active * high.active).sqrt().round() as u32;
        let middle = self.bounds.clamp(middle);
        let is_between = middle > low.active.round() as u32 && middle < high.active.round() as u32;
        if !is_between || high.active / low.active < BRACKET_RATIO_MAX {
            let best = self.better(low, high);
            return Some(self.hold_at(best, because, 0.0, 1));
        }
        self.stage = Stage::Narrowing { low, high };
        Some(self.change(middle, because))
    }

    fn narrow(
        &mut self,
        low: TrialResult,
        high: TrialResult,
        now: TrialResult,
    ) -> Option<TunedLimit> {
        let below = self.rather_pays(low, now);
        let above = self.rather_pays(now, high);
        match (below, above) {
            // It lies towards the larger end, or towards the smaller one.
            (_, Some(true)) => self.narrow_between(
                now,
                high,
                TuneReason::Pays {
                    before: now,
                    now: high,
                },
            ),
            (Some(false), _) => {
                self.narrow_between(low, now, TuneReason::DoesNotPay { before: low, now })
            }
            (Some(true), Some(false)) => {
                let best = TuneReason::Keeps { best: now };
                // Once more, on the side that is the better one.
                match high.active / low.active > 2.0 * BRACKET_RATIO_MAX {
                    true if self.better(low, high) == low => self.narrow_between(low, now, best),
                    true => self.narrow_between(now, high, best),
                    false => Some(self.hold_at(now, best, 0.0, 1)),
                }
            }
            _ => None,
        }
    }

    fn hold(
        &mut self,
        level: TrialResult,
        now: TrialResult,
        left: f64,
        probes: u32,
    ) -> Option<TunedLimit> {
        let latest = self
            .window
            .latest(CHANGE_SECONDS.max(self.lag), self.noise)?;
        let is_seen = self.window.seconds() >= CHANGE_SECONDS.max(self.lag);
        let difference = latest.ln - level.ln;
        if is_seen && difference.abs() > CHANGE_LN_MIN + 2.0 * latest.error_beside(level) {
            let because = TuneReason::Changed {
                was: level,
                now: latest,
            };
            return Some(self.look_anew(difference > 0.0, because));
        }
        if left > 0.0 || self.window.seconds() < LOOK_SECONDS_MIN {
            return None;
        }
        // More is tried twice as often as less, because trying it costs nothing where it does not pay.
        let up = probes % 3 != 2 && self.quiet == 0.0;
        let wanted = match up {
            true => (f64::from(self.limit) * PROBE_UP_RATIO).ceil(),
            false => (f64::from(self.limit) / PROBE_DOWN_RATIO).floor(),
        };
        let probe = self.bounds.clamp(wanted as u32);
        let probes = probes.wrapping_add(1);
        if probe == self.limit {
            self.stage = Stage::Holding {
                level: now,
                left: patience(0.0, probes),
                probes,
            };
            return None;
        }
        let doubts = std::mem::take(&mut self.doubts);
        self.stage = Stage::Probing {
            held: now,
            up,
            probes,
        };
        let tuned = self.change(probe, TuneReason::Probes);
        self.doubts = doubts;
        Some(tuned)
    }

    fn probed(
        &mut self,
        held: TrialResult,
        now: TrialResult,
        up: bool,
        probes: u32,
    ) -> Option<TunedLimit> {
        let (smaller, larger) = if up { (held, now) } else { (now, held) };
        let grown = (larger.active / smaller.active.max(1.0)).ln().abs();
        if (now.ln - held.ln).abs() > CHANGE_LN_MIN + 2.0 * grown
            && self.window.seconds() >= LOOK_SECONDS_MIN
        {
            // So small a step does not do that: something else has changed.
            let because = TuneReason::Changed { was: held, now };
            let is_more = now.ln > held.ln;
            let number = self.bounds.clamp(held.active.round() as u32);
            self.change(number, because.clone());
            return Some(self.look_anew(is_more, because));
        }
        let pays = match self.judge(smaller, larger)? {
            GainVerdict::Clear(pays) => pays,
            // What was seen in earlier looks counts, too.
            GainVerdict::Doubtful(doubt) => {
                let all = self.doubts[usize::from(up)].and(doubt);
                self.doubts[usize::from(up)] = all;
                match up {
                    true => all.mean() > 0.0,
                    false => all.mean() > -TAKE_LESS_ERRORS * all.error(),
                }
            }
        };
        let because = match pays {
            true => TuneReason::Pays {
                before: smaller,
                now: larger,
            },
            false => TuneReason::DoesNotPay {
                before: smaller,
                now: larger,
            },
        };
        match (up, pays) {
            (true, true) => self.further(now, PROBE_UP_RATIO * PROBE_UP_RATIO, because),
            // Less costs nothing: further down.
            (false, false) if self.limit > self.bounds.min => {
                Some(self.fall_from(now, PROBE_DOWN_RATIO, because))
            }
            (false, false) => Some(self.hold_at(now, because, 0.0, probes)),
            _ => {
                let lost = (held.ln - now.ln - held.error_beside(now)).max(0.0);
                let cost = lost * (self.window.seconds() + SETTLE_SECONDS.max(self.lag));
                let doubts = std::mem::take(&mut self.doubts);
                let tuned = self.hold_at(held, because, cost, probes);
                self.doubts = doubts;
                Some(tuned)
            }
        }
    }

    /// The situation is another one: what was seen before says nothing of it.
    fn look_anew(&mut self, is_more: bool, because: TuneReason) -> TunedLimit {
        self.window = Window::default();
        self.doubts = Default::default();
        self.stage = match is_more {
            true => Stage::Rising {
                before: None,
                factor: 2.0,
                is_first: false,
            },
            false => Stage::Falling {
                above: None,
                factor: 2.0,
            },
        };
        TunedLimit {
            limit: self.limit,
            because,
        }
    }

    fn push_back(&mut self, sample: &Sample) -> Option<TunedLimit> {
        self.quiet = self.quiet.max(sample.quiet_for.max(SETTLE_SECONDS));
        let less = f64::from(self.limit).min(sample.active.max(1.0)) * BACK_OFF_RATIO;
        let less = self.bounds.clamp(less as u32);
        self.stage = Stage::Rising {
            before: None,
            factor: KNOWN_STEP_RATIO,
            is_first: false,
        };
        self.round.is_over = true;
        (less < self.limit).then(|| self.change(less, TuneReason::PushedBack))
    }

    /// Whether the larger of two numbers is worth it. `None`: it is worth looking longer.
    fn judge(&self, smaller: TrialResult, larger: TrialResult) -> Option<GainVerdict> {
        let seconds = self.window.seconds();
        let errors = match seconds < LOOK_SECONDS_MIN {
            true => CLEAR_AT_ONCE_ERRORS,
            false => CLEAR_ERRORS,
        };
        let gained = larger.gained_beside(smaller, self.worth);
        let error = larger.error_beside(smaller);
        if gained.abs() >= errors * error {
            return Some(GainVerdict::Clear(gained > 0.0));
        }
        let is_over = seconds >= LOOK_SECONDS_MAX.max(2.0 * self.lag);
        is_over.then_some(GainVerdict::Doubtful(MeanDifference::of(gained, error)))
    }

    /// The same; what is not worth it for sure is taken for worth it, because slots are cheaper than time.
    fn rather_pays(&self, smaller: TrialResult, larger: TrialResult) -> Option<bool> {
        Some(match self.judge(smaller, larger)? {
            GainVerdict::Clear(pays) => pays,
            GainVerdict::Doubtful(doubt) => doubt.mean() > -GIVE_UP_ERRORS * doubt.error(),
        })
    }

    fn larger(&self, factor: f64) -> u32 {
        let next = (f64::from(self.limit) * factor).ceil() as u32;
        self.bounds.clamp(next.max(self.limit.saturating_add(1)))
    }

    fn rise_to(
        &mut self,
        to: u32,
        before: Option<TrialResult>,
        factor: f64,
        because: TuneReason,
    ) -> TunedLimit {
        self.stage = Stage::Rising {
            before,
            factor,
            is_first: false,
        };
        self.change(to, because)
    }

    fn fall_from(&mut self, above: TrialResult, factor: f64, because: TuneReason) -> TunedLimit {
        self.stage = Stage::Falling {
            above: Some(above),
            factor,
        };
        let less = (f64::from(self.limit) / factor).floor() as u32;
        let less = self.bounds.clamp(less.min(self.limit.saturating_sub(1)));
        self.change(less, because)
    }

    /// Stays at what gave this rate. `cost`: seconds of the rate that the last look has cost.
    fn hold_at(
        &mut self,
        level: TrialResult,
        because: TuneReason,
        cost: f64,
        probes: u32,
    ) -> TunedLimit {
        self.stage = Stage::Holding {
            level,
            left: patience(cost, probes),
            probes,
        };
        let number = self.bounds.clamp(level.active.round() as u32);
        self.change(number, because)
    }

    fn change(&mut self, limit: u32, because: TuneReason) -> TunedLimit {
        if limit != self.limit {
            self.limit = limit;
            self.window = Window::default();
            self.doubts = Default::default();
        }
        TunedLimit { limit, because }
    }

    /// The one that is worth more.
    fn better(&self, one: TrialResult, other: TrialResult) -> TrialResult {
        match self.value(one) >= self.value(other) {
            true => one,
            false => other,
        }
    }

    fn value(&self, tried: TrialResult) -> f64 {
        tried.ln - self.worth * tried.active.max(1.0).ln()
    }
}

/// Seconds until the next probe: more while none changes anything, and so many that looking costs little.
fn patience(cost: f64, probes: u32) -> f64 {
    let rest = HOLD_SECONDS * f64::from(probes.clamp(1, 5) - 1).max(0.5);
    rest.max(cost / PROBE_COST_SHARE_MAX).min(HOLD_SECONDS_MAX)
}
