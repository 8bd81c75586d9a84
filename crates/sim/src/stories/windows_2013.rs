//! Manchester and Oxford to BNL, February 2013, run in the simulator, whose copies have the connections of that time.
//!
//! Two cases that look alike from outside: (a) buffers that may not grow, (b) buffers that may grow and windows that do not.
//! Of (b) all figures are those of the document (`ss`, `netstat` and the rates of single copies). (a) is the smaller buffer of
//! that time over the same distance.

use super::replay::{MoverReports, Replay, ReplayError};
use super::told::Line;
use crate::plan::{
    Change, Connections, Event, Load, Malice, Network, Plan, Policy, Service, Storage, WindowLimit,
};
use penstock_decide::explain::signals::{Change as SettingChange, Series, Setting, Signals};
use penstock_model::Timestamp;

/// 20 February 2013, 12:00 UTC.
const BEGIN: Timestamp = Timestamp(1_361_361_600_000);
/// In each interval files end: one of 2 GB takes more than an hour at 0.47 MB/s.
const BIN: u32 = 4800;
const BINS: usize = 18;
/// From here on the buffers are other ones.
const CHANGED: usize = 9;
/// From here on no file ends that began before.
const SETTLED: usize = 11;
/// Files at once, as the authors' script starts them, and their bytes.
const FILES: u32 = 5;
const FILE: f64 = 2e9;
pub(super) const STREAMS: f64 = 9.0;
/// Bytes of data in a segment.
const SEGMENT: f64 = 1448.0;
/// Windows in segments and round trips in milliseconds of the nine connections, with a default of 87 kB …
const WINDOWS_87K: [f64; 9] = [31.0, 30.0, 30.0, 21.0, 30.0, 30.0, 29.0, 30.0, 28.0];
const ROUND_TRIPS_87K: [f64; 9] = [
    92.0, 92.0, 104.125, 104.0, 104.125, 104.0, 92.125, 91.875, 92.0,
];
/// … and with one of 1 MB.
const WINDOWS_1M: [f64; 9] = [
    621.0, 638.0, 356.0, 345.0, 1236.0, 320.0, 624.0, 318.0, 655.0,
];
const ROUND_TRIPS_1M: [f64; 9] = [
    112.5, 120.5, 130.625, 119.5, 117.125, 119.75, 113.125, 122.25, 114.375,
];
/// Kilobytes per second of five copies with nine connections each, before and after.
const RATES_87K: [f64; 5] = [511.15, 498.73, 383.14, 495.28, 480.80];
const RATES_1M: [f64; 5] = [22_398.22, 19_054.88, 18_408.34, 20_844.45, 46_613.96];
/// Of nine connections, those with an empty queue: "only 2 and seldom 3" had one before, and "only occasionally 1 or 2"
/// are empty after.
const EMPTY_87K: f64 = 7.0;
const EMPTY_1M: f64 = 0.5;
/// How large buffers might grow before: the recommendation of fasterdata.es.net at that time.
const BUFFER_MAX: f64 = 33_554_432.0;
/// A buffer that may not grow: "~64KB".
const BUFFER_PINNED: f64 = 65_536.0;

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// What holds at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sockets {
    /// Bytes per second of a copy.
    pub(super) rate: f64,
    /// Of one connection.
    pub(super) window: f64,
    pub(super) rtt: f64,
    /// The part of the connections that have nothing to send.
    pub(super) idle: f64,
    limit: WindowLimit,
    /// How large buffers may grow.
    buffer_max: f64,
}

impl Sockets {
    /// What all connections of a copy could carry.
    pub(super) fn ceiling(&self) -> f64 {
        STREAMS * self.window / self.rtt
    }

    /// What is simulated. What is measured below the ceiling and is no idle time is known of nobody.
    fn connections(&self) -> Connections {
        let fed = 1.0 - self.idle;
        Connections {
            count: STREAMS as u32,
            window: self.window,
            limit: self.limit,
            rtt: self.rtt,
            fed,
            efficiency: self.rate / (self.ceiling() * fed),
        }
    }
}

/// With a default of 87 kB, and a maximum of 32 MB.
pub(super) fn with_default_of_87k() -> Sockets {
    let idle = EMPTY_87K / STREAMS;
    Sockets {
        rate: mean(&RATES_87K) * 1e3,
        window: mean(&WINDOWS_87K) * SEGMENT,
        rtt: mean(&ROUND_TRIPS_87K) / 1e3,
        idle,
        limit: WindowLimit::Congestion,
        buffer_max: BUFFER_MAX,
    }
}

/// With Liverpool's default of 1 MB, and its maximum of 8 MB.
pub(super) fn with_default_of_1m() -> Sockets {
    Sockets {
        rate: mean(&RATES_1M) * 1e3,
        window: mean(&WINDOWS_1M) * SEGMENT,
        rtt: mean(&ROUND_TRIPS_1M) / 1e3,
        idle: EMPTY_1M / STREAMS,
        limit: WindowLimit::Congestion,
        buffer_max: 8_388_608.0,
    }
}

