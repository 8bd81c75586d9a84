//! Sealing anew, with the newest key, what older keys had sealed: some rows at a time.

use super::session::{OpenTransaction, Purpose, RowFlow, Sessions};
use super::{Database, DatabaseError, schema};
use crate::resealing::{Pass, ROWS, SealedColumn};
use crate::sealing::{SealingKeys, key_name_of};
use std::collections::BTreeMap;

/// Looks at some more rows of each place. The caller makes it a transaction.
pub(crate) fn advance<const N: usize>(
    open: &mut OpenTransaction<'_>,
    keys: &SealingKeys,
    mut passes: [Pass; N],
    places: [SealedColumn; N],
) -> Result<[Pass; N], DatabaseError> {
    for (pass, place) in passes.iter_mut().zip(places) {
        if !pass.is_done {
            advance_one(open, keys, pass, place)?;
        }
    }
    Ok(passes)
}

fn advance_one(
    open: &mut OpenTransaction<'_>,
    keys: &SealingKeys,
    pass: &mut Pass,
    place: SealedColumn,
) -> Result<(), DatabaseError> {
    let SealedColumn {
        table, id, secret, ..
    } = place;
    let select = format!(
        "SELECT {id}, {secret} FROM {table} WHERE {id} > $1 AND {secret} IS NOT NULL ORDER BY {id} LIMIT $2"
    );
    // The secret may be changed meanwhile; then it is sealed with the newest key already.
    let update = format!("UPDATE {table} SET {secret} = $3 WHERE {id} = $1 AND {secret} = $2");
    let rows = open.query(&select, &[&pass.after, &(ROWS as i64)])?;
    for row in &rows {
        let (id, sealed): (&str, &[u8]) = (row.get(0), row.get(1));
        if !keys.is_stale(sealed) {
            continue;
        }
        let Ok(opened) = keys.open(place.kind, id, sealed) else {
            pass.unreadable += 1;
            continue;
        };
        let anew = keys.seal(place.kind, id, &opened);
        let anew = anew.map_err(|why| DatabaseError::Setup(why.to_string()))?;
        open.execute(&update, &[&id, &sealed, &anew])?;
    }
    match rows.last() {
        Some(last) if rows.len() == ROWS => pass.after = last.get(0),
        Some(_) | None => pass.is_done = true,
    }
    Ok(())
}

/// How many secrets each key has sealed, by the key's name. A database without tables holds none.
pub(crate) fn keys_in_use(
    database: &Database,
    places: &'static [SealedColumn],
) -> Result<BTreeMap<String, u64>, DatabaseError> {
    Sessions::start(database, Purpose::Read, 1)?.ask(move |session| {
        let mut open = session.begin()?;
        let mut used = BTreeMap::new();
        if schema::version(&mut open)?.is_some() {
            for SealedColumn { secret, table, .. } in places {
                let sql = format!("SELECT {secret} FROM {table} WHERE {secret} IS NOT NULL");
                open.stream(&sql, &[], |row| {
                    let key = key_name_of(row.get(0)).unwrap_or_default();
                    *used.entry(key).or_default() += 1;
                    Ok::<_, DatabaseError>(RowFlow::On)
                })?;
            }
        }
        open.commit()?;
        Ok(used)
    })
}
