//! Samples this host once a second on a thread of its own, and keeps what was sampled.
//!
//! Nothing is done on a thread of anybody else. Minutes are written by a second thread, so that a disk that hangs costs
//! minutes, never seconds.

use super::databases::{DatabaseKind, DatabaseTotals};
use super::facts::{self, FactChange, Facts};
use super::machine::{self, HostDeclaration, Machine};
use super::probe::Probe;
use super::report::{HostReport, resolution};
use super::rings::{Points, Seconds};
use super::sample::{HostSample, HostTotals};
use super::store::Store;
use parking_lot::{Mutex, RwLock};
use penstock_clock::wall_clock;
use penstock_model::{TimeWindow, Timestamp};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Below it the kernel shows its files.
const ROOT: &str = "/";
const TICK: Duration = Duration::from_secs(1);
/// Facts are read again after so many ticks, and files that could not be read are tried again.
const TICKS_PER_LOOK: u64 = 60;
/// Minutes that may wait for a disk.
const NOTES_MAX: usize = 64;
/// How long the end waits for the last minute to be written.
const END_WAIT: Duration = Duration::from_secs(2);

/// What a sampler needs.
#[derive(Debug, Clone)]
pub struct SamplerConfig {
    /// The host's name, as it is told.
    pub host: String,
    /// Where minutes and facts are kept.
    pub directory: PathBuf,
    /// Days of minutes that are kept.
    pub days_max: usize,
    /// Of interfaces and directories.
    pub declared: HostDeclaration,
}

/// A running sampler. Ends when it is dropped.
pub struct Sampler {
    host: Arc<Host>,
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
}

/// Reads what a database of this process has done. It must not wait.
type ReadDatabase = Box<dyn Fn() -> DatabaseTotals + Send>;

/// What was sampled. All methods may read files.
pub struct Host {
    name: String,
    store: Store,
    seconds: Mutex<Seconds>,
    total: Mutex<HostSample>,
    state: RwLock<HostState>,
    databases: Mutex<BTreeMap<DatabaseKind, ReadDatabase>>,
    minutes_lost: AtomicU64,
    fact_changes: AtomicU64,
    processor_ns: AtomicU64,
}

#[derive(Default)]
struct HostState {
    machine: Machine,
    changes: Vec<FactChange>,
}

/// What the writer is given.
enum Note {
    Minute(Box<HostSample>),
    Facts(Vec<FactChange>, Facts),
}

impl Sampler {
    /// Begins to sample. Errors: the directory cannot be made, or a thread not be started.
    pub fn start(config: SamplerConfig) -> io::Result<Sampler> {
        let store = Store::open(&config.directory)?;
        let host = Arc::new(Host {
            name: config.host,
            store: store.clone(),
            seconds: Mutex::default(),
            total: Mutex::default(),
            state: RwLock::default(),
            databases: Mutex::default(),
            minutes_lost: AtomicU64::new(0),
            fact_changes: AtomicU64::new(0),
            processor_ns: AtomicU64::new(0),
        });
        let (stop, stopping) = channel();
        let (notes, noted) = sync_channel(NOTES_MAX);
        let (last, ended) = channel();
        let writer = Writer {
            host: host.clone(),
            days_max: config.days_max,
            _last: last,
        };
        thread::Builder::new()
            .name("host-minutes".into())
            .spawn(move || writer.run(&noted))?;
        let ticking = SamplerThread {
            probe: Probe::new(Path::new(ROOT)),
            places: Places::find(config.declared)?,
            host: host.clone(),
            notes,
            known: store.facts(),
        };
        thread::Builder::new()
            .name("host-sampler".into())
            .spawn(move || ticking.run(&stopping))?;
        Ok(Sampler {
            host,
            stop: Some(stop),
            ended,
        })
    }

    /// What it samples.
    pub fn host(&self) -> Arc<Host> {
        self.host.clone()
    }
}

impl Drop for Sampler {
    /// Waits a moment for the minute that has begun to be written.
    fn drop(&mut self) {
        drop(self.stop.take());
        // An error is the end: the writer holds the other half of this as long as it runs.
        let _ = self.ended.recv_timeout(END_WAIT);
    }
}

/// The directories of the site, by their real paths as soon as these are known.
struct Places {
    declared: HostDeclaration,
    found: Receiver<HostDeclaration>,
}

