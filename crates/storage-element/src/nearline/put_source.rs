//! The data of a file on its way to tape: it is compared with what was written while it is read, so that no file is told to be on
//! tape whose bytes were lost on disk before.

use penstock_model::{Checksum, NamespacePath};
use penstock_persistence::namespace::TapeFile;
use penstock_protocol::checksum::Hasher;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Gives the bytes of a file. The last of them come only when all are those that were written.
pub(super) struct PutSource {
    file: File,
    path: NamespacePath,
    size: u64,
    read: u64,
    checksums: Vec<Checksum>,
    /// `None`: all was compared.
    hasher: Option<Hasher>,
}

impl PutSource {
    /// Opens it by the name of its data, which is no symbolic link. Errors: of another length, with the kind `InvalidData`.
    pub(super) fn open(target: &TapeFile, data: &Path) -> io::Result<PutSource> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(data, flags, Mode::empty())?);
        let (length, size) = (file.metadata()?.len(), target.size.0);
        if length != size {
            let path = &target.path;
            return Err(damaged(format!(
                "the data of {path} has {length} bytes instead of {size}"
            )));
        }
        let algorithms: Vec<_> = target.checksums.iter().map(Checksum::algorithm).collect();
        Ok(PutSource {
            file,
            path: target.path.clone(),
            size,
            read: 0,
            checksums: target.checksums.clone(),
            hasher: Some(Hasher::new(&algorithms)),
        })
    }

    /// All has been read.
    fn compare(&mut self) -> io::Result<()> {
        let sums = self.hasher.take().map(Hasher::finish).unwrap_or_default();
        match sums.iter().find(|sum| !self.checksums.contains(sum)) {
            None => Ok(()),
            Some(sum) => Err(damaged(format!(
                "the data of {} has changed on its disk: its checksum is {sum}, and was another one when it was written",
                self.path
            ))),
        }
    }
}

impl Read for PutSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size - self.read).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        if most == 0 {
            return Ok(0);
        }
        let count = self.file.read(&mut buffer[..most])?;
        if count == 0 {
            let (path, read, size) = (&self.path, self.read, self.size);
            return Err(damaged(format!(
                "the data of {path} ends after {read} bytes of {size}"
            )));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..count]);
        }
        self.read += count as u64;
        if self.read == self.size {
            self.compare()?;
        }
        Ok(count)
    }
}

fn damaged(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Archival, Bytes, ChecksumAlgorithm, Timestamp};
    use penstock_persistence::namespace::EntryId;

    fn read(written: &[u8], on_disk: &[u8]) -> Result<Vec<u8>, String> {
        let data = tempfile::NamedTempFile::new().expect("made");
        std::fs::write(data.path(), on_disk).expect("written");
        let mut hasher = Hasher::new(&[ChecksumAlgorithm::Adler32]);
        hasher.update(written);
        let target = TapeFile {
            id: EntryId(7),
            path: NamespacePath::parse("/tape/f").expect("valid"),
            size: Bytes(written.len() as u64),
            owner: None,
            created: Timestamp(0),
            checksums: hasher.finish(),
            pool: None,
            archival: Archival::Precious,
            copies: Vec::new(),
        };
        let mut source = PutSource::open(&target, data.path()).map_err(|why| why.to_string())?;
        let mut bytes = vec![0; written.len()];
        let read = source.read_exact(&mut bytes);
        read.map(|()| bytes).map_err(|why| why.to_string())
    }

    #[test]
    fn the_last_bytes_come_only_when_all_are_those_that_were_written() {
        assert_eq!(
            read(b"as written", b"as written").expect("read"),
            b"as written"
        );
        let changed = read(b"as written", b"as wrItten").expect_err("refused");
        assert!(
            changed.contains("/tape/f has changed on its disk"),
            "{changed}"
        );
        for other in [b"as writte".as_slice(), b"as written!"] {
            let refused = read(b"as written", other).expect_err("refused");
            assert!(refused.contains("bytes instead of 10"), "{refused}");
        }
    }
}
