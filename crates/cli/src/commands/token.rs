//! `penstock token`: a token that a site's own issuer signs.

use crate::args::TokenArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::directory::SiteDirectory;
use crate::site::issuer::{Grant, SiteIssuer, own_audiences, renew_admin};
use penstock_clock::wall_clock;
use penstock_decide::monitor_rights::MONITOR_SCOPE;
use penstock_model::{NamespacePath, Right};
use penstock_protocol::token::{ADMIN_SCOPE, capabilities};
use serde::Serialize;
use std::time::Duration;

/// How long a token lives when nothing is said.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Scopes of the site's own that mean something.
const OWN_SCOPES: [&str; 2] = [ADMIN_SCOPE, MONITOR_SCOPE];

#[derive(Serialize)]
struct TokenReport<'a> {
    token: &'a str,
    expires_at: String,
}

/// `penstock token`.
pub fn run(args: TokenArgs, environment: &Environment, output: Output) -> Result<(), CommandError> {
    // Of the tokens only that one is stored.
    let site = match args.admin {
        true => SiteDirectory::to_change(&args.dir)?,
        false => SiteDirectory::at(&args.dir)?,
    };
    let config = site.config()?;
    if args.lifetime.is_some_and(|span| span.0.as_secs() == 0) {
        return Err(CommandError::Usage(
            "a token must be valid for at least one second".into(),
        ));
    }
    if args.admin {
        let lifetime = args.lifetime.map(|span| span.0);
        let (token, lifetime) = renew_admin(&site, lifetime)?;
        show(&token, lifetime, output);
        return Ok(());
    }
    check_scope(&args.scope)?;
    let lifetime = args.lifetime.map_or(LIFETIME, |span| span.0);
    let token = SiteIssuer::of(&site)?.mint(&Grant {
        subject: args.subject.unwrap_or_else(|| environment.subject()),
        scope: args.scope,
        audiences: match args.audiences.is_empty() {
            true => own_audiences(&config),
            false => args.audiences,
        },
        groups: args.groups,
        lifetime,
    })?;
    show(&token, lifetime, output);
    Ok(())
}

fn show(token: &str, lifetime: Duration, output: Output) {
    let report = TokenReport {
        token,
        expires_at: format!("{}Z", (wall_clock() + lifetime).to_fts()),
    };
    output.show(&report, || format!("{token}\n"));
}

/// Refuses what no server could understand. Scopes of others are passed on.
fn check_scope(scope: &str) -> Result<(), CommandError> {
    let refused = |why: String| Err(CommandError::Usage(format!("--scope: {why}")));
    // RFC 6749 §3.3: the characters of a scope.
    let is_allowed = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    for item in scope.split_ascii_whitespace() {
        if !item.bytes().all(is_allowed) {
            return refused(format!(
                "'{}' contains characters that are not allowed in a scope; write them as %XX in a path",
                item.escape_default()
            ));
        }
        let name = item.split(':').next().unwrap_or_default();
        let rights = Right::ALL.map(Right::scope_name);
        if name.starts_with("storage.") && !rights.contains(&name) {
            return refused(format!(
                "there is no right '{name}'; use one of {}",
                rights.join(", ")
            ));
        }
        if name.starts_with("penstock.") && !OWN_SCOPES.contains(&item) {
            return refused(format!(
                "there is no scope '{item}'; use one of {}",
                OWN_SCOPES.join(", ")
            ));
        }
    }
    match capabilities(scope, &NamespacePath::root()) {
        Ok(_) => Ok(()),
        Err(why) => refused(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_that_no_server_understands_is_refused() {
        let check = |scope: &str, expected: &str| {
            let said =
                check_scope(scope).map_or_else(|why| why.to_string(), |()| "fine".to_owned());
            assert_eq!(said, expected, "{scope}");
        };
        check("storage.read:/ storage.modify:/a%20b fts openid", "fine");
        check("penstock.monitor wlcg.groups:/cms compute.read", "fine");
        check("", "fine");
        check(
            "storage.write:/",
            "--scope: there is no right 'storage.write'; use one of storage.read, storage.create, storage.modify, \
             storage.stage, storage.poll",
        );
        check(
            "storage.read",
            "--scope: 'storage.read' has no path; write 'storage.read:/path'",
        );
        check(
            "penstock.root",
            "--scope: there is no scope 'penstock.root'; use one of penstock.admin, penstock.monitor",
        );
        check(
            "storage.read:/é",
            "--scope: 'storage.read:/\\u{e9}' contains characters that are not allowed in a scope; write them as %XX in a path",
        );
        assert!(check_scope("storage.read:/a/../b").is_err());
        assert!(check_scope("storage.read:a").is_err());
    }
}
