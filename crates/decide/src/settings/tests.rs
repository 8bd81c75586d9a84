//! Who may change what, and which limit counts.

use super::*;
use penstock_model::{CloudStorage, SettingChange, Timestamp, UserName};

fn admin() -> SettingRequester {
    SettingRequester {
        names: vec!["/CN=Admin".into()],
        is_admin: true,
    }
}

fn user(name: &str) -> SettingRequester {
    SettingRequester {
        names: vec![name.into()],
        is_admin: false,
    }
}

fn storage(name: &str) -> StorageId {
    StorageId::new(name)
}

fn slots(outbound: u32, inbound: u32) -> StorageSlots {
    StorageSlots {
        outbound: Slots(outbound),
        inbound: Slots(inbound),
    }
}

fn ends(text: &str) -> LinkId {
    let (source, destination) = text.split_once('→').expect("a→b");
    LinkId {
        source: storage(source),
        destination: storage(destination),
    }
}

fn link(name: &str, of: &str, slots_max: u32) -> SettingRequest {
    let LinkId {
        source,
        destination,
    } = ends(of);
    SettingRequest::SetLink(LinkRuleRequest {
        name: name.into(),
        source: Some(source),
        destination: Some(destination),
        slots_max: Some(Slots(slots_max)),
        ..LinkRuleRequest::default()
    })
}

fn about(name: &str) -> StorageRuleRequest {
    StorageRuleRequest::new(storage(name))
}

fn grant(user: &str, of: Option<&str>) -> SettingRequest {
    SettingRequest::Grant(Grant {
        user: UserName::new(user),
        operation: Operation::Config,
        storage: of.map(storage),
    })
}

fn revoke(user: &str, of: Option<&str>) -> SettingRequest {
    SettingRequest::Revoke(RevokedGrants {
        user: user.into(),
        operation: None,
        storage: of.map(storage),
    })
}

fn retries(vo: &str, retries_max: Option<u32>) -> VoDefaultsRequest {
    VoDefaultsRequest {
        vo: VoName::new(vo),
        retries_max: Some(retries_max),
        queue_hours_max: None,
    }
}

/// Grants the wish, as the engine does.
fn make(
    settings: &mut Settings,
    asker: &SettingRequester,
    wish: SettingRequest,
) -> Result<usize, SettingRefusal> {
    let planned = plan(settings, asker, &wish)?;
    for change in &planned {
        settings.apply(&SettingChange {
            at: Timestamp(1),
            user: UserName::new("x"),
            action: change.action.into(),
            key: change.key.clone(),
            before: change.before.clone(),
            after: change.after.clone(),
        });
    }
    Ok(planned.len())
}

fn of(wishes: impl IntoIterator<Item = SettingRequest>) -> Settings {
    let mut settings = Settings::default();
    for wish in wishes {
        make(&mut settings, &admin(), wish).expect("an administrator may");
    }
    settings
}

#[test]
fn a_change_knows_what_was_before_and_what_is_so_already_changes_nothing() {
    let mut settings = of([link("x", "a→b", 5)]);
    let Ok(planned) = plan(&settings, &admin(), &link("x", "a→b", 7)) else {
        panic!("an administrator may")
    };
    let slots = |setting: &Option<Setting>| match setting {
        Some(Setting::Link(rule)) => Some(rule.slots_max.0),
        _ => None,
    };
    assert_eq!(planned.len(), 1);
    assert_eq!(
        (slots(&planned[0].before), slots(&planned[0].after)),
        (Some(5), Some(7))
    );
    assert_eq!(make(&mut settings, &admin(), link("x", "a→b", 5)), Ok(0));
    assert_eq!(
        make(
            &mut settings,
            &admin(),
            SettingRequest::RemoveLink("y".into())
        ),
        Ok(0)
    );
}

