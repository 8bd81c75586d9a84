//! A local file to copy, as it was found. Hours may pass until it is read, and others may write to its directory: what is opened is
//! that file, never what a link or another name in its place leads to.

use crate::local_place::{FileVersion, LocalPlace, MissingDirectories};
use penstock_model::{Bytes, Timestamp};
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// A regular file at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSource {
    place: LocalPlace,
    seen: FileVersion,
}

impl LocalSource {
    /// The file that was seen at a place.
    pub fn seen(place: LocalPlace, seen: FileVersion) -> LocalSource {
        LocalSource { place, seen }
    }

    /// The file that somebody has named. Links that lead to it are followed now, and not any more when it is read.
    pub fn named(path: &Path) -> io::Result<LocalSource> {
        let found = std::fs::symlink_metadata(path)?;
        let path = match found.is_symlink() {
            true => std::fs::canonicalize(path)?,
            false => path.to_owned(),
        };
        let place = LocalPlace::at(&path).ok_or(io::ErrorKind::InvalidInput)?;
        let found = place.look()?.ok_or(io::ErrorKind::NotFound)?;
        Ok(LocalSource::seen(place, FileVersion::of(&found)))
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Its size when it was seen.
    pub fn size(&self) -> Bytes {
        Bytes(self.seen.size)
    }

    /// When it last changed, as its file system tells now.
    pub fn modified(&self) -> Option<Timestamp> {
        modified_of(&self.place.look().ok()??)
    }

    pub fn open(&self) -> io::Result<File> {
        let directory = self.place.directory(MissingDirectories::Refused)?;
        let file = directory.open_file(self.place.name())?;
        match FileVersion::of(&file.metadata()?).is_of_same_file(&self.seen) {
            true => Ok(file),
            false => Err(io::Error::other(
                "another file has taken its place since it was listed; copy it again",
            )),
        }
    }
}

/// When a local file last changed.
pub(crate) fn modified_of(metadata: &Metadata) -> Option<Timestamp> {
    let modified = metadata.modified().ok()?;
    let since = modified.duration_since(SystemTime::UNIX_EPOCH);
    Some(Timestamp(0) + since.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn content(source: &LocalSource) -> io::Result<String> {
        let mut text = String::new();
        source.open()?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn what_has_taken_the_place_of_a_file_is_not_read() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        let place = || LocalPlace::below(top.path(), &["d".to_owned(), "f".to_owned()]);
        fs::create_dir_all(at("elsewhere")).expect("made");
        for secret in ["secret", "elsewhere/f"] {
            fs::write(at(secret), b"a secret").expect("written");
        }
        let check = |replace: &dyn Fn()| {
            fs::create_dir(at("d")).expect("made");
            fs::write(at("d/f"), b"public").expect("written");
            let found = place().expect("a name").look().expect("found");
            let seen = FileVersion::of(&found.expect("there"));
            let source = LocalSource::seen(place().expect("a name"), seen);
            assert_eq!(content(&source).expect("read"), "public");
            replace();
            content(&source).expect_err("another one");
            match at("d").is_symlink() {
                true => fs::remove_file(at("d")).expect("removed"),
                false => fs::remove_dir_all(at("d")).expect("removed"),
            }
            let _ = fs::remove_dir_all(at("aside"));
        };
        let remove = || fs::remove_file(at("d/f")).expect("removed");
        check(&|| {
            remove();
            symlink(at("secret"), at("d/f")).expect("linked");
        });
        check(&|| {
            fs::hard_link(at("secret"), at("other")).expect("linked");
            fs::rename(at("other"), at("d/f")).expect("renamed");
        });
        check(&|| {
            fs::rename(at("d"), at("aside")).expect("renamed");
            symlink(at("elsewhere"), at("d")).expect("linked");
        });
        // Nobody waits for the other end of a pipe.
        check(&|| {
            remove();
            mkfifoat(CWD, at("d/f"), Mode::from_raw_mode(0o600)).expect("made");
        });
    }

    #[test]
    fn a_link_that_somebody_has_named_is_followed_once() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        for name in ["f", "secret"] {
            fs::write(at(name), name).expect("written");
        }
        symlink("f", at("link")).expect("linked");
        let source = LocalSource::named(&at("link")).expect("found");
        fs::remove_file(at("link")).expect("removed");
        symlink("secret", at("link")).expect("linked");
        assert_eq!(content(&source).expect("read"), "f");
        LocalSource::named(&at("none")).expect_err("not there");
    }
}
