//! Storages and networks as shared rates: what each running transfer gets of them.
//!
//! Transfers between the same two pools get equal parts (TCP and processor sharing, near enough); between such lanes,
//! each resource is shared by transfers, and what one cannot use is left to the others (max-min fairness by progressive
//! filling, Bertsekas and Gallager, "Data Networks" §6.5.2). What a disk reads it cannot write in that time.

mod lane;

pub(crate) use lane::PredictedArrival;

use crate::plan::Plan;
use lane::{Lane, Resource, Use};
use std::collections::{HashMap, HashSet};

/// Bytes per second: nothing in the field is faster than memory.
const RATE_MAX: f64 = 1e11;
/// What others leave of a network at least.
const LEFT_MIN: f64 = 0.01;
/// When others use most of the networks, and users submit most: seconds after midnight.
const PEAK: f64 = 16.0 * 3600.0;

/// Where a transfer goes: storages and their pools, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    /// Source, and its pool.
    pub(crate) from: (usize, usize),
    /// Destination, and its pool.
    pub(crate) to: (usize, usize),
}

/// Others on a network.
#[derive(Debug)]
struct Others {
    resource: usize,
    mean: f64,
    swing: f64,
}

/// Where a storage's resources are.
#[derive(Debug)]
struct Place {
    /// Of its first pool.
    pools: usize,
    count: usize,
    read: f64,
    write: f64,
    /// Out and in.
    uplink: Option<(usize, usize)>,
}

/// A transfer that moves bytes.
#[derive(Debug, Clone, Copy)]
struct MovingTransfer {
    lane: usize,
    ends_at: f64,
    bytes: f64,
}

/// How much of what it has each part of a lane's way gives, from 0 to 1, and how much of it one file takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LaneUse {
    /// The pool that is read, and the part that each byte per second takes.
    pub(crate) source: (f64, f64),
    /// The pool that is written.
    pub(crate) destination: (f64, f64),
    /// The fullest of uplinks and network.
    pub(crate) network: f64,
}

#[derive(Debug)]
pub(crate) struct Field {
    resources: Vec<Resource>,
    /// Of each resource the part that is in use, since rates were shared last.
    in_use: Vec<f64>,
    others: Vec<Others>,
    storages: Vec<Place>,
    /// By ends: the resource, and what one transfer gets at most.
    networks: HashMap<(usize, usize), (usize, f64)>,
    lanes: Vec<Lane>,
    index: HashMap<Ends, usize>,
    moving: HashMap<u64, MovingTransfer>,
}

impl Field {
    pub(crate) fn new(plan: &Plan) -> Field {
        let mut field = Field {
            resources: Vec::new(),
            in_use: Vec::new(),
            others: Vec::new(),
            storages: Vec::new(),
            networks: HashMap::new(),
            lanes: Vec::new(),
            index: HashMap::new(),
            moving: HashMap::new(),
        };
        for storage in &plan.storages {
            let pools = field.resources.len();
            let count = storage.pools as usize;
            // A disk has a second of its time to give in each second.
            let disk = || Resource::new(1.0, storage.halved_at);
            field.resources.extend((0..count).map(|_| disk()));
            let uplink = storage.uplink.map(|speed| {
                let out = field.resources.len();
                let way = || Resource::new(speed, None);
                field.resources.extend([way(), way()]);
                (out, out + 1)
            });
            field.storages.push(Place {
                pools,
                count,
                read: storage.read / count as f64,
                write: storage.write / count as f64,
                uplink,
            });
        }
        let own = plan
            .networks
            .iter()
            .map(|network| (network.from, network.to));
        let own: HashSet<(usize, usize)> = own.collect();
        for network in &plan.networks {
            let there = (network.from, network.to);
            let back = (network.to, network.from);
            let back = Some(back).filter(|back| !own.contains(back));
            for ends in [Some(there), back].into_iter().flatten() {
                let resource = field.resources.len();
                field
                    .networks
                    .insert(ends, (resource, network.per_transfer));
                field.resources.push(Resource::new(network.bandwidth, None));
                if network.others > 0.0 {
                    field.others.push(Others {
                        resource,
                        mean: network.others,
                        swing: network.others_swing,
                    });
                }
            }
        }
        field
    }

    /// How many pools a storage has.
    pub(crate) fn pools(&self, storage: usize) -> usize {
        self.storages[storage].count
    }

