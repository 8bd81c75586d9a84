//! Decides what a library does next: which tape goes into which drive, which file is read or written there, when what was
//! written is made safe, and what becomes of requests when something fails. Long because each input and effect is told of.
//!
//! `(now, input) -> effects`. The first effect holds records; whoever drives the engine persists them before it performs
//! the others. All that must survive is in [`LiveSet`], which records alone change; the rest (orders, watchdog) is made anew
//! after a restart. It knows no clock, no file and no socket, and not who drives it.

mod archive_demand;
mod archiving;
mod calibrating;
mod drive_ordering;
mod failing;
mod forecasting;
mod inventory;
mod mounting;
mod recalling;
mod trickle;
mod waiting;

pub use forecasting::{Forecast, ForecastTimes};
pub use inventory::{FoundDrive, Inventory};

use crate::aggregate::{AggregateMember, AggregatePolicy};
use crate::data_set::{DataSetName, HintSource, HintVerdict};
use crate::drive::DriveModel;
use crate::drive_pool::{DownReason, DriveClass, DriveState, DriveWork, MountPurpose};
use crate::live_set::{ArchiveGroup, LiveSet, RequestTarget};
use crate::locate::SECOND_NS;
use crate::mount_decision::{MountDecision, MountPolicy, MountTarget};
use crate::order::OrderEffort;
use crate::record::{DriveRecord, Record, Tape, TapeState};
use crate::relabel::{RelabelOrder, RelabelRefusal, TapeUse, may_relabel};
use crate::request::{
    ArchiveRequest, DriveName, FamilyName, FileId, FilePlace, LibraryName, RecallRequest,
    RequestId, RequestOutcome, TapeCopy, TapeErrorScope, TapeName,
};
use crate::tape_care::{CareStep, UnreadableCopy};
use crate::watchdog::{Watchdog, WatchdogLimits};
use archive_demand::GroupTally;
use calibrating::Calibrations;
use recalling::{PlannedOrder, QueueSum};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
pub use trickle::TricklePolicy;
use trickle::Trickles;
pub use waiting::QueueWait;

/// In which order the files of one mount are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadOrder {
    /// As they were asked for.
    Fifo,
    /// From where the head is to the end of the tape, then from its beginning, as TREQS does.
    FromHead,
    /// As the drive reaches them soonest, anew whenever others come.
    Best,
}

/// How a library is driven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapePolicy {
    pub mount: MountPolicy,
    pub read_order: ReadOrder,
    /// How much is tried to improve each order.
    pub order_effort: OrderEffort,
    /// Files after which a tape is dismounted whatever waits; `None`: all that are asked for.
    pub files_per_mount_max: Option<u64>,
    /// How long a tape stays in a drive that nobody else needs.
    pub dismount_delay_ns: i64,
    /// Written files are made safe when they have so many bytes,
    pub sync_bytes: u64,
    /// or are so many.
    pub sync_files: usize,
    pub watchdog: WatchdogLimits,
    /// A request older than this while a drive is free that could serve it is an incident.
    pub oldest_wait_ns: i64,
    /// After an error of a library, the first pause before one mount tries it again; each failure doubles it.
    pub pause_first_ns: i64,
    pub pause_max_ns: i64,
    /// When small files are written as one object.
    pub aggregate: AggregatePolicy,
    /// How long files of a data set wait for those of it that were announced, at most.
    pub data_set_wait_ns: i64,
    pub copy_telling: CopyTelling,
    pub trickle: TricklePolicy,
    /// The most drives that read what nobody waits for.
    pub background_drives_max: u32,
    /// Tapes that may be relabeled in a day without an operator's order.
    pub relabels_per_day_max: usize,
}

/// When it is told that a file of which several copies are asked for is on tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyTelling {
    /// When all copies are.
    All,
    /// Of each copy by itself, and when all are.
    Each,
}

impl TapePolicy {
    /// What suits most libraries.
    pub fn usual() -> TapePolicy {
        TapePolicy {
            mount: MountPolicy::usual(),
            read_order: ReadOrder::Best,
            order_effort: OrderEffort(200_000),
            files_per_mount_max: None,
            dismount_delay_ns: 30 * SECOND_NS,
            sync_bytes: 32_000_000_000,
            sync_files: 200,
            watchdog: WatchdogLimits::USUAL,
            oldest_wait_ns: 4 * 3_600 * SECOND_NS,
            pause_first_ns: 60 * SECOND_NS,
            pause_max_ns: 1_800 * SECOND_NS,
            aggregate: AggregatePolicy::usual(),
            data_set_wait_ns: 24 * 3_600 * SECOND_NS,
            copy_telling: CopyTelling::All,
            trickle: TricklePolicy::USUAL,
            background_drives_max: 1,
            relabels_per_day_max: 2,
        }
    }
}

