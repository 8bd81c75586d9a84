//! The loop that fills a file from a socket: the network fills one buffer while the buffer before it is
//! checksummed and written.

use crate::clock::microseconds;
use crate::mover::{Mover, MoverHandle};
use crate::pool_messages::{FinishWrite, StoredFile};
use crate::pool_write::PoolWrite;
use crate::write_error::WriteError;
use penstock_decide::admission::PreemptionReason;
use penstock_model::Checksum;
use penstock_protocol::http1::client::{self, ClientError};
use penstock_protocol::http1::server::{BodyError, Connection};
use penstock_protocol::pace::{Pace, PaceLimit};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

/// The next bytes of a file.
pub(crate) struct Block {
    pub buffer: Vec<u8>,
    /// How many of the buffer's bytes they are, from its beginning.
    pub filled: usize,
    /// Nothing comes after them.
    pub last: bool,
}

/// Where bytes come from.
pub(crate) trait ByteSource: Send {
    /// Why there are no more.
    type Error: Send;

    /// The next bytes, in order, in this buffer or another of its size. Bounds its waiting itself, and counts what
    /// passes.
    fn next_block(
        &mut self,
        buffer: Vec<u8>,
        mover: &MoverHandle,
    ) -> impl Future<Output = Result<Block, Self::Error>> + Send;
}

impl ByteSource for Connection {
    type Error = BodyError;

    async fn next_block(
        &mut self,
        mut buffer: Vec<u8>,
        mover: &MoverHandle,
    ) -> Result<Block, BodyError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_body(&mut buffer[filled..]).await? {
                0 => break,
                count => {
                    filled += count;
                    mover.count(count as u64);
                }
            }
        }
        Ok(Block::of(buffer, filled))
    }
}

impl ByteSource for client::ClientResponse {
    type Error = ClientError;

    async fn next_block(
        &mut self,
        mut buffer: Vec<u8>,
        mover: &MoverHandle,
    ) -> Result<Block, ClientError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]).await? {
                0 => break,
                count => {
                    filled += count;
                    mover.count(count as u64);
                }
            }
        }
        Ok(Block::of(buffer, filled))
    }
}

impl Block {
    /// A buffer that could not be filled is the last one.
    fn of(buffer: Vec<u8>, filled: usize) -> Block {
        let last = filled < buffer.len();
        Block {
            buffer,
            filled,
            last,
        }
    }
}

/// Why a file did not arrive.
pub(crate) enum ReceiveError<E> {
    /// It could not be written.
    Write(WriteError),
    /// Its bytes did not come.
    Source(E),
    /// They came too slowly.
    Slow(io::Error),
    /// Its mover ended for somebody else.
    Preempted(PreemptionReason),
}

impl<E: fmt::Display> ReceiveError<E> {
    /// The same, whatever kind of source it was.
    pub(crate) fn into_text(self) -> ReceiveError<String> {
        match self {
            ReceiveError::Write(error) => ReceiveError::Write(error),
            ReceiveError::Source(why) => ReceiveError::Source(why.to_string()),
            ReceiveError::Slow(why) => ReceiveError::Slow(why),
            ReceiveError::Preempted(why) => ReceiveError::Preempted(why),
        }
    }
}

/// How long a file may take on its way.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// The longest that the disk may take for one buffer.
    pub stall: Duration,
    /// The slowest that a source may be which does not see to that itself.
    pub pace: PaceLimit,
}

impl<E> From<WriteError> for ReceiveError<E> {
    fn from(error: WriteError) -> Self {
        ReceiveError::Write(error)
    }
}

/// Receives a whole file and makes it visible. A disk that takes too long for one buffer ends it; the slot is free
/// then, even while the kernel still holds the write. A mover ends for others only while its bytes come: later it could
/// not be told whether the file has landed.
pub(crate) async fn receive<S: ByteSource>(
    source: &mut S,
    mut file: PoolWrite,
    mover: &mut Mover,
    patience: Patience,
    expected: Vec<Checksum>,
) -> Result<StoredFile, ReceiveError<S::Error>> {
    let view = mover.view();
    let Patience { stall, pace } = patience;
    let mut pace = Pace::new(pace);
    let mut ended = false;
    while !ended {
        let started = Instant::now();
        let block = at_pace(source.next_block(file.buffer(), &view), &view, &mut pace);
        let block = tokio::select! {
            biased;
            block = block => block,
            why = view.preempted() => Err(ReceiveError::Preempted(why)),
        };
        mover.clocks.network_us += microseconds(started.elapsed());
        let block = block?;
        ended = block.last;
        if ended {
            mover.pass_last_byte();
        }
        if block.filled > 0 {
            file.append(block.buffer, block.filled, stall).await?;
        }
    }
    let stored = file.finish(FinishWrite { expected }).await?;
    mover.clocks.write_us += stored.write_us;
    mover.clocks.checksum_us += stored.checksum_us;
    mover.clocks.commit_us += stored.commit_us;
    Ok(stored)
}

/// Waits for the next bytes, and judges how fast they come.
async fn at_pace<E>(
    next: impl Future<Output = Result<Block, E>>,
    view: &MoverHandle,
    pace: &mut Pace,
) -> Result<Block, ReceiveError<E>> {
    let mut next = pin!(next);
    loop {
        let (begun, before) = (Instant::now(), view.moved().0);
        let come = tokio::time::timeout(pace.until_judged(), &mut next).await;
        let moved = view.moved().0 - before;
        pace.step(begun.elapsed(), moved)
            .map_err(ReceiveError::Slow)?;
        if let Ok(block) = come {
            return block.map_err(ReceiveError::Source);
        }
    }
}
