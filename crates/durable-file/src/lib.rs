//! Small files that are replaced in one step: after a crash or a loss of power the old one is there or the new one, and
//! once this has returned it is the new one. What the files hold is their owners' matter. Directories that are there for good as well,
//! and the locks of what one process writes.
#![forbid(unsafe_code)]

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a lock is asked for. A process that was killed gives its locks up a moment later, and a program that is being
/// started holds those of the process that starts it until it runs.
const LOCK_WAIT: Duration = Duration::from_secs(2);

const LOCK_RETRY: Duration = Duration::from_millis(20);

/// Readable and writable by its owner alone.
const PRIVATE: u32 = 0o600;

/// Replaces a file, or makes it, with one that only its owner may read (mode 0600). What is beside it with `.new` behind its
/// name is of an attempt that was cut off.
pub fn replace_private(path: &Path, content: &(impl AsRef<[u8]> + ?Sized)) -> io::Result<()> {
    replace(path, content.as_ref(), Permissions::from_mode(PRIVATE))
}

/// Replaces a file that is there. Who may read it stays as it was.
pub fn replace_existing(path: &Path, content: &(impl AsRef<[u8]> + ?Sized)) -> io::Result<()> {
    replace(path, content.as_ref(), fs::metadata(path)?.permissions())
}

fn replace(path: &Path, content: &[u8], permissions: Permissions) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    // Of an earlier attempt.
    let _ = fs::remove_file(beside);
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(PRIVATE);
    let mut file = options.open(beside)?;
    file.write_all(content)?;
    file.set_permissions(permissions)?;
    file.sync_all()?;
    put_in_place(beside, path)
}

/// Gives a file its name, in the place of one that has it. The name is durable, the file's data is the caller's matter.
pub fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_directory(directory_of(to))
}

/// Makes a directory and those above it that are missing. Their names are durable once this has returned, that of the directory
/// also when an earlier attempt, which was cut off, had made it.
pub fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let made: Vec<&Path> = path.ancestors().skip(1).take_while(missing).collect();
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    for directory in made.into_iter().chain([path]) {
        sync_directory(directory_of(directory))?;
    }
    Ok(())
}

/// Makes the names in a directory durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// The directory in which a name is kept.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        // The root's name is kept nowhere.
        parent => parent.unwrap_or(path),
    }
}

/// Takes the lock of a file, which lasts until the file is closed. Waits two seconds for another process at most.
pub fn take_lock(file: &File) -> Result<(), TryLockError> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WAIT => {
                thread::sleep(LOCK_RETRY);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_keeps_who_may_read_it_and_a_private_one_is_private() {
        let directory = tempfile::tempdir().expect("made");
        let path = directory.path().join("penstock.toml");
        let mode = || fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        replace_existing(&path, "new").expect_err("it is not there");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        fs::write(directory.path().join("penstock.toml.new"), "of a crash").expect("written");
        replace_existing(&path, "new").expect("replaced");
        assert_eq!(
            (fs::read_to_string(&path).expect("read"), mode()),
            ("new".to_owned(), 0o640)
        );
        replace_private(&path, "secret").expect("replaced");
        assert_eq!(
            (fs::read_to_string(&path).expect("read"), mode()),
            ("secret".to_owned(), 0o600)
        );
        assert_eq!(fs::read_dir(directory.path()).expect("read").count(), 1);
    }
}
