//! Copies through this agent into a cloud storage: small files in one piece, others in parts.
//!
//! An upload in parts is noted on disk before its first part is sent, so that a restart can end what a crash left. Each
//! part is held until the server has it, with its MD5 in the request, by which the server checks it (S3 API,
//! UploadPart); what of the whole file nobody there can check is the checksum of the bytes as they passed here.

use super::cloud::{S3Answer, S3Refusal, UnsignedRequest};
use super::cloud_access::CloudAccess;
use super::http::End;
use super::steps::{AttemptRun, PreflightFindings};
use super::streamed::ByteSource;
use super::{AgentSetup, UPLOAD_MEMORY_MIB};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method};
use openssl::hash::{MessageDigest, hash};
use penstock_clock::wall_clock;
use penstock_decide::classify::ObservedFailure;
use penstock_decide::destination::CopyEnd;
use penstock_model::{
    Bytes, Checksum, Failure, MoverReport, Phase, Retry, Side, StreamUse, StreamsReason,
    Verification,
};
use penstock_persistence::delegations::CloudUpload;
use penstock_protocol::checksum::Hasher;
use penstock_protocol::http1::client::ClientResponse;
use penstock_protocol::s3::{
    BODY_BYTES_MAX, PARTS_MAX, S3Error, completed, completion_body, metadata_name, upload_id,
};
use std::time::{Duration, Instant};
use tokio::sync::SemaphorePermit;
use url::Url;

const MIB: u64 = 1 << 20;
/// Bytes of a part, unless the file needs larger ones.
const PART_BYTES: u64 = 16 * MIB;
/// The same, where the size is not known: enough for 625 GiB.
const PART_BYTES_UNKNOWN: u64 = 64 * MIB;
/// How often a part is sent that the server cannot take at the moment.
const PART_TRIES: u32 = 4;
/// The pause before the second try; it doubles. A server that asks for a longer one gets it, up to the largest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Uploads of transfers that have ended which are looked after at once.
const FORGOTTEN_MAX: usize = 100;
/// An upload that could not be ended for so long is given up.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(30 * 86_400);

/// The size of each part but the last.
fn part_bytes(size: Option<Bytes>) -> u64 {
    match size {
        Some(Bytes(size)) => {
            let needed = size.div_ceil(PARTS_MAX).div_ceil(MIB) * MIB;
            needed.max(PART_BYTES)
        }
        None => PART_BYTES_UNKNOWN,
    }
}

/// A request that was not answered as it should be.
struct UnansweredRequest {
    failure: Failure,
    /// One of its tries had no answer, or one that does not tell whether the server has done it.
    may_have_acted: bool,
}

impl From<UnansweredRequest> for Failure {
    fn from(unanswered: UnansweredRequest) -> Failure {
        unanswered.failure
    }
}

/// One upload while it runs.
struct PartUpload<'a> {
    attempting: &'a AttemptRun<'a>,
    end: &'a End,
    access: &'a CloudAccess,
    plan: &'a PreflightFindings,
}

impl AttemptRun<'_> {
    /// Memory for the parts of a file. Taken before the source is asked, so that it need not wait with its answer.
    pub(super) async fn upload_memory(&self, plan: &PreflightFindings) -> SemaphorePermit<'_> {
        let part = part_bytes(plan.size);
        // One is sent while the next one comes.
        let bytes = plan.size.map_or(2 * part, |size| size.0.min(2 * part));
        let mib = u32::try_from(bytes.div_ceil(MIB)).unwrap_or(u32::MAX);
        let memory = &self.setup.memory.uploading;
        let permits = mib.clamp(1, UPLOAD_MEMORY_MIB);
        memory.acquire_many(permits).await.expect("never closed")
    }

    /// Reads the source to its end and stores what comes.
    pub(super) async fn stream_to_cloud(
        &self,
        source: &End,
        mut reading: ByteSource<'_>,
        destination: &End,
        access: &CloudAccess,
        plan: &PreflightFindings,
    ) -> Result<MoverReport, Failure> {
        let uploading = PartUpload {
            attempting: self,
            end: destination,
            access,
            plan,
        };
        let part = part_bytes(plan.size);
        let mut passing = PartStream::new(self, part);
        let first = passing.next(source, &mut reading, plan.size).await?;
        let is_whole = (first.len() as u64) < part || plan.size == Some(Bytes(first.len() as u64));
        if is_whole {
            let checksums = passing.whole(source, plan)?;
            uploading.put(&first, &checksums, &mut passing).await?;
        } else {
            uploading
                .in_parts(source, &mut reading, first, &mut passing)
                .await?;
        }
        Ok(passing.report)
    }

    /// Ends the uploads in parts that attempts of this transfer have begun and not ended. True: none is left.
    pub(super) async fn abort_uploads(&self, access: &CloudAccess) -> bool {
        let transfer = self.assignment.request.id;
        self.setup.abort_uploads_of(transfer, access).await
    }
}

