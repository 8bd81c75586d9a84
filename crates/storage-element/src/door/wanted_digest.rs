//! The checksum that a client wants to be told with a file, and in which header.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use penstock_model::{Checksum, ChecksumAlgorithm};
use penstock_protocol::digest;

/// RFC 3230 §4.3.2.
pub(super) const DIGEST: HeaderName = HeaderName::from_static("digest");
/// RFC 9530 §3.
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The checksum that a client wants to be told, and in which header. One that asks in both ways gets
/// `Digest`, as from XRootD.
#[derive(Debug, Clone, Copy)]
pub(super) enum WantedDigest {
    /// RFC 3230.
    Digest(ChecksumAlgorithm),
    /// RFC 9530.
    ReprDigest(ChecksumAlgorithm),
}

impl WantedDigest {
    /// The first that the client likes and we know.
    pub(super) fn of(headers: &HeaderMap) -> Option<WantedDigest> {
        let first = |wanted: Vec<ChecksumAlgorithm>| wanted.into_iter().next();
        let digest = first(digest::wanted(headers)).map(WantedDigest::Digest);
        digest.or_else(|| first(digest::wanted_repr(headers)).map(WantedDigest::ReprDigest))
    }

    pub(super) fn algorithm(self) -> ChecksumAlgorithm {
        match self {
            WantedDigest::Digest(algorithm) | WantedDigest::ReprDigest(algorithm) => algorithm,
        }
    }

    /// The header that tells it.
    pub(super) fn header(self, sum: &Checksum) -> (HeaderName, HeaderValue) {
        let sum = std::slice::from_ref(sum);
        match self {
            WantedDigest::Digest(_) => (DIGEST, digest::header_value(sum)),
            WantedDigest::ReprDigest(_) => (REPR_DIGEST, digest::repr_header_value(sum)),
        }
    }
}
