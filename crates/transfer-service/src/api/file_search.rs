//! `GET /files`: files of several jobs, newest first.

use super::caller::Credentials;
use super::extract::Query;
use super::query::{blocking, ended_since, limit_of, split, vo_to_look_at, without_port};
use super::{Api, ApiResult, wire};
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use penstock_journal::TransferFilter;
use penstock_model::{FileUrl, StorageId};
use serde::Deserialize;

/// Files in one answer, as in FTS.
const FILES_MAX: usize = 1000;
/// Files that are looked at for one answer: the newest ones.
const EXAMINED_MAX: usize = 200_000;
/// What FTS's word for a file may be while it has not ended.
const OPEN: [&str; 2] = ["SUBMITTED", "ACTIVE"];

#[derive(Debug, Default, Deserialize)]
pub(super) struct FilesQuery {
    vo_name: Option<String>,
    state_in: Option<String>,
    source_se: Option<String>,
    dest_se: Option<String>,
    dest_surl: Option<String>,
    limit: Option<String>,
    time_window: Option<String>,
}

/// Without `state_in` and `time_window`: those that have not ended.
pub(super) async fn list(
    State(api): State<Api>,
    credentials: Credentials,
    Query(query): Query<FilesQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let storage = |text: &Option<String>| given(text).map(|se| StorageId::new(without_port(&se)));
    let mut states: Vec<String> = split(query.state_in.as_deref())
        .map(str::to_ascii_uppercase)
        .collect();
    let window = ended_since(query.time_window.as_deref(), penstock_clock::wall_clock())?;
    if states.is_empty() && window.is_none() {
        states = OPEN.map(str::to_owned).to_vec();
    }
    let filter = TransferFilter {
        vo: vo_to_look_at(&caller, query.vo_name.as_deref())?,
        states,
        ended_since: window,
        source: storage(&query.source_se),
        destination: storage(&query.dest_se),
        // URLs are kept without the credentials in them.
        destination_url: given(&query.dest_surl).map(|text| match FileUrl::parse(&text) {
            Ok(url) => url.public_text().into_owned(),
            Err(_) => text,
        }),
        limit: limit_of(query.limit.as_deref(), FILES_MAX)?,
        examined_max: EXAMINED_MAX,
        ..TransferFilter::default()
    };
    let reader = api.service.reader().clone();
    let page = blocking(caller.credential(), move || reader.find(&filter)).await??;
    let rows = page.transfers.iter().map(|found| wire::FileObject {
        row: &found.transfer,
        job: wire::JobColumns {
            vo: &found.vo,
            parameters: &found.parameters,
        },
        host: &api.config.host,
        only: None,
    });
    Ok(Json(rows.collect::<Vec<_>>()).into_response())
}
