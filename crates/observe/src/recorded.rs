//! A window of a record as a simulator needs it to replay it: when each transfer was asked for, what it moved, between
//! which storage elements and in which time, and how many might run.
//!
//! A fold over rows, wherever they are from: the record of a transfer service ([`read_journal`]) or what was taken in of any
//! other system ([`read_store`]). Only copies that brought their file are replayed; failed attempts are counted.

use crate::ended_copies::{EndedCopy, RecordView, each_attempt_stored};
use crate::follow::{Record, RecordError, SAMPLES_AT_ONCE, latest_entries, sequence_before};
use crate::ledger_rows::attempts_between;
use crate::store::{Reader, StoreError};
use penstock_decide::explain::PopulationChoice;
use penstock_model::observation::{Attempt, Outcome, Sample, SubjectKind, Text};
use penstock_model::{
    ANY, LinkId, PoolName, Rate, Setting, SettingChange, SettingKey, Side, Slots, StorageId,
    TimeWindow, Timestamp, VoName,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Transfers of a window at most: of more, those that ended last.
pub const TRANSFERS_MAX: usize = 20_000;
/// Links of a window at most; transfers of further ones are passed over.
pub const LINKS_MAX: usize = 500;
/// Entries of a ledger that are read at most; of more, the latest.
const ENTRIES_MAX: u64 = 2_000_000;
/// Samples of links that are read at most; beyond, the last limits are taken to stay.
const SAMPLES_MAX: usize = 4_000_000;
/// Changes of settings that are read at most; of more, the latest.
const CHANGES_MAX: usize = 1_000;
/// How long after the window a transfer that started in it may end.
const END_AFTER: Duration = Duration::from_secs(86_400);
/// Limits of one link that are remembered: in a longer window, one for each five-hundredth part of it.
const LIMITS_MAX: i64 = 500;
/// Samples that are further apart do not tell when a limit was set between them.
const SAMPLE_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Pools told apart of one storage element.
const POOLS_MAX: usize = 1_000;
/// Transfers that failed and may arrive later.
const RETRIED_MAX: usize = 100_000;
/// What is needed of an attempt beside what every fold reads.
const FURTHER_COLUMNS: [&str; 2] = ["job", "transfer"];

/// A transfer that brought its file.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedTransfer {
    /// Its link, by its place in [`RecordedWindow::links`].
    pub link: usize,
    /// On whose behalf, where that is told.
    pub vo: Option<VoName>,
    /// When it was asked for; where that is not told, when its first known attempt started.
    pub submitted: Timestamp,
    /// When the attempt started that brought the file.
    pub started: Timestamp,
    pub ended: Timestamp,
    /// Bytes of the file.
    pub bytes: u64,
    /// The time of the attempt in which no bytes can move: looking at both ends and committing the file. Unknown: nothing.
    pub overhead: Duration,
    /// The time that the attempt spent reading at the source, with the network, and writing at the destination; `None`: not
    /// told.
    pub stages: Option<[Duration; 3]>,
}

/// A link of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedLink {
    pub link: LinkId,
    /// How many might run, from a time on; in order. Empty: not told.
    pub limits: Vec<(Timestamp, u32)>,
    /// Attempts that ended.
    pub attempts: u64,
    /// Of these, those that failed by a fault of the source, and by any other fault.
    pub failures: (u64, u64),
}

#[derive(Debug, Clone, PartialEq)]
pub struct RecordedWindow {
    /// From when on transfers were asked for, at most from the time that was asked for, and when the last one ended.
    pub window: TimeWindow,
    /// Between which storage elements.
    pub links: Vec<RecordedLink>,
    /// By the time at which they were asked for.
    pub transfers: Vec<RecordedTransfer>,
    /// Pools that took files, by storage element, where that is told.
    pub pools: BTreeMap<StorageId, BTreeSet<PoolName>>,
    /// The window begins later than was asked for: there are more transfers, or entries of the record, than are read.
    pub is_shortened: bool,
    /// Transfers on links beyond [`LINKS_MAX`].
    pub passed_over: u64,
}

