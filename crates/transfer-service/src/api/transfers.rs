//! Any transfer and its story: `/api/v1/transfers` finds, `/api/v1/transfers/ID` tells, and
//! `/jobs/ID/files/N/log` is the same as the text of a log.

use super::caller::{Caller, Credentials};
use super::extract::{Path, Query};
use super::jobs::one_job;
use super::query::{blocking, limit_of, split, vo_to_look_at, without_port};
use super::{Api, ApiError, ApiResult, wire};
use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::IntoResponse;
use penstock_decide::story::{self, Facts};
use penstock_journal::{
    FoundTransfer, JobRow, JournalError, JournalReader, TransferFilter, TransferRow,
};
use penstock_model::{
    JobId, LedgerEntry, LinkChange, LinkSample, ProblemCode, StorageId, Timestamp, TransferId,
    TransferState, WaitReason,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Transfers on one page.
const PAGE_MAX: usize = 500;
const PAGE: usize = 50;
/// Transfers that are looked at for one page.
const EXAMINED_MAX: usize = 50_000;
/// Words in one question.
const WORDS_MAX: usize = 10;
/// How far back a question looks that does not say: a week.
const WITHIN_SECONDS: i64 = 7 * 24 * 3600;
/// Lines of the ledger, and changes of the link, that a story is told from.
const ENTRIES_MAX: usize = 2000;
const CHANGES_MAX: usize = 200;
/// How long after a submission its link may have been sampled.
const SAMPLED_WITHIN_MS: i64 = 3000;

/// What somebody looks for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FindQuery {
    /// Words: parts of an address, a job's id, a transfer's number.
    q: Option<String>,
    state: Option<String>,
    host: Option<String>,
    source: Option<String>,
    destination: Option<String>,
    vo: Option<String>,
    within: Option<String>,
    before: Option<String>,
    limit: Option<String>,
}

/// `GET /api/v1/transfers`: a page of transfers, newest first. `next` begins the page after it, also when this one is
/// empty.
pub(super) async fn find(
    State(api): State<Api>,
    credentials: Credentials,
    Query(query): Query<FindQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let filter = filter_of(&caller, &query)?;
    let number = match &query.before {
        None => query.q.as_deref().and_then(wire::transfer_id),
        Some(_) => None,
    };
    let reader = api.service.reader().clone();
    let read = move || {
        let by_number = number.map(|id| reader.transfer(id)).transpose()?.flatten();
        let by_number = match by_number {
            Some(row) => reader.job(row.job)?.map(|job| (row, job)),
            None => None,
        };
        Ok::<_, JournalError>((by_number, reader.find(&filter)?))
    };
    let (by_number, page) = blocking(caller.credential(), read).await??;
    let by_number = by_number.filter(|(_, job)| caller.may_touch(job));
    let mut rows: Vec<Value> = Vec::new();
    let mut seen = None;
    if let Some((row, job)) = by_number {
        seen = Some(row.id);
        rows.push(found(&FoundTransfer {
            transfer: row,
            user: job.user,
            vo: job.vo,
            submitted_at: job.submitted_at,
            parameters: job.parameters,
        }));
    }
    let others = page.transfers.iter();
    rows.extend(
        others
            .filter(|one| Some(one.transfer.id) != seen)
            .map(found),
    );
    Ok(Json(json!({
        "transfers": rows,
        "next": page.before.map(|before| before.0),
        "examined": page.examined,
        "removed_until": api.service.history_removed_until().map(|at| at.0),
    }))
    .into_response())
}

