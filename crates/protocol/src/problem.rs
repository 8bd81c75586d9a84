//! How a problem travels over HTTP: a header with its code, a document (RFC 9457), a challenge (RFC 6750).
//!
//! It does not choose the status: a specification may ask for another than the code's own.

use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue};
use penstock_model::{Layer, Problem, ProblemCode};
use serde::Serialize;

/// The code of the problem, in every error answer.
pub const PROBLEM_HEADER: HeaderName = HeaderName::from_static("penstock-problem");
/// The media type of [`document`] (RFC 9457 §6.1).
pub const PROBLEM_JSON: &str = "application/problem+json";
/// Characters of a sentence that a challenge carries.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// RFC 9457 §3.1, with the keys of [`Problem`] beside. `type` is a name, not an address: nothing is fetched for it.
#[derive(Serialize)]
struct Document<'p> {
    r#type: String,
    title: &'static str,
    status: u16,
    #[serde(flatten)]
    problem: &'p Problem,
}

/// A problem as `application/problem+json`.
pub fn document(problem: &Problem, status: u16) -> Vec<u8> {
    let document = Document {
        r#type: format!("urn:penstock:problem:{}", problem.code),
        title: problem.code.facts().meaning,
        status,
        problem,
    };
    serde_json::to_vec(&document).expect("plain data serialises")
}

/// The value of [`PROBLEM_HEADER`].
pub fn header_value(code: ProblemCode) -> HeaderValue {
    HeaderValue::from_static(code.name())
}

/// The code that a server of ours tells in [`PROBLEM_HEADER`]; one of a later version is passed over.
pub fn told_code(headers: &HeaderMap) -> Option<ProblemCode> {
    let name = headers.get(PROBLEM_HEADER)?.to_str().ok()?;
    ProblemCode::by_name(name.trim())
}

/// What a server of ours tells of a problem: its document, or the code in the header with the line of text.
pub fn read(headers: &HeaderMap, body: &[u8]) -> Option<Problem> {
    let media_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    match media_type {
        PROBLEM_JSON | "application/json" => serde_json::from_slice(body).ok(),
        "text/plain" => {
            let line = std::str::from_utf8(body).ok()?.lines().next();
            // A HEAD has no body.
            let line = line
                .map(str::to_owned)
                .or_else(|| challenge_text(headers))?;
            Some(Problem::new(told_code(headers)?, line))
        }
        _ => None,
    }
}

/// Whether a client would rather have JSON than a line of text (RFC 9110 §12.5.1): it names JSON, and does not weigh text
/// higher. `*/*` names nothing.
pub fn prefers_json(headers: &HeaderMap) -> bool {
    let mut json = 0;
    let mut text = 0;
    for value in headers.get_all(ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts
                .find_map(|part| part.strip_prefix("q="))
                .map_or(1000, permille);
            match name.as_str() {
                PROBLEM_JSON | "application/json" => json = json.max(weight),
                "text/plain" | "text/*" => text = text.max(weight),
                _ => {}
            }
        }
    }
    json > 0 && json >= text
}

/// A weight of at most three decimals; nonsense weighs nothing.
fn permille(weight: &str) -> u32 {
    let (whole, decimals) = weight.split_once('.').unwrap_or((weight, ""));
    let digits = format!("{decimals:0<3}");
    match (
        whole,
        digits.get(..3).and_then(|digits| digits.parse().ok()),
    ) {
        ("1", Some(_)) => 1000,
        ("0", Some(decimals)) => decimals,
        _ => 0,
    }
}

/// The challenge (`WWW-Authenticate`) of an answer with this problem; `None` where another credential would not help.
pub fn challenge(problem: &Problem, scope: Option<&str>) -> Option<HeaderValue> {
    let error = match (problem.code, problem.code.facts().layer) {
        // RFC 6750 §3: who shows nothing is told no error.
        (ProblemCode::CredentialsMissing, _) => return Some(HeaderValue::from_static("Bearer")),
        (ProblemCode::ScopeInsufficient, _) => "insufficient_scope",
        (code, Layer::Credential) if code.facts().status == 401 => "invalid_token",
        _ => return None,
    };
    let description = quotable(&problem.message);
    let mut value = format!("Bearer error=\"{error}\", error_description=\"{description}\"");
    if let Some(scope) = scope {
        value += &format!(", scope=\"{}\"", quotable(scope));
    }
    HeaderValue::from_str(&value).ok()
}