/// What a drive says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriveReport {
    /// The tape is loaded and its label is right.
    Mounted,
    /// The head has come to the first byte of a read, after so long.
    Located { took_ns: i64 },
    /// Where the wraps of the tape in it end, of drives that tell; best before it is mounted.
    WrapEnds { wrap_ends_bytes: Vec<u64> },
    /// It puts so many files into order itself; at each mount, before it is mounted.
    OrdersReads { files_max: u32 },
    /// The answer to [`Effect::AskOrder`].
    ReadsOrdered { files: Vec<FileId> },
    /// Where data ends on the tape in it, what no sync covers left out, of drives that tell; before it is mounted.
    DataEnds { end_bytes: u64 },
    /// It works: bytes since it began what it does, or any number that grows while it mounts.
    Moved { bytes: u64 },
    /// The file is on disk, whole.
    FileRead(FileId),
    /// The file is as it was written; it went nowhere.
    FileVerified(FileId),
    /// The file is in the drive.
    FileWritten(FileId),
    /// The aggregate is in the drive.
    AggregateWritten,
    /// All that was written is on tape.
    Synced,
    /// The tape has ended before the file that is being written. What no sync covers is written again, to another tape.
    TapeFull,
    /// The library can take no data now. Of what it was writing or syncing nothing counts; the drive is ready for the next order.
    LibraryFull,
    /// The drive is empty.
    Dismounted,
    /// The disk could not take or give this file; the drive is ready for the next one. Of an aggregate nothing counts then.
    NotTaken(FileId),
    /// What it was doing has failed.
    Failed(TapeErrorScope),
}

/// What may happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    DriveAdded {
        drive: DriveName,
        library: LibraryName,
        kind: String,
    },
    TapeAdded {
        tape: TapeName,
        facts: Tape,
    },
    /// An operator takes a tape out of use, or back.
    TapeChanged {
        tape: TapeName,
        state: TapeState,
    },
    Recall(Vec<RecallRequest>),
    Archive(Vec<ArchiveRequest>),
    Renew {
        request: RequestId,
        lease_ns: i64,
    },
    /// Nobody wants these any more.
    Cancel(Vec<RequestId>),
    Report {
        drive: DriveName,
        report: DriveReport,
    },
    /// An operator takes a drive out of use.
    DriveDown(DriveName),
    /// A drive that was down is empty and works.
    DriveUp(DriveName),
    /// Background work rests until then, as during a challenge; a moment that has passed ends that.
    HoldBackground {
        until_ns: i64,
    },
    /// All of a tape is to be given up, if nothing speaks against it.
    Relabel {
        tape: TapeName,
        /// What the namespace says lives on it.
        found: TapeUse,
        order: RelabelOrder,
    },
    /// That has been done.
    Relabeled(TapeName),
    /// What is done for a tape that nobody waits for has come a step further.
    Care {
        tape: TapeName,
        step: CareStep,
    },
    /// A copy that could not be read has another place, or is needed no more.
    CopyMended {
        file: FileId,
        copy: UnreadableCopy,
    },
    /// All files have been compared with what classes want of them, as these words tell it, and have it.
    ClassesCompared(String),
    /// Libraries that are left alone for a while are tried now.
    RetryLibraries,
    /// Nothing but the time that has passed.
    Tick,
}

