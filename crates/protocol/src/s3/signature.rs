//! AWS Signature Version 4: requests signed by a header, and URLs that carry their signature.
//!
//! What is signed is the canonical form of path and query, so the URL is given that form before it is sent: a server
//! that reads either the text or its meaning arrives at the same signature.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use openssl::hash::{MessageDigest, hash};
use openssl::pkey::PKey;
use openssl::sign::Signer;
use penstock_model::Timestamp;
use penstock_model::text::hex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::fmt;
use std::fmt::Write;
use std::time::Duration;
use url::Url;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const AMZ_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const AMZ_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
/// Everything but the unreserved characters of RFC 3986 §2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same in a path, where '/' stays. S3 encodes each segment once and normalises nothing.
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// An access key with its secret. Shown without it.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The identifier, which requests name.
    pub access_key: String,
    pub secret_key: String,
    /// Goes with temporary keys.
    pub session_token: Option<String>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Keys({})", self.access_key)
    }
}

/// What is signed of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Nothing.
    Unsigned,
    /// These bytes: the server refuses others.
    Bytes(&'a [u8]),
}

/// Signs for one region at one time.
#[derive(Debug, Clone, Copy)]
pub struct RequestSigner<'a> {
    keys: &'a Keys,
    region: &'a str,
    service: &'a str,
    at: Timestamp,
}

impl<'a> RequestSigner<'a> {
    /// For S3. Servers refuse a time that is more than a quarter of an hour off theirs.
    pub fn new(keys: &'a Keys, region: &'a str, at: Timestamp) -> RequestSigner<'a> {
        RequestSigner {
            keys,
            region,
            service: "s3",
            at,
        }
    }

    /// Puts the signature over method, URL and all headers into `Authorization`, beside the headers that it needs.
    /// Gives back the URL in the form that was signed.
    pub fn sign(
        &self,
        method: &Method,
        url: &Url,
        headers: &mut HeaderMap,
        payload: Payload<'_>,
    ) -> Url {
        let url = canonical(url);
        let digest = match payload {
            Payload::Unsigned => UNSIGNED.to_owned(),
            Payload::Bytes(bytes) => sha256_hex(bytes),
        };
        headers.insert(AMZ_DATE, ascii(&self.time()));
        headers.insert(AMZ_SHA256, ascii(&digest));
        if let Some(token) = &self.keys.session_token {
            let mut token = ascii(token);
            token.set_sensitive(true);
            headers.insert(AMZ_TOKEN, token);
        }
        headers.remove(AUTHORIZATION);
        let listed = listed_headers(&url, headers);
        let request = canonical_request(method, &url, &listed, &digest);
        let authorization = format!(
            "{ALGORITHM} Credential={}/{}, SignedHeaders={}, Signature={}",
            self.keys.access_key,
            self.scope(),
            names(&listed),
            self.signature(&request)
        );
        let mut authorization = ascii(&authorization);
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
        url
    }

    /// A URL that lets anybody who knows it do `method` there until `lifetime` has passed (at most a week): a secret.
    pub fn presign(&self, method: &Method, url: &Url, lifetime: Duration) -> Url {
        let mut pairs: Vec<(String, String)> = Vec::from(
            [
                ("X-Amz-Algorithm", ALGORITHM.to_owned()),
                (
                    "X-Amz-Credential",
                    format!("{}/{}", self.keys.access_key, self.scope()),
                ),
                ("X-Amz-Date", self.time()),
                (
                    "X-Amz-Expires",
                    lifetime
                        .as_secs()
                        .clamp(1, super::PRESIGNED_SECONDS_MAX)
                        .to_string(),
                ),
                ("X-Amz-SignedHeaders", "host".to_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        if let Some(token) = &self.keys.session_token {
            pairs.push(("X-Amz-Security-Token".to_owned(), token.clone()));
        }
        pairs.extend(query_of(url));
        let mut url = canonical(url);
        url.set_query(Some(&query_text(pairs)));
        let listed = vec![("host".to_owned(), host_of(&url))];
        let request = canonical_request(method, &url, &listed, UNSIGNED);
        let signed = format!(
            "{}&X-Amz-Signature={}",
            url.query().unwrap_or_default(),
            self.signature(&request)
        );
        url.set_query(Some(&signed));
        url
    }

    fn time(&self) -> String {
        let time = self.at.to_fts();
        format!("{}Z", time.replace(['-', ':'], ""))
    }

    fn scope(&self) -> String {
        let date = &self.time()[..8];
        format!("{date}/{}/{}/aws4_request", self.region, self.service)
    }

    fn signature(&self, canonical_request: &str) -> String {
        let text = format!(
            "{ALGORITHM}\n{}\n{}\n{}",
            self.time(),
            self.scope(),
            sha256_hex(canonical_request.as_bytes())
        );
        let first = format!("AWS4{}", self.keys.secret_key);
        let date = hmac(first.as_bytes(), &self.time()[..8]);
        let region = hmac(&date, self.region);
        let service = hmac(&region, self.service);
        let key = hmac(&service, "aws4_request");
        hex(&hmac(&key, &text))
    }
}

fn canonical_request(
    method: &Method,
    url: &Url,
    headers: &[(String, String)],
    payload: &str,
) -> String {
    let mut text = format!("{method}\n{}\n", url.path());
    let _ = writeln!(text, "{}", url.query().unwrap_or_default());
    for (name, value) in headers {
        let _ = writeln!(text, "{name}:{value}");
    }
    let _ = write!(text, "\n{}\n{payload}", names(headers));
    text
}

fn names(headers: &[(String, String)]) -> String {
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    names.join(";")
}

/// The headers with `host`, by name; values without surplus blanks, several of one name joined.
fn listed_headers(url: &Url, headers: &HeaderMap) -> Vec<(String, String)> {
    let mut listed = vec![("host".to_owned(), host_of(url))];
    for name in headers.keys() {
        let values = headers.get_all(name).iter().map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes());
            text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
        });
        listed.push((
            name.as_str().to_owned(),
            values.collect::<Vec<_>>().join(","),
        ));
    }
    listed.sort();
    listed
}

