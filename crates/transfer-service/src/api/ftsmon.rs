//! `/fts3/ftsmon/…`: the questions of FTS's web monitor, answered as JSON with the rights of the REST interface.
//!
//! What is counted is counted over the newest transfers of a time window, at most [`COUNTED_MAX`]; `complete` tells
//! whether these were all. The monitor's own page is our live page.
//!
//! Long because it has all questions of one foreign interface, and their answers share their small parts.

use super::caller::{Caller, Credentials};
use super::config::ConfigSection;
use super::extract::{Path, Query};
use super::jobs::one_job;
use super::query::{blocking, ended_since, split, vo_to_look_at, without_port};
use super::{Api, ApiError, ApiResult, transfers, wire};
use axum::extract::State;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use axum::{Json, Router};
use penstock_journal::{FoundTransfer, JobFilter, TransferFilter, TuningFilter};
use penstock_model::{LinkId, ProblemCode, StorageId, Timestamp, TransferId, TransferState};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Transfers that are counted for one answer.
const COUNTED_MAX: usize = 10_000;
/// Rows that are looked at for them.
const EXAMINED_MAX: usize = 50_000;
/// Rows on one page, and pages.
const PAGE_ROWS: usize = 50;
const PAGE_ROWS_MAX: usize = 500;
/// Decisions about links that are looked through.
const DECISIONS_MAX: usize = 1000;
/// How far into a list pages reach.
const ROWS_MAX: usize = 10_000;
/// Hours that are looked back, unless more are asked for: as in FTS.
const WINDOW: &str = "1";
/// Changes of a link that are shown.
const CHANGES_MAX: usize = 100;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/fts3/ftsmon", get(page))
        .route("/fts3/ftsmon/", get(page))
        .route("/fts3/ftsmon/overview", get(overview))
        .route("/fts3/ftsmon/overview/activities", get(activities))
        .route("/fts3/ftsmon/jobs", get(jobs))
        .route("/fts3/ftsmon/jobs/{id}", get(job))
        .route("/fts3/ftsmon/jobs/{id}/files", get(job_files))
        .route("/fts3/ftsmon/transfers", get(list))
        .route("/fts3/ftsmon/linkinfo", get(link_info))
        .route("/fts3/ftsmon/config/{kind}", get(config))
        .route("/fts3/ftsmon/config/activities/{vo}", get(config_of_vo))
        .route("/fts3/ftsmon/stats", get(stats))
        .route("/fts3/ftsmon/stats/servers", get(servers))
        .route("/fts3/ftsmon/stats/vo", get(stats_by_vo))
        .route("/fts3/ftsmon/optimizer", get(optimizer))
        .route("/fts3/ftsmon/optimizer/detailed", get(optimizer_detailed))
        .route("/fts3/ftsmon/errors", get(errors))
        .route("/fts3/ftsmon/errors/list", get(error_list))
        .route("/fts3/ftsmon/unique/{what}", get(unique))
        .route("/fts3/ftsmon/version", get(version))
}

/// The page itself. Browsers keep what follows the `#`, so Rucio's links to a job open it there.
async fn page() -> Redirect {
    Redirect::temporary("/live/")
}

/// What most questions take.
#[derive(Debug, Default, Deserialize)]
struct MonitorQuery {
    vo: Option<String>,
    source_se: Option<String>,
    dest_se: Option<String>,
    activity: Option<String>,
    state: Option<String>,
    reason: Option<String>,
    time_window: Option<String>,
    page: Option<String>,
    page_size: Option<String>,
}

impl MonitorQuery {
    fn storage(text: &Option<String>) -> Option<StorageId> {
        let given = text.as_deref().filter(|text| !text.is_empty());
        given.map(|se| StorageId::new(without_port(se)))
    }

    fn since(&self) -> Result<Option<Timestamp>, ApiError> {
        let window = self.time_window.as_deref().unwrap_or(WINDOW);
        ended_since(Some(window), penstock_clock::wall_clock())
    }

    fn states(&self) -> Vec<String> {
        let states = split(self.state.as_deref());
        states.map(str::to_ascii_uppercase).collect()
    }

