//! How many incidents of each class each month had.

use super::Incident;
use crate::explain::Permille;
use penstock_model::{Bytes, IncidentClass, TimeWindow, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A month of the calendar, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    year: i64,
    /// 1 to 12.
    month: u32,
}

/// A text that is no month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a month is written as 2026-11")]
pub struct InvalidMonth;

impl Month {
    /// In which a moment lies.
    pub fn of(at: Timestamp) -> Month {
        let (year, month, _, _) = at.civil();
        Month { year, month }
    }

    /// From its first moment to that of the next month.
    pub fn window(self) -> TimeWindow {
        let next = match self.month {
            12 => Month {
                year: self.year + 1,
                month: 1,
            },
            month => Month {
                month: month + 1,
                ..self
            },
        };
        TimeWindow {
            from: self.begin(),
            to: next.begin(),
        }
    }

    /// Its first moment: the first day that [`Timestamp::civil`] puts into it. Years up to 9999 are meant.
    fn begin(self) -> Timestamp {
        const DAY: i64 = 86_400_000;
        // Never later than it; then day by day.
        let guess = (self.year - 1970) * 365 + i64::from(self.month - 1) * 28;
        let mut at = Timestamp(guess * DAY);
        while Month::of(at) < self {
            at = Timestamp(at.0 + DAY);
        }
        at
    }
}

impl fmt::Display for Month {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04}-{:02}", self.year, self.month)
    }
}

impl FromStr for Month {
    type Err = InvalidMonth;
    fn from_str(text: &str) -> Result<Month, InvalidMonth> {
        let (year, month) = text.split_once('-').ok_or(InvalidMonth)?;
        let number = |text: &str, length: usize| {
            let are_digits = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
            are_digits.then(|| text.parse::<u32>().ok())?
        };
        match (number(year, 4), number(month, 2)) {
            (Some(year @ 1970..), Some(month @ 1..=12)) => Ok(Month {
                year: i64::from(year),
                month,
            }),
            _ => Err(InvalidMonth),
        }
    }
}

impl Serialize for Month {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Month {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Month, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The incidents that were first seen in a month, by class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonthShares {
    pub month: Month,
    pub incidents: u64,
    /// Each class that has some, in the order of the classes. The shares add up to the whole.
    pub classes: Vec<ClassShare>,
}

/// The incidents of one class in a month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassShare {
    pub class: IncidentClass,
    pub incidents: u64,
    /// Its part of the month's incidents.
    pub share: Permille,
    pub failed_attempts: u64,
    /// What did not move in their drops; `None`: they had none.
    pub bytes_lost: Option<Bytes>,
}

/// The share of each class in each month, the earliest first.
pub fn months_of(incidents: &[Incident]) -> Vec<MonthShares> {
    let mut months: BTreeMap<Month, BTreeMap<IncidentClass, ClassShare>> = BTreeMap::new();
    for incident in incidents {
        let class = incident.fingerprint.class;
        let of_month = months.entry(Month::of(incident.first_seen)).or_default();
        let of_class = of_month.entry(class).or_insert(ClassShare {
            class,
            incidents: 0,
            share: Permille(0),
            failed_attempts: 0,
            bytes_lost: None,
        });
        of_class.incidents += 1;
        of_class.failed_attempts += incident.failed_attempts;
        if let Some(lost) = incident.bytes_lost {
            let before = of_class.bytes_lost.unwrap_or(Bytes(0));
            of_class.bytes_lost = Some(Bytes(before.0.saturating_add(lost.0)));
        }
    }
    let shares = |(month, classes): (Month, BTreeMap<IncidentClass, ClassShare>)| {
        let mut classes: Vec<ClassShare> = classes.into_values().collect();
        let incidents = classes.iter().map(|class| class.incidents).sum();
        divide(&mut classes, incidents);
        MonthShares {
            month,
            incidents,
            classes,
        }
    };
    months.into_iter().map(shares).collect()
}

/// Gives each class its part in thousandths. What rounding down leaves goes to those that lost most by it.
fn divide(classes: &mut [ClassShare], incidents: u64) {
    let whole = u64::from(Permille::WHOLE.0);
    let exact = |class: &ClassShare| class.incidents * whole;
    for class in classes.iter_mut() {
        class.share = Permille(u16::try_from(exact(class) / incidents.max(1)).unwrap_or(u16::MAX));
    }
    let given: u16 = classes.iter().map(|class| class.share.0).sum();
    let mut by_rest: Vec<&mut ClassShare> = classes.iter_mut().collect();
    by_rest.sort_by_key(|class| std::cmp::Reverse(exact(class) % incidents.max(1)));
    let left = usize::from(Permille::WHOLE.0.saturating_sub(given));
    for class in by_rest.into_iter().take(left) {
        class.share.0 += 1;
    }
}
