//! A small grid as formulas: queues, slots, stages, servers, a namespace, tapes. Its faults change what things can do;
//! what is measured follows from what then happens. No rule is looked at here.

use super::super::signals::*;
use penstock_model::{Errno, LinkId, Phase, PoolName, Side, StorageId, Timestamp};
use std::collections::BTreeMap;

pub const BEGIN: i64 = 1_143_849_600_000;
const BIN: u32 = 60;
const STEP: f64 = 10.0;
const SERVERS: usize = 4;

/// Makes a column of what holds at each moment.
type OverTime<'a> = dyn Fn(&dyn Fn(&Conditions) -> f64) -> Series + 'a;

pub struct Noise(pub u64);

impl Noise {
    pub fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// What everything can do at a moment. A fault changes some of it for a while.
#[derive(Clone)]
pub struct Conditions {
    /// Of the link that is watched: cern → in2p3.
    pub limit: f64,
    pub file: f64,
    pub submit_max: f64,
    pub open_seconds: f64,
    pub streams: f64,
    pub window: f64,
    /// How large buffers may grow; `None`: as large as the window is.
    pub buffer: Option<f64>,
    /// The part of its connections that a file leaves without bytes.
    pub unused_streams: f64,
    pub rtt: f64,
    pub loss: f64,
    pub path: f64,
    pub uplink: f64,
    pub source_read: f64,
    pub fails_source: f64,
    pub fails_destination: f64,
    pub stalled: f64,
    /// Transfers that other links want.
    pub others_want: f64,
    pub rival_want: f64,
    pub slots_cap: f64,
    /// Seconds of a query of the service: it needs four for each start.
    pub query: f64,
    pub service_up: bool,
    /// Part of the starts that the scheduler manages for this link.
    pub pace: f64,
    /// A disk server of the destination.
    pub disk: f64,
    pub servers_down: usize,
    pub servers_drained: usize,
    /// Servers from which nothing is deleted or brought to tape.
    pub fills: usize,
    pub catalogue: f64,
    pub pace_all: f64,
    pub random: f64,
    pub array: f64,
    pub path_switches: f64,
    pub other_path_bytes: f64,
    pub jobs: f64,
    pub checksum: f64,
    pub relay: f64,
    pub namespace_operation: f64,
    pub namespace_clients: f64,
    pub namespace_io: f64,
    pub batch: f64,
    pub descriptors_leak: f64,
    pub tape_writes: bool,
    pub tape_buffer: f64,
    pub recalls: bool,
    pub drives_of_others: f64,
    pub files_per_mount: f64,
    pub amplification: f64,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            limit: 10.0,
            file: 1e9,
            submit_max: 10.0,
            open_seconds: 2.0,
            streams: 1.0,
            window: 16e6,
            buffer: None,
            unused_streams: 0.0,
            rtt: 0.05,
            loss: 2e-6,
            path: 1e9,
            uplink: 2e9,
            source_read: 2e9,
            fails_source: 0.001,
            fails_destination: 0.001,
            stalled: 0.0,
            others_want: 20.0,
            rival_want: 4.0,
            slots_cap: 100.0,
            query: 0.005,
            service_up: true,
            pace: 1.0,
            disk: 100e6,
            servers_down: 0,
            servers_drained: 0,
            fills: 0,
            catalogue: 0.999,
            pace_all: 1.0,
            random: 0.02,
            array: 1.0,
            path_switches: 0.0,
            other_path_bytes: 0.0,
            jobs: 2.0,
            checksum: 4e9,
            relay: 0.0,
            namespace_operation: 0.05,
            namespace_clients: 2.0,
            namespace_io: 0.02,
            batch: 0.5,
            descriptors_leak: 0.0,
            tape_writes: true,
            tape_buffer: 0.4,
            recalls: false,
            drives_of_others: 0.0,
            files_per_mount: 20.0,
            amplification: 1.0,
        }
    }
}

