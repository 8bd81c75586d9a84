//! Edinburgh, Sheffield, Glasgow and RAL-PP, about 2005: `srmcp` beside FTS, one run after the other, run with a disk server that gathers
//! in its memory what it writes: the more places it writes to, the shorter are the pieces that it writes at once.
//!
//! Four numbers are fitted to four printed rates, and ways between sites are given; all else follows.

use super::told::{Line, Span, changes_of};
use super::write_record::{Intervals, RecordedTest, WrittenServer, record};
use crate::disk_server::{
    Admission, ArrayConfiguration, DiskServerConfiguration, Disks, LunOwner, PathChoice,
    WritePolicy, WriteTest, WriteTestRun,
};
use penstock_decide::explain::signals::{FailureGroup, Series, Signals};
use penstock_decide::incidents::{Incident, IncidentTimes, incidents_of, occurrences_of};
use penstock_model::{Errno, LinkId, Phase, Side, StorageId, Timestamp};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

/// 1 June 2005, 0:00 UTC: the page tells no day.
const BEGIN: Timestamp = Timestamp(1_117_584_000_000);
const BIN_SECONDS: u32 = 60;
/// The memory of the server is full, and empty, within a second.
const STEPS_OF_BIN: u32 = 600;
/// Bins at both ends of a run in which copies begin and end.
const EDGE_BINS: usize = 2;
/// From one run to the next.
const PAUSE_BINS: usize = 5;
const MEGABIT: f64 = 125_000.0;
const FILE_BYTES: f64 = 1e9;
/// Fitted to 160 and 381 Mb/s: what the disks write of one long piece, and what the server gathers. Another place takes them 10 ms.
const STREAMING_MEGABITS: f64 = 450.0;
const GATHERED_BYTES_MAX: f64 = 31e6;
const ACCESS_SECONDS: f64 = 0.01;
/// Fitted to 203 Mb/s: in so many places the door's copies write to a file, as `strace` showed without a number.
const PLACES_OF_DOOR: f64 = 6.7;
/// Fitted to 310 Mb/s: seconds in which ten files are removed.
const REMOVAL_SECONDS: f64 = 47.7;
/// Given, in Mb/s: Glasgow's way, as the mean of its three runs that no disk held down (327.1, 300.3, 352.5); RAL-PP's way to
/// other sites, as that of its two runs, and to RAL; the way to Sheffield.
const FROM_GLASGOW_MEGABITS: f64 = 326.6;
const FROM_RAL_PP_MEGABITS: f64 = 186.7;
const TO_RAL_MEGABITS: f64 = 380.0;
const TO_SHEFFIELD_MEGABITS: f64 = 105.0;
/// "dCache has a default maximum limit of 30 active gridftp transfers".
const TRANSFERS_MAX: u32 = 30;
/// Chosen: how often a client tries again.
const RETRIES: u32 = 20;
const RETRY_SECONDS: f64 = 10.0;

/// Where a simulated rate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// A number of the server was chosen so that it comes out.
    Fitted,
    /// The way between two sites was given this rate.
    Given,
    /// It follows from the others.
    Follows,
}

/// What the page prints of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Printed {
    Megabits(&'static [f64]),
    Words(&'static str),
}

/// A row of the page's results.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) printed: Printed,
    pub(super) basis: Basis,
    link: LinkId,
    test: WriteTest,
    pub(super) run: WriteTestRun,
}

/// All rows, and what is said of those that the authors compare.
#[derive(Debug)]
pub(super) struct Edinburgh {
    pub(super) rows: Vec<Row>,
    /// What is said of rows beside an earlier one.
    compared: Vec<Compared>,
}

#[derive(Debug)]
struct Compared {
    row: usize,
    with: usize,
    line: Line,
}

fn between(source: &str, destination: &str) -> LinkId {
    LinkId {
        source: StorageId::new(source),
        destination: StorageId::new(destination),
    }
}

