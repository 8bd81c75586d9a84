//! A million files that wait: what each takes in memory, how fast another link starts beside them, and how soon a
//! service that was killed starts again.

use crate::cell::Scale;
use crate::error::BenchError;
use crate::interface::submission_between;
use crate::process::resident_bytes;
use crate::report::{Table, figures, middle_of, spread};
use crate::requests::{self, Order, Prepared};
use crate::servers::penstock::{LINK_SLOTS, Limits, OwnService, STUB_QUICK, STUB_SOURCE, Service};
use crate::service::{api_of, await_jobs, run_stub, stub_entries, submit, submit_options};
use crate::starts::bound_grid;
use crate::stub::{GRID_SIDE, Stub, grid_destination, grid_source};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files of a job.
const FILES_PER_JOB: usize = 200;
/// Clients that submit.
const CLIENTS: usize = 8;
/// For one round of submissions, and for a service to come back.
const TIMEOUT: Duration = Duration::from_secs(120);
/// After which memory is looked at.
const SETTLING: Duration = Duration::from_secs(3);

/// What it costs that so much waits.
pub const QUEUED: Table = Table {
    title: "A million queued files",
    note: "Jobs of 200 files with notes and checksums, with paths of some 100 characters, on 1,024 links that cannot \
           start them: some 250 transfers are held by their storage, and take all slots. Beside it a service with an empty queue: both are given the \
           same 20,000 empty files on a link of their own, in turns. Memory is the growth of the whole service, from \
           idle, its running transfers and all caches included.",
    columns: &["what", "figure", "FTS3"],
};

/// What the services are allowed.
pub fn limits() -> Limits {
    Limits {
        link: 1,
        storage: LINK_SLOTS,
        active: 3 * LINK_SLOTS,
        links: vec![(STUB_SOURCE, STUB_QUICK, LINK_SLOTS)],
        ..Limits::default()
    }
}

/// The rows. `own` gets the queue, `beside` stays empty.
pub async fn run(
    own: &mut OwnService,
    beside: &OwnService,
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    stub.let_go(false);
    let rows = measure(own, beside, stub, scale).await;
    stub.let_go(true);
    rows
}

async fn measure(
    own: &mut OwnService,
    beside: &OwnService,
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    warm_up(&own.service, stub, "queue-warm-up").await?;
    warm_up(&beside.service, stub, "queue-warm-up-beside").await?;
    bound_grid(&own.service).await?;
    tokio::time::sleep(SETTLING).await;
    let idle = memory(&own.service)?;
    let filled = fill(&own.service, stub, scale).await?;
    tokio::time::sleep(SETTLING).await;
    let held = memory(&own.service)?;
    let rates = beside_empty(own, beside, stub, scale).await?;
    let journal_bytes = std::fs::metadata(own.journal()).map_or(0, |file| file.len());
    let back = restart(own, stub, filled.files).await?;
    let each = |bytes: u64| figures(bytes.saturating_sub(idle) as f64 / filled.files as f64);
    let row = |what: &str, figure: String, fts: &str| vec![what.to_owned(), figure, fts.to_owned()];
    let megabytes = |bytes: u64| figures(bytes as f64 / 1e6);
    Ok(vec![
        row("files queued", filled.files.to_string(), ""),
        row(
            "submitted, files/s: the first fifth, the last fifth",
            format!(
                "{}, {}",
                figures(filled.rate_first),
                figures(filled.rate_last)
            ),
            "35 in jobs of one, while 520,000 are queued",
        ),
        row(
            "memory of the service: idle, with the queue, MB",
            format!("{}, {}", megabytes(idle), megabytes(held)),
            "",
        ),
        row(
            "memory for each file, bytes",
            format!("**{}**", each(held)),
            "",
        ),
        row(
            "journal for each file, bytes",
            figures(journal_bytes as f64 / filled.files as f64),
            "",
        ),
        row(
            "another link, files/s: queue empty, beside the queue",
            format!(
                "{}, {}",
                middle_of(rates.iter().map(|(_, without)| *without).collect()),
                middle_of(rates.iter().map(|(with, _)| *with).collect())
            ),
            "35.9 with an empty queue; 33.7 beside 122,000; 31.4 beside 518,000",
        ),
        row(
            "the same as a ratio, median of the pairs",
            spread(rates.iter().map(|(with, without)| with / without).collect()),
            "0.87 beside 518,000",
        ),
        row(
            "killed and started again: until a storage element is asked for a file, s",
            format!("**{:.2}**", back.started.as_secs_f64()),
            "",
        ),
        row(
            "until a file that was submitted then starts, s",
            format!("{:.2}", back.new_started.as_secs_f64()),
            "",
        ),
        row("memory for each file then, bytes", each(back.resident), ""),
    ])
}

