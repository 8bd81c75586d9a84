//! What users of files on tape are told: bounds, waits and failures, misuse, and one locality through every door.

use crate::nearline::{EVICTS_ALL, Hsm, with_tape};
use crate::recovery::{config, order_of};
use crate::site::{DEADLINE, Site, Trust, check, path};
use penstock_decide::pool_selection::PoolMode;
use penstock_model::{Bytes, PoolName};
use penstock_persistence::namespace::EntryKind;
use penstock_storage_element::fsck::check as fsck;
use penstock_storage_element::rebuild::{RebuildRequest, rebuild};
use penstock_storage_element::{StorageConfig, TapeSystemConfig};
use penstock_tape::hsm_queue::HsmWidePattern;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const CONTENT: &[u8] = b"once on tape";

/// Everything is in the pool while it has room, and on tape only once somebody needs the room.
fn with_quota(config: &mut StorageConfig, user: u64) {
    with_tape(config, EVICTS_ALL);
    let nearline = config.nearline.as_mut().expect("configured");
    nearline.pins_user_max = Some(Bytes(user));
    // What files on disk only leave of a small pool would be too little for a file that waits for room.
    nearline.pins_vo_max = Some(Bytes(1_000));
}

fn with_reads(config: &mut StorageConfig) {
    with_tape(config, EVICTS_ALL);
    config.nearline.as_mut().expect("configured").stages_on_read = true;
}

impl Site {
    async fn put_on_tape(&self, paths: &[&str]) {
        for path in paths {
            self.put(path, CONTENT).await;
        }
        for path in paths {
            self.becomes(path, "TAPE").await;
        }
    }

    async fn progress(&self, id: &str) -> Value {
        let (status, told) = self.tape("GET", &format!("stage/{id}"), Value::Null).await;
        assert_eq!(status, 200, "{told}");
        told
    }

