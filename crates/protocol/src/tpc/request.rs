//! What a client asks with a `COPY` request (draft-http-tpc-01 and the WLCG HTTP-TPC technical page).

use crate::digest::{self, InvalidDigest};
use http::{HeaderMap, HeaderName, HeaderValue};
use penstock_model::share_link::share_secret;
use penstock_model::url::redact;
use penstock_model::{Checksum, ChecksumAlgorithm};
use thiserror::Error;
use url::Url;

const TRANSFER_HEADER: &str = "transferheader";
const STREAMS_MAX: u32 = 100;
const CLIENT_INFO_CHARS_MAX: usize = 256;
/// Packet marking: experiment shifted by six bits, activity in the lower ones; 64 is the lowest that has
/// both.
const SCITAGS: std::ops::RangeInclusive<u32> = 65..=65_535;

/// Which way the bytes go, seen from the storage element that got the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direction {
    /// It fetches the file; the request's path is the local destination.
    Pull {
        /// Where the file is, as `https` or `http`.
        source: Url,
    },
    /// It sends the file; the request's path is the local source.
    Push {
        /// Where the file shall be, as `https` or `http`.
        destination: Url,
    },
}

impl Direction {
    /// The URL of the other side.
    pub fn remote(&self) -> &Url {
        match self {
            Direction::Pull { source } => source,
            Direction::Push { destination } => destination,
        }
    }
}

/// Where the credential for the other side comes from (`Credential` header).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// From the transfer headers, if any.
    None,
    /// From a delegated proxy certificate.
    Gridsite,
    /// From exchanging the client's token.
    Oidc,
}

/// A `COPY` request, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRequest {
    /// Pull or push, with the other side's URL.
    pub direction: Direction,
    /// Whether an existing destination may be replaced; true unless the client says `Overwrite: F`.
    pub overwrite: bool,
    /// Whether the copy must fail when the other side tells no usable checksum. `None`: as the site prefers.
    pub require_checksum: Option<bool>,
    /// Where the credential for the other side comes from. `None`: the client does not say.
    pub credential: Option<Credential>,
    /// Headers for the request to the other side, their prefix removed. Holds secrets: do not log.
    pub transfer_headers: HeaderMap,
    /// How many streams the client would like. `None`: it leaves that to us.
    pub streams: Option<u32>,
    /// Checksums that the file is expected to have.
    pub expected: Vec<Checksum>,
    /// Checksums that the client will ask for afterwards, best first.
    pub wanted: Vec<ChecksumAlgorithm>,
    /// Packet marking number.
    pub scitag: Option<u32>,
    /// `job-id=…;file-id=…;retry=…` of a transfer service, for logs.
    pub client_info: Option<String>,
}

