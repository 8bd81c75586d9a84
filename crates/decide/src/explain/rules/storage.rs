//! What servers, pools, disks and databases do.

use super::super::answer::{Evidence, Measure};
use super::super::rule_input::{RuleInput, StorageUnit};
use super::super::signals::{
    DataPathStage, DeviceSignals, FailureGroup, FailureSide, Series, ServerKind, ServerSignals,
    Setting,
};
use super::super::split::Factor;
use super::network::competing_load;
use super::{Finding, QUEUES, STORAGE};

/// A mover that moves nothing for so long is stalled, or for so many times its usual silence.
const SILENCE_SECONDS_MIN: f64 = 600.0;
const SILENCE_RATIO_MIN: f64 = 20.0;
/// A disk that takes so many times longer for a byte is slow.
const DISK_SLOWDOWN_RATIO_MIN: f64 = 2.0;
/// When all movers move nothing for so long, they are stalled.
const STANDSTILL_SECONDS_MIN: usize = 5;
/// In so much of a drop: what was under way when it began still arrives.
const STILL_SHARE_MIN: f64 = 0.6;
/// Errors of whoever finds nobody at an address: no way there, refused, the host is down.
const NOBODY_THERE: [i32; 4] = [101, 111, 112, 113];
/// An end is down when so much of the attempts find nobody there.
const NOBODY_SHARE_MIN: f64 = 0.5;
/// Servers that do the work of fewer than this part of those that could.
const WORKING_SERVERS_SHARE_MAX: f64 = 0.6;
/// Operations are slow in this part of the stretch at least.
const SLOW_SHARE_MIN: f64 = 0.25;
/// A latency of so many times the usual one is an overload.
const LATENCY_RATIO_MIN: f64 = 3.0;
/// Part of the time in which some task waits for disks: overload; in which all do; and for memory.
const IO_SOME_SHARE_MIN: f64 = 0.20;
const IO_FULL_SHARE_MIN: f64 = 0.10;
const MEMORY_FULL_SHARE_MIN: f64 = 0.01;
/// Processors, interfaces, disks and threads are full from here on.
const USE_SHARE_MIN: f64 = 0.95;
/// Parts above which relayed bytes, writes out of order, open descriptors and a difference of the books count.
const RELAYED_SHARE_MIN: f64 = 0.1;
const RANDOM_WRITES_SHARE_MIN: f64 = 0.3;
const DESCRIPTORS_SHARE_MIN: f64 = 0.9;
const ACCOUNTING_SHARE_MIN: f64 = 0.02;
const ENOSPC: i32 = 28;

const WRITES: &[DataPathStage] = &[DataPathStage::DestinationWrite, DataPathStage::Commit];
const DISKS: &[DataPathStage] = &[
    DataPathStage::DestinationWrite,
    DataPathStage::Commit,
    DataPathStage::SourceRead,
];

pub(super) fn stalled_mover(view: &RuleInput<'_>) -> Option<Finding> {
    let mut stalled = 0.0;
    let mut evidence = Vec::new();
    let pools = view.pools();
    let of_pools = pools.iter().map(|(name, pool)| {
        let (stalled, age) = (&pool.movers_stalled, &pool.progress_age_seconds);
        (Some(name.as_str()), stalled, age)
    });
    let tells = |series: &Series| series.max(view.during).is_some();
    let mut seen: Vec<(Option<&str>, &Series, &Series)> = of_pools
        .filter(|(_, stalled, age)| tells(stalled) || tells(age))
        .collect();
    if seen.is_empty() {
        // Where no storage element tells of its movers, the transfer service tells what it saw of them.
        seen.push((None, &view.link.stalled, &view.link.progress_age_seconds));
    }
    for (place, stalled_movers, progress_age) in seen {
        let count = view.now(stalled_movers);
        let age = progress_age.max(view.during);
        let usual = view.earlier(progress_age).unwrap_or(0.0);
        let is_silent =
            age.is_some_and(|age| age > SILENCE_SECONDS_MIN.max(usual * SILENCE_RATIO_MIN));
        if !is_silent && count.is_none_or(|count| count < 0.5) {
            continue;
        }
        let holds = count.unwrap_or(1.0) - view.earlier(stalled_movers).unwrap_or(0.0);
        stalled += holds.max(0.0);
        let (measure, series) = match is_silent {
            true => (Measure::MoverProgress, progress_age),
            false => (Measure::StalledMovers, stalled_movers),
        };
        evidence.push(view.value_at(measure, place, series));
    }
    if evidence.is_empty() {
        return standstill(view);
    }
    evidence.truncate(3);
    // Slots that move nothing lower the mean rate of all that run.
    let explains = view
        .low
        .active
        .filter(|active| *active > 0.0)
        .map_or(1.0, |active| {
            view.explains(1.0 - (stalled / active).min(1.0), Factor::StageRate)
        });
    Some(Finding { explains, evidence })
}

