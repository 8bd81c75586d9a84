//! The secret of a link: a mark of its kind and 128 random bits as 22 characters of base64url. From it come the digest by
//! which the store finds the link, and the key that seals its grant; neither leads back to the secret or to the other.

use super::AccessLinkKind;
use openssl::base64::encode_block;
use openssl::error::ErrorStack;
use openssl::rand::rand_bytes;
use openssl::sha::Sha256;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use penstock_model::share_link::{LINK_SECRET_CHARS, begins_as_link_secret};
use std::fmt;

const RANDOM_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// The secret of a link. Whoever has it has what the link gives, so it is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkSecret(String);

impl LinkSecret {
    /// A new one. Errors: OpenSSL has no randomness.
    pub(super) fn random(kind: AccessLinkKind) -> Result<LinkSecret, ErrorStack> {
        let mut bytes = [0; RANDOM_BYTES];
        rand_bytes(&mut bytes)?;
        let text = encode_block(&bytes).replace('+', "-").replace('/', "_");
        Ok(LinkSecret(format!(
            "{}{}",
            kind.mark(),
            text.trim_end_matches('=')
        )))
    }

    /// What has the form of a secret of this kind; `None`: anything else, such as a token.
    pub fn parse(kind: AccessLinkKind, text: &str) -> Option<LinkSecret> {
        let is_secret =
            text.len() == LINK_SECRET_CHARS && begins_as_link_secret(kind.mark(), text.as_bytes());
        is_secret.then(|| LinkSecret(text.to_owned()))
    }

    /// For the answer to whoever made the link.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(super) fn digest(&self) -> SecretDigest {
        SecretDigest(self.derived(b"penstock access link: digest\0"))
    }

    fn derived(&self, purpose: &[u8]) -> [u8; 32] {
        let mut sha = Sha256::new();
        sha.update(purpose);
        sha.update(self.0.as_bytes());
        sha.finish()
    }
}

impl fmt::Debug for LinkSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LinkSecret(…)")
    }
}

/// By which a link is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SecretDigest(pub [u8; 32]);

/// What a link gives, sealed with its secret (AES-256-GCM).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SealedGrant(pub Vec<u8>);

impl SealedGrant {
    pub(super) fn of(secret: &LinkSecret, grant: &[u8]) -> Result<SealedGrant, ErrorStack> {
        let mut nonce = [0; NONCE_BYTES];
        rand_bytes(&mut nonce)?;
        let mut tag = [0; TAG_BYTES];
        let key = key(secret);
        let text = encrypt_aead(
            Cipher::aes_256_gcm(),
            &key,
            Some(&nonce),
            &[],
            grant,
            &mut tag,
        )?;
        Ok(SealedGrant([&nonce[..], &tag[..], &text[..]].concat()))
    }

    /// `None`: it is damaged, or another link's.
    pub(super) fn open(&self, secret: &LinkSecret) -> Option<Vec<u8>> {
        let (nonce, rest) = self.0.split_at_checked(NONCE_BYTES)?;
        let (tag, text) = rest.split_at_checked(TAG_BYTES)?;
        let key = key(secret);
        decrypt_aead(Cipher::aes_256_gcm(), &key, Some(nonce), &[], text, tag).ok()
    }
}

fn key(secret: &LinkSecret) -> [u8; 32] {
    secret.derived(b"penstock access link: key\0")
}
