//! Files on their way from tape to disk: gathered into stage requests, which are looked at until each file is on disk
//! or has failed.
//!
//! Long because a file passes from gathering to a request, to looks and back again on each failure, all in one table.

use super::{Due, FilesAtPlace, TapeCallSubject, TapeFile, is_hopeless};
use crate::running::RetryRule;
use crate::{Effects, Engine, Now, TapeErrand, TapeOutcome, TapePlace};
use penstock_decide::retry::{FailedAttempt, next_retry};
use penstock_decide::settings::staging_in_effect;
use penstock_decide::staging::{
    BatchProgress, RefusalRemedy, StageBatch, StageTiming, StagingPolicy, after_refusal, next_call,
    next_look, when_to_ask,
};
use penstock_model::tape::STAGING_SECONDS_DEFAULT;
use penstock_model::tape::StageFile;
use penstock_model::{
    AfterStaging, Attempt, Concern, Errno, Failure, FileProgress, Phase, Recall, Retry, Side,
    StageRequestId, TapeWait, Timestamp, TransferEvent, TransferId, TransferState,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Times that a tape system may forget its requests before that costs a retry.
const FORGOTTEN_MAX: u32 = 3;

/// Files of one place that wait to be asked for.
#[derive(Debug)]
pub(super) struct StageGroup {
    pub(super) files: BTreeMap<TransferId, QueueEntry>,
    first_at: Timestamp,
    last_at: Timestamp,
    /// After calls that failed.
    pub(super) not_before: Option<Timestamp>,
    pub(super) failures: u32,
    pub(super) last: Option<Failure>,
    /// A call is in progress.
    is_asking: bool,
    /// No more may be open at once.
    pub(super) is_at_limit: bool,
}

#[derive(Debug, Clone)]
pub(super) struct QueueEntry {
    path: Arc<str>,
    /// Asked for with so many files at most: a larger request with it was refused.
    bulk_max: usize,
}

/// How many stage requests are open, with how many files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OpenRequests {
    pub(super) requests: usize,
    pub(super) files: usize,
}

/// A stage request that is open.
#[derive(Debug)]
pub(super) struct Request {
    place: Arc<TapePlace>,
    id: StageRequestId,
    asked_at: Timestamp,
    /// That are not on disk yet.
    files: BTreeMap<TransferId, Arc<str>>,
    total: usize,
    on_disk: usize,
    /// Looks in a row that failed.
    failures: u32,
    last: Option<Failure>,
    is_looked_at: bool,
}

/// Why a file was not brought.
#[derive(Debug, Clone)]
struct StageFault {
    failure: Failure,
    /// Its request was lost, which is no fault of the file.
    was_lost: bool,
}

impl StageFault {
    fn of_file(failure: Failure) -> StageFault {
        StageFault {
            failure,
            was_lost: false,
        }
    }

    /// The tape system knows nothing of a request that it had accepted.
    fn of_request(request: &Request) -> StageFault {
        let (storage, id) = (&request.place.storage, &request.id);
        let detail = format!("the tape system of {storage} has forgotten the request {id}");
        StageFault {
            failure: of_staging(Retry::Later, Errno::ECOMM, detail),
            was_lost: true,
        }
    }
}

impl Request {
    pub(super) fn wait(&self, asked_at: Timestamp, due: Option<Timestamp>) -> TapeWait {
        let storage = self.place.storage.clone();
        match (&self.last, due) {
            (Some(last), Some(until)) => TapeWait::Failing {
                storage,
                until,
                failures: self.failures,
                last: last.clone(),
            },
            (_, due) => TapeWait::Recalling {
                storage,
                request: self.id.clone(),
                on_disk: self.on_disk as u64,
                files: self.total as u64,
                since: asked_at,
                look_at: due.unwrap_or(asked_at),
            },
        }
    }
}