/// Why a `COPY` cannot be understood. Answer 400 with this text ([`InvalidCopy::Scheme`]: 501): clients show it
/// to their users.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidCopy {
    /// Neither side named.
    #[error("COPY needs a 'Source' header (pull) or a 'Destination' header (push)")]
    NoSide,
    /// Both sides named.
    #[error("COPY has both a 'Source' and a 'Destination' header; send one of them")]
    BothSides,
    /// The other side's URL cannot be used.
    #[error("the '{header}' header is not usable: '{url}' {why}")]
    Url {
        header: &'static str,
        /// The URL without its secrets.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The other side speaks a protocol that we do not (draft-http-tpc-01: 501, upon which clients try another
    /// way).
    #[error(
        "the '{header}' header is not usable: '{scheme}' URLs cannot be copied; use https, davs, http or dav"
    )]
    Scheme {
        header: &'static str,
        /// The scheme, shortened.
        scheme: String,
    },
    /// A header has a value that it cannot have, or comes twice.
    #[error("the '{header}' header must be {expected}")]
    Header {
        header: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// The expected checksum is not understood.
    #[error(transparent)]
    Digest(#[from] InvalidDigest),
}

impl CopyRequest {
    /// A plain request in this direction, with the defaults of the specification.
    pub fn new(direction: Direction) -> CopyRequest {
        CopyRequest {
            direction,
            overwrite: true,
            require_checksum: None,
            credential: None,
            transfer_headers: HeaderMap::new(),
            streams: None,
            expected: Vec::new(),
            wanted: Vec::new(),
            scitag: None,
            client_info: None,
        }
    }

    /// Reads the headers of a `COPY`. Unknown and legacy headers (`Secure-Redirection`, `Copy-Flags`,
    /// `X-No-Delegate`) mean nothing.
    pub fn parse(headers: &HeaderMap) -> Result<CopyRequest, InvalidCopy> {
        let transfer_headers = forwarded(headers);
        Ok(CopyRequest {
            direction: direction(headers)?,
            overwrite: flag(headers, "overwrite", "T", "F", "'T' or 'F'")?.unwrap_or(true),
            require_checksum: flag(
                headers,
                "requirechecksumverification",
                "true",
                "false",
                "'true' or 'false'",
            )?,
            credential: credential(headers)?,
            streams: streams(headers)?,
            expected: digest::parse(headers)?,
            wanted: wanted(headers),
            scitag: scitag(headers),
            client_info: client_info(headers),
            transfer_headers,
        })
    }

    /// The headers that say the same: what a client sends. Without those that authorise the request itself.
    pub fn to_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut put = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        match &self.direction {
            Direction::Pull { source } => put("source", source.as_str()),
            Direction::Push { destination } => put("destination", destination.as_str()),
        }
        put("overwrite", if self.overwrite { "T" } else { "F" });
        if let Some(required) = self.require_checksum {
            put(
                "requirechecksumverification",
                if required { "true" } else { "false" },
            );
        }
        match self.credential {
            Some(Credential::None) => put("credential", "none"),
            Some(Credential::Gridsite) => put("credential", "gridsite"),
            Some(Credential::Oidc) => put("credential", "oidc"),
            None => {}
        }
        if let Some(streams) = self.streams {
            put("x-number-of-streams", &streams.to_string());
        }
        if let Some(scitag) = self.scitag {
            put("scitag", &scitag.to_string());
        }
        if let Some(info) = &self.client_info {
            put("clientinfo", info);
        }
        if !self.wanted.is_empty() {
            let names: Vec<&str> = self.wanted.iter().map(|wanted| wanted.name()).collect();
            put("want-digest", &names.join(","));
        }
        if !self.expected.is_empty() {
            headers.insert("digest", digest::header_value(&self.expected));
            headers.insert("repr-digest", digest::repr_header_value(&self.expected));
        }
        for (name, value) in &self.transfer_headers {
            if let Ok(name) = HeaderName::try_from(format!("{TRANSFER_HEADER}{name}")) {
                headers.append(name, value.clone());
            }
        }
        headers
    }
}

/// Headers of our request to the other side that a client may choose: its credential there, what tape systems and
/// packet marking are told, and names of a request that logs of both sides can be searched for.
const FORWARDED: [&str; 7] = [
    "archivemetadata",
    "authorization",
    "clientinfo",
    "scitag",
    "traceparent",
    "x-request-id",
    "x-trace-id",
];

/// Names a request in the logs and records of everybody who takes part in it. No standard defines it; most servers of the
/// field know it.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The name that a client gives its request. `None`: it gives none, or none of at most 128 visible ASCII characters.
pub fn request_id(headers: &HeaderMap) -> Option<&str> {
    let name = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    (is_plain && name.len() <= REQUEST_ID_BYTES_MAX).then_some(name)
}

/// Whether a client may choose this header of our request to the other side.
pub fn may_be_forwarded(name: &HeaderName) -> bool {
    FORWARDED.contains(&name.as_str())
}

/// `TransferHeader<Name>: value` becomes `<Name>: value`, in any case; those that nobody needs are left out, not refused,
/// because clients of the field send some of them without thinking.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::new();
    for (name, value) in headers {
        let rest = name.as_str().strip_prefix(TRANSFER_HEADER);
        let Some(name) = rest.and_then(|rest| HeaderName::try_from(rest).ok()) else {
            continue;
        };
        if may_be_forwarded(&name) {
            let mut value = value.clone();
            // Whatever it is, it was meant for the other side only: `Debug` does not show it.
            value.set_sensitive(true);
            out.append(name, value);
        }
    }
    out
}

fn direction(headers: &HeaderMap) -> Result<Direction, InvalidCopy> {
    let source = text(headers, "source", "one URL")?;
    let destination = text(headers, "destination", "one URL")?;
    match (source, destination) {
        (Some(_), Some(_)) => Err(InvalidCopy::BothSides),
        (None, None) => Err(InvalidCopy::NoSide),
        (Some(url), None) => Ok(Direction::Pull {
            source: remote_url("source", url)?,
        }),
        (None, Some(url)) => Ok(Direction::Push {
            destination: remote_url("destination", url)?,
        }),
    }
}

