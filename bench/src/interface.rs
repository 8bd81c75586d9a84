//! The REST interface of a transfer service under load: submissions, each answered when it is on disk, and
//! questions about jobs of a hundred files.

use crate::cell::Scale;
use crate::contest::median;
use crate::error::BenchError;
use crate::report::{Table, figures, middle_of};
use crate::requests::{self, Order, Phase, Prepared, permille};
use crate::servers::penstock::{Limits, OwnService, STUB_HELD, STUB_QUICK, STUB_SOURCE, Service};
use crate::service::{api_of, await_jobs, stub_entries, submit, submit_options};
use crate::stub::Stub;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients of a phase, as many as FTS3 was asked by.
const CLIENTS: usize = 8;
/// And where each job is a request of its own.
const MANY_CLIENTS: usize = 64;
/// Jobs that are asked about, and their files.
const JOBS: u64 = 100;
const FILES: usize = 100;

/// Submissions.
pub const SUBMISSIONS: Table = Table {
    title: "Submission: `POST /jobs` over TLS with a token",
    note: "Each answer follows the commit (fsync) of its job. Nothing starts meanwhile but one transfer. FTS3 \
           was asked without TLS, by 8 clients. CPU is per file.",
    columns: &[
        "files a job",
        "clients",
        "files/s (lowest to highest)",
        "jobs/s",
        "p50/p99/most ms",
        "CPU us: service, bench",
        "FTS3's files/s",
    ],
};

/// Questions.
pub const QUESTIONS: Table = Table {
    title: "Status of jobs of 100 files, over TLS with a token",
    note: "Files that have ended, so that everything about them is told. CPU is per answer.",
    columns: &[
        "question",
        "clients",
        "answers/s (lowest to highest)",
        "kB each",
        "p50/p99/most ms",
        "CPU us: service, bench",
        "FTS3's answers/s",
    ],
};

/// What a service is allowed that shall keep what it is given.
pub fn limits_of_keeping() -> Limits {
    Limits::of_each(1)
}

/// Rows of submissions in jobs of so many files.
pub async fn submissions(
    own: &OwnService,
    stub: &Stub,
    files: usize,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let counts: &[usize] = match files {
        1 => &[CLIENTS, MANY_CLIENTS],
        _ => &[CLIENTS],
    };
    let mut rows = Vec::new();
    for clients in counts {
        let mut phases = Vec::new();
        for run in 0..scale.pairs() {
            let name = format!("submit-{files}-{clients}-{run}");
            phases.push(submit_once(own, stub, (files, *clients), &name, scale).await?);
        }
        rows.push(submission_row(files, *clients, &phases));
    }
    Ok(rows)
}

