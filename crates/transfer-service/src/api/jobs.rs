//! Handlers of `/jobs`: submission, status, lists, cancel, priority, explanation.

use super::body::{BYTES_MAX, SUBMISSION_BYTES_MAX};
use super::caller::{Caller, Credentials};
use super::extract::{Path, Query};
use super::query::{
    blocking, ended_since, in_turn, limit_of, split, turn_to_block, unexpected, vo_to_look_at,
    without_port,
};
use super::streamed_listing::{FileDetail, JsonDocument};
use super::submit::{InvalidSubmission, Means, Submitter, parse_submission};
use super::{Api, ApiError, ApiResult, delegation, wire};
use crate::cloud::CloudUser;
use crate::tokens::leave_out_foreign_renewals;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ALLOW;
use axum::response::IntoResponse;
use penstock_engine::checked_submission::NewJob;
use penstock_journal::{JobFilter, JobRow, JournalError, TransferRow};
use penstock_model::{
    Access, CredentialId, JobId, Priority, ProblemCode, StorageId, Timestamp, TransferId, UserName,
};
use penstock_protocol::s3::{ObjectPlace, record_names};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// Jobs in one listing at most, as in FTS.
const LIST_MAX: usize = 500;
/// Ids in one request at most; Rucio sends 100.
const IDS_MAX: usize = 1000;
/// Ledger entries that are looked at for one transfer's retries.
const RETRIES_MAX: usize = 1000;
/// What FTS says when a user cancels.
pub(super) const CANCELED_BY_USER: &str = "Job canceled by the user";

/// What `/jobs` takes.
const METHODS: &str = "GET,HEAD,POST,PUT";

pub(super) fn not_found(id: &str) -> ApiError {
    ApiError::new(
        ProblemCode::JobNotFound,
        format!("No job with the id \"{id}\" has been found"),
    )
}

pub(super) fn forbidden() -> ApiError {
    ApiError::new(
        ProblemCode::PermissionDenied,
        "the job belongs to another VO",
    )
}

pub(super) async fn submit(
    State(api): State<Api>,
    credentials: Credentials,
    body: Body,
) -> ApiResult {
    let taken = api.take(&credentials, body, SUBMISSION_BYTES_MAX).await?;
    taken.caller.refuse_session("submit jobs")?;
    let proxy = match taken.caller.token {
        Some(_) => None,
        None => Some(delegation::for_a_job(&api, &taken.caller).await?),
    };
    let clients = api.config.token_clients.clone();
    let now = penstock_clock::wall_clock();
    let turn_of = taken.caller.credential().clone();
    // A large job takes a second to understand, which is too long for an async thread.
    let parsed = blocking(&turn_of, move || {
        // With its turn, which is the work's: whoever sent it may leave.
        let taken = taken;
        let caller = &taken.caller;
        let submitter = Submitter {
            user: &caller.identity.user,
            vo: &caller.vo,
            delegation: &caller.identity.delegation,
            means: match (&caller.token, &proxy) {
                (Some(token), _) => Means::Token(token),
                (None, _) => Means::Proxy,
            },
            clients: &clients,
        };
        // Time-ordered ids keep the journal's index compact.
        parse_submission(&taken.bytes, &submitter, Uuid::now_v7(), now)
    });
    let (mut job, id_given) = match parsed.await? {
        Ok(parsed) => parsed,
        Err(why @ InvalidSubmission::Bad(_)) => {
            return Err(ApiError::new(
                ProblemCode::RequestMalformed,
                why.to_string(),
            ));
        }
        Err(why @ InvalidSubmission::Deletion) => {
            let refused = ApiError::new(ProblemCode::MethodNotAllowed, why.to_string());
            return Ok(([(ALLOW, METHODS)], refused).into_response());
        }
    };
    leave_out_foreign_renewals(&api.config.verifier, &mut job, now)
        .await
        .map_err(|why| ApiError::new(why.code(), why.to_string()))?;
    can_reach_clouds(&api, &job)?;
    let id = match id_given {
        true => submit_once(api.clone(), turn_of, job).await?,
        false => api.service.submit(job).await?,
    };
    Ok(Json(json!({"job_id": id.to_string()})).into_response())
}

