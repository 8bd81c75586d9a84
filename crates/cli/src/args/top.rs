//! What can be typed to watch a transfer service.

use super::ServiceArgs;
use clap::Args;
use penstock_model::quantity::Span;

/// Options of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Show once how it stands, and end. So it is also when the output is not a terminal, and with --json.
    #[arg(long)]
    pub once: bool,
    /// Between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub every: Span,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}