/// As the client's `Host` header has it.
fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// The same resource, with path and query written as they are signed.
fn canonical(url: &Url) -> Url {
    let mut canonical = url.clone();
    let path = percent_decode_str(url.path()).collect::<Vec<u8>>();
    canonical
        .set_path(&percent_encoding::percent_encode(&path, RESERVED_IN_PATH).collect::<String>());
    let pairs = query_of(url);
    match pairs.is_empty() {
        true => canonical.set_query(None),
        false => canonical.set_query(Some(&query_text(pairs))),
    }
    canonical.set_fragment(None);
    canonical
}

fn query_of(url: &Url) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = url.query().unwrap_or_default().split('&');
    pairs
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

/// Encoded and in order.
fn query_text(pairs: Vec<(String, String)>) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
    let mut pairs: Vec<(String, String)> = pairs
        .iter()
        .map(|(name, value)| (encoded(name), encoded(value)))
        .collect();
    pairs.sort();
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

/// Keys and tokens are checked to be visible ASCII when they are stored; everything else here is made of such.
fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unprintable"))
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let made = PKey::hmac(key).and_then(|key| {
        let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
        signer.update(text.as_bytes())?;
        signer.sign_to_vec()
    });
    made.expect("OpenSSL always has HMAC with SHA-256")
}

