//! What every handler of a door is given: the door, and one request with its caller.

use super::caller::Caller;
use super::remote_removals::Removals;
use crate::storage::Storage;
use penstock_model::NamespacePath;
use penstock_protocol::http1::server::Request;
use penstock_protocol::monitoring::Monitor;
use std::sync::Arc;
use tokio::sync::watch;

/// In `Retry-After` of who waited for a place in vain.
pub(super) const RETRY_AFTER_SECONDS: u64 = 10;

/// One door as its connections see it.
#[derive(Clone)]
pub(super) struct Door {
    pub storage: Arc<Storage>,
    pub monitor: Option<Arc<dyn Monitor>>,
    pub tls_only: bool,
    pub shutdown: watch::Receiver<bool>,
    pub removals: Removals,
    /// It answers in the stead of one whose threads wait for the disk of the namespace: it must not look there.
    pub is_stand_in: bool,
}

/// One request with what its handler needs to know.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub request: &'a Request,
    pub caller: &'a Caller,
    pub path: &'a NamespacePath,
}
