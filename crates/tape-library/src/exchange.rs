//! Where the bytes of files come from and go to.

use penstock_tape::request::FileId;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

/// Which way a file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyDirection {
    ToTape,
    FromTape,
}

/// The disk side of a library. Calls come from threads of drives, several at a time.
pub trait FileExchange: Send + Sync + 'static {
    /// The bytes of a file that is to be written to tape. An error while they are read is one of the file; one that is told with the
    /// last of them keeps it from being written, too.
    fn source(&self, file: FileId) -> io::Result<Box<dyn Read + Send>>;

    /// Where a file from tape is to go: empty, and open at its beginning. It may be asked for again when a read was stopped or has
    /// failed.
    fn destination(&self, file: FileId) -> io::Result<File>;

    /// All bytes have been written to the destination, and are those that were written to tape. The file is reported as read
    /// after this has returned. `InvalidData` says that they are not those of the file: then the copy on tape is at fault, and else
    /// the disk.
    fn received(&self, file: FileId, destination: File, crc32c: u32) -> io::Result<()>;
}

/// Files by their paths. What was received is on disk before it is reported.
impl<F> FileExchange for F
where
    F: Fn(FileId, CopyDirection) -> PathBuf + Send + Sync + 'static,
{
    fn source(&self, file: FileId) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self(file, CopyDirection::ToTape))?))
    }

    fn destination(&self, file: FileId) -> io::Result<File> {
        File::create(self(file, CopyDirection::FromTape))
    }

    fn received(&self, file: FileId, destination: File, _crc32c: u32) -> io::Result<()> {
        destination.sync_all()?;
        let path = self(file, CopyDirection::FromTape);
        match path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            Some(parent) => fs::File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }
}
