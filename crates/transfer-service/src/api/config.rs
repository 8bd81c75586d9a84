//! Handlers of `/config`: what operators may change of the running service.
//!
//! They translate between FTS's forms and wishes; whether a wish is granted is decided in `decide::settings`, by the
//! engine, when its turn comes. What the scheduler cannot honour is refused, never stored in silence.

mod clouds;
mod fields;
mod grants;
mod job_defaults;
mod links;
mod mutes;
mod shares;
mod storages;

use super::body::BYTES_MAX;
use super::caller::{Caller, Credentials};
use super::extract::Query;
use super::query::blocking;
use super::{Api, ApiError, ApiResult, access_links, ban};
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use fields::Fields;
pub use mutes::SuppressedAlerts;
use penstock_decide::settings::{SettingRefusal, SettingRequest, SettingRequester, may_look};
use penstock_journal::JournalError;
use penstock_model::{ProblemCode, Setting, SettingChange, SettingKey, Settings, Timestamp};
use penstock_protocol::identity::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Changes in one answer, unless asked for fewer or more: as in FTS.
const AUDIT_ENTRIES: usize = 100;
const AUDIT_ENTRIES_MAX: usize = 10_000;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/config", get(hosts))
        .route("/config/links", get(links::list).post(links::set))
        .route(
            "/config/links/{name}",
            get(links::show).delete(links::remove),
        )
        .route(
            "/config/se",
            get(storages::list)
                .post(storages::set)
                .delete(storages::remove),
        )
        .route(
            "/config/authorize",
            get(grants::list).post(grants::add).delete(grants::remove),
        )
        .route(
            "/config/global",
            get(job_defaults::list)
                .post(job_defaults::set)
                .delete(job_defaults::remove),
        )
        .route(
            "/config/shares",
            get(shares::list).post(shares::set).delete(shares::remove),
        )
        .route(
            "/config/activity_shares",
            get(shares::list_activities).post(shares::set_activities),
        )
        .route(
            "/config/activity_shares/{vo}",
            get(shares::show_activities).delete(shares::remove_activities),
        )
        .route("/config/cloud_storage", get(clouds::list).post(clouds::set))
        .route(
            "/config/cloud_storage/{name}",
            get(clouds::show).post(clouds::grant).delete(clouds::remove),
        )
        .route(
            "/config/cloud_storage/{name}/{holder}",
            delete(clouds::revoke),
        )
        .route("/config/drain", post(drain))
        .route("/config/audit", get(audit))
        .route(
            "/api/v1/mutes",
            get(mutes::list).post(mutes::add).delete(mutes::remove),
        )
}

impl Api {
    /// Who asks, when they may look at the settings, and these.
    async fn operator(
        &self,
        credentials: &Credentials,
    ) -> Result<(Caller, Arc<Settings>), ApiError> {
        let caller = self.caller(credentials).await?;
        let settings = self.known_settings()?;
        match may_look(&settings, &self.asker(&caller)) {
            true => Ok((caller, settings)),
            false => Err(SettingRefusal::NotAdministrator.into()),
        }
    }

    /// What is set. Errors: no leader has told it since the start, and nothing must not pass for it.
    fn known_settings(&self) -> Result<Arc<Settings>, ApiError> {
        self.service.known_settings().ok_or_else(|| {
            ApiError::new(
                ProblemCode::ServiceLeaderless,
                "the settings are not available: no node of the service leads at the moment; try again soon",
            )
        })
    }

    /// Reads a body for somebody who may look at the settings.
    async fn form(
        &self,
        credentials: &Credentials,
        body: Body,
    ) -> Result<(Caller, Fields), ApiError> {
        let taken = self.take(credentials, body, BYTES_MAX).await?;
        match may_look(&*self.known_settings()?, &self.asker(&taken.caller)) {
            true => Ok((taken.caller, Fields::parse(&taken.bytes)?)),
            false => Err(SettingRefusal::NotAdministrator.into()),
        }
    }

