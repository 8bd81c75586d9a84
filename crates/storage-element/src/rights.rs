//! Whom a storage element believes, and what its settings let them do: asked by the door for each request, and by
//! whoever wants to know beforehand. Pure but for the keys of token issuers; writes no log.

use crate::config::{AccessConfig, OwnIssuer, TrustedIssuerConfig};
use crate::reserved_names::is_reserved;
use penstock_decide::Decision;
use penstock_decide::attenuation::authorize_attenuated;
use penstock_decide::authorization::{
    AuthorizationReason, CertificateOwner, Credentials, GroupRule, PathOperation, Verdict,
    needed_right,
};
use penstock_model::{Attenuation, Capability, NamespacePath, ProblemCode, Right, Timestamp};
use penstock_protocol::http1::client::Client;
use penstock_protocol::identity::{Identity, Method};
use penstock_protocol::macaroon::{self, Caveat, MacaroonError, RootKeys};
use penstock_protocol::token::{TokenError, TrustedIssuer, Verifier};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use thiserror::Error;

/// Somebody whose credential is believed.
#[derive(Debug, Clone)]
pub struct AuthenticatedCaller {
    /// Who, and what the credential carries.
    pub identity: Arc<Identity>,
    /// The caveats of a macaroon; none for other credentials.
    pub caveats: Vec<Caveat>,
    /// What these leave.
    pub attenuation: Attenuation,
    /// Which macaroon it was; `None`: another credential.
    pub macaroon: Option<String>,
}

impl AuthenticatedCaller {
    /// By a credential that has no caveats.
    pub fn without_caveats(identity: Arc<Identity>) -> AuthenticatedCaller {
        AuthenticatedCaller {
            identity,
            caveats: Vec::new(),
            attenuation: Attenuation::default(),
            macaroon: None,
        }
    }
}

/// Why a bearer credential is not believed.
#[derive(Debug, Error)]
pub enum BearerError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Macaroon(#[from] MacaroonError),
}

impl BearerError {
    /// The cause as users are told it.
    pub(crate) fn code(&self) -> ProblemCode {
        match self {
            BearerError::Token(why) => why.code(),
            BearerError::Macaroon(why) => why.code(),
        }
    }
}

/// Believes what stood after `Bearer`, shown by `peer`, or says why not. `keys`: of this site's macaroons, if it
/// has any. May fetch the keys of a token's issuer.
pub async fn believe_bearer(
    credential: &str,
    keys: Option<&RootKeys>,
    verifier: &Verifier,
    peer: IpAddr,
    now: Timestamp,
) -> Result<AuthenticatedCaller, BearerError> {
    match keys {
        Some(keys) if macaroon::looks_like_one(credential) => {
            let verified = macaroon::verify(keys, credential, peer, now)?;
            Ok(AuthenticatedCaller {
                identity: Arc::new(verified.identity),
                caveats: verified.caveats,
                attenuation: verified.attenuation,
                macaroon: Some(verified.nonce),
            })
        }
        Some(_) | None => {
            let identity = verifier.verify(credential, now).await?;
            Ok(AuthenticatedCaller::without_caveats(identity))
        }
    }
}

/// Verifies the tokens that a door with these settings believes. `client` fetches the keys of other issuers.
pub fn verifier(access: &AccessConfig, own: Option<&OwnIssuer>, client: Client) -> Verifier {
    let (issuers, audiences) = trust(access, own);
    let verifier = Verifier::new(issuers, audiences, client);
    match own {
        Some(own) => verifier.with_local_keys(&own.trust.issuer, &own.jwks),
        None => verifier,
    }
}

/// Whose tokens count, and for whom they must be meant.
pub(crate) fn trust(
    access: &AccessConfig,
    own: Option<&OwnIssuer>,
) -> (Vec<TrustedIssuer>, Vec<String>) {
    let issuers = issuers(access, own).map(|trusted| TrustedIssuer {
        issuer: trusted.issuer.clone(),
        prefix: trusted.prefix.clone(),
        vos: trusted.vos.clone(),
        life_max: trusted.life_max,
        rights: trusted.rights.clone(),
    });
    (issuers.collect(), access.audiences.clone())
}

fn issuers<'a>(
    access: &'a AccessConfig,
    own: Option<&'a OwnIssuer>,
) -> impl Iterator<Item = &'a TrustedIssuerConfig> {
    access.issuers.iter().chain(own.map(|own| &own.trust))
}

