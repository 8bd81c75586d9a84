//! Who may change which setting, what a wish means for what is set already, and what settings do to the limits of
//! the configuration file.
//!
//! A wish is judged against the settings as they are when its turn comes, so that two wishes at once cannot
//! contradict each other. It is taken as a whole or not at all.

mod request;
#[cfg(test)]
mod tests;

pub use request::{
    LinkRuleRequest, RevokedGrants, SettingRequest, StorageRuleRequest, VoDefaultsRequest,
};

use crate::link_patterns::most_specific_first;
use crate::scheduler::{SlotLimits, StorageSlots};
use crate::tuning::{Bounds, LinkRules};
use penstock_model::{
    ANY, CloudKey, CloudName, Grant, JobDefaults, LinkId, LinkRule, Operation, Setting, SettingKey,
    Settings, Slots, StorageId, StorageRule, TuningMode, TuningPolicy, VoName,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How many settings there may be in all. FTS instances of the WLCG have a few hundred.
const SETTINGS_MAX: usize = 20_000;
/// What a new link rule has when it does not say, as in FTS.
const LINK_SLOTS: Slots = Slots(2);

/// Who asks for a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingRequester {
    /// The names by which grants may speak of them.
    pub names: Vec<String>,
    /// An administrator may change everything.
    pub is_admin: bool,
}

/// A change that may be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// In FTS's words.
    pub action: &'static str,
    /// What it changes.
    pub key: SettingKey,
    /// What was set before.
    pub before: Option<Setting>,
    /// What is set from then on.
    pub after: Option<Setting>,
}

/// Why a wish is not granted.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum SettingRefusal {
    #[error(
        "only administrators of this service may do that, or those to whom they granted 'config'"
    )]
    NotAdministrator,
    /// The asker manages neither end.
    #[error(
        "you manage neither {0} nor {1}; their managers and the administrators may change this link"
    )]
    NotManagerOfEnd(StorageId, StorageId),
    /// The asker does not manage it.
    #[error("you do not manage {0}; its managers and the administrators may change it")]
    NotManager(StorageId),
    /// Wording of FTS.
    #[error("max_active is lower than min_active")]
    MaxBelowMin,
    /// There is a rule with these ends.
    #[error("the link rule '{name}' is for {ends} already; change that one, or remove it first")]
    PatternTaken { name: String, ends: LinkId },
    /// There are no keys without what they open. Wording of FTS.
    #[error("The storage {0} does not exist")]
    NoCloudStorage(CloudName),
    /// So that nobody fills the memory.
    #[error("there are {SETTINGS_MAX} settings already; remove some first")]
    TooMany,
}

