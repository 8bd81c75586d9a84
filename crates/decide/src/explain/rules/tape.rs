//! What a tape system does. Its work comes in cycles: nothing is called stopped before two of them have passed.

use super::super::answer::{Evidence, Measure};
use super::super::rule_input::{ComparedRate, RuleInput};
use super::super::signals::{Series, TapeSignals};
use super::super::split::Factor;
use super::Finding;
use penstock_model::StorageId;
use std::ops::Range;

/// A buffer is full from here on.
const BUFFER_SHARE_MIN: f64 = 0.98;
/// Cycles without a byte written that mean that writing has stopped.
const SILENT_CYCLES_MIN: f64 = 2.0;
/// Drives are all busy from here on.
const BUSY_DRIVES_SHARE_MIN: f64 = 0.95;
/// Fewer files of a mount are a scatter.
const FILES_PER_MOUNT_MIN: f64 = 3.0;
/// More bytes read than asked for are too many.
const READ_RATIO_MAX: f64 = 1.2;
const QUEUED_FILES_MIN: f64 = 0.5;

fn find<'a>(
    input: &'a RuleInput<'_>,
    test: impl Fn(&TapeSignals) -> bool,
) -> Option<(&'a str, &'a TapeSignals)> {
    input
        .storages()
        .map(|(id, storage)| (id.as_str(), &storage.tape))
        .find(|(_, tape)| test(tape))
}

pub(super) fn buffer_full(input: &RuleInput<'_>) -> Option<Finding> {
    let (id, tape) = find(input, |tape| {
        // It is full before the rate falls: pools take files for a while.
        let first = input.low_bins.first().map_or(0, |span| span.start);
        let mut before = (0..first)
            .filter_map(|bin| tape.buffer_used.at(bin))
            .peekable();
        let had_room = before.peek().is_none() || before.any(|part| part < BUFFER_SHARE_MIN);
        is_buffer_full(input, tape) && had_room
    })?;
    Finding::whole(vec![input.value_at(
        Measure::TapeBuffer,
        Some(id),
        &tape.buffer_used,
    )])
}

/// In most of the stretch: a mean would hide it behind the time after it.
fn is_buffer_full(input: &RuleInput<'_>, tape: &TapeSignals) -> bool {
    let bins = input.low_bins.iter().cloned().flatten();
    let (mut known, mut full) = (0_u32, 0_u32);
    for part in bins.filter_map(|bin| tape.buffer_used.at(bin)) {
        known += 1;
        full += u32::from(part >= BUFFER_SHARE_MIN);
    }
    2 * full > known
}

pub(super) fn write_stopped(input: &RuleInput<'_>) -> Option<Finding> {
    let bin = f64::from(input.signals.bin_seconds);
    let end = input.low_bins.last()?.end;
    let storage = find(input, |tape| {
        let cycle = tape.write_cycle_seconds.unwrap_or(bin).max(bin);
        let has_work = input
            .low_mean(&tape.unwritten_bytes)
            .is_some_and(|bytes| bytes > 0.0);
        let is_full = is_buffer_full(input, tape);
        let wrote = input
            .usual_mean(&tape.written_bytes)
            .is_none_or(|written| written > 0.0)
            || (0..end).any(|bin| {
                tape.written_bytes
                    .at(bin)
                    .is_some_and(|written| written > 0.0)
            });
        has_work
            && wrote
            && !is_full
            && silent_seconds(input, &tape.written_bytes) > cycle * SILENT_CYCLES_MIN
    });
    if let Some((id, tape)) = storage {
        return Finding::whole(vec![
            input.value_at(Measure::TapeWritten, Some(id), &tape.written_bytes),
            input.value_at(Measure::TapeUnwritten, Some(id), &tape.unwritten_bytes),
        ]);
    }
    write_stopped_at_pools(input)
}

/// The longest time without a byte written that reaches into the stretch.
fn silent_seconds(input: &RuleInput<'_>, written: &Series) -> f64 {
    let end = input.low_bins.last().map_or(0, |span| span.end);
    let (mut bins, mut longest) = (0u32, 0);
    for bin in 0..end {
        match written.at(bin) {
            Some(written) if written > 0.0 => bins = 0,
            Some(_) => bins += 1,
            None => {}
        }
        if input.low_bins.iter().any(|span| span.contains(&bin)) {
            longest = longest.max(bins);
        }
    }
    f64::from(longest) * f64::from(input.signals.bin_seconds)
}

