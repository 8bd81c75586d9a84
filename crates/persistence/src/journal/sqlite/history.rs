//! Removing what is no longer to be kept: a bounded number of rows in each step, so that the writer is never held up.
//!
//! What may go was decided by the caller. A job disappears as a whole and at once; of one with more files than a step
//! may remove, the rest is marked and goes in the steps after it. SQLite keeps the pages that become free and fills
//! them again: the file does not shrink, and nothing is ever written anew for the sake of its size.

use super::at;
use super::reading::RecordQueries;
use crate::sql_integer::from_sql;
use penstock_journal::{
    HistoryFacts, JournalError, OldestEnded, PruneReport, PruneStep, PrunedTotals,
};
use penstock_model::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

/// Jobs that one step looks at.
const JOBS_PER_STEP: usize = 64;

/// With a flush, as all commits: frames of the log that were never flushed are not written again when the flush of the next
/// commit fails once, and after a loss of power the log would end there, before all that was acknowledged since.
pub(super) fn prune(
    connection: &mut Connection,
    step: &PruneStep,
) -> rusqlite::Result<PruneReport> {
    let transaction = connection.transaction()?;
    let pruned = prune_in(&transaction, step)?;
    transaction.commit()?;
    Ok(pruned)
}

fn prune_in(transaction: &Transaction<'_>, step: &PruneStep) -> rusqlite::Result<PruneReport> {
    let mut pruned = PruneReport::default();
    let left = |pruned: &PruneReport| step.rows_max.saturating_sub(pruned.rows() as usize);
    let mut id_max = 0;
    prune_marked(transaction, step.rows_max, &mut pruned, &mut id_max)?;
    for (job, ended, sequence) in jobs_that_may_go(transaction, step)? {
        if left(&pruned) == 0 {
            pruned.has_more = true;
            break;
        }
        delete(transaction, "DELETE FROM job WHERE job_id = ?1", &job)?;
        pruned.jobs += 1;
        pruned.untaken += u64::from(sequence > step.taken_by_all);
        pruned.until = pruned.until.max(Some(ended));
        let rows_max = step.rows_max;
        if !prune_files(transaction, &job, rows_max, &mut pruned, &mut id_max)? {
            let sql = "INSERT INTO pruned_job (job_id) VALUES (?1)";
            transaction.prepare_cached(sql)?.execute([&job])?;
        }
        pruned.has_more |= pruned.jobs as usize == JOBS_PER_STEP;
    }
    if let Some(before) = step.samples_before
        && left(&pruned) > 0
    {
        pruned.samples = prune_old(transaction, "link_sample", before, left(&pruned))?;
    }
    if let Some(before) = step.minutes_before
        && left(&pruned) > 0
    {
        pruned.minutes = prune_old(transaction, "minute_sample", before, left(&pruned))?;
    }
    if let Some(before) = step.ended_before
        && left(&pruned) > 0
    {
        pruned.changes = prune_old(transaction, "link_event", before, left(&pruned))?;
    }
    for table in ["setting_change", "ban_change"] {
        if let Some(before) = step.audit_before
            && left(&pruned) > 0
        {
            pruned.changes += prune_old(transaction, table, before, left(&pruned))?;
        }
    }
    pruned.has_more |= left(&pruned) == 0;
    note(transaction, &pruned, id_max)?;
    Ok(pruned)
}

/// Goes on with jobs of which the last step could not remove all files.
fn prune_marked(
    transaction: &Transaction<'_>,
    rows_max: usize,
    pruned: &mut PruneReport,
    id_max: &mut i64,
) -> rusqlite::Result<()> {
    while (pruned.rows() as usize) < rows_max {
        let sql = "SELECT job_id FROM pruned_job LIMIT 1";
        let mut next = transaction.prepare_cached(sql)?;
        let Some(job) = next.query_row([], |row| row.get(0)).optional()? else {
            return Ok(());
        };
        let job: String = job;
        if prune_files(transaction, &job, rows_max, pruned, id_max)? {
            delete(
                transaction,
                "DELETE FROM pruned_job WHERE job_id = ?1",
                &job,
            )?;
        }
    }
    Ok(())
}

