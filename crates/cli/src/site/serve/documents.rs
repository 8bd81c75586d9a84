//! Descriptions of the interfaces at the port of the transfer service: OpenAPI documents for programs, and pages made of
//! them for people. They hold no data of the site and are for anybody; the storage element serves its own document.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use penstock_protocol::openapi_page::{self, RelatedPage};
use std::sync::LazyLock;

const OWN: &str = include_str!("../../../../../docs/api/openapi/penstock.json");
const FTS: &str = include_str!("../../../../../docs/api/openapi/fts.json");
/// Documents run nothing; the pages have a policy of their own.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

static OWN_PAGE: LazyLock<String> = LazyLock::new(|| {
    let fts = RelatedPage {
        address: "/fts/openapi.html",
        title: "FTS REST interface",
    };
    openapi_page::of(&parsed(OWN), "/openapi.json", &[fts])
});
static FTS_PAGE: LazyLock<String> = LazyLock::new(|| {
    let own = RelatedPage {
        address: "/openapi.html",
        title: "Penstock's own interface",
    };
    openapi_page::of(&parsed(FTS), "/fts/openapi.json", &[own])
});

/// `/openapi.json` and `/openapi.html`: our own interface; below `/fts/`: FTS's.
pub fn router() -> Router {
    Router::new()
        .route("/openapi.json", get(async || document(OWN)))
        .route("/openapi.html", get(async || people(&OWN_PAGE)))
        .route("/fts/openapi.json", get(async || document(FTS)))
        .route("/fts/openapi.html", get(async || people(&FTS_PAGE)))
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("a test reads each document")
}

fn document(text: &'static str) -> Response {
    answer("application/json", POLICY, text)
}

fn people(page: &'static str) -> Response {
    answer("text/html; charset=utf-8", &openapi_page::POLICY, page)
}

fn answer(media_type: &'static str, policy: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, media_type),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // It changes with the binary and has no version in its name.
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_tell_every_operation_and_every_form() {
        for (text, page) in [(OWN, &OWN_PAGE), (FTS, &FTS_PAGE)] {
            let document = parsed(text);
            for path in document["paths"].as_object().expect("paths").keys() {
                assert!(page.contains(&format!("</b> {path}</code>")), "{path}");
            }
            for name in document["components"]["schemas"]
                .as_object()
                .expect("schemas")
                .keys()
            {
                assert!(page.contains(&format!("<dt id=\"{name}\">")), "{name}");
            }
            let operations = page.matches("<details ").count();
            assert_eq!(page.matches("<h3>Example</h3>").count(), operations);
        }
    }
}
