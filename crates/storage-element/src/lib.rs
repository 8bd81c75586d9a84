//! Keeps files: a WebDAV door with third-party copy, a namespace, pools and bounded movers.
//!
//! Knows nothing of transfer services: whoever moves files between storage elements meets this one over
//! the wire.
#![forbid(unsafe_code)]

mod claims;
mod clock;
mod committer;
pub mod config;
mod crash;
mod door;
mod gate;
mod incoming;
mod locks;
mod meter;
mod metrics;
mod mover;
mod pool;
mod reaper;
mod receive;
mod recorder;
mod recovery;
pub mod rights;
mod scratch;
mod storage;
mod stream_memory;
mod uploads;
mod write_error;

pub use door::{DoorConfig, serve};
pub use meter::SecondMoved;
pub use metrics::{StorageCondition, StorageMetrics};
pub use mover::MoverSnapshot;
pub use recovery::OpenError;
pub use storage::{PoolSnapshot, Storage, StorageSnapshot};

pub use config::{
    AccessConfig, MacaroonConfig, OutboundConfig, OwnIssuer, PoolConfig, StorageConfig,
    StorageLimits, TrustedIssuerConfig,
};
pub use penstock_decide::streams::StreamsLimits;
