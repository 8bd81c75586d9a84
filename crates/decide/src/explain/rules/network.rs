//! What happens between the storage elements.

use super::super::answer::{Evidence, Measure};
use super::super::dimension::polish;
use super::super::rule_input::{ComparedRate, RuleInput};
use super::super::signals::{DataPathStage, LinkSignals, PoolSignals, Series, Setting};
use super::super::split::Factor;
use super::Finding;
use penstock_model::{ANY, LinkEnd, LinkId, StorageId};
use std::collections::BTreeMap;

/// Copies are slower when each moves a fifth less: the logarithm of that.
const SLOWER_LOG_MIN: f64 = 0.22;
/// Segments sent again that make a way lossy, and that leave it clean.
const LOSS_SHARE_MIN: f64 = 1e-4;
const CLEAN_LOSS_SHARE_MAX: f64 = 1e-5;
/// Fewer make a long way lossy: those that let a connection reach no more than so many times what a file gets.
const LOSS_ROOM_MAX: f64 = 3.0;
/// Segments out of order, of those received, that make a way lossy: of one that is lost some that follow are.
const OUT_OF_ORDER_SHARE_MIN: f64 = 1e-3;
/// Bytes of data in a packet.
const SEGMENT_BYTES: f64 = 1448.0;
/// A round trip of so many times the shortest one has a queue in it.
const ROUND_TRIP_RATIO_MIN: f64 = 2.0;
/// … and of so many times what it was, one that was not there before.
const ROUND_TRIP_GROWTH_MIN: f64 = 1.3;
/// A window is the limit when it is for this part of the time.
const WINDOW_SHARE_MIN: f64 = 0.5;
/// A window of this part of the earlier one, or of a smaller part, is smaller.
const WINDOW_RATIO_MAX: f64 = 0.77;
/// What windows allow is the limit when it is less than this part of the usual rate.
const CEILING_RATIO_MAX: f64 = 0.7;
/// Windows are unopened when the buffers may be so many times as large.
const UNOPENED_RATIO_MIN: f64 = 4.0;
/// Connections are idle when they are for this part of the time.
const IDLE_SHARE_MIN: f64 = 0.4;
/// An effect of a site by which its links are slower for one cause.
const SITE_EFFECT_RATIO_MAX: f64 = 0.8;
/// A link is a load on others when it runs so many times the transfers of before. One that runs as many and moves more has got
/// what others left.
const LOAD_GROWTH_MIN: f64 = 1.1;
/// From this part of what it carried before on, a site carries as much.
const CARRIED_SHARE_MIN: f64 = 0.9;

pub(super) fn too_many_streams(input: &RuleInput<'_>) -> Option<Finding> {
    let (asked, used) = (&input.link.streams_asked, &input.link.streams_used);
    let more_than_asked = input
        .low_mean(asked)
        .is_some_and(|asked| input.low_mean(used) > Some(asked * 1.5));
    let more_than_before = input.rose(used, 1.5) && !input.usual_bins.is_empty();
    let windows = input.link.tcp.window_limited.mean(input.low_bins);
    let is_window = windows.is_some_and(|part| part > WINDOW_SHARE_MIN) && is_clean(input);
    let is_slower = input.log_fall(Factor::StageRate) > SLOWER_LOG_MIN;
    if input.low_mean(used)? <= 1.5
        || !is_slower
        || is_window
        || !(more_than_before || more_than_asked && input.usual_bins.is_empty())
    {
        return None;
    }
    let mut evidence = vec![input.value(Measure::Streams, used)];
    evidence.extend(
        input
            .changes(&[Setting::Streams])
            .take(1)
            .cloned()
            .map(Evidence::Change),
    );
    Finding::whole(evidence)
}

fn is_clean(input: &RuleInput<'_>) -> bool {
    input
        .low_mean(&input.link.tcp.retransmitted)
        .is_none_or(|part| part < CLEAN_LOSS_SHARE_MAX)
}

