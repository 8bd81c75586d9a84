//! Entries that are kept in memory: what is found there is what the database says, whatever changes it.

use super::super::connection::stored;
use super::super::read;
use super::*;
use std::sync::atomic::AtomicBool;
use std::thread;

impl Lab {
    /// What the database says, asked past the cache.
    fn read(&self, at: &str) -> Option<Entry> {
        let path = path(at);
        let readers = &self.namespace().readers;
        readers
            .with(|connection| read::find(connection, &path))
            .expect("readable")
    }

    fn is_cached(&self, at: &str) -> bool {
        self.namespace().entries.find(&path(at)).is_ok()
    }

    /// Every entry in the cache is the row of the database. Then the tree is brought into the cache, so that the next
    /// change meets it there.
    pub(super) fn check_cache(&self) {
        let namespace = self.namespace();
        for (parent, entry) in namespace.entries.all() {
            let row = namespace
                .readers
                .with(|connection| read::by_name(connection, stored(parent), &entry.name));
            assert_eq!(row.expect("readable"), Some(entry));
        }
        let below = namespace.below(EntryId::ROOT, 100).expect("readable");
        for (names, entry) in below {
            let path = path(&format!("/{}", names.join("/")));
            let found = namespace.lookup(&path).expect("readable");
            assert_eq!(found, Some(entry));
        }
    }
}

#[test]
fn a_path_that_was_looked_up_needs_no_query_until_it_changes() {
    let lab = Lab::new();
    lab.write("/d/e/f");
    lab.write("/d/e/g");
    lab.find("/d/e/f").expect("there");
    lab.find("/d/e/g").expect("there");
    lab.find("/").expect("there");
    let cached = || ["/", "/d", "/d/e", "/d/e/f", "/d/e/g"].map(|at| lab.is_cached(at));
    assert_eq!(cached(), [true; 5]);
    let remove = Change::Remove {
        path: path("/d/e/f"),
        only: None,
        entries_max: 1,
        by: None,
        at: LATER,
    };
    lab.namespace().apply(remove).expect("removed");
    // The directory has another time; nothing below it is found before it is read again.
    assert_eq!(cached(), [true, true, false, false, false]);
    assert_eq!(lab.find("/d/e/f"), None);
    assert_eq!(lab.find("/d/e/g"), lab.read("/d/e/g"));
    assert_eq!(cached(), [true, true, true, false, true]);
}

#[test]
fn what_was_read_before_a_commit_is_not_kept_after_it() {
    let lab = Lab::new();
    let old = lab.write("/f");
    let cache = &lab.namespace().entries;
    let mark = || cache.find(&path("/f")).expect_err("not cached");
    let row = || vec![(EntryId::ROOT, lab.read("/f").expect("there"))];
    cache.begin_commit([old].into());
    let (early, read) = (mark(), row());
    cache.keep(early, read.clone());
    assert!(!lab.is_cached("/f"), "its row may be another one now");
    cache.end_commit();
    cache.keep(early, read);
    assert!(!lab.is_cached("/f"), "it was read before");
    cache.keep(mark(), row());
    assert!(lab.is_cached("/f"));
    cache.doubt();
    cache.keep(mark(), row());
    assert!(!lab.is_cached("/f"), "the database is asked each time");
    let doubtful = mark();
    cache.trust();
    cache.keep(doubtful, row());
    assert!(!lab.is_cached("/f"));
    cache.keep(mark(), row());
    assert!(lab.is_cached("/f"));
}

#[test]
fn memory_for_entries_is_bounded_and_what_is_asked_for_stays() {
    let cache = EntryCache::bounded(100_000);
    let lab = Lab::new();
    let id = lab.write("/f");
    let row = lab.read("/f").expect("there");
    let named = |number: u64| Entry {
        id: EntryId(id.0 + number),
        name: format!("f{number}"),
        ..row.clone()
    };
    for number in 0..10_000 {
        let at = path(&format!("/f{number}"));
        let mark = cache.find(&at).expect_err("new");
        cache.keep(mark, vec![(EntryId::ROOT, named(number))]);
        assert!(cache.bytes() <= 100_000);
        assert!(cache.find(&path("/f0")).is_ok(), "{number}");
    }
    assert!(cache.all().len() > 100);
}

