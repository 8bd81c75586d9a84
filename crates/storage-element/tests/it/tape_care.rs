//! What is done for tapes that nobody waits for: files are verified and written again, tapes are emptied and written anew.

use crate::nearline::EVICTS_ALL;
use crate::site::{DEADLINE, Site, Trust, eventually};
use crate::tape_libraries::{with_annex, with_library};
use penstock_decide::pool_selection::PoolMode;
use penstock_model::{Bytes, PoolName};
use penstock_persistence::namespace::{EntryId, TrashQuery};
use penstock_storage_element::{StorageConfig, TapeSystemConfig};
use penstock_tape::locate::SECOND_NS;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

const SCOPES: &str = "storage.read:/ storage.modify:/ penstock.admin";

impl Site {
    async fn order(&self, method: &str, place: &str, body: Value) -> (u16, Value) {
        let token = self.token(SCOPES);
        let target = format!("/.penstock/tape/{place}");
        let body = body.to_string().into_bytes();
        let answer = self.send_as(&token, method, &target, &[], &body).await;
        (
            answer.status,
            serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
        )
    }

    async fn ordered(&self, place: &str, body: Value) {
        let (status, told) = self.order("POST", place, body).await;
        assert_eq!(status, 200, "{place}: {told}");
    }

    async fn libraries(&self) -> Value {
        let (status, told) = self.order("GET", "status", json!({})).await;
        assert_eq!(status, 200, "{told}");
        told
    }

