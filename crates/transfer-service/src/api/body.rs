//! Request bodies: read only for whom the service would answer, within a time, and large ones a few at a time, so that
//! nobody fills the memory or holds the connections.

use super::caller::{Caller, Credentials};
use super::{Api, ApiError};
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use penstock_model::ProblemCode;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

/// Bytes of a submission at most: about 100,000 files in one job.
pub(super) const SUBMISSION_BYTES_MAX: usize = 64 << 20;
/// Bytes of any other body at most.
pub(super) const BYTES_MAX: usize = 64 << 10;
/// From this size on a body needs a permit; as JSON values it takes some ten times as much.
const LARGE_BYTES: u64 = 1 << 20;
/// Large bodies that are read or being understood at once. More wait.
pub(super) const LARGE_AT_ONCE: usize = 4;
/// How long a client may take to send a body.
const TIME_MAX: Duration = Duration::from_secs(60);
/// What is read of a refused request's body, and for how long, so that the client sees the answer and not a reset.
const DRAIN_BYTES_MAX: usize = 1 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// A body with what it needed to be in memory.
pub(super) struct BufferedBody<'a> {
    pub(super) caller: Caller,
    pub(super) bytes: Bytes,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Api {
    /// Authenticates, then reads the body.
    pub(super) async fn take(
        &self,
        credentials: &Credentials,
        body: Body,
        bytes_max: usize,
    ) -> Result<BufferedBody<'_>, ApiError> {
        let caller = match self.caller(credentials).await {
            Ok(caller) => caller,
            Err(refused) => {
                // The answer is the same whatever still comes.
                drop(timeout(DRAIN_TIME_MAX, to_bytes(body, DRAIN_BYTES_MAX)).await);
                return Err(refused);
            }
        };
        let read = async {
            let large = body
                .size_hint()
                .upper()
                .is_none_or(|bytes| bytes >= LARGE_BYTES);
            let permit = match large {
                true => self.large_bodies.acquire().await.ok(),
                false => None,
            };
            let bytes = to_bytes(body, bytes_max).await.map_err(|_| {
                ApiError::new(
                    ProblemCode::BodyTooLarge,
                    format!("the body broke off, or has more than {bytes_max} bytes"),
                )
            })?;
            Ok((bytes, permit))
        };
        let (bytes, _permit) = timeout(TIME_MAX, read).await.unwrap_or_else(|_| {
            Err(ApiError::new(
                ProblemCode::BodyTimeout,
                format!(
                    "the body did not come within {} s; try again",
                    TIME_MAX.as_secs()
                ),
            ))
        })?;
        if holds_nul(&bytes) {
            let text = "a text in the body holds the character U+0000, which cannot be stored";
            return Err(ApiError::new(ProblemCode::RequestMalformed, text));
        }
        Ok(BufferedBody {
            caller,
            bytes,
            _permit,
        })
    }
}

/// Whether a JSON text spells U+0000, which not every database takes: it is refused whatever keeps the journal.
fn holds_nul(body: &[u8]) -> bool {
    let mut rest = body;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        if rest[at + 1..].starts_with(b"u0000") {
            return true;
        }
        // Whatever is escaped here begins no escape itself.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_cannot_be_stored_is_found_however_it_is_spelled() {
        for (text, expected) in [
            (r#"{"a": "b\u0000"}"#, true),
            (r#"{"\u0000": 1}"#, true),
            (r#"{"a": "\\\u0000"}"#, true),
            (r#"{"a": "\\u0000"}"#, false),
            (r#"{"a": "\u0001", "b": "u0000"}"#, false),
            ("\\", false),
            ("", false),
        ] {
            assert_eq!(holds_nul(text.as_bytes()), expected, "{text}");
        }
    }
}
