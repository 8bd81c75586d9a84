//! What `penstock trash` takes.

use super::AccessArgs;
use super::site::namespace_path;
use crate::quantity::Span;
use clap::{Args, Subcommand};
use penstock_model::NamespacePath;
use std::str::FromStr;
use url::Url;

/// What `trash` does.
#[derive(Debug, Subcommand)]
pub enum TrashCommand {
    /// List removed and replaced files, those that were removed first before others.
    #[command(after_help = "Examples:\n  penstock trash list --dir cern\n  \
        penstock trash list --dir cern /data/run42      # this file, or what was below this directory\n  \
        penstock trash list --dir cern --json | jq '.files[] | select(.removed_by | test(\"alice\"))'\n\n\
        Each line: number, time of removal (UTC), size, path, who removed it. A path stands there several times when several \
        versions of the file were replaced.")]
    List(TrashListArgs),
    /// Bring a file back: as it was, where it was, or elsewhere.
    #[command(after_help = "Examples:\n  \
        penstock trash restore --dir cern /data/run42/f              # the version that was removed last\n  \
        penstock trash restore --dir cern 1f3a --to /data/run42/f.old  # an older one, by its number, beside the present one\n  \
        penstock trash restore --dir cern --recursive /data/run42    # a directory that was removed, with all its files\n\n\
        Nothing is replaced: where something stands, say --to. Directories that are gone are made again, owned by the file's \
        owner. Owner, times, checksums, properties and ETag are those of before.")]
    Restore(TrashRestoreArgs),
    /// Remove files of the trash for good, before their time is over.
    #[command(
        after_help = "Examples:\n  penstock trash empty --dir cern --older-than 12h\n  \
        penstock trash empty --dir cern /data/run42 --yes\n\n\
        There is no way back. For want of room nothing needs to be done: the oldest trash of a pool gives way to new files by \
        itself."
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
    /// Only what was at this path or below it. Default: everything.
    #[arg(value_parser = namespace_path)]
    pub path: Option<NamespacePath>,
    /// List so many at most.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub limit: usize,
    /// The storage element.
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `trash restore`.
#[derive(Debug, Args)]
pub struct TrashRestoreArgs {
    /// Where the file was, beginning with /; or its number, as `trash list` shows it.
    #[arg(value_name = "PATH|ID")]
    pub what: TrashedName,
    /// Restore it here, and not where it was.
    #[arg(long, value_name = "PATH", value_parser = namespace_path)]
    pub to: Option<NamespacePath>,
    /// All files that were below the path; of each the version that was removed last.
    #[arg(short, long)]
    pub recursive: bool,
    /// The storage element.
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `trash empty`.
#[derive(Debug, Args)]
pub struct TrashEmptyArgs {
    /// Only what was at this path or below it. Default: everything.
    #[arg(value_parser = namespace_path)]
    pub path: Option<NamespacePath>,
    /// Only what was removed longer ago than this.
    #[arg(long, value_name = "TIME")]
    pub older_than: Option<Span>,
    /// Do not ask.
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
                "'{text}' is neither a path, which begins with /, nor a number of `penstock trash list`"
            )),
        }
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
}
