//! Which part of a file is asked for, and which one an answer holds: `Range` and `Content-Range` (RFC 9110 §14). Knows no file
//! but its size.

use http::HeaderMap;
use http::header::CONTENT_RANGE;
use std::ops::Range;

/// `Content-Range: bytes first-last/size` (RFC 9110 §14.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// The first byte.
    pub first: u64,
    /// The byte after the last one.
    pub end: u64,
    /// Bytes of the whole file. `None`: the server does not tell.
    pub size: Option<u64>,
}

/// Overlapping ranges as one; then they are sorted. Ranges that only touch stay apart: their client asked
/// for parts.
pub fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted = ranges.clone();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut apart: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match apart.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    match apart.len() == ranges.len() {
        true => ranges,
        false => apart,
    }
}

/// Reads byte ranges; one that cannot be satisfied is empty; `None` when the header is to be ignored.
pub fn parse_ranges(text: &str, size: u64) -> Option<Vec<Range<u64>>> {
    let (unit, ranges) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    // RFC 9110 §5.6.1.2: empty elements of a list do not count.
    let listed = ranges.split(',').map(str::trim);
    let listed = listed.filter(|range| !range.is_empty());
    let parsed: Vec<Range<u64>> = listed
        .map(|range| parse_range(range, size))
        .collect::<Option<_>>()?;
    (!parsed.is_empty()).then_some(parsed)
}

fn parse_range(text: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    let number = |digits: &str| {
        let digits = digits.trim();
        let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // A number beyond 64 bits lies beyond every file.
        valid.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    if first.trim().is_empty() {
        let wanted: u64 = number(last)?;
        return Some(size.saturating_sub(wanted)..size);
    }
    let first: u64 = number(first)?;
    let end = match last.trim() {
        "" => size,
        _ => {
            let last = number(last)?;
            if last < first {
                return None;
            }
            last.saturating_add(1).min(size)
        }
    };
    Some(first..end)
}

/// What part of the file an answer holds; `None` when it does not say so in an understandable way.
pub fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim();
    let (unit, rest) = text.split_once(' ')?;
    let (part, size) = rest.split_once('/')?;
    let (first, last) = part.trim().split_once('-')?;
    let size = match size.trim() {
        "*" => None,
        digits => Some(number(digits)?),
    };
    let (first, end) = (number(first)?, number(last)?.checked_add(1)?);
    let sound =
        unit.eq_ignore_ascii_case("bytes") && first < end && size.is_none_or(|size| end <= size);
    sound.then_some(ContentRange { first, end, size })
}

fn number(digits: &str) -> Option<u64> {
    let digits = digits.trim();
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(range: &str, size: u64, expected: Option<Range<u64>>) {
        let expected = expected.map(|range| vec![range]);
        assert_eq!(parse_ranges(range, size), expected, "{range} of {size}");
    }

    #[test]
    fn single_ranges_are_cut_to_the_file() {
        check("bytes=0-402", 1000, Some(0..403));
        check("bytes=10-", 100, Some(10..100));
        check("bytes=-10", 100, Some(90..100));
        check("bytes=-1000", 100, Some(0..100));
        check("bytes=90-200", 100, Some(90..100));
        check("bytes=0-99999999999999999999999", 100, Some(0..100));
    }

    #[test]
    fn ranges_outside_the_file_are_empty() {
        for (range, size) in [("bytes=100-", 100), ("bytes=-0", 100), ("bytes=0-", 0)] {
            assert!(
                parse_ranges(range, size).is_some_and(|ranges| ranges[0].is_empty()),
                "{range}"
            );
        }
    }

    #[test]
    fn what_is_no_range_is_ignored() {
        for range in [
            "bytes=0-1;5-6",
            "lines=1-2",
            "bytes",
            "bytes=",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=-",
        ] {
            check(range, 100, None);
        }
    }

    #[test]
    fn a_content_range_is_understood_or_ignored() {
        let read = |text: &str| {
            let value = HeaderValue::from_str(text).expect("a value");
            content_range(&HeaderMap::from_iter([(CONTENT_RANGE, value)]))
                .map(|range| (range.first, range.end, range.size))
        };
        assert_eq!(read("bytes 0-9/100"), Some((0, 10, Some(100))));
        assert_eq!(read("Bytes 90-99/*"), Some((90, 100, None)));
        for bad in [
            "bytes */100",
            "bytes 9-0/100",
            "bytes 0-100/100",
            "bytes 0-18446744073709551615/*",
            "bytes +0-9/100",
            "bytes -9/100",
            "lines 0-9/100",
            "0-9/100",
            "",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