/// What is to be done. Each may come again after a restart, with the same names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Before all others of the same input.
    Persist(Vec<Record>),
    Mount {
        drive: DriveName,
        tape: TapeName,
        purpose: MountPurpose,
    },
    Read {
        drive: DriveName,
        file: FileId,
        begin_bytes: u64,
        size_bytes: u64,
    },
    /// Say in which order these files are read soonest, once the head stands there. The drive may be silent about it.
    AskOrder {
        drive: DriveName,
        after_bytes: u64,
        files: Vec<FilePlace>,
    },
    /// Read it and compare it with what was written; it goes nowhere.
    Verify {
        drive: DriveName,
        file: FileId,
        begin_bytes: u64,
        size_bytes: u64,
    },
    Write {
        drive: DriveName,
        file: FileId,
        begin_bytes: u64,
        size_bytes: u64,
    },
    /// Files that are written as one object, one behind the other, with one file mark; their index follows them.
    WriteAggregate {
        drive: DriveName,
        begin_bytes: u64,
        members: Vec<AggregateMember>,
    },
    Sync {
        drive: DriveName,
    },
    Dismount {
        drive: DriveName,
        tape: TapeName,
    },
    /// Give up all of a tape, which lies in its slot; then `Relabeled` is told. It may be done again.
    Relabel {
        tape: TapeName,
    },
    RelabelRefused {
        tape: TapeName,
        because: RelabelRefusal,
    },
    /// Stop whatever the drive does; it is down.
    Abort {
        drive: DriveName,
    },
    /// Whoever is told has to have kept it before the records of the next input are: it is told again only after a restart that
    /// comes before that.
    Tell {
        request: RequestId,
        outcome: RequestOutcome,
    },
    /// One of several copies is safe, and others are not yet.
    CopyMade {
        request: RequestId,
        copy: TapeCopy,
    },
    /// What was said of a data set has turned out to be of no use.
    HintFailed {
        data_set: DataSetName,
        source: HintSource,
        verdict: HintVerdict,
        came_files: u64,
        expected_files: Option<u64>,
    },
    Open(TapeIncident),
    Close(TapeIncident),
    /// Give a tick then. A later one replaces it.
    WakeAt(i64),
}

/// Something that a person should look at: one for each cause, however many files it concerns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TapeIncident {
    DriveDown(DriveName),
    TapeBroken(TapeName),
    /// Files on it cannot be read.
    FilesUnreadable(TapeName),
    LibraryPaused(LibraryName),
    /// It takes no data.
    LibraryFull(LibraryName),
    /// A request is older than it should be, and a drive is free.
    OldestWaits(MountTarget),
    /// No tape is left on which files of this family can be written.
    NoTapeLeft(FamilyName),
}

/// Effects as they come up.
#[derive(Debug, Default)]
struct Turnout {
    records: Vec<Record>,
    effects: Vec<Effect>,
}

impl Turnout {
    /// Records before all others.
    fn all(self) -> Vec<Effect> {
        let Turnout { records, effects } = self;
        if records.is_empty() {
            return effects;
        }
        let mut all = vec![Effect::Persist(records)];
        all.extend(effects);
        all
    }
}

/// The engine.
#[derive(Debug, Clone)]
pub struct RequestEngine {
    policy: TapePolicy,
    kinds: BTreeMap<String, DriveModel>,
    live: LiveSet,
    watchdog: Watchdog,
    calibrations: Calibrations,
    orders: BTreeMap<DriveName, PlannedOrder>,
    /// Drives that put reads into order, and how many at most.
    ordering_drives: BTreeMap<DriveName, u32>,
    sums: BTreeMap<TapeName, QueueSum>,
    group_tallies: BTreeMap<FamilyName, BTreeMap<ArchiveGroup, GroupTally>>,
    /// Drives of these classes would be used if they were free.
    wanted: BTreeSet<DriveClass>,
    waiting: BTreeSet<MountTarget>,
    without_tape: BTreeSet<FamilyName>,
    /// What was decided last about tapes that were waited for. Empty while no drive can be given.
    decided: Vec<MountDecision>,
    /// Families that nothing can be written of now, although there is a tape for them.
    held: BTreeMap<FamilyName, QueueWait>,
    trickles: Trickles,
    /// When a tape that is not worth a mount now will be.
    next_worth_ns: Option<i64>,
    /// Requests that were told with the last input, whose end is recorded with the next one.
    told: Vec<RequestId>,
    wake_ns: Option<i64>,
    is_decision_due: bool,
}

impl RequestEngine {
    /// An engine that knows what these records make up; kinds of drives are given by their names.
    pub fn restore<'a>(
        policy: TapePolicy,
        kinds: BTreeMap<String, DriveModel>,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> RequestEngine {
        RequestEngine {
            policy,
            kinds,
            live: LiveSet::of(records),
            watchdog: Watchdog::default(),
            calibrations: Calibrations::default(),
            orders: BTreeMap::new(),
            ordering_drives: BTreeMap::new(),
            sums: BTreeMap::new(),
            group_tallies: BTreeMap::new(),
            wanted: BTreeSet::new(),
            waiting: BTreeSet::new(),
            without_tape: BTreeSet::new(),
            decided: Vec::new(),
            held: BTreeMap::new(),
            trickles: Trickles::default(),
            next_worth_ns: None,
            told: Vec::new(),
            wake_ns: None,
            is_decision_due: true,
        }
    }

