//! What was carried beside what could have been, of whatever has a capacity that is told: a capacity that changes counts
//! while it holds.

use super::time_bins::{TimeBins, ToldBins};
use super::{NAMES_MAX, Statement, bytes};
use crate::rate::{UNIT, Window, megabits_per_second};
use penstock_model::observation::{Sample, SubjectKind, View};
use penstock_model::{Bytes, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bins of subjects that are told apart at most.
const BINS_MAX: usize = 200_000;

/// What something carried, and could have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Utilisation {
    pub view: View,
    pub subject_kind: SubjectKind,
    /// Its name, after that of its server where one is told.
    pub name: String,
    /// Bytes that it carried while its capacity was told, of both directions the busier in each sample.
    pub carried: Bytes,
    /// Bytes that it could have carried in the same time.
    pub capacity: Bytes,
    /// `carried` in percent of `capacity`.
    pub percent: Option<f64>,
    pub statement: Option<Statement>,
    /// Where the first bin begins.
    pub from: Option<Timestamp>,
    /// Length of each bin.
    pub bin_seconds: Option<u64>,
    /// What it carried in each bin while that was sampled. `None`: it was not.
    pub megabits_per_second: Vec<Option<f64>>,
    /// What it could have.
    pub capacity_megabits_per_second: Vec<Option<f64>>,
}

type SubjectKey = (View, SubjectKind, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Amount {
    Carried,
    Capacity,
    SampledMs,
}

/// Takes samples that tell a capacity.
#[derive(Debug)]
pub(super) struct UtilisationSums {
    totals: BTreeMap<SubjectKey, (u128, u128)>,
    bins: TimeBins<(SubjectKey, Amount)>,
}

impl UtilisationSums {
    pub(super) fn since(begin: Timestamp) -> UtilisationSums {
        UtilisationSums {
            totals: BTreeMap::new(),
            bins: TimeBins::since(begin),
        }
    }

    pub(super) fn take(&mut self, row: &Sample) {
        let (Some(capacity), Some(interval)) = (row.capacity_bytes_per_second, row.interval_ms)
        else {
            return;
        };
        let of_interval = |rate: u64| u128::from(rate) * u128::from(interval) / 1000;
        let busiest = row
            .bytes_in
            .max(row.bytes_out)
            .map(|bytes| u128::from(bytes.0));
        let Some(carried) = busiest.or(row.bytes_per_second.map(of_interval)) else {
            return;
        };
        let name = match &row.server {
            Some(server) if **server != *row.subject => format!("{server} {}", row.subject),
            _ => row.subject.to_string(),
        };
        let key = (row.view, row.subject_kind, name);
        if self.totals.len() >= NAMES_MAX && !self.totals.contains_key(&key) {
            return;
        }
        let capacity = of_interval(capacity);
        let total = self.totals.entry(key.clone()).or_default();
        total.0 += carried;
        total.1 += capacity;
        if self.bins.len() >= BINS_MAX {
            return;
        }
        let from = row.at - Duration::from_millis(interval);
        let amounts = [
            (Amount::Carried, carried),
            (Amount::Capacity, capacity),
            (Amount::SampledMs, u128::from(interval)),
        ];
        for (amount, value) in amounts {
            self.bins.add(&(key.clone(), amount), from, row.at, value);
        }
    }

    /// A line for each, the busiest first.
    pub(super) fn lines(self, window: Option<Window>) -> Vec<Utilisation> {
        let mut told = window.map(|window| (window, self.bins.told(window)));
        let lines = self.totals.into_iter().map(|(key, (carried, capacity))| {
            let mut line = Utilisation {
                view: key.0,
                subject_kind: key.1,
                name: key.2.clone(),
                carried: bytes(carried),
                capacity: bytes(capacity),
                percent: (capacity > 0).then(|| 100.0 * carried as f64 / capacity as f64),
                statement: None,
                from: None,
                bin_seconds: None,
                megabits_per_second: Vec::new(),
                capacity_megabits_per_second: Vec::new(),
            };
            if let Some((window, told)) = &mut told {
                line.add_bins(&key, told, *window);
            }
            line
        });
        let mut lines: Vec<Utilisation> = lines.collect();
        let percent = |line: &Utilisation| line.percent.unwrap_or(0.0);
        lines.sort_by(|a, b| percent(b).total_cmp(&percent(a)).then(a.name.cmp(&b.name)));
        lines
    }
}

impl Utilisation {
    fn add_bins(
        &mut self,
        key: &SubjectKey,
        told: &mut ToldBins<(SubjectKey, Amount)>,
        window: Window,
    ) {
        let count = told.seconds.len();
        let mut sums = |amount: Amount| {
            let sums = told.sums.remove(&(key.clone(), amount));
            sums.unwrap_or_else(|| vec![0; count])
        };
        let sampled = sums(Amount::SampledMs);
        let mut rates = |amount: Amount| -> Vec<Option<f64>> {
            let both = sums(amount).into_iter().zip(&sampled);
            let rates = both.map(|(sum, ms)| {
                (*ms > 0).then(|| megabits_per_second(bytes(sum), *ms as f64 / 1000.0))
            });
            rates.collect()
        };
        self.megabits_per_second = rates(Amount::Carried);
        self.capacity_megabits_per_second = rates(Amount::Capacity);
        self.from = Some(told.from);
        self.bin_seconds = Some(told.bin_seconds);
        self.statement = Some(Statement {
            population: format!(
                "samples of {} {} that tell bytes and capacity; of both directions the busier in each sample",
                self.subject_kind.word(),
                self.name
            ),
            window,
            event: "bytes of a sample count evenly over its interval",
            unit: UNIT,
            success_rule: "none: all bytes that were carried count",
            view: self.view,
        });
    }
}
