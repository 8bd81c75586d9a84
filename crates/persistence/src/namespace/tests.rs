//! Conformance of the namespace: what the doors may rely on.

mod directories;
mod entries;
mod ledger;
mod nearline;
mod path_record;
mod pool_minutes;
mod trash;

use super::*;
use penstock_model::{
    Archival, Checksum, NamespacePath, PoolSamples, ProblemCode, StageClocks, StageRequestId,
    TcpSummary, VoName,
};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const NOW: Timestamp = Timestamp(1_795_241_992_000);
const LATER: Timestamp = Timestamp(1_795_241_993_000);

struct Lab {
    namespace: Option<Namespace>,
    directory: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut lab = Lab {
            namespace: None,
            directory,
        };
        lab.restart();
        lab
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("namespace.sqlite")
    }

    fn restart(&mut self) {
        self.namespace = None;
        self.namespace = Some(Namespace::open(&self.file()).expect("opens"));
    }

    fn namespace(&self) -> &Namespace {
        self.namespace.as_ref().expect("open until the end")
    }

    fn new_file(&self, at: &str, size: u64) -> NewFile {
        NewFile {
            id: self.namespace().allocate(),
            path: path(at),
            size: Bytes(size),
            checksums: Checksum::parse("adler32:1a2b3c4d").into_iter().collect(),
            pool: PoolName::new("p1"),
            archival: Archival::DiskOnly,
            owner: Some(UserName::new("alice")),
            at: NOW,
            replace: Replace::Refused,
            properties_of: None,
            archive_word: None,
            labelled_in: None,
        }
    }

    /// All of it, what was removed first before others.
    fn trash(&self) -> Vec<TrashedFile> {
        let all = self.namespace().trash(&TrashQuery::default(), 100);
        all.expect("readable")
    }

    fn write(&self, at: &str) -> EntryId {
        let file = self.new_file(at, 10);
        let id = file.id;
        self.make(Change::Publish(file)).expect("published");
        id
    }

    fn make(&self, change: Change) -> Result<ChangeReport, String> {
        let made = self.namespace().apply(change);
        self.check_cache();
        made.map_err(|error| error.to_string())
    }

    fn mkdir(&self, at: &str) -> Result<ChangeReport, String> {
        self.make(Change::MakeDirectory {
            path: path(at),
            owner: None,
            at: NOW,
        })
    }

    fn remove(&self, at: &str, entries_max: usize) -> Result<ChangeReport, String> {
        self.make(Change::Remove {
            path: path(at),
            only: None,
            entries_max,
            by: None,
            at: LATER,
        })
    }

    fn rename(&self, from: &str, to: &str, replace: Replace) -> Result<ChangeReport, String> {
        self.make(Change::Rename {
            from: path(from),
            only: None,
            to: path(to),
            replace,
            entries_max: 100,
            by: None,
            at: LATER,
        })
    }

    fn find(&self, at: &str) -> Option<Entry> {
        self.namespace().lookup(&path(at)).expect("readable")
    }

    /// The whole tree, one path a line, directories with a slash.
    fn tree(&self) -> String {
        let mut lines = Vec::new();
        let mut open = vec![(EntryId::ROOT, String::new())];
        while let Some((directory, prefix)) = open.pop() {
            for entry in self
                .namespace()
                .list(directory, None, 1000)
                .expect("readable")
            {
                let at = format!("{prefix}/{}", entry.name);
                if entry.is_directory() {
                    lines.push(format!("{at}/"));
                    open.push((entry.id, at));
                } else {
                    lines.push(at);
                }
            }
        }
        lines.sort();
        lines.join(" ")
    }

    fn usage(&self) -> PoolUsage {
        let usage = self.namespace().pool_usage().expect("readable");
        usage.get(&PoolName::new("p1")).copied().unwrap_or_default()
    }
}

fn path(text: &str) -> NamespacePath {
    NamespacePath::parse(text).expect("valid path")
}

fn refused(result: Result<ChangeReport, String>, why: &str) {
    assert_eq!(result.expect_err("refused"), why);
}

#[test]
fn a_change_waits_for_whoever_writes_and_does_not_fail() {
    let lab = Lab::new();
    let change = || lab.write("/f");
    crate::writing::beside_another_writer(&lab.file(), change);
    assert!(
        lab.namespace()
            .lookup(&path("/f"))
            .expect("readable")
            .is_some()
    );
}

#[test]
fn a_file_appears_with_its_parents_its_checksum_and_its_owner() {
    let lab = Lab::new();
    let id = lab.write("/a/b/f");
    assert_eq!(lab.tree(), "/a/ /a/b/ /a/b/f");
    let entry = lab.find("/a/b/f").expect("visible");
    assert_eq!((entry.id, entry.size()), (id, Some(Bytes(10))));
    assert_eq!(
        (entry.created, entry.owner),
        (NOW, Some(UserName::new("alice")))
    );
    assert_eq!(
        lab.namespace().checksums(id).expect("readable"),
        lab.new_file("/x", 0).checksums
    );
    assert_eq!(
        lab.usage(),
        PoolUsage {
            files: 1,
            bytes: Bytes(10)
        }
    );
}

#[test]
fn everything_survives_a_restart_and_no_id_is_given_twice() {
    let mut lab = Lab::new();
    let uuid = lab.namespace().uuid();
    let first = lab.write("/f");
    lab.remove("/f", 1).expect("removed");
    let trash = lab.trash();
    let forget = trash.iter().map(|trashed| trashed.file).collect();
    lab.make(Change::ForgetTrash {
        files: forget,
        at: Timestamp(1),
    })
    .expect("forgotten");
    lab.restart();
    assert_eq!(lab.namespace().uuid(), uuid);
    let second = lab.write("/g");
    assert!(second > first, "{second:?} after {first:?}");
    assert_eq!(lab.tree(), "/g");
    assert_eq!(
        lab.usage(),
        PoolUsage {
            files: 1,
            bytes: Bytes(10)
        }
    );
}

