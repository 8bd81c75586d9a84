//! The WLCG Tape REST API, version 1: who may have files brought from tape, how far that is, and where files are.

use super::answer::{Problem, Reply, Response, json_answer};
use super::document_body::{body_too_large, known_length, read_body};
use super::handler_context::{Call, Door, RETRY_AFTER_SECONDS};
use super::locality::locality;
use super::reserved::{self, TapePlace};
use super::tape_system;
use crate::nearline::{Nearline, Submission, SubmittedFile};
use http::header::{HOST, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use penstock_decide::authorization::PathOperation;
use penstock_model::{NamespacePath, ProblemCode, StageRequestId, Timestamp, ToldPlace, UserName};
use penstock_persistence::namespace::{
    Change, Entry, EntryId, EntryKind, NearlineChange, StageFileState, StageProblem, StagedFile,
    StoredStageRequest,
};
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::tape::server::{
    REQUEST_BYTES_PER_FILE_MAX, TapeRequestError, ToldFile, archive_info_document,
    discovery_document, parse_paths, parse_stage, progress_document,
};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::time::Duration;
use tokio::sync::SemaphorePermit;

/// In `Retry-After` of a file that is being brought.
const READ_AGAIN_SECONDS: u64 = 60;
/// So long a reader is told that a file could not be brought, before reading it has that tried again.
const READ_FAILURE_KEPT: Duration = Duration::from_secs(900);
/// What a body may have whatever it names.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Bodies up to this length are read at once, however many there are.
const SMALL_BODY_BYTES_MAX: u64 = 256 << 10;
/// After so many files of a request, others that this thread serves have their turn.
const FILES_LOOKED_UP_AT_ONCE: usize = 100;
/// How long a larger one waits for its turn.
const LARGE_BODY_WAIT: Duration = Duration::from_secs(30);

impl From<TapeRequestError> for Problem {
    fn from(why: TapeRequestError) -> Problem {
        let code = match why {
            TapeRequestError::TooManyFiles { .. } => ProblemCode::BodyTooLarge,
            TapeRequestError::Malformed(_)
            | TapeRequestError::NoFile
            | TapeRequestError::LongPath
            | TapeRequestError::Duration(_) => ProblemCode::RequestMalformed,
        };
        Problem::new(code, why.to_string())
    }
}

/// Where the interface is, for whoever asks; `None`: this storage element has no tape.
pub(super) fn discovery(door: &Door, request: &Request, is_tls: bool) -> Option<Response> {
    let nearline = door.storage.nearline()?;
    let host = request.headers.get(HOST)?.to_str().ok()?;
    let scheme = if is_tls { "https" } else { "http" };
    let uri = format!("{scheme}://{host}{}", reserved::TAPE_ROOT);
    let document = discovery_document(&nearline.config.site_name, &uri);
    Some(json_answer(StatusCode::OK, &document))
}

pub(super) async fn answer(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    place: TapePlace,
) -> Result<Reply, Problem> {
    let Some(nearline) = door.storage.nearline() else {
        return Err(Problem::new(
            ProblemCode::ResourceNotFound,
            "this storage element has no tape system",
        ));
    };
    if call.caller.identity().is_none() {
        let text = "the tape interface is for users; send a token, or connect with a certificate";
        return Err(call.caller.unknown(text.to_owned()));
    }
    let files_max = nearline.config.stage_files_max;
    let method = call.request.method.clone();
    match (place, method) {
        (TapePlace::Stages, Method::POST) => {
            let body = read_order(connection, nearline, call).await?;
            stage(door, nearline, call, &body).await
        }
        (TapePlace::Stage(id), Method::GET | Method::HEAD) => progress(door, nearline, call, &id),
        (TapePlace::Stage(id), Method::DELETE) => forget(door, nearline, call, id).await,
        (TapePlace::Cancel(id), Method::POST) => {
            let body = read_order(connection, nearline, call).await?;
            let paths = parse_paths(&body, files_max)?;
            cancel(door, nearline, call, id, &paths).await
        }
        (TapePlace::Release(id), Method::POST) => {
            let body = read_order(connection, nearline, call).await?;
            let paths = parse_paths(&body, files_max)?;
            release(door, nearline, call, id, &paths).await
        }
        (TapePlace::ArchiveInfo, Method::POST) => {
            let body = read_order(connection, nearline, call).await?;
            let paths = parse_paths(&body, files_max)?;
            let places: Vec<(String, ToldPlace)> = paths
                .into_iter()
                .map(|path| {
                    let place = place_of(door, call, &path);
                    (path, place)
                })
                .collect();
            Ok(json_answer(StatusCode::OK, &archive_info_document(&places)).into())
        }
        (place @ (TapePlace::Status | TapePlace::OkToStop(_)), Method::GET | Method::HEAD)
        | (place @ (TapePlace::Retry | TapePlace::Drive(_) | TapePlace::Tape(_)), Method::POST) => {
            door.administrator(connection.is_tls(), call.caller, "the tape system")?;
            tape_system::answer(door, connection, nearline, place).await
        }
        (place, method) => {
            let allowed = place.methods();
            let text = format!(
                "{method} means nothing here; this part of the tape interface takes {allowed}"
            );
            Err(Problem::method_of(allowed, text))
        }
    }
}

/// A body, and the place that it has among the large ones while it is read and understood.
struct OrderBody<'a> {
    bytes: Vec<u8>,
    _place: Option<SemaphorePermit<'a>>,
}

