//! One table of an account: attempts by one kind of name, their volumes by day, and their rates over time.

use super::names::NameNumbers;
use super::time_bins::{TimeBins, ToldBins};
use super::{
    AccountKey, NAMES_MAX, OTHERS, PublishedRate, SUCCESS_RULE, Statement, UNKNOWN, arrived_of,
    bytes, efficiency_percent,
};
use crate::rate::{UNIT, Window, megabits_per_second};
use penstock_model::observation::{Attempt, Operation, Outcome, View};
use penstock_model::{Bytes, Timestamp};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Days of names that are told apart at most; as many bins of them.
const DAYS_MAX: usize = 200_000;
/// Kinds of failure that are told apart for one name at most.
const FINGERPRINTS_MAX: usize = 1_000;
/// Kinds of failure that are told apart in all lines of a table at most.
const FINGERPRINTS_OF_TABLE_MAX: usize = 100_000;
/// Curves that are told apart in one figure; the rest is one more.
const CURVES_MAX: usize = 8;
/// The name of what is not told apart.
const ALL: &str = "(all)";
const SPREAD_EVENT: &str =
    "bytes of an attempt count evenly from its start to its end; without a start, at its end";

type RowKey = (View, Operation, String);
/// The same, with the number of the name.
type NumberedKey = (View, Operation, u32);

/// Attempts by one kind of name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccountTable {
    /// What it has rows for.
    pub by: AccountKey,
    pub lines: Vec<AccountRow>,
    /// Volumes day by day.
    pub days: Vec<Day>,
    /// Rates over time, for each view and operation.
    pub over_time: Vec<RatesOverTime>,
}

/// One row of a table: attempts of one name in one view.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccountRow {
    /// Whose books.
    pub view: View,
    /// What was attempted.
    pub operation: Operation,
    /// The VO, link, server, activity or day.
    pub name: String,
    /// Attempts that ended well.
    pub succeeded: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were stopped by who had asked for them: in no rate and no quality.
    pub aborted: u64,
    /// Kinds of failure: one full disk is one.
    pub incidents: u64,
    /// Successes in percent of successes and failures (the dashboard's efficiency). `None`: nothing ended.
    pub efficiency_percent: Option<f64>,
    /// Bytes of files that arrived, as far as they are told.
    pub arrived: Bytes,
    /// Bytes that moved, also of attempts that failed, as far as they are told.
    pub moved: Bytes,
    /// Successes of which no bytes are told: the volume is that of the others.
    pub without_bytes: u64,
    /// The mean rate of what arrived, over the whole window.
    pub rate: Option<PublishedRate>,
}

/// Volumes of one name in one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Day {
    /// Whose books.
    pub view: View,
    /// What was attempted.
    pub operation: Operation,
    /// The VO, link, server or activity.
    pub name: String,
    /// `2026-11-24`, in UTC.
    pub day: String,
    /// Bytes of files that arrived in it.
    pub arrived: Bytes,
    /// The same over the day, or over the part of it that is in the window.
    pub rate: Option<PublishedRate>,
    /// Bytes that arrived since the beginning of the window.
    pub cumulative: Bytes,
}

/// Rates of the names of one view and operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RatesOverTime {
    pub view: View,
    pub operation: Operation,
    pub statement: Statement,
    /// Where the first bin begins; it may begin before the window.
    pub from: Timestamp,
    /// Length of each bin.
    pub bin_seconds: u64,
    /// The largest first; what is not told apart is the last one.
    pub curves: Vec<RateCurve>,
}

/// One name over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateCurve {
    pub name: String,
    /// Bytes that arrived since the beginning of the window, at the end of each bin.
    pub cumulative: Vec<Bytes>,
    /// Mean rate of each bin, over the part of it that is in the window.
    pub megabits_per_second: Vec<f64>,
}

#[derive(Debug, Default)]
struct Sum {
    succeeded: u64,
    failed: u64,
    aborted: u64,
    /// By their numbers.
    fingerprints: BTreeSet<u32>,
    arrived: u128,
    moved: u128,
    without_bytes: u64,
}

/// Takes attempts for one table.
#[derive(Debug)]
pub(super) struct TableSums {
    pub(super) by: AccountKey,
    names: NameNumbers,
    fingerprints: NameNumbers,
    sums: BTreeMap<NumberedKey, Sum>,
    days: BTreeMap<(NumberedKey, i64), u128>,
    over_time: TimeBins<NumberedKey>,
    /// Where the name of a row is written, so that nothing is made anew for each.
    name: String,
}

