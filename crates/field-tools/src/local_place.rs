//! Places below a local directory, reached without following a link. The directory that was named may be reached through
//! links; below it each directory is opened from the one above it. So whoever may write there leads neither a copy nor a
//! removal to another place.

use crate::replaceable::Replaceable;
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, RenameFlags, fsync, linkat, mkdirat, openat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where a local file is, or will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPlace {
    top: PathBuf,
    /// Names of directories from the top down.
    above: Vec<OsString>,
    name: OsString,
    path: PathBuf,
}

/// What happens to directories that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingDirectories {
    Made,
    /// Made so that nobody else sees what is in them.
    MadePrivate,
    /// They are an error.
    Refused,
}

impl MissingDirectories {
    /// The mode of those that are made, as far as the umask allows it.
    fn mode(self) -> Option<u32> {
        match self {
            MissingDirectories::Made => Some(0o777),
            MissingDirectories::MadePrivate => Some(0o700),
            MissingDirectories::Refused => None,
        }
    }
}

/// One version of one file: another one differs in at least one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub modified_nanos: i64,
    /// Of its attributes or content. Users cannot set it, as they can the time of the last modification.
    pub changed_nanos: i64,
}

impl FileVersion {
    pub fn of(metadata: &Metadata) -> FileVersion {
        let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000) + nanos;
        FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified_nanos: nanos(metadata.mtime(), metadata.mtime_nsec()),
            changed_nanos: nanos(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the two are versions of one file. Some file systems in user space number a file anew when it is opened again; then
    /// its times tell.
    pub fn is_of_same_file(&self, other: &FileVersion) -> bool {
        let renumbered = FileVersion {
            inode: other.inode,
            ..*self
        };
        self.device == other.device && (self.inode == other.inode || renumbered == *other)
    }

    /// Whether nobody has written to the file between the two. Its names and rights may have changed.
    pub fn has_same_content(&self, other: &FileVersion) -> bool {
        let unnamed = FileVersion {
            changed_nanos: other.changed_nanos,
            ..*self
        };
        unnamed == *other
    }
}

impl LocalPlace {
    /// The place that a path names. `None`: it does not end in a name.
    pub fn at(path: &Path) -> Option<LocalPlace> {
        let top = path.parent()?;
        Some(LocalPlace {
            top: match top.as_os_str().is_empty() {
                true => PathBuf::from("."),
                false => top.to_owned(),
            },
            above: Vec::new(),
            name: path.file_name()?.to_owned(),
            path: path.to_owned(),
        })
    }

