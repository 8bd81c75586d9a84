//! Looking at and changing a storage element's namespace: `ls`, `stat`, `rm`, `mkdir`, `cat`, `checksum`.

use crate::args::{AccessArgs, ChecksumArgs, LsArgs, MkdirArgs, RmArgs, UrlArgs};
use crate::commands::access::{Access, Purpose};
use crate::commands::batch_result::BatchResult;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::path_filter::PathFilter;
use penstock_field_tools::remote::{DirectoryOutcome, Info, Remote, Wanted};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree;
use penstock_model::text::{one_line, plural};
use penstock_model::url::redact;
use penstock_model::{Bytes, Checksum, ChecksumAlgorithm, Locality, Timestamp};
use penstock_protocol::checksum::Hasher;
use penstock_protocol::digest;
use serde::Serialize;
use std::io::Write;
use url::Url;

/// Directories listed at once.
const LISTINGS: usize = 8;
/// What is compared when a file is read to standard output.
const CAT_CHECKSUM: ChecksumAlgorithm = ChecksumAlgorithm::Adler32;

/// Storage elements, each with a token that suffices for its URLs.
pub fn open(
    urls: &[Url],
    purpose: Purpose,
    args: &AccessArgs,
    environment: &Environment,
    idle_per_host: usize,
) -> Result<Remote, CommandError> {
    let access = Access::open(args, environment, idle_per_host)?;
    let files: Vec<(&Url, Purpose)> = urls.iter().map(|url| (url, purpose)).collect();
    let credentials = access.for_files(&files)?;
    Ok(Remote::new(access.client, credentials))
}

/// `penstock ls`.
pub async fn ls(
    args: LsArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let remote = open(
        &args.urls,
        Purpose::Read,
        &args.access,
        environment,
        LISTINGS,
    )?;
    let remote = if args.long {
        remote.with_locality()
    } else {
        remote
    };
    let mut rows = BatchResult::new();
    let has_headings = args.urls.len() > 1;
    for url in &args.urls {
        let (found, problems) = match rows_of(&remote, url, args.recursive).await {
            Ok(found) => found,
            Err(why) => {
                rows.add(url, Err(why.into()));
                continue;
            }
        };
        for why in problems {
            rows.add(url, Err(CommandError::from(why)));
        }
        for (number, (name, info)) in found.into_iter().enumerate() {
            let heading = (has_headings && number == 0).then(|| redact(url.as_str()));
            rows.add(
                url,
                Ok(Row {
                    info,
                    name,
                    heading,
                }),
            );
        }
    }
    let not_listed = |count| format!("{} could not be listed", plural(count as u64, "place"));
    rows.conclude_as(output, not_listed, |rows| {
        let has_locality = rows.iter().any(|row| row.info.locality.is_some());
        let columns = match (args.long, has_locality) {
            (false, _) => ListingColumns::Name,
            (true, false) => ListingColumns::Long,
            (true, true) => ListingColumns::LongWithLocality,
        };
        rows.iter().map(|row| row.line(columns)).collect()
    })
}

/// What is shown of each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListingColumns {
    Name,
    Long,
    /// Where there is tape.
    LongWithLocality,
}

/// One line of a listing.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    info: Info,
    #[serde(skip)]
    name: String,
    /// What stands above it, when several things are listed.
    #[serde(skip)]
    heading: Option<String>,
}

impl Row {
    fn line(&self, columns: ListingColumns) -> String {
        let heading = self.heading.as_ref().map(|url| format!("{url}:\n"));
        heading.unwrap_or_default() + &listing_line(&self.name, &self.info, columns)
    }
}

/// What is in a directory, by name, and what could not be looked at.
async fn rows_of(
    remote: &Remote,
    url: &Url,
    is_recursive: bool,
) -> Result<(Vec<(String, Info)>, Vec<RemoteError>), RemoteError> {
    if !is_recursive {
        let listing = remote.list(url).await?;
        let unusable = listing.unusable.iter().map(|entry| entry.problem(url));
        let unusable = unusable.collect();
        let entries = listing.entries.into_iter();
        let rows = entries.map(|info| (info.name.clone(), info)).collect();
        return Ok((rows, unusable));
    }
    let tree = remote_tree::walk(remote, url, LISTINGS, &PathFilter::default()).await?;
    let named = |names: &[String], info: Info| match names.is_empty() {
        true => (info.name.clone(), info),
        false => (names.join("/"), info),
    };
    let directories = tree.directories.into_iter();
    let directories = directories.map(|found| named(&found.names, found.info));
    let files = tree.files.into_iter();
    let mut rows: Vec<(String, Info)> = directories
        .chain(files.map(|file| named(&file.names, file.info)))
        .collect();
    rows.sort_by(|(a, _), (b, _)| a.split('/').cmp(b.split('/')));
    Ok((rows, tree.problems))
}

