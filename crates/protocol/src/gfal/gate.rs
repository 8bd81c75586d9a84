//! Judges what a gfal child opens and connects to, from its service: each `open` of the child waits here until it may go
//! on, each `connect` until it is refused, or made for it.
//!
//! The child's own `connect` never runs: the address that was judged is a copy, and the service connects the child's
//! socket to that copy itself, so that nothing which changes in the child's memory meanwhile leads elsewhere
//! (seccomp_unotify(2)). Its `open` does run. A path could change between judgement and use by code in the child only; a
//! server has none there, and code in the child could read its memory without opening it. The files of the system are
//! Landlock's in any case.
#![allow(unsafe_code)]

use super::files::OpenableFiles;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::ffi::{OsStr, c_int};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections of one child that are being made.
const CONNECTING_MAX: usize = 64;
/// Further ones that wait. Others get EAGAIN.
const QUEUED_MAX: usize = 1024;
/// Calls of `connect` that run for one child, and for all. None takes time, unless another thread of the child makes the
/// socket wait: then a thread waits that the service needs for other things.
const CALLS_MAX: usize = 4;
static CALLS: Semaphore = Semaphore::const_new(64);
/// How long one may take to be made: as long as Linux sends the first packet again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(127);
/// Refused connections that are remembered.
const REFUSED_MAX: usize = 20;
/// `PATH_MAX`: bytes of a path with its end.
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of the largest `struct sockaddr`.
const ADDRESS_BYTES_MAX: usize = 128;
/// Where the system's name servers stand.
const RESOLVER_FILE: &str = "/etc/resolv.conf";
const DNS_PORT: u16 = 53;

/// Whether a child may connect to an address; the reason otherwise.
pub type RequestAuthorizer = Arc<dyn Fn(SocketAddr) -> Result<(), String> + Send + Sync>;

/// A connection that a child was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedConnection {
    pub address: SocketAddr,
    pub why: String,
}

/// The gate through which the files and connections of one child go. Dropped, none is opened any more.
pub struct Gate {
    state: Arc<GateState>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct GateState {
    judge: Mutex<Option<RequestAuthorizer>>,
    refused: Mutex<Vec<RefusedConnection>>,
}

impl Gate {
    /// Takes the descriptor with this number from a child, which may open these files. Until there is a judge, all
    /// connections are refused.
    ///
    /// Errors: this process may not look into its child, in words for an administrator.
    pub fn open(child: u32, listener: i32, openable: OpenableFiles) -> io::Result<Gate> {
        let refused = |what: &str, why: io::Error| {
            let text = format!(
                "what it opens cannot be judged: {what}: {why} (Linux 5.6 or later; containers must allow \
                 pidfd_getfd, as with the capability SYS_PTRACE; kernel.yama.ptrace_scope at most 1)"
            );
            io::Error::new(why.kind(), text)
        };
        let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the child has no process id"))?;
        let process = pidfd_open(pid, PidfdFlags::empty());
        let process = process.map_err(|why| refused("pidfd_open", why.into()))?;
        let listener = pidfd_getfd(&process, listener, PidfdGetfdFlags::empty());
        let listener = listener.map_err(|why| refused("pidfd_getfd", why.into()))?;
        let memory = File::open(format!("/proc/{child}/mem"));
        let memory = memory.map_err(|why| refused("its memory", why))?;
        let supervised = Arc::new(Child {
            process,
            memory,
            listener: watched(listener, Interest::READABLE)?,
            openable,
            state: Arc::default(),
            connecting: Semaphore::new(CONNECTING_MAX),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
        });
        Ok(Gate {
            state: supervised.state.clone(),
            task: tokio::spawn(watch(supervised)),
        })
    }

    /// From now on this judge.
    pub fn set_judge(&self, judge: RequestAuthorizer) {
        *lock(&self.state.judge) = Some(judge);
    }

