//! Shares: short links to a path of the storage element. `/.penstock/shares` makes, lists and ends them; `/s/SECRET` is what
//! people open.
//!
//! A share stands for a macaroon that never leaves the server, so its rights are judged as those of a macaroon are, and end when
//! the share is revoked. The secret stands for the macaroon as a bearer credential too: that is how pages hand it on to their
//! links. What follows `/s/SECRET` is a path below the shared one; the caveats of the macaroon decide, not the form of the URL.

use super::answer::{Problem, Reply, Response};
use super::caller::Caller;
use super::document_body::read_body;
use super::handler_context::{Call, Door};
use super::macaroon::{authority, issued};
use super::reserved::{OF_SHARE, OF_SHARES, ShareResource};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use penstock_clock::wall_clock;
use penstock_decide::authorization::PathOperation;
use penstock_model::share_link::share_secret;
use penstock_model::{NamespacePath, ProblemCode, Timestamp};
use penstock_persistence::access_links::{
    AccessLink, AccessLinkError, AccessLinkId, AccessLinkKind, LinkEnd, LinkSeconds, LinkSecret,
    NewAccessLink, OpenedLink,
};
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::identity::Identity;
use penstock_protocol::macaroon::{Caveat, Grant};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Before the secret in the URL of a share.
const PREFIX: &str = "/s/";
/// Bytes of the body that makes a share.
const BODY_BYTES_MAX: usize = 16 << 10;

/// What a share lets others do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShareAccess {
    /// View and download.
    Read,
    /// List names, and upload new files.
    Upload,
    /// List names.
    List,
}

impl ShareAccess {
    fn name(self) -> &'static str {
        match self {
            ShareAccess::Read => "read",
            ShareAccess::Upload => "upload",
            ShareAccess::List => "list",
        }
    }

    fn caveat(self) -> Caveat {
        let activities: &[u8] = match self {
            ShareAccess::Read => b"activity:DOWNLOAD,LIST",
            ShareAccess::Upload => b"activity:UPLOAD,LIST",
            ShareAccess::List => b"activity:LIST",
        };
        Caveat::parse(activities).expect("these are activities")
    }
}

/// The body of a POST.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShareForm {
    path: String,
    access: ShareAccess,
    /// As long as the site allows when absent.
    lifetime_seconds: Option<LinkSeconds>,
}

/// The request as the share in its URL means it. The secret goes into the query, so that no log, ledger or message has it: those
/// tell paths only. With the reason when the share opens nothing (any more), or when more is written behind the secret.
pub(super) fn resolved(door: &Door, request: Request) -> (Request, Option<LinkEnd>) {
    let path = request.path();
    let Some(named) = share_secret(path) else {
        return (request, None);
    };
    let (secret, rest) = (&path[named.start..named.end], &path[named.end..]);
    if share_secret(rest).is_some() {
        // Below a shared root another one would be told.
        return (without_secret(request), Some(LinkEnd::Unknown));
    }
    let secret = percent_decode_str(secret).decode_utf8_lossy();
    let Some(secret) = LinkSecret::parse(AccessLinkKind::Share, &secret) else {
        return (without_secret(request), Some(LinkEnd::Unknown));
    };
    let found = door
        .storage
        .shares
        .find(AccessLinkKind::Share, &secret, wall_clock());
    let opens = found.map(|opened| NamespacePath::parse(&opened.link.opens));
    let opens = match opens {
        Ok(Ok(opens)) => opens,
        Ok(Err(_)) => return (without_secret(request), Some(LinkEnd::Unknown)),
        Err(end) => return (without_secret(request), Some(end)),
    };
    let below = opens.to_encoded();
    let separator = if request.query().is_some() { "&" } else { "" };
    let target = format!(
        "{}{rest}?authz={}{separator}{}",
        below.trim_end_matches('/'),
        secret.reveal(),
        request.query().unwrap_or_default()
    );
    let target = match target.starts_with('?') {
        true => format!("/{target}"),
        false => target,
    };
    (Request { target, ..request }, None)
}

/// The request as logs may tell it.
fn without_secret(request: Request) -> Request {
    Request {
        target: PREFIX.to_owned(),
        ..request
    }
}

