//! What a gfal child does to itself before it loads foreign code: it dies with its service, inherits nothing, leaves no
//! core file with secrets in it, takes no more memory than it may, opens no file but those that the libraries need, and
//! opens and connects only what its service lets it.
//!
//! The few calls that have no safe wrapper are here and nowhere else.
#![allow(unsafe_code)]

mod landlock;
mod seccomp;

pub use landlock::ReadablePaths;

use super::files::{OpenableFiles, spelled};
use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use rustix::process::{
    Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit, umask,
};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Standard input, output and error stay open; nothing behind them.
const FIRST_FOREIGN_DESCRIPTOR: libc::c_uint = 3;
/// Bytes of a core file. 0 is no limit for cores that go to a program, as of systemd-coredump; 1 is one (core(5)).
const CORE_BYTES_MAX: u64 = 1;
/// Capabilities that a kernel may have.
const CAPABILITIES_MAX: libc::c_ulong = 64;
/// Bytes for the text of an account.
const ACCOUNT_BYTES: usize = 16 << 10;

/// What is opened below: the paths as they are named, and where their links lead.
pub(super) fn openable(readable: &ReadablePaths, secrets: &[&SecretFile]) -> OpenableFiles {
    let mut paths = Vec::new();
    let named = readable.paths.iter().chain(&readable.trusted);
    for path in named.filter(|path| path.is_absolute()) {
        paths.extend(path.canonicalize().ok().filter(|real| real != path));
        paths.push(path.clone());
    }
    OpenableFiles {
        paths,
        secrets: secrets.iter().map(|file| file.path.clone()).collect(),
    }
}

/// Who a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// The user's number.
    pub user: u32,
    /// The number of its first group.
    pub group: u32,
}

impl Account {
    /// The account of this machine with this name. Errors: there is none.
    pub fn named(name: &str) -> io::Result<Account> {
        let text = CString::new(name).map_err(|why| io::Error::other(why.to_string()))?;
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let (mut texts, mut found) = ([0; ACCOUNT_BYTES], std::ptr::null_mut());
        // SAFETY: every pointer is to a value of this frame, and the length is that of `texts`.
        let code = unsafe {
            libc::getpwnam_r(
                text.as_ptr(),
                entry.as_mut_ptr(),
                texts.as_mut_ptr(),
                texts.len(),
                &mut found,
            )
        };
        match (code, found.is_null()) {
            (0, false) => {
                // SAFETY: the call has filled it, as `found` tells.
                let entry = unsafe { entry.assume_init() };
                Ok(Account {
                    user: entry.pw_uid,
                    group: entry.pw_gid,
                })
            }
            (0, true) => Err(io::Error::other("this machine has no such account")),
            (code, _) => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// To be called first, while the process has one thread and has opened nothing.
///
/// Errors: the system refuses, or the service has ended already.
pub(super) fn begin(service: u32, memory_bytes_max: Option<u64>) -> io::Result<()> {
    // SAFETY: this process has just begun and owns no descriptor above 2, so none is closed under anybody's feet.
    let closed = unsafe { libc::close_range(FIRST_FOREIGN_DESCRIPTOR, libc::c_uint::MAX, 0) };
    if closed != 0 {
        let why = io::Error::last_os_error();
        // Before Linux 5.9. Whatever starts children closes its descriptors on exec, so this is a second lock.
        if why.raw_os_error() != Some(libc::ENOSYS) {
            return Err(why);
        }
    }
    end_with(service)?;
    // Relative paths are judged as paths from here, and nobody can leave.
    std::env::set_current_dir("/")?;
    umask(Mode::RWXG | Mode::RWXO);
    let at_most = |bytes| Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    setrlimit(Resource::Core, at_most(CORE_BYTES_MAX))?;
    // What a core would hold, should one be made all the same. A kernel without cores has no such file.
    let _ = std::fs::write("/proc/self/coredump_filter", "0");
    if let Some(bytes) = memory_bytes_max {
        setrlimit(Resource::As, at_most(bytes))?;
    }
    Ok(())
}

/// The kernel kills this process when its service dies.
fn end_with(service: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The service may have ended before that call; then somebody else is the parent by now.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    match parent == i32::try_from(service).ok() {
        true => Ok(()),
        false => Err(io::Error::other("the service that started this has ended")),
    }
}

/// Gives up what an administrator's process may do, and becomes another account where one is given. While there is one
/// thread.
///
/// Errors: the system refuses.
pub(super) fn become_account(service: u32, account: Option<Account>) -> io::Result<()> {
    for capability in 0..CAPABILITIES_MAX {
        // SAFETY: takes numbers. It fails where there is no such capability, and for processes that have none to drop.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    // SAFETY: takes numbers. It fails before Linux 4.3, where there are none.
    unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        )
    };
    if let Some(account) = account {
        let (user, group) = (account.user, account.group);
        // SAFETY: no list of groups is given, and none is read.
        done(unsafe { libc::setgroups(0, std::ptr::null()) }.into())?;
        // SAFETY: takes numbers.
        done(unsafe { libc::setresgid(group, group, group) }.into())?;
        // SAFETY: takes numbers.
        done(unsafe { libc::setresuid(user, user, user) }.into())?;
    }
    // `struct __user_cap_header_struct` of the third version, for this process, and two words for each of three sets.
    let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
    // SAFETY: both arrays have the layout that is told by the version, and live for the call.
    done(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) })?;
    // The service looks into this process to judge what it asks for. Into one of another account it may do so as root
    // alone, whatever is said here; the other processes of that account may not.
    let dumpable = libc::c_ulong::from(account.is_none());
    // SAFETY: takes numbers.
    done(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0) }.into())?;
    // A change of account makes the kernel forget this.
    end_with(service)
}

