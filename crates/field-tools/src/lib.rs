//! What people run by hand, above the services: bulk copies, job lists, test data and the checks of a demo.
//!
//! Talks to storage elements and transfer services over the wire only, as any client would. Knows nothing of
//! command lines, terminals, environment variables or exit codes: those belong to the binary.
#![forbid(unsafe_code)]

pub mod access_links_api;
pub mod bandwidth;
pub mod bulk_copy;
pub mod checksum_choice;
pub mod credentials;
pub mod dataset;
pub mod fts3_configuration;
pub mod job_list;
mod json_interface;
pub mod local_place;
pub mod local_source;
pub mod local_tree;
mod notes;
pub mod path_filter;
pub mod progress;
pub mod remote;
pub mod remote_error;
pub mod remote_tree;
pub mod replaceable;
pub mod server_identity;
pub mod settings_api;
pub mod tape_api;
pub mod tape_rest;
#[cfg(test)]
mod test_server;
pub mod transfer_api;
pub mod trash_api;
pub mod unfinished_downloads;
pub mod unfinished_uploads;
pub mod verify;
