//! What becomes of trash: it is removed when its time is over or when an administrator says so, or it comes back.

use super::{Order, Reaper, ReaperHandle};
use crate::crash::{Step, reached};
use crate::pool::sync_directory;
use penstock_model::observation::EntryChangeReason;
use penstock_model::{Bytes, NamespacePath, PoolName, Timestamp};
use penstock_persistence::namespace::{
    CausedChange, Change, ChangeError, EntryId, NamespaceError, PoolUsage, RequestOrigin,
    TrashQuery, TrashedFile,
};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Files that are removed in one piece, and forgotten in one change. One change for each would wait for the disk as often,
/// and fall behind where many files are replaced.
pub(super) const PIECE_MAX: usize = 1000;
/// How long an administrator waits for a pool's disk.
pub(crate) const REMOVAL_WAIT: Duration = Duration::from_secs(60);

/// A file of the trash that shall be visible again.
#[derive(Debug, Clone)]
pub(crate) struct RestoreOrder {
    pub file: EntryId,
    /// Where. Missing directories are made.
    pub to: NamespacePath,
    pub at: Timestamp,
    /// What the ledger tells of the request.
    pub origin: Arc<RequestOrigin>,
}

/// Why a file does not come back.
#[derive(Debug, Error)]
pub(crate) enum RestoreError {
    /// There is no such file in the trash.
    #[error("there is no file {0} in the trash; `penstock trash list` shows its contents")]
    NotTrash(EntryId),
    /// Its record is there, its data is not.
    #[error(
        "the bytes of {path} (file {file}) are gone from pool {pool}: {why}; it can only come from another copy or a backup"
    )]
    BytesGone {
        path: NamespacePath,
        file: EntryId,
        /// Where its data should be.
        pool: PoolName,
        /// What was found instead.
        why: String,
    },
    /// The disk cannot be asked.
    #[error("pool {pool} {why}; try again when its disk is back")]
    PoolAway {
        pool: PoolName,
        /// What is wrong with it.
        why: String,
    },
    /// The namespace cannot be read.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The tree does not allow it.
    #[error(transparent)]
    Change(#[from] ChangeError),
}

/// What was removed of a pool's trash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RemovedTrash {
    /// Files and their bytes.
    pub gone: PoolUsage,
    /// There may be more that can be removed.
    pub is_more: bool,
    /// Files that could not be removed.
    pub kept: u64,
}

/// Why data of the trash is removed.
pub(super) enum RemovalCause {
    /// Its time is over.
    Expiry,
    /// Its pool needs the space.
    Space,
    /// An administrator asked for it.
    Request(Arc<RequestOrigin>),
}

impl RemovalCause {
    /// A change with what the ledger tells of its cause.
    fn told_with(self, change: Change) -> CausedChange {
        match self {
            RemovalCause::Expiry => change.because(EntryChangeReason::TrashExpired),
            RemovalCause::Space => change.because(EntryChangeReason::SpaceNeeded),
            RemovalCause::Request(origin) => {
                let asked = change.asked_by(origin);
                asked.because(EntryChangeReason::TrashEmptied)
            }
        }
    }
}

impl ReaperHandle {
    /// Makes a file of the trash visible again.
    pub(crate) async fn restore(
        &self,
        pool: &PoolName,
        order: RestoreOrder,
    ) -> Result<(), RestoreError> {
        let asked = self.ask(pool, REMOVAL_WAIT, |reply| Order::Restore { order, reply });
        asked.await.unwrap_or_else(|| {
            Err(RestoreError::PoolAway {
                pool: pool.clone(),
                why: "is not configured, or does not answer".to_owned(),
            })
        })
    }

    /// Removes some of a pool's trash. `None`: its disk does not answer.
    pub(crate) async fn empty(
        &self,
        pool: &PoolName,
        query: TrashQuery,
        origin: Arc<RequestOrigin>,
    ) -> Option<Result<RemovedTrash, NamespaceError>> {
        let order = |reply| Order::Empty {
            query,
            origin,
            reply,
        };
        self.ask(pool, REMOVAL_WAIT, order).await
    }
}

impl Reaper {
    /// Removes some of what is over its time. Gives back whether there is more.
    pub(super) fn expire_some(&mut self) -> bool {
        let Some(before) = self.kept_since() else {
            return false;
        };
        let query = TrashQuery {
            pool: Some(self.pool.name.clone()),
            before: Some(before),
            after: self.cursor,
            ..TrashQuery::default()
        };
        if !self.pool.can_remove() {
            // It is trash until the pool is back.
            return false;
        }
        let trash = match self.shared.namespace.trash(&query, PIECE_MAX) {
            Ok(trash) => trash,
            Err(why) => {
                tracing::error!(%why, "the trash cannot be read; what is over its time stays");
                return false;
            }
        };
        let Some(gone) = self.remove(&trash, RemovalCause::Expiry) else {
            return false;
        };
        self.pool.trash_expired.add(gone.files);
        // Files that cannot be removed stay; reading them again in this pass would not end.
        let last = trash.last().map(|last| (last.removed, last.file));
        self.cursor = last.or(self.cursor);
        trash.len() == PIECE_MAX
    }

