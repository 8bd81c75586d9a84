//! What a machine lacks, and what its databases do.

use super::super::answer::{Evidence, Measure};
use super::super::rule_input::{ComparedRate, RuleInput};
use super::super::signals::{Series, ServerKind, ServerSignals, StorageSignals};
use super::{Finding, LATENCY_RATIO_MIN, USE_SHARE_MIN};
use std::ops::Range;

/// An operation that is faster holds nothing up, however much faster it was before: this time, and this part of that of a copy.
const LATENCY_SECONDS_MIN: f64 = 0.1;
const LATENCY_SHARE_MIN: f64 = 0.02;
/// Operations are slow in this part of the stretch at least.
const SLOW_SHARE_MIN: f64 = 0.25;
/// Part of the time in which some task waits for disks: overload; in which all do for memory.
const IO_SOME_SHARE_MIN: f64 = 0.20;
const MEMORY_FULL_SHARE_MIN: f64 = 0.01;
/// Parts above which relayed bytes and open descriptors count, and from which on there is no descriptor left.
const RELAYED_SHARE_MIN: f64 = 0.1;
const DESCRIPTORS_SHARE_MIN: f64 = 0.9;
const DESCRIPTORS_SHARE_FULL: f64 = 0.95;
/// A leak has made so many times as many of them at least.
const LEAK_RATIO_MIN: f64 = 1.2;

pub(super) fn database_load(input: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = slow_databases(input);
    if evidence.is_empty() {
        return None;
    }
    for (name, server) in pressed_heads(input) {
        evidence.push(input.value_at(Measure::IoPressure, Some(name), &server.io_some));
    }
    let (from, to) = (input.low_bins.first()?.start, input.low_bins.last()?.end);
    let (from, to) = (input.signals.begin_of(from), input.signals.begin_of(to));
    let works = input
        .signals
        .maintenance
        .iter()
        .filter(|work| work.from < to && work.to > from);
    evidence.extend(works.take(1).cloned().map(Evidence::Maintenance));
    evidence.extend(
        input
            .period_seconds
            .map(|period_seconds| Evidence::Recurrence { period_seconds }),
    );
    Finding::whole(evidence)
}

/// Databases whose operations take many times longer than before, and long enough to be felt.
fn slow_databases(input: &RuleInput<'_>) -> Vec<Evidence> {
    let is_slower = |series: &Series, seconds_min: f64| {
        let is_long = input.low_mean(series).is_some_and(|low| low > seconds_min);
        is_long && input.rose(series, LATENCY_RATIO_MIN) && !input.usual_bins.is_empty()
    };
    let service = &input.signals.service;
    let databases = [&service.database_seconds, &service.journal_seconds].into_iter();
    let slow = databases.filter(|series| is_slower(series, LATENCY_SECONDS_MIN));
    let mut evidence: Vec<Evidence> = slow
        .map(|series| input.value(Measure::DatabaseLatency, series))
        .collect();
    let felt = input.copy_seconds().unwrap_or(0.0) * LATENCY_SHARE_MIN;
    let is_pressed = pressed_heads(input).next().is_some();
    for (id, storage) in input.storages() {
        let seconds = &storage.namespace_seconds;
        // With all threads busy an operation takes longer because it waits for one, if its work does not.
        let is_queue = are_threads_busy(input, storage)
            && !is_pressed
            && !is_slower(&storage.namespace_work_seconds, 0.0);
        // A short pause in a long drop holds up no more than its own time.
        let lasts = input.high_share(seconds, LATENCY_RATIO_MIN) >= SLOW_SHARE_MIN;
        if is_slower(seconds, felt.max(LATENCY_SECONDS_MIN)) && lasts && !is_queue {
            evidence.push(input.value_at(Measure::NamespaceLatency, Some(id.as_str()), seconds));
        }
    }
    evidence
}

/// Servers with a namespace on which tasks wait for disks. Where no head is told apart, each server may have it.
fn pressed_heads<'a>(
    input: &'a RuleInput<'_>,
) -> impl Iterator<Item = (&'a str, &'a ServerSignals)> {
    let has_head = input
        .servers()
        .any(|(_, server)| server.role == ServerKind::Head);
    let is_pressed = move |server: &ServerSignals| {
        let io_some = input.low_mean(&server.io_some);
        (server.role == ServerKind::Head || !has_head)
            && io_some.is_some_and(|part| part > IO_SOME_SHARE_MIN)
    };
    let servers = input
        .servers()
        .map(|(name, server)| (name.0.as_str(), server));
    servers.filter(move |(_, server)| is_pressed(server))
}

fn are_threads_busy(input: &RuleInput<'_>, storage: &StorageSignals) -> bool {
    let busy = input.low_mean(&storage.namespace_busy);
    busy.zip(input.low_mean(&storage.namespace_cap))
        .is_some_and(|(busy, cap)| busy >= cap * USE_SHARE_MIN)
}

