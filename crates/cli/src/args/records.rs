//! What can be typed about records of what happened.

use crate::exit::CommandError;
use clap::{Args, Subcommand, ValueEnum};
use penstock_clock::wall_clock;
use penstock_model::observation::{Family, View};
use penstock_model::quantity::{Size, Span};
use penstock_model::{LinkId, TimeWindow, Timestamp};
use penstock_observe::importing::LineFormat;
use penstock_observe::times;
use penstock_protocol::network::Network;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The window without a begin.
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// A point in time: a moment, or so long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointInTime {
    /// `2026-11-24T03:00:00Z`.
    Moment(Timestamp),
    /// `2h`.
    Ago(Span),
}

impl FromStr for PointInTime {
    type Err = String;
    fn from_str(text: &str) -> Result<PointInTime, String> {
        if let Some(moment) = times::iso(text) {
            return Ok(PointInTime::Moment(moment));
        }
        text.parse().map(PointInTime::Ago).map_err(|_| {
            format!("'{text}' is not a time; write for example 2026-11-24T03:00:00Z, or 2h for two hours ago")
        })
    }
}

impl PointInTime {
    /// The moment.
    pub fn at(self) -> Timestamp {
        match self {
            PointInTime::Moment(at) => at,
            PointInTime::Ago(span) => wall_clock() - span.0,
        }
    }

    /// Between two times: `usual` before the end without a begin, until now without an end. `None`: neither is named.
    pub fn window(
        since: Option<PointInTime>,
        until: Option<PointInTime>,
        usual: Duration,
    ) -> Result<Option<TimeWindow>, CommandError> {
        if since.is_none() && until.is_none() {
            return Ok(None);
        }
        let to = until.map_or_else(wall_clock, PointInTime::at);
        let from = since.map_or(to - usual, PointInTime::at);
        match from < to {
            true => Ok(Some(TimeWindow { from, to })),
            false => Err(CommandError::Usage(
                "--since is not before --until (or now)".into(),
            )),
        }
    }
}

/// Which rows.
#[derive(Debug, Args)]
pub struct WindowArgs {
    /// Start of the time window: a time such as 2026-11-24T03:00:00Z, or an age such as 2h. Default: no limit.
    #[arg(long, value_name = "TIME")]
    pub since: Option<PointInTime>,
    /// End of the time window. Default: no limit.
    #[arg(long, value_name = "TIME")]
    pub until: Option<PointInTime>,
}

impl WindowArgs {
    /// As a store reads it.
    pub fn window(&self) -> TimeWindow {
        TimeWindow {
            from: self.since.map_or(TimeWindow::ALL.from, PointInTime::at),
            to: self.until.map_or(TimeWindow::ALL.to, PointInTime::at),
        }
    }
}

/// What a source writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SourceFormat {
    /// FTS3's monitoring messages, one JSON document per line.
    Fts,
    /// dCache's billing files, text or JSON.
    Dcache,
    /// XRootD's monitoring: live datagrams (--listen), or a capture by tcpdump.
    Xrootd,
    /// Rucio's traces and messages, one JSON document per line.
    Rucio,
    /// Any log, read with a mapping file (--mapping): HPSS, TReqS, CTA, Enstore.
    Log,
    /// `ss -tinm`.
    Ss,
    /// `sar -n DEV`, `sar -d`.
    Sar,
}

impl SourceFormat {
    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            SourceFormat::Fts => "fts",
            SourceFormat::Dcache => "dcache",
            SourceFormat::Xrootd => "xrootd",
            SourceFormat::Rucio => "rucio",
            SourceFormat::Log => "log",
            SourceFormat::Ss => "ss",
            SourceFormat::Sar => "sar",
        }
    }

    /// How its lines are read; of the others that depends on more.
    pub fn lines(self) -> Option<LineFormat> {
        match self {
            SourceFormat::Fts => Some(LineFormat::Fts),
            SourceFormat::Dcache => Some(LineFormat::Dcache),
            SourceFormat::Rucio => Some(LineFormat::Rucio),
            SourceFormat::Ss => Some(LineFormat::Ss),
            SourceFormat::Sar => Some(LineFormat::Sar),
            SourceFormat::Xrootd | SourceFormat::Log => None,
        }
    }
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).ok_or_else(|| {
        format!("'{text}' is not a network; write for example 192.0.2.7 or 192.0.2.0/24")
    })
}

fn zone(text: &str) -> Result<i64, String> {
    let zone = times::zone_milliseconds(text);
    zone.ok_or_else(|| format!("'{text}' is not a time zone; write for example +01:00 or Z"))
}