    /// All that it knows, as one record in the place of those that made it up.
    pub fn snapshot(&self) -> Record {
        Record::Snapshot(Box::new(self.live.clone()))
    }

    /// How it drives the library.
    pub fn policy(&self) -> &TapePolicy {
        &self.policy
    }

    /// What it knows.
    pub fn live(&self) -> &LiveSet {
        &self.live
    }

    /// After a restart: what had been ordered and may not have been done, and what may not have been told. Whether a drive still has
    /// what it had written and not synced nobody knows: that is written again, after another mount.
    pub fn resume(&mut self, now_ns: i64) -> Vec<Effect> {
        let mut out = Turnout::default();
        let drives: Vec<DriveName> = self.live.drives.0.keys().cloned().collect();
        for name in drives {
            // Where data ends each mount tells anew; what is recorded may be older than the tape.
            let mount = self.live.mount(&name);
            if mount.is_some_and(|mount| mount.purpose.is_archive()) {
                self.return_work(now_ns, &name, &mut out);
                self.dismount(now_ns, &name, &mut out);
            } else if let Some(effect) = self.resumed(&name) {
                out.effects.push(effect);
            }
            self.watchdog.begin(now_ns, &name);
            self.calibrations.doubt(&name);
        }
        let relabeling = self.live.relabeling.iter().cloned();
        out.effects
            .extend(relabeling.map(|tape| Effect::Relabel { tape }));
        for (request, outcome) in self.live.settled.clone() {
            // Those that the inventory has settled are told already.
            if !self.told.contains(&request) {
                self.told.push(request);
                out.effects.push(Effect::Tell { request, outcome });
            }
        }
        self.is_decision_due = true;
        self.go_on(now_ns, &mut out);
        out.all()
    }

    /// What a drive had been told last.
    fn resumed(&self, name: &DriveName) -> Option<Effect> {
        let drive = name.clone();
        match &self.live.drives.0.get(name)?.state {
            DriveState::Free => None,
            DriveState::Down { .. } => Some(Effect::Abort { drive }),
            DriveState::Mounting { tape, purpose, .. } => Some(Effect::Mount {
                drive,
                tape: tape.clone(),
                purpose: purpose.clone(),
            }),
            DriveState::Dismounting { tape, .. } => Some(Effect::Dismount {
                drive,
                tape: tape.clone(),
            }),
            DriveState::Mounted(mount) => match mount.work {
                DriveWork::Reading(file) => self.read_effect(name, file),
                DriveWork::Idle { .. }
                | DriveWork::Writing(_)
                | DriveWork::WritingAggregate(_)
                | DriveWork::Syncing => None,
            },
        }
    }

    /// Takes one input. Effects are performed in their order.
    pub fn handle(&mut self, now_ns: i64, input: Input) -> Vec<Effect> {
        let mut out = Turnout::default();
        // Those that were told with the last input know it by now.
        for request in std::mem::take(&mut self.told) {
            let outcome = None;
            self.keep(&mut out, Record::RequestEnded { request, outcome });
        }
        self.take(now_ns, input, &mut out);
        self.go_on(now_ns, &mut out);
        out.all()
    }

    /// What follows from the time, and from whatever has changed.
    fn go_on(&mut self, now_ns: i64, out: &mut Turnout) {
        self.expire(now_ns, out);
        self.watch(now_ns, out);
        self.work(now_ns, out);
        if self.is_decision_due {
            self.decide(now_ns, out);
            // A drive that was only kept for what might come is free for what is there.
            self.dismount_idle(now_ns, out);
        }
        self.wake(now_ns, out);
    }

