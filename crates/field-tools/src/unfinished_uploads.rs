//! Where uploads go on that an earlier run of a command began: one small file for each, in a directory of the user.
//!
//! The bytes are at the storage element, which knows how many it has. What is kept here is its name of the upload, which
//! file it was begun with, and whether it may replace another: when one of these has changed, the upload is begun anew.

use crate::remote::Occupied;
use penstock_model::Checksum;
use penstock_model::ChecksumAlgorithm;
use penstock_model::url::redact;
use penstock_protocol::checksum::Hasher;
use serde::{Deserialize, Serialize};
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use url::Url;

/// Of the stored form.
const VERSION: u32 = 2;
/// Storage elements keep what is unfinished for a day; some may for longer.
const KEPT_FOR: Duration = Duration::from_secs(8 * 86_400);
/// Notes that are looked at to remove old ones.
const LOOKED_AT_MAX: usize = 10_000;
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// The notes of one user.
#[derive(Debug, Clone)]
pub struct UnfinishedUploads {
    directory: PathBuf,
}

/// A local file as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceState {
    path: PathBuf,
    size: u64,
    modified_nanos: i64,
    inode: u64,
}

impl SourceState {
    /// Of what was opened or found at a path.
    pub fn of(path: &Path, metadata: &Metadata) -> SourceState {
        SourceState {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            size: metadata.len(),
            modified_nanos: metadata
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add(metadata.mtime_nsec()),
            inode: metadata.ino(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: u32,
    /// For people; the name of the file is made of its bytes.
    source: String,
    size_bytes: u64,
    modified_nanos: i64,
    inode: u64,
    destination: String,
    /// The server was told that a file of this name may be replaced.
    replaces: bool,
    upload: Url,
}

/// An upload that an earlier run has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedUpload {
    pub url: Url,
    /// What it may do to a file that has its name by its end.
    pub occupied: Occupied,
}

impl UnfinishedUploads {
    /// Notes in a directory, which is made where it is missing, and from which old ones are removed.
    pub fn open(directory: PathBuf) -> io::Result<UnfinishedUploads> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        let now = SystemTime::now();
        for entry in fs::read_dir(&directory)?.take(LOOKED_AT_MAX).flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|at| now.duration_since(at).ok());
            if age.is_some_and(|age| age > KEPT_FOR) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(UnfinishedUploads { directory })
    }

    /// The upload that this file, as it is now, was begun with. It is at the server of the destination.
    pub fn find(&self, source: &SourceState, destination: &Url) -> Option<UnfinishedUpload> {
        let path = self.place(source, destination);
        let mut text = String::new();
        let file = fs::File::open(&path).ok()?;
        file.take(NOTE_BYTES_MAX).read_to_string(&mut text).ok()?;
        let note: Note = serde_json::from_str(&text).ok()?;
        let is_same = note.version == VERSION
            && note.size_bytes == source.size
            && note.modified_nanos == source.modified_nanos
            && note.inode == source.inode;
        let is_there = note.upload.origin() == destination.origin();
        (is_same && is_there).then_some(UnfinishedUpload {
            url: note.upload,
            occupied: match note.replaces {
                true => Occupied::Replaced,
                false => Occupied::Refused,
            },
        })
    }

    /// Notes an upload before its first byte is sent.
    pub fn keep(
        &self,
        source: &SourceState,
        destination: &Url,
        upload: &UnfinishedUpload,
    ) -> io::Result<()> {
        let note = Note {
            version: VERSION,
            source: source.path.display().to_string(),
            size_bytes: source.size,
            modified_nanos: source.modified_nanos,
            inode: source.inode,
            destination: redact(destination.as_str()),
            replaces: upload.occupied == Occupied::Replaced,
            upload: upload.url.clone(),
        };
        let text = serde_json::to_string_pretty(&note).map_err(io::Error::other)?;
        let path = self.place(source, destination);
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&beside, &path)
    }

    /// It has ended, or is not known any more.
    pub fn forget(&self, source: &SourceState, destination: &Url) {
        let _ = fs::remove_file(self.place(source, destination));
    }

    fn place(&self, source: &SourceState, destination: &Url) -> PathBuf {
        let mut bytes = source.path.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        bytes.extend_from_slice(redact(destination.as_str()).as_bytes());
        self.directory
            .join(short_name(&bytes))
            .with_extension("json")
    }
}

/// 32 hexadecimal digits that no other bytes have.
pub(crate) fn short_name(bytes: &[u8]) -> String {
    let mut hasher = Hasher::new(&[ChecksumAlgorithm::Sha256]);
    hasher.update(bytes);
    let sums = hasher.finish();
    let digits = sums.first().map(Checksum::hex).unwrap_or_default();
    digits.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_found_again_until_its_file_has_changed() {
        let directory = tempfile::tempdir().expect("made");
        let notes = UnfinishedUploads::open(directory.path().join("a/uploads")).expect("made");
        let path = directory.path().join("file");
        fs::write(&path, b"content").expect("written");
        let state = || SourceState::of(&path, &fs::metadata(&path).expect("there"));
        let url = |text: &str| Url::parse(text).expect("a URL");
        let destination = url("https://se:8443/d/f?authz=secret");
        let upload = UnfinishedUpload {
            url: url("https://se:8443/.penstock/uploads/1"),
            occupied: Occupied::Refused,
        };
        assert_eq!(notes.find(&state(), &destination), None);
        notes.keep(&state(), &destination, &upload).expect("kept");
        assert_eq!(notes.find(&state(), &destination), Some(upload.clone()));
        assert_eq!(notes.find(&state(), &url("https://se:8443/d/g")), None);

        fs::write(&path, b"contents").expect("written");
        assert_eq!(notes.find(&state(), &destination), None);
        notes.keep(&state(), &destination, &upload).expect("kept");
        notes.forget(&state(), &destination);
        assert_eq!(notes.find(&state(), &destination), None);
        let replacing = UnfinishedUpload {
            occupied: Occupied::Replaced,
            ..upload
        };
        notes
            .keep(&state(), &destination, &replacing)
            .expect("kept");
        assert_eq!(notes.find(&state(), &destination), Some(replacing));
        // A note that leads to another server is none.
        let elsewhere = UnfinishedUpload {
            url: url("https://evil:8443/.penstock/uploads/1"),
            occupied: Occupied::Replaced,
        };
        notes
            .keep(&state(), &destination, &elsewhere)
            .expect("kept");
        assert_eq!(notes.find(&state(), &destination), None);
        let kept = fs::read_dir(directory.path().join("a/uploads")).expect("there");
        for entry in kept {
            let text = fs::read_to_string(entry.expect("an entry").path()).expect("read");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
