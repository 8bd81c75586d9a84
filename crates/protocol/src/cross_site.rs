//! Requests that a page of another site made a browser send. Browsers show certificates without being told to, so such a
//! request says nothing about what the user wants. Whether a certificate is all that it shows, the ports find out.

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Fetch Metadata §2.3.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether requests of this method only read. Answers to them stay hidden from pages of other sites, which no port allows to
/// see them.
pub fn only_reads(method: &Method) -> bool {
    // RFC 9110 §9.2.1; RFC 4918 §9.1.
    method.is_safe() || method.as_str() == "PROPFIND"
}

/// Whether a page of another site made a browser send this. A link on such a page may be followed, which only reads.
pub fn is_of_foreign_page(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or(""))
    };
    let other_origin = text(ORIGIN).is_some_and(|origin| {
        let host = origin.strip_prefix("https://");
        host.is_none() || host != text(HOST)
    });
    let told = text(FETCH_SITE).filter(|_| !only_reads(method));
    other_origin || told.is_some_and(|site| site != "same-origin" && site != "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(request: &str, expected: bool) {
        let mut words = request.split(' ');
        let method = words.next().unwrap_or_default().parse().expect("a method");
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("se.example.org:8443"));
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            let name: HeaderName = name.parse().expect("a name");
            headers.insert(name, value.parse().expect("a value"));
        }
        assert_eq!(is_of_foreign_page(&method, &headers), expected, "{request}");
    }

    #[test]
    fn pages_of_other_sites_are_told_from_our_own_and_from_programs() {
        for method in ["GET", "PUT"] {
            let check = |headers: &str, expected| check(&format!("{method}{headers}"), expected);
            check("", false);
            check(" origin https://se.example.org:8443", false);
            check(" origin http://se.example.org:8443", true);
            check(" origin https://se.example.org", true);
            check(" origin https://evil.example.org", true);
            check(" origin null", true);
        }
        check("PUT sec-fetch-site same-origin", false);
        check("PUT sec-fetch-site none", false);
        check("DELETE sec-fetch-site same-site", true);
        check("POST sec-fetch-site cross-site", true);
    }

    #[test]
    fn a_page_of_another_site_may_link_here_and_change_nothing() {
        check("GET sec-fetch-site cross-site", false);
        check("PROPFIND sec-fetch-site cross-site", false);
        check("POST sec-fetch-site cross-site", true);
        check("MKCOL sec-fetch-site cross-site", true);
    }
}
