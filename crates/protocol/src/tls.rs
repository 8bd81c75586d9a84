//! TLS for both ends, with the trust model of grids: a directory of CA certificates, host certificates that
//! are exchanged while the service runs, names and addresses verified. TLS 1.2 at least; sessions are
//! resumed.
//!
//! Clients may show a certificate; the handshake proves only that its key is theirs, [`crate::x509`] judges it.
//! Revocation lists of servers are not looked at.

mod identity;
mod peers;
mod resumption;

pub use identity::{ClientIdentity, IdentityError};
pub use peers::{Fingerprint, PeerTls};

use crate::pki::{ForeignAuthority, PkiError, verified_chain};
use crate::stream::{self, Stream};
use crate::x509::{CertificateError, ClientCertificate, ClientCertificates, HandshakeCertificates};
use openssl::error::ErrorStack;
use openssl::ssl::{
    Ssl, SslAcceptor, SslConnector, SslFiletype, SslMethod, SslRef, SslSessionCacheMode,
    SslVerifyMode, SslVersion,
};
use openssl::stack::Stack;
use openssl::x509::store::{X509Lookup, X509StoreBuilder};
use openssl::x509::{X509, X509Ref, X509VerifyResult};
use parking_lot::RwLock;
use penstock_model::{TimeSpan, Timestamp};
use resumption::Sessions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

/// How long a client may take for its handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

// OpenSSL's X509_V_ERR_… (x509_vfy.h).
const NOT_YET_VALID: i32 = 9;
const EXPIRED: i32 = 10;
const HOSTNAME_MISMATCH: i32 = 62;
const ADDRESS_MISMATCH: i32 = 64;

/// Why there is no TLS connection.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A certificate, key or directory cannot be used.
    #[error("cannot use {what} {}: {why}", path.display())]
    Load {
        /// What the file is for.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The server's certificate does not verify.
    #[error("certificate of {host} is not trusted: {why}; {remedy}")]
    NotTrusted {
        /// The host that was to be reached.
        host: String,
        /// OpenSSL's word for it.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// The two ends found no agreement, or the connection broke meanwhile.
    #[error("TLS handshake with {peer} failed: {why}")]
    Handshake {
        /// The other end.
        peer: String,
        /// OpenSSL's word for it.
        why: String,
    },
    /// The other end took too long.
    #[error("TLS handshake with {peer} took longer than {}", TimeSpan(*limit))]
    Timeout {
        /// The other end.
        peer: String,
        /// The bound.
        limit: Duration,
    },
    /// OpenSSL cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] ErrorStack),
}

/// The server's end: a certificate chain and its key. Cheap to clone; all clones see a reload.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerInner>);

struct ServerInner {
    chain: PathBuf,
    key: PathBuf,
    clients: Option<ClientCertificates>,
    acceptor: RwLock<Arc<SslAcceptor>>,
}

impl ServerTls {
    /// Loads the chain (host certificate first) and the private key, both PEM. Errors: a file that is
    /// missing or unreadable, or a key that does not belong to the certificate.
    pub fn load(cert_chain_pem: &Path, key_pem: &Path) -> Result<ServerTls, TlsError> {
        ServerTls::new(cert_chain_pem, key_pem, None)
    }

    /// The same, and asks clients for a certificate. Those that have none come in all the same, and so do
    /// those whose certificate is not believed: [`ServerTls::client_of`] tells.
    pub fn load_asking(
        cert_chain_pem: &Path,
        key_pem: &Path,
        clients: ClientCertificates,
    ) -> Result<ServerTls, TlsError> {
        ServerTls::new(cert_chain_pem, key_pem, Some(clients))
    }

    fn new(
        cert_chain_pem: &Path,
        key_pem: &Path,
        clients: Option<ClientCertificates>,
    ) -> Result<ServerTls, TlsError> {
        let acceptor = build_acceptor(cert_chain_pem, key_pem, clients.is_some())?;
        Ok(ServerTls(Arc::new(ServerInner {
            chain: cert_chain_pem.to_owned(),
            key: key_pem.to_owned(),
            clients,
            acceptor: RwLock::new(Arc::new(acceptor)),
        })))
    }

    /// Reads the files again, and those that clients are judged by. On error the certificate in use stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let asks = self.0.clients.is_some();
        let acceptor = Arc::new(build_acceptor(&self.0.chain, &self.0.key, asks)?);
        if let Some(clients) = &self.0.clients {
            clients.reload();
        }
        *self.0.acceptor.write() = acceptor;
        Ok(())
    }

    /// The acceptor in use now.
    pub fn acceptor(&self) -> Arc<SslAcceptor> {
        Arc::clone(&self.0.acceptor.read())
    }

    /// Shakes hands with a client that has just connected, within [`HANDSHAKE_TIMEOUT`].
    pub async fn accept(&self, tcp: TcpStream) -> Result<Stream, TlsError> {
        let peer = tcp.peer_addr().map_or_else(
            |_| "a client".to_owned(),
            |address: SocketAddr| address.to_string(),
        );
        stream::prepare(&tcp);
        let ssl = Ssl::new(self.acceptor().context())?;
        let mut tls = SslStream::new(ssl, tcp)?;
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, Pin::new(&mut tls).accept()).await {
            Ok(Ok(())) => Ok(Stream::Tls(Box::new(tls))),
            Ok(Err(why)) => Err(TlsError::Handshake {
                peer,
                why: why.to_string(),
            }),
            Err(_) => Err(TlsError::Timeout {
                peer,
                limit: HANDSHAKE_TIMEOUT,
            }),
        }
    }

    /// The certificate that the client of an accepted stream has shown; `None` if it has shown none. To be asked
    /// once per connection: it takes about a millisecond, on a thread that may block.
    pub async fn client_of(&self, stream: &Stream, now: Timestamp) -> Option<ClientCertificate> {
        let (Some(clients), Stream::Tls(tls)) = (self.0.clients.clone(), stream) else {
            return None;
        };
        let shown = HandshakeCertificates::by(tls.ssl())?;
        let judged = tokio::task::spawn_blocking(move || clients.judge(shown, now)).await;
        // Only a shutdown of the runtime, or a panic that was reported already, ends it early.
        Some(judged.unwrap_or(ClientCertificate {
            certified: Err(CertificateError::Forgotten),
            kept: None,
        }))
    }
}

