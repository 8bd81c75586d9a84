//! The built binary, as people and scripts use it.

mod authz;
mod backup;
mod certificates;
mod demo;
mod hostile_bytes;
mod hygiene;
mod jobs;
mod json_failures;
mod keys;
mod monitoring;
mod openapi;
mod records;
mod simulate;
mod site;
mod site_directory;
mod storage;
mod what_if;
