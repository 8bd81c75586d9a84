//! All links and storage elements of a service: who learns when, and what holds in the end.
//!
//! A link's number is found by its own tuner while it is alone at both ends. Where links compete for a storage element,
//! the number of all of them is found there, by what all of them move; each link that the storage element holds back
//! may run its equal part at least, and the scheduler's turns divide the rest. A link whose transfers are clearly
//! slower than its competitors' is held back by its own way, and keeps its own number. So no link gains by running more
//! than others, and none is kept small by them.
//!
//! Long because each observation passes its link, its two storage elements and its link again, in this order.

use super::fts3::FTS3_MINUTE_WEIGHT;
use super::{
    Bounds, Fts3Mode, Fts3Sample, Fts3Tuner, LandedFiles, Sample, StreamTuner, TunedLimit, Tuner,
};
use crate::scheduler::ForgottenPlaces;
use penstock_model::{
    Bytes, Fts3Reason, LinkEnd, LinkId, MoverReport, Rate, Slots, Timestamp, TuneReason,
    TunedPlace, TuningCandidate, TuningDecision, TuningMode, TuningPolicy, TuningSeen,
};
use std::collections::BTreeMap;

/// A link is held back by a shared resource if its transfers reach this part of the fastest competitor's rate.
const ALIKE_RATE_SHARE_MIN: f64 = 0.7;
/// Seconds for which a storage element is looked at as shared after links have stopped to compete for it.
const SHARED_HOLD_SECONDS: f64 = 30.0;
/// The weight of the newest second in what is lately.
const SECOND_WEIGHT: f64 = 0.3;
/// What is left of counted files after a second: half after five minutes.
const FILES_DECAY_PER_SECOND: f64 = 0.997_692;
/// A storage element has enough transfers when more than this part of them waits for a mover there.
const STORAGE_QUEUED_SHARE_MAX: f64 = 0.5;
/// Seconds for which nothing is raised where so many wait.
const STORAGE_QUEUED_QUIET_SECONDS: f64 = 10.0;
const MEGABYTE_BYTES: f64 = 1e6;

/// What operators say of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRules {
    /// Who decides.
    pub policy: TuningPolicy,
    /// How far it may go.
    pub mode: TuningMode,
    /// Between which numbers.
    pub bounds: Bounds,
    /// A rule of its own says so.
    pub is_configured: bool,
}

/// A link at the end of about a second.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkObservation {
    pub link: LinkId,
    /// What operators say of it.
    pub rules: LinkRules,
    /// Running.
    pub active: u32,
    /// Waiting and allowed to start.
    pub queued: u64,
    /// It is its own number that keeps them from starting.
    pub is_full: bool,
    /// Bytes that moved in this second.
    pub bytes: u64,
    /// Seconds between two reports of how far its transfers are.
    pub lag: f64,
    /// Of what runs, so many wait for their turn at a storage element.
    pub queued_there: u32,
    /// What operators allow at its ends, over all links.
    pub at_ends_max: EndLimits,
}

/// How many transfers may run at the two ends of a link, over all links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndLimits {
    /// Out of its source.
    pub source: u32,
    /// Into its destination.
    pub destination: u32,
}

/// How busy a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLoad {
    /// Transfers are queued that only the link's own number keeps from starting.
    pub is_full: bool,
    /// Transfers that run.
    pub active: u32,
    /// Transfers that are queued.
    pub queued: u64,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AttemptEnd<'a> {
    /// It arrived.
    Landed {
        size: Bytes,
        /// Seconds that it took.
        seconds: f64,
        /// What the mover measured.
        report: &'a MoverReport,
    },
    /// It did not, and is tried again.
    Failed,
    /// An end said that it is overloaded, and for how many seconds it wants to be left alone.
    PushedBack {
        /// The source; else the destination.
        by_source: bool,
        seconds: f64,
    },
}

/// What the scheduler is to go by from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunedSlots {
    pub place: TunedPlace,
    /// `None`: what operators allow.
    pub slots: Option<Slots>,
}

