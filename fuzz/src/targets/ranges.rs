//! Parts of files: which ones clients ask for, which one a server says it sends, and where an upload goes on.

use super::{Target, headers, texts};
use penstock_protocol::ranges::{content_range, joined, parse_ranges};
use penstock_protocol::resumable::{is_complete, length, offset};

/// The largest number that a header of an upload can hold (RFC 9651 §3.3.1).
const UPLOAD_NUMBER_MAX: u64 = 999_999_999_999_999;

pub const ASKED: Target = Target {
    name: "asked_ranges",
    check: check_asked,
    seeds: || {
        texts(&[
            "100 bytes=0-9",
            "100 bytes=-10,5-, 90-200",
            "1 bytes=0-0,,0-",
            "0 bytes=-0",
            "18446744073709551615 bytes=18446744073709551614-18446744073709551616",
            "9 lines=1-2",
        ])
    },
};

pub const TOLD: Target = Target {
    name: "told_ranges",
    check: check_told,
    seeds: || {
        texts(&[
            "content-range: bytes 0-9/100",
            "content-range: BYTES 90-99/*\ncontent-range: bytes 0-1/2",
            "content-range: bytes */100",
            "upload-complete: ?0\nupload-offset: 0\nupload-length: 999999999999999",
            "upload-complete: ?1\nupload-offset: 00001",
        ])
    },
};

fn check_asked(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (size, text) = text.split_once(' ').unwrap_or(("100", text));
    let size = size.parse().unwrap_or(u64::MAX);
    let Some(mut ranges) = parse_ranges(text, size) else {
        return;
    };
    assert!(ranges.len() <= text.len());
    ranges.retain(|range| !range.is_empty());
    let asked = ranges.clone();
    let given = joined(ranges);
    // Each within the file, and no byte sent twice, so that an answer is never larger than the file.
    let mut sorted = given.clone();
    sorted.sort_by_key(|range| range.start);
    assert!(
        sorted
            .iter()
            .all(|range| range.start < range.end && range.end <= size)
    );
    assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start));
    // And nothing that was not asked for, and everything that was.
    for range in &asked {
        let covers =
            |given: &std::ops::Range<u64>| given.start <= range.start && range.end <= given.end;
        assert!(given.iter().any(covers), "{range:?} of {given:?}");
    }
    for range in &given {
        let begins = |asked: &std::ops::Range<u64>| asked.start == range.start;
        let ends = |asked: &std::ops::Range<u64>| asked.end == range.end;
        assert!(asked.iter().any(begins) && asked.iter().any(ends));
    }
}

fn check_told(data: &[u8]) {
    let headers = headers(data);
    if let Some(told) = content_range(&headers) {
        assert!(told.first < told.end);
        assert!(told.size.is_none_or(|size| told.end <= size));
    }
    let _ = is_complete(&headers);
    for number in [offset(&headers), length(&headers)] {
        match number {
            Ok(number) => assert!(number.is_none_or(|number| number <= UPLOAD_NUMBER_MAX)),
            Err(why) => assert!(why.to_string().len() < 60),
        }
    }
}
