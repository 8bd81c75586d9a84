//! What is written down of an upload, and where: `partial/<id>` holds its bytes, `partial/<id>.json` this record.

use crate::pool::Pool;
use crate::reaper::remove_if_there;
use penstock_durable_file::replace_private;
use penstock_model::{Checksum, NamespacePath, Timestamp, UserName};
use penstock_persistence::namespace::EntryId;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use uuid::Uuid;

/// The stored form. Raise it with a test that reads the old one.
const RECORD_VERSION: u32 = 1;
/// Records are far shorter; what is longer is none.
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// What an upload shall become, as its first request said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub path: NamespacePath,
    pub user: Option<UserName>,
    /// Whose upload it is: one name at two issuers of tokens is two users. The first records have none.
    #[serde(default)]
    pub holder: Option<UserName>,
    /// The macaroon that it was begun with, when it was one.
    #[serde(default)]
    pub macaroon: Option<String>,
    /// Bytes of the whole file, when announced.
    pub length: Option<u64>,
    /// Nothing may stand at the path.
    pub must_be_absent: bool,
    /// Only this file may be replaced.
    pub only: Option<EntryId>,
    /// What the whole file's bytes must have.
    pub expected: Vec<Checksum>,
}

impl Plan {
    /// Who is counted for it.
    pub(crate) fn whose(&self) -> Option<&UserName> {
        self.holder.as_ref().or(self.user.as_ref())
    }

    /// Whether somebody may go on with it: its user, or who holds the macaroon that it was begun with.
    pub(crate) fn is_open_to(&self, holder: &UserName, macaroon: Option<&str>) -> bool {
        let is_theirs = self.whose() == Some(holder);
        is_theirs && (macaroon.is_none() || macaroon == self.macaroon.as_deref())
    }
}

/// A plan, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub version: u32,
    pub plan: Plan,
    /// Bytes that are durable.
    pub offset: u64,
    pub expires: Timestamp,
    /// The file that it becomes; written before that is visible.
    pub finished: Option<EntryId>,
}

impl Record {
    pub(super) fn new(plan: Plan, expires: Timestamp) -> Record {
        Record {
            version: RECORD_VERSION,
            plan,
            offset: 0,
            expires,
            finished: None,
        }
    }

    /// Replaces the stored one in one step; durable when it returns. Blocks.
    pub(crate) fn write(&self, pool: &Pool, id: Uuid) -> io::Result<()> {
        replace_private(&record_path(pool, id), &serde_json::to_vec(self)?)
    }
}

pub(super) fn directory(pool: &Pool) -> PathBuf {
    pool.directory.join("partial")
}

pub(crate) fn data_path(pool: &Pool, id: Uuid) -> PathBuf {
    directory(pool).join(id.to_string())
}

fn record_path(pool: &Pool, id: Uuid) -> PathBuf {
    directory(pool).join(format!("{id}.json"))
}

/// All files of an upload.
pub(super) fn paths(pool: &Pool, id: Uuid) -> [PathBuf; 2] {
    [data_path(pool, id), record_path(pool, id)]
}

/// Removes bytes and record. What is gone already is no error.
pub(super) fn remove_files(pool: &Pool, id: Uuid) -> io::Result<()> {
    paths(pool, id)
        .iter()
        .try_for_each(|path| remove_if_there(path))
}

/// Keeps the files of an upload aside with which nobody can go on.
pub(super) fn quarantine_files(pool: &Pool, id: Uuid, now: Timestamp) -> io::Result<()> {
    for path in paths(pool, id) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match pool.quarantine_file(&path, &format!("partial-{name}"), now) {
            Ok(kept_at) => {
                let kept_at = kept_at.display();
                tracing::warn!(pool = %pool.name, %id, %kept_at, "an upload that cannot go on is in quarantine");
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// What there is of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FoundRecord {
    Record(Record),
    Missing,
    /// It is none.
    Garbage,
    /// The disk does not give it, or a newer program wrote it.
    Unreadable,
}

/// Calls `visit` for each upload in a pool, with what there is of its record. Half written records are removed.
pub(super) fn each_record(
    pool: &Pool,
    mut visit: impl FnMut(Uuid, FoundRecord) -> io::Result<()>,
) -> io::Result<()> {
    let mut ids = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(directory(pool))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".new") {
            remove_if_there(&entry.path())?;
            continue;
        }
        match Uuid::parse_str(name.strip_suffix(".json").unwrap_or(&name)) {
            Ok(id) => drop(ids.insert(id)),
            Err(_) => tracing::warn!(path = %entry.path().display(), "not ours, left alone"),
        }
    }
    for id in ids {
        visit(id, read(pool, id))?;
    }
    Ok(())
}

fn read(pool: &Pool, id: Uuid) -> FoundRecord {
    let path = record_path(pool, id);
    let shown = path.display();
    let bytes = match std::fs::metadata(&path) {
        Ok(metadata) if metadata.len() > RECORD_BYTES_MAX => {
            tracing::error!(path = %shown, "the record of an upload is too long to be one");
            return FoundRecord::Garbage;
        }
        Ok(_) => std::fs::read(&path),
        Err(why) => Err(why),
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return FoundRecord::Missing,
        Err(why) => {
            tracing::error!(path = %shown, %why, "the record of an upload cannot be read; it is left as it is");
            return FoundRecord::Unreadable;
        }
    };
    understand(&bytes).inspect_garbage(&path)
}

/// The version alone.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

fn understand(bytes: &[u8]) -> FoundRecord {
    match serde_json::from_slice::<Version>(bytes) {
        Ok(Version { version }) if version > RECORD_VERSION => FoundRecord::Unreadable,
        Ok(_) => serde_json::from_slice(bytes).map_or(FoundRecord::Garbage, FoundRecord::Record),
        Err(_) => FoundRecord::Garbage,
    }
}

impl FoundRecord {
    /// Tells the log.
    fn inspect_garbage(self, path: &std::path::Path) -> FoundRecord {
        let path = path.display();
        match &self {
            FoundRecord::Garbage => {
                tracing::error!(%path, "the record of an upload makes no sense")
            }
            FoundRecord::Unreadable => {
                tracing::error!(%path, "the record of an upload is of a newer program; it is left as it is");
            }
            FoundRecord::Record(_) | FoundRecord::Missing => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_first_version_can_be_read() {
        let old = r#"{"version":1,"plan":{"path":"/d/f","user":"alice","length":10,"must_be_absent":true,
            "only":null,"expected":[]},"offset":4,"expires":1795241991000,"finished":null}"#;
        let record: Record = serde_json::from_str(old).expect("understood");
        assert_eq!((record.offset, record.plan.length), (4, Some(10)));
        assert_eq!(record.plan.path.to_string(), "/d/f");
        assert_eq!(record.plan.whose(), Some(&UserName::new("alice")));
        assert_eq!(understand(old.as_bytes()), FoundRecord::Record(record));
    }

    #[test]
    fn a_record_of_a_newer_program_is_not_taken_for_garbage() {
        assert_eq!(
            understand(br#"{"version":2,"plans":[]}"#),
            FoundRecord::Unreadable
        );
        assert_eq!(
            understand(br#"{"version":1,"plans":[]}"#),
            FoundRecord::Garbage
        );
        assert_eq!(understand(b"\0\0\0"), FoundRecord::Garbage);
        assert_eq!(understand(b""), FoundRecord::Garbage);
    }
}
