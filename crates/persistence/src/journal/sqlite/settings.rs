//! Settings in the journal: what is in effect, and the change that made it so, in one transaction.

use super::reading::RecordQueries;
use super::{at, json};
use penstock_journal::JournalError;
use penstock_model::setting::SETTING_VERSION;
use penstock_model::{Setting, SettingChange, SettingKey, Settings, Timestamp, UserName};
use rusqlite::{Transaction, params};

pub(super) fn record(
    transaction: &Transaction<'_>,
    change: &SettingChange,
) -> rusqlite::Result<()> {
    let key = json(&change.key)?;
    let (before, after) = (
        change.before.as_ref().map(json).transpose()?,
        change.after.as_ref().map(json).transpose()?,
    );
    match &after {
        Some(setting) => {
            let sql = "INSERT OR REPLACE INTO setting (setting_key, version, setting) VALUES (?1, ?2, ?3)";
            let mut insert = transaction.prepare_cached(sql)?;
            insert.execute(params![key, SETTING_VERSION, setting])?;
        }
        None => {
            let sql = "DELETE FROM setting WHERE setting_key = ?1";
            transaction.prepare_cached(sql)?.execute([&key])?;
        }
    }
    let sql = "INSERT INTO setting_change (at_ms, user, action, setting_key, version, setting_before, setting_after)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    transaction.prepare_cached(sql)?.execute(params![
        change.at.0,
        change.user.as_str(),
        change.action,
        key,
        SETTING_VERSION,
        before,
        after
    ])?;
    Ok(())
}

pub(super) fn load(reading: &RecordQueries<'_>) -> Result<Settings, JournalError> {
    let failed = || at(reading.path);
    let sql = "SELECT setting FROM setting";
    let mut statement = reading.connection.prepare_cached(sql).map_err(failed())?;
    let mut rows = statement.query([]).map_err(failed())?;
    let mut settings = Settings::default();
    while let Some(row) = rows.next().map_err(failed())? {
        settings.put(reading.decode::<Setting>("setting", &reading.get::<String>(row, 0)?)?);
    }
    Ok(settings)
}

/// Newest first.
pub(super) fn changes(
    reading: &RecordQueries<'_>,
    limit: usize,
) -> Result<Vec<SettingChange>, JournalError> {
    let failed = || at(reading.path);
    let sql =
        "SELECT at_ms, user, action, setting_key, setting_before, setting_after FROM setting_change
               ORDER BY sequence DESC LIMIT ?1";
    let mut statement = reading.connection.prepare_cached(sql).map_err(failed())?;
    let mut rows = statement.query([limit as i64]).map_err(failed())?;
    let setting = |text: Option<String>| {
        let decode = |text: String| reading.decode::<Setting>("setting", &text);
        text.map(decode).transpose()
    };
    let mut changes = Vec::new();
    while let Some(row) = rows.next().map_err(failed())? {
        changes.push(SettingChange {
            at: Timestamp(reading.get(row, 0)?),
            user: UserName::new(reading.get::<String>(row, 1)?),
            action: reading.get(row, 2)?,
            key: reading.decode::<SettingKey>("setting", &reading.get::<String>(row, 3)?)?,
            before: setting(reading.get(row, 4)?)?,
            after: setting(reading.get(row, 5)?)?,
        });
    }
    Ok(changes)
}
