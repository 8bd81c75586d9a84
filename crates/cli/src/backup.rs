//! `penstock backup` and `penstock restore`: what a transfer service remembers, in one file, made while it runs; and the
//! backups that a running service makes of itself.

use crate::args::{BackupArgs, RestoreArgs};
use crate::config::{BackupPlan, Config, DatabasePlace, Transfer};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::SiteDirectory;
use crate::store;
use crate::token::now;
use penstock_model::{Bytes, Timestamp};
use penstock_persistence::backup::{
    BackupError, BackupFacts, BackupOf, Kept, RestoreTo, Restored, back_up, restore, verify,
};
use penstock_protocol::exposition::{Counter, Page};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use tokio::sync::watch;

/// Names in a backup of what is put back elsewhere than beside its like.
const CONFIGURATION: &str = "penstock.toml";
const KEYS: &str = "credential-encryption";
/// What scheduled backups are called: with the time in between.
const PREFIX: &str = "transfer-";
const SUFFIX: &str = ".backup";

/// What is told of a backup, for programs.
#[derive(Debug, Serialize)]
struct Told {
    file: String,
    /// When it was begun, in milliseconds since 1970.
    at: i64,
    /// The last entry of the ledger in it.
    sequence: u64,
    jobs: u64,
    jobs_open: u64,
    transfers: u64,
    delegations: u64,
    files: Vec<String>,
    size_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set_aside: Vec<String>,
}

impl Told {
    fn of(file: &Path, facts: BackupFacts) -> Told {
        Told {
            file: file.display().to_string(),
            at: facts.at.0,
            sequence: facts.sequence,
            jobs: facts.jobs,
            jobs_open: facts.jobs_open,
            transfers: facts.transfers,
            delegations: facts.delegations,
            files: facts.files,
            size_bytes: facts.size_bytes,
            set_aside: Vec::new(),
        }
    }

    fn text(&self, what: &str) -> String {
        let mut text = format!(
            "{what} {}: {} of {}, up to entry {}\n  {} jobs ({} open) with {} files, {} delegated credentials, {}\n",
            self.file,
            Bytes(self.size_bytes),
            Timestamp(self.at).to_fts(),
            self.sequence,
            self.jobs,
            self.jobs_open,
            self.transfers,
            self.delegations,
            self.files.join(", ")
        );
        for aside in &self.set_aside {
            text += &format!("  what was there before is {aside}\n");
        }
        text
    }
}

/// `penstock backup`.
pub fn run(
    args: &BackupArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    if let Some(file) = &args.verify {
        let facts = verify(file).map_err(|why| CommandError::Local(why.to_string()))?;
        let told = Told::of(file, facts);
        output.show(&told, || told.text("whole:"));
        return Ok(());
    }
    let (Some(dir), Some(to)) = (&args.dir, &args.to) else {
        let text = "name the site with --dir and the file with --to, or a backup with --verify";
        return Err(CommandError::Usage(text.to_owned()));
    };
    let site = SiteDirectory::at(dir)?;
    let config = site.config()?;
    let keys = args.with_keys.then_some(KEYS);
    let pass_file = environment.database_passwords.as_deref();
    let of = source(&site, &config, pass_file, keys, args.rate.0)?;
    let facts = back_up(&of, to).map_err(|why| CommandError::Local(why.to_string()))?;
    let told = Told::of(to, facts);
    output.show(&told, || {
        let advice = match keys {
            Some(_) => "it holds the keys that open what is sealed in it: keep it as you keep those\n",
            None => "keep the sealing keys (transfer.credential_keys) as well, and apart: it cannot be opened without\n",
        };
        told.text("made") + advice
    });
    Ok(())
}

fn transfer<'a>(site: &SiteDirectory, config: &'a Config) -> Result<&'a Transfer, CommandError> {
    config.transfer.as_ref().ok_or_else(|| {
        CommandError::Usage(format!(
            "{} has no [transfer], of which a backup is made",
            site.config_file().display()
        ))
    })
}

/// What the service keeps its record in.
fn kept(
    site: &SiteDirectory,
    transfer: &Transfer,
    pass_file: Option<&Path>,
) -> Result<Kept, CommandError> {
    match (
        store::database(site, transfer, pass_file)?,
        &transfer.database,
    ) {
        (None, DatabasePlace::File(path)) => Ok(Kept::Files {
            journal: site.resolve(path),
            delegations: site.resolve(&transfer.delegations),
        }),
        (Some(database), _) => Ok(Kept::Postgres(Box::new(database))),
        (None, DatabasePlace::Postgres(address)) => Err(CommandError::Usage(format!(
            "transfer.database = '{address}' cannot be used"
        ))),
    }
}

