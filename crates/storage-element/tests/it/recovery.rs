//! Starting again, and refusing to start where that would lose data.

use crate::site::{Site, configuration};
use penstock_model::Timestamp;
use penstock_persistence::backup::{BackupOf, JournalLocation, RestoreTo, back_up, restore};
use penstock_persistence::namespace::{Change, Namespace, TrashQuery};
use penstock_protocol::token::Signer;
use penstock_storage_element::fsck::{FsckRequest, Repair, check};
use penstock_storage_element::rebuild::{RebuildRequest, rebuild};
use penstock_storage_element::{OpenError, PoolConfig, PoolRoot, Storage, StorageConfig};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) fn config(directory: &Path) -> StorageConfig {
    let signer = Signer::load(&directory.join("signing.pem")).expect("signer");
    configuration(directory, &signer)
}

fn refusal(config: StorageConfig) -> OpenError {
    match Storage::open(config) {
        Ok(_) => panic!("started"),
        Err(why) => why,
    }
}

/// A closed site that holds one file.
async fn closed_site() -> tempfile::TempDir {
    let site = Site::new().await;
    site.put("/d/f", b"kept").await;
    site.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_files_and_puts_into_quarantine_what_nobody_knows() {
    let directory = closed_site().await;
    let pool = directory.path().join("pools/p1");
    fs::write(pool.join("incoming/77"), b"unfinished").expect("written");
    fs::create_dir_all(pool.join("data/100")).expect("made");
    fs::write(pool.join("data/100/100fff"), b"never acknowledged").expect("written");
    let storage = Storage::open(config(directory.path())).expect("opens");
    let entry = storage
        .namespace()
        .lookup(&crate::site::path("/d/f"))
        .expect("readable")
        .expect("kept");
    assert!(pool.join(format!("data/0/{}", entry.id)).exists());
    assert!(!pool.join("incoming/77").exists() && !pool.join("data/100/100fff").exists());
    let (name, bytes) = quarantined(&pool).pop().expect("kept");
    assert!(name.starts_with("100fff-"), "{name}");
    assert_eq!(bytes, b"never acknowledged");
    let alarms = storage.condition().alarms.join("; ");
    assert!(
        alarms.contains("1 files in") && alarms.contains("penstock fsck"),
        "{alarms}"
    );
    // Its id is not given to another file.
    assert!(storage.namespace().allocate().0 > 0x10_0fff);
}

/// What is in the quarantine of a pool, by name.
fn quarantined(pool: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(pool.join("quarantine"))
        .expect("there")
        .flatten();
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().expect("a name of ours");
        (name, fs::read(entry.path()).expect("readable"))
    };
    let mut files: Vec<_> = entries.map(file).collect();
    files.sort();
    files
}

/// The database and its log, to be put back later.
fn copy_namespace(directory: &Path, to: &str) {
    for suffix in ["", "-wal"] {
        let from = directory.join(format!("state/namespace.sqlite{suffix}"));
        let to = directory.join(format!("{to}{suffix}"));
        let _ = fs::remove_file(&to);
        if from.exists() {
            fs::copy(from, to).expect("copied");
        }
    }
}

fn put_namespace_back(directory: &Path, from: &str) {
    for suffix in ["", "-wal", "-shm"] {
        let to = directory.join(format!("state/namespace.sqlite{suffix}"));
        let _ = fs::remove_file(&to);
        let from = directory.join(format!("{from}{suffix}"));
        if from.exists() {
            fs::copy(from, to).expect("restored");
        }
    }
}

