//! Locks are asked, taken and released.

use super::Storage;
use crate::locks::LockError;
use penstock_decide::clock::ClockTrust;
use penstock_decide::locking::{LockLimits, LockRefusal, LockTable};
use penstock_model::{Lock, LockToken, Timestamp};
use penstock_persistence::namespace::{Change, ChangeError};

impl Storage {
    /// Asks or changes the locks that hold now. What has expired is forgotten first.
    pub(crate) fn with_locks<T>(&self, work: impl FnOnce(&mut LockTable) -> T) -> T {
        let now = self.clock.now();
        // Only a clock that is believed can tell that another one was ahead.
        let end_max = match self.clock.standing() {
            ClockTrust::Credible => Some(now + self.settings().limits.lock_timeout_max),
            ClockTrust::Doubted { .. } => None,
        };
        let (ended, capped, done) = self.locks.with(|table| {
            let ended = table.expire(now);
            let capped = end_max.map(|end_max| table.cap(end_max));
            (ended, capped.unwrap_or_default(), work(table))
        });
        for lock in capped {
            self.namespace.submit(Change::KeepLock(lock), |_| {});
        }
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
