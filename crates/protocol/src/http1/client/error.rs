//! What can go wrong between a client and a server.

use super::super::body::BodyError;
use crate::tls::TlsError;
use http::StatusCode;
use penstock_model::{ProblemCode, TimeSpan};
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Why there is no (whole) response. URLs are shown without their query.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The URL cannot be sent to.
    #[error("'{url}' cannot be reached: {why}")]
    InvalidUrl { url: String, why: String },
    /// The name has no address.
    #[error("cannot resolve {host}: {why}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver says.
        why: String,
    },
    /// Every address of the host is off limits.
    #[error("connecting to {host} is not allowed: {why}")]
    Forbidden {
        host: String,
        /// The reason that the rule gave.
        why: String,
    },
    /// No address of the host accepts connections.
    #[error("cannot connect to {host}: {why}")]
    Connect {
        /// Host and port.
        host: String,
        /// What the last address tried said.
        why: io::Error,
    },
    /// No TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It took too long.
    #[error("{url}: timeout after {} while {phase}", TimeSpan(*limit))]
    Timeout {
        /// The URL, or host and port.
        url: String,
        /// What was being done.
        phase: &'static str,
        /// The bound.
        limit: Duration,
    },
    /// The server closed the connection before a response began, or while the request was being sent.
    #[error("{url}: the server closed the connection {when}: {why}")]
    Closed {
        url: String,
        /// At which point.
        when: &'static str,
        /// What the connection said.
        why: io::Error,
    },
    /// The server answered before the body was sent whole; the rest was not sent.
    #[error("{url}: the server answered {status} before the whole body was sent: {detail}")]
    EarlyAnswer {
        url: String,
        status: StatusCode,
        /// When to come back, as `Retry-After` says in seconds.
        retry_after_seconds: Option<u64>,
        /// The cause, where the server is one of ours.
        told: Option<ProblemCode>,
        /// The beginning of its body.
        detail: String,
    },
    /// What came is no HTTP.
    #[error("{url}: the response is malformed: {why}")]
    Malformed {
        url: String,
        /// In which way.
        why: String,
    },
    /// The body ended early, or the bytes given to an upload did.
    #[error("{url}: only {got} of {expected} bytes came")]
    TooShort {
        url: String,
        /// Bytes announced; 0 when unknown.
        expected: u64,
        /// Bytes that came.
        got: u64,
    },
    /// More than was allowed or announced.
    #[error("{url}: more than {limit} bytes")]
    TooLong {
        url: String,
        /// The bound.
        limit: u64,
    },
    /// Redirects lead in circles, or nowhere.
    #[error("{url}: more than {limit} redirects")]
    TooManyRedirects {
        /// Where it began.
        url: String,
        /// The bound.
        limit: usize,
    },
    /// A redirect that cannot be followed.
    #[error("{url}: the redirect cannot be followed: {why}")]
    BadRedirect {
        /// The URL that redirected.
        url: String,
        why: String,
    },
    /// The file that was to be sent cannot be read, or is shorter than announced.
    #[error("{url}: reading the file to send failed: {why}")]
    File {
        url: String,
        /// What the file system says.
        why: io::Error,
    },
    /// The connection failed in the middle of a body.
    #[error("{url}: the connection failed: {why}")]
    Io {
        url: String,
        /// What it said.
        why: io::Error,
    },
}

impl ClientError {
    /// The cause as users are told it.
    pub fn code(&self) -> ProblemCode {
        match self {
            ClientError::InvalidUrl { .. } => ProblemCode::RequestMalformed,
            ClientError::Resolve { .. } => ProblemCode::NameUnresolved,
            ClientError::Forbidden { .. } => ProblemCode::AddressNotAllowed,
            ClientError::Connect { .. } => ProblemCode::ConnectionRefused,
            ClientError::Tls(TlsError::NotTrusted { .. }) => ProblemCode::TlsUntrusted,
            ClientError::Tls(TlsError::Timeout { .. }) | ClientError::Timeout { .. } => {
                ProblemCode::ConnectionTimeout
            }
            ClientError::Tls(TlsError::Handshake { .. })
            | ClientError::Closed { .. }
            | ClientError::TooShort { .. }
            | ClientError::Io { .. } => ProblemCode::ConnectionBroken,
            ClientError::Tls(TlsError::Load { .. } | TlsError::Setup(_)) => {
                ProblemCode::ConfigurationInvalid
            }
            ClientError::EarlyAnswer { status, told, .. } => {
                told.unwrap_or_else(|| ProblemCode::of_status(status.as_u16()))
            }
            ClientError::Malformed { .. }
            | ClientError::TooLong { .. }
            | ClientError::BadRedirect { .. } => ProblemCode::PeerMalformed,
            ClientError::TooManyRedirects { .. } => ProblemCode::RedirectsTooMany,
            ClientError::File { .. } => ProblemCode::LocalFailure,
        }
    }

    /// The same in words, without what the server wrote: for servers that may be anything, and whose texts are none of
    /// the business of who sent us there.
    pub fn without_foreign_text(&self) -> String {
        match self {
            ClientError::EarlyAnswer { url, status, .. } => {
                format!("{url}: the server answered {status} before the whole body was sent")
            }
            ClientError::Malformed { url, .. } => format!("{url}: the response is malformed"),
            ClientError::BadRedirect { url, .. } => {
                format!("{url}: the redirect cannot be followed")
            }
            ClientError::InvalidUrl { .. }
            | ClientError::Resolve { .. }
            | ClientError::Forbidden { .. }
            | ClientError::Connect { .. }
            | ClientError::Tls(_)
            | ClientError::Timeout { .. }
            | ClientError::Closed { .. }
            | ClientError::TooShort { .. }
            | ClientError::TooLong { .. }
            | ClientError::TooManyRedirects { .. }
            | ClientError::File { .. }
            | ClientError::Io { .. } => self.to_string(),
        }
    }

    /// True when the connection had been closed before the server can have answered.
    pub(super) fn allows_new_connection(&self) -> bool {
        matches!(self, ClientError::Closed { .. })
    }

    pub(super) fn of_body(
        why: BodyError,
        url: String,
        expected: Option<u64>,
        got: u64,
    ) -> ClientError {
        match why {
            BodyError::TooSlow(why) => ClientError::Io { url, why },
            BodyError::Stalled { after } => ClientError::Timeout {
                url,
                phase: "waiting for the next byte of the body",
                limit: after,
            },
            BodyError::TooShort { missing } => match expected {
                Some(expected) => ClientError::TooShort { url, expected, got },
                None => ClientError::Malformed {
                    url,
                    why: format!("after {got} bytes {missing}"),
                },
            },
            BodyError::Malformed(why) => ClientError::Malformed {
                url,
                why: why.to_owned(),
            },
            BodyError::Io(why) => ClientError::Io { url, why },
        }
    }
}
