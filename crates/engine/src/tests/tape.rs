//! Tape systems in the engine's tests: a library that answers as it is told, and the way of files from tape and to tape.

use super::*;
use penstock_decide::staging::StagingPolicy;
use penstock_model::{FileProgress, Locality, SourceRemoval, StageRequestId, Staging};

/// The names of a library's requests, and their paths.
type Requests = BTreeMap<String, Vec<String>>;

/// A tape library: calls that are in progress, and what it has been asked for.
#[derive(Default)]
pub(super) struct Library {
    /// Some jobs come from tape, or go there.
    pub(super) is_in_use: bool,
    pub(super) calls: BTreeMap<u64, TapeCall>,
    requests: Requests,
    /// Files on disk, by request and path.
    on_disk: BTreeSet<(String, String)>,
    /// Servers and paths of replicas that were found on disk.
    found: BTreeSet<(String, String)>,
    /// Whether replicas are on disk when somebody asks.
    pub(super) has_replicas: bool,
    /// Sources that are being removed, by the number of the call.
    removals: BTreeMap<u64, Assignment>,
    /// All calls so far, in words.
    log: Vec<String>,
    names: u32,
}

impl Library {
    pub(super) fn first_call(&self) -> Option<u64> {
        self.numbers().min()
    }

    /// The process that made them has ended.
    pub(super) fn forget_calls(&mut self) {
        self.calls.clear();
        self.removals.clear();
    }

    /// Of all calls in progress.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        self.calls.keys().chain(self.removals.keys()).copied()
    }

    fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

pub(super) fn policy() -> StagingPolicy {
    StagingPolicy {
        bulk_files_max: 3,
        quiet: Duration::from_secs(1),
        fill_max: Duration::from_secs(3),
        requests_max: 2,
        calls_max: 2,
        poll_min: Duration::from_secs(1),
        poll_max: Duration::from_secs(30),
        replica_interval: Duration::from_secs(30),
    }
}

/// Lets some jobs come from tape or go there, or do nothing else.
pub(super) fn put_on_tape(job: &mut NewJob, number: u128) {
    if number.is_multiple_of(3) {
        job.parameters.staging = Some(Staging {
            within_seconds: 200,
            pin_seconds: Some(60),
        });
        for (transfer, index) in job.transfers.iter_mut().zip(0u128..) {
            // Few names, so that jobs often need the same files.
            let host = transfer.source.host().to_owned();
            let shared = format!("https://{host}/shared/{}", (number + index) % 4);
            transfer.source = FileUrl::parse(&shared).expect("valid");
        }
    }
    if number.is_multiple_of(5) {
        job.parameters.archive_seconds = Some(100);
        job.parameters.removes_source =
            job.parameters.kind.begins_together() && !number.is_multiple_of(6);
    }
    if number.is_multiple_of(6) && job.parameters.kind.begins_together() {
        for transfer in &mut job.transfers {
            transfer.destination = transfer.source.clone();
        }
    }
}

fn failed(retry: Retry, errno: Errno, status: Option<u16>) -> TapeOutcome {
    let failure = Failure {
        phase: Phase::Staging,
        errno,
        ..failure(retry)
    };
    TapeOutcome::Failed { failure, status }
}

impl World {
    pub(super) fn take_call(&mut self, call: TapeCall) {
        let at_server = self
            .library
            .calls
            .values()
            .filter(|open| open.place.server == call.place.server);
        assert!(
            at_server.count() < policy().calls_max,
            "too many calls at once"
        );
        self.library.log.push(match &call.errand {
            TapeErrand::Stage(files) => {
                assert!(files.len() <= policy().bulk_files_max);
                let paths: Vec<&str> = files.iter().map(|file| &*file.path).collect();
                format!("stage {}", paths.join(" "))
            }
            TapeErrand::Look(id, ..) => format!("look {id}"),
            TapeErrand::Cancel(id, paths) => format!("cancel {id} {}", paths.join(" ")),
            TapeErrand::Release(id, paths) => {
                for path in paths {
                    self.check_nobody_needs(id.as_str(), path);
                    let gone = (id.as_str().to_owned(), path.clone());
                    self.library.on_disk.remove(&gone);
                }
                format!("release {id} {}", paths.join(" "))
            }
            TapeErrand::Locate(paths) => format!("locate {}", paths.join(" ")),
            TapeErrand::Find(paths) => format!("find {}", paths.join(" ")),
        });
        let before = self.library.calls.insert(call.number, call);
        assert!(before.is_none(), "two calls have one number");
    }

