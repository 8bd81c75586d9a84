//! Files on tape: what stays on disk, what may go, and what is owed to tape systems.

use super::*;
use penstock_model::StageRequestId;

fn p1() -> PoolName {
    PoolName::new("p1")
}

fn after_now(seconds: u64) -> Timestamp {
    NOW + Duration::from_secs(seconds)
}

impl Lab {
    fn write_precious(&self, at: &str) -> EntryId {
        let file = NewFile {
            archival: Archival::Precious,
            ..self.new_file(at, 10)
        };
        let id = file.id;
        self.make(Change::Publish(file)).expect("published");
        id
    }

    fn nearline(&self, change: NearlineChange) -> Result<ChangeReport, String> {
        self.make(Change::Nearline(change))
    }

    fn archive(&self, file: EntryId) {
        let archived = NearlineChange::Archived {
            file,
            uris: vec![format!("hsm://t/{file}")],
            at: NOW,
        };
        self.nearline(archived).expect("kept");
    }

    fn evict(&self, file: EntryId, at: Timestamp) -> Result<ChangeReport, String> {
        self.nearline(NearlineChange::Evict {
            file,
            pool: p1(),
            at,
        })
    }

    fn recall(&self, file: EntryId) -> Result<ChangeReport, String> {
        self.nearline(NearlineChange::Recalled {
            file,
            pool: p1(),
            at: LATER,
        })
    }

    fn stage(&self, id: &str, file: EntryId, pin_seconds: u64) {
        let staged = StagedFile {
            path: "/f".to_owned(),
            entry: Some(file),
            pin: Duration::from_secs(pin_seconds),
            pinned_until: None,
            state: StageFileState::Submitted,
            error: None,
            started: None,
            finished: None,
        };
        let request = NewStageRequest {
            id: StageRequestId::new(id),
            user: Some(UserName::new("alice")),
            vo: None,
            at: NOW,
            files: vec![staged],
        };
        self.nearline(NearlineChange::Stage(request)).expect("kept");
    }

    fn staged(&self, id: &str) -> StagedFile {
        let request = self.namespace().stage_request(&StageRequestId::new(id));
        request.expect("readable").expect("kept").files.remove(0)
    }

    fn place(&self, at: &str) -> (Option<PoolName>, Archival) {
        match self.find(at).expect("there").kind {
            EntryKind::File { pool, archival, .. } => (pool, archival),
            EntryKind::Directory => panic!("a directory"),
        }
    }

    fn removals(&self, at: Timestamp) -> Vec<String> {
        let owed = self.namespace().tape_removals(at, 10).expect("readable");
        owed.into_iter().map(|owed| owed.uri).collect()
    }
}

#[test]
fn a_copy_on_disk_goes_only_when_its_file_is_on_tape_and_pinned_by_nobody() {
    let lab = Lab::new();
    let (precious, plain) = (lab.write_precious("/f"), lab.write("/g"));
    assert!(lab.evict(precious, NOW).is_err(), "not on tape");
    assert!(lab.evict(plain, NOW).is_err(), "never on tape");
    let waiting = lab.namespace().precious_files(EntryId(0), 10);
    assert_eq!(waiting.expect("readable").len(), 1);
    lab.archive(precious);
    assert_eq!(lab.place("/f"), (Some(p1()), Archival::Cached));
    lab.evict(precious, NOW).expect("may go");
    assert_eq!(lab.place("/f"), (None, Archival::Cached));
    assert_eq!(lab.usage().files, 1, "the other one");
    assert!(lab.evict(precious, NOW).is_err(), "not twice");
    let trash = lab.trash();
    assert_eq!(ids(&trash), [precious]);
    assert_eq!(trash[0].removed, Timestamp(0), "over its time");
}

fn ids(trash: &[TrashedFile]) -> Vec<EntryId> {
    trash.iter().map(|kept| kept.file).collect()
}

