//! What handlers take from a request's path and query; what cannot be read is told in the form of all errors.

use super::ApiError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use penstock_model::ProblemCode;
use serde::de::DeserializeOwned;

/// The parts of the path that the route names, decoded. Errors: 400.
pub(super) struct Path<T>(pub(super) T);

/// The query, keys that nobody asked for passed over. Errors: 400, also for a key that stands twice.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, ApiError> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        read.map(|axum::extract::Path(value)| Path(value))
            .map_err(|why| ApiError::new(ProblemCode::RequestMalformed, why.body_text()))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>, ApiError> {
        let read = axum::extract::Query::from_request_parts(parts, state).await;
        read.map(|axum::extract::Query(value)| Query(value))
            .map_err(|why| ApiError::new(ProblemCode::RequestMalformed, why.body_text()))
    }
}
