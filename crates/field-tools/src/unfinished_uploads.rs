//! Where uploads go on that an earlier run of a command began: one small file for each, in a directory of the user.
//!
//! The bytes are at the storage element, which knows how many it has. What is kept here is its name of the upload, which
//! file it was begun with, and which file it may replace: when one of these has changed, the upload is begun anew.

use crate::local_place::FileVersion;
use crate::notes::Notes;
use crate::replaceable::Replaceable;
use penstock_model::url::redact;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use url::Url;

/// Of the stored form.
const VERSION: u32 = 4;

/// The notes of one user.
#[derive(Debug, Clone)]
pub struct UnfinishedUploads {
    notes: Notes,
}

/// A local file as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceState {
    path: PathBuf,
    version: FileVersion,
}

impl SourceState {
    /// Of what was opened or found at a path.
    pub fn of(path: &Path, version: FileVersion) -> SourceState {
        SourceState {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            version,
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
    changed_nanos: i64,
    inode: u64,
    destination: String,
    /// What the server was told of a file of this name.
    replaceable: Replaceable<String>,
    upload: Url,
}

/// An upload that an earlier run has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedUpload {
    pub url: Url,
    /// What it may take the place of by its end.
    pub replaceable: Replaceable<String>,
}

impl UnfinishedUploads {
    /// Notes below the directory of a user's state. Old ones are removed.
    pub fn open(state: &Path) -> io::Result<UnfinishedUploads> {
        Notes::open(state, "uploads").map(|notes| UnfinishedUploads { notes })
    }

    /// The upload that this file, as it is now, was begun with. It is at the server of the destination.
    pub fn find(&self, source: &SourceState, destination: &Url) -> Option<UnfinishedUpload> {
        let note: Note = self.notes.read(&key(source, destination))?;
        let now = &source.version;
        let is_same = note.version == VERSION
            && note.size_bytes == now.size
            && note.modified_nanos == now.modified_nanos
            && note.changed_nanos == now.changed_nanos
            && note.inode == now.inode;
        let is_there = note.upload.origin() == destination.origin();
        (is_same && is_there).then_some(UnfinishedUpload {
            url: note.upload,
            replaceable: note.replaceable,
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
            size_bytes: source.version.size,
            modified_nanos: source.version.modified_nanos,
            changed_nanos: source.version.changed_nanos,
            inode: source.version.inode,
            destination: redact(destination.as_str()),
            replaceable: upload.replaceable.clone(),
            upload: upload.url.clone(),
        };
        self.notes.write(&key(source, destination), &note)
    }

    /// It has ended, or is not known any more.
    pub fn forget(&self, source: &SourceState, destination: &Url) {
        self.notes.remove(&key(source, destination));
    }
}

fn key(source: &SourceState, destination: &Url) -> Vec<u8> {
    let mut bytes = source.path.as_os_str().as_bytes().to_vec();
    bytes.push(0);
    bytes.extend_from_slice(redact(destination.as_str()).as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_upload_is_found_again_until_its_file_has_changed() {
        let directory = tempfile::tempdir().expect("made");
        let notes = UnfinishedUploads::open(&directory.path().join("a")).expect("made");
        let path = directory.path().join("file");
        fs::write(&path, b"content").expect("written");
        let state = || {
            let metadata = fs::metadata(&path).expect("there");
            SourceState::of(&path, FileVersion::of(&metadata))
        };
        let url = |text: &str| Url::parse(text).expect("a URL");
        let destination = url("https://se:8443/d/f?authz=secret");
        let upload = UnfinishedUpload {
            url: url("https://se:8443/.penstock/uploads/1"),
            replaceable: Replaceable::Nothing,
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
        // A file that keeps its times as users can set them has changed all the same.
        notes.keep(&state(), &destination, &upload).expect("kept");
        let before = state().version;
        let modified = fs::metadata(&path).and_then(|found| found.modified());
        let modified = modified.expect("known");
        // The clock of a file system may tick a hundred times a second only.
        while state().version.changed_nanos == before.changed_nanos {
            fs::write(&path, b"CONTENTS").expect("written");
            let file = fs::File::options().write(true).open(&path).expect("open");
            file.set_modified(modified).expect("set");
        }
        let now = state().version;
        assert_eq!(
            (now.size, now.modified_nanos),
            (before.size, before.modified_nanos)
        );
        assert_eq!(notes.find(&state(), &destination), None);
        let replacing = UnfinishedUpload {
            replaceable: Replaceable::Version("\"7\"".to_owned()),
            ..upload
        };
        notes
            .keep(&state(), &destination, &replacing)
            .expect("kept");
        assert_eq!(notes.find(&state(), &destination), Some(replacing));
        // A note that leads to another server is none.
        let elsewhere = UnfinishedUpload {
            url: url("https://evil:8443/.penstock/uploads/1"),
            replaceable: Replaceable::Anything,
        };
        notes
            .keep(&state(), &destination, &elsewhere)
            .expect("kept");
        assert_eq!(notes.find(&state(), &destination), None);
        let kept = fs::read_dir(directory.path().join("a/penstock/uploads")).expect("there");
        for entry in kept {
            let text = fs::read_to_string(entry.expect("an entry").path()).expect("read");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
