//! TLS between processes of one service: both ends show their host certificates, and each is known by the digest of
//! its certificate, whoever has signed it. Which digests are believed is for the caller to judge.

use super::{HANDSHAKE_TIMEOUT, TlsError};
use crate::stream::{self, Stream};
use openssl::sha::sha256;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslOptions, SslSessionCacheMode,
    SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

/// SHA-256 of a certificate (DER).
pub type Fingerprint = [u8; 32];

/// Both ends of connections between peers. Cheap to clone; all clones see a reload.
#[derive(Clone)]
pub struct PeerTls(Arc<Inner>);

struct Inner {
    chain: PathBuf,
    key: PathBuf,
    shown: RwLock<OwnCertificate>,
}

#[derive(Clone)]
struct OwnCertificate {
    fingerprint: Fingerprint,
    context: SslContext,
}

impl PeerTls {
    /// Loads the host certificate (first of its chain) and its private key, both PEM.
    pub fn load(chain: &Path, key: &Path) -> Result<PeerTls, TlsError> {
        Ok(PeerTls(Arc::new(Inner {
            chain: chain.to_owned(),
            key: key.to_owned(),
            shown: RwLock::new(shown(chain, key)?),
        })))
    }

    /// Reads the files again. On error what is in use stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let shown = shown(&self.0.chain, &self.0.key)?;
        *self.0.shown.write() = shown;
        Ok(())
    }

    fn shown(&self) -> OwnCertificate {
        let shown = self.0.shown.read();
        shown.clone()
    }

    /// What this end shows.
    pub fn fingerprint(&self) -> Fingerprint {
        self.shown().fingerprint
    }

    /// Shakes hands with a peer that has just connected, and tells what it showed.
    pub async fn accept(&self, tcp: TcpStream) -> Result<(Stream, Fingerprint), TlsError> {
        self.shake(tcp, End::Server).await
    }

    /// Shakes hands with a peer over a fresh connection, and tells what it showed.
    pub async fn connect(&self, tcp: TcpStream) -> Result<(Stream, Fingerprint), TlsError> {
        self.shake(tcp, End::Client).await
    }

    async fn shake(&self, tcp: TcpStream, end: End) -> Result<(Stream, Fingerprint), TlsError> {
        let peer = tcp.peer_addr();
        let peer = peer.map_or_else(|_| "a peer".to_owned(), |address| address.to_string());
        stream::prepare(&tcp);
        let ssl = Ssl::new(&self.shown().context)?;
        let mut tls = SslStream::new(ssl, tcp)?;
        let shaking = async {
            match end {
                End::Server => Pin::new(&mut tls).accept().await,
                End::Client => Pin::new(&mut tls).connect().await,
            }
        };
        let refused = |why: String| TlsError::Handshake {
            peer: peer.clone(),
            why,
        };
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, shaking).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(refused(why.to_string())),
            Err(_) => {
                return Err(TlsError::Timeout {
                    peer,
                    limit: HANDSHAKE_TIMEOUT,
                });
            }
        }
        let certificate = tls.ssl().peer_certificate();
        let certificate = certificate.ok_or_else(|| refused("it shows no certificate".into()))?;
        let fingerprint = sha256(&certificate.to_der()?);
        Ok((Stream::Tls(Box::new(tls)), fingerprint))
    }
}

#[derive(Clone, Copy)]
enum End {
    Server,
    Client,
}

fn shown(chain: &Path, key: &Path) -> Result<OwnCertificate, TlsError> {
    let unusable = |what, path: &Path, why: String| TlsError::Load {
        what,
        path: path.to_owned(),
        why,
    };
    let pem = std::fs::read(chain);
    let pem = pem.map_err(|why| unusable("host certificate", chain, why.to_string()))?;
    let own = X509::from_pem(&pem);
    let own = own.map_err(|why| unusable("host certificate", chain, why.to_string()))?;
    let mut builder: SslContextBuilder = SslContext::builder(SslMethod::tls())?;
    // Both ends are ours.
    builder.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    builder
        .set_certificate_chain_file(chain)
        .map_err(|why| unusable("host certificate", chain, why.to_string()))?;
    builder
        .set_private_key_file(key, SslFiletype::PEM)
        .map_err(|why| unusable("host key", key, why.to_string()))?;
    builder
        .check_private_key()
        .map_err(|why| unusable("host key", key, why.to_string()))?;
    // The handshake proves that the key is the peer's; its digest says who that is.
    builder.set_verify_callback(
        SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT,
        |_, _| true,
    );
    // A resumed session would show no certificate.
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    builder.set_options(SslOptions::NO_TICKET);
    builder.set_num_tickets(0)?;
    Ok(OwnCertificate {
        fingerprint: sha256(&own.to_der()?),
        context: builder.build(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn host(site: &str) -> (PathBuf, PeerTls) {
        let name = format!("peers-{site}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        let ca = pki::create_ca(&dir, site).expect("a CA");
        let (names, day) = (["localhost".to_owned()], Duration::from_secs(86_400));
        pki::issue_host_certificate(&ca, &names, day, &dir).expect("issued");
        let (chain, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        let tls = PeerTls::load(&chain, &key).expect("loads");
        (dir, tls)
    }

    #[tokio::test]
    async fn each_end_learns_whose_certificate_the_other_has_whoever_signed_it() {
        let ((dir, one), (other_dir, other)) = (host("one"), host("other"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (accepted, connected) = tokio::join!(
            async {
                let (tcp, _) = listener.accept().await.expect("a peer");
                one.accept(tcp).await.expect("shakes hands")
            },
            async {
                let tcp = TcpStream::connect(address).await.expect("connects");
                other.connect(tcp).await.expect("shakes hands")
            }
        );
        assert_eq!(accepted.1, other.fingerprint());
        assert_eq!(connected.1, one.fingerprint());
        let ((mut here, _), (mut there, _)) = (accepted, connected);
        here.write_all(b"word").await.expect("sent");
        here.flush().await.expect("sent");
        let mut said = [0; 4];
        there.read_exact(&mut said).await.expect("arrives");
        assert_eq!(&said, b"word");
        for dir in [dir, other_dir] {
            std::fs::remove_dir_all(dir).expect("made above");
        }
    }

    #[tokio::test]
    async fn who_shows_no_certificate_is_not_let_in() {
        let (dir, tls) = host("none");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (accepted, ()) = tokio::join!(
            async {
                let (tcp, _) = listener.accept().await.expect("a client");
                tls.accept(tcp).await
            },
            async {
                let tcp = TcpStream::connect(address).await.expect("connects");
                let mut builder = SslContext::builder(SslMethod::tls()).expect("OpenSSL works");
                builder.set_verify(SslVerifyMode::NONE);
                let ssl = Ssl::new(&builder.build()).expect("OpenSSL works");
                let mut tls = SslStream::new(ssl, tcp).expect("OpenSSL works");
                // With TLS 1.3 the client learns of the refusal when it reads.
                let _ = Pin::new(&mut tls).connect().await;
                let _ = tls.read_u8().await;
            }
        );
        assert!(matches!(accepted, Err(TlsError::Handshake { .. })));
        std::fs::remove_dir_all(dir).expect("made above");
    }
}
