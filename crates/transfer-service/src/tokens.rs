//! Tokens of users: each as new as its issuer gives it, for as long as jobs need it.
//!
//! A job's token that may be renewed is exchanged for a refresh token while its transfers wait, and refreshed when
//! somebody is about to use it shortly before its end. What an issuer gives is durable before it is used, because
//! refresh tokens of many issuers are good for one use only. Nothing is renewed that nobody uses.

mod ask;
mod held;

use crate::clock::ClockWatch;
use crate::leader_requests::LeaderClient;
use crate::loop_message::Message;
use ask::Issuers;
use held::{CachedToken, HeldTokens};
use parking_lot::RwLock;
use penstock_clock::wall_clock;
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_decide::renewal::next_try;
use penstock_engine::checked_submission::NewJob;
use penstock_engine::command::{KeepToken, RenewAtIssuer, TokenTrouble};
use penstock_journal::JournalReader;
use penstock_model::{
    Concern, CredentialId, Failure, Phase, ProblemCode, Renewal, RenewedToken, Retry, Side,
    StoredToken, Timestamp,
};
use penstock_protocol::http1::client::Client;
use penstock_protocol::oauth::{ClientCredentials, Grant};
use penstock_protocol::token::{Contents, TokenError, Verifier, contents};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// How long a credential that cannot be read is waited for.
const READ_PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries.
const READ_RETRY: Duration = Duration::from_millis(500);

/// The issuers of which this service is a client. Cheap to clone; all clones see a replacement.
#[derive(Debug, Clone, Default)]
pub struct TokenClients(Arc<RwLock<BTreeMap<String, ClientCredentials>>>);

impl TokenClients {
    /// From now on the configuration names these and no others, by the issuer as tokens name it.
    pub fn replace(&self, clients: BTreeMap<String, ClientCredentials>) {
        *self.0.write() = clients;
    }

    /// Whether tokens of an issuer can be renewed.
    pub fn hold(&self, issuer: &str) -> bool {
        let clients = self.0.read();
        clients.contains_key(issuer)
    }

    fn of(&self, issuer: &str) -> Option<ClientCredentials> {
        let clients = self.0.read();
        clients.get(issuer).cloned()
    }
}

/// Why a token cannot be used, as the failure of an attempt.
pub(crate) fn token_failure(trouble: TokenTrouble, side: Side, phase: Phase) -> Failure {
    let (observed, code, detail) = match trouble {
        TokenTrouble::Ended(why) => (
            ObservedFailure::Status(401),
            ProblemCode::TokenRenewalFailed,
            why,
        ),
        TokenTrouble::Later(why) => (ObservedFailure::Broken, ProblemCode::IssuerUnreachable, why),
        TokenTrouble::Unreadable(why) => return unreadable(why),
    };
    // Who gives tokens is not the storage element for which they are.
    Failure {
        concern: Concern::Credential,
        code: Some(code),
        ..classify(side, phase, &observed, detail)
    }
}

/// A credential cannot be read from the service's own database at the moment. Whoever needs it has waited for it.
pub(crate) fn unreadable(detail: String) -> Failure {
    Failure {
        concern: Concern::Credential,
        code: Some(ProblemCode::KeysUnavailable),
        ..classify(
            Side::Service,
            Phase::Preparation,
            &ObservedFailure::Broken,
            detail,
        )
    }
}

/// Whether a failure is one of these: it costs its transfer no retry.
pub(crate) fn is_unreadable(failure: &Failure) -> bool {
    (failure.side, failure.concern, failure.retry)
        == (Side::Service, Concern::Credential, Retry::Later)
}

/// Keeps the tokens of jobs usable. One for the whole service.
pub(crate) struct TokenKeeper {
    reader: Arc<dyn JournalReader>,
    issuers: Issuers,
    held: HeldTokens,
    /// Known when the service runs.
    desk: OnceLock<LeaderClient>,
    clock: ClockWatch,
}