/// What was decided in one go.
#[derive(Debug, Default, PartialEq)]
pub struct TuningChanges {
    /// For the scheduler.
    pub sets: Vec<TunedSlots>,
    /// For the record.
    pub decisions: Vec<TuningDecision>,
}

/// Who finds a link's number.
#[derive(Debug)]
enum Finder {
    Nobody,
    Measured(Box<Tuner>),
    Fts3(Box<Fts3Tuner>),
}

/// What has ended since it was last asked.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    landed: u64,
    bytes: u64,
    seconds: f64,
    failed: u64,
    /// By the source, by the destination.
    pushed_back: [u32; 2],
    quiet_for: f64,
}

/// What files of a link are like, fading.
#[derive(Debug, Clone, Copy, Default)]
struct Files {
    landed: f64,
    failed: f64,
    bytes: f64,
    squares: f64,
    seconds: f64,
}

#[derive(Debug)]
pub struct LinkTuning {
    rules: LinkRules,
    finder: Finder,
    streams: StreamTuner,
    counts: Counts,
    files: Files,
    /// Lately: bytes a second, work a second, running.
    rate: f64,
    work: f64,
    files_per_second: f64,
    active: f64,
    smoothed: f64,
    seen: TuningSeen,
    in_effect: Option<Slots>,
    last: Option<TuningDecision>,
}

/// One direction of a storage element for which links compete.
#[derive(Debug)]
struct StorageDirection {
    tuner: Tuner,
    links: u32,
    active: u32,
    /// Seconds since links competed.
    unshared: f64,
    seen: TuningSeen,
}

/// All links and storage elements.
#[derive(Debug, Default)]
pub struct FleetTuning {
    links: BTreeMap<LinkId, LinkTuning>,
    shared: BTreeMap<TunedPlace, StorageDirection>,
    /// What was found before, for those that are not looked at.
    found: BTreeMap<TunedPlace, (u32, Option<u32>)>,
}

impl FleetTuning {
    /// Begins with what was decided last, before a restart.
    pub fn restore(decisions: impl IntoIterator<Item = TuningDecision>) -> FleetTuning {
        let found = decisions
            .into_iter()
            .filter(|decision| decision.policy == TuningPolicy::Measured)
            .map(|decision| (decision.place, (decision.slots.0, decision.streams)));
        FleetTuning {
            found: found.collect(),
            ..FleetTuning::default()
        }
    }

    /// One link, when it was seen.
    pub fn link(&self, link: &LinkId) -> Option<&LinkTuning> {
        self.links.get(link)
    }

    /// A link that begins: what it may run before anything was seen. `None`: as operators allow.
    pub fn begin(&mut self, link: &LinkId, rules: LinkRules) -> Option<TunedSlots> {
        if self.links.contains_key(link) {
            return None;
        }
        let tuning = self.new_link(link, rules);
        let slots = tuning.own_limit().map(Slots);
        let tuning = LinkTuning {
            in_effect: slots,
            ..tuning
        };
        self.links.insert(link.clone(), tuning);
        let place = TunedPlace::Link(link.clone());
        Some(TunedSlots { place, slots })
    }

    /// The scheduler has forgotten these: what was found of them goes, and they begin anew when they are named again.
    pub fn forget(&mut self, forgotten: &ForgottenPlaces) {
        for link in &forgotten.links {
            self.links.remove(link);
            self.found.remove(&TunedPlace::Link(link.clone()));
        }
        for storage in &forgotten.storages {
            let (outbound, inbound) = (storage.clone(), storage.clone());
            self.found
                .remove(&TunedPlace::Outbound { storage: outbound });
            self.found.remove(&TunedPlace::Inbound { storage: inbound });
        }
    }

    fn new_link(&self, link: &LinkId, rules: LinkRules) -> LinkTuning {
        let found = self.found.get(&TunedPlace::Link(link.clone())).copied();
        LinkTuning {
            rules,
            finder: finder(rules, found.map(|(slots, _)| slots)),
            streams: StreamTuner::from(found.and_then(|(_, streams)| streams).unwrap_or(1)),
            counts: Counts::default(),
            files: Files::default(),
            rate: 0.0,
            work: 0.0,
            files_per_second: 0.0,
            active: 0.0,
            smoothed: 0.0,
            seen: TuningSeen::default(),
            in_effect: None,
            last: None,
        }
    }

