//! Deciding whether a token is genuine, meant for us and still alive.

use super::keys::{FetchDocument, IssuerKeys, KeySet, key_set};
use super::signature::{Algorithm, VerifyingKey};
use super::{ADMIN_SCOPE, ANY_AUDIENCE, TOKEN_BYTES_MAX, TokenError, delegation_id, scope, shown};
use crate::identity::{Identity, Method};
use crate::vo;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openssl::sha::Sha256;
use parking_lot::{Mutex, MutexGuard, RwLock};
use penstock_model::{CredentialId, NamespacePath, Right, Timestamp, UserName, VoName};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Clock skew that is forgiven at the beginning of a token's life, never at its end (WLCG profile).
const NOT_BEFORE_SKEW: Duration = Duration::from_secs(60);
/// Verified tokens that are remembered; beyond it the memory is emptied and fills again.
const REMEMBERED_MAX: usize = 10_000;
/// How long a verdict stands, so that a long token ends with its key and not much later.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// An issuer whose tokens are accepted, and what they may speak of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedIssuer {
    /// The `iss` claim, compared as text: a final slash matters.
    pub issuer: String,
    /// The part of the namespace to which its scope paths are relative. An issuer with several prefixes is
    /// listed once for each.
    pub prefix: NamespacePath,
    /// Of which VOs its users can be.
    pub vos: IssuerVos,
    /// How long its tokens may live. Longer ones are refused, however much of it is left.
    pub life_max: Duration,
    /// What its tokens can allow at most, whatever their scopes say.
    pub rights: Vec<Right>,
}

/// Of which VOs an issuer's users can be. It is the site that says so: an issuer may write any group in its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerVos {
    One(VoName),
    /// Each is of the first of these that its groups name, or of none.
    Listed(Vec<VoName>),
    /// The site has not said. Each is of a VO that is derived from the issuer and the first group, and is nobody else's.
    Unlisted,
}

impl IssuerVos {
    /// The VO of somebody of these groups; `None`: of none.
    fn vo(&self, issuer: &str, groups: &[String]) -> Option<VoName> {
        let mut named = groups.iter().map(|group| first_part(group));
        match self {
            IssuerVos::One(vo) => Some(vo.clone()),
            IssuerVos::Listed(vos) => {
                named.find_map(|name| vos.iter().find(|vo| vo.as_str() == name).cloned())
            }
            IssuerVos::Unlisted => named
                .find(|name| !name.is_empty())
                .map(|name| vo::of_token_group(issuer, name)),
        }
    }

    /// Whether a group is one of a VO that the issuer's users can be of: only then does it mean the group that the site
    /// knows by this name. VOs that are derived from an issuer have no groups that a site could know.
    pub fn speaks_for(&self, group: &str) -> bool {
        let name = first_part(group);
        match self {
            IssuerVos::One(vo) => vo.as_str() == name,
            IssuerVos::Listed(vos) => vos.iter().any(|vo| vo.as_str() == name),
            IssuerVos::Unlisted => false,
        }
    }

    /// Whether the issuer may make somebody a member of a group. What the group counts for is another question.
    fn may_name(&self, group: &str) -> bool {
        match self {
            IssuerVos::Listed(_) => self.speaks_for(group),
            // Names of groups need not begin with that of the VO.
            IssuerVos::One(_) | IssuerVos::Unlisted => true,
        }
    }
}

/// `cms` of `/cms/prod`.
fn first_part(group: &str) -> &str {
    let group = group.trim_start_matches('/');
    group.split('/').next().unwrap_or_default()
}

/// Whom a token speaks of that a trusted issuer has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOrigin {
    /// The same for all tokens of this subject, as that of an [`Identity`].
    subject: CredentialId,
    /// Of which VO the subject is.
    vo: Option<VoName>,
    /// Of which VOs users of the issuer can be.
    vos: IssuerVos,
}

impl TokenOrigin {
    /// Whether somebody may have newer tokens in the place of this one: the subject, and members of a VO that the site
    /// names for the issuer, because services submit in the name of their VO. Where it names none, of the subject's VO.
    pub fn is_of(&self, identity: &CredentialId, vo: &VoName) -> bool {
        let is_named = match &self.vos {
            IssuerVos::One(named) => named == vo,
            IssuerVos::Listed(named) => named.contains(vo),
            IssuerVos::Unlisted => self.vo.as_ref() == Some(vo),
        };
        is_named || self.subject == *identity
    }
}

