//! Where whoever makes a file that goes to tape, or wants one that is there, tells so.

use crate::tape_operator::OperatorRequest;
use penstock_persistence::namespace::EntryId;
use tokio::sync::mpsc;

/// What the tape system may be told. The namespace holds it already; this only says where to look.
#[derive(Debug)]
pub(crate) enum NearlineMessage {
    /// A file that is to be put on tape is visible.
    Precious(EntryId),
    /// Somebody waits for these files, or no longer does.
    Asked(Vec<EntryId>),
    /// An operator wants what waits for its next try to be tried now.
    RetryNow,
    Operator(OperatorRequest),
    Stop,
}

/// Its sending end. Never blocks.
#[derive(Debug, Clone)]
pub(crate) struct NearlineInbox(mpsc::UnboundedSender<NearlineMessage>);

/// Its receiving end.
pub(crate) type NearlineMail = mpsc::UnboundedReceiver<NearlineMessage>;

impl NearlineInbox {
    /// Both ends. Files may become visible before anybody reads.
    pub(crate) fn new() -> (NearlineInbox, NearlineMail) {
        let (sender, mail) = mpsc::unbounded_channel();
        (NearlineInbox(sender), mail)
    }

    /// A file that is to be put on tape is visible.
    pub(crate) fn precious(&self, file: EntryId) {
        self.send(NearlineMessage::Precious(file));
    }

    /// The namespace tells something new of who waits for these.
    pub(crate) fn asked(&self, files: Vec<EntryId>) {
        if !files.is_empty() {
            self.send(NearlineMessage::Asked(files));
        }
    }

    pub(crate) fn send(&self, message: NearlineMessage) {
        // When nobody reads any more the next start finds everything in the namespace.
        let _ = self.0.send(message);
    }
}
