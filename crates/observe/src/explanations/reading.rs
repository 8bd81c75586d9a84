//! Reads what a window is explained from: the record of a transfer service, live or of a stopped site.

use super::settings::{ban_change, setting_changes};
use crate::follow::{Record, RecordError, SAMPLES_AT_ONCE, latest_entries, sequence_before};
use crate::signals::RecordSignals;
use penstock_decide::explain::rate_change::{
    Population, PopulationChoice, RateChange, rate_changes,
};
use penstock_decide::explain::signals::{BIN_SECONDS, Change, Signals};
use penstock_decide::incidents::{Incident, IncidentTimes, incidents_of, occurrences_of};
use penstock_model::minute::{MINUTE_MS, MinuteKey, MinuteRow};
use penstock_model::observation::View;
use penstock_model::{
    JobId, LedgerEntry, LinkId, LinkSample, TimeWindow, Timestamp, TransferEvent, TransferId,
    VoName,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZero;
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// Entries read in one go.
const BATCH: usize = 5000;
/// Entries that are read for one window at most; of a longer one the latest.
const ENTRIES_MAX: u64 = 2_000_000;
/// Changes of settings, of bans and of one link that are read at most.
const CHANGES_MAX: usize = 1000;
/// Transfers whose link, and jobs whose VO, is remembered while a window is read.
const LINKS_KNOWN_MAX: usize = 500_000;
/// Samples of links that are read for one window at most; of more, the latest.
const SAMPLES_MAX: usize = 4_000_000;
/// Minutes are read in pieces of this length: of 300 busy links some 10 MB.
const MINUTES_AT_ONCE: Duration = Duration::from_secs(3600);
/// Times without minutes that are read second by second at most; of more, the latest.
const GAPS_MAX: usize = 300;
/// Intervals of all links together at most, which is some 300 MB: of more links, those are looked at that matter most. A
/// day of 300 links has room.
const CELLS_MAX: usize = 450_000;
/// Links that are weighed at once; of more, the heavier half is kept.
const WEIGHED_MAX: usize = 100_000;
/// Threads that look for changes of rates at most, and rates for each at least.
const WORKERS_MAX: usize = 4;
const POPULATIONS_MIN: usize = 16;
/// Intervals of a window at most: a longer one gets longer intervals.
const BINS_MAX: i64 = 10_080;

/// Which time, in which steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExplainWindow {
    /// Its begin; on a whole interval, so that ids stay when it moves.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// Seconds of an interval.
    pub resolution_seconds: u32,
}

impl ExplainWindow {
    /// Without a resolution, minutes, or what a long window needs.
    pub fn new(from: Timestamp, to: Timestamp, resolution_seconds: Option<u32>) -> ExplainWindow {
        let asked = i64::from(resolution_seconds.unwrap_or(BIN_SECONDS).max(1));
        let seconds = (to.0.saturating_sub(from.0) / 1000).max(0);
        // A multiple of what was asked for, so that what begins on a long interval also begins on a short one.
        let bins_max = asked.saturating_mul(BINS_MAX);
        let factor = (seconds.saturating_add(bins_max - 1) / bins_max).max(1);
        let step = asked.saturating_mul(factor).min(i64::from(u32::MAX));
        let from = from.0.div_euclid(step * 1000) * step * 1000;
        ExplainWindow {
            from: Timestamp(from),
            to: to.max(Timestamp(from)),
            resolution_seconds: u32::try_from(step).unwrap_or(u32::MAX),
        }
    }

    /// How long a window may be whose intervals stay so long.
    pub fn longest(resolution_seconds: u32) -> Duration {
        Duration::from_secs(u64::from(resolution_seconds.max(1)) * BINS_MAX.unsigned_abs())
    }

    /// Whole intervals in it.
    pub fn bins(&self) -> usize {
        let seconds = self.to.since(self.from).as_secs();
        let bins = seconds / u64::from(self.resolution_seconds.max(1));
        usize::try_from(bins).unwrap_or(usize::MAX)
    }

