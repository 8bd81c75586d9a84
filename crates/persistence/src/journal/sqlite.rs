//! The journal in SQLite: one writer in WAL mode with `synchronous=FULL`, so a commit survives a power cut, and
//! read-only connections that see whole transactions only.

use super::bans;
use super::links;
use super::schema::{self, SCHEMA_VERSION};
use super::settings;
use super::tokens::{self, StoredToken};
use super::{JobRow, Journal, JournalError, Record, TapeTimes, TransferRow, Unfinished};
use crate::resealing::{OF_JOURNAL, Pass};
use crate::sealing::SealingKeys;
use penstock_model::ledger::LEDGER_VERSION;
use penstock_model::{
    Ban, BanChange, Bytes, CredentialId, Job, JobId, JobKind, JobParameters, JobState, LedgerEntry,
    LinkId, LinkSample, SettingChange, Slots, StageRequestId, StorageId, Timestamp, TransferEvent,
    TransferId, TransferState, UserName, VoName, job_state,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, params};
use serde::de::DeserializeOwned;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The writer. There is one per database.
#[derive(Debug)]
pub struct SqliteJournal {
    connection: Connection,
    path: PathBuf,
    keys: SealingKeys,
    /// Over each kind of secret, when the newest key is another than that which sealed them.
    passes: [Pass; OF_JOURNAL.len()],
}

impl SqliteJournal {
    /// Opens or creates the database (mode 0600) and brings its schema up to date. Tokens are sealed with `keys`; what
    /// an older key had sealed is sealed anew.
    pub fn open(path: &Path, keys: SealingKeys) -> Result<SqliteJournal, JournalError> {
        // SQLite would create it with the process's umask.
        let created = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path);
        created.map_err(|why| JournalError::Sqlite {
            path: path.display().to_string(),
            source: rusqlite::Error::ToSqlConversionFailure(Box::new(why)),
        })?;
        let mut connection = Connection::open(path).map_err(at(path))?;
        configure(&connection).map_err(at(path))?;
        schema::migrate(&mut connection, &keys)
            .map_err(at(path))?
            .map_err(|found| JournalError::TooNew {
                path: path.display().to_string(),
                found,
                known: SCHEMA_VERSION,
            })?;
        let mut journal = SqliteJournal {
            connection,
            path: path.to_owned(),
            keys,
            passes: Default::default(),
        };
        while !journal.seal_some_anew()? {}
        Ok(journal)
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -64_000)?;
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.busy_timeout(Duration::from_secs(10))
}

pub(super) fn at(path: &Path) -> impl FnOnce(rusqlite::Error) -> JournalError + use<> {
    let path = path.display().to_string();
    move |source| JournalError::Sqlite { path, source }
}

impl Journal for SqliteJournal {
    fn append(&mut self, records: &[Record]) -> Result<u64, JournalError> {
        append_all(&mut self.connection, &self.keys, records).map_err(at(&self.path))
    }

    fn seal_some_anew(&mut self) -> Result<bool, JournalError> {
        let failed = at(&self.path);
        let advanced = self.connection.transaction().and_then(|transaction| {
            for (pass, place) in self.passes.iter_mut().zip(OF_JOURNAL) {
                if !pass.is_done {
                    pass.advance(&transaction, &self.keys, place)?;
                }
            }
            transaction.commit()
        });
        if let Err(why) = advanced {
            // What was rolled back is looked at again.
            self.passes = Default::default();
            return Err(failed(why));
        }
        if !self.passes.iter().all(|pass| pass.is_done) {
            return Ok(false);
        }
        let passes = std::mem::take(&mut self.passes);
        let unreadable: usize = passes.iter().map(|pass| pass.unreadable).sum();
        if unreadable > 0 {
            tracing::warn!(
                count = unreadable,
                "tokens of open jobs are sealed with a key that is not there; put its line back"
            );
        }
        Ok(true)
    }

