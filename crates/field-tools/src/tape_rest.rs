//! The WLCG Tape REST API of a storage element, as users ask it: files are brought to disk, looked at, and let go.
//!
//! Which files belong together and how often somebody looks is decided by whoever uses it.

use crate::credentials::{Credentials, OneToken};
use crate::json_interface::JsonInterface;
use crate::remote_error::RemoteError;
use http::Method;
use penstock_model::tape::StageFile;
use penstock_model::url::redact;
use penstock_model::{Problem, ProblemCode, Side, StageRequestId};
use penstock_protocol::http1::client::Client;
use penstock_protocol::tape::{
    self, DISCOVERY_BYTES_MAX, StageRequestStatus, TapeAnswerError, TapeInterface, WELL_KNOWN,
};
use std::sync::Arc;
use thiserror::Error;
use url::Url;

/// Files of one request. dCache takes as many as it is delivered; ours takes 10,000.
pub const FILES_PER_REQUEST: usize = 500;
/// Bytes that one answer may have: that of the largest request of a user.
const ANSWER_BYTES_MAX: u64 = 128 << 20;

/// Why a storage element cannot be asked for files on tape.
#[derive(Debug, Error)]
pub enum DiscoveryError {
    /// It announces no interface, or one that nobody here speaks.
    #[error("{server} offers no tape interface (WLCG Tape REST API, version 1){detail}")]
    NotOffered { server: String, detail: String },
    /// Its interface is at a server that is not shown what is for this one.
    #[error(
        "the tape interface of {server} is announced at {at}, which is another host or is not encrypted; it is not asked, \
         because it would be shown the token for {server}"
    )]
    Elsewhere { server: String, at: String },
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

impl DiscoveryError {
    /// The same as users are told it everywhere.
    pub fn problem(&self) -> Problem {
        let code = match self {
            DiscoveryError::Remote(why) => return why.problem(),
            DiscoveryError::NotOffered { .. } => ProblemCode::TapeUnsupported,
            DiscoveryError::Elsewhere { .. } => ProblemCode::PeerMalformed,
        };
        // It answers, and has no such interface: that is not an outage.
        Problem::new(code, self.to_string()).at(Side::Source)
    }
}

/// Where a storage element has its tape interface. Nothing is shown to it.
///
/// The interface may be on another port of the host, never on another host, and never without TLS where the files have it.
pub async fn find_interface(
    client: &Client,
    server: &Url,
) -> Result<TapeInterface, DiscoveryError> {
    let name = redact(server.origin().ascii_serialization().as_str());
    let asked = JsonInterface {
        client: client.clone(),
        base: server.clone(),
        credentials: Arc::new(OneToken(None)),
        answer_bytes_max: DISCOVERY_BYTES_MAX,
        whose: "a storage element",
    };
    let not_offered = |detail: String| DiscoveryError::NotOffered {
        server: name.clone(),
        detail,
    };
    let (url, body) = match asked.ask(Method::GET, WELL_KNOWN, None).await {
        Ok(told) => told,
        Err(why) => {
            let status = why.status().map(|status| status.as_u16());
            return Err(match status {
                Some(401 | 403 | 404 | 405 | 410 | 501) => not_offered(String::new()),
                _ => why.into(),
            });
        }
    };
    let found = TapeInterface::parse(&body).map_err(|why| match why {
        TapeAnswerError::NoVersion => not_offered(format!(": {why}")),
        TapeAnswerError::Malformed(_) | TapeAnswerError::OtherRequest(_) => {
            RemoteError::nonsense(&url, why.to_string()).into()
        }
    })?;
    let is_as_safe = found.uri().scheme() == "https" || server.scheme() == "http";
    match found.uri().host() == server.host() && is_as_safe {
        true => Ok(found),
        false => Err(DiscoveryError::Elsewhere {
            server: name,
            at: redact(found.uri().as_str()),
        }),
    }
}

/// A tape interface, and what it is shown.
pub struct TapeRest {
    interface: TapeInterface,
    json: JsonInterface,
}

impl TapeRest {
    /// Asks it with these credentials.
    pub fn new(
        client: Client,
        interface: TapeInterface,
        credentials: Arc<dyn Credentials>,
    ) -> TapeRest {
        TapeRest {
            json: JsonInterface {
                client,
                base: interface.uri().clone(),
                credentials,
                answer_bytes_max: ANSWER_BYTES_MAX,
                whose: "a tape interface",
            },
            interface,
        }
    }

    /// Asks for files to be brought to disk: at most [`FILES_PER_REQUEST`]. That one cannot be brought is told by
    /// [`TapeRest::status`].
    pub async fn stage(&self, files: &[StageFile]) -> Result<StageRequestId, RemoteError> {
        let url = self.interface.stage();
        let body = tape::stage_body(files);
        let (url, answer) = self.ask(Method::POST, &url, Some(&body)).await?;
        tape::parse_staged(&answer).map_err(|why| RemoteError::nonsense(&url, why.to_string()))
    }

