//! What happened to IN2P3's tapes in April 2006, run: files come from CERN into five pools on two servers, and the queue of the HSM
//! that a storage element of today has puts them on tape. Each trouble acts on a resource for some hours: the buffer of HPSS, a
//! mover, the way from one server to HPSS, the disks. Its record is read as a site's.
//!
//! Long because the troubles, the site and its record are one run.
//!
//! It decides nothing: which file is put when, what is an incident and when commands pause is for `tape::hsm_queue`.

use super::told::{Line, Span, changes_of};
use penstock_decide::explain::signals::{
    FailureGroup, LinkSignals, Series, ServerName, ServerSignals, Signals,
};
use penstock_decide::incidents::{Incident, IncidentTimes, incidents_of, occurrences_of};
use penstock_model::observation::Operation;
use penstock_model::{
    Errno, LinkId, Phase, PoolName, PoolSample, PoolSamples, PoolTraffic, Side, StorageId,
    TapeSample, Timestamp,
};
use penstock_observe::pool_signals::PoolFold;
use penstock_tape::hsm_queue::{
    HsmBatch, HsmCommandEnd, HsmCommandId, HsmEffect, HsmInput, HsmKind, HsmOutcome, HsmPolicy,
    HsmPut, HsmQueue, HsmUri, HsmWork,
};
use penstock_tape::locate::SECOND_NS;
use penstock_tape::request::{FamilyName, FileId, RequestId, VoName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

/// 19 April 2006, 0:00 UTC. A run of the whole week begins at 7:30, so that its trouble begins at 15:30.
const BEGIN: Timestamp = Timestamp(1_145_404_800_000);
const BEGIN_OF_WEEK: Timestamp = Timestamp(1_145_431_800_000);
const STEP_SECONDS: u32 = 10;
const BIN_SECONDS: u32 = 300;
const STEPS_OF_BIN: u32 = BIN_SECONDS / STEP_SECONDS;
const BINS: usize = 30 * 12;
/// To noon of 25 April.
const BINS_OF_WEEK: usize = 148 * 12 + 6;
/// When the resource is taken away, in hours.
const FAULT_HOUR: f64 = 8.0;
/// All files are equally large.
const FILE_BYTES: u64 = 1_000_000_000;
/// Ten files at once, each at this rate, and what a server takes at most, in bytes per second.
const CHANNEL_FILES: usize = 10;
const FILE_RATE: f64 = 8e6;
const SERVER_RATE: f64 = 50e6;
/// Of five pools three are on the first server. Files that fit into one.
const SERVERS: [&str; 2] = ["ccxfer09", "ccxfer10"];
const POOL_SERVERS: [usize; 5] = [0, 0, 0, 1, 1];
const POOL_FILES: u64 = 200;
/// A stream to HPSS, and how many there are.
const STREAM_RATE: f64 = 25e6;
const STREAMS: usize = 5;
/// HPSS: its buffer, and what six 9940B take out of it, in bytes per second.
const BUFFER_BYTES: f64 = 1e12;
const DRIVES_RATE: f64 = 6.0 * 30e6;
/// Until a put finds that there is no space.
const REFUSAL_SECONDS: f64 = 30.0;
/// A put that takes longer is stopped.
const PUT_SECONDS_MAX: i64 = 1_800;
/// In the week HPSS is full once, from when and for as long as it takes for the printed errors of that day …
const FULL_FROM_HOUR_OF_WEEK: f64 = 8.0 + 5.0 / 3_600.0;
const FULL_HOURS_OF_WEEK: f64 = 3_750.0 / 3_600.0;
/// … and so many puts lose their connection on the other days, one after the other.
const LOST_CONNECTIONS: u32 = 8;
const FIRST_LOST_HOUR: f64 = 24.0;
const HOURS_BETWEEN_LOST: f64 = 16.5;
/// A pool of 2006 tries a file again after this time, and never pauses.
const RETRY_OF_2006_SECONDS: i64 = 7_200;
/// The full rate is there again from this part of the usual one on.
const FULL_RATE_SHARE: f64 = 0.95;

/// Which resource is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Others fill the buffer of HPSS, and its drives stand still.
    BufferFull,
    /// A mover moves nothing and keeps its slot until it is killed.
    MoverHangs,
    /// The ways from both servers to HPSS are dead: commands neither move a byte nor end.
    MigrationStops,
    /// Others write into the pools of the first server all that fits, also in place of files that are on tape.
    PoolsFull,
    /// The streams to HPSS are slow, and the pools small: each new file needs room that only files on tape may give.
    DeletionPressure,
    /// All of the week, with pools that try each file by itself: HPSS is full for an hour, and eight connections to it break.
    ErrorOfEachFile,
}

