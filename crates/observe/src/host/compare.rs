//! Which facts separate slow hosts from fast ones: hosts that do the same work at different rates, and facts by name.
//!
//! The method by which sites found in 2013 that the default size of the TCP buffers made them slow: they compared their
//! settings with those of a site that was not. A fact that separates is a candidate, no proof: the way to know is to
//! change it on one host and to measure again.

use super::facts::{Facts, shown};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Groups of hosts that differ by less are not told apart.
const RATIO_MIN: f64 = 1.5;

/// A host with what it achieved.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedHost {
    pub name: String,
    /// Bytes per second, measured at the same work as the others'.
    pub rate: f64,
    /// As they were meanwhile.
    pub facts: Facts,
}

/// Why hosts cannot be compared.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CompareError {
    /// One alone, or none.
    #[error("at least two hosts with a rate are needed, there are {0}")]
    TooFew(usize),
    /// There is nothing to explain.
    #[error(
        "the hosts are about equally fast: no two neighbours differ by more than a factor of {ratio:.1}"
    )]
    Alike {
        /// The largest step between two hosts that follow each other.
        ratio: f64,
    },
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The slowest first.
    pub slow: Vec<RatedHost>,
    /// The slowest first.
    pub fast: Vec<RatedHost>,
    /// The slowest of the fast ones, of the fastest of the slow ones.
    pub ratio: f64,
    /// What separates them best, first.
    pub separating: Vec<Separation>,
    /// Facts that are the same everywhere.
    pub same: usize,
    /// Facts that differ and separate nothing.
    pub unrelated: usize,
}

/// A host's name and rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RatedHost {
    pub name: String,
    /// Bytes per second.
    pub rate: f64,
}

/// A fact that separates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Separation {
    /// Its name; of settings of three numbers with which of these.
    pub fact: String,
    /// What slow hosts have, each value once.
    pub slow: Vec<String>,
    /// What fast hosts have, each value once.
    pub fast: Vec<String>,
    /// Hosts that are not as their value says.
    pub exceptions: Vec<String>,
}

/// How well a fact separates. The order of the fields is the policy: lower is better.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Hosts that do not fit, and values beyond two that are needed to say who does.
    cost: usize,
    exceptions: usize,
    /// How much facts of this kind have to do with rates.
    kind: usize,
    fact: String,
}

/// Kinds of facts by the beginnings of their names, those first that most often explain a rate.
const KINDS: [&str; 7] = [
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_rmem",
    "net.",
    "interface ",
    "pool ",
    "disk ",
    "limit ",
];

/// Compares. Hosts are divided where their rates differ most.
pub fn compare(hosts: &[ComparedHost]) -> Result<Comparison, CompareError> {
    let mut hosts: Vec<ComparedHost> = hosts
        .iter()
        .filter(|host| host.rate.is_finite() && host.rate >= 0.0)
        .cloned()
        .collect();
    if hosts.len() < 2 {
        return Err(CompareError::TooFew(hosts.len()));
    }
    hosts.sort_by(|one, other| {
        one.rate
            .total_cmp(&other.rate)
            .then_with(|| one.name.cmp(&other.name))
    });
    // A host that moved nothing is slower by as much as one byte a second tells.
    let step = |at: usize| hosts[at].rate.max(1.0) / hosts[at - 1].rate.max(1.0);
    let mut cut = 1;
    for at in 2..hosts.len() {
        if step(at) > step(cut) {
            cut = at;
        }
    }
    let ratio = step(cut);
    if ratio < RATIO_MIN {
        return Err(CompareError::Alike { ratio });
    }
    let columns = columns(&hosts);
    let (mut ranked, mut same, mut unrelated) = (Vec::new(), 0, 0);
    for (fact, values) in &columns {
        if values.windows(2).all(|pair| pair[0] == pair[1]) {
            same += 1;
            continue;
        }
        match separation(fact, values, &hosts, cut) {
            Some(found) => ranked.push(found),
            None => unrelated += 1,
        }
    }
    ranked.sort_by(|(one, _), (other, _)| one.cmp(other));
    let rated = |hosts: &[ComparedHost]| {
        let each = hosts.iter().map(|host| RatedHost {
            name: host.name.clone(),
            rate: host.rate,
        });
        each.collect()
    };
    Ok(Comparison {
        slow: rated(&hosts[..cut]),
        fast: rated(&hosts[cut..]),
        ratio,
        separating: ranked.into_iter().map(|(_, found)| found).collect(),
        same,
        unrelated,
    })
}

