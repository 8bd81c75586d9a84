//! Which files a gfal child may open, by the words in which it asks for them.
//!
//! Landlock judges the files of the system, and not what a process holds itself: who opens `/proc/self/fd/5` gets the
//! file in memory in which a submitter's proxy lies. A storage element can make XRootD's client open any path. So paths
//! are judged by a list, and a secret has a spelling of its path that nobody can guess and no server is told.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::c_int;
use std::path::{Component, Path, PathBuf};

/// Files of the system that the libraries read, none of which holds a secret.
const SYSTEM_PATHS: &[&str] = &[
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/share",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/share",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    // Names and addresses.
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/networks",
    "/etc/localtime",
    "/etc/locale.alias",
    "/etc/passwd",
    "/etc/group",
    // Cryptography, without the keys that lie beside.
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/certs",
    "/etc/ca-certificates.conf",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/tls/openssl.d",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/ct_log_list.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies",
    // The libraries themselves.
    "/etc/gfal2.d",
    "/etc/xrootd/client.conf",
    "/etc/xrootd/client.plugins.d",
    "/etc/grid-security/gsi.conf",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
];

/// Devices that can be opened. The first can be written to.
pub(super) const DEVICES: &[&str] = &["/dev/null", "/dev/urandom", "/dev/random"];
/// Where the kernel shows what processes hold. Of that, what is listed is allowed by its whole name only.
const KERNEL_DIRECTORIES: [&str; 2] = ["/proc", "/dev"];

/// The files of the system that every child may read.
pub fn system_paths() -> impl Iterator<Item = PathBuf> {
    SYSTEM_PATHS.iter().map(PathBuf::from)
}

/// What a child may open. Landlock has its word afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenableFiles {
    /// Files, and directories with all that is below them.
    pub paths: Vec<PathBuf>,
    /// Files in the child's memory, each by the one spelling of its path that is allowed.
    pub secrets: Vec<String>,
}

impl OpenableFiles {
    /// Whether a path may be opened. Relative ones are from the root, where the child stands.
    pub fn judge(&self, path: &Path, flags: c_int) -> Result<(), Errno> {
        // `Path` takes different spellings for equal, texts do not.
        if self
            .secrets
            .iter()
            .any(|secret| path.as_os_str() == &**secret)
        {
            // Reading is all that libraries need of it.
            let reads = flags & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) == libc::O_RDONLY;
            return if reads { Ok(()) } else { Err(Errno::ACCESS) };
        }
        let path = without_detours(path)?;
        let is_kernels = KERNEL_DIRECTORIES
            .iter()
            .any(|above| path.starts_with(above));
        let is_allowed = match is_kernels {
            true => SYSTEM_PATHS
                .iter()
                .chain(DEVICES)
                .any(|known| path == Path::new(known)),
            false => self.paths.iter().any(|known| path.starts_with(known)),
        };
        if is_allowed {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }
}

/// The path from the root without `.`, `..` and empty parts. Errors: a link stands before a `..`, so that it leads elsewhere
/// than its words say.
fn without_detours(path: &Path) -> Result<PathBuf, Errno> {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                if plain.canonicalize().ok().as_ref() != Some(&plain) {
                    return Err(Errno::ACCESS);
                }
                plain.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(plain)
}

