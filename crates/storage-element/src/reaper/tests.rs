use super::*;
use crate::config::PoolConfig;
use crate::crash::{HANGING, Step};
use penstock_decide::admission::QueueLimits;
use penstock_decide::pool_selection::PoolMode;
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{Change, NewFile, PoolUsage, Replace, TrashedFile};

const SIZE: Bytes = Bytes(4);
/// What other files of a pool have.
const OTHERS: Bytes = Bytes(1000);
const DAY: Duration = Duration::from_secs(86_400);

fn path(text: &str) -> NamespacePath {
    NamespacePath::parse(text).expect("valid path")
}

/// A namespace with pools, in which files can be put and removed.
struct Lab {
    _directory: tempfile::TempDir,
    namespace: Arc<Namespace>,
    pools: Pools,
}

impl Lab {
    fn new(names: &[&str]) -> Lab {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("namespace.sqlite");
        let namespace = Arc::new(Namespace::open(&file).expect("opens"));
        let pool = |name: &&str| {
            let config = PoolConfig {
                name: PoolName::new(*name),
                directory: directory.path().join(name),
                capacity: Some(Bytes(OTHERS.0 + 10 * SIZE.0)),
                mode: PoolMode::Enabled,
                movers: QueueLimits {
                    movers_max: 1,
                    queue_max: 1,
                    ..QueueLimits::default()
                },
            };
            let pool = Pool::new(&config, OTHERS, Bytes(0));
            pool.set_free(u64::MAX / 2);
            (config.name, Arc::new(pool))
        };
        Lab {
            pools: names.iter().map(pool).collect(),
            _directory: directory,
            namespace,
        }
    }

    fn pool(&self, name: &str) -> &Arc<Pool> {
        &self.pools[&PoolName::new(name)]
    }

    fn start(&self, grace: Duration) -> Reapers {
        let clock = Arc::new(BelievedClock::start(None));
        Reapers::start(&self.namespace, &clock, &self.pools, grace).expect("started")
    }

    /// Puts a file with data into a pool.
    fn put(&self, pool: &str, at: &str) -> EntryId {
        let (pool, id) = (self.pool(pool), self.namespace.allocate());
        std::fs::create_dir_all(pool.data_directory(id)).expect("made");
        std::fs::write(pool.data_path(id), [0; SIZE.0 as usize]).expect("written");
        let file = NewFile {
            id,
            path: path(at),
            size: SIZE,
            checksums: Vec::new(),
            pool: pool.name.clone(),
            archival: penstock_model::Archival::DiskOnly,
            owner: None,
            at: Timestamp(0),
            replace: Replace::Refused,
            properties_of: None,
            archive_word: None,
            labelled_in: None,
        };
        self.namespace.submit(Change::Publish(file), |published| {
            published.expect("published");
        });
        pool.reserve().keep(SIZE);
        id
    }

    /// Removes what stands at a path from the tree, at this time.
    fn remove(&self, at: &str, when: Timestamp) -> Vec<TrashedData> {
        let remove = Change::Remove {
            path: path(at),
            only: None,
            entries_max: 1000,
            by: None,
            at: when,
        };
        self.namespace.apply(remove).expect("removed").trashed
    }

    fn trash(&self) -> Vec<TrashedFile> {
        let all = TrashQuery::default();
        self.namespace.trash(&all, 1000).expect("readable")
    }