/// From now on no file but these is opened, and `open` and `connect` wait for whoever has the descriptor that is given.
///
/// Errors: this machine's kernel cannot do that, in words for its administrator.
pub(super) fn confine(readable: &ReadablePaths) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    landlock::restrict(readable).map_err(|why| match why.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP) => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no Landlock, or it is switched off (Linux 5.13 or later, with \
             'landlock' among the modules of its option lsm=)",
        ),
        _ => io::Error::new(why.kind(), format!("Landlock: {why}")),
    })?;
    seccomp::restrict().map_err(|why| {
        let text = format!(
            "the kernel gives no seccomp notifications (Linux 5.0 or later, and no container \
             without them): {why}"
        );
        io::Error::new(why.kind(), text)
    })
}

/// The descriptor that a raw call has given.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match libc::c_int::try_from(result) {
        Ok(descriptor) if descriptor >= 0 => {
            // SAFETY: the kernel has just given it, to nobody else.
            Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a raw call has worked.
fn done(result: libc::c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A file that is nowhere on disk and ends with this process: here lie secrets that libraries find by path.
pub(super) struct SecretFile {
    file: File,
    path: String,
}

impl SecretFile {
    /// An empty one.
    pub(super) fn create(name: &str) -> io::Result<SecretFile> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
        // Globus refuses keys that others might read, also where there are no others.
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        let path = spelled(&format!("fd/{}", file.as_raw_fd()), random()?);
        Ok(SecretFile {
            file: file.into(),
            path,
        })
    }

    /// Its path, for this process only, in a spelling that nobody guesses: by another it is not opened.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// What it holds from now on.
    pub(super) fn replace(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: writes no more than the length that is told.
    let written = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(written) {
        // So few bytes come at once.
        Ok(count) if count == bytes.len() => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Libraries look here for the proxy. To be called while the process has one thread.
pub(super) fn name_proxy(path: &str) {
    // SAFETY: there is one thread, so nobody reads the environment meanwhile.
    unsafe { std::env::set_var("X509_USER_PROXY", path) };
}

/// Ends the process at once. Destructors of libraries are not run: their threads still work with what those would take
/// away, and crash.
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: _exit takes any code and does not come back; all that was to be written has been.
    unsafe { libc::_exit(code) }
}

/// Makes SIGTERM wait for [`await_termination`], in this thread and all that it starts.
pub(super) fn hold_termination() {
    let signals = termination();
    // SAFETY: `signals` is a valid set; what was masked before is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut()) };
}

/// Returns when SIGTERM has come.
pub(super) fn await_termination() {
    let (signals, mut came) = (termination(), 0);
    // SAFETY: both pointers are to values of this frame.
    while unsafe { libc::sigwait(&signals, &mut came) } != 0 {}
}

fn termination() -> libc::sigset_t {
    let mut signals = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before anything reads it; SIGTERM is a signal.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGTERM);
        signals.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gfal::files::system_paths;
    use crate::gfal::gate::Gate;
    use std::io::Read;
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::sync::{Arc, mpsc};

    /// What a call gave, as an error where it gave one.
    fn tried(result: libc::c_long) -> io::Result<()> {
        match result {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn call(number: libc::c_long, arguments: [usize; 4]) -> io::Result<()> {
        let [a, b, c, d] = arguments;
        // SAFETY: these calls are refused before they look at what they are given; what is passed are numbers, null
        // pointers and texts that live for the call.
        tried(unsafe { libc::syscall(number, a, b, c, d) })
    }

    /// Each by its name, and what came of it.
    fn attempts(secret: &Path) -> Vec<(&'static str, io::Result<()>)> {
        let path = CString::new(secret.to_str().expect("a path")).expect("a text");
        let path = path.as_ptr() as usize;
        let here = libc::AT_FDCWD as usize;
        let parent = std::os::unix::process::parent_id() as usize;
        vec![
            ("read a key", File::open(secret).map(drop)),
            ("cut a key", File::create(secret).map(drop)),
            (
                "make a file",
                File::create(secret.with_extension("new")).map(drop),
            ),
            (
                "make a directory",
                std::fs::create_dir(secret.with_extension("d")),
            ),
            (
                "list a directory",
                std::fs::read_dir(secret.parent().expect("one")).map(drop),
            ),
            ("read passwords", File::open("/etc/shadow").map(drop)),
            (
                "read a directory of processes",
                std::fs::read_dir("/proc").map(drop),
            ),
            (
                "read the environment",
                File::open("/proc/self/environ").map(drop),
            ),
            ("read memory", File::open("/proc/self/mem").map(drop)),
            (
                "read the parent",
                File::open(format!("/proc/{parent}/cmdline")).map(drop),
            ),
            (
                "cut by reading",
                call(libc::SYS_openat, [here, path, libc::O_TRUNC as usize, 0]),
            ),
            ("remove", std::fs::remove_file(secret)),
            (
                "rename",
                std::fs::rename(secret, secret.with_extension("old")),
            ),
            ("chmod", call(libc::SYS_fchmodat, [here, path, 0o777, 0])),
            ("chown", call(libc::SYS_fchownat, [here, path, 0, 0])),
            ("truncate", call(libc::SYS_truncate, [path, 0, 0, 0])),
            ("link", call(libc::SYS_linkat, [here, path, here, path])),
            ("touch", call(libc::SYS_utimensat, [here, path, 0, 0])),
            ("unix socket", UnixStream::connect("/run/x").map(drop)),
            ("datagrams", UdpSocket::bind("127.0.0.1:0").map(drop)),
            ("listen", TcpListener::bind("127.0.0.1:0").map(drop)),
            ("raw socket", call(libc::SYS_socket, [2, 3, 1, 0])),
            ("netlink", call(libc::SYS_socket, [16, 3, 0, 0])),
            ("program", call(libc::SYS_execve, [path, 0, 0, 0])),
            (
                "process",
                call(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0]),
            ),
            ("signal", call(libc::SYS_kill, [parent, 0, 0, 0])),
            ("trace", call(libc::SYS_ptrace, [0, 0, 0, 0])),
            (
                "other memory",
                call(libc::SYS_process_vm_readv, [parent, 0, 0, 0]),
            ),
            (
                "descriptor of a process",
                call(libc::SYS_pidfd_open, [parent, 0, 0, 0]),
            ),
            ("io_uring", call(libc::SYS_io_uring_setup, [1, 0, 0, 0])),
            ("bpf", call(libc::SYS_bpf, [0, 0, 0, 0])),
            ("second filter", call(libc::SYS_seccomp, [1, 0, 0, 0])),
            (
                "namespace",
                call(libc::SYS_unshare, [libc::CLONE_NEWUSER as usize, 0, 0, 0]),
            ),
            ("leave the group", call(libc::SYS_setsid, [0, 0, 0, 0])),
            ("shared memory", call(libc::SYS_shmget, [1, 1, 0o1000, 0])),
            ("newer calls", call(libc::SYS_clone3, [0, 0, 0, 0])),
        ]
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_is_confined_opens_connects_and_calls_only_what_is_needed() {
        let place = tempfile::tempdir().expect("a directory");
        let secret = place.path().join("key.pem");
        std::fs::write(&secret, "secret").expect("written");
        let servers: [TcpListener; 2] =
            std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("free"));
        let [open, closed] = servers
            .each_ref()
            .map(|one| one.local_addr().expect("bound"));
        let (hand_over, taken) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let (told, of_thread) = (secret.clone(), place.path().to_path_buf());
        // Filters are of threads: this one alone is confined.
        let confined = std::thread::spawn(move || {
            let mut held = SecretFile::create("held").expect("made");
            held.replace("proxy").expect("written");
            let readable = ReadablePaths {
                paths: system_paths().collect(),
                trusted: Vec::new(),
            };
            let openable = openable(&readable, &[&held]);
            let listener = super::confine(&readable).expect("confined");
            let handed = (listener.as_raw_fd(), openable);
            hand_over.send(handed).expect("waited for");
            goes_on.recv().expect("judged");
            drop(listener);
            let mut own = String::new();
            let read = File::open(held.path()).and_then(|mut file| file.read_to_string(&mut own));
            assert!(read.is_ok() && own == "proxy", "{read:?}");
            let number = held.file.as_raw_fd();
            for above in [
                "/proc/self/fd",
                "/proc/thread-self/fd",
                "/dev/fd",
                "/usr/lib/../../proc/self/fd",
            ] {
                let opened = File::open(format!("{above}/{number}"));
                assert_eq!(
                    opened.map(drop).map_err(|why| why.raw_os_error()),
                    Err(Some(libc::EACCES)),
                    "{above}"
                );
            }
            assert!(
                File::create(held.path()).is_err()
                    && File::options().append(true).open(held.path()).is_err()
            );
            assert!(File::create("/dev/null").is_ok(), "Globus needs it");
            assert!(File::open("/etc/hosts").is_ok() && File::open("/dev/urandom").is_ok());
            assert!(of_thread.exists(), "metadata stays visible");
            let connect = |address: SocketAddr| TcpStream::connect(address).map(drop);
            (connect(open), connect(closed), attempts(&told))
        });
        let (listener, openable) = taken.recv().expect("confined");
        let gate = Gate::open(std::process::id(), listener, openable).expect("a gate");
        gate.set_judge(Arc::new(move |address| match address == open {
            true => Ok(()),
            false => Err("off limits".to_owned()),
        }));
        go_on.send(()).expect("waits");
        let joined = tokio::task::spawn_blocking(move || confined.join().expect("no panic"));
        let (connected, refused, attempts) = joined.await.expect("joined");
        connected.expect("the judge allows it");
        let refused = refused.expect_err("the judge does not");
        assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
        let seen: Vec<SocketAddr> = gate.take_refused().iter().map(|one| one.address).collect();
        assert_eq!(seen, [closed]);
        let refusals = [libc::EACCES, libc::EPERM, libc::EAFNOSUPPORT, libc::ENOSYS];
        for (what, result) in attempts {
            let errno = result.expect_err(what).raw_os_error();
            assert!(
                refusals.iter().any(|known| Some(*known) == errno),
                "{what}: {errno:?}"
            );
        }
        assert_eq!(std::fs::read_to_string(&secret).expect("there"), "secret");
    }
}
