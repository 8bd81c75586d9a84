//! Settings: what operators change of a running transfer service through its interface.
//!
//! They stand above the configuration file. What is in effect is the sum of all changes, each of which says who made
//! it, when, and what was there before.

use crate::cloud::{CloudHolder, CloudKey, CloudName, CloudStorage};
use crate::ids::{Activity, LinkId, StorageId, UserName, VoName};
use crate::mute::{Mute, MuteScope};
use crate::tuning::{TuningMode, TuningPolicy};
use crate::units::{Rate, Slots, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Version of the stored form of [`Setting`] and [`SettingKey`].
pub const SETTING_VERSION: u32 = 1;

pub use crate::ids::ANY;

/// One thing that is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Setting {
    /// How many transfers may run on links.
    Link(LinkRule),
    /// What holds for a storage element.
    Storage(StorageRule),
    /// What holds for jobs that do not say.
    Defaults(JobDefaults),
    /// How much of the slots of links goes to a VO.
    VoShare(VoShare),
    /// How much of a VO's slots goes to each of its activities.
    ActivityShares(ActivityShares),
    /// Somebody may do more than others.
    Grant(Grant),
    /// A cloud storage that may be reached.
    CloudStorage(CloudStorage),
    /// Somebody may use a key of a cloud storage.
    CloudKey(CloudKey),
    /// The service starts nothing.
    Drain,
    /// Nobody is alerted of some incidents.
    Mute(Mute),
}

/// What a setting is about: there is at most one for each key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingKey {
    /// A link rule's symbolic name.
    Link(String),
    /// A storage element, or [`ANY`].
    Storage(StorageId),
    /// A VO, or [`ANY`].
    Defaults(VoName),
    /// The ends of the links, and the VO.
    VoShare(LinkId, VoName),
    ActivityShares(VoName),
    Grant(Grant),
    /// A cloud storage's name.
    CloudStorage(CloudName),
    /// A cloud storage and who may use the key.
    CloudKey(CloudName, CloudHolder),
    /// There is one service.
    Drain,
    /// Of which incidents.
    Mute(MuteScope),
}

impl fmt::Display for SettingKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingKey::Link(name) => write!(out, "link {name}"),
            SettingKey::Storage(storage) => write!(out, "storage element {storage}"),
            SettingKey::Defaults(vo) => write!(out, "defaults of VO {vo}"),
            SettingKey::VoShare(ends, vo) => write!(out, "share of VO {vo} on {ends}"),
            SettingKey::ActivityShares(vo) => write!(out, "activity shares of VO {vo}"),
            SettingKey::Grant(grant) => {
                write!(out, "right {} of {}", grant.operation.name(), grant.user)
            }
            SettingKey::CloudStorage(name) => write!(out, "cloud storage {name}"),
            SettingKey::CloudKey(name, _) => write!(out, "a key of cloud storage {name}"),
            SettingKey::Drain => out.write_str("drain of the service"),
            SettingKey::Mute(scope) => write!(out, "mute of {scope}"),
        }
    }
}

/// Limits of the links that fit a pattern. Of several that fit, the one with most named ends counts, and of two
/// with one, the one that names the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRule {
    /// What operators call it; unique.
    pub name: String,
    /// Which links. Either end may be [`ANY`].
    pub ends: LinkId,
    /// Tuning does not go below.
    pub slots_min: Slots,
    /// Transfers that may run at once on each of these links.
    pub slots_max: Slots,
    /// Who decides how many of these run; `None`: as the configuration file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuningPolicy>,
    /// How far that may go; `None`: as far as [`TuningMode::Normal`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TuningMode>,
    /// What may be moved on each of these links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_max: Option<Rate>,
    /// Nothing begins there, and what runs may end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_draining: bool,
}

/// What holds for a storage element; [`ANY`] for each that has no value of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageRule {
    pub storage: StorageId,
    /// Transfers that may read from it at once, over all links.
    pub outbound_max: Option<Slots>,
    /// Transfers that may write to it at once, over all links.
    pub inbound_max: Option<Slots>,
    /// Where it stands, for people.
    pub site: Option<String>,
    /// A note, for people.
    pub note: Option<String>,
    /// What may be read from it, over all links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound_rate_max: Option<Rate>,
    /// What may be written to it, over all links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbound_rate_max: Option<Rate>,
    /// Nothing begins there, and what runs may end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_draining: bool,
    /// Files that it may bring from tape at once, by VO; [`ANY`]: of each VO that has no value of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub staging_max: BTreeMap<VoName, u32>,
}

