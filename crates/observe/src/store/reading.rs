//! Reads rows again: of a window, and of each row only the columns that are wanted.

use super::segment::{self, FRAME_HEAD_BYTES, FrameHead, HEAD_BYTES};
use super::{MARKER, StoreError, check_marker, day_of};
use super::{block, columns, unfinished};
use penstock_model::observation::{
    Attempt, Change, Family, Incident, NamespaceChange, Observation, Row, Sample,
};
use penstock_model::{Bytes, TimeWindow};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes of a file that could not be read as rows: they are being written, or are damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedBytes {
    /// The file.
    pub path: PathBuf,
    pub bytes: Bytes,
}

/// What is read of a file.
struct FileRead<'a> {
    path: &'a Path,
    /// What is behind belongs to a batch that is not kept. `None`: all of it is kept.
    bytes_max: Option<u64>,
    window: TimeWindow,
    columns: &'a [&'a str],
}

/// Reads a store. What is appended meanwhile may or may not be read.
#[derive(Debug)]
pub struct Reader {
    directory: PathBuf,
    skipped: Vec<SkippedBytes>,
}

impl Reader {
    pub fn open(directory: &Path) -> Result<Reader, StoreError> {
        let marker = directory.join(MARKER);
        let text = std::fs::read_to_string(&marker).map_err(StoreError::disk(&marker))?;
        check_marker(&marker, &text)?;
        Ok(Reader {
            directory: directory.to_owned(),
            skipped: Vec::new(),
        })
    }

    /// What could not be read until now.
    pub fn skipped(&self) -> &[SkippedBytes] {
        &self.skipped
    }

    /// Hands each row of a window to `take`, in the order in which they were appended within a day. Of a row only these
    /// columns are filled (`at` always); of an empty list, all.
    ///
    /// # Panics
    ///
    /// On a name that no column has: what is read would be taken for unknown.
    pub fn each<R: Row>(
        &mut self,
        window: TimeWindow,
        columns: &[&str],
        mut take: impl FnMut(&R),
    ) -> Result<(), StoreError> {
        for name in columns {
            let mut known = R::COLUMNS.iter();
            assert!(
                known.any(|column| column.name == *name),
                "no column is called {name}"
            );
        }
        let kept = unfinished::lengths_before(&self.directory)?.unwrap_or_default();
        for file in segment::files(&self.directory)? {
            let is_inside = (day_of(window.from)..=day_of(window.to)).contains(&file.day);
            if file.family == R::FAMILY && is_inside {
                let name = file.path.file_name().and_then(|name| name.to_str());
                let read = FileRead {
                    path: &file.path,
                    bytes_max: name.and_then(|name| kept.get(name)).copied(),
                    window,
                    columns,
                };
                self.each_of_file(read, &mut take)?;
            }
        }
        Ok(())
    }

    /// Hands each row of every family to `take`, whole.
    pub fn each_of_all(
        &mut self,
        window: TimeWindow,
        mut take: impl FnMut(Observation),
    ) -> Result<(), StoreError> {
        for family in Family::ALL {
            match family {
                Family::Attempt => {
                    self.each::<Attempt>(window, &[], |row| take(row.clone().into()))?;
                }
                Family::Sample => {
                    self.each::<Sample>(window, &[], |row| take(row.clone().into()))?;
                }
                Family::Change => {
                    self.each::<Change>(window, &[], |row| take(row.clone().into()))?;
                }
                Family::Incident => {
                    self.each::<Incident>(window, &[], |row| take(row.clone().into()))?;
                }
                Family::NamespaceChange => {
                    self.each::<NamespaceChange>(window, &[], |row| take(row.clone().into()))?;
                }
            }
        }
        Ok(())
    }

    fn each_of_file<R: Row>(
        &mut self,
        read: FileRead<'_>,
        take: &mut impl FnMut(&R),
    ) -> Result<(), StoreError> {
        let FileRead {
            path,
            bytes_max,
            window,
            columns,
        } = read;
        let mut file = match File::open(path) {
            Ok(file) => file,
            // Retention has removed it.
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(why) => return Err(StoreError::disk(path)(why)),
        };
        let size = file.metadata().map_err(StoreError::disk(path))?.len();
        let size = bytes_max.map_or(size, |max| size.min(max));
        if size < HEAD_BYTES {
            return Ok(());
        }
        if !segment::check_head(&mut file, path, R::FAMILY)? {
            self.skip(path, size);
            return Ok(());
        }
        let mut at = HEAD_BYTES;
        let mut block = Vec::new();
        while let Some(head) = FrameHead::read(&mut file).map_err(StoreError::disk(path))? {
            let end = at + FRAME_HEAD_BYTES as u64 + u64::from(head.block_bytes);
            if end > size {
                break;
            }
            if head.last < window.from || head.first > window.to {
                file.seek(SeekFrom::Start(end))
                    .map_err(StoreError::disk(path))?;
            } else {
                block.resize(head.block_bytes as usize, 0);
                file.read_exact(&mut block)
                    .map_err(StoreError::disk(path))?;
                let is_read = head.fits(&block)
                    && each_of_block(&block, head.rows, window, columns, take).is_ok();
                if !is_read {
                    self.skip(path, end - at);
                }
            }
            at = end;
        }
        if at < size {
            self.skip(path, size - at);
        }
        Ok(())
    }

    fn skip(&mut self, path: &Path, bytes: u64) {
        self.skipped.push(SkippedBytes {
            path: path.to_owned(),
            bytes: Bytes(bytes),
        });
    }
}

pub(super) fn each_of_block<R: Row>(
    block: &[u8],
    rows: u32,
    window: TimeWindow,
    names: &[&str],
    take: &mut impl FnMut(&R),
) -> Result<(), block::DamagedBlock> {
    let decoded = block::decode(block, rows, R::COLUMNS, |place| {
        place == 0 || names.is_empty() || names.contains(&R::COLUMNS[place].name)
    })?;
    let mut row = R::default();
    let each = columns::each_row(&decoded, rows, &mut row, |row| {
        if window.has(row.at()) {
            take(row);
        }
    });
    each.map_err(|_| block::DamagedBlock)
}
