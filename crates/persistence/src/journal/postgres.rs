//! The journal in PostgreSQL, for a service on several machines.
//!
//! Its writer is the leader of one turn. Each transaction holds the lease's row with `FOR KEY SHARE` and looks whether
//! the turn is still its own, so that a leader that was deposed meanwhile writes nothing. Each carries a number that
//! moves on in the same transaction: when the answer to a COMMIT is lost, the next try finds out whether it happened.

mod appending;
mod batch;
mod history;
mod minutes;
pub(crate) mod partitions;
mod reader;
mod reading;
mod search;
mod tidyings;
mod tokens;
mod tunings;
mod unfinished;

pub use reader::PostgresReader;

use super::LOST_NUMBERS_MAX;
use super::rows::with_restored_at;
use crate::cluster::columns;
use crate::postgres::session::{OpenTransaction, Purpose, RowFlow, Session, Sessions};
use crate::postgres::{Database, DatabaseError, resealing, schema};
use crate::resealing::{OF_JOURNAL, Pass};
use crate::sealing::SealingKeys;
use appending::Progress;
use batch::Batch;
use partitions::Partitions;
use penstock_journal::{Journal, JournalError, PruneReport, PruneStep};
use penstock_model::{
    CredentialId, Epoch, Record, RestartFacts, StoredToken, Tenure, Timestamp, UnfinishedJob,
};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use uuid::Uuid;

/// Jobs that are marked in one step.
const DOUBTED_AT_ONCE: i64 = 10_000;
/// How long a batch is waited for; what became of it is found out with the next try.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// The writer of one turn to lead. Only the node that leads opens one.
#[derive(Debug)]
pub struct PostgresJournal {
    sessions: Sessions,
    keys: SealingKeys,
    tenure: Tenure,
    /// How many batches were written for certain.
    batches: i64,
    progress: Progress,
    partitions: Partitions,
    /// What failed, and may have been written nevertheless.
    doubtful: Option<Vec<Record>>,
    /// Over each kind of secret, when the newest key is another than that which sealed them.
    passes: [Pass; OF_JOURNAL.len()],
}

impl PostgresJournal {
    /// Brings the tables to the newest schema and takes over the journal for a turn to lead; see
    /// [`crate::cluster::Cluster::try_lead`]. Tokens are sealed with `keys`; what an older key had sealed is sealed
    /// anew.
    ///
    /// `seen`: the number of the newest entry of the record that this process knows to have been durable. A database
    /// that has come less far has lost what it had acknowledged.
    ///
    /// Errors: [`JournalError::Deposed`] when the turn is over already.
    pub fn open(
        database: &Database,
        keys: SealingKeys,
        tenure: Tenure,
        seen: u64,
    ) -> Result<PostgresJournal, JournalError> {
        let sessions = Sessions::start(database, Purpose::Write, 1)?;
        let progress = sessions.run(move |session| {
            schema::migrate(session)?;
            take_over(session, tenure, seen)
        })?;
        let mut journal = PostgresJournal {
            sessions,
            keys,
            tenure,
            batches: 0,
            progress,
            partitions: Partitions::default(),
            doubtful: None,
            passes: Default::default(),
        };
        while !journal.seal_some_anew()? {}
        Ok(journal)
    }

    /// As after a COMMIT that went through while its answer was lost: written, and not known to be.
    #[cfg(test)]
    pub(super) fn append_unanswered(&mut self, records: &[Record]) {
        let (batches, progress) = (self.batches, self.progress);
        self.append(records).expect("stored");
        (self.batches, self.progress) = (batches, progress);
        self.doubtful = Some(records.to_vec());
    }

    fn write(&mut self, batch: &Arc<Batch>) -> Result<Outcome, JournalError> {
        let task = Task {
            batch: batch.clone(),
            tenure: self.tenure,
            number: self.batches + 1,
            progress: self.progress,
            partitions: std::mem::take(&mut self.partitions),
        };
        let performed = self
            .sessions
            .run_within(WRITE_PATIENCE, move |session| task.perform(session));
        if let Err(JournalError::Overtaken { .. }) = performed {
            self.doubt_open();
        }
        let (outcome, progress, partitions) = performed?;
        self.batches += 1;
        self.progress = progress;
        self.partitions = partitions;
        Ok(outcome)
    }

