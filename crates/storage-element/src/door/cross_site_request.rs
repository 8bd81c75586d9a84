//! Requests that a page of another site made a browser send. Browsers show certificates without being told to, so
//! such a request says nothing about what the user wants.

use super::answer::Problem;
use super::caller::Caller;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use penstock_model::ProblemCode;
use penstock_protocol::http1::server::Request;

/// Fetch Metadata §2.3.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what changes something on the word of a certificate alone, when another site's page is behind it. The
/// answers to its reading stay hidden from such a page, because the door allows no origin to see them.
pub(super) fn refuse(request: &Request, caller: &Caller) -> Result<(), Problem> {
    let reads = request.method == Method::GET
        || request.method == Method::HEAD
        || request.method == Method::OPTIONS
        || request.method.as_str() == "PROPFIND";
    if reads || !caller.is_by_certificate() || !is_foreign(&request.headers) {
        return Ok(());
    }
    tracing::warn!(method = %request.method, path = request.path(), "refused a page of another site");
    Err(Problem::new(
        ProblemCode::ForeignPage,
        "a page of another site cannot use the certificate; open this door's own page, or send a token",
    )
    .logged())
}

fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or(""))
    };
    let other_origin = text(ORIGIN).is_some_and(|origin| {
        let host = origin.strip_prefix("https://");
        host.is_none() || host != text(HOST)
    });
    let told = text(FETCH_SITE);
    other_origin || told.is_some_and(|site| site != "same-origin" && site != "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&'static str, &'static str)], expected: bool) {
        let headers = pairs.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        let mut headers: HeaderMap = headers.collect();
        headers.insert(HOST, HeaderValue::from_static("se.example.org:8443"));
        assert_eq!(is_foreign(&headers), expected, "{pairs:?}");
    }

    #[test]
    fn pages_of_other_sites_are_told_from_our_own_and_from_programs() {
        check(&[], false);
        check(&[("origin", "https://se.example.org:8443")], false);
        check(&[("origin", "http://se.example.org:8443")], true);
        check(&[("origin", "https://se.example.org")], true);
        check(&[("origin", "https://evil.example.org")], true);
        check(&[("origin", "null")], true);
        check(&[("sec-fetch-site", "same-origin")], false);
        check(&[("sec-fetch-site", "none")], false);
        check(&[("sec-fetch-site", "same-site")], true);
        check(&[("sec-fetch-site", "cross-site")], true);
    }
}
