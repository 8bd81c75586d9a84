//! Uploads in several requests (draft-ietf-httpbis-resumable-upload): what a server has of a file stays there when the
//! connection or the client ends, and the rest is sent later.

use super::{Occupied, Remote, WANT_DIGEST};
use crate::checksum_choice::ChecksumChoice;
use crate::remote_error::RemoteError;
use http::header::{CONTENT_TYPE, IF_NONE_MATCH, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use penstock_model::Bytes;
use penstock_protocol::http1::client::Upload;
use penstock_protocol::resumable::{
    PARTIAL_UPLOAD, UPLOAD_COMPLETE, UPLOAD_LENGTH, UPLOAD_LIMIT, UPLOAD_OFFSET, is_complete,
    offset,
};
use url::Url;

/// What a server has of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadState {
    /// Bytes that are durable there.
    pub offset: u64,
    /// The file is in its place.
    pub is_complete: bool,
}

/// What ends an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

impl Remote {
    /// Whether the server of a file says that it takes uploads in pieces. Another one would take the beginning of an upload
    /// for the whole file.
    pub async fn takes_pieces(&self, url: &Url) -> Result<bool, RemoteError> {
        let answer = self
            .client
            .send(self.request(Method::OPTIONS, url)?)
            .await?;
        Ok(answer.status.is_success() && answer.headers.contains_key(UPLOAD_LIMIT))
    }

    /// Begins an upload of a file of known size; gives back its address.
    pub async fn begin_pieces(
        &self,
        url: &Url,
        size: Bytes,
        occupied: Occupied,
    ) -> Result<Url, RemoteError> {
        let mut request = self.request(Method::PUT, url)?;
        let headers = &mut request.headers;
        headers.insert(UPLOAD_COMPLETE, HeaderValue::from_static("?0"));
        headers.insert(UPLOAD_LENGTH, HeaderValue::from(size.0));
        if occupied == Occupied::Refused {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let answer = self.client.send(request).await?;
        let answer = self.expect_success(url, answer).await?;
        let location = answer.headers.get(LOCATION);
        let location = location.and_then(|value| value.to_str().ok());
        let place = location.and_then(|text| url.join(text).ok());
        // An address elsewhere would be shown this server's token.
        place
            .filter(|place| place.origin() == url.origin())
            .ok_or_else(|| {
                RemoteError::nonsense(url, "the server does not report the address of the upload")
            })
    }

    /// What the server has of an upload; `None` when it knows none.
    pub async fn state_of_pieces(&self, upload: &Url) -> Result<Option<UploadState>, RemoteError> {
        let answer = self
            .client
            .send(self.request(Method::HEAD, upload)?)
            .await?;
        if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(None);
        }
        let answer = self.expect_success(upload, answer).await?;
        let told = offset(&answer.headers).ok().flatten();
        let complete = is_complete(&answer.headers).ok();
        match (told, complete) {
            (Some(offset), Some(is_complete)) => Ok(Some(UploadState {
                offset,
                is_complete,
            })),
            _ => Err(RemoteError::nonsense(
                upload,
                "the server does not report the progress of the upload",
            )),
        }
    }

    /// Opens the last request of an upload; the checksum of the whole file is asked for.
    pub async fn send_rest(
        &self,
        upload: &Url,
        rest: Rest,
        checksums: ChecksumChoice,
    ) -> Result<Upload, RemoteError> {
        let mut request = self.request(Method::PATCH, upload)?;
        let headers = &mut request.headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PARTIAL_UPLOAD));
        headers.insert(UPLOAD_OFFSET, HeaderValue::from(rest.offset));
        headers.insert(UPLOAD_COMPLETE, HeaderValue::from_static("?1"));
        headers.insert(WANT_DIGEST, checksums.wanted());
        self.start(upload, request, rest.length).await
    }
}
