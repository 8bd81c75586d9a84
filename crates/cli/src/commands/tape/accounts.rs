//! `penstock tape data-sets` and `account`: which files belong together on tape, and what drives did for whom.

use super::system::{connect, told};
use crate::args::{TapeAccountArgs, TapeDataSetsArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::tape_api::{
    TapeDataSet, TapeDataSets, TapeDriveAccount, TapeHintVerdict, TapeMount,
};
use penstock_model::text::plural;
use penstock_model::{Bytes, Timestamp};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Mounts that the text shows; `--json` has more.
const MOUNTS_SHOWN: usize = 20;

/// `penstock tape data-sets`.
pub(super) async fn data_sets(
    args: &TapeDataSetsArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let tape = connect(&args.door, environment)?;
    let sets = tape.data_sets(args.name.as_deref(), usize::from(args.limit));
    let sets = sets.await.map_err(told)?;
    output.show(&sets, || data_sets_text(&sets));
    Ok(())
}

/// `penstock tape account`.
pub(super) async fn account(
    args: &TapeAccountArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let tape = connect(&args.door, environment)?;
    let since = args.since.map(|since| since.at());
    let account = tape.account(since).await.map_err(told)?;
    output.show(&account, || account_text(&account));
    Ok(())
}

fn time(at: Timestamp) -> String {
    at.to_fts() + "Z"
}

fn data_sets_text(sets: &TapeDataSets) -> String {
    let mut out = String::new();
    if sets.data_sets.is_empty() {
        out.push_str("no data set\n");
    }
    for set in &sets.data_sets {
        data_set_text(set, &mut out);
    }
    let mut senders: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for one in &sets.hints {
        let of = senders.entry(&one.sender).or_default();
        *of.entry(&one.hint).or_default() += one.files;
    }
    for (sender, hints) in senders {
        let of = |hint: &str| hints.get(hint).copied().unwrap_or(0);
        let _ = writeln!(
            out,
            "hints of {sender}: {} named a data set, {} were empty, {} could not be read; {} came without",
            of("named"),
            of("blank"),
            of("unreadable"),
            plural(of("absent"), "file")
        );
    }
    out
}

fn data_set_text(set: &TapeDataSet, out: &mut String) {
    let _ = writeln!(
        out,
        "{} ({}, family {})",
        set.levels.join(" / "),
        source(&set.source),
        set.family
    );
    let _ = write!(
        out,
        "  {} ({})",
        plural(set.files, "file"),
        Bytes(set.bytes)
    );
    match (set.expected_files, set.expected_bytes) {
        (Some(files), Some(bytes)) => {
            let _ = write!(out, " of {files} ({}) announced", Bytes(bytes));
        }
        (Some(files), None) => {
            let _ = write!(out, " of {files} announced");
        }
        (None, Some(bytes)) => {
            let _ = write!(out, " of {} announced", Bytes(bytes));
        }
        (None, None) => {}
    }
    let _ = write!(
        out,
        "; on tape {} ({}), on disk {}",
        set.on_tape_files,
        Bytes(set.on_tape_bytes),
        set.on_disk_files
    );
    if let Some(archived) = set.archived {
        let _ = write!(out, "; all on tape since {}", time(archived));
    }
    if set.awaited_files > 0 {
        let files = plural(set.awaited_files, "file");
        let _ = match set.expected_on_disk {
            Some(at) => write!(
                out,
                "; {files} to be brought, all expected on disk {}",
                time(at)
            ),
            None => write!(out, "; {files} to be brought"),
        };
    }
    out.push('\n');
}

/// What tells which files belong together, in words.
fn source(name: &str) -> &str {
    match name {
        "client_metadata" => "named by its client",
        "submission" => "the files of a job",
        "path" => "a directory",
        "time" => "a day",
        other => other,
    }
}

fn account_text(account: &TapeDriveAccount) -> String {
    let mut out = match account.from {
        Some(from) => format!(
            "mounts that ended from {} to {}\n",
            time(from),
            time(account.until)
        ),
        None => format!("all mounts that ended until {}\n", time(account.until)),
    };
    let _ = writeln!(
        out,
        "drive-hours mounts       read    written  kind     VO, activity, challenge"
    );
    for one in &account.drive_times {
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
        let _ = writeln!(
            out,
            "{:>11.3} {:>6} {:>10} {:>10}  {:<8} {}, {}, {}",
            one.occupied_ns as f64 / 3.6e12,
            one.mounts,
            Bytes(one.read_bytes).to_string(),
            Bytes(one.written_bytes).to_string(),
            one.kind,
            name(&one.vo),
            name(&one.activity),
            name(&one.challenge)
        );
    }
    for vo in &account.vos {
        let _ = writeln!(
            out,
            "VO {}: {} of {} in all, {} written, {} needed",
            vo.vo,
            plural(vo.tapes, "tape"),
            Bytes(vo.capacity_bytes),
            Bytes(vo.written_bytes),
            Bytes(vo.live.bytes)
        );
    }
    for one in &account.hints {
        let _ = writeln!(out, "{}", verdict_text(one));
    }
    if !account.mounts.is_empty() {
        out.push_str("the last mounts:\n");
    }
    for mount in account.mounts.iter().take(MOUNTS_SHOWN) {
        mount_text(mount, &mut out);
    }
    out
}

fn verdict_text(one: &TapeHintVerdict) -> String {
    let sets = plural(one.data_sets, "data set");
    let source = source(&one.source);
    match one.verdict.as_str() {
        "held" => format!("{sets} ({source}) came as announced, or with several files"),
        "short" => format!("{sets} ({source}) came with fewer files than announced"),
        "lone" => format!("{sets} ({source}) had one file alone"),
        "blank" => format!("{} ({source}) named nothing", plural(one.data_sets, "hint")),
        other => format!("{sets} ({source}): {other}"),
    }
}

fn mount_text(mount: &TapeMount, out: &mut String) {
    let what = match &mount.family {
        Some(family) => format!("written for {family}"),
        None => "read".to_owned(),
    };
    let _ = write!(
        out,
        "  {} {} in {}, {what}: {}, {}/s of all its time, {}/s while the drive moved bytes",
        time(mount.begin),
        mount.tape,
        mount.drive,
        plural(mount.files, "file"),
        Bytes(mount.payload_rate),
        Bytes(mount.drive_rate)
    );
    if let Some(amplification) = mount.amplification {
        let _ = write!(out, ", {amplification:.2} bytes moved for each");
    }
    if mount.mounts_before > 0 {
        let _ = write!(
            out,
            ", {} of it in the day before",
            plural(mount.mounts_before, "mount")
        );
    }
    out.push('\n');
}
