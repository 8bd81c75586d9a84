//! What the engine knows of tape systems: whom it has asked for what, what it will ask next, and when.
//!
//! Files that wait are in the memory of this process only; which stage request a file is part of is in its state, so
//! that a restart goes on with the requests that are open. A call whose answer was lost is made again: to ask twice
//! for one file does no harm.

mod agenda;
mod archiving;
mod leaving;
mod recalling;
mod replicas;
mod source_removal;

use super::{Action, Effects, Engine, Now, TapeCall, TapeErrand, TapeOutcome, TapePlace};
use agenda::{Agenda, Due};
use archiving::ArchiveGroup;
use leaving::{Farewell, LeavingKey, Leavings};
use penstock_decide::scheduler::LinkNumber;
use penstock_model::tape::GFAL_FILES_MAX;
use penstock_model::{
    Access, Failure, LinkId, Side, StageRequestId, StorageId, TapeWait, Timestamp, TransferEvent,
    TransferId, TransferRequest, TransferState, WaitReason,
};
use recalling::{Request, StageGroup};
use replicas::ReplicaWatch;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// When a deadline is looked at again whose time has come by a clock that is not believed.
const LATER: Duration = Duration::from_secs(60);

/// Everything about tape systems that is not in the states of transfers.
#[derive(Default)]
pub(super) struct TapeTransfers {
    /// Files that wait to be asked for.
    gatherings: BTreeMap<Arc<TapePlace>, StageGroup>,
    /// Stage requests that are open.
    requests: BTreeMap<u64, Request>,
    /// The request that each file is part of.
    request_of: HashMap<TransferId, u64>,
    /// How many transfers need a file that a request has brought to disk.
    pins: HashMap<(StageRequestId, Arc<str>), u32>,
    /// What is to be told of files that nobody needs any more.
    leavings: Leavings,
    /// Files that wait to be on tape.
    archives: BTreeMap<Arc<TapePlace>, ArchiveGroup>,
    /// Replicas of files that wait for tape.
    replicas: ReplicaWatch,
    /// How often the removal of a source was tried in vain, of copies that are on tape.
    removals: HashMap<TransferId, u32>,
    agenda: Agenda,
    calls: BTreeMap<u64, CallInProgress>,
    /// How many there are at each server.
    calls_open: BTreeMap<Arc<str>, usize>,
    /// What waits until a call to a server has ended.
    blocked: BTreeMap<Arc<str>, BTreeSet<Due>>,
    /// Of requests and calls.
    number_next: u64,
    /// Transfers that wait for their files to come from tape, by their links.
    staging: BTreeMap<LinkNumber, u64>,
    /// Transfers that wait for their files to be on tape.
    archiving: u64,
}

/// A call in progress.
struct CallInProgress {
    server: Arc<str>,
    about: TapeCallSubject,
}

/// A file that a call is about, and whose it is.
#[derive(Debug, Clone)]
struct TapeFile {
    transfer: TransferId,
    path: Arc<str>,
}

/// Files at one place.
struct FilesAtPlace {
    place: Arc<TapePlace>,
    files: Vec<TapeFile>,
}

/// What a call in progress is about.
enum TapeCallSubject {
    /// These files were asked for.
    Asking(FilesAtPlace),
    /// How far a request is.
    Looking(u64),
    /// Paths that nobody needs any more.
    Leaving(LeavingKey, Farewell, Vec<Arc<str>>),
    Locating(FilesAtPlace),
    /// Which of these replicas are on disk.
    Finding(FilesAtPlace),
    /// The source of this transfer is being removed.
    RemovingSource(TransferId),
}

impl TapeCallSubject {
    /// What is due again if the call cannot be made now.
    fn due(&self) -> Due {
        match self {
            TapeCallSubject::Asking(asked) => Due::Ask(asked.place.clone()),
            TapeCallSubject::Looking(request) => Due::Look(*request),
            TapeCallSubject::Leaving(key, ..) => Due::Leave(key.clone()),
            TapeCallSubject::Locating(asked) => Due::Locate(asked.place.clone()),
            TapeCallSubject::Finding(asked) => Due::Find(asked.place.clone()),
            TapeCallSubject::RemovingSource(transfer) => Due::RemoveSource(*transfer),
        }
    }
}

