//! `penstock trash restore`: chooses which files come back and where to, and has them restored one by one.

use super::{TrashListReport, all, by, connect, path_of, shown_holder, told, told_of_whole, utc};
use crate::args::{RemovedSince, RestorePlace, TrashRestoreArgs, TrashedName};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_clock::wall_clock;
use penstock_field_tools::trash_api::{RestoredInfo, TrashApi, TrashedInfo};
use penstock_model::text::{one_line, plural};
use penstock_model::{Bytes, NamespacePath, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Serialize)]
struct RestoreReport {
    restored: Vec<RestoredInfo>,
    failed: Vec<RestoreFailure>,
    /// Older versions of the same paths that are still in the trash.
    older_versions: usize,
}

/// What `--dry-run` tells.
#[derive(Debug, Serialize)]
struct RestorePlanReport<'a> {
    would_restore: &'a [RestoreCandidate],
    failed: &'a [RestoreFailure],
    /// Older versions of the same paths that would stay in the trash.
    older_versions: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct RestoreFailure {
    path: String,
    why: String,
}

/// A file that shall come back.
#[derive(Debug, Serialize)]
struct RestoreCandidate {
    #[serde(flatten)]
    file: TrashedInfo,
    /// Who removed it, for people.
    #[serde(skip)]
    by: String,
    to: NamespacePath,
    /// Older versions of the same path.
    #[serde(skip)]
    older_versions: usize,
}

#[derive(Debug, Default)]
struct Plan {
    files: Vec<RestoreCandidate>,
    failed: Vec<RestoreFailure>,
}

pub(super) async fn run(
    args: &TrashRestoreArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let trash = connect(&args.door, environment)?;
    let plan = match &args.what {
        TrashedName::Id(_) if args.recursive => {
            return Err(CommandError::Usage(
                "--recursive needs the path of a directory, not a number".to_owned(),
            ));
        }
        TrashedName::Id(_) if args.since.is_some() || args.removed_by.is_some() => {
            return Err(CommandError::Usage(
                "a number names one file; --since and --removed-by need a path".to_owned(),
            ));
        }
        TrashedName::Id(id) => match (&args.to, args.dry_run) {
            (None, false) => return restore_by_id(&trash, id, None, output).await,
            (Some(RestorePlace::At(to)), false) => {
                return restore_by_id(&trash, id, Some(to), output).await;
            }
            (Some(RestorePlace::Into(_)), _) | (_, true) => {
                plan_one(all(&trash, None, usize::MAX).await?, id, args.to.as_ref())?
            }
        },
        TrashedName::Path(path) => {
            let found = all(&trash, Some(path), usize::MAX).await?;
            plan_path(found, path, args, wall_clock())?
        }
    };
    if args.dry_run {
        let told = RestorePlanReport {
            would_restore: &plan.files,
            failed: &plan.failed,
            older_versions: plan.files.iter().map(|file| file.older_versions).sum(),
        };
        let outcome = verdict(plan.failed.len(), plan.files.len(), "cannot be");
        return output.conclude(&told, || plan_text(&told), outcome);
    }
    restore_planned(&trash, plan, args.recursive, output).await
}

async fn restore_by_id(
    trash: &TrashApi,
    id: &str,
    to: Option<&NamespacePath>,
    output: Output,
) -> Result<(), CommandError> {
    let restored = match trash.restore(id, to).await.map_err(told) {
        Err(why @ CommandError::NotFound(_)) => {
            // Is there a trash?
            trash.list(None, 1, None).await.map_err(told_of_whole)?;
            return Err(why);
        }
        other => other?,
    };
    let done = RestoreReport {
        restored: vec![restored],
        ..RestoreReport::default()
    };
    output.show(&done, || restored_text(&done));
    Ok(())
}

async fn restore_planned(
    trash: &TrashApi,
    plan: Plan,
    is_recursive: bool,
    output: Output,
) -> Result<(), CommandError> {
    let mut done = RestoreReport {
        failed: plan.failed,
        ..RestoreReport::default()
    };
    for planned in plan.files {
        let restored = trash.restore(&planned.file.id, Some(&planned.to)).await;
        match restored.map_err(told) {
            Ok(restored) => {
                done.restored.push(restored);
                done.older_versions += planned.older_versions;
            }
            Err(why) if !is_recursive => return Err(why),
            Err(why) => done.failed.push(RestoreFailure {
                path: path_of(&planned.file),
                why: why.to_string(),
            }),
        }
    }
    let outcome = verdict(done.failed.len(), done.restored.len(), "could not be");
    output.conclude(&done, || restored_text(&done), outcome)
}