/// Edinburgh's server. Others are taken to be like it: of their disks nothing is told, and their ways are slower.
fn server() -> DiskServerConfiguration {
    DiskServerConfiguration {
        interface_rate: 125e6,
        gathered_bytes_max: GATHERED_BYTES_MAX,
        array: ArrayConfiguration {
            disks: Disks {
                streaming_rate: STREAMING_MEGABITS * MEGABIT,
                access_seconds: ACCESS_SECONDS,
                revolution_seconds: 0.0,
                full_stripe_bytes: 0.0,
            },
            write_policy: WritePolicy::WriteBack,
            cache_bytes: 0.0,
            port_rate: f64::INFINITY,
            owner: LunOwner::Preferred,
            handover_seconds: 0.0,
            path_choice: PathChoice::ByPriority,
        },
    }
}

const NAMES: WrittenServer = WrittenServer {
    server: "dcache.epcc",
    array: "RAID disk",
    door: Some("srm.epcc"),
};

/// Files straight to the disk server, one connection each, over a way that is no limit.
fn copies(files: u32, at_once: u32) -> WriteTest {
    WriteTest {
        files,
        file_bytes: FILE_BYTES,
        admission: Admission::Queued { at_once },
        streams: 1,
        places_of_stream: 1.0,
        rate_max: f64::INFINITY,
        relayed_part: 0.0,
    }
}

/// The same through both doors: one of them is on another server, and passes its half on.
fn through_doors(test: WriteTest) -> WriteTest {
    WriteTest {
        places_of_stream: PLACES_OF_DOOR,
        relayed_part: 0.5,
        ..test
    }
}

fn over(megabits: f64, test: WriteTest) -> WriteTest {
    WriteTest {
        rate_max: megabits * MEGABIT,
        ..test
    }
}

fn refused(files: u32) -> WriteTest {
    let admission = Admission::Refused {
        running_max: TRANSFERS_MAX,
        retries: RETRIES,
        retry_seconds: RETRY_SECONDS,
    };
    over(
        TO_SHEFFIELD_MEGABITS,
        WriteTest {
            admission,
            ..copies(files, files)
        },
    )
}

/// Places of rows in [`rows`] that others are compared with.
const TEN_STREAMS: usize = 0;
const ONE_STREAM: usize = 1;
const TWO_BATCHES: usize = 2;
const WITH_REMOVAL: usize = 3;
const WITH_FTS: usize = 4;
const GLASGOW_25: usize = 6;
const GLASGOW_7: usize = 7;
const GLASGOW_STREAMS: usize = 9;
const FROM_RAL_PP: usize = 10;
const RAL_PP_TO_GLASGOW: usize = 11;
const TO_SHEFFIELD_ALL: usize = 14;

