//! Who is at work on which path just now. At most one request writes a file; what removes, moves or makes something
//! says so, so that a lock is never granted behind its back.
//!
//! Whoever changes a path first registers here and then looks at the locks; whoever takes a lock does it the other way
//! round. So one of the two always sees the other, and nobody waits. The types hold to it: locks are looked at with a
//! [`RegisteredChange`], and a file is written with a [`LockCheckedClaim`], which only a look at the locks gives.

use crate::write_error::WriteError;
use parking_lot::{Mutex, MutexGuard};
use penstock_model::{Lock, NamespacePath};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The paths at which something is going on.
#[derive(Default)]
pub(crate) struct Claims(Mutex<Paths>);

#[derive(Default)]
struct Paths {
    /// Being written.
    written: BTreeSet<NamespacePath>,
    /// Being made, removed or moved, and how often.
    changing: BTreeMap<NamespacePath, usize>,
}

/// The sole right to write one path.
pub(crate) struct Claim {
    claims: Arc<Claims>,
    pub path: NamespacePath,
}

/// Word that a path is being made, removed or moved. Keeps nobody else from it.
pub(crate) struct Announcement {
    claims: Arc<Claims>,
    path: NamespacePath,
}

/// Evidence that a change is registered here, which must come before the look at the locks.
pub(crate) trait RegisteredChange {}

impl RegisteredChange for Claim {}
impl RegisteredChange for Announcement {}
impl RegisteredChange for [Announcement; 2] {}

/// A claim of a path that no lock keeps from its holder. A lock that is taken later sees the claim.
pub(crate) struct LockCheckedClaim(Claim);

/// The same for a path with all that is below it.
pub(crate) struct LockCheckedTree(Announcement);

impl Claim {
    /// Looks at the locks, now that the path is claimed.
    pub(crate) fn clear<E>(
        self,
        look: impl FnOnce(&Claim) -> Result<(), E>,
    ) -> Result<LockCheckedClaim, E> {
        look(&self)?;
        Ok(LockCheckedClaim(self))
    }

    /// The locks were looked at together with those of the tree that the path is in.
    pub(crate) fn clear_in(self, tree: &LockCheckedTree) -> LockCheckedClaim {
        assert!(
            self.path.is_within(&tree.0.path),
            "{} is not below {}",
            self.path,
            tree.0.path
        );
        LockCheckedClaim(self)
    }
}

impl Announcement {
    /// Looks at the locks of the whole tree, now that its change is registered.
    pub(crate) fn clear<E>(
        self,
        look: impl FnOnce(&Announcement) -> Result<(), E>,
    ) -> Result<LockCheckedTree, E> {
        look(&self)?;
        Ok(LockCheckedTree(self))
    }
}

impl LockCheckedClaim {
    /// The claim alone, for who holds it until the file is visible.
    pub(crate) fn into_claim(self) -> Claim {
        self.0
    }
}

impl Claims {
    pub(crate) fn claim(self: &Arc<Self>, path: &NamespacePath) -> Result<Claim, WriteError> {
        if !self.paths().written.insert(path.clone()) {
            return Err(WriteError::BeingWritten(path.clone()));
        }
        Ok(Claim {
            claims: Arc::clone(self),
            path: path.clone(),
        })
    }

    pub(crate) fn intend(self: &Arc<Self>, path: &NamespacePath) -> Announcement {
        *self.paths().changing.entry(path.clone()).or_default() += 1;
        Announcement {
            claims: Arc::clone(self),
            path: path.clone(),
        }
    }

    /// A path that is being written, here or below. Its writer would make it appear again when this one is removed.
    pub(crate) fn written_within(&self, path: &NamespacePath) -> Option<NamespacePath> {
        let paths = self.paths();
        // Paths are ordered name by name, so the first one at or after this path tells.
        let first = paths.written.range(path..).next()?;
        first.is_within(path).then(|| first.clone())
    }

    /// A file is being written at this path, or its entry is being made.
    pub(crate) fn is_written(&self, path: &NamespacePath) -> bool {
        self.paths().written.contains(path)
    }

    /// Something is going on that this lock would forbid.
    pub(crate) fn is_busy_under(&self, lock: &Lock) -> bool {
        let paths = self.paths();
        let mut all = paths.written.iter().chain(paths.changing.keys());
        all.any(|path| {
            let is_member = path.parent().is_some_and(|parent| parent == lock.root);
            lock.covers(path) || lock.root.is_within(path) || is_member
        })
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        // Each holder leaves the sets valid.
        self.0.lock()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.paths().written.remove(&self.path);
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        let mut paths = self.claims.paths();
        if let Some(count) = paths.changing.get_mut(&self.path) {
            *count -= 1;
            if *count == 0 {
                paths.changing.remove(&self.path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{LockReach, LockScope, LockToken, Timestamp, UserName};
    use uuid::Uuid;

    fn path(text: &str) -> NamespacePath {
        NamespacePath::parse(text).expect("valid path")
    }

    #[test]
    fn a_writer_is_seen_from_above_and_by_locks() {
        let claims = Arc::new(Claims::default());
        let claim = claims.claim(&path("/d/e/f")).expect("free");
        assert!(claims.claim(&path("/d/e/f")).is_err());
        let written = |at: &str| claims.written_within(&path(at)).is_some();
        assert!(written("/") && written("/d") && written("/d/e/f"));
        assert!(!written("/d/e/f/g") && !written("/d/e/ff") && !written("/d/a") && !written("/e"));
        let busy = |at: &str, reach| {
            claims.is_busy_under(&Lock {
                token: LockToken(Uuid::nil()),
                root: path(at),
                reach,
                scope: LockScope::Shared,
                user: UserName::new("alice"),
                macaroon: None,
                owner: String::new(),
                expires: Timestamp(0),
            })
        };
        assert!(busy("/d", LockReach::Tree) && !busy("/d", LockReach::Itself));
        assert!(busy("/d/e", LockReach::Itself) && !busy("/d/x", LockReach::Tree));
        drop(claim);
        assert!(!written("/") && !busy("/", LockReach::Tree));
        let intents = [claims.intend(&path("/d")), claims.intend(&path("/d"))];
        assert!(!written("/") && busy("/d/e", LockReach::Itself));
        let [first, second] = intents;
        drop(first);
        assert!(busy("/d/e", LockReach::Itself));
        drop(second);
        assert!(!busy("/d/e", LockReach::Itself));
    }
}
