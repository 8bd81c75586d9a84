//! Lists of files to move, as bulk testers keep them: one `source destination [checksum]` per line.
//!
//! Parses text; does not open files and does not ask whether a source exists.

use penstock_model::url::InvalidUrl;
use penstock_model::{Checksum, FileUrl};
use std::collections::HashMap;
use thiserror::Error;

/// Lines that one list may have. Beyond that, split it: each list becomes jobs of bounded size anyway.
pub const ENTRIES_MAX: usize = 1_000_000;

/// One file to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub source: FileUrl,
    /// Where it goes.
    pub destination: FileUrl,
    /// What its content must be.
    pub checksum: Option<Checksum>,
}

/// Characters of a bad line that are shown.
const SHOWN_MAX: usize = 100;

/// Why a list cannot be used. Names the line, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidList {
    /// Too few or too many words.
    #[error("line {line}: expected 'source destination [checksum]', found '{text}'")]
    Words {
        line: usize,
        /// Its beginning.
        text: String,
    },
    /// A URL that cannot be moved from or to.
    #[error("line {line}: {why}")]
    Url {
        line: usize,
        /// What is wrong with it.
        why: InvalidUrl,
    },
    /// Neither `adler32:…` nor another known algorithm, or not hex.
    #[error(
        "line {line}: '{text}' is not a checksum; write ALGORITHM:hex, for example adler32:1a2b3c4d \
         (adler32, crc32c, md5, sha-256)"
    )]
    Checksum {
        line: usize,
        /// What stands there.
        text: String,
    },
    /// Two lines that would write one file.
    #[error("line {line}: line {first} has the same destination")]
    Repeated {
        /// The later line.
        line: usize,
        /// The earlier one.
        first: usize,
    },
    /// No line names a file.
    #[error("the list is empty; each line is 'source destination [checksum]'")]
    Empty,
    /// More than [`ENTRIES_MAX`].
    #[error("the list has more than {ENTRIES_MAX} files; split it")]
    TooLong,
}

/// Reads a whole list. Blank lines and lines that begin with `#` are skipped.
pub fn parse(text: &str) -> Result<Vec<Entry>, InvalidList> {
    let mut entries = Vec::new();
    let mut written_by: HashMap<FileUrl, usize> = HashMap::new();
    for (index, content) in text.lines().enumerate() {
        let line = index + 1;
        let words: Vec<&str> = content.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let entry = parse_entry(line, &words)?;
        if let Some(first) = written_by.insert(entry.destination.clone(), line) {
            return Err(InvalidList::Repeated { line, first });
        }
        entries.push(entry);
        if entries.len() > ENTRIES_MAX {
            return Err(InvalidList::TooLong);
        }
    }
    if entries.is_empty() {
        return Err(InvalidList::Empty);
    }
    Ok(entries)
}

fn parse_entry(line: usize, words: &[&str]) -> Result<Entry, InvalidList> {
    let (source, destination, checksum) = match words {
        [source, destination] => (source, destination, None),
        [source, destination, checksum] => (source, destination, Some(checksum)),
        _ => {
            return Err(InvalidList::Words {
                line,
                text: words.join(" ").chars().take(SHOWN_MAX).collect(),
            });
        }
    };
    let url = |text: &str| FileUrl::parse(text).map_err(|why| InvalidList::Url { line, why });
    let checksum = checksum
        .map(|text| {
            Checksum::parse(text).ok_or_else(|| InvalidList::Checksum {
                line,
                text: (*text).to_owned(),
            })
        })
        .transpose()?;
    Ok(Entry {
        source: url(source)?,
        destination: url(destination)?,
        checksum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &str, expected: &str) {
        let got = match parse(list) {
            Ok(entries) => entries
                .iter()
                .map(|entry| {
                    let checksum = entry
                        .checksum
                        .as_ref()
                        .map(|c| format!(" {c}"))
                        .unwrap_or_default();
                    format!("{} -> {}{checksum}", entry.source, entry.destination)
                })
                .collect::<Vec<_>>()
                .join("; "),
            Err(why) => why.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn comments_blank_lines_and_any_white_space_are_fine() {
        check(
            "# a list\n\n  https://a/f \t davs://b/f\r\n   # more\nhttps://a/g https://b/g ADLER32:1A2B\n",
            "https://a/f -> davs://b/f; https://a/g -> https://b/g adler32:00001a2b",
        );
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        check(
            "\nhttps://a/f",
            "line 2: expected 'source destination [checksum]', found 'https://a/f'",
        );
        check(
            "https://a/f https://b/f md5:1 more",
            "line 1: expected 'source destination [checksum]', found 'https://a/f https://b/f md5:1 more'",
        );
        check(
            "https://a/f https://b/f\nhttps://a/g ftp://b/g",
            "line 2: 'ftp://b/g': scheme 'ftp' is not supported; use one of https, davs, http, dav, \
             gsiftp, root, roots, xroot, xroots, srm, sftp, s3s, s3, gclouds, gcloud",
        );
        check(
            "https://a/f https://b/f rot13:12",
            "line 1: 'rot13:12' is not a checksum; write ALGORITHM:hex, for example adler32:1a2b3c4d \
             (adler32, crc32c, md5, sha-256)",
        );
    }

    #[test]
    fn two_lines_cannot_write_one_file() {
        check(
            "https://a/f https://b/f\n#\nhttps://a/g https://b/f",
            "line 3: line 1 has the same destination",
        );
    }

    #[test]
    fn a_list_without_files_is_refused() {
        check(
            "# nothing\n",
            "the list is empty; each line is 'source destination [checksum]'",
        );
    }
}
