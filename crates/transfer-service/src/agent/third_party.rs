//! Third-party copies: COPY to one end with the credential for the other, then the marker stream to its last line.
//!
//! HTTP-TPC (draft-http-tpc): the active party moves the bytes; we read markers. Closing the connection cancels.

use super::http::End;
use super::steps::{AttemptRun, PreflightFindings};
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method};
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_decide::copy_failure::CopyCause;
use penstock_decide::destination::CopyEnd;
use penstock_model::{
    Busy, Bytes, CopyMode, Failure, Layer, MoverReport, Phase, ProblemCode, Side, StreamsReason,
    TimeSpan,
};
use penstock_protocol::hosts::SERVER_NOT_ALLOWED;
use penstock_protocol::http1::client::{ClientRequest, ClientResponse};
use penstock_protocol::s3::hide_presigned;
use penstock_protocol::tape::{ARCHIVE_METADATA, TRANSFER_HEADER_ARCHIVE_METADATA};
use penstock_protocol::tpc::{
    CopyRequest, Credential, Direction, Item, Outcome, REQUEST_ID, StreamParser,
};
use percent_encoding::percent_decode_str;
use std::time::{Duration, Instant};
use url::Url;

/// How long the end of an answer is waited for after its last line.
const END_OF_BODY: Duration = Duration::from_secs(2);

/// Why a third-party copy did not take place.
pub(super) enum CopyError {
    /// This end does not do such copies: another way may work.
    NotOffered(String),
    /// It was tried and failed.
    Failed(Failure),
}

