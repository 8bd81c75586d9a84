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

/// Memory.
pub const IN_FLIGHT: Table = Table {
    title: "Transfers in flight",
    note: "Held active on 25 links by storage that sends a marker each 5 s; resident memory of the service, all \
           of it. FTS3 runs a process for each: the growth of memory by one of them, multiplied.",
    columns: &[
        "transfers",
        "MB idle",
        "MB held",
        "MB at most, starting and ending included",
        "kB for each",
        "service CPU while held, cores",
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

/// The row.
pub async fn run(
    own: &OwnService,
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let service = &own.service;
    let resident = || {
        let bytes = resident_bytes(service.process).zip(resident_bytes_most(service.process));
        bytes.ok_or_else(|| BenchError::failed("the service's process has gone"))
    };
    let api = api_of(service);
    let few = stub_entries(stub, STUB_QUICK, 20, "in-flight-warm-up")?;
    let jobs = submit(&api, &few, &submit_options()).await?;
    await_jobs(&api, jobs, Instant::now() + TIMEOUT).await?;
    let (idle, _) = resident()?;

    stub.let_go(false);
    let transfers = u64::from(scale.in_flight());
    let each = transfers as usize / usize::from(SIDE).pow(2);
    let links = (0..SIDE).flat_map(|from| (0..SIDE).map(move |to| (from, to)));
    let jobs = links.map(|(from, to)| {
        let link = (grid_source(from), grid_destination(to));
        let body = submission(stub, link, &format!("/held-{from}-{to}"), each);
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
    // Longer than the markers are apart, so that each transfer has been told of at least once.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let cores = (cpu_used(&[service.process]) - used).as_secs_f64() / since.elapsed().as_secs_f64();
    let held = resident();

    let ending = Instant::now();
    stub.let_go(true);
    let all = transfers + few.len() as u64;
    loop {
        let totals = api.overview().await?.totals;
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
    let ((held, _), (_, most)) = (held?, resident()?);
    let megabytes = |bytes: u64| figures(bytes as f64 / 1e6);
    let rate = |time: Duration| figures(transfers as f64 / time.as_secs_f64());
    Ok(vec![vec![
        transfers.to_string(),
        megabytes(idle),
        format!("**{}**", megabytes(held)),
        megabytes(most),
        figures(held.saturating_sub(idle) as f64 / transfers as f64 / 1e3),
        figures(cores),
        format!("{}, {}", rate(starting), rate(ending)),
        format!("{} to {} MB", transfers * 34 / 10, transfers * 68 / 10),
    ]])
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
