//! What survives a restart, and where: files of this machine, or PostgreSQL, which the nodes of a service share.

use crate::error::ServiceError;
use crate::nodes::NodesConfig;
use penstock_clock::timestamp;
use penstock_journal::{Journal, JournalReader};
use penstock_model::Timestamp;
use penstock_persistence::delegations::Delegations;
use penstock_persistence::journal::{PostgresReader, SqliteJournal, SqliteReader};
use penstock_persistence::sealing::SealingKeys;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many questions may be answered from the journal at once.
const READERS: usize = 4;

/// Where a service keeps what survives a restart.
#[derive(Clone)]
pub enum StoreBackend {
    /// Databases of SQLite in files of this machine; created when absent.
    Files {
        /// Jobs and the record.
        journal: PathBuf,
        /// What users have delegated.
        delegations: PathBuf,
    },
    /// A database of PostgreSQL, which other processes of the service share.
    Postgres(Box<NodesConfig>),
}

pub(crate) struct OpenStore {
    pub(crate) role: Deployment,
    pub(crate) reader: Arc<dyn JournalReader>,
    pub(crate) delegations: Arc<Delegations>,
    /// When a process before wrote the journal last, as far as its files tell.
    pub(crate) written_at: Option<Timestamp>,
}

/// What a process is in its service.
pub(crate) enum Deployment {
    /// The only one: it writes the journal.
    Alone(Box<dyn Journal>),
    /// One of several: whichever leads writes the journal.
    Node(Box<NodesConfig>),
}

/// Opens it. Blocks.
pub(crate) fn open(store: &StoreBackend, keys: &SealingKeys) -> Result<OpenStore, ServiceError> {
    match store {
        StoreBackend::Files {
            journal,
            delegations,
        } if !journal.exists() && delegations.exists() => Err(ServiceError::JournalGone {
            journal: journal.display().to_string(),
            beside: delegations.display().to_string(),
        }),
        StoreBackend::Files {
            journal,
            delegations,
        } => Ok(OpenStore {
            // Before it is opened, which may write.
            written_at: written_at(journal),
            role: Deployment::Alone(Box::new(SqliteJournal::open(journal, keys.clone())?)),
            reader: Arc::new(SqliteReader::open(journal, READERS)?.with_keys(keys.clone())),
            delegations: Arc::new(Delegations::open(delegations, keys.clone())?),
        }),
        StoreBackend::Postgres(nodes) => {
            let database = &nodes.database;
            let reader = PostgresReader::open(database, READERS)?.with_keys(keys.clone());
            Ok(OpenStore {
                written_at: None,
                role: Deployment::Node(nodes.clone()),
                reader: Arc::new(reader),
                delegations: Arc::new(Delegations::in_postgres(database, keys.clone())?),
            })
        }
    }
}

/// By the file and the log beside it.
fn written_at(journal: &Path) -> Option<Timestamp> {
    let mut log = journal.as_os_str().to_owned();
    log.push("-wal");
    let files = [journal, Path::new(&log)];
    let times = files.map(|file| file.metadata().and_then(|file| file.modified()).ok());
    let newest = times.into_iter().flatten().max()?;
    Some(timestamp(newest))
}
