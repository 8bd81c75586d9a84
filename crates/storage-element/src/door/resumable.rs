//! Uploads in several requests, as the IETF draft "Resumable Uploads for HTTP" has them
//! (draft-ietf-httpbis-resumable-upload): a PUT with `Upload-Complete: ?0` begins one and is told its address,
//! PATCH appends to it, HEAD asks how much is durable, DELETE gives it up. The file appears with the last piece, under
//! the rules of PUT.

use super::answer::{Problem, Reply, Response};
use super::conditions;
use super::document_body::known_length;
use super::handler_context::{Call, Door};
use super::slot::{NoMover, mover_for_body};
use super::wanted_digest::WantedDigest;
use super::write::{body_code, stored_answer};
use super::write_ticket::{AbsenceDemand, WriteConditions, WritePurpose, WriteRequest};
use super::{html, reserved};
use crate::clock::microseconds;
use crate::mover::{Mover, MoverRequest};
use crate::pool_write::BUFFER_BYTES;
use crate::reaper::REMOVAL_WAIT;
use crate::storage::Storage;
use crate::uploads::{CHECKPOINT_BYTES, Plan, Progress, Upload};
use crate::write_error::WriteError;
use http::header::{CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use penstock_decide::admission::PreemptionReason;
use penstock_decide::authorization::PathOperation;
use penstock_model::{Checksum, ChecksumAlgorithm, NamespacePath, ProblemCode, Timestamp};
use penstock_persistence::namespace::{EntryId, MoverKind, MoverOutcome};
use penstock_protocol::digest;
use penstock_protocol::http1::server::{BodyError, Connection, Request};
use penstock_protocol::resumable::{
    InvalidUploadHeader, PARTIAL_UPLOAD, UPLOAD_COMPLETE, UPLOAD_LENGTH, UPLOAD_LIMIT,
    UPLOAD_OFFSET, is_complete, length, offset as offset_of,
};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

const TAKEN_OVER: &str = "another request has continued this upload";

/// Which upload a reserved path names.
pub(super) fn upload_of(path: &NamespacePath) -> Option<Uuid> {
    match reserved::rest_of(path)? {
        [uploads, id] if uploads == "uploads" => Uuid::parse_str(id).ok(),
        _ => None,
    }
}

/// Whether a PUT brings only a part. One that says it is complete is a PUT like any other.
pub(super) fn begins_upload(request: &Request) -> bool {
    request
        .headers
        .get(UPLOAD_COMPLETE)
        .is_some_and(|value| value.as_bytes().trim_ascii() != b"?1")
}

/// What `OPTIONS` tells of uploads: that they can be begun, and how long an unfinished one stays.
pub(super) fn offered(door: &Door) -> HeaderValue {
    let left = door.storage.settings().limits.upload_expiry.as_secs();
    HeaderValue::from_str(&format!("min-size=0, max-age={left}")).expect("digits are visible ASCII")
}

pub(super) async fn begin(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    is_complete(&request.headers).map_err(invalid_header)?;
    let write = WriteRequest {
        door,
        caller,
        path,
        encoded: Some(request.path()),
        purpose: WritePurpose::File,
        absence: AbsenceDemand::of(&request.headers),
    };
    let target = write.authorize()?.target()?;
    let length = length(&request.headers).map_err(invalid_header)?;
    let expected = whole_digests(&request.headers)?;
    let terms = target.conditions(WriteConditions::Request(call))?;
    let plan = Plan {
        path: path.clone(),
        user: caller.user(),
        holder: caller.holder(),
        macaroon: caller.macaroon().map(str::to_owned),
        length,
        must_be_absent: conditions::demands_absence(&request.headers),
        only: terms.only(),
        expected,
    };
    let ticket = terms.claim()?.locks(call)?;
    check_user_limits(door, &plan)?;
    let order = ticket.pool(plan.length)?.upload(plan);
    let storage = Arc::clone(&door.storage);
    let upload = tokio::task::spawn_blocking(move || {
        let upload = storage.begin_upload(order)?;
        Ok(UnannouncedUpload {
            storage: Arc::clone(&storage),
            upload: Some(upload),
        })
    });
    let unannounced = upload
        .await
        .map_err(|why| begin_failed(&why))?
        .map_err(|why| of_write(&why))?;
    let upload = Arc::clone(unannounced.upload());
    let mut progress = upload.take().await.ok_or_else(|| missing(upload.id))?;
    if known_length(&request.body) != Some(0) {
        let appended = append(door, connection, call, &upload, &mut progress).await;
        if let Err(problem) = appended {
            // Whoever discards it needs the turn.
            drop(progress);
            return Err(problem);
        }
    }
    unannounced.keep();
    let place = format!("/.penstock/uploads/{}", upload.id);
    let place = HeaderValue::from_str(&place).expect("hexadecimal digits are visible ASCII");
    let mut answer = Response::new(StatusCode::CREATED).with(LOCATION, place);
    set_upload_headers(door, &mut answer, &upload, &progress);
    Ok(answer.into())
}

/// An upload whose client does not know where to go on. Dropped, it takes the upload with it.
struct UnannouncedUpload {
    storage: Arc<Storage>,
    upload: Option<Arc<Upload>>,
}

impl UnannouncedUpload {
    fn upload(&self) -> &Arc<Upload> {
        self.upload.as_ref().expect("taken only by `keep`")
    }

    /// The client is about to be told.
    fn keep(mut self) {
        self.upload = None;
    }
}

impl Drop for UnannouncedUpload {
    fn drop(&mut self) {
        if let Some(upload) = &self.upload {
            let reaper = self.storage.reaper();
            self.storage.uploads.discard_unannounced(upload, &reaper);
        }
    }
}

/// Refuses a user who has begun too much.
fn check_user_limits(door: &Door, plan: &Plan) -> Result<(), Problem> {
    let limits = &door.storage.settings().limits;
    let begun = door.storage.uploads.of(plan.whose());
    if begun.uploads >= limits.uploads_per_user_max {
        return Err(Problem::new(
            ProblemCode::UploadsTooMany,
            format!(
                "you have {} unfinished uploads; finish or delete some, or wait until they expire",
                begun.uploads
            ),
        ));
    }
    let bytes = begun.bytes.saturating_add(plan.length.unwrap_or(0));
    match bytes > limits.upload_bytes_per_user_max.0 {
        true => Err(too_many_bytes(bytes)),
        false => Ok(()),
    }
}

fn too_many_bytes(bytes: u64) -> Problem {
    Problem::new(
        ProblemCode::UploadsTooLarge,
        format!(
            "your unfinished uploads would take {bytes} bytes, more than the site allows; finish some"
        ),
    )
}

/// HEAD, PATCH and DELETE of an upload. Whoever asks takes it over from a request that may have been forgotten by its
/// client, so that what is told stays true.
pub(super) async fn resource(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    id: Uuid,
) -> Result<Reply, Problem> {
    // The same whether there is such an upload or not.
    let Some(holder) = call.caller.holder() else {
        let text = "an upload belongs to the user who started it; send the same token, or use the same certificate";
        return Err(call.caller.unknown(text.to_owned()));
    };
    let upload = door.storage.uploads.get(id);
    let upload = upload
        .filter(|upload| upload.plan.is_open_to(&holder, call.caller.macaroon()))
        .ok_or_else(|| missing(id))?;
    let path = &upload.plan.path;
    if !door.allows(call.caller, &PathOperation::Modify, path) {
        door.permit(call.caller, &PathOperation::Create, path)?;
    }
    let method = call.request.method.as_str();
    if !["HEAD", "PATCH", "DELETE"].contains(&method) {
        return Err(Problem::method_of(
            reserved::OF_UPLOADS,
            "an upload accepts HEAD, PATCH and DELETE; read the file at its own path",
        ));
    }
    let progress = upload.take().await;
    let mut progress = match progress {
        Some(progress) => progress,
        None if door.storage.uploads.get(id).is_none() => return Err(missing(id)),
        None => {
            return Err(Problem::busy(
                ProblemCode::ResourceBusy,
                "another request is writing this upload",
                5,
            ));
        }
    };
    match method {
        "HEAD" => {
            let mut answer = Response::new(StatusCode::NO_CONTENT);
            set_upload_headers(door, &mut answer, &upload, &progress);
            Ok(answer.into())
        }
        "DELETE" => {
            discard(door, &upload, &mut progress).await?;
            Ok(Response::new(StatusCode::NO_CONTENT).into())
        }
        _ => patch(door, connection, call, &upload, &mut progress).await,
    }
}

async fn patch(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    upload: &Arc<Upload>,
    progress: &mut Progress,
) -> Result<Reply, Problem> {
    let headers = &call.request.headers;
    let media_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if media_type != Some(PARTIAL_UPLOAD.as_bytes()) {
        return Err(Problem::new(
            ProblemCode::MediaTypeUnsupported,
            format!("PATCH of an upload takes 'Content-Type: {PARTIAL_UPLOAD}'"),
        ));
    }
    let complete = is_complete(headers).map_err(invalid_header)?;
    let offset = offset_of(headers)
        .map_err(invalid_header)?
        .ok_or_else(|| Problem::bad_request("PATCH needs 'Upload-Offset'"))?;
    if progress.finished_file().is_some() {
        let problem = Problem::bad_request("this upload is complete");
        return Err(with_offset(problem, progress));
    }
    if offset != progress.offset() {
        let text = format!(
            "the upload has {} bytes; continue from there",
            progress.offset()
        );
        return Err(with_offset(
            Problem::new(ProblemCode::UploadOffsetWrong, text),
            progress,
        ));
    }
    // Draft §4.1.3: a length that contradicts an earlier one.
    let length = known_length(&call.request.body);
    if let (true, Some(length), Some(whole)) = (complete, length, upload.plan.length)
        && offset.saturating_add(length) != whole
    {
        return Err(Problem::bad_request(format!(
            "the upload was announced with {whole} bytes and would end with {}",
            offset.saturating_add(length)
        )));
    }
    let expected = whole_digests(headers)?;
    append(door, connection, call, upload, progress).await?;
    if complete {
        return finish(door, call, upload, progress, expected).await;
    }
    let mut answer = Response::new(StatusCode::NO_CONTENT);
    set_upload_headers(door, &mut answer, upload, progress);
    Ok(answer.into())
}

/// Takes the body. What has come is durable also when the rest does not come.
async fn append(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    upload: &Arc<Upload>,
    progress: &mut Progress,
) -> Result<(), Problem> {
    let wanted_mover = MoverRequest {
        kind: MoverKind::Put,
        path: upload.plan.path.clone(),
        peer: connection.peer_addr().to_string(),
        copy: call.caller.copy.clone(),
        challenge: call.caller.challenge.clone(),
        file_size: upload.plan.length.map(penstock_model::Bytes),
        user: call.caller.user(),
        requester: call.caller.requester(),
        pool: upload.pool.name.clone(),
        selection: serde_json::Value::Null,
    };
    // The next request for the upload may take it over meanwhile.
    let mut wanted = upload.wanted();
    let mover = tokio::select! {
        biased;
        mover = mover_for_body(door, connection, wanted_mover) => mover,
        _ = wanted.changed() => return Err(Problem::new(ProblemCode::UploadSuperseded, TAKEN_OVER)),
    };
    let mut mover = mover.map_err(|why| match why {
        NoMover::Body(why) => interrupted(&why, progress),
        NoMover::Refused(problem) => problem,
    })?;
    // What the answer will tell is computed while the bytes pass; else they would be read again.
    let sum = WantedDigest::of(&call.request.headers).map(WantedDigest::algorithm);
    let planned = upload.plan.expected.iter().map(Checksum::algorithm);
    let body = UploadBody {
        connection,
        algorithms: door.storage.algorithms(planned.chain(sum)),
    };
    let taken = take_body(door, body, upload, progress, &mut mover).await;
    mover.tcp = connection.tcp_info();
    let expiry = door.storage.settings().limits.upload_expiry;
    let (expires, reaper) = (
        door.storage.clock.recorded() + expiry,
        door.storage.reaper(),
    );
    let kept = upload.checkpoint(progress, expires, reaper).await;
    let (outcome, result) = match (taken, kept) {
        (Ok(()), Ok(())) => (MoverOutcome::Done, Ok(())),
        (Err(Interruption::Write(why)), _) | (_, Err(why)) => {
            (MoverOutcome::Failed(why.to_string()), Err(of_write(&why)))
        }
        (Err(Interruption::Bytes), _) => {
            let problem = too_many_bytes(upload.bytes());
            (
                MoverOutcome::Failed(problem.cause.message.clone()),
                Err(problem),
            )
        }
        (Err(Interruption::Body(why)), _) => {
            let problem = interrupted(&why, progress);
            (
                MoverOutcome::Aborted(problem.cause.message.clone()),
                Err(problem),
            )
        }
        (Err(Interruption::Wanted), _) => {
            let problem = Problem::new(ProblemCode::UploadSuperseded, TAKEN_OVER);
            (MoverOutcome::Aborted(TAKEN_OVER.to_owned()), Err(problem))
        }
        (Err(Interruption::Preempted(why)), _) => {
            let problem = with_offset(Problem::preempted(&why), progress);
            (
                MoverOutcome::Aborted(problem.cause.message.clone()),
                Err(problem),
            )
        }
    };
    mover.end(outcome);
    result
}

/// A piece ended early. What came of it is kept.
fn interrupted(why: &BodyError, progress: &Progress) -> Problem {
    let text = format!("{why}; {} bytes are kept", progress.offset());
    with_offset(Problem::new(body_code(why), text), progress)
}

/// Why a body was not taken to its end.
enum Interruption {
    Write(WriteError),
    Body(BodyError),
    /// More than its user may have begun.
    Bytes,
    /// A later request wants to go on.
    Wanted,
    /// Somebody else needs the slot.
    Preempted(PreemptionReason),
}

/// What an upload is appended from.
struct UploadBody<'a> {
    connection: &'a mut Connection,
    /// Checksums to compute.
    algorithms: Vec<ChecksumAlgorithm>,
}

