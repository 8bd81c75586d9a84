//! Where files go that come from tape, and what becomes of what has come.

use super::Driver;
use super::asking::Lookup;
use crate::nearline::driver_task::{LocalError, RecallEnd};
use crate::nearline::recall::{PlacedRecall, place};
use crate::nearline::tape_system::{TapeSystem, TaskOf};
use penstock_model::ProblemCode;
use penstock_persistence::namespace::{EntryId, NearlineChange};

/// A file on its way.
pub(super) struct Recall {
    placed: PlacedRecall,
    /// All has come, and is being looked at.
    is_checked: bool,
}

/// What a look at a file that has come tells.
pub(super) type CheckNews<Try> = (Try, Checked);

pub(super) enum Checked {
    /// So many bytes were looked at, beyond all that have come.
    Reading(u64),
    Ended(RecallEnd),
}

impl<S: TapeSystem> Driver<S> {
    /// Makes a place on disk and has the file brought there.
    pub(super) async fn bring(&mut self, recall: S::Try, file: EntryId) -> Vec<TaskOf<S>> {
        let found = match self.tape_file(file) {
            Lookup::File(found)
                if found
                    .pool
                    .as_ref()
                    .is_none_or(|pool| self.is_given_up(pool)) =>
            {
                found
            }
            // Where it is on disk, it was brought by a try whose end was not recorded, or its pool is back.
            Lookup::File(_) => return self.ended(recall, RecallEnd::Gone),
            Lookup::Gone => {
                self.fail_recall_of_gone(file).await;
                return self.ended(recall, RecallEnd::Gone);
            }
            Lookup::Unknown => {
                let text = "it does not answer".to_owned();
                let end = RecallEnd::NotTaken(LocalError::Namespace(text));
                return self.ended(recall, end);
            }
        };
        // A try that was given up may still bring it.
        let mut others = self.recalls.values();
        if others.any(|other| other.placed.file() == file) {
            return self.ended(recall, RecallEnd::NotTaken(LocalError::Removing));
        }
        let placed = match place(&self.context, &found).await {
            Ok(placed) => placed,
            Err(why) => {
                if let LocalError::NoRoom(lack) = why {
                    self.wait_for_room(&[(file, found.size)], lack).await;
                }
                return self.ended(recall, RecallEnd::NotTaken(why));
            }
        };
        self.room_wait.is_over(file);
        let at = self.recorded();
        self.must(NearlineChange::RecallStarted { file, at }).await;
        self.meter_begin(file);
        let orders = self.system.bring(&recall, &found, &placed.path());
        let is_checked = false;
        self.recalls.insert(recall, Recall { placed, is_checked });
        orders
    }

    /// All has come: it is looked at before anybody hears of it.
    pub(super) fn check(&mut self, recall: S::Try) -> Vec<TaskOf<S>> {
        let Some(brought) = self.recalls.get_mut(&recall) else {
            return self.ended(recall, RecallEnd::Gone);
        };
        if !brought.is_checked {
            brought.is_checked = true;
            let (ends, reads) = (self.checks.clone(), self.checks.clone());
            let reading = recall.clone();
            brought.placed.check(
                move |bytes| drop(reads.send((reading.clone(), Checked::Reading(bytes)))),
                move |end| drop(ends.send((recall, Checked::Ended(end)))),
            );
        }
        Vec::new()
    }

    /// Nothing more comes. What is being looked at has its end first.
    pub(super) fn abandon(&mut self, recall: &S::Try) {
        if self.recalls.get(recall).is_some_and(|one| !one.is_checked) {
            self.recalls.remove(recall);
        }
    }

    pub(super) async fn take_check(&mut self, recall: S::Try, news: Checked) {
        let end = match news {
            Checked::Reading(bytes) => {
                let orders = self.system.checking(&recall, bytes);
                return self.perform(orders).await;
            }
            Checked::Ended(end) => end,
        };
        let file = self.recalls.get(&recall).map(|one| one.placed.file());
        let orders = self.settle(recall, end).await;
        self.perform(orders).await;
        // A try that was given up may have brought it all the same, while another one waits.
        self.ask_gets(file.into_iter().collect()).await;
    }

    /// Whoever waits for a file that was removed is told so.
    async fn fail_recall_of_gone(&mut self, file: EntryId) {
        if let Ok(Some(_)) = self.context.namespace.awaited_by(file) {
            let text = "the file was removed";
            self.fail_recall(file, ProblemCode::PathNotFound, text)
                .await;
        }
    }

    /// A file that was looked at becomes visible, before the tape system hears of it.
    async fn settle(&mut self, recall: S::Try, end: RecallEnd) -> Vec<TaskOf<S>> {
        let end = match (self.recalls.remove(&recall), end) {
            (Some(Recall { placed, .. }), RecallEnd::Brought) => {
                let file = placed.file();
                let recalled = NearlineChange::Recalled {
                    file,
                    pool: placed.pool().clone(),
                    instead_of: placed.target().pool.clone(),
                    at: self.recorded(),
                };
                match self.must(recalled).await {
                    Some(_) => {
                        self.meter_recalled(placed.target());
                        placed.keep();
                        self.retries.forget(file);
                        self.drop_set_aside_of(file).await;
                        RecallEnd::Brought
                    }
                    None if self.is_over => {
                        placed.leave();
                        return Vec::new();
                    }
                    None => {
                        self.give_up(placed);
                        if let Lookup::Gone = self.tape_file(file) {
                            self.fail_recall_of_gone(file).await;
                        }
                        RecallEnd::Gone
                    }
                }
            }
            (_, end) => end,
        };
        self.ended(recall, end)
    }

    fn ended(&mut self, recall: S::Try, end: RecallEnd) -> Vec<TaskOf<S>> {
        self.system.recall_ended(recall, end)
    }

    /// The namespace does not take a recalled file: it is gone, or on disk. A change that was refused may have been made before, by a
    /// commit that failed.
    fn give_up(&self, placed: PlacedRecall) {
        match self.tape_file(placed.file()) {
            Lookup::File(file) if file.pool.as_ref() == Some(placed.pool()) => placed.keep(),
            Lookup::File(_) | Lookup::Gone => placed.withdraw(),
            Lookup::Unknown => placed.leave(),
        }
    }
}
