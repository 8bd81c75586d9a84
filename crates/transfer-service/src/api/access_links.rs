//! `/api/v1/access-links`: short links to the live page. A login link signs its reader in once, as the person who made it; a
//! view link shows one job or transfer without names and paths.
//!
//! A link stands behind `#` in its URL, so that no server, log or `Referer` on the way sees it, and a login link is redeemed by
//! POST: a preview robot that fetches the URL does not use it up.

mod redaction;
mod view;

use super::body::BYTES_MAX;
use super::caller::{Caller, Credentials};
use super::extract::{Path, Query};
use super::link_grant::LinkGrant;
use super::query::blocking;
use super::{Api, ApiError, ApiResult};
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use penstock_clock::wall_clock;
use penstock_model::{JobId, ProblemCode, Timestamp, TransferId};
use penstock_persistence::access_links::{
    AccessLink, AccessLinkError, AccessLinkId, AccessLinkKind, AccessLinks, LinkEnd, LinkSeconds,
    LinkSecret, LinkState, NewAccessLink,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a login link can be redeemed, unless its maker says, and at most.
const LOGIN_LIFETIME: Duration = Duration::from_secs(10 * 60);
const LOGIN_LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long the session lasts that it gives.
const SESSION_LIFETIME: Duration = Duration::from_secs(8 * 3600);
const SESSION_LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// The same of a view link.
const VIEW_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const VIEW_LIFETIME_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Bytes of the body that redeems a link, and how long it may take to come.
const REDEMPTION_BYTES_MAX: usize = 1 << 10;
const REDEMPTION_TIME_MAX: Duration = Duration::from_secs(10);

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/access-links", get(list).post(make))
        .route("/api/v1/access-links/redeem", post(redeem))
        .route("/api/v1/access-links/view", get(view::show))
        .route("/api/v1/access-links/{id}", delete(revoke))
}

/// What a link opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    LivePage,
    Job(JobId),
    Transfer(TransferId),
}

impl Target {
    fn parse(text: &str) -> Option<Target> {
        match text.split_once('/') {
            Some(("", "")) => Some(Target::LivePage),
            Some(("job", id)) => super::wire::job_id(id).map(Target::Job),
            Some(("transfer", id)) => super::wire::transfer_id(id).map(Target::Transfer),
            Some(_) | None => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::LivePage => out.write_str("/"),
            Target::Job(id) => write!(out, "job/{id}"),
            Target::Transfer(id) => write!(out, "transfer/{}", id.0),
        }
    }
}

/// The body of a POST.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkForm {
    kind: FormKind,
    /// Of a view link: `job/ID` or `transfer/NUMBER`.
    opens: Option<String>,
    /// How long the link is valid.
    lifetime_seconds: Option<LinkSeconds>,
    /// Of a login link: how long its session lasts.
    session_seconds: Option<LinkSeconds>,
}

/// The kinds that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormKind {
    Login,
    View,
}

/// `POST /api/v1/access-links`. Long because each kind of link has its bounds here.
async fn make(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    let taken = api.take(&credentials, body, BYTES_MAX).await?;
    let caller = taken.caller;
    caller.refuse_session("make access links")?;
    let form: LinkForm = serde_json::from_slice(&taken.bytes).map_err(|why| {
        malformed(format!(
            "the body is not a valid access link request: {why}"
        ))
    })?;
    let (asked, max) = match form.kind {
        FormKind::Login => (
            form.lifetime_seconds.map_or(LOGIN_LIFETIME, Duration::from),
            LOGIN_LIFETIME_MAX,
        ),
        FormKind::View => (
            form.lifetime_seconds.map_or(VIEW_LIFETIME, Duration::from),
            VIEW_LIFETIME_MAX,
        ),
    };
    let now = wall_clock();
    let lifetime = asked.min(max);
    let (kind, target, session) = match form.kind {
        FormKind::Login => {
            if form.opens.is_some() {
                return Err(malformed(
                    "a login link opens the whole live page; leave out 'opens'",
                ));
            }
            let session = form
                .session_seconds
                .map_or(SESSION_LIFETIME, Duration::from);
            let left = caller.identity.expires.since(now);
            (
                AccessLinkKind::Login,
                Target::LivePage,
                session.min(SESSION_LIFETIME_MAX).min(left),
            )
        }
        FormKind::View => {
            let target = viewed(&api, &caller, form.opens.as_deref()).await?;
            (AccessLinkKind::View, target, Duration::ZERO)
        }
    };
    let expires = match kind {
        // What nobody could use any more is not worth a link.
        AccessLinkKind::Login => (now + lifetime).min(caller.identity.expires),
        AccessLinkKind::View | AccessLinkKind::Session | AccessLinkKind::Share => now + lifetime,
    };
    let user = caller.identity.user.to_string();
    let is_administrator = caller.may_configure_everything();
    let new = NewAccessLink {
        kind,
        owner: owner(&caller),
        user: user.clone(),
        opens: target.to_string(),
        access: match (kind, is_administrator) {
            (AccessLinkKind::Login, true) => "sign in as an administrator",
            (AccessLinkKind::Login, false) => "sign in",
            _ => "read, without names and paths",
        }
        .to_owned(),
        expires,
        grant: LinkGrant::of(&caller.identity, caller.token.as_deref(), session).bytes(),
    };
    let links = Arc::clone(&api.config.access_links);
    let made = blocking(caller.credential(), move || links.make(new, now)).await?;
    let (link, secret) = made?;
    let (id, kind_name, opens, until) = (&link.id, kind.name(), &link.opens, expires.to_fts());
    tracing::info!(%id, kind = kind_name, %user, %opens, until = %format_args!("{until}Z"), "made an access link");
    let mut told = row(&link, now);
    told["path"] = json!(format!("/live/#{kind_name}={}", secret.reveal()));
    told["lifetime_max_seconds"] = json!(max.as_secs());
    if kind == AccessLinkKind::Login {
        told["session_seconds"] = json!(session.as_secs());
    }
    Ok((StatusCode::CREATED, Json(told)).into_response())
}