impl Places {
    /// Links are followed on a thread of its own: to follow one into a file system that hangs takes for ever.
    fn find(declared: HostDeclaration) -> io::Result<Places> {
        let (tell, found) = channel();
        let mut real = declared.clone();
        let find = move || {
            for (_, path) in &mut real.directories {
                if let Ok(canonical) = path.canonicalize() {
                    *path = canonical;
                }
            }
            // Nobody listens when the sampler has ended.
            let _ = tell.send(real);
        };
        thread::Builder::new()
            .name("host-places".into())
            .spawn(find)?;
        Ok(Places { declared, found })
    }

    fn now(&mut self, wait: Duration) -> &HostDeclaration {
        if let Ok(real) = self.found.recv_timeout(wait) {
            self.declared = real;
        }
        &self.declared
    }
}

/// The thread that samples.
struct SamplerThread {
    probe: Probe,
    places: Places,
    host: Arc<Host>,
    notes: SyncSender<Note>,
    known: Facts,
}

impl SamplerThread {
    fn run(mut self, stopping: &Receiver<()>) {
        if let Ok(changes) = self.host.store.changes() {
            self.host.state.write().changes = changes;
        }
        // Time for the links to be followed where nothing hangs.
        self.look(Duration::from_millis(200));
        let mut last = self.read();
        let mut next = Instant::now() + TICK;
        for tick in 1_u64.. {
            let wait = next.saturating_duration_since(Instant::now());
            if !matches!(stopping.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
                break;
            }
            let reading = self.read();
            self.take(reading.since(&last));
            last = reading;
            if tick % TICKS_PER_LOOK == 0 {
                self.look(Duration::ZERO);
            }
            // After a standstill one long interval is better than several short ones, in which a rate means nothing.
            next = (next + TICK).max(Instant::now() + TICK / 2);
        }
        let begun = self.host.seconds.lock().end_minute();
        if let Some(minute) = begun {
            self.note(Note::Minute(Box::new(minute)));
        }
    }

    fn read(&mut self) -> HostTotals {
        let databases = self.host.databases.lock();
        let databases = databases.iter().map(|(kind, read)| (*kind, read()));
        let databases = databases.collect();
        HostTotals {
            databases,
            ..self.probe.read()
        }
    }

    fn take(&self, sample: HostSample) {
        self.host.total.lock().add(&sample);
        let ended = self.host.seconds.lock().push(sample);
        for minute in ended {
            self.note(Note::Minute(Box::new(minute)));
        }
    }

    /// Reads the facts, and tells the log and the store what has changed.
    fn look(&mut self, wait: Duration) {
        let now = wall_clock();
        let mut machine = machine::look(Path::new(ROOT), self.places.now(wait));
        for file in self.probe.unreadable() {
            machine.facts.insert(format!("file {file}"), None);
        }
        self.probe.follow(&machine);
        if let Some(spent) = self.probe.processor_ns() {
            self.host.processor_ns.store(spent, Ordering::Relaxed);
        }
        let changed = facts::changes(&self.known, &machine.facts, now);
        for change in &changed {
            let (before, after) = (
                facts::shown(change.before.as_deref()),
                facts::shown(change.after.as_deref()),
            );
            tracing::info!(
                fact = change.name,
                before,
                after,
                "a fact of the host has changed"
            );
        }
        let count = changed.len() as u64;
        self.host.fact_changes.fetch_add(count, Ordering::Relaxed);
        if self.known != machine.facts {
            self.note(Note::Facts(changed.clone(), machine.facts.clone()));
            self.known = machine.facts.clone();
        }
        let mut state = self.host.state.write();
        state.machine = machine;
        state.changes.extend(changed);
        let surplus = state.changes.len().saturating_sub(facts::CHANGES_MAX);
        state.changes.drain(..surplus);
    }

