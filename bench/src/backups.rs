//! What a backup costs a service that is at work: empty files are copied as fast as the service can, with a journal that
//! holds half a million transfers already, and every other interval a backup of it is made.

use crate::cell::Scale;
use crate::error::BenchError;
use crate::report::{Table, figures};
use crate::servers::penstock::{LINK_SLOTS, Limits, OwnService, STUB_QUICK};
use crate::service::{api_of, await_jobs, stub_entries, submit, submit_options};
use crate::stub::Stub;
use penstock_field_tools::transfer_api::TransferService;
use rusqlite::{Connection, named_params};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// Files of a job: of those that are copied, and of those that make up the past.
const FILES_PER_JOB: u64 = 200;
/// Files that wait, so that no slot stays empty.
const AHEAD: u64 = 1000;
/// Between two looks at how many wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Numbers from which on the past is written, far from those that the service gives.
const PAST: u64 = 1_000_000_000_000;

/// Rates with and without.
pub const BACKUPS: Table = Table {
    title: "Backup of a loaded service",
    note: "Empty files through the stub, with ended transfers in the journal already; intervals take turns, with \
           `penstock backup` running and without. The ratio is the median of the pairs' ratios, with the lowest and \
           the highest; 1 means that a backup costs nothing.",
    columns: &[
        "ended before",
        "interval",
        "pairs",
        "without, files/s",
        "with, files/s",
        "ratio",
        "backup takes",
        "its size, MB",
        "journal's log at most, MB",
    ],
};

/// What the service is allowed.
pub fn limits() -> Limits {
    Limits {
        link: LINK_SLOTS,
        storage: LINK_SLOTS,
        active: LINK_SLOTS,
        links: Vec::new(),
    }
}

/// The row.
pub async fn run(
    own: &OwnService,
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let (past, interval, pairs) = match scale {
        Scale::Full => (500_000, Duration::from_secs(60), 5),
        Scale::Quick => (2000, Duration::from_secs(3), 1),
    };
    let api = api_of(&own.service);
    write_past(own, stub, &api, past).await?;
    let mut load = Load {
        api,
        stub,
        jobs: Vec::new(),
        next: 0,
    };
    // Until all that is made once is made.
    load.keep_up(interval / 4).await?;
    let (mut without, mut with, mut took, mut log) = (Vec::new(), Vec::new(), Duration::ZERO, 0);
    for _ in 0..pairs {
        without.push(load.keep_up(interval).await?);
        let backup = own.command("backup");
        let (rate, made) = tokio::join!(load.keep_up(interval), back_up(own, backup));
        with.push(rate?);
        let (of_backup, of_log) = made?;
        took = took.max(of_backup);
        log = log.max(of_log);
    }
    load.end().await?;
    let mut ratios: Vec<f64> = with
        .iter()
        .zip(&without)
        .map(|(with, without)| with / without)
        .collect();
    let size = std::fs::metadata(own.backup_file()).map_or(0, |file| file.len());
    let ratio = median(&mut ratios);
    Ok(vec![vec![
        past.to_string(),
        format!("{} s", interval.as_secs()),
        pairs.to_string(),
        figures(median(&mut without)),
        figures(median(&mut with)),
        format!(
            "{ratio:.3} ({:.3} to {:.3})",
            ratios[0],
            ratios[ratios.len() - 1]
        ),
        format!("{:.1} s", took.as_secs_f64()),
        figures(size as f64 / 1e6),
        figures(log as f64 / 1e6),
    ]])
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Makes a backup. How long it took, and how long the journal's log became meanwhile.
async fn back_up(
    own: &OwnService,
    backup: std::process::Command,
) -> Result<(Duration, u64), BenchError> {
    let begun = Instant::now();
    let mut backup = Command::from(backup);
    backup.arg("--to").arg(own.backup_file());
    backup
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let mut making = backup
        .spawn()
        .map_err(|why| BenchError::failed(format!("penstock backup: {why}")))?;
    let log = own.journal().with_extension("sqlite-wal");
    let mut longest = 0;
    let status = loop {
        tokio::select! {
            status = making.wait() => break status,
            () = tokio::time::sleep(LOOK_INTERVAL) => {
                longest = longest.max(std::fs::metadata(&log).map_or(0, |log| log.len()));
            }
        }
    };
    match status {
        Ok(status) if status.success() => Ok((begun.elapsed(), longest)),
        Ok(status) => Err(BenchError::failed(format!("penstock backup: {status}"))),
        Err(why) => Err(BenchError::failed(format!("penstock backup: {why}"))),
    }
}

/// Files that are copied without end.
struct Load<'a> {
    api: TransferService,
    stub: &'a Stub,
    jobs: Vec<String>,
    next: u64,
}

