//! The live page on the port of the transfer service, for whoever the service would answer.

use crate::token::now;
use axum::Router;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use penstock_observe::Record;
use penstock_observe::live::{Authorise, LiveState};
use penstock_protocol::token::{TokenError, Verifier};
use penstock_transfer_service::Service;
use penstock_transfer_service::api::Banned;
use std::sync::Arc;

/// The routes below `/live`. Any token that the service accepts may see the data.
pub fn router(service: &Service, verifier: Verifier, banned: Banned) -> Router {
    let record: Arc<dyn Record> = service.reader().clone();
    let authorise: Authorise = Arc::new(move |headers| {
        let (token, verifier, banned) = (bearer(headers), verifier.clone(), banned.clone());
        Box::pin(async move {
            let token = token.ok_or(StatusCode::UNAUTHORIZED)?;
            match verifier.verify(&token, now()).await {
                Ok(identity) if banned.holds(&identity) => Err(StatusCode::FORBIDDEN),
                Ok(_) => Ok(()),
                Err(TokenError::KeysUnavailable { .. }) => Err(StatusCode::SERVICE_UNAVAILABLE),
                Err(_) => Err(StatusCode::UNAUTHORIZED),
            }
        })
    });
    penstock_observe::live::router(LiveState::new(record, service.committed(), authorise))
}

/// The token of a request (RFC 6750 §2.1).
fn bearer(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}
