//! Who asks the interface: by a token, or by the certificate of the connection.

use super::link_grant::{LinkGrant, grant_of_session};
use super::server::ShownCertificate;
use super::{Api, ApiConfig, ApiError};
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::RwLock;
use penstock_decide::monitor_rights::{MONITOR_SCOPE, is_only_for_monitors};
use penstock_decide::service_rights::{Operation, Principal, PrincipalRights, ServiceGrant};
use penstock_decide::settings::is_granted;
use penstock_journal::JobRow;
use penstock_model::{CredentialId, ProblemCode, Timestamp, Visibility, VoName};
use penstock_protocol::cross_site::is_of_foreign_page;
use penstock_protocol::fair_turns::{FairTurns, Turn};
use penstock_protocol::identity::{Identity, Method};
use penstock_protocol::token::ADMIN_SCOPE;
use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

/// Who administers the service, or a VO's part of it, by the configuration file. Cheap to clone; all clones see a
/// replacement.
#[derive(Clone, Default)]
pub struct Administrators(Arc<RwLock<Vec<ServiceGrant>>>);

impl Administrators {
    /// From now on the configuration names these and no others.
    pub fn replace(&self, grants: Vec<ServiceGrant>) {
        *self.0.write() = grants;
    }

    /// What somebody may do beyond their own VO's jobs.
    fn rights_of(&self, identity: &Identity) -> PrincipalRights {
        let user = identity.user.as_str();
        let principal = match identity.method {
            Method::Certificate => Principal::Certificate {
                subject: user,
                ca: &identity.issuer,
                attributes: &identity.groups,
            },
            Method::Token => Principal::Token {
                issuer: &identity.issuer,
                subject: user,
                groups: &identity.groups,
            },
        };
        let grants = self.0.read();
        PrincipalRights::of(grants.iter(), principal)
    }
}

/// Questions of pages beside the interface that have a turn at once, and those of one user: slow ones of one user hold up
/// nobody else's.
const VIEWERS_AT_ONCE: usize = 64;
const VIEWS_AT_ONCE_OF_USER: usize = 1;
static VIEWER_TURNS: LazyLock<FairTurns<CredentialId>> =
    LazyLock::new(|| FairTurns::new(VIEWERS_AT_ONCE, VIEWS_AT_ONCE_OF_USER));

/// Whoever may look at a page that is served beside the interface.
pub struct Viewer {
    /// Whose transfers they see.
    pub visibility: Visibility,
    /// Whether they may read the audit.
    pub sees_audit: bool,
    /// To be held until the work for their question has ended.
    pub turn: ViewerTurn,
}

/// The turn of a user.
pub struct ViewerTurn {
    _turn: Turn,
}

/// What a request says about its sender, not yet believed.
pub(super) struct Credentials {
    authorization: Option<HeaderValue>,
    shown: Option<ShownCertificate>,
    is_foreign_page: bool,
}

