//! Copies through this agent: GET from the source, PUT to the destination, for ends that offer no third-party copy.

use super::gfal::LockedProcess;
use super::http::{End, observe};
use super::steps::{AttemptRun, ChecksumFrom, PreflightFindings};
use http::header::{HeaderName, RETRY_AFTER};
use http::{Method, StatusCode};
use penstock_decide::classify::{ObservedFailure, PutConditions};
use penstock_decide::destination::CopyEnd;
use penstock_model::{
    Access, Bytes, Checksum, Failure, MoverReport, Phase, StreamUse, StreamsReason, TcpSummary,
};
use penstock_protocol::checksum::Hasher;
use penstock_protocol::digest;
use penstock_protocol::http1::client::{
    ClientError, ClientRequest, ClientResponse, Upload, UploadStart,
};
use penstock_protocol::tape::ARCHIVE_METADATA;
use penstock_protocol::tpc::REQUEST_ID;
use std::time::Instant;

/// Bytes held by one streamed copy.
const BUFFER_BYTES: u64 = 1 << 20;
/// Uploads from this size on ask first (RFC 9110 §10.1.1), so that a refusal does not cost the bytes.
const EXPECT_CONTINUE_FROM: u64 = 1 << 20;

/// Where bytes come from, once begun.
pub(super) enum ByteSource<'a> {
    Http(Box<ClientResponse>),
    Gfal(LockedProcess<'a>),
}

/// Where bytes go, once begun.
enum ByteSink<'a> {
    Http(Box<Upload>, PutConditions),
    Gfal(LockedProcess<'a>),
}

