//! One file up: read, send, compare.

use super::blocks::{Blocks, Next, Source, checksum_of};
use super::{Context, CopyResult, Existing, FileOutcome, with_retries};
use crate::remote::Occupied;
use crate::remote_error::RemoteError;
use penstock_model::url::redact;
use penstock_model::{Bytes, Checksum};
use penstock_protocol::http1::client;
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

/// What is there already.
pub(super) async fn find(context: &Context, file: &Upload) -> Result<Existing, RemoteError> {
    let algorithm = context.options.algorithm;
    let seen = with_retries(|| context.remote.head(&file.destination, algorithm)).await?;
    let Some(seen) = seen else {
        return Ok(Existing::Nothing);
    };
    let other = || Existing::Other(redact(file.destination.as_str()));
    if seen.size.is_some_and(|size| size != file.size) {
        return Ok(other());
    }
    let checksum = checksum_of(file.source.clone(), file.size.0, algorithm).await;
    let checksum = checksum.map_err(RemoteError::local(&file.path()))?;
    match seen.checksums.contains(&checksum) {
        true => Ok(Existing::Same(FileOutcome {
            size: file.size,
            checksum,
            how: CopyResult::Skipped,
        })),
        false => Ok(other()),
    }
}

/// The whole of it in one request.
pub(super) async fn write(
    context: &Context,
    file: &Upload,
    occupied: Occupied,
) -> Result<FileOutcome, RemoteError> {
    let algorithm = context.options.algorithm;
    let blocks = Blocks::open(file.source.clone(), file.size.0, algorithm).await;
    let blocks = blocks.map_err(RemoteError::local(&file.path()))?;
    let upload = context
        .remote
        .put(&file.destination, file.size, algorithm, occupied)
        .await?;
    let mut sent = 0;
    let outcome = send(context, file, upload, blocks, &mut sent).await;
    if outcome.is_err() {
        context.progress.take_back(sent);
    }
    let (checksum, told) = outcome?;
    verify(context, file, checksum, told).await
}

/// Sends blocks to their end. Gives back the checksum of all of the file, and those that the answer tells.
pub(super) async fn send(
    context: &Context,
    file: &Upload,
    mut upload: client::Upload,
    mut blocks: Blocks,
    sent: &mut u64,
) -> Result<(Checksum, Vec<Checksum>), RemoteError> {
    let bandwidth = &context.options.bandwidth;
    let mut spare = None;
    loop {
        let next = blocks.next(spare.take()).await;
        match next.map_err(RemoteError::local(&file.path()))? {
            Next::Block(block, rest) => {
                for piece in block.chunks(bandwidth.piece(block.len()).max(1)) {
                    bandwidth.pass(piece.len()).await;
                    upload.write_all(piece).await?;
                    *sent += piece.len() as u64;
                    context.progress.moved(piece.len() as u64);
                }
                spare = Some(block);
                blocks = rest;
            }
            Next::End(checksum) => {
                let told = context.remote.finish(&file.destination, upload).await?;
                return Ok((checksum, told));
            }
        }
    }
}

/// Compares what is there with what was sent.
pub(super) async fn verify(
    context: &Context,
    file: &Upload,
    checksum: Checksum,
    told: Vec<Checksum>,
) -> Result<FileOutcome, RemoteError> {
    let algorithm = context.options.algorithm;
    let mut told = told.into_iter();
    let found = match told.find(|told| told.algorithm() == algorithm) {
        Some(told) => told,
        None => {
            context
                .remote
                .checksum(&file.destination, algorithm)
                .await?
        }
    };
    if found != checksum {
        // What is there is ours and wrong; that it may stay behind is said by the error of whoever reads it.
        if let Err(why) = context.remote.delete(&file.destination).await {
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

impl Upload {
    /// What stands for its source in an error.
    fn path(&self) -> PathBuf {
        match &self.source {
            Source::File(path) => path.clone(),
            Source::Generated(plan) => PathBuf::from(&plan.name),
        }
    }
}
