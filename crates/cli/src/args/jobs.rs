//! What can be typed to submit transfers and to learn what became of them.

use super::ServiceArgs;
use super::population::PopulationArgs;
use super::records::{PointInTime, row_view};
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
    /// Source and destination, and both against the given value.
    Both,
    /// The source against the given value.
    Source,
    /// The destination against the given value or the source's.
    Target,
    /// Neither.
    None,
}

/// Options of `submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Where the file is.
    #[arg(required_unless_present = "jobfile", requires = "destination")]
    pub source: Option<String>,
    /// Where it goes.
    pub destination: Option<String>,
    /// What its content must be, as ALGORITHM:hex.
    pub checksum: Option<String>,
    /// A list of files: `source destination [ALGORITHM:checksum]` per line. `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "destination", "checksum"])]
    pub jobfile: Option<PathBuf>,
    /// SOURCE and DESTINATION are directories: submit all files below the one. Directories without files are not made.
    #[arg(short, long, conflicts_with_all = ["jobfile", "checksum"])]
    pub recursive: bool,
    /// With --recursive: only files that fit this pattern, for example '*.root'; repeat it for more.
    #[arg(long, value_name = "PATTERN", requires = "recursive")]
    pub include: Vec<Glob>,
    /// With --recursive: leave out files and directories that fit this pattern; repeat it for more.
    #[arg(long, value_name = "PATTERN", requires = "recursive")]
    pub exclude: Vec<Glob>,
    /// Files per job.
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub files_per_job: u32,
    /// Wait until everything has ended, with progress.
    #[arg(long)]
    pub wait: bool,
    /// Replace destinations that exist.
    #[arg(long)]
    pub overwrite: bool,
    /// Which checksums to verify.
    #[arg(long, value_enum, default_value_t = Verify::Both)]
    pub verify: Verify,
    /// Retries per file. Default: what the service is configured for.
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// 1 (least urgent) to 5.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub priority: u8,
    /// The share label.
    #[arg(long, default_value = "default")]
    pub activity: String,
    /// A token for the sources, when it is another one. A file.
    #[arg(long, value_name = "FILE")]
    pub source_token_file: Option<PathBuf>,
    /// A token for the destinations, when it is another one. A file.
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
    /// Only jobs in this state; repeat it for more. Default: all that have not ended.
    #[arg(long = "state", ignore_case = true, value_parser = one_of(JobState::ALL.map(JobState::name)))]
    pub states: Vec<String>,
    /// How many at most.
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
    /// Parts of the addresses, all of which must be there; or a job's id; or a transfer's number.
    pub words: Vec<String>,
    /// A host at one of its ends, whatever the scheme and the port.
    #[arg(long)]
    pub host: Option<String>,
    /// The source's scheme and host without port.
    #[arg(long = "from", value_name = "STORAGE")]
    pub source: Option<String>,
    /// The destination's, likewise.
    #[arg(long = "to", value_name = "STORAGE")]
    pub destination: Option<String>,
    /// Only those in this state; repeat it for more.
    #[arg(long = "state", ignore_case = true, value_parser = one_of(TransferState::FTS_NAMES))]
    pub states: Vec<String>,
    /// On behalf of this VO.
    #[arg(long)]
    pub vo: Option<String>,
    /// How long ago it was submitted at most; `0s` looks at all. Default: a week, but for a job's files any time.
    #[arg(long)]
    pub since: Option<Span>,
    /// How many at most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Only what is older than the transfer with this number: goes on where another search has stopped.
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
    /// `vo`, `server`, `pool`, `drop` and then its name. Without it: where rates fell and rose.
    pub subject: Option<String>,
    /// The name, after one of these words.
    pub name: Option<String>,
    /// Which time of which record.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// Which time of which record is looked at.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// From this time on: a moment, or so long ago. Default: 24 h ago; for incidents 30 days ago; with a drop's id, one day
    /// before the drop.
    #[arg(long, value_name = "TIME")]
    pub since: Option<PointInTime>,
    /// Before this time. Default: now; for a drop, a day after its begin.
    #[arg(long, value_name = "TIME")]
    pub until: Option<PointInTime>,
    /// Whose rates.
    #[command(flatten)]
    pub population: PopulationArgs,
    /// Length of an interval. Default: a minute, longer for windows beyond a week.
    #[arg(long, value_name = "DURATION")]
    pub resolution: Option<Span>,
    /// Read the record of the site at --dir, whose service need not run.
    #[arg(long, conflicts_with = "records")]
    pub offline: bool,
    /// Read a directory of records that `penstock ingest` has made. Without --since, all of it.
    #[arg(long, value_name = "DIR")]
    pub records: Option<PathBuf>,
    /// Which view of the records: vo or site. Default: that which names both ends of more attempts.
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