#[test]
fn what_is_not_said_of_a_rule_stays() {
    let mut settings = of([link("x", "a→b", 5)]);
    let wish = LinkRuleRequest {
        name: "x".into(),
        slots_min: Some(Slots(3)),
        ..LinkRuleRequest::default()
    };
    make(&mut settings, &admin(), SettingRequest::SetLink(wish)).expect("valid");
    let rule = settings.link("x").expect("set");
    assert_eq!(rule.ends, ends("a→b"));
    assert_eq!((rule.slots_min, rule.slots_max), (Slots(3), Slots(5)));
    let refused = make(&mut settings, &admin(), link("x", "a→b", 2));
    assert_eq!(
        refused,
        Ok(1),
        "a minimum that would be in the way gives way unless it is said"
    );
    let wish = LinkRuleRequest {
        name: "x".into(),
        slots_min: Some(Slots(9)),
        ..LinkRuleRequest::default()
    };
    let refused = make(&mut settings, &admin(), SettingRequest::SetLink(wish));
    assert_eq!(refused, Err(SettingRefusal::MaxBelowMin));
}

#[test]
fn two_rules_for_the_same_links_are_refused() {
    let mut settings = of([link("x", "a→*", 5)]);
    let refused = make(&mut settings, &admin(), link("y", "a→*", 6));
    assert!(matches!(refused, Err(SettingRefusal::PatternTaken { name, .. }) if name == "x"));
    assert_eq!(
        make(&mut settings, &admin(), link("x", "a→b", 6)),
        Ok(1),
        "it moves"
    );
    assert_eq!(
        make(&mut settings, &admin(), link("y", "a→*", 6)),
        Ok(1),
        "and makes room"
    );
}

#[test]
fn nobody_changes_anything_without_a_grant() {
    let wishes = [
        link("x", "a→b", 5),
        SettingRequest::RemoveLink("known".into()),
        SettingRequest::SetStorages(vec![about("a")]),
        SettingRequest::RemoveStorage(storage("a")),
        grant("/CN=Eve", None),
        revoke("/CN=Bob", None),
        SettingRequest::SetDefaults(retries("cms", Some(5))),
        SettingRequest::RemoveDefaults(VoName::new("*")),
        SettingRequest::Drain(true),
    ];
    let settings = of([link("known", "a→c", 5), grant("/CN=Bob", None)]);
    for wish in &wishes {
        assert!(plan(&settings, &user("/CN=Eve"), wish).is_err(), "{wish:?}");
        plan(&settings, &user("/CN=Bob"), wish).expect("Bob was granted everything");
    }
    assert!(may_look(&settings, &user("/CN=Bob")) && !may_look(&settings, &user("/CN=Eve")));
}

#[test]
fn a_manager_changes_the_storage_element_and_the_links_at_either_end() {
    let mut settings = of([grant("/CN=Bob", Some("a")), link("foreign", "b→c", 5)]);
    let bob = user("/CN=Bob");
    let mut may = |wish: SettingRequest| make(&mut settings, &bob, wish).is_ok();
    assert!(may(link("out", "a→b", 5)));
    assert!(may(link("in", "b→a", 5)));
    assert!(may(link("all", "a→*", 5)));
    assert!(may(SettingRequest::SetStorages(vec![about("a")])));
    assert!(may(SettingRequest::RemoveLink("in".into())));
    assert!(!may(link("any", "*→*", 5)));
    assert!(
        !may(link("foreign", "a→c", 5)),
        "taking another's rule over"
    );
    assert!(
        !may(link("out", "b→c", 5)),
        "moving the own rule to others' links"
    );
    assert!(!may(SettingRequest::RemoveLink("foreign".into())));
    assert!(
        !may(SettingRequest::SetStorages(vec![about("a"), about("b")])),
        "all or nothing"
    );
    assert!(!may(SettingRequest::SetStorages(vec![about("*")])));
    assert!(!may(grant("/CN=Bob", None)), "managers make no managers");
    assert!(!may(SettingRequest::Drain(true)));
}

