//! How what the request engine records is kept among the rows of the namespace: a line each, with the time of the libraries.

use penstock_tape::record::Record;
use serde::{Deserialize, Serialize};
use std::io;

/// Sets them apart from what the queue of an HSM records.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    library: LibraryRecord,
}

#[derive(Debug, Serialize, Deserialize)]
struct LibraryRecord {
    at_ns: i64,
    record: Record,
}

/// What the lines hold.
#[derive(Debug)]
pub(super) struct Recorded {
    pub records: Vec<Record>,
    /// When the last one was made.
    pub newest_ns: i64,
}

impl Recorded {
    pub(super) fn parse(journal: &[String]) -> io::Result<Recorded> {
        let mut recorded = Recorded {
            records: Vec::new(),
            newest_ns: 0,
        };
        for line in journal {
            let line: Line = serde_json::from_str(line).map_err(io::Error::other)?;
            recorded.newest_ns = recorded.newest_ns.max(line.library.at_ns);
            recorded.records.push(line.library.record);
        }
        Ok(recorded)
    }
}

/// Whether a line of the journal was written for libraries, and not for the program of an HSM.
pub(in super::super) fn is_of_library(line: &str) -> bool {
    line.starts_with("{\"library\":")
}

pub(super) fn line(at_ns: i64, record: Record) -> String {
    let library = LibraryRecord { at_ns, record };
    serde_json::to_string(&Line { library }).expect("records are plain data")
}