impl Trouble {
    pub(super) const ALL: [Trouble; 6] = [
        Trouble::BufferFull,
        Trouble::MoverHangs,
        Trouble::MigrationStops,
        Trouble::PoolsFull,
        Trouble::DeletionPressure,
        Trouble::ErrorOfEachFile,
    ];

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Trouble::BufferFull => (
                "HPSS full for six hours",
                "there is 1 error/file migrated although the error is the same; dCache should temporarily stop flushing precious files",
            ),
            Trouble::MoverHangs => (
                "hung mover",
                "stuck movers after failed transfers never cleaned",
            ),
            Trouble::MigrationStops => (
                "migration stopped",
                "the migration process was stuck; why it stopped is not understood",
            ),
            Trouble::PoolsFull => (
                "full pools",
                "when the other pools on the machine got full, no transfers did happen anymore on this machine",
            ),
            Trouble::DeletionPressure => (
                "precious files under deletion pressure",
                "deletion of precious files",
            ),
            Trouble::ErrorOfEachFile => (
                "a week without pauses",
                "306 errors of 40,123 migrations; without 19 April 8 of 37,633",
            ),
        }
    }

    /// The hour from which on the resource is away.
    fn begin_hour(self) -> f64 {
        match self {
            Trouble::ErrorOfEachFile => FULL_FROM_HOUR_OF_WEEK,
            _ => FAULT_HOUR,
        }
    }

    /// Hours for which the resource is away.
    fn hours(self) -> f64 {
        match self {
            Trouble::BufferFull => 6.0,
            Trouble::ErrorOfEachFile => FULL_HOURS_OF_WEEK,
            _ => 8.0,
        }
    }

    fn begin(self) -> Timestamp {
        match self {
            Trouble::ErrorOfEachFile => BEGIN_OF_WEEK,
            _ => BEGIN,
        }
    }

    fn bins(self) -> usize {
        match self {
            Trouble::ErrorOfEachFile => BINS_OF_WEEK,
            _ => BINS,
        }
    }

    fn pool_files(self) -> u64 {
        match self {
            Trouble::DeletionPressure => 40,
            _ => POOL_FILES,
        }
    }
}

/// A file on its way from CERN.
#[derive(Debug, Clone, Copy)]
struct Mover {
    pool: usize,
    moved: f64,
    is_hung: bool,
}

/// The disks of one pool, in files.
#[derive(Debug, Clone, Default)]
struct Pool {
    inbound: u64,
    precious: BTreeSet<u64>,
    /// On tape too, the oldest first.
    cached: VecDeque<u64>,
    of_others: u64,
}

impl Pool {
    fn used(&self) -> u64 {
        self.inbound + self.precious.len() as u64 + self.cached.len() as u64 + self.of_others
    }
}

/// A command of the HSM that runs.
#[derive(Debug, Clone, Copy)]
struct Put {
    file: u64,
    server: usize,
    seconds: f64,
    moved: f64,
    is_stopped: bool,
}

/// What came of a trouble.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) trouble: Trouble,
    pub(super) line: Line,
    pub(super) arrived: u64,
    pub(super) on_tape: u64,
    /// On no disk and not on tape.
    pub(super) lost: u64,
    /// Copies on disk that were removed for new files, and of those how many were on no tape.
    pub(super) evicted: u64,
    pub(super) evicted_precious: u64,
    pub(super) incidents: u64,
    pub(super) failed_puts: u64,
    /// These as incidents of the transfer service.
    pub(super) incidents_of_puts: Vec<Incident>,
    /// From the resource's return to the full rate.
    pub(super) minutes_to_full_rate: Option<f64>,
    /// Files on disk only, at the end.
    pub(super) left_precious: u64,
}

