//! The transfer service: FTS REST interface, the engine that decides, and the agents that move files.
#![forbid(unsafe_code)]

mod agent;
pub mod api;
mod banned;
mod clock;
mod cloud;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod history;
mod leader_requests;
mod ledger_followers;
mod loop_message;
pub mod messages;
mod metrics;
mod minutes;
mod node;
mod nodes;
mod overview;
mod restore;
mod run;
pub mod service;
mod store;
mod tokens;

pub use agent::{AgentConfig, GfalConfig, SftpAccount, gfal_plugins};
pub use banned::Banned;
pub use error::ServiceError;
pub use nodes::{NodeStatus, NodeView, NodesConfig, NodesView};
pub use overview::{LinkSampling, Overview};
pub use service::{JournalCounts, JournalMeter, Service, ServiceConfig};
pub use store::StoreBackend;
pub use tokens::TokenClients;
