//! How much of a file of rows is certainly on disk, in a small file beside it, so that opening a long file writes only
//! what is behind that once more.
//!
//! The length is noted after the flush that covers it, and not after each: it is a lower bound. A note that does not
//! belong to the file (a copy, a file from a backup, a file that was damaged) counts for nothing and is removed before
//! anything is written.

use super::{StoreError, replace_file, sync_directory};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes that are flushed between two notes. A note costs two flushes of its own; opening writes about so much again.
pub(super) const NOTE_EVERY_BYTES: u64 = 1 << 20;

/// Where the length of a file is noted.
pub(super) fn note_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".flushed");
    name.into()
}

/// Notes that so many bytes are on disk.
pub(super) fn note(path: &Path, file: &File, length: u64) -> Result<(), StoreError> {
    let note = note_path(path);
    // A copy of the file has another inode, and nobody knows what of it is on disk.
    let inode = file.metadata().map_err(StoreError::disk(path))?.ino();
    replace_file(&note, format!("{length} {inode}\n").as_bytes())
}

/// What was noted of this file; `None`: nothing, or something that cannot be believed.
pub(super) fn noted(path: &Path, file: &File) -> Result<Option<u64>, StoreError> {
    let note = note_path(path);
    let text = match fs::read(&note) {
        Ok(text) => String::from_utf8(text).unwrap_or_default(),
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(StoreError::disk(&note)(why)),
    };
    let inode = file.metadata().map_err(StoreError::disk(path))?.ino();
    let numbers = text
        .strip_suffix('\n')
        .and_then(|text| text.split_once(' '));
    let (length, of) = numbers.unwrap_or_default();
    let is_of_this_file = of.parse() == Ok(inode);
    Ok(length.parse().ok().filter(|_| is_of_this_file))
}

/// Removes the note of a file, durably. It is fine when there is none.
pub(super) fn forget(path: &Path) -> Result<(), StoreError> {
    let note = note_path(path);
    match fs::remove_file(&note) {
        Ok(()) => sync_directory(path.parent().unwrap_or(Path::new("."))),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(StoreError::disk(&note)(why)),
    }
}
