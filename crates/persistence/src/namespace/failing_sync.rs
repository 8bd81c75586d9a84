//! A disk whose `fsync` fails when a test says so, for SQLite in tests: the usual file system with another `xSync` for
//! the logs of databases.
#![allow(unsafe_code)]

use parking_lot::Mutex;
use rusqlite::ffi;
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::{Once, OnceLock};

/// Logs of which so many more syncs fail.
static FAILING: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());
/// The methods of the system's files, and where they open.
static USUAL: OnceLock<Usual> = OnceLock::new();
static METHODS: OnceLock<Methods> = OnceLock::new();
/// Open logs by the address of their file.
static WATCHED: Mutex<Vec<(usize, String)>> = Mutex::new(Vec::new());

struct Usual(ffi::sqlite3_vfs);
struct Methods {
    usual: *const ffi::sqlite3_io_methods,
    ours: ffi::sqlite3_io_methods,
}
// SAFETY: both hold pointers to what SQLite keeps for the life of the process and never changes.
unsafe impl Send for Usual {}
// SAFETY: as above.
unsafe impl Sync for Usual {}
// SAFETY: as above.
unsafe impl Send for Methods {}
// SAFETY: as above.
unsafe impl Sync for Methods {}

/// The next syncs of the log of this database fail, so many of them.
pub(crate) fn fail_syncs(database: &Path, count: u32) {
    let name = format!("{}-wal", database.display());
    let mut failing = FAILING.lock();
    failing.retain(|(known, _)| *known != name);
    failing.push((name, count));
}

/// Databases that are opened from now on in this process can be made to fail.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the system's own file system is found, copied as a plain structure and registered for the life of
        // the process.
        unsafe {
            let usual = ffi::sqlite3_vfs_find(std::ptr::null());
            let mut ours = *usual;
            drop(USUAL.set(Usual(*usual)));
            ours.zName = c"failing-sync".as_ptr();
            ours.pNext = std::ptr::null_mut();
            ours.xOpen = Some(open);
            let ours = Box::leak(Box::new(ours));
            assert_eq!(ffi::sqlite3_vfs_register(ours, 1), ffi::SQLITE_OK);
        }
    });
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let usual = USUAL.get().and_then(|usual| usual.0.xOpen);
    let usual = usual.expect("found when this was installed");
    // SAFETY: SQLite's own arguments are passed on; on success the file has methods.
    unsafe {
        let opened = usual(vfs, name, file, flags, out_flags);
        if opened == ffi::SQLITE_OK && flags & ffi::SQLITE_OPEN_WAL != 0 {
            let name = CStr::from_ptr(name.cast::<c_char>()).to_string_lossy();
            let mut watched = WATCHED.lock();
            watched.retain(|(known, _)| *known != file as usize);
            watched.push((file as usize, name.into_owned()));
            let methods = METHODS.get_or_init(|| {
                let usual = (*file).pMethods;
                let mut ours = *usual;
                ours.xSync = Some(sync);
                Methods { usual, ours }
            });
            if (*file).pMethods == methods.usual {
                (*file).pMethods = &raw const methods.ours;
            }
        }
        opened
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let watched = WATCHED.lock();
    let name = watched.iter().find(|(known, _)| *known == file as usize);
    let mut failing = FAILING.lock();
    let left = name.and_then(|(_, name)| failing.iter_mut().find(|(known, _)| known == name));
    if let Some((_, left)) = left
        && *left > 0
    {
        *left -= 1;
        return ffi::SQLITE_IOERR_FSYNC;
    }
    drop(failing);
    let methods = METHODS.get().expect("set when the file was opened");
    // SAFETY: the file is one that the usual methods opened.
    unsafe {
        let usual = (*methods.usual).xSync.expect("every file system has it");
        usual(file, flags)
    }
}

mod tests {
    //! Commits whose sync fails, and what is there after a crash.

    use super::{fail_syncs, install};
    use crate::namespace::directory_log::{DIRECTORY_LOG, read_log};
    use crate::namespace::{Change, ChangeError, Namespace, NewFile, Replace, schema};
    use penstock_model::{Bytes, NamespacePath, PoolName, Timestamp};
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    fn file(namespace: &Namespace, at: &str) -> NewFile {
        NewFile {
            id: namespace.allocate(),
            path: path(at),
            size: Bytes(1),
            checksums: Vec::new(),
            pool: PoolName::new("p1"),
            archival: penstock_model::Archival::DiskOnly,
            owner: None,
            at: Timestamp(0),
            replace: Replace::Refused,
            properties_of: None,
            archive_word: None,
            labelled_in: None,
        }
    }

    fn path(text: &str) -> NamespacePath {
        NamespacePath::parse(text).expect("valid")
    }