/// All that run move nothing and do not fail.
fn standstill(view: &RuleInput<'_>) -> Option<Finding> {
    let link = view.link;
    let seconds: usize = view
        .during
        .iter()
        .map(ExactSizeIterator::len)
        .sum::<usize>()
        * view.signals.bin_seconds as usize;
    let still = link.moved_bytes().part(view.during, |bytes| bytes <= 0.0)?;
    let runs = link.active.min(view.during)? >= 0.5;
    // Each may have been given up once for its silence; more failures are a cause of their own.
    let failed = link.failed_attempts().sum(view.during).unwrap_or(0.0);
    let fails = failed > view.now(&link.active)?;
    let holds = seconds >= STANDSTILL_SECONDS_MIN && runs && still >= STILL_SHARE_MIN && !fails;
    let evidence = vec![
        view.value(Measure::Active, &link.active),
        view.value(Measure::MovedBytes, &link.copied_bytes),
    ];
    holds.then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

/// Full pools in the stretch, those that were not before, and all. A pool is full that has no room for a file beside what
/// must stay free.
fn full_pools(view: &RuleInput<'_>) -> (Vec<Evidence>, usize, usize) {
    let pools = view.pools();
    let file = view.earlier(&view.link.file_bytes);
    let file = file.or(view.now(&view.link.file_bytes)).unwrap_or(0.0);
    let mut fresh = Vec::new();
    let mut full = 0;
    for (name, pool) in &pools {
        let is_full = |spans: &[std::ops::Range<usize>]| {
            Some(pool.free_bytes.mean(spans)? < pool.reserve_bytes.mean(spans)? + file)
        };
        if is_full(view.during) == Some(true) {
            full += 1;
            if is_full(view.before) != Some(true) {
                fresh.push(view.value_at(Measure::PoolFree, Some(name.as_str()), &pool.free_bytes));
            }
        }
    }
    fresh.truncate(3);
    (fresh, full, pools.len())
}

pub(super) fn pool_full(view: &RuleInput<'_>) -> Option<Finding> {
    let (evidence, full, of) = full_pools(view);
    if evidence.is_empty() || full == of {
        return None;
    }
    let explains = view.explains_most(1.0 - full as f64 / of as f64, STORAGE);
    Some(Finding {
        explains: explains.max(0.2),
        evidence,
    })
}

pub(super) fn out_of_space(view: &RuleInput<'_>) -> Option<Finding> {
    let (mut evidence, full, of) = full_pools(view);
    let no_space =
        |group: &FailureGroup| group.side == FailureSide::Destination && group.errno == ENOSPC;
    let (before, now) = view.failed_part(no_space);
    let refuses = now.is_some_and(|now| now > 0.03 && now > before.unwrap_or(0.0) * 3.0);
    let is_full = of > 0 && full == of && !evidence.is_empty();
    if !is_full && !refuses {
        return None;
    }
    evidence.extend(failures(view, &no_space).take(1));
    Finding::whole(evidence)
}

/// Failures of these kinds in the stretch.
fn failures<'a>(
    view: &'a RuleInput<'_>,
    test: &'a dyn Fn(&FailureGroup) -> bool,
) -> impl Iterator<Item = Evidence> + 'a {
    let kinds = view.link.failures.iter();
    let told = kinds.filter(|(group, _)| test(group));
    told.filter_map(|(group, attempts)| {
        let attempts = attempts.sum(view.during)?.round() as u64;
        (attempts > 0).then(|| Evidence::Failures {
            fingerprint: group.fingerprint.clone(),
            attempts,
        })
    })
}

