//! `penstock tape status`, `retry`, `enable`, `disable`, `read-only` and `ok-to-stop`: the tape system of a storage element.

use super::care::care_text;
use super::page::page;
use crate::args::{DoorArgs, TapeNameArgs, TapeStatusArgs, TapeStopArgs};
use crate::commands::access::AdministratorsDoor;
use crate::commands::account::write_page;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_clock::wall_clock;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::tape_api::{
    HsmStatusDocument, StopAnswerDocument, StopReasonDocument, TapeAmountDocument, TapeApi,
    TapeLibrariesDocument, TapeStatusDocument, TapeWaitDocument,
};
use penstock_model::Bytes;
use penstock_model::text::{one_line, plural};
use serde::Serialize;
use std::fmt::Write;

pub(super) fn connect(args: &DoorArgs, environment: &Environment) -> Result<TapeApi, CommandError> {
    let AdministratorsDoor {
        client,
        door,
        credentials,
    } = AdministratorsDoor::of(args, environment, "tape system")?;
    Ok(TapeApi::new(client, door, credentials))
}

pub(super) fn told(why: RemoteError) -> CommandError {
    match why {
        RemoteError::NotFound { .. } => CommandError::NotFound(
            "this storage element has no tape system; add [storage.tape] to penstock.toml"
                .to_owned(),
        ),
        why => why.into(),
    }
}

/// `penstock tape status`.
pub(super) async fn status(
    args: &TapeStatusArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let status = connect(&args.door, environment)?
        .status()
        .await
        .map_err(told)?;
    if let Some(path) = &args.html {
        write_page(path, &page(&status, wall_clock()))?;
        if !output.json {
            output.say(format!("wrote the page {}", path.display()));
            return Ok(());
        }
    }
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
    output.show(&status, || format!("retry started\n{}", text(&status)));
    Ok(())
}

/// What a drive or a tape is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Full,
    /// Of a tape.
    ReadOnly,
    None,
}

/// `penstock tape enable`, `disable` and `read-only`: which of both a name is, the status tells.
pub(super) async fn change(
    args: &TapeNameArgs,
    to: Use,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let (tape, name) = (connect(&args.door, environment)?, args.name.as_str());
    let libraries = tape.status().await.map_err(told)?.libraries;
    let drives = libraries.iter().flat_map(|libraries| &libraries.drives);
    let is_drive = { drives }.any(|drive| drive.name == name);
    let (what, state) = match (is_drive, to) {
        (true, Use::Full) => ("drive", "up"),
        (true, Use::None) => ("drive", "down"),
        (true, Use::ReadOnly) => {
            let text = format!("{name} is a drive; only a tape can be read-only");
            return Err(CommandError::Usage(text));
        }
        (false, Use::Full) => ("tape", "enabled"),
        (false, Use::None) => ("tape", "disabled"),
        (false, Use::ReadOnly) => ("tape", "read_only"),
    };
    let changed = match is_drive {
        true => tape.change_drive(name, state).await,
        false => tape.change_tape(name, state).await,
    };
    changed.map_err(|why| told_of("drive or tape", name, why))?;
    let done = Changed { name, state };
    output.show(&done, || {
        format!("{what} {name} is {}\n", state.replace('_', "-"))
    });
    Ok(())
}

/// What was ordered is done.
#[derive(Serialize)]
pub(super) struct Changed<'a> {
    pub name: &'a str,
    pub state: &'a str,
}

/// `penstock tape ok-to-stop`.
pub(super) async fn ok_to_stop(
    args: &TapeStopArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let tape = connect(&args.door, environment)?;
    let answer = tape.ok_to_stop(&args.name).await;
    let answer = answer.map_err(|why| told_of("drive, tape or library", &args.name, why))?;
    output.show(&answer, || stop_text(&args.name, &answer));
    match answer.is_ok {
        true => Ok(()),
        false => Err(CommandError::MayNotStop(args.name.clone())),
    }
}

/// `kinds` are those of which one was asked for.
pub(super) fn told_of(kinds: &str, name: &str, why: RemoteError) -> CommandError {
    match why {
        RemoteError::NotFound { .. } => CommandError::NotFound(format!(
            "this storage element has no {kinds} named '{name}'; `penstock tape status` lists drives and tapes"
        )),
        why => why.into(),
    }
}

fn stop_text(name: &str, answer: &StopAnswerDocument) -> String {
    let mut out = match answer.is_ok {
        true => format!("{name} may be stopped\n"),
        false => format!("{name} should not be stopped\n"),
    };
    for reason in &answer.because {
        let line = match reason {
            StopReasonDocument::Unknown => "nothing of this name is known".to_owned(),
            StopReasonDocument::RecallsWait {
                files,
                bytes,
                tapes,
            } => format!(
                "{} ({}) that users wait for could be read nowhere else; tapes {}",
                plural(*files, "file"),
                Bytes(*bytes),
                tapes.join(", ")
            ),
            StopReasonDocument::ArchivesWait { family, files } => format!(
                "{} of family {family} could be written nowhere else",
                plural(*files, "file")
            ),
            StopReasonDocument::NoOtherCopy { files, bytes, .. } => format!(
                "{} ({}) on tape have no other copy that could be read",
                plural(*files, "file"),
                Bytes(*bytes)
            ),
            StopReasonDocument::WorkDoneAgain {
                drive,
                unsynced_files,
                unsynced_bytes,
                ..
            } => format!(
                "drive {drive} would be stopped in the middle; {} ({}) would be written again",
                plural(*unsynced_files, "file"),
                Bytes(*unsynced_bytes)
            ),
            StopReasonDocument::Other => {
                "a reason that this version does not know; see --json".to_owned()
            }
        };
        let _ = writeln!(out, "  {line}");
    }
    out
}

