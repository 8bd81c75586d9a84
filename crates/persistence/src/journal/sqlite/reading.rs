//! Jobs, transfers and the ledger as they are in the tables, in one transaction.

use super::at;
use crate::journal::rows;
use crate::sql_integer::from_sql;
use penstock_journal::{JobFilter, JobRow, JournalError, TapeTimes, TransferRow};
use penstock_model::{
    Bytes, CredentialId, JobId, JobKind, JobParameters, JobState, LedgerEntry, LinkId, LinkSample,
    Slots, StageRequestId, StorageId, Timestamp, TransferId, TransferState, UserName, VoName,
};
use rusqlite::{Connection, Row, params};
use serde::de::DeserializeOwned;
use std::path::Path;

pub(super) struct RecordQueries<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: &'a Path,
}

const JOB_COLUMNS: &str =
    "SELECT job_id, user, vo, delegation, submitted_ms, finished_ms, parameters, source_se,
     destination_se, final_state FROM job";
pub(super) const TRANSFER_COLUMNS: &str =
    "SELECT transfer_id, job_id, request, state, size_bytes, started_ms, finished_ms, stage_request,
     staging_started_ms, staging_finished_ms, archiving_started_ms, archiving_finished_ms FROM transfer";

impl RecordQueries<'_> {
    pub(super) fn job(&self, id: JobId) -> Result<Option<JobRow>, JournalError> {
        let sql = format!("{JOB_COLUMNS} WHERE job_id = ?1");
        Ok(self.job_rows(&sql, params![id.to_string()])?.pop())
    }

    /// Open jobs first, whose states follow from their transfers; then ended ones, whose states are stored.
    pub(super) fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, JournalError> {
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
        let id = JobId(self.parse_uuid(self.text(row, 0)?)?);
        let parameters: JobParameters = self.decode("job parameters", self.text(row, 6)?)?;
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
            states.push(self.decode("transfer state", self.text(row, 0)?)?);
        }
        Ok(rows::roll_up(kind, &states))
    }

    pub(super) fn transfers(&self, job: JobId) -> Result<Vec<TransferRow>, JournalError> {
        let sql = format!("{TRANSFER_COLUMNS} WHERE job_id = ?1 ORDER BY transfer_id");
        self.transfer_rows(&sql, params![job.to_string()])
    }

    pub(super) fn transfer_rows(
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
        let time = |column| {
            let time = self.get::<Option<i64>>(row, column)?;
            Ok::<_, JournalError>(time.map(Timestamp))
        };
        Ok(TransferRow {
            id: TransferId(from_sql(self.get(row, 0)?)),
            job: JobId(self.parse_uuid(self.text(row, 1)?)?),
            request: self.decode("transfer request", self.text(row, 2)?)?,
            state: self.decode("transfer state", self.text(row, 3)?)?,
            size_bytes: self.get::<Option<i64>>(row, 4)?.map(from_sql),
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

    pub(super) fn state_counts(&self, job: JobId) -> Result<Vec<(String, u64)>, JournalError> {
        let sql = "SELECT state_name, count(*) FROM transfer WHERE job_id = ?1 GROUP BY state_name";
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let rows = statement.query_map(params![job.to_string()], |row| {
            Ok((row.get(0)?, from_sql(row.get(1)?)))
        });
        rows.and_then(Iterator::collect).map_err(at(self.path))
    }

    pub(super) fn entries(
        &self,
        sql: &str,
        key: i64,
        limit: i64,
    ) -> Result<Vec<LedgerEntry>, JournalError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let mut rows = statement
            .query(params![key, limit])
            .map_err(at(self.path))?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next().map_err(at(self.path))? {
            entries.push(LedgerEntry {
                sequence: from_sql(self.get(row, 0)?),
                at: Timestamp(self.get(row, 1)?),
                monotonic_us: from_sql(self.get(row, 2)?),
                job: JobId(self.parse_uuid(self.text(row, 3)?)?),
                transfer: TransferId(from_sql(self.get(row, 4)?)),
                event: self.decode("ledger event", self.text(row, 5)?)?,
            });
        }
        Ok(entries)
    }

    pub(super) fn samples(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, JournalError> {
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
                moved: Bytes(from_sql(row.get(3)?)),
                active: Slots(row.get(4)?),
                limit: Slots(row.get(5)?),
                queued: from_sql(row.get(6)?),
            })
        });
        rows.and_then(Iterator::collect).map_err(at(self.path))
    }

    pub(super) fn get<T: rusqlite::types::FromSql>(
        &self,
        row: &Row<'_>,
        column: usize,
    ) -> Result<T, JournalError> {
        row.get(column).map_err(at(self.path))
    }

    /// A column as it lies in the page, not copied.
    pub(super) fn text<'row>(
        &self,
        row: &'row Row<'_>,
        column: usize,
    ) -> Result<&'row str, JournalError> {
        let value = row.get_ref(column).map_err(at(self.path))?;
        let text = value.as_str();
        text.map_err(|why| self.corrupt("text", why.to_string()))
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
