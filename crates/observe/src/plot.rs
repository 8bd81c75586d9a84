//! A rate over time as text: block characters in a terminal of 80 columns, with both axes labelled.
//!
//! Draws what it is given; choosing bins is the caller's ([`bin_seconds`] proposes their width).

use std::fmt::Write;

/// Widest plot in columns of data; with the axis and its labels it stays below 80.
pub const COLUMNS_MAX: usize = 60;

const ROWS: usize = 6;
/// Width of the labels left of the axis.
const LABEL: usize = 8;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Stands for a bin of which nothing is known: not the same as a rate of 0.
const UNKNOWN: char = '·';

/// The shortest round bin, in seconds, with which `seconds` fit into [`COLUMNS_MAX`] columns.
pub fn bin_seconds(seconds: u64) -> u64 {
    const ROUND: [u64; 14] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 21_600, 86_400,
    ];
    let columns = COLUMNS_MAX as u64;
    ROUND
        .into_iter()
        .find(|bin| seconds.div_ceil(*bin) <= columns)
        .unwrap_or_else(|| seconds.div_ceil(columns))
}

/// Draws `values`, one column each, from the left. `None` is a bin without a sample. Values that are not
/// finite are drawn as unknown; columns beyond [`COLUMNS_MAX`] are left out. Ends with a line break; empty
/// for no values.
pub fn area(values: &[Option<f64>], bin_seconds: u64) -> String {
    let columns: Vec<Option<f64>> = values
        .iter()
        .take(COLUMNS_MAX)
        .map(|value| value.filter(|v| v.is_finite()).map(|v| v.max(0.0)))
        .collect();
    if columns.is_empty() {
        return String::new();
    }
    let top = round_up(columns.iter().flatten().copied().fold(0.0, f64::max));
    let mut out = String::new();
    for row in (0..ROWS).rev() {
        let label = match row {
            _ if row == ROWS - 1 => axis_number(top),
            _ if row == ROWS / 2 - 1 => axis_number(top / 2.0),
            _ => String::new(),
        };
        let tick = if label.is_empty() { '│' } else { '┤' };
        let cells: String = columns.iter().map(|value| cell(*value, top, row)).collect();
        let _ = writeln!(out, "{label:>LABEL$} {tick}{}", cells.trim_end());
    }
    let _ = writeln!(out, "{:>LABEL$} └{}", "0", "─".repeat(columns.len().max(2)));
    let _ = writeln!(
        out,
        "{:>LABEL$}  {}",
        "",
        time_labels(columns.len(), bin_seconds)
    );
    out
}

/// What column `value` shows in `row` (0 is the lowest).
fn cell(value: Option<f64>, top: f64, row: usize) -> char {
    let Some(value) = value else {
        return if row == 0 { UNKNOWN } else { ' ' };
    };
    let eighths = (value / top * (ROWS * 8) as f64).round() as usize;
    // The smallest rate above 0 must not look like no rate.
    let eighths = if value > 0.0 { eighths.max(1) } else { 0 };
    BLOCKS[eighths.saturating_sub(row * 8).min(8)]
}

/// The next number of the form 1, 2, 2.5, 5, 10 × 10^n that is not below `value`; 1 when there is nothing to
/// show.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let magnitude = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|step| step * magnitude)
        .find(|candidate| *candidate >= value)
        .filter(|candidate| candidate.is_finite())
        .unwrap_or(value)
}

fn axis_number(value: f64) -> String {
    if value >= 1e7 {
        format!("{value:.0e}")
    } else if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value >= 0.01 {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.0e}")
    }
}

/// `0 s … 300 s … 600 s` under the axis; the middle is left out when there is no room.
fn time_labels(columns: usize, bin_seconds: u64) -> String {
    let end = format!("{} s", columns as u64 * bin_seconds);
    let middle = format!("{} s", columns as u64 * bin_seconds / 2);
    let width = columns.max(2);
    let mut line = "0 s".to_owned();
    let middle_at = (width / 2).saturating_sub(middle.len() / 2);
    if middle_at >= line.len() + 2 && middle_at + middle.len() + 2 + end.len() <= width {
        line = format!("{line:<middle_at$}{middle}");
    }
    let end_at = width.saturating_sub(end.len()).max(line.len() + 2);
    format!("{line:<end_at$}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_plot_reads_as_one_would_draw_it() {
        let values: Vec<Option<f64>> = (0..30)
            .map(|n| {
                if n == 20 {
                    None
                } else {
                    Some(f64::from(n) * 10.0)
                }
            })
            .collect();
        let expected = [
            "     500 ┤",
            "         │",
            "         │                          ▁▂▃▄",
            "     250 ┤                  ▁▂ ▄▅▆▇█████",
            "         │         ▁▂▃▄▄▅▆▇███ █████████",
            "         │ ▁▂▃▄▅▆▇████████████·█████████",
            "       0 └──────────────────────────────",
            "          0 s          150 s       300 s",
            "",
        ];
        assert_eq!(area(&values, 10), expected.join("\n"));
    }

    #[test]
    fn bins_are_round_and_fit() {
        for (seconds, bin) in [
            (0, 1),
            (1, 1),
            (60, 1),
            (61, 2),
            (1253, 30),
            (3600, 60),
            (22_697, 600),
        ] {
            assert_eq!(bin_seconds(seconds), bin, "{seconds} s");
        }
        assert!(u64::MAX.div_ceil(bin_seconds(u64::MAX)) <= COLUMNS_MAX as u64);
    }

    proptest! {
        #[test]
        fn a_plot_of_anything_fits_80_columns(
            values in proptest::collection::vec(proptest::option::of(proptest::num::f64::ANY), 0..200),
            bin in 1u64..100_000,
        ) {
            let text = area(&values, bin);
            prop_assert_eq!(text.is_empty(), values.is_empty());
            for line in text.lines() {
                prop_assert!(line.chars().count() <= 80, "{}", line);
            }
        }
    }
}
