//! The first look at the source of a pull: what its file is, and whether it is fetched whole or in parts.

use super::handler_context::Door;
use super::remote::{CopyFailure, redacted, refusal, send_following};
use crate::stream_memory::MemoryShare;
use http::header::{ETAG, IF_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use penstock_decide::Decision;
use penstock_decide::streams::{
    SourceParts, Streams, StreamsView, choose_streams, may_use_several,
};
use penstock_model::{Bytes, Checksum, StreamsReason};
use penstock_protocol::digest;
use penstock_protocol::http1::client::{ClientRequest, ClientResponse};
use penstock_protocol::ranges::{ContentRange, content_range};
use penstock_protocol::tpc::CopyRequest;
use url::Url;

/// The size of a file, as an answer tells it.
type Size = u64;

/// A source that has begun to answer.
pub(super) struct OpenSource {
    /// The whole file, or its first part.
    pub response: ClientResponse,
    /// Checksums of the whole file, by the source's word.
    pub told: Vec<Checksum>,
    /// Bytes of the whole file, when the source tells.
    pub size: Option<Size>,
    /// How the rest is fetched; `None`: the response is the whole file.
    pub parts: Option<PartsPlan>,
    pub because: Vec<StreamsReason>,
}

/// A file that comes in parts.
pub(super) struct PartsPlan {
    /// Asks for the whole file.
    pub request: ClientRequest,
    pub size: Size,
    /// Where the part that is on its way ends.
    pub first_end: Size,
    pub streams: Streams,
    pub version: Version,
    pub memory: MemoryShare,
}

/// Which version of a file an answer is of, as far as the source tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
}

/// Sends the first request. Asks for the whole file, or, when the client wants several streams, for the first part.
pub(super) async fn open(
    door: &Door,
    source: &Url,
    order: &CopyRequest,
) -> Result<OpenSource, CopyFailure> {
    let mut request = ClientRequest::new(Method::GET, source.clone());
    request.headers = order.transfer_headers.clone();
    // RFC 3230: whatever the source knows can be compared while the bytes pass.
    request.headers.insert(
        HeaderName::from_static("want-digest"),
        HeaderValue::from_static("adler32, crc32c;q=0.9, md5;q=0.5, sha-256;q=0.3"),
    );
    let settings = door.storage.settings();
    let limits = &settings.limits.streams;
    if !may_use_several(order.streams, limits) {
        let because = decide(door, order, SourceParts::Whole).because;
        return whole(door, request, because).await;
    }
    let length = limits.range_min.0.max(1);
    let (response, size, end) = match first_part(door, &request, length).await? {
        FirstPart::Part {
            response,
            size,
            end,
        } => (response, size, end),
        FirstPart::WholeFile(response) => {
            let because = decide(door, order, SourceParts::Whole).because;
            return opened_whole(response, because);
        }
        FirstPart::NoParts(source) => {
            let because = decide(door, order, source).because;
            return whole(door, request, because).await;
        }
    };
    let version = Version::of(&response.headers);
    let told = told_of_part(door, &request, &response, size).await?;
    let source = SourceParts::Parts {
        size: Bytes(size),
        guarded: version.is_told() || !told.is_empty() || !order.expected.is_empty(),
    };
    let Decision {
        choice: streams,
        mut because,
    } = decide(door, order, source);
    if streams.count > 1 {
        if let Some(memory) = door.storage.stream_memory.take(streams.memory()) {
            let parts = PartsPlan {
                request,
                size,
                first_end: end,
                streams,
                version,
                memory,
            };
            return Ok(OpenSource {
                response,
                told,
                size: Some(size),
                parts: Some(parts),
                because,
            });
        }
        because.push(StreamsReason::NoMemory);
    }
    if end < size {
        return whole(door, request, because).await;
    }
    Ok(OpenSource {
        response,
        told,
        size: Some(size),
        parts: None,
        because,
    })
}

/// What a source gives when it is asked for the first part of a file.
enum FirstPart {
    /// That part, up to this end, of a file of this size.
    Part {
        response: ClientResponse,
        size: Size,
        end: Size,
    },
    WholeFile(ClientResponse),
    /// Nothing that can be used; the whole file is to be asked for.
    NoParts(SourceParts),
}

async fn first_part(
    door: &Door,
    request: &ClientRequest,
    length: u64,
) -> Result<FirstPart, CopyFailure> {
    let mut first = request.clone();
    first.headers.insert(RANGE, range_header(0, length));
    let mut response = send_following(door, first).await?;
    let range = match response.status {
        StatusCode::OK => return Ok(FirstPart::WholeFile(response)),
        StatusCode::PARTIAL_CONTENT => content_range(&response.headers),
        // An empty file has no first part.
        StatusCode::RANGE_NOT_SATISFIABLE => {
            return Ok(FirstPart::NoParts(SourceParts::Parts {
                size: Bytes(0),
                guarded: true,
            }));
        }
        _ => return Err(refusal(door, &mut response).await),
    };
    Ok(match range {
        Some(ContentRange {
            first: 0,
            end,
            size: Some(size),
        }) if end == size.min(length) => FirstPart::Part {
            response,
            size,
            end,
        },
        Some(ContentRange { size: None, .. }) => FirstPart::NoParts(SourceParts::SizeUnknown),
        Some(_) | None => FirstPart::NoParts(SourceParts::Whole),
    })
}

