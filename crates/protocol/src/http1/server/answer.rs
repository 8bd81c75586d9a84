//! Answering: whole bodies, files, and streams of chunks; and what becomes of the connection afterwards.

use super::{
    BodyError, Connection, ConnectionPhase, CurrentRequest, FileSent, LINGER, ReplyProgress,
};
use crate::http1::compose;
use crate::http1::head::asks_to_close;
use crate::stream::{self, Patience, ProgressCallback};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// An unread request body up to this size is read and thrown away, so that the connection can go on.
const DRAIN_BYTES_MAX: u64 = 64 << 10;
/// Files up to this size leave in one write with their head. Beyond, the kernel moves the bytes itself.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 10;
/// The same over TLS, where a larger file is read in blocks of this size.
const SMALL_FILE_TLS_BYTES_MAX: u64 = stream::TLS_BLOCK_BYTES as u64;

/// How an answer's body is announced.
#[derive(Clone, Copy)]
enum Announce {
    Length(u64),
    Chunks,
}

impl Connection {
    /// Answers with a whole body. Adds `Content-Length`, `Date` and `Connection`. An unread request body is
    /// drained when it is small; else the connection closes afterwards. For `HEAD` the body is only
    /// measured.
    pub async fn respond(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        body: &[u8],
    ) -> io::Result<()> {
        let (serving, head) =
            self.answer_head(status, &headers, Announce::Length(body.len() as u64))?;
        let body = if serving.head_only || bodyless(status) {
            &[]
        } else {
            body
        };
        self.wire
            .write_parts(&[&head, body], self.limits.body_stall_timeout)
            .await?;
        self.answered(serving).await
    }

    /// Answers a `HEAD`: the length is announced, nothing follows.
    pub async fn respond_head_only(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        content_length: u64,
    ) -> io::Result<()> {
        let (mut serving, head) =
            self.answer_head(status, &headers, Announce::Length(content_length))?;
        // Without HEAD the client waits for a body that will not come; only closing tells it.
        serving.keep_alive &= serving.head_only || bodyless(status) || content_length == 0;
        self.wire
            .write_all(&head, self.limits.body_stall_timeout)
            .await?;
        self.answered(serving).await
    }

    /// Answers with bytes of a file. The caller gives `Content-Range` and the like.
    ///
    /// Errors: `UnexpectedEof` when the file is shorter than the range, `TimedOut` when the client takes
    /// nothing. The connection is of no use afterwards, unless [`Connection::can_answer`] says that nothing
    /// was sent yet.
    pub async fn send_file(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        file: &File,
        range: Range<u64>,
    ) -> io::Result<FileSent> {
        self.send_file_watched(status, headers, file, range, &|_| ())
            .await
    }

    /// Like [`Connection::send_file`]; `on_moved` hears of the file's bytes as they go out.
    pub async fn send_file_watched(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        file: &File,
        range: Range<u64>,
        on_moved: ProgressCallback<'_>,
    ) -> io::Result<FileSent> {
        let length = range.end.saturating_sub(range.start);
        let unanswered = self.state;
        let (serving, head) = self.answer_head(status, &headers, Announce::Length(length))?;
        let stall = self.limits.body_stall_timeout;
        let mut sent = FileSent::default();
        let started = Instant::now();
        if serving.head_only || bodyless(status) {
            self.wire.write_all(&head, stall).await?;
        } else if length <= self.small_file_bytes_max() {
            let mut out = head;
            let body = out.len();
            out.resize(body + length as usize, 0);
            let out = match stream::fill(file, out, body, range.start, stall).await {
                Ok(out) => out,
                Err(why) => {
                    self.state = unanswered;
                    return Err(why);
                }
            };
            sent.read_time = started.elapsed();
            let moved = AtomicUsize::new(0);
            let on_written = |written: usize| {
                let of_body = written.saturating_sub(body);
                on_moved((of_body - moved.swap(of_body, Ordering::Relaxed)) as u64);
            };
            self.wire.write_watched(&out, stall, on_written).await?;
            sent.bytes = length;
            sent.network_time = started.elapsed() - sent.read_time;
        } else {
            self.wire.write_all(&head, stall).await?;
            let patience = Patience {
                stall_timeout: stall,
                pace: &mut self.wire.pace,
            };
            let stream = &mut self.wire.stream;
            sent = stream
                .send_file(file, range.start, length, patience, on_moved)
                .await?;
        }
        self.answered(serving).await?;
        Ok(sent)
    }

    /// Begins an answer whose length is not known: chunks, or for HTTP/1.0 bytes until the connection
    /// closes.
    pub async fn start_chunked(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
    ) -> io::Result<()> {
        let (mut serving, head) = self.answer_head(status, &headers, Announce::Chunks)?;
        self.wire
            .write_all(&head, self.limits.body_stall_timeout)
            .await?;
        serving.answer = ReplyProgress::Streaming;
        self.state = ConnectionPhase::Serving(serving);
        Ok(())
    }