async fn take_body(
    door: &Door,
    body: UploadBody<'_>,
    upload: &Arc<Upload>,
    progress: &mut Progress,
    mover: &mut Mover,
) -> Result<(), Interruption> {
    let settings = door.storage.settings();
    let UploadBody {
        connection,
        algorithms,
    } = body;
    let (mut wanted, view) = (upload.wanted(), mover.view());
    let reaper = door.storage.reaper();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut ended = false;
    while !ended {
        let mut filled = 0;
        let started = Instant::now();
        let mut cut = None;
        while filled < buffer.len() && cut.is_none() && !ended {
            let read = tokio::select! {
                biased;
                _ = wanted.changed() => Err(Interruption::Wanted),
                why = view.preempted() => Err(Interruption::Preempted(why)),
                read = connection.read_body(&mut buffer[filled..]) => read.map_err(Interruption::Body),
            };
            match read {
                Ok(0) => {
                    ended = true;
                    mover.pass_last_byte();
                }
                Ok(count) => {
                    filled += count;
                    mover.moved(count as u64);
                }
                Err(why) => cut = Some(why),
            }
        }
        mover.clocks.network_us += microseconds(started.elapsed());
        if filled > 0 {
            let begun = door.storage.uploads.of(upload.plan.whose());
            if upload.plan.length.is_none()
                && begun.bytes.saturating_add(filled as u64)
                    > settings.limits.upload_bytes_per_user_max.0
            {
                return Err(Interruption::Bytes);
            }
            let started = Instant::now();
            let covered = upload.cover(progress, filled, &reaper).await;
            covered.map_err(Interruption::Write)?;
            let appended = upload.append(progress, &algorithms, buffer, filled, reaper.clone());
            buffer = appended.await.map_err(Interruption::Write)?;
            mover.clocks.write_us += microseconds(started.elapsed());
        }
        if progress.at_risk() >= CHECKPOINT_BYTES {
            let expires = door.storage.clock.recorded() + settings.limits.upload_expiry;
            let kept = upload.checkpoint(progress, expires, reaper.clone()).await;
            kept.map_err(Interruption::Write)?;
        }
        if let Some(why) = cut {
            return Err(why);
        }
    }
    Ok(())
}

