//! Secrets of cloud storages, sealed, and uploads in parts that have begun there: what a restart must know to end them.

use super::{DelegationError, Delegations};
use crate::sealing::SecretKind;
use penstock_model::{CredentialId, Timestamp, TransferId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A secret may be stored before the setting that refers to it; one that nothing refers to after this time goes.
const UNREFERRED_KEPT: Duration = Duration::from_secs(600);

/// An upload in parts that was begun and may not have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudUpload {
    pub transfer: TransferId,
    /// The server's name for it.
    pub upload: String,
    /// Where, as the server was asked: no secret is in it.
    pub url: String,
    pub begun: Timestamp,
}

impl Delegations {
    /// Keeps the secret of a key of a cloud storage, under a name that was never used before.
    pub fn keep_cloud_secret(
        &self,
        id: &CredentialId,
        secret: &[u8],
        now: Timestamp,
    ) -> Result<(), DelegationError> {
        let sealed = self.sealed(SecretKind::CloudKey, id, secret)?;
        self.store.keep_cloud_secret(id.as_str(), now.0, sealed)
    }

    /// The secret under a name; `None` when it is gone.
    pub fn cloud_secret(&self, id: &CredentialId) -> Result<Option<Vec<u8>>, DelegationError> {
        let sealed = self.store.cloud_secret(id.as_str())?;
        self.opened(SecretKind::CloudKey, id, sealed)
    }

    /// Forgets secrets, as soon as no setting refers to them any more.
    pub fn forget_cloud_secrets(&self, ids: &[CredentialId]) -> Result<(), DelegationError> {
        let ids = ids.iter().map(|id| id.as_str().to_owned());
        self.store.forget_cloud_secrets(ids.collect())
    }

    /// Forgets secrets that no setting refers to: a crash left them.
    pub fn sweep_cloud_secrets(
        &self,
        referred: &BTreeSet<CredentialId>,
        now: Timestamp,
    ) -> Result<(), DelegationError> {
        let before = now.0 - UNREFERRED_KEPT.as_millis() as i64;
        let known = self.store.cloud_secrets_until(before)?;
        let known = known.into_iter().map(CredentialId::new);
        let orphans: Vec<CredentialId> = known.filter(|id| !referred.contains(id)).collect();
        match orphans.is_empty() {
            true => Ok(()),
            false => self.forget_cloud_secrets(&orphans),
        }
    }

    /// Remembers an upload before its first part is sent.
    pub fn note_upload(&self, upload: &CloudUpload) -> Result<(), DelegationError> {
        self.store.note_upload(upload.clone())
    }

    /// Forgets an upload that has ended.
    pub fn forget_upload(&self, transfer: TransferId, upload: &str) -> Result<(), DelegationError> {
        self.store.forget_upload(transfer, upload)
    }

    /// Uploads of one transfer, or of all (`None`), that may not have ended: the oldest first, at most `limit`.
    pub fn uploads(
        &self,
        transfer: Option<TransferId>,
        limit: usize,
    ) -> Result<Vec<CloudUpload>, DelegationError> {
        self.store.uploads(transfer, limit)
    }
}
