//! The trash: what is kept of a removed file, who is asked for what of it, and how a file comes back.

use super::*;

fn ids(trash: &[TrashedFile]) -> Vec<EntryId> {
    trash.iter().map(|kept| kept.file).collect()
}

impl Lab {
    fn publish(&self, at: &str, pool: &str, replace: Replace) -> EntryId {
        let file = NewFile {
            pool: PoolName::new(pool),
            replace,
            ..self.new_file(at, 10)
        };
        let id = file.id;
        self.make(Change::Publish(file)).expect("published");
        id
    }

    fn remove_at(&self, at: &str, by: &str, when: i64) {
        self.make(Change::Remove {
            path: path(at),
            only: None,
            entries_max: 10,
            by: Some(UserName::new(by)),
            at: Timestamp(when),
        })
        .expect("removed");
    }

    fn asked(&self, query: TrashQuery) -> Vec<EntryId> {
        ids(&self.namespace().trash(&query, 100).expect("readable"))
    }
}

#[test]
fn a_file_comes_back_from_the_trash_as_it_was() {
    let lab = Lab::new();
    let file = lab.new_file("/d/e/f", 12);
    let id = file.id;
    lab.make(Change::Publish(file)).expect("published");
    lab.make(Change::UpdateProperties {
        path: path("/d/e/f"),
        only: None,
        updates: vec![set("note", "kept")],
    })
    .expect("set");
    let whole = |at: &str| {
        let entry = lab.namespace().lookup(&path(at)).expect("readable");
        let entry = entry.expect("there");
        let checksums = lab.namespace().checksums(entry.id).expect("readable");
        let properties = lab.namespace().properties(entry.id).expect("readable");
        (entry, checksums, properties)
    };
    let (before, usage) = (
        whole("/d/e/f"),
        lab.namespace().pool_usage().expect("readable"),
    );
    lab.make(Change::Remove {
        path: path("/d"),
        only: None,
        entries_max: 10,
        by: None,
        at: LATER,
    })
    .expect("removed");
    let trashed = lab
        .namespace()
        .trashed(id)
        .expect("readable")
        .expect("there");
    assert_eq!(
        (trashed.path.clone(), trashed.removed),
        (path("/d/e/f"), LATER)
    );
    lab.write("/other");
    let restore = |to: &str| {
        lab.make(Change::RestoreTrash {
            file: id,
            to: path(to),
            at: LATER,
        })
    };
    refused(restore("/other"), "/other exists");
    refused(
        restore("/other/f"),
        "/other is a file, so nothing can be below it",
    );
    lab.make(Change::Remove {
        path: path("/other"),
        only: None,
        entries_max: 10,
        by: None,
        at: LATER,
    })
    .expect("removed");
    restore("/d/e/f").expect("restored");
    assert_eq!(whole("/d/e/f"), before);
    assert_eq!(lab.namespace().pool_usage().expect("readable"), usage);
    refused(restore("/g"), &format!("file {id} is not in the trash"));
}

#[test]
fn it_is_told_who_removed_a_file_and_who_replaced_it() {
    let lab = Lab::new();
    lab.publish("/removed", "p1", Replace::Refused);
    lab.publish("/replaced", "p1", Replace::Refused);
    lab.publish("/d/within", "p1", Replace::Refused);
    lab.remove_at("/removed", "bob", 1);
    lab.remove_at("/d", "carol", 2);
    lab.publish("/replaced", "p1", Replace::Allowed);
    let told: Vec<_> = lab
        .trash()
        .into_iter()
        .map(|kept| (kept.path.to_string(), kept.by.expect("known").to_string()))
        .collect();
    let expected = [
        ("/removed", "bob"),
        ("/d/within", "carol"),
        ("/replaced", "alice"),
    ];
    assert_eq!(
        told,
        expected.map(|(path, by)| (path.to_owned(), by.to_owned()))
    );
}

#[test]
fn the_trash_is_asked_by_pool_by_path_and_by_age() {
    let lab = Lab::new();
    let first = lab.publish("/d/a", "p1", Replace::Refused);
    let second = lab.publish("/d/b", "p2", Replace::Refused);
    let third = lab.publish("/dd", "p1", Replace::Refused);
    for (at, when) in [("/dd", 1), ("/d/b", 2), ("/d/a", 3)] {
        lab.remove_at(at, "bob", when);
    }
    assert_eq!(lab.asked(TrashQuery::default()), [third, second, first]);
    let pool = |name: &str| TrashQuery {
        pool: Some(PoolName::new(name)),
        ..TrashQuery::default()
    };
    assert_eq!(lab.asked(pool("p1")), [third, first]);
    let before = TrashQuery {
        before: Some(Timestamp(3)),
        ..pool("p1")
    };
    assert_eq!(lab.asked(before), [third]);
    let after = TrashQuery {
        after: Some((Timestamp(1), third)),
        ..pool("p1")
    };
    assert_eq!(lab.asked(after), [first]);
    let within = |at: &str| TrashQuery {
        within: Some(path(at)),
        ..TrashQuery::default()
    };
    assert_eq!(lab.asked(within("/d")), [second, first]);
    assert_eq!(lab.asked(within("/dd")), [third]);
    assert_eq!(lab.asked(within("/")).len(), 3);
    let usage = |query| {
        let usage = lab.namespace().trash_usage(&query).expect("readable");
        let plain =
            |(pool, usage): (PoolName, PoolUsage)| (pool.to_string(), usage.files, usage.bytes.0);
        usage.into_iter().map(plain).collect::<Vec<_>>()
    };
    let of = |pool: &str, files, bytes| (pool.to_owned(), files, bytes);
    assert_eq!(
        usage(TrashQuery::default()),
        [of("p1", 2, 20), of("p2", 1, 10)]
    );
    assert_eq!(usage(within("/d")), [of("p1", 1, 10), of("p2", 1, 10)]);
    let before = TrashQuery {
        before: Some(Timestamp(3)),
        ..within("/d")
    };
    assert_eq!(usage(before), [of("p2", 1, 10)]);
}

#[test]
fn the_oldest_trash_of_a_pool_is_found_and_counted_by_an_index_alone() {
    let lab = Lab::new();
    let connection = Connection::open(lab.file()).expect("opens");
    for (sql, expected) in [
        (
            "SELECT * FROM trash WHERE pool = 'p' AND removed_ms < 5 ORDER BY removed_ms, file_id LIMIT 1",
            "USING INDEX trash_by_pool",
        ),
        (
            "SELECT min(pool) FROM trash WHERE pool > 'p'",
            "USING COVERING INDEX trash_by_pool (pool>?)",
        ),
        (
            "SELECT pool, count(*), sum(size_bytes) FROM trash GROUP BY pool",
            "USING COVERING INDEX trash_by_pool",
        ),
    ] {
        let plan: Vec<String> = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .expect("valid")
            .query_map([], |row| row.get("detail"))
            .expect("planned")
            .map(|step| step.expect("a step"))
            .collect();
        assert_eq!(plan.len(), 1, "nothing is sorted: {plan:?}");
        assert!(plan[0].contains(expected), "{plan:?}");
    }
}
