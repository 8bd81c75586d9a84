//! What the pools of a storage element tell of a window, as the explainer takes it.
//!
//! Of an interval longer than a bin, bytes are spread evenly over its bins. Time in which nobody looked, between two looks,
//! is time in which the storage element did not answer.

mod tape_bins;

use crate::window_bins::WindowBins;
use penstock_decide::explain::signals::{
    Change, PoolSignals, Series, ServerName, ServerSignals, Setting, Signals,
};
use penstock_model::{PoolName, PoolSample, PoolSamples, StorageId, TapeSample, Timestamp};
use std::collections::BTreeMap;
use tape_bins::TapeBin;

/// A look tells of so much time at most.
const LOOK_MS: f64 = 1000.0;
/// Bins of all pools together at most, some 100 MB; of more pools, those that are first by name.
const CELLS_MAX: usize = 1_000_000;
/// Who is told to have changed the mode of a pool.
const WHO: &str = "the configuration of the storage element";

/// What one bin holds of a pool.
#[derive(Debug, Clone, Copy, Default)]
struct PoolBin {
    bytes_in: f64,
    bytes_out: f64,
    /// Looks, and at how many of them it was so.
    looks: f64,
    reachable: f64,
    accepting: f64,
    writable: f64,
    failed: f64,
    active: f64,
    queued: f64,
    limit: f64,
    /// Movers that began, and the looks of intervals that tell of it.
    started: f64,
    started_looks: f64,
    /// Seconds for which movers waited for the disk, and the looks of intervals that tell of it.
    read_wait_seconds: f64,
    read_wait_looks: f64,
    free_bytes: Option<f64>,
}

/// The fold: samples in the order of time.
#[derive(Debug)]
pub struct PoolFold {
    bins: WindowBins,
    pools: BTreeMap<PoolName, Vec<PoolBin>>,
    /// Of the tape part; empty where there is none.
    tape: Vec<TapeBin>,
    /// Milliseconds of each bin in which pools were looked at.
    looked_ms: Vec<f64>,
    /// Milliseconds of each bin of which a row is there and cannot be read.
    damaged_ms: Vec<f64>,
    /// What was looked at first, and last.
    extent: Option<(Timestamp, Timestamp)>,
    drained: BTreeMap<PoolName, bool>,
    changes: Vec<Change>,
}

