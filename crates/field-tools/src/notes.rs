//! Notes that a command leaves for the next one: small files of one user in one directory, each found by its key.
//!
//! The directory is below one that the environment names, which may be somebody else's: `sudo` can leave that of the caller. Only
//! what belongs to this user is read, written and cleaned up.

use crate::local_place::{Directory, MissingDirectories};
use crate::replaceable::Replaceable;
use penstock_model::{Checksum, ChecksumAlgorithm};
use penstock_protocol::checksum::Hasher;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Storage elements keep what is unfinished for a day; some may for longer.
const KEPT_FOR: Duration = Duration::from_secs(8 * 86_400);
/// Names that are looked at to remove old notes.
const LOOKED_AT_MAX: usize = 10_000;
const NOTE_BYTES_MAX: u64 = 64 << 10;
const NOTE_MODE: u32 = 0o600;
/// Of a mode: that others may write.
const OTHERS_WRITE: u32 = 0o022;
/// The directory of all notes, in that of the state of all programs.
const PROGRAM: &str = "penstock";
/// Digits in the name of a note.
const NAME_DIGITS: usize = 32;

/// The notes in one directory.
#[derive(Debug, Clone)]
pub(crate) struct Notes {
    directory: Arc<Directory>,
}

impl Notes {
    /// Notes of a kind, below the directory of the user's state. What is missing of directories is made, and old notes are removed.
    pub(crate) fn open(state: &Path, kind: &str) -> io::Result<Notes> {
        let user = rustix::process::geteuid().as_raw();
        let there = state.ancestors().find_map(|path| fs::metadata(path).ok());
        // What root has made is trusted by everybody.
        if there.is_some_and(|there| ![user, 0].contains(&there.uid())) {
            return Err(not_used(state, "belongs to another user"));
        }
        let missing = MissingDirectories::MadePrivate;
        let mut directory = Directory::open(state, missing)?;
        for name in [PROGRAM, kind] {
            directory = directory.enter(name.as_ref(), missing)?;
            let found = directory.metadata()?;
            if found.uid() != user {
                return Err(not_used(directory.path(), "belongs to another user"));
            }
            if found.mode() & OTHERS_WRITE != 0 {
                return Err(not_used(directory.path(), "can be written by other users"));
            }
        }
        let directory = Arc::new(directory);
        let notes = Notes { directory };
        notes.remove_old()?;
        Ok(notes)
    }

    fn remove_old(&self) -> io::Result<()> {
        let now = SystemTime::now();
        for name in self.directory.names()?.iter().take(LOOKED_AT_MAX) {
            if !is_note(name) {
                continue;
            }
            let modified = self.directory.look(name)?.map(|found| found.modified());
            let age = modified.and_then(|at| now.duration_since(at.ok()?).ok());
            if age.is_some_and(|age| age > KEPT_FOR) {
                let _ = self.directory.remove_name(name);
            }
        }
        Ok(())
    }

    /// The note with a key. `None`: there is none, or none that can be read.
    pub(crate) fn read<T: DeserializeOwned>(&self, key: &[u8]) -> Option<T> {
        let mut text = String::new();
        let file = self.directory.open_file(name_of(key).as_ref()).ok()?;
        file.take(NOTE_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write<T: Serialize>(&self, key: &[u8], note: &T) -> io::Result<()> {
        let text = serde_json::to_string_pretty(note).map_err(io::Error::other)?;
        let new = format!("{}.{}.new", short_name(key), std::process::id());
        let new = OsStr::new(&new);
        let create = || self.directory.create_file(new, NOTE_MODE);
        let mut file = match create() {
            // An earlier process of this number has left it.
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                self.directory.remove_name(new)?;
                create()
            }
            created => created,
        }?;
        file.write_all(text.as_bytes())?;
        self.directory
            .rename(new, name_of(key).as_ref(), Replaceable::Anything)
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        let _ = self.directory.remove_name(name_of(key).as_ref());
    }
}

fn not_used(path: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{} {why}", path.display()))
}

fn name_of(key: &[u8]) -> String {
    format!("{}.json", short_name(key))
}

/// Whether a name is that of a note, or of one that is being written.
fn is_note(name: &OsStr) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let split = name.to_str().and_then(|name| name.split_once('.'));
    split.is_some_and(|(digits, kind)| {
        let is_key = digits.len() == NAME_DIGITS
            && digits
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_key && (kind == "json" || kind.strip_suffix(".new").is_some_and(is_digits))
    })
}

