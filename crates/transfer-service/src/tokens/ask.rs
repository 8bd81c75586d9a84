//! Asking issuers for newer tokens.

use super::{TokenClients, TokenTrouble};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_decide::renewal::{may_change_its_mind, renew_at};
use penstock_model::{CredentialId, Renewal, RenewedToken, TimeSpan};
use penstock_protocol::fair_turns::FairTurns;
use penstock_protocol::http1::client::{Client, ClientRequest};
use penstock_protocol::oauth::{
    ANSWER_BYTES_MAX, ClientCredentials, Grant, IssuedTokens, token_endpoint,
};
use penstock_protocol::token::{FetchDocument, configuration_address, contents, delegation_id};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use url::Url;

/// How long an issuer may take; those of large experiments have taken twenty seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many questions run at once, so that no crowd of jobs becomes one at an issuer.
const QUESTIONS_MAX: usize = 16;
/// Of one user, so that nobody's tokens hold up everybody's.
const QUESTIONS_OF_USER_MAX: usize = 8;
/// How long what an issuer says of itself is believed.
const ENDPOINT_BELIEVED: Duration = Duration::from_secs(3600);
/// How long a token is taken to live that does not tell, and whose issuer does not.
const LIFE_UNKNOWN: Duration = Duration::from_secs(600);

/// The issuers, as far as they are known.
pub(super) struct Issuers {
    client: Client,
    clients: TokenClients,
    endpoints: Mutex<HashMap<String, (Url, Instant)>>,
    questions: FairTurns<CredentialId>,
}

impl Issuers {
    pub(super) fn new(client: Client, clients: TokenClients) -> Issuers {
        Issuers {
            client,
            clients,
            endpoints: Mutex::default(),
            questions: FairTurns::new(QUESTIONS_MAX, QUESTIONS_OF_USER_MAX),
        }
    }

    /// Asks for what a token is renewed with, or for a newer token, when it is its user's turn.
    pub(super) async fn ask(
        &self,
        token: &str,
        renewal: &Renewal,
        grant: Grant<'_>,
    ) -> Result<RenewedToken, TokenTrouble> {
        let issuer = &renewal.issuer;
        let client = self.clients.of(issuer).ok_or_else(|| {
            TokenTrouble::Later(format!(
                "this service is no longer a client of {issuer}; its operators can register it again"
            ))
        })?;
        let _turn = self.questions.turn(&user_of(token, issuer)).await;
        let asked = tokio::time::timeout(PATIENCE, self.question(renewal, grant, &client)).await;
        let given = asked.unwrap_or_else(|_| {
            Err(TokenTrouble::Later(format!(
                "{issuer} did not answer within {}",
                TimeSpan(PATIENCE)
            )))
        })?;
        taken(given, grant, issuer)
    }

    async fn question(
        &self,
        renewal: &Renewal,
        grant: Grant<'_>,
        client: &ClientCredentials,
    ) -> Result<IssuedTokens, TokenTrouble> {
        let issuer = &renewal.issuer;
        let later = |why: String| TokenTrouble::Later(format!("{issuer}: {why}"));
        let url = self.endpoint(issuer).await.map_err(later)?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(AUTHORIZATION, client.basic());
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        let request = ClientRequest {
            method: Method::POST,
            url,
            headers,
            identity: None,
        };
        let body = grant.form(&renewal.scope, &renewal.audience);
        let sent = self.client.send_bytes(request, body.as_bytes()).await;
        let mut answer = sent.map_err(|why| later(why.to_string()))?;
        let status = answer.status.as_u16();
        let body = answer.read_all(ANSWER_BYTES_MAX).await;
        let body = body.map_err(|why| later(why.to_string()))?;
        grant.parse(status, &body).map_err(|refused| {
            let why = format!("{issuer}: {refused}");
            match may_change_its_mind(refused.status, &refused.error) {
                true => TokenTrouble::Later(why),
                false => TokenTrouble::Ended(why),
            }
        })
    }

    async fn endpoint(&self, issuer: &str) -> Result<Url, String> {
        let known = {
            let endpoints = self.endpoints.lock();
            endpoints.get(issuer).cloned()
        };
        if let Some((url, since)) = known
            && since.elapsed() < ENDPOINT_BELIEVED
        {
            return Ok(url);
        }
        let document = self.client.fetch(&configuration_address(issuer)).await?;
        let url = token_endpoint(issuer, &document)?;
        let mut endpoints = self.endpoints.lock();
        endpoints.insert(issuer.to_owned(), (url.clone(), Instant::now()));
        Ok(url)
    }
}

/// Whose turn a question takes. Of a token that does not tell, all users of the issuer have one.
fn user_of(token: &str, issuer: &str) -> CredentialId {
    let subject = contents(token).and_then(|told| told.subject);
    delegation_id(issuer, &subject.unwrap_or_default())
}

/// What an answer is good for. Errors: it lacks what was asked for.
fn taken(
    given: IssuedTokens,
    grant: Grant<'_>,
    issuer: &str,
) -> Result<RenewedToken, TokenTrouble> {
    let lacks = |what: &str| TokenTrouble::Ended(format!("{issuer} gave no {what}"));
    let now = wall_clock();
    let access = given.access.map(|text| {
        let ends = contents(&text).map(|told| told.expires);
        let ends = ends.or_else(|| given.expires_in.map(|life| now + life));
        let renew_at = renew_at(now, ends.unwrap_or(now + LIFE_UNKNOWN));
        (text, renew_at)
    });
    match grant {
        Grant::Exchange(_) => Ok(RenewedToken {
            // The user's own serves until it is time for the next one.
            access: None,
            refresh: given.refresh.ok_or_else(|| {
                lacks("refresh token; its client must be allowed the scope 'offline_access'")
            })?,
        }),
        Grant::Refresh(before) => Ok(RenewedToken {
            access: Some(access.ok_or_else(|| lacks("access token"))?),
            refresh: given.refresh.unwrap_or_else(|| before.to_owned()),
        }),
    }
}
