//! How far a sink was told: the sequence number of a ledger entry, in a small file that is replaced as a whole, or in
//! the database beside the ledger. Calls block.

use penstock_durable_file::replace_private;
use penstock_persistence::positions::SinkPositions;
use std::fs;
use std::io;
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
            PositionStore::File(file) => replace_private(file, &format!("{at}\n")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn what_a_crash_left_beside_it_makes_it_readable_for_nobody_else() {
        let directory = tempfile::tempdir().expect("made");
        let at = directory.path().join("position");
        let left = directory.path().join("position.new");
        fs::write(&left, "1").expect("written");
        fs::set_permissions(&left, Permissions::from_mode(0o644)).expect("set");
        PositionStore::File(at.clone()).write(7).expect("written");
        let mode = fs::metadata(&at).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