    /// Records that this turn had written are gone. Whoever leads next is told by the jobs, if it cannot know by itself.
    fn doubt_open(&self) {
        let tenure = self.tenure;
        let doubted = self.sessions.run(move |session| {
            let mut open = session.begin()?;
            hold(&mut open, tenure)?;
            let progress = doubt_open_jobs(&mut open)?;
            open.commit()?;
            Ok::<_, JournalError>(progress)
        });
        if let Err(why) = doubted {
            tracing::warn!(%why, "open jobs were not marked");
        }
    }
}

/// The database has lost records: what is open may have arrived, as after the return of a backup, and nodes may still run
/// transfers that it knows no more. Gives back from where numbers go on.
fn doubt_open_jobs(open: &mut OpenTransaction<'_>) -> Result<Progress, JournalError> {
    let now = open.query_opt("SELECT (extract(epoch FROM now()) * 1000)::bigint", &[])?;
    let now = Timestamp(now.map_or(0, |row| row.get(0)));
    let (mut jobs, mut after) = (0, Uuid::nil());
    loop {
        let sql = "SELECT job_id, parameters FROM job WHERE finished_ms IS NULL AND job_id > $1 ORDER BY job_id LIMIT $2";
        let rows = open.query(sql, &[&after, &DOUBTED_AT_ONCE])?;
        let Some(last) = rows.last() else {
            break;
        };
        after = last.get(0);
        let (mut ids, mut changed): (Vec<Uuid>, Vec<String>) = Default::default();
        for row in &rows {
            let id: Uuid = row.get(0);
            match with_restored_at(row.get(1), now) {
                Ok(parameters) => {
                    ids.push(id);
                    changed.push(parameters);
                }
                Err(why) => {
                    tracing::error!(job = %id, %why, "a job cannot be read and is left alone")
                }
            }
        }
        let sql = "UPDATE job SET parameters = doubted.parameters
                   FROM unnest($1::uuid[], $2::text[]) AS doubted (job_id, parameters) WHERE job.job_id = doubted.job_id";
        jobs += open.execute(sql, &[&ids, &changed])?;
    }
    tracing::error!(
        jobs,
        "the database has lost records that it had acknowledged, or may have, since a standby took over; destinations of \
         open jobs are compared before anything is refused there"
    );
    let row = open.query_opt(
        "UPDATE journal_writer SET last_sequence = last_sequence + $1, transfer_id_max = transfer_id_max + $1
         RETURNING last_sequence, transfer_id_max",
        &[&LOST_NUMBERS_MAX],
    )?;
    let progress = row.map(|row| Progress::from_columns(&row));
    Ok(progress.unwrap_or_default())
}

/// Which server this is, and which of its histories it goes on with: a standby that takes over begins another.
fn origin_of(session: &mut Session) -> Result<Option<[i64; 2]>, DatabaseError> {
    let mut open = session.begin()?;
    let sql = "SELECT system_identifier,
                   ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int::bigint
               FROM pg_control_system()";
    let row = open.query_opt(sql, &[])?;
    Ok(row.map(|row| [row.get(0), row.get(1)]))
}

/// Whether the database goes on where the last leader was. A standby may have taken over since, or the tables were put
/// back from a dump: then commits may be missing. Notes it for the next time.
fn is_continued(open: &mut OpenTransaction<'_>, origin: [i64; 2]) -> Result<bool, DatabaseError> {
    let mut is_same = true;
    for (name, value) in ["server", "timeline"].into_iter().zip(origin) {
        let known = open.query_opt("SELECT value FROM history WHERE name = $1", &[&name])?;
        is_same &= known.is_none_or(|row| row.get::<_, i64>(0) == value);
        open.execute(
            "INSERT INTO history (name, value) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            &[&name, &value],
        )?;
    }
    Ok(is_same)
}

