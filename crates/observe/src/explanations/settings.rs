//! What operators set and ban, as changes that may explain a rate.

use penstock_decide::explain::signals::{Change, SERVICE_PLACE, Setting};
use penstock_model::{
    ANY, Ban, BanChange, LinkId, LinkRule, Rate, Setting as SettingValue, SettingChange,
    SettingKey, Slots, StorageId, StorageRule,
};

/// The value of one property before and after.
type Property = (Setting, Option<String>, Option<String>);

/// What a change of a setting changed of that on which rates of these links depend: limits and drains. A rate limit of a
/// storage element is told at each link that it limits.
pub(super) fn setting_changes(change: &SettingChange, links: &[LinkId]) -> Vec<Change> {
    use Setting::{InboundLimit, Limit, OutboundLimit};
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let (places, properties) = match &change.key {
        SettingKey::Link(_) => {
            let (before, after) = (link_rule(before), link_rule(after));
            let ends = after.or(before).map(|rule| &rule.ends);
            let of_rule = links
                .iter()
                .filter(|link| ends.is_some_and(|ends| covers(ends, link)));
            let limit = |rule: &LinkRule| Some(rule.slots_max);
            let properties = [
                limits(Limit, before.and_then(limit), after.and_then(limit)),
                rate_limits(
                    before.and_then(|rule| rule.rate_max),
                    after.and_then(|rule| rule.rate_max),
                ),
                drains(
                    before.is_some_and(|rule| rule.is_draining),
                    after.is_some_and(|rule| rule.is_draining),
                ),
            ];
            (
                of_rule.map(ToString::to_string).collect(),
                properties.to_vec(),
            )
        }
        SettingKey::Storage(storage) => {
            let (before, after) = (storage_rule(before), storage_rule(after));
            let limit = |setting, side: fn(&StorageRule) -> Option<Slots>| {
                limits(setting, before.and_then(side), after.and_then(side))
            };
            let properties = [
                limit(InboundLimit, |rule| rule.inbound_max),
                limit(OutboundLimit, |rule| rule.outbound_max),
                drains(
                    before.is_some_and(|rule| rule.is_draining),
                    after.is_some_and(|rule| rule.is_draining),
                ),
            ];
            (vec![storage.as_str().to_owned()], properties.to_vec())
        }
        SettingKey::Drain => {
            let properties = vec![drains(before.is_some(), after.is_some())];
            (vec![SERVICE_PLACE.to_owned()], properties)
        }
        SettingKey::VoShare(..)
        | SettingKey::ActivityShares(_)
        | SettingKey::Defaults(_)
        | SettingKey::Grant(_)
        | SettingKey::CloudStorage(_)
        | SettingKey::CloudKey(..)
        | SettingKey::Mute(_) => (Vec::new(), Vec::new()),
    };
    let told = |place: &String, (setting, old, new): &Property| Change {
        at: change.at,
        who: change.user.as_str().to_owned(),
        place: place.clone(),
        setting: *setting,
        old: old.clone(),
        new: new.clone(),
    };
    let of_places = properties.iter().flat_map(|property| {
        let places = places.iter();
        places.map(move |place: &String| told(place, property))
    });
    let of_storage = storage_rate_limits(change, links);
    let of_links = of_storage
        .iter()
        .map(|(link, property)| told(&link.to_string(), property));
    let all = of_places.chain(of_links);
    all.filter(|change| change.old != change.new).collect()
}

/// What may be written to a storage element and read from it, at each link that has it as that end.
fn storage_rate_limits<'a>(
    change: &SettingChange,
    links: &'a [LinkId],
) -> Vec<(&'a LinkId, Property)> {
    let SettingKey::Storage(storage) = &change.key else {
        return Vec::new();
    };
    let (before, after) = (
        storage_rule(change.before.as_ref()),
        storage_rule(change.after.as_ref()),
    );
    let limit = |side: fn(&StorageRule) -> Option<Rate>| {
        rate_limits(before.and_then(side), after.and_then(side))
    };
    let (inbound, outbound) = (
        limit(|rule| rule.inbound_rate_max),
        limit(|rule| rule.outbound_rate_max),
    );
    let is_it = |id: &StorageId| storage.as_str() == ANY || storage == id;
    let of_link = |link: &'a LinkId| {
        let inbound = is_it(&link.destination).then(|| (link, inbound.clone()));
        let outbound = is_it(&link.source).then(|| (link, outbound.clone()));
        inbound.into_iter().chain(outbound)
    };
    links.iter().flat_map(of_link).collect()
}

fn rate_limits(before: Option<Rate>, after: Option<Rate>) -> Property {
    let text = |rate: Option<Rate>| rate.map(|rate| rate.to_string());
    (Setting::RateLimit, text(before), text(after))
}

fn limits(setting: Setting, before: Option<Slots>, after: Option<Slots>) -> Property {
    let text = |slots: Option<Slots>| slots.map(|slots| slots.0.to_string());
    (setting, text(before), text(after))
}

fn drains(before: bool, after: bool) -> Property {
    let text = |is_draining: bool| is_draining.then(|| "drained".to_owned());
    (Setting::Drain, text(before), text(after))
}