    /// An attempt has ended on a link, at this second of the caller's clock; with what runs and is queued there.
    pub fn ended(
        &mut self,
        at: Timestamp,
        clock: f64,
        link: &LinkId,
        ended: AttemptEnd<'_>,
        LinkLoad {
            is_full,
            active,
            queued,
        }: LinkLoad,
    ) -> TuningChanges {
        let mut decided = TuningChanges::default();
        let Some(tuning) = self.links.get_mut(link) else {
            return decided;
        };
        tuning.count(&ended);
        let AttemptEnd::Landed {
            report, seconds, ..
        } = ended
        else {
            return decided;
        };
        if is_full
            && let Finder::Measured(tuner) = &mut tuning.finder
            && tuning.in_effect == Some(Slots(tuner.limit()))
            && let Some(tuned) = tuner.landed(clock)
        {
            tuning.seen.active = Slots(active);
            tuning.seen.queued = queued;
            decided.take(tuning.set(at, link, tuned));
        }
        let may_cut = tuning.rules.mode >= TuningMode::Normal;
        if may_cut && matches!(tuning.finder, Finder::Measured(_)) {
            let limit = tuning.in_effect.map_or(u32::MAX, |slots| slots.0);
            let is_scarce = u64::from(active) + queued < u64::from(limit);
            let because = match queued > u64::from(limit) {
                true => tuning.streams.many_wait(),
                false => tuning.streams.landed(report, seconds, is_scarce),
            };
            decided
                .decisions
                .extend(because.map(|because| tuning.decide(at, link, because)));
        }
        decided
    }

    /// Takes about a second in, of all links that run or wait.
    pub fn see(&mut self, at: Timestamp, seconds: f64, links: &[LinkObservation]) -> TuningChanges {
        let mut decided = TuningChanges::default();
        for observed in links {
            self.follow_rules(observed, &mut decided);
            if let Some(tuning) = self.links.get_mut(&observed.link) {
                tuning.note(observed, seconds);
            }
        }
        self.share(at, seconds, links, &mut decided);
        for observed in links {
            let part = self.part(observed, links);
            let is_shared = LinkEnd::BOTH.map(|end| {
                let place = place_at(&observed.link, end);
                self.shared.contains_key(&place)
            });
            if let Some(tuning) = self.links.get_mut(&observed.link) {
                decided.take(tuning.see(at, seconds, observed, part, is_shared));
            }
        }
        decided
    }

    /// Operators may have changed their minds.
    fn follow_rules(&mut self, observed: &LinkObservation, decided: &mut TuningChanges) {
        let Some(tuning) = self.links.get_mut(&observed.link) else {
            decided
                .sets
                .extend(self.begin(&observed.link, observed.rules));
            return;
        };
        if tuning.rules == observed.rules {
            return;
        }
        let (before, now_rules) = (tuning.rules, observed.rules);
        tuning.rules = now_rules;
        let is_same = (before.policy, before.mode) == (now_rules.policy, now_rules.mode);
        match &mut tuning.finder {
            Finder::Measured(tuner) if is_same && is_tuned(now_rules) => {
                let (most, most_before) = (now_rules.bounds.max, before.bounds.max);
                let was_held = tuner.limit() >= most_before && most > most_before;
                tuner.set_bounds(now_rules.bounds);
                if was_held {
                    // What only operators had held says nothing of more, also while no bytes move to tell.
                    let least = Tuner::new(now_rules.bounds).limit();
                    tuning.finder = finder(now_rules, Some(least.max(most_before)));
                    tuning.in_effect = tuning.own_limit().map(Slots);
                    decided.sets.push(TunedSlots {
                        place: TunedPlace::Link(observed.link.clone()),
                        slots: tuning.in_effect,
                    });
                }
            }
            Finder::Fts3(rules) if is_same && is_tuned(now_rules) => {
                rules.set_bounds(now_rules.bounds);
            }
            Finder::Nobody | Finder::Measured(_) | Finder::Fts3(_) => {
                let found = tuning.in_effect.map(|slots| slots.0);
                tuning.finder = finder(now_rules, found);
            }
        }
    }

