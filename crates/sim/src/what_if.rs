//! What a recorded window would have been with other limits or faster parts: its transfers are replayed in a field as it was
//! measured, first as it was, then with each alternative.
//!
//! A replay that misses the recorded rate is no ground to stand on: beyond [`ERROR_MAX_PERCENT`] nothing is told. Where the
//! record does not tell what limits, there are two fields, a cautious and a hopeful one, and a gain has two ends.

mod alternative;
mod fix;
mod in_force;
mod limiting;
mod measured;
mod replay;
mod spread;
#[cfg(test)]
mod tests;
pub mod words;

pub use alternative::Alternative;
pub use limiting::{Limiting, RateBound, SlotBound};

use crate::report::Report;
use crate::world::simulate;
use measured::{Assumption, MeasuredField};
use penstock_model::{ANY, Slots, StorageId, Timestamp};
use penstock_observe::recorded::{RateLimit, RecordedTransfer, RecordedWindow, StorageSlotLimits};
use serde::Serialize;
use std::collections::BTreeMap;
use thiserror::Error;

/// A replay whose rate differs from the recorded one by more is unfit.
pub const ERROR_MAX_PERCENT: f64 = 25.0;
/// Transfers that a window has at least.
pub const TRANSFERS_MIN: usize = 20;
/// Alternatives of one run at most.
pub const ALTERNATIVES_MAX: usize = 20;
/// Seconds of a window at most: a week.
pub const WINDOW_SECONDS_MAX: u64 = 7 * 86_400;
/// A hopeful field that misses the recorded rate by so many points more than the cautious one is contradicted by the record.
const HOPE_POINTS: f64 = 5.0;

/// How many transfers might run in the window, beside what samples of links tell. `None`: not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitsInForce {
    /// Out of each storage element, and into it.
    pub storage: StorageSlotLimits,
    /// Storage elements with limits of their own: outbound, inbound. [`ANY`]: those that have none.
    pub storages: BTreeMap<StorageId, StorageSlotLimits>,
    /// In the service.
    pub agents: Option<Slots>,
    /// Limits of rates, which are not replayed.
    pub rates: Vec<RateLimit>,
}

impl LimitsInForce {
    fn of_storage(&self, id: &StorageId) -> StorageSlotLimits {
        let own = self.storages.get(id);
        let own = own.or_else(|| self.storages.get(&StorageId::new(ANY)));
        let own = own.copied().unwrap_or_default();
        StorageSlotLimits {
            outbound: own.outbound.or(self.storage.outbound),
            inbound: own.inbound.or(self.storage.inbound),
        }
    }
}

/// Why nothing is told.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum WhatIfError {
    /// Too little happened.
    #[error(
        "{found} transfers started in this window and brought their files; at least {TRANSFERS_MIN} are needed: ask for a \
         longer window"
    )]
    TooFewTransfers { found: usize },
    /// The window is too long.
    #[error(
        "the window is longer than {} days: ask for a part of it", WINDOW_SECONDS_MAX / 86_400
    )]
    TooLong,
    #[error("{ALTERNATIVES_MAX} alternatives can be compared in one run")]
    TooManyAlternatives,
    /// A rate was limited: whatever else changes, that limit may hold.
    #[error(
        "a rate limit of {} {} was in force in this window, and rate limits cannot be replayed: ask for a window without it, or for \
         other links with --link",
        .0.rate, .0.place
    )]
    RateLimited(RateLimit),
    /// The replay is too far from the record.
    #[error(
        "the window cannot be replayed: the simulator moves {} where {} were recorded, which is {error_percent:.0} % off (at \
         most {ERROR_MAX_PERCENT:.0} %); ask for a window in which the service ran steadily",
         words::rate(*.replayed), words::rate(*.recorded)
    )]
    Unfit {
        /// Bytes per second.
        recorded: f64,
        /// Bytes per second.
        replayed: f64,
        /// The difference.
        error_percent: f64,
    },
    /// An alternative cannot be made.
    #[error("{alternative}: {why}")]
    Alternative {
        alternative: String,
        /// Why not.
        why: String,
    },
    /// The simulated service did what it must never do.
    #[error("the simulated service did what it must never do: {0}")]
    Broken(String),
}

