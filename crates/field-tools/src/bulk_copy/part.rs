//! A file that is being written beside its place, by one command alone. Of a large one it is noted where it comes from, so that
//! another run can go on with it, however this one ends.

use super::KEPT_FROM_BYTES;
use super::local_copies::LocalCopies;
use crate::local_place::{Directory, FileVersion, LocalPlace, MissingDirectories};
use crate::replaceable::Replaceable;
use crate::unfinished_downloads::{Origin, UnfinishedDownloads, part_name, private_part_name};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io::{self, Seek};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use url::Url;

/// How often a part is opened that somebody removes meanwhile.
const OPENINGS_MAX: u32 = 100;
/// Of a new part, as far as the umask allows it.
const PART_MODE: u32 = 0o666;
/// What is kept of the mode of a file that is replaced.
const MODE_BITS: u32 = 0o777;
/// Whoever writes a part may write it, also when the file that it replaces is only to be read.
const OWNER_WRITES: u32 = 0o600;

/// A file that is being written. Dropped before it is put in place it is removed, unless it is kept for another run.
pub(super) struct Part {
    pub(super) file: File,
    directory: Directory,
    name: OsString,
    place: LocalPlace,
    source: Url,
    notes: Option<UnfinishedDownloads>,
    /// What it is a part of, when that is known and worth to go on with.
    origin: Option<Origin>,
    /// It stays for another run.
    is_kept: bool,
    is_in_place: bool,
}

impl Part {
    /// The part of a file from a source, which this process alone writes. Errors: another one does.
    pub(super) fn open(
        place: &LocalPlace,
        source: &Url,
        notes: Option<&UnfinishedDownloads>,
    ) -> io::Result<Part> {
        Part::open_with(place, source, notes, lock)
    }

    fn open_with(
        place: &LocalPlace,
        source: &Url,
        notes: Option<&UnfinishedDownloads>,
        lock: impl Fn(&File) -> io::Result<Lock>,
    ) -> io::Result<Part> {
        let directory = place.directory(MissingDirectories::Made)?;
        let shared = OsString::from(part_name(place.name()));
        let (file, name, notes) = match open_alone(&directory, &shared, lock)? {
            Some(file) => (file, shared, notes),
            None => {
                let (file, name) = create_private(&directory, place.name())?;
                (file, name, None)
            }
        };
        let version = FileVersion::of(&file.metadata()?);
        let origin = notes.and_then(|notes| notes.find(place, &version, source));
        Ok(Part {
            file,
            directory,
            name,
            place: place.clone(),
            source: source.clone(),
            notes: notes.cloned(),
            is_kept: origin.is_some(),
            origin,
            is_in_place: false,
        })
    }

    /// What it is a part of, and how many bytes of that are here; `None` when it is not known to be a part of its source.
    pub(super) fn origin(&self) -> Option<(Origin, u64)> {
        let origin = self.origin.clone()?;
        let length = self.file.metadata().ok()?.len();
        (length > 0 && length <= origin.size.0).then_some((origin, length))
    }

    /// Begins anew with bytes of an origin. A small file, or one that could not go on, is not kept.
    pub(super) fn begin(&mut self, origin: Option<Origin>) -> io::Result<()> {
        self.discard();
        self.file.set_len(0)?;
        self.file.rewind()?;
        // What others may not read they may not read meanwhile.
        self.take_mode(OWNER_WRITES)?;
        self.origin = origin.filter(|origin| origin.size.0 >= KEPT_FROM_BYTES);
        if let (Some(notes), Some(origin)) = (&self.notes, &self.origin) {
            let version = FileVersion::of(&self.file.metadata()?);
            let kept = notes.keep(&self.place, &version, &self.source, origin);
            self.is_kept = kept.unwrap_or_else(|why| {
                tracing::warn!(%why, "another run could not go on with this download");
                false
            });
        }
        Ok(())
    }

    /// Whether what is here is used by the next attempt.
    pub(super) fn can_go_on(&self) -> bool {
        self.origin.is_some()
    }

    /// Whether what is here stays for another run.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// What is here is of no use.
    pub(super) fn discard(&mut self) {
        self.is_kept = false;
        self.origin = None;
        self.forget();
    }