    fn filter(&self, caller: &Caller, limit: usize) -> Result<TransferFilter, ApiError> {
        Ok(TransferFilter {
            vo: vo_to_look_at(caller, self.vo.as_deref())?,
            states: self.states(),
            submitted_since: self.since()?,
            source: MonitorQuery::storage(&self.source_se),
            destination: MonitorQuery::storage(&self.dest_se),
            limit,
            examined_max: EXAMINED_MAX,
            ..TransferFilter::default()
        })
    }

    /// The page that is wanted. Pages beyond [`ROWS_MAX`] are empty.
    fn page(&self) -> Result<Page, ApiError> {
        let size = number("page_size", &self.page_size, PAGE_ROWS)?;
        if size > PAGE_ROWS_MAX {
            let text = format!("'page_size' is {size}; it must be 1 to {PAGE_ROWS_MAX}");
            return Err(ApiError::new(ProblemCode::RequestMalformed, text));
        }
        Ok(Page {
            number: number("page", &self.page, 1)?,
            size,
        })
    }
}

/// A number from 1; as large as can be for one with more digits.
fn number(name: &str, text: &Option<String>, otherwise: usize) -> Result<usize, ApiError> {
    let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(otherwise);
    };
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().unwrap_or(usize::MAX);
    match is_number && number > 0 {
        true => Ok(number),
        false => {
            let text = format!("'{name}' is '{text}'; it must be a number from 1");
            Err(ApiError::new(ProblemCode::RequestMalformed, text))
        }
    }
}

/// A page of a list.
#[derive(Debug, Clone, Copy)]
struct Page {
    /// From 1.
    number: usize,
    /// Rows on it.
    size: usize,
}

/// How many rows must be read to show a page and to know whether there is another.
fn rows_up_to(page: Page) -> usize {
    page.number.saturating_mul(page.size).min(ROWS_MAX) + 1
}

/// A list as FTS's monitor cuts it into pages.
fn paged(rows: Vec<Value>, Page { number, size }: Page) -> Value {
    let count = rows.len();
    let start = (number - 1).saturating_mul(size).min(count);
    let end = (start + size).min(count);
    let items: Vec<Value> = rows.into_iter().skip(start).take(size).collect();
    json!({
        "count": count,
        "startIndex": start,
        "endIndex": end,
        "page": number,
        "pageCount": count.div_ceil(size),
        "pageSize": size,
        "items": items,
    })
}

/// The newest transfers that somebody asks about, and whether these are all.
struct CountedRow {
    transfers: Vec<FoundTransfer>,
    complete: bool,
}

async fn counted(api: &Api, caller: &Caller, asked: &MonitorQuery) -> Result<CountedRow, ApiError> {
    let filter = asked.filter(caller, COUNTED_MAX)?;
    let reader = api.service.reader().clone();
    let mut found = blocking(caller.credential(), move || reader.find(&filter)).await??;
    if let Some(activity) = asked.activity.as_deref().filter(|text| !text.is_empty()) {
        let is_it = |one: &FoundTransfer| one.transfer.request.activity.as_str() == activity;
        found.transfers.retain(is_it);
    }
    Ok(CountedRow {
        transfers: found.transfers,
        complete: found.before.is_none(),
    })
}

/// How many transfers are in which state.
#[derive(Default)]
struct Tally {
    states: BTreeMap<&'static str, u64>,
    moved: u64,
    seconds: f64,
}

impl Tally {
    fn count(&mut self, one: &FoundTransfer) {
        let row = &one.transfer;
        *self.states.entry(row.state.fts_name()).or_default() += 1;
        if let TransferState::Finished {
            size,
            at,
            started_at,
            ..
        } = &row.state
        {
            self.moved = self.moved.saturating_add(size.0);
            self.seconds += at.since(*started_at).as_secs_f64();
        }
    }

    fn of(&self, state: &str) -> u64 {
        self.states.get(state).copied().unwrap_or(0)
    }

    /// FTS's keys; `current` is the mean rate of a file in MiB/s, `rate` the percentage that arrived.
    fn shown(&self) -> Value {
        let (finished, failed) = (self.of("FINISHED"), self.of("FAILED"));
        let ended = finished + failed;
        let mebibytes = self.moved as f64 / f64::from(1 << 20);
        json!({
            "submitted": self.of("SUBMITTED"),
            "staging": self.of("STAGING") + self.of("STARTED"),
            "active": self.of("ACTIVE"),
            "finished": finished,
            "failed": failed,
            "canceled": self.of("CANCELED"),
            "current": (self.seconds > 0.0).then(|| mebibytes / self.seconds),
            "rate": (ended > 0).then(|| finished as f64 * 100.0 / ended as f64),
        })
    }
}

