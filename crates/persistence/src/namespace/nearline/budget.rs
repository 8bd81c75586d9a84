//! What stage requests of one user may take to be kept: their number, the files that they name, and the bytes of their paths.

use super::super::ChangeRefusal;
use super::super::nearline_change::NewStageRequest;
use super::bounded;
use penstock_model::UserName;
use rusqlite::{Connection, OptionalExtension, params};

/// Stage requests of one user that are kept, those that are over included: what dCache allows. Those of readers are not counted.
const REQUESTS_PER_USER_MAX: i64 = 5_000;
/// Files that all of them name together, those of readers included.
const FILES_PER_USER_MAX: i64 = 500_000;
/// Bytes of their paths.
const TEXT_BYTES_PER_USER_MAX: i64 = 128 << 20;
/// What requests take to be kept.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    pub requests: i64,
    pub files: i64,
    pub text_bytes: i64,
}

impl Kept {
    pub(super) fn of(request: &NewStageRequest) -> Kept {
        let bytes = request.files.iter().map(|file| file.path.len());
        Kept {
            requests: i64::from(!request.is_of_reader),
            files: bounded(request.files.len()),
            text_bytes: bounded(bytes.sum()),
        }
    }

    pub(super) fn of_user(connection: &Connection, user: &UserName) -> rusqlite::Result<Kept> {
        let sql = "SELECT requests, files, text_bytes FROM stage_kept WHERE user = ?1";
        let mut query = connection.prepare_cached(sql)?;
        let found = query.query_row([user.as_str()], |row| {
            Ok(Kept {
                requests: row.get(0)?,
                files: row.get(1)?,
                text_bytes: row.get(2)?,
            })
        });
        Ok(found.optional()?.unwrap_or_default())
    }

    pub(super) fn with(self, more: Kept) -> Kept {
        Kept {
            requests: self.requests + more.requests,
            files: self.files + more.files,
            text_bytes: self.text_bytes + more.text_bytes,
        }
    }

    pub(super) fn without(self, less: Kept) -> Kept {
        self.with(Kept {
            requests: -less.requests,
            files: -less.files,
            text_bytes: -less.text_bytes,
        })
    }

    /// Why this is too much for one user.
    pub(super) fn refusal(self, has: Kept) -> Option<ChangeRefusal> {
        if self.requests > REQUESTS_PER_USER_MAX {
            return Some(ChangeRefusal::TooManyStages(has.requests));
        }
        let fits = self.files <= FILES_PER_USER_MAX && self.text_bytes <= TEXT_BYTES_PER_USER_MAX;
        (!fits).then_some(ChangeRefusal::TooManyStagedFiles {
            files: has.files,
            mebibytes: has.text_bytes >> 20,
        })
    }

    /// Counts it for a user, or `-1` times.
    pub(super) fn count(self, connection: &Connection, user: Option<&str>) -> rusqlite::Result<()> {
        connection
            .prepare_cached(
                "INSERT INTO stage_kept SELECT ?1, ?2, ?3, ?4 WHERE ?1 IS NOT NULL
                 ON CONFLICT (user) DO UPDATE SET requests = requests + ?2, files = files + ?3, text_bytes = text_bytes + ?4",
            )?
            .execute(params![user, self.requests, self.files, self.text_bytes])?;
        connection
            .prepare_cached(
                "DELETE FROM stage_kept WHERE user = ?1 AND requests = 0 AND files = 0 AND text_bytes = 0",
            )?
            .execute([user])?;
        Ok(())
    }
}