/// Verifies tokens. Cheap to clone; clones share keys and memory.
#[derive(Clone)]
pub struct Verifier {
    inner: Arc<Inner>,
}

struct Inner {
    trust: RwLock<Arc<Trust>>,
    documents: Box<dyn FetchDocument>,
    /// Our own issuer's keys, which need no fetch.
    local: RwLock<HashMap<String, Arc<KeySet>>>,
    remembered: Mutex<HashMap<[u8; 32], VerifiedToken>>,
}

/// A token that was believed.
struct VerifiedToken {
    identity: Arc<Identity>,
    /// When it is looked at again, with the keys that count then.
    until: Timestamp,
}

/// What a reload replaces as a whole.
struct Trust {
    issuers: Vec<TrustedIssuer>,
    audiences: Vec<String>,
    keys: HashMap<String, Arc<IssuerKeys>>,
}

impl Trust {
    fn new(issuers: Vec<TrustedIssuer>, audiences: Vec<String>, before: Option<&Trust>) -> Trust {
        let keys = issuers.iter().map(|trusted| {
            let known = before
                .and_then(|trust| trust.keys.get(&trusted.issuer))
                .cloned();
            let keys = known.unwrap_or_else(|| Arc::new(IssuerKeys::new(&trusted.issuer)));
            (trusted.issuer.clone(), keys)
        });
        Trust {
            keys: keys.collect(),
            issuers,
            audiences,
        }
    }

    /// Of which VOs an issuer's users can be. It may be listed several times.
    fn vos(&self, issuer: &str) -> &IssuerVos {
        let listed = self.issuers.iter();
        let listed = listed.filter(|trusted| trusted.issuer == issuer);
        let mut said = listed.map(|trusted| &trusted.vos);
        let vos = said.find(|vos| **vos != IssuerVos::Unlisted);
        vos.unwrap_or(&IssuerVos::Unlisted)
    }
}

/// A token taken apart, not yet believed.
struct TokenParts<'a> {
    signed: &'a str,
    signature: &'a str,
    algorithm: Algorithm,
    kid: String,
    claims: Map<String, Value>,
}

impl Verifier {
    /// Accepts tokens of `trusted` issuers that are meant for one of `audiences` or for anybody
    /// ([`ANY_AUDIENCE`]). `documents` fetches discovery documents and keys.
    pub fn new(
        trusted: Vec<TrustedIssuer>,
        audiences: Vec<String>,
        documents: impl FetchDocument + 'static,
    ) -> Verifier {
        Verifier {
            inner: Arc::new(Inner {
                trust: RwLock::new(Arc::new(Trust::new(trusted, audiences, None))),
                documents: Box::new(documents),
                local: RwLock::default(),
                remembered: Mutex::default(),
            }),
        }
    }

    /// Gives the keys of an issuer directly (our own). It must also be trusted to count.
    pub fn with_local_keys(self, issuer: &str, jwks: &Value) -> Verifier {
        let mut local = self.inner.local.write();
        local.insert(issuer.to_owned(), Arc::new(key_set(jwks)));
        drop(local);
        self
    }

    /// Replaces the trust list and the audiences. Keys of issuers that stay are kept; verdicts are forgotten.
    pub fn replace_trust(&self, trusted: Vec<TrustedIssuer>, audiences: Vec<String>) {
        let mut trust = self.inner.trust.write();
        *trust = Arc::new(Trust::new(trusted, audiences, Some(&trust)));
        self.remembered().clear();
    }

