//! ASGC, Taipei, 2011: 350 clients write 100 MB each to one disk server, run with the server and the disk array that the talk
//! prints; once as it was, and once as it was mended.
//!
//! What the old firmware and "Linux default multipathing" did is not printed: what they do here is chosen, and the page says it.

use super::told::Line;
use super::write_record::{Intervals, RecordedTest, WrittenServer, record};
use crate::disk_server::{
    Admission, ArrayConfiguration, DiskServerConfiguration, Disks, LunOwner, PathChoice,
    WritePolicy, WriteTest, WriteTestRun,
};
use penstock_decide::explain::signals::{Change, Series, ServerName, Setting, Signals};
use penstock_model::{LinkId, StorageId, Timestamp};
use std::fmt::Write;
use std::ops::Range;

/// 17 March 2011, 0:00 UTC: the day on which it came into production.
const BEGIN: Timestamp = Timestamp(1_300_320_000_000);
const BIN_SECONDS: u32 = 1;
const STEPS_OF_BIN: u32 = 20;
/// From one run to the next.
const PAUSE_BINS: usize = 20;
/// Until the memory of the server is full, and from where some clients are done.
const FILLING_BINS: usize = 6;
const ENDING_BINS: usize = 3;
/// "100M x350", each client a file of its own.
const CLIENTS: u32 = 350;
const FILE_BYTES: f64 = 100e6;
/// How long it took when all was well: "Duration: 1m 51s DPM".
#[cfg(test)]
pub(super) const WELL_SECONDS: f64 = 111.0;
/// "10GbE", "Peak network ~ 950MB/s".
const INTERFACE_RATE: f64 = 950e6;
/// "Memory: 24G", of which Linux gathers 10 % before it writes.
const GATHERED_BYTES_MAX: f64 = 0.1 * 24e9;
/// "RAIDLevel: RAID5, NumOfUsedPD: 12, Stripe: 64 KB".
const DISKS: u32 = 12;
const CHUNK_BYTES: f64 = 64.0 * 1024.0;
/// Chosen: what disks of 2 TB wrote in one piece at that time.
const RATE_OF_DISK: f64 = 100e6;
/// "8Gb/s x 2 FC-Host": what is left of a port's 8 Gb/s after its coding.
const PORT_RATE: f64 = 800e6;
/// Chosen: what a controller had as a cache, and how long another one takes to take over.
const CACHE_BYTES: f64 = 512e6;
const HANDOVER_SECONDS: f64 = 1.0;
/// Chosen: what Linux took by default, instead of the talk's "rr_min_io 100".
const DEFAULT_REQUESTS_OF_TURN: u32 = 1_000;

/// As the talk prints it at the end: "CurrentWritePolicy: WriteBack", "LUN Affinity: Enabled", "path_grouping_policy
/// group_by_prio".
fn mended() -> DiskServerConfiguration {
    DiskServerConfiguration {
        interface_rate: INTERFACE_RATE,
        gathered_bytes_max: GATHERED_BYTES_MAX,
        array: ArrayConfiguration {
            disks: Disks::raid5(DISKS, CHUNK_BYTES, RATE_OF_DISK),
            write_policy: WritePolicy::WriteBack,
            cache_bytes: CACHE_BYTES,
            port_rate: PORT_RATE,
            owner: LunOwner::Preferred,
            handover_seconds: HANDOVER_SECONDS,
            path_choice: PathChoice::ByPriority,
        },
    }
}

/// Case I. Chosen: the old firmware writes through its cache.
fn with_old_firmware() -> DiskServerConfiguration {
    let mut configuration = mended();
    configuration.array.write_policy = WritePolicy::WriteThrough;
    configuration
}

/// Case II. Chosen: the paths to both controllers have their turns, and the controller that is asked takes over.
fn with_default_paths() -> DiskServerConfiguration {
    let mut configuration = mended();
    configuration.array.owner = LunOwner::AskedLast;
    configuration.array.path_choice = PathChoice::InTurn {
        requests: DEFAULT_REQUESTS_OF_TURN,
    };
    configuration
}

/// A configuration, and what came of it.
#[derive(Debug)]
pub(super) struct Run {
    what: &'static str,
    pub(super) run: WriteTestRun,
    /// While all clients wrote.
    bins: Range<usize>,
}

/// A case: as it was, and as it was mended.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) line: Line,
    pub(super) signals: Signals,
    pub(super) runs: [Run; 2],
    /// The interval in which it was mended.
    pub(super) mended_at: usize,
}

fn link() -> LinkId {
    LinkId {
        source: StorageId::new("clients"),
        destination: StorageId::new("asgc"),
    }
}

