//! Drives and robots in virtual time, around the request engine. Long because each order of the engine has its time here.

use super::Forecasts;
use super::demand::{Arrival, Demand, dealt, library_name};
use super::phases::{Phase, PhaseTimes};
use super::plan::{ReadPolicy, TapePlan, TapePlanError, hours_ns};
use super::usage::{Activity, DriveUse, LateRecalls, Usage};
use penstock_tape::aggregate::aggregate_bytes;
use penstock_tape::cartridge::Cartridge;
use penstock_tape::chance::Chance;
use penstock_tape::drive_fault::MountFault;
use penstock_tape::drive_kind::DriveKind;
use penstock_tape::drive_pool::{DriveState, MountPurpose};
use penstock_tape::library::Robot;
use penstock_tape::loaded_drive::{FileMark, HostFeed, LoadedDrive};
use penstock_tape::locate::SECOND_NS;
use penstock_tape::request::{
    DriveName, FileId, FilePlace, RequestOutcome, TapeErrorScope, TapeName, VoName,
};
use penstock_tape::request_engine::{DriveReport, Effect, ForecastTimes, Input, RequestEngine};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A drive that works for longer than this reports in between.
const REPORT_EVERY_NS: i64 = 240 * SECOND_NS;
/// Bulks of which it is foretold when they will have their end.
const FORETOLD_MAX: usize = 24;

/// After so long it is seen that a library does not answer.
const AWAY_NS: i64 = 10 * SECOND_NS;

/// What comes at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// Of a drive, in the mount with this number.
    Report(DriveName, u64, Report),
    Repaired(DriveName),
    Tick(u64),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Report {
    WrapEnds(Vec<u64>),
    OrdersReads(u32),
    Ordered(Vec<FileId>),
    Mounted,
    Located(i64),
    Moved(u64),
    Read(FileId),
    Written(FileId),
    AggregateWritten(Vec<FileId>),
    Synced,
    Dismounted,
    Failed(TapeErrorScope),
}

/// A drive with what is in it.
struct SimulatedDrive {
    kind: DriveKind,
    /// What its tape is there for, and for whom as soon as the first file is begun.
    usage: Option<DriveUse>,
    /// The number of its library.
    library: u32,
    loaded: Option<LoadedDrive>,
    tape: Option<TapeName>,
    /// Counts mounts, so that what an aborted one would have reported is known.
    mount: u64,
    begin_ns: i64,
    /// Since when its tape was in no drive before that.
    tape_free_ns: i64,
    /// Up to here its time is accounted for.
    accounted_ns: i64,
    phases: PhaseTimes,
}

/// Sums over all mounts.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    pub mounts: u64,
    pub tapes: BTreeSet<TapeName>,
    /// Tapes by the day on which they were mounted.
    pub tape_days: BTreeSet<(i64, TapeName)>,
    pub phases: PhaseTimes,
    /// From the order to mount to the empty drive, of all mounts.
    pub occupied_ns: i64,
    /// What drives could have moved in that time.
    pub native_bytes: f64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub incidents: u64,
    pub records: u64,
    pub recall_waits_ns: Vec<i64>,
    pub vo_waits_ns: BTreeMap<VoName, Vec<i64>>,
    pub archive_waits_ns: Vec<i64>,
    pub failed: u64,
    /// What requests waited, divided by what was foretold when they were asked for.
    pub foretold: Vec<f64>,
    pub usage: Usage,
}

/// The library with its engine.
pub(super) struct LibraryWorld<'a> {
    plan: &'a TapePlan,
    demand: &'a Demand,
    forecasts: Forecasts,
    engine: RequestEngine,
    drives: BTreeMap<DriveName, SimulatedDrive>,
    cartridges: BTreeMap<TapeName, Cartridge>,
    /// By the number of the library.
    robots: Vec<Robot>,
    chance: Chance,
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    event_number: u64,
    tick: u64,
    asked_ns: Vec<i64>,
    /// When requests were foretold to have their end.
    foretold_ns: BTreeMap<u64, i64>,
    asked_by: BTreeMap<u64, (VoName, Option<i64>)>,
    /// When each tape was last taken out of a drive.
    tapes_free_ns: BTreeMap<TapeName, i64>,
    /// The most drives of a kind that recall.
    recall_drives_max: BTreeMap<String, u32>,
    /// Whether drives became free or were taken since that was looked at.
    is_supply_changed: bool,
    /// The drive whose report is being taken.
    reporting: Option<DriveName>,
    pub(super) now_ns: i64,
    pub(super) sums: Sums,
    #[cfg(test)]
    pub(super) samples: super::explained::BinSamples,
}

