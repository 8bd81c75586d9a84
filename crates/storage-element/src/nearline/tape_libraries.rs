//! Files are put on tape and brought back by libraries that the request engine drives. Their drives work in threads of their own and
//! ask for no one's leave; what they report comes as news. Long because each effect of the engine has its arm.

mod accounting;
mod care;
mod catalogue;
mod copy_uri;
mod disk_side;
mod library_clock;
mod library_status;
mod opening;
mod operating;
mod recorded;
mod request_kind;

use care::Care;
pub(super) use care::CareNews;
pub(crate) use care::UnreadableStatus;
pub(crate) use catalogue::{LiveBytes, live_bytes};
pub(super) use copy_uri::{COPY_SCHEME, CopyUri};
use library_clock::LibraryClock;
pub(crate) use library_status::{DriveActivity, LibrariesStatus};
pub(super) use recorded::is_of_library;

use super::NearlineStatus;
use super::driver_task::{
    Forecast, LocalError, RecallEnd, RecallOutlooks, RoomLack, TapeGet, TapeOutcome, TapePut,
};
use super::tape_system::{TapeSystem, TaskOf};
use super::wording::{
    COPY_NOT_UNDERSTOOD, library_incident, library_incident_end, library_wait, log_begin, log_end,
};
use crate::clock::BelievedClock;
use crate::tape_counts::TapeCounts;
use crate::tape_meter::MeterState;
use crate::tape_operator::{OperatorOrder, ReplySender};
use disk_side::DiskSide;
use penstock_model::{Bytes, Timestamp};
use penstock_persistence::namespace::{EntryId, Namespace, TapeCopyUri, TapeFile, TapeRemoval};
use penstock_tape::drive_pool::{DownReason, DriveState};
use penstock_tape::live_set::RequestTarget;
use penstock_tape::record::{DriveRecord, Record, TapeState};
use penstock_tape::request::{
    ArchiveRequest, ArchiveWishes, Asker, DriveName, FileId, LibraryName, ReadPurpose,
    RecallRequest, RequestId, RequestOutcome, TapeCopy, TapeErrorScope, VoName as TapeVo,
};
use penstock_tape::request_engine::{
    DriveReport, Effect, ForecastTimes, Input, Inventory, RequestEngine, TapeIncident,
};
use penstock_tape_library::{DriveMessage, EmulatedLibrary};
use request_kind::RequestKind;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;

/// What tape libraries tell by themselves.
#[derive(Debug)]
pub(in crate::nearline) enum LibraryNews {
    Drive(DriveMessage),
    Care(CareNews),
}

/// One try to bring a file: a drive reads it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::nearline) struct DriveTry {
    drive: DriveName,
    file: FileId,
}

type LibraryTask = TaskOf<TapeLibraries>;

/// Libraries with their request engine.
pub(super) struct TapeLibraries {
    libraries: BTreeMap<LibraryName, Arc<EmulatedLibrary>>,
    /// In which library each drive is.
    library_of: BTreeMap<DriveName, LibraryName>,
    /// What the engine is told of what is configured and found, at the start.
    inventory: Inventory,
    engine: RequestEngine,
    disk: DiskSide,
    clock: Arc<BelievedClock>,
    times: LibraryClock,
    namespace: Arc<Namespace>,
    news: mpsc::Receiver<DriveMessage>,
    threads: Vec<JoinHandle<()>>,
    /// Reads that wait for a place on disk.
    reads: BTreeMap<DriveName, Effect>,
    /// What each drive does, and since when.
    activities: BTreeMap<DriveName, (DriveActivity, i64)>,
    /// Since when each is open, in the time of the libraries.
    incidents: BTreeMap<TapeIncident, i64>,
    /// Tapes that were mounted to read from, and to be written to.
    read_mounts: u64,
    write_mounts: u64,
    /// What drives read over before files that they bring to disk, where it is something.
    over_bytes: BTreeMap<FileId, u64>,
    care: Care,
    wake_ns: Option<i64>,
    factor: u32,
    newest_ns: i64,
}

