//! Thousands of transfers at once: what the service needs in memory and CPU while their copies run.

use crate::cell::Scale;
use crate::error::BenchError;
use crate::interface::submission;
use crate::process::{cpu_used, cpu_used_by, resident_bytes, resident_bytes_most};
use crate::report::{Table, figures};
use crate::requests::{self, Order, Prepared};
use crate::servers::penstock::{Limits, OwnService, STUB_QUICK};
use crate::service::{api_of, await_jobs, stub_entries, submit, submit_options};
use crate::stub::{Stub, grid_destination, grid_source};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sources, and as many destinations.
const SIDE: u8 = 5;
/// How long all may take to become active, and again to end.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long they are held: several markers of each, and enough CPU to be measured in ticks.
const HELD: Duration = Duration::from_secs(30);

/// Transfers with which the cost of the record is measured, at each of two services.
const RECORDED: u32 = 1000;
/// Looks at both services at the same time.
const LOOKS: usize = 6;

/// What the record costs.
pub const RECORD_COST: Table = Table {
    title: "What the record costs with 1,000 transfers in flight",
    note: "Two services at the same time hold 1,000 transfers each on 25 links, whose storage sends a marker each 5 s: one \
           records what links do, each second and each minute, the other does not (`observe.sample_links`). CPU of both \
           over the same six times of 30 s, of all threads; medians (lowest to highest) \
           of the figures and of their differences. Other work on the machine makes both dearer.",
    columns: &["what", "figure", "promised"],
};

/// Memory.
pub const IN_FLIGHT: Table = Table {
    title: "Transfers in flight",
    note: "Held active for 30 s on 25 links by storage that sends a marker each 5 s; resident memory of the service, all \
           of it. Its CPU includes what its record costs (samples each second, minutes). FTS3 runs a process for each: the \
           growth of memory by one of them, multiplied.",
    columns: &[
        "transfers",
        "MB idle",
        "MB held",
        "MB at most, starting and ending included",
        "kB for each",
        "service CPU while held, its record included, of one core",
        "started/s, ended/s",
        "FTS3",
    ],
};

/// What the service is allowed.
pub fn limits(scale: Scale) -> Limits {
    let links = u32::from(SIDE).pow(2);
    Limits {
        link: scale.in_flight() / links,
        storage: scale.in_flight() / u32::from(SIDE),
        active: scale.in_flight(),
        is_fixed: true,
        ..Limits::default()
    }
}

/// What a service is allowed that holds as many as the record is measured with, with it or without.
pub fn limits_of_record(is_unrecorded: bool) -> Limits {
    let each = RECORDED / u32::from(SIDE).pow(2);
    Limits {
        link: each,
        storage: each * u32::from(SIDE),
        active: RECORDED,
        is_fixed: true,
        is_unrecorded,
        ..Limits::default()
    }
}

/// A row for each number of transfers.
pub async fn run(
    own: &OwnService,
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let api = api_of(&own.service);
    let few = stub_entries(stub, STUB_QUICK, 20, "in-flight-warm-up")?;
    let jobs = submit(&api, &few, &submit_options()).await?;
    await_jobs(&api, jobs, Instant::now() + TIMEOUT).await?;
    let (idle, _) = resident(own)?;
    let mut finished = few.len() as u64;
    let mut rows = Vec::new();
    for transfers in [scale.in_flight() / 5, scale.in_flight()].map(u64::from) {
        finished += transfers;
        let held = hold(own, stub, transfers, finished).await?;
        let megabytes = |bytes: u64| figures(bytes as f64 / 1e6);
        let rate = |time: Duration| figures(transfers as f64 / time.as_secs_f64());
        rows.push(vec![
            transfers.to_string(),
            megabytes(idle),
            format!("**{}**", megabytes(held.resident)),
            megabytes(held.resident_most),
            figures(held.resident.saturating_sub(idle) as f64 / transfers as f64 / 1e3),
            format!("**{:.2} %**", 100.0 * held.cores),
            format!("{}, {}", rate(held.starting), rate(held.ending)),
            format!("{} to {} MB", transfers * 34 / 10, transfers * 68 / 10),
        ]);
    }
    Ok(rows)
}

/// What the service needed while transfers were held.
struct Held {
    resident: u64,
    /// Starting and ending included.
    resident_most: u64,
    /// CPU seconds per second.
    cores: f64,
    starting: Duration,
    ending: Duration,
}

fn resident(own: &OwnService) -> Result<(u64, u64), BenchError> {
    let process = own.service.process;
    let bytes = resident_bytes(process).zip(resident_bytes_most(process));
    bytes.ok_or_else(|| BenchError::failed("the service's process has gone"))
}

