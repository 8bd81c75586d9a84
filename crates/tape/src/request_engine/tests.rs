use super::*;
use crate::cartridge::Cartridge;
use crate::chance::Chance;
use crate::data_set::DataSet;
use crate::drive_kind::DriveKind;
use crate::live_set::CopyStage;
use crate::loaded_drive::{HostFeed, LoadedDrive};
use crate::request::{ArchiveWishes, Asker, FamilyName, FilePlace, ReadPurpose, TapeCopy, VoName};

mod archives;
mod inventory;
mod waits;

const GB: u64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const HOUR_NS: i64 = 60 * MINUTE_NS;

fn tape_name(name: &str) -> TapeName {
    TapeName(name.into())
}

fn drive_name(name: &str) -> DriveName {
    DriveName(name.into())
}

fn asker() -> Asker {
    Asker {
        vo: VoName("atlas".into()),
        priority: 3,
        deadline_ns: None,
        lease_ns: 1_000 * HOUR_NS,
    }
}

fn recall(request: u64, file: u64, copies: &[(&str, u64)]) -> RecallRequest {
    let copy = |(tape, begin): &(&str, u64)| TapeCopy {
        tape: tape_name(tape),
        begin_bytes: begin * GB,
        aggregate: None,
    };
    RecallRequest {
        request: RequestId(request),
        file: FileId(file),
        size_bytes: 2 * GB,
        copies: copies.iter().map(copy).collect(),
        asker: asker(),
        activity: None,
        challenge: None,
        purpose: ReadPurpose::Users,
    }
}

fn archive(request: u64, size_gb: u64) -> ArchiveRequest {
    ArchiveRequest {
        request: RequestId(request),
        file: FileId(request),
        size_bytes: size_gb * GB,
        family: FamilyName("raw".into()),
        asker: asker(),
        wishes: ArchiveWishes::default(),
    }
}

fn data_set(name: &str, expected_files: u64) -> DataSet {
    DataSet {
        name: DataSetName(vec![name.into()]),
        expected_files: Some(expected_files),
        expected_bytes: None,
        source: HintSource::ClientMetadata,
        has_blank_hints: false,
    }
}

/// An engine with all records that it has given out, and what is ordered.
struct Lab {
    engine: RequestEngine,
    records: Vec<Record>,
    now_ns: i64,
    effects: Vec<Effect>,
}

fn policy() -> TapePolicy {
    let mut policy = TapePolicy::usual();
    policy.mount.age_ns = 0;
    policy.order_effort = OrderEffort(1_000);
    policy
}

impl Lab {
    fn new(policy: TapePolicy, drives: usize, tapes: &[&str]) -> Lab {
        let kinds = BTreeMap::from([("LTO-8".to_owned(), DriveModel::LTO_8)]);
        let mut lab = Lab {
            engine: RequestEngine::restore(policy, kinds, []),
            records: Vec::new(),
            now_ns: 0,
            effects: Vec::new(),
        };
        for drive in 0..drives {
            lab.give(Input::DriveAdded {
                drive: drive_name(&format!("d{drive}")),
                library: LibraryName("l".into()),
                kind: "LTO-8".to_owned(),
            });
        }
        for tape in tapes {
            let facts = tape_facts();
            lab.give(Input::TapeAdded {
                tape: tape_name(tape),
                facts,
            });
        }
        lab
    }

    /// Gives an input; a restart at this point must know the same.
    fn give(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.engine.handle(self.now_ns, input);
        let (mut acts, mut has_acted) = (Vec::new(), false);
        for effect in effects {
            match effect {
                Effect::Persist(records) => {
                    assert!(!has_acted, "records come before all others");
                    self.records.extend(records);
                }
                effect => {
                    has_acted = true;
                    acts.push(effect);
                }
            }
        }
        assert_eq!(LiveSet::of(&self.records), *self.engine.live());
        self.counts_are_those_of_entries();
        self.all_that_waits_has_a_reason();
        self.effects.extend(acts.clone());
        acts
    }

    /// What a mount has written and not synced is as much as its files, and indexes of aggregates.
    fn counts_are_those_of_entries(&self) {
        let live = self.engine.live();
        for drive in live.drives.0.values() {
            let DriveState::Mounted(mount) = &drive.state else {
                continue;
            };
            let files = mount.unsynced.iter();
            let sizes = files
                .filter_map(|file| live.archives.get(file))
                .map(|one| one.size_bytes);
            assert!(mount.unsynced_bytes >= sizes.sum());
            assert!(mount.unsynced_marks <= mount.unsynced.len());
        }
    }

    /// What waits for a tape is in a drive, is decided about next, or says what it waits for.
    fn all_that_waits_has_a_reason(&self) {
        if self
            .engine
            .next_worth_ns
            .is_some_and(|at_ns| at_ns <= self.now_ns)
        {
            return;
        }
        let live = self.engine.live();
        let waits = self.engine.recall_waits(self.now_ns);
        for tape in live.queues.keys() {
            let is_in_drive = live.drives.drive_of(tape).is_some();
            assert!(
                is_in_drive || waits.contains_key(tape),
                "{tape:?}: {waits:?}"
            );
        }
        let waits = self.engine.archive_waits();
        for family in live.families.keys() {
            let is_written = live.drives.0.values().any(|drive| {
                let purpose = drive.state.occupied_for();
                matches!(purpose, Some(MountPurpose::Archive(of)) if of == family)
            });
            assert!(
                is_written || waits.contains_key(family),
                "{family:?}: {waits:?}"
            );
        }
    }

    fn report(&mut self, drive: &str, report: DriveReport) -> Vec<Effect> {
        self.now_ns += 10 * SECOND_NS;
        self.give(Input::Report {
            drive: drive_name(drive),
            report,
        })
    }

    fn told(&self) -> Vec<(u64, RequestOutcome)> {
        let told = self.effects.iter().filter_map(|effect| match effect {
            Effect::Tell { request, outcome } => Some((request.0, outcome.clone())),
            _ => None,
        });
        told.collect()
    }

