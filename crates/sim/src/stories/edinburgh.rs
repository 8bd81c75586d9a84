//! Edinburgh, Sheffield, Glasgow and RAL-PP, about 2005: `srmcp` beside FTS, as recorded windows, one run after the other. The
//! simulator knows no order of writes and no door that passes bytes on.

use super::told::{Line, changes_of};
use penstock_decide::explain::signals::{
    FailureGroup, LinkSignals, Series, ServerName, ServerSignals, Signals,
};
use penstock_decide::incidents::{Incident, IncidentTimes, incidents_of, occurrences_of};
use penstock_model::{Errno, LinkId, Phase, Side, StorageId, Timestamp};
use std::collections::BTreeSet;

/// 1 June 2005, 0:00 UTC: the page tells no day.
const BEGIN: Timestamp = Timestamp(1_117_584_000_000);
const BIN: u32 = 60;
const BINS: usize = 120;
/// From here on it is the second run.
const SECOND: usize = 60;
const MEGABIT: f64 = 125_000.0;
/// Of 200 files: 30 were done.
const REFUSED: usize = 170;

/// What is known of a run.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// As the page prints it.
    megabits: f64,
    files: f64,
    streams: Option<f64>,
    /// The part of the bytes that a door passes on to another server, and of the writes that follow no other.
    relayed: Option<f64>,
    random: Option<f64>,
}

const RUN: Run = Run {
    megabits: 0.0,
    files: 10.0,
    streams: None,
    relayed: None,
    random: None,
};

fn to_edinburgh(source: &str) -> LinkId {
    LinkId {
        source: StorageId::new(source),
        destination: StorageId::new("edinburgh"),
    }
}

/// Two runs over one link.
fn window(link: &LinkId, runs: [Run; 2]) -> Signals {
    let run = |bin: usize| if bin < SECOND { &runs[0] } else { &runs[1] };
    let column = |value: fn(&Run) -> f64| Series::known((0..BINS).map(|bin| value(run(bin))));
    let told =
        |value: fn(&Run) -> Option<f64>| Series((0..BINS).map(|bin| value(run(bin))).collect());
    let seconds = f64::from(BIN);
    let mut signals = Signals::unknown(BEGIN, BIN, BINS);
    let of_link = LinkSignals {
        copied_bytes: Series::known((0..BINS).map(|bin| run(bin).megabits * MEGABIT * seconds)),
        active: column(|run| run.files),
        limit: column(|run| run.files),
        queued: Series::constant(20.0, BINS),
        finished_files: Series::known(
            (0..BINS).map(|bin| run(bin).megabits * MEGABIT * seconds / 1e9),
        ),
        streams_used: told(|run| run.streams),
        ..LinkSignals::default()
    };
    signals.links.insert(link.clone(), of_link);
    let server = |bin: usize, part: fn(&Run) -> Option<f64>| {
        Some(run(bin).megabits * MEGABIT * seconds * part(run(bin))?)
    };
    let pool_node = ServerSignals {
        storage: Some(link.destination.clone()),
        bytes_in: Series(
            (0..BINS)
                .map(|bin| server(bin, |run| run.relayed.map(|_| 1.0)))
                .collect(),
        ),
        random_writes: told(|run| run.random),
        ..ServerSignals::default()
    };
    let door = ServerSignals {
        storage: Some(link.destination.clone()),
        bytes_in: Series(
            (0..BINS)
                .map(|bin| server(bin, |run| run.relayed))
                .collect(),
        ),
        relayed_bytes: Series(
            (0..BINS)
                .map(|bin| server(bin, |run| run.relayed))
                .collect(),
        ),
        ..ServerSignals::default()
    };
    signals
        .servers
        .insert(ServerName("dcache.epcc".to_owned()), pool_node);
    signals
        .servers
        .insert(ServerName("srm.epcc".to_owned()), door);
    signals
}

fn of_runs(words: (&'static str, &'static str), source: &str, runs: [Run; 2]) -> Line {
    let link = to_edinburgh(source);
    let signals = window(&link, runs);
    Line::of_spans(words, &signals, &[link], 5..SECOND, SECOND + 2..BINS)
}

