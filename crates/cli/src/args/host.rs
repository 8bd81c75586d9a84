//! What can be typed to see a host's samples, and to compare hosts.

use super::ServiceArgs;
use clap::{Args, Subcommand};
use penstock_model::quantity::{Span, Speed};
use std::path::PathBuf;
use std::str::FromStr;

/// Options of `host`.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// Compare hosts instead.
    #[command(subcommand)]
    pub command: Option<HostCommand>,
    /// How far back to look.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub since: Span,
    /// With --json: the interval between points. Default: chosen to suit the window.
    #[arg(long, value_name = "TIME")]
    pub resolution: Option<Span>,
    /// Read the stored minutes below --dir on the host itself, without a running service. Use it also at a site without a
    /// transfer service.
    #[arg(long)]
    pub offline: bool,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// What else can be done with samples of hosts.
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Find the settings that only slow hosts have.
    #[command(after_help = "Examples:\n  \
        penstock host --dir cern --since 10m --json > cern.json   # on each host, while all do the same work\n  \
        penstock host compare cern.json lyon.json ral.json\n  \
        penstock host compare a.json b.json --rate 'a=400 kB/s' --rate 'b=40 MB/s'")]
    Compare(HostCompareArgs),
}

/// Options of `host compare`.
#[derive(Debug, Args)]
pub struct HostCompareArgs {
    /// Reports of `penstock host --json`, one for each host.
    #[arg(required = true, num_args = 2..)]
    pub reports: Vec<PathBuf>,
    /// The rate of a host, given by its name in the report or by the file name. Default: the traffic of its WAN interfaces.
    #[arg(long = "rate", value_name = "HOST=SPEED")]
    pub rates: Vec<NamedRate>,
}

/// The rate of one host.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedRate {
    /// Which.
    pub host: String,
    /// Bytes per second.
    pub rate: Speed,
}

impl FromStr for NamedRate {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedRate, String> {
        let (host, rate) = text
            .rsplit_once('=')
            .ok_or_else(|| format!("'{text}' is not HOST=SPEED, such as 'oxford=400 kB/s'"))?;
        Ok(NamedRate {
            host: host.to_owned(),
            rate: rate.parse()?,
        })
    }
}
