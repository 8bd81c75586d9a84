//! Why a request to a storage element or a transfer service did not do what was wanted.

use crate::credentials::ShownCredentials;
use http::{HeaderMap, StatusCode};
use penstock_model::path::InvalidPath;
use penstock_model::url::redact;
use penstock_model::{Checksum, Problem, ProblemCode, Side};
use penstock_protocol::http1::client::ClientError;
use penstock_protocol::problem;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use url::Url;

/// Characters of an error text that are shown.
const DETAIL_CHARS_MAX: usize = 300;
/// Bytes of an error's body that are looked at.
const ERROR_BYTES_MAX: usize = 16 << 10;

/// One variant for each thing that a caller does differently.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// 401 or 403.
    #[error("{url}: {}{detail}", refusal(*.status, *.shown))]
    NotAuthorised {
        url: String,
        /// 401 or 403.
        status: StatusCode,
        shown: ShownKind,
        /// What the server says.
        detail: String,
        /// The same as a server of ours says it.
        told: Option<Box<Problem>>,
    },
    /// 404.
    #[error("{what} does not exist{detail}")]
    NotFound {
        what: String,
        /// What the server says, where that is more than that a path does not exist.
        detail: String,
        /// The same as a server of ours says it.
        told: Option<Box<Problem>>,
    },
    /// The copy's place is taken by other content.
    #[error("{0} exists with different content; use --overwrite to replace it")]
    Exists(String),
    /// What was to be replaced is another file by now.
    #[error(
        "{0} has changed since it was compared, so it was not replaced; run the same command again"
    )]
    Changed(String),
    /// A directory is needed where a file stands.
    #[error(
        "{0} is a file, so it cannot be a directory; move it away or choose another destination"
    )]
    IsFile(String),
    /// Another status than hoped for.
    #[error("{url}: the server answered {status}{detail}")]
    Refused {
        url: String,
        /// What it answered.
        status: StatusCode,
        /// What the server says.
        detail: String,
        /// The same as a server of ours says it.
        told: Option<Box<Problem>>,
    },
    /// No token could be had for the request.
    #[error("no token: {0}")]
    NoToken(String),
    /// No answer.
    #[error(transparent)]
    Unreachable(#[from] ClientError),
    /// A path or name that no storage element can have.
    #[error("{what}: {why}")]
    InvalidPath { what: String, why: InvalidPath },
    /// An answer that makes no sense.
    #[error("{url}: {detail}")]
    Nonsense {
        url: String,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The copy is not what the original is.
    #[error("{name}: expected {expected}, found {found}; {}", .copy.fate())]
    Differs {
        /// The copy.
        name: String,
        /// Checksum (or size) of the original.
        expected: String,
        /// That of the copy.
        found: String,
        copy: BadCopy,
    },
    /// This machine's file system.
    #[error("{path}: {why}")]
    Local {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
}

/// What became of a copy that is not what its original is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadCopy {
    Removed,
    /// It may be a file that somebody else wrote there, or it could not be removed.
    Kept,
}

impl BadCopy {
    fn fate(self) -> &'static str {
        match self {
            BadCopy::Removed => "the bad copy was removed",
            BadCopy::Kept => {
                "what is there was not removed, because someone else may have written it meanwhile"
            }
        }
    }
}

/// [`ShownCredentials`] without the token, for errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownKind {
    Token,
    Nothing,
    /// Nothing, because the connection is not encrypted.
    Withheld,
}

impl From<&ShownCredentials> for ShownKind {
    fn from(shown: &ShownCredentials) -> ShownKind {
        match shown {
            ShownCredentials::Token(_) => ShownKind::Token,
            ShownCredentials::Nothing => ShownKind::Nothing,
            ShownCredentials::Withheld => ShownKind::Withheld,
        }
    }
}

fn refusal(status: StatusCode, shown: ShownKind) -> &'static str {
    match (status, shown) {
        (StatusCode::UNAUTHORIZED, ShownKind::Nothing) => {
            "a token is needed (--token-file FILE, or --dir of a site)"
        }
        (StatusCode::UNAUTHORIZED, ShownKind::Token) => "the token was not accepted",
        (_, ShownKind::Nothing) => {
            "not allowed without a token (--token-file FILE, or --dir of a site)"
        }
        (_, ShownKind::Withheld) => {
            "not allowed without a token, and tokens are not sent over http, where others can read them (use https, or \
             --token-over-http)"
        }
        (_, ShownKind::Token) => "refused",
    }
}

