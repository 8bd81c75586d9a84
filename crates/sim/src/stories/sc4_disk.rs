//! Service Challenge 4, from disk to disk: CERN to IN2P3 in the first two weeks of April 2006, as a plan of the simulator.
//!
//! Rates, limits, file counts and days are those of the report. Hours that it does not tell, and what its authors did not
//! understand, are chosen here; the page says which.

use super::replay::{MoverReports, Replay, ReplayError};
use super::told::{Line, Span, changes_of};
use crate::plan::{
    Change, Event, Failing, Load, Malice, Network, Plan, Policy, Service, Storage, loss_at_rate,
};
use penstock_decide::explain::signals::{
    Maintenance, Series, ServerKind, ServerName, ServerSignals, Signals, StorageSignals,
};
use penstock_model::{LinkId, Timestamp};
use std::ops::Range;

/// 1 April 2006, 0:00 UTC.
pub(super) const BEGIN: Timestamp = Timestamp(1_143_849_600_000);
pub(super) const DAYS: usize = 14;
/// Seconds of an interval of what the explainer looks at.
pub(super) const BIN: u32 = 300;

const DAY: f64 = 86_400.0;
const HOUR: f64 = 3_600.0;
/// Bytes of a file: with them the two weeks have as many transfers as the report counts, 201,273.
const FILE: f64 = 1.2e9;
/// Bytes per second of a file while its bytes move: with 20 at once somewhat more than 200 MB/s.
const PER_FILE: f64 = 11e6;
/// The same on the day that nobody understood.
const PER_FILE_ON_DAY_4: f64 = 5e6;
/// Seconds that the head node needs to open a file, and how many times as long while it copies its databases.
const HEAD_LATENCY: f64 = 1.2;
const BACKUP_SLOWNESS: f64 = 110.0;
/// When the backup begins each day, and how long it takes.
const BACKUP_AT: f64 = 23.0 * HOUR + 40.0 * 60.0;
const BACKUP_LASTS: f64 = 20.0 * 60.0;
/// Processes of the transfer service, and the slots of all.
const PROCESSES: u32 = 5;
const SLOTS: u32 = 100;

const CERN: usize = 0;
const IN2P3: usize = 1;
const FNAL: usize = 2;
const BNL: usize = 3;
/// Sites that join on 11 April, one after the other.
const JOINING: [(usize, &str, f64); 5] = [
    (4, "ral", 10.0),
    (5, "fzk", 13.0),
    (6, "cnaf", 15.0),
    (7, "pic", 17.0),
    (8, "sara", 19.0),
];
/// Files at once to FNAL and to BNL; the same for those that join.
const FAR_MAX: u32 = 30;
/// Files that wait at the begin.
const QUEUED: u64 = 500;

/// What was recorded, and its signals: those that the site had, and those that Penstock would have.
pub(super) struct DiskPhase {
    /// As the site saw it: no report of any mover.
    pub(super) of_site: Signals,
    /// With reports of movers.
    pub(super) of_penstock: Signals,
}

/// CERN to IN2P3.
pub(super) fn link() -> LinkId {
    plan().link_id((CERN, IN2P3))
}

/// Runs the two weeks.
pub(super) fn run() -> Result<DiskPhase, ReplayError> {
    let replay = Replay::of(&plan(), BEGIN)?;
    let mut of_site = replay.signals(MoverReports::None, BIN)?;
    let mut of_penstock = replay.signals(MoverReports::All, BIN)?;
    for signals in [&mut of_site, &mut of_penstock] {
        add_head_node(signals);
    }
    Ok(DiskPhase {
        of_site,
        of_penstock,
    })
}

fn at(day: f64, hour: f64) -> f64 {
    (day - 1.0) * DAY + hour * HOUR
}

fn event(from: f64, to: f64, what: Change) -> Event {
    Event {
        at: from,
        lasts: Some(to - from),
        what,
    }
}

fn stays(at: f64, what: Change) -> Event {
    Event {
        at,
        lasts: None,
        what,
    }
}

