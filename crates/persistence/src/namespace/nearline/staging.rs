//! Stage requests: who wants which files on disk, for how long, and how far each of them is.

use super::super::connection::{stored, unsigned};
use super::super::nearline_change::{NewStageRequest, StageFileState, StageProblem, StagedFile};
use super::super::read::archival_of;
use super::super::{EntryId, Namespace, NamespaceError};
use super::bounded;
use super::held::{self, PinRoom};
use penstock_model::{
    Archival, Bytes, PoolName, ProblemCode, StageRequestId, Timestamp, UserName, VoName,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::time::Duration;

/// Stage requests of one user that are kept, those that are over included: what dCache allows.
pub(super) const REQUESTS_PER_USER_MAX: i64 = 5_000;
/// Pins that are ended in one change; the next one goes on.
const PINS_ENDED_MAX: usize = 10_000;

/// A request as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredStageRequest {
    pub user: Option<UserName>,
    pub vo: Option<VoName>,
    pub created: Timestamp,
    /// By their numbers.
    pub files: Vec<StagedFile>,
}

/// Whether a user has as many requests as one may have.
pub(super) fn is_full(
    connection: &Connection,
    request: &NewStageRequest,
) -> rusqlite::Result<bool> {
    let Some(user) = &request.user else {
        return Ok(false);
    };
    let open: i64 = connection
        .prepare_cached("SELECT count(*) FROM stage_request WHERE user = ?1")?
        .query_row([user.as_str()], |row| row.get(0))?;
    Ok(open >= REQUESTS_PER_USER_MAX)
}

pub(super) fn insert(connection: &Connection, request: &NewStageRequest) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO stage_request VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            request.id.as_str(),
            request.user.as_ref().map(UserName::as_str),
            request.vo.as_ref().map(VoName::as_str),
            request.at.0,
            request.challenge,
        ])?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO stage_file VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    let room = PinRoom::of(request);
    for (number, asked) in (0_i64..).zip(&request.files) {
        let file = &settled(connection, &room, request, asked)?;
        insert.execute(params![
            request.id.as_str(),
            number,
            file.path,
            file.entry.map(stored),
            file.pinned_until.map(|until| until.0),
            i64::try_from(file.pin.as_millis()).unwrap_or(i64::MAX),
            file.state.stored(),
            file.problem.as_ref().map(|problem| &problem.text),
            file.started.map(|at| at.0),
            file.finished.map(|at| at.0),
            file.problem.as_ref().map(|problem| problem.code.name()),
            file.activity,
        ])?;
        if let Some(entry) = file.entry.filter(|_| file.is_held()) {
            held::keep(connection, request, entry)?;
        }
    }
    Ok(())
}

/// A file that is asked for, as it is now: on disk, or to be waited for.
fn settled(
    connection: &Connection,
    room: &PinRoom<'_>,
    request: &NewStageRequest,
    asked: &StagedFile,
) -> rusqlite::Result<StagedFile> {
    let (mut file, at, pools_away) = (asked.clone(), request.at, &request.pools_away);
    let Some(entry) = file
        .entry
        .filter(|_| file.state == StageFileState::Submitted)
    else {
        return Ok(file);
    };
    let found = connection
        .prepare_cached("SELECT pool, archival, size_bytes FROM entry WHERE id = ?1")?
        .query_row([stored(entry)], |row| {
            let pool = row.get::<_, Option<String>>(0)?.map(PoolName::new);
            Ok((pool, archival_of(row.get(1)?), Bytes(unsigned(row.get(2)?))))
        });
    let refusal = match found.optional()? {
        None => Some(StageProblem {
            code: ProblemCode::PathNotFound,
            text: "the file was removed".to_owned(),
        }),
        Some((pool, archival, size)) => {
            let away = pool.as_ref().filter(|pool| pools_away.contains(pool));
            match (&pool, away) {
                (None, _) => {}
                (Some(_), None) => {
                    file.state = StageFileState::Completed;
                    file.pinned_until = Some(at + file.pin);
                    (file.started, file.finished) = (Some(at), Some(at));
                }
                (Some(_), Some(away)) => file.problem = Some(out_of_service(away, archival)),
            }
            match away.filter(|_| archival != Archival::Cached) {
                Some(away) => Some(out_of_service(away, archival)),
                None => room.refusal(connection, entry, size)?,
            }
        }
    };
    if refusal.is_some() {
        file.state = StageFileState::Failed;
        (file.pinned_until, file.started, file.finished) = (None, None, Some(at));
        file.problem = refusal;
    }
    Ok(file)
}