    /// Sends a piece at once. Empty pieces send nothing.
    pub async fn write_chunk(&mut self, piece: &[u8]) -> io::Result<()> {
        let serving = self.streaming()?;
        if !piece.is_empty() && !serving.head_only {
            let stall = self.limits.body_stall_timeout;
            self.state = ConnectionPhase::Broken;
            if serving.modern {
                let size = format!("{:x}\r\n", piece.len());
                self.wire
                    .write_parts(&[size.as_bytes(), piece, b"\r\n"], stall)
                    .await?;
            } else {
                self.wire.write_all(piece, stall).await?;
            }
            self.state = ConnectionPhase::Serving(serving);
        }
        Ok(())
    }

    /// Ends an answer that was begun with [`Connection::start_chunked`].
    pub async fn end_chunks(&mut self) -> io::Result<()> {
        let serving = self.streaming()?;
        self.state = ConnectionPhase::Broken;
        if serving.modern && !serving.head_only {
            self.wire
                .write_all(b"0\r\n\r\n", self.limits.body_stall_timeout)
                .await?;
        }
        self.answered(serving).await
    }

    /// True while the request has no answer, not even the beginning of one.
    pub fn can_answer(&self) -> bool {
        matches!(self.state, ConnectionPhase::Serving(serving) if serving.answer == ReplyProgress::Outstanding)
    }

    fn small_file_bytes_max(&self) -> u64 {
        match self.is_tls() {
            true => SMALL_FILE_TLS_BYTES_MAX,
            false => SMALL_FILE_BYTES_MAX,
        }
    }

    fn streaming(&self) -> io::Result<CurrentRequest> {
        match self.state {
            ConnectionPhase::Serving(serving) if serving.answer == ReplyProgress::Streaming => {
                Ok(serving)
            }
            ConnectionPhase::Serving(_)
            | ConnectionPhase::Idle
            | ConnectionPhase::Closing
            | ConnectionPhase::Broken => Err(out_of_turn()),
        }
    }

    /// Composes the head of the answer and decides whether the connection goes on. From here to `answered`
    /// the connection counts as broken, so that a dropped future cannot leave half an answer behind.
    fn answer_head(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
        announce: Announce,
    ) -> io::Result<(CurrentRequest, Vec<u8>)> {
        let mut serving = match self.state {
            ConnectionPhase::Serving(serving) if serving.answer == ReplyProgress::Outstanding => {
                serving
            }
            ConnectionPhase::Serving(_)
            | ConnectionPhase::Idle
            | ConnectionPhase::Closing
            | ConnectionPhase::Broken => {
                return Err(out_of_turn());
            }
        };
        let until_close = matches!(announce, Announce::Chunks) && !serving.modern;
        // A client that was not told to continue may send its body or not: only closing is unambiguous.
        let drainable = serving
            .body
            .remaining()
            .is_some_and(|bytes| bytes <= DRAIN_BYTES_MAX);
        let asked_to_close = asks_to_close(headers);
        serving.keep_alive &=
            drainable && !serving.awaits_continue && !asked_to_close && !until_close;

        let room = match announce {
            Announce::Length(length) if length <= self.small_file_bytes_max() => length as usize,
            Announce::Length(_) | Announce::Chunks => 0,
        };
        let mut out = Vec::with_capacity(512 + room);
        compose::status_line(&mut out, status);
        self.told = Some(status);
        if !headers.contains_key(DATE) {
            compose::date(&mut out);
        }
        compose::headers(
            &mut out,
            headers,
            &[CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION],
        );
        match announce {
            // RFC 9110 §8.6: neither of them in 1xx and 204.
            _ if status.is_informational() || status == StatusCode::NO_CONTENT => {}
            Announce::Length(length) => compose::number(&mut out, "Content-Length", length),
            Announce::Chunks if serving.modern => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n")
            }
            Announce::Chunks => {}
        }
        let connection = match (serving.keep_alive, serving.modern) {
            (true, true) => None,
            (true, false) => Some("keep-alive"),
            (false, _) => Some("close"),
        };
        if let Some(connection) = connection {
            compose::header(&mut out, &CONNECTION, &HeaderValue::from_static(connection));
        }
        out.extend_from_slice(b"\r\n");
        self.state = ConnectionPhase::Broken;
        Ok((serving, out))
    }

    /// The answer is out: makes ready for the next request, or for closing.
    async fn answered(&mut self, mut serving: CurrentRequest) -> io::Result<()> {
        self.wire.stream.flush().await?;
        if serving.keep_alive && !serving.body.is_done() {
            let draining = async {
                let mut scratch = vec![0; 4 << 10];
                while serving
                    .body
                    .read(&mut self.wire, &mut scratch, LINGER)
                    .await?
                    > 0
                {}
                Ok::<(), BodyError>(())
            };
            serving.keep_alive = matches!(timeout(LINGER, draining).await, Ok(Ok(())));
        }
        self.state = if serving.keep_alive {
            ConnectionPhase::Idle
        } else {
            ConnectionPhase::Closing
        };
        Ok(())
    }
}

/// Answers with these statuses end with their head.
fn bodyless(status: StatusCode) -> bool {
    status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
}

fn out_of_turn() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "no request waits for this answer: it was answered already, or cut in the middle of its answer",
    )
}
