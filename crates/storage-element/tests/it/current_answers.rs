//! Answers tell what is: whoever asks after a change was acknowledged is told of nothing that was before it.

use crate::nearline::{EVICTS_ALL, with_tape};
use crate::site::{DEADLINE, Site, Trust, content, path};
use penstock_decide::pool_selection::PoolMode;
use penstock_model::Right;
use penstock_storage_element::StorageConfig;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What GET, HEAD and PROPFIND say of a path, which must be the same: whether it is there, with which bytes.
async fn told(site: &Site, path: &str) -> Option<Vec<u8>> {
    let (got, head) = (
        site.get(path).await,
        site.send("HEAD", path, &[], b"").await,
    );
    let found = site.send("PROPFIND", path, &[("depth", "0")], b"").await;
    let statuses = (got.status, head.status, found.status);
    if statuses == (404, 404, 404) {
        return None;
    }
    assert_eq!(statuses, (200, 200, 207), "{path}");
    let length = got.body.len().to_string();
    assert_eq!(head.header("content-length"), length, "{path}");
    assert_eq!(head.header("etag"), got.header("etag"), "{path}");
    let tag = got.header("etag").replace('"', "&quot;");
    let is_named = found.text().contains(&tag) || found.text().contains(got.header("etag"));
    assert!(is_named, "{path}: {}", found.text());
    Some(got.body)
}

async fn holds(site: &Site, path: &str, bytes: &[u8]) {
    // The second time from memory.
    for _ in 0..2 {
        assert_eq!(told(site, path).await.as_deref(), Some(bytes), "{path}");
    }
}

async fn is_gone(site: &Site, path: &str) {
    assert_eq!(told(site, path).await, None, "{path}");
}

