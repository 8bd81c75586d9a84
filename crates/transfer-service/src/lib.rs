//! The transfer service: FTS REST interface, the engine that decides, and the agents that move files.
#![forbid(unsafe_code)]

pub mod engine;
pub mod submission;