fn text(status: &TapeStatusDocument) -> String {
    let mut out = String::new();
    if let Some(libraries) = &status.libraries {
        libraries_text(libraries, &mut out);
    }
    for (what, counts) in status.counts.named() {
        let _ = write!(
            out,
            "{what:<9} {}; {}",
            amount(counts.running, "running"),
            amount(counts.queued, "queued")
        );
        if let Some(collecting) = counts.collecting {
            let _ = write!(out, "; {}", amount(collecting, "waiting for others"));
        }
        let _ = writeln!(out, "; {}", amount(counts.delayed, "waiting for a retry"));
    }
    if let Some(hsm) = &status.hsm {
        hsm_text(hsm, &mut out);
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

/// What failed last of each operation, and why files wait for their next try.
fn hsm_text(hsm: &HsmStatusDocument, out: &mut String) {
    let said = |code: Option<i32>, text: &str| {
        let code = code.map_or_else(
            || "no exit code".to_owned(),
            |code| format!("exit code {code}"),
        );
        match text.is_empty() {
            true => code,
            false => format!("{code}: {}", one_line(text)),
        }
    };
    for failed in &hsm.failures {
        let _ = writeln!(
            out,
            "{:<9} {} since the start; the last at {}Z, {}, {}",
            one_line(&failed.operation),
            plural(failed.count, "failure"),
            failed.last.at.to_fts(),
            one_line(&failed.last.name),
            said(failed.last.code, &failed.last.text)
        );
    }
    for file in &hsm.delayed {
        let _ = writeln!(
            out,
            "  {} of {} failed {}, next try {}Z: {}",
            one_line(&file.operation),
            one_line(&file.name),
            plural(file.tries.into(), "time"),
            file.next_try.to_fts(),
            said(file.code, &file.text)
        );
    }
}

fn libraries_text(libraries: &TapeLibrariesDocument, out: &mut String) {
    for drive in &libraries.drives {
        let _ = write!(out, "drive {:<20} ", drive.name);
        let _ = match &drive.tape {
            Some(tape) => write!(out, "{:<11} {tape}", drive.state),
            None => write!(out, "{}", drive.state),
        };
        if let Some(family) = &drive.family {
            let _ = write!(out, " for family {family}");
        }
        if drive.files > 0 {
            let _ = write!(out, ", {}", plural(drive.files, "file"));
        }
        if let Some(since) = drive.since {
            let _ = write!(out, ", since {}Z", since.to_fts());
        }
        out.push('\n');
    }
    let is_blank = |written: u64, state: &str| written == 0 && state == "active";
    let blank = libraries.tapes.iter();
    let blank = blank.filter(|tape| is_blank(tape.written_bytes, &tape.state));
    let blank = blank.count() as u64;
    for tape in &libraries.tapes {
        if is_blank(tape.written_bytes, &tape.state) {
            continue;
        }
        let _ = write!(
            out,
            "tape  {:<20} {:<11} {} written of {}, {} needed, {} not",
            tape.name,
            tape.state,
            Bytes(tape.written_bytes),
            Bytes(tape.capacity_bytes),
            Bytes(tape.live.bytes),
            Bytes(tape.dead_bytes)
        );
        if let Some(family) = &tape.family {
            let _ = write!(out, ", family {family}");
        }
        if let Some(drive) = &tape.drive {
            let _ = write!(out, ", in {drive}");
        }
        if tape.queued.files > 0 {
            let _ = write!(out, ", {}", amount(tape.queued, "to be read"));
        }
        wait_text(tape.waits_for.as_ref(), out);
        let verification = &tape.verification;
        if verification.unreadable_files > 0 {
            let _ = write!(
                out,
                ", {} found unreadable since its first verification",
                plural(verification.unreadable_files, "file")
            );
        }
        match verification.ended {
            Some(ended) => {
                let _ = write!(out, ", verified {}Z", ended.to_fts());
            }
            None => out.push_str(", not verified yet"),
        }
        out.push('\n');
    }
    let _ = writeln!(out, "{} without data", plural(blank, "tape"));
    for family in &libraries.families {
        let queued = amount(family.queued, "to be written");
        let _ = write!(out, "family {}: {queued}", family.name);
        wait_text(family.waits_for.as_ref(), out);
        out.push('\n');
    }
    care_text(&libraries.care, out);
}

fn wait_text(wait: Option<&TapeWaitDocument>, out: &mut String) {
    let Some(wait) = wait else { return };
    let _ = write!(out, ", waiting: {}", wait.what);
    if let Some(until) = wait.until {
        let _ = write!(out, " (until {}Z)", until.to_fts());
    }
}

fn amount(amount: TapeAmountDocument, what: &str) -> String {
    match amount.files {
        0 => format!("none {what}"),
        files => format!("{} ({}) {what}", plural(files, "file"), Bytes(amount.bytes)),
    }
}
