//! A namespace that was lost is made again and compared row by row.

use super::super::{Change, Namespace, NearlineChange, NewFile, PropertyUpdate, Replace};
use super::*;
use crate::namespace::directory_log::DIRECTORY_LOG;
use crate::namespace::{ChangeError, ChangeReport, DeadProperty, LedgerReader};
use std::collections::BTreeMap;
use std::sync::mpsc;

const POOLS: [&str; 2] = ["p1", "p2"];

/// A namespace, its pools' directories, and the labels that data in them has.
struct Lab {
    directory: tempfile::TempDir,
    namespace: Option<Namespace>,
    labels: BTreeMap<EntryId, (PoolName, FoundFile)>,
    draw: u64,
    clock: i64,
}

impl Lab {
    fn new() -> Lab {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for pool in POOLS {
            std::fs::create_dir(directory.path().join(pool)).expect("made");
        }
        let mut lab = Lab {
            directory,
            namespace: None,
            labels: BTreeMap::new(),
            draw: 7,
            clock: 2_000_000_000_000,
        };
        lab.open();
        lab
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("namespace.sqlite")
    }

    fn places(&self) -> Vec<(PoolName, PathBuf)> {
        let place = |pool: &str| (PoolName::new(pool), self.directory.path().join(pool));
        POOLS.into_iter().map(place).collect()
    }

    fn open(&mut self) {
        self.namespace = None;
        let namespace = Namespace::open(&self.file()).expect("opens");
        for (pool, directory) in self.places() {
            let kept = namespace.keep_directory_log(&pool, &directory);
            kept.expect("kept");
        }
        self.namespace = Some(namespace);
    }

