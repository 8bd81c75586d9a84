//! Tape: what drives, cartridges and libraries are, how long a drive takes for what it is told, in which order files are read,
//! and which tape goes into which drive.
//!
//! Pure: no clock, no I/O, and chance only from a seed. Times are whole nanoseconds, so equal inputs give equal orders on
//! every machine.

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod amount;
mod as_pairs;
pub mod calibration;
pub mod cartridge;
pub mod chance;
pub mod copy_count;
pub mod data_set;
pub mod drive;
pub mod drive_fault;
pub mod drive_kind;
pub mod drive_pool;
pub mod geometry;
pub mod hsm_queue;
pub mod library;
pub mod linear;
pub mod live_set;
pub mod loaded_drive;
pub mod locate;
pub mod mount_account;
pub mod mount_decision;
pub mod ok_to_stop;
pub mod order;
pub mod recall;
pub mod record;
pub mod relabel;
pub mod repack;
pub mod request;
pub mod request_engine;
mod stored_kind;
pub mod tape_care;
pub mod watchdog;

pub use ok_to_stop::ok_to_stop;

#[cfg(test)]
mod tests;