    fn load_unfinished(&mut self) -> Result<Unfinished, JournalError> {
        Reading {
            connection: &self.connection,
            path: &self.path,
        }
        .unfinished()
    }

    fn token(&mut self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError> {
        Reading {
            connection: &self.connection,
            path: &self.path,
        }
        .token(id, &self.keys)
    }
}

fn append_all(
    connection: &mut Connection,
    keys: &SealingKeys,
    records: &[Record],
) -> rusqlite::Result<u64> {
    let transaction = connection.transaction()?;
    for record in records {
        match record {
            Record::JobAccepted {
                job,
                tokens: brought,
            } => {
                insert_job(&transaction, job)?;
                tokens::insert(&transaction, keys, job.id, brought)?;
            }
            Record::Happened {
                at,
                monotonic_us,
                job,
                transfer,
                event,
                state,
            } => {
                insert_event(&transaction, *at, *monotonic_us, *job, *transfer, event)?;
                update_transfer(&transaction, *at, *transfer, event, state)?;
            }
            Record::JobEnded { job, at, state } => {
                let sql = "UPDATE job SET finished_ms = ?2, final_state = ?3 WHERE job_id = ?1";
                transaction.prepare_cached(sql)?.execute(params![
                    job.to_string(),
                    at.0,
                    state.name()
                ])?;
                tokens::remove(&transaction, *job)?;
            }
            Record::TokenRenewed { id, renewed } => {
                tokens::renew(&transaction, keys, id, renewed)?;
            }
            Record::Reprioritised { job, priority } => {
                let sql = "UPDATE job SET priority = ?2, parameters = json_set(parameters, '$.priority', ?2)
                           WHERE job_id = ?1";
                let mut update = transaction.prepare_cached(sql)?;
                update.execute(params![job.to_string(), priority.get()])?;
            }
            Record::Configured(change) => settings::record(&transaction, change)?,
            Record::Banned(change) => bans::record(&transaction, change)?,
            Record::LinkChanged(change) => links::record(&transaction, change)?,
            Record::Sampled(sample) => insert_sample(&transaction, sample)?,
        }
    }
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'ledger'";
    let sequence: Option<i64> = transaction
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))
        .optional()?;
    transaction.commit()?;
    Ok(sequence.unwrap_or(0) as u64)
}

pub(super) fn json<T: serde::Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|why| rusqlite::Error::ToSqlConversionFailure(Box::new(why)))
}

fn insert_job(transaction: &Transaction<'_>, job: &Job) -> rusqlite::Result<()> {
    let first = job.transfers.first();
    let last = match job.parameters.kind {
        JobKind::Hops => job.transfers.last(),
        JobKind::Independent | JobKind::Session | JobKind::Replicas(_) => first,
    };
    let source = first.map(|first| first.source.storage());
    let destination = last.map(|last| last.destination.storage());
    let sql = "INSERT INTO job (job_id, user, vo, delegation, submitted_ms, priority, parameters, source_se,
               destination_se) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    transaction.prepare_cached(sql)?.execute(params![
        job.id.to_string(),
        job.user.as_str(),
        job.vo.as_str(),
        job.delegation.as_str(),
        job.submitted_at.0,
        job.parameters.priority.get(),
        json(&job.parameters)?,
        source.as_ref().map_or("", StorageId::as_str),
        destination.as_ref().map_or("", StorageId::as_str),
    ])?;
    let state = job.parameters.first_state(job.submitted_at);
    let (name, state) = (state.fts_name(), json(&state)?);
    let sql = "INSERT INTO transfer (transfer_id, job_id, request, state_name, state) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = transaction.prepare_cached(sql)?;
    for request in &job.transfers {
        insert.execute(params![
            request.id.0,
            job.id.to_string(),
            json(request)?,
            name,
            state
        ])?;
    }
    Ok(())
}

