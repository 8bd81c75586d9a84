//! The clocks of this machine, read in one place.

use penstock_model::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(0) + since_epoch
}

/// A duration as stage clocks hold it.
pub(crate) fn microseconds(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
