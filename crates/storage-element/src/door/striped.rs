//! A pull over several connections: each fetches one part of the file after the other, and the parts are handed on
//! in order, so that the checksum stays a stream and the disk is written from front to back.
//!
//! As many parts are out as there are connections, which bounds the memory. A connection that stands still or breaks
//! is replaced and only what is missing of its part is asked for again; one that the source does not serve is given
//! up, as long as another is left.

use super::handler_context::Door;
use super::pull_source::{PartsPlan, Version, range_header};
use super::remote::{refusal, send_following};
use crate::mover::MoverHandle;
use crate::pool_write::BUFFER_BYTES;
use crate::receive::{Block, ByteSource};
use crate::stream_memory::MemoryShare;
use http::StatusCode;
use http::header::RANGE;
use parking_lot::{Mutex, MutexGuard};
use penstock_decide::streams::Streams;
use penstock_model::{StreamUse, StreamsReason, TcpSummary, TimeSpan};
use penstock_protocol::http1::client::{ClientRequest, ClientResponse};
use penstock_protocol::ranges::content_range;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

/// How often one part may be asked for again.
const TRIES_MAX: u32 = 5;
/// How often parts of one file may be asked for again, all together.
const AGAIN_MAX: u64 = 200;
/// Before a source that refuses its only connection is asked again; doubled each time.
const PAUSE: Duration = Duration::from_millis(250);

/// Bytes that have arrived: a buffer, and how much of it.
#[derive(Default)]
struct Chunk {
    buffer: Vec<u8>,
    filled: usize,
}

/// The file as it comes in, in order. Dropping it closes all connections.
pub(super) struct StripedBody {
    parts: Arc<PartFetches>,
    workers: JoinSet<Result<(), String>>,
    /// The parts that are out, in the order of the file, with where they end.
    order: VecDeque<(u64, mpsc::Receiver<Chunk>)>,
    streams: Streams,
    size: u64,
    /// Where the next part begins.
    next: u64,
    /// Bytes handed on.
    taken: u64,
    _memory: MemoryShare,
}

/// What the connections share.
struct PartFetches {
    door: Door,
    request: ClientRequest,
    version: Version,
    size: u64,
    view: MoverHandle,
    /// How long a connection may give nothing before another takes its part.
    patience: Duration,
    /// The same for the only connection that is left.
    patience_alone: Duration,
    board: Mutex<PartBoard>,
    /// A part has been put on the board.
    news: Notify,
}

#[derive(Default)]
struct PartBoard {
    /// Parts that nobody fetches, by where they begin: the first is the most urgent.
    todo: BTreeMap<u64, FilePart>,
    spare: Vec<Vec<u8>>,
    /// Connections that have not been given up.
    workers: u32,
    given_up: bool,
    again: u64,
    /// The connections that have carried bytes, with what the kernel said of the parts that they fetched.
    carried: BTreeMap<u32, Option<TcpSummary>>,
}

/// What is missing of a part of the file.
struct FilePart {
    at: u64,
    end: u64,
    /// A buffer that is not full yet; its bytes come before `at`.
    held: Option<Chunk>,
    out: mpsc::Sender<Chunk>,
    tries: u32,
}

/// Why a part did not come, by what is to be done.
enum PartFailure {
    /// The source did not begin to answer, or refused.
    NotServed(String),
    /// It began and did not go on.
    Broke(String),
    /// It has another file by now.
    Changed(String),
}

/// What a connection does after trouble.
enum RetryStep {
    Continue(Duration),
    GiveUp,
}

impl StripedBody {
    /// Goes on from the answer that holds the first part.
    pub(super) fn start(
        door: &Door,
        plan: PartsPlan,
        first: ClientResponse,
        view: MoverHandle,
    ) -> StripedBody {
        let limits = &door.storage.settings().limits;
        let parts = Arc::new(PartFetches {
            door: door.clone(),
            request: plan.request,
            version: plan.version,
            size: plan.size,
            view,
            patience: limits.stall_timeout / 4,
            patience_alone: limits.first_byte_timeout,
            board: Mutex::new(PartBoard {
                workers: plan.streams.count,
                ..PartBoard::default()
            }),
            news: Notify::new(),
        });
        let mut striped = StripedBody {
            parts,
            workers: JoinSet::new(),
            order: VecDeque::new(),
            streams: plan.streams,
            size: plan.size,
            next: 0,
            taken: 0,
            _memory: plan.memory,
        };
        let part = striped.cut(plan.first_end);
        let mut begun = Some((part, first));
        for index in 0..plan.streams.count {
            let parts = Arc::clone(&striped.parts);
            striped.workers.spawn(parts.work(index, begun.take()));
        }
        striped
    }

