//! What a back end of the delegations does: rows with sealed secrets, whole changes in one transaction.

use super::{CloudUpload, Delegation, DelegationError};
use crate::resealing::{Pass, SealedColumn};
use crate::sealing::SealingKeys;
use penstock_model::TransferId;
use std::fmt;

/// A request that waits for its proxy, or waited.
pub(super) struct Request {
    pub(super) sealed_key: Vec<u8>,
    pub(super) is_answered: bool,
}

/// A request to be kept.
#[derive(Clone)]
pub(super) struct NewRequest {
    pub(super) id: String,
    pub(super) user: String,
    pub(super) made_ms: i64,
    pub(super) sealed_key: Vec<u8>,
    /// Requests that were made until then go.
    pub(super) begun_ms: i64,
}

/// A proxy to be kept.
#[derive(Clone)]
pub(super) struct NewDelegation {
    pub(super) id: String,
    pub(super) user: String,
    pub(super) made_ms: i64,
    pub(super) expires_ms: i64,
    /// In JSON.
    pub(super) attributes: String,
    pub(super) sealed_proxy: Vec<u8>,
    /// Proxies that ended until then go.
    pub(super) ended_ms: i64,
}

/// The tables. Each call is one transaction.
pub(super) trait Store: fmt::Debug + Send + Sync {
    /// For errors.
    fn name(&self) -> String;
    /// The request of an identity that was made after `begun_ms`.
    fn request(&self, id: &str, begun_ms: i64) -> Result<Option<Request>, DelegationError>;
    /// Keeps a request in the place of any before; removes what is too old or too many.
    fn keep_request(&self, request: NewRequest) -> Result<(), DelegationError>;
    /// Keeps a proxy in the place of any before, with a higher serial; removes what has ended or is too many. Its
    /// request is answered.
    fn keep_proxy(&self, proxy: NewDelegation) -> Result<(), DelegationError>;
    /// What an identity has delegated, with the sealed proxy.
    fn delegation(&self, id: &str) -> Result<Option<(Delegation, Vec<u8>)>, DelegationError>;
    /// Forgets what an identity has delegated, and any request. False when there was no delegation.
    fn forget(&self, id: &str) -> Result<bool, DelegationError>;
    /// Removes requests made until `begun_ms` and proxies that ended until `ended_ms`.
    fn sweep(&self, begun_ms: i64, ended_ms: i64) -> Result<(), DelegationError>;
    /// Goes on with a pass over one place.
    fn seal_some_anew(
        &self,
        keys: &SealingKeys,
        pass: Pass,
        place: SealedColumn,
    ) -> Result<Pass, DelegationError>;
    /// Keeps the sealed secret of a key of a cloud storage.
    fn keep_cloud_secret(
        &self,
        id: &str,
        made_ms: i64,
        sealed: Vec<u8>,
    ) -> Result<(), DelegationError>;
    /// A sealed secret.
    fn cloud_secret(&self, id: &str) -> Result<Option<Vec<u8>>, DelegationError>;
    /// The names of secrets that were made until then.
    fn cloud_secrets_until(&self, made_ms: i64) -> Result<Vec<String>, DelegationError>;
    fn forget_cloud_secrets(&self, ids: Vec<String>) -> Result<(), DelegationError>;
    /// Remembers an upload.
    fn note_upload(&self, upload: CloudUpload) -> Result<(), DelegationError>;
    fn forget_upload(&self, transfer: TransferId, upload: &str) -> Result<(), DelegationError>;
    /// Uploads of one transfer or of all, the oldest first.
    fn uploads(
        &self,
        transfer: Option<TransferId>,
        limit: usize,
    ) -> Result<Vec<CloudUpload>, DelegationError>;
}
