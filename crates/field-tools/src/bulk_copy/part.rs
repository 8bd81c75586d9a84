//! A file that is being written beside its place. Of a large one it is noted where it comes from, so that another run can go
//! on with it, however this one ends.

use super::KEPT_FROM_BYTES;
use crate::unfinished_uploads::short_name;
use penstock_model::Bytes;
use penstock_model::url::redact;
use penstock_protocol::checksum::Hasher;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use url::Url;

/// Of the stored form.
const VERSION: u32 = 1;
const NOTE_BYTES_MAX: u64 = 64 << 10;
const BLOCK_BYTES: usize = 1 << 20;

/// What a part is a part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    version: u32,
    source: String,
    /// A strong one.
    pub(super) etag: Option<String>,
    pub(super) size: Bytes,
}

impl Origin {
    pub(super) fn new(source: &Url, etag: Option<String>, size: Bytes) -> Origin {
        Origin {
            version: VERSION,
            source: redact(source.as_str()),
            etag,
            size,
        }
    }
}

/// A file that is being written. Dropped before it is put in place it is removed, unless it is kept for another run.
pub(super) struct Part {
    pub(super) file: File,
    pub(super) path: PathBuf,
    note: PathBuf,
    is_kept: bool,
}

impl Part {
    /// The part of a destination, which this process alone writes. Errors: another one does.
    pub(super) fn open(destination: &Path) -> io::Result<Part> {
        let directory = match destination.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        fs::create_dir_all(directory)?;
        // The name of the destination may be as long as names can be, so it cannot be part of this one.
        let name = destination.file_name().unwrap_or_default();
        let name = short_name(name.as_bytes());
        let path = directory.join(format!(".penstock-{name}.part"));
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other(
                    "another command is writing this file; wait until it has finished",
                ));
            }
            // A file system without locks.
            Err(TryLockError::Error(why)) => tracing::debug!(%why, "a part is not locked"),
        }
        Ok(Part {
            file,
            path,
            note: directory.join(format!(".penstock-{name}.json")),
            is_kept: false,
        })
    }

    /// What it is a part of, and how many bytes of that are here; `None` when it is not known to be a part of this source.
    pub(super) fn origin(&self, source: &Url) -> Option<(Origin, u64)> {
        let mut text = String::new();
        let note = File::open(&self.note).ok()?;
        note.take(NOTE_BYTES_MAX).read_to_string(&mut text).ok()?;
        let origin: Origin = serde_json::from_str(&text).ok()?;
        let length = self.file.metadata().ok()?.len();
        let is_part = origin.version == VERSION
            && origin.source == redact(source.as_str())
            && length <= origin.size.0;
        (is_part && length > 0).then_some((origin, length))
    }

    /// Begins anew with bytes of an origin. A small file, or one that could not go on, is not kept.
    pub(super) fn begin(&mut self, origin: Option<&Origin>) -> io::Result<()> {
        self.discard();
        self.file.set_len(0)?;
        self.file.rewind()?;
        if let Some(origin) = origin.filter(|origin| origin.size.0 >= KEPT_FROM_BYTES) {
            let text = serde_json::to_string_pretty(origin).map_err(io::Error::other)?;
            fs::write(&self.note, text)?;
            self.is_kept = true;
        }
        Ok(())
    }

    /// Goes on behind what is here, which the hasher is given.
    pub(super) fn go_on(&mut self, length: u64, hasher: &mut Hasher) -> io::Result<()> {
        self.is_kept = true;
        self.file.rewind()?;
        let mut block = vec![0; BLOCK_BYTES];
        let mut left = length;
        while left > 0 {
            let wanted = usize::try_from(left).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
            self.file.read_exact(&mut block[..wanted])?;
            hasher.update(&block[..wanted]);
            left -= wanted as u64;
        }
        self.file.seek(SeekFrom::Start(length)).map(drop)
    }

    /// Whether what is here stays when it is dropped.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// What is here is of no use.
    pub(super) fn discard(&mut self) {
        self.is_kept = false;
        let _ = fs::remove_file(&self.note);
    }

    /// Durable first, then visible.
    pub(super) fn put_in_place(mut self, destination: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, destination)?;
        self.discard();
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let is_empty = || self.file.metadata().is_ok_and(|found| found.len() == 0);
        if !self.is_kept || is_empty() {
            let _ = fs::remove_file(&self.note);
            // After the rename there is nothing left to remove.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Checksum, ChecksumAlgorithm};
    use std::io::Write;

    fn names(directory: &Path) -> usize {
        fs::read_dir(directory).expect("there").count()
    }

    fn adler(bytes: &[u8]) -> Checksum {
        let mut hasher = Hasher::new(&[ChecksumAlgorithm::Adler32]);
        hasher.update(bytes);
        hasher.finish().swap_remove(0)
    }

    #[test]
    fn a_large_part_is_gone_on_with_and_a_small_one_is_removed() {
        let directory = tempfile::tempdir().expect("made");
        let destination = directory.path().join("x".repeat(255));
        let url = |text: &str| Url::parse(text).expect("a URL");
        let source = url("https://se/f?authz=secret");
        let etag = Some("\"1\"".to_owned());
        let small = Origin::new(&source, etag.clone(), Bytes(10));
        let large = Origin::new(&source, etag, Bytes(KEPT_FROM_BYTES));

        let mut part = Part::open(&destination).expect("opened");
        part.begin(Some(&small)).expect("begun");
        part.file.write_all(b"12345").expect("written");
        drop(part);
        assert_eq!(names(directory.path()), 0);

        let mut part = Part::open(&destination).expect("opened");
        assert_eq!(part.origin(&source), None);
        assert!(Part::open(&destination).is_err(), "another one has it");
        part.begin(Some(&large)).expect("begun");
        part.file.write_all(b"12345").expect("written");
        drop(part);
        assert_eq!(names(directory.path()), 2);

        let mut part = Part::open(&destination).expect("opened");
        assert_eq!(part.origin(&url("https://se/g")), None);
        assert_eq!(part.origin(&source), Some((large, 5)));
        let mut hasher = Hasher::new(&[ChecksumAlgorithm::Adler32]);
        part.go_on(5, &mut hasher).expect("read");
        assert_eq!(hasher.finish().swap_remove(0), adler(b"12345"));
        part.file.write_all(b"67").expect("written");
        part.put_in_place(&destination).expect("in place");
        assert_eq!(fs::read(&destination).expect("there"), b"1234567");
        assert_eq!(names(directory.path()), 1);
    }

    #[test]
    fn what_is_begun_anew_is_no_part_of_what_was_before() {
        let directory = tempfile::tempdir().expect("made");
        let destination = directory.path().join("f");
        let source = Url::parse("https://se/f").expect("a URL");
        let large = Origin::new(&source, None, Bytes(KEPT_FROM_BYTES));
        let mut part = Part::open(&destination).expect("opened");
        part.begin(Some(&large)).expect("begun");
        part.file.write_all(b"12345").expect("written");
        part.begin(None).expect("begun");
        assert!(part.origin(&source).is_none());
        part.file.write_all(b"ab").expect("written");
        part.put_in_place(&destination).expect("in place");
        assert_eq!(fs::read(&destination).expect("there"), b"ab");
    }
}