impl TapeLibraries {
    /// The time of the libraries, which all have the same.
    fn now_ns(&self) -> i64 {
        let first = self.libraries.values().next();
        let now_ns = first.map_or(0, |library| library.now_ns());
        now_ns.max(self.newest_ns)
    }

    fn wall(&self) -> Timestamp {
        self.clock.recorded()
    }

    fn input(&mut self, input: Input) -> Vec<LibraryTask> {
        self.newest_ns = self.now_ns();
        self.times.compare(self.newest_ns, self.wall());
        let effects = self.engine.handle(self.newest_ns, input);
        self.note_activities();
        let mut orders = self.orders(effects);
        orders.extend(self.take_ended());
        orders
    }

    fn note_activities(&mut self) {
        for (name, drive) in &self.engine.live().drives.0 {
            let activity = DriveActivity::of(&drive.state);
            let known = self.activities.get(name);
            if known.is_none_or(|(known, _)| *known != activity) {
                let since = (activity, self.newest_ns);
                self.activities.insert(name.clone(), since);
            }
        }
    }

    /// Incidents of before, as far as states still tell of them.
    fn know_incidents(&mut self) {
        let live = self.engine.live();
        let drives = live.drives.0.iter().filter_map(|(name, drive)| {
            let why = DownReason::Failed;
            let has_failed = matches!(drive.state, DriveState::Down { why: of, .. } if of == why);
            has_failed.then(|| (TapeIncident::DriveDown(name.clone()), self.newest_ns))
        });
        let tapes = live.tapes.iter().filter_map(|(name, tape)| {
            let is_broken = tape.state == TapeState::Broken && !live.retired.contains(name);
            is_broken.then(|| (TapeIncident::TapeBroken(name.clone()), self.newest_ns))
        });
        let libraries = live.libraries.iter();
        let libraries = libraries
            .map(|(name, pause)| (TapeIncident::LibraryPaused(name.clone()), pause.since_ns));
        let full = live.full_libraries.iter();
        let full =
            full.map(|(name, pause)| (TapeIncident::LibraryFull(name.clone()), pause.since_ns));
        let unreadable = live.unreadable.copies();
        let unreadable = unreadable.map(|(_, copy)| {
            let incident = TapeIncident::FilesUnreadable(copy.tape.clone());
            (incident, self.newest_ns)
        });
        let incidents = drives.chain(tapes).chain(libraries).chain(full);
        self.incidents = incidents.chain(unreadable).collect();
    }

    /// What the driver does of what the engine orders. Long because each effect has one arm.
    fn orders(&mut self, effects: Vec<Effect>) -> Vec<LibraryTask> {
        let mut orders = Vec::new();
        for effect in effects {
            match effect {
                Effect::Persist(records) => {
                    for record in &records {
                        self.note_read_over(record);
                    }
                    orders.push(LibraryTask::Persist(self.lines(records)));
                }
                Effect::Read {
                    ref drive, file, ..
                } => {
                    let recall = DriveTry {
                        drive: drive.clone(),
                        file,
                    };
                    self.reads.insert(drive.clone(), effect);
                    orders.push(LibraryTask::Bring(recall, EntryId(file.0)));
                }
                Effect::Mount { ref purpose, .. } => {
                    match purpose.is_archive() {
                        true => self.write_mounts += 1,
                        false => self.read_mounts += 1,
                    }
                    orders.push(LibraryTask::Begin(effect));
                }
                Effect::AskOrder { .. }
                | Effect::Verify { .. }
                | Effect::Write { .. }
                | Effect::WriteAggregate { .. }
                | Effect::Sync { .. }
                | Effect::Dismount { .. } => orders.push(LibraryTask::Begin(effect)),
                Effect::Abort { ref drive } => {
                    if let Some(Effect::Read { file, .. }) = self.reads.remove(drive) {
                        self.over_bytes.remove(&file);
                        let recall = DriveTry {
                            drive: drive.clone(),
                            file,
                        };
                        orders.push(LibraryTask::Abandon(recall));
                    }
                    orders.push(LibraryTask::Begin(effect));
                }
                Effect::Tell { request, outcome } => {
                    let outcome = self.told(request, outcome);
                    orders.extend(outcome.map(LibraryTask::Tell));
                }
                Effect::Open(incident) => {
                    log_begin(&library_incident(&incident, self.engine.live()), None);
                    self.incidents.insert(incident, self.newest_ns);
                }
                Effect::Close(incident) => {
                    log_end(&library_incident_end(&incident));
                    self.incidents.remove(&incident);
                }
                Effect::HintFailed {
                    data_set,
                    source,
                    verdict,
                    came_files,
                    expected_files,
                } => {
                    let source = source.name();
                    let levels = data_set.0.join(" / ");
                    tracing::info!(
                        data_set = levels,
                        source,
                        ?verdict,
                        came_files,
                        ?expected_files,
                        "what was said of a data set was of no use"
                    );
                }
                // The namespace is told when all copies are made.
                Effect::CopyMade { .. } => {}
                Effect::Relabel { .. } => orders.push(LibraryTask::Begin(effect)),
                Effect::RelabelRefused { because, .. } => self.care.refusal = Some(because),
                Effect::WakeAt(at_ns) => self.wake_ns = Some(at_ns),
            }
        }
        orders
    }

