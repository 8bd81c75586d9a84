//! A JSON interface of a service, as one client asks it: that of the transfer service, and what administrators ask of a storage
//! element's trash and tape system.

use crate::credentials::Credentials;
use crate::remote_error::RemoteError;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use penstock_protocol::http1::client::{Client, ClientRequest};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use url::Url;

/// One interface, and what it is shown.
#[derive(Clone)]
pub(crate) struct JsonInterface {
    pub client: Client,
    /// The address of the server.
    pub base: Url,
    pub credentials: Arc<dyn Credentials>,
    /// Bytes that one answer may have.
    pub answer_bytes_max: u64,
    /// Whose answers these are, for who reads that one is not understood.
    pub whose: &'static str,
}

impl JsonInterface {
    /// Asks at a path, with its query, and reads the answer. An empty one (204) is `null`.
    pub(crate) async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<T, RemoteError> {
        let (url, text) = self.ask(method, path, body).await?;
        let text = if text.is_empty() { b"null" } else { &text[..] };
        serde_json::from_slice(text).map_err(|why| {
            RemoteError::nonsense(&url, format!("not an answer of {}: {why}", self.whose))
        })
    }

    /// The same of what is answered with nothing that is needed.
    pub(crate) async fn order(
        &self,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<(), RemoteError> {
        self.ask(method, path, body).await.map(drop)
    }

    /// The URL that was asked, and the body of its answer, when that is a success.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<(Url, Vec<u8>), RemoteError> {
        let url = self.base.join(path);
        let url = url.map_err(|why| RemoteError::nonsense(&self.base, why.to_string()))?;
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, json.clone());
        let shown = self.credentials.at(&url)?;
        if let Some(token) = shown.header(&url)? {
            headers.insert(AUTHORIZATION, token);
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, json);
        }
        let outgoing = ClientRequest {
            headers,
            ..ClientRequest::new(method, url.clone())
        };
        let mut answer = match body {
            Some(body) => self.client.send_bytes(outgoing, body).await?,
            None => self.client.send(outgoing).await?,
        };
        let status = answer.status;
        let text = answer.read_all(self.answer_bytes_max).await?;
        match status.is_success() {
            true => Ok((url, text)),
            false => Err(RemoteError::of_status(
                &url,
                status,
                &shown,
                &answer.headers,
                &text,
            )),
        }
    }
}
