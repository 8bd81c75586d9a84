//! Our own issuer: one EC P-256 key that signs tokens (ES256) and publishes its public half.

use super::Claims;
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Signs tokens. Its `kid` is the key's thumbprint (RFC 7638), so a new key never reuses a name.
pub struct Signer {
    key: EncodingKey,
    public: Jwk,
    kid: String,
}

/// Why the signing key cannot be used.
#[derive(Debug, Error)]
pub enum SignerError {
    /// The file cannot be read.
    #[error("cannot read the signing key {path}: {why}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// Not an EC P-256 private key in PKCS#8 PEM.
    #[error(
        "{origin} is not an EC P-256 private key in PKCS#8 PEM form ({why}); make one with `penstock init`"
    )]
    Key {
        /// Where it came from.
        origin: String,
        /// What the reader says.
        why: String,
    },
    /// Signing failed; the key is damaged.
    #[error("the token could not be signed: {0}")]
    Sign(String),
}

impl Signer {
    /// Reads the key from a file, as `penstock init` made it.
    pub fn load(path: &Path) -> Result<Signer, SignerError> {
        let pem = std::fs::read(path).map_err(|why| SignerError::Read {
            path: path.to_owned(),
            why,
        })?;
        Signer::from_pem(&pem).map_err(|why| match why {
            SignerError::Key { why, .. } => SignerError::Key {
                origin: path.display().to_string(),
                why,
            },
            other => other,
        })
    }

    /// From the PEM text itself.
    pub fn from_pem(pem: &[u8]) -> Result<Signer, SignerError> {
        let refused = |why: String| SignerError::Key {
            origin: "the signing key".to_owned(),
            why,
        };
        // jsonwebtoken takes any curve here and fails only when it signs; the curve is checked beforehand.
        let parsed = openssl::ec::EcKey::private_key_from_pem(pem)
            .map_err(|why| refused(why.to_string()))?;
        if parsed.group().curve_name() != Some(openssl::nid::Nid::X9_62_PRIME256V1) {
            return Err(refused("another curve".to_owned()));
        }
        let key = EncodingKey::from_ec_pem(pem).map_err(|why| refused(why.to_string()))?;
        let mut public = Jwk::from_encoding_key(&key, Algorithm::ES256)
            .map_err(|why| refused(why.to_string()))?;
        let kid = public
            .thumbprint(ThumbprintHash::SHA256)
            .map_err(|why| refused(why.to_string()))?;
        public.common.key_id = Some(kid.clone());
        public.common.public_key_use = Some(jsonwebtoken::jwk::PublicKeyUse::Signature);
        Ok(Signer { key, public, kid })
    }

    /// The name of the key, as it stands in tokens and in the key set.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// What `GET /jwks` answers (RFC 7517 §5).
    pub fn jwks(&self) -> serde_json::Value {
        serde_json::json!({ "keys": [self.public] })
    }

    /// Signs. The caller is answerable for the claims: nothing is added or checked.
    pub fn sign(&self, claims: &Claims) -> Result<String, SignerError> {
        let header = Header {
            kid: Some(self.kid.clone()),
            ..Header::new(Algorithm::ES256)
        };
        jsonwebtoken::encode(&header, claims, &self.key)
            .map_err(|why| SignerError::Sign(why.to_string()))
    }
}
