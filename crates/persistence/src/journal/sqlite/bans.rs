//! Bans in the journal: those that hold, and each change of them, in one transaction.

use super::reading::RecordQueries;
use super::{at, json};
use penstock_journal::JournalError;
use penstock_model::ban::BAN_VERSION;
use penstock_model::{Ban, BanChange, BanTarget, Timestamp, UserName};
use rusqlite::{Transaction, params};

pub(super) fn record(transaction: &Transaction<'_>, change: &BanChange) -> rusqlite::Result<()> {
    let Some(target) = change.target() else {
        return Ok(());
    };
    let (kind, name, vo) = key(&target);
    let stored = |ban: &Option<Ban>| ban.as_ref().map(json).transpose();
    let (before, after) = (stored(&change.before)?, stored(&change.after)?);
    match &after {
        Some(ban) => {
            let sql = "INSERT OR REPLACE INTO ban (kind, name, vo, version, ban) VALUES (?1, ?2, ?3, ?4, ?5)";
            let mut insert = transaction.prepare_cached(sql)?;
            insert.execute(params![kind, name, vo, BAN_VERSION, ban])?;
        }
        None => {
            let sql = "DELETE FROM ban WHERE kind = ?1 AND name = ?2 AND vo = ?3";
            transaction
                .prepare_cached(sql)?
                .execute(params![kind, name, vo])?;
        }
    }
    let sql = "INSERT INTO ban_change (at_ms, user, version, ban_before, ban_after) VALUES (?1, ?2, ?3, ?4, ?5)";
    transaction.prepare_cached(sql)?.execute(params![
        change.at.0,
        change.by.as_str(),
        BAN_VERSION,
        before,
        after
    ])?;
    Ok(())
}

/// No VO has an empty name.
fn key(target: &BanTarget) -> (&'static str, &str, &str) {
    match target {
        BanTarget::Storage { host, vo } => {
            ("storage", host, vo.as_ref().map_or("", |vo| vo.as_str()))
        }
        BanTarget::User(user) => ("user", user.as_str(), ""),
    }
}

pub(super) fn load(reading: &RecordQueries<'_>) -> Result<Vec<Ban>, JournalError> {
    let failed = || at(reading.path);
    let sql = "SELECT ban FROM ban ORDER BY kind, name, vo";
    let mut statement = reading.connection.prepare_cached(sql).map_err(failed())?;
    let mut rows = statement.query([]).map_err(failed())?;
    let mut bans = Vec::new();
    while let Some(row) = rows.next().map_err(failed())? {
        bans.push(reading.decode::<Ban>("ban", &reading.get::<String>(row, 0)?)?);
    }
    Ok(bans)
}

/// Newest first.
pub(super) fn changes(
    reading: &RecordQueries<'_>,
    limit: usize,
) -> Result<Vec<BanChange>, JournalError> {
    let failed = || at(reading.path);
    let sql =
        "SELECT at_ms, user, ban_before, ban_after FROM ban_change ORDER BY sequence DESC LIMIT ?1";
    let mut statement = reading.connection.prepare_cached(sql).map_err(failed())?;
    let mut rows = statement.query([limit as i64]).map_err(failed())?;
    let ban = |text: Option<String>| {
        let decode = |text: String| reading.decode::<Ban>("ban", &text);
        text.map(decode).transpose()
    };
    let mut changes = Vec::new();
    while let Some(row) = rows.next().map_err(failed())? {
        changes.push(BanChange {
            at: Timestamp(reading.get(row, 0)?),
            by: UserName::new(reading.get::<String>(row, 1)?),
            before: ban(reading.get(row, 2)?)?,
            after: ban(reading.get(row, 3)?)?,
        });
    }
    Ok(changes)
}