/// The answer. Rates are of the time in which transfers were open, in bytes per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// Where the window begins.
    pub from: Timestamp,
    /// Where it ends.
    pub to: Timestamp,
    /// It begins later than was asked for: there are more transfers, or entries of the record, than are read.
    pub is_shortened: bool,
    /// Transfers that were not replayed, because there are too many links.
    pub transfers_passed_over: u64,
    /// Transfers that were replayed.
    pub transfers: usize,
    pub bytes: u64,
    /// Of chance.
    pub seed: u64,
    /// The recorded rate of all links.
    pub recorded_bytes_per_second: f64,
    /// The replayed rate of all links.
    pub replayed_bytes_per_second: f64,
    /// By how much the replay misses the recorded rate: in all, or of links by their bytes, whichever is more.
    pub error_percent: f64,
    /// The replay would be unfit beyond this error.
    pub error_percent_max: f64,
    pub links: Vec<LinkAnswer>,
    /// In the order in which they were asked for.
    pub alternatives: Vec<AlternativeAnswer>,
}

/// A link as it was.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkAnswer {
    pub source: String,
    pub destination: String,
    /// Transfers that were replayed.
    pub transfers: usize,
    /// The recorded rate.
    pub recorded_bytes_per_second: f64,
    /// The replayed rate.
    pub replayed_bytes_per_second: f64,
    /// So many ran at once at most.
    pub active_max: u32,
    pub limiting: Limiting,
}

/// What an alternative brings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlternativeAnswer {
    pub change: String,
    /// The rate of all links: the recorded one with the gain.
    pub bytes_per_second: f64,
    /// The gain on the recorded rate, where the record does not tell better: at least.
    pub gain_percent: f64,
    /// The same at most.
    pub gain_percent_max: f64,
    /// Files that had not arrived when the simulation was cut off.
    pub open: u64,
    pub links: Vec<LinkGain>,
}

/// What an alternative brings to a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkGain {
    pub source: String,
    pub destination: String,
    /// The recorded rate with the gain.
    pub bytes_per_second: f64,
    /// The gain at least.
    pub gain_percent: f64,
    /// The gain at most.
    pub gain_percent_max: f64,
    /// More ran at once than ever did in the window: nobody has seen how the link takes that.
    pub is_beyond_record: bool,
    /// What limits it then.
    pub limiting: Limiting,
}

/// Rates of a run, or of the record: in all, and of each link.
#[derive(Debug, Clone, PartialEq)]
struct Rates {
    all: f64,
    links: Vec<f64>,
}

/// A field that was replayed as it was.
struct Replay {
    field: MeasuredField,
    report: Report,
    rates: Rates,
    error_percent: f64,
}

