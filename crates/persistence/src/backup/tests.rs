//! A journal and its delegations, backed up while they are written, and put back.

use super::*;
use crate::cluster::{Cluster, Leadership};
use crate::delegations::Delegations;
use crate::journal::{PostgresJournal, SqliteJournal};
use crate::postgres::lab;
use crate::sealing::SealingKeys;
use penstock_journal::Journal;
use penstock_model::*;
use penstock_model::{Record, Tenure, UnfinishedJob};
use rusqlite::TransactionBehavior;
use std::sync::atomic::Ordering;

struct Lab {
    directory: tempfile::TempDir,
    keys: SealingKeys,
}

impl Lab {
    fn new() -> Lab {
        Lab {
            directory: tempfile::tempdir().expect("a temporary directory"),
            keys: SealingKeys::of_this_process().expect("OpenSSL works"),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn journal(&self) -> SqliteJournal {
        SqliteJournal::open(&self.at("transfer.sqlite"), self.keys.clone()).expect("opens")
    }

    fn of(&self) -> BackupOf {
        BackupOf {
            kept: JournalLocation::Files {
                journal: self.at("transfer.sqlite"),
                delegations: self.at("delegations.sqlite"),
            },
            files: vec![("penstock.toml".into(), b"[site]".to_vec())],
            positions: vec![("broker".into(), 3)],
            at: Timestamp(5000),
            bytes_per_second: u64::MAX,
            stopped: Arc::default(),
        }
    }

    fn of_database(&self, database: &Database) -> BackupOf {
        BackupOf {
            kept: JournalLocation::Postgres(Box::new(database.clone())),
            ..self.of()
        }
    }

    fn to(&self, name: &str) -> RestoreTo {
        std::fs::create_dir_all(self.at(name)).expect("made");
        RestoreTo {
            kept: JournalLocation::Files {
                journal: self.at(name).join("transfer.sqlite"),
                delegations: self.at(name).join("delegations.sqlite"),
            },
            replaces: false,
            scratch: self.at(""),
            at: Timestamp(9000),
        }
    }

    fn to_database(&self, database: &Database) -> RestoreTo {
        RestoreTo {
            kept: JournalLocation::Postgres(Box::new(database.clone())),
            ..self.to("scratch")
        }
    }
}

fn record_of(facts: BackupFacts) -> RecordFacts {
    match facts.content {
        BackupContent::Record(record) => record,
        BackupContent::Namespace(_) => panic!("a backup of a transfer service: {facts:?}"),
    }
}

fn files(to: &RestoreTo) -> (&Path, &Path) {
    match &to.kept {
        JournalLocation::Files {
            journal,
            delegations,
        } => (journal, delegations),
        JournalLocation::Postgres(_) | JournalLocation::Namespace(_) => panic!("not files"),
    }
}

fn accepted(seed: u128, id: u64) -> Vec<Record> {
    let url = |host: &str| FileUrl::parse(&format!("https://{host}/f{id}")).expect("valid");
    let request = TransferRequest {
        id: TransferId(id),
        index: 0,
        source: url("a"),
        destination: url("b"),
        size: None,
        checksum: None,
        checksum_algorithm: ChecksumAlgorithm::Adler32,
        activity: Activity::new("default"),
        scitag: None,
        metadata: Default::default(),
        source_credential: None,
        destination_credential: None,
        source_query: None,
        destination_query: None,
        tape: None,
    };
    let job = Job {
        id: JobId(uuid::Uuid::from_u128(seed)),
        user: UserName::new("alice"),
        vo: VoName::new("cms"),
        delegation: CredentialId::new("d1"),
        submitted_at: Timestamp(1000),
        parameters: JobParameters::default(),
        transfers: vec![request],
    };
    let submitted = Record::Happened {
        at: Timestamp(1000),
        monotonic_us: 1,
        job: job.id,
        transfer: TransferId(id),
        event: TransferEvent::Submitted,
        state: TransferState::submitted(),
    };
    let job = Box::new(job);
    let tokens = Vec::new();
    vec![Record::JobAccepted { job, tokens }, submitted]
}

#[test]
fn what_was_open_comes_back_marked_and_no_number_is_given_twice() {
    let lab = Lab::new();
    let mut journal = lab.journal();
    drop(Delegations::open(&lab.at("delegations.sqlite"), lab.keys.clone()).expect("opens"));
    journal.append(&accepted(1, 1)).expect("stored");
    let facts = back_up(&lab.of(), &lab.at("backup")).expect("made");
    let held = record_of(facts.clone());
    assert_eq!((held.jobs, held.jobs_open, held.sequence), (1, 1, 1));
    journal.append(&accepted(2, 2)).expect("stored");
    drop(journal);
    assert_eq!(verify(&lab.at("backup")).expect("whole"), facts);
    let to = lab.to("anew");
    let restored = restore(&lab.at("backup"), &to).expect("restored");
    assert_eq!(restored.positions, [("broker".to_owned(), 3)]);
    assert_eq!(restored.files[0].0, "penstock.toml");
    let mut journal = SqliteJournal::open(files(&to).0, lab.keys.clone()).expect("opens");
    Delegations::open(files(&to).1, lab.keys.clone()).expect("opens");
    let mut open = Vec::new();
    let mut take = |found: UnfinishedJob| open.push(found.job.parameters.restored_at);
    journal.load_unfinished(&mut take).expect("readable");
    assert_eq!(open, [Some(Timestamp(9000))]);
    assert!(journal.load_standing().expect("readable").transfer_id_max > 1_000_000_000);
    assert!(journal.append(&accepted(3, 2_000_000_000)).expect("stored") > 1_000_000_001);
    // As when the process is killed: what it wrote last is in its log.
    std::mem::forget(journal);
    let again = restore(&lab.at("backup"), &to).expect_err("something is there");
    assert!(again.to_string().contains("--replace"), "{again}");
    let replaces = RestoreTo {
        replaces: true,
        ..to
    };
    let restored = restore(&lab.at("backup"), &replaces).expect("restored");
    assert_eq!(restored.set_aside.len(), 2);
    let aside = SqliteJournal::open(&restored.set_aside[0], lab.keys.clone()).expect("opens");
    let mut jobs = 0;
    let mut aside: Box<dyn Journal> = Box::new(aside);
    aside.load_unfinished(&mut |_| jobs += 1).expect("readable");
    assert_eq!(jobs, 2, "nothing of what was set aside is lost");
}

/// Jobs are accepted before a slow backup and all the while, each followed by something else.
fn check_one_instant(
    lab: &Lab,
    slow: BackupOf,
    journal: &mut dyn Journal,
    before: u64,
    beside: impl Fn(),
) {
    let mut accept = |id: u64| {
        let records = accepted(u128::from(id), id);
        journal.append(&records).expect("stored");
    };
    (1..=before).for_each(&mut accept);
    let to = lab.at("backup");
    let copying = std::thread::spawn(move || back_up(&slow, &to).expect("made"));
    let mut id = before;
    while !copying.is_finished() {
        id += 1;
        accept(id);
        beside();
    }
    let facts = record_of(copying.join().expect("made"));
    assert!(id > before + 1, "nothing was written meanwhile");
    assert_eq!(
        (facts.jobs, facts.transfers),
        (facts.sequence, facts.sequence)
    );
    assert!((before..id).contains(&facts.sequence), "{facts:?} {id}");
    verify(&lab.at("backup")).expect("whole");
}

#[test]
fn a_backup_is_of_one_instant_however_much_is_written_meanwhile() {
    let lab = Lab::new();
    let mut journal = lab.journal();
    let slow = BackupOf {
        bytes_per_second: 2_000_000,
        ..lab.of()
    };
    check_one_instant(&lab, slow, &mut journal, 500, || {});
}

/// Two writers keep the sum of a table that is spread over many pages, one of which writes the log into place all the time;
/// a third connection reads now and then, which holds that up.
#[test]
fn pages_that_are_changed_while_they_are_copied_are_as_the_snapshot_has_them() {
    const ROWS: i64 = 3000;
    let lab = Lab::new();
    drop(lab.journal());
    let open = |checkpoint_after: u32| {
        let connection = Connection::open(lab.at("transfer.sqlite")).expect("opens");
        connection
            .busy_timeout(Duration::from_secs(20))
            .expect("set");
        let pragmas = [
            ("wal_autocheckpoint", checkpoint_after),
            ("synchronous", 0),
            ("cache_size", 20),
        ];
        for (name, value) in pragmas {
            connection.pragma_update(None, name, value).expect("set");
        }
        connection
    };
    let first = open(1000);
    first
        .execute_batch(
            "CREATE TABLE account (number INTEGER PRIMARY KEY, has INTEGER, filler BLOB)",
        )
        .expect("made");
    let fill = "WITH RECURSIVE one(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM one WHERE value < ?1)
                INSERT INTO account SELECT value, 10, randomblob(500) FROM one";
    first.execute(fill, [ROWS]).expect("filled");
    drop(first);
    let is_over = AtomicBool::new(false);
    let write = |checkpoint_after: u32| {
        let mut connection = open(checkpoint_after);
        let mut number = 0_i64;
        while !is_over.load(Ordering::Relaxed) {
            number += 1;
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let change = change.expect("begins");
            for (row, amount) in [(number * 7919, 1), (number * 104_729, -1)] {
                let sql =
                    "UPDATE account SET has = has + ?2, filler = randomblob(500) WHERE number = ?1";
                change
                    .execute(sql, (row % ROWS + 1, amount))
                    .expect("changed");
            }
            change.commit().expect("stored");
        }
        number
    };
    let read = || {
        let connection = open(1000);
        while !is_over.load(Ordering::Relaxed) {
            let snapshot = connection.unchecked_transaction().expect("begins");
            let sum = "SELECT sum(has) FROM account";
            let sum: i64 = snapshot.query_row(sum, [], |row| row.get(0)).expect("read");
            assert_eq!(sum, 10 * ROWS);
            std::thread::sleep(Duration::from_millis(30));
        }
    };
    let back_up_often = || {
        let mut in_log = 0;
        for _ in 0..10 {
            let all = pages::pages_in_log(&lab.at("transfer.sqlite"), 4096);
            in_log += all.expect("readable").len();
            back_up(&lab.of(), &lab.at("backup")).expect("made");
            verify(&lab.at("backup")).expect("whole");
            let copy = read_only(&lab.at("backup")).expect("opens");
            let sum = "SELECT sum(has) FROM account";
            let sum: i64 = copy.query_row(sum, [], |row| row.get(0)).expect("read");
            assert_eq!(sum, 10 * ROWS);
        }
        in_log
    };
    let (in_log, written) = std::thread::scope(|scope| {
        let write = &write;
        let writers = [10, 100_000].map(|after| scope.spawn(move || write(after)));
        scope.spawn(read);
        let in_log = scope.spawn(back_up_often).join();
        is_over.store(true, Ordering::Relaxed);
        let written = writers.map(|writer| writer.join().expect("no panic"));
        (in_log.expect("no panic"), written.iter().sum::<i64>())
    });
    assert!(in_log > 100 && written > 100, "{in_log} {written}");
}

#[test]
fn what_is_damaged_or_no_backup_is_refused_and_changes_nothing() {
    let lab = Lab::new();
    let mut journal = lab.journal();
    for id in 1..=200 {
        journal
            .append(&accepted(u128::from(id), id))
            .expect("stored");
    }
    back_up(&lab.of(), &lab.at("backup")).expect("made");
    let whole = std::fs::read(lab.at("backup")).expect("readable");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 4096].fill(0xa5);
    std::fs::write(lab.at("damaged"), damaged).expect("written");
    std::fs::write(lab.at("cut"), &whole[..whole.len() / 2]).expect("written");
    std::fs::write(lab.at("text"), "no database at all").expect("written");
    let to = lab.to("anew");
    for name in ["damaged", "cut", "text", "transfer.sqlite", "absent"] {
        let why = restore(&lab.at(name), &to).expect_err(name).to_string();
        assert!(why.contains("is not a usable backup"), "{name}: {why}");
        assert!(!files(&to).0.exists(), "{name}");
    }
    restore(&lab.at("backup"), &to).expect("restored");
}

#[test]
fn a_backup_that_would_act_when_it_is_restored_is_refused() {
    let lab = Lab::new();
    drop(lab.journal());
    drop(Delegations::open(&lab.at("delegations.sqlite"), lab.keys.clone()).expect("opens"));
    back_up(&lab.of(), &lab.at("good")).expect("made");
    let outside = lab.at("outside");
    let statements = format!(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_master SET sql = sql || '; ATTACH ''{}'' AS x; CREATE TABLE x.y (z)' WHERE name = 'delegation'",
        outside.display()
    );
    let trigger =
        "CREATE TRIGGER t AFTER INSERT ON delegation BEGIN DELETE FROM cloud_key; END".to_owned();
    let path =
        |sink: &str| format!("UPDATE backup_position SET sink = '{sink}' WHERE sink = 'broker'");
    for (number, change) in [
        trigger,
        "CREATE VIEW v AS SELECT * FROM job".to_owned(),
        statements,
        path("../outside"),
        path(&outside.display().to_string()),
        path(".."),
        path(""),
    ]
    .into_iter()
    .enumerate()
    {
        let bad = lab.at(&format!("bad-{number}"));
        std::fs::copy(lab.at("good"), &bad).expect("copied");
        let opened = Connection::open(&bad).expect("opens");
        opened.execute_batch(&change).expect("changed");
        drop(opened);
        let to = lab.to(&format!("anew-{number}"));
        let why = restore(&bad, &to).expect_err(&change).to_string();
        assert!(why.contains("is not a usable backup"), "{change}: {why}");
        assert!(!files(&to).0.exists() && !outside.exists(), "{change}");
    }
    restore(&lab.at("good"), &lab.to("anew")).expect("restored");
}

#[test]
fn a_backup_that_fails_leaves_the_one_before_and_no_rest() {
    let lab = Lab::new();
    drop(lab.journal());
    let to = lab.at("backup");
    back_up(&lab.of(), &to).expect("made");
    let nowhere = BackupOf {
        kept: JournalLocation::Files {
            journal: lab.at("absent"),
            delegations: lab.at("absent"),
        },
        ..lab.of()
    };
    assert!(back_up(&nowhere, &to).is_err());
    verify(&to).expect("as it was");
    let stopped = BackupOf {
        stopped: Arc::new(true.into()),
        ..lab.of()
    };
    let why = back_up(&stopped, &to).expect_err("stopped").to_string();
    assert!(why.contains("asked to stop"), "{why}");
    verify(&to).expect("as it was");
    assert!(!lab.at("backup.part").exists());
}

/// Rows in each table, some with the same key, and with what a careless copy would spoil.
fn fill(connection: &mut Connection, tables: &[&str]) {
    let add = connection.transaction().expect("begins");
    for table in tables {
        let mut columns = add
            .prepare("SELECT name, type FROM pragma_table_info(?1)")
            .expect("readable");
        let columns: Vec<(String, String)> = columns
            .query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))
            .and_then(Iterator::collect)
            .expect("readable");
        let names: Vec<String> = columns
            .iter()
            .map(|(name, _)| format!("\"{name}\""))
            .collect();
        let places = vec!["?"; columns.len()].join(", ");
        let sql = format!(
            "INSERT INTO {table} ({}) VALUES ({places})",
            names.join(", ")
        );
        for number in 0..4500_i64 {
            let values = columns
                .iter()
                .map(|(name, kind)| of_column(name, kind, number));
            add.execute(&sql, rusqlite::params_from_iter(values))
                .expect(table);
        }
    }
    add.commit().expect("written");
}

