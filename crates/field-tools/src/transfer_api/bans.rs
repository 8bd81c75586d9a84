//! Bans of storage elements and users, as FTS's interface takes and lists them.

use super::{TransferService, segment};
use crate::remote_error::RemoteError;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A ban of a storage element, as it is asked for.
#[derive(Debug, Clone)]
pub struct StorageBanRequest {
    /// `scheme://host`.
    pub storage: String,
    /// For transfers of this VO; `None`: as far as the caller's right reaches.
    pub vo: Option<String>,
    /// What has not started waits, instead of being canceled with what runs.
    pub wait: bool,
    /// New transfers are accepted, and wait.
    pub allow_submit: bool,
    /// What waits is canceled after so many seconds; 0: never.
    pub timeout_seconds: u64,
    /// For people.
    pub message: String,
}

/// A ban as the service lists it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BanInfo {
    /// The storage element, for a ban of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub se: Option<String>,
    /// The user, for a ban of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dn: Option<String>,
    /// For whose transfers; `*` are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vo: Option<String>,
    /// CANCEL, WAIT or WAIT_AS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// UTC, `YYYY-MM-DDTHH:MM:SS`.
    pub addition_time: String,
    /// Who imposed it.
    pub admin_dn: String,
    /// For people.
    #[serde(default)]
    pub message: String,
}

impl TransferService {
    /// Bans a storage element; gives back the jobs that it concerned.
    pub async fn ban_storage(&self, ban: &StorageBanRequest) -> Result<Vec<String>, RemoteError> {
        let mut body = json!({
            "storage": ban.storage,
            "status": if ban.wait { "wait" } else { "cancel" },
            "timeout": ban.timeout_seconds,
            "allow_submit": ban.allow_submit,
            "message": ban.message,
        });
        if let Some(vo) = &ban.vo {
            body["vo"] = Value::from(vo.as_str());
        }
        let body = body.to_string();
        self.exchange(Method::POST, "ban/se", Some(body.as_bytes()))
            .await
    }

    /// Bans a user; gives back the jobs that it canceled.
    pub async fn ban_user(&self, user: &str, message: &str) -> Result<Vec<String>, RemoteError> {
        let body = json!({"user_dn": user, "message": message}).to_string();
        self.exchange(Method::POST, "ban/dn", Some(body.as_bytes()))
            .await
    }

    /// Lifts the ban of a storage element, if there is one.
    pub async fn unban_storage(&self, storage: &str, vo: Option<&str>) -> Result<(), RemoteError> {
        let mut path = format!("ban/se?storage={}", segment(storage));
        if let Some(vo) = vo {
            path += &format!("&vo={}", segment(vo));
        }
        self.0
            .order(Method::DELETE, &format!("/{path}"), None)
            .await
    }

    /// Lifts the ban of a user, if there is one.
    pub async fn unban_user(&self, user: &str) -> Result<(), RemoteError> {
        let path = format!("ban/dn?user_dn={}", segment(user));
        self.0
            .order(Method::DELETE, &format!("/{path}"), None)
            .await
    }

    /// The bans that hold: of storage elements, then of users.
    pub async fn bans(&self) -> Result<Vec<BanInfo>, RemoteError> {
        let mut bans: Vec<BanInfo> = self.exchange(Method::GET, "ban/se", None).await?;
        let users: Vec<BanInfo> = self.exchange(Method::GET, "ban/dn", None).await?;
        bans.extend(users);
        Ok(bans)
    }
}