pub fn link(source: &str, destination: &str) -> LinkId {
    LinkId {
        source: StorageId::new(source),
        destination: StorageId::new(destination),
    }
}

pub fn watched() -> LinkId {
    link("cern", "in2p3")
}

struct Flow {
    id: LinkId,
    queue: f64,
    active: f64,
    file: f64,
    limit: f64,
}

/// Sums of one bin.
#[derive(Default, Clone)]
struct Sums(BTreeMap<String, f64>);

impl Sums {
    fn add(&mut self, name: impl Into<String>, value: f64) {
        *self.0.entry(name.into()).or_default() += value;
    }

    /// The slowest stage works all the time, those before it wait to hand over, those after it for input.
    fn stages(&mut self, caps: [f64; 4], slots: f64, by_window: bool) {
        let slowest = caps.iter().copied().fold(f64::INFINITY, f64::min);
        let at = caps.iter().position(|cap| *cap <= slowest).unwrap_or(0);
        for (stage, cap) in caps.iter().enumerate() {
            let busy = slots * slowest / cap;
            let rest = |waits: bool| if waits { slots - busy } else { 0.0 };
            self.add(format!("stage {stage} busy"), busy);
            self.add(format!("stage {stage} input"), rest(stage > at));
            self.add(format!("stage {stage} output"), rest(stage < at));
        }
        let part = |yes: bool| if yes { 0.9 } else { 0.02 } * STEP / f64::from(BIN);
        let window = at == 1 && by_window;
        self.add("tcp buffer", part(window));
        self.add("tcp window", part(at == 1 && !window));
        self.add("tcp receiver", part(at > 1));
        self.add("tcp idle", part(at == 0));
    }
}

/// The links, the one that is watched first.
fn flows() -> Vec<Flow> {
    [
        ("cern", "in2p3"),
        ("cern", "ral"),
        ("fnal", "in2p3"),
        ("fnal", "ral"),
        ("desy", "bnl"),
    ]
    .into_iter()
    .map(|(source, destination)| Flow {
        id: link(source, destination),
        queue: 40.0,
        active: 0.0,
        file: 1e9,
        limit: 30.0,
    })
    .collect()
}

