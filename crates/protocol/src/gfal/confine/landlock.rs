//! Which files a process may open from now on, by Landlock (Linux 5.13): everything that the kernel's version of it
//! knows is handled, so that what is not listed is refused.
#![allow(unsafe_code)]

use crate::gfal::files::DEVICES;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const VERSION: libc::c_uint = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;

const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;

/// Symbolic links of one directory of authorities that are followed to their targets.
const LINKS_MAX: usize = 4096;

/// `struct landlock_ruleset_attr` of the sixth version. Older kernels take its begin.
#[repr(C)]
struct RulesetAttributes {
    files: u64,
    network: u64,
    scopes: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: libc::c_int,
}

/// What may be opened. All of it is resolved when the rules are made, so a link that is changed later leads nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadablePaths {
    /// Files, and directories with all that is below them. What does not exist is left out.
    pub paths: Vec<PathBuf>,
    /// Directories of authorities: the same, with the targets of the links in them.
    pub trusted: Vec<PathBuf>,
}

/// The version of Landlock that this kernel has. Errors: none, or it is not switched on.
pub(super) fn version() -> io::Result<u32> {
    // SAFETY: with this flag the call takes no structure and gives a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttributes>(),
            0usize,
            VERSION,
        )
    };
    u32::try_from(version).map_err(|_| io::Error::last_os_error())
}

/// The rights that each version has added.
fn all_rights(version: u32) -> RulesetAttributes {
    let files = match version {
        0 | 1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    RulesetAttributes {
        files: (1 << files) - 1,
        // Listening, and connecting in any other way than by the service.
        network: if version >= 4 { 0b11 } else { 0 },
        // Abstract sockets and signals.
        scopes: if version >= 6 { 0b11 } else { 0 },
    }
}

fn attributes_bytes(version: u32) -> usize {
    match version {
        0..=3 => 8,
        4 | 5 => 16,
        _ => 24,
    }
}

/// Refuses this process every file but these, for ever. No new privileges must have been given up before.
///
/// Errors: the kernel has no Landlock; a directory of authorities is there and cannot be looked into.
pub(super) fn restrict(readable: &ReadablePaths) -> io::Result<()> {
    let version = version()?;
    let attributes = all_rights(version);
    // SAFETY: the structure lives for the call, and no more of it is told than this kernel's version knows.
    let ruleset = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attributes,
            attributes_bytes(version),
            0 as libc::c_uint,
        )
    };
    let ruleset = super::owned(ruleset)?;
    for path in &readable.paths {
        if let Ok(place) = open_path(path) {
            allow(ruleset.as_raw_fd(), &place, READ_FILE | READ_DIRECTORY)?;
        }
    }
    for directory in &readable.trusted {
        match open_path(directory) {
            Ok(place) => allow(ruleset.as_raw_fd(), &place, READ_FILE | READ_DIRECTORY)?,
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            Err(why) => return Err(unreadable(directory, &why)),
        }
        let targets = link_targets(directory).map_err(|why| unreadable(directory, &why))?;
        for target in targets {
            if let Ok(place) = open_path(&target) {
                allow(ruleset.as_raw_fd(), &place, READ_FILE)?;
            }
        }
    }
    for device in DEVICES {
        if let Ok(place) = open_path(Path::new(device)) {
            let writes = if *device == "/dev/null" {
                WRITE_FILE
            } else {
                0
            };
            allow(ruleset.as_raw_fd(), &place, READ_FILE | writes)?;
        }
    }
    // SAFETY: takes a descriptor and flags.
    let restricted = unsafe {
        libc::syscall(
            libc::SYS_landlock_restrict_self,
            ruleset.as_raw_fd(),
            0 as libc::c_uint,
        )
    };
    super::done(restricted)
}

fn unreadable(directory: &Path, why: &io::Error) -> io::Error {
    let text = format!("{} cannot be read: {why}", directory.display());
    io::Error::new(why.kind(), text)
}

fn open_path(path: &Path) -> io::Result<File> {
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
        .open(path)
}

/// Where links in a directory lead that leave it.
fn link_targets(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let own = directory.canonicalize()?;
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_symlink() {
            continue;
        }
        if let Ok(target) = entry.path().canonicalize()
            && !target.starts_with(&own)
            // A link to a directory would open all of it.
            && target.is_file()
        {
            targets.push(target);
        }
        if targets.len() >= LINKS_MAX {
            break;
        }
    }
    Ok(targets)
}

fn allow(ruleset: libc::c_int, place: &File, rights: u64) -> io::Result<()> {
    let allowed = match place.metadata()?.is_dir() {
        true => rights,
        // The kernel refuses rights of directories for files.
        false => rights & (READ_FILE | WRITE_FILE),
    };
    let rule = PathBeneath {
        allowed,
        parent: place.as_raw_fd(),
    };
    // SAFETY: the rule lives for the call; both descriptors are open.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset,
            RULE_PATH_BENEATH,
            &raw const rule,
            0 as libc::c_uint,
        )
    };
    super::done(added)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_handles_all_rights_that_it_knows_and_no_other() {
        let check = |version, files: u64, network, scopes, bytes| {
            let rights = all_rights(version);
            let found = (rights.files, rights.network, rights.scopes);
            assert_eq!(found, (files, network, scopes), "{version}");
            assert_eq!(attributes_bytes(version), bytes, "{version}");
        };
        check(1, 0x1fff, 0, 0, 8);
        check(2, 0x3fff, 0, 0, 8);
        check(3, 0x7fff, 0, 0, 8);
        check(4, 0x7fff, 3, 0, 16);
        check(5, 0xffff, 3, 0, 16);
        check(6, 0xffff, 3, 3, 24);
        check(7, 0xffff, 3, 3, 24);
    }

    #[test]
    fn links_to_files_outside_are_followed_and_links_to_directories_are_not() {
        let place = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (place.path().join("in"), place.path().join("out"));
        for directory in [&inside, &outside] {
            std::fs::create_dir(directory).expect("made");
        }
        for file in [inside.join("a.pem"), outside.join("b.pem")] {
            std::fs::write(file, "x").expect("written");
        }
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, inside.join(name)).expect("linked");
        };
        link(Path::new("a.pem"), "own.0");
        link(&outside.join("b.pem"), "other.0");
        link(&outside, "directory");
        link(Path::new("missing"), "dangling");
        let found = link_targets(&inside).expect("read");
        let expected = outside.join("b.pem").canonicalize().expect("there");
        assert_eq!(found, [expected]);
    }
}
