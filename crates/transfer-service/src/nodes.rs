//! A service as one process or several over one database: each answers clients and runs agents, one of them leads.
//!
//! The leader's loop holds the queue and decides; whoever else is asked passes on what changes something. A service of
//! one process is a leader that nobody else can follow.

mod follow;
mod key_handover;
mod leader_loop;
mod leadership;
mod membership;
mod serve;
mod view;

pub(crate) use leader_loop::LeaderLoop;
pub use membership::NodesConfig;
pub(crate) use membership::{Membership, NODE_TERM};
pub use view::{NodeStatus, NodeView, NodesView};
