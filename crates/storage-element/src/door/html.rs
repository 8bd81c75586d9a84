//! What all that a browser may show has in common: its headers, its escapes, and the authorisation that a link carries.

use super::answer::Response;
use super::reserved::RESOURCE_POLICY;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use penstock_protocol::http1::server::Request;
use std::fmt::Write;

/// Bytes of an authorisation that a page repeats in each of its links; a thousand of them make a page.
const AUTHORISATION_BYTES_MAX: usize = 4096;

/// A page under a policy of what it may do.
pub(super) fn html(status: StatusCode, policy: &'static str, body: String) -> Response {
    let mut answer = Response::new(status);
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, policy),
        (X_FRAME_OPTIONS, "DENY"),
        (RESOURCE_POLICY, "same-origin"),
        // The same address is another thing to another asker.
        (VARY, "Accept, Authorization"),
        (CACHE_CONTROL, "private, no-store"),
    ] {
        answer.headers.insert(name, HeaderValue::from_static(value));
    }
    harmless(&mut answer.headers);
    answer.body = body.into_bytes();
    answer
}

/// For everything that a browser may show: it keeps to the type that it is told, and tells nobody where it was.
pub(super) fn harmless(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// `authz=…` as the query has it, when it can stand in a link as it is.
pub(super) fn authorisation(request: &Request) -> Option<&str> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
    let mut pairs = request.query()?.split('&');
    let value = pairs.find_map(|pair| pair.strip_prefix("authz="))?;
    let fits = !value.is_empty() && value.len() <= AUTHORISATION_BYTES_MAX;
    (fits && value.bytes().all(harmless)).then_some(value)
}

/// As text between tags or in a quoted attribute. Characters that turn the direction of writing, or that nobody
/// sees, are named instead: with them `gpj.exe` can be made to look like `exe.jpg`.
pub(super) fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for character in raw.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}' => {
                let _ = write!(out, "⟨U+{:04X}⟩", u32::from(character));
            }
            control if control.is_control() => {
                let _ = write!(out, "⟨U+{:04X}⟩", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out
}
