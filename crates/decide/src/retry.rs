//! Whether a failed attempt is tried again, and when.
//!
//! Retries back off exponentially with jitter, so that a storage element that comes back after an outage does not
//! meet all its transfers in one second.

use crate::decision::Decision;
use penstock_model::{Attempt, Failure, Retry, Timestamp, TransferId};
use std::time::Duration;

/// Retries never wait longer than this.
pub const DELAY_MAX: Duration = Duration::from_secs(3600);

/// The wait for an earlier copy of the same transfer is at least this long.
const OWN_COPY_DELAY_MIN: Duration = Duration::from_secs(1);

/// What a retry decision looks at.
#[derive(Debug, Clone)]
pub struct FailedAttempt<'a> {
    /// Which transfer: seeds the jitter.
    pub transfer: TransferId,
    /// Which attempt failed: seeds the jitter.
    pub attempt: Attempt,
    pub failure: &'a Failure,
    pub failures_before: u32,
    /// The link was halted: the failure tells nothing about this file.
    pub excused: bool,
    /// How many retries the job allows.
    pub retries_max: u32,
    /// The wait before the first retry.
    pub delay: Duration,
}

/// Why a retry was or was not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// Retry number `number` of `of`.
    Granted {
        /// From 1.
        number: u32,
        /// How many the job allows.
        of: u32,
    },
    /// It costs no retry, because the link was halted.
    Excused,
    /// It would fail again in the same way.
    Pointless,
    /// The job's retries are used up.
    UsedUp {
        /// How many the job allowed.
        of: u32,
    },
}

/// How long to wait before the next attempt; `None` when there is none.
pub fn next_retry(failed: &FailedAttempt<'_>) -> Decision<Option<Duration>, RetryReason> {
    let recoverable = match failed.failure.retry {
        Retry::Later => true,
        Retry::ElsewhereOnly | Retry::Never => false,
    };
    let (choice, reason) = if !recoverable {
        (None, RetryReason::Pointless)
    } else if failed.excused && failed.retries_max > 0 {
        (Some(backoff(failed)), RetryReason::Excused)
    } else if failed.failures_before >= failed.retries_max {
        (
            None,
            RetryReason::UsedUp {
                of: failed.retries_max,
            },
        )
    } else {
        let number = failed.failures_before + 1;
        (
            Some(backoff(failed)),
            RetryReason::Granted {
                number,
                of: failed.retries_max,
            },
        )
    };
    Decision {
        choice,
        because: vec![reason],
    }
}

/// How long an attempt waits that met nothing but an earlier copy of its own transfer, which may run until `until`: it
/// costs no retry. `None`: that time is over.
pub fn wait_for_own_copy(
    failed: &FailedAttempt<'_>,
    now: Timestamp,
    until: Timestamp,
) -> Option<Duration> {
    let wait = backoff(&FailedAttempt {
        failures_before: failed.attempt.0.saturating_sub(2),
        delay: failed.delay.max(OWN_COPY_DELAY_MIN),
        ..failed.clone()
    });
    (now < until).then(|| wait.min(until.since(now)))
}

/// Doubles per failure up to [`DELAY_MAX`], then takes between 75 % and 125 % of it.
fn backoff(failed: &FailedAttempt<'_>) -> Duration {
    let doubled = failed
        .delay
        .saturating_mul(1u32 << failed.failures_before.min(16))
        .min(DELAY_MAX);
    let seed = failed.transfer.0 ^ (u64::from(failed.attempt.0) << 48);
    with_jitter(doubled, seed)
}

/// A wait with between 75 % and 125 % of its length, by a seed, so that what failed together does not come back together.
pub fn with_jitter(wait: Duration, seed: u64) -> Duration {
    let percent = 75 + mix(seed) % 51;
    wait.saturating_mul(percent as u32) / 100
}

/// SplitMix64 (Steele, Lea, Flood 2014): spreads consecutive ids evenly without a shared generator.
fn mix(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Concern, Errno, Phase, Side};

    fn delays(retry: Retry, retries_max: u32) -> Vec<Option<u64>> {
        delays_of(retry, retries_max, false)
    }

    fn delays_of(retry: Retry, retries_max: u32, excused: bool) -> Vec<Option<u64>> {
        let detail = "test".to_owned();
        let failure = Failure {
            side: Side::Source,
            retry,
            concern: Concern::Link,
            phase: Phase::Transfer,
            errno: Errno::EIO,
            detail,
            found: None,
            busy: None,
            code: None,
        };
        let attempt = |failures_before| FailedAttempt {
            transfer: TransferId(7),
            attempt: Attempt(failures_before + 1),
            failure: &failure,
            failures_before,
            excused,
            retries_max,
            delay: Duration::from_secs(100),
        };
        (0..4)
            .map(|n| next_retry(&attempt(n)).choice.map(|wait| wait.as_secs()))
            .collect()
    }

    #[test]
    fn retries_back_off_and_end() {
        let waits = delays(Retry::Later, 3);
        for (wait, around) in waits.iter().zip([100, 200, 400]) {
            let wait = wait.expect("granted");
            assert!(
                (around * 75 / 100..=around * 125 / 100).contains(&wait),
                "{wait} is not around {around}"
            );
        }
        assert_eq!(waits[3], None);
    }

    #[test]
    fn what_cannot_help_is_not_tried_again() {
        assert_eq!(delays(Retry::Never, 3), [None; 4]);
        assert_eq!(delays(Retry::Later, 0), [None; 4]);
    }

    #[test]
    fn on_a_halted_link_no_retries_are_used_up_but_jobs_that_want_none_get_none() {
        assert!(delays_of(Retry::Later, 1, true).iter().all(Option::is_some));
        assert_eq!(delays_of(Retry::Later, 0, true), [None; 4]);
        assert_eq!(delays_of(Retry::Never, 3, true), [None; 4]);
    }

    #[test]
    fn a_thousand_transfers_that_fail_together_do_not_come_back_together() {
        let spread: std::collections::BTreeSet<u64> = (0..1000).map(|id| mix(id) % 51).collect();
        assert_eq!(spread.len(), 51);
    }
}