/// An overwritten file has a greater id than the one before, so a stale look is one that finds a smaller id than was
/// acknowledged before it began.
#[test]
fn no_look_that_begins_after_an_acknowledgement_finds_what_was_before() {
    let lab = Lab::new();
    let acknowledged: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    let names = |number: usize| format!("/d{}/f{number}", number % 2);
    let publish = |number: usize| {
        let file = NewFile {
            replace: Replace::Allowed,
            ..lab.new_file(&names(number), 10)
        };
        let id = file.id;
        lab.namespace()
            .apply(Change::Publish(file))
            .expect("published");
        acknowledged[number].fetch_max(id.0, Ordering::SeqCst);
    };
    (0..4).for_each(publish);
    let is_over = AtomicBool::new(false);
    let looks = thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let (acknowledged, is_over, lab) = (&acknowledged, &is_over, &lab);
                scope.spawn(move || {
                    let mut hits = 0;
                    for turn in reader.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let number = turn % 4;
                        hits += u64::from(lab.is_cached(&names(number)));
                        let least = acknowledged[number].load(Ordering::SeqCst);
                        let found = lab.find(&names(number)).expect("there");
                        assert!(found.id.0 >= least, "{found:?} after {least}");
                    }
                    hits
                })
            })
            .collect();
        let writers: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || (0..200).for_each(|_| publish(number))))
            .collect();
        for writer in writers {
            writer.join().expect("no panic");
        }
        is_over.store(true, Ordering::Relaxed);
        let hits = readers.into_iter().map(|reader| reader.join());
        hits.map(|hits| hits.expect("none is stale")).sum::<u64>()
    });
    assert!(looks > 0, "no look has met the cache");
}

/// A directory that goes to and fro: whoever looks after an acknowledgement finds the file below its new name only.
#[test]
fn what_lies_below_a_renamed_directory_moves_with_it_at_once() {
    let lab = Lab::new();
    lab.write("/a/d/f");
    // Even: the directory is /a. A rename has begun with an odd number and ended with the next.
    let state = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut looks = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let before = state.load(Ordering::SeqCst);
                        let found = ["/a/d/f", "/b/d/f"].map(|at| lab.find(at).is_some());
                        if before.is_multiple_of(2) && state.load(Ordering::SeqCst) == before {
                            let is_at_b = before / 2 % 2 == 1;
                            assert_eq!(found, [!is_at_b, is_at_b], "{before}");
                            looks += 1;
                        }
                    }
                    looks
                })
            })
            .collect();
        for turn in 0..200 {
            let (from, to) = if turn % 2 == 0 {
                ("/a", "/b")
            } else {
                ("/b", "/a")
            };
            state.fetch_add(1, Ordering::SeqCst);
            let change = Change::Rename {
                from: path(from),
                only: None,
                to: path(to),
                replace: Replace::Refused,
                entries_max: 10,
                by: None,
                at: LATER,
            };
            lab.namespace().apply(change).expect("renamed");
            state.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_micros(300));
        }
        is_over.store(true, Ordering::Relaxed);
        let looks = readers.into_iter().map(|reader| reader.join());
        let looks: u64 = looks.map(|looks| looks.expect("none is stale")).sum();
        assert!(looks > 0, "no look was between two renames");
    });
}

#[test]
fn a_commit_that_failed_leaves_nothing_in_the_cache_that_the_database_does_not_say() {
    failing_sync::install();
    let lab = Lab::new();
    let old = lab.write("/f");
    lab.write("/g");
    for syncs in [1, 2] {
        lab.check_cache();
        failing_sync::fail_syncs(&lab.file(), syncs);
        let file = NewFile {
            replace: Replace::Allowed,
            ..lab.new_file("/f", 77)
        };
        lab.namespace()
            .apply(Change::Publish(file))
            .expect_err("its commit failed");
        assert_eq!(lab.find("/f"), lab.read("/f"));
        let deadline = Instant::now() + Duration::from_secs(20);
        while lab.namespace().apply(Change::RecountPools).is_err() {
            assert!(Instant::now() < deadline, "it is settled");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(lab.find("/f"), lab.read("/f"));
        assert_eq!(lab.find("/f").map(|entry| entry.id), Some(old));
        lab.check_cache();
        assert!(lab.is_cached("/f") && lab.is_cached("/g"));
    }
}