impl AttemptRun<'_> {
    /// Moves the bytes through this process, computing their checksum as they pass. At most one of the ends is
    /// reached by gfal2: what needs it at both goes through a gfal process alone.
    pub(super) async fn streamed(
        &self,
        source: &End,
        destination: &End,
        plan: &PreflightFindings,
    ) -> Result<MoverReport, Failure> {
        if let Some(access) = &destination.cloud {
            let _memory = self.upload_memory(plan).await;
            let (reading, _) = self.begin_reading(source, plan).await?;
            return self
                .stream_to_cloud(source, reading, destination, access, plan)
                .await;
        }
        let (mut reading, length) = self.begin_reading(source, plan).await?;
        let mut writing = self.begin_writing(destination, plan, length).await?;
        let capacity = length.unwrap_or(BUFFER_BYTES).clamp(1, BUFFER_BYTES);
        let mut report = MoverReport {
            streams: Some(StreamUse {
                asked: self.assignment.parameters.streams,
                used: 1,
                buffer: Bytes(capacity),
                because: vec![StreamsReason::ThroughService],
                ..StreamUse::default()
            }),
            ..MoverReport::default()
        };
        let mut hasher = Hasher::new(&[self.algorithm()]);
        let mut buffer = vec![0u8; capacity as usize];
        loop {
            let begun = Instant::now();
            let count = match &mut writing {
                // A process that has died is not left alone with a source that is slow.
                ByteSink::Gfal(held) => tokio::select! {
                    read = self.read_piece(source, &mut reading, &mut buffer) => read?,
                    failure = self.gfal_write_gives_up(held) => return Err(failure),
                },
                ByteSink::Http(..) => self.read_piece(source, &mut reading, &mut buffer).await?,
            };
            report.stages.source_read_us += begun.elapsed().as_micros() as u64;
            if count == 0 {
                break;
            }
            let begun = Instant::now();
            hasher.update(&buffer[..count]);
            report.stages.checksum_us += begun.elapsed().as_micros() as u64;
            let begun = Instant::now();
            match &mut writing {
                ByteSink::Http(upload, conditions) => {
                    let written = upload.write_all(&buffer[..count]).await;
                    written
                        .map_err(|why| self.upload_failure(destination, &why, plan, *conditions))?;
                }
                ByteSink::Gfal(held) => self.write_gfal_piece(held, Some(&buffer[..count])).await?,
            }
            report.stages.network_us += begun.elapsed().as_micros() as u64;
            report.moved.0 += count as u64;
            self.progress.add_moved(count as u64);
        }
        if let Some(size) = plan.size
            && size != report.moved
        {
            let detail = format!(
                "Source and destination file size mismatch: {} gave {} bytes of {}",
                source.url, report.moved.0, size.0
            );
            return Err(source.failure(Phase::Transfer, &ObservedFailure::SizeMismatch, detail));
        }
        let begun = Instant::now();
        report.checksum = hasher.finish().into_iter().next();
        match writing {
            ByteSink::Http(upload, conditions) => {
                let sent = report.checksum.as_ref();
                let finished = self.finish_upload(destination, *upload, plan, conditions, sent);
                report.tcp = finished.await?;
            }
            ByteSink::Gfal(mut held) => self.write_gfal_piece(&mut held, None).await?,
        }
        report.stages.commit_us += begun.elapsed().as_micros() as u64;
        Ok(report)
    }

    /// Asks for the file: its bytes, and how many there are as far as the source tells.
    async fn begin_reading(
        &self,
        source: &End,
        plan: &PreflightFindings,
    ) -> Result<(ByteSource<'_>, Option<u64>), Failure> {
        if source.url.access() == Access::Gfal {
            let held = self.begin_gfal_read(source).await?;
            return Ok((ByteSource::Gfal(held), plan.size.map(|size| size.0)));
        }
        let incoming = match &source.cloud {
            Some(access) => self.open_object(source, access).await?,
            None => {
                let mut headers = source.headers()?;
                headers.insert(REQUEST_ID, self.copy_name());
                let get = ClientRequest {
                    method: Method::GET,
                    url: source.parsed.clone(),
                    headers,
                    identity: source.identity(),
                };
                let sent = self.setup.client.send_following(get).await;
                sent.map_err(|why| source.client_failure(Phase::Transfer, &why))?
            }
        };
        if incoming.status.as_u16() != 200 {
            return Err(source.refused(Phase::Transfer, "GET", incoming).await);
        }
        let length = incoming.content_length();
        if let (Some(length), Some(Bytes(size))) = (length, plan.size)
            && length != size
        {
            let detail = format!(
                "Source and destination file size mismatch: {} announces {length} bytes, was {size}",
                source.url
            );
            return Err(source.failure(Phase::Transfer, &ObservedFailure::SizeMismatch, detail));
        }
        if incoming.ends_by_closing() && plan.size.is_none() && plan.checksum.is_none() {
            let detail = format!(
                "{} reports neither the size nor a checksum of the file, so its end cannot be distinguished from a broken \
                 connection",
                source.url
            );
            return Err(source.failure(Phase::Transfer, &ObservedFailure::Malformed, detail));
        }
        Ok((ByteSource::Http(Box::new(incoming)), length))
    }

    /// The next bytes; 0 at the end.
    pub(super) async fn read_piece(
        &self,
        source: &End,
        reading: &mut ByteSource<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, Failure> {
        match reading {
            ByteSource::Http(incoming) => read_some(incoming, buffer)
                .await
                .map_err(|why| source_broke(source, &why)),
            ByteSource::Gfal(held) => self.next_gfal_piece(held, buffer).await,
        }
    }

    /// Makes the destination ready to take bytes.
    async fn begin_writing(
        &self,
        destination: &End,
        plan: &PreflightFindings,
        length: Option<u64>,
    ) -> Result<ByteSink<'_>, Failure> {
        if destination.url.access() == Access::Gfal {
            let held = self.begin_gfal_write(destination, plan).await?;
            return Ok(ByteSink::Gfal(held));
        }
        let mut headers = destination.headers()?;
        headers.insert(REQUEST_ID, self.copy_name());
        // What only the user says is compared where the job asks for it.
        let counts = match plan.checksum_from {
            ChecksumFrom::User | ChecksumFrom::UserAgainstSource => self.verifies_target(),
            ChecksumFrom::Source | ChecksumFrom::UserAndSource => true,
        };
        let expected = plan.checksum.as_ref().filter(|_| counts);
        let conditions = PutConditions {
            absent: !plan.replaces,
            checksum: expected.is_some(),
        };
        if let Some(expected) = expected {
            headers.insert(
                HeaderName::from_static("digest"),
                digest::header_value(std::slice::from_ref(expected)),
            );
        }
        if !plan.replaces {
            headers.insert(
                http::header::IF_NONE_MATCH,
                http::HeaderValue::from_static("*"),
            );
        }
        if let Some(note) = self.archive_note() {
            headers.insert(ARCHIVE_METADATA, note);
        }
        let put = ClientRequest {
            method: Method::PUT,
            url: destination.parsed.clone(),
            headers,
            identity: destination.identity(),
        };
        let asks = length.is_none_or(|length| length >= EXPECT_CONTINUE_FROM);
        let started = self.setup.client.start_upload(put, length, asks).await;
        let started =
            started.map_err(|why| self.upload_failure(destination, &why, plan, conditions))?;
        match started {
            UploadStart::Ready(upload) => Ok(ByteSink::Http(Box::new(upload), conditions)),
            UploadStart::Answered(answer) => Err(self
                .put_refused(destination, answer, plan, conditions, None)
                .await),
        }
    }

    /// Ends an upload: only the answer tells that the file is there.
    async fn finish_upload(
        &self,
        destination: &End,
        upload: Upload,
        plan: &PreflightFindings,
        conditions: PutConditions,
        sent: Option<&Checksum>,
    ) -> Result<Option<TcpSummary>, Failure> {
        let finished = upload.finish().await;
        let answer =
            finished.map_err(|why| self.upload_failure(destination, &why, plan, conditions))?;
        if !answer.status.is_success() {
            return Err(self
                .put_refused(destination, answer, plan, conditions, sent)
                .await);
        }
        Ok(answer.tcp_info())
    }

    /// The destination does not take the file; `sent` is the checksum of all that was sent.
    async fn put_refused(
        &self,
        destination: &End,
        answer: ClientResponse,
        plan: &PreflightFindings,
        conditions: PutConditions,
        sent: Option<&Checksum>,
    ) -> Failure {
        let status = answer.status;
        let names_time = answer.headers.contains_key(RETRY_AFTER);
        let mut observed = ObservedFailure::Status(status.as_u16());
        let failure = destination.refused_as(Phase::Transfer, "PUT", answer, |text| {
            if status == StatusCode::PRECONDITION_FAILED {
                observed = conditions.failed(text);
            }
            observed.clone()
        });
        let failure = failure.await;
        match observed {
            ObservedFailure::ChecksumMismatch => {
                self.note_end(CopyEnd::Refused);
                self.checksum_refused(plan, sent, &failure.detail)
            }
            _ => {
                self.note_refusal(status, !names_time);
                failure
            }
        }
    }

    fn upload_failure(
        &self,
        destination: &End,
        error: &ClientError,
        plan: &PreflightFindings,
        conditions: PutConditions,
    ) -> Failure {
        if let ClientError::EarlyAnswer { status, detail, .. } = error {
            self.note_refusal(*status, false);
            if *status == StatusCode::PRECONDITION_FAILED
                && conditions.failed(detail) == ObservedFailure::ChecksumMismatch
            {
                self.note_end(CopyEnd::Refused);
                return self.checksum_refused(plan, None, &error.to_string());
            }
        }
        destination.client_failure(Phase::Transfer, error)
    }

    /// `may_be_between`: a server in between may have said so, as of a COPY.
    fn note_refusal(&self, status: StatusCode, may_be_between: bool) {
        let is_doubtful = status == StatusCode::SERVICE_UNAVAILABLE && may_be_between;
        let has_moved = self.progress.moved() > 0 || is_doubtful;
        self.note_end(CopyEnd::of_status(status.as_u16(), has_moved));
    }
}

/// Fills the buffer as far as the source gives bytes, so that writes are large.
async fn read_some(incoming: &mut ClientResponse, buffer: &mut [u8]) -> Result<usize, ClientError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match incoming.read(&mut buffer[filled..]).await? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// The source stopped giving bytes.
fn source_broke(source: &End, error: &ClientError) -> Failure {
    source.failure(
        Phase::Transfer,
        &observe(error),
        format!("{}: {error}", source.url),
    )
}