#[test]
fn a_recall_waits_for_the_removal_of_the_data_before_and_pins_for_all_who_asked() {
    let lab = Lab::new();
    let file = lab.write_precious("/f");
    assert!(lab.recall(file).is_err(), "on disk");
    lab.archive(file);
    lab.evict(file, NOW).expect("may go");
    lab.stage("a", file, 60);
    lab.stage("b", file, 600);
    assert!(lab.recall(file).is_err(), "its data is still being removed");
    let restored = lab.make(Change::RestoreTrash {
        file,
        to: path("/other"),
        at: NOW,
    });
    assert!(restored.is_err(), "it is there already");
    lab.make(Change::ForgetTrash(vec![file]))
        .expect("forgotten");
    assert_eq!(lab.removals(after_now(1_000_000)), Vec::<String>::new());
    let started = NearlineChange::RecallStarted { file, at: NOW };
    lab.nearline(started).expect("kept");
    assert_eq!(lab.staged("a").state, StageFileState::Started);
    lab.recall(file).expect("there again");
    assert_eq!(lab.place("/f"), (Some(p1()), Archival::Cached));
    assert_eq!((lab.usage().files, lab.usage().bytes), (1, Bytes(10)));
    for (id, seconds) in [("a", 60), ("b", 600)] {
        let staged = lab.staged(id);
        let until = Some(LATER + Duration::from_secs(seconds));
        assert_eq!(
            (staged.state, staged.pinned_until),
            (StageFileState::Completed, until)
        );
    }
    let evictable = |seconds| {
        let found = lab
            .namespace()
            .evictable_files(&p1(), EntryId(0), after_now(seconds), 10);
        found.expect("readable").len()
    };
    assert_eq!((evictable(100), evictable(700)), (0, 1));
    assert!(lab.evict(file, after_now(100)).is_err(), "pinned");
    let released = NearlineChange::ReleaseStaged {
        request: StageRequestId::new("b"),
        files: vec![0],
        at: LATER,
    };
    lab.nearline(released).expect("kept");
    lab.evict(file, after_now(100)).expect("let go by the last");
}

#[test]
fn copies_on_tape_of_removed_files_are_owed_to_be_removed_once_nobody_can_bring_them_back() {
    let lab = Lab::new();
    let (cached, only) = (lab.write_precious("/c"), lab.write_precious("/t"));
    lab.archive(cached);
    lab.archive(only);
    lab.evict(only, NOW).expect("may go");
    lab.make(Change::ForgetTrash(vec![only]))
        .expect("forgotten");
    lab.remove("/c", 10).expect("removed");
    lab.remove("/t", 10).expect("removed");
    assert_eq!(
        lab.removals(after_now(60)),
        Vec::<String>::new(),
        "too early"
    );
    let week = after_now(8 * 86_400);
    assert_eq!(lab.removals(week), [format!("hsm://t/{only}")]);
    lab.make(Change::RestoreTrash {
        file: cached,
        to: path("/c"),
        at: LATER,
    })
    .expect("restored");
    assert_eq!(lab.place("/c"), (Some(p1()), Archival::Cached));
    lab.remove("/c", 10).expect("removed again");
    lab.make(Change::ForgetTrash(vec![cached]))
        .expect("forgotten");
    let never = Timestamp(i64::MAX);
    assert!(lab.removals(never).contains(&format!("hsm://t/{cached}")));
    let done = NearlineChange::ForgetRemovals(vec![format!("hsm://t/{cached}")]);
    lab.nearline(done).expect("kept");
    assert_eq!(lab.removals(never), [format!("hsm://t/{only}")]);
}

#[test]
fn a_file_that_is_removed_while_it_is_put_on_tape_leaves_a_copy_there_to_be_removed() {
    let lab = Lab::new();
    let file = lab.write_precious("/f");
    lab.remove("/f", 10).expect("removed");
    lab.archive(file);
    assert_eq!(lab.removals(after_now(8 * 86_400)), Vec::<String>::new());
    lab.make(Change::ForgetTrash(vec![file]))
        .expect("forgotten");
    assert_eq!(lab.removals(Timestamp(i64::MAX)).len(), 1);
    let gone = lab.write_precious("/g");
    lab.remove("/g", 10).expect("removed");
    lab.make(Change::ForgetTrash(vec![gone]))
        .expect("forgotten");
    lab.archive(gone);
    assert_eq!(lab.removals(Timestamp(i64::MAX)).len(), 2);
}

