//! One file up: read, send, compare.

use super::blocks::{Blocks, Next, Source, checksum_of};
use super::{CopyResult, FileOutcome, Options, keep_or_copy, with_retries};
use crate::progress::Progress;
use crate::remote::Remote;
use crate::remote_error::RemoteError;
use penstock_model::url::redact;
use penstock_model::{Bytes, Checksum};
use std::io;
use std::path::PathBuf;
use url::Url;

/// A file to copy to a storage element.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Where its content comes from.
    pub source: Source,
    pub size: Bytes,
    /// Where it goes.
    pub destination: Url,
}

pub(super) async fn run(
    remote: &Remote,
    file: &Upload,
    options: Options,
    progress: &Progress,
) -> Result<FileOutcome, RemoteError> {
    let find = find_existing(remote, file, options);
    let copy = || write(remote, file, options, progress);
    keep_or_copy(options.existing, progress, find, copy).await
}

/// The file as it is there already; `None` when there is none. An error when its content is another.
async fn find_existing(
    remote: &Remote,
    file: &Upload,
    options: Options,
) -> Result<Option<FileOutcome>, RemoteError> {
    let seen = with_retries(|| remote.head(&file.destination, options.algorithm)).await?;
    let Some(seen) = seen else {
        return Ok(None);
    };
    let exists = || RemoteError::Exists(redact(file.destination.as_str()));
    if seen.size.is_some_and(|size| size != file.size) {
        return Err(exists());
    }
    let checksum = checksum_of(file.source.clone(), file.size.0, options.algorithm).await;
    let checksum = checksum.map_err(|why| unreadable(file, why))?;
    match seen.checksums.contains(&checksum) {
        true => Ok(Some(FileOutcome {
            size: file.size,
            checksum,
            how: CopyResult::Skipped,
        })),
        false => Err(exists()),
    }
}

async fn write(
    remote: &Remote,
    file: &Upload,
    options: Options,
    progress: &Progress,
) -> Result<FileOutcome, RemoteError> {
    let mut sent = 0;
    let outcome = send(remote, file, options, |bytes| {
        sent += bytes;
        progress.moved(bytes);
    })
    .await;
    if outcome.is_err() {
        progress.take_back(sent);
    }
    let (checksum, told) = outcome?;
    let found = match told
        .into_iter()
        .find(|told| told.algorithm() == options.algorithm)
    {
        Some(told) => told,
        None => {
            remote
                .checksum(&file.destination, options.algorithm)
                .await?
        }
    };
    if found != checksum {
        // What is there is ours and wrong; that it may stay behind is said by the error of whoever reads it.
        if let Err(why) = remote.delete(&file.destination).await {
            tracing::warn!(%why, "the bad copy could not be removed");
        }
        return Err(RemoteError::differs(
            &redact(file.destination.as_str()),
            &checksum,
            &found,
        ));
    }
    Ok(FileOutcome {
        size: file.size,
        checksum,
        how: CopyResult::Copied,
    })
}

async fn send(
    remote: &Remote,
    file: &Upload,
    options: Options,
    mut moved: impl FnMut(u64),
) -> Result<(Checksum, Vec<Checksum>), RemoteError> {
    let mut upload = remote.put(&file.destination, file.size).await?;
    let mut blocks = Blocks::start(file.source.clone(), file.size.0, options.algorithm);
    let mut spare = None;
    loop {
        match blocks
            .next(spare.take())
            .await
            .map_err(|why| unreadable(file, why))?
        {
            Next::Block(block, rest) => {
                upload.write_all(&block).await?;
                moved(block.len() as u64);
                spare = Some(block);
                blocks = rest;
            }
            Next::End(checksum) => {
                let told = remote.finish(&file.destination, upload).await?;
                return Ok((checksum, told));
            }
        }
    }
}

fn unreadable(file: &Upload, why: io::Error) -> RemoteError {
    let path = match &file.source {
        Source::File(path) => path.clone(),
        Source::Generated(plan) => PathBuf::from(&plan.name),
    };
    RemoteError::Local { path, why }
}