/// `davs` and `dav` are other names of `https` and `http`. They are replaced before parsing, because only
/// then is the host brought into the one form that lists of allowed hosts are compared with.
fn remote_url(header: &'static str, text: &str) -> Result<Url, InvalidCopy> {
    let refused = |why| InvalidCopy::Url {
        header,
        url: redact(text)
            .chars()
            .filter(|c| !c.is_control())
            .take(300)
            .collect(),
        why,
    };
    let (scheme, rest) = text
        .split_once("://")
        .ok_or(refused("is not an absolute URL"))?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "https" | "davs" => "https",
        "http" | "dav" => "http",
        other if is_scheme(other) => {
            let scheme = other.chars().take(30).collect();
            return Err(InvalidCopy::Scheme { header, scheme });
        }
        _ => return Err(refused("is not a valid URL")),
    };
    let mut url =
        Url::parse(&format!("{scheme}://{rest}")).map_err(|_| refused("is not a valid URL"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused(
            "carries credentials; use a 'TransferHeaderAuthorization' header",
        ));
    }
    url.set_fragment(None);
    if share_secret(url.path()).is_some() {
        // It would be told to whoever reads logs and records.
        return Err(refused(
            "is a shared link; give the path of the file, with the last part of the link as ?authz=…",
        ));
    }
    Ok(url)
}

/// RFC 3986 §3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// `Want-Digest` and `Want-Repr-Digest` on a `COPY`, as dCache understands them: of the file that is made.
fn wanted(headers: &HeaderMap) -> Vec<ChecksumAlgorithm> {
    let mut wanted = digest::wanted(headers);
    for algorithm in digest::wanted_repr(headers) {
        if !wanted.contains(&algorithm) {
            wanted.push(algorithm);
        }
    }
    wanted
}

fn flag(
    headers: &HeaderMap,
    header: &'static str,
    yes: &str,
    no: &str,
    expected: &'static str,
) -> Result<Option<bool>, InvalidCopy> {
    match text(headers, header, expected)? {
        None => Ok(None),
        Some(value) if value.eq_ignore_ascii_case(yes) => Ok(Some(true)),
        Some(value) if value.eq_ignore_ascii_case(no) => Ok(Some(false)),
        Some(_) => Err(InvalidCopy::Header { header, expected }),
    }
}

fn credential(headers: &HeaderMap) -> Result<Option<Credential>, InvalidCopy> {
    let (header, expected) = ("credential", "'none', 'gridsite' or 'oidc'");
    let Some(value) = text(headers, header, expected)? else {
        return Ok(None);
    };
    match value.to_ascii_lowercase().as_str() {
        "none" => Ok(Some(Credential::None)),
        "gridsite" => Ok(Some(Credential::Gridsite)),
        "oidc" => Ok(Some(Credential::Oidc)),
        _ => Err(InvalidCopy::Header { header, expected }),
    }
}

fn streams(headers: &HeaderMap) -> Result<Option<u32>, InvalidCopy> {
    let (header, expected) = ("x-number-of-streams", "a number from 0 to 100");
    let Some(value) = text(headers, header, expected)? else {
        return Ok(None);
    };
    // Rust reads a sign that HTTP's numbers do not have.
    let number = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse::<u32>() {
        // gfal2 sends 0 for "no wish".
        Ok(0) if number => Ok(None),
        Ok(streams) if number && streams <= STREAMS_MAX => Ok(Some(streams)),
        _ => Err(InvalidCopy::Header { header, expected }),
    }
}

/// The experiment and activity for which bytes move, as networks count them. An invalid number is no reason to refuse a
/// request: it is only for accounting. `SciTag` wins over its forwarded form.
pub fn scitag(headers: &HeaderMap) -> Option<u32> {
    let value = headers
        .get("scitag")
        .or_else(|| headers.get("transferheaderscitag"))?;
    let number = value.to_str().ok()?.trim().parse().ok()?;
    SCITAGS.contains(&number).then_some(number)
}

fn client_info(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("clientinfo")?.to_str().ok()?.trim();
    let short: String = text.chars().take(CLIENT_INFO_CHARS_MAX).collect();
    // A cut may leave blanks at the end, which would not come back as they are.
    let short = short.trim_end();
    (!short.is_empty()).then(|| short.to_owned())
}