/// Why a share opens nothing.
pub(super) fn ended(end: LinkEnd) -> Problem {
    let code = match end {
        LinkEnd::Unknown => ProblemCode::PathNotFound,
        LinkEnd::Expired(_) | LinkEnd::Used(_) | LinkEnd::Revoked(_) => {
            ProblemCode::AccessLinkEnded
        }
    };
    Problem::new(code, end.to_string())
}

impl Door {
    /// The share whose secret is shown as a credential; `None`: that is no secret of a share.
    pub(super) async fn share_shown(
        &self,
        credential: &str,
    ) -> Result<Option<OpenedLink>, Problem> {
        let Some(secret) = LinkSecret::parse(AccessLinkKind::Share, credential) else {
            return Ok(None);
        };
        let now = wall_clock();
        let opened = self
            .storage
            .shares
            .find(AccessLinkKind::Share, &secret, now);
        let opened = opened.map_err(|end| match end {
            LinkEnd::Unknown => Problem::new(ProblemCode::TokenInvalid, end.to_string()),
            LinkEnd::Expired(_) | LinkEnd::Used(_) | LinkEnd::Revoked(_) => ended(end),
        })?;
        self.note_share_use(&opened.link, now).await;
        Ok(Some(opened))
    }

    /// Writes that a share is used, where that is due; a disk that fails keeps nobody from reading.
    async fn note_share_use(&self, link: &AccessLink, now: Timestamp) {
        let shares = Arc::clone(&self.storage.shares);
        if self.is_stand_in || !shares.is_use_due(link, now) {
            return;
        }
        let (id, path, user) = (&link.id, &link.opens, &link.user);
        let noted = id.clone();
        match tokio::task::spawn_blocking(move || shares.note_use(&noted, now)).await {
            Ok(Ok(true)) => tracing::info!(%id, %user, path, "a share is used for the first time"),
            Ok(Ok(false)) => {}
            Ok(Err(why)) => tracing::warn!(%id, %why, "the use of a share is not recorded"),
            Err(why) => tracing::error!(%id, %why, "recording the use of a share failed"),
        }
    }
}

/// `/.penstock/shares`.
pub(super) async fn answer(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    place: ShareResource,
) -> Result<Reply, Problem> {
    let is_tls = connection.is_tls();
    match (place, &call.request.method) {
        (ShareResource::All, &Method::POST) => {
            let owner = owner(is_tls, call.caller)?;
            let body = read_body(connection, "POST", BODY_BYTES_MAX).await?;
            make(door, call, &owner, &body).await
        }
        (ShareResource::All, &Method::GET | &Method::HEAD) => {
            let owner = owner(is_tls, call.caller)?;
            list(door, call, is_tls, &owner)
        }
        (ShareResource::One(id), &Method::DELETE) => {
            let owner = owner(is_tls, call.caller)?;
            revoke(door, call, is_tls, &owner, &id).await
        }
        (ShareResource::All, _) => {
            let text = "shares are listed (GET) and made (POST)";
            Err(Problem::method_of(OF_SHARES, text))
        }
        (ShareResource::One(_), _) => {
            let text = "a share is revoked (DELETE)";
            Err(Problem::method_of(OF_SHARE, text))
        }
    }
}

/// Under which name the caller's shares are kept. Who holds a macaroon or a share is not the one who made it.
fn owner(is_tls: bool, caller: &Caller) -> Result<String, Problem> {
    if !is_tls {
        return Err(Problem::new(
            ProblemCode::EncryptionRequired,
            "shares are managed over TLS only; use the 'https' door",
        ));
    }
    if caller.macaroon().is_some() {
        return Err(Problem::new(
            ProblemCode::PermissionDenied,
            "a shared link or macaroon cannot manage shares; use your own token or certificate",
        ));
    }
    let holder = caller.holder().ok_or_else(|| {
        caller.unknown(
            "sign in to manage shares: send a token, or connect with a certificate".to_owned(),
        )
    })?;
    Ok(holder.as_str().to_owned())
}

