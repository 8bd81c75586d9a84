//! One drive, with a thread of its own: it moves bytes at once, and reports when the time model says that they have been moved.

use crate::aggregate_source::AggregateSource;
use crate::cartridge_file::{CartridgeFile, ReadError, WriteError};
use crate::definition::LibraryDefinition;
use crate::drive_slots::DriveSlots;
use crate::exchange::FileExchange;
use crate::fault::{Faults, LibraryFault};
use crate::identity;
use crate::report_queue::ReportQueue;
use parking_lot::Mutex;
use penstock_tape::aggregate::AggregateMember;
use penstock_tape::cartridge::Cartridge;
use penstock_tape::chance::Chance;
use penstock_tape::drive_fault::MountFault;
use penstock_tape::drive_kind::DriveKind;
use penstock_tape::library::Robot;
use penstock_tape::loaded_drive::{FileMark, HostFeed, LoadedDrive};
use penstock_tape::locate::SECOND_NS;
use penstock_tape::request::{DriveName, FileId, FilePlace, TapeErrorScope, TapeName};
use penstock_tape::request_engine::DriveReport;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

/// A drive that works for longer than this reports in between.
const REPORT_EVERY_NS: i64 = 60 * SECOND_NS;
/// After so long it is known that the robot does not answer, or is stuck.
const ROBOT_AWAY_NS: i64 = 10 * SECOND_NS;
const ROBOT_STUCK_NS: i64 = 300 * SECOND_NS;
/// What is seen at once.
const AT_ONCE_NS: i64 = SECOND_NS;

/// What a drive is told.
#[derive(Debug)]
pub(crate) enum Command {
    Mount(TapeName),
    /// Read a file and compare it; it goes nowhere.
    Verify {
        file: FileId,
        begin_bytes: u64,
        size_bytes: u64,
    },
    Read {
        file: FileId,
        begin_bytes: u64,
        size_bytes: u64,
    },
    Order {
        after_bytes: u64,
        files: Vec<FilePlace>,
    },
    Write {
        file: FileId,
        begin_bytes: u64,
        size_bytes: u64,
    },
    WriteAggregate {
        begin_bytes: u64,
        members: Vec<AggregateMember>,
    },
    Sync,
    Dismount,
    /// The drive is down: what it has not synced is lost.
    Fail,
    /// Its cartridge is taken out by hand; whoever asked is told when that is done.
    Empty(Sender<()>),
}

/// What all drives of a library have in common.
pub(crate) struct Shared {
    pub directory: PathBuf,
    pub definition: LibraryDefinition,
    pub queue: ReportQueue,
    pub slots: DriveSlots,
    pub robot: Mutex<Robot>,
    pub faults: Mutex<Faults>,
    /// Cartridges that have been in a drive before.
    pub initialised: Mutex<BTreeSet<TapeName>>,
    pub exchange: Box<dyn FileExchange>,
}

impl Shared {
    pub(crate) fn cartridge_path(&self, tape: &TapeName) -> PathBuf {
        self.directory
            .join("cartridges")
            .join(format!("{}.tape", tape.0))
    }

    /// When the robot has carried a cartridge that it is told to take now.
    pub(crate) fn carried_ns(&self, from_ns: i64) -> i64 {
        self.robot.lock().carry(from_ns).end_ns
    }

    /// What has failed when a cartridge cannot be used: with the directory of the library all of them are away, as when its disk is
    /// no longer mounted.
    fn blamed(&self, otherwise: TapeErrorScope) -> TapeErrorScope {
        match identity::is_in(&self.directory) {
            true => otherwise,
            false => TapeErrorScope::Library,
        }
    }
}

/// A cartridge in the drive.
struct Loaded {
    tape: TapeName,
    /// `None`: its label could not be read.
    medium: Option<CartridgeFile>,
    drive: LoadedDrive,
    /// The process ended after a write that no sync covers: that is to be known before anything is written or synced.
    has_lost_tail: bool,
}

pub(crate) struct DriveThread {
    name: DriveName,
    kind: DriveKind,
    shared: Arc<Shared>,
    loaded: Option<Loaded>,
    generation: u64,
    /// Since the library was opened: each has a chance of its own.
    mounts: u64,
}

impl DriveThread {
    pub(crate) fn new(name: DriveName, kind: DriveKind, shared: Arc<Shared>) -> DriveThread {
        DriveThread {
            name,
            kind,
            shared,
            loaded: None,
            generation: 0,
            mounts: 0,
        }
    }

