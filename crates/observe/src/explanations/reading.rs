//! Reads what a window is explained from: the record of a transfer service, live or of a stopped site.

use super::settings::{ban_change, setting_changes};
use crate::follow::{Record, RecordError, SAMPLES_AT_ONCE, latest_entries, sequence_before};
use crate::signals::RecordSignals;
use penstock_decide::explain::rate_change::{Population, RateChange, rate_changes};
use penstock_decide::explain::signals::{BIN_SECONDS, Change, Signals};
use penstock_decide::incidents::{Incident, IncidentTimes, incidents_of, occurrences_of};
use penstock_model::observation::View;
use penstock_model::{JobId, LedgerEntry, LinkId, Timestamp, TransferId, VoName};
use std::collections::{BTreeSet, HashMap};

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
/// Intervals of all links together at most, which is some 200 MB: of more links, those are left out that came last.
const CELLS_MAX: usize = 300_000;
/// Links that are counted as left out.
const LEFT_OUT_MAX: usize = 10_000;
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

/// Whose rates are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Of each link.
    #[default]
    Links,
    /// Of the links that fit a text: `SOURCE-DESTINATION`, each by host or with scheme, or `*`.
    Link(String),
}

impl Wanted {
    /// Whether a link is asked for.
    pub fn has(&self, link: &LinkId) -> bool {
        match self {
            Wanted::Links => true,
            Wanted::Link(text) => link.is_called(text),
        }
    }
}

/// A window, ready to be explained.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExplainedWindow {
    /// What is known of it.
    pub signals: Signals,
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
    /// Of links, each by itself.
    pub fn of_links(signals: Signals, wanted: &Wanted) -> ExplainedWindow {
        let links = signals.links.keys().filter(|link| wanted.has(link));
        let populations = links.map(|link| (Population::Link(link.clone()), vec![link.clone()]));
        ExplainedWindow {
            populations: populations.collect(),
            to: signals.begin_of(signals.bins),
            signals,
            complete_since: None,
            links_left_out: 0,
            view: None,
        }
    }

    /// What fell and rose in it.
    pub fn changes(&self) -> Vec<RateChange> {
        rate_changes(&self.signals, &self.populations)
    }

    /// Its incidents. What was seen a moment before `until` is open.
    pub fn incidents(&self, times: IncidentTimes, until: Timestamp) -> Vec<Incident> {
        let links = self.populations.iter().flat_map(|(_, links)| links);
        let links: BTreeSet<LinkId> = links.cloned().collect();
        let changes = self.changes();
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
            ]
        });
        let service = &mut self.signals.service;
        for series in links.chain([&mut service.slots_used, &mut service.dispatches]) {
            series.0.truncate(last);
        }
    }
}

/// Reads a window of a record.
pub fn read_record(
    record: &dyn Record,
    window: ExplainWindow,
    wanted: &Wanted,
) -> Result<ExplainedWindow, RecordError> {
    let mut signals = RecordSignals::new(window.from, window.resolution_seconds, window.bins());
    let mut room = LinkRoom::of(window, wanted);
    let (mut to, mut samples, mut sampled_since) = (window.to, 0, None);
    while to > window.from {
        let from = (to - SAMPLES_AT_ONCE).max(window.from);
        let read = record.samples_between(from, to)?;
        samples += read.len();
        for sample in read.iter().filter(|sample| room.has(&sample.link)) {
            signals.take_sample(sample);
        }
        if samples > SAMPLES_MAX && from > window.from {
            sampled_since = Some(from);
            break;
        }
        to = from;
    }
    let complete_since = each_entry(record, window, |entry, link, vo| {
        if room.has(link) {
            signals.take_entry(entry, link);
            vo.into_iter().for_each(|vo| signals.take_vo(link, vo));
        }
    })?;
    if let Some(since) = sampled_since {
        signals.samples_known_since(since);
    }
    if let Some(since) = complete_since {
        signals.entries_known_since(since);
    }
    let complete_since = complete_since.max(sampled_since);
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
        links_left_out: room.left_out.len(),
        ..ExplainedWindow::of_links(signals.finish(), wanted)
    })
}

/// The same with the part of an interval in which the window ends, of which failures are known and rates are not.
pub fn read_record_to_its_end(
    record: &dyn Record,
    window: ExplainWindow,
    wanted: &Wanted,
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

/// The links for which there is room.
struct LinkRoom<'a> {
    links_max: usize,
    wanted: &'a Wanted,
    taken: BTreeSet<LinkId>,
    left_out: BTreeSet<LinkId>,
}

