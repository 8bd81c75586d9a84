//! What can be typed to submit transfers and to learn what became of them.

use super::ServiceArgs;
use super::population::PopulationArgs;
use super::records::{PointInTime, row_view};
use super::stage::tape_span;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use penstock_field_tools::path_filter::Glob;
use penstock_model::observation::View;
use penstock_model::quantity::Span;
use penstock_model::{JobState, TransferState};
use std::path::PathBuf;

/// Which ends of a transfer have their checksum verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// Source and destination, each against the given checksum.
    Both,
    /// The source against the given checksum.
    Source,
    /// The destination against the given checksum, or that of the source.
    Target,
    /// Neither.
    None,
}

/// Options of `submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// The URL of the source.
    #[arg(required_unless_present = "jobfile", requires = "destination")]
    pub source: Option<String>,
    /// The URL of the destination.
    pub destination: Option<String>,
    /// The checksum that the file must have, as ALGORITHM:hex.
    pub checksum: Option<String>,
    /// A list of files: `source destination [ALGORITHM:checksum]` per line. `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "destination", "checksum"])]
    pub jobfile: Option<PathBuf>,
    /// SOURCE and DESTINATION are directories: submit all files below SOURCE. Empty directories are not created.
    #[arg(short, long, conflicts_with_all = ["jobfile", "checksum"])]
    pub recursive: bool,
    /// With --recursive: only files that match this pattern, for example '*.root'; repeat it for more.
    #[arg(long, value_name = "PATTERN", requires = "recursive")]
    pub include: Vec<Glob>,
    /// With --recursive: leave out files and directories that match this pattern; repeat it for more.
    #[arg(long, value_name = "PATTERN", requires = "recursive")]
    pub exclude: Vec<Glob>,
    /// Files per job.
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub files_per_job: u32,
    /// Wait until all jobs have ended, and show progress.
    #[arg(long)]
    pub wait: bool,
    /// Replace existing destination files.
    #[arg(long)]
    pub overwrite: bool,
    /// Which checksums to verify.
    #[arg(long, value_enum, default_value_t = Verify::Both)]
    pub verify: Verify,
    /// Retries per file. Default: that of the service.
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Priority, from 1 (least urgent) to 5.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub priority: u8,
    /// The activity, which decides the job's share of the VO's slots.
    #[arg(long, default_value = "default")]
    pub activity: String,
    /// The sources are on tape: bring them to disk first, within this time (seconds, or a span such as 6h).
    #[arg(long, value_name = "TIME", value_parser = tape_span)]
    pub bring_online: Option<Span>,
    /// How long the sources stay on disk (pinned). Default: as their storage element decides.
    #[arg(long, value_name = "TIME", value_parser = tape_span)]
    pub copy_pin_lifetime: Option<Span>,
    /// The destinations go to tape: a file has arrived only when it is on tape, within this time after the copy.
    #[arg(long, value_name = "TIME", value_parser = tape_span)]
    pub archive_timeout: Option<Span>,
    /// Delete each source once its copy is on tape and has been verified.
    #[arg(long, requires = "archive_timeout", conflicts_with = "overwrite")]
    pub delete_source: bool,
    /// A file with the token for the sources, if they need a different one.
    #[arg(long, value_name = "FILE")]
    pub source_token_file: Option<PathBuf>,
    /// A file with the token for the destinations, if they need a different one.
    #[arg(long, value_name = "FILE")]
    pub destination_token_file: Option<PathBuf>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The jobs.
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// Show each file.
    #[arg(long)]
    pub files: bool,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// A state by its word in any case; the service knows it in capitals.
fn one_of<const N: usize>(states: [&'static str; N]) -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(states).map(|state| state.to_ascii_uppercase())
}

/// Options of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only jobs in this state; repeat it for more. Default: all open jobs.
    #[arg(long = "state", ignore_case = true, value_parser = one_of(JobState::ALL.map(JobState::name)))]
    pub states: Vec<String>,
    /// Maximum number of jobs.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The jobs.
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `find`.
#[derive(Debug, Args)]
pub struct FindArgs {
    /// Parts of the source or destination URL, all of which must match; or a job's id; or a transfer's number.
    pub words: Vec<String>,
    /// Only transfers from or to this host, with any scheme and port.
    #[arg(long)]
    pub host: Option<String>,
    /// The source's scheme and host without port.
    #[arg(long = "from", value_name = "STORAGE")]
    pub source: Option<String>,
    /// The destination's, likewise.
    #[arg(long = "to", value_name = "STORAGE")]
    pub destination: Option<String>,
    /// Only transfers in this state; repeat it for more.
    #[arg(long = "state", ignore_case = true, value_parser = one_of(TransferState::FTS_NAMES))]
    pub states: Vec<String>,
    /// Only transfers of this VO.
    #[arg(long)]
    pub vo: Option<String>,
    /// Only transfers submitted within this time; `0s` for all. Default: a week; for a job's id, all.
    #[arg(long)]
    pub since: Option<Span>,
    /// Maximum number of transfers.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Only transfers older than the one with this number: continues an earlier search.
    #[arg(long, value_name = "NUMBER")]
    pub before: Option<u64>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A job's id, a transfer's number or a drop's id; or one of the words `transfer`, `job`, `file`, `path`, `link`,
    /// `vo`, `server`, `pool`, `drop`, followed by a name. Default: list the drops and rises of rates.
    pub subject: Option<String>,
    /// The name, after one of these words.
    pub name: Option<String>,
    /// Of a job: show the details of each failure as they were reported, and what to do.
    #[arg(short, long)]
    pub verbose: bool,
    /// Which time of which record.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// Which record to read, and for which time.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Start of the time window: a time such as 2026-11-24T03:00:00Z, or an age such as 2h. Default: 24 h ago; for
    /// incidents 30 days ago; with a drop's id, one day before the drop.
    #[arg(long, value_name = "TIME")]
    pub since: Option<PointInTime>,
    /// End of the time window. Default: now; for a drop, one day after it began.
    #[arg(long, value_name = "TIME")]
    pub until: Option<PointInTime>,
    /// Whose rates.
    #[command(flatten)]
    pub population: PopulationArgs,
    /// Length of an interval. Default: a minute, longer for windows beyond a week.
    #[arg(long, value_name = "DURATION")]
    pub resolution: Option<Span>,
    /// Read the record of the site at --dir directly; its service does not have to run.
    #[arg(long, conflicts_with = "records")]
    pub offline: bool,
    /// Read a directory of records made by `penstock ingest`. Without --since, all of it.
    #[arg(long, value_name = "DIR")]
    pub records: Option<PathBuf>,
    /// Which view of the records: vo or site. Default: the one that names both ends of more attempts.
    #[arg(long, value_name = "VIEW", requires = "records", value_parser = row_view)]
    pub view: Option<View>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `nodes`.
#[derive(Debug, Args)]
pub struct NodesArgs {
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}
