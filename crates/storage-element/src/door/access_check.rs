//! Who asks, and whether they may, and how a refusal is answered. Certificates are believed by
//! `protocol::x509`; bearer credentials are believed, and rights judged, by `rights`; a refusal is logged here,
//! once, with its reasons and without secrets.

use super::answer::Problem;
use super::archive_word::archive_word;
use super::caller::{Caller, Client};
use super::handler_context::Door;
use super::reserved;
use crate::rights::{BearerError, believe_bearer};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use penstock_clock::wall_clock;
use penstock_decide::Decision;
use penstock_decide::authorization::{AuthorizationReason, PathOperation, Verdict};
use penstock_model::{NamespacePath, ProblemCode};
use penstock_protocol::http1::server::Request;
use penstock_protocol::identity::{self, Identity};
use penstock_protocol::token::{ADMIN_SCOPE, TokenError};
use penstock_protocol::tpc::{request_id, scitag};
use std::borrow::Cow;
use std::net::SocketAddr;

impl Door {
    /// Finds out who asks: by the token if there is one, else by the certificate. A request with neither is
    /// anonymous; one with a bad token is refused, also where anonymous reading is allowed, because its
    /// sender should know. A certificate is often shown without being asked for, so a bad one matters only
    /// where somebody must be known.
    pub(super) async fn identify(
        &self,
        request: &Request,
        client: &Client,
        peer: SocketAddr,
    ) -> Result<Caller, Problem> {
        let mut caller = match bearer(request)? {
            Some(token) => Caller {
                has_bearer: true,
                ..self.bearer_of(request, &token, peer).await?
            },
            None => Caller::by_certificate(client, peer),
        };
        if let Some(identity) = &caller.identity
            && self.storage.settings().judge().bans(identity)
        {
            let user = &identity.user;
            tracing::warn!(%peer, %user, "refused a banned user");
            return Err(Problem::new(
                ProblemCode::UserBanned,
                format!("{user} is banned here; ask the site's administrators"),
            )
            .logged());
        }
        caller.copy = request_id(&request.headers).map(str::to_owned);
        caller.challenge = challenge_of(&request.headers);
        caller.archive_word = archive_word(&request.headers, caller.challenge.clone());
        client.is_sender(&caller);
        Ok(caller)
    }

    async fn bearer_of(
        &self,
        request: &Request,
        credential: &str,
        peer: SocketAddr,
    ) -> Result<Caller, Problem> {
        let settings = self.storage.settings();
        let keys = settings.macaroons.as_ref().map(|config| &config.keys);
        let verifier = &self.storage.verifier;
        let share = self.share_shown(credential).await?;
        let (share, grant) = share.map(|opened| (opened.link.id, opened.grant)).unzip();
        // What a share gives is a macaroon, which is believed as any other.
        let macaroon = grant.and_then(|grant| String::from_utf8(grant).ok());
        let credential = macaroon.as_deref().unwrap_or(credential);
        match believe_bearer(credential, keys, verifier, peer.ip(), wall_clock()).await {
            Ok(believed) => Ok(Caller {
                caveats: believed.caveats,
                attenuation: believed.attenuation,
                macaroon: believed.macaroon,
                share,
                ..Caller::new(Some(believed.identity), peer)
            }),
            Err(BearerError::Token(why @ TokenError::KeysUnavailable { .. })) => {
                tracing::warn!(%peer, %why, "a token cannot be verified");
                Err(Problem::busy(why.code(), why.to_string(), 30))
            }
            Err(why) => {
                let (method, path) = (&request.method, request.path());
                tracing::warn!(%peer, %method, path, %why, "refused a bearer credential");
                Err(Problem::new(why.code(), why.to_string()).logged())
            }
        }
    }

    /// Lets the caller do this, or says why not.
    pub(super) fn permit(
        &self,
        caller: &Caller,
        operation: &PathOperation,
        path: &NamespacePath,
    ) -> Result<(), Problem> {
        reserved::refuse(operation, path)?;
        let decision = self.judge(caller, operation, path);
        if decision.choice == Verdict::Allowed {
            return Ok(());
        }
        let peer = caller.peer;
        let Some(identity) = &caller.identity else {
            tracing::warn!(%peer, ?operation, %path, "refused a request: no credentials");
            let problem = caller.unknown(format!(
                "{path} needs a token or a certificate; send 'Authorization: Bearer', or connect with a \
                 client certificate"
            ));
            return Err(problem.logged());
        };
        let reasons: Vec<String> = decision.because.iter().map(ToString::to_string).collect();
        let (user, reasons) = (&identity.user, reasons.join("; "));
        tracing::warn!(%peer, %user, ?operation, %path, reasons, "refused a request");
        let text = match (operation, path.is_root()) {
            (PathOperation::Delete, true) => {
                "not allowed on /: the root directory cannot be deleted".to_owned()
            }
            _ => format!("not allowed on {path}: {reasons}"),
        };
        let problem = match caller.is_bound_by_scopes() {
            true => {
                let settings = self.storage.settings();
                let scope = settings.judge().needed_scope(identity, operation, path);
                Problem::new(ProblemCode::ScopeInsufficient, text).needing(scope)
            }
            false => Problem::new(ProblemCode::PermissionDenied, text),
        };
        Err(problem.logged())
    }

