//! What the transfer service and its users do.

use super::super::answer::{Evidence, Measure};
use super::super::change::UNFED_SHARE_MIN;
use super::super::rule_input::{ComparedRate, RuleInput};
use super::super::signals::{Change, FailureGroup, Series, Setting};
use super::super::split::Factor;
use super::{Finding, STORAGE};
use penstock_model::quantity::Speed;
use penstock_model::{ANY, Errno, LinkEnd, LinkId, Side, StorageId};

/// A link is not fed when fewer than this part of its slots are used.
const FED_SHARE_MIN: f64 = 0.7;
/// Files queued on average that count as a queue.
const QUEUED_FILES_MIN: f64 = 0.5;
/// The service lost slots when it has fewer than this part of those before.
const SERVICE_SHRINKS_BELOW: f64 = 0.9;
/// Others took the slots that a link lost, when they use more by this part of them.
const TAKEN_SHARE_MIN: f64 = 0.3;
/// Failed attempts that count: this part of all, and so many times what is usual.
const FAILED_SHARE_MIN: f64 = 0.03;
const FAILED_RATIO_MIN: f64 = 3.0;
/// Of a few attempts some fail by chance: of so many that end this part, and what three standard deviations add to it.
const FAILED_USUAL_SHARE: f64 = 0.01;
/// From this part of all attempts on failures explain all that was lost; fewer can do that only where each holds its slot
/// for many times as long as a copy.
const FAILED_WHOLE_SHARE: f64 = 0.25;
/// A drained server or pool that carried less than this part of the bytes has no effect on the rate.
const DRAINED_SHARE_MIN: f64 = 0.02;
/// Links of the service that fall together for one cause in it.
const LINKS_SHARE_MIN: f64 = 0.8;
/// Such a cause leaves fewer than this part of the starts of before.
const STARTS_SHARE_MAX: f64 = 0.3;
/// A rate limit of which this part is moved is reached.
const RATE_REACHED_MIN: f64 = 0.5;

/// Files wait, and not only for moments between which slots are free for want of files.
fn has_queue(input: &RuleInput<'_>) -> bool {
    let queued = input.low_mean(&input.link.queued);
    queued.is_some_and(|queued| queued >= QUEUED_FILES_MIN) && !lacks_files(input)
}

/// Most of the time in which slots were free no file waited.
fn lacks_files(input: &RuleInput<'_>) -> bool {
    let lacks = || {
        let (limit, active) = (
            input.low_mean(&input.link.limit)?,
            input.low_mean(&input.link.active)?,
        );
        Some(input.low_mean(&input.link.unfed)? < UNFED_SHARE_MIN * (limit - active))
    };
    lacks() == Some(true)
}

/// Few slots are used, fewer than before; or it is the slots that took most of the rate: in the first minutes of a drop few
/// and many of them are used.
fn is_unfed(input: &RuleInput<'_>) -> bool {
    let is_low = input.low.fed().is_some_and(|fed| fed < FED_SHARE_MIN);
    let whole = (input.usual.rate / input.low.rate.max(input.usual.rate * 1e-9)).ln();
    let is_most = input.low.fed().is_some() && input.log_fall(Factor::Fed) > 0.5 * whole;
    input.fell_factor(Factor::Fed) && (is_low || is_most)
}

fn slots(input: &RuleInput<'_>) -> Vec<Evidence> {
    let link = input.link;
    vec![
        input.value(Measure::Active, &link.active),
        input.value(Measure::Limit, &link.limit),
        input.value(Measure::Queued, &link.queued),
    ]
}

pub(super) fn not_fed(input: &RuleInput<'_>) -> Option<Finding> {
    // A service with fewer slots of its own than before is full, and took them from nobody.
    let has_fewer = input.fell(&input.signals.service.slots_cap, SERVICE_SHRINKS_BELOW);
    let is_free = input.is_service_full() != Some(true) || has_fewer;
    if !is_unfed(input) || !has_queue(input) || !is_free || !lowered_at_storage(input).is_empty() {
        return None;
    }
    let mut evidence = slots(input);
    if has_fewer {
        let slots = &input.signals.service.slots_used;
        evidence.insert(0, input.value(Measure::ServiceSlots, slots));
    }
    Finding::whole(evidence)
}

