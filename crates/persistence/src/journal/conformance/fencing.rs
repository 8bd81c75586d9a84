//! What PostgreSQL has and the others need not: a leader that was deposed writes nothing, and a batch whose answer was
//! lost is written once.

use super::{Job, Journal, Record, accepted, finish, job, keys};
use crate::cluster::{Cluster, Leadership};
use crate::journal::{PostgresJournal, PostgresReader};
use crate::postgres::{Database, lab};
use penstock_journal::{JournalError, JournalReader, Remedy};
use penstock_model::{Epoch, JobId, NodeId, Tenure, Timestamp};
use std::time::Duration;

const TERM: Duration = Duration::from_secs(60);

/// A journal led by a node of this name, which takes the lead from itself.
pub(super) fn lead(database: &Database, name: &str) -> (Tenure, PostgresJournal) {
    let cluster = Cluster::open(database).expect("opens");
    let node = NodeId::parse(name).expect("a name");
    let Leadership::Leading(tenure) = cluster.try_lead(&node, TERM).expect("answers") else {
        panic!("somebody else leads");
    };
    let journal = PostgresJournal::open(database, keys(), tenure, 0).expect("opens");
    (tenure, journal)
}

fn jobs_in(database: &Database) -> i64 {
    lab::number(database, "SELECT count(*) FROM job")
}

