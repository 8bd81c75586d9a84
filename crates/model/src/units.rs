//! Quantities. Each carries its unit in its type, so that bytes are never added to seconds.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A number of bytes (not KiB, not blocks).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1000.0 && unit + 1 < UNITS.len() {
            value /= 1000.0;
            unit += 1;
        }
        if unit == 0 {
            write!(out, "{} B", self.0)
        } else {
            write!(out, "{value:.1} {}", UNITS[unit])
        }
    }
}

/// Bytes per second.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Rate(pub u64);

impl Rate {
    /// The mean rate of `bytes` over `elapsed`; `None` when no time passed, because no rate is defined then.
    pub fn over(bytes: Bytes, elapsed: Duration) -> Option<Rate> {
        let seconds = elapsed.as_secs_f64();
        (seconds > 0.0).then(|| Rate((bytes.0 as f64 / seconds) as u64))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/s", Bytes(self.0))
    }
}

/// A length of time as people read it: `45 s`, `15 min`, `2 h 5 min`, `3 days`, in two units at most. With a precision
/// (`{:.2}`), seconds have so many digits behind the point as long as they are told alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

impl TimeSpan {
    pub const fn of_seconds(seconds: u64) -> TimeSpan {
        TimeSpan(Duration::from_secs(seconds))
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let whole = seconds.round() as u64;
        let (large, unit, small, smaller) = match whole {
            0..=119 => return self.write_short(out),
            120..=3_599 => (whole / 60, "min", whole % 60, "s"),
            3_600..=172_799 => (whole / 3_600, "h", whole % 3_600 / 60, "min"),
            _ => (whole / 86_400, "days", whole % 86_400 / 3_600, "h"),
        };
        match small {
            0 => write!(out, "{large} {unit}"),
            _ => write!(out, "{large} {unit} {small} {smaller}"),
        }
    }
}

impl TimeSpan {
    fn write_short(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match out.precision() {
            Some(digits) => write!(out, "{seconds:.digits$} s"),
            None if self.0.subsec_nanos() == 0 || seconds >= 10.0 => write!(out, "{seconds:.0} s"),
            None if seconds < 1.0 => write!(out, "{:.0} ms", seconds * 1000.0),
            None => write!(out, "{seconds:.1} s"),
        }
    }
}

/// A number of transfers that may run at once.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Slots(pub u32);

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The time that passed since `earlier`; zero when `earlier` is later (clocks may step back).
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Whole seconds since 1970, as HTTP-TPC markers and tokens count them.
    pub fn unix_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// `YYYY-MM-DDTHH:MM:SS` in UTC, without zone or fraction: the form that FTS clients parse with `strptime`.
    pub fn to_fts(self) -> String {
        let (year, month, day, seconds) = self.civil();
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }

    /// Year, month (1..12), day (1..31) and second of the day, in UTC.
    pub fn civil(self) -> (i64, u32, u32, u32) {
        let days = self.unix_seconds().div_euclid(86_400);
        let second_of_day = self.unix_seconds().rem_euclid(86_400) as u32;
        // Days to civil date by shifting the year to begin in March, so that the leap day comes last.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        } as u32;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, month, day, second_of_day)
    }
}

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWindow {
    /// Its beginning.
    pub from: Timestamp,
    /// Its end, which is outside.
    pub to: Timestamp,
}

impl TimeWindow {
    pub const ALL: TimeWindow = TimeWindow {
        from: Timestamp(i64::MIN),
        to: Timestamp(i64::MAX),
    };

    /// Whether a moment lies in it.
    pub fn has(&self, at: Timestamp) -> bool {
        self.from <= at && (at < self.to || self.to == TimeWindow::ALL.to)
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: Duration) -> Timestamp {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(millis))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, span: Duration) -> Timestamp {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_sub(millis))
    }
}

/// How urgent a job is: 1 (least) to 5 (most), as in FTS. Values outside are clamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(u8);

impl Priority {
    /// Clamps into 1..=5, as FTS does.
    pub fn clamped(value: i64) -> Priority {
        Priority(value.clamp(1, 5) as u8)
    }

    /// The number on the wire.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Priority(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_fts_clients_parse_them() {
        assert_eq!(Timestamp(0).to_fts(), "1970-01-01T00:00:00");
        assert_eq!(Timestamp(1_709_208_000_999).to_fts(), "2024-02-29T12:00:00");
        assert_eq!(Timestamp(1_795_241_992_000).to_fts(), "2026-11-21T06:19:52");
        assert_eq!(Timestamp(-1).to_fts(), "1969-12-31T23:59:59");
    }

    #[test]
    fn no_two_times_are_too_far_apart_to_be_compared() {
        let (first, last) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        assert_eq!(last.since(first), Duration::from_millis(i64::MAX as u64));
        assert_eq!(first.since(last), Duration::ZERO);
    }

    #[test]
    fn a_length_of_time_is_told_in_the_units_of_people() {
        let check = |millis, expected: &str| {
            let span = TimeSpan(Duration::from_millis(millis));
            assert_eq!(span.to_string(), expected);
        };
        check(0, "0 s");
        check(250, "250 ms");
        check(1_500, "1.5 s");
        check(3_000, "3 s");
        check(90_000, "90 s");
        check(125_000, "2 min 5 s");
        check(900_000, "15 min");
        check(3_600_000, "1 h");
        check(9_000_000, "2 h 30 min");
        check(172_800_000, "2 days");
        check(400 * 86_400_000 + 3_600_000, "400 days 1 h");
        let exact = |seconds| format!("{:.2}", TimeSpan(Duration::from_secs_f64(seconds)));
        assert_eq!([exact(2.0), exact(900.0)], ["2.00 s", "15 min"]);
    }

    #[test]
    fn a_rate_without_time_is_unknown_not_infinite() {
        assert_eq!(Rate::over(Bytes(10), Duration::ZERO), None);
        assert_eq!(Rate::over(Bytes(10), Duration::from_secs(2)), Some(Rate(5)));
    }
}