impl TapeTransfers {
    fn number(&mut self) -> u64 {
        self.number_next += 1;
        self.number_next
    }

    /// The clock was set back by this much.
    pub(super) fn bring_forward(&mut self, by: Duration) {
        self.agenda.bring_forward(by);
    }

    /// When something is due next.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.agenda.next()
    }

    /// Makes a call, unless as many are in progress at the server as may be: then it is due again when one has ended.
    fn call(
        &mut self,
        place: &Arc<TapePlace>,
        errand: TapeErrand,
        about: TapeCallSubject,
        calls_max: usize,
        effects: &mut Effects,
    ) -> bool {
        let Some(number) = self.open_call(&place.server, about, calls_max) else {
            return false;
        };
        let place = place.clone();
        let call = TapeCall {
            number,
            place,
            errand,
        };
        effects.actions.push(Action::Tape(call));
        true
    }

    /// The number of a call that may be made now.
    fn open_call(
        &mut self,
        server: &Arc<str>,
        about: TapeCallSubject,
        calls_max: usize,
    ) -> Option<u64> {
        let open = self.calls_open.entry(server.clone()).or_default();
        if *open >= calls_max.max(1) {
            let blocked = self.blocked.entry(server.clone());
            blocked.or_default().insert(about.due());
            return None;
        }
        *open += 1;
        let number = self.number();
        let server = server.clone();
        self.calls.insert(number, CallInProgress { server, about });
        Some(number)
    }

    /// A call has ended: another one to the same server may be made.
    fn call_ended(&mut self, number: u64, now: Timestamp) -> Option<TapeCallSubject> {
        let flight = self.calls.remove(&number)?;
        if let Some(open) = self.calls_open.get_mut(&flight.server) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                self.calls_open.remove(&flight.server);
            }
        }
        if let Some(blocked) = self.blocked.get_mut(&flight.server) {
            if let Some(next) = blocked.pop_first() {
                self.agenda.set(next, now);
            }
            if blocked.is_empty() {
                self.blocked.remove(&flight.server);
            }
        }
        Some(flight.about)
    }

    /// One transfer of this link waits no more for its file to come from tape.
    fn end_staging(&mut self, link: LinkNumber) {
        if let Some(transfers) = self.staging.get_mut(&link) {
            *transfers = transfers.saturating_sub(1);
            if *transfers == 0 {
                self.staging.remove(&link);
            }
        }
    }
}

impl Engine {
    /// Transfers whose files are to come from tape.
    pub fn staging(&self) -> u64 {
        self.tape.staging.values().sum()
    }