/// Servers or pools as many as would carry the same evenly: 1 / Σ sᵢ².
fn servers_used(view: &RuleInput<'_>, side: FailureSide, now: bool) -> Option<(f64, usize)> {
    let spans = if now { view.during } else { view.before };
    let bytes: Vec<f64> = (view.units(side).into_iter())
        .filter_map(|unit| unit.bytes.mean(spans))
        .collect();
    let all: f64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|bytes| (bytes / all).powi(2)).sum();
    (all > 0.0).then(|| (1.0 / squares, bytes.len()))
}

pub(super) fn server_skew(view: &RuleInput<'_>) -> Option<Finding> {
    let skew = |side: FailureSide| {
        let (now, eligible) = servers_used(view, side, true)?;
        let before = servers_used(view, side, false).map(|(before, _)| before);
        let is_less = before.is_none_or(|before| now < before * 0.8);
        let is_skewed =
            now <= WORKING_SERVERS_SHARE_MAX * eligible as f64 && eligible >= 2 && is_less;
        let place = view.ids(side).first().map(|id| id.as_str().to_owned());
        let evidence = Evidence::Value {
            measure: Measure::ServersUsed,
            place,
            before,
            value: now,
        };
        is_skewed.then(|| Finding {
            explains: before.map_or(1.0, |before| view.explains_most(now / before, QUEUES)),
            evidence: vec![evidence],
        })
    };
    skew(FailureSide::Destination).or_else(|| skew(FailureSide::Source))
}

pub(super) fn crash(view: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = Vec::new();
    let mut lost = 0.0;
    for side in [FailureSide::Destination, FailureSide::Source] {
        let units = view.units(side);
        let bytes = |unit: &StorageUnit<'_>| view.earlier(unit.bytes).unwrap_or(0.0);
        let all: f64 = units.iter().map(bytes).sum();
        for unit in units {
            let was_up = view.earlier(unit.up).is_none_or(|up| up > 0.9);
            if was_up && view.now(unit.up).is_some_and(|up| up < 0.5) {
                evidence.push(view.value_at(Measure::ServerUp, Some(unit.name), unit.up));
                lost += if all > 0.0 { bytes(&unit) / all } else { 1.0 };
            }
        }
    }
    if evidence.is_empty() {
        return unreachable(view);
    }
    let explains = view.explains_most(1.0 - lost.min(1.0), STORAGE);
    Some(Finding {
        explains: explains.max(0.2),
        evidence,
    })
}

/// Most attempts find nobody at an address of an end.
fn unreachable(view: &RuleInput<'_>) -> Option<Finding> {
    let nobody = |group: &FailureGroup| {
        let is_end = matches!(group.side, FailureSide::Source | FailureSide::Destination);
        is_end && NOBODY_THERE.contains(&group.errno)
    };
    let (before, now) = view.failed_part(nobody);
    let now = now.filter(|now| *now >= NOBODY_SHARE_MIN)?;
    // The first of these failures may lie in the interval before the drop.
    if before.is_some_and(|before| now < before * 2.0) {
        return None;
    }
    Finding::whole(failures(view, &nobody).take(2).collect())
}

