//! `DELETE /jobs/all` and `DELETE /jobs/vo/VO`: everything that is open is stopped, by an administrator.

use super::caller::Credentials;
use super::extract::Path;
use super::jobs::CANCELED_BY_USER;
use super::{Api, ApiResult};
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use penstock_decide::service_rights::Operation;
use penstock_model::VoName;
use serde_json::json;

/// `DELETE /jobs/all`: of every VO.
pub(super) async fn of_all(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    caller.needs(caller.may_touch_everything())?;
    stop(&api, None, caller.identity.user.as_str()).await
}

/// `DELETE /jobs/vo/VO`: of one. Membership is not enough, as in FTS.
pub(super) async fn of_vo(
    State(api): State<Api>,
    credentials: Credentials,
    Path(vo): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let vo = VoName::new(vo);
    caller.needs(caller.rights.cover(Operation::Transfer, &vo))?;
    stop(&api, Some(vo), caller.identity.user.as_str()).await
}

/// In a task of its own: half of it must not stay open because the client hung up.
async fn stop(api: &Api, vo: Option<VoName>, user: &str) -> ApiResult {
    let whose = vo.as_ref().map_or("all VOs".to_owned(), VoName::to_string);
    let service = api.service.clone();
    let stopping = tokio::spawn(async move { service.cancel_all(vo, CANCELED_BY_USER).await });
    let stopped = stopping
        .await
        .map_err(|why| super::query::unexpected(&why))??;
    let (jobs, files) = (stopped.jobs, stopped.transfers);
    tracing::warn!(%user, %whose, jobs, files, "all open jobs were canceled");
    let told = json!({"affected_files": files, "affected_dm": 0, "affected_jobs": jobs});
    Ok(Json(told).into_response())
}
