//! NATS with JetStream: each message is published with an address for the answer, and taken when the stream says so.

use super::{Broker, BrokerError, Post, Wire};
use crate::stream::Stream;
use crate::tls::ClientTls;
use serde::Deserialize;
use serde_json::json;
use std::collections::HashSet;
use std::io;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// What the server says of itself first.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    headers: bool,
    #[serde(default)]
    jetstream: bool,
    #[serde(default)]
    tls_required: bool,
}

/// The connection, and the prefix of the addresses of its answers. TLS begins after the server's first line.
pub(super) async fn log_in(
    broker: &Broker,
    tls: &ClientTls,
    mut tcp: TcpStream,
) -> Result<(Wire, String), BrokerError> {
    let first = first_line(broker, &mut tcp).await?;
    let info = first.strip_prefix("INFO ").unwrap_or_default();
    let info: Info = serde_json::from_str(info).map_err(|_| broker.strange(&first))?;
    if !info.jetstream || !info.headers {
        return Err(broker.refused("it has no JetStream: start nats-server with -js"));
    }
    if info.tls_required && !broker.tls {
        return Err(broker.refused("it wants TLS: write nats+tls"));
    }
    let stream = match broker.tls {
        true => tls.connect(&broker.host, tcp).await?,
        false => Stream::plain(tcp),
    };
    let mut wire = Wire::new(broker.clone(), stream);
    let mut us = json!({
        "verbose": false, "pedantic": false, "headers": true, "no_responders": true, "protocol": 1,
        "tls_required": broker.tls, "lang": "rust", "name": "penstock", "version": env!("CARGO_PKG_VERSION"),
    });
    if let Some((user, password)) = &broker.login {
        us["user"] = json!(user);
        us["pass"] = json!(password);
    }
    let mut random = [0_u8; 12];
    let drawn = openssl::rand::rand_bytes(&mut random);
    drawn.map_err(|why| broker.lost(io::Error::other(why)))?;
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let inbox = format!("_INBOX.{name}");
    wire.write(format!("CONNECT {us}\r\nSUB {inbox}.* 1\r\nPING\r\n").as_bytes())
        .await?;
    loop {
        match read(&mut wire).await? {
            ServerMessage::Pong => return Ok((wire, inbox)),
            ServerMessage::Nothing => {}
            ServerMessage::Answer { .. } => {
                return Err(wire.broker.strange("an answer to nothing"));
            }
        }
    }
}

