//! The transfer service: FTS REST interface, the engine that decides, and the agents that move files.
#![forbid(unsafe_code)]

mod agent;
pub mod api;
mod clock;
mod cloud;
#[doc(hidden)]
pub mod fuzzing;
mod history;
pub mod messages;
mod metrics;
mod nodes;
mod overview;
mod restore;
mod run;
pub mod service;
mod store;
mod tokens;

pub use agent::{AgentConfig, GfalConfig, SftpAccount, gfal_plugins};
pub use nodes::{NodeStanding, NodeView, NodesConfig, NodesView};
pub use overview::Overview;
pub use service::{Service, ServiceConfig, ServiceError};
pub use store::Store;
pub use tokens::TokenClients;
