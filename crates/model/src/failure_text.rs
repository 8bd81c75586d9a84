//! One incident, however many files it hits: a failure text without what differs from file to file.
//!
//! Tells causes apart only as well as the texts do. It keeps the host of a URL, because one broken storage
//! element is one incident, and HTTP statuses and names of checksum algorithms, because they name the cause. It drops
//! paths, other numbers and identifiers, because a full disk writes one error per file.

use crate::failure::Failure;

/// Longest fingerprint, in characters: they are kept in memory.
const FINGERPRINT_MAX: usize = 300;
/// Longest text that is looked at, in characters. More than that of a fingerprint, so that the lengths of file names
/// do not move its end.
const TEXT_MAX: usize = 4000;

/// Algorithms of checksums whose names have digits.
const ALGORITHMS: [&str; 13] = [
    "adler32",
    "crc32",
    "crc32c",
    "crc64",
    "crc64nvme",
    "md5",
    "sha1",
    "sha256",
    "sha512",
    "sha-1",
    "sha-256",
    "sha-384",
    "sha-512",
];

/// The fingerprint of a failure: `SOURCE [111] https://se.example: connection refused after # s`.
pub fn fingerprint(failure: &Failure) -> String {
    format!(
        "{} [{}] {}",
        failure.side.fts_scope(),
        failure.errno.0,
        without_particulars(&failure.detail)
    )
}

/// `text` with paths as `/…`, and numbers, hexadecimal words and identifiers as `#`. Addresses, HTTP statuses and names
/// of algorithms stay.
pub fn without_particulars(text: &str) -> String {
    let bounded: String = text.chars().take(TEXT_MAX).collect();
    let mut names_status = false;
    let mut words: Vec<String> = Vec::new();
    for word in bounded.split_whitespace() {
        words.push(match names_status && is_http_status(bare(word)) {
            true => word.to_owned(),
            false => word_without_particulars(word),
        });
        names_status = announces_status(word, names_status);
    }
    let words = with_equal_times(words);
    words.join(" ").chars().take(FINGERPRINT_MAX).collect()
}

/// Units of times as [`TimeSpan`](crate::TimeSpan) tells them.
const TIME_UNITS: [&str; 5] = ["ms", "s", "min", "h", "days"];

/// Times are told in the units of people, which differ from file to file as their numbers do: each is `# s` here.
fn with_equal_times(words: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    let mut goes_on = false;
    while let Some(word) = words.next() {
        let is_number = word.ends_with('#') && ["#", "#.#"].contains(&bare(&word));
        let unit = words.next_if(|next| is_number && TIME_UNITS.contains(&bare(next)));
        let Some(unit) = unit else {
            out.push(word);
            goes_on = false;
            continue;
        };
        let close = &unit[unit.trim_end_matches(CLOSING).len()..];
        match goes_on {
            true => drop(out.pop()),
            false => out.push(word.replace("#.#", "#")),
        }
        out.push(format!("s{close}"));
        goes_on = close.is_empty();
    }
    out
}

const OPENING: [char; 6] = ['\'', '"', '(', '[', '<', '`'];
const CLOSING: [char; 10] = ['\'', '"', ')', ']', '>', '`', ',', ';', ':', '.'];

/// A word without its brackets and punctuation.
fn bare(word: &str) -> &str {
    word.trim_start_matches(OPENING).trim_end_matches(CLOSING)
}

/// Whether the next number is a status: after `HTTP`, `HTTP/1.1`, `HTTP status`, `HTTP status code`, `HTTP error`.
fn announces_status(word: &str, was_announced: bool) -> bool {
    let word = bare(word).to_ascii_lowercase();
    let goes_on = ["status", "code", "error", "response"].contains(&word.as_str());
    is_http_version(&word) || (was_announced && goes_on)
}

/// `http`, `https`, `http/1.1`, `http/2`.
fn is_http_version(word: &str) -> bool {
    let (name, version) = word.split_once('/').unwrap_or((word, "1"));
    let is_version = version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    ["http", "https"].contains(&name) && is_version && !version.is_empty()
}

fn is_http_status(word: &str) -> bool {
    word.len() == 3
        && word.bytes().all(|b| b.is_ascii_digit())
        && matches!(word.as_bytes()[0], b'1'..=b'5')
}

fn word_without_particulars(word: &str) -> String {
    let opening = word.len() - word.trim_start_matches(OPENING).len();
    let (open, rest) = word.split_at(opening);
    let trailing = rest.trim_end_matches(CLOSING).len();
    let (inner, close) = rest.split_at(trailing);
    format!("{open}{}{close}", inner_without_particulars(inner))
}

