//! What `penstock trash` takes.

use super::AccessArgs;
use super::site::namespace_path;
use clap::{Args, Subcommand};
use penstock_model::quantity::Span;
use penstock_model::{NamespacePath, Timestamp};
use penstock_protocol::webdav::parse_iso_date;
use std::num::NonZeroUsize;
use std::str::FromStr;
use url::Url;

/// What `trash` does.
#[derive(Debug, Subcommand)]
pub enum TrashCommand {
    /// List deleted and overwritten files, oldest first.
    #[command(after_help = "Examples:\n  penstock trash list --dir cern\n  \
        penstock trash list --dir cern /data/run42      # this file, or what was below this directory\n  \
        penstock trash list --dir cern --json | jq '.files[] | select(.removed_by | test(\"alice\"))'\n\n\
        Each line has number, time of removal (UTC), size, who removed the file (with the token issuer, if it is another \
        site's) and path. A path is listed several times if several versions of the file were overwritten.")]
    List(TrashListArgs),
    /// Restore a file unchanged, to its old path or another one.
    #[command(after_help = "Examples:\n  \
        penstock trash restore --dir cern /data/run42/f              # the version that was removed last\n  \
        penstock trash restore --dir cern 1f3a --to /data/run42/f.old  # an older one, by its number, next to the current one\n  \
        penstock trash restore --dir cern --recursive /data/run42    # a deleted directory, with all its files\n  \
        penstock trash restore --dir cern -r /data/run42 --since 2026-11-24T03:00:00Z --removed-by alice --dry-run\n\n\
        For each path, the version that was removed last is restored. For a directory, this includes files that were deleted \
        from it before the directory itself: limit the selection with --since and --removed-by, and check it with --dry-run. \
        Existing files are never replaced: use --to for another path. Missing directories are created, owned by the file's \
        owner. Owner, times, checksums, properties and ETag are restored.")]
    Restore(TrashRestoreArgs),
    /// Permanently delete files in the trash before they expire.
    #[command(
        after_help = "Examples:\n  penstock trash empty --dir cern --older-than 12h\n  \
        penstock trash empty --dir cern /data/run42 --yes\n\n\
        Shows the number and size of the files, and asks. This cannot be undone. Files in a pool that is not configured or \
        does not answer stay; they are reported, and the exit code is 1. There is no need to empty the trash when space is \
        short: new files replace the oldest trash of a pool automatically."
    )]
    Empty(TrashEmptyArgs),
}

