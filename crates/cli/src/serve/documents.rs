//! Descriptions of the interfaces at the port of the transfer service, as OpenAPI documents. They hold no data of the
//! site and are for anybody; the storage element serves its own.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const OWN: &str = include_str!("../../../../docs/api/openapi/penstock.json");
const FTS: &str = include_str!("../../../../docs/api/openapi/fts.json");

/// `/openapi.json`: our own interface; `/fts/openapi.json`: FTS's.
pub fn router() -> Router {
    Router::new()
        .route("/openapi.json", get(async || document(OWN)))
        .route("/fts/openapi.json", get(async || document(FTS)))
}

fn document(text: &'static str) -> Response {
    // It changes with the binary and has no version in its name.
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}
