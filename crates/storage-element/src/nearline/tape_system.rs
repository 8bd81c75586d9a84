//! What keeps the files that are on tape: the program of an HSM, or tape libraries. Each says what the driver is to do for it, and
//! hears what came of that; it knows neither who asks for files nor what the namespace holds of them.

use super::NearlineStatus;
use super::hsm_program::HsmProgram;
use super::tape_libraries::{LibraryNews, TapeLibraries};
use super::tape_order::{
    Forecast, RecallEnd, RecallTry, TapeGet, TapeOrder, TapeOutcome, TapePut, TapeWork,
};
use crate::tape_counts::TapeCounts;
use crate::tape_meter::MeterState;
use crate::tape_operator::{OperatorError, OperatorOrder, OperatorReply};
use penstock_persistence::namespace::{EntryId, TapeCopy, TapeFile, TapeRemoval};
use penstock_tape::hsm_queue::HsmInput;
use std::path::Path;
use std::time::Duration;
use tokio::sync::oneshot;

/// What a tape system tells by itself.
#[derive(Debug)]
pub(super) enum TapeNews {
    Program(HsmInput),
    Libraries(LibraryNews),
}

/// The tape system of this storage element.
pub(super) enum TapeSystem {
    Program(Box<HsmProgram>),
    Libraries(Box<TapeLibraries>),
}

/// Calls the same method of whichever it is.
macro_rules! either {
    ($system:expr, $one:ident => $call:expr) => {
        match $system {
            TapeSystem::Program($one) => $call,
            TapeSystem::Libraries($one) => $call,
        }
    };
}

impl TapeSystem {
    /// At a start: what was begun and may not have been done.
    pub(super) fn resume(&mut self) -> Vec<TapeOrder> {
        either!(self, one => one.resume())
    }

    pub(super) fn ask_puts(&mut self, puts: Vec<TapePut>) -> Vec<TapeOrder> {
        either!(self, one => one.ask_puts(puts))
    }

    pub(super) fn ask_gets(&mut self, gets: Vec<TapeGet>) -> Vec<TapeOrder> {
        either!(self, one => one.ask_gets(gets))
    }

    pub(super) fn ask_removals(&mut self, removals: Vec<TapeRemoval>) -> Vec<TapeOrder> {
        either!(self, one => one.ask_removals(removals))
    }

    /// Whether a put that is asked for again may want another family or number of copies than before. To an HSM each command tells
    /// the family of its file.
    pub(super) fn takes_changed_puts(&self) -> bool {
        matches!(self, TapeSystem::Libraries(_))
    }

    /// These need not be put on tape, or brought, any more.
    pub(super) fn cancel_puts(&mut self, files: &[EntryId]) -> Vec<TapeOrder> {
        either!(self, one => one.cancel_puts(files))
    }

    pub(super) fn cancel_gets(&mut self, files: &[EntryId]) -> Vec<TapeOrder> {
        either!(self, one => one.cancel_gets(files))
    }

    /// What waits for its next try is tried now.
    pub(super) fn retry_now(&mut self) -> Vec<TapeOrder> {
        either!(self, one => one.retry_now())
    }

    /// Does what an operator wants, and tells so.
    pub(super) async fn operate(
        &mut self,
        order: OperatorOrder,
        reply: oneshot::Sender<Result<OperatorReply, OperatorError>>,
    ) -> Vec<TapeOrder> {
        match self {
            TapeSystem::Libraries(one) => one.operate(order, reply).await,
            TapeSystem::Program(_) => {
                // Whoever asked may have gone.
                let _ = reply.send(Err(OperatorError::NoLibraries));
                Vec::new()
            }
        }
    }

    /// Nothing but time has passed.
    pub(super) fn tick(&mut self) -> Vec<TapeOrder> {
        either!(self, one => one.tick())
    }

    /// Does what nobody waits for, such as reading files on tape to see whether they can be.
    pub(super) fn care_for_tapes(&mut self) -> Vec<TapeOrder> {
        match self {
            // An HSM does that itself.
            TapeSystem::Program(_) => Vec::new(),
            TapeSystem::Libraries(one) => one.care_for_tapes(),
        }
    }

    /// Whether it needs the copy of a file on disk, which is on tape as well.
    pub(super) fn holds(&self, file: EntryId) -> bool {
        match self {
            TapeSystem::Program(_) => false,
            TapeSystem::Libraries(one) => one.holds(file),
        }
    }

    /// Whether it works on this file, and somebody wants that still.
    pub(super) fn is_putting(&self, file: EntryId) -> bool {
        either!(self, one => one.is_putting(file))
    }

    pub(super) fn is_getting(&self, file: EntryId) -> bool {
        either!(self, one => one.is_getting(file))
    }

    /// Whether one of these copies can be read, as far as it is known of tapes.
    pub(super) fn has_readable_copy(&self, copies: &[TapeCopy]) -> bool {
        match self {
            // Of tapes behind a program nothing is known.
            TapeSystem::Program(_) => !copies.is_empty(),
            TapeSystem::Libraries(one) => one.has_readable_copy(copies),
        }
    }

    /// What it takes is compared with what was written while it is read.
    pub(super) fn compares_puts(&self) -> bool {
        match self {
            TapeSystem::Program(_) => false,
            TapeSystem::Libraries(_) => true,
        }
    }

