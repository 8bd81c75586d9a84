//! Files are put on tape and brought back by the commands of an HSM, which its queue orders. Long because each input and effect of
//! the queue has its arm.

use super::driver_task::{LocalError, RecallEnd, TapeGet, TapeOutcome, TapePut};
use super::hsm_failures::{HsmFailureCause, HsmFailures, next_try};
use super::tape_libraries::COPY_SCHEME;
use super::tape_system::{TapeSystem, TaskOf};
use super::wording::{
    COPY_NOT_UNDERSTOOD, hsm_incident, hsm_incident_code, hsm_incident_end, log_begin, log_end,
    name_of,
};
use super::{NearlineContext, NearlineIncident, NearlineStatus};
use crate::config::{ArchiveClasses, HsmProgramConfig};
use crate::hsm_command::{HsmCall, HsmRunner, HsmStorageInfo};
use crate::tape_counts::TapeCounts;
use crate::tape_meter::MeterState;
use penstock_model::{Archival, Timestamp};
use penstock_persistence::namespace::{
    EntryId, NamespaceError, TapeCopyUri, TapeFile, TapeRemoval,
};
use penstock_tape::hsm_queue::{
    HsmCommand, HsmCommandEnd, HsmCommandId, HsmEffect, HsmFault, HsmFaultSource, HsmGet,
    HsmIncident, HsmInput, HsmKind, HsmOutcome, HsmPut, HsmQueue, HsmRecord, HsmRemove, HsmStop,
    HsmTarget, HsmUri, HsmWork,
};
use penstock_tape::request::{Asker, FileId, RequestId, VoName as TapeVo};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;

/// News of commands that wait to be taken; commands wait beyond.
const NEWS_MAX: usize = 1_000;
/// Sets requests for recalls apart from those to put the same file on tape.
const RECALL_BIT: u64 = 1 << 63;
/// The same for removals, which have numbers of their own.
const REMOVAL_BIT: u64 = 1 << 62;

/// What commands do once the records of the queue are kept. A get is begun when there is a place for its file.
#[derive(Debug)]
pub(super) enum CommandWork {
    Put {
        command: HsmCommandId,
        file: EntryId,
    },
    Remove {
        command: HsmCommandId,
        uri: HsmUri,
        /// Whose copy it is, if that is known.
        of: Option<FileId>,
    },
    Stop(HsmCommandId),
}

type Task = TaskOf<HsmProgram>;

/// An HSM that is driven by commands.
pub(super) struct HsmProgram {
    context: NearlineContext,
    classes: ArchiveClasses,
    queue: HsmQueue,
    runner: HsmRunner,
    news: mpsc::Receiver<HsmInput>,
    /// What a request to remove removes.
    removals: BTreeMap<RequestId, HsmUri>,
    next_removal: u64,
    /// Gets that run and have given nothing yet, as they wait in the HSM, and since when their files are waited for.
    silent_gets: BTreeMap<HsmCommandId, i64>,
    failures: HsmFailures,
    /// The last words of faults that incidents were opened with.
    faults: BTreeMap<HsmIncident, HsmFault>,
    wake_ns: Option<i64>,
}

impl HsmProgram {
    /// Errors: a record is none of an HSM's queue.
    pub(super) fn restore(
        config: &HsmProgramConfig,
        classes: ArchiveClasses,
        context: NearlineContext,
        journal: &[String],
    ) -> io::Result<HsmProgram> {
        let records = journal.iter().map(|record| serde_json::from_str(record));
        let records: Result<Vec<HsmRecord>, _> = records.collect();
        let records = records.map_err(io::Error::other)?;
        let (sender, news) = mpsc::channel(NEWS_MAX);
        let mut program = HsmProgram {
            context,
            classes,
            queue: HsmQueue::restore(config.policy.clone(), &records),
            runner: HsmRunner::new(config.commands.clone(), sender),
            news,
            removals: BTreeMap::new(),
            next_removal: 0,
            silent_gets: BTreeMap::new(),
            failures: HsmFailures::new(
                config.commands.program.display().to_string(),
                &config.commands.environment,
            ),
            faults: BTreeMap::new(),
            wake_ns: None,
        };
        program.know_removals();
        Ok(program)
    }

    /// The removals that the queue remembers.
    fn know_removals(&mut self) {
        for (target, entry) in &self.queue.live().entries {
            let HsmTarget::Remove(uri) = target else {
                continue;
            };
            for request in entry.askers.keys() {
                self.removals.insert(*request, uri.clone());
                self.next_removal = self.next_removal.max((request.0 & !REMOVAL_BIT) + 1);
            }
        }
    }

