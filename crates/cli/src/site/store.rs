//! Where a site's transfer service keeps what survives a restart, from the configuration and the environment.

use crate::exit::CommandError;
use crate::site::config::{Config, DatabasePlace, Transfer};
use crate::site::directory::SiteDirectory;
use penstock_model::NodeId;
use penstock_persistence::cluster::Cluster;
use penstock_persistence::postgres::{Database, PasswordSource};
use penstock_protocol::tls::PeerTls;
use penstock_transfer_service::{NodesConfig, StoreBackend};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;

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

/// As the service takes it. With PostgreSQL the process is one of the service's nodes, and listens for the others.
pub async fn of(
    site: &SiteDirectory,
    config: &Config,
    role: &Transfer,
    pass_file: Option<&Path>,
) -> Result<StoreBackend, CommandError> {
    match (database(site, role, pass_file)?, &role.database) {
        (Some(database), _) => {
            let nodes = nodes_of(site, config, role, database).await?;
            Ok(StoreBackend::Postgres(Box::new(nodes)))
        }
        (None, DatabasePlace::File(journal)) => Ok(StoreBackend::Files {
            journal: site.resolve(journal),
            delegations: site.resolve(&role.delegations),
        }),
        (None, DatabasePlace::Postgres(_)) => unreachable!("an address gives a database"),
    }
}

async fn nodes_of(
    site: &SiteDirectory,
    config: &Config,
    role: &Transfer,
    database: Database,
) -> Result<NodesConfig, CommandError> {
    let listen = role.nodes_address();
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|why| {
        CommandError::local(
            format_args!("transfer.nodes: cannot listen on {listen}"),
            why,
        )
    })?;
    let tls = PeerTls::load(
        &site.resolve(&config.tls.certificate),
        &site.resolve(&config.tls.key),
    );
    let address = match listen.ip().is_unspecified() {
        true => format!("{}:{}", config.url_host(), listen.port()),
        false => listen.to_string(),
    };
    let opened = database.clone();
    let cluster = tokio::task::spawn_blocking(move || Cluster::open(&opened)).await;
    let cluster = cluster.map_err(|why| CommandError::local("transfer.database", why))?;
    Ok(NodesConfig {
        node: node_of(config),
        address,
        listener: Arc::new(listener),
        tls: tls.map_err(|why| CommandError::Usage(why.to_string()))?,
        database,
        cluster: Arc::new(cluster.map_err(|why| CommandError::Local(why.to_string()))?),
        key_file: site.resolve(&role.credential_keys),
    })
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
