//! Random trouble: a field, users and misfortunes that a seed makes, with everything watched after each step.
//!
//! What must never happen, whatever happens: two attempts of one transfer, or two agents at one destination, at once; more at
//! once than may; a finished transfer whose file is not there; anything of an unfinished one left at its destination, or a
//! file of another one removed for it; a state that does not follow from what is recorded; a transfer that waits for no
//! reason, for one that is not true, or while it might run; one that never ends; bytes that nobody has; good files that are held
//! up by hopeless ones of others on their link.

mod ageing;
mod mistakes;
mod shares;
#[cfg(test)]
mod tests;

use crate::plan::{
    Change, Event, Hopeless, Load, Malice, Network, Plan, Policy, Service, Storage, Vo,
};
use crate::random::Random;
use crate::report::Report;
use crate::world::{self, BrokenInvariant};
use penstock_model::BanEffect;
use serde::Serialize;

/// Seconds in which users submit and misfortunes begin.
const BUSY: f64 = 600.0;
/// Seconds after which everything must have ended.
const END: f64 = 2.0 * 86_400.0;

/// Days are long: only so many of all seeds have them.
const AGEING_EVERY: u64 = 8;

/// What was endured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EnduranceReport {
    pub seeds: u64,
    /// Transfers that ended.
    pub transfers: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Attempts that were lost with a leader.
    pub losses: u64,
    /// Inputs that the engine took.
    pub inputs: u64,
}

impl EnduranceReport {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.transfers += report.states.values().sum::<u64>();
        self.failures += report.failures;
        self.losses += report.losses;
        self.inputs += report.inputs;
    }
}

/// Lets the service endure what these seeds bring.
///
/// Errors: the first seed with which something happened that must never happen, and what.
pub fn endure(
    seeds: std::ops::Range<u64>,
    tell: &mut dyn FnMut(u64),
) -> Result<EnduranceReport, (u64, BrokenInvariant)> {
    let mut endured = EnduranceReport::default();
    for seed in seeds {
        let report = endure_one(seed).map_err(|broken| (seed, broken))?;
        endured.add(&report);
        tell(seed);
    }
    Ok(endured)
}

/// Trouble, and, where there is none, what everybody is due.
fn endure_one(seed: u64) -> Result<Report, BrokenInvariant> {
    let report = world::endure(&plan(seed))?;
    shares::endure(seed)?;
    mistakes::endure(seed)?;
    if seed.is_multiple_of(AGEING_EVERY) {
        ageing::endure(seed)?;
    }
    Ok(report)
}

