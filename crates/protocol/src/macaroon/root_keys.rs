//! The secrets that begin every macaroon's chain: a file with one key a line, the newest first.
//!
//! To change the key, put a new line on top; to make all macaroons of an old key worthless, remove its line.

use super::chain::SIGNATURE_BYTES;
use super::hex;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Keys that a file may hold: each is tried for a macaroon that none of the earlier ones made.
const KEYS_MAX: usize = 8;

/// Root keys, the newest first; at least one.
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

    /// From the text of such a file. Lines that are empty or begin with `#` do not count.
    pub fn parse(text: &str) -> Result<RootKeys, &'static str> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<_> = lines
            .map(|line| from_hex(line).ok_or("a line is no key"))
            .collect::<Result<_, _>>()?;
        match keys.len() {
            0 => Err("it holds no key"),
            1..=KEYS_MAX => Ok(RootKeys { keys }),
            _ => Err("it holds more than 8 keys"),
        }
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

fn from_hex(text: &str) -> Option<[u8; SIGNATURE_BYTES]> {
    let digits: Vec<u32> = text
        .chars()
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    if digits.len() != 2 * SIGNATURE_BYTES {
        return None;
    }
    let mut key = [0; SIGNATURE_BYTES];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] * 16 + pair[1]) as u8;
    }
    Some(key)
}
