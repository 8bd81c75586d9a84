//! The WLCG Tape REST API, version 1: who may have files brought from tape, how far that is, and where files are.
//! Long because each operation of the interface has its handler.

use super::answer::{Problem, Reply, Response, json_answer, written_json_answer};
use super::document_body::{body_too_large, known_length, read_body};
use super::handler_context::{Call, Door, RETRY_AFTER_SECONDS};
use super::locality::locality;
use super::reserved::{self, TapeResource};
use super::{tape_accounts, tape_system};
use crate::nearline::{Nearline, RecallOutlooks, Submission, SubmittedFile};
use http::header::{HOST, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use penstock_decide::authorization::PathOperation;
use penstock_model::{
    NamespacePath, ProblemCode, StageRequestId, TimeSpan, Timestamp, ToldPlace, UserName,
};
use penstock_persistence::namespace::{
    Change, ChangeReport, Entry, EntryId, EntryKind, NearlineChange, StageProblem, StageProgress,
    StagedFile, StoredStageRequest,
};
use penstock_protocol::fair_turns::{FairTurns, Turn};
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::tape::server::{
    REQUEST_BYTES_PER_FILE_MAX, TapeRequestError, ToldFile, archive_info_document,
    discovery_document, parse_paths, parse_stage, progress_document,
};
use serde_json::json;
use std::collections::HashMap;
use std::time::Duration;

/// In `Retry-After` of a file that is being brought.
const READ_AGAIN_SECONDS: u64 = 60;
/// So long a reader is told that a file could not be brought, before reading it has that tried again.
const READ_FAILURE_KEPT: Duration = Duration::from_secs(900);
/// What a body may have whatever it names.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Bodies up to this length are received at once, however many there are.
const SMALL_BODY_BYTES_MAX: u64 = 64 << 10;
/// How long the body of a larger one may take.
const LARGE_BODY_TIME_MAX: Duration = Duration::from_secs(60);
/// Answers up to this length are sent at once, however many there are.
const SMALL_ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long a request waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(30);
/// After so many names of paths others that this thread serves have their turn.
const NAMES_LOOKED_UP_AT_ONCE: usize = 500;
/// Files of which the release is one change.
const RELEASED_AT_ONCE: usize = 1_000;

impl From<TapeRequestError> for Problem {
    fn from(why: TapeRequestError) -> Problem {
        let code = match why {
            TapeRequestError::TooManyFiles { .. } | TapeRequestError::LongNames => {
                ProblemCode::BodyTooLarge
            }
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

/// Long because each operation has one arm.
pub(super) async fn answer(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    place: TapeResource,
) -> Result<Reply, Problem> {
    let Some(nearline) = door.storage.nearline() else {
        return Err(Problem::new(
            ProblemCode::ResourceNotFound,
            "this storage element has no tape system",
        ));
    };
    if place == TapeResource::Metrics && nearline.config.has_public_metrics {
        return match call.request.method {
            Method::GET | Method::HEAD => tape_accounts::metrics(door, nearline).await,
            _ => Err(Problem::method_of(
                place.methods(),
                "metrics can only be read",
            )),
        };
    }
    if call.caller.identity().is_none() {
        let text = "the tape interface is for users; send a token, or connect with a certificate";
        return Err(call.caller.unknown(text.to_owned()));
    }
    let files_max = nearline.config.stage_files_max;
    let method = call.request.method.clone();
    match (place, method) {
        (TapeResource::Stages, Method::POST) => {
            let order = read_order(connection, nearline, call).await?;
            stage(door, nearline, call, &order.body).await
        }
        (TapeResource::Stage(id), Method::GET | Method::HEAD) => {
            let _working = turn_of(&nearline.turns.working, call).await?;
            let answer = progress(door, nearline, call, &id)?;
            tell_in_turn(nearline, call, answer).await
        }
        (TapeResource::Stage(id), Method::DELETE) => {
            let _working = turn_of(&nearline.turns.working, call).await?;
            forget(door, nearline, call, id).await
        }
        (TapeResource::Cancel(id), Method::POST) => {
            let order = read_order(connection, nearline, call).await?;
            let paths = parse_paths(&order.body, files_max)?;
            cancel(door, nearline, call, id, &paths).await
        }
        (TapeResource::Release(id), Method::POST) => {
            let order = read_order(connection, nearline, call).await?;
            let paths = parse_paths(&order.body, files_max)?;
            release(door, nearline, call, id, &paths).await
        }
        (TapeResource::ArchiveInfo, Method::POST) => {
            let order = read_order(connection, nearline, call).await?;
            let paths = parse_paths(&order.body, files_max)?;
            let (mut places, mut pace) = (Vec::with_capacity(paths.len()), LookupPace::default());
            for path in paths {
                pace.begin(&path).await;
                let place = place_of(door, call, &path);
                places.push((path, place));
            }
            let answer = json_answer(StatusCode::OK, &archive_info_document(&places));
            tell_in_turn(nearline, call, answer).await
        }
        (
            place @ (TapeResource::DataSets | TapeResource::Account | TapeResource::Metrics),
            Method::GET | Method::HEAD,
        ) => {
            door.administrator(connection.is_tls(), call.caller, "the tape system")?;
            let query = call.request.query().unwrap_or_default();
            match place {
                TapeResource::DataSets => tape_accounts::data_sets(door, nearline, query).await,
                TapeResource::Account => tape_accounts::account(door, nearline, query).await,
                _ => tape_accounts::metrics(door, nearline).await,
            }
        }
        (
            place @ (TapeResource::Status | TapeResource::OkToStop(_)),
            Method::GET | Method::HEAD,
        )
        | (place @ TapeResource::Repack(_), Method::POST | Method::DELETE)
        | (
            place @ (TapeResource::Retry
            | TapeResource::Drive(_)
            | TapeResource::Tape(_)
            | TapeResource::Verify(_)
            | TapeResource::Relabel(_)
            | TapeResource::Background),
            Method::POST,
        ) => {
            door.administrator(connection.is_tls(), call.caller, "the tape system")?;
            let is_end = call.request.method == Method::DELETE;
            tape_system::answer(door, connection, nearline, (place, is_end)).await
        }
        (place, method) => {
            let allowed = place.methods();
            let text = format!(
                "{method} is not supported here; this part of the tape interface accepts {allowed}"
            );
            Err(Problem::method_of(allowed, text))
        }
    }
}

/// A request that is understood and carried out, with the turns that it has meanwhile.
struct Order {
    body: Vec<u8>,
    _receiving: Option<Turn>,
    _working: Turn,
}

/// The body of a request, once it has its turn. What is large is received in a turn, too.
async fn read_order(
    connection: &mut Connection,
    nearline: &Nearline,
    call: &Call<'_>,
) -> Result<Order, Problem> {
    let files_max = nearline.config.stage_files_max;
    let bytes_max = (files_max * REQUEST_BYTES_PER_FILE_MAX).min(BODY_BYTES_MAX);
    let length = known_length(&call.request.body);
    if length.is_some_and(|length| length > bytes_max as u64) {
        return Err(body_too_large("POST", bytes_max));
    }
    let is_small = length.is_some_and(|length| length <= SMALL_BODY_BYTES_MAX);
    let (body, receiving) = match is_small {
        true => (read_body(connection, "POST", bytes_max).await?, None),
        false => {
            // Who has nothing to send takes no turn.
            let begun = connection.body_begins().await;
            begun.map_err(|why| Problem::bad_request(why.to_string()))?;
            let turn = turn_of(&nearline.turns.receiving, call).await?;
            let read = read_body(connection, "POST", bytes_max);
            let body = tokio::time::timeout(LARGE_BODY_TIME_MAX, read).await;
            let body = body.unwrap_or_else(|_| {
                let (limit, length) = (TimeSpan(LARGE_BODY_TIME_MAX), SMALL_BODY_BYTES_MAX);
                // What still comes of it is no request.
                connection.close_after_answer();
                Err(Problem::new(
                    ProblemCode::BodyTimeout,
                    format!(
                        "the body did not arrive within {limit}; split it into requests of at most {length} bytes"
                    ),
                ))
            });
            (body?, Some(turn))
        }
    };
    Ok(Order {
        body,
        _receiving: receiving,
        _working: turn_of(&nearline.turns.working, call).await?,
    })
}

/// Waits for a turn of the caller.
async fn turn_of(turns: &FairTurns<UserName>, call: &Call<'_>) -> Result<Turn, Problem> {
    let user = call.caller.holder();
    // The interface is for users.
    let user = user.unwrap_or_else(|| UserName::new(""));
    let turn = tokio::time::timeout(TURN_WAIT, turns.turn(&user)).await;
    turn.map_err(|_| {
        let busy = "too many requests about files on tape, or large ones, are being worked on; try again in a while";
        Problem::busy(ProblemCode::ServiceBusy, busy, RETRY_AFTER_SECONDS)
    })
}

/// An answer. Few large ones are in memory while they are sent.
async fn tell_in_turn(
    nearline: &Nearline,
    call: &Call<'_>,
    answer: Response,
) -> Result<Reply, Problem> {
    if answer.body.len() <= SMALL_ANSWER_BYTES_MAX {
        return Ok(answer.into());
    }
    let turn = turn_of(&nearline.turns.telling, call).await?;
    Ok(Reply::InTurn(answer, turn))
}

/// Lets others that this thread serves have their turn, as often as looking up paths asks for it.
#[derive(Default)]
struct LookupPace {
    names: usize,
}

impl LookupPace {
    /// Before a path is looked up, which takes a query for each of its names.
    async fn begin(&mut self, path: &str) {
        self.names += path.bytes().filter(|byte| *byte == b'/').count();
        if self.names > NAMES_LOOKED_UP_AT_ONCE {
            self.names = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// What a path names, as far as the caller may stage it, or why nothing can be brought. Told beside the path.
fn wanted(door: &Door, call: &Call<'_>, path: &str) -> Result<EntryId, StageProblem> {
    let because = |code, text| Err(StageProblem { code, text });
    let parsed = match NamespacePath::parse(path) {
        Ok(parsed) => parsed,
        Err(why) => return because(ProblemCode::RequestMalformed, why.to_string()),
    };
    let may_stage = reserved::refuse(&PathOperation::Stage, &parsed).is_ok()
        && door.allows(call.caller, &PathOperation::Stage, &parsed);
    if !may_stage {
        let text = "not allowed to stage it; a token needs storage.stage for this path";
        return because(ProblemCode::PermissionDenied, text.to_owned());
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
        None => because(ProblemCode::PathNotFound, "it does not exist".to_owned()),
        Some((_, EntryKind::Directory)) => {
            because(ProblemCode::PathIsDirectory, "it is a directory".to_owned())
        }
        Some((_, EntryKind::File { size, .. })) if size.0 == 0 => because(
            ProblemCode::TapeUnsupported,
            "it is empty, so it is on no tape".to_owned(),
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
    let files = parse_stage(
        body,
        nearline.config.stage_files_max,
        &nearline.config.site_name,
    )?;
    let mut submitted = Vec::with_capacity(files.len());
    let (mut denied, mut pace) = (None, LookupPace::default());
    for file in files {
        pace.begin(&file.path).await;
        let found = wanted(door, call, &file.path);
        if let Err(why) = &found
            && why.code == ProblemCode::PermissionDenied
        {
            denied.get_or_insert_with(|| format!("{}: {}", file.path, why.text));
        }
        submitted.push(SubmittedFile {
            path: file.path,
            found,
            pin: file.pin,
            activity: file.activity,
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
        challenge: call.caller.challenge.clone(),
        at: door.storage.clock.recorded(),
        is_of_reader: false,
        files: submitted,
    });
    let id = request.id.clone();
    let asked = request.files.iter();
    let asked = asked.filter_map(|file| file.found.as_ref().ok().copied());
    let asked: Vec<EntryId> = asked.collect();
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
        format!("{path} is being recalled from tape; try again later"),
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
        challenge: call.caller.challenge.clone(),
        at: now,
        is_of_reader: true,
        files: vec![SubmittedFile {
            path: call.path.to_string(),
            found: Ok(file),
            pin: None,
            activity: None,
        }],
    });
    let id = request.id.clone();
    change(door, NearlineChange::Stage(request)).await?;
    let kept = namespace.stage_request(&id)?;
    let staged = kept.and_then(|mut kept| kept.files.pop());
    let problem = match staged.map(|staged| staged.progress) {
        Some(StageProgress::Failed { problem, .. }) => Some(problem),
        Some(
            StageProgress::Waiting { .. }
            | StageProgress::Started { .. }
            | StageProgress::OnDisk { .. }
            | StageProgress::Canceled { .. },
        )
        | None => None,
    };
    match problem {
        // Of a request that nobody knows of nothing needs to be kept.
        Some(_) => let_go_all(door, nearline, NearlineChange::ForgetStage(id)).await?,
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
            "you have no such stage request; it may have ended and been removed",
        )
    };
    let Some(user) = call.caller.holder() else {
        let text = "stage requests are shown only to the user who made them; send a token, or connect with a certificate";
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

fn told(file: StagedFile, outlooks: &RecallOutlooks) -> ToldFile {
    let outlook = file.entry.and_then(|entry| outlooks.get(&entry));
    let coming = || outlook?.at;
    let told = ToldFile {
        path: file.path,
        on_disk: false,
        state: "SUBMITTED",
        problem: None,
        started: None,
        finished: None,
        expected: None,
    };
    let words = |problem: StageProblem| (problem.code.name(), problem.text);
    match file.progress {
        StageProgress::Waiting { begun, waits_for } => ToldFile {
            problem: waits_for.map(words).or_else(|| {
                let wait = outlook?.waits_for.as_ref()?;
                Some((wait.code, wait.what.clone()))
            }),
            started: begun,
            expected: coming(),
            ..told
        },
        StageProgress::Started { at } => ToldFile {
            state: "STARTED",
            started: Some(at),
            expected: coming(),
            ..told
        },
        StageProgress::OnDisk { begun, since, .. } => ToldFile {
            on_disk: true,
            state: "COMPLETED",
            started: begun,
            finished: Some(since),
            ..told
        },
        StageProgress::Failed { begun, problem, at } => ToldFile {
            state: "FAILED",
            problem: Some(words(problem)),
            started: begun,
            finished: Some(at),
            ..told
        },
        StageProgress::Canceled { begun, at } => ToldFile {
            state: "CANCELLED",
            started: begun,
            finished: Some(at),
            ..told
        },
    }
}

fn progress(
    door: &Door,
    nearline: &Nearline,
    call: &Call<'_>,
    id: &StageRequestId,
) -> Result<Response, Problem> {
    let request = own_request(door, call, id, &LOOKS)?;
    let outlooks = nearline.outlooks();
    let created = request.created;
    let files = request.files.into_iter();
    let files: Vec<ToldFile> = files.map(|file| told(file, &outlooks)).collect();
    let document = progress_document(id, created, &files);
    Ok(written_json_answer(StatusCode::OK, document))
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
    let_go(door, nearline, id, &files).await?;
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
            let_go(door, nearline, id, &files).await?;
        }
        Err(problem) if problem.status != StatusCode::NOT_FOUND => return Err(problem),
        Err(_) => {
            let (mut entries, mut refusal) = (Vec::new(), None);
            let mut pace = LookupPace::default();
            for path in paths {
                pace.begin(path).await;
                match wanted(door, call, path) {
                    Ok(entry) => entries.push(entry),
                    Err(why) => refusal = refusal.or(Some(why)),
                }
            }
            match refusal {
                Some(why) if entries.is_empty() && why.code == ProblemCode::PermissionDenied => {
                    return Err(Problem::new(why.code, why.text));
                }
                Some(_) | None => {}
            }
            let at = door.storage.clock.recorded();
            let Some(user) = call.caller.holder() else {
                return Ok(Response::new(StatusCode::OK).into());
            };
            for files in entries.chunks(RELEASED_AT_ONCE) {
                let (user, files) = (user.clone(), files.to_vec());
                let release = NearlineChange::ReleaseOfUser { user, files, at };
                let_go_all(door, nearline, release).await?;
            }
        }
    }
    Ok(Response::new(StatusCode::OK).into())
}

async fn let_go(
    door: &Door,
    nearline: &Nearline,
    id: StageRequestId,
    files: &[u32],
) -> Result<(), Problem> {
    let at = door.storage.clock.recorded();
    for files in files.chunks(RELEASED_AT_ONCE) {
        let (request, files) = (id.clone(), files.to_vec());
        let release = NearlineChange::ReleaseStaged { request, files, at };
        let_go_all(door, nearline, release).await?;
    }
    Ok(())
}

async fn forget(
    door: &Door,
    nearline: &Nearline,
    call: &Call<'_>,
    id: StageRequestId,
) -> Result<Reply, Problem> {
    own_request(door, call, &id, &CHANGES)?;
    tell(call, &id, "forgot a stage request");
    let_go_all(door, nearline, NearlineChange::ForgetStage(id)).await?;
    Ok(Response::new(StatusCode::OK).into())
}

/// Where a file is, or why that is not told. Told beside the path.
fn place_of(door: &Door, call: &Call<'_>, path: &str) -> ToldPlace {
    let parsed = NamespacePath::parse(path).map_err(|why| why.to_string())?;
    let operations = [PathOperation::Poll, PathOperation::Stat];
    let may_ask = operations
        .iter()
        .any(|operation| door.allows(call.caller, operation, &parsed));
    if !may_ask {
        let text =
            "not allowed to ask for it; a token needs storage.poll or storage.read for this path";
        return Err(text.to_owned());
    }
    let entry = door.storage.namespace.lookup(&parsed);
    let entry =
        entry.map_err(|_| "the namespace cannot be read at the moment; ask again".to_owned())?;
    match entry.map(|entry| entry.kind) {
        None => Err("it does not exist".to_owned()),
        Some(EntryKind::Directory) => Err("it is a directory".to_owned()),
        Some(kind @ EntryKind::File { .. }) => Ok(locality(door, &kind)),
    }
}

/// A line in the log for each change that a client makes.
fn tell(call: &Call<'_>, id: &StageRequestId, what: &str) {
    let user = call.caller.user();
    let user = user.as_ref().map_or("nobody", UserName::as_str);
    tracing::info!(user, request = %id, "{what}");
}

async fn change(door: &Door, change: NearlineChange) -> Result<ChangeReport, Problem> {
    let changed = door.storage.change(Change::Nearline(change)).await;
    changed.map_err(|why| Problem::of_change(&why, StatusCode::CONFLICT))
}

/// Has files let go, in as many parts as that takes, and tells the tape system which they were.
async fn let_go_all(
    door: &Door,
    nearline: &Nearline,
    whole: NearlineChange,
) -> Result<(), Problem> {
    loop {
        let part = change(door, whole.clone()).await?;
        nearline.inbox.asked(part.released);
        if !part.is_more {
            return Ok(());
        }
    }
}
