//! What `fsck` makes of an older copy of the namespace: all that was acknowledged since is at its path again.

use crate::nearline::{EVICTS_ALL, Hsm, with_tape};
use crate::recovery::{config, order_of, two_pools};
use crate::site::{Site, eventually};
use penstock_decide::pool_selection::PoolMode;
use penstock_model::{PoolName, Timestamp};
use penstock_persistence::backup::{BackupOf, JournalLocation, RestoreTo, back_up, restore};
use penstock_persistence::namespace::{EntryId, EntryKind, TrashQuery};
use penstock_storage_element::fsck::{FsckReport, check};
use penstock_storage_element::{Storage, StorageConfig};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn of(directory: &Path) -> BackupOf {
    BackupOf {
        kept: JournalLocation::Namespace(directory.join("state/namespace.sqlite")),
        files: Vec::new(),
        positions: Vec::new(),
        at: Timestamp(0),
        bytes_per_second: u64::MAX,
        stopped: Default::default(),
    }
}

fn backup(site: &Site) {
    let directory = site.directory.path();
    back_up(&of(directory), &directory.join("backup")).expect("made");
}

fn put_back(directory: &Path) {
    put_back_at(directory, Timestamp(0));
}

fn put_back_at(directory: &Path, at: Timestamp) {
    let to = RestoreTo {
        kept: of(directory).kept,
        replaces: true,
        scratch: directory.join("scratch"),
        at,
    };
    restore(&directory.join("backup"), &to).expect("restored");
}

/// Two pools, of which that one takes new files.
fn writing_to(pool: &str, trash: Duration) -> impl Fn(&mut StorageConfig) {
    let pool = PoolName::new(pool);
    move |config| {
        two_pools(config);
        config.limits.trash = trash;
        for one in &mut config.pools {
            if one.name != pool {
                one.mode = PoolMode::Drained;
            }
        }
    }
}