    fn note_read_over(&mut self, record: &Record) {
        if let Record::Drive(DriveRecord::ReadBegun {
            over_bytes,
            is_compared: false,
            file,
            ..
        }) = record
        {
            // What an earlier try read over was for nothing.
            self.over_bytes.remove(file);
            if *over_bytes > 0 {
                self.over_bytes.insert(*file, *over_bytes);
            }
        }
    }

    fn lines(&self, records: Vec<Record>) -> Vec<String> {
        let lines = records.into_iter();
        let lines = lines.map(|record| recorded::line(self.newest_ns, record));
        lines.collect()
    }

    fn cancel(&mut self, requests: impl Iterator<Item = RequestId>) -> Vec<LibraryTask> {
        self.input(Input::Cancel(requests.collect()))
    }

    /// What a drive reports. What it has read is looked at before the engine hears of it.
    fn take_report(&mut self, news: DriveMessage) -> Vec<LibraryTask> {
        let DriveMessage { drive, report, .. } = news;
        let mut orders = Vec::new();
        match report {
            DriveReport::FileRead(file) => {
                let read = self.reads.get(&drive);
                let is_awaited = matches!(read, Some(Effect::Read { file: of, .. }) if *of == file);
                let recall = DriveTry { drive, file };
                return match is_awaited {
                    true => vec![LibraryTask::Check(recall)],
                    false => Vec::new(),
                };
            }
            DriveReport::NotTaken(_) | DriveReport::Failed(_) => {
                if let Some(Effect::Read { file, .. }) = self.reads.remove(&drive) {
                    self.over_bytes.remove(&file);
                    self.disk.forget(file);
                    orders.push(LibraryTask::Abandon(DriveTry {
                        drive: drive.clone(),
                        file,
                    }));
                }
            }
            DriveReport::Mounted
            | DriveReport::Located { .. }
            | DriveReport::WrapEnds { .. }
            | DriveReport::OrdersReads { .. }
            | DriveReport::ReadsOrdered { .. }
            | DriveReport::DataEnds { .. }
            | DriveReport::LibraryFull
            | DriveReport::Moved { .. }
            | DriveReport::FileVerified(_)
            | DriveReport::FileWritten(_)
            | DriveReport::AggregateWritten
            | DriveReport::Synced
            | DriveReport::TapeFull
            | DriveReport::Dismounted => {}
        }
        orders.extend(self.input(Input::Report { drive, report }));
        orders
    }

