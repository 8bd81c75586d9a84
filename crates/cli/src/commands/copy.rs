//! `penstock copy`: decides from its two arguments which way a copy goes, and reports how it went.

mod between;

use crate::args::{CopyArgs, parse_url};
use crate::commands::access::Purpose;
use crate::commands::files::open;
use crate::commands::progress::shown;
use crate::environment::Environment;
use crate::exit::{CommandError, VERIFICATION_FAILED};
use crate::output::Output;
use penstock_field_tools::bulk_copy::{
    CopyResult, Download, ExistingCopy, FileOutcome, Options, Source, Upload, download_all,
    upload_all,
};
use penstock_field_tools::local_tree;
use penstock_field_tools::progress::Progress;
use penstock_field_tools::remote::{Remote, below, parent};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree;
use penstock_model::text::plural;
use penstock_model::{Bytes, Rate, TimeSpan};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CopyEnd {
    Local(PathBuf),
    Remote(Url),
}

impl CopyEnd {
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

/// One file of a copy and how it ended.
pub struct CopiedFile {
    name: String,
    outcome: Result<(CopyResult, Bytes), CommandError>,
}

/// `penstock copy`.
pub async fn run(
    args: CopyArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let started = Instant::now();
    let (source, destination) = (
        CopyEnd::parse(&args.source)?,
        CopyEnd::parse(&args.destination)?,
    );
    let copying = async {
        match (source, destination) {
            (CopyEnd::Local(from), CopyEnd::Remote(to)) => {
                up(&from, &to, &args, environment, output).await
            }
            (CopyEnd::Remote(from), CopyEnd::Local(to)) => {
                down(&from, &to, &args, environment, output).await
            }
            (CopyEnd::Remote(from), CopyEnd::Remote(to)) => {
                between::run(&from, &to, &args, environment, output).await
            }
            (CopyEnd::Local(_), CopyEnd::Local(_)) => Err(CommandError::Usage(
                "source and destination are both local; use cp".to_owned(),
            )),
        }
    };
    let files = tokio::select! {
        files = copying => files?,
        _ = tokio::signal::ctrl_c() => {
            let text = "stopped; run the same command again to continue: finished files are skipped";
            return Err(CommandError::Interrupted(text.to_owned()));
        }
    };
    conclude(files, started.elapsed(), output)
}

fn options(args: &CopyArgs) -> Options {
    Options {
        parallel: usize::from(args.parallel),
        existing: if args.overwrite {
            ExistingCopy::Replace
        } else {
            ExistingCopy::Keep
        },
        algorithm: args.checksum,
    }
}

async fn up(
    from: &Path,
    to: &Url,
    args: &CopyArgs,
    environment: &Environment,
    output: Output,
) -> Result<Vec<CopiedFile>, CommandError> {
    let metadata = std::fs::metadata(from).map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound => {
            CommandError::NotFound(format!("{} does not exist", from.display()))
        }
        _ => CommandError::local(from.display(), why),
    })?;
    let remote = open(
        std::slice::from_ref(to),
        Purpose::Modify,
        &args.access,
        environment,
        usize::from(args.parallel),
    )?;
    let uploads = match metadata.is_dir() {
        true => upload_tree(&remote, from, to, output).await?,
        false => {
            let name = from
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            let destination = place_of_file(&remote, to, name).await?;
            if let Some(above) = parent(&destination) {
                make_parents(&remote, &above).await;
            }
            vec![Upload {
                source: Source::File(from.to_owned()),
                size: Bytes(metadata.len()),
                destination,
            }]
        }
    };
    let names: Vec<String> = uploads
        .iter()
        .map(|upload| upload.destination.to_string())
        .collect();
    let progress = Arc::new(Progress::new());
    let outcomes = shown(
        &progress,
        output,
        upload_all(&remote, uploads, options(args), &progress),
    )
    .await;
    Ok(named(names, outcomes))
}

async fn upload_tree(
    remote: &Remote,
    from: &Path,
    to: &Url,
    output: Output,
) -> Result<Vec<Upload>, CommandError> {
    let tree = local_tree::walk(from).map_err(|why| CommandError::Local(why.to_string()))?;
    for skipped in &tree.skipped {
        output.say(format_args!(
            "skipped symbolic link or special file: {}",
            skipped.display()
        ));
    }
    remote.make_directories(to).await?;
    for names in &tree.directories {
        remote.make_directory(&below(to, names)?).await?;
    }
    let upload = |file: local_tree::LocalFile| {
        Ok(Upload {
            destination: below(to, &file.names)?,
            source: Source::File(file.path),
            size: file.size,
        })
    };
    tree.files.into_iter().map(upload).collect()
}

/// Where a single file goes: into the destination when that is a directory, else to that very name.
async fn place_of_file(
    remote: &Remote,
    to: &Url,
    name: Option<String>,
) -> Result<Url, CommandError> {
    let into_directory = to.path().ends_with('/')
        || match remote.stat(to).await {
            Ok(info) => info.is_directory,
            Err(RemoteError::NotFound { .. }) => false,
            // A token for writing need not allow looking; then the name is taken as it is.
            Err(RemoteError::NotAuthorised { .. }) => false,
            Err(why) => return Err(why.into()),
        };
    match (into_directory, name) {
        (true, Some(name)) => Ok(below(to, &[name])?),
        (_, _) => Ok(to.clone()),
    }
}

