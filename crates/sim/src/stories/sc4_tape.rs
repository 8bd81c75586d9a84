//! Service Challenge 4, from disk to tape: CERN to IN2P3 from 19 to 25 April 2006, as a recorded window: `sc4_tape_run` runs what
//! happened to its tapes.
//!
//! Servers, pools, files, errors and days are those of the report. Rates that its lost plots told, and hours that its text
//! does not, are chosen here; the page says which.

use super::told::{Line, Span, changes_of};
use penstock_decide::explain::signals::{
    Change, FailureGroup, LinkSignals, PoolSignals, Series, ServerName, ServerSignals, Setting,
    Signals, StorageSignals, TapeSignals,
};
use penstock_model::{Errno, LinkId, Phase, PoolName, Side, StorageId, Timestamp};

/// 19 April 2006, 15:00 UTC.
const BEGIN: Timestamp = Timestamp(1_145_458_800_000);
const BIN: u32 = 300;
/// To noon of 25 April.
const BINS: usize = 141 * 12;
/// Bytes of a file, and of the bytes per second of ten of them at once.
const FILE: f64 = 1e9;
const USUAL: f64 = 80e6;
/// Seconds of a slot for each file in which none of its bytes move.
const OPENING: f64 = 6.0;
/// Attempts that failed at CASTOR on 21 April, and how long each held its slot.
const CASTOR_ERRORS: f64 = 120.0;
const CASTOR_SECONDS: f64 = 900.0;
const POOLS: usize = 5;
/// Of five pools three are on the first server.
const POOLS_OF_09: usize = 3;
const POOL_FREE: f64 = 400e9;
const POOL_RESERVE: f64 = 50e9;

/// What can be done at a moment.
#[derive(Debug, Clone, Copy)]
struct Moment {
    limit: f64,
    active: f64,
    rate: f64,
    /// The part of the bytes that each server takes.
    servers: [f64; 2],
    stalled: f64,
    /// What other channels use of their slots, of what is usual.
    others: f64,
    is_service_up: bool,
    /// Attempts that fail at the source, in an interval.
    failing: f64,
    lhcb: f64,
}

/// Hours after the begin of a moment of April, in UTC.
fn hours(day: u32, hour: f64) -> f64 {
    f64::from(day - 19) * 24.0 + hour - 15.0
}

fn is_within(hour: f64, from: (u32, f64), to: (u32, f64)) -> bool {
    (hours(from.0, from.1)..hours(to.0, to.1)).contains(&hour)
}

const MOVER_HANGS: (u32, f64) = (19, 19.0);
const POOLS_FULL: (u32, f64) = (20, 4.0);
const MOVER_KILLED: (u32, f64) = (20, 6.5);
const MIGRATION_STOPS: (u32, f64) = (21, 22.0);
const SERVER_CLOSED: (u32, f64) = (22, 8.0);
const MIGRATION_RESUMES: (u32, f64) = (22, 8.5);
const SERVER_OPENED: (u32, f64) = (22, 11.0);
const LHCB_BEGINS: (u32, f64) = (23, 10.0);
const LIMIT_RAISED: (u32, f64) = (24, 10.0);

/// What was so at the middle of an interval.
fn moment(bin: usize) -> Moment {
    let hour = hour_of(bin);
    let within = |from, to| is_within(hour, from, to);
    let mut now = Moment {
        limit: 10.0,
        active: 10.0,
        rate: USUAL,
        servers: [0.6, 0.4],
        stalled: 0.0,
        others: 1.0,
        is_service_up: true,
        failing: 60.0 / BINS as f64,
        lhcb: 0.0,
    };
    if within(MOVER_HANGS, MOVER_KILLED) {
        now.stalled = 1.0;
        now.rate = USUAL * 0.9;
        now.servers = [0.55, 0.45];
    }
    if within(POOLS_FULL, MOVER_KILLED) {
        now.rate = USUAL * 0.45;
        now.servers = [0.0, 1.0];
    }
    if within((20, 7.0), (20, 8.5)) {
        // "Very low, even 0 sometimes."
        now.active = [2.0, 1.0, 0.0][bin % 3];
        now.rate = USUAL / 10.0 * now.active;
        now.others = 0.1;
    }
    if within((21, 9.0), (21, 13.0)) {
        now.failing = CASTOR_ERRORS / 48.0;
        now.rate = USUAL * (1.0 - CASTOR_ERRORS * CASTOR_SECONDS / (10.0 * 4.0 * 3600.0));
    }
    if within((21, 16.0), (21, 18.5)) {
        now.is_service_up = false;
        // What runs comes to its end; nothing new begins.
        let since = (hour - hours(21, 16.0)) * 12.0;
        now.active = if since < 3.0 {
            6.0 - 2.0 * since.floor()
        } else {
            0.0
        };
        now.rate = USUAL / 10.0 * now.active;
        now.others = now.active / 10.0;
    }
    if within(SERVER_CLOSED, SERVER_OPENED) {
        now.rate = USUAL * 0.5;
        now.servers = [1.0, 0.0];
    }
    if within(LHCB_BEGINS, (25, 12.0)) {
        now.lhcb = 24e6;
        now.rate = USUAL - 32e6;
    }
    if within(LIMIT_RAISED, (25, 12.0)) {
        (now.limit, now.active) = (20.0, 20.0);
        now.rate = USUAL;
    }
    now
}