    fn now_ns(&self) -> i64 {
        self.context.clock.recorded().0.saturating_mul(1_000_000)
    }

    fn input(&mut self, input: HsmInput) -> Vec<Task> {
        let failed = self.failure(&input);
        let effects = self.queue.handle(self.now_ns(), input);
        if let Some((target, cause)) = failed {
            let next_try = next_try(self.queue.live(), &target);
            let namespace = &self.context.namespace;
            let name = || match &target {
                HsmTarget::Put(file) | HsmTarget::Get(file) => {
                    let found = namespace.tape_file(EntryId(file.0)).ok().flatten();
                    found.map_or_else(|| name_of(&target), |found| found.path.to_string())
                }
                HsmTarget::Remove(uri) => uri.as_str().to_owned(),
            };
            let at = self.context.clock.recorded();
            self.failures.add(at, &cause, name, next_try);
        }
        self.orders(effects)
    }

    /// What a command has failed with, if it has, and what it was for. What was ordered to stop has not.
    fn failure(&self, input: &HsmInput) -> Option<(HsmTarget, HsmFailureCause)> {
        let HsmInput::Ended { command, end } = input else {
            return None;
        };
        let run = self.queue.live().runs.get(command)?;
        let kind = run.target.kind();
        let cause = |code, text: String| HsmFailureCause { kind, code, text };
        let cause = match end {
            HsmCommandEnd::Exited { code, text } => cause(Some(*code), text.clone()),
            HsmCommandEnd::WithoutUri { text } => cause(
                Some(0),
                match text.is_empty() {
                    true => "success without a URI; it printed nothing".to_owned(),
                    false => format!("success without a URI; it printed: {text}"),
                },
            ),
            HsmCommandEnd::Signaled { signal, text } => {
                cause(None, format!("ended by signal {signal}: {text}"))
            }
            HsmCommandEnd::TimedOut { text } => {
                cause(None, format!("stopped after its time limit: {text}"))
            }
            HsmCommandEnd::NotStarted { text } => cause(None, format!("cannot be started: {text}")),
            HsmCommandEnd::WrongData { text } => cause(None, text.clone()),
            HsmCommandEnd::Stopped => match &run.stop {
                Some((_, HsmStop::TooLong)) => cause(None, "stopped after its time limit".into()),
                Some((_, HsmStop::NoBytes)) => {
                    cause(None, "stopped because no byte came for too long".into())
                }
                Some((_, HsmStop::NotWanted)) | None => return None,
            },
            // What this side had trouble with is logged by it.
            HsmCommandEnd::Succeeded { .. }
            | HsmCommandEnd::LocalTrouble { .. }
            | HsmCommandEnd::NoRoom { .. }
            | HsmCommandEnd::NotNeeded => return None,
        };
        let is_unwanted = matches!(run.stop, Some((_, HsmStop::NotWanted)));
        (!is_unwanted).then(|| (run.target.clone(), cause))
    }

    /// What the driver does of what the queue orders.
    fn orders(&mut self, effects: Vec<HsmEffect>) -> Vec<Task> {
        let mut orders = Vec::new();
        for effect in effects {
            match effect {
                HsmEffect::Persist(records) => {
                    orders.push(Task::Persist(lines(&records)));
                }
                HsmEffect::Start(HsmCommand { command, work, .. }) => orders.push(match work {
                    HsmWork::Get { file, .. } => Task::Bring(command, EntryId(file.0)),
                    HsmWork::Put { file, .. } => {
                        let file = EntryId(file.0);
                        Task::Begin(CommandWork::Put { command, file })
                    }
                    HsmWork::Remove { uri, of, .. } => {
                        Task::Begin(CommandWork::Remove { command, uri, of })
                    }
                }),
                HsmEffect::Stop(command) => orders.push(Task::Begin(CommandWork::Stop(command))),
                HsmEffect::Tell { request, outcome } => {
                    orders.extend(self.told(request, outcome).map(Task::Tell));
                }
                HsmEffect::Disk { target, fault } => {
                    let command = name_of(&target);
                    tracing::warn!(
                        command,
                        ?fault,
                        "the HSM's program reports trouble with a disk of this side"
                    );
                }
                HsmEffect::Open { incident, fault } => {
                    let text = fault.as_ref().map(|fault| fault.text.as_str());
                    log_begin(&hsm_incident(incident, &self.queue), text);
                    if let Some(fault) = fault {
                        self.faults.insert(incident, fault);
                    }
                }
                HsmEffect::Close(end) => {
                    self.faults.remove(&end.incident);
                    log_end(&hsm_incident_end(&end, &self.queue));
                }
                HsmEffect::WakeAt(at_ns) => self.wake_ns = Some(at_ns),
            }
        }
        orders
    }

