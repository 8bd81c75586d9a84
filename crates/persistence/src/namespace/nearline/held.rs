//! What stage requests keep on disk, or will: each file once for a user, once for a VO and once for all, and their sums, so that a bound
//! costs the same however many requests there are. Each change of a stage request passes here; a test compares with the listing.

use super::super::connection::{stored, unsigned};
use super::super::nearline_change::{NewStageRequest, StageProblem};
use super::super::read::IS_AWAITED;
use super::super::{EntryId, Namespace, NamespaceError};
use penstock_model::{Bytes, ProblemCode, UserName, VoName};
use rusqlite::{Connection, OptionalExtension, Params, params};

/// In the column `kind`.
const OF_USER: i64 = 0;
const OF_VO: i64 = 1;
const OF_ALL: i64 = 2;
/// The name of all.
const ALL: &str = "";

/// Somebody whose stage requests keep files on disk.
struct Holder<'a> {
    kind: i64,
    name: &'a str,
    quota: u64,
}

/// What the user of a request, its VO and all together may still keep.
pub(super) struct PinRoom<'a>(Vec<Holder<'a>>);

impl<'a> PinRoom<'a> {
    pub(super) fn of(request: &'a NewStageRequest) -> PinRoom<'a> {
        let user = request.user.as_ref().map(UserName::as_str);
        let vo = request.vo.as_ref().map(VoName::as_str);
        let holders = [
            (OF_USER, user, request.quota.user),
            (OF_VO, vo, request.quota.vo),
            (OF_ALL, Some(ALL), request.quota.all),
        ];
        let holders = holders.into_iter().filter_map(|(kind, name, quota)| {
            let (name, quota) = (name?, quota.0);
            Some(Holder { kind, name, quota })
        });
        PinRoom(holders.collect())
    }

    /// Why a file of this size does not fit; `None`: it does. A file that a holder keeps already costs nothing more.
    pub(super) fn refusal(
        &self,
        connection: &Connection,
        file: EntryId,
        size: Bytes,
    ) -> rusqlite::Result<Option<StageProblem>> {
        for holder in &self.0 {
            let (_, held) = sum(connection, holder.kind, holder.name)?;
            if held.saturating_add(size.0) <= holder.quota || holder.keeps(connection, file)? {
                continue;
            }
            let who = match holder.kind {
                OF_USER => "you keep".to_owned(),
                OF_ALL => "all users together keep".to_owned(),
                _ => format!("the users of {} keep", holder.name),
            };
            let text = format!(
                "{who} {held} of {} bytes on disk by stage requests, so {} bytes more are too many; release files that are no \
                 longer needed, or ask for this one later",
                holder.quota, size.0
            );
            let code = ProblemCode::PinsExhausted;
            return Ok(Some(StageProblem { code, text }));
        }
        Ok(None)
    }
}

impl Holder<'_> {
    fn keeps(&self, connection: &Connection, file: EntryId) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM held_file WHERE kind = ?1 AND holder = ?2 AND entry = ?3";
        let values = params![self.kind, self.name, stored(file)];
        connection.prepare_cached(sql)?.exists(values)
    }
}

/// A stage request of this user waits for the file, or keeps it on disk.
pub(super) fn is_kept_by(
    connection: &Connection,
    user: &UserName,
    file: EntryId,
) -> rusqlite::Result<bool> {
    let holder = Holder {
        kind: OF_USER,
        name: user.as_str(),
        quota: 0,
    };
    holder.keeps(connection, file)
}

/// Files and bytes.
fn sum(connection: &Connection, kind: i64, holder: &str) -> rusqlite::Result<(u64, u64)> {
    let sql = "SELECT files, size_bytes FROM held_sum WHERE kind = ?1 AND holder = ?2";
    let mut query = connection.prepare_cached(sql)?;
    let found = query.query_row(params![kind, holder], |row| {
        Ok((unsigned(row.get(0)?), unsigned(row.get(1)?)))
    });
    Ok(found.optional()?.unwrap_or_default())
}

/// The holders of a request, as the tables name them.
fn holders(connection: &Connection, request: &str) -> rusqlite::Result<Vec<(i64, String)>> {
    let found = connection
        .prepare_cached("SELECT user, vo FROM stage_request WHERE id = ?1")?
        .query_row([request], |row| {
            let named: [Option<String>; 2] = [row.get(0)?, row.get(1)?];
            Ok(named)
        });
    let named = found.optional()?.unwrap_or_default();
    let kinds = [OF_USER, OF_VO].into_iter().zip(named);
    let named = kinds.filter_map(|(kind, name)| Some((kind, name?)));
    Ok(named.chain([(OF_ALL, ALL.to_owned())]).collect())
}