struct Site {
    trouble: Trouble,
    step: u32,
    movers: Vec<Option<Mover>>,
    pools: Vec<Pool>,
    pool_of: BTreeMap<u64, usize>,
    queue: HsmQueue,
    puts: BTreeMap<HsmCommandId, Put>,
    wake_ns: Option<i64>,
    /// What HPSS has in its buffer, and which files it has taken.
    buffer: f64,
    of_others: f64,
    stored: BTreeSet<u64>,
    next_file: u64,
    outcome: Counts,
    lost_connections: u32,
}

#[derive(Default)]
struct Counts {
    evicted: u64,
    evicted_precious: u64,
    incidents: u64,
    failed_puts: u64,
}

/// What is summed up over the steps of a bin.
#[derive(Default, Clone)]
struct Bin {
    bytes: f64,
    files: f64,
    stalled: f64,
    of_servers: [f64; 2],
    pools: Vec<PoolSample>,
    tape: TapeSample,
    failed_puts: BTreeMap<FailureGroup, u64>,
}

fn policy(trouble: Trouble) -> HsmPolicy {
    let mut policy = HsmPolicy::usual();
    policy.puts_max = STREAMS;
    // "Immediate migration": a file waits for others for ten minutes at most.
    policy.batch = HsmBatch {
        bytes: 20 * FILE_BYTES,
        files: 20,
        age_ns: 600 * SECOND_NS,
    };
    policy.limits.put_ns = PUT_SECONDS_MAX * SECOND_NS;
    if trouble == Trouble::ErrorOfEachFile {
        policy.batch.files = 1;
        policy.same_fault_files = usize::MAX;
        policy.retry_first_ns = RETRY_OF_2006_SECONDS * SECOND_NS;
    }
    policy
}

impl Site {
    fn new(trouble: Trouble) -> Site {
        Site {
            trouble,
            step: 0,
            movers: vec![None; CHANNEL_FILES],
            pools: vec![Pool::default(); POOL_SERVERS.len()],
            pool_of: BTreeMap::new(),
            queue: HsmQueue::restore(policy(trouble), []),
            puts: BTreeMap::new(),
            wake_ns: None,
            buffer: 0.0,
            of_others: 0.0,
            stored: BTreeSet::new(),
            next_file: 0,
            outcome: Counts::default(),
            lost_connections: 0,
        }
    }

    fn now_ns(&self) -> i64 {
        self.trouble.begin().0 * 1_000_000 + i64::from(self.step * STEP_SECONDS) * SECOND_NS
    }

    fn is_faulty(&self, trouble: Trouble) -> bool {
        let hour = f64::from(self.step * STEP_SECONDS) / 3_600.0;
        let over = trouble.begin_hour() + trouble.hours();
        self.trouble == trouble && (trouble.begin_hour()..over).contains(&hour)
    }

    fn is_buffer_full(&self) -> bool {
        self.is_faulty(Trouble::BufferFull) || self.is_faulty(Trouble::ErrorOfEachFile)
    }

    /// A connection to HPSS breaks now, if a put has one.
    fn loses_connection(&self) -> bool {
        let hour = f64::from(self.step * STEP_SECONDS) / 3_600.0;
        let next = FIRST_LOST_HOUR + f64::from(self.lost_connections) * HOURS_BETWEEN_LOST;
        self.trouble == Trouble::ErrorOfEachFile
            && self.lost_connections < LOST_CONNECTIONS
            && hour >= next
    }

    fn take_step(&mut self, bin: &mut Bin) {
        self.act_on_resources();
        self.move_files(bin);
        self.put_files(bin);
        if self.wake_ns.is_some_and(|at_ns| at_ns <= self.now_ns()) {
            self.wake_ns = None;
            self.give(HsmInput::Tick, bin);
        }
        self.look(bin);
        self.step += 1;
    }

