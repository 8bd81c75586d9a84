//! Our own issuer: one EC P-256 key that signs tokens (ES256) and publishes its public half.

use super::Claims;
use super::signature::{Algorithm, coordinates, sign_es256};
use super::thumbprint::thumbprint;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openssl::ec::EcKey;
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Signs tokens. Its `kid` is the key's thumbprint (RFC 7638), so a new key never reuses a name.
pub struct Signer {
    key: PKey<Private>,
    public: Value,
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
    #[error("{origin} is not an EC P-256 private key in PKCS#8 PEM form ({why})")]
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
        let of_openssl = |why: ErrorStack| refused(why.to_string());
        let key = EcKey::private_key_from_pem(pem).map_err(of_openssl)?;
        if key.group().curve_name() != Some(Nid::X9_62_PRIME256V1) {
            return Err(refused("another curve".to_owned()));
        }
        let [x, y] = coordinates(&key).map_err(of_openssl)?;
        let mut public = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y});
        let thumbprint = thumbprint(&public).expect("a key with all its members has one");
        let kid = URL_SAFE_NO_PAD.encode(thumbprint);
        public["use"] = json!("sig");
        public["alg"] = json!(Algorithm::Es256.name());
        public["kid"] = json!(kid);
        Ok(Signer {
            public,
            key: PKey::from_ec_key(key).map_err(of_openssl)?,
            kid,
        })
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
        let failed = |why: String| SignerError::Sign(why);
        let header = json!({"typ": "JWT", "alg": Algorithm::Es256.name(), "kid": self.kid});
        let claims = serde_json::to_vec(claims).map_err(|why| failed(why.to_string()))?;
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!("{}.{}", part(header.to_string().as_bytes()), part(&claims));
        let signature = sign_es256(&self.key, signed.as_bytes());
        let signature = signature.map_err(|why| failed(why.to_string()))?;
        Ok(format!("{signed}.{signature}"))
    }
}