async fn moves(site: &Site, from: &str, to: &str, expected: u16) {
    let moved = site.send("MOVE", from, &[("destination", to)], b"").await;
    assert_eq!(moved.status, expected, "{}", moved.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_renamed_replaced_or_removed_is_told_at_once() {
    let site = Site::new().await;
    site.put("/a/d/f", b"first").await;
    holds(&site, "/a/d/f", b"first").await;
    site.put("/a/d/f", b"replaced").await;
    holds(&site, "/a/d/f", b"replaced").await;
    site.put("/a/d/g", b"other").await;
    holds(&site, "/a/d/g", b"other").await;
    moves(&site, "/a/d/g", "/a/d/f", 204).await;
    is_gone(&site, "/a/d/g").await;
    holds(&site, "/a/d/f", b"other").await;
    moves(&site, "/a", "/b", 201).await;
    is_gone(&site, "/a/d/f").await;
    holds(&site, "/b/d/f", b"other").await;
    site.put("/a/d/f", b"another directory").await;
    holds(&site, "/a/d/f", b"another directory").await;
    holds(&site, "/b/d/f", b"other").await;
    assert_eq!(site.status("DELETE", "/b/d/f").await, 204);
    is_gone(&site, "/b/d/f").await;
    assert_eq!(site.status("DELETE", "/a").await, 204);
    is_gone(&site, "/a/d/f").await;
    site.put("/a/d/f", b"again").await;
    holds(&site, "/a/d/f", b"again").await;
    let copied = site
        .send("COPY", "/a/d/f", &[("destination", "/b/d/f")], b"")
        .await;
    assert_eq!(copied.status, 201, "{}", copied.text());
    holds(&site, "/b/d/f", b"again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_comes_back_from_the_trash_is_told_at_once() {
    let trust = Trust::new();
    let keep = |config: &mut StorageConfig| config.limits.trash = Duration::from_secs(3600);
    let site = Site::with_tls_and(&trust, keep).await;
    site.put("/d/f", b"kept").await;
    holds(&site, "/d/f", b"kept").await;
    let entry = site.storage.namespace().lookup(&path("/d/f"));
    let id = entry.expect("readable").expect("there").id;
    assert_eq!(site.status("DELETE", "/d/f").await, 204);
    is_gone(&site, "/d/f").await;
    let place = format!("/.penstock/trash/{id}");
    let to = json!({"to": "/d/back"}).to_string();
    let token = site.token("storage.read:/ storage.modify:/ penstock.admin");
    let restored = site
        .send_as(&token, "POST", &place, &[], to.as_bytes())
        .await;
    assert_eq!(restored.status, 201, "{}", restored.text());
    is_gone(&site, "/d/f").await;
    holds(&site, "/d/back", b"kept").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_that_clients_keep_are_told_at_once() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    holds(&site, "/f", b"x").await;
    let all = async || {
        let found = site.send("PROPFIND", "/f", &[("depth", "0")], b"").await;
        found.text().contains("kept with it")
    };
    assert!(!all().await);
    for (update, is_there) in [
        (
            "<set><prop><n xmlns=\"urn:x\">kept with it</n></prop></set>",
            true,
        ),
        ("<remove><prop><n xmlns=\"urn:x\"/></prop></remove>", false),
    ] {
        let update = format!("<propertyupdate xmlns=\"DAV:\">{update}</propertyupdate>");
        let updated = site.send("PROPPATCH", "/f", &[], update.as_bytes()).await;
        assert_eq!(updated.status, 207, "{}", updated.text());
        assert_eq!(all().await, is_there);
    }
}

/// A newer version is longer, so a stale answer is one that is shorter than what was acknowledged before its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_answer_is_older_than_what_was_acknowledged_before_its_request() {
    const WRITERS: u64 = 3;
    const VERSIONS: u64 = 40;
    let site = Arc::new(Site::new().await);
    let acknowledged: Arc<[AtomicU64]> = (0..WRITERS).map(|_| AtomicU64::new(1)).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let path_of = |writer: u64| format!("/d/e{writer}/f");
    for writer in 0..WRITERS {
        site.put(&path_of(writer), b"1").await;
    }
    let readers: Vec<_> = ["GET", "HEAD", "PROPFIND", "GET"]
        .into_iter()
        .map(|method| {
            let site = Arc::clone(&site);
            let (acknowledged, is_over) = (Arc::clone(&acknowledged), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut seen = BTreeSet::new();
                for turn in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let writer = turn % WRITERS;
                    let least = acknowledged[writer as usize].load(Ordering::SeqCst);
                    let path = format!("/d/e{writer}/f");
                    let answer = site.send(method, &path, &[("depth", "0")], b"").await;
                    let length = match method {
                        "GET" => answer.body.len() as u64,
                        "HEAD" => answer.header("content-length").parse().expect("a number"),
                        _ => length_in(&answer.text()),
                    };
                    assert!(length >= least, "{method}: {length} after {least}");
                    seen.insert(length);
                }
                seen.len()
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (site, acknowledged) = (Arc::clone(&site), Arc::clone(&acknowledged));
            tokio::spawn(async move {
                for version in 2..=VERSIONS {
                    let bytes = vec![b'x'; version as usize];
                    site.put(&format!("/d/e{writer}/f"), &bytes).await;
                    acknowledged[writer as usize].store(version, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("all were acknowledged");
    }
    is_over.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.await.expect("none is stale") > 1);
    }
}

fn length_in(listing: &str) -> u64 {
    let (_, rest) = listing.split_once("getcontentlength>").expect("told");
    let digits = rest.split('<').next().expect("text");
    digits.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_banned_or_believed_no_more_reads_nothing_that_is_known() {
    let site = Site::new().await;
    site.put("/d/f", b"x").await;
    let token = site.token("storage.read:/");
    let reads = async || site.send_as(&token, "GET", "/d/f", &[], b"").await.status;
    assert_eq!((reads().await, reads().await), (200, 200));
    site.reload(|config| config.access.banned = vec!["alice".to_owned()]);
    assert_eq!(reads().await, 403);
    site.reload(|_| {});
    assert_eq!(reads().await, 200);
    site.reload(|config| config.access.audiences = vec!["https://elsewhere".to_owned()]);
    assert_eq!(reads().await, 401);
    site.reload(|_| {});
    assert_eq!(reads().await, 200);
    site.reload(|config| {
        let own = config.issuer.as_mut().expect("its own");
        own.trust.rights = vec![Right::Stage];
    });
    assert_eq!(reads().await, 403);
    let short = site.token_with(|claims| claims.exp = claims.iat + 2);
    site.reload(|_| {});
    let status = async || site.send_as(&short, "GET", "/d/f", &[], b"").await.status;
    assert_eq!(status().await, 200);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(status().await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_pool_that_is_away_is_not_given_from_memory() {
    let site = Site::new().await;
    let bytes = content(100_000);
    site.put("/d/f", &bytes).await;
    holds(&site, "/d/f", &bytes).await;
    site.reload(|config| config.pools[0].mode = PoolMode::Disabled);
    for method in ["GET", "HEAD"] {
        assert_eq!(site.status(method, "/d/f").await, 503, "{method}");
    }
    site.reload(|_| {});
    let until = Instant::now() + DEADLINE;
    while site.status("GET", "/d/f").await != 200 {
        assert!(Instant::now() < until, "its disk is looked at first");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    holds(&site, "/d/f", &bytes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_is_gone_or_cut_is_found_missing_although_its_name_is_known() {
    // Without TLS the kernel sends it, and a file that is cut breaks off.
    let trust = Trust::new();
    let site = Site::with_tls(&trust).await;
    for name in ["gone", "cut"] {
        site.put(&format!("/d/{name}"), &content(100_000)).await;
        assert_eq!(site.status("GET", &format!("/d/{name}")).await, 200);
    }
    fs::remove_file(site.data_in("p1", "/d/gone")).expect("removed");
    fs::write(site.data_in("p1", "/d/cut"), content(50_000)).expect("cut");
    for name in ["gone", "cut"] {
        let answer = site.get(&format!("/d/{name}")).await;
        assert_eq!(answer.status, 500, "{name}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_file_on_tape_is_is_told_at_once() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    for _ in 0..2 {
        // It leaves the disk; between two looks nobody has told the door.
        site.becomes("/tape/f", "TAPE").await;
        assert_eq!(site.get("/tape/f").await.status, 409);
        let head = site.send("HEAD", "/tape/f", &[], b"").await;
        assert_eq!(head.header("penstock-locality"), "TAPE");
        let request = site.stage("/tape/f").await;
        site.staged(&request).await;
        assert_eq!(site.get("/tape/f").await.body, b"once on tape");
        let head = site.send("HEAD", "/tape/f", &[], b"").await;
        assert_eq!(head.header("penstock-locality"), "DISK_AND_TAPE");
        let release = format!("release/{request}");
        let (status, _) = site
            .tape("POST", &release, json!({"paths": ["/tape/f"]}))
            .await;
        assert_eq!(status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_all_sizes_around_a_record_and_a_block_come_whole() {
    let trust = Trust::new();
    let site = Site::with_tls(&trust).await;
    for size in [
        0, 1, 16_000, 16_384, 65_536, 65_537, 100_000, 262_143, 262_144, 262_145, 600_000,
    ] {
        let (path, bytes) = (format!("/d/{size}"), content(size));
        site.put(&path, &bytes).await;
        for _ in 0..2 {
            assert_eq!(site.get(&path).await.body, bytes, "{size}");
        }
    }
}