    fn count(&self, is_counted: impl Fn(&Effect) -> bool) -> usize {
        self.effects
            .iter()
            .filter(|effect| is_counted(effect))
            .count()
    }

    /// Does what is ordered, in its order, without failures; returns the files that were read and written.
    fn perform(&mut self, effects: Vec<Effect>) -> Vec<u64> {
        let mut open = std::collections::VecDeque::from(effects);
        let mut files = Vec::new();
        while let Some(effect) = open.pop_front() {
            let (drive, report) = match effect {
                Effect::Mount { drive, .. } => (drive, DriveReport::Mounted),
                Effect::Read { drive, file, .. } => {
                    files.push(file.0);
                    (drive, DriveReport::FileRead(file))
                }
                Effect::Verify { drive, file, .. } => (drive, DriveReport::FileVerified(file)),
                Effect::Write { drive, file, .. } => {
                    files.push(file.0);
                    (drive, DriveReport::FileWritten(file))
                }
                Effect::WriteAggregate { drive, members, .. } => {
                    files.extend(members.iter().map(|member| member.file.0));
                    (drive, DriveReport::AggregateWritten)
                }
                Effect::Sync { drive } => (drive, DriveReport::Synced),
                Effect::Dismount { drive, .. } => (drive, DriveReport::Dismounted),
                _ => continue,
            };
            open.extend(self.report(&drive.0, report));
        }
        files
    }
}

impl Lab {
    /// One library for each of these, with drives and tapes of its own.
    fn with_libraries(policy: TapePolicy, libraries: &[(&str, &[&str], &[&str])]) -> Lab {
        let mut lab = Lab::new(policy, 0, &[]);
        for (library, drives, tapes) in libraries {
            let library = LibraryName((*library).into());
            for drive in *drives {
                lab.give(Input::DriveAdded {
                    drive: drive_name(drive),
                    library: library.clone(),
                    kind: "LTO-8".to_owned(),
                });
            }
            for tape in *tapes {
                let mut facts = tape_facts();
                facts.library = library.clone();
                let tape = tape_name(tape);
                lab.give(Input::TapeAdded { tape, facts });
            }
        }
        lab
    }
}

fn tape_facts() -> Tape {
    Tape::new(LibraryName("l".into()), "LTO-8".to_owned(), 12_000 * GB)
}

fn is_mount(effect: &Effect) -> bool {
    matches!(effect, Effect::Mount { .. })
}

fn has_read(effects: &[Effect], file: u64) -> bool {
    let is_it = |effect: &Effect| matches!(effect, Effect::Read { file: of, .. } if of.0 == file);
    effects.iter().any(is_it)
}

#[test]
fn a_file_is_read_once_however_many_ask() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let both = vec![recall(1, 7, &[("t", 5)]), recall(2, 7, &[("t", 5)])];
    let mounted = lab.give(Input::Recall(both));
    assert_eq!(lab.count(is_mount), 1);
    assert!(mounted.iter().any(is_mount));
    let reading = lab.report("d0", DriveReport::Mounted);
    assert!(has_read(&reading, 7));
    // One more while it is being read.
    lab.give(Input::Recall(vec![recall(3, 7, &[("t", 5)])]));
    lab.report("d0", DriveReport::FileRead(FileId(7)));
    let recalled = |request| (request, RequestOutcome::Recalled);
    assert_eq!(lab.told(), [recalled(1), recalled(2), recalled(3)]);
    assert_eq!(lab.count(|effect| matches!(effect, Effect::Read { .. })), 1);
}

#[test]
fn requests_gather_until_a_mount_is_worth_it() {
    let mut gathering = policy();
    gathering.mount.age_ns = 15 * MINUTE_NS;
    let mut lab = Lab::new(gathering, 1, &["t"]);
    let waits = lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    assert_eq!(waits, [Effect::WakeAt(15 * MINUTE_NS)]);
    lab.now_ns = 15 * MINUTE_NS;
    let mounts = lab.give(Input::Tick);
    assert!(mounts.iter().any(is_mount));
}

#[test]
fn a_late_arrival_is_read_in_the_same_mount_in_either_direction() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 1_000)])]));
    let first = lab.report("d0", DriveReport::Mounted);
    assert!(has_read(&first, 1));
    // One far ahead, and one behind the head, two wraps away at the same place along the tape.
    lab.give(Input::Recall(vec![
        recall(2, 2, &[("t", 9_000)]),
        recall(3, 3, &[("t", 888)]),
    ]));
    let next = lab.report("d0", DriveReport::FileRead(FileId(1)));
    assert!(has_read(&next, 3), "{next:?}");
    assert_eq!(lab.perform(next), [3, 2]);
    assert_eq!(lab.count(is_mount), 1);
}

#[test]
fn what_lies_between_files_counts_as_moved_where_the_drive_reads_over_it() {
    let mut rules = policy();
    rules.read_order = ReadOrder::FromHead;
    let mut lab = Lab::new(rules, 1, &["t"]);
    // A gap of one gigabyte is read over, one of thousands is not.
    let files = [(1, 1_000), (2, 1_003), (3, 9_000)];
    let asked = files.map(|(file, begin)| recall(file, file, &[("t", begin)]));
    lab.give(Input::Recall(asked.to_vec()));
    let reading = lab.report("d0", DriveReport::Mounted);
    assert_eq!(lab.perform(reading), [1, 2, 3]);
    let down = DriveReport::Failed(TapeErrorScope::Drive);
    lab.report("d0", down);
    let mount = lab.engine.live().mounts.closed().next().expect("ended");
    assert_eq!((mount.payload_bytes(), mount.moved_bytes), (6 * GB, 7 * GB));
}

