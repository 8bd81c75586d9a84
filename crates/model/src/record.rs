//! What a journal keeps: the records that an engine makes, and what a restart finds of them.

use crate::{
    Attempt, Ban, BanChange, CredentialId, Job, JobId, JobParameters, JobState, JobToken,
    LinkChange, LinkSample, MinuteSamples, NodeId, Priority, RenewedToken, SettingChange, Settings,
    Timestamp, TransferEvent, TransferId, TransferRequest, TransferState, TuningDecision, VoName,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Something to persist. The journal stores records of one call in one transaction, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A job was accepted, with the tokens that its transfers refer to. They are stored sealed.
    JobAccepted {
        /// The job with all its transfers.
        job: Box<Job>,
        /// Tokens that the transfers refer to.
        tokens: Vec<JobToken>,
    },
    /// Something happened to a transfer: a line of the ledger, and where the transfer stands from then on.
    Happened {
        /// Wall clock.
        at: Timestamp,
        /// Monotonic clock of this process, microseconds since it started.
        monotonic_us: u64,
        job: JobId,
        transfer: TransferId,
        event: TransferEvent,
        /// The state that `advance` made of it.
        state: TransferState,
    },
    /// The last open transfer of a job ended. `state` is the roll-up of its transfers. Tokens that no open job
    /// refers to any more are gone.
    JobEnded {
        job: JobId,
        at: Timestamp,
        /// How it ended.
        state: JobState,
    },
    /// An issuer gave something newer for a token.
    TokenRenewed {
        /// Under which name transfers refer to it.
        id: CredentialId,
        /// What it gave.
        renewed: RenewedToken,
    },
    /// A job that has not ended got another priority.
    Reprioritised {
        job: JobId,
        /// The new priority.
        priority: Priority,
    },
    /// An operator changed a setting.
    Configured(Box<SettingChange>),
    /// A ban was imposed, changed or lifted.
    Banned(Box<BanChange>),
    /// A link was halted, tried or opened again.
    LinkChanged(Box<LinkChange>),
    /// How many transfers run on a link, or at a storage element, was decided anew.
    Tuned(Box<TuningDecision>),
    /// A transfer has ended, or is about to, and something has to be looked after at its destination. Takes the place
    /// of what was noted of the same transfer before.
    TidyingOwed(Box<Tidying>),
    /// That was done.
    TidiedUp {
        /// The transfer that had ended.
        transfer: TransferId,
    },
    /// What a link did in the last second.
    Sampled(LinkSample),
    /// What all did in a minute that is over, or in the part of it in which this process led.
    MinuteSampled(Box<MinuteSamples>),
}

/// What a restart finds beside the jobs that have not ended.
#[derive(Debug, Clone, Default)]
pub struct RestartFacts {
    /// The highest transfer id ever given, also when that transfer is no longer kept.
    pub transfer_id_max: u64,
    /// What operators have set.
    pub settings: Settings,
    /// The bans that hold.
    pub bans: Vec<Ban>,
    /// The last decision about each link and storage element that was tuned.
    pub tunings: Vec<TuningDecision>,
    /// What has to be looked after at destinations of transfers that have ended, by transfer.
    pub tidyings: Vec<Tidying>,
    /// Tokens that are to be renewed, and for which their issuers have given nothing yet.
    pub tokens_awaited: BTreeSet<CredentialId>,
}

/// A job that has not ended, as a restart finds it.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedJob {
    /// The job; its `transfers` are the open ones only.
    pub job: Job,
    /// Where each of these stands, in their order.
    pub states: Vec<TransferState>,
    /// One state for each way in which others of it have ended.
    pub ended: Vec<TransferState>,
}

impl UnfinishedJob {
    /// Adds one of its transfers to the open ones, or its state to those that have ended.
    pub fn sort_in(&mut self, request: TransferRequest, state: TransferState) {
        match state.is_terminal() {
            true => self.add_ended(state),
            false => {
                self.job.transfers.push(request);
                self.states.push(state);
            }
        }
    }

    /// Adds a way in which some have ended, unless it is there.
    pub fn add_ended(&mut self, state: TransferState) {
        let name = state.fts_name();
        if self.ended.iter().all(|seen| seen.fts_name() != name) {
            self.ended.push(state);
        }
    }
}

/// What has to be looked after at a destination although the transfer has ended: an attempt of it may have left something
/// there. It outlives the process that owes it, and what it takes to do it (the destination's token) outlives the job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tidying {
    /// The job that the transfer was of.
    pub job: JobId,
    pub vo: VoName,
    /// What had been asked for.
    pub request: TransferRequest,
    /// What held for it.
    pub parameters: JobParameters,
    /// Who works at that destination: an attempt that was told to stop, or the one that tidies up.
    pub attempt: Attempt,
    /// Where it works; `None`: in the one process of the service.
    pub node: Option<NodeId>,
    /// It is the copy, which was told to stop; else it tidies up.
    pub copies: bool,
    /// Somebody has to tidy up also when the copy has cleaned up after itself.
    pub is_due: bool,
    /// When the agent of the last attempt closed its connections; `None`: it is not known that it did.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// When it was first tried in vain.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// How often it was tried in vain.
    #[serde(default)]
    pub tries: u32,
    /// Nobody works at it until then.
    #[serde(default)]
    pub next_at: Option<Timestamp>,
}
