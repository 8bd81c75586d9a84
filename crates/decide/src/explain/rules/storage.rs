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
fn full_pools(input: &RuleInput<'_>) -> (Vec<Evidence>, usize, usize) {
    let pools = input.pools();
    let file = input.usual_mean(&input.link.file_bytes);
    let file = file
        .or(input.low_mean(&input.link.file_bytes))
        .unwrap_or(0.0);
    let mut fresh = Vec::new();
    let mut full = 0;
    for (name, pool) in &pools {
        let is_full = |spans: &[std::ops::Range<usize>]| {
            let room = pool.reserve_bytes.mean(spans)? + file;
            // For most of the time: of a disk that was just filled a mean would still have room.
            let full = pool.free_bytes.part(spans, |free| free < room)?;
            Some(full >= 0.5)
        };
        if is_full(input.low_bins) == Some(true) {
            full += 1;
            if is_full(input.usual_bins) != Some(true) {
                fresh.push(input.value_at(
                    Measure::PoolFree,
                    Some(name.as_str()),
                    &pool.free_bytes,
                ));
            }
        }
    }
    fresh.truncate(3);
    (fresh, full, pools.len())
}

pub(super) fn pool_full(input: &RuleInput<'_>) -> Option<Finding> {
    let (evidence, full, of) = full_pools(input);
    if evidence.is_empty() || full == of {
        return None;
    }
    let explains = input.explains_most(1.0 - full as f64 / of as f64, STORAGE);
    Some(Finding {
        explains: explains.max(0.2),
        evidence,
    })
}

pub(super) fn out_of_space(input: &RuleInput<'_>) -> Option<Finding> {
    let (mut evidence, full, of) = full_pools(input);
    let no_space =
        |group: &FailureGroup| group.side == Side::Destination && group.errno == Errno::ENOSPC;
    let is_full = of > 0 && full == of && !evidence.is_empty();
    let explains = match is_full {
        true => 1.0,
        false => explained_by_failures(input, no_space)?,
    };
    evidence.extend(input.failures(no_space).into_iter().take(1));
    Some(Finding { explains, evidence })
}

/// Servers or pools as many as would carry the same evenly: 1 / Σ sᵢ².
fn servers_used(input: &RuleInput<'_>, end: LinkEnd, rate: ComparedRate) -> Option<(f64, usize)> {
    let bytes: Vec<f64> = (input.units(end).into_iter())
        .filter_map(|unit| unit.bytes.mean(input.bins(rate)))
        .collect();
    let all: f64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|bytes| (bytes / all).powi(2)).sum();
    (all > 0.0).then(|| (1.0 / squares, bytes.len()))
}

pub(super) fn server_skew(input: &RuleInput<'_>) -> Option<Finding> {
    let skew = |end: LinkEnd| {
        let (low, eligible) = servers_used(input, end, ComparedRate::Low)?;
        let usual = servers_used(input, end, ComparedRate::Usual).map(|(usual, _)| usual);
        let is_less = usual.is_none_or(|usual| low < usual * 0.8);
        let is_skewed =
            low <= WORKING_SERVERS_SHARE_MAX * eligible as f64 && eligible >= 2 && is_less;
        let place = input.ids(end).first().map(|id| id.as_str().to_owned());
        let evidence = Evidence::Value {
            measure: Measure::ServersUsed,
            place,
            usual,
            value: low,
        };
        is_skewed.then(|| Finding {
            explains: usual.map_or(1.0, |usual| input.explains_most(low / usual, QUEUES)),
            evidence: vec![evidence],
        })
    };
    skew(LinkEnd::Destination).or_else(|| skew(LinkEnd::Source))
}

pub(super) fn crash(input: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = Vec::new();
    let mut lost = 0.0;
    for end in [LinkEnd::Destination, LinkEnd::Source] {
        let units = input.units(end);
        let bytes = |unit: &StorageUnit<'_>| input.usual_mean(unit.bytes).unwrap_or(0.0);
        let all: f64 = units.iter().map(bytes).sum();
        for unit in units {
            // What ran when it was lost may go on for a while, so it may be down before the rate falls.
            let was_up = unit.up.part(input.usual_bins, |up| up > 0.9);
            let was_up = was_up.is_none_or(|part| part > 0.5);
            if was_up && input.low_mean(unit.up).is_some_and(|up| up < 0.5) {
                evidence.push(input.value_at(Measure::ServerUp, Some(unit.name), unit.up));
                lost += if all > 0.0 { bytes(&unit) / all } else { 1.0 };
            }
        }
    }
    if evidence.is_empty() {
        return unreachable(input);
    }
    let explains = input.explains_most(1.0 - lost.min(1.0), STORAGE);
    Some(Finding {
        explains: explains.max(0.2),
        evidence,
    })
}

