//! Movers that hold slots and move nothing.

use super::super::answer::Measure;
use super::super::rule_input::RuleInput;
use super::super::signals::{LinkSignals, Series};
use super::super::split::Factor;
use super::Finding;
use std::ops::Range;

/// A mover that moves nothing for so long is stalled, or for so many times its usual silence.
const SILENCE_SECONDS_MIN: f64 = 600.0;
const SILENCE_RATIO_MIN: f64 = 20.0;
/// When all movers move nothing for so long, they are stalled.
const STANDSTILL_SECONDS_MIN: f64 = 5.0;
/// In so much of a drop: what was under way when it began still arrives.
const STANDSTILL_SHARE_MIN: f64 = 0.6;
/// So many transfers, on average, whose bytes could have moved.
const MOVERS_MIN: f64 = 0.5;
/// And for so many times the longest pause that so few of them would have made before.
const STANDSTILL_RATIO_MIN: f64 = 2.0;

pub(super) fn stalled_mover(view: &RuleInput<'_>) -> Option<Finding> {
    let mut stalled = 0.0;
    let mut evidence = Vec::new();
    let pools = view.pools();
    let of_pools = pools.iter().map(|(name, pool)| {
        let (stalled, age) = (&pool.movers_stalled, &pool.progress_age_seconds);
        (Some(name.as_str()), stalled, age)
    });
    let tells = |series: &Series| series.max(view.low_bins).is_some();
    let mut seen: Vec<(Option<&str>, &Series, &Series)> = of_pools
        .filter(|(_, stalled, age)| tells(stalled) || tells(age))
        .collect();
    if seen.is_empty() {
        // Where no storage element tells of its movers, the transfer service tells what it saw of them.
        seen.push((None, &view.link.stalled, &view.link.progress_age_seconds));
    }
    for (place, stalled_movers, progress_age) in seen {
        let count = view.low_mean(stalled_movers);
        let age = progress_age.max(view.low_bins);
        let usual = view.usual_mean(progress_age).unwrap_or(0.0);
        let is_silent =
            age.is_some_and(|age| age > SILENCE_SECONDS_MIN.max(usual * SILENCE_RATIO_MIN));
        if !is_silent && count.is_none_or(|count| count < 0.5) {
            continue;
        }
        let holds = count.unwrap_or(1.0) - view.usual_mean(stalled_movers).unwrap_or(0.0);
        stalled += holds.max(0.0);
        let (measure, series) = match is_silent {
            true => (Measure::MoverProgress, progress_age),
            false => (Measure::StalledMovers, stalled_movers),
        };
        evidence.push(view.value_at(measure, place, series));
    }
    if evidence.is_empty() {
        return standstill(view);
    }
    evidence.truncate(3);
    // Slots that move nothing lower the mean rate of all that run.
    let explains = view
        .low
        .active
        .filter(|active| *active > 0.0)
        .map_or(1.0, |active| {
            view.explains(1.0 - (stalled / active).min(1.0), Factor::StageRate)
        });
    Some(Finding { explains, evidence })
}

/// All that run move nothing and do not fail, for longer than bytes were ever waited for before, and no file lands meanwhile.
/// Intervals without bytes alone say nothing: where bytes are told at the end of a file only, there are many of them when
/// files are few.
fn standstill(view: &RuleInput<'_>) -> Option<Finding> {
    let link = view.link;
    let bin_seconds = f64::from(view.signals.bin_seconds);
    let bins: usize = view.low_bins.iter().map(ExactSizeIterator::len).sum();
    let pause = longest_pause(link, view.low_bins);
    let seconds = pause as f64 * bin_seconds;
    // An end that does not answer holds up transfers before any mover has begun.
    let preparing = view.low_mean(&link.preparing).unwrap_or(0.0);
    let runs = link.active.min(view.low_bins)? >= MOVERS_MIN
        && view.low_mean(&link.active)? - preparing >= MOVERS_MIN;
    let is_most = pause as f64 >= bins as f64 * STANDSTILL_SHARE_MIN;
    let is_long = seconds >= STANDSTILL_SECONDS_MIN
        && seconds >= usual_pause_seconds(view) * STANDSTILL_RATIO_MIN;
    // Where the silence of each is known, one of them must be silent.
    let silence = link.progress_age_seconds.max(view.low_bins);
    let is_silent = silence.is_none_or(|age| age >= STANDSTILL_SECONDS_MIN);
    // Each may have been given up once for its silence; more failures are a cause of their own.
    let failed = link.failed_attempts().sum(view.low_bins).unwrap_or(0.0);
    let fails = failed > view.low_mean(&link.active)?;
    let evidence = vec![
        view.value(Measure::Active, &link.active),
        view.value(Measure::MovedBytes, &link.copied_bytes),
    ];
    (runs && is_most && is_long && is_silent && !fails).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

/// The most bins in a row in which no byte moved and no file landed.
fn longest_pause(link: &LinkSignals, spans: &[Range<usize>]) -> usize {
    let moved = link.moved_bytes();
    let is_still = |bin: usize| {
        let lands = link.finished_files.at(bin).is_some_and(|files| files > 0.0);
        moved.at(bin).is_some_and(|bytes| bytes <= 0.0) && !lands
    };
    let longest = |span: &Range<usize>| {
        let (longest, _) = span.clone().fold((0, 0), |(longest, run), bin| {
            let run = if is_still(bin) { run + 1 } else { 0 };
            (run.max(longest), run)
        });
        longest
    };
    spans.iter().map(longest).max().unwrap_or(0)
}

/// How long no byte would have been told of as many transfers as run now, as pauses were before: fewer of them make longer ones.
fn usual_pause_seconds(view: &RuleInput<'_>) -> f64 {
    let active = &view.link.active;
    let (Some(usual), Some(low)) = (view.usual_mean(active), view.low_mean(active)) else {
        return SILENCE_SECONDS_MIN;
    };
    // Between two bins with bytes there is no pause that is seen, but one of up to a bin.
    let pause = (longest_pause(view.link, view.usual_bins) + 1) as f64;
    let fewer = if low > 0.0 { usual / low } else { 1.0 };
    pause * f64::from(view.signals.bin_seconds) * fewer.max(1.0)
}