#[test]
fn the_newest_record_is_as_new_as_the_newest_entry_though_no_mover_is_recorded_yet() {
    let lab = Lab::new();
    let newest = || lab.namespace().newest_record().expect("readable");
    let made = newest().expect("the root is an entry");
    let at = made + Duration::from_secs(5);
    let file = lab.new_file("/f", 10);
    lab.make(Change::Publish(NewFile { at, ..file }))
        .expect("published");
    assert_eq!(newest(), Some(at));
}

#[test]
fn the_low_water_mark_moves_only_when_recovery_says_so() {
    let mut lab = Lab::new();
    let id = lab.write("/f");
    lab.restart();
    assert!(lab.namespace().low_water() <= id);
    let first = lab.namespace().first_id();
    lab.make(Change::RaiseLowWater(first)).expect("raised");
    lab.restart();
    assert_eq!(lab.namespace().low_water(), first);
    assert!(lab.namespace().first_id() >= first);
}

#[test]
fn two_processes_cannot_open_one_namespace() {
    let lab = Lab::new();
    assert!(matches!(
        Namespace::open(&lab.file()),
        Err(NamespaceError::InUse(_))
    ));
}

#[test]
fn a_process_that_ends_meanwhile_is_waited_for() {
    let lab = Lab::new();
    let file = lab.file();
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(lab.namespace);
        lab.directory
    });
    Namespace::open(&file).expect("opens once it has ended");
    ending.join().expect("no panic");
}

#[test]
fn a_database_of_a_later_version_is_left_alone() {
    let mut lab = Lab::new();
    lab.namespace = None;
    let connection = Connection::open(lab.file()).expect("opens");
    connection
        .pragma_update(None, "user_version", 99)
        .expect("written");
    drop(connection);
    let opened = Namespace::open(&lab.file());
    assert!(matches!(
        opened,
        Err(NamespaceError::Newer { found: 99, .. })
    ));
}

#[test]
fn a_change_that_expects_one_entry_leaves_every_other_alone() {
    let lab = Lab::new();
    let (old, other) = (lab.write("/f"), lab.write("/other"));
    let mut file = lab.new_file("/f", 77);
    for (at, id) in [("/f", other), ("/gone", old), ("/missing/gone", old)] {
        (file.path, file.replace) = (path(at), Replace::Only(id));
        let said = format!("{at} has changed since the request began");
        refused(lab.make(Change::Publish(file.clone())), &said);
    }
    let remove = |id| {
        lab.make(Change::Remove {
            path: path("/f"),
            only: Some(id),
            entries_max: 10,
            by: None,
            at: LATER,
        })
    };
    refused(remove(other), "/f has changed since the request began");
    let rename = lab.make(Change::Rename {
        from: path("/f"),
        only: Some(other),
        to: path("/g"),
        replace: Replace::Refused,
        entries_max: 10,
        by: None,
        at: LATER,
    });
    refused(rename, "/f has changed since the request began");
    (file.path, file.replace) = (path("/f"), Replace::Only(old));
    assert!(
        lab.make(Change::Publish(file.clone()))
            .expect("replaced")
            .replaced
    );
    remove(file.id).expect("removed");
}

#[test]
fn an_existing_file_is_replaced_only_when_asked_for_and_goes_to_the_trash() {
    let lab = Lab::new();
    let old = lab.write("/f");
    let mut file = lab.new_file("/f", 77);
    refused(lab.make(Change::Publish(file.clone())), "/f exists");
    assert_eq!(lab.find("/f").map(|entry| entry.id), Some(old));
    file.replace = Replace::Allowed;
    let changed = lab.make(Change::Publish(file.clone())).expect("replaced");
    assert!(changed.replaced);
    let trash: Vec<_> = lab.trash().iter().map(|kept| kept.file).collect();
    assert_eq!(trash, [old]);
    assert_eq!(changed.trashed[0].file, old);
    assert_eq!(lab.find("/f").map(|entry| entry.id), Some(file.id));
    assert_eq!(
        lab.usage(),
        PoolUsage {
            files: 1,
            bytes: Bytes(77)
        }
    );
    assert_eq!(lab.namespace().checksums(old).expect("readable"), []);
}

#[test]
fn a_refused_publish_leaves_no_parents_behind() {
    let lab = Lab::new();
    lab.write("/f");
    lab.mkdir("/d").expect("made");
    let publish = |at| lab.make(Change::Publish(lab.new_file(at, 1)));
    refused(
        publish("/f/x/y"),
        "/f is a file, so nothing can be below it",
    );
    refused(publish("/d"), "/d is a directory");
    refused(publish("/"), "/ is a directory");
    assert_eq!(lab.tree(), "/d/ /f");
}

#[test]
fn a_directory_is_made_once_and_only_below_a_directory() {
    let lab = Lab::new();
    lab.mkdir("/d").expect("made");
    refused(lab.mkdir("/d"), "/d exists");
    refused(lab.mkdir("/"), "/ exists");
    refused(
        lab.mkdir("/x/y"),
        "the directory /x does not exist; make it first",
    );
    lab.write("/f");
    refused(
        lab.mkdir("/f/d"),
        "/f is a file, so nothing can be below it",
    );
}

