//! What keeps the files that are on tape: the program of an HSM, or tape libraries. Each says what the driver is to do for it, and
//! hears what came of that; it knows neither who asks for files nor what the namespace holds of them.

use super::NearlineStatus;
use super::driver_task::{DriverTask, Forecast, RecallEnd, TapeGet, TapeOutcome, TapePut};
use crate::tape_counts::TapeCounts;
use crate::tape_meter::MeterState;
use crate::tape_operator::{OperatorError, OperatorOrder, ReplySender};
use penstock_persistence::namespace::{EntryId, TapeCopyUri, TapeFile, TapeRemoval};
use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

/// A task for the driver of this tape system.
pub(super) type TaskOf<S> = DriverTask<<S as TapeSystem>::Try, <S as TapeSystem>::Work>;

/// A tape system.
pub(super) trait TapeSystem: Sized + Send + 'static {
    /// Names one try to bring a file.
    type Try: Debug + Clone + Ord + Send + 'static;
    /// What it does once its records are kept.
    type Work: Debug;
    /// What it tells by itself.
    type News: Debug;

    /// At a start: what was begun and may not have been done.
    fn resume(&mut self) -> Vec<TaskOf<Self>>;

    fn ask_puts(&mut self, puts: Vec<TapePut>) -> Vec<TaskOf<Self>>;

    fn ask_gets(&mut self, gets: Vec<TapeGet>) -> Vec<TaskOf<Self>>;

    fn ask_removals(&mut self, removals: Vec<TapeRemoval>) -> Vec<TaskOf<Self>>;

    /// Whether a put that is asked for again may want another family or number of copies than before. To an HSM each command tells
    /// the family of its file.
    fn takes_changed_puts(&self) -> bool {
        false
    }

    /// These need not be put on tape, or brought, any more.
    fn cancel_puts(&mut self, files: &[EntryId]) -> Vec<TaskOf<Self>>;

    fn cancel_gets(&mut self, files: &[EntryId]) -> Vec<TaskOf<Self>>;

    /// What waits for its next try is tried now.
    fn retry_now(&mut self) -> Vec<TaskOf<Self>>;

    /// Does what an operator wants of drives and tapes, and tells so. An HSM has its own operators for that.
    async fn operate(&mut self, _order: OperatorOrder, reply: ReplySender) -> Vec<TaskOf<Self>> {
        // Whoever asked may have gone.
        let _ = reply.send(Err(OperatorError::NoLibraries));
        Vec::new()
    }

    /// Nothing but time has passed.
    fn tick(&mut self) -> Vec<TaskOf<Self>>;

    /// Does what nobody waits for, such as reading files on tape to see whether they can be. An HSM does that itself.
    fn care_for_tapes(&mut self) -> Vec<TaskOf<Self>> {
        Vec::new()
    }

    /// A file has come back from the trash, perhaps with fewer copies than it should have.
    fn file_restored(&mut self) {}

    /// The namespace was told of a further copy of a file, and has kept it if the file is there.
    fn copy_told(&mut self, _file: EntryId) -> Vec<TaskOf<Self>> {
        Vec::new()
    }

    /// Whether it needs the copy of a file on disk, which is on tape as well.
    fn holds(&self, _file: EntryId) -> bool {
        false
    }

    /// Whether it works on this file, and somebody wants that still.
    fn is_putting(&self, file: EntryId) -> bool;

    fn is_getting(&self, file: EntryId) -> bool;

    /// Whether one of these copies of a file can be read, as far as is known.
    fn has_readable_copy(&self, file: EntryId, copies: &[TapeCopyUri]) -> bool;

    /// Whether what it takes is compared with what was written while it is read.
    fn compares_puts(&self) -> bool {
        false
    }

    /// All files that it works on.
    fn files(&self) -> Vec<EntryId>;

    /// Until it wants a tick; `None`: it wants none.
    fn wait(&self) -> Option<Duration>;

    /// What it tells next; `None`: nothing more comes.
    async fn news(&mut self) -> Option<Self::News>;

    fn take_news(&mut self, news: Self::News) -> Vec<TaskOf<Self>>;

    fn begin(&mut self, work: Self::Work) -> Vec<TaskOf<Self>>;

    /// There is a place for what is brought.
    fn bring(&mut self, recall: &Self::Try, file: &TapeFile, path: &Path) -> Vec<TaskOf<Self>>;

    /// So many bytes of what was brought were looked at, beyond all that have come.
    fn checking(&mut self, recall: &Self::Try, bytes: u64) -> Vec<TaskOf<Self>>;

    /// What has become of a try to bring a file.
    fn recall_ended(&mut self, recall: Self::Try, end: RecallEnd) -> Vec<TaskOf<Self>>;

    /// The records that make up all that it knows, in place of those of before.
    fn records(&self) -> Vec<String>;

    /// Requests that live.
    fn live_requests(&self) -> usize;

    /// Tells when the files that are to be brought will be on disk, on another thread; `None`: nobody waits, or it cannot be told, as
    /// of tapes and drives behind a program.
    fn forecast(&self) -> Option<Forecast> {
        None
    }

    /// How much waits and how much runs, for samples.
    fn meter_state(&self, counts: &TapeCounts) -> MeterState;

    /// For how long a file has been waited for to which a drive turns now; `None`: nobody does, or it comes later that a program gives
    /// the first of it.
    fn recall_wait(&self, _file: EntryId) -> Option<Duration> {
        None
    }

    /// What the drive that brings a file has read beside it. A program tells nothing of that.
    fn over_bytes(&self, _file: EntryId) -> u64 {
        0
    }

    fn status(&self) -> NearlineStatus;

    /// Ends what it does. Returns what has become of files meanwhile.
    async fn end(self) -> Vec<TapeOutcome>;
}
