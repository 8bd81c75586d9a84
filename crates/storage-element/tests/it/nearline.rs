//! Files that go to tape: an HSM that is a directory, driven by commands as sites with dCache have them.

use crate::recovery::{config, order_of};
use crate::site::{DEADLINE, Site, Trust};
use penstock_model::{Bytes, NamespacePath, TapeSample, Timestamp};
use penstock_persistence::namespace::{Change, Namespace, NearlineChange};
use penstock_storage_element::fsck::check;
use penstock_storage_element::hsm_command::HsmCommandConfig;
use penstock_storage_element::{
    ArchiveClass, ArchiveClasses, HsmProgramConfig, NearlineConfig, StorageConfig, TapeSystemConfig,
};
use penstock_tape::hsm_queue::{HsmBatch, HsmPolicy};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An HSM that is a directory. It notes each call, fails while there is a file `fail`, fails for good in words of the service while there is a file `quote`, waits while there is a file `wait`, and
/// spoils what it brings while there is a file `spoil`, and
/// brings a symbolic link while there is a file `link`. While there is a file `same` it names all that it stores alike. While there is a file `late` it leaves a process of its own session that has the
/// brought file open, and writes to it when there is a file `write`.
const PROGRAM: &str = r#"#!/bin/sh
set -eu
home=$(dirname "$0")
echo "$1" >> "$home/calls"
while [ -e "$home/wait" ]; do sleep 0.05; done
if [ -e "$home/quote" ]; then echo "the tape system has brought /secret/path" >&2; exit 33; fi
if [ -e "$home/fail" ]; then echo "HPSS error -28: no space in class 12" >&2; exit 5; fi
for argument in "$@"; do
    case "$argument" in -uri=*) uri="${argument#-uri=}";; esac
done
case "$1" in
    put)
        cp "$3" "$home/tape/$2.part"
        mv "$home/tape/$2.part" "$home/tape/$2"
        if [ -e "$home/same" ]; then echo "hsm://lab/same"; else echo "hsm://lab/$2"; fi;;
    get)
        if [ -e "$home/link" ]; then ln -sf "$home/tape/${uri#hsm://lab/}" "$3"; exit 0; fi
        cp "$home/tape/${uri#hsm://lab/}" "$3"
        if [ -e "$home/late" ]; then
            setsid sh -c 'exec 3<>"$1"; : > "$2/opened"
                while [ ! -e "$2/write" ]; do sleep 0.02; done; printf X >&3; : > "$2/written"' \
                sh "$3" "$home" > "$home/late-log" 2>&1 < /dev/null &
            while [ ! -e "$home/opened" ]; do sleep 0.02; done
        fi
        if [ -e "$home/spoil" ]; then printf x | dd of="$3" conv=notrunc 2>/dev/null; fi;;
    remove) rm -f "$home/tape/${uri#hsm://lab/}";;
    *) exit 2;;
esac
"#;

pub fn only_data_file(site: &Path) -> PathBuf {
    let below = |directory: &Path| {
        let entries = fs::read_dir(directory).expect("readable");
        entries
            .map(|entry| entry.expect("read").path())
            .collect::<Vec<_>>()
    };
    let pools = below(&site.join("pools"));
    let groups = pools.iter().flat_map(|pool| below(&pool.join("data")));
    let mut files = groups.flat_map(|group| below(&group));
    let only = files.next().expect("one");
    assert_eq!(files.next(), None);
    only
}

pub const SCOPES: &str = "storage.read:/ storage.modify:/ storage.stage:/";

pub struct Hsm(pub PathBuf);

impl Hsm {
    fn make(directory: &Path) -> Hsm {
        let home = directory.join("hsm");
        fs::create_dir_all(home.join("tape")).expect("made");
        let program = home.join("hsm.sh");
        fs::write(&program, PROGRAM).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        Hsm(home)
    }

    pub fn of(site: &Site) -> Hsm {
        Hsm(site.directory.path().join("hsm"))
    }

    pub fn switch(&self, name: &str, on: bool) {
        let file = self.0.join(name);
        match on {
            true => fs::write(file, "").expect("written"),
            false => fs::remove_file(file).expect("removed"),
        }
    }

