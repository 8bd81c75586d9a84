//! Removing what is no longer to be kept: jobs and their files row by row, a bounded number in each step; the ledger and
//! the samples by whole parts, which costs the same however much is in them.
//!
//! What may go was decided by the caller. A part of the ledger goes when no job is kept that was submitted before its
//! end; until then entries of jobs that are gone lie in it, where nobody finds them.

use super::partitions;
use crate::postgres::DatabaseError;
use crate::postgres::session::OpenTransaction;
use crate::sql_integer::from_sql;
use penstock_journal::{
    HistoryFacts, JournalError, OldestEnded, PruneReport, PruneStep, PrunedTotals,
};
use penstock_model::Timestamp;
use uuid::Uuid;

/// Jobs that one step looks at.
const JOBS_PER_STEP: i64 = 64;

/// Without a flush: what is lost with the power is removed again.
const NO_FLUSH: &str = "SET LOCAL synchronous_commit = off";

/// Removes rows. `has_more` is false when there were fewer than asked for.
pub(super) fn prune_rows(
    open: &mut OpenTransaction<'_>,
    step: &PruneStep,
) -> Result<PruneReport, JournalError> {
    open.execute_all(NO_FLUSH)?;
    let mut pruned = PruneReport::default();
    let left = |pruned: &PruneReport| step.rows_max.saturating_sub(pruned.rows() as usize) as i64;
    for (job, ended, sequence) in jobs_that_may_go(open, step)? {
        open.execute("DELETE FROM job WHERE job_id = $1", &[&job])?;
        open.execute("INSERT INTO pruned_job (job_id) VALUES ($1)", &[&job])?;
        pruned.jobs += 1;
        pruned.untaken += u64::from(sequence as u64 > step.taken_by_all);
        pruned.until = pruned.until.max(Some(Timestamp(ended)));
    }
    pruned.has_more = pruned.jobs as i64 == JOBS_PER_STEP;
    let files = left(&pruned).max(1);
    let sql = "DELETE FROM transfer WHERE transfer_id IN (SELECT transfer_id FROM transfer
               WHERE job_id = ANY(ARRAY(SELECT job_id FROM pruned_job)) LIMIT $1)";
    pruned.transfers = open.execute(sql, &[&files])?;
    if (pruned.transfers as i64) < files {
        open.execute("DELETE FROM pruned_job", &[])?;
    } else {
        pruned.has_more = true;
    }
    let changes = [
        ("link_event", step.ended_before),
        ("setting_change", step.audit_before),
        ("ban_change", step.audit_before),
        ("minute_sample", step.minutes_before),
    ];
    for (table, before) in changes {
        let Some(before) = before.filter(|_| left(&pruned) > 0) else {
            continue;
        };
        let sql = format!(
            "DELETE FROM {table} WHERE sequence IN
             (SELECT sequence FROM {table} WHERE at_ms < $1 ORDER BY sequence LIMIT $2)"
        );
        let gone = open.execute(&sql, &[&before.0, &left(&pruned)])?;
        match table {
            "minute_sample" => pruned.minutes += gone,
            _ => pruned.changes += gone,
        }
        pruned.has_more |= left(&pruned) == 0;
    }
    note(open, &pruned)?;
    Ok(pruned)
}

/// The oldest of them, each with its end and its last entry. Files of former jobs come first.
fn jobs_that_may_go(
    open: &mut OpenTransaction<'_>,
    step: &PruneStep,
) -> Result<Vec<(Uuid, i64, i64)>, JournalError> {
    let Some(before) = step.ended_before.max(step.ended_long_before) else {
        return Ok(Vec::new());
    };
    if open
        .query_opt("SELECT 1 FROM pruned_job LIMIT 1", &[])?
        .is_some()
    {
        return Ok(Vec::new());
    }
    let jobs = JOBS_PER_STEP.min(step.rows_max.max(1) as i64);
    let sql = "SELECT job_id, finished_ms,
                   coalesce(ended_sequence, (SELECT value FROM history WHERE name = 'unknown_end'), 0)
               FROM job WHERE finished_ms IS NOT NULL AND finished_ms < $1 AND NOT EXISTS
                   (SELECT FROM tidying JOIN transfer USING (transfer_id) WHERE transfer.job_id = job.job_id)
               ORDER BY finished_ms LIMIT $2";
    let rows = open.query(sql, &[&before.0, &jobs])?;
    let found = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)));
    let may_go = |(_, ended, sequence): &(Uuid, i64, i64)| {
        let ended = Timestamp(*ended);
        let is_taken = *sequence as u64 <= step.taken_by_all;
        is_taken && step.ended_before.is_some_and(|time| ended < time)
            || step.ended_long_before.is_some_and(|time| ended < time)
    };
    Ok(found.filter(may_go).collect())
}

