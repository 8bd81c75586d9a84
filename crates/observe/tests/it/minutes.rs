//! Minutes tell the same as the samples and entries of their time, in fewer rows.

use crate::stories::{self, START, Story};
use penstock_decide::explain::PopulationChoice;
use penstock_decide::explain::signals::Series;
use penstock_decide::minute_meter::{MinuteMeter, Standings, TransferGroup};
use penstock_model::{
    Activity, BanChange, ChecksumAlgorithm, FileUrl, JobId, LedgerEntry, LinkChange, LinkId,
    LinkSample, MinuteKey, MinuteRow, MinuteSamples, MinuteSums, SettingChange, StageClocks,
    StorageId, TcpSummary, Timestamp, TransferEvent, TransferId, TransferRequest, VoName,
};
use penstock_observe::explanations::reading::{ExplainWindow, ExplainedWindow, read_record};
use penstock_observe::follow::RecordError;
use penstock_observe::{MemoryRecord, Record};
use std::sync::atomic::{AtomicUsize, Ordering};

const MINUTES: i64 = 120;
const MINUTE_MS: i64 = 60_000;

/// Counts the rows that are read.
#[derive(Default)]
struct CountedRecord {
    record: MemoryRecord,
    samples: AtomicUsize,
    entries: AtomicUsize,
    minutes: AtomicUsize,
}

impl CountedRecord {
    /// Samples, entries and minutes.
    fn read(&self) -> (usize, usize, usize) {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (
            read(&self.samples),
            read(&self.entries),
            read(&self.minutes),
        )
    }
}

fn counted<T>(rows: Vec<T>, count: &AtomicUsize) -> Vec<T> {
    count.fetch_add(rows.len(), Ordering::Relaxed);
    rows
}

impl Record for CountedRecord {
    fn last_sequence(&self) -> Result<u64, RecordError> {
        self.record.last_sequence()
    }

    fn entries_after(&self, sequence: u64, limit: usize) -> Result<Vec<LedgerEntry>, RecordError> {
        let rows = self.record.entries_after(sequence, limit)?;
        // Looking for a time reads entries one by one.
        Ok(match limit {
            1 => rows,
            _ => counted(rows, &self.entries),
        })
    }

    fn entries_of(&self, of: TransferId, limit: usize) -> Result<Vec<LedgerEntry>, RecordError> {
        self.record.entries_of(of, limit)
    }

    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, RecordError> {
        let rows = self.record.samples_between(from, to)?;
        Ok(counted(rows, &self.samples))
    }

    fn minutes_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<MinuteSamples>, RecordError> {
        let rows = self.record.minutes_between(from, to)?;
        Ok(counted(rows, &self.minutes))
    }

    fn transfer_request(&self, id: TransferId) -> Result<Option<TransferRequest>, RecordError> {
        self.record.transfer_request(id)
    }

    fn job_vo(&self, job: JobId) -> Result<Option<VoName>, RecordError> {
        self.record.job_vo(job)
    }