/// The whole of it.
pub(super) fn plan() -> Plan {
    Plan {
        name: "Service Challenge 4, disk to disk".to_owned(),
        seconds: DAYS as f64 * DAY,
        seed: 2006,
        service: Service {
            policy: Policy::Limits,
            link_max: SLOTS,
            storage_max: 10_000,
            agents_max: SLOTS,
            nodes: PROCESSES,
            pushes: true,
            ..Service::default()
        },
        storages: vec![
            storage("cern", 20, 4e9, 0.3),
            // Three disk servers of 100 MB/s.
            storage("in2p3", 3, 300e6, HEAD_LATENCY),
            storage("fnal", 20, 4e9, 0.3),
            storage("bnl", 20, 4e9, 0.3),
        ]
        .into_iter()
        .chain(JOINING.map(|(_, name, _)| storage(name, 20, 4e9, 0.3)))
        .collect(),
        networks: (IN2P3..=BNL + JOINING.len()).map(network).collect(),
        vos: Vec::new(),
        loads: loads(),
        events: events(),
        malice: Malice::default(),
    }
}

fn storage(name: &str, pools: u32, rate: f64, latency: f64) -> Storage {
    Storage {
        name: name.to_owned(),
        pools,
        read: rate,
        write: rate,
        halved_at: None,
        uplink: None,
        latency,
        failures: 0.001,
    }
}

fn network(to: usize) -> Network {
    Network {
        from: CERN,
        to,
        bandwidth: 1.25e9,
        per_transfer: PER_FILE,
        rtt: if to == IN2P3 { 0.012 } else { 0.11 },
        opening: Some(2.0),
        others: 0.0,
        others_swing: 0.0,
    }
}

fn load(to: usize, users: u32, size: f64, rate: f64, (begin, over): (f64, f64)) -> Load {
    Load {
        pairs: vec![(CERN, to)],
        vo: "dteam".to_owned(),
        users,
        activity: "default".to_owned(),
        files: (rate * over / size).ceil().max(1.0) as u64,
        size,
        spread: 0.1,
        job: 2,
        begin,
        over,
        daily: 0.0,
        priority: 3,
        hopeless: None,
    }
}

/// The generator at CERN keeps a queue for IN2P3, except on the morning of 5 April. Other sites join on 11 April.
fn loads() -> Vec<Load> {
    let of_in2p3 = |rate: f64, from: f64, to: f64| load(IN2P3, 1, FILE, rate, (from, to - from));
    let queue = Load {
        files: QUEUED,
        over: 0.0,
        ..of_in2p3(1.0, 1.0, 2.0)
    };
    let far = 10e9;
    let mut loads = vec![
        queue.clone(),
        of_in2p3(211e6, 1.0, at(4.0, 0.0)),
        of_in2p3(96e6, at(4.0, 0.0), at(5.0, 0.0)),
        of_in2p3(200e6, at(5.0, 0.0), at(5.0, 6.0)),
        // Behind the trouble of the generator.
        Load {
            begin: at(5.0, 11.0),
            ..queue
        },
        of_in2p3(213e6, at(5.0, 11.0), at(7.0, 10.0)),
        of_in2p3(258e6, at(7.0, 10.0), at(8.0, 1.0)),
        of_in2p3(232e6, at(8.0, 1.0), at(10.0, 0.0)),
        // A generator goes on while its queue is not too long.
        of_in2p3(142e6, at(10.0, 0.0), at(11.0, 10.0)),
        of_in2p3(160e6, at(11.0, 10.0), at(12.0, 9.0)),
        of_in2p3(285e6, at(12.0, 9.0), at(15.0, 0.0)),
        load(FNAL, 12, far, 320e6, (1.0, DAYS as f64 * DAY)),
        load(BNL, 7, far, 320e6, (1.0, DAYS as f64 * DAY)),
    ];
    loads.extend(JOINING.map(|(to, _, hour)| {
        let begin = at(11.0, hour);
        load(to, 5, far, 250e6, (begin, at(12.0, 9.0) - begin))
    }));
    loads
}