    /// Has a drive do something.
    pub(super) fn perform(&mut self, effect: &Effect) -> Vec<LibraryTask> {
        if let Effect::Relabel { tape } = effect {
            return self.perform_relabel(tape);
        }
        let (Effect::Mount { drive, .. }
        | Effect::AskOrder { drive, .. }
        | Effect::Read { drive, .. }
        | Effect::Verify { drive, .. }
        | Effect::Write { drive, .. }
        | Effect::WriteAggregate { drive, .. }
        | Effect::Sync { drive }
        | Effect::Dismount { drive, .. }
        | Effect::Abort { drive }) = effect
        else {
            return Vec::new();
        };
        let library = self.library_of.get(drive);
        let library = library.and_then(|library| self.libraries.get(library));
        let done = library.map(|library| library.perform(effect));
        match (done, effect) {
            (Some(Ok(())), _) | (None, Effect::Abort { .. }) => Vec::new(),
            (None | Some(Err(_)), _) => {
                let (drive, scope) = (drive.clone(), TapeErrorScope::Drive);
                let report = DriveReport::Failed(scope);
                self.input(Input::Report { drive, report })
            }
        }
    }

    /// No pool took a file of this size. Users' files as large, or larger, that no drive reads are not tried one after the other in vain.
    fn put_off(&mut self, size_bytes: u64, lack: RoomLack) -> Vec<LibraryTask> {
        let recalls = self.engine.live().recalls.iter();
        let waiting = recalls.filter_map(|(file, entry)| {
            let is_asked = entry.askers.contains_key(&RequestKind::Get.of_file(*file));
            let is_put_off = is_asked && entry.read_by.is_none() && entry.size_bytes >= size_bytes;
            is_put_off.then_some((EntryId(file.0), Bytes(entry.size_bytes)))
        });
        let waiting: Vec<(EntryId, Bytes)> = waiting.collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        let ids: Vec<EntryId> = waiting.iter().map(|(file, _)| *file).collect();
        let mut orders = self.cancel_gets(&ids);
        let files = waiting;
        orders.push(LibraryTask::Tell(TapeOutcome::NoRoom { files, lack }));
        orders
    }

    /// What the driver is told of the end of a request.
    fn told(&mut self, request: RequestId, outcome: RequestOutcome) -> Option<TapeOutcome> {
        let (kind, file) = RequestKind::parse(request);
        if kind.is_background() {
            self.care.ended.push_back((request, outcome));
            return None;
        }
        self.outcome_of(file, kind == RequestKind::Get, outcome)
    }

    fn outcome_of(
        &mut self,
        file: EntryId,
        is_recall: bool,
        outcome: RequestOutcome,
    ) -> Option<TapeOutcome> {
        let not_recalled = |error: &str| {
            let error = error.to_owned();
            Some(TapeOutcome::NotRecalled { file, error })
        };
        match outcome {
            RequestOutcome::Archived(copies) => self.archived(file, copies),
            RequestOutcome::NoCopyLeft(TapeErrorScope::File) if is_recall => not_recalled(
                "no copy on tape can be read; the site's administrator finds the reason in the log",
            ),
            RequestOutcome::NoCopyLeft(_) if is_recall => {
                not_recalled("its tape is out of order; the site's administrator has been told")
            }
            RequestOutcome::NoTape => not_recalled("its tape is not in use; ask again later"),
            RequestOutcome::NoCopyLeft(_) | RequestOutcome::NotTaken | RequestOutcome::Expired => {
                Some(TapeOutcome::Later(file))
            }
            RequestOutcome::Recalled | RequestOutcome::Verified | RequestOutcome::Canceled => None,
        }
    }

    /// A file is on tape. It is put there again when the namespace cannot tell its size now, or its tape is unknown.
    fn archived(&self, file: EntryId, copies: Vec<TapeCopy>) -> Option<TapeOutcome> {
        let found = match self.namespace.tape_file(file) {
            Ok(Some(found)) => found,
            Ok(None) => return None,
            Err(why) => {
                tracing::error!(%file, %why, "a file was put on tape, and the namespace does not tell its size: it is put there again");
                return Some(TapeOutcome::Later(file));
            }
        };
        let tapes = &self.engine.live().tapes;
        let mut uris = Vec::new();
        for copy in copies {
            let Some(tape) = tapes.get(&copy.tape) else {
                let tape = &copy.tape.0;
                tracing::error!(%file, %tape, "a file was put on a tape that is not known: it is put on another one");
                return Some(TapeOutcome::Later(file));
            };
            let uri = CopyUri {
                library: tape.library.clone(),
                copy,
                size_bytes: found.size.0,
            };
            uris.push(uri.to_string());
        }
        Some(TapeOutcome::Archived { file, uris })
    }