    /// All pools of a storage do so many times what they did in the plan.
    pub(crate) fn set_storage_speed(&mut self, storage: usize, speed: f64) {
        let place = &self.storages[storage];
        for pool in place.pools..place.pools + place.count {
            self.resources[pool].factor = speed;
        }
    }

    /// A network carries so many times what it did in the plan, both ways.
    pub(crate) fn set_network_speed(&mut self, from: usize, to: usize, speed: f64) {
        for ends in [(from, to), (to, from)] {
            if let Some(&(resource, _)) = self.networks.get(&ends) {
                self.resources[resource].factor = speed;
            }
        }
    }

    /// The uplink of a storage carries so many times what it did in the plan, both ways.
    pub(crate) fn set_uplink_speed(&mut self, storage: usize, speed: f64) {
        if let Some((out, into)) = self.storages[storage].uplink {
            self.resources[out].factor = speed;
            self.resources[into].factor = speed;
        }
    }

    /// Transfers over a network get no more than this each, both ways.
    pub(crate) fn set_per_transfer(&mut self, (from, to): (usize, usize), most: f64) {
        let ways = [(from, to), (to, from)];
        for ends in ways {
            if let Some((_, known)) = self.networks.get_mut(&ends) {
                *known = most;
            }
        }
        let lanes = self.lanes.iter_mut();
        for lane in lanes.filter(|lane| ways.contains(&lane.link)) {
            lane.per_transfer = most;
        }
    }

    /// All pools of a storage serve so many connections for each transfer.
    pub(crate) fn set_streams(&mut self, storage: usize, streams: u32) {
        let place = &self.storages[storage];
        for pool in place.pools..place.pools + place.count {
            self.resources[pool].streams = f64::from(streams);
        }
    }

    /// How full the way of a lane is.
    pub(crate) fn lane_use(&self, index: usize) -> LaneUse {
        let in_use = |part: &Use| self.in_use.get(part.resource).copied().unwrap_or(0.0);
        let pool = |part: &Use| {
            let capacity = self.resources[part.resource].capacity_for(0.0);
            (in_use(part), part.weight / capacity.max(1e-9))
        };
        let uses = &self.lanes[index].uses;
        LaneUse {
            source: pool(&uses[0]),
            destination: pool(&uses[1]),
            network: uses[2..].iter().map(in_use).fold(0.0, f64::max),
        }
    }

    fn lane_at(&mut self, ends: Ends) -> usize {
        if let Some(&index) = self.index.get(&ends) {
            return index;
        }
        let (from, to) = (&self.storages[ends.from.0], &self.storages[ends.to.0]);
        let mut uses = vec![
            Use::new(from.pools + ends.from.1, 1.0 / from.read),
            Use::new(to.pools + ends.to.1, 1.0 / to.write),
        ];
        uses.extend(from.uplink.map(|(out, _)| Use::new(out, 1.0)));
        uses.extend(to.uplink.map(|(_, into)| Use::new(into, 1.0)));
        let network = self.networks.get(&(ends.from.0, ends.to.0));
        uses.extend(network.map(|(resource, _)| Use::new(*resource, 1.0)));
        let per_transfer = network.map_or(f64::INFINITY, |(_, most)| *most);
        let link = (ends.from.0, ends.to.0);
        self.lanes.push(Lane::new(link, uses, per_transfer));
        self.index.insert(ends, self.lanes.len() - 1);
        self.lanes.len() - 1
    }

    /// A file begins to move. Rates change with the next [`Field::share`], or at once where nothing moved before.
    pub(crate) fn begin(&mut self, transfer: u64, ends: Ends, bytes: f64, now: f64) -> usize {
        let index = self.lane_at(ends);
        let ends_at = self.lanes[index].begin(transfer, bytes, now);
        let moving = MovingTransfer {
            lane: index,
            ends_at,
            bytes,
        };
        self.moving.insert(transfer, moving);
        index
    }

    /// It does not move any further. Its lane, and the bytes that it has moved; `None` when it did not move.
    pub(crate) fn stop(&mut self, transfer: u64, now: f64) -> Option<(usize, f64)> {
        let moving = self.moving.remove(&transfer)?;
        let left = self.lanes[moving.lane].stop(transfer, moving.ends_at, now);
        Some((moving.lane, (moving.bytes - left).clamp(0.0, moving.bytes)))
    }

    /// The bytes that a transfer has moved; `None` when it does not move.
    pub(crate) fn moved(&self, transfer: u64, now: f64) -> Option<f64> {
        let moving = self.moving.get(&transfer)?;
        let left = moving.ends_at - self.lanes[moving.lane].service_at(now);
        Some((moving.bytes - left).clamp(0.0, moving.bytes))
    }

