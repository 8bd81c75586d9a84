//! One large file up, so that what has arrived is kept: when the connection breaks the rest is sent, when the command ends
//! the next one goes on.

use super::blocks::{Blocks, OpenedFile, changed};
use super::upload::{Upload, send, verify, write};
use super::{Context, CopyResult, FileOutcome, while_it_advances, with_retries};
use crate::remote::{Occupied, Rest, UploadState};
use crate::remote_error::RemoteError;
use crate::unfinished_uploads::{SourceState, UnfinishedUploads};
use http::StatusCode;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;
use url::Url;

/// A file on its way, and where it is known to be.
struct Sending<'a> {
    context: &'a Context,
    file: &'a Upload,
    path: &'a Path,
    source: SourceState,
    occupied: Occupied,
    /// The upload that it goes on with.
    upload: Mutex<Option<Url>>,
    /// Bytes of it that are durable there, as the server told last.
    durable: AtomicU64,
}

pub(super) async fn run(
    context: &Context,
    file: &Upload,
    path: &Path,
    occupied: Occupied,
) -> Result<FileOutcome, RemoteError> {
    let opened = OpenedFile::open(path).map_err(RemoteError::local(path))?;
    if opened.version.size != file.size.0 {
        return Err(RemoteError::local(path)(changed()));
    }
    let source = SourceState::of(path, opened.version);
    let notes = context.options.unfinished.as_ref();
    let known = notes.and_then(|notes| notes.find(&source, &file.destination));
    let sending = Sending {
        context,
        file,
        path,
        source,
        occupied,
        upload: Mutex::new(known),
        durable: AtomicU64::new(0),
    };
    let outcome = while_it_advances(
        || sending.durable.load(Ordering::Relaxed),
        |why| why.is_transient() || sending.lost_its_place(why),
        || sending.go_on(),
    )
    .await;
    match outcome {
        Ok(outcome) => {
            sending.forget().await;
            Ok(outcome)
        }
        // It has begun too many: this one goes whole.
        Err(why) if why.status() == Some(StatusCode::TOO_MANY_REQUESTS) => {
            with_retries(|| write(context, file, occupied)).await
        }
        Err(why) => {
            // Where no later run finds it, or could end it, it only takes room.
            let is_final = why.status() == Some(StatusCode::PRECONDITION_FAILED);
            if notes.is_none() || is_final || sending.open().is_err() {
                sending.give_up().await;
            }
            Err(why)
        }
    }
}

impl Sending<'_> {
    /// One attempt: learns what is there, and sends the rest.
    async fn go_on(&self) -> Result<FileOutcome, RemoteError> {
        let (upload, state) = self.found_or_begun().await?;
        let kept = self.notes().map(|_| self.context.progress.keeping());
        if state.is_complete {
            return self.verify_complete().await;
        }
        let outcome = self.send_from(&upload, state.offset).await;
        drop(kept);
        outcome
    }

    /// Opens the file, which must be the one that the upload was begun with: what the server has is of that.
    fn open(&self) -> Result<OpenedFile, RemoteError> {
        let opened = OpenedFile::open(self.path).map_err(RemoteError::local(self.path))?;
        match SourceState::of(self.path, opened.version) == self.source {
            true => Ok(opened),
            false => Err(RemoteError::local(self.path)(changed())),
        }
    }

    /// The server has another part of it than was thought, or gave its turn to another request.
    fn lost_its_place(&self, why: &RemoteError) -> bool {
        let has_begun = self.upload.try_lock().is_ok_and(|upload| upload.is_some());
        has_begun && why.status() == Some(StatusCode::CONFLICT)
    }

    fn notes(&self) -> Option<&UnfinishedUploads> {
        self.context.options.unfinished.as_ref()
    }

    async fn found_or_begun(&self) -> Result<(Url, UploadState), RemoteError> {
        let known = self.upload.lock().await.clone();
        if let Some(upload) = known {
            match self.context.remote.state_of_pieces(&upload).await? {
                Some(state) if state.offset <= self.file.size.0 => {
                    self.durable.store(state.offset, Ordering::Relaxed);
                    return Ok((upload, state));
                }
                Some(_) => self.give_up().await,
                None => self.forget().await,
            }
        }
        let begun = self
            .context
            .remote
            .begin_pieces(&self.file.destination, self.file.size, self.occupied)
            .await?;
        if let Some(notes) = self.notes()
            && let Err(why) = notes.keep(&self.source, &self.file.destination, &begun)
        {
            tracing::warn!(%why, "another run could not go on with this upload");
        }
        *self.upload.lock().await = Some(begun.clone());
        let state = UploadState {
            offset: 0,
            is_complete: false,
        };
        Ok((begun, state))
    }

    async fn send_from(&self, upload: &Url, offset: u64) -> Result<FileOutcome, RemoteError> {
        let (size, algorithm) = (self.file.size.0, self.context.options.algorithm);
        let blocks = Blocks::behind(offset, self.open()?, algorithm).await;
        let blocks = blocks.map_err(RemoteError::local(self.path))?;
        let rest = Rest {
            offset,
            length: size - offset,
        };
        let remote = &self.context.remote;
        let opened = remote.send_rest(upload, rest).await?;
        let progress = &self.context.progress;
        progress.found(offset);
        let mut sent = 0;
        let outcome = async {
            let (checksum, _) = send(self.context, self.file, opened, blocks, &mut sent).await?;
            let size = self.file.size;
            let told = remote.complete_pieces(upload, size, &checksum).await?;
            Ok::<_, RemoteError>((checksum, told))
        };
        let outcome = outcome.await;
        if outcome.is_err() {
            progress.lose(offset);
            progress.take_back(sent);
        }
        let (checksum, told) = outcome?;
        let outcome = verify(self.context, self.file, checksum, told).await?;
        Ok(FileOutcome {
            how: CopyResult::behind(offset),
            ..outcome
        })
    }

    /// All of it had arrived, and nobody heard the answer.
    async fn verify_complete(&self) -> Result<FileOutcome, RemoteError> {
        let size = self.file.size.0;
        let blocks = Blocks::behind(size, self.open()?, self.context.options.algorithm).await;
        let blocks = blocks.map_err(RemoteError::local(self.path))?;
        let checksum = blocks.checksum().await;
        let checksum = checksum.map_err(RemoteError::local(self.path))?;
        self.context.progress.found(size);
        let outcome = verify(self.context, self.file, checksum, Vec::new()).await?;
        Ok(FileOutcome {
            how: CopyResult::behind(size),
            ..outcome
        })
    }

    async fn forget(&self) {
        *self.upload.lock().await = None;
        self.durable.store(0, Ordering::Relaxed);
        if let Some(notes) = self.notes() {
            notes.forget(&self.source, &self.file.destination);
        }
    }

    async fn give_up(&self) {
        let known = self.upload.lock().await.clone();
        self.forget().await;
        if let Some(upload) = known
            && let Err(why) = self.context.remote.delete(&upload).await
        {
            tracing::debug!(%why, "an upload was not given up");
        }
    }
}
