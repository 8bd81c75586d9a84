//! `penstock copy`: decides from its two arguments which way a copy goes, and reports how it went. `sync` begins with the
//! same.

mod between;
mod down;
pub mod report;
mod up;

use self::report::{CopiedFile, CopyReport, DryRunReport, IntendedFile, LeftOutFile};
use crate::args::{BulkArgs, CopyArgs, parse_url};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use http::StatusCode;
use penstock_field_tools::bandwidth::Bandwidth;
use penstock_field_tools::bulk_copy::{ExistingCopy, Options};
use penstock_field_tools::checksum_choice::ChecksumChoice;
use penstock_field_tools::local_tree::SpecialKind;
use penstock_field_tools::path_filter::PathFilter;
use penstock_field_tools::progress::Progress;
use penstock_field_tools::remote::{Info, Remote, below};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree::{RemoteFile, RemoteTree};
use penstock_field_tools::unfinished_downloads::{UnfinishedDownloads, is_part_name};
use penstock_field_tools::unfinished_uploads::UnfinishedUploads;
use penstock_model::text::plural;
use penstock_model::url::redact;
use penstock_model::{Bytes, Timestamp};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use url::Url;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyEnd {
    Local(PathBuf),
    Remote(Url),
}

impl CopyEnd {
    /// Source and destination.
    pub fn parse_both(source: &str, destination: &str) -> Result<(CopyEnd, CopyEnd), CommandError> {
        Ok((CopyEnd::parse(source)?, CopyEnd::parse(destination)?))
    }

    fn parse(text: &str) -> Result<CopyEnd, CommandError> {
        if let Some(rest) = text.strip_prefix("file:") {
            // RFC 8089: file:/path, file:///path or file://localhost/path; and, as people type it, file:path.
            let path = rest
                .strip_prefix("//localhost")
                .or(rest.strip_prefix("//"))
                .unwrap_or(rest);
            return Ok(CopyEnd::Local(path.into()));
        }
        match text.contains("://") {
            true => parse_url(text)
                .map(CopyEnd::Remote)
                .map_err(|why| CommandError::Usage(format!("'{text}': {why}"))),
            false => Ok(CopyEnd::Local(text.into())),
        }
    }
}

/// How files are copied, whatever they are.
pub struct Order<'a> {
    pub bulk: &'a BulkArgs,
    pub existing: ExistingCopy,
    pub filter: PathFilter,
    pub environment: &'a Environment,
    pub output: Output,
    pub progress: Arc<Progress>,
}

impl<'a> Order<'a> {
    pub fn new(
        bulk: &'a BulkArgs,
        existing: ExistingCopy,
        environment: &'a Environment,
        output: Output,
    ) -> Order<'a> {
        Order {
            bulk,
            existing,
            filter: PathFilter {
                include: bulk.include.clone(),
                exclude: bulk.exclude.clone(),
            },
            environment,
            output,
            progress: Arc::new(Progress::new()),
        }
    }

    fn parallel(&self) -> usize {
        usize::from(self.bulk.parallel)
    }

    fn checksums(&self) -> ChecksumChoice {
        let chosen = self.bulk.checksum.map(ChecksumChoice::Only);
        chosen.unwrap_or(ChecksumChoice::Strongest)
    }

    fn options(&self) -> Options {
        let bandwidth = self.bulk.bwlimit.map(Bandwidth::limited);
        Options {
            bandwidth: bandwidth.unwrap_or_default(),
            unfinished: self.notes("uploads", UnfinishedUploads::open),
            unfinished_downloads: self.notes("downloads", UnfinishedDownloads::open),
            ..Options::new(self.parallel(), self.existing, self.checksums())
        }
    }

    /// Where it is noted how copies go on that are cut off.
    fn notes<T>(&self, name: &str, open: impl Fn(&Path) -> io::Result<T>) -> Option<T> {
        let opened = open(self.environment.state.as_ref()?).inspect_err(|why| {
            tracing::warn!(%why, "interrupted {name} cannot be continued by a later command");
        });
        opened.ok()
    }
}

/// What is to be copied.
pub enum Plan {
    Up(up::UploadPlan),
    Down(down::DownloadPlan),
    Between(Box<between::BetweenPlan>),
}

/// What was found at the source beside what is to be copied.
#[derive(Default)]
pub struct Found {
    /// Names of all that is there and counts; `None`: it is a single file.
    pub tree: Option<TreeNames>,
    /// What cannot be copied.
    pub failed: Vec<CopiedFile>,
    pub left_out: Vec<LeftOutFile>,
}

