//! `penstock demo`: two real sites on this machine, a real data set, bulk jobs between them, and the proof
//! that every byte arrived. What it does, anyone could do by hand with the other commands.

mod data;
mod sites;
mod stay;

use crate::args::{AccessArgs, DemoArgs, ServiceArgs};
use crate::commands::access::Access;
use crate::commands::access::Purpose;
use crate::commands::access_links::{LoginRequest, make_login_link};
use crate::commands::files::open;
use crate::commands::jobs::{Intent, connect_by, end_tokens, wait};
use crate::commands::progress::{View, shown, watched};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::stop_signals::StopSignals;
use data::DemoData;
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_field_tools::bulk_copy::{ExistingCopy, FileOutcome, Options, upload_all};
use penstock_field_tools::job_list::Entry;
use penstock_field_tools::progress::Progress;
use penstock_field_tools::remote::{Remote, below};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::transfer_api::{
    JobTokens, SubmitOptions, TapeOptions, Totals, TransferService,
};
use penstock_field_tools::verify::{ExpectedCopy, Verification, verify_all};
use penstock_journal::JournalReader;
use penstock_model::text::plural;
use penstock_model::{Bytes, ChecksumAlgorithm, FileUrl, Rate, TimeSpan, Timestamp, TransferId};
use penstock_observe::BandwidthReport;
use penstock_persistence::journal::SqliteReader;
use serde::Serialize;
use sites::{DemoSite, DemoSites};
use stay::StayReport;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// Files per job, as bulk testers submit them.
const FILES_PER_JOB: usize = 200;
/// Files written or looked at at once.
const PARALLEL: usize = 8;
/// How often the service is asked for its overview.
const POLL: Duration = Duration::from_millis(500);
/// How long the printed login link can be opened, and the session lasts that it gives; and for those who stay.
const LIVE_LIFETIME: Duration = Duration::from_secs(3600);
const STAY_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// After a file has arrived its bytes are in a sample, and that in the record.
const SAMPLED_WITHIN: Duration = Duration::from_millis(1_500);

/// What was proved, for `--json`.
#[derive(Serialize)]
struct DemoReport {
    report: BandwidthReport,
    verification: Verification,
    directory: Option<PathBuf>,
    /// What runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    stay: Option<StayReport>,
}

/// The live page for somebody with a browser.
pub struct Live {
    /// Its login link.
    pub link: String,
    lifetime: Duration,
}

impl Live {
    /// Asks the running site for a login link.
    async fn of(
        site: &DemoSite,
        lifetime: Duration,
        environment: &Environment,
    ) -> Result<Live, CommandError> {
        let service = ServiceArgs {
            service: None,
            access: AccessArgs {
                dir: Some(site.directory.clone()),
                ..AccessArgs::default()
            },
        };
        let request = LoginRequest {
            is_admin: true,
            session: lifetime,
            open_within: lifetime,
        };
        let made = make_login_link(&service, request, environment).await?;
        Ok(Live {
            link: made.link,
            lifetime,
        })
    }

    fn remark(&self) -> String {
        format!(
            "works once, within {}; browsers warn, because the CA is private",
            TimeSpan(self.lifetime)
        )
    }
}

/// `penstock demo`.
pub async fn run(
    args: DemoArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let data = DemoData::choose(&args)?;
    // Those who stay see a part of it copied once more.
    data::check_space(
        &environment.temporary,
        data.total(),
        if args.stay { 3 } else { 2 },
    )?;
    let mut signals = StopSignals::listen()?;
    let mut sites = DemoSites::make(environment, args.keep)?;
    output.say(format_args!("Two sites in {}", sites.directory().display()));
    let shown = tokio::select! {
        shown = show(&args, &data, &mut sites, environment, output) => shown,
        () = signals.received() => {
            Err(CommandError::Interrupted("stopped; both sites are shut down".to_owned()))
        }
    };
    let outcome = match shown {
        Ok(()) if args.stay => stay::until_stopped(&mut sites, &mut signals).await,
        shown => shown,
    };
    sites.stop().await;
    outcome
}

/// Everything up to the report.
async fn show(
    args: &DemoArgs,
    data: &DemoData,
    sites: &mut DemoSites,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let lifetime = match args.stay {
        true => STAY_LIFETIME,
        false => LIVE_LIFETIME,
    };
    sites.start().await?;
    let live = Live::of(&sites.north, lifetime, environment).await?;
    let (report, verification) = play(data, sites, &live, environment, output).await?;
    let mut demo = DemoReport {
        report,
        verification,
        directory: args.keep.then(|| sites.directory().to_owned()),
        stay: None,
    };
    let outcome = judge(&demo);
    if args.stay && outcome.is_ok() {
        let prepared = stay::prepare(data, sites, &live, environment, job_options());
        demo.stay = Some(prepared.await?);
    }
    output.conclude(&demo, || text(&demo, &live), outcome)
}