/// Connections, and whatever is made at the first transfers.
async fn warm_up(service: &Service, stub: &Stub, name: &str) -> Result<(), BenchError> {
    let few = stub_entries(stub, STUB_QUICK, 200, name)?;
    let api = api_of(service);
    let jobs = submit(&api, &few, &submit_options()).await?;
    await_jobs(&api, jobs, Instant::now() + TIMEOUT).await
}

fn memory(service: &Service) -> Result<u64, BenchError> {
    resident_bytes(service.process)
        .ok_or_else(|| BenchError::failed("the service's process has gone"))
}

/// What was queued, and how fast at the beginning and at the end.
struct Filled {
    files: usize,
    rate_first: f64,
    rate_last: f64,
}

/// Queues files on every link of the grid, one job each in every round.
async fn fill(service: &Service, stub: &Stub, scale: Scale) -> Result<Filled, BenchError> {
    let (rounds, files) = match scale {
        Scale::Full { .. } => (5, FILES_PER_JOB),
        Scale::Quick => (2, 2),
    };
    let mut filled = Filled {
        files: 0,
        rate_first: 0.0,
        rate_last: 0.0,
    };
    for round in 0..rounds {
        let links = (0..GRID_SIDE).flat_map(|from| (0..GRID_SIDE).map(move |to| (from, to)));
        let jobs = links.map(|(from, to)| {
            let link = (grid_source(from), grid_destination(to));
            let below =
                format!("data26_14p0TeV/{from:02x}/{to:02x}/AOD.{round:08}._000001.pool.root.1");
            let directories = (
                format!("/eos/source/atlasdatadisk/rucio/{below}"),
                format!("/pnfs/destination.example.org/data/atlas/datadisk/rucio/{below}"),
            );
            let body = submission_between(stub, link, (&directories.0, &directories.1), files);
            Prepared::post(service, "jobs", body)
        });
        let jobs: Arc<[Prepared]> = jobs.collect::<Result<_, _>>()?;
        let phase = requests::run(service, &jobs, Order::Once, CLIENTS, TIMEOUT).await?;
        if phase.latencies.len() < jobs.len() {
            return Err(BenchError::failed("a round of submissions takes too long"));
        }
        filled.rate_last = phase.rate() * files as f64;
        if round == 0 {
            filled.rate_first = filled.rate_last;
        }
        filled.files += jobs.len() * files;
    }
    Ok(filled)
}

/// Files per second on a link of their own, with the queue and without, pair by pair.
async fn beside_empty(
    own: &OwnService,
    beside: &OwnService,
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<(f64, f64)>, BenchError> {
    let (pairs, files) = match scale {
        Scale::Full { .. } => (7, 20_000),
        Scale::Quick => (1, 200),
    };
    // What filling the queue has left to write would fall to whichever comes first.
    rustix::fs::sync();
    let rate = async |service: &Service, run: usize| {
        let run = run_stub(service, stub, files, run).await?;
        Ok::<_, BenchError>(run.transfers as f64 / run.wall.as_secs_f64())
    };
    let mut rates = Vec::new();
    for pair in 0..pairs {
        // The numbers make paths that no run had before.
        let numbers = (1000 + 2 * pair, 1001 + 2 * pair);
        rates.push(match pair % 2 {
            0 => {
                let with = rate(&own.service, numbers.0).await?;
                (with, rate(&beside.service, numbers.1).await?)
            }
            _ => {
                let without = rate(&beside.service, numbers.0).await?;
                (rate(&own.service, numbers.1).await?, without)
            }
        });
    }
    Ok(rates)
}

/// How a service came back.
struct Back {
    /// Until a storage element was asked for a file.
    started: Duration,
    /// Until one was asked for a file that was submitted after the start.
    new_started: Duration,
    /// Memory with the restored queue.
    resident: u64,
}

async fn restart(own: &mut OwnService, stub: &Stub, files: usize) -> Result<Back, BenchError> {
    own.kill();
    stub.expect_first();
    let begun = Instant::now();
    tokio::task::block_in_place(|| own.start_again())?;
    // A handshake is not waited for as long as a restart may take on a busy machine.
    let started = loop {
        match stub.first_since() {
            Some(at) => break at.saturating_duration_since(begun),
            None if begun.elapsed() > TIMEOUT => {
                return Err(BenchError::failed("nothing starts after a restart"));
            }
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let service = own.service.clone();
    let entries = stub_entries(stub, STUB_QUICK, 1, "after-restart")?;
    let api = api_of(&service);
    let jobs = submit(&api, &entries, &submit_options()).await?;
    await_jobs(&api, jobs, begun + TIMEOUT).await?;
    let new_started = begun.elapsed();
    tokio::time::sleep(SETTLING).await;
    let totals = api.overview().await?.totals;
    // What is held counts as running.
    let there = totals.submitted + totals.active;
    if (there as usize) < files {
        return Err(BenchError::failed(format!(
            "of {files} files that were queued {there} are there after a restart"
        )));
    }
    Ok(Back {
        started,
        new_started,
        resident: memory(&service)?,
    })
}
