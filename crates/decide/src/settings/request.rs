//! What somebody wants to be set. What is not said stays as it is.

use penstock_model::{
    ActivityShares, CloudKey, CloudName, CloudStorage, Grant, LinkId, Mute, MuteScope, Operation,
    Rate, Slots, StorageId, TuningMode, TuningPolicy, VoName, VoShare,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// What somebody wants to be set. What is not said stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettingRequest {
    /// Make or change a link rule.
    SetLink(LinkRuleRequest),
    /// Remove the link rule of that name.
    RemoveLink(String),
    /// Make or change what holds for storage elements.
    SetStorages(Vec<StorageRuleRequest>),
    /// Remove what is set for a storage element.
    RemoveStorage(StorageId),
    /// Make or change what holds for the jobs of a VO.
    SetDefaults(VoDefaultsRequest),
    /// Remove what is set for the jobs of a VO.
    RemoveDefaults(VoName),
    /// Give a VO a share of links.
    SetVoShare(VoShare),
    /// Take it back.
    RemoveVoShare(LinkId, VoName),
    /// Give the activities of a VO shares, in the place of any before.
    SetActivityShares(ActivityShares),
    /// Take them back.
    RemoveActivityShares(VoName),
    /// Let somebody do more.
    Grant(Grant),
    /// Take back what was granted.
    Revoke(RevokedGrants),
    /// Let a cloud storage be reached.
    SetCloudStorage(CloudStorage),
    /// Let it be reached no more, and forget all keys for it.
    RemoveCloudStorage(CloudName),
    /// Let somebody use a key of a cloud storage.
    SetCloudKey(CloudKey),
    /// Forget the keys that a user or a VO of that name may use there.
    RemoveCloudKeys(CloudName, String),
    /// Start nothing, or start again.
    Drain(bool),
    /// Alert nobody of some incidents for a while.
    SetMute(Mute),
    /// Alert of them again.
    RemoveMute(MuteScope),
}

/// A link rule as far as it is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRuleRequest {
    pub name: String,
    /// A new rule without it is for every source.
    pub source: Option<StorageId>,
    /// A new rule without it is for every destination.
    pub destination: Option<StorageId>,
    /// See [`penstock_model::LinkRule::slots_min`].
    pub slots_min: Option<Slots>,
    /// See [`penstock_model::LinkRule::slots_max`].
    pub slots_max: Option<Slots>,
    /// See [`penstock_model::LinkRule::tuning`]; the inner `None` takes back.
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub tuning: Option<Option<TuningPolicy>>,
    /// See [`penstock_model::LinkRule::mode`]; the inner `None` takes back.
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub mode: Option<Option<TuningMode>>,
    /// See [`penstock_model::LinkRule::rate_max`]; the inner `None` takes back.
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub rate_max: Option<Option<Rate>>,
    /// See [`penstock_model::LinkRule::is_draining`].
    pub is_draining: Option<bool>,
}

/// What holds for a storage element as far as it is said; the inner `None` takes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageRuleRequest {
    pub storage: StorageId,
    /// See [`penstock_model::StorageRule::outbound_max`].
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub outbound_max: Option<Option<Slots>>,
    /// See [`penstock_model::StorageRule::inbound_max`].
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub inbound_max: Option<Option<Slots>>,
    /// See [`penstock_model::StorageRule::site`].
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub site: Option<Option<String>>,
    /// See [`penstock_model::StorageRule::note`].
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub note: Option<Option<String>>,
    /// See [`penstock_model::StorageRule::outbound_rate_max`].
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub outbound_rate_max: Option<Option<Rate>>,
    /// See [`penstock_model::StorageRule::inbound_rate_max`].
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub inbound_rate_max: Option<Option<Rate>>,
    /// See [`penstock_model::StorageRule::is_draining`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_draining: Option<bool>,
    /// See [`penstock_model::StorageRule::staging_max`]; of the VOs that are said.
    pub staging_max: BTreeMap<VoName, Option<u32>>,
}

impl StorageRuleRequest {
    /// Says nothing of it yet.
    pub fn new(storage: StorageId) -> StorageRuleRequest {
        StorageRuleRequest {
            storage,
            outbound_max: None,
            inbound_max: None,
            site: None,
            note: None,
            outbound_rate_max: None,
            inbound_rate_max: None,
            is_draining: None,
            staging_max: BTreeMap::new(),
        }
    }
}

/// What holds for the jobs of a VO as far as it is said; the inner `None` takes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoDefaultsRequest {
    /// Which VO, or [`penstock_model::ANY`].
    pub vo: VoName,
    /// See [`penstock_model::JobDefaults::retries_max`].
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub retries_max: Option<Option<u32>>,
    /// See [`penstock_model::JobDefaults::queue_hours_max`].
    #[serde(
        default,
        deserialize_with = "said",
        skip_serializing_if = "Option::is_none"
    )]
    pub queue_hours_max: Option<Option<u32>>,
}

/// A field that is there was said, even when it takes back.
fn said<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Which grants are taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedGrants {
    pub user: String,
    pub operation: Option<Operation>,
    /// Only that for this storage element.
    pub storage: Option<StorageId>,
}
