//! The REST interface: FTS's, unchanged for its clients, and our own beside it under `/api/v1`.
//!
//! Every request but the static page is authenticated, by a bearer token or a client certificate. Handlers translate; they do not decide.

mod access_links;
mod archive;
mod autocomplete;
mod ban;
mod body;
mod caller;
mod cancel_all;
mod config;
mod connection_timeouts;
mod delegation;
pub mod explain;
mod extract;
mod file_search;
mod force_start_refusal;
mod ftsmon;
mod health_endpoints;
pub mod host;
mod jobs;
mod link_grant;
mod optimizer;
mod query;
mod server;
mod streamed_listing;
pub mod submit;
mod submit_schema;
mod transfers;
mod unread_body;
pub mod wire;

pub use caller::Administrators;
pub use config::SuppressedAlerts;
pub use server::{ServeLimits, serve};

use crate::banned::Banned;
use crate::error::ServiceError;
use crate::nodes::NodesView;
use crate::overview::Overview;
use crate::service::Service;
use crate::tokens::TokenClients;
use axum::Router;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use caller::{Caller, Credentials};
use extract::Query;
use penstock_decide::service_rights::{Operation, PrincipalRights};
use penstock_journal::JournalError;
use penstock_model::{Problem, ProblemCode, VoName};
use penstock_persistence::access_links::AccessLinks;
use penstock_protocol::identity::Method;
use penstock_protocol::monitoring::Monitor;
use penstock_protocol::problem::{self, PROBLEM_HEADER};
use penstock_protocol::token::Verifier;
use penstock_protocol::told::RepeatedErrors;
use penstock_protocol::x509::ClientCertificates;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use submit::BASE_ID;
use tokio::sync::Semaphore;
use uuid::Uuid;

/// The version of the FTS interface that is spoken.
const API_VERSION: [u32; 3] = [3, 14, 4];

/// What the interface needs.
#[derive(Clone)]
pub struct ApiConfig {
    /// Verifies bearer tokens.
    pub verifier: Verifier,
    /// This site's own issuer, the only one whose `penstock.admin` scope counts.
    pub own_issuer: String,
    /// A scope that tokens must carry to use this service, if any (`fts` at some sites).
    pub required_scope: Option<String>,
    /// Judges proxies that users delegate, by the same rules as certificates that they show.
    pub certificates: ClientCertificates,
    /// Users who may do nothing here.
    pub banned: Banned,
    /// Who may do more than their VO's members.
    pub administrators: Administrators,
    /// The issuers at which tokens of jobs are renewed.
    pub token_clients: TokenClients,
    /// Answers monitors. Without it there is nothing for them.
    pub monitor: Option<Arc<dyn Monitor>>,
    /// What mutes have held back.
    pub suppressed: SuppressedAlerts,
    /// Login links, their sessions, and views.
    pub access_links: Arc<AccessLinks>,
    /// This host's name, as shown in `submit_host` and `transfer_host`.
    pub host: String,
}

#[derive(Clone)]
struct Api {
    service: Arc<Service>,
    config: Arc<ApiConfig>,
    large_bodies: Arc<body::LargeBodies>,
    /// Held while a key is made or looked up for a request.
    key_making: Arc<Semaphore>,
}

impl Api {
    fn new(service: Arc<Service>, config: ApiConfig) -> Api {
        Api {
            service,
            config: Arc::new(config),
            large_bodies: Arc::new(body::LargeBodies::new()),
            key_making: Arc::new(Semaphore::new(1)),
        }
    }
}