pub(super) fn undersized_host(input: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = Vec::new();
    for (name, server) in input.servers() {
        let columns = [
            (
                Measure::MemoryPressure,
                &server.memory_full,
                MEMORY_FULL_SHARE_MIN,
            ),
            (Measure::Processors, &server.cpu, USE_SHARE_MIN),
            (Measure::Interface, &server.interface, USE_SHARE_MIN),
        ];
        for (measure, series, bound) in columns {
            if input.low_mean(series).is_some_and(|part| part > bound) && input.rose(series, 1.1) {
                evidence.push(input.value_at(measure, Some(&name.0), series));
            }
        }
    }
    evidence.truncate(3);
    (!evidence.is_empty()).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

pub(super) fn namespace_threads(input: &RuleInput<'_>) -> Option<Finding> {
    let full = input.storages().find(|(_, storage)| {
        are_threads_busy(input, storage)
            && input
                .low_mean(&storage.namespace_queued)
                .is_some_and(|queued| queued > 0.5)
            && input.rose(&storage.namespace_queued, 1.5)
    })?;
    let (id, storage) = (full.0.as_str(), full.1);
    Finding::whole(vec![
        input.value_at(Measure::NamespaceThreads, Some(id), &storage.namespace_busy),
        input.value_at(Measure::NamespaceQueue, Some(id), &storage.namespace_queued),
    ])
}

pub(super) fn descriptor_leak(input: &RuleInput<'_>) -> Option<Finding> {
    let (name, server) = input
        .servers()
        .find(|(_, server)| leaks(input, server) || lacks_descriptors(input, server))?;
    let name = Some(name.0.as_str());
    let mut evidence = vec![
        input.value_at(Measure::Descriptors, name, &server.descriptors),
        input.value_at(Measure::DescriptorLimit, name, &server.descriptors_limit),
    ];
    evidence.extend(input.fact_changes(&["limit open files"]).take(1));
    Finding::whole(evidence)
}

/// The part of the descriptors that is used, at the most.
fn descriptors_used(server: &ServerSignals, spans: &[Range<usize>]) -> Option<f64> {
    let limit = server.descriptors_limit.mean(spans);
    Some(server.descriptors.max(spans)? / limit.filter(|limit| *limit > 0.0)?)
}

/// A leak grows all the time; a burst of connections comes and goes.
fn leaks(input: &RuleInput<'_>, server: &ServerSignals) -> bool {
    let used = descriptors_used(server, input.low_bins);
    let all: Vec<f64> = (0..input.signals.bins)
        .filter_map(|bin| server.descriptors.at(bin))
        .collect();
    let steps = all.windows(2).filter(|pair| pair[1] >= pair[0]).count();
    let grown = all.last().zip(all.first());
    used.is_some_and(|used| used >= DESCRIPTORS_SHARE_MIN)
        && all.len() > 4
        && steps as f64 >= (all.len() - 1) as f64 * 0.9
        && grown.is_some_and(|(last, first)| *last >= first * LEAK_RATIO_MIN)
}

/// For most of the time no descriptor is left, and before some were: more connections came, or the limit was lowered.
fn lacks_descriptors(input: &RuleInput<'_>, server: &ServerSignals) -> bool {
    let limit = |spans: &[Range<usize>]| server.descriptors_limit.mean(spans);
    let (Some(low_limit), Some(usual_limit)) = (limit(input.low_bins), limit(input.usual_bins))
    else {
        return false;
    };
    let is_full = |open: f64| open >= low_limit * DESCRIPTORS_SHARE_FULL;
    let full = server.descriptors.part(input.low_bins, is_full);
    let usual = server.descriptors.max(input.usual_bins);
    full.is_some_and(|part| part >= 0.5)
        && usual.is_some_and(|usual| usual < usual_limit * DESCRIPTORS_SHARE_MIN)
}

pub(super) fn relay(input: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = Vec::new();
    for (name, server) in input.servers() {
        let part = |rate: ComparedRate| {
            let mean = |series: &Series| series.mean(input.bins(rate));
            let passed = mean(&server.bytes_in)? + mean(&server.bytes_out).unwrap_or(0.0);
            Some(mean(&server.relayed_bytes)? / Some(passed).filter(|bytes| *bytes > 0.0)?)
        };
        let usual = part(ComparedRate::Usual).unwrap_or(0.0);
        if part(ComparedRate::Low).is_some_and(|low| low > RELAYED_SHARE_MIN && low > usual * 2.0) {
            evidence.push(input.value_at(
                Measure::RelayedBytes,
                Some(&name.0),
                &server.relayed_bytes,
            ));
        }
    }
    evidence.truncate(3);
    (!evidence.is_empty()).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}