/// What a view link is to show, if its maker sees it.
async fn viewed(api: &Api, caller: &Caller, opens: Option<&str>) -> Result<Target, ApiError> {
    let target = opens.and_then(Target::parse);
    let wanted = || malformed("a view link needs 'opens': \"job/ID\" or \"transfer/NUMBER\"");
    match target.ok_or_else(wanted)? {
        Target::LivePage => Err(wanted()),
        Target::Job(id) => {
            super::jobs::one_job(api, caller, &id.to_string()).await?;
            Ok(Target::Job(id))
        }
        Target::Transfer(id) => {
            super::transfers::one_transfer(api, caller, &id.0.to_string()).await?;
            Ok(Target::Transfer(id))
        }
    }
}

/// The body that redeems a login link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Redemption {
    secret: String,
}

/// `POST /api/v1/access-links/redeem`: without credentials, since the secret is one.
async fn redeem(State(api): State<Api>, body: Body) -> ApiResult {
    let read = timeout(REDEMPTION_TIME_MAX, to_bytes(body, REDEMPTION_BYTES_MAX)).await;
    let read = read.map_err(|_| {
        let limit = REDEMPTION_TIME_MAX.as_secs();
        malformed(format!("the request body did not arrive within {limit} s"))
    })?;
    let bytes = read.map_err(|_| {
        ApiError::new(
            ProblemCode::BodyTooLarge,
            format!("the request body is limited to {REDEMPTION_BYTES_MAX} bytes"),
        )
    })?;
    // The reader's error would repeat what was sent.
    let form: Redemption = serde_json::from_slice(&bytes).map_err(|_| {
        malformed("send {\"secret\": \"…\"}, with what follows '#login=' in the link")
    })?;
    let secret = LinkSecret::parse(AccessLinkKind::Login, form.secret.trim());
    let secret = secret.ok_or_else(|| of_login(LinkEnd::Unknown))?;
    let links = Arc::clone(&api.config.access_links);
    let config = Arc::clone(&api.config);
    let now = wall_clock();
    let found = links.find(AccessLinkKind::Login, &secret, now);
    let grant = LinkGrant::read(&found.map_err(of_login)?)?;
    config.refuse_untrusted(&grant).await?;
    let redeemed = tokio::task::spawn_blocking(move || {
        // A banned user learns that, and may use the link when the ban is lifted.
        config.refuse_banned(&grant.clone().identity(grant.expires))?;
        let link = match links.take(&secret, now) {
            Ok(opened) => opened.link,
            Err(AccessLinkError::Ended(end)) => return Err(of_login(end)),
            Err(other) => return Err(other.into()),
        };
        let session = Duration::from_secs(grant.session_seconds);
        let new = NewAccessLink {
            kind: AccessLinkKind::Session,
            owner: link.owner.clone(),
            user: link.user.clone(),
            opens: link.opens.clone(),
            access: link.access.clone(),
            expires: (now + session).min(grant.expires),
            grant: grant.bytes(),
        };
        let (made, secret) = links.make(new, now)?;
        let (id, user, session) = (&link.id, &link.user, &made.id);
        tracing::info!(%id, %user, %session, "a login link was used; its session begins");
        Ok::<_, ApiError>(json!({
            "token": secret.reveal(),
            "session": made.id.to_string(),
            "user": made.user,
            "access": made.access,
            "expires_at": rfc3339(made.expires),
        }))
    });
    let redeemed = redeemed.await.map_err(|error| {
        tracing::error!(%error, "redeeming a login link failed");
        ApiError::new(ProblemCode::InternalError, "the link could not be redeemed")
    })?;
    Ok(Json(redeemed?).into_response())
}