/// Most attempts find nobody at an address of an end.
fn unreachable(input: &RuleInput<'_>) -> Option<Finding> {
    let nobody = |group: &FailureGroup| {
        let is_end = matches!(group.side, Side::Source | Side::Destination);
        is_end && NOBODY_THERE.contains(&group.errno)
    };
    let (usual, low) = input.failed_part(nobody);
    let low = low.filter(|low| *low >= NOBODY_SHARE_MIN)?;
    // The first of these failures may lie in the interval before the drop.
    if usual.is_some_and(|usual| low < usual * 2.0) {
        return None;
    }
    Finding::whole(input.failures(nobody).into_iter().take(2).collect())
}

pub(super) fn batch_delay(input: &RuleInput<'_>) -> Option<Finding> {
    let (id, storage) = input.storages().find(|(_, storage)| {
        // A wait that is short beside the copy holds nothing up.
        let copy = input.copy_seconds();
        let is_long = input
            .low_mean(&storage.batch_seconds)
            .is_some_and(|wait| copy.is_none_or(|copy| wait > copy * 0.2));
        is_long
            && input.rose(&storage.batch_seconds, LATENCY_RATIO_MIN)
            && !super::tape::has_all_drives_busy(input, &storage.tape)
    })?;
    Finding::whole(vec![input.value_at(
        Measure::BatchWait,
        Some(id.as_str()),
        &storage.batch_seconds,
    )])
}

pub(super) fn random_writes(input: &RuleInput<'_>) -> Option<Finding> {
    let (name, server) = input.servers().find(|(_, server)| {
        input
            .low_mean(&server.random_writes)
            .is_some_and(|part| part > RANDOM_WRITES_SHARE_MIN)
            && input.rose(&server.random_writes, 2.0)
    })?;
    input.may_be(WRITES).then(|| Finding {
        explains: 1.0,
        evidence: vec![input.value_at(Measure::RandomWrites, Some(&name.0), &server.random_writes)],
    })
}

/// The device of a server at either end for which a test holds.
fn device<'a>(
    input: &'a RuleInput<'_>,
    test: impl Fn(&ServerSignals, &DeviceSignals) -> bool,
) -> Option<(String, &'a DeviceSignals)> {
    input.servers().find_map(|(name, server)| {
        let device = server
            .devices
            .iter()
            .find(|(_, device)| test(server, device))?;
        Some(([name.0.as_str(), device.0.as_str()].join(" "), device.1))
    })
}

fn switches(input: &RuleInput<'_>, device: &DeviceSignals) -> bool {
    let busy = |series: &Series, least: f64| {
        input.low_mean(series).is_some_and(|now| now > least) && input.rose(series, 2.0)
    };
    busy(&device.path_switches, 0.5) || busy(&device.other_path_bytes, 0.0)
}