    fn has(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// A window, ready to be explained.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExplainedWindow {
    /// What is known of it.
    pub signals: Signals,
    /// Whose rates are asked for.
    pub wanted: PopulationChoice,
    /// Whose rates are looked at, each with the links on which its bytes are counted.
    pub populations: Vec<(Population, Vec<LinkId>)>,
    /// From when on all is known, when that is later than the begin.
    pub complete_since: Option<Timestamp>,
    /// Links that were not looked at, because there are too many for so long a window.
    pub links_left_out: usize,
    /// Where it ends.
    pub to: Timestamp,
    /// Which view of rows tells it; `None`: it is the record of a service.
    pub view: Option<View>,
}

impl ExplainedWindow {
    /// Of those that are asked for.
    pub fn of(signals: Signals, wanted: &PopulationChoice) -> ExplainedWindow {
        ExplainedWindow {
            populations: wanted.populations(&signals),
            wanted: wanted.clone(),
            to: signals.begin_of(signals.bins),
            signals,
            complete_since: None,
            links_left_out: 0,
            view: None,
        }
    }

    /// Adds what is known beside the record, of pools for instance, and looks again for what is asked for.
    pub fn with<E>(mut self, add: impl FnOnce(&mut Signals) -> Result<(), E>) -> Result<Self, E> {
        add(&mut self.signals)?;
        self.populations = self.wanted.populations(&self.signals);
        Ok(self)
    }

    /// What fell and rose in it.
    pub fn changes(&self) -> Vec<RateChange> {
        changes_of(&self.signals, &self.populations)
    }

    /// The links of all its populations.
    pub fn links(&self) -> BTreeSet<LinkId> {
        let links = self.populations.iter().flat_map(|(_, links)| links);
        links.cloned().collect()
    }

    /// Its incidents. What was seen a moment before `until` is open.
    pub fn incidents(&self, times: IncidentTimes, until: Timestamp) -> Vec<Incident> {
        let (links, changes) = (self.links(), self.changes());
        let occurrences = occurrences_of(&self.signals, &links, &changes, times, until);
        incidents_of(occurrences, times)
    }

    /// Makes the rates of the last interval unknown: of a part of one they say nothing.
    fn forget_last_rates(&mut self) {
        let Some(last) = self.signals.bins.checked_sub(1) else {
            return;
        };
        let links = self.signals.links.values_mut().flat_map(|link| {
            [
                &mut link.copied_bytes,
                &mut link.active,
                &mut link.limit,
                &mut link.queued,
                &mut link.unfed,
                &mut link.stalled,
                &mut link.progress_age_seconds,
            ]
        });
        let service = &mut self.signals.service;
        for series in links.chain([&mut service.slots_used, &mut service.dispatches]) {
            series.0.truncate(last);
        }
    }
}

/// Several processors look at some of the populations each: of a day of 300 links that is most of the work.
fn changes_of(signals: &Signals, populations: &[(Population, Vec<LinkId>)]) -> Vec<RateChange> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let share = populations.len().div_ceil(workers.min(WORKERS_MAX));
    let share = share.max(POPULATIONS_MIN);
    let mut changes: Vec<RateChange> = thread::scope(|scope| {
        let workers = populations
            .chunks(share)
            .map(|part| scope.spawn(move || rate_changes(signals, part)));
        let workers: Vec<_> = workers.collect();
        let found = workers.into_iter().map(|worker| match worker.join() {
            Ok(changes) => changes,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        found.flatten().collect()
    });
    changes.sort_by_key(RateChange::order);
    changes
}

/// Reads a window of a record. When there is no room for all of its links, it is read twice: the second time only those
/// that matter most.
pub fn read_record(
    record: &dyn Record,
    window: ExplainWindow,
    wanted: &PopulationChoice,
) -> Result<ExplainedWindow, RecordError> {
    let mut room = LinkRoom::of(window, wanted);
    let read = read_links(record, window, wanted, &mut room)?;
    if room.links_left_out() == 0 {
        return Ok(read);
    }
    room.choose();
    read_links(record, window, wanted, &mut room)
}

/// Reads what concerns the links for which there is room.
fn read_links(
    record: &dyn Record,
    window: ExplainWindow,
    wanted: &PopulationChoice,
    room: &mut LinkRoom<'_>,
) -> Result<ExplainedWindow, RecordError> {
    let mut signals = RecordSignals::new(window.from, window.resolution_seconds, window.bins());
    let gaps = read_minutes(record, window, room, &mut signals)?;
    let sampled_since = read_samples(record, &gaps, room, &mut signals)?;
    let told_since = read_entries(record, &gaps, room, &mut signals)?;
    let complete_since = sampled_since.max(told_since);
    let links: Vec<LinkId> = signals.links().cloned().collect();
    for change in record_changes(record, window, &links)? {
        signals.take_change(change);
    }
    for link in &links {
        for change in record.link_changes(link, window.from, window.to, CHANGES_MAX)? {
            signals.take_link_change(&change);
        }
    }
    Ok(ExplainedWindow {
        complete_since,
        links_left_out: room.links_left_out(),
        ..ExplainedWindow::of(signals.finish(), wanted)
    })
}

/// The same with the part of an interval in which the window ends, of which failures are known and rates are not.
pub fn read_record_to_its_end(
    record: &dyn Record,
    window: ExplainWindow,
    wanted: &PopulationChoice,
) -> Result<ExplainedWindow, RecordError> {
    let step = i64::from(window.resolution_seconds.max(1)) * 1000;
    let part = (window.to.0 - window.from.0).rem_euclid(step);
    if part == 0 {
        return read_record(record, window, wanted);
    }
    let whole = ExplainWindow {
        to: Timestamp(window.to.0 - part + step),
        ..window
    };
    let mut read = read_record(record, whole, wanted)?;
    read.forget_last_rates();
    read.to = window.to;
    Ok(read)
}

/// By what links are ranked. Users invent links, and no bytes move on those.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct LinkSignificance {
    moved_bytes: u64,
    failed_attempts: u64,
}

/// What a link counts for, when there is no room for all.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkWeight {
    significance: LinkSignificance,
    /// For which files moved or were to move.
    vos: BTreeSet<VoName>,
}

