//! How an operator has the driver do something about drives and tapes of libraries, and what of tapes is needed.

use super::Nearline;
use super::tape_libraries::{CopyUri, LiveBytes, UnreadableStatus, live_bytes};
use crate::nearline_inbox::NearlineMessage;
use crate::tape_operator::{OperatorError, OperatorOrder, OperatorReply, OperatorRequest};
use penstock_persistence::namespace::{EntryId, Namespace, NamespaceError};
use penstock_tape::request::{TapeCopy, TapeName};
use penstock_tape::tape_care::UnreadableCopy;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the driver may take to answer: it may be waiting for a disk.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

impl Nearline {
    /// Has the driver do it.
    pub(crate) async fn operate(
        &self,
        order: OperatorOrder,
    ) -> Result<OperatorReply, OperatorError> {
        let (reply, answer) = oneshot::channel();
        let request = OperatorRequest { order, reply };
        self.inbox.send(NearlineMessage::Operator(request));
        let answer = tokio::time::timeout(ANSWER_WAIT, answer).await;
        let answer = answer.map_err(|_| OperatorError::Silent)?;
        answer.map_err(|_| OperatorError::Silent)?
    }

    /// Which files these are, and whether there is more of them than what cannot be read. All such copies of a file are among these.
    /// Blocks.
    pub(crate) fn name_unreadable(
        namespace: &Namespace,
        unreadable: &mut [UnreadableStatus],
    ) -> Result<(), NamespaceError> {
        let known = unreadable.iter();
        let known: Vec<(u64, UnreadableCopy)> =
            known.map(|one| (one.file, one.copy.clone())).collect();
        for one in unreadable {
            if let Some(file) = namespace.tape_file(EntryId(one.file))? {
                let is_known = |copy: &TapeCopy| {
                    known
                        .iter()
                        .any(|(of, known)| *of == one.file && known.is(copy))
                };
                let uris = file
                    .copies
                    .iter()
                    .filter_map(|copy| CopyUri::parse(&copy.uri));
                let is_on_tape = { uris }.any(|uri| !is_known(&uri.copy));
                one.has_other_copy = Some(file.pool.is_some() || is_on_tape);
                one.path = Some(file.path.to_string());
            }
        }
        Ok(())
    }

    /// What of each tape is needed. Blocks.
    pub(crate) fn live_bytes(
        namespace: &Namespace,
    ) -> Result<BTreeMap<TapeName, LiveBytes>, NamespaceError> {
        live_bytes(namespace)
    }
}