pub(super) fn fewer_submissions(input: &RuleInput<'_>) -> Option<Finding> {
    let link = input.link;
    let is_empty = input.low_mean(&link.queued)? < QUEUED_FILES_MIN || lacks_files(input);
    let had_more = input.fell(&link.active, FED_SHARE_MIN);
    // Files that a tape system has not brought yet were submitted.
    let recalls = input.storages().any(|(_, storage)| {
        input
            .low_mean(&storage.tape.recalls_queued)
            .is_some_and(|queued| queued >= QUEUED_FILES_MIN)
    });
    if !is_empty || !had_more || recalls {
        return None;
    }
    let mut evidence = vec![input.value(Measure::Queued, &link.queued)];
    let submissions = input
        .links
        .iter()
        .filter_map(|link| input.signals.service.submissions.get(link));
    for submissions in submissions {
        if input.low_mean(submissions).is_some() && !input.fell(submissions, FED_SHARE_MIN) {
            return None;
        }
        evidence.insert(0, input.value(Measure::Submissions, submissions));
    }
    Finding::whole(evidence)
}

pub(super) fn service_share(input: &RuleInput<'_>) -> Option<Finding> {
    let service = &input.signals.service;
    let own = |rate: ComparedRate| {
        let mean = |series: &Series| series.mean(input.bins(rate));
        Some(mean(&input.link.active)? / mean(&service.slots_used).filter(|used| *used > 0.0)?)
    };
    let is_smaller = match (own(ComparedRate::Usual), own(ComparedRate::Low)) {
        (Some(usual), Some(low)) => low < usual * 0.8,
        (None, Some(_)) => input.usual_bins.is_empty(),
        (_, None) => false,
    };
    let others_took = || {
        let (own, all) = (&input.link.active, &service.slots_used);
        let lost = input.usual_mean(own)? - input.low_mean(own)?;
        let of_others = (input.low_mean(all)? - input.low_mean(own)?)
            - (input.usual_mean(all)? - input.usual_mean(own)?);
        Some(of_others >= lost * TAKEN_SHARE_MIN)
    };
    let is_taken = is_smaller && others_took() != Some(false);
    let holds = input.is_service_full() == Some(true) && is_taken && has_queue(input);
    let mut evidence = vec![input.value(Measure::ServiceSlots, &service.slots_used)];
    evidence.extend(slots(input));
    holds.then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

pub(super) fn control_plane(input: &RuleInput<'_>) -> Option<Finding> {
    let service = &input.signals.service;
    if !has_queue(input) || !is_unfed(input) {
        return None;
    }
    let silent = input
        .low_mean(&service.probe)
        .is_some_and(|answered| answered < 0.5);
    let idle = input
        .low_mean(&service.dispatches)
        .is_some_and(|started| started < 0.01)
        && input
            .usual_mean(&service.dispatches)
            .is_none_or(|started| started > 0.01);
    let fallen = fallen_links(input);
    let is_little = input
        .ratio(&service.dispatches)
        .is_none_or(|ratio| ratio < STARTS_SHARE_MAX);
    let all_links = is_little
        && fallen
            .is_some_and(|(fallen, of)| of >= 3 && fallen as f64 >= of as f64 * LINKS_SHARE_MIN);
    if !(silent || idle || all_links) || input.is_service_full() == Some(true) {
        return None;
    }
    let mut evidence = Vec::new();
    if silent {
        evidence.push(input.value(Measure::ApiProbe, &service.probe));
    }
    if idle {
        evidence.push(input.value(Measure::Dispatches, &service.dispatches));
    }
    evidence.extend(fallen.map(|(fallen, of)| Evidence::Links {
        place: None,
        fallen,
        of,
    }));
    evidence.extend(slots(input));
    Finding::whole(evidence)
}

/// Links of the service with a queue, and how many of them use far fewer slots than before.
fn fallen_links(input: &RuleInput<'_>) -> Option<(usize, usize)> {
    let fell = |link: &LinkId| {
        let link = input.signals.links.get(link)?;
        let queued = input.low_mean(&link.queued)?;
        (queued >= QUEUED_FILES_MIN).then(|| input.fell(&link.active, FED_SHARE_MIN))
    };
    let known: Vec<bool> = input.signals.links.keys().filter_map(fell).collect();
    (known.len() > 1 && !input.usual_bins.is_empty())
        .then(|| (known.iter().filter(|fell| **fell).count(), known.len()))
}

pub(super) fn slot_limit(input: &RuleInput<'_>) -> Option<Finding> {
    if input.usual_bins.is_empty() {
        return None;
    }
    if input.fell(&input.link.limit, 0.9) {
        let changes = input.changes(&[Setting::Limit]).cloned();
        let mut evidence: Vec<Evidence> = changes.map(Evidence::Change).take(2).collect();
        evidence.push(input.value(Measure::Limit, &input.link.limit));
        return Finding::whole(evidence);
    }
    let lowered = lowered_at_storage(input);
    if lowered.is_empty() || !is_unfed(input) || !has_queue(input) {
        return None;
    }
    let lowered = lowered.into_iter().take(2).cloned().map(Evidence::Change);
    Finding::whole(lowered.chain(slots(input)).collect())
}

/// Limits of storage elements that were lowered, in the direction of the links. They are in no sample: what they take from a
/// link looks like slots that are left free.
fn lowered_at_storage<'a>(input: &'a RuleInput<'_>) -> Vec<&'a Change> {
    let is_link = |place: &str| {
        input
            .signals
            .links
            .keys()
            .any(|link| link.to_string() == place)
    };
    let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u32>().ok());
    let is_lower = |change: &&Change| {
        let new = number(&change.new);
        new.is_some_and(|new| number(&change.old).is_none_or(|old| new < old))
    };
    let is_end = |end: LinkEnd, place: &str| {
        let host = StorageId::new(place);
        let mut ids = input.ids(end).into_iter();
        place == ANY || ids.any(|id| id.host() == host.host())
    };
    let limits = input.changes(&[
        Setting::Limit,
        Setting::InboundLimit,
        Setting::OutboundLimit,
    ]);
    let lower = limits.filter(is_lower);
    let at_end = lower.filter(|change| match change.setting {
        Setting::InboundLimit => is_end(LinkEnd::Destination, &change.place),
        Setting::OutboundLimit => is_end(LinkEnd::Source, &change.place),
        Setting::Limit
        | Setting::RateLimit
        | Setting::Streams
        | Setting::Drain
        | Setting::Ban
        | Setting::Halt
        | Setting::Fact
        | Setting::Other => !is_link(&change.place),
    });
    at_end.collect()
}