impl<'a> LibraryWorld<'a> {
    pub(super) fn new(
        plan: &'a TapePlan,
        demand: &'a Demand,
        (policy, forecasts): (ReadPolicy, Forecasts),
    ) -> Result<LibraryWorld<'a>, TapePlanError> {
        let kinds = plan.kinds()?;
        let models = kinds.iter().map(|(name, kind)| (name.clone(), kind.model));
        let rules = policy.rules(plan);
        let bounds = rules.mount.drives_max.clone().into_iter();
        let recall_drives_max = bounds.map(|(kind, most)| (kind, most.recall));
        let engine = RequestEngine::restore(rules, models.collect(), []);
        let mut world = LibraryWorld {
            plan,
            demand,
            forecasts,
            engine,
            drives: BTreeMap::new(),
            cartridges: BTreeMap::new(),
            robots: (0..plan.library.count)
                .map(|_| Robot::new(plan.library()))
                .collect(),
            chance: Chance::of_part(plan.seed, u64::MAX),
            events: BinaryHeap::new(),
            event_number: 0,
            tick: 0,
            asked_by: BTreeMap::new(),
            foretold_ns: BTreeMap::new(),
            tapes_free_ns: BTreeMap::new(),
            recall_drives_max: recall_drives_max.collect(),
            is_supply_changed: true,
            reporting: None,
            asked_ns: vec![0; usize::try_from(demand.requests).unwrap_or(0)],
            now_ns: 0,
            sums: Sums::default(),
            #[cfg(test)]
            samples: Default::default(),
        };
        for drives in &plan.drives {
            for number in 0..drives.count {
                let library = dealt(u64::from(number), plan.library.count);
                let drive = DriveName(format!("{}-{number:03}", drives.kind).into());
                let kind = kinds[&drives.kind].clone();
                world
                    .drives
                    .insert(drive.clone(), SimulatedDrive::new(kind, library));
                world.give(Input::DriveAdded {
                    drive,
                    library: library_name(library),
                    kind: drives.kind.clone(),
                });
            }
        }
        for (number, (tape, facts)) in demand.tapes.iter().enumerate() {
            let kind = &kinds[&facts.kind];
            let mut cartridge = Cartridge::of_kind(kind, plan.seed ^ number as u64);
            cartridge.is_initialised |= facts.written_bytes > 0;
            world.cartridges.insert(tape.clone(), cartridge);
            world.give(Input::TapeAdded {
                tape: tape.clone(),
                facts: facts.clone(),
            });
        }
        for (number, (at_ns, _)) in demand.arrivals.iter().enumerate() {
            world.add(*at_ns, Event::Arrival(number));
        }
        Ok(world)
    }

    fn add(&mut self, at_ns: i64, event: Event) {
        self.event_number += 1;
        self.events.push(Reverse((at_ns, self.event_number, event)));
    }

    /// Runs until nothing happens any more, or the plan's time is over.
    pub(super) fn run(&mut self) {
        let end_ns = hours_ns(self.plan.hours_max);
        while let Some(Reverse((at_ns, _, event))) = self.events.pop() {
            if at_ns > end_ns {
                self.now_ns = end_ns;
                break;
            }
            self.now_ns = at_ns;
            self.happen(event);
        }
        // What is still in drives counts as far as it is accounted for.
        for name in self.drives.keys().cloned().collect::<Vec<_>>() {
            self.close_mount(&name);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(number) => {
                let demand = self.demand;
                let arrival = &demand.arrivals[number].1;
                match arrival {
                    Arrival::Recall(requests) => {
                        for request in requests {
                            self.ask(request.request.0);
                            let asker = &request.asker;
                            let (vo, deadline_ns) = (asker.vo.clone(), asker.deadline_ns);
                            self.asked_by.insert(request.request.0, (vo, deadline_ns));
                        }
                        self.give(Input::Recall(requests.clone()));
                    }
                    Arrival::Archive(requests) => {
                        for request in requests {
                            self.ask(request.request.0);
                        }
                        self.give(Input::Archive(requests.clone()));
                    }
                }
                let is_foretold = number % demand.arrivals.len().div_ceil(FORETOLD_MAX) == 0;
                if is_foretold && self.forecasts == Forecasts::OfSomeBulks {
                    self.foretell(arrival);
                }
            }
            Event::Report(drive, mount, report) => {
                if self.drives.get(&drive).is_none_or(|one| one.mount != mount) {
                    return;
                }
                let report = match report {
                    Report::WrapEnds(wrap_ends_bytes) => DriveReport::WrapEnds { wrap_ends_bytes },
                    Report::OrdersReads(files_max) => DriveReport::OrdersReads { files_max },
                    Report::Ordered(files) => DriveReport::ReadsOrdered { files },
                    Report::Mounted => DriveReport::Mounted,
                    Report::Located(took_ns) => DriveReport::Located { took_ns },
                    Report::Moved(bytes) => DriveReport::Moved { bytes },
                    Report::Read(file) => {
                        self.count_moved(&drive, file);
                        DriveReport::FileRead(file)
                    }
                    Report::Written(file) => {
                        self.count_moved(&drive, file);
                        DriveReport::FileWritten(file)
                    }
                    Report::AggregateWritten(files) => {
                        for file in files {
                            self.count_moved(&drive, file);
                        }
                        DriveReport::AggregateWritten
                    }
                    Report::Synced => DriveReport::Synced,
                    Report::Failed(scope) => {
                        if scope == TapeErrorScope::Library {
                            self.close_mount(&drive);
                        }
                        DriveReport::Failed(scope)
                    }
                    Report::Dismounted => {
                        self.close_mount(&drive);
                        DriveReport::Dismounted
                    }
                };
                self.reporting = Some(drive.clone());
                self.give(Input::Report { drive, report });
                self.reporting = None;
            }
            Event::Repaired(drive) => {
                self.is_supply_changed = true;
                self.give(Input::DriveUp(drive));
            }
            Event::Tick(number) if number == self.tick => self.give(Input::Tick),
            Event::Tick(_) => {}
        }
    }

    /// When the requests that have just come will have their end, as far as is known now.
    fn foretell(&mut self, arrival: &Arrival) {
        let times = ForecastTimes {
            carry_ns: self.plan.library().move_ns,
        };
        let forecast = self.engine.forecast(self.now_ns, times);
        let requests: Vec<_> = match arrival {
            Arrival::Recall(requests) => requests.iter().map(|one| one.request).collect(),
            Arrival::Archive(requests) => requests.iter().map(|one| one.request).collect(),
        };
        for request in requests {
            if let Some(end_ns) = forecast.ends_ns.get(&request) {
                self.foretold_ns.insert(request.0, *end_ns);
            }
        }
    }

    fn ask(&mut self, request: u64) {
        if let Some(asked) = self.asked_ns.get_mut(usize::try_from(request).unwrap_or(0)) {
            *asked = self.now_ns;
        }
    }

    fn give(&mut self, input: Input) {
        let effects = self.engine.handle(self.now_ns, input);
        #[cfg(test)]
        self.samples.take(self.now_ns, &effects, self.engine.live());
        for effect in effects {
            self.perform(effect);
        }
        self.watch_idle();
    }

    /// Which kinds of drives could have read something now, and did not.
    fn watch_idle(&mut self) {
        if !std::mem::take(&mut self.is_supply_changed) {
            return;
        }
        let mut kinds: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for drive in self.engine.live().drives.0.values() {
            let (free, recalls) = kinds.entry(drive.kind.as_str()).or_default();
            match drive.state.occupied_for() {
                Some(MountPurpose::Recall) => *recalls += 1,
                _ => *free += u32::from(drive.state == DriveState::Free),
            }
        }
        for (kind, (free, recalls)) in kinds {
            let most = self.recall_drives_max.get(kind).copied();
            let may = most.is_none_or(|most| recalls < most);
            self.sums.usage.set_idle(self.now_ns, kind, free > 0 && may);
        }
    }

    /// A file has moved: whose it is, and in which hour.
    fn count_moved(&mut self, drive: &DriveName, file: FileId) {
        let Some((vo, activity, bytes)) = self.moved_file(drive, file) else {
            return;
        };
        let usage = &mut self.sums.usage;
        usage.moved(self.now_ns, (vo, activity), bytes);
    }

    fn moved_file(&self, drive: &DriveName, file: FileId) -> Option<(VoName, Activity, u64)> {
        let activity = self.drives.get(drive)?.usage.as_ref()?.activity;
        let (askers, bytes) = match activity {
            Activity::Recall => {
                let entry = self.engine.live().recalls.get(&file)?;
                (&entry.askers, entry.size_bytes)
            }
            Activity::Archive => {
                let entry = self.engine.live().archives.get(&file)?;
                (&entry.askers, entry.size_bytes)
            }
        };
        Some((askers.values().next()?.vo.clone(), activity, bytes))
    }

    /// The first file of a mount tells for whom it is.
    fn name_user(&mut self, drive: &DriveName, file: FileId) {
        let is_named = |one: &SimulatedDrive| one.usage.as_ref().is_none_or(|of| of.vo.is_some());
        if self.drives.get(drive).is_none_or(is_named) {
            return;
        }
        let Some((vo, activity, _)) = self.moved_file(drive, file) else {
            return;
        };
        if let Some(usage) = self
            .drives
            .get_mut(drive)
            .and_then(|one| one.usage.as_mut())
        {
            usage.vo = Some(vo.clone());
        }
        let same = self.drives.values().filter_map(|one| one.usage.as_ref());
        let same = same.filter(|of| of.vo.as_ref() == Some(&vo) && of.activity == activity);
        let count = u32::try_from(same.count()).unwrap_or(u32::MAX);
        self.sums.usage.see_drives_of((vo, activity), count);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Persist(records) => self.sums.records += records.len() as u64,
            Effect::Mount {
                drive,
                tape,
                purpose,
            } => {
                self.mount(&drive, &tape);
                self.see_drives(&drive, &purpose);
            }
            Effect::Read {
                drive,
                file,
                begin_bytes,
                size_bytes,
            } => {
                self.name_user(&drive, file);
                self.read(&drive, file, (begin_bytes, size_bytes));
            }
            Effect::AskOrder {
                drive,
                after_bytes,
                files,
            } => self.order(&drive, after_bytes, &files),
            // Nobody verifies or relabels in a simulation.
            Effect::Verify { .. } | Effect::Relabel { .. } | Effect::RelabelRefused { .. } => {}
            Effect::Write {
                drive,
                file,
                begin_bytes,
                size_bytes,
            } => {
                self.name_user(&drive, file);
                self.write(&drive, (begin_bytes, size_bytes), Report::Written(file));
            }
            Effect::WriteAggregate {
                drive,
                begin_bytes,
                members,
            } => {
                let files: Vec<FileId> = members.iter().map(|member| member.file).collect();
                if let Some(first) = files.first() {
                    self.name_user(&drive, *first);
                }
                let sizes = members.iter().map(|member| member.size_bytes);
                let place = (begin_bytes, aggregate_bytes(sizes));
                self.write(&drive, place, Report::AggregateWritten(files));
            }
            Effect::Sync { drive } => {
                let Some(work) = self.begin(&drive) else {
                    return;
                };
                let loaded = work.loaded.as_mut();
                let time = loaded.map_or(0, |loaded| loaded.mark(FileMark::Synchronised));
                work.spend(Phase::Mark, time);
                self.report_at_end(&drive, Report::Synced);
            }
            Effect::Dismount { drive, .. } => self.dismount(&drive),
            Effect::Abort { drive } => {
                if let Some(one) = self.drives.get_mut(&drive) {
                    one.account(self.now_ns, Phase::Lost);
                }
                self.close_mount(&drive);
                let repaired_ns = self.now_ns + hours_ns(self.plan.repair_hours);
                self.add(repaired_ns, Event::Repaired(drive));
            }
            Effect::Tell { request, outcome } => self.tell(request.0, &outcome),
            Effect::Open(_) => self.sums.incidents += 1,
            Effect::Close(_) | Effect::CopyMade { .. } | Effect::HintFailed { .. } => {}
            Effect::WakeAt(at_ns) => {
                self.tick += 1;
                // Leases never end here; nothing is to be waited for beyond the plan's time.
                if at_ns <= hours_ns(self.plan.hours_max) {
                    self.add(at_ns, Event::Tick(self.tick));
                }
            }
        }
    }

    fn tell(&mut self, request: u64, outcome: &RequestOutcome) {
        let asked = self.asked_ns.get(usize::try_from(request).unwrap_or(0));
        let asked_ns = asked.copied().unwrap_or(0);
        let waited = self.now_ns - asked_ns;
        if let Some(end_ns) = self.foretold_ns.remove(&request) {
            let foretold = (end_ns - asked_ns).max(1);
            self.sums.foretold.push(waited as f64 / foretold as f64);
        }
        match outcome {
            RequestOutcome::Recalled => {
                self.sums.recall_waits_ns.push(waited);
                if let Some((vo, deadline_ns)) = self.asked_by.remove(&request) {
                    self.sums.vo_waits_ns.entry(vo).or_default().push(waited);
                    self.see_deadline(deadline_ns);
                }
            }
            RequestOutcome::Archived(_) => self.sums.archive_waits_ns.push(waited),
            RequestOutcome::NoCopyLeft(_)
            | RequestOutcome::NoTape
            | RequestOutcome::Verified
            | RequestOutcome::NotTaken
            | RequestOutcome::Canceled
            | RequestOutcome::Expired => self.sums.failed += 1,
        }
    }

    /// A request has ended, whose file the drive has read that reports. What is late waited for its tape in another drive, for its
    /// mount, or for its turn in it.
    fn see_deadline(&mut self, deadline_ns: Option<i64>) {
        let Some(deadline_ns) = deadline_ns.filter(|at| self.now_ns > *at) else {
            return;
        };
        let drive = self
            .reporting
            .as_ref()
            .and_then(|name| self.drives.get(name));
        let Some(drive) = drive else { return };
        let waited = deadline_ns.max(drive.tape_free_ns)..drive.begin_ns;
        self.sums.usage.late(&drive.kind.name, waited);
    }

    /// How many drives of its kind have a tape, now that one more has.
    fn see_drives(&mut self, drive: &DriveName, purpose: &MountPurpose) {
        self.is_supply_changed = true;
        let Some(one) = self.drives.get_mut(drive) else {
            return;
        };
        one.usage = Some(DriveUse::of(purpose));
        let kind = one.kind.name.clone();
        let of_kind = self.drives.values().filter(|one| one.kind.name == kind);
        let uses = of_kind.filter_map(|one| one.usage.as_ref().map(|of| of.activity));
        self.sums.usage.see_drives(&kind, uses);
    }

    /// A drive that gets something to do; until now nothing was asked of it.
    fn begin(&mut self, drive: &DriveName) -> Option<&mut SimulatedDrive> {
        let drive = self.drives.get_mut(drive)?;
        drive.account(self.now_ns, Phase::Idle);
        Some(drive)
    }

    /// A report when all is done that the drive has been given, and others in between when that takes long.
    fn report_at_end(&mut self, drive: &DriveName, report: Report) {
        let Some(one) = self.drives.get(drive) else {
            return;
        };
        let (end_ns, mount) = (one.accounted_ns, one.mount);
        let (mut at_ns, mut moved) = (self.now_ns + REPORT_EVERY_NS, 1);
        while at_ns < end_ns {
            self.add(
                at_ns,
                Event::Report(drive.clone(), mount, Report::Moved(moved)),
            );
            (at_ns, moved) = (at_ns + REPORT_EVERY_NS, moved + 1);
        }
        self.add(end_ns, Event::Report(drive.clone(), mount, report));
    }

    fn mount(&mut self, name: &DriveName, tape: &TapeName) {
        let now_ns = self.now_ns;
        let fault = self.plan.faults.mount_fault(&mut self.chance);
        let chance = Chance::of_part(self.plan.seed, self.chance.below(u64::MAX));
        let (Some(drive), Some(cartridge)) =
            (self.drives.get_mut(name), self.cartridges.get_mut(tape))
        else {
            return;
        };
        self.sums.mounts += 1;
        self.sums.tapes.insert(tape.clone());
        let day = now_ns / (24 * 3_600 * SECOND_NS);
        self.sums.tape_days.insert((day, tape.clone()));
        drive.mount += 1;
        (drive.begin_ns, drive.accounted_ns) = (now_ns, now_ns);
        drive.phases = PhaseTimes::default();
        drive.tape_free_ns = self.tapes_free_ns.get(tape).copied().unwrap_or(0);
        drive.tape = Some(tape.clone());
        if fault == Some(MountFault::Hung) {
            return;
        }
        let number = drive.library;
        let is_away = self.plan.library.outages.iter().any(|outage| {
            let (begin_ns, end_ns) = (hours_ns(outage.begin_hours), hours_ns(outage.end_hours));
            outage.library == number && (begin_ns..end_ns).contains(&now_ns)
        });
        if is_away {
            drive.spend(Phase::Lost, AWAY_NS);
            return self.report_at_end(name, Report::Failed(TapeErrorScope::Library));
        }
        let carried = self.robots[number as usize].carry(now_ns);
        let (loaded, time) = LoadedDrive::load(&drive.kind, cartridge, chance);
        drive.loaded = Some(loaded);
        drive.spend(Phase::RobotWait, carried.begin_ns - now_ns);
        drive.spend(Phase::Carry, carried.end_ns - carried.begin_ns);
        drive.spend(Phase::Load, time.load_ns + time.thread_ns);
        drive.spend(Phase::Initialisation, time.initialisation_ns);
        let report = match fault {
            Some(MountFault::DriveDown) => Report::Failed(TapeErrorScope::Drive),
            Some(MountFault::TapeUnreadable) => Report::Failed(TapeErrorScope::Tape),
            Some(MountFault::Hung) | None => Report::Mounted,
        };
        self.tell_wrap_ends(name, tape);
        self.tell_that_it_orders(name);
        self.report_at_end(name, report);
    }

    fn tell_that_it_orders(&mut self, name: &DriveName) {
        let Some(drive) = self.drives.get(name) else {
            return;
        };
        let loaded = drive.loaded.as_ref();
        if let Some(files_max) = loaded.and_then(LoadedDrive::read_order_max) {
            let told = Report::OrdersReads(files_max);
            let report = Event::Report(name.clone(), drive.mount, told);
            self.add(drive.accounted_ns, report);
        }
    }

    /// The drive answers at once.
    fn order(&mut self, name: &DriveName, after_bytes: u64, files: &[FilePlace]) {
        let Some(drive) = self.drives.get(name) else {
            return;
        };
        let loaded = drive.loaded.as_ref();
        let Some(order) = loaded.and_then(|loaded| loaded.read_order(after_bytes, files)) else {
            return;
        };
        let report = Event::Report(name.clone(), drive.mount, Report::Ordered(order));
        self.add(self.now_ns, report);
    }

    /// A drive tells once where the wraps of a tape end.
    fn tell_wrap_ends(&mut self, name: &DriveName, tape: &TapeName) {
        let facts = self.engine.live().tapes.get(tape);
        let is_new = facts.is_some_and(|facts| facts.wrap_ends_bytes.is_none());
        let Some(drive) = self.drives.get(name).filter(|_| is_new) else {
            return;
        };
        let told = drive.loaded.as_ref().and_then(LoadedDrive::wrap_ends_bytes);
        if let Some(ends) = told.map(<[u64]>::to_vec) {
            let report = Event::Report(name.clone(), drive.mount, Report::WrapEnds(ends));
            self.add(drive.accounted_ns, report);
        }
    }

    fn read(&mut self, name: &DriveName, file: FileId, (begin, size): (u64, u64)) {
        let (faults, seed) = (self.plan.faults, self.plan.seed);
        let Some(drive) = self.begin(name) else {
            return;
        };
        let is_bad = drive.tape.as_ref().is_some_and(|tape| {
            let number = tape.0.bytes().fold(0, |sum: u64, byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(byte))
            });
            faults.is_place_bad(seed, number, begin)
        });
        let took_ns = drive.go_to(begin);
        if is_bad {
            self.report_at_end(name, Report::Failed(TapeErrorScope::File));
            return;
        }
        let located = Event::Report(name.clone(), drive.mount, Report::Located(took_ns));
        let located_ns = drive.accounted_ns;
        drive.stream(size);
        self.add(located_ns, located);
        self.sums.read_bytes += size;
        self.report_at_end(name, Report::Read(file));
    }

    fn write(&mut self, name: &DriveName, (begin, size): (u64, u64), report: Report) {
        let Some(drive) = self.begin(name) else {
            return;
        };
        drive.go_to(begin);
        drive.stream(size);
        let loaded = drive.loaded.as_mut();
        let mark = loaded.map_or(0, |loaded| loaded.mark(FileMark::Buffered));
        drive.spend(Phase::Mark, mark);
        self.sums.written_bytes += size;
        self.report_at_end(name, report);
    }

    fn dismount(&mut self, name: &DriveName) {
        let Some(drive) = self.begin(name) else {
            return;
        };
        if let Some(loaded) = &drive.loaded {
            let time = loaded.unload_time();
            drive.spend(Phase::Rewind, time.rewind_ns);
            drive.spend(Phase::Unload, time.unload_ns);
        }
        let unloaded_ns = drive.accounted_ns;
        let number = drive.library as usize;
        let carried = self.robots[number].carry(unloaded_ns);
        if let Some(drive) = self.drives.get_mut(name) {
            drive.spend(Phase::RobotWait, carried.begin_ns - unloaded_ns);
            drive.spend(Phase::Carry, carried.end_ns - carried.begin_ns);
        }
        self.report_at_end(name, Report::Dismounted);
    }

    /// The drive is empty: its mount is summed up.
    fn close_mount(&mut self, name: &DriveName) {
        let Some(drive) = self.drives.get_mut(name) else {
            return;
        };
        let Some(tape) = drive.tape.take() else {
            return;
        };
        self.tapes_free_ns.insert(tape, self.now_ns);
        drive.loaded = None;
        drive.mount += 1;
        self.is_supply_changed = true;
        let occupied_ns = drive.accounted_ns - drive.begin_ns;
        let rate = drive.kind.model.native_rate as f64;
        self.sums.occupied_ns += occupied_ns;
        self.sums.native_bytes += rate * occupied_ns as f64 / SECOND_NS as f64;
        self.sums.phases.add_all(&drive.phases);
        if let Some(usage) = drive.usage.take() {
            self.sums.usage.unmounted(usage, occupied_ns, rate);
        }
    }

    /// Requests that have no end yet.
    pub(super) fn open(&self) -> u64 {
        self.engine.live().requests.len() as u64
    }

    /// Recalls that ended after their deadline, and those that have none although it has passed.
    pub(super) fn late(&self) -> LateRecalls {
        let mut late = self.sums.usage.late;
        let deadlines = self.asked_by.values().filter_map(|(_, deadline)| *deadline);
        late.all += deadlines.filter(|at| *at < self.now_ns).count() as u64;
        late
    }

    pub(super) fn asked(&self) -> u64 {
        self.demand.requests
    }
}

