//! What is told of drops and rises of rates: the form of `GET /api/v1/explain` and of `penstock explain --json`.
//!
//! Why a rate fell is found out by `decide::explain`, for every source in the same way; here it gets its form
//! (`docs/observe/explain.md`). What it is told from is read by [`mod@reading`].

pub(crate) mod element_rows;
#[cfg(test)]
mod page;
pub mod reading;
pub mod rows;
mod settings;

use penstock_decide::explain::answer::{Evidence, Measure, NamedCause, Permille};
use penstock_decide::explain::dimension::{Carrier, Dimension};
use penstock_decide::explain::rate_change::{Population, RateChange, RateChangeId, named};
use penstock_decide::explain::signals::{DataPathStage, Setting};
use penstock_decide::explain::split::{Factor, Part, falls};
use penstock_decide::explain::{Cause, FailureTally, RateChangeKind};
use penstock_decide::wording;
use penstock_model::Timestamp;
use penstock_model::observation::View;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything that fell or rose in a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateChanges {
    /// Where the window begins, on a whole interval.
    pub from: Timestamp,
    /// Where it ends.
    pub to: Timestamp,
    /// Seconds of one interval.
    pub resolution_seconds: u32,
    /// From when on the record is complete, when that is later than the begin of the window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub complete_since: Option<Timestamp>,
    /// Of rows of records: which view of them is told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub view: Option<View>,
    /// Rates that were looked at.
    pub populations: usize,
    /// Links that were not looked at, because there are too many for so long a window.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub links_left_out: usize,
    /// What fell although there was work, in the order of the beginnings.
    pub drops: Vec<RateChangeRow>,
    /// What rose beyond what was usual.
    pub rises: Vec<RateChangeRow>,
    /// What fell because nothing was queued. No drop.
    pub lulls: Vec<RateChangeRow>,
}

/// A drop, rise or lull in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateChangeRow {
    /// Its name.
    pub id: RateChangeId,
    /// What the rate did.
    pub kind: RateChangeKind,
    /// Whose rate.
    pub population: Population,
    /// When it began.
    pub from: Timestamp,
    /// When it ended, or where what is known ends.
    pub to: Timestamp,
    /// It has ended.
    pub is_over: bool,
    /// The usual rate; of a rise, that after it.
    pub usual_bytes_per_second: u64,
    /// The low rate; of a rise, that before it.
    pub low_bytes_per_second: u64,
    /// At most three, the largest share first.
    pub causes: Vec<CauseRow>,
    /// What no rule explains, in percent. With the causes' shares it adds up to 100.
    pub unexplained_percent: f64,
}

/// A cause in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CauseRow {
    pub cause: String,
    /// Its short code.
    pub code: String,
    /// For people.
    pub text: String,
    /// Its part of all that took from the rate.
    pub share_percent: f64,
}

/// A drop, rise or lull with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateChangeDetail {
    /// As in a list, without the causes.
    #[serde(flatten)]
    pub row: RateChangeRow,
    /// What is known of each cause in the list, in its order.
    pub details: Vec<CauseDetail>,
    /// What was not measured and might explain the rest.
    pub missing: Vec<MissingMeasure>,
    /// The factors that fell, the largest part first.
    pub falls: Vec<FactorFall>,
    /// The slowest part of the copies meanwhile.
    pub stage: Option<DataPathStage>,
    /// Where the difference lies.
    pub carriers: Vec<CarrierRow>,
    /// Facts of hosts at both ends that changed about when it began, and are no evidence of a cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<EvidenceRow>,
    /// What is wrong as well and takes nothing from the rate, as far as is known.
    pub remarks: Vec<Remark>,
    /// The failures meanwhile, by kind.
    pub failures: Vec<FailureTally>,
    /// It comes again each so many seconds.
    pub period_seconds: Option<u64>,
    /// When a drop with the same first cause was seen before, the latest first.
    pub seen_before: Vec<EarlierRow>,
    /// All of it for people.
    pub text: String,
}

/// What is known of one cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CauseDetail {
    pub cause: Cause,
    /// How it is known.
    pub evidence: Vec<EvidenceRow>,
    /// What came of it.
    pub followers: Vec<Cause>,
    /// The rate that there would be without it.
    pub bytes_per_second_without: u64,
    /// What to do about it. Absent of a rise: what had held the rate down is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<RemedyRow>,
}

