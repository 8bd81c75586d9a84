//! What survives a restart: model values in transactions. Never selects which work to do.
#![deny(unsafe_code)]

pub mod access_links;
pub mod backup;
pub mod cluster;
pub mod delegations;
pub mod journal;
pub mod namespace;
pub mod positions;
pub mod postgres;
pub mod resealing;
pub mod sealing;
mod sql_integer;
mod writing;