    pub(super) fn take_removal(&mut self, number: u64, assignment: Assignment) {
        let transfer = assignment.request.id;
        let state = self.journal.state(transfer).expect("recorded");
        assert!(
            matches!(state, TransferState::Archiving { .. }),
            "a source is removed in {state:?}"
        );
        let path = TapePlace::path(&assignment.request, Side::Source).expect("has a path");
        self.library.log.push(format!("remove {path}"));
        let before = self.library.removals.insert(number, assignment);
        assert!(before.is_none(), "two calls have one number");
    }

    fn check_nobody_needs(&self, id: &str, path: &str) {
        for assignment in self.agents.values() {
            let request = &assignment.request;
            let state = self.journal.state(request.id).expect("recorded");
            let needs = state.staged().is_some_and(|staged| staged.as_str() == id);
            let own = TapePlace::path(request, Side::Source).expect("has a path");
            assert!(!(needs && *own == *path), "{path} is being read");
        }
    }

    pub(super) fn check_is_on_disk(&self, assignment: &Assignment) {
        let parameters = &assignment.parameters;
        let comes_from_tape = parameters.staging.is_some()
            && (parameters.kind != JobKind::Hops || assignment.request.index == 0);
        if !comes_from_tape || assignment.task != Task::Copy {
            return;
        }
        let state = self.journal.state(assignment.request.id).expect("recorded");
        let path = TapePlace::path(&assignment.request, Side::Source).expect("has a path");
        let Some(staged) = state.staged() else {
            let server = format!("https://{}", assignment.request.source.host());
            assert!(
                self.library.found.contains(&(server, path.to_string())),
                "{path} is neither staged nor found on disk"
            );
            return;
        };
        let id = staged.as_str().to_owned();
        let there = (id, path.to_string());
        assert!(
            self.library.on_disk.contains(&there),
            "{there:?} is read from tape"
        );
    }

    fn answer(&mut self, number: u64, outcome: TapeOutcome) {
        let call = self.library.calls.remove(&number);
        let removal = self.library.removals.remove(&number);
        assert!(call.is_some() || removal.is_some(), "in progress");
        self.feed(Input::TapeAnswered { number, outcome });
    }

    /// As a library that does what it is asked for, at once.
    pub(super) fn answer_well(&mut self, number: u64) {
        let Some(call) = self.library.calls.get(&number) else {
            return self.answer(number, TapeOutcome::Done);
        };
        let outcome = match call.errand.clone() {
            TapeErrand::Stage(files) => {
                self.library.names += 1;
                let id = format!("r{}", self.library.names);
                let paths = files.into_iter().map(|file| file.path).collect();
                self.library.requests.insert(id.clone(), paths);
                TapeOutcome::Accepted(StageRequestId::new(id))
            }
            TapeErrand::Look(id, ..) => match self.library.requests.get(id.as_str()) {
                Some(paths) => {
                    let on_disk = paths
                        .iter()
                        .map(|path| (id.as_str().to_owned(), path.clone()));
                    self.library.on_disk.extend(on_disk);
                    let told = paths.iter().cloned();
                    TapeOutcome::Progress(told.map(|path| (path, FileProgress::OnDisk)).collect())
                }
                None => failed(Retry::Never, Errno::ENOENT, Some(404)),
            },
            TapeErrand::Cancel(..) | TapeErrand::Release(..) => TapeOutcome::Done,
            TapeErrand::Locate(paths) => {
                let told = paths.into_iter();
                TapeOutcome::Places(told.map(|path| (path, Ok(Locality::DiskAndTape))).collect())
            }
            TapeErrand::Find(paths) => {
                let server = call.place.server.to_string();
                if self.library.has_replicas {
                    let found = paths.iter().map(|path| (server.clone(), path.clone()));
                    self.library.found.extend(found);
                }
                let place = match self.library.has_replicas {
                    true => Locality::Disk,
                    false => Locality::Tape,
                };
                TapeOutcome::Places(paths.into_iter().map(|path| (path, Ok(place))).collect())
            }
        };
        self.answer(number, outcome);
    }