/// What to do about a cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RemedyRow {
    /// For people.
    pub text: String,
    /// By how much the low rate would be higher. Absent when nothing moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain_percent: Option<f64>,
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvidenceRow {
    /// For people.
    pub text: String,
    /// For programs.
    #[serde(flatten)]
    pub evidence: Evidence,
}

/// A measure that is not known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissingMeasure {
    pub measure: Measure,
    /// For people.
    pub text: String,
}

/// A factor of the rate that fell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FactorFall {
    /// Which; several when their product is all that is known.
    pub factors: Vec<Factor>,
    /// For people.
    pub text: String,
    pub from: f64,
    /// What it became.
    pub to: f64,
    /// Its part of all that took from the rate.
    pub share_percent: f64,
}

/// Elements of a dimension that carry the difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CarrierRow {
    pub dimension: Dimension,
    pub elements: Vec<CarrierElement>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CarrierElement {
    pub name: String,
    /// Its part of the difference; above 100 when others rose.
    pub share_percent: f64,
}

/// Something that is wrong as well.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remark {
    pub cause: Cause,
    /// How it is known.
    pub evidence: Vec<EvidenceRow>,
}

/// A drop with the same first cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EarlierRow {
    /// Its name.
    pub id: RateChangeId,
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// What was set about when it ended; absent: nothing that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How much of an explanation somebody may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disclosure {
    Everything,
    /// Rates, counts and causes; not the texts of failures, who set something, and how VOs share.
    Counts,
}

impl RateChanges {
    /// Of changes that were found in a window.
    pub fn of(changes: &[RateChange], explained: &reading::ExplainedWindow) -> RateChanges {
        let rows = |kind: RateChangeKind| {
            let of_kind = changes.iter().filter(|change| change.kind() == kind);
            of_kind.map(RateChangeRow::of).collect()
        };
        let signals = &explained.signals;
        RateChanges {
            from: signals.begin,
            to: signals.begin_of(signals.bins),
            resolution_seconds: signals.bin_seconds,
            complete_since: explained.complete_since,
            view: explained.view,
            populations: explained.populations.len(),
            links_left_out: explained.links_left_out,
            drops: rows(RateChangeKind::Drop),
            rises: rows(RateChangeKind::Rise),
            lulls: rows(RateChangeKind::Lull),
        }
    }
}

/// The change that an id names, with all that is known of it.
pub fn detail(
    changes: &[RateChange],
    id: RateChangeId,
    bin_seconds: u32,
    disclosure: Disclosure,
) -> Option<RateChangeDetail> {
    let change = named(changes, id, bin_seconds)?;
    // The name by which it was asked for stays its name.
    let change = RateChange {
        id,
        ..change.clone()
    };
    Some(RateChangeDetail::of(&disclosed(change, disclosure)))
}

pub(crate) fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub(crate) fn percent(share: Permille) -> f64 {
    f64::from(share.0) / 10.0
}

fn percent_of(part: f64) -> f64 {
    (part * 1000.0).round() / 10.0
}

fn whole(rate: f64) -> u64 {
    rate.max(0.0).round() as u64
}

/// The word of a value whose form is a word.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

impl RateChangeRow {
    fn of(change: &RateChange) -> RateChangeRow {
        let told = &change.explanation;
        RateChangeRow {
            id: change.id,
            kind: change.kind(),
            population: change.population.clone(),
            from: told.from,
            to: told.to,
            is_over: change.is_over,
            usual_bytes_per_second: whole(told.usual.rate),
            low_bytes_per_second: whole(told.low.rate),
            causes: told.causes.iter().map(CauseRow::of).collect(),
            unexplained_percent: percent(told.unexplained),
        }
    }
}

impl CauseRow {
    fn of(named: &NamedCause) -> CauseRow {
        CauseRow {
            cause: word(&named.cause),
            code: named.cause.code().to_owned(),
            text: wording::cause(named.cause).to_owned(),
            share_percent: percent(named.share),
        }
    }
}