/// Long because each printed row has its own entry.
fn rows() -> Vec<Row> {
    use Basis::{Fitted, Follows, Given};
    use Printed::{Megabits, Words};
    let row = |(source, destination): (&str, &str), what, printed, basis, test: WriteTest| Row {
        what,
        printed,
        basis,
        link: between(source, destination),
        run: test.run(&server(), f64::from(BIN_SECONDS), STEPS_OF_BIN),
        test,
    };
    let streams = |streams, test| WriteTest { streams, ..test };
    let (sheffield, glasgow) = (("sheffield", "edinburgh"), ("glasgow", "edinburgh"));
    let with_removal = WriteTest {
        admission: Admission::InBatches {
            at_once: 10,
            removal_seconds: REMOVAL_SECONDS,
        },
        ..copies(250, 10)
    };
    let from_glasgow = |files, at_once| over(FROM_GLASGOW_MEGABITS, copies(files, at_once));
    let from_ral_pp = |files| over(FROM_RAL_PP_MEGABITS, copies(files, 7));
    let to_sheffield = ("edinburgh", "sheffield");
    vec![
        row(
            sheffield,
            "Sheffield, srmCopy: 10 files, 10 connections each",
            Megabits(&[160.0]),
            Fitted,
            streams(10, copies(100, 10)),
        ),
        row(
            sheffield,
            "Sheffield, srmCopy: 10 files, 1 connection each",
            Megabits(&[381.0, 370.0]),
            Fitted,
            copies(250, 10),
        ),
        row(
            sheffield,
            "the same, two batches at the same time",
            Words("little or no improvement"),
            Follows,
            copies(500, 20),
        ),
        row(
            sheffield,
            "the same, each ten files removed before the next ten",
            Megabits(&[310.0]),
            Fitted,
            with_removal,
        ),
        row(
            sheffield,
            "Sheffield, FTS through two doors: 10 files, 1 connection each",
            Megabits(&[203.0, 197.0]),
            Fitted,
            through_doors(copies(250, 10)),
        ),
        row(
            glasgow,
            "Glasgow, FTS through two doors (number of files not told: 10)",
            Megabits(&[276.0]),
            Follows,
            through_doors(from_glasgow(50, 10)),
        ),
        row(
            glasgow,
            "Glasgow, FTS with srmCopy: 25 files",
            Megabits(&[319.1]),
            Follows,
            from_glasgow(50, 25),
        ),
        row(
            glasgow,
            "Glasgow, FTS with srmCopy: 7 files",
            Megabits(&[327.1, 300.3]),
            Given,
            from_glasgow(50, 7),
        ),
        row(
            glasgow,
            "the same, 1 TB",
            Megabits(&[352.5]),
            Given,
            from_glasgow(1_000, 7),
        ),
        row(
            glasgow,
            "Glasgow, FTS with srmCopy: 7 files, 10 connections each",
            Megabits(&[204.4]),
            Follows,
            streams(10, from_glasgow(50, 7)),
        ),
        row(
            ("ral-pp", "edinburgh"),
            "RAL-PP to Edinburgh",
            Megabits(&[192.5]),
            Given,
            from_ral_pp(100),
        ),
        row(
            ("ral-pp", "glasgow"),
            "RAL-PP to Glasgow",
            Megabits(&[180.8]),
            Given,
            from_ral_pp(54),
        ),
        row(
            to_sheffield,
            "Edinburgh to Sheffield, srmcp: 25 files submitted",
            Megabits(&[105.0]),
            Given,
            refused(25),
        ),
        row(
            to_sheffield,
            "the same, 50 files submitted",
            Words("31 files done"),
            Follows,
            refused(50),
        ),
        row(
            to_sheffield,
            "the same, 200 files submitted",
            Words("30 files done"),
            Follows,
            refused(200),
        ),
    ]
}

/// Runs everything.
pub(super) fn run() -> Edinburgh {
    let rows = rows();
    let asked = |words, with: usize, row: usize| {
        let comparison = Comparison::of(&rows[with], &rows[row]);
        let [before, after] = comparison.spans.clone();
        let (signals, links) = (&comparison.signals, &comparison.links);
        let line = Line::of_spans(words, signals, links, before, after);
        Compared { row, with, line }
    };
    let watched = |words, with: usize, row: usize| Compared {
        row,
        with,
        line: watched(words, &rows[with], &rows[row]),
    };
    let ral_pp = |reports| Compared {
        row: FROM_RAL_PP,
        with: GLASGOW_7,
        line: ral_pp(&rows, reports),
    };
    let compared = vec![
        asked(
            (
                "Sheffield, srmCopy: 10 → 1 connections",
                "160 → 381 Mb/s: the rate was improved significantly",
            ),
            TEN_STREAMS,
            ONE_STREAM,
        ),
        watched(
            (
                "Sheffield, srmCopy: 1 → 2 batches",
                "little or no improvement in transfer rate",
            ),
            ONE_STREAM,
            TWO_BATCHES,
        ),
        asked(
            (
                "Sheffield, srmCopy: with removal",
                "381 → 310 Mb/s: a fairer comparison",
            ),
            ONE_STREAM,
            WITH_REMOVAL,
        ),
        asked(
            (
                "Sheffield: srmCopy → FTS",
                "381 → 203 Mb/s: a much more random disk access pattern; half of the bytes through the other door",
            ),
            ONE_STREAM,
            WITH_FTS,
        ),
        watched(
            (
                "Glasgow: 25 → 7 files at once",
                "319 → 327 and 300 Mb/s: remarkably it is even faster, and the load is not as large",
            ),
            GLASGOW_25,
            GLASGOW_7,
        ),
        asked(
            (
                "Glasgow: 1 → 10 connections",
                "327 → 204 Mb/s: a detrimental effect, and a higher load",
            ),
            GLASGOW_7,
            GLASGOW_STREAMS,
        ),
        ral_pp(Reports::OfThatTime),
        ral_pp(Reports::OfToday),
    ];
    Edinburgh { rows, compared }
}

