//! The wall clock, read in one place. Whether it is believed is decided in `decide::clock`.
#![forbid(unsafe_code)]

use penstock_model::Timestamp;
use std::time::SystemTime;

/// What the wall clock shows; 1970 if it is before that.
pub fn wall_clock() -> Timestamp {
    timestamp(SystemTime::now())
}

/// A time that the operating system tells, as of a file.
pub fn timestamp(time: SystemTime) -> Timestamp {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(0) + since_epoch.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_milliseconds_since_1970() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds);
        assert_eq!(timestamp(at(1.5)), Timestamp(1_500));
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(timestamp(before), Timestamp(0));
        assert!(wall_clock() > Timestamp(1_700_000_000_000));
    }
}