    fn told(&mut self, request: RequestId, outcome: HsmOutcome) -> Option<TapeOutcome> {
        if let Some(uri) = self.removals.remove(&request) {
            // Removed, or not to be removed: a file has that copy.
            return Some(TapeOutcome::RemovalsEnded(vec![uri.as_str().to_owned()]));
        }
        let file = EntryId(request.0 & !RECALL_BIT);
        match outcome {
            HsmOutcome::Stored { uris } => Some(archived(file, &uris)),
            HsmOutcome::Failed { tries, fault } => {
                let text = &fault.text;
                tracing::error!(%file, tries, code = fault.code, text, "the HSM does not bring a file");
                // The words of a program may hold paths and hosts that are nobody's business.
                let error = match fault.source {
                    HsmFaultSource::Comparison => text.clone(),
                    HsmFaultSource::Program | HsmFaultSource::LocalTrouble => format!(
                        "the tape system did not bring it in {tries} tries; the site's administrator finds the reason in the log"
                    ),
                };
                Some(TapeOutcome::NotRecalled { file, error })
            }
            HsmOutcome::Expired
            | HsmOutcome::Canceled
            | HsmOutcome::Fetched
            | HsmOutcome::Removed => None,
        }
    }

    fn is_wanted(&self, target: &HsmTarget) -> bool {
        let entry = self.queue.live().entries.get(target);
        entry.is_some_and(|entry| !entry.askers.is_empty())
    }

    /// Counts for how long a file was waited for until the HSM gave the first of it: a command that was started may wait for a tape, or
    /// in a batch system.
    fn note_first_bytes(&mut self, news: &HsmInput) {
        let (command, is_given) = if let HsmInput::Ended { command, end } = news {
            (command, matches!(end, HsmCommandEnd::Succeeded { .. }))
        } else if let HsmInput::Progressed {
            command,
            bytes: 1..,
        } = news
        {
            (command, true)
        } else {
            return;
        };
        if let Some(since_ns) = self.silent_gets.remove(command).filter(|_| is_given) {
            let waited_ms = self.now_ns().saturating_sub(since_ns) / 1_000_000;
            let waited_ms = u64::try_from(waited_ms).unwrap_or(0);
            self.context.meter.recall_began(waited_ms);
        }
    }

    fn put_call(&self, file: EntryId) -> Result<HsmCall, NotBegun> {
        let found = self.context.namespace.tape_file(file);
        let found = found
            .map_err(|why| namespace_silent(&why))?
            // One that is on tape by now needs no second copy: the last end of the service has told it, and its queue has not heard.
            .filter(|found| found.archival == Archival::Precious)
            .ok_or(NotBegun::NotNeeded)?;
        let pool = found.pool.as_ref();
        let pool = pool.and_then(|pool| self.context.pools.get(pool));
        let pool = pool.filter(|pool| pool.is_in_reach());
        let pool = pool.ok_or(NotBegun::NotNow(LocalError::PoolAway))?;
        Ok(HsmCall::Put {
            pnfsid: self.pnfsid(found.id),
            path: pool.data_path(found.id),
            storage_info: self.storage_info(&found),
        })
    }

    /// A copy on tape goes only while no file has it, whenever its removal was asked for. What a put has stored that was canceled stays
    /// when its file goes to tape all the same: an HSM may have given one object two names.
    fn remove_call(&self, uri: &HsmUri, of: Option<FileId>) -> Result<HsmCall, NotBegun> {
        let is_needed = || -> Result<bool, NamespaceError> {
            let namespace = &self.context.namespace;
            if namespace.needs_tape_copy(uri.as_str())? {
                return Ok(true);
            }
            let is_of_put = !self.is_wanted(&HsmTarget::Remove(uri.clone()));
            let file = of.filter(|_| is_of_put);
            let file = file.map(|file| namespace.tape_file(EntryId(file.0)));
            Ok(file.transpose()?.flatten().is_some())
        };
        match is_needed() {
            Ok(false) => Ok(HsmCall::Remove { uri: uri.clone() }),
            Ok(true) => Err(NotBegun::NotNeeded),
            Err(why) => Err(namespace_silent(&why)),
        }
    }

