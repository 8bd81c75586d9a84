//! Whether the disk of a pool can be relied on, judged by what failed there lately.
//!
//! A pool whose disk fails would attract files: every failure leaves it idle. So after a few of them it takes no more
//! until a test file can be written, and the more often that happens the longer it waits.

use penstock_model::TimeSpan;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Failed writes within [`FAILURES_WINDOW`] after which a pool takes no more files.
pub const FAILURES_MAX: u32 = 3;
/// How long a failed write counts.
pub const FAILURES_WINDOW: Duration = Duration::from_secs(60);
/// The longest time between two attempts to write a test file.
const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(600);
/// How long a pool must have been sound before its last failure is forgotten.
pub const RELAPSE_WINDOW: Duration = Duration::from_secs(3600);

/// Whether a pool's disk does its work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "condition")]
pub enum PoolCondition {
    /// As far as is known.
    #[default]
    Sound,
    /// It gives files and takes none until a test file can be written.
    ReadOnly { why: ReadOnlyReason },
    /// Its disk has not answered for so long. It takes no files.
    Silent {
        /// For how long.
        seconds: u64,
    },
    /// Its files are out of reach.
    Away {
        /// What is wrong and what to do, in one line.
        why: String,
    },
}

/// Why a pool takes no files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum ReadOnlyReason {
    /// Writes failed.
    Failures {
        /// How many, lately.
        count: u32,
        /// What the system said of the last one.
        last: String,
    },
    /// It could not be made ready for new files.
    Unprepared {
        /// What the system said.
        why: String,
    },
}

impl PoolCondition {
    /// The word in reports.
    pub fn name(&self) -> &'static str {
        match self {
            PoolCondition::Sound => "sound",
            PoolCondition::ReadOnly { .. } => "read_only",
            PoolCondition::Silent { .. } => "silent",
            PoolCondition::Away { .. } => "away",
        }
    }

    /// It may take new files.
    pub fn takes_files(&self) -> bool {
        match self {
            PoolCondition::Sound => true,
            PoolCondition::ReadOnly { .. }
            | PoolCondition::Silent { .. }
            | PoolCondition::Away { .. } => false,
        }
    }

    /// Its files can be asked for.
    pub fn gives_files(&self) -> bool {
        match self {
            PoolCondition::Sound
            | PoolCondition::ReadOnly { .. }
            | PoolCondition::Silent { .. } => true,
            PoolCondition::Away { .. } => false,
        }
    }
}

impl PoolCondition {
    /// Its disk answers: what was last seen of its space is true. In the place of a disk that is away another may answer.
    pub fn tells_space(&self) -> bool {
        match self {
            PoolCondition::Sound | PoolCondition::ReadOnly { .. } => true,
            PoolCondition::Silent { .. } | PoolCondition::Away { .. } => false,
        }
    }
}

impl fmt::Display for PoolCondition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolCondition::Sound => out.write_str("works"),
            PoolCondition::ReadOnly { why } => write!(
                out,
                "takes no new files: {why}; check its disk; it takes files again by itself when a test file can be \
                 written"
            ),
            PoolCondition::Silent { seconds } => write!(
                out,
                "takes no new files: its disk has not answered for {}; check the disk",
                TimeSpan::of_seconds(*seconds)
            ),
            PoolCondition::Away { why } => write!(out, "is away: {why}"),
        }
    }
}

impl fmt::Display for ReadOnlyReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadOnlyReason::Failures { count: 1, last } => write!(out, "a write failed ({last})"),
            ReadOnlyReason::Failures { count, last } => {
                write!(out, "{count} writes failed lately, the last with '{last}'")
            }
            ReadOnlyReason::Unprepared { why } => {
                write!(out, "it could not be made ready for them ({why})")
            }
        }
    }
}

/// What a failed write says of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPersistence {
    /// The file system takes no writes, or the pool's directories are gone: the next write fails, too.
    Permanent,
    /// One file failed; another may do.
    Passing,
}

/// A failed write, and how long ago it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastFailure {
    /// What it says.
    pub failure: FaultPersistence,
    /// How long ago.
    pub ago: Duration,
    /// What the system said.
    pub text: String,
}

/// Whether a pool should take no more files after these failures, the last one last.
pub fn judge_writes(failures: &[PastFailure]) -> Option<ReadOnlyReason> {
    let lately = || failures.iter().filter(|past| past.ago < FAILURES_WINDOW);
    let last = lately().next_back()?;
    let count = u32::try_from(lately().count()).unwrap_or(u32::MAX);
    let is_permanent = lately().any(|past| past.failure == FaultPersistence::Permanent);
    (is_permanent || count >= FAILURES_MAX).then(|| ReadOnlyReason::Failures {
        count,
        last: last.text.clone(),
    })
}

/// When to try again to write to a pool that has failed so many times within [`RELAPSE_WINDOW`].
pub fn probe_interval(first: Duration, relapses: u32) -> Duration {
    let doubled = first.saturating_mul(1 << relapses.min(10));
    doubled.min(PROBE_INTERVAL_MAX.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Failures by their age in seconds; a permanent one is negative. How many count when the pool is taken out.
    fn check(ages: &[i64], expected: Option<u32>) {
        let failures: Vec<PastFailure> = ages
            .iter()
            .map(|age| PastFailure {
                failure: match age {
                    ..=-1 => FaultPersistence::Permanent,
                    _ => FaultPersistence::Passing,
                },
                ago: Duration::from_secs(age.unsigned_abs()),
                text: format!("{age}"),
            })
            .collect();
        let last = ages.last().map(|age| age.to_string()).unwrap_or_default();
        let expected = expected.map(|count| ReadOnlyReason::Failures { count, last });
        assert_eq!(judge_writes(&failures), expected, "{ages:?}");
    }

    #[test]
    fn a_pool_is_taken_out_by_one_failure_that_will_come_again_or_by_some_in_a_short_time() {
        check(&[], None);
        check(&[5], None);
        check(&[20, 10], None);
        check(&[20, 10, 0], Some(3));
        check(&[61, 10, 0], None);
        check(&[70, 59, 10, 0], Some(3));
        check(&[-1], Some(1));
        check(&[-61], None);
        check(&[-20, 1], Some(2));
    }

    #[test]
    fn a_pool_that_fails_again_and_again_is_tried_less_and_less_often() {
        let seconds = |relapses| probe_interval(Duration::from_secs(5), relapses).as_secs();
        assert_eq!([0, 1, 2, 6, 7, 99].map(seconds), [5, 10, 20, 320, 600, 600]);
        assert_eq!(probe_interval(Duration::from_secs(900), 1).as_secs(), 900);
    }

    #[test]
    fn a_condition_says_what_to_do() {
        let why = ReadOnlyReason::Failures {
            count: 3,
            last: "Input/output error (os error 5)".to_owned(),
        };
        assert_eq!(
            PoolCondition::ReadOnly { why }.to_string(),
            "takes no new files: 3 writes failed lately, the last with 'Input/output error (os error 5)'; check its \
             disk; it takes files again by itself when a test file can be written"
        );
    }
}
