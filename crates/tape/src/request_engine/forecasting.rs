//! When requests will have their end, if nothing more is asked for: a copy of the engine, let run ahead of the time with drives that
//! take as long as their model says.

use super::{DriveReport, Effect, Input, RequestEngine};
use crate::aggregate::aggregate_bytes;
use crate::drive::DriveModel;
use crate::drive_kind::StreamModel;
use crate::drive_pool::{DriveState, DriveWork};
use crate::request::{DriveName, RequestId};
use crate::watchdog::WatchdogLimits;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Reports of drives that are thought of at most; what would end after them is not told.
const REPORTS_MAX: usize = 50_000;
/// A century and a half, so that no sum with a time of today is beyond what fits.
const NEVER_NS: i64 = i64::MAX / 2;

/// When requests that are open now will have their end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forecast {
    /// In nanoseconds since 1970. Requests that wait for something whose end nobody knows are missing: a library that is paused, a
    /// drive that is down, a tape that is out of use.
    pub ends_ns: BTreeMap<RequestId, i64>,
}

/// What the models of drives do not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForecastTimes {
    /// The robot carries one cartridge, one way.
    pub carry_ns: i64,
}

/// A report that is to come, of a drive.
type Coming = Reverse<(i64, usize, DriveName)>;

struct Ahead {
    engine: RequestEngine,
    times: ForecastTimes,
    now_ns: i64,
    /// Where each report is found by its number.
    coming: BinaryHeap<Coming>,
    reports: Vec<Option<DriveReport>>,
    wake_ns: Option<i64>,
    ends_ns: BTreeMap<RequestId, i64>,
}

impl RequestEngine {
    /// When requests will have their end, if nothing fails and nothing more urgent is asked for. What a drive has begun is taken as begun
    /// now, so that an end is told rather late than early.
    pub fn forecast(&self, now_ns: i64, times: ForecastTimes) -> Forecast {
        let mut engine = self.clone();
        // Nothing is stuck where nothing fails.
        engine.policy.watchdog = WatchdogLimits {
            mount_ns: NEVER_NS,
            no_bytes_ns: NEVER_NS,
        };
        // Whoever waits goes on waiting: the end of a lease is no end of a request that drives bring about.
        engine.live.leases.clear();
        // What is known of drives and tapes is taken as it is.
        engine.calibrations.rest();
        let mut ahead = Ahead {
            engine,
            times,
            now_ns,
            coming: BinaryHeap::new(),
            reports: Vec::new(),
            wake_ns: self.wake_ns,
            ends_ns: BTreeMap::new(),
        };
        ahead.take_up();
        ahead.give(Input::Tick);
        ahead.run();
        Forecast {
            ends_ns: ahead.ends_ns,
        }
    }
}

impl Ahead {
    /// What drives are doing goes on.
    fn take_up(&mut self) {
        let drives: Vec<DriveName> = self.engine.live.drives.0.keys().cloned().collect();
        for drive in drives {
            match self.engine.state(&drive) {
                Some(DriveState::Mounting { since_ns, .. }) => {
                    let since_ns = *since_ns;
                    let took_ns = self.now_ns.saturating_sub(since_ns);
                    self.mounted_in(&drive, took_ns);
                }
                Some(DriveState::Dismounting { .. }) => self.dismounted(&drive),
                Some(DriveState::Mounted(mount)) => match mount.work.clone() {
                    DriveWork::Reading(file) => {
                        let effect = self.engine.read_effect(&drive, file);
                        self.perform_all(effect);
                    }
                    DriveWork::Writing(file) => {
                        let effect = self.engine.write_effect(&drive, file);
                        self.perform_all(effect);
                    }
                    DriveWork::WritingAggregate(members) => {
                        let effect = self.engine.aggregate_effect(&drive, members);
                        self.perform_all(effect);
                    }
                    DriveWork::Syncing => self.perform_all([Effect::Sync { drive }]),
                    DriveWork::Idle { .. } => {}
                },
                Some(DriveState::Free | DriveState::Down { .. }) | None => {}
            }
        }
    }

    /// Until nothing happens any more.
    fn run(&mut self) {
        while self.reports.len() < REPORTS_MAX && !self.engine.live.requests.is_empty() {
            let report_ns = self.coming.peek().map(|Reverse((at_ns, ..))| *at_ns);
            match (report_ns, self.wake_ns) {
                (Some(report_ns), wake_ns)
                    if wake_ns.is_none_or(|wake_ns| report_ns <= wake_ns) =>
                {
                    self.report();
                }
                (_, Some(wake_ns)) => {
                    // A pause of a library ends only when something shows that it works.
                    if report_ns.is_none() && !self.engine.live.libraries.is_empty() {
                        return;
                    }
                    self.now_ns = self.now_ns.max(wake_ns);
                    self.wake_ns = None;
                    self.give(Input::Tick);
                }
                _ => return,
            }
        }
    }

