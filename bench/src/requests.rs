//! Requests to a transfer service, over and over: a number of clients, each with one request at a time on a
//! connection that is kept. What is sent was made before, and little is done with answers: the clients share
//! the cores.

use crate::error::BenchError;
use crate::process::{cpu_used, own_cpu_used};
use crate::servers::penstock::Service;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use penstock_protocol::http1::client::ClientRequest;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use url::Url;

/// Bytes of an answer that is read.
const READ_BYTES: usize = 256 << 10;
/// Bytes of a refusal that are shown.
const SHOWN_BYTES: usize = 300;

/// One request, as it will be sent.
#[derive(Debug, Clone)]
pub struct Prepared {
    request: ClientRequest,
    body: Vec<u8>,
}

impl Prepared {
    /// A GET.
    pub fn get(service: &Service, path: &str) -> Result<Prepared, BenchError> {
        Prepared::new(service, Method::GET, path, Vec::new())
    }

    /// A POST of JSON.
    pub fn post(service: &Service, path: &str, body: Vec<u8>) -> Result<Prepared, BenchError> {
        Prepared::new(service, Method::POST, path, body)
    }

    fn new(
        service: &Service,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Prepared, BenchError> {
        let url = service.url.join(path);
        let url: Url = url.map_err(|why| BenchError::failed(format!("{path}: {why}")))?;
        let mut headers = HeaderMap::new();
        let mut token = HeaderValue::try_from(format!("Bearer {}", service.token))
            .map_err(|_| BenchError::failed("a token that is no header"))?;
        token.set_sensitive(true);
        headers.insert(AUTHORIZATION, token);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Prepared {
            request: ClientRequest {
                method,
                url,
                headers,
                identity: None,
            },
            body,
        })
    }

    /// Sends it; gives the bytes of the answer. An error unless that is 200.
    pub async fn send(&self, service: &Service, buffer: &mut [u8]) -> Result<usize, BenchError> {
        let sent = service.client.send_bytes(self.request.clone(), &self.body);
        let mut answer = sent.await?;
        let mut shown = Vec::new();
        loop {
            let count = answer.read(buffer).await?;
            if count == 0 {
                break;
            }
            if answer.status.as_u16() != 200 && shown.len() < SHOWN_BYTES {
                shown.extend_from_slice(&buffer[..count.min(SHOWN_BYTES)]);
            }
        }
        match answer.status.as_u16() {
            200 => Ok(answer.got() as usize),
            status => Err(BenchError::failed(format!(
                "{} {} answered {status}: {}",
                self.request.method,
                self.request.url,
                String::from_utf8_lossy(&shown).trim()
            ))),
        }
    }

    /// Sends it and gives the whole answer.
    pub async fn fetch(&self, service: &Service) -> Result<Vec<u8>, BenchError> {
        let sent = service.client.send_bytes(self.request.clone(), &self.body);
        let mut answer = sent.await?;
        let body = answer.read_all(64 << 20).await?;
        match answer.status.as_u16() {
            200 => Ok(body),
            status => Err(BenchError::failed(format!(
                "{} answered {status}",
                self.request.url
            ))),
        }
    }
}

/// What a phase of requests measured.
#[derive(Debug, Clone, Default)]
pub struct Phase {
    /// How long each took, the shortest first.
    pub latencies: Vec<Duration>,
    /// Bytes of all answers.
    pub bytes: u64,
    /// From the first request to the last answer.
    pub wall: Duration,
    /// Of the service's process.
    pub service_cpu: Duration,
    /// Of this process.
    pub bench_cpu: Duration,
}

impl Phase {
    /// Answers per second.
    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// Microseconds of CPU per answer: of the service, of this process.
    pub fn cpu_microseconds(&self) -> (f64, f64) {
        let each = |used: Duration| used.as_secs_f64() * 1e6 / self.latencies.len().max(1) as f64;
        (each(self.service_cpu), each(self.bench_cpu))
    }
}

/// Of values in order, the one that so many of a thousand do not exceed.
pub fn permille(sorted: &[Duration], permille: usize) -> Duration {
    let index = (sorted.len() * permille).div_ceil(1000).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

/// How a phase sends its requests.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// Each once; the phase ends with the last one at the latest.
    Once,
    /// From the first again after the last, and each answer has as many bytes as the first one of that
    /// request.
    Again,
}

/// Sends requests with so many clients, until `time` is over. An error if any of them fails.
pub async fn run(
    service: &Service,
    requests: &Arc<[Prepared]>,
    order: Order,
    clients: usize,
    time: Duration,
) -> Result<Phase, BenchError> {
    connect(service, clients).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let before = (cpu_used(&[service.process]), own_cpu_used());
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..clients {
        let (service, requests, next) = (service.clone(), Arc::clone(requests), Arc::clone(&next));
        workers.spawn(async move {
            let mut done = (Vec::new(), 0);
            let mut buffer = vec![0; READ_BYTES];
            while started.elapsed() < time {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let request = match order {
                    Order::Once => requests.get(index),
                    Order::Again => requests.get(index % requests.len()),
                };
                let Some(request) = request else { break };
                let begun = Instant::now();
                done.1 += request.send(&service, &mut buffer).await? as u64;
                done.0.push(begun.elapsed());
            }
            Ok::<_, BenchError>(done)
        });
    }
    let mut phase = Phase::default();
    for worker in workers.join_all().await {
        let (latencies, bytes) = worker?;
        phase.latencies.extend(latencies);
        phase.bytes += bytes;
    }
    phase.wall = started.elapsed();
    phase.service_cpu = cpu_used(&[service.process]).saturating_sub(before.0);
    phase.bench_cpu = own_cpu_used().saturating_sub(before.1);
    phase.latencies.sort_unstable();
    Ok(phase)
}

/// Opens as many connections as there will be clients, so that no phase measures handshakes.
async fn connect(service: &Service, clients: usize) -> Result<(), BenchError> {
    let mut opening = JoinSet::new();
    for _ in 0..clients {
        let service = service.clone();
        opening.spawn(async move { Prepared::get(&service, "whoami")?.fetch(&service).await });
    }
    for opened in opening.join_all().await {
        opened?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_samples_and_never_a_smaller_share() {
        let samples: Vec<Duration> = (1..=1000).map(Duration::from_millis).collect();
        assert_eq!(permille(&samples, 990), Duration::from_millis(990));
        assert_eq!(permille(&samples[..10], 990), Duration::from_millis(10));
        assert_eq!(permille(&samples[..1], 500), Duration::from_millis(1));
        assert_eq!(permille(&[], 500), Duration::ZERO);
    }
}
