//! Who asks, as the wire shows them: the client of a connection by its certificate, and the sender of one request.

use super::answer::Problem;
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_decide::admission::Requester;
use penstock_model::{Attenuation, ProblemCode, UserName, VoName};
use penstock_persistence::access_links::AccessLinkId;
use penstock_persistence::namespace::{ArchiveWord, RequestOrigin};
use penstock_protocol::connections::client_of;
use penstock_protocol::identity::{Identity, Method};
use penstock_protocol::macaroon::Caveat;
use penstock_protocol::monitoring::{Viewer, ViewerCredential};
use penstock_protocol::x509::{CertificateError, CertificateHolder};
use std::net::SocketAddr;
use std::sync::Arc;

/// Who is at the other end of a connection.
pub(super) struct Client {
    certificate: Certificate,
    /// Who has sent the request that is being answered; `None` until that is known.
    asks: Mutex<Option<Sender>>,
}

/// Who has sent a request, by whatever credential.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) identity: Arc<Identity>,
    /// The share that speaks for that identity.
    pub(super) share: Option<AccessLinkId>,
}

/// What the certificate of a connection says.
enum Certificate {
    /// There is none, or the door has no TLS.
    Absent,
    Known(Arc<Identity>),
    /// It is not believed, for this reason.
    Doubtful(String),
}

impl Client {
    /// Tells the log, once per connection, about attributes that do not count.
    pub(super) fn by_certificate(
        shown: Option<Result<CertificateHolder, CertificateError>>,
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
    pub(super) fn is_now(
        &mut self,
        judged: Result<CertificateHolder, CertificateError>,
        peer: SocketAddr,
    ) {
        self.certificate = Certificate::judged(judged, peer);
    }

    /// Whether it has shown a certificate that does not count.
    pub(super) fn is_doubtful(&self) -> bool {
        matches!(self.certificate, Certificate::Doubtful(_))
    }

    /// A new request begins, of which nobody knows yet who sent it.
    pub(super) fn begins(&self) {
        *self.asks.lock() = None;
    }

    /// From now on that is known.
    pub(super) fn is_sender(&self, caller: &Caller) {
        *self.asks.lock() = caller.identity.clone().map(|identity| Sender {
            identity,
            share: caller.share.clone(),
        });
    }

    /// Who has sent the request that is being answered, if that is known.
    pub(super) fn asks(&self) -> Option<Sender> {
        self.asks.lock().clone()
    }
}

impl Certificate {
    /// Tells the log about one that is not believed.
    fn judged(
        judged: Result<CertificateHolder, CertificateError>,
        peer: SocketAddr,
    ) -> Certificate {
        match judged {
            Ok(certified) => Certificate::Known(Arc::new(certified.identity())),
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
    pub(super) identity: Option<Arc<Identity>>,
    /// The caveats of the macaroon that was shown, and what they leave; none for other credentials.
    pub(super) caveats: Vec<Caveat>,
    pub(super) attenuation: Attenuation,
    /// Which macaroon was shown, when it was one.
    pub(super) macaroon: Option<String>,
    /// The share whose macaroon it is, which stays at the server.
    pub(super) share: Option<AccessLinkId>,
    /// The request itself carries what says who it is; a macaroon may speak for the owner of a certificate.
    pub(super) has_bearer: bool,
    /// Why a certificate that was shown does not count.
    pub(super) doubt: Option<(ProblemCode, String)>,
    pub(super) peer: SocketAddr,
    /// How it names what its request is part of. Whoever asks may choose it.
    pub(super) copy: Option<String>,
    /// The data challenge or activity that its request is part of, as it tells it.
    pub(super) challenge: Option<String>,
    /// What its request says of a file that goes to tape.
    pub(super) archive_word: ArchiveWord,
}

impl Caller {
    pub(super) fn new(identity: Option<Arc<Identity>>, peer: SocketAddr) -> Caller {
        Caller {
            identity,
            caveats: Vec::new(),
            attenuation: Attenuation::default(),
            macaroon: None,
            share: None,
            has_bearer: false,
            doubt: None,
            peer,
            copy: None,
            challenge: None,
            archive_word: ArchiveWord::default(),
        }
    }

    pub(super) fn by_certificate(client: &Client, peer: SocketAddr) -> Caller {
        let doubt = match &client.certificate {
            Certificate::Absent => None,
            Certificate::Doubtful(why) => Some((ProblemCode::CertificateInvalid, why.clone())),
            // The connection may have outlived the certificate.
            Certificate::Known(identity) if identity.expires <= wall_clock() => {
                let ended = identity.expires.to_fts();
                let text = format!(
                    "the certificate or its VO attributes expired at {ended}Z; get a new one"
                );
                Some((ProblemCode::CertificateExpired, text))
            }
            Certificate::Known(identity) => return Caller::new(Some(Arc::clone(identity)), peer),
        };
        Caller {
            doubt,
            ..Caller::new(None, peer)
        }
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// The same for monitors. A macaroon's caveats are about paths, so it carries none of its user's right to see more.
    pub(super) fn viewer(&self) -> Viewer {
        let credential = match (&self.identity, &self.macaroon) {
            (None, _) => ViewerCredential::Anonymous,
            (Some(identity), Some(_)) => ViewerCredential::Macaroon(identity.user.clone()),
            (Some(identity), None) => ViewerCredential::Own(Identity::clone(identity)),
        };
        Viewer {
            peer: Some(self.peer),
            credential,
        }
    }

    /// Whether only a certificate says who it is.
    pub(super) fn is_by_certificate(&self) -> bool {
        let identity = self.identity.as_ref();
        !self.has_bearer && identity.is_some_and(|identity| identity.method == Method::Certificate)
    }

    /// Whether another scope of the token would help: a macaroon has none, and groups count only without scopes.
    pub(super) fn is_bound_by_scopes(&self) -> bool {
        let identity = self.identity.as_ref();
        self.macaroon.is_none()
            && identity.is_some_and(|identity| {
                identity.method == Method::Token
                    && (identity.groups.is_empty() || !identity.capabilities.is_empty())
            })
    }

    /// For a caller without an identity: 401, or 403 with the reason why the certificate does not count.
    pub(super) fn unknown(&self, text: String) -> Problem {
        match &self.doubt {
            Some((code, why)) => Problem::new(*code, why.clone()),
            None => Problem::new(ProblemCode::CredentialsMissing, text),
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

    /// What the ledger tells of its request.
    pub(super) fn origin(&self) -> RequestOrigin {
        RequestOrigin {
            user: self.user(),
            vo: self.vo(),
            client: Some(self.peer.to_string()),
            copy: self.copy.clone(),
            challenge: self.challenge.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(method: Method, issuer: &str, user: &str) -> Caller {
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
        Caller::new(Some(Arc::new(identity)), peer)
    }

    #[test]
    fn who_holds_a_macaroon_is_not_its_user_to_monitors() {
        let own = caller(Method::Certificate, "/CN=ca", "/CN=operator");
        assert!(matches!(own.viewer().credential, ViewerCredential::Own(_)));
        let shared = Caller {
            macaroon: Some("nonce".to_owned()),
            ..own
        };
        assert!(matches!(
            shared.viewer().credential,
            ViewerCredential::Macaroon(user) if user.as_str() == "/CN=operator"
        ));
    }

    #[test]
    fn one_name_at_two_issuers_is_two_holders() {
        let holder = |method, issuer: &str, user: &str| caller(method, issuer, user).holder();
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
}