#[test]
fn a_tape_stays_in_a_drive_that_nobody_needs_and_leaves_one_that_others_need() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    let mounted = lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    lab.perform(mounted);
    assert_eq!(
        lab.count(|effect| matches!(effect, Effect::Dismount { .. })),
        0
    );
    let again = lab.give(Input::Recall(vec![recall(2, 2, &[("t", 9)])]));
    assert!(has_read(&again, 2), "without another mount");
    lab.perform(again);
    let other = lab.give(Input::Recall(vec![recall(3, 3, &[("u", 5)])]));
    assert!(
        matches!(other.as_slice(), [Effect::Dismount { .. }, ..]),
        "{other:?}"
    );
    lab.perform(other);
    assert_eq!(lab.told().len(), 3);
    lab.now_ns += 300 * SECOND_NS;
    let delayed = lab.give(Input::Tick);
    assert!(
        matches!(delayed.as_slice(), [Effect::Dismount { .. }, ..]),
        "{delayed:?}"
    );
}

#[test]
fn a_file_is_on_tape_only_after_the_sync_that_covers_it() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let files = (1..=5).map(|file| archive(file, 10)).collect();
    lab.give(Input::Archive(files));
    lab.report("d0", DriveReport::Mounted);
    for file in 1..=4 {
        let next = lab.report("d0", DriveReport::FileWritten(FileId(file)));
        // 32 GB are reached with the fourth file.
        let is_sync = matches!(next.as_slice(), [Effect::Sync { .. }, ..]);
        assert_eq!(is_sync, file == 4, "{next:?}");
        assert_eq!(lab.told(), []);
    }
    lab.report("d0", DriveReport::Synced);
    let place = |file: u64| TapeCopy {
        tape: tape_name("t"),
        begin_bytes: (file - 1) * 10 * GB,
        aggregate: None,
    };
    let archived = |file| (file, RequestOutcome::Archived(vec![place(file)]));
    assert_eq!(
        lab.told(),
        [archived(1), archived(2), archived(3), archived(4)]
    );
    // The fifth is written and not safe when the drive fails: it is written again, to another tape or drive.
    lab.report("d0", DriveReport::FileWritten(FileId(5)));
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Drive));
    assert_eq!(lab.told().len(), 4);
    let live = lab.engine.live();
    let queues = live.families.values().flat_map(BTreeMap::values);
    assert_eq!(queues.map(|queue| queue.files.len()).sum::<usize>(), 1);
    let again = lab.give(Input::DriveUp(drive_name("d0")));
    assert_eq!(lab.perform(again), [5]);
    assert_eq!(lab.told().len(), 5);
}

#[test]
fn an_error_of_a_file_concerns_that_file_and_its_other_copy_is_read() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    lab.give(Input::Recall(vec![
        recall(1, 1, &[("t", 5), ("u", 70)]),
        recall(2, 2, &[("t", 9)]),
        recall(3, 3, &[("t", 12)]),
    ]));
    lab.report("d0", DriveReport::Mounted);
    let next = lab.report("d0", DriveReport::Failed(TapeErrorScope::File));
    assert!(has_read(&next, 2));
    let next = lab.report("d0", DriveReport::Failed(TapeErrorScope::File));
    let failed = (2, RequestOutcome::NoCopyLeft(TapeErrorScope::File));
    assert_eq!(lab.told(), [failed]);
    assert_eq!(lab.perform(next), [3, 1]);
    assert_eq!(lab.count(is_mount), 2);
}

#[test]
fn a_disk_that_takes_no_file_now_is_no_error_of_the_tape_and_other_files_go_on() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    lab.give(Input::Recall(vec![
        recall(1, 1, &[("t", 0)]),
        recall(2, 2, &[("t", 100)]),
    ]));
    lab.report("d0", DriveReport::Mounted);
    let acts = lab.report("d0", DriveReport::NotTaken(FileId(1)));
    assert!(has_read(&acts, 2), "{acts:?}");
    assert_eq!(lab.told(), [(1, RequestOutcome::NotTaken)]);
    assert!(
        !lab.effects
            .iter()
            .any(|effect| matches!(effect, Effect::Open(_)))
    );
    // What was written before a file that the disk does not give is not written again.
    let mut lab = Lab::new(policy(), 1, &["t"]);
    lab.give(Input::Archive(vec![archive(1, 1), archive(2, 1)]));
    lab.report("d0", DriveReport::Mounted);
    lab.report("d0", DriveReport::FileWritten(FileId(1)));
    let acts = lab.report("d0", DriveReport::NotTaken(FileId(2)));
    assert!(
        acts.iter()
            .any(|effect| matches!(effect, Effect::Sync { .. })),
        "{acts:?}"
    );
    lab.report("d0", DriveReport::Synced);
    let told: Vec<u64> = lab.told().iter().map(|(request, _)| *request).collect();
    assert_eq!(told, [2, 1]);
}

#[test]
fn an_error_of_a_tape_sends_its_files_to_their_other_copies() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    lab.give(Input::Recall(vec![
        recall(1, 1, &[("t", 5), ("u", 70)]),
        recall(2, 2, &[("t", 9)]),
    ]));
    let next = lab.report("d0", DriveReport::Failed(TapeErrorScope::Tape));
    let broken = Effect::Open(TapeIncident::TapeBroken(tape_name("t")));
    assert!(next.contains(&broken));
    let failed = (2, RequestOutcome::NoCopyLeft(TapeErrorScope::Tape));
    assert_eq!(lab.told(), [failed]);
    assert_eq!(lab.perform(next), [1]);
    // Nothing of a broken tape is accepted any more.
    lab.give(Input::Recall(vec![recall(3, 3, &[("t", 9)])]));
    assert_eq!(lab.told().last(), Some(&(3, RequestOutcome::NoTape)));
}