    fn command_ended(&mut self, command: HsmCommandId, end: HsmCommandEnd) -> Vec<Task> {
        self.input(HsmInput::Ended { command, end })
    }

    /// Something on this side is in the way. That is logged once for each reason of a file, however often it is tried.
    fn not_now(&mut self, command: HsmCommandId, why: &LocalError) -> Vec<Task> {
        let text = why.to_string();
        let live = self.queue.live();
        let target = live.runs.get(&command).map(|run| &run.target);
        let entry = target.and_then(|target| live.entries.get(target));
        if let Some(entry) = entry
            && entry.fault.as_ref().is_none_or(|fault| fault.text != text)
        {
            let command = name_of(&entry.work.target());
            tracing::warn!("{command} waits: {text}");
        }
        let end = match why {
            LocalError::NoRoom(_) => HsmCommandEnd::NoRoom { text },
            LocalError::PoolsBusy
            | LocalError::Removing
            | LocalError::PoolAway
            | LocalError::Disk(_)
            | LocalError::Namespace(_) => HsmCommandEnd::LocalTrouble { text },
        };
        self.command_ended(command, end)
    }

    /// The name of a file for the HSM: of this namespace, and never used again.
    fn pnfsid(&self, file: EntryId) -> String {
        let namespace = self.context.namespace.uuid().simple().to_string();
        format!("{namespace}{:016x}", file.0).to_uppercase()
    }

    fn storage_info(&self, file: &TapeFile) -> HsmStorageInfo {
        let mut more = BTreeMap::from([("path".to_owned(), file.path.to_string())]);
        for sum in &file.checksums {
            more.insert(sum.algorithm().name().to_owned(), sum.hex().to_owned());
        }
        HsmStorageInfo {
            size_bytes: file.size.0,
            is_stored: file.archival == Archival::Cached,
            storage_class: self.classes.family_of(&file.path, file.size).to_owned(),
            hsm: "penstock".to_owned(),
            more,
        }
    }
}

impl TapeSystem for HsmProgram {
    type Try = HsmCommandId;
    type Work = CommandWork;
    type News = HsmInput;

    fn resume(&mut self) -> Vec<Task> {
        let effects = self.queue.resume(self.now_ns());
        self.orders(effects)
    }

    fn ask_puts(&mut self, puts: Vec<TapePut>) -> Vec<Task> {
        let put = |put: TapePut| HsmPut {
            request: RequestId(put.file.0),
            file: FileId(put.file.0),
            size_bytes: put.size.0,
            family: put.family,
            vo: put.vo,
            priority: 3,
        };
        self.input(HsmInput::Put(puts.into_iter().map(put).collect()))
    }

    fn ask_gets(&mut self, gets: Vec<TapeGet>) -> Vec<Task> {
        let (mut known, mut orders) = (Vec::new(), Vec::new());
        for get in gets {
            let Some(uri) = get.uris.first().and_then(|uri| HsmUri::parse(uri)) else {
                let error = COPY_NOT_UNDERSTOOD.to_owned();
                let file = get.file;
                orders.push(Task::Tell(TapeOutcome::NotRecalled { file, error }));
                continue;
            };
            known.push(HsmGet {
                request: RequestId(get.file.0 | RECALL_BIT),
                file: FileId(get.file.0),
                size_bytes: get.size.0,
                uri,
                asker: Asker {
                    vo: get.vo,
                    priority: 3,
                    deadline_ns: None,
                    // The namespace says who waits, so the request is canceled when nobody does.
                    lease_ns: i64::MAX,
                },
            });
        }
        if !known.is_empty() {
            orders.extend(self.input(HsmInput::Get(known)));
        }
        orders
    }

