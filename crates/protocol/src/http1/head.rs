//! Reading the heads of requests and responses, and from them where the body ends (RFC 9112 §2 to §6).
//!
//! Stricter than the RFC demands: the lines of requests end with CRLF only, and whatever two readers could take
//! differently is refused, never repaired. Responses may end header lines with LF alone (RFC 9112 §2.2): XRootD does
//! so with `Content-Range` when a digest follows.

use super::body::BodyLength;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use memchr::{memchr3_iter, memmem};
use std::mem::MaybeUninit;

/// Headers that a head may have whatever the limits say: the parser's table is of this size.
pub(super) const HEADERS_CEILING: usize = 128;

/// Why a head is not accepted: the status to answer with, and what to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeadRejection {
    pub(super) status: StatusCode,
    pub(super) why: String,
}

impl HeadRejection {
    fn bad(why: impl Into<String>) -> HeadRejection {
        HeadRejection {
            status: StatusCode::BAD_REQUEST,
            why: why.into(),
        }
    }

    /// Of a head that is too long: when its first line has no end yet, that line is what is wrong.
    pub(super) fn too_large(head: &[u8], head_bytes_max: usize) -> HeadRejection {
        let kept = &head[..head.len().min(head_bytes_max)];
        let (status, what) = match kept.contains(&b'\n') {
            true => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head"),
            false => (StatusCode::URI_TOO_LONG, "request line"),
        };
        HeadRejection {
            status,
            why: format!("the {what} is longer than {head_bytes_max} bytes"),
        }
    }
}

/// A request's head, understood.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: BodyLength,
    /// HTTP/1.1 rather than 1.0: chunks and interim answers may be sent.
    pub(super) modern: bool,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
}

/// A response's head, understood.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) length: ResponseLength,
    /// What the `Content-Length` says, also where no body follows (`HEAD`).
    pub(super) content_length: Option<u64>,
    pub(super) keep_alive: bool,
}

/// How a response's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseLength {
    Empty,
    Fixed(u64),
    Chunked,
    UntilClose,
}

/// Where the head at the beginning of `bytes` ends, searching on from `searched`: the index behind the
/// empty line.
pub(super) fn head_end(bytes: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(3);
    memmem::find(&bytes[from..], b"\r\n\r\n").map(|at| from + at + 4)
}

/// Empty lines before a request line, which RFC 9112 §2.2 lets a server skip.
pub(super) fn leading_empty_lines(bytes: &[u8]) -> usize {
    bytes
        .chunks_exact(2)
        .take_while(|pair| pair == b"\r\n")
        .count()
        * 2
}

/// Parses a complete request head (up to and with its empty line).
pub(super) fn parse_request(head: &[u8], headers_max: usize) -> Result<RequestHead, HeadRejection> {
    check_lines(head, 0, LineEnd::Crlf)?;
    let mut table = [const { MaybeUninit::uninit() }; HEADERS_CEILING];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut table) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => {
            return Err(HeadRejection::bad("the head is not complete"));
        }
        Err(httparse::Error::Version) => {
            let why = "only HTTP/1.0 and HTTP/1.1 are spoken here".to_owned();
            return Err(HeadRejection {
                status: StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                why,
            });
        }
        Err(why) => return Err(refuse_syntax(why)),
    }
    let method = Method::from_bytes(request.method.unwrap_or_default().as_bytes())
        .map_err(|_| HeadRejection::bad("the method is not a token"))?;
    let target = request.path.unwrap_or_default().to_owned();
    let modern = request.version == Some(1);
    let headers = collect(request.headers, headers_max)?;
    check_host(&headers, modern)?;
    let body = request_length(&headers, modern)?;
    let expects_continue = expects_continue(&headers, modern)?;
    let keep_alive = keeps_alive(&headers, modern);
    Ok(RequestHead {
        method,
        target,
        headers,
        body,
        modern,
        keep_alive,
        expects_continue,
    })
}

/// Parses a complete response head. `of` is the method of the request that it answers. Errors are for
/// people.
pub(super) fn parse_response(head: &[u8], of: &Method) -> Result<ResponseHead, String> {
    check_lines(head, 0, LineEnd::Any).map_err(|refusal| refusal.why)?;
    let mut table = [const { MaybeUninit::uninit() }; HEADERS_CEILING];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        head,
        &mut table,
    );
    match parsed {
        Ok(httparse::Status::Complete(end)) if end == head.len() => {}
        // What follows could be taken for the body or for more headers.
        Ok(httparse::Status::Complete(_)) => {
            return Err("its head has an empty line before its end".into());
        }
        Ok(httparse::Status::Partial) => return Err("the head is not complete".into()),
        Err(why) => return Err(refuse_syntax(why).why),
    }
    let status = response
        .code
        .and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or("the status is not a number from 100 to 999")?;
    let modern = response.version == Some(1);
    let headers = collect(response.headers, HEADERS_CEILING).map_err(|refusal| refusal.why)?;
    let (length, content_length) = response_length(status, &headers, of)?;
    let keep_alive = keeps_alive(&headers, modern) && length != ResponseLength::UntilClose;
    Ok(ResponseHead {
        status,
        headers,
        length,
        content_length,
        keep_alive,
    })
}

/// What may end a line of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    Crlf,
    /// CRLF, or LF alone.
    Any,
}