/// Reads a window of the record of a transfer service.
pub fn read_journal(
    record: &dyn Record,
    window: TimeWindow,
    wanted: &PopulationChoice,
) -> Result<RecordedWindow, RecordError> {
    let view = RecordView::default();
    let mut fold = WindowFold::new(window, &view, wanted);
    let last = record.last_sequence()?;
    let begin = sequence_before(record, last, Timestamp(window.from.0 - 1))?;
    let end = sequence_before(record, last, window.to + END_AFTER)?;
    let (after, _) = latest_entries(record, begin, end, ENTRIES_MAX)?;
    if after > begin {
        let first = record.entries_after(after, 1)?;
        fold.begin_at(first.first().map_or(window.from, |entry| entry.at));
    }
    let source: Text = "".into();
    attempts_between(record, &source, after, end, |row| fold.take_attempt(&row))?;
    let window = fold.narrow();
    let (mut from, mut samples) = (window.from, 0);
    while from < window.to && samples < SAMPLES_MAX {
        let to = (from + SAMPLES_AT_ONCE).min(window.to);
        let read = record.samples_between(from, to)?;
        samples += read.len();
        for sample in read {
            fold.take_limit(&sample.link, sample.at, sample.limit.0);
        }
        from = to;
    }
    Ok(fold.finish())
}

/// Reads a window of rows, as one view has it.
pub fn read_store(
    reader: &mut Reader,
    window: TimeWindow,
    view: &RecordView,
    wanted: &PopulationChoice,
) -> Result<RecordedWindow, StoreError> {
    let mut fold = WindowFold::new(window, view, wanted);
    let with_ends = TimeWindow {
        from: window.from,
        to: window.to + END_AFTER,
    };
    each_attempt_stored(reader, with_ends, &FURTHER_COLUMNS, |row| {
        fold.take_attempt(row);
    })?;
    let window = fold.narrow();
    reader.each(window, &[], |row: &Sample| fold.take_sample(row))?;
    Ok(fold.finish())
}

/// How many transfers may run at a storage element, over all its links; `None`: not said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageSlotLimits {
    /// Out of it.
    pub outbound: Option<Slots>,
    /// Into it.
    pub inbound: Option<Slots>,
}

/// The limits of storage elements that operators had set at a time. Of the latest changes only.
pub fn storage_limits(
    record: &dyn Record,
    at: Timestamp,
) -> Result<BTreeMap<StorageId, StorageSlotLimits>, RecordError> {
    let mut known = BTreeMap::new();
    for change in record.setting_changes(CHANGES_MAX)? {
        let (SettingKey::Storage(storage), true) = (change.key, change.at < at) else {
            continue;
        };
        // The newest comes first.
        let limits = match change.after {
            Some(Setting::Storage(rule)) => StorageSlotLimits {
                outbound: rule.outbound_max,
                inbound: rule.inbound_max,
            },
            _ => StorageSlotLimits::default(),
        };
        known.entry(storage).or_insert(limits);
    }
    Ok(known)
}

/// A limit of a rate that operators had set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// What may be moved per second.
    pub rate: Rate,
    /// Of a link rule by its name, or into or out of a storage element; for people.
    pub place: String,
}

/// The rate limits of links and storage elements that held at some time of a window on links of it. Of the latest changes
/// only.
pub fn rate_limits(
    record: &dyn Record,
    window: TimeWindow,
    links: &[RecordedLink],
) -> Result<Vec<RateLimit>, RecordError> {
    let mut held: Vec<Setting> = Vec::new();
    let mut oldest: BTreeMap<SettingKey, SettingChange> = BTreeMap::new();
    // The newest comes first: what was set held until the change after it.
    for change in record.setting_changes(CHANGES_MAX)? {
        let until = oldest.get(&change.key).map(|later| later.at);
        if change.at < window.to && until.is_none_or(|until| until > window.from) {
            held.extend(change.after.clone());
        }
        oldest.insert(change.key.clone(), change);
    }
    let before = oldest
        .into_values()
        .filter(|change| change.at > window.from);
    held.extend(before.filter_map(|change| change.before));
    let links: Vec<&LinkId> = links.iter().map(|link| &link.link).collect();
    let limits = held.iter().flat_map(|setting| limits_of(setting, &links));
    Ok(limits.collect())
}