/// `overview`: by link and VO.
async fn overview(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let page = asked.page()?;
    let counted = counted(&api, &caller, &asked).await?;
    let (mut all, mut links) = (Tally::default(), BTreeMap::new());
    for one in &counted.transfers {
        let link = one.transfer.request.link();
        let key = (link, one.vo.clone());
        let tally: &mut Tally = links.entry(key).or_default();
        tally.count(one);
        all.count(one);
    }
    let rows = links.into_iter().map(|((link, vo), tally)| {
        let mut row = tally.shown();
        row["source_se"] = json!(link.source.as_str());
        row["dest_se"] = json!(link.destination.as_str());
        row["vo_name"] = json!(vo.as_str());
        row
    });
    Ok(Json(json!({
        "overview": paged(rows.collect(), page),
        "summary": all.shown(),
        "complete": counted.complete,
    }))
    .into_response())
}

/// Counts by a name of each transfer.
async fn by_name(
    api: &Api,
    credentials: &Credentials,
    asked: &MonitorQuery,
    name: impl Fn(&FoundTransfer) -> String,
) -> Result<(BTreeMap<String, Tally>, bool), ApiError> {
    let caller = api.caller(credentials).await?;
    let counted = counted(api, &caller, asked).await?;
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for one in &counted.transfers {
        tallies.entry(name(one)).or_default().count(one);
    }
    Ok((tallies, counted.complete))
}

fn shown(tallies: BTreeMap<String, Tally>) -> BTreeMap<String, Value> {
    let rows = tallies.into_iter();
    rows.map(|(name, tally)| (name, tally.shown())).collect()
}

/// `overview/activities`.
async fn activities(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let of = |one: &FoundTransfer| one.transfer.request.activity.to_string();
    let (tallies, complete) = by_name(&api, &credentials, &asked, of).await?;
    Ok(Json(json!({"activities": shown(tallies), "complete": complete})).into_response())
}

/// `stats/vo`.
async fn stats_by_vo(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let (tallies, complete) = by_name(&api, &credentials, &asked, |one| one.vo.to_string()).await?;
    Ok(Json(json!({"vos": shown(tallies), "complete": complete})).into_response())
}

/// `stats`: over all links.
async fn stats(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let (mut tallies, complete) = by_name(&api, &credentials, &asked, |_| String::new()).await?;
    let all = tallies.remove("").unwrap_or_default();
    Ok(Json(json!({"summary": all.shown(), "complete": complete})).into_response())
}

/// `stats/servers`: there is one.
async fn servers(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    api.caller(&credentials).await?.may_configure()?;
    let overview = api.service.overview();
    let totals = &overview.totals;
    let host = api.config.host.clone();
    Ok(Json(json!({host: {
        "beat": Timestamp(overview.at).to_fts(),
        "status": "running",
        "active": totals.active,
        "submitted": totals.submitted,
        "staging": totals.staging,
        "started": 0,
    }}))
    .into_response())
}

/// `jobs`: those that are open, or ended within the window.
async fn jobs(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let page = asked.page()?;
    let filter = JobFilter {
        ended_since: asked.since()?,
        states: asked.states(),
        vo: vo_to_look_at(&caller, asked.vo.as_deref())?,
        source: MonitorQuery::storage(&asked.source_se),
        destination: MonitorQuery::storage(&asked.dest_se),
        limit: rows_up_to(page),
        ..JobFilter::default()
    };
    let reader = api.service.reader().clone();
    let rows = blocking(caller.credential(), move || reader.jobs(&filter)).await??;
    let rows = rows
        .iter()
        .map(|row| Value::Object(wire::job(row, &api.config.host)));
    Ok(Json(paged(rows.collect(), page)).into_response())
}

/// `jobs/ID`.
async fn job(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = one_job(&api, &caller, &id).await?;
    let (reader, id) = (api.service.reader().clone(), job.id);
    let states = blocking(caller.credential(), move || reader.state_counts(id)).await??;
    let states: BTreeMap<String, u64> = states.into_iter().collect();
    let job = wire::job(&job, &api.config.host);
    Ok(Json(json!({"job": job, "states": states})).into_response())
}

