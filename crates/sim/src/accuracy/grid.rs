//! The grid in which faults are injected: some sources and destinations with a link between each two, as a seed draws them.
//! Links are busy: their users submit somewhat more than moves, and nothing else is short. Ranges are those of sites of the
//! field, not of anything that looks for faults.

use crate::plan::{
    Change, Event, Load, Malice, Network, Plan, Policy, Service, Storage, loss_at_rate,
};
use crate::random::Random;

/// By how much users submit more than links move.
const SURPLUS: f64 = 1.12;
/// Files of one job at most.
const JOB_MAX: usize = 12;
/// A number of transfers that is no limit here.
const MANY: u32 = 10_000;

/// A grid, and what its links move.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    pub(super) plan: Plan,
    pub(super) links: Vec<GridLink>,
}

/// A link between two storage elements. Its network and its load have its number.
#[derive(Debug, Clone)]
pub(super) struct GridLink {
    pub(super) ends: (usize, usize),
    /// Transfers at once.
    pub(super) slots: u32,
    /// Bytes per second of a file while its bytes move.
    pub(super) per_transfer: f64,
    /// Mean bytes of a file.
    pub(super) size: f64,
    /// Seconds in which the bytes of a file move, and those of its slot besides.
    pub(super) moving: f64,
    pub(super) opening: f64,
}

impl GridLink {
    /// Bytes per second that it moves, when nothing is wrong.
    pub(super) fn rate(&self) -> f64 {
        f64::from(self.slots) * self.size / (self.moving + self.opening)
    }

    /// Bytes per second of a file, with which the link moves this part of what it does else.
    pub(super) fn per_transfer_for(&self, part: f64) -> f64 {
        let slot = (self.moving + self.opening) / part;
        self.size / (slot - self.opening)
    }

    /// The loss with which it moves this part.
    pub(super) fn loss_for(&self, part: f64, rtt: f64) -> f64 {
        loss_at_rate(self.per_transfer_for(part), rtt)
    }
}

pub(super) fn within(random: &mut Random, from: f64, to: f64) -> f64 {
    from + (to - from) * random.even()
}

fn scale(random: &mut Random, from: f64, to: f64) -> f64 {
    within(random, from.ln(), to.ln()).exp()
}

impl Grid {
    /// For so many seconds.
    pub(super) fn draw(random: &mut Random, seed: u64, seconds: f64) -> Grid {
        let (sources, destinations) = (2 + random.below(2), 2 + random.below(2));
        let mut storages: Vec<Storage> = (0..sources + destinations)
            .map(|number| storage(random, number))
            .collect();
        let pairs = (0..sources)
            .flat_map(|from| (sources..sources + destinations).map(move |to| (from, to)));
        let mut links = Vec::new();
        let mut networks = Vec::new();
        for ends in pairs {
            let rtt = scale(random, 5e-3, 0.15);
            let opening = within(random, 0.8, 2.5);
            let link = link(random, ends, &storages, opening);
            networks.push(network(random, &link, rtt, opening));
            links.push(link);
        }
        for (number, storage) in storages.iter_mut().enumerate() {
            let its = links.iter().filter(|link| is_end(link, number));
            let (transfers, bytes) = its.fold((0.0, 0.0), |(transfers, bytes), link| {
                let slots = f64::from(link.slots);
                (transfers + slots, bytes + slots * link.per_transfer)
            });
            let pools = f64::from(storage.pools);
            // Files come to pools by chance: of several, one may have many more than its part.
            let room = within(random, 1.6, 3.0) * if storage.pools > 1 { 1.5 } else { 1.0 };
            storage.halved_at = Some(transfers / pools * within(random, 3.0, 6.0));
            (storage.read, storage.write) = (bytes * room, bytes * room);
            storage.uplink = Some(bytes * within(random, 1.3, 2.5));
        }
        let loads = links.iter().flat_map(|link| loads(random, link, seconds));
        let loads: Vec<Load> = loads.collect();
        let limits = links.iter().map(|link| Event {
            at: 0.0,
            lasts: None,
            what: Change::LinkMax(link.ends.0, link.ends.1, link.slots),
        });
        let plan = Plan {
            name: format!("accuracy {seed}"),
            seconds,
            seed,
            service: Service {
                policy: Policy::Limits,
                link_max: MANY,
                storage_max: MANY,
                agents_max: MANY,
                pushes: random.happens(0.5),
                ..Service::default()
            },
            storages,
            networks,
            vos: Vec::new(),
            events: limits.collect(),
            loads,
            malice: Malice::default(),
        };
        Grid { plan, links }
    }

