//! Dates and times as other systems write them.
//!
//! A time without a zone or a year means nothing by itself: who parses it says what holds.

use penstock_model::Timestamp;

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

impl Date {
    /// `None`: there is no such day.
    pub fn new(year: i64, month: u32, day: u32) -> Option<Date> {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 => 28 + u32::from(is_leap),
            _ => return None,
        };
        let is_known = (1..=9999).contains(&year) && (1..=days).contains(&day);
        is_known.then_some(Date { year, month, day })
    }

    /// `2026-11-24`.
    pub fn parse(text: &str) -> Option<Date> {
        let mut parts = text.split('-');
        let mut next = || parts.next().filter(|part| is_digits(part));
        let (year, month, day) = (next()?, next()?, next()?);
        let date = Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
        date.filter(|_| parts.next().is_none())
    }

    /// Days since 1970-01-01.
    pub fn days(self) -> i64 {
        // Years begin in March, so that the leap day comes last.
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = i64::from((self.month + 9) % 12);
        let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * 146_097 + day_of_era - 719_468
    }

    /// Its moment, in UTC.
    pub fn at(self, milliseconds_of_day: i64) -> Timestamp {
        Timestamp(self.days() * 86_400_000 + milliseconds_of_day)
    }
}

/// The month of an English name or its first three letters.
pub fn month(name: &str) -> Option<u32> {
    const MONTHS: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let short = name.get(..3)?.to_ascii_lowercase();
    let place = MONTHS.iter().position(|month| *month == short)?;
    Some(place as u32 + 1)
}

/// `19:04:51` or `19:04:51.120` as milliseconds of the day.
pub fn time_of_day(text: &str) -> Option<i64> {
    let (whole, fraction) = match text.split_once(['.', ',']) {
        Some((whole, fraction)) => (whole, milliseconds(fraction)?),
        None => (text, 0),
    };
    let mut parts = whole.split(':');
    let mut next = |most: i64| -> Option<i64> {
        let part = parts.next().filter(|part| is_digits(part))?;
        part.parse().ok().filter(|value| *value <= most)
    };
    let (hour, minute) = (next(23)?, next(59)?);
    // A leap second is 60.
    let second = next(60)?;
    let is_whole = parts.next().is_none();
    is_whole.then_some(((hour * 60 + minute) * 60 + second) * 1000 + fraction)
}

/// Digits behind the point of a second.
fn milliseconds(fraction: &str) -> Option<i64> {
    let digits = fraction
        .get(..fraction.len().min(3))
        .filter(|_| is_digits(fraction))?;
    let value: i64 = digits.parse().ok()?;
    Some(value * 10_i64.pow(3 - digits.len() as u32))
}

fn is_digits(text: &str) -> bool {
    (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `2026-11-22T19:04:51.120+01:00`: ISO 8601, also with a blank for the T. Without a zone it is UTC.
pub fn iso(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', ' '])?;
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (time, zone) = rest.split_at(zone_at);
    let local = Date::parse(date)?.at(time_of_day(time)?);
    Some(Timestamp(local.0 - zone_milliseconds(zone)?))
}

/// `Z`, nothing, `+0100` or `-01:00`.
pub fn zone_milliseconds(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone == "Z" {
        return Some(0);
    }
    let (sign, digits) = match zone.strip_prefix('+') {
        Some(digits) => (1, digits),
        None => (-1, zone.strip_prefix('-')?),
    };
    let digits: String = digits.chars().filter(|one| *one != ':').collect();
    let (hours, minutes) = digits.split_at_checked(2)?;
    let is_number = is_digits(hours) && (minutes.is_empty() || is_digits(minutes));
    let hours: i64 = hours
        .parse()
        .ok()
        .filter(|hours| is_number && *hours <= 14)?;
    let minutes: i64 = match minutes {
        "" => 0,
        minutes => minutes.parse().ok().filter(|minutes| *minutes < 60)?,
    };
    Some(sign * (hours * 60 + minutes) * 60_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_that_timestamps_write() {
        for days in (-100_000..100_000).step_by(17) {
            let (year, month, day, _) = Timestamp(days * 86_400_000).civil();
            let date = Date::new(year, month, day).expect("a date");
            assert_eq!(date.days(), days);
        }
        assert_eq!(Date::parse("2023-02-29"), None);
        assert_eq!(Date::parse("2024-02-29").map(Date::days), Some(19_782));
        assert_eq!(Date::parse("2024-02-29-1"), None);
        assert_eq!(Date::parse("20é4-02-29"), None);
    }

    #[test]
    fn times_are_read_with_their_zones() {
        let expected = Some(Timestamp(1_795_241_992_120));
        assert_eq!(iso("2026-11-21T06:19:52.12Z"), expected);
        assert_eq!(iso("2026-11-21 07:19:52.120999+01:00"), expected);
        assert_eq!(iso("2026-11-21T06:19:52.120"), expected);
        assert_eq!(iso("2026-11-21T02:49:52,120-0330"), expected);
        for wrong in [
            "",
            "2026-11-21",
            "2026-11-21T24:00:00",
            "2026-11-21T06:19:52.",
            "é026-11-21T06:19:52",
        ] {
            assert_eq!(iso(wrong), None, "{wrong}");
        }
        assert_eq!(month("November"), Some(11));
        assert_eq!(month("é"), None);
    }
}
