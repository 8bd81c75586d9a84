//! `[transfer.staging]`: how tape systems are treated.

use penstock_decide::staging::StagingPolicy;
use penstock_model::quantity::Span;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How tape systems are treated that bring files to disk, and put them on tape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StagingLimits {
    /// Files in one stage request, and in one question where files are.
    pub files_per_request_max: u32,
    /// A request is sent when no further file has come for this long.
    pub quiet: Span,
    /// A request is sent at the latest when its first file has waited for this long.
    pub fill_max: Span,
    /// Stage requests that are open at once, for each VO and storage element.
    pub requests_max: u32,
    /// Calls in progress at once, for each storage element.
    pub calls_max: u32,
    /// The shortest time between two looks at a stage request. Looks become rarer the longer it takes.
    pub poll_min: Span,
    /// The longest time between two looks.
    pub poll_max: Span,
    /// How often other replicas of a file that waits for tape are looked for on disk. One that is found is copied instead.
    pub replica_interval: Span,
    /// How long an answer may take.
    pub timeout: Span,
}

impl Default for StagingLimits {
    fn default() -> StagingLimits {
        let policy = StagingPolicy::default();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        StagingLimits {
            files_per_request_max: count(policy.bulk_files_max),
            quiet: Span(policy.quiet),
            fill_max: Span(policy.fill_max),
            requests_max: count(policy.requests_max),
            calls_max: count(policy.calls_max),
            poll_min: Span(policy.poll_min),
            poll_max: Span(policy.poll_max),
            replica_interval: Span(policy.replica_interval),
            timeout: Span(Duration::from_secs(60)),
        }
    }
}