const SERVER: WrittenServer = WrittenServer {
    server: "blade1",
    array: "VTrak LD0",
    door: None,
};

/// What an operator changed.
struct Repair {
    place: &'static str,
    old: &'static str,
    new: &'static str,
}

fn case(
    words: (&'static str, &'static str),
    before: &DiskServerConfiguration,
    repair: Repair,
) -> Case {
    let test = WriteTest {
        files: CLIENTS,
        file_bytes: FILE_BYTES,
        admission: Admission::Queued { at_once: CLIENTS },
        streams: 1,
        places_of_stream: 1.0,
        rate_max: f64::INFINITY,
        relayed_part: 0.0,
    };
    let run = |configuration: &DiskServerConfiguration| {
        test.run(configuration, f64::from(BIN_SECONDS), STEPS_OF_BIN)
    };
    let (first, second) = (run(before), run(&mended()));
    let mended_at = first.bins.len() + PAUSE_BINS / 2;
    let link = link();
    let recorded = |run, first_bin| RecordedTest {
        link: &link,
        test: &test,
        run,
        first_bin,
    };
    let tests = [
        recorded(&first, 0),
        recorded(&second, first.bins.len() + PAUSE_BINS),
    ];
    let intervals = Intervals {
        begin: BEGIN,
        bin_seconds: BIN_SECONDS,
        bins: tests[1].bins().end,
    };
    let mut signals = record(intervals, &SERVER, &tests);
    signals.changes.push(Change {
        at: signals.begin_of(mended_at),
        who: "an operator of ASGC".to_owned(),
        place: repair.place.to_owned(),
        setting: Setting::Fact,
        old: Some(repair.old.to_owned()),
        new: Some(repair.new.to_owned()),
    });
    let writing = |test: &RecordedTest<'_>| {
        let last = test.first_bin + test.run.seconds as usize;
        test.first_bin + FILLING_BINS..last.saturating_sub(ENDING_BINS)
    };
    let spans = tests.each_ref().map(writing);
    let [before, after] = spans.clone();
    let line = Line::of_spans(words, &signals, std::slice::from_ref(&link), before, after);
    let [before, after] = spans;
    Case {
        line,
        signals,
        runs: [
            Run {
                what: repair.old,
                run: first,
                bins: before,
            },
            Run {
                what: repair.new,
                run: second,
                bins: after,
            },
        ],
        mended_at,
    }
}

/// Both cases.
pub(super) fn cases() -> [Case; 2] {
    [
        case(
            (
                "case I",
                "low disk throughput; better by updating the firmware of the controller",
            ),
            &with_old_firmware(),
            Repair {
                place: "blade1 controller firmware",
                old: "old firmware",
                new: "updated firmware",
            },
        ),
        case(
            (
                "case II",
                "turbulent disk throughput; consistent by changing from Linux' multipathing to the vendor's",
            ),
            &with_default_paths(),
            Repair {
                place: "blade1 multipath",
                old: "Linux default",
                new: "VTrak with ALUA and LUN affinity",
            },
        ),
    ]
}

impl Case {
    /// Bytes that came from the network, and bytes that the array took.
    pub(super) fn curves(&self) -> [(&'static str, &Series); 2] {
        let server = &self.signals.servers[&ServerName(SERVER.server.to_owned())];
        [
            ("network", &server.bytes_in),
            ("array", &server.devices[SERVER.array].bytes),
        ]
    }

    /// Of the array while all clients write: bytes per second, and their standard deviation as a part of it.
    pub(super) fn rate_and_variation(&self, run: &Run) -> (f64, f64) {
        let [_, (_, array)] = self.curves();
        let bytes = array.values(std::slice::from_ref(&run.bins));
        let bytes: Vec<f64> = bytes.collect();
        let count = bytes.len().max(1) as f64;
        let mean = bytes.iter().sum::<f64>() / count;
        let squares = bytes
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>();
        (
            mean / f64::from(BIN_SECONDS),
            (squares / count).sqrt() / mean,
        )
    }
}

/// What the runs came to, as a table of a page.
pub(super) fn table(cases: &[Case; 2]) -> String {
    let mut text = String::from(
        "| case | configuration | all files there after | rate of the array while all write | variation from second to second | changes of the path |\n\
         |---|---|---:|---:|---:|---:|\n",
    );
    for case in cases {
        for run in &case.runs {
            let (rate, variation) = case.rate_and_variation(run);
            let switches = run.run.bins.iter().map(|bin| bin.path_switches);
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} s | {:.0} MB/s | {:.0} % | {:.0} |",
                case.line.when,
                run.what,
                run.run.seconds_to_array,
                rate / 1e6,
                variation * 100.0,
                switches.sum::<f64>()
            );
        }
    }
    text
}