impl AgentSetup {
    async fn abort_uploads_of(
        &self,
        transfer: penstock_model::TransferId,
        access: &CloudAccess,
    ) -> bool {
        let store = self.delegations.clone();
        let found =
            tokio::task::spawn_blocking(move || store.uploads(Some(transfer), FORGOTTEN_MAX));
        let Ok(Ok(uploads)) = found.await else {
            return false;
        };
        let mut all = true;
        for upload in uploads {
            all &= self.abort_upload(access, upload).await;
        }
        all
    }

    async fn abort_upload(&self, access: &CloudAccess, upload: CloudUpload) -> bool {
        let Ok(url) = Url::parse(&upload.url) else {
            return self.forget_upload(upload).await;
        };
        let query = [("uploadId", upload.upload.as_str())];
        let abort = UnsignedRequest {
            query: &query,
            ..UnsignedRequest::new(Method::DELETE)
        };
        let gone = match self.ask_cloud(&access.at(url), &abort).await {
            Ok(S3Answer::Yes(_)) => true,
            Ok(S3Answer::No(refused)) => refused.status == 404,
            Err(_) => false,
        };
        match gone {
            true => self.forget_upload(upload).await,
            false => {
                tracing::warn!(transfer = upload.transfer.0, url = %upload.url, "an upload in parts could not be ended; it is tried again");
                false
            }
        }
    }

    async fn forget_upload(&self, upload: CloudUpload) -> bool {
        let store = self.delegations.clone();
        let forget = move || store.forget_upload(upload.transfer, &upload.upload);
        matches!(tokio::task::spawn_blocking(forget).await, Ok(Ok(())))
    }

    /// Ends uploads of transfers that have ended: those that could not be ended in their time.
    pub(crate) async fn end_forgotten_uploads(&self) {
        let store = self.delegations.clone();
        let found = tokio::task::spawn_blocking(move || store.uploads(None, FORGOTTEN_MAX));
        let Ok(Ok(uploads)) = found.await else {
            return;
        };
        for upload in uploads {
            let (reader, transfer) = (self.reader.clone(), upload.transfer);
            let row = tokio::task::spawn_blocking(move || reader.transfer(transfer)).await;
            let Ok(Ok(row)) = row else { continue };
            match row {
                // Its own attempts look after it.
                Some(row) if row.finished_at.is_none() => {}
                Some(row) => {
                    let url = &row.request.destination;
                    let access = self.cloud_access(row.job, url, Side::Destination).await;
                    let gone = match &access {
                        Ok(access) => self.abort_upload(access, upload.clone()).await,
                        Err(_) => false,
                    };
                    // What is forgotten here stays there for ever: not on the word of a clock that is doubted.
                    let is_old = upload.begun + GIVEN_UP_AFTER < wall_clock();
                    if !gone && is_old && self.tokens.clock().is_credible() {
                        tracing::warn!(url = %upload.url, upload = %upload.upload, "an upload in parts could not be ended for 30 days; end it there (AbortMultipartUpload)");
                        self.forget_upload(upload).await;
                    }
                }
                None => {
                    self.forget_upload(upload).await;
                }
            }
        }
    }
}

/// The bytes on their way, and what is known of them so far.
struct PartStream<'a> {
    attempting: &'a AttemptRun<'a>,
    hasher: Option<Hasher>,
    report: MoverReport,
    part_bytes: u64,
    /// The source has no more.
    has_ended: bool,
}