/// The last piece is there: the same rules as for PUT, applied now.
async fn finish(
    door: &Door,
    call: &Call<'_>,
    upload: &Arc<Upload>,
    progress: &mut Progress,
    mut expected: Vec<Checksum>,
) -> Result<Reply, Problem> {
    let plan = &upload.plan;
    let absence = match plan.must_be_absent {
        true => AbsenceDemand::ByIfNoneMatch,
        false => AbsenceDemand::NotDemanded,
    };
    let write = WriteRequest {
        door,
        caller: call.caller,
        path: &plan.path,
        encoded: None,
        purpose: WritePurpose::File,
        absence,
    };
    let target = write.authorize()?.target()?;
    let terms = target.conditions(WriteConditions::Upload(call, plan))?;
    let ticket = terms.claim()?.locks(call)?;
    expected.extend(plan.expected.iter().cloned());
    let wanted = WantedDigest::of(&call.request.headers);
    let sum = wanted.map(WantedDigest::algorithm);
    let algorithms = expected.iter().map(Checksum::algorithm).chain(sum);
    let algorithms = algorithms.collect();
    let finished = ticket.finish_upload(upload, progress, algorithms, expected);
    match finished.await {
        Ok(stored) => {
            let mut answer = stored_answer(&stored, wanted);
            set_upload_headers(door, &mut answer, upload, progress);
            Ok(answer.into())
        }
        Err(error) => {
            if is_final(&error) {
                discard(door, upload, progress).await?;
            }
            Err(with_bytes_kept(absence.write_problem(&error)))
        }
    }
}

