//! Where messages go: a broker, or one of several, or a file of JSON lines.

use super::composing::Told;
use penstock_protocol::broker::{Broker, BrokerError, Language, Post, Publisher};
use penstock_protocol::tls::ClientTls;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// A connection that was silent for longer may be dead without a sign.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Brokers may drop a message that nobody fetched for a day, as those of FTS.
const LIFETIME: Duration = Duration::from_secs(86_400);

/// One sink.
#[derive(Debug, Clone)]
pub struct SinkConfig {
    /// Of letters, digits and dashes: names its position's file.
    pub name: String,
    /// Where it is.
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
    pub(super) async fn deliver(&mut self, told: &[Told]) -> Result<(), SinkError> {
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
fn post(told: &Told, prefix: &str, language: Language) -> Post {
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

async fn append(path: PathBuf, told: &[Told]) -> Result<(), SinkError> {
    let mut lines = Vec::new();
    for told in told {
        let line =
            serde_json::json!({"message": told.kind.name(), "id": told.id, "body": told.body});
        lines.extend_from_slice(line.to_string().as_bytes());
        lines.push(b'\n');
    }
    let shown = path.display().to_string();
    let failed = |why| SinkError::File { path: shown, why };
    let written = tokio::task::spawn_blocking(move || {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o640)
            .open(&path)?;
        let before = file.metadata()?.len();
        let written = file.write_all(&lines).and_then(|()| file.sync_data());
        if written.is_err() {
            // A torn line would spoil the next one; it is written again as a whole.
            file.set_len(before)?;
        }
        written
    });
    let written = written
        .await
        .unwrap_or_else(|why| Err(io::Error::other(why)));
    written.map_err(failed)
}
