//! Looking at and stopping the jobs of a transfer service; submitting and explaining them are below.

pub mod ban;
pub mod explain;
pub mod find;
pub mod nodes;
pub mod submit;
pub mod wait;

use crate::access::Access;
use crate::args::parse_url;
use crate::args::{CancelArgs, ListArgs, ServiceArgs, StatusArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::SiteDirectory;
use penstock_field_tools::transfer_api::{FileInfo, JobInfo, TransferService};
use penstock_model::Bytes;
use serde::Serialize;
use url::Url;

/// A site's owner, who holds its signing key, may see and stop every job.
const OWNER_SCOPE: &str = "penstock.admin";

/// What a command wants of the service, as the scope of the token that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Look at jobs and stop them.
    Manage,
    /// Submit jobs; the service shows the same token to the storage elements.
    Submit,
}

/// The service that the options name, and a token for it.
pub fn connect(
    args: &ServiceArgs,
    intent: Intent,
    environment: &Environment,
) -> Result<TransferService, CommandError> {
    let base = find_service(args, environment)?;
    let access = Access::open(&args.access, environment, 4)?;
    let mut scope = match intent {
        Intent::Manage => OWNER_SCOPE.to_owned(),
        Intent::Submit => "storage.read:/ storage.modify:/".to_owned(),
    };
    if let Some(required) = required_scope(args)? {
        scope = format!("{scope} {required}");
    }
    let token = access.token(&scope)?;
    Ok(TransferService::new(access.client, base, token))
}

/// What was typed, then the site directory's own service, then the environment.
fn find_service(args: &ServiceArgs, environment: &Environment) -> Result<Url, CommandError> {
    if let Some(service) = &args.service {
        return Ok(service.clone());
    }
    if let Some(dir) = &args.access.dir {
        let config = SiteDirectory::at(dir)?.config()?;
        let url = config.service_url().and_then(|url| Url::parse(&url).ok());
        return url.ok_or_else(|| {
            CommandError::Usage(format!(
                "{} runs no [transfer] role; name one with --service URL",
                dir.display()
            ))
        });
    }
    match &environment.service {
        Some(text) => {
            parse_url(text).map_err(|why| CommandError::Usage(format!("PENSTOCK_SERVICE: {why}")))
        }
        None => Err(CommandError::Usage(
            "which transfer service? Give --service URL or --dir DIR, or set PENSTOCK_SERVICE"
                .to_owned(),
        )),
    }
}

fn required_scope(args: &ServiceArgs) -> Result<Option<String>, CommandError> {
    let Some(dir) = &args.access.dir else {
        return Ok(None);
    };
    let config = SiteDirectory::at(dir)?.config()?;
    Ok(config.transfer.and_then(|transfer| transfer.required_scope))
}

#[derive(Serialize)]
struct StatusReport {
    #[serde(flatten)]
    job: JobInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<FileInfo>>,
}

/// `penstock status`.
pub async fn status(
    args: StatusArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    let mut reports = Vec::new();
    for id in &args.jobs {
        let job = service.job(id).await?;
        let files = match args.files {
            true => Some(service.files(id).await?),
            false => None,
        };
        reports.push(StatusReport { job, files });
    }
    output.show(&reports, || reports.iter().map(status_text).collect());
    Ok(())
}

fn status_text(report: &StatusReport) -> String {
    let mut text = job_line(&report.job);
    for file in report.files.iter().flatten() {
        let size = file
            .filesize
            .map(|size| format!(" {}", Bytes(size)))
            .unwrap_or_default();
        let reason = file.reason.as_ref().filter(|reason| !reason.is_empty());
        let reason = reason
            .map(|reason| format!("\n      {reason}"))
            .unwrap_or_default();
        text += &format!(
            "  {:10}{size} {} -> {}{reason}\n",
            file.file_state, file.source_surl, file.dest_surl
        );
    }
    text
}

fn job_line(job: &JobInfo) -> String {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let reason = job.reason.as_ref().filter(|reason| !reason.is_empty());
    format!(
        "{} {:13} {}  {} -> {}  {}{}\n",
        job.job_id,
        job.job_state,
        or_dash(&job.submit_time),
        or_dash(&job.source_se),
        or_dash(&job.dest_se),
        or_dash(&job.vo_name),
        reason
            .map(|reason| format!("  {reason}"))
            .unwrap_or_default()
    )
}

/// `penstock list`.
pub async fn list(
    args: ListArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    let jobs = service.list(&args.states, args.limit).await?;
    output.show(&jobs, || match (jobs.is_empty(), args.states.is_empty()) {
        (true, true) => "no job is open; those that ended: --state FINISHED\n".to_owned(),
        (true, false) => "no job is in such a state\n".to_owned(),
        (false, _) => jobs.iter().map(job_line).collect(),
    });
    Ok(())
}

/// `penstock cancel`.
pub async fn cancel(
    args: CancelArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    let mut canceled = Vec::new();
    for id in &args.jobs {
        canceled.push(service.cancel(id).await?);
    }
    output.show(&canceled, || canceled.iter().map(job_line).collect());
    Ok(())
}
