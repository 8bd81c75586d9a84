//! Two published rates beside each other: what of their difference larger files make, and what more files.

use super::figures::PublishedTable;
use serde::Serialize;
use std::fmt::Write;

/// One factor of a rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateFactor {
    pub name: &'static str,
    /// Of the first rate.
    pub from: f64,
    /// Of the second one.
    pub to: f64,
    /// Bytes per second of the difference that it makes.
    pub change: f64,
}

/// The difference of two rates. Its parts add up to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateComparison {
    pub first: String,
    pub second: String,
    /// Bytes per second.
    pub first_rate: f64,
    pub second_rate: f64,
    /// Bytes of a file, and files per second.
    pub parts: Vec<RateFactor>,
}

impl PublishedTable {
    /// Compares two rows, or rates of periods, by their names. `None`: there is no such row, or a rate or a number of files
    /// is 0.
    pub fn compare(&self, first: &str, second: &str) -> Option<RateComparison> {
        let (from, to) = (self.rate_and_size(first)?, self.rate_and_size(second)?);
        // R = size · files per second; each takes L(R₁, R₀) · ln(x₁/x₀), with L the logarithmic mean: no rest is left.
        let scale = match (to.0 / from.0 - 1.0).abs() < 1e-9 {
            true => from.0,
            false => (to.0 - from.0) / (to.0 / from.0).ln(),
        };
        let part = |name, from: f64, to: f64| RateFactor {
            name,
            from,
            to,
            change: scale * (to / from).ln(),
        };
        Some(RateComparison {
            first: first.to_owned(),
            second: second.to_owned(),
            first_rate: from.0,
            second_rate: to.0,
            parts: vec![
                part("bytes of a file", from.1, to.1),
                part("files per second", from.0 / from.1, to.0 / to.1),
            ],
        })
    }

    /// Of a row or of a period's rate: bytes per second, and bytes of a file by volume and number of files.
    fn rate_and_size(&self, name: &str) -> Option<(f64, f64)> {
        let of_period = self.rates.iter().find(|rate| rate.name == name);
        let row = self.row(of_period.map_or(name, |rate| &rate.of))?;
        let rate = of_period.map_or(row.rate, |of_period| of_period.rate);
        let size = row.volume.0 as f64 / row.files as f64;
        (rate > 0.0 && size > 0.0 && size.is_finite()).then_some((rate, size))
    }
}

impl RateComparison {
    /// For people.
    pub fn text(&self) -> String {
        let gigabytes = |rate: f64| rate / 1e9;
        let mut text = format!(
            "{}: {:.3} GB/s, {}: {:.3} GB/s\n",
            self.first,
            gigabytes(self.first_rate),
            self.second,
            gigabytes(self.second_rate)
        );
        for part in &self.parts {
            let value = |value: f64| match value >= 1e6 {
                true => format!("{:.3} GB", gigabytes(value)),
                false => format!("{value:.3}"),
            };
            let _ = writeln!(
                text,
                "  {}: {} and {}: {:+.3} GB/s",
                part.name,
                value(part.from),
                value(part.to),
                gigabytes(part.change)
            );
        }
        let sum: f64 = self.parts.iter().map(|part| part.change).sum();
        let _ = writeln!(text, "  sum: {:+.3} GB/s", gigabytes(sum));
        text
    }
}
