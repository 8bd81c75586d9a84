//! Stage requests: who wants which files on disk, for how long, and how far each of them is.

use super::super::connection::{stored, unsigned};
use super::super::nearline_change::{NewStageRequest, STAGE_ROWS_MAX, StageProblem, StagedFile};
use super::super::read::{CACHED, IS_AWAITED};
use super::super::{ChangeError, EntryId, Namespace, NamespaceError};
use super::bounded;
use super::budget::Kept;
use super::held::{self, PinRoom};
use super::stage_begin::begun;
use super::stage_columns::{CANCELED, FAILED, ON_DISK, STARTED, StageColumns, WAITING, problem_of};
use penstock_model::{PoolName, ProblemCode, StageRequestId, Timestamp, UserName, VoName};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::time::Duration;

/// Requests that are over, and their files, that one new request may push out.
const PUSHED_OUT_REQUESTS_MAX: i64 = 1_000;
const PUSHED_OUT_FILES_MAX: i64 = 20_000;
/// Requests that are looked at in one change, of those that are over for long.
const PRUNED_REQUESTS_MAX: usize = 100;

/// A request as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredStageRequest {
    pub user: Option<UserName>,
    pub vo: Option<VoName>,
    pub created: Timestamp,
    /// By their numbers.
    pub files: Vec<StagedFile>,
}

/// Forgets requests of a user that are over, the oldest first, as far as a new one needs their place. Changes nothing when that
/// is not enough.
pub(super) fn make_place(
    connection: &Connection,
    request: &NewStageRequest,
) -> Result<(), ChangeError> {
    let Some(user) = &request.user else {
        return Ok(());
    };
    let has = Kept::of_user(connection, user)?;
    let mut then = has.with(Kept::of(request));
    if then.refusal(has).is_none() {
        return Ok(());
    }
    let mut query = connection.prepare_cached(
        "SELECT id, 1 - is_of_reader, files, text_bytes FROM stage_request
         WHERE user = ?1 AND held = 0 ORDER BY created_ms LIMIT ?2",
    )?;
    let over = query.query_map(params![user.as_str(), PUSHED_OUT_REQUESTS_MAX], |row| {
        let kept = Kept {
            requests: row.get(1)?,
            files: row.get(2)?,
            text_bytes: row.get(3)?,
        };
        Ok((row.get::<_, String>(0)?, kept))
    })?;
    let (mut pushed_out, mut files) = (Vec::new(), 0);
    for one in over {
        let (id, kept) = one?;
        files += kept.files;
        if then.refusal(has).is_none() || files > PUSHED_OUT_FILES_MAX {
            break;
        }
        then = then.without(kept);
        pushed_out.push(StageRequestId::new(id));
    }
    if let Some(refusal) = then.refusal(has) {
        return Err(refusal.into());
    }
    for id in pushed_out {
        while forget(connection, &id)?.is_more {}
    }
    Ok(())
}

pub(super) fn insert(connection: &Connection, request: &NewStageRequest) -> rusqlite::Result<()> {
    let kept = Kept::of(request);
    let user = request.user.as_ref().map(UserName::as_str);
    connection
        .prepare_cached(
            "INSERT INTO stage_request (id, user, vo, created_ms, files, text_bytes, is_of_reader, challenge)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            request.id.as_str(),
            user,
            request.vo.as_ref().map(VoName::as_str),
            request.at.0,
            kept.files,
            kept.text_bytes,
            request.is_of_reader,
            request.challenge,
        ])?;
    kept.count(connection, user)?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO stage_file VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    let room = PinRoom::of(request);
    let mut held = 0_i64;
    for (number, asked) in (0_i64..).zip(&request.files) {
        let file = begun(connection, &room, request, asked)?;
        let columns = StageColumns::from(&file.progress);
        insert.execute(params![
            request.id.as_str(),
            number,
            file.path,
            file.entry.map(stored),
            columns.pin_until_ms,
            i64::try_from(file.pin.as_millis()).unwrap_or(i64::MAX),
            columns.state,
            columns.error,
            columns.started_ms,
            columns.finished_ms,
            columns.code,
            file.activity,
        ])?;
        if let Some(entry) = file.entry.filter(|_| file.is_held()) {
            held::keep(connection, request, entry)?;
            held += 1;
        }
    }
    connection
        .prepare_cached("UPDATE stage_request SET held = ?2 WHERE id = ?1")?
        .execute(params![request.id.as_str(), held])?;
    Ok(())
}

