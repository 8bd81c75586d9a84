//! Which stage of the copies is the slowest.

use super::signals::{DataPathStage, LinkSignals, Series, StageSignals};
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
    usual_bins: &[Range<usize>],
    low_bins: &[Range<usize>],
) -> Option<DataPathStage> {
    by_waiting(&link.stages, low_bins).or_else(|| by_growth(link, usual_bins, low_bins))
}

fn by_waiting(
    stages: &BTreeMap<DataPathStage, StageSignals>,
    low_bins: &[Range<usize>],
) -> Option<DataPathStage> {
    let times = |stage: &StageSignals| {
        let (busy, input, output) = (
            stage.busy.mean(low_bins)?,
            stage.input_wait.mean(low_bins)?,
            stage.output_wait.mean(low_bins)?,
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

/// Bytes of the files whose stages are told in each bin: of those that landed in it. Where that is not known, what moved.
pub(super) fn staged_bytes(link: &LinkSignals) -> Series {
    let bins = link.finished_files.0.len().min(link.file_bytes.0.len());
    let landed = (0..bins)
        .map(|bin| Some(link.finished_files.at(bin)? * link.file_bytes.at(bin)?))
        .collect::<Vec<_>>();
    match landed.iter().any(Option::is_some) {
        true => Series(landed),
        false => link.moved_bytes(),
    }
}

/// Seconds in all, and for each byte, over the bins of which both are known: a bin in which no file landed has neither.
pub(super) fn seconds_per_byte(
    busy: &Series,
    bytes: &Series,
    spans: &[Range<usize>],
) -> Option<(f64, f64)> {
    let bins = spans.iter().flat_map(Range::clone);
    let both = bins.filter_map(|bin| Some((busy.at(bin)?, bytes.at(bin)?)));
    let (seconds, bytes) = both.fold((0.0, 0.0), |sums, one| (sums.0 + one.0, sums.1 + one.1));
    (bytes > 0.0).then(|| (seconds, seconds / bytes))
}

fn by_growth(
    link: &LinkSignals,
    usual_bins: &[Range<usize>],
    low_bins: &[Range<usize>],
) -> Option<DataPathStage> {
    let bytes = staged_bytes(link);
    let growth = |stage: &StageSignals| {
        let (_, usual) = seconds_per_byte(&stage.busy, &bytes, usual_bins)?;
        let (seconds, low) = seconds_per_byte(&stage.busy, &bytes, low_bins)?;
        (usual > 0.0).then(|| (low / usual, seconds))
    };
    let mut grown: Vec<(DataPathStage, f64, f64)> = (link.stages.iter())
        .filter_map(|(stage, signals)| {
            growth(signals).map(|(growth, seconds)| (*stage, growth, seconds))
        })
        .collect();
    // A stage that takes a hundredth of the time does not hold up the others, however much it grew.
    let all: f64 = grown.iter().map(|(_, _, seconds)| seconds).sum();
    grown.retain(|(_, _, seconds)| *seconds >= all * 0.1);
    grown.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let (first, second) = (grown.first()?, grown.get(1));
    let is_clear = second.is_none_or(|second| first.1 >= second.1 * GROWTH_MIN);
    (first.1 >= GROWTH_MIN && is_clear).then_some(first.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_files_of_unchanged_speed_are_no_slower_stage() {
        // Of the later ten minutes five have a file that landed, from disks that are less busy.
        let landed = |minute: u32| minute < 10 || minute.is_multiple_of(2);
        let when_landed = |value: &dyn Fn(u32) -> f64| {
            let told = (0..20).map(|minute| landed(minute).then(|| value(minute)));
            Series(told.collect())
        };
        let files = |minute| f64::from(u8::from(landed(minute)));
        let moved = |minute| if minute < 10 { 1e9 } else { 5e8 };
        let mut link = LinkSignals {
            copied_bytes: Series::known((0..20).map(moved)),
            finished_files: Series::known((0..20).map(files)),
            file_bytes: when_landed(&|_| 1e9),
            ..LinkSignals::default()
        };
        let read = |minute| if minute < 10 { 9.0 } else { 6.0 };
        for (stage, busy) in [
            (DataPathStage::Network, when_landed(&|_| 50.0)),
            (DataPathStage::SourceRead, when_landed(&read)),
        ] {
            let signals = StageSignals {
                busy,
                ..StageSignals::default()
            };
            link.stages.insert(stage, signals);
        }
        let (before, during) = (0..10, 10..20);
        let span = std::slice::from_ref::<Range<usize>>;
        let bottleneck_of = |link: &LinkSignals| bottleneck(link, span(&before), span(&during));
        assert_eq!(bottleneck_of(&link), None);
        for minute in 10..20 {
            let network = link.stages.get_mut(&DataPathStage::Network).expect("known");
            network.busy.0[minute] = network.busy.0[minute].map(|seconds| 2.0 * seconds);
        }
        assert_eq!(bottleneck_of(&link), Some(DataPathStage::Network));
    }
}