impl TokenKeeper {
    /// Tells whether a token that has ended by the clock may be taken to have ended.
    pub(crate) fn clock(&self) -> &ClockWatch {
        &self.clock
    }

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
            clock: ClockWatch::start(),
        }
    }

    /// Where to send what has to be durable. Before it is told, nothing is renewed.
    pub(crate) fn persist_through(&self, desk: LeaderClient) {
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
            None if !self.clock.is_credible() => Ok(held.text),
            None => Err(TokenTrouble::Ended(ended(
                held.ends.unwrap_or(now),
                "it is not renewed, because the job says so, its scope lacks 'offline_access', this service \
                 is no client of its issuer, or it is neither the submitter's nor of their VO's issuer",
            ))),
        }
    }

    /// Refreshes a token. When that cannot be done at the moment, the present one is used while it lives.
    async fn renewed(
        &self,
        id: &CredentialId,
        held: CachedToken,
        now: Timestamp,
    ) -> Result<Arc<str>, TokenTrouble> {
        // One node asks issuers, because what they give may be good for one use only.
        let desk = self.desk.get();
        let renewed = match desk.filter(|desk| desk.inputs().is_none()) {
            Some(desk) => match desk.ask(RenewAtIssuer(id.clone())).await {
                Ok(Ok(())) => self.stored(id).await,
                Ok(Err(why)) => Err(why),
                Err(_) => Err(TokenTrouble::Later("no node leads the service".to_owned())),
            },
            None => self.refresh(id).await,
        };
        let why = match renewed {
            Ok(stored) => return Ok(self.held.learn(id, &stored).text),
            Err(why) => why,
        };
        if held.ends.is_none_or(|ends| now < ends) || !self.clock.is_credible() {
            tracing::warn!(token = %id, ?why, "a token could not be renewed yet; it is used while it lives");
            return Ok(held.text);
        }
        Err(match (why, held.ends) {
            (TokenTrouble::Later(why) | TokenTrouble::Unreadable(why), _) => {
                TokenTrouble::Later(format!("[TokenRefresh] {why}"))
            }
            (TokenTrouble::Ended(why), ends) => {
                TokenTrouble::Ended(ended(ends.unwrap_or(now), &format!("[TokenRefresh] {why}")))
            }
        })
    }

    /// For another node, whose turn it is not to ask issuers.
    pub(crate) async fn refresh_for_another(&self, id: &CredentialId) -> Result<(), TokenTrouble> {
        self.held.forget(id);
        let refreshed = self.usable(id).await.map(drop);
        refreshed.map_err(|why| match why {
            // A word that earlier versions know.
            TokenTrouble::Unreadable(why) => TokenTrouble::Later(why),
            TokenTrouble::Ended(_) | TokenTrouble::Later(_) => why,
        })
    }

    async fn refresh(&self, id: &CredentialId) -> Result<StoredToken, TokenTrouble> {
        let mut stored = self.stored(id).await?;
        let (renewal, grant) = match &stored.renewal {
            Some((renewal, Some(refresh))) => (renewal.clone(), Grant::Refresh(refresh)),
            // Its exchange is still owed: a transfer of it cannot have started.
            Some((renewal, None)) => (renewal.clone(), Grant::Exchange(&stored.text)),
            None => return Ok(stored),
        };
        let renewed = self.issuers.ask(&stored.text, &renewal, grant).await?;
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
            token_failure(trouble, Side::Service, Phase::Service)
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
                Err(TokenTrouble::Ended(why)) => return Err(refused(why)),
                // Its transfers wait.
                Err(TokenTrouble::Later(_) | TokenTrouble::Unreadable(_)) => continue,
            };
            let exchange = Grant::Exchange(&text);
            let exchanged = match self.issuers.ask(&text, &renewal, exchange).await {
                Ok(renewed) => self.keep(id, &renewed).await,
                Err(why) => Err(why),
            };
            let why = match exchanged {
                Ok(()) => {
                    self.held.forget(id);
                    return Ok(());
                }
                Err(TokenTrouble::Ended(why)) => return Err(refused(why)),
                Err(TokenTrouble::Later(why) | TokenTrouble::Unreadable(why)) => why,
            };
            let ends = contents(&text).map(|told| told.expires);
            if ends.is_some_and(|ends| ends <= wall_clock()) && self.clock.is_credible() {
                return Err(refused(format!("{why}; then the token ended")));
            }
            if failures == 0 {
                tracing::warn!(token = %id, %why, "a token cannot be exchanged yet; its transfers wait");
            }
            tokio::time::sleep(next_try(failures, retry_seed(id))).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Makes durable what an issuer gave. Errors: the service is ending; then it is lost, and asked for anew.
    async fn keep(&self, id: &CredentialId, renewed: &RenewedToken) -> Result<(), TokenTrouble> {
        let ending = || TokenTrouble::Later("the service is shutting down".to_owned());
        let kept = KeepToken {
            id: id.clone(),
            renewed: renewed.clone(),
        };
        let desk = self.desk.get().ok_or_else(ending)?;
        desk.ask(kept).await.map_err(|_| ending())
    }

    /// Waits for a while when it cannot be read: a key that another node has comes within moments, and a database that
    /// is busy answers before long.
    async fn stored(&self, id: &CredentialId) -> Result<StoredToken, TokenTrouble> {
        let (reader, wanted) = (self.reader.clone(), id.clone());
        let read = move || reader.token(&wanted).map_err(|why| why.to_string());
        match read_with_patience(read).await {
            Ok(Some(stored)) => Ok(stored),
            Ok(None) => Err(TokenTrouble::Ended(format!(
                "the token {id} is no longer stored"
            ))),
            Err(why) => Err(TokenTrouble::Unreadable(why)),
        }
    }
}

/// Reads a credential from the service's own database, again and again for a while when that fails. Errors: it still
/// does.
pub(crate) async fn read_with_patience<T: Send + 'static>(
    read: impl Fn() -> Result<T, String> + Clone + Send + 'static,
) -> Result<T, String> {
    read_within(READ_PATIENCE, read).await
}

