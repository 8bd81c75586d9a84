//! The name of a public key that anybody can compute from the key itself (RFC 7638).

use openssl::sha::sha256;
use penstock_model::text::hex;
use serde_json::Value;

/// Keys of one issuer that are looked at.
const KEYS_MAX: usize = 16;

/// The SHA-256 thumbprint of a key in JSON; `None`: it lacks a member of its kind.
pub fn thumbprint(jwk: &Value) -> Option<[u8; 32]> {
    // RFC 7638 §3.2 and RFC 8037 §2: the required members, in the order of their names, without blanks.
    let required: &[&str] = match jwk["kty"].as_str()? {
        "EC" => &["crv", "kty", "x", "y"],
        "RSA" => &["e", "kty", "n"],
        "OKP" => &["crv", "kty", "x"],
        _ => return None,
    };
    let member = |name: &&str| {
        let value = jwk[*name].as_str()?;
        Some(format!("{}:{}", Value::from(*name), Value::from(value)))
    };
    let members: Option<Vec<String>> = required.iter().map(member).collect();
    Some(sha256(format!("{{{}}}", members?.join(",")).as_bytes()))
}

/// The thumbprints of the keys of a set, in hexadecimal, in order.
pub fn key_fingerprints(jwks: &Value) -> Vec<String> {
    let keys = jwks["keys"].as_array().map(Vec::as_slice);
    let keys = keys.unwrap_or_default().iter().take(KEYS_MAX);
    let mut all: Vec<String> = keys.filter_map(thumbprint).map(|name| hex(&name)).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_example_of_the_standard_has_its_thumbprint() {
        // RFC 7638 §3.1.
        let modulus = [
            "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs",
            "tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajr",
            "n1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        ];
        let key = json!({"kty": "RSA", "n": modulus.concat(), "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"});
        assert_eq!(
            key_fingerprints(&json!({"keys": [key, {"kty": "RSA"}, 7]})),
            ["3736cbb1787cb8309c77ee8c3705c5e16ffb9e859715901f1e4c59b11182f57b"]
        );
    }
}
