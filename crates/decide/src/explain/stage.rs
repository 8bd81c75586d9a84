//! Which stage of the copies is the slowest.

use super::signals::{DataPathStage, LinkSignals, StageSignals};
use std::collections::BTreeMap;
use std::ops::Range;

/// A stage is the bottleneck when it works for this part of its time …
const BUSY_MIN: f64 = 0.6;
/// … or when its seconds per byte grew by this much more than those of any other.
const GROWTH_MIN: f64 = 1.3;

/// The bottleneck: it works nearly all the time, the stage before it waits to hand over and the one after it waits for
/// input. Where waiting is not told, it is the stage whose seconds per byte grew most.
pub fn bottleneck(
    link: &LinkSignals,
    before: &[Range<usize>],
    during: &[Range<usize>],
) -> Option<DataPathStage> {
    by_waiting(&link.stages, during).or_else(|| by_growth(link, before, during))
}

fn by_waiting(
    stages: &BTreeMap<DataPathStage, StageSignals>,
    during: &[Range<usize>],
) -> Option<DataPathStage> {
    let times = |stage: &StageSignals| {
        let (busy, input, output) = (
            stage.busy.mean(during)?,
            stage.input_wait.mean(during)?,
            stage.output_wait.mean(during)?,
        );
        let all = busy + input + output;
        (all > 0.0).then(|| (busy / all, input / all, output / all))
    };
    let known: Vec<(DataPathStage, (f64, f64, f64))> = stages
        .iter()
        .filter_map(|(stage, signals)| Some((*stage, times(signals)?)))
        .collect();
    let (at, (stage, (busy, _, _))) = known
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.1.0.total_cmp(&b.1.1.0))?;
    let upstream_waits = at == 0 || known[at - 1].1.2 >= known[at - 1].1.1;
    let downstream_waits = at + 1 == known.len() || known[at + 1].1.1 >= known[at + 1].1.2;
    (*busy >= BUSY_MIN && known.len() > 1 && upstream_waits && downstream_waits).then_some(*stage)
}

fn by_growth(
    link: &LinkSignals,
    before: &[Range<usize>],
    during: &[Range<usize>],
) -> Option<DataPathStage> {
    let bytes = link.moved_bytes();
    let (bytes_before, bytes_during) = (bytes.sum(before)?, bytes.sum(during)?);
    let growth = |stage: &StageSignals| {
        let (old, new) = (stage.busy.sum(before)?, stage.busy.sum(during)?);
        let is_known = old > 0.0 && bytes_before > 0.0 && bytes_during > 0.0;
        is_known.then(|| (new / bytes_during / (old / bytes_before), new))
    };
    let mut grown: Vec<(DataPathStage, f64, f64)> = (link.stages.iter())
        .filter_map(|(stage, signals)| growth(signals).map(|(growth, now)| (*stage, growth, now)))
        .collect();
    // A stage that takes a hundredth of the time does not hold up the others, however much it grew.
    let all: f64 = grown.iter().map(|(_, _, now)| now).sum();
    grown.retain(|(_, _, now)| *now >= all * 0.1);
    grown.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let (first, second) = (grown.first()?, grown.get(1));
    let is_clear = second.is_none_or(|second| first.1 >= second.1 * GROWTH_MIN);
    (first.1 >= GROWTH_MIN && is_clear).then_some(first.0)
}
