//! Looking at and stopping the jobs of a transfer service; submitting and explaining them are below.

pub mod ban;
pub mod end_tokens;
pub mod explain;
pub mod find;
pub mod incidents;
pub mod live;
pub mod nodes;
mod record_choice;
pub mod submit;
mod totals;
pub mod wait;

use self::explain::job::FileGroup;
use self::live::{LiveBytes, Moving};
use self::totals::JobTotals;
use crate::args::parse_url;
use crate::args::{CancelArgs, ListArgs, ServiceArgs, StatusArgs};
use crate::commands::access::{Access, Need, Server, audiences_of};
use crate::commands::batch_result::BatchResult;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::{Config, in_url};
use crate::site::directory::SiteDirectory;
use penstock_field_tools::transfer_api::{FileInfo, JobInfo, TransferService};
use penstock_model::Bytes;
use penstock_model::text::one_line;
use penstock_protocol::token::ADMIN_SCOPE;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use url::Url;

/// What users of a transfer service have, where it asks for nothing else.
const USER_SCOPE: &str = "fts";

/// What a command wants of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Look at jobs and stop them. The owner of the service, who holds its signing key, sees all of them.
    Manage,
    /// What only administrators may.
    Administer,
    /// Submit jobs.
    Submit,
}

/// The service that the options name, and what it is shown.
pub fn connect(
    args: &ServiceArgs,
    intent: Intent,
    environment: &Environment,
) -> Result<TransferService, CommandError> {
    let access = Access::open(&args.access, environment, 4)?;
    connect_by(&access, args, intent, environment)
}

/// The same, with what is shown to others too.
pub fn connect_by(
    access: &Access,
    args: &ServiceArgs,
    intent: Intent,
    environment: &Environment,
) -> Result<TransferService, CommandError> {
    connect_lasting(access, args, intent, environment, None)
}

/// The same; a token that is made lives this long, where something else ends with it.
pub fn connect_lasting(
    access: &Access,
    args: &ServiceArgs,
    intent: Intent,
    environment: &Environment,
    lifetime: Option<Duration>,
) -> Result<TransferService, CommandError> {
    let base = find_service(args, environment)?;
    let need = match &args.access.dir {
        Some(dir) if access.mints() => Some(need_of(dir, &base, intent)?),
        _ => None,
    };
    let needs = need.map(|need| (Server::of(&base), need));
    let credentials = match lifetime {
        Some(lifetime) => access.lasting(needs, lifetime),
        None => access.credentials(needs),
    };
    Ok(TransferService::new(
        access.client.clone(),
        base,
        credentials,
    ))
}

/// The token that a service needs. An administrator's is for the site's own service alone: any other could use it here.
fn need_of(dir: &Path, base: &Url, intent: Intent) -> Result<Need, CommandError> {
    let config = SiteDirectory::at(dir)?.config()?;
    let own = own_name(&config, base);
    let required = config.transfer.and_then(|transfer| transfer.required_scope);
    let user_scope = required.clone().unwrap_or_else(|| USER_SCOPE.to_owned());
    let admin_scope = match required {
        Some(required) => format!("{ADMIN_SCOPE} {required}"),
        None => ADMIN_SCOPE.to_owned(),
    };
    let as_user = || Need {
        scope: user_scope,
        audiences: audiences_of(base),
    };
    match (intent, own) {
        (Intent::Submit, _) | (Intent::Manage, None) => Ok(as_user()),
        (Intent::Manage | Intent::Administer, Some(name)) => Ok(Need {
            scope: admin_scope,
            audiences: vec![name],
        }),
        (Intent::Administer, None) => Err(CommandError::Usage(format!(
            "{base} is not the transfer service of the site in {}, whose administrator's token is shown to no other; \
             give the --dir of its own site, or --token-file with a token that it takes, or list it in \
             transfer.audience when it is another name of this one",
            dir.display()
        ))),
    }
}