impl RemoteError {
    /// From a status that is no success, with what the body says.
    pub fn of_status(
        url: &Url,
        status: StatusCode,
        shown: &ShownCredentials,
        headers: &HeaderMap,
        body: &[u8],
    ) -> RemoteError {
        let told = problem::read(headers, &body[..body.len().min(ERROR_BYTES_MAX)]);
        let told = told.filter(|told| is_readable(&told.message)).map(|told| {
            let message = told.message.chars().take(DETAIL_CHARS_MAX).collect();
            Box::new(Problem { message, ..told })
        });
        let shown = shown.into();
        let url = redact(url.as_str());
        // A HEAD has no body.
        let detail = match body.is_empty() {
            true => problem::challenge_text(headers)
                .map_or_else(String::new, |text| detail_of(text.as_bytes())),
            false => detail_of(body),
        };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RemoteError::NotAuthorised {
                url,
                status,
                shown,
                detail,
                told,
            },
            StatusCode::NOT_FOUND => {
                let is_path = |told: &Problem| told.code == ProblemCode::PathNotFound;
                let detail = match told.as_deref().is_some_and(is_path) {
                    true => String::new(),
                    false => detail,
                };
                RemoteError::NotFound {
                    what: url,
                    detail,
                    told,
                }
            }
            _ => RemoteError::Refused {
                url,
                status,
                detail,
                told,
            },
        }
    }

    /// There is no such thing, as far as can be seen from here.
    pub fn not_found(what: impl Into<String>) -> RemoteError {
        RemoteError::NotFound {
            what: what.into(),
            detail: String::new(),
            told: None,
        }
    }

    /// The same as users are told it everywhere: in the server's own words where it is one of ours.
    pub fn problem(&self) -> Problem {
        let text = self.to_string();
        let code = match self {
            RemoteError::NotAuthorised {
                told: Some(told), ..
            }
            | RemoteError::NotFound {
                told: Some(told), ..
            }
            | RemoteError::Refused {
                told: Some(told), ..
            } => {
                return Problem {
                    detail: Some(text),
                    ..Problem::clone(told)
                };
            }
            RemoteError::NotAuthorised {
                shown: ShownKind::Nothing | ShownKind::Withheld,
                ..
            } => ProblemCode::CredentialsMissing,
            RemoteError::NotAuthorised { status, .. } | RemoteError::Refused { status, .. } => {
                ProblemCode::of_status(status.as_u16())
            }
            RemoteError::NotFound { .. } => ProblemCode::PathNotFound,
            RemoteError::InvalidPath { .. } => ProblemCode::CommandInvalid,
            RemoteError::Exists(_) => ProblemCode::PathExists,
            RemoteError::Changed(_) => ProblemCode::PreconditionFailed,
            RemoteError::IsFile(_) => ProblemCode::ParentIsFile,
            RemoteError::NoToken(_) | RemoteError::Local { .. } => ProblemCode::LocalFailure,
            RemoteError::Unreachable(why) => why.code(),
            RemoteError::Nonsense { .. } => ProblemCode::PeerMalformed,
            RemoteError::Differs { .. } => ProblemCode::ChecksumMismatch,
        };
        // There is one other side here: the service that was asked.
        Problem::new(code, text).at(Side::Service)
    }

    /// An answer that does not follow the protocol.
    pub fn nonsense(url: &Url, detail: impl Into<String>) -> RemoteError {
        RemoteError::Nonsense {
            url: redact(url.as_str()),
            detail: detail.into(),
        }
    }

    /// The copy differs from its original, and was removed.
    pub fn differs(name: &str, expected: &Checksum, found: &Checksum) -> RemoteError {
        RemoteError::Differs {
            name: name.to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
            copy: BadCopy::Removed,
        }
    }

    /// Trouble with a local file.
    pub fn local(path: &Path) -> impl Fn(io::Error) -> RemoteError {
        move |why| RemoteError::Local {
            path: path.to_owned(),
            why,
        }
    }

    /// The status that a server answered, when that is what went wrong.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            RemoteError::NotAuthorised { status, .. } | RemoteError::Refused { status, .. } => {
                Some(*status)
            }
            RemoteError::Unreachable(ClientError::EarlyAnswer { status, .. }) => Some(*status),
            RemoteError::NotFound { .. } => Some(StatusCode::NOT_FOUND),
            RemoteError::Exists(_)
            | RemoteError::Changed(_)
            | RemoteError::IsFile(_)
            | RemoteError::NoToken(_)
            | RemoteError::Unreachable(_)
            | RemoteError::InvalidPath { .. }
            | RemoteError::Nonsense { .. }
            | RemoteError::Differs { .. }
            | RemoteError::Local { .. } => None,
        }
    }

    /// Whether the same request may succeed in a moment.
    pub fn is_transient(&self) -> bool {
        match self {
            RemoteError::Unreachable(_) => true,
            RemoteError::Refused { status, .. } => {
                matches!(status.as_u16(), 408 | 429 | 502 | 503 | 504)
            }
            RemoteError::NotAuthorised { .. }
            | RemoteError::NotFound { .. }
            | RemoteError::NoToken(_)
            | RemoteError::Exists(_)
            | RemoteError::Changed(_)
            | RemoteError::IsFile(_)
            | RemoteError::InvalidPath { .. }
            | RemoteError::Nonsense { .. }
            | RemoteError::Differs { .. }
            | RemoteError::Local { .. } => false,
        }
    }
}

