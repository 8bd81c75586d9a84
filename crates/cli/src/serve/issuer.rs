//! The site's own token issuer on the port of the transfer service: a site without a door has no other place.

use super::roles::Trusted;
use axum::routing::get;
use axum::{Json, Router};

/// `/.well-known/openid-configuration` and `/jwks` (OpenID Connect Discovery §4, RFC 7517); nothing when the
/// site issues no tokens.
pub fn router(trusted: &Trusted) -> Router {
    let Some((configuration, jwks)) = trusted.published() else {
        return Router::new();
    };
    Router::new()
        .route(
            "/.well-known/openid-configuration",
            get(async move || Json(configuration)),
        )
        .route("/jwks", get(async move || Json(jwks)))
}