    fn act_on_resources(&mut self) {
        let seconds = f64::from(STEP_SECONDS);
        let is_full = self.is_buffer_full();
        self.of_others = if is_full { BUFFER_BYTES } else { 0.0 };
        if !is_full {
            self.buffer = (self.buffer - DRIVES_RATE * seconds).max(0.0);
        }
        let is_taken = self.is_faulty(Trouble::PoolsFull);
        for (pool, server) in self.pools.iter_mut().zip(POOL_SERVERS) {
            if is_taken && server == 0 {
                self.outcome.evicted += pool.cached.len() as u64;
                let precious = pool
                    .cached
                    .iter()
                    .filter(|file| !self.stored.contains(file));
                self.outcome.evicted_precious += precious.count() as u64;
                pool.cached.clear();
                pool.of_others = POOL_FILES.saturating_sub(pool.used() - pool.of_others);
            } else {
                pool.of_others = 0;
            }
        }
        let hangs = self.is_faulty(Trouble::MoverHangs);
        // One more hangs every hour, until somebody kills them all.
        let count = match hangs {
            true => {
                let hour = f64::from(self.step * STEP_SECONDS) / 3_600.0 - FAULT_HOUR;
                (hour.ceil() as usize).clamp(1, 5)
            }
            false => 0,
        };
        for (number, mover) in self.movers.iter_mut().enumerate() {
            if let Some(mover) = mover {
                mover.is_hung = number < count;
            }
        }
    }

    fn move_files(&mut self, bin: &mut Bin) {
        let seconds = f64::from(STEP_SECONDS);
        // Files do not begin all at once: one in each step.
        let free = self.movers.iter().position(Option::is_none);
        if let Some(slot) = free
            && let Some(pool) = self.choose_pool()
        {
            self.pools[pool].inbound += 1;
            self.movers[slot] = Some(Mover {
                pool,
                moved: 0.0,
                is_hung: false,
            });
        }
        let mut on_server = [0.0_f64; 2];
        for mover in self.movers.iter().flatten().filter(|mover| !mover.is_hung) {
            on_server[POOL_SERVERS[mover.pool]] += 1.0;
        }
        let mut landed = Vec::new();
        for slot in &mut self.movers {
            let Some(mover) = slot else { continue };
            if mover.is_hung {
                bin.stalled += 1.0;
                continue;
            }
            let server = POOL_SERVERS[mover.pool];
            let rate = FILE_RATE.min(SERVER_RATE / on_server[server].max(1.0));
            let bytes = (rate * seconds).min(FILE_BYTES as f64 - mover.moved);
            mover.moved += bytes;
            bin.bytes += bytes;
            bin.of_servers[server] += bytes;
            bin.pools[mover.pool].traffic[0].bytes_in += bytes as u64;
            if mover.moved >= FILE_BYTES as f64 {
                landed.push(mover.pool);
                *slot = None;
            }
        }
        for pool in landed {
            bin.files += 1.0;
            self.land(pool, bin);
        }
    }

    /// A whole file is there; only the disk has it.
    fn land(&mut self, pool: usize, bin: &mut Bin) {
        let file = self.next_file;
        self.next_file += 1;
        self.pools[pool].inbound -= 1;
        self.pools[pool].precious.insert(file);
        self.pool_of.insert(file, pool);
        let put = HsmPut {
            request: RequestId(file),
            file: FileId(file),
            size_bytes: FILE_BYTES,
            family: FamilyName("dteam".into()),
            vo: VoName("dteam".into()),
            priority: 3,
        };
        self.give(HsmInput::Put(vec![put]), bin);
    }

    /// Of pools with room the one to which fewest files come, and of those the one with most room; where there is none, the
    /// oldest file that is on tape gives way.
    fn choose_pool(&mut self) -> Option<usize> {
        let most = self.trouble.pool_files();
        let room = |pool: &Pool| most.saturating_sub(pool.used() - pool.cached.len() as u64);
        let all = self.pools.iter().enumerate();
        let (chosen, _) = all
            .filter(|(_, pool)| room(pool) > 0)
            .min_by_key(|(number, pool)| (pool.inbound, std::cmp::Reverse(room(pool)), *number))?;
        while self.pools[chosen].used() >= most {
            let file = self.pools[chosen].cached.pop_front()?;
            self.outcome.evicted += 1;
            self.outcome.evicted_precious += u64::from(!self.stored.contains(&file));
        }
        Some(chosen)
    }

