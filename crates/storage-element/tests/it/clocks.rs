//! A clock that is behind or ahead of what the last run wrote down: what is removed then keeps its time in the trash, and
//! what has a term does not end.

use crate::site::{Response, Site, check, path};
use penstock_model::{Bytes, NamespacePath, Timestamp};
use penstock_persistence::namespace::{
    Change, MoverKind, MoverOutcome, MoverRecord, Namespace, TrashQuery,
};
use penstock_storage_element::StorageConfig;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: Duration = Duration::from_secs(86_400);
const LOCK: &[u8] = b"<d:lockinfo xmlns:d='DAV:'><d:lockscope><d:exclusive/></d:lockscope>\
    <d:locktype><d:write/></d:locktype></d:lockinfo>";

fn wall() -> Timestamp {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp(0) + passed.expect("after 1970")
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp(at.0 - by.as_millis() as i64)
}

fn with_trash(config: &mut StorageConfig) {
    config.limits.trash = Duration::from_secs(3600);
}

/// As if the last run had ended at that time.
fn set_newest_record(directory: &Path, at: Timestamp) {
    let namespace = Namespace::open(&directory.join("state/namespace.sqlite")).expect("opens");
    let record = MoverRecord {
        at,
        kind: MoverKind::Get,
        path: NamespacePath::root(),
        peer: String::new(),
        copy: None,
        challenge: None,
        file_size: None,
        user: None,
        vo: None,
        pool: None,
        moved: Bytes(0),
        duration_us: 0,
        stages: Default::default(),
        tcp: None,
        selection: Default::default(),
        outcome: MoverOutcome::Done,
    };
    let recorded = namespace.apply(Change::RecordMovers(vec![record]));
    recorded.expect("recorded");
}

/// The same site, started after a run that ended at that time.
async fn after_a_run_until(site: Site, at: Timestamp) -> Site {
    let directory = site.close().await;
    set_newest_record(directory.path(), at);
    Site::again(directory, with_trash).await
}

