//! Why the service cannot do what it was asked.

use penstock_engine::{FullShare, ShareHolder};
use penstock_journal::JournalError;
use penstock_model::{JobId, NodeId, Problem, ProblemCode, StorageId};
use penstock_persistence::delegations::DelegationError;
use penstock_persistence::sealing::SealingError;
use thiserror::Error;

/// Why the service cannot do what it was asked.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The journal cannot be opened or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The delegations cannot be opened.
    #[error(transparent)]
    Delegations(#[from] DelegationError),
    /// The journal cannot be written at the moment: most often a full disk. Nothing was accepted.
    #[error(
        "the journal cannot be written (is its disk full?); nothing was accepted, try again later"
    )]
    JournalFull,
    /// An end of a transfer cannot be reached from this machine. Nothing was accepted.
    #[error("{0}")]
    OutOfReach(String),
    /// Too many transfers are open. Nothing was accepted.
    #[error(
        "{0} transfers are open, and the job's would be more than the service may hold (transfer.open_max); \
         nothing was accepted, try again when some have ended"
    )]
    NoRoom(usize),
    /// The submitter, or their VO, has taken their share of scarce room. Nothing was accepted.
    #[error(
        "{} has {} transfers open; when three quarters of the service's room (transfer.open_max) are taken, {} may have {}: \
         nothing was accepted, try again when some have ended",
        holder(&.0.of), .0.open, kind(&.0.of), .0.open_max
    )]
    ShareFull(FullShare),
    /// It could not be written to the end. Nothing that is missing in it was acknowledged.
    #[error(
        "{0}; what happened since then is not recorded, and is looked at anew after the next start. Nothing that was \
         acknowledged is lost: make room and start again"
    )]
    Unwritten(#[source] JournalError),
    /// The journal refuses for good what was asked for. Nothing of it happens.
    #[error("the request cannot be recorded, so it was not carried out: {0}")]
    NotRecorded(String),
    /// The journal's file is gone, while others beside it are there.
    #[error(
        "the journal {journal} is not there, although {beside} is: is a file system not mounted? Mount it, or restore \
         the journal from a backup; to begin with an empty journal, move {beside} away"
    )]
    JournalGone {
        /// Its file.
        journal: String,
        beside: String,
    },
    /// The journal stopped to be writable while it was asked.
    #[error(
        "the journal cannot be written (is its disk full?); what you asked for may still happen when it can: look again"
    )]
    Undecided,
    /// A storage element of the job takes no submissions. The wording is FTS's, with what the operators say of it.
    #[error("{storage} is banned{}", behind_colon(message))]
    StorageBanned {
        storage: StorageId,
        /// Empty: they say nothing.
        message: String,
    },
    /// So that nobody fills the memory.
    #[error("there are too many bans already; lift some first")]
    TooManyBans,
    /// There is a job of that id already.
    #[error("there is a job {0} already")]
    Taken(JobId),
    /// The keys that seal secrets cannot be read or kept.
    #[error(transparent)]
    Keys(#[from] SealingError),
    /// The leader did not give the keys that seal secrets.
    #[error("the leader {0} does not give the credential keys: {1}")]
    NoKeys(NodeId, String),
    /// The node that leads replied to something else.
    #[error(
        "the node that leads the service gave a reply that this one does not know; is it of another version? What \
         you asked for may have happened: look"
    )]
    ForeignReply,
    /// None of the service's nodes leads it at the moment.
    #[error(
        "no node of the service leads it at the moment; what you asked for may still happen: look, and try again"
    )]
    Leaderless,
    /// It is ending.
    #[error("the service is shutting down")]
    ShuttingDown,
    /// The operating system refuses a thread.
    #[error("cannot start the journal's thread: {0}")]
    Thread(#[from] std::io::Error),
}

fn behind_colon(message: &str) -> String {
    match message {
        "" => String::new(),
        message => format!(": {message}"),
    }
}

impl ServiceError {
    /// The same towards users. What concerns the database is in the log; it may name what is not theirs.
    pub fn problem(&self) -> Problem {
        let code = self.code();
        match self {
            ServiceError::Journal(error) if error.may_pass() => Problem::new(
                code,
                "the journal cannot be read at the moment; try again later",
            ),
            ServiceError::Journal(_) => {
                Problem::new(code, "the journal cannot be read; see the service's log")
            }
            ServiceError::Delegations(_) => Problem::new(
                code,
                "the delegations cannot be read or written at the moment; try again later",
            ),
            // The wording is that of submissions, which are where ids are given.
            ServiceError::Taken(job) => Problem::new(
                code,
                format!("the job {job} was submitted before with the same sid"),
            ),
            other => Problem::new(code, other.to_string()),
        }
    }

    fn code(&self) -> ProblemCode {
        match self {
            ServiceError::Journal(error) if error.may_pass() => ProblemCode::JournalBusy,
            ServiceError::Journal(_) => ProblemCode::JournalFailed,
            ServiceError::Delegations(_) => ProblemCode::JournalBusy,
            ServiceError::JournalFull | ServiceError::Unwritten(_) => ProblemCode::JournalFull,
            ServiceError::OutOfReach(_) => ProblemCode::EndpointUnsupported,
            ServiceError::NoRoom(_) | ServiceError::ShareFull(_) => ProblemCode::ServiceFull,
            ServiceError::NotRecorded(_) => ProblemCode::RecordRefused,
            ServiceError::JournalGone { .. } => ProblemCode::JournalMissing,
            ServiceError::Undecided => ProblemCode::OutcomeUnknown,
            ServiceError::StorageBanned { .. } => ProblemCode::StorageBanned,
            ServiceError::TooManyBans => ProblemCode::LimitReached,
            ServiceError::Taken(_) => ProblemCode::JobDuplicate,
            ServiceError::Keys(_) | ServiceError::NoKeys(..) => ProblemCode::KeysUnavailable,
            ServiceError::ForeignReply => ProblemCode::ReplyUnknown,
            ServiceError::Leaderless => ProblemCode::ServiceLeaderless,
            ServiceError::ShuttingDown => ProblemCode::ServiceStopping,
            ServiceError::Thread(_) => ProblemCode::ServiceBusy,
        }
    }
}

fn holder(of: &ShareHolder) -> String {
    match of {
        ShareHolder::Vo(vo) => format!("the VO {vo}"),
        ShareHolder::User(user) => format!("the user {user}"),
    }
}

fn kind(of: &ShareHolder) -> &'static str {
    match of {
        ShareHolder::Vo(_) => "a VO",
        ShareHolder::User(_) => "a user",
    }
}
