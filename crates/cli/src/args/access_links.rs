//! What can be typed to make, list and revoke links that give access.

use super::trash::DoorArgs;
use super::{AccessArgs, ServiceArgs, parse_url};
use clap::{Args, Subcommand};
use penstock_model::NamespacePath;
use penstock_model::quantity::Span;
use url::Url;

/// Options of `login-link`.
#[derive(Debug, Args)]
pub struct LoginLinkArgs {
    /// Sign in as an administrator, who sees the transfers of all users.
    #[arg(long)]
    pub admin: bool,
    /// How long the browser stays signed in; at most 24h, and no longer than your token.
    #[arg(long = "for", value_name = "SPAN", default_value = "8h")]
    pub session: Span,
    /// How long the link itself can be opened; at most 24h.
    #[arg(long, value_name = "SPAN", default_value = "10m")]
    pub open_within: Span,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `view-link`.
#[derive(Debug, Args)]
pub struct ViewLinkArgs {
    /// The id of a job, or the number of a transfer.
    #[arg(value_name = "JOB|TRANSFER")]
    pub id: String,
    /// How long the link is valid; at most 30d.
    #[arg(long = "for", value_name = "SPAN", default_value = "1d")]
    pub span: Span,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// What `access-link` does.
#[derive(Debug, Subcommand)]
pub enum AccessLinkCommand {
    /// List your login links, their sessions and your view links, with those that ended in the last week.
    #[command(after_help = "Examples:\n  penstock access-link list --dir cern\n  \
        penstock access-link list --dir cern --all --json")]
    List(AccessLinkListArgs),
    /// End links or sessions now.
    #[command(after_help = "Example:\n  penstock access-link revoke --dir cern 5f0c1b2a3d4e")]
    Revoke(AccessLinkRevokeArgs),
}

/// Options of `access-link list`.
#[derive(Debug, Args)]
pub struct AccessLinkListArgs {
    /// For administrators: the links of all users.
    #[arg(long)]
    pub all: bool,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `access-link revoke`.
#[derive(Debug, Args)]
pub struct AccessLinkRevokeArgs {
    /// Ids as `access-link list` shows them.
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `share`.
#[derive(Debug, Args)]
pub struct ShareArgs {
    #[command(subcommand)]
    pub command: Option<ShareCommand>,
    #[command(flatten)]
    pub make: ShareMakeArgs,
}

/// What `share` does besides making a link.
#[derive(Debug, Subcommand)]
pub enum ShareCommand {
    /// List your shares, with those that ended in the last week.
    #[command(after_help = "Examples:\n  penstock share list --dir cern\n  \
        penstock share list --dir cern --path /data/run42 --json")]
    List(ShareListArgs),
    /// End shares now.
    #[command(after_help = "Example:\n  penstock share revoke --dir cern 5f0c1b2a3d4e")]
    Revoke(ShareRevokeArgs),
}

/// Options to make a share.
#[derive(Debug, Args)]
pub struct ShareMakeArgs {
    /// The file or directory to share; a directory with everything below it.
    #[arg(required = true, value_parser = parse_url)]
    pub url: Option<Url>,
    /// How long the link is valid. The site limits it.
    #[arg(long = "for", value_name = "SPAN", default_value = "12h")]
    pub span: Span,
    /// Let others list and upload new files, but not read or replace any.
    #[arg(long)]
    pub upload: bool,
    /// Let others list names only.
    #[arg(long, conflicts_with = "upload")]
    pub list: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `share list`.
#[derive(Debug, Args)]
pub struct ShareListArgs {
    /// Only shares of this path.
    #[arg(long, value_name = "PATH", value_parser = super::site::namespace_path)]
    pub path: Option<NamespacePath>,
    /// For administrators: the shares of all users.
    #[arg(long)]
    pub all: bool,
    /// The storage element.
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `share revoke`.
#[derive(Debug, Args)]
pub struct ShareRevokeArgs {
    /// Ids as `share list` shows them.
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    /// The storage element.
    #[command(flatten)]
    pub door: DoorArgs,
}
