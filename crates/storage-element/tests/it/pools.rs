//! Pools whose disks fail, hang, are gone, and come back.

use crate::site::{DEADLINE, Site};
use penstock_decide::pool_selection::PoolMode;
use penstock_model::PoolName;
use penstock_persistence::namespace::{MoverOutcome, TrashQuery};
use penstock_protocol::exposition::Page;
use penstock_storage_element::StorageConfig;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn two_pools(config: &mut StorageConfig) {
    let mut second = config.pools[0].clone();
    second.name = PoolName::new("p2");
    second.directory = second.directory.with_file_name("p2");
    config.pools.push(second);
}

impl Site {
    pub fn pool(&self, name: &str) -> PathBuf {
        self.directory.path().join("pools").join(name)
    }

    /// Writes files until one is in this pool; its path.
    async fn put_into(&self, pool: &str) -> String {
        let before = self.files_of(pool);
        for number in 0..1000 {
            let path = format!("/d/{pool}-{before}-{number}");
            self.put(&path, b"bytes").await;
            if self.files_of(pool) > before {
                return path;
            }
        }
        panic!("pool {pool} is never drawn");
    }

    fn files_of(&self, pool: &str) -> u64 {
        let usage = self.storage.namespace().pool_usage().expect("readable");
        usage
            .get(&PoolName::new(pool))
            .map_or(0, |usage| usage.files)
    }

    pub fn alarms(&self) -> String {
        self.storage.condition().alarms.join("; ")
    }

