//! `/config/global`: what holds for jobs that do not say, by VO.

use super::fields::Fields;
use super::{ApiResult, bad_request, no_content};
use crate::api::caller::Credentials;
use crate::api::extract::Query;
use crate::api::{Api, ApiError};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use penstock_decide::settings::{SettingRequest, VoDefaultsRequest};
use penstock_model::{ANY, JobDefaults, Settings, VoName};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const RETRIES_MAX: u32 = 100;
/// A year.
const QUEUE_HOURS_MAX: u32 = 24 * 366;

/// As FTS shows it. What this service does not do is null.
pub(super) fn form(defaults: &JobDefaults) -> Value {
    json!({
        "retry": defaults.retries_max,
        "max_time_queue": defaults.queue_hours_max,
        "global_timeout": null,
        "sec_per_mb": null,
        "no_streaming": null,
        "show_user_dn": null,
    })
}

pub(super) fn all(settings: &Settings) -> Value {
    let nothing = JobDefaults {
        vo: VoName::new(ANY),
        retries_max: None,
        queue_hours_max: None,
    };
    let mut rows = Map::from_iter([(ANY.to_owned(), form(&nothing))]);
    for defaults in settings.all_defaults() {
        rows.insert(defaults.vo.to_string(), form(defaults));
    }
    rows.into()
}

/// `GET /config/global`.
pub(super) async fn list(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let (_, settings) = api.operator(&credentials).await?;
    Ok(Json(all(&settings)).into_response())
}

/// `POST /config/global`: the answer is what is set for all VOs then.
pub(super) async fn set(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    let (caller, fields) = api.form(&credentials, body).await?;
    api.wish(&caller, SettingRequest::SetDefaults(wish(fields)?))
        .await?;
    Ok(Json(all(&api.service.settings())).into_response())
}

fn wish(mut fields: Fields) -> Result<VoDefaultsRequest, ApiError> {
    let vo = fields.text("vo_name")?;
    let wish = VoDefaultsRequest {
        vo: VoName::new(vo.as_deref().unwrap_or(ANY)),
        retries_max: fields.number_or_null("retry", RETRIES_MAX)?,
        // As in FTS, no time is no bound.
        queue_hours_max: fields
            .number_or_null("max_time_queue", QUEUE_HOURS_MAX)?
            .map(|hours| hours.filter(|hours| *hours > 0)),
    };
    for name in ["global_timeout", "sec_per_mb"] {
        fields.not_offered(name, &[json!(0)])?;
    }
    for name in ["no_streaming", "show_user_dn"] {
        fields.not_offered(name, &[json!(false), json!("off")])?;
    }
    fields.end()?;
    Ok(wish)
}

/// Whose values.
#[derive(Deserialize)]
pub(super) struct JobDefaultsQuery {
    vo_name: Option<String>,
}

/// `DELETE /config/global?vo_name=`.
pub(super) async fn remove(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<JobDefaultsQuery>,
) -> ApiResult {
    let (caller, _) = api.operator(&credentials).await?;
    let vo = which.vo_name.filter(|vo| !vo.is_empty() && vo != ANY);
    let Some(vo) = vo else {
        return Err(bad_request("Missing VO name"));
    };
    api.wish(&caller, SettingRequest::RemoveDefaults(VoName::new(vo)))
        .await?;
    Ok(no_content())
}