    /// The connections that were refused since this was asked last.
    pub fn take_refused(&self) -> Vec<RefusedConnection> {
        std::mem::take(&mut *lock(&self.state.refused))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(value: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    value.lock()
}

impl GateState {
    fn judge(&self, address: SocketAddr) -> Result<(), String> {
        // An IPv4 address in IPv6 clothes must not pass rules that were written for IPv4.
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        if is_name_server(address) {
            return Ok(());
        }
        let judge = lock(&self.judge).clone();
        let judged = match judge {
            Some(judge) => judge(address),
            None => Err("it serves no transfer yet".to_owned()),
        };
        judged.inspect_err(|why| {
            let mut refused = lock(&self.refused);
            let is_known = refused.iter().any(|known| known.address == address);
            if refused.len() < REFUSED_MAX && !is_known {
                refused.push(RefusedConnection {
                    address,
                    why: why.clone(),
                });
            }
        })
    }
}

/// Names are resolved by the child, over TCP.
fn is_name_server(address: SocketAddr) -> bool {
    if address.port() != DNS_PORT {
        return false;
    }
    let text = std::fs::read_to_string(RESOLVER_FILE).unwrap_or_default();
    name_servers(&text).contains(&address.ip())
}

/// resolv.conf(5).
fn name_servers(text: &str) -> Vec<IpAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = (words.next() == Some("nameserver")).then(|| words.next())??;
        let address = address.split('%').next()?;
        address.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
    });
    let named: Vec<IpAddr> = named.collect();
    match named.is_empty() {
        true => vec![Ipv4Addr::LOCALHOST.into()],
        false => named,
    }
}

struct Child {
    process: OwnedFd,
    memory: File,
    listener: AsyncFd<OwnedFd>,
    openable: OpenableFiles,
    state: Arc<GateState>,
    connecting: Semaphore,
    calls: Arc<Semaphore>,
}

/// Takes what the child asks for until it has ended.
async fn watch(child: Arc<Child>) {
    let mut connecting = JoinSet::new();
    loop {
        while connecting.try_join_next().is_some() {}
        // A child that asks without end must not keep a thread of the service to itself.
        tokio::task::yield_now().await;
        let Ok(mut ready) = child.listener.readable().await else {
            return;
        };
        // Before Linux 6.11 nothing wakes who waits for a child that has ended, so it is never waited there.
        if !notification::is_pending(child.listener.as_fd()) {
            if notification::has_ended(child.listener.as_fd()) {
                return;
            }
            ready.clear_ready();
            continue;
        }
        match notification::receive(child.listener.as_fd()) {
            Ok(asked) => match asked.call {
                Call::Open(open) => child.answer(asked.id, child.judge_open(asked.id, &open)),
                Call::Connect(_) if connecting.len() >= CONNECTING_MAX + QUEUED_MAX => {
                    child.answer(asked.id, Verdict::Failed(Errno::AGAIN));
                }
                Call::Connect(socket) => {
                    let child = child.clone();
                    connecting.spawn(async move {
                        let result = child.connect(asked.id, &socket).await;
                        child.answer(
                            asked.id,
                            result.map_or_else(Verdict::Failed, |()| Verdict::Done),
                        );
                    });
                }
                Call::Other => child.answer(asked.id, Verdict::Failed(Errno::NOSYS)),
            },
            // It was interrupted before this was read, or it has ended.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(why) => {
                tracing::warn!(%why, "file access of a gfal process can no longer be checked");
                return;
            }
        }
    }
}

impl Child {
    fn answer(&self, id: u64, verdict: Verdict) {
        // The child has ended, or was interrupted and asks again.
        let _ = notification::answer(self.listener.as_fd(), id, verdict);
    }

    fn judge_open(&self, id: u64, open: &OpenCall) -> Verdict {
        match self.may_open(id, open) {
            Ok(()) => Verdict::GoOn,
            Err(why) => Verdict::Failed(why),
        }
    }

