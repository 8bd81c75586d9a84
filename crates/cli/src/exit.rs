//! How a command ends: one error type for all of them, and the exit code that a script can rely on.

use http::StatusCode;
use penstock_field_tools::job_list::InvalidList;
use penstock_field_tools::remote_error::RemoteError;
use penstock_protocol::http1::client::ClientError;
use serde::Serialize;
use thiserror::Error;

/// Why a command did not succeed. The variant decides the exit code; the text is for people.
#[derive(Debug, Error)]
pub enum CommandError {
    /// It ran, but some files failed or a job did not finish well.
    #[error("{0}")]
    SomeFailed(String),
    /// `ingest` or `records import` did not understand some lines, and has told which.
    #[error("some lines were not understood and left out")]
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
    /// The service did not answer, or not as such a service does.
    #[error("{0}")]
    Unreachable(String),
    /// Content is not what it should be.
    #[error("{0}")]
    Verification(String),
    /// `fsck` found differences that are still there, or `account published` figures that cannot be true, and has named them.
    #[error("what should agree differs")]
    Differs,
    /// This machine: disk full, port taken, no permission.
    #[error("{0}")]
    Local(String),
    /// Stopped by a signal.
    #[error("{0}")]
    Interrupted(String),
}

/// What `penstock help` says of exit codes; `docs/exit-codes.md` has the same table.
pub const EXIT_CODES_HELP: &str = "\
Exit codes:
  0    everything went well
  1    some files failed, or a job did not finish well
  2    the command line or the configuration is wrong
  3    not authorised: no token, or one that does not allow this
  4    no such file, directory or job
  5    the service cannot be reached
  6    verification failed: content is not what it should be
  7    this machine is in the way: disk full, port taken, no permission
  130  stopped by Ctrl-C or a signal";

/// The outcome of a command as `--json` tells it when it failed.
#[derive(Debug, Serialize)]
pub struct ErrorReport {
    /// For people.
    pub error: String,
    /// As given to the shell.
    pub exit_code: u8,
}

impl CommandError {
    /// The code for the shell.
    pub fn exit_code(&self) -> u8 {
        match self {
            CommandError::SomeFailed(_) | CommandError::Incomplete => 1,
            CommandError::Usage(_) => 2,
            CommandError::NotAuthorised(_) | CommandError::Refused => 3,
            CommandError::NotFound(_) => 4,
            CommandError::Unreachable(_) => 5,
            CommandError::Verification(_) | CommandError::Differs => 6,
            CommandError::Local(_) => 7,
            CommandError::Interrupted(_) => 130,
        }
    }

    /// Trouble with this machine while doing `what`.
    pub fn local(what: impl std::fmt::Display, why: impl std::fmt::Display) -> CommandError {
        CommandError::Local(format!("{what}: {why}"))
    }
}

impl From<InvalidList> for CommandError {
    fn from(why: InvalidList) -> CommandError {
        CommandError::Usage(why.to_string())
    }
}

impl From<RemoteError> for CommandError {
    fn from(why: RemoteError) -> CommandError {
        let text = why.to_string();
        match why {
            RemoteError::NotAuthorised { .. } => CommandError::NotAuthorised(text),
            RemoteError::NotFound(_) => CommandError::NotFound(text),
            RemoteError::NoToken(_) => CommandError::Local(text),
            RemoteError::Exists(_) => CommandError::SomeFailed(text),
            RemoteError::Refused { status, .. } if status.is_server_error() => {
                CommandError::Unreachable(text)
            }
            RemoteError::Refused { .. } => CommandError::SomeFailed(text),
            RemoteError::Unreachable(ClientError::EarlyAnswer { status, .. })
                if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status) =>
            {
                CommandError::NotAuthorised(text)
            }
            RemoteError::Unreachable(why) => CommandError::Unreachable(text + remedy(&why)),
            RemoteError::Nonsense { .. } => CommandError::Unreachable(text),
            RemoteError::Differs { .. } => CommandError::Verification(text),
            RemoteError::Local { .. } => CommandError::Local(text),
        }
    }
}

/// What to try when a server cannot be reached, in the terms of the command line.
fn remedy(why: &ClientError) -> &'static str {
    match why {
        ClientError::Tls(_) => " (--capath DIR, or --dir of a site, names CAs to trust)",
        ClientError::Connect { .. } => "; is it being served, and is the port right?",
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
    fn help_documents_every_code() {
        use CommandError as E;
        let all = [
            E::SomeFailed,
            E::Usage,
            E::NotAuthorised,
            E::NotFound,
            E::Unreachable,
            E::Verification,
            E::Local,
        ];
        let codes = all.into_iter().map(|make| make(String::new()).exit_code());
        for code in codes.chain([E::Interrupted(String::new()).exit_code()]) {
            assert!(EXIT_CODES_HELP.contains(&format!("\n  {code} ")), "{code}");
        }
    }
}