/// The value of each fact at each host. The three numbers of a TCP buffer are three facts.
fn columns(hosts: &[ComparedHost]) -> BTreeMap<String, Vec<String>> {
    let names: BTreeSet<&String> = hosts.iter().flat_map(|host| host.facts.keys()).collect();
    let mut columns = BTreeMap::new();
    for name in names {
        let values: Vec<&str> = hosts
            .iter()
            .map(|host| shown(host.facts.get(name).and_then(Option::as_deref)))
            .collect();
        let parts: Vec<Vec<&str>> = values
            .iter()
            .map(|value| value.split(' ').collect())
            .collect();
        let is_buffer = name.ends_with("mem") && parts.iter().any(|part| part.len() == 3);
        if !is_buffer {
            columns.insert(
                name.clone(),
                values.into_iter().map(str::to_owned).collect(),
            );
            continue;
        }
        for (at, what) in ["min", "default", "max"].into_iter().enumerate() {
            let own = parts
                .iter()
                .zip(&values)
                .map(|(part, whole)| match part.len() {
                    3 => part[at].to_owned(),
                    _ => (*whole).to_owned(),
                });
            columns.insert(format!("{name} ({what})"), own.collect());
        }
    }
    columns
}

/// How a fact separates the hosts before `cut` from the others; `None` when it does so no better than nothing at all.
fn separation(
    fact: &str,
    values: &[String],
    hosts: &[ComparedHost],
    cut: usize,
) -> Option<(Rank, Separation)> {
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    let (exceptions, pieces) = match numbers {
        Some(numbers) => (by_threshold(&numbers, cut), 2),
        None => by_value(values, cut),
    };
    let cost = exceptions.len() + pieces - 2;
    if cost >= cut.min(hosts.len() - cut) {
        return None;
    }
    let once = |values: &[String]| {
        let all: BTreeSet<&String> = values.iter().collect();
        all.into_iter().cloned().collect()
    };
    let kind = KINDS.iter().position(|kind| fact.starts_with(kind));
    let rank = Rank {
        cost,
        exceptions: exceptions.len(),
        kind: kind.unwrap_or(KINDS.len()),
        fact: fact.to_owned(),
    };
    let found = Separation {
        fact: fact.to_owned(),
        slow: once(&values[..cut]),
        fast: once(&values[cut..]),
        exceptions: exceptions
            .into_iter()
            .map(|at| hosts[at].name.clone())
            .collect(),
    };
    Some((rank, found))
}

/// The hosts that do not fit when slow ones lie on one side of a number, for the number and the side that fit best.
fn by_threshold(numbers: &[f64], cut: usize) -> Vec<usize> {
    let mut best: Option<Vec<usize>> = None;
    for threshold in numbers {
        for slow_is_below in [true, false] {
            let misfits = |at: &usize| {
                let is_slow = (numbers[*at] < *threshold) == slow_is_below;
                is_slow != (*at < cut)
            };
            let found: Vec<usize> = (0..numbers.len()).filter(misfits).collect();
            if best.as_ref().is_none_or(|best| found.len() < best.len()) {
                best = Some(found);
            }
        }
    }
    best.unwrap_or_default()
}

