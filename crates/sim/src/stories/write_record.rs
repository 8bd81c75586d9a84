//! What a service and a disk server record while files are copied to the server, as the explainer reads it.

use crate::disk_server::{DiskServerCounts, StageSeconds, WriteTest, WriteTestRun};
use penstock_decide::explain::signals::{
    DataPathStage, DeviceSignals, LinkSignals, Series, ServerName, ServerSignals, Signals,
    StageSignals,
};
use penstock_model::{LinkId, Timestamp};
use std::ops::Range;

/// Copies over a link, and when they began.
pub(super) struct RecordedTest<'a> {
    pub(super) link: &'a LinkId,
    pub(super) test: &'a WriteTest,
    pub(super) run: &'a WriteTestRun,
    pub(super) first_bin: usize,
}

/// Names of what is written to.
pub(super) struct WrittenServer {
    pub(super) server: &'static str,
    pub(super) array: &'static str,
    /// Another server of the site, which passes on what it receives.
    pub(super) door: Option<&'static str>,
}

/// Intervals of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intervals {
    pub(super) begin: Timestamp,
    pub(super) bin_seconds: u32,
    pub(super) bins: usize,
}

impl RecordedTest<'_> {
    pub(super) fn bins(&self) -> Range<usize> {
        self.first_bin..self.first_bin + self.run.bins.len()
    }

    fn counts(&self, bin: usize) -> Option<&DiskServerCounts> {
        self.run.bins.get(bin.checked_sub(self.first_bin)?)
    }
}

/// The record of tests that ran one after the other, into one server.
pub(super) fn record(
    intervals: Intervals,
    server: &WrittenServer,
    tests: &[RecordedTest<'_>],
) -> Signals {
    let Intervals {
        begin,
        bin_seconds,
        bins,
    } = intervals;
    let mut signals = Signals::unknown(begin, bin_seconds, bins);
    for test in tests {
        if !signals.links.contains_key(test.link) {
            let of_link: Vec<&RecordedTest<'_>> = tests
                .iter()
                .filter(|other| other.link == test.link)
                .collect();
            signals
                .links
                .insert(test.link.clone(), link_signals(intervals, &of_link));
            let submitted = column(bins, &of_link, |_, now| now.submitted_files);
            signals
                .service
                .submissions
                .insert(test.link.clone(), submitted);
        }
    }
    add_servers(&mut signals, server, tests);
    signals
}

/// What was counted in each interval; 0 where nothing was copied.
fn column(
    bins: usize,
    tests: &[&RecordedTest<'_>],
    value: impl Fn(&WriteTest, &DiskServerCounts) -> f64,
) -> Series {
    let values = known(tests, value);
    Series::known((0..bins).map(|bin| values(bin).unwrap_or(0.0)))
}

fn known<'a>(
    tests: &'a [&RecordedTest<'_>],
    value: impl Fn(&WriteTest, &DiskServerCounts) -> f64 + 'a,
) -> impl Fn(usize) -> Option<f64> + 'a {
    move |bin| {
        let mut now = tests
            .iter()
            .filter_map(|test| Some((test.test, test.counts(bin)?)));
        now.next().map(|(test, counts)| value(test, counts))
    }
}

/// The same, unknown where nothing was copied.
fn column_of_copies(
    bins: usize,
    tests: &[&RecordedTest<'_>],
    value: impl Fn(&WriteTest, &DiskServerCounts) -> f64,
) -> Series {
    Series((0..bins).map(known(tests, value)).collect())
}

fn link_signals(intervals: Intervals, tests: &[&RecordedTest<'_>]) -> LinkSignals {
    let bins = intervals.bins;
    let seconds = f64::from(intervals.bin_seconds);
    let stage = |of: fn(&DiskServerCounts) -> StageSeconds| StageSignals {
        busy: column(bins, tests, |_, now| of(now).busy),
        input_wait: column(bins, tests, |_, now| of(now).input_wait),
        output_wait: column(bins, tests, |_, now| of(now).output_wait),
    };
    let mut link = LinkSignals {
        copied_bytes: column(bins, tests, |_, now| now.received_bytes),
        failed_bytes: column(bins, tests, |_, _| 0.0),
        active: column(bins, tests, |_, now| now.copy_seconds / seconds),
        limit: column_of_copies(bins, tests, |test, _| {
            f64::from(test.admission.running_max())
        }),
        queued: column(bins, tests, |_, now| now.queued_seconds / seconds),
        finished_files: column(bins, tests, |_, now| now.finished_files),
        file_bytes: column_of_copies(bins, tests, |test, _| test.file_bytes),
        streams_used: column_of_copies(bins, tests, |test, _| f64::from(test.streams)),
        ..LinkSignals::default()
    };
    link.stages
        .insert(DataPathStage::Network, stage(|now| now.receiving));
    link.stages
        .insert(DataPathStage::DestinationWrite, stage(|now| now.writing));
    link
}

fn add_servers(signals: &mut Signals, names: &WrittenServer, tests: &[RecordedTest<'_>]) {
    let (bins, seconds) = (signals.bins, f64::from(signals.bin_seconds));
    let tests: Vec<&RecordedTest<'_>> = tests.iter().collect();
    let tests = tests.as_slice();
    let storage = tests.first().map(|test| test.link.destination.clone());
    let array = DeviceSignals {
        utilisation: column(bins, tests, |_, now| now.array_busy_seconds / seconds),
        bytes: column(bins, tests, |_, now| now.written_bytes),
        path_switches: column(bins, tests, |_, now| now.path_switches),
        other_path_bytes: column(bins, tests, |_, now| now.other_path_bytes),
    };
    let out_of_order = |_: &WriteTest, now: &DiskServerCounts| {
        now.write_calls_out_of_order / now.write_calls.max(f64::MIN_POSITIVE)
    };
    let mut server = ServerSignals {
        storage: storage.clone(),
        bytes_in: column(bins, tests, |_, now| now.received_bytes),
        in_flight: column(bins, tests, |_, now| now.copy_seconds / seconds),
        random_writes: column_of_copies(bins, tests, out_of_order),
        up: Series::constant(1.0, bins),
        ..ServerSignals::default()
    };
    server.devices.insert(names.array.to_owned(), array);
    signals
        .servers
        .insert(ServerName(names.server.to_owned()), server);
    if let Some(door) = names.door {
        let relayed = column(bins, tests, |_, now| now.relayed_bytes);
        let door_signals = ServerSignals {
            storage,
            bytes_in: relayed.clone(),
            bytes_out: relayed.clone(),
            relayed_bytes: relayed,
            up: Series::constant(1.0, bins),
            ..ServerSignals::default()
        };
        signals
            .servers
            .insert(ServerName(door.to_owned()), door_signals);
    }
}