/// Runs the grid for so many bins, with the conditions of each.
pub fn run(
    bins: usize,
    seed: u64,
    noise: f64,
    conditions: impl Fn(usize) -> Conditions,
) -> Signals {
    let mut chance = Noise(seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
    let mut flows = flows();
    let mut rows: Vec<Sums> = Vec::new();
    let mut free = [400e9_f64; SERVERS];
    let mut backlog = 0.0;
    let mut descriptors = 2000.0;
    let mut tape_left = 2e12;
    let mut recalled = 0.0;
    let mut wobble = 0.0;
    for bin in 0..bins {
        let c = conditions(bin);
        let mut sums = Sums::default();
        wobble = wobble * 0.5 + chance.normal() * noise;
        let steps = f64::from(BIN) / STEP;
        for _ in 0..steps as usize {
            let luck = (wobble + chance.normal() * noise).exp();
            let open: Vec<usize> = (0..SERVERS)
                .filter(|n| *n >= c.servers_down + c.servers_drained && free[*n] > 200e9)
                .collect();
            flows[0].limit = c.limit;
            flows[0].file = c.file;
            // Scheduler: each link wants what is queued, up to its limit; slots go by what is wanted.
            let wants: Vec<f64> = flows
                .iter()
                .enumerate()
                .map(|(n, flow)| match n {
                    0 => c.limit.min(flow.queue),
                    2 => c.rival_want,
                    _ => c.others_want / 3.0,
                })
                .collect();
            let all: f64 = wants.iter().sum();
            let given = (c.slots_cap / all).min(1.0);
            // Namespace: every file needs five operations, in turn with those of other clients.
            let clients = c.namespace_clients + flows[0].active.min(3.0);
            let threads = 20.0;
            let operation = c.namespace_operation * (clients / threads).max(1.0);
            let opening = c.open_seconds + 5.0 * operation + c.batch;
            let starts_max = 1.0 / (4.0 * c.query);
            // The servers of the destination, shared with the other link to it.
            let jobs = c.jobs;
            let connections =
                (flows[0].active * c.streams + flows[2].active) / open.len().max(1) as f64;
            let crowd = 1.0 / (1.0 + ((connections + jobs) / 40.0).powi(2));
            let able = c.disk * crowd * c.array * (1.0 - 0.85 * c.random);
            let disk = able / (1.0 + 3.0 * c.relay);
            sums.add("disk able", able / steps);
            let disks = disk * open.len() as f64;
            let write_all = (flows[0].active + flows[2].active).max(1e-9);
            let write_each = disks / write_all;
            let by_window = c.streams * (1.0 - c.unused_streams) * c.window / c.rtt;
            let by_loss = c.streams * 1448.0 * 1.22 / (c.rtt * c.loss.sqrt());
            let path_each = (c.path / (flows[0].active - c.stalled).max(1.0))
                .min(c.uplink / (flows[0].active + flows[1].active).max(1e-9));
            let network = by_window.min(by_loss).min(path_each);
            let read_each = c.source_read / (flows[0].active + flows[1].active).max(1e-9);
            let check_each = c.checksum / write_all;
            let caps = [read_each, network, check_each, write_each];
            let each = caps.into_iter().fold(f64::INFINITY, f64::min).max(1.0) * luck.min(1.5);
            let mut used = 0.0;
            let mut started_all = 0.0;
            for n in 0..flows.len() {
                let flow = &mut flows[n];
                let want = wants[n] * given * if c.service_up { c.pace_all } else { 0.0 };
                let rate = match n {
                    0 => each,
                    1 => (c.uplink / (flow.active + c.limit).max(1.0)).min(20e6),
                    2 => write_each.min(25e6),
                    _ => 20e6 * luck,
                };
                let seconds = flow.file / rate + if n == 0 { opening } else { 2.0 };
                let paced = if n == 0 { c.pace } else { 1.0 };
                let share = if all > 0.0 { wants[n] / all } else { 0.0 };
                let most = (want * paced).min(starts_max * share * seconds);
                let stalled = if n == 0 {
                    c.stalled.min(flow.limit)
                } else {
                    0.0
                };
                // What runs ends by itself; what may start does at once.
                let target = most.max(stalled);
                flow.active = match target > flow.active {
                    true => target,
                    false => target.max(flow.active * (1.0 - STEP / seconds.max(STEP))),
                };
                let moving = (flow.active - stalled).max(0.0);
                let attempts = moving * STEP / seconds;
                used += flow.active;
                started_all += if c.service_up { attempts } else { 0.0 };
                let name = flow.id.to_string();
                sums.add(format!("{name} active"), flow.active / steps);
                sums.add(
                    format!("{name} queued"),
                    (flow.queue - flow.active).max(0.0) / steps,
                );
                let bytes = attempts * flow.file;
                if n > 0 {
                    sums.add(format!("{name} bytes"), bytes);
                    continue;
                }
                if open.is_empty() {
                    let refused = moving * STEP / (opening + 30.0);
                    sums.add("failed space", refused);
                    sums.add("opening", opening / steps);
                    continue;
                }
                let leaked = if descriptors >= 65_000.0 { 0.85 } else { 0.0 };
                let fails_destination = c.fails_destination.max(leaked);
                let fails = (c.fails_source + fails_destination).min(1.0);
                // A failing attempt breaks after six tenths of its file.
                let attempts = moving * STEP / (opening + flow.file / rate * (1.0 - 0.4 * fails));
                sums.add("copied", attempts * (1.0 - fails) * flow.file);
                sums.add("failed", attempts * fails * 0.6 * flow.file);
                sums.add("finished", attempts * (1.0 - fails));
                sums.add("failed source", attempts * c.fails_source);
                sums.add("failed destination", attempts * fails_destination);
                sums.add("opening", opening / steps);
                let arriving = match c.recalls {
                    true => recalled,
                    false => (c.limit + 40.0 - flow.queue)
                        .max(0.0)
                        .min(c.submit_max * STEP),
                };
                recalled = 0.0;
                sums.add("submitted", arriving);
                flow.queue = (flow.queue + arriving - attempts * (1.0 - fails)).max(0.0);
                let moved = attempts * flow.file * (1.0 - 0.4 * fails);
                let slots = moving * (1.0 - opening / seconds) * STEP;
                let is_pinned = c.buffer.is_none();
                sums.stages(caps, slots, is_pinned && by_window <= network * 1.001);
                sums.add("tcp unused", c.unused_streams / steps);
                for (n, free) in free.iter_mut().enumerate() {
                    let part = if open.contains(&n) {
                        1.0 / open.len() as f64
                    } else {
                        0.0
                    };
                    let bytes = (moved + flows[2].active * STEP * write_each.min(25e6)) * part;
                    sums.add(format!("server {n} in"), bytes);
                    let is_stuck = !c.tape_writes || c.tape_buffer >= 0.98;
                    let fills = if is_stuck { c.fills.max(3) } else { c.fills };
                    let gone = match n >= fills {
                        true => bytes + (400e9 - *free).clamp(0.0, 5e9),
                        false => 0.0,
                    };
                    *free = (*free + gone - bytes).max(0.0);
                }
                tape_left = (tape_left + moved * if c.tape_writes { 0.0 } else { 1.0 }).max(0.0);
            }
            sums.add("slots used", used / steps);
            sums.add("starts", started_all);
            // Tape: a drive mounts, positions and reads.
            let drives = (4.0 - c.drives_of_others).max(0.0);
            let per_file = 120.0 / c.files_per_mount + c.amplification * c.file / 200e6;
            let wanted = 0.2 * STEP + backlog;
            let read = (drives * STEP / per_file).min(wanted);
            if c.recalls {
                backlog = wanted - read;
                recalled = read;
                sums.add("recalled", read);
                sums.add(
                    "drives",
                    (read * per_file / STEP + c.drives_of_others) / steps,
                );
            }
            descriptors = (descriptors + c.descriptors_leak * STEP).min(65_536.0);
        }
        for (n, free) in free.iter().enumerate() {
            sums.add(format!("pool {n} free"), *free);
        }
        sums.add("descriptors", descriptors);
        sums.add("tape left", tape_left);
        sums.add("backlog", backlog);
        rows.push(sums);
    }
    measured(&flows, &rows, conditions)
}

/// What was summed, as columns.
fn measured(flows: &[Flow], rows: &[Sums], conditions: impl Fn(usize) -> Conditions) -> Signals {
    let bins = rows.len();
    let mut signals = Signals::unknown(Timestamp(BEGIN), BIN, bins);
    let column = |name: &str| {
        Series(
            rows.iter()
                .map(|row| Some(row.0.get(name).copied().unwrap_or(0.0)))
                .collect(),
        )
    };
    let of = |value: &dyn Fn(&Conditions) -> f64| {
        Series((0..bins).map(|bin| Some(value(&conditions(bin)))).collect())
    };
    for (n, flow) in flows.iter().enumerate() {
        let name = flow.id.to_string();
        let mut link = LinkSignals {
            active: column(&format!("{name} active")),
            queued: column(&format!("{name} queued")),
            copied_bytes: column(&format!("{name} bytes")),
            limit: Series::constant(30.0, bins),
            ..LinkSignals::default()
        };
        if n == 0 {
            watch(&mut link, &column, &of);
            signals
                .service
                .submissions
                .insert(flow.id.clone(), column("submitted"));
        }
        signals.links.insert(flow.id.clone(), link);
    }
    signals.service.slots_used = column("slots used");
    signals.service.slots_cap = of(&|c| c.slots_cap);
    signals.service.dispatches = column("starts");
    signals.service.database_seconds = of(&|c| c.query);
    signals.service.probe = of(&|c| f64::from(u8::from(c.service_up)));
    storages(&mut signals, &column, &of);
    signals
}

fn watch(link: &mut LinkSignals, column: &dyn Fn(&str) -> Series, of: &OverTime<'_>) {
    link.copied_bytes = column("copied");
    link.failed_bytes = column("failed");
    link.limit = of(&|c| c.limit);
    link.finished_files = column("finished");
    link.overhead_seconds = column("opening");
    link.file_bytes = of(&|c| c.file);
    link.streams_asked = Series::constant(1.0, link.active.0.len());
    link.streams_used = of(&|c| c.streams);
    let kind = |side, errno, text: &str| FailureGroup::new(side, Phase::Transfer, errno, text);
    link.failures.insert(
        kind(Side::Source, Errno::EIO, "SOURCE [5] cannot open /…"),
        column("failed source"),
    );
    link.failures.insert(
        kind(
            Side::Destination,
            Errno::ECOMM,
            "DESTINATION [70] connection closed",
        ),
        column("failed destination"),
    );
    link.failures.insert(
        kind(
            Side::Destination,
            Errno::ENOSPC,
            "DESTINATION [28] no space left",
        ),
        column("failed space"),
    );
    let stages = [
        DataPathStage::SourceRead,
        DataPathStage::Network,
        DataPathStage::Checksum,
        DataPathStage::DestinationWrite,
    ];
    for (n, stage) in stages.into_iter().enumerate() {
        link.stages.insert(
            stage,
            StageSignals {
                busy: column(&format!("stage {n} busy")),
                input_wait: column(&format!("stage {n} input")),
                output_wait: column(&format!("stage {n} output")),
            },
        );
    }
    link.tcp = TcpSignals {
        idle: column("tcp idle").plus(&column("tcp unused")),
        window_limited: column("tcp window"),
        receiver_limited: column("tcp receiver"),
        buffer_limited: column("tcp buffer"),
        retransmitted: of(&|c| c.loss),
        out_of_order: Series::default(),
        rtt_seconds: of(&|c| c.rtt),
        rtt_min_seconds: of(&|c| c.rtt),
        window_bytes: of(&|c| c.window),
        buffer_max_bytes: of(&|c| c.buffer.unwrap_or(c.window)),
    };
}

fn storages(signals: &mut Signals, column: &dyn Fn(&str) -> Series, of: &OverTime<'_>) {
    let bins = signals.bins;
    let in2p3 = StorageId::new("in2p3");
    for n in 0..SERVERS {
        let name = ServerName(format!("ccxfer{:02}", n + 9));
        let bytes = column(&format!("server {n} in"));
        let mut server = ServerSignals {
            storage: Some(in2p3.clone()),
            bytes_in: bytes.clone(),
            bytes_out: Series::constant(0.0, bins),
            up: of(&|c| f64::from(u8::from(n >= c.servers_down))),
            in_flight: of(&|c| c.jobs + 2.0),
            random_writes: of(&|c| c.random),
            io_full: of(&|c| (c.jobs / 200.0).min(0.6)),
            io_some: of(&|c| (c.jobs / 100.0).min(0.9)),
            cpu: of(&|c| (4e9 / c.checksum * 0.2).min(0.99)),
            memory_full: Series::constant(0.0, bins),
            ..ServerSignals::default()
        };
        // Starts are the jobs that came and a few of our own.
        let jobs: Vec<f64> = of(&|c| c.jobs)
            .values(std::slice::from_ref(&(0..bins)))
            .collect();
        server.starts = Series::known(
            (0..bins).map(|bin| 2.0 + (jobs[bin] - jobs[bin.saturating_sub(1)]).max(0.0)),
        );
        let relay = of(&|c| c.relay);
        server.relayed_bytes = Series(
            (0..bins)
                .map(|bin| Some(bytes.at(bin)? * relay.at(bin)?))
                .collect(),
        );
        let able = column("disk able");
        let use_of = |bin: usize| Some((bytes.at(bin)? / 60.0 / able.at(bin)?).min(1.0));
        server.devices.insert(
            "lun0".to_owned(),
            DeviceSignals {
                utilisation: Series((0..bins).map(use_of).collect()),
                bytes: bytes.clone(),
                path_switches: of(&|c| c.path_switches),
                other_path_bytes: of(&|c| c.other_path_bytes),
            },
        );
        signals.servers.insert(name, server);
        signals.pools.insert(
            PoolName::new(format!("pool{n}")),
            PoolSignals {
                storage: Some(in2p3.clone()),
                bytes_in: bytes,
                free_bytes: column(&format!("pool {n} free")),
                reserve_bytes: Series::constant(200e9, bins),
                movers_stalled: of(&|c| if n == 0 { c.stalled } else { 0.0 }),
                ..PoolSignals::default()
            },
        );
    }
    let head = ServerSignals {
        storage: Some(in2p3.clone()),
        role: ServerKind::Head,
        io_some: of(&|c| c.namespace_io),
        descriptors: column("descriptors"),
        descriptors_limit: Series::constant(65_536.0, bins),
        memory_full: Series::constant(0.0, bins),
        ..ServerSignals::default()
    };
    signals.servers.insert(ServerName("ccsrm".to_owned()), head);
    let clients = of(&|c| c.namespace_clients + 1.0);
    let threads = 20.0;
    let waits = |clients: f64| (clients - threads).max(0.0);
    let written = of(&|c| {
        if c.tape_writes && c.tape_buffer < 0.98 {
            6e9
        } else {
            0.0
        }
    });
    let storage = StorageSignals {
        namespace_work_seconds: Series::default(),
        namespace_seconds: of(&|c| {
            c.namespace_operation * ((c.namespace_clients + 3.0) / threads).max(1.0)
        }),
        namespace_busy: Series(
            clients
                .0
                .iter()
                .map(|clients| Some(clients.as_ref()?.min(threads)))
                .collect(),
        ),
        namespace_cap: Series::constant(threads, bins),
        namespace_queued: Series(
            clients
                .0
                .iter()
                .map(|clients| Some(waits(*clients.as_ref()?)))
                .collect(),
        ),
        batch_seconds: of(&|c| c.batch),
        used_bytes: Series::constant(1e15, bins),
        catalogue_bytes: of(&|c| c.catalogue * 1e15),
        tape: TapeSignals {
            written_bytes: written,
            unwritten_bytes: column("tape left"),
            buffer_used: of(&|c| c.tape_buffer),
            write_cycle_seconds: Some(300.0),
            ..TapeSignals::default()
        },
    };
    signals.storages.insert(in2p3, storage);
    let recalled = column("recalled");
    let times = |factor: &dyn Fn(&Conditions) -> f64| {
        let factor = of(factor);
        Series(
            (0..bins)
                .map(|bin| Some(recalled.at(bin)? * factor.at(bin)?))
                .collect(),
        )
    };
    let tape = TapeSignals {
        drives_busy: column("drives"),
        drives_cap: Series::constant(4.0, bins),
        mounts: times(&|c| 1.0 / c.files_per_mount),
        recalled_files: recalled.clone(),
        recalled_bytes: times(&|c| c.file),
        read_bytes: times(&|c| c.file * c.amplification),
        recalls_queued: column("backlog"),
        ..TapeSignals::default()
    };
    signals.storages.insert(
        StorageId::new("cern"),
        StorageSignals {
            tape,
            ..StorageSignals::default()
        },
    );
}
