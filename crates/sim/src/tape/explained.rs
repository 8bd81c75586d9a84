//! What the explainer makes of a library's samples: recalls of a log on emulated drives, counted as a storage element counts them, and
//! a link that moves what they bring.

use super::Forecasts;
use super::plan::{ReadPolicy, TapePlan};
use super::{LibraryWorld, RecallLog, demand};
use penstock_decide::explain::signals::{LinkSignals, Series, Signals};
use penstock_decide::explain::{Cause, explain};
use penstock_model::{LinkId, PoolName, PoolSample, PoolSamples, StorageId, TapeSample, Timestamp};
use penstock_observe::pool_signals::PoolFold;
use penstock_tape::drive_pool::DriveState;
use penstock_tape::live_set::LiveSet;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::record::{DriveRecord, Record};
use penstock_tape::request::FileId;
use penstock_tape::request_engine::Effect;
use std::collections::BTreeMap;

const BIN_SECONDS: u32 = 600;
const HOURS: usize = 12;
const BINS: usize = HOURS * 3_600 / BIN_SECONDS as usize;
/// Bytes per second of one copy.
const COPY_RATE: f64 = 1e8;

/// What drives did in each bin, as a storage element would have counted it.
#[derive(Debug, Default)]
pub(super) struct BinSamples {
    bins: BTreeMap<i64, TapeSample>,
    sizes: BTreeMap<FileId, u64>,
}

impl BinSamples {
    pub(super) fn take(&mut self, now_ns: i64, effects: &[Effect], live: &LiveSet) {
        let bin = now_ns / (i64::from(BIN_SECONDS) * SECOND_NS);
        let sample = self.bins.entry(bin).or_default();
        let add = |sum: &mut Option<u64>, more: u64| *sum = Some(sum.unwrap_or(0) + more);
        add(&mut sample.mounts, 0);
        add(&mut sample.read_bytes, 0);
        for effect in effects {
            match effect {
                Effect::Mount { purpose, .. } => {
                    add(&mut sample.mounts, u64::from(!purpose.is_archive()));
                }
                Effect::Read {
                    file, size_bytes, ..
                } => {
                    add(&mut sample.read_bytes, *size_bytes);
                    self.sizes.insert(*file, *size_bytes);
                }
                Effect::Persist(records) => {
                    for record in records {
                        if let Record::Drive(DriveRecord::ReadBegun { over_bytes, .. }) = record {
                            add(&mut sample.read_bytes, *over_bytes);
                        }
                        if let Record::Drive(DriveRecord::ReadEnded { file, .. }) = record {
                            sample.recalled_files += 1;
                            sample.recalled_bytes += self.sizes.get(file).unwrap_or(&0);
                        }
                    }
                }
                _ => {}
            }
        }
        // A look at each event: their mean is what counts.
        let drives = live.drives.0.values();
        let busy = drives.filter(|drive| drive.state != DriveState::Free);
        sample.looks += 1;
        sample.drives_busy += busy.count() as u64;
        sample.drives_max += live.drives.0.len() as u64;
        let waiting = live
            .recalls
            .values()
            .filter(|entry| entry.read_by.is_none());
        sample.recalls_queued += waiting.count() as u64;
    }
}

