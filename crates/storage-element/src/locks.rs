//! The write locks of this storage element: in memory to be asked, in the namespace to survive a restart. What they
//! forbid is decided in `decide::locking`.

use crate::storage::Storage;
use parking_lot::Mutex;
use penstock_decide::locking::{LockLimits, LockRefusal, LockTable};
use penstock_model::{Lock, LockToken, NamespacePath, Timestamp};
use penstock_persistence::namespace::{Change, ChangeError, Namespace, NamespaceError};
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

    fn with<T>(&self, work: impl FnOnce(&mut LockTable) -> T) -> T {
        let mut table = self.table.lock();
        let done = work(&mut table);
        self.count.store(table.len(), Ordering::SeqCst);
        done
    }
}

impl Storage {
    /// Asks or changes the locks that hold now. What has expired is forgotten first.
    pub(crate) fn with_locks<T>(&self, work: impl FnOnce(&mut LockTable) -> T) -> T {
        let (ended, done) = self
            .locks
            .with(|table| (table.expire(self.clock.now()), work(table)));
        if !ended.is_empty() {
            // A restart would find them expired as well.
            self.namespace.submit(Change::DropLocks(ended), |_| {});
        }
        done
    }

    /// Whether a lock would be granted now.
    pub(crate) fn check_lock(&self, lock: &Lock) -> Result<(), LockRefusal> {
        let limits = self.lock_limits();
        self.with_locks(|table| table.check(lock, &limits))
    }

    fn lock_limits(&self) -> LockLimits {
        let limits = &self.settings().limits;
        LockLimits {
            per_user_max: limits.locks_per_user_max,
            total_max: limits.locks_max,
        }
    }

    /// Takes a lock; it is durable then.
    pub(crate) async fn take_lock(&self, lock: Lock) -> Result<(), LockError> {
        let limits = self.lock_limits();
        self.with_locks(|table| table.grant(lock.clone(), &limits))?;
        let token = lock.token;
        if self.claims.is_busy_under(&lock) {
            self.with_locks(|table| table.release(token));
            return Err(LockError::Busy(lock.root));
        }
        if let Err(why) = self.change(Change::KeepLock(lock)).await {
            self.with_locks(|table| table.release(token));
            return Err(why.into());
        }
        Ok(())
    }

    /// Gives a lock a new end; `None` when it is gone.
    pub(crate) async fn refresh_lock(
        &self,
        token: LockToken,
        expires: Timestamp,
    ) -> Result<Option<Lock>, ChangeError> {
        let Some(lock) = self.with_locks(|table| table.refresh(token, expires)) else {
            return Ok(None);
        };
        self.change(Change::KeepLock(lock.clone())).await?;
        if self.with_locks(|table| table.get(token).is_none()) {
            // It was released meanwhile, and the row may have come after that.
            self.change(Change::DropLocks(vec![token])).await?;
            return Ok(None);
        }
        Ok(Some(lock))
    }

    /// Releases the locks that `choose` takes out of the table.
    pub(crate) async fn release_locks(
        &self,
        choose: impl FnOnce(&mut LockTable) -> Vec<LockToken>,
    ) -> Result<(), ChangeError> {
        if self.locks.is_empty() {
            return Ok(());
        }
        let released = self.with_locks(choose);
        if !released.is_empty() {
            self.change(Change::DropLocks(released)).await?;
        }
        Ok(())
    }
}
