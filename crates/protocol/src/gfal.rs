//! Storage elements that are reached by the system's gfal2 library: `gsiftp`, `root`, `srm`, `sftp`.
//!
//! The library and its plug-ins run in child processes only, one for each attempt of a transfer and for each call of a
//! tape system, so that a crash there costs that attempt and nothing else. [`wire`] is what a child and its service say to each other, [`child`] is the
//! child. Nothing here is linked with gfal2: it is loaded when a child starts.

pub mod child;
mod confine;
mod files;
pub mod gate;
mod library;
mod urls;
pub mod wire;

pub use confine::{Account, ReadablePaths};
pub use files::OpenableFiles;
pub use files::system_paths;
pub use wire::{CopyOrder, GfalError, Order, OrderResult, Report, Setup, SftpLogin};
