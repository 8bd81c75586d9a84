//! `penstock fsck`: compares the namespace of a storage element with its pools, and mends what can be mended.

use crate::args::FsckArgs;
use crate::commands::progress::BlockingProgress;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::directory::SiteDirectory;
use penstock_model::text::plural;
use penstock_model::{Bytes, PoolName};
use penstock_storage_element::fsck::{
    FieldDifference, FsckFailure, FsckReport, FsckRequest, LabelDifference, PoolState, Repair,
    RightSide, check,
};
use std::io::{BufRead, IsTerminal};

/// Of each kind of finding, how much is printed.
const PRINTED_MAX: usize = 20;

/// `penstock fsck`.
pub fn run(args: &FsckArgs, output: Output) -> Result<(), CommandError> {
    let site = SiteDirectory::to_change(&args.dir)?;
    let config = site.config()?;
    let storage = site.storage(&config)?;
    let _lock = site.lock()?;
    let mut order = FsckRequest {
        namespace: site.resolve(&storage.namespace),
        pools: site.pools(storage),
        repair: Repair::default(),
        only_pool: args.pool.as_deref().map(PoolName::new),
    };
    let looked = compare(&order, output)?;
    let wanted = Repair {
        mends: args.repair || args.remove_missing,
        removes_missing: args.remove_missing,
    };
    let mut changes = changes_of(&looked, wanted);
    changes.extend(removals(&looked, wanted, args.pool.as_deref()));
    if wanted == Repair::default() || changes.is_empty() {
        let text = || text(&looked, Looked::Only) + &remedy(&looked);
        return output.conclude(&looked, text, verdict(&looked));
    }
    output.say(text(&looked, Looked::Only) + "repairs to make:\n  " + &changes.join("\n  "));
    if !args.yes && !is_confirmed("Make these repairs?", output)? {
        return Err(CommandError::Usage(
            "nothing was changed; use --yes, or answer yes".to_owned(),
        ));
    }
    order.repair = wanted;
    let mended = compare(&order, output)?;
    output.conclude(
        &mended,
        || text(&mended, Looked::AndMended),
        verdict(&mended),
    )
}

fn compare(order: &FsckRequest, output: Output) -> Result<FsckReport, CommandError> {
    let counted = BlockingProgress::new(output, "data directories compared");
    let report = check(order, |progress| {
        counted.show(progress.done, progress.total)
    });
    counted.end();
    report.map_err(|why| match why {
        FsckFailure::Absent(_) => CommandError::NotFound(why.to_string()),
        why => CommandError::Local(why.to_string()),
    })
}

/// What a repair would do, a line for each kind.
fn changes_of(report: &FsckReport, repair: Repair) -> Vec<String> {
    let mut changes = Vec::new();
    let enterable = report
        .unknown
        .named
        .iter()
        .filter(|data| data.why.is_none());
    let enterable = enterable.count() as u64;
    if repair.mends && enterable > 0 {
        changes.push(format!(
            "add entries for {} without one, at the paths in their labels or in /lost+found",
            plural(enterable, "file")
        ));
    }
    let refused = report.unknown.named.iter();
    let refused =
        refused.filter(|data| data.why.is_some() && !data.in_quarantine && !data.is_trash);
    let refused = refused.count() as u64;
    if repair.mends && refused > 0 {
        changes.push(format!(
            "move {} without an entry to the quarantine of the pool",
            plural(refused, "file")
        ));
    }
    let trash = report.unknown.named.iter().filter(|data| data.is_trash);
    let trash = trash.count() as u64;
    if repair.mends && trash > 0 {
        let deleted = plural(trash, "deleted file");
        changes.push(format!("put {deleted} back into the trash"));
    }
    if repair.mends && report.unknown_on_tape.count > 0 {
        let files = report.unknown_on_tape.count;
        changes.push(format!(
            "add entries for {} on tape, with their copies there",
            plural(files, "file")
        ));
    }
    if repair.mends && report.restored.count > 0 {
        let restored = report.restored.count;
        changes.push(format!(
            "make {} visible again at the paths they were restored to",
            plural(restored, "restored file")
        ));
    }
    if repair.mends && !report.counters.is_empty() {
        let pools = report.counters.len() as u64;
        changes.push(format!("correct the counters of {}", plural(pools, "pool")));
    }
    if repair.mends && report.labels_outdated > 0 {
        let labels = report.labels_outdated;
        changes.push(format!("rewrite {}", plural(labels, "outdated label")));
    }
    let confirmed = |right: RightSide| {
        let named = report.labels_different.named.iter();
        named.filter(|one| one.right == Some(right)).count()
    };
    let (by_namespace, by_label) = (confirmed(RightSide::Namespace), confirmed(RightSide::Label));
    if repair.mends && by_namespace > 0 {
        changes.push(format!(
            "rewrite {} from the namespace, which other evidence confirms",
            plural(by_namespace as u64, "different label")
        ));
    }
    if repair.mends && by_label > 0 {
        changes.push(format!(
            "correct the checksums of {} to those of the data, which the labels confirm",
            plural(by_label as u64, "file")
        ));
    }
    if repair.mends && report.outdated.count > 0 {
        let outdated = report.outdated.count;
        changes.push(format!(
            "repeat removals and moves that happened after this copy of the namespace was made (removed files go to the \
             trash): {outdated}"
        ));
    }
    changes
}

