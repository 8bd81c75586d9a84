//! The REST interface: FTS's, unchanged for its clients, and our own beside it under `/api/v1`.
//!
//! Every request but the static page is authenticated by a bearer token. Handlers translate; they do not decide.

mod jobs;
mod server;
pub mod submit;
pub mod wire;

pub use server::serve;

use crate::overview::Overview;
use crate::service::{Service, ServiceError};
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use penstock_model::VoName;
use penstock_persistence::journal::{JobRow, JournalError};
use penstock_protocol::token::{Identity, TokenError, Verifier};
use serde_json::{Value, json};
use std::sync::Arc;
use submit::BASE_ID;
use uuid::Uuid;

/// The version of the FTS interface that is spoken.
const API_VERSION: [u32; 3] = [3, 14, 4];
/// Bytes of a request body at most: about 100,000 files in one job.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The scope that lets a token of this site's own issuer see and stop every job.
const ADMIN_SCOPE: &str = "penstock.admin";

/// What the interface needs.
#[derive(Clone)]
pub struct ApiConfig {
    /// Verifies bearer tokens.
    pub verifier: Verifier,
    /// This site's own issuer, the only one whose `penstock.admin` scope counts.
    pub own_issuer: String,
    /// A scope that tokens must carry to use this service, if any (`fts` at some sites).
    pub required_scope: Option<String>,
    /// This host's name, as shown in `submit_host` and `transfer_host`.
    pub host: String,
}

#[derive(Clone)]
struct Api {
    service: Arc<Service>,
    config: Arc<ApiConfig>,
}

/// All routes. Paths with doubled slashes must be collapsed before; [`serve`] does so.
pub fn router(service: Arc<Service>, config: ApiConfig) -> Router {
    let api = Api {
        service,
        config: Arc::new(config),
    };
    Router::new()
        .route("/", get(root))
        .route("/whoami", get(whoami))
        .route(
            "/jobs",
            get(jobs::list).post(jobs::submit).put(jobs::submit),
        )
        .route(
            "/jobs/{ids}",
            get(jobs::show).delete(jobs::cancel).post(jobs::modify),
        )
        .route("/jobs/{id}/files", get(jobs::files))
        .route(
            "/jobs/{id}/files/{files}",
            axum::routing::delete(jobs::cancel_files),
        )
        .route("/jobs/{id}/files/{file}/retries", get(jobs::retries))
        .route("/jobs/{id}/dm", get(jobs::data_management))
        .route("/jobs/{id}/{field}", get(jobs::field))
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/jobs/{id}/explain", get(jobs::explain))
        .route("/api/v1/health", get(health))
        .route("/delegation/{id}", get(delegation))
        .route("/delegation", post(no_certificates))
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(api)
}

/// An error as FTS clients read it: `{"status": "404 Not Found", "message": "…"}`.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            message: message.into(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({"status": self.status.to_string(), "message": self.message});
        let mut response = (self.status, axum::Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        tracing::error!(%error, "a question could not be answered");
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the journal cannot be read; see the service's log",
        )
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Journal(error) => error.into(),
            ServiceError::JournalFull | ServiceError::ShuttingDown | ServiceError::Thread(_) => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
        }
    }
}

/// Who asks, and how far they see.
pub(crate) struct Caller {
    identity: Identity,
    token: String,
    vo: VoName,
    is_admin: bool,
}

impl Caller {
    /// FTS's level "vo": a member sees and stops what belongs to the VO; an administrator everything.
    fn may_touch(&self, job: &JobRow) -> bool {
        self.is_admin || job.vo == self.vo
    }
}