#[test]
fn what_is_taken_back_counts_no_more() {
    let mut settings = of([grant("/CN=Bob", Some("a")), grant("/CN=Bob", Some("b"))]);
    assert_eq!(
        make(&mut settings, &admin(), revoke("/CN=Bob", Some("a"))),
        Ok(1)
    );
    let bob = user("/CN=Bob");
    assert!(
        make(
            &mut settings,
            &bob,
            SettingRequest::SetStorages(vec![about("a")])
        )
        .is_err()
    );
    assert!(
        make(
            &mut settings,
            &bob,
            SettingRequest::SetStorages(vec![about("b")])
        )
        .is_ok()
    );
    assert_eq!(
        make(&mut settings, &admin(), revoke("/CN=Bob", None)),
        Ok(1)
    );
    assert!(!may_look(&settings, &bob));
}

#[test]
fn a_pattern_that_is_set_replaces_the_file_s_and_the_most_specific_one_counts() {
    let file = SlotLimits {
        link: Slots(50),
        links: [(ends("a→b"), Slots(10)), (ends("a→c"), Slots(11))].into(),
        ..SlotLimits::default()
    };
    let settings = of([
        link("1", "a→b", 20),
        link("2", "*→*", 30),
        link("3", "*→d", 40),
    ]);
    let limits = slots_in_effect(&file, &settings);
    let mut scheduler = crate::scheduler::Scheduler::new(limits);
    let mut check = |of: &str, expected: u32| {
        scheduler.halt(&ends(of), penstock_model::WaitReason::Starting);
        let view = scheduler.links().find(|view| view.link == ends(of));
        assert_eq!(view.expect("seen").limit, Slots(expected), "{of}");
    };
    check("a→b", 20);
    check("a→c", 11);
    check("a→d", 40);
    check("a→e", 30);
}

#[test]
fn rates_and_draining_of_storage_elements_reach_the_scheduler_and_are_taken_back() {
    let mut a = about("a");
    a.inbound_rate_max = Some(Some(penstock_model::Rate(5)));
    a.is_draining = Some(true);
    let mut settings = of([SettingRequest::SetStorages(vec![a])]);
    let limits = slots_in_effect(&SlotLimits::default(), &settings);
    let a = penstock_model::StorageId::new("a");
    assert_eq!(limits.rates.inbound.get(&a), Some(&penstock_model::Rate(5)));
    assert!(limits.draining.storages.contains(&a) && limits.rates.outbound.is_empty());
    let mut back = about("a");
    back.inbound_rate_max = Some(None);
    back.is_draining = Some(false);
    make(
        &mut settings,
        &admin(),
        SettingRequest::SetStorages(vec![back]),
    )
    .expect("may");
    let limits = slots_in_effect(&SlotLimits::default(), &settings);
    assert!(limits.rates.inbound.is_empty() && limits.draining.storages.is_empty());
}

#[test]
fn the_rate_and_the_draining_of_a_link_reach_the_scheduler_and_are_taken_back() {
    let wish = |rate_max, is_draining| LinkRuleRequest {
        name: "a-b".into(),
        source: Some(storage("a")),
        destination: Some(storage("b")),
        rate_max: Some(rate_max),
        is_draining: Some(is_draining),
        ..LinkRuleRequest::default()
    };
    let rate = penstock_model::Rate(5);
    let mut settings = of([SettingRequest::SetLink(wish(Some(rate), true))]);
    let limits = slots_in_effect(&SlotLimits::default(), &settings);
    assert_eq!(limits.rates.links.get(&ends("a→b")), Some(&rate));
    assert!(limits.draining.links.contains(&ends("a→b")));
    let back = SettingRequest::SetLink(wish(None, false));
    make(&mut settings, &admin(), back).expect("may");
    let limits = slots_in_effect(&SlotLimits::default(), &settings);
    assert!(limits.rates.links.is_empty() && limits.draining.links.is_empty());
}

#[test]
fn what_is_set_for_a_storage_element_counts_before_what_is_set_for_all() {
    let file = SlotLimits {
        storage_outbound: Slots(100),
        storage_inbound: Slots(200),
        ..SlotLimits::default()
    };
    let mut any = about("*");
    any.outbound_max = Some(Some(Slots(5)));
    let mut a = about("a");
    a.inbound_max = Some(Some(Slots(7)));
    let mut settings = of([SettingRequest::SetStorages(vec![any, a])]);
    let limits = slots_in_effect(&file, &settings);
    assert_eq!(limits.storages[&storage("a")], slots(5, 7));
    assert_eq!(
        (limits.storage_outbound, limits.storage_inbound),
        (Slots(5), Slots(200))
    );
    let mut back = about("a");
    back.inbound_max = Some(None);
    make(
        &mut settings,
        &admin(),
        SettingRequest::SetStorages(vec![back]),
    )
    .expect("may");
    let limits = slots_in_effect(&file, &settings);
    assert_eq!(limits.storages[&storage("a")], slots(5, 200));
}