async fn submit_once(
    own: &OwnService,
    stub: &Stub,
    (files, clients): (usize, usize),
    name: &str,
    scale: Scale,
) -> Result<Phase, BenchError> {
    let service = &own.service;
    let jobs = match scale {
        Scale::Full { .. } => 100_000 / files.max(5),
        Scale::Quick => 20,
    };
    let jobs = (0..jobs).map(|job| {
        let link = (STUB_SOURCE, STUB_HELD);
        let body = submission(stub, link, &format!("/{name}/{job}"), files);
        Prepared::post(service, "jobs", body)
    });
    let requests: Arc<[Prepared]> = jobs.collect::<Result<_, _>>()?;
    let known_before = known_files(service).await?;
    let time = Duration::from_secs(8);
    let phase = requests::run(service, &requests, Order::Once, clients, time).await?;
    let expected = known_before + (phase.latencies.len() * files) as u64;
    // The count that is asked for changes once a second.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let known = known_files(service).await?;
        if known == expected {
            return Ok(phase);
        }
        if Instant::now() > deadline {
            return Err(BenchError::failed(format!(
                "the service accepted {expected} files and knows {known}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn known_files(service: &Service) -> Result<u64, BenchError> {
    let totals = api_of(service).overview().await?.totals;
    Ok(totals.submitted + totals.active + totals.finished + totals.failed)
}

/// A submission with what Rucio says of each file, from `directory` to the same one.
pub fn submission(stub: &Stub, link: (IpAddr, IpAddr), directory: &str, files: usize) -> Vec<u8> {
    submission_between(stub, link, (directory, directory), files)
}

/// The same from one directory to another.
pub fn submission_between(
    stub: &Stub,
    (source, destination): (IpAddr, IpAddr),
    (from, to): (&str, &str),
    files: usize,
) -> Vec<u8> {
    let port = stub.port;
    let mut text = String::from("{\"files\":[");
    for file in 0..files {
        let comma = if file > 0 { "," } else { "" };
        let _ = write!(
            text,
            "{comma}{{\"sources\":[\"https://{source}:{port}{from}/f{file}\"],\
             \"destinations\":[\"https://{destination}:{port}{to}/f{file}\"],\
             \"filesize\":1048576,\"checksum\":\"ADLER32:00000001\",\"activity\":\"User Subscriptions\",\
             \"selection_strategy\":\"auto\",\"metadata\":{{\"request_id\":\"a51f3a8e0c8c4a5c9d1c{file:012}\",\
             \"scope\":\"user.bench\",\"name\":\"f{file}\",\"activity\":\"User Subscriptions\",\
             \"request_type\":\"transfer\",\"adler32\":\"00000001\"}}}}"
        );
    }
    text += "],\"params\":{\"verify_checksum\":\"none\",\"overwrite\":false,\"retry\":-1,\"priority\":3,\
             \"job_metadata\":{\"issuer\":\"rucio\",\"multi_sources\":false}}}";
    text.into_bytes()
}

fn submission_row(files: usize, clients: usize, phases: &[Phase]) -> Vec<String> {
    let per_file = |phase: &Phase| phase.cpu_microseconds().0 / files as f64;
    let bench_per_file = |phase: &Phase| phase.cpu_microseconds().1 / files as f64;
    vec![
        files.to_string(),
        clients.to_string(),
        spread(phases, |phase| phase.rate() * files as f64),
        middle(phases, Phase::rate),
        latencies(phases),
        format!(
            "{}, {}",
            middle(phases, per_file),
            middle(phases, bench_per_file)
        ),
        match files {
            1 => "305 (35 while 520,000 are queued)",
            _ => "11,600 in jobs of 100; 16,500 to 19,500 in jobs of 500",
        }
        .to_owned(),
    ]
}

/// What a service is allowed whose files shall come to their end soon.
pub fn limits_of_questions() -> Limits {
    Limits::of_each(200)
}

/// Rows of questions about jobs that have ended.
pub async fn questions(
    own: &OwnService,
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let service = &own.service;
    let api = api_of(service);
    let jobs = match scale {
        Scale::Full { .. } => JOBS,
        Scale::Quick => 3,
    };
    let mut ids = Vec::new();
    for job in 0..jobs {
        let entries = stub_entries(stub, STUB_QUICK, FILES as u64, &format!("asked-{job}"))?;
        ids.extend(submit(&api, &entries, &submit_options()).await?);
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    await_jobs(&api, ids.clone(), deadline).await?;
    let asked = [
        ("GET /jobs/ID", "", "751"),
        (
            "GET /jobs/ID?files=file_id,file_state,dest_surl,reason",
            "?files=file_id,file_state,dest_surl,reason",
            "-",
        ),
        ("GET /jobs/ID/files", "/files", "153"),
    ];
    let time = match scale {
        Scale::Full { .. } => Duration::from_secs(3),
        Scale::Quick => Duration::from_millis(200),
    };
    let mut rows = Vec::new();
    for (shown, suffix, fts) in asked {
        let requests = ids
            .iter()
            .map(|id| Prepared::get(service, &format!("jobs/{id}{suffix}")));
        let requests: Arc<[Prepared]> = requests.collect::<Result<_, _>>()?;
        check_answer(&requests[0].fetch(service).await?, shown)?;
        let mut phases = Vec::new();
        for _ in 0..scale.pairs() {
            let phase = requests::run(service, &requests, Order::Again, CLIENTS, time);
            phases.push(phase.await?);
        }
        rows.push(question_row(shown, fts, &phases));
    }
    Ok(rows)
}

/// An answer must tell what was asked for; those of the phases are compared by nothing but their status.
fn check_answer(answer: &[u8], question: &str) -> Result<(), BenchError> {
    let text = String::from_utf8_lossy(answer);
    let files = match question.contains("files") {
        true => FILES,
        false => 0,
    };
    let told = text.matches("\"file_state\":\"FINISHED\"").count();
    match told == files && text.contains("FINISHED") {
        true => Ok(()),
        false => Err(BenchError::failed(format!(
            "{question} tells of {told} files that have ended instead of {files}"
        ))),
    }
}

fn question_row(question: &str, fts: &str, phases: &[Phase]) -> Vec<String> {
    let kilobytes = |phase: &Phase| phase.bytes as f64 / 1e3 / phase.latencies.len().max(1) as f64;
    vec![
        format!("`{question}`"),
        CLIENTS.to_string(),
        spread(phases, Phase::rate),
        middle(phases, kilobytes),
        latencies(phases),
        format!(
            "{}, {}",
            middle(phases, |phase| phase.cpu_microseconds().0),
            middle(phases, |phase| phase.cpu_microseconds().1)
        ),
        fts.to_owned(),
    ]
}

fn middle(phases: &[Phase], figure: impl Fn(&Phase) -> f64) -> String {
    middle_of(phases.iter().map(figure).collect())
}

fn spread(phases: &[Phase], figure: impl Fn(&Phase) -> f64) -> String {
    let values: Vec<f64> = phases.iter().map(figure).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    let middle = median(values).unwrap_or_default();
    format!(
        "**{}** ({} to {})",
        figures(middle),
        figures(low),
        figures(high)
    )
}

/// Of all samples of all phases.
fn latencies(phases: &[Phase]) -> String {
    let mut all: Vec<Duration> = phases
        .iter()
        .flat_map(|phase| phase.latencies.iter().copied())
        .collect();
    all.sort_unstable();
    let at = |share| figures(permille(&all, share).as_secs_f64() * 1e3);
    format!("{}/{}/{}", at(500), at(990), at(1000))
}