impl SimulatedDrive {
    fn new(kind: DriveKind, library: u32) -> SimulatedDrive {
        SimulatedDrive {
            kind,
            usage: None,
            library,
            loaded: None,
            tape: None,
            mount: 0,
            begin_ns: 0,
            tape_free_ns: 0,
            accounted_ns: 0,
            phases: PhaseTimes::default(),
        }
    }

    fn spend(&mut self, phase: Phase, time_ns: i64) {
        self.phases.add(phase, time_ns);
        self.accounted_ns += time_ns;
    }

    /// Puts down the time since the last thing that it did.
    fn account(&mut self, now_ns: i64, phase: Phase) {
        if self.tape.is_some() && now_ns > self.accounted_ns {
            self.spend(phase, now_ns - self.accounted_ns);
        }
    }

    fn go_to(&mut self, byte: u64) -> i64 {
        let time = self.loaded.as_mut().map_or(0, |loaded| loaded.locate(byte));
        self.spend(Phase::Locate, time);
        time
    }

    fn stream(&mut self, bytes: u64) {
        if let Some(loaded) = &mut self.loaded {
            let time = loaded.stream(bytes, HostFeed::UNLIMITED);
            self.spend(Phase::Stream, time.stream_ns);
            self.spend(Phase::Turn, time.turns_ns);
            self.spend(Phase::Backhitch, time.backhitch_ns);
        }
    }
}
