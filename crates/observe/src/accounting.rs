//! What was moved, for whom, from where to where and how well: figures over rows of any source.
//!
//! Pure. Each figure says whose books it comes from: rows of different views are never added, because they are the same
//! transfers seen twice. A rate states population, window, event, unit and success rule.

pub mod clouds;
pub mod comparison;
mod counters;
pub mod efficiency;
pub mod figures;
mod names;
pub mod page;
pub mod quality;
pub mod reading;
pub mod reconcile;
pub mod servers;
pub mod tables;
mod time_bins;
pub mod utilisation;
mod words;

use crate::rate::{ByteCount, MeasuredRate, Window, WindowRule};
use clouds::Clouds;
use counters::Counters;
use efficiency::{EfficiencyMatrix, EfficiencySums};
use penstock_model::observation::{Attempt, Operation, Sample, View};
use penstock_model::{Bytes, TimeWindow, Timestamp};
use quality::{Quality, QualitySums};
use reading::{FileReading, FileReadings};
use serde::Serialize;
use servers::{ServerLine, ServerSums};
use tables::{AccountTable, TableSums};
use utilisation::{Utilisation, UtilisationSums};

/// Names that are told apart in one table at most; what comes after is counted as [`OTHERS`].
pub const NAMES_MAX: usize = 5_000;
/// The name of what comes after [`NAMES_MAX`].
pub const OTHERS: &str = "(others)";
/// The name of what a source does not tell.
pub const UNKNOWN: &str = "(unknown)";
/// By what a rate counts: an attempt belongs to the moment at which it ended.
pub const EVENT: &str = "the end of an attempt";
/// Which attempts are in the volume that arrived.
pub const SUCCESS_RULE: &str = "attempts that their source calls successful";

/// The columns that accounting reads of an attempt.
pub const COLUMNS: [&str; 29] = [
    "view",
    "operation",
    "outcome",
    "vo",
    "activity",
    "source_host",
    "destination_host",
    "bytes_moved",
    "file_bytes",
    "bytes_read",
    "started",
    "fingerprint",
    "server",
    "pool",
    "client",
    "is_local",
    "source_path",
    "destination_path",
    "file",
    "bytes_written",
    "state",
    "source",
    "line",
    "ended",
    "busy_us",
    "receiver_limited_us",
    "sent_segments",
    "retransmitted_segments",
    "side",
];

/// What a table has rows for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountKey {
    /// VOs.
    Vo,
    Link,
    /// Where bytes came from.
    Source,
    /// Where bytes went.
    Destination,
    /// Servers, or pools where no server is told.
    Server,
    /// Activities.
    Activity,
    /// Days, in UTC.
    Day,
}

impl AccountKey {
    /// Those by which a complete account has tables.
    const COMPLETE: [AccountKey; 6] = [
        AccountKey::Vo,
        AccountKey::Activity,
        AccountKey::Source,
        AccountKey::Destination,
        AccountKey::Link,
        AccountKey::Server,
    ];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            AccountKey::Vo => "VO",
            AccountKey::Link => "link",
            AccountKey::Source => "source",
            AccountKey::Destination => "destination",
            AccountKey::Server => "server",
            AccountKey::Activity => "activity",
            AccountKey::Day => "day",
        }
    }
}

/// A rate with all that is needed to compare it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedRate {
    /// Population, window, unit, what is counted, view.
    #[serde(flatten)]
    pub rate: MeasuredRate,
    /// By which event an attempt belongs to the window.
    pub event: &'static str,
    /// Which attempts are successes.
    pub success_rule: &'static str,
}

impl PublishedRate {
    /// What arrived in a window, as one view saw it. `None`: no time passed.
    fn of_arrived(
        view: View,
        window: Window,
        arrived: Bytes,
        population: String,
    ) -> Option<PublishedRate> {
        let rate = MeasuredRate::over(window, arrived, population, ByteCount::ArrivedFiles)?;
        Some(PublishedRate {
            rate: MeasuredRate { view, ..rate },
            event: EVENT,
            success_rule: SUCCESS_RULE,
        })
    }
}

/// What the figures of a table or plot count: all that is needed to compare them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// Whose attempts, bytes or files, in words.
    pub population: String,
    /// Over which time.
    pub window: Window,
    /// By which event something belongs to a time.
    pub event: &'static str,
    pub unit: &'static str,
    /// Which attempts are successes.
    pub success_rule: &'static str,
    /// Whose books.
    pub view: View,
}

/// All tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    /// Over which time. None: nobody named one, and no record tells one.
    pub window: Option<Window>,
    /// The table that was asked for.
    #[serde(flatten)]
    pub table: AccountTable,
    /// In a complete account, tables by everything else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<AccountTable>,
    /// Source × destination, or their clouds.
    pub efficiency: Vec<EfficiencyMatrix>,
    /// In errors and in incidents.
    pub quality: Vec<Quality>,
    pub servers: Vec<ServerLine>,
    /// What the lines of servers count.
    pub servers_statement: Option<Statement>,
    /// Of whatever has a capacity that is told.
    pub utilisation: Vec<Utilisation>,
    /// Files that were read, those with most bytes first.
    pub readings: Vec<FileReading>,
    /// What the lines of files count.
    pub readings_statement: Option<Statement>,
    /// Rows that tell no end yet: in no figure.
    pub open: u64,
    /// Rows that cannot be true, by what is wrong with them.
    pub impossible: Vec<figures::Impossible>,
}

