//! The text format in which Prometheus reads metrics (version 0.0.4): families of samples with their help, and counters
//! and histograms to fill them from.
//!
//! A page is written when it is asked for, from what its owners count anyway: there is no registry, and what is counted
//! is one atomic addition.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// The format's media type.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics in the making. Each family must be written once, whole.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

/// One family of a page: samples of the same name.
#[derive(Debug)]
pub struct Family<'p> {
    text: &'p mut String,
    name: &'static str,
}

/// The value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A count, or a size.
    Whole(u64),
    /// A time or a ratio; finite.
    Real(f64),
}

impl Page {
    /// A family whose values only grow while the process runs. The name ends in `_total`.
    pub fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.family(name, "counter", help)
    }

    /// A family whose values go up and down. The name ends in its unit, if it has one.
    pub fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// A family of distributions. The name ends in its unit.
    pub fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    /// The page.
    pub fn into_text(self) -> String {
        self.text
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        escape(&mut self.text, help, false);
        self.text.push_str("\n# TYPE ");
        self.text.push_str(name);
        self.text.push(' ');
        self.text.push_str(kind);
        self.text.push('\n');
        Family {
            text: &mut self.text,
            name,
        }
    }
}

impl Family<'_> {
    /// One sample. No two of a family may have the same labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<Number>) -> &mut Self {
        self.line("", labels, None, value.into());
        self
    }

    /// All samples of one distribution.
    pub fn distribution(&mut self, labels: &[(&str, &str)], histogram: &Histogram) -> &mut Self {
        let mut below = 0;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            below += count.load(Ordering::Relaxed);
            let bound = (*bound as f64 / histogram.per_unit).to_string();
            self.line("_bucket", labels, Some(&bound), below.into());
        }
        let beyond = histogram.counts.last().expect("one more than bounds");
        let all = below + beyond.load(Ordering::Relaxed);
        self.line("_bucket", labels, Some("+Inf"), all.into());
        let sum = histogram.sum.load(Ordering::Relaxed) as f64 / histogram.per_unit;
        self.line("_sum", labels, None, sum.into());
        self.line("_count", labels, None, all.into());
        self
    }

    fn line(&mut self, part: &str, labels: &[(&str, &str)], bound: Option<&str>, value: Number) {
        let text = &mut *self.text;
        text.push_str(self.name);
        text.push_str(part);
        let labels = labels.iter().copied().chain(bound.map(|to| ("le", to)));
        let mut before = '{';
        for (name, value) in labels {
            text.push(before);
            text.push_str(name);
            text.push_str("=\"");
            escape(text, value, true);
            text.push('"');
            before = ',';
        }
        if before == ',' {
            text.push('}');
        }
        let written = match value {
            Number::Whole(value) => writeln!(text, " {value}"),
            Number::Real(value) => writeln!(text, " {value}"),
        };
        written.expect("a string takes everything");
    }
}

fn escape(text: &mut String, value: &str, quoted: bool) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quoted => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number::Whole(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Number {
        Number::Whole(value.into())
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Number {
        Number::Whole(value as u64)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Number {
        Number::Whole(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Real(value)
    }
}

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many by now.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A distribution of whole numbers, by bounds that are fixed.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    per_unit: f64,
    /// One more than bounds: what is above the last.
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Histogram {
    /// Of numbers that are shown as they are. `bounds` grow.
    pub fn of_counts(bounds: &'static [u64]) -> Histogram {
        Histogram::new(bounds, 1.0)
    }

    /// Of microseconds, shown in seconds. `bounds` grow.
    pub fn of_microseconds(bounds: &'static [u64]) -> Histogram {
        Histogram::new(bounds, 1e6)
    }

    fn new(bounds: &'static [u64], per_unit: f64) -> Histogram {
        Histogram {
            bounds,
            per_unit,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts one number.
    pub fn observe(&self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// All of them together.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        let counts = self.counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_prometheus_documents() {
        let mut page = Page::default();
        let mut family = page.counter("penstock_x_total", "Things, \"counted\"\nby \\ kind.");
        family.sample(&[("kind", "a\"b\\c\nd")], 3_u64);
        family.sample(&[("kind", "e"), ("other", "f")], 4_u64);
        page.gauge("penstock_y_seconds", "A time.")
            .sample(&[], 0.25);
        page.gauge("penstock_z", "Whether.").sample(&[], true);
        assert_eq!(
            page.into_text(),
            "# HELP penstock_x_total Things, \"counted\"\\nby \\\\ kind.\n\
             # TYPE penstock_x_total counter\n\
             penstock_x_total{kind=\"a\\\"b\\\\c\\nd\"} 3\n\
             penstock_x_total{kind=\"e\",other=\"f\"} 4\n\
             # HELP penstock_y_seconds A time.\n# TYPE penstock_y_seconds gauge\npenstock_y_seconds 0.25\n\
             # HELP penstock_z Whether.\n# TYPE penstock_z gauge\npenstock_z 1\n"
        );
    }

    #[test]
    fn buckets_hold_what_is_at_most_their_bound_and_all_below() {
        let histogram = Histogram::of_microseconds(&[1000, 1_000_000]);
        for value in [0, 1000, 1001, 5_000_000] {
            histogram.observe(value);
        }
        let mut page = Page::default();
        page.histogram("h_seconds", "Times.")
            .distribution(&[("a", "b")], &histogram);
        let text = page.into_text();
        let samples: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            samples,
            [
                "h_seconds_bucket{a=\"b\",le=\"0.001\"} 2",
                "h_seconds_bucket{a=\"b\",le=\"1\"} 3",
                "h_seconds_bucket{a=\"b\",le=\"+Inf\"} 4",
                "h_seconds_sum{a=\"b\"} 5.002001",
                "h_seconds_count{a=\"b\"} 4",
            ]
        );
        assert_eq!(histogram.count(), 4);
    }
}
