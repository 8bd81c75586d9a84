//! Delegated proxies as agents use them: the newest of a delegation, with its private key.

use super::{AgentSetup, REMEMBERED_MAX};
use crate::tokens::{read_with_patience, unreadable};
use parking_lot::Mutex;
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_model::{CredentialId, Failure, Phase, ProblemCode, Side, Timestamp};
use penstock_persistence::delegations::Delegation;
use penstock_protocol::tls::ClientIdentity;
use std::collections::HashMap;

/// How an end is reached by a proxy.
#[derive(Clone)]
pub(super) struct ProxyCredential {
    /// To be shown, or to get macaroons with.
    pub(super) identity: ClientIdentity,
    /// When it ends.
    pub(super) expires: Timestamp,
    /// Why the end has given no macaroon for it; `None` when it has.
    pub(super) no_macaroon: Option<String>,
}

/// Proxies that were opened, by delegation; each with the serial number of the stored one that it was.
#[derive(Default)]
pub(super) struct Proxies(Mutex<HashMap<CredentialId, (u64, ClientIdentity)>>);

impl std::fmt::Debug for Proxies {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Proxies")
    }
}

impl Proxies {
    fn known(&self, id: &CredentialId, serial: u64) -> Option<ClientIdentity> {
        let known = self.0.lock();
        let (known_serial, identity) = known.get(id)?;
        (*known_serial == serial).then(|| identity.clone())
    }

    fn learn(&self, id: &CredentialId, serial: u64, identity: &ClientIdentity) {
        let mut known = self.0.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(id.clone(), (serial, identity.clone()));
    }
}

impl AgentSetup {
    /// The newest proxy of a delegation. Errors: none (any more), or one that has ended: only a new delegation and a
    /// new submission help, as in FTS.
    pub(super) async fn newest_proxy(
        &self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<ProxyCredential, Failure> {
        let (store, memory, wanted) = (self.delegations.clone(), self.memory.clone(), id.clone());
        let read = move || {
            let Some(found) = store.delegation(&wanted).map_err(|why| why.to_string())? else {
                return Ok(None);
            };
            if let Some(identity) = memory.proxies.known(&wanted, found.serial) {
                return Ok(Some((found, identity)));
            }
            let Some((found, secret)) = store.proxy(&wanted).map_err(|why| why.to_string())? else {
                return Ok(None);
            };
            let identity = ClientIdentity::from_pem(&secret).map_err(|why| why.to_string())?;
            memory.proxies.learn(&wanted, found.serial, &identity);
            Ok::<_, String>(Some((found, identity)))
        };
        let found = read_with_patience(read).await;
        let found = found.map_err(|why| unusable(id, &why))?;
        let (delegation, identity) = found.ok_or_else(|| missing(id))?;
        self.check_alive(id, &delegation, now)?;
        Ok(ProxyCredential {
            identity,
            expires: delegation.expires,
            no_macaroon: None,
        })
    }

    /// The same proxy as text, with its key and chain, for a program that reads it from a file.
    pub(super) async fn newest_proxy_text(
        &self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<String, Failure> {
        let (store, wanted) = (self.delegations.clone(), id.clone());
        let read = move || store.proxy(&wanted).map_err(|why| why.to_string());
        let found = read_with_patience(read).await;
        let found = found.map_err(|why| unusable(id, &why))?;
        let (delegation, secret) = found.ok_or_else(|| missing(id))?;
        self.check_alive(id, &delegation, now)?;
        String::from_utf8(secret).map_err(|_| unusable(id, "it is not text"))
    }

    /// Not on the word of a clock that is not believed.
    fn check_alive(
        &self,
        id: &CredentialId,
        delegation: &Delegation,
        now: Timestamp,
    ) -> Result<(), Failure> {
        match self.tokens.clock().is_credible() {
            true => check_alive(id, delegation, now),
            false => Ok(()),
        }
    }
}

fn unusable(id: &CredentialId, why: &str) -> Failure {
    let detail = format!("the delegated proxy {id} cannot be used: {why}");
    unreadable(detail)
}

fn missing(id: &CredentialId) -> Failure {
    let detail =
        format!("the delegated proxy {id} no longer exists; delegate again, then submit again");
    no_proxy(ProblemCode::DelegationMissing, detail)
}

fn check_alive(id: &CredentialId, delegation: &Delegation, now: Timestamp) -> Result<(), Failure> {
    if delegation.expires > now {
        return Ok(());
    }
    // FTS clients know the words "proxy expired".
    let detail = format!(
        "proxy expired: the delegated proxy {id} expired at {}Z; delegate again, then submit again",
        delegation.expires.to_fts()
    );
    Err(no_proxy(ProblemCode::DelegationExpired, detail))
}

fn no_proxy(code: ProblemCode, detail: String) -> Failure {
    let observed = ObservedFailure::Forbidden;
    Failure {
        code: Some(code),
        ..classify(Side::Service, Phase::Preparation, &observed, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::setup;
    use super::*;
    use crate::tokens::is_unreadable;
    use penstock_clock::wall_clock;
    use penstock_model::UserName;
    use penstock_persistence::delegations::{Delegations, Delegator, NewProxy};
    use penstock_persistence::sealing::SealingKeys;
    use std::sync::Arc;
    use std::time::Duration;

    /// As a node has it that did not get a new key yet.
    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_another_key_has_sealed_is_waited_for_and_costs_no_retry() {
        let (mut setup, directory) = setup();
        let store = directory.path().join("shared.sqlite");
        let open = |keys: &str| {
            let keys = SealingKeys::load_or_create(&directory.path().join(keys));
            Delegations::open(&store, keys.expect("made")).expect("opens")
        };
        let (id, user) = (
            CredentialId::new("0123456789abcdef"),
            UserName::new("alice"),
        );
        let now = wall_clock();
        let proxy = NewProxy {
            secret: b"a key and a chain",
            expires: now + Duration::from_secs(3600),
            attributes: &[],
        };
        let of = Delegator {
            id: &id,
            user: &user,
        };
        open("new").keep_proxy(of, &proxy, now).expect("kept");
        setup.delegations = Arc::new(open("old"));
        let failures = [
            setup.newest_proxy(&id, now).await.err(),
            setup.newest_proxy_text(&id, now).await.err(),
        ];
        for failure in failures {
            let failure = failure.expect("nobody can open it here");
            assert!(is_unreadable(&failure), "{failure:?}");
        }
    }
}
