//! Rows as files that others read and write: a line of JSON for each, or Parquet. What is exported and imported again is
//! identical. `docs/observe/records.md` describes both.

pub mod ndjson;
pub mod parquet;
