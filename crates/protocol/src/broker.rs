//! Message brokers, as far as one has to speak to them to publish: STOMP 1.2 and NATS JetStream.
//!
//! A message counts as taken when the broker has said so. Nothing is ever received but such answers.

mod nats;
mod stomp;

use crate::stream::Stream;
use crate::tls::{ClientTls, TlsError};
use penstock_model::TimeSpan;
use penstock_model::url::redact;
use std::fmt;
use std::io;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

/// Bytes of one answer of a broker; those that are expected have hundreds.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Characters of a broker's own words that are shown.
const WORDS_CHARS_MAX: usize = 300;
const STOMP_PORT: u16 = 61613;
const STOMP_TLS_PORT: u16 = 61614;
const NATS_PORT: u16 = 4222;

/// Why a broker has not taken a message.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// The URL is not one of a broker.
    #[error("'{url}' is not a broker: {why}")]
    InvalidUrl {
        /// Without its secrets.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// No connection, or it broke.
    #[error("{broker}: {why}")]
    Connection {
        /// Host and port.
        broker: String,
        /// What the system says.
        why: io::Error,
    },
    /// No trust, or no agreement.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It took longer than is waited.
    #[error("{broker} has not answered within {}", TimeSpan(*limit))]
    Timeout {
        /// Host and port.
        broker: String,
        /// The bound.
        limit: Duration,
    },
    /// The broker refuses.
    #[error("{broker} refuses: {why}")]
    Refused {
        /// Host and port.
        broker: String,
        /// Its words.
        why: String,
    },
    /// What came is not of its protocol.
    #[error("{broker} answers what {protocol} does not know: {what}")]
    Protocol {
        /// Host and port.
        broker: String,
        /// STOMP or NATS.
        protocol: &'static str,
        /// What came.
        what: String,
    },
}

/// Which language a broker speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// STOMP 1.2, <https://stomp.github.io/stomp-specification-1.2.html>.
    Stomp,
    /// NATS with JetStream, <https://docs.nats.io/reference/reference-protocols/nats-protocol>.
    Nats,
}

/// Where a broker is, and who we are there.
#[derive(Clone)]
pub struct Broker {
    language: Language,
    tls: bool,
    host: String,
    port: u16,
    /// The virtual host of STOMP; the host itself where the URL has no path.
    virtual_host: String,
    login: Option<(String, String)>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Broker({})", self.shown())
    }
}

impl Broker {
    /// From a URL: `stomp`, `stomp+tls`, `nats` or `nats+tls`, a host, and perhaps a port and, for STOMP, a virtual
    /// host as the path. Errors: anything else, and secrets in the URL.
    pub fn new(url: &str, login: Option<(String, String)>) -> Result<Broker, BrokerError> {
        let refuse = |why: &str| BrokerError::InvalidUrl {
            url: redact(url),
            why: why.to_owned(),
        };
        let parsed = Url::parse(url).map_err(|why| refuse(&why.to_string()))?;
        let (language, tls, default_port) = match parsed.scheme() {
            "stomp" => (Language::Stomp, false, STOMP_PORT),
            "stomp+tls" => (Language::Stomp, true, STOMP_TLS_PORT),
            "nats" => (Language::Nats, false, NATS_PORT),
            "nats+tls" => (Language::Nats, true, NATS_PORT),
            _ => {
                return Err(refuse(
                    "its scheme is none of stomp, stomp+tls, nats, nats+tls",
                ));
            }
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(refuse(
                "user and password do not belong into the URL: name them with `user` and `password_file`",
            ));
        }
        let host = parsed.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| refuse("it names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let path = parsed.path().trim_start_matches('/');
        if language == Language::Nats && !path.is_empty() {
            return Err(refuse("a path means nothing to NATS"));
        }
        Ok(Broker {
            language,
            tls,
            host: host.to_owned(),
            port: parsed.port().unwrap_or(default_port),
            virtual_host: match path {
                "" => host.to_owned(),
                path => path.replace("%2F", "/").replace("%2f", "/"),
            },
            login,
        })
    }

    /// Which language it speaks.
    pub fn language(&self) -> Language {
        self.language
    }

    /// Host and port, for people.
    pub fn shown(&self) -> String {
        format!("{} port {}", self.host, self.port)
    }

    /// Whether a password would cross the network in clear.
    pub fn shows_password(&self) -> bool {
        !self.tls && self.login.is_some()
    }

    /// Connects and logs in, within `limit`.
    pub async fn connect(
        &self,
        tls: &ClientTls,
        limit: Duration,
    ) -> Result<Publisher, BrokerError> {
        let connecting = async {
            let address = (self.host.as_str(), self.port);
            let tcp = TcpStream::connect(address)
                .await
                .map_err(|why| self.lost(why))?;
            match self.language {
                Language::Stomp => {
                    let stream = match self.tls {
                        true => tls.connect(&self.host, tcp).await?,
                        false => Stream::plain(tcp),
                    };
                    let mut wire = Wire::new(self.clone(), stream);
                    stomp::log_in(&mut wire).await?;
                    Ok((wire, String::new()))
                }
                Language::Nats => nats::log_in(self, tls, tcp).await,
            }
        };
        let connected = timeout(limit, connecting).await;
        let (wire, inbox) = connected.map_err(|_| self.too_slow(limit))??;
        Ok(Publisher { wire, inbox })
    }

    fn lost(&self, why: io::Error) -> BrokerError {
        BrokerError::Connection {
            broker: self.shown(),
            why,
        }
    }

    fn too_slow(&self, limit: Duration) -> BrokerError {
        BrokerError::Timeout {
            broker: self.shown(),
            limit,
        }
    }

    fn refused(&self, why: impl AsRef<str>) -> BrokerError {
        BrokerError::Refused {
            broker: self.shown(),
            why: self.plain(why.as_ref()),
        }
    }

    fn strange(&self, what: &str) -> BrokerError {
        BrokerError::Protocol {
            broker: self.shown(),
            protocol: match self.language {
                Language::Stomp => "STOMP",
                Language::Nats => "NATS",
            },
            what: self.plain(what),
        }
    }

    /// A broker's words as one line for logs and terminals, also where it repeats what it was sent.
    fn plain(&self, text: &str) -> String {
        let hidden = match &self.login {
            Some((_, password)) if !password.is_empty() => text.replace(password.as_str(), "…"),
            Some(_) | None => text.to_owned(),
        };
        let printable = hidden.chars().filter(|c| !c.is_control());
        printable.take(WORDS_CHARS_MAX).collect()
    }
}

/// A message to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// STOMP's destination, or NATS's subject.
    pub destination: String,
    /// The same when it is sent again: JetStream drops what it has already.
    pub id: String,
    /// Headers beside the usual ones. Names and values of printable ASCII.
    pub headers: Vec<(String, String)>,
    /// JSON.
    pub body: Vec<u8>,
}

