//! What the ledger is told of the changes of a transaction: who asked for each and why, and what became of which entry.

use super::super::ledger::{ChangedEntry, ElementEvent, ElementRecord, RequestOrigin};
use super::super::{EntryId, NewFile};
use super::{Batch, Change};
use penstock_clock::wall_clock;
use penstock_model::observation::{EntryChange, EntryChangeReason};
use penstock_model::{Bytes, NamespacePath, PoolName, Timestamp};
use std::sync::Arc;

/// A change with what the ledger tells of its cause.
#[derive(Debug, Clone)]
pub struct CausedChange {
    pub change: Change,
    pub origin: Arc<RequestOrigin>,
    /// Why, where the request alone does not tell it.
    pub reason: Option<EntryChangeReason>,
}

/// Of nobody known, for no reason that is told.
impl From<Change> for CausedChange {
    fn from(change: Change) -> CausedChange {
        CausedChange {
            change,
            origin: Arc::default(),
            reason: None,
        }
    }
}

impl Change {
    /// The change, as a request asks for it.
    pub fn asked_by(self, origin: Arc<RequestOrigin>) -> CausedChange {
        CausedChange {
            origin,
            ..self.into()
        }
    }

    /// The change, as the storage element makes it for this reason.
    pub fn because(self, reason: EntryChangeReason) -> CausedChange {
        CausedChange::from(self).because(reason)
    }

    /// When it is made, as far as it tells that.
    fn at(&self) -> Option<Timestamp> {
        match self {
            Change::Publish(file) => Some(file.at),
            Change::MakeDirectory { at, .. }
            | Change::Remove { at, .. }
            | Change::Rename { at, .. }
            | Change::ForgetTrash { at, .. }
            | Change::RestoreTrash { at, .. }
            | Change::Reenter { at, .. } => Some(*at),
            Change::UpdateProperties { .. }
            | Change::CopyProperties { .. }
            | Change::KeepLock(_)
            | Change::DropLocks(_)
            | Change::AddChecksums { .. }
            | Change::ReenterTrash(_)
            | Change::Relabelled { .. }
            | Change::RecountPools
            | Change::RecordMovers(_)
            | Change::RecordPoolMinute(_)
            | Change::AppendLedger(_)
            | Change::BeginLedger(_)
            | Change::EndLedger
            | Change::PruneLedger(_)
            | Change::RaiseLowWater(_)
            | Change::ReserveIds(_)
            | Change::RecordPools(_)
            | Change::Nearline(_) => None,
        }
    }
}

impl CausedChange {
    /// The same for this reason.
    pub fn because(self, reason: EntryChangeReason) -> CausedChange {
        CausedChange {
            reason: Some(reason),
            ..self
        }
    }
}

/// The cause of the change that is being made.
#[derive(Default)]
pub(super) struct Cause {
    at: Option<Timestamp>,
    origin: Arc<RequestOrigin>,
    reason: Option<EntryChangeReason>,
}

impl Cause {
    pub(super) fn of(caused: &CausedChange) -> Cause {
        Cause {
            at: caused.change.at(),
            origin: Arc::clone(&caused.origin),
            reason: caused.reason,
        }
    }
}

/// What became of which entry.
pub(in super::super) struct ToldEntry {
    kind: EntryChange,
    entry: EntryId,
    path: Option<NamespacePath>,
    new_path: Option<NamespacePath>,
    size: Option<Bytes>,
    pool: Option<PoolName>,
    reason: Option<EntryChangeReason>,
    at: Option<Timestamp>,
}

impl ToldEntry {
    pub(in super::super) fn new(
        kind: EntryChange,
        entry: EntryId,
        path: &NamespacePath,
    ) -> ToldEntry {
        ToldEntry {
            kind,
            entry,
            path: Some(path.clone()),
            new_path: None,
            size: None,
            pool: None,
            reason: None,
            at: None,
        }
    }

    /// A file that became visible.
    pub(in super::super) fn of_file(kind: EntryChange, file: &NewFile) -> ToldEntry {
        ToldEntry::new(kind, file.id, &file.path).with_data(file.size, Some(&file.pool))
    }

    pub(in super::super) fn with_data(self, size: Bytes, pool: Option<&PoolName>) -> ToldEntry {
        ToldEntry {
            size: Some(size),
            pool: pool.cloned(),
            ..self
        }
    }

    pub(in super::super) fn renamed_to(self, path: &NamespacePath) -> ToldEntry {
        ToldEntry {
            new_path: Some(path.clone()),
            ..self
        }
    }

    /// When, where the change does not tell it.
    pub(in super::super) fn made_at(self, at: Timestamp) -> ToldEntry {
        ToldEntry {
            at: Some(at),
            ..self
        }
    }

    /// Counts instead of the reason of the whole change.
    pub(in super::super) fn because(self, reason: Option<EntryChangeReason>) -> ToldEntry {
        ToldEntry { reason, ..self }
    }

    /// Of trash from before its path was kept.
    pub(in super::super) fn without_root(self) -> ToldEntry {
        ToldEntry {
            path: self.path.filter(|path| !path.is_root()),
            ..self
        }
    }
}

impl Batch<'_> {
    /// Tells the ledger what became of an entry.
    pub(in super::super) fn tell_ledger(&mut self, told: ToldEntry) {
        self.ledger.push(ElementRecord {
            at: told.at.or(self.cause.at).unwrap_or_else(wall_clock),
            origin: Arc::clone(&self.cause.origin),
            event: ElementEvent::Changed(ChangedEntry {
                kind: told.kind,
                entry: told.entry,
                path: told.path,
                new_path: told.new_path,
                size: told.size,
                pool: told.pool,
                reason: told.reason.or(self.cause.reason),
            }),
        });
    }
}
