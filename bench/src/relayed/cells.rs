//! What is measured over the relay: the share of the best fixed number, fairness, and what happens when a link loses half of
//! its rate.

use super::{Grid, Network, Policy, Seen, jain};
use crate::cell::Scale;
use crate::error::BenchError;
use crate::relay::shaping::Stretch;
use crate::report::Table;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayCell {
    /// One link with a long way: fixed numbers, then the optimizer and FTS3's rules.
    OneLink,
    /// Four links into one storage element.
    FourLinks,
    /// A link that loses half of its rate, and gets it back.
    Halved,
}

const MEGABIT: f64 = 1e6;
/// From end to end of the single link; a round trip takes twice as long.
const ONE_WAY: Duration = Duration::from_millis(40);
const ONE_LINK_RATE: f64 = 200.0 * MEGABIT;
/// What of packets gets lost on the way.
const LOSS: f64 = 1e-4;
/// How long each fixed number is given to get going, and then measured.
const FIXED: (usize, usize) = (8, 15);
/// How long a policy has to find its number, and how long it is measured then.
const LEARNING: (usize, usize) = (30, 45);
/// When a link loses half of its rate, when it gets it back, when the run ends.
const HALVED_AT: usize = 45;
const RESTORED_AT: usize = 90;
const HALVED_END: usize = 135;
/// What counts as having followed: this part of what the link can bring.
const FOLLOWED: f64 = 0.9;

/// Fixed numbers, then the optimizer and FTS3's rules.
pub const ONE_LINK: Table = Table {
    title: "How many transfers at once: one link with a long way",
    note: "200 Mbit/s, round trip 80 ms, one packet of 10,000 lost, files of 2 MB. Bytes of IP packets that arrived. Policies \
           begin with what a new service knows and are measured after 30 s.",
    columns: &[
        "who decides",
        "MB/s",
        "of the best fixed number",
        "numbers at the end of seconds",
    ],
};

/// Who gets what of a storage element.
pub const FOUR_LINKS: Table = Table {
    title: "How many transfers at once: four links into one storage element",
    note: "200 Mbit/s reach it; round trips of 60, 60, 80 and 120 ms; measured after 30 s.",
    columns: &["who decides", "MB/s in all", "MB/s on each", "Jain's index"],
};

/// What happens when a link changes.
pub const HALVED: Table = Table {
    title: "How many transfers at once: a link that loses half of its rate",
    note: "200 Mbit/s, 100 Mbit/s from second 45 to 90, then 200 again; otherwise as the single link above.",
    columns: &[
        "who decides",
        "MB/s before",
        "MB/s while halved",
        "seconds until 0.9 of what the half can bring, held for 3 s",
        "number at the change, the first other one (after seconds)",
        "seconds until 0.9 of what was before, once the rate is back",
    ],
};

/// A table, and what was measured for it.
type Measured = (&'static Table, Vec<Vec<String>>);

impl RelayCell {
    /// All of them, in the order in which they run.
    pub const ALL: [RelayCell; 3] = [RelayCell::OneLink, RelayCell::FourLinks, RelayCell::Halved];

    /// For `--list` and `--only`.
    pub fn name(self) -> &'static str {
        match self {
            RelayCell::OneLink => "relay-one-link",
            RelayCell::FourLinks => "relay-four-links",
            RelayCell::Halved => "relay-halved",
        }
    }

    /// Runs it; gives what it has to say.
    pub async fn measure(
        self,
        binary: &Path,
        directory: &Path,
        scale: Scale,
    ) -> Result<Measured, BenchError> {
        match self {
            RelayCell::OneLink => one_link(binary, directory, scale).await,
            RelayCell::FourLinks => four_links(binary, directory, scale).await,
            RelayCell::Halved => halved(binary, directory, scale).await,
        }
    }
}

fn seconds(scale: Scale, full: (usize, usize)) -> (usize, usize) {
    match scale {
        Scale::Full { .. } => full,
        Scale::Quick => (2, 3),
    }
}

fn single(rate: f64) -> Network {
    Network {
        links: vec![Stretch::limited(rate, ONE_WAY, LOSS)],
        into_destination: Stretch::OPEN,
    }
}

fn megabytes(rate: f64) -> String {
    format!("{:.1}", rate / 1e6)
}

async fn one_link(binary: &Path, directory: &Path, scale: Scale) -> Result<Measured, BenchError> {
    let grid = Grid::start(binary, directory, 1).await?;
    grid.set(&single(ONE_LINK_RATE));
    let numbers: &[u32] = match scale {
        Scale::Full { .. } => &[2, 4, 8, 16, 24, 32, 64],
        Scale::Quick => &[2, 16],
    };
    let (going, counted) = seconds(scale, FIXED);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut best = 0.0;
    for number in numbers {
        let policy = Policy::Fixed(*number);
        let seen = grid
            .run(policy, 1, going + counted, ONE_LINK_RATE / 8.0, |_| ())
            .await?;
        let rate = seen.total(going..going + counted);
        best = f64::max(best, rate);
        rows.push(vec![
            policy.name(),
            megabytes(rate),
            String::new(),
            String::new(),
        ]);
    }
    let (learning, counted) = seconds(scale, LEARNING);
    for policy in [Policy::Optimizer, Policy::Fts3] {
        let seen = grid
            .run(policy, 1, learning + counted, ONE_LINK_RATE / 8.0, |_| ())
            .await?;
        let rate = seen.total(learning..learning + counted);
        rows.push(vec![
            policy.name(),
            megabytes(rate),
            format!("{:.3}", rate / best),
            range_of(&seen.limits[0][learning..]),
        ]);
    }
    Ok((&ONE_LINK, rows))
}