/// What has to be recorded for a wish to be fulfilled; nothing, when all is so already.
/// Long because each kind of wish has one arm, which says what it becomes.
pub fn plan(
    settings: &Settings,
    asker: &SettingRequester,
    wish: &SettingRequest,
) -> Result<Vec<PlannedChange>, SettingRefusal> {
    let planned = match wish {
        SettingRequest::SetLink(wish) => vec![set_link(settings, asker, wish)?],
        SettingRequest::RemoveLink(name) => match settings.link(name) {
            Some(rule) => {
                may_change_link(settings, asker, &rule.ends)?;
                vec![remove("link-delete", Setting::Link(rule.clone()))]
            }
            None => vec![],
        },
        SettingRequest::SetStorages(wishes) => {
            let each = wishes.iter();
            each.map(|wish| set_storage(settings, asker, wish))
                .collect::<Result<_, _>>()?
        }
        SettingRequest::RemoveStorage(storage) => {
            may_change_storage(settings, asker, storage)?;
            let rule = settings.storage(storage).into_iter();
            rule.map(|rule| remove("se-delete", Setting::Storage(rule.clone())))
                .collect()
        }
        SettingRequest::Grant(grant) => {
            may_change_all(settings, asker)?;
            vec![put(settings, "authorize", Setting::Grant(grant.clone()))]
        }
        SettingRequest::SetDefaults(wish) => {
            may_change_all(settings, asker)?;
            vec![set_defaults(settings, wish)]
        }
        SettingRequest::RemoveDefaults(vo) => {
            may_change_all(settings, asker)?;
            let defaults = settings.defaults(vo).into_iter();
            defaults
                .map(|defaults| remove("global-delete", Setting::Defaults(defaults.clone())))
                .collect()
        }
        SettingRequest::SetVoShare(share) => {
            may_change_link(settings, asker, &share.ends)?;
            vec![put(settings, "share", Setting::VoShare(share.clone()))]
        }
        SettingRequest::RemoveVoShare(ends, vo) => {
            may_change_link(settings, asker, ends)?;
            let key = SettingKey::VoShare(ends.clone(), vo.clone());
            let share = settings.get(&key).into_iter();
            share
                .map(|share| remove("share-delete", share.clone()))
                .collect()
        }
        SettingRequest::SetActivityShares(shares) => {
            may_change_all(settings, asker)?;
            let shares = Setting::ActivityShares(shares.clone());
            vec![put(settings, "activity-share", shares)]
        }
        SettingRequest::RemoveActivityShares(vo) => {
            may_change_all(settings, asker)?;
            let shares = settings.activity_shares(vo).into_iter();
            shares
                .map(|shares| {
                    let before = Setting::ActivityShares(shares.clone());
                    remove("activity-share-delete", before)
                })
                .collect()
        }
        SettingRequest::Revoke(which) => {
            may_change_all(settings, asker)?;
            let RevokedGrants {
                user,
                operation,
                storage,
            } = which;
            let granted = settings.grants().filter(|grant| {
                grant.user.as_str() == user
                    && operation.is_none_or(|operation| operation == grant.operation)
                    && (storage.is_none() || *storage == grant.storage)
            });
            granted
                .map(|grant| remove("revoke", Setting::Grant(grant.clone())))
                .collect()
        }
        SettingRequest::SetCloudStorage(cloud) => {
            may_change_all(settings, asker)?;
            let setting = Setting::CloudStorage(cloud.clone());
            vec![put(settings, "cloud-storage", setting)]
        }
        SettingRequest::RemoveCloudStorage(name) => {
            may_change_all(settings, asker)?;
            let mut planned = forget_keys(settings, |key| key.storage == *name);
            planned.extend(settings.cloud_storage(name).map(|cloud| {
                let setting = Setting::CloudStorage(cloud.clone());
                remove("cloud-storage-delete", setting)
            }));
            planned
        }
        SettingRequest::SetCloudKey(key) => {
            may_change_all(settings, asker)?;
            let storage = settings.cloud_storage(&key.storage);
            storage.ok_or_else(|| SettingRefusal::NoCloudStorage(key.storage.clone()))?;
            vec![put(settings, "cloud-key", Setting::CloudKey(key.clone()))]
        }
        SettingRequest::RemoveCloudKeys(name, holder) => {
            may_change_all(settings, asker)?;
            forget_keys(settings, |key| {
                key.storage == *name && key.holder.name() == holder
            })
        }
        SettingRequest::SetMute(mute) => {
            may_change_all(settings, asker)?;
            let expired = settings
                .mutes()
                .filter(|other| other.scope != mute.scope && !other.is_in_force(mute.since));
            let expired = expired.map(|other| remove("mute-expired", Setting::Mute(other.clone())));
            let mut planned: Vec<PlannedChange> = expired.collect();
            planned.push(put(settings, "mute", Setting::Mute(mute.clone())));
            planned
        }
        SettingRequest::RemoveMute(scope) => {
            may_change_all(settings, asker)?;
            let known = settings.get(&SettingKey::Mute(scope.clone())).into_iter();
            known
                .map(|mute| remove("mute-delete", mute.clone()))
                .collect()
        }
        SettingRequest::Drain(drained) => {
            may_change_all(settings, asker)?;
            match drained {
                true => vec![put(settings, "drain", Setting::Drain)],
                false if settings.is_drained() => vec![remove("drain", Setting::Drain)],
                false => vec![],
            }
        }
    };
    let changed: Vec<PlannedChange> = planned
        .into_iter()
        .filter(|change| change.before != change.after)
        .collect();
    let more = changed.iter().filter(|change| change.before.is_none());
    match settings.count() + more.count() > SETTINGS_MAX {
        true => Err(SettingRefusal::TooMany),
        false => Ok(changed),
    }
}

