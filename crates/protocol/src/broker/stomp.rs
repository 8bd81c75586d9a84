//! STOMP 1.2: each message is sent with a receipt, and taken when the receipt came.

use super::{BrokerError, Post, Wire};
use std::collections::HashSet;

struct Frame {
    command: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Frame {
    fn header(&self, name: &str) -> Option<&str> {
        // The first of several counts.
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

pub(super) async fn log_in(wire: &mut Wire) -> Result<(), BrokerError> {
    let host = wire.broker.virtual_host.clone();
    let mut frame = format!("CONNECT\naccept-version:1.2\nhost:{host}\nheart-beat:0,0\n");
    if let Some((user, password)) = &wire.broker.login {
        // CONNECT is the one frame whose headers are not escaped.
        frame.push_str(&format!("login:{user}\npasscode:{password}\n"));
    }
    frame.push_str("\n\0");
    wire.write(frame.as_bytes()).await?;
    let answer = read_frame(wire).await?;
    match answer.command.as_str() {
        "CONNECTED" => Ok(()),
        _ => Err(refusal(wire, &answer)),
    }
}

pub(super) async fn publish(wire: &mut Wire, posts: &[Post]) -> Result<(), BrokerError> {
    let mut awaited: HashSet<String> = HashSet::with_capacity(posts.len());
    for (number, post) in posts.iter().enumerate() {
        // The number keeps receipts apart when one message is sent twice on a connection.
        let receipt = format!("{}.{number}", post.id);
        wire.write(&send(post, &receipt)).await?;
        awaited.insert(receipt);
    }
    while !awaited.is_empty() {
        let answer = read_frame(wire).await?;
        match (answer.command.as_str(), answer.header("receipt-id")) {
            ("RECEIPT", Some(receipt)) => {
                awaited.remove(receipt);
            }
            _ => return Err(refusal(wire, &answer)),
        }
    }
    Ok(())
}

fn send(post: &Post, receipt: &str) -> Vec<u8> {
    let length = post.body.len().to_string();
    let usual = [
        ("destination", post.destination.as_str()),
        ("receipt", receipt),
        ("persistent", "true"),
        ("content-type", "application/json"),
        ("content-length", &length),
    ];
    let own = post
        .headers
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let mut frame = b"SEND\n".to_vec();
    for (key, value) in usual.into_iter().chain(own) {
        frame.extend_from_slice(format!("{}:{}\n", escaped(key), escaped(value)).as_bytes());
    }
    frame.push(b'\n');
    frame.extend_from_slice(&post.body);
    frame.push(0);
    frame
}

fn escaped(text: &str) -> String {
    // NUL ends a frame, and the specification has no escape for it.
    text.replace('\0', "")
        .replace('\\', "\\\\")
        .replace('\r', "\\r")
        .replace('\n', "\\n")
        .replace(':', "\\c")
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some('r') => out.push('\r'),
                Some('n') => out.push('\n'),
                Some('c') => out.push(':'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (letter, false) => out.push(letter),
        }
    }
    out
}

async fn read_frame(wire: &mut Wire) -> Result<Frame, BrokerError> {
    let mut command = wire.read_line().await?;
    // Ends of line between frames are heart-beats.
    while command.is_empty() {
        command = wire.read_line().await?;
    }
    let mut headers = Vec::new();
    let mut bytes = 0;
    loop {
        let line = wire.read_line().await?;
        if line.is_empty() {
            break;
        }
        bytes += line.len();
        if bytes > super::ANSWER_BYTES_MAX {
            return Err(wire.broker.strange("a frame of endless headers"));
        }
        let Some((key, value)) = line.split_once(':') else {
            return Err(wire.broker.strange(&line));
        };
        headers.push((unescaped(key), unescaped(value)));
    }
    let mut frame = Frame {
        command,
        headers,
        body: Vec::new(),
    };
    let length = frame
        .header("content-length")
        .and_then(|length| length.parse().ok());
    frame.body = match length {
        Some(length) => {
            let body = wire.read_exact(length).await?;
            wire.read_exact(1).await?;
            body
        }
        None => wire.read_until(0).await?,
    };
    Ok(frame)
}

fn refusal(wire: &Wire, answer: &Frame) -> BrokerError {
    if answer.command != "ERROR" {
        return wire.broker.strange(&answer.command);
    }
    let message = answer.header("message").unwrap_or("no reason given");
    let body = String::from_utf8_lossy(&answer.body);
    let body: String = body.split_whitespace().collect::<Vec<_>>().join(" ");
    let body: String = body.chars().take(200).collect();
    wire.broker.refused(match body.is_empty() {
        true => message.to_owned(),
        false => format!("{message}: {body}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_are_escaped_and_read_back() {
        for text in ["", "plain", "a:b", "line\nline\r\\n", "\\c"] {
            assert_eq!(unescaped(&escaped(text)), text);
            assert!(!escaped(text).contains(['\n', '\r', ':']));
        }
        assert_eq!(
            escaped("a\0\n\0SEND\ndestination:x"),
            "a\\nSEND\\ndestination\\cx"
        );
    }

    #[test]
    fn a_message_is_counted_so_that_its_bytes_may_be_anything() {
        let post = Post {
            destination: "/topic/a:b".to_owned(),
            id: "7".to_owned(),
            headers: vec![("vo".to_owned(), "cms".to_owned())],
            body: b"{}\0 ".to_vec(),
        };
        let frame = String::from_utf8(send(&post, "7.0")).expect("ASCII");
        let expected = "SEND\ndestination:/topic/a\\cb\nreceipt:7.0\npersistent:true\n\
             content-type:application/json\ncontent-length:4\nvo:cms\n\n{}\0 \0";
        assert_eq!(frame, expected);
    }
}