impl Engine {
    /// A file waits to be asked for from now on.
    pub(crate) fn gather(&mut self, now: Timestamp, transfer: TransferId) {
        let place = self.tape_place(transfer, Side::Source);
        let request = self.request(transfer);
        let path = request.and_then(|request| TapePlace::path(&request, Side::Source));
        let (Some(place), Some(path)) = (place, path) else {
            return;
        };
        let new = || StageGroup {
            files: BTreeMap::new(),
            first_at: now,
            last_at: now,
            not_before: None,
            failures: 0,
            last: None,
            is_asking: false,
            is_at_limit: false,
        };
        let gathering = self
            .tape
            .gatherings
            .entry(place.clone())
            .or_insert_with(new);
        if gathering.files.is_empty() {
            gathering.first_at = now;
        }
        gathering.last_at = now;
        let bulk_max = usize::MAX;
        gathering
            .files
            .insert(transfer, QueueEntry { path, bulk_max });
        self.tape.agenda.set_by(Due::Ask(place), now);
    }

    /// True when it had waited to be asked for.
    pub(crate) fn stop_gathering(&mut self, transfer: TransferId) -> bool {
        let Some(place) = self.tape_place(transfer, Side::Source) else {
            return false;
        };
        let Some(gathering) = self.tape.gatherings.get_mut(&place) else {
            return false;
        };
        let known = gathering.files.remove(&transfer).is_some();
        self.forget_if_empty(&place);
        known
    }

    fn forget_if_empty(&mut self, place: &Arc<TapePlace>) {
        let gathering = self.tape.gatherings.get(place);
        if gathering.is_some_and(|one| one.files.is_empty() && !one.is_asking) {
            self.tape.gatherings.remove(place);
            self.tape.agenda.drop(&Due::Ask(place.clone()));
        }
    }

    /// Stage requests that are open for a VO at a storage element.
    pub(super) fn open_requests(&self, place: &TapePlace) -> OpenRequests {
        let alike = self
            .tape
            .requests
            .values()
            .filter(|open| open.place.storage == place.storage && open.place.vo == place.vo);
        alike.fold(OpenRequests::default(), |all, open| OpenRequests {
            requests: all.requests + 1,
            files: all.files + open.files.len(),
        })
    }

    /// Asks for files that have gathered, if it is time for that.
    pub(super) fn ask(&mut self, now: Now, place: &Arc<TapePlace>, effects: &mut Effects) {
        if self.scheduler.is_drained() {
            return;
        }
        let open = self.open_requests(place);
        let files_max = staging_in_effect(&self.settings, &place.storage, &place.vo);
        let bulk_files_max = self.bulk_files_max(place);
        let Some(gathering) = self.tape.gatherings.get_mut(place) else {
            return;
        };
        if gathering.is_asking || gathering.files.is_empty() {
            return;
        }
        let seen = StageBatch {
            files: gathering.files.len(),
            first_at: gathering.first_at,
            last_at: gathering.last_at,
            not_before: gathering.not_before,
            requests_open: open.requests,
            files_open: open.files,
            files_max: files_max.map(|most| most as usize),
        };
        let policy = StagingPolicy {
            bulk_files_max,
            ..self.config.tape.clone()
        };
        let decision = when_to_ask(&seen, &policy, now.at);
        gathering.is_at_limit = decision.choice == StageTiming::WhenOneEnds;
        match decision.choice {
            StageTiming::At(at) => self.tape.agenda.set(Due::Ask(place.clone()), at),
            StageTiming::WhenOneEnds => {}
            StageTiming::Now(count) => self.send_request(place, count, effects),
        }
    }