impl TableSums {
    pub(super) fn new(by: AccountKey, begin: Timestamp) -> TableSums {
        TableSums {
            by,
            names: NameNumbers::default(),
            fingerprints: NameNumbers::default(),
            sums: BTreeMap::new(),
            days: BTreeMap::new(),
            over_time: TimeBins::since(begin),
            name: String::new(),
        }
    }

    /// Takes an attempt that began then.
    pub(super) fn take(&mut self, row: &Attempt, outcome: Outcome, began: Timestamp) {
        let (key, day_key) = self.keys_of(row);
        let sum = self.sums.entry(key).or_default();
        sum.moved += row.bytes_moved.map_or(0, |moved| u128::from(moved.0));
        match outcome {
            Outcome::Success => {
                sum.succeeded += 1;
                match arrived_of(row) {
                    Some(arrived) => {
                        let arrived = u128::from(arrived.0);
                        sum.arrived += arrived;
                        self.over_time.add(&day_key, began, row.at, arrived);
                        *self.days.entry((day_key, day_of(row.at))).or_default() += arrived;
                    }
                    None => {
                        let has_bytes =
                            ![Operation::Removal, Operation::Request].contains(&row.operation);
                        sum.without_bytes += u64::from(has_bytes);
                    }
                }
            }
            Outcome::Failure => {
                sum.failed += 1;
                if sum.fingerprints.len() < FINGERPRINTS_MAX {
                    let fingerprint = row.fingerprint.as_deref().unwrap_or(UNKNOWN);
                    let numbers = &mut self.fingerprints;
                    let number = numbers.number_within(fingerprint, FINGERPRINTS_OF_TABLE_MAX);
                    sum.fingerprints.extend(number);
                }
            }
            Outcome::Abort => sum.aborted += 1,
        }
    }

    /// The line of a row, and the one in which its bytes are told by day and over time.
    fn keys_of(&mut self, row: &Attempt) -> (NumberedKey, NumberedKey) {
        let (view, operation) = (row.view, row.operation);
        self.name.clear();
        write_name(self.by, row, &mut self.name);
        let (is_full, sums) = (self.sums.len() >= NAMES_MAX, &self.sums);
        let has_line = |number| sums.contains_key(&(view, operation, number));
        let number = self.names.number_in(&self.name, is_full, has_line);
        let day_number = if self.by == AccountKey::Day {
            self.names.number(ALL)
        } else if self.days.len() >= DAYS_MAX || self.over_time.len() >= DAYS_MAX {
            self.names.number(OTHERS)
        } else {
            number
        };
        ((view, operation, number), (view, operation, day_number))
    }

    pub(super) fn table(self, window: Option<Window>) -> AccountTable {
        let (by, names) = (self.by, &self.names);
        let named = |(view, operation, number): NumberedKey| {
            (view, operation, names.name(number).to_owned())
        };
        let sums = self.sums.into_iter().map(|(key, sum)| (named(key), sum));
        let lines: BTreeMap<RowKey, Sum> = sums.collect();
        let lines = lines.into_iter();
        let lines = lines.map(|(key, sum)| line_of(key, sum, window, by));
        let days = self.days.into_iter();
        let days = days.map(|((key, day), arrived)| ((named(key), day), arrived));
        AccountTable {
            by,
            lines: lines.collect(),
            days: days_of(days.collect(), window, by),
            over_time: window.map_or_else(Vec::new, |window| {
                rates_over_time(self.over_time.told(window), names, window, by)
            }),
        }
    }
}

fn write_name(by: AccountKey, row: &Attempt, name: &mut String) {
    let text = match by {
        AccountKey::Vo => row.vo.as_ref().map(|vo| vo.as_str()),
        AccountKey::Activity => row.activity.as_ref().map(|activity| activity.as_str()),
        AccountKey::Link => {
            let source = row.source_host.as_deref().unwrap_or(UNKNOWN);
            name.push_str(source);
            name.push_str(" → ");
            row.destination_host.as_deref()
        }
        AccountKey::Source => row.source_host.as_deref(),
        AccountKey::Destination => row.destination_host.as_deref(),
        AccountKey::Server => {
            let pool = row.pool.as_ref().map(|pool| pool.as_str());
            row.server.as_deref().or(pool)
        }
        AccountKey::Day => {
            name.push_str(&day_name(day_of(row.at)));
            return;
        }
    };
    name.push_str(text.unwrap_or(UNKNOWN));
}

fn population_of(operation: Operation, by: AccountKey, name: &str) -> String {
    let (operation, what) = (operation.word(), by.words());
    match by {
        AccountKey::Day if name == ALL => format!("all {operation} attempts that arrived"),
        _ => format!("{operation} attempts of {what} {name} that arrived"),
    }
}

