//! Opens the libraries that are configured, with what the engine has recorded of them.

use super::TapeLibraries;
use super::care::Care;
use super::catalogue::{WrittenTape, written_tapes};
use super::copy_uri::COPY_SCHEME;
use super::disk_side::DiskSide;
use super::library_clock::LibraryClock;
use super::recorded::Recorded;
use crate::config::{LibrariesConfig, LibraryConfig, NearlineConfig};
use crate::nearline::NearlineContext;
use penstock_persistence::namespace::Namespace;
use penstock_tape::live_set::LiveSet;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::record::Tape;
use penstock_tape::request::{DriveName, LibraryName, TapeName};
use penstock_tape::request_engine::{FoundDrive, Inventory, RequestEngine, TapePolicy};
use penstock_tape_library::{DriveMessage, EmulatedLibrary, KnownLibrary, LibraryTime};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Reports of drives that wait to be taken; drives go on meanwhile.
const NEWS_MAX: usize = 1_000;
/// A drive is given so much real time to do something, however fast the time of its library runs: what is copied is real.
const WATCH_MIN_NS: i64 = 120 * SECOND_NS;

/// Libraries as they are found, with what the engine is told of them.
#[derive(Default)]
struct Opened {
    libraries: BTreeMap<LibraryName, Arc<EmulatedLibrary>>,
    library_of: BTreeMap<DriveName, LibraryName>,
    inventory: Inventory,
    /// What the namespace says of tapes of which nothing is recorded.
    written: BTreeMap<TapeName, WrittenTape>,
    threads: Vec<JoinHandle<()>>,
}

impl TapeLibraries {
    /// Opens the libraries. Errors: a record is none of them, or a directory cannot be used.
    pub(in crate::nearline) fn restore(
        config: &LibrariesConfig,
        nearline: &NearlineConfig,
        context: &NearlineContext,
        journal: &[String],
    ) -> io::Result<TapeLibraries> {
        let Recorded { records, newest_ns } = Recorded::parse(journal)?;
        let wall = context.clock.recorded();
        // By a clock that is far ahead, what is out of use for an hour would be lost for months, and given up.
        let believed_ns = context.clock.now().0.saturating_mul(1_000_000);
        // The time of a library that runs faster is ahead of that on the wall, and never goes back.
        let origin_ns = newest_ns.max(believed_ns);
        let factor = config.time_factor.max(1);
        let time = LibraryTime::Scaled { factor, origin_ns };
        let disk = DiskSide::new(context);
        let (sender, news) = mpsc::channel(NEWS_MAX);
        let policy = patient(&config.policy, factor);
        let kinds = config.libraries.iter().flat_map(|library| {
            let kinds = library.definition.kinds.iter();
            kinds.map(|(name, kind)| (name.clone(), kind.model))
        });
        let engine = RequestEngine::restore(policy, kinds.collect(), &records);
        let mut opened = Opened::default();
        if records.is_empty() {
            let written = written_tapes(&context.namespace, &nearline.classes);
            opened.written = written.map_err(io::Error::other)?;
        }
        for one in &config.libraries {
            let known = known(engine.live(), &context.namespace, &one.definition.name)?;
            opened.add((one, &known), time, &disk, sender.clone())?;
        }
        Ok(TapeLibraries {
            libraries: opened.libraries,
            library_of: opened.library_of,
            inventory: opened.inventory,
            engine,
            activities: BTreeMap::new(),
            disk,
            clock: Arc::clone(&context.clock),
            times: LibraryClock::new(origin_ns, wall, factor),
            namespace: Arc::clone(&context.namespace),
            news,
            threads: opened.threads,
            reads: BTreeMap::new(),
            incidents: BTreeMap::new(),
            read_mounts: 0,
            write_mounts: 0,
            over_bytes: BTreeMap::new(),
            care: Care::new(
                config.care.clone(),
                nearline.classes.clone(),
                nearline.removed_kept,
            ),
            wake_ns: None,
            factor,
            newest_ns: origin_ns,
        })
    }
}

/// Drives have time enough to copy what is real.
fn patient(policy: &TapePolicy, factor: u32) -> TapePolicy {
    let mut policy = policy.clone();
    let watch_ns = WATCH_MIN_NS.saturating_mul(i64::from(factor));
    let limits = &mut policy.watchdog;
    limits.mount_ns = limits.mount_ns.max(watch_ns);
    limits.no_bytes_ns = limits.no_bytes_ns.max(watch_ns);
    policy
}

/// What the engine and the namespace know of a library.
fn known(live: &LiveSet, namespace: &Namespace, library: &LibraryName) -> io::Result<KnownLibrary> {
    let copies = format!("{COPY_SCHEME}{}/", library.0);
    let copy = namespace.tape_copy_with(&copies);
    let tapes = live.tapes.iter();
    let written = tapes.filter(|(_, tape)| tape.library == *library && tape.written_bytes > 0);
    let drives = live.drives.0.iter();
    let in_drives =
        drives.filter_map(|(name, drive)| Some((name.clone(), drive.state.tape()?.clone())));
    Ok(KnownLibrary {
        owner: namespace.uuid().to_string(),
        id: live.library_ids.get(library).cloned(),
        has_files: copy.map_err(io::Error::other)?.is_some(),
        written: written.map(|(name, _)| name.clone()).collect(),
        in_drives: Some(in_drives.collect()),
    })
}

impl Opened {
    fn add(
        &mut self,
        (config, known): (&LibraryConfig, &KnownLibrary),
        time: LibraryTime,
        disk: &DiskSide,
        news: mpsc::Sender<DriveMessage>,
    ) -> io::Result<()> {
        let definition = (config.definition.clone(), known);
        let opened = EmulatedLibrary::open(&config.directory, definition, time, disk.clone());
        let opened = Arc::new(opened.map_err(|why| {
            let (name, directory) = (&config.definition.name.0, config.directory.display());
            io::Error::other(format!("tape library {name}: {directory}: {why}"))
        })?);
        self.find(&opened);
        self.threads.push(listen(Arc::clone(&opened), news)?);
        self.libraries
            .insert(config.definition.name.clone(), opened);
        Ok(())
    }

    /// What the engine is told at the start.
    fn find(&mut self, opened: &EmulatedLibrary) {
        let definition = opened.definition();
        let library = &definition.name;
        let ids = &mut self.inventory.libraries;
        ids.insert(library.clone(), opened.id().clone());
        for (drive, kind) in &definition.drives {
            self.library_of.insert(drive.clone(), library.clone());
            let found = FoundDrive {
                library: library.clone(),
                kind: kind.clone(),
                tape: opened.tape_in(drive),
            };
            self.inventory.drives.insert(drive.clone(), found);
        }
        for (tape, facts) in &definition.tapes {
            let mut facts = Tape::new(library.clone(), facts.kind.clone(), facts.capacity_bytes);
            if let Some(written) = self.written.get(tape) {
                facts.family = Some(written.family.clone());
                facts.written_bytes = written.end_bytes;
                facts.synced_bytes = written.end_bytes;
            }
            self.inventory.tapes.insert(tape.clone(), facts);
        }
    }
}

/// Passes on what drives report, until the library is closed.
fn listen(
    library: Arc<EmulatedLibrary>,
    news: mpsc::Sender<DriveMessage>,
) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("tape-reports".to_owned());
    thread.spawn(move || {
        while let Some(message) = library.next_report(i64::MAX) {
            if news.blocking_send(message).is_err() {
                return;
            }
        }
    })
}
