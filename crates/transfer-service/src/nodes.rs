//! A service as one process or several over one database: each answers clients and runs agents, one of them leads.
//!
//! The leader's loop holds the queue and decides; whoever else is asked passes on what changes something. All that a
//! node has whoever leads is in [`Node`]: its agents, what it shows, and how it reaches the others. A service of one
//! process is a leader that nobody else can follow.

mod board;
mod desk;
mod follow;
mod host;
mod keys;
mod lead;
mod membership;
mod roster;
mod serve;
mod view;
pub(crate) mod wire;

pub(crate) use board::Board;
pub(crate) use desk::{Desk, NoReply, Seat};
pub(crate) use host::{AgentHost, Order, Teller};
pub(crate) use lead::Lead;
pub use membership::NodesConfig;
pub(crate) use membership::{Membership, NODE_TERM};
pub(crate) use roster::Roster;
pub use view::{NodeStanding, NodeView, NodesView};
pub(crate) use wire::Down;

use crate::agent::AgentSetup;
use crate::clock::Clock;
use crate::metrics::TransferMetrics;
use penstock_engine::Now;
use penstock_model::NodeId;
use std::sync::Arc;

/// What one process of the service has, whoever leads.
pub(crate) struct Node {
    /// Its name.
    pub(crate) id: NodeId,
    /// The site's name, shown in the live view.
    pub(crate) site: String,
    pub(crate) agents: Arc<AgentSetup>,
    pub(crate) host: Arc<AgentHost>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) board: Arc<Board>,
    pub(crate) metrics: Arc<TransferMetrics>,
    pub(crate) clock: Clock,
}

impl Node {
    /// Now, as records tell it.
    pub(crate) fn now(&self) -> Now {
        self.clock.now(self.agents.tokens.clock().recorded())
    }
}