/// The hosts that are not as most with their value, and how many values there are.
fn by_value(values: &[String], cut: usize) -> (Vec<usize>, usize) {
    let mut groups: BTreeMap<&str, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (at, value) in values.iter().enumerate() {
        let (slow, fast) = groups.entry(value).or_default();
        if at < cut {
            slow.push(at)
        } else {
            fast.push(at)
        };
    }
    let pieces = groups.len();
    let fewer =
        |(slow, fast): (Vec<usize>, Vec<usize>)| if slow.len() <= fast.len() { slow } else { fast };
    let mut exceptions: Vec<usize> = groups.into_values().flat_map(fewer).collect();
    exceptions.sort_unstable();
    (exceptions, pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FASTERDATA: &str = "4096 87380 16777216";
    const LIVERPOOL: &str = "8192 1048576 8388608";
    const BEFORE: &str = "8192 65536 16777216";

    fn mean(kilobytes: &[f64]) -> f64 {
        kilobytes.iter().sum::<f64>() / kilobytes.len() as f64 * 1024.0
    }

    fn host(name: &str, rate: f64, facts: &[(&str, &str)]) -> ComparedHost {
        let own = facts.iter();
        let own = own.map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
        ComparedHost {
            name: name.to_owned(),
            rate,
            facts: own
                .chain([("hostname".to_owned(), Some(name.to_owned()))])
                .collect(),
        }
    }

    /// GridPP storage blog, 20 and 21 February 2013: nine streams to BNL before and after the change. Liverpool and QMUL
    /// had no trouble; their rates are not printed, so they have that of Manchester with one stream.
    fn sites() -> Vec<ComparedHost> {
        let site = |name: &str, rate: f64, buffer: &str, kernel: &str| {
            let others = [
                ("net.ipv4.tcp_rmem", buffer),
                ("net.ipv4.tcp_wmem", buffer),
                ("net.ipv4.tcp_congestion_control", "htcp"),
                ("kernel", kernel),
            ];
            host(name, rate, &others)
        };
        let one_stream = mean(&[31_812.27, 16_789.33, 24_148.18, 11_336.53, 19_996.25]);
        let manchester = mean(&[511.15, 498.73, 383.14, 495.28, 480.80]);
        let manchester_after = mean(&[22_398.22, 19_054.88, 18_408.34, 20_844.45, 46_613.96]);
        let oxford = mean(&[210.55, 237.41, 209.80, 206.65, 263.14]);
        let oxford_after = mean(&[76_593.14, 50_468.35, 45_316.12, 25_631.56, 18_548.20]);
        vec![
            site("manchester", manchester, FASTERDATA, "2.6.32"),
            site("manchester after", manchester_after, LIVERPOOL, "2.6.32"),
            site("oxford", oxford, BEFORE, "2.6.18"),
            site("oxford after", oxford_after, LIVERPOOL, "2.6.18"),
            site("birmingham", 10_240.0, FASTERDATA, "2.6.18"),
            site("liverpool", one_stream, LIVERPOOL, "2.6.32"),
            site("qmul", one_stream, FASTERDATA, "2.6.32"),
        ]
    }

    #[test]
    fn the_case_of_2013_ends_at_the_default_buffer_and_names_the_site_that_does_not_fit() {
        let found = compare(&sites()).expect("apart");
        let names = |hosts: &[RatedHost]| {
            hosts
                .iter()
                .map(|host| host.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&found.slow), ["birmingham", "oxford", "manchester"]);
        assert_eq!(found.fast.len(), 4);
        assert!(found.ratio > 40.0, "{}", found.ratio);
        let first = &found.separating[0];
        assert!(first.fact.starts_with("net.ipv4.tcp_wmem"), "{found:#?}");
        let default = found
            .separating
            .iter()
            .find(|one| one.fact == "net.ipv4.tcp_wmem (default)");
        let default = default.expect("it separates");
        assert_eq!(default.slow, ["65536", "87380"]);
        assert_eq!(default.fast, ["1048576", "87380"]);
        assert_eq!(default.exceptions, ["qmul"]);
        let told: Vec<&str> = found
            .separating
            .iter()
            .map(|one| one.fact.as_str())
            .collect();
        assert!(!told.contains(&"hostname"), "{told:?}");
        assert_eq!(
            told.last(),
            Some(&"kernel"),
            "both kernels are on both sides"
        );
        assert_eq!(
            found.same, 1,
            "the congestion control is the same everywhere"
        );
    }

    #[test]
    fn without_the_exception_the_default_separates_completely() {
        let mut sites = sites();
        sites.retain(|site| site.name != "qmul");
        let found = compare(&sites).expect("apart");
        assert!(found.separating[0].exceptions.is_empty(), "{found:#?}");
        assert!(
            found.separating[0].fact.starts_with("net.ipv4.tcp_wmem"),
            "{found:#?}"
        );
    }

    #[test]
    fn two_hosts_that_differ_in_one_setting_differ_in_that() {
        let slow = host("a", 1e6, &[("x", "on"), ("y", "1")]);
        let fast = host("b", 9e6, &[("x", "off"), ("y", "1")]);
        let found = compare(&[fast.clone(), slow.clone()]).expect("apart");
        let facts: Vec<&str> = found
            .separating
            .iter()
            .map(|one| one.fact.as_str())
            .collect();
        assert_eq!((facts, found.same), (vec!["hostname", "x"], 1));
        assert_eq!(
            compare(std::slice::from_ref(&slow)),
            Err(CompareError::TooFew(1))
        );
        let near = ComparedHost {
            rate: 1.2e6,
            ..fast
        };
        let alike = compare(&[slow, near]);
        assert!(
            matches!(alike, Err(CompareError::Alike { .. })),
            "{alike:?}"
        );
    }

    #[test]
    fn a_fact_that_is_missing_at_the_slow_ones_separates() {
        let mut hosts = vec![
            host("a", 1e6, &[("pool mount", "xfs")]),
            host("b", 1e6, &[("pool mount", "xfs")]),
        ];
        hosts.extend([host("c", 9e6, &[]), host("d", 9e6, &[])]);
        let found = compare(&hosts).expect("apart");
        assert_eq!(found.separating[0].fact, "pool mount");
        assert_eq!(found.separating[0].fast, ["not readable"]);
    }

    #[test]
    fn the_order_of_the_hosts_does_not_matter() {
        let mut sites = sites();
        let one = compare(&sites);
        sites.reverse();
        assert_eq!(compare(&sites), one);
    }
}
