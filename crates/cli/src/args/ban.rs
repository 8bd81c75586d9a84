//! What `penstock ban` takes.

use super::ServiceArgs;
use clap::{Args, Subcommand};
use penstock_model::quantity::Span;

/// What `ban` does.
#[derive(Debug, Subcommand)]
pub enum BanCommand {
    /// Ban a storage element: its transfers are canceled, or held with --wait.
    #[command(after_help = "Examples:\n  \
        penstock ban se --dir cern https://se.example.org --message 'disk server lost'\n  \
        penstock ban se --dir cern https://se.example.org --wait --allow-submit --timeout 2h --vo dteam")]
    Se(BanStorageArgs),
    /// Ban a user: their jobs are canceled, and the service refuses their requests.
    #[command(
        after_help = "Example:\n  penstock ban dn --dir cern /DC=org/CN=Mallory --message 'key stolen'"
    )]
    Dn(BanUserArgs),
    /// List current bans. `penstock audit` shows earlier ones.
    #[command(after_help = "Example:\n  penstock ban list --dir cern")]
    List(BanListArgs),
    /// Lift the ban of a storage element (scheme://host) or of a user. Held transfers continue.
    #[command(after_help = "Example:\n  penstock ban remove --dir cern https://se.example.org")]
    Remove(BanRemoveArgs),
}

/// Options of `ban se`.
#[derive(Debug, Args)]
pub struct BanStorageArgs {
    /// The storage element, such as https://se.example.org. Scheme and port make no difference.
    pub storage: String,
    /// Hold queued transfers, and let running ones finish. Default: cancel all.
    #[arg(long)]
    pub wait: bool,
    /// Accept new transfers and hold them. Default: refuse them.
    #[arg(long, requires = "wait")]
    pub allow_submit: bool,
    /// Cancel held transfers after this time. Default: hold them until the ban is lifted.
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub timeout: Option<Span>,
    /// Ban only transfers of this VO. Default: all.
    #[arg(long)]
    pub vo: Option<String>,
    /// The reason, shown to users.
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
    /// The reason, shown to operators.
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
    /// Lift the ban of this VO's transfers. Default: the ban of all transfers.
    #[arg(long)]
    pub vo: Option<String>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}
