//! `penstock sync`: a copy, and what is not at the source goes from the destination. Nothing is removed before a person or an
//! option has agreed, nothing on the word of a source that could not be read whole, and nothing that a filter leaves out.

mod server_side;

use self::server_side::ListedExtras;
use crate::args::SyncArgs;
use crate::commands::copy::{
    CopyEnd, Destination, Order, Plan, TreeNames, VersionThere, interruptible,
};
use crate::commands::fsck::is_confirmed;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::bulk_copy::ExistingCopy;
use penstock_field_tools::local_place::{FileVersion, LocalPlace};
use penstock_field_tools::local_tree::{self, SpecialKind};
use penstock_field_tools::path_filter::PathFilter;
use penstock_field_tools::remote::Remote;
use penstock_model::text::{one_line, plural};
use penstock_model::url::redact;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
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
    /// What the files were when they were listed, where they are here. Those that are not in it were gone already.
    local_versions: BTreeMap<Vec<String>, FileVersion>,
}

/// `penstock sync`.
pub async fn run(
    args: SyncArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let (source, destination) = CopyEnd::parse_both(&args.source, &args.destination)?;
    let order = Order::new(&args.bulk, ExistingCopy::Update, environment, output);
    let syncing = async {
        let mut plan = Plan::find(&source, &destination, &order).await?;
        plan.refuse_source_in_destination()?;
        let Some(tree) = plan.take_tree() else {
            let what = &args.source;
            return Err(CommandError::Usage(format!(
                "{what} is a file, and sync needs a directory; copy files with `penstock copy`"
            )));
        };
        let found = find_extras(&tree, plan.destination(), &order).await?;
        found.refuse_files_of(&plan.take_versions())?;
        let extras = found.names();
        if args.bulk.dry_run {
            let mut report = plan.look(&order).await?;
            report.add_removals(&extras.names());
            return report.conclude(output);
        }
        agree(&tree, extras, &args, output)?;
        let mut report = plan.carry_out(&order).await?;
        if extras.is_empty() {
            report.removed = Some(0);
        } else if report.failed_files > 0 {
            report.removed = Some(0);
            output.say("nothing was removed, because some files could not be copied");
        } else {
            let (removed, failed) = found.remove(&tree, &order).await;
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
    /// folds case or normal forms, is taken out: it is the copy itself. `listed` are the files as the directory spells them.
    fn look_here(
        &mut self,
        top: &Path,
        source: &TreeNames,
        listed: &BTreeSet<Vec<String>>,
    ) -> Result<(), CommandError> {
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
        // What is found by a name that is not listed is listed by another one. A file may also have several names of its own.
        let respelt = source.files.difference(listed);
        let respelt = respelt.filter_map(|names| look(names).ok()?);
        let copies: BTreeSet<(u64, u64)> = respelt.map(|found| identity(&found)).collect();
        found.retain(|_, metadata| !copies.contains(&identity(metadata)));
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
fn agree(
    source: &TreeNames,
    extras: &Extras,
    args: &SyncArgs,
    output: Output,
) -> Result<(), CommandError> {
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
    // A disk that is not mounted looks like an empty directory.
    if source.files.is_empty() && files > 0 && !args.allow_empty {
        return Err(CommandError::Usage(format!(
            "{what}, and the source has no files at all; nothing was changed (if it is meant to be empty, use --allow-empty)"
        )));
    }
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

/// What is to go, and where it is.
enum FoundExtras {
    Here(Extras, PathBuf),
    There(ListedExtras, Box<Remote>, Url),
}

impl FoundExtras {
    fn names(&self) -> &Extras {
        match self {
            FoundExtras::Here(extras, _) => extras,
            FoundExtras::There(found, ..) => &found.extras,
        }
    }

    /// Errors: something to be removed is a file of the source, found by another URL.
    fn refuse_files_of(&self, source: &BTreeSet<VersionThere>) -> Result<(), CommandError> {
        match self {
            FoundExtras::Here(..) => Ok(()),
            FoundExtras::There(found, ..) => found.refuse_files_of(source),
        }
    }

    /// Removes files, then directories that are empty by then. Gives back how many files went, and what did not.
    async fn remove(self, source: &TreeNames, order: &Order<'_>) -> (usize, Failed) {
        match self {
            FoundExtras::Here(extras, top) => remove_here(&extras, &top),
            FoundExtras::There(found, remote, top) => {
                match server_side::find_copies(source, &remote, &top, order).await {
                    Ok(()) => server_side::remove(found, &remote, &top).await,
                    Err(why) => (0, vec![(redact(top.as_str()), why)]),
                }
            }
        }
    }
}

type Failed = Vec<(String, CommandError)>;

async fn find_extras(
    source: &TreeNames,
    place: Destination,
    order: &Order<'_>,
) -> Result<FoundExtras, CommandError> {
    match place {
        Destination::Local(top) => {
            let there = local_names(&top, &order.filter)?;
            let listed = there.files.clone();
            let mut extras = extras_of(source, there);
            extras.look_here(&top, source, &listed)?;
            Ok(FoundExtras::Here(extras, top))
        }
        Destination::Remote(remote, top) => {
            let found = server_side::find_extras(source, &remote, &top, order).await?;
            Ok(FoundExtras::There(found, remote, top))
        }
    }
}

fn extras_of(source: &TreeNames, there: TreeNames) -> Extras {
    // What is behind a link that was not followed is at the source all the same.
    let is_behind_special =
        |names: &[String]| (1..=names.len()).any(|depth| source.special.contains(&names[..depth]));
    let is_missing = |at: &BTreeSet<Vec<String>>, names: &Vec<String>| {
        !at.contains(names) && !is_behind_special(names)
    };
    let mut directories: Vec<Vec<String>> = there
        .directories
        .into_iter()
        .filter(|names| is_missing(&source.directories, names))
        .collect();
    directories.sort_by_key(|names| Reverse(names.len()));
    let files = there.files.into_iter();
    Extras {
        files: files
            .filter(|names| is_missing(&source.files, names))
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
        special: BTreeSet::new(),
    })
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
            special: BTreeSet::new(),
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
    fn what_is_behind_a_link_of_the_source_stays() {
        let source = TreeNames {
            special: BTreeSet::from([vec!["run".to_owned()]]),
            ..names(&[], &["y"])
        };
        let there = names(
            &["run", "run/deep", "runs"],
            &["run/a", "run/deep/b", "runs/c", "y"],
        );
        assert_eq!(extras_of(&source, there).names(), ["runs/c", "runs/"]);
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
            .look_here(top.path(), &TreeNames::default(), &BTreeSet::new())
            .expect("listed");
        let (removed, failed) = remove_here(&extras, top.path());
        assert_eq!((removed, failed.len()), (2, 0));
        assert!(!at("old").exists() && at("mixed/kept").exists());
    }

    #[test]
    fn the_copy_itself_stays_where_names_are_folded_whatever_other_names_it_has() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        for name in ["Data", "plain"] {
            std::fs::write(at(name), b"x").expect("written");
        }
        std::fs::hard_link(at("Data"), at("data")).expect("linked");
        let source = names(&[], &["Data"]);
        let removed = |listed: &[&str]| {
            let there = names(&[], listed);
            let files = there.files.clone();
            let mut extras = extras_of(&source, there);
            extras
                .look_here(top.path(), &source, &files)
                .expect("listed");
            extras.names()
        };
        // Two names of one file; and one entry, as it is spelt here, of a file that has a second name elsewhere.
        assert_eq!(removed(&["Data", "data", "plain"]), ["data", "plain"]);
        assert_eq!(removed(&["data", "plain"]), ["plain"]);
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
            .look_here(&at("there"), &TreeNames::default(), &BTreeSet::new())
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