/// All routes. Paths with doubled slashes must be collapsed before; [`serve`] does so. Long because each route is one line.
pub fn router(service: Arc<Service>, config: ApiConfig) -> Router {
    let api = Api::new(service, config);
    Router::new()
        .route("/", get(root))
        .route("/whoami", get(whoami))
        .route("/whoami/certificate", get(whoami_certificate))
        .route(
            "/jobs",
            get(jobs::list).post(jobs::submit).put(jobs::submit),
        )
        .route(
            "/jobs/{ids}",
            get(jobs::show).delete(jobs::cancel).post(jobs::modify),
        )
        .route("/jobs/all", get(jobs::not_an_id).delete(cancel_all::of_all))
        .route("/jobs/vo/{vo}", axum::routing::delete(cancel_all::of_vo))
        .route("/jobs/{id}/files", get(jobs::files))
        .route(
            "/jobs/{id}/files/{files}",
            axum::routing::delete(jobs::cancel_files),
        )
        .route("/jobs/{id}/files/{file}/retries", get(jobs::retries))
        .route("/jobs/{id}/files/{file}/log", get(transfers::log))
        .route("/jobs/{id}/dm", get(jobs::data_management))
        .route("/jobs/{id}/{field}", get(jobs::field))
        .route(
            "/ban/se",
            get(ban::banned_storages)
                .post(ban::ban_storage)
                .delete(ban::lift_storage),
        )
        .route(
            "/ban/dn",
            get(ban::banned_users)
                .post(ban::ban_user)
                .delete(ban::lift_user),
        )
        .route("/files", get(file_search::list))
        .route("/status/hosts", get(hosts))
        .route("/optimizer", get(optimizer::is_enabled))
        .route("/optimizer/evolution", get(optimizer::evolution))
        .route(
            "/optimizer/current",
            get(optimizer::current).post(optimizer::set),
        )
        .route("/autocomplete/{kind}", get(autocomplete::names))
        .route("/archive", get(archive::links))
        .route("/archive/{id}", get(archive::show))
        .route("/archive/{id}/{field}", get(archive::field))
        .route(
            "/admin/force-start",
            axum::routing::post(force_start_refusal::refuse),
        )
        .route("/api-docs/schema/submit", get(submit_schema::show))
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/nodes", get(nodes))
        .route("/api/v1/jobs/{id}/explain", get(jobs::explain))
        .route("/api/v1/transfers", get(transfers::find))
        .route("/api/v1/transfers/{id}", get(transfers::show))
        .route("/api/v1/health", get(health_endpoints::tell))
        .route("/metrics", get(health_endpoints::tell))
        .route("/health", get(health_endpoints::tell))
        .route("/health/live", get(health_endpoints::tell))
        .route("/health/ready", get(health_endpoints::tell))
        .route(
            "/delegation/{id}",
            get(delegation::show).delete(delegation::forget),
        )
        .route("/delegation/{id}/request", get(delegation::request))
        .route(
            "/delegation/{id}/voms",
            axum::routing::post(delegation::add_attributes),
        )
        .route(
            "/delegation/{id}/credential",
            put(delegation::deliver).post(delegation::deliver),
        )
        .merge(access_links::routes())
        .merge(config::routes())
        .merge(ftsmon::routes())
        .fallback(unknown_path)
        .with_state(api)
}

/// What a handler answers.
type ApiResult = Result<Response, ApiError>;

/// An error answer: a [`Problem`] with its status, beside the keys by which FTS clients read it
/// (`{"status": "404 Not Found", "message": "…"}`). Those pass over keys that they do not know.
#[derive(Debug)]
pub(crate) struct ApiError {
    problem: Problem,
    /// The code's own, unless FTS gives another.
    status: StatusCode,
    /// The scope that would help.
    scope: Option<String>,
    /// The log has been told, with more than is known to who answers.
    is_told: bool,
    /// In how many seconds it is worth trying again.
    retry_after: Option<u16>,
}

/// Another node leads within seconds of the last one's end.
const LEADERLESS_SECONDS: u16 = 5;

/// Why a request was refused, where the log was not told yet: on its way to who knows the request.
#[derive(Debug, Clone)]
pub(crate) struct RefusalToLog(pub(crate) String);

impl ApiError {
    pub(crate) fn new(code: ProblemCode, message: impl Into<String>) -> ApiError {
        ApiError::from(Problem::new(code, message))
    }

    /// The same with a status that FTS gives for it.
    fn with_status(self, status: StatusCode) -> ApiError {
        ApiError { status, ..self }
    }

    /// The same, naming the scope that a token should have.
    fn needing(self, scope: &str) -> ApiError {
        ApiError {
            scope: Some(scope.to_owned()),
            ..self
        }
    }

    /// The same, saying when to try again.
    fn retry_after(self, seconds: u16) -> ApiError {
        ApiError {
            retry_after: Some(seconds),
            ..self
        }
    }

    /// The same, after the log was told.
    pub(crate) fn told(self) -> ApiError {
        ApiError {
            is_told: true,
            ..self
        }
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> ApiError {
        let status = problem.code.facts().status;
        ApiError {
            status: StatusCode::from_u16(status).expect("a test keeps it between 200 and 600"),
            problem,
            scope: None,
            is_told: false,
            retry_after: None,
        }
    }
}

/// The body of an error answer.
#[derive(Serialize)]
struct ErrorBody<'p> {
    status: String,
    #[serde(flatten)]
    problem: &'p Problem,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let ApiError {
            problem, status, ..
        } = self;
        // HTTP has no name for 419.
        let name = status.canonical_reason().unwrap_or("Need Delegation");
        let body = ErrorBody {
            status: format!("{} {name}", status.as_u16()),
            problem: &problem,
        };
        let mut response = (status, axum::Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(PROBLEM_HEADER, problem::header_value(problem.code));
        if let Some(challenge) = problem::challenge(&problem, self.scope.as_deref()) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        let is_denial = status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN;
        if is_denial && !self.is_told {
            response
                .extensions_mut()
                .insert(RefusalToLog(problem.message));
        }
        response
    }
}

impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        static TOLD: LazyLock<RepeatedErrors> = LazyLock::new(RepeatedErrors::default);
        if let Some(passed_over) = TOLD.tells(&error.to_string()) {
            match error.may_pass() {
                true => tracing::warn!(%error, passed_over, "a request could not be answered"),
                false => tracing::error!(%error, passed_over, "a request could not be answered"),
            }
        }
        ApiError::from(ServiceError::Journal(error))
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        let refused = ApiError::from(error.problem());
        match error {
            ServiceError::Leaderless => refused.retry_after(LEADERLESS_SECONDS),
            _ => refused,
        }
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

