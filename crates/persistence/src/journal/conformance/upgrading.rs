//! Databases that earlier versions have left: whatever their schema, what was in them is there after the upgrade.

use super::{job, keys};
use crate::journal::sqlite::make_old_schema;
use crate::journal::{PostgresReader, SqliteJournal, SqliteReader};
use crate::postgres::{lab, schema};
use penstock_journal::{Journal, JournalReader};
use penstock_model::*;

/// One job of two files, of which the first has arrived, with columns that every schema has. `user` is called otherwise
/// in PostgreSQL, where it is a word of the language.
fn rows(user: &str) -> [String; 3] {
    let job = job_without_tokens();
    let text = |value: serde_json::Value| value.to_string().replace('\'', "''");
    let json = |value: &dyn erased::Json| text(value.value());
    let event = TransferEvent::Archived { source: None };
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
            text(as_earlier(&job.transfers[0])),
            earlier_state(),
            text(as_earlier(&job.transfers[1])),
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

/// As they were stored when whatever a client had not said was stored as well.
fn as_earlier(request: &TransferRequest) -> serde_json::Value {
    let mut stored = serde_json::to_value(request).expect("serialisable");
    let keys = stored.as_object_mut().expect("an object");
    for key in [
        "size",
        "checksum",
        "scitag",
        "metadata",
        "source_credential",
        "destination_credential",
    ] {
        keys.entry(key).or_insert(serde_json::Value::Null);
    }
    stored
}

/// As it was stored when it had all that the mover reported.
fn earlier_state() -> serde_json::Value {
    let stages = r#"{"wait_us":1,"source_read_us":0,"network_us":2,"write_us":3,"checksum_us":0,"commit_us":4}"#;
    let report = format!(
        r#"{{"moved":7,"checksum":{{"algorithm":"adler32","hex":"00000001"}},"pool":"disk1","stages":{stages},"tcp":null}}"#
    );
    let state = format!(
        r#"{{"state":"finished","at":2000,"started_at":1500,"attempt":1,"size":7,"mode":"pull","report":{report}}}"#
    );
    serde_json::from_str(&state).expect("valid")
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
    let TransferState::Finished { report, .. } = &transfers[0].state else {
        panic!("{after}: {:?}", transfers[0].state);
    };
    assert_eq!(report.moved, Bytes(7), "{after}");
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
