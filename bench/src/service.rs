//! The transfer service: 5,000 empty files in jobs of 200 over REST, completed per second, CPU by process,
//! and memory per active transfer.

use crate::cell::Scale;
use crate::error::BenchError;
use crate::load::{self, Bound, Operation};
use crate::process::{cpu_used, own_cpu_used, resident_bytes};
use crate::report::{Table, middle_of, spread};
use crate::servers::Target;
use crate::servers::penstock::{STUB_HELD, STUB_QUICK, STUB_SOURCE, Service, Sites};
use crate::stub::Stub;
use http::HeaderValue;
use penstock_field_tools::credentials::OneToken;
use penstock_field_tools::job_list::Entry;
use penstock_field_tools::transfer_api::{JobTokens, SubmitOptions, TapeOptions, TransferService};
use penstock_model::FileUrl;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

const FILES_PER_JOB: usize = 200;
/// How long a run may take before it is given up.
const RUN_TIMEOUT: Duration = Duration::from_secs(240);
/// Between looks at jobs, and at memory.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Between looks at the service's own view, which is made once a second and is large where there are many links.
const VIEW_INTERVAL: Duration = Duration::from_millis(500);

/// What one run of the service measured.
#[derive(Debug, Clone, Default)]
pub struct ServiceRun {
    /// Transfers that ended well: all, else the run is an error.
    pub transfers: u64,
    /// From the first submission to the last end.
    pub wall: Duration,
    /// Completed per second while between a tenth and nine tenths were done.
    pub sustained: Option<f64>,
    /// CPU time by process, with a name for each.
    pub cpu: Vec<(&'static str, Duration)>,
    /// The most that were active at once.
    pub active_max: u64,
    /// Resident memory of the service before, and at most during the run.
    pub resident: (u64, u64),
}

/// What held transfers cost.
#[derive(Debug, Clone, Copy)]
pub struct MemoryRun {
    /// Transfers that were active.
    pub active: u64,
    /// Resident memory of the service when idle, after a first round of transfers.
    pub idle_bytes: u64,
    /// And while they were active.
    pub active_bytes: u64,
}

impl MemoryRun {
    /// Growth for each.
    pub fn bytes_per_transfer(&self) -> f64 {
        self.active_bytes.saturating_sub(self.idle_bytes) as f64 / self.active.max(1) as f64
    }
}

/// Puts empty files at the source site, for all runs.
pub async fn make_sources(sites: &Sites, files: u64, name: &str) -> Result<Url, BenchError> {
    let directory = load::make_directory(&sites.source, name).await?;
    load::connect(&sites.source, 16).await?;
    let put = Operation::Put {
        directory: directory.clone(),
        bytes: 0,
    };
    let bound = Bound {
        operations: files,
        time: Duration::from_secs(120),
    };
    let phase = load::run(&sites.source, put, 16, bound, &[]).await;
    match phase.failure {
        None => Ok(directory),
        Some(why) => Err(BenchError::failed(format!(
            "making {files} source files: {why}"
        ))),
    }
}

/// One run between two storage sites.
pub async fn run_sites(
    sites: &Sites,
    sources: &Url,
    files: u64,
    run: usize,
) -> Result<ServiceRun, BenchError> {
    let to = load::make_directory(&sites.destination, &format!("service-{run}")).await?;
    let entries = (0..files)
        .map(|index| entry(&load::numbered(sources, index), &load::numbered(&to, index)))
        .collect::<Result<Vec<_>, _>>()?;
    let options = options_between(sites)?;
    let landed: Arc<[Url]> = (0..files).map(|index| load::numbered(&to, index)).collect();
    let run = measure(&sites.service, &entries, &options, &processes(sites)).await?;
    read_all(&sites.destination, landed).await?;
    Ok(run)
}

/// Ours beside an earlier binary.
pub const IN_TURNS: Table = Table {
    title: "The transfer service beside an earlier version",
    note: "Empty files between two sites, each binary with sites of its own, in turns; ratios are ours divided by the \
           earlier one's, as median (lowest to highest). CPU is that of the service and both sites.",
    columns: &[
        "files",
        "completed/s",
        "earlier",
        "ratio",
        "CPU ms per transfer",
        "earlier",
        "ratio",
    ],
};

/// Runs of ours and of an earlier binary in turns, as a row.
pub async fn run_in_turns(both: [&Sites; 2], scale: Scale) -> Result<Vec<String>, BenchError> {
    let (_, files) = scale.service();
    let mut sources = Vec::new();
    for sites in both {
        let source = make_sources(sites, files, "in-turns-source").await?;
        run_sites(sites, &source, files.min(500), 1000).await?;
        sources.push(source);
    }
    let mut runs: [Vec<ServiceRun>; 2] = Default::default();
    for pair in 0..scale.pairs() {
        // Whoever is second finds the machine as the first has left it: take turns.
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            runs[side].push(run_sites(both[side], &sources[side], files, 2000 + pair).await?);
        }
    }
    let rate = |run: &ServiceRun| run.transfers as f64 / run.wall.as_secs_f64();
    let cpu = |run: &ServiceRun| {
        let total: Duration = run.cpu.iter().map(|(_, time)| *time).sum();
        total.as_secs_f64() * 1e3 / run.transfers as f64
    };
    let mut row = vec![files.to_string()];
    for figure in [&rate as &dyn Fn(&ServiceRun) -> f64, &cpu] {
        let [ours, earlier] = runs.each_ref().map(|runs| runs.iter().map(figure));
        let ratios = ours.clone().zip(earlier.clone());
        row.push(middle_of(ours.collect()));
        row.push(middle_of(earlier.collect()));
        row.push(spread(
            ratios.map(|(ours, earlier)| ours / earlier).collect(),
        ));
    }
    Ok(row)
}

