//! Why a measurement could not be made. Nobody branches on it: it is shown, and the next cell goes on.

use penstock_field_tools::remote_error::RemoteError;
use penstock_protocol::http1::client::ClientError;
use penstock_protocol::pki::PkiError;
use penstock_protocol::tls::TlsError;
use std::io;
use thiserror::Error;

/// What went wrong, to which thing.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A file, a process, a socket.
    #[error("{what}: {why}")]
    System {
        /// What was being done.
        what: String,
        /// What the system says.
        why: io::Error,
    },
    /// Something answered otherwise than it should.
    #[error("{0}")]
    Failed(String),
    /// A server could not be spoken to.
    #[error(transparent)]
    Http(#[from] ClientError),
    /// The transfer service refused.
    #[error(transparent)]
    Service(#[from] RemoteError),
    /// No certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// No TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl BenchError {
    /// Text that says it all.
    pub fn failed(text: impl Into<String>) -> BenchError {
        BenchError::Failed(text.into())
    }
}

/// Names what was being done when the system refused.
pub fn doing<T>(what: impl Into<String>) -> impl FnOnce(io::Error) -> Result<T, BenchError> {
    let what = what.into();
    move |why| Err(BenchError::System { what, why })
}
