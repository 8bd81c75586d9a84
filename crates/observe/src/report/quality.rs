//! Errors and incidents of a set of transfers.
//!
//! Both are told: one full disk writes an error per file, and a report that counts only errors, or only
//! incidents, has misled people in either direction.

use super::percent;
use crate::facts::TransferFacts;
use penstock_model::failure_text::fingerprint;
use penstock_model::{Phase, Side, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;

/// Most kinds of failure told apart in one report; what comes after is counted as [`OTHER_FAILURES`].
pub const FAILURE_KINDS_MAX: usize = 1000;
/// The fingerprint of failures beyond [`FAILURE_KINDS_MAX`] kinds.
pub const OTHER_FAILURES: &str = "(other failures)";

/// Errors and incidents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quality {
    /// Failed attempts, and transfers that expired while they waited.
    pub errors: u64,
    /// Transfers they are measured against.
    pub transfers: u64,
    /// `errors` in percent of `transfers` (above 100 when attempts failed repeatedly); `None` without
    /// transfers.
    pub error_percent: Option<f64>,
    /// Attempts whose outcome is unknown because the service restarted. Not errors.
    pub lost_attempts: u64,
    /// Kinds of failure, the most frequent first.
    pub incidents: Vec<FailureSummary>,
}

/// All failures of one fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureSummary {
    /// The failure text without what differs from file to file.
    pub fingerprint: String,
    /// Where the fault lies.
    pub side: Side,
    /// When in an attempt it happens.
    pub phase: Phase,
    /// Errors with this fingerprint.
    pub errors: u64,
    /// Transfers hit by it.
    pub transfers: u64,
    pub first: Timestamp,
    /// The latest of them.
    pub last: Timestamp,
    /// The latest text in full.
    pub example: String,
}

/// Counts the errors of `transfers` and groups them by fingerprint.
pub(super) fn quality_of(transfers: &[&TransferFacts]) -> Quality {
    let mut by_fingerprint: BTreeMap<String, FailureSummary> = BTreeMap::new();
    for transfer in transfers {
        let mut hit: Vec<String> = Vec::new();
        for (at, failure) in &transfer.errors {
            let mut key = fingerprint(failure);
            if by_fingerprint.len() >= FAILURE_KINDS_MAX && !by_fingerprint.contains_key(&key) {
                key = OTHER_FAILURES.to_owned();
            }
            let incident = by_fingerprint
                .entry(key.clone())
                .or_insert_with(|| FailureSummary {
                    fingerprint: key.clone(),
                    side: failure.side,
                    phase: failure.phase,
                    errors: 0,
                    transfers: 0,
                    first: *at,
                    last: *at,
                    example: failure.to_string(),
                });
            incident.errors += 1;
            incident.first = incident.first.min(*at);
            if *at >= incident.last {
                incident.last = *at;
                incident.example = failure.to_string();
            }
            if !hit.contains(&key) {
                incident.transfers += 1;
                hit.push(key);
            }
        }
    }
    let mut incidents: Vec<FailureSummary> = by_fingerprint.into_values().collect();
    incidents.sort_by(|a, b| {
        b.errors
            .cmp(&a.errors)
            .then_with(|| a.fingerprint.cmp(&b.fingerprint))
    });
    let errors: u64 = incidents.iter().map(|incident| incident.errors).sum();
    Quality {
        errors,
        transfers: transfers.len() as u64,
        error_percent: percent(errors as f64, transfers.len() as f64),
        lost_attempts: transfers
            .iter()
            .map(|transfer| u64::from(transfer.lost_attempts))
            .sum(),
        incidents,
    }
}