/// The table of the page, row by row.
pub(super) fn lines() -> Vec<Line> {
    let streams = |megabits, streams| Run {
        megabits,
        streams: Some(streams),
        ..RUN
    };
    let way = |megabits, relayed, random| Run {
        megabits,
        relayed: Some(relayed),
        random: Some(random),
        ..RUN
    };
    vec![
        of_runs(
            (
                "Sheffield, srmCopy: 10 → 1 streams",
                "160 → 381 Mb/s: the rate was improved significantly",
            ),
            "sheffield",
            [streams(160.0, 10.0), streams(381.0, 1.0)],
        ),
        of_runs(
            (
                "Glasgow, srmCopy: 1 → 10 streams",
                "327 → 204 Mb/s: a detrimental effect, and a higher load",
            ),
            "glasgow",
            [streams(327.1, 1.0), streams(204.4, 10.0)],
        ),
        of_runs(
            (
                "Sheffield: srmCopy → FTS",
                "381 → 203 Mb/s: a much more random disk access pattern; half of the bytes through the other door",
            ),
            "sheffield",
            [way(381.0, 0.0, 0.05), way(203.0, 0.5, 0.8)],
        ),
        concurrency(),
        ral_pp(),
    ]
}

/// 200 files at once, of which 30 are done: the refusals as incidents.
pub(super) fn refusals() -> Vec<Incident> {
    let link = LinkId {
        source: StorageId::new("edinburgh"),
        destination: StorageId::new("sheffield"),
    };
    let run = Run {
        megabits: 105.0,
        files: 30.0,
        ..RUN
    };
    let mut signals = window(&link, [run; 2]);
    let group = FailureGroup::new(
        Side::Destination,
        Phase::Preparation,
        Errno::EAGAIN,
        "TransferManager error too many transfers!",
    );
    let until = |bin: usize| REFUSED * bin / BINS;
    let refused = Series::known((0..BINS).map(|bin| (until(bin + 1) - until(bin)) as f64));
    let of_link = signals.links.get_mut(&link).expect("it was made");
    of_link.failures.insert(group, refused);
    let until = signals.begin_of(BINS);
    let times = IncidentTimes::default();
    let links = BTreeSet::from([link]);
    incidents_of(occurrences_of(&signals, &links, &[], times, until), times)
}

/// 7 files at once instead of 25 make no difference.
fn concurrency() -> Line {
    let link = to_edinburgh("glasgow");
    let run = |megabits, files| Run {
        megabits,
        files,
        ..RUN
    };
    let signals = window(&link, [run(319.1, 25.0), run(313.7, 7.0)]);
    let changes = changes_of(&signals, &link, std::slice::from_ref(&link));
    let all = super::told::Span {
        from: BEGIN,
        to: signals.begin_of(BINS),
    };
    let words = (
        "Glasgow, srmCopy: 25 → 7 files at once",
        "319 → 327 and 300 Mb/s: remarkably it is even faster, and the load is not as large",
    );
    Line::of_falls(words, &changes, all)
}

/// Glasgow sends to Edinburgh, then RAL-PP does; RAL-PP to Glasgow is as slow, RAL-PP to RAL is not.
fn ral_pp() -> Line {
    let links = [to_edinburgh("glasgow"), to_edinburgh("ral-pp")];
    let mut signals = Signals::unknown(BEGIN, BIN, BINS);
    let column = |first: f64, second: f64| {
        let value = move |bin: usize| if bin < SECOND { first } else { second };
        Series::known((0..BINS).map(value))
    };
    let mut add = |link: LinkId, first: f64, second: f64| {
        let run = |megabits: f64| if megabits > 0.0 { 10.0 } else { 0.0 };
        let of_link = LinkSignals {
            copied_bytes: column(
                first * MEGABIT * f64::from(BIN),
                second * MEGABIT * f64::from(BIN),
            ),
            active: column(run(first), run(second)),
            limit: column(run(first), run(second)),
            queued: Series::constant(20.0, BINS),
            ..LinkSignals::default()
        };
        signals.links.insert(link, of_link);
    };
    let from_ral_pp = |to: &str| LinkId {
        source: StorageId::new("ral-pp"),
        destination: StorageId::new(to),
    };
    add(links[0].clone(), 319.1, 0.0);
    add(links[1].clone(), 0.0, 192.5);
    add(from_ral_pp("glasgow"), 0.0, 180.8);
    add(from_ral_pp("ral"), 380.0, 0.0);
    let words = (
        "Edinburgh, from Glasgow → from RAL-PP",
        "319 → 192 Mb/s (and to Glasgow 181, though 380 were seen to RAL): maybe RAL-PP have some networking issues",
    );
    Line::of_spans(words, &signals, &links, 5..SECOND, SECOND + 2..BINS)
}
