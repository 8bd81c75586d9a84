//! What a gfal child does to itself before it loads foreign code: it dies with its service, inherits nothing, leaves no
//! core file with secrets in it, and takes no more memory than it may.
//!
//! The few calls that have no safe wrapper are here and nowhere else.
#![allow(unsafe_code)]

use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use rustix::process::{
    Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit,
};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;

/// Standard input, output and error stay open; nothing behind them.
const FIRST_FOREIGN_DESCRIPTOR: libc::c_uint = 3;

/// To be called first, while the process has one thread and has opened nothing.
///
/// Errors: the system refuses, or the service has ended already.
pub(super) fn confine(service: u32, memory_bytes_max: Option<u64>) -> io::Result<()> {
    // SAFETY: this process has just begun and owns no descriptor above 2, so none is closed under anybody's feet.
    let closed = unsafe { libc::close_range(FIRST_FOREIGN_DESCRIPTOR, libc::c_uint::MAX, 0) };
    if closed != 0 {
        let why = io::Error::last_os_error();
        // Before Linux 5.9. Whatever starts children closes its descriptors on exec, so this is a second lock.
        if why.raw_os_error() != Some(libc::ENOSYS) {
            return Err(why);
        }
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The service may have ended before that call; then somebody else is the parent by now.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    if parent != i32::try_from(service).ok() {
        return Err(io::Error::other("the service that started this has ended"));
    }
    let at_most = |bytes| Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    setrlimit(Resource::Core, at_most(0))?;
    if let Some(bytes) = memory_bytes_max {
        setrlimit(Resource::As, at_most(bytes))?;
    }
    Ok(())
}

/// A file that is nowhere on disk and ends with this process: here lies the proxy, where libraries find it by path.
pub(super) struct SecretFile(File);

impl SecretFile {
    /// An empty one.
    pub(super) fn create() -> io::Result<SecretFile> {
        let file = memfd_create("proxy", MemfdFlags::CLOEXEC)?;
        // Globus refuses keys that others might read, also where there are no others.
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        Ok(SecretFile(file.into()))
    }

    /// Its path, for this process only.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// What it holds from now on.
    pub(super) fn replace(&mut self, text: &str) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.seek(SeekFrom::Start(0))?;
        self.0.write_all(text.as_bytes())
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