/// Which entries without data are removed: those of the named pool, or of all pools that are in reach.
fn removals(report: &FsckReport, repair: Repair, pool: Option<&str>) -> Option<String> {
    let named = report.missing.named.iter();
    let meant = named.filter(|one| match pool {
        Some(pool) => one.pool == pool,
        None => one.pool_state == PoolState::InReach,
    });
    // Not all are named.
    let least = match report.missing.count > report.missing.named.len() as u64 {
        true => "at least ",
        false => "",
    };
    let count = meant.count();
    let of_pool = pool.map_or_else(String::new, |pool| format!(" of pool {pool}"));
    let is_any = repair.removes_missing && (count > 0 || !least.is_empty());
    is_any.then(|| format!("remove entries{of_pool} without data: {least}{count}"))
}

/// Asks a person, when there is one.
pub fn is_confirmed(question: &str, output: Output) -> Result<bool, CommandError> {
    if output.json || !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    output.say(format!("{question} (yes/no)"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|why| CommandError::local("standard input", why))?;
    Ok(means_yes(&answer))
}

fn means_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

fn verdict(report: &FsckReport) -> Result<(), CommandError> {
    match report.open() {
        0 => Ok(()),
        _ => Err(CommandError::Differs),
    }
}

fn remedy(report: &FsckReport) -> String {
    let mut text = String::new();
    if report.unknown.count > 0 || !report.counters.is_empty() {
        text += "`penstock fsck --repair` adds the missing entries and corrects the counters\n";
    }
    if report.unknown_on_tape.count > 0 {
        text += "`penstock fsck --repair` adds the missing entries of files on tape; without it their copies cannot be found\n";
    }
    if report.restored.count > 0 {
        text += "`penstock fsck --repair` makes restored files visible again; otherwise they expire with the trash\n";
    }
    let different = report.labels_different.named.iter();
    let (confirmed, open): (Vec<&LabelDifference>, Vec<&LabelDifference>) =
        different.partition(|one| one.right.is_some());
    if !confirmed.is_empty() {
        text += "`penstock fsck --repair` corrects the side that other evidence contradicts\n";
    }
    if !open.is_empty() {
        text += "differences without other evidence are left unchanged: `penstock rebuild --replace` uses the labels; \
                 to keep the namespace, rename the file to its correct path, then --repair rewrites its label\n";
    }
    if report.outdated.count > 0 {
        text += "`penstock fsck --repair` repeats the removals and moves that happened after this copy was made\n";
    }
    for pool in report.pools_unknown.keys().chain(report.pools_away.keys()) {
        text += &format!(
            "--remove-missing keeps the entries of pool {pool}, because it may come back; if it is permanently lost, use \
             --remove-missing --pool {pool}\n"
        );
    }
    if report.missing.count > 0 {
        text += "to replace missing data, copy the file here again; --remove-missing removes entries without data\n";
    }
    text
}

/// What was done when a comparison is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Only,
    AndMended,
}