    fn send_request(&mut self, place: &Arc<TapePlace>, count: usize, effects: &mut Effects) {
        let chosen = self.choose_files(place, count);
        let mut files: BTreeMap<Arc<str>, StageFile> = BTreeMap::new();
        for TapeFile { transfer, path } in &chosen {
            let entry = &self.transfers[transfer];
            let staging = self.jobs[&entry.job].parameters().staging;
            let pin = staging.and_then(|staging| staging.pin_seconds);
            let notes = self.request(*transfer).and_then(|request| request.tape);
            files.entry(path.clone()).or_insert_with(|| StageFile {
                path: path.to_string(),
                pin_seconds: pin,
                within_seconds: staging.map_or(STAGING_SECONDS_DEFAULT, |wish| wish.within_seconds),
                targeted_metadata: notes.and_then(|notes| notes.staging.clone()),
            });
        }
        let errand = TapeErrand::Stage(files.into_values().collect());
        let about = TapeCallSubject::Asking(FilesAtPlace {
            place: place.clone(),
            files: chosen,
        });
        let calls_max = self.config.tape.calls_max;
        if self.tape.call(place, errand, about, calls_max, effects)
            && let Some(gathering) = self.tape.gatherings.get_mut(place)
        {
            gathering.is_asking = true;
        }
    }

    /// By priority, then in the order of submission.
    fn choose_files(&self, place: &Arc<TapePlace>, count: usize) -> Vec<TapeFile> {
        let files = &self.tape.gatherings[place].files;
        let priority = |transfer: &TransferId| {
            let job = &self.jobs[&self.transfers[transfer].job];
            Reverse(job.parameters().priority.get())
        };
        let mut ranked: Vec<_> = files.iter().collect();
        ranked.sort_by_key(|(transfer, _)| (priority(transfer), **transfer));
        let bulk = ranked
            .first()
            .map_or(count, |(_, first)| first.bulk_max.min(count));
        let may_share = ranked.iter().filter(|(_, file)| file.bulk_max >= bulk);
        let chosen = may_share.take(bulk.max(1));
        chosen
            .map(|(transfer, file)| TapeFile {
                transfer: **transfer,
                path: file.path.clone(),
            })
            .collect()
    }

    /// A tape system has answered a stage request, or has not.
    pub(super) fn asked(
        &mut self,
        now: Now,
        asked: &FilesAtPlace,
        outcome: TapeOutcome,
        effects: &mut Effects,
    ) {
        let place = &asked.place;
        if let Some(gathering) = self.tape.gatherings.get_mut(place) {
            gathering.is_asking = false;
        }
        match outcome {
            TapeOutcome::Accepted(id) => self.request_accepted(now, asked, &id, effects),
            TapeOutcome::Failed { failure, status } => {
                self.request_refused(now, asked, failure, status, effects);
            }
            TapeOutcome::Progress(_) | TapeOutcome::Places(_) | TapeOutcome::Done => {}
        }
        if self.tape.gatherings.contains_key(place) {
            self.tape.agenda.set_by(Due::Ask(place.clone()), now.at);
        }
        self.forget_if_empty(place);
    }

    fn request_accepted(
        &mut self,
        now: Now,
        asked: &FilesAtPlace,
        id: &StageRequestId,
        effects: &mut Effects,
    ) {
        let FilesAtPlace { place, files } = asked;
        if let Some(gathering) = self.tape.gatherings.get_mut(place) {
            gathering.failures = 0;
            gathering.last = None;
            gathering.not_before = None;
            gathering.first_at = now.at;
        }
        let still = |transfer: &TransferId| {
            let gathering = self.tape.gatherings.get(place);
            gathering.is_some_and(|one| one.files.contains_key(transfer))
        };
        let (wanted, unwanted): (Vec<_>, Vec<_>) = files
            .iter()
            .cloned()
            .partition(|file: &TapeFile| still(&file.transfer));
        let kept: BTreeSet<Arc<str>> = wanted.iter().map(|file| file.path.clone()).collect();
        for TapeFile { path, .. } in unwanted {
            if !kept.contains(&path) {
                self.will_cancel(now, place.clone(), id.clone(), path);
            }
        }
        let open = wanted.iter().map(|file| (file.transfer, file.path.clone()));
        self.open_request(now.at, place.clone(), id.clone(), open.collect());
        for TapeFile { transfer, .. } in wanted {
            let request = id.clone();
            let event = TransferEvent::StageRequested { request };
            self.apply(now, transfer, event, effects);
        }
    }

