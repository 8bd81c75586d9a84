//! The backups that a running site makes of its roles, as `[transfer.backup]` and `[storage.backup]` plan them.

use super::{BackupReport, make_directory, namespace_source, source};
use crate::args::BackupPart;
use crate::exit::CommandError;
use crate::site::config::{BackupPlan, Config};
use crate::site::directory::SiteDirectory;
use penstock_clock::wall_clock;
use penstock_decide::backups::{newest, superfluous, wait_after_failures, wait_until_due};
use penstock_model::Timestamp;
use penstock_persistence::backup::{BackupOf, Manifest, back_up};
use penstock_protocol::exposition::{Counter, Page};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// What scheduled backups are called: the part, the time, and this.
const SUFFIX: &str = ".backup";
/// A clock that was set is noticed within this time.
const LOOK_EVERY: Duration = Duration::from_secs(60);

impl BackupPart {
    /// As in the configuration, in names of files and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            BackupPart::Transfer => "transfer",
            BackupPart::Namespace => "namespace",
        }
    }
}

/// What became of the backups that a running site makes of itself, for monitors.
#[derive(Debug, Default)]
pub struct BackupMeter {
    transfer: PartMeter,
    namespace: PartMeter,
}

#[derive(Debug, Default)]
struct PartMeter {
    is_scheduled: AtomicBool,
    /// When the newest was begun, in milliseconds since 1970; 0: there is none.
    newest_ms: AtomicI64,
    failures: Counter,
}

impl BackupMeter {
    fn part(&self, part: BackupPart) -> &PartMeter {
        match part {
            BackupPart::Transfer => &self.transfer,
            BackupPart::Namespace => &self.namespace,
        }
    }

    /// Writes both families.
    pub fn write(&self, page: &mut Page, now: Timestamp) {
        let scheduled = || {
            let parts = [BackupPart::Transfer, BackupPart::Namespace];
            let parts = parts.map(|part| (part.name(), self.part(part)));
            let is_scheduled = |meter: &PartMeter| meter.is_scheduled.load(Ordering::Relaxed);
            parts
                .into_iter()
                .filter(move |(_, meter)| is_scheduled(meter))
        };
        let mut family = page.gauge(
            "penstock_backup_age_seconds",
            "Since the newest scheduled backup was begun; absent before the first.",
        );
        for (part, meter) in scheduled() {
            let newest = Timestamp(meter.newest_ms.load(Ordering::Relaxed));
            if newest.0 > 0 {
                family.sample(&[("part", part)], now.since(newest).as_secs_f64());
            }
        }
        let mut family = page.counter(
            "penstock_backup_failures_total",
            "Scheduled backups that could not be made, or were found to be damaged.",
        );
        for (part, meter) in scheduled() {
            family.sample(&[("part", part)], meter.failures.read());
        }
    }
}

/// The backups that a running site makes of one of its roles.
#[derive(Debug, Clone)]
pub struct Schedule {
    pub site: SiteDirectory,
    pub config: Config,
    pub part: BackupPart,
    pub plan: BackupPlan,
    /// What the environment names as `PGPASSFILE`.
    pub pass_file: Option<PathBuf>,
    pub meter: Arc<BackupMeter>,
}

