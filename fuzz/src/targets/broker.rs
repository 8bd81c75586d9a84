//! What a message broker answers: STOMP frames and NATS protocol lines, read through a real socket.

use super::{Target, texts};
use penstock_protocol::broker::{Broker, BrokerError, Post};
use penstock_protocol::tls::ClientTls;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Small enough that a socket's buffer takes it.
const INPUT_BYTES_MAX: usize = 8 << 10;
/// Characters of a broker's words that may come into a text of ours, with room for what is around them.
const WORDS_CHARS_MAX: usize = 400;
const PASSWORD: &str = "not-to-be-told";

pub const STOMP: Target = Target {
    name: "stomp_frames",
    check: |data| check("stomp", data),
    seeds: || {
        texts(&[
            "CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0\nRECEIPT\nreceipt-id:7.0\n\n\0",
            "\n\r\nCONNECTED\r\nversion:1.2\r\n\r\n\0ERROR\nmessage:no\\cqueue\ncontent-length:5\n\nhello\0",
            "ERROR\nmessage:Bad CONNECT\n\nAccess refused for user\n\0",
            "CONNECTED\ncontent-length:18446744073709551615\n\n\0",
        ])
    },
};

pub const NATS: Target = Target {
    name: "nats_lines",
    check: |data| check("nats", data),
    seeds: || {
        texts(&[
            "INFO {\"headers\":true,\"jetstream\":true}\r\nPONG\r\nMSG _INBOX.x.0 1 14\r\n{\"stream\":\"F\"}\r\n",
            "INFO {\"headers\":true,\"jetstream\":true}\r\n+OK\r\nPING\r\nPONG\r\nHMSG a 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
            "INFO {\"headers\":true,\"jetstream\":true}\r\n-ERR 'Authorization Violation'\r\n",
            "INFO {\"headers\":true,\"jetstream\":true}\r\nPONG\r\nHMSG a 1 99 4\r\n{}{}\r\nMSG a 1 18446744073709551615\r\n",
        ])
    },
};

struct Lab {
    runtime: Runtime,
    tls: ClientTls,
    _certificates: tempfile::TempDir,
}

static LAB: LazyLock<Lab> = LazyLock::new(|| {
    let certificates = tempfile::tempdir().expect("a directory");
    Lab {
        runtime: tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime"),
        tls: ClientTls::from_ca_directory(certificates.path()).expect("no authority is one, too"),
        _certificates: certificates,
    }
});

/// Logs in and publishes one message, while the broker says this and then closes.
fn check(scheme: &str, data: &[u8]) {
    let data = data[..data.len().min(INPUT_BYTES_MAX)].to_vec();
    let outcome = LAB.runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let login = Some(("penstock".to_owned(), PASSWORD.to_owned()));
        let broker = Broker::new(&format!("{scheme}://127.0.0.1:{port}"), login).expect("a broker");
        let said = async {
            let (mut peer, _) = listener.accept().await.expect("it connects");
            // Whoever has heard enough closes first.
            let _ = peer.write_all(&data).await;
            let _ = peer.shutdown().await;
            peer
        };
        let limit = Duration::from_secs(5);
        let talk = async {
            let mut publisher = broker.connect(&LAB.tls, limit).await?;
            let post = Post {
                destination: "transfer.start".to_owned(),
                id: "7".to_owned(),
                headers: Vec::new(),
                body: b"{}".to_vec(),
            };
            publisher.publish(&[post], limit).await
        };
        // The peer stays until we are through.
        let (_peer, outcome) = tokio::join!(said, talk);
        outcome
    });
    let Err(why) = outcome else {
        return;
    };
    let text = why.to_string();
    assert!(
        text.chars().count() <= WORDS_CHARS_MAX,
        "{} characters",
        text.chars().count()
    );
    // A broker's words come into logs and onto terminals.
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(!text.contains(PASSWORD), "{text}");
    let is_late = matches!(why, BrokerError::Timeout { .. });
    assert!(!is_late, "it says nothing more, so nobody waits");
}