    fn ask_removals(&mut self, removals: Vec<TapeRemoval>) -> Vec<Task> {
        let (mut removes, mut orders) = (Vec::new(), Vec::new());
        for removal in removals {
            if removal.uri.starts_with(COPY_SCHEME) {
                let uri = removal.uri;
                tracing::warn!(uri, "a copy in a library of before is forgotten");
                orders.push(Task::Tell(TapeOutcome::RemovalsEnded(vec![uri])));
                continue;
            }
            let Some(uri) = HsmUri::parse(&removal.uri) else {
                continue;
            };
            let target = HsmTarget::Remove(uri.clone());
            if self.queue.live().entries.contains_key(&target) {
                continue;
            }
            let request = RequestId(self.next_removal | REMOVAL_BIT);
            self.next_removal += 1;
            self.removals.insert(request, uri.clone());
            removes.push(HsmRemove {
                request: Some(request),
                uri,
                of: Some(FileId(removal.file.0)),
                size_bytes: removal.size.0,
                vo: TapeVo("removal".into()),
            });
        }
        if !removes.is_empty() {
            orders.extend(self.input(HsmInput::Remove(removes)));
        }
        orders
    }

    fn cancel_puts(&mut self, files: &[EntryId]) -> Vec<Task> {
        let requests = files.iter().map(|file| RequestId(file.0));
        self.input(HsmInput::Cancel(requests.collect()))
    }

    fn cancel_gets(&mut self, files: &[EntryId]) -> Vec<Task> {
        let requests = files.iter().map(|file| RequestId(file.0 | RECALL_BIT));
        self.input(HsmInput::Cancel(requests.collect()))
    }

    fn retry_now(&mut self) -> Vec<Task> {
        let all = self.queue.live().entries.keys().cloned().collect();
        self.input(HsmInput::RetryNow(all))
    }

    fn tick(&mut self) -> Vec<Task> {
        self.input(HsmInput::Tick)
    }

    fn is_putting(&self, file: EntryId) -> bool {
        self.is_wanted(&HsmTarget::Put(FileId(file.0)))
    }

    fn is_getting(&self, file: EntryId) -> bool {
        self.is_wanted(&HsmTarget::Get(FileId(file.0)))
    }

    /// Of tapes behind a program nothing is known.
    fn has_readable_copy(&self, _file: EntryId, copies: &[TapeCopyUri]) -> bool {
        !copies.is_empty()
    }

    fn files(&self) -> Vec<EntryId> {
        let targets = self.queue.live().entries.keys();
        let files = targets.filter_map(|target| match target {
            HsmTarget::Put(file) | HsmTarget::Get(file) => Some(EntryId(file.0)),
            HsmTarget::Remove(_) => None,
        });
        files.collect()
    }