pub(super) fn tcp_window(input: &RuleInput<'_>) -> Option<Finding> {
    let tcp = &input.link.tcp;
    let limited = |series: &Series| {
        input
            .low_mean(series)
            .is_some_and(|part| part > WINDOW_SHARE_MIN)
            && (input.rose(series, 1.3) || input.fell(&tcp.window_bytes, 0.7))
    };
    let buffers = limited(&tcp.buffer_limited)
        || limited(&tcp.receiver_limited) && input.may_be(&[DataPathStage::Network]);
    // Windows that stay small although the buffers may grow are a cause of their own.
    let window = limited(&tcp.window_limited)
        && input.fell(&tcp.window_bytes, 0.5)
        && is_below_buffers(input) == Some(false);
    if !is_clean(input)
        || !(buffers || window)
        || input
            .stage
            .is_some_and(|stage| stage != DataPathStage::Network)
    {
        return None;
    }
    // Of buffers that held the bytes back the congestion window may tell nothing.
    let smaller = input.ratio(&tcp.window_bytes);
    let smaller = smaller.filter(|smaller| *smaller < WINDOW_RATIO_MAX);
    let longer = input.ratio(&tcp.rtt_seconds);
    let ratio = smaller.map(|smaller| smaller / longer.unwrap_or(1.0));
    // Windows that were larger than needed before take no more than what is above their limit now.
    let ratio = ratio.map(|ratio| ratio.max(ceiling_ratio(input).unwrap_or(0.0)));
    let facts = input.fact_changes(&["tcp_", "net.", "interface "]).take(2);
    let mut evidence: Vec<Evidence> = facts.collect();
    for (measure, series) in [
        (Measure::TcpWindow, &tcp.window_bytes),
        (Measure::RoundTrip, &tcp.rtt_seconds),
    ] {
        if input.low_mean(series).is_some() {
            evidence.push(input.value(measure, series));
        }
    }
    let most = [
        &tcp.buffer_limited,
        &tcp.receiver_limited,
        &tcp.window_limited,
    ]
    .into_iter()
    .find(|series| limited(series));
    evidence.extend(most.map(|series| input.value(Measure::TcpTimes, series)));
    let explains = ratio.map_or(1.0, |ratio| input.explains(ratio, Factor::StageRate));
    Some(Finding { explains, evidence })
}

/// Bytes per second of a file that its windows allow, as a part of what a file reached before.
fn ceiling_ratio(input: &RuleInput<'_>) -> Option<f64> {
    let tcp = &input.link.tcp;
    let rtt = input.low_mean(&tcp.rtt_seconds).filter(|rtt| *rtt > 0.0)?;
    let streams = input
        .low_mean(&input.link.streams_used)
        .unwrap_or(1.0)
        .max(1.0);
    let allowed = streams * input.low_mean(&tcp.window_bytes)? / rtt;
    let usual = input.usual.rate_per_file().filter(|usual| *usual > 0.0)?;
    // Windows are the limit while bytes move only.
    Some(allowed * input.usual.moving_share.unwrap_or(1.0) / usual)
}

/// Whether the hosts allow far larger windows; `None`: nobody tells.
fn is_below_buffers(input: &RuleInput<'_>) -> Option<bool> {
    let tcp = &input.link.tcp;
    let both = input
        .low_mean(&tcp.window_bytes)
        .zip(input.low_mean(&tcp.buffer_max_bytes));
    both.map(|(window, buffer)| buffer >= window * UNOPENED_RATIO_MIN)
}

/// Windows far below what the hosts allow, without losses, that let a file reach less than it did.
pub(super) fn window_unopened(input: &RuleInput<'_>) -> Option<Finding> {
    let tcp = &input.link.tcp;
    let ratio = ceiling_ratio(input)?;
    let is_unopened = is_below_buffers(input) == Some(true) && input.fell(&tcp.window_bytes, 0.5);
    if !is_unopened || !is_clean(input) || ratio > CEILING_RATIO_MAX {
        return None;
    }
    let facts = input.changes(&[Setting::Fact]).take(2);
    let mut evidence: Vec<Evidence> = facts.cloned().map(Evidence::Change).collect();
    evidence.extend([
        input.value(Measure::TcpWindow, &tcp.window_bytes),
        input.value(Measure::TcpBuffer, &tcp.buffer_max_bytes),
        input.value(Measure::RoundTrip, &tcp.rtt_seconds),
        input.value(Measure::Streams, &input.link.streams_used),
    ]);
    Some(Finding {
        explains: input.explains(ratio, Factor::StageRate),
        evidence,
    })
}