impl Looked {
    /// What became of findings, behind their number.
    fn outcome(self, count: u64, mended: u64) -> String {
        match (self, count.saturating_sub(mended)) {
            (Looked::Only, _) => String::new(),
            (Looked::AndMended, 0) => ", repaired".to_owned(),
            (Looked::AndMended, left) if mended == 0 && left == count => {
                ", not repaired".to_owned()
            }
            (Looked::AndMended, left) => format!(", {mended} repaired, {left} not repaired"),
        }
    }
}

fn text(report: &FsckReport, looked: Looked) -> String {
    let (files, bytes) = (report.files, Bytes(report.bytes));
    let files = plural(files, "file");
    let mut text = format!("{files} ({bytes}) compared; differences:\n");
    let before = text.len();
    if report.missing.count > 0 {
        let count = report.missing.count;
        let outcome = looked.outcome(count, report.missing.mended);
        text += &format!("  entries without data: {count}{outcome}\n");
        for one in report.missing.named.iter().take(PRINTED_MAX) {
            text += &format!(
                "    {} ({}, {} of pool {})\n",
                one.path,
                Bytes(one.size),
                one.id,
                one.pool
            );
        }
        text += &more(report.missing.count);
    }
    if report.wrong_size.count > 0 {
        let outcome = looked.outcome(report.wrong_size.count, report.wrong_size.mended);
        text += &format!(
            "  files with a different size: {}{outcome}\n",
            report.wrong_size.count
        );
        for one in report.wrong_size.named.iter().take(PRINTED_MAX) {
            let (path, found, expected) = (&one.path, one.found, one.expected);
            text += &format!(
                "    {path}: {found} instead of {expected} bytes ({} of pool {})\n",
                one.id, one.pool
            );
        }
        text += &more(report.wrong_size.count);
    }
    text += &label_differences(report, looked);
    text += &unknown_data(report, looked);
    text += &unknown_on_tape(report, looked);
    if report.restored.count > 0 {
        let count = report.restored.count;
        let outcome = looked.outcome(count, report.restored.mended);
        text += &format!(
            "  files in the trash that were restored after this copy was made: {count}{outcome}\n"
        );
        for one in report.restored.named.iter().take(PRINTED_MAX) {
            let entered = one.entered.as_ref();
            let entered = entered.map(|path| format!("visible as {path}"));
            let parts = [Some(one.path.clone()), entered, one.why.clone()];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            text += &format!("    {}\n", parts.join(": "));
        }
        text += &more(count);
    }
    text += &outdated_entries(report, looked);
    for one in &report.counters {
        let (noted, counted) = (Bytes(one.bytes_noted), Bytes(one.bytes));
        let outcome = looked.outcome(1, one.is_mended.into());
        text += &format!(
            "  counters of pool {}: {} files ({noted}) recorded, {} ({counted}) found{outcome}\n",
            one.pool, one.files_noted, one.files
        );
    }
    for (pool, files) in &report.pools_unknown {
        text += &format!("  files in pool {pool}, which is not configured: {files}\n");
    }
    for (pool, files) in &report.pools_away {
        text += &format!("  files in pool {pool}, which is offline: {files}\n");
    }
    if report.labels_written > 0 {
        text += &format!("  labels rewritten: {}\n", report.labels_written);
    } else if report.labels_outdated > 0 {
        let labels = report.labels_outdated;
        text += &format!("  outdated labels, covered by the directory logs: {labels}\n");
    }
    if text.len() == before {
        text += "  none: namespace and pools agree\n";
    }
    text
}

fn unknown_data(report: &FsckReport, looked: Looked) -> String {
    if report.unknown.count == 0 {
        return String::new();
    }
    let outcome = looked.outcome(report.unknown.count, report.unknown.mended);
    let mut text = format!(
        "  files without an entry: {}{outcome}\n",
        report.unknown.count
    );
    for one in report.unknown.named.iter().take(PRINTED_MAX) {
        let place = one.entered.as_ref().map(|path| format!("added as {path}"));
        let place = place.or_else(|| one.path.as_ref().map(|path| format!("belongs to {path}")));
        let parts = [Some(one.file.clone()), place, one.why.clone()];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        text += &format!("    {}\n", parts.join(": "));
    }
    text + &more(report.unknown.count)
}

