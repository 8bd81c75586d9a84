//! The tables in PostgreSQL and their migrations. Several versions may work with one database while nodes are upgraded
//! one after the other, so a migration only adds: the version before it goes on working.

use super::DatabaseError;
use super::session::{OpenTransaction, Session};

/// The newest schema that this version knows. Each migration raises it by one.
pub const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// So much newer than what is known here a schema may be, if it says itself that this version may use it.
const NEWER_MAX: u32 = 1;

/// Held while tables are made: several nodes may start at once.
const MIGRATION_LOCK: i64 = 0x7065_6e73_746f_636b;

struct Migration {
    sql: &'static str,
    /// The oldest schema whose versions can work with the tables from then on.
    usable_from: u32,
}

const MIGRATIONS: [Migration; 6] = [
    Migration {
        sql: include_str!("schema/1.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/2.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/3.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/4.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/5.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/6.sql"),
        usable_from: 1,
    },
];

/// Looks whether the tables can be used, and brings them to the newest schema.
pub(crate) fn migrate(session: &mut Session) -> Result<(), DatabaseError> {
    // Most starts find them as they must be, and need no rights to make any.
    let mut open = session.begin()?;
    if let Some(found) = version(&mut open)?
        && check(&open, found)? >= SCHEMA_VERSION
    {
        return open.commit();
    }
    // Whoever makes them has the time that it takes.
    open.execute_all("SET LOCAL lock_timeout = 0")?;
    open.query("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK])?;
    open.execute_all(
        "CREATE TABLE IF NOT EXISTS penstock_schema (
            one             boolean PRIMARY KEY DEFAULT true CHECK (one),
            version         integer NOT NULL,
            usable_from     integer NOT NULL
         )",
    )?;
    let found = match version(&mut open)? {
        Some(found) => check(&open, found)?,
        None => 0,
    };
    for (index, step) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        open.execute_all(step.sql)?;
        let reached = index as i32 + 1;
        open.execute(
            "INSERT INTO penstock_schema (version, usable_from) VALUES ($1, $2)
             ON CONFLICT (one) DO UPDATE SET version = excluded.version, usable_from = excluded.usable_from",
            &[&reached, &(step.usable_from as i32)],
        )?;
    }
    open.commit()
}

/// The schema of a database.
#[derive(Clone, Copy)]
pub(crate) struct FoundSchema {
    pub version: u32,
    /// The oldest program that can work with it knows this one.
    usable_from: u32,
}

/// The schema that a database has; `None` when it has no tables.
pub(crate) fn version(
    open: &mut OpenTransaction<'_>,
) -> Result<Option<FoundSchema>, DatabaseError> {
    let known = "SELECT to_regclass('penstock_schema') IS NOT NULL";
    let known = open.query_opt(known, &[])?;
    if !known.is_some_and(|row| row.get(0)) {
        return Ok(None);
    }
    let row = open.query_opt("SELECT version, usable_from FROM penstock_schema", &[])?;
    Ok(row.map(|row| FoundSchema {
        version: row.get::<_, i32>(0) as u32,
        usable_from: row.get::<_, i32>(1) as u32,
    }))
}

/// The schema, if this version can work with it.
pub(crate) fn check(open: &OpenTransaction<'_>, found: FoundSchema) -> Result<u32, DatabaseError> {
    let FoundSchema {
        version,
        usable_from,
    } = found;
    if usable_from <= SCHEMA_VERSION && version <= SCHEMA_VERSION + NEWER_MAX {
        return Ok(version);
    }
    Err(DatabaseError::TooNew {
        database: open.database().clone(),
        found: version,
        usable_from,
        known: SCHEMA_VERSION,
    })
}

/// Makes the tables of an earlier version.
#[cfg(test)]
pub(crate) fn make_old(database: &super::Database, version: u32) {
    use super::lab;
    lab::execute(
        database,
        "CREATE TABLE penstock_schema (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL,
         usable_from integer NOT NULL)",
    );
    for step in &MIGRATIONS[..version as usize] {
        lab::execute(database, step.sql);
    }
    let usable_from = MIGRATIONS[version as usize - 1].usable_from;
    lab::execute(
        database,
        &format!(
            "INSERT INTO penstock_schema (version, usable_from) VALUES ({version}, {usable_from})"
        ),
    );
}
