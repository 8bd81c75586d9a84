//! Tokens in memory, and whose turn it is to renew one.

use parking_lot::Mutex;
use penstock_model::{CredentialId, StoredToken, Timestamp};
use penstock_protocol::token::contents;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// How many tokens are held before all are forgotten and read anew.
const HELD_MAX: usize = 10_000;

/// A token as it is known.
#[derive(Clone)]
pub(super) struct CachedToken {
    pub(super) text: Arc<str>,
    /// When it ends, if it says so.
    pub(super) ends: Option<Timestamp>,
    /// When a newer one is got; `None`: never.
    pub(super) renew_at: Option<Timestamp>,
}

impl CachedToken {
    fn of(stored: &StoredToken) -> CachedToken {
        CachedToken {
            text: stored.text.as_str().into(),
            ends: contents(&stored.text).map(|told| told.expires),
            renew_at: stored.renewal.as_ref().map(|(renewal, _)| renewal.renew_at),
        }
    }

    /// Good without asking anybody.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        self.renew_at.or(self.ends).is_none_or(|until| now < until)
    }
}

/// What is held, by name.
#[derive(Default)]
pub(super) struct HeldTokens {
    tokens: Mutex<HashMap<CredentialId, CachedToken>>,
    turns: Mutex<HashMap<CredentialId, Arc<tokio::sync::Mutex<()>>>>,
}

impl HeldTokens {
    pub(super) fn get(&self, id: &CredentialId) -> Option<CachedToken> {
        let tokens = self.tokens.lock();
        tokens.get(id).cloned()
    }

    pub(super) fn learn(&self, id: &CredentialId, stored: &StoredToken) -> CachedToken {
        let held = CachedToken::of(stored);
        let mut tokens = self.tokens.lock();
        if tokens.len() >= HELD_MAX {
            tokens.clear();
        }
        tokens.insert(id.clone(), held.clone());
        held
    }

    pub(super) fn forget(&self, id: &CredentialId) {
        let mut tokens = self.tokens.lock();
        tokens.remove(id);
    }

    /// Waits until nobody else reads or renews this token.
    pub(super) async fn turn_of(&self, id: &CredentialId) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            // One that nobody waits for is held by this map alone.
            if turns.len() >= HELD_MAX {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            turns.entry(id.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }
}