    fn may_open(&self, id: u64, open: &OpenCall) -> Result<(), Errno> {
        let mut bytes = [0; PATH_BYTES_MAX];
        // Less than that when the memory ends behind the path.
        let read = self.memory.read_at(&mut bytes, open.path);
        let read = read.map_err(|_| Errno::FAULT)?;
        notification::check(self.listener.as_fd(), id)?;
        let bytes = bytes.get(..read).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0);
        let end = end.ok_or(if read < PATH_BYTES_MAX {
            Errno::FAULT
        } else {
            Errno::NAMETOOLONG
        })?;
        let path = Path::new(OsStr::from_bytes(bytes.get(..end).unwrap_or_default()));
        let judged = match open.directory {
            libc::AT_FDCWD => self.openable.judge(path, open.flags),
            _ if path.is_absolute() => self.openable.judge(path, open.flags),
            // No library does so, and where that leads only the child knows.
            _ => Err(Errno::ACCESS),
        };
        judged.inspect_err(|_| tracing::debug!(path = ?path, "a gfal process may not open this"))
    }

    /// The result of the call, as the child gets it.
    async fn connect(&self, id: u64, asked: &ConnectCall) -> Result<(), Errno> {
        let _place = self
            .connecting
            .acquire()
            .await
            .map_err(|_| Errno::CANCELED)?;
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        let length = usize::try_from(asked.length).unwrap_or(usize::MAX);
        let bytes = bytes.get_mut(..length).ok_or(Errno::INVAL)?;
        let read = self.memory.read_exact_at(bytes, asked.address);
        read.map_err(|_| Errno::FAULT)?;
        // Otherwise this may be the memory and the descriptor of a call that is over.
        notification::check(self.listener.as_fd(), id)?;
        let address = parse_address(bytes).ok_or(Errno::AFNOSUPPORT)?;
        self.state.judge(address).map_err(|_| Errno::ACCESS)?;
        let socket = pidfd_getfd(&self.process, asked.descriptor, PidfdGetfdFlags::empty())?;
        let is_tcp =
            rustix::net::sockopt::socket_protocol(&socket)? == Some(rustix::net::ipproto::TCP);
        if !is_tcp {
            return Err(Errno::AFNOSUPPORT);
        }
        connect(socket, address, self.calls.clone()).await
    }
}

/// Connects a socket of the child, which waits if the socket is one that waits.
async fn connect(socket: OwnedFd, address: SocketAddr, calls: Arc<Semaphore>) -> Result<(), Errno> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(&socket)?;
    let waits = !flags.contains(OFlags::NONBLOCK);
    if waits {
        fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
    }
    let (socket, result) = call(socket, address, calls).await?;
    match result {
        Err(Errno::INPROGRESS) if waits => {
            let socket = watched(socket, Interest::WRITABLE).map_err(|_| Errno::NOMEM)?;
            let result = until_connected(&socket).await;
            fcntl_setfl(socket.get_ref(), flags)?;
            result
        }
        result if waits => {
            fcntl_setfl(&socket, flags)?;
            result
        }
        result => result,
    }
}

/// The call itself. It waits only if another thread of the child has made the socket wait again meanwhile.
async fn call(
    socket: OwnedFd,
    address: SocketAddr,
    calls: Arc<Semaphore>,
) -> Result<(OwnedFd, Result<(), Errno>), Errno> {
    // Both places are given back when the call has ended, also when nobody waits for it any more.
    let own = calls.acquire_owned().await.map_err(|_| Errno::CANCELED)?;
    let of_all = CALLS.acquire().await.map_err(|_| Errno::CANCELED)?;
    let called = tokio::task::spawn_blocking(move || {
        let result = rustix::net::connect(&socket, &address);
        drop((own, of_all));
        (socket, result)
    });
    called.await.map_err(|_| Errno::CANCELED)
}

async fn until_connected(socket: &AsyncFd<OwnedFd>) -> Result<(), Errno> {
    match tokio::time::timeout(CONNECT_TIMEOUT, socket.writable()).await {
        Ok(Ok(_)) => rustix::net::sockopt::socket_error(socket.get_ref())?,
        Ok(Err(_)) => Err(Errno::IO),
        Err(_) => Err(Errno::TIMEDOUT),
    }
}

fn watched(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open, and the same, for as long as it is owned.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    watched.map_err(|why| why.into_parts().1)
}