/// Byte by byte: what follows belongs to the handshake.
async fn first_line(broker: &Broker, tcp: &mut TcpStream) -> Result<String, BrokerError> {
    let mut line = Vec::new();
    loop {
        match tcp.read_u8().await.map_err(|why| broker.lost(why))? {
            b'\n' => break,
            byte if line.len() < super::ANSWER_BYTES_MAX => line.push(byte),
            _ => return Err(broker.strange("a line without an end")),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

pub(super) async fn publish(
    wire: &mut Wire,
    inbox: &str,
    posts: &[Post],
) -> Result<(), BrokerError> {
    let mut awaited: HashSet<String> = HashSet::with_capacity(posts.len());
    for (number, post) in posts.iter().enumerate() {
        let reply = format!("{inbox}.{number}");
        wire.write(&published(post, &reply)).await?;
        awaited.insert(reply);
    }
    while !awaited.is_empty() {
        if let ServerMessage::Answer {
            subject,
            body,
            status,
        } = read(wire).await?
        {
            check(wire, &status, &body)?;
            awaited.remove(&subject);
        }
    }
    Ok(())
}

fn published(post: &Post, reply: &str) -> Vec<u8> {
    let mut headers = format!("NATS/1.0\r\nNats-Msg-Id: {}\r\n", post.id);
    for (key, value) in &post.headers {
        headers.push_str(&format!("{key}: {}\r\n", value.replace(['\r', '\n'], " ")));
    }
    headers.push_str("\r\n");
    let all = headers.len() + post.body.len();
    let line = format!(
        "HPUB {} {reply} {} {all}\r\n",
        post.destination,
        headers.len()
    );
    let mut bytes = Vec::with_capacity(line.len() + all + 2);
    bytes.extend_from_slice(line.as_bytes());
    bytes.extend_from_slice(headers.as_bytes());
    bytes.extend_from_slice(&post.body);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// What the server says.
enum ServerMessage {
    Pong,
    /// Something that asks for nothing.
    Nothing,
    Answer {
        subject: String,
        body: Vec<u8>,
        /// The first line of its headers.
        status: String,
    },
}

async fn read(wire: &mut Wire) -> Result<ServerMessage, BrokerError> {
    let line = wire.read_line().await?;
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words.as_slice() {
        ["PING"] => {
            wire.write(b"PONG\r\n").await?;
            Ok(ServerMessage::Nothing)
        }
        ["PONG"] => Ok(ServerMessage::Pong),
        ["+OK"] | ["INFO", ..] => Ok(ServerMessage::Nothing),
        ["-ERR", ..] => {
            let why = line.trim_start_matches("-ERR").trim().trim_matches('\'');
            Err(wire.broker.refused(why))
        }
        ["MSG", subject, _sid, bytes] => {
            let subject = (*subject).to_owned();
            let body = counted(wire, bytes).await?;
            Ok(ServerMessage::Answer {
                subject,
                body,
                status: String::new(),
            })
        }
        ["HMSG", subject, _sid, head, bytes] => {
            let subject = (*subject).to_owned();
            let head: usize = head.parse().map_err(|_| wire.broker.strange(&line))?;
            let mut body = counted(wire, bytes).await?;
            if head > body.len() {
                return Err(wire.broker.strange(&line));
            }
            let rest = body.split_off(head);
            let status = String::from_utf8_lossy(&body);
            let status = status.lines().next().unwrap_or_default().to_owned();
            Ok(ServerMessage::Answer {
                subject,
                body: rest,
                status,
            })
        }
        _ => Err(wire.broker.strange(&line)),
    }
}

async fn counted(wire: &mut Wire, bytes: &str) -> Result<Vec<u8>, BrokerError> {
    let bytes: usize = bytes.parse().map_err(|_| wire.broker.strange(bytes))?;
    let body = wire.read_exact(bytes).await?;
    wire.read_exact(2).await?;
    Ok(body)
}

/// JetStream's word on a message (its API's `PubAck`).
fn check(wire: &Wire, status: &str, body: &[u8]) -> Result<(), BrokerError> {
    #[derive(Deserialize)]
    struct Ack {
        stream: Option<String>,
        error: Option<AckError>,
    }
    #[derive(Deserialize)]
    struct AckError {
        description: Option<String>,
    }
    if status.contains(" 503") {
        return Err(wire.broker.refused(
            "no stream takes these subjects: make one, for example `nats stream add FTS --subjects 'transfer.>'`",
        ));
    }
    let unclear = || wire.broker.strange(&String::from_utf8_lossy(body));
    let ack: Ack = serde_json::from_slice(body).map_err(|_| unclear())?;
    match (ack.error, ack.stream) {
        (Some(refusal), _) => {
            let why = refusal.description;
            Err(wire
                .broker
                .refused(why.unwrap_or_else(|| "no reason given".to_owned())))
        }
        (None, Some(_)) => Ok(()),
        (None, None) => Err(unclear()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_carries_an_id_by_which_the_stream_knows_it_again() {
        let post = Post {
            destination: "transfer.start".to_owned(),
            id: "12-start".to_owned(),
            headers: Vec::new(),
            body: b"{}".to_vec(),
        };
        let bytes = String::from_utf8(published(&post, "_INBOX.x.0")).expect("ASCII");
        let expected = "HPUB transfer.start _INBOX.x.0 35 37\r\nNATS/1.0\r\nNats-Msg-Id: 12-start\r\n\r\n{}\r\n";
        assert_eq!(bytes, expected);
    }
}