fn events() -> Vec<Event> {
    let mut events = vec![
        stays(0.0, Change::LinkMax(CERN, IN2P3, 20)),
        stays(0.0, Change::LinkMax(CERN, FNAL, FAR_MAX)),
        stays(0.0, Change::LinkMax(CERN, BNL, FAR_MAX)),
        // 4 April: nobody knows what it was. A network that loses segments is chosen; no rate of others is touched.
        event(
            at(4.0, 1.0),
            at(4.0, 23.0),
            Change::NetworkLoss(0, loss_at_rate(PER_FILE_ON_DAY_4, 0.012)),
        ),
        // 5 April: RFIO at CERN. The generator's trouble is in the loads.
        event(
            at(5.0, 13.0),
            at(5.0, 18.0),
            Change::ReadsFail(
                CERN,
                Failing {
                    part: 0.6,
                    seconds: 90.0,
                },
            ),
        ),
        stays(at(7.0, 10.0), Change::LinkMax(CERN, IN2P3, 30)),
        stays(at(11.0, 10.0), Change::LinkMax(CERN, IN2P3, 45)),
        // 12 April: the intervention at the database of the service; those that joined have what is left over.
        event(at(12.0, 9.0), at(12.0, 9.1), Change::LeaderLost(300.0)),
    ];
    // 8 and 9 April: three of five processes start nothing for half an hour, again and again.
    for turn in 0..24 {
        let from = at(8.0, 0.5 + 2.0 * f64::from(turn));
        events.extend((0..3).map(|node| event(from, from + 0.6 * HOUR, Change::NodeCutOff(node))));
    }
    // 10 April: all day, from the end of the backup on.
    events
        .extend((0..3).map(|node| event(at(10.0, 0.5), at(11.0, 10.0), Change::NodeCutOff(node))));
    let limits =
        |at: f64, max: u32| JOINING.map(|(to, _, _)| stays(at, Change::LinkMax(CERN, to, max)));
    events.extend(limits(0.0, FAR_MAX));
    events.extend(limits(at(12.0, 9.2), 1));
    events.extend((0..DAYS).map(|day| {
        let from = day as f64 * DAY + BACKUP_AT;
        event(
            from,
            from + BACKUP_LASTS,
            Change::StorageLatency(IN2P3, BACKUP_SLOWNESS),
        )
    }));
    events
}

/// What a probe of the head node would have recorded: how long an operation takes, how busy its disk is, and when it copies
/// its databases. The simulator has the cause, not the server.
fn add_head_node(signals: &mut Signals) {
    let is_backup = |bin: usize| {
        let second = (bin as f64 * f64::from(signals.bin_seconds)) % DAY;
        (BACKUP_AT..BACKUP_AT + BACKUP_LASTS).contains(&second)
    };
    let column = |usual: f64, backup: f64| {
        let value = |bin| if is_backup(bin) { backup } else { usual };
        Series::known((0..signals.bins).map(value))
    };
    let (operation, disk) = (
        column(HEAD_LATENCY, HEAD_LATENCY * BACKUP_SLOWNESS),
        column(0.03, 0.8),
    );
    let in2p3 = link().destination;
    let head = ServerSignals {
        storage: Some(in2p3.clone()),
        role: ServerKind::Head,
        io_some: disk,
        ..ServerSignals::default()
    };
    signals.servers.insert(ServerName("ccsrm".to_owned()), head);
    let storage = StorageSignals {
        namespace_seconds: operation,
        ..StorageSignals::default()
    };
    signals.storages.insert(in2p3, storage);
    for day in 0..DAYS {
        let time = |second: f64| Timestamp(BEGIN.0 + (second * 1000.0) as i64);
        let from = day as f64 * DAY + BACKUP_AT;
        signals.maintenance.push(Maintenance {
            from: time(from),
            to: time(from + BACKUP_LASTS),
            place: "ccsrm".to_owned(),
            what: "database dump and backup".to_owned(),
        });
    }
}