    /// The place with some names from a directory down. `None`: that is the directory.
    pub fn below(top: &Path, names: &[String]) -> Option<LocalPlace> {
        let (name, above) = names.split_last()?;
        Some(LocalPlace {
            top: top.to_owned(),
            above: above.iter().map(OsString::from).collect(),
            name: name.into(),
            path: top.join(names.iter().collect::<PathBuf>()),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Opens the directory that it is in.
    pub fn directory(&self, missing: MissingDirectories) -> io::Result<Directory> {
        let mut directory = Directory::open(&self.top, missing)?;
        for name in &self.above {
            directory = directory.enter(name, missing)?;
        }
        Ok(directory)
    }

    /// What is there, as it is, also when that is a link.
    pub fn look(&self) -> io::Result<Option<Metadata>> {
        match self.directory(MissingDirectories::Refused) {
            Ok(directory) => directory.look(&self.name),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Makes a directory there, and those above it, unless they are there.
    pub fn make_directory(&self) -> io::Result<()> {
        let above = self.directory(MissingDirectories::Made)?;
        above.enter(&self.name, MissingDirectories::Made).map(drop)
    }

    /// Removes the file, or the link, that was seen there. Gives back whether it was there. A changed one stays, with an error.
    pub fn remove_file(&self, seen: &FileVersion) -> io::Result<bool> {
        let removed = self
            .directory(MissingDirectories::Refused)
            .and_then(|directory| directory.remove_seen(&self.name, seen));
        found(removed)
    }

    /// Removes the empty directory there. Gives back whether it was there.
    pub fn remove_directory(&self) -> io::Result<bool> {
        let removed = self
            .directory(MissingDirectories::Refused)
            .and_then(|directory| {
                let flags = AtFlags::REMOVEDIR;
                Ok(unlinkat(&directory.handle, &self.name, flags)?)
            });
        found(removed)
    }
}

/// `false`: it was not there.
fn found(outcome: io::Result<()>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why),
    }
}

/// An open directory. Whatever happens to its path, it stays this one.
#[derive(Debug)]
pub struct Directory {
    handle: OwnedFd,
    /// For people.
    path: PathBuf,
}

impl Directory {
    /// Opens a directory that somebody has named: links in its path are followed.
    pub fn open(path: &Path, missing: MissingDirectories) -> io::Result<Directory> {
        if let Some(mode) = missing.mode() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(mode).create(path)?;
        }
        // A directory that may be passed through need not be readable.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Directory {
            handle: rustix::fs::open(path, flags, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// Opens a directory in it, which is no link.
    pub fn enter(&self, name: &OsStr, missing: MissingDirectories) -> io::Result<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || openat(&self.handle, name, flags, Mode::empty());
        let opened = match open() {
            Err(Errno::NOENT) => match missing.mode() {
                None => Err(Errno::NOENT),
                Some(mode) => match mkdirat(&self.handle, name, Mode::from_raw_mode(mode)) {
                    // Another file of the same copy may have needed it as well.
                    Ok(()) | Err(Errno::EXIST) => open(),
                    Err(why) => Err(why),
                },
            },
            opened => opened,
        };
        let path = self.path.join(name);
        match opened {
            Ok(handle) => Ok(Directory { handle, path }),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(self.not_entered(name, &path)),
            Err(why) => Err(why.into()),
        }
    }

    fn not_entered(&self, name: &OsStr, path: &Path) -> io::Error {
        let what = match self.look(name) {
            Ok(Some(found)) if found.is_symlink() => "a symbolic link, which is not followed",
            Ok(_) | Err(_) => "not a directory",
        };
        let text = format!("{} is {what}", path.display());
        io::Error::new(io::ErrorKind::NotADirectory, text)
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is itself.
    pub fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.handle.try_clone()?).metadata()
    }

    /// The names in it, in their order.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.readable()?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn readable(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.handle, ".", flags, Mode::empty())
    }

    /// What has a name, as it is, also when that is a link.
    pub fn look(&self, name: &OsStr) -> io::Result<Option<Metadata>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => File::from(handle).metadata().map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Opens a file that is there.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        self.open_regular(name, OFlags::RDONLY)
    }

    /// Opens a file that is there to change it.
    pub fn open_to_write(&self, name: &OsStr) -> io::Result<File> {
        self.open_regular(name, OFlags::RDWR)
    }

    fn open_regular(&self, name: &OsStr, access: OFlags) -> io::Result<File> {
        // Opening a pipe must not wait for its other end.
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let not_regular = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        let file = match openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => File::from(handle),
            Err(Errno::LOOP | Errno::NXIO) => return Err(not_regular()),
            Err(why) => return Err(why.into()),
        };
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(not_regular()),
        }
    }

    /// Makes a file, of a mode as far as the umask allows it; an error when anything has that name.
    pub fn create_file(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(&self.handle, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Gives a file another name, in the place of what may be replaced. For a moment what is replaced may have its old name, so that
    /// must be one that nobody else uses.
    pub fn rename(
        &self,
        from: &OsStr,
        to: &OsStr,
        replaceable: Replaceable<FileVersion>,
    ) -> io::Result<()> {
        let here = &self.handle;
        match replaceable {
            Replaceable::Nothing => self.rename_new(from, to),
            Replaceable::Anything => Ok(renameat(here, from, here, to)?),
            Replaceable::Version(seen) => match self.look(to)? {
                None => self.rename_new(from, to),
                Some(now) if FileVersion::of(&now).has_same_content(&seen) => {
                    self.exchange(from, to, &seen)
                }
                Some(_) => Err(rewritten()),
            },
        }
    }

    /// Takes the place of a version. Another one that comes between the last look and the change of names gets its name back.
    fn exchange(&self, from: &OsStr, to: &OsStr, seen: &FileVersion) -> io::Result<()> {
        let here = &self.handle;
        let exchange = || renameat_with(here, from, here, to, RenameFlags::EXCHANGE);
        match exchange() {
            Ok(()) => {}
            Err(Errno::NOENT) => return self.rename_new(from, to),
            // A file system that cannot do it.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return Ok(renameat(here, from, here, to)?);
            }
            Err(why) => return Err(why.into()),
        }
        let replaced = self.look(from)?;
        if replaced.is_some_and(|now| FileVersion::of(&now).has_same_content(seen)) {
            return self.remove_name(from);
        }
        exchange()?;
        Err(rewritten())
    }

    fn rename_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let here = &self.handle;
        match renameat_with(here, from, here, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.rename_by_link(from, to),
            done => Ok(done?),
        }
    }

    /// For file systems that cannot refuse to replace. Second names replace nothing either; where there are none of these, it is
    /// looked before.
    fn rename_by_link(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let here = &self.handle;
        match linkat(here, from, here, to, AtFlags::empty()) {
            Ok(()) => self.remove_name(from),
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP) => match self.look(to)? {
                Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
                None => Ok(renameat(here, from, here, to)?),
            },
            Err(why) => Err(why.into()),
        }
    }

    /// Removes a name that no directory has.
    pub fn remove_name(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    fn remove_seen(&self, name: &OsStr, seen: &FileVersion) -> io::Result<()> {
        match self.look(name)? {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(now) if FileVersion::of(&now) == *seen => self.remove_name(name),
            Some(_) => Err(io::Error::other(
                "it changed after it was listed, so it was not removed",
            )),
        }
    }

    /// Whether a name is that of an open file.
    pub fn is_name_of(&self, name: &OsStr, file: &File) -> io::Result<bool> {
        let (named, opened) = (self.look(name)?, file.metadata()?);
        Ok(named.is_some_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())))
    }

    /// Makes names that were given or taken durable, where the file system and the permissions allow it.
    pub fn sync(&self) -> io::Result<()> {
        match self.readable().and_then(fsync) {
            Ok(())
            | Err(Errno::ACCESS | Errno::PERM)
            | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }
}