    /// Takes commands until nobody gives any.
    pub(crate) fn run(mut self, commands: &Receiver<(u64, Command)>) {
        self.reload();
        while let Ok((generation, command)) = commands.recv() {
            self.generation = generation;
            // An order from before the drive was told to stop is over.
            let is_current = self.shared.queue.generation(&self.name) == generation;
            if is_current || matches!(command, Command::Fail | Command::Empty(_)) {
                self.perform(command);
            }
            self.shared.queue.end_work();
        }
    }

    fn perform(&mut self, command: Command) {
        match command {
            Command::Mount(tape) => self.mount(&tape),
            Command::Read {
                file,
                begin_bytes,
                size_bytes,
            } => self.read(file, (begin_bytes, size_bytes)),
            Command::Verify {
                file,
                begin_bytes,
                size_bytes,
            } => {
                let compare = |medium: &CartridgeFile, goes_on: &mut dyn FnMut(u64) -> bool| {
                    let read = medium.read((begin_bytes, size_bytes), &mut io::sink(), goes_on);
                    read.map(drop)
                };
                let verified = DriveReport::FileVerified(file);
                self.read_by(file, (begin_bytes, size_bytes), verified, compare);
            }
            Command::Order { after_bytes, files } => self.order(after_bytes, &files),
            Command::Write {
                file,
                begin_bytes,
                size_bytes,
            } => {
                let address = (file, begin_bytes, size_bytes);
                let shared = Arc::clone(&self.shared);
                let source = shared.exchange.source(file);
                let written = DriveReport::FileWritten(file);
                let refused = DriveReport::NotTaken(file);
                self.write(address, source, written, |_| refused);
            }
            Command::WriteAggregate {
                begin_bytes,
                members,
            } => self.write_aggregate(begin_bytes, &members),
            Command::Sync => self.sync(),
            Command::Dismount => self.dismount(),
            Command::Fail => {
                let loaded = self.loaded.as_mut();
                let medium = loaded.and_then(|loaded| loaded.medium.as_mut());
                if let Some(medium) = medium {
                    // The tail is dropped again when the cartridge is opened.
                    let _ = medium.drop_tail();
                }
            }
            Command::Empty(done) => {
                self.empty();
                // Who asked may have gone.
                let _ = done.send(());
            }
        }
    }

    fn report(&self, at_ns: i64, report: DriveReport) {
        let drive = (&self.name, self.generation);
        self.shared.queue.add(at_ns, drive, report);
    }

    /// The report of work that has taken from one time to another, and others in between.
    fn report_at_end(&self, (begin_ns, end_ns): (i64, i64), moved: u64, report: DriveReport) {
        let (mut at_ns, mut bytes) = (begin_ns + REPORT_EVERY_NS, moved);
        let now_ns = self.shared.queue.now_ns();
        while at_ns < end_ns {
            if at_ns > now_ns {
                bytes += 1;
                self.report(at_ns, DriveReport::Moved { bytes });
            }
            at_ns += REPORT_EVERY_NS;
        }
        self.report(end_ns, report);
    }

    fn fail(&self, at_ns: i64, scope: TapeErrorScope) {
        self.report(at_ns, DriveReport::Failed(scope));
    }

    /// The cartridge that was in the drive when the process ended.
    fn reload(&mut self) {
        if let Some(tape) = self.shared.slots.tape_in(&self.name) {
            let medium = CartridgeFile::open(&self.shared.cartridge_path(&tape), &tape).ok();
            let has_lost_tail = medium.as_ref().is_some_and(CartridgeFile::has_lost_tail);
            let mut cartridge = self.cartridge(&tape);
            let chance = Chance::of_part(self.shared.definition.seed, 0);
            let (drive, _) = LoadedDrive::load(&self.kind, &mut cartridge, chance);
            self.loaded = Some(Loaded {
                tape,
                medium,
                drive,
                has_lost_tail,
            });
        }
    }

    fn cartridge(&self, tape: &TapeName) -> Cartridge {
        let seed = self.shared.definition.seed_of(&tape.0);
        let mut cartridge = Cartridge::of_kind(&self.kind, seed);
        cartridge.is_initialised |= self.shared.initialised.lock().contains(tape);
        cartridge
    }

    fn mount_fault(&self, chance: &mut Chance) -> Option<MountFault> {
        let drawn = self.shared.definition.faults.mount_fault(chance);
        let injected = self.shared.faults.lock().mounts.remove(&self.name);
        injected.or(drawn)
    }

