//! Handlers of `/delegation`: a client asks for a request, signs a proxy for it, and brings that back.
//!
//! A credential belongs to the identity that `whoami` names by `delegation_id`; nobody sees or replaces another's.

use super::body::BYTES_MAX;
use super::caller::{Caller, Credentials};
use super::extract::Path;
use super::query::blocking;
use super::{Api, ApiError, ApiResult};
use crate::error::ServiceError;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use penstock_model::{CredentialId, ProblemCode};
use penstock_persistence::delegations::{Delegation, DelegationError, Delegator, NewProxy};
use penstock_protocol::delegation::{CREDENTIAL_BYTES_MAX, ProxyError, ProxyRequest};
use penstock_protocol::identity::{Identity, Method};
use penstock_protocol::told::RepeatedErrors;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A job is not accepted when its proxy ends sooner, as in FTS.
const LIFETIME_LEFT_MIN: Duration = Duration::from_secs(3600);

/// `GET /delegation/ID`: what is delegated, or null.
pub(super) async fn show(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let id = own(&caller, &id)?;
    let found = delegation(&api, &caller, id).await?;
    Ok(Json(found.map_or(
        Value::Null,
        |found| json!({"termination_time": found.expires.to_fts(), "voms_attrs": found.attributes}),
    ))
    .into_response())
}

/// `GET /delegation/ID/request`: what the client shall sign. The same until it was answered, or an hour has passed.
pub(super) async fn request(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let id = own(&caller, &id)?;
    needs_certificate(&caller)?;
    // One key is made at a time: two for one identity would leave one of two clients with the wrong one, and each
    // costs a tenth of a second of a processor.
    let making = Arc::clone(&api.key_making).acquire_owned().await;
    let (service, of) = (api.service.clone(), caller.identity);
    let turn_of = of.delegation.clone();
    let (shown, now) = (id.clone(), penstock_clock::wall_clock());
    let pem = blocking(&turn_of, move || {
        // Held by the work, not by the request, whose client may leave.
        let _making = making;
        let delegations = service.delegations();
        let request = match delegations.open_request(&id, now)? {
            Some(secret) => ProxyRequest::from_secret(&secret).map_err(no_key)?,
            None => {
                let request = ProxyRequest::new().map_err(no_key)?;
                let secret = request.to_secret().map_err(no_key)?;
                delegations.keep_request(delegator(&of, &id), &secret, now)?;
                request
            }
        };
        request.to_pem().map_err(no_key)
    });
    let pem = pem.await??;
    let mut response = (StatusCode::OK, pem).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    if let Ok(shown) = HeaderValue::from_str(shown.as_str()) {
        headers.insert(HeaderName::from_static("x-delegation-id"), shown);
    }
    Ok(response)
}

/// `PUT /delegation/ID/credential`: the proxy that the client signed, with its chain. It takes the place of any before:
/// what runs goes on with the old one, what starts uses the new one.
pub(super) async fn deliver(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
    body: Body,
) -> ApiResult {
    let taken = api.take(&credentials, body, CREDENTIAL_BYTES_MAX).await?;
    let id = own(&taken.caller, &id)?;
    needs_certificate(&taken.caller)?;
    let (of, pem) = (taken.caller.identity, taken.bytes);
    let turn_of = of.delegation.clone();
    let (service, trusted) = (api.service.clone(), api.config.certificates.clone());
    let now = penstock_clock::wall_clock();
    let kept = blocking(&turn_of, move || {
        let delegations = service.delegations();
        let Some(secret) = delegations.request_key(&id, now)? else {
            return Err(ApiError::new(
                ProblemCode::DelegationInvalid,
                "No credential cache found: no request waits for this proxy; fetch the request and sign it",
            ));
        };
        let request = ProxyRequest::from_secret(&secret).map_err(no_key)?;
        let delegated = request.complete(&pem, &trusted, now).map_err(refused)?;
        let whose = delegated.certified.identity();
        check_owner(&whose, &of)?;
        let secret = delegated.identity.to_pem().map_err(no_key)?;
        let proxy = NewProxy {
            secret: &secret,
            expires: delegated.certified.expires,
            attributes: &whose.fqans,
        };
        delegations.keep_proxy(delegator(&of, &id), &proxy, now)?;
        let ends = delegated.certified.expires.to_fts();
        tracing::info!(user = %of.user, %id, %ends, "a proxy was delegated");
        Ok(())
    });
    kept.await??;
    Ok(StatusCode::CREATED.into_response())
}

