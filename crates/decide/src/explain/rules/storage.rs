//! What pools, their servers and their disks do.

use super::super::answer::{Evidence, Measure};
use super::super::rule_input::{ComparedRate, RuleInput, StorageUnit};
use super::super::signals::{
    DataPathStage, DeviceSignals, FailureGroup, PoolSignals, Series, ServerSignals,
};
use super::super::stage::{seconds_per_byte, staged_bytes};
use super::host::undersized_host;
use super::network::competing_load;
use super::service::explained_by_failures;
use super::{Finding, LATENCY_RATIO_MIN, QUEUES, STORAGE, USE_SHARE_MIN};
use penstock_model::{Errno, LinkEnd, Side};

/// A disk that takes so many times longer for a byte is slow.
const DISK_SLOWDOWN_RATIO_MIN: f64 = 2.0;
/// Copies that wait for the source's disk longer than before, for this part of their time, are held up by it.
const READ_WAIT_SHARE_MIN: f64 = 0.3;
/// Errors of whoever finds nobody at an address: no way there, refused, the host is down.
const NOBODY_THERE: [Errno; 4] = [
    Errno::ENETUNREACH,
    Errno::ECONNREFUSED,
    Errno::EHOSTDOWN,
    Errno::EHOSTUNREACH,
];
/// An end is down when so much of the attempts find nobody there.
const NOBODY_SHARE_MIN: f64 = 0.5;
/// Servers that do the work of fewer than this part of those that could.
const WORKING_SERVERS_SHARE_MAX: f64 = 0.6;
/// Part of the time in which all tasks wait for disks: overload.
const IO_FULL_SHARE_MIN: f64 = 0.10;
/// Parts above which writes out of order and a difference of the books count.
const RANDOM_WRITES_SHARE_MIN: f64 = 0.3;
const ACCOUNTING_SHARE_MIN: f64 = 0.02;

const WRITES: &[DataPathStage] = &[DataPathStage::DestinationWrite, DataPathStage::Commit];
const DISKS: &[DataPathStage] = &[
    DataPathStage::DestinationWrite,
    DataPathStage::Commit,
    DataPathStage::SourceRead,
];