impl StorageRule {
    /// One that says nothing yet.
    pub fn new(storage: StorageId) -> StorageRule {
        StorageRule {
            storage,
            outbound_max: None,
            inbound_max: None,
            site: None,
            note: None,
            outbound_rate_max: None,
            inbound_rate_max: None,
            is_draining: false,
            staging_max: BTreeMap::new(),
        }
    }
}

/// What holds for the jobs of a VO that do not say; [`ANY`]: of each VO that has no value of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDefaults {
    pub vo: VoName,
    /// Retries of a failed transfer.
    pub retries_max: Option<u32>,
    /// Hours that a job may wait from its submission on.
    pub queue_hours_max: Option<u32>,
}

/// The VO that stands for every other one in shares, by FTS's word.
pub const PUBLIC: &str = "public";
/// The activity that stands for every other one of its VO, by FTS's word.
pub const DEFAULT_ACTIVITY: &str = "default";

/// How much goes to one of several that wait, in proportion to the others. In millionths, so that FTS's fractions
/// compare and add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight {
    millionths: u64,
}

impl Weight {
    /// The largest that can be set: a million.
    pub const MAX: Weight = Weight {
        millionths: 1_000_000_000_000,
    };
    pub const ONE: Weight = Weight {
        millionths: 1_000_000,
    };

    /// A whole number, at most [`Weight::MAX`].
    pub fn whole(number: u32) -> Weight {
        let millionths = u64::from(number) * Weight::ONE.millionths;
        Weight { millionths }.min(Weight::MAX)
    }

    /// A number as people write it. `None` below zero, above [`Weight::MAX`], and for more than zero that would be
    /// rounded to it.
    pub fn from_number(number: f64) -> Option<Weight> {
        let millionths = (number * 1e6).round();
        let fits = (0.0..=Weight::MAX.millionths as f64).contains(&millionths);
        let weight = Weight {
            millionths: if fits { millionths as u64 } else { 0 },
        };
        (fits && (number == 0.0 || weight.millionths > 0)).then_some(weight)
    }

    /// The same number.
    pub fn number(self) -> f64 {
        self.millionths as f64 / 1e6
    }

    pub fn millionths(self) -> u64 {
        self.millionths
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.millionths == 0
    }
}

/// How much of the slots of links goes to a VO. Of several patterns that fit a link, the one with most named ends
/// counts alone, as for limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoShare {
    /// Which links. Either end may be [`ANY`].
    pub ends: LinkId,
    /// Which VO, or [`PUBLIC`] for all that have no share of their own.
    pub vo: VoName,
    /// In proportion to the other VOs that wait. Zero: nothing of this VO may go there.
    pub weight: Weight,
}

/// How much of a VO's slots goes to each of its activities that wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityShares {
    pub vo: VoName,
    /// By activity in lower case; [`DEFAULT_ACTIVITY`] for those that are not named.
    pub weights: BTreeMap<Activity, Weight>,
    /// False: kept, but without effect.
    pub is_active: bool,
}

/// What can be granted, by FTS's names.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Look at jobs, cancel them, change their priority.
    Transfer,
    /// Ban, configure, look at the state of the service.
    #[default]
    Config,
}

impl Operation {
    /// FTS's name.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Transfer => "transfer",
            Operation::Config => "config",
        }
    }
}

/// Somebody may do more than others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    /// Whom: the subject of a certificate, or of a token of the service's own issuer; `issuer#subject` for others'.
    pub user: UserName,
    #[serde(default)]
    pub operation: Operation,
    /// Only settings of this storage element and its links; `None`: everything.
    pub storage: Option<StorageId>,
}

impl Setting {
    /// What it is about.
    pub fn key(&self) -> SettingKey {
        match self {
            Setting::Link(rule) => SettingKey::Link(rule.name.clone()),
            Setting::Storage(rule) => SettingKey::Storage(rule.storage.clone()),
            Setting::Defaults(defaults) => SettingKey::Defaults(defaults.vo.clone()),
            Setting::VoShare(share) => SettingKey::VoShare(share.ends.clone(), share.vo.clone()),
            Setting::ActivityShares(shares) => SettingKey::ActivityShares(shares.vo.clone()),
            Setting::Grant(grant) => SettingKey::Grant(grant.clone()),
            Setting::CloudStorage(cloud) => SettingKey::CloudStorage(cloud.name.clone()),
            Setting::CloudKey(key) => SettingKey::CloudKey(key.storage.clone(), key.holder.clone()),
            Setting::Drain => SettingKey::Drain,
            Setting::Mute(mute) => SettingKey::Mute(mute.scope.clone()),
        }
    }
}

/// One change, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    pub at: Timestamp,
    pub user: UserName,
    /// What was done, in FTS's words: `link`, `link-delete`, `set-se-config` and so on.
    pub action: String,
    /// What was changed.
    pub key: SettingKey,
    /// What was set before, if anything.
    pub before: Option<Setting>,
    /// What is set from then on; `None`: nothing any more.
    pub after: Option<Setting>,
}