fn build_acceptor(chain: &Path, key: &Path, asks: bool) -> Result<SslAcceptor, TlsError> {
    let unusable = |what, path: &Path, why: &dyn std::fmt::Display| TlsError::Load {
        what,
        path: path.to_owned(),
        why: why.to_string(),
    };
    for (what, path) in [("host certificate", chain), ("host key", key)] {
        std::fs::File::open(path).map_err(|why| unusable(what, path, &why))?;
    }
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    builder
        .set_certificate_chain_file(chain)
        .map_err(|why| unusable("host certificate", chain, &why))?;
    builder
        .set_private_key_file(key, SslFiletype::PEM)
        .map_err(|why| unusable("host key", key, &why))?;
    builder.check_private_key().map_err(|why| {
        unusable(
            "host key",
            key,
            &format!("it does not belong to the certificate ({why})"),
        )
    })?;
    if asks {
        // Every chain passes here and is judged afterwards, because a failed handshake tells nobody why.
        builder.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
    }
    // Tickets keep sessions at the clients; a cache here would only cost memory.
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    builder.set_session_id_context(b"penstock")?;
    builder.set_read_ahead(true);
    Ok(builder.build())
}

/// The client's end: which CAs are trusted. Cheap to clone; all clones see a reload and share sessions.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientInner>);

struct ClientInner {
    trust: Trust,
    connector: RwLock<Connector>,
}

/// A connector with the sessions that were made with it.
#[derive(Clone)]
struct Connector {
    tls: Arc<SslConnector>,
    sessions: Sessions,
}

enum Trust {
    Directory(PathBuf),
    System,
    /// Any server.
    Nobody,
}

