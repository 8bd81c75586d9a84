//! Handlers of `/ban`: operators keep storage elements and users away, and let them back.
//!
//! Whoever administers one VO bans for that VO's transfers; a ban for all of them, and of users, needs the right over the
//! whole service. The engine imposes bans; here they are read, answered and logged.

use super::body::BYTES_MAX;
use super::caller::{Caller, Credentials};
use super::extract::Query;
use super::query::{blocking, is_plain_host, without_port};
use super::{Api, ApiError, ApiResult, wire};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use penstock_decide::service_rights::Operation;
use penstock_model::{
    Ban, BanChange, BanEffect, BanTarget, JobId, ProblemCode, StorageBan, StorageId, UserBan,
    UserName, VoName,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Stands for all VOs, as in FTS.
const ALL_VOS: &str = "*";
/// What operators may say of a ban.
const MESSAGE_BYTES_MAX: usize = 1024;
/// What the subject of a user has at most.
const USER_BYTES_MAX: usize = 4096;

/// `POST /ban/se`: the ids of the jobs that it concerned.
pub(super) async fn ban_storage(
    State(api): State<Api>,
    credentials: Credentials,
    body: Body,
) -> ApiResult {
    let taken = api.take(&credentials, body, BYTES_MAX).await?;
    let caller = taken.caller;
    let asked = object(&taken.bytes)?;
    let storage = text(&asked, "storage")?.ok_or_else(|| bad("Missing storage parameter"))?;
    let storage = storage_id(storage)?;
    let vo = reach(&caller, text(&asked, "vo")?)?;
    let effect = effect(&asked)?;
    let now = penstock_clock::wall_clock();
    let patience = match effect {
        BanEffect::Cancel => None,
        BanEffect::Wait | BanEffect::WaitAndAccept => timeout(&asked)?,
    };
    let by = caller.identity.user;
    let shown = (
        storage.clone(),
        vo.clone().map_or(ALL_VOS.into(), |vo| vo.to_string()),
    );
    let ban = Ban::Storage(StorageBan {
        storage,
        vo,
        effect,
        cancel_at: patience.map(|patience| now + patience),
        since: now,
        by: by.clone(),
        message: message(&asked)?,
    });
    let jobs = api.service.ban(ban).await?;
    let (storage, vo, effect) = (shown.0, shown.1, effect.fts_name());
    tracing::warn!(%storage, %vo, effect, %by, jobs = jobs.len(), "a storage element was banned");
    Ok(ids(&jobs))
}

/// The query of `DELETE /ban/se`.
#[derive(Debug, Deserialize)]
pub(super) struct LiftStorageBanQuery {
    storage: Option<String>,
    vo: Option<String>,
}

/// `DELETE /ban/se?storage=`: 204, also when it was not banned.
pub(super) async fn lift_storage(
    State(api): State<Api>,
    credentials: Credentials,
    Query(query): Query<LiftStorageBanQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let storage = query.storage.filter(|text| !text.is_empty());
    let storage = storage_id(&storage.ok_or_else(|| bad("Missing storage parameter"))?)?;
    let vo = reach(&caller, query.vo.as_deref())?;
    let by = caller.identity.user;
    let target = BanTarget::storage(&storage, vo);
    if api.service.lift(target, by.clone()).await? {
        tracing::warn!(%storage, %by, "the ban of a storage element was lifted");
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /ban/se`: those that concern the caller's VO, or all that the caller administers.
pub(super) async fn banned_storages(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let concerns = |ban: &StorageBan| match &ban.vo {
        None => true,
        Some(vo) => *vo == caller.vo || caller.rights.cover(Operation::Config, vo),
    };
    let bans = bans(&api, &caller).await?;
    let shown: Vec<Value> = bans
        .iter()
        .filter_map(|ban| match ban {
            Ban::Storage(ban) if concerns(ban) => Some(storage_form(ban)),
            Ban::Storage(_) | Ban::User(_) => None,
        })
        .collect();
    Ok(Json(shown).into_response())
}

/// `POST /ban/dn`: the ids of the jobs that it canceled.
pub(super) async fn ban_user(
    State(api): State<Api>,
    credentials: Credentials,
    body: Body,
) -> ApiResult {
    let taken = api.take(&credentials, body, BYTES_MAX).await?;
    let caller = taken.caller;
    caller.may_configure()?;
    let asked = object(&taken.bytes)?;
    let user = text(&asked, "user_dn")?.ok_or_else(|| bad("Missing dn parameter"))?;
    let user = user_name(user)?;
    let by = caller.identity.user;
    if user == by {
        return Err(ApiError::new(
            ProblemCode::SelfBan,
            "The user tried to ban (her|his)self",
        ));
    }
    let ban = Ban::User(UserBan {
        user: user.clone(),
        since: penstock_clock::wall_clock(),
        by: by.clone(),
        message: message(&asked)?,
    });
    let jobs = api.service.ban(ban).await?;
    tracing::warn!(%user, %by, jobs = jobs.len(), "a user was banned");
    Ok(ids(&jobs))
}

/// The query of `DELETE /ban/dn`.
#[derive(Debug, Deserialize)]
pub(super) struct LiftUserBanQuery {
    user_dn: Option<String>,
}

/// `DELETE /ban/dn?user_dn=`: 204, also when nobody of that name was banned.
pub(super) async fn lift_user(
    State(api): State<Api>,
    credentials: Credentials,
    Query(query): Query<LiftUserBanQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    caller.may_configure()?;
    let user = query.user_dn.filter(|text| !text.is_empty());
    let user = user_name(&user.ok_or_else(|| bad("Missing user_dn parameter"))?)?;
    let by = caller.identity.user;
    let target = BanTarget::User(user.clone());
    if api.service.lift(target, by.clone()).await? {
        tracing::warn!(%user, %by, "the ban of a user was lifted");
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /ban/dn`: for administrators, because it names people.
pub(super) async fn banned_users(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    caller.may_read_configuration()?;
    let bans = bans(&api, &caller).await?;
    let shown: Vec<Value> = bans
        .iter()
        .filter_map(|ban| match ban {
            Ban::User(ban) => Some(user_form(ban)),
            Ban::Storage(_) => None,
        })
        .collect();
    Ok(Json(shown).into_response())
}

/// A change in the form of `/config/audit`.
pub(super) fn audit_row(change: &BanChange) -> Value {
    let form = |ban: &Ban| match ban {
        Ban::Storage(ban) => storage_form(ban),
        Ban::User(ban) => user_form(ban),
    };
    let (before, after) = (
        change.before.as_ref().map(form),
        change.after.as_ref().map(form),
    );
    let config = after.clone().or(before.clone()).unwrap_or_default();
    json!({
        "datetime": change.at.to_fts(),
        "dn": change.by.as_str(),
        "action": change.action(),
        "config": config.to_string(),
        "old": before,
        "new": after,
    })
}

async fn bans(api: &Api, caller: &Caller) -> Result<Vec<Ban>, ApiError> {
    let reader = api.service.reader().clone();
    Ok(blocking(caller.credential(), move || reader.bans()).await??)
}

fn storage_form(ban: &StorageBan) -> Value {
    json!({
        "se": ban.storage.as_str(),
        "vo": ban.vo.as_ref().map_or(ALL_VOS, VoName::as_str),
        "status": ban.effect.fts_name(),
        "addition_time": ban.since.to_fts(),
        "admin_dn": ban.by.as_str(),
        "message": ban.message,
        "cancel_time": ban.cancel_at.map(|at| at.to_fts()),
    })
}

fn user_form(ban: &UserBan) -> Value {
    json!({
        "dn": ban.user.as_str(),
        "addition_time": ban.since.to_fts(),
        "admin_dn": ban.by.as_str(),
        "message": ban.message,
    })
}

/// For which VO a ban is: as asked for, else for all where the caller may do so, else for the caller's own. FTS takes
/// the caller's own in any case. `None`: all.
fn reach(caller: &Caller, asked: Option<&str>) -> Result<Option<VoName>, ApiError> {
    match asked.filter(|vo| !vo.is_empty()) {
        Some(ALL_VOS) => {
            caller.may_configure()?;
            Ok(None)
        }
        Some(vo) => {
            let vo = VoName::new(vo);
            caller.may_configure_vo(&vo)?;
            Ok(Some(vo))
        }
        None if caller.rights.cover_everything(Operation::Config) => Ok(None),
        None => {
            caller.may_configure_vo(&caller.vo)?;
            Ok(Some(caller.vo.clone()))
        }
    }
}

fn effect(asked: &Map<String, Value>) -> Result<BanEffect, ApiError> {
    let accepts = match asked.get("allow_submit") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(accepts)) => *accepts,
        Some(_) => return Err(bad("'allow_submit' must be true or false")),
    };
    let status = text(asked, "status")?.unwrap_or("cancel");
    match (status.to_ascii_uppercase().as_str(), accepts) {
        ("CANCEL", false) => Ok(BanEffect::Cancel),
        ("CANCEL", true) => Err(bad("allow_submit and status = CANCEL can not be combined")),
        ("WAIT", false) => Ok(BanEffect::Wait),
        ("WAIT", true) => Ok(BanEffect::WaitAndAccept),
        _ => Err(bad("status can only be cancel or wait")),
    }
}

/// Seconds, also as text, which FTS's command line sends. 0: none.
fn timeout(asked: &Map<String, Value>) -> Result<Option<Duration>, ApiError> {
    let seconds = match asked.get("timeout") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(seconds)) => {
            wire::whole(seconds).and_then(|whole| whole.try_into().ok())
        }
        Some(Value::String(seconds)) => seconds.trim().parse().ok(),
        Some(_) => None,
    };
    // A hundred years, so that sums of times stay in their range.
    let seconds = seconds.filter(|seconds| *seconds < 100 * 365 * 86_400);
    let seconds = seconds.ok_or_else(|| bad("'timeout' must be a number of seconds"))?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