/// Two runs, one after the other.
struct Comparison {
    signals: Signals,
    links: Vec<LinkId>,
    /// Without the begin and the end of each run.
    spans: [Range<usize>; 2],
}

impl Comparison {
    fn of(first: &Row, second: &Row) -> Comparison {
        let tests = [
            first.recorded(0),
            second.recorded(first.run.bins.len() + PAUSE_BINS),
        ];
        let signals = record(intervals(tests[1].bins().end), &NAMES, &tests);
        let links = BTreeSet::from([first.link.clone(), second.link.clone()]);
        let spans = tests.each_ref().map(|test| {
            let bins = test.bins();
            bins.start + EDGE_BINS..bins.end.saturating_sub(EDGE_BINS)
        });
        Comparison {
            signals,
            links: links.into_iter().collect(),
            spans,
        }
    }
}

fn intervals(bins: usize) -> Intervals {
    Intervals {
        begin: BEGIN,
        bin_seconds: BIN_SECONDS,
        bins,
    }
}

/// What a watch would find by itself of the second run.
fn watched(words: (&'static str, &'static str), first: &Row, second: &Row) -> Line {
    let tests = [first.recorded(0), second.recorded(first.run.bins.len())];
    let all = intervals(tests[1].bins().end.saturating_sub(EDGE_BINS));
    let signals = record(all, &NAMES, &tests);
    let link = &first.link;
    let changes = changes_of(&signals, link, std::slice::from_ref(link));
    let whole = Span {
        from: BEGIN,
        to: signals.begin_of(signals.bins),
    };
    Line::of_falls(words, &changes, &[whole])
}

/// What is known of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reports {
    /// Rates, and how many files at once.
    OfThatTime,
    /// Stages of the copies, servers and their disks too.
    OfToday,
}

/// Glasgow sends to Edinburgh, then RAL-PP does; RAL-PP to Glasgow is as slow, RAL-PP to RAL is not.
fn ral_pp(rows: &[Row], reports: Reports) -> Line {
    let mut comparison = Comparison::of(&rows[GLASGOW_7], &rows[FROM_RAL_PP]);
    let second = rows[GLASGOW_7].run.bins.len() + PAUSE_BINS;
    let bins = comparison.signals.bins;
    let to_ral = over(TO_RAL_MEGABITS, copies(50, 7));
    let to_ral = Row {
        what: "RAL-PP to RAL",
        printed: Printed::Megabits(&[380.0]),
        basis: Basis::Given,
        link: between("ral-pp", "ral"),
        run: to_ral.run(&server(), f64::from(BIN_SECONDS), STEPS_OF_BIN),
        test: to_ral,
    };
    let others = [
        (to_ral.recorded(0), "pool.ral"),
        (rows[RAL_PP_TO_GLASGOW].recorded(second), "pool.glasgow"),
    ];
    for (test, server) in others {
        let names = WrittenServer {
            server,
            array: "disk",
            door: None,
        };
        let of_other = record(intervals(bins), &names, &[test]);
        comparison.signals.links.extend(of_other.links);
        comparison.signals.servers.extend(of_other.servers);
    }
    let words = match reports {
        Reports::OfThatTime => (
            "Edinburgh, from Glasgow → from RAL-PP",
            "327 → 192 Mb/s (and to Glasgow 181, though 380 were seen to RAL): maybe RAL-PP have some networking issues",
        ),
        Reports::OfToday => (
            "the same, with what copies report today",
            "(no stage of a copy was measured)",
        ),
    };
    if reports == Reports::OfThatTime {
        comparison.signals.servers.clear();
        for link in comparison.signals.links.values_mut() {
            link.stages.clear();
            link.streams_used = Series::default();
        }
    }
    let [before, after] = comparison.spans.clone();
    Line::of_spans(words, &comparison.signals, &comparison.links, before, after)
}