impl Deref for OrderBody<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of a request. Few large ones are in memory at once.
async fn read_order<'a>(
    connection: &mut Connection,
    nearline: &'a Nearline,
    call: &Call<'_>,
) -> Result<OrderBody<'a>, Problem> {
    let files_max = nearline.config.stage_files_max;
    let bytes_max = (files_max * REQUEST_BYTES_PER_FILE_MAX).min(BODY_BYTES_MAX);
    let length = known_length(&call.request.body);
    if length.is_some_and(|length| length > bytes_max as u64) {
        return Err(body_too_large("POST", bytes_max));
    }
    let is_small = length.is_some_and(|length| length <= SMALL_BODY_BYTES_MAX);
    let place = match is_small {
        true => None,
        false => {
            let place = nearline.large_bodies.acquire();
            let place = tokio::time::timeout(LARGE_BODY_WAIT, place).await;
            let busy = "too many large requests are being read; try again in a while";
            let place = place.ok().and_then(Result::ok).ok_or_else(|| {
                Problem::busy(ProblemCode::ServiceBusy, busy, RETRY_AFTER_SECONDS)
            })?;
            Some(place)
        }
    };
    let bytes = read_body(connection, "POST", bytes_max).await?;
    Ok(OrderBody {
        bytes,
        _place: place,
    })
}

/// What a path names, as far as the caller may stage it, or why nothing can be brought.
fn wanted(door: &Door, call: &Call<'_>, path: &str) -> Result<EntryId, StageProblem> {
    let because = |code, text| Err(StageProblem { code, text });
    let parsed = match NamespacePath::parse(path) {
        Ok(parsed) => parsed,
        Err(why) => return because(ProblemCode::RequestMalformed, why.to_string()),
    };
    let may_stage = reserved::refuse(&PathOperation::Stage, &parsed).is_ok()
        && door.allows(call.caller, &PathOperation::Stage, &parsed);
    if !may_stage {
        let text = format!("not allowed to stage {path}; a token needs storage.stage for it");
        return because(ProblemCode::PermissionDenied, text);
    }
    let entry = match door.storage.namespace.lookup(&parsed) {
        Ok(entry) => entry,
        Err(why) => {
            tracing::error!(%why, path, "a file that is to be staged cannot be looked up");
            let text = "the namespace cannot be read at the moment; ask again";
            return because(ProblemCode::NamespaceFailed, text.to_owned());
        }
    };
    match entry.map(|entry| (entry.id, entry.kind)) {
        None => because(ProblemCode::PathNotFound, format!("{path} does not exist")),
        Some((_, EntryKind::Directory)) => because(
            ProblemCode::PathIsDirectory,
            format!("{path} is a directory"),
        ),
        Some((_, EntryKind::File { size, .. })) if size.0 == 0 => because(
            ProblemCode::TapeUnsupported,
            format!("{path} is empty, so it is on no tape"),
        ),
        Some((id, EntryKind::File { .. })) => Ok(id),
    }
}

