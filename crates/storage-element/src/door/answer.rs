//! What a door answers when it is not sending a file: a small answer, or a problem with its status and
//! one line for people. The table of statuses is here and nowhere else.

use crate::mover::Busy;
use crate::write_error::{CommitError, WriteError};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use penstock_decide::admission::PreemptionReason;
use penstock_decide::pool_selection::Unplaceable;
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{ChangeError, NamespaceError, Refusal};
use std::io;

/// Methods that a door knows, for `Allow`.
pub(super) const METHODS: &str =
    "OPTIONS, GET, HEAD, PUT, POST, DELETE, MKCOL, PROPFIND, PROPPATCH, MOVE, COPY, LOCK, UNLOCK";
/// The media type of WebDAV's documents.
const XML: &str = "application/xml; charset=\"utf-8\"";
/// Seconds in `Retry-After` where nothing better is known.
const RETRY_AFTER_SECONDS: u64 = 10;

/// How a request ended.
pub(super) enum Reply {
    /// To be sent.
    Response(Response),
    /// The handler has answered, as far as the connection allowed.
    Sent(io::Result<()>),
}

/// A small answer.
pub(super) struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A request that is not fulfilled.
#[derive(Debug)]
pub(super) struct Problem {
    pub status: StatusCode,
    /// Beyond the usual ones.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// One line: what happened, to which thing, what to do.
    pub text: String,
    /// What WebDAV clients read instead of the line.
    xml: Option<Vec<u8>>,
    /// The log has been told, with more than is known to who answers.
    pub is_logged: bool,
}

impl Response {
    pub(super) fn new(status: StatusCode) -> Response {
        Response {
            status,
            headers: HeaderMap::new(),
            body: Vec::new(),
        }
    }

    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Response {
        self.headers.insert(name, value);
        self
    }
}

/// An answer with a document of WebDAV.
pub(super) fn xml(status: StatusCode, body: Vec<u8>) -> Response {
    let mut answer = Response::new(status).with(CONTENT_TYPE, HeaderValue::from_static(XML));
    answer.body = body;
    answer
}

impl From<Response> for Reply {
    fn from(answer: Response) -> Reply {
        Reply::Response(answer)
    }
}

impl Problem {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Problem {
        Problem {
            status,
            headers: Vec::new(),
            text: text.into(),
            xml: None,
            is_logged: false,
        }
    }

    /// The same, after the log was told.
    pub(super) fn logged(self) -> Problem {
        Problem {
            is_logged: true,
            ..self
        }
    }

    /// Whether it keeps somebody out.
    pub(super) fn is_denial(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED || self.status == StatusCode::FORBIDDEN
    }

    /// The same with a body for WebDAV clients.
    pub(super) fn with_xml(self, xml: Vec<u8>) -> Problem {
        Problem {
            xml: Some(xml),
            ..self
        }
    }

    /// 409 for what another request does just now: worth trying again.
    pub(super) fn conflict_for_now(text: impl Into<String>) -> Problem {
        let mut problem = Problem::new(StatusCode::CONFLICT, text);
        let value = HeaderValue::from(RETRY_AFTER_SECONDS);
        problem.headers.push((RETRY_AFTER, value));
        problem
    }

