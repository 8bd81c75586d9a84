//! What can be typed to see a host's samples, and to compare hosts.

use super::ServiceArgs;
use clap::{Args, Subcommand};
use penstock_model::quantity::{Span, Speed};
use std::path::PathBuf;
use std::str::FromStr;

/// Options of `host`.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// Or compare hosts.
    #[command(subcommand)]
    pub command: Option<HostCommand>,
    /// How far back to look.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub since: Span,
    /// With --json: the interval of one point. Default: whatever fits the window.
    #[arg(long, value_name = "TIME")]
    pub resolution: Option<Span>,
    /// Read the minutes in the directory of --dir, on the host itself, without the service. So it is done where the site has
    /// no transfer service.
    #[arg(long)]
    pub offline: bool,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// What else can be done with samples of hosts.
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Find the facts that separate slow hosts from fast ones.
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
    /// The rate of a host, by its name in the report or the name of the file. Default: what its WAN interfaces carried.
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