/// Full pools in the stretch, those that were not before, and all. A pool is full that has no room for a file beside what
/// must stay free.
fn full_pools(view: &RuleInput<'_>) -> (Vec<Evidence>, usize, usize) {
    let pools = view.pools();
    let file = view.usual_mean(&view.link.file_bytes);
    let file = file.or(view.low_mean(&view.link.file_bytes)).unwrap_or(0.0);
    let mut fresh = Vec::new();
    let mut full = 0;
    for (name, pool) in &pools {
        let is_full = |spans: &[std::ops::Range<usize>]| {
            let room = pool.reserve_bytes.mean(spans)? + file;
            // For most of the time: of a disk that was just filled a mean would still have room.
            let full = pool.free_bytes.part(spans, |free| free < room)?;
            Some(full >= 0.5)
        };
        if is_full(view.low_bins) == Some(true) {
            full += 1;
            if is_full(view.usual_bins) != Some(true) {
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
        |group: &FailureGroup| group.side == Side::Destination && group.errno == Errno::ENOSPC;
    let is_full = of > 0 && full == of && !evidence.is_empty();
    let explains = match is_full {
        true => 1.0,
        false => explained_by_failures(view, no_space)?,
    };
    evidence.extend(view.failures(no_space).into_iter().take(1));
    Some(Finding { explains, evidence })
}

/// Servers or pools as many as would carry the same evenly: 1 / Σ sᵢ².
fn servers_used(view: &RuleInput<'_>, end: LinkEnd, rate: ComparedRate) -> Option<(f64, usize)> {
    let bytes: Vec<f64> = (view.units(end).into_iter())
        .filter_map(|unit| unit.bytes.mean(view.bins(rate)))
        .collect();
    let all: f64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|bytes| (bytes / all).powi(2)).sum();
    (all > 0.0).then(|| (1.0 / squares, bytes.len()))
}

pub(super) fn server_skew(view: &RuleInput<'_>) -> Option<Finding> {
    let skew = |end: LinkEnd| {
        let (low, eligible) = servers_used(view, end, ComparedRate::Low)?;
        let usual = servers_used(view, end, ComparedRate::Usual).map(|(usual, _)| usual);
        let is_less = usual.is_none_or(|usual| low < usual * 0.8);
        let is_skewed =
            low <= WORKING_SERVERS_SHARE_MAX * eligible as f64 && eligible >= 2 && is_less;
        let place = view.ids(end).first().map(|id| id.as_str().to_owned());
        let evidence = Evidence::Value {
            measure: Measure::ServersUsed,
            place,
            before: usual,
            value: low,
        };
        is_skewed.then(|| Finding {
            explains: usual.map_or(1.0, |usual| view.explains_most(low / usual, QUEUES)),
            evidence: vec![evidence],
        })
    };
    skew(LinkEnd::Destination).or_else(|| skew(LinkEnd::Source))
}

pub(super) fn crash(view: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = Vec::new();
    let mut lost = 0.0;
    for end in [LinkEnd::Destination, LinkEnd::Source] {
        let units = view.units(end);
        let bytes = |unit: &StorageUnit<'_>| view.usual_mean(unit.bytes).unwrap_or(0.0);
        let all: f64 = units.iter().map(bytes).sum();
        for unit in units {
            // What ran when it was lost may go on for a while, so it may be down before the rate falls.
            let was_up = unit.up.part(view.usual_bins, |up| up > 0.9);
            let was_up = was_up.is_none_or(|part| part > 0.5);
            if was_up && view.low_mean(unit.up).is_some_and(|up| up < 0.5) {
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
        let is_end = matches!(group.side, Side::Source | Side::Destination);
        is_end && NOBODY_THERE.contains(&group.errno)
    };
    let (usual, low) = view.failed_part(nobody);
    let low = low.filter(|low| *low >= NOBODY_SHARE_MIN)?;
    // The first of these failures may lie in the interval before the drop.
    if usual.is_some_and(|usual| low < usual * 2.0) {
        return None;
    }
    Finding::whole(view.failures(nobody).into_iter().take(2).collect())
}

pub(super) fn batch_delay(view: &RuleInput<'_>) -> Option<Finding> {
    let (id, storage) = view.storages().find(|(_, storage)| {
        // A wait that is short beside the copy holds nothing up.
        let copy = view.copy_seconds();
        let is_long = view
            .low_mean(&storage.batch_seconds)
            .is_some_and(|wait| copy.is_none_or(|copy| wait > copy * 0.2));
        is_long
            && view.rose(&storage.batch_seconds, LATENCY_RATIO_MIN)
            && !super::tape::has_all_drives_busy(view, &storage.tape)
    })?;
    Finding::whole(vec![view.value_at(
        Measure::BatchWait,
        Some(id.as_str()),
        &storage.batch_seconds,
    )])
}

pub(super) fn random_writes(view: &RuleInput<'_>) -> Option<Finding> {
    let (name, server) = view.servers().find(|(_, server)| {
        view.low_mean(&server.random_writes)
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
        view.low_mean(series).is_some_and(|now| now > least) && view.rose(series, 2.0)
    };
    busy(&device.path_switches, 0.5) || busy(&device.other_path_bytes, 0.0)
}

pub(super) fn multipath(view: &RuleInput<'_>) -> Option<Finding> {
    let (name, device) = device(view, |_, device| switches(view, device))?;
    let paths = [
        (Measure::DevicePaths, &device.path_switches),
        (Measure::OtherPathBytes, &device.other_path_bytes),
    ];
    let grown = paths.into_iter().filter(|(_, series)| {
        view.low_mean(series).is_some_and(|now| now > 0.0) && view.rose(series, 2.0)
    });
    let mut evidence: Vec<Evidence> = grown
        .map(|(measure, series)| view.value_at(measure, Some(&name), series))
        .collect();
    evidence.push(view.value_at(Measure::DeviceBytes, Some(&name), &device.bytes));
    view.may_be(DISKS).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

pub(super) fn disk_controller(view: &RuleInput<'_>) -> Option<Finding> {
    let found = full_array(view).or_else(|| slow_disk(view));
    found.or_else(|| slow_reads(view))
}

/// Where nobody tells of disk arrays: the copies' slowest stage is one at a disk that takes much longer for a byte than
/// before, and no other link puts load on it.
fn slow_disk(view: &RuleInput<'_>) -> Option<Finding> {
    let stage = view.stage.filter(|stage| DISKS.contains(stage))?;
    let end = match stage {
        DataPathStage::SourceRead => LinkEnd::Source,
        DataPathStage::Network
        | DataPathStage::Checksum
        | DataPathStage::DestinationWrite
        | DataPathStage::Commit => LinkEnd::Destination,
    };
    if are_known(view, end) {
        return None;
    }
    let busy = &view.link.stages.get(&stage)?.busy;
    let bytes = staged_bytes(view.link);
    let (_, usual) = seconds_per_byte(busy, &bytes, view.usual_bins)?;
    let (_, low) = seconds_per_byte(busy, &bytes, view.low_bins)?;
    let is_slow = low > usual * DISK_SLOWDOWN_RATIO_MIN;
    (is_slow && competing_load(view).is_none()).then(|| Finding {
        explains: 1.0,
        evidence: vec![Evidence::Bottleneck { stage }],
    })
}

/// The part of the copies' time in which movers of a pool wait for its disk to read, and these seconds for each byte. A pool
/// tells of all that is read there, so that of the copies is their part of the bytes.
fn read_wait(
    view: &RuleInput<'_>,
    pool: &PoolSignals,
    spans: &[std::ops::Range<usize>],
) -> Option<(f64, f64)> {
    let pools = view.pools_of(LinkEnd::Source);
    let read = |pool: &PoolSignals| pool.bytes_out.sum(spans);
    let all: f64 = pools.iter().filter_map(|(_, pool)| read(pool)).sum();
    let copied = view.link.moved_bytes().sum(spans)?;
    let slot_seconds = view.link.active.sum(spans)? * f64::from(view.signals.bin_seconds);
    let (waited, bytes) = (pool.read_wait_seconds.sum(spans)?, read(pool)?);
    let is_used = bytes > 0.0 && slot_seconds > 0.0;
    is_used.then(|| {
        (
            waited * (copied / all).min(1.0) / slot_seconds,
            waited / bytes,
        )
    })
}

/// Pools of the source that make copies wait for their disks, much longer for a byte than before. Whoever fetches the files
/// sees a slow network.
fn slow_reads(view: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = Vec::new();
    let mut longer = 0.0;
    for (name, pool) in view.pools_of(LinkEnd::Source) {
        let (Some((before, usual)), Some((value, seconds))) = (
            read_wait(view, pool, view.usual_bins),
            read_wait(view, pool, view.low_bins),
        ) else {
            continue;
        };
        if seconds > usual * DISK_SLOWDOWN_RATIO_MIN {
            longer += value * (1.0 - usual / seconds);
            evidence.push(Evidence::Value {
                measure: Measure::ReadWait,
                place: Some(name.to_string()),
                before: Some(before),
                value,
            });
        }
    }
    // Without memory for what was read before, more is read again.
    let is_short_of_memory = |one: &Evidence| {
        let measure = Measure::MemoryPressure;
        matches!(one, Evidence::Value { measure: of, .. } if *of == measure)
    };
    let lacks_memory =
        undersized_host(view).is_some_and(|found| found.evidence.iter().any(is_short_of_memory));
    if longer < READ_WAIT_SHARE_MIN || lacks_memory || competing_load(view).is_some() {
        return None;
    }
    evidence.truncate(3);
    Finding::whole(evidence)
}

/// Whether somebody tells of all disk arrays of an end.
fn are_known(view: &RuleInput<'_>, end: LinkEnd) -> bool {
    let servers = view.disk_servers(end).into_iter();
    let mut devices = servers
        .flat_map(|(_, server)| server.devices.values())
        .map(|device| view.low_mean(&device.utilisation).is_some())
        .peekable();
    devices.peek().is_some() && devices.all(|is_known| is_known)
}

fn full_array(view: &RuleInput<'_>) -> Option<Finding> {
    let (name, device) = device(view, |server, device| {
        let is_full = view
            .low_mean(&device.utilisation)
            .is_some_and(|part| part > USE_SHARE_MIN);
        let burst = view.rose(&server.in_flight, 2.0) && !view.usual_bins.is_empty();
        is_full && view.fell(&device.bytes, 0.7) && !switches(view, device) && !burst
    })?;
    let mut evidence = vec![
        view.value_at(Measure::DeviceUse, Some(&name), &device.utilisation),
        view.value_at(Measure::DeviceBytes, Some(&name), &device.bytes),
    ];
    evidence.extend(view.fact_changes(&["disk ", "pool "]).take(1));
    view.may_be(DISKS).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

pub(super) fn start_burst(view: &RuleInput<'_>) -> Option<Finding> {
    let (name, server) = view.servers().find(|(_, server)| {
        let begin = view.low_bins.first().map_or(0, |span| span.start);
        let around = begin.saturating_sub(5)..begin + 5;
        let starts = server.starts.max(std::slice::from_ref(&around));
        let usual = view.usual_mean(&server.starts);
        let is_burst = starts
            .zip(usual)
            .is_some_and(|(most, usual)| most > usual.max(0.5) * 3.0);
        let is_stalled = view
            .low_mean(&server.io_full)
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
    let (id, difference) = view.storages().find_map(|(id, storage)| {
        let used = view.low_mean(&storage.used_bytes)?;
        let catalogue = view.low_mean(&storage.catalogue_bytes)?;
        let difference = (used - catalogue).abs();
        (difference > used.max(catalogue) * ACCOUNTING_SHARE_MIN).then_some((id, difference))
    })?;
    Finding::whole(vec![Evidence::Value {
        measure: Measure::AccountingDifference,
        place: Some(id.as_str().to_owned()),
        before: None,
        value: difference,
    }])
}
