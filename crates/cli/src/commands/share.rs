//! `penstock share`: a short link to one path of a storage element, which keeps what the link allows; `share list` and `share
//! revoke` manage such links.

use crate::args::{
    DoorArgs, ShareArgs, ShareCommand, ShareListArgs, ShareMakeArgs, ShareRevokeArgs,
};
use crate::commands::access::{Access, AdministratorsDoor, Need, Purpose, Server, audiences_of};
use crate::commands::access_links::listing::{table, to_the_minute};
use crate::commands::access_links::{revocation_error, revocation_line};
use crate::commands::batch_result::BatchResult;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::access_links_api::{MadeShare, SharesApi};
use penstock_field_tools::remote::path_of;
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::TimeSpan;
use serde::Serialize;
use std::time::Duration;
use url::Url;

/// The token that a share is made with lives so much longer than the share.
const SPARE: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct ShareReport {
    link: String,
    id: String,
    path: String,
    access: String,
    /// RFC 3339, in UTC.
    expires_at: String,
    /// `site` or `credential`: why it ends sooner than was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    shortened_by: Option<String>,
}

/// `penstock share`.
pub async fn run(
    args: ShareArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match args.command {
        Some(ShareCommand::List(args)) => list(&args, environment, output).await,
        Some(ShareCommand::Revoke(args)) => revoke(&args, environment, output).await,
        None => make(args.make, environment, output).await,
    }
}

async fn make(
    args: ShareMakeArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let url = args
        .url
        .ok_or_else(|| CommandError::Usage("give the URL of what to share".to_owned()))?;
    if args.span.0.as_secs() == 0 {
        return Err(CommandError::Usage(
            "a link must be valid for at least one second".into(),
        ));
    }
    let (access_word, purpose) = match (args.upload, args.list) {
        (true, _) => ("upload", Purpose::Modify),
        (false, true) => ("list", Purpose::Read),
        (false, false) => ("read", Purpose::Read),
    };
    let door = door_of(&url);
    let access = Access::open(&args.access, environment, 1)?;
    let path = path_of(&url)?;
    // A share ends with the token that it was asked for with.
    let need = Need {
        scope: purpose.scope(&path),
        audiences: audiences_of(&door),
    };
    let lifetime = args.span.0.saturating_add(SPARE);
    let credentials = access.lasting([(Server::of(&door), need)], lifetime);
    let shares = SharesApi::new(access.client, door.clone(), credentials);
    let made = shares.make(&path, access_word, args.span.0).await;
    let made = made.map_err(|why| making_error(&url, why))?;
    if !output.json {
        eprintln!("penstock: {}", end(&made));
    }
    let shared = ShareReport {
        link: link(&door, &made.link),
        id: made.id,
        path: made.path,
        access: made.access,
        expires_at: made.expires_at,
        shortened_by: made.shortened_by,
    };
    output.show(&shared, || format!("{}\n", shared.link));
    Ok(())
}

/// When it ends, and why sooner than was asked for.
fn end(made: &MadeShare) -> String {
    let expires = to_the_minute(&made.expires_at);
    match made.shortened_by.as_deref() {
        None => format!("Expires {expires}."),
        Some("site") => {
            let max = TimeSpan(Duration::from_secs(made.lifetime_max_seconds));
            format!("Shortened to {max}, the maximum of this site. Expires {expires}.")
        }
        Some(_) => {
            let lifetime = TimeSpan(Duration::from_secs(made.lifetime_seconds));
            format!("Shortened to {lifetime}: your token ends then. Expires {expires}.")
        }
    }
}

/// In the words of the storage element, which says what is missing.
fn making_error(url: &Url, why: RemoteError) -> CommandError {
    match why {
        RemoteError::NotFound { .. } => CommandError::NotFound(format!(
            "{url} does not exist, so it cannot be shared; make it first (`penstock mkdir`), or check the path"
        )),
        why => why.into(),
    }
}

/// The door of a URL, without a path.
fn door_of(url: &Url) -> Url {
    let mut door = url.clone();
    door.set_path("");
    door.set_query(None);
    door.set_fragment(None);
    door
}

/// As browsers open it.
fn link(door: &Url, path: &str) -> String {
    format!("{}{path}", door.as_str().trim_end_matches('/'))
}

fn shares_api(door: &DoorArgs, environment: &Environment) -> Result<SharesApi, CommandError> {
    let AdministratorsDoor {
        client,
        door,
        credentials,
    } = AdministratorsDoor::of(door, environment, "shares")?;
    Ok(SharesApi::new(client, door, credentials))
}

async fn list(
    args: &ShareListArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let shares = shares_api(&args.door, environment)?;
    let found = shares.list(args.path.as_ref(), args.all).await?;
    output.show(&found, || table(&found, "no shares"));
    Ok(())
}

async fn revoke(
    args: &ShareRevokeArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let shares = shares_api(&args.door, environment)?;
    let mut revoked = BatchResult::new();
    for id in &args.ids {
        let outcome = shares.revoke(id).await;
        revoked.add(
            id,
            outcome.map_err(|why| revocation_error(id, "share list", why)),
        );
    }
    revoked.conclude(output, |links| links.iter().map(revocation_line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_one_that_browsers_open() {
        let check = |url: &str, expected: &str| {
            let door = door_of(&Url::parse(url).expect("a URL"));
            assert_eq!(link(&door, "/s/Sabc"), expected);
        };
        check("https://se:8443/d/", "https://se:8443/s/Sabc");
        check("https://se/d?x=1#y", "https://se/s/Sabc");
    }

    #[test]
    fn the_end_is_told_with_its_zone_and_why_it_is_sooner() {
        let made = |shortened_by: Option<&str>| MadeShare {
            id: "1".to_owned(),
            path: "/d".to_owned(),
            access: "read".to_owned(),
            expires_at: "2026-11-23T05:32:09Z".to_owned(),
            link: "/s/Sabc".to_owned(),
            lifetime_seconds: 600,
            lifetime_max_seconds: 12 * 3600,
            shortened_by: shortened_by.map(str::to_owned),
        };
        assert_eq!(end(&made(None)), "Expires 2026-11-23 05:32 UTC.");
        assert_eq!(
            end(&made(Some("site"))),
            "Shortened to 12 h, the maximum of this site. Expires 2026-11-23 05:32 UTC."
        );
        assert!(end(&made(Some("credential"))).starts_with("Shortened to 10 min: your token"));
    }
}
