//! PostgreSQL, for a service that outgrows one machine: where the database is, how it is reached, and its tables.
//!
//! All connections live on threads of their own ([`session`]), so that no caller can block an async runtime from
//! inside. Nothing here knows what is stored: the journal, the delegations and the cluster build on it.

mod address;
mod inspect;
#[cfg(test)]
pub(crate) mod lab;
pub(crate) mod resealing;
pub(crate) mod schema;
pub(crate) mod session;

pub use address::{Database, PasswordSource};
pub use inspect::{DatabaseFacts, inspect};
pub use schema::SCHEMA_VERSION;

use ::postgres::error::SqlState;
use penstock_model::TimeSpan;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why the database cannot do what it was asked. No text of it holds a password.
#[derive(Debug, Clone, Error)]
pub enum DatabaseError {
    /// Its address, its password's file or a certificate is not as it must be.
    #[error("the database cannot be used: {0}")]
    Setup(String),
    /// It cannot be reached, or a connection to it ended. Trying again later may help.
    #[error("the database {database} cannot be reached: {why}")]
    Lost {
        /// Its address.
        database: Arc<str>,
        why: String,
    },
    /// It has not answered in time; what it was asked may still happen.
    #[error("the database {database} has not answered within {}", TimeSpan(*patience))]
    NoAnswer {
        /// Its address.
        database: Arc<str>,
        /// How long it was waited for.
        patience: Duration,
    },
    /// Something else holds for too long what was needed. Trying again later may help.
    #[error("the database {database} is busy: another connection holds a lock")]
    Busy {
        /// Its address.
        database: Arc<str>,
    },
    /// It cannot do it at the moment: a full disk, no memory, a statement that took too long, a lost conflict.
    #[error("the database {database} cannot do it at the moment: {why}")]
    Hindered {
        /// Its address.
        database: Arc<str>,
        /// What it says.
        why: String,
    },
    /// It does not take what it was given: a value that it cannot hold, a name that is taken.
    #[error("the database {database} rejects a value: {why}")]
    Unacceptable {
        /// Its address.
        database: Arc<str>,
        /// What it says.
        why: String,
    },
    /// It answered with an error that neither time nor other values mend: a missing right, a missing table.
    #[error("the database {database} refuses: {why}")]
    Refused {
        /// Its address.
        database: Arc<str>,
        /// What it says.
        why: String,
    },
    /// Its tables were made by a later version that this one cannot work beside.
    #[error(
        "the tables of the database {database} have schema {found}, which can be used from schema {usable_from} on; \
         this version knows {known}: upgrade"
    )]
    TooNew {
        /// Its address.
        database: Arc<str>,
        /// Its schema.
        found: u32,
        /// The oldest schema whose versions may work with it.
        usable_from: u32,
        /// The newest schema known here.
        known: u32,
    },
}

/// PostgreSQL, appendix A: a lock was not got in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

impl DatabaseError {
    /// What the client library says, in words for people. Its own text leaves out the cause.
    pub(crate) fn of(database: &Arc<str>, error: &::postgres::Error) -> DatabaseError {
        let database = database.clone();
        let why = match error.as_db_error() {
            Some(told) => {
                let more = [told.detail(), told.hint()].into_iter().flatten();
                let more: String = more.map(|text| format!("; {text}")).collect();
                format!("{} ({}){more}", told.message(), told.code().code())
            }
            None => with_causes(error),
        };
        match error.code().map(SqlState::code) {
            Some(LOCK_NOT_AVAILABLE) => DatabaseError::Busy { database },
            _ if is_lost(error) => DatabaseError::Lost { database, why },
            // PostgreSQL, appendix A: lost conflicts, want of resources, canceled, failures of the system below.
            Some(code)
                if ["40", "53", "57", "58"]
                    .iter()
                    .any(|class| code.starts_with(class)) =>
            {
                DatabaseError::Hindered { database, why }
            }
            // Values, constraints, and what is larger than the server can hold.
            Some(code)
                if ["22", "23", "54"]
                    .iter()
                    .any(|class| code.starts_with(class)) =>
            {
                DatabaseError::Unacceptable { database, why }
            }
            _ => DatabaseError::Refused { database, why },
        }
    }

    /// The connection is gone, or there was none.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, DatabaseError::Lost { .. })
    }

    /// The database is away or busy: the same may succeed a while later, when nothing else is done about it.
    pub fn may_pass(&self) -> bool {
        match self {
            DatabaseError::Lost { .. }
            | DatabaseError::NoAnswer { .. }
            | DatabaseError::Busy { .. }
            | DatabaseError::Hindered { .. } => true,
            DatabaseError::Setup(_)
            | DatabaseError::Unacceptable { .. }
            | DatabaseError::Refused { .. }
            | DatabaseError::TooNew { .. } => false,
        }
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text += &format!(": {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Whether an error says that the connection is gone, and not that the database refuses.
fn is_lost(error: &::postgres::Error) -> bool {
    match error.code() {
        // PostgreSQL, appendix A: connection exceptions, operator intervention, and what ends a session.
        Some(code) => {
            let code = code.code();
            // 25006: this server has become a standby, and another one takes changes.
            code.starts_with("08")
                || [
                    "57P01", "57P02", "57P03", "57P05", "25P03", "25006", "53300",
                ]
                .contains(&code)
        }
        None => {
            let cause = std::error::Error::source(error);
            error.is_closed() || cause.is_some_and(|cause| cause.is::<std::io::Error>())
        }
    }
}

/// Text as PostgreSQL takes it: it knows no NUL, which somebody may have put into a name.
pub(crate) fn text(value: &str) -> String {
    value.replace('\0', "\u{fffd}")
}
