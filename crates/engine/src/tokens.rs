//! Transfers that wait for what their tokens are renewed with.

use super::{Action, Effects, Engine, Now};
use penstock_model::{
    CredentialId, Failure, Timestamp, TransferEvent, TransferId, TransferRequest, TransferState,
    WaitReason,
};
use std::collections::{BTreeMap, BTreeSet};

/// Tokens whose issuers have been asked and have not answered.
#[derive(Debug, Default)]
pub(super) struct AwaitedTokens(BTreeMap<CredentialId, TokenWait>);

#[derive(Debug)]
struct TokenWait {
    since: Timestamp,
    /// Transfers that would be queued otherwise.
    held: BTreeSet<TransferId>,
}

impl AwaitedTokens {
    /// Holds a transfer back if tokens of it are awaited.
    fn hold(&mut self, transfer: TransferId, request: &TransferRequest) -> bool {
        let mut is_held = false;
        for id in request.tokens() {
            if let Some(awaited) = self.0.get_mut(id) {
                awaited.held.insert(transfer);
                is_held = true;
            }
        }
        is_held
    }

    /// It has ended.
    pub(super) fn let_go(&mut self, transfer: TransferId) {
        for awaited in self.0.values_mut() {
            awaited.held.remove(&transfer);
        }
    }

    /// Why a transfer is held back.
    pub(super) fn why(&self, transfer: TransferId) -> Option<WaitReason> {
        let mut awaited = self.0.values();
        let awaited = awaited.find(|awaited| awaited.held.contains(&transfer))?;
        Some(WaitReason::TokenExchange {
            since: awaited.since,
        })
    }

    /// Transfers that are held back.
    pub(super) fn held(&self) -> usize {
        let held = self.0.values().flat_map(|awaited| &awaited.held);
        held.collect::<BTreeSet<_>>().len()
    }
}

impl Engine {
    /// Holds a transfer back if tokens of it are awaited.
    pub(super) fn holds_for_token(&mut self, transfer: TransferId) -> bool {
        if self.tokens.0.is_empty() {
            return false;
        }
        let request = self.request(transfer);
        request.is_some_and(|request| self.tokens.hold(transfer, &request))
    }

    /// Issuers are asked for what these tokens are renewed with, and transfers with them wait for the answer.
    pub(super) fn await_tokens(
        &mut self,
        now: Now,
        ids: impl IntoIterator<Item = CredentialId>,
        effects: &mut Effects,
    ) {
        for id in ids {
            let held = BTreeSet::new();
            let awaited = TokenWait {
                since: now.at,
                held,
            };
            // Asked for a job before this one already.
            if self.tokens.0.contains_key(&id) {
                continue;
            }
            self.tokens.0.insert(id.clone(), awaited);
            effects.actions.push(Action::PrepareToken(id));
        }
    }

    /// A token can be used as long as its transfers need it.
    pub(super) fn token_ready(&mut self, now: Now, id: &CredentialId) {
        let Some(awaited) = self.tokens.0.remove(id) else {
            return;
        };
        for transfer in awaited.held {
            self.let_wait(now, transfer);
        }
    }

    /// A token cannot be renewed: what waits for that fails.
    pub(super) fn token_refused(
        &mut self,
        now: Now,
        id: &CredentialId,
        failure: &Failure,
        effects: &mut Effects,
    ) {
        let Some(awaited) = self.tokens.0.remove(id) else {
            return;
        };
        for transfer in awaited.held {
            let waits = self.transfers.get(&transfer).is_some_and(|entry| {
                matches!(
                    entry.state(),
                    TransferState::Submitted { .. } | TransferState::Staging { .. }
                )
            });
            if waits {
                let failure = failure.clone();
                self.give_up(now, transfer, TransferEvent::Refused { failure }, effects);
            }
        }
    }
}