fn line_of(
    (view, operation, name): RowKey,
    sum: Sum,
    window: Option<Window>,
    by: AccountKey,
) -> AccountRow {
    let arrived = bytes(sum.arrived);
    let population = population_of(operation, by, &name);
    AccountRow {
        view,
        operation,
        name,
        succeeded: sum.succeeded,
        failed: sum.failed,
        aborted: sum.aborted,
        incidents: sum.fingerprints.len() as u64,
        efficiency_percent: efficiency_percent(sum.succeeded, sum.failed),
        arrived,
        moved: bytes(sum.moved),
        without_bytes: sum.without_bytes,
        rate: window
            .and_then(|window| PublishedRate::of_arrived(view, window, arrived, population)),
    }
}

fn day_of(at: Timestamp) -> i64 {
    at.unix_seconds().div_euclid(86_400)
}

fn day_name(day: i64) -> String {
    let (year, month, day, _) = Timestamp(day.saturating_mul(86_400_000)).civil();
    format!("{year:04}-{month:02}-{day:02}")
}

/// The part of a day that is in a window. The end of the last attempt is in it, however short it is.
fn part_of_day(day: i64, window: Window) -> Window {
    let begin = day.saturating_mul(86_400_000);
    Window {
        from: window.from.max(Timestamp(begin)),
        to: window.to.min(Timestamp(begin.saturating_add(86_400_000))),
        rule: window.rule,
    }
}

fn days_of(
    days: BTreeMap<(RowKey, i64), u128>,
    window: Option<Window>,
    by: AccountKey,
) -> Vec<Day> {
    let mut cumulative: BTreeMap<RowKey, u128> = BTreeMap::new();
    let days = days.into_iter().map(|((key, day), arrived)| {
        let total = cumulative.entry(key.clone()).or_default();
        *total += arrived;
        let total = *total;
        let (view, operation, name) = key;
        let population = population_of(operation, by, &name);
        let part = window.map(|window| part_of_day(day, window));
        Day {
            view,
            operation,
            name,
            day: day_name(day),
            arrived: bytes(arrived),
            rate: part
                .and_then(|part| PublishedRate::of_arrived(view, part, bytes(arrived), population)),
            cumulative: bytes(total),
        }
    });
    days.collect()
}

/// A name, and its bytes in each bin.
type NamedSums = (String, Vec<u128>);

fn rates_over_time(
    told: ToldBins<NumberedKey>,
    names: &NameNumbers,
    window: Window,
    by: AccountKey,
) -> Vec<RatesOverTime> {
    let mut groups: BTreeMap<(View, Operation), Vec<NamedSums>> = BTreeMap::new();
    for ((view, operation, number), sums) in told.sums {
        let of_group = groups.entry((view, operation)).or_default();
        of_group.push((names.name(number).to_owned(), sums));
    }
    let groups = groups.into_iter().map(|((view, operation), mut named)| {
        named.sort_by_key(|(name, sums)| {
            (std::cmp::Reverse(sums.iter().sum::<u128>()), name.clone())
        });
        let rest = named.split_off(named.len().min(CURVES_MAX));
        if !rest.is_empty() {
            let mut others = vec![0; told.seconds.len()];
            for (_, sums) in &rest {
                let both = others.iter_mut().zip(sums);
                both.for_each(|(other, sum)| *other += sum);
            }
            named.push((OTHERS.to_owned(), others));
        }
        let curves = named.into_iter();
        let population = match by {
            AccountKey::Day => format!("all {} attempts that arrived", operation.word()),
            _ => format!(
                "{} attempts that arrived, by {}",
                operation.word(),
                by.words()
            ),
        };
        RatesOverTime {
            view,
            operation,
            statement: Statement {
                population,
                window,
                event: SPREAD_EVENT,
                unit: UNIT,
                success_rule: SUCCESS_RULE,
                view,
            },
            from: told.from,
            bin_seconds: told.bin_seconds,
            curves: curves
                .map(|(name, sums)| curve(name, &sums, &told.seconds))
                .collect(),
        }
    });
    groups.collect()
}

fn curve(name: String, sums: &[u128], seconds: &[f64]) -> RateCurve {
    let mut total = 0;
    let cumulative = sums.iter().map(|sum| {
        total += sum;
        bytes(total)
    });
    let cumulative = cumulative.collect();
    let rates = sums.iter().zip(seconds);
    RateCurve {
        name,
        cumulative,
        megabits_per_second: rates
            .map(|(sum, seconds)| megabits_per_second(bytes(*sum), *seconds))
            .collect(),
    }
}
