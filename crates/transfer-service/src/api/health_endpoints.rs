//! What monitors ask this port: `/metrics`, `/health`, `/health/live`, `/health/ready`.

use super::caller::Credentials;
use super::server::Peer;
use super::{Api, ApiError, ApiResult};
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::IntoResponse;
use penstock_model::ProblemCode;
use penstock_protocol::monitoring::{Question, Viewer, ViewerCredential};

/// Answers by the path.
pub(super) async fn tell(
    State(api): State<Api>,
    credentials: Credentials,
    peer: Option<Extension<Peer>>,
    uri: Uri,
) -> ApiResult {
    let nothing = || ApiError::new(ProblemCode::ResourceNotFound, "this service has no monitor");
    let monitor = api.config.monitor.clone().ok_or_else(nothing)?;
    // What load balancers were told to ask before there was anything else.
    let question = match uri.path() {
        "/api/v1/health" => Question::Ready,
        path => Question::at(path).ok_or_else(nothing)?,
    };
    let viewer = Viewer {
        peer: peer.map(|peer| peer.0.0),
        credential: match api.config.monitor_identity(&credentials).await? {
            Some(identity) => ViewerCredential::Own(identity),
            None => ViewerCredential::Anonymous,
        },
    };
    let told = tokio::task::spawn_blocking(move || monitor.answer(question, &viewer)).await;
    let told = told.map_err(|why| {
        tracing::error!(%why, "a monitor was not answered");
        ApiError::new(ProblemCode::InternalError, "see the service's log")
    })?;
    let headers = [(CONTENT_TYPE, told.media_type), (CACHE_CONTROL, "no-store")];
    let mut answer = (told.status, headers, told.body).into_response();
    if told.status == StatusCode::UNAUTHORIZED {
        // RFC 6750 §3.
        let challenge = HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    Ok(answer)
}