/// `struct sockaddr_in` and `struct sockaddr_in6`; `None` for every other.
fn parse_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match i32::from(family) {
        // The kernel wants all 16 bytes, of which it ignores the last eight.
        libc::AF_INET if bytes.len() >= 16 => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = bytes.get(24..28).and_then(|scope| scope.try_into().ok());
            let scope = scope.map_or(0, u32::from_ne_bytes);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

/// A call of the child that waits.
enum Call {
    Open(OpenCall),
    Connect(ConnectCall),
    /// The filter asks about no other.
    Other,
}

struct OpenCall {
    /// From which relative paths are.
    directory: c_int,
    /// Where the path lies in the child's memory.
    path: u64,
    flags: c_int,
}

struct ConnectCall {
    descriptor: c_int,
    /// Where the address lies in the child's memory.
    address: u64,
    length: u64,
}

/// What the child gets.
enum Verdict {
    /// The call has been made for it.
    Done,
    /// It makes the call itself.
    GoOn,
    Failed(Errno),
}

impl Call {
    fn of(number: libc::c_long, arguments: [u64; 3]) -> Call {
        // The kernel takes the lower half of what is no pointer, too.
        let number_of = |argument: u64| argument as u32 as c_int;
        let [first, second, third] = arguments;
        match number {
            libc::SYS_connect => Call::Connect(ConnectCall {
                descriptor: number_of(first),
                address: second,
                length: third & u64::from(u32::MAX),
            }),
            libc::SYS_openat => Call::Open(OpenCall {
                directory: number_of(first),
                path: second,
                flags: number_of(third),
            }),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => Call::Open(OpenCall {
                directory: libc::AT_FDCWD,
                path: first,
                flags: number_of(second),
            }),
            _ => Call::Other,
        }
    }
}

/// The calls of seccomp_unotify(2).
mod notification {
    use super::{AsRawFd, BorrowedFd, Call, Errno, Verdict, io};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    const RECEIVE: libc::c_ulong = 0xc050_2100;
    const SEND: libc::c_ulong = 0xc018_2101;
    const IS_VALID: libc::c_ulong = 0x4008_2102;
    /// `SECCOMP_USER_NOTIF_FLAG_CONTINUE` (Linux 5.5).
    const CONTINUE: u32 = 1;
    /// Eight-byte words of `struct seccomp_notif`: id, process and flags, call and processor, place, six arguments.
    const WORDS: usize = 10;

    /// `struct seccomp_notif_resp`.
    #[repr(C)]
    struct Response {
        id: u64,
        value: i64,
        error: i32,
        flags: u32,
    }

    /// A child waits for the result of a call.
    pub(super) struct PendingCall {
        pub(super) id: u64,
        pub(super) call: Call,
    }

    pub(super) fn receive(listener: BorrowedFd<'_>) -> Result<PendingCall, Errno> {
        let mut words = [0u64; WORDS];
        // SAFETY: the number of the request tells the size of the structure, which is that of `words`; it is zeroed, as
        // the kernel demands.
        call(unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, words.as_mut_ptr()) })?;
        let [id, _, number, _, first, second, third, ..] = words;
        // Both processors are little-endian: the number of the call comes first.
        let number = libc::c_long::from(number as u32 as i32);
        Ok(PendingCall {
            id,
            call: Call::of(number, [first, second, third]),
        })
    }

    /// Errors: the call is over.
    pub(super) fn check(listener: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
        // SAFETY: a pointer to a value of this frame, of the size that the number of the request tells.
        call(unsafe { libc::ioctl(listener.as_raw_fd(), IS_VALID as _, &raw const id) })
    }

    pub(super) fn answer(listener: BorrowedFd<'_>, id: u64, verdict: Verdict) -> Result<(), Errno> {
        let (error, flags) = match verdict {
            Verdict::Done => (0, 0),
            Verdict::GoOn => (0, CONTINUE),
            Verdict::Failed(why) => (-why.raw_os_error(), 0),
        };
        let response = Response {
            id,
            value: 0,
            error,
            flags,
        };
        // SAFETY: a pointer to a value of this frame, of the size that the number of the request tells.
        call(unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw const response) })
    }

    /// Somebody waits for an answer.
    pub(super) fn is_pending(listener: BorrowedFd<'_>) -> bool {
        happened(listener).contains(PollFlags::IN)
    }

    /// Nobody can ask any more (Linux 5.9; before, the service ends with the child all the same).
    pub(super) fn has_ended(listener: BorrowedFd<'_>) -> bool {
        happened(listener).intersects(PollFlags::HUP | PollFlags::ERR)
    }

    fn happened(listener: BorrowedFd<'_>) -> PollFlags {
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut watched = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
        match poll(&mut watched, Some(&at_once)) {
            Ok(_) => watched[0].revents(),
            Err(_) => PollFlags::empty(),
        }
    }

    fn call(result: libc::c_int) -> Result<(), Errno> {
        match result {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let four = |bytes: &[u8]| {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            parse_address(&[&family, bytes].concat()).map(|address| address.to_string())
        };
        let rest = [0; 8];
        let whole = [&[0, 22, 10, 0, 0, 5][..], &rest].concat();
        assert_eq!(four(&whole).as_deref(), Some("10.0.0.5:22"));
        assert_eq!(four(&whole[..10]), None);
        let six = |ip: &str, scope: u32| {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            let ip: Ipv6Addr = ip.parse().expect("an address");
            let bytes = [
                &family,
                &[4, 70, 0, 0, 0, 0][..],
                &ip.octets(),
                &scope.to_ne_bytes(),
            ];
            parse_address(&bytes.concat()).map(|address| address.to_string())
        };
        assert_eq!(six("::1", 0).as_deref(), Some("[::1]:1094"));
        assert_eq!(six("fe80::1", 2).as_deref(), Some("[fe80::1%2]:1094"));
        let unix = (libc::AF_UNIX as u16).to_ne_bytes();
        assert_eq!(parse_address(&[&unix[..], &[b'/'; 30]].concat()), None);
        assert_eq!(parse_address(&[]), None);
    }

    #[test]
    fn sockets_that_a_child_makes_wait_hold_few_threads_of_the_service() {
        use rustix::net::{AddressFamily, Shutdown, SocketType, listen, shutdown, socket};
        use std::net::{TcpListener, TcpStream};
        use std::time::Instant;

        // A server with room for one caller, who has come: others wait.
        let full = TcpListener::bind("127.0.0.1:0").expect("free");
        listen(&full, 0).expect("listens");
        let address = full.local_addr().expect("bound");
        let _caller = TcpStream::connect(address).expect("room");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(CALLS_MAX + 1)
            .enable_all()
            .build()
            .expect("a runtime");
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        let socket = || socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        // As another thread of the child leaves them: they wait.
        let sockets: Vec<OwnedFd> = (0..8 * CALLS_MAX).map(|_| socket()).collect();
        for one in &sockets {
            let same = one.try_clone().expect("another descriptor");
            runtime.spawn(call(same, address, calls.clone()));
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while calls.available_permits() > 0 {
            assert!(Instant::now() < deadline, "no call of connect waits");
            std::thread::yield_now();
        }
        let (told, hears) = std::sync::mpsc::channel();
        runtime.spawn_blocking(move || told.send(()));
        let heard = hears.recv_timeout(Duration::from_secs(20));
        for one in &sockets {
            // Some were never connected.
            let _ = shutdown(one, Shutdown::Both);
        }
        runtime.shutdown_background();
        heard.expect("a thread is left for other things");
    }

    #[test]
    fn name_servers_are_those_of_the_system() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<String> = name_servers(text).iter().map(IpAddr::to_string).collect();
            assert_eq!(found, expected);
        };
        check("", &["127.0.0.1"]);
        check(
            "# nameserver 1.1.1.1\nsearch x\nnameserver 127.0.0.53\nnameserver fe80::1%eth0\nnameserver x\n",
            &["127.0.0.53", "fe80::1"],
        );
    }

    #[test]
    fn without_a_judge_nothing_is_connected_to_and_each_address_is_remembered_once() {
        let state = GateState::default();
        let address: SocketAddr = "[::ffff:192.0.2.1]:1094".parse().expect("an address");
        for _ in 0..2 {
            assert!(state.judge(address).is_err());
        }
        let refused = lock(&state.refused);
        let shown: Vec<String> = refused.iter().map(|one| one.address.to_string()).collect();
        assert_eq!(shown, ["192.0.2.1:1094"]);
    }
}