/// Of several connections of a file, with windows that are the limit of the others, some have nothing to send.
pub(super) fn idle_streams(input: &RuleInput<'_>) -> Option<Finding> {
    let idle = &input.link.tcp.idle;
    let low = input.low_mean(idle)?;
    let is_split = input.low_mean(&input.link.streams_used)? > 1.5;
    let is_limited = ceiling_ratio(input).is_some_and(|ratio| ratio < CEILING_RATIO_MAX);
    if low < IDLE_SHARE_MIN || !input.rose(idle, 1.3) || !is_split || !is_limited {
        return None;
    }
    let usual = input.usual_mean(idle).unwrap_or(0.0);
    let fed = (1.0 - low) / (1.0 - usual).max(1e-3);
    Some(Finding {
        explains: input.explains(fed, Factor::StageRate),
        evidence: vec![
            input.value(Measure::TcpIdle, idle),
            input.value(Measure::Streams, &input.link.streams_used),
        ],
    })
}

/// Losses or queues on the way of one link.
fn path(input: &RuleInput<'_>, link: &LinkSignals) -> Vec<Evidence> {
    let tcp = &link.tcp;
    let mut evidence = Vec::new();
    let lossy = input
        .low_mean(&tcp.retransmitted)
        .is_some_and(|part| part > LOSS_SHARE_MIN || is_held_by_loss(input, link, part));
    if lossy && input.rose(&tcp.retransmitted, 3.0) {
        evidence.push(input.value(Measure::Retransmissions, &tcp.retransmitted));
    }
    let is_out_of_order = input
        .low_mean(&tcp.out_of_order)
        .is_some_and(|part| part > OUT_OF_ORDER_SHARE_MIN);
    if is_out_of_order && input.rose(&tcp.out_of_order, 3.0) {
        evidence.push(input.value(Measure::OutOfOrder, &tcp.out_of_order));
    }
    // Of a way that became longer the shortest round trip is long, too: then that of before counts.
    let shortest = [
        input.low_mean(&tcp.rtt_min_seconds),
        input.usual_mean(&tcp.rtt_min_seconds),
    ];
    let shortest = shortest.into_iter().flatten().reduce(f64::min);
    let queue = || Some(input.low_mean(&tcp.rtt_seconds)? / shortest?);
    let is_longer = input.rose(&tcp.rtt_seconds, ROUND_TRIP_GROWTH_MIN);
    if queue().is_some_and(|ratio| ratio > ROUND_TRIP_RATIO_MIN) && is_longer {
        evidence.push(input.value(Measure::RoundTrip, &tcp.rtt_seconds));
    }
    evidence
}

/// Whether a file gets about what its connections can reach that lose this part of their segments.
fn is_held_by_loss(input: &RuleInput<'_>, link: &LinkSignals, part: f64) -> bool {
    let held = || {
        let rtt = input
            .low_mean(&link.tcp.rtt_seconds)
            .filter(|rtt| *rtt > 0.0)?;
        let streams = input.low_mean(&link.streams_used).unwrap_or(1.0).max(1.0);
        // Mathis, Semke, Mahdavi, Ott: The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm (1997).
        let reached = streams * SEGMENT_BYTES * (1.5 / part).sqrt() / rtt;
        let seconds = f64::from(input.signals.bin_seconds);
        Some(reached < LOSS_ROOM_MAX * per_file(input, link, ComparedRate::Low)? / seconds)
    };
    part > 0.0 && held() == Some(true)
}