fn message(asked: &Map<String, Value>) -> Result<String, ApiError> {
    let message = text(asked, "message")?.unwrap_or_default();
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(bad(format!(
            "'message' is longer than {MESSAGE_BYTES_MAX} bytes"
        )));
    }
    // It stands in lines of lists, logs and the audit, and must make no other one.
    match message.contains(char::is_control) {
        true => Err(bad(
            "'message' must be one line of text without control characters",
        )),
        false => Ok(message.to_owned()),
    }
}

fn storage_id(text: &str) -> Result<StorageId, ApiError> {
    let url = url::Url::parse(text).ok();
    let named = url.filter(|url| {
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
        url.host_str().is_some_and(is_plain_host) && url.username().is_empty() && is_bare
    });
    match named {
        Some(_) => Ok(StorageId::new(without_port(text))),
        None => Err(bad(format!(
            "'{}' is not a storage element: write scheme and host, such as https://se.example.org",
            text.chars().take(200).collect::<String>()
        ))),
    }
}

fn user_name(text: &str) -> Result<UserName, ApiError> {
    // Subjects of tokens may hold anything, and whoever has such a one can be banned as well.
    match text.len() <= USER_BYTES_MAX {
        true => Ok(UserName::new(text)),
        false => Err(bad(format!(
            "'user_dn' is longer than {USER_BYTES_MAX} bytes"
        ))),
    }
}

fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    serde_json::from_slice(body).map_err(|_| bad("Malformed input"))
}

/// `None` when it is absent, null or empty.
fn text<'a>(asked: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, ApiError> {
    match asked.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(bad(format!("'{key}' must be text"))),
    }
}

fn bad(text: impl Into<String>) -> ApiError {
    ApiError::new(ProblemCode::RequestMalformed, text)
}

fn ids(jobs: &[JobId]) -> Response {
    let ids: Vec<String> = jobs.iter().map(JobId::to_string).collect();
    Json(ids).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Map<String, Value> {
        object(text.as_bytes()).expect("an object")
    }

    #[test]
    fn what_fts_clients_send_is_understood_and_nothing_else() {
        let check = |text: &str, expected: Result<BanEffect, &str>| {
            let found = effect(&asked(text)).map_err(|why| why.problem.message);
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        };
        check("{}", Ok(BanEffect::Cancel));
        check(r#"{"status":"WAIT"}"#, Ok(BanEffect::Wait));
        check(
            r#"{"status":"wait","allow_submit":true}"#,
            Ok(BanEffect::WaitAndAccept),
        );
        check(
            r#"{"status":"cancel","allow_submit":true}"#,
            Err("allow_submit and status = CANCEL can not be combined"),
        );
        check(
            r#"{"status":"halt"}"#,
            Err("status can only be cancel or wait"),
        );
        check(r#"{"status":7}"#, Err("'status' must be text"));
        check(
            r#"{"allow_submit":"no"}"#,
            Err("'allow_submit' must be true or false"),
        );
    }

    #[test]
    fn a_message_is_one_line() {
        let said = |text: &str| message(&asked(&json!({ "message": text }).to_string()));
        assert_eq!(
            said("disks are moved").ok().as_deref(),
            Some("disks are moved")
        );
        for bad in ["x\n2026  /CN=chief", "x\r", "\u{1b}[2J", "\u{85}"] {
            let why = said(bad).expect_err(bad).problem.message;
            assert!(why.starts_with("'message' must be one line"), "{why}");
        }
        assert!(said(&"x".repeat(MESSAGE_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn timeouts_come_as_numbers_and_as_text() {
        let check = |text: &str, expected: Option<Option<u64>>| {
            let found = timeout(&asked(text)).ok();
            let expected = expected.map(|seconds| seconds.map(Duration::from_secs));
            assert_eq!(found, expected, "{text}");
        };
        check("{}", Some(None));
        check(r#"{"timeout":0}"#, Some(None));
        check(r#"{"timeout":"60"}"#, Some(Some(60)));
        check(r#"{"timeout":60.0}"#, Some(Some(60)));
        check(r#"{"timeout":60}"#, Some(Some(60)));
        check(r#"{"timeout":-1}"#, None);
        check(r#"{"timeout":1e300}"#, None);
        check(r#"{"timeout":"18446744073709551615"}"#, None);
        check(r#"{"timeout":[1]}"#, None);
    }

    #[test]
    fn a_storage_element_is_named_by_scheme_and_host() {
        let check = |text: &str, expected: Option<&str>| {
            let found = storage_id(text).ok();
            let found = found.as_ref().map(StorageId::as_str);
            assert_eq!(found, expected, "{text}");
        };
        check("https://SE.org:8443", Some("https://se.org"));
        check("davs://se.org/", Some("davs://se.org"));
        check("https://[::1]:1", Some("https://[::1]"));
        for text in [
            "se.org",
            "*",
            "https://se.org/path",
            "https://a@se.org",
            "https://",
            "mailto:a@b",
            "root://*.se.org",
        ] {
            check(text, None);
        }
    }
}
