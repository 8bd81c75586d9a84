//! Transfers that move nothing, second by second, beside transfers of which bytes are told now and then only.

use super::super::signals::{FailureGroup, LinkSignals, Series, Signals};
use super::*;
use penstock_model::{Errno, Phase, Side, StorageId, Timestamp};

const BEFORE: Range<usize> = 0..40;
const DURING: Range<usize> = 40..52;
const FILE_BYTES: f64 = 1e6;

fn link() -> LinkId {
    LinkId {
        source: StorageId::new("https://far.org"),
        destination: StorageId::new("https://here.org"),
    }
}

/// One value before and another in the stretch.
fn step(before: f64, during: f64) -> Series {
    let bins = 0..DURING.end;
    Series::known(bins.map(|bin| match DURING.contains(&bin) {
        true => during,
        false => before,
    }))
}

/// A file each so many seconds before and in the stretch, in which bytes are told as it ends; 0: none.
fn each(before: usize, during: usize) -> Series {
    let lands = |bin: usize| match DURING.contains(&bin) {
        true => during > 0 && (bin - DURING.start) % during == during - 1,
        false => bin % before == before - 1,
    };
    Series::known((0..DURING.end).map(|bin| if lands(bin) { 1.0 } else { 0.0 }))
}

fn seconds(files: Series, slots: Series) -> Signals {
    let mut signals = Signals::unknown(Timestamp(0), 1, DURING.end);
    let bytes = files
        .0
        .iter()
        .map(|files| Some(files.unwrap_or(0.0) * FILE_BYTES));
    let link_signals = LinkSignals {
        copied_bytes: Series(bytes.collect()),
        active: slots.clone(),
        limit: slots,
        queued: step(50.0, 50.0),
        finished_files: files,
        file_bytes: step(FILE_BYTES, FILE_BYTES),
        ..LinkSignals::default()
    };
    signals.links.insert(link(), link_signals);
    signals
}

fn watched_link(signals: &mut Signals) -> &mut LinkSignals {
    signals.links.get_mut(&link()).expect("there")
}

fn causes(signals: &Signals) -> Vec<Cause> {
    let told = explain_change(signals, &[link()], BEFORE, DURING).expect("known");
    told.causes.iter().map(|named| named.cause).collect()
}

#[test]
fn transfers_of_which_no_byte_is_told_any_more_are_stalled() {
    let stopped = seconds(each(1, 0), step(6.0, 6.0));
    assert_eq!(causes(&stopped), [Cause::StalledMover]);
}

#[test]
fn a_lower_limit_leaves_longer_pauses_between_files_and_stalls_nobody() {
    // Eight files of ten seconds each; of the one that runs then no byte is told in the first ten.
    let mut lowered = seconds(each(1, 0), step(8.0, 1.0));
    assert_eq!(causes(&lowered), [Cause::SlotLimit]);
    lowered = seconds(each(1, 10), step(8.0, 1.0));
    assert_eq!(causes(&lowered)[0], Cause::SlotLimit);
}

#[test]
fn pauses_as_long_as_before_are_no_standstill() {
    // Bytes are told as files end, and these end together.
    let rare = seconds(each(10, 0), step(6.0, 6.0));
    assert_eq!(causes(&rare), []);
}

#[test]
fn where_files_land_nothing_stands_still() {
    let mut landing = seconds(each(1, 2), step(6.0, 6.0));
    watched_link(&mut landing).copied_bytes = step(FILE_BYTES, 0.0);
    assert_eq!(causes(&landing), []);
}

#[test]
fn where_the_silence_of_each_is_known_one_of_them_is_silent() {
    let mut signals = seconds(each(1, 0), step(6.0, 6.0));
    watched_link(&mut signals).progress_age_seconds = step(0.4, 0.0);
    assert_eq!(causes(&signals), [], "they wait for something else");
    watched_link(&mut signals).progress_age_seconds = step(0.4, 11.0);
    assert_eq!(causes(&signals), [Cause::StalledMover]);
}

#[test]
fn transfers_that_fail_again_and_again_are_not_stalled() {
    let mut signals = seconds(each(1, 0), step(6.0, 6.0));
    let group = FailureGroup::new(Side::Source, Phase::Transfer, Errno(5), "text");
    let failures = &mut watched_link(&mut signals).failures;
    failures.insert(group, step(0.0, 2.0));
    assert_eq!(causes(&signals)[0], Cause::SourceErrors);
}

#[test]
fn transfers_whose_ends_have_not_answered_yet_are_no_movers() {
    // Of eight slots two are left, and both wait for an answer.
    let mut lowered = seconds(each(1, 0), step(8.0, 2.0));
    assert!(causes(&lowered).contains(&Cause::StalledMover));
    watched_link(&mut lowered).preparing = step(0.1, 1.9);
    assert_eq!(causes(&lowered), [Cause::SlotLimit]);
    // One of them waits, the other one moves nothing.
    watched_link(&mut lowered).preparing = step(0.1, 1.0);
    assert!(causes(&lowered).contains(&Cause::StalledMover));
}