    /// Has a wish judged and, if it is granted, recorded and in effect.
    async fn wish(
        &self,
        caller: &Caller,
        wish: SettingRequest,
    ) -> Result<Vec<SettingChange>, ApiError> {
        let user = &caller.identity.user;
        let asked = self.service.set(wish, self.asker(caller), user.clone());
        let changes = match asked.await? {
            Ok(changes) => changes,
            Err(refusal) => {
                tracing::warn!(%user, why = %refusal, "refused to change a setting");
                return Err(refusal.into());
            }
        };
        for change in &changes {
            tracing::info!(%user, action = %change.action, key = %change.key, "a setting was changed");
        }
        Ok(changes)
    }

    /// The names by which grants may speak of a caller. A token's subject is unique only together with its issuer;
    /// only this site's own may stand for itself, and none may look like a certificate's.
    pub(super) fn asker(&self, caller: &Caller) -> SettingRequester {
        let identity = &caller.identity;
        let user = identity.user.as_str();
        let names = match identity.method {
            Method::Certificate => vec![user.to_owned()],
            Method::Token => {
                let full = format!("{}#{user}", identity.issuer);
                match identity.issuer == self.config.own_issuer && !user.starts_with('/') {
                    true => vec![full, user.to_owned()],
                    false => vec![full],
                }
            }
        };
        SettingRequester {
            names,
            is_admin: caller.may_configure_everything(),
        }
    }
}

impl From<SettingRefusal> for ApiError {
    fn from(refusal: SettingRefusal) -> ApiError {
        let code = match &refusal {
            SettingRefusal::NotAdministrator
            | SettingRefusal::NotManager(_)
            | SettingRefusal::NotManagerOfEnd(_, _) => ProblemCode::AdministratorRequired,
            SettingRefusal::NoCloudStorage(_) => ProblemCode::ResourceNotFound,
            SettingRefusal::MaxBelowMin | SettingRefusal::PatternTaken { .. } => {
                ProblemCode::SettingConflict
            }
            SettingRefusal::TooMany => ProblemCode::LimitReached,
        };
        ApiError::new(code, refusal.to_string())
    }
}

fn bad_request(text: impl Into<String>) -> ApiError {
    ApiError::new(ProblemCode::RequestMalformed, text)
}

fn not_found(text: impl Into<String>) -> ApiError {
    ApiError::new(ProblemCode::ResourceNotFound, text)
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// `GET /config`: the hosts of this service, of which there is one, and whether it is drained.
async fn hosts(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let (_, settings) = api.operator(&credentials).await?;
    let beat = penstock_clock::wall_clock().to_fts();
    Ok(Json(json!([{
        "hostname": api.config.host,
        "service_name": "fts_server",
        "beat": beat,
        "drain": settings.is_drained(),
    }]))
    .into_response())
}

/// `POST /config/drain`: nothing starts here, or something does again. Submissions are accepted all the while.
async fn drain(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    let (caller, mut fields) = api.form(&credentials, body).await?;
    let drained = fields.boolean("drain")?.unwrap_or(true);
    let Some(host) = fields.text("hostname")? else {
        return Err(bad_request("Invalid drain request"));
    };
    fields.end()?;
    if !host.eq_ignore_ascii_case(&api.config.host) {
        return Err(bad_request(format!(
            "Host not found: this service is {}",
            api.config.host
        )));
    }
    api.wish(&caller, SettingRequest::Drain(drained)).await?;
    Ok(Json(Value::Null).into_response())
}

#[derive(Deserialize)]
struct AuditQuery {
    limit: Option<usize>,
}

/// `GET /config/audit`: the latest changes of settings and of bans, newest first.
async fn audit(
    State(api): State<Api>,
    credentials: Credentials,
    Query(query): Query<AuditQuery>,
) -> ApiResult {
    let (caller, _) = api.operator(&credentials).await?;
    let limit = query.limit.unwrap_or(AUDIT_ENTRIES).min(AUDIT_ENTRIES_MAX);
    Ok(Json(api.changes(&caller, limit).await?).into_response())
}

/// Settings as other pages of the interface show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigSection {
    Links,
    Storages,
    Activities,
    Defaults,
    Audit,
    Nothing,
}