    /// Durable first, then visible, and then durably so. Errors with `AlreadyExists`: something is there that may not be replaced.
    pub(super) fn put_in_place(
        &mut self,
        size: u64,
        replaceable: Replaceable<FileVersion>,
        copies: &LocalCopies,
    ) -> io::Result<()> {
        self.take_mode(0)?;
        self.file.sync_all()?;
        // What is verified is what was received; that it is what the file holds nobody has looked at.
        if self.file.metadata()?.len() != size {
            return Err(io::Error::other(
                "another program changed its part while it was written",
            ));
        }
        match replaceable {
            Replaceable::Nothing | Replaceable::Anything => self.give_name(replaceable, copies)?,
            // For a moment what it replaces has its name, by which another command would open it.
            Replaceable::Version(_) => {
                let private = private_part_name(self.place.name());
                let shared = self.change_name(private.into())?;
                if let Err(why) = self.give_name(replaceable, copies) {
                    if self.change_name(shared).is_err() {
                        self.discard();
                    }
                    return Err(why);
                }
            }
        }
        self.is_in_place = true;
        self.discard();
        self.directory.sync()
    }

    fn give_name(
        &self,
        replaceable: Replaceable<FileVersion>,
        copies: &LocalCopies,
    ) -> io::Result<()> {
        self.check_name()?;
        let (from, to) = (&self.name, self.place.name());
        copies.put_in_place(&self.place, || self.directory.rename(from, to, replaceable))
    }

    /// Gives the part another name, beside its place. Gives back the one that it had.
    fn change_name(&mut self, name: OsString) -> io::Result<OsString> {
        self.check_name()?;
        self.directory
            .rename(&self.name, &name, Replaceable::Nothing)?;
        let before = std::mem::replace(&mut self.name, name);
        self.check_name()?;
        Ok(before)
    }

    fn check_name(&self) -> io::Result<()> {
        match self.directory.is_name_of(&self.name, &self.file)? {
            true => Ok(()),
            false => Err(io::Error::other(
                "its part was removed or replaced while it was written",
            )),
        }
    }

    /// Gives it the mode of the file that it replaces, and what else is needed for now.
    fn take_mode(&self, besides: u32) -> io::Result<()> {
        let replaced = self.directory.look(self.place.name())?;
        let Some(replaced) = replaced.filter(Metadata::is_file) else {
            return Ok(());
        };
        let mode = replaced.mode() & MODE_BITS | besides;
        if let Err(why) = self.file.set_permissions(Permissions::from_mode(mode)) {
            tracing::debug!(%why, "a mode was not kept");
        }
        Ok(())
    }

    fn forget(&self) {
        if let (Some(notes), Ok(metadata)) = (&self.notes, self.file.metadata()) {
            notes.forget(&self.place, &FileVersion::of(&metadata));
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_in_place {
            return;
        }
        let is_empty = || self.file.metadata().is_ok_and(|found| found.len() == 0);
        if !self.is_kept || is_empty() {
            self.forget();
            let is_ours = self.directory.is_name_of(&self.name, &self.file);
            if is_ours.is_ok_and(|is_ours| is_ours) {
                let _ = self.directory.remove_name(&self.name);
            }
        }
    }
}

/// Opens the file of that name for this process alone: one that was made here, or by this user before. `None`: the file system has
/// no locks.
fn open_alone(
    directory: &Directory,
    name: &OsStr,
    lock: impl Fn(&File) -> io::Result<Lock>,
) -> io::Result<Option<File>> {
    for _ in 0..OPENINGS_MAX {
        let (file, is_new) = match directory.create_file(name, PART_MODE) {
            Ok(file) => (file, true),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                match directory.open_to_write(name) {
                    Ok(file) => (file, false),
                    Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                    // A link or pipe: nothing that a copy has made. What a link leads to stays as it is.
                    Err(why) if why.kind() == io::ErrorKind::InvalidInput => {
                        directory.remove_name(name)?;
                        continue;
                    }
                    Err(why) => return Err(why),
                }
            }
            Err(why) => return Err(why),
        };
        match lock(&file)? {
            Lock::Held => {}
            // One that was there may be written by a command of another machine.
            Lock::Unavailable => {
                if is_new && directory.is_name_of(name, &file)? {
                    directory.remove_name(name)?;
                }
                return Ok(None);
            }
        }
        // Whoever had the lock before may have put it in place, or removed it.
        if !directory.is_name_of(name, &file)? {
            continue;
        }
        if is_new || is_own(&file.metadata()?) {
            return Ok(Some(file));
        }
        directory.remove_name(name)?;
    }
    Err(io::Error::other(
        "its part is removed or replaced again and again",
    ))
}

