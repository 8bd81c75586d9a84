//! What is measured while a plan runs, and the report that is made of it at the end.

use super::{BrokenInvariant, World};
use crate::plan::Plan;
use crate::report::{
    Fairness, LinkPoint, LinkReport, Point, Report, Series, SlotTime, VoReport, Waits, jain,
};
use penstock_engine::{Engine, LinkProgress};
use penstock_model::{Bytes, NoSlot, SlotBound, SlotPlace, TapeWait, WaitReason};
use std::collections::BTreeMap;

/// Points that are kept: when there are more, each two become one.
const POINTS_MAX: usize = 480;
/// Links of which each point tells.
const LINKS_MAX: usize = 2_000;

/// Numbers that grow while a plan runs.
#[derive(Debug, Default)]
pub(super) struct Measure {
    waits: Vec<f32>,
    slots: SlotTime,
    links: Vec<OfLink>,
    vos: Vec<OfVo>,
    /// File-seconds by reason.
    waiting: BTreeMap<&'static str, f64>,
    series: Series,
    /// When the next point is due.
    due: f64,
    /// Bytes of each link since the engine was told.
    seen: Vec<f64>,
    /// Bytes since the last point.
    bytes: f64,
    /// Bytes of files that arrived, and of parts of those that did not.
    accounted: f64,
    /// Of all links together.
    work: WorkTime,
}

/// The time in which transfers are open.
#[derive(Debug, Clone, Default)]
struct WorkTime {
    open: u64,
    since: f64,
    seconds: f64,
}

impl WorkTime {
    fn opened(&mut self, now: f64) {
        if self.open == 0 {
            self.since = now;
        }
        self.open += 1;
    }

    fn closed(&mut self, now: f64) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.seconds += now - self.since;
        }
    }

    fn until(&self, now: f64) -> f64 {
        match self.open {
            0 => self.seconds,
            _ => self.seconds + now - self.since,
        }
    }
}

#[derive(Debug, Clone, Default)]
struct OfLink {
    files: u64,
    bytes: f64,
    /// Since the last point.
    latest: f64,
    active_max: u32,
    slot_seconds: f64,
    work: WorkTime,
}

#[derive(Debug, Clone, Default)]
struct OfVo {
    files: u64,
    bytes: f64,
    slot_seconds: f64,
    wait_longest: f64,
    active: u32,
    open: u32,
}

fn at<T: Clone + Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}

impl Measure {
    pub(super) fn new() -> Measure {
        Measure {
            series: Series {
                step: 1.0,
                points: Vec::new(),
            },
            due: 1.0,
            ..Measure::default()
        }
    }

    pub(super) fn opened(&mut self, link: usize, vo: usize, now: f64) {
        at(&mut self.vos, vo).open += 1;
        at(&mut self.links, link).work.opened(now);
        self.work.opened(now);
    }

    pub(super) fn closed(&mut self, link: usize, vo: usize, now: f64) {
        at(&mut self.links, link).work.closed(now);
        self.work.closed(now);
        let of_vo = at(&mut self.vos, vo);
        of_vo.open = of_vo.open.saturating_sub(1);
    }

    pub(super) fn waited(&mut self, vo: usize, seconds: f64) {
        self.waits.push(seconds as f32);
        let of_vo = at(&mut self.vos, vo);
        of_vo.wait_longest = of_vo.wait_longest.max(seconds);
    }

    pub(super) fn occupied(&mut self, link: usize, active: u32, vo: usize) {
        let of_link = at(&mut self.links, link);
        of_link.active_max = of_link.active_max.max(active);
        at(&mut self.vos, vo).active += 1;
    }

    pub(super) fn left(&mut self, link: usize, vo: usize, seconds: f64) {
        self.slots.all += seconds;
        at(&mut self.links, link).slot_seconds += seconds;
        let of_vo = at(&mut self.vos, vo);
        of_vo.slot_seconds += seconds;
        of_vo.active = of_vo.active.saturating_sub(1);
    }

    pub(super) fn arrived(&mut self, link: usize, vo: usize, bytes: f64) {
        self.accounted += bytes;
        at(&mut self.links, link).files += 1;
        let of_vo = at(&mut self.vos, vo);
        of_vo.files += 1;
        of_vo.bytes += bytes;
    }

    /// So many bytes of a file moved that will not arrive.
    pub(super) fn accounted(&mut self, bytes: f64) {
        self.accounted += bytes;
    }

    pub(super) fn failed(&mut self, seconds: f64) {
        self.slots.failed += seconds;
    }

    pub(super) fn lost(&mut self, seconds: f64) {
        self.slots.lost += seconds;
    }

    fn moved(&mut self, link: usize, bytes: f64) {
        let of_link = at(&mut self.links, link);
        of_link.bytes += bytes;
        of_link.latest += bytes;
        self.bytes += bytes;
    }

