//! When tape systems are asked, and for what: which files share a stage request, when its progress is looked at, and
//! what to do when a call fails.
//!
//! Tape systems order what they are asked for together, so files wait a moment for others of their kind. A recall takes
//! minutes to days: how often it is looked at follows from how long it has taken and how much is missing.

use crate::decision::Decision;
use crate::retry::with_jitter;
use penstock_model::{Failure, Retry, Timestamp};
use std::time::Duration;

/// How tape systems are treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagingPolicy {
    /// Files in one request.
    pub bulk_files_max: usize,
    /// A request is sent when no further file has come for so long.
    pub quiet: Duration,
    /// It is sent at the latest when its first file has waited for so long.
    pub fill_max: Duration,
    /// Stage requests that are open at once, for each VO and storage element.
    pub requests_max: usize,
    /// Calls in progress at once, for each storage element.
    pub calls_max: usize,
    /// Between two looks at one request, at least.
    pub poll_min: Duration,
    /// At most.
    pub poll_max: Duration,
    /// Between two questions whether other replicas of files that wait for tape are on disk.
    pub replica_interval: Duration,
}

impl Default for StagingPolicy {
    /// Bulks of 500 files, which dCache takes as it is delivered; FTS3's 1000 requests for each VO and storage element.
    fn default() -> Self {
        StagingPolicy {
            bulk_files_max: 500,
            quiet: Duration::from_millis(300),
            fill_max: Duration::from_secs(3),
            requests_max: 1000,
            calls_max: 4,
            poll_min: Duration::from_secs(2),
            poll_max: Duration::from_secs(300),
            replica_interval: Duration::from_secs(30),
        }
    }
}

/// Files that may be asked for in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageBatch {
    pub files: usize,
    /// Since when the first of them waits.
    pub first_at: Timestamp,
    /// When the last of them came.
    pub last_at: Timestamp,
    /// After a call that failed: not before this time.
    pub not_before: Option<Timestamp>,
    /// Stage requests that are open for the same VO at the same storage element.
    pub requests_open: usize,
    pub files_open: usize,
    /// How many files operators allow there at once; `None`: any number.
    pub files_max: Option<usize>,
}

/// What to do with files that wait to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageTiming {
    /// Send a request for so many of them, at least one.
    Now(usize),
    /// Look again then.
    At(Timestamp),
    /// Wait until an open request has ended.
    WhenOneEnds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagingReason {
    /// A request holds no more.
    Full,
    /// No further file has come for a while.
    Quiet,
    /// The first file has waited long enough for others.
    WaitedLong,
    /// More may come in a moment.
    Gathering,
    /// The last call failed.
    BackingOff,
    /// As many requests, or files in them, are open as there may be.
    AtLimit,
}

/// Whether files that have gathered are asked for now.
pub fn when_to_ask(
    seen: &StageBatch,
    policy: &StagingPolicy,
    now: Timestamp,
) -> Decision<StageTiming, StagingReason> {
    let decided = |choice, reason| Decision {
        choice,
        because: vec![reason],
    };
    let room = seen.files_max.map_or(usize::MAX, |most| {
        most.max(1).saturating_sub(seen.files_open)
    });
    if let Some(at) = seen.not_before.filter(|at| *at > now) {
        return decided(StageTiming::At(at), StagingReason::BackingOff);
    }
    if seen.requests_open >= policy.requests_max.max(1) || room == 0 {
        return decided(StageTiming::WhenOneEnds, StagingReason::AtLimit);
    }
    let bulk = policy.bulk_files_max.max(1).min(room);
    let count = seen.files.min(bulk);
    let (quiet_at, full_at) = (seen.last_at + policy.quiet, seen.first_at + policy.fill_max);
    if seen.files >= bulk {
        decided(StageTiming::Now(count), StagingReason::Full)
    } else if quiet_at <= now {
        decided(StageTiming::Now(count), StagingReason::Quiet)
    } else if full_at <= now {
        decided(StageTiming::Now(count), StagingReason::WaitedLong)
    } else {
        decided(
            StageTiming::At(quiet_at.min(full_at)),
            StagingReason::Gathering,
        )
    }
}

/// What is known of something that a tape system is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchProgress {
    /// Spreads the looks at different requests.
    pub seed: u64,
    pub since: Timestamp,
    /// How many files it is about.
    pub files: usize,
    /// How many of them are done.
    pub done: usize,
}

/// When to look again. A look delays a file by a quarter of the time that it has taken anyway, at most; by half of the
/// time that the rest will take if it goes on as until now, if that is less.
pub fn next_look(seen: &BatchProgress, policy: &StagingPolicy, now: Timestamp) -> Timestamp {
    let taken = now.since(seen.since);
    let missing = seen.files.saturating_sub(seen.done);
    let by_age = taken / 4;
    let by_rate = match seen.done {
        0 => by_age,
        done => {
            let rest = taken.as_secs_f64() * missing as f64 / done as f64;
            Duration::from_secs_f64((rest / 2.0).min(by_age.as_secs_f64()))
        }
    };
    let most = policy.poll_max.max(policy.poll_min);
    let wait = with_jitter(by_rate.clamp(policy.poll_min, most), seen.seed);
    now + wait.clamp(policy.poll_min, most)
}

/// When a call is made again that has failed so many times in a row: doubling, with jitter.
pub fn next_call(failures: u32, seed: u64, policy: &StagingPolicy, now: Timestamp) -> Timestamp {
    let doubled = policy.poll_min.saturating_mul(1 << failures.min(16));
    now + with_jitter(
        doubled.min(policy.poll_max.max(policy.poll_min)),
        seed ^ (u64::from(failures) << 48),
    )
}