    /// Whoever holds the token of an administrator, as it was made: nothing that was made of it counts.
    pub(super) fn administrator<'a>(
        &self,
        is_tls: bool,
        caller: &'a Caller,
        what: &str,
    ) -> Result<&'a Identity, Problem> {
        if !is_tls {
            return Err(Problem::new(
                ProblemCode::EncryptionRequired,
                format!("{what} is available over TLS only; use the 'https' door"),
            ));
        }
        let needed = format!(
            "{what} is for administrators; send a token of this site's own issuer with the scope {ADMIN_SCOPE}"
        );
        let Some(identity) = caller.identity() else {
            return Err(caller.unknown(needed));
        };
        let settings = self.storage.settings();
        let own = settings.issuer.as_ref().map(|own| &own.trust.issuer);
        let is_admin = identity.method == identity::Method::Token
            && caller.macaroon().is_none()
            && Some(&identity.issuer) == own
            && identity.has_scope(ADMIN_SCOPE);
        match is_admin {
            true => Ok(identity),
            false => Err(Problem::new(ProblemCode::PermissionDenied, needed)),
        }
    }

    /// The same as a question, without a trace in the log.
    pub(super) fn allows(
        &self,
        caller: &Caller,
        operation: &PathOperation,
        path: &NamespacePath,
    ) -> bool {
        self.judge(caller, operation, path).choice == Verdict::Allowed
    }

    fn judge(
        &self,
        caller: &Caller,
        operation: &PathOperation,
        path: &NamespacePath,
    ) -> Decision<Verdict, AuthorizationReason> {
        let identity = caller.identity();
        let who = identity.map(|identity| (identity, &caller.attenuation));
        self.storage.settings().judge().decide(who, operation, path)
    }
}

/// The data challenge or activity that a request is part of: of SciTags, the number by which the networks count it.
pub(super) fn challenge_of(headers: &HeaderMap) -> Option<String> {
    scitag(headers).map(|number| format!("scitag:{number}"))
}

/// The bearer token of a request: from its header, or from the query `authz=` as XRootD clients send it.
fn bearer(request: &Request) -> Result<Option<Cow<'_, str>>, Problem> {
    let mut values = request.headers.get_all(AUTHORIZATION).iter();
    if let Some(value) = values.next() {
        // davfs2 sends what it was told to add twice with LOCK; the same again means nothing else.
        if values.any(|other| other != value) {
            let text = "the request has two different 'Authorization' headers";
            return Err(Problem::bad_request(text));
        }
        let token = value.to_str().ok().and_then(strip_scheme);
        return match token {
            Some(token) => Ok(Some(Cow::Borrowed(token))),
            None => Err(Problem::new(
                ProblemCode::TokenInvalid,
                "only 'Authorization: Bearer' is accepted here",
            )),
        };
    }
    let authz = request.query().and_then(|query| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix("authz="))
    });
    let Some(encoded) = authz else {
        return Ok(None);
    };
    let decoded = percent_encoding::percent_decode_str(encoded)
        .decode_utf8()
        .map_err(|_| {
            Problem::new(
                ProblemCode::TokenInvalid,
                "'authz' in the query is not UTF-8",
            )
        })?;
    Ok(Some(match strip_scheme(&decoded) {
        Some(token) => Cow::Owned(token.to_owned()),
        None => decoded,
    }))
}

/// What follows `Bearer ` (RFC 9110 §11.1: the scheme in any case).
fn strip_scheme(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once([' ', '\t'])?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start())
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};
    use penstock_protocol::http1::server::BodyLength;

    fn check<'a>(
        target: &str,
        shown: impl IntoIterator<Item = &'a str>,
        expected: Result<Option<&str>, u16>,
    ) {
        let mut headers = HeaderMap::new();
        for value in shown {
            let value = HeaderValue::from_str(value).expect("visible");
            headers.append(AUTHORIZATION, value);
        }
        let request = Request {
            method: http::Method::GET,
            target: target.to_owned(),
            headers,
            body: BodyLength::Empty,
        };
        let got = bearer(&request).map_err(|problem| problem.status.as_u16());
        assert_eq!(
            got.as_ref().map(Option::as_deref).map_err(|status| *status),
            expected
        );
    }

    #[test]
    fn a_token_comes_by_header_or_by_query() {
        check("/f", None, Ok(None));
        check("/f", Some("Bearer abc"), Ok(Some("abc")));
        check("/f", Some("bearer   abc"), Ok(Some("abc")));
        check("/f?x=1&authz=Bearer%20abc", None, Ok(Some("abc")));
        check("/f?authz=abc", None, Ok(Some("abc")));
        check("/f?authz=abc", Some("Bearer def"), Ok(Some("def")));
    }

    #[test]
    fn a_token_may_be_repeated_but_two_are_refused() {
        check("/f", ["Bearer abc", "Bearer abc"], Ok(Some("abc")));
        check("/f", ["Bearer abc", "Bearer def"], Err(400));
        check("/f", ["Bearer abc", "bearer abc"], Err(400));
        check("/f", ["Bearer abc", "Basic YTpi", "Bearer abc"], Err(400));
    }

    #[test]
    fn other_ways_to_say_who_one_is_are_refused() {
        check("/f", Some("Basic YTpi"), Err(401));
        check("/f", Some("Bearer"), Err(401));
    }
}
