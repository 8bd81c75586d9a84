//! The form in which [`NoSlot`] is stored and sent: one word for each pair of a place and a bound.

use super::{NoSlot, SlotBound, SlotPlace};
use crate::ids::StorageId;
use crate::units::{Rate, Slots};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub(super) enum StoredNoSlot {
    LinkFull {
        active: Slots,
        limit: Slots,
    },
    SourceFull {
        storage: StorageId,
        active: Slots,
        limit: Slots,
    },
    DestinationFull {
        storage: StorageId,
        active: Slots,
        limit: Slots,
    },
    AgentsFull {
        active: Slots,
        limit: Slots,
    },
    GfalFull {
        active: Slots,
        limit: Slots,
    },
    SlotKept {
        /// `None`: in the service.
        storage: Option<StorageId>,
        active: Slots,
        kept: Slots,
        limit: Slots,
    },
    LinkTuned {
        active: Slots,
        tuned: Slots,
        limit: Slots,
    },
    SourceTuned {
        storage: StorageId,
        active: Slots,
        tuned: Slots,
        limit: Slots,
    },
    DestinationTuned {
        storage: StorageId,
        active: Slots,
        tuned: Slots,
        limit: Slots,
    },
    RateCapped {
        place: RatedPlace,
        rate: Rate,
        cap: Rate,
    },
    LinkDraining,
    StorageDraining {
        storage: StorageId,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub(super) enum RatedPlace {
    Link,
    Source { storage: StorageId },
    Destination { storage: StorageId },
}

/// The scheduler makes only pairs that have a word. Any other pair takes the nearest word.
impl From<NoSlot> for StoredNoSlot {
    fn from(NoSlot { place, because }: NoSlot) -> StoredNoSlot {
        match because {
            SlotBound::Limit { active, limit } => full(place, active, limit),
            SlotBound::Tuned {
                active,
                tuned,
                limit,
            } => match place {
                SlotPlace::Link => StoredNoSlot::LinkTuned {
                    active,
                    tuned,
                    limit,
                },
                SlotPlace::Source { storage } | SlotPlace::Storage { storage } => {
                    StoredNoSlot::SourceTuned {
                        storage,
                        active,
                        tuned,
                        limit,
                    }
                }
                SlotPlace::Destination { storage } => StoredNoSlot::DestinationTuned {
                    storage,
                    active,
                    tuned,
                    limit,
                },
                SlotPlace::Agents | SlotPlace::Gfal => full(place, active, tuned),
            },
            SlotBound::Kept {
                active,
                kept,
                limit,
            } => StoredNoSlot::SlotKept {
                storage: place.storage().cloned(),
                active,
                kept,
                limit,
            },
            SlotBound::Rate { rate, cap } => StoredNoSlot::RateCapped {
                place: match place {
                    SlotPlace::Link | SlotPlace::Agents | SlotPlace::Gfal => RatedPlace::Link,
                    SlotPlace::Source { storage } | SlotPlace::Storage { storage } => {
                        RatedPlace::Source { storage }
                    }
                    SlotPlace::Destination { storage } => RatedPlace::Destination { storage },
                },
                rate,
                cap,
            },
            SlotBound::Draining => match place.storage() {
                Some(storage) => StoredNoSlot::StorageDraining {
                    storage: storage.clone(),
                },
                None => StoredNoSlot::LinkDraining,
            },
        }
    }
}

fn full(place: SlotPlace, active: Slots, limit: Slots) -> StoredNoSlot {
    match place {
        SlotPlace::Link => StoredNoSlot::LinkFull { active, limit },
        SlotPlace::Source { storage } | SlotPlace::Storage { storage } => {
            StoredNoSlot::SourceFull {
                storage,
                active,
                limit,
            }
        }
        SlotPlace::Destination { storage } => StoredNoSlot::DestinationFull {
            storage,
            active,
            limit,
        },
        SlotPlace::Agents => StoredNoSlot::AgentsFull { active, limit },
        SlotPlace::Gfal => StoredNoSlot::GfalFull { active, limit },
    }
}

impl From<StoredNoSlot> for NoSlot {
    /// Long because each stored word has one arm.
    fn from(stored: StoredNoSlot) -> NoSlot {
        let (place, because) = match stored {
            StoredNoSlot::LinkFull { active, limit } => {
                (SlotPlace::Link, SlotBound::Limit { active, limit })
            }
            StoredNoSlot::SourceFull {
                storage,
                active,
                limit,
            } => (
                SlotPlace::Source { storage },
                SlotBound::Limit { active, limit },
            ),
            StoredNoSlot::DestinationFull {
                storage,
                active,
                limit,
            } => (
                SlotPlace::Destination { storage },
                SlotBound::Limit { active, limit },
            ),
            StoredNoSlot::AgentsFull { active, limit } => {
                (SlotPlace::Agents, SlotBound::Limit { active, limit })
            }
            StoredNoSlot::GfalFull { active, limit } => {
                (SlotPlace::Gfal, SlotBound::Limit { active, limit })
            }
            StoredNoSlot::SlotKept {
                storage,
                active,
                kept,
                limit,
            } => {
                let place = storage.map(|storage| SlotPlace::Storage { storage });
                let bound = SlotBound::Kept {
                    active,
                    kept,
                    limit,
                };
                (place.unwrap_or(SlotPlace::Agents), bound)
            }
            StoredNoSlot::LinkTuned {
                active,
                tuned,
                limit,
            } => (
                SlotPlace::Link,
                SlotBound::Tuned {
                    active,
                    tuned,
                    limit,
                },
            ),
            StoredNoSlot::SourceTuned {
                storage,
                active,
                tuned,
                limit,
            } => (
                SlotPlace::Source { storage },
                SlotBound::Tuned {
                    active,
                    tuned,
                    limit,
                },
            ),
            StoredNoSlot::DestinationTuned {
                storage,
                active,
                tuned,
                limit,
            } => (
                SlotPlace::Destination { storage },
                SlotBound::Tuned {
                    active,
                    tuned,
                    limit,
                },
            ),
            StoredNoSlot::RateCapped { place, rate, cap } => {
                let place = match place {
                    RatedPlace::Link => SlotPlace::Link,
                    RatedPlace::Source { storage } => SlotPlace::Source { storage },
                    RatedPlace::Destination { storage } => SlotPlace::Destination { storage },
                };
                (place, SlotBound::Rate { rate, cap })
            }
            StoredNoSlot::LinkDraining => (SlotPlace::Link, SlotBound::Draining),
            StoredNoSlot::StorageDraining { storage } => {
                (SlotPlace::Storage { storage }, SlotBound::Draining)
            }
        };
        NoSlot { place, because }
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::VoName;
    use crate::reason::WaitReason;

    /// As earlier versions stored and sent them.
    const EARLIER: [&str; 14] = [
        r#"{"reason":"link_full","active":30,"limit":30}"#,
        r#"{"reason":"source_full","storage":"https://a","active":3,"limit":3}"#,
        r#"{"reason":"destination_full","storage":"https://b","active":4,"limit":4}"#,
        r#"{"reason":"agents_full","active":100,"limit":100}"#,
        r#"{"reason":"gfal_full","active":50,"limit":50}"#,
        r#"{"reason":"slot_kept","storage":"https://a","active":1,"kept":1,"limit":2}"#,
        r#"{"reason":"slot_kept","storage":null,"active":1,"kept":1,"limit":2}"#,
        r#"{"reason":"link_tuned","active":6,"tuned":6,"limit":8}"#,
        r#"{"reason":"source_tuned","storage":"https://a","active":6,"tuned":6,"limit":8}"#,
        r#"{"reason":"destination_tuned","storage":"https://b","active":6,"tuned":6,"limit":8}"#,
        r#"{"reason":"rate_capped","place":{"at":"link"},"rate":7,"cap":6}"#,
        r#"{"reason":"rate_capped","place":{"at":"destination","storage":"https://b"},"rate":7,"cap":6}"#,
        r#"{"reason":"link_draining"}"#,
        r#"{"reason":"storage_draining","storage":"https://a"}"#,
    ];

    #[test]
    fn the_stored_form_is_that_of_earlier_versions() {
        for text in EARLIER {
            let reason: WaitReason = serde_json::from_str(text).expect("it was stored so");
            assert!(matches!(reason, WaitReason::NoSlot(_)), "{reason:?}");
            assert_eq!(serde_json::to_string(&reason).expect("JSON"), text);
            let by_share = WaitReason::ByShare {
                because: Box::new(reason),
                vo: VoName::new("cms"),
                vo_percent: Some(40),
                activity_percent: None,
            };
            let shared = format!(
                r#"{{"reason":"by_share","because":{text},"vo":"cms","vo_percent":40,"activity_percent":null}}"#
            );
            assert_eq!(serde_json::to_string(&by_share).expect("JSON"), shared);
            let read: WaitReason = serde_json::from_str(&shared).expect("it was stored so");
            assert_eq!(read, by_share);
        }
        let other: WaitReason = serde_json::from_str(r#"{"reason":"starting"}"#).expect("a reason");
        assert_eq!(other, WaitReason::Starting);
        let unknown = serde_json::from_str::<WaitReason>(r#"{"reason":"tired"}"#);
        assert!(unknown.is_err());
    }
}
