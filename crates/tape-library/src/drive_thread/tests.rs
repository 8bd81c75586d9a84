use super::*;
use crate::definition::{LibraryTime, TapeDefinition};
use crate::exchange::CopyDirection;
use crate::identity::KnownLibrary;
use penstock_tape::drive_fault::FaultRates;
use penstock_tape::library::LibraryModel;
use penstock_tape::request::LibraryName;
use std::collections::BTreeMap;
use std::path::Path;

const FILE_BYTES: u64 = 5_000;

fn tape() -> TapeName {
    TapeName("A00000".into())
}

fn definition() -> LibraryDefinition {
    let kind = || "LTO-8".to_owned();
    let cartridge = TapeDefinition {
        kind: kind(),
        capacity_bytes: 1_000_000,
    };
    LibraryDefinition {
        name: LibraryName("library".into()),
        model: LibraryModel {
            slots: 10,
            arms: 1,
            move_ns: SECOND_NS,
            moves_per_hour_max: 300,
        },
        kinds: BTreeMap::from([(kind(), DriveKind::named("LTO-8").expect("a kind"))]),
        drives: BTreeMap::from([(DriveName("d0".into()), kind())]),
        tapes: BTreeMap::from([(tape(), cartridge)]),
        faults: FaultRates::default(),
        seed: 1,
    }
}

fn shared(directory: &Path) -> Shared {
    let definition = definition();
    let known = KnownLibrary::default();
    let identity = LibraryIdentity::find(directory, &definition.name, &known);
    let mut identity = identity.expect("new");
    std::fs::create_dir_all(directory.join("cartridges")).expect("made");
    let path = cartridge_file::path_in(directory, &tape());
    cartridge_file::make(&path, &tape()).expect("made");
    identity
        .keep(directory, [tape()].into_iter())
        .expect("kept");
    let disk = directory.to_owned();
    let exchange = move |file: FileId, direction| match direction {
        CopyDirection::ToTape => disk.join(format!("{}.in", file.0)),
        CopyDirection::FromTape => disk.join(format!("{}.out", file.0)),
    };
    Shared {
        directory: directory.to_owned(),
        identity,
        queue: ReportQueue::new(LibraryTime::Virtual { origin_ns: 0 }),
        slots: DriveSlots::open(directory).expect("opened"),
        robot: Mutex::new(Robot::new(definition.model.clone())),
        faults: Mutex::new(Faults::default()),
        initialised: Mutex::new(BTreeSet::new()),
        exchange: Box::new(exchange),
        definition,
    }
}

/// A drive that is told one thing after the other.
struct Bench {
    directory: tempfile::TempDir,
    drive: DriveThread,
}

impl Bench {
    /// With two files on the tape that is in the drive.
    fn new() -> Bench {
        let directory = tempfile::tempdir().expect("made");
        let shared = Arc::new(shared(directory.path()));
        let kind = shared.definition.kinds["LTO-8"].clone();
        let drive = DriveThread::new(DriveName("d0".into()), kind, shared);
        let mut bench = Bench { directory, drive };
        assert_eq!(bench.told(Command::Mount(tape())), DriveReport::Mounted);
        for number in 0..2 {
            let path = bench.directory.path().join(format!("{number}.in"));
            std::fs::write(path, vec![7; FILE_BYTES as usize]).expect("written");
            let (file, begin_bytes) = (FileId(number), number * FILE_BYTES);
            let written = bench.told(Command::Write {
                file,
                begin_bytes,
                size_bytes: FILE_BYTES,
            });
            assert_eq!(written, DriveReport::FileWritten(file));
        }
        assert_eq!(bench.told(Command::Sync), DriveReport::Synced);
        bench
    }

    /// Has the drive do something. Returns the last of what it reports.
    fn told(&mut self, command: Command) -> DriveReport {
        self.drive.perform(command);
        let reports = std::iter::from_fn(|| self.drive.shared.queue.next(i64::MAX));
        reports.last().expect("a report").report
    }

