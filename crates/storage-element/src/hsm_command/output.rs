//! What a process writes: all of it is read, so that it never waits for a full pipe, and a bounded part is kept.

use super::in_words;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

const READ_BYTES: usize = 8 * 1024;

/// A pipe that is read by a task, and what is kept of it.
struct Kept {
    bytes: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Kept {
    fn read(
        pipe: Option<impl AsyncRead + Unpin + Send + 'static>,
        keep: impl Fn(&mut Vec<u8>, &[u8]) + Send + 'static,
    ) -> Kept {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = bytes.clone();
        let task = tokio::spawn(async move {
            let Some(mut pipe) = pipe else { return };
            let mut read = [0; READ_BYTES];
            while let Ok(count) = pipe.read(&mut read).await
                && count > 0
            {
                keep(&mut kept.lock(), read.get(..count).unwrap_or_default());
            }
        });
        Kept { bytes, task }
    }

    /// What has come when the pipe is closed, or by then.
    async fn end(mut self, until: Instant) -> Vec<u8> {
        if timeout_at(until, &mut self.task).await.is_err() {
            self.task.abort();
        }
        std::mem::take(&mut self.bytes.lock())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The first bytes of a pipe.
pub(super) struct KeptHead(Kept);

impl KeptHead {
    pub(super) fn read(
        pipe: Option<impl AsyncRead + Unpin + Send + 'static>,
        bytes_max: usize,
    ) -> KeptHead {
        KeptHead(Kept::read(pipe, move |kept, read| {
            let room = bytes_max.saturating_sub(kept.len());
            kept.extend_from_slice(read.get(..room).unwrap_or(read));
        }))
    }

    pub(super) async fn end(self, until: Instant) -> Vec<u8> {
        self.0.end(until).await
    }
}

/// The last bytes of a pipe.
pub(super) struct KeptTail(Kept);

impl KeptTail {
    pub(super) fn read(
        pipe: Option<impl AsyncRead + Unpin + Send + 'static>,
        bytes_max: usize,
    ) -> KeptTail {
        KeptTail(Kept::read(pipe, move |kept, read| {
            kept.extend_from_slice(read);
            let beyond = kept.len().saturating_sub(bytes_max);
            kept.drain(..beyond);
        }))
    }

    /// As text without control characters.
    pub(super) async fn end(self, until: Instant) -> String {
        in_words(&self.0.end(until).await)
    }
}