impl LinkWeight {
    fn add_minute(&mut self, row: &MinuteRow) {
        match &row.key {
            MinuteKey::Link(_) => {
                self.significance.moved_bytes += row.sums.moved_bytes;
                self.significance.failed_attempts += row.sums.failed;
            }
            MinuteKey::VoOnLink(_, vo) => {
                self.vos.insert(vo.clone());
            }
            MinuteKey::OtherLinks
            | MinuteKey::OtherVosOnLinks
            | MinuteKey::Activity(..)
            | MinuteKey::OtherActivities
            | MinuteKey::Service => {}
        }
    }

    /// Adds what rows of records tell of copies that ended.
    pub(super) fn add_copies(&mut self, moved_bytes: u64, failed_attempts: u64) {
        let known = &mut self.significance;
        known.moved_bytes = known.moved_bytes.saturating_add(moved_bytes);
        known.failed_attempts += failed_attempts;
    }

    pub(super) fn add_vo(&mut self, vo: &VoName) {
        if !self.vos.contains(vo) {
            self.vos.insert(vo.clone());
        }
    }

    fn add_sample(&mut self, sample: &LinkSample) {
        self.significance.moved_bytes += sample.moved.0;
    }

    fn add_entry(&mut self, entry: &LedgerEntry, vo: Option<&VoName>) {
        let is_failed = matches!(entry.event, TransferEvent::AttemptFailed { .. });
        self.significance.failed_attempts += u64::from(is_failed);
        if let Some(vo) = vo {
            self.add_vo(vo);
        }
    }
}

/// The links for which there is room: the first ones, as long as nothing is chosen.
pub(super) struct LinkRoom<'a> {
    links_max: usize,
    wanted: &'a PopulationChoice,
    taken: BTreeSet<LinkId>,
    is_chosen: bool,
    weights: HashMap<LinkId, LinkWeight>,
    /// Links that were seen and are weighed no more.
    forgotten: usize,
}

