//! What `penstock mute` takes.

use super::ServiceArgs;
use super::incidents::incident_class;
use clap::{Args, Subcommand};
use penstock_model::IncidentClass;
use penstock_model::quantity::Span;

/// What `mute` does.
#[derive(Debug, Subcommand)]
pub enum MuteCommand {
    /// Suppress alerts for some incidents for a limited time. Replaces a mute with the same scope.
    #[command(after_help = "Examples:\n  \
        penstock mute add --dir cern --link 'se1.cern.ch-*' --for 4h --why 'new disk servers'\n  \
        penstock mute add --dir cern --vo dteam --for 2d --why 'tests of dteam'\n  \
        penstock mute add --dir cern --class tape --for 8h --why 'maintenance of the library'\n\n\
        An incident is muted when the mute covers all of it: all its links, or all VOs that move files on them. If an alert \
        was sent before the mute, the end of that incident is still reported.")]
    Add(MuteAddArgs),
    /// List active mutes, with the number of alerts that each has suppressed.
    #[command(after_help = "Example:\n  penstock mute list --dir cern")]
    List(MuteListArgs),
    /// Remove a mute before its expiry. Open incidents are alerted at once.
    #[command(
        after_help = "Examples:\n  penstock mute remove --dir cern --class tape\n  \
        penstock mute remove --dir cern --link 'se1.cern.ch-*'"
    )]
    Remove(MuteRemoveArgs),
}

/// Of which incidents.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct MuteScopeArgs {
    /// Incidents of this link: SOURCE-DESTINATION, each as host, with or without scheme, or `*`.
    #[arg(long, value_name = "LINK")]
    pub link: Option<String>,
    /// Incidents of links on which only this VO moves files.
    #[arg(long)]
    pub vo: Option<String>,
    /// Incidents of this class: storage, network, service, tape, client or unexplained.
    #[arg(long, value_name = "CLASS", value_parser = incident_class)]
    pub class: Option<IncidentClass>,
}

/// Options of `mute add`.
#[derive(Debug, Args)]
pub struct MuteAddArgs {
    /// Of which incidents.
    #[command(flatten)]
    pub scope: MuteScopeArgs,
    /// How long the mute lasts, 90 days at most.
    #[arg(long = "for", value_name = "TIME")]
    pub span: Span,
    /// The reason, shown in the list.
    #[arg(long, value_name = "TEXT")]
    pub why: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `mute list`.
#[derive(Debug, Args)]
pub struct MuteListArgs {
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `mute remove`.
#[derive(Debug, Args)]
pub struct MuteRemoveArgs {
    /// Of which incidents.
    #[command(flatten)]
    pub scope: MuteScopeArgs,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}