/// Takes rows one by one.
#[derive(Debug)]
pub struct Accountant {
    tables: Vec<TableSums>,
    clouds: Clouds,
    efficiency: EfficiencySums,
    quality: QualitySums,
    servers: ServerSums,
    counters: Counters,
    utilisation: UtilisationSums,
    readings: FileReadings,
    impossible: figures::ImpossibleRows,
    open: u64,
    begin: Timestamp,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Accountant {
    /// Nothing was taken yet.
    pub fn new(by: AccountKey) -> Accountant {
        Accountant::since(by, TimeWindow::ALL.from)
    }

    /// The same; of an attempt that began before this moment, only the later part is in rates over time.
    pub fn since(by: AccountKey, begin: Timestamp) -> Accountant {
        Accountant {
            tables: vec![TableSums::new(by, begin)],
            clouds: Clouds::default(),
            efficiency: EfficiencySums::default(),
            quality: QualitySums::default(),
            servers: ServerSums::default(),
            counters: Counters::default(),
            utilisation: UtilisationSums::since(begin),
            readings: FileReadings::default(),
            impossible: figures::ImpossibleRows::default(),
            open: 0,
            begin,
            first: None,
            last: None,
        }
    }

    /// With tables by everything, not only by what was asked for.
    pub fn complete(mut self) -> Accountant {
        for by in AccountKey::COMPLETE {
            if self.tables[0].by != by {
                self.tables.push(TableSums::new(by, self.begin));
            }
        }
        self
    }

    /// With storage elements put together as clouds in the matrix of efficiencies.
    pub fn in_clouds(mut self, clouds: Clouds) -> Accountant {
        self.clouds = clouds;
        self
    }

    /// Takes an attempt.
    pub fn take(&mut self, row: &Attempt) {
        self.impossible.look(row);
        let Some(outcome) = row.outcome else {
            self.open += 1;
            return;
        };
        let began = row.started.unwrap_or(row.at).min(row.at);
        self.first = Some(self.first.map_or(began, |first| first.min(began)));
        self.last = Some(self.last.map_or(row.at, |last| last.max(row.at)));
        for table in &mut self.tables {
            table.take(row, outcome, began);
        }
        self.efficiency.take(row, outcome, &self.clouds);
        self.quality.take(row, outcome);
        self.servers.take(row);
        self.readings.take(row);
    }

    /// Takes a sample.
    pub fn take_sample(&mut self, row: &Sample) {
        self.impossible.look_at_sample(row);
        if let Some(row) = self.counters.interval_of(row) {
            self.servers.take_sample(&row);
            self.utilisation.take(&row);
        }
    }

    /// The tables. Without `asked` the window is from the first start to the last end.
    pub fn account(self, asked: Option<TimeWindow>) -> Account {
        let window = match asked {
            Some(TimeWindow { from, to }) => Some(Window {
                from,
                to,
                rule: WindowRule::AsAsked,
            }),
            None => self.first.zip(self.last).map(|(from, to)| Window {
                from,
                to,
                rule: WindowRule::FirstStartToLastEnd,
            }),
        };
        let mut tables = self.tables.into_iter().map(|table| table.table(window));
        let table = tables.next().expect("there is always the one asked for");
        let readings = self.readings.readings();
        let servers = self.servers.lines();
        Account {
            window,
            table,
            others: tables.collect(),
            efficiency: self.efficiency.matrices(window),
            quality: self.quality.of(window),
            servers_statement: window
                .filter(|_| !servers.is_empty())
                .map(|window| servers::statement(&servers, window)),
            servers,
            utilisation: self.utilisation.lines(window),
            readings_statement: window
                .filter(|_| !readings.is_empty())
                .map(reading::statement),
            readings,
            open: self.open,
            impossible: self.impossible.found(),
        }
    }
}

/// Bytes of a file that arrived: of a copy the file's, of a client those that it read or wrote.
pub(crate) fn arrived_of(row: &Attempt) -> Option<Bytes> {
    match row.operation {
        Operation::Copy => row.file_bytes.or(row.bytes_moved),
        Operation::Read
        | Operation::Write
        | Operation::PoolCopy
        | Operation::Recall
        | Operation::Migration => row.bytes_moved.or(row.file_bytes),
        Operation::Removal | Operation::Request => None,
    }
}

fn bytes(sum: u128) -> Bytes {
    Bytes(u64::try_from(sum).unwrap_or(u64::MAX))
}

/// Successes in percent of successes and failures. `None`: nothing ended.
fn efficiency_percent(succeeded: u64, failed: u64) -> Option<f64> {
    let ended = succeeded + failed;
    (ended > 0).then(|| 100.0 * succeeded as f64 / ended as f64)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod week_tests;