    /// Who bears this token, or why it is not accepted.
    pub async fn verify(&self, token: &str, now: Timestamp) -> Result<Arc<Identity>, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        // Not `openssl::sha::sha256`, which looks for an implementation each time.
        let mut name = Sha256::new();
        name.update(token.as_bytes());
        let name = name.finish();
        if let Some(known) = self.remembered().get(&name) {
            match &known.identity {
                identity if now >= identity.expires => {
                    return Err(expired(&identity.scope, identity.expires));
                }
                identity if now < known.until => return Ok(Arc::clone(identity)),
                _ => {}
            }
        }
        let trust = self.trust();
        let identity = Arc::new(self.verify_unknown(&trust, token, now).await?);
        let mut remembered = self.remembered();
        // A reload while we were waiting for keys has emptied the memory for good reason.
        if Arc::ptr_eq(&trust, &self.trust()) {
            if remembered.len() >= REMEMBERED_MAX {
                remembered.retain(|_, known| now < known.until);
            }
            if remembered.len() >= REMEMBERED_MAX {
                remembered.clear();
            }
            let until = (now + REMEMBERED_FOR).min(identity.expires);
            let identity = Arc::clone(&identity);
            remembered.insert(name, VerifiedToken { identity, until });
        }
        Ok(identity)
    }

    async fn verify_unknown(
        &self,
        trust: &Trust,
        token: &str,
        now: Timestamp,
    ) -> Result<Identity, TokenError> {
        let unverified = take_apart(token)?;
        let issuer = self.genuine_issuer(trust, &unverified, now).await?;
        identify(&unverified.claims, issuer, trust, now)
    }

    /// Whom a token speaks of, whomever it is meant for: a storage element, say. Errors: no trusted issuer has signed it.
    pub async fn origin(&self, token: &str, now: Timestamp) -> Result<TokenOrigin, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let trust = self.trust();
        let unverified = take_apart(token)?;
        let issuer = self.genuine_issuer(&trust, &unverified, now).await?;
        let subject = text_claim(&unverified.claims, "sub")?;
        let mut groups = list_claim(&unverified.claims, "wlcg.groups")?;
        let vos = trust.vos(issuer);
        groups.retain(|group| vos.may_name(group));
        Ok(TokenOrigin {
            subject: delegation_id(issuer, subject),
            vo: vos.vo(issuer, &groups),
            vos: vos.clone(),
        })
    }

    /// The issuer of a token that it has signed.
    async fn genuine_issuer<'a>(
        &self,
        trust: &Trust,
        unverified: &'a TokenParts<'_>,
        now: Timestamp,
    ) -> Result<&'a str, TokenError> {
        let issuer = text_claim(&unverified.claims, "iss")?;
        let key = self.key(trust, issuer, &unverified.kid, now).await?;
        check_signature(unverified, &key)?;
        Ok(issuer)
    }

    /// Whether tokens that this key of this issuer has signed would be believed. Errors: why not.
    pub async fn trusts(&self, issuer: &str, kid: &str, now: Timestamp) -> Result<(), TokenError> {
        let trust = self.trust();
        self.key(&trust, issuer, kid, now).await.map(drop)
    }

    async fn key(
        &self,
        trust: &Trust,
        issuer: &str,
        kid: &str,
        now: Timestamp,
    ) -> Result<Arc<VerifyingKey>, TokenError> {
        // The trust list comes before any fetch: a stranger's token must not make us open connections.
        let keys = trust
            .keys
            .get(issuer)
            .ok_or_else(|| TokenError::Issuer(shown(issuer)))?;
        match self.local_key(issuer, kid) {
            Some(found) => found,
            None => keys.find(kid, now, self.inner.documents.as_ref()).await,
        }
    }

    /// `None`: this issuer is not local. `Some(Err)`: it is, and has no such key.
    fn local_key(&self, issuer: &str, kid: &str) -> Option<Result<Arc<VerifyingKey>, TokenError>> {
        let local = self.inner.local.read();
        let keys = local.get(issuer)?;
        Some(
            keys.get(kid)
                .cloned()
                .ok_or_else(|| TokenError::UnknownKey {
                    issuer: issuer.to_owned(),
                    kid: shown(kid),
                }),
        )
    }

    fn trust(&self) -> Arc<Trust> {
        let trust = self.inner.trust.read();
        Arc::clone(&trust)
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<[u8; 32], VerifiedToken>> {
        // Entries are inserted whole, so a panic elsewhere leaves nothing half-written.
        self.inner.remembered.lock()
    }
}

