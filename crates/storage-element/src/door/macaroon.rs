//! POST: makes macaroons of what a caller holds, as XRootD does at any path and at its token endpoint.
//!
//! Only over TLS, because the answer is a credential. A macaroon never outlives the credential that it was
//! asked with, and carries its rights and caveats, so that asking again cannot widen anything.

use super::answer::{Problem, Reply, Response};
use super::caller::Caller;
use super::handler_context::{Call, Door};
use crate::config::MacaroonConfig;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, StatusCode};
use penstock_clock::wall_clock;
use penstock_decide::authorization::PathOperation;
use penstock_model::{NamespacePath, ProblemCode, Timestamp};
use penstock_protocol::http1::server::{BodyLength, Connection, Request};
use penstock_protocol::identity::Identity;
use penstock_protocol::macaroon::{
    Caveat, Grant, REQUEST_BYTES_MAX, RequestedMacaroon, issue, parse_request, parse_token_form,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Where OAuth clients such as gfal2 ask (XRootD's path).
const TOKEN_ENDPOINT: &str = "/.oauth2/token";
/// RFC 8414 §3: the site's path may follow.
const DISCOVERY: &str = "/.well-known/oauth-authorization-server";

pub(super) async fn post(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let is_token_form = call.request.path() == TOKEN_ENDPOINT;
    let media_type = match is_token_form {
        true => "application/x-www-form-urlencoded",
        false => "application/macaroon-request",
    };
    if !has_media_type(&call.request.headers, media_type) {
        return Err(Problem::new(
            ProblemCode::MediaTypeUnsupported,
            format!("POST takes 'Content-Type: {media_type}' here, and makes a macaroon"),
        ));
    }
    let settings = door.storage.settings();
    let Some(config) = &settings.macaroons else {
        return Err(Problem::method(
            "this site issues no macaroons; use a token of a trusted issuer",
        ));
    };
    if !connection.is_tls() {
        return Err(Problem::new(
            ProblemCode::EncryptionRequired,
            "macaroons are issued over TLS only; ask at the 'https' door",
        ));
    }
    let (identity, inherited) = requester(door, call)?;
    let body = small_body(connection, &call.request.body).await?;
    let parsed = match is_token_form {
        true => parse_token_form(&body),
        false => parse_request(&body),
    };
    let wanted = parsed.map_err(|why| Problem::bad_request(why.to_string()))?;
    let validity = validity(&wanted, config, identity);
    let mut caveats = inherited.to_vec();
    if !is_token_form {
        caveats.push(Caveat::Path(call.path.clone()));
    }
    caveats.extend(wanted.caveats);
    let grant = Grant {
        identity,
        caveats: &caveats,
        expires: wall_clock() + validity,
    };
    let made = issued(config, &authority(call.request)?, &grant)?;
    let (user, path, seconds) = (&identity.user, call.path, validity.as_secs());
    tracing::info!(%user, %path, seconds, "issued a macaroon");
    let document = match is_token_form {
        true => json!({"access_token": made, "token_type": "bearer", "expires_in": seconds}),
        false => json!({"macaroon": made, "expires_in": seconds}),
    };
    // RFC 6749 §5.1: nobody on the way shall keep it.
    let answer = json_answer(&document).with(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer.into())
}

/// A macaroon of this grant, made at this site as the client calls it.
pub(super) fn issued(
    config: &MacaroonConfig,
    location: &str,
    grant: &Grant<'_>,
) -> Result<String, Problem> {
    issue(&config.keys, location, grant).map_err(|why| Problem::bad_request(why.to_string()))
}

/// This site as the client of a request calls it.
pub(super) fn authority(request: &Request) -> Result<String, Problem> {
    base_url(&request.headers)
}

/// What discovery answers when it is asked for; `None` when it is not, or when there is nothing to discover.
pub(super) fn discovery(door: &Door, request: &Request) -> Option<Response> {
    let rest = request.path().strip_prefix(DISCOVERY)?;
    let is_ours = rest.is_empty() || rest.starts_with('/');
    if !is_ours || door.storage.settings().macaroons.is_none() {
        return None;
    }
    let base = base_url(&request.headers).ok()?;
    let document = json!({
        "issuer": base,
        "token_endpoint": format!("{base}{TOKEN_ENDPOINT}"),
        "response_types_supported": ["none"],
        "grant_types_supported": ["client_credentials"],
    });
    Some(json_answer(&document))
}

fn json_answer(document: &Value) -> Response {
    let mut answer = Response::new(StatusCode::OK)
        .with(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.body = document.to_string().into_bytes();
    answer
}

/// Who asks, and the caveats they are under. Refused when nothing at all would be left at this path: a client
/// that gets a macaroon stops looking for a better credential.
fn requester<'a>(door: &Door, call: &Call<'a>) -> Result<(&'a Identity, &'a [Caveat]), Problem> {
    let Some(identity) = call.caller.identity() else {
        return Err(call.caller.unknown(
            "a macaroon is created from the caller's credentials; send a token, or connect with a certificate"
                .to_owned(),
        ));
    };
    if call.caller.share.is_some() {
        // It would outlive the share.
        return Err(Problem::new(
            ProblemCode::PermissionDenied,
            "a shared link cannot be turned into a macaroon; pass the link itself on",
        ));
    }
    let is_form = call.request.path() == TOKEN_ENDPOINT;
    if !is_form && !holds_anything(door, call.caller, call.path) {
        return Err(Problem::new(
            ProblemCode::PermissionDenied,
            format!(
                "you have no rights on {}, so you cannot pass any on",
                call.path
            ),
        ));
    }
    Ok((identity, call.caller.caveats()))
}

fn holds_anything(door: &Door, caller: &Caller, path: &NamespacePath) -> bool {
    let operations = [
        PathOperation::Stat,
        PathOperation::Read,
        PathOperation::List,
        PathOperation::Create,
        PathOperation::Delete,
    ];
    operations
        .iter()
        .any(|operation| door.allows(caller, operation, path))
}

/// As long as was asked for, at most what the site allows and what is left of the requester's credential.
fn validity(wanted: &RequestedMacaroon, config: &MacaroonConfig, identity: &Identity) -> Duration {
    let asked = wanted.validity.unwrap_or(config.validity_max);
    let ends = wanted.caveats.iter().filter_map(|caveat| match caveat {
        Caveat::Before(end) => Some(*end),
        Caveat::Path(_) | Caveat::Activities(_) | Caveat::Addresses(_) | Caveat::Name(_) => None,
    });
    let end = ends.fold(identity.expires, Timestamp::min);
    let left = Duration::from_secs(end.since(wall_clock()).as_secs());
    asked.min(config.validity_max).min(left)
}

fn has_media_type(headers: &HeaderMap, expected: &str) -> bool {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = value.and_then(|value| value.split(';').next());
    media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case(expected))
}

/// The whole body, or 413.
async fn small_body(connection: &mut Connection, body: &BodyLength) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        Problem::new(
            ProblemCode::BodyTooLarge,
            format!("a request for a macaroon is limited to {REQUEST_BYTES_MAX} bytes"),
        )
    };
    if matches!(body, BodyLength::Fixed(size) if *size > REQUEST_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let mut bytes = vec![0; REQUEST_BYTES_MAX + 1];
    let mut filled = 0;
    while filled < bytes.len() {
        let read = connection.read_body(&mut bytes[filled..]).await;
        match read.map_err(|why| Problem::bad_request(why.to_string()))? {
            0 => {
                bytes.truncate(filled);
                return Ok(bytes);
            }
            more => filled += more,
        }
    }
    Err(too_large())
}

/// This site as the client calls it. The name goes back to the client only, and decides nothing.
fn base_url(headers: &HeaderMap) -> Result<String, Problem> {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let is_authority = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    match !host.is_empty() && host.len() <= 300 && host.bytes().all(is_authority) {
        true => Ok(format!("https://{host}")),
        false => Err(Problem::bad_request(
            "the 'Host' header is not a host and port",
        )),
    }
}