fn hour_of(bin: usize) -> f64 {
    (bin as f64 + 0.5) * f64::from(BIN) / 3600.0
}

fn column(value: impl Fn(usize) -> f64) -> Series {
    Series::known((0..BINS).map(value))
}

fn of(value: impl Fn(&Moment) -> f64) -> Series {
    column(|bin| value(&moment(bin)))
}

/// Bytes of an interval.
fn bytes(value: impl Fn(&Moment) -> f64) -> Series {
    of(|now| value(now) * f64::from(BIN))
}

fn between(source: &str, destination: &str) -> LinkId {
    LinkId {
        source: StorageId::new(source),
        destination: StorageId::new(destination),
    }
}

/// CERN to IN2P3.
pub(super) fn link() -> LinkId {
    between("cern", "in2p3")
}

/// All that was recorded.
pub(super) fn window() -> Signals {
    let mut signals = Signals::unknown(BEGIN, BIN, BINS);
    signals.links.insert(link(), of_channel());
    for site in ["ral", "fnal", "bnl"] {
        let other = LinkSignals {
            copied_bytes: bytes(|now| 60e6 * now.others),
            active: of(|now| 20.0 * now.others),
            limit: Series::constant(20.0, BINS),
            queued: Series::constant(100.0, BINS),
            ..LinkSignals::default()
        };
        signals.links.insert(between("cern", site), other);
    }
    let lhcb = LinkSignals {
        copied_bytes: bytes(|now| now.lhcb),
        file_bytes: Series::constant(0.7e9, BINS),
        ..LinkSignals::default()
    };
    signals.links.insert(between("lhcb.cern", "in2p3"), lhcb);
    let service = &mut signals.service;
    service.slots_used = of(|now| now.active + 60.0 * now.others);
    service.slots_cap = Series::constant(300.0, BINS);
    service.dispatches = of(|now| (now.rate / FILE + 0.18 * now.others) * f64::from(BIN));
    service.probe = of(|now| f64::from(u8::from(now.is_service_up)));
    add_site(&mut signals);
    let change = |when: (u32, f64), place: &str, setting, values: [&str; 2]| Change {
        at: Timestamp(BEGIN.0 + (hours(when.0, when.1) * 3.6e6) as i64),
        who: "an operator of IN2P3".to_owned(),
        place: place.to_owned(),
        setting,
        old: Some(values[0].to_owned()),
        new: Some(values[1].to_owned()),
    };
    signals.changes = vec![
        change(
            SERVER_CLOSED,
            "ccxfer10",
            Setting::Drain,
            ["in use", "no new files"],
        ),
        change(
            LIMIT_RAISED,
            &link().to_string(),
            Setting::Limit,
            ["10", "20"],
        ),
        change(
            LIMIT_RAISED,
            "movers of the pools",
            Setting::Other,
            ["5", "10"],
        ),
    ];
    signals
}

fn of_channel() -> LinkSignals {
    let mut link = LinkSignals {
        copied_bytes: bytes(|now| now.rate),
        failed_bytes: Series::constant(0.0, BINS),
        active: of(|now| now.active),
        limit: of(|now| now.limit),
        queued: Series::constant(60.0, BINS),
        finished_files: bytes(|now| now.rate / FILE),
        file_bytes: Series::constant(FILE, BINS),
        overhead_seconds: of(|now| {
            let files = now.rate / FILE * f64::from(BIN);
            let failing = if now.failing > 1.0 { now.failing } else { 0.0 };
            match files + failing > 0.0 {
                true => (files * OPENING + failing * CASTOR_SECONDS) / (files + failing),
                false => OPENING,
            }
        }),
        stalled: of(|now| now.stalled),
        ..LinkSignals::default()
    };
    let castor = FailureGroup::new(
        Side::Source,
        Phase::Preparation,
        Errno::EIO,
        "SOURCE [5] CASTOR: file system unavailable",
    );
    link.failures.insert(castor, of(|now| now.failing));
    link
}

