//! A stream with the bytes that were read from it too early: heads, chunk sizes and small bodies go through
//! the buffer, large bodies past it.

use super::near_ends::NearEnd;
use crate::pace::{Pace, PaceLimit};
use crate::stream::{Stream, within};
use bytes::{Buf, BytesMut};
use penstock_model::TcpSummary;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Bytes of buffer that a connection keeps while it waits for work.
pub(super) const BUFFER_BYTES: usize = 4 << 10;

/// Bytes of a full record of TLS.
const TLS_RECORD_BYTES: usize = 16 << 10;

/// Head and body together below this are copied into one write.
const ONE_WRITE_BYTES_MAX: usize = 64 << 10;

pub(super) struct Wire {
    pub(super) stream: Stream,
    buffer: BytesMut,
    /// Of what is written.
    pub(super) pace: Pace,
    /// The socket at the begin of the latest request.
    tcp_begun: Option<TcpSummary>,
    /// Known as ours until the stream, which stands above it, is closed.
    _near_end: Option<NearEnd>,
}

impl Wire {
    /// A wire that any pace of the other end suits.
    pub(super) fn new(stream: Stream) -> Wire {
        Wire {
            stream,
            pace: Pace::new(PaceLimit::NONE),
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
            tcp_begun: None,
            _near_end: None,
        }
    }

    /// A wire of a connection that we made.
    pub(super) fn with_near_end(self, near_end: NearEnd) -> Wire {
        Wire {
            _near_end: Some(near_end),
            ..self
        }
    }

    /// Notes that a request begins.
    pub(super) fn begin_request(&mut self) {
        self.tcp_begun = self.stream.tcp_info();
    }

    /// State of the TCP connection. Its counters run from the begin of the latest request.
    pub(super) fn tcp_info(&self) -> Option<TcpSummary> {
        let now = self.stream.tcp_info()?;
        Some(self.tcp_begun.map_or(now, |begun| now.since(begun)))
    }

    /// Bytes that were read and not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.buffer.advance(count);
    }

    /// Gives memory back that a large head took, and makes room for a whole usual head where others were. For moments without
    /// work.
    pub(super) fn tidy(&mut self) {
        if !self.buffer.is_empty() {
            return;
        }
        if self.buffer.capacity() > BUFFER_BYTES {
            self.buffer = BytesMut::with_capacity(BUFFER_BYTES);
        } else {
            self.buffer.reserve(BUFFER_BYTES);
        }
    }

    /// Reads more behind the unread bytes, as much as there is at once. 0 at the end of the stream. Loses
    /// nothing when dropped.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        if self.buffer.len() == self.buffer.capacity() {
            self.buffer.reserve(self.buffer.len().max(BUFFER_BYTES));
        }
        self.stream.read_buf(&mut self.buffer).await
    }

    /// Like [`Wire::fill`], without waiting. `None`: nothing has come.
    pub(super) fn try_fill(&mut self) -> Option<io::Result<usize>> {
        let mut fill = pin!(self.fill());
        match fill
            .as_mut()
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
        {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Bytes for `out`: the unread ones first, else from the stream, as much as is there without waiting
    /// twice. 0 at the end of the stream. Loses nothing when dropped.
    pub(super) async fn read(
        &mut self,
        out: &mut [u8],
        stall_timeout: Duration,
    ) -> io::Result<usize> {
        if !self.buffer.is_empty() {
            let count = out.len().min(self.buffer.len());
            out[..count].copy_from_slice(&self.buffer[..count]);
            self.buffer.advance(count);
            return Ok(count);
        }
        let stream = &mut self.stream;
        let reading = std::future::poll_fn(|context| {
            let mut into = ReadBuf::new(out);
            loop {
                let before = into.filled().len();
                match Pin::new(&mut *stream).poll_read(context, &mut into) {
                    // What came before an error is handed out; the error comes again.
                    Poll::Ready(Err(why)) if before == 0 => return Poll::Ready(Err(why)),
                    Poll::Pending if before == 0 => return Poll::Pending,
                    Poll::Ready(Err(_)) | Poll::Pending => return Poll::Ready(Ok(before)),
                    Poll::Ready(Ok(())) => {
                        let filled = into.filled().len();
                        if filled == before || into.remaining() == 0 {
                            return Poll::Ready(Ok(filled));
                        }
                    }
                }
            }
        });
        within(stall_timeout, reading).await
    }

    /// Writes everything. `stall_timeout` bounds each wait for the other end to take something.
    pub(super) async fn write_all(
        &mut self,
        bytes: &[u8],
        stall_timeout: Duration,
    ) -> io::Result<()> {
        self.write_watched(bytes, stall_timeout, |_| ()).await
    }

    /// The same; `on_written` hears how many bytes were written so far.
    pub(super) async fn write_watched(
        &mut self,
        bytes: &[u8],
        stall_timeout: Duration,
        on_written: impl Fn(usize),
    ) -> io::Result<()> {
        let is_held = bytes.len() > TLS_RECORD_BYTES && self.stream.is_tls();
        if is_held {
            self.stream.hold_together(true);
        }
        let written = self.write_steps(bytes, stall_timeout, on_written).await;
        if is_held {
            self.stream.hold_together(false);
        }
        written
    }

    async fn write_steps(
        &mut self,
        bytes: &[u8],
        stall_timeout: Duration,
        on_written: impl Fn(usize),
    ) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            let begun = Instant::now();
            match within(stall_timeout, self.stream.write(&bytes[written..])).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => {
                    self.pace.step(begun.elapsed(), count as u64)?;
                    written += count;
                    on_written(written);
                }
            }
        }
        Ok(())
    }

    /// Writes a head (or a chunk's size) and what belongs to it, in one packet when they are small.
    pub(super) async fn write_parts(
        &mut self,
        parts: &[&[u8]],
        stall_timeout: Duration,
    ) -> io::Result<()> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total <= ONE_WRITE_BYTES_MAX {
            return self.write_all(&parts.concat(), stall_timeout).await;
        }
        if !self.stream.is_write_vectored() {
            // TLS cuts into records anyway, so separate writes cost little.
            for part in parts {
                self.write_all(part, stall_timeout).await?;
            }
            return Ok(());
        }
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let begun = Instant::now();
            match within(stall_timeout, self.stream.write_vectored(left)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => {
                    self.pace.step(begun.elapsed(), count as u64)?;
                    IoSlice::advance_slices(&mut left, count);
                }
            }
        }
        Ok(())
    }
}