impl From<Failure> for CopyError {
    fn from(failure: Failure) -> Self {
        CopyError::Failed(failure)
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

impl AttemptRun<'_> {
    /// Lets one end copy from or to the other.
    pub(super) async fn third_party(
        &self,
        mode: CopyMode,
        source: &End,
        destination: &End,
        plan: &PreflightFindings,
    ) -> Result<MoverReport, CopyError> {
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
            CopyError::NotOffered(why) => CopyError::NotOffered(hide_presigned(&why, &address)),
            CopyError::Failed(failure) => {
                let detail = hide_presigned(&failure.detail, &address);
                match self.progress.moved() == 0 && is_refused_there(&detail) {
                    true => CopyError::NotOffered(detail),
                    false => CopyError::Failed(Failure { detail, ..failure }),
                }
            }
        })
    }

    async fn copy_between(
        &self,
        ways: &Ways<'_>,
        plan: &PreflightFindings,
    ) -> Result<MoverReport, CopyError> {
        let Ways {
            mode,
            active,
            passive,
            ..
        } = *ways;
        // What lets the other end in would be read by everybody on the way.
        let hands_over = passive.token.is_some()
            || passive.cloud.is_some()
            || !passive.url.credentials().is_empty();
        if hands_over && !self.setup.may_show_token(&active.parsed) {
            self.note_end(CopyEnd::Refused);
            return Err(CopyError::NotOffered(format!(
                "{} cannot be told how to reach {}: others can read what is sent by {}",
                active.url,
                passive.url,
                active.parsed.scheme()
            )));
        }
        let request = self.copy_request(ways, plan)?;
        let sent = self.setup.client.send_following(request).await;
        let answer = sent.map_err(|why| active.client_failure(Phase::Transfer, &why))?;
        match answer.status.as_u16() {
            201 | 202 => {}
            status => {
                // A server in between says 503 as well when it has lost the storage element in the middle of a copy. Who
                // refuses because of too many requests says when to come again (RFC 9110 §15.6.4).
                let may_have_moved = status == 503 && !answer.headers.contains_key(RETRY_AFTER);
                self.note_end(CopyEnd::of_status(status, may_have_moved));
                let what = format!("COPY ({})", mode.name());
                let failure = active.refused(Phase::Transfer, &what, answer).await;
                return Err(match is_another_way_open(mode, status, &failure.detail) {
                    true => CopyError::NotOffered(format!("{status}: {failure}")),
                    false => CopyError::Failed(failure),
                });
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

    fn copy_request(
        &self,
        ways: &Ways<'_>,
        plan: &PreflightFindings,
    ) -> Result<ClientRequest, Failure> {
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
        // Both ends record the copy by this name, and so can be asked for what they saw of it.
        let name = self.copy_name();
        transfer_headers.insert(REQUEST_ID, name.clone());
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
        headers.insert(REQUEST_ID, name);
        if let Some(note) = self.archive_note() {
            let name = match mode {
                CopyMode::Pull | CopyMode::Streamed => ARCHIVE_METADATA,
                CopyMode::Push => TRANSFER_HEADER_ARCHIVE_METADATA,
            };
            headers.insert(name, note);
        }
        let method = Method::from_bytes(b"COPY").expect("a valid method name");
        Ok(ClientRequest {
            method,
            url: active.parsed.clone(),
            headers,
            identity: active.identity(),
        })
    }

    /// The name of the copy, for whoever takes part in it.
    pub(super) fn copy_name(&self) -> HeaderValue {
        let assignment = &self.assignment;
        let attempt = assignment.attempt;
        let name = attempt.copy_name(assignment.job, assignment.request.id);
        HeaderValue::from_str(&name).expect("letters, digits and dashes")
    }

    /// A failure in the words of the storage element that copied.
    fn copy_failed(
        &self,
        active: &End,
        passive: &End,
        plan: &PreflightFindings,
        (why, told): (&str, Option<ProblemCode>),
    ) -> Failure {
        let detail = format!("{} failed to copy {}: {why}", active.url, passive.url);
        let why = without_names(why, [active, passive].map(|end| end.parsed.path()));
        let cause = CopyCause::read(&why);
        let by_destination = active.side == Side::Destination;
        self.note_end(CopyEnd::of_cause(cause, by_destination));
        let (side, observed) = match cause {
            CopyCause::Exists if !plan.replaces => (Side::Destination, ObservedFailure::Exists),
            CopyCause::ChecksumMismatch => {
                return self.checksum_refused(plan, None, &detail);
            }
            // What the passive end refuses for good is its own affair; of the rest it is not known which end failed.
            CopyCause::Refused(401 | 403 | 404 | 409 | 410 | 423) => {
                (passive.side, ObservedFailure::CopyFailed(cause))
            }
            CopyCause::Exists
            | CopyCause::Refused(_)
            | CopyCause::Denied
            | CopyCause::Missing
            | CopyCause::Unsettled
            | CopyCause::Unknown => {
                let side = end_of_disk(cause, told, active.side, passive.side);
                (
                    side.unwrap_or(Side::Network),
                    ObservedFailure::CopyFailed(cause),
                )
            }
        };
        let busy = match starts_with_busy(&why) {
            true => Some(active.side),
            false => says_that_the_other_is_busy(&why).then_some(passive.side),
        };
        let busy = busy.map(|by| Busy { by, seconds: 0 });
        let failure = classify(side, Phase::Transfer, &observed, detail);
        // A storage element of ours tells the cause itself, also that of the other end.
        Failure {
            busy,
            code: told.or(failure.code),
            ..failure
        }
    }

    /// Reads the marker stream to its last line.
    async fn follow_markers(
        &self,
        active: &End,
        passive: &End,
        plan: &PreflightFindings,
        mut answer: ClientResponse,
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
                    let told = (&*why, watch.problem);
                    return Err(self.copy_failed(active, passive, plan, told));
                }
                None if count == 0 => {
                    let detail = format!(
                        "{}: the connection ended without a last line; the outcome is unknown",
                        active.url
                    );
                    return Err(active.failure(Phase::Transfer, &ObservedFailure::Broken, detail));
                }
                None if watch.advanced.elapsed() > config.progress_timeout => {
                    return Err(still(active, "no byte moved", config.progress_timeout));
                }
                None => {}
            }
        }
    }
}

