//! How far each file has been taken, so that it is not taken twice: kept beside the rows.
//!
//! A position is saved after the rows before it are durable. A crash in between makes the rows since the last save come a
//! second time, unless they were taken as a batch ([`Store::begin_batch`](super::Store::begin_batch)); none is lost.

use super::{StoreError, replace_file};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes at the beginning of a file by which it is known again.
pub const BEGINNING_BYTES: usize = 1_024;
pub(super) const NAME: &str = "positions.json";

/// How far a file has been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Bytes that were taken.
    pub bytes: u64,
    /// Lines that were taken.
    pub line: u64,
    beginning_crc32c: u32,
    beginning_bytes: u64,
}

/// The positions of a store.
#[derive(Debug)]
pub struct Positions {
    directory: PathBuf,
    known: BTreeMap<String, Position>,
}

impl Positions {
    /// Reads them.
    pub fn open(directory: &Path) -> Result<Positions, StoreError> {
        let path = directory.join(NAME);
        let known = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|why| StoreError::Foreign {
                path,
                what: format!("it does not contain how far files were read: {why}"),
            })?,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(why) => return Err(StoreError::disk(&path)(why)),
        };
        Ok(Positions {
            directory: directory.to_owned(),
            known,
        })
    }

    /// Where to go on with a file that begins so. `None`: it is new, or another one has its name.
    pub fn find(&self, name: &str, beginning: &[u8], size: u64) -> Option<Position> {
        let known = self.known.get(name)?;
        let checked = beginning.get(..usize::try_from(known.beginning_bytes).ok()?)?;
        let is_same = crc32c::crc32c(checked) == known.beginning_crc32c && known.bytes <= size;
        is_same.then_some(*known)
    }

    /// Notes how far a file has been taken. False: that was known.
    pub fn set(&mut self, name: &str, beginning: &[u8], bytes: u64, line: u64) -> bool {
        let checked = beginning.len().min(BEGINNING_BYTES).min(bytes as usize);
        let position = Position {
            bytes,
            line,
            beginning_crc32c: crc32c::crc32c(&beginning[..checked]),
            beginning_bytes: checked as u64,
        };
        self.known.insert(name.to_owned(), position) != Some(position)
    }

    /// Makes them durable.
    pub fn save(&self) -> Result<(), StoreError> {
        let path = self.directory.join(NAME);
        let text = serde_json::to_vec_pretty(&self.known).expect("plain data serialises");
        replace_file(&path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_gone_on_with_as_long_as_it_begins_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut positions = Positions::open(directory.path()).expect("none yet");
        positions.set("a", b"first line\nsecond", 11, 1);
        positions.save().expect("durable");
        let positions = Positions::open(directory.path()).expect("known");
        let found = positions.find("a", b"first line\nsecond line\n", 23);
        assert_eq!(found.map(|found| (found.bytes, found.line)), Some((11, 1)));
        assert_eq!(positions.find("a", b"other line\nsecond line\n", 23), None);
        assert_eq!(positions.find("a", b"first", 5), None, "it was begun anew");
        assert_eq!(positions.find("b", b"first line\n", 11), None);
    }
}