#[test]
fn an_error_of_a_library_is_one_incident_and_no_file_fails() {
    let mut lab = Lab::new(policy(), 3, &["t", "u", "v"]);
    let files = [(1, "t"), (2, "u"), (3, "v")];
    let requests = files.map(|(file, tape)| recall(file, file, &[(tape, 5)]));
    lab.give(Input::Recall(requests.to_vec()));
    for drive in ["d0", "d1", "d2"] {
        lab.report(drive, DriveReport::Failed(TapeErrorScope::Library));
    }
    let is_open = |effect: &Effect| matches!(effect, Effect::Open(_));
    assert_eq!((lab.count(is_open), lab.count(is_mount)), (1, 3));
    assert_eq!(lab.told(), []);
    // One mount tries it after a minute, the next two minutes after that has failed.
    lab.now_ns += 2 * MINUTE_NS;
    lab.give(Input::Tick);
    assert_eq!(lab.count(is_mount), 4);
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Library));
    lab.now_ns += MINUTE_NS;
    lab.give(Input::Tick);
    assert_eq!(lab.count(is_mount), 4);
    lab.now_ns += MINUTE_NS;
    lab.give(Input::Tick);
    let works = lab.report("d0", DriveReport::Mounted);
    assert_eq!((lab.count(is_open), lab.count(is_mount)), (1, 7));
    lab.perform(works);
    assert_eq!(lab.told().len(), 3);
}

#[test]
fn a_hung_mount_is_ended_by_the_watchdog() {
    let mut lab = Lab::new(policy(), 2, &["t", "u"]);
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    lab.now_ns = 10 * MINUTE_NS;
    let ended = lab.give(Input::Tick);
    assert!(ended.contains(&Effect::Abort {
        drive: drive_name("d0")
    }));
    // The tape is stuck in the drive. It is known that somebody waits beside a free drive.
    lab.now_ns = 5 * HOUR_NS;
    let waits = lab.give(Input::Tick);
    let target = MountTarget::Recall(tape_name("t"));
    assert!(waits.contains(&Effect::Open(TapeIncident::OldestWaits(target.clone()))));
    let up = lab.give(Input::DriveUp(drive_name("d0")));
    assert!(up.contains(&Effect::Close(TapeIncident::OldestWaits(target))));
    assert_eq!(lab.perform(up), [1]);
}

#[test]
fn a_request_that_is_not_renewed_is_given_up() {
    let mut lab = Lab::new(policy(), 0, &["t"]);
    let lease = |mut request: RecallRequest, minutes| {
        request.asker.lease_ns = minutes * MINUTE_NS;
        request
    };
    lab.give(Input::Recall(vec![
        lease(recall(1, 1, &[("t", 5)]), 10),
        lease(recall(2, 1, &[("t", 5)]), 10),
        lease(recall(3, 2, &[("t", 9)]), 10),
    ]));
    let lease_ns = 30 * MINUTE_NS;
    lab.give(Input::Renew {
        request: RequestId(2),
        lease_ns,
    });
    lab.now_ns = 10 * MINUTE_NS;
    lab.give(Input::Tick);
    let expired = |request| (request, RequestOutcome::Expired);
    assert_eq!(lab.told(), [expired(1), expired(3)]);
    let live = lab.engine.live();
    assert_eq!(
        (live.recalls.len(), live.queues[&tape_name("t")].files.len()),
        (1, 1)
    );
    lab.give(Input::Cancel(vec![RequestId(2)]));
    let live = lab.engine.live();
    assert!(live.recalls.is_empty() && live.queues.is_empty() && live.leases.is_empty());
}

#[test]
fn a_cancel_of_many_files_is_kept_at_once() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    let files = 1..=5_000;
    let recalls = files.clone().map(|file| recall(file, file, &[("t", file)]));
    lab.give(Input::Recall(recalls.collect()));
    let requests = files.map(RequestId).collect();
    let effects = lab.engine.handle(lab.now_ns, Input::Cancel(requests));
    let kept = |effect: &Effect| match effect {
        Effect::Persist(records) => Some(records.len()),
        _ => None,
    };
    let kept: Vec<usize> = effects.iter().filter_map(kept).collect();
    assert_eq!(kept.len(), 1, "one commit");
    assert!(kept[0] >= 5_000);
    assert!(
        lab.engine.live().recalls.len() <= 1,
        "but for what a drive is reading"
    );
}

/// Queues, leases and drives hold exactly what requests and files say.
fn check_indexes(live: &LiveSet) {
    for (file, entry) in &live.recalls {
        let queue = entry.tape().and_then(|tape| live.queues.get(tape));
        let is_queued = queue.is_some_and(|queue| queue.files.contains(file));
        assert_eq!(is_queued, entry.read_by.is_none(), "{file:?}");
        assert!(!entry.askers.is_empty() || entry.read_by.is_some());
        for (request, asker) in &entry.askers {
            assert!(live.leases.contains(&(asker.lease_ns, *request)));
            assert_eq!(
                live.requests.get(request),
                Some(&RequestTarget::Recall(*file))
            );
        }
    }
    // Each missing copy is queued once, and each copy that is not safe is in one drive.
    let mut queued = BTreeSet::new();
    for groups in live.families.values() {
        for (group, queue) in groups {
            for (since_ns, file) in &queue.files {
                let entry = &live.archives[file];
                assert_eq!(
                    (entry.since_ns, entry.missing()),
                    (*since_ns, group.missing)
                );
                assert!(entry.copies.keys().eq(&group.taken) && group.missing > 0);
                assert!(queued.insert(*file), "{file:?} is queued twice");
            }
        }
    }
    let mut unsafe_copies = 0;
    for (file, entry) in &live.archives {
        assert_eq!(
            queued.contains(file),
            entry.missing() > 0 && !entry.askers.is_empty()
        );
        let stages = entry.copies.values();
        let open = stages.filter(|stage| !matches!(stage, CopyStage::Synced(_)));
        let open = open.count();
        assert!(open > 0 || !entry.askers.is_empty());
        unsafe_copies += open;
    }
    let in_drives = live.drives.0.values().map(|drive| match &drive.state {
        DriveState::Mounted(mount) => {
            let working = match &mount.work {
                DriveWork::Writing(_) => 1,
                DriveWork::WritingAggregate(members) => members.len(),
                _ => 0,
            };
            working + mount.unsynced.len()
        }
        _ => 0,
    });
    assert_eq!(unsafe_copies, in_drives.sum::<usize>());
    let queued: usize = live.queues.values().map(|queue| queue.files.len()).sum();
    let unread = live
        .recalls
        .values()
        .filter(|entry| entry.read_by.is_none());
    assert_eq!(queued, unread.count());
    assert_eq!(live.leases.len(), live.requests.len());
    let tapes = live
        .drives
        .0
        .values()
        .filter_map(|drive| drive.state.tape());
    assert_eq!(
        tapes.count(),
        live.drives.tapes().len(),
        "no tape is in two drives"
    );
}