    /// As a library that also makes trouble.
    pub(super) fn answer_call(&mut self, nth: usize, how: u8) {
        let calls: Vec<u64> = self.library.numbers().collect();
        let Some(number) = calls
            .get(nth.checked_rem(calls.len()).unwrap_or(0))
            .copied()
        else {
            return;
        };
        let Some(call) = self.library.calls.get(&number) else {
            return match how % 8 {
                0 => self.answer(number, failed(Retry::Later, Errno::ECOMM, None)),
                1 | 2 => self.answer(number, failed(Retry::Never, Errno::EACCES, Some(403))),
                _ => self.answer_well(number),
            };
        };
        let errand = call.errand.clone();
        match how % 8 {
            0 => self.answer(number, failed(Retry::Later, Errno::ECOMM, None)),
            1 => self.answer(number, failed(Retry::Never, Errno::EINVAL, Some(400))),
            2 => self.answer(number, failed(Retry::Never, Errno::ENOENT, Some(404))),
            3 => {
                let trouble = match errand {
                    TapeErrand::Look(id, ..) => {
                        let paths = self.library.requests.get(id.as_str()).cloned();
                        let told = paths.unwrap_or_default().into_iter().skip(1);
                        let why = || FileProgress::Failed("a test says so".into());
                        TapeOutcome::Progress(told.map(|path| (path, why())).collect())
                    }
                    TapeErrand::Locate(paths) => {
                        let told = paths.into_iter().skip(1);
                        TapeOutcome::Places(told.map(|path| (path, Ok(Locality::Lost))).collect())
                    }
                    // An answer that fits nothing.
                    _ => TapeOutcome::Places(Vec::new()),
                };
                self.answer(number, trouble);
            }
            4 => {
                let waits = match errand {
                    TapeErrand::Look(id, ..) => {
                        let paths = self.library.requests.get(id.as_str()).cloned();
                        let told = paths.unwrap_or_default().into_iter();
                        let told = told.map(|path| (path, FileProgress::Pending));
                        TapeOutcome::Progress(told.collect())
                    }
                    TapeErrand::Locate(paths) => {
                        let told = paths.into_iter();
                        TapeOutcome::Places(told.map(|path| (path, Ok(Locality::Disk))).collect())
                    }
                    TapeErrand::Find(_) => {
                        self.library.has_replicas = true;
                        self.answer_well(number);
                        self.library.has_replicas = false;
                        return;
                    }
                    _ => return self.answer_well(number),
                };
                self.answer(number, waits);
            }
            _ => self.answer_well(number),
        }
    }

    pub(super) fn sleep_until_due(&mut self) {
        let at = self.engine.wake_at().expect("something is due");
        let seconds = at.since(self.now.at).as_secs();
        self.sleep(seconds + 1);
    }

    /// Answers everything well until nothing more is asked at once.
    fn serve(&mut self) {
        while let Some(call) = self.library.first_call() {
            self.answer_well(call);
        }
    }

    fn one_call(&self) -> u64 {
        assert_eq!(self.library.calls.len(), 1, "{:?}", self.library.log);
        self.library.first_call().expect("one")
    }

    /// Which links have files that are to come from tape, and how many.
    fn staging(&self) -> Vec<String> {
        let links = self.engine.staging_links();
        let told = links.map(|(link, files)| {
            let (source, destination) = (&link.source, &link.destination);
            format!("{source} -> {destination}: {files}")
        });
        told.collect()
    }

    fn staging_job(&mut self, files: u8) -> NewJob {
        self.jobs += 1;
        let mut job = new_job(JobKind::Independent, self.jobs, files, 0, 0);
        job.parameters.staging = Some(Staging {
            within_seconds: 1000,
            pin_seconds: None,
        });
        job
    }

    /// A job whose stage request was accepted.
    fn recalled_job(&mut self, files: u8) -> JobId {
        let job = self.staging_job(files);
        let id = self.submit_job(job);
        self.sleep(2);
        let call = self.one_call();
        self.answer_well(call);
        id
    }

