//! What nodes say to each other: frames of JSON, each behind its length, over one connection from a follower to its
//! leader. Fields and messages that a later version adds are passed over, so that versions can be mixed while a service
//! is upgraded node by node.

use crate::loop_message::UntoldEnd;
use crate::overview::Overview;
use penstock_engine::command::{Command, Reply, TokenTrouble};
use penstock_engine::{AgentReport, AttemptKey, AttemptOutcome, Claim, Order, StartEstimate};
use penstock_model::{Attempt, Epoch, NodeId, Setting, Slots, TransferId, WaitReason};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The version of these messages. Nodes of different versions do not talk to each other.
pub(crate) const PROTOCOL: u32 = 1;
/// The longest frame: all that a node runs, or the largest submission that the interface takes, with room to spare.
const FRAME_MAX: u32 = 256 * 1024 * 1024;
/// How much is read at once, so that a length alone takes no memory.
const READ_AT_ONCE: usize = 256 * 1024;

/// From a follower.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeMessage {
    /// The first word.
    Hello(Box<Hello>),
    /// A node that is not ready yet asks for the keys that seal secrets, or one that has met a secret of another key.
    WantKeys { protocol: u32 },
    /// The names of the keys that it has, when it was told keys.
    HasKeys { names: Vec<String> },
    /// It lives. The leader answers with the number while it is certain to lead.
    Ping { number: u64 },
    /// What an agent tells.
    Report(AgentReport),
    /// What a client asks for.
    #[serde(rename = "asked")]
    Command {
        number: u64,
        again: bool,
        #[serde(rename = "asked")]
        command: Box<Command>,
    },
    /// It is about to go.
    Leaves,
}

/// Who a node is, and what it runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) node: NodeId,
    /// Which version of the program.
    pub(crate) version: String,
    /// Attempts that it may run.
    pub(crate) slots: Slots,
    pub(crate) claims: Vec<Claim>,
    pub(crate) ends: Vec<WireEnd>,
}

/// The end of an attempt, an array in JSON.
pub(crate) type WireEnd = (TransferId, Attempt, AttemptOutcome);

impl From<UntoldEnd> for WireEnd {
    fn from(end: UntoldEnd) -> WireEnd {
        (end.key.transfer, end.key.attempt, end.outcome)
    }
}

impl From<WireEnd> for UntoldEnd {
    fn from((transfer, attempt, outcome): WireEnd) -> UntoldEnd {
        let key = AttemptKey { transfer, attempt };
        UntoldEnd { key, outcome }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LeaderMessage {
    /// The node is taken in. `certain`: the leader was certain to lead after the hello was sent.
    Welcome {
        protocol: u32,
        epoch: Epoch,
        #[serde(default)]
        certain: bool,
    },
    /// This node does not lead, or does not speak with that one.
    Refused { why: String },
    /// The keys that seal secrets, as their file holds them.
    Keys(RedactedText),
    /// The leader was certain to lead after that ping was sent.
    Pong { number: u64 },
    /// What an agent is to do.
    Order(Order),
    /// The reply to a command; none when it got none.
    #[serde(rename = "answered")]
    Reply {
        number: u64,
        #[serde(rename = "answered")]
        reply: Option<Box<SentReply>>,
    },
    /// All that is set.
    Settings(Vec<Setting>),
    /// Whom operators have banned.
    LockOut(BTreeSet<String>),
    /// What is shown, once a second.
    Shown {
        overview: Box<Overview>,
        committed: u64,
        writable: bool,
    },
}

/// A reply as nodes send it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SentReply {
    Engine(Reply),
    Why(Vec<Option<WaitReason>>),
    Starts(Option<StartEstimate>),
    Refreshed(Result<(), TokenTrouble>),
}

impl From<Reply> for SentReply {
    fn from(reply: Reply) -> SentReply {
        match reply {
            Reply::Waiting(reasons) => SentReply::Why(reasons),
            Reply::Start(estimate) => SentReply::Starts(estimate),
            Reply::Refreshed(refreshed) => SentReply::Refreshed(refreshed),
            reply => SentReply::Engine(reply),
        }
    }
}

impl From<SentReply> for Reply {
    fn from(sent: SentReply) -> Reply {
        match sent {
            SentReply::Engine(reply) => reply,
            SentReply::Why(reasons) => Reply::Waiting(reasons),
            SentReply::Starts(estimate) => Reply::Start(estimate),
            SentReply::Refreshed(refreshed) => Reply::Refreshed(refreshed),
        }
    }
}

/// A text that stays out of logs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RedactedText(pub(crate) String);

impl std::fmt::Debug for RedactedText {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Secret")
    }
}

/// Sends a frame. Errors: the connection broke, or what is said is too long.
pub(crate) async fn send<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    said: &T,
) -> io::Result<()> {
    let text = serde_json::to_vec(said).map_err(io::Error::other)?;
    let length = u32::try_from(text.len()).ok();
    let length = length.filter(|length| *length <= FRAME_MAX);
    let length = length.ok_or_else(|| io::Error::other("too much to say to a node at once"))?;
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(&text).await?;
    to.flush().await
}

/// What the other end said.
#[derive(Debug)]
pub(crate) enum ReceivedFrame<T> {
    Known(T),
    /// What only a later version knows.
    Unknown,
    /// Nothing any more: the connection is closed.
    Nothing,
}

/// The next frame. Errors: the connection broke, or what comes is no frame.
pub(crate) async fn receive<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<ReceivedFrame<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(ReceivedFrame::Nothing);
        }
        Err(why) => return Err(why),
    }
    let length = u32::from_be_bytes(length);
    if length > FRAME_MAX {
        return Err(io::Error::other(format!(
            "a node says {length} bytes at once"
        )));
    }
    let mut left = length as usize;
    let mut text = Vec::new();
    while left > 0 {
        let begin = text.len();
        let part = left.min(READ_AT_ONCE);
        text.resize(begin + part, 0);
        from.read_exact(&mut text[begin..]).await?;
        left -= part;
    }
    match serde_json::from_slice(&text) {
        Ok(said) => Ok(ReceivedFrame::Known(said)),
        // The error's text may hold tokens; its place does not.
        Err(why) if why.is_data() => {
            let (line, column) = (why.line(), why.column());
            tracing::warn!(
                line,
                column,
                "another node says what this version does not know"
            );
            Ok(ReceivedFrame::Unknown)
        }
        Err(_) => Err(io::Error::other("a node sent invalid JSON")),
    }
}

#[cfg(test)]
mod tests;
