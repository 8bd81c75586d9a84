//! A field of storage elements, links and users that is made of formulas, in virtual time, for the production engine.
//!
//! Nothing here decides anything that the service decides: the engine is the one that `penstock serve` runs, and only
//! what surrounds it (storages, networks, users, trouble) is simulated. Equal plans with equal seeds give equal runs.
#![forbid(unsafe_code)]

pub mod accuracy;
mod books;
mod disk_server;
mod field;
mod lines;
pub mod made_page;
pub mod plan;
mod random;
pub mod report;
pub mod stories;
pub mod tape;
pub mod trouble;
mod watch;
pub mod what_if;
mod world;

pub use plan::{Plan, PlanError, Policy};
pub use report::Report;
pub use world::{BrokenInvariant, Progress, simulate, simulate_recorded};
