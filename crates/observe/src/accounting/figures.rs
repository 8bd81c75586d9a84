//! Figures that cannot be true, with the arithmetic that shows it: of rows, and of tables that people published.

use penstock_model::Bytes;
use penstock_model::observation::{Attempt, Operation, Outcome, Sample};
use penstock_model::text::{one_line, plural};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// By how much a printed figure may differ from what its neighbours say: printing rounds to two or three digits.
const ROUNDING_RATIO: f64 = 0.03;
/// Examples that are told of one kind.
const EXAMPLES_MAX: usize = 3;

/// Something that cannot be true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Impossible {
    /// What is wrong.
    pub what: String,
    /// How often.
    pub count: u64,
    /// Rows of it, with the arithmetic.
    pub examples: Vec<String>,
}

impl Impossible {
    /// On one line.
    pub fn words(&self) -> String {
        let examples = self.examples.join("; ");
        let times = plural(self.count, "time");
        format!("{times}: {} ({})", self.what, one_line(&examples))
    }
}

/// Gathers rows that cannot be true.
#[derive(Debug, Clone, Default)]
pub struct ImpossibleRows {
    found: BTreeMap<&'static str, (u64, Vec<String>)>,
}

impl ImpossibleRows {
    fn add(&mut self, what: &'static str, example: impl FnOnce() -> String) {
        let (count, examples) = self.found.entry(what).or_default();
        *count += 1;
        if examples.len() < EXAMPLES_MAX {
            examples.push(example());
        }
    }

    /// Looks at an attempt.
    pub fn look(&mut self, row: &Attempt) {
        let place = || format!("{} line {}", row.source, row.line);
        if let (Some(started), Some(ended)) = (row.started, row.ended)
            && ended < started
        {
            self.add("an attempt ended before it began", || {
                format!("{}: {} ms before", place(), started.0 - ended.0)
            });
        }
        let is_copy = row.operation == Operation::Copy && row.outcome == Some(Outcome::Success);
        if let (true, Some(moved), Some(size)) = (is_copy, row.bytes_moved, row.file_bytes)
            && moved < size
        {
            self.add("a whole file arrived of which fewer bytes moved", || {
                format!("{}: {} of {} bytes", place(), moved.0, size.0)
            });
        }
        if let (Some(all), Some(part)) = (row.busy_us, row.receiver_limited_us)
            && part > all
        {
            self.add("a total is below its part", || {
                format!(
                    "{}: limited by the receiver for {part} of {all} us with data outstanding",
                    place()
                )
            });
        }
        if let (Some(all), Some(part)) = (row.sent_segments, row.retransmitted_segments)
            && part > all
        {
            self.add("a total is below its part", || {
                format!("{}: {part} of {all} segments were sent again", place())
            });
        }
    }

    /// Looks at a sample.
    pub fn look_at_sample(&mut self, row: &Sample) {
        let place = || format!("{} line {}", row.source, row.line);
        if row.busy_permille.is_some_and(|busy| busy > 1_050) {
            self.add("something was busy for longer than the interval", place);
        }
        if let (Some(capacity), Some(interval)) = (row.capacity_bytes_per_second, row.interval_ms) {
            let most = capacity as f64 * interval as f64 / 1000.0;
            let carried = row.bytes_in.max(row.bytes_out).unwrap_or_default();
            if carried.0 as f64 > most * (1.0 + ROUNDING_RATIO) {
                self.add("more was carried than could be", || {
                    format!("{}: {} of at most {most:.0} bytes", place(), carried.0)
                });
            }
        }
    }

    /// All that was found.
    pub fn found(&self) -> Vec<Impossible> {
        let found = self.found.iter();
        let found = found.map(|(what, (count, examples))| Impossible {
            what: (*what).to_owned(),
            count: *count,
            examples: examples.clone(),
        });
        found.collect()
    }
}

/// A row of a table that somebody published.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Its name in the table.
    pub name: String,
    pub files: u64,
    #[serde(rename = "volume_bytes")]
    pub volume: Bytes,
    /// Bytes per second.
    #[serde(rename = "bytes_per_second")]
    pub rate: f64,
    /// Bytes of a file, on the average.
    #[serde(rename = "mean_file_bytes")]
    pub mean_size: f64,
}

/// A table: parts, and their total.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedTable {
    pub total: PublishedRow,
    pub parts: Vec<PublishedRow>,
    /// The window that the table states.
    pub seconds: f64,
    /// Rates that are published beside the table, each over a period of its own within that window.
    #[serde(default)]
    pub rates: Vec<PeriodRate>,
}

/// A rate of a period, of which the volume is not printed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeriodRate {
    pub name: String,
    /// Which row of the table moved it.
    pub of: String,
    /// How long the period is.
    pub seconds: f64,
    /// Bytes per second.
    #[serde(rename = "bytes_per_second")]
    pub rate: f64,
}

impl PublishedTable {
    /// What of it cannot be true: which row, and the arithmetic.
    pub fn contradictions(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for row in [&self.total].into_iter().chain(&self.parts) {
            let mut add = |what: String| found.push((row.name.clone(), what));
            let mean = row.volume.0 as f64 / row.files as f64;
            if row.files > 0 && differs(mean, row.mean_size) {
                add(format!(
                    "{} / {} files = {:.3} GB, not {:.3} GB (factor {:.1})",
                    row.volume,
                    row.files,
                    mean / 1e9,
                    row.mean_size / 1e9,
                    mean / row.mean_size
                ));
            }
            let volume = row.rate * self.seconds;
            if differs(volume, row.volume.0 as f64) {
                add(format!(
                    "{:.3} GB/s × {:.1} h = {:.0} TB, not {:.0} TB: the rate is over {:.1} h",
                    row.rate / 1e9,
                    self.seconds / 3600.0,
                    volume / 1e12,
                    row.volume.0 as f64 / 1e12,
                    row.volume.0 as f64 / row.rate / 3600.0
                ));
            }
            if row.volume > self.total.volume || row.files > self.total.files {
                add(format!(
                    "a part of {} files, {} is above its total of {} files, {}",
                    row.files, row.volume, self.total.files, self.total.volume
                ));
            }
        }
        let sum: f64 = self.parts.iter().map(|row| row.rate).sum();
        if !self.parts.is_empty() && differs(sum, self.total.rate) {
            let what = format!(
                "rates of the parts add up to {:.2} GB/s, not {:.2} GB/s: they are over different windows",
                sum / 1e9,
                self.total.rate / 1e9
            );
            found.push((self.total.name.clone(), what));
        }
        found.extend(self.rates.iter().filter_map(|rate| self.excess(rate)));
        found
    }

    /// A rate with which more would have moved in its period than in all of the window.
    fn excess(&self, rate: &PeriodRate) -> Option<(String, String)> {
        let row = self.row(&rate.of)?;
        let (volume, all) = (rate.rate * rate.seconds, row.volume.0 as f64);
        let what = format!(
            "{:.3} GB/s × {:.1} h = {:.0} TB, more than the {:.0} TB of all of the window",
            rate.rate / 1e9,
            rate.seconds / 3600.0,
            volume / 1e12,
            all / 1e12
        );
        (volume > all && differs(volume, all)).then(|| (rate.name.clone(), what))
    }

    /// A row by its name.
    pub(super) fn row(&self, name: &str) -> Option<&PublishedRow> {
        [&self.total]
            .into_iter()
            .chain(&self.parts)
            .find(|row| row.name == name)
    }
}

fn differs(a: f64, b: f64) -> bool {
    (a - b).abs() > ROUNDING_RATIO * a.abs().max(b.abs())
}
