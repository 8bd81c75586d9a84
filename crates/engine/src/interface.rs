//! The engine's interface: what happens to it, what it answers, and what its driver has to do.

use super::nodes::{AssignedNode, NodeJoined};
use crate::command::{Command, Reply};
use crate::order::Order;
use crate::report::{AgentReport, AttemptKey};
use penstock_decide::halting::{Halt, HaltPolicy};
use penstock_decide::minute_meter::TransferGroup;
use penstock_decide::record_clock::RecordClock;
use penstock_decide::scheduler::SlotLimits;
use penstock_decide::staging::StagingPolicy;
use penstock_model::tape::{StageFile, path_of};
use penstock_model::{
    Access, Attempt, Bytes, CopyMode, CredentialId, Failure, FileProgress, JobId, JobParameters,
    LinkId, MoverReport, NodeId, Record, Settings, Side, StageRequestId, StorageId, Timestamp,
    ToldPlace, TransferId, TransferRequest, TuningPolicy, VoName,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What the engine must know beside limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// How many transfers may run where.
    pub slots: SlotLimits,
    /// Retries of jobs that do not say.
    pub retries_max: u32,
    /// The wait before the first retry of jobs that do not say.
    pub retry_delay: Duration,
    /// When links are halted.
    pub halting: HaltPolicy,
    /// How many transfers may be open, because each takes memory: some 600 bytes with what else the service holds for
    /// it (`bench/results`, a million queued files).
    pub open_max: usize,
    /// Who decides how many of the transfers that are allowed run on links of which no rule says it.
    pub tuning: TuningPolicy,
    /// How tape systems are treated.
    pub tape: StagingPolicy,
}

/// What can happen to the engine.
#[derive(Debug)]
pub enum Input {
    /// Whether what cannot be taken back may be done on the word of the clock. Before it is told, it may.
    Clock {
        /// It is believed.
        is_credible: bool,
    },
    /// Somebody asks for something. `reply` names the reply that is owed.
    Command {
        command: Command,
        /// Names the reply.
        reply: ReplyId,
    },
    /// What an agent tells. How far it is, the driver follows itself.
    Agent(AgentReport),
    /// A token can be renewed from now on.
    TokenReady { id: CredentialId },
    /// A token cannot be renewed.
    TokenRefused {
        id: CredentialId,
        /// What its transfers are told.
        failure: Box<Failure>,
    },
    /// A tape system has answered a call, or has not.
    TapeAnswered {
        /// The call's number.
        number: u64,
        /// What came of it.
        outcome: TapeOutcome,
    },
    /// A node has begun a session. What it could not tell its leader before comes as `Ended`, before this.
    NodeJoined(Box<NodeJoined>),
    /// A session of a node has ended.
    NodeGone {
        node: NodeId,
        session: u64,
        /// When it was heard of last, by this process's monotonic clock.
        heard_us: u64,
    },
    /// A node is about to go: it is given nothing more.
    NodeLeaves { node: NodeId, session: u64 },
    /// So many bytes each of these has moved since it began.
    Measured { moved: Vec<(TransferId, Bytes)> },
    /// About a second has passed, in which links did this.
    Seen(Vec<LinkProgress>),
    /// Another configuration file.
    Configure(Box<EngineConfig>),
    /// Start nothing more.
    Drain,
    /// Time passed.
    Tick,
}

/// What the running transfers of a link did in about a second, beside what the engine knows itself.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkProgress {
    pub link: LinkId,
    pub moved: Bytes,
    /// Seconds between two reports of how far its transfers are.
    pub lag: f64,
    /// Transfers that wait for their turn at a storage element.
    pub queued_there: u32,
}

