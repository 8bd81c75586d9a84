//! A tape library that keeps real bytes in a directory: it performs what the request engine of `penstock-tape` orders, takes as
//! long for it as the time model says, and loses what a real library would lose.
//!
//! One file is one cartridge. What was written and no sync covers is lost when the drive fails or the process ends. Time runs as
//! on the wall ([`LibraryTime::Real`]), so many times as fast (`Scaled`), or from event to event when no drive moves bytes (`Virtual`).
//! Bytes move as fast as disks are; reports come when the time model says that a drive would have moved them, or later. Which file is
//! read or written when is not decided here.
//!
//! Trouble that can be asked for ([`InjectedFault`]), and comes by chance at the rates of [`LibraryDefinition`]'s `faults`:
//!
//! | trouble | what is seen |
//! |---|---|
//! | `Mount` with `Hung`, `DriveDown`, `TapeUnreadable` | nothing; an error of the drive; an error of the tape |
//! | `DriveFailure` | an error of the drive, now; what it has not synced is lost |
//! | `MediaError` | an error of each file in that stretch |
//! | `RobotStuck`, `RobotAway` | each mount is an error of the library after 300 s or 10 s; dismounts wait |
//! | `LibraryFull` | each mount for writing is an error of the library |

#![forbid(unsafe_code)]

mod aggregate_source;
mod block;
mod cartridge_file;
mod definition;
mod drive_slots;
mod drive_thread;
mod emulated_library;
mod exchange;
mod fault;
mod identity;
mod report_queue;

pub use definition::{DefinitionError, LibraryDefinition, LibraryTime, TapeDefinition};
pub use emulated_library::{EmulatedLibrary, LibraryError};
pub use exchange::{CopyDirection, FileExchange};
pub use fault::InjectedFault;
pub use identity::{IdentityError, KnownLibrary};
pub use report_queue::DriveMessage;