fn unknown_on_tape(report: &FsckReport, looked: Looked) -> String {
    let found = &report.unknown_on_tape;
    if found.count == 0 {
        return String::new();
    }
    let (count, outcome) = (found.count, looked.outcome(found.count, found.mended));
    let mut text = format!(
        "  files on tape that this copy of the namespace does not list: {count}{outcome}\n"
    );
    for one in found.named.iter().take(PRINTED_MAX) {
        let name = one.path.clone().unwrap_or_else(|| one.id.clone());
        let entered = one.entered.as_ref();
        let entered = entered.map(|path| format!("added as {path}"));
        let parts = [Some(name), entered, one.why.clone()];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        text += &format!("    {}\n", parts.join(": "));
    }
    text + &more(count)
}

/// That of `count` findings more were found than are printed.
fn more(count: u64) -> String {
    match count.saturating_sub(PRINTED_MAX as u64) {
        0 => String::new(),
        more => format!("    and {more} more (--json lists them)\n"),
    }
}

fn outdated_entries(report: &FsckReport, looked: Looked) -> String {
    let found = &report.outdated;
    if found.count == 0 {
        return String::new();
    }
    let (count, outcome) = (found.count, looked.outcome(found.count, found.mended));
    let mut text = format!("  outdated entries in this copy of the namespace: {count}{outcome}\n");
    for one in found.named.iter().take(PRINTED_MAX) {
        let to = one.to.as_ref().map(|to| format!("moved to {to}"));
        let parts = [Some(one.path.clone()), to, Some(one.why.clone())];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        text += &format!("    {}\n", parts.join(": "));
    }
    text + &more(count)
}

fn label_differences(report: &FsckReport, looked: Looked) -> String {
    let found = &report.labels_different;
    if found.count == 0 {
        return String::new();
    }
    let outcome = looked.outcome(found.count, found.mended);
    let mut text = format!(
        "  files whose label differs from the namespace: {}{outcome}\n",
        found.count
    );
    for one in found.named.iter().take(PRINTED_MAX) {
        text += &format!("    {}\n", label_difference(one));
    }
    text + &more(found.count)
}

fn label_difference(one: &LabelDifference) -> String {
    let says = |field: &FieldDifference| {
        let (namespace, label) = (field.namespace.as_deref(), field.label.as_deref());
        let (namespace, label) = (namespace.unwrap_or("none"), label.unwrap_or("none"));
        format!("{} {namespace}, label {label}", field.field)
    };
    let fields: Vec<String> = one.fields.iter().map(says).collect();
    let fields = match fields.is_empty() {
        true => String::new(),
        false => format!("namespace {}; ", fields.join("; ")),
    };
    let (path, why, id, pool) = (&one.path, &one.why, &one.id, &one.pool);
    format!("{path}: {fields}{why} ({id} of pool {pool})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_storage_element::fsck::{MissingData, WrongCounter};

    #[test]
    fn only_yes_means_yes() {
        assert!(["y", "yes\n", " Yes "].into_iter().all(means_yes));
        assert!(!["", "\n", "no", "yess", "ye"].into_iter().any(means_yes));
    }

    #[test]
    fn only_what_was_mended_is_called_so() {
        let missing = MissingData {
            path: "/d/f".to_owned(),
            id: "7".to_owned(),
            pool: "disk1".to_owned(),
            pool_state: PoolState::InReach,
            size: 1_500,
        };
        let counter = |is_mended| WrongCounter {
            pool: "disk1".to_owned(),
            files_noted: 3,
            files: 2,
            bytes_noted: 3_000,
            bytes: 2_000,
            is_mended,
        };
        let mut report = FsckReport {
            files: 2,
            bytes: 2_000,
            counters: vec![counter(true)],
            ..FsckReport::default()
        };
        report.missing.count = 1;
        report.missing.named.push(missing);
        report.unknown.count = 3;
        report.unknown.mended = 2;
        assert_eq!(
            text(&report, Looked::AndMended),
            "2 files (2.0 kB) compared; differences:\n  \
             entries without data: 1, not repaired\n    /d/f (1.5 kB, 7 of pool disk1)\n  \
             files without an entry: 3, 2 repaired, 1 not repaired\n  \
             counters of pool disk1: 3 files (3.0 kB) recorded, 2 (2.0 kB) found, repaired\n"
        );
        assert!(!text(&report, Looked::Only).contains("repaired"));
    }
}