pub(super) fn network_path(input: &RuleInput<'_>) -> Option<Finding> {
    let evidence = path(input, input.link);
    (!evidence.is_empty() && input.may_be(&[DataPathStage::Network])).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

/// Bytes per second of a file that runs.
fn per_file(input: &RuleInput<'_>, link: &LinkSignals, rate: ComparedRate) -> Option<f64> {
    let mean = |series: &Series| series.mean(input.bins(rate));
    let active = mean(&link.active).filter(|active| *active > 0.0)?;
    Some(mean(&link.copied_bytes)? / active).filter(|rate| *rate > 0.0)
}

/// Whether the way of a link lost more or took longer than before: it shares a part that is full, also when its files are
/// too slow to lose by that.
fn is_queued(input: &RuleInput<'_>, link: &LinkSignals) -> bool {
    !path(input, link).is_empty() || input.rose(&link.tcp.rtt_seconds, ROUND_TRIP_GROWTH_MIN)
}

/// What a link's files reach against what they usually do, as a logarithm; without a time before, what they reach.
fn site_cell(input: &RuleInput<'_>, link: &LinkSignals) -> Option<f64> {
    let reached = per_file(input, link, ComparedRate::Low)?;
    match input.usual_bins.is_empty() {
        true => Some(reached.ln()),
        false => Some((reached / per_file(input, link, ComparedRate::Usual)?).ln()),
    }
}

pub(super) fn site_network(input: &RuleInput<'_>) -> Option<Finding> {
    if input.stage != Some(DataPathStage::Network) && path(input, input.link).is_empty() {
        return None;
    }
    let cells: BTreeMap<(StorageId, StorageId), f64> = input
        .signals
        .links
        .iter()
        .filter_map(|(id, link)| {
            Some((
                (id.source.clone(), id.destination.clone()),
                site_cell(input, link)?,
            ))
        })
        .collect();
    let effects = polish(&cells);
    let low = SITE_EFFECT_RATIO_MAX.ln();
    // Each link is compared with itself before, or, without a time before, with the others.
    let reference = if input.usual_bins.is_empty() {
        effects.level
    } else {
        0.0
    };
    let is_hit = |ends: &(StorageId, StorageId), value: f64| {
        let id = LinkId {
            source: ends.0.clone(),
            destination: ends.1.clone(),
        };
        let link = input.signals.links.get(&id);
        value < reference + low || link.is_some_and(|link| is_queued(input, link))
    };
    let tally = |is_of: &dyn Fn(&(StorageId, StorageId)) -> bool| {
        let its = cells.iter().filter(|(ends, _)| is_of(ends));
        let hit: Vec<bool> = its.map(|(ends, value)| is_hit(ends, *value)).collect();
        (hit.iter().filter(|hit| **hit).count(), hit.len())
    };
    let own_fell = site_cell(input, input.link).is_some_and(|value| value < reference + low);
    let site = |storage: &StorageId, end: LinkEnd, effect: Option<&f64>| {
        let is_of = |ends: &(StorageId, StorageId)| match end {
            LinkEnd::Source => ends.0 == *storage,
            LinkEnd::Destination => ends.1 == *storage,
        };
        let (fallen, of) = tally(&is_of);
        let (others_fallen, others) = tally(&|ends| !is_of(ends));
        let effect = effect.copied().unwrap_or(0.0);
        let is_low = effect + effects.level - reference < low;
        let holds = (is_low || own_fell && !input.usual_bins.is_empty())
            && of >= 2
            && fallen == of
            && others >= 1
            && others_fallen * 2 < others;
        holds.then(|| (effect, storage.clone(), end, fallen))
    };
    let ends = input.links.iter().flat_map(|link| {
        let (source, destination) = (&link.source, &link.destination);
        [
            site(source, LinkEnd::Source, effects.rows.get(source)),
            site(
                destination,
                LinkEnd::Destination,
                effects.columns.get(destination),
            ),
        ]
    });
    let (_, site, end, fallen) =
        (ends.flatten()).min_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)))?;
    let place = Some(site.as_str().to_owned());
    let mut evidence = vec![Evidence::Links {
        place,
        fallen,
        of: fallen,
    }];
    evidence.extend(input.stage.map(|stage| Evidence::Bottleneck { stage }));
    evidence.extend(path(input, input.link));
    // A site that carries as much as before is not narrower: others took what these links lack.
    let is_narrower = carried(input, &site, end).is_none_or(|part| part < CARRIED_SHARE_MIN);
    is_narrower.then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