/// Many storage elements make parents themselves, and a narrow token may not allow it here: the upload tells.
async fn make_parents(remote: &Remote, directory: &Url) {
    if let Err(why) = remote.make_directories(directory).await {
        tracing::debug!(%why, "parents were not made");
    }
}

async fn down(
    from: &Url,
    to: &Path,
    args: &CopyArgs,
    environment: &Environment,
    output: Output,
) -> Result<Vec<CopiedFile>, CommandError> {
    let parallel = usize::from(args.parallel);
    let remote = open(
        std::slice::from_ref(from),
        Purpose::Read,
        &args.access,
        environment,
        parallel,
    )?;
    let found = remote.stat(from).await?;
    let downloads = match found.is_directory {
        false => {
            let into_directory = to.is_dir() || to.as_os_str().to_string_lossy().ends_with('/');
            let destination = if into_directory {
                to.join(&found.name)
            } else {
                to.to_owned()
            };
            vec![Download {
                source: from.clone(),
                size: found.size_bytes,
                destination,
            }]
        }
        true => {
            let tree = remote_tree::walk(&remote, from, parallel).await?;
            for names in &tree.directories {
                let directory = to.join(names.iter().collect::<PathBuf>());
                std::fs::create_dir_all(&directory)
                    .map_err(|why| CommandError::local(directory.display(), why))?;
            }
            std::fs::create_dir_all(to).map_err(|why| CommandError::local(to.display(), why))?;
            let download = |file: remote_tree::RemoteFile| Download {
                destination: to.join(file.names.iter().collect::<PathBuf>()),
                source: file.url,
                size: file.size,
            };
            tree.files.into_iter().map(download).collect()
        }
    };
    let names: Vec<String> = downloads
        .iter()
        .map(|download| download.destination.display().to_string())
        .collect();
    let progress = Arc::new(Progress::new());
    let outcomes = shown(
        &progress,
        output,
        download_all(&remote, downloads, options(args), &progress),
    )
    .await;
    Ok(named(names, outcomes))
}

fn named(names: Vec<String>, outcomes: Vec<Result<FileOutcome, RemoteError>>) -> Vec<CopiedFile> {
    let file = |(name, outcome): (String, Result<FileOutcome, RemoteError>)| CopiedFile {
        name,
        outcome: outcome
            .map(|arrived| (arrived.how, arrived.size))
            .map_err(CommandError::from),
    };
    names.into_iter().zip(outcomes).map(file).collect()
}

#[derive(Debug, Default, Serialize)]
struct CopyReport {
    files: usize,
    copied: usize,
    skipped: usize,
    bytes: Bytes,
    seconds: f64,
    bytes_per_second: Option<Rate>,
    failed: Vec<FailedCopy>,
}

#[derive(Debug, Serialize)]
struct FailedCopy {
    name: String,
    error: String,
}

/// Reports; the error of a single file is the command's, of several the gravest kind.
fn conclude(files: Vec<CopiedFile>, elapsed: Duration, output: Output) -> Result<(), CommandError> {
    let total = files.len();
    let mut report = CopyReport {
        files: total,
        seconds: elapsed.as_secs_f64(),
        ..CopyReport::default()
    };
    let mut errors = Vec::new();
    for file in files {
        match file.outcome {
            Ok((CopyResult::Skipped, _)) => report.skipped += 1,
            Ok((CopyResult::Copied, size)) => {
                report.copied += 1;
                report.bytes.0 += size.0;
            }
            Err(why) => {
                report.failed.push(FailedCopy {
                    name: file.name,
                    error: why.to_string(),
                });
                errors.push(why);
            }
        }
    }
    report.bytes_per_second = Rate::over(report.bytes, elapsed);
    if total == 1
        && let Some(why) = errors.pop()
    {
        return Err(why);
    }
    let outcome = match errors
        .iter()
        .any(|why| why.exit_code() == VERIFICATION_FAILED)
    {
        _ if errors.is_empty() => Ok(()),
        true => Err(CommandError::Verification(format!(
            "{} of {total} files failed",
            errors.len()
        ))),
        false => Err(CommandError::SomeFailed(format!(
            "{} of {total} files failed",
            errors.len()
        ))),
    };
    output.conclude(&report, || summary(&report), outcome)
}

fn summary(report: &CopyReport) -> String {
    let mut text: String = report
        .failed
        .iter()
        .map(|failed| format!("failed: {}\n", failed.error))
        .collect();
    let rate = report.bytes_per_second;
    let rate = rate.map_or_else(String::new, |rate| format!(" ({rate})"));
    text += &format!(
        "{}, {} copied in {:.1}{rate}",
        plural(report.copied as u64, "file"),
        report.bytes,
        TimeSpan(Duration::from_secs_f64(report.seconds))
    );
    if report.skipped > 0 {
        text += &format!(", {} already there", report.skipped);
    }
    text + "\n"
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
}