fn listing_line(name: &str, info: &Info, columns: ListingColumns) -> String {
    let name = one_line(name);
    let slash = if info.is_directory { "/" } else { "" };
    if columns == ListingColumns::Name {
        return format!("{name}{slash}\n");
    }
    let size = info
        .size_bytes
        .map_or_else(|| "-".to_owned(), |size| format!("{} B", size.0));
    let size = if info.is_directory {
        "-".to_owned()
    } else {
        size
    };
    let kind = if info.is_directory { 'd' } else { '-' };
    let locality = match columns {
        ListingColumns::LongWithLocality => {
            format!("{:<13} ", info.locality.map_or("-", Locality::name))
        }
        ListingColumns::Name | ListingColumns::Long => String::new(),
    };
    format!(
        "{kind} {size:>17} {locality}{} {name}{slash}\n",
        when(info.modified)
    )
}

fn when(at: Option<Timestamp>) -> String {
    at.map_or_else(|| format!("{:20}", "-"), |at| format!("{}Z", at.to_fts()))
}

#[derive(Serialize)]
struct StatReport {
    #[serde(flatten)]
    info: Info,
    checksum: Option<Checksum>,
}

/// `penstock stat`.
pub async fn stat(
    args: UrlArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let remote = open(&args.urls, Purpose::Read, &args.access, environment, 1)?;
    let remote = remote.with_locality();
    let mut reports = BatchResult::new();
    for url in &args.urls {
        reports.add(url, stat_one(&remote, url).await);
    }
    reports.conclude(output, |reports| reports.iter().map(stat_text).collect())
}

async fn stat_one(remote: &Remote, url: &Url) -> Result<StatReport, CommandError> {
    let info = remote.stat(url).await?;
    let checksum = match info.is_directory {
        true => None,
        false => {
            let head = remote.head(url, ChecksumAlgorithm::Adler32).await?;
            head.and_then(|head| head.checksums.into_iter().next())
        }
    };
    Ok(StatReport { info, checksum })
}

fn stat_text(report: &StatReport) -> String {
    let info = &report.info;
    let mut text = format!("{}\n  modified  {}\n", info.url, when(info.modified));
    if info.is_directory {
        return text + "  directory\n";
    }
    if let Some(size) = info.size_bytes {
        text += &format!("  size      {} B ({size})\n", size.0);
    }
    if let Some(checksum) = &report.checksum {
        text += &format!("  checksum  {checksum}\n");
    }
    if let Some(locality) = info.locality {
        text += &format!("  locality  {}\n", locality.name());
    }
    text
}

/// `penstock rm`.
pub async fn rm(
    args: RmArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let remote = open(&args.urls, Purpose::Modify, &args.access, environment, 1)?;
    let mut removed = BatchResult::new();
    for url in &args.urls {
        removed.add(url, remove_one(&remote, url, args.recursive).await);
    }
    removed.conclude(output, |_| String::new())
}

async fn remove_one<'a>(
    remote: &Remote,
    url: &'a Url,
    is_recursive: bool,
) -> Result<&'a Url, CommandError> {
    if !is_recursive && remote.stat(url).await?.is_directory {
        return Err(CommandError::Usage(format!(
            "{url} is a directory; use --recursive to delete it with its contents"
        )));
    }
    remote.delete(url).await?;
    Ok(url)
}

/// `penstock mkdir`.
pub async fn mkdir(
    args: MkdirArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let remote = open(&args.urls, Purpose::Modify, &args.access, environment, 1)?;
    let mut made = BatchResult::new();
    for url in &args.urls {
        made.add(url, make_one(&remote, url, args.parents).await);
    }
    made.conclude(output, |_| String::new())
}

async fn make_one<'a>(
    remote: &Remote,
    url: &'a Url,
    with_parents: bool,
) -> Result<&'a Url, CommandError> {
    if with_parents {
        remote.make_directories(url).await?;
    } else if remote.make_directory(url).await? == DirectoryOutcome::Before {
        return Err(CommandError::SomeFailed(format!(
            "{url} already exists; --parents accepts that"
        )));
    }
    Ok(url)
}