/// How files between two storage sites are submitted.
pub fn options_between(sites: &Sites) -> Result<SubmitOptions, BenchError> {
    Ok(SubmitOptions {
        verify: "both",
        tokens: JobTokens {
            sources: token_of(&sites.source)?.into(),
            destinations: token_of(&sites.destination)?.into(),
        },
        ..submit_options()
    })
}

/// The processes of a run, the service first.
pub fn processes(sites: &Sites) -> [(&'static str, u32); 3] {
    [
        ("service", sites.service.process),
        ("source site", sites.source.processes[0]),
        ("destination site", sites.destination.processes[0]),
    ]
}

/// Reads every file where it should have landed: what a service says of itself is not taken on trust.
async fn read_all(target: &Target, files: Arc<[Url]>) -> Result<(), BenchError> {
    let bound = Bound {
        operations: files.len() as u64,
        time: Duration::from_secs(60),
    };
    let get = Operation::Get { files, bytes: 0 };
    match load::run(target, get, 16, bound, &[]).await.failure {
        None => Ok(()),
        Some(why) => Err(BenchError::failed(format!(
            "a file that the service reported as landed: {why}"
        ))),
    }
}

/// One run between stubs, whose work counts with the client's.
pub async fn run_stub(
    service: &Service,
    stub: &Stub,
    files: u64,
    run: usize,
) -> Result<ServiceRun, BenchError> {
    let entries = stub_entries(stub, STUB_QUICK, files, &format!("quick-{run}"))?;
    measure(
        service,
        &entries,
        &submit_options(),
        &[("service", service.process)],
    )
    .await
}

/// Memory per active transfer: resident memory while so many are held, less that when idle after a first
/// round of as many, because an allocator keeps what it once had and only what it needs on top is the
/// transfers'.
pub async fn run_memory(
    service: &Service,
    stub: &Stub,
    scale: Scale,
) -> Result<MemoryRun, BenchError> {
    let resident = || {
        resident_bytes(service.process)
            .ok_or_else(|| BenchError::failed("the service's process has gone"))
    };
    let few = stub_entries(stub, STUB_QUICK, 20, "memory-warm-up")?;
    measure(service, &few, &submit_options(), &[]).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle_bytes = resident()?;
    let files = scale.held();
    let entries = stub_entries(stub, STUB_HELD, files, "held")?;
    stub.let_go(false);
    let api = api_of(service);
    let jobs = submit(&api, &entries, &submit_options()).await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while stub.held() < files {
        if Instant::now() > deadline {
            let held = stub.held();
            stub.let_go(true);
            return Err(BenchError::failed(format!(
                "only {held} of {files} transfers became active"
            )));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let run = MemoryRun {
        active: files,
        idle_bytes,
        active_bytes: resident()?,
    };
    stub.let_go(true);
    await_jobs(&api, jobs, deadline + RUN_TIMEOUT).await?;
    Ok(run)
}

pub fn submit_options() -> SubmitOptions {
    SubmitOptions {
        verify: "none",
        overwrite: false,
        retries: Some(0),
        priority: 3,
        activity: "default".to_owned(),
        label: None,
        tape: TapeOptions::default(),
        tokens: JobTokens::default(),
    }
}

pub fn token_of(target: &Target) -> Result<Option<String>, BenchError> {
    let text = target
        .authorization
        .as_ref()
        .map(HeaderValue::to_str)
        .transpose();
    let text = text.map_err(|_| BenchError::failed("a token that is no text"))?;
    Ok(text
        .and_then(|text| text.strip_prefix("Bearer "))
        .map(str::to_owned))
}

pub fn entry(source: &Url, destination: &Url) -> Result<Entry, BenchError> {
    let url = |url: &Url| {
        FileUrl::parse(url.as_str()).map_err(|why| BenchError::failed(format!("{url}: {why}")))
    };
    Ok(Entry {
        source: url(source)?,
        destination: url(destination)?,
        checksum: None,
    })
}

pub fn stub_entries(
    stub: &Stub,
    to: IpAddr,
    files: u64,
    directory: &str,
) -> Result<Vec<Entry>, BenchError> {
    let url = |host: IpAddr, index: u64| {
        let text = format!("https://{host}:{}/{directory}/f{index}", stub.port);
        Url::parse(&text).map_err(|why| BenchError::failed(format!("{text}: {why}")))
    };
    (0..files)
        .map(|index| entry(&url(STUB_SOURCE, index)?, &url(to, index)?))
        .collect()
}

pub fn api_of(service: &Service) -> TransferService {
    TransferService::new(
        service.client.clone(),
        service.url.clone(),
        Arc::new(OneToken(Some(service.token.clone()))),
    )
}

pub async fn submit(
    api: &TransferService,
    entries: &[Entry],
    options: &SubmitOptions,
) -> Result<Vec<String>, BenchError> {
    let mut jobs = Vec::new();
    for files in entries.chunks(FILES_PER_JOB) {
        jobs.push(api.submit(files, options).await?);
    }
    Ok(jobs)
}

/// Submits, follows to the end, and adds up.
async fn measure(
    service: &Service,
    entries: &[Entry],
    options: &SubmitOptions,
    processes: &[(&'static str, u32)],
) -> Result<ServiceRun, BenchError> {
    let api = api_of(service);
    let used = || -> Vec<Duration> { processes.iter().map(|(_, pid)| cpu_used(&[*pid])).collect() };
    let before = (used(), own_cpu_used());
    let done_before = api.overview().await?.totals.finished;
    let resident = resident_bytes(service.process).unwrap_or_default();
    let mut run = ServiceRun {
        transfers: entries.len() as u64,
        resident: (resident, resident),
        ..ServiceRun::default()
    };
    let started = Instant::now();
    let deadline = started + RUN_TIMEOUT;
    let jobs = submit(&api, entries, options).await?;
    let last: Vec<String> = jobs.last().cloned().into_iter().collect();
    let mut samples = Vec::new();
    let mut viewed: Option<Instant> = None;
    loop {
        if viewed.is_none_or(|at| at.elapsed() >= VIEW_INTERVAL) {
            let totals = api.overview().await?.totals;
            viewed = Some(Instant::now());
            let done = totals.finished - done_before;
            samples.push((started.elapsed(), done));
            run.active_max = run.active_max.max(totals.active);
        }
        let resident = resident_bytes(service.process).unwrap_or_default();
        run.resident.1 = run.resident.1.max(resident);
        // Jobs go in their order, so that when the last one ends, few others are left. It tells at once, while the
        // view is up to a second old.
        if api.jobs(&last).await?.iter().all(|job| job.is_terminal()) || Instant::now() > deadline {
            break;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    await_jobs(&api, jobs, deadline).await?;
    run.wall = started.elapsed();
    let after = used();
    run.cpu = processes
        .iter()
        .zip(before.0.iter().zip(&after))
        .map(|((name, _), (before, after))| (*name, after.saturating_sub(*before)))
        .collect();
    run.cpu
        .push(("bench", own_cpu_used().saturating_sub(before.1)));
    run.sustained = sustained_rate(&samples, run.transfers);
    Ok(run)
}

/// Waits until all jobs have ended. An error unless all ended well.
pub async fn await_jobs(
    api: &TransferService,
    mut jobs: Vec<String>,
    deadline: Instant,
) -> Result<(), BenchError> {
    while !jobs.is_empty() {
        if Instant::now() > deadline {
            return Err(BenchError::failed(format!(
                "{} jobs have not ended in time",
                jobs.len()
            )));
        }
        let states = api.jobs(&jobs).await?;
        for job in states.iter().filter(|job| job.is_terminal()) {
            if !job.is_finished() {
                return Err(failed_job(api, &job.job_id, &job.job_state).await);
            }
            jobs.retain(|id| *id != job.job_id);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn failed_job(api: &TransferService, id: &str, state: &str) -> BenchError {
    let files = api.files(id).await.unwrap_or_default();
    let reason = files
        .iter()
        .find_map(|file| file.reason.as_deref().filter(|text| !text.is_empty()));
    BenchError::failed(format!(
        "job {id} is {state}: {}",
        reason.unwrap_or("no reason given")
    ))
}

/// The slope between the first sample above a tenth and the last below nine tenths.
fn sustained_rate(samples: &[(Duration, u64)], total: u64) -> Option<f64> {
    let within = |done: u64| done * 10 >= total && done * 10 <= total * 9;
    // Counts change once a second: of equal ones, the first is when it changed.
    let mut changes: Vec<(Duration, u64)> = Vec::new();
    for (at, done) in samples.iter().filter(|(_, done)| within(*done)) {
        if changes.last().is_none_or(|(_, last)| last != done) {
            changes.push((*at, *done));
        }
    }
    let ((from, first), (to, last)) = (*changes.first()?, *changes.last()?);
    // With fewer changes, chance decides.
    (changes.len() >= 3).then(|| (last - first) as f64 / (to - from).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sustained_rate_leaves_start_and_end_out() {
        let at = |second: u64, done: u64| (Duration::from_secs(second), done);
        let samples = [
            at(0, 0),
            at(1, 5),
            at(2, 100),
            at(3, 300),
            at(4, 300),
            at(5, 700),
            at(6, 1000),
        ];
        assert_eq!(sustained_rate(&samples, 1000), Some(200.0));
        assert_eq!(sustained_rate(&samples[..3], 1000), None);
    }
}