/// 32 hexadecimal digits that no other bytes have.
pub(crate) fn short_name(bytes: &[u8]) -> String {
    let mut hasher = Hasher::new(&[ChecksumAlgorithm::Sha256]);
    hasher.update(bytes);
    let sums = hasher.finish();
    let digits = sums.first().map(Checksum::hex).unwrap_or_default();
    digits.chars().take(NAME_DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    struct State(tempfile::TempDir);

    impl State {
        fn new() -> State {
            State(tempfile::tempdir().expect("made"))
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn open(&self) -> io::Result<Notes> {
            Notes::open(&self.at("state"), "downloads")
        }

        fn make_old(&self, name: &str) {
            let file = File::create(self.at(name)).expect("made");
            let long_ago = SystemTime::now() - 2 * KEPT_FOR;
            file.set_modified(long_ago).expect("set");
        }
    }

    #[test]
    fn a_note_is_read_as_it_was_written_last_and_by_its_user_alone() {
        let state = State::new();
        let notes = state.open().expect("made");
        for text in ["one", "another"] {
            notes.write(b"key", &text).expect("written");
            assert_eq!(notes.read::<String>(b"key").as_deref(), Some(text));
        }
        let place = state.at("state/penstock/downloads");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!(mode(&place), 0o700);
        assert_eq!(mode(&place.join(name_of(b"key"))), NOTE_MODE);
        notes.remove(b"key");
        assert_eq!(notes.read::<String>(b"key"), None);
        assert_eq!(fs::read_dir(place).expect("there").count(), 0);
    }

    #[test]
    fn of_old_files_only_notes_are_removed() {
        let state = State::new();
        drop(state.open().expect("made"));
        let key = short_name(b"key");
        let kept = [
            "passwd".to_owned(),
            format!("{key}0.json"),
            format!("{key}.x.new"),
        ];
        let removed = [format!("{key}.json"), format!("{key}.123.new")];
        let path = |name: &String| format!("state/penstock/downloads/{name}");
        for name in kept.iter().chain(&removed) {
            state.make_old(&path(name));
        }
        let notes = state.open().expect("there");
        assert!(kept.iter().all(|name| state.at(&path(name)).exists()));
        assert!(removed.iter().all(|name| !state.at(&path(name)).exists()));
        notes.write(b"key", &"new").expect("written");
        drop(state.open().expect("there"));
        assert_eq!(notes.read::<String>(b"key").as_deref(), Some("new"));
    }

    #[test]
    fn what_is_in_the_place_of_notes_and_is_none_is_left_alone() {
        let state = State::new();
        fs::create_dir(state.at("victim")).expect("made");
        let key = short_name(b"key");
        state.make_old(&format!("victim/{key}.json"));
        fs::create_dir_all(state.at("state/penstock")).expect("made");
        let place = state.at("state/penstock/downloads");
        symlink(state.at("victim"), &place).expect("linked");
        let told = state.open().map(drop).expect_err("a link").to_string();
        assert!(told.contains("symbolic link"), "{told}");
        assert!(state.at(&format!("victim/{key}.json")).exists());

        fs::remove_file(&place).expect("removed");
        let notes = state.open().expect("made");
        let new = format!("{key}.{}.new", std::process::id());
        fs::write(state.at("victim/f"), b"precious").expect("written");
        symlink(state.at("victim/f"), place.join(new)).expect("linked");
        notes.write(b"key", &"new").expect("written");
        let victim = fs::read(state.at("victim/f")).expect("there");
        assert_eq!(victim, b"precious");

        fs::set_permissions(&place, Permissions::from_mode(0o777)).expect("set");
        let told = state.open().map(drop).expect_err("others write there");
        assert!(
            told.to_string().contains("written by other users"),
            "{told}"
        );
    }

    #[test]
    fn the_state_of_another_user_is_not_touched() {
        let state = State::new();
        // Only root can give a directory away.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let nobody = Some(65534);
        fs::create_dir(state.at("home")).expect("made");
        chown(state.at("home"), nobody, nobody).expect("given");
        let open = |path: &str| Notes::open(&state.at(path), "downloads").map(drop);
        for path in ["home", "home/.local/state"] {
            let told = open(path).expect_err("of nobody").to_string();
            assert!(told.contains("belongs to another user"), "{told}");
        }
        assert_eq!(fs::read_dir(state.at("home")).expect("there").count(), 0);
        drop(state.open().expect("made"));
        chown(state.at("state/penstock"), nobody, nobody).expect("given");
        state.open().map(drop).expect_err("of nobody");
    }
}
