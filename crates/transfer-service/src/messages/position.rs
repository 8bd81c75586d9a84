//! How far a sink was told: the sequence number of a ledger entry, in a small file that is replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

pub(super) struct Position {
    file: PathBuf,
}

impl Position {
    pub(super) fn at(file: PathBuf) -> Position {
        Position { file }
    }

    /// `None` when it was never told anything. Errors: a file that holds something else.
    pub(super) fn read(&self) -> io::Result<Option<u64>> {
        let text = match fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(why),
        };
        let number = text.trim().parse();
        number.map(Some).map_err(|_| {
            let text = format!("{} holds no number", self.file.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    /// Whole or not at all. Durable with the file system's next flush: after a loss of power some are told again.
    pub(super) fn write(&self, at: u64) -> io::Result<()> {
        let new = self.file.with_extension("new");
        let mut file: File = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(format!("{at}\n").as_bytes())?;
        fs::rename(&new, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_nonsense_is_told() {
        let at = std::env::temp_dir().join(format!("position-{}", std::process::id()));
        let position = Position::at(at.clone());
        assert!(position.read().expect("nothing there").is_none());
        for number in [0, 7, u64::MAX] {
            position.write(number).expect("written");
            assert_eq!(position.read().expect("read"), Some(number));
        }
        fs::write(&at, "seven").expect("written");
        assert!(position.read().is_err());
        fs::remove_file(&at).expect("removed");
    }
}