/// `jobs/ID/files`.
async fn job_files(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = one_job(&api, &caller, &id).await?;
    let page = asked.page()?;
    let (reader, id) = (api.service.reader().clone(), job.id);
    let wanted = rows_up_to(page);
    let read = move || reader.transfers_after(id, TransferId(0), wanted);
    let rows = blocking(caller.credential(), read).await??;
    let rows = rows.iter().map(|row| {
        json!(wire::FileObject {
            row,
            job: (&job).into(),
            host: &api.config.host,
            only: None,
        })
    });
    Ok(Json(json!({"files": paged(rows.collect(), page)})).into_response())
}

async fn found_page(
    api: &Api,
    caller: &Caller,
    asked: &MonitorQuery,
    states: &[&str],
) -> Result<Value, ApiError> {
    let page = asked.page()?;
    let mut filter = asked.filter(caller, rows_up_to(page))?;
    if !states.is_empty() {
        filter.states = states.iter().map(|state| (*state).to_owned()).collect();
    }
    let reader = api.service.reader().clone();
    let found = blocking(caller.credential(), move || reader.find(&filter)).await??;
    let wanted = asked.reason.as_deref().filter(|text| !text.is_empty());
    let rows = found.transfers.iter().map(transfers::found);
    let rows = rows.filter(|row| {
        let reason = row["reason"].as_str();
        wanted.is_none_or(|wanted| reason.is_some_and(|reason| reason.contains(wanted)))
    });
    Ok(paged(rows.collect(), page))
}

/// `transfers`.
async fn list(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    Ok(Json(found_page(&api, &caller, &asked, &[]).await?).into_response())
}

/// `errors`: how many files failed, by link.
async fn errors(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let page = asked.page()?;
    let asked = MonitorQuery {
        state: Some("FAILED".to_owned()),
        ..asked
    };
    let caller = api.caller(&credentials).await?;
    let counted = counted(&api, &caller, &asked).await?;
    let mut links: BTreeMap<LinkId, u64> = BTreeMap::new();
    for one in &counted.transfers {
        *links.entry(one.transfer.request.link()).or_default() += 1;
    }
    let mut rows: Vec<(LinkId, u64)> = links.into_iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rows = rows.into_iter().map(|(link, count)| {
        json!({"source_se": link.source.as_str(), "dest_se": link.destination.as_str(), "count": count})
    });
    let mut answer = paged(rows.collect(), page);
    answer["complete"] = json!(counted.complete);
    Ok(Json(answer).into_response())
}

/// `errors/list`: the files that failed.
async fn error_list(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let errors = found_page(&api, &caller, &asked, &["FAILED"]).await?;
    Ok(Json(json!({"errors": errors})).into_response())
}

/// `linkinfo?source_se=&dest_se=`: what a link runs, may run, and what became of it within the window.
async fn link_info(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let ends = MonitorQuery::storage(&asked.source_se).zip(MonitorQuery::storage(&asked.dest_se));
    let Some((source, destination)) = ends else {
        let text = "source_se and dest_se are required";
        return Err(ApiError::new(ProblemCode::RequestMalformed, text));
    };
    let link = LinkId {
        source,
        destination,
    };
    let now = penstock_clock::wall_clock();
    let since = asked.since()?.unwrap_or(now);
    let (reader, of) = (api.service.reader().clone(), link.clone());
    let changes = move || reader.link_changes(&of, since, now, CHANGES_MAX);
    let changes = blocking(caller.credential(), changes).await??;
    let overview = api.service.overview();
    let seen = overview.links.iter().find(|row| {
        row.source == link.source.as_str() && row.destination == link.destination.as_str()
    });
    // What a failure said may name files of other VOs.
    let all = caller.may_touch_everything();
    let changes = changes.iter().map(|change| {
        let mut row = json!(change.event);
        if let (false, Some(last)) = (all, row.get_mut("last")) {
            last["detail"] = Value::Null;
        }
        row["at"] = json!(change.at.0);
        row
    });
    Ok(Json(json!({
        "source_se": link.source.as_str(),
        "dest_se": link.destination.as_str(),
        "active": seen.map_or(0, |row| row.active),
        "max_active": seen.map(|row| row.limit),
        "queued": seen.map_or(0, |row| row.queued),
        "staging": seen.map_or(0, |row| row.staging),
        "waiting_because": seen.and_then(|row| row.waiting_because.clone()),
        "changes": changes.collect::<Vec<Value>>(),
    }))
    .into_response())
}

