//! What the machine itself tells: pressure, disks, interfaces, memory, the process, TCP; sampled each second, so that a
//! drop of a rate can be explained by what the kernel counted meanwhile.
//!
//! Parsers, sums and comparisons are pure: bytes and values in, values out. What reads and writes files is
//! brought in by the feature `host`. Nothing here knows a transfer.

pub mod disks;
pub mod interfaces;
pub mod memory;
pub mod mounts;
pub mod pressure;
pub mod proc_text;
pub mod process;
pub mod processor;
pub mod socket;
pub mod tcp;

pub use proc_text::FormatError;
