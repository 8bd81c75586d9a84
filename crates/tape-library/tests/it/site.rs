//! A small site: an engine, a library, a directory of files on disk.

use penstock_tape::drive_fault::FaultRates;
use penstock_tape::drive_kind::DriveKind;
use penstock_tape::library::LibraryModel;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::record::{Record, Tape};
use penstock_tape::relabel::RelabelRefusal;
use penstock_tape::request::{
    ArchiveRequest, ArchiveWishes, Asker, DriveName, FamilyName, FileId, LibraryName, ReadPurpose,
    RecallRequest, RequestId, RequestOutcome, TapeCopy, TapeName, VoName,
};
use penstock_tape::request_engine::{
    DriveReport, Effect, Input, RequestEngine, TapeIncident, TapePolicy,
};
use penstock_tape_library::{
    CopyDirection, DriveMessage, EmulatedLibrary, KnownLibrary, LibraryDefinition, LibraryTime,
    TapeDefinition,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub const MB: u64 = 1_000_000;
pub const HOUR_NS: i64 = 3_600 * SECOND_NS;

pub fn drive_name(number: usize) -> DriveName {
    DriveName(format!("drive-{number}").into())
}

pub fn tape_name(number: usize) -> TapeName {
    TapeName(format!("A{number:05}").into())
}

/// A kind whose cartridges hold 2 GB, so that small files lie far apart.
pub fn small_kind() -> DriveKind {
    let mut kind = DriveKind::named("LTO-8").expect("a kind");
    kind.model.capacity_bytes = 2_000 * MB;
    kind.model.native_rate = MB;
    kind
}

pub fn definition(drives: usize, tapes: usize) -> LibraryDefinition {
    let tape = |number| {
        let tape = TapeDefinition {
            kind: "small".to_owned(),
            capacity_bytes: 2_000 * MB,
        };
        (tape_name(number), tape)
    };
    LibraryDefinition {
        name: LibraryName("library".into()),
        model: LibraryModel {
            slots: 100,
            arms: 2,
            move_ns: 15 * SECOND_NS,
            moves_per_hour_max: 300,
        },
        kinds: BTreeMap::from([("small".to_owned(), small_kind())]),
        drives: (0..drives)
            .map(|one| (drive_name(one), "small".to_owned()))
            .collect(),
        tapes: (0..tapes).map(tape).collect(),
        faults: FaultRates::default(),
        seed: 1,
    }
}

pub fn policy() -> TapePolicy {
    let mut policy = TapePolicy::usual();
    policy.mount.age_ns = 0;
    policy.order_effort.0 = 20_000;
    policy.sync_bytes = 40 * MB;
    policy.sync_files = 20;
    policy
}

/// Bytes that tell files apart.
pub fn content(file: u64, size: usize) -> Vec<u8> {
    let mut state = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

pub fn asker() -> Asker {
    Asker {
        vo: VoName("atlas".into()),
        priority: 3,
        deadline_ns: None,
        lease_ns: i64::MAX,
    }
}

pub struct Site {
    pub directory: PathBuf,
    pub engine: RequestEngine,
    pub library: EmulatedLibrary,
    pub records: Vec<Record>,
    pub told: BTreeMap<RequestId, RequestOutcome>,
    pub incidents: Vec<TapeIncident>,
    pub mounts: usize,
    pub refused: Vec<RelabelRefusal>,
    wake_ns: Option<i64>,
    pub next_request: u64,
}

pub fn open_library(
    directory: &Path,
    definition: LibraryDefinition,
    time: LibraryTime,
) -> EmulatedLibrary {
    let disk = directory.to_owned();
    let path = move |file: FileId, direction: CopyDirection| match direction {
        CopyDirection::ToTape => disk.join(format!("disk/{}", file.0)),
        CopyDirection::FromTape => disk.join(format!("recalled/{}", file.0)),
    };
    for below in ["disk", "recalled"] {
        fs::create_dir_all(directory.join(below)).expect("made");
    }
    let known = KnownLibrary::default();
    let opened =
        EmulatedLibrary::open(&directory.join("library"), (definition, &known), time, path);
    opened.expect("opened")
}

impl Site {
    pub fn new(
        directory: &Path,
        definition: LibraryDefinition,
        time: LibraryTime,
        policy: TapePolicy,
    ) -> Site {
        Site::restored(directory, definition, time, policy, Vec::new())
    }

    /// A site that has these records from before.
    pub fn restored(
        directory: &Path,
        definition: LibraryDefinition,
        time: LibraryTime,
        policy: TapePolicy,
        records: Vec<Record>,
    ) -> Site {
        let library = open_library(directory, definition, time);
        let next_request = records.len() as u64;
        let kinds = library.definition().kinds.iter();
        let kinds = kinds
            .map(|(name, kind)| (name.clone(), kind.model))
            .collect();
        let mut site = Site {
            directory: directory.to_owned(),
            engine: RequestEngine::restore(policy, kinds, &records),
            library,
            records,
            told: BTreeMap::new(),
            incidents: Vec::new(),
            mounts: 0,
            refused: Vec::new(),
            wake_ns: None,
            next_request,
        };
        let now_ns = site.library.now_ns();
        let effects = site.engine.resume(now_ns);
        site.perform(effects);
        let definition = site.library.definition().clone();
        for (drive, kind) in definition.drives {
            let library = definition.name.clone();
            site.give(Input::DriveAdded {
                drive,
                library,
                kind,
            });
        }
        for (tape, facts) in definition.tapes {
            let facts = Tape::new(definition.name.clone(), facts.kind, 2_000 * MB);
            site.give(Input::TapeAdded { tape, facts });
        }
        site
    }

    pub fn give(&mut self, input: Input) {
        let now_ns = self.library.now_ns();
        let effects = self.engine.handle(now_ns, input);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.library
                .perform(&effect)
                .expect("a drive of this library");
            match effect {
                Effect::Persist(records) => self.records.extend(records),
                Effect::Tell { request, outcome } => {
                    assert_eq!(self.told.insert(request, outcome), None, "told once");
                }
                Effect::Open(incident) => self.incidents.push(incident),
                Effect::WakeAt(at_ns) => self.wake_ns = Some(at_ns),
                Effect::Mount { .. } => self.mounts += 1,
                Effect::Relabel { tape } => {
                    // The library has done it by now.
                    self.give(Input::Relabeled(tape));
                }
                Effect::RelabelRefused { because, .. } => self.refused.push(because),
                _ => {}
            }
        }
    }

    /// One report, or a tick. Returns the report.
    pub fn step(&mut self) -> Option<DriveMessage> {
        let until_ns = self.wake_ns.unwrap_or(i64::MAX);
        let message = self.library.next_report(until_ns);
        match message.clone() {
            Some(DriveMessage {
                at_ns,
                drive,
                report,
            }) => {
                let effects = self.engine.handle(at_ns, Input::Report { drive, report });
                self.perform(effects);
            }
            None => {
                self.wake_ns = None;
                self.give(Input::Tick);
            }
        }
        message
    }

    /// Until a drive has said something of this form.
    pub fn run_to(&mut self, is_it: impl Fn(&DriveReport) -> bool) {
        for _ in 0..100_000 {
            if self.step().is_some_and(|message| is_it(&message.report)) {
                return;
            }
        }
        panic!("it did not happen");
    }

    /// Until all requests have an end.
    pub fn run(&mut self) {
        for _ in 0..1_000_000 {
            if self.engine.live().requests.is_empty() {
                return;
            }
            self.step();
        }
        panic!("{:?} have no end", self.engine.live().requests);
    }

    pub fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// Puts files on disk and asks to archive them.
    pub fn archive(&mut self, files: impl IntoIterator<Item = (u64, usize)>, family: &str) {
        self.archive_as(files, family, &ArchiveWishes::default());
    }

    /// The same with wishes.
    pub fn archive_as(
        &mut self,
        files: impl IntoIterator<Item = (u64, usize)>,
        family: &str,
        wishes: &ArchiveWishes,
    ) {
        let mut requests = Vec::new();
        for (file, size) in files {
            let path = self.directory.join(format!("disk/{file}"));
            fs::write(path, content(file, size)).expect("written");
            requests.push(ArchiveRequest {
                request: self.request(),
                file: FileId(file),
                size_bytes: size as u64,
                family: FamilyName(family.into()),
                asker: asker(),
                wishes: wishes.clone(),
            });
        }
        self.give(Input::Archive(requests));
    }

    /// Where archived files lie, by the records of a site.
    pub fn copies(&self) -> BTreeMap<FileId, TapeCopy> {
        let mut files = BTreeMap::new();
        let mut copies = BTreeMap::new();
        for record in &self.records {
            match record {
                Record::ArchiveAsked { request, .. } => {
                    files.insert(request.request, request.file);
                }
                Record::RequestSettled {
                    request,
                    outcome: RequestOutcome::Archived(written),
                } => {
                    copies.insert(files[request], written[0].clone());
                }
                _ => {}
            }
        }
        copies
    }

    /// Asks for archived files.
    pub fn recall(&mut self, files: impl IntoIterator<Item = (u64, usize)>) {
        let copies = self.copies();
        let mut requests = Vec::new();
        for (file, size) in files {
            requests.push(RecallRequest {
                request: self.request(),
                file: FileId(file),
                size_bytes: size as u64,
                copies: vec![copies[&FileId(file)].clone()],
                asker: asker(),
                activity: None,
                challenge: None,
                purpose: ReadPurpose::Users,
            });
        }
        self.give(Input::Recall(requests));
    }

    pub fn check_recalled(&self, file: u64, size: usize) {
        let path = self.directory.join(format!("recalled/{file}"));
        let recalled = fs::read(path).expect("recalled");
        assert!(
            recalled == content(file, size),
            "file {file} has other bytes"
        );
    }

    pub fn outcomes(&self, is_counted: impl Fn(&RequestOutcome) -> bool) -> usize {
        self.told.values().filter(|one| is_counted(one)).count()
    }
}

pub fn is_archived(outcome: &RequestOutcome) -> bool {
    matches!(outcome, RequestOutcome::Archived(_))
}

pub fn is_recalled(outcome: &RequestOutcome) -> bool {
    *outcome == RequestOutcome::Recalled
}
