//! The site's own token issuer on the port of the transfer service: a site without a door has no other place.

use super::roles::TrustedIssuers;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use parking_lot::RwLock;
use serde_json::Value;
use std::sync::Arc;

/// What the issuer publishes at the moment. Cheap to clone; all clones see a replacement.
#[derive(Clone, Default)]
pub struct PublishedKeys(Arc<RwLock<Option<(Value, Value)>>>);

impl PublishedKeys {
    /// From now on this.
    pub fn replace(&self, trusted: &TrustedIssuers) {
        *self.0.write() = trusted.published();
    }

    fn read(&self) -> Result<(Value, Value), StatusCode> {
        let published = self.0.read();
        published.clone().ok_or(StatusCode::NOT_FOUND)
    }
}

/// `/.well-known/openid-configuration` and `/jwks` (OpenID Connect Discovery §4, RFC 7517); 404 when the site
/// issues no tokens.
pub fn router(published: PublishedKeys) -> Router {
    Router::new()
        .route("/.well-known/openid-configuration", get(configuration))
        .route("/jwks", get(keys))
        .with_state(published)
}

async fn configuration(State(published): State<PublishedKeys>) -> Result<Json<Value>, StatusCode> {
    published
        .read()
        .map(|(configuration, _)| Json(configuration))
}

async fn keys(State(published): State<PublishedKeys>) -> Result<Json<Value>, StatusCode> {
    published.read().map(|(_, keys)| Json(keys))
}
