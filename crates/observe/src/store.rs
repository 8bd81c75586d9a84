//! Rows on disk: what somebody saw happen, appended as it comes and read again by time.
//!
//! A directory has one file for each family of rows and day (several, when one would be long), so that old days can be
//! removed. A file is a chain of blocks, each of which holds its rows column by column and is checked by a checksum
//! (`docs/decisions/0016-rows-in-own-columns.md`). What [`Store::flush`] has acknowledged survives a crash; what a crash
//! has torn off is moved into a file beside it when more is written, and told. Only one process writes, any number reads.

mod block;
pub(crate) mod columns;
mod flushed_length;
mod positions;
mod reading;
mod segment;
mod unfinished;

pub use positions::{BEGINNING_BYTES, Position, Positions};
pub use reading::{Reader, SkippedBytes};
pub use segment::TornTail;

use penstock_durable_file::replace_private;
use penstock_model::Timestamp;
use penstock_model::observation::{
    Attempt, Change, Family, Incident, NamespaceChange, Observation, Row, Sample,
};
use segment::Segment;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;
use unfinished::UnfinishedBatch;

/// Rows of one block at most: what a reader decodes at once.
const BLOCK_ROWS_MAX: u32 = 16_384;
/// Rows that wait in memory for their blocks at most, of all files together.
const BUFFER_ROWS_MAX: u32 = 65_536;
/// A file that is longer gets no further block.
const SEGMENT_BYTES_MAX: u64 = 256 << 20;
/// Files that are open at most.
const FILES_OPEN_MAX: usize = 64;
/// The marker of a directory with rows, with the version of its files.
const MARKER: &str = "penstock-records";
const MARKER_TEXT: &str = "penstock records 1\n";

/// Why rows cannot be kept or read.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("{}: {why}", path.display())]
    Disk {
        path: PathBuf,
        /// What it said.
        #[source]
        why: io::Error,
    },
    /// Another process writes.
    #[error("{}: another process writes into it", .0.display())]
    Locked(PathBuf),
    /// It holds something else, or rows of a later version.
    #[error("{}: {what}", path.display())]
    Foreign {
        /// Which file or directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A row whose time is in no year from 1 to 9999, which is no time of a record. Nothing was taken.
    #[error("its time ({} s since 1970) is outside the years 1 to 9999", .0.unix_seconds())]
    NoTime(Timestamp),
    /// Something that was to be durable may not be: the disk failed before.
    #[error("{}: a write failed before; open it again to see what is there", .0.display())]
    Poisoned(PathBuf),
}

impl StoreError {
    fn disk(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |why| StoreError::Disk { path, why }
    }
}

/// Appends rows.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    /// Held as long as this lives.
    _lock: File,
    segments: BTreeMap<(Family, i64), Segment>,
    buffered_rows: u32,
    torn: Vec<TornTail>,
    batch: Option<UnfinishedBatch>,
    is_poisoned: bool,
}

