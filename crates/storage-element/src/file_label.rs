//! The label of a file's data: an extended attribute by which the data tells what it is, so that a namespace can be made again
//! from its pools, and data without an entry finds its place.

use crate::uncommitted_file::UncommittedFile;
use penstock_model::{Archival, Bytes, Checksum, NamespacePath, Timestamp, UserName};
use penstock_persistence::namespace::{EntryId, FoundLabel, NewFile};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::Path;

/// The version of [`Label`] that is written. In the first one there is no directory.
pub(crate) const LABEL_VERSION: u32 = 2;
/// The extended attribute that describes a file.
const LABEL_NAME: &str = "user.penstock";
/// The longest label that any file system keeps.
const LABEL_BYTES_MAX: usize = 64 << 10;

/// What a file's extended attribute says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub version: u32,
    /// The file's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<EntryId>,
    /// The directory that was to hold it. A later MOVE of the directory changes nothing of that; one of the file is in the
    /// directory log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<EntryId>,
    /// Where it was written to; its last name is the file's name. The root: too long for the file system to keep.
    pub path: NamespacePath,
    pub size: Bytes,
    pub checksums: Vec<Checksum>,
    pub owner: Option<UserName>,
    pub created: Timestamp,
    /// Whether it was to go to tape when it was written.
    #[serde(default, skip_serializing_if = "is_disk_only")]
    pub archival: Archival,
}

fn is_disk_only(archival: &Archival) -> bool {
    *archival == Archival::DiskOnly
}

impl Label {
    /// What is known of a file that lies in this directory.
    pub(crate) fn of(entry: &NewFile, parent: Option<EntryId>) -> Label {
        Label {
            version: LABEL_VERSION,
            id: Some(entry.id),
            parent,
            path: entry.path.clone(),
            size: entry.size,
            checksums: entry.checksums.clone(),
            owner: entry.owner.clone(),
            created: entry.at,
            archival: entry.archival,
        }
    }

    /// What fits where there is room for little: it describes the bytes only.
    pub(crate) fn shortened(self) -> Label {
        Label {
            parent: None,
            path: NamespacePath::root(),
            owner: None,
            ..self
        }
    }

    /// What a rebuild takes from it.
    pub(crate) fn found(self) -> FoundLabel {
        let name = self.path.name().map(str::to_owned);
        FoundLabel {
            place: self.parent.zip(name),
            path: self.path,
            size: self.size,
            checksums: self.checksums,
            owner: self.owner,
            created: self.created,
            archival: self.archival,
        }
    }
}

/// Lets the file describe itself. Some file systems keep few bytes of such text (ext4 one block), which say that they
/// are full when it is longer: then the file describes what fits, its bytes, and the directory log the rest. The entry learns
/// which it is.
pub(crate) fn label(
    file: &UncommittedFile,
    entry: &mut NewFile,
    parent: Option<EntryId>,
) -> io::Result<()> {
    let label = Label::of(entry, parent);
    let written = match write_label(&file.file, &label) {
        Err(why) if why.kind() == io::ErrorKind::StorageFull => {
            let short = label.shortened();
            // One so short fits anywhere but on a disk that is full.
            return file.with_space(|data| write_label(data, &short));
        }
        other => other,
    };
    match written {
        // Reported once when the pool was opened.
        Err(why) if why.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(why) => Err(why),
        Ok(()) => {
            entry.labelled_in = parent;
            Ok(())
        }
    }
}

/// The same for a file that has its entry already.
pub(crate) fn label_again(file: &File, label: Label) -> io::Result<()> {
    let written = match write_label(file, &label) {
        Err(why) if why.kind() == io::ErrorKind::StorageFull => {
            write_label(file, &label.shortened())
        }
        other => other,
    };
    match written {
        Err(why) if why.kind() == io::ErrorKind::Unsupported => Ok(()),
        other => other,
    }
}

/// Describes a file inside itself. Errors: `Unsupported` where the file system has no extended attributes.
pub(crate) fn write_label(file: &File, label: &Label) -> io::Result<()> {
    let json = serde_json::to_vec(label)?;
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::fsetxattr(file, LABEL_NAME, &json, flags).map_err(|why| match why {
        rustix::io::Errno::OPNOTSUPP => io::ErrorKind::Unsupported.into(),
        why => why.into(),
    })
}

/// Reads what [`write_label`] wrote; `None`: there is none, or not one of ours.
pub(crate) fn read_label(path: &Path) -> io::Result<Option<Label>> {
    use rustix::io::Errno;
    let mut value = vec![0; 1024];
    let length = match rustix::fs::getxattr(path, LABEL_NAME, &mut value[..]) {
        Err(Errno::RANGE) => {
            value.resize(LABEL_BYTES_MAX, 0);
            rustix::fs::getxattr(path, LABEL_NAME, &mut value[..])
        }
        length => length,
    };
    match length {
        Ok(length) => Ok(serde_json::from_slice(&value[..length]).ok()),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_first_version_tell_a_path_and_no_directory() {
        let stored = r#"{"version":1,"path":"/d/f","size":7,"checksums":[{"algorithm":"adler32","hex":"1a2b3c4d"}],"owner":"alice","created":5}"#;
        let label: Label = serde_json::from_str(stored).expect("readable");
        assert_eq!(serde_json::to_string(&label).expect("text"), stored);
        let found = label.found();
        assert_eq!(
            (found.place, found.path.to_string()),
            (None, "/d/f".to_owned())
        );
    }

    #[test]
    fn labels_of_the_second_version_tell_directory_and_name() {
        let stored = r#"{"version":2,"id":9,"parent":4,"path":"/d/f","size":7,"checksums":[],"owner":null,"created":5}"#;
        let label: Label = serde_json::from_str(stored).expect("readable");
        assert_eq!(serde_json::to_string(&label).expect("text"), stored);
        assert_eq!(label.found().place, Some((EntryId(4), "f".to_owned())));
    }
}
