//! The public keys of one issuer: fetched by discovery, remembered, refreshed, and kept through an outage.

use super::TokenError;
use super::signature::{Algorithm, VerifyingKey};
use crate::http1::client::{Client, ClientRequest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use penstock_model::{TimeSpan, Timestamp};
use serde_json::Value;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;

// WLCG profile 1.3: refresh between 1 h and 6 h, expire between 1 d and 4 d. One hour is kept at least,
// whatever the HTTP headers say, because they are never looked at.
const REFRESH_AFTER: Duration = Duration::from_secs(6 * 3600);
const EXPIRE_AFTER: Duration = Duration::from_secs(2 * 86_400);
/// An unknown key name may be a new key, or an attack that makes us fetch: at most one look per minute.
const REFETCH_PAUSE: Duration = Duration::from_secs(60);
/// The least wait after a fetch that failed when no key is at hand, since every request is refused meanwhile. Twice the
/// time that the fetch took when that is longer, so that an issuer that is slow to fail does not hold up everybody.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// How long the keys of an issuer that does not answer are used before it is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(300);
/// Bounds on what an issuer may publish.
const KEYS_MAX: usize = 100;
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// A request waits for the fetch, so it must be shorter than what clients wait for us.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// A document's bytes, or why it could not be had.
pub type DocumentFetch<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>>;

/// Gets a JSON document by https, with bounds on time and size of its own. Implemented by the HTTP client,
/// and by tests without a network.
pub trait FetchDocument: Send + Sync {
    /// The body of a 200 answer to `GET url`; anything else is an error text.
    fn fetch<'a>(&'a self, url: &'a str) -> DocumentFetch<'a>;
}

impl FetchDocument for Client {
    /// Redirects are not followed: the address comes from the issuer itself, who can write the right one.
    fn fetch<'a>(&'a self, url: &'a str) -> DocumentFetch<'a> {
        let get = async move {
            let url = url::Url::parse(url).map_err(|why| why.to_string())?;
            let request = ClientRequest::new(http::Method::GET, url);
            let mut answer = self.send(request).await.map_err(|why| why.to_string())?;
            if answer.status != http::StatusCode::OK {
                return Err(format!("the answer is {}", answer.status));
            }
            let body = answer.read_all(DOCUMENT_BYTES_MAX as u64).await;
            body.map_err(|why| why.to_string())
        };
        Box::pin(async move {
            let in_time = tokio::time::timeout(FETCH_TIMEOUT, get).await;
            in_time.unwrap_or_else(|_| Err(format!("no answer within {}", TimeSpan(FETCH_TIMEOUT))))
        })
    }
}

pub(super) type KeySet = HashMap<String, Arc<VerifyingKey>>;

/// What is remembered of one issuer.
pub(super) struct IssuerKeys {
    issuer: String,
    state: Mutex<KeysState>,
    /// Held while fetching, so that a crowd of requests makes one fetch.
    fetching: AsyncMutex<()>,
}

#[derive(Default)]
struct KeysState {
    keys: Arc<KeySet>,
    /// When `keys` came; `None` before the first success.
    fetched: Option<Timestamp>,
    /// When a fetch was last begun, successful or not, and what went wrong.
    attempted: Option<Timestamp>,
    trouble: Option<Trouble>,
}

/// A fetch that failed.
struct Trouble {
    why: String,
    /// How long nobody tries again when no key is at hand.
    pause: Duration,
}

impl IssuerKeys {
    pub fn new(issuer: &str) -> IssuerKeys {
        IssuerKeys {
            issuer: issuer.to_owned(),
            state: Mutex::default(),
            fetching: AsyncMutex::new(()),
        }
    }

    /// The key of that name, after a fetch if one is due and allowed.
    pub async fn find(
        &self,
        kid: &str,
        now: Timestamp,
        from: &dyn FetchDocument,
    ) -> Result<Arc<VerifyingKey>, TokenError> {
        if let Some(key) = self.fresh(kid, now) {
            return Ok(key);
        }
        // With a usable key at hand nobody waits behind another's fetch.
        let held = match (self.usable(kid, now), self.fetching.try_lock()) {
            (Some(key), Err(_)) => return Ok(key),
            (_, Ok(held)) => held,
            (None, Err(_)) => self.fetching.lock().await,
        };
        if self.fresh(kid, now).is_none() && self.may_fetch(kid, now) {
            self.locked().attempted = Some(now);
            let begun = Instant::now();
            let fetched = fetch_keys(&self.issuer, from).await;
            let pause = FAILED_PAUSE.max(begun.elapsed() * 2);
            self.remember(fetched.map_err(|why| Trouble { why, pause }), now);
        }
        drop(held);
        self.usable(kid, now).ok_or_else(|| self.why_not(kid, now))
    }

    fn fresh(&self, kid: &str, now: Timestamp) -> Option<Arc<VerifyingKey>> {
        let state = self.locked();
        let young = state
            .fetched
            .is_some_and(|at| now.since(at) < REFRESH_AFTER);
        young.then(|| state.keys.get(kid).cloned()).flatten()
    }

    fn usable(&self, kid: &str, now: Timestamp) -> Option<Arc<VerifyingKey>> {
        let state = self.locked();
        let alive = state.fetched.is_some_and(|at| now.since(at) < EXPIRE_AFTER);
        alive.then(|| state.keys.get(kid).cloned()).flatten()
    }

    fn may_fetch(&self, kid: &str, now: Timestamp) -> bool {
        let usable = self.usable(kid, now).is_some();
        let state = self.locked();
        let none_at_hand = state.fetched.is_none_or(|at| now.since(at) >= EXPIRE_AFTER);
        let pause = match &state.trouble {
            _ if usable => RETRY_PAUSE,
            Some(trouble) if none_at_hand => trouble.pause,
            Some(_) | None => REFETCH_PAUSE,
        };
        state.attempted.is_none_or(|at| now.since(at) >= pause)
    }

    fn remember(&self, fetched: Result<KeySet, Trouble>, now: Timestamp) {
        let mut state = self.locked();
        match fetched {
            Ok(keys) => {
                state.keys = Arc::new(keys);
                state.fetched = Some(now);
                state.trouble = None;
            }
            Err(trouble) => {
                let why = &trouble.why;
                tracing::warn!(issuer = %self.issuer, %why, "the keys of an issuer cannot be fetched");
                state.trouble = Some(trouble);
            }
        }
    }

    fn why_not(&self, kid: &str, now: Timestamp) -> TokenError {
        let state = self.locked();
        match (&state.trouble, state.fetched) {
            (None, Some(at)) if now.since(at) < EXPIRE_AFTER => TokenError::UnknownKey {
                issuer: self.issuer.clone(),
                kid: super::shown(kid),
            },
            (trouble, _) => TokenError::KeysUnavailable {
                issuer: self.issuer.clone(),
                why: trouble
                    .as_ref()
                    .map_or("no answer yet", |trouble| &trouble.why)
                    .to_owned(),
            },
        }
    }

    fn locked(&self) -> parking_lot::MutexGuard<'_, KeysState> {
        // The state is replaced whole, so a panic elsewhere cannot leave it half-written.
        self.state.lock()
    }
}