impl RateChangeDetail {
    fn of(change: &RateChange) -> RateChangeDetail {
        let told = &change.explanation;
        let detail = |named: &NamedCause| CauseDetail {
            cause: named.cause,
            evidence: named.evidence.iter().map(EvidenceRow::of).collect(),
            followers: named.followers.clone(),
            bytes_per_second_without: whole(named.rate_without),
            fix: (change.kind() != RateChangeKind::Rise).then(|| RemedyRow {
                text: wording::remedy(named.cause).to_owned(),
                gain_percent: told.gain(named).map(percent_of),
            }),
        };
        let missing = |measure: &Measure| MissingMeasure {
            measure: *measure,
            text: wording::measure(*measure).to_owned(),
        };
        let earlier = change.earlier.iter().map(|earlier| EarlierRow {
            id: earlier.id,
            from: earlier.from,
            to: earlier.to,
            remedy: earlier.remedy.as_ref().map(wording::setting_change),
        });
        let facts = told.facts.iter().cloned().map(Evidence::Change);
        let remarks = told.remarks.iter().map(|(cause, known)| Remark {
            cause: *cause,
            evidence: known.iter().map(EvidenceRow::of).collect(),
        });
        RateChangeDetail {
            row: RateChangeRow::of(change),
            details: told.causes.iter().map(detail).collect(),
            missing: told.missing.iter().map(missing).collect(),
            falls: falls(&told.parts)
                .into_iter()
                .map(|(part, share)| FactorFall::of(part, share))
                .collect(),
            stage: told.stage,
            carriers: told.carriers.iter().map(CarrierRow::of).collect(),
            facts: facts.map(|fact| EvidenceRow::of(&fact)).collect(),
            remarks: remarks.collect(),
            failures: told.failures.clone(),
            period_seconds: told.period_seconds,
            seen_before: earlier.collect(),
            text: wording::rate_change(change),
        }
    }
}

impl EvidenceRow {
    pub(crate) fn of(evidence: &Evidence) -> EvidenceRow {
        EvidenceRow {
            text: wording::evidence(evidence),
            evidence: evidence.clone(),
        }
    }
}

impl FactorFall {
    fn of(part: &Part, share: f64) -> FactorFall {
        let names: Vec<&str> = part
            .factors
            .iter()
            .map(|one| wording::factor(*one))
            .collect();
        FactorFall {
            factors: part.factors.clone(),
            text: names.join(" × "),
            from: part.from,
            to: part.to,
            share_percent: percent_of(share),
        }
    }
}

impl CarrierRow {
    fn of(carrier: &Carrier) -> CarrierRow {
        let elements = carrier.elements.iter().map(|(name, part)| CarrierElement {
            name: name.clone(),
            share_percent: percent_of(*part),
        });
        CarrierRow {
            dimension: carrier.dimension,
            elements: elements.collect(),
        }
    }
}

/// Without what is not for everybody who may see rates.
pub(crate) fn disclosed(mut change: RateChange, disclosure: Disclosure) -> RateChange {
    if disclosure == Disclosure::Everything {
        return change;
    }
    let hide = |evidence: &mut Evidence| match evidence {
        Evidence::Failures { fingerprint, .. } => *fingerprint = HIDDEN.to_owned(),
        Evidence::Change(set) => set.who = OPERATOR.to_owned(),
        Evidence::Value { .. }
        | Evidence::Maintenance(_)
        | Evidence::Recurrence { .. }
        | Evidence::Bottleneck { .. }
        | Evidence::Links { .. } => {}
    };
    let told = &mut change.explanation;
    // Versions, paths and limits of a host are a matter of its administrators.
    let is_fact = |evidence: &Evidence| match evidence {
        Evidence::Change(set) => set.setting == Setting::Fact,
        Evidence::Value { measure, .. } => *measure == Measure::DescriptorLimit,
        Evidence::Maintenance(_)
        | Evidence::Recurrence { .. }
        | Evidence::Failures { .. }
        | Evidence::Bottleneck { .. }
        | Evidence::Links { .. } => false,
    };
    told.facts.clear();
    for named in &mut told.causes {
        named.evidence.retain(|evidence| !is_fact(evidence));
    }
    for (_, known) in &mut told.remarks {
        known.retain(|evidence| !is_fact(evidence));
    }
    let of_causes = told.causes.iter_mut().flat_map(|named| &mut named.evidence);
    let of_remarks = told.remarks.iter_mut().flat_map(|(_, known)| known);
    of_causes.chain(of_remarks).for_each(hide);
    for failure in &mut told.failures {
        failure.fingerprint = HIDDEN.to_owned();
    }
    told.carriers
        .retain(|carrier| carrier.dimension != Dimension::Vo);
    for earlier in &mut change.earlier {
        earlier.remedy = earlier
            .remedy
            .take()
            .filter(|set| set.setting != Setting::Fact);
        if let Some(set) = &mut earlier.remedy {
            set.who = OPERATOR.to_owned();
        }
    }
    change
}

pub(crate) const HIDDEN: &str = "a failure whose text administrators see";
const OPERATOR: &str = "an operator";
