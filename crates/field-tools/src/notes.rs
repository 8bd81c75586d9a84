//! Notes that a command leaves for the next one: small files of one user in one directory, each found by its key.

use penstock_model::{Checksum, ChecksumAlgorithm};
use penstock_protocol::checksum::Hasher;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Storage elements keep what is unfinished for a day; some may for longer.
const KEPT_FOR: Duration = Duration::from_secs(8 * 86_400);
/// Notes that are looked at to remove old ones.
const LOOKED_AT_MAX: usize = 10_000;
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// The notes in one directory.
#[derive(Debug, Clone)]
pub(crate) struct Notes {
    directory: PathBuf,
}

impl Notes {
    /// Makes the directory where it is missing, and removes old notes.
    pub(crate) fn open(directory: PathBuf) -> io::Result<Notes> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        let now = SystemTime::now();
        for entry in fs::read_dir(&directory)?.take(LOOKED_AT_MAX).flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|at| now.duration_since(at).ok());
            if age.is_some_and(|age| age > KEPT_FOR) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(Notes { directory })
    }

    /// The note with a key. `None`: there is none, or none that can be read.
    pub(crate) fn read<T: DeserializeOwned>(&self, key: &[u8]) -> Option<T> {
        let mut text = String::new();
        let file = fs::File::open(self.place(key)).ok()?;
        file.take(NOTE_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write<T: Serialize>(&self, key: &[u8], note: &T) -> io::Result<()> {
        let text = serde_json::to_string_pretty(note).map_err(io::Error::other)?;
        let path = self.place(key);
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&beside, &path)
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        let _ = fs::remove_file(self.place(key));
    }

    fn place(&self, key: &[u8]) -> PathBuf {
        let name = short_name(key);
        self.directory.join(name).with_extension("json")
    }
}

/// 32 hexadecimal digits that no other bytes have.
pub(crate) fn short_name(bytes: &[u8]) -> String {
    let mut hasher = Hasher::new(&[ChecksumAlgorithm::Sha256]);
    hasher.update(bytes);
    let sums = hasher.finish();
    let digits = sums.first().map(Checksum::hex).unwrap_or_default();
    digits.chars().take(32).collect()
}
