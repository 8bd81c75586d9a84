//! Tokens from a site's own issuer: for `penstock token`, and short ones for commands that were given
//! `--dir`.

use crate::exit::CommandError;
use crate::site::config::{Config, Issuer};
use crate::site::directory::SiteDirectory;
use crate::site::keys::{RingFiles, load_signer};
use penstock_clock::wall_clock;
use penstock_durable_file::replace_private;
use penstock_model::Timestamp;
use penstock_model::quantity::Span;
use penstock_protocol::token::{ADMIN_SCOPE, ANY_AUDIENCE, Claims, Signer};
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

/// How long the owner's token lives, unless the site lets none live so long.
const ADMIN_LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// What the owner's token allows.
const OWNER_SCOPE: &str = "storage.read:/ storage.modify:/ storage.stage:/ penstock.admin";
/// Whom the owner's token names.
const OWNER: &str = "admin";

/// A site's issuer, able to sign.
pub struct SiteIssuer {
    signer: Signer,
    files: RingFiles,
    jwks: Value,
    url: String,
    life_max: Duration,
}

/// What a token should say.
#[derive(Debug, Clone)]
pub struct Grant {
    /// On whose behalf.
    pub subject: String,
    /// What it allows.
    pub scope: String,
    /// For which services.
    pub audiences: Vec<String>,
    /// Groups of the subject.
    pub groups: Vec<String>,
    /// How long it is valid.
    pub lifetime: Duration,
}

impl SiteIssuer {
    /// Loads the keys that the site's configuration names: the one that signs now, and the public halves of all
    /// that verifiers must know.
    pub fn load(site: &SiteDirectory, issuer: &Issuer) -> Result<SiteIssuer, CommandError> {
        let files = RingFiles::of(site, issuer);
        let (ring, now) = (files.load()?, wall_clock());
        let signing = ring.signing(now);
        let mut published = Vec::new();
        for key in ring.published(now) {
            published.extend(
                load_signer(&files.path(key))?.jwks()["keys"]
                    .as_array()
                    .cloned(),
            );
        }
        Ok(SiteIssuer {
            signer: load_signer(&files.path(signing))?,
            jwks: serde_json::json!({ "keys": published.concat() }),
            files,
            url: issuer.url.clone(),
            life_max: issuer.token_life_max.0,
        })
    }

    /// Loads the issuer of a site directory, or says that it has none.
    pub fn of(site: &SiteDirectory) -> Result<SiteIssuer, CommandError> {
        let config = site.config()?;
        let issuer = config.issuer.as_ref().ok_or_else(|| {
            CommandError::Usage(format!(
                "{} has no [issuer] section, so it cannot issue tokens; use a token of an issuer that it trusts",
                site.config_file().display()
            ))
        })?;
        SiteIssuer::load(site, issuer)
    }

    /// The public keys, as others fetch them.
    pub fn jwks(&self) -> Value {
        self.jwks.clone()
    }

    /// How long its tokens may live.
    pub fn life_max(&self) -> Duration {
        self.life_max
    }

    /// Signs a token that is valid from now on, and records how long its key must be published. Errors: it would not be
    /// believed.
    pub fn mint(&self, grant: &Grant) -> Result<String, CommandError> {
        if grant.lifetime > self.life_max {
            return Err(CommandError::Usage(format!(
                "tokens of this site live for {} at most (issuer.token_life_max in penstock.toml), not {}",
                Span(self.life_max),
                Span(grant.lifetime)
            )));
        }
        let is_admin = grant
            .scope
            .split_whitespace()
            .any(|item| item == ADMIN_SCOPE);
        if is_admin && grant.audiences.iter().any(|name| name == ANY_AUDIENCE) {
            return Err(CommandError::Usage(format!(
                "a token with the scope {ADMIN_SCOPE} cannot be for any service: each that is shown it could use it here; \
                 leave --audience out, and it is for this site"
            )));
        }
        let claims = self.claims(grant);
        let ends = Timestamp(claims.exp.saturating_mul(1000));
        self.files.note_token(self.signer.kid(), ends)?;
        self.signer
            .sign(&claims)
            .map_err(|why| CommandError::Usage(why.to_string()))
    }

    fn claims(&self, grant: &Grant) -> Claims {
        let now = wall_clock().unix_seconds();
        Claims {
            iss: self.url.clone(),
            sub: grant.subject.clone(),
            aud: grant.audiences.clone(),
            exp: now + grant.lifetime.as_secs() as i64,
            nbf: Some(now),
            iat: now,
            jti: Uuid::new_v4().to_string(),
            scope: grant.scope.clone(),
            wlcg_ver: "1.0".to_owned(),
            wlcg_groups: grant.groups.clone(),
            client_id: None,
        }
    }
}

/// The storage element and the transfer service of a site, as tokens call them.
pub fn own_audiences(config: &Config) -> Vec<String> {
    [config.door_url(), config.service_url()]
        .into_iter()
        .flatten()
        .collect()
}

/// Makes a new token for the site's owner and puts it in the place of the former one. Gives back how long it lives.
pub fn renew_admin(
    site: &SiteDirectory,
    lifetime: Option<Duration>,
) -> Result<(String, Duration), CommandError> {
    let issuer = SiteIssuer::of(site)?;
    let lifetime = lifetime.unwrap_or_else(|| ADMIN_LIFETIME.min(issuer.life_max()));
    let token = issuer.mint(&Grant {
        subject: OWNER.into(),
        scope: OWNER_SCOPE.into(),
        audiences: own_audiences(&site.config()?),
        groups: vec!["/admin".into()],
        lifetime,
    })?;
    let path = site.admin_token();
    replace_private(&path, &format!("{token}\n"))
        .map_err(|why| CommandError::local(path.display(), why))?;
    Ok((token, lifetime))
}