    /// The program of the HSM, for each file that it was called for.
    fn put_files(&mut self, bin: &mut Bin) {
        let seconds = f64::from(STEP_SECONDS);
        let is_dead = self.is_faulty(Trouble::MigrationStops);
        let rate = match self.is_faulty(Trouble::DeletionPressure) {
            true => STREAM_RATE / 8.0,
            false => STREAM_RATE,
        };
        let mut breaks = self.loses_connection();
        let mut ended = Vec::new();
        for (command, put) in &mut self.puts {
            put.seconds += seconds;
            if put.is_stopped {
                ended.push((*command, HsmCommandEnd::Stopped));
                continue;
            }
            if is_dead {
                continue;
            }
            if std::mem::take(&mut breaks) {
                self.lost_connections += 1;
                let exited = put.exited(110, "Connection timed out");
                ended.push((*command, exited));
                continue;
            }
            let free = BUFFER_BYTES - self.buffer - self.of_others;
            let bytes = (rate * seconds).min(FILE_BYTES as f64 - put.moved);
            if free < bytes {
                if put.seconds >= REFUSAL_SECONDS {
                    ended.push((*command, put.exited(28, "No space left on device")));
                }
                continue;
            }
            put.moved += bytes;
            self.buffer += bytes;
            if put.moved >= FILE_BYTES as f64 {
                let uris = HsmUri::parse(&format!("hpss://in2p3/{}", put.file));
                let uris = uris.into_iter().collect();
                ended.push((*command, HsmCommandEnd::Succeeded { uris }));
            }
        }
        for (command, end) in ended {
            let put = self.puts.remove(&command);
            match (&end, put) {
                (HsmCommandEnd::Succeeded { .. }, Some(put)) => {
                    self.stored.insert(put.file);
                }
                (HsmCommandEnd::Exited { code, text }, _) => {
                    self.outcome.failed_puts += 1;
                    *bin.failed_puts.entry(put_failure(*code, text)).or_default() += 1;
                }
                _ => {}
            }
            self.give(HsmInput::Ended { command, end }, bin);
        }
    }

    fn give(&mut self, input: HsmInput, bin: &mut Bin) {
        for effect in self.queue.handle(self.now_ns(), input) {
            match effect {
                HsmEffect::Start(command) => {
                    if let HsmWork::Put { file, .. } = command.work {
                        let pool = self.pool_of.get(&file.0).copied().unwrap_or(0);
                        let put = Put {
                            file: file.0,
                            server: POOL_SERVERS[pool],
                            seconds: 0.0,
                            moved: 0.0,
                            is_stopped: false,
                        };
                        self.puts.insert(command.command, put);
                    }
                }
                HsmEffect::Stop(command) => {
                    if let Some(put) = self.puts.get_mut(&command) {
                        put.is_stopped = true;
                    }
                }
                HsmEffect::Tell { request, outcome } => {
                    if matches!(outcome, HsmOutcome::Stored { .. }) {
                        self.keep_as_cached(request.0, bin);
                    }
                }
                HsmEffect::Open { .. } => self.outcome.incidents += 1,
                HsmEffect::WakeAt(at_ns) => self.wake_ns = Some(at_ns),
                HsmEffect::Persist(_) | HsmEffect::Disk { .. } | HsmEffect::Close(_) => {}
            }
        }
    }

    fn keep_as_cached(&mut self, file: u64, bin: &mut Bin) {
        let Some(pool) = self.pool_of.get(&file) else {
            return;
        };
        if self.pools[*pool].precious.remove(&file) {
            self.pools[*pool].cached.push_back(file);
            bin.tape.written_files += 1;
            bin.tape.written_bytes += FILE_BYTES;
        }
    }