/// What drives may say next, failures among it.
fn random_report(chance: &mut Chance, state: &DriveState) -> Option<DriveReport> {
    let failure = [
        TapeErrorScope::File,
        TapeErrorScope::Tape,
        TapeErrorScope::Drive,
        TapeErrorScope::Library,
    ];
    if chance.below(12) == 0 && *state != DriveState::Free {
        let scope = failure[usize::try_from(chance.below(4)).expect("small")];
        return Some(DriveReport::Failed(scope));
    }
    Some(match state {
        DriveState::Free | DriveState::Down { .. } => return None,
        DriveState::Mounting { .. } => DriveReport::Mounted,
        DriveState::Dismounting { .. } => DriveReport::Dismounted,
        DriveState::Mounted(mount) => match &mount.work {
            DriveWork::Idle { .. } => return None,
            DriveWork::Reading(file) | DriveWork::Writing(file) if chance.below(8) == 0 => {
                DriveReport::NotTaken(*file)
            }
            DriveWork::Reading(file) if chance.below(4) == 0 => DriveReport::FileVerified(*file),
            DriveWork::Reading(file) => DriveReport::FileRead(*file),
            DriveWork::Writing(file) => DriveReport::FileWritten(*file),
            DriveWork::WritingAggregate(members) => match chance.below(10) {
                0 => DriveReport::NotTaken(members[0]),
                1 => DriveReport::TapeFull,
                _ => DriveReport::AggregateWritten,
            },
            DriveWork::Syncing => DriveReport::Synced,
        },
    })
}

fn random_input(chance: &mut Chance, lab: &Lab, next: &mut u64) -> Input {
    const TAPES: [&str; 4] = ["t", "u", "v", "w"];
    *next += 1;
    let copies = [
        (
            TAPES[usize::try_from(chance.below(4)).expect("small")],
            chance.below(11_000),
        ),
        (
            TAPES[usize::try_from(chance.below(4)).expect("small")],
            chance.below(11_000),
        ),
    ];
    match chance.below(16) {
        0 | 1 => {
            let mut request = recall(*next, chance.below(40), &copies);
            request.asker.lease_ns = lab.now_ns + HOUR_NS;
            request.purpose = match chance.below(4) {
                0 => ReadPurpose::Verification,
                1 => ReadPurpose::Repack,
                _ => ReadPurpose::Users,
            };
            Input::Recall(vec![request])
        }
        2 => {
            // Some with a copy in each library, some to be packed, some of a data set.
            let requests = (0..1 + chance.below(4)).map(|_| {
                *next += 1;
                let mut request = archive(*next, 1 + chance.below(20));
                request.asker.lease_ns = lab.now_ns + HOUR_NS;
                request.wishes.copies = 1 + u32::try_from(chance.below(2)).expect("small");
                request.wishes.is_packed = chance.below(2) == 0;
                request.wishes.data_set = (chance.below(3) == 0).then(|| data_set("set", 6));
                request
            });
            Input::Archive(requests.collect())
        }
        3 => Input::Cancel(vec![RequestId(chance.below(*next))]),
        4 => Input::Tick,
        5 if chance.below(3) == 0 => Input::RetryLibraries,
        5 => Input::DriveUp(drive_name(&format!("d{}", chance.below(3)))),
        6 => Input::TapeChanged {
            tape: tape_name(copies[0].0),
            state: [TapeState::Active, TapeState::ReadOnly][usize::from(chance.below(3) == 0)],
        },
        _ => {
            let drive = drive_name(&format!("d{}", chance.below(3)));
            let state = lab.engine.state(&drive).cloned();
            let report = state.and_then(|state| random_report(chance, &state));
            match report {
                Some(report) => Input::Report { drive, report },
                None => Input::Tick,
            }
        }
    }
}

impl Lab {
    /// The last input's records were kept, and nothing of what was to be done after that was.
    fn forget_acts(&mut self, acts: &[Effect], asked: &mut BTreeSet<u64>) {
        let kept = self.effects.len() - acts.len();
        self.effects.truncate(kept);
        for act in acts {
            if let Effect::Tell { request, .. } = act
                && !self.engine.live().settled.contains_key(request)
            {
                // Refused at once, without a record: whoever has asked asks again.
                asked.remove(&request.0);
            }
        }
    }
}

#[test]
fn an_end_that_a_crash_has_kept_from_being_told_is_told_after_it_and_then_no_more() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let mut open = lab.give(Input::Archive(vec![archive(7, 10)]));
    let is_told = |effect: &Effect| matches!(effect, Effect::Tell { .. });
    while !open.iter().any(is_told) {
        lab.effects.clear();
        let act = open.remove(0);
        let report = match act {
            Effect::Mount { .. } => DriveReport::Mounted,
            Effect::Write { file, .. } => DriveReport::FileWritten(file),
            Effect::Sync { .. } => DriveReport::Synced,
            _ => continue,
        };
        open.extend(lab.report("d0", report));
    }
    let told = lab.told();
    assert!(
        matches!(told[..], [(7, RequestOutcome::Archived(_))]),
        "{told:?}"
    );
    // The record of the end is kept, and nobody has heard of it.
    let restart = |lab: &mut Lab| {
        let kinds = lab.engine.kinds.clone();
        lab.engine = RequestEngine::restore(policy(), kinds, &lab.records);
        lab.effects.clear();
        for effect in lab.engine.resume(lab.now_ns) {
            match effect {
                Effect::Persist(records) => lab.records.extend(records),
                effect => lab.effects.push(effect),
            }
        }
    };
    restart(&mut lab);
    assert_eq!(lab.told(), told);
    let dismounts = |effect: &Effect| matches!(effect, Effect::Dismount { .. });
    let is_dismounted = lab.effects.iter().any(dismounts);
    assert!(is_dismounted, "another mount tells where data ends");
    // So is a snapshot that was made before it was told.
    lab.records = vec![lab.engine.snapshot()];
    restart(&mut lab);
    assert_eq!(lab.told(), told);
    // With the next input it counts as told.
    lab.give(Input::Tick);
    restart(&mut lab);
    assert_eq!(lab.told(), []);
    assert!(
        lab.engine.live().archives.is_empty(),
        "nothing is written again"
    );
}

