//! Writing a batch: one statement for each table.

use super::batch::{Batch, Change, ban_key, tidying_user};
use super::partitions::Partitions;
use super::{minutes, tidyings, tunings};
use crate::journal::rows::with_priority;
use crate::postgres::session::OpenTransaction;
use crate::postgres::{DatabaseError, text};
use ::postgres::Row;
use penstock_model::ban::BAN_VERSION;
use penstock_model::ledger::{LEDGER_VERSION, LINK_EVENT_VERSION};
use penstock_model::setting::SETTING_VERSION;
use penstock_model::{BanChange, LinkChange, SettingChange};

/// How far the writer has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) last_sequence: i64,
    pub(super) transfer_id_max: i64,
}

impl Progress {
    /// From the columns `last_sequence` and `transfer_id_max`.
    pub(super) fn from_columns(row: &Row) -> Progress {
        Progress {
            last_sequence: row.get(0),
            transfer_id_max: row.get(1),
        }
    }
}

/// Writes all of it and says how far the ledger goes then. What refers to something of the same batch comes after it.
pub(super) fn write(
    open: &mut OpenTransaction<'_>,
    batch: &Batch,
    mut progress: Progress,
    partitions: &mut Partitions,
) -> Result<Progress, DatabaseError> {
    jobs(open, batch)?;
    if let Some(highest) = batch.transfers.id.iter().max() {
        progress.transfer_id_max = progress.transfer_id_max.max(*highest);
    }
    tokens(open, batch)?;
    progress.last_sequence = ledger(open, batch, progress.last_sequence, partitions)?;
    changes(open, batch)?;
    renewed(open, batch)?;
    priorities(open, batch)?;
    tidyings::owe(open, batch)?;
    ended(open, batch, progress.last_sequence)?;
    tidyings::end(open, batch)?;
    free_tokens(open, batch)?;
    for change in &batch.settings {
        configured(open, change)?;
    }
    for change in &batch.bans {
        banned(open, change)?;
    }
    for change in &batch.links {
        link_changed(open, change)?;
    }
    for decision in &batch.tunings {
        let text = json(open, decision)?;
        tunings::record(open, decision, &text)?;
    }
    samples(open, batch, partitions)?;
    minutes::insert(open, &batch.minutes)?;
    Ok(progress)
}

fn jobs(open: &mut OpenTransaction<'_>, batch: &Batch) -> Result<(), DatabaseError> {
    let jobs = &batch.jobs;
    if !jobs.id.is_empty() {
        open.execute(
            "INSERT INTO job (job_id, username, vo, delegation, submitted_ms, priority, parameters, source_se,
                 destination_se)
             SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::integer[],
                 $7::text[], $8::text[], $9::text[])",
            &[
                &jobs.id,
                &jobs.user,
                &jobs.vo,
                &jobs.delegation,
                &jobs.submitted,
                &jobs.priority,
                &jobs.parameters,
                &jobs.source,
                &jobs.destination,
            ],
        )?;
    }
    let transfers = &batch.transfers;
    if !transfers.id.is_empty() {
        open.execute(
            "INSERT INTO transfer (transfer_id, job_id, request, state_name, state)
             SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[], $5::text[])",
            &[
                &transfers.id,
                &transfers.job,
                &transfers.request,
                &transfers.state_name,
                &transfers.state,
            ],
        )?;
    }
    Ok(())
}

/// A token that another job has brought before stays as it is, because it may have been renewed.
fn tokens(open: &mut OpenTransaction<'_>, batch: &Batch) -> Result<(), DatabaseError> {
    let tokens = &batch.tokens;
    if tokens.use_id.is_empty() {
        return Ok(());
    }
    open.execute(
        "INSERT INTO sealed_credential (credential_id, sealed) SELECT * FROM unnest($1::text[], $2::bytea[])
         ON CONFLICT DO NOTHING",
        &[&tokens.id, &tokens.sealed],
    )?;
    open.execute(
        "INSERT INTO credential_use (job_id, credential_id) SELECT * FROM unnest($1::uuid[], $2::text[])
         ON CONFLICT DO NOTHING",
        &[&tokens.use_job, &tokens.use_id],
    )?;
    for token in &tokens.renewals {
        let Some(renewal) = &token.renewal else {
            continue;
        };
        open.execute(
            "INSERT INTO token_renewal (credential_id, issuer, scope, audience, renew_ms)
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
            &[
                &text(token.id.as_str()),
                &text(&renewal.issuer),
                &text(&renewal.scope),
                &text(&renewal.audience),
                &renewal.renew_at.0,
            ],
        )?;
    }
    Ok(())
}

