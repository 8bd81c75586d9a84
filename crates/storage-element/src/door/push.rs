//! The push side of COPY: PUT at the destination, from a file here, and a look at what arrived.

use super::answer::Problem;
use super::caller::Caller;
use super::handler_context::Door;
use super::push_leftover::{LeftoverGuard, Removal, is_absent, strong_version};
use super::read::{ReadableFile, open, read_failure};
use super::remote::{
    CopyFailure, LateFailure, follow, peer_failure, redacted, refusal, send_following,
};
use super::wanted_digest::DIGEST;
use crate::clock::microseconds;
use crate::mover::{Mover, MoverHandle, MoverRequest};
use http::header::IF_NONE_MATCH;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use penstock_decide::authorization::PathOperation;
use penstock_model::{
    Bytes, Checksum, ChecksumAlgorithm, MoverReport, NamespacePath, ProblemCode, StreamUse,
    StreamsReason, TimeSpan,
};
use penstock_persistence::namespace::{MoverKind, MoverOutcome};
use penstock_protocol::digest;
use penstock_protocol::http1::client::{ClientError, ClientRequest, ClientResponse, UploadStart};
use penstock_protocol::pace::PaceLimit;
use penstock_protocol::tpc::CopyRequest;
use serde_json::Value;
use std::fs::File;
use std::future::Future;
use std::time::{Duration, Instant};
use url::Url;

/// From this size on the destination is asked before any byte is sent.
const EXPECT_BYTES_MIN: u64 = 1 << 20;
/// Bytes sent between two looks at the counters.
const PIECE_BYTES: u64 = 4 << 20;
/// Redirects followed.
const REDIRECTS_MAX: usize = 5;
const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");

/// A push that has its place in a pool's queue.
pub(super) struct Push {
    path: NamespacePath,
    destination: Url,
    order: CopyRequest,
    found: ReadableFile,
    known: Vec<Checksum>,
    mover: Mover,
}

/// Finds out everything that can be known without asking the destination.
pub(super) fn prepare(
    door: &Door,
    caller: &Caller,
    path: &NamespacePath,
    order: CopyRequest,
) -> Result<Push, Problem> {
    door.permit(caller, &PathOperation::Read, path)?;
    let entry = door.entry(path)?;
    let found = door.found(path, &entry)?.ok_or_else(|| {
        Problem::new(
            ProblemCode::PathIsDirectory,
            format!("{path} is a directory; copy its files one by one"),
        )
    })?;
    let known = door.storage.namespace.checksums(found.id)?;
    if let Some((expected, known)) = contradiction(&order.expected, &known) {
        return Err(Problem::new(
            ProblemCode::ChecksumMismatch,
            format!("checksum mismatch: expected {expected}, {path} has {known}; nothing was sent"),
        ));
    }
    let destination = order.direction.remote().clone();
    let mover = door.storage.arrive(MoverRequest {
        kind: MoverKind::Push,
        path: path.clone(),
        peer: redacted(&destination),
        copy: caller.copy.clone(),
        challenge: caller.challenge.clone(),
        file_size: Some(Bytes(found.size)),
        user: caller.user(),
        requester: caller.requester(),
        pool: found.pool.name.clone(),
        selection: Value::Null,
    })?;
    Ok(Push {
        path: path.clone(),
        destination,
        order,
        found,
        known,
        mover,
    })
}

/// An expected checksum and another one of the same algorithm.
fn contradiction<'a>(
    expected: &'a [Checksum],
    known: &'a [Checksum],
) -> Option<(&'a Checksum, &'a Checksum)> {
    expected.iter().find_map(|expected| {
        let same = |known: &&Checksum| known.algorithm() == expected.algorithm();
        let known = known.iter().find(same)?;
        (known != expected).then_some((expected, known))
    })
}

impl Push {
    pub(super) fn view(&self) -> MoverHandle {
        self.mover.view()
    }
}

/// Dropped half-way, it may leave something at the destination: see `leftover`.
pub(super) async fn run(
    door: &Door,
    mut push: Push,
    leftover: &LeftoverGuard,
) -> Result<MoverReport, CopyFailure> {
    let waited = push.mover.wait().await;
    waited.map_err(|busy| CopyFailure::Early(busy.into()))?;
    let view = push.mover.view();
    let sent = tokio::select! {
        biased;
        sent = send(door, &mut push, leftover) => sent,
        why = view.preempted() => Err(CopyFailure::preempted(&why)),
    };
    match sent {
        Ok(()) => {
            leftover.settled();
            let adler = |sum: &&Checksum| sum.algorithm() == ChecksumAlgorithm::Adler32;
            let report = MoverReport {
                moved: Bytes(push.found.size),
                checksum: push.known.iter().find(adler).cloned(),
                pool: Some(push.found.pool.name.clone()),
                stages: push.mover.clocks,
                tcp: push.mover.tcp,
                streams: Some(one_request(&push)),
                not_offered: Vec::new(),
                verified: None,
            };
            push.mover.end(MoverOutcome::Done);
            Ok(report)
        }
        Err(CopyFailure::Early(problem)) => {
            push.mover
                .end(MoverOutcome::Failed(problem.cause.message.clone()));
            Err(CopyFailure::Early(problem))
        }
        Err(CopyFailure::Late(LateFailure { text, code })) => {
            let removal = leftover.remove().await.words();
            let text = format!(
                "{text}{removal}; local={} in pool {}, remote={}, {} bytes moved",
                push.path,
                push.found.pool.name,
                redacted(&push.destination),
                push.mover.moved_so_far().0
            );
            push.mover.end(MoverOutcome::Failed(text.clone()));
            Err(CopyFailure::of_cause(code, text))
        }
    }
}