impl Api {
    /// Authenticates and checks the site's required scope.
    async fn caller(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        let refuse = |text: &str| Err(ApiError::new(StatusCode::UNAUTHORIZED, text));
        let Some(value) = headers.get(AUTHORIZATION) else {
            return refuse("a bearer token is needed: send 'Authorization: Bearer TOKEN'");
        };
        let token = value.to_str().ok().and_then(|text| text.split_once(' '));
        let token = match token {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => {
                return refuse(
                    "only bearer tokens are accepted: send 'Authorization: Bearer TOKEN'",
                );
            }
        };
        let verified = self
            .config
            .verifier
            .verify(token, crate::run::wall_clock())
            .await;
        let identity = verified.map_err(|error| {
            tracing::warn!(%error, "a token was refused");
            match error {
                TokenError::KeysUnavailable { .. } => {
                    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
                }
                error => ApiError::new(StatusCode::UNAUTHORIZED, error.to_string()),
            }
        })?;
        let is_admin = identity.issuer == self.config.own_issuer && identity.has_scope(ADMIN_SCOPE);
        if let Some(scope) = &self.config.required_scope
            && !is_admin
            && !identity.has_scope(scope)
        {
            tracing::warn!(user = %identity.user, %scope, "a token lacks the scope that this service asks for");
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                format!("the token lacks the scope '{scope}'"),
            ));
        }
        let vo = identity
            .vo
            .clone()
            .unwrap_or_else(|| VoName::new("unknown"));
        Ok(Caller {
            identity,
            token: token.to_owned(),
            vo,
            is_admin,
        })
    }
}

async fn root(State(api): State<Api>, headers: HeaderMap) -> Response {
    let accepts = headers
        .get("accept")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if accepts.contains("text/html") {
        return axum::response::Redirect::temporary("/live/").into_response();
    }
    let [major, minor, patch] = API_VERSION;
    let version = json!({"major": major, "minor": minor, "patch": patch});
    let body = json!({
        "api": version,
        "core": version,
        "delegation": {"major": 1, "minor": 0, "patch": 0},
        "schema": {"major": 10, "minor": 0, "patch": 1, "message": "penstock"},
        "_links": {
            "curies": [{"name": "fts", "href": "/api/v1/overview"}],
            "fts:whoami": {"href": "/whoami", "title": "Check user certificate"},
            "fts:submitJob": {"href": "/jobs", "title": "Submit a job", "method": "POST"},
            "fts:jobsList": {"href": "/jobs{?vo_name,user_dn}", "title": "List of active jobs", "templated": true},
            "fts:job": {"href": "/jobs/{id}", "title": "Job information", "templated": true},
        },
        "penstock": {"version": env!("CARGO_PKG_VERSION"), "host": api.config.host},
    });
    axum::Json(body).into_response()
}

async fn whoami(State(api): State<Api>, headers: HeaderMap) -> Result<axum::Json<Value>, ApiError> {
    let caller = api.caller(&headers).await?;
    let level = if caller.is_admin { "all" } else { "vo" };
    let vo = caller.vo.as_str();
    Ok(axum::Json(json!({
        "user_dn": caller.identity.user.as_str(),
        "dn": [caller.identity.user.as_str()],
        "vos": [vo],
        "vos_id": [Uuid::new_v5(&BASE_ID, vo.as_bytes()).to_string()],
        "voms_cred": [],
        "roles": [],
        "level": {"transfer": level},
        "delegation_id": caller.identity.delegation.as_str(),
        "base_id": BASE_ID.to_string(),
        "method": "oauth2",
        "is_root": caller.is_admin,
        "oauth2_scope": caller.identity.scope,
        "wlcg_profile": true,
    })))
}

/// Token users delegate nothing; clients that ask anyway are told so in FTS's way: nothing is delegated.
async fn delegation(
    State(api): State<Api>,
    headers: HeaderMap,
) -> Result<axum::Json<Value>, ApiError> {
    api.caller(&headers).await?;
    Ok(axum::Json(Value::Null))
}

async fn no_certificates() -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "Certificate required")
}

async fn overview(
    State(api): State<Api>,
    headers: HeaderMap,
) -> Result<axum::Json<Overview>, ApiError> {
    let caller = api.caller(&headers).await?;
    let mut overview = Overview::clone(&api.service.overview());
    // File names of other VOs are not everybody's business; counts are.
    overview
        .active_transfers
        .retain(|row| caller.is_admin || row.vo == caller.vo.as_str());
    if !caller.is_admin {
        overview
            .links
            .iter_mut()
            .for_each(|link| link.last_failure = None);
    }
    Ok(axum::Json(overview))
}

/// For load balancers and monitors: 200 while jobs can be accepted.
async fn health(State(api): State<Api>) -> Response {
    let (status, text) = match api.service.accepts() {
        true => (StatusCode::OK, "ok"),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the journal cannot be written",
        ),
    };
    (status, axum::Json(json!({"status": text}))).into_response()
}

async fn unknown_path(uri: axum::http::Uri) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        format!("there is nothing at {}", uri.path()),
    )
}