fn of_column(name: &str, kind: &str, number: i64) -> rusqlite::types::Value {
    use rusqlite::types::Value;
    let optional =
        name.ends_with("finished_ms") || name.ends_with("_refresh") || name.ends_with("_before");
    match (name, kind) {
        _ if optional && number % 3 == 0 => Value::Null,
        ("job_id", _) => Value::Text(uuid::Uuid::from_u128(number as u128).to_string()),
        ("answered", _) => Value::Integer(number % 2),
        ("at_ms", _) => Value::Integer(number / 7 * 10_000_000),
        ("parameters", _) => Value::Text("{}".into()),
        ("state_name", _) if number % 2 == 0 => Value::Text("FAILED".into()),
        (_, "INTEGER") => Value::Integer(number),
        (_, "BLOB") => Value::Blob(vec![0, b'\\', 255, number as u8]),
        _ => Value::Text(format!("{name} {number:04}\t\\N \\x00\n\r'\"é\\")),
    }
}

/// All rows of all tables, but what a restore changes.
fn contents(backup: &Path) -> Vec<String> {
    let backup = read_only(backup).expect("opens");
    let mut found = Vec::new();
    let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'
                  AND name NOT IN ('backup', 'history') ORDER BY name";
    let mut tables = backup.prepare(tables).expect("readable");
    let tables = tables
        .query_map([], |row| row.get::<_, String>(0))
        .expect("readable");
    for table in tables {
        let table = table.expect("readable");
        let mut select = backup
            .prepare(&format!("SELECT * FROM {table}"))
            .expect("readable");
        let names: Vec<String> = select.column_names().map(str::to_owned).collect();
        let mut rows = select.query([]).expect("readable");
        while let Some(row) = rows.next().expect("readable") {
            let mut values: Vec<String> = (0..names.len())
                .filter(|place| names[*place] != "parameters")
                .map(|place| format!("{:?}", row.get_ref(place).expect("readable")))
                .collect();
            values.insert(0, table.clone());
            found.push(values.join("|"));
        }
    }
    found.sort();
    found
}

