//! What survives a restart, and where: files of this machine, or PostgreSQL. In PostgreSQL only the node that leads
//! writes the journal; here a process of its own takes the lead before it starts, and holds it until it ends.

use crate::service::ServiceError;
use penstock_model::{CredentialId, Epoch, NodeId};
use penstock_persistence::cluster::{Cluster, Leadership};
use penstock_persistence::delegations::Delegations;
use penstock_persistence::journal::{
    Journal, JournalError, JournalReader, PostgresJournal, PostgresReader, PruneStep, Pruned,
    Record, SqliteJournal, SqliteReader, Standing, StoredToken, UnfinishedJob,
};
use penstock_persistence::postgres::Database;
use penstock_persistence::sealing::SealingKeys;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many questions may be answered from the journal at once.
const READERS: usize = 4;
/// How long the lead lasts without being renewed, and how often it is.
const TERM: Duration = Duration::from_secs(10);
const RENEW_EVERY: Duration = Duration::from_secs(3);

/// Where a service keeps what survives a restart.
#[derive(Debug, Clone)]
pub enum Store {
    /// Databases of SQLite in files of this machine; created when absent.
    Files {
        /// Jobs and the record.
        journal: PathBuf,
        /// What users have delegated.
        delegations: PathBuf,
    },
    /// A database of PostgreSQL, which other processes of the service may share.
    Postgres {
        /// Where it is.
        database: Box<Database>,
        /// By which name this process is known there.
        node: NodeId,
    },
}

/// An open store.
pub(crate) struct Opened {
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) reader: Arc<dyn JournalReader>,
    pub(crate) delegations: Arc<Delegations>,
}

/// Opens it. Blocks; in PostgreSQL until no other node leads.
pub(crate) fn open(store: &Store, keys: &SealingKeys) -> Result<Opened, ServiceError> {
    match store {
        Store::Files {
            journal,
            delegations,
        } => Ok(Opened {
            journal: Box::new(SqliteJournal::open(journal, keys.clone())?),
            reader: Arc::new(SqliteReader::open(journal, READERS)?.with_keys(keys.clone())),
            delegations: Arc::new(Delegations::open(delegations, keys.clone())?),
        }),
        Store::Postgres { database, node } => {
            let lead = Lead::take(database, node)?;
            let journal = PostgresJournal::open(database, keys.clone(), lead.epoch)?;
            let reader = PostgresReader::open(database, READERS)?.with_keys(keys.clone());
            Ok(Opened {
                journal: Box::new(Led {
                    journal,
                    _lead: lead,
                }),
                reader: Arc::new(reader),
                delegations: Arc::new(Delegations::in_postgres(database, keys.clone())?),
            })
        }
    }
}

/// A journal with the lead that it is written under, which is given back after it.
struct Led {
    journal: PostgresJournal,
    _lead: Lead,
}

impl Journal for Led {
    fn append(&mut self, records: &[Record]) -> Result<u64, JournalError> {
        self.journal.append(records)
    }

    fn seal_some_anew(&mut self) -> Result<bool, JournalError> {
        self.journal.seal_some_anew()
    }

    fn prune(&mut self, step: &PruneStep) -> Result<Pruned, JournalError> {
        self.journal.prune(step)
    }

    fn load_standing(&mut self) -> Result<Standing, JournalError> {
        self.journal.load_standing()
    }

    fn load_unfinished(&mut self, take: &mut dyn FnMut(UnfinishedJob)) -> Result<(), JournalError> {
        self.journal.load_unfinished(take)
    }

    fn token(&mut self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError> {
        self.journal.token(id)
    }
}

/// The lead, renewed by a thread of its own until this is dropped.
struct Lead {
    epoch: Epoch,
    /// Dropped to end the thread.
    holding: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lead {
    fn take(database: &Database, node: &NodeId) -> Result<Lead, ServiceError> {
        let cluster = Cluster::open(database).map_err(JournalError::from)?;
        let mut is_told = false;
        let epoch = loop {
            match cluster.try_lead(node, TERM).map_err(JournalError::from)? {
                Leadership::Leading(epoch) => break epoch,
                Leadership::Following {
                    leader, remaining, ..
                } => {
                    if !std::mem::replace(&mut is_told, true) {
                        let leader = leader.as_ref().map_or("nobody", NodeId::as_str);
                        tracing::info!(%database, leader, "another node leads; waiting for its turn to end");
                    }
                    std::thread::sleep(remaining.clamp(Duration::from_millis(50), RENEW_EVERY));
                }
            }
        };
        tracing::info!(%database, %node, %epoch, "leading");
        let (holding, held) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("lead".to_owned());
        let thread = thread.spawn(move || {
            while held.recv_timeout(RENEW_EVERY) == Err(RecvTimeoutError::Timeout) {
                match cluster.renew(epoch, TERM) {
                    Ok(true) => {}
                    // The journal's next transaction finds out, too.
                    Ok(false) => return tracing::error!(%epoch, "another node leads now"),
                    Err(error) => {
                        tracing::warn!(%error, "the lead could not be renewed; trying again")
                    }
                }
            }
            if let Err(error) = cluster.resign(epoch) {
                tracing::warn!(%error, "the lead could not be given back; it ends by itself");
            }
        })?;
        Ok(Lead {
            epoch,
            holding: Some(holding),
            thread: Some(thread),
        })
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.holding = None;
        if let Some(thread) = self.thread.take() {
            // It panics nowhere, and has nothing to say.
            let _ = thread.join();
        }
    }
}
