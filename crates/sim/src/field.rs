//! Storages and networks as shared rates: what each running transfer gets of them.
//!
//! Transfers of one link get equal parts (TCP and processor sharing, near enough); between links, each resource is shared
//! by transfers, and what one cannot use is left to the others (max-min fairness by progressive filling, Bertsekas and
//! Gallager, "Data Networks" §6.5.2).

use crate::plan::{Plan, Storage};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

/// Bytes of a megabyte.
pub(crate) const MB: f64 = 1e6;
/// Bytes per second: nothing in the field is faster than memory.
const RATE_MAX: f64 = 1e11;

/// Something that many transfers share.
#[derive(Debug, Clone)]
struct Resource {
    /// Bytes per second when few use it.
    capacity: f64,
    knee: Option<f64>,
    factor: f64,
}

impl Resource {
    fn capacity_for(&self, transfers: f64) -> f64 {
        let degraded = self
            .knee
            .map_or(1.0, |knee| 1.0 + (transfers / knee).powi(2));
        self.capacity * self.factor / degraded
    }
}

/// A file on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Flow {
    /// The service that its link has given each transfer when it ends.
    ends_at: f64,
    transfer: u64,
}

impl Eq for Flow {}

impl Ord for Flow {
    fn cmp(&self, other: &Flow) -> std::cmp::Ordering {
        self.ends_at
            .total_cmp(&other.ends_at)
            .then(self.transfer.cmp(&other.transfer))
    }
}

impl PartialOrd for Flow {
    fn partial_cmp(&self, other: &Flow) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Transfers between the same two storages.
#[derive(Debug)]
struct Link {
    resources: Vec<usize>,
    /// Bytes per second of one transfer at most.
    per_transfer: f64,
    flows: BinaryHeap<Reverse<Flow>>,
    /// Flows that were stopped, and are still in the heap.
    gone: HashSet<u64>,
    count: f64,
    /// When rates were shared last.
    count_shared: f64,
    /// Bytes that each flow has got that was there from the begin.
    service: f64,
    /// Bytes per second of each flow, since `since`.
    rate: f64,
    since: f64,
    /// Of the rate: what was foretold with another is void.
    version: u64,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Field {
    resources: Vec<Resource>,
    storages: BTreeMap<String, usize>,
    paths: BTreeMap<(String, String), usize>,
    per_transfer: BTreeMap<(String, String), f64>,
    links: Vec<Link>,
    index: HashMap<(usize, usize), usize>,
    of_transfer: HashMap<u64, usize>,
}

/// When the next file of a link arrives, if nothing changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Foretold {
    pub(crate) link: usize,
    pub(crate) at: f64,
    pub(crate) version: u64,
}

impl Field {
    pub(crate) fn new(plan: &Plan) -> Field {
        let mut field = Field {
            resources: Vec::new(),
            storages: BTreeMap::new(),
            paths: BTreeMap::new(),
            per_transfer: BTreeMap::new(),
            links: Vec::new(),
            index: HashMap::new(),
            of_transfer: HashMap::new(),
        };
        for Storage {
            name,
            read,
            write,
            knee,
            ..
        } in &plan.storages
        {
            field.storages.insert(name.clone(), field.resources.len());
            for capacity in [read, write] {
                field.resources.push(Resource {
                    capacity: capacity * MB,
                    knee: *knee,
                    factor: 1.0,
                });
            }
        }
        for path in &plan.paths {
            for ends in [(&path.from, &path.to), (&path.to, &path.from)] {
                let ends = (ends.0.clone(), ends.1.clone());
                field
                    .per_transfer
                    .insert(ends.clone(), path.per_transfer * MB);
                field.paths.insert(ends, field.resources.len());
                field.resources.push(Resource {
                    capacity: path.bandwidth * MB,
                    knee: None,
                    factor: 1.0,
                });
            }
        }
        field
    }

    /// A storage element does so many times what it did.
    pub(crate) fn scale_storage(&mut self, name: &str, factor: f64) {
        if let Some(&at) = self.storages.get(name) {
            self.resources[at].factor = factor;
            self.resources[at + 1].factor = factor;
        }
    }

    /// A network carries so many times what it did, both ways.
    pub(crate) fn scale_path(&mut self, from: &str, to: &str, factor: f64) {
        for ends in [(from, to), (to, from)] {
            let ends = (ends.0.to_owned(), ends.1.to_owned());
            if let Some(&at) = self.paths.get(&ends) {
                self.resources[at].factor = factor;
            }
        }
    }

    fn link_at(&mut self, from: &str, to: &str) -> usize {
        let ends = (self.storages[from], self.storages[to]);
        if let Some(&index) = self.index.get(&ends) {
            return index;
        }
        let pair = (from.to_owned(), to.to_owned());
        let mut resources = vec![ends.0, ends.1 + 1];
        resources.extend(self.paths.get(&pair));
        let per_transfer = self.per_transfer.get(&pair).copied();
        self.links.push(Link {
            resources,
            per_transfer: per_transfer.unwrap_or(f64::INFINITY),
            flows: BinaryHeap::new(),
            gone: HashSet::new(),
            count: 0.0,
            count_shared: 0.0,
            service: 0.0,
            rate: 0.0,
            since: 0.0,
            version: 0,
        });
        self.index.insert(ends, self.links.len() - 1);
        self.links.len() - 1
    }

