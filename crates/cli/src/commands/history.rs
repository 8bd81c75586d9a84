//! `penstock history`: how much a transfer service remembers, until when it will, and who holds what up.
//!
//! Reads the record beside the running service, or without one, and changes nothing.

use crate::args::HistoryArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::{DatabasePlace, Transfer};
use crate::site::directory::SiteDirectory;
use crate::site::store;
use penstock_clock::wall_clock;
use penstock_decide::history::{HistoryFollower, Oldest, Retention, what_is_held};
use penstock_journal::{HistoryFacts, JournalReader};
use penstock_model::quantity::Span;
use penstock_model::text::plural;
use penstock_model::{Bytes, Timestamp};
use penstock_persistence::journal::{PostgresReader, SqliteReader};
use penstock_persistence::positions::SinkPositions;
use penstock_persistence::postgres::Database;
use serde::Serialize;
use std::time::Duration;

/// What is told, for programs.
#[derive(Debug, Serialize)]
struct HistoryReport {
    size_bytes: u64,
    /// Null: the database does not say.
    free_bytes: Option<u64>,
    /// The number of the ledger's last entry.
    sequence_last: u64,
    /// The first entry that is kept, and when it was made (milliseconds since 1970).
    sequence_oldest: Option<u64>,
    entry_oldest: Option<i64>,
    /// When the job ended that goes next.
    job_ended_oldest: Option<i64>,
    sample_oldest: Option<i64>,
    minute_oldest: Option<i64>,
    kept: RetentionReport,
    removed: RemovedHistory,
    sinks: Vec<Sink>,
    held: Option<SinkHold>,
}

/// Spans as in the configuration; `ever` where nothing goes.
#[derive(Debug, Serialize)]
struct RetentionReport {
    history: String,
    samples: String,
    minutes: String,
    audit: String,
}

