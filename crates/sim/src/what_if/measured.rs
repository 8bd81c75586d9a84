//! What a recorded window tells of its links and storage elements: how fast one transfer is, and what the transfers on a
//! link, or at a storage element, reach together.
//!
//! When more transfers run at once and each is slower in the same measure, they share something that is full; when each
//! stays as fast, nothing is. So the rate of each transfer is compared with the number that ran beside it (a regression of
//! the logarithms, for each link by itself). Where that number hardly changed, the record does not tell: then there are two
//! answers, a cautious and a hopeful one.

use super::in_force::{KnownLimits, limits_of};
use super::spread::{Concurrency, Regression, beside};
use penstock_model::{LinkId, Slots, StorageId};
use penstock_observe::recorded::{
    RecordedLink, RecordedTransfer, RecordedWindow, StorageSlotLimits,
};

/// With each doubling of the transfers, each of them becomes slower at least by this power of two where something is full.
const SLOPE_SHARED: f64 = 0.4;
/// The slope is this many of its standard errors, or it is chance.
const SLOPE_ERRORS: f64 = 3.0;
/// A link alone is full only where that fits so many times better than that a storage element is, which others use, too.
const FIT_SHARED: f64 = 1.25;
/// The part of the time of a transfer that its slowest stage takes at least.
const STAGE_SHARE: f64 = 0.5;
/// Bytes per second: faster than anything that is measured.
pub(super) const RATE_UNBOUNDED: f64 = 1e11;

/// What is taken to hold where the record does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assumption {
    /// Nothing moves more than it was seen to move.
    Cautious,
    /// What was not seen to limit does not limit.
    Hopeful,
}

/// Where bytes are held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Source,
    Network,
    Destination,
}

/// A link as it was measured. Rates are bytes per second.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MeasuredLink {
    pub(super) link: LinkId,
    /// Its storage elements, by number.
    pub(super) ends: (usize, usize),
    /// Seconds of an attempt in which nothing can move.
    pub(super) opening: f64,
    /// What one transfer reaches at most.
    pub(super) per_transfer: f64,
    /// The parts of a transfer's time at the source, with the network and at the destination; `None`: not told.
    pub(super) stages: Option<[f64; 3]>,
    /// What all its transfers reach together; `None`: no bound is known.
    pub(super) capacity: Option<f64>,
    /// How many might run while something waited, from a second on; never empty.
    pub(super) limits: Vec<(f64, u32)>,
    /// So many ran at once at most.
    pub(super) active_max: u32,
}

/// A storage element as it was measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MeasuredStorage {
    pub(super) id: StorageId,
    /// What it reads, and writes, of all its files together; `None`: no bound is known.
    pub(super) read: Option<f64>,
    pub(super) write: Option<f64>,
    /// So many files at once halve that; `None`: as far as is known, more files do not make it slower.
    pub(super) halved_at: Option<f64>,
    /// How many may run out of it, and into it; `None`: not known.
    pub(super) outbound: Option<u32>,
    pub(super) inbound: Option<u32>,
    /// Pools that took files; 0: not told.
    pub(super) pools: usize,
    /// The part of its files that fails.
    pub(super) failures: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct MeasuredField {
    pub(super) links: Vec<MeasuredLink>,
    pub(super) storages: Vec<MeasuredStorage>,
    /// How many may run in the service; `None`: not known.
    pub(super) agents: Option<u32>,
}

impl MeasuredField {
    /// What a window tells; links keep their places.
    pub(super) fn of(
        window: &RecordedWindow,
        limits: &super::LimitsInForce,
        assumption: Assumption,
    ) -> MeasuredField {
        let mut field = MeasuredField {
            links: Vec::new(),
            storages: Vec::new(),
            agents: limits.agents.map(|limit| limit.0),
        };
        for recorded in &window.links {
            let source = field.storage_at(&recorded.link.source, window, limits);
            let destination = field.storage_at(&recorded.link.destination, window, limits);
            let (from, to) = (source, destination);
            field.links.push(link_of(window, recorded, (from, to)));
        }
        field.count_failures(&window.links);
        let ends: Vec<(usize, usize)> = field.links.iter().map(|link| link.ends).collect();
        field.set_limits(window, &ends);
        let beside = beside(&window.transfers, &ends, field.storages.len());
        field.measure(window, &beside, assumption);
        field
    }

