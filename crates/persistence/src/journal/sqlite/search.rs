//! Finding transfers: what an index narrows is read row by row, newest first.

use super::at;
use super::reading::{RecordQueries, TRANSFER_COLUMNS};
use crate::journal::search::{PreparedFilter, SearchScope};
use crate::sql_integer::{from_sql, to_sql};
use penstock_journal::{FoundPage, FoundTransfer, JobName, JournalError, TransferFilter};
use penstock_model::{JobId, Timestamp, TransferId, UserName, VoName};
use rusqlite::{OptionalExtension, params};

/// Jobs of one instant that may have come in another order than their numbers.
const JOBS_OF_AN_INSTANT: i64 = 100;
/// Jobs in which names are looked for.
const JOBS_WITH_NAMES: i64 = 10_000;

pub(super) fn recent_names(
    reading: &RecordQueries<'_>,
    name: JobName,
) -> Result<Vec<String>, JournalError> {
    let column = match name {
        JobName::User => "user",
        JobName::Vo => "vo",
    };
    let sql = format!(
        "SELECT DISTINCT {column} FROM
         (SELECT {column} FROM job ORDER BY submitted_ms DESC LIMIT {JOBS_WITH_NAMES})"
    );
    let failed = || at(reading.path);
    let statement = reading.connection.prepare_cached(&sql);
    let mut statement = statement.map_err(failed())?;
    let names = statement.query_map([], |row| row.get(0));
    names.and_then(Iterator::collect).map_err(failed())
}

struct JobFacts {
    id: JobId,
    user: UserName,
    vo: VoName,
    submitted_at: Timestamp,
    parameters: String,
}

pub(super) fn find(
    reading: &RecordQueries<'_>,
    filter: &TransferFilter,
) -> Result<FoundPage, JournalError> {
    let mut page = FoundPage::default();
    if filter.limit == 0 {
        return Ok(page);
    }
    let floor = match filter.submitted_since {
        Some(since) => match first_since(reading, since)? {
            Some(first) => first,
            None => return Ok(page),
        },
        None => TransferId(0),
    };
    let wanted = PreparedFilter::new(filter);
    let sql = format!(
        "{TRANSFER_COLUMNS} WHERE {} transfer_id < ?1 AND transfer_id >= ?2 ORDER BY transfer_id DESC LIMIT ?4",
        condition(SearchScope::by(filter))
    );
    let before = filter.before.map_or(i64::MAX, |before| to_sql(before.0));
    let job = filter.job.map(|job| job.to_string());
    let examined_max = filter.examined_max.max(1);
    let parameters = params![before, to_sql(floor.0), job, examined_max as i64];
    let mut statement = reading
        .connection
        .prepare_cached(&sql)
        .map_err(at(reading.path))?;
    let mut rows = statement.query(parameters).map_err(at(reading.path))?;
    let mut of: Option<JobFacts> = None;
    while let Some(row) = rows.next().map_err(at(reading.path))? {
        let id = TransferId(from_sql(reading.get(row, 0)?));
        page.examined += 1;
        page.before = Some(id);
        if !wanted.ends(&reading.get::<String>(row, 2)?) {
            continue;
        }
        let job = reading.parse_uuid(&reading.get::<String>(row, 1)?)?;
        if of.as_ref().is_none_or(|of| of.id.0 != job) {
            of = facts(reading, JobId(job))?;
        }
        let Some(of) = &of else {
            continue;
        };
        let mut transfer = reading.transfer_row(row)?;
        if !wanted.rest(&transfer, &of.vo, of.submitted_at) {
            continue;
        }
        reading.mark_awaiting(std::slice::from_mut(&mut transfer))?;
        page.transfers.push(FoundTransfer {
            transfer,
            user: of.user.clone(),
            vo: of.vo.clone(),
            submitted_at: of.submitted_at,
            parameters: reading.decode("job parameters", &of.parameters)?,
        });
        if page.transfers.len() >= filter.limit {
            return Ok(page);
        }
    }
    if page.examined < examined_max {
        page.before = None;
    }
    Ok(page)
}

/// Names columns that the index is made for.
fn condition(narrowed: SearchScope) -> &'static str {
    match narrowed {
        SearchScope::ToJob => "job_id = ?3 AND",
        SearchScope::ToFailed => "?3 IS NULL AND state_name = 'FAILED' AND",
        SearchScope::ToOpen => "?3 IS NULL AND finished_ms IS NULL AND",
        SearchScope::No => "?3 IS NULL AND",
    }
}

/// The lowest number of a transfer that was submitted at or after a time.
fn first_since(
    reading: &RecordQueries<'_>,
    since: Timestamp,
) -> Result<Option<TransferId>, JournalError> {
    let sql = "SELECT min(transfer_id) FROM transfer WHERE job_id IN
               (SELECT job_id FROM job WHERE submitted_ms >= ?1 ORDER BY submitted_ms LIMIT ?2)";
    let first = reading
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            statement.query_row(params![since.0, JOBS_OF_AN_INSTANT], |row| {
                row.get::<_, Option<i64>>(0)
            })
        });
    let first = first.map_err(at(reading.path))?;
    Ok(first.map(|id| TransferId(id as u64)))
}

fn facts(reading: &RecordQueries<'_>, id: JobId) -> Result<Option<JobFacts>, JournalError> {
    let sql = "SELECT user, vo, submitted_ms, parameters FROM job WHERE job_id = ?1";
    let found = reading
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            let row = statement.query_row([id.to_string()], |row| {
                Ok(JobFacts {
                    id,
                    user: UserName::new(row.get::<_, String>(0)?),
                    vo: VoName::new(row.get::<_, String>(1)?),
                    submitted_at: Timestamp(row.get(2)?),
                    parameters: row.get(3)?,
                })
            });
            row.optional()
        });
    found.map_err(at(reading.path))
}
