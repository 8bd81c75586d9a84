//! The same for queues of families, which are maps of such maps.

use super::{ArchiveGroup, ArchiveQueue, as_pairs};
use crate::request::FamilyName;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

#[derive(Serialize, Deserialize)]
struct Groups(#[serde(with = "as_pairs")] BTreeMap<ArchiveGroup, ArchiveQueue>);

pub(super) fn serialize<S: Serializer>(
    families: &BTreeMap<FamilyName, BTreeMap<ArchiveGroup, ArchiveQueue>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let families = families.iter();
    serializer.collect_map(families.map(|(family, groups)| (family, Groups(groups.clone()))))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<FamilyName, BTreeMap<ArchiveGroup, ArchiveQueue>>, D::Error> {
    let families: BTreeMap<FamilyName, Groups> = Deserialize::deserialize(deserializer)?;
    Ok(families
        .into_iter()
        .map(|(family, Groups(groups))| (family, groups))
        .collect())
}
