//! One process of the service: its agents, what it shows its clients, and the nodes that follow it while it leads.

mod agent_host;
mod following_nodes;
mod served_state;
pub(crate) mod wire;

pub(crate) use agent_host::{AgentHost, ReportSink};
pub(crate) use following_nodes::{DOWN_MAX, Followers};
pub(crate) use served_state::PublishedState;

use crate::agent::AgentSetup;
use crate::clock::EngineClock;
use crate::metrics::TransferMetrics;
use crate::overview::LinkSampling;
use penstock_engine::Now;
use penstock_model::NodeId;
use std::sync::Arc;

/// The parts of one process of the service that do not depend on who leads.
pub(crate) struct Node {
    /// Its name.
    pub(crate) id: NodeId,
    /// The site's name, shown in the live view.
    pub(crate) site: String,
    pub(crate) sampling: LinkSampling,
    pub(crate) agents: Arc<AgentSetup>,
    pub(crate) host: Arc<AgentHost>,
    pub(crate) followers: Arc<Followers>,
    pub(crate) published: Arc<PublishedState>,
    pub(crate) metrics: Arc<TransferMetrics>,
    pub(crate) clock: EngineClock,
}

impl Node {
    /// Now, as records tell it.
    pub(crate) fn now(&self) -> Now {
        self.clock.now(self.agents.tokens.clock().recorded())
    }
}
