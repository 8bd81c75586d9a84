//! What a client shows of itself: a certificate or proxy with its chain and private key.

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::sha::sha256;
use openssl::ssl::SslRef;
use openssl::x509::X509;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use thiserror::Error;

/// Why something is no identity.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// Nothing to show.
    #[error("it holds no certificate")]
    NoCertificate,
    /// Not a pair.
    #[error("the private key does not belong to the first certificate")]
    WrongKey,
    /// Not PEM, or for want of memory.
    #[error("it cannot be read: {0}")]
    OpenSsl(#[from] ErrorStack),
}

/// A certificate or proxy to be shown to servers. Cheap to clone. Two are equal when their first certificates are:
/// connections and sessions of one are never used for another.
#[derive(Clone)]
pub struct ClientIdentity(Arc<Inner>);

struct Inner {
    /// SHA-256 of the first certificate.
    name: [u8; 32],
    chain: Vec<X509>,
    key: PKey<Private>,
}

impl ClientIdentity {
    /// From a chain, the client's own certificate first, and that one's key.
    pub fn new(chain: Vec<X509>, key: PKey<Private>) -> Result<ClientIdentity, IdentityError> {
        let own = chain.first().ok_or(IdentityError::NoCertificate)?;
        if !own.public_key()?.public_eq(&key) {
            return Err(IdentityError::WrongKey);
        }
        let name = sha256(&own.to_der()?);
        Ok(ClientIdentity(Arc::new(Inner { name, chain, key })))
    }

    /// Reads certificates and a private key in PEM, as [`ClientIdentity::to_pem`] and grid proxies have them.
    pub fn from_pem(pem: &[u8]) -> Result<ClientIdentity, IdentityError> {
        let key = PKey::private_key_from_pem(pem)?;
        ClientIdentity::new(X509::stack_from_pem(pem)?, key)
    }

    /// The chain and the private key in PEM. A secret.
    pub fn to_pem(&self) -> Result<Vec<u8>, ErrorStack> {
        let mut pem = self.0.key.private_key_to_pem_pkcs8()?;
        for certificate in &self.0.chain {
            pem.extend(certificate.to_pem()?);
        }
        Ok(pem)
    }

    /// The SHA-256 of the first certificate: names the identity without telling anything of it.
    pub fn name(&self) -> &[u8; 32] {
        &self.0.name
    }

    /// Shows it in the handshake that follows.
    pub(super) fn show(&self, ssl: &mut SslRef) -> Result<(), ErrorStack> {
        let Some((own, others)) = self.0.chain.split_first() else {
            return Ok(());
        };
        ssl.set_certificate(own)?;
        ssl.set_private_key(&self.0.key)?;
        for other in others {
            ssl.add_chain_cert(other.clone())?;
        }
        Ok(())
    }
}

impl PartialEq for ClientIdentity {
    fn eq(&self, other: &ClientIdentity) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ClientIdentity {}

impl Hash for ClientIdentity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Debug for ClientIdentity {
    /// Secrets stay out of logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ClientIdentity({} certificates)", self.0.chain.len())
    }
}
