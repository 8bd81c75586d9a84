//! How long the journal's commits take, for whoever samples this process.

use super::Service;
use crate::metrics::TransferMetrics;
use crate::node::PublishedState;
use std::sync::Arc;
use std::time::Duration;

/// Reads what a journal has done, also after the end of its service, which it does not keep running.
#[derive(Clone)]
pub struct JournalMeter {
    metrics: Arc<TransferMetrics>,
    published: Arc<PublishedState>,
}

/// What a journal has done since the start, while this node led.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalCounts {
    pub commits: u64,
    /// Until they were durable, of all together.
    pub commit_time: Duration,
    /// For how long the commit that runs has lasted; `None`: none runs.
    pub writes_for: Option<Duration>,
}

impl JournalMeter {
    pub fn counts(&self) -> JournalCounts {
        let commits = &self.metrics.commit_us;
        JournalCounts {
            commits: commits.count(),
            commit_time: Duration::from_micros(commits.sum()),
            writes_for: self.published.writes_for(),
        }
    }
}

impl Service {
    /// What reads how long the journal's commits take.
    pub fn journal_meter(&self) -> JournalMeter {
        JournalMeter {
            metrics: Arc::clone(&self.node.metrics),
            published: Arc::clone(&self.node.published),
        }
    }
}