#[test]
fn a_backup_of_files_goes_into_a_database_and_one_of_that_into_files() {
    let lab = Lab::new();
    drop(lab.journal());
    drop(Delegations::open(&lab.at("delegations.sqlite"), lab.keys.clone()).expect("opens"));
    let journal = rows::JOURNAL_TABLES.map(|(table, _)| table);
    fill(
        &mut Connection::open(lab.at("transfer.sqlite")).expect("opens"),
        &journal,
    );
    fill(
        &mut Connection::open(lab.at("delegations.sqlite")).expect("opens"),
        &DELEGATION_TABLES,
    );
    let of_files = back_up(&lab.of(), &lab.at("of-files")).expect("made");
    let before = contents(&lab.at("of-files"));
    assert!(before.len() > 18 * 4500, "{}", before.len());

    let database = lab::database();
    let restored = restore(&lab.at("of-files"), &lab.to_database(&database)).expect("taken");
    assert_eq!(restored.facts, of_files);
    assert!(!lab.at("restoring.sqlite").exists());
    let of_database = back_up(&lab.of_database(&database), &lab.at("of-database")).expect("made");
    verify(&lab.at("of-database")).expect("whole");
    let sequences = (
        record_of(of_database).sequence,
        record_of(of_files).sequence,
    );
    assert_eq!(sequences.0, sequences.1 + 1_000_000_000);
    assert!(contents(&lab.at("of-database")) == before, "rows differ");

    let to = lab.to("anew");
    restore(&lab.at("of-database"), &to).expect("restored");
    let again = BackupOf {
        kept: to.kept.clone(),
        ..lab.of()
    };
    back_up(&again, &lab.at("again")).expect("made");
    assert!(contents(&lab.at("again")) == before, "rows differ");
}