pub(super) fn multipath(input: &RuleInput<'_>) -> Option<Finding> {
    let (name, device) = device(input, |_, device| switches(input, device))?;
    let paths = [
        (Measure::DevicePaths, &device.path_switches),
        (Measure::OtherPathBytes, &device.other_path_bytes),
    ];
    let grown = paths.into_iter().filter(|(_, series)| {
        input.low_mean(series).is_some_and(|now| now > 0.0) && input.rose(series, 2.0)
    });
    let mut evidence: Vec<Evidence> = grown
        .map(|(measure, series)| input.value_at(measure, Some(&name), series))
        .collect();
    evidence.push(input.value_at(Measure::DeviceBytes, Some(&name), &device.bytes));
    input.may_be(DISKS).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

pub(super) fn disk_controller(input: &RuleInput<'_>) -> Option<Finding> {
    let found = full_array(input).or_else(|| slow_disk(input));
    found.or_else(|| slow_reads(input))
}

/// Where nobody tells of disk arrays: the copies' slowest stage is one at a disk that takes much longer for a byte than
/// before, and no other link puts load on it.
fn slow_disk(input: &RuleInput<'_>) -> Option<Finding> {
    let stage = input.stage.filter(|stage| DISKS.contains(stage))?;
    let end = match stage {
        DataPathStage::SourceRead => LinkEnd::Source,
        DataPathStage::Network
        | DataPathStage::Checksum
        | DataPathStage::DestinationWrite
        | DataPathStage::Commit => LinkEnd::Destination,
    };
    if are_known(input, end) {
        return None;
    }
    let busy = &input.link.stages.get(&stage)?.busy;
    let bytes = staged_bytes(input.link);
    let (_, usual) = seconds_per_byte(busy, &bytes, input.usual_bins)?;
    let (_, low) = seconds_per_byte(busy, &bytes, input.low_bins)?;
    let is_slow = low > usual * DISK_SLOWDOWN_RATIO_MIN;
    (is_slow && competing_load(input).is_none()).then(|| Finding {
        explains: 1.0,
        evidence: vec![Evidence::Bottleneck { stage }],
    })
}

/// The part of the copies' time in which movers of a pool wait for its disk to read, and these seconds for each byte. A pool
/// tells of all that is read there, so that of the copies is their part of the bytes.
fn read_wait(
    input: &RuleInput<'_>,
    pool: &PoolSignals,
    spans: &[std::ops::Range<usize>],
) -> Option<(f64, f64)> {
    let pools = input.pools_of(LinkEnd::Source);
    let read = |pool: &PoolSignals| pool.bytes_out.sum(spans);
    let all: f64 = pools.iter().filter_map(|(_, pool)| read(pool)).sum();
    let copied = input.link.moved_bytes().sum(spans)?;
    let slot_seconds = input.link.active.sum(spans)? * f64::from(input.signals.bin_seconds);
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
fn slow_reads(input: &RuleInput<'_>) -> Option<Finding> {
    let mut evidence = Vec::new();
    let mut longer = 0.0;
    for (name, pool) in input.pools_of(LinkEnd::Source) {
        let (Some((usual, usual_seconds)), Some((value, seconds))) = (
            read_wait(input, pool, input.usual_bins),
            read_wait(input, pool, input.low_bins),
        ) else {
            continue;
        };
        if seconds > usual_seconds * DISK_SLOWDOWN_RATIO_MIN {
            longer += value * (1.0 - usual_seconds / seconds);
            evidence.push(Evidence::Value {
                measure: Measure::ReadWait,
                place: Some(name.to_string()),
                usual: Some(usual),
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
        undersized_host(input).is_some_and(|found| found.evidence.iter().any(is_short_of_memory));
    if longer < READ_WAIT_SHARE_MIN || lacks_memory || competing_load(input).is_some() {
        return None;
    }
    evidence.truncate(3);
    Finding::whole(evidence)
}

/// Whether somebody tells of all disk arrays of an end.
fn are_known(input: &RuleInput<'_>, end: LinkEnd) -> bool {
    let servers = input.disk_servers(end).into_iter();
    let mut devices = servers
        .flat_map(|(_, server)| server.devices.values())
        .map(|device| input.low_mean(&device.utilisation).is_some())
        .peekable();
    devices.peek().is_some() && devices.all(|is_known| is_known)
}

fn full_array(input: &RuleInput<'_>) -> Option<Finding> {
    let (name, device) = device(input, |server, device| {
        let is_full = input
            .low_mean(&device.utilisation)
            .is_some_and(|part| part > USE_SHARE_MIN);
        let burst = input.rose(&server.in_flight, 2.0) && !input.usual_bins.is_empty();
        is_full && input.fell(&device.bytes, 0.7) && !switches(input, device) && !burst
    })?;
    let mut evidence = vec![
        input.value_at(Measure::DeviceUse, Some(&name), &device.utilisation),
        input.value_at(Measure::DeviceBytes, Some(&name), &device.bytes),
    ];
    evidence.extend(input.fact_changes(&["disk ", "pool "]).take(1));
    input.may_be(DISKS).then_some(Finding {
        explains: 1.0,
        evidence,
    })
}

pub(super) fn start_burst(input: &RuleInput<'_>) -> Option<Finding> {
    let (name, server) = input.servers().find(|(_, server)| {
        let begin = input.low_bins.first().map_or(0, |span| span.start);
        let around = begin.saturating_sub(5)..begin + 5;
        let starts = server.starts.max(std::slice::from_ref(&around));
        let usual = input.usual_mean(&server.starts);
        let is_burst = starts
            .zip(usual)
            .is_some_and(|(most, usual)| most > usual.max(0.5) * 3.0);
        let is_stalled = input
            .low_mean(&server.io_full)
            .is_some_and(|part| part > IO_FULL_SHARE_MIN)
            && input.rose(&server.io_full, 2.0);
        is_burst && is_stalled && input.rose(&server.in_flight, 1.5)
    })?;
    Finding::whole(vec![
        input.value_at(Measure::ServerStarts, Some(&name.0), &server.starts),
        input.value_at(Measure::ServerTransfers, Some(&name.0), &server.in_flight),
        input.value_at(Measure::IoStall, Some(&name.0), &server.io_full),
    ])
}

pub(super) fn accounting(input: &RuleInput<'_>) -> Option<Finding> {
    let (id, difference) = input.storages().find_map(|(id, storage)| {
        let used = input.low_mean(&storage.used_bytes)?;
        let catalogue = input.low_mean(&storage.catalogue_bytes)?;
        let difference = (used - catalogue).abs();
        (difference > used.max(catalogue) * ACCOUNTING_SHARE_MIN).then_some((id, difference))
    })?;
    Finding::whole(vec![Evidence::Value {
        measure: Measure::AccountingDifference,
        place: Some(id.as_str().to_owned()),
        usual: None,
        value: difference,
    }])
}