/// What to do with the files of a stage request that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalRemedy {
    /// Ask for all of them again later.
    AskLater,
    /// Ask for them in smaller requests: one of them may be what is refused, or their number.
    AskForFewer,
    /// They are not brought this time. Whether they are asked for again, their failure and their retries tell.
    GiveUp,
}

/// What to do when a tape system refused a request for so many files, with an HTTP status if it answered.
pub fn after_refusal(failure: &Failure, status: Option<u16>, files: usize) -> RefusalRemedy {
    match (status, failure.retry) {
        // RFC 9110 §15.5: something in the request is wrong. It need not be all of it.
        (Some(400 | 403 | 404 | 409 | 413 | 414 | 422), _) if files > 1 => {
            RefusalRemedy::AskForFewer
        }
        // Others must not wait for this one.
        (Some(400), _) => RefusalRemedy::GiveUp,
        (_, Retry::Later) => RefusalRemedy::AskLater,
        (_, Retry::ElsewhereOnly | Retry::Never) => RefusalRemedy::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Concern, Errno, Phase, Side};

    fn policy() -> StagingPolicy {
        StagingPolicy {
            bulk_files_max: 100,
            requests_max: 2,
            ..StagingPolicy::default()
        }
    }

    fn gathered(files: usize, first: i64, last: i64) -> StageBatch {
        StageBatch {
            files,
            first_at: Timestamp(first),
            last_at: Timestamp(last),
            not_before: None,
            requests_open: 0,
            files_open: 0,
            files_max: None,
        }
    }

    fn asks(seen: &StageBatch, now: i64) -> String {
        let decided = when_to_ask(seen, &policy(), Timestamp(now));
        format!("{:?} {:?}", decided.choice, decided.because[0])
    }

    #[test]
    fn files_wait_a_moment_for_others_and_not_longer() {
        assert_eq!(
            asks(&gathered(5, 0, 100), 200),
            "At(Timestamp(400)) Gathering"
        );
        assert_eq!(asks(&gathered(5, 0, 100), 400), "Now(5) Quiet");
        assert_eq!(
            asks(&gathered(5, 0, 2900), 2950),
            "At(Timestamp(3000)) Gathering"
        );
        assert_eq!(asks(&gathered(5, 0, 2900), 3000), "Now(5) WaitedLong");
        assert_eq!(asks(&gathered(250, 0, 0), 0), "Now(100) Full");
    }

    #[test]
    fn no_more_is_asked_for_than_limits_allow() {
        let full = StageBatch {
            requests_open: 2,
            ..gathered(500, 0, 0)
        };
        assert_eq!(asks(&full, 10_000), "WhenOneEnds AtLimit");
        let limited = |files_open| StageBatch {
            files_open,
            files_max: Some(30),
            ..gathered(500, 0, 0)
        };
        assert_eq!(asks(&limited(0), 0), "Now(30) Full");
        assert_eq!(asks(&limited(25), 0), "Now(5) Full");
        assert_eq!(asks(&limited(30), 0), "WhenOneEnds AtLimit");
        let failed = StageBatch {
            not_before: Some(Timestamp(9000)),
            ..gathered(500, 0, 0)
        };
        assert_eq!(asks(&failed, 8000), "At(Timestamp(9000)) BackingOff");
    }

    fn look(taken: u64, files: usize, done: usize) -> u64 {
        let seen = BatchProgress {
            seed: 7,
            since: Timestamp(0),
            files,
            done,
        };
        let now = Timestamp(0) + Duration::from_secs(taken);
        next_look(&seen, &StagingPolicy::default(), now)
            .since(now)
            .as_secs()
    }

    #[test]
    fn looks_become_rare_with_time_and_frequent_near_the_end() {
        assert_eq!(look(0, 10, 0), 2);
        let after_an_hour = look(3600, 10, 0);
        assert!((225..=300).contains(&after_an_hour), "{after_an_hour}");
        let nearly_done = look(3600, 1000, 990);
        assert!((13..=23).contains(&nearly_done), "{nearly_done}");
        assert!(look(86_400 * 7, 10, 0) <= 300);
    }

    #[test]
    fn calls_that_fail_come_back_at_different_times() {
        let at = |seed| next_call(3, seed, &StagingPolicy::default(), Timestamp(0)).0;
        assert!((0..100).all(|seed| (12_000..=20_000).contains(&at(seed))));
        let spread: std::collections::BTreeSet<i64> = (0..100).map(at).collect();
        assert!(spread.len() > 30);
        assert!(next_call(60, 1, &StagingPolicy::default(), Timestamp(0)).0 <= 375_000);
    }

    #[test]
    fn one_bad_file_does_not_take_the_others_with_it() {
        let check = |status, retry, files, expected| {
            let failure = Failure {
                side: Side::Source,
                retry,
                concern: Concern::StorageElement,
                phase: Phase::Staging,
                errno: Errno::EIO,
                detail: String::new(),
                found: None,
                busy: None,
                code: None,
            };
            let found = after_refusal(&failure, status, files);
            assert_eq!(found, expected, "{status:?} {retry:?} {files}");
        };
        check(Some(400), Retry::Never, 100, RefusalRemedy::AskForFewer);
        check(Some(400), Retry::Never, 1, RefusalRemedy::GiveUp);
        check(Some(400), Retry::Later, 1, RefusalRemedy::GiveUp);
        check(Some(413), Retry::Later, 2, RefusalRemedy::AskForFewer);
        check(Some(401), Retry::Never, 100, RefusalRemedy::GiveUp);
        check(Some(503), Retry::Later, 100, RefusalRemedy::AskLater);
        check(None, Retry::Later, 100, RefusalRemedy::AskLater);
        check(None, Retry::ElsewhereOnly, 100, RefusalRemedy::GiveUp);
    }
}
