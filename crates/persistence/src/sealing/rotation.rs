//! Changing the newest key while the service runs: a new line on top, and away with lines that nobody needs.

use penstock_durable_file::replace_private;

use super::{KEY_BYTES, Key, SealingError, SealingKeys, from_hex, hex, parse};
use openssl::rand::rand_bytes;
use penstock_model::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Before each key, when it was made.
const SINCE: &str = "# since ";
/// A running service sees a new key within seconds; until then it seals with the one before. That one is kept for so
/// long at least, whatever it has sealed so far.
const KEPT: Duration = Duration::from_secs(3600);

impl SealingKeys {
    /// Puts a new key on top of a file, and removes those that have sealed nothing of what is stored (`used`: secrets
    /// by the name of their key) and were superseded an hour ago. The file is replaced in one step. Gives the number
    /// of removed keys.
    ///
    /// Errors: there is no such file, it holds no keys, or 8 of them are still needed.
    pub fn rotate(
        path: &Path,
        now: Timestamp,
        used: &BTreeMap<String, u64>,
    ) -> Result<usize, SealingError> {
        let content = |why| SealingError::Content {
            path: path.to_owned(),
            why,
        };
        let file = |why| SealingError::File {
            path: path.to_owned(),
            why,
        };
        let text = fs::read_to_string(path).map_err(file)?;
        parse(&text)?.map_err(content)?;
        let mut key = [0; KEY_BYTES];
        rand_bytes(&mut key)?;
        let (rotated, removed) = rotated(&text, &hex(&key), now, used)?;
        let too_many = "8 keys are still needed; let the service seal anew what the oldest have sealed, then rotate \
                        again";
        parse(&rotated)?.map_err(|_| content(too_many))?;
        replace_private(path, &rotated).map_err(file)?;
        Ok(removed)
    }
}

/// The text of the file with a new key on top and without what nobody needs, and how many keys that were.
fn rotated(
    text: &str,
    key: &str,
    now: Timestamp,
    used: &BTreeMap<String, u64>,
) -> Result<(String, usize), SealingError> {
    let since = |at: Timestamp| format!("{SINCE}{} ({}Z)\n", at.unix_seconds(), at.to_fts());
    let mut out = format!("{}{key}\n", since(now));
    let (mut made, mut removed) = (None, 0);
    // When the next older key ceased to seal.
    let mut superseded = Some(now);
    for line in text.lines().map(str::trim) {
        if let Some(told) = line.strip_prefix(SINCE) {
            let seconds = told.split(' ').next().and_then(|word| word.parse().ok());
            made = seconds.map(|seconds: i64| Timestamp(seconds.saturating_mul(1000)));
        } else if let Some(bytes) = from_hex(line) {
            let name = hex(&Key::new(bytes)?.name);
            let is_fresh = superseded.is_none_or(|at| now < at + KEPT);
            match is_fresh || used.contains_key(&name) {
                true => out += &format!("{}{line}\n", made.map(since).unwrap_or_default()),
                false => removed += 1,
            }
            superseded = made.take();
        } else if !line.is_empty() {
            out += &format!("{line}\n");
        }
    }
    Ok((out, removed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn a_key_goes_when_it_is_old_and_nothing_is_sealed_with_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("keys");
        SealingKeys::create(&path).expect("made");
        let first = SealingKeys::names(&path).expect("named").remove(0);
        let nothing = BTreeMap::new();
        let rotate = |at, used: &BTreeMap<String, u64>| {
            let removed = SealingKeys::rotate(&path, Timestamp(at), used).expect("rotated");
            let names = SealingKeys::names(&path).expect("named");
            (removed, names.len(), names.contains(&first))
        };
        let begin = 1_800_000_000_000;
        // The first has sealed until now, whatever the databases say.
        assert_eq!(rotate(begin, &nothing), (0, 2, true));
        assert_eq!(rotate(begin + HOUR / 2, &nothing), (0, 3, true));
        let used = BTreeMap::from([(first.clone(), 1)]);
        assert_eq!(rotate(begin + 2 * HOUR, &used), (1, 3, true));
        assert_eq!(rotate(begin + 4 * HOUR, &nothing), (2, 2, false));
    }

    #[test]
    fn a_key_that_is_needed_is_never_pushed_out() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("keys");
        SealingKeys::create(&path).expect("made");
        let now = Timestamp(1_800_000_000_000);
        for _ in 0..7 {
            SealingKeys::rotate(&path, now, &BTreeMap::new()).expect("rotated");
        }
        let before = fs::read_to_string(&path).expect("readable");
        let refused = SealingKeys::rotate(&path, now, &BTreeMap::new());
        assert!(matches!(refused, Err(SealingError::Content { .. })));
        assert_eq!(fs::read_to_string(&path).expect("readable"), before);
    }
}
