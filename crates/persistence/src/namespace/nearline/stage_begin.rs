//! How a file of a stage request begins: on disk, waiting, or refused.

use super::super::EntryId;
use super::super::connection::{stored, unsigned};
use super::super::nearline_change::{
    NewStageRequest, RequestedFile, StageProblem, StageProgress, StagedFile,
};
use super::super::read::archival_of;
use super::held::PinRoom;
use penstock_model::{Archival, Bytes, PoolName, ProblemCode};
use rusqlite::{Connection, OptionalExtension};
use std::time::Duration;

/// A file that is asked for, as it is now: on disk, to be waited for, or refused.
pub(super) fn begun(
    connection: &Connection,
    room: &PinRoom<'_>,
    request: &NewStageRequest,
    asked: &RequestedFile,
) -> rusqlite::Result<StagedFile> {
    let at = request.at;
    let progress = match &asked.found {
        Ok(entry) => first_progress(connection, room, request, (*entry, asked.pin))?,
        Err(problem) => Err(problem.clone()),
    };
    Ok(StagedFile {
        path: asked.path.clone(),
        entry: asked.found.as_ref().ok().copied(),
        pin: asked.pin,
        progress: progress.unwrap_or_else(|problem| {
            let begun = None;
            StageProgress::Failed { begun, problem, at }
        }),
        activity: asked.activity.clone(),
    })
}

/// How a file begins that is there, or why nobody may wait for it.
fn first_progress(
    connection: &Connection,
    room: &PinRoom<'_>,
    request: &NewStageRequest,
    (entry, pin): (EntryId, Duration),
) -> rusqlite::Result<Result<StageProgress, StageProblem>> {
    let found = connection
        .prepare_cached("SELECT pool, archival, size_bytes FROM entry WHERE id = ?1")?
        .query_row([stored(entry)], |row| {
            let pool = row.get::<_, Option<String>>(0)?.map(PoolName::new);
            Ok((pool, archival_of(row.get(1)?), Bytes(unsigned(row.get(2)?))))
        });
    let Some((pool, archival, size)) = found.optional()? else {
        return Ok(Err(StageProblem {
            code: ProblemCode::PathNotFound,
            text: "the file was removed".to_owned(),
        }));
    };
    let away = pool.as_ref();
    let away = away.filter(|pool| request.pools_away.contains(pool));
    let waits_for = away.map(|away| out_of_service(away, archival));
    let refusal = match waits_for.clone().filter(|_| archival != Archival::Cached) {
        Some(problem) => Some(problem),
        None => room.refusal(connection, entry, size)?,
    };
    if let Some(problem) = refusal {
        return Ok(Err(problem));
    }
    let at = request.at;
    Ok(Ok(match (pool, waits_for) {
        (Some(_), None) => StageProgress::OnDisk {
            begun: Some(at),
            since: at,
            pinned_until: Some(at + pin),
        },
        (_, waits_for) => {
            let begun = None;
            StageProgress::Waiting { begun, waits_for }
        }
    }))
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
