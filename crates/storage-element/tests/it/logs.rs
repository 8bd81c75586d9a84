//! What a storage element logs of trouble that goes on.

use crate::site::Site;
use parking_lot::Mutex;
use penstock_model::PoolName;
use std::fmt::{Debug, Write};
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::span;

/// Keeps all lines of the log of this process.
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
    let lines = KeptLines::default();
    tracing::subscriber::set_global_default(lines.clone()).expect("the only one");
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
    let lines = lines.0.lock().clone();
    let of_lost = lines.iter().filter(|line| line.contains("/d/lost-"));
    let of_lost: Vec<&String> = of_lost.collect();
    // One of the pool, one of the door.
    assert_eq!(of_lost.len(), 2, "{of_lost:#?}");
}