/// From now on batches are those of this turn, counted from 1. Waits for what the leader before has not ended.
fn take_over(session: &mut Session, tenure: Tenure, seen: u64) -> Result<Progress, JournalError> {
    // Not every provider tells.
    let origin = origin_of(session);
    let origin = match origin {
        Err(why) if why.may_pass() => return Err(why.into()),
        Err(why) => {
            tracing::warn!(%why, "the database does not report whether a standby has taken over");
            None
        }
        Ok(origin) => origin,
    };
    let mut open = session.begin()?;
    hold(&mut open, tenure)?;
    let (epoch, holder) = columns(&tenure);
    let row = open.query_opt(
        "UPDATE journal_writer SET epoch = $1, holder = $2, batch = 0 RETURNING last_sequence, transfer_id_max",
        &[&epoch, &holder],
    )?;
    let progress = row.map(|row| Progress::from_columns(&row));
    let mut progress = progress.unwrap_or_default();
    let is_continued = match origin {
        Some(origin) => is_continued(&mut open, origin)?,
        None => true,
    };
    if !is_continued || u64::try_from(progress.last_sequence).unwrap_or_default() < seen {
        progress = doubt_open_jobs(&mut open)?;
    }
    open.commit()?;
    Ok(progress)
}

/// Makes sure that this turn is the current one until the transaction ends.
fn hold(open: &mut OpenTransaction<'_>, tenure: Tenure) -> Result<(), JournalError> {
    let (epoch, holder) = columns(&tenure);
    let sql =
        "SELECT 1 FROM lease WHERE lease = 'transfer' AND epoch = $1 AND holder = $2 FOR KEY SHARE";
    if open.query_opt(sql, &[&epoch, &holder])?.is_some() {
        return Ok(());
    }
    let sql = "SELECT epoch FROM lease WHERE lease = 'transfer'";
    let current = open.query_opt(sql, &[])?;
    Err(JournalError::Deposed {
        database: open.database().to_string(),
        epoch: tenure.epoch,
        current: Epoch(current.map_or(0, |row| row.get::<_, i64>(0)) as u64),
    })
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Written,
    /// A try before had written this number already, though nobody was told.
    Found,
}

/// A batch on its way. It takes a copy of all that it needs: when nobody waits for it any more it changes nothing here,
/// and the next try finds out what it did.
struct Task {
    batch: Arc<Batch>,
    tenure: Tenure,
    number: i64,
    progress: Progress,
    partitions: Partitions,
}

impl Task {
    fn perform(
        mut self,
        session: &mut Session,
    ) -> Result<(Outcome, Progress, Partitions), JournalError> {
        let mut open = session.begin()?;
        hold(&mut open, self.tenure)?;
        // A try whose answer was lost may still hold this row, or have moved it on: this waits for it and finds out.
        let ((epoch, holder), number) = (columns(&self.tenure), self.number);
        let sql = "UPDATE journal_writer SET batch = $2
                   WHERE epoch = $1 AND holder = $3 AND batch = $2::bigint - 1";
        if open.execute(sql, &[&epoch, &number, &holder])? == 0 {
            let sql = "SELECT last_sequence, transfer_id_max FROM journal_writer
                       WHERE epoch = $1 AND batch = $2 AND holder = $3";
            let row = open.query_opt(sql, &[&epoch, &number, &holder])?;
            let row = row.ok_or_else(|| JournalError::Overtaken {
                database: open.database().to_string(),
                detail: format!(
                    "its last batch is not number {} of epoch {epoch}",
                    number - 1
                ),
            })?;
            open.commit()?;
            return Ok((
                Outcome::Found,
                Progress::from_columns(&row),
                self.partitions,
            ));
        }
        let progress =
            appending::write(&mut open, &self.batch, self.progress, &mut self.partitions)?;
        open.execute(
            "UPDATE journal_writer SET last_sequence = $1, transfer_id_max = $2",
            &[&progress.last_sequence, &progress.transfer_id_max],
        )?;
        open.commit()?;
        Ok((Outcome::Written, progress, self.partitions))
    }
}

/// Somebody else is at the same rows.
fn is_busy(error: &JournalError) -> bool {
    match error {
        JournalError::Backend { why, .. } => {
            matches!(why.downcast_ref(), Some(DatabaseError::Busy { .. }))
        }
        _ => false,
    }
}

