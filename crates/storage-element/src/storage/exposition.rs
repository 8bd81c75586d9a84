//! How the storage element is, for health reports and monitors.

use super::Storage;
use crate::metrics::{StorageHealthInput, StorageMetrics};
use crate::pool::Pool;
use penstock_decide::health::{DATABASE_SILENCE_MAX, Writability};
use penstock_decide::pool_condition::PoolCondition;
use penstock_decide::pool_selection::PoolView;
use penstock_model::{NamespacePath, PoolName};
use penstock_persistence::namespace::PoolUsage;
use penstock_protocol::exposition::Page;
use std::sync::atomic::Ordering;

impl Storage {
    /// What was counted since the start.
    pub fn metrics(&self) -> &StorageMetrics {
        &self.metrics
    }

    fn namespace_standing(&self) -> Writability {
        let writer = self.namespace.writer_counts();
        match writer.writes_for {
            Some(lasts) if lasts > DATABASE_SILENCE_MAX => Writability::Silent(lasts),
            _ if writer.refuses => Writability::Refused,
            _ => Writability::Writable,
        }
    }

    pub fn condition(&self) -> StorageHealthInput {
        let (views, mut alarms) = self.pools_and_alarms();
        let takes = |view: &&PoolView| view.mode.takes_new_files() && view.condition.takes_files();
        let enabled = views.iter().filter(takes);
        alarms.extend(self.findings());
        // Whoever asks would wait for the disk as well.
        let hangs = self.doors_silent.load(Ordering::Relaxed);
        if !hangs {
            alarms.extend(self.files_out_of_reach());
        }
        StorageHealthInput {
            namespace_readable: !hangs && self.namespace.lookup(&NamespacePath::root()).is_ok(),
            namespace: self.namespace_standing(),
            pools_enabled: enabled.count(),
            alarms,
            dead_threads: self.dead_threads(),
            clock: self.clock.standing(),
        }
    }

    /// Files in pools that are not configured or away.
    fn files_out_of_reach(&self) -> Vec<String> {
        let usage = self.namespace.pool_usage().unwrap_or_default();
        let held = usage.into_iter().filter(|(_, usage)| usage.files > 0);
        let told = |(name, usage): (PoolName, PoolUsage)| {
            let why = match self.pool(&name) {
                None => "which is not configured",
                Some(pool) if matches!(pool.condition(), PoolCondition::Away { .. }) => {
                    "which is away"
                }
                Some(_) => return None,
            };
            let files = usage.files;
            Some(format!(
                "{files} files are in pool {name}, {why}; they cannot be read until it is back. If it is lost for good, \
                 stop the site and remove its entries: `penstock fsck --remove-missing --pool {name}`"
            ))
        };
        held.filter_map(told).collect()
    }