    /// Finds the numbers of storage elements for which several links compete.
    fn share(
        &mut self,
        at: Timestamp,
        seconds: f64,
        links: &[LinkObservation],
        decided: &mut TuningChanges,
    ) {
        let mut competing: BTreeMap<TunedPlace, Vec<&LinkObservation>> = BTreeMap::new();
        for observed in links {
            let is_measured =
                observed.rules.policy == TuningPolicy::Measured && is_tuned(observed.rules);
            if is_measured && (observed.active > 0 || observed.queued > 0) {
                for end in LinkEnd::BOTH {
                    let place = place_at(&observed.link, end);
                    competing.entry(place).or_default().push(observed);
                }
            }
        }
        for shared in self.shared.values_mut() {
            shared.unshared += seconds;
        }
        for (place, there) in &competing {
            let is_wanted = there.iter().any(|observed| observed.queued > 0);
            if there.len() >= 2 && is_wanted {
                self.share_one(at, seconds, place, there, decided);
            }
        }
        let gone: Vec<TunedPlace> = self
            .shared
            .iter()
            .filter(|(_, shared)| shared.unshared > SHARED_HOLD_SECONDS)
            .map(|(place, _)| place.clone())
            .collect();
        for place in gone {
            if let Some(shared) = self.shared.remove(&place) {
                self.found
                    .insert(place.clone(), (shared.tuner.limit(), None));
                decided.sets.push(TunedSlots { place, slots: None });
            }
        }
    }

    /// Long because bounds, first number and sample come from the same links, and the decision names them all.
    fn share_one(
        &mut self,
        at: Timestamp,
        seconds: f64,
        place: &TunedPlace,
        there: &[&LinkObservation],
        decided: &mut TuningChanges,
    ) {
        let end = match place {
            TunedPlace::Outbound { .. } => LinkEnd::Source,
            TunedPlace::Inbound { .. } | TunedPlace::Link(_) => LinkEnd::Destination,
        };
        let most = there.iter().map(|observed| match end {
            LinkEnd::Source => observed.at_ends_max.source,
            LinkEnd::Destination => observed.at_ends_max.destination,
        });
        let bounds = Bounds {
            min: (there.len() as u32).max(2),
            max: most.max().unwrap_or(u32::MAX),
        };
        let found = self.found.get(place).map(|(slots, _)| *slots);
        let is_new = !self.shared.contains_key(place);
        let of_links = || {
            let each = there
                .iter()
                .filter_map(|observed| self.links.get(&observed.link));
            each.filter_map(|tuning| tuning.in_effect)
                .fold(0u32, |sum, slots| sum.saturating_add(slots.0))
        };
        let first = if is_new {
            found.unwrap_or_else(of_links)
        } else {
            0
        };
        let is_known = found.is_some() || there.iter().any(|observed| self.knows(&observed.link));
        let shared = self
            .shared
            .entry(place.clone())
            .or_insert_with(|| StorageDirection {
                tuner: match is_known {
                    true => Tuner::from(bounds, first),
                    false => Tuner::at(bounds, first),
                },
                links: 0,
                active: 0,
                unshared: 0.0,
                seen: TuningSeen::default(),
            });
        shared.unshared = 0.0;
        let bounded = shared.tuner.set_bounds(bounds);
        let before = shared.tuner.limit();
        let sample = sample_of(&self.links, there, shared, end, seconds);
        let tuned = shared.tuner.see(&sample).or(bounded);
        shared.links = there.len() as u32;
        shared.active = there.iter().map(|observed| observed.active).sum();
        let tuned = match is_new {
            true => Some(TunedLimit {
                limit: shared.tuner.limit(),
                because: if found.is_some() {
                    TuneReason::Remembers
                } else {
                    TuneReason::Begins
                },
            }),
            false => tuned,
        };
        let Some(tuned) = tuned else {
            return;
        };
        let slots = Slots(tuned.limit);
        decided.sets.push(TunedSlots {
            place: place.clone(),
            slots: Some(slots),
        });
        if slots.0 == before && !is_notable(&tuned.because) && !is_new {
            return;
        }
        let decision = TuningDecision {
            at,
            place: place.clone(),
            policy: TuningPolicy::Measured,
            slots_before: Slots(before),
            slots,
            streams: None,
            seen: shared.seen,
            candidates: shared.tuner.candidates(),
            because: tuned.because,
        };
        decided.decisions.push(decision);
    }