/// The recall of a file has begun.
pub(super) fn start(connection: &Connection, file: EntryId, at: Timestamp) -> rusqlite::Result<()> {
    connection
        .prepare_cached(&format!(
            "UPDATE stage_file SET state = {STARTED}, started_ms = ?2, error = NULL, code = NULL
             WHERE entry = ?1 AND state = {WAITING}"
        ))?
        .execute(params![stored(file), at.0])?;
    Ok(())
}

/// The recall of a file cannot begin yet.
pub(super) fn delay(
    connection: &Connection,
    file: EntryId,
    problem: &StageProblem,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            &format!("UPDATE stage_file SET state = {WAITING}, error = ?2, code = ?3 WHERE entry = ?1 AND {IS_AWAITED}"),
        )?
        .execute(params![stored(file), problem.text, problem.code.name()])?;
    Ok(())
}

/// The file is on disk.
pub(super) fn complete(
    connection: &Connection,
    file: EntryId,
    at: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            &format!("UPDATE stage_file SET state = {ON_DISK}, finished_ms = ?2, started_ms = coalesce(started_ms, ?2),
             pin_until_ms = ?2 + pin_ms, error = NULL, code = NULL WHERE entry = ?1 AND {IS_AWAITED}"),
        )?
        .execute(params![stored(file), at.0])?;
    Ok(())
}

/// The file is on disk no more, although it is pinned.
pub(super) fn wait_again(
    connection: &Connection,
    file: EntryId,
    at: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(&format!(
            "UPDATE stage_file SET state = {WAITING}, finished_ms = NULL, pin_until_ms = NULL
             WHERE entry = ?1 AND state = {ON_DISK} AND pin_until_ms > ?2"
        ))?
        .execute(params![stored(file), at.0])?;
    Ok(())
}

/// The file will not come.
pub(super) fn fail(
    connection: &Connection,
    file: EntryId,
    problem: &StageProblem,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let of_file = format!("entry = ?1 AND {IS_AWAITED}");
    held::let_go(connection, &of_file, [stored(file)])?;
    connection
        .prepare_cached(&format!(
            "UPDATE stage_file SET state = {FAILED}, finished_ms = ?2, error = ?3, code = ?4
             WHERE entry = ?1 AND {IS_AWAITED}"
        ))?
        .execute(params![
            stored(file),
            at.0,
            problem.text,
            problem.code.name()
        ])?;
    Ok(())
}

/// These files are no longer wanted. Tells which of them were until now.
pub(super) fn release(
    connection: &Connection,
    request: &StageRequestId,
    files: &[u32],
    at: Timestamp,
) -> rusqlite::Result<Vec<EntryId>> {
    let mut cancel = connection.prepare_cached(&format!(
        "UPDATE stage_file SET state = {CANCELED}, finished_ms = ?3, error = NULL, code = NULL
         WHERE request = ?1 AND number = ?2 AND {IS_AWAITED}"
    ))?;
    let mut release = connection.prepare_cached(
        "UPDATE stage_file SET pin_until_ms = NULL WHERE request = ?1 AND number = ?2",
    )?;
    let mut released = Vec::new();
    for number in files {
        let of_file = "request = ?1 AND number = ?2";
        let wanted = held::let_go(connection, of_file, params![request.as_str(), number])?;
        if wanted.is_empty() {
            continue;
        }
        released.extend(wanted);
        cancel.execute(params![request.as_str(), number, at.0])?;
        release.execute(params![request.as_str(), number])?;
    }
    Ok(released)
}

