//! What has to be looked after at destinations of transfers that have ended.

use super::reading::RecordQueries;
use super::{at, json, tokens};
use crate::journal::rows::unless_unreadable;
use crate::journal::tidyings::TIDYING_VERSION;
use penstock_journal::JournalError;
use penstock_model::{Tidying, TransferId};
use rusqlite::{Transaction, params};

/// As who it refers to the destination's credentials, beside jobs.
fn user(transfer: TransferId) -> String {
    format!("tidying {}", transfer.0)
}

pub(super) fn owe(transaction: &Transaction<'_>, tidying: &Tidying) -> rusqlite::Result<()> {
    let transfer = tidying.request.id;
    let sql = "INSERT INTO tidying (transfer_id, version, tidying) VALUES (?1, ?2, ?3)
               ON CONFLICT (transfer_id) DO UPDATE SET version = excluded.version, tidying = excluded.tidying";
    let row = params![transfer.0, TIDYING_VERSION, json(tidying)?];
    transaction.prepare_cached(sql)?.execute(row)?;
    for id in tidying.request.destination_secrets() {
        let sql = "INSERT OR IGNORE INTO credential_use (job_id, credential_id) VALUES (?1, ?2)";
        let row = params![user(transfer), id.as_str()];
        transaction.prepare_cached(sql)?.execute(row)?;
    }
    Ok(())
}

pub(super) fn end(transaction: &Transaction<'_>, transfer: TransferId) -> rusqlite::Result<()> {
    let sql = "DELETE FROM tidying WHERE transfer_id = ?1";
    transaction.prepare_cached(sql)?.execute([transfer.0])?;
    tokens::remove(transaction, &user(transfer))
}

pub(super) fn all(reading: &RecordQueries<'_>) -> Result<Vec<Tidying>, JournalError> {
    let failed = || at(reading.path);
    let sql = "SELECT transfer_id, tidying FROM tidying ORDER BY transfer_id";
    let mut statement = reading.connection.prepare_cached(sql).map_err(failed())?;
    let mut rows = statement.query([]).map_err(failed())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failed())? {
        let transfer: i64 = reading.get(row, 0)?;
        let text = reading.text(row, 1);
        let read = text.and_then(|text| reading.decode("tidying", text));
        found.extend(unless_unreadable("tidying", &transfer, read)?);
    }
    Ok(found)
}
