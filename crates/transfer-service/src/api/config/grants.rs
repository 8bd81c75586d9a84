//! `/config/authorize`: who may change settings beside the administrators. Beyond FTS, a grant may be for one storage
//! element: its holder manages that and its links.

use super::fields::storage;
use super::{ApiResult, bad_request, no_content};
use crate::api::caller::{Caller, Credentials};
use crate::api::extract::Query;
use crate::api::{Api, ApiError};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use penstock_decide::settings::{RevokedGrants, SettingRequest};
use penstock_model::{ANY, Grant, Operation, ProblemCode, StorageId, UserName};
use penstock_protocol::identity::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// As FTS shows it, with the storage element beside.
pub(super) fn form(grant: &Grant) -> Value {
    json!({
        "dn": grant.user.as_str(),
        "operation": grant.operation.name(),
        "storage": grant.storage.as_ref().map(StorageId::as_str),
    })
}

/// FTS lets certificates only do this. A token of an administrator of this service proves as much.
fn needs_certificate(caller: &Caller) -> Result<(), ApiError> {
    match caller.identity.method {
        Method::Certificate => Ok(()),
        Method::Token if caller.may_configure_everything() => Ok(()),
        Method::Token => Err(ApiError::new(
            ProblemCode::CertificateRequired,
            "Certificate required",
        )),
    }
}

fn operation(name: &str) -> Result<Operation, ApiError> {
    match name {
        "config" => Ok(Operation::Config),
        "transfer" => Ok(Operation::Transfer),
        "admin" => Err(bad_request(
            "administrators are named in the configuration file; grant 'transfer' and 'config'",
        )),
        "deleg" | "datamanagement" => Err(bad_request(format!(
            "'{name}' does not need a grant at this service, so none was made"
        ))),
        _ => Err(bad_request(format!(
            "operation '{name}' unknown; write 'config' or 'transfer'"
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
pub(super) async fn add(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    let (caller, mut fields) = api.form(&credentials, body).await?;
    needs_certificate(&caller)?;
    // The right would stay when the session has ended.
    caller.refuse_session("grant rights")?;
    let (user, what) = (fields.text("dn")?, fields.text("operation")?);
    let (Some(user), Some(what)) = (user, what) else {
        return Err(bad_request("Missing dn and/or operation"));
    };
    let storage = fields.text("storage")?;
    fields.end()?;
    let grant = Grant {
        user: UserName::new(user),
        operation: operation(&what)?,
        storage: storage.as_deref().map(managed).transpose()?,
    };
    if grant.storage.is_some() && grant.operation != Operation::Config {
        return Err(bad_request(
            "only 'config' can be granted for one storage element",
        ));
    }
    api.wish(&caller, SettingRequest::Grant(grant.clone()))
        .await?;
    Ok(Json(form(&grant)).into_response())
}

#[derive(Deserialize)]
pub(super) struct GrantQuery {
    dn: Option<String>,
    operation: Option<String>,
    storage: Option<String>,
}

struct GrantKey {
    user: Option<String>,
    operation: Option<Operation>,
    storage: Option<StorageId>,
}

impl GrantQuery {
    /// Empty texts count as not said.
    fn grant_key(self) -> Result<GrantKey, ApiError> {
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(GrantKey {
            user: said(self.dn),
            operation: said(self.operation)
                .map(|name| operation(&name))
                .transpose()?,
            storage: said(self.storage).map(|name| managed(&name)).transpose()?,
        })
    }
}

/// `GET /config/authorize[?dn=][&operation=]`.
pub(super) async fn list(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<GrantQuery>,
) -> ApiResult {
    let (caller, settings) = api.operator(&credentials).await?;
    needs_certificate(&caller)?;
    let which = which.grant_key()?;
    let shown = settings.grants().filter(|grant| {
        let user = which.user.as_deref();
        user.is_none_or(|user| user == grant.user.as_str())
            && which
                .operation
                .is_none_or(|operation| operation == grant.operation)
            && (which.storage.is_none() || which.storage == grant.storage)
    });
    Ok(Json(shown.map(form).collect::<Vec<_>>()).into_response())
}

/// `DELETE /config/authorize?dn=[&operation=][&storage=]`: without a storage element, all that was granted.
pub(super) async fn remove(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<GrantQuery>,
) -> ApiResult {
    let (caller, _) = api.operator(&credentials).await?;
    needs_certificate(&caller)?;
    let GrantKey {
        user: Some(user),
        operation,
        storage,
    } = which.grant_key()?
    else {
        return Err(bad_request("Missing DN parameter"));
    };
    let revoked = RevokedGrants {
        user,
        operation,
        storage,
    };
    api.wish(&caller, SettingRequest::Revoke(revoked)).await?;
    Ok(no_content())
}
