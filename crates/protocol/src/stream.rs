//! A connection, with or without TLS, and the ways to push a file into it.
//!
//! Plain connections let the kernel send the file itself (`sendfile`); TLS reads a block ahead while the
//! block before it is encrypted and written. Reads that would wait for a disk never run on the threads that
//! serve sockets. Knows nothing of HTTP.

mod file_source;

use crate::pace::Pace;
use crate::tcp_info;
pub use file_source::FileStalled;
pub(crate) use file_source::fill;
use file_source::{FileSource, Prefetch};
use penstock_model::{TcpSummary, TimeSpan};
use socket2::{SockRef, TcpKeepalive};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

/// Bytes that one `sendfile` call may move: small enough that other connections of the thread get their
/// turn.
const SENDFILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes per block read for TLS.
pub(crate) const TLS_BLOCK_BYTES: usize = 256 << 10;

/// One TCP connection, with or without TLS around it.
pub enum Stream {
    /// Bytes as they are.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<SslStream<TcpStream>>),
}

/// How long to wait for the other end: for any one step, and on the whole.
pub struct Patience<'a> {
    /// For any one step.
    pub stall_timeout: Duration,
    /// On the whole.
    pub pace: &'a mut Pace,
}

/// Hears of bytes of a file while they go out, for live counters.
pub type ProgressCallback<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// What sending a file took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileSent {
    /// Bytes of the file that were handed to the kernel.
    pub bytes: u64,
    /// Time spent waiting for the file's bytes. Reads that overlap sending are not in it.
    pub read_time: Duration,
    /// Time spent pushing bytes into the socket, encryption included.
    pub network_time: Duration,
}

/// How long a peer may acknowledge nothing before its connection counts as broken. Without it a peer whose host is gone
/// is noticed after a quarter of an hour, and what runs for it goes on that long. It is no shorter than the time for which
/// a reader may stand still: to the kernel that looks the same.
pub const PEER_SILENCE_MAX: Duration = Duration::from_secs(60);
/// After so much silence the peer is asked whether it is there, again and again.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Sets up a connection, whoever began it: every message here is written whole, so Nagle's algorithm is off, and a peer
/// that is gone is noticed.
pub(crate) fn prepare(tcp: &TcpStream) {
    // A socket that refuses an option is slower, or notices later, and is not wrong.
    let _ = tcp.set_nodelay(true);
    let socket = SockRef::from(tcp);
    let _ = socket.set_tcp_user_timeout(Some(PEER_SILENCE_MAX));
    let probes = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL);
    let _ = socket.set_tcp_keepalive(&probes);
}

impl Stream {
    /// A plain connection.
    pub fn plain(tcp: TcpStream) -> Stream {
        prepare(&tcp);
        Stream::Plain(tcp)
    }

    /// Lets the peer stand still for longer than [`PEER_SILENCE_MAX`].
    pub(crate) fn bear_silence(&self, longest: Duration) {
        if longest > PEER_SILENCE_MAX {
            // It is only cut off sooner.
            let _ = SockRef::from(self.tcp()).set_tcp_user_timeout(Some(longest));
        }
    }

    /// While it is held together, the kernel sends full packets only. TLS hands it one record after the other, and each
    /// would wake the other end.
    pub(crate) fn hold_together(&self, is_held: bool) {
        // A socket that refuses it sends more packets, which is not wrong.
        let _ = SockRef::from(self.tcp()).set_tcp_cork(is_held);
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.get_ref(),
        }
    }

    /// State of the TCP connection.
    pub fn tcp_info(&self) -> Option<TcpSummary> {
        tcp_info::read(self.as_fd())
    }

    /// The address of the other end; an error when the connection is gone already.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp().peer_addr()
    }

    /// The certificate that the other end of a TLS connection showed, as PEM; believed or not.
    pub fn peer_certificate_pem(&self) -> Option<String> {
        let Stream::Tls(tls) = self else {
            return None;
        };
        let shown = tls.ssl().peer_certificate()?;
        String::from_utf8(shown.to_pem().ok()?).ok()
    }

    /// The certificate of the authority by which the other end of a TLS connection is believed, as PEM. `None`: it is not
    /// believed, or the session was resumed.
    pub fn peer_authority_pem(&self) -> Option<String> {
        let Stream::Tls(tls) = self else {
            return None;
        };
        let root = tls.ssl().verified_chain()?.iter().last()?;
        String::from_utf8(root.to_pem().ok()?).ok()
    }

    /// True when the bytes are encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// Sends `length` bytes of `file` from `offset`; `on_moved` hears how many bytes each step handed to the
    /// kernel.
    ///
    /// Errors: `UnexpectedEof` when the file is shorter, `TimedOut` with [`FileStalled`] when its disk does not answer,
    /// `TimedOut` when the patience is at its end. How many bytes went out
    /// is then unknown to the other end, so the connection must be closed. Dropping the future has the same
    /// effect.
    pub async fn send_file(
        &mut self,
        file: &File,
        offset: u64,
        length: u64,
        patience: Patience<'_>,
        on_moved: ProgressCallback<'_>,
    ) -> io::Result<FileSent> {
        if offset.checked_add(length).is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match self {
            Stream::Plain(tcp) => send_plain(tcp, file, offset, length, patience, on_moved).await,
            Stream::Tls(tls) => send_blocks(tls, file, offset, length, patience, on_moved).await,
        }
    }
}