async fn play(
    data: &DemoData,
    sites: &DemoSites,
    live: &Live,
    environment: &Environment,
    output: Output,
) -> Result<(BandwidthReport, Verification), CommandError> {
    for site in [&sites.north, &sites.south] {
        output.say(format_args!("  {:8} {}/", site.name, site.door));
    }
    output.say(format_args!(
        "  live     {}   ({})",
        live.link,
        live.remark()
    ));
    let access = AccessArgs {
        dir: Some(sites.north.directory.clone()),
        ..AccessArgs::default()
    };
    let [from, to] = [demo_directory(&sites.north)?, demo_directory(&sites.south)?];
    let remote = open(
        &[from.clone(), to.clone()],
        Purpose::Modify,
        &access,
        environment,
        PARALLEL,
    )?;

    let loaded = load(&remote, data, &from, output).await?;
    let entries = pairs(data, &loaded, &from, &to)?;
    let args = ServiceArgs {
        service: None,
        access,
    };
    let access = Access::open(&args.access, environment, PARALLEL)?;
    let service = connect_by(&access, &args, Intent::Submit, environment)?;
    let transfers = move_all(&access, &service, &entries, data.total(), output).await?;
    let ended = wall_clock();
    let verification = verify(&remote, data, loaded, &to, output).await?;
    let journal = sites.north.directory.join("state/transfer.sqlite");
    Ok((report(journal, transfers, ended).await?, verification))
}

fn demo_directory(site: &DemoSite) -> Result<Url, CommandError> {
    Url::parse(&format!("{}/demo", site.door))
        .map_err(|why| CommandError::Usage(format!("{}: {why}", site.door)))
}

/// Writes the data set to the first site; gives back what each file is.
async fn load(
    remote: &Remote,
    data: &DemoData,
    to: &Url,
    output: Output,
) -> Result<Vec<FileOutcome>, CommandError> {
    output.say(format_args!(
        "Loading {} files, {}, into north",
        data.files.len(),
        data.total()
    ));
    let started = Instant::now();
    remote.make_directories(to).await?;
    for names in &data.directories {
        remote.make_directories(&below(to, names)?).await?;
    }
    let options = Options::new(PARALLEL, ExistingCopy::Replace, ChecksumAlgorithm::Adler32);
    let progress = Arc::new(Progress::new());
    let outcomes = shown(
        &progress,
        output,
        upload_all(remote, data.uploads(to)?, options, &progress),
    )
    .await;
    let loaded = outcomes
        .into_iter()
        .collect::<Result<Vec<_>, RemoteError>>()?;
    let rate = Rate::over(data.total(), started.elapsed()).unwrap_or_default();
    output.say(format_args!(
        "  loaded in {:.1} ({rate})",
        TimeSpan(started.elapsed())
    ));
    Ok(loaded)
}

fn pairs(
    data: &DemoData,
    loaded: &[FileOutcome],
    from: &Url,
    to: &Url,
) -> Result<Vec<Entry>, CommandError> {
    let url = |base: &Url, names: &[String]| {
        FileUrl::parse(below(base, names)?.as_str())
            .map_err(|why| CommandError::Usage(why.to_string()))
    };
    let entry = |(file, arrived): (&data::DemoFile, &FileOutcome)| {
        Ok(Entry {
            source: url(from, &file.names)?,
            destination: url(to, &file.names)?,
            checksum: Some(arrived.checksum.clone()),
        })
    };
    data.files.iter().zip(loaded).map(entry).collect()
}

/// Submits everything as bulk jobs and watches until all have ended. Gives back the ids of the transfers.
async fn move_all(
    access: &Access,
    service: &TransferService,
    entries: &[Entry],
    total: Bytes,
    output: Output,
) -> Result<Vec<TransferId>, CommandError> {
    let options = job_options();
    let mut ids = Vec::new();
    for part in entries.chunks(FILES_PER_JOB) {
        let options = SubmitOptions {
            tokens: end_tokens::for_job(access, part, TapeOptions::default())?,
            ..options.clone()
        };
        ids.push(service.submit(part, &options).await?);
    }
    output.say(format_args!(
        "Moving them to south: {}, up to {FILES_PER_JOB} files each",
        plural(ids.len() as u64, "job")
    ));
    let seen = Mutex::new(Totals::default());
    let uncounted = Progress::new();
    let waiting = async {
        tokio::select! {
            ended = wait::for_end(service, &ids, &uncounted) => ended,
            never = follow(service, &seen) => match never {},
        }
    };
    let files = entries.len() as u64;
    let ended = watched(output, waiting, |_| {
        let totals = *seen.lock();
        View {
            done: Bytes(totals.moved_bytes),
            total,
            text: moving(totals, files, total),
        }
    })
    .await?;
    let transfers = ended
        .iter()
        .flat_map(|job| &job.files)
        .map(|file| TransferId(file.file_id));
    Ok(transfers.collect())
}