async fn four_links(binary: &Path, directory: &Path, scale: Scale) -> Result<Measured, BenchError> {
    let grid = Grid::start(binary, directory, 4).await?;
    let shared = 200.0 * MEGABIT;
    let ways = [10, 10, 20, 40].map(Duration::from_millis);
    grid.set(&Network {
        links: ways.map(|way| Stretch::limited(shared, way, 0.0)).to_vec(),
        into_destination: Stretch::limited(shared, Duration::from_millis(20), 0.0),
    });
    let (learning, counted) = seconds(scale, LEARNING);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for policy in [Policy::Fixed(16), Policy::Optimizer, Policy::Fts3] {
        let seen = grid
            .run(policy, 4, learning + counted, shared / 8.0, |_| ())
            .await?;
        let during = learning..learning + counted;
        let rates: Vec<f64> = (0..4).map(|link| seen.rate(link, during.clone())).collect();
        let shown: Vec<String> = rates.iter().map(|rate| megabytes(*rate)).collect();
        rows.push(vec![
            policy.name(),
            megabytes(seen.total(during)),
            shown.join(", "),
            format!("{:.3}", jain(&rates)),
        ]);
    }
    Ok((&FOUR_LINKS, rows))
}

async fn halved(binary: &Path, directory: &Path, scale: Scale) -> Result<Measured, BenchError> {
    let grid = Grid::start(binary, directory, 1).await?;
    let (at, back, end) = match scale {
        Scale::Full { .. } => (HALVED_AT, RESTORED_AT, HALVED_END),
        Scale::Quick => (2, 4, 6),
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for policy in [Policy::Optimizer, Policy::Fts3] {
        grid.set(&single(ONE_LINK_RATE));
        let change = |second: usize| match second {
            _ if second == at => grid.set(&single(ONE_LINK_RATE / 2.0)),
            _ if second == back => grid.set(&single(ONE_LINK_RATE)),
            _ => {}
        };
        let seen = grid
            .run(policy, 1, end, ONE_LINK_RATE / 8.0, change)
            .await?;
        let before = seen.total(at.saturating_sub(15)..at);
        rows.push(vec![
            policy.name(),
            megabytes(before),
            megabytes(seen.total(at + (back - at) / 2..back)),
            seconds_until(&seen, at..back, ONE_LINK_RATE / 16.0),
            change_of(&seen.limits[0], at..back),
            seconds_until(&seen, back..end, before),
        ]);
    }
    Ok((&HALVED, rows))
}

/// After how many seconds the rate is, and stays for three seconds, what the link can bring.
fn seconds_until(seen: &Seen, during: Range<usize>, can_bring: f64) -> String {
    let start = during.start;
    let found = during.into_iter().find(|second| {
        let held = (*second..second + 3).map(|second| seen.total(second..second + 1));
        held.min_by(f64::total_cmp)
            .is_some_and(|rate| rate >= FOLLOWED * can_bring)
    });
    found.map_or("never".to_owned(), |second| (second - start).to_string())
}

/// `24 -> 13 (4)`: the first different number.
fn change_of(limits: &[u32], during: Range<usize>) -> String {
    let Some(first) = limits.get(during.start) else {
        return "?".to_owned();
    };
    let start = during.start;
    let changed = during
        .into_iter()
        .find(|second| limits.get(*second) != Some(first));
    match changed.and_then(|second| Some((second, limits.get(second)?))) {
        Some((second, number)) => format!("{first} -> {number} ({})", second - start),
        None => format!("{first}, not changed"),
    }
}

fn range_of(limits: &[u32]) -> String {
    match (limits.iter().min(), limits.iter().max()) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_counts_as_followed_when_it_holds() {
        let seen = Seen {
            bytes: vec![vec![10.0, 10.0, 5.0, 9.5, 2.0, 9.5, 9.5, 9.5, 9.5]],
            limits: vec![vec![8, 8, 8, 6, 5, 5, 5, 5, 5]],
        };
        assert_eq!(seconds_until(&seen, 2..9, 10.0), "3");
        assert_eq!(change_of(&seen.limits[0], 2..9), "8 -> 6 (1)");
        assert_eq!(change_of(&seen.limits[0], 5..9), "5, not changed");
    }

    #[test]
    fn equal_rates_are_fair_and_one_alone_is_not() {
        assert_eq!(jain(&[3.0; 4]), 1.0);
        assert_eq!(jain(&[3.0, 0.0, 0.0, 0.0]), 0.25);
    }
}
