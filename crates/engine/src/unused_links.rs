//! Forgetting links that nothing uses any more: users name them, and some name ever new ones.

use super::Engine;
use penstock_decide::scheduler::LinkNumber;
use penstock_model::LinkId;
use std::collections::HashSet;

/// So many links are known beside those that are in use before it is looked which may be forgotten. Half of them stay
/// known, those that were used last.
pub(super) const UNUSED_LINKS_MAX: usize = 5_000;

/// When it is looked next, and what is kept of links that are forgotten.
pub(super) struct Forgetting {
    /// With more known links than these.
    links_max: usize,
    failed_files: u64,
}

impl Default for Forgetting {
    fn default() -> Forgetting {
        Forgetting {
            links_max: UNUSED_LINKS_MAX,
            failed_files: 0,
        }
    }
}

impl Engine {
    /// Links that are known: those in use, and others that were used lately.
    pub fn links_known(&self) -> usize {
        self.scheduler.links_known()
    }

    /// Whether a link is known.
    pub fn knows_link(&self, link: &LinkId) -> bool {
        self.scheduler.knows(link)
    }

    /// Files of forgotten links that were given up since the start.
    pub fn failed_files_of_forgotten_links(&self) -> u64 {
        self.forgetting.failed_files
    }

    /// Forgets links that nothing uses, when many have become known. What is known of a link that is named again later is
    /// as after a restart: nothing.
    pub(super) fn forget_unused_links(&mut self) {
        if self.scheduler.links_known() <= self.forgetting.links_max {
            return;
        }
        let in_use = self.transfers.values().map(|entry| entry.link);
        let in_use: HashSet<LinkNumber> = in_use.collect();
        let forgotten = self.scheduler.forget_unused(&in_use, UNUSED_LINKS_MAX / 2);
        for link in &forgotten.links {
            self.history.forget(link);
            self.last_failure.remove(link);
            self.forgetting.failed_files += self.failed_files.remove(link).unwrap_or(0);
        }
        self.halting.forget(&forgotten.links);
        self.tuning.forget(&forgotten);
        // Looking costs as much as there is: it pays when as much has come.
        let more = in_use.len().max(UNUSED_LINKS_MAX / 2);
        self.forgetting.links_max = self.scheduler.links_known() + more;
    }
}
