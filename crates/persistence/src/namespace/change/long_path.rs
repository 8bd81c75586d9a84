//! Whether what lies below a directory could still be named after a move.

use super::super::EntryId;
use super::super::connection::{stored, unsigned};
use penstock_model::{NamespacePath, PATH_BYTES_MAX};
use rusqlite::{Connection, params};

/// Entries below a directory that is renamed of which the new paths are looked at.
const RENAME_ROWS_MAX: i64 = 50_000;

/// Of a whole path.
pub(super) fn bytes_of(path: &NamespacePath) -> usize {
    path.names().iter().map(|name| 1 + name.len()).sum()
}

/// Something below this directory would have too long a path if its own had so many bytes. Of a directory with more entries
/// than one change should look at, only so many are.
pub(super) fn has_long_path(
    connection: &Connection,
    directory: EntryId,
    path_bytes: usize,
) -> rusqlite::Result<bool> {
    let mut query = connection.prepare_cached(
        "SELECT id, kind = 0, length(CAST(name AS BLOB)) FROM entry WHERE parent = ?1 LIMIT ?2",
    )?;
    let mut open = vec![(stored(directory), path_bytes)];
    let mut rows_left = RENAME_ROWS_MAX;
    while let Some((parent, parent_bytes)) = open.pop() {
        let rows = query.query_map(params![parent, rows_left], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, bool>(1)?,
                unsigned(row.get(2)?),
            ))
        })?;
        for row in rows {
            let (id, is_directory, name_bytes) = row?;
            let name_bytes = usize::try_from(name_bytes).unwrap_or(usize::MAX);
            let bytes = parent_bytes.saturating_add(1).saturating_add(name_bytes);
            if bytes > PATH_BYTES_MAX {
                return Ok(true);
            }
            if is_directory {
                open.push((id, bytes));
            }
            rows_left -= 1;
        }
        if rows_left <= 0 {
            break;
        }
    }
    Ok(false)
}