fn leading(database: &Database) -> (Cluster, Tenure) {
    let cluster = Cluster::open(database).expect("opens");
    let node = NodeId::parse("n1").expect("a name");
    match cluster
        .try_lead(&node, Duration::from_secs(600))
        .expect("answers")
    {
        Leadership::Leading(tenure) => (cluster, tenure),
        other => panic!("nobody else leads: {other:?}"),
    }
}

#[test]
fn what_is_put_into_a_database_goes_on_there_and_numbers_are_not_given_twice() {
    let lab = Lab::new();
    let mut journal = lab.journal();
    journal.append(&accepted(1, 1)).expect("stored");
    drop(journal);
    back_up(&lab.of(), &lab.at("backup")).expect("made");
    let database = lab::database();
    restore(&lab.at("backup"), &lab.to_database(&database)).expect("taken");
    let (cluster, tenure) = leading(&database);
    let mut journal = PostgresJournal::open(&database, lab.keys.clone(), tenure, 0).expect("opens");
    let mut open = Vec::new();
    let mut take = |found: UnfinishedJob| open.push(found.job.parameters.restored_at);
    journal.load_unfinished(&mut take).expect("readable");
    assert_eq!(open, [Some(Timestamp(9000))]);
    assert!(journal.load_standing().expect("readable").transfer_id_max > 1_000_000_000);
    assert!(journal.append(&accepted(3, 2_000_000_000)).expect("stored") > 1_000_000_001);
    drop(journal);

    // Neither while somebody leads nor over what is there.
    let refused = |expected: &str| {
        let why = restore(&lab.at("backup"), &lab.to_database(&database)).expect_err("refused");
        assert!(why.to_string().contains(expected), "{why}");
    };
    refused("led by n1: stop all its nodes first");
    cluster.resign(tenure).expect("answers");
    refused("it is not empty");
    let facts = back_up(&lab.of_database(&database), &lab.at("later")).expect("made");
    let facts = record_of(facts);
    assert_eq!((facts.jobs, facts.jobs_open), (2, 2), "nothing was changed");
}