impl Credentials {
    /// The certificate that the connection showed, as PEM, when it is believed.
    pub(super) fn certificate(&self) -> Option<String> {
        match &self.shown {
            Some(ShownCertificate::Known(_, pem)) => Some(String::clone(pem)),
            Some(ShownCertificate::Doubtful(_)) | None => None,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Credentials {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Credentials, Infallible> {
        Ok(Credentials {
            authorization: parts.headers.get(AUTHORIZATION).cloned(),
            shown: parts.extensions.get().cloned(),
            is_foreign_page: is_of_foreign_page(&parts.method, &parts.headers),
        })
    }
}

/// Who asks, and how far they see.
pub(crate) struct Caller {
    pub(super) identity: Identity,
    user_id: CredentialId,
    /// The token, unless a certificate told who it is.
    pub(super) token: Option<String>,
    pub(super) vo: VoName,
    /// Beyond the jobs of the own VO, which everybody sees and stops.
    pub(super) rights: PrincipalRights,
    /// It is the session of a login link, behind which there is no credential that could be passed on.
    is_session: bool,
}

impl Caller {
    /// What names all credentials of this user.
    pub(super) fn credential(&self) -> &CredentialId {
        &self.user_id
    }

    /// FTS's level "vo": a member sees and stops what belongs to the VO; an administrator more. And everybody what they
    /// have submitted, also when they are of another VO now.
    pub(super) fn may_touch(&self, job: &JobRow) -> bool {
        self.may_look_at(&job.vo) || self.identity.submitted(&job.user, &job.delegation)
    }

    /// Whether the jobs of a VO are this caller's to see.
    pub(super) fn may_look_at(&self, vo: &VoName) -> bool {
        *vo == self.vo || self.rights.cover(Operation::Transfer, vo)
    }

    /// Whether all jobs are this caller's to see and to stop.
    pub(super) fn may_touch_everything(&self) -> bool {
        self.rights.cover_everything(Operation::Transfer)
    }

    /// For what needs the credential itself. Errors: 403 for a session.
    pub(super) fn refuse_session(&self, what: &str) -> Result<(), ApiError> {
        if !self.is_session {
            return Ok(());
        }
        let text = format!("a session of a login link cannot {what}; use a token or a certificate");
        Err(ApiError::new(ProblemCode::PermissionDenied, text))
    }

    /// For what concerns the whole service: links, storage elements, rights, the state of its hosts.
    /// Errors: 403 in FTS's words.
    pub(super) fn may_configure(&self) -> Result<(), ApiError> {
        self.needs(self.may_configure_everything())
    }

    /// The same as an answer.
    pub(super) fn may_configure_everything(&self) -> bool {
        self.rights.cover_everything(Operation::Config)
    }

    /// For what concerns one VO only. Errors: 403 in FTS's words.
    pub(super) fn may_configure_vo(&self, vo: &VoName) -> Result<(), ApiError> {
        self.needs(self.rights.cover(Operation::Config, vo))
    }

    /// For lists that an administrator of any VO may read. Errors: 403 in FTS's words.
    pub(super) fn may_read_configuration(&self) -> Result<(), ApiError> {
        self.needs(self.rights.cover_anything(Operation::Config))
    }

    /// What an answer depends on. Errors: 403 in FTS's words.
    pub(super) fn needs(&self, is_granted: bool) -> Result<(), ApiError> {
        if is_granted {
            return Ok(());
        }
        let user = &self.identity.user;
        tracing::warn!(%user, "refused a request for administrators");
        let refused = ApiError::new(ProblemCode::AdministratorRequired, "Not enough permissions");
        Err(refused.told())
    }
}

impl ApiConfig {
    /// Whose transfers the bearer of a token may look at, by the rules of this interface, when it is their turn: for pages
    /// that are served beside it. Errors: 401, 403 or 503, with the reason in the log.
    pub async fn viewer(&self, headers: &HeaderMap) -> Result<Viewer, StatusCode> {
        let credentials = Credentials {
            authorization: headers.get(AUTHORIZATION).cloned(),
            shown: None,
            is_foreign_page: is_of_foreign_page(&http::Method::GET, headers),
        };
        let caller = self.caller(&credentials).await;
        let caller = caller.map_err(|refusal| refusal.status)?;
        let turn = VIEWER_TURNS.turn(caller.credential()).await;
        let sees_audit = caller.may_configure_everything();
        let visibility = match caller.may_touch_everything() {
            true => Visibility::Everything,
            false => Visibility::Vo(caller.vo),
        };
        Ok(Viewer {
            visibility,
            sees_audit,
            turn: ViewerTurn { _turn: turn },
        })
    }
}

impl Api {
    /// Who asks, if this interface answers them.
    pub(super) async fn caller(&self, credentials: &Credentials) -> Result<Caller, ApiError> {
        let caller = self.config.caller(credentials).await?;
        Ok(self.with_granted_rights(caller))
    }

    /// The same of whoever has made an access link. Errors: they are banned, or may use the service no more.
    pub(super) async fn caller_of_link(
        &self,
        grant: LinkGrant,
        expires: Timestamp,
    ) -> Result<Caller, ApiError> {
        let caller = self.config.of_link(grant, expires).await?;
        self.config.refuse_banned(&caller.identity)?;
        Ok(self.with_granted_rights(caller))
    }

    /// With what administrators have granted.
    fn with_granted_rights(&self, mut caller: Caller) -> Caller {
        let (settings, asker) = (self.service.settings(), self.asker(&caller));
        for operation in [Operation::Transfer, Operation::Config] {
            if is_granted(&settings, &asker, operation) {
                caller.rights.add(operation);
            }
        }
        caller
    }
}

impl ApiConfig {
    /// Whom a monitor's credential speaks of; `None` when it shows none that counts. The required scope is for the
    /// service's users, who may be others.
    pub(super) async fn monitor_identity(
        &self,
        credentials: &Credentials,
    ) -> Result<Option<Identity>, ApiError> {
        let identity = match (&credentials.authorization, &credentials.shown) {
            (Some(value), _) => self.bearer_identity(value).await.map_err(ApiError::told)?,
            (None, Some(ShownCertificate::Known(certified, _))) if !credentials.is_foreign_page => {
                certified.identity()
            }
            (None, Some(_) | None) => return Ok(None),
        };
        if identity.expires <= penstock_clock::wall_clock() {
            return Ok(None);
        }
        self.refuse_banned(&identity).map_err(ApiError::told)?;
        Ok(Some(identity))
    }

    /// Whom a token speaks of, or the session of a login link.
    async fn bearer_identity(&self, value: &HeaderValue) -> Result<Identity, ApiError> {
        let token = bearer(value)?;
        match grant_of_session(&self.access_links, token).await? {
            Some((grant, expires)) => self.maker(grant, expires).await,
            None => self.verified(token).await,
        }
    }

    /// Authenticates, by the token if there is one, and checks bans and the site's required scope. A refusal is
    /// logged here, once.
    async fn caller(&self, credentials: &Credentials) -> Result<Caller, ApiError> {
        self.known_caller(credentials).await.map_err(ApiError::told)
    }

    async fn known_caller(&self, credentials: &Credentials) -> Result<Caller, ApiError> {
        let caller = match (&credentials.authorization, &credentials.shown) {
            (Some(value), _) => self.by_token(value).await?,
            (None, Some(_)) if credentials.is_foreign_page => {
                let text = "pages of other sites cannot use the client certificate";
                tracing::warn!(why = text, "refused a request");
                return Err(ApiError::new(ProblemCode::ForeignPage, text));
            }
            (None, Some(ShownCertificate::Known(certified, _))) => {
                self.by_certificate(certified.identity())?
            }
            // The log was told when the connection was made.
            (None, Some(ShownCertificate::Doubtful(why))) => {
                return Err(ApiError::new(ProblemCode::CertificateInvalid, why));
            }
            (None, None) => {
                tracing::info!("refused a request: no credentials");
                return Err(ApiError::new(
                    ProblemCode::CredentialsMissing,
                    "a token or a certificate is needed: send 'Authorization: Bearer TOKEN', or connect \
                     with a client certificate",
                ));
            }
        };
        self.refuse_banned(&caller.identity)?;
        Ok(caller)
    }

    pub(super) fn refuse_banned(&self, identity: &Identity) -> Result<(), ApiError> {
        if !self.banned.holds(identity) {
            return Ok(());
        }
        let user = &identity.user;
        tracing::warn!(%user, "refused a banned user");
        Err(ApiError::new(
            ProblemCode::UserBanned,
            // FTS's words, and who it is.
            format!(
                "The user has been banned: {user} is banned here; ask the site's administrators"
            ),
        ))
    }

    async fn verified(&self, token: &str) -> Result<Identity, ApiError> {
        let verified = self
            .verifier
            .verify(token, penstock_clock::wall_clock())
            .await;
        let verified = verified.map(|identity| Identity::clone(&identity));
        verified.map_err(|error| {
            tracing::warn!(%error, "a token was refused");
            ApiError::new(error.code(), error.to_string())
        })
    }

    async fn by_token(&self, value: &HeaderValue) -> Result<Caller, ApiError> {
        let token = bearer(value)?;
        if let Some((grant, expires)) = grant_of_session(&self.access_links, token).await? {
            return self.of_link(grant, expires).await;
        }
        let identity = self.verified(token).await?;
        let caller = self.of_token(identity)?;
        Ok(Caller {
            token: Some(token.to_owned()),
            ..caller
        })
    }

    /// Errors: what has signed the token that a link was made with is not trusted any more.
    pub(super) async fn refuse_untrusted(&self, grant: &LinkGrant) -> Result<(), ApiError> {
        let Some((issuer, key)) = grant.signer() else {
            return Ok(());
        };
        let now = penstock_clock::wall_clock();
        self.verifier.trusts(issuer, key, now).await.map_err(|error| {
            tracing::warn!(%error, "refused an access link: its maker's token is not trusted any more");
            ApiError::new(error.code(), error.to_string())
        })
    }

    /// Who has made a link, until it ends. Errors: see [`Self::refuse_untrusted`].
    async fn maker(&self, grant: LinkGrant, expires: Timestamp) -> Result<Identity, ApiError> {
        self.refuse_untrusted(&grant).await?;
        Ok(grant.identity(expires))
    }

    /// Who has made an access link, with the rights that they have now and nothing to pass on. Errors: see [`Self::by_token`].
    async fn of_link(&self, grant: LinkGrant, expires: Timestamp) -> Result<Caller, ApiError> {
        let maker = self.maker(grant, expires).await?;
        let caller = match maker.method {
            Method::Token => self.of_token(maker)?,
            Method::Certificate => self.by_certificate(maker)?,
        };
        Ok(Caller {
            is_session: true,
            ..caller
        })
    }

    /// What the holder of a token that is believed may do here. Errors: the token is for monitors only, or lacks the scope that
    /// this service asks for.
    fn of_token(&self, identity: Identity) -> Result<Caller, ApiError> {
        let is_own = identity.method == Method::Token && identity.issuer == self.own_issuer;
        let is_admin = is_own && identity.has_scope(ADMIN_SCOPE);
        if is_own && is_only_for_monitors(&identity.scope) {
            let user = &identity.user;
            tracing::warn!(%user, "refused a monitor's token, which is for metrics and health");
            return Err(ApiError::new(
                ProblemCode::ScopeInsufficient,
                format!(
                    "the token is for monitors: {MONITOR_SCOPE} alone gives access to metrics and health, but not to jobs"
                ),
            ));
        }
        if let Some(scope) = &self.required_scope
            && !is_admin
            && !identity.has_scope(scope)
        {
            let user = &identity.user;
            tracing::warn!(%user, %scope, "a token lacks the scope that this service asks for");
            let text = format!("the token lacks the scope '{scope}'");
            return Err(ApiError::new(ProblemCode::ScopeInsufficient, text).needing(scope));
        }
        let rights = match is_admin {
            true => PrincipalRights::everything(),
            false => self.administrators.rights_of(&identity),
        };
        Ok(Caller {
            vo: identity.vo_or_private(),
            user_id: identity.user_id(),
            identity,
            token: None,
            rights,
            is_session: false,
        })
    }

    /// Errors: the connection has outlived the certificate; or tokens need a scope here, and the certificate names no
    /// VO that the site knows, which is what takes the scope's place.
    fn by_certificate(&self, identity: Identity) -> Result<Caller, ApiError> {
        let user = &identity.user;
        if identity.expires <= penstock_clock::wall_clock() {
            let ended = identity.expires.to_fts();
            tracing::warn!(%user, %ended, "refused a certificate that has expired");
            return Err(ApiError::new(
                ProblemCode::CertificateExpired,
                format!("the certificate or its VO attributes expired at {ended}Z; get a new one"),
            ));
        }
        let rights = self.administrators.rights_of(&identity);
        if self.required_scope.is_some()
            && identity.vo.is_none()
            && rights == PrincipalRights::default()
        {
            tracing::warn!(%user, "refused a certificate without a VO, because tokens need a scope here");
            return Err(ApiError::new(
                ProblemCode::VoRequired,
                "this service answers certificates of members of a VO that it knows; add the VO's attributes \
                 (voms-proxy-init), or ask the site",
            ));
        }
        Ok(Caller {
            vo: identity.vo_or_private(),
            user_id: identity.user_id(),
            identity,
            token: None,
            rights,
            is_session: false,
        })
    }
}

/// The token of an `Authorization` header.
pub(super) fn bearer(value: &HeaderValue) -> Result<&str, ApiError> {
    let told = value.to_str().ok().and_then(|text| text.split_once(' '));
    match told {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => {
            tracing::warn!("refused credentials that are no bearer token");
            Err(ApiError::new(
                ProblemCode::TokenInvalid,
                "only bearer tokens are accepted: send 'Authorization: Bearer TOKEN'",
            ))
        }
    }
}