#[test]
fn a_directory_is_removed_with_all_below_it_or_not_at_all() {
    let lab = Lab::new();
    for at in ["/d/a", "/d/e/b", "/d/e/c", "/k"] {
        lab.write(at);
    }
    refused(
        lab.remove("/d", 4),
        "/d has 4 entries or more; remove its entries first",
    );
    assert_eq!(lab.tree(), "/d/ /d/a /d/e/ /d/e/b /d/e/c /k");
    let changed = lab.remove("/d", 5).expect("removed");
    assert_eq!(changed.trashed.len(), 3);
    assert_eq!(lab.tree(), "/k");
    assert_eq!(lab.usage().files, 1);
    refused(lab.remove("/d", 5), "/d does not exist");
    refused(
        lab.remove("/", 5),
        "the root directory can be neither removed nor moved nor replaced",
    );
}

#[test]
fn a_moved_directory_keeps_its_identity_and_all_below_it() {
    let lab = Lab::new();
    let file = lab.write("/a/b/f");
    lab.mkdir("/c").expect("made");
    lab.rename("/a/b", "/c/z", Replace::Refused).expect("moved");
    assert_eq!(lab.tree(), "/a/ /c/ /c/z/ /c/z/f");
    assert_eq!(lab.find("/c/z/f").map(|entry| entry.id), Some(file));
}

#[test]
fn a_move_into_itself_or_to_nowhere_is_refused() {
    let lab = Lab::new();
    lab.write("/a/b/f");
    let rename = |from, to| lab.rename(from, to, Replace::Allowed);
    refused(
        rename("/a", "/a/b/c"),
        "/a cannot be moved onto or below itself",
    );
    refused(
        rename("/a/b", "/a"),
        "/a/b cannot be moved onto or below itself",
    );
    refused(
        rename("/a", "/a"),
        "/a cannot be moved onto or below itself",
    );
    refused(rename("/x", "/y"), "/x does not exist");
    refused(rename("/x/y", "/y"), "/x/y does not exist");
    refused(
        rename("/a", "/x/y"),
        "the directory /x does not exist; make it first",
    );
    assert_eq!(lab.tree(), "/a/ /a/b/ /a/b/f");
}

#[test]
fn a_move_replaces_only_when_asked_for() {
    let lab = Lab::new();
    let moved = lab.write("/new");
    let old = lab.write("/old");
    refused(lab.rename("/new", "/old", Replace::Refused), "/old exists");
    let changed = lab.rename("/new", "/old", Replace::Allowed).expect("moved");
    assert!(changed.replaced);
    assert_eq!(changed.trashed[0].file, old);
    assert_eq!(lab.find("/old").map(|entry| entry.id), Some(moved));
    assert_eq!(lab.tree(), "/old");
}

#[test]
fn a_move_replaces_the_file_that_was_named_and_nothing_else() {
    let lab = Lab::new();
    let moved = lab.write("/new");
    let (seen, other) = (lab.write("/seen"), lab.write("/other"));
    lab.write("/tree/f");
    for place in ["/other", "/tree", "/free"] {
        let renamed = lab.rename("/new", place, Replace::Only(seen));
        assert!(renamed.is_err(), "{place}");
    }
    lab.rename("/new", "/other", Replace::Only(other))
        .expect("moved");
    assert_eq!(lab.find("/other").map(|entry| entry.id), Some(moved));
    assert_eq!(lab.tree(), "/other /seen /tree/ /tree/f");
}

#[test]
fn a_path_is_followed_in_one_state_of_the_tree() {
    let lab = Lab::new();
    lab.write("/d/f");
    let looked = std::thread::scope(|threads| {
        let replaces = threads.spawn(|| {
            for _ in 0..200 {
                lab.write("/next/f");
                lab.rename("/next", "/d", Replace::Allowed).expect("moved");
            }
        });
        let mut looked = 0;
        while !replaces.is_finished() {
            assert!(lab.find("/d/f").is_some(), "look {looked}");
            looked += 1;
        }
        looked
    });
    assert!(looked > 200, "{looked}");
}

#[test]
fn a_directory_shows_when_its_entries_changed() {
    let lab = Lab::new();
    lab.write("/d/f");
    lab.remove("/d/f", 1).expect("removed");
    assert_eq!(lab.find("/d").map(|entry| entry.modified), Some(LATER));
}

#[test]
fn listings_come_in_pages_by_name() {
    let lab = Lab::new();
    for name in ["b", "a", "d", "c"] {
        lab.write(&format!("/d/{name}"));
    }
    let directory = lab.find("/d").expect("made").id;
    let names = |after| -> Vec<String> {
        let page = lab.namespace().list(directory, after, 3).expect("readable");
        page.into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names(None), ["a", "b", "c"]);
    assert_eq!(names(Some("c")), ["d"]);
}

#[test]
fn later_checksums_are_added_while_the_file_exists() {
    let lab = Lab::new();
    let file = lab.write("/f");
    let add = |hex: &str| {
        let checksums = Checksum::parse(hex).into_iter().collect();
        lab.make(Change::AddChecksums { file, checksums })
            .expect("accepted");
    };
    add("crc32c:00000001");
    assert_eq!(lab.namespace().checksums(file).expect("readable").len(), 2);
    lab.remove("/f", 1).expect("removed");
    add("crc32c:00000002");
    assert_eq!(lab.namespace().checksums(file).expect("readable"), []);
}

#[test]
fn many_writers_share_commits_and_each_gets_its_own_answer() {
    let lab = Lab::new();
    let (sender, answers) = mpsc::channel();
    for index in 0..600 {
        // Every third path is taken already by the time its turn comes.
        let file = lab.new_file(&format!("/d/{}", index / 3 * 2 + index % 3 % 2), 1);
        let sender = sender.clone();
        lab.namespace()
            .submit(Change::Publish(file), move |result| {
                sender.send(result.is_ok()).expect("the test waits");
            });
    }
    drop(sender);
    let made = answers.iter().filter(|made| *made).count();
    assert_eq!(made, 400);
    assert_eq!(lab.usage().files, 400);
}

