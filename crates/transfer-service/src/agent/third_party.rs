//! Third-party copies: COPY to one end with the credential for the other, then the marker stream to its last line.
//!
//! HTTP-TPC (draft-http-tpc): the active party moves the bytes; we read markers. Closing the connection cancels.

use super::http::End;
use super::steps::{Attempting, Plan};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use penstock_decide::classify::{Observed, classify};
use penstock_model::{Busy, Bytes, CopyMode, Failure, MoverReport, Phase, Side, StreamsReason};
use penstock_protocol::http1::client::{Incoming, Outgoing};
use penstock_protocol::s3::hide_presigned;
use penstock_protocol::tape::{ARCHIVE_METADATA, TRANSFER_HEADER_ARCHIVE_METADATA};
use penstock_protocol::tpc::{CopyRequest, Credential, Direction, Item, Outcome, StreamParser};
use std::time::{Duration, Instant};
use url::Url;

/// How long the end of an answer is waited for after its last line.
const END_OF_BODY: Duration = Duration::from_secs(2);

/// Why a third-party copy did not take place.
pub(super) enum Refusal {
    /// This end does not do such copies: another way may work.
    NotOffered(String),
    /// It was tried and failed.
    Failed(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Failed(failure)
    }
}

/// Who copies, from or to whom.
#[derive(Clone, Copy)]
struct Ways<'a> {
    mode: CopyMode,
    active: &'a End,
    passive: &'a End,
    /// Of the passive end, as the active one is told it.
    address: &'a Url,
}

