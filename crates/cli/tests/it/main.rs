//! The built binary, as people and scripts use it.

mod authz;
mod certificates;
mod demo;
mod hostile_bytes;
mod hygiene;
mod jobs;
mod keys;
mod monitoring;
mod openapi;
mod simulate;
mod site;
mod site_directory;
mod storage;
mod what_if;