/// Whether going on with the upload could never succeed.
fn is_final(error: &WriteError) -> bool {
    match error {
        WriteError::ChecksumMismatch { .. } | WriteError::ChecksumUnavailable(_) => true,
        WriteError::NoSpace { .. }
        | WriteError::Disk { .. }
        | WriteError::DiskStalled { .. }
        | WriteError::PoolFailing { .. }
        | WriteError::Unanswered { .. }
        | WriteError::WrongSize { .. }
        | WriteError::Commit(_)
        | WriteError::BeingWritten(_)
        | WriteError::Stopping => false,
    }
}

/// Draft §4.2: how far it is, whether that is all, and until when it stays.
fn set_upload_headers(door: &Door, answer: &mut Response, upload: &Upload, progress: &Progress) {
    let recorded = door.storage.clock.recorded();
    let headers = &mut answer.headers;
    let complete = match progress.finished_file().map(|EntryId(_)| ()) {
        Some(()) => "?1",
        None => "?0",
    };
    headers.insert(UPLOAD_COMPLETE, HeaderValue::from_static(complete));
    headers.insert(UPLOAD_OFFSET, HeaderValue::from(progress.offset()));
    if let Some(length) = upload.plan.length {
        headers.insert(UPLOAD_LENGTH, HeaderValue::from(length));
    }
    let left = Timestamp::since(progress.expires(), recorded).as_secs();
    if let Ok(limit) = HeaderValue::from_str(&format!("max-age={left}")) {
        headers.insert(UPLOAD_LIMIT, limit);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    html::harmless(headers);
}

fn with_offset(mut problem: Problem, progress: &Progress) -> Problem {
    let offset = HeaderValue::from(progress.offset());
    problem.headers.push((UPLOAD_OFFSET, offset));
    problem
}

async fn discard(door: &Door, upload: &Upload, progress: &mut Progress) -> Result<(), Problem> {
    let reaper = door.storage.reaper();
    let gone = door.storage.uploads.discard(upload, progress, &reaper);
    let failed = match tokio::time::timeout(REMOVAL_WAIT, gone).await {
        Ok(Ok(Ok(()))) => return Ok(()),
        Ok(Ok(Err(source))) => upload.pool.write_failed(source),
        Ok(Err(_)) => WriteError::Stopping,
        Err(_) => upload.pool.write_stalled(REMOVAL_WAIT),
    };
    Err(of_write(&failed))
}

fn invalid_header(why: InvalidUploadHeader) -> Problem {
    Problem::bad_request(why.to_string())
}

/// Expected digests of the whole file; one of a part cannot be kept, so it is refused, not ignored.
fn whole_digests(headers: &HeaderMap) -> Result<Vec<Checksum>, Problem> {
    if headers.contains_key(CONTENT_MD5) || headers.contains_key(CONTENT_RANGE) {
        let text = "an upload in pieces takes 'Repr-Digest' or 'Digest' of the whole file, no 'Content-MD5' or \
                    'Content-Range'";
        return Err(Problem::bad_request(text));
    }
    digest::parse(headers).map_err(|why| Problem::bad_request(why.to_string()))
}

fn missing(id: Uuid) -> Problem {
    Problem::new(
        ProblemCode::UploadNotFound,
        format!("you have no upload {id}; it may have expired, start again"),
    )
}

fn of_write(error: &WriteError) -> Problem {
    with_bytes_kept(Problem::of_write(error, StatusCode::CONFLICT))
}

/// Other writes leave nothing when they fail; of an upload, what was acknowledged stays.
fn with_bytes_kept(mut problem: Problem) -> Problem {
    let removed = "the partial file was removed";
    let text = problem.text().replace(removed, "what came before is kept");
    problem.cause.message = text;
    problem
}

fn begin_failed(why: &tokio::task::JoinError) -> Problem {
    tracing::error!(%why, "an upload could not be begun");
    Problem::new(
        ProblemCode::InternalError,
        "the upload could not be started; contact the site",
    )
}
