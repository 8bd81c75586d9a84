//! How many transfers may run where, and how many bytes per second may move there.

use crate::link_patterns::most_specific_first;
use penstock_model::{ANY, LinkId, Rate, Slots, StorageId};
use std::collections::{BTreeMap, BTreeSet};

/// How many transfers may run where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotLimits {
    /// On each link that has no limit of its own.
    pub link: Slots,
    /// Out of each storage element, over all links, unless it has a limit of its own.
    pub storage_outbound: Slots,
    /// Into each storage element, over all links, unless it has a limit of its own.
    pub storage_inbound: Slots,
    /// In this service, over everything.
    pub agents: Slots,
    /// In this service, over all links that need gfal2, because each such transfer has a process of its own.
    pub gfal: Slots,
    /// Links with a limit of their own. Either end may be `*`; the most specific pattern counts.
    pub links: BTreeMap<LinkId, Slots>,
    /// Storage elements with limits of their own.
    pub storages: BTreeMap<StorageId, StorageSlots>,
    /// What may move.
    pub rates: RateCaps,
    /// Where nothing begins.
    pub draining: DrainedPlaces,
}

/// How many transfers may run at a storage element, over all its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageSlots {
    /// Out of it.
    pub outbound: Slots,
    /// Into it.
    pub inbound: Slots,
}

/// How many slots of a place are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotUse {
    /// Transfers that run.
    pub active: Slots,
    /// Transfers that may run.
    pub limit: Slots,
}

/// How many bytes per second may move where. What is not said is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateCaps {
    /// On links; the most specific pattern counts.
    pub links: BTreeMap<LinkId, Rate>,
    /// Out of storage elements; `*`: out of each that has none of its own.
    pub outbound: BTreeMap<StorageId, Rate>,
    /// Into storage elements; `*`: into each that has none of its own.
    pub inbound: BTreeMap<StorageId, Rate>,
}

/// Where nothing begins any more, and what runs may end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainedPlaces {
    /// Links; either end may be `*`, and every pattern counts.
    pub links: BTreeSet<LinkId>,
    /// Storage elements, as source and as destination; `*`: all of them.
    pub storages: BTreeSet<StorageId>,
}

impl Default for SlotLimits {
    fn default() -> Self {
        SlotLimits {
            link: Slots(50),
            storage_outbound: Slots(200),
            storage_inbound: Slots(200),
            agents: Slots(500),
            gfal: Slots(50),
            links: BTreeMap::new(),
            storages: BTreeMap::new(),
            rates: RateCaps::default(),
            draining: DrainedPlaces::default(),
        }
    }
}

impl SlotLimits {
    pub fn of_link(&self, link: &LinkId) -> u32 {
        let patterns = most_specific_first(link);
        let own = patterns.iter().find_map(|pattern| self.links.get(pattern));
        own.copied().unwrap_or(self.link).0
    }

    /// Out of a storage element and into it, over all its links.
    pub fn of_storage(&self, storage: &StorageId) -> StorageSlots {
        let own = self.storages.get(storage).copied();
        own.unwrap_or(self.of_each_storage())
    }

    /// At each storage element without limits of its own.
    pub(crate) fn of_each_storage(&self) -> StorageSlots {
        StorageSlots {
            outbound: self.storage_outbound,
            inbound: self.storage_inbound,
        }
    }
}

impl RateCaps {
    pub(super) fn are_any(&self) -> bool {
        !(self.links.is_empty() && self.outbound.is_empty() && self.inbound.is_empty())
    }

    pub(super) fn of_link(&self, link: &LinkId) -> Option<Rate> {
        if self.links.is_empty() {
            return None;
        }
        let patterns = most_specific_first(link);
        let own = patterns.iter().find_map(|pattern| self.links.get(pattern));
        own.copied()
    }

    pub(super) fn outbound_of(&self, storage: &StorageId) -> Option<Rate> {
        of_storage(&self.outbound, storage)
    }

    pub(super) fn inbound_of(&self, storage: &StorageId) -> Option<Rate> {
        of_storage(&self.inbound, storage)
    }
}

fn of_storage(caps: &BTreeMap<StorageId, Rate>, storage: &StorageId) -> Option<Rate> {
    if caps.is_empty() {
        return None;
    }
    let own = caps.get(storage);
    own.or_else(|| caps.get(&StorageId::new(ANY))).copied()
}

impl DrainedPlaces {
    pub(super) fn covers_link(&self, link: &LinkId) -> bool {
        let mut patterns = most_specific_first(link).into_iter();
        !self.links.is_empty() && patterns.any(|pattern| self.links.contains(&pattern))
    }

    pub(super) fn covers_storage(&self, storage: &StorageId) -> bool {
        self.storages.contains(storage) || self.storages.contains(&StorageId::new(ANY))
    }
}