/// The oldest of them, each with its end and its last entry.
fn jobs_that_may_go(
    transaction: &Transaction<'_>,
    step: &PruneStep,
) -> rusqlite::Result<Vec<(String, Timestamp, u64)>> {
    let Some(before) = step.ended_before.max(step.ended_long_before) else {
        return Ok(Vec::new());
    };
    let sql = "SELECT job_id, finished_ms,
                   coalesce(ended_sequence, (SELECT value FROM history WHERE name = 'unknown_end'), 0)
               FROM job WHERE finished_ms IS NOT NULL AND finished_ms < ?1 AND job_id NOT IN
                   (SELECT job_id FROM transfer WHERE transfer_id IN (SELECT transfer_id FROM tidying))
               ORDER BY finished_ms LIMIT ?2";
    let mut select = transaction.prepare_cached(sql)?;
    let mut rows = select.query(params![before.0, JOBS_PER_STEP as i64])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        let (ended, sequence) = (Timestamp(row.get(1)?), from_sql(row.get(2)?));
        let is_taken =
            sequence <= step.taken_by_all && step.ended_before.is_some_and(|time| ended < time);
        if is_taken || step.ended_long_before.is_some_and(|time| ended < time) {
            jobs.push((row.get(0)?, ended, sequence));
        }
    }
    Ok(jobs)
}

/// Removes files of a job with their entries, as far as there is room in the step. True when none is left.
fn prune_files(
    transaction: &Transaction<'_>,
    job: &str,
    rows_max: usize,
    pruned: &mut PruneReport,
    id_max: &mut i64,
) -> rusqlite::Result<bool> {
    loop {
        let left = rows_max.saturating_sub(pruned.rows() as usize);
        if left == 0 {
            return Ok(false);
        }
        // Each has some four entries.
        let some = left.div_ceil(4);
        let sql = "SELECT transfer_id FROM transfer WHERE job_id = ?1 LIMIT ?2";
        let mut select = transaction.prepare_cached(sql)?;
        let ids = select.query_map(params![job, some as i64], |row| row.get(0));
        let ids: Vec<i64> = ids.and_then(Iterator::collect)?;
        for id in &ids {
            let sql = "DELETE FROM ledger WHERE transfer_id = ?1";
            pruned.entries += transaction.prepare_cached(sql)?.execute([id])? as u64;
            let sql = "DELETE FROM transfer WHERE transfer_id = ?1";
            pruned.transfers += transaction.prepare_cached(sql)?.execute([id])? as u64;
            *id_max = (*id_max).max(*id);
        }
        if ids.len() < some {
            return Ok(true);
        }
    }
}

fn prune_old(
    transaction: &Transaction<'_>,
    table: &str,
    before: Timestamp,
    rows_max: usize,
) -> rusqlite::Result<u64> {
    // Samples have an index of their times; the others are in the order of their numbers, which is that of time.
    let order = match table {
        "link_sample" | "minute_sample" => "at_ms",
        _ => "rowid",
    };
    let sql = format!(
        "DELETE FROM {table} WHERE rowid IN
         (SELECT rowid FROM {table} WHERE at_ms < ?1 ORDER BY {order} LIMIT ?2)"
    );
    let gone = transaction
        .prepare_cached(&sql)?
        .execute(params![before.0, rows_max as i64])?;
    Ok(gone as u64)
}

fn delete(transaction: &Transaction<'_>, sql: &str, job: &str) -> rusqlite::Result<()> {
    transaction.prepare_cached(sql)?.execute([job])?;
    Ok(())
}