    pub fn calls(&self, kind: &str) -> usize {
        let calls = fs::read_to_string(self.0.join("calls")).unwrap_or_default();
        calls.lines().filter(|line| *line == kind).count()
    }

    pub fn on_tape(&self) -> usize {
        fs::read_dir(self.0.join("tape")).expect("there").count()
    }
}

/// What has room for nothing: each copy on disk that may go goes.
pub const EVICTS_ALL: u16 = 1_000;

pub fn with_tape(config: &mut StorageConfig, keep_free_permille: u16) {
    let home = config.namespace.ancestors().nth(2).expect("a site");
    let hsm = Hsm::make(home);
    let mut policy = HsmPolicy::usual();
    policy.batch = HsmBatch {
        bytes: 1,
        files: 1,
        age_ns: 0,
    };
    (policy.retry_first_ns, policy.retry_max_ns) = (100_000_000, 200_000_000);
    (policy.pause_first_ns, policy.pause_max_ns) = (200_000_000, 400_000_000);
    let program = HsmProgramConfig {
        commands: HsmCommandConfig::usual(hsm.0.join("hsm.sh"), hsm.0.clone()),
        policy,
    };
    config.nearline = Some(nearline(
        TapeSystemConfig::Program(program),
        keep_free_permille,
    ));
}

/// Files below `/tape` go to tape.
pub fn nearline(system: TapeSystemConfig, keep_free_permille: u16) -> NearlineConfig {
    NearlineConfig {
        classes: ArchiveClasses(vec![ArchiveClass {
            path: NamespacePath::parse("/tape").expect("valid"),
            size_min: Bytes(0),
            size_max: Bytes(1_000_000_000),
            family: "raw".to_owned(),
            vo: None,
            copies: 1,
            packed_below: Bytes(0),
            wait_max: None,
        }]),
        system,
        retry_first: Duration::from_millis(100),
        retry_max: Duration::from_millis(500),
        pin_usual: Duration::from_secs(600),
        pin_max: Duration::from_secs(6_000),
        stage_files_max: 100,
        pins_user_max: None,
        pins_vo_max: None,
        pool_away_wait: Duration::from_millis(300),
        room_wait_max: Duration::from_millis(300),
        removed_kept: Duration::from_secs(7 * 86_400),
        stage_kept: Duration::from_secs(3_600),
        keep_free_permille,
        upkeep_interval: Duration::from_millis(50),
        stages_on_read: false,
        buffer_directory: None,
        has_public_metrics: false,
        site_name: "lab".to_owned(),
    }
}

impl Site {
    /// What an administrator is told.
    pub async fn tape_status(&self) -> Value {
        let token = self.token("penstock.admin");
        let status = self
            .send_as(&token, "GET", "/.penstock/tape/status", &[], b"")
            .await;
        serde_json::from_slice(&status.body).expect("a status")
    }

