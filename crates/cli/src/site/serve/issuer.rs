//! What the site publishes of itself and its own token issuer, on the port of the transfer service: a site without a door has
//! no other place.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use parking_lot::RwLock;
use serde_json::Value;
use std::sync::Arc;

/// What is published at the moment. Cheap to clone; all clones see a replacement.
#[derive(Clone, Default)]
pub struct Published(Arc<RwLock<PublishedDocuments>>);

/// The documents; null where there is none.
#[derive(Default)]
pub struct PublishedDocuments {
    /// What the site tells of itself.
    pub site: Value,
    /// What its issuer offers.
    pub openid_configuration: Value,
    /// The keys of its issuer.
    pub jwks: Value,
}

impl Published {
    /// From now on this.
    pub fn replace(&self, documents: PublishedDocuments) {
        *self.0.write() = documents;
    }

    fn answer(
        &self,
        document: fn(&PublishedDocuments) -> &Value,
    ) -> Result<Json<Value>, StatusCode> {
        let document = document(&self.0.read()).clone();
        match document.is_null() {
            true => Err(StatusCode::NOT_FOUND),
            false => Ok(Json(document)),
        }
    }
}

/// `/.well-known/penstock-site`; `/.well-known/openid-configuration` and `/jwks` (OpenID Connect Discovery §4, RFC 7517), 404
/// when the site issues no tokens.
pub fn router(published: Published) -> Router {
    Router::new()
        .route("/.well-known/penstock-site", get(site))
        .route("/.well-known/openid-configuration", get(configuration))
        .route("/jwks", get(keys))
        .with_state(published)
}

async fn site(State(published): State<Published>) -> Result<Json<Value>, StatusCode> {
    published.answer(|documents| &documents.site)
}

async fn configuration(State(published): State<Published>) -> Result<Json<Value>, StatusCode> {
    published.answer(|documents| &documents.openid_configuration)
}

async fn keys(State(published): State<Published>) -> Result<Json<Value>, StatusCode> {
    published.answer(|documents| &documents.jwks)
}