    /// What a look in each second of the step finds.
    fn look(&self, bin: &mut Bin) {
        let looks = u64::from(STEP_SECONDS);
        let most = self.trouble.pool_files();
        for (number, (pool, sample)) in self.pools.iter().zip(&mut bin.pools).enumerate() {
            let movers = self.movers.iter().flatten();
            let active = movers.filter(|mover| mover.pool == number).count() as u64;
            let free = most.saturating_sub(pool.used() - pool.cached.len() as u64) * FILE_BYTES;
            sample.looks += looks;
            sample.reachable += looks;
            sample.accepting += looks;
            sample.active += active * looks;
            sample.limit += CHANNEL_FILES as u64 * looks;
            sample.free_bytes = sample.free_bytes.min(free);
        }
        let counts = self.queue.counts();
        let puts = counts.kinds.get(&HsmKind::Put).copied().unwrap_or_default();
        let amounts = [puts.collecting, puts.queued, puts.running, puts.delayed];
        let unwritten: u64 = amounts.iter().map(|amount| amount.bytes).sum();
        let used = (self.buffer + self.of_others).min(BUFFER_BYTES) / BUFFER_BYTES;
        let tape = &mut bin.tape;
        tape.looks += looks;
        tape.unwritten_bytes += unwritten * looks;
        tape.drives_max += 6 * looks;
        let buffer = (used * 1000.0) as u64 * looks;
        tape.buffer_used_permille = Some(tape.buffer_used_permille.unwrap_or(0) + buffer);
        tape.write_cycle_seconds = Some(600);
    }

    /// On no disk, and not on tape.
    fn lost(&self) -> u64 {
        let on_disk = |file: &u64| {
            let pool = self.pool_of.get(file).map(|pool| &self.pools[*pool]);
            pool.is_some_and(|pool| pool.precious.contains(file) || pool.cached.contains(file))
        };
        let files = 0..self.next_file;
        files
            .filter(|file| !self.stored.contains(file) && !on_disk(file))
            .count() as u64
    }
}

impl Put {
    fn exited(&self, code: i32, words: &str) -> HsmCommandEnd {
        let text = format!("rfcp {} file{}: {words}", SERVERS[self.server], self.file);
        HsmCommandEnd::Exited { code, text }
    }
}

/// A put that failed, without what differs from file to file.
fn put_failure(code: i32, text: &str) -> FailureGroup {
    let words = text.split_once(": ").map_or(text, |(_, words)| words);
    FailureGroup::new(
        Side::Destination,
        Phase::Archiving,
        Errno(code),
        &format!("rfcp to HPSS: {words}"),
    )
}

fn empty_bin() -> Bin {
    let pool = |number: usize| PoolSample {
        traffic: vec![PoolTraffic::new(None, Operation::Copy)],
        started: Some(0),
        ..PoolSample::new(PoolName::new(format!("pool{}", number + 1)))
    };
    Bin {
        pools: (0..POOL_SERVERS.len()).map(pool).collect(),
        ..Bin::default()
    }
}

fn link() -> LinkId {
    LinkId {
        source: StorageId::new("https://cern.ch"),
        destination: StorageId::new("https://ccsrm.in2p3.fr"),
    }
}

/// The record of a run, as the explainer reads it.
fn signals(begin: Timestamp, bins: &[Bin]) -> Signals {
    let mut signals = Signals::unknown(begin, BIN_SECONDS, bins.len());
    let column = |value: &dyn Fn(&Bin) -> f64| Series::known(bins.iter().map(value));
    let kinds = bins.iter().flat_map(|bin| bin.failed_puts.keys());
    let kinds: BTreeSet<&FailureGroup> = kinds.collect();
    let failures = kinds.into_iter().map(|kind| {
        let count = |bin: &Bin| bin.failed_puts.get(kind).copied().unwrap_or(0) as f64;
        (kind.clone(), column(&count))
    });
    let of_link = LinkSignals {
        tape_failures: failures.collect(),
        copied_bytes: column(&|bin| bin.bytes),
        failed_bytes: column(&|_| 0.0),
        active: column(&|_| CHANNEL_FILES as f64),
        limit: column(&|_| CHANNEL_FILES as f64),
        queued: column(&|_| 100.0),
        finished_files: column(&|bin| bin.files),
        file_bytes: column(&|_| FILE_BYTES as f64),
        stalled: column(&|bin| bin.stalled / f64::from(STEPS_OF_BIN)),
        ..LinkSignals::default()
    };
    signals.links.insert(link(), of_link);
    let mut fold = PoolFold::of(&signals);
    for (number, bin) in bins.iter().enumerate() {
        let from = signals.begin_of(number);
        fold.take(&PoolSamples {
            from,
            to: signals.begin_of(number + 1),
            pools: bin.pools.clone(),
            tape: Some(bin.tape.clone()),
        });
    }
    fold.tell(&["ccsrm.in2p3.fr".to_owned()], &mut signals);
    // The pools of this storage element are on two machines.
    signals.servers.clear();
    for (server, name) in SERVERS.iter().enumerate() {
        let of_server = ServerSignals {
            storage: Some(link().destination),
            bytes_in: column(&|bin| bin.of_servers[server]),
            up: column(&|_| 1.0),
            ..ServerSignals::default()
        };
        signals
            .servers
            .insert(ServerName((*name).to_owned()), of_server);
    }
    signals
}