fn files_in(directory: &Path) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("there").flatten() {
        match entry.path().is_dir() {
            true => files.extend(files_in(&entry.path())),
            false => files.push(fs::read(entry.path()).expect("readable")),
        }
    }
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_of_the_namespace_that_nothing_tells_apart_deletes_no_file() {
    let site = Site::new().await;
    site.put("/d/f", b"in the copy").await;
    let directory = site.directory.path().to_owned();
    let identity = directory.join("pools/p1/pool.json");
    copy_namespace(&directory, "copy");
    let mark = fs::read(&identity).expect("readable");
    site.put("/d/g", b"acknowledged later").await;
    site.put("/d/h", b"and another").await;
    let directory = site.close().await;
    put_namespace_back(directory.path(), "copy");
    // As after a kill: the mark of the last seconds was not written.
    fs::write(&identity, mark).expect("written");
    let storage = Storage::open(config(directory.path())).expect("opens");
    let pool = directory.path().join("pools/p1");
    let kept: Vec<Vec<u8>> = quarantined(&pool)
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    assert_eq!(kept, [&b"acknowledged later"[..], b"and another"]);
    assert_eq!(files_in(&pool.join("data")), [b"in the copy"]);
    drop(storage);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_marked_leaves_the_marks_of_others() {
    let site = Site::with(two_pools).await;
    let directory = site.directory.path().to_owned();
    site.put("/d/f", b"in the copy").await;
    copy_namespace(&directory, "copy");
    fs::create_dir(directory.join("pools/p1/pool.json.new")).expect("in the way");
    let mut files = 0;
    while files_in(&directory.join("pools/p2/data")).len() < 2 {
        site.put(&format!("/d/g{files}"), b"acknowledged later")
            .await;
        files += 1;
        assert!(files < 1000, "never drawn");
    }
    let directory = site.close().await;
    put_namespace_back(directory.path(), "copy");
    let mut config = config(directory.path());
    two_pools(&mut config);
    let why = refusal(config);
    assert!(
        matches!(&why, OpenError::OldNamespace { pool, .. } if pool.as_str() == "p2"),
        "{why}"
    );
}

fn two_pools(config: &mut StorageConfig) {
    let mut second = config.pools[0].clone();
    second.name = penstock_model::PoolName::new("p2");
    second.directory = second.directory.with_file_name("p2");
    config.pools.push(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_ids_than_were_set_aside_are_in_the_mark_before_a_file_has_one() {
    let site = Site::new().await;
    let identity = site.directory.path().join("pools/p1/pool.json");
    let ids_below = || {
        let identity: serde_json::Value =
            serde_json::from_slice(&fs::read(&identity).expect("readable")).expect("JSON");
        identity["ids_below"].as_u64().expect("a number")
    };
    let first = ids_below();
    assert_eq!(site.storage.namespace().ids_reserved().0, first);
    site.put("/d/f", b"covered").await;
    assert_eq!(ids_below(), first, "no file costs a mark");
    while site.storage.namespace().allocate().0 < first {}
    // The pool cannot be marked: it takes no file with such an id.
    let in_the_way = site.directory.path().join("pools/p1/pool.json.new");
    fs::create_dir(&in_the_way).expect("in the way");
    assert_eq!(site.status("PUT", "/d/g").await, 500);
    assert_eq!(site.status("PUT", "/d/g").await, 503);
    fs::remove_dir(&in_the_way).expect("removed");
    let deadline = Instant::now() + crate::site::DEADLINE;
    while site.status("PUT", "/d/g").await != 201 {
        assert!(Instant::now() < deadline, "it does not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(ids_below() > first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_that_a_power_cut_ended_can_be_made_again() {
    let directory = Site::new().await.close().await;
    let anew = || {
        for name in ["pools/p1", "state"] {
            fs::remove_dir_all(directory.path().join(name)).expect("removed");
            fs::create_dir(directory.path().join(name)).expect("made");
        }
    };
    anew();
    let pool = directory.path().join("pools/p1");
    for name in ["incoming", "data", "quarantine"] {
        fs::create_dir_all(pool.join(name)).expect("made");
    }
    // It was removed already; that its name went was not on the disk.
    fs::write(pool.join("incoming/label-test"), b"").expect("written");
    drop(Storage::open(config(directory.path())).expect("opens"));
    assert!(pool.join("pool.json").exists());
    anew();
    fs::create_dir(pool.join("incoming")).expect("made");
    fs::write(pool.join("incoming/1"), b"bytes").expect("written");
    let why = refusal(config(directory.path()));
    assert!(matches!(why, OpenError::NotAPool { .. }), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pool_is_used_by_one_process() {
    let site = Site::new().await;
    // As a site directory that was cloned, with its pools elsewhere.
    let clone = tempfile::tempdir().expect("made");
    let mut config = config(site.directory.path());
    copy_namespace(site.directory.path(), "copy");
    for suffix in ["", "-wal"] {
        let from = site.directory.path().join(format!("copy{suffix}"));
        fs::copy(from, clone.path().join(format!("namespace.sqlite{suffix}"))).expect("copied");
    }
    config.namespace = clone.path().join("namespace.sqlite");
    let why = refusal(config);
    assert!(matches!(why, OpenError::PoolInUse { .. }), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_whose_record_cannot_be_read_keeps_its_bytes() {
    let directory = closed_site().await;
    let pool = directory.path().join("pools/p1");
    let partial = |name: &str| pool.join("partial").join(name);
    let [newer, damaged, broken, begun] =
        [1, 2, 3, 4].map(|number| format!("00000000-0000-4000-8000-00000000000{number}"));
    for id in [&newer, &damaged, &broken] {
        fs::write(partial(id), id).expect("written");
    }
    fs::write(partial(&format!("{newer}.json")), r#"{"version":99}"#).expect("written");
    fs::write(partial(&format!("{damaged}.json")), "\0\0").expect("written");
    // What cannot be read: here a directory, there a disk that fails.
    fs::create_dir(partial(&format!("{broken}.json"))).expect("made");
    // Killed before its record was there, and before any byte.
    fs::write(partial(&begun), "").expect("written");
    let storage = Storage::open(config(directory.path())).expect("opens");
    for id in [&newer, &broken] {
        assert_eq!(fs::read(partial(id)).expect("left as it is"), id.as_bytes());
    }
    assert!(!partial(&damaged).exists() && !partial(&begun).exists());
    let kept = quarantined(&pool);
    let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(
        names[0].starts_with(&format!("partial-{damaged}-")),
        "{names:?}"
    );
    assert_eq!(kept[0].1, damaged.as_bytes());
    assert!(
        names[1].starts_with(&format!("partial-{damaged}.json-")),
        "{names:?}"
    );
    let alarms = storage.condition().alarms.join("; ");
    assert!(alarms.contains("2 unfinished uploads"), "{alarms}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_namespace_never_deletes_data() {
    let directory = closed_site().await;
    fs::remove_dir_all(directory.path().join("state")).expect("removed");
    let why = refusal(config(directory.path()));
    assert!(matches!(why, OpenError::NamespaceLost { .. }));
    assert!(
        why.to_string().contains("`penstock rebuild --dir D`"),
        "{why}"
    );
    assert!(
        directory
            .path()
            .join("pools/p1/data/0")
            .read_dir()
            .expect("there")
            .next()
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_was_lost_is_made_again_although_the_site_was_started_since() {
    let directory = closed_site().await;
    let config = || config(directory.path());
    let looked = order_of(&config(), false);
    let order = |replace| RebuildRequest {
        namespace: looked.namespace.clone(),
        pools: looked.pools.clone(),
        replace,
        dry_run: false,
    };
    let names_it = |why: String| {
        assert!(
            why.contains("`penstock rebuild --dir D --replace`"),
            "{why}"
        );
    };
    fs::remove_dir_all(directory.path().join("state")).expect("removed");
    // It leaves nothing that a rebuild would have to replace.
    refusal(config());
    assert_eq!(
        rebuild(&order(false), |_| ()).expect("made").rebuilt.files,
        1
    );
    // An empty one that an older version made.
    fs::remove_dir_all(directory.path().join("state")).expect("removed");
    drop(Namespace::open(&config().namespace).expect("made"));
    names_it(refusal(config()).to_string());
    names_it(
        rebuild(&order(false), |_| ())
            .expect_err("it is there")
            .to_string(),
    );
    names_it(check(&looked, |_| ()).expect_err("another one").to_string());
    assert_eq!(
        rebuild(&order(true), |_| ()).expect("made").rebuilt.files,
        1
    );
    drop(Storage::open(config()).expect("opens"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_of_the_namespace_is_refused() {
    let directory = closed_site().await;
    let (database, copy) = (
        directory.path().join("state/namespace.sqlite"),
        directory.path().join("copy"),
    );
    fs::copy(&database, &copy).expect("copied");
    drop(Storage::open(config(directory.path())).expect("opens"));
    let put_back = || {
        for name in ["namespace.sqlite-wal", "namespace.sqlite-shm"] {
            let _ = fs::remove_file(database.with_file_name(name));
        }
        fs::copy(&copy, &database).expect("restored");
    };
    put_back();
    let data = directory.path().join("pools/p1/data/0/ff0");
    fs::write(&data, b"written since").expect("written");
    let why = refusal(config(directory.path()));
    assert!(
        matches!(why, OpenError::OldNamespace { files: 1, .. }),
        "{why}"
    );
    assert!(why.to_string().contains("penstock fsck --repair"), "{why}");
    assert!(data.exists());
    // Without a file that it does not know it may go on, with ids that nobody had.
    fs::remove_file(&data).expect("moved away");
    let identity = fs::read(directory.path().join("pools/p1/pool.json")).expect("readable");
    let identity: serde_json::Value = serde_json::from_slice(&identity).expect("JSON");
    let storage = Storage::open(config(directory.path())).expect("opens");
    let next = storage.namespace().allocate().0;
    assert!(
        next >= identity["ids_below"].as_u64().expect("a number"),
        "{next} {identity}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_namespace_made_while_it_ran_deletes_no_later_file() {
    let site = Site::new().await;
    site.put("/d/f", b"in the copy").await;
    let directory = site.directory.path().to_owned();
    let database = directory.join("state/namespace.sqlite");
    let copy = directory.join("copy");
    for suffix in ["", "-wal"] {
        let of = |path: &Path| format!("{}{suffix}", path.display());
        fs::copy(of(&database), of(&copy)).expect("copied");
    }
    site.put("/d/g", b"acknowledged later").await;
    let directory = site.close().await;
    for suffix in ["", "-wal"] {
        let of = |path: &Path| format!("{}{suffix}", path.display());
        fs::copy(of(&copy), of(&database)).expect("restored");
    }
    let _ = fs::remove_file(database.with_file_name("namespace.sqlite-shm"));
    let why = refusal(config(directory.path()));
    assert!(
        matches!(why, OpenError::OldNamespace { files: 1, .. }),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_namespace_waits_until_files_of_since_then_are_entered_again() {
    let site = Site::new().await;
    site.put("/d/f", b"in the backup").await;
    let directory = site.directory.path().to_owned();
    let backup = directory.join("backup");
    let of = BackupOf {
        kept: JournalLocation::Namespace(directory.join("state/namespace.sqlite")),
        files: Vec::new(),
        positions: Vec::new(),
        at: Timestamp(0),
        bytes_per_second: u64::MAX,
        stopped: Default::default(),
    };
    back_up(&of, &backup).expect("made");
    site.put("/d/g", b"acknowledged later").await;
    let directory = site.close().await;
    // A start of between has looked at all files of before.
    drop(Storage::open(config(directory.path())).expect("opens"));
    let to = RestoreTo {
        kept: of.kept,
        replaces: true,
        scratch: directory.path().join("scratch"),
        at: Timestamp(0),
    };
    restore(&backup, &to).expect("restored");
    let pool = directory.path().join("pools/p1");
    for _ in 0..2 {
        let why = refusal(config(directory.path()));
        let is_old = matches!(why, OpenError::OldNamespace { files: 1, .. });
        assert!(is_old, "{why}");
    }
    assert_eq!(files_in(&pool.join("data")).len(), 2);
    assert_eq!(quarantined(&pool), []);
    let config = config(directory.path());
    let order = order_of(&config, true);
    let report = check(&order, |_| ()).expect("compared");
    assert_eq!((report.unknown.count, report.open()), (1, 0));
    let storage = Storage::open(config).expect("opens");
    let in_use = check(&order, |_| ()).expect_err("it is in use");
    assert!(in_use.to_string().contains("in use"), "{in_use}");
    drop(storage);
    assert_eq!(files_in(&pool.join("data")).len(), 2);
    assert_eq!(quarantined(&pool), []);
}

pub(crate) fn order_of(config: &StorageConfig, mends: bool) -> FsckRequest {
    let place = |pool: &PoolConfig| PoolRoot {
        name: pool.name.clone(),
        directory: pool.directory.clone(),
    };
    FsckRequest {
        namespace: config.namespace.clone(),
        pools: config.pools.iter().map(place).collect(),
        repair: Repair {
            mends,
            removes_missing: false,
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_restored_since_the_copy_of_the_namespace_is_found_and_made_visible_again()
{
    let kept = |config: &mut StorageConfig| config.limits.trash = Duration::from_secs(3600);
    let site = Site::with(kept).await;
    for path in ["/d/restored", "/d/moved", "/d/removed"] {
        site.put(path, path.as_bytes()).await;
        assert_eq!(site.status("DELETE", path).await, 204);
    }
    let directory = site.close().await;
    copy_namespace(directory.path(), "copy");
    let mut config = config(directory.path());
    kept(&mut config);
    let storage = Storage::open(config.clone()).expect("opens");
    let trash = storage.namespace().trash(&TrashQuery::default(), 10);
    for trashed in trash.expect("readable") {
        let path = trashed.path.to_string();
        let to = match &*path {
            "/d/moved" => "/since/elsewhere",
            path => path,
        };
        let restore = Change::RestoreTrash {
            file: trashed.file,
            to: crate::site::path(to),
            at: trashed.removed + Duration::from_millis(5),
        };
        storage.namespace().apply(restore).expect("restored");
        if path == "/d/removed" {
            let again = Change::Remove {
                path: trashed.path,
                only: None,
                entries_max: 1,
                by: None,
                at: trashed.removed + Duration::from_millis(10),
            };
            storage.namespace().apply(again).expect("removed again");
        }
    }
    drop(storage);
    put_namespace_back(directory.path(), "copy");
    // A start would remove their data when the trash is over its time.
    let why = refusal(config.clone());
    assert!(
        matches!(why, OpenError::OldNamespace { files: 2, .. }),
        "{why}"
    );
    let found = check(&order_of(&config, false), |_| ()).expect("compared");
    let named = found.restored.named.iter().map(|file| &*file.path);
    let expected: BTreeSet<&str> = ["/d/restored", "/since/elsewhere"].into();
    assert_eq!(named.collect::<BTreeSet<_>>(), expected);
    assert_eq!(found.open(), 2);
    let mended = check(&order_of(&config, true), |_| ()).expect("mended");
    assert_eq!((mended.restored.mended, mended.open()), (2, 0));
    let found = check(&order_of(&config, false), |_| ()).expect("compared");
    assert_eq!((found.restored.count, found.open()), (0, 0));
    let storage = Storage::open(config).expect("opens");
    let is_there = |path| {
        let found = storage.namespace().lookup(&crate::site::path(path));
        found.expect("readable").is_some()
    };
    assert!(is_there("/d/restored") && is_there("/since/elsewhere"));
    assert!(!is_there("/d/removed") && !is_there("/d/moved"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_in_a_pool_that_was_not_configured_for_a_while_is_found_however_old_it_is() {
    let site = Site::with(two_pools).await;
    // Whoever was given it wrote it, and no entry came of it.
    let id = site.storage.namespace().allocate();
    let directory = site.close().await;
    // Starts without the pool.
    for _ in 0..2 {
        drop(Storage::open(config(directory.path())).expect("opens"));
    }
    let data = directory.path().join("pools/p2/data/0");
    fs::create_dir_all(&data).expect("made");
    fs::write(data.join(id.to_string()), b"of an earlier time").expect("written");
    let mut both = config(directory.path());
    two_pools(&mut both);
    let storage = Storage::open(both.clone()).expect("opens");
    assert!(id < storage.namespace().low_water());
    let kept = quarantined(&directory.path().join("pools/p2"));
    let [(name, bytes)] = &kept[..] else {
        panic!("{kept:?}")
    };
    assert!(name.starts_with(&format!("{id}-")), "{name}");
    assert_eq!(bytes, b"of an earlier time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_with_other_files_is_no_pool() {
    let directory = closed_site().await;
    let other = directory.path().join("pools/p2");
    fs::create_dir(&other).expect("made");
    fs::write(other.join("thesis.tex"), b"years of work").expect("written");
    let mut config = config(directory.path());
    let mut pool = config.pools[0].clone();
    pool.name = penstock_model::PoolName::new("p2");
    pool.directory = other.clone();
    config.pools.push(pool.clone());
    assert!(matches!(
        refusal(config.clone()),
        OpenError::NotAPool { .. }
    ));
    config.pools[1].directory = config.pools[0].directory.clone();
    assert!(matches!(
        refusal(config.clone()),
        OpenError::ForeignPool { .. }
    ));
    config.pools[1].name = penstock_model::PoolName::new("../p2");
    assert!(matches!(refusal(config.clone()), OpenError::PoolName(_)));
    config.pools.clear();
    assert!(matches!(refusal(config), OpenError::NoPool));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_path_becomes_no_pool() {
    let directory = closed_site().await;
    let mut config = config(directory.path());
    let mut pool = config.pools[0].clone();
    pool.name = penstock_model::PoolName::new("p2");
    pool.directory = directory.path().join("pols/p2");
    config.pools.push(pool);
    let why = refusal(config.clone()).to_string();
    assert!(
        why.contains("pols does not exist") && why.contains("mkdir -p"),
        "{why}"
    );
    assert!(!directory.path().join("pols").exists());
    // At the right path it is made.
    config.pools[1].directory = directory.path().join("pools/p2");
    Storage::open(config).expect("opens");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_was_made_at_a_wrong_path_can_be_moved_to_the_right_one() {
    let directory = closed_site().await;
    let (wrong, right) = (
        directory.path().join("pools/p1"),
        directory.path().join("right"),
    );
    fs::create_dir(&right).expect("made");
    let mut config = config(directory.path());
    config.pools[0].directory = right.clone();
    let storage = Storage::open(config.clone()).expect("opens");
    let alarms = storage.condition().alarms.join("; ");
    assert!(alarms.contains("with pool.json, to"), "{alarms}");
    drop(storage);
    for entry in fs::read_dir(&wrong).expect("there").flatten() {
        fs::rename(entry.path(), right.join(entry.file_name())).expect("moved");
    }
    let storage = Storage::open(config).expect("opens");
    assert!(storage.condition().alarms.is_empty());
}