    /// Whether a link's own tuner has seen something.
    fn knows(&self, link: &LinkId) -> bool {
        let tuning = self.links.get(link);
        tuning.is_some_and(
            |tuning| matches!(&tuning.finder, Finder::Measured(tuner) if tuner.knows()),
        )
    }

    /// What a link may run at least where it competes with others; `None` where it does not, or where it is not what they
    /// compete for that holds it back.
    fn part(&self, observed: &LinkObservation, links: &[LinkObservation]) -> Option<u32> {
        let own = self.links.get(&observed.link)?;
        let parts = LinkEnd::BOTH.into_iter().filter_map(|end| {
            let place = place_at(&observed.link, end);
            let shared = self.shared.get(&place)?;
            let fastest = links
                .iter()
                .filter(|other| place_at(&other.link, end) == place)
                .filter_map(|other| self.links.get(&other.link)?.per_transfer())
                .fold(0.0, f64::max);
            let is_alike = own
                .per_transfer()
                .is_none_or(|rate| rate >= ALIKE_RATE_SHARE_MIN * fastest);
            let part = shared.tuner.limit().div_ceil(shared.links.max(1));
            is_alike.then_some(part)
        });
        parts.min()
    }
}

impl LinkTuning {
    /// What operators say of it.
    pub fn rules(&self) -> LinkRules {
        self.rules
    }

    /// Who decides in the end: nobody, where nothing is left to be found.
    pub fn decided_by(&self) -> TuningPolicy {
        match &self.finder {
            Finder::Nobody => TuningPolicy::Fixed,
            Finder::Measured(_) => TuningPolicy::Measured,
            Finder::Fts3(_) => TuningPolicy::Fts3,
        }
    }

    /// What it was seen to do lately.
    pub fn seen(&self) -> &TuningSeen {
        &self.seen
    }

    /// The last decision since the start.
    pub fn last(&self) -> Option<&TuningDecision> {
        self.last.as_ref()
    }

    /// Connections of the next copy, where its client leaves that open; `None`: as the storage element likes.
    pub fn streams(&self) -> Option<u32> {
        let count = match &self.finder {
            Finder::Nobody => 1,
            Finder::Measured(_) => self.streams.count(),
            Finder::Fts3(rules) => rules.streams(self.seen.active.0, self.seen.queued),
        };
        (count > 1).then_some(count)
    }

    fn own_limit(&self) -> Option<u32> {
        match &self.finder {
            Finder::Nobody => None,
            Finder::Measured(tuner) => Some(tuner.limit()),
            Finder::Fts3(rules) => Some(rules.limit()),
        }
    }

    fn per_transfer(&self) -> Option<f64> {
        (self.active >= 0.5 && self.work > 0.0).then(|| self.work / self.active)
    }

    fn count(&mut self, ended: &AttemptEnd<'_>) {
        match ended {
            AttemptEnd::Landed { size, seconds, .. } => {
                self.counts.landed += 1;
                self.counts.bytes += size.0;
                self.counts.seconds += seconds;
                self.files.landed += 1.0;
                self.files.bytes += size.0 as f64;
                self.files.squares += (size.0 as f64).powi(2);
                self.files.seconds += seconds;
            }
            AttemptEnd::Failed => {
                self.counts.failed += 1;
                self.files.failed += 1.0;
            }
            AttemptEnd::PushedBack { by_source, seconds } => {
                self.counts.failed += 1;
                self.files.failed += 1.0;
                self.counts.pushed_back[usize::from(!by_source)] += 1;
                self.counts.quiet_for = self.counts.quiet_for.max(*seconds);
            }
        }
    }