impl Attempting<'_> {
    /// Lets one end copy from or to the other.
    pub(super) async fn third_party(
        &self,
        mode: CopyMode,
        source: &End,
        destination: &End,
        plan: &Plan,
    ) -> Result<MoverReport, Refusal> {
        let (active, passive, method) = match mode {
            CopyMode::Pull | CopyMode::Streamed => (destination, source, Method::GET),
            CopyMode::Push => (source, destination, Method::PUT),
        };
        let address = passive.address(&method, self.timeout(plan.size));
        let ways = Ways {
            mode,
            active,
            passive,
            address: &address,
        };
        let copied = self.copy_between(&ways, plan).await;
        if passive.cloud.is_none() {
            return copied;
        }
        copied.map_err(|refusal| match refusal {
            Refusal::NotOffered(why) => Refusal::NotOffered(hide_presigned(&why, &address)),
            Refusal::Failed(failure) => {
                let detail = hide_presigned(&failure.detail, &address);
                match self.progress.moved() == 0 && is_refused_there(&detail) {
                    true => Refusal::NotOffered(detail),
                    false => Refusal::Failed(Failure { detail, ..failure }),
                }
            }
        })
    }

    async fn copy_between(&self, ways: &Ways<'_>, plan: &Plan) -> Result<MoverReport, Refusal> {
        let Ways {
            mode,
            active,
            passive,
            ..
        } = *ways;
        let request = self.copy_request(ways, plan)?;
        let sent = self.setup.client.send_following(request).await;
        let answer = sent.map_err(|why| active.client_failure(Phase::Transfer, &why))?;
        if answer.status.is_client_error() {
            self.nothing_was_written();
        }
        match answer.status.as_u16() {
            201 | 202 => {}
            // 400: XRootD without TPC; 403: copies to that host are not allowed there; davix reads them alike.
            status @ (400 | 403 | 405 | 501) => {
                let failure = active
                    .refused(Phase::Transfer, &format!("COPY ({})", mode.name()), answer)
                    .await;
                return Err(Refusal::NotOffered(format!("{status}: {failure}")));
            }
            _ => {
                let what = format!("COPY ({})", mode.name());
                return Err(active.refused(Phase::Transfer, &what, answer).await.into());
            }
        }
        let report = self.follow_markers(active, passive, plan, answer).await?;
        Ok(self.say_who_asked(report))
    }

    /// What this service asked for on its own was not asked for by the client.
    fn say_who_asked(&self, mut report: MoverReport) -> MoverReport {
        let by_service = self.assignment.parameters.streams.is_none();
        if let Some(streams) = &mut report.streams
            && by_service
            && self.assignment.streams.is_some()
        {
            streams.asked = None;
            for because in &mut streams.because {
                if *because == StreamsReason::AsAsked {
                    *because = StreamsReason::Tuned;
                }
            }
        }
        report
    }

    fn copy_request(&self, ways: &Ways<'_>, plan: &Plan) -> Result<Outgoing, Failure> {
        let Ways {
            mode,
            active,
            passive,
            address,
        } = *ways;
        let other = address.clone();
        let direction = match mode {
            CopyMode::Pull | CopyMode::Streamed => Direction::Pull { source: other },
            CopyMode::Push => Direction::Push { destination: other },
        };
        let mut transfer_headers = HeaderMap::new();
        if let Some(token) = &passive.token {
            transfer_headers.insert(AUTHORIZATION, passive.bearer(token)?);
        }
        let (parameters, request) = (&self.assignment.parameters, &self.assignment.request);
        let copy = CopyRequest {
            overwrite: plan.replaces,
            credential: Some(Credential::None),
            // This service compares the checksums itself, as far as its job asks for it.
            require_checksum: Some(false),
            transfer_headers,
            streams: parameters.streams.or(self.assignment.streams),
            scitag: request.scitag.map(u32::from),
            client_info: Some(format!(
                "job-id={};file-id={};retry={}",
                self.assignment.job,
                request.id,
                self.assignment.attempt.0 - 1
            )),
            ..CopyRequest::new(direction)
        };
        let mut headers = active.headers()?;
        headers.extend(copy.to_headers());
        if let Some(note) = self.archive_note() {
            let name = match mode {
                CopyMode::Pull | CopyMode::Streamed => ARCHIVE_METADATA,
                CopyMode::Push => TRANSFER_HEADER_ARCHIVE_METADATA,
            };
            headers.insert(name, note);
        }
        let method = Method::from_bytes(b"COPY").expect("a valid method name");
        Ok(Outgoing {
            method,
            url: active.parsed.clone(),
            headers,
            identity: active.identity(),
        })
    }

    /// A failure in the words of the storage element that copied.
    fn copy_failed(&self, active: &End, passive: &End, plan: &Plan, why: &str) -> Failure {
        let detail = format!("{} failed to copy {}: {why}", active.url, passive.url);
        if !plan.replaces && says_that_it_exists(why) {
            self.nothing_was_written();
            return classify(
                Side::Destination,
                Phase::Transfer,
                &Observed::Exists,
                detail,
            );
        }
        let busy = says_that_it_is_busy(why).then_some(Busy {
            by: passive.side,
            seconds: 0,
        });
        let observed = Observed::CopyFailed;
        let failure = classify(Side::Network, Phase::Transfer, &observed, detail);
        Failure { busy, ..failure }
    }

    /// Reads the marker stream to its last line.
    async fn follow_markers(
        &self,
        active: &End,
        passive: &End,
        plan: &Plan,
        mut answer: Incoming,
    ) -> Result<MoverReport, Failure> {
        let config = &self.setup.config;
        let mut buffer = [0u8; 2048];
        let mut watch = Watch::default();
        loop {
            let read = tokio::time::timeout(config.stall_timeout, answer.read(&mut buffer)).await;
            let count = read
                .map_err(|_| still(active, "no performance marker came", config.stall_timeout))?
                .map_err(|why| active.client_failure(Phase::Transfer, &why))?;
            match count {
                0 => watch.end(),
                _ => watch.take(&buffer[..count]),
            }
            self.progress.set_moved(watch.moved);
            self.progress.set_queued(watch.is_queued);
            match watch.outcome.take() {
                Some(Outcome::Success(_)) => {
                    read_to_end(&mut answer, &mut buffer).await;
                    return Ok(watch.report);
                }
                Some(Outcome::Failure(why) | Outcome::Aborted(why)) => {
                    return Err(self.copy_failed(active, passive, plan, &why));
                }
                None if count == 0 => {
                    let detail = format!(
                        "{}: the connection ended without a last line; the outcome is unknown",
                        active.url
                    );
                    return Err(active.failure(Phase::Transfer, &Observed::Broken, detail));
                }
                None if watch.advanced.elapsed() > config.progress_timeout => {
                    return Err(still(active, "no byte moved", config.progress_timeout));
                }
                None => {}
            }
        }
    }
}

