//! Request bodies: read only for whom the service would answer, within a time, and large ones a few at a time, so that
//! nobody fills the memory or holds the connections.

use super::caller::{Caller, Credentials};
use super::{Api, ApiError};
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use bytes::BytesMut;
use penstock_model::{CredentialId, ProblemCode, TimeSpan};
use penstock_protocol::fair_turns::{FairTurns, Turn};
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of a submission at most: about 100,000 files in one job.
pub(super) const SUBMISSION_BYTES_MAX: usize = 64 << 20;
/// Bytes of any other body at most.
pub(super) const BYTES_MAX: usize = 64 << 10;
/// When so much of a body has come, the rest needs a turn.
const LARGE_BYTES: usize = 1 << 20;
/// Large bodies that are received, or wait to be understood, at once: at most a gigabyte. More wait.
const RECEIVED_AT_ONCE: usize = 16;
/// Large bodies that are understood at once: as JSON values they take some ten times as much memory. Slow clients hold
/// none of these turns.
const UNDERSTOOD_AT_ONCE: usize = 4;
/// Of one user, of either, so that nobody's bodies hold up everybody's.
const LARGE_AT_ONCE_OF_USER: usize = 2;
/// How long a client may take to send a body.
const TIME_MAX: Duration = Duration::from_secs(60);
/// What is read of a refused request's body, and for how long, so that the client sees the answer and not a reset.
const DRAIN_BYTES_MAX: usize = 1 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// A body with what it needed to be in memory.
pub(super) struct BufferedBody {
    pub(super) caller: Caller,
    pub(super) bytes: Bytes,
    _turns: Option<(Turn, Turn)>,
}

/// Whose large body may be received now, and whose understood.
pub(super) struct LargeBodies {
    receiving: FairTurns<CredentialId>,
    understanding: FairTurns<CredentialId>,
}

impl LargeBodies {
    pub(super) fn new() -> LargeBodies {
        LargeBodies {
            receiving: FairTurns::new(RECEIVED_AT_ONCE, LARGE_AT_ONCE_OF_USER),
            understanding: FairTurns::new(UNDERSTOOD_AT_ONCE, LARGE_AT_ONCE_OF_USER),
        }
    }

    /// Receives a body within a time, and waits until a large one can be understood.
    async fn read(
        &self,
        of: &CredentialId,
        body: Body,
        bytes_max: usize,
    ) -> Result<(Bytes, Option<(Turn, Turn)>), ApiError> {
        let received = timeout(TIME_MAX, self.receive(of, body, bytes_max));
        let (bytes, turn) = received.await.unwrap_or_else(|_| {
            Err(ApiError::new(
                ProblemCode::BodyTimeout,
                format!(
                    "the body did not arrive within {}; try again",
                    TimeSpan(TIME_MAX)
                ),
            ))
        })?;
        let turns = match turn {
            None => None,
            Some(turn) => Some((turn, self.understanding.turn(of).await)),
        };
        Ok((bytes, turns))
    }

    /// Receives a body. What is more than a small one is read when it is its turn.
    async fn receive(
        &self,
        of: &CredentialId,
        mut body: Body,
        bytes_max: usize,
    ) -> Result<(Bytes, Option<Turn>), ApiError> {
        let refused = || {
            ApiError::new(
                ProblemCode::BodyTooLarge,
                format!("the body is incomplete, or has more than {bytes_max} bytes"),
            )
        };
        let announced = body.size_hint().lower();
        if announced > bytes_max as u64 {
            return Err(refused());
        }
        let (mut bytes, mut turn) = (BytesMut::new(), None);
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let Ok(data) = frame.map_err(|_| refused())?.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > bytes_max {
                return Err(refused());
            }
            bytes.extend_from_slice(&data);
            if turn.is_none() && bytes.len() >= LARGE_BYTES {
                turn = Some(self.receiving.turn(of).await);
            }
        }
        Ok((bytes.freeze(), turn))
    }
}

impl Api {
    /// Authenticates, then reads the body.
    pub(super) async fn take(
        &self,
        credentials: &Credentials,
        body: Body,
        bytes_max: usize,
    ) -> Result<BufferedBody, ApiError> {
        let caller = match self.caller(credentials).await {
            Ok(caller) => caller,
            Err(refused) => {
                // The answer is the same whatever still comes.
                drop(timeout(DRAIN_TIME_MAX, to_bytes(body, DRAIN_BYTES_MAX)).await);
                return Err(refused);
            }
        };
        let read = self.large_bodies.read(caller.credential(), body, bytes_max);
        let (bytes, _turns) = read.await?;
        if holds_nul(&bytes) {
            let text = "a text in the body contains the character U+0000, which cannot be stored";
            return Err(ApiError::new(ProblemCode::RequestMalformed, text));
        }
        Ok(BufferedBody {
            caller,
            bytes,
            _turns,
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

    fn user(name: &str) -> CredentialId {
        CredentialId::new(name)
    }

    #[tokio::test]
    async fn large_and_slow_bodies_hold_up_nobody_else() {
        let bodies = LargeBodies::new();
        let mut held = Vec::new();
        // More slow ones than can be understood at once.
        for name in ["mallory", "trudy", "eve"] {
            for _ in 0..LARGE_AT_ONCE_OF_USER {
                held.push(bodies.receiving.turn(&user(name)).await);
            }
        }
        for _ in 0..LARGE_AT_ONCE_OF_USER {
            held.push(bodies.understanding.turn(&user("mallory")).await);
        }
        let sent = vec![b'x'; LARGE_BYTES + 1];
        let alice = user("alice");
        let read = bodies.read(&alice, Body::from(sent), SUBMISSION_BYTES_MAX);
        let (bytes, turns) = timeout(Duration::from_secs(5), read)
            .await
            .expect("it waits for nobody")
            .unwrap_or_else(|_| panic!("it is not too large"));
        assert_eq!((bytes.len(), turns.is_some()), (LARGE_BYTES + 1, true));
    }

    #[tokio::test]
    async fn a_body_beyond_its_bound_is_refused() {
        let bodies = LargeBodies::new();
        for (length, is_taken) in [(10, true), (11, false)] {
            let alice = user("alice");
            let read = bodies.read(&alice, Body::from(vec![b' '; length]), 10);
            assert_eq!(read.await.is_ok(), is_taken);
        }
    }
}