    /// A request is looked at from now on.
    fn open_request(
        &mut self,
        asked_at: Timestamp,
        place: Arc<TapePlace>,
        id: StageRequestId,
        files: BTreeMap<TransferId, Arc<str>>,
    ) {
        if files.is_empty() {
            return;
        }
        let number = self.tape.number();
        let in_it = files.keys().map(|transfer| (*transfer, number));
        self.tape.request_of.extend(in_it);
        let total = files.len();
        let request = Request {
            place,
            id,
            asked_at,
            files,
            total,
            on_disk: 0,
            failures: 0,
            last: None,
            is_looked_at: false,
        };
        let seen = progress_of(number, &request);
        let at = next_look(&seen, &self.config.tape, asked_at);
        self.tape.requests.insert(number, request);
        self.tape.agenda.set(Due::Look(number), at);
    }

    /// Goes on with the requests that a restart found.
    pub(crate) fn adopt_requests(&mut self) {
        struct LookedUpFiles {
            asked_at: Timestamp,
            files: BTreeMap<TransferId, Arc<str>>,
        }
        let mut found: BTreeMap<(Arc<TapePlace>, StageRequestId), LookedUpFiles> = BTreeMap::new();
        for (transfer, entry) in &self.transfers {
            let TransferState::Recalling {
                request, asked_at, ..
            } = entry.state()
            else {
                continue;
            };
            let place = self.tape_place(*transfer, Side::Source);
            let asked = self.request(*transfer);
            let path = asked.and_then(|asked| TapePlace::path(&asked, Side::Source));
            if let (Some(place), Some(path)) = (place, path) {
                let known = found.entry((place, request.clone()));
                let known = known.or_insert(LookedUpFiles {
                    asked_at: *asked_at,
                    files: BTreeMap::new(),
                });
                known.asked_at = known.asked_at.min(*asked_at);
                known.files.insert(*transfer, path);
            }
        }
        for ((place, id), LookedUpFiles { asked_at, files }) in found {
            self.open_request(asked_at, place, id, files);
        }
    }

    fn request_refused(
        &mut self,
        now: Now,
        asked: &FilesAtPlace,
        failure: Failure,
        status: Option<u16>,
        effects: &mut Effects,
    ) {
        let FilesAtPlace { place, files } = asked;
        let seed = self.tape.number_next;
        let Some(gathering) = self.tape.gatherings.get_mut(place) else {
            return;
        };
        match after_refusal(&failure, status, files.len()) {
            RefusalRemedy::AskForFewer => {
                for TapeFile { transfer, .. } in files {
                    if let Some(file) = gathering.files.get_mut(transfer) {
                        file.bulk_max = files.len() / 2;
                    }
                }
            }
            RefusalRemedy::AskLater => {
                gathering.failures += 1;
                let at = next_call(gathering.failures, seed, &self.config.tape, now.at);
                gathering.not_before = Some(at);
                gathering.last = Some(failure);
            }
            RefusalRemedy::GiveUp => {
                for TapeFile { transfer, .. } in files {
                    let fault = StageFault::of_file(failure.clone());
                    self.stage_failed(now, *transfer, fault, effects);
                }
            }
        }
    }

