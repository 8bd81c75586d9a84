//! Where whoever makes a file that goes to tape, or wants one that is there, tells so.

use crate::tape_operator::OperatorRequest;
use parking_lot::Mutex;
use penstock_persistence::namespace::EntryId;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// Files that are remembered of those that somebody asks for, or no longer does: some tens of megabytes. Beyond, the tape system
/// compares what it knows with the namespace.
const ASKED_MAX: usize = 1_000_000;
/// Of them, those that are told at once, so that other messages have their turn.
const ASKED_PAGE: usize = 1_000;

/// What the tape system may be told. The namespace holds it already; this only says where to look.
#[derive(Debug)]
pub(crate) enum NearlineMessage {
    /// A file that is to be put on tape is visible.
    Precious(EntryId),
    /// A file is visible again that was in the trash.
    Restored(EntryId),
    /// Somebody waits for these files, or no longer does. Each is named once, however often that has changed.
    Asked(Vec<EntryId>),
    /// That is so of more files than are remembered.
    Compare,
    /// An operator wants what waits for its next try to be tried now.
    RetryNow,
    Operator(OperatorRequest),
    Stop,
}

/// Its sending end. Never blocks.
#[derive(Debug, Clone)]
pub(crate) struct NearlineInbox {
    messages: mpsc::UnboundedSender<NearlineMessage>,
    asked: Arc<AskedInbox>,
}

/// Its receiving end.
#[derive(Debug)]
pub(crate) struct NearlineMail {
    messages: mpsc::UnboundedReceiver<NearlineMessage>,
    asked: Arc<AskedInbox>,
}

#[derive(Debug, Default)]
struct AskedInbox {
    files: Mutex<AskedFiles>,
    has_come: Notify,
}

/// Files that are to be told, in turn by their numbers.
#[derive(Debug, Default)]
struct AskedFiles {
    files: BTreeSet<EntryId>,
    /// The last that was told.
    last: Option<EntryId>,
    /// Some are not among them.
    is_incomplete: bool,
}

impl AskedFiles {
    fn add(&mut self, files: Vec<EntryId>, files_max: usize) {
        for file in files {
            if self.files.len() < files_max {
                self.files.insert(file);
            } else if !self.files.contains(&file) {
                self.is_incomplete = true;
            }
        }
    }

    /// The next ones. They go on behind the last, so that no number has to wait for ever.
    fn take(&mut self) -> Option<NearlineMessage> {
        if self.is_incomplete {
            *self = AskedFiles::default();
            return Some(NearlineMessage::Compare);
        }
        let behind = match self.last {
            Some(last) => Bound::Excluded(last),
            None => Bound::Unbounded,
        };
        let behind = self.files.range((behind, Bound::Unbounded));
        let page = behind
            .chain(&self.files)
            .take(self.files.len().min(ASKED_PAGE));
        let page: Vec<EntryId> = page.copied().collect();
        for file in &page {
            self.files.remove(file);
        }
        self.last = page.last().copied();
        (!page.is_empty()).then_some(NearlineMessage::Asked(page))
    }
}

impl NearlineInbox {
    /// Both ends. Files may become visible before anybody reads.
    pub(crate) fn new() -> (NearlineInbox, NearlineMail) {
        let (sender, messages) = mpsc::unbounded_channel();
        let asked = Arc::new(AskedInbox::default());
        let inbox = NearlineInbox {
            messages: sender,
            asked: Arc::clone(&asked),
        };
        (inbox, NearlineMail { messages, asked })
    }

    /// A file that is to be put on tape is visible.
    pub(crate) fn precious(&self, file: EntryId) {
        self.send(NearlineMessage::Precious(file));
    }

    pub(crate) fn restored(&self, file: EntryId) {
        self.send(NearlineMessage::Restored(file));
    }

    /// The namespace tells something new of who waits for these.
    pub(crate) fn asked(&self, files: Vec<EntryId>) {
        if !files.is_empty() {
            self.asked.files.lock().add(files, ASKED_MAX);
            self.asked.has_come.notify_one();
        }
    }

    pub(crate) fn send(&self, message: NearlineMessage) {
        // When nobody reads any more the next start finds everything in the namespace.
        let _ = self.messages.send(message);
    }
}

impl NearlineMail {
    /// The next message; `None`: nobody sends any more. May be dropped.
    pub(crate) async fn next(&mut self) -> Option<NearlineMessage> {
        loop {
            tokio::select! {
                message = self.messages.recv() => return message,
                () = self.asked.has_come.notified() => {
                    let (message, is_more) = {
                        let mut asked = self.asked.files.lock();
                        (asked.take(), !asked.files.is_empty())
                    };
                    if is_more {
                        self.asked.has_come.notify_one();
                    }
                    if message.is_some() {
                        return message;
                    }
                }
            }
        }
    }

    /// The next one that is there, beside files that are asked for.
    pub(crate) fn next_at_once(&mut self) -> Option<NearlineMessage> {
        self.messages.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn ids(numbers: std::ops::Range<u64>) -> Vec<EntryId> {
        numbers.map(EntryId).collect()
    }

    #[tokio::test]
    async fn files_are_told_once_and_in_pages_between_which_other_messages_come() {
        let (inbox, mut mail) = NearlineInbox::new();
        for _ in 0..50 {
            inbox.asked(ids(0..2_500));
        }
        inbox.send(NearlineMessage::Stop);
        let (mut told, mut pages, mut stopped_after) = (Vec::new(), 0, None);
        while let Ok(message) = timeout(Duration::from_millis(200), mail.next()).await {
            match message.expect("somebody may send") {
                NearlineMessage::Asked(files) => {
                    assert!(files.len() <= ASKED_PAGE);
                    told.extend(files);
                    pages += 1;
                }
                NearlineMessage::Stop => stopped_after = Some(pages),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told, ids(0..2_500));
        assert_eq!(pages, 3);
        assert!(stopped_after.is_some());
    }

    #[test]
    fn low_numbers_that_come_again_and_again_do_not_keep_high_ones_waiting() {
        let mut asked = AskedFiles::default();
        asked.add(ids(0..1_500), ASKED_MAX);
        asked.take();
        asked.add(ids(0..1_000), ASKED_MAX);
        let Some(NearlineMessage::Asked(page)) = asked.take() else {
            panic!("nothing is told");
        };
        assert!(page.contains(&EntryId(1_499)));
        assert_eq!(page.len(), ASKED_PAGE);
        assert_eq!(asked.files.len(), 500);
    }

    #[test]
    fn more_files_than_are_remembered_become_one_comparison() {
        let mut asked = AskedFiles::default();
        asked.add(ids(0..20), 10);
        assert_eq!(asked.files.len(), 10);
        assert!(matches!(asked.take(), Some(NearlineMessage::Compare)));
        assert!(asked.take().is_none());
        asked.add(ids(0..10), 10);
        asked.add(ids(0..10), 10);
        assert!(matches!(asked.take(), Some(NearlineMessage::Asked(_))));
    }
}
