//! Keeps files: a WebDAV door with third-party copy, a namespace, pools and bounded movers.
//!
//! Knows nothing of transfer services: whoever moves files between storage elements meets this one over the wire.
#![forbid(unsafe_code)]

pub mod config;
pub mod outbound;

pub use config::{
    AccessConfig, OutboundConfig, OwnIssuer, PoolConfig, StorageConfig, StorageLimits,
    TrustedIssuerConfig,
};
