//! What `penstock ban` takes.

use super::ServiceArgs;
use clap::{Args, Subcommand};
use penstock_model::quantity::Span;

/// What `ban` does.
#[derive(Debug, Subcommand)]
pub enum BanCommand {
    /// Ban a storage element: its transfers are canceled, or wait.
    #[command(after_help = "Examples:\n  \
        penstock ban se --dir cern https://se.example.org --message 'disk server lost'\n  \
        penstock ban se --dir cern https://se.example.org --wait --allow-submit --timeout 2h --vo dteam")]
    Se(BanStorageArgs),
    /// Ban a user: their jobs are canceled, and the service does not answer them any more.
    #[command(
        after_help = "Example:\n  penstock ban dn --dir cern /DC=org/CN=Mallory --message 'key stolen'"
    )]
    Dn(BanUserArgs),
    /// List the bans that hold. `penstock audit` tells what was banned and lifted before.
    #[command(after_help = "Example:\n  penstock ban list --dir cern")]
    List(BanListArgs),
    /// Lift a ban: of a storage element (scheme://host) or of a user. What waited starts.
    #[command(after_help = "Example:\n  penstock ban remove --dir cern https://se.example.org")]
    Remove(BanRemoveArgs),
}

/// Options of `ban se`.
#[derive(Debug, Args)]
pub struct BanStorageArgs {
    /// The storage element, such as https://se.example.org. Scheme and port make no difference.
    pub storage: String,
    /// What has not started waits, and what runs goes on. Default: all is canceled.
    #[arg(long)]
    pub wait: bool,
    /// New transfers are accepted, and wait. Default: they are refused.
    #[arg(long, requires = "wait")]
    pub allow_submit: bool,
    /// What waits is canceled after this time. Default: it waits as long as the ban holds.
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub timeout: Option<Span>,
    /// Only transfers of this VO. Default: all.
    #[arg(long)]
    pub vo: Option<String>,
    /// Why; users see it.
    #[arg(long, default_value = "")]
    pub message: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `ban dn`.
#[derive(Debug, Args)]
pub struct BanUserArgs {
    /// The subject of the certificate, or of the token.
    pub user: String,
    /// Why; operators see it.
    #[arg(long, default_value = "")]
    pub message: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `ban list`.
#[derive(Debug, Args)]
pub struct BanListArgs {
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `ban remove`.
#[derive(Debug, Args)]
pub struct BanRemoveArgs {
    /// The storage element (scheme://host) or the user.
    pub banned: String,
    /// The ban of this VO's transfers. Default: of all.
    #[arg(long)]
    pub vo: Option<String>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}
