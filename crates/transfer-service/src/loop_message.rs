//! What the loop around the engine takes: from clients, agents, nodes, tape systems and issuers of tokens.

use penstock_engine::command::{Command, Reply};
use penstock_engine::{
    AgentReport, AttemptKey, AttemptOutcome, EngineConfig, NodeJoined, TapeOutcome,
};
use penstock_model::{CredentialId, Failure, NodeId};
use std::time::Instant;
use tokio::sync::oneshot;

/// The end of an attempt, which no leader is known to have made durable.
#[derive(Debug, Clone)]
pub(crate) struct UntoldEnd {
    pub(crate) key: AttemptKey,
    pub(crate) outcome: AttemptOutcome,
}

/// What the loop takes.
#[derive(Debug)]
pub(crate) enum Message {
    /// What somebody asks for. `again`: a reply to it may have been lost.
    Command {
        command: Command,
        again: bool,
        to: oneshot::Sender<Reply>,
    },
    TokenReady {
        id: CredentialId,
    },
    TokenRefused {
        id: CredentialId,
        failure: Box<Failure>,
    },
    /// What an agent of a node tells.
    Reported {
        node: NodeId,
        session: u64,
        report: AgentReport,
    },
    /// A node has begun a session, with what it could not tell before.
    Joined {
        joined: Box<NodeJoined>,
        ends: Vec<UntoldEnd>,
    },
    /// A session has ended; the node was heard of last at this time.
    Gone {
        node: NodeId,
        session: u64,
        heard: Instant,
    },
    /// A node is about to go.
    Leaves {
        node: NodeId,
        session: u64,
    },
    TapeAnswered {
        number: u64,
        outcome: TapeOutcome,
    },
    Configure(Box<EngineConfig>),
}