fn filter_of(caller: &Caller, query: &FindQuery) -> Result<TransferFilter, ApiError> {
    let bad = |text: String| ApiError::new(ProblemCode::RequestMalformed, text);
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let number = |name: &str, text: &Option<String>| match given(text) {
        None => Ok(None),
        Some(text) => {
            let number: Option<i64> = text.trim().parse().ok().filter(|number| *number >= 0);
            number
                .map(Some)
                .ok_or_else(|| bad(format!("'{name}' is '{text}'; it must be a whole number")))
        }
    };
    let mut words: Vec<String> = query
        .q
        .iter()
        .flat_map(|text| text.split_whitespace().map(str::to_owned))
        .collect();
    if words.len() > WORDS_MAX {
        return Err(bad(format!("'q' is limited to {WORDS_MAX} words")));
    }
    let job: Option<JobId> = words.iter().find_map(|word| wire::job_id(word));
    words.retain(|word| wire::job_id(word).is_none());
    let within = number("within", &query.within)?;
    let within = match job {
        // All files of a job, however old it is.
        Some(_) => within.unwrap_or(0),
        None => within.unwrap_or(WITHIN_SECONDS),
    };
    let now = penstock_clock::wall_clock();
    let since = now.0.saturating_sub(within.saturating_mul(1000));
    let states = split(query.state.as_deref()).map(str::to_ascii_uppercase);
    Ok(TransferFilter {
        job,
        vo: vo_to_look_at(caller, query.vo.as_deref())?,
        states: states.collect(),
        submitted_since: (within > 0).then_some(Timestamp(since)),
        source: given(&query.source).map(|se| StorageId::new(without_port(&se))),
        destination: given(&query.destination).map(|se| StorageId::new(without_port(&se))),
        host: given(&query.host),
        parts: words,
        before: number("before", &query.before)?.map(|before| TransferId(before as u64)),
        limit: match given(&query.limit) {
            None => PAGE,
            limit => limit_of(limit.as_deref(), PAGE_MAX)?,
        },
        examined_max: EXAMINED_MAX,
        ..TransferFilter::default()
    })
}

/// A transfer in a list.
pub(super) fn found(one: &FoundTransfer) -> Value {
    let row = &one.transfer;
    json!({
        "transfer": row.id.0,
        "job": row.job.to_string(),
        "vo": one.vo.as_str(),
        "user": one.user.as_str(),
        "state": row.fts_state(),
        "source": row.request.source.to_string(),
        "destination": row.request.destination.to_string(),
        "activity": row.request.activity.as_str(),
        "submitted": one.submitted_at.0,
        "started": row.started_at.map(|at| at.0),
        "finished": row.finished_at.map(|at| at.0),
        "size_bytes": row.size_bytes.or(row.request.size.map(|size| size.0)),
        "reason": Some(wire::reason(&row.state)).filter(|text| !text.is_empty()),
    })
}

/// What a story is told from, as it was read.
struct TransferReply {
    row: TransferRow,
    job: JobRow,
    entries: Vec<LedgerEntry>,
    changes: Vec<LinkChange>,
    sample: Option<LinkSample>,
    waiting: Option<WaitReason>,
}

impl TransferReply {
    fn facts(&self) -> Facts<'_> {
        Facts {
            request: &self.row.request,
            user: &self.job.user,
            vo: &self.job.vo,
            parameters: &self.job.parameters,
            entries: &self.entries,
            link_changes: &self.changes,
            link_at_start: self.sample.as_ref(),
            state: &self.row.state,
            waiting: self.waiting.as_ref(),
            now: penstock_clock::wall_clock(),
        }
    }
}

async fn told(
    api: &Api,
    caller: &Caller,
    row: TransferRow,
    job: JobRow,
) -> Result<TransferReply, ApiError> {
    let mut waiting = api.service.why_waiting(vec![row.id]).await?;
    let reader = api.service.reader().clone();
    let read = move || {
        let (entries, changes, sample) = record_of(reader.as_ref(), &row, &job)?;
        Ok::<_, JournalError>(TransferReply {
            entries,
            changes,
            sample,
            waiting: waiting.pop().flatten(),
            row,
            job,
        })
    };
    Ok(blocking(caller.credential(), read).await??)
}

type RecordParts = (Vec<LedgerEntry>, Vec<LinkChange>, Option<LinkSample>);

fn record_of(
    reader: &dyn JournalReader,
    row: &TransferRow,
    job: &JobRow,
) -> Result<RecordParts, JournalError> {
    let link = row.request.link();
    let (from, until) = (job.submitted_at, row.finished_at);
    let until = until.unwrap_or_else(penstock_clock::wall_clock);
    let sampled = Timestamp(from.0 + SAMPLED_WITHIN_MS);
    let samples = reader.samples_between(from, sampled)?;
    Ok((
        reader.entries_of(row.id, ENTRIES_MAX)?,
        reader.link_changes(&link, from, until, CHANGES_MAX)?,
        samples.into_iter().find(|sample| sample.link == link),
    ))
}