    /// A file was not brought to disk: it is asked for again later, or has failed.
    fn stage_failed(
        &mut self,
        now: Now,
        transfer: TransferId,
        fault: StageFault,
        effects: &mut Effects,
    ) {
        let Some(entry) = self.transfers.get(&transfer) else {
            return;
        };
        let recall = match entry.state() {
            TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. } => {
                recall
            }
            _ => return,
        };
        let RetryRule { retries_max, delay } = self.retries_of(entry.job);
        let StageFault { failure, was_lost } = fault;
        let excused = was_lost && recall.requests <= FORGOTTEN_MAX;
        let decision = next_retry(&FailedAttempt {
            transfer,
            attempt: Attempt(recall.requests),
            failure: &failure,
            failures_before: recall.failures,
            excused: false,
            retries_max: if excused { u32::MAX } else { retries_max },
            delay,
        });
        let event = TransferEvent::StageFailed {
            failure,
            retry_at: decision.choice.map(|wait| now.at + wait),
            excused,
        };
        match decision.choice {
            Some(_) => drop(self.apply(now, transfer, event, effects)),
            None => self.give_up(now, transfer, event, effects),
        }
    }

    /// Looks how far a request is.
    pub(super) fn look(&mut self, number: u64, effects: &mut Effects) {
        let Some(request) = self.tape.requests.get(&number) else {
            return;
        };
        if request.is_looked_at {
            return;
        }
        let place = request.place.clone();
        let awaited: BTreeSet<&Arc<str>> = request.files.values().collect();
        let awaited = awaited.into_iter().map(|path| path.to_string()).collect();
        let errand = TapeErrand::Look(request.id.clone(), request.total, awaited);
        let about = TapeCallSubject::Looking(number);
        let calls_max = self.config.tape.calls_max;
        if self.tape.call(&place, errand, about, calls_max, effects)
            && let Some(request) = self.tape.requests.get_mut(&number)
        {
            request.is_looked_at = true;
        }
    }

    /// A tape system has told how far a request is, or has not.
    pub(super) fn looked(
        &mut self,
        now: Now,
        number: u64,
        outcome: TapeOutcome,
        effects: &mut Effects,
    ) {
        let Some(request) = self.tape.requests.get_mut(&number) else {
            return;
        };
        request.is_looked_at = false;
        match outcome {
            TapeOutcome::Progress(told) => self.take_progress(now, number, told, effects),
            TapeOutcome::Failed { failure, status } => {
                let has_forgotten = matches!(status, Some(404 | 410));
                request.failures += 1;
                let failures = request.failures;
                request.last = Some(failure.clone());
                let files: Vec<TransferId> = request.files.keys().copied().collect();
                if has_forgotten || is_hopeless(&failure, failures) {
                    let fault = match has_forgotten {
                        true => StageFault::of_request(request),
                        false => StageFault::of_file(failure),
                    };
                    for transfer in files {
                        self.stage_failed(now, transfer, fault.clone(), effects);
                    }
                } else {
                    let at = next_call(failures, number, &self.config.tape, now.at);
                    self.tape.agenda.set(Due::Look(number), at);
                }
            }
            TapeOutcome::Accepted(_) | TapeOutcome::Places(_) | TapeOutcome::Done => {}
        }
    }

    fn take_progress(
        &mut self,
        now: Now,
        number: u64,
        told: Vec<(String, FileProgress)>,
        effects: &mut Effects,
    ) {
        let told: HashMap<String, FileProgress> = told.into_iter().collect();
        let Some(request) = self.tape.requests.get_mut(&number) else {
            return;
        };
        request.failures = 0;
        request.last = None;
        let known = request.files.clone();
        let came = |path: &Arc<str>| told.get(&**path) == Some(&FileProgress::OnDisk);
        request.on_disk += known.values().filter(|path| came(path)).count();
        for (transfer, path) in known {
            match told.get(&*path) {
                Some(FileProgress::Pending) => {}
                Some(FileProgress::OnDisk) => {
                    let then = match self
                        .request(transfer)
                        .is_some_and(|request| request.stays())
                    {
                        true => AfterStaging::Nothing,
                        false => AfterStaging::Copy,
                    };
                    self.apply(now, transfer, TransferEvent::Staged { then }, effects);
                }
                Some(FileProgress::Refused(failure)) => {
                    let fault = StageFault::of_file(failure.clone());
                    self.stage_failed(now, transfer, fault, effects);
                }
                Some(FileProgress::Failed(why)) => {
                    let fault = StageFault::of_file(refused_by_tape(why));
                    self.stage_failed(now, transfer, fault, effects);
                }
                None => {
                    let why = "the tape system does not report it";
                    let fault = StageFault::of_file(refused_by_tape(why));
                    self.stage_failed(now, transfer, fault, effects);
                }
            }
        }
        if let Some(request) = self.tape.requests.get(&number) {
            let at = next_look(&progress_of(number, request), &self.config.tape, now.at);
            self.tape.agenda.set(Due::Look(number), at);
        }
    }

    /// A file is not awaited any more: it came, it failed, or nobody wants it, of which its tape system is told.
    pub(super) fn leave_request(
        &mut self,
        now: Now,
        transfer: TransferId,
        event: Option<&TransferEvent>,
    ) {
        let Some(number) = self.tape.request_of.remove(&transfer) else {
            return;
        };
        let Some(request) = self.tape.requests.get_mut(&number) else {
            return;
        };
        let path = request.files.remove(&transfer);
        let nobody_wants_it = match event {
            Some(
                TransferEvent::Canceled { .. }
                | TransferEvent::Expired { .. }
                | TransferEvent::Replaced { .. },
            ) => true,
            Some(TransferEvent::StageFailed {
                retry_at: None,
                failure,
                ..
            }) => failure.errno == Errno::ETIMEDOUT,
            _ => false,
        };
        let (place, id) = (request.place.clone(), request.id.clone());
        let is_shared = |path: &Arc<str>| request.files.values().any(|other| other == path);
        let unwanted = path.filter(|path| nobody_wants_it && !is_shared(path));
        let is_over = request.files.is_empty();
        if let Some(path) = unwanted
            && !self.tape.pins.contains_key(&(id.clone(), path.clone()))
        {
            self.will_cancel(now, place.clone(), id, path);
        }
        if is_over {
            self.tape.requests.remove(&number);
            self.tape.agenda.drop(&Due::Look(number));
        }
        self.let_others_ask(now, &place);
    }

    /// What waited for an open request to end may go on.
    fn let_others_ask(&mut self, now: Now, place: &TapePlace) {
        let alike = |other: &TapePlace| other.storage == place.storage && other.vo == place.vo;
        let waiting = self.tape.gatherings.iter();
        let waiting = waiting.filter(|(other, one)| one.is_at_limit && alike(other));
        let waiting: Vec<Arc<TapePlace>> = waiting.map(|(other, _)| other.clone()).collect();
        for place in waiting {
            self.tape.agenda.set_by(Due::Ask(place), now.at);
        }
    }

    /// After operators have changed limits, or taken back a drain.
    pub(crate) fn reconsider_gatherings(&mut self, now: Timestamp) {
        let places: Vec<Arc<TapePlace>> = self.tape.gatherings.keys().cloned().collect();
        for place in places {
            self.tape.agenda.set_by(Due::Ask(place), now);
        }
    }
}

