//! How far a sink was told: the sequence number of a ledger entry, in a small file that is replaced as a whole, or in
//! the database beside the ledger. Calls block.

use penstock_persistence::positions::SinkPositions;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(super) enum PositionStore {
    File(PathBuf),
    Database {
        positions: Arc<SinkPositions>,
        sink: String,
    },
}

impl PositionStore {
    /// `None` when it was never told anything. Errors: a file that holds something else; the database.
    pub(super) fn read(&self) -> io::Result<Option<u64>> {
        match self {
            PositionStore::File(file) => read(file),
            PositionStore::Database { positions, sink } => {
                positions.read(sink).map_err(io::Error::other)
            }
        }
    }

    /// Whole or not at all, and durable when it returns well.
    pub(super) fn write(&self, at: u64) -> io::Result<()> {
        match self {
            PositionStore::File(file) => write(file, at),
            PositionStore::Database { positions, sink } => {
                positions.write(sink, at).map_err(io::Error::other)
            }
        }
    }
}

fn read(file: &Path) -> io::Result<Option<u64>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(why),
    };
    let number = text.trim().parse();
    number.map(Some).map_err(|_| {
        let text = format!("{} holds no number", file.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn write(file: &Path, at: u64) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut out: File = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    out.write_all(format!("{at}\n").as_bytes())?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    match file.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_nonsense_is_told() {
        let at = std::env::temp_dir().join(format!("position-{}", std::process::id()));
        let position = PositionStore::File(at.clone());
        assert!(position.read().expect("nothing there").is_none());
        for number in [0, 7, u64::MAX] {
            position.write(number).expect("written");
            assert_eq!(position.read().expect("read"), Some(number));
        }
        for nonsense in ["seven", ""] {
            fs::write(&at, nonsense).expect("written");
            let error = position.read().expect_err("no number");
            assert_eq!(
                error.kind(),
                io::ErrorKind::InvalidData,
                "it is told anew from the oldest"
            );
        }
        fs::remove_file(&at).expect("removed");
    }
}
