//! Amazon S3's interface as cloud storages speak it: signed requests and URLs, error bodies, uploads in parts.
//!
//! Turns values into requests and bodies into values. Knows no credentials store and makes no choice of who may use
//! which keys. "S3 API" below is the Amazon S3 API Reference of 2006-03-01.

mod answer;
mod hiding;
mod place;
mod signature;

pub use answer::{S3Error, completed, completion_body, metadata_name, object_checksums, upload_id};
pub use hiding::hide_presigned;
pub use place::{InvalidPlace, ObjectPlace, record_names};
pub use signature::{Keys, Payload, RequestSigner};

/// Bytes of a body that tells of an error, or of an upload.
pub const BODY_BYTES_MAX: u64 = 64 << 10;
/// The largest object that one PUT may bring (S3 API, PutObject).
pub const SINGLE_PUT_MAX: u64 = 5 << 30;
/// The greatest number of parts of an upload (S3 API, "Amazon S3 multipart upload limits").
pub const PARTS_MAX: u64 = 10_000;
/// The longest that a presigned URL may be good for: a week (Signature Version 4, "Authenticating Requests: Using
/// Query Parameters").
pub const PRESIGNED_SECONDS_MAX: u64 = 604_800;
