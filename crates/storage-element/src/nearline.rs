//! Files on tape: what is put there, what is brought back, and what may leave the disks.
//!
//! One thread drives the tape system: an HSM by its commands, or tape libraries. The namespace is the truth about files: a file that
//! is to be put on tape, one that somebody waits for and a copy that is to be removed are rows there, written before anybody is
//! answered. What the tape system records is its memory of tries, pauses, mounts and running commands; at a start both are
//! compared, and the namespace counts.

mod driver;
mod driver_task;
mod eviction;
mod hsm_failures;
mod hsm_program;
mod opening;
mod operator;
mod put_faults;
mod put_source;
mod recall;
mod room_wait;
mod submission;
mod tape_libraries;
mod tape_system;
mod wording;

pub(crate) use driver_task::RecallOutlooks;
use hsm_failures::HsmStatus;
pub(crate) use submission::{Submission, SubmittedFile};

use crate::clock::BelievedClock;
use crate::config::NearlineConfig;
use crate::nearline_inbox::{NearlineInbox, NearlineMail, NearlineMessage};
use crate::open_error::OpenError;
use crate::reaper::{Pools, ReaperHandle};
use crate::tape_counts::TapeCounts;
use crate::tape_meter::{MeterReading, TapeMeter};
use crate::timed_join::end_thread;
use parking_lot::Mutex;
use penstock_model::{Timestamp, UserName};
use penstock_persistence::namespace::Namespace;
use penstock_protocol::fair_turns::FairTurns;
use put_faults::PutFaults;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub(crate) use tape_libraries::{DriveActivity, LibrariesStatus, LiveBytes};
use tokio::sync::Semaphore;

/// Threads for looks at disks.
const BLOCKING_THREADS: usize = 16;
/// Files of one pool that were put on tape and are read at once to be compared.
const COMPARED_PER_POOL: usize = 2;
/// Large requests that are received at once, and those of one user among them.
const RECEIVED_AT_ONCE: usize = 8;
const RECEIVED_AT_ONCE_OF_USER: usize = 2;
/// Requests that are worked on at once, of whatever size.
const WORKED_AT_ONCE: usize = 8;
const WORKED_AT_ONCE_OF_USER: usize = 2;
/// Large answers that are being sent.
const TOLD_AT_ONCE: usize = 16;
const TOLD_AT_ONCE_OF_USER: usize = 2;
/// How long an end waits for running commands to be stopped.
const END_WAIT: Duration = Duration::from_secs(30);

/// What people are told of the tape system.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct NearlineStatus {
    pub counts: TapeCounts,
    /// What a person should look at, and since when.
    pub incidents: Vec<NearlineIncident>,
    /// Of an HSM that is driven by commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsm: Option<HsmStatus>,
    /// Of tape libraries; `None`: an HSM is driven by commands, which do not tell what drives do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libraries: Option<LibrariesStatus>,
    /// Of files that are to be brought.
    #[serde(skip)]
    pub outlooks: Arc<RecallOutlooks>,
}

/// What a monitor is told of the tape system.
#[derive(Debug, Clone, Default)]
pub(crate) struct TapeFigures {
    pub counts: TapeCounts,
    /// How many drives are in which state; `None`: an HSM does not tell.
    pub drives: Option<BTreeMap<DriveActivity, u64>>,
    /// Open incidents by their codes.
    pub incidents: BTreeMap<&'static str, u64>,
    pub meter: MeterReading,
    /// What files that are on tape, or are to be put there, take on disk, as it was counted last.
    pub disk_bytes: u64,
}

/// What a person should look at.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NearlineIncident {
    pub code: &'static str,
    /// The same in words, with what to do.
    pub what: String,
    pub since: Timestamp,
    /// The last words of the command that failed.
    pub fault: Option<String>,
}