/// The first line of an error body, or the message of a JSON one, when it is text for people.
fn detail_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(ERROR_BYTES_MAX)]);
    let message = serde_json::from_str::<serde_json::Value>(&text)
        .ok()
        .and_then(|json| {
            // FTS calls it so in its answer about a job that it does not know.
            let message = json.get("message").or_else(|| json.get("http_message"))?;
            message.as_str().map(str::to_owned)
        });
    let line = message.unwrap_or_else(|| text.lines().next().unwrap_or_default().trim().to_owned());
    let shown: String = line.chars().take(DETAIL_CHARS_MAX).collect();
    match is_readable(&line) {
        true => format!(": {shown}"),
        false => String::new(),
    }
}

/// Text for people, and no page.
fn is_readable(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('<') && !line.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, shown: ShownCredentials, body: &str, expected: &str) {
        let url = Url::parse("https://se/f?authz=secret").expect("valid");
        let status = StatusCode::from_u16(status).expect("a status");
        let error =
            RemoteError::of_status(&url, status, &shown, &HeaderMap::new(), body.as_bytes());
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn an_answer_is_told_with_what_to_do_and_without_secrets() {
        let token = || ShownCredentials::Token("t".to_owned());
        check(404, token(), "", "https://se/f?… does not exist");
        check(
            404,
            token(),
            r#"{"http_message":"No such job","http_status":"404 Not Found"}"#,
            "https://se/f?… does not exist: No such job",
        );
        check(
            401,
            ShownCredentials::Nothing,
            "",
            "https://se/f?…: a token is needed (--token-file FILE, or --dir of a site)",
        );
        check(
            401,
            ShownCredentials::Withheld,
            "",
            "https://se/f?…: not allowed without a token, and tokens are not sent over http, where others can read them \
             (use https, or --token-over-http)",
        );
        check(
            403,
            token(),
            "create needs storage.create\nmore",
            "https://se/f?…: refused: create needs storage.create",
        );
        check(
            507,
            token(),
            r#"{"status":"507","message":"no pool has room"}"#,
            "https://se/f?…: the server answered 507 Insufficient Storage: no pool has room",
        );
        check(
            500,
            token(),
            "<html>",
            "https://se/f?…: the server answered 500 Internal Server Error",
        );
    }

    #[test]
    fn a_problem_is_told_in_the_words_of_a_server_of_ours_and_guessed_of_others() {
        let url = Url::parse("https://se/f").expect("valid");
        let nothing = ShownCredentials::Nothing;
        let document = penstock_protocol::problem::document(
            &Problem::new(ProblemCode::JobNotFound, "no job 7"),
            404,
        );
        let headers = HeaderMap::from_iter([(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static(problem::PROBLEM_JSON),
        )]);
        let of = |status, headers: &HeaderMap, body: &[u8]| {
            RemoteError::of_status(&url, status, &nothing, headers, body).problem()
        };
        let told = of(StatusCode::NOT_FOUND, &headers, &document);
        assert_eq!(
            (told.code, told.message.as_str()),
            (ProblemCode::JobNotFound, "no job 7")
        );
        assert_eq!(
            told.detail.as_deref(),
            Some("https://se/f does not exist: no job 7")
        );
        let none = HeaderMap::new();
        let guessed = |status, body: &[u8]| of(status, &none, body).code.name();
        assert_eq!(guessed(StatusCode::NOT_FOUND, b""), "path-not-found");
        assert_eq!(
            guessed(StatusCode::UNAUTHORIZED, b""),
            "credentials-missing"
        );
        assert_eq!(guessed(StatusCode::INSUFFICIENT_STORAGE, b""), "pool-full");
        assert_eq!(guessed(StatusCode::IM_A_TEAPOT, b""), "peer-failed");
    }
}