#[test]
fn a_leader_that_was_deposed_writes_nothing_more() {
    let database = lab::database();
    let (before, mut old) = lead(&database, "a");
    old.append(&accepted(&job(1, 1..=1))).expect("stored");
    let (tenure, mut new) = lead(&database, "a");
    let refused = old.append(&accepted(&job(2, 2..=2)));
    let Err(JournalError::Deposed { current, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(current, tenure.epoch);
    assert!(matches!(
        old.seal_some_anew(),
        Err(JournalError::Deposed { .. })
    ));
    new.append(&accepted(&job(3, 3..=3))).expect("stored");
    assert_eq!(jobs_in(&database), 2);
    let again = PostgresJournal::open(&database, keys(), before, 0);
    assert!(matches!(again, Err(JournalError::Deposed { .. })));
}

#[test]
fn a_new_leader_waits_for_the_last_transaction_of_the_one_before() {
    let database = lab::database();
    let (tenure, _journal) = lead(&database, "a");
    let cluster = Cluster::open(&database).expect("opens");
    let mut writer = lab::connect(&database);
    let mut open = writer.transaction().expect("begins");
    let held = "SELECT 1 FROM lease WHERE epoch = $1 FOR KEY SHARE";
    open.query_one(held, &[&(tenure.epoch.0 as i64)])
        .expect("held");
    assert!(
        cluster.renew(tenure, TERM).expect("answers"),
        "renewing does not wait for it"
    );
    let node = NodeId::parse("a").expect("a name");
    let ask = || cluster.try_lead(&node, TERM).expect("answers");
    assert!(matches!(ask(), Leadership::Following { .. }));
    open.commit().expect("ends");
    let next = Epoch(tenure.epoch.0 + 1);
    assert!(matches!(ask(), Leadership::Leading(it) if it.epoch == next));
}

/// Ends all other connections as an operator or a crash would.
fn cut(database: &Database) {
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    lab::number(database, sql);
}

fn batch(number: u64) -> (Job, Vec<Record>) {
    let job = job(number.into(), number..=number);
    let mut records = accepted(&job);
    records.extend(finish(&job, number));
    (job, records)
}

#[test]
fn a_connection_that_is_lost_is_made_anew_and_each_batch_is_written_once() {
    let database = lab::database();
    let (_, mut journal) = lead(&database, "a");
    let reader = PostgresReader::open(&database, 1).expect("opens");
    for number in 1..=5 {
        let (job, records) = batch(number);
        cut(&database);
        if let Err(error) = journal.append(&records) {
            assert!(error.may_pass(), "{error}");
            journal
                .append(&records)
                .expect("the next try finds a connection");
        }
        cut(&database);
        assert!(reader.job(job.id).expect("asked again by itself").is_some());
    }
    assert_eq!(jobs_in(&database), 5);
    let entries = reader.entries_after(0, 100).expect("readable");
    let sequences: Vec<u64> = entries.iter().map(|entry| entry.sequence).collect();
    assert_eq!(sequences, (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_batch_whose_commit_was_not_answered_is_found_and_not_written_again() {
    let database = lab::database();
    let (_, mut journal) = lead(&database, "a");
    let (_, first) = batch(1);
    let (_, second) = batch(2);
    journal.append_unanswered(&first);
    assert_eq!(journal.append(&first).expect("found"), 2);
    assert_eq!(jobs_in(&database), 1);
    // The caller has given the first up, and comes with another.
    journal.append_unanswered(&second);
    let (_, third) = batch(3);
    assert_eq!(journal.append(&third).expect("stored"), 6);
    assert_eq!(jobs_in(&database), 3);
}

#[test]
fn names_hold_whatever_somebody_put_into_them() {
    let database = lab::database();
    let (_, mut journal) = lead(&database, "a");
    let mut odd = job(1, 1..=1);
    odd.user = penstock_model::UserName::new("/CN=nul\0, quote', slash\\, é\u{10ffff}");
    journal.append(&accepted(&odd)).expect("stored");
    let reader = PostgresReader::open(&database, 1).expect("opens");
    let filter = penstock_journal::JobFilter {
        user: Some(odd.user.clone()),
        limit: 1,
        ..Default::default()
    };
    assert_eq!(reader.jobs(&filter).expect("readable").len(), 1);
}

#[test]
fn a_reader_may_be_asked_inside_an_async_runtime() {
    let database = lab::database();
    let (_, mut journal) = lead(&database, "a");
    journal.append(&accepted(&job(1, 1..=1))).expect("stored");
    let reader = PostgresReader::open(&database, 1).expect("opens");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let found = runtime.expect("a runtime").block_on(async move {
        let found = reader
            .job(JobId(uuid::Uuid::from_u128(1)))
            .expect("readable");
        // Connections are closed elsewhere, too.
        drop((reader, journal));
        found
    });
    assert_eq!(found.map(|job| job.submitted_at), Some(Timestamp(1000)));
}

#[test]
fn twenty_thousand_records_are_written_in_seconds() {
    let database = lab::database();
    let (_, mut journal) = lead(&database, "a");
    let many = job(1, 1..=10_000);
    journal.append(&accepted(&many)).expect("stored");
    let records: Vec<Record> = (1..=10_000).flat_map(|id| finish(&many, id)).collect();
    let begun = std::time::Instant::now();
    journal.append(&records).expect("stored");
    let took = begun.elapsed();
    println!("{} records in {took:?}", records.len());
    assert!(
        took < Duration::from_secs(20),
        "{took:?}: a statement is made for each record"
    );
}

#[test]
fn a_leader_whose_last_records_the_database_has_lost_writes_nothing_more() {
    let database = lab::database();
    let (_, mut journal) = lead(&database, "a");
    journal.append(&accepted(&job(1, 1..=1))).expect("stored");
    journal.append(&accepted(&job(2, 2..=2))).expect("stored");
    lab::execute(&database, "UPDATE journal_writer SET batch = batch - 1");
    let refused = journal.append(&accepted(&job(3, 3..=3)));
    assert!(
        matches!(&refused, Err(why) if why.remedy() == Remedy::ReadAnew),
        "{refused:?}"
    );
    assert_eq!(doubted_in(&database), 2, "what is open may have arrived");
    let (_, mut again) = lead(&database, "a");
    assert!(
        numbers_in(&database) > 1_000_000,
        "nodes may run transfers that are not known any more, under numbers that would be given again"
    );
    again.append(&accepted(&job(3, 3..=3))).expect("stored");
    assert_eq!(doubted_in(&database), 2);
}

#[test]
fn a_leader_that_knows_of_later_records_than_the_database_doubts_what_is_open() {
    let database = lab::database();
    let (tenure, mut journal) = lead(&database, "a");
    journal.append(&accepted(&job(1, 1..=1))).expect("stored");
    let last = journal.append(&accepted(&job(2, 2..=2))).expect("stored");
    for (seen, doubted) in [(last, 0), (last + 1, 2)] {
        drop(PostgresJournal::open(&database, keys(), tenure, seen).expect("opens"));
        assert_eq!(doubted_in(&database), doubted);
        assert_eq!(numbers_in(&database) > 1_000_000, doubted > 0);
    }
}

#[test]
fn a_leader_that_knows_nothing_of_before_doubts_what_a_standby_may_have_missed() {
    let database = lab::database();
    let (_, mut journal) = lead(&database, "a");
    journal.append(&accepted(&job(1, 1..=1))).expect("stored");
    journal.append(&accepted(&job(2, 2..=2))).expect("stored");
    drop(lead(&database, "a"));
    assert_eq!(doubted_in(&database), 0);
    // A row that cannot be read keeps nobody from leading.
    let sql = "UPDATE job SET parameters = 'odd' WHERE priority >= 0 AND job_id = (SELECT max(job_id::text)::uuid FROM job)";
    lab::execute(&database, sql);
    for name in ["timeline", "server"] {
        let sql = format!("UPDATE history SET value = value - 1 WHERE name = '{name}'");
        lab::execute(&database, &sql);
        let numbers = numbers_in(&database);
        drop(lead(&database, "a"));
        assert_eq!(doubted_in(&database), 1, "{name}");
        assert!(numbers_in(&database) > numbers + 1_000_000, "{name}");
        let numbers = numbers_in(&database);
        drop(lead(&database, "a"));
        assert_eq!(numbers_in(&database), numbers, "it is known now");
    }
}

/// The highest number that a transfer may have, or an entry, whichever is lower.
fn numbers_in(database: &Database) -> i64 {
    let sql = "SELECT least(transfer_id_max, last_sequence) FROM journal_writer";
    lab::number(database, sql)
}

fn doubted_in(database: &Database) -> i64 {
    let sql = "SELECT count(*) FROM job WHERE parameters LIKE '%restored_at%'";
    lab::number(database, sql)
}

#[test]
fn a_batch_of_another_turn_with_the_same_epoch_is_not_taken_for_ones_own() {
    let database = lab::database();
    let (lost, mut old) = lead(&database, "a");
    let sql = "UPDATE lease SET epoch = epoch - 1, expires_at = '-infinity'";
    lab::execute(&database, sql);
    let (given, mut new) = lead(&database, "b");
    assert_eq!(lost.epoch, given.epoch);
    new.append(&accepted(&job(1, 1..=1))).expect("stored");
    // Its first batch has the number of the other's first.
    let refused = old.append(&accepted(&job(2, 2..=2)));
    assert!(
        matches!(&refused, Err(why) if why.remedy() == Remedy::ReadAnew),
        "{refused:?}"
    );
    assert_eq!(jobs_in(&database), 1);
}

#[test]
fn what_the_database_refuses_is_told_apart_by_what_helps() {
    let database = lab::database();
    let (_, mut journal) = lead(&database, "a");
    journal.append(&accepted(&job(1, 1..=1))).expect("stored");
    let remedy = |refused: Result<u64, JournalError>| refused.expect_err("refused").remedy();
    let twice = journal.append(&accepted(&job(1, 1..=1)));
    assert_eq!(remedy(twice), Remedy::LeaveOut, "there is such a job");
    lab::execute(&database, "ALTER TABLE job RENAME TO job_aside");
    assert_eq!(
        remedy(journal.append(&accepted(&job(2, 2..=2)))),
        Remedy::Repair
    );
    lab::execute(&database, "ALTER TABLE job_aside RENAME TO job");
    journal.append(&accepted(&job(2, 2..=2))).expect("stored");
    for (code, expected) in [
        // A full disk, want of memory, a statement that took too long, an error of the system below.
        ("53100", Remedy::Wait),
        ("53200", Remedy::Wait),
        ("57014", Remedy::Wait),
        ("58030", Remedy::Wait),
        ("22P05", Remedy::LeaveOut),
        ("54000", Remedy::LeaveOut),
        ("42501", Remedy::Repair),
    ] {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN RAISE EXCEPTION 'a test says so' USING ERRCODE = '{code}'; END $$"
        );
        lab::execute(&database, &sql);
        let sql = "CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON job EXECUTE FUNCTION refuse()";
        lab::execute(&database, sql);
        let refused = journal.append(&accepted(&job(3, 3..=3)));
        assert_eq!(remedy(refused), expected, "{code}");
    }
    lab::execute(&database, "DROP TRIGGER refuse ON job");
    journal.append(&accepted(&job(3, 3..=3))).expect("stored");
}