#[test]
fn a_backup_of_a_database_is_of_one_instant_and_no_lock_stands_in_the_writer_s_way() {
    let lab = Lab::new();
    let database = lab::database();
    let (_, tenure) = leading(&database);
    let mut journal = PostgresJournal::open(&database, lab.keys.clone(), tenure, 0).expect("opens");
    let slow = BackupOf {
        bytes_per_second: 20_000,
        ..lab.of_database(&database)
    };
    // What takes the whole table for itself is not held up for longer than a piece takes.
    check_one_instant(&lab, slow, &mut journal, 50, || {
        lab::execute(
            &database,
            "BEGIN; SET LOCAL lock_timeout = '20s'; LOCK TABLE ledger; COMMIT",
        );
    });
}

/// A namespace of some files, and its backup.
fn backed_up_namespace(lab: &Lab) -> (crate::namespace::Namespace, BackupOf, BackupFacts) {
    use crate::namespace::{Change, Namespace};
    let namespace = Namespace::open(&lab.at("namespace.sqlite")).expect("opens");
    for number in 0..500 {
        let change = Change::MakeDirectory {
            path: NamespacePath::parse(&format!("/d{number}")).expect("valid"),
            owner: None,
            at: Timestamp(number),
        };
        namespace.apply(change).expect("made");
    }
    let of = BackupOf {
        kept: JournalLocation::Namespace(lab.at("namespace.sqlite")),
        ..lab.of()
    };
    let facts = back_up(&of, &lab.at("namespace.backup")).expect("made");
    (namespace, of, facts)
}