/// Makes a part that no other command opens, so that it needs no lock.
fn create_private(directory: &Directory, name: &OsStr) -> io::Result<(File, OsString)> {
    let name = OsString::from(private_part_name(name));
    Ok((directory.create_file(&name, PART_MODE)?, name))
}

/// Another user could still write what they have made, and a second name may be anywhere.
fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.nlink() == 1
}

/// How a file is kept from other commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Held,
    /// The file system has no locks.
    Unavailable,
}

fn lock(file: &File) -> io::Result<Lock> {
    match file.try_lock() {
        Ok(()) => Ok(Lock::Held),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(
            "another command is writing this file; wait until it has finished",
        )),
        Err(TryLockError::Error(why)) => {
            tracing::debug!(%why, "a part cannot be locked");
            Ok(Lock::Unavailable)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::Bytes;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};
    use std::thread;

    /// A directory for files, and one for notes.
    struct Site {
        top: tempfile::TempDir,
        notes: UnfinishedDownloads,
        source: Url,
    }

    impl Site {
        fn new() -> Site {
            let top = tempfile::tempdir().expect("made");
            fs::create_dir(top.path().join("files")).expect("made");
            Site {
                notes: UnfinishedDownloads::open(&top.path().join("state")).expect("made"),
                source: Url::parse("https://se/f?authz=secret").expect("a URL"),
                top,
            }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.top.path().join("files").join(name)
        }

        fn place(&self, name: &str) -> LocalPlace {
            LocalPlace::at(&self.at(name)).expect("a name")
        }

        fn part_path(&self, name: &str) -> PathBuf {
            self.at(&part_name(name.as_ref()))
        }

        fn open(&self, name: &str) -> io::Result<Part> {
            Part::open(&self.place(name), &self.source, Some(&self.notes))
        }

        /// Begins a part and leaves some bytes of it behind.
        fn leave(&self, name: &str, origin: Origin) {
            let mut part = self.open(name).expect("opened");
            part.begin(Some(origin)).expect("begun");
            part.file.write_all(b"12345").expect("written");
        }

        fn names(&self) -> usize {
            let entries = fs::read_dir(self.top.path().join("files"));
            entries.expect("there").count()
        }
    }

    fn origin(etag: Option<&str>, size: u64) -> Origin {
        Origin {
            etag: etag.map(str::to_owned),
            size: Bytes(size),
        }
    }

    fn large() -> Origin {
        origin(Some("\"1\""), KEPT_FROM_BYTES)
    }

    /// As a download does that has ended.
    fn put_in_place(part: &mut Part, replaceable: Replaceable<FileVersion>) -> io::Result<()> {
        let size = part.file.metadata()?.len();
        part.put_in_place(size, replaceable, &LocalCopies::default())
    }

    fn written(path: &Path) -> Vec<u8> {
        fs::read(path).expect("there")
    }

    #[test]
    fn a_large_part_is_gone_on_with_and_a_small_one_is_removed() {
        let site = Site::new();
        let long = "x".repeat(255);
        site.leave(&long, origin(Some("\"1\""), 10));
        assert_eq!(site.names(), 0);
        // Without a version nothing tells another run that the file is still the same.
        site.leave(&long, origin(None, KEPT_FROM_BYTES));
        assert_eq!(site.names(), 0);
        site.leave(&long, large());
        assert_eq!(site.names(), 1);

        let other = Url::parse("https://se/g").expect("a URL");
        let place = site.place(&long);
        drop(site.open(&long).expect("opened, and no byte of it came"));
        let mut part = site.open(&long).expect("opened");
        assert!(
            Part::open(&place, &other, None).is_err(),
            "another one has it"
        );
        assert_eq!(part.origin(), Some((large(), 5)));
        part.file.seek(io::SeekFrom::End(0)).expect("moved");
        part.file.write_all(b"67").expect("written");
        put_in_place(&mut part, Replaceable::Nothing).expect("in place");
        drop(part);
        assert_eq!(written(&site.at(&long)), b"1234567");
        assert_eq!(site.names(), 1);

        site.leave("f", large());
        let part = Part::open(&site.place("f"), &other, Some(&site.notes));
        assert_eq!(part.expect("opened").origin(), None);
    }

    #[test]
    fn what_is_begun_anew_is_no_part_of_what_was_before() {
        let site = Site::new();
        let mut part = site.open("f").expect("opened");
        part.begin(Some(large())).expect("begun");
        part.file.write_all(b"12345").expect("written");
        part.begin(None).expect("begun");
        assert!(part.origin().is_none());
        part.file.write_all(b"ab").expect("written");
        put_in_place(&mut part, Replaceable::Nothing).expect("in place");
        assert_eq!(written(&site.at("f")), b"ab");
    }

    #[test]
    fn what_somebody_has_put_beside_the_place_is_no_part() {
        let site = Site::new();
        site.leave("f", large());
        let left = site.part_path("f");
        let forged = site.at("forged");
        fs::write(&forged, b"54321").expect("written");
        fs::rename(&forged, &left).expect("renamed");
        let part = site.open("f").expect("opened");
        assert_eq!(part.origin(), None);
        drop(part);
        assert_eq!(site.names(), 0);
    }

    #[test]
    fn neither_a_link_nor_a_file_with_two_names_is_written() {
        let site = Site::new();
        let (victim, left) = (site.at("victim"), site.part_path("f"));
        fs::write(&victim, b"precious").expect("written");
        let bring = || {
            let mut part = site.open("f").expect("opened");
            part.begin(Some(large())).expect("begun");
            part.file.write_all(b"new").expect("written");
            put_in_place(&mut part, Replaceable::Anything).expect("in place");
        };
        symlink(&victim, &left).expect("linked");
        bring();
        fs::hard_link(&victim, &left).expect("linked");
        bring();
        assert_eq!(written(&victim), b"precious");
        let copy = fs::symlink_metadata(site.at("f")).expect("there");
        assert!(copy.is_file() && copy.nlink() == 1);
        assert_eq!(site.names(), 2);
    }

    #[test]
    fn what_appeared_meanwhile_is_replaced_only_where_it_may_be_and_keeps_its_mode() {
        let site = Site::new();
        let place = site.at("f");
        let mut part = site.open("f").expect("opened");
        part.begin(None).expect("begun");
        part.file.write_all(b"new").expect("written");
        symlink("nowhere", &place).expect("linked");
        let why = put_in_place(&mut part, Replaceable::Nothing).expect_err("taken");
        assert_eq!(why.kind(), io::ErrorKind::AlreadyExists);
        fs::remove_file(&place).expect("removed");
        fs::write(&place, b"precious").expect("written");
        let why = put_in_place(&mut part, Replaceable::Nothing).expect_err("taken");
        assert_eq!(why.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(written(&place), b"precious");
        drop(part);
        assert_eq!(site.names(), 1);

        fs::set_permissions(&place, Permissions::from_mode(0o400)).expect("set");
        let mut part = site.open("f").expect("opened");
        part.begin(None).expect("begun");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!(mode(&site.part_path("f")), 0o600);
        put_in_place(&mut part, Replaceable::Anything).expect("in place");
        assert_eq!(mode(&place), 0o400);
    }

    #[test]
    fn a_part_that_is_not_ours_any_more_is_neither_put_in_place_nor_removed() {
        let site = Site::new();
        let left = site.part_path("f");
        let mut ours = site.open("f").expect("opened");
        ours.begin(None).expect("begun");
        fs::remove_file(&left).expect("removed");
        let theirs = site.open("f").expect("opened");
        put_in_place(&mut ours, Replaceable::Anything).expect_err("it has no name any more");
        drop(ours);
        assert!(left.exists());
        drop(theirs);
        assert_eq!(site.names(), 0);
    }

    #[test]
    fn a_part_that_was_put_in_place_before_it_was_locked_is_left_alone() {
        let site = Site::new();
        let mut ours = site.open("f").expect("opened");
        ours.begin(None).expect("begun");
        ours.file.write_all(b"finished").expect("written");
        let directory = site.place("f").directory(MissingDirectories::Refused);
        let directory = directory.expect("opened");
        let name = part_name("f".as_ref());
        let ours = std::cell::Cell::new(Some(ours));
        // The file is opened, and gets its place before it is locked.
        let late = |file: &File| {
            if let Some(mut ours) = ours.take() {
                put_in_place(&mut ours, Replaceable::Nothing).expect("in place");
            }
            lock(file)
        };
        let theirs = open_alone(&directory, name.as_ref(), late).expect("opened");
        assert_eq!(theirs.expect("locked").metadata().expect("told").len(), 0);
        assert_eq!(written(&site.at("f")), b"finished");
    }

    #[test]
    fn where_nothing_can_be_locked_each_command_writes_its_own_part() {
        let site = Site::new();
        let open = || {
            let (place, source) = (site.place("f"), &site.source);
            let lock = |_: &File| Ok(Lock::Unavailable);
            Part::open_with(&place, source, Some(&site.notes), lock).expect("opened")
        };
        // One of another machine.
        let shared = site.part_path("f");
        fs::write(&shared, b"of another").expect("written");
        let (mut first, mut second) = (open(), open());
        for (part, content) in [(&mut first, b"first"), (&mut second, b"later")] {
            assert_eq!(part.origin(), None);
            part.begin(Some(large())).expect("begun");
            part.file.write_all(content).expect("written");
            assert!(!part.is_kept());
        }
        put_in_place(&mut first, Replaceable::Nothing).expect("in place");
        assert_eq!(written(&site.at("f")), b"first");
        put_in_place(&mut second, Replaceable::Anything).expect("in place");
        assert_eq!(written(&site.at("f")), b"later");
        assert_eq!(written(&shared), b"of another");
        drop(open());
        assert_eq!(site.names(), 2);
        fs::remove_file(&shared).expect("removed");
        drop(open());
        assert_eq!(site.names(), 1);
    }

    #[test]
    fn a_part_that_has_another_length_than_what_was_received_is_not_put_in_place() {
        let site = Site::new();
        let mut part = site.open("f").expect("opened");
        part.begin(None).expect("begun");
        part.file.write_all(b"12345").expect("written");
        File::create(site.part_path("f")).expect("truncated");
        let put = part.put_in_place(5, Replaceable::Nothing, &LocalCopies::default());
        put.expect_err("truncated");
        drop(part);
        assert_eq!(site.names(), 0);
    }

    #[test]
    fn what_was_changed_after_it_was_compared_is_not_replaced() {
        let site = Site::new();
        let place = site.at("f");
        fs::write(&place, b"old").expect("written");
        let version = || FileVersion::of(&fs::metadata(&place).expect("there"));
        let compared = version();
        let bring = |origin, replaceable| {
            let mut part = site.open("f").expect("opened");
            part.begin(origin).expect("begun");
            part.file.write_all(b"new").expect("written");
            put_in_place(&mut part, replaceable)
        };
        fs::write(&place, b"new work").expect("written");
        bring(None, Replaceable::Version(compared)).expect_err("changed");
        assert_eq!(site.names(), 1);
        assert_eq!(written(&place), b"new work");
        // Another run may put it in place.
        bring(Some(large()), Replaceable::Version(compared)).expect_err("changed");
        assert_eq!(written(&site.part_path("f")), b"new");
        bring(Some(large()), Replaceable::Version(version())).expect("in place");
        assert_eq!(written(&place), b"new");
        assert_eq!(site.names(), 1);
    }

    #[test]
    fn of_two_commands_none_changes_what_the_other_has_finished() {
        let site = Site::new();
        let content = vec![7; 10_000];
        let write = || {
            for _ in 0..100 {
                let Ok(mut part) = site.open("f") else {
                    continue;
                };
                part.begin(None).expect("begun");
                part.file.write_all(&content).expect("written");
                put_in_place(&mut part, Replaceable::Anything).expect("in place");
                assert_eq!(written(&site.at("f")).len(), content.len());
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(write);
            }
        });
        assert_eq!(site.names(), 1);
    }
}
