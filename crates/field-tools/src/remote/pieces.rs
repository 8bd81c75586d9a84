//! Uploads in several requests (draft-ietf-httpbis-resumable-upload): what a server has of a file stays there when the
//! connection or the client ends, and the rest is sent later.

use super::{Remote, WANT_DIGEST, Written, strong_etag, told_checksums};
use crate::checksum_choice::ChecksumChoice;
use crate::remote_error::RemoteError;
use crate::replaceable::Replaceable;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use penstock_model::{Bytes, Checksum};
use penstock_protocol::digest;
use penstock_protocol::http1::client::{ClientRequest, Upload};
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

/// What is missing of an upload.
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
        replaceable: &Replaceable<String>,
    ) -> Result<Url, RemoteError> {
        let mut request = self.request(Method::PUT, url)?;
        let headers = &mut request.headers;
        headers.insert(UPLOAD_COMPLETE, HeaderValue::from_static("?0"));
        headers.insert(UPLOAD_LENGTH, HeaderValue::from(size.0));
        replaceable.demand(url, headers)?;
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

    /// Opens a request that brings the rest of an upload. The file is not in its place before the upload is completed. The server
    /// learns which checksums it will be asked for then.
    pub async fn send_rest(
        &self,
        upload: &Url,
        rest: Rest,
        checksums: ChecksumChoice,
    ) -> Result<Upload, RemoteError> {
        let mut request = self.piece(upload, rest.offset, "?0")?;
        request.headers.insert(WANT_DIGEST, checksums.wanted());
        self.start(upload, request, rest.length).await
    }

    /// Completes an upload of which all bytes are there. The server compares them before anything is replaced. Gives back what the
    /// answer tells of the file.
    pub async fn complete_pieces(
        &self,
        upload: &Url,
        size: Bytes,
        checksums: ChecksumChoice,
        sent: &[Checksum],
    ) -> Result<Written, RemoteError> {
        let mut request = self.piece(upload, size.0, "?1")?;
        // One is enough for the server to compare, and each costs it a read of the file when it has not computed it.
        if let Some(best) = checksums.best_of(sent) {
            let value = digest::repr_header_value(std::slice::from_ref(&best));
            let name = HeaderName::from_static("repr-digest");
            request.headers.insert(name, value);
        }
        request.headers.insert(WANT_DIGEST, checksums.wanted());
        let answer = self.client.send_bytes(request, b"").await?;
        let answer = self.expect_success(upload, answer).await?;
        Ok(Written {
            checksums: told_checksums(upload, &answer.headers)?,
            etag: strong_etag(&answer.headers),
        })
    }

    fn piece(
        &self,
        upload: &Url,
        offset: u64,
        complete: &'static str,
    ) -> Result<ClientRequest, RemoteError> {
        let mut request = self.request(Method::PATCH, upload)?;
        let headers = &mut request.headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PARTIAL_UPLOAD));
        headers.insert(UPLOAD_OFFSET, HeaderValue::from(offset));
        headers.insert(UPLOAD_COMPLETE, HeaderValue::from_static(complete));
        Ok(request)
    }
}