impl<'a> PartStream<'a> {
    fn new(attempting: &'a AttemptRun<'a>, part_bytes: u64) -> PartStream<'a> {
        let streams = StreamUse {
            asked: attempting.assignment.parameters.streams,
            used: 1,
            buffer: Bytes(part_bytes),
            because: vec![StreamsReason::ThroughService],
            ..StreamUse::default()
        };
        PartStream {
            attempting,
            hasher: Some(Hasher::new(&[attempting.algorithm()])),
            report: MoverReport {
                streams: Some(streams),
                verified: Some(Verification::InPassing),
                ..MoverReport::default()
            },
            part_bytes,
            has_ended: false,
        }
    }

    /// The next part; empty at the end. Not more than the size that was told.
    async fn next(
        &mut self,
        source: &End,
        reading: &mut ByteSource<'_>,
        size: Option<Bytes>,
    ) -> Result<Vec<u8>, Failure> {
        let left = size.map_or(self.part_bytes, |size| {
            size.0.saturating_sub(self.report.moved.0)
        });
        // One byte more than there should be shows a source that gives too much.
        let room = left.saturating_add(1).min(self.part_bytes);
        let mut part = vec![0; usize::try_from(room).unwrap_or(usize::MAX)];
        let begun = Instant::now();
        let mut count = 0;
        while !self.has_ended && count < part.len() {
            let piece = self
                .attempting
                .read_piece(source, reading, &mut part[count..]);
            match piece.await? {
                0 => self.has_ended = true,
                more => count += more,
            }
        }
        self.report.stages.source_read_us += begun.elapsed().as_micros() as u64;
        part.truncate(count);
        let begun = Instant::now();
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&part);
        }
        self.report.stages.checksum_us += begun.elapsed().as_micros() as u64;
        self.report.moved.0 += count as u64;
        Ok(part)
    }

    /// The source has ended: whether what came is the file, by size and checksum, before anybody can see it at the
    /// destination.
    fn whole(&mut self, source: &End, plan: &PreflightFindings) -> Result<Vec<Checksum>, Failure> {
        if let Some(size) = plan.size
            && size != self.report.moved
        {
            let detail = format!(
                "Source and destination file size mismatch: {} gave {} bytes of {}",
                source.url, self.report.moved.0, size.0
            );
            return Err(source.failure(Phase::Transfer, &ObservedFailure::SizeMismatch, detail));
        }
        let found = self.hasher.take().map(Hasher::finish).unwrap_or_default();
        self.report.checksum = found.first().cloned();
        if let Some(expected) = &plan.checksum
            && let Some(other) = found
                .iter()
                .find(|sum| sum.algorithm() == expected.algorithm() && *sum != expected)
        {
            let detail = format!(
                "Source and destination checksum do not match ({} != {}): {} gave other bytes; nothing was stored",
                expected.hex(),
                other.hex(),
                source.url
            );
            let observed = ObservedFailure::ChecksumMismatch;
            return Err(self.attempting.network_failure(&observed, detail));
        }
        Ok(found)
    }
}