impl Row {
    fn recorded(&self, first_bin: usize) -> RecordedTest<'_> {
        RecordedTest {
            link: &self.link,
            test: &self.test,
            run: &self.run,
            first_bin,
        }
    }

    pub(super) fn simulated_megabits(&self) -> f64 {
        self.run.rate(self.test.file_bytes) / MEGABIT
    }

    fn printed_words(&self) -> String {
        match self.printed {
            Printed::Megabits(rates) => {
                let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
                format!("{} Mb/s", rates.join(" and "))
            }
            Printed::Words(words) => words.to_owned(),
        }
    }
}

impl Edinburgh {
    pub(super) fn lines(&self) -> impl Iterator<Item = &Line> + Clone {
        self.compared.iter().map(|compared| &compared.line)
    }

    /// Printed and simulated rates, as a table of a page.
    pub(super) fn table(&self) -> String {
        let mut text = String::from(
            "| | run | printed | simulated | files done | the simulated rate is | first cause |\n|---:|---|---:|---:|---:|---|---|\n",
        );
        for (number, row) in self.rows.iter().enumerate() {
            let basis = match row.basis {
                Basis::Fitted => "fitted",
                Basis::Given => "given, by the way between both sites",
                Basis::Follows => "a result",
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.0} Mb/s | {} of {} | {basis} | {} |",
                number + 1,
                row.what,
                row.printed_words(),
                row.simulated_megabits(),
                row.run.finished_files,
                row.test.files,
                self.first_cause(number),
            );
        }
        text
    }

    fn first_cause(&self, row: usize) -> String {
        let compared = self.compared.iter().find(|compared| compared.row == row);
        if let Some(compared) = compared {
            let with = compared.with + 1;
            return match (&compared.line.told, compared.line.first_cause()) {
                (None, _) => format!("beside {with}: no change"),
                (Some(_), None) => format!("beside {with}: unexplained"),
                (Some(_), Some(cause)) => format!("beside {with}: `{}`", cause.code()),
            };
        }
        match self.rows[row].run.refusals() {
            refusals if refusals > 0.0 => "refusals, as below".to_owned(),
            _ => String::new(),
        }
    }

    /// The refusals of 200 files that are submitted at once, as incidents.
    pub(super) fn refusals(&self) -> Vec<Incident> {
        let row = &self.rows[TO_SHEFFIELD_ALL];
        let names = WrittenServer {
            server: "dcache.sheffield",
            array: "disk",
            door: None,
        };
        let mut signals = record(intervals(row.run.bins.len()), &names, &[row.recorded(0)]);
        let group = FailureGroup::new(
            Side::Destination,
            Phase::Preparation,
            Errno::EAGAIN,
            "TransferManager error too many transfers!",
        );
        let refused = Series::known(row.run.bins.iter().map(|bin| bin.refusals));
        for link in signals.links.values_mut() {
            link.failures.insert(group.clone(), refused.clone());
        }
        let until = signals.begin_of(signals.bins);
        let times = IncidentTimes::default();
        let links = BTreeSet::from([row.link.clone()]);
        incidents_of(occurrences_of(&signals, &links, &[], times, until), times)
    }
}