/// Names an answer that somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplyId(pub u64);

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// It arrived.
    Landed {
        /// Size of the file.
        size: Bytes,
        /// Which way the bytes went; `None`: it was there already, brought by an earlier attempt.
        mode: Option<CopyMode>,
        /// What the mover measured.
        report: Box<MoverReport>,
    },
    /// It did not.
    Failed {
        failure: Failure,
        /// Whatever it had made at the destination is known to be gone.
        cleaned: bool,
        /// What it had moved, which came to nothing.
        #[serde(default)]
        moved: Bytes,
    },
    /// It did not, because a copy of an earlier attempt of the same transfer may still run there.
    Blocked {
        /// What it met.
        failure: Failure,
        /// Until when such a copy may run.
        until: Timestamp,
        /// What it had moved, which came to nothing.
        #[serde(default)]
        moved: Bytes,
    },
    /// It was stopped as asked, and has cleaned up after itself.
    Stopped,
    /// It was stopped as asked, and something of it may be left at the destination, or may come.
    Unsettled,
    /// It was dropped where it stood, or was never begun.
    Dropped,
    /// An agent that was to tidy up has done so: nothing of the transfer is left at the destination, nor will be.
    Tidied,
    /// It could not, or not yet.
    Untidied { failure: Failure },
}

/// What the driver does after the records are durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Have a node do something for an attempt.
    Order {
        node: NodeId,
        /// Which session; what is meant for an earlier one is not sent any more.
        session: u64,
        order: Order,
    },
    /// An attempt runs no more, though its agent did not say so.
    Lost {
        transfer: TransferId,
        attempt: Attempt,
    },
    /// Get what this token is renewed with. It is answered with `TokenReady` or `TokenRefused`.
    PrepareToken(CredentialId),
    /// Call a tape system. The answer comes as `TapeAnswered`.
    Tape(TapeCall),
    /// Have the source removed of a copy that is on tape. The answer comes as `TapeAnswered`, with `Done` when it is gone.
    RemoveSource {
        /// The call's number.
        number: u64,
        assignment: Box<Assignment>,
    },
    /// Tell the site's operators.
    Tell {
        link: LinkId,
        notice: LinkNotice,
    },
    Publish(Arc<Settings>),
    /// Tell the site's operators of a file at a destination that could not be removed.
    GiveOver {
        /// The job that it was of.
        job: JobId,
        /// What had been asked for.
        request: Arc<TransferRequest>,
        /// Why it was not removed.
        failure: Box<Failure>,
    },
    /// Answer these users no more, and all others.
    LockOut(BTreeSet<String>),
    /// Reply to somebody.
    Reply {
        to: ReplyId,
        reply: Reply,
    },
    /// Have an issuer give something newer for a token, then reply.
    RenewAtIssuer {
        id: CredentialId,
        to: ReplyId,
    },
}

/// What operators should know of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkNotice {
    /// Nothing but trials starts until one arrives.
    Halted(Halt),
    /// A transfer arrived; all may start again.
    Reopened,
}

/// How much was stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedCount {
    /// Jobs that had something to stop.
    pub jobs: u64,
    /// Their transfers that were open.
    pub transfers: u64,
}

/// Everything an agent needs to know about one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Who runs it.
    pub to: AssignedNode,
    pub job: JobId,
    /// On whose behalf.
    pub vo: VoName,
    /// What to move.
    pub request: Arc<TransferRequest>,
    pub parameters: Arc<JobParameters>,
    pub attempt: Attempt,
    /// Connections that it uses when its client does not say; `None`: as the storage element likes.
    pub streams: Option<u32>,
    /// An earlier attempt may have left the file, whole or in part, at a destination that was empty before.
    pub unsettled: bool,
    /// When the agent of the last attempt closed its connections, where somebody else is to tidy up after it. `None`: it
    /// is not known that it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// What the clock of the records showed when this was given out: that of the agent's host may differ. `None`: an older
    /// leader did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<RecordClock>,
    /// What is to be done.
    pub task: Task,
}

impl Assignment {
    /// Which attempt of which transfer it is about.
    pub fn key(&self) -> AttemptKey {
        AttemptKey {
            transfer: self.request.id,
            attempt: self.attempt,
        }
    }
}

/// What an agent is given to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Move the file.
    Copy,
    /// The transfer has ended while the outcome of an attempt was unknown: remove what that may have left at the
    /// destination, if it can only be ours. It answers `Tidied` or `Untidied`.
    TidyUp,
    /// The copy is on tape: remove the source, if it is the same file. It answers `Tidied` or `Untidied`. The leader's
    /// own process does it ([`Action::RemoveSource`]).
    RemoveSource,
}