/// Whether somebody may change every setting.
pub fn may_configure(settings: &Settings, asker: &SettingRequester) -> bool {
    asker.is_admin || is_granted(settings, asker, Operation::Config)
}

/// Whether a setting grants an operation on the whole service to somebody.
pub fn is_granted(settings: &Settings, asker: &SettingRequester, operation: Operation) -> bool {
    granted(settings, asker).any(|grant| grant.storage.is_none() && grant.operation == operation)
}

/// Whether somebody may read the settings: everybody who may change any.
pub fn may_look(settings: &Settings, asker: &SettingRequester) -> bool {
    asker.is_admin || granted(settings, asker).any(|grant| grant.operation == Operation::Config)
}

/// The limits in effect: those of the file, with what is set above them. A pattern that is set replaces the same
/// pattern of the file.
pub fn slots_in_effect(file: &SlotLimits, settings: &Settings) -> SlotLimits {
    let mut slots = file.clone();
    for rule in settings.links() {
        slots.links.insert(rule.ends.clone(), rule.slots_max);
        let rate = rule.rate_max.map(|rate| (rule.ends.clone(), rate));
        slots.rates.links.extend(rate);
        let drained = rule.is_draining.then(|| rule.ends.clone());
        slots.draining.links.extend(drained);
    }
    for rule in settings.storages() {
        let storage = || rule.storage.clone();
        let rates = &mut slots.rates;
        let outbound = rule.outbound_rate_max.map(|rate| (storage(), rate));
        rates.outbound.extend(outbound);
        let inbound = rule.inbound_rate_max.map(|rate| (storage(), rate));
        rates.inbound.extend(inbound);
        let drained = rule.is_draining.then(storage);
        slots.draining.storages.extend(drained);
    }
    if let Some(any) = settings.storage(&StorageId::new(ANY)) {
        slots.storage_outbound = any.outbound_max.unwrap_or(slots.storage_outbound);
        slots.storage_inbound = any.inbound_max.unwrap_or(slots.storage_inbound);
    }
    let otherwise = slots.of_each_storage();
    for rule in settings
        .storages()
        .filter(|rule| rule.storage.as_str() != ANY)
    {
        let before = slots
            .storages
            .get(&rule.storage)
            .copied()
            .unwrap_or(otherwise);
        let limits = StorageSlots {
            outbound: rule.outbound_max.unwrap_or(before.outbound),
            inbound: rule.inbound_max.unwrap_or(before.inbound),
        };
        slots.storages.insert(rule.storage.clone(), limits);
    }
    slots
}

/// How a link is tuned: by the rule that counts there, within its limits; else by the configuration file, between
/// FTS's smallest number and what is allowed.
pub fn tuning_in_effect(
    slots: &SlotLimits,
    settings: &Settings,
    policy: TuningPolicy,
    link: &LinkId,
) -> LinkRules {
    let patterns = most_specific_first(link);
    let rule = patterns.iter().find_map(|pattern| {
        let mut rules = settings.links();
        let set = rules.find(|rule| rule.ends == *pattern);
        // A pattern of the file counts, too, but says only how many.
        set.map(Some)
            .or_else(|| slots.links.get(pattern).map(|_| None))
    });
    let rule = rule.flatten();
    let max = slots.of_link(link).max(1);
    let min = rule.map_or(LINK_SLOTS, |rule| rule.slots_min);
    LinkRules {
        policy: rule.and_then(|rule| rule.tuning).unwrap_or(policy),
        mode: rule
            .and_then(|rule| rule.mode)
            .unwrap_or(TuningMode::Normal),
        bounds: Bounds {
            min: min.0.clamp(1, max),
            max,
        },
        is_configured: rule.is_some(),
    }
}