    /// Hands over to the writer; what it has no room for is lost, and is a gap.
    fn note(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            self.host.minutes_lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread that writes.
struct Writer {
    host: Arc<Host>,
    days_max: usize,
    /// Held until the end.
    _last: Sender<()>,
}

impl Writer {
    fn run(self, noted: &Receiver<Note>) {
        let mut pruned_on = None;
        let mut is_told = false;
        while let Ok(note) = noted.recv() {
            let written = match &note {
                Note::Minute(minute) => self.host.store.append(minute),
                Note::Facts(changed, facts) => self.host.store.note(changed, facts),
            };
            let today = wall_clock().0.div_euclid(86_400_000);
            let pruned = match pruned_on.replace(today) {
                Some(day) if day == today => Ok(()),
                _ => self.prune(),
            };
            let failed = written.and(pruned).err();
            if let Some(why) = &failed {
                self.host.minutes_lost.fetch_add(1, Ordering::Relaxed);
                if !is_told {
                    tracing::warn!(%why, "samples of this host cannot be written; those of the last hours stay in memory");
                }
            }
            is_told = failed.is_some();
        }
    }

    fn prune(&self) -> io::Result<()> {
        self.host.store.prune(self.days_max)?;
        self.host.store.prune_changes()
    }
}

impl Host {
    /// From now on a database is sampled as well.
    pub fn watch_database(
        &self,
        kind: DatabaseKind,
        read: impl Fn() -> DatabaseTotals + Send + 'static,
    ) {
        self.databases.lock().insert(kind, Box::new(read));
    }

    /// Gives all that was sampled in a window to `take`, in order of time: seconds, and minutes of what is older than these.
    pub fn each_sample(
        &self,
        TimeWindow { from, to }: TimeWindow,
        mut take: impl FnMut(&HostSample),
    ) -> io::Result<()> {
        let since = self.seconds.lock().since().unwrap_or(to);
        if from < since {
            self.store
                .minutes(from, since.min(to), |minute| take(&minute))?;
        }
        for second in self.seconds.lock().between(from.max(since), to) {
            take(&second);
        }
        Ok(())
    }

    /// The host as it stands, and how its facts changed.
    pub fn machine(&self) -> (Machine, Vec<FactChange>) {
        let state = self.state.read();
        (state.machine.clone(), state.changes.clone())
    }

    /// What is known of a window. Reads files when it begins before the seconds in memory.
    pub fn report(
        &self,
        from: Timestamp,
        to: Timestamp,
        asked: Option<u32>,
    ) -> io::Result<HostReport> {
        let resolution_seconds = resolution(from, to, asked);
        let mut points = Points::of(from, to, resolution_seconds);
        self.each_sample(TimeWindow { from, to }, |sample| points.push(sample))?;
        let (machine, changes) = self.machine();
        Ok(told(
            &self.name,
            points,
            resolution_seconds,
            machine,
            changes,
        ))
    }

    /// Everything since the start as one interval, for counters, and the host as it stands.
    pub fn totals(&self) -> (HostSample, Machine) {
        let total = self.total.lock().clone();
        (total, self.state.read().machine.clone())
    }

    /// Minutes that could not be written.
    pub fn minutes_lost(&self) -> u64 {
        self.minutes_lost.load(Ordering::Relaxed)
    }

    /// Facts that have changed since the start.
    pub fn fact_changes(&self) -> u64 {
        self.fact_changes.load(Ordering::Relaxed)
    }

    /// Processor time of the thread that samples, as of the last look at the facts.
    pub fn sampler_time(&self) -> Duration {
        Duration::from_nanos(self.processor_ns.load(Ordering::Relaxed))
    }
}

/// The same from what is in a directory, beside a running sampler or without one. Disks and interfaces are told as they
/// stand now, facts as the sampler saw them last: limits are those of its process.
pub fn stored_report(
    config: &SamplerConfig,
    TimeWindow { from, to }: TimeWindow,
    asked: Option<u32>,
) -> io::Result<HostReport> {
    let resolution_seconds = resolution(from, to, asked);
    let mut points = Points::of(from, to, resolution_seconds);
    let store = Store::at(&config.directory);
    store.minutes(from, to, |minute| points.push(&minute))?;
    let changes = store.changes()?;
    let mut machine = machine::look(Path::new(ROOT), &config.declared);
    machine.facts = store.facts();
    let limit = machine.facts.get(machine::OPEN_FILES).cloned().flatten();
    machine.open_files_max = limit.and_then(|limit| limit.parse().ok());
    Ok(told(
        &config.host,
        points,
        resolution_seconds,
        machine,
        changes,
    ))
}

fn told(
    host: &str,
    points: Points,
    resolution_seconds: u32,
    machine: Machine,
    changes: Vec<FactChange>,
) -> HostReport {
    let window = points.end();
    let (from, to) = (window.from, window.to);
    let within = |change: &FactChange| change.at >= from && change.at < to;
    HostReport {
        host: host.to_owned(),
        from,
        to,
        resolution_seconds,
        processors: machine.processors,
        interfaces: machine.interfaces,
        disks: machine.disks,
        open_files_max: machine.open_files_max,
        facts: machine.facts,
        changes: changes.into_iter().filter(within).collect(),
        gaps: window.gaps,
        total: window.total,
        points: window.points,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(directory: &Path) -> SamplerConfig {
        SamplerConfig {
            host: "here".into(),
            directory: directory.to_owned(),
            days_max: 3,
            declared: HostDeclaration::default(),
        }
    }

    fn report(host: &Host) -> HostReport {
        let now = wall_clock();
        let from = now - Duration::from_secs(600);
        host.report(from, now, Some(1)).expect("readable")
    }

    #[test]
    fn seconds_are_sampled_and_a_restart_keeps_them_as_minutes_with_a_gap() {
        let directory = tempfile::tempdir().expect("a directory");
        let sampler = Sampler::start(config(directory.path())).expect("started");
        let host = sampler.host();
        let begun = Instant::now();
        while report(&host)
            .total
            .is_none_or(|total| total.covered_us < 2_000_000)
        {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "nothing is sampled"
            );
            thread::sleep(Duration::from_millis(100));
        }
        let before = report(&host);
        assert!(before.facts.contains_key("kernel") && before.processors.is_some());
        drop(sampler);
        let stopped = wall_clock();
        while wall_clock().since(stopped) < Duration::from_secs(3) {
            thread::sleep(Duration::from_millis(100));
        }
        let again = Sampler::start(config(directory.path())).expect("started");
        let host = again.host();
        let begun = Instant::now();
        while report(&host).points.len() < 3 {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{:?}",
                report(&host)
            );
            thread::sleep(Duration::from_millis(100));
        }
        let after = report(&host);
        let covered = after.total.as_ref().map(|total| total.covered_us);
        assert!(
            covered > before.total.map(|total| total.covered_us),
            "{covered:?}"
        );
        let between = after.gaps.iter().any(|gap| gap.to.0 - gap.from.0 < 60_000);
        assert!(between, "{:?}", after.gaps);
        let changed = after.changes.iter().any(|change| change.name == "kernel");
        assert!(!changed, "{:?}", after.changes);
    }

    #[test]
    fn minutes_are_told_without_a_sampler() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("a store");
        for at in [60_000, 120_000] {
            let minute = HostSample {
                from: Timestamp(at),
                covered_us: 60_000_000,
                ..HostSample::default()
            };
            store.append(&minute).expect("written");
        }
        let limit = (machine::OPEN_FILES.to_owned(), Some("4711".to_owned()));
        store.note(&[], &Facts::from([limit])).expect("written");
        let window = TimeWindow {
            from: Timestamp(0),
            to: Timestamp(180_000),
        };
        let told = stored_report(&config(directory.path()), window, None).expect("readable");
        assert_eq!(told.total.map(|total| total.covered_us), Some(120_000_000));
        assert_eq!((told.gaps.len(), told.points.len()), (1, 2));
        assert_eq!(told.open_files_max, Some(4711), "of who sampled");
    }

    #[test]
    fn a_fact_that_changed_while_nobody_looked_is_told_after_the_start() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("a store");
        let old = Facts::from([("kernel".to_owned(), Some("2.6.18".to_owned()))]);
        store.note(&[], &old).expect("written");
        let sampler = Sampler::start(config(directory.path())).expect("started");
        let host = sampler.host();
        let begun = Instant::now();
        while report(&host).changes.is_empty() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "no change was seen"
            );
            thread::sleep(Duration::from_millis(50));
        }
        let changes = report(&host).changes;
        let kernel = changes.iter().find(|change| change.name == "kernel");
        assert_eq!(
            kernel.and_then(|change| change.before.as_deref()),
            Some("2.6.18")
        );
        drop(sampler);
        let kept = store.changes().expect("readable");
        assert!(
            kept.iter().any(|change| change.name == "kernel"),
            "{kept:?}"
        );
    }
}
