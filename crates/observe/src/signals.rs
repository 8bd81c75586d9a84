//! What the record tells of a window, as the explainer takes it: samples, the ledger, events of links.
//!
//! A fold, one entry, sample or minute at a time. What the record does not hold (servers, pools, databases of storage elements) stays
//! unknown, and so is what lies before the part of it that was read. What is known of a file counts in the bin in which
//! it ended, so bins should be longer than most copies; bytes and slots are those of their own second.

use crate::copy_sums;
use penstock_decide::explain::signals::{
    Change, FailureGroup, LinkSignals, Series, Setting, Signals,
};
use penstock_decide::open_attempts::{CountedEvent, LostWork, OpenAttempts, Preparation};
use penstock_model::failure_text::fingerprint;
use penstock_model::{
    CopySums, FailedStep, Failure, LedgerEntry, LinkChange, LinkEvent, LinkId, LinkSample,
    MinuteKey, MinuteRow, MinuteSamples, MinuteSums, Timestamp, VoName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Kinds of failure told apart on one link.
const FAILURES_MAX: usize = 100;
/// VOs told apart on one link.
const VOS_MAX: usize = 100;
/// What a failed attempt had moved is looked for in so many bins, the last ones in which it ran.
const FAILED_BINS_MAX: f64 = 240.0;

/// By kind, in each bin.
type FailureCounts = BTreeMap<FailureGroup, Vec<f64>>;

/// The fold.
#[derive(Debug, Default)]
pub struct RecordSignals {
    begin: Timestamp,
    bin_seconds: u32,
    bins: usize,
    links: BTreeMap<LinkId, Vec<MinuteSums>>,
    failures: BTreeMap<LinkId, FailureCounts>,
    tape_failures: BTreeMap<LinkId, FailureCounts>,
    vos: BTreeMap<LinkId, BTreeSet<VoName>>,
    attempts: OpenAttempts<LinkId>,
    /// Seconds in which slots waited for an answer of both ends.
    preparing: BTreeMap<LinkId, Vec<f64>>,
    submissions: BTreeMap<LinkId, Vec<f64>>,
    dispatches: Vec<f64>,
    is_sampled: Vec<bool>,
    has_entry: Vec<bool>,
    /// Bins of which a minute tells: what only minutes tell is known.
    has_minute: Vec<bool>,
    /// Slots of the service as a whole, where minutes tell of it.
    slots: Vec<ServiceSlots>,
    /// There are links of which nothing is taken for want of room.
    leaves_out_links: bool,
    changes: Vec<Change>,
    /// Bins of which not all samples, or not all entries, are taken.
    lacks_samples: Vec<bool>,
    lacks_entries: Vec<bool>,
}

/// Slots of the service, summed over seconds.
#[derive(Debug, Clone, Copy, Default)]
struct ServiceSlots {
    active: u64,
    limit: u64,
    /// These seconds.
    samples: u64,
}

impl RecordSignals {
    /// Will take what lies in `bins` bins from `begin` on.
    pub fn new(begin: Timestamp, bin_seconds: u32, bins: usize) -> RecordSignals {
        RecordSignals {
            begin,
            bin_seconds: bin_seconds.max(1),
            bins,
            dispatches: vec![0.0; bins],
            is_sampled: vec![false; bins],
            has_entry: vec![false; bins],
            has_minute: vec![false; bins],
            slots: vec![ServiceSlots::default(); bins],
            lacks_samples: vec![false; bins],
            lacks_entries: vec![false; bins],
            ..RecordSignals::default()
        }
    }

    /// Says that samples of this time are left out: what they would tell is unknown.
    pub fn samples_left_out(&mut self, from: Timestamp, to: Timestamp) {
        let bins = self.bins_within(from, to);
        self.lacks_samples[bins].fill(true);
    }

    /// The same of entries of the ledger.
    pub fn entries_left_out(&mut self, from: Timestamp, to: Timestamp) {
        let bins = self.bins_within(from, to);
        self.lacks_entries[bins].fill(true);
    }

    /// The bins of which some part lies in this time.
    fn bins_within(&self, from: Timestamp, to: Timestamp) -> Range<usize> {
        let step = i64::from(self.bin_seconds) * 1000;
        let late = |at: Timestamp| at.0.saturating_sub(self.begin.0).max(0);
        let bin = |ms: i64| usize::try_from(ms / step).map_or(self.bins, |bin| bin.min(self.bins));
        let first = bin(late(from));
        first..bin(late(to).saturating_add(step - 1)).max(first)
    }

    fn bin_of(&self, at: Timestamp) -> Option<usize> {
        Signals::unknown(self.begin, self.bin_seconds, self.bins).bin_of(at)
    }

    fn bin(&mut self, link: &LinkId, at: Timestamp) -> Option<&mut MinuteSums> {
        let bin = self.bin_of(at)?;
        let bins = self.bins;
        let of_link = self
            .links
            .entry(link.clone())
            .or_insert_with(|| vec![MinuteSums::default(); bins]);
        of_link.get_mut(bin)
    }

    /// Takes a sample. It tells of the second before its time.
    pub fn take_sample(&mut self, sample: &LinkSample) {
        let at = Timestamp(sample.at.0.saturating_sub(1));
        let Some(number) = self.bin_of(at) else {
            return;
        };
        self.is_sampled[number] = true;
        let Some(bin) = self.bin(&sample.link, at) else {
            return;
        };
        bin.add_sample(sample);
    }

    /// Takes a minute, as far as it tells of links for which there is room. It tells what the samples and entries of its time
    /// would.
    pub fn take_minute(
        &mut self,
        minute: &MinuteSamples,
        mut has_room: impl FnMut(&MinuteRow, &LinkId) -> bool,
    ) {
        let Some(bin) = self.bin_of(minute.from) else {
            return;
        };
        self.has_minute[bin] = true;
        for row in &minute.rows {
            match &row.key {
                MinuteKey::Service => {
                    let slots = &mut self.slots[bin];
                    slots.active = slots.active.saturating_add(row.sums.active);
                    slots.limit = slots.limit.saturating_add(row.sums.limit);
                    slots.samples += row.sums.samples;
                }
                MinuteKey::Link(link) if has_room(row, link) => self.take_link_row(bin, link, row),
                MinuteKey::Link(_) => self.leaves_out_links = true,
                MinuteKey::VoOnLink(link, vo) if has_room(row, link) => self.take_vo(link, vo),
                MinuteKey::OtherLinks => {
                    self.leaves_out_links |= row.sums.active > 0;
                    self.dispatches[bin] += row.sums.started as f64;
                }
                MinuteKey::VoOnLink(..)
                | MinuteKey::OtherVosOnLinks
                | MinuteKey::Activity(..)
                | MinuteKey::OtherActivities => {}
            }
        }
    }

    fn take_link_row(&mut self, bin: usize, link: &LinkId, row: &MinuteRow) {
        let (bins, sums) = (self.bins, &row.sums);
        self.is_sampled[bin] |= sums.samples > 0;
        self.dispatches[bin] += sums.started as f64;
        if sums.submitted > 0 {
            let of_link = self.submissions.entry(link.clone());
            of_link.or_insert_with(|| vec![0.0; bins])[bin] += sums.submitted as f64;
        }
        if sums.samples > 0 || sums.copies.files > 0 || !row.failures.is_empty() {
            let of_link = self.links.entry(link.clone());
            of_link.or_insert_with(|| vec![MinuteSums::default(); bins])[bin].add_sums(sums);
        }
        for failure in &row.failures {
            let group = FailureGroup::new(
                failure.side,
                failure.phase,
                failure.errno,
                &failure.fingerprint,
            );
            self.count_failures(link, bin, group, failure.step, failure.count);
        }
    }

    /// Takes an entry of the ledger; `link` is that of its transfer.
    pub fn take_entry(&mut self, entry: &LedgerEntry, link: &LinkId) {
        let (at, transfer) = (entry.at, entry.transfer);
        if let Some(bin) = self.bin_of(at) {
            self.has_entry[bin] = true;
        }
        let (counted, preparation) = self.attempts.take(at, transfer, link, &entry.event);
        if let Some(preparation) = preparation {
            self.prepared(&preparation);
        }
        match counted {
            CountedEvent::Submitted => {
                let bins = self.bins;
                if let Some(bin) = self.bin_of(at) {
                    self.submissions
                        .entry(link.clone())
                        .or_insert_with(|| vec![0.0; bins])[bin] += 1.0;
                }
            }
            CountedEvent::Started => {
                if let Some(bin) = self.bin_of(at) {
                    self.dispatches[bin] += 1.0;
                }
            }
            CountedEvent::Landed(copy) => {
                if let Some(bin) = self.bin(link, at) {
                    bin.copies.add(&copy);
                }
            }
            CountedEvent::Failed {
                failure,
                step,
                lost,
            } => {
                self.failed(link, at, (failure, step), lost);
            }
            CountedEvent::Uncounted => {}
        }
    }

    /// Counts the time in which a slot waited for an answer of both ends.
    fn prepared(&mut self, preparation: &Preparation<LinkId>) {
        let (link, from, to) = (&preparation.label, preparation.from, preparation.to);
        let bins = self.bins_within(from, to);
        let (begin, step) = (self.begin.0, i64::from(self.bin_seconds) * 1000);
        let of_link = (self.preparing.entry(link.clone())).or_insert_with(|| vec![0.0; self.bins]);
        for bin in bins {
            let first = begin.saturating_add(step.saturating_mul(bin as i64));
            let ms = to.0.min(first.saturating_add(step)) - from.0.max(first);
            of_link[bin] += ms.max(0) as f64 / 1000.0;
        }
    }

    fn failed(
        &mut self,
        link: &LinkId,
        at: Timestamp,
        (failure, step): (&Failure, FailedStep),
        lost: LostWork,
    ) {
        // The link is known from now on, also when no sample met a transfer of it.
        let Some(sums) = self.bin(link, at) else {
            return;
        };
        sums.add_lost(lost.moved, lost.ran);
        let Some(bin) = self.bin_of(at) else {
            return;
        };
        let (side, phase) = (failure.side, failure.phase);
        let group = FailureGroup::new(side, phase, failure.errno, &fingerprint(failure));
        self.count_failures(link, bin, group, step, 1);
    }

    fn count_failures(
        &mut self,
        link: &LinkId,
        bin: usize,
        group: FailureGroup,
        step: FailedStep,
        count: u64,
    ) {
        let of_step = match step {
            FailedStep::Attempt => &mut self.failures,
            FailedStep::TapeCall => &mut self.tape_failures,
        };
        let of_link = of_step.entry(link.clone()).or_default();
        if of_link.len() < FAILURES_MAX || of_link.contains_key(&group) {
            of_link.entry(group).or_insert_with(|| vec![0.0; self.bins])[bin] += count as f64;
        }
    }

    /// Takes the VO for which a file moves or should move on a link.
    pub fn take_vo(&mut self, link: &LinkId, vo: &VoName) {
        let of_link = self.vos.entry(link.clone()).or_default();
        if of_link.len() < VOS_MAX {
            of_link.insert(vo.clone());
        }
    }

    /// Takes an event of a link.
    pub fn take_link_change(&mut self, change: &LinkChange) {
        let new = match &change.event {
            LinkEvent::Halted { failures, .. } => Some(format!("halted after {failures} failures")),
            LinkEvent::Tried => return,
            LinkEvent::Reopened { .. } => None,
        };
        let old = new.is_none().then(|| "halted".to_owned());
        self.changes.push(Change {
            at: change.at,
            who: penstock_decide::explain::signals::SERVICE_PLACE.to_owned(),
            place: change.link.to_string(),
            setting: Setting::Halt,
            old,
            new,
        });
    }

    /// Takes a change that somebody made.
    pub fn take_change(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Bins in which the service did not run: nothing was recorded though all was taken that there is, and there was a queue
    /// before and after. Nothing started and nothing moved by it then. Without a queue it may have had nothing to do.
    fn stopped_bins(&self) -> Vec<bool> {
        let has_queue = |bin: usize| {
            let mut links = self.links.values();
            self.is_sampled[bin] && links.any(|bins| bins[bin].queued > 0)
        };
        let is_silent = |bin: usize| {
            let is_recorded = self.is_sampled[bin] || self.has_entry[bin] || self.has_minute[bin];
            !(is_recorded || self.lacks_samples[bin] || self.lacks_entries[bin])
        };
        // It may have begun or ended within the first second of a bin, of which there is no sample then.
        let is_short = |bin: usize| bin < self.bins && !self.is_sampled[bin] && !is_silent(bin);
        let mut is_stopped = vec![false; self.bins];
        let mut next = 0;
        while let Some(first) = (next..self.bins).find(|bin| is_silent(*bin)) {
            let end = (first..self.bins).find(|bin| !is_silent(*bin));
            let Some(end) = end else { break };
            let first = match first > 0 && is_short(first - 1) {
                true => first - 1,
                false => first,
            };
            let until = end + usize::from(is_short(end));
            if first > 0 && has_queue(first - 1) && until < self.bins && has_queue(until) {
                is_stopped[first..until].fill(true);
            }
            next = end;
        }
        is_stopped
    }

    /// The links of which something was taken.
    pub fn links(&self) -> impl Iterator<Item = &LinkId> {
        self.links.keys()
    }

    /// What was taken. Long because each signal has its place here.
    pub fn finish(mut self) -> Signals {
        let end = Timestamp(
            (self.begin.0).saturating_add(i64::from(self.bin_seconds) * 1000 * self.bins as i64),
        );
        for preparation in std::mem::take(&mut self.attempts).preparations(end) {
            self.prepared(&preparation);
        }
        for (is_sampled, lacks) in self.is_sampled.iter_mut().zip(&self.lacks_samples) {
            *is_sampled &= !lacks;
        }
        let is_stopped = self.stopped_bins();
        let told = self.is_sampled.iter().zip(&self.has_minute);
        let told_by_minutes: Vec<bool> = told.map(|(sampled, told)| *sampled && *told).collect();
        let lacks_entries = std::mem::take(&mut self.lacks_entries);
        let known = |values: Vec<f64>| {
            let values = values.into_iter().zip(&lacks_entries);
            Series(
                values
                    .map(|(value, lacks)| (!lacks).then_some(value))
                    .collect(),
            )
        };
        let mut signals = Signals::unknown(self.begin, self.bin_seconds, self.bins);
        self.changes.sort_by_key(|change| change.at);
        signals.changes = std::mem::take(&mut self.changes);
        for (link, mut bins) in std::mem::take(&mut self.links) {
            for (bin, _) in bins
                .iter_mut()
                .zip(&lacks_entries)
                .filter(|(_, lacks)| **lacks)
            {
                bin.copies = CopySums::default();
                (bin.failed_bytes, bin.failed_byte_seconds) = (0, 0);
            }
            let running = ServiceBins {
                is_sampled: &self.is_sampled,
                is_stopped: &is_stopped,
            };
            let mut of_link = link_signals(&bins, running, self.bin_seconds);
            let of_minutes = |value: &dyn Fn(&MinuteSums) -> f64| {
                let values = bins.iter().zip(&told_by_minutes);
                Series(values.map(|(bin, told)| told.then(|| value(bin))).collect())
            };
            let seconds = f64::from(self.bin_seconds);
            of_link.stalled = of_minutes(&|bin| bin.stalled as f64 / seconds);
            of_link.progress_age_seconds = of_minutes(&|bin| bin.silence_max_ms as f64 / 1000.0);
            let files = bins.iter().map(|bin| bin.copies.files as f64);
            of_link.finished_files = known(files.collect());
            let series = |counts: Option<FailureCounts>| {
                let counts = counts.unwrap_or_default().into_iter();
                counts
                    .map(|(group, attempts)| (group, known(attempts)))
                    .collect()
            };
            of_link.failures = series(self.failures.remove(&link));
            of_link.tape_failures = series(self.tape_failures.remove(&link));
            let preparing = self.preparing.remove(&link).unwrap_or_default();
            of_link.preparing = known(preparing.iter().map(|sum| sum / seconds).collect());
            of_link.vos = self.vos.remove(&link).unwrap_or_default();
            signals.links.insert(link, of_link);
        }
        let submissions = self.submissions.into_iter();
        signals.service.submissions = submissions
            .map(|(link, files)| (link, known(files)))
            .collect();
        signals.service.dispatches = known(self.dispatches);
        let cap = |slots: &ServiceSlots| {
            (slots.samples > 0).then(|| slots.limit as f64 / slots.samples as f64)
        };
        signals.service.slots_cap = Series(self.slots.iter().map(cap).collect());
        let of_links = signals.links.values().map(|link| link.active.clone());
        let of_links = of_links.reduce(|sum, active| sum.plus(&active));
        let of_links = of_links.unwrap_or_default();
        let used = |(bin, slots): (usize, &ServiceSlots)| match slots.samples > 0 {
            true => Some(slots.active as f64 / f64::from(self.bin_seconds)),
            // Links that are not known use slots too.
            false => of_links.at(bin).filter(|_| !self.leaves_out_links),
        };
        signals.service.slots_used = Series(self.slots.iter().enumerate().map(used).collect());
        signals
    }
}

/// What is known of the service in each bin.
struct ServiceBins<'a> {
    is_sampled: &'a [bool],
    is_stopped: &'a [bool],
}

/// What moved in each bin, by what became of it.
struct MovedBytes {
    copied: Vec<f64>,
    failed: Vec<f64>,
}

impl MovedBytes {
    /// What a failed attempt had moved is told when it ends, by when it was counted as moved, bin by bin. So it is taken out of
    /// the bins in which such attempts ran, in proportion to what moved then.
    fn of(bins: &[MinuteSums], bin_seconds: u32) -> MovedBytes {
        let mut copied: Vec<f64> = bins.iter().map(|bin| bin.moved_bytes as f64).collect();
        let mut failed = vec![0.0; bins.len()];
        for (last, sums) in bins.iter().enumerate() {
            let bytes = sums.failed_bytes as f64;
            // Minutes of before do not tell how long attempts ran: when their bytes moved is not known.
            if bytes <= 0.0 || sums.failed_byte_seconds == 0 {
                continue;
            }
            let ran = sums.failed_byte_seconds as f64 / bytes / f64::from(bin_seconds.max(1));
            let ran = (1.0 + ran).min(FAILED_BINS_MAX) as usize;
            let first = (last + 1).saturating_sub(ran);
            // Of what moved before the first bin nothing is known.
            let within = bytes * (last + 1 - first) as f64 / ran as f64;
            let moved: f64 = copied[first..=last].iter().sum();
            let part = match moved > within {
                true => within / moved,
                false => 1.0,
            };
            for bin in first..=last {
                let lost = copied[bin] * part;
                copied[bin] -= lost;
                failed[bin] += lost;
            }
        }
        MovedBytes { copied, failed }
    }
}

/// A link without a sample in a bin in which others have one had no work; where no link has one, nothing is known, unless the
/// service was stopped.
fn link_signals(bins: &[MinuteSums], service: ServiceBins<'_>, bin_seconds: u32) -> LinkSignals {
    let seconds = f64::from(bin_seconds);
    let (samples, limits) = bins.iter().fold((0u64, 0u64), |(samples, limits), bin| {
        (samples + bin.samples, limits + bin.limit)
    });
    let usual_limit = if samples > 0 {
        limits as f64 / samples as f64
    } else {
        0.0
    };
    let is_known = service.is_sampled.iter().zip(service.is_stopped);
    let is_known: Vec<bool> = is_known
        .map(|(sampled, stopped)| *sampled || *stopped)
        .collect();
    let sampled = |value: &dyn Fn(&MinuteSums) -> f64| {
        let values = bins.iter().zip(&is_known);
        Series(
            values
                .map(|(bin, known)| known.then(|| value(bin)))
                .collect(),
        )
    };
    // What was queued when the service stopped is queued until it runs again.
    let mut queued_last = 0.0;
    let mut unfed = sampled(&|bin| bin.unfed as f64 / seconds);
    for (bin, _) in (service.is_stopped.iter().enumerate()).filter(|(_, stopped)| **stopped) {
        unfed.0[bin] = Some(usual_limit);
    }
    let waits = bins
        .iter()
        .zip(service.is_stopped)
        .map(|(bin, is_stopped)| {
            if bin.samples > 0 {
                queued_last = bin.queued as f64 / bin.samples as f64;
            }
            if *is_stopped { queued_last } else { 0.0 }
        });
    let waits = Series::known(waits.collect::<Vec<f64>>());
    let moved = MovedBytes::of(bins, bin_seconds);
    let known = |values: Vec<f64>| {
        let values = values.into_iter().zip(&is_known);
        Series(
            values
                .map(|(value, known)| known.then_some(value))
                .collect(),
        )
    };
    // Where no attempt has told of any, they are not known: older records, and services that do not measure them.
    let failed_bytes = match moved.failed.iter().any(|bytes| *bytes > 0.0) {
        true => known(moved.failed),
        false => Series::default(),
    };
    let mut link = LinkSignals {
        copied_bytes: known(moved.copied),
        failed_bytes,
        active: sampled(&|bin| bin.active as f64 / seconds),
        limit: sampled(&|bin| {
            let idle = (seconds - bin.samples as f64).max(0.0);
            (bin.limit as f64 + idle * usual_limit) / (bin.samples as f64).max(seconds)
        }),
        queued: sampled(&|bin| bin.queued as f64 / seconds),
        unfed,
        ..LinkSignals::default()
    };
    let copies: Vec<&CopySums> = bins.iter().map(|bin| &bin.copies).collect();
    copy_sums::tell(&mut link, &copies);
    link.queued = link.queued.plus(&waits);
    link
}