    fn namespace(&self) -> &Namespace {
        self.namespace.as_ref().expect("open")
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.draw = self
            .draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.draw >> 33) % below
    }

    fn at(&mut self) -> Timestamp {
        self.clock += 17;
        Timestamp(self.clock)
    }

    /// One of a few paths, so that they meet: mostly of files, seldom of directories that hold them.
    fn path(&mut self) -> NamespacePath {
        let (a, b, c) = (self.draw(4), self.draw(4), self.draw(12));
        let text = match self.draw(12) {
            0 => format!("/a{a}"),
            1 => format!("/a{a}/b{b}"),
            _ => format!("/a{a}/b{b}/c{c}"),
        };
        NamespacePath::parse(&text).expect("valid")
    }

    fn path_of_file(&mut self) -> NamespacePath {
        let (a, b, c) = (self.draw(4), self.draw(4), self.draw(12));
        NamespacePath::parse(&format!("/a{a}/b{b}/c{c}")).expect("valid")
    }

    /// A file whose label is as a writer would have made it before its commit.
    fn new_file(&mut self, path: NamespacePath) -> NewFile {
        let (at, draw) = (self.at(), self.draw(1000));
        let id = self.namespace().allocate();
        let pool = PoolName::new(POOLS[draw as usize % 2]);
        let parent = path.parent().expect("not the root");
        let parent = self.namespace().lookup(&parent).expect("readable");
        let checksum = Checksum::parse(&format!("adler32:{draw:08x}")).expect("valid");
        let owner = (draw % 3 > 0).then(|| UserName::new(format!("user{}", draw % 3)));
        let has_label = draw % 10 > 0; // Some file systems keep none.
        let archival = match draw % 4 {
            0 => Archival::Precious,
            _ => Archival::DiskOnly,
        };
        let label = FoundLabel {
            archival,
            place: parent
                .as_ref()
                .map(|parent| (parent.id, path.name().expect("not the root").to_owned())),
            path: path.clone(),
            size: Bytes(draw),
            checksums: vec![checksum.clone()],
            owner: owner.clone(),
            created: at,
        };
        let found = FoundFile {
            id,
            size: Bytes(draw),
            modified: Timestamp(1),
            label: has_label.then_some(label),
        };
        self.labels.insert(id, (pool.clone(), found));
        NewFile {
            id,
            path,
            size: Bytes(draw),
            checksums: vec![checksum],
            pool,
            archival,
            owner,
            at,
            replace: Replace::Tree(50),
            properties_of: None,
            archive_word: None,
            labelled_in: parent.filter(|_| has_label).map(|parent| parent.id),
        }
    }

    fn change(&mut self) -> Change {
        let path = self.path();
        let at = self.at();
        match self.draw(12) {
            0..=5 => {
                let path = self.path_of_file();
                Change::Publish(self.new_file(path))
            }
            6 => Change::MakeDirectory {
                path,
                owner: Some(UserName::new("maker")),
                at,
            },
            7 => Change::Remove {
                path,
                only: None,
                entries_max: 100,
                by: None,
                at,
            },
            8 | 9 => Change::Rename {
                from: path,
                only: None,
                to: self.path(),
                replace: Replace::Allowed,
                entries_max: 100,
                by: None,
                at,
            },
            10 => Change::UpdateProperties {
                path,
                only: None,
                updates: vec![match self.draw(3) {
                    0 => PropertyUpdate::Remove {
                        namespace: "urn:x".to_owned(),
                        name: "note".to_owned(),
                    },
                    _ => PropertyUpdate::Set(DeadProperty {
                        namespace: "urn:x".to_owned(),
                        name: "note".to_owned(),
                        element: format!("<note>{}</note>", at.0),
                    }),
                }],
            },
            _ => match self.namespace().lookup(&path).expect("readable") {
                Some(entry) => Change::AddChecksums {
                    file: entry.id,
                    checksums: Checksum::parse("crc32c:00c0ffee").into_iter().collect(),
                },
                None => Change::RestoreTrash {
                    file: EntryId(self.draw(50)),
                    to: path,
                    at,
                },
            },
        }
    }

    /// Makes so many changes, some of them in one transaction. Those that are refused leave nothing.
    fn make(&mut self, changes: u64) {
        let (sender, answers) = mpsc::channel::<Result<ChangeReport, ChangeError>>();
        for _ in 0..changes / 20 {
            for _ in 0..20 {
                let (change, sender) = (self.change(), sender.clone());
                let made = move |made| sender.send(made).expect("heard");
                self.namespace().submit(change, made);
            }
            for _ in 0..20 {
                let answer = answers.recv().expect("answered");
                assert!(
                    !matches!(answer, Err(ChangeError::Database(_))),
                    "{answer:?}"
                );
            }
        }
    }

    /// Loses the namespace and makes it again from the pools' directories and the labels of data that is there.
    fn rebuild(&self, to: &str) -> (PathBuf, Rebuilt) {
        let to = self.directory.path().join(to);
        let of = self.uuid();
        let logs = PoolLogs::read(of, &self.places()).expect("readable");
        let id_max = self.labels.keys().map(|id| id.0).max().unwrap_or(0);
        let mut rebuild = Rebuild::begin(&to, of, logs, id_max).expect("begun");
        for (pool, found) in self.labels.values() {
            rebuild.add(pool, found.clone()).expect("added");
        }
        let rebuilt = rebuild.finish(&to, 3).expect("finished");
        (to, rebuilt)
    }

    fn uuid(&self) -> Uuid {
        let connection = Connection::open(self.file()).expect("opens");
        let sql = "SELECT value FROM meta WHERE key = 'uuid'";
        let uuid: String = connection
            .query_row(sql, [], |row| row.get(0))
            .expect("there");
        Uuid::parse_str(&uuid).expect("valid")
    }

    /// Forgets the data of files that never came to be: their writers have discarded it.
    fn discard_unpublished(&mut self) {
        let known = dump(
            &self.file(),
            "SELECT id FROM entry UNION SELECT file_id FROM trash",
        );
        let known: HashSet<String> = known.into_iter().collect();
        self.labels
            .retain(|id, _| known.contains(&format!("{}", id.0)));
    }
}

