//! Whether a complete file may still become visible. Whoever waits for it can give it up, so that a disk that comes back
//! after its client was told otherwise shows no file that nobody expects any more.

use crate::claims::Claim;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// A file between its last byte and its entry.
pub(crate) struct PendingPublication(Mutex<PublicationStage>);

enum PublicationStage {
    /// Its path is claimed, its entry was not asked for.
    Claimed(Claim),
    /// The namespace has been asked for its entry.
    Publishing,
    /// It will not become visible.
    GivenUp,
}

impl PendingPublication {
    pub(crate) fn new(claim: Claim) -> PendingPublication {
        PendingPublication(Mutex::new(PublicationStage::Claimed(claim)))
    }

    /// Takes the claim, for whoever asks the namespace now. `None`: it was given up.
    pub(crate) fn publish(&self) -> Option<Claim> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, PublicationStage::Publishing) {
            PublicationStage::Claimed(claim) => Some(claim),
            before => {
                *state = before;
                None
            }
        }
    }

    /// Gives it up and its path free; `false`: it is too late for that.
    pub(crate) fn give_up(&self) -> bool {
        let mut state = self.state();
        match *state {
            PublicationStage::Claimed(_) | PublicationStage::GivenUp => {
                *state = PublicationStage::GivenUp;
                true
            }
            PublicationStage::Publishing => false,
        }
    }

    /// Gives it up when whoever waits for it is gone: nobody would learn that it became visible after all.
    pub(crate) fn given_up_on_drop(self: &Arc<Self>) -> GiveUpOnDrop {
        GiveUpOnDrop(Arc::clone(self))
    }

    pub(crate) fn is_given_up(&self) -> bool {
        matches!(*self.state(), PublicationStage::GivenUp)
    }

    fn state(&self) -> MutexGuard<'_, PublicationStage> {
        self.0.lock()
    }
}

/// The interest in a file that is not visible yet.
pub(crate) struct GiveUpOnDrop(Arc<PendingPublication>);

impl Drop for GiveUpOnDrop {
    fn drop(&mut self) {
        // Too late where the namespace was asked: the path stays claimed until it has answered.
        self.0.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Claims;
    use penstock_model::NamespacePath;

    #[test]
    fn a_file_that_nobody_waits_for_any_more_is_given_up() {
        let claims: Arc<Claims> = Arc::default();
        let path = NamespacePath::parse("/d/f").expect("valid");
        let claim = || claims.claim(&path).expect("free");
        let pending = Arc::new(PendingPublication::new(claim()));
        drop(pending.given_up_on_drop());
        assert!(pending.is_given_up() && pending.publish().is_none());
        // The namespace was asked before: the path is its until it has answered.
        let pending = Arc::new(PendingPublication::new(claim()));
        let interest = pending.given_up_on_drop();
        let asked = pending.publish();
        drop(interest);
        assert!(!pending.is_given_up() && claims.is_written(&path));
        drop(asked);
        assert!(!claims.is_written(&path));
    }

    #[test]
    fn a_file_is_either_given_up_or_published() {
        let claims: Arc<Claims> = Arc::default();
        let path = NamespacePath::parse("/d/f").expect("valid");
        let given_up = PendingPublication::new(claims.claim(&path).expect("free"));
        assert!(given_up.give_up() && given_up.is_given_up());
        let published = PendingPublication::new(claims.claim(&path).expect("free again"));
        assert!(given_up.publish().is_none() && given_up.give_up());
        let claim = published.publish().expect("not given up");
        assert!(!published.give_up() && !published.is_given_up());
        assert!(
            claims.claim(&path).is_err(),
            "held until the entry is there"
        );
        drop(claim);
        assert!(claims.claim(&path).is_ok());
    }
}