/// The same in requests of a user, whichever they are. True: in more than could be looked after now.
pub(super) fn release_of_user(
    connection: &Connection,
    user: &UserName,
    files: &[EntryId],
    at: Timestamp,
) -> rusqlite::Result<(Vec<EntryId>, bool)> {
    let mut find = connection.prepare_cached(&format!(
        "SELECT request, number FROM stage_file JOIN stage_request ON request = id
         WHERE entry = ?1 AND user = ?2 AND ({IS_AWAITED} OR pin_until_ms IS NOT NULL) LIMIT ?3"
    ))?;
    let (mut rows_left, mut released) = (STAGE_ROWS_MAX, Vec::new());
    for file in files {
        if !held::is_kept_by(connection, user, *file)? {
            continue;
        }
        let values = params![stored(*file), user.as_str(), bounded(rows_left)];
        let rows = find.query_map(values, |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?))
        })?;
        let named: rusqlite::Result<Vec<(String, u32)>> = rows.collect();
        let named = named?;
        rows_left -= named.len();
        for (request, number) in named {
            release(connection, &StageRequestId::new(request), &[number], at)?;
        }
        released.push(*file);
        if rows_left == 0 {
            return Ok((released, true));
        }
    }
    Ok((released, false))
}

/// What of a request was forgotten.
#[derive(Debug, Default)]
pub(super) struct ForgottenPart {
    rows: usize,
    /// Files that it waited for or kept until now.
    pub released: Vec<EntryId>,
    /// It is there still, with fewer files.
    pub is_more: bool,
}

/// Forgets a request, or so many of its files, from the last on, as one change may.
pub(super) fn forget(
    connection: &Connection,
    request: &StageRequestId,
) -> rusqlite::Result<ForgottenPart> {
    let head = connection
        .prepare_cached("SELECT user, is_of_reader FROM stage_request WHERE id = ?1")?
        .query_row([request.as_str()], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get::<_, bool>(1)?))
        });
    let Some((user, is_of_reader)) = head.optional()? else {
        return Ok(ForgottenPart::default());
    };
    let first: Option<i64> = connection
        .prepare_cached(
            "SELECT number FROM stage_file WHERE request = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2",
        )?
        .query_row(params![request.as_str(), bounded(STAGE_ROWS_MAX - 1)], |row| row.get(0))
        .optional()?;
    // The first file has the number 0.
    let is_more = first.is_some_and(|first| first > 0);
    let part = params![request.as_str(), first.unwrap_or(0)];
    let of_part = "request = ?1 AND number >= ?2";
    let released = held::let_go(connection, of_part, part)?;
    let (rows, text_bytes): (i64, i64) = connection
        .prepare_cached(
            "SELECT count(*), coalesce(sum(length(CAST(path AS BLOB))), 0) FROM stage_file
             WHERE request = ?1 AND number >= ?2",
        )?
        .query_row(part, |row| Ok((row.get(0)?, row.get(1)?)))?;
    connection
        .prepare_cached("DELETE FROM stage_file WHERE request = ?1 AND number >= ?2")?
        .execute(part)?;
    let requests = i64::from(!is_more && !is_of_reader);
    let forgotten = Kept {
        requests,
        files: rows,
        text_bytes,
    };
    let less = Kept::default().without(forgotten);
    less.count(connection, user.as_deref())?;
    match is_more {
        true => connection
            .prepare_cached(
                "UPDATE stage_request SET files = files - ?2, text_bytes = text_bytes - ?3 WHERE id = ?1",
            )?
            .execute(params![request.as_str(), rows, text_bytes])?,
        false => connection
            .prepare_cached("DELETE FROM stage_request WHERE id = ?1")?
            .execute([request.as_str()])?,
    };
    Ok(ForgottenPart {
        rows: usize::try_from(rows).unwrap_or(0),
        released,
        is_more,
    })
}