fn sha256_hex(bytes: &[u8]) -> String {
    let digest = hash(MessageDigest::sha256(), bytes);
    hex(&digest.expect("OpenSSL always has SHA-256"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The keys of the examples in "Signature Calculations for the Authorization Header" of the S3 API.
    fn keys() -> Keys {
        Keys {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        }
    }

    /// 2013-05-24, midnight.
    const THEN: Timestamp = Timestamp(1_369_353_600_000);
    const HOST: &str = "https://examplebucket.s3.amazonaws.com";

    fn signed(
        method: Method,
        target: &str,
        headers: &[(&'static str, &str)],
        body: &[u8],
    ) -> String {
        let keys = keys();
        let signing = RequestSigner::new(&keys, "us-east-1", THEN);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, ascii(value));
        }
        let url = Url::parse(&format!("{HOST}{target}")).expect("a URL");
        signing.sign(&method, &url, &mut map, Payload::Bytes(body));
        let text = map[AUTHORIZATION].to_str().expect("ASCII");
        text.rsplit("Signature=").next().expect("one").to_owned()
    }

    #[test]
    fn amazons_examples_of_signed_requests_are_met() {
        let check = |signature: String, expected: &str| assert_eq!(signature, expected);
        check(
            signed(Method::GET, "/test.txt", &[("range", "bytes=0-9")], b""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        );
        check(
            signed(
                Method::PUT,
                "/test$file.text",
                &[
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ],
                b"Welcome to Amazon S3.",
            ),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        );
        check(
            signed(Method::GET, "/?lifecycle", &[], b""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        );
        check(
            signed(Method::GET, "/?max-keys=2&prefix=J", &[], b""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    }

    #[test]
    fn amazons_example_of_a_presigned_url_is_met() {
        let keys = keys();
        let signing = RequestSigner::new(&keys, "us-east-1", THEN);
        let url = Url::parse(&format!("{HOST}/test.txt")).expect("a URL");
        let signed = signing.presign(&Method::GET, &url, Duration::from_secs(86_400));
        assert_eq!(
            signed.query(),
            Some(
                "X-Amz-Algorithm=AWS4-HMAC-SHA256\
                 &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
                 &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
                 &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
            )
        );
    }

    /// Cases of the "AWS Signature Version 4 test suite": the service is called `service` there, and nothing is said
    /// of the payload in a header.
    #[test]
    fn the_published_test_suite_is_met() {
        let keys = Keys {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let signing = RequestSigner {
            service: "service",
            ..RequestSigner::new(&keys, "us-east-1", Timestamp(1_440_938_160_000))
        };
        let check = |method: Method, target: &str, expected: &str| {
            let url = Url::parse(&format!("https://example.amazonaws.com{target}")).expect("valid");
            let url = canonical(&url);
            let headers = [
                ("host".to_owned(), host_of(&url)),
                ("x-amz-date".to_owned(), signing.time()),
            ];
            let request = canonical_request(&method, &url, &headers, &sha256_hex(b""));
            assert_eq!(signing.signature(&request), expected, "{method} {target}");
        };
        // get-vanilla, post-vanilla, get-vanilla-query-order-key-case, get-utf8.
        check(
            Method::GET,
            "/",
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        );
        check(
            Method::POST,
            "/",
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        );
        check(
            Method::GET,
            "/?Param2=value2&Param1=value1",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        );
        check(
            Method::GET,
            "/\u{1234}",
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        );
    }

    #[test]
    fn temporary_keys_bring_their_token_into_what_is_signed() {
        let with = Keys {
            session_token: Some("to/ken+=".to_owned()),
            ..keys()
        };
        let url = Url::parse(&format!("{HOST}/f")).expect("a URL");
        let signing = RequestSigner::new(&with, "eu-west-3", THEN);
        let presigned = signing.presign(&Method::PUT, &url, Duration::from_secs(60));
        let query = presigned.query().expect("signed");
        assert!(
            query.contains("&X-Amz-Security-Token=to%2Fken%2B%3D&"),
            "{query}"
        );
        let mut headers = HeaderMap::new();
        signing.sign(&Method::GET, &url, &mut headers, Payload::Unsigned);
        let authorization = headers[AUTHORIZATION].to_str().expect("ASCII");
        assert!(
            authorization.contains("x-amz-security-token"),
            "{authorization}"
        );
        assert!(headers[AUTHORIZATION].is_sensitive() && headers[AMZ_TOKEN].is_sensitive());
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", keys());
        assert_eq!(shown, "Keys(AKIAIOSFODNN7EXAMPLE)");
    }

    proptest! {
        #[test]
        fn what_is_sent_is_what_was_signed(path in "/[ -~é]{0,40}", query in "[ -~é]{0,40}") {
            if let Ok(url) = Url::parse(&format!("{HOST}{path}?{query}")) {
                let once = canonical(&url);
                prop_assert_eq!(&canonical(&once), &once);
                let keys = keys();
                let signing = RequestSigner::new(&keys, "r", THEN);
                let again = Url::parse(signing.presign(&Method::GET, &url, Duration::from_secs(9)).as_str());
                prop_assert!(again.is_ok());
            }
        }
    }
}
