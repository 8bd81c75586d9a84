//! What a site's storage element tells of one path: from its namespace and ledger, and where it runs in this process, how its
//! pools and movers stand.

use super::config::Config;
use super::directory::SiteDirectory;
use super::element_rows::{ledger_row, mover_row, server_name};
use penstock_clock::wall_clock;
use penstock_model::observation::{Attempt, NamespaceChange, Observation, Text};
use penstock_model::{Bytes, NamespacePath, PoolName, PoolSample, TimeWindow, Timestamp};
use penstock_observe::RecordError;
use penstock_observe::path_story::{PathEntry, PathFacts, PathMover, PathPool, PathStory};
use penstock_persistence::namespace::{
    Entry, EntryKind, LedgerReader, MoverKind, NamespaceError, PathRecord,
};
use penstock_storage_element::{Storage, StorageSnapshot};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The window when none is asked for.
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// Events, and ended movers, that are told at most.
const EVENTS_MAX: usize = 200;
/// About the time at which a file became visible, its change and its mover are looked for.
const NEAR: Duration = Duration::from_secs(120);
/// Of a storage element that does not run here, pools are told as of so long ago at most.
const POOLS_SINCE: Duration = Duration::from_secs(3600);

/// Where the storage element of a site keeps what it knows.
pub struct PathSource {
    namespace: PathBuf,
    storage: String,
    server: Text,
    /// Not held: whoever reads does not keep a storage element from ending.
    running: Option<Weak<Storage>>,
}

impl PathSource {
    /// That of a site, if it has a storage element.
    pub fn of(
        site: &SiteDirectory,
        config: &Config,
        running: Option<&Arc<Storage>>,
    ) -> Option<PathSource> {
        let storage = config.storage.as_ref()?;
        Some(PathSource {
            namespace: site.resolve(&storage.namespace),
            storage: config.door_url()?,
            server: server_name(config),
            running: running.map(Arc::downgrade),
        })
    }

    /// The story of a path; without a window, of the last week.
    pub fn story(
        &self,
        path: &NamespacePath,
        window: Option<TimeWindow>,
    ) -> Result<PathStory, RecordError> {
        let now = wall_clock();
        let window = window.unwrap_or(TimeWindow {
            from: now - WEEK,
            to: Timestamp(now.0.saturating_add(1)),
        });
        let facts = self.facts(path, window, now);
        let facts = facts.map_err(|why| RecordError(Box::new(why)))?;
        Ok(PathStory::of(facts))
    }

    fn facts(
        &self,
        path: &NamespacePath,
        window: TimeWindow,
        now: Timestamp,
    ) -> Result<PathFacts, NamespaceError> {
        let reader = LedgerReader::open(&self.namespace)?;
        let found = reader.path_record(path, window, EVENTS_MAX)?;
        let mut facts = PathFacts {
            path: path.to_string(),
            storage: self.storage.clone(),
            from: window.from,
            to: window.to,
            oldest: found.oldest,
            left_out: found.events_left_out + found.movers_left_out,
            entry: found.entry.as_ref().map(|entry| told(entry, &found)),
            ..PathFacts::default()
        };
        self.add_rows(&mut facts, &found);
        // Who wrote a file is told also of one that was written before the window.
        if let Some(entry) = found.entry.filter(|entry| entry.created < window.from) {
            let about = TimeWindow {
                from: entry.created - NEAR,
                to: (entry.created + NEAR).min(window.from),
            };
            let earlier = reader.path_record(path, about, EVENTS_MAX)?;
            self.add_rows(&mut facts, &earlier);
        }
        let pool = facts.entry.as_ref().and_then(|entry| entry.pool.clone());
        let running = self.running.as_ref().and_then(Weak::upgrade);
        if let Some(storage) = running {
            let snapshot = storage.snapshot();
            facts.pool = pool.and_then(|pool| live_pool(&snapshot, &pool));
            facts.running = Some(movers(&snapshot, path));
        } else if let Some(pool) = pool {
            let minutes = reader.pool_minutes_between(now - POOLS_SINCE, now)?;
            let last = minutes.last().and_then(|minute| {
                let sample = minute.pools.iter().find(|one| one.pool == pool)?;
                recorded_pool(sample, minute.to)
            });
            facts.pool = last;
        }
        Ok(facts)
    }

