//! Agents: each runs one attempt of one transfer, from the first look at both ends to the verified file.
//!
//! An agent costs a task and a few kilobytes. It reports `Prepared` and waits until that is durable before any byte
//! moves, and it reports its end exactly once. It does not decide about retries, slots or states.

mod cleartext_tokens;
mod cloud;
mod cloud_access;
mod cloud_upload;
mod destination_evidence;
mod gfal;
mod http;
mod macaroons;
mod proxy;
mod source_removal;
mod steps;
mod storage_token;
mod streamed;
mod tape;
mod third_party;

pub(crate) use gfal::Gfal;
pub use gfal::{GfalConfig, SftpAccount, gfal_plugins};

use crate::tokens::{TokenKeeper, is_unreadable};
use parking_lot::Mutex;
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_decide::minute_meter::TransferGroup;
use penstock_engine::{AgentReport, Assignment, AttemptKey, AttemptOutcome, Task};
use penstock_journal::JournalReader;
use penstock_model::{Bytes, IpVersion, LinkId, Phase, Settings, Side};
use penstock_persistence::delegations::Delegations;
use penstock_protocol::hosts::HostPattern;
use penstock_protocol::http1::client::Client;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// A size that is not known.
const UNKNOWN: u64 = u64::MAX;
/// How many proxies and directories are remembered before the memory is emptied.
const REMEMBERED_MAX: usize = 10_000;
/// MiB of parts of uploads that are held at once, over all agents.
const UPLOAD_MEMORY_MIB: u32 = 1024;
/// How many agents tidy up at once.
const TIDYING_MAX: usize = 16;

/// How long agents wait for what.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// No line of a marker stream, no byte of a body.
    pub stall_timeout: Duration,
    /// Markers arrive, but the byte count in them stands still.
    pub progress_timeout: Duration,
    /// Seconds an attempt may take beside those for its size.
    pub timeout_base: Duration,
    /// Seconds per MiB of size.
    pub timeout_per_mib: Duration,
    /// No answer of a tape system.
    pub tape_timeout: Duration,
    /// Hosts that are shown tokens over lines that are not encrypted.
    pub tokens_unencrypted: Vec<HostPattern>,
}

impl Default for AgentConfig {
    /// FTS3's figures: 600 s and 2 s per MiB; a mover that has stood still for 600 s is stuck.
    fn default() -> Self {
        AgentConfig {
            stall_timeout: Duration::from_secs(120),
            progress_timeout: Duration::from_secs(600),
            timeout_base: Duration::from_secs(600),
            timeout_per_mib: Duration::from_secs(2),
            tape_timeout: Duration::from_secs(60),
            tokens_unencrypted: Vec::new(),
        }
    }
}

/// What all agents share.
#[derive(Clone)]
pub(crate) struct AgentSetup {
    pub(crate) client: Client,
    /// For jobs that ask for one version of the Internet protocol.
    pub(crate) by_version: IpVersionClients,
    pub(crate) reader: Arc<dyn JournalReader>,
    pub(crate) delegations: Arc<Delegations>,
    pub(crate) config: AgentConfig,
    /// As far as they are durable.
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) memory: Arc<AgentCaches>,
    pub(crate) tokens: Arc<TokenKeeper>,
    /// `None`: this service moves nothing by gfal2.
    pub(crate) gfal: Option<Arc<Gfal>>,
}

/// Clients that connect by one version of the Internet protocol each.
#[derive(Clone)]
pub(crate) struct IpVersionClients {
    v4: Client,
    v6: Client,
}

impl IpVersionClients {
    pub(crate) fn of(client: &Client) -> IpVersionClients {
        IpVersionClients {
            v4: client.with_ip_version(IpVersion::V4),
            v6: client.with_ip_version(IpVersion::V6),
        }
    }
}

/// What agents remember between transfers, and share.
#[derive(Debug)]
pub(crate) struct AgentCaches {
    /// Agents that tidy up hold no slots: this bounds how many do it at once.
    tidying: Semaphore,
    /// A permit for each MiB of [`UPLOAD_MEMORY_MIB`].
    uploading: Semaphore,
    /// Directories (as URLs) that are known to exist at destinations.
    directories: Mutex<HashSet<String>>,
    proxies: proxy::Proxies,
    macaroons: macaroons::Macaroons,
    tapes: tape::Interfaces,
}

