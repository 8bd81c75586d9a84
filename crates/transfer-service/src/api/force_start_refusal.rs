//! `POST /admin/force-start`: FTS starts files beyond a link's limit. Here no limit is ever exceeded, so each file is
//! answered with what to do instead.

use super::body::BYTES_MAX;
use super::caller::Credentials;
use super::{Api, ApiError, ApiResult, wire};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use penstock_model::ProblemCode;
use serde_json::{Number, Value, json};

/// Takes a list of file ids and gives one error for each.
pub(super) async fn refuse(
    State(api): State<Api>,
    credentials: Credentials,
    body: Body,
) -> ApiResult {
    let taken = api.take(&credentials, body, BYTES_MAX).await?;
    taken.caller.may_configure()?;
    let no_list = || {
        ApiError::new(
            ProblemCode::RequestMalformed,
            "the body must be a list of file ids",
        )
    };
    let numbers: Vec<Number> = serde_json::from_slice(&taken.bytes).map_err(|_| no_list())?;
    let ids = numbers
        .iter()
        .map(|number| u64::try_from(wire::whole(number)?).ok());
    let files: Option<Vec<u64>> = ids.collect();
    let files = files.ok_or_else(no_list)?;
    let why = "not started: this service does not exceed limits; raise the job's priority or the limit of its link";
    let rows = files
        .into_iter()
        .map(|file| json!({"file_id": file, "error": why}));
    Ok(Json(rows.collect::<Vec<Value>>()).into_response())
}
