//! Copies in two libraries with real bytes, and a library that goes away.

use crate::site::*;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::record::Tape;
use penstock_tape::request::{
    ArchiveRequest, ArchiveWishes, FamilyName, FileId, LibraryName, ReadPurpose, RecallRequest,
    RequestId, RequestOutcome, TapeCopy,
};
use penstock_tape::request_engine::{Effect, Input, RequestEngine, TapeIncident};
use penstock_tape_library::{
    CopyDirection, DriveMessage, EmulatedLibrary, InjectedFault, KnownLibrary, LibraryTime,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

const FACTOR: u32 = 2_000;
const FILE_BYTES: usize = 200_000;

/// An engine with two libraries whose time runs together.
struct Two {
    engine: RequestEngine,
    libraries: Vec<EmulatedLibrary>,
    told: BTreeMap<RequestId, RequestOutcome>,
    incidents: Vec<TapeIncident>,
}

impl Two {
    fn new(directory: &Path) -> Two {
        for below in ["disk", "recalled"] {
            std::fs::create_dir_all(directory.join(below)).expect("made");
        }
        let time = LibraryTime::Scaled {
            factor: FACTOR,
            origin_ns: 0,
        };
        let mut engine = RequestEngine::restore(
            policy(),
            [("small".to_owned(), small_kind().model)].into(),
            [],
        );
        let mut libraries = Vec::new();
        for (number, name) in ["one", "two"].into_iter().enumerate() {
            let mut definition = definition(4, 4);
            definition.name = LibraryName(name.into());
            // Names of drives and tapes are those of one site.
            let is_its = |place: usize| place / 2 == number;
            let mut place = 0..;
            definition
                .drives
                .retain(|_, _| is_its(place.next().expect("endless")));
            let mut place = 0..;
            definition
                .tapes
                .retain(|_, _| is_its(place.next().expect("endless")));
            for (drive, kind) in &definition.drives {
                let (drive, kind) = (drive.clone(), kind.clone());
                let library = definition.name.clone();
                engine.handle(
                    0,
                    Input::DriveAdded {
                        drive,
                        library,
                        kind,
                    },
                );
            }
            for tape in definition.tapes.keys() {
                let facts = Tape::new(definition.name.clone(), "small".to_owned(), 2_000 * MB);
                let tape = tape.clone();
                engine.handle(0, Input::TapeAdded { tape, facts });
            }
            let disk = directory.to_owned();
            let exchange = move |file: FileId, direction| match direction {
                CopyDirection::ToTape => disk.join(format!("disk/{}", file.0)),
                CopyDirection::FromTape => disk.join(format!("recalled/{}", file.0)),
            };
            let place = directory.join(name);
            let definition = (definition, &KnownLibrary::default());
            let library = EmulatedLibrary::open(&place, definition, time, exchange);
            libraries.push(library.expect("opened"));
        }
        Two {
            engine,
            libraries,
            told: BTreeMap::new(),
            incidents: Vec::new(),
        }
    }

    fn now_ns(&self) -> i64 {
        self.libraries[0].now_ns()
    }

    fn give(&mut self, input: Input) {
        let now_ns = self.now_ns();
        for effect in self.engine.handle(now_ns, input) {
            match effect {
                Effect::Tell { request, outcome } => drop(self.told.insert(request, outcome)),
                Effect::Open(incident) => self.incidents.push(incident),
                effect => {
                    // A drive belongs to one of them.
                    let done = self
                        .libraries
                        .iter()
                        .any(|one| one.perform(&effect).is_ok());
                    assert!(done, "{effect:?}");
                }
            }
        }
    }

    fn run_to(&mut self, told: usize) {
        let begun = Instant::now();
        while self.told.len() < told {
            assert!(begun.elapsed().as_secs() < 60, "{:?}", self.told);
            for number in 0..self.libraries.len() {
                let until_ns = self.now_ns() + 2 * SECOND_NS;
                let message = self.libraries[number].next_report(until_ns);
                match message {
                    Some(DriveMessage { drive, report, .. }) => {
                        self.give(Input::Report { drive, report });
                    }
                    None => self.give(Input::Tick),
                }
            }
        }
    }
}

fn archive(directory: &Path, file: u64, copies: u32) -> ArchiveRequest {
    let path = directory.join(format!("disk/{file}"));
    std::fs::write(path, content(file, FILE_BYTES)).expect("written");
    ArchiveRequest {
        request: RequestId(file),
        file: FileId(file),
        size_bytes: FILE_BYTES as u64,
        family: FamilyName("raw".into()),
        asker: asker(),
        wishes: ArchiveWishes {
            copies,
            ..ArchiveWishes::default()
        },
    }
}

#[test]
fn a_library_goes_away_and_files_are_written_and_read_in_the_other() {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path();
    let mut site = Two::new(path);
    let files = (1..=10).map(|file| archive(path, file, 2)).collect();
    site.give(Input::Archive(files));
    site.run_to(10);
    let mut copies: BTreeMap<u64, Vec<TapeCopy>> = BTreeMap::new();
    for (request, outcome) in &site.told {
        let RequestOutcome::Archived(both) = outcome else {
            panic!("{outcome:?}");
        };
        let libraries = both.iter().map(|copy| {
            let tape = &site.engine.live().tapes[&copy.tape];
            tape.library.0.to_string()
        });
        assert_eq!(libraries.collect::<Vec<_>>(), ["one", "two"]);
        copies.insert(request.0, both.clone());
    }
    // Tapes leave their drives, then the first library does not answer any more.
    let rest_ns = site.now_ns() + 600 * SECOND_NS;
    while site.now_ns() < rest_ns {
        site.run_to(0);
        for number in 0..2 {
            let until_ns = site.now_ns() + 10 * SECOND_NS;
            match site.libraries[number].next_report(until_ns) {
                Some(DriveMessage { drive, report, .. }) => {
                    site.give(Input::Report { drive, report });
                }
                None => site.give(Input::Tick),
            }
        }
    }
    site.libraries[0]
        .inject(InjectedFault::RobotAway)
        .expect("taken");
    let recalls = copies.iter().map(|(file, copies)| RecallRequest {
        request: RequestId(100 + file),
        file: FileId(*file),
        size_bytes: FILE_BYTES as u64,
        copies: copies.clone(),
        asker: asker(),
        activity: None,
        challenge: None,
        purpose: ReadPurpose::Users,
    });
    site.give(Input::Recall(recalls.collect()));
    site.give(Input::Archive(
        (11..=15).map(|file| archive(path, file, 1)).collect(),
    ));
    site.run_to(25);
    for file in 1..=10 {
        assert_eq!(site.told[&RequestId(100 + file)], RequestOutcome::Recalled);
        let recalled = std::fs::read(path.join(format!("recalled/{file}"))).expect("recalled");
        assert!(recalled == content(file, FILE_BYTES), "file {file}");
    }
    let away = TapeIncident::LibraryPaused(LibraryName("one".into()));
    assert_eq!(site.incidents, [away], "one incident, however many files");
    for file in 11..=15 {
        let RequestOutcome::Archived(copies) = &site.told[&RequestId(file)] else {
            panic!("{:?}", site.told[&RequestId(file)]);
        };
        let library = &site.engine.live().tapes[&copies[0].tape].library;
        assert_eq!(&*library.0, "two");
    }
}