/// Which key has signed a token (RFC 7515 §4.1.4), as the token says. `None`: it is no token.
pub fn key_id(token: &str) -> Option<String> {
    take_apart(token).ok().map(|parts| parts.kid)
}

/// RFC 7515 §3.1: three parts of base64url, the first two JSON objects.
fn take_apart(token: &str) -> Result<TokenParts<'_>, TokenError> {
    let malformed = |what| move || TokenError::Malformed(what);
    let (signed, signature) = token
        .rsplit_once('.')
        .ok_or_else(malformed("not three parts"))?;
    let (header, payload) = signed
        .split_once('.')
        .ok_or_else(malformed("not three parts"))?;
    let header = json_object(header).ok_or_else(malformed("the header is not a JSON object"))?;
    let named = header.get("alg").and_then(Value::as_str);
    let named = named.ok_or_else(malformed("the header has no 'alg'"))?;
    // `none` and HMAC end here, before any key is looked for.
    let algorithm = Algorithm::named(named).ok_or_else(|| TokenError::Algorithm(shown(named)))?;
    // RFC 7515 §4.1.11: an extension that must be understood and is not spoils the token.
    if header.contains_key("crit") {
        return Err(TokenError::Malformed(
            "the header demands an unknown extension",
        ));
    }
    let kid = header
        .get("kid")
        .and_then(Value::as_str)
        .filter(|kid| !kid.is_empty());
    let kid = kid
        .ok_or_else(malformed("the header has no 'kid'"))?
        .to_owned();
    let claims = json_object(payload).ok_or_else(malformed("the claims are not a JSON object"))?;
    Ok(TokenParts {
        signed,
        signature,
        algorithm,
        kid,
        claims,
    })
}

pub(super) fn json_object(part: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    let UniqueNames(object) = serde_json::from_slice(&bytes).ok()?;
    Some(object)
}

/// An object in which no name stands twice. RFC 7515 §4 and RFC 7519 §4 leave it to the reader to refuse such
/// or to take the last one; two readers of one token must not understand two things.
struct UniqueNames(Map<String, Value>);

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UniqueNames, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = UniqueNames;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<UniqueNames, A::Error> {
                let mut object = Map::new();
                while let Some((name, value)) = members.next_entry::<String, Value>()? {
                    if object.insert(name, value).is_some() {
                        return Err(serde::de::Error::custom("a name stands twice"));
                    }
                }
                Ok(UniqueNames(object))
            }
        }
        from.deserialize_map(Members)
    }
}

fn check_signature(token: &TokenParts<'_>, key: &VerifyingKey) -> Result<(), TokenError> {
    // The key says which algorithm it is for; the token may not choose another one for it.
    if key.algorithm != token.algorithm {
        return Err(TokenError::Signature);
    }
    match key.has_signed(token.signed.as_bytes(), token.signature) {
        true => Ok(()),
        false => Err(TokenError::Signature),
    }
}

/// The claims that the profile requires (WLCG profile 1.3, common claims), then what they amount to here.
fn identify(
    claims: &Map<String, Value>,
    issuer: &str,
    trust: &Trust,
    now: Timestamp,
) -> Result<Identity, TokenError> {
    let scope = match claims.get("scope") {
        None => "",
        Some(value) => value.as_str().ok_or(TokenError::Claim("scope"))?,
    };
    let expires = time_claim(claims, "exp")?;
    if now >= expires {
        return Err(expired(scope, expires));
    }
    if claims.contains_key("nbf") {
        let begins = time_claim(claims, "nbf")?;
        if now + NOT_BEFORE_SKEW < begins {
            return Err(TokenError::NotYetValid(begins));
        }
    }
    let made = time_claim(claims, "iat")?;
    text_claim(claims, "jti")?;
    let subject = text_claim(claims, "sub")?;
    check_version(text_claim(claims, "wlcg.ver")?)?;
    check_audience(claims, scope, &trust.audiences)?;
    let mut all_groups = list_claim(claims, "wlcg.groups")?;
    let here = || {
        trust
            .issuers
            .iter()
            .filter(|trusted| trusted.issuer == issuer)
    };
    // A token that says it will be made in the future lives from now on, as far as clocks agree.
    check_life(here(), expires.since(made.min(now + NOT_BEFORE_SKEW)))?;
    let mut capabilities = Vec::new();
    for trusted in here() {
        let granted = scope::capabilities(scope, &trusted.prefix)?.into_iter();
        capabilities.extend(granted.filter_map(|granted| granted.within(&trusted.rights)));
    }
    let vos = trust.vos(issuer);
    all_groups.retain(|group| vos.may_name(group));
    let vo = vos.vo(issuer, &all_groups);
    Ok(Identity {
        method: Method::Token,
        user: UserName::new(subject),
        issuer: issuer.to_owned(),
        vo,
        fqans: Vec::new(),
        groups: match scope::is_capability_based(scope) {
            true => Vec::new(),
            false => all_groups,
        },
        capabilities,
        expires,
        delegation: delegation_id(issuer, subject),
        scope: scope.to_owned(),
    })
}

