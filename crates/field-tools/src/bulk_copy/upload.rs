//! One file up: read, send, compare.

use super::blocks::{Blocks, Next, Source, checksums_of};
use super::{Compared, Context, CopyResult, Existing, FileOutcome, with_retries};
use crate::remote::{Written, no_checksum};
use crate::remote_error::{BadCopy, RemoteError};
use crate::replaceable::Replaceable;
use penstock_model::url::redact;
use penstock_model::{Bytes, Checksum, ChecksumAlgorithm, Timestamp};
use penstock_protocol::http1::client;
use std::path::Path;
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
pub(super) async fn find(
    context: &Context,
    file: &Upload,
) -> Result<Existing<String>, RemoteError> {
    let checksums = context.options.checksums;
    let seen = with_retries(|| {
        context
            .remote
            .head_with_checksum(&file.destination, checksums)
    })
    .await?;
    let Some(seen) = seen else {
        return Ok(Existing::Nothing);
    };
    let other = || Existing::Other {
        name: redact(file.destination.as_str()),
        version: seen.etag.clone(),
    };
    if seen.size.is_some_and(|size| size != file.size) {
        return Ok(other());
    }
    let here = checksums_of(file.source.clone(), file.size.0, checksums).await;
    let here = here.map_err(RemoteError::local(file.path()))?;
    let compared = Compared {
        checksums,
        original: &here,
        original_modified: file.modified(),
        copy: &seen.checksums,
        copy_modified: seen.modified,
    };
    Ok(match compared.same() {
        Some(checksum) => Existing::Same(FileOutcome {
            size: file.size,
            checksum,
            how: CopyResult::Skipped,
        }),
        None => other(),
    })
}

/// The whole of it in one request.
pub(super) async fn write(
    context: &Context,
    file: &Upload,
    replaceable: &Replaceable<String>,
) -> Result<FileOutcome, RemoteError> {
    let checksums = context.options.checksums;
    let blocks = Blocks::open(file.source.clone(), file.size.0, checksums).await;
    let blocks = blocks.map_err(RemoteError::local(file.path()))?;
    let upload = context
        .remote
        .put(&file.destination, file.size, checksums, replaceable)
        .await?;
    let mut sent = 0;
    let outcome = send(context, file, upload, blocks, &mut sent).await;
    if outcome.is_err() {
        context.progress.take_back(sent);
    }
    verify(context, file, outcome?).await
}

/// A file that the server has taken.
pub(super) struct Sent {
    /// Of what was read and sent, from the first byte of the file on.
    pub checksums: Vec<Checksum>,
    /// What the server has answered.
    pub written: Written,
}

/// Sends blocks to their end.
pub(super) async fn send(
    context: &Context,
    file: &Upload,
    mut upload: client::Upload,
    mut blocks: Blocks,
    sent: &mut u64,
) -> Result<Sent, RemoteError> {
    let bandwidth = &context.options.bandwidth;
    let mut spare = None;
    loop {
        let next = blocks.next(spare.take()).await;
        match next.map_err(RemoteError::local(file.path()))? {
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
            Next::End(checksums) => {
                let written = context.remote.finish(&file.destination, upload).await?;
                return Ok(Sent { checksums, written });
            }
        }
    }
}

/// Compares what is there with what was sent.
pub(super) async fn verify(
    context: &Context,
    file: &Upload,
    sent: Sent,
) -> Result<FileOutcome, RemoteError> {
    let Sent { checksums, written } = sent;
    let wanted = context.options.checksums;
    // Of what an answer to a later question tells only the version says whether it is what was sent.
    let (found, is_ours) = match wanted.best_of(&written.checksums) {
        Some(found) => (found, true),
        None => {
            let destination = &file.destination;
            let head = context.remote.head_with_checksum(destination, wanted);
            let head = head.await?;
            let head = head.ok_or_else(|| RemoteError::not_found(redact(destination.as_str())))?;
            let found = wanted.best_of(&head.checksums);
            let found = found.ok_or_else(|| no_checksum(destination, wanted))?;
            (found, head.etag.is_some() && head.etag == written.etag)
        }
    };
    let mine = checksums
        .iter()
        .find(|mine| mine.algorithm() == found.algorithm());
    let mine = mine.ok_or_else(|| not_computed(&file.destination, found.algorithm()))?;
    if *mine == found {
        return Ok(FileOutcome {
            size: file.size,
            checksum: found,
            how: CopyResult::Copied,
        });
    }
    let copy = match (is_ours, &written.etag) {
        (true, Some(etag)) => remove_bad_copy(context, file, etag).await,
        (true, None) | (false, _) => BadCopy::Kept,
    };
    Err(RemoteError::Differs {
        name: redact(file.destination.as_str()),
        expected: mine.to_string(),
        found: found.to_string(),
        copy,
    })
}