impl Schedule {
    /// Makes backups as planned until the shutdown signal. A failure is logged, and the next one is tried in time.
    pub async fn keep_backing_up(self, mut shutdown: watch::Receiver<bool>) {
        let directory = self.site.resolve(&self.plan.to);
        let meter = self.meter.part(self.part);
        meter.is_scheduled.store(true, Ordering::Relaxed);
        let mut failures = 0;
        loop {
            let (made, now) = (times(&made_before(&directory, self.part)), wall_clock());
            let newest_ms = newest(&made, now).map_or(0, |newest| newest.0);
            meter.newest_ms.store(newest_ms, Ordering::Relaxed);
            let (wait, step) = match failures {
                // In steps: a clock that was set meanwhile counts.
                0 => {
                    let wait = wait_until_due(&made, self.plan.every.0, now);
                    (wait, wait.min(LOOK_EVERY))
                }
                failures => {
                    let wait = wait_after_failures(failures, self.plan.every.0);
                    (wait, wait)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(step) => {}
                _ = shutdown.wait_for(|stop| *stop) => return,
            }
            if step < wait {
                continue;
            }
            let (schedule, to) = (self.clone(), directory.clone());
            let stopped = Arc::new(AtomicBool::new(false));
            let stop = stopped.clone();
            let making = tokio::task::spawn_blocking(move || schedule.make_one(&to, stopped));
            let made = tokio::select! {
                made = making => made,
                _ = shutdown.wait_for(|stop| *stop) => {
                    // The process does not end before the thread does.
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
            };
            let part = self.part.name();
            failures = match made {
                Ok(Ok(told)) => {
                    tracing::info!(part, file = %told.file, bytes = told.size_bytes, "a backup was made and verified");
                    0
                }
                Ok(Err(error)) => {
                    tracing::error!(part, %error, "the backup failed; older backups are kept, and it will be retried");
                    failures + 1
                }
                Err(error) => {
                    tracing::error!(part, %error, "the backup's thread ended unexpectedly");
                    failures + 1
                }
            };
            if failures > 0 {
                meter.failures.increment();
            }
        }
    }

    fn make_one(
        &self,
        directory: &Path,
        stopped: Arc<AtomicBool>,
    ) -> Result<BackupReport, CommandError> {
        make_directory(directory)?;
        let (plan, pass_file) = (&self.plan, self.pass_file.as_deref());
        let (site, config) = (&self.site, &self.config);
        let of = match self.part {
            BackupPart::Transfer => source(site, config, pass_file, None, plan.rate.0)?,
            BackupPart::Namespace => namespace_source(site, site.storage(config)?, plan.rate.0)?,
        };
        let of = BackupOf { stopped, ..of };
        let to = directory.join(format!("{}-{}{SUFFIX}", self.part.name(), of.at.0));
        let facts = back_up(&of, &to).and_then(|facts| {
            Manifest::write(&to, &[(&to, &facts)])?;
            Ok(facts)
        });
        let facts = facts.map_err(|why| CommandError::Local(why.to_string()))?;
        let made = made_before(directory, self.part);
        let old = superfluous(&times(&made), plan.keep, of.at);
        for (_, path) in made.iter().filter(|(at, _)| old.contains(at)) {
            let manifest = Manifest::path_of(path);
            let removed = std::fs::remove_file(path).and_then(|()| match manifest.exists() {
                true => std::fs::remove_file(manifest),
                false => Ok(()),
            });
            if let Err(why) = removed {
                tracing::warn!(file = %path.display(), %why, "an old backup could not be removed");
            }
        }
        Ok(BackupReport::of(&to, facts, Some(&Manifest::path_of(&to))))
    }
}

fn times(made: &[(Timestamp, PathBuf)]) -> Vec<Timestamp> {
    made.iter().map(|(at, _)| *at).collect()
}

/// Scheduled backups of a part with their times.
fn made_before(directory: &Path, part: BackupPart) -> Vec<(Timestamp, PathBuf)> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let time = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let rest = name.strip_prefix(part.name())?.strip_prefix('-')?;
        let at = rest.strip_suffix(SUFFIX)?;
        Some((Timestamp(at.parse().ok()?), path.clone()))
    };
    files.filter_map(|file| time(file.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_no_backups() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for name in [
            "transfer-9000000.backup",
            "transfer-100.backup",
            "transfer-9999999.backup.part",
            "namespace-7.backup",
            "notes",
        ] {
            std::fs::write(directory.path().join(name), "").expect("written");
        }
        let mut made = times(&made_before(directory.path(), BackupPart::Transfer));
        made.sort();
        assert_eq!(made, [100, 9_000_000].map(Timestamp));
        let made = times(&made_before(directory.path(), BackupPart::Namespace));
        assert_eq!(made, [Timestamp(7)]);
    }
}
