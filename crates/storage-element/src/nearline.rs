//! Files on tape: what is put there, what is brought back, and what may leave the disks.
//!
//! One thread drives the tape system: an HSM by its commands, or tape libraries. The namespace is the truth about files: a file that
//! is to be put on tape, one that somebody waits for and a copy that is to be removed are rows there, written before anybody is
//! answered. What the tape system records is its memory of tries, pauses, mounts and running commands; at a start both are
//! compared, and the namespace counts.

mod driver;
mod eviction;
mod hsm_program;
mod opening;
mod recall;
mod submission;
mod tape_libraries;
mod tape_system;

pub(crate) use submission::{Submission, SubmittedFile};

use crate::clock::BelievedClock;
use crate::config::NearlineConfig;
use crate::nearline_inbox::{NearlineInbox, NearlineMail, NearlineMessage};
use crate::open_error::OpenError;
use crate::reaper::{Pools, ReaperHandle};
use crate::timed_join::end_thread;
use parking_lot::Mutex;
use penstock_model::Timestamp;
use penstock_persistence::namespace::Namespace;
use penstock_tape::hsm_queue::HsmCounts;
use serde::Serialize;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub(crate) use tape_libraries::LibrariesStatus;

/// Threads for looks at disks.
const BLOCKING_THREADS: usize = 16;
/// How long an end waits for running commands to be stopped.
const END_WAIT: Duration = Duration::from_secs(30);

/// What people are told of the tape system.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct NearlineStatus {
    pub counts: HsmCounts,
    /// New files are welcome.
    pub is_admitting: bool,
    /// What a person should look at, and since when.
    pub incidents: Vec<NearlineIncident>,
    /// Of tape libraries; `None`: an HSM is driven by commands, which do not tell what drives do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libraries: Option<LibrariesStatus>,
}

/// One of them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NearlineIncident {
    pub what: String,
    pub since: Timestamp,
    /// The last words of the command that failed.
    pub fault: Option<String>,
}

/// The thread that drives the tape system. Dropping it stops commands and drives.
pub(crate) struct Nearline {
    pub config: NearlineConfig,
    pub inbox: NearlineInbox,
    status: Arc<Mutex<NearlineStatus>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the driver works with.
#[derive(Clone)]
pub(crate) struct NearlineContext {
    pub namespace: Arc<Namespace>,
    pub clock: Arc<BelievedClock>,
    pub pools: Pools,
    pub reaper: ReaperHandle,
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
        let driver = opening::open(&config, context, Arc::clone(&status))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Each recall may be looked at on one of its own, and others look at disks.
            .max_blocking_threads(config.recalls_max() + BLOCKING_THREADS)
            .build()
            .map_err(OpenError::Thread)?;
        let thread = std::thread::Builder::new().name("nearline".to_owned());
        let thread = thread.spawn(move || runtime.block_on(driver.run(mail)));
        let thread = thread.map_err(OpenError::Thread)?;
        Ok(Nearline {
            config,
            inbox,
            status,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(crate) fn status(&self) -> NearlineStatus {
        self.status.lock().clone()
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