/// Only what was sent: another file may have taken its place.
async fn remove_bad_copy(context: &Context, file: &Upload, etag: &str) -> BadCopy {
    let removed = context.remote.delete_version(&file.destination, Some(etag));
    match removed.await {
        Ok(()) => BadCopy::Removed,
        Err(why) => {
            tracing::warn!(%why, "the bad copy could not be removed");
            BadCopy::Kept
        }
    }
}

impl Upload {
    /// What stands for its source in an error.
    fn path(&self) -> &Path {
        match &self.source {
            Source::File(file) => file.path(),
            Source::Generated(plan) => Path::new(&plan.name),
        }
    }

    /// When its source last changed.
    fn modified(&self) -> Option<Timestamp> {
        match &self.source {
            Source::File(file) => file.modified(),
            Source::Generated(_) => None,
        }
    }
}

/// OpenSSL refuses some algorithms in its FIPS mode.
pub(super) fn not_computed(url: &Url, algorithm: ChecksumAlgorithm) -> RemoteError {
    RemoteError::nonsense(
        url,
        format!("this machine cannot compute {algorithm} checksums"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk_copy::{ExistingCopy, Intention, Options, look_at_uploads, upload_all};
    use crate::checksum_choice::ChecksumChoice;
    use crate::local_source::{LocalSource, modified_of};
    use crate::progress::Progress;
    use crate::test_server::{TestReply, TestRequest, TestServer};
    use penstock_protocol::checksum::Hasher;
    use penstock_protocol::digest;
    use penstock_protocol::webdav::format_http_date;
    use std::sync::Arc;

    fn digest_of(content: &[u8], algorithms: &[ChecksumAlgorithm]) -> String {
        let mut hasher = Hasher::new(algorithms);
        hasher.update(content);
        let value = digest::header_value(&hasher.finish());
        value.to_str().expect("visible").to_owned()
    }

    fn options(existing: ExistingCopy) -> Options {
        Options::new(1, existing, ChecksumChoice::Strongest)
    }

    fn upload(server: &TestServer, content: &[u8]) -> (tempfile::NamedTempFile, Upload) {
        let file = tempfile::NamedTempFile::new().expect("made");
        std::fs::write(file.path(), content).expect("written");
        let upload = Upload {
            source: Source::File(LocalSource::named(file.path()).expect("found")),
            size: Bytes(content.len() as u64),
            destination: server.url("/d/f"),
        };
        (file, upload)
    }

    /// Copies to a server that answers PUT, and later HEAD, as given.
    async fn copied(
        put: TestReply,
        head: TestReply,
    ) -> (TestServer, Result<FileOutcome, RemoteError>) {
        let server = TestServer::start(move |request| match request.method.as_str() {
            "PUT" => put.clone(),
            "HEAD" => head.clone(),
            "DELETE" => match request.header("if-match") {
                "\"7\"" => TestReply::status(204),
                other => panic!("DELETE with If-Match {other:?}"),
            },
            other => panic!("{other}"),
        })
        .await;
        let (_file, file) = upload(&server, b"content");
        let progress = Arc::new(Progress::new());
        let replacing = options(ExistingCopy::Replace);
        let mut outcomes = upload_all(&server.remote(), vec![file], replacing, &progress).await;
        (server, outcomes.remove(0))
    }

    fn fate(outcome: &Result<FileOutcome, RemoteError>) -> Option<BadCopy> {
        match outcome {
            Err(RemoteError::Differs { copy, .. }) => Some(*copy),
            Ok(_) | Err(_) => None,
        }
    }

    #[tokio::test]
    async fn what_another_has_written_meanwhile_is_never_removed() {
        let of = |status, content, etag: &str| {
            let sum = digest_of(content, &[ChecksumAlgorithm::Crc32c]);
            TestReply::status(status)
                .with("digest", sum)
                .with("etag", etag)
        };
        let taken = || TestReply::status(201).with("etag", "\"7\"");
        // The answer to our own PUT tells the wrong checksum.
        let (server, outcome) = copied(of(201, b"damaged", "\"7\""), TestReply::status(500)).await;
        assert_eq!(fate(&outcome), Some(BadCopy::Removed), "{outcome:?}");
        assert_eq!(server.asked("DELETE"), ["/d/f"]);
        // It tells none, and the file that is there then is ours.
        let (_server, outcome) = copied(taken(), of(200, b"damaged", "\"7\"")).await;
        assert_eq!(fate(&outcome), Some(BadCopy::Removed), "{outcome:?}");
        // Another's, or of nobody knows whom.
        for (put, head) in [
            (taken(), of(200, b"another", "\"8\"")),
            (TestReply::status(201), of(200, b"another", "\"8\"")),
            (of(201, b"damaged", "W/\"7\""), TestReply::status(500)),
        ] {
            let (server, outcome) = copied(put, head).await;
            assert_eq!(fate(&outcome), Some(BadCopy::Kept), "{outcome:?}");
            assert!(server.asked("DELETE").is_empty());
        }
    }

    #[tokio::test]
    async fn what_was_compared_is_replaced_and_nothing_else() {
        let check = async |etags: [&'static str; 2], put: u16| {
            let mut looks = 0;
            let server = TestServer::start(move |request| match request.method.as_str() {
                "HEAD" => {
                    looks += 1;
                    TestReply::status(200)
                        .with("content-length", "3")
                        .with("etag", etags[usize::from(looks > 1)])
                }
                "PUT" if put == 201 => TestReply::status(201).with(
                    "digest",
                    digest_of(b"content", &[ChecksumAlgorithm::Crc32c]),
                ),
                _ => TestReply::status(put),
            })
            .await;
            let (_file, file) = upload(&server, b"content");
            let progress = Arc::new(Progress::new());
            let updating = options(ExistingCopy::Update);
            let mut outcomes = upload_all(&server.remote(), vec![file], updating, &progress).await;
            let demanded = server.headers("PUT", "if-match");
            (outcomes.remove(0).map_err(|why| why.to_string()), demanded)
        };
        let (outcome, demanded) = check(["\"1\"", "\"1\""], 201).await;
        outcome.expect("replaced");
        assert_eq!(demanded, ["\"1\""]);
        let (outcome, demanded) = check(["\"1\"", "\"2\""], 412).await;
        let why = outcome.expect_err("changed");
        assert!(why.contains("has changed since it was compared"), "{why}");
        assert_eq!(demanded, ["\"1\""]);
        // It is what was compared, so that the refusal has another reason.
        let (outcome, _) = check(["\"1\"", "\"1\""], 412).await;
        assert!(outcome.expect_err("refused").contains("412"));
        let (outcome, demanded) = check(["W/\"1\"", "W/\"1\""], 201).await;
        outcome.expect("replaced");
        assert_eq!(demanded, [""]);
    }

    async fn intended(reply: impl FnMut(&TestRequest) -> TestReply + Send + 'static) -> Intention {
        let server = TestServer::start(reply).await;
        let (_file, file) = upload(&server, b"run 212");
        let progress = Arc::new(Progress::new());
        let updating = options(ExistingCopy::Update);
        let mut found = look_at_uploads(&server.remote(), vec![file], updating, &progress).await;
        found.remove(0).expect("looked")
    }

    #[tokio::test]
    async fn a_change_that_adler32_does_not_see_is_seen() {
        use ChecksumAlgorithm::{Adler32, Crc32c};
        let adler32 = |content| digest_of(content, &[Adler32]);
        assert_eq!(adler32(b"run 131"), adler32(b"run 212"), "such a change");
        let reply = |sums: String| {
            let length = ("content-length", "7".to_owned());
            let mut reply = TestReply::status(200).with("digest", sums);
            reply.headers.push(length);
            reply
        };
        // A server that knows both and tells the one that is liked best.
        let both = move |request: &TestRequest| match request.header("want-digest") {
            wanted if wanted.starts_with("crc32c") => reply(digest_of(b"run 131", &[Crc32c])),
            _ => reply(adler32(b"run 131")),
        };
        assert_eq!(intended(both).await, Intention::Replace);
        // One that knows only the weak one: the newer source has changed.
        let at = |seconds: i64| {
            let now = modified_of(
                &tempfile::tempfile()
                    .expect("made")
                    .metadata()
                    .expect("known"),
            );
            let now = now.expect("told").0 + seconds * 1000;
            format_http_date(Timestamp(now))
        };
        let (older, newer) = (at(-3600), at(3600));
        let copied_before =
            move |_: &TestRequest| reply(adler32(b"run 131")).with("last-modified", older.clone());
        assert_eq!(intended(copied_before).await, Intention::Replace);
        let copied_since =
            move |_: &TestRequest| reply(adler32(b"run 212")).with("last-modified", newer.clone());
        assert_eq!(intended(copied_since).await, Intention::Skip);
    }

    #[tokio::test]
    async fn a_server_that_reads_no_list_is_asked_for_each_checksum_alone() {
        let alone = |request: &TestRequest| {
            let reply = TestReply::status(200).with("content-length", "7");
            match request.header("want-digest") {
                "adler32" => reply.with(
                    "digest",
                    digest_of(b"run 212", &[ChecksumAlgorithm::Adler32]),
                ),
                _ => reply,
            }
        };
        assert_eq!(intended(alone).await, Intention::Skip);
    }
}