    fn told_why(&self, transfer: u64) -> String {
        let why = self.engine.why_waiting(TransferId(transfer), self.now.at);
        let text = |reason| penstock_decide::wording::wait_reason(&reason, self.now.at);
        why.map_or_else(String::new, text)
    }

    fn reason(&self, transfer: u64) -> String {
        match self.journal.state(TransferId(transfer)) {
            Some(TransferState::Failed { failure, .. }) => failure.to_string(),
            other => format!("{other:?}"),
        }
    }
}

#[test]
fn files_are_asked_for_together_copied_when_on_disk_and_let_go_after_that() {
    let mut world = World::new();
    let job = world.staging_job(2);
    let job = world.submit_job(job);
    assert_eq!(states(&world, job), ["STAGING", "STAGING"]);
    assert_eq!(world.staging(), ["https://s0 -> https://d0: 2"]);
    assert_eq!(
        world.told_why(1),
        "a request to the tape system of https://s0 for 2 files is being prepared"
    );
    world.sleep(2);
    assert_eq!(world.library.take_log(), ["stage /1/0 /1/1"]);
    let call = world.one_call();
    world.answer_well(call);
    assert_eq!(states(&world, job), ["STARTED", "STARTED"]);
    assert_eq!(world.staging(), ["https://s0 -> https://d0: 2"]);
    assert!(world.agents.is_empty() && world.engine.agents().active == Slots(0));
    world.sleep(1);
    assert_eq!(
        world.told_why(2),
        "the tape system of https://s0 has worked on request r1 for 1 s: 0 of 2 files are on disk; next check in 0 s"
            .replace("in 0 s", "now")
    );
    world.sleep(1);
    world.serve();
    assert_eq!(states(&world, job), ["ACTIVE", "ACTIVE"]);
    assert_eq!((world.staging().len(), world.engine.staging()), (0, 0));
    assert_eq!(world.library.take_log(), ["look r1"]);
    land(&mut world);
    land(&mut world);
    world.sleep(2);
    assert_eq!(world.library.take_log(), ["release r1 /1/0 /1/1"]);
    world.settle();
    world.check_record();
}

#[test]
fn gfal2_is_asked_by_the_credentials_of_urls_and_the_rest_interface_is_not() {
    let mut world = World::new();
    let mut job = world.staging_job(4);
    let ends = [
        ("root://s0//f/0", "one"),
        ("root://s0//f/1", "one"),
        ("root://s0//f/2", "two"),
        ("https://s0/f/3", "one"),
    ];
    for (transfer, (source, query)) in job.transfers.iter_mut().zip(ends) {
        transfer.source = FileUrl::parse(source).expect("valid");
        transfer.source_query = Some(penstock_model::CredentialId::new(query));
    }
    world.submit_job(job);
    world.sleep(2);
    let asked = world.library.calls.values().map(|call| {
        let query = call.place.query.as_ref().map(|id| id.as_str().to_owned());
        let TapeErrand::Stage(files) = &call.errand else {
            panic!("it is asked for nothing else: {:?}", call.errand);
        };
        let files: Vec<&str> = files.iter().map(|file| &*file.path).collect();
        format!(
            "{} {} {}",
            call.place.server,
            query.unwrap_or_default(),
            files.join(" ")
        )
    });
    let asked: BTreeSet<String> = asked.collect();
    let expected = [
        "https://s0  /f/3",
        "root://s0 one root://s0//f/0 root://s0//f/1",
        "root://s0 two root://s0//f/2",
    ];
    assert_eq!(asked, expected.map(str::to_owned).into());
}

#[test]
fn a_restart_goes_on_with_the_open_requests_and_asks_for_nothing_twice() {
    let mut world = World::new();
    let job = world.recalled_job(3);
    world.library.take_log();
    world.crash();
    assert_eq!(states(&world, job), ["STARTED"; 3]);
    for _ in 0..5 {
        world.sleep(1);
        world.serve();
    }
    assert_eq!(world.library.take_log(), ["look r1"]);
    world.crash();
    world.settle();
    world.sleep(2);
    let log = world.library.take_log();
    assert!(log.iter().all(|call| !call.starts_with("stage")), "{log:?}");
    assert!(
        log.iter().any(|call| call == "release r1 /1/0 /1/1 /1/2"),
        "{log:?}"
    );
    world.check_record();
}