fn rewritten() -> io::Error {
    io::Error::other(
        "it was changed after it had been compared with the source, so it was not replaced; run the same command again to \
         replace it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn names(path: &str) -> Vec<String> {
        path.split('/').map(str::to_owned).collect()
    }

    fn place(top: &Path, path: &str) -> LocalPlace {
        LocalPlace::below(top, &names(path)).expect("a name")
    }

    fn seen(path: &Path) -> FileVersion {
        FileVersion::of(&fs::symlink_metadata(path).expect("there"))
    }

    #[test]
    fn no_link_below_the_top_is_followed_and_one_above_it_is() {
        let root = tempfile::tempdir().expect("made");
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("real/sub")).expect("made");
        fs::create_dir(at("elsewhere")).expect("made");
        fs::write(at("elsewhere/f"), b"x").expect("written");
        symlink(at("real"), at("top")).expect("linked");
        symlink(at("elsewhere"), at("real/link")).expect("linked");

        let top = at("top");
        let made = place(&top, "sub/new/deep");
        made.make_directory().expect("made");
        assert!(at("real/sub/new/deep").is_dir());

        let through = place(&top, "link/f");
        let told = through.look().expect_err("not followed").to_string();
        let link = top.join("link");
        let expected = format!(
            "{} is a symbolic link, which is not followed",
            link.display()
        );
        assert_eq!(told, expected);
        for failed in [
            place(&top, "link/new").make_directory(),
            place(&top, "link").make_directory(),
            through.remove_file(&seen(&at("elsewhere/f"))).map(drop),
            place(&top, "link").remove_directory().map(drop),
        ] {
            failed.expect_err("not followed");
        }
        assert_eq!(fs::read_dir(at("elsewhere")).expect("there").count(), 1);
        let link = place(&top, "link");
        assert!(link.remove_file(&seen(&at("real/link"))).expect("removed"));
        assert!(at("elsewhere/f").exists() && !at("real/link").exists());
    }

    #[test]
    fn what_changed_after_it_was_seen_is_not_removed() {
        let top = tempfile::tempdir().expect("made");
        let path = top.path().join("f");
        let place = place(top.path(), "f");
        fs::write(&path, b"old").expect("written");
        let old = seen(&path);
        fs::write(&path, b"newer").expect("written");
        let why = place.remove_file(&old).expect_err("changed");
        assert!(why.to_string().contains("it changed"), "{why}");
        assert!(place.remove_file(&seen(&path)).expect("removed"));
        assert!(!place.remove_directory().expect("not there"));
    }

    #[test]
    fn a_rename_that_may_not_replace_replaces_neither_file_nor_dangling_link() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        fs::write(at("new"), b"new").expect("written");
        fs::write(at("file"), b"precious").expect("written");
        symlink("nowhere", at("link")).expect("linked");
        let missing = MissingDirectories::Refused;
        let directory = place(top.path(), "new").directory(missing).expect("open");
        let rename = |to: &str, may| directory.rename("new".as_ref(), to.as_ref(), may);
        for taken in ["file", "link"] {
            let why = rename(taken, Replaceable::Nothing).expect_err("taken");
            assert_eq!(why.kind(), io::ErrorKind::AlreadyExists);
        }
        for taken in ["file", "link"] {
            let why = directory.rename_by_link("new".as_ref(), taken.as_ref());
            assert_eq!(why.expect_err("taken").kind(), io::ErrorKind::AlreadyExists);
        }
        directory
            .rename_by_link("new".as_ref(), "other".as_ref())
            .expect("renamed");
        assert!(at("other").exists() && !at("new").exists());
        fs::rename(at("other"), at("new")).expect("renamed");
        rename("file", Replaceable::Anything).expect("renamed");
        assert_eq!(fs::read(at("file")).expect("there"), b"new");
        directory.sync().expect("synced");
    }

    #[test]
    fn a_file_is_replaced_only_as_it_was_seen() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        let content = |name: &str| fs::read(at(name)).expect("there");
        let missing = MissingDirectories::Refused;
        let directory = place(top.path(), "f").directory(missing).expect("open");
        let [new, file] = ["new", "file"].map(OsStr::new);
        let start = || {
            fs::write(at("file"), b"old").expect("written");
            let old = seen(&at("file"));
            fs::write(at("new"), b"new").expect("written");
            old
        };
        let replace = |seen| directory.rename(new, file, Replaceable::Version(seen));

        let old = start();
        fs::hard_link(at("file"), at("backup")).expect("linked");
        replace(old).expect("its content is the same");
        assert_eq!(
            (content("file"), content("backup")),
            (b"new".to_vec(), b"old".to_vec())
        );
        assert!(!at("new").exists());

        let rewrite = || {
            let old = start();
            fs::write(at("mine"), b"new work").expect("written");
            fs::rename(at("mine"), at("file")).expect("renamed");
            old
        };
        // Before the last look, and after it.
        let outcomes = [
            replace(rewrite()),
            directory.exchange(new, file, &rewrite()),
        ];
        for outcome in outcomes {
            let why = outcome.expect_err("rewritten").to_string();
            assert!(why.contains("it was changed after"), "{why}");
        }
        assert_eq!(
            (content("file"), content("new")),
            (b"new work".to_vec(), b"new".to_vec())
        );

        let old = start();
        fs::remove_file(at("file")).expect("removed");
        replace(old).expect("nothing is lost");
        let old = start();
        fs::remove_file(at("file")).expect("removed");
        directory
            .exchange(new, file, &old)
            .expect("nothing is lost");
        let old = start();
        fs::remove_file(at("file")).expect("removed");
        fs::create_dir(at("file")).expect("made");
        replace(old).expect_err("a directory");
        directory
            .exchange(new, file, &old)
            .expect_err("a directory");
        assert!(at("file").is_dir() && at("new").is_file());
    }

    #[test]
    fn a_file_stays_itself_when_it_is_numbered_anew() {
        let top = tempfile::tempdir().expect("made");
        fs::write(top.path().join("f"), b"x").expect("written");
        let version = seen(&top.path().join("f"));
        let other = |inode, size| FileVersion {
            inode,
            size,
            ..version
        };
        assert!(version.is_of_same_file(&other(version.inode, 7)));
        assert!(version.is_of_same_file(&other(version.inode + 1, 1)));
        assert!(!version.is_of_same_file(&other(version.inode + 1, 7)));
        let elsewhere = FileVersion {
            device: version.device + 1,
            ..version
        };
        assert!(!version.is_of_same_file(&elsewhere));
    }

    #[test]
    fn only_a_regular_file_is_opened_and_no_pipe_is_waited_for() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        fs::write(at("file"), b"x").expect("written");
        symlink("file", at("link")).expect("linked");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).expect("made");
        let missing = MissingDirectories::Refused;
        let directory = place(top.path(), "file").directory(missing).expect("open");
        directory.open_file("file".as_ref()).expect("opened");
        for other in ["link", "pipe"] {
            directory
                .open_file(other.as_ref())
                .expect_err("no regular file");
            let opened = directory.open_to_write(other.as_ref());
            assert_eq!(
                opened.expect_err("none").kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }
}