fn progress_of(number: u64, request: &Request) -> BatchProgress {
    BatchProgress {
        seed: number,
        since: request.asked_at,
        files: request.total,
        done: request.total - request.files.len().min(request.total),
    }
}

fn of_staging(retry: Retry, errno: Errno, detail: String) -> Failure {
    Failure {
        side: Side::Source,
        retry,
        concern: Concern::StorageElement,
        phase: Phase::Staging,
        errno,
        detail,
        found: None,
        busy: None,
        code: None,
    }
}

/// FTS's words.
pub(super) fn took_too_long(recall: &Recall) -> Failure {
    let detail = match &recall.last {
        Some(last) => format!("bring-online timeout has been exceeded; before that: {last}"),
        None => "bring-online timeout has been exceeded".to_owned(),
    };
    of_staging(Retry::Never, Errno::ETIMEDOUT, detail)
}

/// What a tape system says of one file. Only what is not there is not there tomorrow either.
fn refused_by_tape(why: &str) -> Failure {
    let lower = why.to_ascii_lowercase();
    let is_missing = ["no such file", "not found", "does not exist", "enoent"]
        .iter()
        .any(|words| lower.contains(words));
    match is_missing {
        true => of_staging(Retry::Never, Errno::ENOENT, why.to_owned()),
        false => of_staging(Retry::Later, Errno::EIO, why.to_owned()),
    }
}
