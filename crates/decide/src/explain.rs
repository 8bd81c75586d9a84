//! Why a rate fell: change points, the exact split into factors, the stage and the dimension that carry it, and one
//! rule for each known cause.
//!
//! Facts come in as [`signals::Signals`], wherever they are from. What no rule explains is called unexplained, with the
//! signals that are missing.

pub mod answer;
pub mod change;
pub mod dimension;
pub mod rate_change;
mod rule_input;
pub mod rules;
pub mod signals;
pub mod split;
mod stage;

pub use answer::{
    Cause, Evidence, Explanation, FailureTally, Measure, NamedCause, Permille, RateChangeKind,
};
pub use rate_change::{Population, PopulationChoice, RateChange, RateChangeId, rate_changes};
pub use rule_input::RuleInput;

use answer::{CAUSES_MAX, CauseRank, FACTS_MAX, SHARE_MIN};
use change::{LowRate, stretches_of};
use dimension::{Dimension, Division, carriers};
use penstock_model::{LinkEnd, LinkId};
use rules::{Finding, RULES, Rule, rule_of};
use signals::{Change, LinkSignals, Series, Setting, Signals};
use split::{Factor, Factors, Part, falls, split};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Kinds of failure that are told.
const FAILURES_MAX: usize = 10;

/// All stretches of low rate of some links together, each explained.
pub fn explain(signals: &Signals, links: &[LinkId]) -> Vec<Explanation> {
    let link = together(signals, links);
    let low = stretches_of(&link, signals.bin_seconds).low;
    explain_low(signals, links, &link, &low)
}

/// The same of stretches that were found.
fn explain_low(
    signals: &Signals,
    links: &[LinkId],
    link: &LinkSignals,
    low: &[LowRate],
) -> Vec<Explanation> {
    low.iter()
        .filter_map(|stretch| explain_stretch(signals, links, link, stretch))
        .collect()
}

/// Why some links move what they move in the second of two windows, against the first: a drop or, with a higher rate in the
/// second, what held the rate down in the first. Its times are those of the second.
pub fn explain_change(
    signals: &Signals,
    links: &[LinkId],
    first: Range<usize>,
    second: Range<usize>,
) -> Option<Explanation> {
    let link = together(signals, links);
    explain_change_of(signals, links, &link, first, second)
}

/// The same of what some links, or a part of them, are together.
fn explain_change_of(
    signals: &Signals,
    links: &[LinkId],
    link: &LinkSignals,
    first: Range<usize>,
    second: Range<usize>,
) -> Option<Explanation> {
    let rate = |bins: &Range<usize>| link.copied_bytes.mean(std::slice::from_ref(bins));
    let is_rise = rate(&second)? > rate(&first)?;
    let (from, to) = (signals.begin_of(second.start), signals.begin_of(second.end));
    let (usual, low) = if is_rise {
        (second, first)
    } else {
        (first, second)
    };
    let stretch = LowRate {
        has_work: true,
        baseline: vec![usual],
        bins: low,
        period_seconds: None,
    };
    let explanation = explain_stretch(signals, links, link, &stretch)?;
    let kind = match is_rise {
        true => RateChangeKind::Rise,
        false => explanation.kind,
    };
    Some(Explanation {
        from,
        to,
        kind,
        ..explanation
    })
}

fn together(signals: &Signals, links: &[LinkId]) -> LinkSignals {
    signals.together(&links.iter().collect::<Vec<&LinkId>>())
}

fn explain_stretch(
    signals: &Signals,
    links: &[LinkId],
    link: &LinkSignals,
    stretch: &LowRate,
) -> Option<Explanation> {
    let low_bins = [stretch.bins.clone()];
    let usual = Factors::of(link, signals.bin_seconds, &stretch.baseline)?;
    let low = Factors::of(link, signals.bin_seconds, &low_bins)?;
    let parts = split(&usual, &low);
    let view = RuleInput {
        signals,
        links,
        link,
        usual_bins: &stretch.baseline,
        low_bins: &low_bins,
        usual,
        low,
        parts: &parts,
        stage: stage::bottleneck(link, &stretch.baseline, &low_bins),
        period_seconds: stretch.period_seconds,
    };
    Some(answer(&view, stretch))
}

/// A rule that holds, with what came of it.
struct Group {
    rule: &'static Rule,
    finding: Finding,
    followers: Vec<Cause>,
    /// The part of each factor's fall that a cause makes, by itself or through its consequences.
    explains: BTreeMap<Factor, Permille>,
}

