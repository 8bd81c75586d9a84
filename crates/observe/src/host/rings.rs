//! Seconds for hours in memory, minutes made of them, and points of a window made of either.

use super::sample::HostSample;
use penstock_model::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Seconds that are kept: two hours.
pub const SECONDS_MAX: usize = 7200;
/// Between samples that belong together there is less than this.
const GAP_MS_MIN: i64 = 2500;
const MINUTE_MS: i64 = 60_000;
/// A longer interval is that of a process that stood still: it counts in the minute in which it began.
const SPLIT_US_MAX: u64 = 600_000_000;

/// The samples of the last two hours, and the minute that has begun.
#[derive(Debug, Default)]
pub struct Seconds {
    samples: VecDeque<HostSample>,
    has_forgotten: bool,
    minute: Option<HostSample>,
}

/// A time of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    pub from: Timestamp,
    /// Until when.
    pub to: Timestamp,
}

impl Seconds {
    /// Adds the next second. Gives back the minutes that are over. Of an interval that lies in two minutes, each gets its part.
    pub fn push(&mut self, sample: HostSample) -> Vec<HostSample> {
        let mut ended = Vec::new();
        let mut rest = sample.clone();
        if rest.covered_us < SPLIT_US_MAX {
            let next_minute = |at: Timestamp| Timestamp((minute_of(at) + 1) * MINUTE_MS);
            while let Some((before, after)) = rest.split_at(next_minute(rest.from)) {
                ended.extend(self.add_to_minute(&before));
                rest = after;
            }
        }
        ended.extend(self.add_to_minute(&rest));
        if self.samples.len() >= SECONDS_MAX {
            self.samples.pop_front();
            self.has_forgotten = true;
        }
        self.samples.push_back(sample);
        ended
    }

    fn add_to_minute(&mut self, sample: &HostSample) -> Option<HostSample> {
        match &mut self.minute {
            Some(minute) if minute_of(minute.from) == minute_of(sample.from) => {
                minute.add(sample);
                None
            }
            begun => begun.replace(sample.clone()),
        }
    }

    /// The minute that has begun, which nothing will be added to.
    pub fn end_minute(&mut self) -> Option<HostSample> {
        self.minute.take()
    }

    /// From when on seconds tell everything; what was before is told by minutes. `None` before the first.
    pub fn since(&self) -> Option<Timestamp> {
        let oldest = self.samples.front()?.from;
        Some(match self.has_forgotten {
            // The minute that it lies in has lost its beginning.
            true => Timestamp((minute_of(oldest) + 1) * MINUTE_MS),
            false => oldest,
        })
    }

    /// Those that begin in a window.
    pub fn between(&self, from: Timestamp, to: Timestamp) -> Vec<HostSample> {
        let within = |sample: &&HostSample| sample.from >= from && sample.from < to;
        self.samples.iter().filter(within).cloned().collect()
    }
}

fn minute_of(at: Timestamp) -> i64 {
    at.0.div_euclid(MINUTE_MS)
}

/// A window in the making: samples come in order of time and become points, a sum and gaps.
#[derive(Debug)]
pub struct Points {
    resolution_ms: i64,
    from: Timestamp,
    to: Timestamp,
    known_until: Timestamp,
    points: Vec<HostSample>,
    total: Option<HostSample>,
    gaps: Vec<Gap>,
}

/// What a window holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// One for each interval in which something was sampled.
    pub points: Vec<HostSample>,
    /// All of it; `None` when nothing was sampled.
    pub total: Option<HostSample>,
    /// When nothing was.
    pub gaps: Vec<Gap>,
}

impl Points {
    /// Of a window, in intervals of a length.
    pub fn of(from: Timestamp, to: Timestamp, resolution_seconds: u32) -> Points {
        Points {
            resolution_ms: i64::from(resolution_seconds.max(1)) * 1000,
            from,
            to,
            known_until: from,
            points: Vec::new(),
            total: None,
            gaps: Vec::new(),
        }
    }

    /// Adds the next sample.
    pub fn push(&mut self, sample: &HostSample) {
        self.note_gap(sample.from);
        self.known_until = self.known_until.max(sample.until());
        let interval = |at: Timestamp| at.0.div_euclid(self.resolution_ms);
        match self.points.last_mut() {
            Some(last) if interval(last.from) == interval(sample.from) => last.add(sample),
            _ => self.points.push(sample.clone()),
        }
        self.total.get_or_insert_default().add(sample);
    }

    fn note_gap(&mut self, next: Timestamp) {
        if next.0.saturating_sub(self.known_until.0) >= GAP_MS_MIN {
            self.gaps.push(Gap {
                from: self.known_until,
                to: next,
            });
        }
    }

