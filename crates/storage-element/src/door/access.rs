//! Who asks, and whether they may: what the wire shows, and how a refusal is answered. Certificates are believed by
//! `protocol::x509`; bearer credentials are believed, and rights judged, by `rights`; a refusal is logged here,
//! once, with its reasons and without secrets.

use super::answer::Problem;
use super::{Door, reserved};
use crate::rights::{BearerError, believe_bearer};
use http::StatusCode;
use http::header::AUTHORIZATION;
use parking_lot::{Mutex, MutexGuard};
use penstock_clock::wall_clock;
use penstock_decide::Decision;
use penstock_decide::admission::Requester;
use penstock_decide::authorization::{AuthorizationReason, Operation, Verdict};
use penstock_model::{Attenuation, NamespacePath, UserName, VoName};
use penstock_protocol::connections::client_of;
use penstock_protocol::http1::server::Request;
use penstock_protocol::identity::{Identity, Method};
use penstock_protocol::macaroon::Caveat;
use penstock_protocol::token::TokenError;
use penstock_protocol::x509::{CertificateError, Certified};
use std::net::SocketAddr;

/// Who is at the other end of a connection.
pub(super) struct Client {
    certificate: Certificate,
    /// Who has sent the request that is being answered, by whatever credential; `None` until that is known.
    asks: Mutex<Option<Identity>>,
}

/// What the certificate of a connection says.
enum Certificate {
    /// There is none, or the door has no TLS.
    Absent,
    Known(Identity),
    /// It is not believed, for this reason.
    Doubtful(String),
}

impl Client {
    /// Tells the log, once per connection, about attributes that do not count.
    pub(super) fn by_certificate(
        shown: Option<Result<Certified, CertificateError>>,
        peer: SocketAddr,
    ) -> Client {
        if let Some(Ok(certified)) = &shown
            && let Some(why) = certified.attributes.refusal()
        {
            let user = &certified.subject;
            tracing::warn!(%peer, user, %why, "attributes of a VO do not count");
        }
        Client {
            certificate: shown.map_or(Certificate::Absent, |it| Certificate::judged(it, peer)),
            asks: Mutex::default(),
        }
    }

    /// From now on its certificate says this.
    pub(super) fn is_now(&mut self, judged: Result<Certified, CertificateError>, peer: SocketAddr) {
        self.certificate = Certificate::judged(judged, peer);
    }

    /// Whether it has shown a certificate that does not count.
    pub(super) fn is_doubtful(&self) -> bool {
        matches!(self.certificate, Certificate::Doubtful(_))
    }

    /// A new request begins, of which nobody knows yet who sent it.
    pub(super) fn begins(&self) {
        *self.lock_asks() = None;
    }

    /// Who has sent the request that is being answered, if that is known.
    pub(super) fn asks(&self) -> Option<Identity> {
        self.lock_asks().clone()
    }

    fn lock_asks(&self) -> MutexGuard<'_, Option<Identity>> {
        self.asks.lock()
    }
}

impl Certificate {
    /// Tells the log about one that is not believed.
    fn judged(judged: Result<Certified, CertificateError>, peer: SocketAddr) -> Certificate {
        match judged {
            Ok(certified) => Certificate::Known(certified.identity()),
            Err(why) => {
                tracing::warn!(%peer, why = why.for_operators(), "a certificate is not believed");
                Certificate::Doubtful(why.to_string())
            }
        }
    }
}

/// Who sent a request.
pub(super) struct Caller {
    /// `None`: nobody said who they are.
    identity: Option<Identity>,
    /// The caveats of the macaroon that was shown, and what they leave; none for other credentials.
    caveats: Vec<Caveat>,
    attenuation: Attenuation,
    /// Which macaroon was shown, when it was one.
    macaroon: Option<String>,
    /// The request itself carries what says who it is; a macaroon may speak for the owner of a certificate.
    has_bearer: bool,
    /// Why a certificate that was shown does not count.
    doubt: Option<String>,
    peer: SocketAddr,
}

impl Caller {
    fn new(identity: Option<Identity>, peer: SocketAddr) -> Caller {
        Caller {
            identity,
            caveats: Vec::new(),
            attenuation: Attenuation::default(),
            macaroon: None,
            has_bearer: false,
            doubt: None,
            peer,
        }
    }