/// Each step compares the engine with one that is made of its records; now and then that one takes its place.
#[test]
fn a_restart_at_any_step_knows_the_same_and_loses_nothing() {
    for seed in 0..40 {
        let mut chance = Chance::new(seed);
        let one: (&str, &[&str], &[&str]) = ("one", &["d0", "d1"], &["t", "u"]);
        let two: (&str, &[&str], &[&str]) = ("two", &["d2"], &["v", "w"]);
        let mut lab = Lab::with_libraries(policy(), &[one, two]);
        let (mut next, mut asked) = (0, BTreeSet::new());
        for _ in 0..300 {
            lab.now_ns += SECOND_NS * chance.below(120).cast_signed();
            let input = random_input(&mut chance, &lab, &mut next);
            match &input {
                Input::Recall(requests) => asked.extend(requests.iter().map(|one| one.request.0)),
                Input::Archive(requests) => asked.extend(requests.iter().map(|one| one.request.0)),
                _ => {}
            }
            let acts = lab.give(input);
            check_indexes(lab.engine.live());
            if chance.below(20) == 0 {
                // Records are cut short, and go through the form in which they are stored.
                let stored = serde_json::to_string(&lab.engine.snapshot()).expect("stored");
                let read: Record = serde_json::from_str(&stored).expect("read");
                assert_eq!(read, lab.engine.snapshot());
                lab.records = vec![read];
            }
            if chance.below(20) == 0 {
                if chance.below(2) == 0 {
                    lab.forget_acts(&acts, &mut asked);
                }
                let kinds = lab.engine.kinds.clone();
                let mut restored = RequestEngine::restore(policy(), kinds, &lab.records);
                // What was ordered is ordered again, under the same names.
                let ordered = restored.resume(lab.now_ns);
                lab.engine = restored;
                for effect in ordered {
                    match effect {
                        Effect::Persist(records) => lab.records.extend(records),
                        effect => lab.effects.push(effect),
                    }
                }
            }
        }
        // Each request has one end, which may be told again after a restart, or is still known.
        let mut ends = BTreeMap::new();
        for (request, outcome) in lab.told() {
            let first = ends.entry(request).or_insert_with(|| outcome.clone());
            assert_eq!(*first, outcome, "seed {seed}");
        }
        let mut known: Vec<u64> = ends.into_keys().collect();
        known.extend(lab.engine.live().requests.keys().map(|request| request.0));
        known.sort_unstable();
        assert_eq!(known, asked.into_iter().collect::<Vec<_>>(), "seed {seed}");
    }
}

/// A drive that is not as its model, and which tells of its wraps or does not.
fn hidden_drive(tells_wrap_ends: bool) -> LoadedDrive {
    let kind = hidden_kind(tells_wrap_ends);
    let mut cartridge = Cartridge::of_kind(&kind, 5);
    LoadedDrive::load(&kind, &mut cartridge, Chance::new(5)).0
}

fn hidden_kind(tells_wrap_ends: bool) -> DriveKind {
    let mut kind = DriveKind::named("LTO-8").expect("a kind");
    kind.wrap_jitter_permille = 200;
    kind.tells_wrap_ends = tells_wrap_ends;
    kind.model.locate.longitudinal_ns = kind.model.locate.longitudinal_ns * 6 / 5;
    kind.model.locate.base_ns = kind.model.locate.base_ns * 4 / 5;
    kind
}

/// Recalls the same hundred files once more: how long the drive located, and in which order files were read.
fn campaign(lab: &mut Lab, hidden: &LoadedDrive, number: u64) -> (i64, Vec<u64>) {
    let mut chance = Chance::new(3);
    let file = |file: u64| {
        let begin_gb = file * 118 + chance.below(110);
        recall(number * 100 + file, file, &[("t", begin_gb)])
    };
    let requests = (0..100).map(file).collect();
    let mut open = lab.give(Input::Recall(requests));
    let (mut drive, mut located_ns, mut files) = (hidden.clone(), 0, Vec::new());
    while !open.is_empty() {
        let (drive_name, report) = match open.remove(0) {
            Effect::Mount { drive: name, .. } => {
                if let Some(ends) = drive.wrap_ends_bytes() {
                    let wrap_ends_bytes = ends.to_vec();
                    let told = DriveReport::WrapEnds { wrap_ends_bytes };
                    open.extend(lab.report(&name.0, told));
                }
                if let Some(files_max) = drive.read_order_max() {
                    let told = DriveReport::OrdersReads { files_max };
                    open.extend(lab.report(&name.0, told));
                }
                (name, DriveReport::Mounted)
            }
            Effect::AskOrder {
                drive: name,
                after_bytes,
                files,
            } => {
                let Some(files) = drive.read_order(after_bytes, &files) else {
                    continue;
                };
                (name, DriveReport::ReadsOrdered { files })
            }
            Effect::Read {
                drive: name,
                file,
                begin_bytes,
                size_bytes,
            } => {
                let took_ns = drive.locate(begin_bytes);
                drive.stream(size_bytes, HostFeed::UNLIMITED);
                located_ns += took_ns;
                files.push(file.0);
                open.extend(lab.report(&name.0, DriveReport::Located { took_ns }));
                (name, DriveReport::FileRead(file))
            }
            Effect::Dismount { drive: name, .. } => (name, DriveReport::Dismounted),
            _ => continue,
        };
        open.extend(lab.report(&drive_name.0, report));
    }
    assert_eq!(files.len(), 100);
    lab.now_ns += HOUR_NS;
    let dismount = lab.give(Input::Tick);
    lab.perform(dismount);
    (located_ns, files)
}