#[test]
fn requests_and_the_journal_survive_a_restart_and_what_is_over_is_forgotten() {
    let mut lab = Lab::new();
    let file = lab.write_precious("/f");
    lab.archive(file);
    lab.evict(file, NOW).expect("may go");
    lab.stage("a", file, 60);
    let records = vec!["one".to_owned(), "two".to_owned()];
    lab.nearline(NearlineChange::AppendJournal(records))
        .expect("kept");
    lab.restart();
    let awaited = lab.namespace().awaited_files(EntryId(0), 10);
    assert_eq!(awaited.expect("readable"), [file]);
    assert_eq!(
        lab.namespace().tape_journal().expect("readable"),
        ["one", "two"]
    );
    let cut = NearlineChange::ReplaceJournal(vec!["three".to_owned()]);
    lab.nearline(cut).expect("kept");
    assert_eq!(lab.namespace().tape_journal().expect("readable"), ["three"]);
    let prune = |at| NearlineChange::PruneStages { before: LATER, at };
    assert_eq!(
        lab.nearline(prune(LATER)).expect("kept").pruned,
        0,
        "it waits"
    );
    let failed = NearlineChange::RecallFailed {
        file,
        error: "no tape".to_owned(),
        at: LATER,
    };
    lab.nearline(failed).expect("kept");
    let staged = lab.staged("a");
    assert_eq!(
        (staged.state, staged.error.as_deref()),
        (StageFileState::Failed, Some("no tape"))
    );
    assert_eq!(lab.nearline(prune(LATER)).expect("kept").pruned, 1);
}

#[test]
fn a_copy_on_disk_that_was_lost_leaves_a_file_on_tape_and_who_was_told_otherwise_waiting() {
    let lab = Lab::new();
    let (cached, plain) = (lab.write_precious("/f"), lab.write("/g"));
    let lose = |file| {
        lab.nearline(NearlineChange::LoseDiskCopy {
            file,
            pool: p1(),
            at: NOW,
        })
    };
    assert!(lose(cached).is_err(), "not on tape yet");
    assert!(lose(plain).is_err(), "never on tape");
    lab.archive(cached);
    lab.stage("a", cached, 600);
    assert_eq!(lab.staged("a").state, StageFileState::Completed);
    lose(cached).expect("kept");
    assert_eq!(lab.place("/f"), (None, Archival::Cached));
    assert_eq!(
        (lab.staged("a").state, lab.usage().files),
        (StageFileState::Submitted, 1)
    );
    assert_eq!(lab.trash(), Vec::new(), "there is nothing to be removed");
    lab.recall(cached).expect("brought");
    assert_eq!(lab.staged("a").state, StageFileState::Completed);
}

#[test]
fn data_of_before_in_another_pool_hinders_a_second_eviction_and_no_recall() {
    let lab = Lab::new();
    let file = lab.write_precious("/f");
    lab.archive(file);
    lab.evict(file, NOW).expect("may go");
    let p2 = || PoolName::new("p2");
    let recalled = NearlineChange::Recalled {
        file,
        pool: p2(),
        at: LATER,
    };
    lab.nearline(recalled).expect("elsewhere");
    let evict = NearlineChange::Evict {
        file,
        pool: p2(),
        at: LATER,
    };
    assert!(
        lab.nearline(evict.clone()).is_err(),
        "the first is not gone yet"
    );
    lab.make(Change::ForgetTrash(vec![file]))
        .expect("forgotten");
    assert_eq!(
        lab.place("/f").0,
        Some(p2()),
        "it is the other data that went"
    );
    lab.nearline(evict).expect("may go");
}

#[test]
fn what_an_eviction_leaves_is_no_trash_that_comes_back_once_its_file_is_removed() {
    let lab = Lab::new();
    let file = lab.write_precious("/f");
    lab.archive(file);
    lab.evict(file, NOW).expect("may go");
    lab.remove("/f", 10).expect("removed");
    let restored = lab.make(Change::RestoreTrash {
        file,
        to: path("/f"),
        at: LATER,
    });
    assert!(restored.is_err());
    assert_eq!(lab.removals(after_now(8 * 86_400)).len(), 1);
}

#[test]
fn a_copy_on_tape_that_another_file_has_is_not_removed() {
    let lab = Lab::new();
    let (first, second) = (lab.write_precious("/f"), lab.write_precious("/g"));
    let archive = |file| {
        lab.nearline(NearlineChange::Archived {
            file,
            uris: vec!["hsm://t/by-name".to_owned()],
            at: NOW,
        })
        .expect("kept");
    };
    archive(first);
    lab.remove("/f", 10).expect("removed");
    lab.make(Change::ForgetTrash(vec![first]))
        .expect("forgotten");
    let never = Timestamp(i64::MAX);
    assert_eq!(lab.removals(never).len(), 1);
    archive(second);
    assert_eq!(lab.removals(never), Vec::<String>::new());
    let needs = |uri| lab.namespace().needs_tape_copy(uri).expect("readable");
    assert!(needs("hsm://t/by-name") && !needs("hsm://t/other"));
}