impl Journal for PostgresJournal {
    fn append(&mut self, records: &[Record]) -> Result<u64, JournalError> {
        let batch = Batch::of(records, &self.keys).map_err(|why| JournalError::Unstorable {
            path: self.sessions.database().to_string(),
            detail: why.0,
        })?;
        let batch = Arc::new(batch);
        let mut outcome = self.write(&batch);
        if matches!(outcome, Ok(Outcome::Found)) && self.doubtful.as_deref() != Some(records) {
            // Another batch, which had failed and was given up, had been written after all. This one comes next.
            outcome = self.write(&batch);
        }
        match outcome {
            Ok(Outcome::Written | Outcome::Found) => {
                self.doubtful = None;
                Ok(self.progress.last_sequence as u64)
            }
            Err(error) => {
                self.doubtful.get_or_insert_with(|| records.to_vec());
                Err(error)
            }
        }
    }

    fn seal_some_anew(&mut self) -> Result<bool, JournalError> {
        let (keys, tenure, passes) = (self.keys.clone(), self.tenure, self.passes.clone());
        // What was rolled back is looked at again.
        self.passes = Default::default();
        let passes = self.sessions.run(move |session| {
            let mut open = session.begin()?;
            hold(&mut open, tenure)?;
            let passes = resealing::advance(&mut open, &keys, passes, OF_JOURNAL)?;
            open.commit()?;
            Ok::<_, JournalError>(passes)
        })?;
        if !passes.iter().all(|pass| pass.is_done) {
            self.passes = passes;
            return Ok(false);
        }
        let unreadable: usize = passes.iter().map(|pass| pass.unreadable).sum();
        if unreadable > 0 {
            tracing::warn!(
                count = unreadable,
                "tokens of open jobs are sealed with a key that is not there; put its line back"
            );
        }
        Ok(true)
    }

    fn prune(&mut self, step: &PruneStep) -> Result<PruneReport, JournalError> {
        let (step, tenure, last) = (step.clone(), self.tenure, self.progress.last_sequence);
        // The parts that it knows may go.
        let known = std::mem::take(&mut self.partitions);
        let (pruned, known) = self.sessions.run(move |session| {
            let mut open = session.begin()?;
            hold(&mut open, tenure)?;
            let pruned = history::prune_rows(&mut open, &step)?;
            open.commit()?;
            if pruned.has_more {
                return Ok::<_, JournalError>((pruned, known));
            }
            let mut open = session.begin()?;
            hold(&mut open, tenure)?;
            let parts = match history::prune_parts(&mut open, &step, last) {
                // Somebody is at them. Later.
                Err(error) if is_busy(&error) => return Ok((pruned, known)),
                parts => parts?,
            };
            open.commit()?;
            let pruned = PruneReport {
                entries: parts.entries,
                samples: parts.samples,
                ..pruned
            };
            Ok((pruned, Partitions::default()))
        })?;
        self.partitions = known;
        Ok(pruned)
    }

    fn load_standing(&mut self) -> Result<RestartFacts, JournalError> {
        let transfer_id_max = self.progress.transfer_id_max as u64;
        self.sessions.run(move |session| {
            // One instant is seen without asking for it: nobody else writes.
            let mut open = session.begin()?;
            let found = unfinished::standing(&mut open)?;
            open.commit()?;
            Ok(RestartFacts {
                transfer_id_max,
                ..found
            })
        })
    }

    fn load_unfinished(&mut self, take: &mut dyn FnMut(UnfinishedJob)) -> Result<(), JournalError> {
        let read = |session: &mut Session, out: &SyncSender<UnfinishedJob>| {
            let mut open = session.begin()?;
            unfinished::for_each(&mut open, |job| match out.send(job) {
                Ok(()) => RowFlow::On,
                // Nobody waits for more.
                Err(_) => RowFlow::NoFurther,
            })?;
            open.commit()?;
            Ok(())
        };
        self.sessions.stream(read, take)
    }

    fn token(&mut self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError> {
        let (id, keys) = (id.clone(), self.keys.clone());
        self.sessions.run(move |session| {
            let mut open = session.begin()?;
            let token = tokens::token(&mut open, &id, &keys)?;
            open.commit()?;
            Ok(token)
        })
    }
}