impl Store {
    /// Opens a directory to write, which it makes when there is none.
    pub fn open(directory: &Path) -> Result<Store, StoreError> {
        make_directory(directory)?;
        let marker = directory.join(MARKER);
        let is_new = !marker.exists();
        if is_new {
            refuse_foreign_files(directory)?;
        }
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE_MODE)
            .open(&marker);
        let lock = lock.map_err(StoreError::disk(&marker))?;
        penstock_durable_file::take_lock(&lock).map_err(|why| match why {
            TryLockError::WouldBlock => StoreError::Locked(directory.to_owned()),
            TryLockError::Error(why) => StoreError::disk(&marker)(why),
        })?;
        let text = fs::read_to_string(&marker).map_err(StoreError::disk(&marker))?;
        if text.is_empty() {
            fs::write(&marker, MARKER_TEXT).map_err(StoreError::disk(&marker))?;
            lock.sync_all().map_err(StoreError::disk(&marker))?;
            sync_directory(directory)?;
        } else {
            check_marker(&marker, &text)?;
        }
        unfinished::take_back(directory)?;
        Ok(Store {
            directory: directory.to_owned(),
            _lock: lock,
            segments: BTreeMap::new(),
            buffered_rows: 0,
            torn: Vec::new(),
            batch: None,
            is_poisoned: false,
        })
    }

    /// Takes a row. It is durable after the next [`Store::flush`].
    pub fn append(&mut self, row: &Observation) -> Result<(), StoreError> {
        match row {
            Observation::Attempt(row) => self.append_row::<Attempt>(row),
            Observation::Sample(row) => self.append_row::<Sample>(row),
            Observation::Change(row) => self.append_row::<Change>(row),
            Observation::Incident(row) => self.append_row::<Incident>(row),
            Observation::NamespaceChange(row) => self.append_row::<NamespaceChange>(row),
        }
    }

    /// The same, of a family that is known.
    pub fn append_row<R: Row>(&mut self, row: &R) -> Result<(), StoreError> {
        if self.is_poisoned {
            return Err(StoreError::Poisoned(self.directory.clone()));
        }
        let day = day_of(row.at());
        if !DAYS.contains(&day) {
            return Err(StoreError::NoTime(row.at()));
        }
        let segment = self
            .segments
            .entry((R::FAMILY, day))
            .or_insert_with(|| Segment::new(R::FAMILY, day, R::COLUMNS));
        segment.push(row);
        self.buffered_rows += 1;
        let is_full = segment.buffered_rows() >= BLOCK_ROWS_MAX;
        if is_full || self.buffered_rows >= BUFFER_ROWS_MAX {
            self.poisoning(|store| store.write_blocks())?;
        }
        Ok(())
    }

    /// Makes durable what was appended.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.is_poisoned {
            return Err(StoreError::Poisoned(self.directory.clone()));
        }
        self.poisoning(|store| {
            store.write_blocks()?;
            for segment in store.segments.values_mut() {
                segment.sync()?;
            }
            Ok(())
        })
    }

    /// Begins a batch: what is appended from now on counts only when it is kept. When this process ends before, the next that
    /// writes cuts it off.
    pub fn begin_batch(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.batch = Some(UnfinishedBatch::begin(&self.directory)?);
        Ok(())
    }

    /// Makes durable what was appended since the batch began, together with the positions to which it belongs: after a crash
    /// both are there, or neither.
    pub fn keep_batch(&mut self, positions: &Positions) -> Result<(), StoreError> {
        self.flush()?;
        self.poisoning(|store| {
            positions.save()?;
            store.batch.take().map_or(Ok(()), UnfinishedBatch::keep)
        })
    }

    /// Cuts off what was appended since the batch began.
    pub fn take_back_batch(&mut self) -> Result<(), StoreError> {
        self.segments.clear();
        self.buffered_rows = 0;
        self.batch = None;
        self.poisoning(|store| unfinished::take_back(&store.directory))
    }

    /// What a crash had torn off the files that were written to since the opening.
    pub fn torn_tails(&self) -> &[TornTail] {
        &self.torn
    }

    /// Removes the days that had ended before; tells which files.
    pub fn remove_before(&mut self, at: Timestamp) -> Result<Vec<PathBuf>, StoreError> {
        self.flush()?;
        let first_day = day_of(at);
        let mut removed = Vec::new();
        for file in segment::files(&self.directory)? {
            if file.day < first_day {
                flushed_length::forget(&file.path)?;
                fs::remove_file(&file.path).map_err(StoreError::disk(&file.path))?;
                let torn = segment::torn_path(&file.path);
                if torn.exists() {
                    fs::remove_file(&torn).map_err(StoreError::disk(&torn))?;
                }
                removed.push(file.path);
            }
        }
        self.segments.retain(|(_, day), _| *day >= first_day);
        sync_directory(&self.directory)?;
        Ok(removed)
    }

    /// After a failed write or sync nobody knows what of it is on disk.
    fn poisoning<T>(
        &mut self,
        write: impl FnOnce(&mut Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let outcome = write(self);
        self.is_poisoned = outcome.is_err();
        outcome
    }

    fn write_blocks(&mut self) -> Result<(), StoreError> {
        let is_open = |segment: &&Segment| segment.is_open();
        let mut open = self.segments.values().filter(is_open).count();
        let gathered = self.segments.iter();
        let gathered = gathered.filter(|(_, segment)| segment.buffered_rows() > 0);
        let gathered: Vec<(Family, i64)> = gathered.map(|(of, _)| *of).collect();
        for of in gathered {
            if open >= FILES_OPEN_MAX {
                for segment in self.segments.values_mut() {
                    segment.close()?;
                }
                open = 0;
            }
            let Some(segment) = self.segments.get_mut(&of) else {
                continue;
            };
            open += usize::from(!segment.is_open());
            self.torn.extend(segment.open_for_block(&self.directory)?);
            if let (Some(batch), Some((path, length))) = (&mut self.batch, segment.open_file()) {
                batch.note(path, length)?;
            }
            segment.write_block()?;
        }
        self.buffered_rows = 0;
        self.segments.retain(|_, segment| segment.is_open());
        Ok(())
    }
}

/// A directory that holds other things is not taken for a new store.
fn refuse_foreign_files(directory: &Path) -> Result<(), StoreError> {
    let mut entries = fs::read_dir(directory).map_err(StoreError::disk(directory))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(StoreError::Foreign {
            path: directory.to_owned(),
            what:
                "it is not empty and holds no records of Penstock; name an empty or a new directory"
                    .to_owned(),
        }),
    }
}

fn check_marker(marker: &Path, text: &str) -> Result<(), StoreError> {
    match text {
        MARKER_TEXT => Ok(()),
        _ => Err(StoreError::Foreign {
            path: marker.to_owned(),
            what: "it is of another version".to_owned(),
        }),
    }
}

/// Rows tell of users, clients and paths: they are for this user alone.
const FILE_MODE: u32 = 0o600;

/// Days since 1970 that have a file: the years from 1 to 9999, whose dates have ten characters.
const DAYS: std::ops::Range<i64> = -719_162..2_932_897;

/// Days since 1970.
fn day_of(at: Timestamp) -> i64 {
    at.unix_seconds().div_euclid(86_400)
}

/// Makes it with all that is above it, for nobody but this user, and so that it survives a loss of power.
fn make_directory(directory: &Path) -> Result<(), StoreError> {
    let missing: Vec<&Path> = directory
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .collect();
    let mut builder = fs::DirBuilder::new();
    let builder = builder.recursive(true).mode(0o700);
    builder
        .create(directory)
        .map_err(StoreError::disk(directory))?;
    for path in missing.iter().rev() {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        sync_directory(above.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

fn replace_file(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    replace_private(path, content).map_err(StoreError::disk(path))
}

fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    penstock_durable_file::sync_directory(directory).map_err(StoreError::disk(directory))
}

#[cfg(test)]
mod tests;