    /// Brings what is told of it up to date.
    fn note(&mut self, observed: &LinkObservation, seconds: f64) {
        let seconds = seconds.max(0.001);
        let rate = observed.bytes as f64 / seconds;
        let landed = self.counts.landed as f64 / seconds;
        let toward = |old: f64, new: f64| old + SECOND_WEIGHT * (new - old);
        self.rate = toward(self.rate, rate);
        self.files_per_second = toward(self.files_per_second, landed);
        self.work = toward(self.work, rate + MEGABYTE_BYTES * landed);
        self.active = toward(self.active, f64::from(observed.active));
        let weight = 1.0 - (1.0 - FTS3_MINUTE_WEIGHT).powf(seconds / 60.0);
        self.smoothed = match self.smoothed > 0.0 {
            true => self.smoothed + weight * (rate - self.smoothed),
            false => rate,
        };
        let fades = FILES_DECAY_PER_SECOND.powf(seconds);
        for value in [
            &mut self.files.landed,
            &mut self.files.failed,
            &mut self.files.bytes,
            &mut self.files.squares,
            &mut self.files.seconds,
        ] {
            *value *= fades;
        }
        let files = &self.files;
        let mean = |sum: f64| sum / files.landed.max(1e-9);
        let ended = files.landed + files.failed;
        let deviation = (mean(files.squares) - mean(files.bytes).powi(2))
            .max(0.0)
            .sqrt();
        self.seen = TuningSeen {
            rate: Rate(self.rate as u64),
            rate_smoothed: Rate(self.smoothed as u64),
            files_per_second: self.files_per_second,
            active: Slots(observed.active),
            queued: observed.queued,
            success_percent: match ended > 0.5 {
                true => 100.0 * files.landed / ended,
                false => 100.0,
            },
            retried: files.failed.round() as u64,
            seconds_per_megabyte: (self.work > 0.0)
                .then(|| self.active * MEGABYTE_BYTES / self.work),
            size_mean: Bytes(mean(files.bytes) as u64),
            size_deviation: Bytes(deviation as u64),
            duration_mean: mean(files.seconds),
            pushed_back: self.counts.pushed_back.iter().sum(),
            queued_there: observed.queued_there,
        };
    }

    /// Lets its finder look, and says what holds. `part`: what it may run at least, where it competes.
    fn see(
        &mut self,
        at: Timestamp,
        seconds: f64,
        observed: &LinkObservation,
        part: Option<u32>,
        is_shared: [bool; 2],
    ) -> TuningChanges {
        let counts = std::mem::take(&mut self.counts);
        let tuned = match &mut self.finder {
            Finder::Nobody => None,
            Finder::Fts3(rules) => {
                let sample = Fts3Sample {
                    seconds,
                    bytes: observed.bytes,
                    landed: LandedFiles {
                        count: counts.landed,
                        bytes: counts.bytes,
                        seconds: counts.seconds,
                    },
                    failed: counts.failed,
                    queue: observed.queued,
                };
                rules.see(&sample).map(|(limit, because)| TunedLimit {
                    limit,
                    because: TuneReason::Fts3(because),
                })
            }
            Finder::Measured(tuner) => {
                let is_own = part.is_none_or(|part| tuner.limit() > part);
                // What a storage element for which links compete has said is dealt with there.
                let pushed_back = [0, 1]
                    .into_iter()
                    .filter(|end| !is_shared[*end])
                    .map(|end| counts.pushed_back[end])
                    .sum();
                let mut sample = Sample {
                    seconds,
                    bytes: observed.bytes,
                    files: counts.landed,
                    failed: counts.failed,
                    active: f64::from(observed.active),
                    is_full: observed.is_full && is_own,
                    lag: observed.lag,
                    pushed_back,
                    quiet_for: counts.quiet_for,
                };
                let mut tuned = tuner.see(&sample);
                let waits = f64::from(observed.queued_there)
                    > STORAGE_QUEUED_SHARE_MAX * f64::from(observed.active);
                if waits && observed.active > 1 && is_shared == [false, false] && pushed_back == 0 {
                    sample.pushed_back = 1;
                    sample.quiet_for = STORAGE_QUEUED_QUIET_SECONDS;
                    tuned = tuner.see(&sample).map(|tuned| TunedLimit {
                        because: TuneReason::QueuedThere {
                            waiting: observed.queued_there,
                        },
                        ..tuned
                    });
                }
                tuned
            }
        };
        self.hold(at, observed, tuned, part)
    }

