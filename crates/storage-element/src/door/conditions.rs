//! Headers that make a request conditional or partial (RFC 9110 §13, §14). Entity tags are file ids,
//! which are never given twice, so equal tags mean equal bytes.

use super::answer::Problem;
use http::header::{IF_MATCH, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use penstock_model::ProblemCode;
use penstock_persistence::namespace::{Entry, EntryId};
use penstock_protocol::ranges::{joined, parse_ranges};
use penstock_protocol::webdav::parse_http_date;
use std::ops::Range;

/// Ranges that one request may name; clients of ROOT files send some hundreds.
const RANGES_MAX: usize = 1024;

/// The `ETag` of a file.
pub(super) fn etag(id: EntryId) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{id}\"")).expect("hexadecimal digits are visible ASCII")
}

/// The file that an entity tag is that of.
pub(super) fn of_etag(tag: &str) -> Option<EntryId> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    u64::from_str_radix(digits, 16).ok().map(EntryId)
}

/// What the conditions of a request come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Go on.
    Proceed,
    /// 304: the client has it already.
    NotModified,
}

/// Evaluates `If-Match`, `If-Unmodified-Since` and `If-None-Match` against what stands at the path (`None`: nothing).
/// `If-Modified-Since` is not evaluated: a file may change twice in one of its seconds, and a client that holds an older
/// one must not be told that it is current.
pub(super) fn evaluate(
    method: &Method,
    headers: &HeaderMap,
    current: Option<&Entry>,
) -> Result<Verdict, Problem> {
    let id = current.map(|entry| entry.id);
    match lists(headers, &IF_MATCH, id) {
        Some(true) => {}
        Some(false) => return Err(another_file()),
        // RFC 9110 §13.2.2: the date counts only without tags.
        None if is_newer(headers, current) => {
            let text = "the file was modified after the date in 'If-Unmodified-Since'";
            return Err(Problem::new(ProblemCode::PreconditionFailed, text));
        }
        None => {}
    }
    match lists(headers, &IF_NONE_MATCH, id) {
        Some(true) if *method == Method::GET || *method == Method::HEAD => Ok(Verdict::NotModified),
        Some(true) => Err(destination_exists()),
        Some(false) | None => Ok(Verdict::Proceed),
    }
}

/// `If-Match` does not hold.
pub(super) fn another_file() -> Problem {
    let text = "the file is not the one that 'If-Match' names";
    Problem::new(ProblemCode::PreconditionFailed, text)
}

/// `If-None-Match` does not hold.
pub(super) fn destination_exists() -> Problem {
    let text = "the destination exists and 'If-None-Match' forbids that";
    Problem::new(ProblemCode::PathExists, text)
}

/// What stands there was modified after the date that the client names. A date that is none is ignored (RFC 9110
/// §13.1.4).
fn is_newer(headers: &HeaderMap, current: Option<&Entry>) -> bool {
    let date = headers.get(IF_UNMODIFIED_SINCE);
    let date = date.and_then(|value| parse_http_date(value.to_str().ok()?));
    match (date, current) {
        (Some(date), Some(entry)) => entry.modified.unix_seconds() > date.unix_seconds(),
        _ => false,
    }
}

/// The entry that a change must find when it is made, because the client named it in `If-Match`. What stands there was
/// judged before, and may be replaced by somebody else before the change.
pub(super) fn only_entry(headers: &HeaderMap, current: Option<EntryId>) -> Option<EntryId> {
    let mut values = headers.get_all(IF_MATCH).iter().peekable();
    values.peek()?;
    let any = values.any(|value| value.as_bytes().trim_ascii() == b"*");
    current.filter(|_| !any)
}

/// The client demands that nothing stands at the destination.
pub(super) fn demands_absence(headers: &HeaderMap) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .any(|value| value.as_bytes().trim_ascii() == b"*")
}

/// Whether the current entity is in the header's list; `None` without the header. Weak tags match as
/// strong ones do: ours never name two versions.
fn lists(headers: &HeaderMap, name: &HeaderName, current: Option<EntryId>) -> Option<bool> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let tag = current.map(etag);
    Some(values.any(|value| {
        value.as_bytes().split(|byte| *byte == b',').any(|item| {
            let item = item.trim_ascii();
            let item = item.strip_prefix(b"W/").unwrap_or(item);
            match &tag {
                Some(tag) => item == b"*" || item == tag.as_bytes(),
                None => false,
            }
        })
    }))
}

