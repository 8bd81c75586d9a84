//! What the tape system does, told to the meter: what was put on tape, what came back, and how long it had waited.

use super::Driver;
use super::asking::Lookup;
use crate::nearline::tape_system::TapeSystem;
use penstock_persistence::namespace::{EntryId, TapeFile};

impl<S: TapeSystem> Driver<S> {
    /// A file is on tape, safely.
    pub(super) fn meter_written(&self, file: EntryId) {
        if let Lookup::File(file) = self.tape_file(file) {
            self.context.meter.written(file.size.0);
        }
    }

    /// A drive turns to a file.
    pub(super) fn meter_begin(&self, file: EntryId) {
        if let Some(waited) = self.system.recall_wait(file) {
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            self.context.meter.recall_began(waited_ms);
        }
    }

    /// It has come.
    pub(super) fn meter_recalled(&self, file: &TapeFile) {
        let over_bytes = self.system.over_bytes(file.id);
        let read_bytes = file.size.0.saturating_add(over_bytes);
        self.context.meter.recalled(file.size.0, read_bytes);
    }
}
