//! Parts of downloads: files beside their places that an earlier run of a command may have begun.
//!
//! A part is known by a note in a directory of the user, never by what stands beside it: anybody who may write in a shared
//! directory, or in a tree that somebody copies, can make files with the names of parts.

use crate::local_place::{FileVersion, LocalPlace};
use crate::notes::{Notes, short_name};
use penstock_model::Bytes;
use penstock_model::url::redact;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;
use url::Url;

/// Of the stored form.
const VERSION: u32 = 1;
const PART_PREFIX: &str = ".penstock-";

/// The notes of one user.
#[derive(Debug, Clone)]
pub struct UnfinishedDownloads {
    notes: Notes,
}

/// The version of a file that a part is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// A strong one. Without it only the run that has written the part knows what it is of.
    pub(crate) etag: Option<String>,
    pub(crate) size: Bytes,
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: u32,
    /// For people; the name of the note is made of its bytes.
    destination: String,
    /// Of the part. A file that another user has made there is another one.
    inode: u64,
    source: String,
    etag: String,
    size_bytes: Bytes,
}

impl UnfinishedDownloads {
    /// Notes below the directory of a user's state. Old ones are removed.
    pub fn open(state: &Path) -> io::Result<UnfinishedDownloads> {
        Notes::open(state, "downloads").map(|notes| UnfinishedDownloads { notes })
    }

    /// What a part is of, when it was begun with this source.
    pub(crate) fn find(
        &self,
        place: &LocalPlace,
        part: &FileVersion,
        source: &Url,
    ) -> Option<Origin> {
        let note: Note = self.notes.read(&key(place))?;
        let is_of_it = note.version == VERSION
            && note.inode == part.inode
            && note.source == redact(source.as_str())
            && part.size <= note.size_bytes.0;
        is_of_it.then_some(Origin {
            etag: Some(note.etag),
            size: note.size_bytes,
        })
    }

    /// Notes a part before its first byte is written. Gives back whether another run can go on with it.
    pub(crate) fn keep(
        &self,
        place: &LocalPlace,
        part: &FileVersion,
        source: &Url,
        origin: &Origin,
    ) -> io::Result<bool> {
        let Some(etag) = origin.etag.clone() else {
            return Ok(false);
        };
        let note = Note {
            version: VERSION,
            destination: place.path().display().to_string(),
            inode: part.inode,
            source: redact(source.as_str()),
            etag,
            size_bytes: origin.size,
        };
        self.notes.write(&key(place), &note).map(|()| true)
    }

    /// The part has ended, or is of no use. The note of another part stays.
    pub(crate) fn forget(&self, place: &LocalPlace, part: &FileVersion) {
        let note = self.notes.read::<Note>(&key(place));
        if note.is_some_and(|note| note.inode == part.inode) {
            self.notes.remove(&key(place));
        }
    }
}

fn key(place: &LocalPlace) -> Vec<u8> {
    let path = std::path::absolute(place.path());
    let path = path.unwrap_or_else(|_| place.path().to_owned());
    path.as_os_str().as_bytes().to_vec()
}

/// The name of the part of a file. That of the file may be as long as names can be, so it cannot be in it.
pub(crate) fn part_name(name: &OsStr) -> String {
    format!("{PART_PREFIX}{}.part", short_name(name.as_bytes()))
}

/// A name for a part of a file that no other command uses.
pub(crate) fn private_part_name(name: &OsStr) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut bytes = name.as_bytes().to_vec();
    bytes.extend(std::process::id().to_le_bytes());
    bytes.extend(now.unwrap_or_default().as_nanos().to_le_bytes());
    format!("{PART_PREFIX}{}.part", short_name(&bytes))
}

/// Whether a file of that name would be taken for a part, or for the note that was once beside it. Such files belong to no
/// tree that is copied.
pub fn is_part_name(name: &str) -> bool {
    // There are file systems that do not tell capitals from small letters.
    let name = name.to_ascii_lowercase();
    name.starts_with(PART_PREFIX) && (name.ends_with(".part") || name.ends_with(".json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_part_is_known_by_its_note_and_by_nothing_beside_it() {
        let directory = tempfile::tempdir().expect("made");
        let at = |name: &str| directory.path().join(name);
        let notes = UnfinishedDownloads::open(&at("state")).expect("made");
        let place = LocalPlace::at(&at("f")).expect("a name");
        let url = |text: &str| Url::parse(text).expect("a URL");
        let (source, other) = (url("https://se/f?authz=secret"), url("https://se/g"));
        for name in ["part", "forged"] {
            fs::write(at(name), b"12345").expect("written");
        }
        let version = |name: &str| FileVersion::of(&fs::metadata(at(name)).expect("there"));
        let (part, forged) = (version("part"), version("forged"));
        let origin = |etag: Option<&str>, size| Origin {
            etag: etag.map(str::to_owned),
            size: Bytes(size),
        };
        let strong = origin(Some("\"1\""), 10);

        let kept = notes.keep(&place, &part, &source, &origin(None, 10));
        assert!(!kept.expect("nothing failed"));
        assert_eq!(notes.find(&place, &part, &source), None);
        assert!(notes.keep(&place, &part, &source, &strong).expect("kept"));
        assert_eq!(notes.find(&place, &part, &source).as_ref(), Some(&strong));
        assert_eq!(notes.find(&place, &part, &other), None);
        assert_eq!(notes.find(&place, &forged, &source), None);
        let longer = FileVersion { size: 11, ..part };
        assert_eq!(notes.find(&place, &longer, &source), None);
        for note in fs::read_dir(at("state/penstock/downloads")).expect("there") {
            let text = fs::read_to_string(note.expect("an entry").path()).expect("read");
            assert!(!text.contains("secret"), "{text}");
        }
        notes.forget(&place, &forged);
        assert!(notes.find(&place, &part, &source).is_some());
        notes.forget(&place, &part);
        assert_eq!(notes.find(&place, &part, &source), None);
    }

    #[test]
    fn names_of_parts_are_known_also_where_capitals_do_not_count() {
        for name in [
            part_name("f".as_ref()).as_str(),
            ".penstock-0.json",
            ".Penstock-0.PART",
        ] {
            assert!(is_part_name(name), "{name}");
        }
        for name in ["f.part", ".penstock-x", "penstock-0.part"] {
            assert!(!is_part_name(name), "{name}");
        }
    }
}