fn out_of_service(pool: &PoolName, archival: Archival) -> StageProblem {
    let text = match archival {
        Archival::Cached => format!(
            "waits for pool {pool}, which is out of service; the file is brought from tape when that lasts"
        ),
        Archival::DiskOnly | Archival::Precious => {
            format!("pool {pool}, which keeps this file, is out of service; ask again later")
        }
    };
    StageProblem {
        code: ProblemCode::PoolOffline,
        text,
    }
}

/// The recall of a file has begun.
pub(super) fn start(connection: &Connection, file: EntryId, at: Timestamp) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE stage_file SET state = 1, started_ms = ?2, error = NULL, code = NULL
             WHERE entry = ?1 AND state = 0",
        )?
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
            "UPDATE stage_file SET state = 0, error = ?2, code = ?3 WHERE entry = ?1 AND state < 2",
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
            "UPDATE stage_file SET state = 2, finished_ms = ?2, started_ms = coalesce(started_ms, ?2),
             pin_until_ms = ?2 + pin_ms, error = NULL, code = NULL WHERE entry = ?1 AND state < 2",
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
        .prepare_cached(
            "UPDATE stage_file SET state = 0, finished_ms = NULL, pin_until_ms = NULL
             WHERE entry = ?1 AND state = 2 AND pin_until_ms > ?2",
        )?
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
    held::let_go(connection, "entry = ?1 AND state < 2", [stored(file)])?;
    connection
        .prepare_cached(
            "UPDATE stage_file SET state = 3, finished_ms = ?2, error = ?3, code = ?4
             WHERE entry = ?1 AND state < 2",
        )?
        .execute(params![
            stored(file),
            at.0,
            problem.text,
            problem.code.name()
        ])?;
    Ok(())
}

/// These files are no longer wanted.
pub(super) fn release(
    connection: &Connection,
    request: &StageRequestId,
    files: &[u32],
    at: Timestamp,
) -> rusqlite::Result<()> {
    let mut cancel = connection.prepare_cached(
        "UPDATE stage_file SET state = 4, finished_ms = ?3, error = NULL, code = NULL
         WHERE request = ?1 AND number = ?2 AND state < 2",
    )?;
    let mut release = connection.prepare_cached(
        "UPDATE stage_file SET pin_until_ms = NULL WHERE request = ?1 AND number = ?2",
    )?;
    for number in files {
        let of_file = "request = ?1 AND number = ?2";
        held::let_go(connection, of_file, params![request.as_str(), number])?;
        cancel.execute(params![request.as_str(), number, at.0])?;
        release.execute(params![request.as_str(), number])?;
    }
    Ok(())
}

/// The same in all requests of a user.
pub(super) fn release_of_user(
    connection: &Connection,
    user: &UserName,
    files: &[EntryId],
    at: Timestamp,
) -> rusqlite::Result<()> {
    let mut find = connection.prepare_cached(
        "SELECT request, number FROM stage_file JOIN stage_request ON request = id
         WHERE entry = ?1 AND user = ?2 AND (state < 2 OR pin_until_ms IS NOT NULL)",
    )?;
    for file in files {
        let rows = find.query_map(params![stored(*file), user.as_str()], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?))
        })?;
        let named: rusqlite::Result<Vec<(String, u32)>> = rows.collect();
        for (request, number) in named? {
            release(connection, &StageRequestId::new(request), &[number], at)?;
        }
    }
    Ok(())
}

pub(super) fn forget(connection: &Connection, request: &StageRequestId) -> rusqlite::Result<()> {
    held::let_go(connection, "request = ?1", [request.as_str()])?;
    for table in ["stage_file WHERE request", "stage_request WHERE id"] {
        connection
            .prepare_cached(&format!("DELETE FROM {table} = ?1"))?
            .execute([request.as_str()])?;
    }
    Ok(())
}