fn record_of(site: &mut Site) -> Vec<Bin> {
    let bins = (0..site.trouble.bins()).map(|_| {
        let mut bin = empty_bin();
        for _ in 0..STEPS_OF_BIN {
            site.take_step(&mut bin);
        }
        bin
    });
    bins.collect()
}

/// Failures of puts, grouped as `penstock incidents` groups them.
fn incidents_of_puts(signals: &Signals) -> Vec<Incident> {
    let until = signals.begin_of(signals.bins);
    let times = IncidentTimes::default();
    let links = BTreeSet::from([link()]);
    incidents_of(occurrences_of(signals, &links, &[], times, until), times)
}

fn run_one(trouble: Trouble) -> Outcome {
    let mut site = Site::new(trouble);
    let bins = record_of(&mut site);
    let signals = signals(trouble.begin(), &bins);
    let changes = changes_of(&signals, &link(), &[link()]);
    let at = |hour: f64| Timestamp(trouble.begin().0 + (hour * 3.6e6) as i64);
    let begin_hour = trouble.begin_hour();
    let span = Span {
        from: at(begin_hour - 0.2),
        to: at(begin_hour + trouble.hours()),
    };
    let bin_of = |hour: f64| (hour * 12.0) as usize;
    let before = &bins[bin_of(begin_hour - 4.0)..bin_of(begin_hour)];
    let usual = before.iter().map(|bin| bin.bytes).sum::<f64>() / before.len() as f64;
    let after = bins.iter().skip(bin_of(begin_hour + trouble.hours()));
    let mut after = after.map(|bin| bin.bytes);
    let full = after.position(|bytes| bytes >= usual * FULL_RATE_SHARE);
    let counts = &site.outcome;
    Outcome {
        trouble,
        line: Line::of_falls(trouble.words(), &changes, &[span]),
        arrived: site.next_file,
        on_tape: site.stored.len() as u64,
        lost: site.lost(),
        evicted: counts.evicted,
        evicted_precious: counts.evicted_precious,
        incidents: counts.incidents,
        failed_puts: counts.failed_puts,
        incidents_of_puts: incidents_of_puts(&signals),
        minutes_to_full_rate: full.map(|bins| (bins + 1) as f64 * f64::from(BIN_SECONDS) / 60.0),
        left_precious: site
            .pools
            .iter()
            .map(|pool| pool.precious.len() as u64)
            .sum(),
    }
}

/// Runs all troubles.
pub(super) fn run() -> Vec<Outcome> {
    Trouble::ALL.map(run_one).into()
}

/// What came of them, as a table of a page.
pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| trouble | files that came | on tape at the end | on disk only at the end | lost | removed from disk, of those on no tape | failed puts | incidents | full rate after |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in outcomes {
        let minutes = one.minutes_to_full_rate;
        let minutes = minutes.map_or("–".to_owned(), |minutes| format!("{minutes:.0} min"));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {}, {} | {} | {} | {minutes} |",
            one.trouble.words().0,
            one.arrived,
            one.on_tape,
            one.left_precious,
            one.lost,
            one.evicted,
            one.evicted_precious,
            one.failed_puts,
            one.incidents,
        );
    }
    text
}