    /// Waits until so many files are in the trash.
    fn until_trash_has(&self, files: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.trash().len() != files {
            assert!(Instant::now() < deadline, "{:?}", self.trash());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn trash_without_a_grace_time_is_forgotten_in_one_change_and_its_room_given_back_once() {
    let lab = Lab::new(&["p1"]);
    let files: Vec<_> = (0..300)
        .map(|number| lab.put("p1", &format!("/d/f{number}")))
        .collect();
    let trashed = lab.remove("/d", Timestamp(0));
    assert_eq!(trashed.len(), files.len());
    let before = lab.namespace.writer_counts().changes;
    // Told of before the thread has begun, and found by it as well.
    let reapers = lab.start(Duration::ZERO);
    reapers.handle().bury(&trashed);
    drop(reapers);
    assert_eq!(lab.trash(), []);
    assert_eq!(lab.namespace.writer_counts().changes - before, 1);
    let pool = lab.pool("p1");
    assert!(!files.iter().any(|file| pool.data_path(*file).exists()));
    assert_eq!(
        (pool.filling().0, pool.trash()),
        (OTHERS, PoolUsage::default())
    );
}

#[test]
fn trash_is_kept_for_its_grace_time_and_no_longer() {
    let lab = Lab::new(&["p1"]);
    let (old, new) = (lab.put("p1", "/old"), lab.put("p1", "/new"));
    let now = penstock_clock::wall_clock();
    let reapers = lab.start(DAY);
    reapers.handle().bury(&lab.remove("/new", now));
    reapers
        .handle()
        .bury(&lab.remove("/old", Timestamp(now.0 - 2 * 86_400_000)));
    reapers.handle().look_again();
    lab.until_trash_has(1);
    let pool = lab.pool("p1");
    assert!(!pool.data_path(old).exists() && pool.data_path(new).exists());
    // It is counted a moment after it is forgotten.
    let deadline = Instant::now() + Duration::from_secs(20);
    while pool.trash().files > 1 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(
        pool.trash(),
        PoolUsage {
            files: 1,
            bytes: SIZE
        }
    );
    reapers.handle().keep_trash_for(Duration::ZERO);
    lab.until_trash_has(0);
}

#[tokio::test]
async fn the_oldest_trash_gives_way_and_no_more_of_it_than_is_needed() {
    let lab = Lab::new(&["p1"]);
    let now = penstock_clock::wall_clock().0;
    let reapers = lab.start(DAY);
    // Not in the order in which they came.
    for (at, age) in [("/b", 2000), ("/c", 1000), ("/a", 3000)] {
        lab.put("p1", at);
        reapers.handle().bury(&lab.remove(at, Timestamp(now - age)));
    }
    let (pool, handle) = (lab.pool("p1"), reapers.handle());
    let left = || -> Vec<String> {
        let trash = lab.trash();
        trash.iter().map(|kept| kept.path.to_string()).collect()
    };
    let mut reservation = pool.reserve();
    let mut ask = async |bytes| with_room(&handle, pool, || reservation.cover(bytes, None)).await;
    assert_eq!(ask(7 * SIZE.0).await, Ok(()));
    assert_eq!(left(), ["/a", "/b", "/c"]);
    assert_eq!(ask(7 * SIZE.0 + 1).await, Ok(()));
    assert_eq!(left(), ["/b", "/c"]);
    // What would not be enough stays.
    assert!(ask(10 * SIZE.0 + 1).await.is_err());
    assert_eq!(left(), ["/b", "/c"]);
    assert_eq!(ask(10 * SIZE.0).await, Ok(()));
    assert_eq!(left(), [""; 0]);
    assert_eq!(pool.trash_evicted.read(), 3);
}

#[test]
fn a_disk_that_says_it_is_full_and_is_not_costs_no_trash() {
    let lab = Lab::new(&["p1"]);
    let reapers = lab.start(DAY);
    lab.put("p1", "/f");
    reapers
        .handle()
        .bury(&lab.remove("/f", penstock_clock::wall_clock()));
    let (mut tries, full) = (0, rustix::io::Errno::NOSPC);
    let refused: io::Result<()> = reapers.handle().with_space(lab.pool("p1"), || {
        tries += 1;
        Err(full.into())
    });
    assert!(refused.is_err() && tries > 1);
    assert_eq!(lab.trash().len(), 1);
    let once = reapers.handle().with_space(lab.pool("p1"), || {
        tries += 1;
        Err::<(), _>(io::ErrorKind::NotFound.into())
    });
    assert!(once.is_err());
    assert_eq!(lab.trash().len(), 1);
}

#[tokio::test]
async fn a_file_comes_back_unless_its_bytes_are_gone_or_its_place_is_taken() {
    let lab = Lab::new(&["p1"]);
    let (whole, gone, short) = (
        lab.put("p1", "/d/whole"),
        lab.put("p1", "/gone"),
        lab.put("p1", "/short"),
    );
    let reapers = lab.start(DAY);
    for at in ["/d", "/gone", "/short"] {
        reapers
            .handle()
            .bury(&lab.remove(at, penstock_clock::wall_clock()));
    }
    let pool = lab.pool("p1");
    std::fs::remove_file(pool.data_path(gone)).expect("removed");
    std::fs::write(pool.data_path(short), b"x").expect("written");
    let restore = async |file, to: &str| {
        let order = RestoreOrder {
            file,
            to: path(to),
            at: Timestamp(5),
            origin: Default::default(),
        };
        let restored = reapers.handle().restore(&pool.name, order).await;
        restored.map_err(|why| why.to_string())
    };
    let refused = |got: Result<(), String>, expected: &str| {
        let why = got.expect_err(expected);
        assert!(why.contains(expected), "{why}");
    };
    refused(restore(gone, "/gone").await, "its data is not there");
    refused(restore(short, "/short").await, "1 bytes instead of 4");
    refused(
        restore(EntryId(4711), "/x").await,
        "no file 1267 in the trash",
    );
    lab.put("p1", "/taken");
    refused(restore(whole, "/taken").await, "/taken exists");
    assert_eq!(pool.trash().files, 3);
    assert_eq!(restore(whole, "/d/whole").await, Ok(()));
    assert_eq!(pool.trash().files, 2);
    let entry = lab.namespace.lookup(&path("/d/whole")).expect("readable");
    assert_eq!(entry.map(|entry| entry.id), Some(whole));
    refused(restore(whole, "/again").await, "in the trash");
}

#[tokio::test]
async fn a_disk_that_hangs_stops_the_removal_in_no_other_pool() {
    let lab = Lab::new(&["hung", "p2"]);
    let (hung, other) = (lab.put("hung", "/hung"), lab.put("p2", "/other"));
    let (hanging, let_go) = &HANGING;
    let disk = (Step::DataRemoved, "reaper-hung");
    hanging.lock().push(disk);
    let reapers = lab.start(Duration::ZERO);
    for at in ["/hung", "/other"] {
        reapers
            .handle()
            .bury(&lab.remove(at, penstock_clock::wall_clock()));
    }
    lab.until_trash_has(1);
    assert_eq!(lab.trash()[0].file, hung);
    assert!(!lab.pool("p2").data_path(other).exists());
    hanging.lock().retain(|it| *it != disk);
    let_go.notify_all();
    lab.until_trash_has(0);
}

#[tokio::test]
async fn the_trash_is_emptied_as_far_as_is_asked() {
    let lab = Lab::new(&["p1"]);
    let reapers = lab.start(DAY);
    for at in ["/d/f", "/e"] {
        lab.put("p1", at);
        reapers
            .handle()
            .bury(&lab.remove(at, penstock_clock::wall_clock()));
    }
    let pool = lab.pool("p1");
    let within = TrashQuery {
        within: Some(path("/d")),
        ..TrashQuery::default()
    };
    let emptied = reapers
        .handle()
        .empty(&pool.name, within, Default::default())
        .await;
    let emptied = emptied.expect("answered").expect("readable");
    let gone = PoolUsage {
        files: 1,
        bytes: SIZE,
    };
    let expected = RemovedTrash {
        gone,
        ..RemovedTrash::default()
    };
    assert_eq!(emptied, expected);
    assert_eq!((lab.trash().len(), pool.trash()), (1, gone));
}