/// Refuses a job for whose files in cloud storages nobody has given keys: it would wait only to fail.
fn can_reach_clouds(api: &Api, job: &NewJob) -> Result<(), ApiError> {
    let ends = job
        .transfers
        .iter()
        .flat_map(|transfer| [&transfer.source, &transfer.destination]);
    let mut clouds = ends.filter(|url| url.access() == Access::Cloud).peekable();
    if clouds.peek().is_none() {
        return Ok(());
    }
    let (settings, path_style) = (api.service.settings(), job.parameters.s3_path_style);
    let user = CloudUser {
        user: job.user.clone(),
        delegation: job.delegation.clone(),
        is_by_certificate: job.parameters.proxy.is_some(),
        vo: job.vo.clone(),
    };
    // Thousands of files are in a few places.
    let mut known = HashMap::new();
    for url in clouds {
        let refused = |why: String| ApiError::new(ProblemCode::RequestMalformed, why);
        let names = record_names(url, path_style);
        let is_virtual_host = match known.get(&names) {
            Some(is_virtual_host) => *is_virtual_host,
            None => {
                let opened = user.key(&settings, url, path_style);
                let opened = opened.map_err(|why| refused(format!("{url}: {why}")))?;
                known.insert(names, opened.is_virtual_host);
                opened.is_virtual_host
            }
        };
        let place = ObjectPlace::of(url, is_virtual_host, None);
        place.map_err(|why| refused(why.to_string()))?;
    }
    Ok(())
}

/// Submits a job whose id was chosen by the client. In a task of its own: dropped half-way, because the client hung
/// up, it would let a second submission with the same id pass before the first is stored.
async fn submit_once(api: Api, of: CredentialId, job: NewJob) -> Result<JobId, ApiError> {
    let submission = tokio::spawn(async move {
        // Before the lock: nobody else's submission shall wait for this user's turns.
        let turn = turn_to_block(&of).await;
        let _only_one = api.service.given_ids.lock().await;
        let (reader, id) = (api.service.reader().clone(), job.id);
        if in_turn(turn, move || reader.job(id)).await??.is_some() {
            let text = format!("the job {} was submitted before with the same sid", job.id);
            return Err(ApiError::new(ProblemCode::JobDuplicate, text));
        }
        Ok(api.service.submit(job).await?)
    });
    submission
        .await
        .unwrap_or_else(|error| Err(unexpected(&error)))
}

/// The query of `GET /jobs`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ListQuery {
    user_dn: Option<String>,
    vo_name: Option<String>,
    dlg_id: Option<String>,
    state_in: Option<String>,
    source_se: Option<String>,
    dest_se: Option<String>,
    limit: Option<String>,
    time_window: Option<String>,
    fields: Option<String>,
}

pub(super) async fn list(
    State(api): State<Api>,
    credentials: Credentials,
    Query(query): Query<ListQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let limit = limit_of(query.limit.as_deref(), LIST_MAX)?;
    let foreign_id = query
        .dlg_id
        .as_deref()
        .is_some_and(|id| id != caller.identity.delegation.as_str());
    if foreign_id && !caller.may_touch_everything() {
        return Err(ApiError::new(
            ProblemCode::PermissionDenied,
            "'dlg_id' names somebody else",
        ));
    }
    let vo = vo_to_look_at(&caller, query.vo_name.as_deref())?;
    let states: Vec<String> = split(query.state_in.as_deref())
        .map(str::to_owned)
        .collect();
    let window = ended_since(query.time_window.as_deref(), penstock_clock::wall_clock())?;
    let ended_since = match window {
        None if !states.is_empty() => Some(Timestamp(0)),
        window => window,
    };
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let filter = JobFilter {
        ended_since,
        states,
        user: given(&query.user_dn).map(UserName::new),
        vo,
        source: given(&query.source_se).map(|se| StorageId::new(without_port(&se))),
        destination: given(&query.dest_se).map(|se| StorageId::new(without_port(&se))),
        delegation: given(&query.dlg_id).map(CredentialId::new),
        limit,
    };
    let reader = api.service.reader().clone();
    let rows = blocking(caller.credential(), move || reader.jobs(&filter)).await??;
    let fields: Vec<&str> = split(query.fields.as_deref()).collect();
    let shown = rows.iter().map(|row| {
        let object = wire::job(row, &api.config.host);
        if fields.is_empty() {
            Value::Object(object)
        } else {
            wire::select(object, &fields)
        }
    });
    Ok(Json(shown.collect::<Vec<_>>()).into_response())
}

