//! Sources that are removed when their copies are on tape. The transfer ends after that, so that a restart in between asks
//! once more where the copy is, and then removes the source again: what is gone counts as removed.

use super::{Due, TapeCallSubject};
use crate::{Action, Assignment, Effects, Engine, Now, TapeOutcome, Task};
use penstock_decide::staging::next_call;
use penstock_model::{Retry, Side, SourceRemoval, TransferEvent, TransferId, TransferState};
use std::sync::Arc;

/// Calls for one source before it is kept: with growing waits between them, about 20 minutes.
const CALLS_MAX: u32 = 10;

impl Engine {
    /// A copy is on tape: its transfer has ended, unless its source is to be removed first.
    pub(super) fn is_on_tape(&mut self, now: Now, transfer: TransferId, effects: &mut Effects) {
        let entry = self.transfers.get(&transfer);
        let removes = entry.is_some_and(|entry| self.jobs[&entry.job].parameters().removes_source);
        if !removes {
            let event = TransferEvent::Archived { source: None };
            self.apply(now, transfer, event, effects);
            return;
        }
        self.stop_looking(transfer);
        self.tape.removals.entry(transfer).or_default();
        self.tape.agenda.set(Due::RemoveSource(transfer), now.at);
    }

    pub(super) fn stop_removing_source(&mut self, transfer: TransferId) {
        if self.tape.removals.remove(&transfer).is_some() {
            self.tape.agenda.drop(&Due::RemoveSource(transfer));
        }
    }

    /// Has the source of a copy that is on tape removed.
    pub(super) fn remove_source(&mut self, transfer: TransferId, effects: &mut Effects) {
        if !self.tape.removals.contains_key(&transfer) {
            return;
        }
        let place = self.tape_place(transfer, Side::Source);
        let (Some(place), Some(assignment)) = (place, self.of_source_removal(transfer)) else {
            return;
        };
        let about = TapeCallSubject::RemovingSource(transfer);
        let calls_max = self.config.tape.calls_max;
        if let Some(number) = self.tape.open_call(&place.server, about, calls_max) {
            effects.actions.push(Action::RemoveSource {
                number,
                assignment: Box::new(assignment),
            });
        }
    }

    /// What whoever removes the source has to know.
    fn of_source_removal(&self, transfer: TransferId) -> Option<Assignment> {
        let entry = self.transfers.get(&transfer)?;
        let TransferState::Archiving { attempt, mode, .. } = *entry.state() else {
            return None;
        };
        let job = &self.jobs[&entry.job];
        Some(Assignment {
            to: self.nodes.own(),
            job: entry.job,
            vo: job.vo().clone(),
            request: Arc::new(self.request(transfer)?),
            parameters: job.parameters().clone(),
            attempt,
            streams: None,
            // No attempt is known to have copied it.
            unsettled: mode.is_none() || job.parameters().restored_at.is_some(),
            ended: None,
            clock: Some(self.record_clock()),
            task: Task::RemoveSource,
        })
    }

    /// A source was removed, or was not.
    pub(super) fn source_removed(
        &mut self,
        now: Now,
        transfer: TransferId,
        outcome: TapeOutcome,
        effects: &mut Effects,
    ) {
        let Some(calls) = self.tape.removals.get_mut(&transfer) else {
            return;
        };
        let failure = match outcome {
            TapeOutcome::Failed { failure, .. } => Some(failure),
            TapeOutcome::Done
            | TapeOutcome::Accepted(_)
            | TapeOutcome::Progress(_)
            | TapeOutcome::Places(_) => None,
        };
        let source = match failure {
            None => SourceRemoval::Removed,
            Some(failure) => {
                *calls += 1;
                if failure.retry == Retry::Later && *calls < CALLS_MAX {
                    let at = next_call(*calls, transfer.0, &self.config.tape, now.at);
                    self.tape.agenda.set(Due::RemoveSource(transfer), at);
                    return;
                }
                SourceRemoval::Kept(failure)
            }
        };
        let source = Some(source);
        self.apply(now, transfer, TransferEvent::Archived { source }, effects);
    }
}
