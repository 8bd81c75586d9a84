//! Jobs, transfers and the ledger as they are in the tables.

use super::tokens;
use crate::journal::rows;
use crate::postgres::session::{OpenTransaction, Parameter};
use crate::postgres::text;
use crate::sql_integer::from_sql;
use ::postgres::Row;
use penstock_journal::{JobFilter, JobRow, JournalError, TapeTimes, TransferRow};
use penstock_model::{
    Ban, BanChange, Bytes, CredentialId, JobId, JobParameters, JobState, LedgerEntry, LinkChange,
    LinkId, LinkSample, Setting, SettingChange, SettingKey, Settings, Slots, StageRequestId,
    StorageId, Timestamp, TransferId, TransferState, UserName, VoName,
};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

fn corrupt_in(database: &Arc<str>, what: &'static str, detail: String) -> JournalError {
    JournalError::Corrupt {
        path: database.to_string(),
        what,
        detail,
    }
}

pub(super) fn decode<T: DeserializeOwned>(
    database: &Arc<str>,
    what: &'static str,
    text: &str,
) -> Result<T, JournalError> {
    serde_json::from_str(text).map_err(|why| corrupt_in(database, what, why.to_string()))
}

/// What operators have set.
pub(super) fn settings(open: &mut OpenTransaction<'_>) -> Result<Settings, JournalError> {
    let mut settings = Settings::default();
    for row in open.query("SELECT setting FROM setting", &[])? {
        settings.put(decode::<Setting>(open.database(), "setting", row.get(0))?);
    }
    Ok(settings)
}

/// The bans that hold.
pub(super) fn bans(open: &mut OpenTransaction<'_>) -> Result<Vec<Ban>, JournalError> {
    let sql = "SELECT ban FROM ban ORDER BY kind, name, vo";
    let rows = open.query(sql, &[])?;
    rows.iter()
        .map(|row| decode::<Ban>(open.database(), "ban", row.get(0)))
        .collect()
}

/// Jobs whose files are looked at in one question.
const JOBS_AT_ONCE: i64 = 200;

const JOB_COLUMNS: &str =
    "SELECT job_id, username, vo, delegation, submitted_ms, finished_ms, parameters, source_se,
     destination_se, final_state FROM job";
const TRANSFER_COLUMNS: &str =
    "SELECT transfer_id, job_id, request, state, size_bytes, started_ms, finished_ms, stage_request,
     staging_started_ms, staging_finished_ms, archiving_started_ms, archiving_finished_ms FROM transfer";

pub(super) fn job(
    open: &mut OpenTransaction<'_>,
    id: JobId,
) -> Result<Option<JobRow>, JournalError> {
    let rows = open.query(&format!("{JOB_COLUMNS} WHERE job_id = $1"), &[&id.0])?;
    Ok(job_rows(open, &rows)?.pop())
}