    /// Removes some of what is asked for.
    pub(super) fn empty(
        &mut self,
        query: TrashQuery,
        origin: Arc<RequestOrigin>,
    ) -> Result<RemovedTrash, NamespaceError> {
        let query = TrashQuery {
            pool: Some(self.pool.name.clone()),
            ..query
        };
        let trash = self.shared.namespace.trash(&query, PIECE_MAX)?;
        let gone = match self.pool.can_remove() {
            true => self
                .remove(&trash, RemovalCause::Request(origin))
                .unwrap_or_default(),
            false => PoolUsage::default(),
        };
        self.pool.trash_emptied.add(gone.files);
        Ok(RemovedTrash {
            gone,
            is_more: trash.len() == PIECE_MAX && gone.files > 0,
            kept: trash.len() as u64 - gone.files,
        })
    }

    /// Makes a file visible again, if its data is there.
    pub(super) fn restore(&mut self, order: &RestoreOrder) -> Result<(), RestoreError> {
        let RestoreOrder {
            file,
            to,
            at,
            origin,
        } = order;
        let kept = self.shared.namespace.trashed(*file)?;
        let kept = kept.ok_or(RestoreError::NotTrash(*file))?;
        let pool = &self.pool;
        if !pool.is_in_reach() {
            return Err(RestoreError::PoolAway {
                pool: pool.name.clone(),
                why: pool.condition().to_string(),
            });
        }
        let gone = |why: String| RestoreError::BytesGone {
            path: kept.path.clone(),
            file: *file,
            pool: pool.name.clone(),
            why,
        };
        match std::fs::metadata(pool.data_path(*file)) {
            Ok(data) if data.len() == kept.size.0 => {}
            Ok(data) => {
                let (found, size) = (data.len(), kept.size.0);
                return Err(gone(format!("there are {found} bytes instead of {size}")));
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                return Err(gone("its data is not there".to_owned()));
            }
            Err(why) => return Err(gone(why.to_string())),
        }
        let change = Change::RestoreTrash {
            file: *file,
            to: to.clone(),
            at: *at,
        };
        let change = change.asked_by(Arc::clone(origin));
        self.shared.namespace.apply(change)?;
        pool.unbury(kept.size);
        Ok(())
    }

    /// Removes the data of trash, then the trash. Gives back how much is gone; `None`: the namespace takes no changes, so
    /// nothing more must go now.
    pub(super) fn remove(&self, trash: &[TrashedFile], cause: RemovalCause) -> Option<PoolUsage> {
        if self.shared.namespace.writer_counts().refuses {
            return None;
        }
        let (pool, mut gone) = (&self.pool, Vec::with_capacity(trash.len()));
        let mut failure = None;
        for trashed in trash {
            match pool.remove(trashed.file) {
                Ok(()) => {
                    reached(Step::DataRemoved);
                    gone.push(trashed);
                }
                Err(why) => failure = Some((trashed.file, why)),
            }
        }
        if let Some((file, why)) = failure {
            let (pool, files) = (&pool.name, trash.len() - gone.len());
            tracing::error!(%pool, files, last = %file, %why, "data of removed files stays on its disk");
        }
        let mut counted = PoolUsage::default();
        if gone.is_empty() {
            return Some(counted);
        }
        // What is forgotten must not come back with the disk after a power cut.
        let directories = gone.iter().map(|trashed| pool.data_directory(trashed.file));
        for directory in directories.collect::<BTreeSet<_>>() {
            if let Err(why) = sync_directory(&directory)
                && why.kind() != io::ErrorKind::NotFound
            {
                let directory = directory.display();
                tracing::error!(%directory, %why, "removals are not known to be on the disk; a later look forgets them");
                return Some(counted);
            }
        }
        let files = gone.iter().map(|trashed| trashed.file).collect();
        let forgotten = cause.told_with(Change::ForgetTrash {
            files,
            at: self.shared.clock.recorded(),
        });
        match self.shared.namespace.apply(forgotten) {
            Ok(changed) => {
                let forgotten = |trashed: &&&TrashedFile| changed.forgotten.contains(&trashed.file);
                for trashed in gone.iter().filter(forgotten) {
                    pool.release(trashed.size);
                    counted.files += 1;
                    counted.bytes = Bytes(counted.bytes.0 + trashed.size.0);
                }
            }
            Err(why) => {
                tracing::warn!(%why, "removed trash could not be forgotten; a later look does it");
                return None;
            }
        }
        reached(Step::TrashForgotten);
        Some(counted)
    }
}
