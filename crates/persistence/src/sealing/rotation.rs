//! Changing the newest key while the service runs: a new line on top, and away with lines that nobody needs.

use penstock_durable_file::replace_private;

use super::{Key, SealingError, SealingKeys, hex};
use openssl::rand::rand_bytes;
use penstock_model::Timestamp;
use penstock_model::key_file::{KEY_BYTES, KeyFile, TooManyKeys};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

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
        let keys = KeyFile::parse(&text).map_err(content)?;
        let mut key = [0; KEY_BYTES];
        rand_bytes(&mut key)?;
        let unused = keys.keys().map(Key::new).collect::<Result<Vec<_>, _>>()?;
        let unused: BTreeSet<_> = unused
            .iter()
            .filter(|key| !used.contains_key(&hex(&key.name)))
            .map(|key| key.bytes)
            .collect();
        let is_needed = |key: &[u8; KEY_BYTES], superseded: Option<Timestamp>| {
            superseded.is_none_or(|at| now < at + KEPT) || !unused.contains(key)
        };
        let too_many = "8 keys are still needed; let the service seal anew what the oldest have sealed, then rotate \
                        again";
        let rotated = keys.rotated(key, now, is_needed);
        let (rotated, removed) = rotated.map_err(|TooManyKeys| content(too_many))?;
        replace_private(path, &rotated.to_string()).map_err(file)?;
        Ok(removed)
    }
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
