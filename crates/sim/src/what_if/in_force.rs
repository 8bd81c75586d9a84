//! How many transfers might run on each link while something waited, whoever limited that: the link's own limit where it was
//! reached, and otherwise as many as did run.
//!
//! A number that the service found itself, the slots of a storage element that it tuned, and a link that stood still are told by
//! no sample of the link. Limits of storage elements and of the service that are known and were reached are not laid on links:
//! the replay has them, too.

use penstock_model::Slots;
use penstock_observe::recorded::{RecordedWindow, StorageSlotLimits};

/// Steps of a window.
const STEPS: f64 = 500.0;
/// Seconds of a step at least.
const STEP_MIN: f64 = 1.0;
/// The part of a step in which something has to wait, or nothing is told of limits.
const BUSY_MIN: f64 = 0.2;
/// A limit of which this part is in use is reached.
const REACHED: f64 = 0.9;

/// One link in one step, in seconds: something waited; running transfers times seconds, always and while something waited.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    busy: f64,
    active: f64,
    active_busy: f64,
}

/// A link while the window is gone through.
#[derive(Debug, Clone)]
struct LinkCount {
    queued: u32,
    active: u32,
    since: f64,
    steps: Vec<Step>,
}

/// Known limits at the ends of a link and of the service.
pub(super) struct KnownLimits<'a> {
    /// Of each storage element; `None`: not known.
    pub(super) storages: &'a [StorageSlotLimits],
    pub(super) agents: Option<Slots>,
}

/// For each link how many might run, from a second of the window on; never empty. `ends` are the storage elements of each link,
/// and `active_max` how many ran at once at most.
pub(super) fn limits_of(
    window: &RecordedWindow,
    ends: &[(usize, usize)],
    active_max: &[u32],
    known: &KnownLimits<'_>,
) -> Vec<Vec<(f64, u32)>> {
    let length = window.window.to.since(window.window.from).as_secs_f64();
    let step = (length / STEPS).max(STEP_MIN);
    let counted = count(window, ends.len(), length, step);
    let steps = counted.first().map_or(0, |link| link.steps.len());
    // Of each storage element and step: what ran out of it, into it, and in all.
    let mut sums = vec![vec![(0.0, 0.0); known.storages.len()]; steps];
    let mut all = vec![0.0; steps];
    for (link, (from, to)) in counted.iter().zip(ends) {
        for (number, of_step) in link.steps.iter().enumerate() {
            let active = of_step.active / step;
            sums[number][*from].0 += active;
            sums[number][*to].1 += active;
            all[number] += active;
        }
    }
    let is_reached = |used: f64, limit: Option<Slots>| {
        limit.is_some_and(|limit| used >= REACHED * f64::from(limit.0))
    };
    let links = counted.iter().enumerate().map(|(link, counted)| {
        let (from, to) = ends[link];
        let held_elsewhere = |number: usize| {
            let of_step = &sums[number];
            is_reached(of_step[from].0, known.storages[from].outbound)
                || is_reached(of_step[to].1, known.storages[to].inbound)
                || is_reached(all[number], known.agents)
        };
        let own = own_limits(window, link, active_max[link]);
        in_force(&counted.steps, step, &own, held_elsewhere)
    });
    links.collect()
}

/// What samples tell, or as many as ever ran.
fn own_limits(window: &RecordedWindow, link: usize, active_max: u32) -> Vec<(f64, f64)> {
    let second = |at: penstock_model::Timestamp| at.since(window.window.from).as_secs_f64();
    let told = window.links[link].limits.iter();
    let mut told: Vec<(f64, f64)> = told
        .map(|(at, limit)| (second(*at), f64::from((*limit).max(1))))
        .collect();
    match told.first_mut() {
        // What is sampled first held before, as far as is known.
        Some(first) => first.0 = 0.0,
        None => told.push((0.0, f64::from(active_max.max(1)))),
    }
    told
}

fn in_force(
    steps: &[Step],
    step: f64,
    own: &[(f64, f64)],
    held_elsewhere: impl Fn(usize) -> bool,
) -> Vec<(f64, u32)> {
    let mut limits: Vec<(f64, u32)> = Vec::new();
    let mut set = |at: f64, limit: f64| {
        let limit = limit.round().max(1.0) as u32;
        if limits.last().is_none_or(|(_, before)| *before != limit) {
            limits.push((at, limit));
        }
    };
    // What rounding took away is given back in later steps.
    let mut rest = 0.0;
    for (number, of_step) in steps.iter().enumerate() {
        let begin = number as f64 * step;
        let within = |at: f64| at > begin && at <= begin + step;
        let held = own.iter().rev().find(|(at, _)| *at <= begin);
        let held = held.map_or(own[0].1, |(_, limit)| *limit);
        let changed = own.iter().filter(|(at, _)| within(*at));
        let least = changed
            .clone()
            .map(|(_, limit)| *limit)
            .fold(held, f64::min);
        let ran = of_step.active_busy / of_step.busy.max(1e-9);
        let is_busy = of_step.busy >= BUSY_MIN * step;
        if is_busy && ran < REACHED * least && !held_elsewhere(number) {
            let limit = (ran + rest).round().max(1.0);
            rest = (rest + ran - limit).clamp(-1.0, 1.0);
            set(begin, limit);
            continue;
        }
        set(begin, held);
        changed.for_each(|(at, limit)| set(*at, *limit));
    }
    if limits.is_empty() {
        limits.push((0.0, own[0].1 as u32));
    }
    limits
}

/// Goes through all submissions, beginnings and ends.
fn count(window: &RecordedWindow, links: usize, length: f64, step: f64) -> Vec<LinkCount> {
    let from = window.window.from;
    let second = |at: penstock_model::Timestamp| at.since(from).as_secs_f64();
    // Queued and running: by how much they change.
    let mut changes: Vec<(f64, usize, i32, i32)> = Vec::with_capacity(3 * window.transfers.len());
    for one in &window.transfers {
        changes.push((second(one.submitted), one.link, 1, 0));
        changes.push((second(one.started), one.link, -1, 1));
        changes.push((second(one.ended), one.link, 0, -1));
    }
    changes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let steps = (length / step).ceil().max(1.0) as usize;
    let mut counted = vec![
        LinkCount {
            queued: 0,
            active: 0,
            since: 0.0,
            steps: vec![Step::default(); steps],
        };
        links
    ];
    for (at, link, queued, active) in changes {
        let link = &mut counted[link];
        link.until(at, step);
        link.queued = link.queued.saturating_add_signed(queued);
        link.active = link.active.saturating_add_signed(active);
    }
    counted
}

impl LinkCount {
    fn until(&mut self, now: f64, step: f64) {
        let mut at = self.since;
        while at < now {
            let number = (at / step) as usize;
            let Some(of_step) = self.steps.get_mut(number) else {
                break;
            };
            let end = ((number + 1) as f64 * step).min(now);
            // The division may round a boundary down.
            let seconds = (end - at).max(0.0);
            let active = f64::from(self.active) * seconds;
            of_step.active += active;
            if self.queued > 0 {
                of_step.busy += seconds;
                of_step.active_busy += active;
            }
            at = if end > at { end } else { at + step * 1e-9 };
        }
        self.since = now.max(self.since);
    }
}
