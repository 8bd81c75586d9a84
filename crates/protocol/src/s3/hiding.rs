//! Keeping presigned URLs out of what is shown: others repeat them in the errors that they tell.

use url::Url;

/// Parameters of a presigned URL whose values open something.
const SECRETS: [&str; 2] = ["X-Amz-Signature", "X-Amz-Security-Token"];
/// How each parameter begins.
const MARK: &str = "x-amz-";

/// The text without anything that opens what `presigned` opens, whole or cut off, also where the URL was encoded once
/// more or its signature stands alone.
pub fn hide_presigned(text: &str, presigned: &Url) -> String {
    let mut text = text.to_owned();
    for (name, value) in presigned.query_pairs() {
        if SECRETS.contains(&name.as_ref()) && !value.is_empty() {
            text = text.replace(value.as_ref(), "…");
        }
    }
    let is_border = |c: char| c.is_whitespace() || "\"'<>()".contains(c);
    let words = text.split_inclusive(is_border);
    words.map(hide_in_word).collect()
}

/// A word with its border behind it.
fn hide_in_word(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    let Some(at) = lower.find(MARK) else {
        return word.to_owned();
    };
    let begins = lower[..at]
        .rfind('?')
        .or_else(|| lower[..at].rfind("%3f"))
        .unwrap_or(at);
    let border = word
        .chars()
        .last()
        .filter(|last| !last.is_alphanumeric() && *last != '=');
    let query = match begins < at {
        true => "?…",
        false => "…",
    };
    format!(
        "{}{query}{}",
        &word[..begins],
        border.map(String::from).unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::{Keys, RequestSigner};
    use http::Method;
    use penstock_model::Timestamp;
    use proptest::prelude::*;
    use std::time::Duration;

    fn presigned() -> Url {
        let keys = Keys {
            access_key: "AKIA".to_owned(),
            secret_key: "secret".to_owned(),
            session_token: Some("session/token+x".to_owned()),
        };
        let url = Url::parse("https://s3.example.org/b/f").expect("valid");
        RequestSigner::new(&keys, "r", Timestamp(0)).presign(
            &Method::GET,
            &url,
            Duration::from_secs(9),
        )
    }

    fn signature() -> String {
        let url = presigned();
        let mut pairs = url.query_pairs();
        pairs
            .find(|(name, _)| name == "X-Amz-Signature")
            .expect("signed")
            .1
            .into_owned()
    }

    #[test]
    fn neither_a_url_nor_its_signature_is_shown() {
        let (url, signature) = (presigned(), signature());
        let check = |given: String, expected: &str| {
            assert_eq!(hide_presigned(&given, &url), expected, "{given}");
        };
        check(
            format!("GET {url} answered 403 Forbidden"),
            "GET https://s3.example.org/b/f?… answered 403 Forbidden",
        );
        check(format!("'{url}'"), "'https://s3.example.org/b/f?…'");
        let cut = &url.as_str()[..url.as_str().len() - 20];
        check(cut.to_owned(), "https://s3.example.org/b/f?…");
        let query = url.query().expect("signed");
        check(format!("/b/f\n{query}\nhost"), "/b/f\n…\nhost");
        check(
            format!("<SignatureProvided>{signature}</SignatureProvided>"),
            "<SignatureProvided>…</SignatureProvided>",
        );
        check("token session/token+x.".to_owned(), "token ….");
        check(
            "nothing to hide: a?b=c".to_owned(),
            "nothing to hide: a?b=c",
        );
        let twice =
            percent_encoding::utf8_percent_encode(url.as_str(), percent_encoding::NON_ALPHANUMERIC);
        assert!(!hide_presigned(&twice.to_string(), &url).contains(&signature));
    }

    proptest! {
        #[test]
        fn whatever_is_around_it_the_signature_is_gone(before in "\\PC{0,20}", after in "\\PC{0,20}") {
            let text = format!("{before}{}{after}", presigned());
            prop_assert!(!hide_presigned(&text, &presigned()).contains(&signature()));
        }
    }
}