    /// Takes what has arrived in a lane by now.
    pub(crate) fn arrived(&mut self, index: usize, now: f64) -> Vec<u64> {
        let arrived = self.lanes[index].arrived(now);
        for transfer in &arrived {
            self.moving.remove(transfer);
        }
        arrived
    }

    /// Foretells anew; what was foretold of the lane before is void.
    pub(crate) fn foretell(&mut self, index: usize, now: f64) -> Option<PredictedArrival> {
        self.lanes[index].foretell(index, now)
    }

    pub(crate) fn is_current(&self, foretold: &PredictedArrival) -> bool {
        self.lanes[foretold.lane].version == foretold.version
    }

    /// So many have come to a lane that what the others get is not what it was.
    pub(crate) fn is_outgrown(&self, index: usize) -> bool {
        self.lanes[index].is_outgrown()
    }

    /// Takes the bytes that moved since the last time, by link.
    pub(crate) fn take_moved(&mut self, now: f64, mut tell: impl FnMut((usize, usize), f64)) {
        for lane in &mut self.lanes {
            lane.progress(now);
            let moved = std::mem::take(&mut lane.moved);
            if moved > 0.0 {
                tell(lane.link, moved);
            }
        }
    }

    /// Gives each transfer its part of everything, anew. Tells of which lanes the rate is another one now.
    pub(crate) fn share(&mut self, now: f64) -> Vec<usize> {
        let (mut left, mut wanted) = self.capacities(now);
        let whole = left.clone();
        let is_used = |at: &usize| self.lanes[*at].count > 0.0;
        let mut open: Vec<usize> = (0..self.lanes.len()).filter(is_used).collect();
        let mut rates = vec![0.0; self.lanes.len()];
        let mut allowed = Vec::with_capacity(open.len());
        while !open.is_empty() {
            // What the scarcest resource, or the slowest lane, allows each transfer.
            allowed.clear();
            let mut least = f64::INFINITY;
            for &at in &open {
                let lane = &self.lanes[at];
                let fair = lane.uses.iter().map(|part| {
                    let wanted = wanted[part.resource].max(f64::MIN_POSITIVE);
                    left[part.resource].max(0.0) / wanted
                });
                let rate = fair.fold(lane.per_transfer, f64::min);
                least = least.min(rate);
                allowed.push(rate);
            }
            let mut rest = Vec::with_capacity(open.len());
            for (&at, allowed) in open.iter().zip(&allowed) {
                if *allowed > least * (1.0 + 1e-9) {
                    rest.push(at);
                    continue;
                }
                let lane = &self.lanes[at];
                rates[at] = least.min(RATE_MAX);
                for part in &lane.uses {
                    let weight = part.weight * lane.count;
                    left[part.resource] -= rates[at] * weight;
                    wanted[part.resource] -= weight;
                }
            }
            open = rest;
        }
        let used = left.iter().zip(&whole);
        let used = used.map(|(left, whole)| (1.0 - left / whole.max(1e-9)).clamp(0.0, 1.0));
        self.in_use = used.collect();
        let lanes = self.lanes.iter_mut().zip(rates).enumerate();
        let changed = lanes.filter_map(|(at, (lane, rate))| lane.set_rate(rate, now).then_some(at));
        changed.collect()
    }

    /// What each resource has, and how much of it all its transfers use for each byte per second.
    fn capacities(&self, now: f64) -> (Vec<f64>, Vec<f64>) {
        let mut counts = vec![0.0; self.resources.len()];
        let mut wanted = vec![0.0; self.resources.len()];
        for lane in self.lanes.iter().filter(|lane| lane.count > 0.0) {
            for part in &lane.uses {
                counts[part.resource] += lane.count;
                wanted[part.resource] += part.weight * lane.count;
            }
        }
        let each = self.resources.iter().zip(&counts);
        let mut left: Vec<f64> = each
            .map(|(resource, count)| resource.capacity_for(*count))
            .collect();
        for others in &self.others {
            let whole = left[others.resource];
            let taken = others.mean * swing(others.swing, now);
            left[others.resource] = (whole - taken).max(LEFT_MIN * whole);
        }
        (left, wanted)
    }
}

/// What something that swings over a day is at a time, relative to its mean.
pub(crate) fn swing(by: f64, now: f64) -> f64 {
    1.0 + by * (std::f64::consts::TAU * (now - PEAK) / 86_400.0).cos()
}