    fn storage_at(
        &mut self,
        id: &StorageId,
        window: &RecordedWindow,
        limits: &super::LimitsInForce,
    ) -> usize {
        let known = self.storages.iter().position(|storage| storage.id == *id);
        known.unwrap_or_else(|| {
            let limits = limits.of_storage(id);
            self.storages.push(MeasuredStorage {
                id: id.clone(),
                read: None,
                write: None,
                halved_at: None,
                outbound: limits.outbound.map(|limit| limit.0),
                inbound: limits.inbound.map(|limit| limit.0),
                pools: window.pools.get(id).map_or(0, |pools| pools.len()),
                failures: 0.0,
            });
            self.storages.len() - 1
        })
    }

    fn set_limits(&mut self, window: &RecordedWindow, ends: &[(usize, usize)]) {
        let storages = self.storages.iter().map(|storage| StorageSlotLimits {
            outbound: storage.outbound.map(Slots),
            inbound: storage.inbound.map(Slots),
        });
        let known = KnownLimits {
            storages: &storages.collect::<Vec<_>>(),
            agents: self.agents.map(Slots),
        };
        let active_max = self.links.iter().map(|link| link.active_max);
        let active_max: Vec<u32> = active_max.collect();
        let limits = limits_of(window, ends, &active_max, &known);
        for (link, limits) in self.links.iter_mut().zip(limits) {
            link.limits = limits;
        }
    }

    fn count_failures(&mut self, recorded: &[RecordedLink]) {
        let mut counts = vec![(0u64, 0u64); self.storages.len()];
        for (link, of_link) in self.links.iter().zip(recorded) {
            let (from, to) = link.ends;
            counts[from].0 += of_link.failures.0;
            counts[from].1 += of_link.attempts;
            counts[to].0 += of_link.failures.1;
            counts[to].1 += of_link.attempts;
        }
        for (storage, (failures, attempts)) in self.storages.iter_mut().zip(counts) {
            storage.failures = failures as f64 / attempts.max(1) as f64;
        }
    }

    /// What the transfers of a link share that is full, if anything.
    fn full_place(
        &self,
        number: usize,
        transfers: &[(usize, &RecordedTransfer)],
        beside: &Concurrency,
        assumption: Assumption,
    ) -> Option<Place> {
        let (from, to) = self.links[number].ends;
        let is_alone = |side: fn(&MeasuredLink) -> usize, at: usize| {
            self.links.iter().filter(|link| side(link) == at).count() == 1
        };
        let alone = AloneAt {
            source: is_alone(|link| link.ends.0, from),
            destination: is_alone(|link| link.ends.1, to),
        };
        let place = match verdict(transfers, beside, alone) {
            Verdict::Full(place) => place,
            Verdict::Unknown(place) if assumption == Assumption::Cautious => place,
            Verdict::Free | Verdict::Unknown(_) => return None,
        };
        // Where nothing else uses a storage element, its stage of the copies tells whether it is that.
        match (place, self.links[number].slowest_stage()) {
            (Place::Network, Some(Place::Source)) if alone.source => Some(Place::Source),
            (Place::Network, Some(Place::Destination)) if alone.destination => {
                Some(Place::Destination)
            }
            // Files at once make disks slower, and no network.
            (Place::Network, _)
                if alone.destination && beside.on_link(number).reach().halved_at.is_some() =>
            {
                Some(Place::Destination)
            }
            (place, _) => Some(place),
        }
    }

    /// How fast the transfers of each link are, and what holds them up.
    fn measure(&mut self, window: &RecordedWindow, beside: &Concurrency, assumption: Assumption) {
        let mut of_links: Vec<Vec<(usize, &RecordedTransfer)>> = vec![Vec::new(); self.links.len()];
        for (at, transfer) in window.transfers.iter().enumerate() {
            if transfer.bytes > 0 {
                of_links[transfer.link].push((at, transfer));
            }
        }
        let places = of_links.iter().enumerate();
        let places = places
            .map(|(number, transfers)| self.full_place(number, transfers, beside, assumption));
        let places: Vec<Option<Place>> = places.collect();
        for (number, place) in places.iter().enumerate() {
            let (from, to) = self.links[number].ends;
            match place {
                Some(Place::Source) => {
                    let reach = beside.out_of(from).reach();
                    self.storages[from].read = Some(reach.capacity);
                    self.storages[from].halved_at = reach.halved_at;
                }
                Some(Place::Network) => {
                    self.links[number].capacity = Some(beside.on_link(number).reach().capacity);
                }
                Some(Place::Destination) => {
                    let reach = beside.into(to).reach();
                    self.storages[to].write = Some(reach.capacity);
                    self.storages[to].halved_at = reach.halved_at;
                }
                None => {}
            }
        }
        for (number, transfers) in of_links.iter().enumerate() {
            let (from, to) = self.links[number].ends;
            // What it shares with others that fill it slows its transfers down, too, now and then.
            let is_shared = places[number].is_some()
                || self.storages[from].read.is_some()
                || self.storages[to].write.is_some();
            let is_full = places[number].is_some();
            self.links[number].per_transfer = match (is_shared, assumption) {
                _ if transfers.is_empty() => RATE_UNBOUNDED,
                (false, _) => beside.mean_rate(transfers),
                (true, Assumption::Hopeful) if is_full => RATE_UNBOUNDED,
                (true, _) => beside.high_rate(transfers),
            };
        }
    }
}