    /// A file begins to move. Rates change with the next [`Field::share`], or at once where nothing moved before.
    pub(crate) fn begin(
        &mut self,
        transfer: u64,
        from: &str,
        to: &str,
        bytes: f64,
        now: f64,
    ) -> usize {
        let index = self.link_at(from, to);
        let link = &mut self.links[index];
        link.progress(now);
        let ends_at = link.service + bytes.max(1.0);
        link.flows.push(Reverse(Flow { ends_at, transfer }));
        link.grow(1.0);
        self.of_transfer.insert(transfer, index);
        index
    }

    /// It does not move any further.
    pub(crate) fn stop(&mut self, transfer: u64, now: f64) -> Option<usize> {
        let index = self.of_transfer.remove(&transfer)?;
        let link = &mut self.links[index];
        link.progress(now);
        link.gone.insert(transfer);
        link.grow(-1.0);
        link.drop_gone();
        Some(index)
    }

    /// Takes what has arrived on a link by now.
    pub(crate) fn arrived(&mut self, index: usize, now: f64) -> Vec<u64> {
        let link = &mut self.links[index];
        link.progress(now);
        let mut arrived = Vec::new();
        loop {
            link.drop_gone();
            match link.flows.peek() {
                // A byte is less than the clock tells apart.
                Some(Reverse(flow)) if flow.ends_at <= link.service + 1.0 => {
                    let transfer = flow.transfer;
                    link.flows.pop();
                    link.grow(-1.0);
                    self.of_transfer.remove(&transfer);
                    arrived.push(transfer);
                }
                _ => return arrived,
            }
        }
    }

    /// Foretells anew; what was foretold of the link before is void.
    pub(crate) fn foretell(&mut self, index: usize, now: f64) -> Option<Foretold> {
        let link = &mut self.links[index];
        link.progress(now);
        link.version += 1;
        let Reverse(next) = link.flows.peek()?;
        if link.rate <= 0.0 {
            return None;
        }
        let left = (next.ends_at - link.service).max(0.0);
        Some(Foretold {
            link: index,
            at: now + left / link.rate,
            version: link.version,
        })
    }

    pub(crate) fn is_current(&self, foretold: &Foretold) -> bool {
        self.links[foretold.link].version == foretold.version
    }

    /// So many have come to a link that what the others get is not what it was.
    pub(crate) fn is_outgrown(&self, index: usize) -> bool {
        let link = &self.links[index];
        link.rate <= 0.0 || link.count > 1.2 * link.count_shared + 1.0
    }

    /// Gives each transfer its part of everything, anew. Tells of which links the rate is another one now.
    pub(crate) fn share(&mut self, now: f64) -> Vec<usize> {
        let mut users = vec![0.0; self.resources.len()];
        for link in &self.links {
            for &at in &link.resources {
                users[at] += link.count;
            }
        }
        let capacity = self.resources.iter().zip(&users);
        let mut left: Vec<f64> = capacity
            .map(|(resource, users)| resource.capacity_for(*users))
            .collect();
        let is_used = |at: &usize| self.links[*at].count > 0.0;
        let mut open: Vec<usize> = (0..self.links.len()).filter(is_used).collect();
        let mut rates = vec![0.0; self.links.len()];
        while !open.is_empty() {
            // What the scarcest resource, or the slowest link, allows each transfer.
            let fair = |at: usize| left[at].max(0.0) / users[at].max(1.0);
            let allowed: Vec<f64> = open
                .iter()
                .map(|at| {
                    let link = &self.links[*at];
                    let shared = link.resources.iter().map(|at| fair(*at));
                    shared.fold(link.per_transfer, f64::min)
                })
                .collect();
            let least = allowed.iter().copied().fold(f64::INFINITY, f64::min);
            let mut rest = Vec::with_capacity(open.len());
            for (&at, allowed) in open.iter().zip(&allowed) {
                if *allowed > least * (1.0 + 1e-9) {
                    rest.push(at);
                    continue;
                }
                let link = &self.links[at];
                rates[at] = least.min(RATE_MAX);
                for &resource in &link.resources {
                    left[resource] -= rates[at] * link.count;
                    users[resource] -= link.count;
                }
            }
            open = rest;
        }
        let mut changed = Vec::new();
        for (at, rate) in rates.into_iter().enumerate() {
            let link = &mut self.links[at];
            link.count_shared = link.count;
            if (rate - link.rate).abs() > 1e-6 * rate.max(link.rate) {
                link.progress(now);
                link.rate = rate;
                changed.push(at);
            }
        }
        changed
    }
}

impl Link {
    fn progress(&mut self, now: f64) {
        self.service += self.rate * (now - self.since).max(0.0);
        self.since = now;
        if self.flows.is_empty() {
            // So that numbers stay small and exact.
            self.service = 0.0;
        }
    }

    /// One more or less. Until rates are shared anew, a link that shares something scarce goes on as a whole at its rate.
    fn grow(&mut self, by: f64) {
        let is_scarce = self.rate < 0.999 * self.per_transfer;
        let before = self.count;
        self.count += by;
        if is_scarce && self.count > 0.0 {
            self.rate = (self.rate * before / self.count).min(self.per_transfer);
        }
    }

    fn drop_gone(&mut self) {
        while let Some(Reverse(flow)) = self.flows.peek()
            && self.gone.remove(&flow.transfer)
        {
            self.flows.pop();
        }
    }
}
