//! Faults that are injected into a grid. Each acts on a resource or on people (a disk, a network, a process, operators,
//! users), never on what is measured. Whoever wrote them knew the rules that are to find them.

use super::grid::{Grid, GridLink, within};
use crate::plan::{Change, Event, Failing, Load, Network, Plan, Storage};
use crate::random::Random;
use penstock_decide::explain::Cause;
use penstock_model::BanEffect;

/// How much is left of the rate, about, in two strengths.
const WEAK: (f64, f64) = (0.42, 0.58);
const STRONG: (f64, f64) = (0.12, 0.35);
/// Seconds of a fault, where its length is not its strength.
const LASTS: f64 = 900.0;
/// Seconds in which all files of another VO are submitted.
const OTHERS_COME_WITHIN: f64 = 20.0;
/// Nodes of the service where some are lost, and how many of them.
const NODES: u32 = 6;
const NODES_WEAK: usize = 3;
const NODES_STRONG: usize = 4;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A source cannot read a part of its files; it takes as long as a copy until that is told.
    ReadErrors,
    /// The same of writing at a destination.
    WriteErrors,
    /// A part of the pools of a destination has no space left.
    NoSpace,
    /// A network loses segments.
    Loss,
    /// The uplink of a source's site carries less.
    SourceUplink,
    /// Operators lower the limit of a link.
    LinkLimit,
    /// Operators lower the limit of a storage element.
    StorageLimit,
    /// Operators drain the service.
    ServiceDrain,
    /// Operators drain a storage element.
    StorageDrain,
    /// Users of a link submit nothing.
    NoSubmissions,
    /// Some processes of the service are lost.
    NodesLost,
    /// Users of a link submit small files.
    SmallFiles,
    /// Another VO reads from the source.
    SourceLoad,
    /// The process of the service is down.
    ServiceDown,
    /// Copies into a destination use many connections each.
    Streams,
    /// A source refuses nearly all files at once.
    ReadErrorsAtOnce,
    /// No pool of a destination has space, and that is told at once.
    FullAtOnce,
    /// Operators ban a storage element.
    Banned,
    /// A network carries less.
    NetworkCut,
    /// The uplink of a destination's site carries less.
    DestinationUplink,
    /// Another VO writes to the destination.
    DestinationLoad,
    /// Users of a link submit less.
    FewerSubmissions,
    /// Some processes of the service reach nobody.
    NodesCutOff,
}

/// How much is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// About half of the rate.
    Weak,
    /// About a quarter of it, or nothing.
    Strong,
}

impl Strength {
    /// Both.
    pub const ALL: [Strength; 2] = [Strength::Weak, Strength::Strong];

    /// Seeds take turns.
    pub fn of_seed(seed: u64) -> Strength {
        Strength::ALL[(seed % 2) as usize]
    }

    fn part(self, random: &mut Random) -> f64 {
        let (from, to) = match self {
            Strength::Weak => WEAK,
            Strength::Strong => STRONG,
        };
        within(random, from, to)
    }

    fn choose<T>(self, weak: T, strong: T) -> T {
        match self {
            Strength::Weak => weak,
            Strength::Strong => strong,
        }
    }
}

impl Fault {
    /// Those that were at hand while rules were improved.
    pub const OPEN: [Fault; 15] = [
        Fault::ReadErrors,
        Fault::WriteErrors,
        Fault::NoSpace,
        Fault::Loss,
        Fault::SourceUplink,
        Fault::LinkLimit,
        Fault::StorageLimit,
        Fault::ServiceDrain,
        Fault::StorageDrain,
        Fault::NoSubmissions,
        Fault::NodesLost,
        Fault::SmallFiles,
        Fault::SourceLoad,
        Fault::ServiceDown,
        Fault::Streams,
    ];
    /// Those that were held out: written before, and run once after.
    pub const HELD_OUT: [Fault; 8] = [
        Fault::ReadErrorsAtOnce,
        Fault::FullAtOnce,
        Fault::Banned,
        Fault::NetworkCut,
        Fault::DestinationUplink,
        Fault::DestinationLoad,
        Fault::FewerSubmissions,
        Fault::NodesCutOff,
    ];

