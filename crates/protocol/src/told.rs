//! What was told a moment ago, so that a client who does the same thing thousands of times, or an error that goes on as
//! long as a disk is full, fills no log: once, then at most once in an interval, with how often it was passed over.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Things remembered. When there are more, the oldest memories go first.
const MEMORIES_MAX: usize = 4096;
/// A repeated error is told once in this time.
const ERROR_INTERVAL: Duration = Duration::from_secs(60);

/// What was told, by the client or the error that it is about.
pub(crate) struct Told<K>(HashMap<K, Memory>);

struct Memory {
    at: Instant,
    passed_over: u64,
}

impl<K> Default for Told<K> {
    fn default() -> Self {
        Told(HashMap::new())
    }
}

impl<K: Hash + Eq> Told<K> {
    /// Whether to tell something now, and how much was passed over before.
    pub(crate) fn tells(&mut self, about: K, now: Instant, interval: Duration) -> Option<u64> {
        if self.0.len() >= MEMORIES_MAX && !self.0.contains_key(&about) {
            self.0
                .retain(|_, memory| now.duration_since(memory.at) < interval);
            if self.0.len() >= MEMORIES_MAX {
                // So many at once are one event, and the log has thousands of lines of it.
                return None;
            }
        }
        match self.0.get_mut(&about) {
            Some(memory) if now.duration_since(memory.at) < interval => {
                memory.passed_over += 1;
                None
            }
            Some(memory) => {
                memory.at = now;
                Some(std::mem::take(&mut memory.passed_over))
            }
            None => {
                let memory = Memory {
                    at: now,
                    passed_over: 0,
                };
                self.0.insert(about, memory);
                Some(0)
            }
        }
    }
}

/// Errors of one place in the program, by their texts.
#[derive(Default)]
pub struct RepeatedErrors(Mutex<Told<String>>);

impl RepeatedErrors {
    /// Whether to log an error now, and how often the same was passed over since it was logged. `None`: it was logged
    /// less than a minute ago.
    pub fn tells(&self, error: &str) -> Option<u64> {
        self.tells_at(error, Instant::now())
    }

    fn tells_at(&self, error: &str, now: Instant) -> Option<u64> {
        self.0.lock().tells(error.to_owned(), now, ERROR_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_goes_on_is_told_once_and_then_each_minute_with_its_number() {
        let errors = RepeatedErrors::default();
        let begin = Instant::now();
        let told_at = |seconds, error| errors.tells_at(error, begin + Duration::from_secs(seconds));
        assert_eq!(told_at(0, "disk full"), Some(0));
        for second in 1..60 {
            assert_eq!(told_at(second, "disk full"), None);
        }
        assert_eq!(told_at(30, "disk failed"), Some(0), "another error");
        assert_eq!(told_at(60, "disk full"), Some(59));
        assert_eq!(told_at(200, "disk full"), Some(0), "none between");
    }
}