#[test]
fn a_drive_is_learnt_from_its_locates_and_a_restart_keeps_what_was_learnt() {
    let mut rules = policy();
    rules.order_effort = OrderEffort(200_000);
    let mut lab = Lab::new(rules.clone(), 1, &["t"]);
    let hidden = hidden_drive(false);
    let (first_ns, _) = campaign(&mut lab, &hidden, 1);
    campaign(&mut lab, &hidden, 2);
    let known = lab.engine.live().locates[&tape_name("t")].len();
    assert!((150..=200).contains(&known), "{known} locates are kept");
    // A restart in between: records as they lie on disk.
    let text = serde_json::to_string(&lab.records).expect("written");
    let records: Vec<Record> = serde_json::from_str(&text).expect("read");
    let kinds = lab.engine.kinds.clone();
    let mut other = Lab {
        engine: RequestEngine::restore(rules, kinds, &records),
        records,
        now_ns: lab.now_ns,
        effects: Vec::new(),
    };
    let (third_ns, order) = campaign(&mut other, &hidden, 3);
    println!("the same files: {first_ns} ns of locates, after two campaigns {third_ns} ns");
    // Short locates of good orders tell coefficients, and nothing of wraps: orders are about as good as before.
    assert!(third_ns * 100 < first_ns * 105, "{first_ns} {third_ns}");
    assert_eq!(order, campaign(&mut lab, &hidden, 3).1);
}

#[test]
fn a_drive_that_tells_where_wraps_end_is_believed_at_once() {
    let mut rules = policy();
    rules.order_effort = OrderEffort(200_000);
    let mut lab = Lab::new(rules.clone(), 1, &["t"]);
    let silent = campaign(&mut lab, &hidden_drive(false), 1).0;
    let mut lab = Lab::new(rules, 1, &["t"]);
    let hidden = hidden_drive(true);
    let told = campaign(&mut lab, &hidden, 1).0;
    campaign(&mut lab, &hidden, 2);
    assert!(told * 100 < silent * 90, "{silent} {told}");
    let facts = &lab.engine.live().tapes[&tape_name("t")];
    assert_eq!(facts.wrap_ends_bytes.as_deref(), hidden.wrap_ends_bytes());
    let measured = |record: &&Record| matches!(record, Record::TapeMeasured { .. });
    assert_eq!(lab.records.iter().filter(measured).count(), 1);
}

#[test]
fn a_drive_that_orders_reads_is_followed_and_locates_for_less_time() {
    let mut rules = policy();
    rules.order_effort = OrderEffort(200_000);
    let mut lab = Lab::new(rules.clone(), 1, &["t"]);
    let by_model = campaign(&mut lab, &hidden_drive(false), 1).0;
    let mut lab = Lab::new(rules.clone(), 1, &["t"]);
    let by_drive = campaign(&mut lab, &hidden_drive_that_orders(100), 1).0;
    println!("locates by the model's order: {by_model} ns, by the drive's: {by_drive} ns");
    assert!(by_drive * 100 < by_model * 90, "{by_model} {by_drive}");
    // More files than it takes: the order is found here.
    let mut lab = Lab::new(rules, 1, &["t"]);
    assert_eq!(
        campaign(&mut lab, &hidden_drive_that_orders(50), 1).0,
        by_model
    );
    assert_eq!(
        lab.count(|effect| matches!(effect, Effect::AskOrder { .. })),
        0
    );
}

fn hidden_drive_that_orders(files_max: u32) -> LoadedDrive {
    let mut kind = hidden_kind(false);
    kind.read_order_max = Some(files_max);
    let mut cartridge = Cartridge::of_kind(&kind, 5);
    LoadedDrive::load(&kind, &mut cartridge, Chance::new(5)).0
}

/// Five files on one tape in a drive that orders reads: the order in which they are read when it answers this after so many.
fn read_in_order(answer: &[u64], after_files: usize) -> Vec<u64> {
    let mut rules = policy();
    rules.order_effort = OrderEffort(200_000);
    let mut lab = Lab::new(rules, 1, &["t"]);
    let file = |file: u64| recall(file, file, &[("t", file * 100)]);
    let mut open = lab.give(Input::Recall((1..=5).map(file).collect()));
    let mut read = Vec::new();
    lab.report("d0", DriveReport::OrdersReads { files_max: 10 });
    open.extend(lab.report("d0", DriveReport::Mounted));
    let asked = open.iter().find_map(|effect| match effect {
        Effect::AskOrder { files, .. } => Some(files.len()),
        _ => None,
    });
    assert_eq!(asked, Some(4));
    while !open.is_empty() {
        if read.len() == after_files {
            let files = answer.iter().map(|file| FileId(*file)).collect();
            lab.report("d0", DriveReport::ReadsOrdered { files });
        }
        if let Effect::Read { file, .. } = open.remove(0) {
            read.push(file.0);
            open.extend(lab.report("d0", DriveReport::FileRead(file)));
        }
    }
    read
}

#[test]
fn an_order_of_a_drive_counts_only_if_it_names_all_files_and_makes_sense() {
    let ours = read_in_order(&[], 9);
    assert_eq!(ours, [1, 2, 5, 3, 4]);
    // About as good; also when its first file has been begun meanwhile, and with a name that is not known.
    let theirs = [1, 2, 5, 4, 3];
    assert_eq!(read_in_order(&[2, 5, 4, 3], 0), theirs);
    assert_eq!(read_in_order(&[5, 4, 2, 3], 1), theirs);
    assert_eq!(read_in_order(&[9, 2, 5, 4, 3], 0), theirs);
    // A file is missing, or another stands in its place.
    for answer in [&[2, 4, 3][..], &[5, 5, 4, 3], &[9, 2, 5, 4], &[]] {
        assert_eq!(read_in_order(answer, 0), ours, "{answer:?}");
    }
}

