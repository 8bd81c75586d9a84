//! When the next scheduled backup is due, and which older ones it makes superfluous, by the times in their names. A time that
//! has not come yet was written by a clock that was wrong: it says nothing, and its backup is not touched.

use penstock_model::Timestamp;
use std::time::Duration;

/// Wait before the first backup of a service that has none.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The first wait after a backup that failed; it doubles with each further one.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(60);

/// The newest backup whose time has come.
pub fn newest(made: &[Timestamp], now: Timestamp) -> Option<Timestamp> {
    made.iter().copied().filter(|at| *at <= now).max()
}

/// How long to wait for the next one, `every` after the newest.
pub fn wait_until_due(made: &[Timestamp], every: Duration, now: Timestamp) -> Duration {
    match newest(made, now) {
        Some(at) => (at + every).since(now),
        None => FIRST_DELAY,
    }
}

/// How long to wait after so many failures in a row.
pub fn wait_after_failures(failures: u32, every: Duration) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    let most = every.max(RETRY_DELAY_MIN);
    RETRY_DELAY_MIN.saturating_mul(doubled).min(most)
}

/// Those that may go now that there is a new and verified one: all but the newest `keep`.
pub fn superfluous(made: &[Timestamp], keep: usize, now: Timestamp) -> Vec<Timestamp> {
    let mut known: Vec<Timestamp> = made.iter().copied().filter(|at| *at <= now).collect();
    known.sort_unstable();
    known.truncate(known.len().saturating_sub(keep.max(1)));
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const NOW: Timestamp = Timestamp(10_000_000);

    #[test]
    fn one_is_due_an_interval_after_the_newest() {
        assert_eq!(wait_until_due(&[], HOUR, NOW), FIRST_DELAY);
        let made = [Timestamp(9_000_000), Timestamp(100)];
        assert_eq!(wait_until_due(&made, HOUR, NOW), Duration::from_secs(2600));
        assert_eq!(wait_until_due(&[Timestamp(100)], HOUR, NOW), Duration::ZERO);
    }

    #[test]
    fn a_backup_of_the_future_holds_none_up_and_is_not_new() {
        let made = [Timestamp(9_000_000), Timestamp(NOW.0 + 86_400_000)];
        assert_eq!(newest(&made, NOW), Some(Timestamp(9_000_000)));
        assert_eq!(wait_until_due(&made, HOUR, NOW), Duration::from_secs(2600));
        assert_eq!(newest(&made[1..], NOW), None);
    }

    #[test]
    fn as_many_are_kept_as_asked_and_those_of_the_future_besides() {
        let made = [3, 1, 2, NOW.0 + 1].map(Timestamp);
        assert_eq!(superfluous(&made, 2, NOW), [Timestamp(1)]);
        assert_eq!(superfluous(&made, 0, NOW), [Timestamp(1), Timestamp(2)]);
        assert_eq!(superfluous(&made, 9, NOW), []);
    }

    #[test]
    fn failures_are_repeated_ever_later() {
        let waits = [1, 2, 3, 30].map(|failures| wait_after_failures(failures, HOUR).as_secs());
        assert_eq!(waits, [60, 120, 240, 3600]);
        let short = Duration::from_secs(10);
        assert_eq!(wait_after_failures(5, short), RETRY_DELAY_MIN);
    }
}