    /// Nobody waits for reports any longer.
    fn close(&mut self) {
        self.news.close();
        for library in self.libraries.values() {
            library.close();
        }
    }
}

impl TapeSystem for TapeLibraries {
    type Try = DriveTry;
    type Work = Effect;
    type News = LibraryNews;

    fn resume(&mut self) -> Vec<LibraryTask> {
        self.newest_ns = self.now_ns();
        let inventory = std::mem::take(&mut self.inventory);
        let effects = self.engine.take_inventory(self.newest_ns, inventory);
        let mut orders = self.orders(effects);
        self.know_incidents();
        let effects = self.engine.resume(self.newest_ns);
        orders.extend(self.orders(effects));
        orders.extend(self.take_ended());
        // What nobody waits for is asked for anew.
        let requests = self.engine.live().requests.keys();
        let background = requests.filter(|request| RequestKind::parse(**request).0.is_background());
        let background = background.copied().collect();
        orders.extend(self.input(Input::Cancel(background)));
        orders
    }

    fn ask_puts(&mut self, puts: Vec<TapePut>) -> Vec<LibraryTask> {
        // A mount is made when its deadline is as near as this.
        let lead_ns = self.engine.policy().mount.deadline_lead_ns;
        let now_ns = self.now_ns();
        let deadline_ns = |wait: Duration| {
            let wait_ns = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX);
            now_ns.saturating_add(wait_ns).saturating_add(lead_ns)
        };
        let request = |put: TapePut| ArchiveRequest {
            request: RequestKind::Put.of(put.file),
            file: FileId(put.file.0),
            size_bytes: put.size.0,
            family: put.family,
            asker: Asker {
                deadline_ns: put.wait_max.map(deadline_ns),
                ..asker(put.vo)
            },
            wishes: ArchiveWishes {
                copies: put.copies,
                is_packed: put.is_packed,
                data_set: put.data_set,
                activity: put.account.activity,
                challenge: put.account.challenge,
                ..ArchiveWishes::default()
            },
        };
        self.input(Input::Archive(puts.into_iter().map(request).collect()))
    }

    fn ask_gets(&mut self, gets: Vec<TapeGet>) -> Vec<LibraryTask> {
        let (mut known, mut orders) = (Vec::new(), Vec::new());
        for get in gets {
            let copies = get.uris.iter().filter_map(|uri| CopyUri::parse(uri));
            let copies: Vec<TapeCopy> = copies.map(|uri| uri.copy).collect();
            if copies.is_empty() {
                let (file, error) = (get.file, COPY_NOT_UNDERSTOOD.to_owned());
                orders.push(LibraryTask::Tell(TapeOutcome::NotRecalled { file, error }));
                continue;
            }
            known.push(RecallRequest {
                request: RequestKind::Get.of(get.file),
                file: FileId(get.file.0),
                size_bytes: get.size.0,
                copies,
                asker: asker(get.vo),
                activity: get.account.activity,
                challenge: get.account.challenge,
                purpose: ReadPurpose::Users,
            });
        }
        orders.extend(self.input(Input::Recall(known)));
        orders
    }

    /// A copy that nobody needs is forgotten: its room comes back when its tape is written anew.
    fn ask_removals(&mut self, removals: Vec<TapeRemoval>) -> Vec<LibraryTask> {
        let uris = removals.into_iter().map(|removal| {
            if !removal.uri.starts_with(COPY_SCHEME) {
                let uri = &removal.uri;
                tracing::warn!(
                    uri,
                    "a copy in the HSM of before is forgotten, and stays there"
                );
            }
            removal.uri
        });
        vec![LibraryTask::Tell(TapeOutcome::RemovalsEnded(
            uris.collect(),
        ))]
    }

    fn takes_changed_puts(&self) -> bool {
        true
    }

    fn cancel_puts(&mut self, files: &[EntryId]) -> Vec<LibraryTask> {
        self.cancel(files.iter().map(|file| RequestKind::Put.of(*file)))
    }

    fn cancel_gets(&mut self, files: &[EntryId]) -> Vec<LibraryTask> {
        self.cancel(files.iter().map(|file| RequestKind::Get.of(*file)))
    }

    fn retry_now(&mut self) -> Vec<LibraryTask> {
        self.care.hasten();
        self.input(Input::RetryLibraries)
    }

    async fn operate(&mut self, order: OperatorOrder, reply: ReplySender) -> Vec<LibraryTask> {
        self.take_operator_order(order, reply).await
    }

    fn tick(&mut self) -> Vec<LibraryTask> {
        if self.wake_ns.is_some_and(|wake_ns| wake_ns <= self.now_ns()) {
            // The engine says when it wants the next one, if it wants one.
            self.wake_ns = None;
        }
        let mut orders = self.input(Input::Tick);
        if self.care.is_due() {
            orders.extend(self.begin_care());
        }
        orders
    }

    fn file_restored(&mut self) {
        self.care.look_at_copies();
    }

    fn copy_told(&mut self, file: EntryId) -> Vec<LibraryTask> {
        self.forget_replaced(FileId(file.0))
    }

    fn care_for_tapes(&mut self) -> Vec<LibraryTask> {
        self.begin_care()
    }

    /// The copy of a file on disk is to be written to tape anew.
    fn holds(&self, file: EntryId) -> bool {
        self.care.holds(FileId(file.0))
    }

    fn is_putting(&self, file: EntryId) -> bool {
        let put = RequestKind::Put.of(file);
        self.engine.live().requests.contains_key(&put)
    }

    fn is_getting(&self, file: EntryId) -> bool {
        let get = RequestKind::Get.of(file);
        self.engine.live().requests.contains_key(&get)
    }

    /// A tape that is broken, disabled or not configured any more is none of those that can be read, nor is a copy on another one that
    /// was found unreadable.
    fn has_readable_copy(&self, file: EntryId, copies: &[TapeCopyUri]) -> bool {
        let mut known = copies.iter().filter_map(|copy| CopyUri::parse(&copy.uri));
        known.any(|uri| self.engine.live().is_good(FileId(file.0), &uri.copy))
    }

    fn compares_puts(&self) -> bool {
        true
    }

    fn files(&self) -> Vec<EntryId> {
        let targets = self.engine.live().requests.values();
        let files = targets.map(|target| match target {
            RequestTarget::Recall(file) | RequestTarget::Archive(file) => EntryId(file.0),
        });
        files.collect()
    }

    fn wait(&self) -> Option<Duration> {
        if self.care.is_due() {
            return Some(Duration::from_millis(1));
        }
        let wait_ns = self.wake_ns?.saturating_sub(self.now_ns()) / i64::from(self.factor);
        Some(Duration::from_nanos(
            u64::try_from(wait_ns.max(1_000_000)).unwrap_or(0),
        ))
    }

    async fn news(&mut self) -> Option<LibraryNews> {
        tokio::select! {
            news = self.news.recv() => news.map(LibraryNews::Drive),
            news = self.care.news.recv() => news.map(LibraryNews::Care),
        }
    }

    fn take_news(&mut self, news: LibraryNews) -> Vec<LibraryTask> {
        match news {
            LibraryNews::Drive(news) => self.take_report(news),
            LibraryNews::Care(news) => self.take_care_news(news),
        }
    }

    fn begin(&mut self, effect: Effect) -> Vec<LibraryTask> {
        self.perform(&effect)
    }

    fn bring(&mut self, recall: &DriveTry, _file: &TapeFile, path: &Path) -> Vec<LibraryTask> {
        let Some(read) = self.reads.get(&recall.drive).cloned() else {
            return Vec::new();
        };
        if let Effect::Read { file, .. } = &read {
            self.disk.expect(*file, path);
        }
        self.perform(&read)
    }

    fn checking(&mut self, recall: &DriveTry, bytes: u64) -> Vec<LibraryTask> {
        let (drive, report) = (recall.drive.clone(), DriveReport::Moved { bytes });
        self.input(Input::Report { drive, report })
    }

    fn recall_ended(&mut self, recall: DriveTry, end: RecallEnd) -> Vec<LibraryTask> {
        let DriveTry { drive, file } = recall;
        let read = self.reads.remove(&drive);
        self.over_bytes.remove(&file);
        self.disk.forget(file);
        let mut orders = Vec::new();
        if let RecallEnd::NotTaken(LocalError::NoRoom(lack)) = &end
            && let Some(Effect::Read { size_bytes, .. }) = read
        {
            orders = self.put_off(size_bytes, *lack);
        }
        let report = match end {
            RecallEnd::Brought => DriveReport::FileRead(file),
            RecallEnd::WrongData(text) => {
                tracing::error!(file = file.0, drive = %drive.0, text, "a copy on tape is not the file");
                DriveReport::Failed(TapeErrorScope::File)
            }
            RecallEnd::NotTaken(why) => {
                tracing::warn!(file = file.0, %why, "a file from tape is not taken now; it is asked for again");
                DriveReport::NotTaken(file)
            }
            RecallEnd::Gone => DriveReport::NotTaken(file),
        };
        orders.extend(self.input(Input::Report { drive, report }));
        orders
    }

    fn records(&self) -> Vec<String> {
        self.lines(vec![self.engine.snapshot()])
    }

    fn live_requests(&self) -> usize {
        self.engine.live().requests.len()
    }

    /// A copy of the engine runs ahead, on another thread.
    fn forecast(&self) -> Option<Forecast> {
        if self.engine.live().recalls.is_empty() {
            return None;
        }
        let (engine, now_ns, times) = (self.engine.clone(), self.now_ns(), self.times);
        let moves = self
            .libraries
            .values()
            .map(|library| library.definition().model.move_ns);
        let carry_ns = moves.max().unwrap_or(0);
        Some(Box::new(move || {
            let mut outlooks = RecallOutlooks::new();
            let ends = engine.forecast(now_ns, ForecastTimes { carry_ns }).ends_ns;
            for (request, end_ns) in ends {
                if let (RequestKind::Get, file) = RequestKind::parse(request) {
                    outlooks.entry(file).or_default().at = Some(times.wall(end_ns));
                }
            }
            for (tape, wait) in engine.recall_waits(now_ns) {
                let waits_for = Arc::new(library_wait(&wait, |at_ns| times.wall(at_ns)));
                let queue = engine.live().queues.get(&tape);
                for file in queue.into_iter().flat_map(|queue| &queue.files) {
                    let outlook = outlooks.entry(EntryId(file.0)).or_default();
                    outlook.waits_for = Some(Arc::clone(&waits_for));
                }
            }
            outlooks
        }))
    }

    fn meter_state(&self, counts: &TapeCounts) -> MeterState {
        library_status::meter_state(self, counts)
    }

    fn recall_wait(&self, file: EntryId) -> Option<Duration> {
        let entry = self.engine.live().recalls.get(&FileId(file.0))?;
        let waited_ns = self.now_ns().saturating_sub(entry.since_ns) / i64::from(self.factor);
        Some(Duration::from_nanos(u64::try_from(waited_ns).unwrap_or(0)))
    }

    fn over_bytes(&self, file: EntryId) -> u64 {
        self.over_bytes.get(&FileId(file.0)).copied().unwrap_or(0)
    }

    fn status(&self) -> NearlineStatus {
        library_status::status(self)
    }

    /// Drives stop where they are, as in a power cut: what no sync covers is written again.
    async fn end(mut self) -> Vec<TapeOutcome> {
        self.close();
        let libraries = std::mem::take(&mut self.libraries);
        let threads = std::mem::take(&mut self.threads);
        let ended = tokio::task::spawn_blocking(move || {
            for thread in threads {
                // One that has panicked has said so itself.
                let _ = thread.join();
            }
            drop(libraries);
        });
        let _ = ended.await;
        Vec::new()
    }
}

impl Drop for TapeLibraries {
    fn drop(&mut self) {
        self.close();
    }
}

fn asker(vo: TapeVo) -> Asker {
    Asker {
        vo,
        priority: 3,
        deadline_ns: None,
        // The namespace says who waits, so the request is canceled when nobody does.
        lease_ns: i64::MAX,
    }
}