/// OpenID Connect Discovery 1.0 §4, then RFC 7517.
async fn fetch_keys(issuer: &str, from: &dyn FetchDocument) -> Result<KeySet, String> {
    let address = super::configuration_address(issuer);
    let configuration = fetch_json(&address, from).await?;
    // Discovery §4.3: the document must speak of the issuer that we asked, or it is somebody else's.
    if configuration["issuer"].as_str() != Some(issuer) {
        return Err(format!("{address} names another issuer"));
    }
    let jwks_uri = configuration["jwks_uri"]
        .as_str()
        .ok_or_else(|| format!("{address} has no jwks_uri"))?;
    let keys = key_set(&fetch_json(jwks_uri, from).await?);
    match keys.is_empty() {
        true => Err(format!("{jwks_uri} holds no key for RS256 or ES256")),
        false => Ok(keys),
    }
}

async fn fetch_json(url: &str, from: &dyn FetchDocument) -> Result<Value, String> {
    let shown = penstock_model::url::redact(url);
    // Keys that came over an unprotected line would prove nothing.
    if !url.starts_with("https://") {
        return Err(format!("{shown} is not an https address"));
    }
    let body = from
        .fetch(url)
        .await
        .map_err(|why| format!("{shown}: {why}"))?;
    if body.len() > DOCUMENT_BYTES_MAX {
        return Err(format!(
            "{shown} answers with more than {DOCUMENT_BYTES_MAX} bytes"
        ));
    }
    serde_json::from_slice(&body).map_err(|why| format!("{shown} does not answer with JSON: {why}"))
}

/// The keys of a JWK set that we can use. Others are left out, as RFC 7517 §5 asks.
pub(super) fn key_set(jwks: &Value) -> KeySet {
    let keys = jwks["keys"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    keys.iter().take(KEYS_MAX).filter_map(usable_key).collect()
}

fn usable_key(jwk: &Value) -> Option<(String, Arc<VerifyingKey>)> {
    let kid = jwk["kid"].as_str().filter(|kid| !kid.is_empty())?;
    if jwk["use"].as_str().is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let field = |name: &str| {
        URL_SAFE_NO_PAD
            .decode(jwk[name].as_str()?.trim_end_matches('='))
            .ok()
    };
    let key = match jwk["kty"].as_str()? {
        "RSA" => VerifyingKey::rsa(&field("n")?, &field("e")?)?,
        "EC" if jwk["crv"] == "P-256" => VerifyingKey::p256(&field("x")?, &field("y")?)?,
        _ => return None,
    };
    let said = jwk["alg"].as_str().map(Algorithm::named);
    let fitting = said.is_none_or(|said| said == Some(key.algorithm));
    fitting.then(|| (kid.to_owned(), Arc::new(key)))
}
