//! What the record tells of a window, as the explainer takes it: samples, the ledger, events of links.
//!
//! A fold, one entry at a time. What the record does not hold (servers, pools, databases of storage elements) stays
//! unknown, and so is what lies before the part of it that was read. What is known of a file counts in the bin in which
//! it ended, so bins should be longer than most copies; bytes and slots are those of their own second.

use crate::copy_sums::{self, CopySums, FinishedCopy, SocketFigures};
use penstock_decide::explain::signals::{
    Change, FailureGroup, LinkSignals, Series, Setting, Signals,
};
use penstock_decide::failure_text::fingerprint;
use penstock_model::{
    Attempt, Bytes, Failure, LedgerEntry, LinkChange, LinkEvent, LinkId, LinkSample, MoverReport,
    Slots, Timestamp, TransferEvent, TransferId, VoName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Kinds of failure told apart on one link.
const FAILURES_MAX: usize = 100;
/// VOs told apart on one link.
const VOS_MAX: usize = 100;
/// Attempts whose begin is remembered.
const STARTS_MAX: usize = 100_000;

/// Sums of one link in one bin.
#[derive(Debug, Clone, Default)]
struct Bin {
    samples: u32,
    moved: u64,
    active: u64,
    limit: u64,
    queued: u64,
    unfed: u64,
    asked: u64,
    askers: u32,
    copies: CopySums,
}

impl Bin {
    /// Keeps what samples tell.
    fn forget_entries(&mut self) {
        *self = Bin {
            samples: self.samples,
            moved: self.moved,
            active: self.active,
            limit: self.limit,
            queued: self.queued,
            unfed: self.unfed,
            ..Bin::default()
        };
    }
}

/// By kind, in each bin.
type FailureCounts = BTreeMap<FailureGroup, Vec<f64>>;

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailedStep {
    /// An attempt to move a file.
    Attempt,
    /// A recall from tape, or waiting for a file to be on tape.
    TapeCall,
}

/// The fold.
#[derive(Debug, Default)]
pub struct RecordSignals {
    begin: Timestamp,
    bin_seconds: u32,
    bins: usize,
    links: BTreeMap<LinkId, Vec<Bin>>,
    failures: BTreeMap<LinkId, FailureCounts>,
    tape_failures: BTreeMap<LinkId, FailureCounts>,
    vos: BTreeMap<LinkId, BTreeSet<VoName>>,
    open: BTreeMap<(TransferId, Attempt), OpenAttempt>,
    submissions: BTreeMap<LinkId, Vec<f64>>,
    dispatches: Vec<f64>,
    is_sampled: Vec<bool>,
    changes: Vec<Change>,
    /// From this time on all samples and entries are taken.
    samples_since: Timestamp,
    entries_since: Timestamp,
}

/// An attempt that has not ended.
#[derive(Debug, Clone, Copy)]
struct OpenAttempt {
    started: Timestamp,
    /// When both ends had been looked at: until then its slot moves nothing.
    prepared: Option<Timestamp>,
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
            ..RecordSignals::default()
        }
    }

    /// Says that samples before this time are left out: what they would tell is unknown.
    pub fn samples_known_since(&mut self, at: Timestamp) {
        self.samples_since = at;
    }

    /// The same of entries of the ledger.
    pub fn entries_known_since(&mut self, at: Timestamp) {
        self.entries_since = at;
    }

    /// The first bin that begins at this time or later.
    fn first_bin_since(&self, at: Timestamp) -> usize {
        let late_ms = u64::try_from(at.0.saturating_sub(self.begin.0)).unwrap_or(0);
        let bin = late_ms.div_ceil(u64::from(self.bin_seconds) * 1000);
        usize::try_from(bin).map_or(self.bins, |bin| bin.min(self.bins))
    }

    fn bin_of(&self, at: Timestamp) -> Option<usize> {
        Signals::unknown(self.begin, self.bin_seconds, self.bins).bin_of(at)
    }

    fn bin(&mut self, link: &LinkId, at: Timestamp) -> Option<&mut Bin> {
        let bin = self.bin_of(at)?;
        let bins = self.bins;
        let of_link = self
            .links
            .entry(link.clone())
            .or_insert_with(|| vec![Bin::default(); bins]);
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
        let (Slots(active), Slots(limit)) = (sample.active, sample.limit);
        bin.samples += 1;
        bin.moved = bin.moved.saturating_add(sample.moved.0);
        bin.active += u64::from(active);
        bin.limit += u64::from(limit);
        bin.queued = bin.queued.saturating_add(sample.queued);
        bin.unfed += if sample.queued > 0 {
            u64::from(limit.saturating_sub(active))
        } else {
            0
        };
    }

    /// Takes an entry of the ledger; `link` is that of its transfer.
    pub fn take_entry(&mut self, entry: &LedgerEntry, link: &LinkId) {
        let (at, transfer) = (entry.at, entry.transfer);
        match &entry.event {
            TransferEvent::Submitted => {
                let bins = self.bins;
                if let Some(bin) = self.bin_of(at) {
                    self.submissions
                        .entry(link.clone())
                        .or_insert_with(|| vec![0.0; bins])[bin] += 1.0;
                }
            }
            TransferEvent::Started { attempt, .. } => {
                if self.open.len() < STARTS_MAX {
                    let open = OpenAttempt {
                        started: at,
                        prepared: None,
                    };
                    self.open.insert((transfer, *attempt), open);
                }
                if let Some(bin) = self.bin_of(at) {
                    self.dispatches[bin] += 1.0;
                }
            }
            TransferEvent::Prepared { attempt, .. } => {
                if let Some(open) = self.open.get_mut(&(transfer, *attempt)) {
                    open.prepared = Some(at);
                }
            }
            TransferEvent::Landed {
                attempt,
                size,
                report,
                ..
            } => {
                let open = self.open.remove(&(transfer, *attempt));
                let preparation = open.and_then(|open| Some(open.prepared?.since(open.started)));
                self.landed((link, at), *size, report, preparation);
            }
            TransferEvent::AttemptFailed {
                attempt, failure, ..
            } => {
                self.open.remove(&(transfer, *attempt));
                self.failed(link, at, failure, FailedStep::Attempt);
            }
            TransferEvent::StageFailed { failure, .. }
            | TransferEvent::ArchiveFailed { failure } => {
                self.failed(link, at, failure, FailedStep::TapeCall);
            }
            TransferEvent::AttemptLost { attempt, .. } => {
                self.open.remove(&(transfer, *attempt));
            }
            TransferEvent::Canceled { .. } => {
                let attempts = (transfer, Attempt(0))..=(transfer, Attempt(u32::MAX));
                let canceled: Vec<_> = self.open.range(attempts).map(|(of, _)| *of).collect();
                for of in canceled {
                    self.open.remove(&of);
                }
            }
            TransferEvent::Chosen { .. }
            | TransferEvent::StageRequested { .. }
            | TransferEvent::Staged { .. }
            | TransferEvent::NotNeeded
            | TransferEvent::Archived
            | TransferEvent::Expired { .. }
            | TransferEvent::Refused { .. } => {}
        }
    }

    fn failed(&mut self, link: &LinkId, at: Timestamp, failure: &Failure, step: FailedStep) {
        // The link is known from now on, also when no sample met a transfer of it.
        let is_within = self.bin(link, at).is_some();
        let Some(bin) = self.bin_of(at).filter(|_| is_within) else {
            return;
        };
        let (side, phase) = (failure.side, failure.phase);
        let group = FailureGroup::new(side, phase, failure.errno, &fingerprint(failure));
        let of_step = match step {
            FailedStep::Attempt => &mut self.failures,
            FailedStep::TapeCall => &mut self.tape_failures,
        };
        let of_link = of_step.entry(link.clone()).or_default();
        if of_link.len() < FAILURES_MAX || of_link.contains_key(&group) {
            of_link.entry(group).or_insert_with(|| vec![0.0; self.bins])[bin] += 1.0;
        }
    }

    /// `preparation`: from its start until both ends had been looked at, where that is known.
    fn landed(
        &mut self,
        (link, at): (&LinkId, Timestamp),
        size: Bytes,
        report: &MoverReport,
        preparation: Option<Duration>,
    ) {
        let Some(bin) = self.bin(link, at) else {
            return;
        };
        let stages = report.stages;
        let stages_us = [
            stages.source_read_us,
            stages.network_us,
            stages.write_us,
            stages.checksum_us,
            stages.commit_us,
        ];
        let idle = |preparation: Duration| {
            let us = u64::try_from(preparation.as_micros()).unwrap_or(u64::MAX);
            us.saturating_add(stages.wait_us)
                .saturating_add(stages.commit_us)
        };
        let streams = report.streams.as_ref();
        let tcp = report.tcp.as_ref();
        let tcp = tcp.filter(|tcp| tcp.busy_us > 0 && tcp.sent_segments > 0);
        bin.copies.add(&FinishedCopy {
            size: Some(size),
            overhead_us: preparation.map(idle),
            stages_us: stages_us.map(|us| Some(us).filter(|us| *us > 0)),
            streams: streams.map(|streams| streams.used),
            socket: tcp.map(|tcp| SocketFigures {
                sent_segments: tcp.sent_segments.into(),
                retransmitted_segments: tcp.retransmitted_segments.into(),
                busy_us: tcp.busy_us,
                receiver_limited_us: tcp.receiver_limited_us,
                buffer_limited_us: tcp.send_buffer_limited_us,
                rtt_us: tcp.rtt_us.into(),
                rtt_min_us: tcp.min_rtt_us.into(),
            }),
        });
        if let Some(asked) = streams.and_then(|streams| streams.asked) {
            bin.asked += u64::from(asked);
            bin.askers += 1;
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
            who: "the transfer service".to_owned(),
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

    /// The links of which something was taken.
    pub fn links(&self) -> impl Iterator<Item = &LinkId> {
        self.links.keys()
    }

    /// What was taken.
    pub fn finish(mut self) -> Signals {
        let unsampled = self.first_bin_since(self.samples_since);
        self.is_sampled[..unsampled].fill(false);
        let unread = self.first_bin_since(self.entries_since);
        let known = |values: Vec<f64>| {
            let values = values.into_iter().enumerate();
            Series(
                values
                    .map(|(bin, value)| (bin >= unread).then_some(value))
                    .collect(),
            )
        };
        let mut signals = Signals::unknown(self.begin, self.bin_seconds, self.bins);
        self.changes.sort_by_key(|change| change.at);
        signals.changes = std::mem::take(&mut self.changes);
        for (link, mut bins) in std::mem::take(&mut self.links) {
            bins[..unread].iter_mut().for_each(Bin::forget_entries);
            let mut of_link = link_signals(&bins, &self.is_sampled, self.bin_seconds);
            let files = bins.iter().map(|bin| f64::from(bin.copies.files));
            of_link.finished_files = known(files.collect());
            let series = |counts: Option<FailureCounts>| {
                let counts = counts.unwrap_or_default().into_iter();
                counts
                    .map(|(group, attempts)| (group, known(attempts)))
                    .collect()
            };
            of_link.failures = series(self.failures.remove(&link));
            of_link.tape_failures = series(self.tape_failures.remove(&link));
            of_link.vos = self.vos.remove(&link).unwrap_or_default();
            signals.links.insert(link, of_link);
        }
        let submissions = self.submissions.into_iter();
        signals.service.submissions = submissions
            .map(|(link, files)| (link, known(files)))
            .collect();
        signals.service.dispatches = known(self.dispatches);
        signals.service.slots_used = signals
            .links
            .values()
            .map(|link| link.active.clone())
            .reduce(|sum, active| sum.plus(&active))
            .unwrap_or_default();
        signals
    }
}

/// A link without a sample in a bin in which others have one had no work; where no link has one, nothing is known.
fn link_signals(bins: &[Bin], is_sampled: &[bool], bin_seconds: u32) -> LinkSignals {
    let seconds = f64::from(bin_seconds);
    let (samples, limits) = bins.iter().fold((0u64, 0u64), |(samples, limits), bin| {
        (samples + u64::from(bin.samples), limits + bin.limit)
    });
    let usual_limit = if samples > 0 {
        limits as f64 / samples as f64
    } else {
        0.0
    };
    let sampled = |value: &dyn Fn(&Bin) -> f64| {
        let known = bins
            .iter()
            .zip(is_sampled)
            .map(|(bin, known)| known.then(|| value(bin)));
        Series(known.collect())
    };
    let asked = |bin: &Bin| (bin.askers > 0).then(|| bin.asked as f64 / f64::from(bin.askers));
    let mut link = LinkSignals {
        copied_bytes: sampled(&|bin| bin.moved as f64),
        active: sampled(&|bin| bin.active as f64 / seconds),
        limit: sampled(&|bin| {
            let idle = (seconds - f64::from(bin.samples)).max(0.0);
            (bin.limit as f64 + idle * usual_limit) / f64::from(bin.samples).max(seconds)
        }),
        queued: sampled(&|bin| bin.queued as f64 / seconds),
        unfed: sampled(&|bin| bin.unfed as f64 / seconds),
        streams_asked: Series(bins.iter().map(asked).collect()),
        ..LinkSignals::default()
    };
    let copies: Vec<&CopySums> = bins.iter().map(|bin| &bin.copies).collect();
    copy_sums::tell(&mut link, &copies);
    link
}
