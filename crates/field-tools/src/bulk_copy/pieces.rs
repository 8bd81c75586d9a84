//! One large file up, so that what has arrived is kept: when the connection breaks the rest is sent, when the command ends
//! the next one goes on.

use super::blocks::{Blocks, OpenedFile, changed};
use super::upload::{Sent, Upload, find, send, verify, write};
use super::{Context, CopyResult, Existing, FileOutcome, while_it_advances, with_retries};
use crate::local_source::LocalSource;
use crate::remote::{Rest, UploadState};
use crate::remote_error::RemoteError;
use crate::replaceable::Replaceable;
use crate::unfinished_uploads::{SourceState, UnfinishedUpload, UnfinishedUploads};
use http::StatusCode;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;
use url::Url;

/// A file on its way, and where it is known to be.
struct Sending<'a> {
    context: &'a Context,
    file: &'a Upload,
    local: &'a LocalSource,
    source: SourceState,
    replaceable: &'a Replaceable<String>,
    /// The upload that it goes on with.
    upload: Mutex<Option<Url>>,
    /// Bytes of it that are durable there, as the server told last.
    durable: AtomicU64,
}

pub(super) async fn run(
    context: &Context,
    file: &Upload,
    local: &LocalSource,
    replaceable: &Replaceable<String>,
) -> Result<FileOutcome, RemoteError> {
    let path = local.path();
    let opened = OpenedFile::open(local.clone()).await;
    let opened = opened.map_err(RemoteError::local(path))?;
    if opened.version.size != file.size.0 {
        return Err(RemoteError::local(path)(changed()));
    }
    let source = SourceState::of(path, opened.version);
    let notes = context.options.unfinished.as_ref();
    let known = notes.and_then(|notes| notes.find(&source, &file.destination));
    let is_outdated = known
        .as_ref()
        .is_some_and(|known| known.replaceable != *replaceable);
    let sending = Sending {
        context,
        file,
        local,
        source,
        replaceable,
        upload: Mutex::new(known.map(|known| known.url)),
        durable: AtomicU64::new(0),
    };
    // The server does what it was told at the beginning: which file to replace, if any.
    if is_outdated {
        sending.give_up().await;
    }
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
            with_retries(|| write(context, file, replaceable)).await
        }
        Err(why) => {
            // Where no later run finds it, or could end it, it only takes room.
            let is_final = why.status() == Some(StatusCode::PRECONDITION_FAILED);
            if notes.is_none() || is_final || sending.open().await.is_err() {
                sending.give_up().await;
            }
            Err(why)
        }
    }
}

