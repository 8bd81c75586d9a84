//! Properties that clients keep with files and directories (RFC 4918 §4: dead properties). An entry has a flag when it
//! has any, so that all others cost nothing.
//!
//! What a property means is not known here: it is a name and the XML element that the client gave.

use super::change_error::{ChangeError, ChangeRefusal, PROPERTIES_BYTES_MAX, PROPERTIES_MAX};
use super::connection::stored;
use super::{Entry, EntryId};
use penstock_model::NamespacePath;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One property of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadProperty {
    /// The XML namespace of its name, possibly empty.
    pub namespace: String,
    pub name: String,
    /// The whole element, as it is written into answers.
    pub element: String,
}

/// One step of a change to the properties of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyUpdate {
    /// Sets or replaces it.
    Set(DeadProperty),
    /// Removes it; it is no error when there is none.
    Remove {
        /// The XML namespace of its name.
        namespace: String,
        name: String,
    },
}

type PropertyMap = BTreeMap<(String, String), String>;

/// The properties of an entry, by name.
pub(super) fn load(connection: &Connection, entry: EntryId) -> rusqlite::Result<Vec<DeadProperty>> {
    let mut query = connection.prepare_cached(
        "SELECT namespace, name, element FROM property WHERE entry = ?1 ORDER BY namespace, name",
    )?;
    let rows = query.query_map([stored(entry)], |row| {
        Ok(DeadProperty {
            namespace: row.get(0)?,
            name: row.get(1)?,
            element: row.get(2)?,
        })
    })?;
    rows.collect()
}

/// Makes all updates in their order, or none when the result would be too much.
pub(super) fn update(
    connection: &Connection,
    path: &NamespacePath,
    entry: &Entry,
    updates: &[PropertyUpdate],
) -> Result<(), ChangeError> {
    let mut named: PropertyMap = match entry.has_properties {
        true => load(connection, entry.id)?
            .into_iter()
            .map(|property| ((property.namespace, property.name), property.element))
            .collect(),
        false => PropertyMap::new(),
    };
    for update in updates {
        match update {
            PropertyUpdate::Set(property) => {
                let name = (property.namespace.clone(), property.name.clone());
                named.insert(name, property.element.clone());
            }
            PropertyUpdate::Remove { namespace, name } => {
                named.remove(&(namespace.clone(), name.clone()));
            }
        }
    }
    let bytes = |((namespace, name), element): (&(String, String), &String)| {
        namespace.len() + name.len() + element.len()
    };
    if named.len() > PROPERTIES_MAX || named.iter().map(bytes).sum::<usize>() > PROPERTIES_BYTES_MAX
    {
        return Err(ChangeRefusal::TooManyProperties(path.clone()).into());
    }
    forget(connection, entry)?;
    for ((namespace, name), element) in &named {
        connection
            .prepare_cached("INSERT INTO property VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![stored(entry.id), namespace, name, element])?;
    }
    flag(connection, entry.id, !named.is_empty())?;
    Ok(())
}

/// Gives an entry without properties those of another one; nothing happens when that one is gone. Gives back whether it
/// got any.
pub(super) fn copy(connection: &Connection, from: EntryId, to: EntryId) -> rusqlite::Result<bool> {
    let copied = connection
        .prepare_cached(
            "INSERT OR REPLACE INTO property SELECT ?2, namespace, name, element FROM property WHERE entry = ?1",
        )?
        .execute(params![stored(from), stored(to)])?;
    match copied {
        0 => Ok(false),
        _ => flag(connection, to, true).map(|()| true),
    }
}

/// Gives an entry without properties these.
pub(super) fn insert(
    connection: &Connection,
    entry: EntryId,
    properties: &[DeadProperty],
) -> rusqlite::Result<()> {
    for property in properties {
        connection
            .prepare_cached("INSERT OR REPLACE INTO property VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![
                stored(entry),
                property.namespace,
                property.name,
                property.element
            ])?;
    }
    match properties.is_empty() {
        true => Ok(()),
        false => flag(connection, entry, true),
    }
}

/// Lets an entry that does not exist yet have the properties of one that goes. [`flag`] it when it exists.
pub(super) fn hand_over(
    connection: &Connection,
    from: EntryId,
    to: EntryId,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE property SET entry = ?2 WHERE entry = ?1")?
        .execute(params![stored(from), stored(to)])?;
    Ok(())
}

/// Removes all properties of an entry that is going or is about to get others.
pub(super) fn forget(connection: &Connection, entry: &Entry) -> rusqlite::Result<()> {
    if entry.has_properties {
        connection
            .prepare_cached("DELETE FROM property WHERE entry = ?1")?
            .execute([stored(entry.id)])?;
    }
    Ok(())
}

/// Notes on an entry whether it has properties.
pub(super) fn flag(
    connection: &Connection,
    entry: EntryId,
    has_properties: bool,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE entry SET properties = ?2 WHERE id = ?1")?
        .execute(params![stored(entry), has_properties])?;
    Ok(())
}
