//! `penstock sync`: a copy, and what is not at the source goes from the destination. Nothing is removed before a person or an
//! option has agreed, nothing on the word of a source that could not be read whole, and nothing that a filter leaves out.

use crate::args::SyncArgs;
use crate::commands::copy::{CopyEnd, Destination, Order, Plan, TreeNames, interruptible};
use crate::commands::fsck::is_confirmed;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::bulk_copy::{ExistingCopy, each_of};
use penstock_field_tools::local_tree;
use penstock_field_tools::path_filter::PathFilter;
use penstock_field_tools::remote::{Remote, below};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree;
use penstock_model::text::{one_line, plural};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use url::Url;

/// Removals at once.
const REMOVALS: usize = 8;
/// Names that are shown before somebody agrees.
const NAMES_SHOWN_MAX: usize = 10;

/// What is at the destination and not at the source, as names from the top down.
#[derive(Debug, Default)]
struct Extras {
    files: Vec<Vec<String>>,
    /// The deepest first.
    directories: Vec<Vec<String>>,
}

/// `penstock sync`.
pub async fn run(
    args: SyncArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let (source, destination) = (
        CopyEnd::parse(&args.source)?,
        CopyEnd::parse(&args.destination)?,
    );
    let order = Order::new(&args.bulk, ExistingCopy::Update, environment, output);
    let syncing = async {
        let plan = Plan::find(&source, &destination, &order).await?;
        let Some(tree) = &plan.found().tree else {
            let what = &args.source;
            return Err(CommandError::Usage(format!(
                "{what} is a file, and sync needs a directory; copy files with `penstock copy`"
            )));
        };
        let place = plan.destination();
        let extras = find_extras(tree, &place, &order).await?;
        if args.bulk.dry_run {
            let mut report = plan.look(&order).await?;
            report.add_removals(&extras.names());
            return report.conclude(output);
        }
        agree(&extras, &args, output)?;
        let mut report = plan.carry_out(&order).await?;
        if extras.is_empty() {
            report.removed = Some(0);
        } else if report.failed_files > 0 {
            report.removed = Some(0);
            output.say("nothing was removed, because some files could not be copied");
        } else {
            let (removed, failed) = remove(extras, &place).await;
            report.removed = Some(removed);
            for (name, why) in failed {
                report.add_failed_removal(name, &why);
            }
        }
        report.conclude(output)
    };
    interruptible(syncing, &order).await
}

impl Extras {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.directories.is_empty()
    }

    fn names(&self) -> Vec<String> {
        let files = self.files.iter().map(|names| names.join("/"));
        let directories = self.directories.iter();
        let directories = directories.map(|names| format!("{}/", names.join("/")));
        files.chain(directories).collect()
    }
}

/// Refuses too much, and asks before anything is changed.
fn agree(extras: &Extras, args: &SyncArgs, output: Output) -> Result<(), CommandError> {
    if extras.is_empty() {
        return Ok(());
    }
    let files = extras.files.len();
    let what = format!(
        "{} and {} at {} do not exist at the source",
        plural(files as u64, "file"),
        match extras.directories.len() {
            1 => "1 directory".to_owned(),
            count => format!("{count} directories"),
        },
        args.destination
    );
    if files > args.delete_max {
        return Err(CommandError::Usage(format!(
            "{what}, but --delete-max allows removing {}; nothing was changed (--dry-run lists them)",
            args.delete_max
        )));
    }
    if args.yes {
        return Ok(());
    }
    output.say(format!("{what} and will be removed:"));
    let names = extras.names();
    for name in names.iter().take(NAMES_SHOWN_MAX) {
        output.say(format!("  {}", one_line(name)));
    }
    if names.len() > NAMES_SHOWN_MAX {
        output.say(format!("  and {} more", names.len() - NAMES_SHOWN_MAX));
    }
    match is_confirmed("Copy, and then remove these?", output)? {
        true => Ok(()),
        false => Err(CommandError::Usage(format!(
            "nothing was changed: {what}; answer yes or give --yes to remove them"
        ))),
    }
}

async fn find_extras(
    source: &TreeNames,
    place: &Destination,
    order: &Order<'_>,
) -> Result<Extras, CommandError> {
    let there = match place {
        Destination::Local(path) => local_names(path, &order.filter)?,
        Destination::Remote(remote, url) => remote_names(remote, url, order).await?,
    };
    Ok(extras_of(source, there))
}

fn extras_of(source: &TreeNames, there: TreeNames) -> Extras {
    let missing = |at: &BTreeSet<Vec<String>>, names: &Vec<String>| !at.contains(names);
    let files = there.files.into_iter();
    let mut directories: Vec<Vec<String>> = there
        .directories
        .into_iter()
        .filter(|names| missing(&source.directories, names))
        .collect();
    directories.sort_by_key(|names| Reverse(names.len()));
    Extras {
        files: files
            .filter(|names| missing(&source.files, names))
            .collect(),
        directories,
    }
}

fn local_names(path: &Path, filter: &PathFilter) -> Result<TreeNames, CommandError> {
    if !path.exists() {
        return Ok(TreeNames::default());
    }
    let tree =
        local_tree::walk(path, filter).map_err(|why| CommandError::Local(why.to_string()))?;
    // What has no name that a storage element can have is none of its copies; parts of copies are none either.
    let is_part = |names: &[String]| {
        let name = names.last().map(String::as_str).unwrap_or_default();
        name.starts_with(".penstock-") && (name.ends_with(".part") || name.ends_with(".json"))
    };
    let special = tree.left_out.into_iter().map(|left_out| left_out.names);
    let files = tree.files.into_iter().map(|file| file.names).chain(special);
    Ok(TreeNames {
        directories: tree.directories.into_iter().collect(),
        files: files.filter(|names| !is_part(names)).collect(),
    })
}