async fn lock(site: &Site, path: &str) -> Response {
    site.send("LOCK", path, &[("timeout", "Second-600")], LOCK)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_while_the_clock_is_behind_keeps_its_time_when_the_clock_is_set_right() {
    let site = Site::with(with_trash).await;
    for path in ["/a", "/b", "/c", "/moved", "/copied/f", "/d/g"] {
        site.put(path, b"x").await;
    }
    let right = wall() + 2 * DAY;
    let site = after_a_run_until(site, right).await;
    check(&site, "DELETE", "/a", &[], 204).await;
    check(&site, "PUT", "/b", &[], 204).await;
    check(&site, "MOVE", "/moved", &[("destination", "/c")], 204).await;
    check(&site, "COPY", "/d", &[("destination", "/copied")], 204).await;
    let mut by_path = BTreeMap::new();
    let trash = site.storage.namespace().trash(&TrashQuery::default(), 10);
    for file in trash.expect("readable") {
        by_path.insert(file.path.to_string(), file.removed);
    }
    let names: Vec<&str> = by_path.keys().map(String::as_str).collect();
    assert_eq!(names, ["/a", "/b", "/c", "/copied/f"]);
    for (path, removed) in by_path {
        assert!(removed >= right, "{path}: {removed:?}, right is {right:?}");
    }
    assert_eq!(lock(&site, "/b").await.status, 200);
    let locks = site.storage.namespace().locks().expect("readable");
    let ends = locks.first().expect("kept").expires;
    assert!(ends.since(right) >= Duration::from_secs(600), "{ends:?}");
    let answer = lock(&site, "/d/g").await;
    let text = answer.text();
    assert!(
        text.contains("Second-600") || text.contains("Second-599"),
        "{text}"
    );
    let begun = site
        .send("PUT", "/u", &[("upload-complete", "?0")], b"")
        .await;
    let age = begun.header("upload-limit").strip_prefix("max-age=");
    let age: u64 = age.expect("told").parse().expect("a number");
    assert!(age < 8 * 86_400, "{age}");
    // The next start of this run's clock is held against the right time as well.
    let directory = site.close().await;
    let namespace = Namespace::open(&directory.path().join("state/namespace.sqlite"));
    let newest = namespace.expect("opens").newest_record().expect("readable");
    assert!(newest.expect("recorded") >= right);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_into_quarantine_while_the_clock_is_behind_keeps_its_time_when_the_clock_is_set_right()
 {
    let site = Site::with(with_trash).await;
    site.put("/f", b"x").await;
    let directory = site.close().await;
    let right = wall() + 2 * DAY;
    set_newest_record(directory.path(), right);
    let pool = directory.path().join("pools/p1");
    let upload = pool.join("partial/00000000-0000-4000-8000-000000000001");
    std::fs::write(&upload, b"bytes of a client").expect("written");
    std::fs::write(upload.with_extension("json"), b"no record").expect("written");
    std::fs::write(pool.join("data/0/ff0"), b"not in the namespace").expect("written");
    let site = Site::again(directory, with_trash).await;
    let quarantine = site.directory.path().join("pools/p1/quarantine");
    let entries = std::fs::read_dir(quarantine).expect("there").flatten();
    let names: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().expect("a name of ours"))
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        let since = name.rsplit('-').next().expect("a time");
        let since: i64 = since.parse().expect("a number");
        assert!(since >= right.0 / 1000, "{name}, right is {right:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_far_ahead_ends_no_lock_and_removes_nothing_from_quarantine() {
    let site = Site::with(with_trash).await;
    site.put("/locked", b"x").await;
    site.put("/free", b"x").await;
    assert_eq!(lock(&site, "/locked").await.status, 200);
    let mut kept = site.storage.namespace().locks().expect("readable");
    let directory = site.close().await;
    // All that the last run wrote down is so much older than the clock says.
    let then = earlier(wall(), 40 * DAY);
    let database = directory.path().join("state/namespace.sqlite");
    for lock in &mut kept {
        lock.expires = then + Duration::from_secs(300);
        let namespace = Namespace::open(&database).expect("opens");
        let kept = namespace.apply(Change::KeepLock(lock.clone()));
        kept.expect("kept");
    }
    set_newest_record(directory.path(), then);
    let quarantine = directory.path().join("pools/p1/quarantine");
    let put_aside = |days: u32| {
        let since = earlier(then, days * DAY).0 / 1000;
        let file = quarantine.join(format!("{days:x}-{since}"));
        std::fs::write(&file, b"put aside").expect("written");
        file
    };
    let (recent, over) = (put_aside(1), put_aside(100));
    let site = Site::again(directory, with_trash).await;
    assert!(site.storage.namespace().lookup(&path("/locked")).is_ok());
    check(&site, "PUT", "/locked", &[], 423).await;
    check(&site, "PUT", "/free", &[], 204).await;
    crate::site::eventually("it is looked at", || !over.exists()).await;
    assert!(
        recent.exists(),
        "by the clock that is believed it is a day old"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_taken_while_the_clock_was_ahead_ends_as_late_as_the_longest_lock() {
    let site = Site::with(with_trash).await;
    site.put("/locked", b"x").await;
    assert_eq!(lock(&site, "/locked").await.status, 200);
    let mut kept = site.storage.namespace().locks().expect("readable");
    let directory = site.close().await;
    let database = directory.path().join("state/namespace.sqlite");
    let mut ahead = kept.remove(0);
    ahead.expires = wall() + 365 * DAY;
    let namespace = Namespace::open(&database).expect("opens");
    namespace.apply(Change::KeepLock(ahead)).expect("kept");
    drop(namespace);
    let site = Site::again(directory, with_trash).await;
    check(&site, "PUT", "/locked", &[], 423).await;
    let ends = || site.storage.namespace().locks().expect("readable")[0].expires;
    let latest = wall() + Duration::from_secs(3600);
    crate::site::eventually("its end is kept", || ends() <= latest).await;
    assert!(ends() > wall(), "its holder may still be at work");
}