/// How many files a storage element may bring from tape at once for a VO; `None`: as many as it likes. What is set for
/// the storage element counts before what is set for all, and there the VO's own before that of every VO.
pub fn staging_in_effect(settings: &Settings, storage: &StorageId, vo: &VoName) -> Option<u32> {
    let rules = [
        settings.storage(storage),
        settings.storage(&StorageId::new(ANY)),
    ];
    let any = VoName::new(ANY);
    let of = |rule: &StorageRule| {
        let own = rule.staging_max.get(vo);
        own.or_else(|| rule.staging_max.get(&any)).copied()
    };
    rules.into_iter().flatten().find_map(of)
}

/// What holds for the jobs of a VO that do not say: its own values, then those of all.
pub fn defaults_in_effect(settings: &Settings, vo: &VoName) -> JobDefaults {
    let (own, any) = (settings.defaults(vo), settings.defaults(&VoName::new(ANY)));
    let of = |value: fn(&JobDefaults) -> Option<u32>| {
        own.and_then(value).or_else(|| any.and_then(value))
    };
    JobDefaults {
        vo: vo.clone(),
        retries_max: of(|defaults| defaults.retries_max),
        queue_hours_max: of(|defaults| defaults.queue_hours_max),
    }
}

fn set_link(
    settings: &Settings,
    asker: &SettingRequester,
    wish: &LinkRuleRequest,
) -> Result<PlannedChange, SettingRefusal> {
    let before = settings.link(&wish.name);
    if let Some(before) = before {
        may_change_link(settings, asker, &before.ends)?;
    }
    let end = |said: &Option<StorageId>, of: fn(&LinkId) -> &StorageId| {
        let known = || before.map_or_else(|| StorageId::new(ANY), |rule| of(&rule.ends).clone());
        said.clone().unwrap_or_else(known)
    };
    let ends = LinkId {
        source: end(&wish.source, |ends| &ends.source),
        destination: end(&wish.destination, |ends| &ends.destination),
    };
    may_change_link(settings, asker, &ends)?;
    if let Some(other) = settings
        .links()
        .find(|rule| rule.ends == ends && rule.name != wish.name)
    {
        return Err(SettingRefusal::PatternTaken {
            name: other.name.clone(),
            ends,
        });
    }
    let (min, max) = before.map_or((LINK_SLOTS, LINK_SLOTS), |rule| {
        (rule.slots_min, rule.slots_max)
    });
    let slots_max = wish.slots_max.unwrap_or(max);
    let rule = LinkRule {
        name: wish.name.clone(),
        ends,
        // A minimum that nobody asked for is in nobody's way.
        slots_min: wish.slots_min.unwrap_or(min.min(slots_max)),
        slots_max,
        tuning: wish.tuning.unwrap_or(before.and_then(|rule| rule.tuning)),
        mode: wish.mode.unwrap_or(before.and_then(|rule| rule.mode)),
        rate_max: wish
            .rate_max
            .unwrap_or(before.and_then(|rule| rule.rate_max)),
        is_draining: wish
            .is_draining
            .unwrap_or(before.is_some_and(|rule| rule.is_draining)),
    };
    match rule.slots_min > rule.slots_max {
        true => Err(SettingRefusal::MaxBelowMin),
        false => Ok(put(settings, "link", Setting::Link(rule))),
    }
}

