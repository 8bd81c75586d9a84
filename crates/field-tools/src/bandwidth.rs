//! A bound on the bytes per second of all files of a copy together.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes that go at once at least, however slow it shall be.
const PIECE_BYTES_MIN: u64 = 4 << 10;
/// Pieces a second.
const PIECES_PER_SECOND: u64 = 8;

/// How many bytes may pass. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Bandwidth(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    bytes_per_second: NonZeroU64,
    started: Instant,
    /// When the line is free again, in nanoseconds from the start.
    free_at: AtomicU64,
}

impl Bandwidth {
    /// As many as can.
    pub fn unlimited() -> Bandwidth {
        Bandwidth(None)
    }

    pub fn limited(bytes_per_second: NonZeroU64) -> Bandwidth {
        Bandwidth(Some(Arc::new(Shared {
            bytes_per_second,
            started: Instant::now(),
            free_at: AtomicU64::new(0),
        })))
    }

    /// How many bytes should go at once, of `wanted`, so that the line is never silent for long.
    pub fn piece(&self, wanted: usize) -> usize {
        let Some(shared) = &self.0 else {
            return wanted;
        };
        let piece = (shared.bytes_per_second.get() / PIECES_PER_SECOND).max(PIECE_BYTES_MIN);
        wanted.min(usize::try_from(piece).unwrap_or(usize::MAX))
    }

    /// Waits until so many bytes may pass.
    pub async fn pass(&self, bytes: usize) {
        let Some(shared) = &self.0 else {
            return;
        };
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(shared.bytes_per_second.get());
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let now = u64::try_from(shared.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Who was silent gets nothing back: the line never carries more than this.
        let after = |free_at: u64| Some(free_at.max(now).saturating_add(nanos));
        let before = shared
            .free_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, after)
            .unwrap_or(now);
        if before > now {
            tokio::time::sleep(Duration::from_nanos(before - now)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(bytes_per_second: u64) -> Bandwidth {
        Bandwidth::limited(NonZeroU64::new(bytes_per_second).expect("not zero"))
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_pass_together_keep_to_the_bound() {
        let bandwidth = limited(1_000_000);
        let started = Instant::now();
        let passing = (0..4).map(|_| {
            let bandwidth = bandwidth.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    bandwidth.pass(100_000).await;
                }
            })
        });
        let passing: Vec<_> = passing.collect();
        for one in passing {
            one.await.expect("ended");
        }
        let seconds = started.elapsed().as_secs_f64();
        assert!((3.8..=4.1).contains(&seconds), "4 MB took {seconds} s");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_not_made_up_for() {
        let bandwidth = limited(1_000_000);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let started = Instant::now();
        for _ in 0..11 {
            bandwidth.pass(100_000).await;
        }
        assert!(started.elapsed() >= Duration::from_secs(1));
    }

    #[test]
    fn pieces_are_small_when_it_is_slow() {
        assert_eq!(Bandwidth::unlimited().piece(1 << 20), 1 << 20);
        assert_eq!(limited(80_000_000).piece(1 << 20), 1 << 20);
        assert_eq!(limited(800_000).piece(1 << 20), 100_000);
        assert_eq!(limited(1).piece(1 << 20), 4096);
    }
}
