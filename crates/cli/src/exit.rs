//! How a command ends: one error type for all of them, and the exit code that a script can rely on.

use penstock_field_tools::job_list::InvalidList;
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::{Layer, Problem, ProblemCode, Side};
use penstock_protocol::http1::client::ClientError;
use serde::Serialize;
use thiserror::Error;

/// Why a command did not succeed. The variant decides the exit code; the text is for people.
#[derive(Debug, Error)]
pub enum CommandError {
    /// It ran, but some files failed or a job did not finish well.
    #[error("{0}")]
    SomeFailed(String),
    /// Of several things that a command did one by one some failed; the gravest decides.
    #[error("{text}")]
    SeveralFailed { text: String, exit_code: u8 },
    /// `ingest` or `records import` left out some lines or rows, and has told which.
    #[error("some lines or rows were skipped")]
    Incomplete,
    /// What was typed or configured makes no sense.
    #[error("{0}")]
    Usage(String),
    /// No token, or one that does not allow this.
    #[error("{0}")]
    NotAuthorised(String),
    /// `authz test` found that it is not allowed, and has said why.
    #[error("not allowed")]
    Refused,
    /// No such file, directory or job.
    #[error("{0}")]
    NotFound(String),
    /// The record has no change of rates, incident or link of that name, or no transfers of that time.
    #[error("{0}")]
    NotInRecord(String),
    /// The service did not answer, or not as such a service does.
    #[error("{0}")]
    Unreachable(String),
    /// Content is not what it should be.
    #[error("{0}")]
    Verification(String),
    /// Another site answered than was trusted, or than its fingerprint says.
    #[error("{0}")]
    OtherSite(String),
    /// A site was removed, and its token issuer or an authority of it is trusted all the same.
    #[error("{0}")]
    StillTrusted(String),
    /// `fsck` found differences that are still there, `account published` figures that cannot be true, or `account reconcile`
    /// a residue, and has named them.
    #[error("differences were found")]
    Differs,
    /// `tape ok-to-stop` found something that speaks against it, and has said what.
    #[error("{0} should not be stopped")]
    MayNotStop(String),
    /// What was recorded cannot be replayed.
    #[error("{0}")]
    CannotReplay(String),
    /// This machine: disk full, port in use, permission denied.
    #[error("{0}")]
    Local(String),
    /// Stopped by a signal.
    #[error("{0}")]
    Interrupted(String),
    /// The configuration makes no sense.
    #[error("{0}")]
    Configuration(String),
    /// It ran to its end, and what it found or did is a failure.
    #[error("{why}")]
    Reported {
        /// The failure.
        why: Box<CommandError>,
        /// What it found or did, as `--json` prints it.
        report: serde_json::Value,
    },
    /// What another server said, or a transfer between two.
    #[error("{text}")]
    Remote {
        /// For people, with what to do at the command line.
        text: String,
        /// The cause.
        problem: Box<Problem>,
    },
}

/// For a script that wants to know whether data was found to be wrong.
pub const VERIFICATION_FAILED: u8 = 6;
/// Codes of things that failed, the gravest first: wrong data, then what stops everything else here, there, and for whom.
const BY_GRAVITY: [u8; 7] = [VERIFICATION_FAILED, 7, 5, 3, 4, 2, 1];

/// What `penstock help` says of exit codes; `docs/exit-codes.md` has the same table.
pub const EXIT_CODES_HELP: &str = "\
Exit codes:
  0    success
  1    some files failed, or a job did not succeed
  2    the command line or the configuration is wrong
  3    not authorised: no token, or one that does not allow this
  4    no such file, directory or job
  5    the service cannot be reached
  6    verification failed: data differs from what is expected
  7    local error: disk full, port in use, permission denied
  130  stopped by Ctrl-C or a signal";

/// The outcome of a command as `--json` tells it when it failed.
#[derive(Debug, Serialize)]
pub struct ErrorReport {
    /// For people, as it is shown without `--json`.
    pub error: String,
    /// As given to the shell.
    pub exit_code: u8,
    /// The cause.
    #[serde(flatten)]
    pub problem: Problem,
    /// What the command prints of what it did, where it ran to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<serde_json::Value>,
}