#[test]
fn what_is_canceled_is_canceled_at_the_tape_system_in_one_call() {
    let mut world = World::new();
    let job = world.recalled_job(3);
    world.library.take_log();
    cancel(&mut world, job);
    world.sleep(2);
    world.serve();
    let log = world.library.take_log();
    assert_eq!(
        log,
        ["cancel r1 /1/0 /1/1 /1/2", "release r1 /1/0 /1/1 /1/2"]
    );
    world.settle();
    world.check_record();
}

#[test]
fn what_was_canceled_while_it_was_asked_for_is_not_left_to_the_tape_system() {
    let mut world = World::new();
    let job = world.staging_job(2);
    let job = world.submit_job(job);
    world.sleep(2);
    let reply = world.reply();
    world.feed(Input::of_request(
        Cancel {
            job,
            transfers: Some(vec![TransferId(1)]),
            reason: "test".into(),
        },
        reply,
    ));
    let call = world.one_call();
    world.answer_well(call);
    assert_eq!(states(&world, job), ["CANCELED", "STARTED"]);
    world.sleep(1);
    assert!(world.library.log.contains(&"cancel r1 /1/0".to_owned()));
    world.settle();
    world.check_record();
}

#[test]
fn no_file_is_late_on_the_word_of_a_clock_that_is_not_believed() {
    let mut world = World::new();
    let job = world.recalled_job(1);
    world.feed(Input::Clock { is_credible: false });
    world.sleep(86_400);
    assert_eq!(states(&world, job), ["STARTED"]);
    world.feed(Input::Clock { is_credible: true });
    world.sleep(60);
    assert_eq!(states(&world, job), ["FAILED"]);
}

#[test]
fn a_file_that_does_not_come_in_time_fails_in_fts_s_words() {
    let mut world = World::new();
    let job = world.recalled_job(1);
    for _ in 0..3 {
        world.sleep(400);
        while let Some(call) = world.library.first_call() {
            world.answer_call(0, 4);
            let _ = call;
        }
    }
    assert_eq!(states(&world, job), ["FAILED"]);
    assert_eq!(
        world.reason(1),
        "STAGING [110] bring-online timeout has been exceeded"
    );
    world.sleep(2);
    assert!(world.library.log.contains(&"cancel r1 /1/0".to_owned()));
    world.settle();
    world.check_record();
}

#[test]
fn a_request_that_was_forgotten_is_made_again_and_costs_no_retry() {
    let mut world = World::new();
    let mut job = world.staging_job(1);
    job.parameters.retries_max = Some(0);
    let job = world.submit_job(job);
    world.sleep(2);
    for _ in 0..2 {
        let call = world.one_call();
        world.answer_well(call);
        world.sleep(2);
        let call = world.one_call();
        world.answer(call, failed(Retry::Never, Errno::ENOENT, Some(404)));
        assert_eq!(states(&world, job), ["STAGING"]);
        assert!(
            world.told_why(1).contains("has forgotten the request"),
            "{}",
            world.told_why(1)
        );
        world.sleep(20);
        world.sleep(2);
    }
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED"]);
    world.check_record();
}

#[test]
fn a_library_that_does_not_answer_is_asked_again_later_and_later() {
    let mut world = World::new();
    let job = world.staging_job(2);
    let job = world.submit_job(job);
    world.sleep(2);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let call = world.one_call();
        world.answer(call, failed(Retry::Later, Errno::ECOMM, Some(503)));
        let at = world.engine.wake_at().expect("due");
        waits.push(at.since(world.now.at));
        assert!(
            world
                .told_why(1)
                .contains("requests to the tape system of https://s0 failed"),
            "{}",
            world.told_why(1)
        );
        world.now.at = at;
        world.feed(Input::Tick);
    }
    assert!(waits.is_sorted(), "{waits:?}");
    assert_eq!(
        states(&world, job),
        ["STAGING"; 2],
        "an outage is not the files' fault"
    );
    world.settle();
    world.check_record();
}

