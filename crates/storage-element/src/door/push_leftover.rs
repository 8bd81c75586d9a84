//! What a push that does not come to its end leaves at the destination. Servers that show a file while it comes in
//! (XRootD does) keep its first part, which others would take for the file.
//!
//! Removed is only what can be nobody else's: nothing was there before, bytes were sent, and what is there now has no
//! more bytes than that; or what the destination itself says has come, and is not what was sent.

use super::handler_context::Door;
use super::remote::{redacted, send_following};
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use penstock_protocol::http1::client::ClientRequest;
use std::time::Duration;
use tokio::sync::oneshot;
use url::Url;

/// How long a look and a removal may take together: somebody else's storage must not hold a connection here.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Watches over one push. Nothing is left as long as it was not told of a beginning. Dropped before it was told that all
/// is well, it has the leftover removed.
pub(super) struct LeftoverGuard {
    door: Door,
    remains: Mutex<Option<Remains>>,
}

/// What a push may have left.
struct Remains {
    destination: Url,
    headers: HeaderMap,
    proof: Proof,
}

/// Why what is there is the push's own.
enum Proof {
    /// Nothing was there before, and it has at most as many bytes as may have been sent.
    SentAtMost(u64),
    /// The destination has answered what came, and it is not what was sent; with the version that it spoke of.
    Differs(Option<HeaderValue>),
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

impl LeftoverGuard {
    pub(super) fn of(door: &Door) -> LeftoverGuard {
        LeftoverGuard {
            door: door.clone(),
            remains: Mutex::default(),
        }
    }

    /// The first byte is about to be sent to a place where nothing is.
    pub(super) fn begun(&self, destination: &Url, headers: &HeaderMap) {
        self.set(destination, headers, Proof::SentAtMost(0));
    }

    /// The file is about to be sent up to this byte.
    pub(super) fn sending(&self, until: u64) {
        if let Some(remains) = &mut *self.lock() {
            remains.proof = Proof::SentAtMost(until);
        }
    }

    /// What has arrived is not what was sent, so nobody may take it for a copy.
    pub(super) fn differs(
        &self,
        destination: &Url,
        headers: &HeaderMap,
        version: Option<HeaderValue>,
    ) {
        self.set(destination, headers, Proof::Differs(version));
    }

    /// The file has arrived: what is there is to stay.
    pub(super) fn settled(&self) {
        *self.lock() = None;
    }

    /// The destination has refused the file. One that says that something is there means what somebody else has put there
    /// meanwhile; of the bytes that others have taken before they refused, some may lie there.
    pub(super) fn refused(&self, status: StatusCode) {
        let mut remains = self.lock();
        let has_sent = remains
            .as_ref()
            .is_some_and(|remains| !matches!(remains.proof, Proof::SentAtMost(0)));
        if !has_sent || matches!(status.as_u16(), 409 | 412 | 423) {
            *remains = None;
        }
    }

    fn set(&self, destination: &Url, headers: &HeaderMap, proof: Proof) {
        *self.lock() = Some(Remains {
            destination: destination.clone(),
            headers: headers.clone(),
            proof,
        });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Remains>> {
        self.remains.lock()
    }

    /// Removes what a push has left that is no longer running; goes on when this is dropped. A second call finds nothing
    /// to do.
    pub(super) async fn remove(&self) -> Removal {
        match self.begin_removal() {
            None => Removal::Nothing,
            // Whoever would tell is gone only when the process ends.
            Some(removal) => removal.await.unwrap_or(Removal::Remains),
        }
    }

    fn begin_removal(&self) -> Option<oneshot::Receiver<Removal>> {
        let remains = self.lock().take()?;
        let (tell, told) = oneshot::channel();
        let door = self.door.clone();
        self.door.removals.begin(async move {
            let removal = tokio::time::timeout(REMOVAL_TIMEOUT, remains.remove(&door)).await;
            let removal = removal.unwrap_or(Removal::Remains);
            if removal == Removal::Remains {
                let destination = redacted(&remains.destination);
                tracing::warn!(destination, "what a push left there could not be removed");
            }
            // Nobody waits for it when its request was given up.
            let _ = tell.send(removal);
        });
        Some(told)
    }
}

impl Drop for LeftoverGuard {
    fn drop(&mut self) {
        drop(self.begin_removal());
    }
}

impl Remains {
    async fn remove(&self, door: &Door) -> Removal {
        let request = |method| ClientRequest {
            headers: self.headers.clone(),
            ..ClientRequest::new(method, self.destination.clone())
        };
        let (there, version) = match send_following(door, request(Method::HEAD)).await {
            Ok(answer) if is_absent(answer.status) => return Removal::Nothing,
            Ok(answer) if answer.status == StatusCode::OK => {
                (answer.content_length(), strong_version(&answer.headers))
            }
            Ok(_) | Err(_) => (None, None),
        };
        let is_own = match &self.proof {
            Proof::SentAtMost(sent_max) => there.is_some_and(|size| size <= *sent_max),
            // Another version has come since.
            Proof::Differs(Some(spoken_of)) => {
                version.as_ref().is_none_or(|there| there == spoken_of)
            }
            Proof::Differs(None) => true,
        };
        if !is_own {
            return Removal::Remains;
        }
        let mut removal = request(Method::DELETE);
        if let Some(version) = version {
            // What another copy brings in this moment stays.
            removal.headers.insert(IF_MATCH, version);
        }
        match send_following(door, removal).await {
            Ok(answer) if answer.status.is_success() || is_absent(answer.status) => {
                Removal::Removed
            }
            Ok(_) | Err(_) => Removal::Remains,
        }
    }
}

/// By what a version of a file is told from every other one (RFC 9110 §8.8.3), if the server tells it.
pub(super) fn strong_version(headers: &HeaderMap) -> Option<HeaderValue> {
    let tag = headers.get(ETAG)?;
    tag.as_bytes().starts_with(b"\"").then(|| tag.clone())
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