    fn wait(&self) -> Option<Duration> {
        let wait_ns = self.wake_ns?.saturating_sub(self.now_ns()).max(1_000_000);
        Some(Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(0)))
    }

    async fn news(&mut self) -> Option<HsmInput> {
        self.news.recv().await
    }

    /// What a command tells. What a recall has brought is looked at before the queue hears of its end.
    fn take_news(&mut self, news: HsmInput) -> Vec<Task> {
        self.note_first_bytes(&news);
        let HsmInput::Ended { command, end } = &news else {
            return self.input(news);
        };
        let run = self.queue.live().runs.get(command);
        if !run.is_some_and(|run| matches!(run.target, HsmTarget::Get(_))) {
            return self.input(news);
        }
        let recall = *command;
        match end {
            HsmCommandEnd::Succeeded { .. } => vec![Task::Check(recall)],
            _ => {
                let mut orders = vec![Task::Abandon(recall)];
                orders.extend(self.input(news));
                orders
            }
        }
    }

    fn begin(&mut self, work: CommandWork) -> Vec<Task> {
        let (command, call) = match work {
            CommandWork::Put { command, file } => (command, self.put_call(file)),
            CommandWork::Remove { command, uri, of } => (command, self.remove_call(&uri, of)),
            CommandWork::Stop(command) => {
                self.runner.stop(command);
                return Vec::new();
            }
        };
        match call {
            Ok(call) => {
                self.runner.start(command, call);
                Vec::new()
            }
            Err(NotBegun::NotNeeded) => self.command_ended(command, HsmCommandEnd::NotNeeded),
            Err(NotBegun::NotNow(why)) => self.not_now(command, &why),
        }
    }

    fn bring(&mut self, command: &HsmCommandId, file: &TapeFile, path: &Path) -> Vec<Task> {
        let target = HsmTarget::Get(FileId(file.id.0));
        let entry = self.queue.live().entries.get(&target);
        let known = entry.map(|entry| (&entry.work, entry.since_ns));
        let Some((HsmWork::Get { uri, .. }, since_ns)) = known else {
            return self.recall_ended(*command, RecallEnd::Gone);
        };
        self.silent_gets.insert(*command, since_ns);
        let call = HsmCall::Get {
            pnfsid: self.pnfsid(file.id),
            path: path.to_owned(),
            size_bytes: file.size.0,
            uri: uri.clone(),
            storage_info: self.storage_info(file),
        };
        self.runner.start(*command, call);
        self.input(HsmInput::RoomFound(*command))
    }

    fn checking(&mut self, command: &HsmCommandId, bytes: u64) -> Vec<Task> {
        let command = *command;
        self.input(HsmInput::Progressed { command, bytes })
    }

    fn recall_ended(&mut self, command: HsmCommandId, end: RecallEnd) -> Vec<Task> {
        match end {
            RecallEnd::Brought => {
                self.command_ended(command, HsmCommandEnd::Succeeded { uris: Vec::new() })
            }
            RecallEnd::WrongData(text) => {
                self.command_ended(command, HsmCommandEnd::WrongData { text })
            }
            RecallEnd::NotTaken(why) => self.not_now(command, &why),
            RecallEnd::Gone => self.command_ended(command, HsmCommandEnd::NotNeeded),
        }
    }

    fn records(&self) -> Vec<String> {
        lines(&self.queue.records())
    }

    fn live_requests(&self) -> usize {
        self.queue.live().entries.len()
    }

    /// Of tapes and drives behind the program nothing is known.
    fn meter_state(&self, counts: &TapeCounts) -> MeterState {
        let policy = self.queue.policy();
        let cycle_ns = u64::try_from(policy.batch.age_ns).unwrap_or(0);
        let queued = MeterState::of_counts(counts);
        // One that does not end when it is stopped is forgotten by the queue.
        let runs = &self.queue.live().runs;
        let silent = self.silent_gets.iter();
        let silent = silent.filter(|(command, _)| runs.contains_key(command));
        let oldest_ns = silent.clone().map(|(_, since_ns)| since_ns).min();
        let oldest = oldest_ns.map(|since_ns| Timestamp(since_ns / 1_000_000));
        MeterState {
            recalls_queued: queued.recalls_queued + silent.count() as u64,
            oldest_recall: queued.oldest_recall.into_iter().chain(oldest).min(),
            drives_busy: counts.recalls.running.files,
            drives_max: policy.slots(HsmKind::Get) as u64,
            write_cycle_seconds: Some(cycle_ns / 1_000_000_000),
            ..queued
        }
    }

    fn status(&self) -> NearlineStatus {
        let incidents = self.queue.incidents().iter();
        let incidents = incidents.map(|(incident, since_ns)| NearlineIncident {
            code: hsm_incident_code(*incident),
            what: hsm_incident(*incident, &self.queue),
            since: Timestamp(since_ns / 1_000_000),
            fault: self.faults.get(incident).map(|fault| fault.text.clone()),
        });
        NearlineStatus {
            counts: TapeCounts::of_hsm(&self.queue.counts()),
            incidents: incidents.collect(),
            outlooks: Default::default(),
            hsm: Some(self.failures.status(self.queue.live())),
            libraries: None,
        }
    }

    /// Stops all commands. A file that is on tape by now needs no second put.
    async fn end(mut self) -> Vec<TapeOutcome> {
        let mut outcomes = Vec::new();
        for news in self.runner.stop_all(&mut self.news).await {
            let HsmInput::Ended {
                command,
                end: HsmCommandEnd::Succeeded { uris },
            } = news
            else {
                continue;
            };
            let target = self.queue.live().runs.get(&command).map(|run| &run.target);
            if let Some(HsmTarget::Put(file)) = target {
                outcomes.push(archived(EntryId(file.0), &uris));
            }
        }
        outcomes
    }
}

fn lines(records: &[HsmRecord]) -> Vec<String> {
    let lines = records
        .iter()
        .map(|record| serde_json::to_string(record).expect("records are plain data"));
    lines.collect()
}

fn archived(file: EntryId, uris: &[HsmUri]) -> TapeOutcome {
    let uris = uris.iter().map(|uri| uri.as_str().to_owned()).collect();
    TapeOutcome::Archived { file, uris }
}

fn namespace_silent(why: &NamespaceError) -> NotBegun {
    NotBegun::NotNow(LocalError::Namespace(why.to_string()))
}

/// Why a put or a removal is not begun.
enum NotBegun {
    /// The file is gone, or on tape by now; or a file has the copy that was to be removed.
    NotNeeded,
    NotNow(LocalError),
}