fn insert_event(
    transaction: &Transaction<'_>,
    at: Timestamp,
    monotonic_us: u64,
    job: JobId,
    transfer: TransferId,
    event: &TransferEvent,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO ledger (at_ms, monotonic_us, job_id, transfer_id, version, event)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let (job, event) = (job.to_string(), json(event)?);
    let mut insert = transaction.prepare_cached(sql)?;
    insert.execute(params![
        at.0,
        monotonic_us,
        job,
        transfer.0,
        LEDGER_VERSION,
        event
    ])?;
    Ok(())
}

fn update_transfer(
    transaction: &Transaction<'_>,
    at: Timestamp,
    transfer: TransferId,
    event: &TransferEvent,
    state: &TransferState,
) -> rusqlite::Result<()> {
    // The first record of a transfer says only what its row says already.
    let (size, started) = match event {
        TransferEvent::Submitted => return Ok(()),
        TransferEvent::Started { .. } => (None, Some(at.0)),
        TransferEvent::Prepared { size, .. } => (size.map(|size| size.0), None),
        TransferEvent::Landed { size, .. } => (Some(size.0), None),
        TransferEvent::AttemptFailed { .. }
        | TransferEvent::AttemptLost { .. }
        | TransferEvent::Chosen { .. }
        | TransferEvent::StageRequested { .. }
        | TransferEvent::Staged { .. }
        | TransferEvent::StageFailed { .. }
        | TransferEvent::Archived
        | TransferEvent::ArchiveFailed { .. }
        | TransferEvent::NotNeeded
        | TransferEvent::Expired { .. }
        | TransferEvent::Refused { .. }
        | TransferEvent::Canceled { .. } => (None, None),
    };
    let finished = state.is_terminal().then_some(at.0);
    let sql =
        "UPDATE transfer SET state_name = ?2, state = ?3, size_bytes = coalesce(?4, size_bytes),
               started_ms = coalesce(?5, started_ms), finished_ms = ?6 WHERE transfer_id = ?1";
    let (name, state) = (state.fts_name(), json(state)?);
    let mut update = transaction.prepare_cached(sql)?;
    update.execute(params![transfer.0, name, state, size, started, finished])?;
    update_tape_times(transaction, at, transfer, event)
}

/// When tape systems were at a file.
fn update_tape_times(
    transaction: &Transaction<'_>,
    at: Timestamp,
    transfer: TransferId,
    event: &TransferEvent,
) -> rusqlite::Result<()> {
    let sql = match event {
        TransferEvent::StageRequested { request } => {
            let sql = "UPDATE transfer SET stage_request = ?3, staging_started_ms = ?2, staging_finished_ms = NULL
                       WHERE transfer_id = ?1";
            let mut update = transaction.prepare_cached(sql)?;
            update.execute(params![transfer.0, at.0, request.as_str()])?;
            return Ok(());
        }
        TransferEvent::Staged { .. } | TransferEvent::StageFailed { .. } => {
            "UPDATE transfer SET staging_finished_ms = ?2
             WHERE transfer_id = ?1 AND staging_started_ms IS NOT NULL"
        }
        TransferEvent::Landed { archives: true, .. } => {
            "UPDATE transfer SET archiving_started_ms = ?2 WHERE transfer_id = ?1"
        }
        TransferEvent::Archived | TransferEvent::ArchiveFailed { .. } => {
            "UPDATE transfer SET archiving_finished_ms = ?2 WHERE transfer_id = ?1"
        }
        TransferEvent::Landed { .. }
        | TransferEvent::Submitted
        | TransferEvent::Started { .. }
        | TransferEvent::Prepared { .. }
        | TransferEvent::AttemptFailed { .. }
        | TransferEvent::AttemptLost { .. }
        | TransferEvent::Chosen { .. }
        | TransferEvent::NotNeeded
        | TransferEvent::Expired { .. }
        | TransferEvent::Refused { .. }
        | TransferEvent::Canceled { .. } => return Ok(()),
    };
    let mut update = transaction.prepare_cached(sql)?;
    update.execute(params![transfer.0, at.0])?;
    Ok(())
}