    fn mount(&mut self, tape: &TapeName) {
        let begin_ns = self.shared.queue.now_ns();
        if let Some(loaded) = &mut self.loaded {
            // Told again after a restart: nothing was written to it since it came.
            loaded.has_lost_tail = false;
            let medium = loaded.medium.as_ref().filter(|_| loaded.tape == *tape);
            let end_bytes = medium.map(CartridgeFile::end_bytes);
            let at_ns = begin_ns + AT_ONCE_NS;
            let Some(end_bytes) = end_bytes else {
                return self.fail(at_ns, TapeErrorScope::Drive);
            };
            self.tell_that_it_orders(at_ns);
            self.report(at_ns, DriveReport::DataEnds { end_bytes });
            return self.report(at_ns, DriveReport::Mounted);
        }
        let fault = self.shared.faults.lock().library;
        let after_ns = match fault {
            Some(LibraryFault::RobotStuck) => Some(ROBOT_STUCK_NS),
            Some(LibraryFault::RobotAway) => Some(ROBOT_AWAY_NS),
            _ if self.shared.slots.drive_of(tape).is_some() => Some(AT_ONCE_NS),
            _ => None,
        };
        if let Some(after_ns) = after_ns {
            return self.fail(begin_ns + after_ns, TapeErrorScope::Library);
        }
        if !self.shared.definition.tapes.contains_key(tape) {
            return self.fail(begin_ns + AT_ONCE_NS, TapeErrorScope::Tape);
        }
        self.shared.slots.put(&self.name, Some(tape));
        self.mounts += 1;
        let seed = self.shared.definition.seed_of(&self.name.0);
        let mut chance = Chance::of_part(seed, self.mounts);
        let fault = self.mount_fault(&mut chance);
        let end_ns = self.load(tape, begin_ns, chance);
        let is_readable = self.loaded.as_ref().is_some_and(|one| one.medium.is_some());
        match fault {
            Some(MountFault::Hung) => {}
            Some(MountFault::DriveDown) => self.fail(end_ns, TapeErrorScope::Drive),
            Some(MountFault::TapeUnreadable) => self.fail(end_ns, TapeErrorScope::Tape),
            None if !is_readable => self.unreadable(end_ns),
            None => {
                let loaded = self.loaded.as_ref();
                if let Some(ends) = loaded.and_then(|loaded| loaded.drive.wrap_ends_bytes()) {
                    let wrap_ends_bytes = ends.to_vec();
                    self.report(end_ns, DriveReport::WrapEnds { wrap_ends_bytes });
                }
                self.tell_that_it_orders(end_ns);
                let medium = loaded.and_then(|loaded| loaded.medium.as_ref());
                if let Some(end_bytes) = medium.map(CartridgeFile::end_bytes) {
                    self.report(end_ns, DriveReport::DataEnds { end_bytes });
                }
                self.report_at_end((begin_ns, end_ns), 0, DriveReport::Mounted);
            }
        }
    }

    /// The label of the tape that was loaded could not be read.
    fn unreadable(&mut self, at_ns: i64) {
        let scope = self.shared.blamed(TapeErrorScope::Tape);
        if scope == TapeErrorScope::Library {
            // The drive is free when a library fails while it mounts.
            self.empty();
        }
        self.fail(at_ns, scope);
    }

    fn tell_that_it_orders(&self, at_ns: i64) {
        let loaded = self.loaded.as_ref();
        if let Some(files_max) = loaded.and_then(|loaded| loaded.drive.read_order_max()) {
            self.report(at_ns, DriveReport::OrdersReads { files_max });
        }
    }

    /// Puts files into the order in which this cartridge gives them soonest.
    fn order(&mut self, after_bytes: u64, files: &[FilePlace]) {
        let loaded = self.loaded.as_ref();
        let order = loaded.and_then(|loaded| loaded.drive.read_order(after_bytes, files));
        if let Some(files) = order {
            let at_ns = self.shared.queue.now_ns() + AT_ONCE_NS;
            self.report(at_ns, DriveReport::ReadsOrdered { files });
        }
    }