/// `verb`: `cannot be` or `could not be`.
fn verdict(failed: usize, restored: usize, verb: &str) -> Result<(), CommandError> {
    let files = plural((failed + restored) as u64, "file");
    match failed {
        0 => Ok(()),
        _ => Err(CommandError::SomeFailed(format!(
            "{failed} of {files} {verb} restored"
        ))),
    }
}

/// The file with this number.
fn plan_one(
    found: TrashListReport,
    id: &str,
    to: Option<&RestorePlace>,
) -> Result<Plan, CommandError> {
    let issuer = found.issuer;
    let file = found.files.into_iter().find(|file| file.id == id);
    let file = file.ok_or_else(|| {
        CommandError::NotFound(format!(
            "there is no file {id} in the trash; `penstock trash list` shows its contents"
        ))
    })?;
    let from = place_of(&file);
    let to = match (to, &from) {
        (Some(RestorePlace::At(to)), _) => to.clone(),
        (None, Some(from)) => from.clone(),
        (Some(RestorePlace::Into(directory)), Some(from)) => {
            into(directory, from).map_err(CommandError::Usage)?
        }
        (None | Some(RestorePlace::Into(_)), None) => {
            return Err(CommandError::Usage(format!(
                "the old path of file {id} is not known; give the full new path with --to"
            )));
        }
    };
    let planned = RestoreCandidate {
        by: by(&file, issuer.as_deref()),
        file,
        to,
        older_versions: 0,
    };
    Ok(Plan {
        files: vec![planned],
        failed: Vec::new(),
    })
}

/// Of the file at this path, or of each below it, the version that was removed last of those that are asked for.
fn plan_path(
    found: TrashListReport,
    path: &NamespacePath,
    args: &TrashRestoreArgs,
    now: Timestamp,
) -> Result<Plan, CommandError> {
    let issuer = found.issuer.as_deref();
    let since = args.since.map(|since| match since {
        RemovedSince::Moment(moment) => moment,
        RemovedSince::Ago(span) => now - span.0,
    });
    let is_asked_for = |file: &TrashedInfo| {
        let is_by = |who: &String| {
            let holder = file.removed_by.as_deref();
            holder.is_some_and(|by| by == who || shown_holder(by, issuer) == *who)
        };
        since.is_none_or(|since| file.removed >= since)
            && args.removed_by.as_ref().is_none_or(is_by)
    };
    let mut plan = Plan::default();
    let mut versions: BTreeMap<NamespacePath, Vec<TrashedInfo>> = BTreeMap::new();
    for file in found.files {
        match place_of(&file) {
            // They come in the order of their removal.
            Some(at) => versions.entry(at).or_default().push(file),
            None if args.recursive && is_asked_for(&file) => plan.failed.push(RestoreFailure {
                path: path_of(&file),
                why: format!(
                    "restore it by its number: penstock trash restore {} --to PATH",
                    file.id
                ),
            }),
            None => {}
        }
    }
    let others = versions.len() - usize::from(versions.contains_key(path));
    for (from, mut versions) in versions {
        let is_meant = args.recursive || from == *path;
        let Some(newest) = versions.iter().rposition(is_asked_for).filter(|_| is_meant) else {
            continue;
        };
        let file = versions.swap_remove(newest);
        match destination(&from, path, args.to.as_ref()) {
            Ok(to) => plan.files.push(RestoreCandidate {
                by: by(&file, issuer),
                file,
                to,
                older_versions: newest,
            }),
            Err(why) => plan.failed.push(RestoreFailure {
                path: from.to_string(),
                why,
            }),
        }
    }
    match (plan.files.is_empty() && plan.failed.is_empty(), others) {
        (false, _) => Ok(plan),
        (true, _) if since.is_some() || args.removed_by.is_some() => {
            Err(CommandError::NotFound(format!(
                "no removed file at {path} or below it matches; `penstock trash list {path}` shows when and by whom files were removed"
            )))
        }
        (true, below) => Err(not_in_trash(path, below)),
    }
}

/// Where a file was; `None`: not known.
fn place_of(file: &TrashedInfo) -> Option<NamespacePath> {
    NamespacePath::parse(file.path.as_deref()?).ok()
}

