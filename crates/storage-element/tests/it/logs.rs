//! What a storage element logs: of trouble that goes on, and no secrets.

use crate::shares::{Share, make_share};
use crate::site::{Site, Trust, check, eventually};
use parking_lot::Mutex;
use penstock_model::PoolName;
use std::fmt::{Debug, Write};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use tracing::field::{Field, Visit};
use tracing::span;

/// All lines of the log of this process.
static LOG: LazyLock<KeptLines> = LazyLock::new(|| {
    let lines = KeptLines::default();
    tracing::subscriber::set_global_default(lines.clone()).expect("the only one");
    lines
});

#[derive(Clone, Default)]
struct KeptLines(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for KeptLines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_each_request_is_logged_once_a_minute() {
    LazyLock::force(&LOG);
    // Other tests have failing disks in this process, too, and one error is told for all of them.
    let site = Site::with(|config| {
        let pool = &mut config.pools[0];
        pool.name = PoolName::new("logged");
        pool.directory.set_file_name("logged");
    })
    .await;
    for name in ["/d/lost-1", "/d/lost-2", "/d/lost-3"] {
        site.put(name, name.as_bytes()).await;
        std::fs::remove_file(site.data_in("logged", name)).expect("there");
        for _ in 0..3 {
            assert_eq!(site.status("GET", name).await, 500);
        }
    }
    let lines = LOG.0.lock().clone();
    let of_lost = lines.iter().filter(|line| line.contains("/d/lost-"));
    let of_lost: Vec<&String> = of_lost.collect();
    // One of the pool, one of the door.
    assert_eq!(of_lost.len(), 2, "{of_lost:#?}");
}

/// Every file below a directory that holds these bytes.
fn files_with(directory: &Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if let Ok(content) = std::fs::read(&path)
            && content.windows(bytes.len()).any(|window| window == bytes)
        {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_a_share_is_logged_or_kept_however_it_is_written() {
    LazyLock::force(&LOG);
    let trust = Trust::new();
    let site = Site::with_tls(&trust).await;
    site.put("/d/f", b"bytes").await;
    let Share { secret, .. } = make_share(&site, "/d", "read").await;
    let link = format!("/s/{secret}/f");
    let opened = site.send_bare("GET", &link, &[], b"").await;
    assert_eq!(opened.text(), "bytes");
    let rest = &secret[1..];
    for path in [
        format!("//s//{secret}/f"),
        format!("/s/%53{rest}/f"),
        format!("/%73/{secret}/f"),
    ] {
        // Paths are the same with and without such detours.
        let found = site.send_bare("GET", &path, &[], b"").await;
        assert_eq!(found.text(), "bytes", "{path}");
    }
    for path in [
        format!("/s/{secret}."),
        format!("/s/{secret})/f"),
        format!("/s/%53{rest}%29"),
        format!("/s/{secret}{secret}/f"),
    ] {
        for method in ["GET", "PUT", "PROPFIND", "DELETE", "MKCOL"] {
            let missing = site.send_bare(method, &path, &[], b"").await;
            assert_eq!(missing.status, 404, "{method} {path}");
        }
    }
    let own = site.url("").to_string();
    let own = own.trim_end_matches('/');
    let elsewhere = "https://elsewhere.example.org:8443";
    for (method, header, base, expected) in [
        ("COPY", "source", own, 400),
        ("COPY", "source", elsewhere, 400),
        ("COPY", "destination", elsewhere, 400),
        ("COPY", "destination", own, 403),
        ("COPY", "destination", "", 403),
        ("MOVE", "destination", own, 403),
        ("MOVE", "destination", "", 403),
    ] {
        for path in [format!("/s/{secret}/x"), format!("//s/%53{rest})/x")] {
            let url = format!("{base}{path}");
            check(&site, method, "/d/f", &[(header, &url)], expected).await;
        }
    }
    let body = format!("{{\"path\":\"/s/{secret}/x\",\"access\":\"read\"}}");
    let asked = [("content-type", "application/json")];
    let token = site.token("storage.read:/e");
    let refused = site.send_as(&token, "POST", "/.penstock/shares", &asked, body.as_bytes());
    assert_eq!(refused.await.status, 403);
    // The ledger is written after the answers, in their order.
    site.send_as(&token, "GET", "/d/marker", &[], b"").await;
    let directory = site.directory.path().to_owned();
    eventually("the ledger is written", || {
        !files_with(&directory, b"/d/marker").is_empty()
    })
    .await;
    let lines = LOG.0.lock().clone();
    assert!(lines.iter().any(|line| line.contains("/d/marker")));
    let told = lines.iter().filter(|line| line.contains(rest));
    assert_eq!(told.collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(
        files_with(&directory, rest.as_bytes()),
        Vec::<String>::new()
    );
}