    /// The robot brings the cartridge, the drive loads it. Returns when that is done.
    fn load(&mut self, tape: &TapeName, begin_ns: i64, chance: Chance) -> i64 {
        let mut cartridge = self.cartridge(tape);
        let (drive, time) = LoadedDrive::load(&self.kind, &mut cartridge, chance);
        self.shared.initialised.lock().insert(tape.clone());
        let medium = CartridgeFile::open(&self.shared.cartridge_path(tape), tape).ok();
        self.loaded = Some(Loaded {
            tape: tape.clone(),
            medium,
            drive,
            // It was in no drive: nobody thinks that what was lost is there.
            has_lost_tail: false,
        });
        let carried_ns = self.shared.carried_ns(begin_ns);
        carried_ns + time.load_ns + time.thread_ns + time.initialisation_ns
    }

    /// Goes on moving bytes until the drive is told to stop, and reports now and then.
    fn progress(&self) -> impl FnMut(u64) -> bool + use<> {
        let (shared, name) = (Arc::clone(&self.shared), self.name.clone());
        let generation = self.generation;
        let mut reported_ns = shared.queue.now_ns();
        move |bytes| {
            let now_ns = shared.queue.now_ns();
            if now_ns - reported_ns >= REPORT_EVERY_NS {
                reported_ns = now_ns;
                let moved = DriveReport::Moved { bytes };
                shared.queue.add(now_ns, (&name, generation), moved);
            }
            shared.queue.generation(&name) == generation
        }
    }

    fn read(&mut self, file: FileId, (begin, size): (u64, u64)) {
        let shared = Arc::clone(&self.shared);
        let deliver = |medium: &CartridgeFile, goes_on: &mut dyn FnMut(u64) -> bool| {
            let destination = shared.exchange.destination(file);
            let mut destination = destination.map_err(ReadError::Destination)?;
            let crc32c = medium.read((begin, size), &mut destination, goes_on)?;
            let received = shared.exchange.received(file, destination, crc32c);
            received.map_err(|why| match why.kind() {
                // It is whole, and not what the file was.
                ErrorKind::InvalidData => ReadError::Damaged,
                _ => ReadError::Destination(why),
            })
        };
        self.read_by(file, (begin, size), DriveReport::FileRead(file), deliver);
    }

    /// Goes to a file and reads it, in one way or another.
    fn read_by(
        &mut self,
        file: FileId,
        (begin, size): (u64, u64),
        done: DriveReport,
        read: impl FnOnce(&CartridgeFile, &mut dyn FnMut(u64) -> bool) -> Result<(), ReadError>,
    ) {
        let mut goes_on = self.progress();
        let begin_ns = self.shared.queue.now_ns();
        let shared = Arc::clone(&self.shared);
        let Some(Loaded {
            tape,
            medium: Some(medium),
            drive,
            ..
        }) = &mut self.loaded
        else {
            return self.fail(begin_ns + AT_ONCE_NS, TapeErrorScope::Drive);
        };
        let took_ns = drive.locate(begin);
        let located_ns = begin_ns + took_ns;
        let end = begin.saturating_add(size);
        let (faults, seed) = (shared.definition.faults, shared.definition.seed_of(&tape.0));
        let is_bad =
            shared.faults.lock().is_bad(tape, begin, end) || faults.is_place_bad(seed, 0, begin);
        let end_ns = located_ns + drive.stream(size, HostFeed::UNLIMITED).total_ns();
        if is_bad {
            return self.fail(end_ns, TapeErrorScope::File);
        }
        match read(medium, &mut goes_on) {
            Ok(()) => {
                self.report(located_ns, DriveReport::Located { took_ns });
                self.report_at_end((begin_ns, end_ns), size, done);
            }
            Err(ReadError::Stopped) => {}
            Err(ReadError::Missing | ReadError::Damaged) => {
                self.fail(end_ns, TapeErrorScope::File);
            }
            Err(ReadError::Medium(_)) => {
                self.fail(end_ns, shared.blamed(TapeErrorScope::Drive));
            }
            Err(ReadError::Destination(_)) => self.report(end_ns, DriveReport::NotTaken(file)),
        }
    }

    fn write_aggregate(&mut self, begin_bytes: u64, members: &[AggregateMember]) {
        let Some(first) = members.first() else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let source = AggregateSource::new(&*shared.exchange, members);
        let address = (
            first.file,
            begin_bytes,
            AggregateSource::size_bytes(members),
        );
        self.write(
            address,
            Ok(source),
            DriveReport::AggregateWritten,
            |source| {
                let member = source.and_then(|source| source.member());
                DriveReport::NotTaken(member.unwrap_or(first.file))
            },
        );
    }