async fn rename(site: &Site, from: &str, to: &str) {
    let to = site.url(to).to_string();
    let answer = site.send("MOVE", from, &[("Destination", &to)], b"").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// The tree as text: path and content of each file.
fn tree(directory: &Path, change: impl Fn(&mut StorageConfig)) -> Vec<(String, String)> {
    let mut config = config(directory);
    change(&mut config);
    let pools: Vec<(PoolName, PathBuf)> = config
        .pools
        .iter()
        .map(|pool| (pool.name.clone(), pool.directory.clone()))
        .collect();
    let storage = Storage::open(config).expect("opens");
    let below = storage.namespace().below(EntryId::ROOT, 100);
    let mut files = Vec::new();
    for (place, entry) in below.expect("readable") {
        let EntryKind::File {
            pool: Some(pool), ..
        } = &entry.kind
        else {
            continue;
        };
        let (_, root) = pools.iter().find(|(name, _)| name == pool).expect("known");
        let data = root.join(format!("data/{:x}/{}", entry.id.0 / 4096, entry.id));
        let content = fs::read_to_string(data).unwrap_or_else(|_| "missing".to_owned());
        files.push((format!("/{}", place.join("/")), content));
    }
    files.sort();
    files
}

fn mend(directory: &Path, change: impl Fn(&mut StorageConfig)) -> FsckReport {
    let mut config = config(directory);
    change(&mut config);
    check(&order_of(&config, true), |_| ()).expect("mended")
}

/// A second comparison has nothing to tell.
fn finds_nothing(directory: &Path, change: impl Fn(&mut StorageConfig)) {
    for mends in [false, true] {
        let mut config = config(directory);
        change(&mut config);
        let found = check(&order_of(&config, mends), |_| ()).expect("compared");
        let counts = (
            found.unknown.count,
            found.outdated.count,
            found.missing.count,
        );
        assert_eq!((counts, found.open()), ((0, 0, 0), 0), "{found:?}");
    }
}

fn trashed(directory: &Path, change: impl Fn(&mut StorageConfig)) -> Vec<String> {
    let mut config = config(directory);
    change(&mut config);
    let storage = Storage::open(config).expect("opens");
    let trash = storage.namespace().trash(&TrashQuery::default(), 100);
    let trash = trash.expect("readable").into_iter();
    let mut paths: Vec<String> = trash.map(|file| file.path.to_string()).collect();
    paths.sort();
    paths
}

fn reversed(change: impl Fn(&mut StorageConfig)) -> impl Fn(&mut StorageConfig) {
    move |config| {
        change(config);
        config.pools.reverse();
    }
}

fn expected(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let files = files.iter();
    files
        .map(|(path, content)| ((*path).to_owned(), (*content).to_owned()))
        .collect()
}

/// A site with a backup, and changes of all kinds since, written to another pool than what is in the backup.
async fn changed_since_backup(pools: [&str; 2], trash: Duration) -> tempfile::TempDir {
    let site = Site::with(writing_to(pools[0], trash)).await;
    for path in ["over", "twice", "moved", "gone", "there", "taken", "old/in"] {
        site.put(&format!("/d/{path}"), format!("{path} 1").as_bytes())
            .await;
    }
    backup(&site);
    let site = site.reopen(writing_to(pools[1], trash)).await;
    for (path, content) in [
        ("/d/over", "over 2"),
        ("/d/twice", "twice 2"),
        ("/d/twice", "twice 3"),
        ("/d/new", "new"),
    ] {
        site.put(path, content.as_bytes()).await;
    }
    rename(&site, "/d/moved", "/d/moved2").await;
    rename(&site, "/d/there", "/e").await;
    rename(&site, "/d/taken", "/d/there").await;
    site.put("/d/taken", b"taken 2").await;
    assert_eq!(site.status("DELETE", "/d/gone").await, 204);
    rename(&site, "/d/old", "/d/renamed").await;
    site.put("/d/renamed/later", b"later").await;
    site.put("/d/passing", b"passing").await;
    rename(&site, "/d/passing", "/d/renamed/passed").await;
    if trash.is_zero() {
        eventually("what was removed is gone", || {
            site.files_on_disk() == (0, 10)
        })
        .await;
    }
    site.close().await
}

const NOW: [(&str, &str); 10] = [
    ("/d/moved2", "moved 1"),
    ("/d/new", "new"),
    ("/d/over", "over 2"),
    ("/d/renamed/in", "old/in 1"),
    ("/d/renamed/later", "later"),
    ("/d/renamed/passed", "passing"),
    ("/d/taken", "taken 2"),
    ("/d/there", "taken 1"),
    ("/d/twice", "twice 3"),
    ("/e", "there 1"),
];

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_all_is_where_it_was_acknowledged_since() {
    for pools in [["p1", "p2"], ["p2", "p1"], ["p1", "p1"]] {
        for trash in [Duration::ZERO, Duration::from_secs(3600)] {
            let directory = changed_since_backup(pools, trash).await;
            let config = reversed(writing_to(pools[1], trash));
            assert_eq!(
                tree(directory.path(), writing_to(pools[1], trash)),
                expected(&NOW)
            );
            put_back(directory.path());
            let report = mend(directory.path(), &config);
            assert_eq!(report.open(), 0, "{report:?}");
            finds_nothing(directory.path(), &config);
            assert_eq!(tree(directory.path(), &config), expected(&NOW), "{pools:?}");
            if !trash.is_zero() {
                let kept = ["/d/gone", "/d/over", "/d/twice", "/d/twice"];
                assert_eq!(trashed(directory.path(), &config), kept);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_start_on_the_older_copy_changes_nothing_of_that() {
    let trash = Duration::from_secs(3600);
    let directory = changed_since_backup(["p1", "p2"], trash).await;
    put_back(directory.path());
    let config = writing_to("p2", trash);
    for _ in 0..2 {
        let mut refused = crate::recovery::config(directory.path());
        config(&mut refused);
        assert!(Storage::open(refused).is_err());
    }
    mend(directory.path(), &config);
    finds_nothing(directory.path(), &config);
    assert_eq!(tree(directory.path(), &config), expected(&NOW));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_backup_is_refused_as_often_as_it_is_put_back() {
    let trash = Duration::from_secs(3600);
    let directory = changed_since_backup(["p1", "p2"], trash).await;
    let config = writing_to("p2", trash);
    let open = |directory: &Path| {
        let mut opened = crate::recovery::config(directory);
        config(&mut opened);
        Storage::open(opened).map(drop)
    };
    for hour in 1..4 {
        put_back_at(directory.path(), Timestamp(hour * 3_600_000));
        open(directory.path()).expect_err("what was stored since is not in the backup");
        mend(directory.path(), &config);
        open(directory.path()).expect("all is known again");
        assert_eq!(tree(directory.path(), &config), expected(&NOW), "{hour}");
        finds_nothing(directory.path(), &config);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_logs_later_data_takes_the_place_of_an_entry_whose_data_is_in_no_pool() {
    for pools in [["p1", "p2"], ["p2", "p1"]] {
        let directory = changed_since_backup(pools, Duration::ZERO).await;
        put_back(directory.path());
        for pool in ["p1", "p2"] {
            let pool = directory.path().join("pools").join(pool);
            fs::remove_file(pool.join("directory.log")).expect("removed");
        }
        let config = writing_to(pools[1], Duration::ZERO);
        let report = mend(directory.path(), &config);
        assert_eq!(report.outdated.count, 2, "{report:?}");
        let files = tree(directory.path(), &config);
        for file in expected(&[
            ("/d/over", "over 2"),
            ("/d/twice", "twice 3"),
            ("/d/new", "new"),
        ]) {
            assert!(files.contains(&file), "{file:?} in {files:?}");
        }
        // Nothing tells which of the two is later.
        for file in expected(&[("/d/taken", "taken 1"), ("/lost+found/d/taken", "taken 2")]) {
            assert!(files.contains(&file), "{file:?} in {files:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_word_of_a_log_that_was_kept_aside_moves_and_removes_nothing() {
    let trash = Duration::from_secs(3600);
    let directory = changed_since_backup(["p1", "p2"], trash).await;
    put_back(directory.path());
    let config = writing_to("p2", trash);
    mend(directory.path(), &config);
    let site = Site::again(directory, &config).await;
    rename(&site, "/d/moved2", "/d/moved").await;
    rename(&site, "/d/over", "/d/elsewhere").await;
    let directory = site.close().await;
    // The labels tell all, and a new log does not.
    mend(directory.path(), &config);
    for pool in ["p1", "p2"] {
        let pool = directory.path().join("pools").join(pool);
        fs::remove_file(pool.join("directory.log")).expect("removed");
    }
    finds_nothing(directory.path(), &config);
    let files = tree(directory.path(), &config);
    for file in expected(&[("/d/moved", "moved 1"), ("/d/elsewhere", "over 2")]) {
        assert!(files.contains(&file), "{file:?} in {files:?}");
    }
}

fn with_hsm(keep_free_permille: u16) -> impl Fn(&mut StorageConfig) {
    move |config| with_tape(config, keep_free_permille)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_went_to_tape_and_left_the_disk_are_in_an_older_copy_again() {
    for gives_new_ids in [true, false] {
        let site = Site::with(with_hsm(EVICTS_ALL)).await;
        let hsm = Hsm::of(&site);
        hsm.switch("wait", true);
        site.put("/tape/before", b"precious in the copy").await;
        // Later than that file, and in the copy.
        tokio::time::sleep(Duration::from_millis(5)).await;
        site.put("/later/f", b"on disk").await;
        backup(&site);
        hsm.switch("wait", false);
        let mut paths = vec!["/tape/before"];
        if gives_new_ids {
            site.put("/tape/since", b"unknown to the copy").await;
            site.put("/tape/removed", b"removed since").await;
            site.becomes("/tape/removed", "TAPE").await;
            let removed = site.send("DELETE", "/tape/removed", &[], b"").await;
            assert_eq!(removed.status, 204);
            paths.push("/tape/since");
        }
        for path in &paths {
            site.becomes(path, "TAPE").await;
        }
        let directory = site.close().await;
        put_back(directory.path());
        let mut before = config(directory.path());
        with_hsm(EVICTS_ALL)(&mut before);
        let refused = Storage::open(before.clone()).err().expect("refused");
        let told = format!("{} files are not in the namespace", paths.len());
        assert!(refused.to_string().contains(&told), "{refused}");
        let found = check(&order_of(&before, false), |_| ()).expect("compared");
        let named = found.unknown_on_tape.named.iter();
        let mut named: Vec<_> = named.filter_map(|one| one.path.as_deref()).collect();
        named.sort_unstable();
        assert_eq!((named, found.missing.count), (paths.clone(), 1));
        let mended = mend(directory.path(), with_hsm(EVICTS_ALL));
        assert_eq!(mended.open(), 0, "{mended:?}");
        assert_eq!(mended.unknown_on_tape.mended, paths.len() as u64);
        finds_nothing(directory.path(), with_hsm(EVICTS_ALL));
        let site = Site::again(directory, with_hsm(EVICTS_ALL)).await;
        let puts = Hsm::of(&site).calls("put");
        for path in paths {
            assert_eq!(site.locality(path).await, "TAPE", "{path}");
            let id = site.stage(path).await;
            assert_eq!(site.staged(&id).await["onDisk"], true, "{path}");
        }
        assert_eq!(site.get("/tape/before").await.body, b"precious in the copy");
        assert_eq!(Hsm::of(&site).calls("put"), puts);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recalled_file_that_is_entered_again_is_on_tape_only_as_far_as_logs_tell() {
    for has_log in [true, false] {
        let site = Site::with(with_hsm(EVICTS_ALL)).await;
        backup(&site);
        site.put("/tape/f", b"there and back").await;
        site.becomes("/tape/f", "TAPE").await;
        let id = site.stage("/tape/f").await;
        assert_eq!(site.staged(&id).await["onDisk"], true);
        let directory = site.close().await;
        put_back(directory.path());
        if !has_log {
            let pool = directory.path().join("pools/p1/directory.log");
            fs::remove_file(pool).expect("there");
        }
        let mended = mend(directory.path(), with_hsm(0));
        assert_eq!((mended.unknown.mended, mended.open()), (1, 0), "{mended:?}");
        let puts = Hsm(directory.path().join("hsm")).calls("put");
        let site = Site::again(directory, with_hsm(0)).await;
        site.becomes("/tape/f", "DISK_AND_TAPE").await;
        let again = Hsm::of(&site).calls("put") - puts;
        assert_eq!(again, usize::from(!has_log), "put there again: {again}");
        let copies = site.storage.namespace().tape_copies(EntryId(0), 10);
        assert_eq!(copies.expect("readable").len(), 1);
    }
}