impl LinkRoom<'_> {
    pub(super) fn of(window: ExplainWindow, wanted: &PopulationChoice) -> LinkRoom<'_> {
        LinkRoom {
            links_max: (CELLS_MAX / window.bins().max(1)).max(1),
            wanted,
            taken: BTreeSet::new(),
            is_chosen: false,
            weights: HashMap::new(),
            forgotten: 0,
        }
    }

    pub(super) fn has(&mut self, link: &LinkId, weigh: impl FnOnce(&mut LinkWeight)) -> bool {
        if self.is_chosen {
            return self.taken.contains(link);
        }
        if !self.weights.contains_key(link) {
            if self.weights.len() >= WEIGHED_MAX {
                self.forget_light();
            }
            self.weights.insert(link.clone(), LinkWeight::default());
        }
        if let Some(weight) = self.weights.get_mut(link) {
            weigh(weight);
        }
        if self.taken.contains(link) {
            return true;
        }
        // A link that was named has room beside all others.
        let is_named = self.is_named(link);
        let links_max = self.links_max * if is_named { 2 } else { 1 };
        let has_room = self.taken.len() < links_max;
        if has_room {
            self.taken.insert(link.clone());
        }
        has_room
    }

    fn is_named(&self, link: &LinkId) -> bool {
        self.wanted.names(link)
    }

    /// Keeps the half that counts for most.
    fn forget_light(&mut self) {
        let mut all: Vec<_> = self.weights.drain().collect();
        all.sort_by(|(one, light), (other, heavy)| {
            (heavy.significance, one).cmp(&(light.significance, other))
        });
        self.forgotten += all.len().saturating_sub(WEIGHED_MAX / 2);
        all.truncate(WEIGHED_MAX / 2);
        self.weights.extend(all);
    }

    /// Chooses, now that all links are weighed: VOs take turns, each with the link on which most moves for it, or else
    /// most fails. So nobody's invented links crowd out those of another VO, nor those on which its own files move.
    pub(super) fn choose(&mut self) {
        let mut of_vos: BTreeMap<Option<&VoName>, Vec<(&LinkWeight, &LinkId)>> = BTreeMap::new();
        for (link, weight) in &self.weights {
            for vo in &weight.vos {
                of_vos.entry(Some(vo)).or_default().push((weight, link));
            }
            if weight.vos.is_empty() {
                of_vos.entry(None).or_default().push((weight, link));
            }
        }
        for links in of_vos.values_mut() {
            // The heaviest is taken from the end.
            links.sort_by(|(light, one), (heavy, other)| {
                (light.significance, other).cmp(&(heavy.significance, one))
            });
        }
        let named = self.weights.keys().filter(|link| self.is_named(link));
        let named = named.take(self.links_max);
        let mut taken: BTreeSet<LinkId> = named.cloned().collect();
        let links_max = self.links_max + taken.len();
        while taken.len() < links_max && !of_vos.is_empty() {
            for links in of_vos.values_mut() {
                while taken.len() < links_max
                    && let Some((_, link)) = links.pop()
                    && !taken.insert(link.clone())
                {}
            }
            of_vos.retain(|_, links| !links.is_empty());
        }
        (self.taken, self.is_chosen) = (taken, true);
    }

    pub(super) fn links_left_out(&self) -> usize {
        let seen = self.weights.len() + self.forgotten;
        seen.saturating_sub(self.taken.len())
    }
}

/// Takes the minutes of a window, if its intervals are made of such. Tells of which times there is none, the latest last:
/// these have to be read second by second.
fn read_minutes(
    record: &dyn Record,
    window: ExplainWindow,
    room: &mut LinkRoom<'_>,
    signals: &mut RecordSignals,
) -> Result<Vec<TimeWindow>, RecordError> {
    let step = i64::from(window.resolution_seconds) * 1000;
    if step % MINUTE_MS != 0 || window.from.0 % MINUTE_MS != 0 {
        let (from, to) = (window.from, window.to);
        return Ok(vec![TimeWindow { from, to }]);
    }
    let mut counted = Vec::new();
    let mut to = window.to;
    while to > window.from {
        let from = (to - MINUTES_AT_ONCE).max(window.from);
        for minute in record.minutes_between(from, to)? {
            signals.take_minute(&minute, |row, link| {
                room.has(link, |weight| weight.add_minute(row))
            });
            counted.push(TimeWindow {
                from: minute.from,
                to: minute.to,
            });
        }
        to = from;
    }
    Ok(gaps_between(counted, window))
}

/// What of a window these times leave out.
fn gaps_between(mut counted: Vec<TimeWindow>, window: ExplainWindow) -> Vec<TimeWindow> {
    counted.sort_unstable_by_key(|counted| counted.from);
    let (mut gaps, mut known_until) = (Vec::new(), window.from);
    let end = TimeWindow {
        from: window.to,
        to: window.to,
    };
    for counted in counted.into_iter().chain([end]) {
        let (from, to) = (known_until, counted.from.min(window.to));
        if from < to {
            gaps.push(TimeWindow { from, to });
        }
        known_until = known_until.max(counted.to);
    }
    gaps
}

