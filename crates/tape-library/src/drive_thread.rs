//! One drive, with a thread of its own: it moves bytes at once, and reports when the time model says that they have been moved.

use crate::aggregate_source::AggregateSource;
use crate::cartridge_file::{self, CartridgeFile, LabelError, ReadError, WriteError};
use crate::definition::LibraryDefinition;
use crate::drive_slots::DriveSlots;
use crate::exchange::FileExchange;
use crate::fault::{Faults, LibraryFault};
use crate::identity::LibraryIdentity;
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
    /// Of the directory, as it was opened.
    pub identity: LibraryIdentity,
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
        cartridge_file::path_in(&self.directory, tape)
    }

    /// When the robot has carried a cartridge that it is told to take now.
    pub(crate) fn carried_ns(&self, from_ns: i64) -> i64 {
        self.robot.lock().carry(from_ns).end_ns
    }

    /// Whether the directory still is the library that was opened. Why it is not stands in the log.
    fn is_in_place(&self) -> bool {
        let checked = self.identity.check(&self.directory);
        if let Err(why) = &checked {
            let (library, directory) = (&self.definition.name.0, self.directory.display());
            tracing::warn!(%library, %directory, %why, "the directory of a tape library is not the library that was opened");
        }
        checked.is_ok()
    }

    /// What has failed when a cartridge cannot be used: with the directory of the library all of them are away, as when its disk is
    /// no longer mounted.
    fn blamed(&self, otherwise: TapeErrorScope) -> TapeErrorScope {
        match self.is_in_place() {
            true => otherwise,
            false => TapeErrorScope::Library,
        }
    }

    /// What has failed when the disk does not give what lies on a cartridge.
    fn blamed_for(&self, why: &io::Error, bad_medium: TapeErrorScope) -> TapeErrorScope {
        match is_bad_medium(why) {
            true => self.blamed(bad_medium),
            false => {
                let library = &self.definition.name.0;
                tracing::warn!(%library, %why, "a tape library cannot be used now; it is tried again later");
                TapeErrorScope::Library
            }
        }
    }

    /// What has failed when a cartridge cannot be opened.
    fn blamed_for_label(&self, why: &LabelError) -> TapeErrorScope {
        match why {
            LabelError::Label => self.blamed(TapeErrorScope::Tape),
            LabelError::Medium(why) if why.kind() == ErrorKind::NotFound => {
                self.blamed(TapeErrorScope::Tape)
            }
            LabelError::Medium(why) => self.blamed_for(why, TapeErrorScope::Tape),
        }
    }

    /// The cartridge of a drive is back in its slot. Nothing is written into the directory of another library.
    pub(crate) fn put_into_slot(&self, drive: &DriveName) {
        self.slots.put(drive, None);
        if self.identity.check(&self.directory).is_ok() {
            self.slots.keep();
        }
    }
}

/// Whether an error says that a place of the medium cannot be read. All others are a lack of this process or of the system, such as
/// of descriptors, of memory or of a permission, or say that the disk is away: they pass, and are no fault of a tape.
fn is_bad_medium(why: &io::Error) -> bool {
    const BAD_PLACE: i32 = 5; // EIO
    const NO_DATA: i32 = 61; // ENODATA
    const BAD_CHECKSUM: i32 = 74; // EBADMSG, of XFS and ext4
    const DAMAGED_STRUCTURE: i32 = 117; // EUCLEAN
    let number = why.raw_os_error();
    number.is_some_and(|number| {
        [BAD_PLACE, NO_DATA, BAD_CHECKSUM, DAMAGED_STRUCTURE].contains(&number)
    })
}

/// A cartridge in the drive.
struct Loaded {
    tape: TapeName,
    medium: Result<CartridgeFile, LabelError>,
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
                let medium = loaded.and_then(|loaded| loaded.medium.as_mut().ok());
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
            let medium = CartridgeFile::open(&self.shared.cartridge_path(&tape), &tape);
            let has_lost_tail = medium.as_ref().is_ok_and(CartridgeFile::has_lost_tail);
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
        if !self.shared.is_in_place() {
            self.empty();
            return self.fail(begin_ns + AT_ONCE_NS, TapeErrorScope::Library);
        }
        if let Some(loaded) = &mut self.loaded {
            let at_ns = begin_ns + AT_ONCE_NS;
            if loaded.tape != *tape {
                return self.fail(at_ns, TapeErrorScope::Drive);
            }
            // Told again after a restart: nothing was written to it since it came.
            loaded.has_lost_tail = false;
            return self.ready((begin_ns, at_ns));
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
        self.shared.slots.keep();
        self.mounts += 1;
        let seed = self.shared.definition.seed_of(&self.name.0);
        let mut chance = Chance::of_part(seed, self.mounts);
        let fault = self.mount_fault(&mut chance);
        let end_ns = self.load(tape, begin_ns, chance);
        match fault {
            Some(MountFault::Hung) => {}
            Some(MountFault::DriveDown) => self.fail(end_ns, TapeErrorScope::Drive),
            Some(MountFault::TapeUnreadable) => self.fail(end_ns, TapeErrorScope::Tape),
            None => self.ready((begin_ns, end_ns)),
        }
    }