    fn condition_of(&self, pool: &str) -> &'static str {
        let snapshot = self.storage.snapshot();
        let mut pools = snapshot.pools.iter();
        pools
            .find(|known| known.name.as_str() == pool)
            .expect("known")
            .condition
    }

    /// Waits until the disk of a pool does so.
    async fn until(&self, pool: &str, condition: &str) {
        let deadline = Instant::now() + DEADLINE;
        while self.condition_of(pool) != condition {
            assert!(
                Instant::now() < deadline,
                "{pool}: {}",
                self.condition_of(pool)
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub fn metric(&self, line: &str) -> bool {
        let text = self.metrics();
        text.lines().any(|known| known == line)
    }

    fn metrics(&self) -> String {
        let mut page = Page::default();
        self.storage.write_metrics(&mut page);
        page.into_text()
    }

    /// Holds every place that tells how much a pool has free against whether that is known.
    fn free_is_known(&self, pool: &str, is_known: bool) {
        let told = serde_json::to_value(self.storage.snapshot()).expect("plain data");
        let mut pools = told["pools"].as_array().expect("a list").iter();
        let told = pools.find(|told| told["name"] == pool).expect("known");
        assert_eq!(told["free"].is_u64(), is_known, "{told}");
        assert!(is_known || told["free"].is_null(), "{told}");
        let metrics = self.metrics();
        let is_told = |name: &str| metrics.contains(&format!("{name}{{pool=\"{pool}\"}}"));
        assert_eq!(is_told("penstock_pool_free_bytes"), is_known);
        assert!(is_known || !is_told("penstock_pool_files_left"));
        assert!(
            is_told("penstock_pool_used_bytes"),
            "that the namespace knows"
        );
    }

    /// Whether the free space of the whole element is told.
    async fn tells_quota(&self) -> bool {
        let asked = br#"<propfind xmlns="DAV:"><prop><quota-available-bytes/></prop></propfind>"#;
        let answer = self.send("PROPFIND", "/", &[("depth", "0")], asked).await;
        assert_eq!(answer.status, 207, "{}", answer.text());
        answer.text().contains("200 OK")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_written_takes_no_files_until_it_can() {
    let site = Site::with(two_pools).await;
    let kept = site.put_into("p1").await;
    let incoming = site.pool("p1").join("incoming");
    fs::remove_dir(&incoming).expect("removed");
    fs::write(&incoming, b"a file system that is damaged").expect("written");
    let mut failed = 0;
    for number in 0..40 {
        let status = site
            .send("PUT", &format!("/d/n{number}"), &[], b"bytes")
            .await
            .status;
        assert!([201, 500].contains(&status), "{status}");
        failed += usize::from(status == 500);
    }
    assert!(failed <= 1, "{failed} of 40 failed");
    assert_eq!(site.condition_of("p1"), "read_only");
    assert!(
        site.alarms().contains("pool p1 takes no new files"),
        "{}",
        site.alarms()
    );
    assert_eq!(site.storage.condition().pools_enabled, 1);
    assert_eq!(site.get(&kept).await.status, 200);
    assert!(site.metric(r#"penstock_pool_condition{pool="p1",condition="read_only"} 1"#));
    assert!(site.metric(r#"penstock_pool_enabled{pool="p1"} 0"#));
    fs::remove_file(&incoming).expect("removed");
    site.until("p1", "sound").await;
    site.put_into("p1").await;
    assert_eq!(
        fs::read_dir(site.pool("p1").join("incoming"))
            .expect("made")
            .count(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_take_copies_of_files_that_are_here_takes_none_until_it_can() {
    let site = Site::with(two_pools).await;
    let kept = site.put_into("p2").await;
    let incoming = site.pool("p1").join("incoming");
    fs::remove_dir(&incoming).expect("removed");
    fs::write(&incoming, b"a file system that is damaged").expect("written");
    let mut failed = 0;
    for number in 0..40 {
        let to = format!("/d/c{number}");
        let copied = site.send("COPY", &kept, &[("destination", &to)], b"").await;
        assert!([201, 500].contains(&copied.status), "{}", copied.text());
        failed += usize::from(copied.status == 500);
    }
    assert!(failed <= 1, "{failed} of 40 failed");
    assert_eq!(site.condition_of("p1"), "read_only");
    assert_eq!(site.condition_of("p2"), "sound");
    fs::remove_file(&incoming).expect("removed");
    site.until("p1", "sound").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_file_whose_bytes_are_gone_takes_no_pool_out() {
    let site = Site::with(two_pools).await;
    let damaged = site.put_into("p1").await;
    let entry = site
        .storage
        .namespace()
        .lookup(&crate::site::path(&damaged));
    let id = entry.expect("readable").expect("there").id;
    let data = site.pool("p1").join(format!("data/0/{id}"));
    fs::write(&data, b"by").expect("cut");
    for number in 0..10 {
        let to = format!("/d/c{number}");
        let copied = site
            .send("COPY", &damaged, &[("destination", &to)], b"")
            .await;
        assert_eq!(copied.status, 500, "{}", copied.text());
    }
    for pool in ["p1", "p2"] {
        assert_eq!(site.condition_of(pool), "sound", "{pool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_has_not_begun_goes_to_another_pool_when_the_first_one_fails() {
    let site = Site::with(|config| {
        two_pools(config);
        config.limits.stall_timeout = DEADLINE;
    })
    .await;
    let mut uploads = Vec::new();
    let mut number = 0;
    while uploads.len() < 8 {
        assert!(number < 100, "uploads do not come");
        number += 1;
        let path = format!("/d/f{number}");
        let upload = site.begin_put(&path, Some(5)).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        // Its pool has been chosen when its path is taken. One that comes later may have met this writer: leave it.
        let second = site.send("PUT", &path, &[("if-none-match", "*")], b"");
        match second.await.status {
            409 => uploads.push(upload),
            status => assert_eq!(status, 201, "the first one has not come yet"),
        }
    }
    let incoming = site.pool("p1").join("incoming");
    fs::remove_dir(&incoming).expect("removed");
    fs::write(&incoming, b"a file system that is damaged").expect("written");
    let deadline = Instant::now() + DEADLINE;
    while site.condition_of("p1") == "sound" {
        site.send("PUT", "/d/probe", &[], b"bytes").await;
        assert!(Instant::now() < deadline, "nobody notices");
    }
    for mut upload in uploads {
        upload.write_all(b"bytes").await.expect("sent");
        let status = upload.finish().await.expect("an answer").status;
        assert_eq!(status.as_u16(), 201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_not_mounted_keeps_nothing_but_its_own_files_away() {
    let site = Site::with(two_pools).await;
    let (first, second) = (site.put_into("p1").await, site.put_into("p2").await);
    let removed = site.put_into("p1").await;
    let (pool, elsewhere) = (site.pool("p1"), site.directory.path().join("unmounted"));
    let directory = site.close().await;
    fs::rename(&pool, &elsewhere).expect("unmounted");
    fs::create_dir(&pool).expect("its mount point");
    let site = Site::again(directory, two_pools).await;
    assert_eq!(site.condition_of("p1"), "away");
    site.free_is_known("p1", false);
    site.free_is_known("p2", true);
    assert!(site.tells_quota().await);
    assert!(
        site.alarms().contains("is its disk mounted?"),
        "{}",
        site.alarms()
    );
    let answer = site.get(&first).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("pool p1"), "{}", answer.text());
    assert_eq!(site.get(&second).await.status, 200);
    site.put("/d/new", b"goes to the other").await;
    // Its trash is not forgotten, and the mount point does not become the pool.
    assert_eq!(site.status("DELETE", &removed).await, 204);
    assert_eq!(fs::read_dir(&pool).expect("there").count(), 0);
    fs::remove_dir(&pool).expect("removed");
    fs::rename(&elsewhere, &pool).expect("mounted");
    site.until("p1", "sound").await;
    assert_eq!(site.get(&first).await.body, b"bytes");
    let deadline = Instant::now() + DEADLINE;
    let trash = || site.storage.namespace().trash(&TrashQuery::default(), 10);
    while !trash().expect("readable").is_empty() {
        assert!(Instant::now() < deadline, "its trash stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    site.put_into("p1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_goes_while_it_is_used_is_noticed_and_comes_back() {
    let site = Site::with(two_pools).await;
    let path = site.put_into("p1").await;
    let (pool, elsewhere) = (site.pool("p1"), site.directory.path().join("unmounted"));
    fs::rename(&pool, &elsewhere).expect("unmounted");
    fs::create_dir(&pool).expect("its mount point");
    // Who meets it first makes the pool look.
    assert!(site.get(&path).await.status >= 500);
    site.until("p1", "away").await;
    site.free_is_known("p1", false);
    assert_eq!(site.get(&path).await.status, 503);
    for number in 0..10 {
        site.put(&format!("/d/n{number}"), b"goes to the other")
            .await;
    }
    assert_eq!(fs::read_dir(&pool).expect("there").count(), 0);
    fs::remove_dir(&pool).expect("removed");
    fs::rename(&elsewhere, &pool).expect("mounted");
    site.until("p1", "sound").await;
    site.free_is_known("p1", true);
    assert_eq!(site.get(&path).await.body, b"bytes");
    site.put_into("p1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn free_space_of_an_element_without_a_disk_is_unknown_and_not_nothing() {
    let site = Site::new().await;
    site.put("/d/f", b"bytes").await;
    assert!(site.tells_quota().await);
    let pool = site.pool("p1");
    let directory = site.close().await;
    fs::rename(&pool, directory.path().join("unmounted")).expect("unmounted");
    fs::create_dir(&pool).expect("its mount point");
    let site = Site::again(directory, |_| {}).await;
    site.free_is_known("p1", false);
    assert!(!site.tells_quota().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_pool_is_not_touched_until_it_is_enabled() {
    let site = Site::with(two_pools).await;
    let path = site.put_into("p1").await;
    let (pool, elsewhere) = (site.pool("p1"), site.directory.path().join("unmounted"));
    let disabled = |config: &mut StorageConfig| {
        two_pools(config);
        config.pools[0].mode = PoolMode::Disabled;
    };
    let directory = site.close().await;
    fs::rename(&pool, &elsewhere).expect("unmounted");
    let site = Site::again(directory, disabled).await;
    assert_eq!(site.get(&path).await.status, 503);
    assert!(!pool.exists());
    fs::rename(&elsewhere, &pool).expect("mounted");
    site.reload(two_pools);
    site.until("p1", "sound").await;
    assert_eq!(site.get(&path).await.status, 200);
    site.reload(disabled);
    site.until("p1", "away").await;
    // Nothing of it is held open any more, so it can be unmounted: what was at work with it ends in a moment.
    let held_open = || {
        let open = fs::read_dir("/proc/self/fd").expect("readable").flatten();
        let mut open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        open.any(|file| file.starts_with(&pool))
    };
    let deadline = Instant::now() + DEADLINE;
    while held_open() {
        assert!(Instant::now() < deadline, "held open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pool_cannot_read_is_its_failure_and_not_its_clients() {
    let site = Site::new().await;
    let large = vec![7; 3 << 20];
    for name in ["cut", "broken", "gone"] {
        site.put(&format!("/d/{name}"), &large).await;
    }
    // A file that was just written is believed to be there.
    let site = site.reopen(|_| {}).await;
    let data = |name: &str| site.data_in("p1", &format!("/d/{name}"));
    fs::File::options()
        .write(true)
        .open(data("cut"))
        .and_then(|file| file.set_len(2 << 20))
        .expect("cut");
    fs::remove_file(data("gone")).expect("removed");
    let broken = data("broken");
    fs::remove_file(&broken).expect("removed");
    fs::create_dir(&broken).expect("reading it fails");
    for name in ["cut", "broken", "gone"] {
        let answer = site.send("HEAD", &format!("/d/{name}"), &[], b"").await;
        assert_eq!(answer.status, 500, "{name}");
        // An answer that breaks off is an error of the client's connection.
        let token = site.token("storage.read:/");
        let request = format!(
            "GET /d/{name} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        site.raw_bytes(&request).await;
    }
    let deadline = Instant::now() + DEADLINE;
    let failed = loop {
        let records = site
            .storage
            .namespace()
            .mover_records(0, 100)
            .expect("readable");
        let failed: Vec<String> = records
            .into_iter()
            .filter_map(|(_, record)| match record.outcome {
                MoverOutcome::Failed(why) => Some(format!("{} {why}", record.path)),
                MoverOutcome::Done | MoverOutcome::Aborted(_) => None,
            })
            .collect();
        if failed.len() == 3 {
            break failed;
        }
        assert!(Instant::now() < deadline, "{failed:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(failed[0].contains("shorter than its entry"), "{failed:?}");
    assert!(failed[1].contains("cannot be read"), "{failed:?}");
    assert!(failed[2].contains("cannot be read"), "{failed:?}");
    assert!(site.metric(r#"penstock_pool_failures_total{pool="p1",kind="read"} 6"#));
    assert!(
        site.alarms().contains("pool p1 could not read a file"),
        "{}",
        site.alarms()
    );
}