/// An unknown major version is refused, a newer minor one accepted.
fn check_version(version: &str) -> Result<(), TokenError> {
    let major = version.split('.').next();
    let sound = version.split('.').all(|part| part.parse::<u16>().is_ok());
    match major == Some("1") && sound {
        true => Ok(()),
        false => Err(TokenError::ProfileVersion(shown(version))),
    }
}

fn expired(scope: &str, expires: Timestamp) -> TokenError {
    match grants_administration(scope) {
        true => TokenError::AdminExpired(expires),
        false => TokenError::Expired(expires),
    }
}

fn grants_administration(scope: &str) -> bool {
    scope
        .split_ascii_whitespace()
        .any(|item| item == ADMIN_SCOPE)
}

/// An issuer with several prefixes is listed once for each; its strictest bound counts.
fn check_life<'a>(
    listed: impl Iterator<Item = &'a TrustedIssuer>,
    life: Duration,
) -> Result<(), TokenError> {
    match listed.min_by_key(|trusted| trusted.life_max) {
        Some(trusted) if life > trusted.life_max => Err(TokenError::Life {
            issuer: trusted.issuer.clone(),
            life,
            max: trusted.life_max,
        }),
        Some(_) | None => Ok(()),
    }
}

/// Compared as text, one or many (RFC 7519 §4.1.3): no default port, no final slash is added or removed. Whoever may
/// administer must name us, and nobody else may be able to use the token with us.
fn check_audience(
    claims: &Map<String, Value>,
    scope: &str,
    ours: &[String],
) -> Result<(), TokenError> {
    let named: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => return Err(TokenError::Claim("aud")),
    };
    let for_any = named.contains(&ANY_AUDIENCE);
    let for_us = |name: &&str| ours.iter().any(|our| our == name);
    match named.iter().any(for_us) {
        _ if for_any && grants_administration(scope) => Err(TokenError::AdminForAny),
        found if found || for_any => Ok(()),
        _ => Err(TokenError::Audience {
            named: shown(&named.join(" ")),
            accepted: ours.join(", "),
        }),
    }
}

fn text_claim<'a>(
    claims: &'a Map<String, Value>,
    name: &'static str,
) -> Result<&'a str, TokenError> {
    let text = claims.get(name).and_then(Value::as_str);
    text.filter(|text| !text.is_empty())
        .ok_or(TokenError::Claim(name))
}

/// A NumericDate (RFC 7519 §2), which may have a fraction.
pub(super) fn time_claim(
    claims: &Map<String, Value>,
    name: &'static str,
) -> Result<Timestamp, TokenError> {
    let seconds = claims.get(name).and_then(Value::as_f64);
    let seconds = seconds.filter(|value| (0.0..1e12).contains(value));
    seconds
        .map(|value| Timestamp((value * 1000.0) as i64))
        .ok_or(TokenError::Claim(name))
}

fn list_claim(claims: &Map<String, Value>, name: &'static str) -> Result<Vec<String>, TokenError> {
    let Some(value) = claims.get(name) else {
        return Ok(Vec::new());
    };
    let items = value.as_array().ok_or(TokenError::Claim(name))?;
    let text = |item: &Value| {
        item.as_str()
            .map(str::to_owned)
            .ok_or(TokenError::Claim(name))
    };
    items.iter().map(text).collect()
}