pub(super) fn database_load(view: &RuleInput<'_>) -> Option<Finding> {
    let service = &view.signals.service;
    let mut evidence = Vec::new();
    for series in [&service.database_seconds, &service.journal_seconds] {
        if view.rose(series, LATENCY_RATIO_MIN) && !view.before.is_empty() {
            evidence.push(view.value(Measure::DatabaseLatency, series));
        }
    }
    for (id, storage) in view.storages() {
        let pressed = view.servers().any(|(_, server)| {
            server.role == ServerKind::Head
                && view
                    .now(&server.io_some)
                    .is_some_and(|part| part > IO_SOME_SHARE_MIN)
        });
        let full = |busy: Option<f64>, cap: Option<f64>| {
            busy.zip(cap)
                .is_some_and(|(busy, cap)| busy >= cap * USE_SHARE_MIN)
        };
        // With all threads busy an operation takes longer because it waits for one.
        let queue = full(
            view.now(&storage.namespace_busy),
            view.now(&storage.namespace_cap),
        ) && !pressed;
        if view.rose(&storage.namespace_seconds, LATENCY_RATIO_MIN)
            && view.high_share(&storage.namespace_seconds, LATENCY_RATIO_MIN) >= SLOW_SHARE_MIN
            && !view.before.is_empty()
            && !queue
        {
            evidence.push(view.value_at(
                Measure::NamespaceLatency,
                Some(id.as_str()),
                &storage.namespace_seconds,
            ));
        }
    }
    if evidence.is_empty() {
        return None;
    }
    for (name, server) in view
        .servers()
        .filter(|(_, server)| server.role == ServerKind::Head)
    {
        if view
            .now(&server.io_some)
            .is_some_and(|part| part > IO_SOME_SHARE_MIN)
        {
            evidence.push(view.value_at(Measure::IoPressure, Some(&name.0), &server.io_some));
        }
    }
    let (from, to) = (view.during.first()?.start, view.during.last()?.end);
    let (from, to) = (view.signals.begin_of(from), view.signals.begin_of(to));
    let works = view
        .signals
        .maintenance
        .iter()
        .filter(|work| work.from < to && work.to > from);
    evidence.extend(works.take(1).cloned().map(Evidence::Maintenance));
    evidence.extend(
        view.period_seconds
            .map(|period_seconds| Evidence::Recurrence { period_seconds }),
    );
    Finding::whole(evidence)
}

pub(super) fn undersized_host(view: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = Vec::new();
    for (name, server) in view.servers() {
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
            if view.now(series).is_some_and(|part| part > bound) && view.rose(series, 1.1) {
                evidence.push(view.value_at(measure, Some(&name.0), series));
            }
        }
    }
    evidence.truncate(3);
    (!evidence.is_empty()).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

pub(super) fn namespace_threads(view: &RuleInput<'_>) -> Option<Finding> {
    let full = view.storages().find(|(_, storage)| {
        let busy = view
            .now(&storage.namespace_busy)
            .zip(view.now(&storage.namespace_cap));
        busy.is_some_and(|(busy, cap)| busy >= cap * USE_SHARE_MIN)
            && view
                .now(&storage.namespace_queued)
                .is_some_and(|queued| queued > 0.5)
            && view.rose(&storage.namespace_queued, 1.5)
    })?;
    let (id, storage) = (full.0.as_str(), full.1);
    Finding::whole(vec![
        view.value_at(Measure::NamespaceThreads, Some(id), &storage.namespace_busy),
        view.value_at(Measure::NamespaceQueue, Some(id), &storage.namespace_queued),
    ])
}

