//! The transfers between the same two pools: each has got the same service since it began, so one number tells how far
//! all of them are, however many they are.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashSet};

/// Something that many transfers share.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    /// What it has when few use it.
    capacity: f64,
    halved_at: Option<f64>,
    /// How much it has of what it had in the plan.
    pub(super) factor: f64,
    /// Connections of each transfer.
    pub(super) streams: f64,
}

impl Resource {
    pub(super) fn new(capacity: f64, halved_at: Option<f64>) -> Resource {
        Resource {
            capacity,
            halved_at,
            factor: 1.0,
            streams: 1.0,
        }
    }

    pub(super) fn capacity_for(&self, transfers: f64) -> f64 {
        let degraded = self
            .halved_at
            .map_or(1.0, |half| 1.0 + (transfers * self.streams / half).powi(2));
        self.capacity * self.factor / degraded
    }
}

/// That a lane uses a resource, and how much of it for each byte per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub(super) resource: usize,
    pub(super) weight: f64,
}

impl Use {
    pub(super) fn new(resource: usize, weight: f64) -> Use {
        Use { resource, weight }
    }
}

/// A file on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Flow {
    /// The service that its lane has given each transfer when it ends.
    ends_at: f64,
    transfer: u64,
}

impl Eq for Flow {}

impl Ord for Flow {
    fn cmp(&self, other: &Flow) -> Ordering {
        let by_end = self.ends_at.total_cmp(&other.ends_at);
        by_end.then(self.transfer.cmp(&other.transfer))
    }
}

impl PartialOrd for Flow {
    fn partial_cmp(&self, other: &Flow) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// When the next file of a lane arrives, if nothing changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PredictedArrival {
    pub(crate) lane: usize,
    pub(crate) at: f64,
    pub(crate) version: u64,
}

#[derive(Debug)]
pub(super) struct Lane {
    /// Of which it is a part.
    pub(super) link: (usize, usize),
    pub(super) uses: Vec<Use>,
    /// Bytes per second of one transfer at most.
    pub(super) per_transfer: f64,
    flows: BinaryHeap<Reverse<Flow>>,
    /// Flows that were stopped, and are still in the heap: of a transfer there may be several, by where each would end.
    gone: HashSet<(u64, u64)>,
    pub(super) count: f64,
    /// When rates were shared last.
    count_shared: f64,
    /// Bytes per second of all of them, when it was something shared that allowed no more.
    granted: Option<f64>,
    /// Bytes that each flow has got that was there from the begin.
    service: f64,
    /// Bytes per second of each flow, since `since`.
    rate: f64,
    since: f64,
    /// Bytes since somebody asked.
    pub(super) moved: f64,
    /// Of the rate: what was foretold with another is void.
    pub(super) version: u64,
}

impl Lane {
    pub(super) fn new(link: (usize, usize), uses: Vec<Use>, per_transfer: f64) -> Lane {
        Lane {
            link,
            uses,
            per_transfer,
            flows: BinaryHeap::new(),
            gone: HashSet::new(),
            count: 0.0,
            count_shared: 0.0,
            granted: None,
            service: 0.0,
            rate: 0.0,
            since: 0.0,
            moved: 0.0,
            version: 0,
        }
    }

    /// The service at which it will end.
    pub(super) fn begin(&mut self, transfer: u64, bytes: f64, now: f64) -> f64 {
        self.progress(now);
        let ends_at = self.service + bytes.max(1.0);
        self.flows.push(Reverse(Flow { ends_at, transfer }));
        self.grow(1.0);
        ends_at
    }

    /// The bytes that were left.
    pub(super) fn stop(&mut self, transfer: u64, ends_at: f64, now: f64) -> f64 {
        self.progress(now);
        let left = ends_at - self.service;
        self.gone.insert((transfer, ends_at.to_bits()));
        self.grow(-1.0);
        self.drop_gone();
        left
    }

    pub(super) fn arrived(&mut self, now: f64) -> Vec<u64> {
        self.progress(now);
        let mut arrived = Vec::new();
        loop {
            self.drop_gone();
            match self.flows.peek() {
                // A byte is less than the clock tells apart.
                Some(Reverse(flow)) if flow.ends_at <= self.service + 1.0 => {
                    let transfer = flow.transfer;
                    self.flows.pop();
                    self.grow(-1.0);
                    arrived.push(transfer);
                }
                _ => return arrived,
            }
        }
    }

    pub(super) fn foretell(&mut self, index: usize, now: f64) -> Option<PredictedArrival> {
        self.progress(now);
        self.version += 1;
        let Reverse(next) = self.flows.peek()?;
        if self.rate <= 0.0 {
            return None;
        }
        let left = (next.ends_at - self.service).max(0.0);
        Some(PredictedArrival {
            lane: index,
            at: now + left / self.rate,
            version: self.version,
        })
    }

    pub(super) fn is_outgrown(&self) -> bool {
        // While each moves as fast as it can alone, one more may be the one that is too many.
        let is_free = self.granted.is_none() && self.count > self.count_shared;
        self.rate <= 0.0 || is_free || self.count > 1.2 * self.count_shared + 1.0
    }

    /// True when the rate is another one now.
    pub(super) fn set_rate(&mut self, rate: f64, now: f64) -> bool {
        self.count_shared = self.count;
        let is_scarce = rate < 0.999 * self.per_transfer;
        self.granted = (is_scarce && self.count > 0.0).then_some(rate * self.count);
        let changes = (rate - self.rate).abs() > 1e-6 * rate.max(self.rate);
        if changes {
            self.progress(now);
            self.rate = rate;
        }
        changes
    }

    pub(super) fn service_at(&self, now: f64) -> f64 {
        self.service + self.rate * (now - self.since).max(0.0)
    }

    pub(super) fn progress(&mut self, now: f64) {
        let seconds = (now - self.since).max(0.0);
        self.service += self.rate * seconds;
        self.moved += self.rate * seconds * self.count;
        self.since = now;
        if self.flows.is_empty() {
            // So that numbers stay small and exact.
            self.service = 0.0;
        }
    }

    /// One more or less. Until rates are shared anew, a lane that shares something scarce goes on as a whole at its rate.
    fn grow(&mut self, by: f64) {
        self.count += by;
        if let Some(granted) = self.granted
            && self.count > 0.0
        {
            self.rate = (granted / self.count).min(self.per_transfer);
        }
    }

    fn drop_gone(&mut self) {
        while let Some(Reverse(flow)) = self.flows.peek()
            && self.gone.remove(&(flow.transfer, flow.ends_at.to_bits()))
        {
            self.flows.pop();
        }
    }
}
