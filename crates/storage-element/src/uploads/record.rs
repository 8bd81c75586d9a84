//! What is written down of an upload, and where: `partial/<id>` holds its bytes, `partial/<id>.json` this record.

use crate::pool::{Pool, sync_directory};
use penstock_model::{Checksum, NamespacePath, Timestamp, UserName};
use penstock_persistence::namespace::EntryId;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
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
    /// Who may go on with it, and is counted for it.
    pub(crate) fn whose(&self) -> Option<&UserName> {
        self.holder.as_ref().or(self.user.as_ref())
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
    pub(super) fn write(&self, pool: &Pool, id: Uuid) -> io::Result<()> {
        let new = directory(pool).join(format!("{id}.new"));
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        std::fs::rename(&new, record_path(pool, id))?;
        sync_directory(&directory(pool))
    }
}

pub(super) fn directory(pool: &Pool) -> PathBuf {
    pool.directory.join("partial")
}

pub(super) fn data_path(pool: &Pool, id: Uuid) -> PathBuf {
    directory(pool).join(id.to_string())
}

fn record_path(pool: &Pool, id: Uuid) -> PathBuf {
    directory(pool).join(format!("{id}.json"))
}

/// Removes bytes and record. What is gone already is no error.
pub(super) fn remove_files(pool: &Pool, id: Uuid) -> io::Result<()> {
    for path in [data_path(pool, id), record_path(pool, id)] {
        remove(path)?;
    }
    Ok(())
}

pub(super) fn remove(path: PathBuf) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Calls `visit` for each upload in a pool; without a record when that is missing or cannot be understood. Half
/// written records are removed.
pub(super) fn each_record(
    pool: &Pool,
    mut visit: impl FnMut(Uuid, Option<Record>) -> io::Result<()>,
) -> io::Result<()> {
    let mut ids = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(directory(pool))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".new") {
            remove(entry.path())?;
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

fn read(pool: &Pool, id: Uuid) -> Option<Record> {
    let path = record_path(pool, id);
    let length = std::fs::metadata(&path).ok()?.len();
    let bytes = (length <= RECORD_BYTES_MAX).then(|| std::fs::read(&path).ok());
    let record = serde_json::from_slice::<Record>(&bytes??);
    let record = record
        .ok()
        .filter(|record| record.version == RECORD_VERSION);
    if record.is_none() {
        tracing::error!(path = %path.display(), "the record of an upload makes no sense; it is removed");
    }
    record
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
    }
}
