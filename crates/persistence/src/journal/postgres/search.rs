//! Finding transfers, newest first: what an index narrows is looked at in parts, and compared here.

use super::reading::{decode, transfer_columns, transfer_row};
use super::tokens::mark_awaiting;
use crate::journal::search::{PreparedFilter, SearchScope};
use crate::postgres::session::OpenTransaction;
use crate::sql_integer::to_sql;
use ::postgres::Row;
use penstock_journal::{FoundPage, FoundTransfer, JobName, JournalError, TransferFilter};
use penstock_model::{JobParameters, Timestamp, TransferId, UserName, VoName};
use std::collections::HashMap;
use uuid::Uuid;

/// Rows that are read at once.
const ROWS_AT_ONCE: usize = 500;
/// Jobs of one instant that may have come in another order than their numbers.
const JOBS_OF_AN_INSTANT: i64 = 100;
/// Jobs in which names are looked for.
const JOBS_WITH_NAMES: i64 = 10_000;

pub(super) fn recent_names(
    open: &mut OpenTransaction<'_>,
    name: JobName,
) -> Result<Vec<String>, JournalError> {
    let column = match name {
        JobName::User => "username",
        JobName::Vo => "vo",
    };
    let sql = format!(
        "SELECT DISTINCT {column} FROM
         (SELECT {column} FROM job ORDER BY submitted_ms DESC LIMIT {JOBS_WITH_NAMES}) AS latest ORDER BY {column}"
    );
    let rows = open.query(&sql, &[])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

struct JobFacts {
    user: UserName,
    vo: VoName,
    submitted_at: Timestamp,
    parameters: String,
}

pub(super) fn find(
    open: &mut OpenTransaction<'_>,
    filter: &TransferFilter,
) -> Result<FoundPage, JournalError> {
    let mut page = FoundPage::default();
    if filter.limit == 0 {
        return Ok(page);
    }
    let floor = match filter.submitted_since {
        Some(since) => match first_since(open, since)? {
            Some(first) => first,
            None => return Ok(page),
        },
        None => 0,
    };
    let wanted = PreparedFilter::new(filter);
    let condition = format!(
        "WHERE {} transfer_id < $1 AND transfer_id >= $2 ORDER BY transfer_id DESC LIMIT {ROWS_AT_ONCE}",
        condition(SearchScope::by(filter))
    );
    let job = filter.job.map(|job| job.0);
    let examined_max = filter.examined_max.max(1);
    let mut before = filter.before.map_or(i64::MAX, |before| to_sql(before.0));
    let mut facts: HashMap<Uuid, JobFacts> = HashMap::new();
    loop {
        let rows = transfer_columns(open, &condition, &[&before, &floor, &job])?;
        let room = examined_max - page.examined;
        let looked_at = &rows[..rows.len().min(room)];
        let fitting = looked_at.iter().filter(|row| wanted.ends(row.get(2)));
        let fitting: Vec<&Row> = fitting.collect();
        learn(open, &fitting, &mut facts)?;
        let mut fitting = fitting.into_iter().peekable();
        for row in looked_at {
            let id: i64 = row.get(0);
            page.examined += 1;
            page.before = Some(TransferId(id as u64));
            before = id;
            if fitting
                .next_if(|fits| fits.get::<_, i64>(0) == id)
                .is_none()
            {
                continue;
            }
            let Some(of) = facts.get(&row.get::<_, Uuid>(1)) else {
                continue;
            };
            let mut transfer = transfer_row(open.database(), row)?;
            if !wanted.rest(&transfer, &of.vo, of.submitted_at) {
                continue;
            }
            mark_awaiting(open, std::slice::from_mut(&mut transfer))?;
            page.transfers.push(FoundTransfer {
                transfer,
                user: of.user.clone(),
                vo: of.vo.clone(),
                submitted_at: of.submitted_at,
                parameters: decode::<JobParameters>(
                    open.database(),
                    "job parameters",
                    &of.parameters,
                )?,
            });
            if page.transfers.len() >= filter.limit {
                return Ok(page);
            }
        }
        if page.examined >= examined_max {
            return Ok(page);
        }
        if rows.len() < ROWS_AT_ONCE {
            page.before = None;
            return Ok(page);
        }
    }
}

/// Names columns that the index is made for.
fn condition(narrowed: SearchScope) -> &'static str {
    match narrowed {
        SearchScope::ToJob => "job_id = $3 AND",
        SearchScope::ToFailed => "$3::uuid IS NULL AND has_failed AND",
        SearchScope::ToOpen => "$3::uuid IS NULL AND finished_ms IS NULL AND",
        SearchScope::No => "$3::uuid IS NULL AND",
    }
}

/// The lowest number of a transfer that was submitted at or after a time.
fn first_since(
    open: &mut OpenTransaction<'_>,
    since: Timestamp,
) -> Result<Option<i64>, JournalError> {
    let sql = "SELECT min(transfer_id) FROM transfer WHERE job_id IN
               (SELECT job_id FROM job WHERE submitted_ms >= $1 ORDER BY submitted_ms LIMIT $2)";
    let row = open.query_opt(sql, &[&since.0, &JOBS_OF_AN_INSTANT])?;
    Ok(row.and_then(|row| row.get(0)))
}

/// Reads what is not yet known of the jobs of some transfers.
fn learn(
    open: &mut OpenTransaction<'_>,
    transfers: &[&Row],
    facts: &mut HashMap<Uuid, JobFacts>,
) -> Result<(), JournalError> {
    let jobs = transfers.iter().map(|row| row.get::<_, Uuid>(1));
    let mut unknown: Vec<Uuid> = jobs.filter(|job| !facts.contains_key(job)).collect();
    unknown.dedup();
    if unknown.is_empty() {
        return Ok(());
    }
    let sql =
        "SELECT job_id, username, vo, submitted_ms, parameters FROM job WHERE job_id = ANY($1)";
    for row in open.query(sql, &[&unknown])? {
        let of = JobFacts {
            user: UserName::new(row.get::<_, &str>(1)),
            vo: VoName::new(row.get::<_, &str>(2)),
            submitted_at: Timestamp(row.get(3)),
            parameters: row.get(4),
        };
        facts.insert(row.get(0), of);
    }
    Ok(())
}