fn answer(view: &RuleInput<'_>, stretch: &LowRate) -> Explanation {
    let mut missing_of: Vec<(&Rule, Vec<Measure>)> = Vec::new();
    let mut held: Vec<(&'static Rule, Finding)> = Vec::new();
    for rule in RULES {
        let missing = rules::missing(rule, view);
        if !missing.is_empty() {
            missing_of.push((rule, missing));
        } else if let Some(finding) = (rule.test)(view) {
            held.push((rule, finding));
        }
    }
    let groups = group(held);
    let (causes, remarks, unexplained, open) =
        name_causes(groups, view.parts, &view.low, &view.usual);
    let missing = missing_measures(missing_of, &open);
    let lacks_files = causes.first().map(|first| first.cause) == Some(Cause::FewerSubmissions);
    let kind = match lacks_files || !stretch.has_work {
        true => RateChangeKind::Lull,
        false => RateChangeKind::Drop,
    };
    Explanation {
        links: view.links.to_vec(),
        from: view.signals.begin_of(stretch.bins.start),
        to: view.signals.begin_of(stretch.bins.end),
        kind,
        usual: view.usual,
        low: view.low,
        parts: view.parts.to_vec(),
        stage: view.stage,
        carriers: carriers_of(view),
        facts: facts_aside(view, &causes),
        causes,
        unexplained,
        missing,
        remarks,
        period_seconds: view.period_seconds,
        failures: failures_of(view),
    }
}

/// In which server, VO, link or protocol the difference lies.
fn carriers_of(view: &RuleInput<'_>) -> Vec<dimension::Carrier> {
    let entry = |name: String, series: &Series| {
        Some((name, (view.usual_mean(series)?, view.low_mean(series)?)))
    };
    let links = view.links.iter().filter_map(|link| {
        entry(
            link.to_string(),
            &view.signals.links.get(link)?.copied_bytes,
        )
    });
    let destinations = view.disk_servers(LinkEnd::Destination);
    let servers = destinations
        .iter()
        .filter_map(|(name, server)| entry(name.0.clone(), &server.bytes_in));
    let vos = view
        .link
        .vo_bytes
        .iter()
        .filter_map(|(vo, bytes)| entry(vo.as_str().to_owned(), bytes));
    let protocols = view.link.protocol_bytes.iter();
    let protocols = protocols.filter_map(|(protocol, bytes)| entry(protocol.clone(), bytes));
    carriers(&[
        (Dimension::Server, servers.collect::<Division>()),
        (Dimension::Vo, vos.collect::<Division>()),
        (Dimension::Link, links.collect::<Division>()),
        (Dimension::Protocol, protocols.collect::<Division>()),
    ])
}

/// What failed in the stretch, by kind, the most frequent first.
fn failures_of(view: &RuleInput<'_>) -> Vec<FailureTally> {
    let kinds = view.link.failures.iter();
    let attempts = kinds.filter_map(|(group, series)| {
        let attempts: f64 = series.values(view.low_bins).sum();
        (attempts >= 0.5).then(|| FailureTally::new(group, attempts.round() as u64))
    });
    let mut failures: Vec<FailureTally> = attempts.collect();
    failures.sort_by(|a, b| {
        b.attempts
            .cmp(&a.attempts)
            .then_with(|| a.fingerprint.cmp(&b.fingerprint))
    });
    failures.truncate(FAILURES_MAX);
    failures
}

/// Puts what came of a cause below it: MOVER → FULL → SKEW is one cause with two followers.
fn group(held: Vec<(&'static Rule, Finding)>) -> Vec<Group> {
    let causes: BTreeSet<Cause> = held.iter().map(|(rule, _)| rule.cause).collect();
    let followers = |root: Cause| {
        let mut reached = vec![root];
        let mut at = 0;
        while let Some(cause) = reached.get(at).copied() {
            let next = rule_of(cause).map_or(&[][..], |rule| rule.leads_to);
            let new: Vec<Cause> = (next.iter().copied())
                .filter(|next| causes.contains(next) && !reached.contains(next))
                .collect();
            reached.extend(new);
            at += 1;
        }
        reached.split_off(1)
    };
    let of_root: BTreeMap<Cause, Vec<Cause>> = causes
        .iter()
        .map(|cause| (*cause, followers(*cause)))
        .collect();
    let is_root = |cause: Cause| {
        // Of two that lead to each other the earlier one of the table is the root.
        let place = |cause: Cause| RULES.iter().position(|rule| rule.cause == cause);
        of_root.iter().all(|(root, followers)| {
            *root == cause
                || !followers.contains(&cause)
                || (of_root[&cause].contains(root) && place(cause) < place(*root))
        })
    };
    let own: BTreeMap<Cause, BTreeMap<Factor, Permille>> = held
        .iter()
        .map(|(rule, finding)| {
            let part = Permille::of(finding.explains);
            (
                rule.cause,
                rule.factors.iter().map(|factor| (*factor, part)).collect(),
            )
        })
        .collect();
    let roots = held.into_iter().filter(|(rule, _)| is_root(rule.cause));
    roots
        .map(|(rule, finding)| {
            let followers = of_root[&rule.cause].clone();
            let mut explains = own[&rule.cause].clone();
            for follower in &followers {
                for (factor, part) in &own[follower] {
                    let known = explains.entry(*factor).or_default();
                    *known = (*known).max(*part);
                }
            }
            Group {
                rule,
                finding,
                followers,
                explains,
            }
        })
        .collect()
}

type NamedCauses = (
    Vec<NamedCause>,
    Vec<(Cause, Vec<Evidence>)>,
    Permille,
    BTreeSet<Factor>,
);

/// Gives each factor's fall to the causes that explain it. What is left is unexplained, with the factors it is of.
fn name_causes(groups: Vec<Group>, parts: &[Part], low: &Factors, usual: &Factors) -> NamedCauses {
    let mut shares = vec![0.0; groups.len()];
    let mut logs = vec![0.0; groups.len()];
    let mut open = BTreeSet::new();
    for (part, share) in falls(parts) {
        let mut takers: Vec<(Permille, usize)> = groups
            .iter()
            .enumerate()
            .filter_map(|(n, group)| {
                let of_part = part
                    .factors
                    .iter()
                    .filter_map(|factor| group.explains.get(factor));
                Some((*of_part.max()?, n))
            })
            .collect();
        takers.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut left = 1000;
        for (explains, n) in takers {
            let taken = explains.0.min(left);
            left -= taken;
            shares[n] += share * f64::from(taken) / 1000.0;
            logs[n] += (part.from / part.to.max(part.from * 1e-9)).ln() * f64::from(taken) / 1000.0;
        }
        if share * f64::from(left) > 50.0 {
            open.extend(part.factors.iter().copied());
        }
    }
    let mut named = Vec::new();
    let mut remarks = Vec::new();
    for (n, group) in groups.into_iter().enumerate() {
        // Rounded down, so that the shares never add up to more than the whole.
        let share = Permille((shares[n] * 1000.0 + 1e-6).floor() as u16);
        if share < SHARE_MIN {
            if group.rule.factors.is_empty() {
                remarks.push((group.rule.cause, group.finding.evidence));
            }
            continue;
        }
        let rate_without = match low.rate > 0.0 {
            // A factor that rose from nothing has no logarithm; without a cause no rate is lower.
            true => (low.rate * logs[n].exp()).min(usual.rate).max(low.rate),
            false => usual.rate * f64::from(share.0) / 1000.0,
        };
        named.push(NamedCause {
            cause: group.rule.cause,
            share,
            evidence: group.finding.evidence,
            followers: group.followers,
            rate_without,
        });
    }
    named.sort_by_key(|named| CauseRank {
        rest: 1000 - named.share.0,
        cause: named.cause,
    });
    named.truncate(CAUSES_MAX);
    let mut explained: u16 = named.iter().map(|named| named.share.0).sum();
    // A thousandth that rounding left over is no part that nobody knows.
    if let Some(first) = named
        .first_mut()
        .filter(|_| (995..1000).contains(&explained))
    {
        first.share.0 += 1000 - explained;
        explained = 1000;
    }
    (named, remarks, Permille(1000 - explained.min(1000)), open)
}

/// Facts of hosts that changed about when it began, without those that are evidence of a cause.
fn facts_aside(view: &RuleInput<'_>, causes: &[NamedCause]) -> Vec<Change> {
    let is_told = |fact: &Change| {
        let mut evidence = causes.iter().flat_map(|named| &named.evidence);
        evidence.any(|one| matches!(one, Evidence::Change(told) if told == fact))
    };
    let facts = view.changes(&[Setting::Fact]);
    let aside = facts.filter(|fact| !is_told(fact)).take(FACTS_MAX);
    aside.cloned().collect()
}

/// What was not measured and is needed by a rule for a factor whose fall is not explained.
fn missing_measures(
    missing_of: Vec<(&Rule, Vec<Measure>)>,
    open: &BTreeSet<Factor>,
) -> Vec<Measure> {
    let of_open = missing_of
        .into_iter()
        .filter(|(rule, _)| rule.factors.iter().any(|factor| open.contains(factor)));
    let missing: BTreeSet<Measure> = of_open.flat_map(|(_, missing)| missing).collect();
    missing.into_iter().collect()
}

#[cfg(test)]
mod tests;