/// Pins whose time is over hold nothing any more. True: there are more of them.
pub(super) fn end_pins(connection: &Connection, at: Timestamp) -> rusqlite::Result<bool> {
    let mut query = connection.prepare_cached(
        "SELECT request, number FROM stage_file WHERE pin_until_ms <= ?1 ORDER BY pin_until_ms LIMIT ?2",
    )?;
    let rows = query.query_map(params![at.0, bounded(STAGE_ROWS_MAX)], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    })?;
    let over: rusqlite::Result<Vec<(String, i64)>> = rows.collect();
    let over = over?;
    let mut end = connection.prepare_cached(
        "UPDATE stage_file SET pin_until_ms = NULL WHERE request = ?1 AND number = ?2",
    )?;
    for (request, number) in &over {
        let of_file = "request = ?1 AND number = ?2";
        held::let_go(connection, of_file, params![request, number])?;
        end.execute(params![request, number])?;
    }
    Ok(over.len() == STAGE_ROWS_MAX)
}

/// How many requests were forgotten, and whether there are more to be.
pub(super) fn prune(connection: &Connection, before: Timestamp) -> rusqlite::Result<(u64, bool)> {
    let mut query = connection.prepare_cached(
        "SELECT id FROM stage_request WHERE held = 0 AND created_ms < ?1 ORDER BY created_ms LIMIT ?2",
    )?;
    let limit = bounded(PRUNED_REQUESTS_MAX);
    let rows = query.query_map(params![before.0, limit], |row| row.get::<_, String>(0))?;
    let old: rusqlite::Result<Vec<String>> = rows.collect();
    let old = old?;
    let (mut pruned, mut rows_seen) = (0, 0);
    for id in &old {
        let part = forget(connection, &StageRequestId::new(id.as_str()))?;
        rows_seen += part.rows;
        pruned += u64::from(!part.is_more);
        if part.is_more || rows_seen >= STAGE_ROWS_MAX {
            return Ok((pruned, true));
        }
    }
    Ok((pruned, old.len() == PRUNED_REQUESTS_MAX))
}

/// Somebody wants it to stay on disk.
pub(super) fn is_pinned(
    connection: &Connection,
    file: EntryId,
    at: Timestamp,
) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM stage_file WHERE entry = ?1 AND pin_until_ms > ?2")?
        .exists(params![stored(file), at.0])
}

/// A recall that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedFailure {
    pub problem: StageProblem,
    pub at: Timestamp,
}

/// Takes the columns that `stage_request` asks for.
fn of_row(row: &Row<'_>) -> rusqlite::Result<StagedFile> {
    let path: String = row.get(0)?;
    let columns = StageColumns {
        pin_until_ms: row.get(2)?,
        state: row.get(4)?,
        error: row.get(5)?,
        started_ms: row.get(6)?,
        finished_ms: row.get(7)?,
        code: row.get(8)?,
    };
    Ok(StagedFile {
        progress: columns.progress(&path)?,
        path,
        entry: row
            .get::<_, Option<i64>>(1)?
            .map(|id| EntryId(unsigned(id))),
        pin: Duration::from_millis(unsigned(row.get(3)?)),
        activity: row.get(9)?,
    })
}

/// One of those who wait for a file, as far as it is known who that is and what for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileAwaiter {
    pub vo: Option<VoName>,
    pub activity: Option<String>,
    pub challenge: Option<String>,
}

/// Asks for somebody who waits for a file.
pub(super) fn awaited_by_sql() -> String {
    format!(
        "SELECT vo, activity, challenge FROM stage_file JOIN stage_request ON request = id
         WHERE entry = ?1 AND {IS_AWAITED} LIMIT 1"
    )
}

pub(super) fn awaiter_of_row(row: &Row<'_>) -> rusqlite::Result<FileAwaiter> {
    Ok(FileAwaiter {
        vo: row.get::<_, Option<String>>(0)?.map(VoName::new),
        activity: row.get(1)?,
        challenge: row.get(2)?,
    })
}

