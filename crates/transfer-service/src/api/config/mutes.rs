//! `/api/v1/mutes`: no alerts of some incidents for a while. A mute is a setting like others: durable, known to all nodes
//! and told in the record of changes.

use super::fields::Fields;
use super::{ApiResult, bad_request, no_content, not_found};
use crate::api::caller::Credentials;
use crate::api::extract::Query;
use crate::api::{Api, ApiError, wire};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use parking_lot::RwLock;
use penstock_clock::wall_clock;
use penstock_decide::incidents::IncidentId;
use penstock_decide::settings::SettingRequest;
use penstock_model::{IncidentClass, LinkId, Mute, MuteScope, SettingKey, VoName};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Ninety days: a mute that nobody remembers hides what matters.
const SECONDS_MAX: u32 = 90 * 86_400;
/// Incidents of one mute that are told apart. Further ones are not counted.
const INCIDENTS_MAX: usize = 10_000;

/// The incidents of which nobody was alerted because of a mute, since the process began to run.
#[derive(Debug, Clone, Default)]
pub struct SuppressedAlerts(Arc<RwLock<BTreeMap<MuteScope, BTreeSet<IncidentId>>>>);

impl SuppressedAlerts {
    /// Counts an incident, once however often it is told.
    pub fn count(&self, scope: &MuteScope, id: IncidentId) {
        let mut counts = self.0.write();
        let of_scope = counts.entry(scope.clone()).or_default();
        if of_scope.len() < INCIDENTS_MAX {
            of_scope.insert(id);
        }
    }

    /// How many a mute has held back.
    pub fn of(&self, scope: &MuteScope) -> u64 {
        self.0.read().get(scope).map_or(0, |ids| ids.len() as u64)
    }

    /// How many all mutes that are kept have held back.
    pub fn total(&self) -> u64 {
        self.0.read().values().map(|ids| ids.len() as u64).sum()
    }

    fn forget(&self, scope: &MuteScope) {
        self.0.write().remove(scope);
    }
}

/// As in the list.
fn row(mute: &Mute, suppressed: &SuppressedAlerts) -> Value {
    let mut row = audit_form(mute);
    row["since"] = json!(mute.since);
    row["by"] = json!(mute.by.as_str());
    row["suppressed_alerts"] = json!(suppressed.of(&mute.scope));
    row
}

/// As in the record of changes.
pub(super) fn audit_form(mute: &Mute) -> Value {
    let (kind, name) = match &mute.scope {
        MuteScope::Link(text) => ("link", text.as_str()),
        MuteScope::Vo(vo) => ("vo", vo.as_str()),
        MuteScope::Class(class) => ("class", class.word()),
    };
    json!({ kind: name, "until": mute.until, "why": mute.why })
}

/// A text that is not empty, if the field is there at all.
fn text(fields: &mut Fields, name: &str) -> Result<Option<String>, ApiError> {
    match fields.text_or_null(name)? {
        Some(None) => Err(bad_request(format!("Field {name} is empty"))),
        Some(said) => Ok(said),
        None => Ok(None),
    }
}

/// Of which incidents: one of three fields.
fn scope(fields: &mut Fields) -> Result<MuteScope, ApiError> {
    let (link, vo, class) = (
        text(fields, "link")?,
        text(fields, "vo")?,
        text(fields, "class")?,
    );
    match (link, vo, class) {
        (Some(link), None, None) => Ok(MuteScope::Link(link)),
        (None, Some(vo), None) => Ok(MuteScope::Vo(VoName::new(vo))),
        (None, None, Some(word)) => {
            let class = IncidentClass::from_word(&word);
            let class = class.ok_or_else(|| {
                let words: Vec<&str> = IncidentClass::ALL.iter().map(|one| one.word()).collect();
                bad_request(format!(
                    "'class' is '{word}'; it must be one of {}",
                    words.join(", ")
                ))
            });
            Ok(MuteScope::Class(class?))
        }
        _ => Err(bad_request("write one of 'link', 'vo' and 'class'")),
    }
}

/// `GET /api/v1/mutes`: those that have not expired.
pub(super) async fn list(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let (_, settings) = api.operator(&credentials).await?;
    let now = wall_clock();
    let mutes = settings.mutes().filter(|mute| mute.is_in_force(now));
    let rows: Vec<Value> = mutes
        .map(|mute| row(mute, &api.config.suppressed))
        .collect();
    Ok(Json(rows).into_response())
}

/// `POST /api/v1/mutes`: `{"link"|"vo"|"class", "seconds", "why"}`, in the place of any before.
pub(super) async fn add(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    let (caller, mut fields) = api.form(&credentials, body).await?;
    let scope = scope(&mut fields)?;
    if let MuteScope::Link(text) = &scope
        && !LinkId::is_name(text)
    {
        return Err(bad_request(format!(
            "'link' is '{text}'; write a link as SOURCE-DESTINATION; either may be *"
        )));
    }
    let seconds = match fields.raw("seconds") {
        Some(Value::Number(number)) => wire::whole(&number),
        _ => None,
    };
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
    let seconds = seconds.filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        bad_request(format!(
            "'seconds' must be a whole number from 1 to {SECONDS_MAX}: mutes expire"
        ))
    })?;
    let why = text(&mut fields, "why")?;
    let why = why.ok_or_else(|| bad_request("Missing why: give a reason, which others can see"))?;
    fields.end()?;
    let since = wall_clock();
    let mute = Mute {
        scope,
        since,
        until: since + Duration::from_secs(u64::from(seconds)),
        by: caller.identity.user.clone(),
        why,
    };
    let wish = SettingRequest::SetMute(mute.clone());
    api.wish(&caller, wish).await?;
    api.config.suppressed.forget(&mute.scope);
    Ok(Json(row(&mute, &api.config.suppressed)).into_response())
}

#[derive(Deserialize)]
pub(super) struct MuteQuery {
    scope: Option<String>,
    name: Option<String>,
}

/// `DELETE /api/v1/mutes?scope=link|vo|class&name=`.
pub(super) async fn remove(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<MuteQuery>,
) -> ApiResult {
    let (caller, settings) = api.operator(&credentials).await?;
    let (Some(kind), Some(name)) = (which.scope, which.name) else {
        return Err(bad_request("Missing scope and/or name"));
    };
    let unknown = || not_found(format!("there is no mute of {kind} {name}"));
    let scope = match kind.as_str() {
        "link" => MuteScope::Link(name.clone()),
        "vo" => MuteScope::Vo(VoName::new(name.as_str())),
        "class" => MuteScope::Class(IncidentClass::from_word(&name).ok_or_else(unknown)?),
        _ => return Err(bad_request("'scope' must be one of link, vo, class")),
    };
    if settings.get(&SettingKey::Mute(scope.clone())).is_none() {
        return Err(unknown());
    }
    api.wish(&caller, SettingRequest::RemoveMute(scope.clone()))
        .await?;
    api.config.suppressed.forget(&scope);
    Ok(no_content())
}