impl Default for AgentCaches {
    fn default() -> AgentCaches {
        AgentCaches {
            tidying: Semaphore::new(TIDYING_MAX),
            uploading: Semaphore::new(UPLOAD_MEMORY_MIB as usize),
            directories: Mutex::default(),
            proxies: proxy::Proxies::default(),
            macaroons: macaroons::Macaroons::default(),
            tapes: tape::Interfaces::default(),
        }
    }
}

impl AgentCaches {
    fn knows_directory(&self, url: &str) -> bool {
        self.directories.lock().contains(url)
    }

    fn learn_directory(&self, url: &str) {
        let mut directories = self.directories.lock();
        if directories.len() >= REMEMBERED_MAX {
            directories.clear();
        }
        directories.insert(url.to_owned());
    }
}

/// How far an attempt is. Written by its agent, read once a second.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) link: LinkId,
    assignment: Arc<penstock_model::TransferRequest>,
    job: penstock_model::JobId,
    vo: penstock_model::VoName,
    started: Instant,
    moved: AtomicU64,
    sampled: AtomicU64,
    /// When it was last found to have moved, milliseconds since it started.
    advanced_ms: AtomicU64,
    /// It waits for its turn at a storage element.
    queued: AtomicBool,
    size: AtomicU64,
}

impl Progress {
    pub(crate) fn new(assignment: &Assignment, started: Instant) -> Progress {
        Progress {
            link: assignment.request.link(),
            assignment: assignment.request.clone(),
            job: assignment.job,
            vo: assignment.vo.clone(),
            started,
            moved: AtomicU64::new(0),
            sampled: AtomicU64::new(0),
            advanced_ms: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            size: AtomicU64::new(UNKNOWN),
        }
    }

    /// Whose sums it counts in.
    pub(crate) fn group(&self) -> TransferGroup {
        TransferGroup {
            link: self.link.clone(),
            vo: self.vo.clone(),
            activity: self.assignment.activity.clone(),
        }
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Since when it is known here.
    pub(crate) fn ran(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn set_moved(&self, bytes: u64) {
        self.moved.store(bytes, Ordering::Relaxed);
    }

    /// Bytes moved, and the size if it is known.
    pub(crate) fn told(&self) -> (u64, Option<u64>) {
        let size = self.size.load(Ordering::Relaxed);
        (self.moved(), (size != UNKNOWN).then_some(size))
    }

    /// As another node tells.
    pub(crate) fn follow(&self, moved: u64, size: Option<u64>) {
        self.set_moved(moved);
        self.set_size(size.unwrap_or(UNKNOWN));
    }

    fn add_moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    fn set_size(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Relaxed);
    }

    /// Bytes since the last call. A copy that fell back to another way counts its bytes again: they moved again.
    pub(crate) fn take_unsampled(&self) -> u64 {
        let moved = self.moved();
        let before = self.sampled.swap(moved, Ordering::Relaxed);
        if moved >= before {
            moved - before
        } else {
            moved
        }
    }

    /// Seconds since it was last found to have moved, now that it is found to have moved again.
    pub(crate) fn lag(&self) -> f64 {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = self.advanced_ms.swap(now, Ordering::Relaxed);
        now.saturating_sub(before) as f64 / 1000.0
    }

    /// For how long it has moved nothing. `None`: it has not begun to, or waits for its turn at a storage element.
    pub(crate) fn silence(&self) -> Option<Duration> {
        if self.moved() == 0 || self.is_queued() {
            return None;
        }
        let advanced = Duration::from_millis(self.advanced_ms.load(Ordering::Relaxed));
        Some(self.started.elapsed().saturating_sub(advanced))
    }

    fn set_queued(&self, is_queued: bool) {
        self.queued.store(is_queued, Ordering::Relaxed);
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn to_row(&self) -> ActiveRow {
        let (moved_bytes, size_bytes) = self.told();
        ActiveRow {
            transfer: self.assignment.id.0,
            job: self.job.to_string(),
            vo: self.vo.to_string(),
            source: self.assignment.source.to_string(),
            destination: self.assignment.destination.to_string(),
            moved_bytes,
            size_bytes,
            seconds: self.started.elapsed().as_secs_f64(),
        }
    }
}

/// One running transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ActiveRow {
    pub transfer: u64,
    pub job: String,
    pub vo: String,
    pub source: String,
    pub destination: String,
    pub moved_bytes: u64,
    pub size_bytes: Option<u64>,
    pub seconds: f64,
}

/// Resolves when an agent is asked to stop.
pub(crate) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    pub(crate) fn new(receiver: watch::Receiver<bool>) -> StopSignal {
        StopSignal(receiver)
    }

