//! `penstock sync`: a copy, and what is not at the source goes from the destination. Nothing is removed before a person or an
//! option has agreed, nothing on the word of a source that could not be read whole, and nothing that a filter leaves out.

use crate::args::SyncArgs;
use crate::commands::copy::{CopyEnd, Destination, Order, Plan, TreeNames, interruptible};
use crate::commands::fsck::is_confirmed;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::bulk_copy::{ExistingCopy, each_of};
use penstock_field_tools::local_place::{FileVersion, LocalPlace};
use penstock_field_tools::local_tree::{self, SpecialKind};
use penstock_field_tools::path_filter::PathFilter;
use penstock_field_tools::remote::{Remote, below};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree;
use penstock_model::text::{one_line, plural};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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
    /// What the files were when they were listed, where they are here. Those that are not in it were gone already.
    local_versions: BTreeMap<Vec<String>, FileVersion>,
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

    /// Notes what is to be removed from a local directory. What is another spelling of a name at the source, to a file system that
    /// folds case or normal forms, is taken out: it is the copy itself.
    fn look_here(&mut self, top: &Path, source: &TreeNames) -> Result<(), CommandError> {
        let look = |names: &[String]| {
            let place = LocalPlace::below(top, names).expect("a file below the top has a name");
            let found = place.look();
            found.map_err(|why| CommandError::local(place.path().display(), why))
        };
        let mut found = BTreeMap::new();
        for names in &self.files {
            if let Some(metadata) = look(names)? {
                found.insert(names.clone(), metadata);
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        let copies = source.files.iter().filter_map(|names| look(names).ok()?);
        let copies: BTreeSet<(u64, u64)> = copies.map(|found| identity(&found)).collect();
        // A file with one name cannot be found by two, unless these are the same to the file system.
        found.retain(|_, metadata| metadata.nlink() > 1 || !copies.contains(&identity(metadata)));
        self.files.retain(|names| found.contains_key(names));
        let versions = found.iter();
        self.local_versions = versions
            .map(|(names, metadata)| (names.clone(), FileVersion::of(metadata)))
            .collect();
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let files = self.files.iter().map(|names| names.join("/"));
        let directories = self.directories.iter();
        let directories = directories.map(|names| format!("{}/", names.join("/")));
        files.chain(directories).collect()
    }
}

/// What tells a file from all others.
fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
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
    match place {
        Destination::Local(path) => {
            let there = local_names(path, &order.filter)?;
            let mut extras = extras_of(source, there);
            extras.look_here(path, source)?;
            Ok(extras)
        }
        Destination::Remote(remote, url) => {
            let there = remote_names(remote, url, order).await?;
            Ok(extras_of(source, there))
        }
    }
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
        local_versions: BTreeMap::new(),
    }
}

fn local_names(path: &Path, filter: &PathFilter) -> Result<TreeNames, CommandError> {
    if !path.exists() {
        return Ok(TreeNames::default());
    }
    let tree =
        local_tree::walk(path, filter).map_err(|why| CommandError::Local(why.to_string()))?;
    // What has no name that a storage element can have is none of its copies; parts of copies are none either.
    let special = tree.left_out.into_iter();
    let special = special.filter(|left_out| left_out.kind != SpecialKind::UnfinishedDownload);
    let special = special.map(|left_out| left_out.names);
    let files = tree.files.into_iter().map(|file| file.names);
    Ok(TreeNames {
        directories: tree.directories.into_iter().collect(),
        files: files.chain(special).collect(),
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

/// Removes what was listed and has not changed since, and nothing through a link that has come in the place of a directory.
fn remove_here(extras: &Extras, top: &Path) -> (usize, Failed) {
    let mut failed = Vec::new();
    let mut removed = 0;
    let mut fail = |place: &LocalPlace, names: &[String], why: io::Error| {
        let why = CommandError::local(place.path().display(), why);
        failed.push((names.join("/"), why));
    };
    for (names, seen) in &extras.local_versions {
        let place = LocalPlace::below(top, names).expect("a file below the top has a name");
        match place.remove_file(seen) {
            Ok(true) => removed += 1,
            Ok(false) => {}
            Err(why) => fail(&place, names, why),
        }
    }
    for names in &extras.directories {
        let place = LocalPlace::below(top, names).expect("a directory below the top has a name");
        match place.remove_directory() {
            Ok(_) => {}
            // What a filter leaves out is in it, or what came meanwhile.
            Err(why) if why.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(why) => fail(&place, names, why),
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
        let mut extras = extras_of(
            &TreeNames::default(),
            names(&["old", "old/deep", "mixed"], &["old/deep/f", "mixed/gone"]),
        );
        extras
            .look_here(top.path(), &TreeNames::default())
            .expect("listed");
        let (removed, failed) = remove_here(&extras, top.path());
        assert_eq!((removed, failed.len()), (2, 0));
        assert!(!at("old").exists() && at("mixed/kept").exists());
    }

    #[test]
    fn what_came_in_the_place_of_what_was_listed_here_is_not_removed() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        for directory in ["there/a", "there/d", "elsewhere"] {
            std::fs::create_dir_all(at(directory)).expect("made");
        }
        for name in [
            "there/a/shadow",
            "there/rewritten",
            "there/extra",
            "elsewhere/shadow",
        ] {
            std::fs::write(at(name), b"x").expect("written");
        }
        let listed = names(&["a", "d"], &["a/shadow", "rewritten", "extra"]);
        let mut extras = extras_of(&TreeNames::default(), listed);
        extras
            .look_here(&at("there"), &TreeNames::default())
            .expect("listed");
        // What somebody does while files are copied.
        std::fs::rename(at("there/a"), at("aside")).expect("renamed");
        std::os::unix::fs::symlink(at("elsewhere"), at("there/a")).expect("linked");
        std::fs::write(at("there/rewritten"), b"new data").expect("written");
        std::fs::remove_file(at("there/extra")).expect("removed");
        std::fs::create_dir(at("there/extra")).expect("made");
        std::fs::write(at("there/extra/result"), b"new").expect("written");
        let (removed, failed) = remove_here(&extras, &at("there"));
        assert_eq!((removed, failed.len()), (0, 4), "{failed:?}");
        for kept in ["elsewhere/shadow", "there/rewritten", "there/extra/result"] {
            assert!(at(kept).exists(), "{kept}");
        }
        assert!(at("there/a").is_symlink() && !at("there/d").exists());
    }
}
