//! The rate curve of a long window, from the minutes that are kept: a bounded number of steps, each the mean over the time
//! in it that was counted.
//!
//! It knows nothing of the samples of seconds, which [`crate::series`] shows for short windows.

use crate::follow::{Record, RecordError};
use crate::series::{LinkSeries, Snapshot};
use penstock_model::{LinkId, MinuteKey, MinuteSamples, MinuteSums, TimeWindow, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far back a curve may reach: forty days.
pub const CURVE_SECONDS_MAX: i64 = 40 * 86_400;
/// Steps of a curve at most.
pub const STEPS_MAX: i64 = 720;
/// Links told apart in one step; the bytes of further ones count only in the total.
const LINKS_PER_STEP_MAX: usize = 256;
/// Links of a curve that are shown one by one: those that moved most.
const LINKS_SHOWN_MAX: usize = 100;
/// Lengths of a step in seconds. All but the first divide or contain an hour, and the last one gives forty days in
/// fewer than [`STEPS_MAX`] steps.
const STEP_SECONDS: [i64; 9] = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400];
/// Minutes are read in pieces of this length, so that a long window needs no more memory than a short one.
const PIECE_MS: i64 = 6 * 3_600_000;
const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;
/// After so much time the minutes of an hour are all written.
const WRITTEN_AFTER_MS: i64 = 5 * MINUTE_MS;
/// Hours whose sums are remembered: forty days and one.
const HOURS_MAX: usize = 41 * 24;

/// The sums of one link in a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct LinkSums {
    moved_bytes: u64,
    active: u64,
    limit: u64,
    queued: u64,
    samples: u64,
}

impl LinkSums {
    fn add(&mut self, sums: &MinuteSums) {
        self.moved_bytes = self.moved_bytes.saturating_add(sums.moved_bytes);
        self.active = self.active.saturating_add(sums.active);
        self.limit = self.limit.saturating_add(sums.limit);
        self.queued = self.queued.saturating_add(sums.queued);
        self.samples = self.samples.saturating_add(sums.samples);
    }

    fn add_all(&mut self, other: &LinkSums) {
        self.moved_bytes = self.moved_bytes.saturating_add(other.moved_bytes);
        self.active = self.active.saturating_add(other.active);
        self.limit = self.limit.saturating_add(other.limit);
        self.queued = self.queued.saturating_add(other.queued);
        self.samples = self.samples.saturating_add(other.samples);
    }
}

/// What was counted in one step.
#[derive(Debug, Clone, Default, PartialEq)]
struct StepSums {
    /// Time of the step that was counted.
    counted_ms: i64,
    moved_bytes: u64,
    links: BTreeMap<LinkId, LinkSums>,
    /// When a process began to lead the service in it: it was started, or took over.
    starts: Vec<Timestamp>,
}

impl StepSums {
    fn take(&mut self, minute: &MinuteSamples) {
        self.counted_ms += (minute.to.0 - minute.from.0).clamp(0, MINUTE_MS);
        if minute.from.0.rem_euclid(MINUTE_MS) != 0 {
            self.starts.push(minute.from);
        }
        for row in &minute.rows {
            match &row.key {
                MinuteKey::Link(link) => {
                    self.moved_bytes = self.moved_bytes.saturating_add(row.sums.moved_bytes);
                    if let Some(sums) = self.of(link) {
                        sums.add(&row.sums);
                    }
                }
                MinuteKey::OtherLinks => {
                    self.moved_bytes = self.moved_bytes.saturating_add(row.sums.moved_bytes);
                }
                MinuteKey::VoOnLink(..)
                | MinuteKey::OtherVosOnLinks
                | MinuteKey::Activity(..)
                | MinuteKey::OtherActivities
                | MinuteKey::Service => {}
            }
        }
    }

    fn take_all(&mut self, other: &StepSums) {
        self.counted_ms += other.counted_ms;
        self.moved_bytes = self.moved_bytes.saturating_add(other.moved_bytes);
        self.starts.extend_from_slice(&other.starts);
        for (link, sums) in &other.links {
            if let Some(own) = self.of(link) {
                own.add_all(sums);
            }
        }
    }

    /// The sums of a link, unless it is one too many.
    fn of(&mut self, link: &LinkId) -> Option<&mut LinkSums> {
        if self.links.len() >= LINKS_PER_STEP_MAX && !self.links.contains_key(link) {
            return None;
        }
        Some(self.links.entry(link.clone()).or_default())
    }
}