#[test]
fn one_file_that_is_refused_does_not_take_the_others_with_it() {
    let mut world = World::new();
    let job = world.staging_job(3);
    let job = world.submit_job(job);
    world.sleep(2);
    let refuse = |world: &mut World| {
        while let Some(number) = world.library.first_call() {
            match &world.library.calls[&number].errand {
                TapeErrand::Stage(files) if files.iter().any(|file| file.path == "/1/1") => {
                    world.answer(number, failed(Retry::Never, Errno::EINVAL, Some(400)));
                }
                _ => world.answer_well(number),
            }
        }
    };
    for _ in 0..20 {
        refuse(&mut world);
        world.sleep(1);
    }
    assert_eq!(states(&world, job)[1], "FAILED");
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED", "FAILED", "FINISHED"]);
    world.check_record();
}

#[test]
fn a_file_that_is_only_to_be_on_disk_ends_there_and_stays_there() {
    let mut world = World::new();
    let mut job = world.staging_job(1);
    job.transfers[0].destination = job.transfers[0].source.clone();
    let job = world.submit_job(job);
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED"]);
    assert_eq!(world.library.take_log(), ["stage /1/0", "look r1"]);
    world.check_record();
}

#[test]
fn a_copy_that_has_to_be_on_tape_holds_no_slot_and_ends_when_it_is() {
    let mut world = World::new();
    let mut job = new_job(JobKind::Independent, 1, 2, 0, 0);
    job.parameters.archive_seconds = Some(1000);
    let job = world.submit_job(job);
    land(&mut world);
    land(&mut world);
    assert_eq!(states(&world, job), ["ARCHIVING"; 2]);
    assert_eq!(world.engine.agents().active, Slots(0));
    assert!(
        world
            .told_why(1)
            .contains("has 16 min 40 s left to write it to tape"),
        "{}",
        world.told_why(1)
    );
    world.sleep(2);
    assert_eq!(world.library.take_log(), ["locate /1/0 /1/1"]);
    world.answer_call(0, 4);
    assert_eq!(states(&world, job), ["ARCHIVING"; 2]);
    world.crash();
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED"; 2]);
    world.check_record();
}

#[test]
fn a_source_is_removed_when_its_copy_is_on_tape_and_never_before() {
    let mut world = World::new();
    let mut job = new_job(JobKind::Independent, 1, 2, 0, 0);
    job.parameters.archive_seconds = Some(1000);
    job.parameters.removes_source = true;
    let job = world.submit_job(job);
    land(&mut world);
    land(&mut world);
    world.sleep(2);
    // On disk only.
    world.answer_call(0, 4);
    assert_eq!(world.library.take_log(), ["locate /1/0 /1/1"]);
    world.sleep_until_due();
    let [locate] = world.library.numbers().collect::<Vec<_>>()[..] else {
        panic!("one call is in progress");
    };
    world.answer_well(locate);
    assert_eq!(states(&world, job), ["ARCHIVING"; 2]);
    let log = world.library.take_log();
    assert_eq!(log[1..], ["remove /1/0", "remove /1/1"], "{log:?}");
    // The answer is lost: a restart asks once more where the copies are.
    world.crash();
    world.sleep(2);
    assert!(
        world
            .library
            .take_log()
            .iter()
            .all(|call| call.starts_with("locate"))
    );
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED"; 2]);
    let archived = TransferEvent::Archived {
        source: Some(SourceRemoval::Removed),
    };
    let events = world.journal.ledger().iter().map(|(.., event)| event);
    assert_eq!(events.filter(|event| **event == archived).count(), 2);
    world.check_record();
}

#[test]
fn a_source_that_cannot_be_removed_is_kept_and_told_of() {
    let mut world = World::new();
    let mut job = new_job(JobKind::Independent, 1, 1, 0, 0);
    job.parameters.archive_seconds = Some(100);
    job.parameters.removes_source = true;
    let job = world.submit_job(job);
    land(&mut world);
    world.sleep(2);
    let number = world.library.first_call().expect("it is looked for");
    world.answer_well(number);
    // What may help is tried again for a while, also beyond the time in which the copy had to be on tape.
    let mut calls = 0;
    while states(&world, job) == ["ARCHIVING"] {
        match world.library.first_call() {
            Some(_) => {
                world.answer_call(0, 0);
                calls += 1;
            }
            None => world.sleep_until_due(),
        }
    }
    assert_eq!((states(&world, job), calls), (vec!["FINISHED"], 10));
    let last = world.journal.ledger().last();
    assert!(
        matches!(
            last,
            Some((
                _,
                _,
                TransferEvent::Archived {
                    source: Some(SourceRemoval::Kept(_))
                }
            ))
        ),
        "{last:?}"
    );
    world.check_record();
}

