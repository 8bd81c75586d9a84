//! Files that go to the tapes of libraries, which keep their bytes in a directory and whose time runs fast.

use crate::nearline::{EVICTS_ALL, Hsm, nearline, with_tape};
use crate::recovery::config;
use crate::site::{DEADLINE, Site, Trust, check, eventually, path};
use penstock_decide::pool_selection::PoolMode;
use penstock_model::Bytes;
use penstock_persistence::namespace::{Change, EntryId, Namespace, NearlineChange};
use penstock_storage_element::{
    LibrariesConfig, LibraryConfig, Storage, StorageConfig, TapeCareConfig, TapeSystemConfig,
};
use penstock_tape::drive_fault::FaultRates;
use penstock_tape::drive_kind::DriveKind;
use penstock_tape::library::LibraryModel;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::request::{DriveName, LibraryName, TapeName};
use penstock_tape::request_engine::TapePolicy;
use penstock_tape_library::{LibraryDefinition, TapeDefinition};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const KIND: &str = "LTO-8";
/// A mount takes half a minute, and so 6 ms.
const FACTOR: u32 = 5_000;

pub fn library(name: &str, directory: &Path, drives: usize, tapes: usize) -> LibraryConfig {
    let kind = DriveKind::named(KIND).expect("a kind");
    let definition = LibraryDefinition {
        name: LibraryName(name.into()),
        model: LibraryModel {
            slots: 100,
            arms: 2,
            move_ns: 10 * SECOND_NS,
            moves_per_hour_max: 1_000,
        },
        kinds: BTreeMap::from([(KIND.to_owned(), kind)]),
        drives: (1..=drives)
            .map(|one| (DriveName(format!("{name}-d{one}").into()), KIND.to_owned()))
            .collect(),
        tapes: (1..=tapes)
            .map(|one| {
                let tape = TapeDefinition {
                    kind: KIND.to_owned(),
                    capacity_bytes: 100_000_000,
                };
                (TapeName(format!("{name}-{one:03}").into()), tape)
            })
            .collect(),
        faults: FaultRates::default(),
        seed: 1,
    };
    LibraryConfig {
        directory: directory.join(name),
        definition,
    }
}