/// Takes the samples of these times; tells from when on they are all there, when not from the begin.
fn read_samples(
    record: &dyn Record,
    gaps: &[TimeWindow],
    room: &mut LinkRoom<'_>,
    signals: &mut RecordSignals,
) -> Result<Option<Timestamp>, RecordError> {
    let (mut samples, mut known_since) = (0, None);
    for (number, gap) in gaps.iter().rev().enumerate() {
        let mut to = gap.to;
        while to > gap.from {
            if samples > SAMPLES_MAX || number >= GAPS_MAX {
                signals.samples_left_out(gap.from, to);
                known_since = known_since.max(Some(to));
                break;
            }
            let from = (to - SAMPLES_AT_ONCE).max(gap.from);
            // A sample tells of the second before its time.
            let read = record.samples_between(Timestamp(from.0 + 1), Timestamp(to.0 + 1))?;
            samples += read.len();
            for sample in &read {
                if room.has(&sample.link, |weight| weight.add_sample(sample)) {
                    signals.take_sample(sample);
                }
            }
            to = from;
        }
    }
    Ok(known_since)
}

/// Takes the entries of these times whose links are still known; tells from when on they are all there, when not from the
/// begin.
fn read_entries(
    record: &dyn Record,
    gaps: &[TimeWindow],
    room: &mut LinkRoom<'_>,
    signals: &mut RecordSignals,
) -> Result<Option<Timestamp>, RecordError> {
    let last = record.last_sequence()?;
    let before = |at: Timestamp| sequence_before(record, last, Timestamp(at.0 - 1));
    let (mut left, mut known_since) = (ENTRIES_MAX, None);
    let mut parts = Vec::new();
    for (number, gap) in gaps.iter().rev().enumerate() {
        if left == 0 || number >= GAPS_MAX {
            signals.entries_left_out(gap.from, gap.to);
            known_since = known_since.max(Some(gap.to));
            continue;
        }
        let (first, end) = (before(gap.from)?, before(gap.to)?);
        let (position, entries) = latest_entries(record, first, end, left)?;
        left = left.saturating_sub(entries);
        parts.push((*gap, position, position > first));
    }
    let mut known = KnownTransfers::default();
    // In the order in which it happened: an attempt begins before it ends.
    for (gap, position, is_shortened) in parts.into_iter().rev() {
        let first = each_entry(
            record,
            position..last,
            gap,
            &mut known,
            |entry, link, vo| {
                if room.has(link, |weight| weight.add_entry(entry, vo)) {
                    signals.take_entry(entry, link);
                    vo.into_iter().for_each(|vo| signals.take_vo(link, vo));
                }
            },
        )?;
        if is_shortened && let Some(first) = first {
            signals.entries_left_out(gap.from, first);
            known_since = known_since.max(Some(first));
        }
    }
    Ok(known_since)
}

/// Links of transfers and VOs of jobs, as they were looked up.
#[derive(Default)]
struct KnownTransfers {
    links: HashMap<TransferId, Option<LinkId>>,
    vos: HashMap<JobId, Option<VoName>>,
}

impl KnownTransfers {
    fn link(
        &mut self,
        record: &dyn Record,
        transfer: TransferId,
    ) -> Result<Option<LinkId>, RecordError> {
        if self.links.len() >= LINKS_KNOWN_MAX {
            self.links.clear();
        }
        if let Some(known) = self.links.get(&transfer) {
            return Ok(known.clone());
        }
        let request = record.transfer_request(transfer)?;
        let link = request.map(|request| request.link());
        self.links.insert(transfer, link.clone());
        Ok(link)
    }

    fn vo(&mut self, record: &dyn Record, job: JobId) -> Result<Option<VoName>, RecordError> {
        if self.vos.len() >= LINKS_KNOWN_MAX {
            self.vos.clear();
        }
        if let Some(known) = self.vos.get(&job) {
            return Ok(known.clone());
        }
        let vo = record.job_vo(job)?;
        self.vos.insert(job, vo.clone());
        Ok(vo)
    }
}