    fn add_rows(&self, facts: &mut PathFacts, found: &PathRecord) {
        let server = Some(self.server.clone());
        let mut attempts: Vec<Attempt> = found.movers.iter().map(mover_row).collect();
        let mut changes: Vec<NamespaceChange> = Vec::new();
        for event in &found.events {
            match ledger_row(event, &server) {
                Observation::Attempt(row) => attempts.push(*row),
                Observation::NamespaceChange(row) => changes.push(*row),
                Observation::Sample(_) | Observation::Change(_) | Observation::Incident(_) => {}
            }
        }
        facts.attempts.extend(attempts);
        facts.changes.extend(changes);
        // The sort is stable: of one moment, what was recorded last stays first.
        facts.attempts.sort_by_key(|row| std::cmp::Reverse(row.at));
        facts.changes.sort_by_key(|row| std::cmp::Reverse(row.at));
    }
}

fn told(entry: &Entry, found: &PathRecord) -> PathEntry {
    let (kind, file_bytes, pool) = match &entry.kind {
        EntryKind::Directory => ("directory", None, None),
        EntryKind::File { size, pool, .. } => ("file", Some(*size), pool.clone()),
    };
    PathEntry {
        kind: kind.to_owned(),
        file: entry.id.to_string(),
        file_bytes,
        pool,
        created: entry.created,
        modified: entry.modified,
        owner: entry.owner.clone(),
        checksums: found.checksums.iter().map(ToString::to_string).collect(),
    }
}

fn live_pool(snapshot: &StorageSnapshot, name: &PoolName) -> Option<PathPool> {
    let pool = snapshot.pools.iter().find(|pool| pool.name == *name)?;
    Some(PathPool {
        name: pool.name.clone(),
        at: snapshot.at,
        mode: Some(pool.mode.to_owned()),
        condition: pool.condition.to_owned(),
        bytes_free: pool.free,
        movers_active: pool.movers_active.into(),
        movers_queued: pool.movers_queued.into(),
        movers_max: pool.movers_max.into(),
    })
}

/// A pool as its last minute was: means over the looks.
fn recorded_pool(sample: &PoolSample, at: Timestamp) -> Option<PathPool> {
    let mean = |sum: u64| sum.checked_add(sample.looks / 2)?.checked_div(sample.looks);
    let condition = match sample.reachable * 2 >= sample.looks {
        true => "sound",
        false => "away",
    };
    Some(PathPool {
        name: sample.pool.clone(),
        at,
        mode: None,
        condition: condition.to_owned(),
        bytes_free: Some(Bytes(sample.free_bytes)),
        movers_active: mean(sample.active)?,
        movers_queued: mean(sample.queued)?,
        movers_max: mean(sample.limit)?,
    })
}

fn movers(snapshot: &StorageSnapshot, path: &NamespacePath) -> Vec<PathMover> {
    let own = snapshot.movers.iter().filter(|mover| mover.path == *path);
    own.map(|mover| PathMover {
        kind: word(mover.kind).to_owned(),
        peer: mover.peer.clone(),
        user: mover.user.clone(),
        vo: mover.vo.clone(),
        since: mover.since,
        is_running: mover.running,
        bytes_moved: mover.moved,
    })
    .collect()
}

fn word(kind: MoverKind) -> &'static str {
    match kind {
        MoverKind::Get => "get",
        MoverKind::Put => "put",
        MoverKind::Pull => "pull",
        MoverKind::Push => "push",
        MoverKind::Copy => "copy",
    }
}