/// Where what was at `from` shall be, when `named` is restored to `to`.
fn destination(
    from: &NamespacePath,
    named: &NamespacePath,
    to: Option<&RestorePlace>,
) -> Result<NamespacePath, String> {
    let base = match to {
        None => return Ok(from.clone()),
        Some(RestorePlace::At(base)) => base.clone(),
        Some(RestorePlace::Into(directory)) => into(directory, named)?,
    };
    let rest = from.names().iter().skip(named.names().len());
    rest.into_iter()
        .try_fold(base.clone(), |path, name| path.child(name))
        .map_err(|why| format!("below {base} {why}"))
}

/// Under its own name in a directory.
fn into(directory: &NamespacePath, named: &NamespacePath) -> Result<NamespacePath, String> {
    match named.name() {
        Some(name) => directory
            .child(name)
            .map_err(|why| format!("below {directory} {why}")),
        None => Ok(directory.clone()),
    }
}

fn not_in_trash(path: &NamespacePath, below: usize) -> CommandError {
    CommandError::NotFound(match below {
        0 => format!(
            "{path} is not in the trash: it was not removed, it was on tape only, it has expired, or a new file needed the space; \
             `penstock trash list` shows the contents"
        ),
        below => format!(
            "{path} was a directory; the trash has {} below it: use --recursive to restore them",
            plural(below as u64, "file")
        ),
    })
}

fn restored_text(done: &RestoreReport) -> String {
    let mut text = String::new();
    for restored in &done.restored {
        let made = match restored.parent_made {
            true => " (its directory was created again)",
            false => "",
        };
        let size = restored
            .size_bytes
            .map(|size| format!(" ({})", Bytes(size)));
        let at = restored.restored.map(|at| format!(" at {}", utc(at)));
        text += &format!(
            "restored {}{}{}{made}\n",
            one_line(&restored.path),
            size.unwrap_or_default(),
            at.unwrap_or_default()
        );
    }
    text + &failures(&done.failed) + &older_versions(done.older_versions)
}

fn plan_text(told: &RestorePlanReport<'_>) -> String {
    let mut text = String::new();
    for planned in told.would_restore {
        let to = planned.to.to_string();
        let place = match planned.file.path.as_deref() == Some(to.as_str()) {
            true => String::new(),
            false => format!(" as {}", one_line(&to)),
        };
        text += &format!(
            "to restore: {}{place} ({}, file {}, removed {} by {})\n",
            path_of(&planned.file),
            Bytes(planned.file.size_bytes),
            planned.file.id,
            utc(planned.file.removed),
            planned.by
        );
    }
    text + &failures(told.failed) + &older_versions(told.older_versions)
}

fn failures(failed: &[RestoreFailure]) -> String {
    let line = |failure: &RestoreFailure| {
        format!("{}: {}\n", one_line(&failure.path), one_line(&failure.why))
    };
    failed.iter().map(line).collect()
}