    /// The tape that was loaded is ready, or its label could not be read.
    fn ready(&mut self, (begin_ns, end_ns): (i64, i64)) {
        let Some(Loaded {
            medium: Ok(medium),
            drive,
            ..
        }) = &self.loaded
        else {
            let scope = self.unusable();
            if scope == TapeErrorScope::Library {
                // The drive is free when a library fails while it mounts.
                self.empty();
            }
            return self.fail(end_ns, scope);
        };
        if let Some(ends) = drive.wrap_ends_bytes() {
            let wrap_ends_bytes = ends.to_vec();
            self.report(end_ns, DriveReport::WrapEnds { wrap_ends_bytes });
        }
        if let Some(files_max) = drive.read_order_max() {
            self.report(end_ns, DriveReport::OrdersReads { files_max });
        }
        let end_bytes = medium.end_bytes();
        self.report(end_ns, DriveReport::DataEnds { end_bytes });
        self.report_at_end((begin_ns, end_ns), 0, DriveReport::Mounted);
    }

    /// What has failed when nothing can be done with what is in the drive.
    fn unusable(&self) -> TapeErrorScope {
        match self.loaded.as_ref().map(|loaded| &loaded.medium) {
            Some(Err(why)) => self.shared.blamed_for_label(why),
            Some(Ok(_)) | None => TapeErrorScope::Drive,
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
        let medium = CartridgeFile::open(&self.shared.cartridge_path(tape), tape);
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
            medium: Ok(medium),
            drive,
            ..
        }) = &mut self.loaded
        else {
            return self.fail(begin_ns + AT_ONCE_NS, self.unusable());
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
            // The disk below is no drive: a place that it cannot read costs what lies there.
            Err(ReadError::Medium(why)) => {
                self.fail(end_ns, shared.blamed_for(&why, TapeErrorScope::File));
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
            medium: Ok(medium),
            drive,
            has_lost_tail: false,
        }) = &mut self.loaded
        else {
            return self.fail(begin_ns + AT_ONCE_NS, self.unusable());
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
            medium: Ok(medium),
            drive,
            has_lost_tail: false,
            ..
        }) = &mut self.loaded
        else {
            return self.fail(begin_ns + AT_ONCE_NS, self.unusable());
        };
        let end_ns = begin_ns + drive.mark(FileMark::Synchronised);
        if !self.shared.is_in_place() {
            // Nobody would find it there.
            return self.fail(end_ns, TapeErrorScope::Library);
        }
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
        self.close(loaded);
        let mut faults = self.shared.faults.lock();
        if faults.is_robot_down() {
            faults.held.push((self.name.clone(), self.generation));
            return;
        }
        drop(faults);
        let carried_ns = self.shared.carried_ns(unloaded_ns);
        self.shared.put_into_slot(&self.name);
        self.report_at_end((begin_ns, carried_ns), 0, DriveReport::Dismounted);
    }

    fn empty(&mut self) {
        if let Some(loaded) = self.loaded.take() {
            self.close(loaded);
        }
        self.shared.put_into_slot(&self.name);
    }

    /// The index only saves time, without it headers tell; it is not written into the directory of another library.
    fn close(&self, loaded: Loaded) {
        if let Ok(mut medium) = loaded.medium {
            let _ = match self.shared.is_in_place() {
                true => medium.close(),
                false => medium.drop_tail(),
            };
        }
    }
}

/// What a medium that does not take data says of itself: a full disk is no fault of the drive.
fn unwritten(why: &io::Error, otherwise: TapeErrorScope) -> DriveReport {
    match why.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => DriveReport::LibraryFull,
        _ => DriveReport::Failed(otherwise),
    }
}

#[cfg(test)]
mod tests;
