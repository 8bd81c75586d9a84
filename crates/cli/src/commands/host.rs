//! `penstock host`: what was sampled of a transfer service's host; `penstock host compare`: what separates slow hosts from
//! fast ones.

use super::jobs::{Intent, connect};
use crate::args::{HostArgs, HostCommand, HostCompareArgs, NamedRate};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::directory::SiteDirectory;
use crate::site::host_record::sampler_config;
use penstock_clock::wall_clock;
use penstock_model::TimeWindow;
use penstock_observe::host::compare::{ComparedHost, compare};
use penstock_observe::host::report::HostReport;
use penstock_observe::host::sampler::stored_report;
use penstock_observe::host::table;
use std::fs;
use std::path::Path;

/// `penstock host` and `penstock host compare`.
pub async fn run(
    args: HostArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    if let Some(HostCommand::Compare(args)) = &args.command {
        return compare_hosts(args, output);
    }
    let resolution = args.resolution.map(|span| span.0.as_secs().max(1));
    let resolution = resolution.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
    if let Some(report) = stored(&args, resolution)? {
        output.show(&report, || table::report(&report));
        return Ok(());
    }
    let service = connect(&args.service, Intent::Administer, environment)?;
    let told = service
        .host(args.since.0.as_secs().max(1), resolution)
        .await?;
    let report: HostReport = serde_json::from_value(told)
        .map_err(|why| CommandError::Local(format!("not a report of a host: {why}")))?;
    output.show(&report, || table::report(&report));
    Ok(())
}

/// What the site's directory tells by itself; `None` where its service is to be asked.
fn stored(args: &HostArgs, resolution: Option<u32>) -> Result<Option<HostReport>, CommandError> {
    let Some(dir) = &args.service.access.dir else {
        return match args.offline {
            true => Err(CommandError::Usage("--offline needs --dir".into())),
            false => Ok(None),
        };
    };
    let site = SiteDirectory::at(dir)?;
    let config = site.config()?;
    let has_service = config.transfer.is_some() || args.service.service.is_some();
    if has_service && !args.offline {
        return Ok(None);
    }
    let now = wall_clock();
    let sampler = sampler_config(&site, &config);
    let report = stored_report(
        &sampler,
        TimeWindow {
            from: now - args.since.0,
            to: now,
        },
        resolution,
    );
    let report = report.map_err(|why| CommandError::local(sampler.directory.display(), why))?;
    Ok(Some(report))
}

fn compare_hosts(args: &HostCompareArgs, output: Output) -> Result<(), CommandError> {
    let mut hosts = Vec::new();
    let mut used = Vec::new();
    for path in &args.reports {
        let text = fs::read(path).map_err(|why| CommandError::local(path.display(), why))?;
        let report: HostReport = serde_json::from_slice(&text).map_err(|why| {
            let path = path.display();
            CommandError::Usage(format!(
                "{path} is not a report of `penstock host --json`: {why}"
            ))
        })?;
        let (host, rate) = compared(path, report, &args.rates)?;
        used.extend(rate);
        hosts.push(host);
    }
    let unknown = args.rates.iter().find(|rate| !used.contains(rate));
    if let Some(NamedRate { host, .. }) = unknown {
        return Err(CommandError::Usage(format!(
            "--rate names '{host}', but there is no report of that host"
        )));
    }
    let found = compare(&hosts).map_err(|why| CommandError::Usage(why.to_string()))?;
    output.show(&found, || table::comparison(&found));
    Ok(())
}

/// A host with its rate, and the option that gave it. Reports of one host at two times are told apart by their files.
fn compared(
    path: &Path,
    report: HostReport,
    rates: &[NamedRate],
) -> Result<(ComparedHost, Option<NamedRate>), CommandError> {
    let file = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let given = rates.iter().find(|rate| rate.host == file);
    let given = given.or_else(|| rates.iter().find(|rate| rate.host == report.host));
    let measured = || report.wan_rate();
    let rate = given.map(|given| given.rate.0 as f64).or_else(measured);
    let rate = rate.ok_or_else(|| {
        CommandError::Usage(format!(
            "{}: no WAN interface was sampled; give its rate with --rate '{file}=40 MB/s'",
            path.display()
        ))
    })?;
    let host = ComparedHost {
        name: file,
        rate,
        facts: report.facts,
    };
    Ok((host, given.cloned()))
}