    /// Long because each input has its arm.
    fn take(&mut self, now_ns: i64, input: Input, out: &mut Turnout) {
        match input {
            Input::DriveAdded {
                drive,
                library,
                kind,
            } => {
                if !self.live.drives.0.contains_key(&drive) {
                    self.keep(
                        out,
                        Record::DriveAdded {
                            drive,
                            library,
                            kind,
                        },
                    );
                }
                self.is_decision_due = true;
            }
            Input::TapeAdded { tape, facts } => {
                if !self.live.tapes.contains_key(&tape) {
                    self.keep(out, Record::TapeAdded { tape, facts });
                }
            }
            Input::TapeChanged { tape, state } => self.change_tape(&tape, (state, None), out),
            Input::Recall(requests) => {
                for request in requests {
                    self.ask_recall(now_ns, request, out);
                }
                self.is_decision_due = true;
            }
            Input::Archive(requests) => {
                for request in requests {
                    if self.live.requests.contains_key(&request.request) {
                        self.ask_again(now_ns, request, out);
                    } else {
                        let at_ns = now_ns;
                        self.keep(out, Record::ArchiveAsked { at_ns, request });
                    }
                }
                self.is_decision_due = true;
            }
            Input::Renew { request, lease_ns } => {
                if self.live.requests.contains_key(&request) {
                    self.keep(out, Record::LeaseRenewed { request, lease_ns });
                }
            }
            Input::Cancel(requests) => {
                for request in requests {
                    self.end(out, request, RequestOutcome::Canceled);
                }
                self.is_decision_due = true;
            }
            Input::Report { drive, report } => self.report(now_ns, &drive, report, out),
            Input::DriveDown(drive) => {
                self.take_down(now_ns, &drive, (DownReason::Operator, None), out);
            }
            Input::DriveUp(drive) => {
                if let Some(DriveState::Down { why, .. }) = self.state(&drive) {
                    let why = *why;
                    self.keep(
                        out,
                        DriveRecord::DriveFreed {
                            at_ns: now_ns,
                            drive: drive.clone(),
                        },
                    );
                    if why == DownReason::Failed {
                        let incident = TapeIncident::DriveDown(drive);
                        out.effects.push(Effect::Close(incident));
                    }
                    self.is_decision_due = true;
                }
            }
            Input::HoldBackground { until_ns } => {
                self.keep(out, Record::BackgroundHeld { until_ns });
                self.orders.clear();
                self.is_decision_due = true;
            }
            Input::Relabel { tape, found, order } => {
                self.relabel(now_ns, (tape, found, order), out);
            }
            Input::Relabeled(tape) => {
                if self.live.relabeling.contains(&tape) {
                    if self.live.has_unreadable(&tape) {
                        let incident = TapeIncident::FilesUnreadable(tape.clone());
                        out.effects.push(Effect::Close(incident));
                    }
                    self.keep(out, Record::RelabelEnded { tape });
                    self.is_decision_due = true;
                }
            }
            Input::Care { tape, step } => {
                let at_ns = now_ns;
                self.keep(out, Record::Care { at_ns, tape, step });
            }
            Input::CopyMended { file, copy } => self.mend_copy(file, copy, out),
            Input::ClassesCompared(classes) => {
                if self.live.compared_classes.as_ref() != Some(&classes) {
                    self.keep(out, Record::ClassesCompared { classes });
                }
            }
            Input::RetryLibraries => self.retry_libraries(now_ns, out),
            Input::Tick => self.is_decision_due = true,
        }
    }

    fn report(&mut self, now_ns: i64, drive: &DriveName, report: DriveReport, out: &mut Turnout) {
        match report {
            DriveReport::Mounted => self.mounted(now_ns, drive, out),
            DriveReport::Located { took_ns } => self.located(drive, took_ns),
            DriveReport::WrapEnds { wrap_ends_bytes } => {
                self.measured(drive, wrap_ends_bytes, out);
            }
            DriveReport::OrdersReads { files_max } => {
                self.ordering_drives.insert(drive.clone(), files_max);
            }
            DriveReport::ReadsOrdered { files } => self.take_drive_order(drive, &files),
            DriveReport::DataEnds { end_bytes } => self.data_ends(now_ns, drive, end_bytes, out),
            DriveReport::Moved { bytes } => self.watchdog.moved(now_ns, drive, bytes),
            DriveReport::FileRead(file) => self.file_read(now_ns, drive, (file, true), out),
            DriveReport::FileVerified(file) => self.file_read(now_ns, drive, (file, false), out),
            DriveReport::FileWritten(file) => self.file_written(now_ns, drive, file, out),
            DriveReport::AggregateWritten => self.aggregate_written(now_ns, drive, out),
            DriveReport::Synced => self.synced(now_ns, drive, out),
            DriveReport::TapeFull => self.tape_full(now_ns, drive, out),
            DriveReport::LibraryFull => self.library_full(now_ns, drive, out),
            DriveReport::Dismounted => self.dismounted(now_ns, drive, out),
            DriveReport::NotTaken(file) => self.not_taken(now_ns, drive, file, out),
            DriveReport::Failed(scope) => self.failed(now_ns, drive, scope, out),
        }
    }