#[test]
fn a_namespace_is_backed_up_while_it_is_open_and_gives_no_id_twice_when_it_is_back() {
    use crate::namespace::Namespace;
    let lab = Lab::new();
    let (namespace, _, facts) = backed_up_namespace(&lab);
    let BackupContent::Namespace(held) = facts.content else {
        panic!("not of a namespace: {facts:?}");
    };
    assert_eq!(
        (held.namespace, held.directories, held.files),
        (namespace.uuid(), 501, 0)
    );
    assert_eq!(verify(&lab.at("namespace.backup")).expect("whole"), facts);
    let given = namespace.allocate();
    drop(namespace);
    let to = RestoreTo {
        kept: JournalLocation::Namespace(lab.at("namespace.sqlite")),
        ..lab.to("scratch")
    };
    let refused = restore(&lab.at("namespace.backup"), &to).expect_err("something is there");
    assert!(refused.to_string().contains("--replace"), "{refused}");
    let to = RestoreTo {
        replaces: true,
        ..to
    };
    let restored = restore(&lab.at("namespace.backup"), &to).expect("restored");
    assert!(restored.set_aside[0].exists());
    let namespace = Namespace::open(&lab.at("namespace.sqlite")).expect("opens");
    assert_eq!(namespace.uuid(), held.namespace);
    assert!(namespace.allocate().0 > given.0 + 900_000_000);
    // What was stored since then is not taken for the rest of interrupted writes.
    let since = namespace.restored_ids().expect("it was restored");
    assert!(since.contains(&given) && namespace.low_water() >= since.end);
    assert!(namespace.records_ever().expect("readable") > 0);
    // The ledger tells that what came since is lost, under numbers that none of it had.
    let last = 500;
    assert_eq!(namespace.ledger_after(last).expect("readable"), []);
    let begin = crate::namespace::Change::BeginLedger(penstock_clock::wall_clock());
    namespace.apply(begin).expect("begun");
    let gap = namespace.ledger_after(last).expect("readable");
    let [(number, record)] = &gap[..] else {
        panic!("one gap: {gap:?}");
    };
    // By the time of the restore, which is nine seconds here.
    assert_eq!(*number, 9_000_001);
    let crate::namespace::ElementEvent::Gap(gap) = &record.event else {
        panic!("no gap: {record:?}");
    };
    assert_eq!(gap.cause, crate::namespace::GapCause::Restored);
    let path = NamespacePath::parse("/d499").expect("valid");
    assert!(namespace.lookup(&path).expect("readable").is_some());
}

