//! What the machine itself tells: pressure, disks, interfaces, memory, the process, TCP; sampled each second, so that a
//! drop of a rate can be explained by what the kernel counted meanwhile.
//!
//! Parsers, sums and comparisons are pure: bytes and values in, values out. What reads and writes files is
//! brought in by the feature `host`. Nothing here knows a transfer.

pub mod compare;
pub mod databases;
pub mod disks;
pub mod facts;
pub mod interfaces;
#[cfg(feature = "host")]
pub mod machine;
pub mod memory;
pub mod mounts;
mod part;
pub mod pressure;
#[cfg(feature = "host")]
pub mod probe;
pub mod proc_text;
pub mod process;
pub mod processor;
pub mod report;
pub mod rings;
pub mod sample;
#[cfg(feature = "host")]
pub mod sampler;
#[cfg(feature = "host")]
pub mod store;
pub mod table;
pub mod tcp;

pub use proc_text::FormatError;