async fn stage(
    door: &Door,
    nearline: &Nearline,
    call: &Call<'_>,
    body: &[u8],
) -> Result<Reply, Problem> {
    let files = parse_stage(body, nearline.config.stage_files_max)?;
    let mut submitted = Vec::with_capacity(files.len());
    let mut denied = None;
    for (number, file) in files.into_iter().enumerate() {
        if number % FILES_LOOKED_UP_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
        let found = wanted(door, call, &file.path);
        if let Err(why) = &found
            && why.code == ProblemCode::PermissionDenied
        {
            denied.get_or_insert_with(|| why.text.clone());
        }
        submitted.push(SubmittedFile {
            path: file.path,
            found,
            pin: file.pin,
        });
    }
    if let Some(text) = denied.filter(|_| submitted.iter().all(|file| file.found.is_err())) {
        return Err(match call.caller.identity() {
            None => call.caller.unknown(text),
            Some(_) => Problem::new(ProblemCode::PermissionDenied, text),
        });
    }
    let request = nearline.stage_request(Submission {
        user: call.caller.holder(),
        vo: call.caller.origin().vo,
        at: door.storage.clock.recorded(),
        files: submitted,
    });
    let id = request.id.clone();
    let asked: Vec<EntryId> = request.files.iter().filter_map(|file| file.entry).collect();
    change(door, NearlineChange::Stage(request)).await?;
    nearline.inbox.asked(asked);
    tell(call, &id, "asked for files on tape");
    let location = format!("{}/stage/{id}", reserved::TAPE_ROOT);
    let mut answer = json_answer(StatusCode::CREATED, &json!({"requestId": id.as_str()}));
    if let Ok(location) = HeaderValue::from_str(&location) {
        answer = answer.with(LOCATION, location);
    }
    Ok(answer.into())
}

/// What a reader of a file that is on tape only is told. Where the site wants that, the file is brought: who may stage it asks
/// for it by that. One that could not be brought is told so, and is asked for again only after a while.
pub(super) async fn on_tape(door: &Door, call: &Call<'_>, file: &Entry) -> Problem {
    let path = call.path;
    let nearline = door.storage.nearline();
    let Some(nearline) = nearline.filter(|nearline| nearline.config.stages_on_read) else {
        return unreadable(door, path, file.id);
    };
    let may_stage = wanted(door, call, &path.to_string()).is_ok_and(|id| id == file.id);
    if !may_stage {
        return unreadable(door, path, file.id);
    }
    match bring_for_reader(door, nearline, call, file.id).await {
        Ok(None) => recalling(path),
        Ok(Some(why)) => {
            let text = format!("{path} does not come from tape: {}", why.text);
            Problem::busy(why.code, text, READ_FAILURE_KEPT.as_secs())
        }
        Err(problem) => problem,
    }
}

/// What is told of a file that is on tape only, and that nothing is done to bring.
pub(super) fn unreadable(door: &Door, path: &NamespacePath, file: EntryId) -> Problem {
    match door.storage.namespace.awaited_by(file) {
        Ok(Some(_)) => recalling(path),
        Ok(None) => Problem::new(
            ProblemCode::FileOnTape,
            format!(
                "{path} is on tape only; ask for it by a stage request (Tape REST), or submit its transfer with 'bring_online'"
            ),
        ),
        Err(why) => why.into(),
    }
}

fn recalling(path: &NamespacePath) -> Problem {
    Problem::busy(
        ProblemCode::FileRecalling,
        format!("{path} is being brought from tape; try again later"),
        READ_AGAIN_SECONDS,
    )
}

/// Has a file brought, unless somebody waits for it already; or tells why it does not come.
async fn bring_for_reader(
    door: &Door,
    nearline: &Nearline,
    call: &Call<'_>,
    file: EntryId,
) -> Result<Option<StageProblem>, Problem> {
    let namespace = &door.storage.namespace;
    if namespace.awaited_by(file)?.is_some() {
        return Ok(None);
    }
    let now = door.storage.clock.recorded();
    let failed = namespace.failed_recall(file)?;
    // One that failed while the clock was ahead says nothing of now.
    let is_fresh = |at: Timestamp| at <= now && at + READ_FAILURE_KEPT > now;
    if let Some(failed) = failed.filter(|failed| is_fresh(failed.at)) {
        return Ok(Some(failed.problem));
    }
    let request = nearline.stage_request(Submission {
        user: call.caller.holder(),
        vo: call.caller.origin().vo,
        at: now,
        files: vec![SubmittedFile {
            path: call.path.to_string(),
            found: Ok(file),
            pin: None,
        }],
    });
    let id = request.id.clone();
    change(door, NearlineChange::Stage(request)).await?;
    let kept = namespace.stage_request(&id)?;
    let staged = kept.and_then(|mut kept| kept.files.pop());
    let failed = staged.filter(|staged| staged.state == StageFileState::Failed);
    let problem = failed.and_then(|failed| failed.problem);
    match problem {
        // Of a request that nobody knows of nothing needs to be kept.
        Some(_) => change(door, NearlineChange::ForgetStage(id)).await?,
        None => nearline.inbox.asked(vec![file]),
    }
    Ok(problem)
}