fn source(
    site: &SiteDirectory,
    config: &Config,
    pass_file: Option<&Path>,
    keys: Option<&str>,
    bytes_per_second: u64,
) -> Result<BackupOf, CommandError> {
    let transfer = transfer(site, config)?;
    let read =
        |path: &Path| std::fs::read(path).map_err(|why| CommandError::local(path.display(), why));
    let mut files = vec![(CONFIGURATION.to_owned(), read(&site.config_file())?)];
    if let Some(name) = keys {
        files.push((
            name.to_owned(),
            read(&site.resolve(&transfer.credential_keys))?,
        ));
    }
    let positions = site.resolve(&transfer.message_positions);
    let taken = |name: &str| {
        let text = std::fs::read_to_string(positions.join(name)).ok()?;
        Some((name.to_owned(), text.trim().parse().ok()?))
    };
    Ok(BackupOf {
        kept: kept(site, transfer, pass_file)?,
        files,
        positions: transfer
            .messages
            .iter()
            .filter_map(|sink| taken(&sink.name))
            .collect(),
        at: now(),
        bytes_per_second,
        stopped: Arc::default(),
    })
}

/// `penstock restore`.
pub fn put_back(
    args: &RestoreArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let site = SiteDirectory::at(&args.dir)?;
    let local = |path: &Path, why: io::Error| CommandError::local(path.display(), why);
    let state = site.root().join("state");
    make_directory(&state)?;
    let _lock = site.lock()?;
    // Of a directory without a configuration the backup's counts, which is verified before anything is written.
    let config = match site.config_file().exists() {
        true => site.config()?,
        false => configuration_of(&args.file)?,
    };
    let transfer = transfer(&site, &config)?;
    let to = RestoreTo {
        kept: kept(&site, transfer, environment.database_passwords.as_deref())?,
        replaces: args.replace,
        scratch: state,
        at: now(),
    };
    if let Kept::Files {
        journal,
        delegations,
    } = &to.kept
    {
        for path in [journal, delegations] {
            make_directory(path.parent().unwrap_or(site.root()))?;
        }
    }
    let restored = restore(&args.file, &to).map_err(|why| CommandError::Local(why.to_string()))?;
    let keys = site.resolve(&transfer.credential_keys);
    for (name, content) in &restored.files {
        let path = match name.as_str() {
            CONFIGURATION => site.config_file(),
            KEYS => keys.clone(),
            _ => continue,
        };
        make_directory(path.parent().unwrap_or(site.root()))?;
        write_new(&path, content).map_err(|why| local(&path, why))?;
    }
    if matches!(to.kept, Kept::Files { .. }) {
        put_positions(&restored, &site.resolve(&transfer.message_positions))?;
    }
    let mut told = Told::of(&args.file, restored.facts);
    told.set_aside = restored
        .set_aside
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    output.show(&told, || {
        let advice = match keys.exists() {
            true => String::new(),
            false => format!(
                "put the sealing keys back before you start: {}\n",
                keys.display()
            ),
        };
        told.text("restored from") + &advice
    });
    Ok(())
}

/// The configuration in a backup.
fn configuration_of(backup: &Path) -> Result<Config, CommandError> {
    let files = penstock_persistence::backup::files(backup);
    let files = files.map_err(|why: BackupError| CommandError::Local(why.to_string()))?;
    let text = files.into_iter().find(|(name, _)| name == CONFIGURATION);
    let text = text.map(|(_, content)| String::from_utf8_lossy(&content).into_owned());
    Config::parse(&text.unwrap_or_default())
        .map_err(|why| CommandError::Usage(format!("the backup's {CONFIGURATION}: {why}")))
}

fn make_directory(path: &Path) -> Result<(), CommandError> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|why| CommandError::local(path.display(), why))
}

/// What is there already stays.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => file.write_all(content).and_then(|()| file.sync_all()),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(why) => Err(why),
    }
}

/// A position that is further than the backup's stays: what was told since then is not told again.
fn put_positions(restored: &Restored, directory: &Path) -> Result<(), CommandError> {
    make_directory(directory)?;
    for (sink, sequence) in &restored.positions {
        let path = directory.join(sink);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let further = text
            .trim()
            .parse::<u64>()
            .is_ok_and(|known| known > *sequence);
        if !further {
            std::fs::write(&path, format!("{sequence}\n"))
                .map_err(|why| CommandError::local(path.display(), why))?;
        }
    }
    Ok(())
}