    /// Writes an object behind the data. What is reported when its source fails, the source knows.
    fn write<S: Read>(
        &mut self,
        (file, begin, size): (FileId, u64, u64),
        source: io::Result<S>,
        written: DriveReport,
        unreadable: impl FnOnce(Option<&S>) -> DriveReport,
    ) {
        let goes_on = self.progress();
        let begin_ns = self.shared.queue.now_ns();
        let shared = Arc::clone(&self.shared);
        let Some(Loaded {
            tape,
            medium: Some(medium),
            drive,
            has_lost_tail: false,
        }) = &mut self.loaded
        else {
            return self.fail(begin_ns + AT_ONCE_NS, TapeErrorScope::Drive);
        };
        let capacity = shared.definition.tapes.get(&*tape);
        let capacity = capacity.map_or(0, |tape| tape.capacity_bytes);
        let located_ns = begin_ns + drive.locate(begin);
        if begin.saturating_add(size) > capacity {
            let left = capacity.saturating_sub(begin);
            let end_ns = located_ns + drive.stream(left, HostFeed::UNLIMITED).total_ns();
            return self.report(end_ns, DriveReport::TapeFull);
        }
        if shared.faults.lock().library == Some(LibraryFault::Full) {
            return self.report(located_ns, DriveReport::LibraryFull);
        }
        let streamed = drive.stream(size, HostFeed::UNLIMITED).total_ns();
        let end_ns = located_ns + streamed + drive.mark(FileMark::Buffered);
        let Ok(mut source) = source else {
            return self.report(located_ns, unreadable(None));
        };
        match medium.append((file, begin, size), &mut source, goes_on) {
            Ok(()) => self.report_at_end((begin_ns, end_ns), size, written),
            Err(WriteError::Stopped) => {}
            Err(WriteError::Source(_)) => self.report(located_ns, unreadable(Some(&source))),
            Err(WriteError::Medium(why)) => {
                let scope = shared.blamed(TapeErrorScope::Drive);
                self.report(end_ns, unwritten(&why, scope));
            }
            Err(WriteError::Occupied) => self.fail(located_ns, TapeErrorScope::Tape),
        }
    }

    fn sync(&mut self) {
        let begin_ns = self.shared.queue.now_ns();
        let Some(Loaded {
            medium: Some(medium),
            drive,
            has_lost_tail: false,
            ..
        }) = &mut self.loaded
        else {
            return self.fail(begin_ns + AT_ONCE_NS, TapeErrorScope::Drive);
        };
        let end_ns = begin_ns + drive.mark(FileMark::Synchronised);
        match medium.sync() {
            Ok(()) => self.report_at_end((begin_ns, end_ns), 0, DriveReport::Synced),
            Err(why) => {
                let scope = self.shared.blamed(TapeErrorScope::Drive);
                self.report(end_ns, unwritten(&why, scope));
            }
        }
    }

    fn dismount(&mut self) {
        let begin_ns = self.shared.queue.now_ns();
        let Some(loaded) = self.loaded.take() else {
            // Told again after a restart.
            return self.report(begin_ns + AT_ONCE_NS, DriveReport::Dismounted);
        };
        let time = loaded.drive.unload_time();
        let unloaded_ns = begin_ns + time.rewind_ns + time.unload_ns;
        close(loaded);
        let mut faults = self.shared.faults.lock();
        if faults.is_robot_down() {
            faults.held.push((self.name.clone(), self.generation));
            return;
        }
        drop(faults);
        let carried_ns = self.shared.carried_ns(unloaded_ns);
        self.shared.slots.put(&self.name, None);
        self.report_at_end((begin_ns, carried_ns), 0, DriveReport::Dismounted);
    }

    fn empty(&mut self) {
        if let Some(loaded) = self.loaded.take() {
            close(loaded);
        }
        self.shared.slots.put(&self.name, None);
    }
}

/// What a medium that does not take data says of itself: a full disk is no fault of the drive.
fn unwritten(why: &io::Error, otherwise: TapeErrorScope) -> DriveReport {
    match why.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => DriveReport::LibraryFull,
        _ => DriveReport::Failed(otherwise),
    }
}

/// The index only saves time: without it headers tell.
fn close(loaded: Loaded) {
    if let Some(medium) = loaded.medium {
        let _ = medium.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_fault_of_the_drive() {
        for (number, report) in [
            (28, DriveReport::LibraryFull),
            (122, DriveReport::LibraryFull),
            (5, DriveReport::Failed(TapeErrorScope::Drive)),
        ] {
            let why = io::Error::from_raw_os_error(number);
            assert_eq!(unwritten(&why, TapeErrorScope::Drive), report);
        }
    }
}