/// Of so many days and hours after the begin.
fn bin(day: f64, hour: f64) -> usize {
    (at(day, hour) / f64::from(BIN)) as usize
}

fn span(from: f64, to: f64) -> Span {
    let time = |second: f64| Timestamp(BEGIN.0 + (second * 1000.0) as i64);
    Span {
        from: time(from),
        to: time(to),
    }
}

/// The analysis of the report, line by line. Long because each line has its words and its time.
pub(super) fn lines(phase: &DiskPhase) -> Vec<Line> {
    let link = link();
    let links = [link.clone()];
    let signals = &phase.of_site;
    let changes = changes_of(signals, &link, &links);
    let falls = |words, from, to| Line::of_falls(words, &changes, &[span(from, to)]);
    // Without the backup at 23:40, which has a line of its own.
    let falls_by_day = |words, days: Range<u32>| {
        let spans: Vec<Span> = days
            .map(|day| span(at(day.into(), 0.9), at(day.into(), 23.5)))
            .collect();
        Line::of_falls(words, &changes, &spans)
    };
    let spans = |words, before, during| Line::of_spans(words, signals, &links, before, during);
    vec![
        falls_by_day(
            ("1 to 3 April", "sustained transfers at more than 200 MB/s"),
            1..4,
        ),
        falls(("4 April", "not understood"), at(3.0, 23.99), at(4.0, 12.0)),
        falls(
            ("5 April, morning", "load generator problem at CERN"),
            at(5.0, 5.0),
            at(5.0, 12.0),
        ),
        falls(
            ("5 April, afternoon", "RFIO problem at CERN"),
            at(5.0, 12.5),
            at(5.0, 18.0),
        ),
        spans(
            (
                "7 April",
                "number of files increased to 30: more than 200 MB/s",
            ),
            bin(7.0, 0.5)..bin(7.0, 9.5),
            bin(7.0, 11.0)..bin(7.0, 23.0),
        ),
        falls_by_day(
            (
                "8 and 9 April",
                "very irregular rate: FTS at CERN not able to feed sites on a regular basis",
            ),
            8..10,
        ),
        spans(
            (
                "10 April",
                "from midnight 100 MB/s, no errors, no network problems; not understood, although there were too few concurrent \
                 transfers",
            ),
            bin(7.0, 11.0)..bin(7.0, 23.0),
            bin(10.0, 1.0)..bin(10.0, 23.0),
        ),
        spans(
            (
                "11 April",
                "number of files increased to 45: the rate doubled to 200 MB/s",
            ),
            bin(10.0, 1.0)..bin(10.0, 23.0),
            bin(11.0, 10.5)..bin(11.0, 12.0),
        ),
        spans(
            (
                "11 April, later",
                "it dropped slowly back to 100 MB/s: strong concurrence of sites on the FTS server",
            ),
            bin(11.0, 10.5)..bin(11.0, 12.0),
            bin(11.0, 20.0)..bin(11.0, 23.5),
        ),
        spans(
            (
                "12 April",
                "after an intervention at the FTS database more than 200 MB/s",
            ),
            bin(12.0, 0.5)..bin(12.0, 8.5),
            bin(12.0, 11.0)..bin(12.0, 23.0),
        ),
        falls(
            (
                "each day at 23:40",
                "the rate drops due to high load on the head node during the backup of PostgreSQL",
            ),
            at(2.0, 23.0),
            at(2.0, 24.0),
        ),
    ]
}

/// The day that nobody understood, with what movers report today.
pub(super) fn fourth_of_april(phase: &DiskPhase) -> Line {
    let link = link();
    let changes = changes_of(&phase.of_penstock, &link, std::slice::from_ref(&link));
    let words = ("4 April", "not understood");
    Line::of_falls(words, &changes, &[span(at(3.0, 23.99), at(4.0, 12.0))])
}