    /// What a person should look at, beside pools that take no files.
    fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for pool in self.pools() {
            let name = &pool.name;
            if let Some(why) = pool.health.last_read_failure() {
                findings.push(format!(
                    "pool {name} could not read a file within the last hour: {why}; check its disk"
                ));
            }
            let files = pool.quarantine.files();
            if files > 0 {
                findings.push(format!(
                    "pool {name} has {files} files in {}, which the namespace does not know; `penstock fsck` lists them",
                    pool.quarantine_root().display()
                ));
            }
            let uploads = pool.quarantine.uploads_left.load(Ordering::Relaxed);
            if uploads > 0 {
                findings.push(format!(
                    "pool {name} has {uploads} unfinished uploads whose records cannot be read; check its disk, or use \
                     a newer program"
                ));
            }
        }
        findings
    }

    /// Adds its families to a page, all but those of requests, which are shared with other ports.
    pub fn write_metrics(&self, page: &mut Page) {
        self.write_space(page);
        self.write_disks(page);
        self.write_movers(page);
        self.write_tape(page);
        let mut family = page.counter(
            "penstock_mover_records_dropped_total",
            "Records of ended movers that were lost because too many ended at once.",
        );
        family.sample(&[], self.recorder.dropped());
        let writer = self.namespace.writer_counts();
        let mut family = page.counter(
            "penstock_namespace_changes_total",
            "Changes to the namespace, made or refused.",
        );
        family.sample(&[], writer.changes);
        let mut family = page.counter(
            "penstock_namespace_batches_total",
            "Transactions of the namespace; changes that come together share one.",
        );
        family.sample(&[], writer.batches);
        let mut family = page.gauge(
            "penstock_namespace_changes_queued",
            "Changes that wait for the namespace, or are being made.",
        );
        family.sample(&[], writer.queued);
        let mut family = page.gauge(
            "penstock_uploads_open",
            "Uploads in several requests that were begun and not finished.",
        );
        family.sample(&[], self.uploads.count());
        let mut family = page.gauge("penstock_locks", "Write locks of WebDAV clients.");
        family.sample(&[], self.locks.count());
    }

    fn write_space(&self, page: &mut Page) {
        let mut each_pool = |name, help: &str, write: &dyn Fn(&Pool) -> Option<u64>| {
            let mut family = page.gauge(name, help);
            for pool in self.pools() {
                if let Some(value) = write(pool) {
                    family.sample(&[("pool", pool.name.as_str())], value);
                }
            }
        };
        each_pool(
            "penstock_pool_free_bytes",
            "What new files may have in a pool: the least of its file system and its capacity, less what is promised. Trash \
             gives way to them, so it counts as free. Absent where the disk is away or does not answer.",
            &|pool| pool.view().known_available().map(|free| free.0),
        );
        each_pool(
            "penstock_pool_files_left",
            "Files that the file system of a pool can still take, beside a reserve; absent where it has no limit of them, or it is \
             not known.",
            &|pool| pool.view().known_files_left(),
        );
        each_pool(
            "penstock_pool_used_bytes",
            "Files in a pool, and removed ones that are still on its disk.",
            &|pool| Some(pool.filling().0.0),
        );
        each_pool(
            "penstock_pool_trash_bytes",
            "Removed and replaced files that are kept for a time, or until new files need their room.",
            &|pool| Some(pool.trash().bytes.0),
        );
        each_pool(
            "penstock_pool_trash_files",
            "How many of these there are.",
            &|pool| Some(pool.trash().files),
        );
        each_pool(
            "penstock_pool_reserved_bytes",
            "Promised to running writers.",
            &|pool| Some(pool.filling().1.0),
        );
        each_pool(
            "penstock_pool_capacity_bytes",
            "As configured; absent where the file system is the bound.",
            &|pool| pool.filling().2.map(|capacity| capacity.0),
        );
        each_pool(
            "penstock_pool_enabled",
            "1 when a pool takes new files, 0 when it is drained or disabled, or its disk fails.",
            &|pool| Some(pool.takes_new_files().into()),
        );
        each_pool(
            "penstock_pool_movers_max",
            "Movers of a pool that may run at once.",
            &|pool| Some(pool.gate.load().limits.movers_max.into()),
        );
        each_pool(
            "penstock_pool_queue_max",
            "Movers of a pool that may wait.",
            &|pool| Some(pool.gate.load().limits.queue_max.into()),
        );
    }

    fn write_disks(&self, page: &mut Page) {
        let mut family = page.gauge(
            "penstock_pool_condition",
            "1 with how the disk of a pool does: sound, read_only, silent or away.",
        );
        for pool in self.pools() {
            let condition = pool.condition();
            let labels = [
                ("pool", pool.name.as_str()),
                ("condition", condition.name()),
            ];
            family.sample(&labels, 1_u64);
        }
        let mut family = page.counter(
            "penstock_pool_failures_total",
            "Reads and writes that the disk of a pool failed.",
        );
        for pool in self.pools() {
            let (name, health) = (pool.name.as_str(), &pool.health);
            family.sample(
                &[("pool", name), ("kind", "read")],
                health.reads_failed.read(),
            );
            family.sample(
                &[("pool", name), ("kind", "write")],
                health.writes_failed.read(),
            );
        }
        let mut family = page.counter(
            "penstock_pool_trash_removed_total",
            "Files of the trash whose data was removed: expired, evicted for new files, or emptied by an administrator.",
        );
        for pool in self.pools() {
            let name = pool.name.as_str();
            for (why, count) in [
                ("expired", &pool.trash_expired),
                ("evicted", &pool.trash_evicted),
                ("emptied", &pool.trash_emptied),
            ] {
                family.sample(&[("pool", name), ("why", why)], count.read());
            }
        }
        let mut family = page.counter(
            "penstock_pool_quarantined_total",
            "Files that no namespace knows and that were put into quarantine.",
        );
        for pool in self.pools() {
            family.sample(
                &[("pool", pool.name.as_str())],
                pool.quarantine.added.read(),
            );
        }
        let mut family = page.gauge(
            "penstock_pool_quarantined_files",
            "Files in quarantine at the last check.",
        );
        for pool in self.pools() {
            family.sample(&[("pool", pool.name.as_str())], pool.quarantine.files());
        }
    }

    fn write_movers(&self, page: &mut Page) {
        let mut family = page.gauge(
            "penstock_pool_movers",
            "Movers of a pool: files on their way in or out, and those that wait for a slot.",
        );
        for pool in self.pools() {
            let (name, load) = (pool.name.as_str(), pool.gate.load());
            family.sample(&[("pool", name), ("state", "active")], load.active);
            family.sample(&[("pool", name), ("state", "queued")], load.queued);
        }
        let mut family = page.counter(
            "penstock_pool_moved_bytes_total",
            "Bytes of file data that passed, by pool and direction.",
        );
        for pool in self.pools() {
            let (name, (moved, _)) = (pool.name.as_str(), pool.gate.meter.read(0));
            family.sample(&[("pool", name), ("direction", "in")], moved.in_bytes);
            family.sample(&[("pool", name), ("direction", "out")], moved.out_bytes);
        }
        let mut family = page.counter(
            "penstock_movers_total",
            "Movers that ended: get and put by clients, pull and push as the active party, copy within the site.",
        );
        self.metrics.movers.write(&mut family);
        let mut family = page.counter(
            "penstock_movers_refused_total",
            "Requests that were answered 503 because a pool's queue was full.",
        );
        family.sample(&[], self.metrics.movers_refused.read());
        let mut family = page.counter(
            "penstock_movers_preempted_total",
            "Slow movers of users or addresses with many that were ended for somebody who had none.",
        );
        for pool in self.pools() {
            let preempted = pool.gate.preempted.read();
            family.sample(&[("pool", pool.name.as_str())], preempted);
        }
    }
}