/// `config/KIND`, for those who may look at the settings.
async fn config(
    State(api): State<Api>,
    credentials: Credentials,
    Path(kind): Path<String>,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let view = match kind.as_str() {
        "links" => ConfigSection::Links,
        "storages" => ConfigSection::Storages,
        "activities" => ConfigSection::Activities,
        "audit" => ConfigSection::Audit,
        "server" => ConfigSection::Defaults,
        // There are no limits of operations, and none of gfal2's options is set by operators.
        "ops" | "gfal2" => ConfigSection::Nothing,
        _ => {
            let text = format!("there is nothing at /fts3/ftsmon/config/{kind}");
            return Err(ApiError::new(ProblemCode::ResourceNotFound, text));
        }
    };
    let rows = api.settings_view(&credentials, view).await?;
    match rows {
        Value::Array(rows) => Ok(Json(paged(rows, asked.page()?)).into_response()),
        other => Ok(Json(other).into_response()),
    }
}

/// `config/activities/VO`.
async fn config_of_vo(
    State(api): State<Api>,
    credentials: Credentials,
    Path(vo): Path<String>,
) -> ApiResult {
    let rows = api
        .settings_view(&credentials, ConfigSection::Activities)
        .await?;
    match rows.get(&vo) {
        Some(of_vo) => Ok(Json(of_vo).into_response()),
        None => {
            let text = format!("No activity shares for {vo}");
            Err(ApiError::new(ProblemCode::ResourceNotFound, text))
        }
    }
}

/// `optimizer`: what each link may run, who decided that, and why.
async fn optimizer(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    api.caller(&credentials).await?.may_read_configuration()?;
    let page = asked.page()?;
    let overview = api.service.overview();
    let wanted = |asked: &Option<String>, storage: &str| {
        MonitorQuery::storage(asked).is_none_or(|asked| asked.as_str() == storage)
    };
    let links = overview.links.iter().filter(|link| {
        wanted(&asked.source_se, &link.source) && wanted(&asked.dest_se, &link.destination)
    });
    let rows = links.map(|link| {
        json!({
            "source_se": link.source,
            "dest_se": link.destination,
            "active": link.limit,
            "running": link.active,
            "queue_size": link.queued,
            "throughput": link.rate_bytes_per_second,
            "ema": link.seen.rate_smoothed.0,
            "nostreams": link.streams,
            "max_active": link.limit_max,
            "decided_by": link.tuning.name(),
            "rationale": link.limit_because,
        })
    });
    Ok(Json(paged(rows.collect(), page)).into_response())
}

/// `optimizer/detailed`: the latest decisions, newest first.
async fn optimizer_detailed(
    State(api): State<Api>,
    credentials: Credentials,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    caller.may_read_configuration()?;
    let page = asked.page()?;
    let filter = TuningFilter {
        source: MonitorQuery::storage(&asked.source_se),
        destination: MonitorQuery::storage(&asked.dest_se),
        links_only: true,
        limit: DECISIONS_MAX,
    };
    let rows = api.decisions(&caller, filter).await?;
    Ok(Json(json!({"evolution": paged(rows, page)})).into_response())
}

/// `unique/WHAT`: the different names of the window.
async fn unique(
    State(api): State<Api>,
    credentials: Credentials,
    Path(what): Path<String>,
    Query(asked): Query<MonitorQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let name: fn(&FoundTransfer) -> String = match what.as_str() {
        "activities" => |one| one.transfer.request.activity.to_string(),
        "destinations" => |one| one.transfer.request.destination.storage().to_string(),
        "sources" => |one| one.transfer.request.source.storage().to_string(),
        "vos" => |one| one.vo.to_string(),
        "hostnames" => return Ok(Json(json!([api.config.host])).into_response()),
        _ => {
            let text = format!("there is nothing at /fts3/ftsmon/unique/{what}");
            return Err(ApiError::new(ProblemCode::ResourceNotFound, text));
        }
    };
    let counted = counted(&api, &caller, &asked).await?;
    let names: BTreeSet<String> = counted.transfers.iter().map(name).collect();
    Ok(Json(names).into_response())
}

/// `version`.
async fn version(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    api.caller(&credentials).await?;
    let version = env!("CARGO_PKG_VERSION");
    Ok(Json(json!({"name": "penstock", "version": version})).into_response())
}