/// What was drained or banned, as far as that can have lowered the rate: a link, an end or the service where fewer slots are
/// in use, a server by the part of the bytes that it carried, and a pool by the part that was written to it. What a drained
/// pool holds is still read.
pub(super) fn drain(input: &RuleInput<'_>) -> Option<Finding> {
    let has_fewer_slots = input.fell_factor(Factor::Limit) || input.fell_factor(Factor::Fed);
    let set = input.in_force(&[Setting::Drain, Setting::Ban]);
    let effects = set.into_iter().filter_map(|change| {
        let effect = match carried_part(input, &change.place) {
            None => f64::from(u8::from(has_fewer_slots)),
            Some(part) if part < DRAINED_SHARE_MIN => 0.0,
            Some(part) => input.explains_most(1.0 - part, STORAGE),
        };
        (effect > 0.0).then_some((change, effect))
    });
    let effects: Vec<(&Change, f64)> = effects.collect();
    let explains: f64 = effects.iter().map(|(_, effect)| effect).sum();
    let evidence = effects.iter().take(2);
    (!effects.is_empty()).then(|| Finding {
        explains: explains.min(1.0),
        evidence: evidence
            .map(|(change, _)| Evidence::Change((*change).clone()))
            .collect(),
    })
}

/// Which part of the bytes of its end a server or pool carried before, 0 to 1: a pool, of what was written. What is not
/// known counts as all; `None`: the place is neither.
fn carried_part(input: &RuleInput<'_>, place: &str) -> Option<f64> {
    let part = |carried: Vec<(&str, &Series)>| {
        let own = carried.iter().find(|(name, _)| *name == place)?;
        let bytes = |(_, bytes): &(&str, &Series)| input.usual_mean(bytes);
        let all: f64 = carried.iter().filter_map(bytes).sum();
        let known = bytes(own).filter(|_| all > 0.0);
        Some(known.map_or(1.0, |own| own / all))
    };
    let signals = input.signals;
    if signals.servers.keys().any(|name| name.0 == place) {
        let servers = |end: LinkEnd| {
            let servers = input.disk_servers(end).into_iter();
            let carried = servers.map(|(name, server)| (name.0.as_str(), server.bytes_at(end)));
            part(carried.collect())
        };
        let parts = LinkEnd::BOTH.map(servers);
        return Some(parts.into_iter().flatten().fold(0.0, f64::max));
    }
    let is_pool = signals.pools.keys().any(|name| name.as_str() == place);
    let written = input.pools().into_iter();
    let written = written.map(|(name, pool)| (name.as_str(), &pool.bytes_in));
    is_pool.then(|| part(written.collect()).unwrap_or(0.0))
}

/// A rate limit that was set or lowered about the begin of a drop, or removed or raised about that of a rise, and was reached
/// while the rate was low.
pub(super) fn rate_limit(input: &RuleInput<'_>) -> Option<Finding> {
    let speed = |text: &Option<String>| Some(text.as_deref()?.parse::<Speed>().ok()?.0 as f64);
    let moved = rate_of_busiest_end(input)?;
    let is_cause = |change: &&Change| {
        let (old, new) = (speed(&change.old), speed(&change.new));
        let (lower, higher) = match input.is_rise() {
            true => (old, new),
            false => (new, old),
        };
        lower.is_some_and(|lower| {
            higher.is_none_or(|higher| lower < higher) && moved >= lower * RATE_REACHED_MIN
        })
    };
    let set: Vec<&Change> = match input.is_rise() {
        true => input.changes(&[Setting::RateLimit]).collect(),
        false => input.in_force(&[Setting::RateLimit]),
    };
    let changes = set.into_iter().filter(is_cause).take(2);
    let mut evidence: Vec<Evidence> = changes.cloned().map(Evidence::Change).collect();
    if evidence.is_empty() {
        return None;
    }
    evidence.extend(slots(input));
    Finding::whole(evidence)
}