/// Replays a window, and compares alternatives with it. `tell` hears how many runs are done, and of how many.
///
/// Errors: the window is too short, too long or cannot be replayed; an alternative names what is not there.
pub fn what_if(
    window: &RecordedWindow,
    limits: &LimitsInForce,
    alternatives: &[Alternative],
    seed: u64,
) -> Result<WhatIf, WhatIfError> {
    if let Some(limit) = limits.rates.first() {
        return Err(WhatIfError::RateLimited(limit.clone()));
    }
    let found = window.transfers.len();
    if found < TRANSFERS_MIN {
        return Err(WhatIfError::TooFewTransfers { found });
    }
    if window.window.to.since(window.window.from).as_secs() > WINDOW_SECONDS_MAX {
        return Err(WhatIfError::TooLong);
    }
    if alternatives.len() > ALTERNATIVES_MAX {
        return Err(WhatIfError::TooManyAlternatives);
    }
    let recorded = recorded_rates(window);
    let replay = |assumption| {
        let field = MeasuredField::of(window, limits, assumption);
        let report = run(window, &field, seed)?;
        let rates = rates_of(&report, &field);
        let error_percent = error_percent(window, &recorded, &rates);
        Ok(Replay {
            field,
            report,
            rates,
            error_percent,
        })
    };
    let cautious: Replay = replay(Assumption::Cautious)?;
    if cautious.error_percent > ERROR_MAX_PERCENT {
        return Err(WhatIfError::Unfit {
            recorded: recorded.all,
            replayed: cautious.rates.all,
            error_percent: cautious.error_percent,
        });
    }
    let is_certain = cautious.field == MeasuredField::of(window, limits, Assumption::Hopeful);
    let hopeful = match is_certain {
        true => None,
        false => Some(replay(Assumption::Hopeful)?),
    };
    let hopeful = hopeful.filter(|it| it.error_percent <= cautious.error_percent + HOPE_POINTS);
    let mut answers = Vec::new();
    for alternative in alternatives {
        let of_fields = (&cautious, hopeful.as_ref());
        answers.push(compare(window, &recorded, of_fields, alternative, seed)?);
    }
    Ok(answer_of(window, seed, &recorded, &cautious, answers))
}

fn answer_of(
    window: &RecordedWindow,
    seed: u64,
    recorded: &Rates,
    replay: &Replay,
    alternatives: Vec<AlternativeAnswer>,
) -> WhatIf {
    let field = &replay.field;
    let links = field.links.iter().enumerate().map(|(number, link)| {
        let of_link = window.transfers.iter().filter(|one| one.link == number);
        LinkAnswer {
            source: link.link.source.as_str().to_owned(),
            destination: link.link.destination.as_str().to_owned(),
            transfers: of_link.count(),
            recorded_bytes_per_second: recorded.links[number],
            replayed_bytes_per_second: replay.rates.links[number],
            active_max: link.active_max,
            limiting: Limiting::of(field, &replay.report, number),
        }
    });
    WhatIf {
        from: window.window.from,
        to: window.window.to,
        is_shortened: window.is_shortened,
        transfers_passed_over: window.passed_over,
        transfers: window.transfers.len(),
        bytes: window.transfers.iter().map(|one| one.bytes).sum(),
        seed,
        recorded_bytes_per_second: recorded.all,
        replayed_bytes_per_second: replay.rates.all,
        error_percent: replay.error_percent,
        error_percent_max: ERROR_MAX_PERCENT,
        links: links.filter(|link| link.transfers > 0).collect(),
        alternatives,
    }
}

fn run(window: &RecordedWindow, field: &MeasuredField, seed: u64) -> Result<Report, WhatIfError> {
    let plan = replay::plan_of(window, field, seed);
    let report = simulate(&plan, &mut |_| {});
    report.map_err(|broken| WhatIfError::Broken(broken.to_string()))
}

/// The rates of a run. Its links come in the order of the field's, because limits are set in that order first.
fn rates_of(report: &Report, field: &MeasuredField) -> Rates {
    let rate = |bytes: f64, seconds: f64| match seconds > 0.0 {
        true => bytes / seconds,
        false => 0.0,
    };
    let bytes: f64 = report.links.iter().map(|link| link.bytes).sum();
    let links = (0..field.links.len()).map(|number| {
        let link = report.links.get(number);
        link.map_or(0.0, |link| rate(link.bytes, link.work_seconds))
    });
    Rates {
        all: rate(bytes, report.work_seconds),
        links: links.collect(),
    }
}

fn recorded_rates(window: &RecordedWindow) -> Rates {
    let rate = |of: &dyn Fn(&RecordedTransfer) -> bool| {
        let transfers = || window.transfers.iter().filter(|one| of(one));
        let bytes: f64 = transfers().map(|one| one.bytes as f64).sum();
        let spans = transfers().map(|one| {
            let begin = one.submitted.max(window.window.from);
            (begin.0, one.ended.0)
        });
        let seconds = covered_ms(spans.collect()) as f64 / 1000.0;
        if seconds > 0.0 { bytes / seconds } else { 0.0 }
    };
    let links = 0..window.links.len();
    Rates {
        all: rate(&|_| true),
        links: links.map(|link| rate(&|one| one.link == link)).collect(),
    }
}

