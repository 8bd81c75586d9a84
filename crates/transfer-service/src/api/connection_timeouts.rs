//! A connection while hyper serves it: whether it waits for its client or works for it, and for how long the
//! client may take nothing of an answer.

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use penstock_model::TimeSpan;
use penstock_protocol::connections::ConnectionSlot;
use penstock_protocol::pace::{Pace, PaceLimit};
use penstock_protocol::stream::Stream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose other end must take what is written.
pub(super) struct BoundedWriter {
    stream: Stream,
    stall_timeout: Duration,
    pace: Pace,
    /// Since when nothing was taken, and when that is too long.
    stalled: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl BoundedWriter {
    pub(super) fn new(stream: Stream, stall_timeout: Duration, pace: PaceLimit) -> BoundedWriter {
        BoundedWriter {
            stream,
            stall_timeout,
            pace: Pace::new(pace.with_pauses(stall_timeout)),
            stalled: None,
        }
    }

    /// Judges a write: `TimedOut` when the other end took nothing, or too little, for too long.
    fn judge(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(count)) => {
                if let Some((since, _)) = self.stalled.take() {
                    self.pace.step(since.elapsed(), count as u64)?;
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(why)) => Poll::Ready(Err(why)),
            Poll::Pending => {
                let limit = self.stall_timeout;
                let begin = || (Instant::now(), Box::pin(sleep(limit)));
                let (_, too_long) = self.stalled.get_or_insert_with(begin);
                match too_long.as_mut().poll(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(()) => Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("the client took nothing for {}", TimeSpan(limit)),
                    ))),
                }
            }
        }
    }
}

impl AsyncRead for BoundedWriter {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for BoundedWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.judge(written, context)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Says that a request is in hand, until it is dropped.
pub(super) struct ActiveRequest {
    admitted: Arc<ConnectionSlot>,
    has_place: bool,
}

impl ActiveRequest {
    pub(super) fn new(admitted: &Arc<ConnectionSlot>) -> ActiveRequest {
        ActiveRequest {
            has_place: admitted.works(),
            admitted: Arc::clone(admitted),
        }
    }

    /// False: others have the connection's place, so the request is not to be served.
    pub(super) fn has_place(&self) -> bool {
        self.has_place
    }

    /// Holds on until the answer's last byte was handed out.
    pub(super) fn until_sent(self, answer: Response) -> Response {
        answer.map(|body| {
            Body::new(ReplyBody {
                body,
                _in_hand: self,
            })
        })
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.admitted.waits();
    }
}

/// An answer's body on its way.
struct ReplyBody {
    body: Body,
    _in_hand: ActiveRequest,
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