fn inner_without_particulars(inner: &str) -> String {
    if let Some((scheme, rest)) = inner.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        let path = if authority.len() < rest.len() {
            "/…"
        } else {
            ""
        };
        return format!("{scheme}://{authority}{path}");
    }
    // A host name or address keeps its digits: which machine failed is what makes the incident.
    if is_address(inner) {
        return inner.to_owned();
    }
    let lower = inner.to_ascii_lowercase();
    if ALGORITHMS.contains(&lower.as_str()) || is_http_version(&lower) {
        return inner.to_owned();
    }
    // `adler32:01ab34cd`, `md5=…`: the algorithm stays, the checksum is of one file.
    if let Some((algorithm, value)) = inner.split_once([':', '='])
        && ALGORITHMS.contains(&algorithm.to_ascii_lowercase().as_str())
    {
        let separator = &inner[algorithm.len()..inner.len() - value.len()];
        return format!("{algorithm}{separator}#");
    }
    if inner.starts_with('/') && inner.len() > 1 {
        return "/…".to_owned();
    }
    if let Some((key, _)) = inner.split_once("=/") {
        return format!("{key}=/…");
    }
    let mut out = String::with_capacity(inner.len());
    let mut run = String::new();
    for c in inner.chars().chain(std::iter::once('\u{0}')) {
        if c.is_ascii_alphanumeric() {
            run.push(c);
            continue;
        }
        push_run(&mut out, &run);
        run.clear();
        if c != '\u{0}' {
            out.push(c);
        }
    }
    // `#-#-#` is one identifier (a UUID), not five.
    while out.contains("#-#") {
        out = out.replace("#-#", "#");
    }
    out
}

/// Appends letters and digits: as `#` when they look like an identifier, else with only their digits
/// replaced.
fn push_run(out: &mut String, run: &str) {
    let digits = run.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = run.bytes().all(|b| b.is_ascii_hexdigit());
    if digits == 0 {
        out.push_str(run);
    } else if digits == run.len() || (is_hex && run.len() >= 4) || run.len() >= 16 {
        out.push('#');
    } else {
        let mut in_digits = false;
        for c in run.chars() {
            if c.is_ascii_digit() {
                if !in_digits {
                    out.push('#');
                }
                in_digits = true;
            } else {
                out.push(c);
                in_digits = false;
            }
        }
    }
}

/// True for `127.0.0.2`, `127.0.0.2:8443` and `disk07.example.org:8443`.
fn is_address(word: &str) -> bool {
    let (host, port) = word.split_once(':').unwrap_or((word, "0"));
    let dots = host.bytes().filter(|&b| b == b'.').count();
    let named = host
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-');
    let numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    // Two dots at least, so that `file1.root` and `1.5` do not count.
    let looks = if numeric { dots == 3 } else { dots >= 2 };
    !host.is_empty()
        && named
        && looks
        && !port.is_empty()
        && port.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, expected: &str) {
        assert_eq!(without_particulars(given), expected);
    }

    #[test]
    fn http_statuses_and_names_of_algorithms_stay() {
        check("HTTP 403 after 12 s", "HTTP 403 after # s");
        for time in [
            "200 ms",
            "1.5 s",
            "90 s",
            "15 min",
            "2 min 5 s",
            "2 h 30 min",
            "3 days 1 h",
        ] {
            let text = format!("nothing came for {time}; it was given up");
            check(&text, "nothing came for # s; it was given up");
        }
        check("(HTTP 503): try 4", "(HTTP 503): try #");
        check("HTTP/1.1 404 Not Found", "HTTP/1.1 404 Not Found");
        check("HTTP status code: 507", "HTTP status code: 507");
        check("HTTP 4031 of 403 files", "HTTP # of # files");
        check("adler32 is 01ab34cd, not 11ab34ce", "adler32 is #, not #");
        check("md5:0123456789abcdef differs", "md5:# differs");
        check("no SHA-256 of 17 bytes", "no SHA-256 of # bytes");
        for (one, other) in [("HTTP 403", "HTTP 503"), ("md5 differs", "adler32 differs")] {
            assert_ne!(without_particulars(one), without_particulars(other));
        }
    }

    #[test]
    fn what_differs_from_file_to_file_is_dropped_and_the_machine_is_kept() {
        check(
            "https://127.0.0.2:8443/data/run7/file12.root?x=1: no such file",
            "https://127.0.0.2:8443/…: no such file",
        );
        check(
            "connect to 127.0.0.2:8443 refused after 31 s",
            "connect to 127.0.0.2:8443 refused after # s",
        );
        check(
            "pool '/srv/pool3/00ab' is full: 12 of 13 bytes",
            "pool '/…' is full: # of # bytes",
        );
        check(
            "expected adler32 1a2b3c4d, got 00c0ffee",
            "expected adler32 #, got #",
        );
        check(
            "request 0192f0c1-77aa-7bbb-8ccc-0123456789ab lost",
            "request # lost",
        );
        check(
            "local=/data/run.root in pool disk1",
            "local=/… in pool disk#",
        );
        check("too many transfers!", "too many transfers!");
        check(
            "disk07.example.org: no space left",
            "disk07.example.org: no space left",
        );
        check("", "");
    }

    #[test]
    fn long_texts_of_one_cause_are_one_incident_however_long_names_of_files_are() {
        let text = |file: &str| {
            let end = format!("https://se.example.org:8443/data/{file}");
            let words = "is refused ".repeat(20);
            without_particulars(&format!(
                "copying {end} failed: {end} {words}{end} remote={end} {words}"
            ))
        };
        assert_eq!(text("1"), text("a-much-longer-name/12345.root"));
        assert_eq!(text("1").chars().count(), FINGERPRINT_MAX);
    }

    #[test]
    fn one_full_disk_is_one_incident_for_any_number_of_files() {
        let texts: std::collections::BTreeSet<String> = (0..306)
            .map(|n| {
                without_particulars(&format!(
                    "/hpss/tape-sc4/f{n}.root: no space left, {n} bytes free"
                ))
            })
            .collect();
        assert_eq!(texts.len(), 1);
    }
}