/// Lets the kernel move the bytes from the page cache to the socket.
async fn send_plain(
    tcp: &TcpStream,
    file: &File,
    offset: u64,
    length: u64,
    patience: Patience<'_>,
    on_moved: ProgressCallback<'_>,
) -> io::Result<FileSent> {
    let mut sent = FileSent::default();
    let piece_at = |done: u64| (length - done).min(SENDFILE_BYTES_MAX);
    let mut cached = Prefetch::start(file, offset, piece_at(0))?;
    while sent.bytes < length {
        sent.read_time += cached.wait(patience.stall_timeout).await?;
        let (position, piece) = (offset + sent.bytes, piece_at(sent.bytes));
        cached = Prefetch::start(file, position + piece, piece_at(sent.bytes + piece))?;
        let started = Instant::now();
        let mut moved = 0;
        while moved < piece {
            let count = usize::try_from(piece - moved).expect("at most a MiB");
            let step = tcp.async_io(Interest::WRITABLE, || {
                let mut from = position + moved;
                Ok(rustix::fs::sendfile(tcp, file, Some(&mut from), count)?)
            });
            let begun = Instant::now();
            match within(patience.stall_timeout, step).await? {
                0 => return Err(file_source::shrunk(position + moved)),
                step => {
                    patience.pace.step(begun.elapsed(), step as u64)?;
                    moved += step as u64;
                    on_moved(step as u64);
                }
            }
        }
        sent.bytes += piece;
        sent.network_time += started.elapsed();
        // A fast receiver must not keep the thread from the other connections.
        tokio::task::yield_now().await;
    }
    Ok(sent)
}

/// Reads blocks and writes them, the next block being read while one is written.
async fn send_blocks(
    tls: &mut SslStream<TcpStream>,
    file: &File,
    offset: u64,
    length: u64,
    patience: Patience<'_>,
    on_moved: ProgressCallback<'_>,
) -> io::Result<FileSent> {
    let mut sent = FileSent::default();
    let mut source = FileSource::new(file, offset, length, TLS_BLOCK_BYTES);
    loop {
        let started = Instant::now();
        let Some(block) = source.next_block(patience.stall_timeout).await? else {
            return Ok(sent);
        };
        let read_at = Instant::now();
        sent.read_time += read_at - started;
        let mut rest = &block[..];
        while !rest.is_empty() {
            let begun = Instant::now();
            let step = within(patience.stall_timeout, tls.write(rest)).await?;
            patience.pace.step(begun.elapsed(), step as u64)?;
            rest = &rest[step..];
            on_moved(step as u64);
        }
        sent.bytes += block.len() as u64;
        sent.network_time += read_at.elapsed();
        source.give_back(block);
    }
}

/// An error of sending a file that speaks of the file or its disk. No socket gives these.
pub fn is_of_file(why: &io::Error) -> bool {
    use rustix::io::Errno;
    let is_stalled = why.get_ref().is_some_and(|why| why.is::<FileStalled>());
    let is_of_disk = Errno::from_io_error(why).is_some_and(|errno| {
        matches!(
            errno,
            Errno::IO
                | Errno::ISDIR
                | Errno::NXIO
                | Errno::NODEV
                | Errno::STALE
                | Errno::UCLEAN
                | Errno::BADMSG
                | Errno::REMOTEIO
        )
    });
    is_stalled || is_of_disk || why.kind() == io::ErrorKind::UnexpectedEof
}

