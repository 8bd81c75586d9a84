//! Waiting for jobs to end, with progress.

use super::live::LiveBytes;
use super::totals::JobTotals;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::progress::Progress;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::transfer_api::{FileInfo, JobInfo, TransferService};
use penstock_model::Bytes;
use penstock_model::text::{one_line, plural};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often the service is asked while jobs run.
const POLL: Duration = Duration::from_secs(1);
/// How often in a row it may not answer before the wait is given up.
const MISSED_MAX: u32 = 60;

/// A job that has ended, with its files.
#[derive(Debug, Clone, serde::Serialize)]
pub struct EndedJob {
    #[serde(flatten)]
    pub job: JobInfo,
    pub files: Vec<FileInfo>,
    /// The same numbers as `status` tells.
    pub totals: JobTotals,
}

/// Waits until all jobs have ended. An outage of the service is waited out for a minute.
pub async fn for_end(
    service: &TransferService,
    ids: &[String],
    progress: &Progress,
) -> Result<Vec<EndedJob>, CommandError> {
    let mut ended: Vec<EndedJob> = Vec::new();
    let mut open: Vec<String> = ids.to_vec();
    let mut counted = Counted::default();
    let mut missed = 0;
    while !open.is_empty() {
        tokio::time::sleep(POLL).await;
        match look(service, &open, &mut counted, progress).await {
            Ok(found) => {
                missed = 0;
                open.retain(|id| !found.iter().any(|job| job.job.job_id == *id));
                ended.extend(found);
            }
            Err(why) if why.is_transient() && missed < MISSED_MAX => missed += 1,
            Err(why) => return Err(why.into()),
        }
    }
    let position = |job: &EndedJob| ids.iter().position(|id| *id == job.job.job_id);
    ended.sort_by_key(position);
    Ok(ended)
}

/// What is counted while jobs run.
#[derive(Debug, Default)]
struct Counted {
    /// Files that have ended.
    ended: BTreeSet<u64>,
    /// Bytes of those that arrived.
    arrived_bytes: u64,
    /// The same of jobs that are looked at no more.
    closed_bytes: u64,
}

/// The jobs that have ended since the last look; counts files that have, and bytes that move.
async fn look(
    service: &TransferService,
    open: &[String],
    counted: &mut Counted,
    progress: &Progress,
) -> Result<Vec<EndedJob>, RemoteError> {
    let mut ended = Vec::new();
    let (mut open_bytes, mut moving_bytes) = (0, 0);
    // Before the files: what arrives in between is then counted once, as arrived.
    let moving = LiveBytes::of(service, open).await;
    for job in service.jobs(open).await? {
        let files = service.files(&job.job_id).await?;
        for file in files.iter().filter(|file| file.is_terminal()) {
            if counted.ended.insert(file.file_id) {
                // What failed, was canceled or was not needed moved nothing that counts.
                if file.file_state == "FINISHED" {
                    counted.arrived_bytes += file.filesize.unwrap_or(0);
                }
                progress.file_ended();
            }
        }
        let is_meant = |file: &&FileInfo| !file.is_terminal() || file.file_state == "FINISHED";
        let sizes = files.iter().filter(is_meant);
        let meant_bytes: u64 = sizes.filter_map(|file| file.filesize).sum();
        for file in files.iter().filter(|file| !file.is_terminal()) {
            moving_bytes += moving.moved_of(file.file_id);
        }
        match job.is_terminal() {
            true => counted.closed_bytes += meant_bytes,
            false => open_bytes += meant_bytes,
        }
        if job.is_terminal() {
            let totals = JobTotals::of(&job, &files);
            ended.push(EndedJob { job, files, totals });
        }
    }
    let moved = Bytes(counted.arrived_bytes + moving_bytes);
    let total = Bytes((counted.closed_bytes + open_bytes).max(moved.0));
    progress.measured(moved, total);
    Ok(ended)
}

/// An error when something could not be listed, so that its files were not submitted.
pub fn all_listed(not_listed: usize) -> Result<(), CommandError> {
    match not_listed {
        0 => Ok(()),
        _ => Err(CommandError::SomeFailed(format!(
            "{} could not be listed; what is there was not submitted",
            plural(not_listed as u64, "place")
        ))),
    }
}

/// Says how jobs ended; an error unless every file arrived, and all files were submitted.
pub fn conclude(ended: &[EndedJob], not_listed: usize, output: Output) -> Result<(), CommandError> {
    let missing: u64 = ended.iter().map(|job| job.totals.missing()).sum();
    let outcome = match missing == 0 && ended.iter().all(|job| job.job.is_finished()) {
        true => all_listed(not_listed),
        false => Err(CommandError::SomeFailed(format!(
            "{} did not arrive",
            plural(missing, "file")
        ))),
    };
    let text = || ended.iter().map(ended_text).collect();
    output.conclude(&ended, text, outcome)
}

fn ended_text(ended: &EndedJob) -> String {
    let mut text = format!(
        "{} {}: {}\n",
        ended.job.job_id,
        ended.job.job_state,
        ended.totals.text()
    );
    let is_missing = |file: &&FileInfo| !["FINISHED", "NOT_USED"].contains(&&*file.file_state);
    for file in ended.files.iter().filter(is_missing) {
        let reason = file.reason.as_deref().unwrap_or("no reason given");
        text += &format!(
            "  {} {}: {}\n",
            one_line(&file.file_state),
            one_line(&file.dest_surl),
            one_line(reason)
        );
    }
    text
}
