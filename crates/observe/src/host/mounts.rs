//! Which file system and which device lie below a directory: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
//!
//! By the table alone: to ask the file system itself would wait for a disk that hangs.

use super::disks::DeviceNumber;
use super::proc_text::{FormatError, lines};
use std::path::{Path, PathBuf};

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its device. Of major number 0 when it is none of its own, as with NFS and btrfs.
    pub device: DeviceNumber,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its type, such as `xfs`.
    pub kind: String,
    /// What is mounted, such as `/dev/sda1` or `server:/export`.
    pub source: String,
    /// Options of the mount, then those of the file system.
    pub options: String,
}

/// All mounts, in the order in which they were made.
pub fn parse(bytes: &[u8]) -> Result<Vec<Mount>, FormatError> {
    let lines = lines(bytes).filter(|line| !line.trim().is_empty());
    let read = lines.map(|line| {
        parse_line(line).ok_or(FormatError {
            file: "/proc/self/mountinfo",
            expected: "ten fields with a '-' before the last three",
        })
    });
    read.collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (own, of_file_system) = line.split_once(" - ")?;
    let mut own = own.split(' ').skip(2);
    let device = DeviceNumber::parse(own.next()?)?;
    let point = plain(own.nth(1)?);
    let own_options = own.next()?;
    let mut words = of_file_system.split(' ');
    let kind = words.next()?.to_owned();
    let source = plain(words.next()?);
    let further = words.next().unwrap_or_default();
    Some(Mount {
        device,
        point: point.into(),
        kind,
        source,
        options: joined(own_options, further),
    })
}

/// Each option once.
fn joined(own: &str, further: &str) -> String {
    let mut options: Vec<&str> = Vec::new();
    for option in own.split(',').chain(further.split(',')) {
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    options.join(",")
}

/// Space, tab, line end and backslash are written as `\040` and their likes.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after.get(..3);
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) if byte.is_ascii() => {
                plain.push(char::from(byte));
                rest = &after[3..];
            }
            _ => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain + rest
}

/// The mount that an absolute path without symbolic links lies in: of those that hold it the deepest, of several at one
/// place the last, which hides the others.
pub fn below<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let holding = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    holding.max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::proc_text::tests::endures;

    const INFO: &[u8] = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        27 1 254:0 / / rw,noatime shared:1 master:2 - ext4 /dev/root rw,discard\n\
        40 27 8:17 / /data rw,noatime - xfs /dev/sdb1 rw,attr2,noquota\n\
        41 40 8:33 / /data/pool\\0401 rw - xfs /dev/sdc1 rw,noatime\n\
        42 27 0:44 / /nfs ro - nfs4 server:/export rw,vers=4.2\n\
        43 40 8:49 / /data rw - xfs /dev/sdd1 rw\n";

    fn check(path: &str, expected: &str) {
        let mounts = parse(INFO).expect("a real table");
        let found = below(&mounts, Path::new(path)).expect("there is a root");
        let told = format!(
            "{} {} {} {}",
            found.device, found.kind, found.source, found.options
        );
        assert_eq!(told, expected, "{path}");
    }

    #[test]
    fn a_directory_lies_in_the_deepest_mount_and_in_the_last_one_of_a_place() {
        check("/home/x", "254:0 ext4 /dev/root rw,noatime,discard");
        check("/data/pool 1/files", "8:33 xfs /dev/sdc1 rw,noatime");
        check("/data/pool", "8:49 xfs /dev/sdd1 rw");
        check("/database", "254:0 ext4 /dev/root rw,noatime,discard");
        check("/nfs/x", "0:44 nfs4 server:/export ro,rw,vers=4.2");
        assert!(parse(b"1 2 3\n").is_err());
    }

    #[test]
    fn a_backslash_that_is_no_code_stays() {
        assert_eq!(plain("a\\134b\\9\\"), "a\\b\\9\\");
        assert_eq!(plain("\\377"), "\\377");
    }

    #[test]
    fn damaged_text_is_read_or_refused() {
        endures(INFO, parse);
    }
}