    /// The window; what is missing at its end is a gap as well.
    pub fn end(mut self) -> Window {
        self.note_gap(self.to);
        Window {
            from: self.from,
            to: self.to,
            points: self.points,
            total: self.total,
            gaps: self.gaps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::{reading, second};
    use super::*;

    fn written(sample: &HostSample) -> u64 {
        sample.disks[0].activity.written_bytes
    }

    #[test]
    fn a_minute_is_the_sum_of_its_seconds_and_ends_with_the_next_one() {
        let mut ring = Seconds::default();
        let ended: Vec<HostSample> = (0..130)
            .flat_map(|n| ring.push(second(n * 1000, 10)))
            .collect();
        assert_eq!(ended.iter().map(written).collect::<Vec<_>>(), [600, 600]);
        assert_eq!(ended[1].from, Timestamp(60_000));
        assert_eq!(ring.end_minute().as_ref().map(written), Some(100));
        assert_eq!(ring.since(), Some(Timestamp(0)));
        assert_eq!(ring.between(Timestamp(5000), Timestamp(8000)).len(), 3);
    }

    #[test]
    fn the_ring_is_bounded_and_says_from_when_on_it_tells_all() {
        let mut ring = Seconds::default();
        for n in 0..SECONDS_MAX as i64 + 90 {
            ring.push(second(n * 1000, 1));
        }
        assert_eq!(ring.samples.len(), SECONDS_MAX);
        assert_eq!(ring.since(), Some(Timestamp(120_000)));
    }

    #[test]
    fn what_was_not_sampled_is_a_gap_and_no_zero() {
        let mut points = Points::of(Timestamp(0), Timestamp(40_000), 10);
        for at in [5000, 6000, 7000, 21_000, 22_900] {
            points.push(&second(at, 2));
        }
        let window = points.end();
        let gaps: Vec<(i64, i64)> = window
            .gaps
            .iter()
            .map(|gap| (gap.from.0, gap.to.0))
            .collect();
        assert_eq!(gaps, [(0, 5000), (8000, 21_000), (23_900, 40_000)]);
        assert_eq!(
            window.points.iter().map(written).collect::<Vec<_>>(),
            [6, 4]
        );
        assert_eq!(window.total.as_ref().map(written), Some(10));
        assert_eq!(window.total.map(|total| total.covered_us), Some(5_000_000));
    }

    /// Readings of a counter at 0.37 s of each second, with a part of them missed, as minutes.
    fn minutes_of(total: impl Fn(i64) -> u64, is_missed: impl Fn(i64) -> bool) -> Vec<HostSample> {
        let mut ring = Seconds::default();
        let mut minutes = Vec::new();
        let mut last = reading(370, total(370));
        for at in (1..1800).map(|second| second * 1000 + 370) {
            if is_missed(at / 1000) {
                continue;
            }
            let next = reading(at, total(at));
            minutes.extend(ring.push(next.since(&last)));
            last = next;
        }
        minutes
    }

    #[test]
    fn missed_readings_move_no_bytes_into_another_minute() {
        // A rate that goes up and down over a quarter of an hour.
        let total = |at: i64| {
            let seconds = at as f64 / 1000.0;
            (1e9 * seconds + 6e10 * (seconds / 143.0).sin()) as u64
        };
        // Every twentieth, and those at the turn of each third minute.
        let is_missed =
            |second: i64| second % 20 == 13 || (second / 60 % 3 == 1 && second % 60 == 0);
        let minutes = minutes_of(total, is_missed);
        assert_eq!(minutes.len(), 29);
        for minute in &minutes[1..] {
            let (from, until) = (minute.from.0, minute.from.0 + MINUTE_MS);
            assert_eq!((from % MINUTE_MS, minute.covered_us), (0, 60_000_000));
            let expected = (total(until) - total(from)) as f64;
            let apart = (written(minute) as f64 - expected).abs() / expected;
            assert!(apart < 0.01, "{apart} at {from}");
        }
        let all: u64 = minutes.iter().map(written).sum();
        let until = minutes[28].until().0;
        assert!(
            all.abs_diff(total(until) - total(370)) < 20_000_000,
            "nothing is lost"
        );
    }

    #[test]
    fn a_process_that_stood_still_makes_one_minute_and_not_many() {
        let mut ring = Seconds::default();
        let stood = reading(86_400_000, 7).since(&reading(0, 0));
        assert_eq!(ring.push(stood), []);
        assert_eq!(
            ring.end_minute().map(|minute| minute.covered_us),
            Some(86_400_000_000)
        );
    }

    #[test]
    fn a_clock_that_steps_back_ends_the_minute_and_loses_nothing() {
        let mut ring = Seconds::default();
        assert_eq!(ring.push(second(600_000, 1)), []);
        let before = ring.push(second(1000, 1));
        assert_eq!(before[0].from, Timestamp(600_000));
    }
}
