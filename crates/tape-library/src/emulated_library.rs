//! The library as whoever drives it sees it.

use crate::cartridge_file;
use crate::definition::{DefinitionError, LibraryDefinition, LibraryTime};
use crate::drive_slots::DriveSlots;
use crate::drive_thread::{Command, DriveThread, Shared};
use crate::exchange::FileExchange;
use crate::fault::{Faults, InjectedFault, LibraryFault};
use crate::identity::{IdentityError, KnownLibrary, LibraryIdentity};
use crate::report_queue::{DriveMessage, ReportQueue};
use parking_lot::Mutex;
use penstock_durable_file::make_directory;
use penstock_tape::library::Robot;
use penstock_tape::request::{DriveName, LibraryId, TapeErrorScope, TapeName};
use penstock_tape::request_engine::{DriveReport, Effect};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

/// As the umask leaves it.
const DIRECTORY_MODE: u32 = 0o777;

/// Why a library cannot do what it is told.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error("{0}")]
    Definition(#[from] DefinitionError),
    #[error("{0}")]
    Directory(#[from] io::Error),
    #[error("{0}")]
    Identity(#[from] IdentityError),
    #[error("there is no drive '{}' in this library", .drive.0)]
    UnknownDrive { drive: DriveName },
    #[error("there is no tape '{}' in this library", .tape.0)]
    UnknownTape { tape: TapeName },
    #[error("tape '{}' is in drive '{}'", .tape.0, .drive.0)]
    InDrive { tape: TapeName, drive: DriveName },
}

/// A drive's thread.
struct DriveHandle {
    commands: Sender<(u64, Command)>,
    thread: JoinHandle<()>,
}

/// A library that keeps real bytes. It is made of threads, one for each drive, which end with it.
pub struct EmulatedLibrary {
    shared: Arc<Shared>,
    drives: BTreeMap<DriveName, DriveHandle>,
}

impl EmulatedLibrary {
    /// Opens a library in a directory, and makes the cartridges that were not made yet. One that was made and is gone is lost: a
    /// mount of it is an error of the tape. Cartridges that were in drives still are, as far as that is known.
    pub fn open(
        directory: &Path,
        (definition, known): (LibraryDefinition, &KnownLibrary),
        time: LibraryTime,
        exchange: impl FileExchange,
    ) -> Result<EmulatedLibrary, LibraryError> {
        definition.check()?;
        let identity = LibraryIdentity::find(directory, &definition.name, known)?;
        make_directory(directory, DIRECTORY_MODE)?;
        std::fs::create_dir_all(directory.join("cartridges"))?;
        let robot = Robot::new(definition.model.clone());
        let mut shared = Shared {
            directory: directory.to_owned(),
            identity,
            queue: ReportQueue::new(time),
            slots: DriveSlots::open(directory)?,
            robot: Mutex::new(robot),
            faults: Mutex::new(Faults::default()),
            initialised: Mutex::new(BTreeSet::new()),
            exchange: Box::new(exchange),
            definition,
        };
        for (tape, facts) in &shared.definition.tapes {
            let is_new = !shared.identity.has_made(tape);
            if is_new {
                cartridge_file::make(&shared.cartridge_path(tape), tape)?;
            }
            // One that is there has been in a drive before.
            let needs_first_load = shared.definition.kinds[&facts.kind].first_load.is_some();
            if !is_new || !needs_first_load {
                shared.initialised.lock().insert(tape.clone());
            }
        }
        shared.slots.keep_only(|drive, tape| {
            let in_drives = known.in_drives.as_ref();
            shared.definition.drives.contains_key(drive)
                && in_drives.is_none_or(|known| known.get(drive) == Some(tape))
        });
        let tapes = shared.definition.tapes.keys().cloned();
        shared.identity.keep(directory, tapes)?;
        let shared = Arc::new(shared);
        let mut drives = BTreeMap::new();
        for (name, kind) in &shared.definition.drives {
            let kind = shared.definition.kinds[kind].clone();
            let drive = DriveThread::new(name.clone(), kind, Arc::clone(&shared));
            let (commands, orders) = channel();
            let thread = thread::Builder::new().name(format!("tape-{}", name.0));
            let thread = thread.spawn(move || drive.run(&orders))?;
            drives.insert(name.clone(), DriveHandle { commands, thread });
        }
        Ok(EmulatedLibrary { shared, drives })
    }

    /// Which one it is, whatever its name and directory.
    pub fn id(&self) -> &LibraryId {
        &self.shared.identity.id
    }

    /// The cartridge that is in a drive.
    pub fn tape_in(&self, drive: &DriveName) -> Option<TapeName> {
        self.shared.slots.tape_in(drive)
    }

    /// What it is made of.
    pub fn definition(&self) -> &LibraryDefinition {
        &self.shared.definition
    }

    /// The time of this library.
    pub fn now_ns(&self) -> i64 {
        self.shared.queue.now_ns()
    }

    /// Begins what an effect of the request engine orders, and returns at once. Effects that are for no drive are passed over.
    /// Long because each effect has its arm.
    pub fn perform(&self, effect: &Effect) -> Result<(), LibraryError> {
        match effect {
            Effect::Mount { drive, tape, .. } => self.order(drive, Command::Mount(tape.clone())),
            Effect::Read {
                drive,
                file,
                begin_bytes,
                size_bytes,
            } => {
                let (file, begin_bytes, size_bytes) = (*file, *begin_bytes, *size_bytes);
                let command = Command::Read {
                    file,
                    begin_bytes,
                    size_bytes,
                };
                self.order(drive, command)
            }
            Effect::Verify {
                drive,
                file,
                begin_bytes,
                size_bytes,
            } => {
                let (file, begin_bytes, size_bytes) = (*file, *begin_bytes, *size_bytes);
                let command = Command::Verify {
                    file,
                    begin_bytes,
                    size_bytes,
                };
                self.order(drive, command)
            }
            Effect::AskOrder {
                drive,
                after_bytes,
                files,
            } => {
                let command = Command::Order {
                    after_bytes: *after_bytes,
                    files: files.clone(),
                };
                self.order(drive, command)
            }
            Effect::Relabel { tape } => self.relabel(tape),
            Effect::Write {
                drive,
                file,
                begin_bytes,
                size_bytes,
            } => {
                let (file, begin_bytes, size_bytes) = (*file, *begin_bytes, *size_bytes);
                let command = Command::Write {
                    file,
                    begin_bytes,
                    size_bytes,
                };
                self.order(drive, command)
            }
            Effect::WriteAggregate {
                drive,
                begin_bytes,
                members,
            } => {
                let command = Command::WriteAggregate {
                    begin_bytes: *begin_bytes,
                    members: members.clone(),
                };
                self.order(drive, command)
            }
            Effect::Sync { drive } => self.order(drive, Command::Sync),
            Effect::Dismount { drive, .. } => self.order(drive, Command::Dismount),
            Effect::Abort { drive } => self.stop(drive),
            Effect::Persist(_)
            | Effect::Tell { .. }
            | Effect::CopyMade { .. }
            | Effect::HintFailed { .. }
            | Effect::RelabelRefused { .. }
            | Effect::Open(_)
            | Effect::Close(_)
            | Effect::WakeAt(_) => Ok(()),
        }
    }

    fn order(&self, drive: &DriveName, command: Command) -> Result<(), LibraryError> {
        let handle = self.drives.get(drive);
        let handle = handle.ok_or_else(|| LibraryError::UnknownDrive {
            drive: drive.clone(),
        })?;
        let generation = self.shared.queue.generation(drive);
        self.shared.queue.begin_work();
        if handle.commands.send((generation, command)).is_err() {
            self.shared.queue.end_work();
        }
        Ok(())
    }

    /// Ends whatever a drive does. What it has not synced is lost.
    fn stop(&self, drive: &DriveName) -> Result<(), LibraryError> {
        self.shared.queue.stop(drive);
        self.order(drive, Command::Fail)
    }

    /// Waits for the next report of a drive. Returns `None` when the time `until_ns` has come, or when the library is closed; in
    /// virtual time also when no report will come at all. Reports of one drive come in their order.
    pub fn next_report(&self, until_ns: i64) -> Option<DriveMessage> {
        self.shared.queue.next(until_ns)
    }

    /// A waiting `next_report` returns, and so does each later one: before the library is dropped.
    pub fn close(&self) {
        self.shared.queue.close();
    }

    /// A drive that is down is mended, and its cartridge is put back into its slot. Tell the engine `DriveUp` after it.
    pub fn mend_drive(&self, drive: &DriveName) -> Result<(), LibraryError> {
        self.shared.queue.stop(drive);
        self.shared
            .faults
            .lock()
            .held
            .retain(|(held, _)| held != drive);
        let (done, is_done) = channel();
        self.order(drive, Command::Empty(done))?;
        // An error says that the drive's thread has ended.
        let _ = is_done.recv();
        Ok(())
    }

    /// All data of a tape is given up. It must lie in its slot, and the directory must still be this library.
    pub fn relabel(&self, tape: &TapeName) -> Result<(), LibraryError> {
        if !self.shared.definition.tapes.contains_key(tape) {
            return Err(LibraryError::UnknownTape { tape: tape.clone() });
        }
        if let Some(drive) = self.shared.slots.drive_of(tape) {
            let tape = tape.clone();
            return Err(LibraryError::InDrive { tape, drive });
        }
        self.shared.identity.check(&self.shared.directory)?;
        Ok(cartridge_file::relabel(
            &self.shared.cartridge_path(tape),
            tape,
        )?)
    }

    /// Lets something go wrong.
    pub fn inject(&self, fault: InjectedFault) -> Result<(), LibraryError> {
        let mut faults = self.shared.faults.lock();
        match fault {
            InjectedFault::Mount { drive, fault } => {
                faults.mounts.insert(drive, fault);
            }
            InjectedFault::DriveFailure { drive } => {
                drop(faults);
                self.stop(&drive)?;
                let generation = self.shared.queue.generation(&drive);
                let failed = DriveReport::Failed(TapeErrorScope::Drive);
                let now_ns = self.now_ns();
                self.shared.queue.add(now_ns, (&drive, generation), failed);
            }
            InjectedFault::MediaError {
                tape,
                begin_bytes,
                end_bytes,
            } => faults.media.push((tape, begin_bytes, end_bytes)),
            InjectedFault::RobotStuck => faults.library = Some(LibraryFault::RobotStuck),
            InjectedFault::RobotAway => faults.library = Some(LibraryFault::RobotAway),
            InjectedFault::LibraryFull => faults.library = Some(LibraryFault::Full),
        }
        Ok(())
    }

    /// The robot and the library work again; dismounts that were waiting for it go on.
    pub fn mend_library(&self) -> Result<(), LibraryError> {
        let held = {
            let mut faults = self.shared.faults.lock();
            faults.library = None;
            std::mem::take(&mut faults.held)
        };
        for (drive, generation) in held {
            let carried_ns = self.shared.carried_ns(self.now_ns());
            self.shared.put_into_slot(&drive);
            let drive = (&drive, generation);
            self.shared
                .queue
                .add(carried_ns, drive, DriveReport::Dismounted);
        }
        Ok(())
    }
}

impl Drop for EmulatedLibrary {
    /// Drives stop where they are, as in a power cut: what no sync covers is lost.
    fn drop(&mut self) {
        self.shared.queue.close();
        for (name, handle) in std::mem::take(&mut self.drives) {
            self.shared.queue.stop(&name);
            drop(handle.commands);
            // A thread that has panicked has said so itself.
            let _ = handle.thread.join();
        }
    }
}
