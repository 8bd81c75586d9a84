//! What was moved, for whom, from where to where and how well: figures over rows of any source.
//!
//! Pure. Each figure says whose books it comes from: rows of different views are never added, because they are the same
//! transfers seen twice. A rate states population, window, event, unit and success rule.

pub mod comparison;
pub mod figures;
pub mod reading;
pub mod reconcile;
mod words;

use crate::rate::{ByteCount, MeasuredRate, Window, WindowRule};
use penstock_model::observation::{Attempt, Operation, Outcome, Sample, SubjectKind, View};
use penstock_model::{Bytes, TimeWindow, Timestamp};
use reading::{FileReading, FileReadings};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names that are told apart in one table at most; what comes after is counted as [`OTHERS`].
pub const NAMES_MAX: usize = 5_000;
/// Kinds of failure that are told apart for one name at most.
pub const FINGERPRINTS_MAX: usize = 1_000;
/// Days of names that are told apart at most.
const DAYS_MAX: usize = 200_000;
/// The name of what comes after [`NAMES_MAX`].
pub const OTHERS: &str = "(others)";
/// The name of what a source does not tell.
pub const UNKNOWN: &str = "(unknown)";
/// By what a rate counts: an attempt belongs to the moment at which it ended.
pub const EVENT: &str = "the end of an attempt";
/// Which attempts are in the volume that arrived.
pub const SUCCESS_RULE: &str = "attempts that their source calls successful";

/// The columns that accounting reads of an attempt.
pub const COLUMNS: [&str; 27] = [
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

/// One row of a table: attempts of one name in one view.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccountRow {
    /// Whose books.
    pub view: View,
    /// What was attempted.
    pub operation: Operation,
    /// The VO, link, server, activity or day.
    pub name: String,
    /// Attempts that ended well.
    pub succeeded: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were stopped by who had asked for them: in no rate and no quality.
    pub aborted: u64,
    /// Kinds of failure: one full disk is one.
    pub incidents: u64,
    /// Successes in percent of successes and failures (the dashboard's efficiency). `None`: nothing ended.
    pub efficiency_percent: Option<f64>,
    /// Bytes of files that arrived, as far as they are told.
    pub arrived: Bytes,
    /// Bytes that moved, also of attempts that failed, as far as they are told.
    pub moved: Bytes,
    /// Successes of which no bytes are told: the volume is that of the others.
    pub without_bytes: u64,
    /// The mean rate of what arrived, over the whole window.
    pub rate: Option<PublishedRate>,
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

/// Volumes of one name in one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Day {
    /// Whose books.
    pub view: View,
    /// What was attempted.
    pub operation: Operation,
    /// The VO, link, server or activity.
    pub name: String,
    /// `2026-11-24`, in UTC.
    pub day: String,
    /// Bytes of files that arrived in it.
    pub arrived: Bytes,
    /// The same, over 86,400 s.
    pub megabits_per_second: f64,
    /// Bytes that arrived since the beginning of the window.
    pub cumulative: Bytes,
}

/// What passed a server.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ServerLine {
    /// Its name.
    pub server: String,
    /// Bytes that attempts wrote to it.
    pub written: Bytes,
    /// Bytes that attempts read from it.
    pub read: Bytes,
    /// Bytes that came in at its interfaces, where samples tell it.
    pub interfaces_in: Option<Bytes>,
    /// Bytes that went out.
    pub interfaces_out: Option<Bytes>,
    /// Bytes that are told to have stayed inside the site for each other byte: what is relayed. `None`: not told.
    pub relay_ratio: Option<f64>,
    /// What its interfaces carried in percent of what they could have, while that was told.
    pub utilisation_percent: Option<f64>,
}

/// All tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    /// Over which time. None: nobody named one, and no record tells one.
    pub window: Option<Window>,
    /// What the first table has rows for.
    pub by: AccountKey,
    /// The table.
    pub lines: Vec<AccountRow>,
    /// Volumes day by day.
    pub days: Vec<Day>,
    pub servers: Vec<ServerLine>,
    /// Files that were read, those with most bytes first.
    pub readings: Vec<FileReading>,
    /// Rows that tell no end yet: in no figure.
    pub open: u64,
    /// Rows that cannot be true, by what is wrong with them.
    pub impossible: Vec<figures::Impossible>,
}

#[derive(Debug, Default)]
struct Sum {
    succeeded: u64,
    failed: u64,
    aborted: u64,
    fingerprints: BTreeSet<Arc<str>>,
    arrived: u128,
    moved: u128,
    without_bytes: u64,
}

#[derive(Debug, Default)]
struct ServerSum {
    written: u128,
    read: u128,
    local: u128,
    others: u128,
    is_place_told: bool,
    interfaces_in: Option<u128>,
    interfaces_out: Option<u128>,
    carried: u128,
    capacity: f64,
}

