//! What operators see of the nodes of a service.

use super::membership::Membership;
use crate::overview::Overview;
use penstock_engine::this_process;
use penstock_model::Epoch;
use serde::{Deserialize, Serialize};

/// The nodes of a service, as one of them knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesView {
    /// The one that tells this.
    pub node: String,
    /// Who leads, as far as it knows.
    pub leader: Option<String>,
    /// Which leadership it is.
    pub epoch: u64,
    /// All that are registered in the database, by name.
    pub nodes: Vec<NodeView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub node: String,
    /// `leader`, `follower`, or `silent`: neither the leader nor the database has heard of it lately.
    pub role: String,
    /// Where the others reach it.
    pub address: String,
    /// Attempts that run there.
    pub active: u32,
    /// How many may.
    pub active_max: u32,
    pub version: String,
    /// How long ago it told that it is there.
    pub seen_seconds: u64,
}

/// What one node is, as it knows itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// `leader`, `follower`, or `leaderless`: it reaches nobody who leads.
    pub role: &'static str,
    /// The latest leadership that it knows of.
    pub epoch: u64,
}

impl NodesView {
    /// Of a service of one process.
    pub(crate) fn of_one(overview: &Overview) -> NodesView {
        let node = this_process().to_string();
        let one = NodeView {
            node: node.clone(),
            role: "leader".to_owned(),
            address: String::new(),
            active: overview.agents.active,
            active_max: overview.agents.limit,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seen_seconds: 0,
        };
        NodesView {
            leader: Some(node.clone()),
            node,
            epoch: 0,
            nodes: vec![one],
        }
    }
}

/// A node that has told nothing for so long is silent, whatever the leader thinks.
const SILENT_AFTER: u64 = 15;

impl Membership {
    /// The latest leadership that is known.
    pub(crate) fn epoch(&self) -> Epoch {
        self.known.borrow().0.epoch
    }

    /// What is known, with what runs where as the leader told it.
    pub(crate) fn view(&self, overview: &Overview) -> NodesView {
        let (tenure, leader) = self.known.borrow().clone();
        let nodes = self.nodes.borrow();
        let nodes = nodes.iter().map(|seen| {
            let id = seen.node.id.as_str();
            let runs = overview.nodes.iter().find(|row| row.node == id);
            let seen_seconds = seen.age.as_secs();
            let is_reached = runs.is_some_and(|row| row.limit.is_some());
            let role = match leader.as_ref().is_some_and(|leader| leader.as_str() == id) {
                true => "leader",
                false if is_reached && seen_seconds < SILENT_AFTER => "follower",
                false => "silent",
            };
            NodeView {
                node: id.to_owned(),
                role: role.to_owned(),
                address: seen.node.address.clone(),
                active: runs.map_or(0, |row| row.active),
                active_max: seen.node.agents_max,
                version: seen.node.version.clone(),
                seen_seconds,
            }
        });
        NodesView {
            node: self.id.to_string(),
            leader: leader.as_ref().map(ToString::to_string),
            epoch: tenure.epoch.0,
            nodes: nodes.collect(),
        }
    }
}