fn decide(
    door: &Door,
    order: &CopyRequest,
    source: SourceParts,
) -> Decision<Streams, StreamsReason> {
    let view = StreamsView {
        asked: order.streams,
        source,
        memory_free: door.storage.stream_memory.free(),
    };
    choose_streams(&view, &door.storage.settings().limits.streams)
}

async fn whole(
    door: &Door,
    request: ClientRequest,
    because: Vec<StreamsReason>,
) -> Result<OpenSource, CopyFailure> {
    let mut response = send_following(door, request).await?;
    if response.status != StatusCode::OK {
        return Err(refusal(door, &mut response).await);
    }
    opened_whole(response, because)
}

fn opened_whole(
    response: ClientResponse,
    because: Vec<StreamsReason>,
) -> Result<OpenSource, CopyFailure> {
    let told = checksums(&response.headers, response.final_url())?;
    Ok(OpenSource {
        told,
        size: response.content_length(),
        response,
        parts: None,
        because,
    })
}

/// Checksums of the whole file, when a part of it was answered: with the part, else in answer to a HEAD. A source
/// that does not answer that is as good as one that tells none.
async fn told_of_part(
    door: &Door,
    request: &ClientRequest,
    part: &ClientResponse,
    size: Size,
) -> Result<Vec<Checksum>, CopyFailure> {
    let mut headers = part.headers.clone();
    // RFC 1864 speaks of the body, which is the part; digests of RFC 3230 and 9530 of the whole.
    headers.remove("content-md5");
    let told = checksums(&headers, part.final_url())?;
    if !told.is_empty() {
        return Ok(told);
    }
    let mut head = request.clone();
    head.method = Method::HEAD;
    match send_following(door, head).await {
        Ok(answer)
            if answer.status == StatusCode::OK
                && answer.content_length().is_none_or(|length| length == size) =>
        {
            checksums(&answer.headers, answer.final_url())
        }
        Ok(_) | Err(_) => Ok(Vec::new()),
    }
}

fn checksums(headers: &HeaderMap, url: &Url) -> Result<Vec<Checksum>, CopyFailure> {
    digest::parse(headers).map_err(|why| {
        let url = redacted(url);
        CopyFailure::late(format!("{url} sent a digest that is not understood: {why}"))
    })
}

/// `Range: bytes=first-last` for the bytes from `first` until before `end`.
pub(super) fn range_header(first: u64, end: u64) -> HeaderValue {
    let text = format!("bytes={first}-{}", end.saturating_sub(1));
    HeaderValue::from_str(&text).expect("digits are visible ASCII")
}

impl Version {
    pub(super) fn of(headers: &HeaderMap) -> Version {
        Version {
            etag: headers.get(ETAG).cloned(),
            modified: headers.get(LAST_MODIFIED).cloned(),
        }
    }

    /// Whether two versions can be told from each other.
    fn is_told(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    /// Lets the source refuse when its file is another one by now. A weak tag cannot be demanded (RFC 9110
    /// §13.1.1), but is compared in the answers.
    pub(super) fn demand(&self, headers: &mut HeaderMap) {
        let strong = self
            .etag
            .as_ref()
            .filter(|tag| tag.as_bytes().starts_with(b"\""));
        match (strong, &self.modified) {
            (Some(tag), _) => headers.insert(IF_MATCH, tag.clone()),
            (None, Some(date)) => headers.insert(IF_UNMODIFIED_SINCE, date.clone()),
            (None, None) => None,
        };
    }

    /// The answer is of another version than this.
    pub(super) fn differs(&self, headers: &HeaderMap) -> bool {
        let other = Version::of(headers);
        let differ = |one: &Option<HeaderValue>, other: &Option<HeaderValue>| matches!((one, other), (Some(one), Some(other)) if one != other);
        differ(&self.etag, &other.etag) || differ(&self.modified, &other.modified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_demanded_by_what_is_strong_and_compared_by_all() {
        let of = |pairs: &[(HeaderName, &'static str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
                .collect::<HeaderMap>()
        };
        let demanded = |headers: &HeaderMap| {
            let mut out = HeaderMap::new();
            Version::of(headers).demand(&mut out);
            out
        };
        let date = "Sat, 21 Nov 2026 06:19:45 GMT";
        let strong = of(&[(ETAG, "\"a\""), (LAST_MODIFIED, date)]);
        assert_eq!(demanded(&strong), of(&[(IF_MATCH, "\"a\"")]));
        let weak = of(&[(ETAG, "W/\"a\""), (LAST_MODIFIED, date)]);
        assert_eq!(demanded(&weak), of(&[(IF_UNMODIFIED_SINCE, date)]));
        assert_eq!(demanded(&HeaderMap::new()), HeaderMap::new());
        let version = Version::of(&weak);
        assert!(!version.differs(&weak) && !version.differs(&HeaderMap::new()));
        assert!(version.differs(&of(&[(ETAG, "W/\"b\"")])));
    }
}