pub(super) fn batch_delay(view: &RuleInput<'_>) -> Option<Finding> {
    let (id, storage) = view.storages().find(|(_, storage)| {
        // A wait that is short beside the copy holds nothing up.
        let copy = view
            .link
            .active
            .mean(view.during)
            .zip(view.link.finished_files.mean(view.during));
        let copy = copy
            .filter(|(_, files)| *files > 0.0)
            .map(|(active, files)| active * f64::from(view.signals.bin_seconds) / files);
        let is_long = view
            .now(&storage.batch_seconds)
            .is_some_and(|wait| copy.is_none_or(|copy| wait > copy * 0.2));
        is_long && view.rose(&storage.batch_seconds, LATENCY_RATIO_MIN)
    })?;
    Finding::whole(vec![view.value_at(
        Measure::BatchWait,
        Some(id.as_str()),
        &storage.batch_seconds,
    )])
}

pub(super) fn descriptor_leak(view: &RuleInput<'_>) -> Option<Finding> {
    let (name, server) = view.servers().find(|(_, server)| {
        let limit = view.now(&server.descriptors_limit);
        let is_full = server
            .descriptors
            .max(view.during)
            .zip(limit)
            .is_some_and(|(open, limit)| open >= limit * DESCRIPTORS_SHARE_MIN);
        // A leak grows all the time; a burst of connections comes and goes.
        let all: Vec<f64> = (0..view.signals.bins)
            .filter_map(|bin| server.descriptors.at(bin))
            .collect();
        let steps = all.windows(2).filter(|pair| pair[1] >= pair[0]).count();
        is_full && all.len() > 4 && steps as f64 >= (all.len() - 1) as f64 * 0.9
    })?;
    Finding::whole(vec![view.value_at(
        Measure::Descriptors,
        Some(&name.0),
        &server.descriptors,
    )])
}

