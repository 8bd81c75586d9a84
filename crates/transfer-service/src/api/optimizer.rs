//! `/optimizer`: FTS's view of how many transfers each link may run, who decided that, and why.
//!
//! FTS lets anybody change it without a right; here looking takes the right to configure, and what is decided is changed
//! by rules for links.

use super::body::BYTES_MAX;
use super::caller::{Caller, Credentials};
use super::extract::Query;
use super::query::{blocking, without_port};
use super::{Api, ApiError, ApiResult};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use penstock_decide::wording;
use penstock_journal::TuningFilter;
use penstock_model::{ProblemCode, StorageId, Timestamp, TunedPlace, TuningDecision, TuningPolicy};
use serde::Deserialize;
use serde_json::{Value, json};

/// Decisions that are told, as in FTS.
const DECISIONS: usize = 50;

/// `GET /optimizer`: whether one is at work, where no rule says otherwise.
pub(super) async fn is_enabled(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    api.caller(&credentials).await?;
    let is_enabled = api.service.overview().tuning != TuningPolicy::Fixed;
    Ok(Json(is_enabled).into_response())
}

#[derive(Deserialize)]
pub(super) struct LinkQuery {
    source_se: Option<String>,
    dest_se: Option<String>,
}

/// `GET /optimizer/evolution`: its latest decisions about links, newest first.
pub(super) async fn evolution(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<LinkQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    caller.may_read_configuration()?;
    let storage = |asked: Option<String>| {
        let asked = asked.filter(|text| !text.is_empty());
        asked.map(|asked| StorageId::new(without_port(&asked)))
    };
    let filter = TuningFilter {
        source: storage(which.source_se),
        destination: storage(which.dest_se),
        links_only: true,
        limit: DECISIONS,
    };
    Ok(Json(api.decisions(&caller, filter).await?).into_response())
}

impl Api {
    /// Decisions as FTS shows them, newest first.
    pub(super) async fn decisions(
        &self,
        caller: &Caller,
        filter: TuningFilter,
    ) -> Result<Vec<Value>, ApiError> {
        let reader = self.service.reader().clone();
        let found = blocking(caller.credential(), move || reader.tunings(&filter)).await??;
        Ok(found.iter().filter_map(row).collect())
    }
}

/// FTS's keys, and who decided between what.
fn row(decision: &TuningDecision) -> Option<Value> {
    let TunedPlace::Link(link) = &decision.place else {
        return None;
    };
    let seen = &decision.seen;
    let before = i64::from(decision.slots_before.0);
    Some(json!({
        "datetime": decision.at.to_fts(),
        "source_se": link.source.as_str(),
        "dest_se": link.destination.as_str(),
        "active": decision.slots.0,
        "throughput": seen.rate.0,
        "success": seen.success_percent,
        "rationale": wording::tune_reason(&decision.because),
        "diff": i64::from(decision.slots.0) - before,
        "actual_active": seen.active.0,
        "queue_size": seen.queued,
        "ema": seen.rate_smoothed.0,
        "filesize_avg": seen.size_mean.0,
        "filesize_stddev": seen.size_deviation.0,
        "nostreams": decision.streams,
        "decided_by": decision.policy.name(),
        "seconds_per_megabyte": seen.seconds_per_megabyte,
        "candidates": decision.candidates,
    }))
}

/// `GET /optimizer/current`: the links that are in use, and others that were used lately, with how many transfers each may run.
pub(super) async fn current(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<LinkQuery>,
) -> ApiResult {
    api.caller(&credentials).await?.may_read_configuration()?;
    let wanted = |asked: &Option<String>, storage: &str| {
        let asked = asked.as_deref().filter(|text| !text.is_empty());
        asked.is_none_or(|asked| without_port(asked) == storage)
    };
    let overview = api.service.overview();
    let at = Timestamp(overview.at).to_fts();
    let links = overview.links.iter().filter(|link| {
        wanted(&which.source_se, &link.source) && wanted(&which.dest_se, &link.destination)
    });
    let rows = links.map(|link| {
        json!({
            "datetime": at,
            "source_se": link.source,
            "dest_se": link.destination,
            "ema": link.seen.rate_smoothed.0,
            "active": link.limit,
            "nostreams": link.streams,
            "decided_by": link.tuning.name(),
            "rationale": link.limit_because,
        })
    });
    Ok(Json(rows.collect::<Vec<Value>>()).into_response())
}

/// `POST /optimizer/current`: what is decided is not to be overwritten, but bounded by rules.
pub(super) async fn set(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    // Read although nothing comes of it, so that the client sees the answer and not a reset.
    let taken = api.take(&credentials, body, BYTES_MAX).await?;
    taken.caller.may_configure()?;
    Err(ApiError::new(
        ProblemCode::RequestMalformed,
        "tuning decisions cannot be set by hand, so nothing was set; use min_active and max_active in a rule for the \
         link: POST /config/links, or `penstock link set`",
    ))
}
