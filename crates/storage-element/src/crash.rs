//! The steps of writing and removing a file, named so that tests can kill the process after each of them.

/// A step after which the process may die without losing an acknowledged file or showing an unfinished one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The file exists in `incoming/`.
    Created,
    /// It has all its bytes.
    Written,
    /// It describes itself.
    Labelled,
    /// Its bytes are durable.
    Synced,
    /// It is at its final place.
    Adopted,
    /// Its final place is durable.
    DirectorySynced,
    /// It is visible, what it replaced is trash, and nobody knows yet.
    Committed,
    /// The data of a removed file is gone, its trash entry is not.
    DataRemoved,
    /// The trash entry is gone, too.
    TrashForgotten,
}

/// Does nothing outside tests.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn reached(_step: Step) {}

#[cfg(test)]
pub(crate) use kill::{HANGING, KILL_AT, reached};

#[cfg(test)]
mod kill {
    use super::Step;
    use parking_lot::{Condvar, Mutex};
    use std::sync::OnceLock;

    /// Set in the child process of a crash test.
    pub(crate) static KILL_AT: OnceLock<Step> = OnceLock::new();

    /// Disks that hang at a step, each for one thread of its pool. Until they are let go.
    pub(crate) static HANGING: (Mutex<Vec<(Step, &str)>>, Condvar) =
        (Mutex::new(Vec::new()), Condvar::new());

    pub(crate) fn reached(step: Step) {
        let (hanging, let_go) = &HANGING;
        let is_here = |hanging: &mut Vec<(Step, &str)>| {
            let thread = std::thread::current();
            let mut hanging = hanging.iter();
            hanging.any(|(at, name)| *at == step && thread.name() == Some(*name))
        };
        let mut state = hanging.lock();
        let_go.wait_while(&mut state, is_here);
        if KILL_AT.get() == Some(&step) {
            // Not `exit`: nothing may be cleaned up, as after SIGKILL.
            std::process::abort();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! A child process writes and is killed at a step; the parent starts over on what is left.

    use super::{HANGING, KILL_AT, Step};
    use crate::file_label::read_label;
    use crate::pool_messages::{FinishWrite, OpenWrite, PlacementQuery};
    use crate::pool_write::PoolWrite;
    use crate::write_error::WriteError;
    use crate::{PoolConfig, Storage, StorageConfig, StorageLimits};
    use penstock_decide::pool_condition::PoolCondition;
    use penstock_model::observation::EntryChange;
    use penstock_model::{NamespacePath, PoolName};
    use penstock_persistence::namespace::{
        Change, ElementEvent, EntryId, EntryKind, Replace, TrashQuery,
    };
    use std::collections::BTreeSet;
    use std::os::unix::process::ExitStatusExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const STEPS: [Step; 9] = [
        Step::Created,
        Step::Written,
        Step::Labelled,
        Step::Synced,
        Step::Adopted,
        Step::DirectorySynced,
        Step::Committed,
        Step::DataRemoved,
        Step::TrashForgotten,
    ];
    /// No disk here takes so long.
    const STALL: Duration = Duration::from_secs(60);

    /// Written in one step, and in several.
    const SIZES: [usize; 2] = [1000, 2_500_000];

    /// In the child's working directory; without it the child has nothing to do.
    const ORDERS: &str = "crash-orders";

    fn path() -> NamespacePath {
        NamespacePath::parse("/d/f").expect("valid")
    }

    fn open(directory: &Path) -> Arc<Storage> {
        let limits = StorageLimits {
            trash: Duration::ZERO,
            ..StorageLimits::default()
        };
        open_with(directory, &["p"], limits)
    }

    pub(crate) fn open_with(
        directory: &Path,
        pools: &[&str],
        limits: StorageLimits,
    ) -> Arc<Storage> {
        let certificates = directory.join("certificates");
        std::fs::create_dir_all(&certificates).expect("made");
        let config = StorageConfig {
            namespace: directory.join("namespace.sqlite"),
            shares: directory.join("shares.sqlite"),
            pools: pools
                .iter()
                .map(|name| PoolConfig {
                    name: PoolName::new(*name),
                    directory: directory.join(name),
                    capacity: None,
                    mode: Default::default(),
                    movers: Default::default(),
                })
                .collect(),
            checksums: Vec::new(),
            access: Default::default(),
            issuer: None,
            site_document: None,
            macaroons: None,
            outbound: crate::OutboundConfig {
                certificates: Some(certificates),
                ..crate::OutboundConfig::default()
            },
            nearline: None,
            limits,
        };
        Storage::open(config).expect("opens")
    }

    fn requester() -> penstock_decide::admission::Requester {
        penstock_decide::admission::Requester {
            vo: None,
            user: None,
            address: std::net::Ipv4Addr::LOCALHOST.into(),
        }
    }

    fn open_write(
        storage: &Storage,
        pool: PoolName,
        path: NamespacePath,
        size: Option<u64>,
    ) -> Result<PoolWrite, WriteError> {
        let claim = storage.claims.claim(&path)?;
        // Nobody has locks here.
        let claim = claim.clear(|_| Ok(()))?;
        let order = OpenWrite {
            write: storage.new_write(pool),
            parent: storage.parent_of(&path),
            path,
            owner: None,
            origin: Default::default(),
            replace: Replace::Allowed,
            size,
            algorithms: storage.algorithms(std::iter::empty()),
            properties_of: None,
            tape: Default::default(),
        };
        Ok(storage.open_write(order, claim))
    }

    async fn write(storage: &Storage, byte: u8, size: usize) {
        let query = PlacementQuery {
            size: Some(size as u64),
            requester: requester(),
        };
        let pool = storage.choose_pool(&query).expect("room").pool;
        let mut file = open_write(storage, pool, path(), query.size).expect("free");
        let mut rest = size;
        while rest > 0 {
            let mut buffer = file.buffer();
            let filled = buffer.len().min(rest);
            buffer[..filled].fill(byte);
            let appended = file.append(buffer, filled, STALL).await;
            appended.expect("written");
            rest -= filled;
        }
        let expected = Vec::new();
        let stored = file.finish(FinishWrite { expected }).await;
        stored.expect("stored");
    }

    /// The part of the child: replaces a file of ones by one of twos, then removes it.
    #[test]
    fn child() {
        let Ok(orders) = std::fs::read_to_string(ORDERS) else {
            return;
        };
        let directory = std::env::current_dir().expect("set by the parent");
        let (step, size) = orders.split_once(' ').expect("two words");
        let (step, size): (usize, usize) = (
            step.parse().expect("a number"),
            size.parse().expect("a number"),
        );
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let storage = open(&directory);
            write(&storage, 1, size).await;
            KILL_AT.set(STEPS[step]).expect("set once");
            write(&storage, 2, size).await;
            std::fs::write(directory.join("acknowledged"), b"").expect("written");
            let change = Change::Remove {
                path: path(),
                only: None,
                entries_max: 10,
                by: None,
                at: penstock_clock::wall_clock(),
            };
            storage.change(change).await.expect("removed");
            // The steps of removal come on another thread.
            std::thread::sleep(std::time::Duration::from_secs(10));
        });
    }