/// Bytes per second of all links of that end of these of which most is moved: a limit of a storage element is of all of them.
fn rate_of_busiest_end(input: &RuleInput<'_>) -> Option<f64> {
    let moved = |is_of: &dyn Fn(&LinkId) -> bool| -> f64 {
        let links = input.signals.links.iter().filter(|(link, _)| is_of(link));
        links
            .filter_map(|(_, link)| input.low_mean(&link.copied_bytes))
            .sum()
    };
    let at_ends = input.links.iter().flat_map(|link| {
        [
            moved(&|other| other.source == link.source),
            moved(&|other| other.destination == link.destination),
        ]
    });
    Some(at_ends.reduce(f64::max)? / f64::from(input.signals.bin_seconds.max(1)))
}

pub(super) fn source_errors(input: &RuleInput<'_>) -> Option<Finding> {
    let is_broken_off = fails_to_read(input);
    errors(input, |group| match group.side {
        Side::Source => true,
        // Whoever copies from there sees a connection that ended early.
        Side::Network => is_broken_off,
        Side::Destination | Side::Service => false,
    })
}

/// Whether pools of the source tell of movers that failed, more than before.
fn fails_to_read(input: &RuleInput<'_>) -> bool {
    let pools = input.pools_of(LinkEnd::Source);
    let failed = |spans: &[std::ops::Range<usize>]| -> f64 {
        let failed = pools.iter().filter_map(|(_, pool)| pool.failed.mean(spans));
        failed.sum()
    };
    let low = failed(input.low_bins);
    low > 0.0 && low > failed(input.usual_bins) * FAILED_RATIO_MIN
}

pub(super) fn destination_errors(input: &RuleInput<'_>) -> Option<Finding> {
    errors(input, |group| {
        // Without space left it is full, not broken.
        group.side == Side::Destination && group.errno != Errno::ENOSPC
    })
}

/// The part of what failures took that failures of these kinds explain; `None`: they are few, usual or of chance.
pub(super) fn explained_by_failures(
    input: &RuleInput<'_>,
    test: impl Fn(&FailureGroup) -> bool,
) -> Option<f64> {
    let (usual, low) = input.failed_part(&test);
    let low = low?;
    if low <= FAILED_SHARE_MIN || usual.is_some_and(|usual| low <= usual * FAILED_RATIO_MIN) {
        return None;
    }
    let (_, all) = input.failed_part(|_| true);
    let attempts = |(_, attempts): (&FailureGroup, &Series)| attempts.sum(input.low_bins);
    let of_kinds = input.link.failures.iter().filter(|(group, _)| test(group));
    let failed: f64 = of_kinds.filter_map(attempts).sum();
    let expected = failed / low * usual.unwrap_or(0.0).max(FAILED_USUAL_SHARE);
    if failed < 1.0 + expected + 3.0 * expected.sqrt() {
        return None;
    }
    // Of what failures took, its part of the failures.
    Some((low / all?).min(1.0) * (low / FAILED_WHOLE_SHARE).min(1.0))
}

fn errors(input: &RuleInput<'_>, test: impl Fn(&FailureGroup) -> bool) -> Option<Finding> {
    let explains = explained_by_failures(input, &test)?;
    let halts = input
        .changes(&[Setting::Halt])
        .filter(|change| change.new.is_some());
    let mut evidence: Vec<Evidence> = halts.take(1).cloned().map(Evidence::Change).collect();
    evidence.extend(input.failures(test).into_iter().take(2));
    Some(Finding { explains, evidence })
}

pub(super) fn small_files(input: &RuleInput<'_>) -> Option<Finding> {
    let (size, overhead) = (&input.link.file_bytes, &input.link.overhead_seconds);
    if !input.fell(size, 0.7) {
        return None;
    }
    // The part of a slot's time in which bytes move, with the size alone changed: S / (S + b·T).
    let (old, new) = (input.usual_mean(size)?, input.low_mean(size)?);
    let usual = input.usual.moving_share?;
    let idle_bytes = old * (1.0 / usual - 1.0);
    let ratio = new / (new + idle_bytes) / usual;
    Some(Finding {
        explains: input.explains(ratio, Factor::MovingShare),
        evidence: vec![
            input.value(Measure::FileSize, size),
            input.value(Measure::Overhead, overhead),
        ],
    })
}
