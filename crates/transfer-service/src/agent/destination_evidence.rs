//! What attempts have left at a destination: as the record tells it and as it is seen there. Whose it is, is decided in
//! `decide::destination`; nothing is removed that was not looked at before.

use super::http::{AccessMethod, End, RemovalFailure, Stat};
use super::steps::{AttemptRun, PreflightFindings, ReachedEnds, StatScope};
use parking_lot::{Mutex, MutexGuard};
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_decide::destination::{Attempts, CopyEnd, RemnantVerdict, UnsettledAttempts, remnant};
use penstock_decide::record_clock::RecordedTime;
use penstock_decide::wording;
use penstock_engine::{AttemptOutcome, Task};
use penstock_model::{Bytes, Failure, LedgerEntry, Phase, Retry, Side, Timestamp};

/// Records of one transfer that are looked through; more are not made by any number of retries that is allowed.
const ENTRIES_MAX: usize = 10_000;

/// What is known of a transfer's attempts while one of them runs.
#[derive(Debug, Default)]
pub(super) struct AttemptHistory {
    known: Mutex<AttemptTraces>,
}

#[derive(Debug, Default)]
struct AttemptTraces {
    attempts: Attempts,
    /// What they were made from, while the destination may still tell how old it is: until this attempt copies.
    entries: Vec<LedgerEntry>,
    is_recalled: bool,
    /// This attempt may have left something at the destination, or may leave it yet.
    has_written: bool,
    /// The destination refused because something is there, or is being written there.
    met_something: bool,
    /// What of earlier attempts might still run when this one looked.
    runs_beside: Option<UnsettledAttempts>,
    /// The destination has said, or may have meant, that it has the whole file, and no look has shown otherwise.
    awaits_look: bool,
}

impl AttemptHistory {
    fn lock(&self) -> MutexGuard<'_, AttemptTraces> {
        self.known.lock()
    }

    /// What the transfer's attempts have done.
    pub(super) fn attempts(&self) -> Attempts {
        self.lock().attempts.clone()
    }

    /// The attempt has looked at the destination, from this time on.
    pub(super) fn note_look(&self, now: Timestamp) {
        let mut known = self.lock();
        let lost = known.attempts.lost().filter(|lost| lost.may_run(now));
        known.runs_beside = lost.cloned();
    }
}