/// A path in `/proc/self`, spelled in one of 2^128 ways, each of which the kernel takes for the same.
pub(super) fn spelled(within: &str, random: [u8; 16]) -> String {
    let bits = random
        .iter()
        .flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1));
    let detour: String = bits.map(|bit| if bit == 0 { "/" } else { "./" }).collect();
    format!("/proc/{detour}self/{within}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn openable() -> OpenableFiles {
        OpenableFiles {
            paths: ["/usr/lib", "/etc/hosts", "/srv/site/ca"]
                .map(PathBuf::from)
                .to_vec(),
            secrets: vec![spelled("fd/5", [0x5a; 16])],
        }
    }

    #[test]
    fn files_are_opened_by_the_words_of_the_list_only() {
        let check = |path: &str, expected: bool| {
            let found = openable().judge(Path::new(path), libc::O_RDONLY | libc::O_CLOEXEC);
            assert_eq!(found.is_ok(), expected, "{path}");
        };
        check("/usr/lib/x86_64-linux-gnu/libssl.so.3", true);
        check("/usr/lib", true);
        check("/usr/library", false);
        check("/usr/lib/../lib/./x//y", true);
        check("/usr/lib/not-there/../x", false);
        check("usr/lib/x", true);
        check("/srv/site/ca/a1b2c3d4.0", true);
        check("/srv/site/keys/token-signing.pem", false);
        check("/etc/hosts", true);
        check("/etc/shadow", false);
        check("/etc", false);
        check("", false);
        check("/usr/lib/../../proc/self/fd/5", false);
        check("/../../etc/shadow", false);
    }

    #[test]
    fn no_link_before_a_step_back_leads_past_the_list() {
        let place = tempfile::tempdir().expect("a directory");
        let real = place.path().canonicalize().expect("there");
        std::fs::create_dir_all(real.join("allowed/a/b")).expect("made");
        std::os::unix::fs::symlink("/etc", real.join("allowed/a/link")).expect("made");
        let openable = OpenableFiles {
            paths: vec![real.join("allowed")],
            secrets: Vec::new(),
        };
        let check = |path: &str, expected: bool| {
            let path = real.join("allowed").join(path);
            let found = openable.judge(&path, libc::O_RDONLY);
            assert_eq!(found.is_ok(), expected, "{}", path.display());
        };
        check("a/b/../x", true);
        check("a/link", true);
        check("a/link/../proc/self/fd/5", false);
        check("a/link/x/../../../proc/self/fd/5", false);
        check("a/b/../../a/link/../proc/self/fd/5", false);
    }

    #[test]
    fn what_processes_hold_is_opened_by_nobody_whatever_an_operator_lists() {
        let openable = OpenableFiles {
            paths: ["/", "/proc", "/dev"].map(PathBuf::from).to_vec(),
            secrets: Vec::new(),
        };
        let check = |path: &str, expected: bool| {
            let found = openable.judge(Path::new(path), libc::O_RDONLY);
            assert_eq!(found.is_ok(), expected, "{path}");
        };
        for path in [
            "self/fd/5",
            "thread-self/fd/5",
            "1/environ",
            "self/task/1/fd/5",
            "self/root/etc/x",
        ] {
            check(&format!("/proc/{path}"), false);
            check(&format!("//proc/.//{path}"), false);
            check(&format!("/dev/../proc/{path}"), false);
        }
        for path in ["/dev/fd/5", "/dev/stdin", "/dev/mem", "/proc", "/dev"] {
            check(path, false);
        }
        for path in [
            "/dev/null",
            "/dev/urandom",
            "/proc/cpuinfo",
            "/proc/sys/vm/overcommit_memory",
        ] {
            check(path, true);
        }
        check("/opt/gfal/lib/x", true);
    }

    #[test]
    fn a_secret_is_read_by_its_spelling_and_never_written() {
        let openable = openable();
        let secret = openable.secrets[0].clone();
        assert_eq!(
            without_detours(Path::new(&secret)).as_deref(),
            Ok(Path::new("/proc/self/fd/5"))
        );
        let check = |path: &str, flags, expected: bool| {
            assert_eq!(
                openable.judge(Path::new(path), flags).is_ok(),
                expected,
                "{path} {flags}"
            );
        };
        check(&secret, libc::O_RDONLY, true);
        check(&secret, libc::O_RDONLY | libc::O_TRUNC, false);
        check(&secret, libc::O_WRONLY, false);
        check(&secret, libc::O_RDWR, false);
        check("/proc/self/fd/5", libc::O_RDONLY, false);
        check(&spelled("fd/5", [0; 16]), libc::O_RDONLY, false);
        check(&spelled("fd/6", [0x5a; 16]), libc::O_RDONLY, false);
        check(&format!("/{secret}"), libc::O_RDONLY, false);
        check(&format!("{secret}/"), libc::O_RDONLY, false);
    }

    #[test]
    fn each_random_number_gives_another_spelling_of_the_same_file() {
        let mut seen = std::collections::BTreeSet::new();
        for at in 0..16 {
            for bit in 0..8 {
                let mut random = [0; 16];
                random[at] = 1 << bit;
                assert!(seen.insert(spelled("fd/5", random)));
            }
        }
        let file = std::fs::File::open("/dev/null").expect("there");
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let path = spelled(&format!("fd/{number}"), [0xa7; 16]);
        assert!(std::fs::metadata(path).is_ok(), "the kernel follows it");
    }
}