/// Holds so many, and lets them end. `all` have finished then.
async fn hold(own: &OwnService, stub: &Stub, transfers: u64, all: u64) -> Result<Held, BenchError> {
    let service = &own.service;
    stub.let_go(false);
    let started = Instant::now();
    start(own, stub, "held", transfers).await?;
    if let Err(why) = all_held(own, stub, transfers).await {
        stub.let_go(true);
        return Err(why);
    }
    let starting = started.elapsed();
    let (used, since) = (cpu_used(&[service.process]), Instant::now());
    tokio::time::sleep(HELD).await;
    let cores = (cpu_used(&[service.process]) - used).as_secs_f64() / since.elapsed().as_secs_f64();
    let held = resident(own);

    let ending = Instant::now();
    stub.let_go(true);
    all_finished(own, all).await?;
    let ending = ending.elapsed();
    let ((resident, _), (_, resident_most)) = (held?, resident(own)?);
    Ok(Held {
        resident,
        resident_most,
        cores,
        starting,
        ending,
    })
}

/// Submits so many, as many on each link, below directories with this name.
async fn start(
    own: &OwnService,
    stub: &Stub,
    name: &str,
    transfers: u64,
) -> Result<(), BenchError> {
    let service = &own.service;
    let each = transfers as usize / usize::from(SIDE).pow(2);
    let links = (0..SIDE).flat_map(|from| (0..SIDE).map(move |to| (from, to)));
    let jobs = links.map(|(from, to)| {
        let link = (grid_source(from), grid_destination(to));
        let directory = format!("/{name}-{transfers}-{from}-{to}");
        let body = submission(stub, link, &directory, each);
        Prepared::post(service, "jobs", body)
    });
    let jobs: Arc<[Prepared]> = jobs.collect::<Result<_, _>>()?;
    requests::run(service, &jobs, Order::Once, 4, TIMEOUT).await?;
    Ok(())
}

/// Waits until a service has finished so many.
async fn all_finished(own: &OwnService, all: u64) -> Result<(), BenchError> {
    let began = Instant::now();
    loop {
        let totals = api_of(&own.service).overview().await?.totals;
        if totals.finished >= all {
            return Ok(());
        }
        if totals.failed > 0 || began.elapsed() > TIMEOUT {
            return Err(BenchError::failed(format!(
                "of {all} transfers {} finished and {} failed",
                totals.finished, totals.failed
            )));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until so many are held.
async fn all_held(own: &OwnService, stub: &Stub, transfers: u64) -> Result<(), BenchError> {
    let began = Instant::now();
    while stub.held() < transfers {
        if began.elapsed() > TIMEOUT {
            let (held, seconds) = (stub.held(), TIMEOUT.as_secs());
            let totals = api_of(&own.service).overview().await?.totals;
            return Err(BenchError::failed(format!(
                "only {held} of {transfers} transfers became active within {seconds} s; the service has {} active, {} \
                 queued, {} finished, {} failed",
                totals.active, totals.submitted, totals.finished, totals.failed
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The rows of [`RECORD_COST`], of a service that records and one that does not.
pub async fn run_record(
    both: [&OwnService; 2],
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let transfers = u64::from(RECORDED);
    stub.let_go(false);
    for (own, name) in both.into_iter().zip(["recorded", "unrecorded"]) {
        let held = stub.held() + transfers;
        start(own, stub, name, transfers).await?;
        if let Err(why) = all_held(own, stub, held).await {
            stub.let_go(true);
            return Err(why);
        }
    }
    let (looks, length) = match scale {
        Scale::Full { .. } => (LOOKS, HELD),
        Scale::Quick => (2, Duration::from_secs(3)),
    };
    let mut costs = Vec::new();
    for _ in 0..looks {
        let (before, since) = (cpu_of(both)?, Instant::now());
        tokio::time::sleep(length).await;
        let (after, seconds) = (cpu_of(both)?, since.elapsed().as_secs_f64());
        let used = |side: usize| 100.0 * (after[side] - before[side]).as_secs_f64() / seconds;
        costs.push([used(0), used(1)]);
    }
    let active = api_of(&both[0].service).overview().await?.totals.active;
    stub.let_go(true);
    for own in both {
        all_finished(own, transfers).await?;
    }
    let spread = |of: &dyn Fn(&[f64; 2]) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        format!(
            "**{:.2} %** ({least:.2} to {most:.2})",
            values[values.len() / 2]
        )
    };
    let row = |what: &str, figure: String, promised: &str| {
        vec![what.to_owned(), figure, promised.to_owned()]
    };
    Ok(vec![
        row(
            "transfers active at each service",
            active.to_string(),
            "1,000",
        ),
        row(
            "CPU of the service that records, of one core",
            spread(&|cost| cost[0]),
            "",
        ),
        row(
            "CPU of the service that does not, of one core",
            spread(&|cost| cost[1]),
            "",
        ),
        row(
            "what the record costs, of one core",
            spread(&|cost| cost[0] - cost[1]),
            "less than 2 %",
        ),
        row(
            "what the record costs, of the CPU of the service that holds them and moves nothing",
            spread(&|cost| 100.0 * (cost[0] - cost[1]) / cost[0].max(0.001)),
            "",
        ),
    ])
}

fn cpu_of(both: [&OwnService; 2]) -> Result<[Duration; 2], BenchError> {
    let of = |own: &OwnService| {
        let used = cpu_used_by(own.service.process);
        used.ok_or_else(|| BenchError::failed("the service's process has gone"))
    };
    Ok([of(both[0])?, of(both[1])?])
}
