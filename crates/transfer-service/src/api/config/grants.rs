//! `/config/authorize`: who may change settings beside the administrators. Beyond FTS, a grant may be for one storage
//! element: its holder manages that and its links.

use super::fields::storage;
use super::{Answer, bad_request, no_content};
use crate::api::caller::{Caller, Credentials};
use crate::api::{Api, ApiError};
use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use penstock_decide::settings::Wish;
use penstock_model::{ANY, Grant, StorageId, UserName};
use penstock_protocol::identity::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// FTS's operation that settings are under.
const CONFIG: &str = "config";

/// As FTS shows it, with the storage element beside.
pub(super) fn form(grant: &Grant) -> Value {
    json!({
        "dn": grant.user.as_str(),
        "operation": CONFIG,
        "storage": grant.storage.as_ref().map(StorageId::as_str),
    })
}

/// FTS lets certificates only do this. A token of an administrator of this service proves as much.
fn needs_certificate(caller: &Caller) -> Result<(), ApiError> {
    match caller.identity.method {
        Method::Certificate => Ok(()),
        Method::Token if caller.may_configure_everything() => Ok(()),
        Method::Token => Err(ApiError::new(StatusCode::FORBIDDEN, "Certificate required")),
    }
}

fn check_operation(operation: &str) -> Result<(), ApiError> {
    match operation {
        CONFIG => Ok(()),
        "admin" => Err(bad_request(
            "administrators are named in the configuration file, not here",
        )),
        "deleg" | "transfer" | "datamanagement" => Err(bad_request(format!(
            "'{operation}' needs no grant at this service, so none was made; only 'config' does"
        ))),
        _ => Err(bad_request(format!(
            "operation '{operation}' unknown; write 'config'"
        ))),
    }
}

fn managed(text: &str) -> Result<StorageId, ApiError> {
    match storage(text)? {
        any if any.as_str() == ANY => Err(bad_request(
            "a manager is one of a storage element; without storage, the grant is for everything",
        )),
        storage => Ok(storage),
    }
}

/// `POST /config/authorize`.
pub(super) async fn add(State(api): State<Api>, credentials: Credentials, body: Body) -> Answer {
    let (caller, mut fields) = api.form(&credentials, body).await?;
    needs_certificate(&caller)?;
    let (user, operation) = (fields.text("dn")?, fields.text("operation")?);
    let (Some(user), Some(operation)) = (user, operation) else {
        return Err(bad_request("Missing dn and/or operation"));
    };
    check_operation(&operation)?;
    let storage = fields.text("storage")?;
    fields.end()?;
    let grant = Grant {
        user: UserName::new(user),
        storage: storage.as_deref().map(managed).transpose()?,
    };
    api.wish(&caller, Wish::Grant(grant.clone())).await?;
    Ok(Json(form(&grant)).into_response())
}

/// Which grants.
#[derive(Deserialize)]
pub(super) struct Which {
    dn: Option<String>,
    operation: Option<String>,
    storage: Option<String>,
}

/// `GET /config/authorize[?dn=][&operation=]`.
pub(super) async fn list(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<Which>,
) -> Answer {
    let (caller, settings) = api.operator(&credentials).await?;
    needs_certificate(&caller)?;
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (user, operation) = (said(&which.dn), said(&which.operation));
    let storage = said(&which.storage);
    let storage = storage.as_deref().map(managed).transpose()?;
    let shown = settings.grants().filter(|grant| {
        user.as_deref()
            .is_none_or(|user| user == grant.user.as_str())
            && operation
                .as_deref()
                .is_none_or(|operation| operation == CONFIG)
            && (storage.is_none() || storage == grant.storage)
    });
    Ok(Json(shown.map(form).collect::<Vec<_>>()).into_response())
}

/// `DELETE /config/authorize?dn=[&operation=][&storage=]`: without a storage element, all that was granted.
pub(super) async fn remove(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<Which>,
) -> Answer {
    let (caller, _) = api.operator(&credentials).await?;
    needs_certificate(&caller)?;
    let Some(user) = which.dn.filter(|user| !user.is_empty()) else {
        return Err(bad_request("Missing DN parameter"));
    };
    if let Some(operation) = which.operation.filter(|operation| !operation.is_empty()) {
        check_operation(&operation)?;
    }
    let only = match which.storage.as_deref().filter(|text| !text.is_empty()) {
        Some(text) => Some(Grant {
            user: UserName::new(user.as_str()),
            storage: Some(managed(text)?),
        }),
        None => None,
    };
    api.wish(&caller, Wish::Revoke { user, only }).await?;
    Ok(no_content())
}