fn insert_sample(transaction: &Transaction<'_>, sample: &LinkSample) -> rusqlite::Result<()> {
    let sql = "INSERT INTO link_sample (at_ms, source, destination, moved_bytes, active, slots_limit, queued)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    transaction.prepare_cached(sql)?.execute(params![
        sample.at.0,
        sample.link.source.as_str(),
        sample.link.destination.as_str(),
        sample.moved.0,
        sample.active.0,
        sample.limit.0,
        sample.queued,
    ])?;
    Ok(())
}

/// Which jobs a listing wants. `None` and empty mean: any.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only jobs with open transfers, or also those that ended at or after `ended_since`.
    pub ended_since: Option<Timestamp>,
    /// States as on the wire.
    pub states: Vec<String>,
    /// Submitted by.
    pub user: Option<UserName>,
    /// On behalf of.
    pub vo: Option<VoName>,
    /// First source's storage element.
    pub source: Option<StorageId>,
    /// First destination's storage element.
    pub destination: Option<StorageId>,
    /// Identity of the submitter.
    pub delegation: Option<CredentialId>,
    /// At most this many, newest first.
    pub limit: usize,
}

impl JobFilter {
    fn wants(&self, state: JobState) -> bool {
        self.states.is_empty() || self.states.iter().any(|name| name == state.name())
    }

    fn wants_open(&self) -> bool {
        let open = [
            JobState::Submitted,
            JobState::Staging,
            JobState::Active,
            JobState::Archiving,
        ];
        open.into_iter().any(|state| self.wants(state))
    }
}

/// Reads beside the writer, on a few read-only connections. Calls block for microseconds to milliseconds.
#[derive(Debug)]
pub struct JournalReader {
    connections: Vec<Mutex<Connection>>,
    path: PathBuf,
    keys: Option<SealingKeys>,
}