/// Whether a failure means that the destination has appeared since it was looked at. There is nothing but words to go
/// by; those of dCache, StoRM, XRootD and our own door are understood. Taking too much for it leaves a partial file,
/// taking too little removes somebody else's.
fn says_that_it_exists(why: &str) -> bool {
    let why = why.to_ascii_lowercase();
    ["exists", "already exist", "answered 412", "answered 409"]
        .iter()
        .any(|words| why.contains(words))
}

/// Whether the passive end has refused the active one because it has too much to do. There is nothing but words to go
/// by.
fn says_that_it_is_busy(why: &str) -> bool {
    let why = why.to_ascii_lowercase();
    [
        "answered 503",
        "answered 429",
        "too many requests",
        "service unavailable",
    ]
    .iter()
    .any(|words| why.contains(words))
}

/// Whether a storage element could not use a presigned URL. Some look with HEAD first, which such a URL is not good for.
/// There is nothing but words to go by.
fn is_refused_there(why: &str) -> bool {
    let why = why.to_ascii_lowercase();
    [
        "403",
        "405",
        "forbidden",
        "accessdenied",
        "signaturedoesnotmatch",
    ]
    .iter()
    .any(|words| why.contains(words))
}

fn still(active: &End, what: &str, limit: Duration) -> Failure {
    let detail = format!(
        "{}: {what} for {} s; the copy was given up",
        active.url,
        limit.as_secs()
    );
    classify(Side::Network, Phase::Transfer, &Observed::TimedOut, detail)
}

/// The last line is followed by the end of the body, after which the connection serves the next copy.
async fn read_to_end(answer: &mut Incoming, buffer: &mut [u8]) {
    let end = async { while answer.read(buffer).await.is_ok_and(|count| count > 0) {} };
    // A storage element that does not end its answer costs only a connection.
    let _ = tokio::time::timeout(END_OF_BODY, end).await;
}

/// What a marker stream has told so far.
struct Watch {
    parser: StreamParser,
    report: MoverReport,
    moved: u64,
    /// The storage element says that it has not begun.
    is_queued: bool,
    /// When the byte count last grew, or the copy was last seen waiting in a queue, which is its right.
    advanced: Instant,
    outcome: Option<Outcome>,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            parser: StreamParser::default(),
            report: MoverReport::default(),
            moved: 0,
            is_queued: false,
            advanced: Instant::now(),
            outcome: None,
        }
    }
}

impl Watch {
    fn take(&mut self, bytes: &[u8]) {
        for item in self.parser.push(bytes) {
            self.note(item);
        }
    }

    /// The body has ended; the last line may have come without its end.
    fn end(&mut self) {
        if let Some(item) = self.parser.finish() {
            self.note(item);
        }
    }

    fn note(&mut self, item: Item) {
        match item {
            Item::Marker(marker) => {
                self.is_queued = marker.moved.is_none() && self.moved == 0;
                match marker.moved {
                    Some(Bytes(now)) if now > self.moved => {
                        (self.moved, self.advanced) = (now, Instant::now());
                    }
                    Some(_) => {}
                    None => self.advanced = Instant::now(),
                }
                self.report = marker
                    .report
                    .unwrap_or_else(|| std::mem::take(&mut self.report));
            }
            Item::Outcome(outcome) => self.outcome = Some(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_appeared_is_told_from_other_failures() {
        for why in [
            "/data/f exists",
            "https://se/f exists and 'Overwrite: F' forbids to replace it",
            "https://se/f answered 412 Precondition Failed; local=/f in pool disk1",
            "Transfer failed: File exists",
            "rejected PUT: 500 the file already exists",
        ] {
            assert!(says_that_it_exists(why), "{why}");
        }
        for why in [
            "No such file or directory",
            "/data/f does not exist",
            "checksum mismatch: expected adler32:00000001, got adler32:00000002",
        ] {
            assert!(!says_that_it_exists(why), "{why}");
        }
    }
}