impl ClientTls {
    /// Trusts the CAs of a hashed directory (`<hash>.0`, looked up when needed, so new ones are seen at
    /// once) and those of its `*.pem` files (read now). Verifies host names and IP addresses.
    pub fn from_ca_directory(dir: &Path) -> Result<ClientTls, TlsError> {
        ClientTls::new(Trust::Directory(dir.to_owned()))
    }

    /// Trusts what the operating system trusts.
    pub fn system() -> Result<ClientTls, TlsError> {
        ClientTls::new(Trust::System)
    }

    /// Trusts any server, whoever it is, for the first look at one that is not trusted as yet. Nothing that came this way may be
    /// used before it has come again from a server that is trusted, or a person has compared its fingerprint.
    pub fn for_first_contact() -> Result<ClientTls, TlsError> {
        ClientTls::new(Trust::Nobody)
    }

    fn new(trust: Trust) -> Result<ClientTls, TlsError> {
        let connector = RwLock::new(build_connector(&trust)?);
        Ok(ClientTls(Arc::new(ClientInner { trust, connector })))
    }

    /// Reads the directory again and forgets all sessions, so that a CA that was removed is trusted no
    /// longer by new connections. On error the trust in use stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let connector = build_connector(&self.0.trust)?;
        *self.0.connector.write() = connector;
        Ok(())
    }

    /// Shakes hands with `host` (a name or an address, without brackets) over a fresh connection. The
    /// caller bounds the time.
    pub async fn connect(&self, host: &str, tcp: TcpStream) -> Result<Stream, TlsError> {
        self.connect_as(host, tcp, None).await
    }

    /// The same, and shows the server who we are if it asks.
    pub async fn connect_as(
        &self,
        host: &str,
        tcp: TcpStream,
        identity: Option<&ClientIdentity>,
    ) -> Result<Stream, TlsError> {
        let connector = self.0.connector.read().clone();
        stream::prepare(&tcp);
        let port = tcp.peer_addr().map_or(0, |address| address.port());
        let mut ssl = connector.tls.configure()?.into_ssl(host)?;
        if let Some(identity) = identity {
            identity.show(&mut ssl)?;
        }
        connector.sessions.offer(&mut ssl, host, port, identity)?;
        let named = match self.0.trust {
            Trust::Directory(_) | Trust::System => remember_names(&mut ssl),
            Trust::Nobody => {
                ssl.set_verify(SslVerifyMode::NONE);
                Arc::default()
            }
        };
        let mut tls = SslStream::new(ssl, tcp)?;
        match Pin::new(&mut tls).connect().await {
            Ok(()) => Ok(Stream::Tls(Box::new(tls))),
            Err(why) => Err(self.refusal(host, tls.ssl(), &named, &why)),
        }
    }

    fn refusal(
        &self,
        host: &str,
        ssl: &SslRef,
        named: &OnceLock<String>,
        why: &openssl::ssl::Error,
    ) -> TlsError {
        let verdict = ssl.verify_result();
        if verdict == X509VerifyResult::OK {
            return TlsError::Handshake {
                peer: host.to_owned(),
                why: why.to_string(),
            };
        }
        let remedy = match verdict.as_raw() {
            HOSTNAME_MISMATCH | ADDRESS_MISMATCH => {
                let names = named.get().map_or("others", String::as_str);
                format!(
                    "it was issued for {names}; use one of these names, or get a new certificate"
                )
            }
            NOT_YET_VALID | EXPIRED => "have it renewed, and check the clocks".to_owned(),
            _ => match &self.0.trust {
                // Users of a service read this, too, and have nothing to do with its directories.
                Trust::Directory(_) => {
                    "add its CA to the directory of trusted certificates".to_owned()
                }
                Trust::System | Trust::Nobody => {
                    "add its CA to those that the system trusts".to_owned()
                }
            },
        };
        TlsError::NotTrusted {
            host: host.to_owned(),
            why: verdict.error_string().to_owned(),
            remedy,
        }
    }
}