    fn by_certificate(client: &Client, peer: SocketAddr) -> Caller {
        let doubt = match &client.certificate {
            Certificate::Absent => None,
            Certificate::Doubtful(why) => Some(why.clone()),
            // The connection may have outlived the certificate.
            Certificate::Known(identity) if identity.expires <= wall_clock() => {
                let ended = identity.expires.to_fts();
                Some(format!(
                    "the certificate, or what it says of a VO, expired at {ended}Z; get a new one"
                ))
            }
            Certificate::Known(identity) => return Caller::new(Some(identity.clone()), peer),
        };
        Caller {
            doubt,
            ..Caller::new(None, peer)
        }
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// The address at the other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether only a certificate says who it is.
    pub(super) fn is_by_certificate(&self) -> bool {
        let identity = self.identity.as_ref();
        !self.has_bearer && identity.is_some_and(|identity| identity.method == Method::Certificate)
    }

    /// For a caller without an identity: 401, or 403 with the reason why the certificate does not count.
    pub(super) fn unknown(&self, text: String) -> Problem {
        match &self.doubt {
            Some(why) => Problem::new(StatusCode::FORBIDDEN, why.clone()),
            None => Problem::unauthenticated(text),
        }
    }

    /// What whoever is handed something on by this caller is bound by as well.
    pub(super) fn caveats(&self) -> &[Caveat] {
        &self.caveats
    }

    pub(super) fn user(&self) -> Option<UserName> {
        self.identity.as_ref().map(|identity| identity.user.clone())
    }

    /// The macaroon that speaks for its user. Whoever holds it need not be that user.
    pub(super) fn macaroon(&self) -> Option<&str> {
        self.macaroon.as_deref()
    }

    /// To whom files, locks and uploads of this caller belong. A token's subject is unique only together with its issuer; a
    /// certificate's begins with a slash, so that no URL of an issuer is like it.
    pub(super) fn holder(&self) -> Option<UserName> {
        let identity = self.identity.as_ref()?;
        Some(match identity.method {
            Method::Token => UserName::new(format!("{} {}", identity.issuer, identity.user)),
            Method::Certificate => identity.user.clone(),
        })
    }

    /// To whom this caller's movers are counted.
    pub(super) fn requester(&self) -> Requester {
        Requester {
            vo: self.vo(),
            user: self.holder(),
            address: client_of(self.peer.ip()),
        }
    }

    fn vo(&self) -> Option<VoName> {
        self.identity
            .as_ref()
            .and_then(|identity| identity.vo.clone())
    }
}

/// The owner of a file for people, who know their own issuer: the subject. See [`Caller::holder`]; files of before have the
/// subject alone.
pub(super) fn shown_owner(owner: &UserName) -> &str {
    let owner = owner.as_str();
    match owner.split_once(' ') {
        // A certificate's subject begins with a slash, and may say anything behind it.
        Some((issuer, subject)) if !owner.starts_with('/') && issuer.contains("://") => subject,
        Some(_) | None => owner,
    }
}

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
        let caller = match bearer(request)? {
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
                StatusCode::FORBIDDEN,
                format!("{user} is banned here; ask the site's administrators"),
            )
            .told());
        }
        *client.lock_asks() = caller.identity.clone();
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
        match believe_bearer(credential, keys, verifier, peer.ip(), wall_clock()).await {
            Ok(believed) => Ok(Caller {
                caveats: believed.caveats,
                attenuation: believed.attenuation,
                macaroon: believed.macaroon,
                ..Caller::new(Some(believed.identity), peer)
            }),
            Err(BearerError::Token(why @ TokenError::KeysUnavailable { .. })) => {
                tracing::warn!(%peer, %why, "a token cannot be verified");
                Err(Problem::busy(why.to_string(), 30))
            }
            Err(why) => {
                let (method, path) = (&request.method, request.path());
                tracing::warn!(%peer, %method, path, %why, "refused a bearer credential");
                Err(Problem::unauthenticated(why.to_string()).told())
            }
        }
    }

    /// Lets the caller do this, or says why not.
    pub(super) fn permit(
        &self,
        caller: &Caller,
        operation: &Operation,
        path: &NamespacePath,
    ) -> Result<(), Problem> {
        reserved::refuse(operation, path)?;
        let decision = self.judge(caller, operation, path);
        if decision.choice == Verdict::Allowed {
            return Ok(());
        }
        let peer = caller.peer;
        let Some(identity) = &caller.identity else {
            tracing::warn!(%peer, ?operation, %path, "refused a request of nobody known");
            let problem = caller.unknown(format!(
                "{path} needs a token or a certificate; send 'Authorization: Bearer', or connect with a \
                 client certificate"
            ));
            return Err(problem.told());
        };
        let reasons: Vec<String> = decision.because.iter().map(ToString::to_string).collect();
        let (user, reasons) = (&identity.user, reasons.join("; "));
        tracing::warn!(%peer, %user, ?operation, %path, reasons, "refused a request");
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            format!("not allowed on {path}: {reasons}"),
        )
        .told())
    }

    /// The same as a question, without a trace in the log.
    pub(super) fn allows(
        &self,
        caller: &Caller,
        operation: &Operation,
        path: &NamespacePath,
    ) -> bool {
        self.judge(caller, operation, path).choice == Verdict::Allowed
    }

    fn judge(
        &self,
        caller: &Caller,
        operation: &Operation,
        path: &NamespacePath,
    ) -> Decision<Verdict, AuthorizationReason> {
        let identity = caller.identity.as_ref();
        let who = identity.map(|identity| (identity, &caller.attenuation));
        self.storage.settings().judge().decide(who, operation, path)
    }
}