    fn add(&mut self, point: Point) {
        for (reason, files) in &point.waiting {
            *self.waiting.entry(reason).or_default() += files * self.series.step;
        }
        self.series.points.push(point);
        if self.series.points.len() >= POINTS_MAX {
            let points = std::mem::take(&mut self.series.points);
            let pairs = points.chunks(2).map(|pair| match pair {
                [one, other] => joined(one, other),
                rest => rest[0].clone(),
            });
            self.series.points = pairs.collect();
            self.series.step *= 2.0;
        }
        self.due += self.series.step;
    }
}

/// Two points as one of twice the time.
fn joined(one: &Point, other: &Point) -> Point {
    let mut joined = other.clone();
    joined.bytes += one.bytes;
    for (link, before) in joined.links.iter_mut().zip(&one.links) {
        link.bytes += before.bytes;
    }
    joined
}

impl World<'_> {
    /// Looks at everything, once a second.
    pub(super) fn look(&mut self) {
        self.look_at_bytes();
        if self.now + 1e-9 >= self.measure.due {
            let point = self.point();
            self.measure.add(point);
        }
    }

    fn look_at_bytes(&mut self) {
        let (index, measure) = (&self.link_index, &mut self.measure);
        self.field.take_moved(self.now, |ends, bytes| {
            if let Some(&link) = index.get(&ends) {
                measure.moved(link, bytes);
                *at(&mut measure.seen, link) += bytes;
            }
        });
    }

    /// What links did since this was last asked, as the driver tells the engine.
    pub(super) fn seen(&mut self) -> Vec<LinkProgress> {
        let plan = &self.plan;
        let links = self.links.iter().zip(&mut self.measure.seen);
        let moved = links.map(|(link, bytes)| LinkProgress {
            link: plan.link_id(link.ends),
            moved: Bytes(std::mem::take(bytes) as u64),
            lag: 0.0,
            queued_there: 0,
        });
        moved.filter(|seen| seen.moved.0 > 0).collect()
    }

    fn point(&mut self) -> Point {
        // One more when a VO has come that has run nothing yet.
        at(&mut self.measure.vos, self.vos.len().saturating_sub(1));
        let mut point = Point {
            bytes: std::mem::take(&mut self.measure.bytes),
            links: vec![LinkPoint::default(); self.links.len().min(LINKS_MAX)],
            vos: self
                .measure
                .vos
                .iter()
                .map(|of_vo| (of_vo.active, of_vo.open))
                .collect(),
            waiting: BTreeMap::new(),
        };
        for (link, told) in point.links.iter_mut().enumerate() {
            told.bytes = std::mem::take(&mut at(&mut self.measure.links, link).latest);
        }
        if let Some(engine) = self.service.engine() {
            self.look_at(engine, &mut point);
        }
        point
    }

    fn look_at(&self, engine: &Engine, point: &mut Point) {
        let mut waits = |reason: &'static str, files: f64| {
            if files > 0.0 {
                *point.waiting.entry(reason).or_default() += files;
            }
        };
        for view in engine.links() {
            if let Some(reason) = &view.because {
                waits(kind(reason), view.queued as f64);
            }
            let ends = (view.link.source.host(), view.link.destination.host());
            let (Some(&from), Some(&to)) = (self.numbers.get(ends.0), self.numbers.get(ends.1))
            else {
                continue;
            };
            let index = self.link_index.get(&(from, to));
            if let Some(told) = index.and_then(|index| point.links.get_mut(*index)) {
                told.active = f64::from(view.active.0);
                told.queued = view.queued as f64;
                told.limit = f64::from(view.limit.0);
            }
        }
        waits("backing off after a failure", engine.backing_off() as f64);
        waits(
            "another one to the same destination",
            engine.held_back() as f64,
        );
        waits("a banned storage", engine.held_by_bans() as f64);
    }

    /// Nothing moves any more: what moved over links is what arrived, or was left in the middle.
    pub(super) fn check_bytes(&mut self) -> Result<(), BrokenInvariant> {
        self.look_at_bytes();
        let moved: f64 = self.measure.links.iter().map(|link| link.bytes).sum();
        let accounted = self.measure.accounted;
        // The clock does not tell bytes apart.
        let difference = (moved - accounted).abs();
        match difference <= 1e-6 * moved + 1e4 {
            true => Ok(()),
            false => self.broken(format!(
                "{moved} bytes moved, and {accounted} are accounted for"
            )),
        }
    }

    pub(super) fn report(mut self) -> Report {
        self.look_at_bytes();
        // What runs still has held its slots until now.
        self.count_running();
        let mut states: BTreeMap<String, u64> = BTreeMap::new();
        for (name, count) in &self.books.ended {
            states.insert((*name).to_owned(), *count);
        }
        for open in self.books.open.values() {
            *states.entry(open.state.fts_name().to_owned()).or_default() += 1;
        }
        let measure = &mut self.measure;
        measure.waits.sort_by(f32::total_cmp);
        let quantile = |part: f64| {
            let last = measure.waits.len().saturating_sub(1);
            let found = measure.waits.get((last as f64 * part) as usize);
            found.copied().map_or(0.0, f64::from)
        };
        let wait_seconds = Waits {
            median: quantile(0.5),
            of_99: quantile(0.99),
            longest: quantile(1.0),
        };
        let links = self.links.iter().enumerate().map(|(link, known)| {
            let of_link = at(&mut measure.links, link);
            LinkReport {
                from: self.plan.storages[known.ends.0].name.clone(),
                to: self.plan.storages[known.ends.1].name.clone(),
                files: of_link.files,
                bytes: of_link.bytes,
                active_max: of_link.active_max,
                slot_seconds: of_link.slot_seconds,
                work_seconds: of_link.work.until(self.now),
            }
        });
        let links: Vec<LinkReport> = links.collect();
        let vos = self.vos.iter().enumerate().map(|(vo, name)| {
            let of_vo = at(&mut measure.vos, vo);
            VoReport {
                name: name.clone(),
                files: of_vo.files,
                bytes: of_vo.bytes,
                slot_seconds: of_vo.slot_seconds,
                wait_longest: of_vo.wait_longest,
                share: share_of(self.plan, name),
            }
        });
        let vos: Vec<VoReport> = vos.collect();
        let by_share = vos
            .iter()
            .map(|vo| vo.slot_seconds / vo.share.unwrap_or(1.0));
        let fairness = Fairness {
            links: jain(links.iter().map(|link| link.bytes)),
            vos: jain(by_share),
        };
        let waiting = measure.waiting.iter();
        Report {
            name: self.plan.name.clone(),
            policy: self.plan.service.policy.to_string(),
            seed: self.plan.seed,
            seconds: self.now,
            work_seconds: measure.work.until(self.now),
            states,
            jobs_refused: self.service.refused,
            bytes: self.books.bytes,
            wait_seconds,
            failures: self.books.failures,
            losses: self.books.losses,
            slot_seconds: measure.slots,
            waiting_seconds: waiting
                .map(|(name, files)| ((*name).to_owned(), *files))
                .collect(),
            fairness,
            links,
            vos,
            inputs: self.service.inputs,
            series: std::mem::take(&mut measure.series),
        }
    }
}