/// The field and the misfortunes of a seed.
pub fn plan(seed: u64) -> Plan {
    // Neighbouring seeds have nothing in common.
    let mut random = Random::new(seed.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let random = &mut random;
    let count = 2 + random.below(5);
    let storages: Vec<Storage> = (0..count).map(|number| storage(random, number)).collect();
    let vos: Vec<Vo> = (0..1 + random.below(4))
        .map(|number| vo(random, number))
        .collect();
    let loads = (0..1 + random.below(8)).map(|_| load(random, count, &vos));
    let loads: Vec<Load> = loads.collect();
    let networks = networks(random, count);
    let service = service(random);
    let numbers = (count, networks.len(), service.nodes as usize);
    let events = (0..random.below(16)).map(|_| event(random, numbers));
    let events: Vec<Event> = events.collect();
    let has_shares = random.happens(0.5);
    Plan {
        name: format!("trouble {seed}"),
        seconds: END,
        seed,
        service,
        storages,
        networks,
        vos: if has_shares { vos } else { Vec::new() },
        loads,
        events,
        malice: malice(random),
    }
}

fn within(random: &mut Random, from: f64, to: f64) -> f64 {
    from + (to - from) * random.even()
}

/// Evenly over orders of magnitude.
fn scale(random: &mut Random, from: f64, to: f64) -> f64 {
    within(random, from.ln(), to.ln()).exp()
}

fn some(random: &mut Random, probability: f64, most: f64) -> f64 {
    match random.happens(probability) {
        true => most * random.even(),
        false => 0.0,
    }
}

fn service(random: &mut Random) -> Service {
    Service {
        policy: Policy::Limits,
        link_max: 1 + random.below(20) as u32,
        storage_max: 1 + random.below(30) as u32,
        agents_max: 1 + random.below(60) as u32,
        nodes: if random.happens(0.5) {
            2 + random.below(3) as u32
        } else {
            1
        },
        retries: random.below(4) as u32,
        retry_delay: scale(random, 1.0, 60.0),
        stall: scale(random, 10.0, 120.0),
        pushes: false,
    }
}

fn storage(random: &mut Random, number: usize) -> Storage {
    let is_slow = random.happens(0.5);
    Storage {
        name: format!("s{number}"),
        pools: 1 + random.below(4) as u32,
        read: scale(random, 5e7, 5e9),
        write: scale(random, 5e7, 5e9),
        halved_at: is_slow.then(|| within(random, 2.0, 40.0)),
        uplink: None,
        latency: scale(random, 1e-3, 2.0),
        failures: some(random, 0.5, 0.3),
    }
}

fn vo(random: &mut Random, number: usize) -> Vo {
    let activities = ["production", "analysis", "users"];
    let count = random.below(4);
    let weights = activities.iter().take(count);
    Vo {
        name: format!("vo{number}"),
        share: Some(1.0 + random.below(9) as f64),
        activities: weights
            .map(|name| ((*name).to_owned(), 1.0 + random.below(5) as f64))
            .collect(),
    }
}

fn networks(random: &mut Random, storages: usize) -> Vec<Network> {
    let pairs = (0..storages).flat_map(|from| (from + 1..storages).map(move |to| (from, to)));
    let mut networks = Vec::new();
    for (from, to) in pairs {
        if random.happens(0.7) {
            networks.push(Network {
                from,
                to,
                bandwidth: scale(random, 1e8, 1e10),
                per_transfer: scale(random, 5e6, 1e9),
                rtt: scale(random, 1e-3, 0.3),
                opening: None,
                others: some(random, 0.3, 1e8),
                others_swing: random.even(),
            });
        }
    }
    networks
}

fn load(random: &mut Random, storages: usize, vos: &[Vo]) -> Load {
    let from = random.below(storages);
    let to = (from + 1 + random.below(storages - 1)) % storages;
    let activities = ["production", "analysis", "users", "Other Things"];
    let comes_at_once = random.happens(0.4);
    Load {
        pairs: vec![(from, to)],
        vo: vos[random.below(vos.len())].name.clone(),
        users: 1 + random.below(4) as u32,
        activity: activities[random.below(activities.len())].to_owned(),
        files: 1 + random.below(60) as u64,
        size: scale(random, 1e3, 5e9),
        spread: some(random, 0.7, 2.0),
        job: 1 + random.below(20) as u64,
        begin: within(random, 0.0, BUSY / 2.0),
        over: if comes_at_once {
            0.0
        } else {
            within(random, 1.0, BUSY / 2.0)
        },
        daily: 0.0,
        priority: 1 + random.below(5) as i64,
        hopeless: random.happens(0.1).then_some(Hopeless::Request),
    }
}

fn event(random: &mut Random, (storages, networks, nodes): (usize, usize, usize)) -> Event {
    let storage = random.below(storages);
    let to = (storage + 1 + random.below(storages - 1)) % storages;
    let what = match random.below(15) {
        0 => Change::StorageSpeed(storage, some(random, 0.6, 1.0)),
        1 => Change::StorageDown(storage),
        2 => Change::StorageFails(storage, random.even()),
        3 if networks > 0 => Change::NetworkSpeed(random.below(networks), some(random, 0.6, 1.0)),
        4 => Change::Ban(storage, BanEffect::Cancel),
        5 => Change::Ban(storage, BanEffect::Wait),
        6 => Change::Ban(storage, BanEffect::WaitAndAccept),
        7 => Change::Drain,
        8 => Change::LinkMax(storage, to, 1 + random.below(30) as u32),
        9 => Change::Clock(within(random, -300.0, 300.0)),
        10 => Change::Cancel(random.even()),
        11 => Change::Prioritise(random.even(), 1 + random.below(5) as i64),
        12 if nodes > 1 => Change::NodeLost(random.below(nodes)),
        13 if nodes > 1 => Change::NodeCutOff(random.below(nodes)),
        _ => Change::LeaderLost(scale(random, 0.1, 30.0)),
    };
    Event {
        at: within(random, 0.0, BUSY),
        lasts: Some(scale(random, 1.0, 200.0)),
        what,
    }
}

fn malice(random: &mut Random) -> Malice {
    let expires = random.happens(0.2);
    Malice {
        same_destination: some(random, 0.4, 0.3),
        replicas: some(random, 0.3, 0.5),
        hops: some(random, 0.3, 0.5),
        overwrites: some(random, 0.4, 1.0),
        final_failures: some(random, 0.3, 0.5),
        unclean: some(random, 0.4, 0.5),
        torn: some(random, 0.7, 1.0),
        queue_seconds_max: if expires {
            within(random, 30.0, 600.0)
        } else {
            0.0
        },
    }
}
