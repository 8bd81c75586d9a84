//! How decisions about the number of transfers are kept, in every back end.

use penstock_model::TunedPlace;

/// Decisions of one place that are kept.
pub(super) const KEPT: u32 = 500;

/// Places of which a restart reads the last decision, those that were decided about last: users name places, and some name
/// ever new ones.
pub(super) const PLACES_MAX: u32 = 10_000;

/// The ends of a place as they are stored: empty where it has none.
pub(super) fn ends(place: &TunedPlace) -> (&str, &str) {
    match place {
        TunedPlace::Link(link) => (link.source.as_str(), link.destination.as_str()),
        TunedPlace::Outbound { storage } => (storage.as_str(), ""),
        TunedPlace::Inbound { storage } => ("", storage.as_str()),
    }
}
