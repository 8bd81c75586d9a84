//! Idle connections, kept for the next request to the same server with the same credentials.
//!
//! With the same ones, because some servers remember with a connection who sent a token on it, and then do for
//! whoever comes next on it what that user may do. XRootD 5.5 is such a server.

use super::super::wire::Wire;
use super::connect::Endpoint;
use super::{ClientError, ClientRequest};
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use openssl::sha::Sha256;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a connection may wait. Below the idle timeout of common servers, so that few are found closed.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Idle connections to all servers together.
const IDLE_TOTAL_MAX: usize = 4096;
/// Parameters of a query that carry a credential: XRootD's, and that of RFC 6750 §2.3.
const SECRET_PARAMETERS: [&str; 2] = ["authz", "access_token"];

/// What a connection may be used for: a server, and one user's requests to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConnectionKey {
    pub(super) endpoint: Endpoint,
    user: User,
}

/// Stands for the credentials of a request without being one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct User([u8; 32]);

impl ConnectionKey {
    pub(super) fn of(request: &ClientRequest) -> Result<ConnectionKey, ClientError> {
        let mut all = Sha256::new();
        let mut add = |kind: &[u8], secret: &[u8]| {
            all.update(kind);
            all.update(&(secret.len() as u64).to_be_bytes());
            all.update(secret);
        };
        for name in [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE] {
            for value in request.headers.get_all(&name) {
                add(name.as_str().as_bytes(), lasting_part(value.as_bytes()));
            }
        }
        for (name, value) in request.url.query_pairs() {
            if SECRET_PARAMETERS.contains(&name.as_ref()) {
                add(b"query", value.as_bytes());
            }
        }
        if let Some(identity) = &request.identity {
            add(b"certificate", identity.name());
        }
        Ok(ConnectionKey {
            endpoint: Endpoint::of(&request.url)?,
            user: User(all.finish()),
        })
    }
}

/// A signature of AWS is another one for each request; the key that made it stays. The whole of other credentials.
fn lasting_part(credentials: &[u8]) -> &[u8] {
    const SIGNED: &[u8] = b"AWS4-HMAC-SHA256 Credential=";
    let scope = credentials
        .strip_prefix(SIGNED)
        .and_then(|key| key.iter().position(|byte| *byte == b'/'));
    match scope {
        Some(at) => &credentials[..SIGNED.len() + at],
        None => credentials,
    }
}

pub(super) struct IdleConnections {
    idle_per_host: usize,
    kept: Mutex<IdleByEndpoint>,
}

#[derive(Default)]
struct IdleByEndpoint {
    /// The longest idle first.
    idle: HashMap<Endpoint, Vec<IdleConnection>>,
    total: usize,
    /// A task is there that closes what has expired.
    swept: bool,
}

struct IdleConnection {
    since: Instant,
    user: User,
    wire: Wire,
}

impl IdleConnections {
    pub(super) fn new(idle_per_host: usize) -> Arc<IdleConnections> {
        Arc::new(IdleConnections {
            idle_per_host,
            kept: Mutex::default(),
        })
    }

    /// The connection for this key that was used last, if it is still open and silent.
    pub(super) fn take(&self, key: &ConnectionKey) -> Option<Wire> {
        loop {
            let mut idle = {
                let mut kept = self.lock();
                let all = kept.idle.get_mut(&key.endpoint)?;
                let newest = all.iter().rposition(|idle| idle.user == key.user)?;
                let idle = all.remove(newest);
                if all.is_empty() {
                    kept.idle.remove(&key.endpoint);
                }
                kept.total -= 1;
                idle
            };
            // Bytes without a request (or the end of the stream) mean that the server has given it up.
            if idle.since.elapsed() < IDLE_MAX && idle.wire.try_fill().is_none() {
                return Some(idle.wire);
            }
        }
    }

    /// Keeps a connection whose last response was read to its end, if need be in place of the one to that server that
    /// nobody has wanted for longest. Must be called inside a tokio runtime.
    pub(super) fn give_back(self: &Arc<Self>, key: ConnectionKey, mut wire: Wire) {
        if !wire.unread().is_empty() || self.idle_per_host == 0 {
            return;
        }
        wire.tidy();
        let mut kept = self.lock();
        if kept.total >= IDLE_TOTAL_MAX {
            return;
        }
        let all = kept.idle.entry(key.endpoint).or_default();
        let replaced = all.len() >= self.idle_per_host;
        if replaced {
            all.remove(0);
        }
        all.push(IdleConnection {
            since: Instant::now(),
            user: key.user,
            wire,
        });
        kept.total += usize::from(!replaced);
        if !kept.swept
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            kept.swept = true;
            // Ends by itself: when nothing is kept any more, or nobody uses it.
            runtime.spawn(sweep(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, IdleByEndpoint> {
        self.kept.lock()
    }

    /// Closes what has expired. False when nothing is left, so that no sweep is needed.
    fn close_expired(&self) -> bool {
        let mut kept = self.lock();
        let mut total = 0;
        kept.idle.retain(|_, all| {
            all.retain(|idle| idle.since.elapsed() < IDLE_MAX);
            total += all.len();
            !all.is_empty()
        });
        kept.total = total;
        kept.swept = total > 0;
        kept.swept
    }
}

/// Closes expired connections also when no request comes any more.
async fn sweep(connections: Weak<IdleConnections>) {
    loop {
        tokio::time::sleep(IDLE_MAX / 3).await;
        match connections.upgrade() {
            Some(connections) if connections.close_expired() => {}
            Some(_) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Method};
    use url::Url;

    #[test]
    fn requests_signed_by_one_key_share_connections() {
        let key = |authorization: &'static str| {
            let url = Url::parse("https://s3.example.org/b/f").expect("valid");
            let mut request = ClientRequest::new(Method::GET, url);
            let value = HeaderValue::from_static(authorization);
            request.headers.insert(AUTHORIZATION, value);
            ConnectionKey::of(&request).expect("valid")
        };
        let first = key("AWS4-HMAC-SHA256 Credential=AKIA/20261121/r/s3/aws4_request, Signature=1");
        let second =
            key("AWS4-HMAC-SHA256 Credential=AKIA/20261122/r/s3/aws4_request, Signature=2");
        let other = key("AWS4-HMAC-SHA256 Credential=AKIB/20261121/r/s3/aws4_request, Signature=1");
        assert_eq!(first, second);
        assert_ne!(first, other);
        assert_ne!(key("Bearer a/b"), key("Bearer a/c"));
    }
}
