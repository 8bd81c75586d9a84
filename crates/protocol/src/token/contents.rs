//! What a token says of itself, believed by nobody.

use super::TOKEN_BYTES_MAX;
use super::verifier::{json_object, time_claim};
use penstock_model::Timestamp;
use serde_json::{Map, Value};

/// What the claims of a token say. For the bearer's own use of it: nothing here has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    pub issuer: String,
    /// Whom it speaks of.
    pub subject: Option<String>,
    /// Its scopes, separated by blanks.
    pub scope: String,
    pub audience: Vec<String>,
    /// From when on it is worth something.
    pub begins: Option<Timestamp>,
    /// When it ends.
    pub expires: Timestamp,
}

/// What a token says. `None`: it is none of RFC 7519, or leaves out who issued it or when it ends.
pub fn contents(token: &str) -> Option<Contents> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let mut parts = token.split('.');
    let (_, claims) = (parts.next()?, parts.next()?);
    parts.next()?;
    if parts.next().is_some() {
        return None;
    }
    let claims = json_object(claims)?;
    let text = |name: &str| Some(claims.get(name)?.as_str()?.to_owned());
    let begins = time_claim(&claims, "nbf").or_else(|_| time_claim(&claims, "iat"));
    Some(Contents {
        issuer: text("iss")?,
        subject: text("sub"),
        scope: text("scope").unwrap_or_default(),
        audience: audience(&claims),
        begins: begins.ok(),
        expires: time_claim(&claims, "exp").ok()?,
    })
}

/// One text, or a list of them (RFC 7519 §4.1.3).
fn audience(claims: &Map<String, Value>) -> Vec<String> {
    match claims.get("aud") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(list)) => {
            let texts = list.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;

    fn token(claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!(
            "{}.{}.c2lnbmVk",
            part(&json!({"alg": "ES256"})),
            part(claims)
        )
    }

    #[test]
    fn a_token_is_read_as_far_as_its_bearer_needs() {
        let claims = json!({"iss": "https://iam/", "exp": 20, "nbf": 10, "aud": "se", "scope": "a b", "x": {}});
        let found = contents(&token(&claims)).expect("a token");
        assert_eq!(
            (found.issuer.as_str(), found.scope.as_str()),
            ("https://iam/", "a b")
        );
        assert_eq!(found.audience, ["se"]);
        assert_eq!(
            (found.begins, found.expires),
            (Some(Timestamp(10_000)), Timestamp(20_000))
        );
        let several = json!({"iss": "i", "exp": 20.5, "iat": 1, "aud": ["a", 3, "b"]});
        let found = contents(&token(&several)).expect("a token");
        assert_eq!(found.audience, ["a", "b"]);
        assert_eq!(found.scope, "");
    }

    #[test]
    fn what_is_no_token_has_no_contents() {
        let check = |text: &str| assert_eq!(contents(text), None, "{text}");
        check("");
        check("opaque-0123456789");
        check("a.b");
        check("a.b.c.d");
        check("....");
        check(&token(&json!({"iss": "i"})));
        check(&token(&json!({"exp": 1})));
        check(&token(&json!({"iss": "i", "exp": "soon"})));
        check(&token(&json!([1])));
        check(&"x".repeat(TOKEN_BYTES_MAX + 1));
    }
}
