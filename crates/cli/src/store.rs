//! Where a site's transfer service keeps what survives a restart, from the configuration and the environment.

use crate::config::{Config, DatabasePlace, Transfer};
use crate::exit::CommandError;
use crate::site::SiteDirectory;
use penstock_model::NodeId;
use penstock_persistence::postgres::{Database, PasswordSource};
use penstock_transfer_service::Store;
use std::path::Path;

/// PostgreSQL's address with the source of its password; `None` when the record is a file. `pass_file` is what the
/// environment names as `PGPASSFILE`.
pub fn database(
    site: &SiteDirectory,
    role: &Transfer,
    pass_file: Option<&Path>,
) -> Result<Option<Database>, CommandError> {
    let DatabasePlace::Postgres(address) = &role.database else {
        return Ok(None);
    };
    let password = match (&role.database_password_file, pass_file) {
        (Some(file), _) => PasswordSource::File(site.resolve(file)),
        (None, Some(file)) => PasswordSource::PassFile(file.to_owned()),
        (None, None) => PasswordSource::None,
    };
    let database = Database::parse(address, password);
    let database = database.map_err(|why| CommandError::Usage(format!("transfer.database: {why}")));
    database.map(Some)
}

/// As the service takes it.
pub fn of(
    site: &SiteDirectory,
    config: &Config,
    role: &Transfer,
    pass_file: Option<&Path>,
) -> Result<Store, CommandError> {
    match (database(site, role, pass_file)?, &role.database) {
        (Some(database), _) => Ok(Store::Postgres {
            database: Box::new(database),
            node: node_of(config),
        }),
        (None, DatabasePlace::File(journal)) => Ok(Store::Files {
            journal: site.resolve(journal),
            delegations: site.resolve(&role.delegations),
        }),
        (None, DatabasePlace::Postgres(_)) => unreachable!("an address gives a database"),
    }
}

/// By its first host, with what a name must not have left out.
fn node_of(config: &Config) -> NodeId {
    let host = config.site.hosts.first().map_or("", String::as_str);
    let plain =
        host.chars().map(
            |letter| match letter.is_ascii_alphanumeric() || "._".contains(letter) {
                true => letter,
                false => '-',
            },
        );
    let name: String = plain.take(64).collect();
    NodeId::parse(&name).unwrap_or_else(|_| NodeId::parse("node").expect("a plain word"))
}