impl Found {
    /// In a tree of a storage element. What has the name of a part of a download is taken out of it: beside its copies such a file
    /// would be mistaken for one.
    fn take(tree: &mut RemoteTree) -> Found {
        let is_part = |names: &[String]| names.iter().any(|name| is_part_name(name));
        let parts = tree.files.extract_if(.., |file| is_part(&file.names));
        let parts: Vec<RemoteFile> = parts.collect();
        let special = parts.iter().map(|file| file.names.clone()).collect();
        let left_out = parts.iter().map(|file| LeftOutFile {
            name: redact(file.url.as_str()),
            kind: SpecialKind::UnfinishedDownload.name(),
        });
        let left_out = left_out.collect();
        tree.directories
            .retain(|directory| !is_part(&directory.names));
        let directories = tree.directories.iter();
        let problem = |why: &RemoteError| {
            let name = why.to_string();
            CopiedFile::failed(name.clone(), CommandError::SomeFailed(name))
        };
        Found {
            tree: Some(TreeNames {
                directories: directories.map(|found| found.names.clone()).collect(),
                files: tree.files.iter().map(|file| file.names.clone()).collect(),
                special,
            }),
            failed: tree.problems.iter().map(problem).collect(),
            left_out,
        }
    }
}

/// The names in a tree, from its top down.
#[derive(Debug, Default)]
pub struct TreeNames {
    pub directories: BTreeSet<Vec<String>>,
    pub files: BTreeSet<Vec<String>>,
    /// What is neither, and is not copied: whatever may be behind a symbolic link is there too.
    pub special: BTreeSet<Vec<String>>,
}

/// What tells a file of a storage element from all others, by whatever URL it is found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionThere {
    name: String,
    size: Option<Bytes>,
    modified: Option<Timestamp>,
    etag: String,
}

impl VersionThere {
    /// `None`: the server tells no version.
    pub fn of(info: &Info) -> Option<VersionThere> {
        Some(VersionThere {
            name: info.name.clone(),
            size: info.size_bytes,
            modified: info.modified,
            etag: info.etag.clone()?,
        })
    }
}

/// Where a copy goes.
pub enum Destination {
    Local(PathBuf),
    Remote(Box<Remote>, Url),
}

impl Plan {
    /// Looks at the source.
    pub async fn find(
        source: &CopyEnd,
        destination: &CopyEnd,
        order: &Order<'_>,
    ) -> Result<Plan, CommandError> {
        match (source, destination) {
            (CopyEnd::Local(from), CopyEnd::Remote(to)) => {
                up::find(from, to, order).await.map(Plan::Up)
            }
            (CopyEnd::Remote(from), CopyEnd::Local(to)) => {
                down::find(from, to, order).await.map(Plan::Down)
            }
            (CopyEnd::Remote(from), CopyEnd::Remote(to)) => {
                let found = between::find(from, to, order).await?;
                Ok(Plan::Between(Box::new(found)))
            }
            (CopyEnd::Local(_), CopyEnd::Local(_)) => Err(CommandError::Usage(
                "source and destination are both local; use cp or rsync".to_owned(),
            )),
        }
    }

    fn found(&mut self) -> &mut Found {
        match self {
            Plan::Up(plan) => &mut plan.found,
            Plan::Down(plan) => &mut plan.found,
            Plan::Between(plan) => &mut plan.found,
        }
    }

    fn take_found(&mut self) -> Found {
        std::mem::take(self.found())
    }

    /// The names at the source; `None`: it is a single file, or they were taken before.
    pub fn take_tree(&mut self) -> Option<TreeNames> {
        self.found().tree.take()
    }

    /// Errors: the source is in the destination.
    pub fn refuse_source_in_destination(&self) -> Result<(), CommandError> {
        match self {
            Plan::Up(_) | Plan::Down(_) => Ok(()),
            Plan::Between(plan) => plan.refuse_source_in_destination(),
        }
    }

    /// Versions of the files of a source whose server may be that of the destination.
    pub fn take_versions(&mut self) -> BTreeSet<VersionThere> {
        match self {
            Plan::Up(_) | Plan::Down(_) => BTreeSet::new(),
            Plan::Between(plan) => std::mem::take(&mut plan.versions),
        }
    }

    pub fn destination(&self) -> Destination {
        match self {
            Plan::Up(plan) => Destination::Remote(Box::new(plan.remote.clone()), plan.to.clone()),
            Plan::Down(plan) => Destination::Local(plan.to.clone()),
            Plan::Between(plan) => {
                Destination::Remote(Box::new(plan.remote.clone()), plan.to.clone())
            }
        }
    }

    /// Copies.
    pub async fn carry_out(mut self, order: &Order<'_>) -> Result<CopyReport, CommandError> {
        let started = Instant::now();
        let found = self.take_found();
        let mut files = found.failed;
        files.extend(match self {
            Plan::Up(plan) => plan.carry_out(order).await?,
            Plan::Down(plan) => plan.carry_out(order).await?,
            Plan::Between(plan) => plan.carry_out(order).await?,
        });
        Ok(CopyReport::new(files, found.left_out, started.elapsed()))
    }

