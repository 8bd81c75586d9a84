//! What a client delivers for a key of ours, and the documents of issuers by which tokens are believed.

use super::token::{trusted, unsigned_with_kid};
use super::{Target, texts};
use openssl::x509::X509Req;
use penstock_model::Timestamp;
use penstock_protocol::delegation::ProxyRequest;
use penstock_protocol::token::{DocumentFetch, FetchDocument, Verifier};
use penstock_protocol::x509::ClientCertificates;
use std::sync::LazyLock;

const NOW: Timestamp = Timestamp(1_795_241_992_000);
const ISSUER: &str = "https://issuer.example.org";
const JWKS: &str = "https://issuer.example.org/jwk";

pub const PROXIES: Target = Target {
    name: "delivered_proxies",
    check: check_proxy,
    seeds: || {
        let request = REQUEST.to_pem().expect("PEM");
        let own = super::certificate::alice_pem();
        vec![
            own.clone(),
            [&own[..], &own].concat(),
            [
                &own[..],
                &request,
                b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
            ]
            .concat(),
        ]
    },
};

pub const KEYS: Target = Target {
    name: "issuer_keys",
    check: check_keys,
    seeds: || {
        let point = r#""x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0""#;
        let ec =
            format!(r#"{{"kty":"EC","crv":"P-256","kid":"k","use":"sig","alg":"ES256",{point}}}"#);
        let rsa = r#"{"kty":"RSA","kid":"k","n":"sXchDaQebHnPiGvyDOAT4saGEUetSyo9MKLOoWFsueri23bOdgWp4Dy1Wl","e":"AQAB"}"#;
        let secret = r#"{"kty":"oct","kid":"k","k":"c2VjcmV0","alg":"HS256"}"#;
        texts(&[
            &format!(r#"{{"keys":[{ec}]}}"#),
            &format!(r#"{{"keys":[{rsa},{secret},{ec}]}}"#),
            r#"{"keys":[]}"#,
        ])
    },
};

static REQUEST: LazyLock<ProxyRequest> = LazyLock::new(|| ProxyRequest::new().expect("a key"));

fn check_proxy(data: &[u8]) {
    let directory = super::certificate::authorities();
    let trusted = ClientCertificates::from_ca_directory(directory);
    // Nobody has signed a proxy for the key.
    let delivered = REQUEST.complete(data, &trusted, super::certificate::now());
    let why = delivered
        .err()
        .expect("nobody has signed for this key")
        .to_string();
    assert!(why.len() < 4096 + data.len(), "{why}");
    let request = REQUEST.to_pem().expect("PEM");
    X509Req::from_pem(&request).expect("it can be asked again");
}

/// An issuer whose documents are these bytes.
struct Told(Vec<u8>);

impl FetchDocument for Told {
    fn fetch<'a>(&'a self, url: &'a str) -> DocumentFetch<'a> {
        let document = match url {
            JWKS => self.0.clone(),
            _ => format!(r#"{{"issuer":"{ISSUER}","jwks_uri":"{JWKS}"}}"#).into_bytes(),
        };
        Box::pin(std::future::ready(Ok(document)))
    }
}

/// Whose configuration is these bytes.
struct Configured(Vec<u8>);

impl FetchDocument for Configured {
    fn fetch<'a>(&'a self, url: &'a str) -> DocumentFetch<'a> {
        assert!(url.starts_with("https://"), "{url}");
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

fn check_keys(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let audience = || vec!["https://se.example.org".to_owned()];
    let told = Verifier::new(vec![trusted(ISSUER, "/")], audience(), Told(data.to_vec()));
    let configured = Verifier::new(
        vec![trusted(ISSUER, "/")],
        audience(),
        Configured(data.to_vec()),
    );
    for algorithm in ["ES256", "RS256", "HS256", "none"] {
        // Whatever keys an issuer tells, nobody has signed this.
        let token = unsigned_with_kid(ISSUER, algorithm, "k");
        assert!(runtime.block_on(told.verify(&token, NOW)).is_err());
        assert!(runtime.block_on(configured.verify(&token, NOW)).is_err());
    }
}
