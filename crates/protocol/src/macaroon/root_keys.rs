//! The secrets that begin every macaroon's chain: a file with one key a line, the newest first.
//!
//! [`RootKeys::rotate`] puts a new line on top, below a comment that tells since when it counts, and removes lines that
//! no living macaroon needs. To make all macaroons of a key worthless at once, remove its line.

use super::chain::SIGNATURE_BYTES;
use super::hex;
use penstock_durable_file::replace_private;
use penstock_model::Timestamp;
use penstock_model::key_file::{KeyFile, TooManyKeys};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// How much longer than the longest macaroon an old key is kept, because clocks differ.
const KEPT_LONGER: Duration = Duration::from_secs(3600);

/// Root keys, the newest first; at least one. Each is tried for a macaroon that none of the earlier ones made.
#[derive(Clone)]
pub struct RootKeys {
    keys: Vec<[u8; SIGNATURE_BYTES]>,
}

/// Why there are no root keys.
#[derive(Debug, Error)]
pub enum RootKeyError {
    /// The file cannot be read or made.
    #[error("macaroon root keys {path}: {why}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// What it holds is no list of keys.
    #[error("macaroon root keys {path}: {why}; each line is 64 hex digits, the newest first", path = .path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong, without the key.
        why: &'static str,
    },
}

impl RootKeys {
    /// Reads a file. `None`: there is none, so this site issues no macaroons.
    pub fn load(path: &Path) -> Result<Option<RootKeys>, RootKeyError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => {
                let path = path.to_owned();
                return Err(RootKeyError::File { path, why });
            }
        };
        let keys = RootKeys::parse(&text).map_err(|why| RootKeyError::Content {
            path: path.to_owned(),
            why,
        })?;
        Ok(Some(keys))
    }

    /// From the text of such a file ([`KeyFile::parse`]).
    pub fn parse(text: &str) -> Result<RootKeys, &'static str> {
        let keys = KeyFile::parse(text)?.keys().collect();
        Ok(RootKeys { keys })
    }

    /// Makes a file with one new key that only its owner can read (mode 0600). Never overwrites.
    pub fn create(path: &Path) -> Result<(), RootKeyError> {
        let write = || {
            let mut key = [0; SIGNATURE_BYTES];
            openssl::rand::rand_bytes(&mut key).map_err(io::Error::other)?;
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?;
            file.write_all(format!("{}\n", hex(&key)).as_bytes())?;
            file.sync_all()
        };
        write().map_err(|why| RootKeyError::File {
            path: path.to_owned(),
            why,
        })
    }

    /// Puts a new key on top of a file, and removes those whose last macaroon, of at most `validity_max`, has ended.
    /// The file is replaced in one step; macaroons of the keys that stay go on. Gives the number of removed keys.
    ///
    /// Errors: there is no such file, it holds no keys, or 8 of them are still needed.
    pub fn rotate(
        path: &Path,
        now: Timestamp,
        validity_max: Duration,
    ) -> Result<usize, RootKeyError> {
        let file = |why: io::Error| RootKeyError::File {
            path: path.to_owned(),
            why,
        };
        let content = |why| RootKeyError::Content {
            path: path.to_owned(),
            why,
        };
        let text = std::fs::read_to_string(path).map_err(file)?;
        let keys = KeyFile::parse(&text).map_err(content)?;
        let mut key = [0; SIGNATURE_BYTES];
        openssl::rand::rand_bytes(&mut key).map_err(|why| file(io::Error::other(why)))?;
        let is_needed = |_: &_, superseded: Option<Timestamp>| {
            superseded.is_none_or(|at| now < at + validity_max + KEPT_LONGER)
        };
        let rotated = keys.rotated(key, now, is_needed);
        let (rotated, removed) = rotated.map_err(|TooManyKeys| {
            content("8 keys are still needed; rotate again when the oldest have ended")
        })?;
        // Macaroons are made with the new key from now on: a loss of power must not bring the old file back.
        replace_private(path, &rotated.to_string()).map_err(file)?;
        Ok(removed)
    }

    /// Names the keys without telling them, the newest first: 8 hex digits of each one's SHA-256.
    pub fn names(&self) -> Vec<String> {
        let name = |key: &[u8; SIGNATURE_BYTES]| hex(&openssl::sha::sha256(key)[..4]);
        self.keys.iter().map(name).collect()
    }

    pub(super) fn newest(&self) -> &[u8] {
        &self.keys[0]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(<[u8; SIGNATURE_BYTES]>::as_slice)
    }
}

impl fmt::Debug for RootKeys {
    /// Secrets stay out of logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RootKeys({} keys)", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_key_is_kept_until_its_last_macaroon_has_ended() {
        let hour = Duration::from_secs(3600);
        let begin = Timestamp(1_795_241_992_000);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("macaroon-root");
        RootKeys::create(&path).expect("made");
        let keys_after = |hours: u32| {
            let removed =
                RootKeys::rotate(&path, begin + hour * hours, hour * 12).expect("rotated");
            let names = RootKeys::load(&path).expect("read").expect("there").names();
            (names, removed)
        };
        let first = RootKeys::load(&path).expect("read").expect("there").names();
        let (second, _) = keys_after(0);
        assert_eq!(
            (second.len(), &second[1]),
            (2, &first[0]),
            "the newest first"
        );
        assert_eq!(keys_after(10).0.len(), 3);
        // The first was superseded at 0 h, the second at 10 h, the third just now.
        let (fourth, removed) = keys_after(14);
        assert_eq!((fourth.len(), removed), (3, 1));
        assert!(!fourth.contains(&first[0]));
        let (fifth, removed) = keys_after(24);
        assert_eq!((fifth.len(), removed), (3, 1));
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&path).expect("there").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_key_of_unknown_age_is_kept_and_there_are_never_more_than_eight() {
        let (now, hour) = (Timestamp(1_795_241_992_000), Duration::from_secs(3600));
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("keys");
        let old = format!("# mine\n{}\n", "aa".repeat(32));
        std::fs::write(&path, old).expect("written");
        for _ in 0..7 {
            RootKeys::rotate(&path, now, hour).expect("rotated");
        }
        let before = std::fs::read(&path).expect("read");
        let refused = RootKeys::rotate(&path, now, hour).expect_err("eight are needed");
        assert!(
            refused.to_string().contains("8 keys are still needed"),
            "{refused}"
        );
        assert_eq!(std::fs::read(&path).expect("read"), before);
    }
}
