//! The chain of signatures (Birgisson et al., NDSS 2014, §3), compatible with libmacaroons: each caveat is
//! signed with the signature before it, so that adding one needs no key and taking one away is impossible.

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;

/// Bytes of a signature and of a key.
pub(super) const SIGNATURE_BYTES: usize = 32;
/// libmacaroons derives the key of the first signature from the root key with this one, filled up with NULs.
const GENERATOR: &[u8; SIGNATURE_BYTES] = b"macaroons-key-generator\0\0\0\0\0\0\0\0\0";

/// A macaroon without third parties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Macaroon {
    /// Where it is of use; a hint, not signed.
    pub location: Vec<u8>,
    /// What its maker wrote into it.
    pub identifier: Vec<u8>,
    /// In the order in which they were added.
    pub caveats: Vec<Vec<u8>>,
    /// Over all of the above but the location.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl Macaroon {
    /// A new one, without caveats.
    pub(super) fn mint(root_key: &[u8], location: &str, identifier: Vec<u8>) -> Macaroon {
        Macaroon {
            location: location.as_bytes().to_vec(),
            signature: first_signature(root_key, &identifier),
            identifier,
            caveats: Vec::new(),
        }
    }

    /// Adds a caveat.
    pub(super) fn narrow(&mut self, caveat: Vec<u8>) {
        self.signature = hmac(&self.signature, &caveat);
        self.caveats.push(caveat);
    }

    /// Whether this root key began the chain that ends in the signature.
    pub(super) fn is_signed_by(&self, root_key: &[u8]) -> bool {
        let first = first_signature(root_key, &self.identifier);
        let last = self
            .caveats
            .iter()
            .fold(first, |signature, caveat| hmac(&signature, caveat));
        openssl::memcmp::eq(&last, &self.signature)
    }
}

fn first_signature(root_key: &[u8], identifier: &[u8]) -> [u8; SIGNATURE_BYTES] {
    hmac(&hmac(GENERATOR, root_key), identifier)
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let mut signature = [0; SIGNATURE_BYTES];
    let made = PKey::hmac(key).and_then(|key| {
        let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
        signer.update(text)?;
        signer.sign(&mut signature)
    });
    // A signature of zeros because something failed would be one that anybody can make.
    made.expect("OpenSSL always has HMAC with SHA-256");
    signature
}
