//! `penstock login-link`, `view-link` and `access-link`: short links to the live page of a transfer service.

pub mod listing;

use crate::args::{
    AccessLinkCommand, AccessLinkListArgs, AccessLinkRevokeArgs, LoginLinkArgs, ServiceArgs,
    ViewLinkArgs,
};
use crate::commands::access::Access;
use crate::commands::batch_result::BatchResult;
use crate::commands::jobs::{Intent, connect, connect_lasting, find_service};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use listing::{table, to_the_minute};
use penstock_field_tools::access_links_api::{AccessLinkInfo, MadeAccessLink};
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::TimeSpan;
use penstock_model::quantity::Span;
use serde::Serialize;
use std::time::Duration;
use url::Url;

/// A session that is shorter by so much is not worth a word.
const TOLERATED: Duration = Duration::from_secs(60);

/// What `login-link` and `view-link` print.
#[derive(Debug, Serialize)]
pub struct LinkReport {
    pub link: String,
    pub id: String,
    pub user: String,
    pub access: String,
    pub opens: String,
    /// RFC 3339, in UTC.
    pub expires_at: String,
    /// Of a login link: how long its session lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_seconds: Option<u64>,
}

impl LinkReport {
    fn of(made: MadeAccessLink, service: &Url) -> LinkReport {
        let base = service.as_str().trim_end_matches('/');
        LinkReport {
            link: format!("{base}{}", made.path),
            id: made.id,
            user: made.user,
            access: made.access,
            opens: made.opens,
            expires_at: made.expires_at,
            session_seconds: made.session_seconds,
        }
    }
}

/// Who shall be signed in by a login link, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct LoginRequest {
    pub is_admin: bool,
    pub session: Duration,
    pub open_within: Duration,
}

/// Makes a login link.
pub async fn make_login_link(
    service: &ServiceArgs,
    request: LoginRequest,
    environment: &Environment,
) -> Result<LinkReport, CommandError> {
    let access = Access::open(&service.access, environment, 1)?;
    let intent = match request.is_admin {
        true => Intent::Administer,
        false => Intent::Submit,
    };
    // The session ends with the token that its link was made with.
    let needed = request
        .session
        .saturating_add(request.open_within)
        .saturating_add(TOLERATED);
    let client = connect_lasting(&access, service, intent, environment, Some(needed))?;
    let made = client
        .login_link(request.open_within, request.session)
        .await?;
    Ok(LinkReport::of(made, &find_service(service, environment)?))
}

/// `penstock login-link`.
pub async fn login(
    args: LoginLinkArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    refuse_nothing(args.session)?;
    refuse_nothing(args.open_within)?;
    let request = LoginRequest {
        is_admin: args.admin,
        session: args.session.0,
        open_within: args.open_within.0,
    };
    let made = make_login_link(&args.service, request, environment).await?;
    if !output.json {
        let session = Duration::from_secs(made.session_seconds.unwrap_or_default());
        if session + TOLERATED < args.session.0 {
            eprintln!(
                "penstock: Shortened to {}: the service, or your token, does not allow more.",
                TimeSpan(session)
            );
        }
        eprintln!(
            "penstock: The link works once, until {}; the browser is then signed in as {} for {}.",
            to_the_minute(&made.expires_at),
            made.user,
            TimeSpan(session)
        );
    }
    output.show(&made, || format!("{}\n", made.link));
    Ok(())
}

/// `penstock view-link`.
pub async fn view(
    args: ViewLinkArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    refuse_nothing(args.span)?;
    let opens = match args.id.trim().parse::<u64>() {
        Ok(number) => format!("transfer/{number}"),
        Err(_) => format!("job/{}", args.id.trim()),
    };
    let service = connect(&args.service, Intent::Manage, environment)?;
    let made = service.view_link(&opens, args.span.0).await?;
    let max = Duration::from_secs(made.lifetime_max_seconds);
    let made = LinkReport::of(made, &find_service(&args.service, environment)?);
    if !output.json {
        if max < args.span.0 {
            eprintln!(
                "penstock: Shortened to {}, the maximum of this service.",
                TimeSpan(max)
            );
        }
        let until = to_the_minute(&made.expires_at);
        eprintln!(
            "penstock: Anybody who has the link can use it until {until}. It shows no names of users and no paths of files."
        );
    }
    output.show(&made, || format!("{}\n", made.link));
    Ok(())
}

fn refuse_nothing(span: Span) -> Result<(), CommandError> {
    match span.0.as_secs() {
        0 => Err(CommandError::Usage(
            "a link must be valid for at least one second".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// `penstock access-link`.
pub async fn run(
    command: AccessLinkCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match command {
        AccessLinkCommand::List(args) => list(&args, environment, output).await,
        AccessLinkCommand::Revoke(args) => revoke(&args, environment, output).await,
    }
}

async fn list(
    args: &AccessLinkListArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    let links = service.access_links(args.all).await?;
    output.show(&links, || table(&links, "no login or view links"));
    Ok(())
}

async fn revoke(
    args: &AccessLinkRevokeArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    let mut revoked = BatchResult::new();
    for id in &args.ids {
        let outcome = service.revoke_access_link(id).await;
        revoked.add(
            id,
            outcome.map_err(|why| revocation_error(id, "access-link list", why)),
        );
    }
    revoked.conclude(output, |links| links.iter().map(revocation_line).collect())
}

/// What is said of a link that was asked to end.
pub fn revocation_line(link: &AccessLinkInfo) -> String {
    let AccessLinkInfo { id, state, .. } = link;
    let ended = link
        .ended_at
        .as_deref()
        .map(to_the_minute)
        .unwrap_or_default();
    format!("{id}  {state} {ended}\n")
}

/// Why a link does not end, with the command that lists those that could.
pub fn revocation_error(id: &str, lister: &str, why: RemoteError) -> CommandError {
    match why {
        RemoteError::NotFound { .. } => CommandError::NotFound(format!(
            "you have no link with the id '{id}'; `penstock {lister}` shows those that there are"
        )),
        why => why.into(),
    }
}