/// The request, for the user who made it.
///
/// What this credential allows counts as well: one for other paths, or without the tape, tells and changes nothing.
fn own_request(
    door: &Door,
    call: &Call<'_>,
    id: &StageRequestId,
    operations: &[PathOperation],
) -> Result<StoredStageRequest, Problem> {
    let missing = || {
        Problem::new(
            ProblemCode::ResourceNotFound,
            "there is no such stage request of yours; it may be over and forgotten",
        )
    };
    let Some(user) = call.caller.holder() else {
        let text =
            "stage requests are told to who made them; send a token, or connect with a certificate";
        return Err(call.caller.unknown(text.to_owned()));
    };
    let request = door.storage.namespace.stage_request(id)?;
    let request = request.filter(|request| request.user.as_ref() == Some(&user));
    let request = request.ok_or_else(missing)?;
    for file in request.files.iter().filter(|file| file.entry.is_some()) {
        let path = NamespacePath::parse(&file.path).map_err(|_| missing())?;
        let may = |operation: &PathOperation| door.allows(call.caller, operation, &path);
        if !operations.iter().any(may) {
            let text = format!(
                "not allowed on {path}, which is in the stage request {id}; a token needs storage.stage for it"
            );
            return Err(Problem::new(ProblemCode::PermissionDenied, text));
        }
    }
    Ok(request)
}

/// Who may look at a request, and who may change it.
const LOOKS: [PathOperation; 2] = [PathOperation::Poll, PathOperation::Stage];
const CHANGES: [PathOperation; 1] = [PathOperation::Stage];

fn told(file: &StagedFile, expected: &BTreeMap<EntryId, Timestamp>) -> ToldFile {
    let (on_disk, state) = match file.state {
        StageFileState::Submitted => (false, "SUBMITTED"),
        StageFileState::Started => (false, "STARTED"),
        StageFileState::Completed => (true, "COMPLETED"),
        StageFileState::Failed => (false, "FAILED"),
        StageFileState::Cancelled => (false, "CANCELLED"),
    };
    ToldFile {
        path: file.path.clone(),
        on_disk,
        state,
        problem: file
            .problem
            .as_ref()
            .map(|problem| (problem.code.name(), problem.text.clone())),
        started: file.started,
        finished: file.finished,
        expected: match file.finished {
            None => file.entry.and_then(|entry| expected.get(&entry).copied()),
            Some(_) => None,
        },
    }
}

fn progress(
    door: &Door,
    nearline: &Nearline,
    call: &Call<'_>,
    id: &StageRequestId,
) -> Result<Reply, Problem> {
    let request = own_request(door, call, id, &LOOKS)?;
    let expected = nearline.expected();
    let files = request.files.iter();
    let files: Vec<ToldFile> = files.map(|file| told(file, &expected)).collect();
    let document = progress_document(id, request.created, &files);
    Ok(json_answer(StatusCode::OK, &document).into())
}

/// The numbers of these paths in a request; the first that is not there otherwise.
fn numbers(request: &StoredStageRequest, paths: &[String]) -> Result<Vec<u32>, String> {
    let files = (0_u32..).zip(&request.files);
    let places: HashMap<&str, u32> = files
        .map(|(number, file)| (file.path.as_str(), number))
        .collect();
    let number = |path: &String| {
        places
            .get(path.as_str())
            .copied()
            .ok_or_else(|| path.clone())
    };
    paths.iter().map(number).collect()
}

