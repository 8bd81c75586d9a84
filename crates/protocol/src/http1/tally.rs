//! Requests of a port, counted by method and status, and how long they took.

use crate::exposition::{Counter, Family, Histogram};
use http::{Method, StatusCode};
use std::time::Duration;

/// Methods that are told apart. Clients choose methods, so others are one.
const METHODS: [&str; 15] = [
    "GET",
    "HEAD",
    "PUT",
    "POST",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "MOVE",
    "COPY",
    "LOCK",
    "UNLOCK",
    "other",
];
const FIRST_STATUS: usize = 100;
const STATUSES: usize = 500;
/// Microseconds, from what a look at the namespace takes to a large file.
const BOUNDS: [u64; 10] = [
    1_000,
    5_000,
    20_000,
    100_000,
    500_000,
    2_000_000,
    10_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
];

/// The requests of one port, or of several that are one to their users.
#[derive(Debug)]
pub struct RequestTally {
    counts: Vec<Counter>,
    durations: Vec<Histogram>,
}

impl Default for RequestTally {
    fn default() -> RequestTally {
        let cells = METHODS.len() * STATUSES;
        let durations = METHODS.iter();
        RequestTally {
            counts: (0..cells).map(|_| Counter::default()).collect(),
            durations: durations
                .map(|_| Histogram::of_microseconds(&BOUNDS))
                .collect(),
        }
    }
}

impl RequestTally {
    /// Counts an answered request. `took`: until the whole answer was handed to the system.
    pub fn count(&self, method: &Method, status: StatusCode, took: Duration) {
        let method = METHODS.iter().position(|name| method.as_str() == *name);
        let method = method.unwrap_or(METHODS.len() - 1);
        let status = usize::from(status.as_u16()).saturating_sub(FIRST_STATUS);
        if let Some(count) = self
            .counts
            .get(method * STATUSES + status.min(STATUSES - 1))
        {
            count.increment();
        }
        self.durations[method].observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Counts by method and status, those that are not zero.
    pub fn write_counts(&self, family: &mut Family<'_>, port: &str) {
        for (at, count) in self.counts.iter().enumerate() {
            let (count, status) = (count.read(), FIRST_STATUS + at % STATUSES);
            if count > 0 {
                let (method, status) = (METHODS[at / STATUSES], status.to_string());
                family.sample(
                    &[("port", port), ("method", method), ("status", &status)],
                    count,
                );
            }
        }
    }

    /// How long requests took, of methods that came.
    pub fn write_durations(&self, family: &mut Family<'_>, port: &str) {
        let seen = METHODS.iter().zip(&self.durations);
        for (method, durations) in seen.filter(|(_, durations)| durations.count() > 0) {
            family.distribution(&[("port", port), ("method", method)], durations);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::Page;

    #[test]
    fn whatever_clients_send_makes_few_series() {
        let tally = RequestTally::default();
        let second = Duration::from_secs(1);
        for method in ["GET", "GET", "BREW", "X-ANY"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a token");
            tally.count(&method, StatusCode::OK, second);
        }
        tally.count(
            &Method::GET,
            StatusCode::from_u16(999).expect("a status"),
            second,
        );
        let mut page = Page::default();
        tally.write_counts(&mut page.counter("r_total", "R."), "door");
        let text = page.into_text();
        let samples: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            samples,
            [
                "r_total{port=\"door\",method=\"GET\",status=\"200\"} 2",
                "r_total{port=\"door\",method=\"GET\",status=\"599\"} 1",
                "r_total{port=\"door\",method=\"other\",status=\"200\"} 2",
            ]
        );
    }
}
