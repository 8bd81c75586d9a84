//! Dates of HTTP headers (RFC 9110 §5.6.7, the preferred form) and of WebDAV's `creationdate` (RFC 3339).

use penstock_model::Timestamp;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `Sat, 21 Nov 2026 06:19:51 GMT`, to whole seconds. For years 0 to 9999, as the form has four digits.
pub fn format_http_date(time: Timestamp) -> String {
    let (year, month, day, second) = time.civil();
    let weekday = time.unix_seconds().div_euclid(86_400).rem_euclid(7);
    format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[weekday as usize],
        MONTHS[month as usize - 1],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Reads the same form. The day of the week is not compared with the date.
pub fn parse_http_date(text: &str) -> Option<Timestamp> {
    let (weekday, rest) = text.trim().split_once(", ")?;
    let rest = rest.strip_suffix(" GMT")?;
    let mut parts = rest.split(' ');
    let (day, month, year, clock) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if !DAYS.contains(&weekday) || parts.next().is_some() {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == month)? as u32 + 1;
    timestamp(digits(year, 4)?, month, digits(day, 2)?, clock)
}

/// Reads `2026-11-21T06:19:51Z`, also with a fraction or an offset from UTC.
pub fn parse_iso_date(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let (date, rest) = text.split_once(['T', 't'])?;
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let (clock, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let clock = clock.split('.').next()?;
    if parts.next().is_some() {
        return None;
    }
    let local = timestamp(digits(year, 4)?, digits(month, 2)?, digits(day, 2)?, clock)?;
    let (sign, offset) = match zone.split_at(1) {
        ("Z" | "z", "") => return Some(local),
        ("+", offset) => (1, offset),
        ("-", offset) => (-1, offset),
        _ => return None,
    };
    let (hours, minutes) = offset.split_once(':')?;
    let minutes = i64::from(digits(hours, 2)?) * 60 + i64::from(digits(minutes, 2)?);
    Some(Timestamp(local.0 - sign * minutes * 60_000))
}

/// Exactly so many digits.
fn digits(text: &str, width: usize) -> Option<u32> {
    let sound = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    sound.then(|| text.parse().ok()).flatten()
}

fn timestamp(year: u32, month: u32, day: u32, clock: &str) -> Option<Timestamp> {
    let mut parts = clock.split(':').map(|part| digits(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    // A leap second is 60.
    let sound = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    if !sound || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_since_1970(i64::from(year), i64::from(month), i64::from(day));
    let midnight = Timestamp(days * 86_400_000);
    // A day beyond the end of its month comes back as another day.
    if midnight.civil() != (i64::from(year), month, day, 0) {
        return None;
    }
    Some(Timestamp(
        midnight.0 + i64::from(hour * 3600 + minute * 60 + second) * 1000,
    ))
}

/// The inverse of [`Timestamp::civil`], by the same shift of the year's beginning to March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_those_of_the_standards() {
        // RFC 9110 §5.6.7.
        assert_eq!(
            format_http_date(Timestamp(784_111_777_000)),
            "Sun, 06 Nov 1994 08:49:37 GMT"
        );
        assert_eq!(
            parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Timestamp(784_111_777_000))
        );
        assert_eq!(
            format_http_date(Timestamp(0)),
            "Thu, 01 Jan 1970 00:00:00 GMT"
        );
        assert_eq!(
            parse_http_date("Sat, 21 Nov 2026 06:19:51 GMT"),
            Some(Timestamp(1_795_241_991_000))
        );
        // RFC 3339 §5.8.
        let moment = Some(Timestamp(851_042_397_000));
        assert_eq!(parse_iso_date("1996-12-19T16:39:57-08:00"), moment);
        assert_eq!(parse_iso_date("1996-12-20T00:39:57.5Z"), moment);
    }

    #[test]
    fn impossible_dates_are_none() {
        for bad in [
            "",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Xxx, 06 Nov 1994 08:49:37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
        ] {
            assert_eq!(parse_http_date(bad), None, "{bad}");
        }
        for bad in [
            "",
            "2026-11-21",
            "2026-11-21T06:19:51",
            "2026-13-21T06:19:51Z",
            "2026-11-21T06:19:51Zé",
        ] {
            assert_eq!(parse_iso_date(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_second_comes_back(seconds in -62_167_219_200_i64..253_402_300_800) {
            let time = Timestamp(seconds * 1000);
            prop_assert_eq!(parse_http_date(&format_http_date(time)), Some(time));
            prop_assert_eq!(parse_iso_date(&(time.to_fts() + "Z")), Some(time));
        }

        #[test]
        fn no_text_makes_it_panic(
            text in "\\PC{0,40}",
            shape in "[0-9]{4}-[0-9]{2}-[0-9é]{2}T[0-9:]{8}[Z+-][0-9:]{0,6}",
        ) {
            let _ = (parse_http_date(&text), parse_iso_date(&text), parse_iso_date(&shape));
        }
    }
}
