//! Short links that give access: those of a transfer service to its live page, and shares of a storage element.

use crate::credentials::Credentials;
use crate::json_interface::JsonInterface;
use crate::remote_error::RemoteError;
use crate::transfer_api::{TransferService, segment};
use http::Method;
use penstock_model::NamespacePath;
use penstock_protocol::http1::client::Client;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use url::{Url, form_urlencoded};

/// Where a transfer service has its links, and a door its shares.
const ACCESS_LINKS: &str = "api/v1/access-links";
const SHARES: &str = "/.penstock/shares";
/// Bytes that one answer may have: of 20,000 links.
const ANSWER_BYTES_MAX: u64 = 32 << 20;

/// A link without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessLinkInfo {
    pub id: String,
    /// Of a transfer service: `login`, `session` or `view`. A share has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Who made it.
    pub user: String,
    /// What it opens: the path of a share, else `/`, `job/ID` or `transfer/NUMBER`.
    #[serde(alias = "path")]
    pub opens: String,
    pub access: String,
    /// All times in RFC 3339, in UTC.
    pub created_at: String,
    pub expires_at: String,
    pub first_used_at: Option<String>,
    pub last_used_at: Option<String>,
    /// `valid`, `used`, `expired` or `revoked`.
    pub state: String,
    pub ended_at: Option<String>,
}

/// A link of a transfer service that was made now.
#[derive(Debug, Deserialize)]
pub struct MadeAccessLink {
    pub id: String,
    pub user: String,
    pub access: String,
    pub opens: String,
    pub expires_at: String,
    /// The part of the URL behind host and port, with the secret.
    pub path: String,
    pub lifetime_max_seconds: u64,
    /// Of a login link: how long its session lasts.
    pub session_seconds: Option<u64>,
}

/// A share that was made now.
#[derive(Debug, Deserialize)]
pub struct MadeShare {
    pub id: String,
    pub path: String,
    pub access: String,
    pub expires_at: String,
    /// The part of the URL behind host and port, with the secret.
    pub link: String,
    pub lifetime_seconds: u64,
    pub lifetime_max_seconds: u64,
    /// `site` or `credential`: why it is shorter than was asked for.
    pub shortened_by: Option<String>,
}

impl TransferService {
    /// Makes a login link, whose session lasts so long.
    pub async fn login_link(
        &self,
        lifetime: Duration,
        session: Duration,
    ) -> Result<MadeAccessLink, RemoteError> {
        let form = json!({
            "kind": "login",
            "lifetime_seconds": lifetime.as_secs(),
            "session_seconds": session.as_secs(),
        });
        let body = form.to_string();
        self.exchange(Method::POST, ACCESS_LINKS, Some(body.as_bytes()))
            .await
    }

    /// Makes a view link of `job/ID` or `transfer/NUMBER`.
    pub async fn view_link(
        &self,
        opens: &str,
        lifetime: Duration,
    ) -> Result<MadeAccessLink, RemoteError> {
        let form = json!({"kind": "view", "opens": opens, "lifetime_seconds": lifetime.as_secs()});
        let body = form.to_string();
        self.exchange(Method::POST, ACCESS_LINKS, Some(body.as_bytes()))
            .await
    }

    /// The caller's links, or those of all users, the newest first.
    pub async fn access_links(&self, of_all: bool) -> Result<Vec<AccessLinkInfo>, RemoteError> {
        let path = match of_all {
            true => format!("{ACCESS_LINKS}?all=true"),
            false => ACCESS_LINKS.to_owned(),
        };
        self.exchange(Method::GET, &path, None).await
    }

    /// Ends a link at once.
    pub async fn revoke_access_link(&self, id: &str) -> Result<AccessLinkInfo, RemoteError> {
        let path = format!("{ACCESS_LINKS}/{}", segment(id));
        self.exchange(Method::DELETE, &path, None).await
    }
}

/// The shares of one storage element.
#[derive(Clone)]
pub struct SharesApi(JsonInterface);

/// What a door answers to a list.
#[derive(Deserialize)]
struct ShareList {
    shares: Vec<AccessLinkInfo>,
}

impl SharesApi {
    /// Those of the storage element with this door, such as `https://se.example.org:8443`.
    pub fn new(client: Client, door: Url, credentials: Arc<dyn Credentials>) -> SharesApi {
        SharesApi(JsonInterface {
            client,
            base: door,
            credentials,
            answer_bytes_max: ANSWER_BYTES_MAX,
            whose: "a storage element with shares",
        })
    }

    /// Makes a share. `access`: `read`, `upload` or `list`.
    pub async fn make(
        &self,
        path: &NamespacePath,
        access: &str,
        lifetime: Duration,
    ) -> Result<MadeShare, RemoteError> {
        let form = json!({
            "path": path.to_string(),
            "access": access,
            "lifetime_seconds": lifetime.as_secs(),
        });
        let body = form.to_string();
        self.0
            .exchange(Method::POST, SHARES, Some(body.as_bytes()))
            .await
    }

    /// The caller's shares, or those of all users; of one path or all.
    pub async fn list(
        &self,
        path: Option<&NamespacePath>,
        of_all: bool,
    ) -> Result<Vec<AccessLinkInfo>, RemoteError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(path) = path {
            query.append_pair("path", &path.to_string());
        }
        if of_all {
            query.append_pair("all", "true");
        }
        let place = format!("{SHARES}?{}", query.finish());
        let found: ShareList = self.0.exchange(Method::GET, &place, None).await?;
        Ok(found.shares)
    }

    /// Ends a share at once.
    pub async fn revoke(&self, id: &str) -> Result<AccessLinkInfo, RemoteError> {
        let place = format!("{SHARES}/{}", segment(id));
        self.0.exchange(Method::DELETE, &place, None).await
    }
}