    fn read(&mut self, number: u64) -> DriveReport {
        self.told(Command::Read {
            file: FileId(number),
            begin_bytes: number * FILE_BYTES,
            size_bytes: FILE_BYTES,
        })
    }

    fn verify(&mut self, number: u64) -> DriveReport {
        self.told(Command::Verify {
            file: FileId(number),
            begin_bytes: number * FILE_BYTES,
            size_bytes: FILE_BYTES,
        })
    }

    fn medium(&mut self) -> &mut CartridgeFile {
        let loaded = self.drive.loaded.as_mut().expect("mounted");
        loaded.medium.as_mut().expect("its label is good")
    }
}

#[test]
fn a_place_that_the_disk_cannot_read_is_an_error_of_that_file() {
    let mut bench = Bench::new();
    let path = bench.drive.shared.cartridge_path(&tape());
    let whole = CartridgeFile::open(&path, &tape()).expect("good");
    bench.medium().spoil();
    let bad = DriveReport::Failed(TapeErrorScope::File);
    assert_eq!(bench.read(0), bad);
    assert_eq!(bench.verify(0), bad);
    *bench.medium() = whole;
    // The drive goes on.
    assert_eq!(bench.read(1), DriveReport::FileRead(FileId(1)));
    assert_eq!(bench.verify(0), DriveReport::FileVerified(FileId(0)));
    // When all of the library is away no file is at fault.
    bench.medium().spoil();
    let identity = bench.directory.path().join("library.json");
    std::fs::remove_file(identity).expect("removed");
    assert_eq!(bench.read(0), DriveReport::Failed(TapeErrorScope::Library));
}

#[test]
fn a_lack_of_the_process_is_no_error_of_a_file_or_a_tape() {
    let bench = Bench::new();
    let shared = &bench.drive.shared;
    let (file, tape, library) = (
        TapeErrorScope::File,
        TapeErrorScope::Tape,
        TapeErrorScope::Library,
    );
    for (number, of_read, of_label) in [
        (5, file, tape),
        (61, file, tape),
        (74, file, tape),
        (117, file, tape),
        // No such file; permission denied, too many open files here and everywhere, no memory, a read-only disk, a stale handle.
        (2, library, tape),
        (13, library, library),
        (24, library, library),
        (23, library, library),
        (12, library, library),
        (30, library, library),
        (116, library, library),
    ] {
        let why = || io::Error::from_raw_os_error(number);
        assert_eq!(shared.blamed_for(&why(), file), of_read, "{}", why());
        let label = LabelError::Medium(why());
        assert_eq!(shared.blamed_for_label(&label), of_label, "{}", why());
    }
    assert_eq!(shared.blamed_for_label(&LabelError::Label), tape);
}

#[test]
fn a_tape_that_could_not_be_opened_after_a_restart_breaks_nothing() {
    let mut bench = Bench::new();
    // As when descriptors are short when the library is opened.
    let lack = || LabelError::Medium(io::Error::from_raw_os_error(24));
    let loaded = bench.drive.loaded.as_mut().expect("mounted");
    loaded.medium = Err(lack());
    let paused = DriveReport::Failed(TapeErrorScope::Library);
    assert_eq!(bench.read(0), paused);
    assert_eq!(bench.told(Command::Sync), paused);
    // What the engine tells it next.
    assert_eq!(bench.told(Command::Dismount), DriveReport::Dismounted);
    assert_eq!(bench.told(Command::Mount(tape())), DriveReport::Mounted);
    assert_eq!(bench.read(0), DriveReport::FileRead(FileId(0)));
    // The process had ended while it mounted.
    let loaded = bench.drive.loaded.as_mut().expect("mounted");
    loaded.medium = Err(lack());
    assert_eq!(bench.told(Command::Mount(tape())), paused);
    assert_eq!(bench.drive.shared.slots.drive_of(&tape()), None);
    assert_eq!(bench.told(Command::Mount(tape())), DriveReport::Mounted);
}

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