#[test]
fn a_broken_change_does_not_break_its_neighbours() {
    let lab = Lab::new();
    let taken = lab.write("/f");
    let (sender, answers) = mpsc::channel();
    for (name, id) in [("/a", None), ("/broken", Some(taken)), ("/b", None)] {
        let mut file = lab.new_file(name, 1);
        file.id = id.unwrap_or(file.id);
        let sender = sender.clone();
        lab.namespace()
            .submit(Change::Publish(file), move |result| {
                sender.send(result.is_ok()).expect("the test waits");
            });
    }
    assert_eq!(
        answers.iter().take(3).collect::<Vec<_>>(),
        [true, false, true]
    );
    assert_eq!(lab.tree(), "/a /b /f");
}

#[test]
fn ended_movers_are_recorded_in_order() {
    let mut lab = Lab::new();
    let record = |kind, outcome| MoverRecord {
        at: NOW,
        kind,
        path: path("/d/f"),
        peer: "https://se.example.org/f".to_owned(),
        copy: Some("7-1".to_owned()),
        challenge: Some("scitag:66".to_owned()),
        file_size: Some(Bytes(10)),
        user: Some(UserName::new("alice")),
        vo: Some(VoName::new("atlas")),
        pool: Some(PoolName::new("p1")),
        moved: Bytes(5),
        duration_us: 12,
        stages: StageClocks {
            wait_us: 3,
            ..StageClocks::default()
        },
        tcp: Some(TcpSummary {
            rtt_us: 40,
            ..TcpSummary::default()
        }),
        selection: serde_json::json!([{"reason": "drawn"}]),
        outcome,
    };
    let records = vec![
        record(MoverKind::Pull, MoverOutcome::Done),
        record(MoverKind::Put, MoverOutcome::Failed("no space".to_owned())),
        record(
            MoverKind::Get,
            MoverOutcome::Aborted("client left".to_owned()),
        ),
    ];
    lab.make(Change::RecordMovers(records.clone()))
        .expect("recorded");
    lab.restart();
    let stored = lab.namespace().mover_records(0, 10).expect("readable");
    assert_eq!(
        stored
            .iter()
            .map(|(_, record)| record.clone())
            .collect::<Vec<_>>(),
        records
    );
    let rest = lab
        .namespace()
        .mover_records(stored[1].0, 10)
        .expect("readable");
    assert_eq!(rest, stored[2..]);
}

#[test]
fn a_full_disk_is_told_apart_from_a_broken_one() {
    let failed = |code| {
        let error = rusqlite::ffi::Error::new(code);
        ChangeError::from(rusqlite::Error::SqliteFailure(error, None)).is_disk_full()
    };
    assert!(failed(rusqlite::ffi::SQLITE_FULL));
    assert!(!failed(rusqlite::ffi::SQLITE_IOERR));
}

fn set(name: &str, value: &str) -> PropertyUpdate {
    PropertyUpdate::Set(DeadProperty {
        namespace: "urn:x".to_owned(),
        name: name.to_owned(),
        element: value.to_owned(),
    })
}

fn unset(name: &str) -> PropertyUpdate {
    PropertyUpdate::Remove {
        namespace: "urn:x".to_owned(),
        name: name.to_owned(),
    }
}

impl Lab {
    fn patch(&self, at: &str, updates: Vec<PropertyUpdate>) -> Result<ChangeReport, String> {
        self.make(Change::UpdateProperties {
            path: path(at),
            only: None,
            updates,
        })
    }