impl MeasuredLink {
    /// The stage that takes most of the time of a transfer.
    pub(super) fn slowest_stage(&self) -> Option<Place> {
        let stages = self.stages?;
        let places = [Place::Source, Place::Network, Place::Destination];
        let found = places.into_iter().zip(stages);
        let found = found.max_by(|one, other| one.1.total_cmp(&other.1))?;
        (found.1 >= STAGE_SHARE).then_some(found.0)
    }
}

fn link_of(window: &RecordedWindow, recorded: &RecordedLink, ends: (usize, usize)) -> MeasuredLink {
    let number = window
        .links
        .iter()
        .position(|link| link.link == recorded.link);
    let of_link = || {
        let transfers = window.transfers.iter();
        transfers.filter(|transfer| Some(transfer.link) == number)
    };
    let files = of_link().count().max(1) as f64;
    let overhead: f64 = of_link().map(|one| one.overhead.as_secs_f64()).sum();
    let mut stages = [0.0; 3];
    let mut told_seconds = 0.0;
    for transfer in of_link() {
        if let Some(times) = transfer.stages {
            let sum = times.iter().map(|time| time.as_secs_f64()).sum::<f64>();
            // Stages may overlap: their sum may exceed the time of the attempt.
            told_seconds += sum.max(super::spread::moving_seconds(transfer));
            for (stage, time) in stages.iter_mut().zip(times) {
                *stage += time.as_secs_f64();
            }
        }
    }
    MeasuredLink {
        link: recorded.link.clone(),
        ends,
        opening: overhead / files,
        per_transfer: RATE_UNBOUNDED,
        stages: (told_seconds > 0.0).then(|| stages.map(|seconds| seconds / told_seconds)),
        capacity: None,
        limits: Vec::new(),
        active_max: most_at_once(of_link()),
    }
}

fn most_at_once<'a>(transfers: impl Iterator<Item = &'a RecordedTransfer>) -> u32 {
    let mut steps: Vec<(i64, i32)> = Vec::new();
    for transfer in transfers {
        steps.push((transfer.started.0, 1));
        steps.push((transfer.ended.0, -1));
    }
    // What ends in the millisecond in which another one begins has left its slot.
    steps.sort_unstable();
    let (mut active, mut most) = (0i32, 0i32);
    for (_, step) in steps {
        active += step;
        most = most.max(active);
    }
    u32::try_from(most).unwrap_or(0)
}

/// Whether the transfers of a link share something that is full.
enum Verdict {
    Full(Place),
    Free,
    /// The number of transfers at once hardly changed there.
    Unknown(Place),
}

/// Where nothing else of the window runs beside a link.
#[derive(Clone, Copy)]
struct AloneAt {
    source: bool,
    destination: bool,
}

fn verdict(
    transfers: &[(usize, &RecordedTransfer)],
    beside: &Concurrency,
    alone: AloneAt,
) -> Verdict {
    let regression = |number: fn(&[f64; 3]) -> f64| {
        let points = transfers.iter();
        Regression::of(points.map(|(at, _)| (number(&beside.numbers[*at]), beside.rates[*at])))
    };
    let mut found = vec![(Place::Network, regression(|numbers| numbers[0]))];
    if !alone.source {
        found.push((Place::Source, regression(|numbers| numbers[1])));
    }
    if !alone.destination {
        found.push((Place::Destination, regression(|numbers| numbers[2])));
    }
    // A storage element that others use, too, explains more than this link alone.
    let weight = |(place, it): &(Place, Regression)| match place {
        Place::Network => it.fit,
        Place::Source | Place::Destination => it.fit * FIT_SHARED,
    };
    let unknown = found.iter().find(|(_, it)| it.is_none());
    let unknown = unknown.map(|(place, _)| *place);
    let known = found
        .into_iter()
        .filter_map(|(place, it)| Some((place, it?)));
    let best = known.max_by(|one, other| weight(one).total_cmp(&weight(other)));
    match best {
        Some((place, it)) if it.slope >= SLOPE_SHARED && it.errors() >= SLOPE_ERRORS => {
            Verdict::Full(place)
        }
        // As long as as many run at a storage element, it may be full whatever a link of it does.
        _ => unknown.map_or(Verdict::Free, Verdict::Unknown),
    }
}