    /// What holds from now on, with the parts of what is shared.
    fn hold(
        &mut self,
        at: Timestamp,
        observed: &LinkObservation,
        tuned: Option<TunedLimit>,
        part: Option<u32>,
    ) -> TuningChanges {
        let mut decided = TuningChanges::default();
        let before = self.in_effect;
        let own = self.own_limit();
        let mut slots = own;
        if let (Some(own), Some(part)) = (own, part)
            && matches!(self.finder, Finder::Measured(_))
        {
            slots = Some(own.max(part).min(self.rules.bounds.max.max(1)));
        } else if let Finder::Measured(tuner) = &mut self.finder
            && let Some(Slots(before)) = before
            && !tuner.knows()
            && tuner.limit() < before
            && tuned.is_none()
        {
            // It is alone again: what it had as its part is where its own tuner begins.
            **tuner = Tuner::from(self.rules.bounds, before);
            slots = Some(tuner.limit());
        }
        if self.rules.mode == TuningMode::Conservative {
            let waits = u64::from(observed.active) + observed.queued;
            let waits = u32::try_from(waits).unwrap_or(u32::MAX);
            slots = slots.map(|slots| slots.min(waits.max(self.rules.bounds.min)));
        }
        self.in_effect = slots.map(Slots);
        if self.in_effect != before {
            decided.sets.push(TunedSlots {
                place: TunedPlace::Link(observed.link.clone()),
                slots: self.in_effect,
            });
        }
        let is_changed = self.in_effect != before;
        let because = match tuned {
            Some(tuned) if is_changed || is_notable(&tuned.because) => Some(tuned.because),
            _ => None,
        };
        decided.decisions.extend(because.map(|because| {
            let decision = self.decision(at, &observed.link, before, because);
            self.last = Some(decision.clone());
            decision
        }));
        decided
    }

    /// A number that its own tuner has found between two looks.
    fn set(&mut self, at: Timestamp, link: &LinkId, tuned: TunedLimit) -> TuningChanges {
        let before = self.in_effect;
        self.in_effect = Some(Slots(tuned.limit));
        let decision = self.decision(at, link, before, tuned.because);
        self.last = Some(decision.clone());
        TuningChanges {
            sets: vec![TunedSlots {
                place: TunedPlace::Link(link.clone()),
                slots: self.in_effect,
            }],
            decisions: vec![decision],
        }
    }

    /// Another number of connections.
    fn decide(&mut self, at: Timestamp, link: &LinkId, because: TuneReason) -> TuningDecision {
        let decision = self.decision(at, link, self.in_effect, because);
        self.last = Some(decision.clone());
        decision
    }

    fn decision(
        &self,
        at: Timestamp,
        link: &LinkId,
        before: Option<Slots>,
        because: TuneReason,
    ) -> TuningDecision {
        let most = Slots(self.rules.bounds.max);
        let candidates: Vec<TuningCandidate> = match &self.finder {
            Finder::Measured(tuner) => tuner.candidates(),
            Finder::Nobody | Finder::Fts3(_) => Vec::new(),
        };
        TuningDecision {
            at,
            place: TunedPlace::Link(link.clone()),
            policy: self.rules.policy,
            slots_before: before.unwrap_or(most),
            slots: self.in_effect.unwrap_or(most),
            streams: self.streams(),
            seen: self.seen,
            candidates,
            because,
        }
    }
}