impl PartUpload<'_> {
    fn setup(&self) -> &AgentSetup {
        self.attempting.setup
    }

    /// Notes checksums with the object, for those S3 does not compute.
    fn noted(&self, checksums: &[Checksum]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for checksum in checksums {
            let name = HeaderName::from_static(metadata_name(checksum.algorithm()));
            if let Ok(value) = HeaderValue::from_str(checksum.hex()) {
                headers.insert(name, value);
            }
        }
        headers
    }

    /// Sends a request whose body is in memory, and again when the server cannot take it at the moment.
    async fn send(
        &self,
        what: &str,
        ask: &UnsignedRequest<'_>,
    ) -> Result<ClientResponse, UnansweredRequest> {
        let mut pause = PAUSE;
        let mut may_have_acted = false;
        for tried in 1.. {
            let said = self.setup().ask_cloud(self.access, ask).await;
            let (again, failure) = match said {
                Ok(S3Answer::Yes(answer)) => return Ok(*answer),
                // What stands in the way may be what an earlier try has made, and what is gone its upload.
                Ok(S3Answer::No(refused))
                    if may_have_acted && matches!(refused.status, 404 | 409 | 412) =>
                {
                    let failure =
                        self.end
                            .cloud_failure(self.access, Phase::Transfer, what, &refused);
                    return Err(UnansweredRequest {
                        failure,
                        may_have_acted,
                    });
                }
                Ok(S3Answer::No(refused)) => {
                    let again = matches!(refused.status, 429 | 500 | 502 | 503 | 504);
                    may_have_acted |= matches!(refused.status, 500 | 502 | 504);
                    let asked = refused.retry_after.map(Duration::from_secs);
                    pause = pause.max(asked.unwrap_or_default()).min(PAUSE_MAX);
                    (again, self.refused(what, &refused))
                }
                Err(why) => {
                    may_have_acted = true;
                    (true, self.end.client_failure(Phase::Transfer, &why))
                }
            };
            if !again || tried >= PART_TRIES {
                return Err(UnansweredRequest {
                    failure,
                    may_have_acted,
                });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        unreachable!("it returns before it has tried for ever")
    }

    fn refused(&self, what: &str, refused: &S3Refusal) -> Failure {
        if refused.status == 412 {
            self.attempting.note_end(CopyEnd::Occupied);
        }
        let failure = self
            .end
            .cloud_failure(self.access, Phase::Transfer, what, refused);
        match refused.status {
            412 => {
                let detail = "Destination file exists and overwrite is not enabled";
                self.end
                    .failure(Phase::Transfer, &ObservedFailure::Exists, detail)
            }
            _ => failure,
        }
    }

    /// Stores a small file in one piece.
    async fn put(
        &self,
        body: &[u8],
        checksums: &[Checksum],
        passing: &mut PartStream<'_>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut ask = UnsignedRequest {
            headers: self.noted(checksums),
            body: Some(body),
            ..UnsignedRequest::new(Method::PUT)
        };
        content_md5(&mut ask.headers, body);
        self.unless_it_exists(&mut ask.headers);
        match self.send("PUT", &ask).await {
            Ok(answer) => passing.report.tcp = answer.tcp_info(),
            Err(unanswered) => self.find_stored(unanswered, &passing.report).await?,
        }
        passing.report.stages.network_us += begun.elapsed().as_micros() as u64;
        self.attempting.progress.add_moved(body.len() as u64);
        Ok(())
    }

    /// What an unanswered request may have stored is the file if its size and checksum are those of what was sent.
    /// Otherwise the next attempt looks whose it is.
    async fn find_stored(
        &self,
        unanswered: UnansweredRequest,
        sent: &MoverReport,
    ) -> Result<(), Failure> {
        let UnansweredRequest {
            mut failure,
            may_have_acted,
        } = unanswered;
        if !may_have_acted {
            return Err(failure);
        }
        let algorithm = self.attempting.algorithm();
        let seen = self
            .setup()
            .stat_object(self.end, self.access, algorithm, Phase::Transfer)
            .await;
        let there = seen.ok().and_then(|seen| seen.there);
        if let (Some(there), Some(sum)) = (&there, &sent.checksum)
            && there.size == Some(sent.moved)
            && there.checksum.as_ref() == Some(sum)
        {
            return Ok(());
        }
        self.attempting.await_look();
        failure.retry = Retry::Later;
        failure.detail += "; an earlier try of the same request may have stored the file";
        Err(failure)
    }

    /// S3 compares that in one step with the write; servers that do not know it do not look.
    fn unless_it_exists(&self, headers: &mut HeaderMap) {
        if !self.plan.replaces {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
    }

    async fn in_parts(
        &self,
        source: &End,
        reading: &mut ByteSource<'_>,
        first: Vec<u8>,
        passing: &mut PartStream<'_>,
    ) -> Result<(), Failure> {
        let upload = self.begin().await?;
        let mut tags = Vec::new();
        let mut part = first;
        while !part.is_empty() {
            if tags.len() as u64 == PARTS_MAX {
                let detail = format!(
                    "{} gives more than {PARTS_MAX} parts of {} bytes and did not tell its size; submit with its \
                     'filesize'",
                    source.url, passing.part_bytes
                );
                return Err(source.failure(Phase::Transfer, &ObservedFailure::Malformed, detail));
            }
            let begun = Instant::now();
            let number = tags.len() + 1;
            let (sent, next) = tokio::join!(
                self.part(&upload, number, &part),
                passing.next(source, reading, self.plan.size)
            );
            tags.push(sent?);
            passing.report.stages.network_us += begun.elapsed().as_micros() as u64;
            self.attempting.progress.add_moved(part.len() as u64);
            part = next?;
        }
        passing.whole(source, self.plan)?;
        let begun = Instant::now();
        self.complete(&upload, &tags, &passing.report).await?;
        passing.report.stages.commit_us += begun.elapsed().as_micros() as u64;
        self.setup().forget_upload(upload).await;
        Ok(())
    }

    /// Begins an upload in parts, and has it noted on disk.
    async fn begin(&self) -> Result<CloudUpload, Failure> {
        let expected: Vec<Checksum> = self.plan.checksum.iter().cloned().collect();
        let ask = UnsignedRequest {
            query: &[("uploads", "")],
            headers: self.noted(&expected),
            ..UnsignedRequest::new(Method::POST)
        };
        let mut answer = self.send("the begin of an upload in parts", &ask).await?;
        let body = answer.read_all(BODY_BYTES_MAX).await;
        let body = body.map_err(|why| self.end.client_failure(Phase::Transfer, &why))?;
        let id = upload_id(&body).ok_or_else(|| {
            let detail = format!("{} gave an upload in parts no id", self.end.url);
            self.end
                .failure(Phase::Transfer, &ObservedFailure::Malformed, detail)
        })?;
        let upload = CloudUpload {
            transfer: self.attempting.assignment.request.id,
            upload: id,
            url: self.access.url().to_string(),
            begun: wall_clock(),
        };
        let (store, noted) = (self.setup().delegations.clone(), upload.clone());
        let noted = tokio::task::spawn_blocking(move || store.note_upload(&noted)).await;
        match noted {
            Ok(Ok(())) => Ok(upload),
            Ok(Err(why)) => Err(self.unnoted(&upload, why.to_string()).await),
            Err(why) => Err(self.unnoted(&upload, why.to_string()).await),
        }
    }

    /// What cannot be noted is not begun.
    async fn unnoted(&self, upload: &CloudUpload, why: String) -> Failure {
        self.setup().abort_upload(self.access, upload.clone()).await;
        let detail = format!("an upload in parts cannot be noted on disk: {why}");
        penstock_decide::classify::classify(
            Side::Service,
            Phase::Transfer,
            &ObservedFailure::Broken,
            detail,
        )
    }

    async fn part(
        &self,
        upload: &CloudUpload,
        number: usize,
        body: &[u8],
    ) -> Result<String, Failure> {
        let number = number.to_string();
        let mut ask = UnsignedRequest {
            query: &[("partNumber", &number), ("uploadId", &upload.upload)],
            body: Some(body),
            ..UnsignedRequest::new(Method::PUT)
        };
        content_md5(&mut ask.headers, body);
        let answer = self.send(&format!("part {number}"), &ask).await?;
        let tag = answer.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
        tag.filter(|tag| tag.len() <= 256)
            .map(str::to_owned)
            .ok_or_else(|| {
                let detail = format!("{} gave part {number} no entity tag", self.end.url);
                self.end
                    .failure(Phase::Transfer, &ObservedFailure::Malformed, detail)
            })
    }

    async fn complete(
        &self,
        upload: &CloudUpload,
        tags: &[String],
        sent: &MoverReport,
    ) -> Result<(), Failure> {
        let body = completion_body(tags);
        let mut ask = UnsignedRequest {
            query: &[("uploadId", &upload.upload)],
            body: Some(body.as_bytes()),
            ..UnsignedRequest::new(Method::POST)
        };
        ask.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        self.unless_it_exists(&mut ask.headers);
        let what = "the end of an upload in parts";
        let mut answer = match self.send(what, &ask).await {
            Ok(answer) => answer,
            Err(unanswered) => return self.find_stored(unanswered, sent).await,
        };
        let status = answer.status.as_u16();
        let body = match answer.read_all(BODY_BYTES_MAX).await {
            Ok(body) => body,
            Err(why) => {
                let broken = UnansweredRequest {
                    failure: self.end.client_failure(Phase::Transfer, &why),
                    may_have_acted: true,
                };
                return self.find_stored(broken, sent).await;
            }
        };
        completed(&body).map_err(|error: S3Error| {
            let status = match error.code.as_str() {
                "PreconditionFailed" => 412,
                _ => status,
            };
            let refused = S3Refusal {
                status,
                error,
                retry_after: None,
                date: None,
            };
            self.refused(what, &refused)
        })
    }
}

/// By which the server checks what came. Without MD5 (FIPS) the request's signature covers the body instead.
fn content_md5(headers: &mut HeaderMap, body: &[u8]) {
    if let Ok(digest) = hash(MessageDigest::md5(), body)
        && let Ok(value) = HeaderValue::from_str(&STANDARD.encode(digest))
    {
        headers.insert(HeaderName::from_static("content-md5"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_needs_more_parts_than_there_may_be() {
        let check = |size: Option<u64>, expected: u64| {
            assert_eq!(part_bytes(size.map(Bytes)), expected * MIB, "{size:?}");
        };
        check(None, 64);
        check(Some(0), 16);
        check(Some(160_000 * MIB), 16);
        check(Some(160_000 * MIB + 1), 17);
        check(Some(5 << 40), 525);
    }
}