#[derive(Debug, Serialize)]
struct RemovedHistory {
    jobs: u64,
    transfers: u64,
    entries: u64,
    samples: u64,
    minutes: u64,
    /// Of jobs that ended up to then, not all are kept.
    until: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Sink {
    name: String,
    /// The last entry that it has taken; null: it has not begun.
    taken: Option<u64>,
}

#[derive(Debug, Serialize)]
struct SinkHold {
    sinks: Vec<String>,
    since_seconds: u64,
    goes_in_seconds: u64,
}

/// `penstock history`.
pub fn run(
    args: &HistoryArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let site = SiteDirectory::at(&args.dir)?;
    let config = site.config()?;
    let Some(transfer) = &config.transfer else {
        return Err(CommandError::Usage(format!(
            "{} has no [transfer] section, so there is no history",
            site.config_file().display()
        )));
    };
    let pass_file = environment.database_passwords.as_deref();
    let (facts, followers) = match store::database(&site, transfer, pass_file)? {
        Some(database) => in_postgres(&database, transfer)?,
        None => in_files(&site, transfer)?,
    };
    let told = tell(wall_clock(), &facts, &transfer.retention(), &followers);
    output.show(&told, || text(&told));
    Ok(())
}

type RecordedHistory = (HistoryFacts, Vec<HistoryFollower>);

fn in_files(site: &SiteDirectory, transfer: &Transfer) -> Result<RecordedHistory, CommandError> {
    let DatabasePlace::File(file) = &transfer.database else {
        unreachable!("an address gives a database")
    };
    let database = site.resolve(file);
    if !database.exists() {
        return Err(CommandError::Local(format!(
            "{} does not exist yet: start `penstock serve` first",
            database.display()
        )));
    }
    let facts = SqliteReader::open(&database, 1).and_then(|reader| reader.history());
    let facts = facts.map_err(|why| CommandError::local(database.display(), why))?;
    let positions = site.resolve(&transfer.message_positions);
    let taken = |name: &str| {
        let text = std::fs::read_to_string(positions.join(name)).ok()?;
        text.trim().parse().ok()
    };
    Ok((facts, followers(transfer, taken)))
}

fn in_postgres(database: &Database, transfer: &Transfer) -> Result<RecordedHistory, CommandError> {
    let local = |why: &dyn std::fmt::Display| CommandError::Local(why.to_string());
    let facts = PostgresReader::open(database, 1).and_then(|reader| reader.history());
    let positions = SinkPositions::open(database).map_err(|why| local(&why))?;
    let taken = |name: &str| positions.read(name).ok()?;
    Ok((
        facts.map_err(|why| local(&why))?,
        followers(transfer, taken),
    ))
}

/// As far as their positions can be read.
fn followers(transfer: &Transfer, taken: impl Fn(&str) -> Option<u64>) -> Vec<HistoryFollower> {
    let sinks = transfer.messages.iter();
    sinks
        .map(|sink| HistoryFollower {
            name: sink.name.clone(),
            taken: taken(&sink.name),
        })
        .collect()
}

fn tell(
    now: Timestamp,
    facts: &HistoryFacts,
    retention: &Retention,
    followers: &[HistoryFollower],
) -> HistoryReport {
    let kept = |span: Option<Duration>| {
        span.map_or_else(|| "ever".to_owned(), |span| Span(span).to_string())
    };
    let oldest = facts.ended_oldest.map(|oldest| Oldest {
        ended: oldest.at,
        sequence: oldest.sequence,
    });
    let held = what_is_held(now, retention, followers, oldest);
    let pruned = &facts.pruned;
    HistoryReport {
        size_bytes: facts.size_bytes,
        free_bytes: facts.free_bytes,
        sequence_last: facts.sequence_last,
        sequence_oldest: facts.entry_oldest.map(|(sequence, _)| sequence),
        entry_oldest: facts.entry_oldest.map(|(_, at)| at.0),
        job_ended_oldest: facts.ended_oldest.map(|oldest| oldest.at.0),
        sample_oldest: facts.sample_oldest.map(|at| at.0),
        minute_oldest: facts.minute_oldest.map(|at| at.0),
        kept: RetentionReport {
            history: kept(retention.history),
            samples: kept(retention.samples),
            minutes: kept(retention.minutes),
            audit: kept(retention.audit),
        },
        removed: RemovedHistory {
            jobs: pruned.jobs,
            transfers: pruned.transfers,
            entries: pruned.entries,
            samples: pruned.samples,
            minutes: pruned.minutes,
            until: pruned.until.map(|at| at.0),
        },
        sinks: followers
            .iter()
            .map(|one| Sink {
                name: one.name.clone(),
                taken: one.taken,
            })
            .collect(),
        held: held.map(|held| SinkHold {
            sinks: held.by,
            since_seconds: held.since.as_secs(),
            goes_in_seconds: held.left.as_secs(),
        }),
    }
}

fn text(told: &HistoryReport) -> String {
    let date = |at: Option<i64>| {
        at.map_or("none".to_owned(), |at| {
            format!("{}Z", Timestamp(at).to_fts())
        })
    };
    let free = told.free_bytes.map_or_else(String::new, |free| {
        format!(", including {} free for new entries", Bytes(free))
    });
    let mut text = format!("on disk          {}{free}\n", Bytes(told.size_bytes));
    text += &format!("oldest entry     {}\n", date(told.entry_oldest));
    text += &format!(
        "oldest ended job {} (kept for {})\n",
        date(told.job_ended_oldest),
        told.kept.history
    );
    text += &format!(
        "oldest sample    {} (kept for {})\n",
        date(told.sample_oldest),
        told.kept.samples
    );
    text += &format!(
        "oldest minute    {} (kept for {})\n",
        date(told.minute_oldest),
        told.kept.minutes
    );
    text += &format!("audit trail      (kept for {})\n", told.kept.audit);
    let removed = &told.removed;
    text += &match removed.until {
        None => "removed          nothing yet\n".to_owned(),
        Some(until) => format!(
            "removed          {} with {} that ended before {}Z; {}\n",
            plural(removed.jobs, "job"),
            plural(removed.transfers, "file"),
            Timestamp(until).to_fts(),
            plural(removed.samples, "sample")
        ),
    };
    for sink in &told.sinks {
        let behind = match sink.taken {
            Some(taken) => format!("lag: {} entries", told.sequence_last.saturating_sub(taken)),
            None => "nothing received yet".to_owned(),
        };
        text += &format!("sink             {} {behind}\n", sink.name);
    }
    if let Some(held) = &told.held {
        text += &format!(
            "cleanup delayed  by {} for {}; entries are removed in {} at the latest\n",
            held.sinks.join(", "),
            Span(Duration::from_secs(held.since_seconds)),
            Span(Duration::from_secs(held.goes_in_seconds))
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_journal::OldestEnded;

    #[test]
    fn people_read_what_is_kept_and_who_holds_it_up() {
        let day = Duration::from_secs(86_400);
        let retention = Retention {
            history: Some(90 * day),
            samples: Some(30 * day),
            minutes: Some(400 * day),
            audit: None,
            held_max: 30 * day,
        };
        let now = Timestamp(100 * 86_400_000);
        let facts = HistoryFacts {
            size_bytes: 2_000_000,
            free_bytes: Some(500_000),
            sequence_last: 90,
            entry_oldest: Some((3, Timestamp(0))),
            ended_oldest: Some(OldestEnded {
                at: Timestamp(5 * 86_400_000),
                sequence: 10,
            }),
            ..HistoryFacts::default()
        };
        let followers = [HistoryFollower {
            name: "broker".into(),
            taken: Some(9),
        }];
        let told = tell(now, &facts, &retention, &followers);
        assert_eq!(
            text(&told),
            "on disk          2.0 MB, including 500.0 kB free for new entries\n\
             oldest entry     1970-01-01T00:00:00Z\n\
             oldest ended job 1970-01-06T00:00:00Z (kept for 90d)\n\
             oldest sample    none (kept for 30d)\n\
             oldest minute    none (kept for 400d)\n\
             audit trail      (kept for ever)\n\
             removed          nothing yet\n\
             sink             broker lag: 81 entries\n\
             cleanup delayed  by broker for 5d; entries are removed in 25d at the latest\n"
        );
    }
}