/// Pins whose time is over hold nothing any more.
pub(super) fn end_pins(connection: &Connection, at: Timestamp) -> rusqlite::Result<()> {
    let mut query = connection.prepare_cached(
        "SELECT request, number FROM stage_file WHERE pin_until_ms <= ?1 ORDER BY pin_until_ms LIMIT ?2",
    )?;
    let rows = query.query_map(params![at.0, bounded(PINS_ENDED_MAX)], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    })?;
    let over: rusqlite::Result<Vec<(String, i64)>> = rows.collect();
    let mut end = connection.prepare_cached(
        "UPDATE stage_file SET pin_until_ms = NULL WHERE request = ?1 AND number = ?2",
    )?;
    for (request, number) in over? {
        let of_file = "request = ?1 AND number = ?2";
        held::let_go(connection, of_file, params![request, number])?;
        end.execute(params![request, number])?;
    }
    Ok(())
}

/// How many requests were forgotten.
pub(super) fn prune(
    connection: &Connection,
    before: Timestamp,
    at: Timestamp,
) -> rusqlite::Result<u64> {
    let mut query = connection.prepare_cached(
        "SELECT id FROM stage_request WHERE created_ms < ?1 AND NOT EXISTS (
             SELECT 1 FROM stage_file WHERE request = id AND (state < 2 OR pin_until_ms > ?2)
         ) ORDER BY created_ms LIMIT 20",
    )?;
    let rows = query.query_map(params![before.0, at.0], |row| row.get::<_, String>(0))?;
    let old: rusqlite::Result<Vec<String>> = rows.collect();
    let old = old?;
    for id in &old {
        forget(connection, &StageRequestId::new(id.as_str()))?;
    }
    Ok(old.len() as u64)
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

/// What is in the way of a file, by the columns of its text and its code. Earlier versions kept no code.
fn problem_of(text: Option<String>, code: Option<&str>) -> Option<StageProblem> {
    let code = code.and_then(ProblemCode::by_name);
    Some(StageProblem {
        code: code.unwrap_or(ProblemCode::TapeFailed),
        text: text?,
    })
}

/// A recall that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedFailure {
    pub problem: StageProblem,
    pub at: Timestamp,
}

/// Takes all columns behind `number`.
fn of_row(row: &Row<'_>) -> rusqlite::Result<StagedFile> {
    Ok(StagedFile {
        path: row.get(0)?,
        entry: row
            .get::<_, Option<i64>>(1)?
            .map(|id| EntryId(unsigned(id))),
        pinned_until: row.get::<_, Option<i64>>(2)?.map(Timestamp),
        pin: Duration::from_millis(unsigned(row.get(3)?)),
        state: StageFileState::of_stored(row.get(4)?),
        problem: problem_of(row.get(5)?, row.get::<_, Option<String>>(8)?.as_deref()),
        started: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        finished: row.get::<_, Option<i64>>(7)?.map(Timestamp),
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

/// Somebody who waits for a file.
pub(super) const AWAITED_BY: &str =
    "SELECT vo, activity, challenge FROM stage_file JOIN stage_request ON request = id
     WHERE entry = ?1 AND state < 2 LIMIT 1";

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
            let mut query = connection.prepare_cached(
                "SELECT DISTINCT entry FROM stage_file WHERE state < 2 AND entry > ?1 ORDER BY entry LIMIT ?2",
            )?;
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
            let sql = "SELECT error, code, finished_ms FROM stage_file
                       WHERE entry = ?1 AND state IN (2, 3) AND code IS NOT ?2
                       ORDER BY finished_ms DESC LIMIT 1";
            let of_one_user = ProblemCode::PinsExhausted.name();
            let found = connection.prepare_cached(sql)?.query_row(
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
            let mut query = connection.prepare_cached(
                "SELECT DISTINCT stage_file.entry FROM stage_file JOIN entry ON entry.id = stage_file.entry
                 WHERE state < 2 AND pool = ?1 AND archival = 2 AND stage_file.entry > ?2
                 ORDER BY stage_file.entry LIMIT ?3",
            )?;
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
                .prepare_cached(AWAITED_BY)?
                .query_row([stored(file)], awaiter_of_row)
                .optional()
        })
    }
}
