//! FTS3's monitoring messages, told to brokers and files: start, complete and state of each transfer, and how links are.
//!
//! They are read from the ledger, which is durable and in order, from where each sink had come to: so whatever
//! happens while a broker is away is told when it is back, and what had been told when the process was killed is told
//! again at most once more. Nothing waits for a sink.

mod composing;
mod following;
mod link_tally;
mod position;
mod sink;

pub use sink::{SinkConfig, SinkTarget};

use crate::leader_requests::LeaderSeat;
use crate::ledger_followers::Mark;
use crate::service::Service;
use composing::MonitoringMessage;
use following::Follower;
use link_tally::LinkState;
use penstock_journal::{JournalError, JournalReader};
use penstock_persistence::positions::SinkPositions;
use penstock_persistence::postgres::Database;
use penstock_protocol::tls::ClientTls;
use penstock_protocol::told::RepeatedErrors;
use position::PositionStore;
use sink::{Sink, SinkError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Ledger entries that are told at once.
const ENTRIES_AT_ONCE: usize = 200;
/// The wait before a sink that failed is tried again; doubled each time up to the longest.
const PATIENCE_FIRST: Duration = Duration::from_millis(500);
const PATIENCE_LONGEST: Duration = Duration::from_secs(60);

/// The wait before a record that could not be read is read again; doubled each time up to the longest.
const RECORD_PATIENCE_FIRST: Duration = Duration::from_secs(1);
const RECORD_PATIENCE_LONGEST: Duration = Duration::from_secs(8);

/// What is told, and to whom.
#[derive(Debug, Clone)]
pub struct MessagesConfig {
    /// By which name the service calls itself (`endpnt`).
    pub endpoint: String,
    /// What remembers how far each sink was told.
    pub positions: Positions,
    /// Who is told.
    pub sinks: Vec<SinkConfig>,
}

/// Where is remembered how far each sink was told.
#[derive(Debug, Clone)]
pub enum Positions {
    /// A directory with a file for each sink.
    Directory(PathBuf),
    /// The database that holds the ledger, so that whichever node leads goes on from there.
    Database(Box<Database>),
}

impl Positions {
    /// Where that of each sink is. Blocks.
    fn open(&self, sinks: &[SinkConfig]) -> std::io::Result<Vec<PositionStore>> {
        let names = sinks.iter().map(|sink| &sink.name);
        match self {
            Positions::Directory(directory) => {
                std::fs::create_dir_all(directory)?;
                Ok(names
                    .map(|name| PositionStore::File(directory.join(name)))
                    .collect())
            }
            Positions::Database(database) => {
                let positions = SinkPositions::open(database).map_err(std::io::Error::other)?;
                let positions = Arc::new(positions);
                let of = |sink: &String| PositionStore::Database {
                    positions: positions.clone(),
                    sink: sink.clone(),
                };
                Ok(names.map(of).collect())
            }
        }
    }
}

/// Starts to tell, each sink in a task of its own, until the shutdown signal.
pub async fn start(
    config: MessagesConfig,
    service: &Arc<Service>,
    tls: &ClientTls,
    shutdown: &watch::Receiver<bool>,
) -> std::io::Result<()> {
    if config.sinks.is_empty() {
        return Ok(());
    }
    let (places, sinks) = (config.positions, config.sinks.clone());
    let positions = tokio::task::spawn_blocking(move || places.open(&sinks)).await??;
    for (sink, position) in config.sinks.into_iter().zip(positions) {
        let feed = SinkFeed {
            mark: service.ledger_followers.join(&sink.name),
            name: sink.name.clone(),
            optimizer_every: sink.optimizer_every,
            position,
            sink: Sink::new(sink, tls.clone()),
            service: service.clone(),
            endpoint: config.endpoint.clone(),
            shutdown: shutdown.clone(),
            unkept: RepeatedErrors::default(),
        };
        tokio::spawn(feed.run());
    }
    Ok(())
}

struct SinkFeed {
    name: String,
    optimizer_every: Duration,
    position: PositionStore,
    /// Keeps what it has not taken.
    mark: Mark,
    sink: Sink,
    service: Arc<Service>,
    endpoint: String,
    shutdown: watch::Receiver<bool>,
    /// Why its position could not be kept.
    unkept: RepeatedErrors,
}

/// Why a batch was not told.
#[derive(Debug)]
enum TellingEnd {
    /// The service ends.
    Shutdown,
    /// Another node leads, and tells.
    Deposed,
    /// Where it had come to cannot be read.
    PositionStore(std::io::Error),
    /// The record cannot be read.
    Journal(JournalError),
}

impl SinkFeed {
    async fn run(mut self) {
        let mut failed: Option<String> = None;
        let mut patience = RECORD_PATIENCE_FIRST;
        loop {
            let text = match self.tell().await {
                TellingEnd::Shutdown => return,
                TellingEnd::Deposed => continue,
                TellingEnd::PositionStore(error) => error.to_string(),
                TellingEnd::Journal(error) => error.to_string(),
            };
            patience = (patience * 2).min(RECORD_PATIENCE_LONGEST);
            if failed.as_ref() != Some(&text) {
                tracing::error!(sink = %self.name, error = %text, "messages wait until the record can be read");
                failed = Some(text);
                patience = RECORD_PATIENCE_FIRST;
            }
            tokio::select! {
                () = tokio::time::sleep(patience) => {}
                _ = self.shutdown.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn tell(&mut self) -> TellingEnd {
        let mut seat = self.service.seat();
        let mut ending = self.shutdown.clone();
        // Of several nodes the leader tells.
        let leads = seat.wait_for(|seat| matches!(seat, LeaderSeat::Here(_)));
        tokio::select! {
            leads = leads => if leads.is_err() {
                return TellingEnd::Shutdown;
            },
            _ = ending.wait_for(|stop| *stop) => return TellingEnd::Shutdown,
        }
        tokio::select! {
            ended = self.tell_as_leader() => ended,
            // What it is about to tell, the next leader tells.
            left = seat.wait_for(|seat| !matches!(seat, LeaderSeat::Here(_))) => match left {
                Ok(_) => TellingEnd::Deposed,
                Err(_) => TellingEnd::Shutdown,
            },
        }
    }

    async fn tell_as_leader(&mut self) -> TellingEnd {
        let mut committed = self.service.committed();
        let mut follower = match self.begin().await {
            Ok(follower) => follower,
            Err(ended) => return ended,
        };
        let mut due = tokio::time::interval(self.optimizer_every);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The first tick is immediate, and there is nothing to say yet.
        due.tick().await;
        loop {
            committed.borrow_and_update();
            let (back, told) = match self.read(follower).await {
                Ok(read) => read,
                Err(ended) => return ended,
            };
            follower = back;
            if let Some(told) = told {
                if let Err(ended) = self.deliver(&told).await {
                    return ended;
                }
                self.remember(follower.position()).await;
                continue;
            }
            let links_are_due = tokio::select! {
                changed = committed.changed() => match changed {
                    Ok(()) => false,
                    Err(_) => return TellingEnd::Shutdown,
                },
                _ = due.tick() => true,
                _ = self.shutdown.wait_for(|stop| *stop) => return TellingEnd::Shutdown,
            };
            if links_are_due {
                let told = self.links(&mut follower);
                if let Err(ended) = self.deliver(&told).await {
                    return ended;
                }
            }
        }
    }

    /// Where it had come to; a sink that is new begins with what happens from now on.
    async fn begin(&self) -> Result<Follower, TellingEnd> {
        let (position, reader) = (self.position.clone(), self.service.reader().clone());
        let name = self.name.clone();
        let found = move || beginning(&name, &position, reader.as_ref());
        let found = tokio::task::spawn_blocking(found).await;
        let at = found.map_err(|_| TellingEnd::Shutdown)??;
        self.remember(at).await;
        Ok(Follower::new(at, self.endpoint.clone()))
    }

    /// The messages of the next entries; `None` when there are none yet.
    async fn read(
        &self,
        mut follower: Follower,
    ) -> Result<(Follower, Option<Vec<MonitoringMessage>>), TellingEnd> {
        let reader = self.service.reader().clone();
        let read = tokio::task::spawn_blocking(move || {
            let told = next(&mut follower, reader.as_ref());
            (follower, told)
        });
        let (follower, told) = read.await.map_err(|_| TellingEnd::Shutdown)?;
        Ok((follower, told.map_err(TellingEnd::Journal)?))
    }

    /// Until it was taken: what follows must not overtake it.
    async fn deliver(&mut self, told: &[MonitoringMessage]) -> Result<(), TellingEnd> {
        let mut patience = PATIENCE_FIRST;
        let mut failed: Option<String> = None;
        loop {
            let mut ending = self.shutdown.clone();
            let delivered = tokio::select! {
                delivered = self.sink.deliver(told) => delivered,
                _ = ending.wait_for(|stop| *stop) => return Err(TellingEnd::Shutdown),
            };
            let Err(error) = delivered else {
                if failed.is_some() {
                    tracing::info!(sink = %self.name, "messages are taken again");
                }
                return Ok(());
            };
            self.complain(&error, &mut failed);
            tokio::select! {
                _ = tokio::time::sleep(patience) => {}
                _ = ending.wait_for(|stop| *stop) => return Err(TellingEnd::Shutdown),
            }
            patience = (patience * 2).min(PATIENCE_LONGEST);
        }
    }

    /// Once for each reason, not once for each try.
    fn complain(&self, error: &SinkError, failed: &mut Option<String>) {
        let text = error.to_string();
        if failed.as_ref() != Some(&text) {
            tracing::warn!(sink = %self.name, error = %text, "messages are not taken; they are kept and sent later");
            *failed = Some(text);
        }
    }

    async fn remember(&self, at: u64) {
        self.mark.taken(at);
        let position = self.position.clone();
        let written = tokio::task::spawn_blocking(move || position.write(at)).await;
        let written = written.unwrap_or_else(|why| Err(why.into()));
        if let Err(error) = written
            && let Some(passed_over) = self.unkept.tells(&error.to_string())
        {
            tracing::warn!(sink = %self.name, %error, passed_over, "how far it was told cannot be kept: some may be told twice");
        }
    }

    fn links(&self, follower: &mut Follower) -> Vec<MonitoringMessage> {
        let overview = self.service.overview();
        let states = overview.links.iter().map(|link| LinkState {
            source: &link.source,
            destination: &link.destination,
            active: link.active,
            limit: link.limit,
            queued: link.queued,
            bytes_per_second: link.rate_bytes_per_second,
            because: link.limit_because.as_deref(),
            tuning: link.tuning,
            seen: &link.seen,
        });
        let busy = states.filter(|link| link.active > 0 || link.queued > 0);
        follower.links(busy, penstock_clock::wall_clock())
    }
}

/// The entry behind which a sink goes on. Blocks. Errors: not to be had now; nothing may be passed over for that.
fn beginning(
    sink: &str,
    position: &PositionStore,
    reader: &dyn JournalReader,
) -> Result<u64, TellingEnd> {
    let last = reader.last_sequence().map_err(TellingEnd::Journal)?;
    match position.read() {
        Ok(Some(at)) if at <= last => Ok(at),
        Ok(_) => Ok(last),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            tracing::error!(sink, %error, "where it had come to is not known: all that is kept is told");
            let oldest = reader.entries_after(0, 1).map_err(TellingEnd::Journal)?;
            let oldest = oldest.first().map(|entry| entry.sequence);
            Ok(oldest.map_or(0, |oldest| oldest.saturating_sub(1)))
        }
        Err(error) => Err(TellingEnd::PositionStore(error)),
    }
}

/// Reads on. An entry's messages may depend on the one after it, which is of the same transaction if there is one.
fn next(
    follower: &mut Follower,
    reader: &dyn JournalReader,
) -> Result<Option<Vec<MonitoringMessage>>, JournalError> {
    let mut entries = reader.entries_after(follower.position(), ENTRIES_AT_ONCE + 1)?;
    if entries.is_empty() {
        return Ok(None);
    }
    let ahead = match entries.len() > ENTRIES_AT_ONCE {
        true => entries.pop(),
        false => None,
    };
    let mut told = Vec::with_capacity(entries.len() * 2);
    for (number, entry) in entries.iter().enumerate() {
        let after = entries.get(number + 1).or(ahead.as_ref());
        follower.take(reader, entry, after, &mut told)?;
    }
    Ok(Some(told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests as agents;
    use penstock_model::{FileUrl, JobParameters, TransferEvent};
    use std::fs;

    #[test]
    fn a_sink_whose_position_cannot_be_read_passes_nothing_over() {
        let (setup, directory) = agents::setup();
        let url = || FileUrl::parse("https://a/f").expect("valid");
        let assignment = agents::assignment(url(), url(), JobParameters::default());
        let submitted = |age| (age, TransferEvent::Submitted);
        agents::record(
            directory.path(),
            &assignment,
            (1..=3).map(submitted).collect(),
        );
        let file = directory.path().join("broker");
        let begins = || {
            beginning(
                "broker",
                &PositionStore::File(file.clone()),
                setup.reader.as_ref(),
            )
        };
        let at = |found: Result<u64, TellingEnd>| found.expect("known");
        assert_eq!(
            at(begins()),
            3,
            "a new sink begins with what happens from now on"
        );
        for (text, expected) in [("2", 2), ("99", 3), ("", 0), ("odd", 0)] {
            fs::write(&file, text).expect("written");
            assert_eq!(at(begins()), expected, "'{text}'");
        }
        // A disk that does not answer, or a database that is away.
        fs::remove_file(&file).expect("removed");
        fs::create_dir(&file).expect("made");
        let refused = begins();
        assert!(
            matches!(refused, Err(TellingEnd::PositionStore(_))),
            "{refused:?}"
        );
    }
}