/// `GET /api/v1/transfers/ID`.
pub(super) async fn show(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let (row, job) = one_transfer(&api, &caller, &id).await?;
    let starts = api.service.when_it_starts(row.id).await?;
    let told = told(&api, &caller, row, job).await?;
    let facts = told.facts();
    let steps = story::tell(&facts).into_iter();
    let steps =
        steps.map(|step| json!({"at": step.at.0, "kind": step.kind.name(), "text": step.text}));
    let mut object = found(&FoundTransfer {
        transfer: told.row.clone(),
        user: told.job.user.clone(),
        vo: told.job.vo.clone(),
        submitted_at: told.job.submitted_at,
        parameters: told.job.parameters.clone(),
    });
    object["priority"] = json!(told.job.parameters.priority.get());
    object["job_state"] = json!(told.job.state.name());
    object["waiting"] = json!(told.waiting);
    object["starts"] = json!(starts);
    object["copied"] = wire::copied(&told.row.state, &told.job);
    object["stages"] = stages_of(&told.row.state);
    object["steps"] = steps.collect();
    Ok(Json(object).into_response())
}

/// Where the time of the attempt that succeeded went, in the order in which bytes meet the stages; `null` until the file has
/// arrived.
fn stages_of(state: &TransferState) -> Value {
    match state {
        TransferState::Finished { report, .. } | TransferState::Archiving { report, .. } => {
            let stages = report.stages.named().into_iter();
            stages
                .map(|(stage, microseconds)| json!({"stage": stage, "microseconds": microseconds}))
                .collect()
        }
        TransferState::NotUsed
        | TransferState::Staging { .. }
        | TransferState::Recalling { .. }
        | TransferState::Submitted { .. }
        | TransferState::Active { .. }
        | TransferState::Failed { .. }
        | TransferState::Canceled { .. } => Value::Null,
    }
}

/// One transfer with its job, if the caller may see it.
pub(super) async fn one_transfer(
    api: &Api,
    caller: &Caller,
    id: &str,
) -> Result<(TransferRow, JobRow), ApiError> {
    let nothing = || {
        let mut text = format!("No transfer with the number \"{id}\" has been found");
        if let Some(until) = api.service.history_removed_until() {
            let until = until.to_fts();
            text += &format!("; some that ended before {until}Z are no longer kept");
        }
        ApiError::new(ProblemCode::TransferNotFound, text)
    };
    let number = wire::transfer_id(id).ok_or_else(nothing)?;
    let reader = api.service.reader().clone();
    let read = move || {
        let row = reader.transfer(number)?;
        let job = match &row {
            Some(row) => reader.job(row.job)?,
            None => None,
        };
        Ok::<_, JournalError>(row.zip(job))
    };
    // Numbers are consecutive: another answer for those of other VOs would tell how much moves here.
    let known = blocking(caller.credential(), read).await??;
    let visible = known.filter(|(_, job)| caller.may_touch(job));
    visible.ok_or_else(nothing)
}

/// What happened to a transfer, step by step.
pub(super) async fn steps_of(
    api: &Api,
    caller: &Caller,
    row: TransferRow,
    job: JobRow,
) -> Result<Vec<story::Step>, ApiError> {
    let told = told(api, caller, row, job).await?;
    Ok(story::tell(&told.facts()))
}

/// `GET /jobs/ID/files/N/log`.
pub(super) async fn log(
    State(api): State<Api>,
    credentials: Credentials,
    Path((id, file)): Path<(String, String)>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = one_job(&api, &caller, &id).await?;
    let reader = api.service.reader().clone();
    let number = wire::transfer_id(&file);
    let read = move || number.map_or(Ok(None), |number| reader.transfer(number));
    let row = blocking(caller.credential(), read)
        .await??
        .filter(|row| row.job == job.id);
    let row = row
        .ok_or_else(|| ApiError::new(ProblemCode::TransferNotFound, "No such file in this job"))?;
    let told = told(&api, &caller, row, job).await?;
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, story::log(&told.facts())).into_response())
}