/// Takes each entry of a time behind the first of these positions whose link is still known; tells when the first of all was made.
fn each_entry(
    record: &dyn Record,
    positions: Range<u64>,
    time: TimeWindow,
    known: &mut KnownTransfers,
    mut take: impl FnMut(&LedgerEntry, &LinkId, Option<&VoName>),
) -> Result<Option<Timestamp>, RecordError> {
    let (mut first_at, mut position) = (None, positions.start);
    while position < positions.end {
        let batch = record.entries_after(position, BATCH)?;
        let (Some(first), Some(end)) = (batch.first(), batch.last()) else {
            break;
        };
        first_at = first_at.or(Some(first.at));
        position = end.sequence;
        for entry in batch.iter().filter(|entry| time.has(entry.at)) {
            let Some(link) = known.link(record, entry.transfer)? else {
                continue;
            };
            let vo = known.vo(record, entry.job)?;
            take(entry, &link, vo.as_ref());
        }
        if end.at >= time.to {
            break;
        }
    }
    Ok(first_at)
}

/// What operators set and banned in a window, as far as it matters to rates of these links.
fn record_changes(
    record: &dyn Record,
    window: ExplainWindow,
    links: &[LinkId],
) -> Result<Vec<Change>, RecordError> {
    let settings = record.setting_changes(CHANGES_MAX)?;
    let settings = settings.iter().filter(|change| window.has(change.at));
    let mut changes: Vec<Change> = settings
        .flat_map(|change| setting_changes(change, links))
        .collect();
    let bans = record.ban_changes(CHANGES_MAX)?;
    let bans = bans.iter().filter(|change| window.has(change.at));
    changes.extend(bans.filter_map(ban_change));
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::MemoryRecord;
    use penstock_decide::explain::RateChangeId;
    use penstock_decide::explain::signals::{LinkSignals, Series};
    use penstock_model::StorageId;

    fn to(number: usize) -> LinkId {
        LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new(format!("https://b{number}")),
        }
    }

    #[test]
    fn changes_are_the_same_and_in_order_however_many_processors_look_for_them() {
        let bins = 120;
        let mut signals = Signals::unknown(Timestamp(0), 60, bins);
        for number in 0..3 * POPULATIONS_MIN {
            let low = 40 + number % 7..70;
            let rate = |bin: usize| match low.contains(&bin) {
                true => 2e8,
                false => 1e9 + ((bin * 7_919 + number) % 97) as f64 * 1e6,
            };
            let link = LinkSignals {
                copied_bytes: Series::known((0..bins).map(rate)),
                active: Series::constant(5.0, bins),
                ..LinkSignals::default()
            };
            signals.links.insert(to(number), link);
        }
        let window = ExplainedWindow::of(signals, &PopulationChoice::Links);
        let changes = window.changes();
        assert_eq!(changes.len(), 3 * POPULATIONS_MIN);
        assert_eq!(changes, rate_changes(&window.signals, &window.populations));
    }

    #[test]
    fn there_is_room_for_so_many_links_and_for_one_that_was_named() {
        let window = ExplainWindow::new(Timestamp(0), Timestamp(100_000 * 60_000), None);
        let wanted = PopulationChoice::Link("*-b999".to_owned());
        let mut room = LinkRoom::of(window, &wanted);
        let links_max = CELLS_MAX / window.bins();
        let mut has = |number: usize| room.has(&to(number), |_| {});
        let taken = (0..500).filter(|number| has(*number)).count();
        assert_eq!(taken, links_max);
        assert!(has(999) && has(0) && !has(998));
        assert_eq!(room.links_left_out(), 502 - links_max - 1);
        room.choose();
        let mut has = |number: usize| room.has(&to(number), |_| {});
        assert!(has(999), "the one that was named");
        let taken = (0..1000).filter(|number| has(*number)).count();
        assert_eq!(taken, links_max + 1);
    }

    #[test]
    fn a_link_that_is_called_by_a_long_text_costs_no_more_than_another() {
        let window = ExplainWindow::new(Timestamp(0), Timestamp(450_000 * 60_000), None);
        // Each dash might stand between both ends.
        let wanted = PopulationChoice::Link("-".repeat(60_000));
        let mut room = LinkRoom::of(window, &wanted);
        let begun = std::time::Instant::now();
        for _ in 0..1_000 {
            for number in 0..200 {
                room.has(&to(number), |_| {});
            }
        }
        room.choose();
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn the_link_of_a_change_has_room_however_many_others_there_are() {
        let window = ExplainWindow::new(Timestamp(0), Timestamp(100_000 * 60_000), None);
        let id = RateChangeId::new(&Population::Link(to(999)), Timestamp(60_000));
        let wanted = PopulationChoice::OfChange(id);
        let mut room = LinkRoom::of(window, &wanted);
        let taken = (0..1_000).filter(|number| room.has(&to(*number), |_| {}));
        let taken: Vec<usize> = taken.collect();
        assert_eq!(taken.len(), CELLS_MAX / window.bins() + 1);
        assert!(taken.contains(&999));
        room.choose();
        assert!(room.has(&to(999), |_| {}));
    }

    #[test]
    fn links_that_somebody_invents_do_not_hide_those_of_others() {
        let window = ExplainWindow::new(Timestamp(0), Timestamp(100_000 * 60_000), None);
        let mut room = LinkRoom::of(window, &PopulationChoice::Links);
        let add = |room: &mut LinkRoom<'_>, number: usize, vo: &str, moved: u64, failures: u64| {
            room.has(&to(number), |weight| {
                weight.significance = LinkSignificance {
                    moved_bytes: moved,
                    failed_attempts: failures,
                };
                weight.vos.insert(VoName::new(vo));
            })
        };
        for invented in 0..1000 {
            add(&mut room, invented, "mallorys", 0, 1000);
        }
        assert!(!add(&mut room, 2000, "mallorys", 1, 0), "it comes last");
        assert!(!add(&mut room, 2001, "others", 0, 1));
        room.choose();
        let links_max = room.links_max;
        assert_eq!(room.taken.len(), links_max);
        assert!(room.taken.contains(&to(2000)), "bytes moved there");
        assert!(room.taken.contains(&to(2001)), "the other VO has a turn");
        assert_eq!(room.links_left_out(), 1002 - links_max);
        // Of many that move nothing.
        for invented in 3000..3000 + WEIGHED_MAX {
            room.is_chosen = false;
            add(&mut room, invented, "mallorys", 0, 0);
        }
        assert!(room.weights.len() <= WEIGHED_MAX);
        assert!(room.weights.contains_key(&to(2000)));
    }

    #[test]
    fn rates_of_a_part_of_an_interval_are_unknown_and_its_failures_are_not() {
        let record = MemoryRecord::new();
        let window = ExplainWindow::new(Timestamp(0), Timestamp(150_000), None);
        assert_eq!(window.bins(), 2);
        let read =
            read_record_to_its_end(&record, window, &PopulationChoice::Links).expect("readable");
        assert_eq!((read.signals.bins, read.to), (3, Timestamp(150_000)));
        assert_eq!(read.signals.service.dispatches.at(1), Some(0.0));
        assert_eq!(read.signals.service.dispatches.at(2), None);
        let whole = ExplainWindow::new(Timestamp(0), Timestamp(120_000), None);
        let read =
            read_record_to_its_end(&record, whole, &PopulationChoice::Links).expect("readable");
        assert_eq!((read.signals.bins, read.to), (2, Timestamp(120_000)));
    }

    #[test]
    fn a_window_begins_on_a_whole_interval_and_a_long_one_has_longer_intervals() {
        let check = |from: i64, to: i64, asked: Option<u32>| {
            let window = ExplainWindow::new(Timestamp(from), Timestamp(to), asked);
            (window.from.0, window.resolution_seconds, window.bins())
        };
        assert_eq!(check(61_000, 3_600_999, None), (60_000, 60, 59));
        assert_eq!(check(61_000, 91_000, Some(5)), (60_000, 5, 6));
        assert_eq!(check(5_000, 1_000, None), (0, 60, 0));
        let week = 7 * 86_400_000;
        assert_eq!(check(0, week, None), (0, 60, 10_080));
        assert_eq!(check(59_000, week + 59_000, None), (0, 60, 10_080));
        assert_eq!(check(0, week + 1_000, None), (0, 120, 5_040));
        let month = 30 * 86_400_000;
        let (_, step, bins) = check(0, month, None);
        assert_eq!((step, bins), (300, 8_640));
    }
}
