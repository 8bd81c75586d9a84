//! `penstock tape repack`, `verify`, `relabel`, `hold` and `resume`: what is done for tapes of libraries that nobody waits for.

use super::system::{Changed, connect, told, told_of};
use crate::args::{DoorArgs, TapeHoldArgs, TapeNameArgs, TapeRepackArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::tape_api::{TapeApi, TapeCareDocument};
use penstock_model::text::{one_line, plural};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::time::Duration;

/// `penstock tape repack`.
pub(super) async fn repack(
    args: &TapeRepackArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let together = match &args.together {
        None => Vec::new(),
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|why| {
                CommandError::Local(format!("{} cannot be read: {why}", path.display()))
            })?;
            let lines = text.lines().map(str::trim);
            let lines = lines.filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect()
        }
    };
    let tape = connect(&args.door, environment)?;
    let name = &args.name;
    let done = match args.stop {
        true if !is_repacked(&tape, name).await? => {
            let text = format!("no tape named '{name}' is being repacked");
            return Err(CommandError::NotFound(text));
        }
        true => tape.stop_repack(name).await,
        false => tape.repack(name, &together).await,
    };
    done.map_err(|why| told_of("tape", name, why))?;
    let (state, text) = match args.stop {
        true => ("kept", format!("the repack of tape {name} was stopped\n")),
        false => (
            "repacking",
            format!("tape {name} is being repacked; `penstock tape status` shows the progress\n"),
        ),
    };
    output.show(&Changed { name, state }, || text);
    Ok(())
}

async fn is_repacked(tape: &TapeApi, name: &str) -> Result<bool, CommandError> {
    let libraries = tape.status().await.map_err(told)?.libraries;
    let mut repacks = libraries.iter().flat_map(|found| &found.care.repacks);
    Ok(repacks.any(|repack| repack.tape == name))
}

/// `penstock tape verify`.
pub(super) async fn verify(
    args: &TapeNameArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let (tape, name) = (connect(&args.door, environment)?, &args.name);
    tape.verify(name)
        .await
        .map_err(|why| told_of("tape", name, why))?;
    let state = "verifying";
    output.show(&Changed { name, state }, || {
        format!("tape {name} will be verified when a drive is free\n")
    });
    Ok(())
}

/// `penstock tape relabel`.
pub(super) async fn relabel(
    args: &TapeNameArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let (tape, name) = (connect(&args.door, environment)?, &args.name);
    tape.relabel(name)
        .await
        .map_err(|why| told_of("tape", name, why))?;
    let state = "relabeled";
    output.show(&Changed { name, state }, || {
        format!("tape {name} was relabeled\n")
    });
    Ok(())
}

/// `penstock tape hold`.
pub(super) async fn hold(
    args: &TapeHoldArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let tape = connect(&args.door, environment)?;
    let name = "background";
    let held = tape.hold_background(args.span.0).await;
    held.map_err(told)?;
    let state = "held";
    output.show(&Changed { name, state }, || {
        "verification and repack are on hold; `penstock tape resume` ends this earlier\n".to_owned()
    });
    Ok(())
}

/// `penstock tape resume`.
pub(super) async fn resume(
    args: &DoorArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let tape = connect(args, environment)?;
    let name = "background";
    let resumed = tape.hold_background(Duration::ZERO).await;
    resumed.map_err(told)?;
    let state = "resumed";
    output.show(&Changed { name, state }, || {
        "verification and repack have resumed\n".to_owned()
    });
    Ok(())
}

/// What is done, for people.
pub(super) fn care_text(care: &TapeCareDocument, out: &mut String) {
    if let Some(until) = care.held_until {
        let _ = writeln!(
            out,
            "verification and repack are on hold until {}Z",
            until.to_fts()
        );
    }
    if let Some(verifying) = &care.verifying {
        let left = verifying.left_files.map(|files| plural(files, "file"));
        let left = left.map_or("its files are being listed".to_owned(), |left| {
            left + " left"
        });
        let _ = writeln!(out, "verifying {}: {left}", verifying.tape);
    }
    for repack in &care.repacks {
        let _ = write!(out, "emptying {}", repack.tape);
        match (&repack.waits_for, repack.left_files) {
            (Some(why), _) => {
                let _ = write!(out, ": {why}");
            }
            (None, Some(left)) => {
                let (moved, left) = (plural(repack.moved_files, "file"), plural(left, "file"));
                let _ = write!(out, ": {moved} moved, {left} left");
            }
            (None, None) => out.push_str(": waiting"),
        }
        out.push('\n');
    }
    if let Some(copying) = &care.copying {
        let copied = plural(copying.copied_files, "file");
        let _ = writeln!(
            out,
            "files with too few copies on tape: {copied} copied, {} left",
            copying.left_files
        );
    }
    for file in &care.without_copy {
        let (path, tape) = (one_line(&file.path), &file.tape);
        let _ = writeln!(out, "no readable copy: {path}, which is on tape {tape}");
    }
    let named = care.without_copy.len() as u64;
    more_files(care.without_copy_files.saturating_sub(named), out);
    for file in &care.unreadable {
        let path = file.path.as_deref().unwrap_or("a file that was removed");
        let fate = match file.has_other_copy {
            Some(true) => "will be rewritten from another copy",
            Some(false) => "has no other copy: ask its owner for one",
            None => "is needed only if it is restored",
        };
        let _ = writeln!(out, "unreadable on {}: {path} {fate}", file.tape);
    }
    // One of which no copy can be read is named with each.
    let named: BTreeSet<u64> = care.unreadable.iter().map(|one| one.file).collect();
    more_files(
        care.unreadable_files.saturating_sub(named.len() as u64),
        out,
    );
}

fn more_files(more: u64, out: &mut String) {
    if more > 0 {
        let _ = writeln!(out, "and {} more", plural(more, "file"));
    }
}