#[test]
fn a_copy_that_does_not_get_to_tape_in_time_fails_in_fts_s_words() {
    let mut world = World::new();
    let mut job = new_job(JobKind::Independent, 1, 1, 0, 0);
    job.parameters.archive_seconds = Some(100);
    let job = world.submit_job(job);
    land(&mut world);
    for _ in 0..200 {
        world.sleep(1);
        while world.library.first_call().is_some() {
            world.answer_call(0, 4);
        }
    }
    assert_eq!(states(&world, job), ["FAILED"]);
    assert_eq!(
        world.reason(1),
        "ARCHIVING [110] archive timeout has been exceeded"
    );
    world.check_record();
}

#[test]
fn a_copy_that_timed_out_is_staged_again_before_the_next_try() {
    let mut world = World::new();
    let job = world.recalled_job(1);
    world.sleep(2);
    world.serve();
    let transfer = world.nth_agent(0).expect("runs");
    let timed_out = Failure {
        errno: Errno::ETIMEDOUT,
        ..failure(Retry::Later)
    };
    let cleaned = true;
    world.end(
        transfer,
        AttemptOutcome::Failed {
            failure: timed_out,
            cleaned,
            moved: Bytes(0),
        },
    );
    assert_eq!(states(&world, job), ["STAGING"]);
    world.library.take_log();
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED"]);
    let log = world.library.take_log();
    assert_eq!(log[0], "stage /1/0");
    world.check_record();
}

#[test]
fn of_several_hops_the_first_comes_from_tape_and_the_last_goes_there() {
    let mut world = World::new();
    let mut way = new_job(JobKind::Hops, 1, 2, 0, 0);
    way.parameters.staging = Some(Staging {
        within_seconds: 100,
        pin_seconds: None,
    });
    way.parameters.archive_seconds = Some(100);
    let way = world.submit_job(way);
    assert_eq!(states(&world, way), ["STAGING", "NOT_USED"]);
    for _ in 0..6 {
        world.sleep(1);
        world.serve();
    }
    land(&mut world);
    assert_eq!(states(&world, way), ["FINISHED", "ACTIVE"]);
    land(&mut world);
    assert_eq!(states(&world, way), ["FINISHED", "ARCHIVING"]);
    world.settle();
    world.check_record();
}

#[test]
fn a_banned_tape_system_is_asked_for_nothing_more() {
    let mut world = World::new();
    world.ban("https://s0", None, BanEffect::WaitAndAccept, None);
    let job = world.staging_job(1);
    let job = world.submit_job(job);
    world.sleep(10);
    assert!(world.library.calls.is_empty());
    assert!(
        world.told_why(1).contains("has been banned"),
        "{}",
        world.told_why(1)
    );
    world.lift_all();
    world.sleep(2);
    assert_eq!(world.library.take_log(), ["stage /1/0"]);
    world.ban("https://s0", None, BanEffect::WaitAndAccept, None);
    world.serve();
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED"]);
    world.check_record();
}

#[test]
fn no_more_files_are_brought_at_once_than_operators_allow() {
    use penstock_decide::settings::{SettingRequest, SettingRequester, StorageRuleRequest};
    let mut world = World::new();
    let limit = |world: &mut World, most: Option<u32>| {
        let reply = world.reply();
        let wish = SettingRequest::SetStorages(vec![StorageRuleRequest {
            staging_max: BTreeMap::from([(VoName::new("*"), most)]),
            ..StorageRuleRequest::new(StorageId::new("https://s0"))
        }]);
        world.feed(Input::of_request(
            ChangeSetting {
                wish: Box::new(wish),
                asker: SettingRequester {
                    names: vec!["alice".into()],
                    is_admin: true,
                },
                user: UserName::new("alice"),
            },
            reply,
        ));
        assert!(matches!(world.answers[&reply.0], Reply::Set(_)));
    };
    limit(&mut world, Some(2));
    let job = world.staging_job(5);
    let job = world.submit_job(job);
    world.sleep(5);
    let call = world.one_call();
    world.answer_well(call);
    world.sleep(5);
    let asked = |world: &World| {
        let all = states(world, job);
        all.iter().filter(|name| **name == "STARTED").count()
    };
    assert_eq!(asked(&world), 2);
    assert_eq!(
        world.told_why(5),
        "the tape system of https://s0 has 1 request open for 2 files, which is the limit"
    );
    limit(&mut world, None);
    world.sleep(5);
    let stage = world.library.calls.values();
    let stage = stage.filter(|call| matches!(call.errand, TapeErrand::Stage(_)));
    assert_eq!(stage.count(), 1);
    world.settle();
    world.check_record();
}