/// There is one writer, so that its own numbers are those of the commits, without a gap.
fn ledger(
    open: &mut OpenTransaction<'_>,
    batch: &Batch,
    last: i64,
    partitions: &mut Partitions,
) -> Result<i64, DatabaseError> {
    let ledger = &batch.ledger;
    if ledger.at.is_empty() {
        return Ok(last);
    }
    let end = last + ledger.at.len() as i64;
    partitions.of_ledger(open, last + 1, end)?;
    open.execute(
        "INSERT INTO ledger (sequence, at_ms, monotonic_us, job_id, transfer_id, version, event)
         SELECT $1 + number, at_ms, monotonic_us, job_id, transfer_id, $2, event
         FROM unnest($3::bigint[], $4::bigint[], $5::uuid[], $6::bigint[], $7::text[])
         WITH ORDINALITY AS row (at_ms, monotonic_us, job_id, transfer_id, event, number)",
        &[
            &last,
            &(LEDGER_VERSION as i32),
            &ledger.at,
            &ledger.monotonic,
            &ledger.job,
            &ledger.transfer,
            &ledger.event,
        ],
    )?;
    Ok(end)
}

fn changes(open: &mut OpenTransaction<'_>, batch: &Batch) -> Result<(), DatabaseError> {
    let changes = &batch.changed;
    if !changes.id.is_empty() {
        open.execute(
            "UPDATE transfer SET state_name = new.state_name, state = new.state,
                 size_bytes = coalesce(new.size_bytes, transfer.size_bytes),
                 started_ms = coalesce(new.started_ms, transfer.started_ms), finished_ms = new.finished_ms
             FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
                 AS new (transfer_id, state_name, state, size_bytes, started_ms, finished_ms)
             WHERE transfer.transfer_id = new.transfer_id",
            &[
                &changes.id,
                &changes.state_name,
                &changes.state,
                &changes.size,
                &changes.started,
                &changes.finished,
            ],
        )?;
    }
    for (transfer, change) in &changes.of_tape {
        tape_times(open, *transfer, change)?;
    }
    Ok(())
}

/// When tape systems were at a file.
fn tape_times(
    open: &mut OpenTransaction<'_>,
    transfer: i64,
    change: &Change,
) -> Result<(), DatabaseError> {
    let (request, started) = match &change.staged {
        Some((request, started)) => (Some(request), Some(*started)),
        None => (None, None),
    };
    open.execute(
        "UPDATE transfer SET stage_request = coalesce($2::text, stage_request),
             staging_started_ms = coalesce($3::bigint, staging_started_ms),
             staging_finished_ms = CASE WHEN $3::bigint IS NOT NULL THEN $4::bigint
                 WHEN staging_started_ms IS NOT NULL THEN coalesce($4::bigint, staging_finished_ms) END,
             archiving_started_ms = coalesce($5, archiving_started_ms),
             archiving_finished_ms = coalesce($6, archiving_finished_ms)
         WHERE transfer_id = $1",
        &[
            &transfer,
            &request,
            &started,
            &change.staging_finished,
            &change.archiving_started,
            &change.archiving_finished,
        ],
    )?;
    Ok(())
}

/// Nothing happens when no open job needs the token any more.
fn renewed(open: &mut OpenTransaction<'_>, batch: &Batch) -> Result<(), DatabaseError> {
    for renewed in &batch.renewed {
        let sql = "UPDATE token_renewal SET sealed_refresh = $2 WHERE credential_id = $1";
        open.execute(sql, &[&renewed.id, &renewed.refresh])?;
        let Some((secret, renew_ms)) = &renewed.access else {
            continue;
        };
        let sql = "UPDATE token_renewal SET renew_ms = $2 WHERE credential_id = $1";
        open.execute(sql, &[&renewed.id, renew_ms])?;
        let sql = "UPDATE sealed_credential SET sealed = $2 WHERE credential_id = $1";
        open.execute(sql, &[&renewed.id, secret])?;
    }
    Ok(())
}

fn priorities(open: &mut OpenTransaction<'_>, batch: &Batch) -> Result<(), DatabaseError> {
    for (job, priority) in &batch.priorities {
        // Not by the database's own JSON: it does not take all that JSON may hold.
        let sql = "SELECT parameters FROM job WHERE job_id = $1";
        let Some(row) = open.query_opt(sql, &[&job.0])? else {
            continue;
        };
        let changed = with_priority(row.get(0), *priority);
        let changed = changed.map_err(|why| unacceptable(open, &why))?;
        let sql = "UPDATE job SET priority = $2, parameters = $3 WHERE job_id = $1";
        open.execute(sql, &[&job.0, &i32::from(priority.get()), &changed])?;
    }
    Ok(())
}

/// Jobs that have ended. Their last entries are not later than the batch's last one.
fn ended(open: &mut OpenTransaction<'_>, batch: &Batch, last: i64) -> Result<(), DatabaseError> {
    let ended = &batch.ended;
    if ended.job.is_empty() {
        return Ok(());
    }
    open.execute(
        "UPDATE job SET finished_ms = ended.at_ms, final_state = ended.state, ended_sequence = $4
         FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS ended (job_id, at_ms, state)
         WHERE job.job_id = ended.job_id",
        &[&ended.job, &ended.at, &ended.state, &last],
    )?;
    Ok(())
}