fn text<'a>(
    headers: &'a HeaderMap,
    header: &'static str,
    expected: &'static str,
) -> Result<Option<&'a str>, InvalidCopy> {
    let mut values = headers.get_all(header).iter();
    let invalid = InvalidCopy::Header { header, expected };
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value
            .to_str()
            .map(|text| Some(text.trim()))
            .map_err(|_| invalid),
        // Two values could be read differently by two programs on the way.
        (Some(_), Some(_)) => Err(invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(lines: &[&str]) -> HeaderMap {
        let parsed = lines.iter().map(|line| {
            let (name, value) = line.split_once(": ").expect("name: value");
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            (name, HeaderValue::from_str(value).expect("a header value"))
        });
        let mut map = HeaderMap::new();
        parsed.for_each(|(name, value)| {
            map.append(name, value);
        });
        map
    }

    fn parse(lines: &[&str]) -> Result<CopyRequest, InvalidCopy> {
        CopyRequest::parse(&headers(lines))
    }

    fn check_refused(lines: &[&str], expected: &str) {
        let why = parse(lines).expect_err("refused").to_string();
        assert_eq!(why, expected, "{lines:?}");
    }

    #[test]
    fn a_pull_as_gfal2_sends_it() {
        let request = parse(&[
            "Source: https://se.example.org:8443/data/src1",
            "X-Number-Of-Streams: 0",
            "Secure-Redirection: 1",
            "TransferHeaderAuthorization: Bearer secret",
            "Credential: none",
            "Authorization: Bearer mine",
            "RequireChecksumVerification: false",
        ])
        .expect("understood");
        assert_eq!(
            request.direction.remote().as_str(),
            "https://se.example.org:8443/data/src1"
        );
        assert!(matches!(request.direction, Direction::Pull { .. }));
        assert_eq!(
            request.transfer_headers,
            headers(&["authorization: Bearer secret"])
        );
        assert_eq!(
            (request.streams, request.credential),
            (None, Some(Credential::None))
        );
        assert_eq!(
            (request.overwrite, request.require_checksum),
            (true, Some(false))
        );
    }

    #[test]
    fn a_push_with_everything() {
        let request = parse(&[
            "Destination: davs://SE.example.org/f%20g?x=1",
            "Overwrite: f",
            "X-Number-Of-Streams: 4",
            "Repr-Digest: adler=:Ak0BJw==:",
            "SciTag: 66",
            "TransferHeaderSciTag: 144",
            "ClientInfo: job-id=1;file-id=2;retry=0",
            "TRANSFERHEADERX-Trace-Id: a",
            "transferheaderx-trace-id: b",
        ])
        .expect("understood");
        assert_eq!(
            request.direction.remote().as_str(),
            "https://se.example.org/f%20g?x=1"
        );
        assert!(matches!(request.direction, Direction::Push { .. }));
        assert_eq!(
            (request.overwrite, request.streams, request.scitag),
            (false, Some(4), Some(66))
        );
        assert_eq!(request.expected[0].to_string(), "adler32:024d0127");
        assert_eq!(
            request.client_info.as_deref(),
            Some("job-id=1;file-id=2;retry=0")
        );
        assert_eq!(
            request
                .transfer_headers
                .get_all("x-trace-id")
                .iter()
                .count(),
            2
        );
    }

    #[test]
    fn client_information_that_is_too_long_is_cut_so_that_it_comes_back_as_it_is() {
        let long = format!(
            "clientinfo: {}  {}",
            "x".repeat(CLIENT_INFO_CHARS_MAX - 1),
            "y"
        );
        let request = parse(&["source: https://se.example.org/f", &long]).expect("understood");
        let info = request.client_info.as_deref().expect("there");
        assert_eq!(info, "x".repeat(CLIENT_INFO_CHARS_MAX - 1));
        assert_eq!(CopyRequest::parse(&request.to_headers()), Ok(request));
    }

    #[test]
    fn only_headers_that_somebody_needs_are_forwarded() {
        let request = parse(&[
            "Source: https://se/f",
            "TransferHeaderHost: victim",
            "TransferHeaderContent-Length: 5",
            "TransferHeaderTransfer-Encoding: chunked",
            "TransferHeaderConnection: close",
            "TransferHeaderExpect: 100-continue",
            "TransferHeaderRange: bytes=0-1",
            "TransferHeaderProxy-Authorization: x",
            "TransferHeaderAccept-Encoding: gzip",
            "TransferHeaderTransferHeaderHost: x",
            "TransferHeader: x",
            "TransferHeaderAccept: */*",
            "TransferHeaderCookie: x",
            "TransferHeaderX-Auth-Token: x",
            "TransferHeaderX-Request-Id: 7",
        ])
        .expect("understood");
        assert_eq!(request.transfer_headers, headers(&["x-request-id: 7"]));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_reason() {
        check_refused(
            &["Overwrite: T"],
            "COPY needs a 'Source' header (pull) or a 'Destination' header (push)",
        );
        check_refused(
            &["Source: https://a/f", "Destination: https://b/f"],
            "COPY has both a 'Source' and a 'Destination' header; send one of them",
        );
        check_refused(
            &["Source: https://a/f", "Source: https://b/f"],
            "the 'source' header must be one URL",
        );
        check_refused(
            &["Source: gsiftp://a/f"],
            "the 'source' header is not usable: 'gsiftp' URLs cannot be copied; use https, davs, http or dav",
        );
        check_refused(
            &["Source: ht tp://a/f"],
            "the 'source' header is not usable: 'ht tp://a/f' is not a valid URL",
        );
        check_refused(
            &["Source: /local/path"],
            "the 'source' header is not usable: '/local/path' is not an absolute URL",
        );
        check_refused(
            &["Source: https://u:p@a/f?authz=secret"],
            "the 'source' header is not usable: 'https://…@a/f?…' carries credentials; \
             use a 'TransferHeaderAuthorization' header",
        );
        check_refused(
            &["Source: https://a/f", "Overwrite: yes"],
            "the 'overwrite' header must be 'T' or 'F'",
        );
        for bad in [
            "101",
            "-1",
            "+1",
            "1,2",
            "",
            "0x4",
            "4.0",
            "many",
            "4294967296",
            "18446744073709551617",
        ] {
            check_refused(
                &[
                    "Source: https://a/f",
                    &format!("X-Number-Of-Streams: {bad}"),
                ],
                "the 'x-number-of-streams' header must be a number from 0 to 100",
            );
        }
        check_refused(
            &["Source: https://a/f", "Credential: mine"],
            "the 'credential' header must be 'none', 'gridsite' or 'oidc'",
        );
        check_refused(
            &["Source: https://a/f", "Digest: adler32=zz"],
            "the adler32 value in the 'Digest' header is not a valid checksum",
        );
    }

    #[test]
    fn hosts_are_brought_into_one_form() {
        let host = |url: &str| {
            parse(&[&format!("Source: {url}")])
                .map(|r| r.direction.remote().host_str().map(str::to_owned))
        };
        assert_eq!(
            host("davs://0x7f000001/f"),
            Ok(Some("127.0.0.1".to_owned()))
        );
        assert_eq!(
            host("https://LOCALHOST/f"),
            Ok(Some("localhost".to_owned()))
        );
    }

    #[test]
    fn an_unusable_scitag_does_not_stop_the_copy() {
        for bad in ["64", "65536", "x"] {
            let request =
                parse(&["Source: https://a/f", &format!("SciTag: {bad}")]).expect("understood");
            assert_eq!(request.scitag, None);
        }
    }

    #[test]
    fn what_we_send_is_what_we_understand() {
        let source = Url::parse("https://se.example.org:8443/f").expect("valid");
        let request = CopyRequest {
            overwrite: false,
            require_checksum: Some(true),
            credential: Some(Credential::None),
            transfer_headers: headers(&["authorization: Bearer secret"]),
            streams: Some(3),
            expected: vec![Checksum::parse("adler32:1").expect("valid")],
            scitag: Some(66),
            client_info: Some("job-id=1".to_owned()),
            ..CopyRequest::new(Direction::Pull { source })
        };
        assert_eq!(CopyRequest::parse(&request.to_headers()), Ok(request));
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(url in "[ -~]{0,40}", bytes: Vec<u8>) {
            for name in ["source", "destination", "x-number-of-streams", "credential", "scitag",
                         "clientinfo", "overwrite", "transferheaderx"] {
                for value in [url.as_bytes(), &bytes[..]] {
                    let mut map = headers(&["source: https://a/f"]);
                    if let Ok(value) = HeaderValue::from_bytes(value) {
                        map.insert(name, value);
                        let _ = CopyRequest::parse(&map);
                    }
                }
            }
        }
    }
}