/// All settings that are in effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<SettingKey, Setting>);

impl Settings {
    /// Takes a change over.
    pub fn apply(&mut self, change: &SettingChange) {
        match &change.after {
            Some(setting) => self.put(setting.clone()),
            None => {
                self.0.remove(&change.key);
            }
        }
    }

    /// Sets one thing in the place of any before.
    pub fn put(&mut self, setting: Setting) {
        self.0.insert(setting.key(), setting);
    }

    /// What is set under a key.
    pub fn get(&self, key: &SettingKey) -> Option<&Setting> {
        self.0.get(key)
    }

    /// All of them, in the order of their keys.
    pub fn all(&self) -> impl Iterator<Item = &Setting> {
        self.0.values()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The link rule of that name.
    pub fn link(&self, name: &str) -> Option<&LinkRule> {
        match self.get(&SettingKey::Link(name.to_owned())) {
            Some(Setting::Link(rule)) => Some(rule),
            _ => None,
        }
    }

    /// All link rules, by name.
    pub fn links(&self) -> impl Iterator<Item = &LinkRule> {
        self.0.values().filter_map(|setting| match setting {
            Setting::Link(rule) => Some(rule),
            _ => None,
        })
    }

    /// What is set for a storage element, or for [`ANY`].
    pub fn storage(&self, storage: &StorageId) -> Option<&StorageRule> {
        match self.get(&SettingKey::Storage(storage.clone())) {
            Some(Setting::Storage(rule)) => Some(rule),
            _ => None,
        }
    }

    /// All storage elements for which something is set.
    pub fn storages(&self) -> impl Iterator<Item = &StorageRule> {
        self.0.values().filter_map(|setting| match setting {
            Setting::Storage(rule) => Some(rule),
            _ => None,
        })
    }

    /// What is set for the jobs of a VO, or of [`ANY`].
    pub fn defaults(&self, vo: &VoName) -> Option<&JobDefaults> {
        match self.get(&SettingKey::Defaults(vo.clone())) {
            Some(Setting::Defaults(defaults)) => Some(defaults),
            _ => None,
        }
    }

    /// All VOs for whose jobs something is set.
    pub fn all_defaults(&self) -> impl Iterator<Item = &JobDefaults> {
        self.0.values().filter_map(|setting| match setting {
            Setting::Defaults(defaults) => Some(defaults),
            _ => None,
        })
    }

    /// All shares of VOs.
    pub fn vo_shares(&self) -> impl Iterator<Item = &VoShare> {
        self.0.values().filter_map(|setting| match setting {
            Setting::VoShare(share) => Some(share),
            _ => None,
        })
    }

    /// The shares of a VO's activities.
    pub fn activity_shares(&self, vo: &VoName) -> Option<&ActivityShares> {
        match self.get(&SettingKey::ActivityShares(vo.clone())) {
            Some(Setting::ActivityShares(shares)) => Some(shares),
            _ => None,
        }
    }

    /// The shares of activities of all VOs.
    pub fn all_activity_shares(&self) -> impl Iterator<Item = &ActivityShares> {
        self.0.values().filter_map(|setting| match setting {
            Setting::ActivityShares(shares) => Some(shares),
            _ => None,
        })
    }

    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.0.values().filter_map(|setting| match setting {
            Setting::Grant(grant) => Some(grant),
            _ => None,
        })
    }

    /// The cloud storage of that name.
    pub fn cloud_storage(&self, name: &CloudName) -> Option<&CloudStorage> {
        match self.get(&SettingKey::CloudStorage(name.clone())) {
            Some(Setting::CloudStorage(cloud)) => Some(cloud),
            _ => None,
        }
    }

    /// All cloud storages, by name.
    pub fn cloud_storages(&self) -> impl Iterator<Item = &CloudStorage> {
        self.0.values().filter_map(|setting| match setting {
            Setting::CloudStorage(cloud) => Some(cloud),
            _ => None,
        })
    }

    /// All keys of cloud storages: by storage, users before VOs.
    pub fn cloud_keys(&self) -> impl Iterator<Item = &CloudKey> {
        self.0.values().filter_map(|setting| match setting {
            Setting::CloudKey(key) => Some(key),
            _ => None,
        })
    }

    /// All mutes, also those that have expired.
    pub fn mutes(&self) -> impl Iterator<Item = &Mute> {
        self.0.values().filter_map(|setting| match setting {
            Setting::Mute(mute) => Some(mute),
            _ => None,
        })
    }

    /// Whether nothing shall start.
    pub fn is_drained(&self) -> bool {
        self.0.contains_key(&SettingKey::Drain)
    }
}