/// Lines must end as they may, CR must not stand alone, and no line may continue the one before (RFC 9112
/// §2.2, §5.2). Looks from `from` on, so that a head that comes in pieces is refused at its first wrong
/// byte.
pub(super) fn check_lines(head: &[u8], from: usize, ends: LineEnd) -> Result<(), HeadRejection> {
    if from == 0 && head.first().copied().is_some_and(is_blank) {
        return Err(HeadRejection::bad("the head begins with white space"));
    }
    // Of the byte before, what may follow it is looked at.
    let begin = from.saturating_sub(1);
    for at in memchr3_iter(b'\n', b'\r', 0, &head[begin..]) {
        let at = begin + at;
        let is_after_cr = at > 0 && head[at - 1] == b'\r';
        let next = head.get(at + 1).copied();
        match head[at] {
            0 => return Err(HeadRejection::bad("the head holds a NUL")),
            b'\n' if !is_after_cr && ends == LineEnd::Crlf => {
                return Err(HeadRejection::bad("a line ends with LF instead of CRLF"));
            }
            b'\n' if next.is_some_and(is_blank) => {
                return Err(HeadRejection::bad("a header is folded over several lines"));
            }
            b'\r' if next.is_some_and(|next| next != b'\n') => {
                return Err(HeadRejection::bad("a CR stands without LF"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn refuse_syntax(why: httparse::Error) -> HeadRejection {
    match why {
        httparse::Error::TooManyHeaders => HeadRejection {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            why: format!("more than {HEADERS_CEILING} headers"),
        },
        why => HeadRejection::bad(format!("the head is not HTTP: {why}")),
    }
}

fn collect(
    parsed: &[httparse::Header<'_>],
    headers_max: usize,
) -> Result<HeaderMap, HeadRejection> {
    if parsed.len() > headers_max {
        return Err(HeadRejection {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            why: format!("more than {headers_max} headers"),
        });
    }
    let mut headers = HeaderMap::with_capacity(parsed.len());
    for header in parsed {
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|_| HeadRejection::bad("a header's name is not a token"))?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| {
            HeadRejection::bad(format!("the value of {name} holds a control character"))
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// RFC 9112 §3.2: exactly one `Host` in HTTP/1.1, never more than one.
fn check_host(headers: &HeaderMap, modern: bool) -> Result<(), HeadRejection> {
    match headers.get_all(HOST).iter().count() {
        1 => Ok(()),
        0 if !modern => Ok(()),
        0 => Err(HeadRejection::bad("the Host header is missing")),
        _ => Err(HeadRejection::bad("there is more than one Host header")),
    }
}

/// RFC 9112 §6.3 for requests.
fn request_length(headers: &HeaderMap, modern: bool) -> Result<BodyLength, HeadRejection> {
    let length = content_length(headers).map_err(HeadRejection::bad)?;
    if !headers.contains_key(TRANSFER_ENCODING) {
        return Ok(length.map_or(BodyLength::Empty, BodyLength::Fixed));
    }
    if length.is_some() {
        return Err(HeadRejection::bad(
            "Content-Length and Transfer-Encoding contradict each other",
        ));
    }
    if !modern {
        return Err(HeadRejection::bad("HTTP/1.0 knows no Transfer-Encoding"));
    }
    match is_chunked(headers) {
        true => Ok(BodyLength::Chunked),
        false => Err(HeadRejection {
            status: StatusCode::NOT_IMPLEMENTED,
            why: "the only Transfer-Encoding known here is 'chunked'".into(),
        }),
    }
}

/// RFC 9112 §6.3 for responses. Both `Content-Length` and `Transfer-Encoding` "ought to be handled as an
/// error".
fn response_length(
    status: StatusCode,
    headers: &HeaderMap,
    of: &Method,
) -> Result<(ResponseLength, Option<u64>), String> {
    let length = content_length(headers)?;
    let bodyless = of == Method::HEAD
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    if bodyless {
        return Ok((ResponseLength::Empty, length));
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return match (length, is_chunked(headers)) {
            (None, true) => Ok((ResponseLength::Chunked, None)),
            (None, false) => Err("the only Transfer-Encoding known here is 'chunked'".into()),
            (Some(_), _) => {
                Err("Content-Length and Transfer-Encoding contradict each other".into())
            }
        };
    }
    Ok((
        length.map_or(ResponseLength::UntilClose, ResponseLength::Fixed),
        length,
    ))
}

/// The length announced. Equal repetitions are one (RFC 9110 §8.6); lists, signs and different values are
/// errors.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, String> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let text = value.to_str().unwrap_or_default();
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|_| digits);
        let number = number.ok_or("Content-Length is not a number of bytes")?;
        if length.is_some_and(|before| before != number) {
            return Err("there are several Content-Length headers that differ".into());
        }
        length = Some(number);
    }
    Ok(length)
}

/// True when `chunked` is the one and only transfer coding.
fn is_chunked(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    let first = values
        .next()
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    first && values.next().is_none()
}

/// RFC 9110 §10.1.1. HTTP/1.0 clients cannot expect anything.
fn expects_continue(headers: &HeaderMap, modern: bool) -> Result<bool, HeadRejection> {
    match headers.get(EXPECT) {
        Some(value) if modern => match value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
            true => Ok(true),
            false => Err(HeadRejection {
                status: StatusCode::EXPECTATION_FAILED,
                why: "the only expectation known here is '100-continue'".into(),
            }),
        },
        Some(_) | None => Ok(false),
    }
}

/// RFC 9112 §9.3: persistent unless `close`; HTTP/1.0 only with `keep-alive`.
fn keeps_alive(headers: &HeaderMap, modern: bool) -> bool {
    !asks_to_close(headers) && (modern || has_connection_option(headers, "keep-alive"))
}

/// True when the connection shall end with this message.
pub(super) fn asks_to_close(headers: &HeaderMap) -> bool {
    has_connection_option(headers, "close")
}

fn has_connection_option(headers: &HeaderMap, wanted: &str) -> bool {
    let values = headers.get_all(CONNECTION).into_iter();
    let mut options = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    options.any(|option| option.trim().eq_ignore_ascii_case(wanted))
}