    /// `name=element` of what stands at a path; the flag on the entry must say whether there are any.
    fn properties(&self, at: &str) -> String {
        let entry = self.find(at).expect("there");
        let properties = self.namespace().properties(entry.id).expect("readable");
        assert_eq!(entry.has_properties, !properties.is_empty(), "{at}");
        let shown = |property: &DeadProperty| format!("{}={}", property.name, property.element);
        properties.iter().map(shown).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn properties_go_where_their_file_goes() {
    let mut lab = Lab::new();
    lab.mkdir("/d").expect("made");
    let old = lab.write("/d/f");
    lab.patch(
        "/d/f",
        vec![
            set("a", "1"),
            set("b", "2"),
            set("a", "3"),
            unset("b"),
            unset("none"),
        ],
    )
    .expect("set");
    lab.patch("/d", vec![set("of", "directory")]).expect("set");
    assert_eq!(
        (lab.properties("/d/f"), lab.properties("/d")),
        ("a=3".into(), "of=directory".into())
    );

    lab.rename("/d", "/e", Replace::Refused).expect("moved");
    lab.restart();
    assert_eq!(
        (lab.properties("/e/f"), lab.properties("/e")),
        ("a=3".into(), "of=directory".into())
    );

    let mut file = lab.new_file("/e/f", 5);
    (file.replace, file.properties_of) = (Replace::Allowed, None);
    lab.make(Change::Publish(file)).expect("replaced");
    assert_eq!(lab.properties("/e/f"), "a=3");

    let mut file = lab.new_file("/copy", 5);
    let source = lab.find("/e/f").expect("there").id;
    assert_ne!(source, old);
    file.properties_of = Some(source);
    lab.make(Change::Publish(file)).expect("copied");
    assert_eq!(lab.properties("/copy"), "a=3");
    let mut file = lab.new_file("/copy", 6);
    (file.replace, file.properties_of) = (Replace::Allowed, Some(old));
    lab.make(Change::Publish(file))
        .expect("replaced by what has none");
    assert_eq!(lab.properties("/copy"), "");

    lab.remove("/e", 100).expect("removed");
    lab.namespace = None;
    let connection = Connection::open(lab.file()).expect("opens");
    let left: i64 = connection
        .query_row("SELECT count(*) FROM property", [], |row| row.get(0))
        .expect("counted");
    assert_eq!(left, 0);
}

#[test]
fn a_file_below_as_many_missing_directories_as_a_path_can_name_is_made_soon() {
    let lab = Lab::new();
    let deep = "/a".repeat(1_999);
    let begun = Instant::now();
    lab.make(Change::Publish(lab.new_file(&deep, 1)))
        .expect("published");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let found = lab.namespace().lookup(&path(&deep)).expect("readable");
    assert!(found.is_some_and(|found| !found.is_directory()));
}

#[test]
fn properties_are_changed_as_a_whole_and_within_bounds() {
    let lab = Lab::new();
    lab.write("/f");
    let many = |count: usize| {
        (0..count)
            .map(|number| set(&format!("p{number}"), "v"))
            .collect()
    };
    let large = "x".repeat(PROPERTIES_BYTES_MAX);
    for too_much in [
        many(PROPERTIES_MAX + 1),
        vec![set("a", "1"), set("b", &large)],
    ] {
        let said = format!(
            "/f would have more than {PROPERTIES_MAX} properties, or more than {PROPERTIES_BYTES_MAX} bytes of \
             them; remove some"
        );
        refused(lab.patch("/f", too_much), &said);
        assert_eq!(lab.properties("/f"), "");
    }
    lab.patch("/f", many(PROPERTIES_MAX)).expect("just enough");
    lab.patch("/f", vec![unset("p0"), set("new", "v")])
        .expect("one for another");
    refused(
        lab.patch("/gone", vec![set("a", "1")]),
        "/gone does not exist",
    );
    lab.make(Change::UpdateProperties {
        path: path("/f"),
        only: Some(EntryId::ROOT),
        updates: Vec::new(),
    })
    .expect_err("another entry");
}

#[test]
fn a_file_may_take_the_place_of_a_directory_when_that_is_asked_for() {
    let lab = Lab::new();
    lab.write("/d/e/f");
    let mut file = lab.new_file("/d", 5);
    file.replace = Replace::Tree(2);
    refused(
        lab.make(Change::Publish(file.clone())),
        "/d has 2 entries or more; remove its entries first",
    );
    file.replace = Replace::Tree(3);
    let changed = lab.make(Change::Publish(file)).expect("replaced");
    assert_eq!((changed.replaced, changed.trashed.len()), (true, 1));
    assert_eq!(lab.tree(), "/d");
}

#[test]
fn locks_survive_a_restart_until_they_are_dropped() {
    use penstock_model::{Lock, LockReach, LockScope, LockToken};
    let mut lab = Lab::new();
    let lock = |number, reach, scope| Lock {
        token: LockToken(Uuid::from_u128(number)),
        root: path("/d/ü"),
        reach,
        scope,
        user: UserName::new("alice"),
        macaroon: (number == 2).then(|| "5a5a".to_owned()),
        owner: "<x:href xmlns:x=\"DAV:\">mailto:alice</x:href>".to_owned(),
        expires: NOW,
    };
    let mut first = lock(1, LockReach::Tree, LockScope::Exclusive);
    let second = lock(2, LockReach::Itself, LockScope::Shared);
    for kept in [&first, &second] {
        lab.make(Change::KeepLock(kept.clone())).expect("kept");
    }
    first.expires = LATER;
    lab.make(Change::KeepLock(first.clone()))
        .expect("refreshed");
    lab.restart();
    assert_eq!(
        lab.namespace().locks().expect("readable"),
        [first.clone(), second]
    );
    lab.make(Change::DropLocks(vec![first.token]))
        .expect("dropped");
    assert_eq!(lab.namespace().locks().expect("readable").len(), 1);
}

#[test]
fn what_is_below_a_directory_is_told_with_its_names() {
    let lab = Lab::new();
    lab.write("/d/e/f");
    lab.write("/d/g");
    let directory = lab.find("/d").expect("there").id;
    let below = |limit| {
        let found = lab.namespace().below(directory, limit).expect("readable");
        let names = found.iter().map(|(names, _)| names.join("/"));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        (below(10), below(2)),
        ("e g e/f".to_owned(), "e g".to_owned())
    );
}

/// The tables of the first version, as they were written then.
const FIRST_VERSION: &str = "
CREATE TABLE entry (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name TEXT NOT NULL, kind INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, modified_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL, owner TEXT, pool TEXT,
    UNIQUE (parent, name));
CREATE TABLE checksum (entry INTEGER NOT NULL, algorithm TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (entry, algorithm)) WITHOUT ROWID;
CREATE TABLE trash (file_id INTEGER PRIMARY KEY, pool TEXT NOT NULL, size_bytes INTEGER NOT NULL);
CREATE TABLE pool_usage (pool TEXT PRIMARY KEY, files INTEGER NOT NULL, size_bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE mover_record (sequence INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, kind TEXT NOT NULL,
    path TEXT NOT NULL, peer TEXT NOT NULL, user TEXT, vo TEXT, pool TEXT, moved_bytes INTEGER NOT NULL,
    duration_us INTEGER NOT NULL, stages TEXT NOT NULL, tcp TEXT, selection TEXT NOT NULL, outcome TEXT NOT NULL,
    detail TEXT NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO entry VALUES (1, 0, '', 0, 0, 1795241992000, 1795241992000, NULL, NULL);
INSERT INTO entry VALUES (2, 1, 'f', 1, 10, 1795241992000, 1795241992000, 'alice', 'p1');
INSERT INTO checksum VALUES (2, 'adler32', '1a2b3c4d');
INSERT INTO pool_usage VALUES ('p1', 1, 10);
INSERT INTO meta VALUES ('uuid', '6f4f4d4e-0f4e-4c5d-9a55-0d5cf1f4b3aa'), ('low_water', '2'), ('ids_below', '10003');
PRAGMA user_version = 1;
";

/// What the second version added, as it was written then, with a lock in it.
const SECOND_VERSION: &str = "
ALTER TABLE entry ADD COLUMN properties INTEGER NOT NULL DEFAULT 0;
CREATE TABLE property (entry INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, element TEXT NOT NULL,
    PRIMARY KEY (entry, namespace, name)) WITHOUT ROWID;
CREATE TABLE lock (token TEXT PRIMARY KEY, path TEXT NOT NULL, tree INTEGER NOT NULL, exclusive INTEGER NOT NULL,
    user TEXT NOT NULL, owner TEXT NOT NULL, expires_ms INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO lock VALUES ('opaquelocktoken:e71d4fae-5dec-22d6-fea5-00a0c91e6be4', '/f', 0, 1, 'alice', '', 1795241992000);
PRAGMA user_version = 2;
";

/// A namespace that was written by an older program.
fn written_before(batches: &[&str]) -> Lab {
    let mut lab = Lab::new();
    lab.namespace = None;
    for suffix in ["", "-wal", "-shm"] {
        // Not all of them are left behind.
        let _ = std::fs::remove_file(format!("{}{suffix}", lab.file().display()));
    }
    let connection = Connection::open(lab.file()).expect("opens");
    for batch in batches {
        connection.execute_batch(batch).expect("written");
    }
    lab
}

#[test]
fn a_namespace_of_the_second_version_is_read_and_raised() {
    let mut lab = written_before(&[FIRST_VERSION, SECOND_VERSION]);
    for _ in 0..2 {
        lab.restart();
        let locks = lab.namespace().locks().expect("readable");
        let told = locks
            .iter()
            .map(|lock| (lock.user.as_str(), &lock.macaroon));
        assert_eq!(told.collect::<Vec<_>>(), [("alice", &None)]);
    }
    let mut lock = lab.namespace().locks().expect("readable").remove(0);
    lock.macaroon = Some("5a".to_owned());
    lab.make(Change::KeepLock(lock.clone())).expect("kept");
    lab.restart();
    assert_eq!(lab.namespace().locks().expect("readable"), [lock]);
}

#[test]
fn a_namespace_of_the_first_version_is_read_and_raised() {
    let mut lab = written_before(&[FIRST_VERSION]);
    for _ in 0..2 {
        lab.restart();
        assert_eq!(lab.properties("/f"), "");
        assert_eq!(
            lab.namespace()
                .checksums(EntryId(2))
                .expect("readable")
                .len(),
            1
        );
    }
    lab.patch("/f", vec![set("a", "1")]).expect("set");
    lab.write("/g");
    lab.restart();
    assert_eq!(
        (lab.properties("/f"), lab.properties("/g")),
        ("a=1".into(), String::new())
    );
}

/// What the third version added, with a removed file whose data is still there.
const THIRD_VERSION: &str = "
ALTER TABLE lock ADD COLUMN macaroon TEXT;
INSERT INTO trash VALUES (7, 'p1', 5);
PRAGMA user_version = 3;
";

#[test]
fn a_namespace_of_the_third_version_is_read_and_raised() {
    let mut lab = written_before(&[FIRST_VERSION, SECOND_VERSION, THIRD_VERSION]);
    for _ in 0..2 {
        lab.restart();
        let trash = lab.namespace().trashed(EntryId(7)).expect("readable");
        let trash = trash.expect("there");
        // Where it was is not known.
        assert_eq!((trash.path.is_root(), trash.size), (true, Bytes(5)));
        assert!(
            lab.namespace()
                .lookup(&path("/f"))
                .expect("readable")
                .is_some()
        );
    }
    lab.make(Change::Remove {
        path: path("/f"),
        only: None,
        entries_max: 10,
        by: None,
        at: LATER,
    })
    .expect("removed");
    let ids: Vec<_> = lab.trash().iter().map(|one| one.file.0).collect();
    assert_eq!(ids, [7, 2]);
}

/// What the versions from the fourth to the sixth added, with removed files: one by its owner, one by another user.
const SIXTH_VERSION: &str = r#"
ALTER TABLE entry ADD COLUMN labelled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trash ADD COLUMN removed_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trash ADD COLUMN path TEXT;
ALTER TABLE trash ADD COLUMN owner TEXT;
ALTER TABLE trash ADD COLUMN details TEXT;
INSERT INTO meta VALUES ('log_sequence', '41');
CREATE INDEX trash_by_pool ON trash (pool, removed_ms, file_id, size_bytes);
INSERT INTO trash VALUES (9, 'p1', 5, 1795635789254, '/own', 'alice',
    '{"created":1795635773561,"checksums":[{"algorithm":"adler32","hex":"00000001"}],"by":"alice"}');
INSERT INTO trash VALUES (8, 'p2', 6, 1795635789255, '/other', 'alice',
    '{"created":1795635773562,"properties":[{"namespace":"n","name":"a","element":"<a/>"}],"by":"bob"}');
PRAGMA user_version = 6;
"#;

#[test]
fn a_namespace_of_the_sixth_version_is_read_and_raised() {
    let versions = [FIRST_VERSION, SECOND_VERSION, THIRD_VERSION, SIXTH_VERSION];
    let mut lab = written_before(&versions);
    for _ in 0..2 {
        lab.restart();
        let trash = lab.trash();
        let told: Vec<_> = trash
            .iter()
            .map(|one| {
                let by = one.by.as_ref().map_or("", UserName::as_str);
                (one.file.0, by, one.checksums.len(), one.properties.len())
            })
            .collect();
        let expected = [(7, "", 0, 0), (9, "alice", 1, 0), (8, "bob", 0, 1)];
        assert_eq!(told, expected);
        assert_eq!(trash[1].created, Timestamp(1_795_635_773_561));
        let usage = lab.namespace().pool_usage().expect("readable");
        let usage: Vec<_> = usage
            .values()
            .map(|held| (held.files, held.bytes))
            .collect();
        assert_eq!(usage, [(1, Bytes(10))]);
        let reader = Connection::open(lab.file()).expect("opens");
        assert_eq!(schema::log_sequence(&reader).expect("readable"), 41);
    }
}

/// What the seventh version made of these, with an ended mover.
const SEVENTH_VERSION: &str = "
ALTER TABLE trash RENAME TO trash_before;
CREATE TABLE trash (
    place INTEGER PRIMARY KEY,
    file_id INTEGER NOT NULL UNIQUE,
    pool TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    removed_ms INTEGER NOT NULL,
    path TEXT,
    owner TEXT,
    details TEXT
);
INSERT INTO trash SELECT NULL, * FROM trash_before ORDER BY removed_ms, file_id;
DROP TABLE trash_before;
CREATE INDEX trash_by_pool ON trash (pool, removed_ms, file_id, size_bytes);
CREATE TABLE counter (name TEXT NOT NULL, pool TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (name, pool)) WITHOUT ROWID;
INSERT INTO counter SELECT 'files', pool, files FROM pool_usage UNION ALL SELECT 'bytes', pool, size_bytes FROM pool_usage;
INSERT INTO counter SELECT key, '', CAST(value AS INTEGER) FROM meta WHERE key = 'log_sequence';
DELETE FROM meta WHERE key = 'log_sequence';
DROP TABLE pool_usage;
ALTER TABLE mover_record ADD COLUMN copy TEXT;
ALTER TABLE mover_record ADD COLUMN file_bytes INTEGER;
INSERT INTO mover_record VALUES (5, 1795635789254, 'get', '/f', '', NULL, NULL, NULL, 10, 1, '{}', NULL, 'null', 'done', '',
    '7-1', 10);
PRAGMA user_version = 7;
";

#[test]
fn a_namespace_of_the_seventh_version_is_read_and_raised() {
    let versions = [
        FIRST_VERSION,
        SECOND_VERSION,
        THIRD_VERSION,
        SIXTH_VERSION,
        SEVENTH_VERSION,
    ];
    let mut lab = written_before(&versions);
    for told in [0, 1] {
        lab.restart();
        let ledger = lab.namespace().ledger_after(0).expect("readable");
        assert_eq!(ledger.len(), told);
        let movers = lab.namespace().mover_records(0, 10).expect("readable");
        let [(5, mover)] = &movers[..] else {
            panic!("one: {movers:?}");
        };
        let names = (mover.copy.as_deref(), mover.challenge.as_deref());
        assert_eq!(names, (Some("7-1"), None));
        if told == 0 {
            lab.mkdir("/d").expect("made");
        }
    }
}

/// What the eighth version added.
const EIGHTH_VERSION: &str = "
CREATE TABLE ledger (
    sequence INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    records INTEGER NOT NULL,
    packed BLOB NOT NULL
);
INSERT INTO counter VALUES ('ledger_records', '', 0);
ALTER TABLE mover_record ADD COLUMN challenge TEXT;
PRAGMA user_version = 8;
";

#[test]
fn a_namespace_of_the_eighth_version_is_read_and_raised() {
    let versions = [
        FIRST_VERSION,
        SECOND_VERSION,
        THIRD_VERSION,
        SIXTH_VERSION,
        SEVENTH_VERSION,
        EIGHTH_VERSION,
    ];
    let mut lab = written_before(&versions);
    for told in [0, 1] {
        lab.restart();
        let movers = lab.namespace().mover_records(0, 10).expect("readable");
        assert_eq!(movers.len(), 1);
        let reader = LedgerReader::open(&lab.file()).expect("opens");
        let minutes = reader.pool_minutes_after(0, 10).expect("readable");
        assert_eq!(minutes.len(), told);
        lab.make(Change::RecordPoolMinute(PoolSamples::default()))
            .expect("recorded");
    }
}

/// What the ninth version added.
const NINTH_VERSION: &str = "
CREATE TABLE pool_minute (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    from_ms INTEGER NOT NULL,
    to_ms INTEGER NOT NULL,
    pools TEXT NOT NULL
);
CREATE INDEX pool_minute_by_time ON pool_minute (from_ms);
PRAGMA user_version = 9;
";

/// What the tenth version added, with a stage request that it kept.
const TENTH_VERSION: &str = "
ALTER TABLE entry ADD COLUMN archival INTEGER NOT NULL DEFAULT 0;
CREATE INDEX precious_entry ON entry (id) WHERE archival = 1;
CREATE TABLE tape_copy (
    entry INTEGER NOT NULL,
    number INTEGER NOT NULL,
    uri TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (entry, number)
) WITHOUT ROWID;
CREATE INDEX tape_copy_by_uri ON tape_copy (uri);
CREATE TABLE tape_removal (
    uri TEXT PRIMARY KEY,
    not_before_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    file TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX tape_removal_by_time ON tape_removal (not_before_ms);
CREATE TABLE tape_journal (sequence INTEGER PRIMARY KEY AUTOINCREMENT, record TEXT NOT NULL);
CREATE TABLE stage_request (
    id TEXT PRIMARY KEY,
    user TEXT,
    vo TEXT,
    created_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE stage_file (
    request TEXT NOT NULL,
    number INTEGER NOT NULL,
    path TEXT NOT NULL,
    entry INTEGER,
    pin_until_ms INTEGER,
    pin_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,
    error TEXT,
    started_ms INTEGER,
    finished_ms INTEGER,
    PRIMARY KEY (request, number)
) WITHOUT ROWID;
CREATE INDEX stage_file_by_entry ON stage_file (entry, state, pin_until_ms);
CREATE INDEX stage_file_waiting ON stage_file (entry) WHERE state < 2;
CREATE INDEX stage_request_by_time ON stage_request (created_ms);
CREATE INDEX stage_request_by_user ON stage_request (user);
INSERT INTO stage_request VALUES ('r', 'alice', 'atlas', 1);
INSERT INTO stage_file VALUES ('r', 0, '/d/f', 2, 9795241992000, 600000, 2, NULL, 1, 1);
INSERT INTO stage_file VALUES ('r', 1, '/gone', NULL, NULL, 600000, 3, '/gone does not exist', NULL, 1);
PRAGMA user_version = 10;
";

#[test]
fn a_namespace_of_the_tenth_version_is_read_and_raised() {
    let versions = [
        FIRST_VERSION,
        SECOND_VERSION,
        THIRD_VERSION,
        SIXTH_VERSION,
        SEVENTH_VERSION,
        EIGHTH_VERSION,
        NINTH_VERSION,
        TENTH_VERSION,
    ];
    let mut lab = written_before(&versions);
    for _ in [0, 1] {
        lab.restart();
        let request = lab.namespace().stage_request(&StageRequestId::new("r"));
        let files = request.expect("readable").expect("kept").files;
        let on_disk = StageProgress::OnDisk {
            begun: Some(Timestamp(1)),
            since: Timestamp(1),
            pinned_until: Some(Timestamp(9_795_241_992_000)),
        };
        assert_eq!(files[0].progress, on_disk);
        let failed = StageProgress::Failed {
            begun: None,
            problem: StageProblem {
                code: ProblemCode::TapeFailed,
                text: "/gone does not exist".to_owned(),
            },
            at: Timestamp(1),
        };
        assert_eq!(files[1].progress, failed);
        let held = lab.namespace().held_by_user(&UserName::new("alice"));
        assert_eq!(held.expect("readable").0, 1);
        let counted = rusqlite::Connection::open(lab.file()).expect("opened");
        let counted = counted.query_row(
            "SELECT held, requests, stage_kept.files, stage_kept.text_bytes, (SELECT files FROM held_sum WHERE kind = 2)
             FROM stage_request JOIN stage_kept USING (user)",
            [],
            |row| {
                let counts: [i64; 5] =
                    [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?];
                Ok(counts)
            },
        );
        assert_eq!(counted.expect("counted"), [1, 1, 2, 9, 1]);
    }
}

/// What the eleventh version added.
const ELEVENTH_VERSION: &str = "
ALTER TABLE stage_file ADD COLUMN code TEXT;
CREATE INDEX stage_file_by_pin_end ON stage_file (pin_until_ms) WHERE pin_until_ms IS NOT NULL;
CREATE TABLE held_file (
    kind INTEGER NOT NULL,
    holder TEXT NOT NULL,
    entry INTEGER NOT NULL,
    times INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    PRIMARY KEY (kind, holder, entry)
) WITHOUT ROWID;
CREATE TABLE held_sum (
    kind INTEGER NOT NULL,
    holder TEXT NOT NULL,
    files INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    PRIMARY KEY (kind, holder)
) WITHOUT ROWID;
INSERT INTO held_file VALUES (0, 'alice', 2, 1, 3);
INSERT INTO held_sum VALUES (0, 'alice', 1, 3);
PRAGMA user_version = 11;
";

#[test]
fn a_namespace_of_the_eleventh_version_is_read_and_raised() {
    let versions = [
        FIRST_VERSION,
        SECOND_VERSION,
        THIRD_VERSION,
        SIXTH_VERSION,
        SEVENTH_VERSION,
        EIGHTH_VERSION,
        NINTH_VERSION,
        TENTH_VERSION,
        ELEVENTH_VERSION,
    ];
    let mut lab = written_before(&versions);
    for _ in [0, 1] {
        lab.restart();
        let request = lab.namespace().stage_request(&StageRequestId::new("r"));
        let files = request.expect("readable").expect("kept").files;
        assert_eq!(files.len(), 2);
        assert_eq!(files[0].activity, None);
        let facts = lab.namespace().data_set_facts(&[EntryId(2)]);
        assert_eq!(facts.expect("readable"), [DataSetFacts::default()]);
        assert_eq!(lab.namespace().data_sets(None, 10).expect("readable"), []);
    }
}

#[test]
fn changes_are_made_again_after_a_fault_however_often_they_are_asked_for() {
    let lab = Lab::new();
    let other = rusqlite::Connection::open(lab.file()).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let publish = |at: &str| {
        let file = Change::Publish(lab.new_file(at, 1));
        lab.namespace().apply(file)
    };
    publish("/first").expect_err("the database is locked");
    assert!(lab.namespace().writer_counts().refuses);
    // It is tried meanwhile, in vain.
    std::thread::sleep(Duration::from_secs(3));
    other.execute_batch("ROLLBACK").expect("free again");
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(why) = publish("/later") {
        assert!(Instant::now() < deadline, "{why}");
        // More often than the pauses in which it was looked after.
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!lab.namespace().writer_counts().refuses);
}
