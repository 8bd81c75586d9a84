//! `/config/cloud_storage`: storages that are reached with keys, and who may use which. Secrets are taken, sealed, and
//! never told again: where FTS shows them, null stands.

use super::fields::Fields;
use super::{ApiResult, bad_request, no_content, not_found};
use crate::api::caller::{Caller, Credentials};
use crate::api::extract::Path;
use crate::api::query::blocking;
use crate::api::{Api, ApiError};
use crate::cloud::KeySecret;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use penstock_clock::wall_clock;
use penstock_decide::settings::SettingRequest;
use penstock_model::{
    CloudHolder, CloudKey, CloudName, CloudStorage, CredentialId, ProblemCode, Setting,
    SettingChange, Settings, UserName, VoName,
};
use penstock_protocol::identity::Method;
use serde_json::{Value, json};
use uuid::Uuid;

/// Characters of an access key and of its secret, and of a session token.
const KEY_CHARS_MAX: usize = 255;
const TOKEN_CHARS_MAX: usize = 8192;
/// Characters of a region's name.
const REGION_CHARS_MAX: usize = 64;

/// A storage as FTS shows it, with the region beside.
pub(super) fn form(cloud: &CloudStorage) -> Value {
    json!({
        "storage_name": cloud.name.as_str(),
        "app_key": null,
        "app_secret": null,
        "service_api_url": null,
        "region": cloud.region,
    })
}

/// Keys as FTS shows them, without their secrets.
pub(super) fn key_form(key: &CloudKey) -> Value {
    let (user, vo) = match &key.holder {
        CloudHolder::User(user) => (Some(user.as_str()), None),
        CloudHolder::Vo(vo) => (None, Some(vo.as_str())),
    };
    json!({
        "storage_name": key.storage.as_str(),
        "user_dn": user,
        "vo_name": vo,
        "access_token": key.access_key,
        "access_token_secret": null,
        "request_token": null,
        "request_token_secret": null,
        "temporary": key.is_temporary,
    })
}

/// What of keys is in the record of changes: which secret it was is told by a name that means nothing.
pub(super) fn audit_form(key: &CloudKey) -> Value {
    let mut form = key_form(key);
    form["secret"] = json!(key.secret.as_str());
    form
}

fn named(text: &str) -> Result<CloudName, ApiError> {
    CloudName::parse(text).map_err(|why| bad_request(why.to_string()))
}

/// The storage that a path names, if it is known. The text is FTS's.
fn known<'a>(settings: &'a Settings, name: &str) -> Result<&'a CloudStorage, ApiError> {
    let name = CloudName::parse(name).ok();
    let found = name.and_then(|name| settings.cloud_storage(&name));
    found.ok_or_else(|| not_found("The storage does not exist"))
}

impl Api {
    /// FTS lets certificates only do this. A token of an administrator of this service proves as much.
    fn certified(caller: &Caller) -> Result<(), ApiError> {
        match caller.identity.method {
            Method::Certificate => Ok(()),
            Method::Token if caller.may_configure_everything() => Ok(()),
            Method::Token => Err(ApiError::new(
                ProblemCode::CertificateRequired,
                "Certificate required",
            )),
        }
    }

    /// Removes the secrets that changes have put out of use.
    async fn forget_secrets(
        &self,
        caller: &Caller,
        changes: &[SettingChange],
    ) -> Result<(), ApiError> {
        let secret = |setting: &Option<Setting>| match setting {
            Some(Setting::CloudKey(key)) => Some(key.secret.clone()),
            _ => None,
        };
        let outdated = changes.iter().filter_map(|change| {
            let before = secret(&change.before)?;
            (secret(&change.after).as_ref() != Some(&before)).then_some(before)
        });
        let outdated: Vec<CredentialId> = outdated.collect();
        let store = self.service.delegations().clone();
        let forget = move || store.forget_cloud_secrets(&outdated);
        let forgotten = blocking(caller.credential(), forget).await?;
        if let Err(error) = forgotten {
            tracing::warn!(%error, "secrets of cloud storages that are out of use are removed later");
        }
        Ok(())
    }
}

