//! `/config/shares`, `/config/activity_shares`, `/config/cloud_storage`: none is kept yet. Clients that read them find
//! nothing set; who wants to set one is told so.

use super::{Answer, bad_request, no_content, not_found};
use crate::api::Api;
use crate::api::caller::Credentials;
use crate::api::extract::Path;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::json;

/// `GET`: no share, and no cloud storage.
pub(super) async fn list(State(api): State<Api>, credentials: Credentials) -> Answer {
    api.operator(&credentials).await?;
    Ok(Json(json!([])).into_response())
}

/// `GET /config/activity_shares`.
pub(super) async fn list_activities(State(api): State<Api>, credentials: Credentials) -> Answer {
    api.operator(&credentials).await?;
    Ok(Json(json!({})).into_response())
}

/// `GET,DELETE /config/activity_shares/VO`.
pub(super) async fn show_activities(
    State(api): State<Api>,
    credentials: Credentials,
    Path(vo): Path<String>,
) -> Answer {
    api.operator(&credentials).await?;
    Err(not_found(format!("No activity shares for {vo}")))
}

/// `POST` of a share.
pub(super) async fn set(State(api): State<Api>, credentials: Credentials, body: Body) -> Answer {
    api.form(&credentials, body).await?;
    Err(bad_request(
        "shares are not offered by this service yet, so nothing was set: the VOs that wait on a link take turns, and \
         the activities of a VO go by age",
    ))
}

/// `DELETE /config/shares`: as in FTS, also when there was none.
pub(super) async fn remove(State(api): State<Api>, credentials: Credentials) -> Answer {
    api.operator(&credentials).await?;
    Ok(no_content())
}

/// `POST /config/cloud_storage`.
pub(super) async fn keep_keys(
    State(api): State<Api>,
    credentials: Credentials,
    body: Body,
) -> Answer {
    api.form(&credentials, body).await?;
    Err(bad_request(
        "this service does not reach cloud storages with keys yet, so none were stored",
    ))
}