async fn remote_names(
    remote: &Remote,
    url: &Url,
    order: &Order<'_>,
) -> Result<TreeNames, CommandError> {
    let parallel = usize::from(order.bulk.parallel);
    let tree = match remote_tree::walk(remote, url, parallel, &order.filter).await {
        Ok(tree) => tree,
        Err(RemoteError::NotFound { .. }) => return Ok(TreeNames::default()),
        Err(why) => return Err(why.into()),
    };
    if let Some(why) = tree.problems.into_iter().next() {
        return Err(why.into());
    }
    if tree.files.iter().any(|file| file.names.is_empty()) {
        return Err(CommandError::Usage(format!("{url} is a file")));
    }
    let directories = tree.directories.into_iter();
    Ok(TreeNames {
        directories: directories.map(|found| found.names).collect(),
        files: tree.files.into_iter().map(|file| file.names).collect(),
    })
}

type Failed = Vec<(String, CommandError)>;

/// Removes files, then directories that are empty by then. Gives back how many files went, and what did not.
async fn remove(extras: Extras, place: &Destination) -> (usize, Failed) {
    match place {
        Destination::Local(top) => remove_here(&extras, top),
        Destination::Remote(remote, top) => remove_there(extras, remote, top).await,
    }
}

fn remove_here(extras: &Extras, top: &Path) -> (usize, Failed) {
    let mut failed = Vec::new();
    let mut removed = 0;
    let place = |names: &[String]| top.join(names.iter().collect::<PathBuf>());
    for names in &extras.files {
        let path = place(names);
        match std::fs::remove_file(&path) {
            Ok(()) => removed += 1,
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => failed.push((names.join("/"), CommandError::local(path.display(), why))),
        }
    }
    for names in &extras.directories {
        let path = place(names);
        match std::fs::remove_dir(&path) {
            Ok(()) => {}
            // What a filter leaves out is in it.
            Err(why) if why.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => failed.push((names.join("/"), CommandError::local(path.display(), why))),
        }
    }
    (removed, failed)
}

async fn remove_there(extras: Extras, remote: &Remote, top: &Url) -> (usize, Failed) {
    let mut failed = Vec::new();
    let mut removed = 0;
    let (deleting, at) = (remote.clone(), top.clone());
    let outcomes = each_of(extras.files, REMOVALS, move |names| {
        let (remote, top) = (deleting.clone(), at.clone());
        async move {
            let gone = match below(&top, &names) {
                Ok(url) => remote.delete(&url).await,
                Err(why) => Err(why),
            };
            (names, gone)
        }
    })
    .await;
    for (names, outcome) in outcomes {
        match outcome {
            Ok(()) => removed += 1,
            Err(RemoteError::NotFound { .. }) => {}
            Err(why) => failed.push((names.join("/"), why.into())),
        }
    }
    for names in extras.directories {
        match remove_empty(remote, top, &names).await {
            Ok(()) | Err(RemoteError::NotFound { .. }) => {}
            Err(why) => failed.push((names.join("/"), why.into())),
        }
    }
    (removed, failed)
}

/// DELETE takes all that is in a directory with it, so one that holds anything stays.
async fn remove_empty(remote: &Remote, top: &Url, names: &[String]) -> Result<(), RemoteError> {
    let url = below(top, names)?;
    let listing = remote.list(&url).await?;
    match listing.entries.is_empty() && listing.unnameable.is_empty() {
        true => remote.delete(&url).await,
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directories: &[&str], files: &[&str]) -> TreeNames {
        let split = |texts: &[&str]| {
            let paths = texts.iter();
            paths
                .map(|path| path.split('/').map(str::to_owned).collect())
                .collect()
        };
        TreeNames {
            directories: split(directories),
            files: split(files),
        }
    }

    #[test]
    fn what_is_not_at_the_source_goes_and_the_deepest_directories_first() {
        let source = names(&["a"], &["a/x", "y"]);
        let there = names(&["a", "a/b", "a/b/c", "d"], &["a/x", "a/b/c/z", "y", "w"]);
        let extras = extras_of(&source, there);
        assert_eq!(extras.names(), ["a/b/c/z", "w", "a/b/c/", "a/b/", "d/"]);
        assert!(extras_of(&source, names(&["a"], &["y"])).is_empty());
    }

    #[test]
    fn what_is_here_is_removed_and_what_is_kept_keeps_its_directory() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        std::fs::create_dir_all(at("old/deep")).expect("made");
        std::fs::create_dir_all(at("mixed")).expect("made");
        for name in ["old/deep/f", "mixed/gone", "mixed/kept"] {
            std::fs::write(at(name), b"x").expect("written");
        }
        let extras = extras_of(
            &TreeNames::default(),
            names(&["old", "old/deep", "mixed"], &["old/deep/f", "mixed/gone"]),
        );
        let (removed, failed) = remove_here(&extras, top.path());
        assert_eq!((removed, failed.len()), (2, 0));
        assert!(!at("old").exists() && at("mixed/kept").exists());
    }
}