/// The sums of hours that are over, so that the curve of a month is read from the record once.
#[derive(Debug, Default)]
pub struct HourSums {
    hours: BTreeMap<i64, Arc<StepSums>>,
}

impl HourSums {
    fn of(
        &mut self,
        record: &dyn Record,
        hour: i64,
        now: Timestamp,
    ) -> Result<Arc<StepSums>, RecordError> {
        if let Some(known) = self.hours.get(&hour) {
            return Ok(known.clone());
        }
        let from = hour * HOUR_MS;
        let mut sums = StepSums::default();
        for minute in record.minutes_between(Timestamp(from), Timestamp(from + HOUR_MS))? {
            sums.take(&minute);
        }
        let sums = Arc::new(sums);
        if from + HOUR_MS + WRITTEN_AFTER_MS <= now.0 {
            while self.hours.len() >= HOURS_MAX {
                self.hours.pop_first();
            }
            self.hours.insert(hour, sums.clone());
        }
        Ok(sums)
    }
}

/// The rate curve of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct RateCurve {
    /// Whole steps that contain the window.
    window: TimeWindow,
    step_seconds: i64,
    steps: Vec<StepSums>,
}

impl RateCurve {
    /// Reads the minutes of a window, at most [`CURVE_SECONDS_MAX`] of it. May read for seconds.
    pub fn read(
        record: &dyn Record,
        hours: &mut HourSums,
        window: TimeWindow,
        now: Timestamp,
    ) -> Result<RateCurve, RecordError> {
        let to = window.to.0.max(0);
        let from = window
            .from
            .0
            .clamp((to - CURVE_SECONDS_MAX * 1000).max(0), to);
        let step_seconds = step_for((to - from).div_euclid(1000));
        let step_ms = step_seconds * 1000;
        let begin = from.div_euclid(step_ms) * step_ms;
        let end = (to + step_ms - 1).div_euclid(step_ms) * step_ms;
        let length = usize::try_from((end - begin) / step_ms).unwrap_or(0);
        let mut steps = vec![StepSums::default(); length];
        let index =
            |at: i64| usize::try_from((at - begin).div_euclid(step_ms)).unwrap_or(usize::MAX);
        if step_ms % HOUR_MS == 0 {
            for hour in begin / HOUR_MS..(end / HOUR_MS).min(now.0 / HOUR_MS + 1) {
                let sums = hours.of(record, hour, now)?;
                if let Some(step) = steps.get_mut(index(hour * HOUR_MS)) {
                    step.take_all(&sums);
                }
            }
        } else {
            let mut at = begin;
            while at < end {
                let piece_end = (at + PIECE_MS).min(end);
                for minute in record.minutes_between(Timestamp(at), Timestamp(piece_end))? {
                    let of = minute.from.0.div_euclid(MINUTE_MS) * MINUTE_MS;
                    if let Some(step) = steps.get_mut(index(of)) {
                        step.take(&minute);
                    }
                }
                at = piece_end;
            }
        }
        let window = TimeWindow {
            from: Timestamp(begin),
            to: Timestamp(end),
        };
        Ok(RateCurve {
            window,
            step_seconds,
            steps,
        })
    }

    /// When processes began to lead the service in the window.
    pub fn starts(&self) -> impl Iterator<Item = Timestamp> {
        self.steps
            .iter()
            .flat_map(|step| step.starts.iter().copied())
    }

    /// The links of the window, those that moved most first.
    pub fn links(&self) -> Vec<LinkId> {
        let mut moved: BTreeMap<&LinkId, u64> = BTreeMap::new();
        for step in &self.steps {
            for (link, sums) in &step.links {
                let sum = moved.entry(link).or_default();
                *sum = sum.saturating_add(sums.moved_bytes);
            }
        }
        let mut ranked: Vec<(&LinkId, u64)> = moved.into_iter().collect();
        ranked.sort_by_key(|(link, moved)| (std::cmp::Reverse(*moved), *link));
        let ranked = ranked.into_iter().take(LINKS_SHOWN_MAX);
        ranked.map(|(link, _)| link.clone()).collect()
    }