    async fn told(&self, what: &str, is_told: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + DEADLINE;
        loop {
            let told = self.libraries().await;
            if is_told(&told) {
                return told;
            }
            assert!(Instant::now() < until, "{what}: {told:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Names of all copies on tape.
    fn copies(&self) -> Vec<(EntryId, Vec<String>)> {
        let copies = self.storage.namespace().tape_copies(EntryId(0), 1_000);
        copies.expect("readable")
    }

    /// How many copies lie on this tape.
    fn on_tape(&self, tape: &str) -> usize {
        let prefix = format!("penstock-tape://silo/{tape}/");
        let copies = self.storage.namespace().tape_copies_with(&prefix, "", 10);
        copies.expect("readable").len()
    }

    fn trash(&self) -> Vec<EntryId> {
        let trash = self.storage.namespace().trash(&TrashQuery::default(), 10);
        let trash = trash.expect("readable").into_iter();
        trash.map(|trashed| trashed.file).collect()
    }

    /// Waits until those of each file are as they should be.
    async fn copies_become(&self, are: impl Fn(&[String]) -> bool) {
        let until = Instant::now() + DEADLINE;
        while !self.copies().iter().all(|(_, uris)| are(uris)) {
            assert!(Instant::now() < until, "{:?}", self.copies());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn comes_back(&self, path: &str, content: &str) {
        let id = self.stage(path).await;
        assert_eq!(self.staged(&id).await["onDisk"], true);
        let got = self.send("GET", path, &[], b"").await;
        assert_eq!((got.status, got.text().as_str()), (200, content), "{path}");
    }

    /// Flips a bit of these bytes wherever they lie in a library.
    fn spoil(&self, library: &str, content: &str) -> usize {
        let cartridges = self.directory.path().join("tape").join(library);
        let mut spoiled = 0;
        for entry in fs::read_dir(cartridges.join("cartridges")).expect("there") {
            let path = entry.expect("read").path();
            let mut bytes = fs::read(&path).expect("read");
            let wanted = content.as_bytes();
            let found = bytes.windows(wanted.len()).position(|part| part == wanted);
            if let Some(at) = found {
                bytes[at] ^= 1;
                fs::write(&path, bytes).expect("written");
                spoiled += 1;
            }
        }
        spoiled
    }
}

fn tape<'a>(told: &'a Value, name: &str) -> &'a Value {
    let tapes = told["libraries"]["tapes"].as_array().expect("listed");
    let tape = tapes.iter().find(|tape| tape["name"] == name);
    tape.unwrap_or_else(|| panic!("{told:#}"))
}

/// The tape with most files.
fn fullest(told: &Value) -> String {
    let tapes = told["libraries"]["tapes"].as_array().expect("listed");
    let silo = tapes.iter().filter(|tape| tape["library"] == "silo");
    let most = silo.max_by_key(|tape| tape["live"]["files"].as_u64());
    most.expect("a tape")["name"]
        .as_str()
        .expect("named")
        .to_owned()
}

fn content(number: usize) -> String {
    format!("the content of file number {number}")
}

/// Puts them on tape, all on one: nothing more is written before they are.
async fn archived(site: &Site, files: std::ops::Range<usize>) {
    for number in files.clone() {
        let path = format!("/tape/s{}/f{number}", number % 3);
        site.put(&path, content(number).as_bytes()).await;
    }
    for number in files {
        let path = format!("/tape/s{}/f{number}", number % 3);
        site.becomes(&path, "TAPE").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tape_is_emptied_by_a_hint_list_and_written_anew_and_all_files_come_back() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, with_silo).await;
    archived(&site, 0..12).await;
    // What is told of tapes may be some tenths of a second old.
    let told = site
        .told("all are written", |told| {
            tape(told, &fullest(told))["written_bytes"] != 0
        })
        .await;
    let old = fullest(&told);
    let moved: Vec<u64> = site
        .copies()
        .into_iter()
        .filter(|(_, uris)| uris[0].contains(&old))
        .map(|(file, _)| file.0)
        .collect();
    assert!(moved.len() > 5, "{moved:?}");
    // The brake: files live on it.
    let relabel = format!("tape/{old}/relabel");
    let (status, told) = site.order("POST", &relabel, json!({})).await;
    let code = (status, &told["code"]);
    assert_eq!(code, (409, &json!("tape-in-use")), "{told}");
    let hints = json!({"together": ["/tape/s2", "/tape/s0"]});
    site.ordered(&format!("tape/{old}/repack"), hints).await;
    let told = site
        .told("written anew", |told| {
            let tape = tape(told, &old);
            tape["written_bytes"] == 0 && tape["state"] == "active"
        })
        .await;
    assert_eq!(told["libraries"]["care"]["repacks"], json!([]), "{told:#}");
    let mut places: Vec<(String, u64, u64)> = Vec::new();
    for (file, uris) in site.copies() {
        assert!(uris.len() == 1 && !uris[0].contains(&old), "{uris:?}");
        let mut parts = uris[0].split(['/', '?']).skip(3);
        let tape = parts.next().expect("a tape").to_owned();
        let begin = parts.next().expect("a place");
        places.push((tape, begin.parse().expect("a number"), file.0));
    }
    places.retain(|(_, _, file)| moved.contains(file));
    places.sort_unstable();
    let mut sets = Vec::new();
    for (_, _, file) in &places {
        let file = site.storage.namespace().tape_file(EntryId(*file));
        let file = file.expect("readable").expect("there");
        sets.push(file.path.names()[1].to_string());
    }
    let breaks = sets.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(breaks <= 2, "each set lies together: {sets:?}");
    for number in 0..12 {
        site.comes_back(
            &format!("/tape/s{}/f{number}", number % 3),
            &content(number),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_cannot_be_read_is_told_and_written_again_from_the_other_library() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, |config| {
        with_silo(config);
        with_unpacked_annex(config);
    })
    .await;
    archived(&site, 0..6).await;
    assert_eq!(site.spoil("silo", &content(4)), 1);
    site.ordered("tape/silo-001/verify", json!({})).await;
    let told = site
        .told("verified and mended", |told| {
            let verification = &tape(told, "silo-001")["verification"];
            let care = &told["libraries"]["care"];
            verification["ended"].is_i64()
                && verification["unreadable_files"] == 1
                && care["unreadable_files"] == 0
        })
        .await;
    assert_eq!(tape(&told, "silo-001")["verification"]["read_files"], 5);
    assert_eq!(told["incidents"], json!([]), "{told:#}");
    for (_, uris) in site.copies() {
        let of = |library: &str| uris.iter().filter(|uri| uri.contains(library)).count();
        assert_eq!((of("://silo/"), of("://annex/")), (1, 1), "{uris:?}");
    }
    // The copy in the other library is not needed any more.
    site.spoil("annex", &content(4));
    site.comes_back("/tape/s1/f4", &content(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_which_no_copy_can_be_read_is_an_incident_and_one_on_disk_is_written_again() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, with_silo).await;
    archived(&site, 0..3).await;
    assert_eq!(site.spoil("silo", &content(1)), 1);
    site.ordered("tape/silo-001/verify", json!({})).await;
    let told = site
        .told("told", |told| {
            told["libraries"]["care"]["unreadable_files"] == 1
                && tape(told, "silo-001")["verification"]["ended"].is_i64()
        })
        .await;
    let unreadable = &told["libraries"]["care"]["unreadable"][0];
    assert_eq!(unreadable["path"], "/tape/s1/f1", "{told:#}");
    assert_eq!(unreadable["has_other_copy"], false);
    let incident = told["incidents"][0]["what"].as_str().expect("one");
    assert!(incident.contains("silo-001"), "{incident}");
    // Nor is it forgotten in a restart, or by a repack: its tape stays as it is.
    let site = site.reopen_with_tls(&trust, with_silo).await;
    site.ordered("tape/silo-001/repack", json!({})).await;
    let told = site
        .told("the others are moved", |told| {
            let waits = &told["libraries"]["care"]["repacks"][0]["waits_for"];
            waits
                .as_str()
                .is_some_and(|text| text.contains("1 file still on it"))
        })
        .await;
    assert_eq!(tape(&told, "silo-001")["live"]["files"], 1);
    assert_eq!(tape(&told, "silo-001")["state"], "read-only");
    // A file whose copy is on disk all the while.
    let keeps = |config: &mut StorageConfig| with_one_tape(config, 0);
    let site = site.reopen_with_tls(&trust, keeps).await;
    site.put("/tape/on-disk", b"on disk and on tape").await;
    site.becomes("/tape/on-disk", "DISK_AND_TAPE").await;
    let name = |site: &Site| {
        let copies = site.copies();
        let uri = copies.last().expect("a file").1[0].clone();
        uri.split('/').nth(3).expect("a tape").to_owned()
    };
    let before = site.copies().last().expect("a file").1.clone();
    assert_eq!(site.spoil("silo", "on disk and on tape"), 1);
    let of = name(&site);
    site.ordered(&format!("tape/{of}/verify"), json!({})).await;
    site.told("written again", |told| {
        let unreadable = &told["libraries"]["care"]["unreadable"];
        tape(told, &of)["verification"]["unreadable_files"] == 1
            && unreadable.as_array().is_some_and(|files| files.len() == 1)
    })
    .await;
    assert_ne!(site.copies().last().expect("a file").1, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_rests_while_it_is_held_and_a_repack_can_be_stopped() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, with_silo).await;
    archived(&site, 0..4).await;
    site.ordered("background", json!({"hold_seconds": 600}))
        .await;
    site.ordered("tape/silo-001/repack", json!({})).await;
    site.ordered("tape/silo-001/verify", json!({})).await;
    site.comes_back("/tape/s0/f0", &content(0)).await;
    let told = site
        .told("held", |told| {
            let care = &told["libraries"]["care"];
            care["held_until"].is_i64() && care["repacks"][0]["tape"] == "silo-001"
        })
        .await;
    assert_eq!(tape(&told, "silo-001")["live"]["files"], 4);
    assert_eq!(tape(&told, "silo-001")["verification"]["read_files"], 0);
    let (status, _) = site
        .order("DELETE", "tape/silo-001/repack", json!({}))
        .await;
    assert_eq!(status, 200);
    site.ordered("background", json!({"hold_seconds": 0})).await;
    let told = site
        .told("verified", |told| {
            tape(told, "silo-001")["verification"]["ended"].is_i64()
        })
        .await;
    assert_eq!(tape(&told, "silo-001")["verification"]["read_files"], 4);
    assert_eq!(tape(&told, "silo-001")["live"]["files"], 4, "not moved");
    assert_eq!(tape(&told, "silo-001")["state"], "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_on_a_tape_that_is_out_of_use_are_made_again_in_its_library() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, |config| {
        with_silo(config);
        with_unpacked_annex(config);
        replacing_copies_after(config, 0);
    })
    .await;
    archived(&site, 0..6).await;
    let before = site.copies();
    // While background work is held nothing of it is done.
    site.ordered("background", json!({"hold_seconds": 600}))
        .await;
    site.ordered("tape/silo-001", json!({"state": "disabled"}))
        .await;
    site.comes_back("/tape/s0/f0", &content(0)).await;
    assert_eq!(site.copies(), before);
    site.ordered("background", json!({"hold_seconds": 0})).await;
    site.copies_become(|uris| {
        let of = |library: &str| uris.iter().filter(|uri| uri.contains(library)).count();
        let is_lost = uris.iter().any(|uri| uri.contains("/silo-001/"));
        (of("://silo/"), of("://annex/"), is_lost) == (1, 1, false)
    })
    .await;
    // The new ones are good: nothing else is left to read from.
    let site = site
        .reopen_with_tls(&trust, |config| {
            with_silo(config);
            with_unpacked_annex(config);
        })
        .await;
    site.ordered("drive/annex-d1", json!({"state": "down"}))
        .await;
    for number in 0..6 {
        let path = format!("/tape/s{}/f{number}", number % 3);
        site.comes_back(&path, &content(number)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_get_further_copies_when_their_class_wants_more() {
    let trust = Trust::new();
    let once = |config: &mut StorageConfig| {
        with_silo(config);
        with_unpacked_annex(config);
        let tape = config.nearline.as_mut().expect("there");
        tape.classes.0[0].copies = 1;
    };
    let site = Site::with_tls_and(&trust, once).await;
    archived(&site, 0..6).await;
    assert!(site.copies().iter().all(|(_, uris)| uris.len() == 1));
    let twice = |config: &mut StorageConfig| {
        with_silo(config);
        with_unpacked_annex(config);
    };
    let site = site.reopen_with_tls(&trust, twice).await;
    site.copies_become(is_in_both).await;
    assert_eq!(site.copies().len(), 6);
    // Files that were brought for that need not stay on disk.
    for number in 0..6 {
        let path = format!("/tape/s{}/f{number}", number % 3);
        site.becomes(&path, "TAPE").await;
    }
}

/// One copy in each library.
fn is_in_both(uris: &[String]) -> bool {
    let of = |library: &str| uris.iter().filter(|uri| uri.contains(library)).count();
    (of("://silo/"), of("://annex/")) == (1, 1)
}

/// The tape of a copy.
fn tape_of(uri: &str) -> String {
    uri.split('/').nth(3).expect("a tape").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_whose_tape_was_away_get_further_copies_when_it_is_used_again() {
    let trust = Trust::new();
    for wait_ns in [i64::MAX, 0] {
        let twice = |config: &mut StorageConfig| {
            with_silo(config);
            with_unpacked_annex(config);
            replacing_copies_after(config, wait_ns);
        };
        let once = |config: &mut StorageConfig| {
            twice(config);
            let tape = config.nearline.as_mut().expect("there");
            tape.classes.0[0].copies = 1;
        };
        let site = Site::with_tls_and(&trust, once).await;
        archived(&site, 0..4).await;
        let away = tape_of(&site.copies()[0].1[0]);
        let is_away = |uris: &[String]| uris.len() == 1 && tape_of(&uris[0]) == away;
        assert!(site.copies().iter().all(|(_, uris)| is_away(uris)));
        let place = format!("tape/{away}");
        site.ordered(&place, json!({"state": "disabled"})).await;
        let site = site.reopen_with_tls(&trust, twice).await;
        // All files are looked through at once, and those of tapes out of use every hour of the libraries, which is less than a second.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(site.copies().iter().all(|(_, uris)| is_away(uris)));
        site.ordered(&place, json!({"state": "enabled"})).await;
        site.copies_become(is_in_both).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_copy_on_disk_is_damaged_is_read_from_tape_for_its_further_copy() {
    let trust = Trust::new();
    let whole = "as it was written";
    let twice = |config: &mut StorageConfig| {
        with_one_tape(config, 0);
        with_unpacked_annex(config);
    };
    let once = |config: &mut StorageConfig| {
        twice(config);
        let tape = config.nearline.as_mut().expect("there");
        tape.classes.0[0].copies = 1;
    };
    for damaged in [Some("as it was wrItten"), Some("as it was"), None] {
        let site = Site::with_tls_and(&trust, once).await;
        site.put("/tape/f", whole.as_bytes()).await;
        site.becomes("/tape/f", "DISK_AND_TAPE").await;
        let data = site.only_data_file();
        match damaged {
            Some(damaged) => fs::write(data, damaged).expect("written"),
            None => fs::remove_file(data).expect("removed"),
        }
        let site = site.reopen_with_tls(&trust, twice).await;
        site.copies_become(is_in_both).await;
        site.becomes("/tape/f", "DISK_AND_TAPE").await;
        let got = site.send("GET", "/tape/f", &[], b"").await;
        assert_eq!((got.status, got.text().as_str()), (200, whole));
        let told = site.libraries().await;
        assert_eq!(told["incidents"], json!([]), "{damaged:?}: {told:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_copy_on_disk_is_gone_when_its_file_has_come_back_to_another_pool() {
    let trust = Trust::new();
    let whole = "as it was written";
    let site = Site::with_tls_and(&trust, |config| {
        with_one_tape(config, 0);
        with_unpacked_annex(config);
        let tape = config.nearline.as_mut().expect("there");
        tape.classes.0[0].copies = 1;
    })
    .await;
    site.put("/tape/f", whole.as_bytes()).await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    let data = site.only_data_file();
    fs::write(&data, "as it was wrItten").expect("written");
    let site = site
        .reopen_with_tls(&trust, |config| {
            with_one_tape(config, 0);
            with_unpacked_annex(config);
            let mut second = config.pools[0].clone();
            second.name = PoolName::new("p2");
            second.directory = second.directory.with_file_name("p2");
            config.pools.push(second);
            config.pools[0].mode = PoolMode::Drained;
        })
        .await;
    site.copies_become(is_in_both).await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    let now = site.only_data_file();
    assert!(now.starts_with(site.directory.path().join("pools/p2")));
    assert_eq!(fs::read(&now).expect("read"), whole.as_bytes());
    let quarantine = site.directory.path().join("pools/p1/quarantine");
    let is_empty = || fs::read_dir(&quarantine).expect("there").next().is_none();
    eventually("nothing is left of the damaged copy", is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_one_good_copy_is_written_again_from_that_though_its_copy_on_disk_is_damaged() {
    let trust = Trust::new();
    let whole = "good in the annex only";
    let site = Site::with_tls_and(&trust, |config| {
        with_one_tape(config, 0);
        with_unpacked_annex(config);
    })
    .await;
    site.put("/tape/f", whole.as_bytes()).await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    fs::write(site.only_data_file(), "good in the annex Only").expect("written");
    let uris = site.copies()[0].1.clone();
    let silo = uris.iter().find(|uri| uri.contains("://silo/"));
    let tape_name = tape_of(silo.expect("one in each"));
    assert_eq!(site.spoil("silo", whole), 1);
    let place = format!("tape/{tape_name}/verify");
    site.ordered(&place, json!({})).await;
    let told = site
        .told("verified and written again", |told| {
            tape(told, &tape_name)["verification"]["unreadable_files"] == 1
                && told["libraries"]["care"]["unreadable_files"] == 0
        })
        .await;
    assert_eq!(told["incidents"], json!([]), "{told:#}");
    assert!(is_in_both(&site.copies()[0].1));
    assert_ne!(site.copies()[0].1, uris);
    let got = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!((got.status, got.text().as_str()), (200, whole));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_in_the_trash_do_not_keep_a_lost_tape_from_becoming_empty() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, |config| {
        with_one_tape(config, 0);
        with_unpacked_annex(config);
        replacing_copies_after(config, 0);
        config.limits.trash = Duration::from_secs(3_600);
    })
    .await;
    for path in ["/tape/kept", "/tape/removed"] {
        site.put(path, path.as_bytes()).await;
    }
    for path in ["/tape/kept", "/tape/removed"] {
        site.becomes(path, "DISK_AND_TAPE").await;
    }
    assert_eq!(
        site.send("DELETE", "/tape/removed", &[], b"").await.status,
        204
    );
    let uris = site.copies().remove(0).1;
    let silo = uris.iter().find(|uri| uri.contains("://silo/"));
    let lost = tape_of(silo.expect("one in each"));
    assert_eq!(site.on_tape(&lost), 2, "one of them in the trash");
    site.ordered(&format!("tape/{lost}"), json!({"state": "disabled"}))
        .await;
    let is_empty = || site.on_tape(&lost) == 0;
    eventually("nothing lives on the lost tape", is_empty).await;
    let removed = site.trash().remove(0);
    let good = site.storage.namespace().tape_copies_of(removed);
    let good = good.expect("readable");
    assert!(
        good.len() == 1 && good[0].uri.contains("://annex/"),
        "{good:?}"
    );
    let owed = site.storage.namespace().owed_tape_removals("", 10);
    assert_eq!(owed.expect("readable"), Vec::<String>::new());
    // It comes back from the trash, is on tape as it was, and gets a further copy.
    let token = site.token(SCOPES);
    let place = format!("/.penstock/trash/{removed}");
    let restored = site.send_as(&token, "POST", &place, &[], b"{}").await;
    assert_eq!(restored.status, 201, "{}", restored.text());
    site.becomes("/tape/removed", "DISK_AND_TAPE").await;
    site.copies_become(is_in_both).await;
    assert_eq!((site.copies().len(), site.on_tape(&lost)), (2, 0));
    let copies = site.storage.namespace().tape_copies_of(removed);
    assert!(copies.expect("readable").contains(&good[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_trash_keeps_its_only_copy_on_tape_while_its_data_is_not_as_written() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, |config| {
        with_one_tape(config, 0);
        replacing_copies_after(config, 0);
        config.limits.trash = Duration::from_secs(3_600);
    })
    .await;
    site.put("/tape/damaged", b"as it was written").await;
    let data = site.only_data_file();
    site.put("/tape/good", b"good").await;
    for path in ["/tape/damaged", "/tape/good"] {
        site.becomes(path, "DISK_AND_TAPE").await;
        assert_eq!(site.send("DELETE", path, &[], b"").await.status, 204);
    }
    fs::write(data, "as it was wrItten").expect("written");
    let (damaged, uris) = site.copies().remove(0);
    let lost = tape_of(&uris[0]);
    site.ordered(&format!("tape/{lost}"), json!({"state": "disabled"}))
        .await;
    let is_one_left = || site.on_tape(&lost) == 1;
    eventually("what has good data is given up", is_one_left).await;
    // Files are looked for once an hour of the libraries, which is less than a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(site.copies(), [(damaged, uris)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_a_good_copy_is_an_incident_that_names_it_and_one_on_disk_is_written_again()
{
    let trust = Trust::new();
    let keeps = |config: &mut StorageConfig| {
        with_one_tape(config, 0);
        replacing_copies_after(config, 0);
    };
    let site = Site::with_tls_and(&trust, with_silo).await;
    archived(&site, 0..2).await;
    let site = site.reopen_with_tls(&trust, keeps).await;
    site.put("/tape/on-disk", b"on disk and on tape").await;
    site.becomes("/tape/on-disk", "DISK_AND_TAPE").await;
    let on = |number: usize| {
        let uri = site.copies()[number].1[0].clone();
        uri.split('/').nth(3).expect("a tape").to_owned()
    };
    assert_eq!(on(2), on(0), "all lie on one tape");
    let lost = on(0);
    site.ordered(&format!("tape/{lost}"), json!({"state": "disabled"}))
        .await;
    let told = site
        .told("told", |told| {
            told["incidents"][0]["code"] == "files-without-copy"
                && told["libraries"]["care"]["without_copy_files"] == 2
        })
        .await;
    let incident = told["incidents"][0]["what"].as_str().expect("words");
    let is_named = incident.starts_with(&format!("2 files on tape {lost} without a copy"));
    assert!(is_named && incident.contains("/tape/s0/f0"), "{incident}");
    let named = &told["libraries"]["care"]["without_copy"];
    let paths = [&named[0]["path"], &named[1]["path"]];
    assert_eq!(paths, ["/tape/s0/f0", "/tape/s1/f1"], "{told:#}");
    eventually("what is on disk is written again", || on(2) != lost).await;
    // The tape is found.
    site.ordered(&format!("tape/{lost}"), json!({"state": "enabled"}))
        .await;
    site.told("over", |told| {
        told["incidents"] == json!([]) && told["libraries"]["care"]["without_copy_files"] == 0
    })
    .await;
    site.comes_back("/tape/s0/f0", &content(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tape_that_is_out_of_use_for_a_short_while_costs_no_copies() {
    let trust = Trust::new();
    let patient = |config: &mut StorageConfig| {
        with_silo(config);
        with_unpacked_annex(config);
        replacing_copies_after(config, i64::MAX);
    };
    let site = Site::with_tls_and(&trust, patient).await;
    archived(&site, 0..2).await;
    let before = site.copies();
    site.ordered("tape/silo-001", json!({"state": "disabled"}))
        .await;
    // Files are looked for once an hour of the libraries, which is less than a second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(site.copies(), before);
    assert_eq!(site.libraries().await["incidents"], json!([]));
}

/// Files are written to tape again one after the other.
fn with_small_parts(config: &mut StorageConfig, keep_free_permille: u16) {
    with_one_tape(config, keep_free_permille);
    config.limits.trash = Duration::from_secs(3_600);
    let tape = config.nearline.as_mut().expect("there");
    if let TapeSystemConfig::Libraries(libraries) = &mut tape.system {
        libraries.care.part_bytes = 1;
    }
}

/// A site with these files on disk and on one tape, of which the first cannot be read there, as a verification has found. No tape takes
/// them again.
async fn with_unreadable(trust: &Trust, files: usize, unreadable: usize) -> Site {
    let site = Site::with_tls_and(trust, |config| with_small_parts(config, 0)).await;
    for number in 0..files {
        let path = format!("/tape/f{number}");
        site.put(&path, content(number).as_bytes()).await;
    }
    for number in 0..files {
        site.becomes(&format!("/tape/f{number}"), "DISK_AND_TAPE")
            .await;
    }
    let tapes: BTreeSet<String> = site
        .copies()
        .iter()
        .map(|(_, uris)| tape_of(&uris[0]))
        .collect();
    assert_eq!(tapes.len(), 1, "all lie on one tape");
    for number in 0..unreadable {
        assert_eq!(site.spoil("silo", &content(number)), 1);
    }
    for number in 1..=4 {
        let read_only = json!({"state": "read_only"});
        site.ordered(&format!("tape/silo-{number:03}"), read_only)
            .await;
    }
    let place = format!("tape/{}/verify", tapes.first().expect("one"));
    site.ordered(&place, json!({})).await;
    site.told("found", |told| {
        told["libraries"]["care"]["unreadable_files"] == unreadable
    })
    .await;
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_leaves_the_disk_whose_copy_on_tape_is_known_to_be_unreadable() {
    let trust = Trust::new();
    let site = with_unreadable(&trust, 3, 2).await;
    // One of both at a time is to be written again, and cannot be.
    let site = site
        .reopen_with_tls(&trust, |config| with_small_parts(config, EVICTS_ALL))
        .await;
    // Copies leave in the order of their files.
    site.becomes("/tape/f2", "TAPE").await;
    for number in 0..2 {
        let path = format!("/tape/f{number}");
        assert_eq!(site.locality(&path).await, "DISK_AND_TAPE");
        let got = site.send("GET", &path, &[], b"").await;
        assert_eq!((got.status, got.text()), (200, content(number)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_cannot_be_read_is_known_as_long_as_its_file_can_be_restored() {
    let trust = Trust::new();
    let site = with_unreadable(&trust, 2, 1).await;
    let removed = site.send("DELETE", "/tape/f0", &[], b"").await;
    assert_eq!(removed.status, 204);
    let file = site.trash().remove(0);
    let site = site
        .reopen_with_tls(&trust, |config| with_small_parts(config, 0))
        .await;
    // Files that cannot be read are looked at once an hour of the libraries, which is less than a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = site.libraries().await;
    assert_eq!(told["libraries"]["care"]["unreadable_files"], 1, "{told:#}");
    let token = site.token(SCOPES);
    let place = format!("/.penstock/trash/{file}");
    let restored = site.send_as(&token, "POST", &place, &[], b"{}").await;
    assert_eq!(restored.status, 201, "{}", restored.text());
    let site = site
        .reopen_with_tls(&trust, |config| with_small_parts(config, EVICTS_ALL))
        .await;
    site.becomes("/tape/f1", "TAPE").await;
    site.becomes("/tape/f0", "DISK_AND_TAPE").await;
    let got = site.send("GET", "/tape/f0", &[], b"").await;
    assert_eq!((got.status, got.text()), (200, content(0)));
    // It is removed once more while it waits to be written again, and then there are tapes for that.
    let removed = site.send("DELETE", "/tape/f0", &[], b"").await;
    assert_eq!(removed.status, 204);
    for number in 1..=4 {
        let enabled = json!({"state": "enabled"});
        site.ordered(&format!("tape/silo-{number:03}"), enabled)
            .await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = site.libraries().await;
    assert_eq!(told["libraries"]["care"]["unreadable_files"], 1, "{told:#}");
    // When it is gone for good nobody needs to know.
    let place = "/.penstock/trash?path=/tape";
    let emptied = site.send_as(&token, "DELETE", place, &[], b"").await;
    assert_eq!(emptied.status, 200, "{}", emptied.text());
    site.told("forgotten", |told| {
        told["libraries"]["care"]["unreadable_files"] == 0 && told["incidents"] == json!([])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_which_both_copies_cannot_be_read_has_no_other_copy_and_is_not_read_for_ever() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, |config| {
        with_silo(config);
        with_unpacked_annex(config);
        replacing_copies_after(config, 0);
    })
    .await;
    archived(&site, 0..2).await;
    for library in ["silo", "annex"] {
        assert_eq!(site.spoil(library, &content(1)), 1);
    }
    let uris = site.copies().remove(1).1;
    let silo = uris.iter().find(|uri| uri.contains("://silo/"));
    let annex = uris.iter().find(|uri| uri.contains("://annex/"));
    let tapes = [silo, annex].map(|uri| tape_of(uri.expect("one in each")));
    let place = format!("tape/{}/verify", tapes[0]);
    site.ordered(&place, json!({})).await;
    let told = site
        .told("both are known", |told| {
            let unreadable = &told["libraries"]["care"]["unreadable"];
            unreadable.as_array().is_some_and(|all| all.len() == 2)
        })
        .await;
    let care = &told["libraries"]["care"];
    assert_eq!(care["unreadable_files"], 1);
    for (one, tape) in [1, 0].into_iter().zip(&tapes) {
        let one = &care["unreadable"][one];
        assert_eq!(
            (&one["path"], &one["tape"], &one["has_other_copy"]),
            (&json!("/tape/s1/f1"), &json!(tape), &json!(false)),
            "{care:#}"
        );
    }
    // It is tried again once an hour of the libraries, which is less than a second, if there is something to read.
    let mounts = |told: &Value| told["libraries"]["mounts"].as_array().map(Vec::len);
    site.told("the drives are free", |told| {
        let drives = told["libraries"]["drives"].as_array().expect("listed");
        drives.iter().all(|drive| drive["state"] == "free")
    })
    .await;
    let before = mounts(&site.libraries().await);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(mounts(&site.libraries().await), before);
    // When one of the tapes is out of use the file has a copy on the other one that counts for nothing.
    site.ordered(&format!("tape/{}", tapes[1]), json!({"state": "disabled"}))
        .await;
    let told = site
        .told("it is told", |told| {
            told["libraries"]["care"]["without_copy_files"] == 1
        })
        .await;
    let lost = &told["libraries"]["care"]["without_copy"][0];
    assert_eq!(lost["path"], "/tape/s1/f1");
}

fn replacing_copies_after(config: &mut StorageConfig, wait_ns: i64) {
    let tape = config.nearline.as_mut().expect("there");
    if let TapeSystemConfig::Libraries(libraries) = &mut tape.system {
        libraries.care.copies_wait_ns = wait_ns;
    }
}

/// Files of a family lie on one tape, until that is full.
fn with_one_tape(config: &mut StorageConfig, keep_free_permille: u16) {
    with_library(config, keep_free_permille);
    let tape = config.nearline.as_mut().expect("there");
    if let TapeSystemConfig::Libraries(libraries) = &mut tape.system {
        libraries.policy.mount.family_drives_max = 1;
        // They gather for more than a second.
        libraries.policy.mount.archive_age_ns = Some(7_200 * SECOND_NS);
    }
}

fn with_silo(config: &mut StorageConfig) {
    with_one_tape(config, EVICTS_ALL);
}

fn with_unpacked_annex(config: &mut StorageConfig) {
    with_annex(config, 3);
    let tape = config.nearline.as_mut().expect("there");
    tape.classes.0[0].packed_below = Bytes(0);
}