fn job_options() -> SubmitOptions {
    SubmitOptions {
        verify: "both",
        overwrite: false,
        retries: None,
        priority: 3,
        activity: "default".to_owned(),
        label: Some("penstock demo".to_owned()),
        tape: TapeOptions::default(),
        tokens: JobTokens::default(),
    }
}

async fn follow(service: &TransferService, seen: &Mutex<Totals>) -> std::convert::Infallible {
    loop {
        // An overview that does not come is only a picture that stands still.
        if let Ok(overview) = service.overview().await {
            *seen.lock() = overview.totals;
        }
        tokio::time::sleep(POLL).await;
    }
}

fn moving(totals: Totals, files: u64, total: Bytes) -> String {
    let failed = if totals.failed > 0 {
        format!(", {} failed", totals.failed)
    } else {
        String::new()
    };
    format!(
        "{}/{files} files, {}/{total}, {}, {} moving, {} waiting{failed}",
        totals.finished,
        Bytes(totals.moved_bytes),
        Rate(totals.rate_bytes_per_second),
        totals.active,
        totals.submitted
    )
}

async fn verify(
    remote: &Remote,
    data: &DemoData,
    loaded: Vec<FileOutcome>,
    to: &Url,
    output: Output,
) -> Result<Verification, CommandError> {
    output.say("Verifying every checksum end to end");
    let expect = |(file, arrived): (&data::DemoFile, FileOutcome)| {
        Ok(ExpectedCopy {
            copy: below(to, &file.names)?,
            size: arrived.size,
            checksum: arrived.checksum,
        })
    };
    let expected = data
        .files
        .iter()
        .zip(loaded)
        .map(expect)
        .collect::<Result<Vec<_>, RemoteError>>()?;
    Ok(verify_all(remote, expected, PARALLEL).await)
}

async fn report(
    journal: PathBuf,
    transfers: Vec<TransferId>,
    ended: Timestamp,
) -> Result<BandwidthReport, CommandError> {
    let read = tokio::task::spawn_blocking(move || {
        let reader =
            SqliteReader::open(&journal, 1).map_err(|why| CommandError::Local(why.to_string()))?;
        let reader: Arc<dyn JournalReader> = Arc::new(reader);
        wait_for_sample(&reader, ended);
        penstock_observe::report_of(&reader, "the demo's jobs", &transfers)
            .map_err(|why| CommandError::Local(why.to_string()))
    });
    read.await
        .map_err(|why| CommandError::local("making the report", why))?
}

/// Waits until what moved last is in the record: each second has one sample of a link on which something moved.
fn wait_for_sample(reader: &Arc<dyn JournalReader>, ended: Timestamp) {
    let end = ended + SAMPLED_WITHIN;
    while wall_clock() < end {
        let sampled = reader.samples_between(ended, end);
        if sampled.is_ok_and(|samples| !samples.is_empty()) {
            return;
        }
        std::thread::sleep(SAMPLED_WITHIN / 20);
    }
}

fn text(demo: &DemoReport, live: &Live) -> String {
    let found = &demo.verification;
    let mut text = format!("\n{}\n", demo.report);
    text += &format!(
        "Verified: {}/{} checksums agree end to end; {} files ({}) were read back in full\n",
        found.agreed, found.files, found.read_back_files, found.read_back_bytes
    );
    text += &found
        .problems
        .iter()
        .map(|problem| format!("  wrong: {problem}\n"))
        .collect::<String>();
    if let Some(directory) = &demo.directory {
        text += &format!(
            "Kept: {0}; penstock serve --dir {0}/north\n",
            directory.display()
        );
    }
    if let Some(stay) = &demo.stay {
        text += &stay.text(live);
    }
    text
}

fn judge(demo: &DemoReport) -> Result<(), CommandError> {
    let transfers = &demo.report.transfers;
    if transfers.finished != transfers.total {
        let missing = transfers.total - transfers.finished;
        return Err(CommandError::SomeFailed(format!(
            "{missing} of {} files did not arrive",
            transfers.total
        )));
    }
    match demo.verification.is_good() {
        true => Ok(()),
        false => Err(CommandError::Verification(
            "some copies differ from their originals".to_owned(),
        )),
    }
}
