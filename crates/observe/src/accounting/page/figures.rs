//! The plots of the page.

use super::super::tables::{AccountTable, RateCurve, RatesOverTime};
use super::super::utilisation::Utilisation;
use super::super::{AccountKey, UNKNOWN};
use super::{Part, counts, shown};
use crate::svg::{Curve, Plot};
use penstock_model::{Bytes, Timestamp};
use std::time::Duration;

/// Subjects whose utilisation is drawn; the table has all.
const UTILISATIONS_MAX: usize = 12;
const RATE_UNIT: &str = "Mb/s";

/// Rates by one kind of name. Nothing where no attempt tells that name.
pub(super) fn add_rates(out: &mut String, table: &AccountTable, part: Part) {
    let Some(rates) = rates_of(table, part) else {
        return;
    };
    if [AccountKey::Link, AccountKey::Server].contains(&table.by) {
        return;
    }
    let title = match table.by {
        AccountKey::Day => "Rate".to_owned(),
        by => format!("Rate by {}", by.words()),
    };
    let values = |curve: &RateCurve| {
        let rates = curve.megabits_per_second.iter().copied();
        Curve::known(shown(&curve.name), rates)
    };
    let plot = Plot {
        title: format!("{title}, means of {}", span(rates.bin_seconds)),
        unit: RATE_UNIT,
        ticks: ticks_of(rates),
        curves: rates.curves.iter().map(values).collect(),
        note: counts(Some(&rates.statement)),
    };
    out.push_str(&plot.stacked());
}

/// What has arrived since the beginning.
pub(super) fn add_cumulative(out: &mut String, table: &AccountTable, part: Part) {
    let Some(rates) = rates_of(table, part) else {
        return;
    };
    let last = |curve: &RateCurve| curve.cumulative.last().map_or(0, |bytes| bytes.0);
    let total: u128 = rates
        .curves
        .iter()
        .map(|curve| u128::from(last(curve)))
        .sum();
    let (unit, size) = match total {
        0..1_000_000 => ("kB", 1e3),
        1_000_000..1_000_000_000 => ("MB", 1e6),
        1_000_000_000..1_000_000_000_000 => ("GB", 1e9),
        1_000_000_000_000..1_000_000_000_000_000 => ("TB", 1e12),
        _ => ("PB", 1e15),
    };
    let values = |curve: &RateCurve| {
        let sums = curve.cumulative.iter().map(|Bytes(sum)| *sum as f64 / size);
        Curve::known(shown(&curve.name), sums)
    };
    let statement = super::Statement {
        unit,
        ..rates.statement.clone()
    };
    let plot = Plot {
        title: format!("Cumulative volume by {}", table.by.words()),
        unit,
        ticks: ticks_of(rates),
        curves: rates.curves.iter().map(values).collect(),
        note: counts(Some(&statement)),
    };
    out.push_str(&plot.stacked());
}

/// What is carried beside what could be, where a capacity is told.
pub(super) fn add_utilisation(out: &mut String, all: &[Utilisation]) {
    for of in all.iter().take(UTILISATIONS_MAX) {
        let (Some(from), Some(bin_seconds)) = (of.from, of.bin_seconds) else {
            continue;
        };
        let percent = of
            .percent
            .map_or_else(String::new, |percent| format!(": {percent:.1} %"));
        let curve = |title: &str, values: &[Option<f64>]| Curve {
            name: title.to_owned(),
            values: values.to_vec(),
        };
        let plot = Plot {
            title: format!(
                "Utilisation of {} {}{percent}",
                of.subject_kind.word(),
                shown(&of.name)
            ),
            unit: RATE_UNIT,
            ticks: ticks(from, bin_seconds, of.megabits_per_second.len()),
            curves: vec![
                curve("carried", &of.megabits_per_second),
                curve("capacity", &of.capacity_megabits_per_second),
            ],
            note: counts(of.statement.as_ref()),
        };
        out.push_str(&plot.lines());
    }
}

/// The rates of a part, if any attempt tells a name and bytes.
fn rates_of(table: &AccountTable, part: Part) -> Option<&RatesOverTime> {
    let mut all = table.over_time.iter();
    let rates = all.find(|rates| part.has(rates.view, rates.operation))?;
    let is_named = |curve: &RateCurve| table.by == AccountKey::Vo || curve.name != UNKNOWN;
    rates.curves.iter().any(is_named).then_some(rates)
}

fn ticks_of(rates: &RatesOverTime) -> [String; 5] {
    let bins = rates
        .curves
        .first()
        .map_or(0, |curve| curve.cumulative.len());
    ticks(rates.from, rates.bin_seconds, bins)
}

/// Moments below an axis, as exact as its length needs.
fn ticks(from: Timestamp, bin_seconds: u64, bins: usize) -> [String; 5] {
    let length = bin_seconds.saturating_mul(bins as u64);
    [0, 1, 2, 3, 4].map(|quarter| {
        let at = from + Duration::from_secs(length / 4 * quarter);
        let text = at.to_fts();
        let (date, time) = text.split_once('T').unwrap_or((&text, ""));
        let minute = time.get(..5).unwrap_or(time);
        match length {
            0..7_200 => time.to_owned(),
            7_200..86_401 => minute.to_owned(),
            86_401..864_000 => format!("{} {minute}", date.get(5..).unwrap_or(date)),
            _ => date.to_owned(),
        }
    })
}

fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        86_400 => "1 day".to_owned(),
        _ => format!("{} days", seconds / 86_400),
    }
}