/// What became of the backups that a running service makes of itself, for monitors.
#[derive(Debug, Default)]
pub struct BackupMeter {
    /// When the newest was begun, in milliseconds since 1970; 0: there is none.
    newest_ms: AtomicI64,
    failures: Counter,
}

impl BackupMeter {
    /// Writes both families.
    pub fn write(&self, page: &mut Page, now: Timestamp) {
        let mut family = page.gauge(
            "penstock_backup_age_seconds",
            "Since the newest scheduled backup was begun; absent before the first.",
        );
        let newest = Timestamp(self.newest_ms.load(Ordering::Relaxed));
        if newest.0 > 0 {
            family.sample(&[], now.since(newest).as_secs_f64());
        }
        let mut family = page.counter(
            "penstock_backup_failures_total",
            "Scheduled backups that could not be made.",
        );
        family.sample(&[], self.failures.read());
    }
}

/// The backups that a running service makes of itself.
#[derive(Debug, Clone)]
pub struct Schedule {
    pub site: SiteDirectory,
    pub config: Config,
    pub plan: BackupPlan,
    /// What the environment names as `PGPASSFILE`.
    pub pass_file: Option<PathBuf>,
    pub meter: Arc<BackupMeter>,
}

impl Schedule {
    /// Makes backups as planned until the shutdown signal. A failure is logged, and the next one is tried in time.
    pub async fn keep_backing_up(self, mut shutdown: watch::Receiver<bool>) {
        let directory = self.site.resolve(&self.plan.to);
        loop {
            if let Some((newest, _)) = made_before(&directory).last() {
                self.meter.newest_ms.store(newest.0, Ordering::Relaxed);
            }
            tokio::select! {
                () = tokio::time::sleep(wait_until_due(&directory, &self.plan, now())) => {}
                _ = shutdown.wait_for(|stop| *stop) => return,
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
            match made {
                Ok(Ok(told)) => {
                    tracing::info!(file = %told.file, bytes = told.size_bytes, "a backup was made")
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, "no backup could be made; it is tried again in a minute");
                    self.meter.failures.increment();
                    tokio::select! {
                        () = tokio::time::sleep(std::time::Duration::from_secs(60)) => {}
                        _ = shutdown.wait_for(|stop| *stop) => return,
                    }
                }
                Err(error) => tracing::error!(%error, "the backup's thread ended unexpectedly"),
            }
        }
    }

    fn make_one(&self, directory: &Path, stopped: Arc<AtomicBool>) -> Result<Told, CommandError> {
        make_directory(directory)?;
        let (plan, pass_file) = (&self.plan, self.pass_file.as_deref());
        let of = BackupOf {
            stopped,
            ..source(&self.site, &self.config, pass_file, None, plan.rate.0)?
        };
        let to = directory.join(format!("{PREFIX}{}{SUFFIX}", of.at.0));
        let facts = back_up(&of, &to).map_err(|why| CommandError::Local(why.to_string()))?;
        let made = made_before(directory);
        let old = made.len().saturating_sub(plan.keep);
        for (_, path) in &made[..old] {
            if let Err(why) = std::fs::remove_file(path) {
                tracing::warn!(file = %path.display(), %why, "an old backup could not be removed");
            }
        }
        Ok(Told::of(&to, facts))
    }
}

/// From the newest that is there: a restart makes none before its time.
fn wait_until_due(directory: &Path, plan: &BackupPlan, now: Timestamp) -> std::time::Duration {
    match made_before(directory).last() {
        Some((at, _)) => (*at + plan.every.0).since(now),
        None => std::time::Duration::from_secs(1),
    }
}

/// Scheduled backups with their times, the newest last.
fn made_before(directory: &Path) -> Vec<(Timestamp, PathBuf)> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let time = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let at = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        Some((Timestamp(at.parse().ok()?), path.clone()))
    };
    let mut made: Vec<_> = files.filter_map(|file| time(file.path())).collect();
    made.sort();
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_due_by_the_newest_that_is_there_and_others_files_do_not_count() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let plan: BackupPlan = toml::from_str("to = \"backups\"\nevery = \"1h\"").expect("valid");
        let now = Timestamp(10_000_000);
        let due = || wait_until_due(directory.path(), &plan, now);
        assert_eq!(due().as_secs(), 1);
        for name in [
            "transfer-9000000.backup",
            "transfer-100.backup",
            "transfer-9999999.backup.part",
            "notes",
        ] {
            std::fs::write(directory.path().join(name), "").expect("written");
        }
        assert_eq!(due().as_secs(), 2600);
        assert_eq!(made_before(directory.path()).len(), 2);
    }
}
