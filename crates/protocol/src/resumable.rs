//! Headers of uploads in several requests (draft-ietf-httpbis-resumable-upload): how much is there, how much there will be,
//! and whether this was the last piece.

use http::{HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;

/// Whether the request brings the last piece.
pub const UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");
/// Where a piece begins.
pub const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
/// Bytes of the whole file.
pub const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
/// What a server allows. In an answer to `OPTIONS` it says that uploads can be begun there (draft §4.1.4).
pub const UPLOAD_LIMIT: HeaderName = HeaderName::from_static("upload-limit");
/// What a request that appends carries (draft §6).
pub const PARTIAL_UPLOAD: &str = "application/partial-upload";
/// RFC 9651 §3.3.1.
const DIGITS_MAX: usize = 15;

/// A header that says nothing that can be followed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidUploadHeader {
    /// It is no boolean, or is missing.
    #[error("'Upload-Complete' must be '?0' or '?1'")]
    Complete,
    /// It is no number.
    #[error("'{0}' is not a number")]
    Number(HeaderName),
}

/// `Upload-Complete`: `?1` or `?0` (RFC 9651 §3.3.6).
pub fn is_complete(headers: &HeaderMap) -> Result<bool, InvalidUploadHeader> {
    let value = headers.get(UPLOAD_COMPLETE).map(HeaderValue::as_bytes);
    match value.map(<[u8]>::trim_ascii) {
        Some(b"?1") => Ok(true),
        Some(b"?0") => Ok(false),
        Some(_) | None => Err(InvalidUploadHeader::Complete),
    }
}

/// `Upload-Offset`; `None` without it.
pub fn offset(headers: &HeaderMap) -> Result<Option<u64>, InvalidUploadHeader> {
    number(headers, &UPLOAD_OFFSET)
}

/// `Upload-Length`; `None` without it.
pub fn length(headers: &HeaderMap) -> Result<Option<u64>, InvalidUploadHeader> {
    number(headers, &UPLOAD_LENGTH)
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, InvalidUploadHeader> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    let is_short = (1..=DIGITS_MAX).contains(&text.len());
    match text.parse() {
        Ok(number) if is_short && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(Some(number))
        }
        Ok(_) | Err(_) => Err(InvalidUploadHeader::Number(name.clone())),
    }
}