    fn link_changes(
        &self,
        link: &LinkId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<LinkChange>, RecordError> {
        self.record.link_changes(link, from, to, limit)
    }

    fn setting_changes(&self, limit: usize) -> Result<Vec<SettingChange>, RecordError> {
        self.record.setting_changes(limit)
    }

    fn ban_changes(&self, limit: usize) -> Result<Vec<BanChange>, RecordError> {
        self.record.ban_changes(limit)
    }
}

fn link_of(transfer: u64) -> LinkId {
    stories::link(&format!("s{}", transfer % 3), "d")
}

/// Two hours of three links, of which one stands still for a while, and another fails.
fn two_hours() -> Story {
    let mut story = Story::default();
    for second in 1..=MINUTES * 60 {
        let end = second * 1000;
        let transfer = second as u64;
        let link = link_of(transfer);
        let is_quiet = transfer % 3 == 1 && (1200..2400).contains(&second);
        let moved = 100_000_000 + 1000 * transfer;
        if !is_quiet {
            story.tell(end - 950, transfer, TransferEvent::Submitted);
            story.tell(end - 900, transfer, stories::started(1));
            story.tell(end - 700, transfer, stories::prepared(1));
            let report = penstock_model::MoverReport {
                stages: StageClocks {
                    wait_us: 1_000,
                    network_us: 400_000 + transfer,
                    commit_us: 5_000,
                    ..StageClocks::default()
                },
                tcp: Some(TcpSummary {
                    sent_segments: 70_000,
                    retransmitted_segments: (second % 7) as u32,
                    busy_us: 300_000,
                    rtt_us: 20_000,
                    min_rtt_us: 18_000,
                    ..TcpSummary::default()
                }),
                ..Default::default()
            };
            let detail = format!("no space left for file {transfer}");
            let event = match transfer % 3 == 2 && second > 3600 {
                true if second % 2 == 0 => stories::failed_on_disk(1, moved),
                true => stories::failed(1, &detail, None),
                false => stories::landed(1, moved, report),
            };
            story.tell(end - 1, transfer, event);
        }
        story.sample(end, link, moved, (1, 2, transfer % 5));
    }
    story
}

/// The minutes of a part of a story, as a transfer service counts them that leads from its begin to its end.
fn counted_minutes(story: &Story, from: Timestamp, to: Timestamp) -> Vec<MinuteSamples> {
    let mut meter = MinuteMeter::new(from);
    let entries = story.entries.iter();
    let mut entries = entries
        .filter(|entry| from <= entry.at && entry.at < to)
        .peekable();
    let samples = story.samples.iter();
    for sample in samples.filter(|sample| from < sample.at && sample.at <= to) {
        while let Some(entry) = entries.next_if(|entry| entry.at < sample.at) {
            let group = TransferGroup {
                link: link_of(entry.transfer.0),
                vo: VoName::new("atlas"),
                activity: Activity::new("default"),
            };
            match &entry.event {
                TransferEvent::Submitted => meter.take_submission(entry.at, &group),
                event => meter.take_event(entry.at, entry.transfer, &group, event),
            }
        }
        let samples = std::slice::from_ref(sample);
        meter.take_second(sample.at, samples, &Standings::default());
    }
    meter.end(Timestamp(to.0 - 1))
}

fn at_minute(minute: i64) -> Timestamp {
    Timestamp(START + minute * MINUTE_MS)
}

/// What was asked for, as far as anything depends on it here.
fn request(id: u64) -> TransferRequest {
    let link = link_of(id);
    let url = |storage: &StorageId| FileUrl::parse(&format!("{storage}/f{id}")).expect("a URL");
    TransferRequest {
        id: TransferId(id),
        index: 0,
        source: url(&link.source),
        destination: url(&link.destination),
        size: None,
        checksum: None,
        checksum_algorithm: ChecksumAlgorithm::Adler32,
        activity: Activity::new("default"),
        scitag: None,
        metadata: Default::default(),
        source_credential: None,
        destination_credential: None,
        source_query: None,
        destination_query: None,
        tape: None,
    }
}

fn record_of(story: &Story, minutes: &[MinuteSamples]) -> CountedRecord {
    let record = CountedRecord::default();
    let memory = &record.record;
    memory.put_vo(JobId(uuid::Uuid::nil()), VoName::new("atlas"));
    for entry in &story.entries {
        memory.put_request(request(entry.transfer.0));
        memory.push_entry(entry.clone());
    }
    let samples = story.samples.iter().cloned();
    samples.for_each(|sample| memory.push_sample(sample));
    let minutes = minutes.iter().cloned();
    minutes.for_each(|minute| memory.push_minute(minute));
    record
}

/// Without what only minutes tell.
fn explained(record: &dyn Record, resolution_seconds: u32) -> ExplainedWindow {
    let mut read = explained_whole(record, resolution_seconds);
    for link in read.signals.links.values_mut() {
        (link.stalled, link.progress_age_seconds) = Default::default();
    }
    read
}

fn explained_whole(record: &dyn Record, resolution_seconds: u32) -> ExplainedWindow {
    let to = Timestamp(START + MINUTES * MINUTE_MS);
    let window = ExplainWindow::new(Timestamp(START), to, Some(resolution_seconds));
    read_record(record, window, &PopulationChoice::Links).expect("readable")
}

/// How many transfers have no answer of an end yet is in the entries of seconds only.
fn without_preparing(mut window: ExplainedWindow) -> ExplainedWindow {
    for link in window.signals.links.values_mut() {
        link.preparing = Series::default();
    }
    window
}

#[test]
fn a_window_is_read_from_its_minutes_alone_and_tells_what_its_seconds_tell() {
    let story = two_hours();
    let by_seconds = record_of(&story, &[]);
    let minutes = counted_minutes(&story, at_minute(0), at_minute(MINUTES));
    let by_minutes = record_of(&story, &minutes);
    for resolution_seconds in [60, 300] {
        let expected = without_preparing(explained(&by_seconds, resolution_seconds));
        assert_eq!(expected.signals.links.len(), 3);
        let told = without_preparing(explained(&by_minutes, resolution_seconds));
        assert_eq!(told, expected);
    }
    assert_eq!(by_minutes.read(), (0, 0, 2 * MINUTES as usize));
    let finer = explained(&by_minutes, 10);
    assert_eq!(finer, explained(&by_seconds, 10));
}

#[test]
fn what_minutes_leave_out_is_read_second_by_second() {
    let story = two_hours();
    let mut minutes = counted_minutes(&story, at_minute(0), at_minute(MINUTES - 1));
    // Of one the count began late, one was lost, and the last is not over yet.
    let late = Timestamp(at_minute(60).0 + 20_000);
    minutes[60] = counted_minutes(&story, late, at_minute(61)).remove(0);
    minutes.remove(30);
    let record = record_of(&story, &minutes);
    assert_eq!(
        without_preparing(explained(&record, 60)),
        without_preparing(explained(&record_of(&story, &[]), 60))
    );
    let (samples, _, read) = record.read();
    assert_eq!((samples, read), (60 + 20 + 60, minutes.len()));
}

/// A day of 300 links that are always busy, made when it is read.
struct BusyDay {
    minutes: AtomicUsize,
    seconds_asked_for: AtomicUsize,
}

const BUSY_LINKS: usize = 300;
const DAY_MINUTES: i64 = 1440;

fn busy_minute(from: Timestamp) -> MinuteSamples {
    let row = |number: usize| {
        let mut sums = MinuteSums {
            samples: 60,
            moved_bytes: 6_000_000_000,
            started: 30,
            active: 600,
            active_max: 12,
            limit: 1200,
            limit_max: 20,
            queued: 6000,
            queued_max: 120,
            ..MinuteSums::default()
        };
        sums.copies.files = 30;
        MinuteRow {
            key: MinuteKey::Link(stories::link(&format!("s{number}"), "d")),
            sums,
            failures: Vec::new(),
        }
    };
    MinuteSamples {
        from,
        to: Timestamp(from.0 + MINUTE_MS),
        rows: (0..BUSY_LINKS).map(row).collect(),
    }
}

impl Record for BusyDay {
    fn last_sequence(&self) -> Result<u64, RecordError> {
        Ok(0)
    }