async fn make(door: &Door, call: &Call<'_>, owner: &str, body: &[u8]) -> Result<Reply, Problem> {
    let settings = door.storage.settings();
    let config = settings.macaroons.as_ref().ok_or_else(|| {
        Problem::new(
            ProblemCode::FeatureUnsupported,
            "this site makes no shares, because it has no macaroon key (storage.macaroon_keys)",
        )
    })?;
    let form: ShareForm = serde_json::from_slice(body).map_err(|why| {
        Problem::bad_request(format!("the body is not a valid share request: {why}"))
    })?;
    let path = NamespacePath::parse(&form.path)
        .map_err(|why| Problem::bad_request(format!("'{}' is not a path: {why}", form.path)))?;
    let identity = known(call.caller)?;
    check_shareable(door, call.caller, &path, form.access)?;
    let now = wall_clock();
    let asked = form
        .lifetime_seconds
        .map_or(config.validity_max, Duration::from);
    let left = identity.expires.since(now);
    let lifetime = asked.min(config.validity_max).min(left);
    let caveats = [Caveat::Path(path.clone()), form.access.caveat()];
    let grant = Grant {
        identity,
        caveats: &caveats,
        expires: now + lifetime,
    };
    let macaroon = issued(config, &authority(call.request)?, &grant)?;
    let new = NewAccessLink {
        kind: AccessLinkKind::Share,
        owner: owner.to_owned(),
        user: identity.user.to_string(),
        opens: path.to_string(),
        access: form.access.name().to_owned(),
        expires: now + lifetime,
        grant: macaroon.into_bytes(),
    };
    let shares = Arc::clone(&door.storage.shares);
    let made = changed(move || shares.make(new, now)).await?;
    let (link, secret) = made;
    let (id, user, seconds) = (&link.id, &identity.user, lifetime.as_secs());
    tracing::info!(%id, %user, %path, access = form.access.name(), seconds, "made a share");
    let mut told = row(&link, now);
    told["link"] = json!(format!("{PREFIX}{}", secret.reveal()));
    told["lifetime_seconds"] = json!(seconds);
    told["lifetime_max_seconds"] = json!(config.validity_max.as_secs());
    told["shortened_by"] = match (lifetime < asked, left < config.validity_max.min(asked)) {
        (false, _) => Value::Null,
        (true, true) => json!("credential"),
        (true, false) => json!("site"),
    };
    Ok(document(StatusCode::CREATED, &told).into())
}

/// Refuses to share what is not there, or what the caller may not do.
fn check_shareable(
    door: &Door,
    caller: &Caller,
    path: &NamespacePath,
    access: ShareAccess,
) -> Result<(), Problem> {
    let inside = path.child("name").unwrap_or_else(|_| path.clone());
    match access {
        ShareAccess::Read => door.permit(caller, &PathOperation::Read, path)?,
        ShareAccess::List => door.permit(caller, &PathOperation::List, path)?,
        ShareAccess::Upload => door.permit(caller, &PathOperation::Create, &inside)?,
    }
    match door.storage.namespace.lookup(path)? {
        None => Err(Problem::new(
            ProblemCode::PathNotFound,
            format!("{path} does not exist, so it cannot be shared; make it first"),
        )),
        Some(entry) if access == ShareAccess::Upload && !entry.is_directory() => {
            Err(Problem::bad_request(format!(
                "{path} is a file; only a directory can be shared for uploads"
            )))
        }
        Some(_) => Ok(()),
    }
}

/// Whose shares a query asks for, and of which path.
#[derive(Default)]
struct ShareQuery {
    path: Option<NamespacePath>,
    is_of_all: bool,
}

