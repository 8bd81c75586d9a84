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
    /// A request is sent when no further file has come for so long.
    pub quiet: Span,
    /// It is sent at the latest when its first file has waited for so long.
    pub fill_max: Span,
    /// Stage requests that are open at once, for each VO and storage element.
    pub requests_max: u32,
    /// Calls in progress at once, for each storage element.
    pub calls_max: u32,
    /// Between two looks at what a tape system is at, at least. They become rarer the longer it takes.
    pub poll_min: Span,
    /// At most.
    pub poll_max: Span,
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
            timeout: Span(Duration::from_secs(60)),
        }
    }
}
