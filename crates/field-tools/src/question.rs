//! One question to a JSON interface, as those of the transfer service and of the trash are asked.

use crate::credentials::Credentials;
use crate::remote_error::RemoteError;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use penstock_protocol::http1::client::{Client, ClientRequest};
use url::Url;

pub(crate) struct Question<'a> {
    pub method: Method,
    pub url: &'a Url,
    /// JSON.
    pub body: Option<&'a [u8]>,
    /// Bytes that the answer may have.
    pub answer_bytes_max: u64,
}

impl Question<'_> {
    /// The body of the answer, when it is a success.
    pub async fn ask(
        self,
        client: &Client,
        credentials: &dyn Credentials,
    ) -> Result<Vec<u8>, RemoteError> {
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, json.clone());
        let shown = credentials.at(self.url)?;
        if let Some(token) = shown.header(self.url)? {
            headers.insert(AUTHORIZATION, token);
        }
        if self.body.is_some() {
            headers.insert(CONTENT_TYPE, json);
        }
        let outgoing = ClientRequest {
            headers,
            ..ClientRequest::new(self.method, self.url.clone())
        };
        let mut answer = match self.body {
            Some(body) => client.send_bytes(outgoing, body).await?,
            None => client.send(outgoing).await?,
        };
        let status = answer.status;
        let text = answer.read_all(self.answer_bytes_max).await?;
        match status.is_success() {
            true => Ok(text),
            false => Err(RemoteError::of_status(
                self.url,
                status,
                &shown,
                &answer.headers,
                &text,
            )),
        }
    }
}
