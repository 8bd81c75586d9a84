//! Tokens of users: each as new as its issuer gives it, for as long as jobs need it.
//!
//! A job's token that may be renewed is exchanged for a refresh token while its transfers wait, and refreshed when
//! somebody is about to use it shortly before its end. What an issuer gives is durable before it is used, because
//! refresh tokens of many issuers are good for one use only. Nothing is renewed that nobody uses.

mod ask;
mod held;

use crate::engine::Answer;
use crate::nodes::{Answered, Asked, Desk};
use crate::run::{Message, wall_clock};
use ask::Issuers;
use held::{Held, HeldTokens};
use penstock_decide::classify::{Observed, classify};
use penstock_decide::renewal::next_try;
use penstock_model::{CredentialId, Failure, Phase, Side, Timestamp};
use penstock_persistence::journal::{JournalReader, Renewal, RenewedToken, StoredToken};
use penstock_protocol::http1::client::Client;
use penstock_protocol::oauth::{ClientCredentials, Grant};
use penstock_protocol::token::{Contents, contents};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The issuers of which this service is a client. Cheap to clone; all clones see a replacement.
#[derive(Debug, Clone, Default)]
pub struct TokenClients(Arc<RwLock<BTreeMap<String, ClientCredentials>>>);

impl TokenClients {
    /// From now on the configuration names these and no others, by the issuer as tokens name it.
    pub fn replace(&self, clients: BTreeMap<String, ClientCredentials>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = clients;
    }

    /// Whether tokens of an issuer can be renewed.
    pub fn hold(&self, issuer: &str) -> bool {
        let clients = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clients.contains_key(issuer)
    }

    fn of(&self, issuer: &str) -> Option<ClientCredentials> {
        let clients = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clients.get(issuer).cloned()
    }
}

/// Why a token cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TokenTrouble {
    /// It, or what it is renewed with, is worth nothing any more.
    Ended(String),
    /// It may be had later.
    Later(String),
}

impl TokenTrouble {
    /// As the failure of an attempt.
    pub(crate) fn into_failure(self, side: Side, phase: Phase) -> Failure {
        let (observed, detail) = match self {
            TokenTrouble::Ended(why) => (Observed::Status(401), why),
            TokenTrouble::Later(why) => (Observed::Broken, why),
        };
        classify(side, phase, &observed, detail)
    }
}

/// Keeps the tokens of jobs usable. One for the whole service.
pub(crate) struct TokenKeeper {
    reader: Arc<dyn JournalReader>,
    issuers: Issuers,
    held: HeldTokens,
    /// Known when the service runs.
    desk: OnceLock<Desk>,
}

impl TokenKeeper {
    pub(crate) fn new(
        client: Client,
        reader: Arc<dyn JournalReader>,
        clients: TokenClients,
    ) -> TokenKeeper {
        TokenKeeper {
            reader,
            issuers: Issuers::new(client, clients),
            held: HeldTokens::default(),
            desk: OnceLock::new(),
        }
    }

    /// Where to send what has to be durable. Before it is told, nothing is renewed.
    pub(crate) fn persist_through(&self, desk: Desk) {
        // Set once, when the service starts.
        let _ = self.desk.set(desk);
    }

    /// The newest token of that name, good for some time still. Errors: it has ended and there is no newer one.
    pub(crate) async fn usable(&self, id: &CredentialId) -> Result<Arc<str>, TokenTrouble> {
        let now = wall_clock();
        if let Some(held) = self.held.get(id)
            && held.is_fresh(now)
        {
            return Ok(held.text);
        }
        let _turn = self.held.turn_of(id).await;
        // Somebody else may have renewed it while we waited for our turn.
        let held = match self.held.get(id) {
            Some(held) => held,
            None => self.held.learn(id, &self.stored(id).await?),
        };
        if held.is_fresh(now) {
            return Ok(held.text);
        }
        match held.renew_at {
            Some(_) => self.renewed(id, held, now).await,
            None => Err(TokenTrouble::Ended(ended(
                held.ends.unwrap_or(now),
                "it is not renewed, because the job says so, its scope lacks 'offline_access', or this \
                 service is no client of its issuer",
            ))),
        }
    }

    /// Refreshes a token. When that cannot be done at the moment, the present one is used while it lives.
    async fn renewed(
        &self,
        id: &CredentialId,
        held: Held,
        now: Timestamp,
    ) -> Result<Arc<str>, TokenTrouble> {
        // One node asks issuers, because what they give may be good for one use only.
        let desk = self.desk.get();
        let renewed = match desk.filter(|desk| desk.inputs().is_none()) {
            Some(desk) => match desk.ask(Asked::Refresh(id.clone())).await {
                Ok(Answered::Refreshed(Ok(()))) => self.stored(id).await,
                Ok(Answered::Refreshed(Err(why))) => Err(why),
                Ok(_) | Err(_) => Err(TokenTrouble::Later("nobody leads the service".to_owned())),
            },
            None => self.refresh(id).await,
        };
        let why = match renewed {
            Ok(stored) => return Ok(self.held.learn(id, &stored).text),
            Err(why) => why,
        };
        if held.ends.is_none_or(|ends| now < ends) {
            tracing::warn!(token = %id, ?why, "a token could not be renewed yet; it is used while it lives");
            return Ok(held.text);
        }
        Err(match (why, held.ends) {
            (TokenTrouble::Later(why), _) => TokenTrouble::Later(format!("[TokenRefresh] {why}")),
            (TokenTrouble::Ended(why), ends) => {
                TokenTrouble::Ended(ended(ends.unwrap_or(now), &format!("[TokenRefresh] {why}")))
            }
        })
    }

