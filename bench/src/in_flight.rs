//! Thousands of transfers at once: what the service needs in memory and CPU while their copies run.

use crate::cell::Scale;
use crate::error::BenchError;
use crate::interface::submission;
use crate::process::{cpu_used, resident_bytes, resident_bytes_most};
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
        links: Vec::new(),
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
    let each = transfers as usize / usize::from(SIDE).pow(2);
    let links = (0..SIDE).flat_map(|from| (0..SIDE).map(move |to| (from, to)));
    let jobs = links.map(|(from, to)| {
        let link = (grid_source(from), grid_destination(to));
        let directory = format!("/held-{transfers}-{from}-{to}");
        let body = submission(stub, link, &directory, each);
        Prepared::post(service, "jobs", body)
    });
    let jobs: Arc<[Prepared]> = jobs.collect::<Result<_, _>>()?;
    let started = Instant::now();
    requests::run(service, &jobs, Order::Once, 4, TIMEOUT).await?;
    if let Err(why) = all_held(stub, transfers).await {
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
    loop {
        let totals = api_of(service).overview().await?.totals;
        if totals.finished >= all {
            break;
        }
        if totals.failed > 0 || ending.elapsed() > TIMEOUT {
            return Err(BenchError::failed(format!(
                "of {all} transfers {} finished and {} failed",
                totals.finished, totals.failed
            )));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
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

/// Waits until so many are held.
async fn all_held(stub: &Stub, transfers: u64) -> Result<(), BenchError> {
    let began = Instant::now();
    while stub.held() < transfers {
        if began.elapsed() > TIMEOUT {
            let (held, seconds) = (stub.held(), TIMEOUT.as_secs());
            return Err(BenchError::failed(format!(
                "only {held} of {transfers} transfers became active within {seconds} s"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
