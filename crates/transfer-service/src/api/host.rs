//! `GET /api/v1/host`: what was sampled of the machine that this process runs on. For administrators of the service,
//! because it tells of mounts, versions and limits. What is told is made by who runs the process.

use super::caller::Credentials;
use super::extract::Query;
use super::query::{blocking, whole_number};
use super::{Api, ApiConfig, ApiError, ApiResult};
use crate::service::Service;
use axum::Router;
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use axum::routing::get;
use penstock_model::{ProblemCode, Timestamp};
use serde::Deserialize;
use std::io;
use std::sync::Arc;

/// The window when the query names none: an hour.
const SECONDS: i64 = 3600;
/// A year, and the day by which some are longer.
const SECONDS_MAX: i64 = 366 * 86_400;
/// A week.
const RESOLUTION_MAX: u32 = 604_800;
/// The last millisecond of the year 9999.
const UNTIL_MAX: i64 = 253_402_300_799_999;

/// What is asked of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostWindow {
    /// Begin.
    pub from: Timestamp,
    /// End.
    pub to: Timestamp,
    /// Length of the interval of a point; `None`: whatever fits the window.
    pub resolution_seconds: Option<u32>,
}

/// Tells what was sampled. May read files.
pub trait HostView: Send + Sync {
    /// A JSON document.
    fn tell(&self, window: HostWindow) -> io::Result<String>;
}

/// The route, to be merged into [`super::router`], whose rights it asks for.
pub fn routes(service: Arc<Service>, config: ApiConfig, host: Arc<dyn HostView>) -> Router {
    let api = Api::new(service, config);
    Router::new()
        .route("/api/v1/host", get(show))
        .layer(Extension(host))
        .with_state(api)
}

#[derive(Debug, Default, Deserialize)]
struct HostQuery {
    /// How far back.
    seconds: Option<String>,
    /// Where the window ends, in milliseconds since 1970.
    until: Option<String>,
    /// Seconds of the interval of a point.
    resolution: Option<String>,
}

async fn show(
    State(api): State<Api>,
    Extension(host): Extension<Arc<dyn HostView>>,
    credentials: Credentials,
    Query(query): Query<HostQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    caller.may_configure()?;
    let window = window_of(&query, penstock_clock::wall_clock())?;
    let told = blocking(caller.credential(), move || host.tell(window)).await?;
    let body = told.map_err(|why| {
        tracing::error!(%why, "samples of this host cannot be read");
        let text = "the samples of this host cannot be read; see the service's log";
        ApiError::new(ProblemCode::InternalError, text).told()
    })?;
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, body).into_response())
}

fn window_of(query: &HostQuery, now: Timestamp) -> Result<HostWindow, ApiError> {
    let to = whole_number("until", query.until.as_deref(), 0, UNTIL_MAX)?;
    let seconds = whole_number("seconds", query.seconds.as_deref(), 1, SECONDS_MAX)?;
    let most = i64::from(RESOLUTION_MAX);
    let resolution = whole_number("resolution", query.resolution.as_deref(), 1, most)?;
    let to = to.map_or(now, Timestamp);
    Ok(HostWindow {
        from: Timestamp(to.0 - seconds.unwrap_or(SECONDS) * 1000),
        to,
        resolution_seconds: resolution.and_then(|seconds| u32::try_from(seconds).ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seconds: Option<&str>, until: Option<&str>, resolution: Option<&str>) -> String {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let query = HostQuery {
            seconds: own(seconds),
            until: own(until),
            resolution: own(resolution),
        };
        match window_of(&query, Timestamp(10_000_000)) {
            Ok(it) => format!("{} {} {:?}", it.from.0, it.to.0, it.resolution_seconds),
            Err(why) => why.problem.message,
        }
    }

    #[test]
    fn a_window_is_the_last_hour_unless_the_query_says_another() {
        assert_eq!(check(None, None, None), "6400000 10000000 None");
        assert_eq!(
            check(Some("60"), Some("70000"), Some("1")),
            "10000 70000 Some(1)"
        );
        let refused = "'seconds' is '0'; it must be a whole number from 1 to 31622400";
        assert_eq!(check(Some("0"), None, None), refused);
        assert!(check(None, Some("-1"), None).starts_with("'until' is"));
        assert!(check(None, None, Some("")).starts_with("'resolution' is"));
    }
}
