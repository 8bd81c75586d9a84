//! Files on tape: what is put there, what is brought back, and what may leave the disks.
//!
//! One thread drives the HSM. The namespace is the truth about files: a file that is to be put on tape, one that somebody
//! waits for and a copy that is to be removed are rows there, written before anybody is answered. What the queue of the HSM
//! records is its memory of tries, pauses and running commands; at a start both are compared, and the namespace counts.

mod driver;
mod eviction;
mod recall;
mod submission;

pub(crate) use submission::{Submission, SubmittedFile};

use crate::clock::BelievedClock;
use crate::hsm_command::HsmProgram;
use crate::reaper::{Pools, ReaperHandle};
use crate::timed_join::end_thread;
use driver::Driver;
use parking_lot::Mutex;
use penstock_model::{Archival, Bytes, NamespacePath, Timestamp};
use penstock_persistence::namespace::{EntryId, Namespace};
use penstock_tape::hsm_queue::{HsmCommandId, HsmCommandEnd, HsmCounts, HsmPolicy};
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long an end waits for running commands to be stopped.
const END_WAIT: Duration = Duration::from_secs(30);

/// What a storage element does with tape.
#[derive(Debug, Clone)]
pub struct NearlineConfig {
    /// Which files go to tape. Of several that fit the one with the longest path counts.
    pub classes: Vec<ArchiveClass>,
    /// The commands of the HSM.
    pub program: HsmProgram,
    pub policy: HsmPolicy,
    /// How long a file stays on disk when whoever asks for it does not say.
    pub pin_usual: Duration,
    pub pin_max: Duration,
    /// Files in one stage request.
    pub stage_files_max: usize,
    /// How long a stage request that is over can be asked for.
    pub stage_kept: Duration,
    /// Of each pool's space so much is kept free, in thousandths, by letting go of copies of files that are on tape.
    pub keep_free_permille: u16,
    /// As which this site is known to users of its tape interface.
    pub site_name: String,
}

/// Files that go to tape, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveClass {
    /// Files below this directory.
    pub path: NamespacePath,
    /// Their family on tape: files of one family are put together.
    pub family: String,
}

impl NearlineConfig {
    /// The class of a path, if its files go to tape.
    pub(crate) fn class_of(&self, path: &NamespacePath) -> Option<&ArchiveClass> {
        let fits = self.classes.iter().filter(|class| path.is_within(&class.path));
        fits.max_by_key(|class| class.path.names().len())
    }
}

/// What the driver may be told.
#[derive(Debug)]
enum Message {
    /// A file that is to be put on tape is visible.
    Precious(EntryId),
    /// Somebody waits for files, or no longer does: the namespace tells which.
    Asked(Vec<EntryId>),
    Progressed { command: HsmCommandId, bytes: u64 },
    Ended { command: HsmCommandId, end: HsmCommandEnd },
    /// A file that an HSM has brought was looked at.
    Checked { command: HsmCommandId, end: HsmCommandEnd },
    /// An operator wants what waits for its next try to be tried now.
    RetryNow,
    Stop,
}

/// Where whoever makes or wants a file tells so. Never blocks.
#[derive(Clone)]
pub(crate) struct NearlineInbox(mpsc::UnboundedSender<Message>);

impl NearlineInbox {
    /// A file that is to be put on tape is visible.
    pub(crate) fn precious(&self, file: EntryId) {
        self.send(Message::Precious(file));
    }

    /// The namespace tells something new of who waits for these.
    pub(crate) fn asked(&self, files: Vec<EntryId>) {
        if !files.is_empty() {
            self.send(Message::Asked(files));
        }
    }

    /// What failed is tried again at once.
    pub(crate) fn retry_now(&self) {
        self.send(Message::RetryNow);
    }

    fn send(&self, message: Message) {
        // Once the driver has ended the next start finds everything in the namespace.
        let _ = self.0.send(message);
    }
}

/// What people are told of the tape system.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct NearlineStatus {
    pub counts: HsmCounts,
    /// New files are welcome.
    pub is_admitting: bool,
    /// What a person should look at, and since when.
    pub incidents: Vec<NearlineIncident>,
}

/// One of them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NearlineIncident {
    pub what: String,
    pub since: Timestamp,
    /// The last words of the command that failed.
    pub fault: Option<String>,
}

/// The thread that drives the HSM. Dropping it stops its commands.
pub(crate) struct Nearline {
    pub config: NearlineConfig,
    pub inbox: NearlineInbox,
    status: Arc<Mutex<NearlineStatus>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the driver works with.
pub(crate) struct NearlineContext {
    pub namespace: Arc<Namespace>,
    pub clock: Arc<BelievedClock>,
    pub pools: Pools,
    pub reaper: ReaperHandle,
}

impl Nearline {
    /// An inbox that is there before the driver: what makes files visible starts earlier.
    pub(crate) fn inbox() -> (NearlineInbox, NearlineMail) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (NearlineInbox(sender), NearlineMail(receiver))
    }

    /// Starts the driver.
    ///
    /// Errors: no thread, or the queue's records cannot be read.
    pub(crate) fn start(
        config: NearlineConfig,
        context: NearlineContext,
        inbox: NearlineInbox,
        mail: NearlineMail,
    ) -> io::Result<Nearline> {
        let status = Arc::new(Mutex::new(NearlineStatus::default()));
        let driver = Driver::new(config.clone(), context, inbox.clone(), Arc::clone(&status))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .build()?;
        let thread = std::thread::Builder::new().name("nearline".to_owned());
        let thread = thread.spawn(move || runtime.block_on(driver.run(mail.0)))?;
        Ok(Nearline {
            config,
            inbox,
            status,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Whether a new file at this path goes to tape.
    pub(crate) fn archival_of(&self, path: &NamespacePath) -> Archival {
        match self.config.class_of(path) {
            Some(_) => Archival::Precious,
            None => Archival::DiskOnly,
        }
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
        self.inbox.send(Message::Stop);
        if let Some(thread) = self.thread.get_mut().take() {
            end_thread(thread, Instant::now() + END_WAIT, "nearline");
        }
    }
}

/// What has come before the driver runs.
pub(crate) struct NearlineMail(mpsc::UnboundedReceiver<Message>);

/// What a pool may have to do for a file.
fn bytes(size: u64) -> Bytes {
    Bytes(size)
}