/// `DELETE /delegation/ID`.
pub(super) async fn forget(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let id = own(&caller, &id)?;
    let service = api.service.clone();
    let (user, shown) = (&caller.identity.user, id.clone());
    let forget = move || service.delegations().forget(&id);
    match blocking(caller.credential(), forget).await?? {
        true => {
            tracing::info!(%user, id = %shown, "a delegation was deleted");
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        false => Err(ApiError::new(
            ProblemCode::ResourceNotFound,
            format!("nothing is delegated under {shown}"),
        )),
    }
}

/// `POST /delegation/ID/voms`: FTS would fetch attributes of a VO for the delegated proxy. Attributes that the service
/// fetched in a user's name would be another identity's than the user's; here they come with the proxy.
pub(super) async fn add_attributes(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
    body: Body,
) -> ApiResult {
    let taken = api.take(&credentials, body, BYTES_MAX).await?;
    let id = own(&taken.caller, &id)?;
    needs_certificate(&taken.caller)?;
    if serde_json::from_slice::<Vec<String>>(&taken.bytes).is_err() {
        return Err(ApiError::new(
            ProblemCode::RequestMalformed,
            "Invalid VOMS request: it must be a list of texts",
        ));
    }
    if delegation(&api, &taken.caller, id.clone()).await?.is_none() {
        return Err(ApiError::new(
            ProblemCode::ResourceNotFound,
            format!("nothing is delegated under {id}"),
        ));
    }
    let refused = ApiError::new(
        ProblemCode::FeatureUnsupported,
        "this service does not fetch VOMS attributes; create a proxy that has them (voms-proxy-init) and delegate again",
    );
    // As FTS answers when a VOMS server gives none.
    Err(refused.with_status(StatusCode::FAILED_DEPENDENCY))
}

/// The delegation that a job of this caller would use. Errors: 419, FTS's word for one that is missing or ends too soon.
pub(super) async fn for_a_job(api: &Api, caller: &Caller) -> Result<CredentialId, ApiError> {
    let id = caller.identity.delegation.clone();
    let Some(found) = delegation(api, caller, id.clone()).await? else {
        return Err(ApiError::new(
            ProblemCode::DelegationMissing,
            format!(
                "No delegation found for \"{}\"; run fts-rest-delegate, or submit with a token",
                caller.identity.user
            ),
        ));
    };
    let now = penstock_clock::wall_clock();
    let ends = found.expires.to_fts();
    if found.expires <= now {
        return Err(ApiError::new(
            ProblemCode::DelegationExpired,
            format!("The delegated credentials expired at {ends}Z; delegate again"),
        ));
    }
    if found.expires.since(now) < LIFETIME_LEFT_MIN {
        return Err(ApiError::new(
            ProblemCode::DelegationExpired,
            format!(
                "The delegated credentials have less than one hour left: they expire at {ends}Z; delegate again"
            ),
        ));
    }
    Ok(id)
}

/// What this caller has delegated under this name; nobody else's, should they share it.
async fn delegation(
    api: &Api,
    caller: &Caller,
    id: CredentialId,
) -> Result<Option<Delegation>, ApiError> {
    let service = api.service.clone();
    let read = move || service.delegations().delegation(&id);
    let found = blocking(caller.credential(), read).await??;
    Ok(found.filter(|found| found.user == caller.identity.user))
}

fn own(caller: &Caller, id: &str) -> Result<CredentialId, ApiError> {
    match id == caller.identity.delegation.as_str() {
        true => Ok(caller.identity.delegation.clone()),
        false => Err(ApiError::new(
            ProblemCode::PermissionDenied,
            format!(
                "this delegation id belongs to another user; yours is {}",
                caller.identity.delegation
            ),
        )),
    }
}

fn needs_certificate(caller: &Caller) -> Result<(), ApiError> {
    caller.refuse_session("delegate credentials")?;
    match caller.identity.method {
        Method::Certificate => Ok(()),
        // FTS's words.
        Method::Token => Err(ApiError::new(
            ProblemCode::CertificateRequired,
            "Certificate required",
        )),
    }
}

fn delegator<'a>(of: &'a Identity, id: &'a CredentialId) -> Delegator<'a> {
    Delegator { id, user: &of.user }
}

/// The proxy must speak for the very identity that brings it, attributes included.
fn check_owner(whose: &Identity, of: &Identity) -> Result<(), ApiError> {
    if whose.delegation == of.delegation && whose.user == of.user {
        return Ok(());
    }
    let text = match whose.user == of.user {
        true => "the proxy does not have the attributes of the credential that you connect with"
            .to_owned(),
        false => format!(
            "the proxy belongs to {}, but you are {}",
            whose.user, of.user
        ),
    };
    Err(could_not_process(&text))
}

fn refused(why: ProxyError) -> ApiError {
    match why {
        ProxyError::OpenSsl(why) => no_key(why),
        ProxyError::Malformed(_)
        | ProxyError::WrongKey
        | ProxyError::NoProxy
        | ProxyError::Certificate(_)
        | ProxyError::Identity(_) => could_not_process(&why.to_string()),
    }
}

fn could_not_process(why: &str) -> ApiError {
    tracing::warn!(%why, "a delivered proxy was refused");
    ApiError::new(
        ProblemCode::DelegationInvalid,
        format!("Could not process the proxy: {why}"),
    )
}

fn no_key(why: openssl::error::ErrorStack) -> ApiError {
    tracing::error!(%why, "OpenSSL failed");
    ApiError::new(
        ProblemCode::InternalError,
        "the key could not be created or read; see the service's log",
    )
}

impl From<DelegationError> for ApiError {
    fn from(error: DelegationError) -> ApiError {
        static TOLD: LazyLock<RepeatedErrors> = LazyLock::new(RepeatedErrors::default);
        if let Some(passed_over) = TOLD.tells(&error.to_string()) {
            tracing::error!(%error, passed_over, "a delegation could not be read or kept");
        }
        ApiError::from(ServiceError::Delegations(error))
    }
}