fn share_of(plan: &Plan, name: &str) -> Option<f64> {
    plan.vos.iter().find(|vo| vo.name == name)?.share
}

/// What kind of reason it is, for people.
pub(super) fn kind(reason: &WaitReason) -> &'static str {
    match reason {
        WaitReason::NoSlot(no_slot) => slot_kind(no_slot),
        WaitReason::LinkHalted { .. } => "the link is halted",
        WaitReason::BackingOff { .. } => "backing off after a failure",
        WaitReason::SameDestination { .. } => "another one to the same destination",
        WaitReason::StorageBanned { .. } => "a banned storage",
        WaitReason::TokenExchange { .. } => "a token",
        WaitReason::ByShare { because, .. } => kind(because),
        WaitReason::Tape(
            TapeWait::Gathering { .. }
            | TapeWait::Full { .. }
            | TapeWait::Failing { .. }
            | TapeWait::Recalling { .. }
            | TapeWait::Archiving { .. }
            | TapeWait::RemovingSource { .. },
        ) => "tape",
        WaitReason::Starting => "starting",
        WaitReason::Draining | WaitReason::Drained => "drained",
    }
}

/// Reasons why nothing more started, as reports name them.
pub(crate) const LINK_FULL: &str = "the link is full";
pub(crate) const SOURCE_FULL: &str = "the source is full";
pub(crate) const DESTINATION_FULL: &str = "the destination is full";
pub(crate) const SERVICE_FULL: &str = "the service is full";

fn slot_kind(NoSlot { place, because }: &NoSlot) -> &'static str {
    match because {
        SlotBound::Limit { .. } => match place {
            SlotPlace::Link => LINK_FULL,
            SlotPlace::Source { .. } | SlotPlace::Storage { .. } => SOURCE_FULL,
            SlotPlace::Destination { .. } => DESTINATION_FULL,
            SlotPlace::Agents | SlotPlace::Gfal => SERVICE_FULL,
        },
        SlotBound::Tuned { .. } => match place {
            SlotPlace::Source { .. } | SlotPlace::Storage { .. } => {
                "tuned limit of the source reached"
            }
            SlotPlace::Destination { .. } => "tuned limit of the destination reached",
            SlotPlace::Link | SlotPlace::Agents | SlotPlace::Gfal => {
                "tuned limit of the link reached"
            }
        },
        SlotBound::Kept { .. } => "a slot is kept for a link that needs two",
        SlotBound::Rate { .. } => "a cap on the rate",
        SlotBound::Draining => "drained",
    }
}