    /// How many connections there were. The reasons are those known before.
    pub(super) fn stream_use(&self, asked: Option<u32>, because: Vec<StreamsReason>) -> StreamUse {
        let board = self.parts.board();
        let mut because = because;
        if board.given_up {
            because.push(StreamsReason::SourceBusy);
        }
        StreamUse {
            asked,
            used: u32::try_from(board.carried.len()).unwrap_or(u32::MAX),
            buffer: self.streams.memory(),
            ranges_again: board.again,
            because,
            ..StreamUse::default()
        }
    }

    /// The sockets, as one.
    pub(super) fn tcp_info(&self) -> Option<TcpSummary> {
        let board = self.parts.board();
        let told = board.carried.values().copied().flatten();
        told.reduce(TcpSummary::plus)
    }

    /// The next part, until before `end`, and its place in the order.
    fn cut(&mut self, end: u64) -> FilePart {
        let blocks = (end - self.next).div_ceil(BUFFER_BYTES as u64) + 1;
        // Roomy enough for all of the part, so that nobody who fetches has to wait for those before.
        let (out, blocks) = mpsc::channel(usize::try_from(blocks).unwrap_or(1));
        self.order.push_back((end, blocks));
        let part = FilePart {
            at: self.next,
            end,
            held: None,
            out,
            tries: 0,
        };
        self.next = end;
        part
    }

    /// Keeps as many parts out as there are connections.
    fn hand_out(&mut self) {
        while self.next < self.size && self.order.len() < self.streams.count as usize {
            let end = self
                .size
                .min(self.next.saturating_add(self.streams.range.0.max(1)));
            let part = self.cut(end);
            self.parts.put(part);
        }
    }

    fn next_in_order(&mut self, chunk: Chunk) -> Block {
        let Chunk { buffer, filled } = chunk;
        self.taken += filled as u64;
        Block {
            buffer,
            filled,
            last: self.taken == self.size,
        }
    }

    /// A connection has ended, well or not.
    async fn ended(workers: &mut JoinSet<Result<(), String>>) -> Result<(), String> {
        match workers.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(why)) => Err(format!(
                "a connection to the source ended unexpectedly: {why}"
            )),
            None => Err("no connection to the source is left".to_owned()),
        }
    }
}

impl ByteSource for StripedBody {
    /// One line for people.
    type Error = String;

    async fn next_block(&mut self, buffer: Vec<u8>, _: &MoverHandle) -> Result<Block, String> {
        self.parts.keep(buffer);
        loop {
            self.hand_out();
            let Some((end, blocks)) = self.order.front_mut() else {
                return Ok(self.next_in_order(Chunk::default()));
            };
            let arrived = tokio::select! {
                biased;
                arrived = blocks.recv() => arrived,
                ended = Self::ended(&mut self.workers) => {
                    ended?;
                    continue;
                }
            };
            match arrived {
                Some(chunk) => return Ok(self.next_in_order(chunk)),
                None if self.taken == *end => {
                    self.order.pop_front();
                }
                // Whoever fetched it has failed and is about to say why.
                None => Self::ended(&mut self.workers).await?,
            }
        }
    }
}

