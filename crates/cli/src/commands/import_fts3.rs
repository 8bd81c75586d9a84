//! `penstock import-fts3`: takes the configuration of an FTS3 over, as its API tells it, from files or from itself.
//!
//! Everything is compared with what is set already, so that it can be run again and again. What this service does
//! not do is told line by line and left out.

use crate::args::AccessArgs;
use crate::args::settings::ImportFts3Args;
use crate::commands::access::Access;
use crate::commands::jobs::{Intent, connect};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::fts3_configuration::{ApiConfiguration, Step};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::settings_api::SettingPlace;
use penstock_field_tools::transfer_api::TransferService;
use serde::Serialize;
use serde_json::Value;
use url::Url;

/// A configuration has at most a few thousand rows.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// What is asked of an FTS3, and of our service.
const KINDS: [&str; 5] = ["links", "se", "global", "shares", "activity_shares"];

#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    changes: Vec<String>,
    left_out: Vec<String>,
    unchanged: usize,
    failed: Vec<String>,
}

/// `penstock import-fts3`.
pub async fn run(
    args: ImportFts3Args,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let mut found = ApiConfiguration::default();
    for source in &args.sources {
        match Url::parse(source) {
            Ok(url) if url.scheme() == "https" => {
                ask(&mut found, &their_service(&args, url, environment)?).await?;
            }
            _ => {
                let value = read(source)?;
                found
                    .add(value)
                    .map_err(|why| CommandError::Usage(format!("{source}: {why}")))?;
            }
        }
    }
    let service = connect(&args.service, Intent::Administer, environment)?;
    let mut current = ApiConfiguration::default();
    for kind in KINDS {
        current
            .add_kind(kind, settings(&service, kind).await?)
            .map_err(|why| CommandError::Unreachable(format!("the service's {kind}: {why}")))?;
    }
    let plan = found.against(&current);
    let mut report = Report {
        dry_run: args.dry_run,
        changes: plan.steps.iter().map(|step| step.told.clone()).collect(),
        left_out: plan.left_out,
        unchanged: plan.unchanged,
        failed: Vec::new(),
    };
    if !args.dry_run {
        for step in &plan.steps {
            if let Err(why) = take(&service, step).await {
                report.failed.push(format!("{}: {why}", step.told));
            }
        }
    }
    let outcome = match report.failed.len() {
        0 => Ok(()),
        failed => Err(CommandError::SomeFailed(format!(
            "{failed} of {} changes were refused",
            report.changes.len()
        ))),
    };
    output.conclude(&report, || text(&report), outcome)
}

fn their_service(
    args: &ImportFts3Args,
    base: Url,
    environment: &Environment,
) -> Result<TransferService, CommandError> {
    let access = AccessArgs {
        dir: None,
        token: None,
        token_file: args.source_token_file.clone(),
        capath: args.source_capath.clone(),
        token_over_http: false,
    };
    let access = Access::open(&access, environment, 1)?;
    let credentials = access.credentials([]);
    Ok(TransferService::new(access.client, base, credentials))
}

async fn settings(service: &TransferService, kind: &str) -> Result<Value, RemoteError> {
    let place = SettingPlace {
        kind,
        name: None,
        query: &[],
    };
    service.settings(place).await
}

/// An FTS3 of the day does not answer for each kind: what it does not know was not set there.
async fn ask(found: &mut ApiConfiguration, service: &TransferService) -> Result<(), CommandError> {
    for kind in KINDS {
        match settings(service, kind).await {
            Ok(value) => found
                .add_kind(kind, value)
                .map_err(|why| CommandError::Unreachable(format!("its {kind}: {why}")))?,
            Err(RemoteError::NotFound { .. }) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

fn read(path: &str) -> Result<Value, CommandError> {
    let failed = |why: &dyn std::fmt::Display| CommandError::Usage(format!("{path}: {why}"));
    let size = std::fs::metadata(path).map_err(|why| failed(&why))?.len();
    if size > FILE_BYTES_MAX {
        return Err(failed(&"it is too large for a configuration"));
    }
    let bytes = std::fs::read(path).map_err(|why| failed(&why))?;
    serde_json::from_slice(&bytes).map_err(|why| failed(&why))
}

async fn take(service: &TransferService, step: &Step) -> Result<(), RemoteError> {
    let place = SettingPlace {
        kind: step.kind,
        name: None,
        query: &[],
    };
    service.set(place, &step.form).await.map(drop)
}

fn text(report: &Report) -> String {
    let lines = |mark: &str, lines: &[String]| -> String {
        lines
            .iter()
            .map(|line| format!("{mark} {line}\n"))
            .collect()
    };
    let done = match report.dry_run {
        true => "changes found, none applied",
        false => "changed",
    };
    format!(
        "{}{}{}{} {done}; {} unchanged, {} left out, {} refused\n",
        lines("+", &report.changes),
        lines("-", &report.left_out),
        lines("!", &report.failed),
        report.changes.len() - report.failed.len(),
        report.unchanged,
        report.left_out.len(),
        report.failed.len()
    )
}