impl JournalReader {
    /// Opens `connections` read-only connections to a journal that exists.
    pub fn open(path: &Path, connections: usize) -> Result<JournalReader, JournalError> {
        let open = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.set_prepared_statement_cache_capacity(64);
            connection.busy_timeout(Duration::from_secs(10))?;
            Ok(Mutex::new(connection))
        };
        let connections: rusqlite::Result<Vec<_>> =
            (0..connections.max(1)).map(|_| open()).collect();
        Ok(JournalReader {
            connections: connections.map_err(at(path))?,
            path: path.to_owned(),
            keys: None,
        })
    }

    /// Also opens tokens, with these keys. Without, there seem to be none.
    pub fn with_keys(self, keys: SealingKeys) -> JournalReader {
        JournalReader {
            keys: Some(keys),
            ..self
        }
    }

    /// One job; `None` when it is not known.
    pub fn job(&self, id: JobId) -> Result<Option<JobRow>, JournalError> {
        self.read(|reading| reading.job(id))
    }

    /// The transfers of a job in the order of the submission; empty when the job is not known.
    pub fn transfers(&self, job: JobId) -> Result<Vec<TransferRow>, JournalError> {
        self.read(|reading| reading.transfers(job))
    }

    /// Some transfers of a job in the order of the submission, from the one after `after` on: for jobs of any size.
    pub fn transfers_after(
        &self,
        job: JobId,
        after: TransferId,
        limit: usize,
    ) -> Result<Vec<TransferRow>, JournalError> {
        let sql = format!(
            "{TRANSFER_COLUMNS} WHERE job_id = ?1 AND transfer_id > ?2 ORDER BY transfer_id LIMIT ?3"
        );
        let parameters = params![job.to_string(), after.0 as i64, limit as i64];
        self.read(|reading| reading.transfer_rows(&sql, parameters))
    }

    /// How many transfers of a job are in which state, by the states' names on the wire.
    pub fn state_counts(&self, job: JobId) -> Result<Vec<(String, u64)>, JournalError> {
        self.read(|reading| reading.state_counts(job))
    }

    /// Jobs that fit a filter.
    pub fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, JournalError> {
        self.read(|reading| reading.jobs(filter))
    }

    /// The sequence number of the ledger's last entry; 0 when there is none.
    pub fn last_sequence(&self) -> Result<u64, JournalError> {
        self.read(|reading| {
            let sql = "SELECT coalesce(max(sequence), 0) FROM ledger";
            let last = reading
                .connection
                .query_row(sql, [], |row| row.get::<_, i64>(0));
            Ok(last.map_err(at(reading.path))? as u64)
        })
    }

    /// The ledger after a sequence number, at most `limit` entries.
    pub fn entries_after(
        &self,
        sequence: u64,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, JournalError> {
        let sql = "SELECT sequence, at_ms, monotonic_us, job_id, transfer_id, event FROM ledger
                   WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";
        self.read(|reading| reading.entries(sql, sequence as i64, limit as i64))
    }

    /// The ledger of one transfer, at most `limit` entries.
    pub fn entries_of(
        &self,
        transfer: TransferId,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, JournalError> {
        let sql = "SELECT sequence, at_ms, monotonic_us, job_id, transfer_id, event FROM ledger
                   WHERE transfer_id = ?1 ORDER BY sequence LIMIT ?2";
        self.read(|reading| reading.entries(sql, transfer.0 as i64, limit as i64))
    }

    /// Samples with `from <= at < to`, oldest first.
    pub fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, JournalError> {
        self.read(|reading| reading.samples(from, to))
    }

    /// The latest changes of settings, newest first, at most `limit`.
    pub fn setting_changes(&self, limit: usize) -> Result<Vec<SettingChange>, JournalError> {
        self.read(|reading| settings::changes(reading, limit))
    }

    /// The bans that hold.
    pub fn bans(&self) -> Result<Vec<Ban>, JournalError> {
        self.read(bans::load)
    }

    /// The latest changes of bans, newest first, at most `limit`.
    pub fn ban_changes(&self, limit: usize) -> Result<Vec<BanChange>, JournalError> {
        self.read(|reading| bans::changes(reading, limit))
    }

    /// What one transfer asked for.
    pub fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, JournalError> {
        self.read(|reading| {
            let sql = format!("{TRANSFER_COLUMNS} WHERE transfer_id = ?1");
            Ok(reading.transfer_rows(&sql, params![id.0 as i64])?.pop())
        })
    }

    /// The token stored under a name.
    pub fn token(&self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError> {
        let Some(keys) = &self.keys else {
            return Ok(None);
        };
        self.read(|reading| reading.token(id, keys))
    }

    pub(super) fn read<T>(
        &self,
        question: impl FnOnce(&Reading<'_>) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let connection = self.free_connection();
        // One transaction, so that all rows of an answer are of one instant.
        let snapshot = connection.unchecked_transaction().map_err(at(&self.path))?;
        question(&Reading {
            connection: &snapshot,
            path: &self.path,
        })
    }

    fn free_connection(&self) -> MutexGuard<'_, Connection> {
        let free = self
            .connections
            .iter()
            .find_map(|connection| connection.try_lock().ok());
        // A reader that panicked left its connection usable: reads change nothing.
        free.unwrap_or_else(|| {
            self.connections[0]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        })
    }
}

pub(super) struct Reading<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: &'a Path,
}

const JOB_COLUMNS: &str =
    "SELECT job_id, user, vo, delegation, submitted_ms, finished_ms, parameters, source_se,
     destination_se, final_state FROM job";
pub(super) const TRANSFER_COLUMNS: &str =
    "SELECT transfer_id, job_id, request, state, size_bytes, started_ms, finished_ms, stage_request,
     staging_started_ms, staging_finished_ms, archiving_started_ms, archiving_finished_ms FROM transfer";

impl Reading<'_> {
    fn job(&self, id: JobId) -> Result<Option<JobRow>, JournalError> {
        let sql = format!("{JOB_COLUMNS} WHERE job_id = ?1");
        Ok(self.job_rows(&sql, params![id.to_string()])?.pop())
    }

    /// Open jobs first, whose states follow from their transfers; then ended ones, whose states are stored.
    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, JournalError> {
        const OF_FILTER: &str =
            "(?1 IS NULL OR user = ?1) AND (?2 IS NULL OR vo = ?2) AND (?3 IS NULL OR source_se = ?3)
             AND (?4 IS NULL OR destination_se = ?4) AND (?5 IS NULL OR delegation = ?5)";
        let of_filter = [
            filter.user.as_ref().map(UserName::as_str),
            filter.vo.as_ref().map(VoName::as_str),
            filter.source.as_ref().map(StorageId::as_str),
            filter.destination.as_ref().map(StorageId::as_str),
            filter.delegation.as_ref().map(CredentialId::as_str),
        ];
        let sql = format!(
            "{JOB_COLUMNS} WHERE finished_ms IS NULL AND {OF_FILTER} ORDER BY submitted_ms DESC"
        );
        let mut jobs = match filter.wants_open() {
            true => {
                self.job_rows_where(&sql, of_filter, filter.limit, |row| filter.wants(row.state))?
            }
            false => Vec::new(),
        };
        let Some(ended_since) = filter.ended_since else {
            return Ok(jobs);
        };
        let sql = format!(
            "{JOB_COLUMNS} WHERE finished_ms IS NOT NULL AND finished_ms >= ?6 AND {OF_FILTER}
             AND (?7 = '' OR instr(?7, ',' || final_state || ',') > 0) ORDER BY submitted_ms DESC LIMIT ?8"
        );
        let states = match filter.states.as_slice() {
            [] => String::new(),
            states => format!(",{},", states.join(",")),
        };
        let [user, vo, source, destination, delegation] = of_filter;
        let (since, limit) = (ended_since.0, filter.limit as i64);
        let parameters = params![
            user,
            vo,
            source,
            destination,
            delegation,
            since,
            states,
            limit
        ];
        jobs.extend(self.job_rows(&sql, parameters)?);
        jobs.sort_by_key(|row| std::cmp::Reverse(row.submitted_at));
        jobs.truncate(filter.limit);
        Ok(jobs)
    }

    fn job_rows(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> Result<Vec<JobRow>, JournalError> {
        self.job_rows_where(sql, parameters, usize::MAX, |_| true)
    }

    /// The first `limit` rows that are wanted. What is not wanted is not kept in memory.
    fn job_rows_where(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        limit: usize,
        wanted: impl Fn(&JobRow) -> bool,
    ) -> Result<Vec<JobRow>, JournalError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let mut rows = statement.query(parameters).map_err(at(self.path))?;
        let mut jobs = Vec::new();
        while jobs.len() < limit
            && let Some(row) = rows.next().map_err(at(self.path))?
        {
            let job = self.job_row(row)?;
            if wanted(&job) {
                jobs.push(job);
            }
        }
        Ok(jobs)
    }

    fn job_row(&self, row: &Row<'_>) -> Result<JobRow, JournalError> {
        let id = JobId(self.parse_uuid(&self.get::<String>(row, 0)?)?);
        let parameters: JobParameters =
            self.decode("job parameters", &self.get::<String>(row, 6)?)?;
        let ended: Option<String> = self.get(row, 9)?;
        let (state, reason) = self.roll_up(id, parameters.kind, ended.as_deref())?;
        Ok(JobRow {
            id,
            user: UserName::new(self.get::<String>(row, 1)?),
            vo: VoName::new(self.get::<String>(row, 2)?),
            delegation: CredentialId::new(self.get::<String>(row, 3)?),
            submitted_at: Timestamp(self.get(row, 4)?),
            finished_at: self.get::<Option<i64>>(row, 5)?.map(Timestamp),
            parameters,
            source: StorageId::new(self.get::<String>(row, 7)?),
            destination: StorageId::new(self.get::<String>(row, 8)?),
            state,
            reason,
        })
    }

    /// The job's state from its transfers, and a failure that explains it.
    fn roll_up(
        &self,
        job: JobId,
        kind: JobKind,
        ended: Option<&str>,
    ) -> Result<(JobState, Option<String>), JournalError> {
        // What finished well for good needs no look at its files.
        if ended == Some(JobState::Finished.name()) {
            return Ok((JobState::Finished, None));
        }
        let sql = "SELECT state FROM transfer WHERE job_id = ?1 GROUP BY state_name";
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let mut rows = statement
            .query(params![job.to_string()])
            .map_err(at(self.path))?;
        let mut states: Vec<TransferState> = Vec::new();
        while let Some(row) = rows.next().map_err(at(self.path))? {
            states.push(self.decode("transfer state", &self.get::<String>(row, 0)?)?);
        }
        let reason = states.iter().find_map(|state| match state {
            TransferState::Failed { failure, .. } => Some(failure.to_string()),
            TransferState::Canceled { reason, .. } => Some(reason.clone()),
            TransferState::NotUsed
            | TransferState::Staging { .. }
            | TransferState::Recalling { .. }
            | TransferState::Submitted { .. }
            | TransferState::Active { .. }
            | TransferState::Archiving { .. }
            | TransferState::Finished { .. } => None,
        });
        let state = job_state(kind, &states);
        Ok((state, if state.is_terminal() { reason } else { None }))
    }

    fn transfers(&self, job: JobId) -> Result<Vec<TransferRow>, JournalError> {
        let sql = format!("{TRANSFER_COLUMNS} WHERE job_id = ?1 ORDER BY transfer_id");
        self.transfer_rows(&sql, params![job.to_string()])
    }

    fn transfer_rows(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> Result<Vec<TransferRow>, JournalError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let mut rows = statement.query(parameters).map_err(at(self.path))?;
        let mut transfers = Vec::new();
        while let Some(row) = rows.next().map_err(at(self.path))? {
            transfers.push(self.transfer_row(row)?);
        }
        self.mark_awaiting(&mut transfers)?;
        Ok(transfers)
    }

    /// Reads a row of [`TRANSFER_COLUMNS`].
    pub(super) fn transfer_row(&self, row: &Row<'_>) -> Result<TransferRow, JournalError> {
        let time = |column| Ok(self.get::<Option<i64>>(row, column)?.map(Timestamp));
        Ok(TransferRow {
            id: TransferId(self.get::<i64>(row, 0)? as u64),
            job: JobId(self.parse_uuid(&self.get::<String>(row, 1)?)?),
            request: self.decode("transfer request", &self.get::<String>(row, 2)?)?,
            state: self.decode("transfer state", &self.get::<String>(row, 3)?)?,
            size_bytes: self.get::<Option<i64>>(row, 4)?.map(|size| size as u64),
            started_at: time(5)?,
            finished_at: time(6)?,
            awaits_token: false,
            is_banned: false,
            tape: TapeTimes {
                request: self.get::<Option<String>>(row, 7)?.map(StageRequestId::new),
                staging_started_at: time(8)?,
                staging_finished_at: time(9)?,
                archiving_started_at: time(10)?,
                archiving_finished_at: time(11)?,
            },
        })
    }

    fn state_counts(&self, job: JobId) -> Result<Vec<(String, u64)>, JournalError> {
        let sql = "SELECT state_name, count(*) FROM transfer WHERE job_id = ?1 GROUP BY state_name";
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let rows = statement.query_map(params![job.to_string()], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)? as u64))
        });
        rows.and_then(Iterator::collect).map_err(at(self.path))
    }

    fn entries(&self, sql: &str, key: i64, limit: i64) -> Result<Vec<LedgerEntry>, JournalError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let mut rows = statement
            .query(params![key, limit])
            .map_err(at(self.path))?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next().map_err(at(self.path))? {
            entries.push(LedgerEntry {
                sequence: self.get::<i64>(row, 0)? as u64,
                at: Timestamp(self.get(row, 1)?),
                monotonic_us: self.get::<i64>(row, 2)? as u64,
                job: JobId(self.parse_uuid(&self.get::<String>(row, 3)?)?),
                transfer: TransferId(self.get::<i64>(row, 4)? as u64),
                event: self.decode("ledger event", &self.get::<String>(row, 5)?)?,
            });
        }
        Ok(entries)
    }

    fn samples(&self, from: Timestamp, to: Timestamp) -> Result<Vec<LinkSample>, JournalError> {
        let sql = "SELECT at_ms, source, destination, moved_bytes, active, slots_limit, queued FROM link_sample
                   WHERE at_ms >= ?1 AND at_ms < ?2 ORDER BY at_ms";
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let rows = statement.query_map(params![from.0, to.0], |row| {
            Ok(LinkSample {
                at: Timestamp(row.get(0)?),
                link: LinkId {
                    source: StorageId::new(row.get::<_, String>(1)?),
                    destination: StorageId::new(row.get::<_, String>(2)?),
                },
                moved: Bytes(row.get::<_, i64>(3)? as u64),
                active: Slots(row.get(4)?),
                limit: Slots(row.get(5)?),
                queued: row.get::<_, i64>(6)? as u64,
            })
        });
        rows.and_then(Iterator::collect).map_err(at(self.path))
    }

    fn unfinished(&self) -> Result<Unfinished, JournalError> {
        let sql = format!("{JOB_COLUMNS} WHERE finished_ms IS NULL ORDER BY submitted_ms");
        let mut found = Unfinished::default();
        for job in self.job_rows(&sql, [])? {
            let (mut open, mut ended) = (Vec::new(), Vec::new());
            for row in self.transfers(job.id)? {
                if row.state.is_terminal() {
                    ended.push((job.id, row.state));
                } else {
                    found.states.push((row.id, row.state));
                    open.push(row.request);
                }
            }
            found.ended.extend(ended);
            found.jobs.push(Job {
                id: job.id,
                user: job.user,
                vo: job.vo,
                delegation: job.delegation,
                submitted_at: job.submitted_at,
                parameters: job.parameters,
                transfers: open,
            });
        }
        let sql = "SELECT coalesce(max(transfer_id), 0) FROM transfer";
        let highest: i64 = self
            .connection
            .query_row(sql, [], |row| row.get(0))
            .map_err(at(self.path))?;
        found.transfer_id_max = highest as u64;
        found.settings = settings::load(self)?;
        found.bans = bans::load(self)?;
        found.tokens_awaited = self.tokens_awaited(None)?;
        Ok(found)
    }

    pub(super) fn get<T: rusqlite::types::FromSql>(
        &self,
        row: &Row<'_>,
        column: usize,
    ) -> Result<T, JournalError> {
        row.get(column).map_err(at(self.path))
    }

    pub(super) fn decode<T: DeserializeOwned>(
        &self,
        what: &'static str,
        text: &str,
    ) -> Result<T, JournalError> {
        serde_json::from_str(text).map_err(|why| self.corrupt(what, why.to_string()))
    }

    pub(super) fn parse_uuid(&self, text: &str) -> Result<uuid::Uuid, JournalError> {
        uuid::Uuid::parse_str(text).map_err(|why| self.corrupt("job id", why.to_string()))
    }

    pub(super) fn corrupt(&self, what: &'static str, detail: String) -> JournalError {
        JournalError::Corrupt {
            path: self.path.display().to_string(),
            what,
            detail,
        }
    }
}
