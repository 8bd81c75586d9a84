//! What limits a link in a run: why no more transfers run, and why those that run are not faster.

use super::measured::{MeasuredField, Place, RATE_UNBOUNDED};
use crate::report::Report;
use crate::world::{DESTINATION_FULL, LINK_FULL, SERVICE_FULL, SOURCE_FULL};
use serde::Serialize;

/// With a queue in a smaller part of the time, nothing waits that might run.
const QUEUED_MIN: f64 = 0.2;
/// A transfer that reaches this part of what one transfer can reach is held up by nothing that is shared.
const ALONE_MIN: f64 = 0.9;

/// What limits a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limiting {
    /// Why no more transfers run.
    pub slots: SlotBound,
    /// How many may run there, as a mean over the run; absent: no limit holds them up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Why those that run are not faster.
    pub rate: RateBound,
    /// All of it for people.
    pub text: String,
}

/// Why no more transfers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotBound {
    /// Nothing waited.
    NothingQueued,
    /// The limit of the link.
    Link,
    /// The limit of the source.
    Source,
    /// The limit of the destination.
    Destination,
    /// The limit of the service.
    Service,
    /// They were tried again after failures, or waited for something else.
    Other,
}

/// Why transfers are not faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateBound {
    /// Each is as fast as one transfer was.
    EachTransfer,
    /// They share the source.
    Source,
    /// They share the link.
    Link,
    /// They share the destination.
    Destination,
}

impl Limiting {
    /// Of a link, by number.
    pub(super) fn of(field: &MeasuredField, report: &Report, number: usize) -> Limiting {
        let (slots, limit) = slots_of(report, number);
        let rate = rate_of(field, report, number);
        let text = super::words::limiting(slots, limit, rate, field.links[number].slowest_stage());
        Limiting {
            slots,
            limit,
            rate,
            text,
        }
    }
}

fn slots_of(report: &Report, number: usize) -> (SlotBound, Option<f64>) {
    let points = report.series.points.iter();
    let points = points.filter_map(|point| point.links.get(number));
    let with_work: Vec<_> = points
        .filter(|point| point.active > 0.0 || point.queued > 0.0)
        .collect();
    let queued: Vec<_> = with_work
        .iter()
        .filter(|point| point.queued > 0.0)
        .collect();
    let count = |all: usize| all as f64;
    if count(queued.len()) < QUEUED_MIN * count(with_work.len()).max(1.0) {
        return (SlotBound::NothingQueued, None);
    }
    let limit = queued.iter().map(|point| point.limit).sum::<f64>() / count(queued.len());
    let at_limit = queued
        .iter()
        .filter(|point| point.active + 0.5 >= point.limit);
    if 2 * at_limit.count() >= queued.len() {
        return (SlotBound::Link, Some(limit));
    }
    // The reasons are told of all links together; the link's own is none of them.
    let others = report.waiting_seconds.iter();
    let others = others.filter(|(reason, _)| *reason != LINK_FULL);
    let most = others.max_by(|one, other| one.1.total_cmp(other.1));
    let bound = match most.map(|(reason, _)| reason.as_str()) {
        Some(SOURCE_FULL) => SlotBound::Source,
        Some(DESTINATION_FULL) => SlotBound::Destination,
        Some(SERVICE_FULL) => SlotBound::Service,
        _ => SlotBound::Other,
    };
    (bound, None)
}

fn rate_of(field: &MeasuredField, report: &Report, number: usize) -> RateBound {
    let (link, Some(of_link)) = (&field.links[number], report.links.get(number)) else {
        return RateBound::EachTransfer;
    };
    let moving = of_link.slot_seconds - of_link.files as f64 * link.opening;
    let each = of_link.bytes / moving.max(1e-3);
    if each >= ALONE_MIN * link.per_transfer {
        return RateBound::EachTransfer;
    }
    let (from, to) = link.ends;
    let rate = |at: usize| {
        let seconds = report.links.get(at).map_or(0.0, |it| it.work_seconds);
        report.links.get(at).map_or(0.0, |it| it.bytes) / seconds.max(1e-3)
    };
    let of = |is: &dyn Fn(usize) -> bool| {
        let links = (0..field.links.len()).filter(|at| is(*at));
        links.map(rate).sum::<f64>()
    };
    let used = |rate: f64, bound: Option<f64>| rate / bound.unwrap_or(RATE_UNBOUNDED);
    let out = of(&|at| field.links[at].ends.0 == from);
    let into = of(&|at| field.links[at].ends.1 == to);
    let places = [
        (used(rate(number), link.capacity), Place::Network),
        (used(out, field.storages[from].read), Place::Source),
        (used(into, field.storages[to].write), Place::Destination),
    ];
    let fullest = places
        .into_iter()
        .max_by(|one, other| one.0.total_cmp(&other.0));
    match fullest.map(|(_, place)| place) {
        Some(Place::Source) => RateBound::Source,
        Some(Place::Destination) => RateBound::Destination,
        Some(Place::Network) | None => RateBound::Link,
    }
}