    fn check(step: usize, size: usize) {
        let directory = tempfile::tempdir().expect("temporary directory");
        let orders = format!("{step} {size}");
        std::fs::write(directory.path().join(ORDERS), orders).expect("written");
        let output = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "crash::tests::child", "--nocapture"])
            .current_dir(directory.path())
            .output()
            .expect("the child runs");
        let step = STEPS[step];
        let text = String::from_utf8_lossy(&output.stderr);
        // SIGABRT is 6.
        assert_eq!(output.status.signal(), Some(6), "{step:?} {size}: {text}");

        let acknowledged = directory.path().join("acknowledged").exists();
        let storage = open(directory.path());
        let trash = || storage.namespace.trash(&TrashQuery::default(), 10);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !trash().expect("readable").is_empty() {
            assert!(Instant::now() < deadline, "{step:?} {size}: trash stays");
            std::thread::sleep(Duration::from_millis(1));
        }
        let entry = storage.namespace.lookup(&path()).expect("readable");
        check_ledger(&storage, entry.as_ref().map(|entry| entry.id), step, size);
        let on_disk: Vec<_> = walk(&directory.path().join("p/data"));
        let unfinished = walk(&directory.path().join("p/incoming"));
        assert_eq!(unfinished, Vec::<PathBuf>::new(), "{step:?} {size}");
        let Some(entry) = entry else {
            assert!(acknowledged, "{step:?} {size}: the first file is lost");
            assert_eq!(on_disk, Vec::<PathBuf>::new(), "{step:?} {size}");
            return;
        };
        let EntryKind::File {
            size: told,
            pool: Some(pool),
            ..
        } = &entry.kind
        else {
            panic!("{step:?} {size}: not a file on disk");
        };
        let pool = storage.pool(pool).expect("known");
        assert_eq!(on_disk, [pool.data_path(entry.id)], "{step:?} {size}");
        let data = std::fs::read(&on_disk[0]).expect("readable");
        let expected = if acknowledged { 2 } else { data[0] };
        assert!(
            data.len() == size && data.iter().all(|byte| *byte == expected),
            "{step:?} {size}"
        );
        assert_eq!(told.0, size as u64);
        let label = read_label(&pool.data_path(entry.id)).expect("readable");
        let label = label.expect("labelled");
        assert_eq!((label.path, label.size), (path(), *told));
        assert_eq!(pool.filling().0, *told, "{step:?} {size}");
    }

    /// The ledger tells of no file that is neither there nor removed, and of the one that is there.
    fn check_ledger(storage: &Storage, visible: Option<EntryId>, step: Step, size: usize) {
        let told = storage.namespace.ledger_after(0).expect("readable");
        let entries = |kinds: &[EntryChange]| -> BTreeSet<EntryId> {
            let told = told.iter().filter_map(|(_, record)| match &record.event {
                ElementEvent::Changed(changed) => Some(changed),
                ElementEvent::Refused(_) | ElementEvent::Gap(_) => None,
            });
            let told = told.filter(|changed| kinds.contains(&changed.kind));
            let told = told.filter(|changed| changed.path == Some(path()));
            told.map(|changed| changed.entry).collect()
        };
        let created = entries(&[EntryChange::Creation, EntryChange::Replacement]);
        let removed = entries(&[EntryChange::Removal]);
        let there: BTreeSet<EntryId> = created.difference(&removed).copied().collect();
        assert_eq!(there, visible.into_iter().collect(), "{step:?} {size}");
    }

    fn walk(directory: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).expect("there").flatten() {
            match entry.path().is_dir() {
                true => found.extend(walk(&entry.path())),
                false => found.push(entry.path()),
            }
        }
        found
    }

    async fn write_into(storage: &Storage, pool: &str, at: &str) -> Result<(), WriteError> {
        let path = NamespacePath::parse(at).expect("valid");
        let mut file = open_write(storage, PoolName::new(pool), path, Some(5))?;
        file.append(b"bytes".to_vec(), 5, STALL).await?;
        let expected = Vec::new();
        file.finish(FinishWrite { expected }).await.map(drop)
    }

    #[tokio::test]
    async fn a_disk_that_hangs_holds_up_no_other_pool_and_shows_no_file_that_was_given_up() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let limits = StorageLimits {
            finish_timeout: Duration::from_millis(300),
            ..StorageLimits::default()
        };
        let storage = open_with(directory.path(), &["slow", "quick"], limits);
        let (hanging, let_go) = &HANGING;
        let disk = (Step::DirectorySynced, "committer-slow");
        hanging.lock().push(disk);
        let slow = write_into(&storage, "slow", "/d/slow").await;
        assert!(
            matches!(slow, Err(WriteError::DiskStalled { .. })),
            "{slow:?}"
        );
        // Neither other pools nor the path wait for it.
        for at in ["/d/quick", "/d/slow"] {
            let written = write_into(&storage, "quick", at).await;
            written.unwrap_or_else(|why| panic!("{at}: {why}"));
        }
        let slow = storage.pool(&PoolName::new("slow")).expect("known");
        assert_eq!(walk(&slow.data_root()).len(), 1);
        hanging.lock().retain(|it| *it != disk);
        let_go.notify_all();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !walk(&slow.data_root()).is_empty() {
            assert!(
                Instant::now() < deadline,
                "the file that was given up stays"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let path = NamespacePath::parse("/d/slow").expect("valid");
        let entry = storage
            .namespace
            .lookup(&path)
            .expect("readable")
            .expect("there");
        let EntryKind::File {
            pool: Some(pool), ..
        } = &entry.kind
        else {
            panic!("no file");
        };
        assert_eq!(pool.as_str(), "quick", "the later one");
    }

    #[tokio::test]
    async fn a_pool_that_was_lost_while_a_file_waited_for_it_or_was_written_takes_no_byte() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let storage = open_with(directory.path(), &["lost"], StorageLimits::default());
        let lost = storage.pool(&PoolName::new("lost")).expect("known");
        for first in [None, Some(5)] {
            let path = NamespacePath::parse(&format!("/d/{}", first.unwrap_or(0)));
            let path = path.expect("valid");
            let file = open_write(&storage, lost.name.clone(), path, Some(10));
            let mut file = file.expect("free");
            lost.health.set(&lost.name, PoolCondition::Sound);
            if let Some(filled) = first {
                let appended = file.append(b"bytes".to_vec(), filled, STALL).await;
                appended.expect("written");
            }
            let why = "its disk is gone".to_owned();
            lost.health.set(&lost.name, PoolCondition::Away { why });
            let refused = file.append(b"bytes".to_vec(), 5, STALL).await;
            let is_refused = matches!(refused, Err(WriteError::PoolFailing { .. }));
            assert!(is_refused, "{first:?}: {refused:?}");
        }
    }

    #[test]
    fn a_kill_between_any_two_steps_loses_nothing_acknowledged_and_leaves_nothing_else() {
        for step in 0..STEPS.len() {
            for size in SIZES {
                check(step, size);
            }
        }
    }
}
