//! Forgetting links that nothing uses, and the storage elements that only they were part of. Users name them, and some
//! name ever new ones.

use super::*;
use std::cmp::Reverse;
use std::collections::HashSet;

/// What a scheduler knows no more.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ForgottenPlaces {
    pub links: Vec<LinkId>,
    /// The storage elements.
    pub storages: Vec<StorageId>,
}

impl Scheduler {
    /// Links that were named and not forgotten.
    pub fn links_known(&self) -> usize {
        self.links.len()
    }

    /// Whether a link was named and not forgotten.
    pub fn knows(&self, link: &LinkId) -> bool {
        self.link_index.contains_key(link)
    }

    /// Forgets links on which nothing waits and nothing runs, and with them what was learnt of them: when they are named
    /// again, they are new, with other numbers. Those in `keep` stay, because somebody has their numbers, and so do the
    /// `unused_max` others that were used last. It looks at all links, so it is not for each transfer.
    pub fn forget_unused(
        &mut self,
        keep: &HashSet<LinkNumber>,
        unused_max: usize,
    ) -> ForgottenPlaces {
        let unused = self
            .links
            .iter()
            .filter(|(index, link)| !keep.contains(&number_of(*index)) && self.is_unused(link));
        let mut unused: Vec<(Reverse<u64>, LinkIndex)> = unused
            .map(|(index, link)| (Reverse(link.used), index))
            .collect();
        unused.sort_unstable();
        let gone = unused.into_iter().skip(unused_max);
        let gone: BTreeSet<LinkIndex> = gone.map(|(_, index)| index).collect();
        if !gone.is_empty() {
            // They may stand there still, since what had waited was taken out.
            self.round.retain(|index| !gone.contains(index));
            let of_storages = self.storages.values_mut();
            let places =
                of_storages.flat_map(|storage| [&mut storage.outbound, &mut storage.inbound]);
            for place in places.chain([&mut self.agents, &mut self.gfal]) {
                place.lines.forget(&gone);
            }
        }
        let links = gone.into_iter().filter_map(|index| {
            let link = self.links.remove(index)?;
            self.link_index.remove(&link.id);
            Some(link.id)
        });
        ForgottenPlaces {
            links: links.collect(),
            storages: self.forget_storages(),
        }
    }

    fn is_unused(&self, link: &Link) -> bool {
        link.queue.is_empty()
            && link.slots.active == 0
            && link.offer.is_none()
            && link.keeps == [None; KINDS]
            && link.rate.is_at_rest(self.now_ms)
    }

    /// Those that are part of no link, unless something that holds there would be lost.
    fn forget_storages(&mut self) -> Vec<StorageId> {
        let links = self.links.values();
        let used: HashSet<StorageIndex> = links
            .flat_map(|link| [link.source, link.destination])
            .collect();
        let is_at_rest = |place: &SharedPlace| {
            place.slots.active == 0
                && place.slots.tuned.is_none()
                && place.kept == 0
                && place.rate.is_at_rest(self.now_ms)
        };
        let gone = self.storages.iter().filter(|(at, storage)| {
            !used.contains(at) && is_at_rest(&storage.outbound) && is_at_rest(&storage.inbound)
        });
        let gone: BTreeSet<StorageIndex> = gone.map(|(at, _)| at).collect();
        if gone.is_empty() {
            return Vec::new();
        }
        self.freed.retain(|id| match id {
            SharedPlaceId::Outbound(at) | SharedPlaceId::Inbound(at) => !gone.contains(at),
            SharedPlaceId::Agents | SharedPlaceId::Gfal => true,
        });
        let storages = gone.into_iter().filter_map(|at| {
            let storage = self.storages.remove(at)?;
            self.storage_index.remove(&storage.id);
            Some(storage.id)
        });
        storages.collect()
    }
}