#[test]
fn an_order_of_a_drive_that_takes_much_longer_is_not_followed() {
    let mut rules = policy();
    rules.order_effort = OrderEffort(200_000);
    let mut lab = Lab::new(rules, 1, &["t"]);
    // Along the tape there and back, again and again.
    let files: Vec<FilePlace> = (0..40)
        .map(|file| FilePlace {
            file: FileId(file),
            begin_bytes: (1 + file * 290) * 1_000_000_000,
            size_bytes: 1_000_000,
        })
        .collect();
    let ask = |file: &FilePlace| {
        let begin_gb = file.begin_bytes / 1_000_000_000;
        recall(file.file.0, file.file.0, &[("t", begin_gb)])
    };
    let mut open = lab.give(Input::Recall(files.iter().map(ask).collect()));
    lab.report("d0", DriveReport::OrdersReads { files_max: 100 });
    open.extend(lab.report("d0", DriveReport::Mounted));
    let planned: Vec<FileId> = lab.engine.orders[&drive_name("d0")]
        .files
        .iter()
        .copied()
        .collect();
    let mut by_number = planned.clone();
    by_number.sort_unstable();
    lab.report("d0", DriveReport::ReadsOrdered { files: by_number });
    let kept: Vec<FileId> = lab.engine.orders[&drive_name("d0")]
        .files
        .iter()
        .copied()
        .collect();
    assert_eq!(kept, planned);
}

#[test]
fn a_locate_from_an_unknown_place_tells_nothing() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    lab.give(Input::Recall(vec![
        recall(1, 1, &[("t", 5_000)]),
        recall(2, 2, &[("t", 9_000)]),
    ]));
    lab.report("d0", DriveReport::Mounted);
    let took_ns = 60 * SECOND_NS;
    lab.report("d0", DriveReport::Located { took_ns });
    // Where the head is after a failure nobody knows.
    let next = lab.report("d0", DriveReport::Failed(TapeErrorScope::File));
    lab.report("d0", DriveReport::Located { took_ns });
    lab.perform(next);
    assert_eq!(lab.engine.live().locates.len(), 0);
    // What is told again after a restart may have been done before.
    lab.give(Input::Recall(vec![recall(3, 3, &[("t", 2_000)])]));
    let again = lab.engine.resume(lab.now_ns);
    assert!(has_read(&again, 3));
    lab.report("d0", DriveReport::Located { took_ns });
    lab.report("d0", DriveReport::FileRead(FileId(3)));
    assert_eq!(lab.engine.live().locates.len(), 0);
}

#[test]
fn a_drive_counts_against_its_bound_until_it_is_empty() {
    let mut policy = policy();
    policy.dismount_delay_ns = 0;
    let bounds = crate::mount_decision::DrivesMax {
        recall: 1,
        archive: 0,
    };
    policy.mount.drives_max.insert("LTO-8".to_owned(), bounds);
    let mut lab = Lab::new(policy, 2, &["t", "u"]);
    let asked = vec![recall(1, 1, &[("t", 5)]), recall(2, 2, &[("u", 5)])];
    let is_mount = |effect: &Effect| matches!(effect, Effect::Mount { .. });
    let is_dismount = |effect: &Effect| matches!(effect, Effect::Dismount { .. });
    let first = lab.give(Input::Recall(asked));
    assert_eq!(first.iter().filter(|effect| is_mount(effect)).count(), 1);
    lab.report("d0", DriveReport::Mounted);
    let read = lab.report("d0", DriveReport::FileRead(FileId(1)));
    assert!(read.iter().any(is_dismount), "{read:?}");
    // The other drive is free, and the first one is not yet.
    assert!(!read.iter().any(is_mount), "{read:?}");
    assert!(!lab.give(Input::Tick).iter().any(is_mount));
    let empty = lab.report("d0", DriveReport::Dismounted);
    assert!(empty.iter().any(is_mount), "{empty:?}");
}

#[test]
fn a_drive_that_waits_for_more_is_decided_about_once() {
    let mut policy = policy();
    policy.dismount_delay_ns = 5 * MINUTE_NS;
    let mut lab = Lab::new(policy, 2, &["t", "u"]);
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    let asked = [
        recall(2, 2, &[("u", 5)]),
        recall(3, 3, &[("u", 50)]),
        recall(4, 4, &[("u", 90)]),
    ];
    lab.give(Input::Recall(asked.to_vec()));
    lab.report("d0", DriveReport::Mounted);
    lab.report("d1", DriveReport::Mounted);
    lab.report("d0", DriveReport::FileRead(FileId(1)));
    let work = |lab: &Lab| lab.engine.work_of(&drive_name("d0")).cloned();
    assert!(matches!(work(&lab), Some(DriveWork::Idle { .. })));
    // Each decision says anew when the next one is due.
    lab.engine.next_worth_ns = Some(1_000 * HOUR_NS);
    lab.report("d1", DriveReport::Moved { bytes: GB });
    lab.report("d1", DriveReport::FileRead(FileId(2)));
    assert_eq!(lab.engine.next_worth_ns, Some(1_000 * HOUR_NS));
    // What comes is decided about, and so is what is over.
    lab.give(Input::Recall(vec![recall(5, 5, &[("t", 9)])]));
    assert_eq!(lab.engine.next_worth_ns, None);
    assert_eq!(work(&lab), Some(DriveWork::Reading(FileId(5))));
    lab.report("d0", DriveReport::FileRead(FileId(5)));
    lab.now_ns += 5 * MINUTE_NS;
    let over = lab.give(Input::Tick);
    assert!(
        over.iter()
            .any(|effect| matches!(effect, Effect::Dismount { .. })),
        "{over:?}"
    );
}