    async fn stopped(&mut self) {
        // A sender that is gone without a word will never stop it.
        if self.0.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl AgentSetup {
    /// The same, for a job that asks for a version of the Internet protocol.
    fn reaching_by(self: Arc<Self>, version: Option<IpVersion>) -> Arc<Self> {
        let client = match version {
            None => return self,
            Some(IpVersion::V4) => self.by_version.v4.clone(),
            Some(IpVersion::V6) => self.by_version.v6.clone(),
        };
        Arc::new(AgentSetup {
            client,
            ..AgentSetup::clone(&self)
        })
    }

    /// Runs one attempt to its end and reports it. Never panics on what storage elements answer; should it panic
    /// all the same, the slot is given back with a failure.
    pub(crate) async fn agent(
        self: Arc<Self>,
        assignment: Assignment,
        progress: Arc<Progress>,
        may_proceed: oneshot::Receiver<()>,
        mut stop: StopSignal,
        reports: mpsc::Sender<AgentReport>,
    ) {
        let AttemptKey { transfer, attempt } = assignment.key();
        let mut guard = EndReport {
            reports: reports.clone(),
            transfer,
            attempt,
            sent: false,
        };
        let setup = self.reaching_by(assignment.parameters.ip_version);
        let work = steps::AttemptRun::new(&setup, &assignment, &progress);
        let outcome = match assignment.task {
            Task::Copy => tokio::select! {
                outcome = work.run(may_proceed, &reports) => match outcome {
                    // What the service cannot read of its own is no failure of the transfer.
                    AttemptOutcome::Failed { failure, cleaned: true, .. } if is_unreadable(&failure) => {
                        tracing::warn!(transfer = transfer.0, %failure, "an attempt will be restarted later");
                        AttemptOutcome::Dropped
                    }
                    outcome => outcome,
                },
                () = stop.stopped() => match work.clean_up().await {
                    true => AttemptOutcome::Stopped,
                    false => AttemptOutcome::Unsettled,
                }
            },
            Task::TidyUp => {
                tokio::select! {
                    tidied = work.tidy_up() => match tidied {
                        Ok(()) => AttemptOutcome::Tidied,
                        Err(failure) => work.untidied(failure),
                    },
                    () = stop.stopped() => AttemptOutcome::Stopped,
                }
            }
            Task::RemoveSource => {
                tokio::select! {
                    removed = work.remove_source() => match removed {
                        Ok(()) => AttemptOutcome::Tidied,
                        Err(failure) => AttemptOutcome::Untidied { failure },
                    },
                    () = stop.stopped() => AttemptOutcome::Stopped,
                }
            }
        };
        // Its slots are free when nothing of it runs any more.
        work.let_process_go().await;
        guard.sent = true;
        let report = AgentReport::Ended {
            transfer,
            attempt,
            outcome,
        };
        // The loop outlives its agents; when it does not, a restart finds the attempt lost.
        let _ = reports.send(report).await;
    }
}

/// Gives the slot back even if the agent panics.
struct EndReport {
    reports: mpsc::Sender<AgentReport>,
    transfer: penstock_model::TransferId,
    attempt: penstock_model::Attempt,
    sent: bool,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        if self.sent {
            return;
        }
        let detail = "the agent ended unexpectedly; see the service's log".to_owned();
        let failure = classify(
            Side::Service,
            Phase::Service,
            &ObservedFailure::Broken,
            detail,
        );
        let outcome = AttemptOutcome::Failed {
            failure,
            cleaned: false,
            moved: Bytes(0),
        };
        let report = AgentReport::Ended {
            transfer: self.transfer,
            attempt: self.attempt,
            outcome,
        };
        let reports = self.reports.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(reports.send(report).await) });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