    fn entries_after(&self, _: u64, _: usize) -> Result<Vec<LedgerEntry>, RecordError> {
        Ok(Vec::new())
    }

    fn entries_of(&self, _: TransferId, _: usize) -> Result<Vec<LedgerEntry>, RecordError> {
        Ok(Vec::new())
    }

    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, RecordError> {
        let seconds = to.since(from).as_secs() as usize;
        self.seconds_asked_for.fetch_add(seconds, Ordering::Relaxed);
        Ok(Vec::new())
    }

    fn minutes_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<MinuteSamples>, RecordError> {
        let begins = (from.0..to.0).step_by(MINUTE_MS as usize);
        let minutes = begins.map(|at| busy_minute(Timestamp(at))).collect();
        Ok(counted(minutes, &self.minutes))
    }

    fn transfer_request(&self, _: TransferId) -> Result<Option<TransferRequest>, RecordError> {
        Ok(None)
    }

    fn job_vo(&self, _: JobId) -> Result<Option<VoName>, RecordError> {
        Ok(None)
    }

    fn link_changes(
        &self,
        _: &LinkId,
        _: Timestamp,
        _: Timestamp,
        _: usize,
    ) -> Result<Vec<LinkChange>, RecordError> {
        Ok(Vec::new())
    }

    fn setting_changes(&self, _: usize) -> Result<Vec<SettingChange>, RecordError> {
        Ok(Vec::new())
    }

    fn ban_changes(&self, _: usize) -> Result<Vec<BanChange>, RecordError> {
        Ok(Vec::new())
    }
}

#[test]
fn a_day_of_three_hundred_busy_links_is_1440_rows_and_none_of_it_is_left_out() {
    let record = BusyDay {
        minutes: AtomicUsize::new(0),
        seconds_asked_for: AtomicUsize::new(0),
    };
    let window = ExplainWindow::new(at_minute(0), at_minute(DAY_MINUTES), None);
    let read = read_record(&record, window, &PopulationChoice::Links).expect("readable");
    assert_eq!(record.minutes.into_inner(), DAY_MINUTES as usize);
    assert_eq!(record.seconds_asked_for.into_inner(), 0);
    assert_eq!((read.links_left_out, read.complete_since), (0, None));
    assert_eq!(read.signals.links.len(), BUSY_LINKS);
    let link = read.signals.links.values().next().expect("one");
    assert_eq!(link.copied_bytes.at(700), Some(6e9));
    assert_eq!(link.progress_age_seconds.at(700), Some(0.0));
    assert_eq!(
        (link.active.at(700), link.limit.at(700)),
        (Some(10.0), Some(20.0))
    );
}