impl PoolFold {
    /// Of the window of these signals.
    pub fn of(signals: &Signals) -> PoolFold {
        PoolFold {
            bins: WindowBins {
                begin: signals.begin,
                step_ms: i64::from(signals.bin_seconds.max(1)) * 1000,
                count: signals.bins,
            },
            pools: BTreeMap::new(),
            tape: Vec::new(),
            looked_ms: vec![0.0; signals.bins],
            damaged_ms: vec![0.0; signals.bins],
            extent: None,
            drained: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// Takes the next interval.
    pub fn take(&mut self, samples: &PoolSamples) {
        let (from, to) = (samples.from, samples.to.max(samples.from));
        let (first, last) = self.extent.unwrap_or((from, to));
        self.extent = Some((first.min(from), last.max(to)));
        if samples.pools.is_empty() {
            for (bin, ms) in self.bins.overlaps(from, to) {
                self.damaged_ms[bin] += ms;
            }
            return;
        }
        let length = (to.0 - from.0).max(1) as f64;
        let looks = samples.pools.iter().map(|pool| pool.looks).max();
        let looked = (looks.unwrap_or(0) as f64 * LOOK_MS).min(length);
        // What was looked at lies at the end, because the interval ends with a look.
        let looked_from = Timestamp(to.0 - looked as i64);
        for (bin, ms) in self.bins.overlaps(looked_from, to) {
            self.looked_ms[bin] += ms;
        }
        let parts: Vec<(usize, f64)> = self.bins.overlaps(from, to).collect();
        if let Some(tape) = &samples.tape {
            self.take_tape(from, to, tape);
        }
        for pool in &samples.pools {
            self.note_mode(pool, from);
            let room = CELLS_MAX / self.bins.count.max(1);
            if self.pools.len() >= room && !self.pools.contains_key(&pool.pool) {
                continue;
            }
            let bins = self.pools.entry(pool.pool.clone());
            let bins = bins.or_insert_with(|| vec![PoolBin::default(); self.bins.count]);
            for (bin, ms) in &parts {
                bins[*bin].add(pool, ms / length);
            }
        }
    }

    /// Takes what the tape part did in an interval.
    pub(crate) fn take_tape(&mut self, from: Timestamp, to: Timestamp, tape: &TapeSample) {
        self.tape.resize(self.bins.count, TapeBin::default());
        let length = (to.0 - from.0).max(1) as f64;
        for (bin, ms) in self.bins.overlaps(from, to) {
            self.tape[bin].add(tape, ms / length);
        }
    }

    /// That operators had a pool take no new files, or take them again.
    fn note_mode(&mut self, pool: &PoolSample, at: Timestamp) {
        let is_drained = pool.drained * 2 > pool.looks;
        let before = self.drained.insert(pool.pool.clone(), is_drained);
        if before.is_some_and(|before| before != is_drained) {
            let drained = || "drained".to_owned();
            self.changes.push(Change {
                at,
                who: WHO.to_owned(),
                place: pool.pool.to_string(),
                setting: Setting::Drain,
                old: (!is_drained).then(drained),
                new: is_drained.then(drained),
            });
        }
    }

    /// Adds what was taken to the signals: as that of the storage element at whichever end of links has one of these hosts.
    pub fn tell(self, hosts: &[String], signals: &mut Signals) {
        let (Some(own), Some(extent)) = (own_end(hosts, signals), self.extent) else {
            return;
        };
        let (up, is_known) = self.answers(extent);
        let host = ServerName(own.host().to_owned());
        let server = ServerSignals {
            storage: Some(own.clone()),
            up: Series(up.clone()),
            in_flight: self.of_all(|bin| bin.mean(bin.active)),
            starts: self.of_all(|bin| (bin.started_looks > 0.0).then_some(bin.started)),
            ..ServerSignals::default()
        };
        for (name, bins) in &self.pools {
            let pool = pool_signals(&own, bins, &is_known, &up);
            signals.pools.insert(name.clone(), pool);
        }
        signals.servers.insert(host, server);
        if !self.tape.is_empty() {
            let storage = signals.storages.entry(own.clone()).or_default();
            storage.tape = tape_bins::tape_signals(&self.tape);
            storage.batch_seconds = tape_bins::waits(&self.tape);
        }
        signals.changes.extend(self.changes);
        signals.changes.sort_by_key(|change| change.at);
    }

    /// The sum over all pools; unknown where it is of one of them.
    fn of_all(&self, column: impl Fn(&PoolBin) -> Option<f64>) -> Series {
        let of_bin = |number: usize| {
            let pools = self.pools.values().filter_map(|bins| bins.get(number));
            let known: Option<Vec<f64>> = pools.map(&column).collect();
            known
                .filter(|known| !known.is_empty())
                .map(|known| known.iter().sum())
        };
        Series((0..self.bins.count).map(of_bin).collect())
    }

    /// Whether the storage element answered in each bin, and whether that is known: from the first look to the last.
    fn answers(&self, extent: (Timestamp, Timestamp)) -> (Vec<Option<f64>>, Vec<bool>) {
        let within = self.bins.overlaps(extent.0, extent.1);
        let mut up = vec![None; self.bins.count];
        let mut is_known = vec![false; self.bins.count];
        for (bin, ms) in within {
            let ms = ms - self.damaged_ms[bin];
            // A part of a bin says little of it.
            if ms * 2.0 >= self.bins.step_ms as f64 {
                is_known[bin] = true;
                up[bin] = Some((self.looked_ms[bin] / ms).min(1.0));
            }
        }
        (up, is_known)
    }
}

impl PoolBin {
    /// Adds this part of an interval.
    fn add(&mut self, pool: &PoolSample, part: f64) {
        let of = |sum: u64| sum as f64 * part;
        self.bytes_in += of(pool.sum(|one| one.bytes_in));
        self.bytes_out += of(pool.sum(|one| one.bytes_out));
        self.looks += of(pool.looks);
        self.reachable += of(pool.reachable);
        self.accepting += of(pool.accepting);
        self.writable += of(writable(pool));
        self.failed += of(pool.sum(|one| one.failed));
        self.active += of(pool.active);
        self.queued += of(pool.queued);
        self.limit += of(pool.limit);
        if let Some(started) = pool.started {
            self.started += of(started);
            self.started_looks += of(pool.looks);
        }
        if let Some(waited) = pool.read_wait_us {
            self.read_wait_seconds += of(waited) / 1e6;
            self.read_wait_looks += of(pool.looks);
        }
        let free = pool.free_bytes as f64;
        self.free_bytes = Some(self.free_bytes.map_or(free, |least| least.min(free)));
    }

    fn read_wait(&self) -> Option<f64> {
        (self.read_wait_looks > 0.0).then_some(self.read_wait_seconds)
    }

    /// The mean over the looks; `None`: nobody looked.
    fn mean(&self, sum: f64) -> Option<f64> {
        (self.looks > 0.0).then(|| sum / self.looks)
    }
}

/// The storage element that has one of these hosts, at whichever end of links.
pub(crate) fn own_end(hosts: &[String], signals: &Signals) -> Option<StorageId> {
    let ends = signals.links.keys();
    let ends = ends.flat_map(|link| [&link.source, &link.destination]);
    let own = ends.filter(|id| hosts.iter().any(|host| host == id.host()));
    own.min().cloned()
}

/// Looks at which a pool could be written to, but for its operators and for want of room.
fn writable(pool: &PoolSample) -> u64 {
    let is_full = pool.free_bytes == 0;
    match is_full {
        true => pool.reachable,
        false => pool.reachable.min(pool.accepting + pool.drained),
    }
}

fn pool_signals(
    storage: &StorageId,
    bins: &[PoolBin],
    is_known: &[bool],
    answers: &[Option<f64>],
) -> PoolSignals {
    let sums = |column: fn(&PoolBin) -> f64| {
        let values = bins.iter().zip(is_known);
        Series(
            values
                .map(|(bin, known)| known.then(|| column(bin)))
                .collect(),
        )
    };
    let mean = |column: fn(&PoolBin) -> f64| {
        Series(bins.iter().map(|bin| bin.mean(column(bin))).collect())
    };
    // A pool of a storage element that does not answer is out of reach.
    let up = |looks: fn(&PoolBin) -> f64| -> Vec<Option<f64>> {
        let bins = bins.iter().zip(answers);
        let state = bins.map(|(bin, answers)| {
            let answers = (*answers)?;
            let up = bin.mean(looks(bin));
            Some(up.map_or(answers, |up| up.min(answers)))
        });
        state.collect()
    };
    PoolSignals {
        storage: Some(storage.clone()),
        bytes_in: sums(|bin| bin.bytes_in),
        bytes_out: sums(|bin| bin.bytes_out),
        free_bytes: Series(bins.iter().map(|bin| bin.free_bytes).collect()),
        // What must stay free is not told as free.
        reserve_bytes: Series(bins.iter().map(|bin| bin.free_bytes.map(|_| 0.0)).collect()),
        up: Series(up(|bin| bin.reachable)),
        writable: Series(up(|bin| bin.writable)),
        failed: sums(|bin| bin.failed),
        read_wait_seconds: Series(bins.iter().map(PoolBin::read_wait).collect()),
        movers: mean(|bin| bin.active),
        movers_limit: mean(|bin| bin.limit),
        movers_queued: mean(|bin| bin.queued),
        ..PoolSignals::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_decide::explain::signals::LinkSignals;
    use penstock_model::observation::Operation;
    use penstock_model::{LinkId, PoolTraffic};

    const MINUTE: i64 = 60_000;

    fn signals(bins: usize) -> Signals {
        let mut signals = Signals::unknown(Timestamp(0), 60, bins);
        let link = LinkId {
            source: StorageId::new("https://far.org"),
            destination: StorageId::new("davs://here.org"),
        };
        signals.links.insert(link, LinkSignals::default());
        signals
    }

    fn interval(from: i64, to: i64, looks: u64) -> PoolSamples {
        let traffic = PoolTraffic {
            bytes_in: 100,
            ..PoolTraffic::new(None, Operation::Copy)
        };
        let pool = |name: &str| PoolSample {
            looks,
            reachable: looks,
            accepting: looks,
            free_bytes: 7,
            active: 2 * looks,
            started: Some(looks / 10),
            read_wait_us: Some(looks * 500_000),
            traffic: vec![traffic.clone()],
            ..PoolSample::new(PoolName::new(name))
        };
        PoolSamples {
            from: Timestamp(from),
            to: Timestamp(to),
            pools: vec![pool("a"), pool("b")],
            tape: None,
        }
    }

    fn told(samples: &[PoolSamples], bins: usize, hosts: &[&str]) -> Signals {
        let mut signals = signals(bins);
        let mut fold = PoolFold::of(&signals);
        samples.iter().for_each(|one| fold.take(one));
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        fold.tell(&hosts, &mut signals);
        signals
    }

    #[test]
    fn bytes_are_spread_over_their_bins_and_means_are_of_the_looks() {
        let samples = [
            interval(0, MINUTE / 2, 30),
            interval(MINUTE / 2, MINUTE, 30),
            interval(MINUTE, 3 * MINUTE, 120),
        ];
        let told = told(&samples, 4, &["other.org", "here.org"]);
        let pool = &told.pools[&PoolName::new("a")];
        assert_eq!(pool.storage, Some(StorageId::new("davs://here.org")));
        let known = [Some(200.0), Some(50.0), Some(50.0), None];
        assert_eq!(pool.bytes_in.0, known);
        assert_eq!(pool.movers.0[..3], [Some(2.0); 3]);
        let waited = [Some(30.0), Some(30.0), Some(30.0), None];
        assert_eq!(pool.read_wait_seconds.0, waited);
        let server = &told.servers[&ServerName("here.org".to_owned())];
        assert_eq!(server.in_flight.0, [Some(4.0), Some(4.0), Some(4.0), None]);
        assert_eq!(server.starts.0, [Some(12.0), Some(12.0), Some(12.0), None]);
        assert_eq!(pool.free_bytes.0, [Some(7.0), Some(7.0), Some(7.0), None]);
        assert_eq!(pool.up.0, [Some(1.0), Some(1.0), Some(1.0), None]);
    }

    #[test]
    fn a_storage_element_that_nobody_could_look_at_did_not_answer() {
        let gone = told(
            &[
                interval(0, MINUTE, 60),
                interval(2 * MINUTE, 3 * MINUTE, 60),
            ],
            3,
            &["here.org"],
        );
        let pool = &gone.pools[&PoolName::new("a")];
        assert_eq!(pool.up.0, [Some(1.0), Some(0.0), Some(1.0)]);
        assert_eq!(pool.bytes_in.at(1), Some(0.0));
        assert_eq!(pool.free_bytes.at(1), None);
        // It stood still, and was looked at once when it went on.
        let stopped = told(
            &[interval(0, MINUTE, 60), interval(MINUTE, 3 * MINUTE, 1)],
            3,
            &["here.org"],
        );
        let server = &stopped.servers[&ServerName("here.org".to_owned())];
        assert_eq!(server.up.at(1), Some(0.0));
        assert!(server.up.at(2).is_some_and(|up| up < 0.05));
    }

    #[test]
    fn a_minute_whose_row_is_damaged_is_not_known() {
        let damaged = PoolSamples {
            pools: Vec::new(),
            ..interval(MINUTE, 2 * MINUTE, 60)
        };
        let samples = [
            interval(0, MINUTE, 60),
            damaged,
            interval(2 * MINUTE, 3 * MINUTE, 60),
        ];
        let told = told(&samples, 3, &["here.org"]);
        let pool = &told.pools[&PoolName::new("a")];
        assert_eq!(pool.up.0, [Some(1.0), None, Some(1.0)]);
        assert_eq!(pool.bytes_in.at(1), None);
        let server = &told.servers[&ServerName("here.org".to_owned())];
        assert_eq!(server.up.at(1), None);
    }

    #[test]
    fn a_pool_that_is_drained_is_a_change_and_pools_of_nobodys_link_are_not_told() {
        let mut drained = interval(MINUTE, 2 * MINUTE, 60);
        drained.pools[1].drained = 60;
        let samples = [
            interval(0, MINUTE, 60),
            drained,
            interval(2 * MINUTE, 3 * MINUTE, 60),
        ];
        let changed = told(&samples, 3, &["here.org"]);
        let places: Vec<_> = changed
            .changes
            .iter()
            .map(|change| (change.at.0, change.place.as_str(), change.new.as_deref()))
            .collect();
        let expected = [(MINUTE, "b", Some("drained")), (2 * MINUTE, "b", None)];
        assert_eq!(places, expected);
        let elsewhere = told(&samples, 3, &["other.org"]);
        assert!(elsewhere.pools.is_empty() && elsewhere.changes.is_empty());
    }
}