/// `GET /config/cloud_storage`.
pub(super) async fn list(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let (caller, settings) = api.operator(&credentials).await?;
    Api::certified(&caller)?;
    let rows: Vec<Value> = settings.cloud_storages().map(form).collect();
    Ok(Json(rows).into_response())
}

/// `POST /config/cloud_storage`: makes a storage known, or changes its region.
pub(super) async fn set(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    let (caller, mut fields) = api.form(&credentials, body).await?;
    Api::certified(&caller)?;
    let Some(name) = fields.text("storage_name")? else {
        return Err(bad_request("Missing storage name"));
    };
    let name = named(&name)?;
    // Keys of an application are Dropbox's; where S3 is reached, the URLs of files tell.
    for field in ["app_key", "app_secret", "service_api_url"] {
        if fields.text(field)?.is_some() {
            return Err(bad_request(format!(
                "{field} does not apply to {name}, so nothing was set; omit it"
            )));
        }
    }
    let region = fields.text("region")?;
    let is_plain = |text: &String| {
        text.len() <= REGION_CHARS_MAX
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if !region.as_ref().is_none_or(is_plain) {
        return Err(bad_request("region is not a valid name, such as eu-west-3"));
    }
    fields.end()?;
    let cloud = CloudStorage {
        name: name.clone(),
        region,
    };
    api.wish(&caller, SettingRequest::SetCloudStorage(cloud))
        .await?;
    Ok((StatusCode::CREATED, Json(json!(name.as_str()))).into_response())
}

/// `GET /config/cloud_storage/NAME`: who has keys for it.
pub(super) async fn show(
    State(api): State<Api>,
    credentials: Credentials,
    Path(name): Path<String>,
) -> ApiResult {
    let (caller, settings) = api.operator(&credentials).await?;
    Api::certified(&caller)?;
    let cloud = known(&settings, &name)?;
    let keys = settings
        .cloud_keys()
        .filter(|key| key.storage == cloud.name);
    Ok(Json(keys.map(key_form).collect::<Vec<_>>()).into_response())
}

/// `DELETE /config/cloud_storage/NAME`, and all keys for it.
pub(super) async fn remove(
    State(api): State<Api>,
    credentials: Credentials,
    Path(name): Path<String>,
) -> ApiResult {
    let (caller, settings) = api.operator(&credentials).await?;
    Api::certified(&caller)?;
    let name = known(&settings, &name)?.name.clone();
    let changes = api
        .wish(&caller, SettingRequest::RemoveCloudStorage(name))
        .await?;
    api.forget_secrets(&caller, &changes).await?;
    Ok(no_content())
}

/// `POST /config/cloud_storage/NAME`: keys for a user or a VO, in the place of any before.
pub(super) async fn grant(
    State(api): State<Api>,
    credentials: Credentials,
    Path(name): Path<String>,
    body: Body,
) -> ApiResult {
    let (caller, mut fields) = api.form(&credentials, body).await?;
    Api::certified(&caller)?;
    let storage = known(&api.service.settings(), &name)?.name.clone();
    let holder = holder(&mut fields, &api.config.own_issuer)?;
    let access_key = key_text(&mut fields, ["access_key", "access_token"])?;
    let secret_key = key_text(&mut fields, ["secret_key", "access_token_secret"])?;
    let (Some(access_key), Some(secret_key)) = (access_key, secret_key) else {
        return Err(bad_request("Missing access_key and/or secret_key"));
    };
    if access_key.contains(['/', ',']) {
        return Err(bad_request("access_key must not contain '/' or ','"));
    }
    // FTS has no field of its own for the token of temporary keys.
    let session_token = secret_text(&mut fields, "request_token", TOKEN_CHARS_MAX)?;
    if fields.text("request_token_secret")?.is_some() {
        return Err(bad_request(
            "request_token_secret does not apply to S3, so nothing was set; omit it",
        ));
    }
    fields.end()?;
    let key = CloudKey {
        storage,
        holder,
        access_key,
        secret: CredentialId::new(Uuid::new_v4().simple().to_string()),
        is_temporary: session_token.is_some(),
    };
    let secret = KeySecret {
        secret_key,
        session_token,
    };
    keep_secret(&api, &caller, &key.secret, &secret).await?;
    let answer = key_form(&key);
    match api
        .wish(&caller, SettingRequest::SetCloudKey(key.clone()))
        .await
    {
        Ok(changes) => api.forget_secrets(&caller, &changes).await?,
        Err(refused) => {
            let store = api.service.delegations().clone();
            let forget = move || store.forget_cloud_secrets(&[key.secret]);
            // Otherwise the sweep finds it.
            let _ = blocking(caller.credential(), forget).await?;
            return Err(refused);
        }
    }
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

async fn keep_secret(
    api: &Api,
    caller: &Caller,
    id: &CredentialId,
    secret: &KeySecret,
) -> Result<(), ApiError> {
    let bytes = serde_json::to_vec(secret).expect("texts can be written as JSON");
    let (store, id) = (api.service.delegations().clone(), id.clone());
    let keep = move || store.keep_cloud_secret(&id, &bytes, wall_clock());
    let kept = blocking(caller.credential(), keep).await?;
    Ok(kept?)
}

/// `DELETE /config/cloud_storage/NAME/HOLDER`: a user's or a VO's keys. As in FTS, also when there were none.
pub(super) async fn revoke(
    State(api): State<Api>,
    credentials: Credentials,
    Path((name, holder)): Path<(String, String)>,
) -> ApiResult {
    let (caller, settings) = api.operator(&credentials).await?;
    Api::certified(&caller)?;
    let name = known(&settings, &name)?.name.clone();
    let changes = api
        .wish(&caller, SettingRequest::RemoveCloudKeys(name, holder))
        .await?;
    api.forget_secrets(&caller, &changes).await?;
    Ok(no_content())
}

/// A user or a VO, one of them. A token's subject counts only with its issuer; alone, it is one of this site's own.
fn holder(fields: &mut Fields, own_issuer: &str) -> Result<CloudHolder, ApiError> {
    match (fields.text("user_dn")?, fields.text("vo_name")?) {
        (Some(user), None) => Ok(CloudHolder::User(UserName::new(
            match user.starts_with('/') || user.contains('#') {
                true => user,
                false => format!("{own_issuer}#{user}"),
            },
        ))),
        (None, Some(vo)) => Ok(CloudHolder::Vo(VoName::new(vo))),
        (Some(_), Some(_)) => Err(bad_request("Only one of user_dn or vo_name may be given")),
        (None, None) => Err(bad_request("One of user_dn or vo_name must be given")),
    }
}

/// One of the names that FTS gives a field.
fn key_text(fields: &mut Fields, names: [&str; 2]) -> Result<Option<String>, ApiError> {
    let [first, second] = names.map(|name| secret_text(fields, name, KEY_CHARS_MAX));
    match (first?, second?) {
        (Some(_), Some(_)) => Err(bad_request(format!(
            "{} and {} are two names for one field; give only one of them",
            names[0], names[1]
        ))),
        (first, second) => Ok(first.or(second)),
    }
}

/// A text that can stand in a header. The error does not repeat it.
fn secret_text(
    fields: &mut Fields,
    name: &str,
    chars_max: usize,
) -> Result<Option<String>, ApiError> {
    match fields.raw(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => {
            match text.len() <= chars_max && text.bytes().all(|byte| byte.is_ascii_graphic()) {
                true => Ok(Some(text)),
                false => Err(bad_request(format!(
                    "Field {name} may have {chars_max} characters of ASCII, and no blanks"
                ))),
            }
        }
        Some(_) => Err(bad_request(format!("Field {name} is expected to be str"))),
    }
}
