//! What the pools of a storage element did in an interval, and its tapes: a second, or a minute that is made of seconds.
//!
//! It knows neither who counts nor who keeps it. What is counted adds up; of free space the least stands, because that
//! explains why a file was refused.

use crate::ids::{PoolName, VoName};
use crate::observation::Operation;
use crate::tape_sample::TapeSample;
use crate::units::Timestamp;

/// What all pools of one storage element did in one interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolSamples {
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// By name.
    pub pools: Vec<PoolSample>,
    /// Its tape part. `None`: it has none, or an earlier version did not look.
    pub tape: Option<TapeSample>,
}

/// One pool in an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSample {
    pub pool: PoolName,
    /// How often it was looked at, about once a second: sums of states are of so many looks.
    pub looks: u64,
    /// Looks at which its files could be used.
    pub reachable: u64,
    /// Looks at which it took new files, if there was room.
    pub accepting: u64,
    /// Looks at which operators had it take no new files.
    pub drained: u64,
    /// What new files might have, where trash gives way: the least that was seen.
    pub free_bytes: u64,
    /// Movers that ran, summed over the looks.
    pub active: u64,
    /// Movers that waited, likewise.
    pub queued: u64,
    /// How many might run, likewise.
    pub limit: u64,
    /// Movers that got a slot. `None`: an earlier version did not count them.
    pub started: Option<u64>,
    /// Microseconds for which movers waited until its disk had read, counted when they ended. `None`: an earlier version did not
    /// count them.
    pub read_wait_us: Option<u64>,
    /// What passed; nothing of a work and VO of which nothing passed.
    pub traffic: Vec<PoolTraffic>,
}

/// What passed through a pool by one kind of work for one VO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolTraffic {
    /// `None`: for none that is known.
    pub vo: Option<VoName>,
    /// `Copy` from or to another storage element, whichever of both asked for it, `Read` and `Write` by clients, or
    /// `PoolCopy` inside.
    pub operation: Operation,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Bytes of movers that failed or were left, counted when these ended: of those in and out, also of earlier intervals.
    pub failed_bytes: u64,
    /// Movers that ended, in whatever way.
    pub ended: u64,
    /// Movers that failed.
    pub failed: u64,
    /// Movers whose client left, or that were ended for others.
    pub left: u64,
}

impl PoolSamples {
    /// Adds a later interval.
    pub fn add(&mut self, later: &PoolSamples) {
        self.to = later.to;
        for new in &later.pools {
            match self.pools.iter_mut().find(|known| known.pool == new.pool) {
                Some(known) => known.add(new),
                None => self.pools.push(new.clone()),
            }
        }
        if let Some(later) = &later.tape {
            self.tape.get_or_insert_default().add(later);
        }
    }
}

impl PoolSample {
    /// One of which nothing is known yet.
    pub fn new(pool: PoolName) -> PoolSample {
        PoolSample {
            pool,
            looks: 0,
            reachable: 0,
            accepting: 0,
            drained: 0,
            free_bytes: u64::MAX,
            active: 0,
            queued: 0,
            limit: 0,
            started: None,
            read_wait_us: None,
            traffic: Vec::new(),
        }
    }

    fn add(&mut self, other: &PoolSample) {
        self.looks += other.looks;
        self.reachable += other.reachable;
        self.accepting += other.accepting;
        self.drained += other.drained;
        self.free_bytes = self.free_bytes.min(other.free_bytes);
        self.active += other.active;
        self.queued += other.queued;
        self.limit += other.limit;
        let sum = |one: Option<u64>, more: Option<u64>| Some(one?.saturating_add(more?));
        self.started = sum(self.started, other.started);
        self.read_wait_us = sum(self.read_wait_us, other.read_wait_us);
        for new in &other.traffic {
            let mut known = self.traffic.iter_mut();
            match known.find(|known| known.operation == new.operation && known.vo == new.vo) {
                Some(known) => known.add(new),
                None => self.traffic.push(new.clone()),
            }
        }
    }

    /// The sum of something over all that passed.
    pub fn sum(&self, figure: impl Fn(&PoolTraffic) -> u64) -> u64 {
        self.traffic.iter().map(figure).fold(0, u64::saturating_add)
    }
}

impl PoolTraffic {
    /// Of which nothing has passed.
    pub fn new(vo: Option<VoName>, operation: Operation) -> PoolTraffic {
        PoolTraffic {
            vo,
            operation,
            bytes_in: 0,
            bytes_out: 0,
            failed_bytes: 0,
            ended: 0,
            failed: 0,
            left: 0,
        }
    }

    /// Whether nothing passed and nothing ended.
    pub fn is_empty(&self) -> bool {
        self.bytes_in == 0 && self.bytes_out == 0 && self.ended == 0
    }

    /// Adds what passed besides.
    pub fn add(&mut self, other: &PoolTraffic) {
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
        self.failed_bytes = self.failed_bytes.saturating_add(other.failed_bytes);
        self.ended += other.ended;
        self.failed += other.failed;
        self.left += other.left;
    }

    /// What passed since these totals were others.
    pub fn since(&self, earlier: &PoolTraffic) -> PoolTraffic {
        PoolTraffic {
            vo: self.vo.clone(),
            operation: self.operation,
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            failed_bytes: self.failed_bytes.saturating_sub(earlier.failed_bytes),
            ended: self.ended.saturating_sub(earlier.ended),
            failed: self.failed.saturating_sub(earlier.failed),
            left: self.left.saturating_sub(earlier.left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: i64, free_bytes: u64, vo: &str, bytes_in: u64) -> PoolSamples {
        let traffic = PoolTraffic {
            bytes_in,
            ..PoolTraffic::new(Some(VoName::new(vo)), Operation::Copy)
        };
        PoolSamples {
            from: Timestamp(at),
            to: Timestamp(at + 1000),
            pools: vec![PoolSample {
                looks: 1,
                reachable: 1,
                free_bytes,
                active: 2,
                started: Some(3),
                read_wait_us: Some(9),
                traffic: vec![traffic],
                ..PoolSample::new(PoolName::new("a"))
            }],
            tape: Some(TapeSample {
                looks: 1,
                drives_busy: 2,
                ..TapeSample::default()
            }),
        }
    }

    #[test]
    fn seconds_add_up_by_vo_and_the_least_free_space_stands() {
        let mut minute = second(0, 70, "cms", 5);
        minute.add(&second(1000, 40, "cms", 6));
        minute.add(&second(2000, 50, "atlas", 7));
        assert_eq!((minute.from, minute.to), (Timestamp(0), Timestamp(3000)));
        let [pool] = &minute.pools[..] else {
            panic!("one pool: {minute:?}");
        };
        assert_eq!((pool.looks, pool.active, pool.free_bytes), (3, 6, 40));
        let tape = minute.tape.as_ref().expect("it was looked at");
        assert_eq!((tape.looks, tape.drives_busy), (3, 6));
        assert_eq!((pool.started, pool.read_wait_us), (Some(9), Some(27)));
        let by_vo = pool.traffic.iter().map(|one| one.bytes_in);
        assert_eq!(by_vo.collect::<Vec<_>>(), [11, 7]);
        assert_eq!(pool.sum(|one| one.bytes_in), 18);
    }
}
