//! Who a client is to a server: the certificate that a request shows, and that it is never another request's.

use super::pki::Ca;
use super::service::limits;
use super::tls::{client_trusting, get};
use http::{HeaderMap, StatusCode};
use penstock_model::Timestamp;
use penstock_protocol::http1::client::Client;
use penstock_protocol::http1::server::Connection;
use penstock_protocol::stream::Stream;
use penstock_protocol::tls::{ClientIdentity, ServerTls};
use penstock_protocol::x509::ClientCertificates;
use std::net::SocketAddr;
use std::time::SystemTime;
use tempfile::TempDir;
use tokio::net::TcpListener;

struct Lab {
    _directory: TempDir,
    ca: Ca,
    client: Client,
    address: SocketAddr,
}

/// A server that says who it takes its client for, from which port it comes, and whether the session was resumed.
async fn lab() -> Lab {
    let directory = TempDir::new().expect("a directory");
    let ca = Ca::new("Test CA");
    ca.install(directory.path());
    let files = ca.issue(directory.path(), &["127.0.0.1"]);
    let clients = ClientCertificates::from_ca_directory(directory.path());
    let tls = ServerTls::load_asking(&files.chain, &files.key, clients).expect("loaded");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                if let Ok(stream) = tls.accept(tcp).await {
                    answer(&tls, stream).await;
                }
            });
        }
    });
    Lab {
        client: client_trusting(directory.path()),
        _directory: directory,
        ca,
        address,
    }
}

async fn answer(tls: &ServerTls, stream: Stream) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = Timestamp(since.expect("after 1970").as_millis() as i64);
    let who = match tls
        .client_of(&stream, now)
        .await
        .map(|shown| shown.certified)
    {
        None => "nobody".to_owned(),
        Some(Ok(certified)) => certified.subject,
        Some(Err(why)) => why.to_string(),
    };
    let resumed = match &stream {
        Stream::Tls(tls) => tls.ssl().session_reused(),
        _ => false,
    };
    let mut connection = Connection::new(stream, limits());
    let port = connection.peer_addr().port();
    let text = format!("{who} {port} {resumed}");
    while let Ok(Some(request)) = connection.next_request().await {
        let mut headers = HeaderMap::new();
        if request.path() == "/close" {
            headers.insert("connection", "close".parse().expect("valid"));
        }
        let answered = connection.respond(StatusCode::OK, headers, text.as_bytes());
        if answered.await.is_err() {
            return;
        }
    }
}

/// Who the server saw, on which connection, and whether by a resumed session.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    who: String,
    port: String,
    resumed: bool,
}

impl Lab {
    fn user(&self, name: &str, serial: u32) -> ClientIdentity {
        ClientIdentity::from_pem(&self.ca.user(name, serial)).expect("a pair")
    }

    async fn ask(&self, identity: Option<&ClientIdentity>, path: &str) -> Seen {
        let mut request = get(&format!("https://{}{path}", self.address));
        request.identity = identity.cloned();
        let mut answer = self.client.send(request).await.expect("an answer");
        let text = String::from_utf8(answer.read_all(1000).await.expect("a body")).expect("text");
        let mut words = text.rsplitn(3, ' ').map(str::to_owned);
        let mut word = || words.next().expect("three words");
        let resumed = word() == "true";
        let port = word();
        Seen {
            who: word(),
            port,
            resumed,
        }
    }
}

#[tokio::test]
async fn a_kept_connection_serves_requests_of_the_same_identity_only() {
    let lab = lab().await;
    let (alice, bob) = (lab.user("Alice", 7), lab.user("Bob", 8));
    let first = lab.ask(Some(&alice), "/").await;
    assert_eq!(first.who, "/CN=Alice");
    let second = lab.ask(Some(&bob), "/").await;
    assert_eq!(second.who, "/CN=Bob");
    let third = lab.ask(None, "/").await;
    assert_eq!(third.who, "nobody");
    assert_ne!(first.port, second.port);
    assert_eq!(
        lab.ask(Some(&alice), "/").await.port,
        first.port,
        "her own is used again"
    );
    assert_eq!(lab.ask(Some(&bob), "/").await.port, second.port);
    assert_eq!(lab.ask(None, "/").await.port, third.port);
}

#[tokio::test]
async fn a_session_is_resumed_for_the_same_identity_only() {
    let lab = lab().await;
    let (alice, bob) = (lab.user("Alice", 7), lab.user("Bob", 8));
    assert!(!lab.ask(Some(&alice), "/close").await.resumed);
    for (identity, who) in [(Some(&bob), "/CN=Bob"), (None, "nobody")] {
        let seen = lab.ask(identity, "/close").await;
        assert_eq!((seen.who.as_str(), seen.resumed), (who, false));
    }
    for (identity, who) in [
        (Some(&alice), "/CN=Alice"),
        (Some(&bob), "/CN=Bob"),
        (None, "nobody"),
    ] {
        let seen = lab.ask(identity, "/close").await;
        assert_eq!((seen.who.as_str(), seen.resumed), (who, true));
    }
}

#[tokio::test]
async fn an_identity_does_not_follow_a_redirect_elsewhere() {
    let lab = lab().await;
    let mut request = get("https://se1.example.org/f");
    request.identity = Some(lab.user("Alice", 7));
    let to = |url: &str| {
        let url = url.parse().expect("a URL");
        let redirected = lab
            .client
            .redirected(request.clone(), StatusCode::FOUND, url);
        redirected.expect("can be sent").identity.is_some()
    };
    assert!(to("https://se1.example.org/g"));
    for url in [
        "https://se2.example.org/f",
        "https://se1.example.org:8443/f",
        "http://se1.example.org/f",
    ] {
        assert!(!to(url), "{url}");
    }
}

#[test]
fn a_key_of_another_certificate_makes_no_identity() {
    let ca = Ca::new("Test CA");
    let (alice, bob) = (ca.user("Alice", 7), ca.user("Bob", 8));
    let certificate = openssl::x509::X509::from_pem(&alice).expect("PEM");
    let key = openssl::pkey::PKey::private_key_from_pem(&bob).expect("PEM");
    assert!(ClientIdentity::new(vec![certificate], key).is_err());
    assert!(ClientIdentity::from_pem(b"").is_err());
    let whole = ClientIdentity::from_pem(&alice).expect("a pair");
    let again = ClientIdentity::from_pem(&whole.to_pem().expect("PEM")).expect("a pair");
    assert!(whole == again);
    assert!(!format!("{whole:?}").contains("KEY"));
}
