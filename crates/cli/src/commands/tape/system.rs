//! `penstock tape status` and `penstock tape retry`: the tape system of a storage element.

use crate::args::DoorArgs;
use crate::commands::access::AdministratorsDoor;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::tape_api::{TapeAmount, TapeApi, TapeStatus};
use penstock_model::Bytes;
use penstock_model::text::{one_line, plural};
use std::fmt::Write;

fn connect(args: &DoorArgs, environment: &Environment) -> Result<TapeApi, CommandError> {
    let AdministratorsDoor {
        client,
        door,
        credentials,
    } = AdministratorsDoor::of(args, environment, "tape system")?;
    Ok(TapeApi::new(client, door, credentials))
}

fn told(why: RemoteError) -> CommandError {
    match why {
        RemoteError::NotFound { .. } => CommandError::NotFound(
            "this storage element has no tape system; [storage.tape] in penstock.toml gives it one"
                .to_owned(),
        ),
        why => why.into(),
    }
}

/// `penstock tape status`.
pub(super) async fn status(
    args: &DoorArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let status = connect(args, environment)?.status().await.map_err(told)?;
    output.show(&status, || text(&status));
    Ok(())
}

/// `penstock tape retry`.
pub(super) async fn retry(
    args: &DoorArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let tape = connect(args, environment)?;
    tape.retry().await.map_err(told)?;
    let status = tape.status().await.map_err(told)?;
    output.show(&status, || {
        format!(
            "what waited for its next try is tried now\n{}",
            text(&status)
        )
    });
    Ok(())
}

fn text(status: &TapeStatus) -> String {
    let mut out = String::new();
    for kind in ["put", "get", "remove"] {
        let counts = status.counts.kinds.get(kind).cloned().unwrap_or_default();
        let _ = writeln!(
            out,
            "{kind:<8} {}; {}; {}; {}",
            amount(counts.running, "running"),
            amount(counts.queued, "queued"),
            amount(counts.collecting, "waiting for their family"),
            amount(counts.delayed, "waiting for a retry"),
        );
    }
    if status.incidents.is_empty() {
        out.push_str("no incident\n");
    }
    for incident in &status.incidents {
        let fault = incident
            .fault
            .as_deref()
            .map(|fault| format!(": {}", one_line(fault)));
        let _ = writeln!(
            out,
            "since {}: {}{}",
            incident.since.to_fts() + "Z",
            incident.what,
            fault.unwrap_or_default()
        );
    }
    out
}

fn amount(amount: TapeAmount, what: &str) -> String {
    match amount.files {
        0 => format!("none {what}"),
        files => format!("{} ({}) {what}", plural(files, "file"), Bytes(amount.bytes)),
    }
}
