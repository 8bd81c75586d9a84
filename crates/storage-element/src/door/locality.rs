//! Where the bytes of a file are, in the words of the Tape REST API.

use super::handler_context::Door;
use penstock_model::{Archival, Locality};
use penstock_persistence::namespace::EntryKind;

/// Where the bytes of a file are, as every door tells it.
pub(super) fn locality(door: &Door, kind: &EntryKind) -> Locality {
    let EntryKind::File {
        size,
        pool,
        archival,
    } = kind
    else {
        return Locality::None;
    };
    let pool = pool.as_ref().map(|pool| door.storage.pool(pool));
    let is_in_reach = pool.map(|pool| pool.is_some_and(|pool| pool.is_in_reach()));
    match (size.0, is_in_reach, archival) {
        (0, ..) => Locality::None,
        (_, Some(false), Archival::DiskOnly | Archival::Precious | Archival::Cached) => {
            Locality::Unavailable
        }
        (_, is_in_reach, archival) => archival.locality(is_in_reach.is_some()),
    }
}
