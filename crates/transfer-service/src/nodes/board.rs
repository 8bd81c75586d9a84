//! What a node shows to its clients: written by the loop while this node leads, and by the leader's word otherwise.

use crate::api::Banned;
use crate::overview::Overview;
use penstock_model::Settings;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// What is shown.
pub(crate) struct Board {
    /// What is set, as far as it is durable. Nothing before a leader has told it.
    settings: watch::Sender<Arc<Settings>>,
    knows_settings: AtomicBool,
    /// The live view, renewed once a second.
    pub(crate) overview: watch::Sender<Arc<Overview>>,
    /// The sequence number of the ledger's last durable entry, as far as is known here.
    pub(crate) committed: watch::Sender<u64>,
    /// Whom operators have banned.
    pub(crate) banned: Banned,
    writable: AtomicBool,
}

impl Board {
    pub(crate) fn new(banned: Banned) -> Board {
        Board {
            settings: watch::Sender::default(),
            knows_settings: AtomicBool::new(false),
            overview: watch::Sender::default(),
            committed: watch::Sender::default(),
            banned,
            writable: AtomicBool::new(true),
        }
    }

    /// Shows what is set.
    pub(crate) fn show_settings(&self, settings: Arc<Settings>) {
        self.settings.send_replace(settings);
        self.knows_settings.store(true, Ordering::Release);
    }

    /// What is set; `None` before a leader has told it.
    pub(crate) fn known_settings(&self) -> Option<Arc<Settings>> {
        let is_known = self.knows_settings.load(Ordering::Acquire);
        is_known.then(|| self.settings())
    }

    /// The same, and nothing set before a leader has told it.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.borrow().clone()
    }

    /// For those who go by what is set as it changes.
    pub(crate) fn follow_settings(&self) -> watch::Receiver<Arc<Settings>> {
        self.settings.subscribe()
    }

    /// True while the journal takes records.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed)
    }

    /// Notes whether the journal takes records, and tells whether it did before.
    pub(crate) fn set_writable(&self, writable: bool) -> bool {
        self.writable.swap(writable, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_not_known_before_it_was_told() {
        let board = Board::new(Banned::default());
        assert_eq!(board.known_settings(), None);
        board.show_settings(Arc::default());
        assert_eq!(board.known_settings(), Some(Arc::default()));
    }
}
