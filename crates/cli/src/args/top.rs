//! What can be typed to watch a transfer service.

use super::ServiceArgs;
use clap::Args;
use penstock_model::quantity::Span;

/// Options of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Show the present state once, and exit. This is the default if the output is not a terminal, and with --json.
    #[arg(long)]
    pub once: bool,
    /// The interval between two updates.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub every: Span,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}
