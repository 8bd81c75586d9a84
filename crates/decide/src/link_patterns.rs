//! Links for which something is set, and those that it counts for.

use penstock_model::{ANY, LinkId, StorageId};

/// The patterns that a link fits, in the order in which they count: as FTS orders them.
pub(crate) fn most_specific_first(link: &LinkId) -> [LinkId; 4] {
    let any = || StorageId::new(ANY);
    let pattern = |source: StorageId, destination: StorageId| LinkId {
        source,
        destination,
    };
    [
        link.clone(),
        pattern(link.source.clone(), any()),
        pattern(any(), link.destination.clone()),
        pattern(any(), any()),
    ]
}
