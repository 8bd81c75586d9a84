//! Trust: who is believed, who is not, and what the refusal says.

use super::pki::{Ca, HostFiles};
use super::service::{PATIENCE, limits, read_body, serve};
use http::{HeaderMap, Method, StatusCode};
use penstock_protocol::http1::client::{Client, ClientConfig, ClientError, ClientRequest};
use penstock_protocol::http1::server::Connection;
use penstock_protocol::stream::Stream;
use penstock_protocol::tls::{ClientTls, ServerTls, TlsError};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub async fn start_tls(tls: ServerTls) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.expect("accept");
            let tls = tls.clone();
            tokio::spawn(async move {
                if let Ok(stream) = tls.accept(tcp).await {
                    serve(Connection::new(stream, limits())).await;
                }
            });
        }
    });
    address
}

pub fn client_trusting(dir: &Path) -> Client {
    Client::new(ClientConfig::new(
        ClientTls::from_ca_directory(dir).expect("directory"),
    ))
}

pub fn get(url: &str) -> ClientRequest {
    ClientRequest::new(Method::GET, url.parse().expect("a URL"))
}

struct Site {
    trusted: TempDir,
    _host: TempDir,
    files: HostFiles,
    ca: Ca,
}

fn site(hosts: &[&str]) -> Site {
    let (trusted, host) = (TempDir::new().expect("dir"), TempDir::new().expect("dir"));
    let ca = Ca::new("Test CA");
    let files = ca.issue(host.path(), hosts);
    Site {
        trusted,
        _host: host,
        files,
        ca,
    }
}

async fn body_of(client: &Client, url: &str) -> Result<String, ClientError> {
    let body = client.send(get(url)).await?.read_all(1000).await?;
    Ok(String::from_utf8(body).expect("text"))
}

#[tokio::test]
async fn a_server_of_a_trusted_ca_is_believed_by_name_and_by_address() {
    let site = site(&["localhost", "127.0.0.1"]);
    site.ca.install(site.trusted.path());
    let tls = ServerTls::load(&site.files.chain, &site.files.key).expect("load");
    let port = start_tls(tls).await.port();
    let client = client_trusting(site.trusted.path());
    for url in [
        format!("https://127.0.0.1:{port}/x"),
        format!("davs://localhost:{port}/x"),
    ] {
        assert_eq!(body_of(&client, &url).await.expect("believed"), "GET /x []");
    }
}