    /// How far a request is.
    pub async fn status(&self, id: &StageRequestId) -> Result<StageRequestStatus, RemoteError> {
        let url = self.interface.request(id);
        let (url, answer) = self.ask(Method::GET, &url, None).await?;
        tape::parse_stage_status(&answer, id)
            .map_err(|why| RemoteError::nonsense(&url, why.to_string()))
    }

    /// Files of a request are not wanted any more.
    pub async fn cancel(&self, id: &StageRequestId, paths: &[String]) -> Result<(), RemoteError> {
        let body = tape::paths_body(paths);
        let url = self.interface.cancel(id);
        self.ask(Method::POST, &url, Some(&body)).await.map(drop)
    }

    /// Files of a request need not stay on disk. Of a request that it does not know, a storage element of ours lets go the
    /// files in all requests of the user.
    pub async fn release(&self, id: &StageRequestId, paths: &[String]) -> Result<(), RemoteError> {
        let body = tape::paths_body(paths);
        let url = self.interface.release(id);
        self.ask(Method::POST, &url, Some(&body)).await.map(drop)
    }

    async fn ask(
        &self,
        method: Method,
        url: &Url,
        body: Option<&[u8]>,
    ) -> Result<(Url, Vec<u8>), RemoteError> {
        self.json.ask(method, url.as_str(), body).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{TestReply, TestServer};
    use penstock_protocol::http1::client::ClientConfig;
    use penstock_protocol::tls::ClientTls;

    fn client() -> Client {
        let nobody = tempfile::tempdir().expect("made");
        let tls = ClientTls::from_ca_directory(nobody.path()).expect("a directory");
        Client::new(ClientConfig::new(tls))
    }

    #[tokio::test]
    async fn an_interface_is_asked_at_the_host_of_its_storage_element_only() {
        let check = async |uri: Option<&str>, expected: &str| {
            let uri = uri.map(str::to_owned);
            let server = TestServer::start(move |_| match &uri {
                None => TestReply::status(404),
                Some(uri) => TestReply {
                    status: 200,
                    body: format!(
                        r#"{{"sitename": "s", "endpoints": [{{"uri": "{uri}", "version": "v1"}}]}}"#
                    )
                    .into_bytes(),
                    ..TestReply::default()
                },
            })
            .await;
            let told = match find_interface(&client(), &server.url("/")).await {
                Ok(found) => found.uri().to_string(),
                Err(why) => why.to_string(),
            };
            assert!(told.contains(expected), "{told}");
        };
        check(None, "offers no tape interface (WLCG Tape REST API").await;
        let other_port = "http://127.0.0.1:9/api/v1";
        check(Some(other_port), other_port).await;
        check(Some("http://127.0.0.2:9/api/v1"), "which is another host").await;
        let uri = Url::parse("https://se/api").expect("a URL");
        assert_eq!(uri.scheme(), "https");
    }

    #[tokio::test]
    async fn a_request_is_made_looked_at_and_let_go_as_the_interface_says() {
        let server = TestServer::start(|request| {
            let body = match (request.method.as_str(), request.path.as_str()) {
                ("POST", "/v1/stage") => r#"{"requestId": "r1"}"#,
                ("GET", "/v1/stage/r1") => {
                    r#"{"id": "r1", "createdAt": 1795241991, "expectedAt": 1795241992000, "files": [
                        {"path": "//a", "onDisk": true}, {"path": "/b", "state": "STARTED", "waitsFor": "a drive"},
                        {"path": "/c", "state": "FAILED", "error": "gone", "code": "path-not-found"},
                        {"path": "/d", "state": "CANCELLED"}]}"#
                }
                _ => "",
            };
            TestReply {
                status: 200,
                body: body.as_bytes().to_vec(),
                ..TestReply::default()
            }
        })
        .await;
        let document = format!(
            r#"{{"sitename": "s", "endpoints": [{{"uri": "{}", "version": "v1"}}]}}"#,
            server.url("/v1")
        );
        let interface = TapeInterface::parse(document.as_bytes()).expect("an interface");
        let tape = TapeRest::new(client(), interface, Arc::new(OneToken(None)));
        let file = StageFile {
            path: "/a".to_owned(),
            pin_seconds: Some(60),
            within_seconds: 1,
            targeted_metadata: None,
        };
        let id = tape.stage(&[file]).await.expect("asked");
        let status = tape.status(&id).await.expect("told");
        let expected = status.expected.map(|at| at.unix_seconds());
        assert_eq!(expected, Some(1_795_241_992));
        let told: Vec<String> = status
            .files
            .iter()
            .map(|file| {
                let flags = (file.is_started, file.is_canceled);
                format!("{} {:?} {flags:?}", file.path, file.progress)
            })
            .collect();
        assert_eq!(
            told,
            [
                "/a OnDisk (false, false)",
                "/b Pending (true, false)",
                "/c Failed(\"gone\") (false, false)",
                "/d Failed(\"it was canceled there\") (false, true)",
            ]
        );
        let paths = ["/b".to_owned()];
        tape.cancel(&id, &paths).await.expect("canceled");
        tape.release(&id, &paths).await.expect("released");
        let posts = ["/v1/stage", "/v1/stage/r1/cancel", "/v1/release/r1"];
        assert_eq!(server.asked("POST"), posts);
    }
}
