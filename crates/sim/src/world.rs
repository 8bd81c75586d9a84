//! The run: a clock, what happens next, and the engine in the middle.

mod agenda;
mod agents;
mod changes;
mod measure;
mod mover_reports;
mod nodes;
mod recording;
mod service;
mod service_record;
#[cfg(test)]
mod tests;
mod users;
mod watching;

pub(crate) use measure::{DESTINATION_FULL, LINK_FULL, SERVICE_FULL, SOURCE_FULL};

use crate::books::Books;
use crate::field::{Field, PredictedArrival};
use crate::lines::Lines;
use crate::plan::{Connections, Failing, Network, Plan};
use crate::random::Random;
use crate::report::Report;
use crate::watch::Watch;
use agenda::{Agenda, Next};
use agents::Agents;
use measure::Measure;
use nodes::Nodes;
use penstock_engine::{Input, Now};
use penstock_model::Timestamp;
use penstock_model::observation::Observation;
use recording::Recording;
use service::Service;
pub(crate) use service_record::RecordLine;
use service_record::ServiceRecord;
use std::collections::HashMap;
use thiserror::Error;
use users::LoadProgress;

/// Where virtual time begins, milliseconds since 1970: a midnight.
pub(crate) const BEGIN_MS: i64 = 1_700_006_400_000;

/// Something happened that must never happen. The message says what and when; the seed of the plan repeats it.
#[derive(Debug, Error)]
#[error("second {second:.3}: {what}")]
pub struct BrokenInvariant {
    /// Virtual seconds since the begin.
    pub second: f64,
    /// What is wrong.
    pub what: String,
    /// What happened last before; only where that was watched.
    pub before: Vec<String>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Virtual seconds, and how many there are at most.
    pub seconds: (f64, f64),
    /// Transfers that have ended, and how many there will be.
    pub files: (u64, u64),
}

struct World<'a> {
    plan: &'a Plan,
    field: Field,
    service: Service,
    books: Books,
    agents: Agents,
    nodes: Nodes,
    measure: Measure,
    random: Random,
    now: f64,
    /// Seconds by which the wall clock is wrong.
    skew: f64,
    agenda: Agenda,
    submitting: Vec<LoadProgress>,
    /// Operators let nothing start.
    is_drained: bool,
    /// In simulated trouble.
    watch: Option<Box<Watch>>,
    /// Where what happens is told as rows.
    recording: Option<Recording<'a>>,
    /// Where what the service keeps is told.
    record: Option<ServiceRecord<'a>>,
    /// Where the order of starts is watched.
    lines: Option<Box<Lines>>,
    storages: Vec<Storage>,
    /// Storages, by host.
    numbers: HashMap<String, usize>,
    /// How much networks carry of what they did in the plan.
    network_speeds: Vec<f64>,
    /// The part of their segments that networks lose by a fault.
    network_losses: Vec<f64>,
    /// The connections of copies, where they are told.
    connections: Vec<Option<Connections>>,
    links: Vec<Link>,
    link_index: HashMap<(usize, usize), usize>,
    vos: Vec<String>,
    vo_index: HashMap<String, usize>,
}

/// A storage element as it is at the moment.
#[derive(Debug, Clone)]
struct Storage {
    speed: f64,
    /// So many times as long as usual it needs to open, and to commit, a file.
    slowness: f64,
    is_down: bool,
    is_banned: bool,
    failures: f64,
    /// Faults of reading, of writing, and of space.
    reads_fail: Option<Failing>,
    writes_fail: Option<Failing>,
    is_full: Option<Failing>,
    /// Connections of each copy into it.
    streams: u32,
    /// Transfers that read, and that write.
    active: (u32, u32),
}

/// A link that was used.
#[derive(Debug, Clone)]
struct Link {
    ends: (usize, usize),
    /// Transfers on it.
    active: u32,
    /// How many there may be.
    max: u32,
    /// Seconds before the first byte of a file, without its storages.
    opening: f64,
    network: Option<usize>,
}

/// Runs a plan to its end, and tells about once in a virtual minute how far it is.
///
/// Errors: an invariant of the engine was broken.
pub fn simulate(plan: &Plan, tell: &mut dyn FnMut(Progress)) -> Result<Report, BrokenInvariant> {
    let mut world = World::new(plan);
    world.begin()?;
    world.run(tell)?;
    Ok(world.report())
}