impl AttemptRun<'_> {
    /// Reads what earlier attempts of this transfer have done at its destination.
    pub(super) async fn recall(&self) -> Result<(), Failure> {
        let assignment = self.assignment;
        if assignment.attempt.0 <= 1 && !assignment.unsettled {
            return Ok(());
        }
        let (reader, transfer) = (self.setup.reader.clone(), assignment.request.id);
        let read = move || reader.entries_of(transfer, ENTRIES_MAX);
        let entries = match tokio::task::spawn_blocking(read).await {
            Ok(Ok(entries)) => Ok(entries),
            Ok(Err(why)) => Err(why.to_string()),
            Err(why) => Err(why.to_string()),
        };
        let entries = entries.map_err(|why| {
            let detail = format!("the record of this transfer's attempts cannot be read: {why}");
            classify(
                Side::Service,
                Phase::Preparation,
                &ObservedFailure::Broken,
                detail,
            )
        })?;
        let attempts = self.attempts_in(&entries, None);
        let mut known = self.traces.lock();
        known.attempts = attempts;
        // Where an attempt may have written there are entries: history that is gone says nothing of what it left.
        known.is_recalled = !entries.is_empty();
        known.entries = entries;
        Ok(())
    }

    /// What the records tell, as old as they are by our clock and, where the destination shows it, by its own.
    fn attempts_in(&self, entries: &[LedgerEntry], date: Option<Timestamp>) -> Attempts {
        let (assignment, clock) = (self.assignment, self.record_clock());
        let mut attempts = Attempts::default();
        // Between a backup and its return others may have written there.
        let restored_at = assignment.parameters.restored_at;
        let counts = |entry: &&LedgerEntry| restored_at.is_none_or(|time| entry.at >= time);
        for entry in entries.iter().filter(counts) {
            let limit = |size| self.timeout(size);
            let looks = !assignment.parameters.strict_copy;
            attempts.note(clock.read(entry.at, date), &entry.event, limit, looks);
        }
        if entries.len() == ENTRIES_MAX {
            attempts.doubt(clock.at);
        }
        if assignment.task == Task::TidyUp {
            attempts.stop(assignment.ended.map(|ended| clock.read(ended, date)));
        }
        attempts
    }

    /// The destination has answered a look. What its clock shows tells how long ago the records were written.
    pub(super) fn compare_clocks(&self, date: Option<Timestamp>) {
        let mut known = self.traces.lock();
        if date.is_some() && !known.entries.is_empty() {
            known.attempts = self.attempts_in(&known.entries, date);
        }
    }

    /// An attempt that nobody knows the outcome of may have brought the file: one before, or one after the backup that
    /// the job was brought back from.
    pub(super) fn may_have_arrived(&self) -> bool {
        self.traces.lock().attempts.has_lost() || self.assignment.parameters.restored_at.is_some()
    }

    /// A way of copying begins.
    pub(super) fn begin_to_copy(&self, plan: &PreflightFindings) {
        self.progress.set_moved(0);
        let limit = self.timeout(plan.size);
        let mut known = self.traces.lock();
        let now = RecordedTime::exact(self.now());
        known.entries = Vec::new();
        known.attempts.begin(now, plan.size, plan.was_absent, limit);
        known.has_written = true;
        known.met_something = false;
        known.awaits_look = false;
    }

    /// How the copy has ended, as far as that is known. Nothing said means that it may still run.
    pub(super) fn note_end(&self, end: CopyEnd) {
        let mut known = self.traces.lock();
        known.attempts.end(self.now(), end);
        known.met_something = end == CopyEnd::Occupied;
        known.awaits_look = end == CopyEnd::Arrived;
        if let CopyEnd::Refused | CopyEnd::Occupied = end {
            known.has_written = false;
        }
    }

    /// What this attempt has sent may be there, whole; the next look compares it.
    pub(super) fn await_look(&self) {
        let mut known = self.traces.lock();
        known.attempts.end(self.now(), CopyEnd::Unknown);
        known.awaits_look = true;
    }

    /// A look has shown that what arrived is not the file.
    pub(super) fn contradict_arrival(&self) {
        self.traces.lock().awaits_look = false;
    }

    /// What is there may be what an earlier copy brings.
    pub(super) fn meet_something(&self) {
        self.traces.lock().met_something = true;
    }

    /// What is there is to stay, whatever becomes of the attempt.
    pub(super) fn leave_what_is_there(&self) {
        let mut known = self.traces.lock();
        known.attempts = Attempts::default();
        known.entries = Vec::new();
        known.has_written = false;
        known.awaits_look = false;
    }

    /// How an attempt ends that has failed. One that met nothing but an earlier copy of its transfer is not the
    /// transfer's failure.
    pub(super) fn failed(&self, mut failure: Failure, cleaned: bool) -> AttemptOutcome {
        let moved = Bytes(self.progress.moved());
        let failed = |failure| AttemptOutcome::Failed {
            failure,
            cleaned,
            moved,
        };
        let known = self.traces.lock();
        if !known.met_something {
            return failed(failure);
        }
        let Some(beside) = known.runs_beside.as_ref() else {
            if known.attempts.has_lost() {
                // What came while this one copied may be what an earlier one has brought: the next look compares it.
                failure.retry = Retry::Later;
            }
            return failed(failure);
        };
        failure.retry = Retry::Later;
        failure.detail += "; an earlier copy of this transfer may still be running there";
        let until = beside.blocks_until;
        if until <= self.now() {
            return failed(failure);
        }
        AttemptOutcome::Blocked {
            failure,
            until,
            moved,
        }
    }

    /// What else is known of a file that may be an attempt's own, before anything is done with it.
    pub(super) async fn examine(
        &self,
        end: &End,
        there: Stat,
        phase: Phase,
    ) -> Result<Stat, Failure> {
        let may_be_own = self.traces.lock().attempts.lost().is_some();
        let AccessMethod::Http = end.way() else {
            return Ok(there);
        };
        if !may_be_own {
            return Ok(there);
        }
        let Some(properties) = self.setup.properties(end, self.now()).await else {
            return Ok(there);
        };
        if properties.is_directory {
            let detail = format!("{} is a directory", end.url);
            return Err(end.failure(phase, &ObservedFailure::IsDirectory, detail));
        }
        Ok(Stat {
            modified: there.modified.or(properties.modified),
            ..there
        })
    }

    /// Removes what was seen there and is this transfer's own.
    pub(super) async fn remove_own(
        &self,
        end: &End,
        seen: &Stat,
        phase: Phase,
    ) -> Result<(), Failure> {
        let removed = match end.way() {
            AccessMethod::Http => self.setup.remove(end, seen.version.as_ref(), phase).await,
            AccessMethod::Cloud(access) => {
                let removed = self.setup.remove_object(end, access, phase).await;
                removed.map_err(RemovalFailure::from)
            }
            AccessMethod::Gfal => {
                let removed = self.gfal_remove(end, phase).await;
                removed.map_err(RemovalFailure::from)
            }
        };
        removed.map_err(|why| {
            let mut known = self.traces.lock();
            known.met_something |= why.is_occupied;
            Failure {
                detail: format!(
                    "what an earlier attempt left at {} was not removed: {}",
                    end.url, why.failure.detail
                ),
                ..why.failure
            }
        })
    }

    /// Removes what a failed attempt may have made at its destination, as [`AttemptRun::clean_up`] does, unless that may
    /// be the whole file, which nobody has looked at yet.
    pub(super) async fn clean_up_after_failure(&self) -> bool {
        let awaits_look = self.traces.lock().awaits_look;
        !awaits_look && self.clean_up().await
    }

    /// Removes what this attempt may have made at its destination. True when nothing of it, or of those before it, is
    /// left there, or will come.
    pub(super) async fn clean_up(&self) -> bool {
        if let Some(ReachedEnds { destination, .. }) = self.ends.get()
            && let Some(access) = &destination.cloud
        {
            // Nobody sees it, but it takes room.
            self.abort_uploads(access).await;
        }
        let has_written = {
            let mut known = self.traces.lock();
            // Its connections are closed.
            known.attempts.end(self.now(), CopyEnd::Unknown);
            known.has_written
        };
        let Some(lost) = self.traces.attempts().lost().cloned() else {
            return self.traces.lock().is_recalled || !self.assignment.unsettled;
        };
        // What earlier attempts have left was looked at, and is looked at again by the next.
        if !has_written || self.assignment.parameters.disable_cleanup {
            return false;
        }
        if !lost.was_absent {
            return !lost.may_run(self.now());
        }
        let Some(ReachedEnds { destination, .. }) = self.ends.get() else {
            return false;
        };
        let destination = self.renewed(destination).await;
        match self.remove_remnant(&destination).await {
            Ok(()) => true,
            Err(failure) => {
                let (transfer, url) = (self.assignment.request.id.0, &destination.url);
                tracing::debug!(transfer, destination = %url, why = failure.detail, "an attempt may have left something");
                false
            }
        }
    }

    /// Removes what attempts of unknown outcome have left at the destination of a transfer that has ended. Errors: why
    /// something may still be there, or may come.
    pub(super) async fn tidy_up(&self) -> Result<(), Failure> {
        if self.assignment.parameters.disable_cleanup {
            return Ok(());
        }
        let _turn = self.setup.memory.tidying.acquire().await;
        self.recall().await?;
        let destination = self.end(Side::Destination).await?;
        if let Some(access) = &destination.cloud {
            self.abort_uploads(access).await;
        }
        if self.traces.attempts().lost().is_none() {
            return match self.traces.lock().is_recalled {
                true => Ok(()),
                false => Err(self.without_evidence(&destination)),
            };
        }
        self.remove_remnant(&destination).await
    }

    fn without_evidence(&self, destination: &End) -> Failure {
        let detail = format!(
            "nothing is recorded any more of what the attempts of this transfer did at {}: look there, and remove what \
             is a part of a file",
            destination.url
        );
        classify(
            Side::Service,
            Phase::Finalization,
            &ObservedFailure::Broken,
            detail,
        )
    }

    pub(super) fn untidied(&self, failure: Failure) -> AttemptOutcome {
        let mut outcome = AttemptOutcome::Untidied { failure };
        self.hide_credentials(&mut outcome);
        outcome
    }

    /// Looks at a destination where nothing writes any more for this transfer, and removes what is its own. Errors: why
    /// something may still be there, or may come.
    async fn remove_remnant(&self, destination: &End) -> Result<(), Failure> {
        let phase = Phase::Finalization;
        let there = match self.stat(destination, StatScope::Size, phase).await? {
            Some(there) => Some(self.examine(destination, there, phase).await?),
            None => None,
        };
        let (attempts, now) = (self.traces.attempts(), self.now());
        let told = there.as_ref().map(Stat::told);
        match (remnant(told.as_ref(), &attempts, now), &there) {
            (RemnantVerdict::Own, Some(seen)) => self.remove_own(destination, seen, phase).await?,
            (RemnantVerdict::Foreign(foreign), _) => {
                let transfer = self.assignment.request.id.0;
                let why = wording::foreign(foreign);
                tracing::info!(transfer, destination = %destination.url, why, "what is there may be somebody else's, and stays");
                return Ok(());
            }
            (RemnantVerdict::Nothing | RemnantVerdict::MayCome { .. } | RemnantVerdict::Own, _) => {
            }
        }
        match attempts.runs_until(now) {
            None => Ok(()),
            Some(until) => {
                let detail = format!(
                    "a copy to {} may still be running until {}",
                    destination.url,
                    until.to_fts()
                );
                Err(destination.failure(phase, &ObservedFailure::Broken, detail))
            }
        }
    }
}