/// The query of `GET /jobs/{ids}`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ShowQuery {
    files: Option<String>,
}

pub(super) async fn show(
    State(api): State<Api>,
    credentials: Credentials,
    Path(ids): Path<String>,
    Query(query): Query<ShowQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let fields: Vec<String> = split(query.files.as_deref()).map(str::to_owned).collect();
    each_job(&api, &caller, &ids, Entry::Job, fields).await
}

pub(super) async fn cancel(
    State(api): State<Api>,
    credentials: Credentials,
    Path(ids): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let mut open = BTreeSet::new();
    for id in id_list(&ids)?.iter().filter_map(|text| wire::job_id(text)) {
        if let Some(row) = stored(&api, &caller, id).await?
            && caller.may_touch(&row)
            && !row.state.is_terminal()
        {
            open.insert(id);
            api.service.cancel(id, None, CANCELED_BY_USER).await?;
        }
    }
    let canceled = |row: JobRow| {
        // It may have ended by itself between the look and the cancellation.
        let is_by_user = row.reason.as_deref() == Some(CANCELED_BY_USER);
        done_unless_ended(open.contains(&row.id) && is_by_user, row)
    };
    each_job(&api, &caller, &ids, canceled, Vec::new()).await
}

/// FTS tells of what had ended before that nothing was done to it.
fn done_unless_ended(was_done: bool, row: JobRow) -> Entry {
    match row.state.is_terminal() && !was_done {
        true => Entry::Untouched(row, "The job is in a terminal state"),
        false => Entry::Done(row),
    }
}

/// The body of `POST /jobs/{ids}`.
#[derive(Debug, Deserialize)]
struct Modification {
    params: ModifiedParams,
}

#[derive(Debug, Deserialize)]
struct ModifiedParams {
    priority: Value,
}

pub(super) async fn modify(
    State(api): State<Api>,
    credentials: Credentials,
    Path(ids): Path<String>,
    body: Body,
) -> ApiResult {
    let taken = api.take(&credentials, body, BYTES_MAX).await?;
    let caller = taken.caller;
    let bad = |why: String| {
        let text = format!("'params.priority' must be an integer: {why}");
        ApiError::new(ProblemCode::RequestMalformed, text)
    };
    let wanted: Modification =
        serde_json::from_slice(&taken.bytes).map_err(|why| bad(why.to_string()))?;
    let number = wanted.params.priority.as_number().and_then(wire::whole);
    let number = number.ok_or_else(|| bad(format!("it is {}", wanted.params.priority)))?;
    let priority = Priority::clamped(number);
    for id in id_list(&ids)?.iter().filter_map(|text| wire::job_id(text)) {
        if let Some(row) = stored(&api, &caller, id).await?
            && caller.may_touch(&row)
        {
            api.service.reprioritise(id, priority).await?;
        }
    }
    let changed = |row| done_unless_ended(false, row);
    each_job(&api, &caller, &ids, changed, Vec::new()).await
}

pub(super) async fn files(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = one_job(&api, &caller, &id).await?;
    let mut document = JsonDocument::default();
    document.files(job, FileDetail::Everything);
    Ok(document.answer(StatusCode::OK, &api, &caller))
}

/// Deletions and stagings of a job: this service has none, and clients ask for them with every status.
pub(super) async fn data_management(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    one_job(&api, &caller, &id).await?;
    Ok(Json(json!([])).into_response())
}

