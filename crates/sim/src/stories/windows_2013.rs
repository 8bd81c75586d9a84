//! Manchester and Oxford to BNL, February 2013, as recorded windows: the simulator's connections have a window that is given.
//!
//! Two cases that look alike from outside: (a) buffers that may not grow, (b) buffers that may grow and windows that do not.
//! Of (b) all figures are those of the document (`ss`, `netstat` and the rates of single copies). (a) is the smaller buffer of
//! that time over the same distance.

use super::told::Line;
use penstock_decide::explain::signals::{
    Change, LinkSignals, Series, Setting, Signals, TcpSignals,
};
use penstock_model::{LinkId, StorageId, Timestamp};

/// 20 February 2013, 12:00 UTC.
const BEGIN: Timestamp = Timestamp(1_361_361_600_000);
const BIN: u32 = 60;
const BINS: usize = 120;
/// From here on the buffers are those of Liverpool.
pub(super) const CHANGED: usize = 60;
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
    /// The part of the time in which the send buffer is the limit, and the congestion window.
    buffer_limited: f64,
    window_limited: f64,
    buffer_max: f64,
}

impl Sockets {
    /// What all connections of a copy could carry.
    pub(super) fn ceiling(&self) -> f64 {
        STREAMS * self.window / self.rtt
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
        buffer_limited: 0.0,
        window_limited: 1.0 - idle,
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
        buffer_limited: 0.0,
        window_limited: 0.1,
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
        buffer_limited: 0.97,
        window_limited: 0.02,
        buffer_max: BUFFER_PINNED,
    }
}

pub(super) fn link() -> LinkId {
    LinkId {
        source: StorageId::new("manchester"),
        destination: StorageId::new("bnl"),
    }
}

/// One copy after the other, with one setting and then with the other.
pub(super) fn window(first: Sockets, second: Sockets, set: [&str; 2]) -> Signals {
    let at = |bin: usize| if bin < CHANGED { first } else { second };
    let column = |value: fn(&Sockets) -> f64| Series::known((0..BINS).map(|bin| value(&at(bin))));
    let mut signals = Signals::unknown(BEGIN, BIN, BINS);
    let of_link = LinkSignals {
        copied_bytes: column(|now| now.rate * 60.0),
        active: Series::constant(1.0, BINS),
        limit: Series::constant(1.0, BINS),
        queued: Series::constant(4.0, BINS),
        streams_asked: Series::constant(STREAMS, BINS),
        streams_used: Series::constant(STREAMS, BINS),
        tcp: TcpSignals {
            idle: column(|now| now.idle),
            window_limited: column(|now| now.window_limited),
            buffer_limited: column(|now| now.buffer_limited),
            receiver_limited: Series::constant(0.0, BINS),
            retransmitted: Series::constant(0.0, BINS),
            rtt_seconds: column(|now| now.rtt),
            rtt_min_seconds: column(|now| now.rtt),
            window_bytes: column(|now| now.window),
            buffer_max_bytes: column(|now| now.buffer_max),
        },
        ..LinkSignals::default()
    };
    signals.links.insert(link(), of_link);
    signals.changes.push(Change {
        at: signals.begin_of(CHANGED),
        who: "an operator of Manchester".to_owned(),
        place: "manchester tcp_wmem".to_owned(),
        setting: Setting::Fact,
        old: Some(set[0].to_owned()),
        new: Some(set[1].to_owned()),
    });
    signals
}

const PINNED: &str = "4096 65536 65536";
const DEFAULT_87K: &str = "4096 87380 33554432";
const DEFAULT_1M: &str = "8192 1048576 8388608";

/// The drop to a setting from that of 1 MB, and the rise back from it. (a) first, then (b).
pub(super) fn lines() -> Vec<Line> {
    let links = [link()];
    let spans = |words, first, second, set| {
        let signals = window(first, second, set);
        Line::of_spans(words, &signals, &links, 5..CHANGED, CHANGED + 2..BINS)
    };
    vec![
        spans(
            (
                "(a)",
                "(no measurement of it: the smaller buffers of before)",
            ),
            with_default_of_1m(),
            with_pinned_maximum(),
            [DEFAULT_1M, PINNED],
        ),
        spans(
            (
                "(b)",
                "TCP window not scaling; 7 of 9 streams have an empty Send-Q; why 1 MB is better is not understood",
            ),
            with_default_of_1m(),
            with_default_of_87k(),
            [DEFAULT_1M, DEFAULT_87K],
        ),
        spans(
            (
                "(b), mended",
                "after the change the transfers with 9 streams go at the rate of those with 1 or 2",
            ),
            with_default_of_87k(),
            with_default_of_1m(),
            [DEFAULT_87K, DEFAULT_1M],
        ),
    ]
}