/// Drops the parts of which nothing is needed, and makes those that will be needed soon. Nobody waits for it for long:
/// when somebody reads what is to be changed, it is left to a later step.
pub(super) fn prune_parts(
    open: &mut OpenTransaction<'_>,
    step: &PruneStep,
    last_sequence: i64,
) -> Result<PruneReport, JournalError> {
    let mut pruned = PruneReport::default();
    if step.ended_before.is_some() || step.ended_long_before.is_some() {
        let kept_from = first_kept(open, last_sequence)?;
        for part in partitions::parts(open, "ledger")? {
            if part.end <= kept_from {
                let sql = format!("SELECT min(sequence), max(sequence) FROM {}", part.name);
                let row = open.query_opt(&sql, &[])?;
                let ends = row.and_then(|row| row.get::<_, Option<i64>>(0).zip(row.get(1)));
                pruned.entries +=
                    ends.map_or(0, |(first, last): (i64, i64)| (last - first + 1) as u64);
                partitions::drop_part(open, "ledger", &part)?;
            }
        }
    }
    if let Some(before) = step.samples_before {
        for part in partitions::parts(open, "link_sample")? {
            if part.end <= before.0 {
                let row = open.query_opt(&format!("SELECT count(*) FROM {}", part.name), &[])?;
                pruned.samples += row.map_or(0, |row| row.get::<_, i64>(0)) as u64;
                partitions::drop_part(open, "link_sample", &part)?;
            }
        }
    }
    partitions::make_ahead(open, last_sequence)?;
    note(open, &pruned)?;
    Ok(pruned)
}

/// The first entry of the ledger that a job needs which is kept: numbers of transfers and of entries grow together, so
/// it is the first of the transfer with the lowest number.
///
/// When that one has none, nothing is known, and nothing may go.
fn first_kept(open: &mut OpenTransaction<'_>, last_sequence: i64) -> Result<i64, JournalError> {
    let sql = "SELECT lowest.transfer_id, (SELECT min(sequence) FROM ledger WHERE ledger.transfer_id = lowest.transfer_id)
               FROM (SELECT min(transfer_id) AS transfer_id FROM transfer) AS lowest";
    let row = open.query_opt(sql, &[])?;
    let found: (Option<i64>, Option<i64>) =
        row.map_or((None, None), |row| (row.get(0), row.get(1)));
    Ok(match found {
        (None, _) => last_sequence + 1,
        (Some(_), Some(first)) => first,
        (Some(transfer), None) => {
            tracing::warn!(
                transfer,
                "a transfer has no entry in the ledger; no part of the ledger is removed"
            );
            0
        }
    })
}

fn note(open: &mut OpenTransaction<'_>, pruned: &PruneReport) -> Result<(), DatabaseError> {
    let counts = [
        ("pruned_jobs", pruned.jobs),
        ("pruned_transfers", pruned.transfers),
        ("pruned_entries", pruned.entries),
        ("pruned_samples", pruned.samples),
        ("pruned_minutes", pruned.minutes),
    ];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        let sql = "INSERT INTO history (name, value) VALUES ($1, $2)
                   ON CONFLICT (name) DO UPDATE SET value = history.value + excluded.value";
        open.execute(sql, &[&name, &(count as i64)])?;
    }
    if let Some(until) = pruned.until {
        let sql = "INSERT INTO history (name, value) VALUES ('pruned_until', $1)
                   ON CONFLICT (name) DO UPDATE SET value = greatest(history.value, excluded.value)";
        open.execute(sql, &[&until.0])?;
    }
    Ok(())
}

/// How much history there is, and what was removed of it.
pub(super) fn facts(open: &mut OpenTransaction<'_>) -> Result<HistoryFacts, JournalError> {
    let sql = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
               WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace";
    let size = open
        .query_opt(sql, &[])?
        .map_or(0, |row| row.get::<_, i64>(0));
    let sql = "SELECT last_sequence FROM journal_writer";
    let last = open
        .query_opt(sql, &[])?
        .map_or(0, |row| row.get::<_, i64>(0));
    let sql = "SELECT sequence, at_ms FROM ledger ORDER BY sequence LIMIT 1";
    let entry = open.query_opt(sql, &[])?;
    let sql = "SELECT finished_ms, coalesce(ended_sequence, (SELECT value FROM history WHERE name = 'unknown_end'), 0)
               FROM job WHERE finished_ms IS NOT NULL ORDER BY finished_ms LIMIT 1";
    let ended = open.query_opt(sql, &[])?;
    let sql = "SELECT min(at_ms) FROM link_sample";
    let sample = open
        .query_opt(sql, &[])?
        .and_then(|row| row.get::<_, Option<i64>>(0));
    let sql = "SELECT min(at_ms) FROM minute_sample";
    let minute = open
        .query_opt(sql, &[])?
        .and_then(|row| row.get::<_, Option<i64>>(0));
    let mut pruned = PrunedTotals::default();
    for row in open.query("SELECT name, value FROM history", &[])? {
        let (name, value): (&str, i64) = (row.get(0), row.get(1));
        match name {
            "pruned_jobs" => pruned.jobs = value as u64,
            "pruned_transfers" => pruned.transfers = value as u64,
            "pruned_entries" => pruned.entries = value as u64,
            "pruned_samples" => pruned.samples = value as u64,
            "pruned_minutes" => pruned.minutes = value as u64,
            "pruned_until" => pruned.until = Some(Timestamp(value)),
            _ => {}
        }
    }
    Ok(HistoryFacts {
        size_bytes: size as u64,
        free_bytes: None,
        sequence_last: last as u64,
        entry_oldest: entry.map(|row| (from_sql(row.get(0)), Timestamp(row.get(1)))),
        ended_oldest: ended.map(|row| OldestEnded {
            at: Timestamp(row.get(0)),
            sequence: from_sql(row.get(1)),
        }),
        sample_oldest: sample.map(Timestamp),
        minute_oldest: minute.map(Timestamp),
        pruned,
    })
}