    /// The paths that a process finds which starts on what is on the disk now.
    fn after_a_crash(database: &Path, paths: &[&str]) -> Vec<bool> {
        let directory = tempfile::tempdir().expect("made");
        let copy = directory.path().join("namespace.sqlite");
        let log = |database: &Path| PathBuf::from(format!("{}-wal", database.display()));
        std::fs::copy(database, &copy).expect("copied");
        std::fs::copy(log(database), log(&copy)).expect("copied");
        let namespace = Namespace::open(&copy).expect("opens");
        let there = |text: &&str| namespace.lookup(&path(text)).expect("readable").is_some();
        paths.iter().map(there).collect()
    }

    fn lab() -> (tempfile::TempDir, PathBuf, Namespace) {
        install();
        let directory = tempfile::tempdir().expect("made");
        let database = directory.path().join("namespace.sqlite");
        let namespace = Namespace::open(&database).expect("opens");
        let first = file(&namespace, "/first");
        namespace.apply(Change::Publish(first)).expect("published");
        // A reader is there, so that the log outlives the writer's connection.
        assert!(
            namespace
                .lookup(&path("/first"))
                .expect("readable")
                .is_some()
        );
        (directory, database, namespace)
    }

    #[test]
    fn a_file_whose_commit_failed_does_not_come_alive_after_its_data_was_discarded() {
        let (_directory, database, namespace) = lab();
        fail_syncs(&database, 1);
        let refused = namespace.apply(Change::Publish(file(&namespace, "/f")));
        assert!(
            matches!(refused, Err(ChangeError::Database(_))),
            "{refused:?}"
        );
        assert_eq!(after_a_crash(&database, &["/first", "/f"]), [true, false]);
        let later = file(&namespace, "/later");
        namespace.apply(Change::Publish(later)).expect("published");
        assert_eq!(
            after_a_crash(&database, &["/first", "/f", "/later"]),
            [true, false, true]
        );
    }

    #[test]
    fn directory_logs_are_told_of_what_was_committed_and_of_nothing_else() {
        let (directory, database, namespace) = lab();
        let pool = directory.path().join("pool");
        std::fs::create_dir(&pool).expect("made");
        let kept = namespace.keep_directory_log(&PoolName::new("p1"), &pool);
        kept.expect("kept");
        let make = |at: &str| {
            namespace.apply(Change::MakeDirectory {
                path: path(at),
                owner: None,
                at: Timestamp(0),
            })
        };
        make("/before").expect("made");
        fail_syncs(&database, 1);
        make("/doubtful").expect_err("the sync fails");
        make("/after").expect("made");
        let reader = rusqlite::Connection::open(&database).expect("opens");
        let known = schema::log_sequence(&reader).expect("readable");
        // It is told before the answer, and writes beside it.
        let until = Instant::now() + Duration::from_secs(10);
        let log = loop {
            let log = read_log(&pool.join(DIRECTORY_LOG), |_, _, _| ()).expect("readable");
            if log.sequence >= known || Instant::now() > until {
                break log;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!((log.sequence, log.numbers_missing), (known, 0));
        let there = |at: &str| namespace.lookup(&path(at)).expect("readable").is_some();
        // The first has no label.
        let told = ["/first", "/before", "/doubtful", "/after"].map(there);
        assert_eq!(told.iter().filter(|is| **is).count() as u64, known);
    }

    #[test]
    fn nothing_is_changed_and_data_is_kept_until_a_failed_commit_is_settled() {
        let (_directory, database, namespace) = lab();
        fail_syncs(&database, 2);
        let doubtful = namespace.apply(Change::Publish(file(&namespace, "/f")));
        assert!(
            matches!(doubtful, Err(ChangeError::Doubtful(_))),
            "{doubtful:?}"
        );
        let refused = namespace.apply(Change::Publish(file(&namespace, "/later")));
        assert!(
            matches!(refused, Err(ChangeError::Unsettled)),
            "{refused:?}"
        );
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(why) = namespace.apply(Change::Publish(file(&namespace, "/later"))) {
            assert!(matches!(why, ChangeError::Unsettled), "{why}");
            assert!(Instant::now() < deadline, "{why}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(
            after_a_crash(&database, &["/first", "/f", "/later"]),
            [true, false, true]
        );
    }

    #[test]
    fn what_the_log_of_a_process_that_failed_holds_is_flushed_before_anything_else() {
        let (_directory, database, namespace) = lab();
        fail_syncs(&database, u32::MAX);
        let failed = namespace.apply(Change::Publish(file(&namespace, "/f")));
        failed.expect_err("the sync fails");
        drop(namespace);
        let log = PathBuf::from(format!("{}-wal", database.display()));
        let length = || std::fs::metadata(&log).map_or(0, |log| log.len());
        assert!(length() > 0, "it could not be brought into the database");
        fail_syncs(&database, 0);
        let namespace = Namespace::open(&database).expect("opens");
        assert_eq!(length(), 0, "all of it is in the database");
        assert!(
            namespace
                .lookup(&path("/first"))
                .expect("readable")
                .is_some()
        );
    }
}