/// As what a site's service calls itself at this URL; `None`: it is none of this site's.
fn own_name(config: &Config, url: &Url) -> Option<String> {
    let role = config.transfer.as_ref()?;
    if url.scheme() != "https" {
        return None;
    }
    let bare = |host: &str| host.trim_matches(['[', ']']).to_ascii_lowercase();
    let host = bare(url.host_str()?);
    let port = url.port_or_known_default()?;
    let with_port = format!("https://{}:{port}", in_url(&host));
    let is_ours = |name: &&String| {
        let known = Url::parse(name)
            .ok()
            .filter(|known| known.scheme() == "https");
        known.is_some_and(|known| Server::of(&known) == Server::of(url))
            || (bare(name) == host && port == role.listen.port())
    };
    let hosts = config.site.hosts.iter().map(|host| bare(host));
    match port == role.listen.port() && hosts.into_iter().any(|known| known == host) {
        true => Some(with_port),
        false => role.audience.iter().find(is_ours).cloned(),
    }
}

/// What was typed, then the site directory's own service, then the environment.
pub fn find_service(args: &ServiceArgs, environment: &Environment) -> Result<Url, CommandError> {
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
            "name the transfer service: --service URL, --dir DIR, or PENSTOCK_SERVICE".to_owned(),
        )),
    }
}

#[derive(Serialize)]
struct StatusReport {
    #[serde(flatten)]
    job: JobInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<FileInfo>>,
    /// Of a job that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<JobTotals>,
    /// What moves now.
    #[serde(skip_serializing_if = "Option::is_none")]
    moving: Option<Moving>,
    /// The same of each file.
    #[serde(skip)]
    live: LiveBytes,
    /// Why files wait that do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<FileGroup>,
}

/// `penstock status`.
pub async fn status(
    args: StatusArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    let mut reports = BatchResult::new();
    for id in &args.jobs {
        reports.add(id, status_of_one(&service, id, args.files).await);
    }
    reports.conclude(output, |reports| reports.iter().map(status_text).collect())
}

async fn status_of_one(
    service: &TransferService,
    id: &str,
    with_files: bool,
) -> Result<StatusReport, CommandError> {
    let job = service.job(id).await?;
    let files = match with_files || job.is_terminal() {
        true => service.files(id).await?,
        false => Vec::new(),
    };
    let totals = job.is_terminal().then(|| JobTotals::of(&job, &files));
    // Of a job of which something moves, reasons are asked for with its files only.
    let asks = with_files || job.job_state == "SUBMITTED" || job.job_state == "STAGING";
    let waiting = match asks && !job.is_terminal() {
        true => explain::job::waiting(service, id).await?,
        false => Vec::new(),
    };
    let live = match job.is_terminal() {
        true => LiveBytes::default(),
        false => LiveBytes::of(service, std::slice::from_ref(&job.job_id)).await,
    };
    Ok(StatusReport {
        moving: live.of_job(&job.job_id),
        live,
        job,
        files: with_files.then_some(files),
        totals,
        waiting,
    })
}

fn status_text(report: &StatusReport) -> String {
    let mut text = job_line(&report.job);
    if let Some(totals) = &report.totals {
        text += &format!("  {}\n", totals.text());
    }
    if let Some(moving) = &report.moving {
        text += &format!("  {}\n", moving.text());
    }
    for group in &report.waiting {
        text += &group.text("  ");
    }
    for file in report.files.iter().flatten() {
        let moving = report.live.of_file(file.file_id);
        let size = match (moving, file.filesize) {
            (Some(moving), _) => format!(" {}", moving.amounts()),
            (None, Some(size)) => format!(" {}", Bytes(size)),
            (None, None) => String::new(),
        };
        let reason = file.reason.as_ref().filter(|reason| !reason.is_empty());
        let reason = reason
            .map(|reason| format!("\n      {}", one_line(reason)))
            .unwrap_or_default();
        text += &format!(
            "  {:10}{size} {} -> {}{reason}\n",
            one_line(&file.file_state),
            one_line(&file.source_surl),
            one_line(&file.dest_surl)
        );
    }
    text
}

