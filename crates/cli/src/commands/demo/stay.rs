//! `penstock demo --stay`: what there is to look at while the sites keep running. One link gets a limit, and one job some
//! files to copy again over it and one that is missing.

use super::data::DemoData;
use super::sites::DemoSites;
use super::{Live, demo_directory};
use crate::args::{AccessArgs, ServiceArgs};
use crate::commands::access::Access;
use crate::commands::jobs::{Intent, connect_by, end_tokens};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::stop_signals::StopSignals;
use penstock_field_tools::job_list::Entry;
use penstock_field_tools::remote::below;
use penstock_field_tools::settings_api::SettingPlace;
use penstock_field_tools::transfer_api::{SubmitOptions, TapeOptions};
use penstock_model::text::plural;
use penstock_model::{Bytes, FileUrl, Rate};
use serde::Serialize;
use url::Url;

/// Files that are copied again.
const FILES_MAX: usize = 20;
/// About how long that takes.
const SECONDS: u64 = 120;
/// The limit is not lower than this.
const RATE_MIN: Rate = Rate(100_000);
/// FTS's unit of throughput.
const MIB: f64 = 1024.0 * 1024.0;
/// What the missing file is called.
const MISSING: &str = "not-there";

/// The job to look at, and the limit that delays it.
#[derive(Serialize)]
pub struct StayReport {
    /// Address of the site's door.
    north: String,
    south: String,
    /// The login link of the live page.
    live: String,
    job: String,
    files: usize,
    bytes_per_second_max: Rate,
    /// To try.
    commands: Vec<String>,
}

/// Sets the limit and submits the job.
pub async fn prepare(
    data: &DemoData,
    sites: &DemoSites,
    live: &Live,
    environment: &Environment,
    options: SubmitOptions,
) -> Result<StayReport, CommandError> {
    let service = ServiceArgs {
        service: None,
        access: AccessArgs {
            dir: Some(sites.north.directory.clone()),
            ..AccessArgs::default()
        },
    };
    let access = Access::open(&service.access, environment, 1)?;
    let again = &data.files[..data.files.len().min(FILES_MAX)];
    let bytes = Bytes(again.iter().map(|file| file.size.0).sum());
    let rate = Rate(bytes.0 / SECONDS).max(RATE_MIN);
    let rule = serde_json::json!({
        "symbolicname": "demo",
        "source": sites.north.storage_id(),
        "destination": sites.south.storage_id(),
        "min_active": 1,
        "max_active": 1,
        "max_throughput": rate.0 as f64 / MIB,
    });
    let links = SettingPlace {
        kind: "links",
        name: None,
        query: &[],
    };
    let operator = connect_by(&access, &service, Intent::Administer, environment)?;
    operator.set(links, &rule).await?;

    let [from, to] = [demo_directory(&sites.north)?, again_directory(sites)?];
    let missing = [MISSING.to_owned()];
    let names = again.iter().map(|file| &file.names[..]);
    let entry = |names: &[String]| {
        let url = |base: &Url| {
            FileUrl::parse(below(base, names)?.as_str())
                .map_err(|why| CommandError::Usage(why.to_string()))
        };
        Ok::<_, CommandError>(Entry {
            source: url(&from)?,
            destination: url(&to)?,
            checksum: None,
        })
    };
    // The missing one first, so that it is seen to fail while the others are queued.
    let entries = std::iter::once(&missing[..]).chain(names).map(entry);
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let options = SubmitOptions {
        tokens: end_tokens::for_job(&access, &entries, TapeOptions::default())?,
        ..options
    };
    let user = connect_by(&access, &service, Intent::Submit, environment)?;
    let job = user.submit(&entries, &options).await?;
    Ok(StayReport {
        commands: commands(sites, &job)?,
        north: format!("{}/", sites.north.door),
        south: format!("{}/", sites.south.door),
        live: live.link.clone(),
        job,
        files: entries.len(),
        bytes_per_second_max: rate,
    })
}

fn again_directory(sites: &DemoSites) -> Result<Url, CommandError> {
    let again = format!("{}/demo-again", sites.south.door);
    Url::parse(&again).map_err(|why| CommandError::Usage(format!("{again}: {why}")))
}

/// With the path of this program, which need not be where a shell looks.
fn commands(sites: &DemoSites, job: &str) -> Result<Vec<String>, CommandError> {
    let program = std::env::current_exe()
        .map_err(|why| CommandError::local("cannot find the path of this program", why))?;
    let dir = sites.north.directory.display();
    let program = program.display();
    Ok(vec![
        format!("{program} explain --dir {dir} {job}"),
        format!("{program} top --dir {dir}"),
        format!("{program} login-link --dir {dir} --admin"),
        format!("{program} ls --dir {dir} -l {}/demo/", sites.south.door),
    ])
}

impl StayReport {
    pub fn text(&self, live: &Live) -> String {
        let commands = self.commands.iter();
        let commands: String = commands.map(|line| format!("  {line}\n")).collect();
        format!(
            "\nThe sites keep running until Ctrl-C:\n  north    {}\n  south    {}\n  live     {}   ({})\n\n\
             A job copies {} again, one at a time and at {} at most; one more is missing at its source. To look at it:\n{commands}",
            self.north,
            self.south,
            self.live,
            live.remark(),
            plural(self.files as u64 - 1, "file"),
            self.bytes_per_second_max,
        )
    }
}

/// Until somebody ends the demo, or a site ends by itself.
pub async fn until_stopped(
    sites: &mut DemoSites,
    signals: &mut StopSignals,
) -> Result<(), CommandError> {
    tokio::select! {
        biased;
        () = signals.received() => Ok(()),
        why = sites.one_ended() => Err(CommandError::Local(why)),
    }
}