impl Sending<'_> {
    /// One attempt: learns what is there, and sends the rest.
    async fn go_on(&self) -> Result<FileOutcome, RemoteError> {
        let (mut upload, mut state) = self.found_or_begun().await?;
        if state.is_complete {
            if let Some(outcome) = self.arrived().await? {
                return Ok(outcome);
            }
            // It was there, and has been replaced or removed since.
            self.forget().await;
            (upload, state) = self.found_or_begun().await?;
        }
        let kept = self.notes().map(|_| self.context.progress.keeping());
        let outcome = self.send_from(&upload, state.offset).await;
        drop(kept);
        outcome
    }

    /// Opens the file, which must be the one that the upload was begun with: what the server has is of that.
    async fn open(&self) -> Result<OpenedFile, RemoteError> {
        let path = self.local.path();
        let opened = OpenedFile::open(self.local.clone()).await;
        let opened = opened.map_err(RemoteError::local(path))?;
        match SourceState::of(path, opened.version) == self.source {
            true => Ok(opened),
            false => Err(RemoteError::local(path)(changed())),
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
            .begin_pieces(&self.file.destination, self.file.size, self.replaceable)
            .await?;
        let noted = UnfinishedUpload {
            url: begun.clone(),
            replaceable: self.replaceable.clone(),
        };
        if let Some(notes) = self.notes()
            && let Err(why) = notes.keep(&self.source, &self.file.destination, &noted)
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
        let (size, checksums) = (self.file.size.0, self.context.options.checksums);
        let blocks = Blocks::behind(offset, self.open().await?, checksums).await;
        let blocks = blocks.map_err(RemoteError::local(self.local.path()))?;
        let rest = Rest {
            offset,
            length: size - offset,
        };
        let remote = &self.context.remote;
        let opened = remote.send_rest(upload, rest, checksums).await?;
        let progress = &self.context.progress;
        progress.found(offset);
        let mut sent = 0;
        let outcome = async {
            let Sent { checksums, .. } =
                send(self.context, self.file, opened, blocks, &mut sent).await?;
            let size = self.file.size;
            let wanted = self.context.options.checksums;
            let written = remote.complete_pieces(upload, size, wanted, &checksums);
            let written = written.await?;
            Ok::<_, RemoteError>(Sent { checksums, written })
        };
        let outcome = outcome.await;
        if outcome.is_err() {
            progress.lose(offset);
            progress.take_back(sent);
        }
        let outcome = verify(self.context, self.file, outcome?).await?;
        Ok(FileOutcome {
            how: CopyResult::behind(offset),
            ..outcome
        })
    }

    /// All of it had arrived, and nobody heard the answer. `None`: it is not there any more.
    async fn arrived(&self) -> Result<Option<FileOutcome>, RemoteError> {
        self.open().await?;
        let size = self.file.size;
        match find(self.context, self.file).await? {
            Existing::Same(outcome) => {
                self.context.progress.found(size.0);
                Ok(Some(FileOutcome {
                    how: CopyResult::behind(size.0),
                    ..outcome
                }))
            }
            Existing::Nothing | Existing::Other { .. } => Ok(None),
        }
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
        let Some(upload) = known else { return };
        // The request before may not have ended yet.
        if let Err(why) = with_retries(|| self.context.remote.delete(&upload)).await {
            tracing::debug!(%why, "an upload was not given up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk_copy::{ExistingCopy, Options, Source};
    use crate::checksum_choice::ChecksumChoice;
    use crate::progress::Progress;
    use crate::test_server::{TestReply, TestRequest, TestServer};
    use penstock_model::{Bytes, ChecksumAlgorithm};
    use penstock_protocol::checksum::Hasher;
    use penstock_protocol::digest;
    use std::sync::Arc;

    const CONTENT: &[u8] = b"what is sent";

    fn told(reply: TestReply, content: &[u8]) -> TestReply {
        let mut hasher = Hasher::new(&[ChecksumAlgorithm::Crc32c]);
        hasher.update(content);
        let value = digest::header_value(&hasher.finish());
        reply.with("digest", value.to_str().expect("visible"))
    }

    /// Takes uploads in pieces. The first has arrived before; what stands at its place now is given.
    fn server_with(there: Option<&'static [u8]>) -> impl FnMut(&TestRequest) -> TestReply {
        move |request| match (request.method.as_str(), request.path.as_str()) {
            ("HEAD", "/up/1") => TestReply::status(204)
                .with("upload-offset", CONTENT.len().to_string())
                .with("upload-complete", "?1"),
            ("HEAD", "/d/f") => match there {
                None => TestReply::status(404),
                Some(content) => {
                    let length = content.len().to_string();
                    told(TestReply::status(200), content).with("content-length", length)
                }
            },
            ("PUT", "/d/f") if there.is_some() && request.header("if-none-match") == "*" => {
                TestReply::status(412)
            }
            ("PUT", "/d/f") => TestReply::status(201).with("location", "/up/2"),
            ("PATCH", "/up/2") if request.header("upload-complete") == "?0" => {
                assert_eq!(request.body, CONTENT);
                TestReply::status(204)
            }
            ("PATCH", "/up/2") => {
                let reply = TestReply::status(201).with("etag", "\"2\"");
                told(reply, CONTENT)
            }
            ("DELETE", path) if path.starts_with("/up/") => TestReply::status(204),
            other => panic!("{other:?}"),
        }
    }

    struct Lab {
        server: TestServer,
        outcome: Result<FileOutcome, RemoteError>,
        is_noted: bool,
    }

    /// Goes on with a noted upload.
    async fn go_on(
        there: Option<&'static [u8]>,
        noted: Replaceable<String>,
        now: Replaceable<String>,
    ) -> Lab {
        let server = TestServer::start(server_with(there)).await;
        let directory = tempfile::tempdir().expect("made");
        let path = directory.path().join("f");
        std::fs::write(&path, CONTENT).expect("written");
        let notes = UnfinishedUploads::open(&directory.path().join("state")).expect("made");
        let local = LocalSource::named(&path).expect("found");
        let file = Upload {
            source: Source::File(local.clone()),
            size: Bytes(CONTENT.len() as u64),
            destination: server.url("/d/f"),
        };
        let source = OpenedFile::open(local.clone()).await.expect("there");
        let source = SourceState::of(&path, source.version);
        let begun = UnfinishedUpload {
            url: server.url("/up/1"),
            replaceable: noted,
        };
        notes
            .keep(&source, &file.destination, &begun)
            .expect("kept");
        let options = Options {
            unfinished: Some(notes.clone()),
            ..Options::new(1, ExistingCopy::Keep, ChecksumChoice::Strongest)
        };
        let context = Context::new(&server.remote(), options, &Arc::new(Progress::new()));
        let outcome = run(&context, &file, &local, &now).await;
        Lab {
            server,
            outcome,
            is_noted: notes.find(&source, &file.destination).is_some(),
        }
    }

    #[tokio::test]
    async fn one_that_had_arrived_is_done_while_it_is_there() {
        let lab = go_on(Some(CONTENT), Replaceable::Nothing, Replaceable::Nothing).await;
        let all = CopyResult::behind(CONTENT.len() as u64);
        assert_eq!(lab.outcome.map(|outcome| outcome.how).ok(), Some(all));
        assert!(lab.server.asked("PUT").is_empty() && !lab.is_noted);
    }

    #[tokio::test]
    async fn one_that_had_arrived_and_is_gone_is_sent_anew() {
        let lab = go_on(None, Replaceable::Nothing, Replaceable::Nothing).await;
        let how = lab.outcome.map(|outcome| outcome.how);
        assert_eq!(how.ok(), Some(CopyResult::Copied));
        assert_eq!(lab.server.asked("PATCH"), ["/up/2", "/up/2"]);
        assert!(lab.server.asked("DELETE").is_empty() && !lab.is_noted);
    }

    #[tokio::test]
    async fn what_another_has_put_in_its_place_is_not_removed() {
        let other = Some(&b"of somebody "[..]);
        let lab = go_on(other, Replaceable::Nothing, Replaceable::Nothing).await;
        let status = lab.outcome.as_ref().err().and_then(RemoteError::status);
        assert_eq!(
            status,
            Some(StatusCode::PRECONDITION_FAILED),
            "{:?}",
            lab.outcome
        );
        assert!(!lab.server.asked("DELETE").contains(&"/d/f".to_owned()) && !lab.is_noted);
        let lab = go_on(other, Replaceable::Anything, Replaceable::Anything).await;
        assert!(lab.outcome.is_ok(), "{:?}", lab.outcome);
        assert!(lab.server.asked("DELETE").is_empty());
    }

    #[tokio::test]
    async fn one_that_may_replace_is_not_gone_on_with_by_one_that_may_not() {
        let other = Some(&b"of somebody "[..]);
        let lab = go_on(other, Replaceable::Anything, Replaceable::Nothing).await;
        let status = lab.outcome.as_ref().err().and_then(RemoteError::status);
        assert_eq!(
            status,
            Some(StatusCode::PRECONDITION_FAILED),
            "{:?}",
            lab.outcome
        );
        assert_eq!(lab.server.asked("DELETE"), ["/up/1"]);
        let lab = go_on(other, Replaceable::Nothing, Replaceable::Anything).await;
        assert!(lab.outcome.is_ok(), "{:?}", lab.outcome);
        assert_eq!(lab.server.asked("DELETE"), ["/up/1"]);
    }

    #[tokio::test]
    async fn one_that_replaces_another_version_is_begun_anew_with_that() {
        let other = Some(&b"of somebody "[..]);
        let version = |etag: &str| Replaceable::Version(etag.to_owned());
        let lab = go_on(other, version("\"7\""), version("\"8\"")).await;
        assert!(lab.outcome.is_ok(), "{:?}", lab.outcome);
        assert_eq!(lab.server.asked("DELETE"), ["/up/1"]);
        assert_eq!(lab.server.headers("PUT", "if-match"), ["\"8\""]);
    }
}