/// What all links out of a storage element, or into it, move of what they moved before.
fn carried(input: &RuleInput<'_>, storage: &StorageId, end: LinkEnd) -> Option<f64> {
    let its = (input.signals.links.iter()).filter(|(id, _)| id.end(end) == storage);
    let (mut usual, mut low) = (0.0, 0.0);
    for (_, link) in its {
        usual += input.usual_mean(&link.copied_bytes)?;
        low += input.low_mean(&link.copied_bytes)?;
    }
    (usual > 0.0).then(|| low / usual)
}

/// Whether a link runs more transfers than before; true when that is not known.
fn runs_more(input: &RuleInput<'_>, link: &LinkSignals) -> bool {
    let (low, usual) = (input.low_mean(&link.active), input.usual_mean(&link.active));
    (low.zip(usual)).is_none_or(|(low, usual)| low > usual * LOAD_GROWTH_MIN)
}

/// What else than these links' and other links' copies goes into the pools of a destination, or out of those of a source: clients
/// of its doors, and copies of other services. Empty where pools tell no bytes.
fn clients_bytes(input: &RuleInput<'_>, storage: &StorageId, end: LinkEnd) -> Series {
    let pools = input.signals.pools.values();
    let its = pools.filter(|pool| {
        let of_pool = pool.storage.as_ref();
        of_pool.is_some_and(|of_pool| of_pool.host() == storage.host())
    });
    let of_pool = |pool: &PoolSignals| pool.bytes_at(end).clone();
    let Some(all) = its.map(of_pool).reduce(|sum, one| sum.plus(&one)) else {
        return Series::default();
    };
    let links = (input.signals.links.iter()).filter(|(id, _)| id.end(end) == storage);
    let copied = links
        .map(|(_, link)| link.moved_bytes())
        .reduce(|sum, one| sum.plus(&one))
        .unwrap_or_default();
    let bins = 0..all.0.len().min(copied.0.len());
    Series(
        // Some copies come from other places than pools that tell.
        bins.map(|bin| Some((all.at(bin)? - copied.at(bin)?).max(0.0)))
            .collect(),
    )
}

/// What the other links at an end take now and did not take before, with what they take in all.
fn links_rise(input: &RuleInput<'_>, storage: &StorageId, end: LinkEnd) -> Option<(f64, Series)> {
    let mut rise = 0.0;
    let mut others = Series::default();
    for (id, link) in &input.signals.links {
        if id.end(end) == storage && !input.links.contains(id) {
            let change =
                input.low_mean(&link.copied_bytes)? - input.usual_mean(&link.copied_bytes)?;
            rise += match runs_more(input, link) {
                true => change,
                false => change.min(0.0),
            };
            others = if others.0.is_empty() {
                link.copied_bytes.clone()
            } else {
                others.plus(&link.copied_bytes)
            };
        }
    }
    Some((rise, others))
}

pub(super) fn competing_load(input: &RuleInput<'_>) -> Option<Finding> {
    if input.log_fall(Factor::StageRate) < SLOWER_LOG_MIN {
        return None;
    }
    let own_fall =
        input.usual_mean(&input.link.copied_bytes)? - input.low_mean(&input.link.copied_bytes)?;
    // What others take at an end now and did not take before, from what that end gives in all.
    let at_end = |storage: &StorageId, end: LinkEnd| {
        let of_links = links_rise(input, storage, end);
        let of_links = of_links.map(|(rise, links)| (rise, Measure::OtherLinksBytes, links));
        let clients = clients_bytes(input, storage, end);
        let rise = input.low_mean(&clients).zip(input.usual_mean(&clients));
        let of_clients = rise.map(|(low, usual)| low - usual);
        let of_clients = of_clients.map(|rise| (rise, Measure::ClientsBytes, clients));
        of_links.into_iter().chain(of_clients)
    };
    let ends = input
        .links
        .iter()
        .flat_map(|link| LinkEnd::BOTH.map(|end| (link.end(end), end)));
    let (rise, measure, others) = ends
        .filter(|(storage, _)| storage.as_str() != ANY)
        .flat_map(|(storage, end)| at_end(storage, end))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    let part = rise / own_fall.max(1.0);
    (own_fall > 0.0 && part >= 0.5).then(|| Finding {
        explains: part.min(1.0),
        evidence: vec![input.value(measure, &others)],
    })
}