/// Half of the time one thing is asked for, then another one: lines of a log behind the time, a minute's at a time.
fn causes_of(first: impl Fn(u64) -> Vec<String>, then: impl Fn(u64) -> Vec<String>) -> Vec<Cause> {
    let mut log = String::from("seconds,vo,kind,tape,begin_bytes,size_bytes\n");
    let minutes = HOURS as u64 * 60;
    for minute in 0..minutes {
        let lines = match minute < minutes / 2 {
            true => first(minute),
            false => then(minute - minutes / 2),
        };
        for line in lines {
            log += &format!("{},atlas,LTO-8,{line}\n", minute * 60);
        }
    }
    let log = RecallLog::parse(&log).expect("a log");
    let plan = format!(
        r#"{{"name": "explained", "seed": 5, "hours_max": {HOURS},
            "library": {{"slots": 5000, "arms": 2, "move_seconds": 15, "moves_per_hour_max": 300}},
            "drives": [{{"kind": "LTO-8", "count": 2}}]}}"#
    );
    let plan = TapePlan::parse(&plan).expect("a plan");
    let demand = demand::Demand::new(&plan, Some(&log)).expect("it is asked for");
    let mut world = LibraryWorld::new(&plan, &demand, (ReadPolicy::Serpentine, Forecasts::None))
        .expect("it runs");
    world.run();
    let mut signals = Signals::unknown(Timestamp(0), BIN_SECONDS, BINS);
    let watched = LinkId {
        source: StorageId::new("https://tape.org"),
        destination: StorageId::new("https://far.org"),
    };
    let samples: Vec<TapeSample> = (0..BINS as i64)
        .map(|bin| world.samples.bins.get(&bin).cloned().unwrap_or_default())
        .collect();
    let series = |value: &dyn Fn(&TapeSample) -> f64| {
        Series(samples.iter().map(|sample| Some(value(sample))).collect())
    };
    let all = |value: f64| Series(vec![Some(value); BINS]);
    let link = LinkSignals {
        copied_bytes: series(&|sample| sample.recalled_bytes as f64),
        finished_files: series(&|sample| sample.recalled_files as f64),
        active: series(&|sample| sample.recalled_bytes as f64 / COPY_RATE / f64::from(BIN_SECONDS)),
        limit: all(50.0),
        queued: all(0.0),
        unfed: all(0.0),
        ..LinkSignals::default()
    };
    signals.links.insert(watched.clone(), link);
    let mut fold = PoolFold::of(&signals);
    for (bin, sample) in (0_i64..).zip(&samples) {
        let ms = i64::from(BIN_SECONDS) * 1_000;
        let looks = u64::from(BIN_SECONDS);
        let pool = PoolSample {
            looks,
            reachable: looks,
            accepting: looks,
            ..PoolSample::new(PoolName::new("buffer"))
        };
        fold.take(&PoolSamples {
            from: Timestamp(bin * ms),
            to: Timestamp((bin + 1) * ms),
            pools: vec![pool],
            tape: Some(sample.clone()),
        });
    }
    fold.tell(&["tape.org".to_owned()], &mut signals);
    let told = explain(&signals, &[watched]);
    let causes = told.iter().flat_map(|told| &told.causes);
    causes.map(|named| named.cause).collect()
}

const GB: u64 = 1_000_000_000;

/// Of each quarter of an hour, files that lie behind one another on one tape.
fn collocated(minute: u64) -> Vec<String> {
    let files = 0..100;
    let line = |file: u64| format!("run{:03},{},{}", minute / 15, file * 4 * GB, 4 * GB);
    match minute % 15 {
        0 => files.map(line).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn recalls_of_files_that_are_scattered_over_tapes_are_named() {
    let scattered = |minute: u64| {
        let files = 0..6;
        let line = |file| format!("s{:04},{},{}", minute * 6 + file, 900 * GB, 4 * GB);
        files.map(line).collect()
    };
    let causes = causes_of(collocated, scattered);
    assert!(causes.contains(&Cause::ScatteredFiles), "{causes:?}");
    assert!(!causes.contains(&Cause::AggregateRead), "{causes:?}");
}

#[test]
fn aggregates_that_are_read_through_for_single_members_are_named() {
    // One member of ten, so near that a locate would take longer than what lies between.
    let members = |minute: u64| {
        let files = 0..400;
        let line = |file| format!("a{:03},{},{}", minute / 15, file * GB, GB / 10);
        match minute % 15 {
            0 => files.map(line).collect(),
            _ => Vec::new(),
        }
    };
    let causes = causes_of(collocated, members);
    assert!(causes.contains(&Cause::AggregateRead), "{causes:?}");
    assert!(!causes.contains(&Cause::ScatteredFiles), "{causes:?}");
}
