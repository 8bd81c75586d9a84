//! What a node shows to its clients: written by the loop while this node leads, and by the leader's word otherwise.

use crate::agent::Progress;
use crate::banned::Banned;
use crate::overview::Overview;
use parking_lot::Mutex;
use penstock_decide::health::{DATABASE_SILENCE_MAX, Writability};
use penstock_model::Settings;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What is shown.
pub(crate) struct PublishedState {
    /// What is set, as far as it is durable. Nothing before a leader has told it.
    settings: watch::Sender<Arc<Settings>>,
    knows_settings: AtomicBool,
    /// The live view, renewed once a second.
    pub(crate) overview: watch::Sender<Arc<Overview>>,
    /// All that runs, while this node leads; the view has some of it only.
    /// What has ended since is forgotten at once.
    pub(crate) running: watch::Sender<Arc<Vec<Weak<Progress>>>>,
    /// The sequence number of the ledger's last durable entry, as far as is known here.
    pub(crate) committed: watch::Sender<u64>,
    /// Whom operators have banned.
    pub(crate) banned: Banned,
    writable: AtomicBool,
    /// When the write that runs was begun, while this node leads.
    writes_since: Mutex<Option<Instant>>,
    /// Why the journal could not be read at the last look.
    unread: Mutex<Option<String>>,
}

impl PublishedState {
    pub(crate) fn new(banned: Banned) -> PublishedState {
        PublishedState {
            settings: watch::Sender::default(),
            knows_settings: AtomicBool::new(false),
            overview: watch::Sender::default(),
            running: watch::Sender::default(),
            committed: watch::Sender::default(),
            banned,
            writable: AtomicBool::new(true),
            writes_since: Mutex::default(),
            unread: Mutex::default(),
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

    /// For readers that follow settings as they change.
    pub(crate) fn follow_settings(&self) -> watch::Receiver<Arc<Settings>> {
        self.settings.subscribe()
    }

    /// Whether the journal takes records.
    pub(crate) fn journal(&self) -> Writability {
        if !self.writable.load(Ordering::Relaxed) {
            return Writability::Refused;
        }
        match self.writes_for() {
            Some(lasts) if lasts > DATABASE_SILENCE_MAX => Writability::Silent(lasts),
            Some(_) | None => Writability::Writable,
        }
    }

    /// True while the journal takes records.
    pub(crate) fn is_writable(&self) -> bool {
        self.journal() == Writability::Writable
    }

    /// Notes when the write that runs was begun; `None`: none runs.
    pub(crate) fn set_writes_since(&self, since: Option<Instant>) {
        *self.writes_since.lock() = since;
    }

    /// For how long the write that runs has lasted; `None`: none runs.
    pub(crate) fn writes_for(&self) -> Option<Duration> {
        let since = *self.writes_since.lock();
        since.map(|since| since.elapsed())
    }

    /// Why the journal could not be read at the last look; `None`: it could.
    pub(crate) fn unread(&self) -> Option<String> {
        let unread = self.unread.lock();
        unread.clone()
    }

    pub(crate) fn set_unread(&self, why: Option<String>) {
        *self.unread.lock() = why;
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
    fn a_journal_that_does_not_answer_is_not_writable_until_it_does() {
        let published = PublishedState::new(Banned::default());
        published.set_writes_since(Some(Instant::now()));
        assert!(published.is_writable());
        let lasts = DATABASE_SILENCE_MAX + Duration::from_secs(1);
        let long_ago = Instant::now().checked_sub(lasts);
        published.set_writes_since(Some(long_ago.expect("the machine has run for longer")));
        assert!(matches!(published.journal(), Writability::Silent(_)));
        published.set_writes_since(None);
        assert_eq!(published.journal(), Writability::Writable);
        published.set_writable(false);
        assert_eq!(published.journal(), Writability::Refused);
    }

    #[test]
    fn what_is_set_is_not_known_before_it_was_told() {
        let published = PublishedState::new(Banned::default());
        assert_eq!(published.known_settings(), None);
        published.show_settings(Arc::default());
        assert_eq!(published.known_settings(), Some(Arc::default()));
    }
}
