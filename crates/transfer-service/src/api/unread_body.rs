//! What a client still sends of a request that is answered before its body was read, as one without rights is. Clients send head and
//! body apart: if the connection ended with the answer, they would find it broken and never read why they were refused.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::EXPECT;
use hyper::body::{Frame, Incoming, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// So much of it is taken; behind that the connection ends.
const TAKEN_BYTES_MAX: u64 = 1 << 20;
/// For so long it is waited for.
const TAKEN_TIME_MAX: Duration = Duration::from_secs(2);

/// A body on its way to whoever answers, who gives it back by dropping it.
struct LentBody {
    body: Option<Incoming>,
    back: Option<oneshot::Sender<Incoming>>,
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map(HttpBody::size_hint);
        hint.unwrap_or_default()
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take()) {
            // Whoever has ended the connection needs it no more.
            let _ = back.send(body);
        }
    }
}

/// The rest of a body that was lent.
pub(super) struct UnreadBody {
    back: oneshot::Receiver<Incoming>,
    /// The client sends it only after `100 Continue` (RFC 9110 §10.1.1).
    awaits_continue: bool,
}

impl UnreadBody {
    /// Lends a body to whoever answers the request of this head.
    pub(super) fn lend(head: &HeaderMap, body: Incoming) -> (Body, UnreadBody) {
        let (sender, back) = oneshot::channel();
        let awaits_continue = head.contains_key(EXPECT);
        let lent = LentBody {
            body: Some(body),
            back: Some(sender),
        };
        (
            Body::new(lent),
            UnreadBody {
                back,
                awaits_continue,
            },
        )
    }

    /// When the answer is ready: takes what still comes, within bounds.
    pub(super) async fn take(mut self) {
        if self.awaits_continue {
            return;
        }
        if let Ok(body) = self.back.try_recv()
            && body.size_hint().lower() <= TAKEN_BYTES_MAX
        {
            let _ = timeout(TAKEN_TIME_MAX, drain(body)).await;
        }
    }
}

async fn drain(mut body: Incoming) {
    let mut taken = 0;
    while taken < TAKEN_BYTES_MAX && !body.is_end_stream() {
        match poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            Some(Ok(frame)) => taken += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) | None => return,
        }
    }
}
