//! Where the suite keeps its journals: the same tests run on each back end.

use super::{Journal, JournalReader, SealingKeys, SqliteJournal, SqliteReader};
use crate::cluster::{Cluster, Leadership};
use crate::journal::{PostgresJournal, PostgresReader};
use crate::postgres::{Database, lab};
use penstock_model::NodeId;
use std::path::PathBuf;
use std::time::Duration;

/// An empty place for one journal, with the keys that seal its tokens.
pub(super) struct Lab {
    place: LabStorage,
    keys: SealingKeys,
}

enum LabStorage {
    File(tempfile::TempDir),
    Database(Box<Database>),
}

impl Lab {
    pub(super) fn sqlite() -> Lab {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Lab::of(LabStorage::File(directory))
    }

    pub(super) fn postgres() -> Lab {
        Lab::of(LabStorage::Database(Box::new(lab::database())))
    }

    fn of(place: LabStorage) -> Lab {
        let keys = SealingKeys::of_this_process().expect("OpenSSL works");
        Lab { place, keys }
    }

    fn file(directory: &tempfile::TempDir) -> PathBuf {
        directory.path().join("transfer.sqlite")
    }

    /// As a process that starts finds it.
    pub(super) fn open(&self) -> Box<dyn Journal> {
        self.open_with(self.keys.clone())
    }

    pub(super) fn open_with(&self, keys: SealingKeys) -> Box<dyn Journal> {
        match &self.place {
            LabStorage::File(directory) => {
                let opened = SqliteJournal::open(&Lab::file(directory), keys);
                Box::new(opened.expect("opens"))
            }
            LabStorage::Database(database) => {
                let cluster = Cluster::open(database).expect("opens");
                let node = NodeId::parse("one").expect("a name");
                let led = cluster.try_lead(&node, Duration::from_secs(60));
                let Leadership::Leading(tenure) = led.expect("answers") else {
                    panic!("nobody else is there");
                };
                Box::new(PostgresJournal::open(database, keys, tenure, 0).expect("opens"))
            }
        }
    }

    /// Beside a journal that was opened before.
    pub(super) fn reader(&self) -> Box<dyn JournalReader> {
        match &self.place {
            LabStorage::File(directory) => {
                let opened = SqliteReader::open(&Lab::file(directory), 2).expect("opens");
                Box::new(opened.with_keys(self.keys.clone()))
            }
            LabStorage::Database(database) => {
                let opened = PostgresReader::open(database, 2).expect("opens");
                Box::new(opened.with_keys(self.keys.clone()))
            }
        }
    }

    /// Another empty place of the same kind.
    pub(super) fn another(&self) -> Lab {
        match &self.place {
            LabStorage::File(_) => Lab::sqlite(),
            LabStorage::Database(_) => Lab::postgres(),
        }
    }

    /// As an operator would, past the journal.
    pub(super) fn execute(&self, sql: &str) {
        match &self.place {
            LabStorage::File(directory) => {
                let connection = rusqlite::Connection::open(Lab::file(directory));
                let done = connection.and_then(|connection| connection.execute_batch(sql));
                done.expect("done");
            }
            LabStorage::Database(_) => self.execute_in_postgres(sql),
        }
    }

    /// As an operator would with `psql`.
    pub(super) fn execute_in_postgres(&self, sql: &str) {
        let LabStorage::Database(database) = &self.place else {
            panic!("this place is no PostgreSQL");
        };
        lab::execute(database, sql);
    }

    /// A secret must not be there in clear.
    pub(super) fn assert_holds_no(&self, secret: &str) {
        match &self.place {
            LabStorage::File(directory) => super::assert_holds_no_token(directory.path(), secret),
            LabStorage::Database(database) => lab::assert_holds_no(database, secret),
        }
    }
}