/// All rows of a query as text.
fn dump(database: &Path, sql: &str) -> Vec<String> {
    let connection = Connection::open(database).expect("opens");
    let mut query = connection.prepare(sql).expect("valid");
    let columns = query.column_count();
    let rows = query.query_map([], |row| {
        let values = (0..columns).map(|column| match row.get_ref(column)? {
            rusqlite::types::ValueRef::Null => Ok("-".to_owned()),
            rusqlite::types::ValueRef::Integer(value) => Ok(value.to_string()),
            rusqlite::types::ValueRef::Text(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            other => Ok(format!("{other:?}")),
        });
        Ok(values.collect::<rusqlite::Result<Vec<_>>>()?.join("|"))
    });
    rows.expect("runs")
        .collect::<rusqlite::Result<_>>()
        .expect("read")
}

/// Everything that must be equal.
fn rows(database: &Path) -> Vec<String> {
    [
        "SELECT id, parent, name, kind, size_bytes, modified_ms, created_ms, owner, pool, properties, archival FROM entry ORDER BY id",
        "SELECT * FROM checksum ORDER BY 1, 2",
        "SELECT * FROM property ORDER BY 1, 2, 3",
        "SELECT file_id, pool, size_bytes, removed_ms, path, owner, details FROM trash ORDER BY 1",
        "SELECT name, pool, value FROM counter WHERE pool <> '' AND value > 0 ORDER BY 1, 2",
    ]
    .iter()
    .flat_map(|sql| dump(database, sql))
    .collect()
}

fn assert_equal(lab: &Lab, rebuilt: &Path) {
    let (before, after) = (rows(&lab.file()), rows(rebuilt));
    assert!(before.len() > 50, "{}", before.len());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
}

#[test]
fn a_namespace_is_made_again_as_it_was_whatever_happened_to_its_entries() {
    let mut lab = Lab::new();
    lab.make(500);
    lab.namespace = None;
    lab.discard_unpublished();
    let (to, rebuilt) = lab.rebuild("first");
    assert_equal(&lab, &to);
    assert_eq!((rebuilt.lost, rebuilt.wrong_size.len()), (0, 0));
    assert!(rebuilt.trash > 10 && rebuilt.files > 10, "{rebuilt:?}");
    // From snapshots, where the logs were lost, or are behind.
    std::fs::remove_file(lab.directory.path().join("p1").join(DIRECTORY_LOG)).expect("removed");
    lab.open();
    lab.make(100);
    lab.namespace = None;
    lab.discard_unpublished();
    let (to, _) = lab.rebuild("second");
    assert_equal(&lab, &to);
    // No minute of its pools has a number that was given before: there is one a minute, and microseconds are more.
    let reader = LedgerReader::open(&to).expect("opens");
    let numbers = reader.last_pool_minute().expect("readable");
    assert!(numbers > 1_700_000_000_000_000, "{numbers}");
    drop(reader);
    // It gives no id again, and can be gone on with.
    let namespace = Namespace::open(&to).expect("opens");
    assert!(namespace.allocate().0 > lab.labels.keys().map(|id| id.0).max().expect("some"));
}

#[test]
fn one_log_of_two_is_enough_for_all_that_labels_and_logs_tell_together() {
    let mut lab = Lab::new();
    lab.make(200);
    lab.namespace = None;
    lab.discard_unpublished();
    std::fs::remove_file(lab.directory.path().join("p2").join(DIRECTORY_LOG)).expect("removed");
    let (to, _) = lab.rebuild("without");
    assert_equal(&lab, &to);
}

#[test]
fn without_any_log_files_are_where_their_labels_say_and_none_is_lost() {
    let mut lab = Lab::new();
    lab.make(200);
    lab.namespace = None;
    lab.discard_unpublished();
    for pool in POOLS {
        std::fs::remove_file(lab.directory.path().join(pool).join(DIRECTORY_LOG)).expect("removed");
    }
    let (to, rebuilt) = lab.rebuild("without");
    assert_eq!(rebuilt.files as usize, lab.labels.len());
    let ids = dump(&to, "SELECT id FROM entry WHERE kind = 1 ORDER BY id");
    let known: Vec<String> = lab.labels.keys().map(|id| id.0.to_string()).collect();
    assert_eq!(ids, known);
}

impl Lab {
    /// A file that is on tape and in this pool.
    fn archive(&mut self, path: &str, pool: &str) -> EntryId {
        let mut file = self.new_file(NamespacePath::parse(path).expect("valid"));
        (file.pool, file.archival) = (PoolName::new(pool), Archival::Precious);
        let id = file.id;
        let (place, _) = self.labels.get_mut(&id).expect("there");
        *place = PoolName::new(pool);
        let at = self.at();
        let archived = NearlineChange::Archived {
            file: id,
            uris: vec![format!("hsm://t{path}")],
            at,
        };
        for change in [Change::Publish(file), Change::Nearline(archived)] {
            self.namespace().apply(change).expect("made");
        }
        id
    }

    fn evict(&mut self, file: EntryId) {
        let at = self.at();
        let pool = self.labels.remove(&file).expect("there").0;
        let evict = NearlineChange::Evict { file, pool, at };
        self.namespace()
            .apply(Change::Nearline(evict))
            .expect("evicted");
        let files = vec![file];
        self.namespace()
            .apply(Change::ForgetTrash { files, at })
            .expect("forgotten");
    }

    fn log_of(&self, pool: &str) -> PathBuf {
        self.directory.path().join(pool).join(DIRECTORY_LOG)
    }

    /// Puts a file on tape and then into the trash.
    fn archive_to_trash(&mut self, path: &str, pool: &str) -> EntryId {
        let file = self.archive(path, pool);
        self.remove(path, file);
        file
    }

    fn remove(&mut self, path: &str, file: EntryId) {
        let at = self.at();
        let removed = Change::Remove {
            path: NamespacePath::parse(path).expect("valid"),
            only: Some(file),
            entries_max: 1,
            by: None,
            at,
        };
        self.namespace().apply(removed).expect("removed");
    }
}

#[test]
fn trash_has_no_copy_again_that_was_on_a_lost_tape() {
    let mut lab = Lab::new();
    let (lost, kept) = (
        lab.archive_to_trash("/lost", "p1"),
        lab.archive_to_trash("/kept", "p2"),
    );
    let half = lab.archive("/half", "p1");
    let further = NearlineChange::CopyMade {
        file: half,
        uri: "hsm://good/half".to_owned(),
        instead_of: None,
        at: lab.at(),
    };
    let further = Change::Nearline(further);
    lab.namespace().apply(further).expect("made");
    lab.remove("/half", half);
    for (file, uri) in [(lost, "hsm://t/lost"), (half, "hsm://t/half")] {
        let uris = vec![uri.to_owned()];
        let change = Change::Nearline(NearlineChange::LoseCopiesInTrash { file, uris });
        lab.namespace().apply(change).expect("made");
    }
    lab.namespace = None;
    let (to, rebuilt) = lab.rebuild("anew");
    assert_eq!((rebuilt.trash, rebuilt.files), (3, 0));
    let copies = dump(&to, "SELECT entry, uri FROM tape_copy ORDER BY entry");
    let (kept, half) = (kept.0, half.0);
    assert_eq!(
        copies,
        [
            format!("{kept}|hsm://t/kept"),
            format!("{half}|hsm://good/half")
        ]
    );
    let rows =
        "SELECT file_id, pool, size_bytes, removed_ms, path, owner, details FROM trash ORDER BY 1";
    assert_eq!(dump(&to, rows), dump(&lab.file(), rows));
}

#[test]
fn trash_comes_back_with_its_copies_on_tape_from_snapshots() {
    let mut lab = Lab::new();
    for pool in POOLS {
        lab.archive_to_trash(&format!("/{pool}"), pool);
    }
    lab.namespace = None;
    for pool in POOLS {
        std::fs::remove_file(lab.log_of(pool)).expect("removed");
    }
    // Each log is begun anew, with the trash of its pool.
    lab.open();
    lab.namespace = None;
    let (to, rebuilt) = lab.rebuild("anew");
    assert_eq!(rebuilt.trash, 2);
    let copies = dump(&to, "SELECT uri FROM tape_copy ORDER BY uri");
    assert_eq!(copies, ["hsm://t/p1", "hsm://t/p2"]);
}

#[test]
fn a_damaged_line_of_one_log_costs_no_file_on_tape_that_another_log_tells() {
    for damaged in POOLS {
        let mut lab = Lab::new();
        let file = lab.archive("/f", "p1");
        lab.evict(file);
        lab.namespace = None;
        let log = lab.log_of(damaged);
        let text = std::fs::read_to_string(&log).expect("readable");
        let spoiled: Vec<String> = text
            .lines()
            .map(|line| match line.contains("hsm://t/f") {
                true => line.replacen("hsm", "hsn", 1),
                false => line.to_owned(),
            })
            .collect();
        let spoiled = spoiled.join("\n") + "\n";
        assert_ne!(spoiled, text);
        std::fs::write(&log, spoiled).expect("written");
        let (_, rebuilt) = lab.rebuild("anew");
        assert_eq!((rebuilt.files, rebuilt.tape_only), (1, 1), "{damaged}");
    }
}

#[test]
fn of_two_files_of_one_place_the_one_that_was_told_of_counts() {
    let mut lab = Lab::new();
    let path = NamespacePath::parse("/f").expect("valid");
    let first = lab.new_file(path.clone());
    let first_id = first.id;
    lab.namespace()
        .apply(Change::Publish(first))
        .expect("published");
    // Its data is complete, and the process was killed before its commit.
    let second = lab.new_file(path);
    lab.namespace = None;
    let (to, rebuilt) = lab.rebuild("anew");
    let there = dump(&to, "SELECT id FROM entry WHERE name = 'f' AND parent = 1");
    assert_eq!(there, [first_id.0.to_string()]);
    assert_eq!(rebuilt.lost, 1);
    let lost = &rebuilt.lost_named[0].0;
    assert_eq!(lost.to_string(), "/lost+found/f");
    let there = dump(&to, "SELECT id FROM entry WHERE name = 'f' AND parent <> 1");
    assert_eq!(there, [second.id.0.to_string()]);
}

#[test]
fn a_file_that_is_not_whole_displaces_none_that_is() {
    let mut lab = Lab::new();
    let path = NamespacePath::parse("/f").expect("valid");
    let mut ids = Vec::new();
    // Both with labels.
    while ids.len() < 2 {
        let file = lab.new_file(path.clone());
        let found = &lab.labels[&file.id].1;
        match found.label.is_some() && found.size.0 > 0 {
            true => ids.push(file.id),
            false => drop(lab.labels.remove(&file.id)),
        }
    }
    lab.namespace = None;
    for pool in POOLS {
        std::fs::remove_file(lab.directory.path().join(pool).join(DIRECTORY_LOG)).expect("removed");
    }
    // The younger one has its final name and its label, and a power cut took its bytes.
    lab.labels.get_mut(&ids[1]).expect("there").1.size = Bytes(0);
    let (to, rebuilt) = lab.rebuild("anew");
    let there = dump(&to, "SELECT id FROM entry WHERE name = 'f' AND parent = 1");
    assert_eq!(there, [ids[0].0.to_string()]);
    assert_eq!((rebuilt.lost, rebuilt.wrong_size.len()), (1, 1));
}