/// A file of a new request is held from now on.
pub(super) fn keep(
    connection: &Connection,
    request: &NewStageRequest,
    file: EntryId,
) -> rusqlite::Result<()> {
    let mut again = connection.prepare_cached(
        "UPDATE held_file SET times = times + 1 WHERE kind = ?1 AND holder = ?2 AND entry = ?3",
    )?;
    let mut first = connection.prepare_cached(
        "INSERT INTO held_file SELECT ?1, ?2, id, 1, size_bytes FROM entry WHERE id = ?3",
    )?;
    let mut count = connection.prepare_cached(
        "INSERT INTO held_sum SELECT ?1, ?2, 1, size_bytes FROM entry WHERE id = ?3
         ON CONFLICT (kind, holder) DO UPDATE SET files = files + 1, size_bytes = size_bytes + excluded.size_bytes",
    )?;
    for Holder { kind, name, .. } in PinRoom::of(request).0 {
        let held = params![kind, name, stored(file)];
        if again.execute(held)? == 0 {
            first.execute(held)?;
            count.execute(held)?;
        }
    }
    Ok(())
}

/// Files that fit this condition on `stage_file` are no longer held by their requests. To be called before that is so. Tells
/// which they are.
pub(super) fn let_go(
    connection: &Connection,
    condition: &str,
    values: impl Params,
) -> rusqlite::Result<Vec<EntryId>> {
    // Those that are held: they wait, or are pinned.
    let sql = format!(
        "SELECT request, entry FROM stage_file
         WHERE {condition} AND entry IS NOT NULL AND ({IS_AWAITED} OR pin_until_ms IS NOT NULL)"
    );
    let mut query = connection.prepare_cached(&sql)?;
    let rows = query.query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let held: rusqlite::Result<Vec<(String, i64)>> = rows.collect();
    let mut less = connection.prepare_cached(
        "UPDATE held_file SET times = times - 1 WHERE kind = ?1 AND holder = ?2 AND entry = ?3",
    )?;
    let mut count = connection.prepare_cached(
        "UPDATE held_sum SET files = files - 1, size_bytes = size_bytes - (
             SELECT size_bytes FROM held_file WHERE kind = ?1 AND holder = ?2 AND entry = ?3
         ) WHERE kind = ?1 AND holder = ?2 AND EXISTS (
             SELECT 1 FROM held_file WHERE kind = ?1 AND holder = ?2 AND entry = ?3 AND times = 0
         )",
    )?;
    let mut last = connection.prepare_cached(
        "DELETE FROM held_file WHERE kind = ?1 AND holder = ?2 AND entry = ?3 AND times = 0",
    )?;
    let mut none = connection
        .prepare_cached("DELETE FROM held_sum WHERE kind = ?1 AND holder = ?2 AND files = 0")?;
    let mut count_in_request =
        connection.prepare_cached("UPDATE stage_request SET held = held - 1 WHERE id = ?1")?;
    let held = held?;
    for (request, file) in &held {
        count_in_request.execute([request])?;
        for (kind, name) in holders(connection, request)? {
            let values = params![kind, name, file];
            less.execute(values)?;
            count.execute(values)?;
            if last.execute(values)? > 0 {
                none.execute(params![kind, name])?;
            }
        }
    }
    let files = held.into_iter().map(|(_, file)| EntryId(unsigned(file)));
    Ok(files.collect())
}

impl Namespace {
    /// Files and bytes that the stage requests of a user keep on disk, or will.
    pub fn held_by_user(&self, user: &UserName) -> Result<(u64, Bytes), NamespaceError> {
        let found = self
            .readers
            .with(|connection| sum(connection, OF_USER, user.as_str()))?;
        Ok((found.0, Bytes(found.1)))
    }

    /// The same of a VO.
    pub fn held_by_vo(&self, vo: &VoName) -> Result<(u64, Bytes), NamespaceError> {
        let found = self
            .readers
            .with(|connection| sum(connection, OF_VO, vo.as_str()))?;
        Ok((found.0, Bytes(found.1)))
    }
}