    /// What it is called.
    pub fn words(self) -> &'static str {
        match self {
            Fault::ReadErrors => "a source cannot read a part of its files",
            Fault::WriteErrors => "a destination cannot write a part of its files",
            Fault::NoSpace => "a part of a destination is full",
            Fault::Loss => "a network loses segments",
            Fault::SourceUplink => "the uplink of a source carries less",
            Fault::LinkLimit => "the limit of a link is lowered",
            Fault::StorageLimit => "the limit of a storage element is lowered",
            Fault::ServiceDrain => "the service is drained",
            Fault::StorageDrain => "a storage element is drained",
            Fault::NoSubmissions => "users submit nothing",
            Fault::NodesLost => "processes of the service are lost",
            Fault::SmallFiles => "users submit small files",
            Fault::SourceLoad => "another VO reads from the source",
            Fault::ServiceDown => "the service is down",
            Fault::Streams => "copies use many connections",
            Fault::ReadErrorsAtOnce => "a source refuses its files at once",
            Fault::FullAtOnce => "a destination is full",
            Fault::Banned => "a storage element is banned",
            Fault::NetworkCut => "a network carries less",
            Fault::DestinationUplink => "the uplink of a destination carries less",
            Fault::DestinationLoad => "another VO writes to the destination",
            Fault::FewerSubmissions => "users submit less",
            Fault::NodesCutOff => "processes of the service are cut off",
        }
    }

    /// The first cause that is right.
    pub fn cause(self) -> Cause {
        match self {
            Fault::ReadErrors | Fault::ReadErrorsAtOnce => Cause::SourceErrors,
            Fault::WriteErrors => Cause::DestinationErrors,
            Fault::NoSpace | Fault::FullAtOnce => Cause::OutOfSpace,
            Fault::Loss | Fault::NetworkCut => Cause::NetworkPath,
            Fault::SourceUplink | Fault::DestinationUplink => Cause::SiteNetwork,
            Fault::LinkLimit | Fault::StorageLimit => Cause::SlotLimit,
            Fault::ServiceDrain | Fault::StorageDrain | Fault::Banned => Cause::Drain,
            Fault::NoSubmissions | Fault::FewerSubmissions => Cause::FewerSubmissions,
            Fault::NodesLost | Fault::NodesCutOff => Cause::NotFed,
            Fault::SmallFiles => Cause::SmallFiles,
            Fault::SourceLoad | Fault::DestinationLoad => Cause::CompetingLoad,
            Fault::ServiceDown => Cause::ControlPlane,
            Fault::Streams => Cause::TooManyStreams,
        }
    }

    /// It lowers the rate of copies, or how many run, as soon as it begins. Others are known later: failures when copies have
    /// failed, a lack of files when the queue is empty, a service that is down when it is back.
    pub fn is_rate_fault(self) -> bool {
        match self {
            Fault::Loss
            | Fault::NetworkCut
            | Fault::SourceUplink
            | Fault::DestinationUplink
            | Fault::LinkLimit
            | Fault::StorageLimit
            | Fault::ServiceDrain
            | Fault::StorageDrain
            | Fault::Banned
            | Fault::NodesLost
            | Fault::NodesCutOff
            | Fault::SourceLoad
            | Fault::DestinationLoad
            | Fault::Streams => true,
            Fault::ReadErrors
            | Fault::ReadErrorsAtOnce
            | Fault::WriteErrors
            | Fault::NoSpace
            | Fault::FullAtOnce
            | Fault::NoSubmissions
            | Fault::FewerSubmissions
            | Fault::SmallFiles
            | Fault::ServiceDown => false,
        }
    }

    /// Seconds.
    pub(super) fn lasts(self, strength: Strength, random: &mut Random) -> f64 {
        match self {
            Fault::ServiceDrain | Fault::StorageDrain | Fault::Banned | Fault::ServiceDown => {
                let (from, to) = strength.choose((300.0, 600.0), (900.0, 1800.0));
                within(random, from, to)
            }
            Fault::NoSubmissions | Fault::FewerSubmissions | Fault::SmallFiles => {
                strength.choose(1500.0, 1800.0)
            }
            _ => LASTS,
        }
    }

    /// Prepares the grid for it, whether it happens or not.
    pub(super) fn prepare(self, grid: &mut Grid) {
        match self {
            // Simulated destinations that pull do not count what comes out of order.
            Fault::Loss | Fault::NetworkCut => grid.plan.service.pushes = true,
            // Only destinations that pull use several connections.
            Fault::Streams => {
                grid.plan.service.pushes = false;
                // Of several pools one slow one would hold ever more of the slots.
                for storage in &mut grid.plan.storages {
                    let pools = f64::from(std::mem::replace(&mut storage.pools, 1));
                    storage.halved_at = storage.halved_at.map(|each| each * pools);
                }
            }
            Fault::NodesLost | Fault::NodesCutOff => {
                let slots: u32 = grid.links.iter().map(|link| link.slots).sum();
                grid.plan.service.nodes = NODES;
                grid.plan.service.agents_max = slots;
            }
            _ => {}
        }
    }

    /// The link that is looked at: one that the fault reaches. Files that are slow anyway lose nothing to other readers and
    /// writers of a disk, and links with few slots none when the service has fewer.
    pub(super) fn victim(self, grid: &Grid, drawn: usize) -> usize {
        let links = || grid.links.iter().enumerate();
        let reached = match self {
            Fault::SourceLoad | Fault::DestinationLoad => {
                links().max_by(|a, b| a.1.per_transfer.total_cmp(&b.1.per_transfer))
            }
            Fault::NodesLost | Fault::NodesCutOff => links().max_by_key(|(_, link)| link.slots),
            _ => None,
        };
        reached.map_or(drawn, |(at, _)| at)
    }

    /// Adds it to a plan, for a link of the grid. Long because each fault has one arm.
    pub(super) fn inject(
        self,
        grid: &mut Grid,
        victim: usize,
        time: FaultTime,
        strength: Strength,
        random: &mut Random,
    ) {
        let FaultTime { at, lasts } = time;
        let link = grid.links[victim].clone();
        let (source, destination) = link.ends;
        let part = strength.part(random);
        let either = if random.happens(0.5) {
            source
        } else {
            destination
        };
        let what = match self {
            Fault::ReadErrors => vec![Change::ReadsFail(
                source,
                slow_failures(&link, part, random),
            )],
            Fault::WriteErrors => {
                vec![Change::WritesFail(
                    destination,
                    slow_failures(&link, part, random),
                )]
            }
            Fault::NoSpace => vec![Change::Full(
                destination,
                slow_failures(&link, part, random),
            )],
            Fault::ReadErrorsAtOnce => vec![Change::ReadsFail(source, quick_failures(random))],
            Fault::FullAtOnce => vec![Change::Full(destination, quick_failures(random))],
            Fault::Loss => {
                let rtt = grid.plan.networks[victim].rtt;
                vec![Change::NetworkLoss(victim, link.loss_for(part, rtt))]
            }
            Fault::NetworkCut => {
                let network = &mut grid.plan.networks[victim];
                network.others = 0.0;
                vec![Change::NetworkSpeed(
                    victim,
                    part * link.rate() / network.bandwidth,
                )]
            }
            Fault::SourceUplink => vec![uplink(grid, source, &link, part)],
            Fault::DestinationUplink => vec![uplink(grid, destination, &link, part)],
            Fault::LinkLimit => {
                let slots = (f64::from(link.slots) * part).round().max(1.0);
                // Operators set the limit of before again: without an end, as an end would take it away.
                grid.plan.events.extend([
                    lasting(at, Change::LinkMax(source, destination, slots as u32)),
                    lasting(at + lasts, Change::LinkMax(source, destination, link.slots)),
                ]);
                Vec::new()
            }
            Fault::StorageLimit => {
                let each = (f64::from(link.slots) * part).max(1.0);
                let slots = grid.slots_at(either, each).round() as u32;
                vec![Change::StorageMax(either, slots, slots)]
            }
            Fault::ServiceDrain => vec![Change::Drain],
            Fault::StorageDrain => vec![Change::StorageDrain(either)],
            Fault::Banned => vec![Change::Ban(either, BanEffect::WaitAndAccept)],
            Fault::NoSubmissions => vec![Change::Submissions(2 * victim, 0.0)],
            Fault::FewerSubmissions => vec![Change::Submissions(2 * victim, part)],
            Fault::SmallFiles => vec![Change::FileSizes(2 * victim, smaller(&link, part))],
            Fault::NodesLost => nodes(strength, random).map(Change::NodeLost).collect(),
            Fault::NodesCutOff => nodes(strength, random).map(Change::NodeCutOff).collect(),
            Fault::ServiceDown => vec![Change::LeaderLost(lasts)],
            Fault::Streams => vec![streams(grid, destination, &link, part, random)],
            Fault::SourceLoad => {
                other_load(grid, source, Way::Out, victim, part, time);
                Vec::new()
            }
            Fault::DestinationLoad => {
                other_load(grid, destination, Way::Into, victim, part, time);
                Vec::new()
            }
        };
        let events = what.into_iter().map(|what| Event {
            at,
            lasts: Some(lasts),
            what,
        });
        grid.plan.events.extend(events);
    }
}