    /// All files that it works on.
    pub(super) fn files(&self) -> Vec<EntryId> {
        either!(self, one => one.files())
    }

    /// Until it wants a tick; `None`: it wants none.
    pub(super) fn wait(&self) -> Option<Duration> {
        either!(self, one => one.wait())
    }

    /// What it tells next.
    pub(super) async fn news(&mut self) -> TapeNews {
        let news = match self {
            TapeSystem::Program(one) => one.news().await.map(TapeNews::Program),
            TapeSystem::Libraries(one) => one.news().await.map(TapeNews::Libraries),
        };
        match news {
            Some(news) => news,
            // It holds a sender itself, so this does not end before it does.
            None => std::future::pending().await,
        }
    }

    pub(super) fn take_news(&mut self, news: TapeNews) -> Vec<TapeOrder> {
        match (self, news) {
            (TapeSystem::Program(one), TapeNews::Program(news)) => one.take_news(news),
            (TapeSystem::Libraries(one), TapeNews::Libraries(news)) => one.take_news(news),
            (TapeSystem::Program(_) | TapeSystem::Libraries(_), _) => Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, work: TapeWork) -> Vec<TapeOrder> {
        match (self, work) {
            (TapeSystem::Program(one), TapeWork::Put { command, file }) => one.put(command, file),
            (TapeSystem::Program(one), TapeWork::Remove { command, uri, of }) => {
                one.remove(command, &uri, of)
            }
            (TapeSystem::Program(one), TapeWork::Stop(command)) => one.stop(command),
            (TapeSystem::Libraries(one), TapeWork::Drive(effect)) => one.perform(&effect),
            (TapeSystem::Program(_) | TapeSystem::Libraries(_), _) => Vec::new(),
        }
    }

    /// There is a place for what is brought.
    pub(super) fn bring(
        &mut self,
        recall: &RecallTry,
        file: &TapeFile,
        path: &Path,
    ) -> Vec<TapeOrder> {
        match (self, recall) {
            (TapeSystem::Program(one), RecallTry::Command(command)) => {
                one.bring(*command, file, path)
            }
            (TapeSystem::Libraries(one), RecallTry::Drive(drive, _)) => one.bring(drive, path),
            (TapeSystem::Program(_) | TapeSystem::Libraries(_), _) => Vec::new(),
        }
    }

    /// So many bytes of what was brought were looked at, beyond all that have come.
    pub(super) fn checking(&mut self, recall: &RecallTry, bytes: u64) -> Vec<TapeOrder> {
        match (self, recall) {
            (TapeSystem::Program(one), RecallTry::Command(command)) => {
                one.checking(*command, bytes)
            }
            (TapeSystem::Libraries(one), RecallTry::Drive(drive, _)) => one.checking(drive, bytes),
            (TapeSystem::Program(_) | TapeSystem::Libraries(_), _) => Vec::new(),
        }
    }

    /// What has become of a try to bring a file.
    pub(super) fn recall_ended(&mut self, recall: RecallTry, end: RecallEnd) -> Vec<TapeOrder> {
        match (self, recall) {
            (TapeSystem::Program(one), RecallTry::Command(command)) => {
                one.recall_ended(command, end)
            }
            (TapeSystem::Libraries(one), RecallTry::Drive(drive, file)) => {
                one.recall_ended(&drive, file, end)
            }
            (TapeSystem::Program(_) | TapeSystem::Libraries(_), _) => Vec::new(),
        }
    }

    /// The records that make up all that it knows, in place of those of before.
    pub(super) fn records(&self) -> Vec<String> {
        either!(self, one => one.records())
    }

    /// Requests that live.
    pub(super) fn live_requests(&self) -> usize {
        either!(self, one => one.live_requests())
    }

    /// Tells when the files that are to be brought will be on disk, on another thread; `None`: nobody waits, or it cannot be told.
    pub(super) fn forecast(&self) -> Option<Forecast> {
        match self {
            // A program tells nothing of tapes and drives.
            TapeSystem::Program(_) => None,
            TapeSystem::Libraries(one) => one.forecast(),
        }
    }

    /// How much waits and how much runs, for samples.
    pub(super) fn meter_state(&self, counts: &TapeCounts) -> MeterState {
        either!(self, one => one.meter_state(counts))
    }

    /// For how long a file has been waited for to which a drive turns now; `None`: nobody does, or it comes later that a program gives
    /// the first of it.
    pub(super) fn recall_wait(&self, file: EntryId) -> Option<Duration> {
        match self {
            TapeSystem::Program(_) => None,
            TapeSystem::Libraries(one) => one.recall_wait(file),
        }
    }

    /// What the drive that brings a file has read beside it.
    pub(super) fn over_bytes(&self, file: EntryId) -> u64 {
        match self {
            // A program tells nothing of it.
            TapeSystem::Program(_) => 0,
            TapeSystem::Libraries(one) => one.over_bytes(file),
        }
    }

    pub(super) fn status(&self) -> NearlineStatus {
        either!(self, one => one.status())
    }

    /// Ends what it does. Returns what has become of files meanwhile.
    pub(super) async fn end(self) -> Vec<TapeOutcome> {
        match self {
            TapeSystem::Program(one) => one.end().await,
            TapeSystem::Libraries(one) => one.end().await,
        }
    }
}