/// The bearer token of a request: from its header, or from the query `authz=` as XRootD clients send it.
fn bearer(request: &Request) -> Result<Option<String>, Problem> {
    let mut values = request.headers.get_all(AUTHORIZATION).iter();
    if let Some(value) = values.next() {
        // davfs2 sends what it was told to add twice with LOCK; the same again means nothing else.
        if values.any(|other| other != value) {
            let text = "the request has two different 'Authorization' headers";
            return Err(Problem::bad_request(text));
        }
        let token = value.to_str().ok().and_then(strip_scheme);
        return match token {
            Some(token) => Ok(Some(token.to_owned())),
            None => Err(Problem::unauthenticated(
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
        .map_err(|_| Problem::unauthenticated("'authz' in the query is not UTF-8"))?;
    let token = strip_scheme(&decoded).unwrap_or(&decoded);
    Ok(Some(token.to_owned()))
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
    fn one_name_at_two_issuers_is_two_holders() {
        let holder = |method, issuer: &str, user: &str| {
            let identity = Identity {
                method,
                user: UserName::new(user),
                issuer: issuer.to_owned(),
                vo: None,
                fqans: Vec::new(),
                groups: Vec::new(),
                capabilities: Vec::new(),
                expires: wall_clock(),
                delegation: penstock_model::CredentialId::new("0"),
                scope: String::new(),
            };
            let peer = SocketAddr::from(([127, 0, 0, 1], 1));
            Caller::new(Some(identity), peer).holder()
        };
        let token = |issuer, user| holder(Method::Token, issuer, user);
        assert_ne!(token("https://a", "alice"), token("https://b", "alice"));
        assert_ne!(token("https://a", "alice"), token("https://a", "bob"));
        let certificate = |authority| holder(Method::Certificate, authority, "/CN=alice");
        assert_eq!(certificate("/CN=one"), certificate("/CN=two"));
        assert_ne!(certificate("/CN=one"), token("https://a", "/CN=alice"));
        let shown = |holder: Option<UserName>| holder.map(|it| shown_owner(&it).to_owned());
        assert_eq!(
            shown(token("https://a", "Alice Lab")).as_deref(),
            Some("Alice Lab")
        );
        let lab = holder(Method::Certificate, "/CN=one", "/CN=Alice Lab");
        assert_eq!(shown(lab).as_deref(), Some("/CN=Alice Lab"));
        assert_eq!(shown_owner(&UserName::new("alice")), "alice");
        let posing = UserName::new("/CN=Robot:http://x alice");
        assert_eq!(shown_owner(&posing), posing.as_str());
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
