//! Opens the libraries that are configured, with what the engine has recorded of them.

use super::TapeLibraries;
use super::care::Care;
use super::disk_side::DiskSide;
use super::recorded::Recorded;
use crate::config::{LibrariesConfig, LibraryConfig, NearlineConfig};
use crate::nearline::NearlineContext;
use penstock_tape::drive::DriveModel;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::record::{Tape, TapeState};
use penstock_tape::request::{DriveName, LibraryName};
use penstock_tape::request_engine::{Input, RequestEngine, TapePolicy};
use penstock_tape_library::{DriveMessage, EmulatedLibrary, LibraryDefinition, LibraryTime};
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
    configured: Vec<Input>,
    kinds: BTreeMap<String, DriveModel>,
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
        let wall_ns = context.clock.recorded().0.saturating_mul(1_000_000);
        // The time of a library that runs faster is ahead of that on the wall, and never goes back.
        let origin_ns = newest_ns.max(wall_ns);
        let factor = config.time_factor.max(1);
        let time = LibraryTime::Scaled { factor, origin_ns };
        let disk = DiskSide::new(context);
        let (sender, news) = mpsc::channel(NEWS_MAX);
        let mut opened = Opened::default();
        for one in &config.libraries {
            opened.add(one, time, &disk, sender.clone())?;
        }
        let policy = patient(&config.policy, factor);
        let engine = RequestEngine::restore(policy, opened.kinds, &records);
        let archives = engine.live().archives.iter();
        let sizes = archives.map(|(file, entry)| (*file, entry.size_bytes));
        Ok(TapeLibraries {
            libraries: opened.libraries,
            library_of: opened.library_of,
            configured: opened.configured,
            sizes: sizes.collect(),
            engine,
            activities: BTreeMap::new(),
            disk,
            clock: Arc::clone(&context.clock),
            namespace: Arc::clone(&context.namespace),
            news,
            threads: opened.threads,
            reads: BTreeMap::new(),
            incidents: BTreeMap::new(),
            read_mounts: 0,
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

impl Opened {
    fn add(
        &mut self,
        config: &LibraryConfig,
        time: LibraryTime,
        disk: &DiskSide,
        news: mpsc::Sender<DriveMessage>,
    ) -> io::Result<()> {
        let definition = config.definition.clone();
        let opened = EmulatedLibrary::open(&config.directory, definition, time, disk.clone());
        let opened = Arc::new(opened.map_err(|why| {
            let (name, directory) = (&config.definition.name.0, config.directory.display());
            io::Error::other(format!("tape library {name}: {directory}: {why}"))
        })?);
        self.define(&config.definition);
        self.threads.push(listen(Arc::clone(&opened), news)?);
        self.libraries
            .insert(config.definition.name.clone(), opened);
        Ok(())
    }

    /// What the engine is told at the start; it passes over what it knows.
    fn define(&mut self, definition: &LibraryDefinition) {
        let library = &definition.name;
        let kinds = definition.kinds.iter();
        self.kinds
            .extend(kinds.map(|(name, kind)| (name.clone(), kind.model)));
        for (drive, kind) in &definition.drives {
            self.library_of.insert(drive.clone(), library.clone());
            self.configured.push(Input::DriveAdded {
                drive: drive.clone(),
                library: library.clone(),
                kind: kind.clone(),
            });
        }
        for (tape, facts) in &definition.tapes {
            let facts = Tape {
                library: library.clone(),
                kind: facts.kind.clone(),
                family: None,
                capacity_bytes: facts.capacity_bytes,
                written_bytes: 0,
                state: TapeState::Active,
                wrap_ends_bytes: None,
            };
            let tape = tape.clone();
            self.configured.push(Input::TapeAdded { tape, facts });
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