impl From<CommandError> for ErrorReport {
    fn from(why: CommandError) -> ErrorReport {
        ErrorReport {
            error: why.to_string(),
            exit_code: why.exit_code(),
            problem: why.problem(),
            report: match why {
                CommandError::Reported { report, .. } => Some(report),
                _ => None,
            },
        }
    }
}

impl CommandError {
    /// The same as users are told it everywhere.
    pub fn problem(&self) -> Problem {
        let code = match self {
            CommandError::Remote { problem, .. } => return Problem::clone(problem),
            CommandError::Reported { why, .. } => return why.problem(),
            CommandError::SomeFailed(_)
            | CommandError::SeveralFailed { .. }
            | CommandError::Incomplete => ProblemCode::FilesFailed,
            CommandError::Usage(_) => ProblemCode::CommandInvalid,
            CommandError::Configuration(_) => ProblemCode::ConfigurationInvalid,
            CommandError::NotAuthorised(_) | CommandError::Refused => ProblemCode::PermissionDenied,
            CommandError::NotFound(_) => ProblemCode::PathNotFound,
            CommandError::NotInRecord(_) => ProblemCode::ResourceNotFound,
            CommandError::Unreachable(_) => ProblemCode::PeerMalformed,
            CommandError::Verification(_) => ProblemCode::ChecksumMismatch,
            CommandError::OtherSite(_) | CommandError::StillTrusted(_) | CommandError::Differs => {
                ProblemCode::ConsistencyBroken
            }
            CommandError::MayNotStop(_) => ProblemCode::ResourceBusy,
            CommandError::CannotReplay(_) => ProblemCode::ReplayFailed,
            CommandError::Local(_) => ProblemCode::LocalFailure,
            CommandError::Interrupted(_) => ProblemCode::Interrupted,
        };
        Problem::new(code, self.to_string()).at(Side::Service)
    }

    /// The code for the shell.
    pub fn exit_code(&self) -> u8 {
        match self {
            // The question was answered, and the answer is no.
            CommandError::MayNotStop(_) => 1,
            CommandError::SeveralFailed { exit_code, .. } => *exit_code,
            CommandError::Reported { why, .. } => why.exit_code(),
            _ => exit_code(&self.problem()),
        }
    }

    /// What it means when some of several things failed, by their codes.
    pub fn several(text: String, codes: &[u8]) -> CommandError {
        let gravest = BY_GRAVITY.into_iter().find(|code| codes.contains(code));
        CommandError::SeveralFailed {
            text,
            exit_code: gravest.unwrap_or(1),
        }
    }

    /// What the command has printed already tells all of it to people.
    pub fn is_told(&self) -> bool {
        matches!(
            self,
            CommandError::Refused
                | CommandError::Differs
                | CommandError::Incomplete
                | CommandError::MayNotStop(_)
        )
    }

    /// An answer of a service in which something is missing, or otherwise than it is known here.
    pub fn unreadable_answer(why: serde_json::Error) -> CommandError {
        CommandError::Unreachable(format!(
            "cannot read the service's answer ({why}); does the service have another version?"
        ))
    }

    /// Trouble with this machine while doing `what`.
    pub fn local(what: impl std::fmt::Display, why: impl std::fmt::Display) -> CommandError {
        CommandError::Local(format!("{what}: {why}"))
    }
}