/// The same where each pool tells of its own bytes: some pools write nothing, and others do.
fn write_stopped_at_pools(input: &RuleInput<'_>) -> Option<Finding> {
    let bin = f64::from(input.signals.bin_seconds);
    let cycle = |storage: Option<&StorageId>| {
        let storage = storage.and_then(|id| input.signals.storages.get(id));
        let cycle = storage.and_then(|storage| storage.tape.write_cycle_seconds);
        cycle.unwrap_or(bin).max(bin)
    };
    let mut evidence = Vec::new();
    for (name, pool) in input.pools() {
        let written = &pool.tape_written_bytes;
        let has_work = input
            .low_mean(&pool.tape_unwritten_bytes)
            .is_some_and(|bytes| bytes > 0.0);
        let ever_wrote = (0..input.signals.bins).any(|bin| written.at(bin) > Some(0.0));
        let silent = silent_seconds(input, written);
        if has_work && ever_wrote && silent > cycle(pool.storage.as_ref()) * SILENT_CYCLES_MIN {
            let unwritten = &pool.tape_unwritten_bytes;
            evidence.push(input.value_at(Measure::TapeUnwritten, Some(name.as_str()), unwritten));
        }
    }
    evidence.truncate(3);
    (!evidence.is_empty()).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

/// No drive is left for another tape.
pub(super) fn has_all_drives_busy(input: &RuleInput<'_>, tape: &TapeSignals) -> bool {
    are_all_busy(input.low_bins, tape) == Some(true)
}

fn are_all_busy(bins: &[Range<usize>], tape: &TapeSignals) -> Option<bool> {
    let (busy, cap) = (tape.drives_busy.mean(bins)?, tape.drives_cap.mean(bins)?);
    Some(cap > 0.0 && busy >= cap * BUSY_DRIVES_SHARE_MIN)
}

/// Files wait to be read from tape.
fn has_recalls(input: &RuleInput<'_>, tape: &TapeSignals) -> bool {
    input
        .low_mean(&tape.recalls_queued)
        .is_some_and(|queued| queued >= QUEUED_FILES_MIN)
}

fn quotient(bins: &[Range<usize>], dividend: &Series, divisor: &Series) -> Option<f64> {
    let sum = |series: &Series| series.sum(bins);
    Some(sum(dividend)? / sum(divisor).filter(|divisor| *divisor > 0.0)?)
}

pub(super) fn drives(input: &RuleInput<'_>) -> Option<Finding> {
    let (id, tape) = find(input, |tape| {
        let gives_less = input.fell(&tape.recalled_bytes, 0.9);
        // What drives bring for others is no less, and the link gets less of it.
        let had_a_free_drive = are_all_busy(input.usual_bins, tape) == Some(false);
        let are_taken = had_a_free_drive && input.fell_factor(Factor::Fed);
        let is_short = gives_less || are_taken;
        has_all_drives_busy(input, tape) && has_recalls(input, tape) && is_short
    })?;
    let mut evidence = vec![
        input.value_at(Measure::TapeDrives, Some(id), &tape.drives_busy),
        input.value_at(Measure::Recalls, Some(id), &tape.recalls_queued),
    ];
    let age = &tape.recall_age_seconds;
    if input.low_mean(age).is_some() {
        evidence.push(input.value_at(Measure::RecallAge, Some(id), age));
    }
    Finding::whole(evidence)
}

pub(super) fn scattered_files(input: &RuleInput<'_>) -> Option<Finding> {
    let per_mount =
        |tape: &TapeSignals, rate| quotient(input.bins(rate), &tape.recalled_files, &tape.mounts);
    let (id, tape) = find(input, |tape| {
        let is_fewer =
            |low: f64| per_mount(tape, ComparedRate::Usual).is_none_or(|usual| low < usual * 0.7);
        has_recalls(input, tape)
            && per_mount(tape, ComparedRate::Low)
                .is_some_and(|low| low < FILES_PER_MOUNT_MIN && is_fewer(low))
    })?;
    let (usual, value) = (
        per_mount(tape, ComparedRate::Usual),
        per_mount(tape, ComparedRate::Low)?,
    );
    Some(of_tape(Measure::FilesPerMount, id, usual, value))
}

pub(super) fn aggregate_read(input: &RuleInput<'_>) -> Option<Finding> {
    let read = |tape: &TapeSignals, rate| {
        quotient(input.bins(rate), &tape.read_bytes, &tape.recalled_bytes)
    };
    let (id, tape) = find(input, |tape| {
        let is_more =
            |low: f64| read(tape, ComparedRate::Usual).is_none_or(|usual| low > usual * 1.1);
        has_recalls(input, tape)
            && read(tape, ComparedRate::Low).is_some_and(|low| low > READ_RATIO_MAX && is_more(low))
    })?;
    let (usual, value) = (
        read(tape, ComparedRate::Usual),
        read(tape, ComparedRate::Low)?,
    );
    let mut finding = of_tape(Measure::ReadAmplification, id, usual, value);
    let fall = usual.unwrap_or(1.0) / value;
    finding.explains = input
        .explains(fall, Factor::Fed)
        .max(input.explains(fall, Factor::StageRate))
        .max(0.2);
    Some(finding)
}

fn of_tape(measure: Measure, id: &str, usual: Option<f64>, value: f64) -> Finding {
    let place = Some(id.to_owned());
    Finding {
        explains: 1.0,
        evidence: vec![Evidence::Value {
            measure,
            place,
            usual,
            value,
        }],
    }
}