/// The server to ask about files on tape, and the protocol and credentials. Calls for one place can be joined.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TapePlace {
    /// Scheme, host and port of the files.
    pub server: Arc<str>,
    /// The storage element.
    pub storage: StorageId,
    /// On whose behalf.
    pub vo: VoName,
    /// The token by which it is asked.
    pub token: Option<CredentialId>,
    /// The delegation by whose proxy it is asked, when there is no token.
    pub proxy: Option<CredentialId>,
    /// The query with credentials that belongs to the URLs of its files, where gfal2 asks it by these.
    pub query: Option<CredentialId>,
}

impl TapePlace {
    /// Whom to ask about the file at one end of a transfer.
    pub fn of(
        request: &TransferRequest,
        side: Side,
        vo: &VoName,
        proxy: Option<&CredentialId>,
    ) -> Option<TapePlace> {
        let (end, token) = request.end(side);
        let url = url::Url::parse(end.as_str()).ok()?;
        let port = url.port().map_or(String::new(), |port| format!(":{port}"));
        Some(TapePlace {
            server: format!("{}://{}{port}", end.scheme(), end.host()).into(),
            storage: end.storage(),
            vo: vo.clone(),
            token: token.cloned(),
            // A token counts before a proxy, as for copies.
            proxy: match token {
                Some(_) => None,
                None => proxy.cloned(),
            },
            query: request
                .query(side)
                .filter(|_| end.access() == Access::Gfal)
                .cloned(),
        })
    }

    /// The path by which the tape system at one end of a transfer knows its file: the URL, without the credentials
    /// in it, where gfal2 asks it.
    pub fn path(request: &TransferRequest, side: Side) -> Option<Arc<str>> {
        let (end, _) = request.end(side);
        if end.access() == Access::Gfal {
            return Some(end.as_str().into());
        }
        let url = url::Url::parse(end.as_str()).ok()?;
        Some(path_of(&url).into())
    }
}

/// A call of a tape system.
#[derive(Debug, Clone, PartialEq)]
pub struct TapeCall {
    /// Its number, by which it is answered.
    pub number: u64,
    pub place: Arc<TapePlace>,
    pub errand: TapeErrand,
}

/// What a tape system is called for.
#[derive(Debug, Clone, PartialEq)]
pub enum TapeErrand {
    /// To bring files to disk.
    Stage(Vec<StageFile>),
    /// To tell how far a request is, which is for so many files, and of which these are awaited.
    Look(StageRequestId, usize, Vec<String>),
    /// Not to bring these any more.
    Cancel(StageRequestId, Vec<String>),
    /// Not to keep these on disk any more.
    Release(StageRequestId, Vec<String>),
    /// To tell where copies are that have to get to tape.
    Locate(Vec<String>),
    /// To tell which replicas are on disk.
    Find(Vec<String>),
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum TapeOutcome {
    /// It brings the files; the name of the request.
    Accepted(StageRequestId),
    /// How far each file is, by path.
    Progress(Vec<(String, FileProgress)>),
    /// Where each file is, by path, or what is said of it instead.
    Places(Vec<(String, ToldPlace)>),
    /// It has taken notice, or has done it.
    Done,
    /// It was not reached, or has refused.
    Failed {
        failure: Failure,
        /// The HTTP status, if it answered with one.
        status: Option<u16>,
    },
}

/// The records and actions of one call.
#[derive(Debug, Default, PartialEq)]
pub struct Effects {
    /// To be made durable first, in one transaction.
    pub records: Vec<Record>,
    /// Whose each event of these is but `Submitted` and `NotNeeded`, in their order.
    pub groups: Vec<TransferGroup>,
    /// Then to be done, in order.
    pub actions: Vec<Action>,
    /// Replies that rest upon nothing that is not durable yet: given at once, also while the journal cannot be written.
    pub replies: Vec<(ReplyId, Reply)>,
}

/// Time as the driver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Wall clock.
    pub at: Timestamp,
    /// Microseconds since the process started, monotonic.
    pub monotonic_us: u64,
}

impl Now {
    /// Since the process started, whatever becomes of the wall clock.
    pub(super) fn running(self) -> Duration {
        Duration::from_micros(self.monotonic_us)
    }
}
