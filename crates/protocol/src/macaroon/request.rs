//! What clients ask for when they want a macaroon: the JSON document of dCache and XRootD, and the OAuth form
//! that gfal2 sends to a token endpoint.

use super::caveat::{Caveat, InvalidCaveat};
use penstock_model::{MacaroonActivity, NamespacePath};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;
use thiserror::Error;

/// Bytes that a request may have, as in XRootD.
pub const REQUEST_BYTES_MAX: usize = 4096;
/// Caveats that one request may ask for.
const CAVEATS_MAX: usize = 16;

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedMacaroon {
    /// To be added, in this order.
    pub caveats: Vec<Caveat>,
    /// How long it shall be good for. `None`: as long as the site allows (token form only).
    pub validity: Option<Duration>,
}

/// Why a request makes no sense: 400.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidRequest {
    /// Not the JSON object that is expected.
    #[error("the request is no JSON object with 'caveats' and 'validity'")]
    Json,
    /// XRootD answers 400 as well: nobody shall get a long life by forgetting to say how long.
    #[error("the request has no 'validity'; write for example \"validity\": \"PT60M\"")]
    NoValidity,
    /// Not a span of time, or none at all.
    #[error("'{0}' is not a span of time; write for example PT60M, PT12H or P1D")]
    Validity(String),
    /// One that cannot be understood must not be granted.
    #[error("{0}")]
    Caveat(#[from] InvalidCaveat),
    #[error("a request may have at most {CAVEATS_MAX} caveats")]
    TooManyCaveats,
    /// The form is not UTF-8 or its grant type is another.
    #[error("the form must say 'grant_type=client_credentials'")]
    GrantType,
    /// No scope, an unknown activity, a bad path, or paths that differ.
    #[error(
        "the scope '{0}' is refused; write ACTIVITY:/path, with the same path for all activities"
    )]
    Scope(String),
}

/// Reads the body of `Content-Type: application/macaroon-request`.
pub fn parse_request(body: &[u8]) -> Result<RequestedMacaroon, InvalidRequest> {
    #[derive(Deserialize)]
    struct MacaroonRequestBody {
        #[serde(default)]
        caveats: Vec<String>,
        validity: Option<String>,
    }
    let document: MacaroonRequestBody =
        serde_json::from_slice(body).map_err(|_| InvalidRequest::Json)?;
    let validity = document.validity.ok_or(InvalidRequest::NoValidity)?;
    if document.caveats.len() > CAVEATS_MAX {
        return Err(InvalidRequest::TooManyCaveats);
    }
    let caveats = document
        .caveats
        .iter()
        .map(|caveat| Caveat::parse(caveat.trim().as_bytes()))
        .collect::<Result<_, _>>()?;
    let refused = || InvalidRequest::Validity(validity.chars().take(40).collect());
    Ok(RequestedMacaroon {
        caveats,
        validity: Some(parse_span(&validity).ok_or_else(refused)?),
    })
}

/// Reads the form of a token endpoint (RFC 6749 §4.4.2). The scopes are in `scope`, as the RFC says, or in
/// `scopes`, as gfal2 says.
pub fn parse_token_form(body: &[u8]) -> Result<RequestedMacaroon, InvalidRequest> {
    let (mut is_client_grant, mut scopes, mut validity) = (false, String::new(), None);
    for (name, value) in url::form_urlencoded::parse(body) {
        match name.as_ref() {
            "grant_type" => is_client_grant = value == "client_credentials",
            "scope" | "scopes" => {
                scopes.push(' ');
                scopes.push_str(&value);
            }
            "expire_in" => {
                let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                let refused = || InvalidRequest::Validity(value.chars().take(40).collect());
                validity = Some(Duration::from_secs(seconds.ok_or_else(refused)?));
            }
            _ => {}
        }
    }
    if !is_client_grant {
        return Err(InvalidRequest::GrantType);
    }
    Ok(RequestedMacaroon {
        caveats: caveats_of_scopes(&scopes)?,
        validity,
    })
}

/// `LIST:/p DOWNLOAD:/p` as one activity and one path caveat. Caveats cannot say "this here and that there".
fn caveats_of_scopes(scopes: &str) -> Result<Vec<Caveat>, InvalidRequest> {
    let refused = |scope: &str| InvalidRequest::Scope(scope.chars().take(80).collect());
    let mut activities = BTreeSet::new();
    let mut path: Option<NamespacePath> = None;
    for scope in scopes.split_ascii_whitespace() {
        let (name, place) = scope.split_once(':').ok_or_else(|| refused(scope))?;
        let activity = MacaroonActivity::from_name(name).ok_or_else(|| refused(scope))?;
        let place = NamespacePath::from_encoded(place).map_err(|_| refused(scope))?;
        if path.as_ref().is_some_and(|known| *known != place) {
            return Err(refused(scope));
        }
        activities.insert(activity);
        path = Some(place);
    }
    let path = path.ok_or_else(|| refused(scopes))?;
    Ok(vec![Caveat::Path(path), Caveat::Activities(activities)])
}