/// Bounds one step of I/O. Errors: `TimedOut`, or that of the step.
pub(crate) async fn within<T>(
    limit: Duration,
    step: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match tokio::time::timeout(limit, step).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the other end took nothing for {}", TimeSpan(limit)),
        )),
    }
}

/// Looks at the TCP state of a connection that another task is using. Does not keep the connection open.
#[derive(Debug, Clone)]
pub struct TcpProbe(Weak<OwnedFd>);

impl TcpProbe {
    /// State of the connection; `None` once it is closed.
    pub fn read(&self) -> Option<TcpSummary> {
        self.0.upgrade().and_then(|fd| tcp_info::read(fd.as_fd()))
    }
}

/// The connection's end of its probes: a second descriptor that must be dropped together with the stream,
/// else the other end would not see the connection close.
#[derive(Default)]
pub(crate) struct ProbeOwner(Option<Arc<OwnedFd>>);

impl ProbeOwner {
    /// A probe of `stream`. Errors: no descriptor left.
    pub(crate) fn probe(&mut self, stream: &Stream) -> io::Result<TcpProbe> {
        let fd = match &self.0 {
            Some(fd) => fd,
            None => self
                .0
                .insert(Arc::new(stream.as_fd().try_clone_to_owned()?)),
        };
        Ok(TcpProbe(Arc::downgrade(fd)))
    }
}

/// A TCP connection that ends without TLS's goodbye may have been cut by anybody: an error, but one with a
/// name.
fn name_truncation(why: io::Error) -> io::Error {
    let cause = why
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<openssl::ssl::Error>());
    let stack = cause.and_then(|cause| cause.ssl_error());
    let is_end =
        |error: &openssl::error::Error| error.reason() == Some("unexpected eof while reading");
    match stack.is_some_and(|stack| stack.errors().iter().any(is_end)) {
        true => io::ErrorKind::UnexpectedEof.into(),
        false => why,
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp().as_fd()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Stream::Tls(tls) => {
                let read = Pin::new(tls.as_mut()).poll_read(context, buffer);
                read.map_err(name_truncation)
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(context, parts),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self, Stream::Plain(_))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki;
    use crate::tls::{ClientTls, PeerTls, ServerTls};
    use tokio::net::TcpListener;

    async fn connections() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.expect("connected"), far.expect("accepted").0)
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_noticed_on_both_sides_of_all_connections() {
        let directory = tempfile::tempdir().expect("made");
        let directory = directory.path();
        let ca = pki::create_ca(directory, "lab").expect("a CA");
        let (names, day) = (["localhost".to_owned()], Duration::from_secs(86_400));
        pki::issue_host_certificate(&ca, &names, day, directory).expect("issued");
        let trusted = directory.join("trusted");
        pki::install_ca(&directory.join("ca.pem"), &trusted).expect("installed");
        let (chain, key) = (directory.join("cert.pem"), directory.join("key.pem"));

        let (near, far) = connections().await;
        let mut streams = vec![Stream::plain(near), Stream::plain(far)];
        let client = ClientTls::from_ca_directory(&trusted).expect("loads");
        let server = ServerTls::load(&chain, &key).expect("loads");
        let (near, far) = connections().await;
        let (near, far) = tokio::join!(client.connect("localhost", near), server.accept(far));
        streams.extend([near.expect("connected"), far.expect("accepted")]);
        let peer = PeerTls::load(&chain, &key).expect("loads");
        let (near, far) = connections().await;
        let (near, far) = tokio::join!(peer.connect(near), peer.accept(far));
        streams.extend([near.expect("connected").0, far.expect("accepted").0]);

        for (number, stream) in streams.iter().enumerate() {
            let told = || {
                let socket = SockRef::from(stream.tcp());
                (socket.keepalive().ok(), socket.tcp_user_timeout().ok())
            };
            let expected = (Some(true), Some(Some(PEER_SILENCE_MAX)));
            assert_eq!(told(), expected, "{number}");
            stream.bear_silence(PEER_SILENCE_MAX / 2);
            assert_eq!(told().1, Some(Some(PEER_SILENCE_MAX)));
            stream.bear_silence(PEER_SILENCE_MAX * 5);
            assert_eq!(told().1, Some(Some(PEER_SILENCE_MAX * 5)));
        }
    }
}
