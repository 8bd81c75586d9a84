//! The loop that fills a file from a socket: the network fills one buffer while the buffer before it is
//! checksummed and written.

use crate::clock::microseconds;
use crate::incoming::{Incoming, Landed};
use crate::mover::Mover;
use crate::write_error::WriteError;
use penstock_model::Checksum;
use penstock_protocol::http1::client::{self, ClientError};
use penstock_protocol::http1::server::{BodyError, Connection};
use std::future::Future;
use std::time::{Duration, Instant};

/// Where bytes come from.
pub(crate) trait ByteSource: Send {
    /// Why there are no more.
    type Error: Send;

    /// Some bytes into a buffer that is not empty; 0 at the end. Bounds its waiting itself.
    fn read_some(
        &mut self,
        buffer: &mut [u8],
    ) -> impl Future<Output = Result<usize, Self::Error>> + Send;
}

impl ByteSource for Connection {
    type Error = BodyError;

    fn read_some(
        &mut self,
        buffer: &mut [u8],
    ) -> impl Future<Output = Result<usize, BodyError>> + Send {
        self.read_body(buffer)
    }
}

impl ByteSource for client::Incoming {
    type Error = ClientError;

    fn read_some(
        &mut self,
        buffer: &mut [u8],
    ) -> impl Future<Output = Result<usize, ClientError>> + Send {
        self.read(buffer)
    }
}

/// Why a file did not arrive.
pub(crate) enum ReceiveError<E> {
    /// It could not be written.
    Write(WriteError),
    /// Its bytes did not come.
    Source(E),
}

impl<E> From<WriteError> for ReceiveError<E> {
    fn from(error: WriteError) -> Self {
        ReceiveError::Write(error)
    }
}

/// Receives a whole file and makes it visible. A disk that takes longer than `stall` for one buffer ends
/// it; the slot is free then, even while the kernel still holds the write.
pub(crate) async fn receive<S: ByteSource>(
    source: &mut S,
    mut incoming: Incoming,
    mover: &mut Mover,
    stall: Duration,
    expected: Vec<Checksum>,
) -> Result<Landed, ReceiveError<S::Error>> {
    let mut ended = false;
    while !ended {
        let mut buffer = incoming.buffer();
        let mut filled = 0;
        while filled < buffer.len() {
            let started = Instant::now();
            let read = source.read_some(&mut buffer[filled..]).await;
            mover.clocks.network_us += microseconds(started.elapsed());
            match read.map_err(ReceiveError::Source)? {
                0 => {
                    ended = true;
                    break;
                }
                count => {
                    filled += count;
                    mover.moved(count as u64);
                }
            }
        }
        if filled > 0 {
            let pool = incoming.pool().name.clone();
            tokio::time::timeout(stall, incoming.write(buffer, filled))
                .await
                .map_err(|_| WriteError::DiskStalled { pool, after: stall })??;
        }
    }
    let landed = incoming.finish(expected).await?;
    mover.clocks.write_us += landed.write_us;
    mover.clocks.checksum_us += landed.checksum_us;
    mover.clocks.commit_us += landed.commit_us;
    Ok(landed)
}
