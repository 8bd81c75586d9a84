//! Writing heads. Header names are spelled as the field spells them (`Content-Length`,
//! `TransferHeaderAuthorization`): RFC 9110 §5.1 makes case meaningless, but storage elements that compare
//! it are still in service.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use penstock_clock::wall_clock;
use penstock_model::Timestamp;
use std::cell::RefCell;
use std::io::Write;

/// Names whose usual spelling is not "first letters upper case".
const SPELLINGS: [(&str, &str); 9] = [
    ("etag", "ETag"),
    ("dav", "DAV"),
    ("te", "TE"),
    ("www-authenticate", "WWW-Authenticate"),
    ("content-md5", "Content-MD5"),
    ("requirechecksumverification", "RequireChecksumVerification"),
    ("scitag", "SciTag"),
    ("clientinfo", "ClientInfo"),
    ("archivemetadata", "ArchiveMetadata"),
];

/// Begins a response.
pub(super) fn status_line(out: &mut Vec<u8>, status: StatusCode) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("Status").as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Begins a request. `target` must be in origin form, without white space.
pub(super) fn request_line(out: &mut Vec<u8>, method: &Method, target: &str) {
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// All headers but those that `skip` names.
pub(super) fn headers(out: &mut Vec<u8>, headers: &HeaderMap, skip: &[HeaderName]) {
    for (name, value) in headers {
        if !skip.contains(name) {
            header(out, name, value);
        }
    }
}

/// One header line.
pub(super) fn header(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    spell(out, name.as_str());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One header line with a number.
pub(super) fn number(out: &mut Vec<u8>, name: &str, number: u64) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{name}: {number}\r\n");
}

/// The `Date` header, formatted once a second and thread.
pub(super) fn date(out: &mut Vec<u8>) {
    thread_local! {
        static LATEST: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let second = wall_clock().0.unsigned_abs() / 1000;
    LATEST.with_borrow_mut(|(of, text)| {
        if *of != second {
            (*of, *text) = (second, format!("Date: {}\r\n", imf_fixdate(second)));
        }
        out.extend_from_slice(text.as_bytes());
    });
}

/// RFC 9110 §5.6.7.
fn imf_fixdate(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (year, month, day, of_day) = Timestamp(second as i64 * 1000).civil();
    let weekday = DAYS[(second / 86_400 % 7) as usize];
    let month = MONTHS[month as usize - 1];
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

fn spell(out: &mut Vec<u8>, name: &str) {
    if let Some((_, spelling)) = SPELLINGS.iter().find(|(plain, _)| *plain == name) {
        return out.extend_from_slice(spelling.as_bytes());
    }
    if let Some(inner) = name
        .strip_prefix("transferheader")
        .filter(|inner| !inner.is_empty())
    {
        out.extend_from_slice(b"TransferHeader");
        return spell(out, inner);
    }
    let mut upper = true;
    for byte in name.bytes() {
        out.push(if upper {
            byte.to_ascii_uppercase()
        } else {
            byte
        });
        upper = byte == b'-';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_old_servers_want_them() {
        for (name, expected) in [
            ("content-length", "Content-Length"),
            ("transferheaderauthorization", "TransferHeaderAuthorization"),
            ("transferheaderx-trace-id", "TransferHeaderX-Trace-Id"),
            ("x-number-of-streams", "X-Number-Of-Streams"),
            ("www-authenticate", "WWW-Authenticate"),
            ("transferheaderscitag", "TransferHeaderSciTag"),
        ] {
            let mut out = Vec::new();
            spell(&mut out, name);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn dates_are_written_as_rfc_9110_has_them() {
        assert_eq!(imf_fixdate(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(imf_fixdate(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