/// Those to which nobody refers any more but what has ended here.
fn free_tokens(open: &mut OpenTransaction<'_>, batch: &Batch) -> Result<(), DatabaseError> {
    let tidied = batch.tidied.iter();
    let tidied = tidied.map(|transfer| tidying_user(*transfer));
    let users: Vec<_> = batch.ended.job.iter().copied().chain(tidied).collect();
    if users.is_empty() {
        return Ok(());
    }
    let sql = "DELETE FROM credential_use WHERE job_id = ANY($1) RETURNING credential_id";
    let rows = open.query(sql, &[&users])?;
    if rows.is_empty() {
        return Ok(());
    }
    let mut freed: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    freed.sort_unstable();
    freed.dedup();
    for table in ["sealed_credential", "token_renewal"] {
        let sql = format!(
            "DELETE FROM {table} WHERE credential_id = ANY($1)
             AND NOT EXISTS (SELECT 1 FROM credential_use WHERE credential_use.credential_id = {table}.credential_id)"
        );
        open.execute(&sql, &[&freed])?;
    }
    Ok(())
}

fn json<T: serde::Serialize>(
    open: &OpenTransaction<'_>,
    value: &T,
) -> Result<String, DatabaseError> {
    serde_json::to_string(value).map_err(|why| unacceptable(open, &why))
}

fn unacceptable(open: &OpenTransaction<'_>, why: &serde_json::Error) -> DatabaseError {
    DatabaseError::Unacceptable {
        database: open.database().clone(),
        why: format!("a record cannot be written down: {why}"),
    }
}

fn configured(open: &mut OpenTransaction<'_>, change: &SettingChange) -> Result<(), DatabaseError> {
    let key = json(open, &change.key)?;
    let before = change
        .before
        .as_ref()
        .map(|it| json(open, it))
        .transpose()?;
    let after = change.after.as_ref().map(|it| json(open, it)).transpose()?;
    let version = SETTING_VERSION as i32;
    match &after {
        Some(setting) => open.execute(
            "INSERT INTO setting (setting_key, version, setting) VALUES ($1, $2, $3)
             ON CONFLICT (setting_key) DO UPDATE SET version = excluded.version, setting = excluded.setting",
            &[&key, &version, setting],
        )?,
        None => open.execute("DELETE FROM setting WHERE setting_key = $1", &[&key])?,
    };
    open.execute(
        "INSERT INTO setting_change (at_ms, username, action, setting_key, version, setting_before, setting_after)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            &change.at.0,
            &text(change.user.as_str()),
            &text(&change.action),
            &key,
            &version,
            &before,
            &after,
        ],
    )?;
    Ok(())
}

fn banned(open: &mut OpenTransaction<'_>, change: &BanChange) -> Result<(), DatabaseError> {
    let Some(target) = change.target() else {
        return Ok(());
    };
    let (kind, name, vo) = ban_key(&target);
    let before = change
        .before
        .as_ref()
        .map(|it| json(open, it))
        .transpose()?;
    let after = change.after.as_ref().map(|it| json(open, it)).transpose()?;
    let version = BAN_VERSION as i32;
    match &after {
        Some(ban) => open.execute(
            "INSERT INTO ban (kind, name, vo, version, ban) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (kind, name, vo) DO UPDATE SET version = excluded.version, ban = excluded.ban",
            &[&kind, &name, &vo, &version, ban],
        )?,
        None => {
            let sql = "DELETE FROM ban WHERE kind = $1 AND name = $2 AND vo = $3";
            open.execute(sql, &[&kind, &name, &vo])?
        }
    };
    open.execute(
        "INSERT INTO ban_change (at_ms, username, version, ban_before, ban_after) VALUES ($1, $2, $3, $4, $5)",
        &[&change.at.0, &text(change.by.as_str()), &version, &before, &after],
    )?;
    Ok(())
}

fn link_changed(open: &mut OpenTransaction<'_>, change: &LinkChange) -> Result<(), DatabaseError> {
    let event = json(open, &change.event)?;
    open.execute(
        "INSERT INTO link_event (at_ms, source, destination, version, event) VALUES ($1, $2, $3, $4, $5)",
        &[
            &change.at.0,
            &text(change.link.source.as_str()),
            &text(change.link.destination.as_str()),
            &(LINK_EVENT_VERSION as i32),
            &event,
        ],
    )?;
    Ok(())
}

fn samples(
    open: &mut OpenTransaction<'_>,
    batch: &Batch,
    partitions: &mut Partitions,
) -> Result<(), DatabaseError> {
    let samples = &batch.samples;
    if samples.at.is_empty() {
        return Ok(());
    }
    partitions.of_samples(open, &samples.at)?;
    open.execute(
        "INSERT INTO link_sample (at_ms, source, destination, moved_bytes, active, slots_limit, queued)
         SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::integer[], $6::integer[],
             $7::bigint[])",
        &[
            &samples.at,
            &samples.source,
            &samples.destination,
            &samples.moved,
            &samples.active,
            &samples.limit,
            &samples.queued,
        ],
    )?;
    Ok(())
}