    /// What is told of the first file of a request, once it fits.
    pub async fn file_becomes(&self, id: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + DEADLINE;
        loop {
            let told = self.progress(id).await["files"][0].clone();
            if fits(&told) {
                return told;
            }
            assert!(Instant::now() < until, "{told}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_a_user_pins_are_bounded_and_what_is_released_makes_room() {
    let site = Site::with(|config| with_quota(config, 30)).await;
    site.put_on_tape(&["/tape/a", "/tape/b", "/tape/c"]).await;
    let files = json!({"files": [{"path": "/tape/a"}, {"path": "/tape/b"}, {"path": "/tape/c"}]});
    let (status, told) = site.tape("POST", "stage", files).await;
    assert_eq!(status, 201);
    let id = told["requestId"].as_str().expect("named").to_owned();
    let refused = site.progress(&id).await["files"][2].clone();
    assert_eq!(
        (&refused["state"], &refused["code"]),
        (&json!("FAILED"), &json!("pins-exhausted"))
    );
    let error = refused["error"].as_str().expect("told");
    assert!(error.contains("you keep 24 of 30 bytes"), "{error}");
    assert_eq!(site.staged(&id).await["onDisk"], true);
    let release = format!("release/{id}");
    let (status, _) = site
        .tape("POST", &release, json!({"paths": ["/tape/a"]}))
        .await;
    assert_eq!(status, 200);
    let id = site.stage("/tape/c").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_finds_no_room_says_so_becomes_an_incident_and_goes_on_by_itself() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, |config| {
        with_quota(config, 1_000);
        config.pools[0].capacity = Some(Bytes(40));
        // Exit codes are the program's: no room on this side is none of them.
        let nearline = config.nearline.as_mut().expect("configured");
        let TapeSystemConfig::Program(program) = &mut nearline.system else {
            panic!("a program");
        };
        program.policy.hsm_wide = vec![HsmWidePattern {
            kind: None,
            codes: vec![41, 42],
            text: None,
        }];
    })
    .await;
    site.put_on_tape(&["/tape/f"]).await;
    site.put("/disk", &[7; 35]).await;
    let id = site.stage("/tape/f").await;
    let told = site
        .file_becomes(&id, |file| file.get("waitsFor").is_some())
        .await;
    assert_eq!(
        (&told["state"], &told["code"]),
        (&json!("SUBMITTED"), &json!("pool-full"))
    );
    assert!(
        told["waitsFor"]
            .as_str()
            .expect("told")
            .starts_with("waits for room on disk")
    );
    assert!(
        told.get("error").is_none(),
        "clients would give it up: {told}"
    );
    site.incidents_become(|told| told.contains("wait for room on disk"))
        .await;
    let incidents = site.tape_incidents().await;
    assert!(!incidents.contains("out of service"), "{incidents}");
    let removed = site.send("DELETE", "/disk", &[], b"").await;
    assert_eq!(removed.status, 204);
    let told = site.staged(&id).await;
    assert_eq!(
        (&told["onDisk"], told.get("waitsFor")),
        (&json!(true), None),
        "{told}"
    );
    site.incidents_become(|told| !told.contains("wait for room"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_file_that_does_not_come_from_tape_is_told_why_and_not_to_wait_for_ever() {
    let site = Site::with(with_reads).await;
    let hsm = Hsm::of(&site);
    site.put_on_tape(&["/tape/f"]).await;
    let reader = site.token("storage.read:/");
    let refused = site.send_as(&reader, "GET", "/tape/f", &[], b"").await;
    assert_eq!(
        (refused.status, refused.header("penstock-problem")),
        (409, "file-on-tape")
    );
    assert_eq!(hsm.calls("get"), 0, "who may not stage has nothing brought");
    hsm.switch("spoil", true);
    let user = site.token(crate::nearline::SCOPES);
    let read = async || site.send_as(&user, "GET", "/tape/f", &[], b"").await;
    let first = read().await;
    assert_eq!(
        (first.status, first.header("penstock-problem")),
        (503, "file-recalling")
    );
    assert_eq!(first.header("retry-after"), "60");
    let until = Instant::now() + DEADLINE;
    let failed = loop {
        let told = read().await;
        if told.status != 503 {
            break told;
        }
        assert!(Instant::now() < until, "{}", told.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(
        (failed.status, failed.header("penstock-problem")),
        (502, "tape-failed")
    );
    assert!(
        failed
            .text()
            .contains("does not come from tape: the tape system has brought other bytes")
    );
    let tries = hsm.calls("get");
    assert_eq!(read().await.status, 502);
    assert_eq!(hsm.calls("get"), tries, "it is not tried again at once");
    // Who asks for it by a stage request has it tried again, and readers are told of that.
    hsm.switch("spoil", false);
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
    assert_eq!(read().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_with_too_many_pins_is_refused_and_leaves_no_request() {
    let site = Site::with(|config| {
        with_quota(config, 5);
        config.nearline.as_mut().expect("configured").stages_on_read = true;
    })
    .await;
    site.put_on_tape(&["/tape/f"]).await;
    let user = site.token(crate::nearline::SCOPES);
    for _ in 0..2 {
        let told = site.send_as(&user, "GET", "/tape/f", &[], b"").await;
        assert_eq!(
            (told.status, told.header("penstock-problem")),
            (429, "pins-exhausted")
        );
    }
    assert_eq!(Hsm::of(&site).calls("get"), 0);
}

/// A file in some state, and what each door tells of it: locality; status and code of GET and of the copies.
struct Case {
    path: &'static str,
    locality: &'static str,
    srm: &'static str,
    head: u16,
    read: (u16, &'static str),
    copy: (u16, &'static str),
}

impl Case {
    async fn check(&self, site: &Site, there: &Site) {
        let Case { path, .. } = *self;
        let user = site.token(crate::nearline::SCOPES);
        let ask = async |method, headers: &[(&str, &str)], body: &[u8]| {
            site.send_as(&user, method, path, headers, body).await
        };
        assert_eq!(
            site.locality(path).await,
            self.locality,
            "{path}: archiveinfo"
        );
        let question = b"<D:propfind xmlns:D='DAV:'><D:prop><S:FileLocality xmlns:S='http://srm.lbl.gov/StorageResourceManager'/>\
            </D:prop></D:propfind>";
        let found = ask("PROPFIND", &[("depth", "0")], question).await;
        let told = format!("<S:FileLocality>{}</S:FileLocality>", self.srm);
        assert!(found.text().contains(&told), "{path}: {}", found.text());
        let head = ask("HEAD", &[], b"").await;
        assert_eq!(head.status, self.head, "{path}: HEAD");
        if head.status == 200 {
            assert_eq!(
                head.header("penstock-locality"),
                self.locality,
                "{path}: HEAD"
            );
        }
        let got = ask("GET", &[], b"").await;
        assert_eq!(
            (got.status, got.header("penstock-problem")),
            self.read,
            "{path}: GET"
        );
        let beside = site.url("/beside").to_string();
        let copied = ask("COPY", &[("destination", &beside)], b"").await;
        assert_eq!(
            (copied.status, copied.header("penstock-problem")),
            self.copy,
            "{path}: COPY"
        );
        let away = there.url("/copy").to_string();
        let bearer = format!("Bearer {}", there.token("storage.read:/ storage.modify:/"));
        let headers = [
            ("destination", &*away),
            ("transferheaderauthorization", &bearer),
            ("credential", "none"),
        ];
        let pushed = ask("COPY", &headers, b"").await;
        let expected = match self.copy.0 {
            201 | 204 => (202, ""),
            _ => self.copy,
        };
        assert_eq!(
            (pushed.status, pushed.header("penstock-problem")),
            expected,
            "{path}: push"
        );
    }
}

const OFFLINE: (u16, &str) = (503, "pool-offline");

#[tokio::test(flavor = "multi_thread")]
async fn each_door_tells_the_same_of_where_a_file_is() {
    let there = Site::new().await;
    let site = Site::with(|config| with_tape(config, 0)).await;
    let case = |path, locality, srm| Case {
        path,
        locality,
        srm,
        head: 200,
        read: (200, ""),
        copy: (201, ""),
    };
    site.put("/disk", CONTENT).await;
    case("/disk", "DISK", "ONLINE").check(&site, &there).await;
    site.put("/empty", b"").await;
    let empty = Case {
        copy: (204, ""),
        ..case("/empty", "NONE", "NONE")
    };
    empty.check(&site, &there).await;
    site.put("/tape/cached", CONTENT).await;
    site.becomes("/tape/cached", "DISK_AND_TAPE").await;
    let cached = Case {
        copy: (204, ""),
        ..case("/tape/cached", "DISK_AND_TAPE", "ONLINE_AND_NEARLINE")
    };
    cached.check(&site, &there).await;
    site.reload(|config| config.pools[0].mode = PoolMode::Disabled);
    for (path, locality) in [("/disk", "UNAVAILABLE"), ("/tape/cached", "UNAVAILABLE")] {
        let away = Case {
            head: 503,
            read: OFFLINE,
            copy: OFFLINE,
            ..case(path, locality, "UNAVAILABLE")
        };
        away.check(&site, &there).await;
    }
    let site = site.reopen(|config| with_tape(config, EVICTS_ALL)).await;
    site.becomes("/tape/cached", "TAPE").await;
    let tape = |told| Case {
        read: told,
        copy: told,
        ..case("/tape/cached", "TAPE", "NEARLINE")
    };
    tape((409, "file-on-tape")).check(&site, &there).await;
    // Once somebody waits for it, each door says so.
    let site = site.reopen(with_reads).await;
    Hsm::of(&site).switch("wait", true);
    tape((503, "file-recalling")).check(&site, &there).await;
    Hsm::of(&site).switch("wait", false);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_misuse_of_the_tape_interface_is_answered_with_a_problem_document() {
    let site = Site::with(|config| with_tape(config, 0)).await;
    let user = site.token(crate::nearline::SCOPES);
    let deep = format!("{{\"files\":{}", "[".repeat(200_000));
    let deep_beside = format!("{{\"x\":{}", "[".repeat(200_000));
    let many = format!(
        "{{\"files\":[{{\"path\":\"/a\"}}{}]}}",
        ",{\"path\":\"/a\"}".repeat(200)
    );
    let long = format!("{{\"files\":[{{\"path\":\"/{}\"}}]}}", "a".repeat(20_000));
    let large = "x".repeat(900_000);
    let bodies: [(&str, u16); 19] = [
        ("", 400),
        ("null", 400),
        ("[]", 400),
        ("{}", 400),
        ("{\"files\":null}", 400),
        ("{\"files\":{}}", 400),
        ("{\"files\":[]}", 400),
        ("{\"files\":[null]}", 400),
        ("{\"files\":[1]}", 400),
        ("{\"files\":[{\"path\":7}]}", 400),
        ("{\"files\":[{\"path\":\"/a\",\"diskLifetime\":3}]}", 400),
        (
            "{\"files\":[{\"path\":\"/a\",\"diskLifetime\":\"P1Y\"}]}",
            400,
        ),
        ("{\"files\":[{\"path\":\"/a\"}]", 400),
        ("{\"files\":[{\"path\":\"/a\"}],\"files\":[]}", 400),
        ("{\"files\":[{\"path\":\"/a\"}]} and more", 400),
        (&deep, 400),
        (&deep_beside, 400),
        (&many, 413),
        (&large, 413),
    ];
    let check = async |method: &str, place: &str, body: &[u8], status: u16| {
        let target = format!("/.penstock/tape/{place}");
        let told = site.send_as(&user, method, &target, &[], body).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!(
            told.status,
            status,
            "{method} {place} {shown}: {}",
            told.text()
        );
        assert_eq!(
            told.header("content-type"),
            "application/problem+json",
            "{method} {place} {shown}"
        );
        let document: Value = serde_json::from_slice(&told.body).expect("a document");
        assert_eq!(document["status"], status);
        assert!(
            document["detail"]
                .as_str()
                .is_some_and(|text| text.len() < 500),
            "{document}"
        );
    };
    for (body, status) in bodies {
        check("POST", "v1/stage", body.as_bytes(), status).await;
    }
    check("POST", "v1/stage", long.as_bytes(), 400).await;
    check(
        "POST",
        "v1/stage",
        b"{\"files\":[{\"path\":\"\xff\"}]}",
        400,
    )
    .await;
    for place in ["v1/archiveinfo", "v1/release/any", "v1/stage/none/cancel"] {
        for body in [
            "",
            "{\"paths\":[]}",
            "{\"paths\":[{}]}",
            "{\"paths\":\"/a\"}",
        ] {
            check("POST", place, body.as_bytes(), 400).await;
        }
    }
    check("POST", "v1/stage/none/cancel", b"{\"paths\":[\"/a\"]}", 404).await;
    check("GET", "v1/stage/none", b"", 404).await;
    check("DELETE", "v1/stage/none", b"", 404).await;
    check("GET", "v1/nothing", b"", 404).await;
    check("PUT", "v1/stage", b"", 405).await;
    check("GET", "v1/archiveinfo", b"", 405).await;
    check("GET", "status", b"", 403).await;
    // What is no path is told of that file alone.
    let files = json!({"files": [{"path": "/a\u{0}b"}, {"path": "relative"}, {"path": "/../x"}]});
    let (status, told) = site.tape("POST", "stage", files).await;
    assert_eq!(status, 201, "{told}");
    let told = site
        .progress(told["requestId"].as_str().expect("named"))
        .await;
    for number in 0..3 {
        let file = &told["files"][number];
        assert_eq!(file["state"], "FAILED", "{file}");
        assert!(
            file["error"].as_str().is_some_and(|text| text.len() < 500),
            "{file}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_made_again_knows_files_that_are_on_tape_only_and_brings_them() {
    let site = Site::with(|config| with_quota(config, 1_000)).await;
    site.put_on_tape(&["/tape/f", "/tape/moved", "/tape/removed"])
        .await;
    check(&site, "MKCOL", "/later", &[], 201).await;
    check(
        &site,
        "MOVE",
        "/tape/moved",
        &[("destination", "/later/g")],
        201,
    )
    .await;
    check(&site, "DELETE", "/tape/removed", &[], 204).await;
    let hsm = Hsm::of(&site);
    hsm.switch("wait", true);
    site.put("/tape/precious", CONTENT).await;
    let directory = site.close().await;
    let config = config(directory.path());
    let order = RebuildRequest {
        namespace: config.namespace.clone(),
        pools: order_of(&config, false).pools,
        replace: true,
        dry_run: false,
    };
    let made = rebuild(&order, |_| ()).expect("made").rebuilt;
    assert_eq!(
        (made.files, made.tape_only, made.lost),
        (3, 2, 0),
        "{made:?}"
    );
    let site = Site::again(directory, |config| with_quota(config, 1_000)).await;
    let hsm = Hsm::of(&site);
    assert_eq!(site.locality("/tape/precious").await, "DISK");
    let puts = hsm.calls("put");
    for path in ["/tape/f", "/later/g"] {
        assert_eq!(site.locality(path).await, "TAPE");
        let head = site
            .send("HEAD", path, &[("want-digest", "adler32")], b"")
            .await;
        assert_eq!((head.status, head.header("content-length")), (200, "12"));
        assert!(!head.header("digest").is_empty(), "{path}");
    }
    hsm.switch("wait", false);
    for path in ["/tape/f", "/later/g"] {
        let id = site.stage(path).await;
        assert_eq!(site.staged(&id).await["onDisk"], true);
        assert_eq!(site.get(path).await.body, CONTENT);
    }
    site.becomes("/tape/precious", "TAPE").await;
    assert!(
        hsm.calls("put") <= puts + 2,
        "what is on tape is put there no second time"
    );
}

/// Two pools, whose files stay on disk and are on tape, too.
fn with_two_pools(config: &mut StorageConfig) {
    with_tape(config, 0);
    let mut second = config.pools[0].clone();
    second.name = PoolName::new("p2");
    second.directory = config.pools[0].directory.with_file_name("p2");
    config.pools.push(second);
}

impl Site {
    fn pool_of(&self, at: &str) -> Option<PoolName> {
        let entry = self.storage.namespace().lookup(&path(at));
        match entry.expect("readable").expect("there").kind {
            EntryKind::File { pool, .. } => pool,
            EntryKind::Directory => panic!("a directory"),
        }
    }

    fn set_mode(&self, pool: &PoolName, mode: PoolMode) {
        self.reload(|config| {
            with_two_pools(config);
            let found = config.pools.iter_mut().find(|one| one.name == *pool);
            found.expect("configured").mode = mode;
        });
    }

    /// Files of data in a pool.
    fn data_files_in(&self, pool: &PoolName) -> usize {
        let data = self.directory.path().join(format!("pools/{pool}/data"));
        let directories = std::fs::read_dir(data).expect("readable");
        let count = |directory: std::fs::DirEntry| {
            std::fs::read_dir(directory.path())
                .expect("readable")
                .count()
        };
        directories
            .map(|directory| count(directory.expect("read")))
            .sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_a_pool_that_stays_away_comes_from_tape_and_its_old_copy_goes_when_the_pool_is_back()
 {
    let site = Site::with(with_two_pools).await;
    let hsm = Hsm::of(&site);
    site.put("/tape/f", CONTENT).await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    let home = site.pool_of("/tape/f").expect("on disk");
    site.set_mode(&home, PoolMode::Disabled);
    assert_eq!(site.locality("/tape/f").await, "UNAVAILABLE");
    let id = site.stage("/tape/f").await;
    let told = site.progress(&id).await["files"][0].clone();
    if told.get("onDisk").is_none() {
        assert_eq!(told["state"], "SUBMITTED", "{told}");
    }
    assert_eq!(site.staged(&id).await["onDisk"], true);
    let other = site.pool_of("/tape/f").expect("on disk");
    assert_ne!(other, home);
    assert_eq!(
        (hsm.calls("get"), site.get("/tape/f").await.text()),
        (1, "once on tape".to_owned())
    );
    assert_eq!(
        (site.data_files_in(&home), site.data_files_in(&other)),
        (1, 1)
    );
    site.set_mode(&home, PoolMode::Enabled);
    let until = Instant::now() + DEADLINE;
    while site.data_files_in(&home) > 0 {
        assert!(Instant::now() < until, "the old copy stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(site.pool_of("/tape/f"), Some(other.clone()));
    assert_eq!(site.get("/tape/f").await.body, CONTENT);
    let directory = site.close().await;
    let signer_config = {
        let mut config = config(directory.path());
        with_two_pools(&mut config);
        config
    };
    let found = fsck(&order_of(&signer_config, false), |_| ()).expect("compared");
    let wrong = (
        found.missing.count,
        found.unknown.count,
        found.wrong_size.count,
    );
    assert_eq!((found.files, wrong), (1, (0, 0, 0)), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_a_pool_that_is_soon_back_is_not_read_from_tape() {
    let long = |config: &mut StorageConfig| {
        with_two_pools(config);
        config.nearline.as_mut().expect("configured").pool_away_wait = Duration::from_secs(600);
    };
    let site = Site::with(long).await;
    site.put("/tape/f", CONTENT).await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    let home = site.pool_of("/tape/f").expect("on disk");
    site.set_mode(&home, PoolMode::Disabled);
    let id = site.stage("/tape/f").await;
    let told = site.progress(&id).await["files"][0].clone();
    assert_eq!(
        (&told["state"], &told["code"]),
        (&json!("SUBMITTED"), &json!("pool-offline")),
        "{told}"
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    site.set_mode(&home, PoolMode::Enabled);
    let told = site.staged(&id).await;
    assert_eq!(
        (&told["onDisk"], told.get("waitsFor")),
        (&json!(true), None),
        "{told}"
    );
    assert_eq!(Hsm::of(&site).calls("get"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_in_a_pool_that_is_away_counts_until_all_of_the_file_has_come_from_tape() {
    let site = Site::with(with_two_pools).await;
    let hsm = Hsm::of(&site);
    site.put("/tape/f", CONTENT).await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    let home = site.pool_of("/tape/f").expect("on disk");
    hsm.switch("spoil", true);
    site.set_mode(&home, PoolMode::Disabled);
    let id = site.stage("/tape/f").await;
    let told = site
        .file_becomes(&id, |file| file["state"] == "FAILED")
        .await;
    assert_eq!(told["code"], "tape-failed", "{told}");
    let gets = hsm.calls("get");
    site.set_mode(&home, PoolMode::Enabled);
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
    let directory = site.close().await;
    let site = Site::again(directory, with_two_pools).await;
    assert_eq!(site.pool_of("/tape/f"), Some(home.clone()));
    assert_eq!(site.get("/tape/f").await.body, CONTENT);
    assert_eq!(
        (site.data_files_in(&home), hsm.calls("get")),
        (1, gets),
        "nothing was removed, and nothing more was read from tape"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_only_pool_is_waited_for_there() {
    let site = Site::with(|config| with_tape(config, 0)).await;
    site.put("/tape/f", CONTENT).await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    site.reload(|config| config.pools[0].mode = PoolMode::Disabled);
    let id = site.stage("/tape/f").await;
    // Longer than files of a pool that is away wait, where there is another one.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let told = site.progress(&id).await["files"][0].clone();
    assert_eq!(
        (&told["state"], &told["code"]),
        (&json!("SUBMITTED"), &json!("pool-offline")),
        "{told}"
    );
    site.reload(|config| with_tape(config, 0));
    assert_eq!(site.staged(&id).await["onDisk"], true);
    assert_eq!(site.get("/tape/f").await.body, CONTENT);
    assert_eq!(Hsm::of(&site).calls("get"), 0);
}