    /// Tells what would be copied.
    pub async fn look(mut self, order: &Order<'_>) -> Result<DryRunReport, CommandError> {
        let found = self.take_found();
        let files: Vec<IntendedFile> = match self {
            Plan::Up(plan) => plan.look(order).await,
            Plan::Down(plan) => plan.look(order).await,
            Plan::Between(plan) => plan.look(order).await,
        };
        Ok(DryRunReport::new(files, found.failed, found.left_out))
    }
}

/// `penstock copy`.
pub async fn run(
    args: CopyArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let (source, destination) = CopyEnd::parse_both(&args.source, &args.destination)?;
    let existing = match args.overwrite {
        true => ExistingCopy::Replace,
        false => ExistingCopy::Keep,
    };
    let order = Order::new(&args.bulk, existing, environment, output);
    let copying = async {
        let plan = Plan::find(&source, &destination, &order).await?;
        match args.bulk.dry_run {
            true => plan.look(&order).await?.conclude(output),
            false => plan.carry_out(&order).await?.conclude(output),
        }
    };
    interruptible(copying, &order).await
}

/// Ends with Ctrl-C, and says what was done by then and what the same command will do.
pub async fn interruptible<T>(
    copying: impl Future<Output = Result<T, CommandError>>,
    order: &Order<'_>,
) -> Result<T, CommandError> {
    tokio::select! {
        outcome = copying => outcome,
        _ = tokio::signal::ctrl_c() => {
            let seen = order.progress.read();
            Err(CommandError::Interrupted(stopped(seen.files_ended, seen.files_total, seen.files_kept)))
        }
    }
}

fn stopped(ended: u64, total: u64, kept: u64) -> String {
    match (total, kept) {
        (0, _) => "stopped before the first file".to_owned(),
        (_, 0) => format!(
            "stopped: {ended} of {} done; run the same command again to copy the rest",
            plural(total, "file")
        ),
        _ => format!(
            "stopped: {ended} of {} done, and the received part of {} is kept; run the same command again to continue",
            plural(total, "file"),
            plural(kept, "more large file")
        ),
    }
}

/// Where a single file goes: into the destination when that is a directory, else to that very name.
async fn place_of_file(remote: &Remote, to: &Url, name: String) -> Result<Url, CommandError> {
    let into_directory = to.path().ends_with('/')
        || match remote.stat(to).await {
            Ok(info) => info.is_directory,
            Err(RemoteError::NotFound { .. }) => false,
            // A token for writing need not allow looking; then the name is taken as it is.
            Err(RemoteError::NotAuthorised { .. }) => false,
            // Nor does every server that takes files know PROPFIND.
            Err(RemoteError::Refused {
                status: StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED,
                ..
            }) => false,
            Err(why) => return Err(why.into()),
        };
    match into_directory {
        true => Ok(below(to, &[name])?),
        false => Ok(to.clone()),
    }
}

/// Makes the directories of a tree. Gives back those that could not be made.
async fn make_directories(
    remote: &Remote,
    top: &Url,
    directories: Vec<Vec<String>>,
) -> Result<Vec<CopiedFile>, CommandError> {
    remote.make_directories(top).await?;
    let mut failed = Vec::new();
    for names in directories {
        let made = match below(top, &names) {
            Ok(url) => remote.ensure_directory(&url).await,
            Err(why) => Err(why),
        };
        if let Err(why) = made {
            failed.push(CopiedFile::failed(names.join("/"), why.into()));
        }
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart() {
        let local = |path: &str| CopyEnd::Local(path.into());
        for (text, place) in [
            ("a/b", local("a/b")),
            ("file:///a/b", local("/a/b")),
            ("file:a", local("a")),
        ] {
            assert_eq!(CopyEnd::parse(text).expect(text), place);
        }
        let url = Url::parse("https://se:8443/f").expect("valid");
        assert_eq!(
            CopyEnd::parse("davs://se:8443/f").expect("valid"),
            CopyEnd::Remote(url)
        );
        for bad in ["ftp://se/f", "https://u:p@se/f"] {
            assert!(CopyEnd::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_interruption_says_what_is_done_and_what_is_kept() {
        assert_eq!(stopped(0, 0, 0), "stopped before the first file");
        assert_eq!(
            stopped(3, 10, 0),
            "stopped: 3 of 10 files done; run the same command again to copy the rest"
        );
        assert_eq!(
            stopped(0, 1, 1),
            "stopped: 0 of 1 file done, and the received part of 1 more large file is kept; run the same command again \
             to continue"
        );
    }
}