/// Which storage element, and how to reach it.
#[derive(Debug, Args)]
pub struct DoorArgs {
    /// The storage element's door. Default: that of --dir.
    #[arg(long, value_name = "URL")]
    pub door: Option<Url>,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `trash list`.
#[derive(Debug, Args)]
pub struct TrashListArgs {
    /// Only files that were at this path or below it. Default: all.
    #[arg(value_parser = namespace_path)]
    pub path: Option<NamespacePath>,
    /// Maximum number of files to list.
    #[arg(long, value_name = "N", default_value = "10000")]
    pub limit: NonZeroUsize,
    /// The storage element.
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `trash restore`.
#[derive(Debug, Args)]
pub struct TrashRestoreArgs {
    /// The file's old path, beginning with /; or its number, as `trash list` shows it.
    #[arg(value_name = "PATH|ID")]
    pub what: TrashedName,
    /// Restore to this path instead of the old one. With a slash at the end: into this directory.
    #[arg(long, value_name = "PATH")]
    pub to: Option<RestorePlace>,
    /// Restore all files that were below the path, each in the version that was removed last.
    #[arg(short, long)]
    pub recursive: bool,
    /// Only files removed since this time: a time as `trash list` shows it, or an age such as 2h.
    #[arg(long, value_name = "TIME")]
    pub since: Option<RemovedSince>,
    /// Only files removed by this user, as `trash list` shows it.
    #[arg(long, value_name = "WHO")]
    pub removed_by: Option<String>,
    /// Only show which files will be restored. Existing files at their paths are not checked for.
    #[arg(long)]
    pub dry_run: bool,
    /// The storage element.
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `trash empty`.
#[derive(Debug, Args)]
pub struct TrashEmptyArgs {
    /// Only files that were at this path or below it. Default: all.
    #[arg(value_parser = namespace_path)]
    pub path: Option<NamespacePath>,
    /// Only files removed longer ago than this.
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    pub older_than: Option<Span>,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// The storage element.
    #[command(flatten)]
    pub door: DoorArgs,
}

/// How a person names a file of the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrashedName {
    /// By where it was.
    Path(NamespacePath),
    /// By its number.
    Id(String),
}

impl FromStr for TrashedName {
    type Err = String;
    fn from_str(text: &str) -> Result<TrashedName, String> {
        if text.starts_with('/') {
            return namespace_path(text).map(TrashedName::Path);
        }
        match u64::from_str_radix(text, 16) {
            Ok(id) => Ok(TrashedName::Id(format!("{id:x}"))),
            Err(_) => Err(format!(
                "'{text}' is neither a path (beginning with /) nor a number from `penstock trash list`"
            )),
        }
    }
}

/// Where something shall be restored to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestorePlace {
    /// In the place of the file or directory that is named.
    At(NamespacePath),
    /// Into this directory, under the name that it had.
    Into(NamespacePath),
}

impl FromStr for RestorePlace {
    type Err = String;
    fn from_str(text: &str) -> Result<RestorePlace, String> {
        let path = namespace_path(text)?;
        match (path.is_root(), text.ends_with('/')) {
            (true, _) => {
                Err("the root directory cannot be replaced; write the full new path".to_owned())
            }
            (false, true) => Ok(RestorePlace::Into(path)),
            (false, false) => Ok(RestorePlace::At(path)),
        }
    }
}

/// Since when something was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovedSince {
    /// Since a moment.
    Moment(Timestamp),
    /// Since so long ago.
    Ago(Span),
}

impl FromStr for RemovedSince {
    type Err = String;
    fn from_str(text: &str) -> Result<RemovedSince, String> {
        if let Some(moment) = parse_iso_date(text) {
            return Ok(RemovedSince::Moment(moment));
        }
        text.parse().map(RemovedSince::Ago).map_err(|_| {
            format!("'{text}' is not a time; write for example 2026-11-24T03:00:00Z, or 2h for the last two hours")
        })
    }
}

/// A span that the door understands, which is asked in seconds.
fn whole_seconds(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    match (span.0.as_secs(), span.0.subsec_nanos()) {
        (1.., 0) => Ok(span),
        _ => Err(
            "write whole seconds, at least 1s; without --older-than all ages are included"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_trash_is_named_by_path_or_number() {
        let path = NamespacePath::parse("/a b").expect("a path");
        assert_eq!("/a b".parse(), Ok(TrashedName::Path(path)));
        assert_eq!("1F".parse(), Ok(TrashedName::Id("1f".to_owned())));
        for wrong in ["", "f.root", "a/b"] {
            let why = wrong.parse::<TrashedName>().expect_err(wrong);
            assert!(why.contains("penstock trash list"), "{why}");
        }
    }

    #[test]
    fn a_slash_at_the_end_means_into_the_directory() {
        let path = NamespacePath::parse("/a/b").expect("a path");
        assert_eq!("/a/b".parse(), Ok(RestorePlace::At(path.clone())));
        assert_eq!("/a/b/".parse(), Ok(RestorePlace::Into(path)));
        for root in ["/", "//", "/./"] {
            let why = root.parse::<RestorePlace>().expect_err(root);
            assert!(why.contains("root directory"), "{why}");
        }
    }

    #[test]
    fn removals_are_found_by_moment_or_by_age() {
        let moment = RemovedSince::Moment(Timestamp(1_000));
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(moment));
        let ago = RemovedSince::Ago("2h".parse().expect("a span"));
        assert_eq!("2h".parse(), Ok(ago));
        assert!("yesterday".parse::<RemovedSince>().is_err());
    }

    #[test]
    fn an_age_that_would_be_rounded_to_nothing_is_refused() {
        for bad in ["900ms", "0s", "1500ms"] {
            assert!(whole_seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(whole_seconds("90m"), "90m".parse());
    }
}
