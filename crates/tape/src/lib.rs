//! Tape: what drives and cartridges are, how long a drive takes from one place of a tape to another, and in which order
//! files are read.
//!
//! Pure: no clock, no chance, no I/O. Times are whole nanoseconds, so equal inputs give equal orders on every machine.

#![forbid(unsafe_code)]

pub mod drive;
pub mod geometry;
pub mod locate;
pub mod order;
pub mod recall;
