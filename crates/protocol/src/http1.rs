//! HTTP/1.1 (RFC 9110, RFC 9112) for moving files: a server and a client whose bodies go straight between
//! the socket and the caller's buffer, or from a file to the socket inside the kernel.
//!
//! Deliberately small: no compression, no cookies, no caching, no upgrade, no trailers (they are
//! discarded). Framing is strict, because two parties that disagree on where a message ends can be played
//! against each other.

mod body;
pub mod client;
mod compose;
mod head;
mod near_ends;
pub mod server;
pub mod tally;
mod wire;

use crate::pace::PaceLimit;
use std::time::Duration;

/// How long one connection may take requests.
pub const CONNECTION_AGE_MAX: Duration = Duration::from_secs(3600);

/// What a server puts up with on one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request line with all its headers.
    pub head_bytes_max: usize,
    /// Headers of a request; at most 128 are ever accepted.
    pub headers_max: usize,
    /// From the first byte of a head to its last.
    pub head_timeout: Duration,
    /// How long a connection may wait for its next request.
    pub idle_timeout: Duration,
    /// How long a body, either way, may stand still.
    pub body_stall_timeout: Duration,
    /// How slow a body, either way, may be.
    pub body_pace: PaceLimit,
    /// The answer to a request that comes later than that is a connection's last, so that its client has to say again who
    /// it is, by what counts then.
    pub age_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes_max: 64 << 10,
            headers_max: 100,
            head_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(60),
            body_stall_timeout: Duration::from_secs(60),
            body_pace: PaceLimit::default(),
            age_max: CONNECTION_AGE_MAX,
        }
    }
}
