//! Starting again, and refusing to start where that would lose data.

use crate::site::{Site, configuration};
use penstock_protocol::token::Signer;
use penstock_storage_element::{OpenError, Storage, StorageConfig};
use std::fs;
use std::path::Path;

fn config(directory: &Path) -> StorageConfig {
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
async fn a_restart_keeps_files_and_removes_what_was_never_acknowledged() {
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_namespace_never_deletes_data() {
    let directory = closed_site().await;
    fs::remove_dir_all(directory.path().join("state")).expect("removed");
    let why = refusal(config(directory.path()));
    assert!(matches!(why, OpenError::ForeignPool { .. }));
    assert!(
        why.to_string().contains("restore it from a backup"),
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
async fn an_old_copy_of_the_namespace_is_refused() {
    let directory = closed_site().await;
    let (database, copy) = (
        directory.path().join("state/namespace.sqlite"),
        directory.path().join("copy"),
    );
    fs::copy(&database, &copy).expect("copied");
    drop(Storage::open(config(directory.path())).expect("opens"));
    for name in ["namespace.sqlite-wal", "namespace.sqlite-shm"] {
        let _ = fs::remove_file(database.with_file_name(name));
    }
    fs::copy(&copy, &database).expect("restored");
    assert!(matches!(
        refusal(config(directory.path())),
        OpenError::OldNamespace { .. }
    ));
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
        matches!(why, OpenError::CopyOfNamespace { files: 1, .. }),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_disk_is_not_mounted_is_refused() {
    let directory = closed_site().await;
    let pool = directory.path().join("pools/p1");
    fs::rename(&pool, directory.path().join("unmounted")).expect("renamed");
    fs::create_dir(&pool).expect("made");
    let why = refusal(config(directory.path()));
    assert!(matches!(why, OpenError::Vanished { files: 1, .. }), "{why}");
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