async fn whoami(
    State(api): State<Api>,
    credentials: Credentials,
) -> Result<axum::Json<Value>, ApiError> {
    let caller = api.caller(&credentials).await?;
    let is_root = caller.rights == PrincipalRights::everything();
    let vo = caller.vo.as_str();
    let method = match caller.identity.method {
        Method::Token => "oauth2",
        Method::Certificate => "certificate",
    };
    Ok(axum::Json(json!({
        "user_dn": caller.identity.user.as_str(),
        "dn": [caller.identity.user.as_str()],
        "vos": [vo],
        "vos_id": [Uuid::new_v5(&BASE_ID, vo.as_bytes()).to_string()],
        "voms_cred": caller.identity.fqans,
        "roles": roles(&caller.identity.fqans),
        "level": levels(&caller),
        "delegation_id": caller.identity.delegation.as_str(),
        "base_id": BASE_ID.to_string(),
        "method": method,
        "is_root": is_root,
        "oauth2_scope": caller.identity.scope,
        "wlcg_profile": caller.identity.method == Method::Token,
    })))
}

/// `GET /whoami/certificate`: the certificate that the client showed, as PEM.
async fn whoami_certificate(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let shown = credentials.certificate();
    match shown.filter(|_| caller.identity.method == Method::Certificate) {
        Some(pem) => Ok(([(CONTENT_TYPE, "application/x-pem-file")], pem).into_response()),
        None => Err(ApiError::new(
            ProblemCode::CertificateRequired,
            "Certificate required",
        )),
    }
}

/// The roles in VOMS attributes, as FTS shows them.
fn roles(fqans: &[String]) -> Vec<&str> {
    let parts = fqans.iter().flat_map(|fqan| fqan.split('/'));
    let roles = parts.filter_map(|part| part.strip_prefix("Role="));
    roles.filter(|role| *role != "NULL").collect()
}

/// How far the caller's rights reach, in FTS's words.
fn levels(caller: &Caller) -> Value {
    let mut levels = json!({"transfer": "vo"});
    for (name, operation) in [
        ("transfer", Operation::Transfer),
        ("config", Operation::Config),
    ] {
        if caller.rights.cover_everything(operation) {
            levels[name] = json!("all");
        } else if caller.rights.cover_anything(operation) {
            levels[name] = json!("vo");
        }
    }
    levels
}

#[derive(Deserialize)]
struct OverviewQuery {
    /// Ids, separated by commas.
    jobs: Option<String>,
}

async fn overview(
    State(api): State<Api>,
    Query(query): Query<OverviewQuery>,
    credentials: Credentials,
) -> Result<axum::Json<Overview>, ApiError> {
    let caller = api.caller(&credentials).await?;
    let mut overview = Overview::clone(&api.service.overview());
    if let Some(jobs) = &query.jobs {
        overview.active_transfers = api.service.running(&jobs.split(',').collect());
    }
    // File names of other VOs are not everybody's business; counts are.
    overview
        .active_transfers
        .retain(|row| caller.may_look_at(&VoName::new(row.vo.as_str())));
    if !caller.may_touch_everything() {
        overview
            .links
            .iter_mut()
            .for_each(|link| link.last_failure = None);
    }
    Ok(axum::Json(overview))
}

/// `GET /api/v1/nodes`: the processes of this service, and which of them leads.
async fn nodes(
    State(api): State<Api>,
    credentials: Credentials,
) -> Result<axum::Json<NodesView>, ApiError> {
    api.caller(&credentials).await?;
    Ok(axum::Json(api.service.nodes()))
}

/// `GET /status/hosts`: what this host does. FTS's client adds up exactly these two.
async fn hosts(
    State(api): State<Api>,
    credentials: Credentials,
) -> Result<axum::Json<Value>, ApiError> {
    let caller = api.caller(&credentials).await?;
    caller.may_configure()?;
    let overview = api.service.overview();
    let (active, staging) = (overview.agents.active, overview.totals.staging);
    let host = api.config.host.clone();
    Ok(axum::Json(
        json!({host: {"active": active, "staging": staging}}),
    ))
}

async fn unknown_path(uri: axum::http::Uri) -> ApiError {
    ApiError::new(
        ProblemCode::ResourceNotFound,
        format!(
            "there is nothing at {}; this is the port of the transfer service, and files are at that of the storage element",
            uri.path()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_while_nobody_leads_is_told_when_to_try_again() {
        let answer = ApiError::from(ServiceError::Leaderless).into_response();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()[RETRY_AFTER], "5");
        let answer = ApiError::from(ServiceError::TooManyBans).into_response();
        assert!(!answer.headers().contains_key(RETRY_AFTER));
    }
}
