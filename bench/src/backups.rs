//! What a backup costs a service that is at work: empty files are copied as fast as two storage sites, or the service
//! alone, can, with a journal that holds half a million transfers already, and every other interval a backup of it is made.

use crate::cell::Scale;
use crate::error::BenchError;
use crate::load;
use crate::report::{Table, figures, middle_of, spread};
use crate::servers::penstock::{LINK_SLOTS, Limits, OwnService, STUB_QUICK, Sites};
use crate::service::{
    api_of, await_jobs, entry, make_sources, options_between, stub_entries, submit, submit_options,
};
use crate::stub::Stub;
use penstock_field_tools::job_list::Entry;
use penstock_field_tools::transfer_api::{SubmitOptions, TransferService};
use rusqlite::{Connection, named_params};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::process::Command;
use url::Url;

/// Files of a job: of those that are copied, and of those that make up the past.
const FILES_PER_JOB: u64 = 200;
/// Files that wait, so that no slot stays empty.
const AHEAD: u64 = 1000;
/// Directories that files go to, in turn, between two sites: what lies there is replaced, so that the file system does
/// not fill.
const DIRECTORIES: u64 = 50;
/// Between two looks at how many wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Numbers from which on the past is written, far from those that the service gives.
const PAST: u64 = 1_000_000_000_000;

/// Rates with and without.
pub const BACKUPS: Table = Table {
    title: "Backup of a loaded service",
    note: "Empty files, with ended transfers in the journal already; intervals with `penstock backup` running and \
           without take turns, also in which of a pair is first. One with a backup is as long as the backup at \
           least. The ratio is the median of the pairs' ratios, with the lowest and the highest; 1 means that a backup costs nothing.",
    columns: &[
        "between",
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
    Limits::of_each(LINK_SLOTS)
}

/// What the files are moved between.
pub enum Ends<'a> {
    Sites(&'a Sites),
    Stubs(&'a Stub),
}

/// The row.
pub async fn run(
    own: &OwnService,
    ends: Ends<'_>,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let (past, interval, pairs) = match scale {
        Scale::Full { .. } => (500_000, Duration::from_secs(60), 5),
        Scale::Quick => (2000, Duration::from_secs(3), 1),
    };
    let sources = match &ends {
        Ends::Sites(sites) => Some(make_sources(sites, FILES_PER_JOB, "backup-source").await?),
        Ends::Stubs(_) => None,
    };
    let mut load = Load {
        api: api_of(&own.service),
        ends,
        sources,
        jobs: Vec::new(),
        next: 0,
    };
    load.write_past(own, past).await?;
    // Until all that is made once is made.
    load.keep_up(interval / 4, async {}).await?;
    let (mut without, mut with, mut took, mut log) = (Vec::new(), Vec::new(), Duration::ZERO, 0);
    for pair in 0..pairs {
        // A journal that grows would always be larger for the second.
        let is_first = pair % 2 == 1;
        for is_with in [is_first, !is_first] {
            if !is_with {
                without.push(load.keep_up(interval, async {}).await?.0);
                continue;
            }
            let backup = back_up(own, own.command("backup"));
            let (rate, made) = load.keep_up(interval, backup).await?;
            with.push(rate);
            let (of_backup, of_log) = made?;
            took = took.max(of_backup);
            log = log.max(of_log);
        }
    }
    let between = load.end().await?;
    let ratios = with
        .iter()
        .zip(&without)
        .map(|(with, without)| with / without)
        .collect();
    let size = std::fs::metadata(own.backup_file()).map_or(0, |file| file.len());
    Ok(vec![vec![
        between.to_owned(),
        past.to_string(),
        format!("{} s", interval.as_secs()),
        pairs.to_string(),
        middle_of(without),
        middle_of(with),
        spread(ratios),
        format!("{:.1} s", took.as_secs_f64()),
        figures(size as f64 / 1e6),
        figures(log as f64 / 1e6),
    ]])
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
    ends: Ends<'a>,
    /// Where the files are, if they are.
    sources: Option<Url>,
    jobs: Vec<String>,
    next: u64,
}

impl Load<'_> {
    /// Keeps the service busy for so long, and until something else is done. Gives the files that ended per second, and
    /// what the other came to.
    async fn keep_up<T>(
        &mut self,
        time: Duration,
        beside: impl Future<Output = T>,
    ) -> Result<(f64, T), BenchError> {
        let (begun, before) = (Instant::now(), self.finished().await?);
        let is_done = AtomicBool::new(false);
        let beside = async {
            let what = beside.await;
            is_done.store(true, Ordering::Relaxed);
            what
        };
        let busy = async {
            while begun.elapsed() < time || !is_done.load(Ordering::Relaxed) {
                self.submit_more().await?;
            }
            let ended = self.finished().await? - before;
            Ok::<_, BenchError>(ended as f64 / begun.elapsed().as_secs_f64())
        };
        let (rate, what) = tokio::join!(busy, beside);
        Ok((rate?, what))
    }

    /// Submits a job, or waits a moment because enough wait.
    async fn submit_more(&mut self) -> Result<(), BenchError> {
        if self.api.overview().await?.totals.submitted < AHEAD {
            let (entries, options) = self.next_job().await?;
            let jobs = submit(&self.api, &entries, &options).await?;
            self.jobs.extend(jobs);
        } else {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    async fn next_job(&mut self) -> Result<(Vec<Entry>, SubmitOptions), BenchError> {
        let number = self.next;
        self.next += 1;
        let sites = match &self.ends {
            Ends::Stubs(stub) => {
                let directory = format!("load-{number}");
                let entries = stub_entries(stub, STUB_QUICK, FILES_PER_JOB, &directory)?;
                return Ok((entries, submit_options()));
            }
            Ends::Sites(sites) => sites,
        };
        let Some(from) = &self.sources else {
            return Err(BenchError::failed("there are no files to be copied"));
        };
        let directory = format!("load-{}", number % DIRECTORIES);
        let to = load::make_directory(&sites.destination, &directory).await?;
        let entries = (0..FILES_PER_JOB)
            .map(|index| entry(&load::numbered(from, index), &load::numbered(&to, index)));
        let options = SubmitOptions {
            overwrite: true,
            ..options_between(sites)?
        };
        Ok((entries.collect::<Result<_, _>>()?, options))
    }

    async fn finished(&self) -> Result<u64, BenchError> {
        Ok(self.api.overview().await?.totals.finished)
    }

    /// Every file must have arrived. Between what.
    async fn end(self) -> Result<&'static str, BenchError> {
        for jobs in self.jobs.chunks(100) {
            let deadline = Instant::now() + Duration::from_secs(60);
            await_jobs(&self.api, jobs.to_vec(), deadline).await?;
        }
        Ok(match self.ends {
            Ends::Sites(_) => "two Penstock sites",
            Ends::Stubs(_) => "stubs that take no time",
        })
    }

    /// Copies a job that has ended until there are so many transfers.
    async fn write_past(&mut self, own: &OwnService, transfers: u64) -> Result<(), BenchError> {
        let (entries, options) = self.next_job().await?;
        let jobs = submit(&self.api, &entries, &options).await?;
        let template = jobs.first().cloned().unwrap_or_default();
        await_jobs(&self.api, jobs, Instant::now() + Duration::from_secs(60)).await?;
        let journal = own.journal();
        let written =
            tokio::task::spawn_blocking(move || multiply(&journal, &template, transfers)).await;
        let written = written.map_err(|why| BenchError::failed(why.to_string()))?;
        written.map_err(|why| {
            BenchError::failed(format!("the journal's past cannot be written: {why}"))
        })
    }
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