/// Milliseconds in which at least one span lies.
fn covered_ms(mut spans: Vec<(i64, i64)>) -> i64 {
    spans.sort_unstable();
    let (mut covered, mut until) = (0, i64::MIN);
    for (from, to) in spans {
        let from = from.max(until);
        covered += (to - from).max(0);
        until = until.max(to);
    }
    covered
}

fn error_percent(window: &RecordedWindow, recorded: &Rates, replayed: &Rates) -> f64 {
    let miss = |recorded: f64, replayed: f64| match recorded > 0.0 {
        true => (replayed / recorded - 1.0).abs(),
        false => 0.0,
    };
    let mut bytes = vec![0.0; recorded.links.len()];
    for transfer in &window.transfers {
        bytes[transfer.link] += transfer.bytes as f64;
    }
    let all: f64 = bytes.iter().sum::<f64>().max(1.0);
    let of_links = recorded.links.iter().zip(&replayed.links).zip(&bytes);
    let of_links = of_links.map(|((recorded, replayed), bytes)| bytes * miss(*recorded, *replayed));
    let by_links = of_links.sum::<f64>() / all;
    100.0 * by_links.max(miss(recorded.all, replayed.all))
}

/// Replays an alternative in each field, and tells its gain on what was recorded.
fn compare(
    window: &RecordedWindow,
    recorded: &Rates,
    (cautious, hopeful): (&Replay, Option<&Replay>),
    alternative: &Alternative,
    seed: u64,
) -> Result<AlternativeAnswer, WhatIfError> {
    let replay = |before: &Replay| {
        let mut field = before.field.clone();
        let applied = alternative.apply(&mut field);
        applied.map_err(|why| WhatIfError::Alternative {
            alternative: alternative.to_string(),
            why,
        })?;
        let report = run(window, &field, seed)?;
        let rates = rates_of(&report, &field);
        Ok((field, report, rates))
    };
    let (field, report, rates) = replay(cautious)?;
    let others = hopeful.map(|hopeful| Ok((hopeful, replay(hopeful)?.2)));
    let others = others.transpose()?;
    let gain = |before: f64, after: f64| match before > 0.0 {
        true => 100.0 * (after / before - 1.0),
        false => 0.0,
    };
    // The ends of a gain, the lower one first.
    let gains = |of: &dyn Fn(&Rates) -> f64| {
        let one = gain(of(&cautious.rates), of(&rates));
        let other = others.as_ref();
        let other = other.map_or(one, |(before, after)| gain(of(&before.rates), of(after)));
        (one.min(other), one.max(other))
    };
    let with = |rate: f64, gain_percent: f64| rate * (1.0 + gain_percent / 100.0);
    let (gain_percent, gain_percent_max) = gains(&|rates| rates.all);
    let links = field.links.iter().enumerate().map(|(number, link)| {
        let (gain_percent, gain_percent_max) = gains(&|rates| rates.links[number]);
        let active = report.links.get(number).map_or(0, |link| link.active_max);
        LinkGain {
            source: link.link.source.as_str().to_owned(),
            destination: link.link.destination.as_str().to_owned(),
            bytes_per_second: with(recorded.links[number], gain_percent),
            gain_percent,
            gain_percent_max,
            is_beyond_record: active > link.active_max,
            limiting: Limiting::of(&field, &report, number),
        }
    });
    let is_used = |gain: &LinkGain| gain.bytes_per_second > 0.0;
    Ok(AlternativeAnswer {
        change: alternative.to_string(),
        bytes_per_second: with(recorded.all, gain_percent),
        gain_percent,
        gain_percent_max,
        open: report.open(),
        links: links.filter(is_used).collect(),
    })
}
