//! Reading a body to its end and not a byte further (RFC 9112 §6, §7).

use super::wire::{BUFFER_BYTES, Wire};
use penstock_model::TimeSpan;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Digits of a chunk's size: 16 hex digits fill 64 bits.
const CHUNK_SIZE_DIGITS_MAX: usize = 16;
/// Bytes of a line with a chunk's size and its extensions (which are ignored).
const CHUNK_LINE_BYTES_MAX: usize = 1024;
/// Bytes of all trailers (which are discarded).
const TRAILER_BYTES_MAX: usize = 8 << 10;

/// How a request's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    Empty,
    /// After this many bytes.
    Fixed(u64),
    /// With the last chunk.
    Chunked,
}

/// Why a body cannot be read to its end. The connection is of no use afterwards.
#[derive(Debug, Error)]
pub enum BodyError {
    /// No byte came for too long.
    #[error("no byte of the body came for {}", TimeSpan(*after))]
    Stalled {
        /// The bound.
        after: Duration,
    },
    /// Bytes came, but too few for too long.
    #[error("the body comes too slowly: {0}")]
    TooSlow(io::Error),
    /// The connection ended before the body did.
    #[error("the connection ended before the body: {missing}")]
    TooShort {
        /// What did not come, for people.
        missing: String,
    },
    /// The chunks make no sense.
    #[error("the body is malformed: {0}")]
    Malformed(&'static str),
    /// The connection failed.
    #[error("reading the body failed: {0}")]
    Io(#[from] io::Error),
}

/// Where the reader of a body stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Done,
    Fixed { remaining: u64 },
    ChunkSize,
    ChunkData { remaining: u64 },
    ChunkEnd,
    Trailers { bytes: usize },
    UntilClose,
}

impl Body {
    pub(super) fn fixed(length: u64) -> Body {
        match length {
            0 => Body::Done,
            remaining => Body::Fixed { remaining },
        }
    }

    pub(super) fn is_done(self) -> bool {
        self == Body::Done
    }

    /// Bytes to come; `None` when only reading on can tell.
    pub(super) fn remaining(self) -> Option<u64> {
        match self {
            Body::Done => Some(0),
            Body::Fixed { remaining } => Some(remaining),
            Body::ChunkSize
            | Body::ChunkData { .. }
            | Body::ChunkEnd
            | Body::Trailers { .. }
            | Body::UntilClose => None,
        }
    }

    /// Reads some bytes into `out`, which must not be empty; 0 at the end. Loses nothing when dropped.
    pub(super) async fn read(
        &mut self,
        wire: &mut Wire,
        out: &mut [u8],
        stall_timeout: Duration,
    ) -> Result<usize, BodyError> {
        loop {
            match *self {
                Body::Done => return Ok(0),
                Body::Fixed { remaining } => {
                    let count = read_at_most(wire, out, remaining, stall_timeout).await?;
                    *self = Body::fixed(remaining - count as u64);
                    return Ok(count);
                }
                Body::ChunkData { remaining } => {
                    if remaining < BUFFER_BYTES as u64 && wire.unread().is_empty() {
                        // The next chunk's size is close: one read for both.
                        fill(wire, stall_timeout, "the rest of a chunk").await?;
                    }
                    let count = read_at_most(wire, out, remaining, stall_timeout).await?;
                    *self = match remaining - count as u64 {
                        0 => Body::ChunkEnd,
                        remaining => Body::ChunkData { remaining },
                    };
                    return Ok(count);
                }
                Body::UntilClose => {
                    let count = wire
                        .read(out, stall_timeout)
                        .await
                        .map_err(|why| io_error(why, stall_timeout))?;
                    if count == 0 {
                        *self = Body::Done;
                    }
                    return Ok(count);
                }
                Body::ChunkSize | Body::ChunkEnd | Body::Trailers { .. } => {
                    let line = read_line(wire, stall_timeout).await?;
                    *self = self.after_line(&wire.unread()[..line])?;
                    wire.consume(line + 2);
                }
            }
        }
    }

