//! `/optimizer`: FTS's view of how many transfers each link may run. Here no optimiser moves that number: it is what
//! rules and the configuration file say, and it is changed by `/config/links`.
//!
//! FTS lets anybody change it without a right; here looking and changing take the right to configure.

use super::caller::Credentials;
use super::extract::Query;
use super::jobs::without_port;
use super::{Api, ApiError};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use penstock_model::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

type Answer = Result<Response, ApiError>;

/// `GET /optimizer`: whether one is at work.
pub(super) async fn is_enabled(State(api): State<Api>, credentials: Credentials) -> Answer {
    api.caller(&credentials).await?;
    Ok(Json(false).into_response())
}

/// `GET /optimizer/evolution`: its decisions, of which there are none.
pub(super) async fn evolution(State(api): State<Api>, credentials: Credentials) -> Answer {
    api.caller(&credentials).await?.may_read_configuration()?;
    Ok(Json(json!([])).into_response())
}

/// Which links.
#[derive(Deserialize)]
pub(super) struct Which {
    source_se: Option<String>,
    dest_se: Option<String>,
}

/// `GET /optimizer/current`: the links that were seen since the start, with how many transfers each may run.
pub(super) async fn current(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<Which>,
) -> Answer {
    api.caller(&credentials).await?.may_read_configuration()?;
    let wanted = |asked: &Option<String>, storage: &str| {
        let asked = asked.as_deref().filter(|text| !text.is_empty());
        asked.is_none_or(|asked| without_port(asked) == storage)
    };
    let overview = api.service.overview();
    let at = Timestamp(overview.at).to_fts();
    let links = overview.links.iter().filter(|link| {
        wanted(&which.source_se, &link.source) && wanted(&which.dest_se, &link.destination)
    });
    let rows = links.map(|link| {
        json!({
            "datetime": at,
            "source_se": link.source,
            "dest_se": link.destination,
            "ema": null,
            "active": link.limit,
            "nostreams": null,
        })
    });
    Ok(Json(rows.collect::<Vec<Value>>()).into_response())
}

/// `POST /optimizer/current`: there is nothing whose memory could be changed.
pub(super) async fn set(State(api): State<Api>, credentials: Credentials) -> Answer {
    api.caller(&credentials).await?.may_configure()?;
    Err(ApiError::new(
        StatusCode::BAD_REQUEST,
        "no optimiser decides here how many transfers a link runs, so nothing was set; set max_active of a rule \
         for the link: POST /config/links, or `penstock link set`",
    ))
}