/// The rate limits that a setting lays on some of these links.
fn limits_of(setting: &Setting, links: &[&LinkId]) -> Vec<RateLimit> {
    let is = |wanted: &StorageId, id: &StorageId| wanted.as_str() == ANY || wanted == id;
    let any = |of: &dyn Fn(&LinkId) -> bool| links.iter().any(|link| of(link));
    let limit = |rate: Option<Rate>, place: String, is_used: bool| {
        let rate = rate.filter(|_| is_used)?;
        Some(RateLimit { rate, place })
    };
    let limits = match setting {
        Setting::Link(rule) => {
            let ends = &rule.ends;
            let is_used = any(&|link| {
                is(&ends.source, &link.source) && is(&ends.destination, &link.destination)
            });
            let place = format!("of the link rule {}", rule.name);
            [limit(rule.rate_max, place, is_used), None]
        }
        Setting::Storage(rule) => {
            let id = &rule.storage;
            let (into, out_of) = (format!("into {id}"), format!("out of {id}"));
            let is_into = any(&|link| is(id, &link.destination));
            let is_out_of = any(&|link| is(id, &link.source));
            [
                limit(rule.inbound_rate_max, into, is_into),
                limit(rule.outbound_rate_max, out_of, is_out_of),
            ]
        }
        _ => [None, None],
    };
    limits.into_iter().flatten().collect()
}

/// The fold, one row at a time.
#[derive(Debug)]
pub struct WindowFold<'a> {
    window: TimeWindow,
    view: &'a RecordView,
    wanted: &'a PopulationChoice,
    links: Vec<RecordedLink>,
    numbers: BTreeMap<LinkId, usize>,
    transfers: VecDeque<RecordedTransfer>,
    /// Of transfers that failed: when they were asked for.
    retried: BTreeMap<(Option<Text>, Text), Timestamp>,
    pools: BTreeMap<StorageId, BTreeSet<PoolName>>,
    /// When links were sampled last.
    sampled: BTreeMap<usize, Timestamp>,
    is_shortened: bool,
    passed_over: u64,
}

impl<'a> WindowFold<'a> {
    /// Will take what one view tells of a window, of links that are wanted.
    pub fn new(
        window: TimeWindow,
        view: &'a RecordView,
        wanted: &'a PopulationChoice,
    ) -> WindowFold<'a> {
        WindowFold {
            window,
            view,
            wanted,
            links: Vec::new(),
            numbers: BTreeMap::new(),
            transfers: VecDeque::new(),
            retried: BTreeMap::new(),
            pools: BTreeMap::new(),
            sampled: BTreeMap::new(),
            is_shortened: false,
            passed_over: 0,
        }
    }

    fn begin_at(&mut self, from: Timestamp) {
        self.is_shortened = true;
        self.window.from = self.window.from.max(from);
    }

    fn link(&mut self, link: &LinkId) -> Option<usize> {
        if let Some(number) = self.numbers.get(link) {
            return Some(*number);
        }
        if self.links.len() >= LINKS_MAX {
            return None;
        }
        let number = self.links.len();
        self.links.push(RecordedLink {
            link: link.clone(),
            limits: Vec::new(),
            attempts: 0,
            failures: (0, 0),
        });
        self.numbers.insert(link.clone(), number);
        Some(number)
    }

    /// Takes an attempt that ended.
    pub fn take_attempt(&mut self, row: &Attempt) {
        let Some(copy) = EndedCopy::of(row, self.view) else {
            return;
        };
        let (started, ended) = (copy.started, copy.ended);
        if started < self.window.from || started >= self.window.to {
            return;
        }
        let link = copy.link();
        if !self.wanted.may_have(&link) {
            return;
        }
        let Some(number) = self.link(&link) else {
            self.passed_over += 1;
            return;
        };
        let of_link = &mut self.links[number];
        of_link.attempts += 1;
        let name = row.transfer.clone().map(|name| (row.job.clone(), name));
        match copy.outcome {
            Outcome::Success => {}
            Outcome::Failure => {
                match row.side {
                    Some(Side::Source) => of_link.failures.0 += 1,
                    _ => of_link.failures.1 += 1,
                }
                if let Some(name) = name.filter(|_| self.retried.len() < RETRIED_MAX) {
                    let asked = row.submitted.unwrap_or(started);
                    let known = self.retried.entry(name).or_insert(asked);
                    *known = asked.min(*known);
                }
                return;
            }
            Outcome::Abort => return,
        }
        let asked = name.and_then(|name| self.retried.remove(&name));
        let submitted = row.submitted.or(asked).unwrap_or(started).min(started);
        if let Some(pool) = &row.pool {
            let pools = self.pools.entry(link.destination).or_default();
            if pools.len() < POOLS_MAX {
                pools.insert(pool.clone());
            }
        }
        let bytes = row
            .file_bytes
            .or(row.bytes_moved)
            .map_or(0, |bytes| bytes.0);
        self.transfers.push_back(RecordedTransfer {
            link: number,
            vo: row.vo.clone(),
            submitted,
            started,
            ended,
            bytes,
            overhead: overhead(row),
            stages: stages(row),
        });
        if self.transfers.len() > TRANSFERS_MAX
            && let Some(dropped) = self.transfers.pop_front()
        {
            self.begin_at(dropped.ended);
        }
    }

    /// All attempts were taken: from now on the window is no longer than what they did. Samples of it are of use.
    pub fn narrow(&mut self) -> TimeWindow {
        let kept = |one: &&RecordedTransfer| one.started >= self.window.from;
        let begin = self.transfers.iter().filter(kept).map(|one| one.submitted);
        let end = self.transfers.iter().filter(kept).map(|one| one.ended);
        if let (Some(begin), Some(end)) = (begin.min(), end.max()) {
            self.window = TimeWindow {
                from: self.window.from.max(begin),
                to: end + Duration::from_millis(1),
            };
        }
        self.window
    }

    /// Takes what was sampled of a link.
    pub fn take_sample(&mut self, row: &Sample) {
        if row.subject_kind != SubjectKind::Link || row.view != self.view.view {
            return;
        }
        let (Some(source), Some(destination), Some(limit)) =
            (&row.source_host, &row.destination_host, row.limit)
        else {
            return;
        };
        let link = LinkId {
            source: StorageId::new(&**source),
            destination: StorageId::new(&**destination),
        };
        self.take_limit(&link, row.at, u32::try_from(limit).unwrap_or(u32::MAX));
    }

    fn take_limit(&mut self, link: &LinkId, at: Timestamp, limit: u32) {
        let Some(number) = self.numbers.get(link) else {
            return;
        };
        let step = (self.window.to.0 - self.window.from.0) / LIMITS_MAX;
        let (limits, before) = (
            &mut self.links[*number].limits,
            self.sampled.insert(*number, at),
        );
        // It was set at some time between two samples.
        let set = match before {
            Some(before) if at.since(before) <= SAMPLE_PAUSE_MAX => before + at.since(before) / 2,
            _ => at,
        };
        match limits.last() {
            Some((_, before)) if *before == limit => {}
            Some((since, _)) if set.0 < since.0.saturating_add(step) => {}
            _ => limits.push((set, limit)),
        }
    }

    /// What was taken.
    pub fn finish(self) -> RecordedWindow {
        let mut transfers: Vec<RecordedTransfer> = self.transfers.into();
        transfers.retain(|transfer| transfer.started >= self.window.from);
        transfers.sort_by_key(|transfer| (transfer.submitted, transfer.started, transfer.ended));
        RecordedWindow {
            window: self.window,
            links: self.links,
            transfers,
            pools: self.pools,
            is_shortened: self.is_shortened,
            passed_over: self.passed_over,
        }
    }
}