/// Takes rows one by one.
#[derive(Debug)]
pub struct Accountant {
    by: AccountKey,
    sums: BTreeMap<(View, Operation, String), Sum>,
    days: BTreeMap<((View, Operation, String), i64), u128>,
    servers: BTreeMap<String, ServerSum>,
    readings: FileReadings,
    impossible: figures::ImpossibleRows,
    open: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Accountant {
    /// Nothing was taken yet.
    pub fn new(by: AccountKey) -> Accountant {
        Accountant {
            by,
            sums: BTreeMap::new(),
            days: BTreeMap::new(),
            servers: BTreeMap::new(),
            readings: FileReadings::default(),
            impossible: figures::ImpossibleRows::default(),
            open: 0,
            first: None,
            last: None,
        }
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
        let name = self.name_of(row);
        let key = (row.view, row.operation, name);
        let key = match self.sums.len() >= NAMES_MAX && !self.sums.contains_key(&key) {
            true => (row.view, row.operation, OTHERS.to_owned()),
            false => key,
        };
        let mut day_key = key.clone();
        if self.by == AccountKey::Day {
            day_key.2 = "(all)".to_owned();
        } else if self.days.len() >= DAYS_MAX {
            day_key.2 = OTHERS.to_owned();
        }
        let sum = self.sums.entry(key).or_default();
        let moved = row.bytes_moved.map(|moved| u128::from(moved.0));
        sum.moved += moved.unwrap_or(0);
        match outcome {
            Outcome::Success => {
                sum.succeeded += 1;
                match arrived_of(row) {
                    Some(arrived) => {
                        sum.arrived += u128::from(arrived.0);
                        let day = row.at.unix_seconds().div_euclid(86_400);
                        *self.days.entry((day_key, day)).or_default() += u128::from(arrived.0);
                    }
                    None => {
                        let has_bytes =
                            ![Operation::Removal, Operation::Request].contains(&row.operation);
                        sum.without_bytes += u64::from(has_bytes);
                    }
                }
            }
            Outcome::Failure => {
                sum.failed += 1;
                if sum.fingerprints.len() < FINGERPRINTS_MAX {
                    let unknown = || UNKNOWN.into();
                    sum.fingerprints
                        .insert(row.fingerprint.clone().unwrap_or_else(unknown));
                }
            }
            Outcome::Abort => sum.aborted += 1,
        }
        self.take_server(row);
        self.readings.take(row);
    }

    fn take_server(&mut self, row: &Attempt) {
        let pool = || row.pool.as_ref().map(|pool| pool.as_str().to_owned());
        let server = row.server.as_ref().map(|server| server.to_string());
        let (Some(server), Some(moved)) = (server.or_else(pool), row.bytes_moved) else {
            return;
        };
        let moved = u128::from(moved.0);
        let sum = server_of(&mut self.servers, server);
        match row.operation {
            Operation::Read | Operation::Migration => sum.read += moved,
            Operation::Write | Operation::Recall | Operation::Copy | Operation::PoolCopy => {
                sum.written += moved;
            }
            Operation::Removal | Operation::Request => {}
        }
        let is_pool_copy = row.operation == Operation::PoolCopy;
        let is_local = row.is_local.or(is_pool_copy.then_some(true));
        sum.is_place_told |= is_local.is_some();
        match is_local {
            Some(true) => sum.local += moved,
            Some(false) | None => sum.others += moved,
        }
    }

    /// Takes a sample of an interface, with its capacity where it is told.
    pub fn take_sample(&mut self, row: &Sample) {
        self.impossible.look_at_sample(row);
        if row.subject_kind != SubjectKind::Interface {
            return;
        }
        // A counter without an interval runs from a beginning that is not known.
        let (Some(server), Some(interval)) = (&row.server, row.interval_ms) else {
            return;
        };
        let sum = server_of(&mut self.servers, server.to_string());
        let add = |total: &mut Option<u128>, bytes: Option<Bytes>| {
            if let Some(bytes) = bytes {
                *total = Some(total.unwrap_or(0) + u128::from(bytes.0));
            }
        };
        add(&mut sum.interfaces_in, row.bytes_in);
        add(&mut sum.interfaces_out, row.bytes_out);
        if let Some(capacity) = row.capacity_bytes_per_second {
            let busiest = row.bytes_in.max(row.bytes_out).unwrap_or_default();
            sum.carried += u128::from(busiest.0);
            sum.capacity += capacity as f64 * interval as f64 / 1000.0;
        }
    }

    fn name_of(&self, row: &Attempt) -> String {
        let text = |text: Option<&str>| text.unwrap_or(UNKNOWN).to_owned();
        match self.by {
            AccountKey::Vo => text(row.vo.as_ref().map(|vo| vo.as_str())),
            AccountKey::Activity => text(row.activity.as_ref().map(|activity| activity.as_str())),
            AccountKey::Link => format!(
                "{} → {}",
                row.source_host.as_deref().unwrap_or(UNKNOWN),
                row.destination_host.as_deref().unwrap_or(UNKNOWN)
            ),
            AccountKey::Source => text(row.source_host.as_deref()),
            AccountKey::Destination => text(row.destination_host.as_deref()),
            AccountKey::Server => {
                let pool = row.pool.as_ref().map(|pool| pool.as_str());
                text(row.server.as_deref().or(pool))
            }
            AccountKey::Day => day_name(row.at.unix_seconds().div_euclid(86_400)),
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
        let lines = self.sums.into_iter();
        let lines = lines.map(|((view, operation, name), sum)| {
            line_of(view, operation, name, sum, window, self.by)
        });
        Account {
            window,
            by: self.by,
            lines: lines.collect(),
            days: days_of(self.days),
            servers: self
                .servers
                .into_iter()
                .map(|(server, sum)| server_line(server, sum))
                .collect(),
            readings: self.readings.readings(),
            open: self.open,
            impossible: self.impossible.found(),
        }
    }
}

fn server_of(servers: &mut BTreeMap<String, ServerSum>, name: String) -> &mut ServerSum {
    let name = match servers.len() >= NAMES_MAX && !servers.contains_key(&name) {
        true => OTHERS.to_owned(),
        false => name,
    };
    servers.entry(name).or_default()
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

/// As rates name it.
pub(crate) fn rate_view(view: View) -> crate::rate::View {
    match view {
        View::Vo => crate::rate::View::TransferService,
        View::Site => crate::rate::View::Site,
        View::Network => crate::rate::View::Network,
    }
}

fn bytes(sum: u128) -> Bytes {
    Bytes(u64::try_from(sum).unwrap_or(u64::MAX))
}

fn line_of(
    view: View,
    operation: Operation,
    name: String,
    sum: Sum,
    window: Option<Window>,
    by: AccountKey,
) -> AccountRow {
    let ended = sum.succeeded + sum.failed;
    let arrived = bytes(sum.arrived);
    let what = match by {
        AccountKey::Vo => "VO",
        AccountKey::Link => "link",
        AccountKey::Source => "source",
        AccountKey::Destination => "destination",
        AccountKey::Server => "server",
        AccountKey::Activity => "activity",
        AccountKey::Day => "day",
    };
    let population = format!(
        "{} attempts of {what} {name} that arrived",
        operation.word()
    );
    let rate = window.and_then(|window| {
        MeasuredRate::over(window, arrived, population, ByteCount::ArrivedFiles)
    });
    AccountRow {
        view,
        operation,
        name,
        succeeded: sum.succeeded,
        failed: sum.failed,
        aborted: sum.aborted,
        incidents: sum.fingerprints.len() as u64,
        efficiency_percent: (ended > 0).then(|| 100.0 * sum.succeeded as f64 / ended as f64),
        arrived,
        moved: bytes(sum.moved),
        without_bytes: sum.without_bytes,
        rate: rate.map(|rate| PublishedRate {
            rate: MeasuredRate {
                view: rate_view(view),
                ..rate
            },
            event: EVENT,
            success_rule: SUCCESS_RULE,
        }),
    }
}

fn day_name(day: i64) -> String {
    let (year, month, day, _) = Timestamp(day.saturating_mul(86_400_000)).civil();
    format!("{year:04}-{month:02}-{day:02}")
}

fn days_of(days: BTreeMap<((View, Operation, String), i64), u128>) -> Vec<Day> {
    let mut cumulative: BTreeMap<(View, Operation, String), u128> = BTreeMap::new();
    let days = days
        .into_iter()
        .map(|(((view, operation, name), day), arrived)| {
            let total = cumulative
                .entry((view, operation, name.clone()))
                .or_default();
            *total += arrived;
            Day {
                view,
                operation,
                name,
                day: day_name(day),
                arrived: bytes(arrived),
                megabits_per_second: arrived as f64 * 8.0 / 1e6 / 86_400.0,
                cumulative: bytes(*total),
            }
        });
    days.collect()
}

fn server_line(server: String, sum: ServerSum) -> ServerLine {
    let has_ratio = sum.is_place_told && sum.others > 0;
    ServerLine {
        server,
        written: bytes(sum.written),
        read: bytes(sum.read),
        interfaces_in: sum.interfaces_in.map(bytes),
        interfaces_out: sum.interfaces_out.map(bytes),
        relay_ratio: has_ratio.then(|| sum.local as f64 / sum.others as f64),
        utilisation_percent: (sum.capacity > 0.0)
            .then(|| 100.0 * sum.carried as f64 / sum.capacity),
    }
}

#[cfg(test)]
mod tests;
