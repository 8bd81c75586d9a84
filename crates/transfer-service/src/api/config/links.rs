//! `/config/links`: limits of links, by symbolic name.

use super::fields::throughput;
use super::{ApiResult, bad_request, no_content, not_found};
use crate::api::caller::Credentials;
use crate::api::extract::Path;
use crate::api::{Api, ApiError};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use penstock_decide::settings::{LinkRuleRequest, SettingRequest};
use penstock_model::{LinkRule, TuningMode, TuningPolicy};
use serde_json::{Value, json};

/// A rule as FTS shows it. What this service does not do is null.
pub(super) fn form(rule: &LinkRule) -> Value {
    json!({
        "symbolicname": rule.name,
        "source": rule.ends.source.as_str(),
        "destination": rule.ends.destination.as_str(),
        "min_active": rule.slots_min.0,
        "max_active": rule.slots_max.0,
        "optimizer_mode": rule.mode.map(TuningMode::number),
        "tuning": rule.tuning.map(TuningPolicy::name),
        "max_throughput": rule.rate_max.map(throughput),
        "draining": rule.is_draining,
        "tcp_buffer_size": null,
        "nostreams": null,
        "no_delegation": null,
    })
}

/// `GET /config/links`.
pub(super) async fn list(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let (_, settings) = api.operator(&credentials).await?;
    let rules: Vec<Value> = settings.links().map(form).collect();
    Ok(Json(rules).into_response())
}

/// `GET /config/links/NAME`.
pub(super) async fn show(
    State(api): State<Api>,
    credentials: Credentials,
    Path(name): Path<String>,
) -> ApiResult {
    let (_, settings) = api.operator(&credentials).await?;
    match settings.link(&name) {
        Some(rule) => Ok(Json(form(rule)).into_response()),
        None => Err(not_found(format!("Link {name} does not exist"))),
    }
}

/// `POST /config/links`: makes a rule, or changes what is said of it.
pub(super) async fn set(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    let (caller, mut fields) = api.form(&credentials, body).await?;
    let Some(name) = fields.text("symbolicname")? else {
        return Err(bad_request("Missing symbolicname"));
    };
    let wish = LinkRuleRequest {
        name: name.clone(),
        source: fields.storage("source")?,
        destination: fields.storage("destination")?,
        slots_min: fields.slots("min_active")?,
        slots_max: fields.slots("max_active")?,
        tuning: policy(fields.text_or_null("tuning")?)?,
        mode: fields
            .number_or_null("optimizer_mode", 3)?
            .map(|number| number.and_then(|number| TuningMode::from_number(number.into()))),
        rate_max: fields.throughput_or_null("max_throughput")?,
        is_draining: fields.boolean("draining")?,
    };
    fields.not_offered("tcp_buffer_size", &[json!(0)])?;
    fields.not_offered("nostreams", &[json!(0), json!(1)])?;
    fields.not_offered("no_delegation", &[json!(false), json!("off")])?;
    fields.end()?;
    api.wish(&caller, SettingRequest::SetLink(wish)).await?;
    let settings = api.service.settings();
    let rule = settings.link(&name).map(form);
    Ok((StatusCode::CREATED, Json(rule)).into_response())
}

/// Who decides how many transfers run; not FTS's.
fn policy(name: Option<Option<String>>) -> Result<Option<Option<TuningPolicy>>, ApiError> {
    let Some(Some(name)) = name else {
        return Ok(name.map(|_| None));
    };
    match TuningPolicy::parse(&name) {
        Some(policy) => Ok(Some(Some(policy))),
        None => Err(bad_request(format!(
            "tuning = '{name}' is not known; use measured, fts3, fixed, or null for the value in the configuration file"
        ))),
    }
}

/// `DELETE /config/links/NAME`. The configuration file's limits count again.
pub(super) async fn remove(
    State(api): State<Api>,
    credentials: Credentials,
    Path(name): Path<String>,
) -> ApiResult {
    let (caller, _) = api.operator(&credentials).await?;
    api.wish(&caller, SettingRequest::RemoveLink(name)).await?;
    Ok(no_content())
}