#[tokio::test]
async fn a_server_of_an_unknown_ca_is_refused_with_the_remedy() {
    let site = site(&["127.0.0.1"]);
    let tls = ServerTls::load(&site.files.chain, &site.files.key).expect("load");
    let url = format!("https://{}/x", start_tls(tls).await);
    let client = client_trusting(site.trusted.path());
    let error = body_of(&client, &url).await.expect_err("unknown CA");
    // Users of a service read it: its directories are not named.
    assert_eq!(
        error.to_string(),
        "certificate of 127.0.0.1 is not trusted: unable to get local issuer certificate; \
         add its CA to the directory of trusted certificates"
    );

    // A CA that is installed meanwhile is seen at once.
    site.ca.install(site.trusted.path());
    assert_eq!(body_of(&client, &url).await.expect("believed"), "GET /x []");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused_with_the_names_it_has() {
    let site = site(&["se1.example.org", "127.0.0.9"]);
    std::fs::write(site.trusted.path().join("ca.pem"), site.ca.pem()).expect("write");
    let tls = ServerTls::load(&site.files.chain, &site.files.key).expect("load");
    let port = start_tls(tls).await.port();
    let client = client_trusting(site.trusted.path());
    let remedy = "it was issued for se1.example.org, 127.0.0.9; use one of these names, or get a new certificate";
    let error = body_of(&client, &format!("https://127.0.0.1:{port}/"))
        .await
        .expect_err("another address");
    let address = "certificate of 127.0.0.1 is not trusted: IP address mismatch";
    assert_eq!(
        error.to_string().to_lowercase(),
        format!("{address}; {remedy}").to_lowercase()
    );
    let error = body_of(&client, &format!("https://localhost:{port}/"))
        .await
        .expect_err("another name");
    let name = "certificate of localhost is not trusted: hostname mismatch";
    assert_eq!(
        error.to_string().to_lowercase(),
        format!("{name}; {remedy}").to_lowercase()
    );
}

#[tokio::test]
async fn a_reload_takes_the_new_certificate_and_a_bad_one_changes_nothing() {
    let site = site(&["se1.example.org"]);
    site.ca.install(site.trusted.path());
    let tls = ServerTls::load(&site.files.chain, &site.files.key).expect("load");
    let url = format!("https://{}/x", start_tls(tls.clone()).await);
    let client = client_trusting(site.trusted.path());
    assert!(body_of(&client, &url).await.is_err());

    let dir = site.files.chain.parent().expect("a directory");
    site.ca.issue(dir, &["127.0.0.1"]);
    tls.reload().expect("reload");
    assert_eq!(body_of(&client, &url).await.expect("believed"), "GET /x []");

    std::fs::write(&site.files.key, "no key").expect("write");
    let error = tls.reload().expect_err("no key");
    assert!(error.to_string().starts_with(&format!(
        "cannot use host key {}: ",
        site.files.key.display()
    )));
    std::fs::write(&site.files.chain, "no certificate").expect("write");
    assert!(matches!(
        tls.reload(),
        Err(TlsError::Load {
            what: "host certificate",
            ..
        })
    ));
    let client = client_trusting(site.trusted.path());
    assert_eq!(body_of(&client, &url).await.expect("believed"), "GET /x []");
}

#[tokio::test]
async fn a_ca_that_was_removed_is_believed_no_longer_after_a_reload() {
    let site = site(&["127.0.0.1"]);
    site.ca.install(site.trusted.path());
    let tls = ServerTls::load(&site.files.chain, &site.files.key).expect("load");
    let url = format!("https://{}/close", start_tls(tls).await);
    let trust = ClientTls::from_ca_directory(site.trusted.path()).expect("directory");
    let client = Client::new(ClientConfig::new(trust.clone()));
    assert_eq!(body_of(&client, &url).await.expect("believed"), "bye");
    for file in std::fs::read_dir(site.trusted.path()).expect("list") {
        std::fs::remove_file(file.expect("entry").path()).expect("remove");
    }
    trust.reload().expect("reload");
    assert!(matches!(
        body_of(&client, &url).await,
        Err(ClientError::Tls(TlsError::NotTrusted { .. }))
    ));
}

#[tokio::test]
async fn sessions_are_resumed() {
    let site = site(&["127.0.0.1"]);
    site.ca.install(site.trusted.path());
    let tls = ServerTls::load(&site.files.chain, &site.files.key).expect("load");
    let trust = ClientTls::from_ca_directory(site.trusted.path()).expect("directory");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let mut resumed = Vec::new();
    for _ in 0..3 {
        let client = async {
            let tcp = TcpStream::connect(address).await.expect("connect");
            let mut stream = trust.connect("127.0.0.1", tcp).await.expect("handshake");
            assert_eq!(stream.read_u8().await.expect("read"), b'x');
        };
        let server = async {
            let (tcp, _) = listener.accept().await.expect("accept");
            let Stream::Tls(mut stream) = tls.accept(tcp).await.expect("handshake") else {
                panic!("not TLS")
            };
            stream.write_all(b"x").await.expect("write");
            stream.ssl().session_reused()
        };
        resumed.push(tokio::join!(client, server).1);
    }
    assert_eq!(resumed, [false, true, true]);
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_is_an_error_of_the_handshake() {
    let site = site(&["127.0.0.1"]);
    let tls = ServerTls::load(&site.files.chain, &site.files.key).expect("load");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let mut client = TcpStream::connect(listener.local_addr().expect("address"))
        .await
        .expect("connect");
    client
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .await
        .expect("write");
    let (tcp, _) = listener.accept().await.expect("accept");
    assert!(matches!(
        tls.accept(tcp).await,
        Err(TlsError::Handshake { .. })
    ));
}

/// Both ends of an encrypted connection.
async fn encrypted_pair(site: &Site) -> (Stream, Stream) {
    let tls = ServerTls::load(&site.files.chain, &site.files.key).expect("load");
    let trust = ClientTls::from_ca_directory(site.trusted.path()).expect("directory");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let client = async {
        let tcp = TcpStream::connect(address).await.expect("connect");
        trust.connect("127.0.0.1", tcp).await.expect("handshake")
    };
    let server = async {
        let (tcp, _) = listener.accept().await.expect("accept");
        tls.accept(tcp).await.expect("handshake")
    };
    tokio::join!(client, server)
}

#[tokio::test]
async fn an_encrypted_client_is_watched_without_losing_what_it_sends() {
    let site = site(&["127.0.0.1"]);
    site.ca.install(site.trusted.path());
    let (mut client, server) = encrypted_pair(&site).await;
    let mut server = Connection::new(server, limits());
    let first = b"COPY /1 HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(first).await.expect("write");
    server
        .next_request()
        .await
        .expect("valid")
        .expect("a request");
    client
        .write_all(b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("write");
    let waiting = tokio::time::timeout(Duration::from_millis(50), server.peer_closed()).await;
    assert!(waiting.is_err(), "the client is still there");
    server
        .respond(StatusCode::OK, HeaderMap::new(), b"")
        .await
        .expect("answered");
    let next = server
        .next_request()
        .await
        .expect("valid")
        .expect("a request");
    assert_eq!(next.target, "/2");
    drop(client);
    tokio::time::timeout(PATIENCE, server.peer_closed())
        .await
        .expect("noticed");
}

#[tokio::test]
async fn an_encrypted_body_that_is_cut_off_is_an_error_not_an_end() {
    let site = site(&["127.0.0.1"]);
    site.ca.install(site.trusted.path());
    let (mut client, server) = encrypted_pair(&site).await;
    let mut server = Connection::new(server, limits());
    let head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab";
    client.write_all(head).await.expect("write");
    let Stream::Tls(tls) = &mut client else {
        panic!("not TLS")
    };
    // The end of the TCP connection, without TLS's goodbye.
    tls.get_mut().shutdown().await.expect("shutdown");
    server
        .next_request()
        .await
        .expect("valid")
        .expect("a request");
    let error = read_body(&mut server).await.expect_err("cut off");
    assert_eq!(
        error.to_string(),
        "the connection ended before the body: 3 bytes are missing"
    );
}

#[tokio::test]
async fn nothing_below_tls_1_2_is_spoken_by_either_end() {
    use openssl::ssl::{
        SslAcceptor, SslConnector, SslFiletype, SslMethod, SslVerifyMode, SslVersion,
    };
    let site = site(&["127.0.0.1"]);
    site.ca.install(site.trusted.path());
    let server =
        start_tls(ServerTls::load(&site.files.chain, &site.files.key).expect("load")).await;
    // What these tests would accept, OpenSSL refuses by itself at its usual security level.
    let everything = "ALL:@SECLEVEL=0";
    for (version, expected) in [(SslVersion::TLS1_1, false), (SslVersion::TLS1_2, true)] {
        let mut builder = SslConnector::builder(SslMethod::tls_client()).expect("OpenSSL");
        builder.set_verify(SslVerifyMode::NONE);
        builder.set_cipher_list(everything).expect("known");
        builder.set_min_proto_version(None).expect("known");
        builder.set_max_proto_version(Some(version)).expect("known");
        let ssl = builder
            .build()
            .configure()
            .expect("OpenSSL")
            .verify_hostname(false);
        let ssl = ssl.into_ssl("127.0.0.1").expect("OpenSSL");
        let tcp = TcpStream::connect(server).await.expect("connects");
        let mut tls = tokio_openssl::SslStream::new(ssl, tcp).expect("OpenSSL");
        let shaken = std::pin::Pin::new(&mut tls).connect().await;
        assert_eq!(shaken.is_ok(), expected, "our server, {version:?}");

        let mut builder =
            SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).expect("OpenSSL");
        builder.set_cipher_list(everything).expect("known");
        builder.set_min_proto_version(None).expect("known");
        builder.set_max_proto_version(Some(version)).expect("known");
        builder
            .set_certificate_chain_file(&site.files.chain)
            .expect("loads");
        builder
            .set_private_key_file(&site.files.key, SslFiletype::PEM)
            .expect("loads");
        let acceptor = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let trust = ClientTls::from_ca_directory(site.trusted.path()).expect("directory");
        let client = async {
            let tcp = TcpStream::connect(address).await.expect("connect");
            trust.connect("127.0.0.1", tcp).await.map(drop)
        };
        let old = async {
            let (tcp, _) = listener.accept().await.expect("accept");
            let ssl = openssl::ssl::Ssl::new(acceptor.context()).expect("OpenSSL");
            let mut tls = tokio_openssl::SslStream::new(ssl, tcp).expect("OpenSSL");
            let _ = std::pin::Pin::new(&mut tls).accept().await;
        };
        let (shaken, ()) = tokio::join!(client, old);
        assert_eq!(
            shaken.is_ok(),
            expected,
            "our client, {version:?}: {shaken:?}"
        );
    }
}