/// A last line without names of these files and of directories above them that have blanks in them: they are their users'
/// and may say anything. Names without blanks are told by their slashes.
fn without_names(why: &str, paths: [&str; 2]) -> String {
    let mut text = why.to_owned();
    for path in paths {
        let path = percent_decode_str(path).decode_utf8_lossy();
        let mut name = path.trim_end_matches('/');
        while name.contains(char::is_whitespace) {
            text = text.replace(name, "/");
            name = name.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    text
}

/// Whether another way may work when an end answers COPY so. 400: XRootD without third-party copies. A destination that
/// refuses a pull with 403 refuses its user, as gfal2 reads it too, unless it says that it is the other host that it does
/// not connect to; a source that refuses a push may still be read.
fn is_another_way_open(mode: CopyMode, status: u16, detail: &str) -> bool {
    match (status, mode) {
        (400 | 405 | 501, _) | (403, CopyMode::Push) => true,
        (403, CopyMode::Pull | CopyMode::Streamed) => detail.contains(SERVER_NOT_ALLOWED),
        _ => false,
    }
}

/// Whether the active end itself has too much to do: Penstock's door then begins the last line with the status that it
/// would have answered.
fn starts_with_busy(why: &str) -> bool {
    let status = why.split_once(' ').map(|(status, _)| status);
    matches!(status, Some("429" | "503"))
}

/// Whether the passive end has refused the active one because it has too much to do. There is nothing but words to go
/// by.
fn says_that_the_other_is_busy(why: &str) -> bool {
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
        "{}: {what} for {}; the copy was given up",
        active.url,
        TimeSpan(limit)
    );
    classify(
        Side::Network,
        Phase::Transfer,
        &ObservedFailure::TimedOut,
        detail,
    )
}

/// Whose disk it was, where a storage element of ours tells that one failed: its own, or that of the end that refused it.
fn end_of_disk(
    cause: CopyCause,
    told: Option<ProblemCode>,
    active: Side,
    passive: Side,
) -> Option<Side> {
    let is_refused = matches!(cause, CopyCause::Refused(_));
    let is_of_disk = told.is_some_and(|code| code.facts().layer == Layer::Disk);
    is_of_disk.then_some(if is_refused { passive } else { active })
}

/// The last line is followed by the end of the body, after which the connection serves the next copy.
async fn read_to_end(answer: &mut ClientResponse, buffer: &mut [u8]) {
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
    /// Why the copy fails, as the storage element tells before its last line.
    problem: Option<ProblemCode>,
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
            problem: None,
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
                self.problem = marker.problem.or(self.problem);
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
    fn a_door_that_is_busy_itself_says_so_first() {
        let preempted =
            "503 Service Unavailable: ended because somebody else waited for a mover: …";
        assert!(starts_with_busy(preempted));
        let passed_on = "https://se/b answered 503 Service Unavailable: 503 of 503 movers run";
        assert!(!starts_with_busy(passed_on) && says_that_the_other_is_busy(passed_on));
        assert!(!starts_with_busy("503") && !starts_with_busy("5030 bytes came"));
    }

    #[test]
    fn a_name_of_a_file_does_not_make_a_storage_element_busy() {
        let paths = ["/a/too%20many%20requests/answered%20503", "/b"];
        let why = "/a/too many requests/answered 503 failed; /a/too many requests is full";
        let why = without_names(why, paths);
        assert!(!says_that_the_other_is_busy(&why), "{why}");
        assert_eq!(CopyCause::read(&why), CopyCause::Unknown);
        let why = without_names("https://se/b answered 503 Service Unavailable", paths);
        assert!(says_that_the_other_is_busy(&why), "{why}");
    }

    #[test]
    fn a_disk_that_failed_is_that_of_the_end_that_says_so() {
        let of = |cause, code| end_of_disk(cause, code, Side::Destination, Side::Source);
        let disk = Some(ProblemCode::DiskFailed);
        assert_eq!(of(CopyCause::Unknown, disk), Some(Side::Destination));
        assert_eq!(of(CopyCause::Refused(500), disk), Some(Side::Source));
        assert_eq!(of(CopyCause::Unknown, Some(ProblemCode::PoolFull)), None);
        assert_eq!(of(CopyCause::Unknown, None), None);
    }

    #[test]
    fn a_destination_that_refuses_a_user_is_not_tried_in_another_way() {
        let denied = "https://se/f answered COPY (pull) with 403 Forbidden: no right to write /f";
        let other_host =
            "403 Forbidden: this site does not copy to or from cern.ch; ask it to allow that host";
        assert!(!is_another_way_open(CopyMode::Pull, 403, denied));
        assert!(is_another_way_open(CopyMode::Pull, 403, other_host));
        assert!(is_another_way_open(CopyMode::Push, 403, denied));
        for status in [400, 405, 501] {
            assert!(is_another_way_open(CopyMode::Pull, status, ""));
        }
        for status in [401, 404, 409, 500, 503] {
            assert!(!is_another_way_open(CopyMode::Pull, status, ""));
        }
    }
}