/// A time as FTS writes it, which is UTC and does not say so.
pub fn in_utc(time: &str) -> String {
    match time.ends_with(|last: char| last.is_ascii_digit()) {
        true => format!("{time}Z"),
        false => time.to_owned(),
    }
}

fn job_line(job: &JobInfo) -> String {
    let or_dash = |text: &Option<String>| one_line(text.as_deref().unwrap_or("-")).into_owned();
    let reason = job.reason.as_ref().filter(|reason| !reason.is_empty());
    format!(
        "{} {:13} {}  {} -> {}  {}{}\n",
        job.job_id,
        job.job_state,
        in_utc(&or_dash(&job.submit_time)),
        or_dash(&job.source_se),
        or_dash(&job.dest_se),
        or_dash(&job.vo_name),
        reason
            .map(|reason| format!("  {}", one_line(reason)))
            .unwrap_or_default()
    )
}

#[derive(Serialize)]
struct ListedJob {
    #[serde(flatten)]
    job: JobInfo,
    /// What moves now.
    #[serde(skip_serializing_if = "Option::is_none")]
    moving: Option<Moving>,
}

fn listed_line(listed: &ListedJob) -> String {
    let moving = listed.moving.as_ref();
    let moving = moving.map(|moving| format!("  {}\n", moving.text()));
    job_line(&listed.job) + &moving.unwrap_or_default()
}

/// `penstock list`.
pub async fn list(
    args: ListArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    let jobs = service.list(&args.states, args.limit).await?;
    let open = jobs.iter().filter(|job| !job.is_terminal());
    let open: Vec<String> = open.map(|job| job.job_id.clone()).collect();
    let live = LiveBytes::of(&service, &open).await;
    let jobs: Vec<ListedJob> = jobs
        .into_iter()
        .map(|job| ListedJob {
            moving: live.of_job(&job.job_id),
            job,
        })
        .collect();
    output.show(&jobs, || match (jobs.is_empty(), args.states.is_empty()) {
        (true, true) => "no open jobs; list ended ones with --state FINISHED\n".to_owned(),
        (true, false) => "no jobs in this state\n".to_owned(),
        (false, _) => jobs.iter().map(listed_line).collect(),
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
    let mut canceled = BatchResult::new();
    for id in &args.jobs {
        canceled.add(id, service.cancel(id).await.map_err(CommandError::from));
    }
    canceled.conclude(output, |canceled| canceled.iter().map(job_line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sites_own_service_has_a_name_for_its_administrator() {
        let config = "[site]\nname = \"a\"\nhosts = [\"fts.a.org\", \"::1\"]\n[transfer]\nlisten = \"[::1]:8446\"\n\
                      audience = [\"alias.a.org\", \"https://front.a.org\"]";
        let config = Config::parse(config).expect("valid");
        let check = |url: &str, expected: Option<&str>| {
            let url = Url::parse(url).expect("a URL");
            assert_eq!(own_name(&config, &url).as_deref(), expected, "{url}");
        };
        check("https://fts.a.org:8446", Some("https://fts.a.org:8446"));
        check("https://FTS.a.org:8446/x", Some("https://fts.a.org:8446"));
        check("https://[::1]:8446", Some("https://[::1]:8446"));
        check("https://alias.a.org:8446", Some("alias.a.org"));
        check("https://front.a.org", Some("https://front.a.org"));
        check("https://front.a.org:8446", None);
        check("https://alias.a.org:9000", None);
        check("https://fts.a.org", None);
        check("https://fts.a.org:8443", None);
        check("http://fts.a.org:8446", None);
        check("https://fts.b.org:8446", None);
    }
}