/// The same, and tells what the service records as rows that any site can fill: each attempt that ends, and each second of
/// each link.
///
/// Errors: an invariant of the engine was broken.
pub fn simulate_recorded(
    plan: &Plan,
    tell: &mut dyn FnMut(Progress),
    take: &mut dyn FnMut(Observation),
) -> Result<Report, BrokenInvariant> {
    let mut world = World::new(plan);
    world.recording = Some(Recording::new(take));
    world.begin()?;
    world.run(tell)?;
    Ok(world.report())
}

/// The same, and tells the record that the service keeps, line by line.
///
/// Errors: an invariant of the engine was broken.
pub(crate) fn simulate_with_record(
    plan: &Plan,
    take: &mut dyn FnMut(RecordLine),
) -> Result<Report, BrokenInvariant> {
    let mut world = World::new(plan);
    world.record = Some(ServiceRecord::new(plan.seed, take));
    world.begin()?;
    world.run(&mut |_| {})?;
    Ok(world.report())
}

/// The same as [`simulate`], with everything watched that can be: after each step, and when all is over.
pub(crate) fn endure(plan: &Plan) -> Result<Report, BrokenInvariant> {
    let mut world = World::new(plan);
    world.watch = Some(Box::default());
    world.lines = Some(Box::default());
    world.begin()?;
    world.run(&mut |_| {})?;
    world.check_end()?;
    Ok(world.report())
}

