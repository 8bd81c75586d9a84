//! How long removed files are kept.

use crate::clock::ClockTrust;
use penstock_model::Timestamp;
use std::time::Duration;

/// What was removed before this time is kept no longer. `None`: nothing goes now, because the clock is not believed and
/// what is gone does not come back with the right time. `grace` 0 keeps nothing, whatever the clock says.
pub fn kept_since(grace: Duration, now: Timestamp, clock: ClockTrust) -> Option<Timestamp> {
    if grace.is_zero() {
        return Some(Timestamp(i64::MAX));
    }
    let grace = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    match clock {
        ClockTrust::Credible => Some(Timestamp(now.0.saturating_sub(grace))),
        ClockTrust::Doubted { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClockDoubt;

    #[test]
    fn a_removed_file_is_kept_for_the_grace_time_and_for_as_long_as_the_clock_is_doubted() {
        let (now, hour) = (Timestamp(10_000_000), Duration::from_secs(3600));
        let doubted = ClockTrust::Doubted {
            because: ClockDoubt::LeaptForward(hour),
            left: hour,
        };
        let since = kept_since(hour, now, ClockTrust::Credible);
        assert_eq!(since, Some(Timestamp(6_400_000)));
        assert_eq!(kept_since(hour, now, doubted), None);
        let all = Some(Timestamp(i64::MAX));
        assert_eq!(kept_since(Duration::ZERO, now, doubted), all);
        assert_eq!(
            kept_since(Duration::MAX, now, ClockTrust::Credible),
            Some(Timestamp(now.0 - i64::MAX))
        );
    }
}