    /// 409 for a path that is being written: what is removed or moved now would appear again.
    pub(super) fn being_written(path: &NamespacePath) -> Problem {
        Problem::conflict_for_now(WriteError::BeingWritten(path.clone()).to_string())
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, text)
    }

    /// 401: who are you?
    pub(super) fn unauthenticated(text: impl Into<String>) -> Problem {
        let mut problem = Problem::new(StatusCode::UNAUTHORIZED, text);
        // RFC 6750 §3.
        let challenge = HeaderValue::from_static("Bearer");
        problem.headers.push((WWW_AUTHENTICATE, challenge));
        problem
    }

    /// 503, worth trying again.
    pub(super) fn busy(text: impl Into<String>, retry_after_seconds: u64) -> Problem {
        let mut problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, text);
        let value = HeaderValue::from(retry_after_seconds);
        problem.headers.push((RETRY_AFTER, value));
        problem
    }

    /// 503 for a transfer that ended so that somebody else is served.
    pub(super) fn preempted(why: &PreemptionReason) -> Problem {
        Problem::busy(why.to_string(), RETRY_AFTER_SECONDS)
    }

    /// 405 for a method that no door knows, or not on this thing.
    pub(super) fn method(text: impl Into<String>) -> Problem {
        Problem::method_of(METHODS, text)
    }

    /// 405 on a thing that takes these methods only (RFC 9110 §15.5.6).
    pub(super) fn method_of(allowed: &'static str, text: impl Into<String>) -> Problem {
        let mut problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, text);
        let value = HeaderValue::from_static(allowed);
        problem.headers.push((ALLOW, value));
        problem
    }

    /// What a change to the tree was refused for. `exists` is the status for a destination that must not
    /// exist: it differs from method to method.
    pub(super) fn of_change(error: &ChangeError, exists: StatusCode) -> Problem {
        Problem::of_commit(&error.into(), exists)
    }

    /// The same, of a file's entry.
    fn of_commit(error: &CommitError, exists: StatusCode) -> Problem {
        let status = match error {
            CommitError::Refused(refusal) => match refusal {
                Refusal::Exists(_) => exists,
                Refusal::NotFound(_) | Refusal::NotTrash(_) => StatusCode::NOT_FOUND,
                Refusal::Changed(_) => StatusCode::PRECONDITION_FAILED,
                // RFC 4918 §9.3.1, §9.7.1, §9.9.4: an ancestor is missing or no collection.
                Refusal::ParentMissing(_)
                | Refusal::ParentIsFile(_)
                | Refusal::IsDirectory(_)
                | Refusal::TooManyEntries { .. } => StatusCode::CONFLICT,
                // RFC 4918 §9.9.4: source and destination are the same.
                Refusal::IntoItself(_) | Refusal::Root => StatusCode::FORBIDDEN,
                Refusal::TooManyProperties(_) => StatusCode::INSUFFICIENT_STORAGE,
            },
            CommitError::Later(why) => return Problem::busy(why.clone(), RETRY_AFTER_SECONDS),
            CommitError::DiskFull(_) => StatusCode::INSUFFICIENT_STORAGE,
            CommitError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem::new(status, error.to_string())
    }

    /// Why a file was not written.
    pub(super) fn of_write(error: &WriteError, exists: StatusCode) -> Problem {
        let status = match error {
            WriteError::NoSpace { .. } => StatusCode::INSUFFICIENT_STORAGE,
            WriteError::Disk { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            // The condition that the client stated with its digest does not hold; XRootD answers the same.
            WriteError::ChecksumMismatch { .. } | WriteError::ChecksumUnavailable(_) => {
                StatusCode::PRECONDITION_FAILED
            }
            WriteError::WrongSize { .. } => StatusCode::BAD_REQUEST,
            WriteError::Commit(error) => return Problem::of_commit(error, exists),
            WriteError::BeingWritten(path) => return Problem::being_written(path),
            WriteError::Stopping
            | WriteError::DiskStalled { .. }
            | WriteError::PoolFailing { .. }
            | WriteError::Unanswered { .. } => {
                return Problem::busy(error.to_string(), RETRY_AFTER_SECONDS);
            }
        };
        Problem::new(status, error.to_string())
    }

    /// Why no pool takes a file.
    pub(super) fn of_placement(why: Unplaceable, size: Option<u64>) -> Problem {
        match why {
            Unplaceable::NoPoolEnabled => {
                Problem::busy("no pool takes files now; ask the site", RETRY_AFTER_SECONDS)
            }
            Unplaceable::NoneSound => Problem::busy(
                "the disks of all pools with room fail; try again later",
                RETRY_AFTER_SECONDS,
            ),
            Unplaceable::NoSpace => {
                let what = size.map_or("more files".to_owned(), |size| {
                    format!("a file of {size} bytes")
                });
                Problem::new(
                    StatusCode::INSUFFICIENT_STORAGE,
                    format!("no pool has room for {what}; remove files or ask the site for space"),
                )
            }
            Unplaceable::QueuesFull => Problem::busy(
                "all pools with room have full queues; try again later",
                RETRY_AFTER_SECONDS,
            ),
        }
    }
}

impl From<Busy> for Problem {
    fn from(busy: Busy) -> Problem {
        Problem::busy(busy.to_string(), busy.retry_after_seconds)
    }
}

impl From<NamespaceError> for Problem {
    fn from(error: NamespaceError) -> Problem {
        tracing::error!(%error, "the namespace cannot be read");
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the namespace cannot be read; the site's log says why",
        )
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Response {
        let (media_type, body) = match problem.xml {
            Some(xml) => (XML, xml),
            None => (
                "text/plain; charset=utf-8",
                format!("{}\n", problem.text).into_bytes(),
            ),
        };
        let mut answer = Response {
            status: problem.status,
            headers: problem.headers.into_iter().collect(),
            body,
        };
        let media_type = HeaderValue::from_static(media_type);
        answer.headers.insert(CONTENT_TYPE, media_type);
        answer
    }
}