/// A connection on which messages are published.
pub struct Publisher {
    wire: Wire,
    /// Where JetStream's answers come to; unused by STOMP.
    inbox: String,
}

impl Publisher {
    /// Publishes messages in their order; all of them were taken when it returns well. After an error some may have
    /// been, and the connection is of no more use.
    pub async fn publish(&mut self, posts: &[Post], limit: Duration) -> Result<(), BrokerError> {
        let broker = self.wire.broker.clone();
        let publishing = async {
            match broker.language {
                Language::Stomp => stomp::publish(&mut self.wire, posts).await,
                Language::Nats => nats::publish(&mut self.wire, &self.inbox, posts).await,
            }
        };
        timeout(limit, publishing)
            .await
            .map_err(|_| broker.too_slow(limit))?
    }
}

/// A connection that is read by lines and counted bytes.
struct Wire {
    broker: Broker,
    stream: BufReader<Stream>,
}

impl Wire {
    fn new(broker: Broker, stream: Stream) -> Wire {
        Wire {
            broker,
            stream: BufReader::new(stream),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), BrokerError> {
        let stream = self.stream.get_mut();
        let written = async {
            stream.write_all(bytes).await?;
            stream.flush().await
        };
        written.await.map_err(|why| self.broker.lost(why))
    }

    /// What comes before `end`, which is taken too.
    async fn read_until(&mut self, end: u8) -> Result<Vec<u8>, BrokerError> {
        let mut read = Vec::new();
        let mut bounded = (&mut self.stream).take(ANSWER_BYTES_MAX as u64);
        let taken = bounded.read_until(end, &mut read).await;
        taken.map_err(|why| self.broker.lost(why))?;
        match read.pop() {
            Some(last) if last == end => Ok(read),
            Some(_) if read.len() + 1 >= ANSWER_BYTES_MAX => {
                Err(self.broker.strange("an answer without an end"))
            }
            Some(_) | None => Err(self.broker.lost(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// A line without its end, CR LF or LF.
    async fn read_line(&mut self) -> Result<String, BrokerError> {
        let mut line = self.read_until(b'\n').await?;
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| self.broker.strange("a line that is not text"))
    }

    async fn read_exact(&mut self, bytes: usize) -> Result<Vec<u8>, BrokerError> {
        if bytes > ANSWER_BYTES_MAX {
            return Err(self.broker.strange("a long answer"));
        }
        let mut read = vec![0; bytes];
        let taken = self.stream.read_exact(&mut read).await;
        taken.map_err(|why| self.broker.lost(why))?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_says_is_one_line_without_our_password() {
        let login = Some(("penstock".to_owned(), "pass-7d1f".to_owned()));
        let broker = Broker::new("stomp://mq", login).expect("a broker");
        for why in [
            broker.refused("no \u{1b}[31m\nlogin with pass-7d1f"),
            broker.strange("a\r\u{9b}b pass-7d1f"),
        ] {
            let told = why.to_string();
            assert!(!told.chars().any(char::is_control), "{told:?}");
            assert!(!told.contains("7d1f"), "{told}");
        }
        let told = broker.refused("x".repeat(9000)).to_string();
        assert!(told.len() < WORDS_CHARS_MAX + 100);
    }

    #[test]
    fn a_broker_is_named_by_a_url_without_secrets() {
        let shown = |url: &str| Broker::new(url, None).map(|broker| broker.shown());
        assert_eq!(
            shown("stomp://mq.example.org").expect("a broker"),
            "mq.example.org port 61613"
        );
        assert_eq!(shown("stomp+tls://mq:1/").expect("a broker"), "mq port 1");
        assert_eq!(
            shown("nats+tls://[::1]").expect("a broker"),
            "::1 port 4222"
        );
        for url in [
            "mq:61613",
            "amqp://mq",
            "stomp://",
            "nats://mq/path",
            "stomp://me:secret@mq",
        ] {
            let why = shown(url).expect_err(url).to_string();
            assert!(!why.contains("secret"), "{why}");
        }
        let host = |url: &str| Broker::new(url, None).expect("a broker").virtual_host;
        assert_eq!(host("stomp://mq"), "mq");
        assert_eq!(host("stomp://mq/%2F"), "/");
        assert_eq!(host("stomp://mq/grid"), "grid");
    }
}