    pub async fn tape_status_becomes(&self, fits: impl Fn(&Value) -> bool) {
        let until = Instant::now() + DEADLINE;
        loop {
            let told = self.tape_status().await;
            if fits(&told) {
                return;
            }
            assert!(Instant::now() < until, "{told}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What an administrator is told to look at.
    pub async fn tape_incidents(&self) -> String {
        self.tape_status().await["incidents"].to_string()
    }

    pub async fn incidents_become(&self, fits: impl Fn(&str) -> bool) {
        let until = Instant::now() + DEADLINE;
        loop {
            let told = self.tape_incidents().await;
            if fits(&told) {
                return;
            }
            assert!(Instant::now() < until, "{told}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Where the data of the only file lies.
    pub fn only_data_file(&self) -> PathBuf {
        only_data_file(self.directory.path())
    }
    pub async fn tape(&self, method: &str, place: &str, body: Value) -> (u16, Value) {
        let token = self.token(SCOPES);
        let target = format!("/.penstock/tape/v1/{place}");
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let answer = self.send_as(&token, method, &target, &[], &body).await;
        (
            answer.status,
            serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
        )
    }

    pub async fn locality(&self, path: &str) -> String {
        let (status, told) = self
            .tape("POST", "archiveinfo", json!({"paths": [path]}))
            .await;
        assert_eq!(status, 200);
        told[0]["locality"]
            .as_str()
            .unwrap_or_else(|| panic!("{told}"))
            .to_owned()
    }

    pub async fn becomes(&self, path: &str, wanted: &str) {
        let until = Instant::now() + DEADLINE;
        loop {
            let now = self.locality(path).await;
            if now == wanted {
                return;
            }
            assert!(Instant::now() < until, "{path} is {now}, not {wanted}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn stage(&self, path: &str) -> String {
        let files = json!({"files": [{"path": path, "diskLifetime": "PT1H"}]});
        let (status, told) = self.tape("POST", "stage", files).await;
        assert_eq!(status, 201, "{told}");
        told["requestId"].as_str().expect("named").to_owned()
    }

    pub async fn staged(&self, id: &str) -> Value {
        let until = Instant::now() + DEADLINE;
        loop {
            let (status, told) = self.tape("GET", &format!("stage/{id}"), Value::Null).await;
            assert_eq!((status, told["id"].as_str()), (200, Some(id)));
            if told.get("completedAt").is_some() {
                return told["files"][0].clone();
            }
            assert!(Instant::now() < until, "{told}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_goes_to_tape_leaves_the_disk_and_comes_back_when_it_is_asked_for() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    let hsm = Hsm::of(&site);
    site.put("/tape/f", b"once on tape").await;
    site.put("/disk", b"never on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    assert_eq!((hsm.calls("put"), hsm.on_tape()), (1, 1));
    assert_eq!(site.locality("/disk").await, "DISK");
    let refused = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(
        refused.text().contains("stage request"),
        "{}",
        refused.text()
    );
    let head = site.send("HEAD", "/tape/f", &[], b"").await;
    assert_eq!((head.status, head.header("content-length")), (200, "12"));
    let (first, second) = (site.stage("/tape/f").await, site.stage("//tape//f").await);
    for id in [&first, &second] {
        let file = site.staged(id).await;
        assert_eq!(
            (file["onDisk"].as_bool(), &file["error"]),
            (Some(true), &Value::Null)
        );
    }
    assert_eq!(hsm.calls("get"), 1, "one read for all who ask");
    assert_eq!(site.locality("/tape/f").await, "DISK_AND_TAPE");
    let got = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!((got.status, got.text().as_str()), (200, "once on tape"));
    let (status, _) = site
        .tape("DELETE", &format!("stage/{first}"), Value::Null)
        .await;
    assert_eq!(status, 200);
    let (status, _) = site
        .tape("GET", &format!("stage/{first}"), Value::Null)
        .await;
    assert_eq!(status, 404);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        site.locality("/tape/f").await,
        "DISK_AND_TAPE",
        "the other one still needs it"
    );
    let release = format!("release/{second}");
    let (status, _) = site
        .tape("POST", &release, json!({"paths": ["/tape/f"]}))
        .await;
    assert_eq!(status, 200);
    site.becomes("/tape/f", "TAPE").await;
    assert_eq!(hsm.calls("put"), 1, "it is there already");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hsm_that_is_full_is_one_incident_and_no_file_is_lost() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    let hsm = Hsm::of(&site);
    hsm.switch("fail", true);
    for number in 0..12 {
        site.put(&format!("/tape/f{number}"), b"precious").await;
    }
    let until = Instant::now() + DEADLINE;
    while hsm.calls("put") < 8 {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for number in 0..12 {
        assert_eq!(site.locality(&format!("/tape/f{number}")).await, "DISK");
    }
    hsm.switch("fail", false);
    for number in 0..12 {
        site.becomes(&format!("/tape/f{number}"), "TAPE").await;
    }
    assert_eq!(hsm.on_tape(), 12);
}

/// What the tape part told in all seconds so far, added up.
fn told_of_tape(site: &Site) -> TapeSample {
    let (_, seconds) = site.storage.pool_seconds(Timestamp(0), Timestamp(i64::MAX));
    let mut all = TapeSample::default();
    let tape = seconds.iter().filter_map(|second| second.tape.as_ref());
    tape.for_each(|second| all.add(second));
    all
}

async fn tape_tells(site: &Site, what: &str, is_so: impl Fn(&TapeSample) -> bool) {
    let until = Instant::now() + DEADLINE;
    loop {
        let told = told_of_tape(site);
        if is_so(&told) {
            return;
        }
        assert!(Instant::now() < until, "{what}: {told:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_does_with_files_is_sampled_beside_the_pools() {
    let site = Site::with(|config| {
        with_tape(config, EVICTS_ALL);
        let nearline = config.nearline.as_mut().expect("it has tape");
        let TapeSystemConfig::Program(program) = &mut nearline.system else {
            panic!("a program");
        };
        program.policy.gets_max = 1;
        program.policy.batch.age_ns = 2_000_000_000;
        nearline.buffer_directory = Some(program.commands.directory.clone());
    })
    .await;
    let hsm = Hsm::of(&site);
    // A program that hangs: bytes wait for it, and none is written.
    hsm.switch("wait", true);
    for number in 0..3 {
        site.put(&format!("/tape/f{number}"), b"seven b").await;
    }
    tape_tells(&site, "waiting bytes", |told| told.unwritten_bytes >= 21).await;
    let told = told_of_tape(&site);
    assert_eq!((told.written_files, told.write_cycle_seconds), (0, Some(2)));
    assert!(told.buffer_used_permille.is_some());
    // What only drives know is unknown, however often it is asked for.
    assert_eq!((told.mounts, told.read_bytes), (None, None));
    hsm.switch("wait", false);
    tape_tells(&site, "written bytes", |told| {
        (told.written_files, told.written_bytes) == (3, 21)
    })
    .await;
    for number in 0..3 {
        site.becomes(&format!("/tape/f{number}"), "TAPE").await;
    }
    // One command at once may bring files: the others wait.
    hsm.switch("wait", true);
    for number in 0..3 {
        site.stage(&format!("/tape/f{number}")).await;
    }
    tape_tells(&site, "waiting recalls", |told| {
        told.drives_busy > 0 && told.recalls_queued >= 2
    })
    .await;
    hsm.switch("wait", false);
    tape_tells(&site, "recalled bytes", |told| {
        (told.recalled_files, told.recalled_bytes) == (3, 21) && told.recalls_started >= 3
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_waited_for_until_the_program_gives_the_first_of_it() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    let hsm = Hsm::of(&site);
    site.put("/tape/f", b"seven b").await;
    site.becomes("/tape/f", "TAPE").await;
    // The command runs, and waits in the HSM.
    hsm.switch("wait", true);
    site.stage("/tape/f").await;
    tape_tells(&site, "a recall that waits at two looks", |told| {
        told.recalls_queued >= 2 && told.drives_busy > 0 && told.recalls_started == 0
    })
    .await;
    hsm.switch("wait", false);
    tape_tells(&site, "the wait", |told| {
        told.recalls_started == 1 && told.recall_wait_ms >= 500 && told.recalled_files == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_with_what_was_asked_for() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    let hsm = Hsm::of(&site);
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    hsm.switch("wait", true);
    let id = site.stage("/tape/f").await;
    site.put("/tape/g", b"on its way").await;
    let until = Instant::now() + DEADLINE;
    while hsm.calls("get") == 0 || hsm.calls("put") < 2 {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let site = site.reopen(|config| with_tape(config, EVICTS_ALL)).await;
    Hsm::of(&site).switch("wait", false);
    assert_eq!(site.staged(&id).await["onDisk"], true);
    site.becomes("/tape/g", "TAPE").await;
    let got = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!(got.text(), "once on tape");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_than_were_written_never_come_back_from_tape() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    let hsm = Hsm::of(&site);
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    hsm.switch("spoil", true);
    let id = site.stage("/tape/f").await;
    let file = site.staged(&id).await;
    assert_eq!(file["state"], "FAILED");
    let error = file["error"].as_str().expect("told");
    assert!(error.contains("other bytes"), "{error}");
    assert_eq!(site.locality("/tape/f").await, "TAPE");
    hsm.switch("spoil", false);
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_staged_is_told_for_each_file() {
    let site = Site::with(|config| with_tape(config, 0)).await;
    site.put("/tape/f", b"on disk").await;
    site.put("/tape/empty", b"").await;
    let files = json!({"files": [{"path": "/tape/f"}, {"path": "/tape"}, {"path": "/tape/empty"}, {"path": "/missing"}]});
    let (status, told) = site.tape("POST", "stage", files).await;
    assert_eq!(status, 201);
    let id = told["requestId"].as_str().expect("named");
    let (_, told) = site.tape("GET", &format!("stage/{id}"), Value::Null).await;
    assert_eq!(told["files"][0]["onDisk"], true);
    for (number, words) in [(1, "a directory"), (2, "empty"), (3, "does not exist")] {
        let file = &told["files"][number];
        assert_eq!(file["state"], "FAILED");
        assert!(
            file["error"].as_str().expect("told").contains(words),
            "{file}"
        );
    }
    let (status, _) = site.tape("POST", "stage", json!({"files": []})).await;
    assert_eq!(status, 400);
    let cancel = json!({"paths": ["/tape/f", "/other"]});
    let (status, told) = site
        .tape("POST", &format!("stage/{id}/cancel"), cancel)
        .await;
    assert_eq!(status, 400, "{told}");
    let placeholder = json!({"paths": ["/tape/f"]});
    let (status, _) = site
        .tape("POST", "release/gfal2-placeholder-id", placeholder)
        .await;
    assert_eq!(status, 200);
    assert_eq!(site.locality("/tape/empty").await, "NONE");
}

/// The data of the one file that is in the pool.
pub fn data_of(site: &Site, path: &str) -> PathBuf {
    let path = NamespacePath::parse(path).expect("valid");
    let entry = site.storage.namespace().lookup(&path);
    let id = entry.expect("readable").expect("there").id;
    let pool = site.directory.path().join("pools/p1");
    pool.join(format!("data/{:x}/{id}", id.0 / 4096))
}

async fn on_disk_and_tape(site: &Site, path: &str) {
    site.put(path, b"once on tape").await;
    site.becomes(path, "DISK_AND_TAPE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_copy_on_disk_is_lost_comes_from_tape_to_who_asks() {
    let site = Site::with(|config| with_tape(config, 0)).await;
    on_disk_and_tape(&site, "/tape/f").await;
    fs::remove_file(data_of(&site, "/tape/f")).expect("removed");
    let id = site.stage("/tape/f").await;
    let until = Instant::now() + DEADLINE;
    while site.send("GET", "/tape/f", &[], b"").await.status != 200 {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(site.staged(&id).await["onDisk"], true);
    assert_eq!(Hsm::of(&site).calls("get"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_whose_end_was_not_recorded_takes_nothing_away() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
    let path = NamespacePath::parse("/tape/f").expect("valid");
    let file = site
        .storage
        .namespace()
        .lookup(&path)
        .expect("readable")
        .expect("there")
        .id;
    let (directory, hsm_calls) = (site.close().await, 1);
    // As a crash leaves it between the change that makes the file visible and the record of the command's end.
    let namespace =
        Namespace::open(&directory.path().join("state/namespace.sqlite")).expect("opens");
    let asked = json!({"GetAsked": {"at_ns": 1, "get": {
        "request": file.0 | 1 << 63, "file": file.0, "size_bytes": 12, "uri": "hsm://lab/x",
        "asker": {"vo": "a", "priority": 3, "deadline_ns": null, "lease_ns": i64::MAX}}}});
    let begun = json!({"CommandBegun": {"at_ns": 1, "command": 900, "target": {"Get": file.0}, "is_canary": false}});
    let records = vec![asked.to_string(), begun.to_string()];
    let append = Change::Nearline(NearlineChange::AppendJournal(records));
    namespace.apply(append).expect("kept");
    drop(namespace);
    let site = Site::again(directory, |config| with_tape(config, EVICTS_ALL)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let got = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!((got.status, got.text().as_str()), (200, "once on tape"));
    assert_eq!(Hsm::of(&site).calls("get"), hsm_calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_removes_entries_without_data_keeps_what_is_on_tape() {
    let site = Site::with(|config| with_tape(config, 0)).await;
    on_disk_and_tape(&site, "/tape/f").await;
    let data = data_of(&site, "/tape/f");
    let directory = site.close().await;
    fs::remove_file(data).expect("removed");
    let mut order = order_of(&config(directory.path()), true);
    order.repair.removes_missing = true;
    check(&order, |_| ()).expect("compared");
    let site = Site::again(directory, |config| with_tape(config, 0)).await;
    assert_eq!(site.locality("/tape/f").await, "TAPE");
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
    assert_eq!(Hsm::of(&site).calls("remove"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_learn_and_leave_nothing_and_other_credentials_of_a_user_change_nothing() {
    let site = Site::with(|config| with_tape(config, 0)).await;
    on_disk_and_tape(&site, "/tape/f").await;
    let body = br#"{"files": [{"path": "/.."}]}"#;
    for place in ["stage", "archiveinfo", "release/x"] {
        let target = format!("/.penstock/tape/v1/{place}");
        let answer = site.send_bare("POST", &target, &[], body).await;
        assert_eq!(answer.status, 401, "{place}");
    }
    let id = site.stage("/tape/f").await;
    let target = format!("/.penstock/tape/v1/stage/{id}");
    let narrow = site.token("storage.read:/other storage.stage:/other");
    assert_eq!(
        site.send_as(&narrow, "DELETE", &target, &[], b"")
            .await
            .status,
        403
    );
    let reader = site.token("storage.read:/");
    assert_eq!(
        site.send_as(&reader, "DELETE", &target, &[], b"")
            .await
            .status,
        403
    );
    let looker = site.token("storage.poll:/");
    assert_eq!(
        site.send_as(&looker, "GET", &target, &[], b"").await.status,
        200
    );
    let other = site.token_with(|claims| {
        claims.sub = "mallory".to_owned();
        claims.scope = SCOPES.to_owned();
    });
    assert_eq!(
        site.send_as(&other, "GET", &target, &[], b"").await.status,
        404
    );
    assert_eq!(site.staged(&id).await["onDisk"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_says_is_not_told_to_users_and_a_link_is_no_file() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    let hsm = Hsm::of(&site);
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    hsm.switch("link", true);
    let id = site.stage("/tape/f").await;
    let until = Instant::now() + DEADLINE;
    while hsm.calls("get") < 2 {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(site.locality("/tape/f").await, "TAPE");
    hsm.switch("link", false);
    assert_eq!(site.staged(&id).await["onDisk"], true);
    site.put("/tape/g", b"once on tape").await;
    site.becomes("/tape/g", "TAPE").await;
    // Not even when it uses the words of the service itself.
    hsm.switch("quote", true);
    let id = site.stage("/tape/g").await;
    let told = site.staged(&id).await.to_string();
    assert!(told.contains("did not bring it in 1 tries"), "{told}");
    assert!(!told.contains("secret"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_still_writes_after_its_end_changes_nothing_of_what_was_accepted() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    let hsm = Hsm::of(&site);
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    hsm.switch("late", true);
    let id = site.stage("/tape/f").await;
    assert_eq!(site.staged(&id).await["onDisk"], true);
    hsm.switch("write", true);
    let until = Instant::now() + DEADLINE;
    while !hsm.0.join("written").exists() {
        assert!(
            Instant::now() < until,
            "{:?}",
            fs::read_to_string(hsm.0.join("late-log"))
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let got = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!((got.status, got.text().as_str()), (200, "once on tape"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_data_changed_on_its_disk_is_not_told_to_be_on_tape() {
    let trust = Trust::new();
    let whole = b"as it was written";
    for damaged in [b"as it was wrItten".as_slice(), b"as it was"] {
        let site = Site::with_tls_and(&trust, |config| with_tape(config, EVICTS_ALL)).await;
        let hsm = Hsm::of(&site);
        hsm.switch("wait", true);
        site.put("/tape/f", whole).await;
        let data = site.only_data_file();
        fs::write(&data, damaged).expect("written");
        hsm.switch("wait", false);
        site.incidents_become(|told| told.contains("the data of /tape/f has"))
            .await;
        assert_eq!(site.locality("/tape/f").await, "DISK");
        // A person brings the data back, while no command is reading it: one that had read the other data would be compared with
        // what is there by then. What was stored before does not count.
        hsm.switch("wait", true);
        let begun = || hsm.calls("put") + hsm.calls("remove");
        let (before, until) = (begun(), Instant::now() + DEADLINE);
        while begun() == before {
            assert!(Instant::now() < until);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        fs::write(&data, whole).expect("written");
        hsm.switch("wait", false);
        site.becomes("/tape/f", "TAPE").await;
        site.incidents_become(|told| told == "[]").await;
        let id = site.stage("/tape/f").await;
        let told = site.staged(&id).await;
        assert_eq!(told["onDisk"], true, "{told}");
        assert_eq!(site.get("/tape/f").await.body, whole);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_names_two_files_alike_keeps_the_second_one_from_leaving_the_disk() {
    let trust = Trust::new();
    let site = Site::with_tls_and(&trust, |config| with_tape(config, EVICTS_ALL)).await;
    let hsm = Hsm::of(&site);
    hsm.switch("same", true);
    site.put("/tape/first", b"has its name").await;
    site.becomes("/tape/first", "TAPE").await;
    site.put("/tape/second", b"has not").await;
    site.incidents_become(|told| told.contains("hsm://lab/same on tape is that of file"))
        .await;
    assert_eq!(site.locality("/tape/second").await, "DISK");
    hsm.switch("same", false);
    site.becomes("/tape/second", "TAPE").await;
    site.incidents_become(|told| told == "[]").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_was_not_seen_for_a_moment_is_kept_while_a_recall_takes_its_place() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    let hsm = Hsm::of(&site);
    hsm.switch("wait", true);
    site.put("/tape/f", b"once on tape").await;
    let data = site.only_data_file();
    hsm.switch("wait", false);
    site.becomes("/tape/f", "TAPE").await;
    let until = Instant::now() + DEADLINE;
    while data.exists() {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fs::write(&data, b"once on tape").expect("there again");
    hsm.switch("spoil", true);
    let id = site.stage("/tape/f").await;
    site.file_becomes(&id, |file| file["state"] == "FAILED")
        .await;
    let pool = data.ancestors().nth(3).expect("a pool").to_owned();
    let kept = || -> Vec<Vec<u8>> {
        let kept = fs::read_dir(pool.join("quarantine")).expect("readable");
        kept.map(|entry| fs::read(entry.expect("read").path()).expect("read"))
            .collect()
    };
    assert_eq!(kept(), [b"once on tape"]);
    // A recall that was killed before its entry said so leaves the same: it waits there until the file has come.
    let site = site.reopen(|config| with_tape(config, 0)).await;
    assert_eq!(kept(), [b"once on tape"]);
    hsm.switch("spoil", false);
    let id = site.stage("/tape/f").await;
    site.staged(&id).await;
    assert_eq!(site.get("/tape/f").await.body, b"once on tape");
    assert_eq!(kept(), [b""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_data_has_just_gone_loses_no_copies() {
    let site = Site::with(|config| with_tape(config, 0)).await;
    site.put("/tape/f", b"once on tape").await;
    site.becomes("/tape/f", "DISK_AND_TAPE").await;
    let data = site.only_data_file();
    let root = data.ancestors().nth(2).expect("the data of a pool");
    let aside = root.with_file_name("aside");
    fs::rename(root, &aside).expect("moved");
    site.stage("/tape/f").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    fs::rename(&aside, root).expect("moved back");
    assert_eq!(site.locality("/tape/f").await, "DISK_AND_TAPE");
    assert_eq!(site.get("/tape/f").await.body, b"once on tape");
    assert_eq!(Hsm::of(&site).calls("get"), 0);
}