impl Namespace {
    /// A stage request with its files.
    pub fn stage_request(
        &self,
        id: &StageRequestId,
    ) -> Result<Option<StoredStageRequest>, NamespaceError> {
        self.readers.with(|connection| {
            let head = connection
                .prepare_cached("SELECT user, vo, created_ms FROM stage_request WHERE id = ?1")?
                .query_row([id.as_str()], |row| {
                    Ok(StoredStageRequest {
                        user: row.get::<_, Option<String>>(0)?.map(UserName::new),
                        vo: row.get::<_, Option<String>>(1)?.map(VoName::new),
                        created: Timestamp(row.get(2)?),
                        files: Vec::new(),
                    })
                });
            let Some(mut found) = head.optional()? else {
                return Ok(None);
            };
            let mut query = connection.prepare_cached(
                "SELECT path, entry, pin_until_ms, pin_ms, state, error, started_ms, finished_ms,
                 code, activity FROM stage_file WHERE request = ?1 ORDER BY number",
            )?;
            let rows = query.query_map([id.as_str()], of_row)?;
            found.files = rows.collect::<rusqlite::Result<_>>()?;
            Ok(Some(found))
        })
    }

    /// Files that somebody waits for, after this one.
    pub fn awaited_files(
        &self,
        after: EntryId,
        limit: usize,
    ) -> Result<Vec<EntryId>, NamespaceError> {
        self.readers.with(|connection| {
            let sql = format!(
                "SELECT DISTINCT entry FROM stage_file WHERE {IS_AWAITED} AND entry > ?1
                 ORDER BY entry LIMIT ?2"
            );
            let mut query = connection.prepare_cached(&sql)?;
            let rows = query.query_map(params![stored(after), bounded(limit)], |row| {
                row.get(0).map(|id| EntryId(unsigned(id)))
            })?;
            rows.collect()
        })
    }

    /// Why the last recall of this file failed, if it did, whoever asked. What concerns a single user only is left out.
    pub fn failed_recall(
        &self,
        file: EntryId,
    ) -> Result<Option<RememberedFailure>, NamespaceError> {
        self.readers.with(|connection| {
            let sql = format!(
                "SELECT error, code, finished_ms FROM stage_file
                 WHERE entry = ?1 AND state IN ({ON_DISK}, {FAILED}) AND code IS NOT ?2
                 ORDER BY finished_ms DESC LIMIT 1"
            );
            let of_one_user = ProblemCode::PinsExhausted.name();
            let found = connection.prepare_cached(&sql)?.query_row(
                params![stored(file), of_one_user],
                |row| {
                    let code = row.get::<_, Option<String>>(1)?;
                    let problem = problem_of(row.get(0)?, code.as_deref());
                    Ok((problem, row.get::<_, Option<i64>>(2)?))
                },
            );
            Ok(found.optional()?.and_then(|(problem, at)| {
                let (problem, at) = (problem?, Timestamp(at?));
                Some(RememberedFailure { problem, at })
            }))
        })
    }

    /// Files that somebody waits for, and that are in this pool and on tape, after this one.
    pub fn awaited_in_pool(
        &self,
        pool: &PoolName,
        after: EntryId,
        limit: usize,
    ) -> Result<Vec<EntryId>, NamespaceError> {
        self.readers.with(|connection| {
            let sql = format!(
                "SELECT DISTINCT stage_file.entry FROM stage_file JOIN entry ON entry.id = stage_file.entry
                 WHERE {IS_AWAITED} AND pool = ?1 AND archival = {CACHED} AND stage_file.entry > ?2
                 ORDER BY stage_file.entry LIMIT ?3"
            );
            let mut query = connection.prepare_cached(&sql)?;
            let values = params![pool.as_str(), stored(after), bounded(limit)];
            let rows = query.query_map(values, |row| {
                row.get(0).map(|id| EntryId(unsigned(id)))
            })?;
            rows.collect()
        })
    }

    /// One of those who wait for this file; `None`: nobody does.
    pub fn awaited_by(&self, file: EntryId) -> Result<Option<FileAwaiter>, NamespaceError> {
        self.readers.with(|connection| {
            connection
                .prepare_cached(&awaited_by_sql())?
                .query_row([stored(file)], awaiter_of_row)
                .optional()
        })
    }
}