fn overhead(row: &Attempt) -> Duration {
    let parts = [row.prepare_us, row.commit_us];
    let us = parts.into_iter().flatten().fold(0, u64::saturating_add);
    Duration::from_micros(us)
}

fn stages(row: &Attempt) -> Option<[Duration; 3]> {
    let told = [row.source_read_us, row.network_us, row.write_us];
    told.iter()
        .any(Option::is_some)
        .then(|| told.map(|us| Duration::from_micros(us.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ended_copies::tests::{attempts_with_all_columns, stored};
    use crate::follow::MemoryRecord;
    use penstock_model::{Bytes, StorageRule, UserName};

    fn row(number: i64, change: impl Fn(&mut Attempt)) -> Attempt {
        let mut row = Attempt {
            at: Timestamp(1_000 * number + 900),
            transfer: Some(number.to_string().into()),
            source_host: Some("https://a".into()),
            destination_host: Some("https://b".into()),
            submitted: Some(Timestamp(500)),
            started: Some(Timestamp(1_000 * number)),
            file_bytes: Some(Bytes(7)),
            outcome: Some(Outcome::Success),
            ..Attempt::default()
        };
        change(&mut row);
        row
    }

    fn told(rows: &[Attempt], window: TimeWindow) -> RecordedWindow {
        let view = RecordView::default();
        let mut fold = WindowFold::new(window, &view, &PopulationChoice::Links);
        rows.iter().for_each(|row| fold.take_attempt(row));
        fold.narrow();
        fold.finish()
    }

    fn window(from: i64, to: i64) -> TimeWindow {
        TimeWindow {
            from: Timestamp(from),
            to: Timestamp(to),
        }
    }

    #[test]
    fn what_started_in_the_window_is_told_and_a_retry_keeps_the_time_of_its_submission() {
        let failed = row(2, |row| {
            row.outcome = Some(Outcome::Failure);
            row.side = Some(Side::Source);
        });
        let again = row(4, |row| {
            row.transfer = Some("2".into());
            row.submitted = None;
        });
        let rows = [
            row(1, |_| ()),
            failed,
            row(3, |row| row.submitted = None),
            again,
        ];
        let told = told(&rows, window(2_000, 10_000));
        let times: Vec<_> = told
            .transfers
            .iter()
            .map(|transfer| (transfer.submitted.0, transfer.started.0, transfer.ended.0))
            .collect();
        assert_eq!(times, [(500, 4_000, 4_900), (3_000, 3_000, 3_900)]);
        assert_eq!(told.window, window(2_000, 4_901));
        assert_eq!(
            (told.links[0].attempts, told.links[0].failures),
            (3, (1, 0))
        );
        assert!(!told.is_shortened);
    }

    #[test]
    fn rate_limits_are_those_that_held_in_a_window_on_links_of_it() {
        let record = MemoryRecord::new();
        let rule = |inbound: Option<u64>| {
            let storage = StorageId::new("https://b");
            Setting::Storage(StorageRule {
                inbound_rate_max: inbound.map(Rate),
                ..StorageRule::new(storage)
            })
        };
        for (at, before, after) in [(1_000, None, Some(5)), (5_000, Some(5), None)] {
            record.push_setting_change(SettingChange {
                at: Timestamp(at),
                user: UserName::new("root"),
                action: "set-se-config".into(),
                key: SettingKey::Storage(StorageId::new("https://b")),
                before: Some(rule(before)),
                after: Some(rule(after)),
            });
        }
        let told = |from: i64, to: i64, destination: &str| {
            let links = [RecordedLink {
                link: LinkId {
                    source: StorageId::new("https://a"),
                    destination: StorageId::new(destination),
                },
                limits: Vec::new(),
                attempts: 1,
                failures: (0, 0),
            }];
            let told = rate_limits(&record, window(from, to), &links).expect("in memory");
            let places = told.into_iter().map(|limit| (limit.rate.0, limit.place));
            places.collect::<Vec<_>>()
        };
        let limit = [(5, "into https://b".to_owned())];
        assert_eq!(told(0, 2_000, "https://b"), limit);
        assert_eq!(told(2_000, 3_000, "https://b"), limit);
        assert_eq!(told(4_000, 9_000, "https://b"), limit);
        assert_eq!(told(0, 1_000, "https://b"), []);
        assert_eq!(told(5_000, 9_000, "https://b"), []);
        assert_eq!(told(2_000, 3_000, "https://c"), []);
    }

    #[test]
    fn attempts_tell_the_same_through_a_store_as_without_one() {
        let rows = attempts_with_all_columns();
        let (_directory, mut reader) = stored(&rows);
        let (view, all) = (RecordView::default(), window(0, 1_000_000));
        let read = read_store(&mut reader, all, &view, &PopulationChoice::Links);
        assert_eq!(read.expect("readable"), told(&rows, all));
    }

    #[test]
    fn of_too_many_transfers_the_latest_are_told() {
        let rows: Vec<Attempt> = (0..TRANSFERS_MAX as i64 + 10)
            .map(|at| row(at, |_| ()))
            .collect();
        let told = told(&rows, window(0, i64::MAX / 2));
        assert!(told.is_shortened);
        assert_eq!(told.transfers.len(), TRANSFERS_MAX);
        assert_eq!(told.window.from, Timestamp(9_900));
    }

    #[test]
    fn of_limits_those_are_kept_that_differ_and_not_more_than_the_window_needs() {
        let view = RecordView::default();
        let mut fold = WindowFold::new(window(0, 1_000_000), &view, &PopulationChoice::Links);
        fold.take_attempt(&row(1, |_| ()));
        for at in 0..1_000 {
            fold.take_sample(&Sample {
                at: Timestamp(at * 1_000),
                subject_kind: SubjectKind::Link,
                source_host: Some("https://a".into()),
                destination_host: Some("https://b".into()),
                limit: Some(if at < 500 { 4 } else { at as u64 }),
                ..Sample::default()
            });
        }
        let limits = &fold.finish().links[0].limits;
        assert_eq!(limits[0], (Timestamp(0), 4));
        assert!((200..=300).contains(&limits.len()), "{}", limits.len());
    }
}