#[test]
fn minutes_of_pools_get_no_number_again_after_a_restore_so_that_each_is_collected_once() {
    use crate::namespace::{Change, LedgerReader, Namespace};
    use penstock_model::PoolSamples;
    let lab = Lab::new();
    let record = |namespace: &Namespace, minutes: std::ops::Range<i64>| {
        for minute in minutes {
            let minute = PoolSamples {
                from: Timestamp(minute * 60_000),
                to: Timestamp(minute * 60_000 + 60_000),
                ..PoolSamples::default()
            };
            let change = Change::RecordPoolMinute(minute);
            namespace.apply(change).expect("recorded");
        }
    };
    let numbers_after = |number: u64| {
        let reader = LedgerReader::open(&lab.at("namespace.sqlite")).expect("opens");
        let last = reader.last_pool_minute().expect("readable");
        let found = reader.pool_minutes_after(number, 100).expect("readable");
        let begins: Vec<i64> = found.iter().map(|(_, one)| one.from.0 / 60_000).collect();
        (last, begins)
    };
    let (namespace, of, _) = backed_up_namespace(&lab);
    record(&namespace, 0..3);
    back_up(&of, &lab.at("namespace.backup")).expect("made");
    record(&namespace, 3..5);
    let (collected, all) = numbers_after(0);
    assert_eq!((collected, all.len()), (5, 5));
    drop(namespace);
    let to = RestoreTo {
        kept: JournalLocation::Namespace(lab.at("namespace.sqlite")),
        replaces: true,
        ..lab.to("scratch")
    };
    restore(&lab.at("namespace.backup"), &to).expect("restored");
    let (last, new) = numbers_after(collected);
    // A position behind the last number is taken for one of another namespace.
    assert!(last >= collected && new.is_empty(), "{last} {new:?}");
    let namespace = Namespace::open(&lab.at("namespace.sqlite")).expect("opens");
    record(&namespace, 5..9);
    assert_eq!(numbers_after(collected).1, [5, 6, 7, 8]);
}

#[test]
fn what_is_restored_is_of_what_was_asked_for() {
    let lab = Lab::new();
    drop(backed_up_namespace(&lab));
    let refused = restore(&lab.at("namespace.backup"), &lab.to("record")).expect_err("another");
    assert!(refused.to_string().contains("of a namespace"), "{refused}");
    drop(lab.journal());
    back_up(&lab.of(), &lab.at("backup")).expect("made");
    let to = RestoreTo {
        kept: JournalLocation::Namespace(lab.at("anew.sqlite")),
        ..lab.to("scratch")
    };
    let refused = restore(&lab.at("backup"), &to).expect_err("another");
    assert!(
        refused.to_string().contains("transfer service"),
        "{refused}"
    );
}

#[test]
fn a_damaged_namespace_takes_no_backup_s_place() {
    let lab = Lab::new();
    let (namespace, of, facts) = backed_up_namespace(&lab);
    drop(namespace);
    let damage = Connection::open(lab.at("namespace.sqlite")).expect("opens");
    damage
        .execute("UPDATE entry SET parent = 77777 WHERE name = 'd7'", [])
        .expect("damaged");
    drop(damage);
    let refused = back_up(&of, &lab.at("namespace.backup")).expect_err("it is damaged");
    assert!(refused.to_string().contains("no directory"), "{refused}");
    assert_eq!(
        verify(&lab.at("namespace.backup")).expect("as it was"),
        facts
    );
    assert!(!lab.at("namespace.backup.part").exists());
}

#[test]
fn a_damaged_journal_takes_no_backup_s_place() {
    let lab = Lab::new();
    let mut journal = lab.journal();
    for number in 1..=300 {
        let stored = journal.append(&accepted(number.into(), number));
        stored.expect("stored");
    }
    let whole = back_up(&lab.of(), &lab.at("backup")).expect("made");
    drop(journal);
    let damage = Connection::open(lab.at("transfer.sqlite")).expect("opens");
    damage
        .execute("DELETE FROM transfer WHERE transfer_id = 150", [])
        .expect("damaged");
    drop(damage);
    let refused = back_up(&lab.of(), &lab.at("backup")).expect_err("it is damaged");
    assert!(refused.to_string().contains("no files"), "{refused}");
    assert_eq!(verify(&lab.at("backup")).expect("as it was"), whole);
    assert!(!lab.at("backup.part").exists());
}