fn query_of(request: &Request) -> Result<ShareQuery, Problem> {
    let mut asked = ShareQuery::default();
    for (name, value) in url::form_urlencoded::parse(request.query().unwrap_or_default().as_bytes())
    {
        let wrong = || Problem::bad_request(format!("'{name}={value}' is not valid here"));
        match name.as_ref() {
            // A token, which the door has taken.
            "authz" => {}
            "path" => asked.path = Some(NamespacePath::parse(&value).map_err(|_| wrong())?),
            "all" => asked.is_of_all = value.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    Ok(asked)
}

fn list(door: &Door, call: &Call<'_>, is_tls: bool, owner: &str) -> Result<Reply, Problem> {
    let asked = query_of(call.request)?;
    if asked.is_of_all {
        door.administrator(is_tls, call.caller, "the list of all shares")?;
    }
    let now = wall_clock();
    let of = (!asked.is_of_all).then_some(owner);
    let path = asked.path.map(|path| path.to_string());
    let shares = door.storage.shares.list(of).into_iter();
    let shares = shares.filter(|link| path.as_ref().is_none_or(|path| link.opens == *path));
    let rows: Vec<Value> = shares.map(|link| row(&link, now)).collect();
    let settings = door.storage.settings();
    let max = settings
        .macaroons
        .as_ref()
        .map(|config| config.validity_max.as_secs());
    let told = json!({"shares": rows, "lifetime_max_seconds": max});
    Ok(document(StatusCode::OK, &told).into())
}

async fn revoke(
    door: &Door,
    call: &Call<'_>,
    is_tls: bool,
    owner: &str,
    id: &str,
) -> Result<Reply, Problem> {
    let nothing = || {
        Problem::new(
            ProblemCode::PathNotFound,
            format!("you have no share with the id '{id}'; `penstock share list` shows them"),
        )
    };
    let link: AccessLinkId = id.parse().map_err(|_| nothing())?;
    let is_administrator = door.administrator(is_tls, call.caller, "the share").is_ok();
    let of = (!is_administrator).then(|| owner.to_owned());
    let by = known(call.caller)?.user.to_string();
    let (shares, now, who) = (Arc::clone(&door.storage.shares), wall_clock(), by.clone());
    let revoked = changed(move || shares.revoke(&link, of.as_deref(), &who, now)).await?;
    // Whoever uses it now is cut off before the answer.
    door.storage.share_revocations.send_replace(());
    let link = revoked.ok_or_else(nothing)?;
    let (id, path, user) = (&link.id, &link.opens, &link.user);
    tracing::info!(%id, %user, path, %by, "revoked a share");
    Ok(document(StatusCode::OK, &row(&link, now)).into())
}

fn known(caller: &Caller) -> Result<&Identity, Problem> {
    caller
        .identity()
        .ok_or_else(|| caller.unknown("sign in to manage shares".to_owned()))
}

/// Changes what is stored, off the threads that serve.
async fn changed<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, AccessLinkError> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(change).await;
    let done = done.map_err(|why| Problem::new(ProblemCode::InternalError, why.to_string()))?;
    done.map_err(|why| match why {
        AccessLinkError::Ended(end) => ended(end),
        AccessLinkError::TooManyOfOwner
        | AccessLinkError::TooManyKeptOfOwner
        | AccessLinkError::TooMany => {
            Problem::new(ProblemCode::AccessLinksTooMany, why.to_string())
        }
        AccessLinkError::Sqlite { .. }
        | AccessLinkError::TooNew { .. }
        | AccessLinkError::OpenSsl(_) => {
            tracing::error!(%why, "the shares cannot be changed");
            let text =
                "the share cannot be stored now; try again, or ask the site's administrators";
            Problem::new(ProblemCode::NamespaceFailed, text)
        }
    })
}

/// A share without its secret, as it is told.
fn row(link: &AccessLink, now: Timestamp) -> Value {
    let (state, ended) = match link.end(now) {
        None | Some(LinkEnd::Unknown) => ("valid", None),
        Some(LinkEnd::Expired(at)) => ("expired", Some(at)),
        Some(LinkEnd::Used(at)) => ("used", Some(at)),
        Some(LinkEnd::Revoked(at)) => ("revoked", Some(at)),
    };
    json!({
        "id": link.id.to_string(),
        "user": link.user,
        "path": link.opens,
        "access": link.access,
        "created_at": rfc3339(link.created),
        "expires_at": rfc3339(link.expires),
        "first_used_at": link.first_used.map(rfc3339),
        "last_used_at": link.last_used.map(rfc3339),
        "state": state,
        "ended_at": ended.map(rfc3339),
    })
}

/// RFC 3339 §5.6, in UTC.
fn rfc3339(at: Timestamp) -> String {
    format!("{}Z", at.to_fts())
}

fn document(status: StatusCode, told: &Value) -> Response {
    let mut answer = Response::new(status)
        .with(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .with(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.body = told.to_string().into_bytes();
    answer
}
