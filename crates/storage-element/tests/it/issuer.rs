//! A token issuer of somebody else, which publishes its keys over HTTPS and signs whatever a test wants.

use crate::site::{AUDIENCE, Trust};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode};
use openssl::bn::BigNumContext;
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use parking_lot::Mutex;
use penstock_protocol::http1::Limits;
use penstock_protocol::http1::server::Connection;
use penstock_protocol::tls::ServerTls;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// One key pair, and how its public half is published.
pub struct Key {
    algorithm: &'static str,
    private: PKey<Private>,
    pub public: Value,
    /// The public half in PEM: what an attacker would use as an HMAC secret.
    pub pem: Vec<u8>,
}

pub static RSA: LazyLock<Key> = LazyLock::new(|| rsa("rsa"));
/// Another key under the same name.
pub static FORGED: LazyLock<Key> = LazyLock::new(|| rsa("rsa"));
pub static EC: LazyLock<Key> = LazyLock::new(|| {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a curve");
    let pair = EcKey::generate(&group).expect("a key");
    let mut context = BigNumContext::new().expect("memory");
    let (mut x, mut y) = (
        openssl::bn::BigNum::new().expect("memory"),
        openssl::bn::BigNum::new().expect("memory"),
    );
    pair.public_key()
        .affine_coordinates(&group, &mut x, &mut y, &mut context)
        .expect("a point");
    let part = |number: &openssl::bn::BigNumRef| {
        URL_SAFE_NO_PAD.encode(number.to_vec_padded(32).expect("32 bytes"))
    };
    let public = json!({"kty": "EC", "crv": "P-256", "kid": "ec", "alg": "ES256", "use": "sig",
                        "x": part(&x), "y": part(&y)});
    let key = PKey::from_ec_key(pair).expect("a key");
    Key {
        algorithm: "ES256",
        public,
        pem: key.public_key_to_pem().expect("PEM"),
        private: key,
    }
});

fn rsa(kid: &str) -> Key {
    let pair = Rsa::generate(2048).expect("a key");
    let part = |number: &openssl::bn::BigNumRef| URL_SAFE_NO_PAD.encode(number.to_vec());
    let public = json!({"kty": "RSA", "kid": kid, "alg": "RS256", "use": "sig",
                        "n": part(pair.n()), "e": part(pair.e())});
    Key {
        algorithm: "RS256",
        public,
        pem: pair.public_key_to_pem().expect("PEM"),
        private: PKey::from_rsa(pair).expect("a key"),
    }
}

impl Key {
    /// Signs under the key's own name.
    pub fn sign(&self, claims: &Value) -> String {
        let name = &self.public["kid"];
        let header = json!({"alg": self.algorithm, "typ": "JWT", "kid": name});
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// Signs texts as they are, which no library would write so.
    pub fn sign_text(&self, header: &str, claims: &str) -> String {
        let signed = unsigned(header, claims);
        format!(
            "{signed}.{}",
            signature(&self.private, self.algorithm, &signed)
        )
    }
}

/// By any algorithm with SHA-256, also those that no token may use.
pub fn signature(key: &PKey<Private>, algorithm: &str, text: &str) -> String {
    let mut signer = openssl::sign::Signer::new(MessageDigest::sha256(), key).expect("a signer");
    let signature = signer.sign_oneshot_to_vec(text.as_bytes()).expect("signed");
    URL_SAFE_NO_PAD.encode(match algorithm {
        "ES256" => {
            let numbers = EcdsaSig::from_der(&signature).expect("a signature");
            [numbers.r(), numbers.s()]
                .map(|number| number.to_vec_padded(32).expect("32 bytes"))
                .concat()
        }
        _ => signature,
    })
}

/// Header and claims without a signature.
pub fn unsigned(header: &str, claims: &str) -> String {
    format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims)
    )
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs() as i64
}

/// A served issuer.
pub struct Issuer {
    /// As its tokens spell it.
    pub url: String,
    published: Arc<Mutex<Vec<Value>>>,
    fetches: Arc<AtomicUsize>,
    down: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Issuer {
    /// Serves on a free port, and publishes both keys. `ending` is what its name ends with.
    pub async fn start(trust: &Trust, ending: &str) -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("https://{}", listener.local_addr().expect("bound"));
        let url = format!("{base}{ending}");
        let published = Arc::new(Mutex::new(vec![RSA.public.clone(), EC.public.clone()]));
        let fetches = Arc::new(AtomicUsize::new(0));
        let down = Arc::new(AtomicBool::new(false));
        let configuration = json!({"issuer": url, "jwks_uri": format!("{base}/keys")});
        let tls = trust.server();
        let (keys, count, ended) = (
            Arc::clone(&published),
            Arc::clone(&fetches),
            Arc::clone(&down),
        );
        let task = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (tls, keys, count, ended) = (
                    tls.clone(),
                    Arc::clone(&keys),
                    Arc::clone(&count),
                    Arc::clone(&ended),
                );
                let configuration = configuration.clone();
                tokio::spawn(async move {
                    answer(tcp, tls, &configuration, (&keys, &count, &ended)).await;
                });
            }
        });
        Issuer {
            url,
            published,
            fetches,
            down,
            task,
        }
    }

    /// Publishes these keys and no others from now on.
    pub fn publish(&self, keys: &[&Key]) {
        let keys = keys.iter().map(|key| key.public.clone()).collect();
        *self.published.lock() = keys;
    }

    /// How often the key set was fetched.
    pub fn fetches(&self) -> usize {
        self.fetches.load(Ordering::Relaxed)
    }

    /// Answers nobody any more.
    pub fn stop(&self) {
        self.down.store(true, Ordering::Relaxed);
        self.task.abort();
    }

    /// Good claims for the tests' door, with these scopes.
    pub fn claims(&self, scope: &str) -> Value {
        static TOKENS: AtomicUsize = AtomicUsize::new(0);
        let now = now();
        json!({
            "iss": self.url, "sub": "bob", "aud": AUDIENCE, "exp": now + 600, "nbf": now - 5,
            "iat": now - 5, "jti": TOKENS.fetch_add(1, Ordering::Relaxed).to_string(),
            "scope": scope, "wlcg.ver": "1.0",
        })
    }

    /// A good token with these scopes.
    pub fn token(&self, scope: &str) -> String {
        RSA.sign(&self.claims(scope))
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    tcp: TcpStream,
    tls: ServerTls,
    configuration: &Value,
    (keys, fetches, down): (&Mutex<Vec<Value>>, &AtomicUsize, &AtomicBool),
) {
    let Ok(stream) = tls.accept(tcp).await else {
        return;
    };
    let mut connection = Connection::new(stream, Limits::default());
    while let Ok(Some(request)) = connection.next_request().await {
        if down.load(Ordering::Relaxed) {
            return;
        }
        let (status, body) = match request.path() {
            "/.well-known/openid-configuration" => (StatusCode::OK, configuration.clone()),
            "/keys" => {
                fetches.fetch_add(1, Ordering::Relaxed);
                let keys = keys.lock().clone();
                (StatusCode::OK, json!({ "keys": keys }))
            }
            _ => (StatusCode::NOT_FOUND, Value::Null),
        };
        // What HTTP says of caching must not count (WLCG profile 1.3).
        let mut headers = HeaderMap::new();
        headers.insert(
            http::header::CACHE_CONTROL,
            http::HeaderValue::from_static("no-store, max-age=0"),
        );
        let body = body.to_string();
        let sent = connection.respond(status, headers, body.as_bytes()).await;
        if sent.is_err() {
            return;
        }
    }
}
