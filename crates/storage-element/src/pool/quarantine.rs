//! `quarantine/`: files that recovery found and no namespace knows. Nobody was told that they exist, as far as the
//! namespace says; because a namespace can be an older copy than anybody noticed, they are kept for a while.

use super::{Pool, move_aside, sync_directory, tolerate_missing};
use penstock_model::Timestamp;
use penstock_persistence::namespace::EntryId;
use penstock_protocol::exposition::Counter;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How the name of data ends that was put out of the way of what comes from tape.
const BEFORE_RECALL: &str = "-before-recall";

#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Files, when it was last looked at.
    files: AtomicU64,
    /// Files that were put there since the start.
    pub added: Counter,
    /// Unfinished uploads that were left where they are, because their records cannot be read now.
    pub uploads_left: AtomicU64,
}

impl Quarantine {
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }
}

impl Pool {
    pub(crate) fn quarantine_root(&self) -> PathBuf {
        self.directory.join("quarantine")
    }

    /// Takes a file's data out of the way of others, with all that it says of itself. Blocks, like all others here.
    pub(crate) fn quarantine_data(&self, id: EntryId, now: Timestamp) -> io::Result<PathBuf> {
        self.quarantine_file(&self.data_path(id), &id.to_string(), now)
    }

    /// Puts data of a file's name out of the way of what comes from tape for it. There is one such place for each file: what
    /// was put there by a recall that was killed was complete as well.
    pub(crate) fn put_before_recall(&self, id: EntryId) -> io::Result<()> {
        tolerate_missing(std::fs::rename(
            self.data_path(id),
            self.before_recall_path(id),
        ))
    }

    /// It is the file's data after all.
    pub(crate) fn take_back_before_recall(&self, id: EntryId) -> io::Result<()> {
        let from = self.before_recall_path(id);
        tolerate_missing(move_aside(&from, &self.data_path(id)))
    }

    /// The file is there again, or is gone.
    pub(crate) fn drop_before_recall(&self, id: EntryId) -> io::Result<()> {
        tolerate_missing(std::fs::remove_file(self.before_recall_path(id)))
    }

    pub(crate) fn before_recall_path(&self, id: EntryId) -> PathBuf {
        self.quarantine_root().join(format!("{id}{BEFORE_RECALL}"))
    }

    /// The files of which something was put out of the way of a recall.
    pub(crate) fn files_before_recall(&self) -> io::Result<Vec<EntryId>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.quarantine_root())? {
            let name = entry?.file_name();
            let id = name
                .to_str()
                .and_then(|name| name.strip_suffix(BEFORE_RECALL));
            files.extend(id.and_then(|id| u64::from_str_radix(id, 16).ok()));
        }
        Ok(files.into_iter().map(EntryId).collect())
    }

    /// Puts any file of the pool into quarantine.
    pub(crate) fn quarantine_file(
        &self,
        from: &Path,
        name: &str,
        now: Timestamp,
    ) -> io::Result<PathBuf> {
        let root = self.quarantine_root();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)?;
        let mut seconds = now.unix_seconds();
        loop {
            let to = root.join(format!("{name}-{seconds}"));
            match move_aside(from, &to) {
                Ok(()) => {
                    self.quarantine.added.increment();
                    self.quarantine.files.fetch_add(1, Ordering::Relaxed);
                    return Ok(to);
                }
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => seconds += 1,
                Err(why) => return Err(why),
            }
        }
    }

    /// Counts what is there, and removes what has been there for longer than it is kept.
    pub(crate) fn expire_quarantine(&self, kept: Duration, now: Timestamp) -> io::Result<()> {
        let root = self.quarantine_root();
        let entries = match std::fs::read_dir(&root) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                self.quarantine.files.store(0, Ordering::Relaxed);
                return Ok(());
            }
            entries => entries?,
        };
        let (mut left, mut removed) = (0, 0);
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let since = name.to_str().and_then(since);
            if since.is_some_and(|since| now.since(since) >= kept) {
                tolerate_missing(std::fs::remove_file(entry.path()))?;
                removed += 1;
            } else {
                left += 1;
            }
        }
        self.quarantine.files.store(left, Ordering::Relaxed);
        if removed > 0 {
            let pool = &self.name;
            tracing::warn!(%pool, removed, "removed files whose time in quarantine is over");
            sync_directory(&root)?;
        }
        Ok(())
    }
}

/// When a file was put into quarantine, by its name.
fn since(name: &str) -> Option<Timestamp> {
    let (_, seconds) = name.rsplit_once('-')?;
    let seconds = seconds.parse().ok()?;
    Some(Timestamp(0) + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PoolConfig;
    use penstock_model::{Bytes, PoolName};

    #[test]
    fn what_is_in_quarantine_goes_when_its_time_is_over_and_not_before() {
        let directory = tempfile::tempdir().expect("made");
        let config = PoolConfig {
            name: PoolName::new("p"),
            directory: directory.path().to_owned(),
            capacity: None,
            mode: Default::default(),
            movers: Default::default(),
        };
        let pool = Pool::new(&config, Bytes(0), Bytes(0));
        let at = |seconds| Timestamp(0) + Duration::from_secs(seconds);
        for (id, seconds) in [(0x1a, 100), (0x1b, 160)] {
            let id = EntryId(id);
            std::fs::create_dir_all(pool.data_directory(id)).expect("made");
            std::fs::write(pool.data_path(id), b"found").expect("written");
            pool.quarantine_data(id, at(seconds)).expect("moved");
        }
        std::fs::write(pool.data_path(EntryId(0x1a)), b"again").expect("written");
        let again = pool.quarantine_data(EntryId(0x1a), at(100)).expect("moved");
        assert!(again.ends_with("1a-101"), "{}", again.display());
        std::fs::write(pool.quarantine_root().join("notes"), b"ours").expect("written");
        let names = || {
            let entries = std::fs::read_dir(pool.quarantine_root()).expect("there");
            let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        let kept = Duration::from_secs(60);
        pool.expire_quarantine(kept, at(159)).expect("done");
        assert_eq!(names(), ["1a-100", "1a-101", "1b-160", "notes"]);
        pool.expire_quarantine(kept, at(161)).expect("done");
        assert_eq!(names(), ["1b-160", "notes"]);
        assert_eq!(pool.quarantine.files(), 2);
        assert_eq!(pool.quarantine.added.read(), 3);
    }
}