/// A push is one PUT.
fn one_request(push: &Push) -> StreamUse {
    let asked = push.order.streams;
    let reason = match asked {
        None => StreamsReason::LeftToUs,
        Some(1) => StreamsReason::AsAsked,
        Some(_) => StreamsReason::Push,
    };
    StreamUse {
        asked,
        used: 1,
        because: vec![reason],
        ..StreamUse::default()
    }
}

async fn send(door: &Door, push: &mut Push, leftover: &LeftoverGuard) -> Result<(), CopyFailure> {
    let file = open(door, &push.path, &push.found).await;
    let file = file.map_err(|why| CopyFailure::Early(why.into()))?;
    let was_absent = look(door, push).await?;
    let mut response = upload(door, push, &file, was_absent.then_some(leftover)).await?;
    if response.status.is_client_error() {
        leftover.refused(response.status);
    }
    if !response.status.is_success() {
        return Err(refusal(door, &mut response).await);
    }
    let told = digest::parse(&response.headers).unwrap_or_default();
    // Read to its end, the connection can be used again; a failure here matters to nobody.
    let _ = response.read_all(64 << 10).await;
    verify(door, push, &response, told, leftover).await
}

/// Whether nothing is at the destination, for sure. `Overwrite: F` refuses what is there (RFC 4918 §10.6), because not
/// all servers know `If-None-Match`.
async fn look(door: &Door, push: &Push) -> Result<bool, CopyFailure> {
    let mut request = ClientRequest::new(Method::HEAD, push.destination.clone());
    request.headers = push.order.transfer_headers.clone();
    let response = match send_following(door, request).await {
        Ok(response) => response,
        // Whether it can be written, the upload will tell.
        Err(_) if push.order.overwrite => return Ok(false),
        Err(why) => return Err(why),
    };
    if response.status.is_success() && !push.order.overwrite {
        return Err(CopyFailure::Early(Problem::new(
            ProblemCode::PathExists,
            format!(
                "{} exists and 'Overwrite: F' forbids replacing it",
                redacted(&push.destination)
            ),
        )));
    }
    Ok(is_absent(response.status))
}

