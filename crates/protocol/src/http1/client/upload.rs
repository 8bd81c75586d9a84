//! A request's body on its way to the server.

use super::exchange::{Exchange, Interim, LAST_WORDS_TIMEOUT};
use super::{ClientError, ClientResponse};
use crate::stream::{FileSent, Patience, TcpProbe, is_of_file};
use http::StatusCode;
use penstock_model::TcpSummary;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// Between pieces of this size an upload looks for an early answer.
const PIECE_BYTES: u64 = 8 << 20;

/// How an upload begins.
pub enum UploadStart {
    /// The server wants the body (or did not say).
    Ready(Upload),
    /// The server answered without wanting the body: an error, or a redirect.
    Answered(ClientResponse),
}

/// A request whose body is being sent. Dropped before [`Upload::finish`], the connection closes, and the
/// server sees a body that was cut off.
pub struct Upload {
    exchange: Exchange,
    length: Option<u64>,
    sent: u64,
}

impl Upload {
    /// Takes over an exchange whose head is out.
    pub(super) fn new(exchange: Exchange, length: Option<u64>) -> Upload {
        Upload {
            exchange,
            length,
            sent: 0,
        }
    }

    /// Bytes of the body sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// State of the TCP connection. Its counters run from the begin of this request.
    pub fn tcp_info(&self) -> Option<TcpSummary> {
        self.exchange.wire.tcp_info()
    }

    /// A view of the TCP connection for another task. Errors: no descriptor left.
    pub fn tcp_probe(&mut self) -> io::Result<TcpProbe> {
        self.exchange.probes.probe(&self.exchange.wire.stream)
    }

    /// The server's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.exchange.wire.stream.peer_addr().ok()
    }

    /// Sends a piece of the body. After an error the upload is of no use. Errors: `EarlyAnswer` when the
    /// server answered instead of reading on, `TooLong` beyond the announced length.
    pub async fn write_all(&mut self, piece: &[u8]) -> Result<(), ClientError> {
        self.claim(piece.len() as u64)?;
        self.look_for_answer().await?;
        if piece.is_empty() {
            return Ok(());
        }
        let stall = self.exchange.stall_timeout;
        let written = match self.length {
            Some(_) => self.exchange.wire.write_all(piece, stall).await,
            None => {
                let size = format!("{:x}\r\n", piece.len());
                self.exchange
                    .wire
                    .write_parts(&[size.as_bytes(), piece, b"\r\n"], stall)
                    .await
            }
        };
        match written {
            Ok(()) => {
                self.sent += piece.len() as u64;
                Ok(())
            }
            Err(why) => Err(self.exchange.write_failed(why).await),
        }
    }

    /// Sends a range of a file, by the kernel where there is no TLS. Errors as [`Upload::write_all`], and
    /// `File`.
    pub async fn send_file(
        &mut self,
        file: &File,
        range: Range<u64>,
    ) -> Result<FileSent, ClientError> {
        let mut total = FileSent::default();
        let mut position = range.start;
        self.claim(range.end.saturating_sub(range.start))?;
        while position < range.end {
            self.look_for_answer().await?;
            let piece = (range.end - position).min(PIECE_BYTES);
            let stall = self.exchange.stall_timeout;
            let wire = &mut self.exchange.wire;
            if self.length.is_none() {
                let size = format!("{piece:x}\r\n");
                if let Err(why) = wire.write_all(size.as_bytes(), stall).await {
                    return Err(self.exchange.write_failed(why).await);
                }
            }
            let patience = Patience {
                stall_timeout: stall,
                pace: &mut wire.pace,
            };
            let mut sending = wire
                .stream
                .send_file(file, position, piece, patience, &|_| ())
                .await;
            if self.length.is_none() && sending.is_ok() {
                sending = wire.write_all(b"\r\n", stall).await.and(sending);
            }
            match sending {
                Ok(sent) => {
                    total.bytes += sent.bytes;
                    total.read_time += sent.read_time;
                    total.network_time += sent.network_time;
                }
                Err(why) if is_of_file(&why) => {
                    return Err(ClientError::File {
                        url: self.exchange.shown(),
                        why,
                    });
                }
                Err(why) => return Err(self.exchange.write_failed(why).await),
            }
            position += piece;
            self.sent += piece;
        }
        Ok(total)
    }

    /// Ends the body and waits for the response. Errors: `TooShort` when fewer bytes were sent than
    /// announced.
    pub async fn finish(mut self) -> Result<ClientResponse, ClientError> {
        if let Some(expected) = self.length.filter(|length| *length != self.sent) {
            return Err(ClientError::TooShort {
                url: self.exchange.shown(),
                expected,
                got: self.sent,
            });
        }
        let stall = self.exchange.stall_timeout;
        let mut ended = Ok(());
        if self.length.is_none() {
            ended = self.exchange.wire.write_all(b"0\r\n\r\n", stall).await;
        }
        if ended.is_ok() {
            ended = self.exchange.wire.stream.flush().await;
        }
        match ended {
            Ok(()) => self.exchange.into_response().await,
            Err(why) => Err(self.exchange.write_failed(why).await),
        }
    }

    /// Refuses bytes beyond the announced length, which the server would take for the next request.
    fn claim(&self, count: u64) -> Result<(), ClientError> {
        match self.length {
            Some(limit) if self.sent + count > limit => Err(ClientError::TooLong {
                url: self.exchange.shown(),
                limit,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// A server that answers in the middle of a body does not want the rest. Does not wait.
    async fn look_for_answer(&mut self) -> Result<(), ClientError> {
        if self.exchange.wire.unread().is_empty() && self.exchange.wire.try_fill().is_none() {
            return Ok(());
        }
        // An end of the stream without an answer shows itself in the next write.
        match timeout(
            LAST_WORDS_TIMEOUT,
            self.exchange.read_head(Interim::StopAtContinue),
        )
        .await
        {
            Ok(Ok(head)) if head.status == StatusCode::CONTINUE => Ok(()),
            Ok(Ok(head)) => Err(self.exchange.early_answer(head).await),
            Ok(Err(why)) => Err(why),
            Err(_) => Ok(()),
        }
    }
}
