//! The end of a thread that may never come.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Waits for a thread that may wait for a disk that does not answer.
pub(crate) fn end_thread(thread: JoinHandle<()>, until: Instant, what: &str) {
    while !thread.is_finished() {
        if Instant::now() >= until {
            tracing::error!(what, "a pool's disk does not answer; ending without it");
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // One that panicked is in the log already.
    let _ = thread.join();
}