/// Keeps count, and the highest number of a transfer that is gone: it is not given again.
fn note(transaction: &Transaction<'_>, pruned: &PruneReport, id_max: i64) -> rusqlite::Result<()> {
    let counts = [
        ("pruned_jobs", pruned.jobs),
        ("pruned_transfers", pruned.transfers),
        ("pruned_entries", pruned.entries),
        ("pruned_samples", pruned.samples),
        ("pruned_minutes", pruned.minutes),
    ];
    let sql = "INSERT INTO history (name, value) VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET value = value + excluded.value";
    let mut add = transaction.prepare_cached(sql)?;
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        add.execute(params![name, count as i64])?;
    }
    let heights = [
        ("transfer_id_max", id_max),
        ("pruned_until", pruned.until.map_or(0, |until| until.0)),
    ];
    let sql = "INSERT INTO history (name, value) VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)";
    let mut raise = transaction.prepare_cached(sql)?;
    for (name, height) in heights.into_iter().filter(|(_, height)| *height > 0) {
        raise.execute(params![name, height])?;
    }
    Ok(())
}

/// How much history there is, and what was removed of it.
pub(super) fn facts(reading: &RecordQueries<'_>) -> Result<HistoryFacts, JournalError> {
    look(reading).map_err(at(reading.path))
}

fn look(reading: &RecordQueries<'_>) -> rusqlite::Result<HistoryFacts> {
    let connection = reading.connection;
    let number = |sql: &str| -> rusqlite::Result<Option<i64>> {
        let mut statement = connection.prepare_cached(sql)?;
        Ok(statement
            .query_row([], |row| row.get(0))
            .optional()?
            .flatten())
    };
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let named = |name: &str| -> rusqlite::Result<Option<u64>> {
        let sql = format!("SELECT value FROM history WHERE name = '{name}'");
        Ok(number(&sql)?.map(from_sql))
    };
    let page_bytes = pragma("page_size")? as u64;
    let sql = "SELECT sequence, at_ms FROM ledger ORDER BY sequence LIMIT 1";
    let entry_oldest = connection
        .prepare_cached(sql)?
        .query_row([], |row| {
            Ok((from_sql(row.get(0)?), Timestamp(row.get(1)?)))
        })
        .optional()?;
    let sql = "SELECT finished_ms, coalesce(ended_sequence, (SELECT value FROM history WHERE name = 'unknown_end'), 0)
               FROM job WHERE finished_ms IS NOT NULL ORDER BY finished_ms LIMIT 1";
    let ended_oldest = connection
        .prepare_cached(sql)?
        .query_row([], |row| {
            let (at, sequence) = (Timestamp(row.get(0)?), from_sql(row.get(1)?));
            Ok(OldestEnded { at, sequence })
        })
        .optional()?;
    let log = reading.path.with_file_name({
        let mut name = reading.path.file_name().unwrap_or_default().to_owned();
        name.push("-wal");
        name
    });
    let log_bytes = std::fs::metadata(log).map_or(0, |log| log.len());
    Ok(HistoryFacts {
        size_bytes: pragma("page_count")? as u64 * page_bytes + log_bytes,
        free_bytes: Some(pragma("freelist_count")? as u64 * page_bytes),
        sequence_last: number("SELECT seq FROM sqlite_sequence WHERE name = 'ledger'")?.unwrap_or(0)
            as u64,
        entry_oldest,
        ended_oldest,
        sample_oldest: number("SELECT min(at_ms) FROM link_sample")?.map(Timestamp),
        minute_oldest: number("SELECT min(at_ms) FROM minute_sample")?.map(Timestamp),
        pruned: PrunedTotals {
            jobs: named("pruned_jobs")?.unwrap_or(0),
            transfers: named("pruned_transfers")?.unwrap_or(0),
            entries: named("pruned_entries")?.unwrap_or(0),
            samples: named("pruned_samples")?.unwrap_or(0),
            minutes: named("pruned_minutes")?.unwrap_or(0),
            until: named("pruned_until")?.map(|at| Timestamp(at as i64)),
        },
    })
}
