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
mod directory_id_cache;
mod disk_full;
mod door;
mod door_threads;
mod drive_account;
mod file_label;
pub mod fsck;
mod gate;
pub mod hsm_command;
mod locks;
mod meter;
mod metrics;
mod mover;
mod nearline;
mod nearline_inbox;
mod open_error;
mod pending_publication;
mod pool;
mod pool_files;
mod pool_messages;
mod pool_opening;
mod pool_sampler;
mod pool_watch;
mod pool_write;
mod private_files;
mod reaper;
pub mod rebuild;
mod receive;
mod recorder;
mod recovery;
mod reserved_names;
pub mod rights;
mod storage;
mod stream_memory;
mod tape_counts;
mod tape_meter;
mod tape_operator;
mod timed_join;
mod traffic;
mod uncommitted_file;
mod uploads;
mod write_error;

pub use door::{DoorConfig, serve};
pub use door_threads::DoorThreads;
pub use meter::SecondTraffic;
pub use metrics::{StorageHealthInput, StorageMetrics};
pub use mover::MoverSnapshot;
pub use open_error::OpenError;
pub use pool_files::{PoolFilesError, PoolRoot};
pub use storage::{PoolSnapshot, Storage, StorageSnapshot};

pub use config::{
    AccessConfig, ArchiveClass, ArchiveClasses, HsmProgramConfig, LibrariesConfig, LibraryConfig,
    MacaroonConfig, NearlineConfig, OutboundConfig, OwnIssuer, PoolConfig, StorageConfig,
    StorageLimits, TapeCareConfig, TapeSystemConfig, TrustedIssuerConfig,
};
pub use penstock_decide::streams::StreamsLimits;