    /// Links with such transfers, and how many.
    pub fn staging_links(&self) -> impl Iterator<Item = (&LinkId, u64)> + '_ {
        let links = self.tape.staging.iter();
        links.map(|(link, transfers)| (self.scheduler.link(*link), *transfers))
    }

    /// Transfers whose files are to be on tape.
    pub fn archiving(&self) -> u64 {
        self.tape.archiving
    }

    /// A tape system has answered, or has not.
    pub(super) fn tape_answered(
        &mut self,
        now: Now,
        number: u64,
        outcome: TapeOutcome,
        effects: &mut Effects,
    ) {
        match self.tape.call_ended(number, now.at) {
            Some(TapeCallSubject::Asking(asked)) => self.asked(now, &asked, outcome, effects),
            Some(TapeCallSubject::Looking(request)) => self.looked(now, request, outcome, effects),
            Some(TapeCallSubject::Leaving(key, farewell, paths)) => {
                self.left(now, key, farewell, &paths, &outcome);
            }
            Some(TapeCallSubject::Locating(asked)) => {
                self.located(now, &asked, outcome, effects);
            }
            Some(TapeCallSubject::Finding(asked)) => self.found(now, &asked, outcome, effects),
            Some(TapeCallSubject::RemovingSource(transfer)) => {
                self.source_removed(now, transfer, outcome, effects);
            }
            // Already accounted for: a call is answered once.
            None => {}
        }
    }

    /// Does what is due at tape systems.
    pub(super) fn run_tape_agenda(&mut self, now: Now, effects: &mut Effects) {
        while let Some(due) = self.tape.agenda.pop(now.at) {
            match due {
                Due::Deadline(_) if !self.clock_is_credible => {
                    self.tape.agenda.set(due, now.at + LATER);
                }
                Due::Deadline(transfer) => self.tape_deadline(now, transfer, effects),
                Due::Ask(place) => self.ask(now, &place, effects),
                Due::Look(request) => self.look(request, effects),
                Due::Locate(place) => self.locate(now, &place, effects),
                Due::Find(place) => self.find_replicas(&place, effects),
                Due::Leave(key) => self.leave(key, effects),
                Due::RemoveSource(transfer) => self.remove_source(transfer, effects),
            }
        }
    }

    fn tape_deadline(&mut self, now: Now, transfer: TransferId, effects: &mut Effects) {
        let Some(entry) = self.transfers.get(&transfer) else {
            return;
        };
        let event = match entry.state() {
            TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. } => {
                TransferEvent::StageFailed {
                    failure: recalling::took_too_long(recall),
                    retry_at: None,
                    excused: false,
                }
            }
            TransferState::Archiving { .. } => TransferEvent::ArchiveFailed {
                failure: archiving::took_too_long(),
            },
            TransferState::NotUsed
            | TransferState::Submitted { .. }
            | TransferState::Active { .. }
            | TransferState::Finished { .. }
            | TransferState::Failed { .. }
            | TransferState::Canceled { .. } => return,
        };
        self.give_up(now, transfer, event, effects);
    }

    /// Follows a change of state: who waits for tape systems, and who needs them no more. `event` is `None` for what a
    /// restart found.
    pub(super) fn follow_to_tape(
        &mut self,
        now: Now,
        transfer: TransferId,
        before: &TransferState,
        event: Option<&TransferEvent>,
    ) {
        let Some(entry) = self.transfers.get(&transfer) else {
            return;
        };
        let (after, link) = (entry.state().clone(), entry.link);
        let has_to_do = |state: &TransferState| match state {
            TransferState::NotUsed
            | TransferState::Failed { .. }
            | TransferState::Canceled { .. }
            | TransferState::Finished { .. } => false,
            TransferState::Submitted { staged, .. } | TransferState::Active { staged, .. } => {
                staged.is_some()
            }
            TransferState::Staging { .. }
            | TransferState::Recalling { .. }
            | TransferState::Archiving { .. } => true,
        };
        if !has_to_do(before) && !has_to_do(&after) {
            return;
        }
        let Some(request) = self.request(transfer) else {
            return;
        };
        let is_staging = |state: &TransferState| {
            matches!(
                state,
                TransferState::Staging { .. } | TransferState::Recalling { .. }
            )
        };
        if is_staging(before) && !is_staging(&after) {
            self.tape.end_staging(link);
            self.tape.agenda.drop(&Due::Deadline(transfer));
            self.stop_watching(transfer);
        }
        match before {
            TransferState::Staging { .. } => drop(self.stop_gathering(transfer)),
            TransferState::Recalling { .. } => self.leave_request(now, transfer, event),
            TransferState::Archiving { .. } => self.stop_archiving(transfer),
            TransferState::NotUsed
            | TransferState::Submitted { .. }
            | TransferState::Active { .. }
            | TransferState::Finished { .. }
            | TransferState::Failed { .. }
            | TransferState::Canceled { .. } => {}
        }
        if is_staging(&after) && !is_staging(before) {
            *self.tape.staging.entry(link).or_insert(0) += 1;
            self.expect_from_tape(transfer, &after);
            // What a restart found is watched when all of it is known.
            if event.is_some() {
                self.watch_replicas(now.at, transfer);
            }
        }
        match (before.staged(), after.staged()) {
            (None, Some(id)) => self.pin(id.clone(), &request),
            (Some(id), None) => self.unpin(now, id, transfer, &request, !is_staging(&after)),
            (None, None) | (Some(_), Some(_)) => {}
        }
        if let TransferState::Archiving { since, .. } = after {
            self.begin_archiving(now, transfer, since);
        }
    }

    /// Until when a file must be on disk.
    fn expect_from_tape(&mut self, transfer: TransferId, state: &TransferState) {
        let entry = &self.transfers[&transfer];
        let staging = self.jobs[&entry.job].parameters().staging;
        if let (
            Some(staging),
            TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. },
        ) = (staging, state)
        {
            let deadline = staging.deadline(recall);
            self.tape.agenda.set(Due::Deadline(transfer), deadline);
        }
    }

    /// A file that is on disk by a stage request is needed there.
    fn pin(&mut self, id: StageRequestId, request: &TransferRequest) {
        if let Some(path) = TapePlace::path(request, Side::Source) {
            *self.tape.pins.entry((id, path)).or_default() += 1;
        }
    }

    /// It is not needed any more; when nobody else needs it, its tape system is told if `told` says so.
    fn unpin(
        &mut self,
        now: Now,
        id: &StageRequestId,
        transfer: TransferId,
        request: &TransferRequest,
        told: bool,
    ) {
        let Some(path) = TapePlace::path(request, Side::Source) else {
            return;
        };
        let key = (id.clone(), path.clone());
        if let Some(users) = self.tape.pins.get_mut(&key) {
            *users -= 1;
            if *users > 0 {
                return;
            }
            self.tape.pins.remove(&key);
        }
        if told && let Some(place) = self.tape_place(transfer, Side::Source) {
            self.will_release(now, place, id.clone(), path);
        }
    }

    /// How many files one call may be about.
    fn bulk_files_max(&self, place: &TapePlace) -> usize {
        let most = self.config.tape.bulk_files_max.max(1);
        match place.storage.access() {
            Access::Gfal => most.min(GFAL_FILES_MAX),
            Access::Http | Access::Cloud => most,
        }
    }

    /// The server to ask about a file at one of its ends, and the protocol and credentials.
    fn tape_place(&self, transfer: TransferId, side: Side) -> Option<Arc<TapePlace>> {
        let entry = self.transfers.get(&transfer)?;
        let job = self.jobs.get(&entry.job)?;
        let proxy = job.parameters().proxy.as_ref();
        let request = self.request(transfer)?;
        TapePlace::of(&request, side, job.vo(), proxy).map(Arc::new)
    }

    /// Why a transfer waits for a tape system; `None` when it does not.
    pub(super) fn why_at_tape(&self, transfer: TransferId) -> Option<WaitReason> {
        let entry = self.transfers.get(&transfer)?;
        let wait = match entry.state() {
            TransferState::Staging { .. } => {
                self.why_gathering(transfer, &self.scheduler.link(entry.link).source)
            }
            TransferState::Recalling { asked_at, .. } => {
                let request = self
                    .tape
                    .requests
                    .get(self.tape.request_of.get(&transfer)?)?;
                let due = self
                    .tape
                    .agenda
                    .at(&Due::Look(self.tape.request_of[&transfer]));
                request.wait(*asked_at, due)
            }
            TransferState::Archiving { since, .. } => self.why_archiving(transfer, *since)?,
            TransferState::NotUsed
            | TransferState::Submitted { .. }
            | TransferState::Active { .. }
            | TransferState::Finished { .. }
            | TransferState::Failed { .. }
            | TransferState::Canceled { .. } => return None,
        };
        Some(WaitReason::Tape(wait))
    }

    fn why_gathering(&self, transfer: TransferId, storage: &StorageId) -> TapeWait {
        let place = self.tape_place(transfer, Side::Source);
        let gathering = place
            .as_ref()
            .and_then(|place| self.tape.gatherings.get(place));
        let open = place.as_ref().map(|place| self.open_requests(place));
        let open = open.unwrap_or_default();
        match gathering {
            Some(StageGroup {
                not_before: Some(until),
                failures,
                last: Some(last),
                ..
            }) => TapeWait::Failing {
                storage: storage.clone(),
                until: *until,
                failures: *failures,
                last: last.clone(),
            },
            Some(gathering) if gathering.is_at_limit => TapeWait::Full {
                storage: storage.clone(),
                requests: open.requests as u64,
                files: open.files as u64,
            },
            Some(_) | None => TapeWait::Gathering {
                storage: storage.clone(),
                files: gathering.map_or(1, |gathering| gathering.files.len() as u64),
            },
        }
    }
}

/// A failure that trying again cannot mend, after so many calls in a row.
fn is_hopeless(failure: &Failure, failures: u32) -> bool {
    const CALLS_MAX: u32 = 3;
    failures >= CALLS_MAX && failure.retry != penstock_model::Retry::Later
}