/// Failures that take as long as a copy. So many that this part of the rate is left.
fn slow_failures(link: &GridLink, part: f64, random: &mut Random) -> Failing {
    let seconds = link.moving * within(random, 0.8, 2.0);
    // Of the time of a slot: successes are the part p, each of the copy's seconds, failures the rest.
    let ratio = (1.0 / part - 1.0) * (link.moving + link.opening) / (seconds + link.opening);
    Failing {
        part: (ratio / (1.0 + ratio)).min(0.95),
        seconds,
    }
}

fn quick_failures(random: &mut Random) -> Failing {
    Failing {
        part: within(random, 0.95, 1.0),
        seconds: within(random, 0.5, 3.0),
    }
}

fn lasting(at: f64, what: Change) -> Event {
    Event {
        at,
        lasts: None,
        what,
    }
}

/// So narrow that a link is left this part of its rate, when each file gets as much as another unless it is slower anyway.
fn uplink(grid: &Grid, storage: usize, victim: &GridLink, part: f64) -> Change {
    let each = victim.per_transfer_for(part);
    let left = grid.rate_at(storage, each);
    let (_, rate) = grid.at(storage);
    let planned = grid.plan.storages[storage].uplink.unwrap_or(rate);
    Change::UplinkSpeed(storage, left / planned)
}