impl Load<'_> {
    /// Keeps the service busy for so long. Gives the files that ended per second.
    async fn keep_up(&mut self, time: Duration) -> Result<f64, BenchError> {
        let (begun, before) = (Instant::now(), self.finished().await?);
        while begun.elapsed() < time {
            let totals = self.api.overview().await?.totals;
            if totals.submitted < AHEAD {
                let directory = format!("load-{}", self.next);
                self.next += 1;
                let entries = stub_entries(self.stub, STUB_QUICK, FILES_PER_JOB, &directory)?;
                self.jobs
                    .extend(submit(&self.api, &entries, &submit_options()).await?);
            } else {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
        let done = self.finished().await? - before;
        Ok(done as f64 / begun.elapsed().as_secs_f64())
    }

    async fn finished(&self) -> Result<u64, BenchError> {
        Ok(self.api.overview().await?.totals.finished)
    }

    /// Every file must have arrived.
    async fn end(self) -> Result<(), BenchError> {
        for jobs in self.jobs.chunks(100) {
            let deadline = Instant::now() + Duration::from_secs(60);
            await_jobs(&self.api, jobs.to_vec(), deadline).await?;
        }
        Ok(())
    }
}

/// Copies a job that has ended until there are so many transfers.
async fn write_past(
    own: &OwnService,
    stub: &Stub,
    api: &TransferService,
    transfers: u64,
) -> Result<(), BenchError> {
    let entries = stub_entries(stub, STUB_QUICK, FILES_PER_JOB, "past")?;
    let jobs = submit(api, &entries, &submit_options()).await?;
    let template = jobs.first().cloned().unwrap_or_default();
    await_jobs(api, jobs, Instant::now() + Duration::from_secs(60)).await?;
    let journal = own.journal();
    let written =
        tokio::task::spawn_blocking(move || multiply(&journal, &template, transfers)).await;
    let written = written.map_err(|why| BenchError::failed(why.to_string()))?;
    written
        .map_err(|why| BenchError::failed(format!("the journal's past cannot be written: {why}")))
}

const COPIES: [&str; 3] = [
    "INSERT INTO job (job_id, user, vo, delegation, submitted_ms, finished_ms, final_state, priority, parameters,
         source_se, destination_se, ended_sequence)
     SELECT :job, user, vo, delegation, submitted_ms, finished_ms, final_state, priority, parameters, source_se,
         destination_se, ended_sequence FROM job WHERE job_id = :template AND :offset IS NOT NULL",
    "INSERT INTO transfer (transfer_id, job_id, request, state_name, state, size_bytes, started_ms, finished_ms)
     SELECT transfer_id + :offset, :job, request, state_name, state, size_bytes, started_ms, finished_ms
     FROM transfer WHERE job_id = :template",
    "INSERT INTO ledger (at_ms, monotonic_us, job_id, transfer_id, version, event)
     SELECT at_ms, monotonic_us, :job, transfer_id + :offset, version, event FROM ledger
     WHERE transfer_id IN (SELECT transfer_id FROM transfer WHERE job_id = :template) ORDER BY sequence",
];

fn multiply(journal: &Path, template: &str, transfers: u64) -> rusqlite::Result<()> {
    let mut connection = Connection::open(journal)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    for number in 0..transfers / FILES_PER_JOB {
        // The service has a turn in between.
        let change = connection.transaction()?;
        // Scattered, as real ones are.
        let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let job = format!("{:08x}-0000-4000-8000-{number:012x}", scattered >> 32);
        let offset = (PAST + number * 1000) as i64;
        for sql in COPIES {
            let mut insert = change.prepare_cached(sql)?;
            insert
                .execute(named_params! {":job": job, ":template": template, ":offset": offset})?;
        }
        change.commit()?;
    }
    Ok(())
}
