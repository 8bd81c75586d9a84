//! How an operator has the driver do something about drives and tapes of libraries, and what of tapes is needed.

use super::Nearline;
use super::tape_libraries::{LiveBytes, live_bytes};
use crate::nearline_inbox::NearlineMessage;
use crate::tape_operator::{OperatorError, OperatorOrder, OperatorReply, OperatorRequest};
use penstock_persistence::namespace::{Namespace, NamespaceError};
use penstock_tape::request::TapeName;
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

    /// What of each tape is needed. Blocks.
    pub(crate) fn live_bytes(
        namespace: &Namespace,
    ) -> Result<BTreeMap<TapeName, LiveBytes>, NamespaceError> {
        live_bytes(namespace)
    }
}