/// The same as [`simulate`], with the order of starts watched.
pub(crate) fn in_order(plan: &Plan) -> Result<Report, BrokenInvariant> {
    let mut world = World::new(plan);
    world.lines = Some(Box::default());
    world.begin()?;
    world.run(&mut |_| {})?;
    Ok(world.report())
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> World<'a> {
        let names = plan.storages.iter().enumerate();
        let numbers = names.map(|(number, storage)| (storage.name.clone(), number));
        let storages = plan.storages.iter().map(|storage| Storage {
            speed: 1.0,
            slowness: 1.0,
            is_down: false,
            is_banned: false,
            failures: storage.failures,
            reads_fail: None,
            writes_fail: None,
            is_full: None,
            streams: 1,
            active: (0, 0),
        });
        let mut world = World {
            plan,
            field: Field::new(plan),
            service: Service::new(plan),
            books: Books::default(),
            agents: Agents::default(),
            nodes: Nodes::new(plan.service.nodes, plan.service.agents_max),
            measure: Measure::new(),
            random: Random::new(plan.seed),
            now: 0.0,
            skew: 0.0,
            agenda: Agenda::default(),
            submitting: plan.loads.iter().map(LoadProgress::new).collect(),
            is_drained: false,
            watch: None,
            recording: None,
            record: None,
            lines: None,
            storages: storages.collect(),
            numbers: numbers.collect(),
            network_speeds: vec![1.0; plan.networks.len()],
            network_losses: vec![0.0; plan.networks.len()],
            connections: vec![None; plan.networks.len()],
            links: Vec::new(),
            link_index: HashMap::new(),
            vos: Vec::new(),
            vo_index: HashMap::new(),
        };
        for vo in &plan.vos {
            world.vo_at(&vo.name);
        }
        for (at, load) in plan.loads.iter().enumerate() {
            world.agenda.add(load.begin, Next::Submit(at));
        }
        for (at, event) in plan.events.iter().enumerate() {
            world.agenda.add(event.at, Next::Begins(at));
        }
        world.agenda.add(1.0, Next::Second);
        world
    }

    fn run(&mut self, tell: &mut dyn FnMut(Progress)) -> Result<(), BrokenInvariant> {
        let mut told = f64::NEG_INFINITY;
        while let Some((at, next)) = self.agenda.pop() {
            if at > self.plan.seconds {
                self.now = self.plan.seconds;
                break;
            }
            self.now = self.now.max(at);
            self.handle_event(next)?;
            if self.now - told >= 60.0 {
                told = self.now;
                tell(self.progress());
            }
            if self.is_over() {
                break;
            }
        }
        tell(self.progress());
        Ok(())
    }

    /// Nothing runs, waits or is to be submitted, and nothing that has ended is to be looked after.
    fn is_over(&self) -> bool {
        self.agents.is_empty()
            && self.books.open.is_empty()
            && self.submitting.iter().all(|load| load.left == 0)
            && !self.service.owes_tidying()
            && !self.has_strays()
    }

    fn progress(&self) -> Progress {
        Progress {
            seconds: (self.now, self.plan.seconds),
            files: (self.books.ended.values().sum(), self.plan.files()),
        }
    }

    /// Time as the service sees it.
    fn clock(&self) -> Now {
        let wall = (self.now + self.skew) * 1000.0;
        Now {
            at: Timestamp(BEGIN_MS + wall as i64),
            monotonic_us: ((self.now - self.service.since) * 1e6) as u64,
        }
    }

    fn broken<T>(&self, what: impl Into<String>) -> Result<T, BrokenInvariant> {
        let watch = self.watch.as_ref();
        Err(BrokenInvariant {
            second: self.now,
            what: what.into(),
            before: watch.map_or_else(Vec::new, |watch| watch.lines()),
        })
    }

    fn handle_event(&mut self, next: Next) -> Result<(), BrokenInvariant> {
        match next {
            Next::Submit(load) => self.submit(load),
            Next::Looked(transfer, attempt) => self.looked(transfer, attempt),
            Next::Fails(transfer, attempt, trouble) => self.fail(transfer, attempt, trouble),
            Next::Stalls(transfer, attempt, moved) => self.stall(transfer, attempt, moved),
            Next::Arrives(foretold) => self.arrive(&foretold),
            Next::Lands(place) => {
                self.land_stray(&place);
                Ok(())
            }
            Next::Stopped(transfer, attempt) => self.stopped(transfer, attempt),
            Next::Second => self.second(),
            Next::Wake => {
                self.service.woken();
                self.feed(Input::Tick)
            }
            Next::Begins(event) => self.begin_event(event),
            Next::Over(event) => self.end_event(event),
            Next::TakesOver => self.take_over(),
            Next::Joins(node) => self.join(node),
            Next::Missed(node, session) => self.miss(node, session),
            Next::Returns(node) => {
                self.return_node(node);
                Ok(())
            }
            Next::Orphans(node) => self.drop_orphans(node),
        }
    }

    fn second(&mut self) -> Result<(), BrokenInvariant> {
        self.share();
        self.look();
        self.record_samples();
        self.agenda.add(self.now + 1.0, Next::Second);
        let seen = self.seen();
        self.sample_links(&seen);
        self.feed(Input::Seen(seen))
    }

    /// Gives each transfer what it gets of storages and networks now.
    fn share(&mut self) {
        for lane in self.field.share(self.now) {
            self.foretell(lane);
        }
    }

    fn foretell(&mut self, lane: usize) {
        if let Some(foretold) = self.field.foretell(lane, self.now) {
            let PredictedArrival { at, .. } = foretold;
            self.agenda.add(at, Next::Arrives(foretold));
        }
    }

    fn link_at(&mut self, ends: (usize, usize)) -> usize {
        if let Some(&index) = self.link_index.get(&ends) {
            return index;
        }
        let network = self.plan.network_between(ends.0, ends.1);
        let opening = network.map(|at| opening(&self.plan.networks[at]));
        self.links.push(Link {
            ends,
            active: 0,
            max: self.service.link_max,
            opening: opening.unwrap_or(0.0),
            network,
        });
        self.link_index.insert(ends, self.links.len() - 1);
        self.links.len() - 1
    }

    fn vo_at(&mut self, name: &str) -> usize {
        if let Some(&index) = self.vo_index.get(name) {
            return index;
        }
        self.vos.push(name.to_owned());
        self.vo_index.insert(name.to_owned(), self.vos.len() - 1);
        self.vos.len() - 1
    }
}

/// Round trips before the first byte (names, TCP, TLS, request) and while TCP's window opens.
fn opening(network: &Network) -> f64 {
    if let Some(measured) = network.opening {
        return measured;
    }
    let window = network.per_transfer.min(network.bandwidth) * network.rtt;
    let doublings = (window / 14_480.0).max(1.0).log2();
    network.rtt * (4.0 + doublings)
}
#[cfg(test)]
mod tuning;