/// Judges requests by a site's settings.
#[derive(Clone, Copy)]
pub struct RequestAuthorizer<'a> {
    /// Rules, bans and public paths.
    pub access: &'a AccessConfig,
    /// The site's own issuer of tokens.
    pub own_issuer: Option<&'a OwnIssuer>,
}

impl RequestAuthorizer<'_> {
    /// Whether somebody may do nothing here, not even what everybody may.
    pub fn bans(&self, identity: &Identity) -> bool {
        let mut banned = self.access.banned.iter();
        banned.any(|user| user == identity.user.as_str())
    }

    /// Whether somebody may do this, or nobody in particular.
    pub fn decide(
        &self,
        who: Option<(&Identity, &Attenuation)>,
        operation: &PathOperation,
        path: &NamespacePath,
    ) -> Decision<Verdict, AuthorizationReason> {
        let refused = |reason| Decision::new(Verdict::Refused, reason);
        if is_reserved(operation, path) {
            return refused(AuthorizationReason::Reserved);
        }
        if let Some((identity, _)) = who.filter(|(identity, _)| self.bans(identity)) {
            let user = identity.user.to_string();
            return refused(AuthorizationReason::Banned { user });
        }
        if let Some(public) = self.public(operation, path) {
            let path = public.clone();
            return Decision::new(Verdict::Allowed, AuthorizationReason::Public { path });
        }
        match who {
            Some((identity, attenuation)) => self.by_rights(identity, attenuation, operation, path),
            None => refused(AuthorizationReason::NobodyKnown),
        }
    }

    fn by_rights(
        &self,
        identity: &Identity,
        attenuation: &Attenuation,
        operation: &PathOperation,
        path: &NamespacePath,
    ) -> Decision<Verdict, AuthorizationReason> {
        if identity.method == Method::Token
            && identity.capabilities.is_empty()
            && let Some(path) = self.outside_prefixes(&identity.issuer, operation, path)
        {
            let path = path.clone();
            return Decision::new(
                Verdict::Refused,
                AuthorizationReason::OutsidePrefix { path },
            );
        }
        let groups = self.groups_that_count(identity);
        if groups.is_empty() && !identity.groups.is_empty() && identity.capabilities.is_empty() {
            return Decision::new(
                Verdict::Refused,
                AuthorizationReason::GroupsOfOthers {
                    issuer: identity.issuer.clone(),
                    groups: identity.groups.clone(),
                },
            );
        }
        let rules = self.rules_for(identity, operation, path);
        let held = Credentials {
            capabilities: &identity.capabilities,
            groups: &groups,
            rules: &rules,
            owner: match identity.method {
                Method::Token => None,
                Method::Certificate => Some(CertificateOwner {
                    subject: identity.user.as_str(),
                    ca: &identity.issuer,
                }),
            },
            subject_rules: &self.access.subject_rules,
        };
        let mut decision = authorize_attenuated(&held, attenuation, operation, path);
        if decision.choice == Verdict::Refused
            && identity.method == Method::Token
            && let Some(limited) = self.issuer_without(needed_right(operation), &identity.issuer)
        {
            decision.because.push(AuthorizationReason::IssuerRights {
                issuer: limited.issuer.clone(),
                rights: limited.rights.clone(),
            });
        }
        decision
    }

    /// The rules for groups, with what of their rights the tokens of the issuer can have. Scopes are cut where the token is
    /// verified; groups get their rights here.
    fn rules_for(
        &self,
        identity: &Identity,
        operation: &PathOperation,
        path: &NamespacePath,
    ) -> Cow<'_, [GroupRule]> {
        match identity.method {
            Method::Certificate => Cow::Borrowed(&self.access.group_rules),
            Method::Token if identity.groups.is_empty() => Cow::Borrowed(&[]),
            Method::Token => {
                let limits = paths_of(operation, path).map(|path| self.rights_at(identity, path));
                let limits: Vec<Vec<Right>> = limits.collect();
                let limited = |right: &Right| {
                    let mut limits = limits.iter();
                    limits.try_fold(*right, |right, limit| right.within(limit))
                };
                let rules = self.access.group_rules.iter();
                let rules = rules.map(|rule| GroupRule {
                    rights: rule.rights.iter().filter_map(limited).collect(),
                    ..rule.clone()
                });
                rules.collect()
            }
        }
    }

    /// What tokens of the issuer can allow at most at this path.
    fn rights_at(&self, identity: &Identity, path: &NamespacePath) -> Vec<Right> {
        let listed = issuers(self.access, self.own_issuer);
        let listed = listed
            .filter(|trusted| trusted.issuer == identity.issuer && path.is_within(&trusted.prefix));
        listed
            .flat_map(|trusted| trusted.rights.iter().copied())
            .collect()
    }

    /// The issuer, when no token of it could allow this.
    fn issuer_without(&self, right: Right, issuer: &str) -> Option<&TrustedIssuerConfig> {
        let mut listed = issuers(self.access, self.own_issuer);
        let can_allow = |trusted: &TrustedIssuerConfig| {
            let asked = Capability {
                right,
                path: NamespacePath::root(),
                directory_only: true,
            };
            let granted = asked.within(&trusted.rights);
            granted.is_some_and(|granted| granted.right == right)
        };
        listed.find(|trusted| trusted.issuer == issuer && !can_allow(trusted))
    }

    /// The scope with which a token of this identity's issuer would do: relative to its part of the namespace, as
    /// scopes are.
    pub(crate) fn needed_scope(
        &self,
        identity: &Identity,
        operation: &PathOperation,
        path: &NamespacePath,
    ) -> Option<String> {
        let trusted = issuers(self.access, self.own_issuer)
            .find(|trusted| trusted.issuer == identity.issuer && path.is_within(&trusted.prefix))?;
        let (path, prefix) = (path.to_string(), trusted.prefix.to_string());
        let below = path.strip_prefix(&prefix)?;
        let right = needed_right(operation).scope_name();
        Some(format!("{right}:/{}", below.trim_start_matches('/')))
    }

    /// The groups that mean what the site's rules mean by them. Any issuer can write any name; attributes of a
    /// certificate were signed by a server of the very VO.
    fn groups_that_count<'i>(&self, identity: &'i Identity) -> Cow<'i, [String]> {
        match identity.method {
            Method::Certificate => Cow::Borrowed(&identity.groups),
            Method::Token => {
                let listed = issuers(self.access, self.own_issuer);
                let listed = listed.filter(|trusted| trusted.issuer == identity.issuer);
                let vos: Vec<_> = listed.map(|trusted| &trusted.vos).collect();
                let counts = |group: &&String| vos.iter().any(|vos| vos.speaks_for(group));
                identity.groups.iter().filter(counts).cloned().collect()
            }
        }
    }

    /// The public path that lets everybody do this.
    fn public(&self, operation: &PathOperation, path: &NamespacePath) -> Option<&NamespacePath> {
        match operation {
            PathOperation::Read | PathOperation::Stat | PathOperation::List => {
                let mut open = self.access.anonymous_read.iter();
                open.find(|prefix| path.is_within(prefix))
            }
            PathOperation::Create
            | PathOperation::Modify
            | PathOperation::Delete
            | PathOperation::MakeDirectory
            | PathOperation::Rename { .. }
            | PathOperation::Stage
            | PathOperation::Poll => None,
        }
    }

    /// A path of the operation that lies in no part of the namespace that this issuer's tokens may speak of.
    /// Scopes are relative to such a part; groups are not, so that a stranger's `/atlas` would be the site's.
    fn outside_prefixes<'p>(
        &self,
        issuer: &str,
        operation: &'p PathOperation,
        path: &'p NamespacePath,
    ) -> Option<&'p NamespacePath> {
        let prefixes: Vec<_> = issuers(self.access, self.own_issuer)
            .filter(|trusted| trusted.issuer == issuer)
            .map(|trusted| &trusted.prefix)
            .collect();
        let outside = |path: &&NamespacePath| !prefixes.iter().any(|prefix| path.is_within(prefix));
        paths_of(operation, path).find(outside)
    }
}

/// All paths that an operation concerns.
fn paths_of<'p>(
    operation: &'p PathOperation,
    path: &'p NamespacePath,
) -> impl Iterator<Item = &'p NamespacePath> {
    let to = match operation {
        PathOperation::Rename { to } => Some(to),
        _ => None,
    };
    std::iter::once(path).chain(to)
}