/// Options of `ingest`.
#[derive(Debug, Args)]
pub struct IngestArgs {
    /// The format of the input.
    pub format: SourceFormat,
    /// The files; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// The directory of records; it is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub into: PathBuf,
    /// Continue to read what is appended to the files, until SIGTERM or Ctrl-C.
    #[arg(long, conflicts_with = "listen")]
    pub follow: bool,
    /// Receive datagrams of XRootD's monitoring at this address, until SIGTERM or Ctrl-C.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Accept datagrams from this network, such as 192.0.2.0/24; repeat it for more. Default: this machine only. Datagrams
    /// are not authenticated in any other way: name only the networks of your own servers.
    #[arg(long, value_name = "NETWORK", requires = "listen", value_parser = network)]
    pub from: Vec<Network>,
    /// Stop listening when the file system of the records has less free space.
    #[arg(
        long,
        value_name = "SIZE",
        requires = "listen",
        default_value = "1 GiB"
    )]
    pub free_min: Size,
    /// The year of dates without one.
    #[arg(long)]
    pub year: Option<i64>,
    /// The time zone of times without one. Default: UTC.
    #[arg(long, value_parser = zone, allow_hyphen_values = true)]
    pub zone: Option<i64>,
    /// When a capture without timestamps was made.
    #[arg(long, value_name = "TIME")]
    pub at: Option<PointInTime>,
    /// The host on which a capture was made, or the storage element of a billing file.
    #[arg(long)]
    pub server: Option<String>,
    /// The data challenge that the input belongs to.
    #[arg(long)]
    pub challenge: Option<String>,
    /// The mapping file of a log.
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Take the VO from the beginning of dCache's storage class.
    #[arg(long)]
    pub storage_class_is_vo: bool,
    /// The name of the source in the rows. Default: format and file name.
    #[arg(long)]
    pub source: Option<String>,
}

/// How records are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One line of JSON per row.
    Ndjson,
    /// A directory with one Parquet file per family of rows.
    Parquet,
}

/// `penstock records`.
#[derive(Debug, Subcommand)]
pub enum RecordsCommand {
    /// Print rows, or count them.
    #[command(after_help = "Examples:\n  \
        penstock records show records --since 1d --limit 20\n  \
        penstock records show records --family incident\n  \
        penstock records show records --since 2026-11-24T03:00:00Z --until 2026-11-24T04:00:00Z --json\n\n\
        Times are UTC; rows contain milliseconds since 1970-01-01T00:00:00Z.")]
    Show(RecordsShowArgs),
    /// Export rows to files for other programs.
    Export(RecordsExportArgs),
    /// Collect a site's own records: its transfers, and the traffic of its storage element.
    Collect(RecordsCollectArgs),
    /// Import exported rows.
    Import(RecordsImportArgs),
    /// Remove old records, whole days at a time.
    Remove(RecordsRemoveArgs),
}

fn family(text: &str) -> Result<Family, String> {
    Family::from_word(text).ok_or_else(|| {
        let words: Vec<&str> = Family::ALL.iter().map(|family| family.word()).collect();
        format!("the families are {}", words.join(", "))
    })
}

/// Options of `records show`.
#[derive(Debug, Args)]
pub struct RecordsShowArgs {
    /// The directory of records.
    pub directory: PathBuf,
    /// Which rows.
    #[command(flatten)]
    pub window: WindowArgs,
    /// Only this family: attempt, sample, change, incident.
    #[arg(long, value_parser = family)]
    pub family: Option<Family>,
    /// Maximum number of rows to print.
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
}

/// Options of `records export`.
#[derive(Debug, Args)]
pub struct RecordsExportArgs {
    /// The directory of records.
    pub directory: PathBuf,
    /// The file to write; for Parquet, the directory. It must not exist.
    #[arg(long, value_name = "PATH")]
    pub to: PathBuf,
    /// The format.
    #[arg(long, value_enum, default_value = "ndjson")]
    pub format: ExportFormat,
    /// Which rows.
    #[command(flatten)]
    pub window: WindowArgs,
}

/// Options of `records collect`.
#[derive(Debug, Args)]
pub struct RecordsCollectArgs {
    /// The site directory. The site may be running.
    #[arg(long)]
    pub dir: PathBuf,
    /// The directory of records; it is created if it does not exist. Rows that were collected before are not added again.
    #[arg(long, value_name = "DIR")]
    pub into: PathBuf,
    /// Only this view: `vo` for the transfer service, `site` for the storage element. Default: both.
    #[arg(long, value_parser = view)]
    pub view: Option<View>,
}

fn view(text: &str) -> Result<View, String> {
    match View::from_word(text) {
        Some(view @ (View::Vo | View::Site)) => Ok(view),
        Some(View::Network) | None => Err("the views of a site are vo and site".to_owned()),
    }
}

