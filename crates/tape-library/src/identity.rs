//! `library.json`: which library a directory holds, whose it is, and which cartridges were made in it. A directory in which it is
//! missing is a new library, or the mount point of one that is not mounted: whoever opens it says what he knows of it, and a
//! cartridge that was made once is never made anew. While a library is open, its directory is compared with what was opened before
//! anything is mounted, synced or relabeled.

use crate::cartridge_file;
use penstock_durable_file::replace_private;
use penstock_tape::request::{DriveName, LibraryId, LibraryName, TapeName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// What whoever opens a library knows of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownLibrary {
    /// Whose library it is.
    pub owner: String,
    /// Which one it was when it was opened last. `None`: it was not, or nobody knows any more.
    pub id: Option<LibraryId>,
    /// Whether files lie on its tapes.
    pub has_files: bool,
    /// Tapes that something was written to.
    pub written: BTreeSet<TapeName>,
    /// Which tape is in which drive; any other one that is found in a drive is put back into its slot. `None`: nobody knows, and
    /// all stay where they are.
    pub in_drives: Option<BTreeMap<DriveName, TapeName>>,
}

/// Why a directory is not the library that is looked for. Nothing was changed in it.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(
        "it has no library.json, but library '{}' was set up before, and what was written to its tapes is to be there. Nothing was \
         changed. If the directory is on a disk that is not mounted, mount it; if it was moved, correct `directory`. If its data \
         is lost for good, configure a library with another name and directory: files that had their only copy in this one \
         cannot be brought any more",
        .library.0
    )]
    Missing { library: LibraryName },
    #[error(
        "its library.json says that it is library '{}' with the id {found_id}, and not library '{}' with the id {known_id}. \
         Nothing was changed. Mount the right disk there, or correct `directory`",
        .found.0, .library.0
    )]
    Other {
        library: LibraryName,
        known_id: String,
        found: LibraryName,
        found_id: String,
    },
    #[error(
        "its library.json says that it belongs to another storage element ({found}, and not {ours}). Nothing was changed. Correct \
         `directory`; only if all that lies there is worthless, remove it"
    )]
    Foreign { found: String, ours: String },
    #[error(
        "it has library.json of library '{}', but none of its cartridges. Nothing was changed. Mount the right disk there, or bring \
         the cartridges back. If all of them are lost for good, configure a library with another name and directory: files that \
         had their only copy in this one cannot be brought any more",
        .library.0
    )]
    Empty { library: LibraryName },
    #[error(
        "its library.json is not the one that was written when library '{}' was opened: it is a copy from another time, or another \
         service has opened the library since. Nothing was changed. Mount the right disk there, or end the other service",
        .library.0
    )]
    Copy { library: LibraryName },
    #[error("library.json is of version {0}, which is newer than this program")]
    Newer(u32),
    #[error("{0}")]
    Unreadable(#[from] io::Error),
}

/// What `library.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LibraryIdentity {
    version: u32,
    pub(crate) id: LibraryId,
    library: LibraryName,
    owner: String,
    /// Those that were made: one of them that is not there is lost.
    cartridges: BTreeSet<TapeName>,
    /// Another one each time the library is opened: an older copy of the directory, as one that was left below a mount point, has
    /// the id of the library and not this. `None`: opened by an earlier version only.
    #[serde(default)]
    opening: Option<Box<str>>,
}

const VERSION: u32 = 1;

fn path_in(directory: &Path) -> PathBuf {
    directory.join("library.json")
}

impl LibraryIdentity {
    /// What a directory says, and what it is to say from now on. Nothing is written.
    ///
    /// A directory with cartridges and without `library.json` was made by an earlier version: it is taken as it is, unless the
    /// library is known to have had an id.
    pub(crate) fn find(
        directory: &Path,
        library: &LibraryName,
        known: &KnownLibrary,
    ) -> Result<LibraryIdentity, IdentityError> {
        let text = match std::fs::read(path_in(directory)) {
            Err(why) if why.kind() == ErrorKind::NotFound => {
                return LibraryIdentity::begin(directory, library, known);
            }
            read => read?,
        };
        let damaged = |why: serde_json::Error| {
            io::Error::other(format!("library.json cannot be understood: {why}"))
        };
        let found: LibraryIdentity = serde_json::from_slice(&text).map_err(damaged)?;
        if found.version > VERSION {
            return Err(IdentityError::Newer(found.version));
        }
        if found.owner != known.owner {
            let ours = known.owner.clone();
            let found = found.owner;
            return Err(IdentityError::Foreign { found, ours });
        }
        let is_other = known.id.as_ref().is_some_and(|id| *id != found.id);
        if is_other || found.library != *library {
            let known_id = known.id.as_ref();
            let other = IdentityError::Other {
                library: library.clone(),
                known_id: known_id.map_or("unknown", |id| &*id.0).to_owned(),
                found: found.library,
                found_id: found.id.0.to_string(),
            };
            return Err(other);
        }
        let is_there = |tape| cartridge_file::path_in(directory, tape).exists();
        if !found.cartridges.is_empty() && !found.cartridges.iter().any(is_there) {
            let library = library.clone();
            return Err(IdentityError::Empty { library });
        }
        Ok(found)
    }