/// A job of two replicas, the first of which waits for its tape system, and the other one as well when its turn comes.
fn waiting_replica(world: &mut World) -> JobId {
    world.jobs += 1;
    let mut job = new_job(JobKind::Replicas(Selection::Orderly), world.jobs, 2, 0, 0);
    job.parameters.staging = Some(Staging {
        within_seconds: 10_000,
        pin_seconds: None,
    });
    let job = world.submit_job(job);
    world.sleep(2);
    let call = world.one_call();
    world.answer_well(call);
    assert_eq!(states(world, job), ["STARTED", "NOT_USED"]);
    world.library.take_log();
    job
}

/// Lets time pass in which nothing comes from tape.
fn wait_for_tape(world: &mut World, seconds: u64) {
    for _ in 0..seconds {
        world.sleep(1);
        let calls: Vec<u64> = world.library.calls.keys().copied().collect();
        for call in calls {
            match &world.library.calls[&call].errand {
                TapeErrand::Look(id, ..) => {
                    let paths = world.library.requests[id.as_str()].clone();
                    let told = paths.into_iter().map(|path| (path, FileProgress::Pending));
                    world.answer(call, TapeOutcome::Progress(told.collect()));
                }
                _ => world.answer_well(call),
            }
        }
    }
}

#[test]
fn a_replica_that_appears_on_disk_takes_the_place_of_one_that_waits_for_tape() {
    let mut world = World::new();
    let job = waiting_replica(&mut world);
    wait_for_tape(&mut world, 100);
    assert_eq!(states(&world, job), ["STARTED", "NOT_USED"]);
    // A restart goes on with it.
    world.crash();
    world.library.has_replicas = true;
    wait_for_tape(&mut world, 60);
    assert_eq!(states(&world, job), ["NOT_USED", "ACTIVE"]);
    let log = world.library.take_log();
    assert!(log.contains(&"cancel r1 /1/0".to_owned()), "{log:?}");
    land(&mut world);
    assert_eq!(states(&world, job), ["NOT_USED", "FINISHED"]);
    assert_eq!(world.engine.open_transfers(), 0);
    assert_eq!(world.engine.open_counts, OpenCounts::default());
    world.settle();
    world.check_record();
}

#[test]
fn the_turn_of_a_replica_on_tape_comes_again_when_the_one_on_disk_fails() {
    let mut world = World::new();
    let job = waiting_replica(&mut world);
    world.library.has_replicas = true;
    wait_for_tape(&mut world, 40);
    assert_eq!(states(&world, job), ["NOT_USED", "ACTIVE"]);
    world.library.has_replicas = false;
    world.crash();
    fail(&mut world, Side::Source, Retry::Never);
    assert_eq!(states(&world, job), ["STAGING", "FAILED"]);
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED", "FAILED"]);
    world.check_record();
}

#[test]
fn a_recall_is_not_given_up_for_a_replica_that_could_not_be_copied_now() {
    let mut world = World::new();
    let job = waiting_replica(&mut world);
    world.library.has_replicas = true;
    world.ban("https://s1", None, BanEffect::WaitAndAccept, None);
    wait_for_tape(&mut world, 100);
    assert_eq!(states(&world, job), ["STARTED", "NOT_USED"]);
    world.lift_all();
    wait_for_tape(&mut world, 60);
    assert_eq!(states(&world, job), ["NOT_USED", "ACTIVE"]);
    land(&mut world);
    world.settle();
    world.check_record();
}
