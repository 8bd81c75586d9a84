//! What a storage element's last line says of a third-party copy that failed. There is nothing but words to go by
//! (draft-http-tpc names only the prefix); those of dCache, StoRM, XRootD and our own door are understood.

/// Words by which servers announce the status that another one answered.
const BEFORE_STATUS: [&str; 7] = ["answered", "code", "error", "put", "get", "head", "status"];

/// Why a copy failed, as far as its last line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyCause {
    /// The destination has appeared since it was looked at. Taking too much for it leaves a partial file, taking too
    /// little removes somebody else's.
    Exists,
    /// What arrived has not the checksum that was expected.
    ChecksumMismatch,
    /// The passive end answered with this status.
    Refused(u16),
    /// The destination itself does not know whether it has the file.
    Unsettled,
    /// Permission is missing, it does not say where.
    Denied,
    /// A file or directory is missing, it does not say where.
    Missing,
    /// None of these.
    Unknown,
}

impl CopyCause {
    /// Reads the text behind `failure:` or `aborted:`.
    pub fn read(text: &str) -> CopyCause {
        // Names of files are their users' and may say anything.
        let words: Vec<String> = text
            .split_whitespace()
            .filter(|word| !is_name(word))
            .map(|word| {
                let word = word.trim_matches(|char: char| !char.is_alphanumeric());
                word.to_ascii_lowercase()
            })
            .collect();
        let said = words.join(" ");
        let says = |any: &[&str]| any.iter().any(|words| said.contains(words));
        if says(&["not known whether"]) {
            return CopyCause::Unsettled;
        }
        let speaks_of_sums = says(&["checksum", "digest"]);
        if speaks_of_sums && says(&["mismatch", "not match", "differ"]) {
            return CopyCause::ChecksumMismatch;
        }
        match status_in(&words) {
            Some(412) => return CopyCause::Exists,
            Some(409) if says(&["exists", "already exist"]) => return CopyCause::Exists,
            Some(status) => return CopyCause::Refused(status),
            None => {}
        }
        if says(&["no such file"]) {
            CopyCause::Missing
        } else if says(&["exists", "already exist"]) {
            CopyCause::Exists
        } else if says(&["permission denied", "not authorized", "access denied"]) {
            CopyCause::Denied
        } else {
            CopyCause::Unknown
        }
    }
}

fn is_name(word: &str) -> bool {
    let word = word.trim_start_matches(['\'', '"', '(', '[']);
    word.starts_with('/') || word.contains("://") || word.contains("=/")
}

/// The status of an error, when it stands where servers write it or before its phrase (RFC 9110 §15).
fn status_in(words: &[String]) -> Option<u16> {
    words.iter().enumerate().find_map(|(at, word)| {
        let status: u16 = word.parse().ok().filter(|_| word.len() == 3)?;
        if !(400..600).contains(&status) {
            return None;
        }
        let before = at.checked_sub(1).map(|at| words[at].as_str());
        let is_announced = before.is_some_and(|word| BEFORE_STATUS.contains(&word));
        let after = words.get(at + 1).map(String::as_str);
        (is_announced || after.is_some_and(|word| phrase_of(status) == Some(word)))
            .then_some(status)
    })
}

/// The first word of a reason phrase.
fn phrase_of(status: u16) -> Option<&'static str> {
    let word = match status {
        400 => "bad",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not",
        405 => "method",
        409 => "conflict",
        412 => "precondition",
        429 => "too",
        500 => "internal",
        502 => "bad",
        503 => "service",
        504 => "gateway",
        507 => "insufficient",
        _ => return None,
    };
    Some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: CopyCause) {
        assert_eq!(CopyCause::read(text), expected, "{text}");
    }

    #[test]
    fn a_file_that_has_appeared_is_told_from_other_failures() {
        for text in [
            "/data/f exists",
            "https://se/f exists and 'Overwrite: F' forbids replacing it",
            "https://se/f answered 412 Precondition Failed; local=/f in pool disk1",
            "Transfer failed: File exists",
            "rejected PUT: 409 the file already exists",
        ] {
            check(text, CopyCause::Exists);
        }
        check("No such file or directory", CopyCause::Missing);
        check("/data/f does not exist", CopyCause::Unknown);
    }

    #[test]
    fn a_wrong_checksum_is_not_a_file_that_exists() {
        for text in [
            "checksum mismatch: expected adler32:00000001, got adler32:00000002",
            "https://se/f answered 412 Precondition Failed: checksum mismatch: expected adler32:1, got adler32:2; the \
             file was removed; local=/f in pool disk1, remote=https://se/f, 9 bytes moved",
            "Checksums do not match",
        ] {
            check(text, CopyCause::ChecksumMismatch);
        }
    }

    #[test]
    fn the_status_of_the_other_end_is_found() {
        for (text, status) in [
            (
                "https://se/f answered 403 Forbidden: no right to write /f",
                403,
            ),
            ("rejected PUT: 409 Conflict", 409),
            ("rejected GET: 404 Not Found", 404),
            (
                "Remote side failed with status code 401; error message: \"x\"",
                401,
            ),
            ("The requested URL returned error: 503", 503),
            (
                "HTTP library failure=HTTP response 507 Insufficient Storage",
                507,
            ),
        ] {
            check(text, CopyCause::Refused(status));
        }
        check("moved 412 of 507 bytes", CopyCause::Unknown);
        check("open failed: Permission denied", CopyCause::Denied);
    }

    #[test]
    fn a_destination_that_does_not_know_is_believed() {
        for text in [
            "the namespace database failed in a commit, so it is not known whether the change was made: disk I/O error",
            "the namespace did not answer for 300 s, so it is not known whether the file was written; remote=https://x",
        ] {
            check(text, CopyCause::Unsettled);
        }
        check("'/not/known/whether' broke off", CopyCause::Unknown);
    }

    #[test]
    fn names_of_files_say_nothing() {
        check(
            "https://se/it/exists/403 answered 500 Internal Server Error; local=/f/exists in pool d",
            CopyCause::Refused(500),
        );
        check("'/checksum/mismatch' broke off", CopyCause::Unknown);
    }
}
