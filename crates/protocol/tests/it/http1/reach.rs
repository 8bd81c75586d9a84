//! Where a client may be sent by others: addresses, redirects, and what goes along.

use super::client::{client, scripted};
use super::pki::Ca;
use super::service::{limits, start};
use super::tls::{client_trusting, get, start_tls};
use penstock_protocol::hosts::HostPattern;
use penstock_protocol::http1::client::{Client, ClientError, Reach, ReachRules};
use penstock_protocol::network::NetworkPorts;
use penstock_protocol::tls::ServerTls;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;

fn rules(private: &[&str], follow: &[&str]) -> ReachRules {
    let network = |text: &&str| NetworkPorts::parse(&format!("{text}:*")).expect("a network");
    let host = |text: &&str| HostPattern::parse(text).expect("a host");
    ReachRules {
        private: private.iter().map(network).collect(),
        credentials_follow: follow.iter().map(host).collect(),
        ..ReachRules::default()
    }
}

/// The names of the headers that arrive at `stranger` by a redirect.
async fn arriving(client: &Client, stranger: &str) -> String {
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {stranger}/headers\r\nContent-Length: 0\r\n\r\n"
    );
    let (url, _questions) = scripted(vec![answer.leak()]).await;
    let mut request = get(&url);
    for name in [
        "accept",
        "authorization",
        "cookie",
        "private-token",
        "transferheaderauthorization",
        "x-auth-token",
    ] {
        request.headers.insert(name, "x".parse().expect("valid"));
    }
    let mut response = client.send_following(request).await.expect("response");
    String::from_utf8(response.read_all(1000).await.expect("body")).expect("text")
}

#[tokio::test]
async fn credentials_follow_a_redirect_only_where_they_may_and_over_tls() {
    let (trusted, host) = (TempDir::new().expect("dir"), TempDir::new().expect("dir"));
    let ca = Ca::new("Test CA");
    let files = ca.issue(host.path(), &["127.0.0.1"]);
    ca.install(trusted.path());
    let tls = ServerTls::load(&files.chain, &files.key).expect("loads");
    let secure = format!("https://{}", start_tls(tls).await);
    let plain = format!("http://{}", start(limits()).await);
    let bare = client_trusting(trusted.path());
    let none = "accept host user-agent";
    let all = "accept authorization cookie host private-token transferheaderauthorization user-agent x-auth-token";
    for (follow, stranger, expected) in [
        (&[][..], &secure, none),
        (&["127.0.0.2", "*.example.org"][..], &secure, none),
        (&["127.0.0.1"][..], &secure, all),
        (&["127.0.0.1"][..], &plain, none),
    ] {
        let client = bare.with_reach(&Reach::new(rules(&["127.0.0.1"], follow)));
        assert_eq!(
            arriving(&client, stranger).await,
            expected,
            "{follow:?} {stranger}"
        );
    }
    assert_eq!(arriving(&bare, &secure).await, none);
}

#[tokio::test]
async fn what_is_not_public_is_reached_only_when_it_is_listed() {
    let listener = TcpListener::bind("127.0.0.2:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let reach = Reach::new(rules(&["127.0.0.1", "10.0.0.0/8"], &[]));
    let client = client().with_reach(&reach);
    for host in [
        "127.0.0.2",
        "[::ffff:127.0.0.2]",
        "169.254.169.254",
        "0.0.0.0",
        "[fd00::1]",
    ] {
        let error = client.send(get(&format!("http://{host}:{port}/"))).await;
        let error = error.err().expect("forbidden");
        assert!(
            matches!(error, ClientError::Forbidden { .. }),
            "{host}: {error}"
        );
        assert!(
            error.to_string().contains("trust.private_addresses"),
            "{error}"
        );
    }
    // A redirect is judged as well, though the first server may be reached.
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2:{port}/\r\n\r\n");
    let (url, _questions) = scripted(vec![answer.leak()]).await;
    let error = client
        .send_following(get(&url))
        .await
        .err()
        .expect("forbidden");
    assert!(matches!(error, ClientError::Forbidden { .. }), "{error}");
    let nobody = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(nobody.is_err(), "somebody connected");
    reach.replace(rules(&["127.0.0.0/8"], &[]));
    let open = client.send(get(&format!("http://127.0.0.2:{port}/")));
    let (_, came) = tokio::join!(
        tokio::time::timeout(Duration::from_millis(500), open),
        listener.accept()
    );
    came.expect("connected");
}

#[tokio::test]
async fn a_name_leads_to_those_of_its_addresses_that_are_allowed() {
    let address = start(limits()).await;
    let client = client().with_reach(&Reach::new(rules(&["127.0.0.1"], &[])));
    let url = format!("http://localhost:{}/port", address.port());
    assert!(client.send(get(&url)).await.is_ok());
    let none = client.with_reach(&Reach::new(rules(&[], &[])));
    let error = none.send(get(&url)).await.err().expect("forbidden");
    assert!(matches!(error, ClientError::Forbidden { .. }), "{error}");
}