    /// For another node, whose turn it is not to ask issuers.
    pub(crate) async fn refresh_for_another(&self, id: &CredentialId) -> Result<(), TokenTrouble> {
        self.held.forget(id);
        self.usable(id).await.map(drop)
    }

    async fn refresh(&self, id: &CredentialId) -> Result<StoredToken, TokenTrouble> {
        let mut stored = self.stored(id).await?;
        let (renewal, grant) = match &stored.renewal {
            Some((renewal, Some(refresh))) => (renewal.clone(), Grant::Refresh(refresh)),
            // Its exchange is still owed: a transfer of it cannot have started.
            Some((renewal, None)) => (renewal.clone(), Grant::Exchange(&stored.text)),
            None => return Ok(stored),
        };
        let renewed = self.issuers.ask(&renewal, grant).await?;
        self.keep(id, &renewed).await?;
        stored.renewal = Some((renewal, Some(renewed.refresh)));
        if let (Some((text, renew_at)), Some((renewal, _))) = (renewed.access, &mut stored.renewal)
        {
            stored.text = text;
            renewal.renew_at = renew_at;
        }
        Ok(stored)
    }

    /// Gets what a token is renewed with, if there is none yet, and tells the engine how that ended. Tries again and
    /// again while the token lives.
    pub(crate) async fn prepare(self: Arc<Self>, id: CredentialId) {
        let told = match self.exchanged(&id).await {
            Ok(()) => Message::TokenReady { id },
            Err(failure) => Message::TokenRefused {
                id,
                failure: Box::new(failure),
            },
        };
        if let Some(desk) = self.desk.get() {
            desk.tell(told).await;
        }
    }

    async fn exchanged(&self, id: &CredentialId) -> Result<(), Failure> {
        let refused = |why: String| {
            // FTS's words.
            let trouble = TokenTrouble::Ended(format!("[TokenExchange] {why}"));
            trouble.into_failure(Side::Service, Phase::Service)
        };
        let mut failures = 0;
        loop {
            let stored = self.stored(id).await;
            let (text, renewal) = match stored {
                Ok(StoredToken {
                    text,
                    renewal: Some((renewal, None)),
                }) => (text, renewal),
                Ok(_) => return Ok(()),
                Err(TokenTrouble::Ended(why) | TokenTrouble::Later(why)) => {
                    return Err(refused(why));
                }
            };
            let exchanged = match self.issuers.ask(&renewal, Grant::Exchange(&text)).await {
                Ok(renewed) => self.keep(id, &renewed).await,
                Err(why) => Err(why),
            };
            let why = match exchanged {
                Ok(()) => {
                    self.held.forget(id);
                    return Ok(());
                }
                Err(TokenTrouble::Ended(why)) => return Err(refused(why)),
                Err(TokenTrouble::Later(why)) => why,
            };
            let ends = contents(&text).map(|told| told.expires);
            if ends.is_some_and(|ends| ends <= wall_clock()) {
                return Err(refused(format!("{why}; then the token ended")));
            }
            if failures == 0 {
                tracing::warn!(token = %id, %why, "a token cannot be exchanged yet; its transfers wait");
            }
            let seed = u64::from_str_radix(id.as_str(), 16).unwrap_or_default();
            tokio::time::sleep(next_try(failures, seed)).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Makes durable what an issuer gave. Errors: the service is ending; then it is lost, and asked for anew.
    async fn keep(&self, id: &CredentialId, renewed: &RenewedToken) -> Result<(), TokenTrouble> {
        let ending = || TokenTrouble::Later("the service is shutting down".to_owned());
        let asked = Asked::KeepToken {
            id: id.clone(),
            renewed: renewed.clone(),
        };
        match self.desk.get().ok_or_else(ending)?.ask(asked).await {
            Ok(Answered::Engine(Answer::Done)) => Ok(()),
            Ok(_) | Err(_) => Err(ending()),
        }
    }

    async fn stored(&self, id: &CredentialId) -> Result<StoredToken, TokenTrouble> {
        let (reader, wanted) = (self.reader.clone(), id.clone());
        let read = tokio::task::spawn_blocking(move || reader.token(&wanted)).await;
        match read {
            Ok(Ok(Some(stored))) => Ok(stored),
            Ok(Ok(None)) => Err(TokenTrouble::Ended(format!(
                "the token {id} is no longer stored"
            ))),
            Ok(Err(why)) if why.may_pass() => Err(TokenTrouble::Later(why.to_string())),
            Ok(Err(why)) => Err(TokenTrouble::Ended(why.to_string())),
            Err(why) => Err(TokenTrouble::Later(why.to_string())),
        }
    }
}

/// How a token that a job brings is renewed; `None` when it is used as it is until it ends: it was not given for use
/// without its user, or this service is no client of its issuer.
pub(crate) fn renewal_of(told: Contents, clients: &TokenClients) -> Option<Renewal> {
    let mut scopes = told.scope.split_ascii_whitespace();
    let may_last = scopes.any(|scope| scope == "offline_access");
    if !may_last || !clients.hold(&told.issuer) {
        return None;
    }
    let begins = told.begins.unwrap_or(told.expires);
    Some(Renewal {
        renew_at: penstock_decide::renewal::renew_at(begins, told.expires),
        audience: told.audience.join(" "),
        issuer: told.issuer,
        scope: told.scope,
    })
}

fn ended(at: Timestamp, why: &str) -> String {
    format!(
        "the token expired at {}Z: {why}; submit again with a new one",
        at.to_fts()
    )
}