/// The parts of a file that are asked for, in the client's order; overlapping ones are joined, because
/// otherwise a short request could ask for a file many times over. Empty: all of the file, also for units
/// that we do not know, which a server may ignore (RFC 9110 §14.2).
pub(super) fn ranges(
    headers: &HeaderMap,
    id: EntryId,
    size: u64,
) -> Result<Vec<Range<u64>>, Problem> {
    let Some(value) = headers.get(RANGE) else {
        return Ok(Vec::new());
    };
    // RFC 9110 §13.1.5: only a strong validator counts, and our dates have whole seconds.
    if let Some(condition) = headers.get(IF_RANGE)
        && *condition != etag(id)
    {
        return Ok(Vec::new());
    }
    let text = value.to_str().unwrap_or_default();
    let Some(mut ranges) = parse_ranges(text, size) else {
        return Ok(Vec::new());
    };
    if ranges.len() > RANGES_MAX {
        let why = format!("a request may name at most {RANGES_MAX} ranges");
        return Err(unsatisfiable(size, why));
    }
    ranges.retain(|range| !range.is_empty());
    if ranges.is_empty() {
        let shown: String = text.chars().take(80).collect();
        let why = format!("the range '{shown}' lies outside the file's {size} bytes");
        return Err(unsatisfiable(size, why));
    }
    Ok(joined(ranges))
}

fn unsatisfiable(size: u64, why: String) -> Problem {
    let mut problem = Problem::new(ProblemCode::RangeUnsatisfiable, why);
    let value =
        HeaderValue::from_str(&format!("bytes */{size}")).expect("digits are visible ASCII");
    problem.headers.push((http::header::CONTENT_RANGE, value));
    problem
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::Timestamp;
    use penstock_persistence::namespace::EntryKind;

    fn check_list(list: &str, expected: Result<&str, u16>) {
        let value = HeaderValue::from_str(list).expect("visible");
        let headers = HeaderMap::from_iter([(RANGE, value)]);
        let got = ranges(&headers, EntryId(1), 100).map(|ranges| {
            let shown = ranges
                .iter()
                .map(|range| format!("{}..{}", range.start, range.end));
            shown.collect::<Vec<_>>().join(" ")
        });
        let got = got.as_deref().map_err(|problem| problem.status.as_u16());
        assert_eq!(got, expected, "{list}");
    }

    #[test]
    fn several_ranges_keep_their_order_unless_they_overlap() {
        check_list("bytes=0-1,5-6", Ok("0..2 5..7"));
        check_list("bytes=50-59, 10-19 ,, -5", Ok("50..60 10..20 95..100"));
        check_list("bytes=0-9,10-19", Ok("0..10 10..20"));
        check_list("bytes=50-59,10-19,15-30", Ok("10..31 50..60"));
        check_list("bytes=0-,0-,0-,5-6", Ok("0..100"));
        check_list("bytes=5-6,200-", Ok("5..7"));
        check_list("bytes=100-,200-", Err(416));
        check_list("bytes=0-1,x", Ok(""));
        check_list("bytes=,", Ok(""));
        check_list(&format!("bytes={}", "1-2,".repeat(RANGES_MAX)), Ok("1..3"));
        check_list(
            &format!("bytes={}", "1-2,".repeat(RANGES_MAX + 1)),
            Err(416),
        );
    }

    #[test]
    fn conditions_follow_the_method() {
        let headers = |name: HeaderName, value: &str| {
            HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("visible"))])
        };
        let entry = |id| Entry {
            id: EntryId(id),
            name: "f".to_owned(),
            kind: EntryKind::Directory,
            modified: Timestamp(1_795_241_978_700),
            created: Timestamp(0),
            owner: None,
            has_properties: false,
        };
        let current = Some(entry(0x2a));
        let status = |method: Method, headers: &HeaderMap, current: Option<Entry>| {
            evaluate(&method, headers, current.as_ref()).map_err(|problem| problem.status.as_u16())
        };
        let star = headers(IF_NONE_MATCH, "*");
        assert_eq!(status(Method::PUT, &star, current.clone()), Err(412));
        assert_eq!(status(Method::PUT, &star, None), Ok(Verdict::Proceed));
        assert_eq!(
            status(Method::GET, &star, current.clone()),
            Ok(Verdict::NotModified)
        );
        let tags = headers(IF_MATCH, "\"1\", \"2a\"");
        assert_eq!(
            status(Method::PUT, &tags, current.clone()),
            Ok(Verdict::Proceed)
        );
        assert_eq!(status(Method::PUT, &tags, Some(entry(3))), Err(412));
        assert_eq!(status(Method::PUT, &tags, None), Err(412));
        for (date, expected) in [
            ("Sat, 21 Nov 2026 06:19:38 GMT", Ok(Verdict::Proceed)),
            ("Sat, 21 Nov 2026 06:19:37 GMT", Err(412)),
            ("yesterday", Ok(Verdict::Proceed)),
        ] {
            let since = headers(IF_UNMODIFIED_SINCE, date);
            assert_eq!(
                status(Method::DELETE, &since, current.clone()),
                expected,
                "{date}"
            );
            assert_eq!(status(Method::PUT, &since, None), Ok(Verdict::Proceed));
        }
    }
}
