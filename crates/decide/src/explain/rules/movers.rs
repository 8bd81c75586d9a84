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

pub(super) fn stalled_mover(input: &RuleInput<'_>) -> Option<Finding> {
    let mut stalled = 0.0;
    let mut evidence = Vec::new();
    let pools = input.pools();
    let of_pools = pools.iter().map(|(name, pool)| {
        let (stalled, age) = (&pool.movers_stalled, &pool.progress_age_seconds);
        (Some(name.as_str()), stalled, age)
    });
    let tells = |series: &Series| series.max(input.low_bins).is_some();
    let mut seen: Vec<(Option<&str>, &Series, &Series)> = of_pools
        .filter(|(_, stalled, age)| tells(stalled) || tells(age))
        .collect();
    if seen.is_empty() {
        // Where no storage element tells of its movers, the transfer service tells what it saw of them.
        seen.push((None, &input.link.stalled, &input.link.progress_age_seconds));
    }
    for (place, stalled_movers, progress_age) in seen {
        let count = input.low_mean(stalled_movers);
        let age = progress_age.max(input.low_bins);
        let usual = input.usual_mean(progress_age).unwrap_or(0.0);
        let is_silent =
            age.is_some_and(|age| age > SILENCE_SECONDS_MIN.max(usual * SILENCE_RATIO_MIN));
        if !is_silent && count.is_none_or(|count| count < 0.5) {
            continue;
        }
        let holds = count.unwrap_or(1.0) - input.usual_mean(stalled_movers).unwrap_or(0.0);
        stalled += holds.max(0.0);
        let (measure, series) = match is_silent {
            true => (Measure::MoverProgress, progress_age),
            false => (Measure::StalledMovers, stalled_movers),
        };
        evidence.push(input.value_at(measure, place, series));
    }
    if evidence.is_empty() {
        return standstill(input);
    }
    evidence.truncate(3);
    // Slots that move nothing lower the mean rate of all that run.
    let explains = input
        .low
        .active
        .filter(|active| *active > 0.0)
        .map_or(1.0, |active| {
            input.explains(1.0 - (stalled / active).min(1.0), Factor::StageRate)
        });
    Some(Finding { explains, evidence })
}

/// All that run move nothing and do not fail, for longer than bytes were ever waited for before, and no file lands meanwhile.
/// Intervals without bytes alone say nothing: where bytes are told at the end of a file only, there are many of them when
/// files are few.
fn standstill(input: &RuleInput<'_>) -> Option<Finding> {
    let link = input.link;
    let bin_seconds = f64::from(input.signals.bin_seconds);
    let bins: usize = input.low_bins.iter().map(ExactSizeIterator::len).sum();
    let pause = longest_pause(link, input.low_bins);
    let seconds = pause as f64 * bin_seconds;
    // An end that does not answer holds up transfers before any mover has begun.
    let preparing = input.low_mean(&link.preparing).unwrap_or(0.0);
    let runs = link.active.min(input.low_bins)? >= MOVERS_MIN
        && input.low_mean(&link.active)? - preparing >= MOVERS_MIN;
    let is_most = pause as f64 >= bins as f64 * STANDSTILL_SHARE_MIN;
    let is_long = seconds >= STANDSTILL_SECONDS_MIN
        && seconds >= usual_pause_seconds(input) * STANDSTILL_RATIO_MIN;
    // Where the silence of each is known, one of them must be silent.
    let silence = link.progress_age_seconds.max(input.low_bins);
    let is_silent = silence.is_none_or(|age| age >= STANDSTILL_SECONDS_MIN);
    // Each may have been given up once for its silence; more failures are a cause of their own.
    let failed = link.failed_attempts().sum(input.low_bins).unwrap_or(0.0);
    let fails = failed > input.low_mean(&link.active)?;
    let evidence = vec![
        input.value(Measure::Active, &link.active),
        input.value(Measure::MovedBytes, &link.copied_bytes),
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
fn usual_pause_seconds(input: &RuleInput<'_>) -> f64 {
    let active = &input.link.active;
    let (Some(usual), Some(low)) = (input.usual_mean(active), input.low_mean(active)) else {
        return SILENCE_SECONDS_MIN;
    };
    // Between two bins with bytes there is no pause that is seen, but one of up to a bin.
    let pause = (longest_pause(input.link, input.usual_bins) + 1) as f64;
    let fewer = if low > 0.0 { usual / low } else { 1.0 };
    pause * f64::from(input.signals.bin_seconds) * fewer.max(1.0)
}