    /// Slots of the links that end there, and the bytes per second of these links.
    pub(super) fn at(&self, storage: usize) -> (f64, f64) {
        let its = self.links.iter().filter(|link| is_end(link, storage));
        its.fold((0.0, 0.0), |(slots, rate), link| {
            (slots + f64::from(link.slots), rate + link.rate())
        })
    }

    /// Slots of the links that end there, when no link has more than so many.
    pub(super) fn slots_at(&self, storage: usize, each_max: f64) -> f64 {
        let its = self.links.iter().filter(|link| is_end(link, storage));
        its.map(|link| f64::from(link.slots).min(each_max)).sum()
    }

    /// Bytes per second of the links that end there, when no file gets more than this.
    pub(super) fn rate_at(&self, storage: usize, each_max: f64) -> f64 {
        let its = self.links.iter().filter(|link| is_end(link, storage));
        its.map(|link| {
            let moving = link.size / link.per_transfer.min(each_max);
            f64::from(link.slots) * link.size / (moving + link.opening)
        })
        .sum()
    }
}

fn is_end(link: &GridLink, storage: usize) -> bool {
    link.ends.0 == storage || link.ends.1 == storage
}

/// What is short of nothing is filled in when its links are known.
fn storage(random: &mut Random, number: usize) -> Storage {
    Storage {
        name: format!("s{number}"),
        pools: 1 + random.below(4) as u32,
        read: 1.0,
        write: 1.0,
        halved_at: None,
        uplink: None,
        latency: within(random, 0.1, 0.8),
        failures: within(random, 0.0, 0.01),
    }
}

fn link(random: &mut Random, ends: (usize, usize), storages: &[Storage], opening: f64) -> GridLink {
    let per_transfer = scale(random, 5e6, 6e7);
    let moving = scale(random, 20.0, 90.0);
    GridLink {
        ends,
        slots: 6 + random.below(15) as u32,
        per_transfer,
        size: per_transfer * moving,
        moving,
        opening: opening + storages[ends.0].latency + storages[ends.1].latency,
    }
}

fn network(random: &mut Random, link: &GridLink, rtt: f64, opening: f64) -> Network {
    let needed = f64::from(link.slots) * link.per_transfer;
    let bandwidth = needed * within(random, 1.5, 4.0);
    Network {
        from: link.ends.0,
        to: link.ends.1,
        bandwidth,
        per_transfer: link.per_transfer,
        rtt,
        opening: Some(opening),
        others: within(random, 0.0, 0.2) * bandwidth,
        others_swing: within(random, 0.0, 0.5),
    }
}

/// What comes all the time, and some minutes' worth of files at the begin.
fn loads(random: &mut Random, link: &GridLink, seconds: f64) -> [Load; 2] {
    let files_per_second = link.rate() / link.size;
    let load = Load {
        pairs: vec![link.ends],
        vo: format!("vo{}", random.below(3)),
        users: 1 + random.below(4) as u32,
        activity: "default".to_owned(),
        files: (files_per_second * SURPLUS * seconds).ceil() as u64,
        size: link.size,
        spread: within(random, 0.1, 0.7),
        job: 1 + random.below(JOB_MAX) as u64,
        begin: 1.0,
        over: seconds,
        daily: 0.0,
        priority: 3,
        hopeless: None,
    };
    let minutes = within(random, 4.0, 7.0);
    let queue = Load {
        files: (files_per_second * 60.0 * minutes).ceil() as u64,
        over: 0.0,
        ..load.clone()
    };
    [load, queue]
}
