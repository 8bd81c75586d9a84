//! Sinks of messages as the transfer service takes them, with their passwords.

use crate::site::config::MessageSink;
use crate::site::directory::SiteDirectory;
use penstock_protocol::broker::{Broker, Language};
use penstock_transfer_service::messages::{SinkConfig, SinkTarget};

/// As the service takes it. Errors: a password that cannot be read.
pub fn resolve(sink: &MessageSink, site: &SiteDirectory) -> Result<SinkConfig, String> {
    let target = match &sink.file {
        Some(file) => SinkTarget::File(site.resolve(file)),
        None => {
            let login = login(sink, site)?;
            let brokers: Result<Vec<Broker>, _> = sink
                .brokers
                .iter()
                .map(|url| Broker::new(url, login.clone()))
                .collect();
            let brokers = brokers.map_err(|why| why.to_string())?;
            let usual = match brokers.first().map(Broker::language) {
                Some(Language::Stomp) => "/topic/",
                Some(Language::Nats) | None => "",
            };
            let prefix = sink.prefix.clone().unwrap_or_else(|| usual.to_owned());
            SinkTarget::Brokers { brokers, prefix }
        }
    };
    Ok(SinkConfig {
        name: sink.name.clone(),
        target,
        optimizer_every: sink.optimizer_every.0,
    })
}

fn login(sink: &MessageSink, site: &SiteDirectory) -> Result<Option<(String, String)>, String> {
    let (Some(user), Some(file)) = (&sink.user, &sink.password_file) else {
        return Ok(None);
    };
    let path = site.resolve(file);
    let text = std::fs::read_to_string(&path).map_err(|why| {
        format!(
            "transfer.messages '{}': password_file {}: {why}",
            sink.name,
            path.display()
        )
    })?;
    let password = text.trim_end_matches(['\r', '\n']);
    let usable = !password.is_empty() && !password.contains(['\r', '\n', '\0']);
    match usable {
        true => Ok(Some((user.clone(), password.to_owned()))),
        false => Err(format!(
            "transfer.messages '{}': {} does not hold a password on one line",
            sink.name,
            path.display()
        )),
    }
}
