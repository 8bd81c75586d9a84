//! `/archive`: jobs that have ended. FTS moves them to tables of their own after a week; here they stay where they
//! were, so an archived job is one that will not change again.

use super::caller::{Caller, Credentials};
use super::extract::Path;
use super::jobs::{field_of, not_found, one_job};
use super::streamed_listing::{FileDetail, JsonDocument};
use super::{Api, ApiError, ApiResult, wire};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use penstock_journal::JobRow;
use serde_json::json;

/// `GET /archive`: where to ask.
pub(super) async fn links(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    api.caller(&credentials).await?;
    Ok(Json(json!({
        "_links": {
            "curies": [{"name": "fts", "href": "/api/v1/overview"}],
            "fts:archivedJob": {
                "href": "/archive/{id}", "title": "Archived job information", "templated": true,
            },
        },
    }))
    .into_response())
}

async fn ended(api: &Api, caller: &Caller, id: &str) -> Result<JobRow, ApiError> {
    let job = one_job(api, caller, id).await?;
    match job.state.is_terminal() {
        true => Ok(job),
        false => Err(not_found(id)),
    }
}

/// `GET /archive/ID`: the job with its files.
pub(super) async fn show(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = ended(&api, &caller, &id).await?;
    let mut document = JsonDocument::default();
    let object = wire::job(&job, &api.config.host);
    document.object_with_files(object, job, FileDetail::Everything);
    Ok(document.answer(StatusCode::OK, &api, &caller))
}

/// `GET /archive/ID/FIELD`.
pub(super) async fn field(
    State(api): State<Api>,
    credentials: Credentials,
    Path((id, field)): Path<(String, String)>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let job = ended(&api, &caller, &id).await?;
    field_of(&api, &job, &field)
}
