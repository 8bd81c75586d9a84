//! What a node shows to its clients: written by the loop while this node leads, and by the leader's word otherwise.

use crate::api::Banned;
use crate::overview::Overview;
use penstock_model::Settings;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// What is shown.
pub(crate) struct Board {
    /// What is set, as far as it is durable.
    pub(crate) settings: watch::Sender<Arc<Settings>>,
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
            overview: watch::Sender::default(),
            committed: watch::Sender::default(),
            banned,
            writable: AtomicBool::new(true),
        }
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
