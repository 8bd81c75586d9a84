//! The storage element's ledger: what doors tell it of changes and refusals, and what it tells after a restart.

use crate::site::{Site, check, eventually};
use penstock_model::observation::EntryChange;
use penstock_persistence::namespace::{ElementEvent, ElementRecord, GapCause, Refusal};
use penstock_storage_element::Storage;
use std::time::Duration;

fn ledger(storage: &Storage) -> Vec<ElementRecord> {
    let (mut all, mut last) = (Vec::new(), 0);
    loop {
        let some = storage.namespace().ledger_after(last).expect("readable");
        let Some((newest, _)) = some.last() else {
            return all;
        };
        last = *newest;
        all.extend(some.into_iter().map(|(_, record)| record));
    }
}

fn changes(site: &Site) -> Vec<(EntryChange, String, ElementRecord)> {
    let told = ledger(&site.storage).into_iter();
    let told = told.filter_map(|record| match &record.event {
        ElementEvent::Changed(changed) => {
            let path = changed.path.as_ref().map(ToString::to_string);
            Some((changed.kind, path.unwrap_or_default(), record))
        }
        ElementEvent::Refused(_) | ElementEvent::Gap(_) => None,
    });
    told.collect()
}

fn refusals(site: &Site) -> Vec<(Refusal, ElementRecord)> {
    let told = ledger(&site.storage).into_iter();
    let told = told.filter_map(|record| match &record.event {
        ElementEvent::Refused(refusal) => Some((refusal.clone(), record)),
        ElementEvent::Changed(_) | ElementEvent::Gap(_) => None,
    });
    told.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_that_a_client_makes_is_told_with_who_it_was() {
    use EntryChange as C;
    let site = Site::new().await;
    let names = [("x-request-id", "7-1-1"), ("scitag", "66")];
    check(&site, "PUT", "/d/f", &names, 201).await;
    check(&site, "PUT", "/d/f", &names, 204).await;
    check(&site, "MKCOL", "/e", &names, 201).await;
    let to_e = [names[0], names[1], ("destination", "/e/f")];
    check(&site, "MOVE", "/d/f", &to_e, 201).await;
    // With a number of SciTags it would be a third-party copy.
    let to_c = [names[0], ("destination", "/c")];
    check(&site, "COPY", "/e", &to_c, 201).await;
    check(&site, "DELETE", "/e", &names, 204).await;
    let changes = changes(&site);
    let told: Vec<_> = changes
        .iter()
        .map(|(kind, path, _)| (*kind, path.as_str()))
        .filter(|(kind, _)| *kind != C::Purge)
        .collect();
    let expected = [
        (C::DirectoryCreation, "/d"),
        (C::Creation, "/d/f"),
        (C::Removal, "/d/f"),
        (C::Replacement, "/d/f"),
        (C::DirectoryCreation, "/e"),
        (C::Rename, "/d/f"),
        (C::DirectoryCreation, "/c"),
        (C::Creation, "/c/f"),
        (C::Removal, "/e/f"),
        (C::DirectoryRemoval, "/e"),
    ];
    assert_eq!(told, expected);
    for (kind, path, record) in changes.iter().filter(|(kind, ..)| *kind != C::Purge) {
        let origin = &record.origin;
        let user = origin.user.as_ref().map(|user| user.as_str());
        assert!(user.is_some_and(|user| user.contains("alice")), "{path}");
        let names = (origin.copy.as_deref(), origin.challenge.as_deref());
        let challenge = (!path.starts_with("/c")).then_some("scitag:66");
        assert_eq!(names, (Some("7-1-1"), challenge), "{kind:?} {path}");
        let client = origin.client.as_deref().unwrap_or_default();
        assert!(client.starts_with("127.0.0.1:"), "{client}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_leaves_the_trash_is_told_with_the_reason() {
    let site = Site::with(|config| config.limits.trash = Duration::ZERO).await;
    site.put("/f", b"bytes").await;
    check(&site, "DELETE", "/f", &[], 204).await;
    let purged = || {
        let told = changes(&site).into_iter();
        let mut told = told.filter(|(kind, ..)| *kind == EntryChange::Purge);
        told.next()
    };
    eventually("its data is removed", || purged().is_some()).await;
    let (_, path, record) = purged().expect("there");
    let ElementEvent::Changed(changed) = &record.event else {
        panic!("a change");
    };
    let reason = changed.reason.map(|reason| reason.word());
    assert_eq!((path.as_str(), reason), ("/f", Some("trash_expired")));
    assert_eq!(changed.size.map(|size| size.0), Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_told_and_questions_for_what_is_not_there_are_not() {
    let site = Site::new().await;
    site.put("/d/f", b"bytes").await;
    assert_eq!(site.status("GET", "/none").await, 404);
    let reads = site.token("storage.read:/");
    let bearer = format!("Bearer {reads}");
    let denied = [
        ("authorization", bearer.as_str()),
        ("x-request-id", "7-2-1"),
    ];
    let denied = site.send_bare("DELETE", "/d/f", &denied, b"").await;
    assert_eq!(denied.status, 403);
    check(&site, "PUT", "/d/f", &[("if-none-match", "*")], 412).await;
    check(&site, "PUT", "/d/f/below", &[], 409).await;
    let unknown = site.send_bare("PUT", "/d/g", &[], b"x").await;
    assert_eq!(unknown.status, 401);
    eventually("they are recorded", || refusals(&site).len() == 4).await;
    let refusals = refusals(&site);
    let told: Vec<_> = refusals
        .iter()
        .map(|(refusal, _)| (refusal.method.as_str(), refusal.status))
        .collect();
    assert_eq!(
        told,
        [("DELETE", 403), ("PUT", 412), ("PUT", 409), ("PUT", 401)]
    );
    let (refusal, record) = &refusals[0];
    assert_eq!(refusal.path, Some(crate::site::path("/d/f")));
    assert!(record.origin.user.is_some() && !refusal.detail.is_empty());
    assert_eq!(record.origin.copy.as_deref(), Some("7-2-1"));
    let secret = refusals
        .iter()
        .any(|(refusal, _)| refusal.detail.contains(&reads));
    assert!(!secret && refusals[3].1.origin.user.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_refusals_is_counted_beyond_a_bound_as_a_gap() {
    let site = Site::new().await;
    let asked = 2_300;
    for _ in 0..asked {
        let refused = site.send_bare("PUT", "/f", &[], b"").await;
        assert_eq!(refused.status, 401);
    }
    let lost = || {
        let told = ledger(&site.storage).into_iter();
        let lost = told.filter_map(|record| match record.event {
            ElementEvent::Gap(gap) => {
                assert_eq!(gap.cause, GapCause::Overload);
                gap.lost
            }
            ElementEvent::Changed(_) | ElementEvent::Refused(_) => None,
        });
        lost.sum::<u64>()
    };
    let all = || refusals(&site).len() as u64 + lost();
    eventually("all are told or counted", || all() == asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_end_leaves_no_gap_and_another_one_does() {
    let site = Site::new().await;
    site.put("/f", b"bytes").await;
    let gaps = |storage: &Storage| {
        let told = ledger(storage).into_iter();
        let gaps = told.filter_map(|record| match record.event {
            ElementEvent::Gap(gap) => Some((gap.cause, gap.from, record.at)),
            ElementEvent::Changed(_) | ElementEvent::Refused(_) => None,
        });
        gaps.collect::<Vec<_>>()
    };
    let site = site.reopen(|_| {}).await;
    assert_eq!(gaps(&site.storage), []);
    site.put("/g", b"bytes").await;
    let state = site.directory.path().join("state");
    // As if the machine had failed: what is there goes on without the end of the run.
    let copy = tempfile::tempdir().expect("a directory");
    for name in ["namespace.sqlite", "namespace.sqlite-wal"] {
        std::fs::copy(state.join(name), copy.path().join(name)).expect("copied");
    }
    let directory = site.close().await;
    for name in ["namespace.sqlite", "namespace.sqlite-wal"] {
        let to = directory.path().join("state").join(name);
        std::fs::copy(copy.path().join(name), to).expect("put back");
    }
    let site = Site::again(directory, |_| {}).await;
    let gaps = gaps(&site.storage);
    let [(GapCause::Crash, Some(from), until)] = gaps[..] else {
        panic!("one gap: {gaps:?}");
    };
    assert!(from <= until);
}
