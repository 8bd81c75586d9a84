//! Where messages go: a broker, or one of several, or a file of JSON lines.

use super::composing::MonitoringMessage;
use penstock_protocol::broker::{Broker, BrokerError, Language, Post, Publisher};
use penstock_protocol::tls::ClientTls;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// A connection that was silent for longer may be dead without a sign.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Brokers may drop a message that nobody fetched for a day, as those of FTS.
const LIFETIME: Duration = Duration::from_secs(86_400);

#[derive(Debug, Clone)]
pub struct SinkConfig {
    /// Of letters, digits and dashes: names its position's file.
    pub name: String,
    pub target: SinkTarget,
    /// How often the state of links is told.
    pub optimizer_every: Duration,
}

/// Where a sink is.
#[derive(Debug, Clone)]
pub enum SinkTarget {
    /// The first of these that takes messages.
    Brokers {
        /// In the order in which they are tried. All of one language.
        brokers: Vec<Broker>,
        /// Before the name of a kind, for instance `/topic/` or nothing.
        prefix: String,
    },
    /// A file, to which a line is added for each message. It is opened anew each time, so it may be moved away.
    File(PathBuf),
}

/// Why messages were not taken.
#[derive(Debug, Error)]
pub(super) enum SinkError {
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error("{path}: {why}")]
    File { path: String, why: io::Error },
}

pub(super) struct Sink {
    config: SinkConfig,
    tls: ClientTls,
    open: Option<(Publisher, Instant)>,
    /// The broker that is tried next.
    turn: usize,
}

impl Sink {
    pub(super) fn new(config: SinkConfig, tls: ClientTls) -> Sink {
        Sink {
            config,
            tls,
            open: None,
            turn: 0,
        }
    }

    /// All of them are kept by the sink when it returns well.
    pub(super) async fn deliver(&mut self, told: &[MonitoringMessage]) -> Result<(), SinkError> {
        if told.is_empty() {
            return Ok(());
        }
        match self.config.target.clone() {
            SinkTarget::File(path) => append(path, told).await,
            SinkTarget::Brokers { brokers, prefix } => {
                let broker = &brokers[self.turn % brokers.len()];
                let posts: Vec<Post> = told
                    .iter()
                    .map(|told| post(told, &prefix, broker.language()))
                    .collect();
                let published = self.publish(broker, &posts).await;
                if published.is_err() {
                    self.turn += 1;
                }
                Ok(published?)
            }
        }
    }

    async fn publish(&mut self, broker: &Broker, posts: &[Post]) -> Result<(), BrokerError> {
        let fresh = self
            .open
            .take()
            .filter(|(_, used)| used.elapsed() < IDLE_MAX);
        let mut publisher = match fresh {
            Some((publisher, _)) => publisher,
            None => broker.connect(&self.tls, CONNECT_TIMEOUT).await?,
        };
        publisher.publish(posts, PUBLISH_TIMEOUT).await?;
        self.open = Some((publisher, Instant::now()));
        Ok(())
    }
}

/// As FTS sends it: a blank after the JSON, and `vo` as a header of those messages that name one.
fn post(told: &MonitoringMessage, prefix: &str, language: Language) -> Post {
    let mut headers = Vec::new();
    if let Some(vo) = told.body["vo_name"].as_str() {
        headers.push(("vo".to_owned(), vo.to_owned()));
    }
    if language == Language::Stomp {
        headers.push(("expiration".to_owned(), LIFETIME.as_millis().to_string()));
    }
    let mut body = told.body.to_string();
    if language == Language::Stomp {
        body.push(' ');
    }
    Post {
        destination: format!("{prefix}{}", told.kind.name()),
        id: told.id.clone(),
        headers,
        body: body.into_bytes(),
    }
}

async fn append(path: PathBuf, told: &[MonitoringMessage]) -> Result<(), SinkError> {
    let mut lines = Vec::new();
    for told in told {
        let line =
            serde_json::json!({"message": told.kind.name(), "id": told.id, "body": told.body});
        lines.extend_from_slice(line.to_string().as_bytes());
        lines.push(b'\n');
    }
    let shown = path.display().to_string();
    let failed = |why| SinkError::File { path: shown, why };
    let written = tokio::task::spawn_blocking(move || append_lines(&path, &lines));
    let written = written
        .await
        .unwrap_or_else(|why| Err(io::Error::other(why)));
    written.map_err(failed)
}

/// Appends them durably, or not at all.
fn append_lines(path: &Path, lines: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true).mode(0o640);
    let mut file = options.open(path)?;
    let length = file.metadata()?.len();
    let whole = end_of_lines(&file, length)?;
    if whole < length {
        // A crash tore it. It was never told, and comes again as a whole.
        file.set_len(whole)?;
    }
    if whole == 0
        && let Some(directory) = path.parent()
        && !directory.as_os_str().is_empty()
    {
        // The file may be new.
        File::open(directory)?.sync_all()?;
    }
    let written = file.write_all(lines).and_then(|()| file.sync_data());
    if written.is_err() {
        // A torn line would spoil the next one; it is written again as a whole.
        file.set_len(whole)?;
    }
    written
}

/// Where the last whole line of a file of this length ends.
fn end_of_lines(file: &File, length: u64) -> io::Result<u64> {
    let mut piece = vec![0; 64 << 10];
    let mut end = length;
    while end > 0 {
        let begin = end.saturating_sub(piece.len() as u64);
        let piece = &mut piece[..(end - begin) as usize];
        file.read_exact_at(piece, begin)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_a_crash_tore_spoils_none_that_follow() {
        let directory = tempfile::tempdir().expect("made");
        let file = directory.path().join("told.jsonl");
        let long = vec![b'x'; 200_000];
        for (found, kept) in [
            (&b""[..], &b""[..]),
            (b"{1}\n", b"{1}\n"),
            (b"{1}\n{2", b"{1}\n"),
            (b"{1", b""),
            (&[b"{1}\n", &long[..]].concat(), b"{1}\n"),
            (
                &[&long[..], b"\n", &long[..]].concat(),
                &[&long[..], b"\n"].concat(),
            ),
        ] {
            std::fs::write(&file, found).expect("written");
            append_lines(&file, b"{2}\n{3}\n").expect("appended");
            let expected = [kept, b"{2}\n{3}\n"].concat();
            assert_eq!(std::fs::read(&file).expect("there"), expected);
        }
        std::fs::remove_file(&file).expect("removed");
        append_lines(&file, b"{1}\n").expect("made");
        assert_eq!(std::fs::read(&file).expect("there"), b"{1}\n");
    }
}