fn set_storage(
    settings: &Settings,
    asker: &SettingRequester,
    wish: &StorageRuleRequest,
) -> Result<PlannedChange, SettingRefusal> {
    may_change_storage(settings, asker, &wish.storage)?;
    let before = settings.storage(&wish.storage).cloned();
    let mut rule = before.unwrap_or_else(|| StorageRule::new(wish.storage.clone()));
    rule.outbound_max = wish.outbound_max.unwrap_or(rule.outbound_max);
    rule.inbound_max = wish.inbound_max.unwrap_or(rule.inbound_max);
    rule.site = wish.site.clone().unwrap_or(rule.site);
    rule.note = wish.note.clone().unwrap_or(rule.note);
    rule.outbound_rate_max = wish.outbound_rate_max.unwrap_or(rule.outbound_rate_max);
    rule.inbound_rate_max = wish.inbound_rate_max.unwrap_or(rule.inbound_rate_max);
    rule.is_draining = wish.is_draining.unwrap_or(rule.is_draining);
    for (vo, files_max) in &wish.staging_max {
        match files_max {
            Some(most) => drop(rule.staging_max.insert(vo.clone(), *most)),
            None => drop(rule.staging_max.remove(vo)),
        }
    }
    Ok(put(settings, "set-se-config", Setting::Storage(rule)))
}

fn set_defaults(settings: &Settings, wish: &VoDefaultsRequest) -> PlannedChange {
    let before = settings.defaults(&wish.vo);
    let of = |value: fn(&JobDefaults) -> Option<u32>| before.and_then(value);
    let defaults = JobDefaults {
        vo: wish.vo.clone(),
        retries_max: wish.retries_max.unwrap_or(of(|known| known.retries_max)),
        queue_hours_max: wish
            .queue_hours_max
            .unwrap_or(of(|known| known.queue_hours_max)),
    };
    put(settings, "set-globals", Setting::Defaults(defaults))
}

fn forget_keys(settings: &Settings, which: impl Fn(&CloudKey) -> bool) -> Vec<PlannedChange> {
    let keys = settings.cloud_keys().filter(|key| which(key));
    keys.map(|key| remove("cloud-key-delete", Setting::CloudKey(key.clone())))
        .collect()
}

fn put(settings: &Settings, action: &'static str, after: Setting) -> PlannedChange {
    let key = after.key();
    PlannedChange {
        action,
        before: settings.get(&key).cloned(),
        key,
        after: Some(after),
    }
}

fn remove(action: &'static str, before: Setting) -> PlannedChange {
    PlannedChange {
        action,
        key: before.key(),
        before: Some(before),
        after: None,
    }
}

fn granted<'a>(
    settings: &'a Settings,
    asker: &'a SettingRequester,
) -> impl Iterator<Item = &'a Grant> {
    let named = |grant: &&Grant| asker.names.iter().any(|name| name == grant.user.as_str());
    settings.grants().filter(named)
}

fn may_change_all(settings: &Settings, asker: &SettingRequester) -> Result<(), SettingRefusal> {
    match may_configure(settings, asker) {
        true => Ok(()),
        false => Err(SettingRefusal::NotAdministrator),
    }
}

fn manages(settings: &Settings, asker: &SettingRequester, storage: &StorageId) -> bool {
    granted(settings, asker).any(|grant| {
        grant.operation == Operation::Config && grant.storage.as_ref() == Some(storage)
    })
}

fn may_change_link(
    settings: &Settings,
    asker: &SettingRequester,
    ends: &LinkId,
) -> Result<(), SettingRefusal> {
    let (source, destination) = (&ends.source, &ends.destination);
    match may_configure(settings, asker)
        || manages(settings, asker, source)
        || manages(settings, asker, destination)
    {
        true => Ok(()),
        false => Err(SettingRefusal::NotManagerOfEnd(
            source.clone(),
            destination.clone(),
        )),
    }
}

fn may_change_storage(
    settings: &Settings,
    asker: &SettingRequester,
    storage: &StorageId,
) -> Result<(), SettingRefusal> {
    match may_configure(settings, asker) || manages(settings, asker, storage) {
        true => Ok(()),
        false => Err(SettingRefusal::NotManager(storage.clone())),
    }
}
