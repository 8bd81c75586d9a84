//! `transfer.database`: where the transfer service keeps its record.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A file of this machine, or a database of PostgreSQL that several machines share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum DatabasePlace {
    /// A file of SQLite.
    File(PathBuf),
    /// An address like `postgres://user@host:5432/name`.
    Postgres(String),
}

impl From<String> for DatabasePlace {
    fn from(text: String) -> DatabasePlace {
        match text.starts_with("postgres://") || text.starts_with("postgresql://") {
            true => DatabasePlace::Postgres(text),
            false => DatabasePlace::File(text.into()),
        }
    }
}

impl From<DatabasePlace> for String {
    fn from(place: DatabasePlace) -> String {
        match place {
            DatabasePlace::File(path) => path.to_string_lossy().into_owned(),
            DatabasePlace::Postgres(address) => address,
        }
    }
}