    fn report(&mut self) {
        let Some(Reverse((at_ns, number, drive))) = self.coming.pop() else {
            return;
        };
        self.now_ns = self.now_ns.max(at_ns);
        if let Some(report) = self.reports.get_mut(number).and_then(Option::take) {
            self.give(Input::Report { drive, report });
        }
    }

    fn give(&mut self, input: Input) {
        let effects = self.engine.handle(self.now_ns, input);
        self.perform_all(effects);
    }

    fn perform_all(&mut self, effects: impl IntoIterator<Item = Effect>) {
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Mount { drive, .. } => self.mounted_in(&drive, 0),
            Effect::Read {
                drive,
                file,
                begin_bytes,
                size_bytes,
            } => {
                self.move_bytes(
                    drive,
                    (begin_bytes, size_bytes),
                    DriveReport::FileRead(file),
                );
            }
            Effect::Verify {
                drive,
                file,
                begin_bytes,
                size_bytes,
            } => {
                self.move_bytes(
                    drive,
                    (begin_bytes, size_bytes),
                    DriveReport::FileVerified(file),
                );
            }
            Effect::Write {
                drive,
                file,
                begin_bytes,
                size_bytes,
            } => {
                self.move_bytes(
                    drive,
                    (begin_bytes, size_bytes),
                    DriveReport::FileWritten(file),
                );
            }
            Effect::WriteAggregate {
                drive,
                begin_bytes,
                members,
            } => {
                let sizes = members.iter().map(|member| member.size_bytes);
                let stretch = (begin_bytes, aggregate_bytes(sizes));
                self.move_bytes(drive, stretch, DriveReport::AggregateWritten);
            }
            Effect::Sync { drive } => {
                let took_ns = StreamModel::LTO.synchronised_mark_ns;
                self.come(drive, took_ns, DriveReport::Synced);
            }
            Effect::Dismount { drive, .. } => self.dismounted(&drive),
            Effect::Tell { request, .. } => {
                self.ends_ns.insert(request, self.now_ns);
            }
            Effect::WakeAt(at_ns) => self.wake_ns = Some(at_ns),
            // Nobody knows what a drive would answer.
            Effect::AskOrder { .. }
            | Effect::Persist(_)
            | Effect::Abort { .. }
            | Effect::CopyMade { .. }
            | Effect::Relabel { .. }
            | Effect::RelabelRefused { .. }
            | Effect::HintFailed { .. }
            | Effect::Open(_)
            | Effect::Close(_) => {}
        }
    }

    /// A drive reads or writes a stretch: its begin and its size.
    fn move_bytes(&mut self, drive: DriveName, (begin, size): (u64, u64), report: DriveReport) {
        let took_ns = self.moved_ns(&drive, begin, size);
        self.come(drive, took_ns, report);
    }

    fn come(&mut self, drive: DriveName, in_ns: i64, report: DriveReport) {
        let at_ns = self.now_ns.saturating_add(in_ns);
        self.coming
            .push(Reverse((at_ns, self.reports.len(), drive)));
        self.reports.push(Some(report));
    }

    fn mounted_in(&mut self, drive: &DriveName, took_ns: i64) {
        let load_ns = self.kind_of(drive).map_or(0, |model| model.load_ns);
        let left_ns = (self.times.carry_ns + load_ns - took_ns).max(0);
        self.come(drive.clone(), left_ns, DriveReport::Mounted);
    }

    fn dismounted(&mut self, drive: &DriveName) {
        let unload_ns = self
            .kind_of(drive)
            .map_or(0, |model| model.rewind_ns + model.unload_ns);
        let took_ns = self.times.carry_ns + unload_ns;
        self.come(drive.clone(), took_ns, DriveReport::Dismounted);
    }

    fn kind_of(&self, drive: &DriveName) -> Option<&DriveModel> {
        let drive = self.engine.live.drives.0.get(drive)?;
        self.engine.kinds.get(&drive.kind)
    }

    /// From where the head of a drive stands to the end of a stretch.
    fn moved_ns(&mut self, drive: &DriveName, begin_bytes: u64, size_bytes: u64) -> i64 {
        let Some(mount) = self.engine.live.mount(drive) else {
            return 0;
        };
        let (tape, head_bytes) = (mount.tape.clone(), mount.head_bytes);
        let (model, geometry) = self.engine.tape_model(&tape);
        let end_bytes = begin_bytes.saturating_add(size_bytes);
        let from = geometry.position(head_bytes);
        let located_ns = match head_bytes == begin_bytes {
            true => 0,
            false => model.locate.cost_ns(from, geometry.position(begin_bytes)),
        };
        located_ns.saturating_add(model.read_ns(&geometry, begin_bytes, end_bytes))
    }
}
