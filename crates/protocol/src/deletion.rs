//! A DELETE that takes nothing else along. RFC 4918 §9.6.1 has every DELETE of a directory remove all that is in it, also
//! what came after the client has looked; this header of ours does not.

use http::{HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;

/// What a DELETE may remove. In an answer to `OPTIONS` it says that the server obeys it: another one would remove
/// everything.
pub const PENSTOCK_DELETE: HeaderName = HeaderName::from_static("penstock-delete");
/// The only value so far: a directory, when nothing is in it.
pub const EMPTY_DIRECTORY: HeaderValue = HeaderValue::from_static("empty-directory");

/// What a DELETE may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletable {
    /// What stands there, with all that is in it.
    Everything,
    EmptyDirectory,
}

/// The header has a value that nobody knows, so that to ignore it could remove too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("'Penstock-Delete' must be 'empty-directory'")]
pub struct InvalidDeletable;

/// What a request to delete may remove.
pub fn deletable(headers: &HeaderMap) -> Result<Deletable, InvalidDeletable> {
    let mut values = headers.get_all(PENSTOCK_DELETE).iter().peekable();
    if values.peek().is_none() {
        return Ok(Deletable::Everything);
    }
    let is_known =
        |value: &HeaderValue| value.as_bytes().trim_ascii() == EMPTY_DIRECTORY.as_bytes();
    match values.all(is_known) {
        true => Ok(Deletable::EmptyDirectory),
        false => Err(InvalidDeletable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_known_is_refused() {
        let of = |values: &[&'static str]| {
            let values = values.iter().copied().map(HeaderValue::from_static);
            deletable(&values.map(|value| (PENSTOCK_DELETE, value)).collect())
        };
        assert_eq!(of(&[]), Ok(Deletable::Everything));
        assert_eq!(of(&[" empty-directory "]), Ok(Deletable::EmptyDirectory));
        assert_eq!(of(&["empty"]), Err(InvalidDeletable));
        assert_eq!(of(&["empty-directory", "all"]), Err(InvalidDeletable));
    }
}
