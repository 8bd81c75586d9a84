//! Databases that earlier versions have left: whatever their schema, what was in them is there after the upgrade.

use super::{job, keys};
use crate::journal::sqlite::make_old_schema;
use crate::journal::{Journal, JournalReader, PostgresReader, SqliteJournal, SqliteReader};
use crate::postgres::{lab, schema};
use penstock_model::*;

/// One job of two files, of which the first has arrived, with columns that every schema has. `user` is called otherwise
/// in PostgreSQL, where it is a word of the language.
fn rows(user: &str) -> [String; 3] {
    let job = job_without_tokens();
    let text = |value: serde_json::Value| value.to_string().replace('\'', "''");
    let json = |value: &dyn erased::Json| text(value.value());
    let finished = TransferState::Finished {
        attempt: Attempt(1),
        started_at: Timestamp(1500),
        size: Bytes(7),
        mode: Some(CopyMode::Pull),
        report: Box::default(),
        at: Timestamp(2000),
    };
    let event = TransferEvent::Archived;
    [
        format!(
            "INSERT INTO job (job_id, {user}, vo, delegation, submitted_ms, priority, parameters, source_se,
                 destination_se) VALUES ('{}', 'alice', 'cms', 'd1', 1000, 3, '{}', 'https://a', 'https://b')",
            job.id,
            json(&job.parameters)
        ),
        format!(
            "INSERT INTO transfer (transfer_id, job_id, request, state_name, state, size_bytes, started_ms, finished_ms)
             VALUES (1, '{0}', '{1}', 'FINISHED', '{2}', 7, 1500, 2000),
                 (2, '{0}', '{3}', 'SUBMITTED', '{4}', NULL, NULL, NULL)",
            job.id,
            json(&job.transfers[0]),
            json(&finished),
            json(&job.transfers[1]),
            json(&TransferState::submitted())
        ),
        format!(
            "INSERT INTO ledger (sequence, at_ms, monotonic_us, job_id, transfer_id, version, event)
             VALUES (1, 2000, 5, '{}', 1, 1, '{}')",
            job.id,
            json(&event)
        ),
    ]
}

/// Values of any type as JSON.
mod erased {
    pub(super) trait Json {
        fn value(&self) -> serde_json::Value;
    }

    impl<T: serde::Serialize> Json for T {
        fn value(&self) -> serde_json::Value {
            serde_json::to_value(self).expect("serialisable")
        }
    }
}

fn job_without_tokens() -> Job {
    let mut job = job(1, 1..=2);
    for request in &mut job.transfers {
        request.source_credential = None;
    }
    job
}

fn assert_all_there(reader: &dyn JournalReader, journal: &mut dyn Journal, after: &str) {
    let wanted = job_without_tokens();
    let row = reader.job(wanted.id).expect("readable").expect("known");
    assert_eq!(
        (row.user.as_str(), row.parameters),
        ("alice", wanted.parameters),
        "{after}"
    );
    let transfers = reader.transfers(wanted.id).expect("readable");
    let requests: Vec<_> = transfers.iter().map(|row| row.request.clone()).collect();
    assert_eq!(requests, wanted.transfers, "{after}");
    assert_eq!(transfers[0].size_bytes, Some(7), "{after}");
    let (_, unfinished) = super::restart(journal);
    assert_eq!(
        unfinished[0].job.transfers,
        wanted.transfers[1..],
        "{after}"
    );
    assert_eq!(
        reader.entries_after(0, 10).expect("readable").len(),
        1,
        "{after}"
    );
}

#[test]
fn every_schema_of_sqlite_is_raised_with_all_that_is_in_it() {
    for version in 1.. {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("transfer.sqlite");
        let mut connection = rusqlite::Connection::open(&path).expect("opens");
        if !make_old_schema(&mut connection, version, &keys()) {
            assert!(version > 7, "the schemas that were published are there");
            break;
        }
        for sql in rows("user") {
            connection.execute_batch(&sql).expect(&sql);
        }
        drop(connection);
        let mut journal = SqliteJournal::open(&path, keys()).expect("is raised");
        let reader = SqliteReader::open(&path, 1).expect("opens");
        assert_all_there(&reader, &mut journal, &format!("schema {version}"));
    }
}

#[test]
fn every_schema_of_postgresql_is_raised_with_all_that_is_in_it() {
    for version in 1..=schema::SCHEMA_VERSION {
        let database = lab::database();
        schema::make_old(&database, version);
        lab::execute(
            &database,
            "CREATE TABLE ledger_p0 PARTITION OF ledger FOR VALUES FROM (0) TO (10000000)",
        );
        for sql in rows("username") {
            lab::execute(&database, &sql);
        }
        lab::execute(
            &database,
            "UPDATE journal_writer SET last_sequence = 1, transfer_id_max = 2",
        );
        let (_, mut journal) = super::fencing::lead(&database, "a");
        let reader = PostgresReader::open(&database, 1).expect("opens");
        assert_all_there(&reader, &mut journal, &format!("schema {version}"));
    }
}
