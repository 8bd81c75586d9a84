//! What a push that does not come to its end leaves at the destination. Servers that show a file while it comes in
//! (XRootD does) keep its first part, which others would take for the file.
//!
//! Removed is only what can be nobody else's: nothing was there before, bytes were sent, and what is there now has no
//! more bytes than that.

use super::Door;
use super::copy::{send_following, shown};
use http::{HeaderMap, Method, StatusCode};
use penstock_protocol::http1::client::Outgoing;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use url::Url;

/// How long a look and a removal may take together: somebody else's storage must not hold a connection here.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Watches over one push. Nothing is left as long as it was not told of a beginning.
#[derive(Default)]
pub(super) struct Leftover(Mutex<Option<Begun>>);

struct Begun {
    destination: Url,
    headers: HeaderMap,
    /// Bytes that may have been sent.
    sent_max: u64,
}

/// What became of a leftover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// There was none.
    Nothing,
    Removed,
    /// It is there still, or what is there is not known.
    Remains,
}

impl Leftover {
    /// The first byte is about to be sent to a place where nothing is.
    pub(super) fn begun(&self, destination: &Url, headers: &HeaderMap) {
        self.set(Some(Begun {
            destination: destination.clone(),
            headers: headers.clone(),
            sent_max: 0,
        }));
    }

    /// The file is about to be sent up to this byte.
    pub(super) fn sending(&self, until: u64) {
        if let Some(begun) = &mut *self.lock() {
            begun.sent_max = until;
        }
    }

    /// The file has arrived, or was refused: what is there is to stay.
    pub(super) fn settled(&self) {
        self.set(None);
    }

    fn set(&self, begun: Option<Begun>) {
        *self.lock() = begun;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Begun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what a push has left that is no longer running. A second call finds nothing to do.
    pub(super) async fn remove(&self, door: &Door) -> Removal {
        let begun = self.lock().take();
        let Some(begun) = begun else {
            return Removal::Nothing;
        };
        let removal = tokio::time::timeout(REMOVAL_TIMEOUT, begun.remove(door)).await;
        let removal = removal.unwrap_or(Removal::Remains);
        if removal == Removal::Remains {
            let destination = shown(&begun.destination);
            tracing::warn!(
                destination,
                "what a cancelled push left there could not be removed"
            );
        }
        removal
    }
}

impl Begun {
    async fn remove(&self, door: &Door) -> Removal {
        let request = |method| Outgoing {
            headers: self.headers.clone(),
            ..Outgoing::new(method, self.destination.clone())
        };
        let there = match send_following(door, request(Method::HEAD)).await {
            Ok(answer) if is_absent(answer.status) => return Removal::Nothing,
            Ok(answer) if answer.status == StatusCode::OK => answer.content_length(),
            Ok(_) | Err(_) => None,
        };
        if there.is_none_or(|size| size > self.sent_max) {
            return Removal::Remains;
        }
        match send_following(door, request(Method::DELETE)).await {
            Ok(answer) if answer.status.is_success() || is_absent(answer.status) => {
                Removal::Removed
            }
            Ok(_) | Err(_) => Removal::Remains,
        }
    }
}

/// The server is sure that nothing is there.
pub(super) fn is_absent(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

impl Removal {
    /// To be added to a failure, for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Removal::Nothing => "",
            Removal::Removed => "; the partial file there was removed",
            Removal::Remains => "; what it left there could not be removed",
        }
    }
}
