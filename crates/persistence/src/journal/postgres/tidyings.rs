//! What has to be looked after at destinations of transfers that have ended.

use super::batch::Batch;
use super::reading::decode;
use crate::journal::rows::unless_unreadable;
use crate::journal::tidyings::TIDYING_VERSION;
use crate::postgres::DatabaseError;
use crate::postgres::session::OpenTransaction;
use crate::sql_integer::to_sql;
use penstock_journal::JournalError;
use penstock_model::Tidying;

pub(super) fn owe(open: &mut OpenTransaction<'_>, batch: &Batch) -> Result<(), DatabaseError> {
    for (transfer, text) in &batch.tidyings {
        open.execute(
            "INSERT INTO tidying (transfer_id, version, tidying) VALUES ($1, $2, $3)
             ON CONFLICT (transfer_id) DO UPDATE SET version = excluded.version, tidying = excluded.tidying",
            &[&to_sql(transfer.0), &(TIDYING_VERSION as i32), text],
        )?;
    }
    Ok(())
}

pub(super) fn end(open: &mut OpenTransaction<'_>, batch: &Batch) -> Result<(), DatabaseError> {
    if batch.tidied.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = batch
        .tidied
        .iter()
        .map(|transfer| to_sql(transfer.0))
        .collect();
    open.execute("DELETE FROM tidying WHERE transfer_id = ANY($1)", &[&ids])?;
    Ok(())
}

pub(super) fn all(open: &mut OpenTransaction<'_>) -> Result<Vec<Tidying>, JournalError> {
    let sql = "SELECT transfer_id, tidying FROM tidying ORDER BY transfer_id";
    let mut found = Vec::new();
    for row in open.query(sql, &[])? {
        let transfer: i64 = row.get(0);
        let read = decode(open.database(), "tidying", row.get(1));
        found.extend(unless_unreadable("tidying", &transfer, read)?);
    }
    Ok(found)
}