async fn cancel(
    door: &Door,
    nearline: &Nearline,
    call: &Call<'_>,
    id: StageRequestId,
    paths: &[String],
) -> Result<Reply, Problem> {
    let request = own_request(door, call, &id, &CHANGES)?;
    let files = numbers(&request, paths).map_err(|path| {
        Problem::bad_request(format!(
            "{path} is not in the stage request {id}; nothing was canceled"
        ))
    })?;
    tell(call, &id, "canceled files of a stage request");
    let_go(door, nearline, &request, id, files).await?;
    Ok(Response::new(StatusCode::OK).into())
}

/// Paths that are no longer needed on disk. A request that nobody knows is one of the user's others: gfal2 sends a name of
/// its own when it has none.
async fn release(
    door: &Door,
    nearline: &Nearline,
    call: &Call<'_>,
    id: StageRequestId,
    paths: &[String],
) -> Result<Reply, Problem> {
    match own_request(door, call, &id, &CHANGES) {
        Ok(request) => {
            let files = numbers(&request, paths).map_err(|path| {
                Problem::bad_request(format!(
                    "{path} is not in the stage request {id}; nothing was released"
                ))
            })?;
            let_go(door, nearline, &request, id, files).await?;
        }
        Err(problem) if problem.status != StatusCode::NOT_FOUND => return Err(problem),
        Err(_) => {
            let entries: Vec<EntryId> = paths
                .iter()
                .filter_map(|path| wanted(door, call, path).ok())
                .collect();
            let at = door.storage.clock.recorded();
            if let Some(user) = call.caller.holder() {
                let files = entries.clone();
                change(door, NearlineChange::ReleaseOfUser { user, files, at }).await?;
                nearline.inbox.asked(entries);
            }
        }
    }
    Ok(Response::new(StatusCode::OK).into())
}

async fn let_go(
    door: &Door,
    nearline: &Nearline,
    request: &StoredStageRequest,
    id: StageRequestId,
    files: Vec<u32>,
) -> Result<(), Problem> {
    let asked = files
        .iter()
        .filter_map(|number| request.files.get(*number as usize)?.entry);
    let asked: Vec<EntryId> = asked.collect();
    let at = door.storage.clock.recorded();
    change(
        door,
        NearlineChange::ReleaseStaged {
            request: id,
            files,
            at,
        },
    )
    .await?;
    nearline.inbox.asked(asked);
    Ok(())
}

async fn forget(
    door: &Door,
    nearline: &Nearline,
    call: &Call<'_>,
    id: StageRequestId,
) -> Result<Reply, Problem> {
    let request = own_request(door, call, &id, &CHANGES)?;
    let asked: Vec<EntryId> = request.files.iter().filter_map(|file| file.entry).collect();
    tell(call, &id, "forgot a stage request");
    change(door, NearlineChange::ForgetStage(id)).await?;
    nearline.inbox.asked(asked);
    Ok(Response::new(StatusCode::OK).into())
}

/// Where a file is, or why that is not told.
fn place_of(door: &Door, call: &Call<'_>, path: &str) -> ToldPlace {
    let parsed = NamespacePath::parse(path).map_err(|why| why.to_string())?;
    let operations = [PathOperation::Poll, PathOperation::Stat];
    let may_ask = operations
        .iter()
        .any(|operation| door.allows(call.caller, operation, &parsed));
    if !may_ask {
        return Err(format!(
            "not allowed to ask for {path}; a token needs storage.poll or storage.read for it"
        ));
    }
    let entry = door.storage.namespace.lookup(&parsed);
    let entry =
        entry.map_err(|_| "the namespace cannot be read at the moment; ask again".to_owned())?;
    match entry.map(|entry| entry.kind) {
        None => Err(format!("{path} does not exist")),
        Some(EntryKind::Directory) => Err(format!("{path} is a directory")),
        Some(kind @ EntryKind::File { .. }) => Ok(locality(door, &kind)),
    }
}

/// A line in the log for each change that a client makes.
fn tell(call: &Call<'_>, id: &StageRequestId, what: &str) {
    let user = call.caller.user();
    let user = user.as_ref().map_or("nobody", UserName::as_str);
    tracing::info!(user, request = %id, "{what}");
}

async fn change(door: &Door, change: NearlineChange) -> Result<(), Problem> {
    let changed = door.storage.change(Change::Nearline(change)).await;
    changed.map_err(|why| Problem::of_change(&why, StatusCode::CONFLICT))?;
    Ok(())
}