/// The thread that drives the tape system. Dropping it stops commands and drives.
pub(crate) struct Nearline {
    pub config: NearlineConfig,
    pub inbox: NearlineInbox,
    pub turns: TapeTurns,
    /// What WLCG collects of tapes, as it was found out last.
    pub metrics: MetricsCache,
    /// As it was counted last.
    tape_bytes_on_disk: Arc<AtomicU64>,
    pools: Pools,
    meter: Arc<TapeMeter>,
    status: Arc<Mutex<NearlineStatus>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A document that anybody may ask for, and that costs a look at all copies on tape: found out once for all who ask in a while.
#[derive(Debug)]
pub(crate) struct MetricsCache {
    /// One of them finds it out.
    pub turn: Semaphore,
    known: Mutex<Option<(Instant, Value)>>,
}

/// How long it counts.
const METRICS_KEPT: Duration = Duration::from_secs(60);

impl Default for MetricsCache {
    fn default() -> MetricsCache {
        MetricsCache {
            turn: Semaphore::new(1),
            known: Mutex::new(None),
        }
    }
}

/// Who may use memory, the threads of doors and the writer of the namespace for requests of files on tape, which may name many
/// files: few at once, and fewer of one user.
pub(crate) struct TapeTurns {
    /// To send a large body.
    pub receiving: FairTurns<UserName>,
    /// To have a request understood and carried out.
    pub working: FairTurns<UserName>,
    /// To receive a large answer.
    pub telling: FairTurns<UserName>,
}

impl TapeTurns {
    fn new() -> TapeTurns {
        TapeTurns {
            receiving: FairTurns::new(RECEIVED_AT_ONCE, RECEIVED_AT_ONCE_OF_USER),
            working: FairTurns::new(WORKED_AT_ONCE, WORKED_AT_ONCE_OF_USER),
            telling: FairTurns::new(TOLD_AT_ONCE, TOLD_AT_ONCE_OF_USER),
        }
    }
}

impl MetricsCache {
    pub(crate) fn known(&self) -> Option<Value> {
        let known = self.known.lock();
        let (since, document) = known.as_ref()?;
        (since.elapsed() < METRICS_KEPT).then(|| document.clone())
    }