    fn relabel(
        &mut self,
        now_ns: i64,
        (tape, found, order): (TapeName, TapeUse, RelabelOrder),
        out: &mut Turnout,
    ) {
        let per_day_max = self.policy.relabels_per_day_max;
        match may_relabel(&self.live, &tape, found, (now_ns, order, per_day_max)) {
            Ok(()) => {
                let begun = Record::RelabelBegun {
                    at_ns: now_ns,
                    tape: tape.clone(),
                };
                self.keep(out, begun);
                out.effects.push(Effect::Relabel { tape });
            }
            Err(because) => out.effects.push(Effect::RelabelRefused { tape, because }),
        }
    }

    /// Records something, which changes the state.
    fn keep(&mut self, out: &mut Turnout, record: impl Into<Record>) {
        let record = record.into();
        self.live.apply(&record);
        out.records.push(record);
    }

    /// Tells a request how it ends.
    fn end(&mut self, out: &mut Turnout, request: RequestId, outcome: RequestOutcome) {
        if !self.live.requests.contains_key(&request) {
            return;
        }
        let settled = Record::RequestSettled {
            request,
            outcome: outcome.clone(),
        };
        self.keep(out, settled);
        self.told.push(request);
        out.effects.push(Effect::Tell { request, outcome });
    }

    fn state(&self, drive: &DriveName) -> Option<&DriveState> {
        self.live.drives.0.get(drive).map(|drive| &drive.state)
    }

    /// What a drive with a tape does.
    fn work_of(&self, drive: &DriveName) -> Option<&DriveWork> {
        self.live.mount(drive).map(|mount| &mount.work)
    }

    /// Requests that nobody has renewed. What a drive is doing goes on.
    fn expire(&mut self, now_ns: i64, out: &mut Turnout) {
        while let Some((lease_ns, request)) = self.live.leases.first().copied() {
            if lease_ns > now_ns {
                return;
            }
            self.end(out, request, RequestOutcome::Expired);
            // A lease of a request that is not there would never end.
            self.live.leases.remove(&(lease_ns, request));
        }
    }

    /// Gives each mounted drive that does nothing its next work. When one has none any more, that is decided about once: after
    /// that only when something changes, or when its time without work is over.
    fn work(&mut self, now_ns: i64, out: &mut Turnout) {
        let drives = self.live.drives.0.iter();
        let idle = drives.filter_map(|(name, drive)| match &drive.state {
            DriveState::Mounted(mount) => match mount.work {
                DriveWork::Idle { since_ns } => {
                    Some((name.clone(), mount.purpose.is_archive(), since_ns))
                }
                _ => None,
            },
            _ => None,
        });
        for (drive, is_archive, since_ns) in idle.collect::<Vec<_>>() {
            let has_work = match is_archive {
                true => self.write_next(now_ns, &drive, out),
                false => self.read_next(now_ns, &drive, out),
            };
            if !has_work && since_ns >= now_ns {
                self.is_decision_due = true;
            }
        }
    }

    fn wake(&mut self, now_ns: i64, out: &mut Turnout) {
        let delay = self.policy.dismount_delay_ns;
        let drives = self.live.drives.0.values();
        let idle = drives.filter_map(|drive| match &drive.state {
            DriveState::Mounted(mount) => match mount.work {
                DriveWork::Idle { since_ns } => Some(since_ns.saturating_add(delay)),
                _ => None,
            },
            _ => None,
        });
        let full = self.live.full_libraries.values();
        let pauses = self.live.libraries.values().chain(full);
        let pauses = pauses.map(|pause| pause.probe_ns);
        let overdue = self
            .watchdog
            .next_ns(&self.live.drives, self.policy.watchdog);
        let lease = self.live.leases.first().map(|(lease_ns, _)| *lease_ns);
        let others = [self.next_worth_ns, overdue, lease].into_iter().flatten();
        let next = idle.chain(pauses.filter(|at| *at > now_ns)).chain(others);
        let next = next.min().map(|at| at.max(now_ns + SECOND_NS));
        if next != self.wake_ns {
            self.wake_ns = next;
            out.effects.extend(next.map(Effect::WakeAt));
        }
    }

    /// The requests for a file that is read.
    fn askers_of(&self, target: RequestTarget) -> Vec<RequestId> {
        let askers = match target {
            RequestTarget::Recall(file) => self.live.recalls.get(&file).map(|entry| &entry.askers),
            RequestTarget::Archive(file) => {
                self.live.archives.get(&file).map(|entry| &entry.askers)
            }
        };
        askers.map_or_else(Vec::new, |askers| askers.keys().copied().collect())
    }
}

#[cfg(test)]
mod tests;
