//! What `penstock incidents` takes.

use super::jobs::RecordArgs;
use clap::{Args, Subcommand};
use penstock_decide::incidents::{IncidentId, Month};
use penstock_model::IncidentClass;

/// Options of `incidents`.
#[derive(Debug, Args)]
pub struct IncidentsArgs {
    /// What to do; without it: list.
    #[command(subcommand)]
    pub command: Option<IncidentsCommand>,
    /// Those that were first seen in this month (UTC), such as 2026-11.
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["since", "until"])]
    pub month: Option<Month>,
    /// Only this class: storage, network, service, tape, client or unexplained. Shares of months are of all classes.
    #[arg(long, value_name = "CLASS", value_parser = incident_class)]
    pub class: Option<IncidentClass>,
    /// Which time of which record.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// What `incidents` does with one.
#[derive(Debug, Subcommand)]
pub enum IncidentsCommand {
    /// Show one incident: what, since when, how much, how it is known, what helps.
    #[command(after_help = "Example:\n  penstock incidents show --dir cern 6931bd80-1c9a44f2")]
    Show(IncidentArgs),
    /// Write a ticket that the administrators of the place can act on.
    #[command(
        after_help = "Examples:\n  penstock incidents ticket --dir cern 6931bd80-1c9a44f2 > ticket.txt\n  \
        penstock incidents ticket --dir cern --offline 6931bd80-1c9a44f2\n\n\
        What happens, since when, how that is known with numbers and times (UTC), what is asked, how to verify."
    )]
    Ticket(IncidentArgs),
}

/// Which incident.
#[derive(Debug, Args)]
pub struct IncidentArgs {
    /// Its id, as the list shows it. It is looked for with the options of the list.
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