/// The size of files, of what it was, with which a link moves this part of the bytes.
fn smaller(link: &GridLink, part: f64) -> f64 {
    let moving = part * link.moving / (link.moving + link.opening);
    let seconds = link.opening * moving / (1.0 - moving);
    seconds / link.moving
}

fn nodes(strength: Strength, random: &mut Random) -> impl Iterator<Item = usize> {
    let first = random.below(NODES as usize);
    let count = strength.choose(NODES_WEAK, NODES_STRONG);
    (0..count).map(move |number| (first + number) % NODES as usize)
}

/// Disks do less the more connections they serve: with so many for each file, this part of a link's rate is left.
fn streams(
    grid: &mut Grid,
    destination: usize,
    victim: &GridLink,
    part: f64,
    random: &mut Random,
) -> Change {
    let streams = 6 + random.below(11) as u32;
    let (slots, _) = grid.at(destination);
    let left = grid.rate_at(destination, victim.per_transfer_for(part));
    let storage: &mut Storage = &mut grid.plan.storages[destination];
    let served = slots / f64::from(storage.pools) * f64::from(streams);
    let ratio = (storage.write / left - 1.0).max(0.1);
    storage.halved_at = Some(served / ratio.sqrt());
    Change::Streams(destination, streams)
}

/// When a fault is there, in seconds of the simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultTime {
    pub at: f64,
    pub lasts: f64,
}

/// Out of a storage element, or into it.
#[derive(Debug, Clone, Copy)]
enum Way {
    Out,
    Into,
}

/// Another VO's files from, or to, a storage element, over a link that was not busy before: so many at once that this part
/// of its rate is left to each file of the victim.
fn other_load(
    grid: &mut Grid,
    storage: usize,
    way: Way,
    victim: usize,
    part: f64,
    time: FaultTime,
) {
    let FaultTime { at, lasts } = time;
    let link = grid.links[victim].clone();
    let (slots, rate) = grid.at(storage);
    let plan: &mut Plan = &mut grid.plan;
    let whole = plan.storages[storage].read;
    plan.storages[storage].uplink = Some(3.0 * whole);
    plan.storages[storage].halved_at = None;
    let others = (whole / link.per_transfer_for(part) - slots).clamp(4.0, 400.0);
    let far = plan.storages.len();
    plan.storages.push(Storage {
        name: format!("s{far}"),
        pools: 1,
        read: 3.0 * whole,
        write: 3.0 * whole,
        halved_at: None,
        uplink: None,
        latency: 0.2,
        failures: 0.0,
    });
    let ends = match way {
        Way::Into => (far, storage),
        Way::Out => (storage, far),
    };
    plan.networks.push(Network {
        from: ends.0,
        to: ends.1,
        bandwidth: 3.0 * whole,
        per_transfer: 2.0 * link.per_transfer,
        rtt: 0.02,
        opening: Some(1.0),
        others: 0.0,
        others_swing: 0.0,
    });
    let limit = Change::LinkMax(ends.0, ends.1, others.round() as u32);
    plan.events.push(lasting(0.0, limit));
    let bytes = (whole - part * rate).max(0.3 * whole) * lasts;
    plan.loads.push(Load {
        pairs: vec![ends],
        vo: "another".to_owned(),
        users: 1,
        activity: "default".to_owned(),
        files: (bytes / link.size).ceil().max(1.0) as u64,
        size: link.size,
        spread: 0.3,
        job: 20,
        begin: at,
        over: OTHERS_COME_WITHIN,
        daily: 0.0,
        priority: 3,
        hopeless: None,
    });
}