/// The code for the shell, by the cause.
fn exit_code(problem: &Problem) -> u8 {
    let facts = problem.code.facts();
    match (problem.code, facts.layer, facts.status) {
        (ProblemCode::CommandInvalid | ProblemCode::ConfigurationInvalid, _, _) => 2,
        (ProblemCode::ConsistencyBroken | ProblemCode::ReplayFailed, _, _) => VERIFICATION_FAILED,
        (ProblemCode::LocalFailure, _, _) => 7,
        (ProblemCode::Interrupted, _, _) => 130,
        (ProblemCode::FilesFailed, _, _) => 1,
        (_, Layer::Content, _) => VERIFICATION_FAILED,
        (_, Layer::Network, _) => 5,
        (_, _, 401 | 403 | 419) => 3,
        (_, _, 404) => 4,
        (_, _, 504) => 5,
        // The service found the request itself wrong.
        (_, _, 400) if problem.side == Side::Service => 2,
        // What the service that was asked cannot do is another matter than what an end of a transfer cannot.
        (_, _, 500..) if problem.side == Side::Service => 5,
        (_, _, _) => 1,
    }
}

impl From<InvalidList> for CommandError {
    fn from(why: InvalidList) -> CommandError {
        CommandError::Usage(why.to_string())
    }
}

impl From<RemoteError> for CommandError {
    fn from(why: RemoteError) -> CommandError {
        let mut text = why.to_string();
        if let RemoteError::Unreachable(why) = &why {
            text += remedy(why);
        }
        CommandError::Remote {
            text,
            problem: Box::new(why.problem()),
        }
    }
}

/// What to try when a server cannot be reached, in the terms of the command line.
fn remedy(why: &ClientError) -> &'static str {
    match why {
        ClientError::Tls(_) => " (--capath DIR, or --dir of a site, names CAs to trust)",
        ClientError::Connect { .. } => "; is it being served, and is the port right?",
        ClientError::Closed { url, .. } if url.starts_with("http://") => {
            "; if the server uses TLS, write https://"
        }
        ClientError::Resolve { .. } | ClientError::Timeout { .. } | ClientError::Closed { .. } => {
            "; is the host right, and does it answer others?"
        }
        ClientError::InvalidUrl { .. }
        | ClientError::Forbidden { .. }
        | ClientError::EarlyAnswer { .. }
        | ClientError::Malformed { .. }
        | ClientError::TooShort { .. }
        | ClientError::TooLong { .. }
        | ClientError::TooManyRedirects { .. }
        | ClientError::BadRedirect { .. }
        | ClientError::File { .. }
        | ClientError::Io { .. } => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_documents_every_exit_code_and_every_cause_has_one() {
        for facts in ProblemCode::all() {
            let code = exit_code(&Problem::new(facts.code, ""));
            assert!(EXIT_CODES_HELP.contains(&format!("\n  {code} ")), "{code}");
        }
    }

    #[test]
    fn the_gravest_of_several_decides() {
        for (codes, expected) in [
            (&[4, 1][..], 4),
            (&[4, 3, 4], 3),
            (&[1, 5, 3], 5),
            (&[7, 6], 6),
            (&[2], 2),
        ] {
            let why = CommandError::several(String::new(), codes);
            assert_eq!(why.exit_code(), expected, "{codes:?}");
            let reported = CommandError::Reported {
                why: Box::new(why),
                report: serde_json::Value::Null,
            };
            assert_eq!(reported.exit_code(), expected, "{codes:?}");
        }
    }

    #[test]
    fn an_exit_code_is_that_of_the_cause_and_of_who_was_asked() {
        let check = |name: &str, side, expected| {
            let code = ProblemCode::by_name(name).expect("known");
            assert_eq!(
                exit_code(&Problem::new(code, "").at(side)),
                expected,
                "{name}"
            );
        };
        check("path-not-found", Side::Source, 4);
        check("token-expired", Side::Service, 3);
        check("path-reserved", Side::Service, 3);
        check("path-exists", Side::Destination, 1);
        check("pool-full", Side::Service, 5);
        check("pool-full", Side::Destination, 1);
        check("copy-failed", Side::Network, 1);
        check("connection-refused", Side::Source, 5);
        check("checksum-mismatch", Side::Destination, 6);
        check("file-lost", Side::Service, 1);
        check("command-invalid", Side::Service, 2);
        check("request-malformed", Side::Service, 2);
        check("request-malformed", Side::Destination, 1);
    }
}