impl Api {
    /// A part of the settings, for those who may look at them.
    pub(super) async fn settings_view(
        &self,
        credentials: &Credentials,
        view: ConfigSection,
    ) -> Result<Value, ApiError> {
        let (caller, settings) = self.operator(credentials).await?;
        Ok(match view {
            ConfigSection::Links => settings.links().map(links::form).collect(),
            ConfigSection::Storages => {
                let rows = settings.storages();
                rows.map(|rule| setting_form(&Setting::Storage(rule.clone())))
                    .collect()
            }
            ConfigSection::Activities => {
                let rows = settings.all_activity_shares();
                let rows = rows.map(|one| (one.vo.to_string(), shares::activity_form(one)));
                Value::Object(rows.collect())
            }
            ConfigSection::Defaults => job_defaults::all(&settings),
            ConfigSection::Audit => self.changes(&caller, AUDIT_ENTRIES).await?.into(),
            ConfigSection::Nothing => json!([]),
        })
    }

    async fn changes(&self, caller: &Caller, limit: usize) -> Result<Vec<Value>, ApiError> {
        let service = self.service.clone();
        let read = move || {
            let reader = service.reader();
            Ok::<_, JournalError>((reader.setting_changes(limit)?, reader.ban_changes(limit)?))
        };
        let (settings, bans) = blocking(caller.credential(), read).await??;
        let settings = settings.iter().map(|change| (change.at, audit_row(change)));
        let bans = bans
            .iter()
            .map(|change| (change.at, ban::audit_row(change)));
        // Stable: of one millisecond, the order of each list stays.
        let newest = |mut rows: Vec<(Timestamp, Value)>, limit: usize| {
            rows.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
            rows.truncate(limit);
            rows
        };
        let changes = newest(settings.chain(bans).collect(), limit);
        // Any user can make links: they push no change out of more than half of the answer.
        let room = (limit - changes.len()).max(limit / 2);
        let links = newest(access_links::audit_rows(&self.config.access_links), room);
        let rows = changes.into_iter().chain(links).collect();
        Ok(newest(rows, limit)
            .into_iter()
            .map(|(_, row)| row)
            .collect())
    }
}

/// FTS's four keys, and what was before and after, which FTS does not keep.
fn audit_row(change: &SettingChange) -> Value {
    let shown = |setting: &Option<Setting>| setting.as_ref().map(setting_form);
    let (before, after) = (shown(&change.before), shown(&change.after));
    let config = match &change.key {
        SettingKey::Drain => json!({"drain": after.is_some()}),
        _ => after.clone().or(before.clone()).unwrap_or_default(),
    };
    json!({
        "datetime": change.at.to_fts(),
        "dn": change.user.as_str(),
        "action": change.action,
        "config": config.to_string(),
        "old": before,
        "new": after,
    })
}

fn setting_form(setting: &Setting) -> Value {
    match setting {
        Setting::Link(rule) => links::form(rule),
        Setting::Storage(rule) => {
            json!({"se": rule.storage.as_str(), "se_info": storages::form(rule)})
        }
        Setting::Defaults(defaults) => {
            let mut form = job_defaults::form(defaults);
            form["vo_name"] = json!(defaults.vo.as_str());
            form
        }
        Setting::VoShare(share) => shares::form(share),
        Setting::ActivityShares(shares) => shares::activity_form(shares),
        Setting::Grant(grant) => grants::form(grant),
        Setting::CloudStorage(cloud) => clouds::form(cloud),
        Setting::CloudKey(key) => clouds::audit_form(key),
        Setting::Drain => json!({"drain": true}),
        Setting::Mute(mute) => mutes::audit_form(mute),
    }
}