    /// Whether a directory still is the one that was opened. It may have become another one, as when a disk is mounted there or no
    /// longer is.
    pub(crate) fn check(&self, directory: &Path) -> Result<(), IdentityError> {
        let known = KnownLibrary {
            owner: self.owner.clone(),
            id: Some(self.id.clone()),
            ..KnownLibrary::default()
        };
        let found = LibraryIdentity::find(directory, &self.library, &known)?;
        match found.opening == self.opening {
            true => Ok(()),
            false => Err(IdentityError::Copy {
                library: self.library.clone(),
            }),
        }
    }

    fn begin(
        directory: &Path,
        library: &LibraryName,
        known: &KnownLibrary,
    ) -> Result<LibraryIdentity, IdentityError> {
        let found = cartridges_in(directory)?;
        let is_expected = known.has_files || !known.written.is_empty();
        if known.id.is_some() || (is_expected && found.is_empty()) {
            let library = library.clone();
            return Err(IdentityError::Missing { library });
        }
        Ok(LibraryIdentity {
            version: VERSION,
            id: LibraryId(Uuid::new_v4().to_string().into()),
            library: library.clone(),
            owner: known.owner.clone(),
            cartridges: found.union(&known.written).cloned().collect(),
            opening: None,
        })
    }

    /// Whether a cartridge was made before.
    pub(crate) fn has_made(&self, tape: &TapeName) -> bool {
        self.cartridges.contains(tape)
    }

    /// Keeps that all these have been made, and that the library is opened now.
    pub(crate) fn keep(
        &mut self,
        directory: &Path,
        tapes: impl Iterator<Item = TapeName>,
    ) -> io::Result<()> {
        self.cartridges.extend(tapes);
        let opening = Uuid::new_v4().to_string();
        let before = self.opening.replace(opening.into());
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let Err(why) = replace_private(&path_in(directory), &text) else {
            return Ok(());
        };
        // A full disk takes no library out of use: what lies there is enough when it says all the rest.
        self.opening = before;
        let kept = std::fs::read(path_in(directory)).unwrap_or_default();
        let kept: Option<LibraryIdentity> = serde_json::from_slice(&kept).ok();
        match kept.as_ref() == Some(self) {
            true => Ok(()),
            false => Err(why),
        }
    }
}

/// Cartridges that lie in a directory.
fn cartridges_in(directory: &Path) -> io::Result<BTreeSet<TapeName>> {
    let entries = match std::fs::read_dir(directory.join("cartridges")) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut found = BTreeSet::new();
    for entry in entries {
        let name = entry?.file_name();
        let tape = name.to_str().and_then(|name| name.strip_suffix(".tape"));
        found.extend(tape.map(|tape| TapeName(tape.into())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_opened_on_a_full_disk_unless_there_are_new_cartridges() {
        let home = tempfile::tempdir().expect("made");
        let (name, known) = (LibraryName("library".into()), KnownLibrary::default());
        let tape = |number: u32| TapeName(format!("A{number:05}").into());
        let open = || LibraryIdentity::find(home.path(), &name, &known).expect("found");
        std::fs::create_dir(home.path().join("cartridges")).expect("made");
        let path = cartridge_file::path_in(home.path(), &tape(1));
        cartridge_file::make(&path, &tape(1)).expect("made");
        let mut first = open();
        first
            .keep(home.path(), [tape(1)].into_iter())
            .expect("kept");
        first.check(home.path()).expect("the same");
        let mut second = open();
        second
            .keep(home.path(), [tape(1)].into_iter())
            .expect("kept");
        second.check(home.path()).expect("the same");
        let told = first.check(home.path());
        assert!(matches!(told, Err(IdentityError::Copy { .. })), "{told:?}");
        // A directory in the way of the file.
        std::fs::create_dir(home.path().join("library.json.new")).expect("made");
        let mut third = open();
        third
            .keep(home.path(), [tape(1)].into_iter())
            .expect("kept");
        third.check(home.path()).expect("the same");
        let mut fourth = open();
        let two = [tape(1), tape(2)].into_iter();
        fourth.keep(home.path(), two).expect_err("not written");
    }
}
