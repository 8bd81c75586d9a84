//! HTTP third-party copy: the headers of a `COPY`, and the body in which its progress and outcome are told.
//!
//! Two storage elements move a file between them while a client watches. This module reads and writes what
//! the three say; it opens no connection and decides nothing.

mod marker;
mod request;
mod watch;

pub use marker::{LINE_BYTES_MAX, Marker, Outcome, write_marker, write_outcome};
pub use request::{
    CopyRequest, Credential, Direction, InvalidCopy, REQUEST_ID, may_be_forwarded, request_id,
    scitag,
};
pub use watch::{Item, StreamParser};
