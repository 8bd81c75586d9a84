//! The live page on the port of the transfer service, for whoever the service would answer.

use axum::Router;
use penstock_observe::Record;
use penstock_observe::live::{Admission, Authorize, LiveState};
use penstock_transfer_service::Service;
use penstock_transfer_service::api::ApiConfig;
use std::sync::Arc;

/// The routes below `/live`. Whoever the interface answers sees the data, of transfers those of the own VO.
pub fn router(service: &Service, config: &ApiConfig) -> Router {
    let record: Arc<dyn Record> = Arc::new(service.reader().clone());
    let config = config.clone();
    let authorize: Authorize = Arc::new(move |headers| {
        let (headers, config) = (headers.clone(), config.clone());
        Box::pin(async move {
            let viewer = config.viewer(&headers).await?;
            Ok(Admission {
                visibility: viewer.visibility,
                sees_audit: viewer.sees_audit,
                turn: Box::new(viewer.turn),
            })
        })
    });
    penstock_observe::live::router(LiveState::new(record, authorize))
}
