//! The run: a clock, what happens next, and the engine in the middle.

use crate::field::{Field, Foretold, MB};
use crate::plan::{Change, Load, Plan};
use crate::random::Random;
use crate::report::{LinkReport, Report};
use penstock_decide::halting::HaltPolicy;
use penstock_decide::scheduler::SlotLimits;
use penstock_model::{
    Activity, Attempt, Bytes, ChecksumAlgorithm, CopyMode, CredentialId, Errno, Failure, FileUrl,
    JobId, JobKind, JobParameters, MoverReport, Phase, Priority, Retry, Side, Slots, Timestamp,
    TransferEvent, TransferId, TransferState, UserName, VoName,
};
use penstock_persistence::journal::{Journal, MemoryJournal, Record, Standing};
use penstock_transfer_service::engine::{
    Action, Assignment, Effects, Engine, EngineConfig, Input, Now, Outcome, ReplyId, Task,
    continue_from,
};
use penstock_transfer_service::submission::{NewJob, NewTransfer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;
use thiserror::Error;
use uuid::Uuid;

/// Where virtual time begins, milliseconds since 1970.
const BEGIN_MS: i64 = 1_700_000_000_000;
/// Seconds between two looks that the engine wants at least; the driver's.
const WAKE_PAUSE: f64 = 0.001;
/// Seconds between two looks at who gets what of networks and storages.
const SHARE_EVERY: f64 = 1.0;

/// Something happened that must never happen. The message says what and when; the seed of the plan repeats it.
#[derive(Debug, Error)]
#[error("second {second:.3}: {what}")]
pub struct Broken {
    /// Virtual seconds since the begin.
    pub second: f64,
    /// What is wrong.
    pub what: String,
}

/// What happens at a time.
#[derive(Debug, Clone, PartialEq)]
enum Next {
    /// The next job of a load.
    Submit(usize),
    /// Both ends of an attempt were looked at.
    Looked(TransferId, Attempt),
    /// An attempt fails.
    Fails(TransferId, Attempt),
    /// The next file of a link arrives, unless rates have changed.
    Arrives(Foretold),
    /// An agent that was stopped, or has tidied up, has ended.
    Stopped(TransferId, Attempt),
    Share,
    /// The engine wants to be looked after.
    Wake,
    Change(usize),
}

#[derive(Debug, PartialEq)]
struct Due {
    at: f64,
    number: u64,
    next: Next,
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.at
            .total_cmp(&other.at)
            .then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// An attempt that runs.
struct Running {
    assignment: Assignment,
    bytes: f64,
    link: usize,
}

/// A load that has not submitted everything.
struct Submitting {
    left: u64,
    pause: f64,
}

struct World<'a> {
    plan: &'a Plan,
    field: Field,
    engine: Engine,
    journal: MemoryJournal,
    keeps_journal: bool,
    random: Random,
    now: f64,
    due: BinaryHeap<Reverse<Due>>,
    numbers: u64,
    woken_at: f64,
    running: HashMap<TransferId, Running>,
    submitting: Vec<Submitting>,
    jobs: u128,
    /// By transfer: when it was submitted, how large it is, whether it has started.
    files: HashMap<TransferId, (f64, f64, bool)>,
    states: HashMap<TransferId, TransferState>,
    links: Vec<LinkReport>,
    link_index: HashMap<(String, String), usize>,
    link_active: Vec<u32>,
    storage_active: HashMap<(String, bool), u32>,
    waits: Vec<f32>,
    vos: BTreeMap<String, u64>,
    counted: BTreeMap<&'static str, u64>,
    failures: u64,
    inputs: u64,
}

/// Runs a plan to its end.
///
/// Errors: an invariant of the engine was broken.
pub fn simulate(plan: &Plan) -> Result<Report, Broken> {
    let mut world = World::new(plan);
    world.run()?;
    Ok(world.report())
}

fn config(plan: &Plan) -> EngineConfig {
    let service = &plan.service;
    EngineConfig {
        slots: SlotLimits {
            link: Slots(service.link_max),
            storage_outbound: Slots(service.storage_max),
            storage_inbound: Slots(service.storage_max),
            agents: Slots(service.agents_max),
            ..SlotLimits::default()
        },
        retries_max: service.retries,
        retry_delay: Duration::from_secs(service.retry_delay),
        halting: HaltPolicy {
            failures: 20,
            wait: Duration::from_secs(30),
        },
        open_max: usize::MAX,
        tape: Default::default(),
    }
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> World<'a> {
        let at = Now {
            at: Timestamp(BEGIN_MS),
            monotonic_us: 0,
        };
        let (engine, _) = Engine::restore(config(plan), Standing::default(), at).finish();
        let submitting = plan.loads.iter().map(|load| {
            let jobs = load.files.div_ceil(load.job);
            Submitting {
                left: load.files,
                pause: load.over / jobs.max(1) as f64,
            }
        });
        let mut world = World {
            plan,
            field: Field::new(plan),
            engine,
            journal: MemoryJournal::default(),
            keeps_journal: plan.events.iter().any(|event| event.what == Change::Crash),
            random: Random::new(plan.seed),
            now: 0.0,
            due: BinaryHeap::new(),
            numbers: 0,
            woken_at: f64::INFINITY,
            running: HashMap::new(),
            submitting: submitting.collect(),
            jobs: 0,
            files: HashMap::new(),
            states: HashMap::new(),
            links: Vec::new(),
            link_index: HashMap::new(),
            link_active: Vec::new(),
            storage_active: HashMap::new(),
            waits: Vec::new(),
            vos: BTreeMap::new(),
            counted: BTreeMap::new(),
            failures: 0,
            inputs: 0,
        };
        for (at, load) in plan.loads.iter().enumerate() {
            world.later(load.begin, Next::Submit(at));
        }
        for (at, event) in plan.events.iter().enumerate() {
            world.later(event.at, Next::Change(at));
        }
        world.later(SHARE_EVERY, Next::Share);
        world
    }

    fn later(&mut self, at: f64, next: Next) {
        self.numbers += 1;
        let number = self.numbers;
        self.due.push(Reverse(Due { at, number, next }));
    }

    fn run(&mut self) -> Result<(), Broken> {
        let end = self.plan.seconds as f64;
        while let Some(Reverse(due)) = self.due.pop() {
            if due.at > end {
                break;
            }
            self.now = self.now.max(due.at);
            self.happen(due.next)?;
            let is_over = self.running.is_empty()
                && self.engine.open_transfers() == 0
                && self.submitting.iter().all(|load| load.left == 0);
            if is_over {
                break;
            }
        }
        Ok(())
    }

    fn clock(&self) -> Now {
        Now {
            at: Timestamp(BEGIN_MS + (self.now * 1000.0) as i64),
            monotonic_us: (self.now * 1e6) as u64,
        }
    }

    fn broken<T>(&self, what: String) -> Result<T, Broken> {
        Err(Broken {
            second: self.now,
            what,
        })
    }

    fn happen(&mut self, next: Next) -> Result<(), Broken> {
        match next {
            Next::Submit(load) => self.submit(load),
            Next::Looked(transfer, attempt) => self.looked(transfer, attempt),
            Next::Fails(transfer, attempt) => self.fail(transfer, attempt),
            Next::Arrives(foretold) => self.arrive(&foretold),
            Next::Stopped(transfer, attempt) => self.end(transfer, attempt, Outcome::Stopped),
            Next::Share => {
                for link in self.field.share(self.now) {
                    self.foretell(link);
                }
                self.later(self.now + SHARE_EVERY, Next::Share);
                Ok(())
            }
            Next::Wake => {
                self.woken_at = f64::INFINITY;
                self.feed(Input::Tick)
            }
            Next::Change(at) => self.change(at),
        }
    }

    fn feed(&mut self, input: Input) -> Result<(), Broken> {
        self.inputs += 1;
        let effects = self.engine.handle(self.clock(), input);
        self.perform(effects)
    }

    /// Persist, then act, as the driver does.
    fn perform(&mut self, effects: Effects) -> Result<(), Broken> {
        for record in &effects.records {
            self.check(record)?;
        }
        if self.keeps_journal
            && let Err(why) = self.journal.append(&effects.records)
        {
            return self.broken(why.to_string());
        }
        for action in effects.actions {
            match action {
                Action::Start(assignment) => self.start(assignment)?,
                Action::Proceed { transfer, .. } => self.proceed(transfer),
                Action::Stop { transfer } => self.stop(transfer),
                _ => {}
            }
        }
        let wake = self.engine.wake_at();
        if let Some(at) = wake {
            let at = ((at.0 - BEGIN_MS) as f64 / 1000.0).max(self.now + WAKE_PAUSE);
            if at < self.woken_at {
                self.woken_at = at;
                self.later(at, Next::Wake);
            }
        }
        Ok(())
    }

    /// What is recorded must follow from what was recorded before.
    fn check(&mut self, record: &Record) -> Result<(), Broken> {
        let Record::Happened {
            at,
            transfer,
            event,
            state,
            ..
        } = record
        else {
            return Ok(());
        };
        if let TransferEvent::Submitted = event {
            if self.states.insert(*transfer, state.clone()).is_some() {
                return self.broken(format!("transfer {transfer} was submitted twice"));
            }
            return Ok(());
        }
        let Some(before) = self.states.get(transfer) else {
            return self.broken(format!(
                "transfer {transfer} was never submitted, or has ended"
            ));
        };
        match penstock_model::advance(before, *at, event) {
            Ok(next) if next == *state => {}
            Ok(next) => {
                let what =
                    format!("transfer {transfer} is recorded as {state:?} and must be {next:?}");
                return self.broken(what);
            }
            Err(why) => return self.broken(format!("transfer {transfer}: {why}")),
        }
        if let TransferEvent::AttemptFailed { .. } = event {
            self.failures += 1;
        }
        match state.is_terminal() {
            true => {
                self.states.remove(transfer);
                self.files.remove(transfer);
                *self.counted.entry(state.fts_name()).or_default() += 1;
            }
            false => {
                self.states.insert(*transfer, state.clone());
            }
        }
        Ok(())
    }

    fn submit(&mut self, at: usize) -> Result<(), Broken> {
        let load = &self.plan.loads[at];
        let submitting = &mut self.submitting[at];
        let files = submitting.left.min(load.job);
        submitting.left -= files;
        let (is_last, pause) = (submitting.left == 0, submitting.pause);
        self.jobs += 1;
        let (job, sizes) = self.job(load, files);
        let first = self.counted_so_far();
        for (offset, bytes) in (0..).zip(sizes) {
            self.files
                .insert(TransferId(first + offset), (self.now, bytes, false));
        }
        if !is_last {
            self.later(self.now + pause, Next::Submit(at));
        }
        let job = Box::new(job);
        self.feed(Input::Submit {
            job,
            reply: ReplyId(0),
        })
    }

    /// The number that the engine gives next.
    fn counted_so_far(&self) -> u64 {
        self.submitted() + 1
    }

    fn submitted(&self) -> u64 {
        self.counted.values().sum::<u64>() + self.states.len() as u64
    }

    fn job(&mut self, load: &Load, files: u64) -> (NewJob, Vec<f64>) {
        let url = |host: &str, number: u128, file: u64| {
            FileUrl::parse(&format!("https://{host}/{number:x}/{file}"))
                .expect("made of plain names")
        };
        let mut sizes = Vec::with_capacity(files as usize);
        let transfers = (0..files).map(|file| {
            let bytes = self.random.log_normal(load.size * MB, load.spread).max(0.0);
            sizes.push(bytes);
            NewTransfer {
                source: url(&load.from, self.jobs, file),
                destination: url(&load.to, self.jobs, file),
                size: Some(Bytes(bytes as u64)),
                checksum: None,
                checksum_algorithm: ChecksumAlgorithm::Adler32,
                activity: Activity::new("default"),
                scitag: None,
                metadata: serde_json::Value::Null,
                source_credential: None,
                destination_credential: None,
                tape: Default::default(),
            }
        });
        let job = NewJob {
            id: JobId(Uuid::from_u128(self.jobs)),
            user: UserName::new(load.vo.as_str()),
            vo: VoName::new(load.vo.as_str()),
            delegation: CredentialId::new("simulated"),
            parameters: JobParameters {
                kind: JobKind::Independent,
                priority: Priority::clamped(load.priority),
                ..JobParameters::default()
            },
            transfers: transfers.collect(),
            tokens: Vec::new(),
        };
        (job, sizes)
    }

    fn link_of(&mut self, assignment: &Assignment) -> usize {
        let link = assignment.request.link();
        let (from, to) = (
            link.source.host().to_owned(),
            link.destination.host().to_owned(),
        );
        let key = (from.clone(), to.clone());
        if let Some(&index) = self.link_index.get(&key) {
            return index;
        }
        self.link_index.insert(key, self.links.len());
        self.links.push(LinkReport {
            from,
            to,
            ..LinkReport::default()
        });
        self.link_active.push(0);
        self.links.len() - 1
    }

    fn start(&mut self, assignment: Assignment) -> Result<(), Broken> {
        let (transfer, attempt) = (assignment.request.id, assignment.attempt);
        if assignment.task == Task::TidyUp {
            self.later(self.now + 0.1, Next::Stopped(transfer, attempt));
            return Ok(());
        }
        let link = self.link_of(&assignment);
        self.occupy(link, 1)?;
        let bytes = match self.files.get_mut(&transfer) {
            Some((submitted, bytes, started)) => {
                if !std::mem::replace(started, true) {
                    self.waits.push((self.now - *submitted) as f32);
                }
                *bytes
            }
            None => return self.broken(format!("transfer {transfer} started after its end")),
        };
        let running = Running {
            assignment,
            bytes,
            link,
        };
        if self.running.insert(transfer, running).is_some() {
            return self.broken(format!("transfer {transfer} runs twice at once"));
        }
        let (from, to) = (self.links[link].from.clone(), self.links[link].to.clone());
        let storages = self.plan.storages.iter();
        let mut latency = 0.0;
        let mut fails = 0.0;
        for storage in storages.filter(|storage| storage.name == from || storage.name == to) {
            latency += storage.latency / 1000.0;
            fails += storage.failures;
        }
        let looks = self.now + self.random.exponential(latency.max(1e-3));
        let next = match self.random.happens(fails) {
            true => Next::Fails(transfer, attempt),
            false => Next::Looked(transfer, attempt),
        };
        self.later(looks, next);
        Ok(())
    }

    /// Counts what runs, and compares it with what may.
    fn occupy(&mut self, link: usize, change: i32) -> Result<(), Broken> {
        let service = &self.plan.service;
        let active = &mut self.link_active[link];
        *active = active.saturating_add_signed(change);
        let on_link = *active;
        let report = &mut self.links[link];
        report.active_max = report.active_max.max(on_link);
        if on_link > service.link_max {
            let what = format!("{on_link} run from {} to {}", report.from, report.to);
            return self.broken(what);
        }
        let ends = [(report.from.clone(), false), (report.to.clone(), true)];
        for end in ends {
            let active = self.storage_active.entry(end.clone()).or_default();
            *active = active.saturating_add_signed(change);
            let count = *active;
            if count > service.storage_max {
                return self.broken(format!("{count} run at {end:?}"));
            }
        }
        Ok(())
    }

    fn looked(&mut self, transfer: TransferId, attempt: Attempt) -> Result<(), Broken> {
        match self.running.get(&transfer) {
            Some(running) if running.assignment.attempt == attempt => {}
            _ => return Ok(()),
        }
        let size = Some(Bytes(self.running[&transfer].bytes as u64));
        self.feed(Input::Prepared {
            transfer,
            attempt,
            size,
            checksum: None,
            replaces: false,
        })
    }

    fn proceed(&mut self, transfer: TransferId) {
        let Some(running) = self.running.get(&transfer) else {
            return;
        };
        let report = &self.links[running.link];
        let (from, to) = (report.from.clone(), report.to.clone());
        let link = self
            .field
            .begin(transfer.0, &from, &to, running.bytes, self.now);
        if self.field.is_outgrown(link) {
            for link in self.field.share(self.now) {
                self.foretell(link);
            }
        }
        self.foretell(link);
    }

    fn foretell(&mut self, link: usize) {
        if let Some(foretold) = self.field.foretell(link, self.now) {
            self.later(foretold.at, Next::Arrives(foretold));
        }
    }

    fn arrive(&mut self, foretold: &Foretold) -> Result<(), Broken> {
        if !self.field.is_current(foretold) {
            return Ok(());
        }
        for transfer in self.field.arrived(foretold.link, self.now) {
            let transfer = TransferId(transfer);
            let Some(running) = self.running.get(&transfer) else {
                return self.broken(format!("transfer {transfer} arrived and does not run"));
            };
            let (bytes, attempt, link) = (running.bytes, running.assignment.attempt, running.link);
            *self
                .vos
                .entry(running.assignment.vo.to_string())
                .or_default() += 1;
            let minute = (self.now / 60.0) as usize;
            let report = &mut self.links[link];
            report.files += 1;
            report.bytes += bytes;
            if report.minutes.len() <= minute {
                report.minutes.resize(minute + 1, 0.0);
            }
            report.minutes[minute] += bytes / MB;
            let landed = Outcome::Landed {
                size: Bytes(bytes as u64),
                mode: Some(CopyMode::Pull),
                report: Box::new(MoverReport::default()),
            };
            self.end(transfer, attempt, landed)?;
        }
        self.foretell(foretold.link);
        Ok(())
    }

    fn fail(&mut self, transfer: TransferId, attempt: Attempt) -> Result<(), Broken> {
        let failure = Failure {
            side: Side::Source,
            retry: Retry::Later,
            phase: Phase::Preparation,
            errno: Errno::EIO,
            detail: "the plan says so".to_owned(),
            found: None,
        };
        self.end(
            transfer,
            attempt,
            Outcome::Failed {
                failure,
                cleaned: true,
            },
        )
    }

    fn stop(&mut self, transfer: TransferId) {
        if let Some(running) = self.running.get(&transfer) {
            let attempt = running.assignment.attempt;
            if let Some(link) = self.field.stop(transfer.0, self.now) {
                self.foretell(link);
            }
            self.later(self.now + 0.05, Next::Stopped(transfer, attempt));
        }
    }

    fn end(
        &mut self,
        transfer: TransferId,
        attempt: Attempt,
        outcome: Outcome,
    ) -> Result<(), Broken> {
        match self.running.get(&transfer) {
            Some(running) if running.assignment.attempt == attempt => {
                let link = running.link;
                self.running.remove(&transfer);
                self.occupy(link, -1)?;
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.feed(Input::Ended {
            transfer,
            attempt,
            outcome,
        })
    }

    fn change(&mut self, at: usize) -> Result<(), Broken> {
        match self.plan.events[at].what.clone() {
            Change::Storage { name, factor } => self.field.scale_storage(&name, factor),
            Change::Path { from, to, factor } => self.field.scale_path(&from, &to, factor),
            Change::Drain { .. } => {}
            Change::Crash => return self.crash(),
        }
        for link in self.field.share(self.now) {
            self.foretell(link);
        }
        Ok(())
    }

    /// The process dies, and its agents with it. The next one finds what was durable.
    fn crash(&mut self) -> Result<(), Broken> {
        let running: Vec<(TransferId, usize)> = self
            .running
            .iter()
            .map(|(id, running)| (*id, running.link))
            .collect();
        for (transfer, link) in running {
            self.field.stop(transfer.0, self.now);
            self.occupy(link, -1)?;
        }
        self.running.clear();
        let now = self.clock();
        let continued = continue_from(&mut self.journal, config(self.plan), now);
        let (engine, effects) = match continued {
            Ok(continued) => continued,
            Err(why) => return self.broken(why.to_string()),
        };
        self.engine = engine;
        self.woken_at = f64::INFINITY;
        self.perform(effects)
    }

    fn report(mut self) -> Report {
        let mut states: BTreeMap<String, u64> = self
            .counted
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect();
        for state in self.states.values() {
            *states.entry(state.fts_name().to_owned()).or_default() += 1;
        }
        self.waits.sort_by(f32::total_cmp);
        let quantile = |part: f64| {
            let at = (self.waits.len().saturating_sub(1) as f64 * part) as usize;
            self.waits.get(at).copied().map_or(0.0, f64::from)
        };
        Report {
            name: self.plan.name.clone(),
            seconds: self.now,
            states,
            bytes: self.links.iter().map(|link| link.bytes).sum(),
            waits: [quantile(0.5), quantile(0.99), quantile(1.0)],
            failures: self.failures,
            vos: self.vos,
            links: self.links,
            inputs: self.inputs,
        }
    }
}

#[cfg(test)]
mod tests;