/// Servers, pools and the tape system.
fn add_site(signals: &mut Signals) {
    let in2p3 = link().destination;
    let names = ["ccxfer09", "ccxfer10"].map(|name| ServerName(name.to_owned()));
    for (number, name) in names.iter().enumerate() {
        let server = ServerSignals {
            storage: Some(in2p3.clone()),
            bytes_in: bytes(|now| (now.rate + now.lhcb) * now.servers[number]),
            up: Series::constant(1.0, BINS),
            ..ServerSignals::default()
        };
        signals.servers.insert(name.clone(), server);
    }
    for pool in 0..POOLS {
        let (server, of_server) = match pool < POOLS_OF_09 {
            true => (0, POOLS_OF_09 as f64),
            false => (1, (POOLS - POOLS_OF_09) as f64),
        };
        let is_stuck =
            |bin: usize| server == 1 && is_within(hour_of(bin), MIGRATION_STOPS, MIGRATION_RESUMES);
        let of_pool = PoolSignals {
            storage: Some(in2p3.clone()),
            bytes_in: bytes(|now| now.rate * now.servers[server] / of_server),
            free_bytes: column(|bin| free_bytes(pool, hour_of(bin))),
            reserve_bytes: Series::constant(POOL_RESERVE, BINS),
            movers_stalled: of(|now| if pool == 0 { now.stalled } else { 0.0 }),
            tape_written_bytes: column(|bin| {
                if is_stuck(bin) {
                    0.0
                } else {
                    16e6 * f64::from(BIN)
                }
            }),
            tape_unwritten_bytes: column(|bin| {
                20e9 + POOL_FREE - free_bytes(pool, hour_of(bin)).min(POOL_FREE)
            }),
            ..PoolSignals::default()
        };
        signals
            .pools
            .insert(PoolName::new(format!("pool{}", pool + 1)), of_pool);
    }
    let tape = TapeSignals {
        buffer_used: column(
            |bin| match is_within(hour_of(bin), (19, 15.5), (19, 17.5)) {
                true => 1.0,
                false => 0.4,
            },
        ),
        write_cycle_seconds: Some(600.0),
        ..TapeSignals::default()
    };
    let storage = StorageSignals {
        tape,
        ..StorageSignals::default()
    };
    signals.storages.insert(in2p3, storage);
}

/// The first pool has the mover that hangs; the two others of its server are full nine hours later. In the night of 21 April
/// the pools of the other server fill to the half.
fn free_bytes(pool: usize, hour: f64) -> f64 {
    let passed = |from: (u32, f64), to: (u32, f64)| {
        let (from, to) = (hours(from.0, from.1), hours(to.0, to.1));
        ((hour - from) / (to - from)).clamp(0.0, 1.0)
    };
    match pool {
        1 | 2 if is_within(hour, MOVER_HANGS, MOVER_KILLED) => {
            let part = passed(MOVER_HANGS, POOLS_FULL);
            POOL_FREE - part * (POOL_FREE - POOL_RESERVE * 0.5)
        }
        3 | 4 if is_within(hour, MIGRATION_STOPS, SERVER_OPENED) => {
            POOL_FREE * (1.0 - 0.5 * passed(MIGRATION_STOPS, MIGRATION_RESUMES))
        }
        _ => POOL_FREE,
    }
}

fn bin_of(day: u32, hour: f64) -> usize {
    (hours(day, hour) * 3600.0 / f64::from(BIN)) as usize
}

/// The analysis of the report, line by line.
pub(super) fn lines(signals: &Signals) -> Vec<Line> {
    let links = [link()];
    let changes = changes_of(signals, &link(), &links);
    let time = |day: u32, hour: f64| Timestamp(BEGIN.0 + (hours(day, hour) * 3.6e6) as i64);
    let falls = |words, from: (u32, f64), to: (u32, f64)| {
        let span = Span {
            from: time(from.0, from.1),
            to: time(to.0, to.1),
        };
        Line::of_falls(words, &changes, &[span])
    };
    vec![
        falls(
            (
                "19 April",
                "start of the transfers: 10 files, 5 pools on 2 servers",
            ),
            (19, 15.0),
            (19, 23.0),
        ),
        falls(
            (
                "20 April",
                "a mover hanged; when the other pools of ccxfer09 got full (at 4:00) all transfers went to a single server",
            ),
            (20, 3.0),
            (20, 6.5),
        ),
        falls(
            (
                "20 April, to 8:30",
                "number of files in the channel very low, even 0; all channels; better without any intervention here",
            ),
            (20, 6.6),
            (20, 8.5),
        ),
        falls(
            (
                "21 April",
                "CASTOR errors due to an unavailable file system, and a tape recall stuck",
            ),
            (21, 8.5),
            (21, 13.0),
        ),
        falls(
            ("21 April, later", "FTS out of service"),
            (21, 15.5),
            (21, 18.5),
        ),
        falls(
            (
                "22 April",
                "migration stuck on both pools of ccxfer10; I have disabled it for 3 hours: all transfers went to ccxfer09. Why \
                 the migration stopped is not understood",
            ),
            (22, 7.5),
            (22, 11.0),
        ),
        falls(
            (
                "23 April",
                "LHCb uses the same pools and its files are smaller (700 MB), that could explain the drop",
            ),
            (23, 9.5),
            (23, 23.0),
        ),
        Line::of_spans(
            (
                "24 April",
                "number of files increased from 10 to 20, of movers from 5 to 10",
            ),
            signals,
            &links,
            bin_of(23, 12.0)..bin_of(24, 9.5),
            bin_of(24, 10.5)..bin_of(25, 8.0),
        ),
    ]
}
