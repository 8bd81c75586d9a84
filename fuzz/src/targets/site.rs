//! What another site tells of itself before anybody trusts it: what is read is bounded, and reads back as itself.

use super::{Target, texts};
use penstock_protocol::pki::ForeignAuthority;
use penstock_protocol::site_document::{DOCUMENT_BYTES_MAX, SiteDocument, canonical_host};
use penstock_protocol::token::key_fingerprints;

pub const DOCUMENTS: Target = Target {
    name: "site_document",
    check,
    seeds: || {
        texts(&[
            r#"{"penstock_site": 1, "name": "north", "hosts": ["se.example.org", "192.0.2.7", "[2001:db8::1]"], "storage":
               {"port": 8443, "plain_port": 8444}, "transfer": {"port": 8446}, "issuer": {"url": "https://se.example.org:8443",
               "key_fingerprints": ["3736cbb1787cb8309c77ee8c3705c5e16ffb9e859715901f1e4c59b11182f57b"]}, "authorities":
               ["-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"]}"#,
            r#"{"penstock_site": 1, "name": "x", "hosts": ["a"]}"#,
            r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, {"kty": "RSA", "n": "AA", "e": "AQAB"}]}"#,
        ])
    },
};

fn check(data: &[u8]) {
    if let Ok(jwks) = serde_json::from_slice(data) {
        assert!(key_fingerprints(&jwks).iter().all(|name| name.len() == 64));
    }
    let Ok(document) = SiteDocument::parse(data) else {
        return;
    };
    assert!(data.len() as u64 <= DOCUMENT_BYTES_MAX);
    assert!(!document.hosts.is_empty() && document.hosts.len() <= 16);
    for host in &document.hosts {
        assert_eq!(canonical_host(host).as_ref(), Some(host), "in its one form");
        assert!(
            !host.contains(['/', '*', ' ', '\n', ':']) || host.parse::<std::net::IpAddr>().is_ok()
        );
    }
    assert!(!document.name.chars().any(char::is_control));
    for pem in &document.authorities {
        if let Ok(authority) = ForeignAuthority::parse(pem) {
            assert!(!authority.subject().contains(['\'', '"']));
        }
    }
    let written = serde_json::to_vec(&document).expect("plain data serialises");
    if written.len() as u64 <= DOCUMENT_BYTES_MAX {
        assert_eq!(SiteDocument::parse(&written).as_ref(), Ok(&document));
    }
}