pub(super) async fn field(
    State(api): State<Api>,
    credentials: Credentials,
    Path((id, field)): Path<(String, String)>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = one_job(&api, &caller, &id).await?;
    field_of(&api, &job, &field)
}

pub(super) fn field_of(api: &Api, job: &JobRow, field: &str) -> ApiResult {
    let object = wire::job(job, &api.config.host);
    let value = object
        .get(field)
        .ok_or_else(|| ApiError::new(ProblemCode::ResourceNotFound, "No such field"))?;
    Ok(Json(value).into_response())
}

/// `GET /jobs/all`: a word where an id is expected.
pub(super) async fn not_an_id(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    api.caller(&credentials).await?;
    Err(not_found("all"))
}

pub(super) async fn cancel_files(
    State(api): State<Api>,
    credentials: Credentials,
    Path((id, list)): Path<(String, String)>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = one_job(&api, &caller, &id).await?;
    let asked: Vec<_> = id_list(&list)?
        .iter()
        .map(|text| wire::transfer_id(text))
        .collect();
    let known = of_job(&api, &caller, job.id, &asked).await?;
    let transfers = known.iter().flatten().map(|row| row.id).collect();
    api.service
        .cancel(job.id, Some(transfers), CANCELED_BY_USER)
        .await?;
    let rows = of_job(&api, &caller, job.id, &asked).await?;
    let states: Vec<&str> = rows
        .iter()
        .map(|row| match row {
            Some(row) => row.fts_state(),
            None => "File does not belong to the job",
        })
        .collect();
    Ok(match states.as_slice() {
        [only] => Json(json!(only)).into_response(),
        several => Json(json!(several)).into_response(),
    })
}

pub(super) async fn retries(
    State(api): State<Api>,
    credentials: Credentials,
    Path((id, file)): Path<(String, String)>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = one_job(&api, &caller, &id).await?;
    let found = of_job(&api, &caller, job.id, &[wire::transfer_id(&file)]).await?;
    let transfer = found.into_iter().flatten().next().map(|row| row.id);
    let transfer = transfer
        .ok_or_else(|| ApiError::new(ProblemCode::TransferNotFound, "No such file in this job"))?;
    let reader = api.service.reader().clone();
    let read = move || reader.entries_of(transfer, RETRIES_MAX);
    let entries = blocking(caller.credential(), read).await??;
    let shown: Vec<Value> = entries
        .iter()
        .filter_map(|entry| wire::retry(entry, &api.config.host))
        .collect();
    Ok(Json(shown).into_response())
}

pub(super) async fn explain(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = one_job(&api, &caller, &id).await?;
    let (reader, id) = (api.service.reader().clone(), job.id);
    let counts = blocking(caller.credential(), move || reader.state_counts(id)).await??;
    let mut document = JsonDocument::default();
    let told = wire::explanation(&job, &counts);
    document.object_with_files(told, job, FileDetail::Explanation);
    Ok(document.answer(StatusCode::OK, &api, &caller))
}

/// One job, if the caller may see it.
pub(super) async fn one_job(api: &Api, caller: &Caller, text: &str) -> Result<JobRow, ApiError> {
    let found = lookup(api, caller, text).await?;
    let job = found.ok_or_else(|| not_found(text))?;
    match caller.may_touch(&job) {
        true => Ok(job),
        false => Err(forbidden()),
    }
}

/// For each number that was asked for the transfer, if it is one of the job.
async fn of_job(
    api: &Api,
    caller: &Caller,
    job: JobId,
    asked: &[Option<TransferId>],
) -> Result<Vec<Option<TransferRow>>, ApiError> {
    let (reader, asked) = (api.service.reader().clone(), asked.to_vec());
    let read = move || {
        let row = |id: Option<TransferId>| match id {
            Some(id) => reader.transfer(id),
            None => Ok(None),
        };
        let rows = asked.into_iter().map(row);
        rows.map(|row| Ok(row?.filter(|row| row.job == job)))
            .collect::<Result<Vec<_>, JournalError>>()
    };
    Ok(blocking(caller.credential(), read).await??)
}

