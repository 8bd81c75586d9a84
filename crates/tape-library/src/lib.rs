//! A tape library that keeps real bytes in a directory: it performs what the request engine of `penstock-tape` orders, takes as
//! long for it as the time model says, and loses what a real library would lose.
//!
//! One file is one cartridge. What was written and no sync covers is lost when the drive fails or the process ends. Time runs as
//! on the wall, faster, or from event to event. Which file is read or written when is not decided here.

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
