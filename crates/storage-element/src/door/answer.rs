//! What a door answers when it is not sending a file: a small answer, or a problem with its status and
//! one line for people. The table of statuses is here and nowhere else.

use crate::mover::PoolQueueFull;
use crate::write_error::{CommitError, WriteError};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use penstock_decide::admission::PreemptionReason;
use penstock_decide::pool_selection::PlacementRefusal;
use penstock_model::{NamespacePath, ProblemCode};
use penstock_persistence::namespace::{ChangeError, ChangeRefusal, NamespaceError};
use penstock_protocol::fair_turns::Turn;
use penstock_protocol::problem::{self, PROBLEM_HEADER};
use penstock_protocol::told::RepeatedErrors;
use serde_json::Value;
use std::io;
use std::sync::LazyLock;

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
    /// The same in a turn, which others have when it is sent.
    InTurn(Response, Turn),
    /// The handler has answered, as far as the connection allowed.
    Sent(io::Result<()>),
}

/// A small answer.
pub(super) struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// In which form a problem is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProblemForm {
    /// One line of text, or what WebDAV asks for.
    Line,
    /// A document of RFC 9457.
    Document,
}

/// A request that is not fulfilled.
#[derive(Debug)]
pub(super) struct Problem {
    /// As users are told it everywhere.
    pub cause: Box<penstock_model::Problem>,
    /// The code's own, unless a specification asks for another.
    pub status: StatusCode,
    /// Beyond the usual ones.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The scope that a token should have.
    scope: Option<String>,
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

/// A document that programs read, as it is now.
pub(super) fn json_answer(status: StatusCode, document: &Value) -> Response {
    written_json_answer(status, document.to_string().into_bytes())
}

/// The same of one that is written.
pub(super) fn written_json_answer(status: StatusCode, document: Vec<u8>) -> Response {
    let mut answer = Response::new(status)
        .with(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .with(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.body = document;
    answer
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
    pub(super) fn new(code: ProblemCode, text: impl Into<String>) -> Problem {
        let status = code.facts().status;
        Problem {
            cause: Box::new(penstock_model::Problem::new(code, text)),
            status: StatusCode::from_u16(status).expect("a test keeps it between 200 and 600"),
            headers: Vec::new(),
            scope: None,
            xml: None,
            is_logged: false,
        }
    }

    /// One line: what happened, to which thing, what to do.
    pub(super) fn text(&self) -> &str {
        &self.cause.message
    }

    /// The same with a status that a specification asks for.
    pub(super) fn with_status(self, status: StatusCode) -> Problem {
        Problem { status, ..self }
    }

    /// The same in other words.
    pub(super) fn in_words(mut self, text: String) -> Problem {
        self.cause.message = text;
        self
    }

    /// The same, naming the scope that a token should have.
    pub(super) fn needing(self, scope: Option<String>) -> Problem {
        Problem { scope, ..self }
    }

    /// The same, after the log was told.
    pub(super) fn logged(self) -> Problem {
        Problem {
            is_logged: true,
            ..self
        }
    }

    /// The answer, in the form that the client of these headers would rather have.
    pub(super) fn answer(self, asked: &HeaderMap) -> Response {
        let form = match problem::prefers_json(asked) {
            true => ProblemForm::Document,
            false => ProblemForm::Line,
        };
        self.answer_as(form)
    }

    /// The answer in this form.
    pub(super) fn answer_as(self, form: ProblemForm) -> Response {
        let prefers_json = form == ProblemForm::Document;
        let headers = self.told_headers();
        let (media_type, body) = match self.xml {
            // RFC 4918 §13: what happened to the members is in the document only.
            Some(xml) if self.status == StatusCode::MULTI_STATUS || !prefers_json => (XML, xml),
            Some(_) | None if prefers_json => (
                problem::PROBLEM_JSON,
                problem::document(&self.cause, self.status.as_u16()),
            ),
            Some(_) | None => (
                "text/plain; charset=utf-8",
                format!("{}\n", self.cause.message).into_bytes(),
            ),
        };
        let mut answer = Response {
            status: self.status,
            headers: self.headers.into_iter().chain(headers).collect(),
            body,
        };
        let media_type = HeaderValue::from_static(media_type);
        answer.headers.insert(CONTENT_TYPE, media_type);
        answer
    }

    /// The headers that each problem has, whatever its body.
    pub(super) fn told_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let code = problem::header_value(self.cause.code);
        let challenge = problem::challenge(&self.cause, self.scope.as_deref());
        let challenge = challenge.map(|challenge| (WWW_AUTHENTICATE, challenge));
        std::iter::once((PROBLEM_HEADER, code))
            .chain(challenge)
            .collect()
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
        let mut problem = Problem::new(ProblemCode::PathBusy, text);
        let value = HeaderValue::from(RETRY_AFTER_SECONDS);
        problem.headers.push((RETRY_AFTER, value));
        problem
    }

    /// 409 for a path that is being written: what is removed or moved now would appear again.
    pub(super) fn being_written(path: &NamespacePath) -> Problem {
        Problem::conflict_for_now(WriteError::BeingWritten(path.clone()).to_string())
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Problem {
        Problem::new(ProblemCode::RequestMalformed, text)
    }

    /// 503, worth trying again.
    pub(super) fn busy(
        code: ProblemCode,
        text: impl Into<String>,
        retry_after_seconds: u64,
    ) -> Problem {
        let mut problem = Problem::new(code, text);
        let value = HeaderValue::from(retry_after_seconds);
        problem.headers.push((RETRY_AFTER, value));
        problem
    }

    /// 503 for a transfer that ended so that somebody else is served.
    pub(super) fn preempted(why: &PreemptionReason) -> Problem {
        Problem::busy(
            ProblemCode::MoverPreempted,
            why.to_string(),
            RETRY_AFTER_SECONDS,
        )
    }

    /// 405 for a method that no door knows, or not on this thing.
    pub(super) fn method(text: impl Into<String>) -> Problem {
        Problem::method_of(METHODS, text)
    }

    /// 405 on a thing that takes these methods only (RFC 9110 §15.5.6).
    pub(super) fn method_of(allowed: &'static str, text: impl Into<String>) -> Problem {
        let mut problem = Problem::new(ProblemCode::MethodNotAllowed, text);
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
        let code = match error {
            CommitError::Refused(refusal) => match refusal {
                ChangeRefusal::Exists(_) => {
                    return Problem::new(ProblemCode::PathExists, error.to_string())
                        .with_status(exists);
                }
                ChangeRefusal::NotFound(_) | ChangeRefusal::NotTrash(_) => {
                    ProblemCode::PathNotFound
                }
                ChangeRefusal::Changed(_) => ProblemCode::PreconditionFailed,
                // RFC 4918 §9.3.1, §9.7.1, §9.9.4: an ancestor is missing or no collection.
                ChangeRefusal::ParentMissing(_) => ProblemCode::ParentMissing,
                ChangeRefusal::ParentIsFile(_) => ProblemCode::ParentIsFile,
                ChangeRefusal::IsDirectory(_) => ProblemCode::PathIsDirectory,
                ChangeRefusal::TooManyEntries { .. } => ProblemCode::DirectoryTooLarge,
                // RFC 4918 §9.9.4: source and destination are the same.
                ChangeRefusal::IntoItself(_) => ProblemCode::PathIntoItself,
                ChangeRefusal::Root => ProblemCode::RootUnchangeable,
                ChangeRefusal::TooLongBelow(_) => ProblemCode::RequestMalformed,
                ChangeRefusal::TooManyStages(_) | ChangeRefusal::TooManyStagedFiles { .. } => {
                    ProblemCode::StageRequestsTooMany
                }
                ChangeRefusal::KeptOnDisk(_)
                | ChangeRefusal::CopyElsewhere(_)
                | ChangeRefusal::CopyOfAnother { .. } => ProblemCode::PathBusy,
                ChangeRefusal::TooManyProperties(_) => ProblemCode::PropertiesTooLarge,
            },
            CommitError::Later(why) => {
                let code = ProblemCode::NamespaceBusy;
                return Problem::busy(code, why.clone(), RETRY_AFTER_SECONDS);
            }
            CommitError::DiskFull(_) => ProblemCode::NamespaceFull,
            CommitError::Failed(_) => ProblemCode::NamespaceFailed,
        };
        Problem::new(code, error.to_string())
    }

    /// Why a file was not written.
    pub(super) fn of_write(error: &WriteError, exists: StatusCode) -> Problem {
        let later = |code| Problem::busy(code, error.to_string(), RETRY_AFTER_SECONDS);
        let code = match error {
            WriteError::NoSpace { .. } => ProblemCode::PoolFull,
            WriteError::Disk { .. } => ProblemCode::DiskFailed,
            // The condition that the client stated with its digest does not hold; XRootD answers the same.
            WriteError::ChecksumMismatch { .. } => ProblemCode::ChecksumMismatch,
            WriteError::ChecksumUnavailable(_) => ProblemCode::ChecksumUnavailable,
            WriteError::WrongSize { .. } => ProblemCode::SizeMismatch,
            WriteError::Commit(error) => return Problem::of_commit(error, exists),
            WriteError::BeingWritten(path) => return Problem::being_written(path),
            WriteError::Stopping => return later(ProblemCode::ServiceStopping),
            WriteError::DiskStalled { .. } => return later(ProblemCode::DiskStalled),
            WriteError::PoolFailing { .. } => return later(ProblemCode::PoolFailing),
            WriteError::Unanswered { .. } => return later(ProblemCode::WriteUnsettled),
        };
        Problem::new(code, error.to_string())
    }

    /// Why no pool takes a file.
    pub(super) fn of_placement(why: PlacementRefusal, size: Option<u64>) -> Problem {
        match why {
            PlacementRefusal::NoPoolEnabled => Problem::busy(
                ProblemCode::PoolsDisabled,
                "no pool accepts files at the moment; contact the site",
                RETRY_AFTER_SECONDS,
            ),
            PlacementRefusal::NoneSound => Problem::busy(
                ProblemCode::PoolFailing,
                "the disks of all pools with free space are failing; try again later",
                RETRY_AFTER_SECONDS,
            ),
            PlacementRefusal::NoSpace => {
                let what = size.map_or("more files".to_owned(), |size| {
                    format!("a file of {size} bytes")
                });
                Problem::new(
                    ProblemCode::PoolFull,
                    format!(
                        "no pool has enough space for {what}; delete files or ask the site for space"
                    ),
                )
            }
            PlacementRefusal::QueuesFull => Problem::busy(
                ProblemCode::PoolBusy,
                "the queues of all pools with free space are full; try again later",
                RETRY_AFTER_SECONDS,
            ),
        }
    }
}

impl From<PoolQueueFull> for Problem {
    fn from(busy: PoolQueueFull) -> Problem {
        Problem::busy(
            ProblemCode::PoolBusy,
            busy.to_string(),
            busy.retry_after_seconds,
        )
    }
}

impl From<NamespaceError> for Problem {
    fn from(error: NamespaceError) -> Problem {
        static TOLD: LazyLock<RepeatedErrors> = LazyLock::new(RepeatedErrors::default);
        if let Some(passed_over) = TOLD.tells(&error.to_string()) {
            tracing::error!(%error, passed_over, "the namespace cannot be read");
        }
        Problem::new(
            ProblemCode::NamespaceFailed,
            "the namespace cannot be read; the site's log says why",
        )
    }
}