    /// What follows a line of the chunked coding, given without its CRLF.
    fn after_line(self, line: &[u8]) -> Result<Body, BodyError> {
        match self {
            Body::ChunkSize => Ok(match chunk_size(line)? {
                0 => Body::Trailers { bytes: 0 },
                remaining => Body::ChunkData { remaining },
            }),
            Body::ChunkEnd if line.is_empty() => Ok(Body::ChunkSize),
            Body::ChunkEnd => Err(BodyError::Malformed("a chunk is longer than its size")),
            Body::Trailers { .. } if line.is_empty() => Ok(Body::Done),
            Body::Trailers { bytes } if bytes + line.len() <= TRAILER_BYTES_MAX => {
                Ok(Body::Trailers {
                    bytes: bytes + line.len() + 2,
                })
            }
            Body::Trailers { .. } => Err(BodyError::Malformed("the trailers are too long")),
            Body::Done | Body::Fixed { .. } | Body::ChunkData { .. } | Body::UntilClose => Ok(self),
        }
    }
}

/// Makes the wire's unread bytes begin with a whole line; gives back its length without CRLF.
async fn read_line(wire: &mut Wire, stall_timeout: Duration) -> Result<usize, BodyError> {
    loop {
        let unread = wire.unread();
        match unread.iter().position(|&byte| byte == b'\n') {
            Some(end) if end > CHUNK_LINE_BYTES_MAX => break,
            Some(end)
                if end > 0 && unread[end - 1] == b'\r' && !unread[..end - 1].contains(&b'\r') =>
            {
                return Ok(end - 1);
            }
            Some(_) => {
                return Err(BodyError::Malformed(
                    "a line of the chunked coding does not end with CRLF",
                ));
            }
            None if unread.len() > CHUNK_LINE_BYTES_MAX => break,
            None => fill(wire, stall_timeout, "the last chunk").await?,
        }
    }
    Err(BodyError::Malformed(
        "a line of the chunked coding is too long",
    ))
}

async fn fill(wire: &mut Wire, stall_timeout: Duration, missing: &str) -> Result<(), BodyError> {
    match tokio::time::timeout(stall_timeout, wire.fill()).await {
        Ok(Ok(count)) if count > 0 => Ok(()),
        Ok(Err(why)) if why.kind() != io::ErrorKind::UnexpectedEof => Err(BodyError::Io(why)),
        Ok(_) => Err(BodyError::TooShort {
            missing: format!("{missing} is missing"),
        }),
        Err(_) => Err(BodyError::Stalled {
            after: stall_timeout,
        }),
    }
}

async fn read_at_most(
    wire: &mut Wire,
    out: &mut [u8],
    remaining: u64,
    stall_timeout: Duration,
) -> Result<usize, BodyError> {
    let limit = usize::try_from(remaining)
        .unwrap_or(usize::MAX)
        .min(out.len());
    match wire.read(&mut out[..limit], stall_timeout).await {
        Ok(count) if count > 0 || limit == 0 => Ok(count),
        Err(why) if why.kind() != io::ErrorKind::UnexpectedEof => Err(io_error(why, stall_timeout)),
        Ok(_) | Err(_) => Err(BodyError::TooShort {
            missing: format!("{remaining} bytes are missing"),
        }),
    }
}

fn io_error(why: io::Error, stall_timeout: Duration) -> BodyError {
    match why.kind() {
        io::ErrorKind::TimedOut => BodyError::Stalled {
            after: stall_timeout,
        },
        _ => BodyError::Io(why),
    }
}

/// RFC 9112 §7.1: hex digits, then nothing or `;` and extensions. White space and signs are refused.
fn chunk_size(line: &[u8]) -> Result<u64, BodyError> {
    const NOT_A_SIZE: BodyError =
        BodyError::Malformed("a chunk's size is not a hex number of at most 64 bits");
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
    if digits.is_empty()
        || digits.len() > CHUNK_SIZE_DIGITS_MAX
        || line.iter().any(u8::is_ascii_control)
    {
        return Err(NOT_A_SIZE);
    }
    digits.iter().try_fold(0u64, |size, &digit| {
        let value = char::from(digit).to_digit(16).ok_or(NOT_A_SIZE)?;
        Ok(size << 4 | u64::from(value))
    })
}