/// How one id of a list is answered.
enum Entry {
    Job(JobRow),
    /// What was asked is done. Rucio reads the message that goes with it, which is null.
    Done(JobRow),
    /// Nothing was done to it, and why.
    Untouched(JobRow, &'static str),
}

/// One object for one id, a list for several; a list with an error in it is answered 207, as FTS does.
async fn each_job(
    api: &Api,
    caller: &Caller,
    ids: &str,
    treat: impl Fn(JobRow) -> Entry,
    fields: Vec<String>,
) -> ApiResult {
    let texts = id_list(ids)?;
    let is_list = texts.len() != 1;
    let fields: Arc<[String]> = fields.into();
    let mut worst = StatusCode::OK;
    let mut document = JsonDocument::default();
    // A job that is named a thousand times is looked at once.
    let mut seen: HashMap<&str, Option<JobRow>> = HashMap::new();
    document.text(if is_list { "[" } else { "" });
    for (number, text) in texts.iter().enumerate() {
        document.text(if number > 0 { "," } else { "" });
        if !seen.contains_key(text) {
            seen.insert(text, lookup(api, caller, text).await?);
        }
        let (status, why) = match seen.get(text).cloned().flatten() {
            Some(job) if caller.may_touch(&job) => {
                write_entry(api, treat(job), &fields, &mut document);
                continue;
            }
            Some(_) => {
                let user = &caller.identity.user;
                tracing::warn!(%user, job = text, "refused a request for a job of another VO");
                (StatusCode::FORBIDDEN, "The job belongs to another VO")
            }
            None => (StatusCode::NOT_FOUND, "No such job"),
        };
        worst = status;
        document.text(&problem(text, status, why).to_string());
    }
    document.text(if is_list { "]" } else { "" });
    let status = match worst {
        StatusCode::OK => StatusCode::OK,
        _ if is_list => StatusCode::MULTI_STATUS,
        worst => worst,
    };
    Ok(document.answer(status, api, caller))
}

async fn lookup(api: &Api, caller: &Caller, text: &str) -> Result<Option<JobRow>, ApiError> {
    let Some(id) = wire::job_id(text) else {
        return Ok(None);
    };
    stored(api, caller, id).await
}

async fn stored(api: &Api, caller: &Caller, id: JobId) -> Result<Option<JobRow>, ApiError> {
    let reader = api.service.reader().clone();
    Ok(blocking(caller.credential(), move || reader.job(id)).await??)
}

fn write_entry(api: &Api, entry: Entry, fields: &Arc<[String]>, document: &mut JsonDocument) {
    let (row, status, message) = match entry {
        Entry::Job(row) => (row, "200 Ok", None),
        Entry::Done(row) => (row, "200 Ok", Some(Value::Null)),
        Entry::Untouched(row, why) => (row, "304 Not Modified", Some(json!(why))),
    };
    let mut object = wire::job(&row, &api.config.host);
    object.insert("http_status".to_owned(), json!(status));
    if let Some(message) = message {
        object.insert("http_message".to_owned(), message);
    }
    match fields.is_empty() {
        true => document.text(&Value::Object(object).to_string()),
        false => document.object_with_files(object, row, FileDetail::Fields(Arc::clone(fields))),
    }
}

fn problem(id: &str, status: StatusCode, message: &str) -> Value {
    let name = status.canonical_reason().unwrap_or_default();
    json!({
        "job_id": id,
        "http_status": format!("{} {name}", status.as_u16()),
        "http_message": message,
    })
}

fn id_list(text: &str) -> Result<Vec<&str>, ApiError> {
    let ids: Vec<&str> = text.split(',').filter(|id| !id.is_empty()).collect();
    if ids.len() > IDS_MAX {
        return Err(ApiError::new(
            ProblemCode::RequestMalformed,
            format!("at most {IDS_MAX} ids in one request"),
        ));
    }
    Ok(ids)
}
