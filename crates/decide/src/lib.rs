//! What to do next, and why: choices as pure functions that return their reasons.
//!
//! No I/O, no `async`, no clock, no randomness: facts come in as plain values, time as `now`. A module belongs here
//! when two people could argue about the choice that it makes.
#![forbid(unsafe_code)]

pub mod admission;
pub mod alerting;
pub mod attenuation;
pub mod authorization;
pub mod backups;
pub mod classify;
pub mod clock;
pub mod cloud;
pub mod copy_failure;
pub mod credential_expiry;
mod decision;
pub mod destination;
pub mod explain;
pub mod gfal_way;
pub mod halting;
pub mod health;
pub mod history;
pub mod incidents;
mod link_patterns;
pub mod locking;
pub mod minute_meter;
pub mod monitor_rights;
pub mod open_attempts;
pub mod pool_condition;
pub mod pool_selection;
pub mod prediction;
pub mod record_clock;
pub mod renewal;
pub mod replica;
pub mod retry;
pub mod scheduler;
pub mod service_rights;
pub mod settings;
pub mod shares;
pub mod staging;
pub mod story;
pub mod streams;
mod timed_id;
pub mod trash;
pub mod tuning;
mod turns;
pub mod wording;

pub use decision::Decision;