/// Whether a storage element says that this is a directory. Many say nothing of the kind of what they give.
async fn is_directory(remote: &Remote, url: &Url) -> bool {
    let found = remote.stat(url).await;
    found.is_ok_and(|found| found.is_directory)
}

fn not_a_file(url: &Url) -> CommandError {
    CommandError::Usage(format!("{url} is a directory; list it with `penstock ls`"))
}

/// `penstock cat`.
pub async fn cat(
    args: UrlArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let remote = open(&args.urls, Purpose::Read, &args.access, environment, 1)?;
    let mut failed = Vec::new();
    for url in &args.urls {
        let read = cat_one(&remote, url).await;
        match read {
            Ok(Reader::Reads) => {}
            // `penstock cat … | head` has seen enough.
            Ok(Reader::Gone) => break,
            // Nothing can be written any more.
            Err(why @ CommandError::Local(_)) => return Err(why),
            Err(why) => failed.push(why),
        }
    }
    std::io::stdout()
        .flush()
        .map_err(|why| CommandError::local("standard output", why))?;
    if args.urls.len() == 1 {
        return failed.pop().map_or(Ok(()), Err);
    }
    if failed.is_empty() {
        return Ok(());
    }
    // What was read stands on standard output.
    let errors: Vec<String> = failed.iter().map(ToString::to_string).collect();
    for why in errors.iter().filter(|_| !output.json) {
        Output::error(why);
    }
    let codes: Vec<u8> = failed.iter().map(CommandError::exit_code).collect();
    let text = format!("{} of {} failed", failed.len(), args.urls.len());
    Err(output.failure(&errors, String::new, CommandError::several(text, &codes)))
}

/// Whether somebody reads on.
enum Reader {
    Reads,
    Gone,
}

async fn cat_one(remote: &Remote, url: &Url) -> Result<Reader, CommandError> {
    let mut answer = remote.get(url, CAT_CHECKSUM, Wanted::Whole).await?;
    let told = digest::parse(&answer.headers).unwrap_or_default();
    // A page that lists a directory has no checksum.
    if told.is_empty() && is_directory(remote, url).await {
        return Err(not_a_file(url));
    }
    let mut hasher = Hasher::new(&[CAT_CHECKSUM]);
    let mut block = vec![0; 256 << 10];
    loop {
        let length = answer.read(&mut block).await.map_err(RemoteError::from)?;
        if length == 0 {
            break;
        }
        hasher.update(&block[..length]);
        match std::io::stdout().write_all(&block[..length]) {
            Ok(()) => {}
            Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => {
                return Ok(Reader::Gone);
            }
            Err(why) => return Err(CommandError::local("standard output", why)),
        }
    }
    let found = hasher.finish().swap_remove(0);
    if let Some(told) = told
        .iter()
        .find(|told| told.algorithm() == CAT_CHECKSUM && **told != found)
    {
        return Err(CommandError::Verification(format!(
            "{url}: the received data has {found}, but the storage element reports {told}; do not use this data"
        )));
    }
    Ok(Reader::Reads)
}

#[derive(Serialize)]
struct ChecksumReport<'a> {
    url: &'a Url,
    checksum: Checksum,
    size: Option<Bytes>,
}

/// `penstock checksum`.
pub async fn checksum(
    args: ChecksumArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let remote = open(&args.urls, Purpose::Read, &args.access, environment, 1)?;
    let mut reports = BatchResult::new();
    for url in &args.urls {
        reports.add(url, checksum_of_one(&remote, url, args.algorithm).await);
    }
    reports.conclude(output, |reports| {
        let lines = reports.iter();
        let line = |report: &ChecksumReport| format!("{}  {}\n", report.checksum, report.url);
        lines.map(line).collect()
    })
}

async fn checksum_of_one<'a>(
    remote: &Remote,
    url: &'a Url,
    algorithm: ChecksumAlgorithm,
) -> Result<ChecksumReport<'a>, CommandError> {
    let head = remote.head(url, algorithm).await?;
    let head = head.ok_or_else(|| RemoteError::not_found(url.to_string()))?;
    let mut told = head.checksums.into_iter();
    match told.find(|told| told.algorithm() == algorithm) {
        Some(checksum) => Ok(ChecksumReport {
            url,
            checksum,
            size: head.size,
        }),
        None if is_directory(remote, url).await => Err(not_a_file(url)),
        None => Err(CommandError::NotFound(format!(
            "{url}: the storage element reports no {algorithm} checksum"
        ))),
    }
}
