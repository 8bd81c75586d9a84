//! The load generator: a number of clients, each with one request at a time on connections that are kept,
//! against one server. Every status, size and first block is checked; the same for every server.

use crate::error::BenchError;
use crate::process::{cpu_used, own_cpu_used};
use crate::servers::Target;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use penstock_protocol::http1::client::{ClientRequest, ClientResponse, UploadStart};
use penstock_protocol::tpc::{Item, Outcome, StreamParser};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use url::Url;

/// What every file is made of, over and over.
static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(make_content);
const CONTENT_BYTES: usize = 1 << 20;
/// A body up to this size is written in one go.
const WHOLE_BYTES_MAX: u64 = 1 << 20;
/// How much of the start of each body read is compared.
const COMPARED_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 256 << 10;
/// Bytes of an answer that is not a file.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What is done, over and over.
#[derive(Clone)]
pub enum Operation {
    /// Makes files `f0`, `f1`, … in a directory.
    Put {
        /// Ends with `/`.
        directory: Url,
        /// Of each file.
        bytes: u64,
    },
    /// Reads files, one after the other, from the first again after the last.
    Get {
        /// At least one.
        files: Arc<[Url]>,
        /// Of each file.
        bytes: u64,
    },
    /// Asks for the size of files, one after the other, from the first again after the last.
    Head {
        /// At least one.
        files: Arc<[Url]>,
        /// Of each file.
        bytes: u64,
    },
    /// Asks for the properties of files, one after the other, from the first again after the last.
    Propfind {
        /// At least one.
        files: Arc<[Url]>,
    },
    /// Lets the server fetch files from another one (HTTP-TPC pull), as `f0`, `f1`, … in a directory.
    Copy {
        /// At least one; used over and over.
        sources: Arc<[Url]>,
        /// What the source must be shown.
        source_authorization: Option<HeaderValue>,
        /// Ends with `/`.
        directory: Url,
        /// Of each file.
        bytes: u64,
    },
    /// Removes `f0`, `f1`, … from a directory.
    Delete {
        /// Ends with `/`.
        directory: Url,
    },
}

/// When a phase ends: after so many operations, or when no more may begin.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Operations in all.
    pub operations: u64,
    /// After this, those that run are waited for.
    pub time: Duration,
}

/// What a phase measured.
#[derive(Debug, Clone, Default)]
pub struct Phase {
    /// Operations that succeeded.
    pub done: u64,
    /// File bytes that they moved.
    pub bytes: u64,
    /// From the first request to the last answer.
    pub wall: Duration,
    /// Of all processes of the server.
    pub server_cpu: Duration,
    /// Of this process.
    pub client_cpu: Duration,
    /// Half of all operations took no longer.
    pub p50: Duration,
    /// 99 of 100 operations took no longer.
    pub p99: Duration,
    /// Operations that did not.
    pub failed: u64,
    /// The first reason.
    pub failure: Option<String>,
}

impl Phase {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.done as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// 10^6 bytes per second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.wall.as_secs_f64().max(1e-9)
    }

    /// Microseconds of server CPU per operation.
    pub fn server_microseconds(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / (self.done.max(1) as f64)
    }

    /// Seconds of server CPU per 10^9 bytes.
    pub fn server_seconds_per_gigabyte(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e9 / (self.bytes.max(1) as f64)
    }
}

struct Shared {
    target: Target,
    operation: Operation,
    next: AtomicU64,
    bound: Bound,
    started: Instant,
}

#[derive(Default)]
struct Worker {
    latencies_us: Vec<u32>,
    bytes: u64,
    failed: u64,
    failure: Option<String>,
}

/// Runs one phase. `measured` are the processes whose CPU time counts as the server's.
pub async fn run(
    target: &Target,
    operation: Operation,
    clients: usize,
    bound: Bound,
    measured: &[u32],
) -> Phase {
    LazyLock::force(&CONTENT);
    let server_before = cpu_used(measured);
    let client_before = own_cpu_used();
    let shared = Arc::new(Shared {
        target: target.clone(),
        operation,
        next: AtomicU64::new(0),
        bound,
        started: Instant::now(),
    });
    let mut workers = JoinSet::new();
    for _ in 0..clients {
        workers.spawn(work(Arc::clone(&shared)));
    }
    let results = workers.join_all().await;
    let mut phase = Phase {
        wall: shared.started.elapsed(),
        server_cpu: cpu_used(measured).saturating_sub(server_before),
        client_cpu: own_cpu_used().saturating_sub(client_before),
        ..Phase::default()
    };
    let mut latencies = Vec::new();
    for worker in results {
        phase.bytes += worker.bytes;
        phase.failed += worker.failed;
        phase.failure = phase.failure.or(worker.failure);
        latencies.extend(worker.latencies_us);
    }
    latencies.sort_unstable();
    phase.done = latencies.len() as u64;
    let at = |permille: usize| {
        let index = (latencies.len() * permille / 1000).min(latencies.len().saturating_sub(1));
        Duration::from_micros(latencies.get(index).copied().unwrap_or_default().into())
    };
    (phase.p50, phase.p99) = (at(500), at(990));
    phase
}