fn link_rule(setting: Option<&SettingValue>) -> Option<&LinkRule> {
    match setting {
        Some(SettingValue::Link(rule)) => Some(rule),
        _ => None,
    }
}

fn storage_rule(setting: Option<&SettingValue>) -> Option<&StorageRule> {
    match setting {
        Some(SettingValue::Storage(rule)) => Some(rule),
        _ => None,
    }
}

fn covers(pattern: &LinkId, link: &LinkId) -> bool {
    let end = |pattern: &StorageId, id: &StorageId| pattern.as_str() == ANY || pattern == id;
    end(&pattern.source, &link.source) && end(&pattern.destination, &link.destination)
}

/// A ban of a storage element; those of users hold up no link.
pub(super) fn ban_change(change: &BanChange) -> Option<Change> {
    let storage = |ban: &Option<Ban>| match ban {
        Some(Ban::Storage(ban)) => Some(ban.storage.as_str().to_owned()),
        Some(Ban::User(_)) | None => None,
    };
    let banned = |ban: &Option<Ban>| ban.as_ref().map(|_| "banned".to_owned());
    Some(Change {
        at: change.at,
        who: change.by.as_str().to_owned(),
        place: storage(&change.after).or_else(|| storage(&change.before))?,
        setting: Setting::Ban,
        old: banned(&change.before),
        new: banned(&change.after),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Timestamp, UserName};

    fn link(source: &str, destination: &str) -> LinkId {
        LinkId {
            source: StorageId::new(source),
            destination: StorageId::new(destination),
        }
    }

    fn rule(max: u32, is_draining: bool) -> SettingValue {
        SettingValue::Link(LinkRule {
            name: "in".into(),
            ends: link(ANY, "https://b"),
            slots_min: Slots(1),
            slots_max: Slots(max),
            tuning: None,
            mode: None,
            rate_max: None,
            is_draining,
        })
    }

    fn told(key: SettingKey, before: Option<SettingValue>, after: Option<SettingValue>) -> String {
        let change = SettingChange {
            at: Timestamp(1_000),
            user: UserName::new("root"),
            action: "link".into(),
            key,
            before,
            after,
        };
        let links = [
            link("https://a", "https://b"),
            link("https://b", "https://a"),
        ];
        let told = setting_changes(&change, &links);
        let lines: Vec<String> = told
            .iter()
            .map(penstock_decide::wording::setting_change)
            .collect();
        lines.join("\n")
    }

    #[test]
    fn a_rule_is_told_at_each_link_that_it_covers_and_only_what_it_changed() {
        let key = || SettingKey::Link("in".into());
        assert_eq!(
            told(key(), Some(rule(30, false)), Some(rule(45, false))),
            "1970-01-01T00:00:01Z limit at https://a → https://b: 45 instead of 30, by root"
        );
        assert_eq!(
            told(key(), Some(rule(30, false)), Some(rule(30, true))),
            "1970-01-01T00:00:01Z drain at https://a → https://b: drained instead of none, by root"
        );
        assert_eq!(
            told(key(), Some(rule(30, false)), Some(rule(30, false))),
            ""
        );
    }

    #[test]
    fn a_rate_limit_of_a_storage_element_is_told_at_the_links_that_it_limits() {
        let storage = StorageId::new("https://b");
        let rule = |inbound: Option<u64>| {
            SettingValue::Storage(StorageRule {
                inbound_rate_max: inbound.map(Rate),
                ..StorageRule::new(storage.clone())
            })
        };
        let key = SettingKey::Storage(storage.clone());
        assert_eq!(
            told(key.clone(), None, Some(rule(Some(2_000_000)))),
            "1970-01-01T00:00:01Z rate limit at https://a → https://b: 2.0 MB/s instead of none, by root"
        );
        assert_eq!(
            told(key, Some(rule(Some(2_000_000))), Some(rule(None))),
            "1970-01-01T00:00:01Z rate limit at https://a → https://b: none instead of 2.0 MB/s, by root"
        );
    }

    #[test]
    fn limits_of_a_storage_element_are_told_with_their_direction() {
        let storage = StorageId::new("https://b");
        let rule = |inbound: Option<u32>, outbound: Option<u32>| {
            SettingValue::Storage(StorageRule {
                inbound_max: inbound.map(Slots),
                outbound_max: outbound.map(Slots),
                ..StorageRule::new(storage.clone())
            })
        };
        let key = SettingKey::Storage(storage.clone());
        assert_eq!(
            told(
                key,
                Some(rule(Some(20), None)),
                Some(rule(Some(5), Some(7)))
            ),
            "1970-01-01T00:00:01Z inbound limit at https://b: 5 instead of 20, by root\n\
             1970-01-01T00:00:01Z outbound limit at https://b: 7 instead of none, by root"
        );
    }

    #[test]
    fn a_drained_service_is_told_at_the_service() {
        assert_eq!(
            told(SettingKey::Drain, None, Some(SettingValue::Drain)),
            "1970-01-01T00:00:01Z drain at the transfer service: drained instead of none, by root"
        );
    }
}
