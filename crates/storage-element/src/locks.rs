//! The write locks of this storage element: in memory to be asked, in the namespace to survive a restart. What they
//! forbid is decided in `decide::locking`.

use parking_lot::Mutex;
use penstock_decide::locking::{LockRefusal, LockTable};
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{ChangeError, Namespace, NamespaceError};
use std::sync::atomic::{AtomicUsize, Ordering};
use thiserror::Error;

/// All locks. Without any, asking costs one look at a number.
#[derive(Default)]
pub(crate) struct Locks {
    count: AtomicUsize,
    table: Mutex<LockTable>,
}

/// Why a lock was not taken.
#[derive(Debug, Error)]
pub(crate) enum LockError {
    /// By the rules.
    #[error(transparent)]
    Refused(#[from] LockRefusal),
    /// Somebody is writing there, and would go on behind the lock's back.
    #[error("{0} is being changed by another request; try again when that has ended")]
    Busy(NamespacePath),
    /// It could not be kept.
    #[error(transparent)]
    Namespace(#[from] ChangeError),
}

impl Locks {
    /// Those that the last run has left.
    pub(crate) fn load(namespace: &Namespace) -> Result<Locks, NamespaceError> {
        let mut table = LockTable::default();
        for lock in namespace.locks()? {
            table.restore(lock);
        }
        Ok(Locks {
            count: AtomicUsize::new(table.len()),
            table: Mutex::new(table),
        })
    }

    /// There is no lock at all.
    pub(crate) fn is_empty(&self) -> bool {
        // Sequentially consistent: see `claims`, which is the other half of the agreement.
        self.count.load(Ordering::SeqCst) == 0
    }

    /// How many there are; those that have expired since the last look are among them.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut LockTable) -> T) -> T {
        let mut table = self.table.lock();
        let done = work(&mut table);
        self.count.store(table.len(), Ordering::SeqCst);
        done
    }
}