/// With a maximum of 64 kB: each connection is full, and all of them together carry what they can.
pub(super) fn with_pinned_maximum() -> Sockets {
    let rtt = with_default_of_87k().rtt;
    Sockets {
        rate: STREAMS * BUFFER_PINNED / rtt,
        window: BUFFER_PINNED,
        rtt,
        idle: 0.0,
        limit: WindowLimit::Buffer,
        buffer_max: BUFFER_PINNED,
    }
}

/// Five files at once, with one setting and then with the other.
fn plan(first: Sockets, second: Sockets) -> Plan {
    let storage = |name: &str| Storage {
        name: name.to_owned(),
        pools: 20,
        read: 4e9,
        write: 4e9,
        halved_at: None,
        uplink: None,
        latency: 0.3,
        failures: 0.0,
    };
    let stays = |at: f64, sockets: Sockets| Event {
        at,
        lasts: None,
        what: Change::Connections(0, sockets.connections()),
    };
    Plan {
        name: "Windows to BNL".to_owned(),
        seconds: f64::from(BIN) * BINS as f64,
        seed: 2013,
        service: Service {
            policy: Policy::Limits,
            link_max: FILES,
            pushes: true,
            ..Service::default()
        },
        storages: vec![storage("manchester"), storage("bnl")],
        networks: vec![Network {
            from: 0,
            to: 1,
            bandwidth: 1.25e9,
            per_transfer: 1.25e9,
            rtt: first.rtt,
            opening: Some(2.0),
            others: 0.0,
            others_swing: 0.0,
        }],
        vos: Vec::new(),
        loads: vec![Load {
            pairs: vec![(0, 1)],
            vo: "atlas".to_owned(),
            users: 1,
            activity: "sonar".to_owned(),
            files: 3_500,
            size: FILE,
            spread: 0.0,
            job: 5,
            begin: 1.0,
            over: 0.0,
            daily: 0.0,
            priority: 3,
            hopeless: None,
        }],
        events: vec![
            stays(0.0, first),
            stays(f64::from(BIN) * CHANGED as f64, second),
        ],
        malice: Malice::default(),
    }
}

/// What the explainer knows of a run, and of the settings of its hosts. The simulator has no kernel to read them from.
fn compare(
    words: (&'static str, &'static str),
    [first, second]: [Sockets; 2],
    set: [&str; 2],
) -> Result<Line, ReplayError> {
    let plan = plan(first, second);
    let link = plan.link_id((0, 1));
    let mut signals: Signals = Replay::of(&plan, BEGIN)?.signals(MoverReports::All, BIN)?;
    let buffer = |bin| match bin < CHANGED {
        true => first.buffer_max,
        false => second.buffer_max,
    };
    if let Some(of_link) = signals.links.get_mut(&link) {
        of_link.tcp.buffer_max_bytes = Series::known((0..BINS).map(buffer));
    }
    signals.changes.push(SettingChange {
        at: signals.begin_of(CHANGED),
        who: "an operator of Manchester".to_owned(),
        place: "manchester tcp_wmem".to_owned(),
        setting: Setting::Fact,
        old: Some(set[0].to_owned()),
        new: Some(set[1].to_owned()),
    });
    let links = [link];
    Ok(Line::of_spans(
        words,
        &signals,
        &links,
        1..CHANGED,
        SETTLED..BINS,
    ))
}

const PINNED: &str = "4096 65536 65536";
const DEFAULT_87K: &str = "4096 87380 33554432";
const DEFAULT_1M: &str = "8192 1048576 8388608";

/// The drop to a setting from that of 1 MB, and the rise back from it. (a) first, then (b).
pub(super) fn lines() -> Result<Vec<Line>, ReplayError> {
    let pinned = compare(
        (
            "(a)",
            "(no measurement of it: the smaller buffers of before)",
        ),
        [with_default_of_1m(), with_pinned_maximum()],
        [DEFAULT_1M, PINNED],
    )?;
    let unopened = compare(
        (
            "(b)",
            "TCP window not scaling; 7 of 9 streams have an empty Send-Q; why 1 MB is better is not understood",
        ),
        [with_default_of_1m(), with_default_of_87k()],
        [DEFAULT_1M, DEFAULT_87K],
    )?;
    let mended = compare(
        (
            "(b), mended",
            "after the change the transfers with 9 streams go at the rate of those with 1 or 2",
        ),
        [with_default_of_87k(), with_default_of_1m()],
        [DEFAULT_87K, DEFAULT_1M],
    )?;
    Ok(vec![pinned, unopened, mended])
}