/// Open jobs, whose states follow from their transfers, and ended ones, whose states are stored: newest first.
pub(super) fn jobs(
    open: &mut OpenTransaction<'_>,
    filter: &JobFilter,
) -> Result<Vec<JobRow>, JournalError> {
    const OF_FILTER: &str =
        "($1::text IS NULL OR username = $1) AND ($2::text IS NULL OR vo = $2) AND ($3::text IS NULL OR source_se = $3)
         AND ($4::text IS NULL OR destination_se = $4) AND ($5::text IS NULL OR delegation = $5)";
    let user = filter.user.as_ref().map(|user| text(user.as_str()));
    let vo = filter.vo.as_ref().map(|vo| text(vo.as_str()));
    let source = filter.source.as_ref().map(|source| text(source.as_str()));
    let destination = filter.destination.as_ref().map(|it| text(it.as_str()));
    let delegation = filter.delegation.as_ref().map(|it| text(it.as_str()));
    let of_filter: [Parameter<'_>; 5] = [&user, &vo, &source, &destination, &delegation];
    let mut jobs = Vec::new();
    if filter.wants_open() {
        let sql = format!(
            "{JOB_COLUMNS} WHERE finished_ms IS NULL AND {OF_FILTER} AND (submitted_ms, job_id) < ($6, $7)
             ORDER BY submitted_ms DESC, job_id DESC LIMIT {JOBS_AT_ONCE}"
        );
        let mut before = (i64::MAX, Uuid::max());
        while jobs.len() < filter.limit {
            let parameters = [of_filter.as_slice(), &[&before.0, &before.1]].concat();
            let rows = open.query(&sql, &parameters)?;
            let Some(last) = rows.last() else {
                break;
            };
            before = (last.get(4), last.get(0));
            let wanted = job_rows(open, &rows)?.into_iter();
            jobs.extend(wanted.filter(|row| filter.wants(row.state)));
        }
        jobs.truncate(filter.limit);
    }
    let Some(ended_since) = filter.ended_since else {
        return Ok(jobs);
    };
    let sql = format!(
        "{JOB_COLUMNS} WHERE finished_ms IS NOT NULL AND finished_ms >= $6 AND {OF_FILTER}
         AND (cardinality($7::text[]) = 0 OR final_state = ANY($7)) ORDER BY submitted_ms DESC, job_id DESC LIMIT $8"
    );
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let of_ended: [Parameter<'_>; 3] = [&ended_since.0, &filter.states, &limit];
    let rows = open.query(&sql, &[of_filter.as_slice(), &of_ended].concat())?;
    jobs.extend(job_rows(open, &rows)?);
    jobs.sort_by_key(|row| std::cmp::Reverse(row.submitted_at));
    jobs.truncate(filter.limit);
    Ok(jobs)
}

/// Reads rows of [`JOB_COLUMNS`]; what their states follow from is asked for all of them at once.
fn job_rows(open: &mut OpenTransaction<'_>, rows: &[Row]) -> Result<Vec<JobRow>, JournalError> {
    let finished = JobState::Finished.name();
    // What finished well for good needs no look at its files.
    let unclear = rows
        .iter()
        .filter(|row| row.get::<_, Option<&str>>(9) != Some(finished));
    let unclear: Vec<Uuid> = unclear.map(|row| row.get(0)).collect();
    let mut states: HashMap<Uuid, Vec<TransferState>> = HashMap::new();
    if !unclear.is_empty() {
        let sql = "SELECT DISTINCT ON (job_id, state_name) job_id, state FROM transfer WHERE job_id = ANY($1)
                   ORDER BY job_id, state_name";
        for row in open.query(sql, &[&unclear])? {
            let state = decode(open.database(), "transfer state", row.get(1))?;
            states.entry(row.get(0)).or_default().push(state);
        }
    }
    let read = |row: &Row| {
        let id: Uuid = row.get(0);
        let parameters: JobParameters = decode(open.database(), "job parameters", row.get(6))?;
        let (state, reason) = match row.get::<_, Option<&str>>(9) == Some(finished) {
            true => (JobState::Finished, None),
            false => {
                let states = states.get(&id).map_or([].as_slice(), Vec::as_slice);
                rows::roll_up(parameters.kind, states)
            }
        };
        Ok(JobRow {
            id: JobId(id),
            user: UserName::new(row.get::<_, &str>(1)),
            vo: VoName::new(row.get::<_, &str>(2)),
            delegation: CredentialId::new(row.get::<_, &str>(3)),
            submitted_at: Timestamp(row.get(4)),
            finished_at: row.get::<_, Option<i64>>(5).map(Timestamp),
            parameters,
            source: StorageId::new(row.get::<_, &str>(7)),
            destination: StorageId::new(row.get::<_, &str>(8)),
            state,
            reason,
        })
    };
    rows.iter().map(read).collect()
}

/// Transfers by a condition on [`TRANSFER_COLUMNS`].
pub(super) fn transfers(
    open: &mut OpenTransaction<'_>,
    condition: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<TransferRow>, JournalError> {
    let rows = open.query(&format!("{TRANSFER_COLUMNS} {condition}"), parameters)?;
    let read = rows.iter().map(|row| transfer_row(open.database(), row));
    let mut transfers = read.collect::<Result<Vec<_>, _>>()?;
    tokens::mark_awaiting(open, &mut transfers)?;
    Ok(transfers)
}

/// Rows of [`TRANSFER_COLUMNS`] as they are.
pub(super) fn transfer_columns(
    open: &mut OpenTransaction<'_>,
    condition: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Row>, JournalError> {
    Ok(open.query(&format!("{TRANSFER_COLUMNS} {condition}"), parameters)?)
}

pub(super) fn transfer_row(database: &Arc<str>, row: &Row) -> Result<TransferRow, JournalError> {
    let time = |column: usize| row.get::<_, Option<i64>>(column).map(Timestamp);
    Ok(TransferRow {
        id: TransferId(from_sql(row.get(0))),
        job: JobId(row.get(1)),
        request: decode(database, "transfer request", row.get(2))?,
        state: decode(database, "transfer state", row.get(3))?,
        size_bytes: row.get::<_, Option<i64>>(4).map(from_sql),
        started_at: time(5),
        finished_at: time(6),
        awaits_token: false,
        is_banned: false,
        tape: TapeTimes {
            request: row.get::<_, Option<&str>>(7).map(StageRequestId::new),
            staging_started_at: time(8),
            staging_finished_at: time(9),
            archiving_started_at: time(10),
            archiving_finished_at: time(11),
        },
    })
}

pub(super) fn state_counts(
    open: &mut OpenTransaction<'_>,
    job: JobId,
) -> Result<Vec<(String, u64)>, JournalError> {
    let sql = "SELECT state_name, count(*) FROM transfer WHERE job_id = $1 GROUP BY state_name ORDER BY state_name";
    let rows = open.query(sql, &[&job.0])?;
    let counts = rows.iter().map(|row| (row.get(0), from_sql(row.get(1))));
    Ok(counts.collect())
}

/// Entries of the ledger by a condition with two parameters, in order.
pub(super) fn entries(
    open: &mut OpenTransaction<'_>,
    condition: &str,
    key: u64,
    limit: usize,
) -> Result<Vec<LedgerEntry>, JournalError> {
    let sql = format!(
        "SELECT sequence, at_ms, monotonic_us, job_id, transfer_id, event FROM ledger
         WHERE {condition} ORDER BY sequence LIMIT $2"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = open.query(&sql, &[&i64::try_from(key).unwrap_or(i64::MAX), &limit])?;
    let read = |row: &Row| {
        Ok(LedgerEntry {
            sequence: from_sql(row.get(0)),
            at: Timestamp(row.get(1)),
            monotonic_us: from_sql(row.get(2)),
            job: JobId(row.get(3)),
            transfer: TransferId(from_sql(row.get(4))),
            event: decode(open.database(), "ledger event", row.get(5))?,
        })
    };
    rows.iter().map(read).collect()
}

pub(super) fn samples(
    open: &mut OpenTransaction<'_>,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<LinkSample>, JournalError> {
    let sql = "SELECT at_ms, source, destination, moved_bytes, active, slots_limit, queued FROM link_sample
               WHERE at_ms >= $1 AND at_ms < $2 ORDER BY at_ms";
    let rows = open.query(sql, &[&from.0, &to.0])?;
    let samples = rows.iter().map(|row| LinkSample {
        at: Timestamp(row.get(0)),
        link: LinkId {
            source: StorageId::new(row.get::<_, &str>(1)),
            destination: StorageId::new(row.get::<_, &str>(2)),
        },
        moved: Bytes(from_sql(row.get(3))),
        active: Slots(row.get::<_, i32>(4) as u32),
        limit: Slots(row.get::<_, i32>(5) as u32),
        queued: from_sql(row.get(6)),
    });
    Ok(samples.collect())
}

pub(super) fn link_changes(
    open: &mut OpenTransaction<'_>,
    link: &LinkId,
    from: Timestamp,
    to: Timestamp,
    limit: usize,
) -> Result<Vec<LinkChange>, JournalError> {
    let sql = "SELECT at_ms, event FROM link_event WHERE source = $1 AND destination = $2
               AND at_ms >= $3 AND at_ms <= $4 ORDER BY sequence DESC LIMIT $5";
    let (source, destination) = (text(link.source.as_str()), text(link.destination.as_str()));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = open.query(sql, &[&source, &destination, &from.0, &to.0, &limit])?;
    let read = |row: &Row| {
        Ok(LinkChange {
            at: Timestamp(row.get(0)),
            link: link.clone(),
            event: decode(open.database(), "link event", row.get(1))?,
        })
    };
    rows.iter().rev().map(read).collect()
}

/// Newest first.
pub(super) fn setting_changes(
    open: &mut OpenTransaction<'_>,
    limit: usize,
) -> Result<Vec<SettingChange>, JournalError> {
    let sql = "SELECT at_ms, username, action, setting_key, setting_before, setting_after FROM setting_change
               ORDER BY sequence DESC LIMIT $1";
    let rows = open.query(sql, &[&i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let setting = |text: Option<&str>| {
        let decode = |text| decode::<Setting>(open.database(), "setting", text);
        text.map(decode).transpose()
    };
    let read = |row: &Row| {
        Ok(SettingChange {
            at: Timestamp(row.get(0)),
            user: UserName::new(row.get::<_, &str>(1)),
            action: row.get(2),
            key: decode::<SettingKey>(open.database(), "setting", row.get(3))?,
            before: setting(row.get(4))?,
            after: setting(row.get(5))?,
        })
    };
    rows.iter().map(read).collect()
}

/// Newest first.
pub(super) fn ban_changes(
    open: &mut OpenTransaction<'_>,
    limit: usize,
) -> Result<Vec<BanChange>, JournalError> {
    let sql = "SELECT at_ms, username, ban_before, ban_after FROM ban_change ORDER BY sequence DESC LIMIT $1";
    let rows = open.query(sql, &[&i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let ban = |text: Option<&str>| {
        let decode = |text| decode::<Ban>(open.database(), "ban", text);
        text.map(decode).transpose()
    };
    let read = |row: &Row| {
        Ok(BanChange {
            at: Timestamp(row.get(0)),
            by: UserName::new(row.get::<_, &str>(1)),
            before: ban(row.get(2))?,
            after: ban(row.get(3))?,
        })
    };
    rows.iter().map(read).collect()
}