fn older_versions(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "1 older version is in the trash: `penstock trash list` shows its number\n".to_owned(),
        _ => format!(
            "{count} older versions are in the trash: `penstock trash list` shows their numbers\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, parsed, path};
    use super::*;
    use crate::args::TrashCommand;

    /// What is planned upon what is typed behind `restore`, a line for each file.
    fn planned(words: &[&str], files: Vec<TrashedInfo>) -> Result<String, String> {
        let words = ["restore", "--dir", "d"].iter().chain(words).copied();
        let TrashCommand::Restore(args) = parsed(words) else {
            panic!("another command");
        };
        let TrashedName::Path(at) = &args.what else {
            panic!("a number");
        };
        let found = TrashListReport {
            kept_seconds: 0,
            issuer: Some("https://issuer".to_owned()),
            files,
            is_more: false,
        };
        let plan = plan_path(found, at, &args, Timestamp(10_000)).map_err(|why| why.to_string())?;
        let line =
            |it: &RestoreCandidate| format!("{} {} +{}", it.file.id, it.to, it.older_versions);
        let failed = |it: &RestoreFailure| format!("{}: {}", it.path, it.why);
        let files = plan.files.iter().map(line);
        let all: Vec<String> = files.chain(plan.failed.iter().map(failed)).collect();
        Ok(all.join(", "))
    }

    fn check(line: &str, files: &[(&str, &str, i64)], expected: &str) {
        let files = files.iter().map(|(id, at, removed)| file(id, at, *removed));
        let words: Vec<&str> = line.split(' ').collect();
        let plan = planned(&words, files.collect());
        assert_eq!(plan.unwrap_or_else(|why| why), expected, "{line}");
    }

    const VERSIONS: &[(&str, &str, i64)] = &[
        ("1", "/d/f", 1_000),
        ("2", "/d/f/below", 2_000),
        ("3", "/d/f", 3_000),
    ];

    #[test]
    fn of_several_versions_the_one_that_was_removed_last_comes_back() {
        check("/d/f", VERSIONS, "3 /d/f +1");
        check("-r /d", VERSIONS, "3 /d/f +1, 2 /d/f/below +0");
    }

    #[test]
    fn what_comes_back_is_bounded_by_time_and_by_who_removed_it() {
        check("-r /d --since 1970-01-01T00:00:03Z", VERSIONS, "3 /d/f +1");
        check("-r /d --since 8s", VERSIONS, "3 /d/f +1, 2 /d/f/below +0");
        let who = |removed_by: &str, who: &str| {
            let mut files = vec![file("1", "/d/f", 1_000), file("2", "/d/f", 2_000)];
            files[0].removed_by = Some(removed_by.to_owned());
            planned(&["/d/f", "--removed-by", who], files)
        };
        let first = Ok("1 /d/f +0");
        assert_eq!(who("https://issuer bob", "bob").as_deref(), first);
        for shown in ["https://other bob", "bob (https://other)"] {
            assert_eq!(who("https://other bob", shown).as_deref(), first, "{shown}");
        }
        let refused = who("https://other bob", "bob").expect_err("not that one");
        assert!(refused.contains("penstock trash list"), "{refused}");
    }

    #[test]
    fn what_is_restored_elsewhere_keeps_its_names_there() {
        check(
            "-r /d --to /else/where",
            VERSIONS,
            "3 /else/where/f +1, 2 /else/where/f/below +0",
        );
        check(
            "-r /d --to /else/",
            VERSIONS,
            "3 /else/d/f +1, 2 /else/d/f/below +0",
        );
        check("/d/f --to /g", VERSIONS, "3 /g +1");
        check("/d/f --to /g/", VERSIONS, "3 /g/f +1");
    }

    #[test]
    fn a_file_whose_name_would_be_too_long_is_named_as_failed() {
        let deep = vec!["n".repeat(250); 15].join("/");
        let files = vec![file("1", "/d/f", 1), file("2", &format!("/d/{deep}"), 2)];
        let to = format!("/{}/{}", "t".repeat(200), "t".repeat(200));
        let plan = planned(&["-r", "/d", "--to", &to], files).expect("planned");
        let expected =
            format!("1 {to}/f +0, /d/{deep}: below {to} the path or one of its names is too long");
        assert!(plan.starts_with(&expected), "{plan}");
    }

    #[test]
    fn a_file_whose_place_is_not_known_is_named_as_failed() {
        let mut lost = file("1f", "/", 1);
        lost.path = None;
        let plan = planned(&["-r", "/"], vec![lost]).expect("planned");
        assert!(plan.contains("penstock trash restore 1f --to"), "{plan}");
    }

    #[test]
    fn what_is_not_there_is_told_with_what_to_do() {
        let refused = |files| planned(&["/d"], files).expect_err("not there");
        assert!(refused(Vec::new()).contains("penstock trash list"));
        let below = refused(vec![file("1", "/d/f", 1)]);
        assert!(
            below.contains("1 file below") && below.contains("--recursive"),
            "{below}"
        );
    }

    #[test]
    fn people_read_what_came_back_how_large_and_when() {
        let restored = |size, at| RestoredInfo {
            path: "/d/f".to_owned(),
            parent_made: true,
            size_bytes: size,
            restored: at,
        };
        let done = RestoreReport {
            restored: vec![
                restored(Some(1500), Some(Timestamp(1000))),
                restored(None, None),
            ],
            ..RestoreReport::default()
        };
        assert_eq!(
            restored_text(&done),
            "restored /d/f (1.5 kB) at 1970-01-01T00:00:01Z (its directory was created again)\n\
             restored /d/f (its directory was created again)\n"
        );
    }

    #[test]
    fn people_read_what_would_come_back() {
        let planned = RestoreCandidate {
            file: file("1f", "/d/f", 1000),
            by: "alice".to_owned(),
            to: path("/e/f"),
            older_versions: 1,
        };
        let told = RestorePlanReport {
            would_restore: &[planned],
            failed: &[],
            older_versions: 1,
        };
        assert_eq!(
            plan_text(&told),
            "to restore: /d/f as /e/f (1.5 kB, file 1f, removed 1970-01-01T00:00:01Z by alice)\n\
             1 older version is in the trash: `penstock trash list` shows its number\n"
        );
    }
}