impl PartFetches {
    fn board(&self) -> MutexGuard<'_, PartBoard> {
        self.board.lock()
    }

    fn put(&self, part: FilePart) {
        self.board().todo.insert(part.at, part);
        self.news.notify_one();
    }

    async fn take(&self) -> FilePart {
        loop {
            if let Some(part) = self.first() {
                return part;
            }
            self.news.notified().await;
        }
    }

    fn first(&self) -> Option<FilePart> {
        let mut board = self.board();
        let (_, part) = board.todo.pop_first()?;
        // One word of news may stand for several parts.
        if !board.todo.is_empty() {
            self.news.notify_one();
        }
        Some(part)
    }

    /// Buffers are used again: fresh memory costs as much as the copying.
    fn keep(&self, buffer: Vec<u8>) {
        if buffer.len() == BUFFER_BYTES {
            self.board().spare.push(buffer);
        }
    }

    fn buffer(&self) -> Vec<u8> {
        let spare = self.board().spare.pop();
        spare.unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    /// One connection: fetches parts until it is stopped or given up. An error ends the copy.
    async fn work(
        self: Arc<Self>,
        index: u32,
        begun: Option<(FilePart, ClientResponse)>,
    ) -> Result<(), String> {
        let mut begun = begun;
        loop {
            let (mut part, response) = match begun.take() {
                Some((part, response)) => (part, Some(response)),
                None => (self.take().await, None),
            };
            let Err(trouble) = self.fetch(index, &mut part, response).await else {
                continue;
            };
            match self.after(trouble, part)? {
                RetryStep::Continue(pause) => tokio::time::sleep(pause).await,
                RetryStep::GiveUp => return Ok(()),
            }
        }
    }

    async fn fetch(
        &self,
        index: u32,
        part: &mut FilePart,
        begun: Option<ClientResponse>,
    ) -> Result<(), PartFailure> {
        let mut response = match begun {
            Some(response) => response,
            None => self.ask(part).await?,
        };
        response.set_stall_timeout(self.patience);
        let before = part.at;
        let result = self.read(part, &mut response).await;
        if part.at > before {
            let tcp = response.tcp_info();
            let mut board = self.board();
            let told = board.carried.entry(index).or_default();
            *told = told.map_or(tcp, |told| tcp.map(|tcp| told.then(tcp)).or(Some(told)));
        }
        result
    }

    /// Asks for what is missing of the part.
    async fn ask(&self, part: &FilePart) -> Result<ClientResponse, PartFailure> {
        let mut request = self.request.clone();
        let range = range_header(part.at, part.end);
        request.headers.insert(RANGE, range);
        self.version.demand(&mut request.headers);
        let patience = match self.board().workers {
            0 | 1 => self.patience_alone,
            _ => self.patience,
        };
        let sent = tokio::time::timeout(patience, send_following(&self.door, request)).await;
        let sent = sent.map_err(|_| {
            PartFailure::NotServed(format!(
                "the source did not answer within {}",
                TimeSpan(patience)
            ))
        })?;
        let mut response = sent.map_err(|why| PartFailure::NotServed(why.into_text()))?;
        let changed = |what: String| {
            PartFailure::Changed(format!(
                "the source's file changed while it was copied: {what}"
            ))
        };
        match response.status {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::OK
            | StatusCode::PRECONDITION_FAILED
            | StatusCode::RANGE_NOT_SATISFIABLE => {
                return Err(changed(
                    refusal(&self.door, &mut response).await.into_text(),
                ));
            }
            _ => {
                return Err(PartFailure::NotServed(
                    refusal(&self.door, &mut response).await.into_text(),
                ));
            }
        }
        if self.version.differs(&response.headers) {
            return Err(changed("it has another ETag or date".to_owned()));
        }
        match content_range(&response.headers) {
            Some(range) if range.size.is_some_and(|size| size != self.size) => {
                Err(changed("it has another size".to_owned()))
            }
            Some(range) if range.first == part.at && range.end <= part.end => Ok(response),
            Some(_) | None => Err(PartFailure::Changed(
                "the source sent a different part of its file than requested".to_owned(),
            )),
        }
    }

    async fn read(
        &self,
        part: &mut FilePart,
        response: &mut ClientResponse,
    ) -> Result<(), PartFailure> {
        while part.at < part.end {
            let mut chunk = part.held.take().unwrap_or_else(|| Chunk {
                buffer: self.buffer(),
                filled: 0,
            });
            let missing = usize::try_from(part.end - part.at).unwrap_or(usize::MAX);
            let until = chunk.buffer.len().min(chunk.filled.saturating_add(missing));
            let count = match response.read(&mut chunk.buffer[chunk.filled..until]).await {
                Ok(0) => {
                    part.held = Some(chunk);
                    return Err(PartFailure::Broke(format!(
                        "the source ended a part of its file at byte {}, before {}",
                        part.at, part.end
                    )));
                }
                Ok(count) => count,
                Err(why) => {
                    part.held = Some(chunk);
                    return Err(PartFailure::Broke(why.to_string()));
                }
            };
            chunk.filled += count;
            part.at += count as u64;
            self.view.count(count as u64);
            if chunk.filled < chunk.buffer.len() && part.at < part.end {
                part.held = Some(chunk);
            } else if part.out.send(chunk).await.is_err() {
                // Nobody wants the file any more.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Puts the rest of the part back for whoever is free, unless the copy is to end.
    fn after(&self, trouble: PartFailure, mut part: FilePart) -> Result<RetryStep, String> {
        let (why, served) = match trouble {
            PartFailure::Changed(why) => return Err(why),
            PartFailure::Broke(why) => (why, true),
            PartFailure::NotServed(why) => (why, false),
        };
        let next = {
            let mut board = self.board();
            if !served && board.workers > 1 {
                board.workers -= 1;
                board.given_up = true;
                tracing::debug!(
                    why,
                    connections = board.workers,
                    "a further connection is given up"
                );
                RetryStep::GiveUp
            } else {
                part.tries += 1;
                board.again += 1;
                if part.tries > TRIES_MAX || board.again > AGAIN_MAX {
                    return Err(format!("{why}; it was tried {} times", part.tries));
                }
                tracing::debug!(why, at = part.at, "a part of a file is asked for again");
                RetryStep::Continue(match served {
                    true => Duration::ZERO,
                    false => PAUSE * 2u32.pow(part.tries.min(TRIES_MAX) - 1),
                })
            }
        };
        self.put(part);
        Ok(next)
    }
}
