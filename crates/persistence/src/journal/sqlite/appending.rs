//! What single records become in the tables.

use super::json;
use penstock_model::ledger::LEDGER_VERSION;
use penstock_model::{
    Job, JobId, JobKind, LinkSample, StorageId, Timestamp, TransferEvent, TransferId, TransferState,
};
use rusqlite::{Transaction, params};

pub(super) fn insert_job(transaction: &Transaction<'_>, job: &Job) -> rusqlite::Result<()> {
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

pub(super) fn insert_event(
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

pub(super) fn update_transfer(
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
        | TransferEvent::Archived { .. }
        | TransferEvent::ArchiveFailed { .. }
        | TransferEvent::Replaced { .. }
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
        TransferEvent::Staged { .. }
        | TransferEvent::StageFailed { .. }
        | TransferEvent::Replaced { .. } => {
            "UPDATE transfer SET staging_finished_ms = ?2
             WHERE transfer_id = ?1 AND staging_started_ms IS NOT NULL"
        }
        TransferEvent::Landed { archives: true, .. } => {
            "UPDATE transfer SET archiving_started_ms = ?2 WHERE transfer_id = ?1"
        }
        TransferEvent::Archived { .. } | TransferEvent::ArchiveFailed { .. } => {
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

pub(super) fn insert_sample(
    transaction: &Transaction<'_>,
    sample: &LinkSample,
) -> rusqlite::Result<()> {
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
