//! The runtime of a site: where its things lie, what its configuration says, its keys, and `serve`, which runs its roles.

pub mod acquaintance;
pub mod backup;
pub mod check;
pub mod config;
pub mod config_file;
pub mod directory;
pub mod element_record;
pub mod element_rows;
pub mod expiry;
pub mod host_record;
pub mod init;
pub mod issuer;
pub mod keys;
pub mod own_document;
mod ownership;
pub mod path_story;
pub mod pool_record;
pub mod record;
pub mod reload;
pub mod serve;
pub mod store;
pub mod trusted_site;
pub mod trusted_sites;