    /// As the page takes it.
    pub fn snapshot(&self) -> Snapshot {
        let links = self.links().into_iter();
        Snapshot {
            unit: crate::series::UNIT,
            population: crate::series::POPULATION,
            step_seconds: self.step_seconds,
            from: self.window.from,
            to: self.window.to,
            total: self.steps.iter().map(StepSums::rate).collect(),
            links: links.map(|link| self.series_of(link)).collect(),
        }
    }

    fn series_of(&self, link: LinkId) -> LinkSeries {
        let sums: Vec<(&StepSums, Option<&LinkSums>)> = self
            .steps
            .iter()
            .map(|step| (step, step.links.get(&link)))
            .collect();
        // What stands at an instant is looked at once a second, in the seconds in which a link has work.
        let mean = |of: fn(&LinkSums) -> u64| {
            sums.iter()
                .map(|(step, sums)| {
                    let seconds = (step.counted_ms / 1000).max(1).unsigned_abs();
                    sums.map(|sums| of(sums).saturating_add(seconds / 2) / seconds)
                })
                .collect::<Vec<Option<u64>>>()
        };
        let narrow = |values: Vec<Option<u64>>| {
            let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
            values.into_iter().map(|value| value.map(narrow)).collect()
        };
        let limit = sums.iter().map(|(_, sums)| {
            sums.map(|sums| (sums.limit + sums.samples / 2) / sums.samples.max(1))
        });
        LinkSeries {
            rates: sums
                .iter()
                .map(|(step, sums)| sums.and_then(|sums| step.rate_of(sums.moved_bytes)))
                .collect(),
            active: narrow(mean(|sums| sums.active)),
            limit: narrow(limit.collect()),
            queued: mean(|sums| sums.queued),
            link,
        }
    }
}

impl StepSums {
    fn rate(&self) -> Option<u64> {
        self.rate_of(self.moved_bytes)
    }

    /// Bytes per second of the time that was counted; `None`: none was.
    fn rate_of(&self, moved_bytes: u64) -> Option<u64> {
        let counted = u128::try_from(self.counted_ms)
            .ok()
            .filter(|counted| *counted > 0)?;
        u64::try_from(u128::from(moved_bytes) * 1000 / counted).ok()
    }
}