async fn read_within<T: Send + 'static>(
    patience: Duration,
    read: impl Fn() -> Result<T, String> + Clone + Send + 'static,
) -> Result<T, String> {
    let until = Instant::now() + patience;
    loop {
        let answered = tokio::task::spawn_blocking(read.clone()).await;
        match answered.unwrap_or_else(|why| Err(why.to_string())) {
            Ok(found) => return Ok(found),
            Err(why) if Instant::now() >= until => {
                tracing::warn!(%why, "a credential cannot be read");
                return Err(why);
            }
            Err(_) => tokio::time::sleep(READ_RETRY).await,
        }
    }
}

/// Spreads retries for different tokens: the first 16 of the hex digits of a token's name.
fn retry_seed(id: &CredentialId) -> u64 {
    let digits = id.as_str().get(..16).unwrap_or(id.as_str());
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

/// Leaves out how tokens are renewed that no issuer has signed, or that speak of somebody for whom the submitter cannot
/// have newer ones. They are used as they are: whether they are good for anything, storage elements judge.
///
/// Errors: an issuer's keys cannot be fetched.
pub(crate) async fn leave_out_foreign_renewals(
    verifier: &Verifier,
    job: &mut NewJob,
    now: Timestamp,
) -> Result<(), TokenError> {
    for token in &mut job.tokens {
        if token.renewal.is_none() {
            continue;
        }
        let why = match verifier.origin(&token.text, now).await {
            Ok(origin) if origin.is_of(&job.delegation, &job.vo) => continue,
            Ok(_) => "it speaks of another user, and its issuer is not one of the submitter's VO"
                .to_owned(),
            Err(why @ TokenError::KeysUnavailable { .. }) => return Err(why),
            Err(why) => why.to_string(),
        };
        tracing::info!(job = %job.id, token = %token.id, %why, "a token is not renewed");
        token.renewal = None;
        // A thousand signatures take a while.
        tokio::task::yield_now().await;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_credential_that_cannot_be_read_at_the_moment_is_read_later() {
        let tries = Arc::new(AtomicU32::new(0));
        let read = move || match tries.fetch_add(1, Ordering::Relaxed) {
            0 => Err("the database is busy".to_owned()),
            tried => Ok(tried),
        };
        assert_eq!(read_within(READ_PATIENCE, read).await, Ok(1));
    }

    #[tokio::test]
    async fn what_the_service_cannot_read_of_its_own_is_told_apart_from_what_is_wrong_with_a_token()
    {
        let busy = || Err::<(), _>("the database is busy".to_owned());
        let why = read_within(Duration::ZERO, busy).await.expect_err("busy");
        let failure = |trouble| token_failure(trouble, Side::Source, Phase::Preparation);
        assert!(is_unreadable(&failure(TokenTrouble::Unreadable(
            why.clone()
        ))));
        assert!(is_unreadable(&unreadable(why.clone())));
        for trouble in [TokenTrouble::Ended(why.clone()), TokenTrouble::Later(why)] {
            assert!(!is_unreadable(&failure(trouble)));
        }
    }

    #[test]
    fn retries_for_different_tokens_are_spread() {
        let seed = |text| retry_seed(&penstock_protocol::token::credential_id(text));
        assert_ne!(seed("one"), seed("another"));
        assert_ne!(seed("one"), 0);
    }

    fn keeper() -> (TokenKeeper, tempfile::TempDir) {
        let (setup, directory) = crate::agent::tests::setup();
        let keeper = TokenKeeper::new(setup.client, setup.reader, TokenClients::default());
        (keeper, directory)
    }

    /// A token that has ended by the clock, and is not renewed.
    fn ended_token() -> StoredToken {
        use base64::Engine;
        let encode = |json: String| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(json);
        let ends = wall_clock().0 / 1000 - 60;
        let head = encode(r#"{"alg":"RS256","typ":"JWT"}"#.to_owned());
        let claims = encode(format!(
            r#"{{"iss":"https://issuer.example.org","sub":"alice","iat":{},"exp":{ends}}}"#,
            ends - 3600
        ));
        StoredToken {
            text: format!("{head}.{claims}.c2ln"),
            renewal: None,
        }
    }

    #[tokio::test]
    async fn a_token_does_not_end_by_a_clock_that_is_not_believed() {
        let id = CredentialId::new("0123456789abcdef");
        for (days_since_record, is_used) in [(0, false), (30, true)] {
            let (keeper, _directory) = keeper();
            let stored = ended_token();
            assert!(keeper.held.learn(&id, &stored).ends.is_some());
            let record = Timestamp(wall_clock().0 - days_since_record * 86_400_000);
            keeper.clock.compare_with_record(record);
            let used = keeper.usable(&id).await;
            assert_eq!(used.is_ok(), is_used, "{days_since_record} days: {used:?}");
        }
    }
}