pub fn with_library(config: &mut StorageConfig, keep_free_permille: u16) {
    let home = config.namespace.ancestors().nth(2).expect("a site");
    let mut policy = TapePolicy::usual();
    policy.mount.age_ns = 0;
    let libraries = LibrariesConfig {
        libraries: vec![library("silo", &home.join("tape"), 2, 4)],
        policy,
        care: TapeCareConfig {
            verify_every_ns: None,
            reclaim_live_permille: 0,
            part_bytes: 1_000_000,
            copies_wait_ns: i64::MAX,
        },
        time_factor: FACTOR,
    };
    let system = TapeSystemConfig::Libraries(libraries);
    config.nearline = Some(nearline(system, keep_free_permille));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_goes_to_a_tape_leaves_the_disk_and_comes_back() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    site.put("/disk", b"never on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    assert_eq!(site.locality("/disk").await, "DISK");
    let refused = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let (first, second) = (site.stage("/tape/f").await, site.stage("/tape/f").await);
    for id in [&first, &second] {
        assert_eq!(site.staged(id).await["onDisk"], true);
    }
    let got = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!((got.status, got.text().as_str()), (200, "once on tape"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_tells_why_files_wait_and_counts_what_waits_for_its_next_try() {
    let trust = Trust::new();
    let patient = |config: &mut StorageConfig| {
        with_library(config, EVICTS_ALL);
        let tape = config.nearline.as_mut().expect("there");
        (tape.retry_first, tape.retry_max) = (Duration::from_secs(600), Duration::from_secs(600));
        let TapeSystemConfig::Libraries(libraries) = &mut tape.system else {
            panic!("libraries");
        };
        libraries.policy.mount.archive_age_ns = Some(i64::from(FACTOR) * 3_600 * SECOND_NS);
    };
    let site = Site::with_tls_and(&trust, |config| with_tape(config, 0)).await;
    Hsm::of(&site).switch("fail", true);
    site.put("/tape/f", b"as it was written").await;
    let site = site.reopen_with_tls(&trust, patient).await;
    site.tape_status_becomes(|told| {
        let family = &told["libraries"]["families"][0];
        let wait = &family["waits_for"];
        family["queued"]["files"] == 1
            && wait["code"] == "not-worth-a-mount"
            && wait["until"].is_i64()
            && told["counts"]["archives"]["queued"]["bytes"] == 17
    })
    .await;
    let told = site.tape_status().await;
    assert!(told["counts"].get("removals").is_none(), "{told}");
    // A file that cannot be written now waits for its next try, and is counted there.
    let at_once = |config: &mut StorageConfig| {
        patient(config);
        let tape = config.nearline.as_mut().expect("there");
        let TapeSystemConfig::Libraries(libraries) = &mut tape.system else {
            panic!("libraries");
        };
        libraries.policy.mount.archive_age_ns = Some(0);
    };
    fs::write(site.only_data_file(), b"as it was WRITTEN").expect("written");
    let site = site.reopen_with_tls(&trust, at_once).await;
    site.tape_status_becomes(|told| {
        let archives = &told["counts"]["archives"];
        archives["delayed"]["files"] == 1
            && archives["queued"]["files"] == 0
            && told["incidents"][0]["code"] == "file-not-archived"
    })
    .await;
    fs::write(site.only_data_file(), b"as it was written").expect("written");
    let token = site.token("penstock.admin");
    let retried = site
        .send_as(&token, "POST", "/.penstock/tape/retry", &[], b"{}")
        .await;
    assert_eq!(retried.status, 202);
    site.becomes("/tape/f", "TAPE").await;
    site.tape_status_becomes(|told| told["counts"]["archives"]["delayed"]["files"] == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_another_hour_of_the_library_finds_what_is_on_its_tapes() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    for number in 0..20 {
        site.put(
            &format!("/tape/f{number}"),
            format!("file {number}").as_bytes(),
        )
        .await;
    }
    site.becomes("/tape/f19", "TAPE").await;
    let site = site.reopen(|config| with_library(config, EVICTS_ALL)).await;
    for number in 0..20 {
        let path = format!("/tape/f{number}");
        site.becomes(&path, "TAPE").await;
        let id = site.stage(&path).await;
        assert_eq!(site.staged(&id).await["onDisk"], true);
        let got = site.send("GET", &path, &[], b"").await;
        assert_eq!(got.text(), format!("file {number}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_file_is_told_when_it_will_be_there() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    // A mount takes half a minute: some seconds.
    let slowly = |config: &mut StorageConfig| {
        with_library(config, EVICTS_ALL);
        let tape = config.nearline.as_mut().expect("there");
        if let TapeSystemConfig::Libraries(libraries) = &mut tape.system {
            libraries.time_factor = 8;
        }
    };
    let site = site.reopen(slowly).await;
    let id = site.stage("/tape/f").await;
    let is_told = |file: &Value| file["expectedAt"].is_i64() || file["onDisk"] == true;
    let waiting = site.file_becomes(&id, is_told).await;
    let expected = waiting["expectedAt"].as_i64().expect("told while it waits");
    let there = site.staged(&id).await;
    let came = there["finishedAt"].as_i64().expect("it came");
    assert!(
        (came - expected).abs() <= 5,
        "{expected} foretold, {came} came"
    );
    assert!(there.get("expectedAt").is_none(), "{there}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_the_sizes_of_their_class_stay_on_disk() {
    let site = Site::with(|config| {
        with_library(config, EVICTS_ALL);
        let tape = config.nearline.as_mut().expect("there");
        tape.classes.0[0].size_min = Bytes(10);
        tape.classes.0[0].size_max = Bytes(20);
    })
    .await;
    for (path, size) in [("/tape/small", 9), ("/tape/large", 21), ("/tape/fits", 20)] {
        site.put(path, &vec![b'x'; size]).await;
    }
    site.becomes("/tape/fits", "TAPE").await;
    assert_eq!(site.locality("/tape/small").await, "DISK");
    assert_eq!(site.locality("/tape/large").await, "DISK");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_for_which_no_pool_has_room_waits_and_tapes_go_on() {
    let site = Site::with(|config| {
        with_library(config, EVICTS_ALL);
        config.pools[0].capacity = Some(Bytes(40));
        let tape = config.nearline.as_mut().expect("there");
        (tape.pins_user_max, tape.pins_vo_max) = (Some(Bytes(1_000)), Some(Bytes(1_000)));
    })
    .await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    site.put("/disk", &[7; 35]).await;
    let id = site.stage("/tape/f").await;
    let until = Instant::now() + DEADLINE;
    loop {
        let (_, told) = site.tape("GET", &format!("stage/{id}"), Value::Null).await;
        if told["files"][0].get("waitsFor").is_some() {
            break;
        }
        assert!(Instant::now() < until, "{told}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What is written does not wait for what is read.
    let removed = site.send("DELETE", "/disk", &[], b"").await;
    assert_eq!(removed.status, 204);
    assert_eq!(site.staged(&id).await["onDisk"], true);
    let got = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!(got.text(), "once on tape");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_a_tape_has_lost_never_come_back_and_who_waits_is_told() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    let cartridges = site.directory.path().join("tape/silo/cartridges");
    let mut has_spoiled = false;
    for entry in fs::read_dir(cartridges).expect("there") {
        let path = entry.expect("read").path();
        let mut bytes = fs::read(&path).expect("read");
        let found = bytes.windows(12).position(|part| part == b"once on tape");
        if let Some(at) = found {
            bytes[at] ^= 1;
            fs::write(&path, bytes).expect("written");
            has_spoiled = true;
        }
    }
    assert!(has_spoiled);
    let id = site.stage("/tape/f").await;
    let file = site.staged(&id).await;
    assert_eq!(file["state"], "FAILED");
    let error = file["error"].as_str().expect("told");
    assert!(error.contains("no copy on tape can be read"), "{error}");
    assert_eq!(site.locality("/tape/f").await, "TAPE");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tape_system_is_not_exchanged_under_its_files_and_is_while_there_are_none() {
    let site = Site::with(|config| with_tape(config, 0)).await;
    Hsm::of(&site).switch("fail", true);
    site.put("/tape/f", b"never in the HSM").await;
    // Records of the HSM's queue are left, and no file of it.
    let site = site.reopen(|config| with_library(config, EVICTS_ALL)).await;
    site.becomes("/tape/f", "TAPE").await;
    let directory = site.close().await;
    let mut other = config(directory.path());
    with_tape(&mut other, 0);
    let refused = Storage::open(other).err().expect("refused").to_string();
    assert!(
        refused.contains("penstock-tape://silo/silo-001/0?size=16"),
        "{refused}"
    );
    assert!(
        refused.contains("Put the configuration of before back"),
        "{refused}"
    );
    let site = Site::again(directory, |config| with_library(config, EVICTS_ALL)).await;
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
    // Nor the other way round.
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"in the HSM").await;
    site.becomes("/tape/f", "TAPE").await;
    let directory = site.close().await;
    let mut other = config(directory.path());
    with_library(&mut other, EVICTS_ALL);
    let refused = Storage::open(other).err().expect("refused").to_string();
    assert!(refused.contains("hsm://lab/"), "{refused}");
    assert!(
        refused.contains("Put the configuration of before back"),
        "{refused}"
    );
    let site = Site::again(directory, |config| with_tape(config, EVICTS_ALL)).await;
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_whose_disk_is_not_mounted_is_not_taken_for_a_new_one() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    let directory = site.close().await;
    let (tape, aside) = (
        directory.path().join("tape"),
        directory.path().join("aside"),
    );
    let refusal = || {
        let mut changed = config(directory.path());
        with_library(&mut changed, EVICTS_ALL);
        let refused = Storage::open(changed).err().expect("refused");
        refused.to_string()
    };
    fs::rename(&tape, &aside).expect("moved");
    let told = refusal();
    assert!(told.contains("has no library.json"), "{told}");
    assert!(told.contains("mount it"), "{told}");
    assert!(!tape.join("silo").exists(), "nothing was made");
    // A mount point.
    fs::create_dir_all(tape.join("silo/cartridges")).expect("made");
    assert!(refusal().contains("has no library.json"));
    // Another library of this site lies there.
    fs::copy(
        aside.join("silo/library.json"),
        tape.join("silo/library.json"),
    )
    .expect("copied");
    let identity = fs::read_to_string(aside.join("silo/library.json")).expect("read");
    let other = identity.replace("\"id\": \"", "\"id\": \"another-");
    fs::write(tape.join("silo/library.json"), other).expect("written");
    let told = refusal();
    assert!(
        told.contains("says that it is library 'silo' with the id another-"),
        "{told}"
    );
    // That of another storage element.
    let other = identity.replace("\"owner\": \"", "\"owner\": \"another-");
    fs::write(tape.join("silo/library.json"), other).expect("written");
    let told = refusal();
    assert!(
        told.contains("belongs to another storage element"),
        "{told}"
    );
    fs::remove_dir_all(&tape).expect("removed");
    fs::rename(&aside, &tape).expect("moved");
    let site = Site::again(directory, |config| with_library(config, EVICTS_ALL)).await;
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cartridge_that_is_missing_is_not_made_anew() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    let directory = site.close().await;
    let cartridge = directory.path().join("tape/silo/cartridges/silo-001.tape");
    let aside = directory.path().join("aside.tape");
    fs::rename(&cartridge, &aside).expect("moved");
    let site = Site::again(directory, |config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/g", b"on another tape").await;
    site.becomes("/tape/g", "TAPE").await;
    assert!(!cartridge.exists());
    let copies = site.storage.namespace().tape_copies(EntryId(0), 10);
    let copies = copies.expect("readable");
    assert!(copies[0].1[0].contains("/silo-001/"), "{copies:?}");
    assert!(copies[1].1[0].contains("/silo-002/"), "{copies:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_of_an_earlier_version_is_taken_as_it_is() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    let directory = site.close().await;
    let identity = directory.path().join("tape/silo/library.json");
    fs::remove_file(&identity).expect("removed");
    // Its records told of no id.
    forget_records(directory.path());
    let site = Site::again(directory, |config| with_library(config, EVICTS_ALL)).await;
    assert!(identity.exists());
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
}

/// What the engine has recorded is lost, as after the namespace was made again.
fn forget_records(site: &Path) {
    replace_records(site, Vec::new());
}

fn replace_records(site: &Path, records: Vec<String>) {
    let namespace = Namespace::open(&config(site).namespace).expect("opened");
    let replaced = NearlineChange::ReplaceJournal(records);
    let replaced = namespace.apply(Change::Nearline(replaced));
    replaced.expect("written");
}

/// Libraries with other numbers of drives and tapes than usual.
fn with_numbers(config: &mut StorageConfig, drives: usize, tapes: usize) {
    with_library(config, EVICTS_ALL);
    let system = &mut config.nearline.as_mut().expect("there").system;
    let TapeSystemConfig::Libraries(libraries) = system else {
        panic!("libraries");
    };
    let directory = libraries.libraries[0].directory.clone();
    let home = directory.parent().expect("a site").to_owned();
    libraries.libraries = vec![library("silo", &home, drives, tapes)];
}

fn with_second_family(config: &mut StorageConfig, drives: usize, tapes: usize) {
    with_numbers(config, drives, tapes);
    let classes = &mut config.nearline.as_mut().expect("there").classes.0;
    let mut second = classes[0].clone();
    second.path = path("/other");
    second.family = "other".to_owned();
    classes.push(second);
}

/// With a file on each of two tapes.
async fn two_families() -> Site {
    let site = Site::with(|config| with_second_family(config, 2, 4)).await;
    check(&site, "MKCOL", "/other", &[], 201).await;
    for (file, tape) in [("/tape/f", "silo-001"), ("/other/f", "silo-002")] {
        site.put(file, file.as_bytes()).await;
        site.becomes(file, "TAPE").await;
        site.lies_on(file, tape);
    }
    site
}

impl Site {
    /// The newest file of these that are on tape.
    fn lies_on(&self, file: &str, tape: &str) {
        let copies = self.storage.namespace().tape_copies(EntryId(0), 100);
        let copies = copies.expect("readable");
        let (_, newest) = copies.last().expect("one");
        assert!(newest[0].contains(tape), "{file}: {copies:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_lost_cost_no_tape_and_no_family_its_own() {
    let site = two_families().await;
    // A kill leaves both in drives.
    let directory = site.close().await;
    let drives = directory.path().join("tape/silo/drives.json");
    let in_drives = r#"{"silo-d1":"silo-001","silo-d2":"silo-002"}"#;
    fs::write(&drives, in_drives).expect("written");
    forget_records(directory.path());
    let site = Site::again(directory, |config| with_second_family(config, 2, 4)).await;
    for (file, tape) in [("/other/g", "silo-002"), ("/tape/g", "silo-001")] {
        site.put(file, file.as_bytes()).await;
        site.becomes(file, "TAPE").await;
        site.lies_on(file, tape);
    }
    for file in ["/tape/f", "/other/f", "/tape/g", "/other/g"] {
        let id = site.stage(file).await;
        assert_eq!(site.staged(&id).await["onDisk"], true);
        let got = site.send("GET", file, &[], b"").await;
        assert_eq!(got.text(), file);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_old_cost_no_tape() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"before").await;
    site.becomes("/tape/f", "TAPE").await;
    let directory = site.close().await;
    let namespace = Namespace::open(&config(directory.path()).namespace).expect("opened");
    let records = namespace.tape_journal().expect("readable");
    drop(namespace);
    let site = Site::again(directory, |config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/g", b"since").await;
    site.becomes("/tape/g", "TAPE").await;
    let directory = site.close().await;
    replace_records(directory.path(), records);
    let site = Site::again(directory, |config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/h", b"later").await;
    site.becomes("/tape/h", "TAPE").await;
    site.lies_on("/tape/h", "silo-001/11?");
    for (file, content) in [
        ("/tape/f", "before"),
        ("/tape/g", "since"),
        ("/tape/h", "later"),
    ] {
        let id = site.stage(file).await;
        assert_eq!(site.staged(&id).await["onDisk"], true);
        let got = site.send("GET", file, &[], b"").await;
        assert_eq!(got.text(), content);
    }
}

/// No tape is mounted to be written to.
fn without_mounts(config: &mut StorageConfig) {
    with_library(config, 0);
    let tape = config.nearline.as_mut().expect("there");
    let TapeSystemConfig::Libraries(libraries) = &mut tape.system else {
        panic!("libraries");
    };
    libraries.policy.mount.archive_age_ns = Some(i64::from(FACTOR) * 3_600 * SECOND_NS);
}

/// More records of the engine, as a kill leaves them.
fn append_records(site: &Path, records: &[Value]) {
    let namespace = Namespace::open(&config(site).namespace).expect("opened");
    let line = |record: &Value| json!({"library": {"at_ns": 1, "record": record}}).to_string();
    let appended = NearlineChange::AppendJournal(records.iter().map(line).collect());
    let appended = namespace.apply(Change::Nearline(appended));
    appended.expect("written");
}

impl Site {
    /// How many bytes all cartridges of the silo have.
    fn cartridge_bytes(&self) -> u64 {
        let cartridges = self.directory.path().join("tape/silo/cartridges");
        let files = fs::read_dir(cartridges).expect("there");
        let bytes = files.map(|file| file.expect("read").metadata().expect("read").len());
        bytes.sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_a_kill_kept_from_the_namespace_is_told_and_nothing_is_written_again() {
    let site = Site::with(without_mounts).await;
    site.put("/tape/f", b"once on tape").await;
    eventually("it is asked for", || {
        let journal = site.storage.namespace().tape_journal().expect("readable");
        journal.iter().any(|line| line.contains("ArchiveAsked"))
    })
    .await;
    let file = site.storage.namespace().lookup(&path("/tape/f"));
    let file = file.expect("readable").expect("there").id;
    let written = site.cartridge_bytes();
    let directory = site.close().await;
    // Its sync has returned, and the service was killed before the namespace knew it.
    let copy = json!({"tape": "silo-002", "begin_bytes": 7});
    let settled = json!({"RequestSettled": {"request": file.0, "outcome": {"Archived": [copy]}}});
    append_records(directory.path(), &[settled]);
    let site = Site::again(directory, without_mounts).await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    let copies = || {
        let copies = site.storage.namespace().tape_copies(EntryId(0), 10);
        copies.expect("readable")
    };
    let uri = "penstock-tape://silo/silo-002/7?size=12".to_owned();
    assert_eq!(copies(), [(file, vec![uri])]);
    assert_eq!(site.cartridge_bytes(), written);
    // A copy that was made when a tape was emptied is told as well.
    let directory = site.close().await;
    let repack = json!({"repack_begun": {"order": "operator", "together": []}});
    let copy = json!({"tape": "silo-003", "begin_bytes": 9});
    let records = [
        json!({"BackgroundHeld": {"until_ns": i64::MAX}}),
        json!({"Care": {"at_ns": 1, "tape": "silo-002", "step": repack}}),
        json!({"RequestSettled": {"request": file.0 | 3 << 60, "outcome": {"Archived": [copy]}}}),
    ];
    append_records(directory.path(), &records);
    let site = Site::again(directory, without_mounts).await;
    let uri = "penstock-tape://silo/silo-003/9?size=12".to_owned();
    eventually("it is moved", || {
        let copies = site.storage.namespace().tape_copies(EntryId(0), 10);
        copies.expect("readable") == [(file, vec![uri.clone()])]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_waits_for_a_copy_that_is_no_longer_wanted_is_on_tape() {
    let site = Site::with(|config| {
        with_library(config, EVICTS_ALL);
        let libraries = with_annex(config, 1);
        // Nothing fits on its tapes.
        for tape in libraries.libraries[1].definition.tapes.values_mut() {
            tape.capacity_bytes = 1;
        }
    })
    .await;
    site.put("/tape/f", b"once on tape").await;
    let cartridge = site
        .directory
        .path()
        .join("tape/silo/cartridges/silo-001.tape");
    eventually("one copy is written", || {
        fs::metadata(&cartridge).is_ok_and(|found| found.len() > 300)
    })
    .await;
    assert_eq!(site.locality("/tape/f").await, "DISK");
    let site = site.reopen(|config| with_library(config, EVICTS_ALL)).await;
    site.becomes("/tape/f", "TAPE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_with_fewer_tapes_and_drives_than_before_works_with_those_it_has() {
    let site = two_families().await;
    let site = site.reopen(|config| with_second_family(config, 1, 1)).await;
    let id = site.stage("/other/f").await;
    let failed = |file: &Value| file["state"] == "FAILED";
    let file = site.file_becomes(&id, failed).await;
    let error = file["error"].as_str().expect("told");
    assert!(error.contains("not in use"), "{error}");
    site.put("/tape/g", b"beside f").await;
    site.becomes("/tape/g", "TAPE").await;
    // Nobody has to enable what is configured again.
    let site = site.reopen(|config| with_second_family(config, 2, 4)).await;
    let id = site.stage("/other/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tape_that_was_left_in_a_drive_that_is_gone_is_read_in_another() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    let site = site.reopen(|config| with_library(config, EVICTS_ALL)).await;
    let directory = site.close().await;
    // As a kill leaves it.
    let drives = directory.path().join("tape/silo/drives.json");
    fs::write(&drives, r#"{"silo-d2":"silo-001"}"#).expect("written");
    let site = Site::again(directory, |config| with_numbers(config, 1, 4)).await;
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_copies_lie_in_two_libraries_and_small_files_together() {
    let site = Site::with(|config| {
        with_library(config, EVICTS_ALL);
        with_annex(config, 2).policy.aggregate.age_ns = 60 * SECOND_NS;
        let tape = config.nearline.as_mut().expect("there");
        tape.classes.0[0].packed_below = Bytes(100);
    })
    .await;
    let paths: Vec<String> = (0..10).map(|number| format!("/tape/f{number}")).collect();
    for path in &paths {
        site.put(path, path.as_bytes()).await;
    }
    for path in &paths {
        site.becomes(path, "TAPE").await;
    }
    let copies = site.storage.namespace().tape_copies(EntryId(0), 100);
    let copies = copies.expect("readable");
    assert_eq!(copies.len(), 10);
    for (_, uris) in &copies {
        let of = |library: &str| uris.iter().filter(|uri| uri.contains(library)).count();
        assert_eq!((of("://silo/"), of("://annex/")), (1, 1), "{uris:?}");
    }
    let all = copies.iter().flat_map(|(_, uris)| uris);
    let packed = all.filter(|uri| uri.contains("&aggregate=")).count();
    assert!(packed > 4, "{copies:?}");
    for path in &paths {
        let id = site.stage(path).await;
        assert_eq!(site.staged(&id).await["onDisk"], true);
        let got = site.send("GET", path, &[], b"").await;
        assert_eq!(got.text(), *path);
    }
}

/// Each file in a second library as well, which has so many tapes.
pub fn with_annex(config: &mut StorageConfig, tapes: usize) -> &mut LibrariesConfig {
    let home = config.namespace.ancestors().nth(2).expect("a site");
    let annex = library("annex", &home.join("tape"), 1, tapes);
    let tape = config.nearline.as_mut().expect("there");
    tape.classes.0[0].copies = 2;
    let TapeSystemConfig::Libraries(libraries) = &mut tape.system else {
        panic!("libraries");
    };
    libraries.libraries.push(annex);
    libraries
}

/// Overwrites the label of the cartridge on which these bytes lie.
fn spoil_label(site: &Path, content: &[u8]) {
    let cartridges = fs::read_dir(site.join("tape/silo/cartridges")).expect("there");
    let mut spoiled = 0;
    for entry in cartridges {
        let path = entry.expect("read").path();
        let mut bytes = fs::read(&path).expect("read");
        if bytes.windows(content.len()).any(|part| part == content) {
            bytes[..4].copy_from_slice(b"none");
            fs::write(&path, bytes).expect("written");
            spoiled += 1;
        }
    }
    assert_eq!(spoiled, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_on_disk_stays_while_all_copies_on_tape_are_known_to_be_unreadable() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/gone", b"only on the tape that breaks")
        .await;
    site.becomes("/tape/gone", "TAPE").await;
    let site = site.reopen(|config| with_library(config, 0)).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    let uris = site.storage.namespace().tape_copies(EntryId(0), 10);
    let tapes = uris.expect("readable").into_iter().map(|(_, uris)| {
        let (tape, _) = uris[0].rsplit_once('/').expect("a place");
        tape.to_owned()
    });
    let tapes: Vec<String> = tapes.collect();
    assert_eq!(tapes[0], tapes[1], "both lie on one tape");
    let directory = site.close().await;
    spoil_label(directory.path(), b"only on the tape that breaks");
    let site = Site::again(directory, |config| with_library(config, 0)).await;
    let id = site.stage("/tape/gone").await;
    site.file_becomes(&id, |file| file["state"] == "FAILED")
        .await;
    let site = site.reopen(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/later", b"on another tape").await;
    site.becomes("/tape/later", "TAPE").await;
    assert_eq!(site.locality("/tape/f").await, "DISK_AND_TAPE");
    let got = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!((got.status, got.text().as_str()), (200, "once on tape"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_without_room_on_disk_are_not_read_one_after_the_other_in_vain() {
    const FILES: usize = 60;
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, |config| {
        with_library(config, EVICTS_ALL);
        config.pools[0].capacity = Some(Bytes(20_000));
        let tape = config.nearline.as_mut().expect("there");
        (tape.retry_first, tape.retry_max) = (Duration::from_secs(600), Duration::from_secs(600));
        (tape.pins_user_max, tape.pins_vo_max) = (Some(Bytes(20_000)), Some(Bytes(20_000)));
    })
    .await;
    let files: Vec<String> = (0..FILES)
        .map(|number| format!("/tape/f{number}"))
        .collect();
    for file in &files {
        site.put(file, &[8; 100]).await;
    }
    for file in &files {
        site.becomes(file, "TAPE").await;
    }
    site.put("/disk", &[7; 19_950]).await;
    let wanted: Vec<Value> = files.iter().map(|path| json!({"path": path})).collect();
    let (status, told) = site.tape("POST", "stage", json!({"files": wanted})).await;
    assert_eq!(status, 201, "{told}");
    let id = told["requestId"].as_str().expect("named").to_owned();
    site.tape_status_becomes(|told| told["counts"]["recalls"]["delayed"]["files"] == FILES)
        .await;
    let told = site
        .tape("GET", &format!("stage/{id}"), Value::Null)
        .await
        .1;
    let files = told["files"].as_array().expect("a list");
    let waiting = files.iter().filter(|file| file["code"] == "pool-full");
    assert_eq!(waiting.count(), FILES, "{told}");
    let journal = site.storage.namespace().tape_journal().expect("readable");
    let reads = journal.iter().filter(|line| line.contains("ReadBegun"));
    assert!(reads.count() <= 4, "{FILES} files: {journal:?}");
    // Once there is room, an operator has them tried at once.
    assert_eq!(site.send("DELETE", "/disk", &[], b"").await.status, 204);
    let (token, until) = (site.token("penstock.admin"), Instant::now() + DEADLINE);
    loop {
        let place = "/.penstock/tape/retry";
        let retried = site.send_as(&token, "POST", place, &[], b"{}").await;
        assert_eq!(retried.status, 202);
        let told = site
            .tape("GET", &format!("stage/{id}"), Value::Null)
            .await
            .1;
        let files = told["files"].as_array().expect("a list");
        if files.iter().all(|file| file["onDisk"] == true) {
            break;
        }
        assert!(Instant::now() < until, "{told}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_waits_for_a_pool_that_takes_files_is_not_told_to_wait_for_room() {
    let trust = Trust::new();
    let library = |config: &mut StorageConfig| with_library(config, EVICTS_ALL);
    let site = Site::with_tls_and(&trust, library).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    let drained = |config: &mut StorageConfig| {
        library(config);
        config.pools[0].mode = PoolMode::Drained;
    };
    let site = site.reopen_with_tls(&trust, drained).await;
    let id = site.stage("/tape/f").await;
    let waits = |file: &Value| file.get("waitsFor").is_some();
    let told = site.file_becomes(&id, waits).await;
    assert_eq!(told["code"], "pool-offline", "{told}");
    let words = told["waitsFor"].as_str().expect("words");
    assert!(words.starts_with("waits for a pool"), "{words}");
    site.incidents_become(|told| told.contains("no-pool-takes-files"))
        .await;
    let site = site.reopen_with_tls(&trust, library).await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_data_changed_on_its_disk_is_not_written_to_a_tape() {
    let trust = Trust::new();
    let whole = b"as it was written";
    for damaged in [b"as it was wrItten".as_slice(), b"as it was"] {
        for packed_below in [0, 100] {
            let with_packing = |config: &mut StorageConfig| {
                with_library(config, EVICTS_ALL);
                let tape = config.nearline.as_mut().expect("there");
                tape.classes.0[0].packed_below = Bytes(packed_below);
            };
            let site = Site::with_tls_and(&trust, |config| with_tape(config, 0)).await;
            Hsm::of(&site).switch("fail", true);
            site.put("/tape/f", whole).await;
            fs::write(site.only_data_file(), damaged).expect("written");
            let site = site.reopen_with_tls(&trust, with_packing).await;
            site.incidents_become(|told| told.contains("the data of /tape/f has"))
                .await;
            assert_eq!(site.locality("/tape/f").await, "DISK");
            fs::write(site.only_data_file(), whole).expect("written");
            site.becomes("/tape/f", "TAPE").await;
            site.incidents_become(|told| told == "[]").await;
        }
    }
}
