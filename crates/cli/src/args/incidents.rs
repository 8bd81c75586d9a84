//! What `penstock incidents` takes.

use super::jobs::RecordArgs;
use clap::{Args, Subcommand};
use penstock_decide::incidents::{IncidentId, Month};
use penstock_model::IncidentClass;

/// Options of `incidents`.
#[derive(Debug, Args)]
pub struct IncidentsArgs {
    /// What to do. Default: list.
    #[command(subcommand)]
    pub command: Option<IncidentsCommand>,
    /// Only incidents that were first seen in this month (UTC), such as 2026-11.
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["since", "until"])]
    pub month: Option<Month>,
    /// Only this class: storage, network, service, tape, client or unexplained. Monthly shares still count all classes.
    #[arg(long, value_name = "CLASS", value_parser = incident_class)]
    pub class: Option<IncidentClass>,
    /// Which time of which record.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// What `incidents` does with one.
#[derive(Debug, Subcommand)]
pub enum IncidentsCommand {
    /// Show one incident: what happened, since when, how much was lost, the evidence, and what to do.
    #[command(after_help = "Example:\n  penstock incidents show --dir cern 6931bd80-1c9a44f2")]
    Show(IncidentArgs),
    /// Print a ticket text for the administrators who can fix the cause.
    #[command(
        after_help = "Examples:\n  penstock incidents ticket --dir cern 6931bd80-1c9a44f2 > ticket.txt\n  \
        penstock incidents ticket --dir cern --offline 6931bd80-1c9a44f2\n\n\
        The ticket says what happens and since when, the evidence with numbers and times (UTC), what to do, and how to \
        verify the fix."
    )]
    Ticket(IncidentArgs),
}

/// Which incident.
#[derive(Debug, Args)]
pub struct IncidentArgs {
    /// Its id, as the list shows it. Give the same options as for the list.
    pub id: IncidentId,
    /// Which time of which record.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// A class by its word.
pub(super) fn incident_class(word: &str) -> Result<IncidentClass, String> {
    IncidentClass::from_word(word).ok_or_else(|| {
        let words: Vec<&str> = IncidentClass::ALL
            .iter()
            .map(|class| class.word())
            .collect();
        format!("the classes are {}", words.join(", "))
    })
}