/// Keeps the names of a certificate that does not verify, because OpenSSL forgets the certificate.
fn remember_names(ssl: &mut Ssl) -> Arc<OnceLock<String>> {
    let named = Arc::new(OnceLock::new());
    let refused = Arc::clone(&named);
    ssl.set_verify_callback(SslVerifyMode::PEER, move |verified, store| {
        if !verified
            && store.error_depth() == 0
            && let Some(certificate) = store.current_cert()
        {
            refused.get_or_init(|| names_in(certificate));
        }
        verified
    });
    named
}

fn build_connector(trust: &Trust) -> Result<Connector, TlsError> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    builder.set_read_ahead(true);
    if let Trust::Directory(dir) = trust {
        builder.set_cert_store(store_of(dir)?.build());
    }
    let sessions = Sessions::default();
    sessions.collect_from(&mut builder);
    Ok(Connector {
        tls: Arc::new(builder.build()),
        sessions,
    })
}

/// The CAs of a hashed directory, and those of its `.pem` files.
fn store_of(dir: &Path) -> Result<X509StoreBuilder, TlsError> {
    let unusable = |path: &Path, why: String| TlsError::Load {
        what: "CA directory",
        path: path.to_owned(),
        why,
    };
    let name = dir.to_str().filter(|name| !name.contains(['\0', ':']));
    let name = name.ok_or_else(|| unusable(dir, "its name holds a ':' or is not UTF-8".into()))?;
    let files = std::fs::read_dir(dir).map_err(|why| unusable(dir, why.to_string()))?;
    let mut store = X509StoreBuilder::new()?;
    store
        .add_lookup(X509Lookup::hash_dir())?
        .add_dir(name, SslFiletype::PEM)?;
    for file in files {
        let path = file.map_err(|why| unusable(dir, why.to_string()))?.path();
        if path.extension().is_some_and(|extension| extension == "pem") {
            let pem = std::fs::read(&path).map_err(|why| unusable(&path, why.to_string()))?;
            for ca in X509::stack_from_pem(&pem).map_err(|why| unusable(&path, why.to_string()))? {
                store.add_cert(ca)?;
            }
        }
    }
    Ok(store)
}

/// Why clients that trust the CAs of a directory refuse a server with these certificates, its own first, under this name or
/// address. `None`: they do not.
pub fn why_refused(
    certificates: &[X509],
    directory: &Path,
    host: &str,
) -> Result<Option<String>, TlsError> {
    Ok(believed_by(certificates, directory, host)?.err())
}

/// The authority by which clients that trust the CAs of a directory believe such a server; `None`: they do not.
pub fn authority_of(
    certificates: &[X509],
    directory: &Path,
    host: &str,
) -> Result<Option<ForeignAuthority>, PkiError> {
    let believed = believed_by(certificates, directory, host);
    let root = believed.ok().and_then(Result::ok).flatten();
    root.map(ForeignAuthority::of).transpose()
}

/// The last certificate of the chain by which a server is believed, or why it is not.
fn believed_by(
    certificates: &[X509],
    directory: &Path,
    host: &str,
) -> Result<Result<Option<X509>, String>, TlsError> {
    let Some((own, others)) = certificates.split_first() else {
        return Ok(Err("there is no certificate".to_owned()));
    };
    let mut chain = Stack::new()?;
    for other in others {
        chain.push(other.clone())?;
    }
    let verdict = verified_chain(store_of(directory)?, own, &chain, host)?;
    let root = verdict.map(|mut used| used.pop());
    Ok(root.map_err(|why| why.error_string().to_owned()))
}

/// The DNS names and addresses of a certificate, for people.
fn names_in(certificate: &X509Ref) -> String {
    let names = certificate.subject_alt_names();
    let names: Vec<String> = names
        .iter()
        .flatten()
        .filter_map(|name| match (name.dnsname(), name.ipaddress()) {
            (Some(dns), _) => Some(dns.to_owned()),
            (None, Some(address)) => address_text(address),
            (None, None) => None,
        })
        .take(8)
        .collect();
    match names.is_empty() {
        true => "no DNS name or address at all".to_owned(),
        false => names.join(", "),
    }
}

fn address_text(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|v4| std::net::Ipv4Addr::from(v4).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|v6| std::net::Ipv6Addr::from(v6).to_string()))
        .ok()
}