impl TuningChanges {
    fn take(&mut self, more: TuningChanges) {
        self.sets.extend(more.sets);
        self.decisions.extend(more.decisions);
    }
}

/// One end of a link, as a place that others share.
fn place_at(link: &LinkId, end: LinkEnd) -> TunedPlace {
    match end {
        LinkEnd::Source => TunedPlace::Outbound {
            storage: link.source.clone(),
        },
        LinkEnd::Destination => TunedPlace::Inbound {
            storage: link.destination.clone(),
        },
    }
}

/// Whether anything is left to be found.
fn is_tuned(rules: LinkRules) -> bool {
    rules.policy != TuningPolicy::Fixed
        && rules.mode != TuningMode::Disabled
        && rules.bounds.min < rules.bounds.max
}

fn finder(rules: LinkRules, found: Option<u32>) -> Finder {
    if !is_tuned(rules) {
        return Finder::Nobody;
    }
    match rules.policy {
        TuningPolicy::Fixed => Finder::Nobody,
        TuningPolicy::Measured => {
            let mut tuner = match found {
                Some(found) => Tuner::from(rules.bounds, found),
                None => Tuner::new(rules.bounds),
            };
            tuner.set_aggressive(rules.mode == TuningMode::Aggressive);
            Finder::Measured(Box::new(tuner))
        }
        TuningPolicy::Fts3 => {
            let mode = match rules.mode {
                TuningMode::Conservative => Fts3Mode::Conservative,
                TuningMode::Disabled | TuningMode::Normal | TuningMode::Aggressive => {
                    Fts3Mode::Normal
                }
            };
            let fts3 = Fts3Tuner::new(mode, rules.bounds, rules.is_configured);
            Finder::Fts3(Box::new(fts3))
        }
    }
}

/// Whether a reason is worth a line in the record though the number stays.
fn is_notable(because: &TuneReason) -> bool {
    match because {
        TuneReason::Changed { .. } | TuneReason::PushedBack => true,
        TuneReason::Fts3(why) => *why != Fts3Reason::NoThroughput,
        _ => false,
    }
}

/// What all links of a storage element did together.
fn sample_of(
    links: &BTreeMap<LinkId, LinkTuning>,
    there: &[&LinkObservation],
    shared: &mut StorageDirection,
    end: LinkEnd,
    seconds: f64,
) -> Sample {
    let mut sample = Sample {
        seconds,
        bytes: 0,
        files: 0,
        failed: 0,
        active: 0.0,
        is_full: false,
        lag: 0.0,
        pushed_back: 0,
        quiet_for: 0.0,
    };
    let mut seen = TuningSeen {
        success_percent: 100.0,
        ..TuningSeen::default()
    };
    for observed in there {
        sample.bytes += observed.bytes;
        sample.active += f64::from(observed.active);
        sample.lag = sample.lag.max(observed.lag);
        seen.active.0 += observed.active;
        seen.queued += observed.queued;
        seen.queued_there += observed.queued_there;
        let Some(tuning) = links.get(&observed.link) else {
            continue;
        };
        let counts = &tuning.counts;
        sample.files += counts.landed;
        sample.failed += counts.failed;
        let pushed_back = counts.pushed_back[usize::from(end == LinkEnd::Destination)];
        sample.pushed_back += pushed_back;
        if pushed_back > 0 {
            sample.quiet_for = sample.quiet_for.max(counts.quiet_for);
        }
        seen.rate.0 += tuning.seen.rate.0;
        seen.rate_smoothed.0 += tuning.seen.rate_smoothed.0;
        seen.files_per_second += tuning.files_per_second;
        seen.retried += tuning.seen.retried;
    }
    seen.pushed_back = sample.pushed_back;
    shared.seen = seen;
    sample.is_full = seen.queued > 0 && sample.active >= f64::from(shared.tuner.limit());
    sample
}
