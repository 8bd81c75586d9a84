//! Tokens from a site's own issuer: for `penstock token`, and short ones for commands that were given
//! `--dir`.

use crate::args::TokenArgs;
use crate::config::Issuer;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::keys::{RingFiles, load_signer};
use crate::output::Output;
use crate::site::SiteDirectory;
use penstock_model::Timestamp;
use penstock_protocol::token::{ANY_AUDIENCE, Claims, Signer};
use serde::Serialize;
use serde_json::Value;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// A site's issuer, able to sign.
pub struct SiteIssuer {
    signer: Signer,
    files: RingFiles,
    jwks: Value,
    url: String,
}

/// What a token should say.
#[derive(Debug, Clone)]
pub struct Grant {
    /// On whose behalf.
    pub subject: String,
    /// What it allows.
    pub scope: String,
    /// For which services; empty means any.
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
        let (ring, now) = (files.load()?, now());
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
        })
    }

    /// Loads the issuer of a site directory, or says that it has none.
    pub fn of(site: &SiteDirectory) -> Result<SiteIssuer, CommandError> {
        let config = site.config()?;
        let issuer = config.issuer.as_ref().ok_or_else(|| {
            CommandError::Usage(format!(
                "{} has no [issuer] section, so it signs no tokens; use a token of an issuer that it trusts",
                site.config_file().display()
            ))
        })?;
        SiteIssuer::load(site, issuer)
    }

    /// The public keys, as others fetch them.
    pub fn jwks(&self) -> Value {
        self.jwks.clone()
    }

    /// Signs a token that is valid from now on, and records how long its key must be published.
    pub fn mint(&self, grant: &Grant) -> Result<String, CommandError> {
        let claims = self.claims(grant);
        let ends = Timestamp(claims.exp.saturating_mul(1000));
        self.files.note_token(self.signer.kid(), ends)?;
        self.signer
            .sign(&claims)
            .map_err(|why| CommandError::Usage(why.to_string()))
    }

    fn claims(&self, grant: &Grant) -> Claims {
        let now = now().unix_seconds();
        let audiences = match grant.audiences.is_empty() {
            true => vec![ANY_AUDIENCE.to_owned()],
            false => grant.audiences.clone(),
        };
        Claims {
            iss: self.url.clone(),
            sub: grant.subject.clone(),
            aud: audiences,
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

/// The wall clock.
pub fn now() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

#[derive(Serialize)]
struct TokenReport<'a> {
    token: &'a str,
    expires_at: String,
}

/// `penstock token`.
pub fn run(args: TokenArgs, environment: &Environment, output: Output) -> Result<(), CommandError> {
    if args.lifetime.0.as_secs() == 0 {
        return Err(CommandError::Usage(
            "a token must be valid for at least a second".into(),
        ));
    }
    let issuer = SiteIssuer::of(&SiteDirectory::at(&args.dir)?)?;
    let token = issuer.mint(&Grant {
        subject: args.subject.unwrap_or_else(|| environment.subject()),
        scope: args.scope,
        audiences: args.audiences,
        groups: args.groups,
        lifetime: args.lifetime.0,
    })?;
    let report = TokenReport {
        token: &token,
        expires_at: (now() + args.lifetime.0).to_fts(),
    };
    output.show(&report, || format!("{token}\n"));
    Ok(())
}
