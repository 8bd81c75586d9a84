//! Delegation of a certificate: we make a key and a request, the client signs a proxy (RFC 3820) for that key, and
//! from then on we can act in the client's name until the proxy ends.
//!
//! What comes back is judged by the rules for clients; the private key never leaves this side.

use crate::tls::{ClientIdentity, IdentityError};
use crate::x509::{CertificateError, CertificateHolder, ClientCertificates, Proxy};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::{X509, X509NameBuilder, X509ReqBuilder};
use penstock_model::Timestamp;
use thiserror::Error;

/// Bytes of a delivered chain: far more than sixteen certificates with VOMS attributes.
pub const CREDENTIAL_BYTES_MAX: usize = 256 << 10;
/// NIST SP 800-57: good until 2030, and all that old clients know.
const RSA_BITS: u32 = 2048;
/// How far the clock of who signed may be ahead of ours: clients date proxies from this very moment.
const SKEW_SECONDS: i64 = 300;

/// Why a delivered proxy is refused: 400. The text is for its owner.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// Not PEM, or less than the proxy and the certificate that signed it.
    #[error(
        "the body must hold the new proxy and then the certificates that lead to it, in PEM form: {0}"
    )]
    Malformed(String),
    /// Made for another request, or for none of ours.
    #[error("the proxy's key is not the one of the request; fetch the request again and sign that")]
    WrongKey,
    /// The first certificate is not a proxy.
    #[error(
        "the first certificate is not a proxy; sign the request with your certificate or proxy"
    )]
    NoProxy,
    /// No trusted chain, out of date, revoked, of no use as a proxy.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// What was verified does not fit together after all.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// For want of memory.
    #[error("OpenSSL failed: {0}")]
    OpenSsl(#[from] ErrorStack),
}

/// A key that waits for a proxy.
pub struct ProxyRequest(PKey<Private>);

/// A proxy that was delegated, with its key.
#[derive(Clone)]
pub struct DelegatedProxy {
    /// Whose it is, and when it ends.
    pub certified: CertificateHolder,
    /// To be shown to servers.
    pub identity: ClientIdentity,
}

impl ProxyRequest {
    /// Makes a key. Takes a tenth of a second or more, on a thread that may block.
    pub fn new() -> Result<ProxyRequest, ErrorStack> {
        Ok(ProxyRequest(PKey::from_rsa(Rsa::generate(RSA_BITS)?)?))
    }

    /// The key as it is kept: PKCS#8 in DER.
    pub fn to_secret(&self) -> Result<Vec<u8>, ErrorStack> {
        self.0.private_key_to_pkcs8()
    }

    /// What [`ProxyRequest::to_secret`] gave.
    pub fn from_secret(der: &[u8]) -> Result<ProxyRequest, ErrorStack> {
        Ok(ProxyRequest(PKey::private_key_from_pkcs8(der)?))
    }

    /// The request to be signed (RFC 2986), in PEM. Clients look at its key only; the subject says so.
    pub fn to_pem(&self) -> Result<Vec<u8>, ErrorStack> {
        let mut name = X509NameBuilder::new()?;
        name.append_entry_by_nid(Nid::ORGANIZATIONNAME, "Dummy")?;
        let mut builder = X509ReqBuilder::new()?;
        builder.set_version(0)?;
        builder.set_subject_name(&name.build())?;
        builder.set_pubkey(&self.0)?;
        builder.sign(&self.0, MessageDigest::sha256())?;
        builder.build().to_pem()
    }

    /// Takes what the client signed: the proxy first, then the chain that it came with. Blocks on files and
    /// arithmetic.
    pub fn complete(
        &self,
        pem: &[u8],
        trusted: &ClientCertificates,
        now: Timestamp,
    ) -> Result<DelegatedProxy, ProxyError> {
        let chain = X509::stack_from_pem(pem)
            .map_err(|why| ProxyError::Malformed(format!("it is not PEM ({why})")))?;
        if chain.len() < 2 {
            let text = format!("it holds {} certificates", chain.len());
            return Err(ProxyError::Malformed(text));
        }
        let proxy = &chain[0];
        if !proxy.public_key()?.public_eq(&self.0) {
            return Err(ProxyError::WrongKey);
        }
        let certified = trusted.verify(&chain, forgiven(proxy, now)?)?;
        // Proxies come first in a chain that was verified, so when there is one, this is one.
        if certified.proxy == Proxy::None {
            return Err(ProxyError::NoProxy);
        }
        let identity = ClientIdentity::new(chain, self.0.clone())?;
        Ok(DelegatedProxy {
            certified,
            identity,
        })
    }
}

/// Now, or the moment in the near future from which the proxy is good, where clocks differ.
fn forgiven(proxy: &X509, now: Timestamp) -> Result<Timestamp, ErrorStack> {
    let begins = crate::x509::timestamp(proxy.not_before())?;
    match begins > now && begins.0 <= now.0 + SKEW_SECONDS * 1000 {
        true => Ok(begins),
        false => Ok(now),
    }
}