/// The shortest length of a step that gives no more than [`STEPS_MAX`] of them.
fn step_for(seconds: i64) -> i64 {
    let fits = |step: &&i64| seconds <= **step * (STEPS_MAX - 1);
    let longest = STEP_SECONDS[STEP_SECONDS.len() - 1];
    STEP_SECONDS.iter().find(fits).copied().unwrap_or(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::MemoryRecord;
    use penstock_model::{MinuteRow, StorageId};

    const DAY_MS: i64 = 86_400_000;
    /// A minute's begin, and an hour's.
    const BEGIN: i64 = 20_000 * DAY_MS;

    fn link(source: &str) -> LinkId {
        LinkId {
            source: StorageId::new(format!("https://{source}")),
            destination: StorageId::new("https://in2p3"),
        }
    }

    fn minute(from: i64, to: i64, moved: &[(&str, u64)]) -> MinuteSamples {
        let row = |key, moved_bytes, samples| MinuteRow {
            key,
            sums: MinuteSums {
                samples,
                moved_bytes,
                active: samples * 4,
                limit: samples * 10,
                queued: samples * 7,
                ..MinuteSums::default()
            },
            failures: Vec::new(),
        };
        let rows = moved.iter();
        let rows = rows.map(|(source, moved)| match *source {
            "others" => row(MinuteKey::OtherLinks, *moved, 60),
            source => row(MinuteKey::Link(link(source)), *moved, 60),
        });
        MinuteSamples {
            from: Timestamp(from),
            to: Timestamp(to),
            rows: rows.collect(),
        }
    }

    fn whole(number: i64, moved: &[(&str, u64)]) -> MinuteSamples {
        let from = BEGIN + number * MINUTE_MS;
        minute(from, from + MINUTE_MS, moved)
    }

    fn curve(record: &MemoryRecord, from: i64, to: i64) -> RateCurve {
        let window = TimeWindow {
            from: Timestamp(from),
            to: Timestamp(to),
        };
        RateCurve::read(record, &mut HourSums::default(), window, Timestamp(to)).expect("readable")
    }

    #[test]
    fn a_step_is_the_mean_of_the_time_that_was_counted() {
        let record = MemoryRecord::new();
        record.push_minute(whole(0, &[("cern", 6_000), ("others", 600)]));
        // A minute without work is zero; one of which nobody tells is unknown.
        record.push_minute(whole(1, &[]));
        // The service was stopped in the middle.
        let from = BEGIN + 3 * MINUTE_MS;
        record.push_minute(minute(from, from + 30_000, &[("cern", 6_000)]));
        let shown = curve(&record, BEGIN, BEGIN + 4 * MINUTE_MS).snapshot();
        assert_eq!(shown.step_seconds, 60);
        assert_eq!(shown.total, [Some(110), Some(0), None, Some(200)]);
        let [cern] = shown.links.as_slice() else {
            panic!("one link: {:?}", shown.links);
        };
        assert_eq!(cern.rates, [Some(100), None, None, Some(200)]);
        assert_eq!(cern.active[0], Some(4));
        assert_eq!(cern.limit[0], Some(10));
        assert_eq!(cern.queued[0], Some(7));
    }

    #[test]
    fn a_night_and_forty_days_fit_a_page() {
        for (seconds, step) in [
            (900, 60),
            (12 * 3600, 120),
            (7 * 86_400, 900),
            (CURVE_SECONDS_MAX, 7200),
        ] {
            assert_eq!(step_for(seconds), step, "{seconds}");
            assert!(seconds / step < STEPS_MAX, "{seconds}");
        }
        let record = MemoryRecord::new();
        let days = curve(&record, 0, BEGIN).snapshot();
        assert!(days.total.len() as i64 <= STEPS_MAX);
        assert_eq!(days.to.0 - days.from.0, CURVE_SECONDS_MAX * 1000);
    }

    #[test]
    fn bytes_of_a_window_are_the_same_whatever_the_step() {
        let record = MemoryRecord::new();
        for number in 0..40 * 1440 {
            if number % 7 == 0 {
                record.push_minute(whole(number, &[("cern", 60_000), ("ral", 30_000)]));
            }
        }
        let end = BEGIN + 40 * DAY_MS;
        for days in [1, 3, 10, 39] {
            let curve = curve(&record, end - days * DAY_MS, end);
            let moved: u64 = curve.steps.iter().map(|step| step.moved_bytes).sum();
            let first = (40 - days) * 1440;
            let minutes = (first..40 * 1440).filter(|number| number % 7 == 0).count();
            assert_eq!(moved, 90_000 * minutes as u64, "{days} days");
            assert_eq!(curve.links(), [link("cern"), link("ral")]);
        }
    }

    #[test]
    fn an_hour_that_is_over_is_read_once_and_a_late_one_again() {
        let record = MemoryRecord::new();
        record.push_minute(whole(0, &[("cern", 6_000)]));
        let mut hours = HourSums::default();
        let hour = BEGIN / HOUR_MS;
        let moved = |hours: &mut HourSums, now: i64| {
            let sums = hours.of(&record, hour, Timestamp(now)).expect("readable");
            sums.moved_bytes
        };
        assert_eq!(moved(&mut hours, BEGIN + HOUR_MS), 6_000);
        record.push_minute(whole(59, &[("cern", 6_000)]));
        assert_eq!(moved(&mut hours, BEGIN + 2 * HOUR_MS), 12_000);
        record.push_minute(whole(30, &[("cern", 6_000)]));
        assert_eq!(moved(&mut hours, BEGIN + 2 * HOUR_MS), 12_000, "remembered");
    }

    #[test]
    fn names_that_users_invent_do_not_grow_a_step() {
        let mut step = StepSums::default();
        for number in 0..1000 {
            step.take(&whole(0, &[(&format!("host{number}"), 10)]));
        }
        assert_eq!(step.links.len(), LINKS_PER_STEP_MAX);
        assert_eq!(step.moved_bytes, 10_000, "all bytes count");
    }

    #[test]
    fn a_process_that_began_to_lead_is_told() {
        let record = MemoryRecord::new();
        record.push_minute(whole(0, &[]));
        let begun = BEGIN + MINUTE_MS + 17_000;
        record.push_minute(minute(begun, BEGIN + 2 * MINUTE_MS, &[]));
        let starts: Vec<Timestamp> = curve(&record, BEGIN, BEGIN + 3 * MINUTE_MS)
            .starts()
            .collect();
        assert_eq!(starts, [Timestamp(begun)]);
    }
}