/// What a challenge says to people: `error_description` (RFC 6750 §3). `None`: it says nothing.
pub fn challenge_text(headers: &HeaderMap) -> Option<String> {
    const PARAMETER: &str = "error_description=\"";
    let challenges = headers.get_all(WWW_AUTHENTICATE).iter();
    let mut texts = challenges.filter_map(|challenge| {
        let (_, text) = challenge.to_str().ok()?.split_once(PARAMETER)?;
        let text: String = text.chars().take_while(|&next| next != '"').collect();
        Some(text).filter(|text| !text.trim().is_empty())
    });
    texts.next()
}

/// RFC 6750 §3: printable ASCII without `"` and `\`.
fn quotable(text: &str) -> String {
    text.chars()
        .take(DESCRIPTION_CHARS_MAX)
        .map(|character| match character {
            '"' => '\'',
            '\\' => '/',
            ' '..='~' => character,
            _ => '?',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_without_a_body_says_is_read_from_its_challenge() {
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        headers.insert(PROBLEM_HEADER, header_value(ProblemCode::TokenExpired));
        headers.append(
            WWW_AUTHENTICATE,
            HeaderValue::from_static("Basic realm=\"x\""),
        );
        let problem = Problem::new(ProblemCode::TokenExpired, "the token expired at 12:00");
        headers.append(
            WWW_AUTHENTICATE,
            challenge(&problem, None).expect("a challenge"),
        );
        assert_eq!(read(&headers, b""), Some(problem));
        headers.remove(WWW_AUTHENTICATE);
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        assert_eq!(read(&headers, b""), None);
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let mut problem = Problem::new(ProblemCode::PathNotFound, "/f does not exist");
        problem.detail = Some("looked in the namespace".to_owned());
        let body = document(&problem, 404);
        let value: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(value["type"], "urn:penstock:problem:path-not-found");
        assert_eq!(value["title"], "The path does not exist.");
        assert_eq!(
            (&value["status"], &value["code"]),
            (&404.into(), &"path-not-found".into())
        );
        let headers = |media_type| {
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))])
        };
        assert_eq!(read(&headers(PROBLEM_JSON), &body), Some(problem.clone()));
        assert_eq!(
            read(&headers("application/json; charset=utf-8"), &body),
            Some(problem)
        );
        assert_eq!(read(&headers("text/plain"), &body), None);
        let mut of_text = headers("text/plain; charset=utf-8");
        of_text.insert(PROBLEM_HEADER, header_value(ProblemCode::PoolFull));
        assert_eq!(
            read(&of_text, b"no room\n"),
            Some(Problem::new(ProblemCode::PoolFull, "no room"))
        );
        assert_eq!(read(&headers("application/json"), b"{}"), None);
    }

    #[test]
    fn json_is_sent_to_those_who_would_rather_have_it() {
        let check = |accept: &'static str, expected: bool| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(prefers_json(&headers), expected, "{accept}");
        };
        check("application/json", true);
        check("application/problem+json", true);
        check("Application/JSON;q=0.5, */*", true);
        check("application/json, text/plain, */*", true);
        check("*/*", false);
        check("text/plain", false);
        check("text/plain, application/json;q=0.9", false);
        check("application/json;q=0", false);
        check("application/json; q=nonsense", false);
        check("application/xml", false);
        assert!(!prefers_json(&HeaderMap::new()));
    }

    #[test]
    fn a_challenge_says_what_is_wrong_with_a_token_and_nothing_to_who_shows_none() {
        let check = |code, message: &str, scope, expected: Option<&str>| {
            let value = challenge(&Problem::new(code, message), scope);
            let value = value.as_ref().map(|value| value.to_str().expect("ASCII"));
            assert_eq!(value, expected);
        };
        check(ProblemCode::CredentialsMissing, "x", None, Some("Bearer"));
        check(
            ProblemCode::TokenExpired,
            "the \"token\" expired\r\nX: é",
            None,
            Some("Bearer error=\"invalid_token\", error_description=\"the 'token' expired??X: ?\""),
        );
        check(
            ProblemCode::ScopeInsufficient,
            "no",
            Some("storage.read:/a b"),
            Some(
                "Bearer error=\"insufficient_scope\", error_description=\"no\", scope=\"storage.read:/a b\"",
            ),
        );
        check(ProblemCode::CertificateExpired, "x", None, None);
        check(ProblemCode::PathNotFound, "x", None, None);
    }
}