/// A duration of ISO 8601 in days, hours, minutes and seconds, above zero. Years and months have no fixed
/// length.
fn parse_span(text: &str) -> Option<Duration> {
    let rest = text.trim().strip_prefix('P')?;
    let (days, time) = match rest.split_once('T') {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (rest, ""),
    };
    let days = parse_units(days, &[('D', 86_400)])?;
    let time = parse_units(time, &[('H', 3600), ('M', 60), ('S', 1)])?;
    let seconds = days.checked_add(time)?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Numbers with units in this order, each at most once.
fn parse_units(mut text: &str, units: &[(char, u64)]) -> Option<u64> {
    let mut sum: u64 = 0;
    for (unit, seconds) in units {
        if let Some((digits, rest)) = text.split_once(*unit) {
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let number: u64 = digits.parse().ok()?;
            sum = sum.checked_add(number.checked_mul(*seconds)?)?;
            text = rest;
        }
    }
    text.is_empty().then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_span(text: &str, expected: Option<u64>) {
        assert_eq!(
            parse_span(text),
            expected.map(Duration::from_secs),
            "{text}"
        );
    }

    #[test]
    fn spans_have_a_fixed_length() {
        check_span("PT60M", Some(3600));
        check_span("PT180M", Some(10_800));
        check_span("P1DT2H3M4S", Some(93_784));
        check_span("P2D", Some(172_800));
        for wrong in [
            "",
            "P",
            "PT",
            "PT0S",
            "60M",
            "P1M",
            "P1Y",
            "PT1D",
            "PT5",
            "PT-5M",
            "PT5M6H",
            "P1DT",
            "PT99999999999999999999S",
            "PT999999999999999999H",
            "pt5m",
        ] {
            check_span(wrong, None);
        }
    }

    fn check(parsed: Result<RequestedMacaroon, InvalidRequest>, expected: &str) {
        let got = match parsed {
            Ok(wanted) => {
                let caveats: Vec<String> = wanted.caveats.iter().map(ToString::to_string).collect();
                format!(
                    "{} {:?}",
                    caveats.join(" "),
                    wanted.validity.map(|span| span.as_secs())
                )
            }
            Err(why) => format!("refused: {why}"),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn a_request_names_caveats_and_a_validity() {
        let gfal =
            br#"{"caveats": ["activity:LIST,DOWNLOAD,MANAGE,UPLOAD,DELETE"], "validity": "PT10M"}"#;
        check(
            parse_request(gfal),
            "activity:LIST,DOWNLOAD,UPLOAD,MANAGE,DELETE Some(600)",
        );
        check(
            parse_request(br#"{"validity":"PT1H","other":1}"#),
            " Some(3600)",
        );
        check(
            parse_request(br#"{"caveats":[]}"#),
            "refused: the request has no 'validity'; write for example \"validity\": \"PT60M\"",
        );
        check(
            parse_request(b"[]"),
            "refused: the request is no JSON object with 'caveats' and 'validity'",
        );
        check(
            parse_request(br#"{"caveats":["colour:red"],"validity":"PT1H"}"#),
            "refused: 'colour:red' is none of path:, activity:, before:, ip: and name:",
        );
    }

    #[test]
    fn a_token_form_is_read_with_either_name_of_its_scopes() {
        let expected = "path:/p q activity:LIST,DOWNLOAD Some(90)";
        for name in ["scope", "scopes"] {
            let form = format!(
                "grant_type=client_credentials&expire_in=90&{name}=LIST%3A%2Fp%2520q+DOWNLOAD:/p%2520q"
            );
            check(parse_token_form(form.as_bytes()), expected);
        }
        check(
            parse_token_form(b"grant_type=client_credentials&scope=LIST:/"),
            "path:/ activity:LIST None",
        );
        check(
            parse_token_form(b"scope=LIST:/"),
            "refused: the form must say 'grant_type=client_credentials'",
        );
        for scopes in [
            "LIST:/p DOWNLOAD:/q",
            "READ:/p",
            "LIST",
            "",
            "LIST:p",
            "LIST:/../p",
        ] {
            let form = format!("grant_type=client_credentials&scopes={scopes}");
            let parsed = parse_token_form(form.as_bytes());
            assert!(
                matches!(parsed, Err(InvalidRequest::Scope(_))),
                "{scopes}: {parsed:?}"
            );
        }
    }
}