/// A login link that gives nothing (any more).
fn of_login(end: LinkEnd) -> ApiError {
    tracing::info!(%end, "refused a login link");
    let code = match end {
        LinkEnd::Unknown => ProblemCode::ResourceNotFound,
        LinkEnd::Expired(_) | LinkEnd::Used(_) | LinkEnd::Revoked(_) => {
            ProblemCode::AccessLinkEnded
        }
    };
    let how = "`penstock login-link` makes a new one";
    ApiError::new(code, format!("{end}; {how}")).told()
}

/// The query of a list.
#[derive(Debug, Deserialize)]
struct ListQuery {
    /// `true`: for administrators, those of all users.
    all: Option<bool>,
}

/// `GET /api/v1/access-links`: the newest first.
async fn list(
    State(api): State<Api>,
    credentials: Credentials,
    Query(query): Query<ListQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let is_of_all = query.all.unwrap_or(false);
    if is_of_all {
        caller.may_configure()?;
    }
    let owner = owner(&caller);
    let links = api
        .config
        .access_links
        .list((!is_of_all).then_some(owner.as_str()));
    let now = wall_clock();
    let rows: Vec<Value> = links.iter().map(|link| row(link, now)).collect();
    Ok(Json(rows).into_response())
}

/// `DELETE /api/v1/access-links/ID`: ends it at once; the own one, or for administrators anybody's.
async fn revoke(
    State(api): State<Api>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let nothing = || {
        ApiError::new(
            ProblemCode::ResourceNotFound,
            format!("you have no access link with the id \"{id}\""),
        )
    };
    let link: AccessLinkId = id.trim().parse().map_err(|_| nothing())?;
    let owner = (!caller.may_configure_everything()).then(|| owner(&caller));
    let (links, by) = (
        Arc::clone(&api.config.access_links),
        caller.identity.user.to_string(),
    );
    let (turn_of, now, who) = (caller.credential().clone(), wall_clock(), by.clone());
    let revoked = blocking(&turn_of, move || {
        links.revoke(&link, owner.as_deref(), &who, now)
    })
    .await??;
    let link = revoked.ok_or_else(nothing)?;
    let (id, kind, user) = (&link.id, link.kind.name(), &link.user);
    tracing::info!(%id, kind, %user, %by, "revoked an access link");
    Ok(Json(row(&link, now)).into_response())
}

/// A link without its secret, as it is told.
fn row(link: &AccessLink, now: Timestamp) -> Value {
    let (state, ended) = match link.end(now) {
        None | Some(LinkEnd::Unknown) => ("valid", None),
        Some(LinkEnd::Expired(at)) => ("expired", Some(at)),
        Some(LinkEnd::Used(at)) => ("used", Some(at)),
        Some(LinkEnd::Revoked(at)) => ("revoked", Some(at)),
    };
    json!({
        "id": link.id.to_string(),
        "kind": link.kind.name(),
        "user": link.user,
        "opens": link.opens,
        "access": link.access,
        "created_at": rfc3339(link.created),
        "expires_at": rfc3339(link.expires),
        "first_used_at": link.first_used.map(rfc3339),
        "last_used_at": link.last_used.map(rfc3339),
        "state": state,
        "ended_at": ended.map(rfc3339),
    })
}

/// What the audit tells of links, in the form of `/config/audit`: that they were made, first used and revoked, until a week
/// after their end.
pub(super) fn audit_rows(links: &AccessLinks) -> Vec<(Timestamp, Value)> {
    let mut rows = Vec::new();
    for link in links.list(None) {
        let told = json!({
            "access_link": link.id.to_string(),
            "kind": link.kind.name(),
            "opens": link.opens,
            "access": link.access,
        });
        let mut entry = |at: Timestamp, user: &str, action: &str| {
            let row = json!({
                "datetime": at.to_fts(),
                "dn": user,
                "action": action,
                "config": told.to_string(),
                "old": null,
                "new": told,
            });
            rows.push((at, row));
        };
        entry(link.created, &link.user, "make access link");
        if let Some(at) = link.first_used {
            entry(at, &link.user, "use access link");
        }
        if let LinkState::Revoked { at, by } = &link.state {
            entry(*at, by, "revoke access link");
        }
    }
    rows
}

/// By which links of one user are known, whatever credential they were made with.
fn owner(caller: &Caller) -> String {
    caller.credential().as_str().to_owned()
}

fn malformed(text: impl Into<String>) -> ApiError {
    ApiError::new(ProblemCode::RequestMalformed, text)
}

/// RFC 3339 §5.6, in UTC.
fn rfc3339(at: Timestamp) -> String {
    format!("{}Z", at.to_fts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_the_live_page_a_job_or_a_transfer_and_nothing_else() {
        let job = "0190a8b4-0000-7000-8000-000000000001";
        let check = |text: &str| {
            let target = Target::parse(text).expect(text);
            assert_eq!(target.to_string(), text);
        };
        check("/");
        check(&format!("job/{job}"));
        check("transfer/7");
        for bad in [
            "",
            "job",
            "job/",
            "job/../config",
            "transfer/x",
            "config/audit",
            "//",
            "job/x/y",
        ] {
            assert_eq!(Target::parse(bad), None, "{bad}");
        }
    }
}