/// What some link may be called.
pub(crate) fn link_name(text: &str) -> Result<String, String> {
    match LinkId::is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("write a link as SOURCE-DESTINATION; either may be *".to_owned()),
    }
}

/// Any view of rows.
pub(super) fn row_view(text: &str) -> Result<View, String> {
    View::from_word(text).ok_or_else(|| "the views are vo, site and network".to_owned())
}

/// Options of `records import`.
#[derive(Debug, Args)]
pub struct RecordsImportArgs {
    /// Exported files. The format is detected.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// The directory of records; it is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub into: PathBuf,
    /// Import files again whose content was imported before. Their rows will be duplicated.
    #[arg(long)]
    pub again: bool,
    /// Import nothing if the file system of the records has less free space.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB")]
    pub free_min: Size,
}

/// Options of `records remove`.
#[derive(Debug, Args)]
pub struct RecordsRemoveArgs {
    /// The directory of records.
    pub directory: PathBuf,
    /// Remove days that ended before this time: a time, or an age such as 90d.
    #[arg(long, value_name = "TIME")]
    pub before: PointInTime,
}

/// What a table of accounting has rows for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AccountBy {
    /// VOs.
    Vo,
    /// Links: source and destination.
    Link,
    /// Sources.
    Source,
    /// Destinations.
    Destination,
    /// Servers and pools.
    Server,
    /// Activities.
    Activity,
    /// Days.
    Day,
}

/// Options of `account`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AccountArgs {
    /// Compare two views or check a published table instead.
    #[command(subcommand)]
    pub command: Option<AccountCommand>,
    /// The directory of records.
    pub directory: Option<PathBuf>,
    /// Which rows.
    #[command(flatten)]
    pub window: WindowArgs,
    /// How to group the rows of the table.
    #[arg(long, value_enum, default_value = "vo")]
    pub by: AccountBy,
    /// Write a page with plots and all tables to this file. The page is self-contained, so it can be sent to others.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Group storage elements in the efficiency matrix: a TOML file with one line per cloud, such as
    /// DE = ["se.desy.de", "*.gridka.de"].
    #[arg(long, value_name = "FILE")]
    pub clouds: Option<PathBuf>,
}

/// `penstock account reconcile`.
#[derive(Debug, Subcommand)]
pub enum AccountCommand {
    /// Compare the records of a VO and a site about the same transfers, and explain the difference of their volumes.
    #[command(after_help = "Examples:\n  \
        penstock account reconcile vo-records site-records --since 7d\n  \
        penstock account reconcile vo-records site-records --since 2026-11-01T00:00:00Z --until 2026-11-08T00:00:00Z\n\n\
        Rows of the same copy are joined by its name, which both ends record (docs/observe/records.md). Exits with 0 when \
        the whole difference is explained, otherwise with 6.")]
    Reconcile(ReconcileArgs),
    /// Check a published table: report each row that contradicts another, with the arithmetic.
    #[command(after_help = "Examples:\n  penstock account published table.json\n  \
        penstock account published table.json --compare ATLAS CMS\n\n\
        table.json: {\"seconds\": 86400, \"total\": {\"name\": \"all\", \"files\": 2, \"volume_bytes\": 20, \"bytes_per_second\": 0, \
        \"mean_file_bytes\": 10}, \"parts\": [ … rows like total … ], \
        \"rates\": [{\"name\": \"A, by day\", \"of\": \"A\", \"seconds\": 43200, \"bytes_per_second\": 1}]}. `rates` is optional: \
        the rate of a row in a part of the window. Exits with 0 when no row contradicts another, otherwise with 6.")]
    Published(PublishedArgs),
}

/// Options of `account published`.
#[derive(Debug, Args)]
pub struct PublishedArgs {
    /// The table as JSON: `seconds` (length of its window), the row `total`, and `parts`; each row has name, files,
    /// volume_bytes, bytes_per_second and mean_file_bytes.
    pub table: PathBuf,
    /// Instead, split the difference of two rates (names of rows or of `rates`) into file sizes and numbers of files.
    #[arg(long, num_args = 2, value_names = ["FIRST", "SECOND"])]
    pub compare: Vec<String>,
}

/// Options of `account reconcile`.
#[derive(Debug, Args)]
pub struct ReconcileArgs {
    /// The records of the first view.
    pub first: PathBuf,
    /// The records of the second view.
    pub second: PathBuf,
    /// The window of the first view.
    #[command(flatten)]
    pub window: WindowArgs,
    /// Start of the second view's window, if different.
    #[arg(long, value_name = "TIME")]
    pub second_since: Option<PointInTime>,
    /// End of the second view's window, if different.
    #[arg(long, value_name = "TIME")]
    pub second_until: Option<PointInTime>,
}