async fn work(shared: Arc<Shared>) -> Worker {
    let mut worker = Worker::default();
    let mut buffer = vec![0; READ_BYTES];
    while shared.started.elapsed() < shared.bound.time {
        let index = shared.next.fetch_add(1, Ordering::Relaxed);
        if index >= shared.bound.operations {
            break;
        }
        let started = Instant::now();
        match shared
            .operation
            .perform(&shared.target, index, &mut buffer)
            .await
        {
            Ok(bytes) => {
                let micros = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
                worker.latencies_us.push(micros);
                worker.bytes += bytes;
            }
            Err(why) => {
                worker.failed += 1;
                worker.failure.get_or_insert_with(|| why.to_string());
                // A server that fails at once must not make us spin.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    worker
}

impl Operation {
    async fn perform(
        &self,
        target: &Target,
        index: u64,
        buffer: &mut [u8],
    ) -> Result<u64, BenchError> {
        match self {
            Operation::Put { directory, bytes } => {
                put(target, numbered(directory, index), *bytes).await?;
                Ok(*bytes)
            }
            Operation::Get { files, bytes } => {
                let url = files[index as usize % files.len()].clone();
                get(target, url, *bytes, buffer).await?;
                Ok(*bytes)
            }
            Operation::Head { files, bytes } => {
                head(target, files[index as usize % files.len()].clone(), *bytes).await?;
                Ok(0)
            }
            Operation::Propfind { files } => {
                propfind(target, files[index as usize % files.len()].clone()).await?;
                Ok(0)
            }
            Operation::Copy {
                sources,
                source_authorization,
                directory,
                bytes,
            } => {
                let source = &sources[index as usize % sources.len()];
                let to = numbered(directory, index);
                copy(target, source, source_authorization.as_ref(), to).await?;
                Ok(*bytes)
            }
            Operation::Delete { directory } => {
                let answer = simple(target, Method::DELETE, numbered(directory, index)).await?;
                expect(answer, &[200, 202, 204]).await?;
                Ok(0)
            }
        }
    }
}

/// The file with a number in a directory.
pub fn numbered(directory: &Url, index: u64) -> Url {
    let mut url = directory.clone();
    url.set_path(&format!("{}f{index}", directory.path()));
    url
}

/// Makes a directory; one that exists is fine.
pub async fn make_directory(target: &Target, name: &str) -> Result<Url, BenchError> {
    let mut url = target.base.clone();
    url.set_path(&format!("{}{name}/", target.base.path()));
    let answer = simple(target, method(b"MKCOL"), url.clone()).await?;
    expect(answer, &[200, 201, 204, 405]).await?;
    Ok(url)
}

/// Removes a directory with all that is in it.
pub async fn remove_tree(target: &Target, directory: Url) -> Result<(), BenchError> {
    let answer = simple(target, Method::DELETE, directory).await?;
    expect(answer, &[200, 204, 404]).await
}

/// Opens as many connections as there will be clients, so that no phase measures handshakes. They are made
/// with a request for a file that is there, because some servers close a connection after an error.
pub async fn connect(target: &Target, clients: usize) -> Result<(), BenchError> {
    let mut probe = target.base.clone();
    probe.set_path(&format!("{}bench-probe", target.base.path()));
    put(target, probe.clone(), 1).await?;
    let mut waiting = JoinSet::new();
    for _ in 0..clients {
        let (target, probe) = (target.clone(), probe.clone());
        waiting.spawn(async move { get(&target, probe, 1, &mut [0; 16]).await });
    }
    waiting.join_all().await.into_iter().collect()
}

/// Makes one file.
pub async fn put(target: &Target, url: Url, bytes: u64) -> Result<(), BenchError> {
    let request = outgoing(target, Method::PUT, url);
    let answer = if bytes <= WHOLE_BYTES_MAX {
        target
            .client
            .send_bytes(request, &CONTENT[..bytes as usize])
            .await?
    } else {
        match target
            .client
            .start_upload(request, Some(bytes), false)
            .await?
        {
            UploadStart::Answered(answer) => answer,
            UploadStart::Ready(mut upload) => {
                while upload.sent() < bytes {
                    let piece = (bytes - upload.sent()).min(CONTENT_BYTES as u64) as usize;
                    upload.write_all(&CONTENT[..piece]).await?;
                }
                upload.finish().await?
            }
        }
    };
    expect(answer, &[200, 201, 204]).await
}

async fn get(target: &Target, url: Url, bytes: u64, buffer: &mut [u8]) -> Result<(), BenchError> {
    let shown = url.to_string();
    let mut answer = target
        .client
        .send_following(outgoing(target, Method::GET, url))
        .await?;
    if answer.status.as_u16() != 200 {
        return expect(answer, &[200]).await;
    }
    loop {
        let before = answer.got() as usize;
        let count = answer.read(buffer).await?;
        if count == 0 {
            break;
        }
        let expected = CONTENT[..COMPARED_BYTES].get(before..).unwrap_or_default();
        let compared = count.min(expected.len());
        if buffer[..compared] != expected[..compared] {
            return Err(BenchError::failed(format!(
                "{shown} has other content than was written"
            )));
        }
    }
    match answer.got() == bytes {
        true => Ok(()),
        false => {
            let got = answer.got();
            Err(BenchError::failed(format!(
                "{shown} has {got} bytes instead of {bytes}"
            )))
        }
    }
}

async fn head(target: &Target, url: Url, bytes: u64) -> Result<(), BenchError> {
    let shown = url.to_string();
    let answer = simple(target, Method::HEAD, url).await?;
    let told = answer.headers.get(CONTENT_LENGTH).cloned();
    expect(answer, &[200]).await?;
    match told.as_ref().and_then(|value| value.to_str().ok()) {
        Some(length) if length == bytes.to_string() => Ok(()),
        told => Err(BenchError::failed(format!(
            "{shown} has {told:?} bytes instead of {bytes}"
        ))),
    }
}

/// Asks for all properties of one file: an answer that does not name it is refused.
async fn propfind(target: &Target, url: Url) -> Result<(), BenchError> {
    let path = url.path().to_owned();
    let mut request = outgoing(target, method(b"PROPFIND"), url);
    let depth = HeaderName::from_static("depth");
    request.headers.insert(depth, HeaderValue::from_static("0"));
    let mut answer = target.client.send(request).await?;
    if answer.status.as_u16() != 207 {
        return expect(answer, &[207]).await;
    }
    let body = answer.read_all(ANSWER_BYTES_MAX).await?;
    match String::from_utf8_lossy(&body).contains(&path) {
        true => Ok(()),
        false => Err(BenchError::failed(format!(
            "the properties of {path} do not name it"
        ))),
    }
}

async fn copy(
    target: &Target,
    source: &Url,
    source_authorization: Option<&HeaderValue>,
    to: Url,
) -> Result<(), BenchError> {
    let mut request = outgoing(target, method(b"COPY"), to);
    let source = HeaderValue::try_from(source.as_str())
        .map_err(|_| BenchError::failed("a URL that is no header"))?;
    request
        .headers
        .insert(HeaderName::from_static("source"), source);
    if let Some(value) = source_authorization {
        let name = HeaderName::from_static("transferheaderauthorization");
        request.headers.insert(name, value.clone());
    }
    let shown = request.url.to_string();
    let mut answer = target.client.send(request).await?;
    if !matches!(answer.status.as_u16(), 201 | 202) {
        return expect(answer, &[201, 202]).await;
    }
    let body = answer.read_all(ANSWER_BYTES_MAX).await?;
    let mut parser = StreamParser::new();
    let mut items = parser.push(&body);
    items.extend(parser.finish());
    match items.pop() {
        Some(Item::Outcome(Outcome::Success(_))) => Ok(()),
        _ => {
            let text = String::from_utf8_lossy(&body);
            Err(BenchError::failed(format!(
                "COPY to {shown} ended with: {}",
                text.trim()
            )))
        }
    }
}

async fn simple(target: &Target, method: Method, url: Url) -> Result<ClientResponse, BenchError> {
    Ok(target.client.send(outgoing(target, method, url)).await?)
}

fn outgoing(target: &Target, method: Method, url: Url) -> ClientRequest {
    let mut headers = HeaderMap::new();
    if let Some(value) = &target.authorization {
        headers.insert(AUTHORIZATION, value.clone());
    }
    ClientRequest {
        method,
        url,
        headers,
        identity: None,
    }
}

fn method(name: &[u8]) -> Method {
    Method::from_bytes(name).expect("a valid method name")
}

/// Reads an answer to its end, so that its connection is kept, and refuses any other status.
async fn expect(mut answer: ClientResponse, statuses: &[u16]) -> Result<(), BenchError> {
    let body = answer.read_all(ANSWER_BYTES_MAX).await?;
    if statuses.contains(&answer.status.as_u16()) {
        return Ok(());
    }
    let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
    Err(BenchError::failed(format!(
        "{} answered {}: {}",
        answer.final_url(),
        answer.status,
        text.trim()
    )))
}

/// Bytes that do not compress and do not repeat within a block (xorshift64*, fixed seed).
fn make_content() -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    };
    (0..CONTENT_BYTES / 8).flat_map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_numbered_inside_their_directory() {
        let directory = Url::parse("https://127.0.0.2:8443/data/put-1/").expect("valid");
        assert_eq!(
            numbered(&directory, 7).as_str(),
            "https://127.0.0.2:8443/data/put-1/f7"
        );
    }

    #[test]
    fn rates_of_a_phase_without_success_are_zero_not_infinite() {
        let phase = Phase::default();
        assert_eq!((phase.rate(), phase.server_microseconds()), (0.0, 0.0));
    }
}