#[test]
fn what_is_set_for_a_vo_counts_before_what_is_set_for_all() {
    let mut hours = retries("*", Some(2));
    hours.queue_hours_max = Some(Some(24));
    let mut settings = of([
        SettingRequest::SetDefaults(hours),
        SettingRequest::SetDefaults(retries("cms", Some(5))),
    ]);
    let both = |settings: &Settings, vo: &str| {
        let found = defaults_in_effect(settings, &VoName::new(vo));
        (found.retries_max, found.queue_hours_max)
    };
    assert_eq!(both(&settings, "cms"), (Some(5), Some(24)));
    assert_eq!(both(&settings, "atlas"), (Some(2), Some(24)));
    let wish = SettingRequest::RemoveDefaults(VoName::new("cms"));
    make(&mut settings, &admin(), wish).expect("may");
    assert_eq!(both(&settings, "cms"), (Some(2), Some(24)));
}

#[test]
fn a_grant_of_another_operation_changes_no_settings() {
    let transfer = SettingRequest::Grant(Grant {
        user: UserName::new("/CN=Bob"),
        operation: Operation::Transfer,
        storage: None,
    });
    let settings = of([transfer]);
    assert!(!may_look(&settings, &user("/CN=Bob")));
    assert!(plan(&settings, &user("/CN=Bob"), &SettingRequest::Drain(true)).is_err());
}

fn cloud(name: &str) -> CloudStorage {
    CloudStorage {
        name: CloudName::parse(name).expect("valid"),
        region: None,
    }
}

fn cloud_key(name: &str, vo: &str) -> CloudKey {
    CloudKey {
        storage: CloudName::parse(name).expect("valid"),
        holder: penstock_model::CloudHolder::Vo(VoName::new(vo)),
        access_key: "AKIA".into(),
        secret: penstock_model::CredentialId::new("1"),
        is_temporary: false,
    }
}

#[test]
fn keys_need_their_cloud_storage_and_go_with_it() {
    let key = |vo| SettingRequest::SetCloudKey(cloud_key("S3:A", vo));
    let mut settings = Settings::default();
    let refused = make(&mut settings, &admin(), key("dteam"));
    assert_eq!(
        refused,
        Err(SettingRefusal::NoCloudStorage(cloud("S3:A").name))
    );
    let mut settings = of([
        SettingRequest::SetCloudStorage(cloud("S3:A")),
        key("dteam"),
        key("cms"),
    ]);
    let forget = SettingRequest::RemoveCloudKeys(cloud("S3:A").name, "cms".into());
    assert_eq!(make(&mut settings, &admin(), forget), Ok(1));
    let remove = SettingRequest::RemoveCloudStorage(cloud("S3:A").name);
    assert_eq!(make(&mut settings, &admin(), remove), Ok(2));
    assert_eq!(settings.count(), 0);
}

#[test]
fn only_who_may_change_everything_may_change_keys() {
    let settings = of([
        grant("/CN=Manager", Some("s3s://a")),
        SettingRequest::SetCloudStorage(cloud("S3:A")),
    ]);
    let manager = user("/CN=Manager");
    for wish in [
        SettingRequest::SetCloudStorage(cloud("S3:B")),
        SettingRequest::SetCloudKey(cloud_key("S3:A", "dteam")),
        SettingRequest::RemoveCloudStorage(cloud("S3:A").name),
        SettingRequest::RemoveCloudKeys(cloud("S3:A").name, "dteam".into()),
    ] {
        let refused = plan(&settings, &manager, &wish);
        assert_eq!(refused, Err(SettingRefusal::NotAdministrator), "{wish:?}");
    }
}