    pub(crate) fn know(&self, document: Value) {
        *self.known.lock() = Some((Instant::now(), document));
    }
}

/// What the driver works with.
#[derive(Clone)]
pub(crate) struct NearlineContext {
    pub namespace: Arc<Namespace>,
    pub clock: Arc<BelievedClock>,
    pub pools: Pools,
    pub reaper: ReaperHandle,
    pub meter: Arc<TapeMeter>,
    pub put_faults: Arc<PutFaults>,
}

/// Between two looks at the buffer of the HSM, and how long one may take until it counts as unknown.
const BUFFER_INTERVAL: Duration = Duration::from_secs(1);
const BUFFER_WAIT: Duration = Duration::from_secs(5);

/// Between two counts of what files for tape take on disk.
const COUNT_INTERVAL: Duration = Duration::from_secs(300);

/// Counts that again and again. Never ends.
async fn count_tape_bytes(namespace: Arc<Namespace>, bytes: Arc<AtomicU64>) {
    loop {
        let counted = Arc::clone(&namespace);
        let counted = tokio::task::spawn_blocking(move || counted.tape_bytes_on_disk()).await;
        match counted {
            Ok(Ok(counted)) => bytes.store(counted.0, Ordering::Relaxed),
            Ok(Err(why)) => {
                tracing::warn!(%why, "what files for tape take on disk cannot be counted");
            }
            // The runtime ends.
            Err(_) => {}
        }
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}

/// Looks again and again at how full the file system is through which the HSM takes files. Never ends.
async fn watch_buffer(directory: Option<PathBuf>, meter: Arc<TapeMeter>) {
    let Some(directory) = directory else {
        return std::future::pending().await;
    };
    loop {
        let place = directory.clone();
        let mut look = tokio::task::spawn_blocking(move || used_permille(&place));
        let looked = match tokio::time::timeout(BUFFER_WAIT, &mut look).await {
            Ok(looked) => looked.ok().flatten(),
            Err(_) => {
                meter.set_buffer_used(None);
                // One that hangs is waited for, so that there are never two.
                look.await.ok().flatten()
            }
        };
        meter.set_buffer_used(looked);
        tokio::time::sleep(BUFFER_INTERVAL).await;
    }
}

/// Of a thousand parts of a file system, how many are in use, as far as others than root may use them.
fn used_permille(directory: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(directory).ok()?;
    let used = u128::from(stat.f_blocks.checked_sub(stat.f_bfree)?);
    let all = used + u128::from(stat.f_bavail);
    let rounded_up = (used * 1000).div_ceil(all.max(1));
    u64::try_from(rounded_up).ok()
}

impl Nearline {
    /// Starts the driver.
    ///
    /// Errors: no thread, records that cannot be read, or files that are on tape in another tape system.
    pub(crate) fn start(
        config: NearlineConfig,
        context: NearlineContext,
        inbox: NearlineInbox,
        mail: NearlineMail,
    ) -> Result<Nearline, OpenError> {
        let status = Arc::new(Mutex::new(NearlineStatus::default()));
        let (pools, meter) = (context.pools.clone(), Arc::clone(&context.meter));
        let watch = watch_buffer(config.buffer_directory.clone(), Arc::clone(&context.meter));
        let tape_bytes_on_disk = Arc::new(AtomicU64::new(0));
        let count = count_tape_bytes(
            Arc::clone(&context.namespace),
            Arc::clone(&tape_bytes_on_disk),
        );
        let driver = opening::open(&config, context, Arc::clone(&status))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Each recall may be looked at on one of its own, and others look at disks.
            .max_blocking_threads(
                config.recalls_max() + COMPARED_PER_POOL * pools.len() + BLOCKING_THREADS,
            )
            .build()
            .map_err(OpenError::Thread)?;
        let thread = std::thread::Builder::new().name("nearline".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = driver.run(mail) => {}
                    () = watch => {}
                    () = count => {}
                }
            });
        });
        let thread = thread.map_err(OpenError::Thread)?;
        Ok(Nearline {
            config,
            inbox,
            turns: TapeTurns::new(),
            metrics: MetricsCache::default(),
            tape_bytes_on_disk,
            pools,
            meter,
            status,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// When files that are to be brought will be on disk, and why they wait, as far as that can be told.
    pub(crate) fn outlooks(&self) -> Arc<RecallOutlooks> {
        Arc::clone(&self.status.lock().outlooks)
    }

    pub(crate) fn status(&self) -> NearlineStatus {
        self.status.lock().clone()
    }

    /// What a monitor is told, summed up so that it costs the same whatever waits.
    pub(crate) fn figures(&self) -> TapeFigures {
        let status = self.status.lock();
        let mut incidents: BTreeMap<&'static str, u64> = BTreeMap::new();
        for incident in &status.incidents {
            *incidents.entry(incident.code).or_default() += 1;
        }
        let drives = status.libraries.as_ref().map(|libraries| {
            let mut drives: BTreeMap<DriveActivity, u64> = BTreeMap::new();
            for drive in &libraries.drives {
                *drives.entry(drive.state).or_default() += 1;
            }
            drives
        });
        TapeFigures {
            counts: status.counts,
            drives,
            incidents,
            meter: self.meter.read(),
            disk_bytes: self.tape_bytes_on_disk.load(Ordering::Relaxed),
        }
    }

    /// Its thread runs.
    pub(crate) fn is_alive(&self) -> bool {
        let thread = self.thread.lock();
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Nearline {
    fn drop(&mut self) {
        self.inbox.send(NearlineMessage::Stop);
        if let Some(thread) = self.thread.get_mut().take() {
            end_thread(thread, Instant::now() + END_WAIT, "nearline");
        }
    }
}
