//! A batch: rows that count together with the positions to which they belong. What a batch has written before it is kept is cut
//! off again when it was interrupted, so that rows that are taken once more are there once; until then nobody reads it.
//!
//! ```text
//! unfinished   the positions as they were (their length and CRC-32C, or `none`), then of each file that grew: length and name
//! ```
//! A file is noted before the first block is added to it. The batch is kept when the positions are replaced: a note of other
//! positions than those that are there is of a batch that was kept, and counts for nothing.

use super::positions;
use super::segment::{self, HEAD_BYTES};
use super::{FILE_MODE, StoreError, flushed_length, sync_directory};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const NAME: &str = "unfinished";
const NO_POSITIONS: &str = "none";

/// The batch that is being written.
#[derive(Debug)]
pub(super) struct UnfinishedBatch {
    directory: PathBuf,
    /// The positions as they were.
    positions: String,
    /// There as soon as a file is noted.
    note: Option<File>,
    noted: BTreeSet<PathBuf>,
}

impl UnfinishedBatch {
    pub(super) fn begin(directory: &Path) -> Result<UnfinishedBatch, StoreError> {
        Ok(UnfinishedBatch {
            directory: directory.to_owned(),
            positions: positions_now(directory)?,
            note: None,
            noted: BTreeSet::new(),
        })
    }

    /// Notes durably how long a file is, unless it is noted: more is added to it now.
    pub(super) fn note(&mut self, path: &Path, length: u64) -> Result<(), StoreError> {
        if self.noted.contains(path) {
            return Ok(());
        }
        let note = match &mut self.note {
            Some(note) => note,
            none => none.insert(create(&self.directory, &self.positions)?),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let written = note.write_all(format!("{length} {name}\n").as_bytes());
        let written = written.and_then(|()| note.sync_data());
        written.map_err(StoreError::disk(&self.directory.join(NAME)))?;
        self.noted.insert(path.to_owned());
        Ok(())
    }

    /// All of it counts from now on.
    pub(super) fn keep(self) -> Result<(), StoreError> {
        match self.note {
            Some(_) => remove(&self.directory),
            None => Ok(()),
        }
    }
}

/// Cuts off what a batch has written that was not kept, if there is one.
pub(super) fn take_back(directory: &Path) -> Result<(), StoreError> {
    let Some(lengths) = lengths_before(directory)? else {
        return Ok(());
    };
    for (name, length) in lengths {
        cut(&directory.join(name), length)?;
    }
    remove(directory)
}

/// How long the files were to which a batch has added that is not kept, by their names: what is behind counts for nothing.
/// `None`: there is no note of a batch.
pub(super) fn lengths_before(
    directory: &Path,
) -> Result<Option<BTreeMap<String, u64>>, StoreError> {
    let path = directory.join(NAME);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(StoreError::disk(&path)(why)),
    };
    // A line without its end was never acknowledged, so that nothing was written after it.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    let mut lengths = BTreeMap::new();
    if lines.next() == Some(positions_now(directory)?.as_str()) {
        for line in lines {
            let (length, name) = parse(line).ok_or_else(|| StoreError::Foreign {
                path: path.clone(),
                what: format!("it does not tell how long a file was: '{line}'"),
            })?;
            lengths.insert(name.to_owned(), length);
        }
    }
    Ok(Some(lengths))
}

fn parse(line: &str) -> Option<(u64, &str)> {
    let (length, name) = line.split_once(' ')?;
    segment::parse_name(name)?;
    Some((length.parse().ok()?, name))
}

/// A file that had no rows before goes.
fn cut(path: &Path, length: u64) -> Result<(), StoreError> {
    let file = match File::options().write(true).open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(StoreError::disk(path)(why)),
    };
    flushed_length::forget(path)?;
    if length <= HEAD_BYTES {
        return fs::remove_file(path).map_err(StoreError::disk(path));
    }
    let size = file.metadata().map_err(StoreError::disk(path))?.len();
    if size > length {
        let cut = file.set_len(length).and_then(|()| file.sync_all());
        cut.map_err(StoreError::disk(path))?;
    }
    Ok(())
}

fn create(directory: &Path, positions: &str) -> Result<File, StoreError> {
    let path = directory.join(NAME);
    let file = File::options()
        .create_new(true)
        .write(true)
        .mode(FILE_MODE)
        .open(&path);
    let mut file = file.map_err(StoreError::disk(&path))?;
    file.write_all(format!("{positions}\n").as_bytes())
        .map_err(StoreError::disk(&path))?;
    sync_directory(directory)?;
    Ok(file)
}

fn remove(directory: &Path) -> Result<(), StoreError> {
    let path = directory.join(NAME);
    fs::remove_file(&path).map_err(StoreError::disk(&path))?;
    sync_directory(directory)
}

/// By what positions are known again.
fn positions_now(directory: &Path) -> Result<String, StoreError> {
    let path = directory.join(positions::NAME);
    match fs::read(&path) {
        Ok(text) => Ok(format!("{} {:08x}", text.len(), crc32c::crc32c(&text))),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(NO_POSITIONS.to_owned()),
        Err(why) => Err(StoreError::disk(&path)(why)),
    }
}
