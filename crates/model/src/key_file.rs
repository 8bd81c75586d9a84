//! A file of secret keys as text: one key a line in hex, the newest first, each below a comment that tells since when it is in
//! use. What the keys are for, and which of them are still needed, is the matter of whoever keeps the file.

use crate::Timestamp;
use crate::text::hex;
use std::fmt;
use thiserror::Error;

pub const KEY_BYTES: usize = 32;
/// Keys that a file may hold.
pub const KEYS_MAX: usize = 8;
/// Before each key, when it was made.
const SINCE: &str = "# since ";

/// The content of such a file: at least one key and at most [`KEYS_MAX`].
pub struct KeyFile(Vec<Line>);

enum Line {
    Key {
        bytes: [u8; KEY_BYTES],
        made: Option<Timestamp>,
    },
    Comment(String),
}

/// All keys of a full file are still needed.
#[derive(Debug, Error)]
#[error("8 keys are still needed")]
pub struct TooManyKeys;

impl KeyFile {
    /// Lines that are empty or begin with `#` are no keys. Errors: why it is no list of keys, without a key.
    pub fn parse(text: &str) -> Result<KeyFile, &'static str> {
        let (mut lines, mut made) = (Vec::new(), None);
        for line in text.lines().map(str::trim) {
            if let Some(at) = line.strip_prefix(SINCE).and_then(time_of) {
                made = Some(at);
            } else if line.starts_with('#') {
                lines.push(Line::Comment(line.to_owned()));
            } else if !line.is_empty() {
                let bytes = from_hex(line).ok_or("a line is not a key")?;
                let made = made.take();
                lines.push(Line::Key { bytes, made });
            }
        }
        let file = KeyFile(lines);
        match file.keys().count() {
            0 => Err("it holds no key"),
            1..=KEYS_MAX => Ok(file),
            _ => Err("it holds more than 8 keys"),
        }
    }

    /// The newest first.
    pub fn keys(&self) -> impl Iterator<Item = [u8; KEY_BYTES]> {
        self.0.iter().filter_map(|line| match line {
            Line::Key { bytes, .. } => Some(*bytes),
            Line::Comment(_) => None,
        })
    }

    /// The file with a new key on top, and without the keys that are not needed any more; and how many these were.
    /// `is_needed` is asked for each key with the time at which the next newer one took its place, when that is known.
    ///
    /// Errors: too many are still needed.
    pub fn rotated(
        self,
        bytes: [u8; KEY_BYTES],
        now: Timestamp,
        is_needed: impl Fn(&[u8; KEY_BYTES], Option<Timestamp>) -> bool,
    ) -> Result<(KeyFile, usize), TooManyKeys> {
        let newest = Line::Key {
            bytes,
            made: Some(now),
        };
        let (mut lines, mut removed) = (vec![newest], 0);
        let mut superseded = Some(now);
        for line in self.0 {
            if let Line::Key { bytes, made } = &line {
                let is_needed = is_needed(bytes, superseded);
                superseded = *made;
                if !is_needed {
                    removed += 1;
                    continue;
                }
            }
            lines.push(line);
        }
        let file = KeyFile(lines);
        match file.keys().count() <= KEYS_MAX {
            true => Ok((file, removed)),
            false => Err(TooManyKeys),
        }
    }
}

impl fmt::Display for KeyFile {
    /// The text of the file. A secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.0 {
            match line {
                Line::Comment(text) => writeln!(out, "{text}")?,
                Line::Key { bytes, made } => {
                    if let Some(at) = made {
                        writeln!(out, "{SINCE}{} ({}Z)", at.unix_seconds(), at.to_fts())?;
                    }
                    writeln!(out, "{}", hex(bytes))?;
                }
            }
        }
        Ok(())
    }
}

/// Seconds since 1970, before what people read.
fn time_of(told: &str) -> Option<Timestamp> {
    let seconds: i64 = told.split(' ').next()?.parse().ok()?;
    Some(Timestamp(seconds.saturating_mul(1000)))
}

fn from_hex(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits: Vec<u32> = text
        .chars()
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] * 16 + pair[1]) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_241_992_000);

    fn key(digits: &str) -> [u8; KEY_BYTES] {
        from_hex(&digits.repeat(KEY_BYTES)).expect("a key")
    }

    #[test]
    fn a_file_that_is_no_list_of_keys_is_refused() {
        let nine = format!("{}\n", "00".repeat(32)).repeat(9);
        for text in ["", "# none\n", "12\n", &"zz".repeat(32), &nine] {
            assert!(KeyFile::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_key_is_judged_by_the_time_when_the_next_newer_one_took_its_place() {
        let (a, b, c) = ("aa".repeat(32), "bb".repeat(32), "cc".repeat(32));
        let text = format!("# mine\n# since 1795000000 (x)\n{a}\n\n{b}\n# since soon\n{c}\n");
        let file = KeyFile::parse(&text).expect("three keys");
        let superseded = |bytes: &[u8; KEY_BYTES], at: Option<Timestamp>| {
            assert_eq!(
                at,
                match bytes[0] {
                    0xaa => Some(NOW),
                    0xbb => Some(Timestamp(1_795_000_000_000)),
                    _ => None,
                }
            );
            bytes[0] != 0xbb
        };
        let (file, removed) = file.rotated(key("dd"), NOW, superseded).expect("room");
        assert_eq!(removed, 1);
        let d = "dd".repeat(32);
        let expected = format!(
            "# since 1795241992 (2026-11-21T06:19:52Z)\n{d}\n# mine\n\
             # since 1795000000 (2026-11-18T11:06:40Z)\n{a}\n# since soon\n{c}\n"
        );
        assert_eq!(file.to_string(), expected);
    }

    #[test]
    fn a_key_that_is_needed_is_never_pushed_out() {
        let text = format!("{}\n", "aa".repeat(32)).repeat(KEYS_MAX);
        let file = || KeyFile::parse(&text).expect("eight keys");
        assert!(file().rotated(key("bb"), NOW, |_, _| true).is_err());
        let room = file().rotated(key("bb"), NOW, |_, at| at.is_some());
        assert_eq!(room.ok().map(|(_, removed)| removed), Some(7));
    }
}