pub(super) fn relay(view: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = Vec::new();
    for (name, server) in view.servers() {
        let part = |now: bool| {
            let mean = |series| {
                if now {
                    view.now(series)
                } else {
                    view.earlier(series)
                }
            };
            Some(
                mean(&server.relayed_bytes)?
                    / mean(&server.bytes_in).filter(|bytes| *bytes > 0.0)?,
            )
        };
        if part(true)
            .is_some_and(|now| now > RELAYED_SHARE_MIN && now > part(false).unwrap_or(0.0) * 2.0)
        {
            evidence.push(view.value_at(
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

pub(super) fn random_writes(view: &RuleInput<'_>) -> Option<Finding> {
    let (name, server) = view.servers().find(|(_, server)| {
        view.now(&server.random_writes)
            .is_some_and(|part| part > RANDOM_WRITES_SHARE_MIN)
            && view.rose(&server.random_writes, 2.0)
    })?;
    view.may_be(WRITES).then(|| Finding {
        explains: 1.0,
        evidence: vec![view.value_at(Measure::RandomWrites, Some(&name.0), &server.random_writes)],
    })
}

/// The device of a server at either end for which a test holds.
fn device<'a>(
    view: &'a RuleInput<'_>,
    test: impl Fn(&ServerSignals, &DeviceSignals) -> bool,
) -> Option<(String, &'a DeviceSignals)> {
    view.servers().find_map(|(name, server)| {
        let device = server
            .devices
            .iter()
            .find(|(_, device)| test(server, device))?;
        Some(([name.0.as_str(), device.0.as_str()].join(" "), device.1))
    })
}

fn switches(view: &RuleInput<'_>, device: &DeviceSignals) -> bool {
    let busy = |series: &Series, least: f64| {
        view.now(series).is_some_and(|now| now > least) && view.rose(series, 2.0)
    };
    busy(&device.path_switches, 0.5) || busy(&device.other_path_bytes, 0.0)
}

pub(super) fn multipath(view: &RuleInput<'_>) -> Option<Finding> {
    let (name, device) = device(view, |_, device| switches(view, device))?;
    let series = match view.now(&device.path_switches).is_some_and(|now| now > 0.5) {
        true => &device.path_switches,
        false => &device.other_path_bytes,
    };
    let evidence = vec![
        view.value_at(Measure::DevicePaths, Some(&name), series),
        view.value_at(Measure::DeviceBytes, Some(&name), &device.bytes),
    ];
    view.may_be(DISKS).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

pub(super) fn disk_controller(view: &RuleInput<'_>) -> Option<Finding> {
    match view.is_known(Measure::DeviceUse) {
        true => full_array(view),
        false => slow_disk(view),
    }
}

/// Where nobody tells of disk arrays: the copies' slowest stage is one at a disk that takes much longer for a byte than
/// before, and no other link puts load on it.
fn slow_disk(view: &RuleInput<'_>) -> Option<Finding> {
    let stage = view.stage.filter(|stage| DISKS.contains(stage))?;
    let bytes = view.link.moved_bytes();
    let seconds_per_byte = |spans: &[std::ops::Range<usize>]| {
        let busy = view.link.stages.get(&stage)?.busy.sum(spans)?;
        let bytes = bytes.sum(spans).filter(|bytes| *bytes > 0.0)?;
        Some(busy / bytes)
    };
    let (before, now) = (
        seconds_per_byte(view.before)?,
        seconds_per_byte(view.during)?,
    );
    let is_slow = now > before * DISK_SLOWDOWN_RATIO_MIN;
    (is_slow && competing_load(view).is_none()).then(|| Finding {
        explains: 1.0,
        evidence: vec![Evidence::Bottleneck { stage }],
    })
}

fn full_array(view: &RuleInput<'_>) -> Option<Finding> {
    let (name, device) = device(view, |server, device| {
        let is_full = view
            .now(&device.utilisation)
            .is_some_and(|part| part > USE_SHARE_MIN);
        let burst = view.rose(&server.in_flight, 2.0) && !view.before.is_empty();
        is_full && view.fell(&device.bytes, 0.7) && !switches(view, device) && !burst
    })?;
    let mut evidence = vec![
        view.value_at(Measure::DeviceUse, Some(&name), &device.utilisation),
        view.value_at(Measure::DeviceBytes, Some(&name), &device.bytes),
    ];
    evidence.extend(
        view.changes(&[Setting::Fact])
            .take(1)
            .cloned()
            .map(Evidence::Change),
    );
    view.may_be(DISKS).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

pub(super) fn start_burst(view: &RuleInput<'_>) -> Option<Finding> {
    let (name, server) = view.servers().find(|(_, server)| {
        let begin = view.during.first().map_or(0, |span| span.start);
        let around = begin.saturating_sub(5)..begin + 5;
        let starts = server.starts.max(std::slice::from_ref(&around));
        let usual = view.earlier(&server.starts);
        let is_burst = starts
            .zip(usual)
            .is_some_and(|(most, usual)| most > usual.max(0.5) * 3.0);
        let is_stalled = view
            .now(&server.io_full)
            .is_some_and(|part| part > IO_FULL_SHARE_MIN)
            && view.rose(&server.io_full, 2.0);
        is_burst && is_stalled && view.rose(&server.in_flight, 1.5)
    })?;
    Finding::whole(vec![
        view.value_at(Measure::ServerStarts, Some(&name.0), &server.starts),
        view.value_at(Measure::ServerTransfers, Some(&name.0), &server.in_flight),
        view.value_at(Measure::IoStall, Some(&name.0), &server.io_full),
    ])
}

pub(super) fn accounting(view: &RuleInput<'_>) -> Option<Finding> {
    let (id, storage) = view.storages().find(|(_, storage)| {
        let both = view
            .now(&storage.used_bytes)
            .zip(view.now(&storage.catalogue_bytes));
        both.is_some_and(|(used, catalogue)| {
            (used - catalogue).abs() > used.max(catalogue) * ACCOUNTING_SHARE_MIN
        })
    })?;
    Finding::whole(vec![Evidence::Value {
        measure: Measure::AccountingDifference,
        place: Some(id.as_str().to_owned()),
        before: view.now(&storage.catalogue_bytes),
        value: view.now(&storage.used_bytes)?,
    }])
}
