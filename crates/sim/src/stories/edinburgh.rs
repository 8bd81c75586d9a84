//! Edinburgh, Sheffield, Glasgow and RAL-PP, about 2005: `srmcp` beside FTS, one run after the other. Numbers of connections and
//! of files are run in the simulator, against one disk server that many connections slow down. Order of writes and refusals are
//! recorded windows: the simulator has neither, and no door that passes bytes on.

use super::replay::{MoverReports, Replay, ReplayError};
use super::told::{Line, Span, changes_of};
use crate::plan::{Change, Event, Load, Malice, Network, Plan, Policy, Service, Storage};
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
/// Of runs in the simulator, in which a file takes some minutes.
const SIMULATED_BIN: u32 = 300;
/// From here on it is the second run.
const SECOND: usize = 60;
const MEGABIT: f64 = 125_000.0;
/// So many connections at once halve what the disk server writes. With this one number three rows of the page come out.
const HALVED_AT: f64 = 84.0;
/// Of 200 files: 30 were done.
const REFUSED: usize = 170;

/// What is known of a run.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// As the page prints it.
    megabits: f64,
    files: f64,
    /// The part of the bytes that a door passes on to another server, and of the writes that follow no other.
    relayed: Option<f64>,
    random: Option<f64>,
}

const RUN: Run = Run {
    megabits: 0.0,
    files: 10.0,
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

/// Files and connections of a run.
#[derive(Debug, Clone, Copy)]
struct Concurrency {
    files: u32,
    streams: u32,
}

impl Concurrency {
    /// How many times as much the disk server would write for one connection.
    fn slowness(self) -> f64 {
        1.0 + (f64::from(self.files * self.streams) / HALVED_AT).powi(2)
    }
}

/// Two runs of the simulator, one after the other; the first one moves what the page prints.
fn simulated(source: &str, megabits: f64, runs: [Concurrency; 2]) -> Result<Signals, ReplayError> {
    let storage = |name: &str, rate: f64, halved_at| Storage {
        name: name.to_owned(),
        pools: 1,
        read: rate,
        write: rate,
        halved_at,
        uplink: None,
        latency: 0.3,
        failures: 0.0,
    };
    let seconds = f64::from(SIMULATED_BIN);
    let of_run = |run: Concurrency, at: f64| {
        let changes = [
            Change::LinkMax(0, 1, run.files),
            Change::Streams(1, run.streams),
        ];
        let lasts = None;
        changes.map(|what| Event { at, lasts, what })
    };
    let plan = Plan {
        name: format!("{source} to Edinburgh"),
        seconds: seconds * BINS as f64,
        seed: 2005,
        service: Service {
            policy: Policy::Limits,
            ..Service::default()
        },
        storages: vec![
            storage(source, 1e9, None),
            storage(
                "edinburgh",
                megabits * MEGABIT * runs[0].slowness(),
                Some(HALVED_AT),
            ),
        ],
        networks: vec![Network {
            from: 0,
            to: 1,
            bandwidth: 125e6,
            per_transfer: 125e6,
            rtt: 0.01,
            opening: Some(1.0),
            others: 0.0,
            others_swing: 0.0,
        }],
        vos: Vec::new(),
        loads: vec![Load {
            pairs: vec![(0, 1)],
            vo: "dteam".to_owned(),
            users: 1,
            activity: "default".to_owned(),
            files: 3_000,
            size: 1e9,
            spread: 0.0,
            job: 10,
            begin: 1.0,
            over: 0.0,
            daily: 0.0,
            priority: 3,
            hopeless: None,
        }],
        events: [
            of_run(runs[0], 0.0),
            of_run(runs[1], seconds * SECOND as f64),
        ]
        .concat(),
        malice: Malice::default(),
    };
    let replay = Replay::of(&plan, BEGIN)?;
    Ok(replay.signals(MoverReports::All, SIMULATED_BIN)?)
}

/// The table of the page, row by row.
pub(super) fn lines() -> Result<Vec<Line>, ReplayError> {
    let way = |megabits, relayed, random| Run {
        megabits,
        relayed: Some(relayed),
        random: Some(random),
        ..RUN
    };
    let run = |files, streams| Concurrency { files, streams };
    let fewer = simulated("sheffield", 160.0, [run(10, 10), run(10, 1)])?;
    let more = simulated("glasgow", 327.1, [run(7, 1), run(7, 10)])?;
    let spans = |words, signals: &Signals| {
        let links: Vec<LinkId> = signals.links.keys().cloned().collect();
        Line::of_spans(words, signals, &links, 5..SECOND, SECOND + 5..BINS)
    };
    Ok(vec![
        spans(
            (
                "Sheffield, srmCopy: 10 → 1 streams",
                "160 → 381 Mb/s: the rate was improved significantly",
            ),
            &fewer,
        ),
        spans(
            (
                "Glasgow, srmCopy: 1 → 10 streams",
                "327 → 204 Mb/s: a detrimental effect, and a higher load",
            ),
            &more,
        ),
        of_runs(
            (
                "Sheffield: srmCopy → FTS",
                "381 → 203 Mb/s: a much more random disk access pattern; half of the bytes through the other door",
            ),
            "sheffield",
            [way(381.0, 0.0, 0.05), way(203.0, 0.5, 0.8)],
        ),
        concurrency(&simulated("glasgow", 319.1, [run(25, 1), run(7, 1)])?),
        ral_pp(),
    ])
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

/// 7 files at once instead of 25 take nothing.
fn concurrency(signals: &Signals) -> Line {
    let words = (
        "Glasgow, srmCopy: 25 → 7 files at once",
        "319 → 327 and 300 Mb/s: remarkably it is even faster, and the load is not as large",
    );
    let links: Vec<LinkId> = signals.links.keys().cloned().collect();
    let changes = links
        .first()
        .map(|link| changes_of(signals, link, &links))
        .unwrap_or_default();
    let all = Span {
        from: BEGIN,
        to: signals.begin_of(signals.bins),
    };
    Line::of_falls(words, &changes, &[all])
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