fn upload_headers(push: &Push) -> HeaderMap {
    let mut headers = push.order.transfer_headers.clone();
    headers.insert(
        WANT_DIGEST,
        HeaderValue::from_static("adler32, crc32c;q=0.9, md5;q=0.5"),
    );
    let mut digests = push.known.clone();
    // What is not known here, the destination may be able to verify.
    let unknown = push.order.expected.iter().filter(|expected| {
        let mut known = push.known.iter();
        known.all(|known| known.algorithm() != expected.algorithm())
    });
    digests.extend(unknown.cloned());
    if !digests.is_empty() {
        headers.insert(DIGEST, digest::header_value(&digests));
    }
    if !push.order.overwrite {
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
    headers
}

/// Sends the file, wherever redirects lead among the allowed hosts. With a `leftover`, nothing is at the destination.
async fn upload(
    door: &Door,
    push: &mut Push,
    file: &File,
    leftover: Option<&LeftoverGuard>,
) -> Result<ClientResponse, CopyFailure> {
    let failed = |url: &Url, why: ClientError| {
        if let (ClientError::EarlyAnswer { status, .. }, Some(leftover)) = (&why, leftover)
            && status.is_client_error()
        {
            leftover.refused(*status);
        }
        peer_failure(door, url, &why)
    };
    let size = push.found.size;
    let mut request = ClientRequest::new(Method::PUT, push.destination.clone());
    request.headers = upload_headers(push);
    for _ in 0..=REDIRECTS_MAX {
        let started = Instant::now();
        let begun = door
            .storage
            .client
            .start_upload(request.clone(), Some(size), size >= EXPECT_BYTES_MIN)
            .await
            .map_err(|why| failed(&request.url, why))?;
        push.mover.clocks.network_us += microseconds(started.elapsed());
        let mut response = match begun {
            UploadStart::Answered(response) => response,
            UploadStart::Ready(mut upload) => {
                push.mover.set_remote(upload.peer_addr());
                if let Some(leftover) = leftover {
                    leftover.begun(&push.destination, &push.order.transfer_headers);
                }
                let mut position = 0;
                let limit = door.storage.settings().limits.pace_of_others();
                while position < size {
                    let end = size.min(position + PIECE_BYTES);
                    if let Some(leftover) = leftover {
                        leftover.sending(end);
                    }
                    let longest = limit.longest(end - position);
                    let sent = within(longest, upload.send_file(file, position..end)).await;
                    push.mover.tcp = upload.tcp_info();
                    let sent = sent.ok_or_else(|| too_slow(limit, longest))?;
                    let sent = sent.map_err(|why| {
                        if let ClientError::File { why, .. } = &why
                            && let Some(what) = read_failure(why)
                        {
                            push.found.read_failed(&push.path, &what);
                        }
                        failed(&request.url, why)
                    })?;
                    push.mover.moved(sent.bytes);
                    push.mover.clocks.source_read_us += microseconds(sent.read_time);
                    push.mover.clocks.network_us += microseconds(sent.network_time);
                    position = end;
                }
                push.mover.tcp = upload.tcp_info();
                // The destination may have the file from now on.
                push.mover.pass_last_byte();
                let waiting = Instant::now();
                let response = upload.finish().await;
                let response = response.map_err(|why| failed(&request.url, why))?;
                // What the destination needs after the last byte is its commit, as far as this end can
                // tell.
                push.mover.clocks.commit_us += microseconds(waiting.elapsed());
                response
            }
        };
        match follow(door, request, &mut response).await? {
            None => return Ok(response),
            Some(next) => request = next,
        }
    }
    Err(CopyFailure::of_cause(
        Some(ProblemCode::RedirectsTooMany),
        format!("more than {REDIRECTS_MAX} redirects"),
    ))
}

/// Compares what arrived with what was sent, by the answer to the PUT or by asking. A destination that
/// tells nothing (a token may not suffice for asking) is believed, unless verification is required.
async fn verify(
    door: &Door,
    push: &Push,
    put: &ClientResponse,
    mut told: Vec<Checksum>,
    leftover: &LeftoverGuard,
) -> Result<(), CopyFailure> {
    let mut length = None;
    let mut version = strong_version(&put.headers);
    if told.is_empty() {
        let mut request = ClientRequest::new(Method::HEAD, put.final_url().clone());
        if *put.final_url() == push.destination {
            request.headers = push.order.transfer_headers.clone();
        }
        let want = HeaderValue::from_static("adler32, crc32c;q=0.9, md5;q=0.5");
        request.headers.insert(WANT_DIGEST, want);
        if let Ok(head) = send_following(door, request).await
            && head.status == StatusCode::OK
        {
            told = digest::parse(&head.headers).unwrap_or_default();
            length = head.content_length();
            version = version.or_else(|| strong_version(&head.headers));
        }
    }
    if let Some(length) = length
        && length != push.found.size
    {
        let text = format!("the destination has {length} bytes of {}", push.found.size);
        let code = Some(ProblemCode::SizeMismatch);
        return Err(remove(push, (code, text), version, leftover).await);
    }
    let mut compared = 0;
    for sum in &told {
        let algorithm = sum.algorithm();
        let Some(ours) = push
            .known
            .iter()
            .find(|known| known.algorithm() == algorithm)
        else {
            continue;
        };
        if ours != sum {
            let text = format!("checksum mismatch: {ours} was sent, the destination has {sum}");
            let code = Some(ProblemCode::ChecksumMismatch);
            return Err(remove(push, (code, text), version, leftover).await);
        }
        compared += 1;
    }
    if compared == 0 && push.order.require_checksum == Some(true) {
        let text =
            "the destination reports no checksum, and 'RequireChecksumVerification' demands one";
        let code = Some(ProblemCode::ChecksumUnavailable);
        return Err(remove(push, (code, text.to_owned()), version, leftover).await);
    }
    Ok(())
}

/// Removes a destination that is not what was sent, so that nobody takes it for a copy.
async fn remove(
    push: &Push,
    (code, text): (Option<ProblemCode>, String),
    version: Option<HeaderValue>,
    leftover: &LeftoverGuard,
) -> CopyFailure {
    leftover.differs(&push.destination, &push.order.transfer_headers, version);
    let removed = match leftover.remove().await {
        Removal::Removed => "it was removed",
        Removal::Nothing | Removal::Remains => "it could not be removed",
    };
    CopyFailure::of_cause(code, format!("{text}; {removed}"))
}

/// `None`: it took longer.
async fn within<T>(longest: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match longest {
        Some(longest) => tokio::time::timeout(longest, work).await.ok(),
        None => Some(work.await),
    }
}

fn too_slow(limit: PaceLimit, longest: Option<Duration>) -> CopyFailure {
    CopyFailure::late(format!(
        "the destination accepted less than {} bytes per second (rate_min), over {}",
        limit.bytes_per_second_min,
        TimeSpan(longest.unwrap_or_default())
    ))
}
