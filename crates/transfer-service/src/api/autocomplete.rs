//! `/autocomplete/…?term=`: names that begin with what somebody has typed, for the forms of FTS's configuration pages.
//!
//! Storage elements are those of the live view, which everybody sees who is let in. Users and VOs are those of recent
//! jobs, for who may read the configuration; others find themselves.

use super::caller::Credentials;
use super::extract::{Path, Query};
use super::query::blocking;
use super::{Api, ApiError, ApiResult};
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use penstock_journal::JobName;
use penstock_model::ProblemCode;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Names in one answer at most.
const NAMES_MAX: usize = 50;

/// What was typed so far.
#[derive(Deserialize)]
pub(super) struct NamePrefix {
    term: Option<String>,
}

/// `GET /autocomplete/{dn,source,destination,storage,vo}`.
pub(super) async fn names(
    State(api): State<Api>,
    credentials: Credentials,
    Path(kind): Path<String>,
    Query(typed): Query<NamePrefix>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let term = typed.term.unwrap_or_default();
    let all: BTreeSet<String> = match kind.as_str() {
        "source" | "destination" | "storage" => {
            let overview = api.service.overview();
            let sources = overview.links.iter().map(|link| link.source.clone());
            let targets = overview.links.iter().map(|link| link.destination.clone());
            match kind.as_str() {
                "source" => sources.collect(),
                "destination" => targets.collect(),
                _ => sources.chain(targets).collect(),
            }
        }
        "dn" | "vo" => {
            let (own, name) = match kind.as_str() {
                "dn" => (caller.identity.user.as_str(), JobName::User),
                _ => (caller.vo.as_str(), JobName::Vo),
            };
            let mut names = BTreeSet::from([own.to_owned()]);
            if caller.may_read_configuration().is_ok() {
                let reader = api.service.reader().clone();
                let read = move || reader.recent_names(name);
                names.extend(blocking(caller.credential(), read).await??);
            }
            names
        }
        _ => {
            let text = format!(
                "there is no autocompletion for '{kind}'; use dn, source, destination, storage or vo"
            );
            return Err(ApiError::new(ProblemCode::ResourceNotFound, text));
        }
    };
    let fitting = all.into_iter().filter(|name| name.starts_with(&term));
    Ok(Json(fitting.take(NAMES_MAX).collect::<Vec<_>>()).into_response())
}