impl LinkRoom<'_> {
    fn of(window: ExplainWindow, wanted: &Wanted) -> LinkRoom<'_> {
        LinkRoom {
            links_max: (CELLS_MAX / window.bins().max(1)).max(1),
            wanted,
            taken: BTreeSet::new(),
            left_out: BTreeSet::new(),
        }
    }

    fn has(&mut self, link: &LinkId) -> bool {
        if self.taken.contains(link) {
            return true;
        }
        // A link that was named has room beside all others.
        let is_named = matches!(self.wanted, Wanted::Link(_)) && self.wanted.has(link);
        let links_max = self.links_max * if is_named { 2 } else { 1 };
        if self.taken.len() < links_max {
            self.taken.insert(link.clone());
            return true;
        }
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.insert(link.clone());
        }
        false
    }
}

/// Takes each entry of a window whose link is still known; tells from when on they are all there, when not from its
/// begin.
fn each_entry(
    record: &dyn Record,
    window: ExplainWindow,
    mut take: impl FnMut(&LedgerEntry, &LinkId, Option<&VoName>),
) -> Result<Option<Timestamp>, RecordError> {
    let last = record.last_sequence()?;
    let begin = sequence_before(record, last, Timestamp(window.from.0 - 1))?;
    let (mut position, _) = latest_entries(record, (begin, last), ENTRIES_MAX)?;
    let is_shortened = position > begin;
    let mut complete_since = None;
    let mut links: HashMap<TransferId, Option<LinkId>> = HashMap::new();
    let mut vos: HashMap<JobId, Option<VoName>> = HashMap::new();
    while position < last {
        let batch = record.entries_after(position, BATCH)?;
        let (Some(first), Some(end)) = (batch.first(), batch.last()) else {
            break;
        };
        if is_shortened && complete_since.is_none() {
            complete_since = Some(first.at);
        }
        position = end.sequence;
        for entry in batch.iter().filter(|entry| window.has(entry.at)) {
            if links.len() >= LINKS_KNOWN_MAX {
                links.clear();
            }
            let link = match links.get(&entry.transfer) {
                Some(known) => known.clone(),
                None => {
                    let request = record.transfer_request(entry.transfer)?;
                    let link = request.map(|request| request.link());
                    links.insert(entry.transfer, link.clone());
                    link
                }
            };
            let Some(link) = link else { continue };
            if vos.len() >= LINKS_KNOWN_MAX {
                vos.clear();
            }
            let vo = match vos.get(&entry.job) {
                Some(known) => known.clone(),
                None => {
                    let vo = record.job_vo(entry.job)?;
                    vos.insert(entry.job, vo.clone());
                    vo
                }
            };
            take(entry, &link, vo.as_ref());
        }
        if end.at >= window.to {
            break;
        }
    }
    Ok(complete_since)
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
    use penstock_model::StorageId;

    #[test]
    fn there_is_room_for_so_many_links_and_for_one_that_was_named() {
        let to = |number: usize| LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new(format!("https://b{number}")),
        };
        let window = ExplainWindow::new(Timestamp(0), Timestamp(100_000 * 60_000), None);
        let wanted = Wanted::Link("*-b999".to_owned());
        let mut room = LinkRoom::of(window, &wanted);
        let links_max = CELLS_MAX / window.bins();
        let taken = (0..500).filter(|number| room.has(&to(*number))).count();
        assert_eq!((taken, room.left_out.len()), (links_max, 500 - links_max));
        assert!(room.has(&to(999)) && room.has(&to(0)) && !room.has(&to(998)));
    }

    #[test]
    fn rates_of_a_part_of_an_interval_are_unknown_and_its_failures_are_not() {
        let record = MemoryRecord::new();
        let window = ExplainWindow::new(Timestamp(0), Timestamp(150_000), None);
        assert_eq!(window.bins(), 2);
        let read = read_record_to_its_end(&record, window, &Wanted::Links).expect("readable");
        assert_eq!((read.signals.bins, read.to), (3, Timestamp(150_000)));
        assert_eq!(read.signals.service.dispatches.at(1), Some(0.0));
        assert_eq!(read.signals.service.dispatches.at(2), None);
        let whole = ExplainWindow::new(Timestamp(0), Timestamp(120_000), None);
        let read = read_record_to_its_end(&record, whole, &Wanted::Links).expect("readable");
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
