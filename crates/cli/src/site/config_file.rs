//! The text of a new `penstock.toml`, and careful edits of an existing one that keep its comments.

use crate::exit::CommandError;
use crate::site::config::{Config, ForeignIssuer, Pool, without_secrets};
use penstock_durable_file::replace_existing;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

/// What `init` decided about a new site.
#[derive(Debug, Clone)]
pub struct NewSite {
    pub name: String,
    /// Its hosts, the first for URLs.
    pub hosts: Vec<String>,
    /// Where the WebDAV door listens.
    pub door: SocketAddr,
    /// Where the transfer service listens.
    pub service: SocketAddr,
    /// Where a door without TLS would listen.
    pub plain_door: SocketAddr,
    /// Where copies may go to or come from at first: its own storage door.
    pub allow: Vec<String>,
    /// Those of its addresses that are not public, with the port of the door.
    pub private_addresses: Vec<String>,
    /// Its token issuer.
    pub issuer: String,
    /// Where file data goes, one pool each.
    pub pools: Vec<PathBuf>,
}

/// The commented file that a newcomer reads first.
pub fn render(site: &NewSite) -> String {
    let quoted = |text: &str| toml_edit::Value::from(text).to_string().trim().to_owned();
    let list = |texts: &[String]| {
        let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        quoted.join(", ")
    };
    let pool = |(number, path): (usize, &PathBuf)| {
        let path = quoted(&path.to_string_lossy());
        format!(
            "[[storage.pool]]\nname = \"disk{}\"\npath = {path}\n",
            number + 1
        )
    };
    let pools: Vec<String> = site.pools.iter().enumerate().map(pool).collect();
    let pools = pools.join("\n");
    format!(
        include_str!("new_site.toml"),
        name = quoted(&site.name),
        issuer = quoted(&site.issuer),
        service = site.service,
        door = site.door,
        plain = site.plain_door,
        movers = Pool::default_movers_max(),
        queue = Pool::default_queue_max(),
        live = format_args!("https://HOST:{}/live/", site.service.port()),
        hosts = list(&site.hosts),
        allow = list(&site.allow),
        private = list(&site.private_addresses),
        pools = pools,
    )
}

/// What one site learns about another.
#[derive(Debug, Clone)]
pub struct Acquaintance {
    /// Whose tokens to trust.
    pub issuer: ForeignIssuer,
    /// Where copies may go to or come from.
    pub servers: Vec<String>,
    /// Addresses of these that are not public.
    pub private_addresses: Vec<String>,
}

/// Adds an issuer and allowed hosts to a configuration, keeping everything else as it is. What is there
/// already is not added again. The file is replaced in one step.
pub fn introduce(path: &Path, other: &Acquaintance) -> Result<(), CommandError> {
    let fail =
        |why: &dyn std::fmt::Display| CommandError::Usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|why| fail(&why))?;
    let edited = with_acquaintance(&text, other).map_err(|why| fail(&why))?;
    Config::parse(&edited).map_err(|why| fail(&without_secrets(&why)))?;
    replace_existing(path, &edited).map_err(|why| CommandError::local(path.display(), why))
}

fn with_acquaintance(text: &str, other: &Acquaintance) -> Result<String, String> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|why: toml_edit::TomlError| without_secrets(&why))?;
    let wrong = |key: &str| {
        format!("'{key}' is not written as a table, so it cannot be edited; edit it by hand")
    };
    let trust = document
        .entry("trust")
        .or_insert_with(|| Item::Table(Table::new()));
    let issuers = trust
        .as_table_mut()
        .ok_or_else(|| wrong("trust"))?
        .entry("issuer")
        .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()))
        .as_array_of_tables_mut()
        .ok_or_else(|| wrong("trust.issuer"))?;
    let known =
        |table: &Table| table.get("issuer").and_then(Item::as_str) == Some(&other.issuer.issuer);
    if !issuers.iter().any(known) {
        let mut table = Table::new();
        table["issuer"] = value(&other.issuer.issuer);
        table["prefix"] = value(other.issuer.prefix.to_string());
        if let Some(vo) = &other.issuer.vo {
            table["vo"] = value(vo);
        }
        issuers.push(table);
    }
    let private = trust
        .as_table_mut()
        .ok_or_else(|| wrong("trust"))?
        .entry("private_addresses")
        .or_insert_with(|| value(toml_edit::Array::new()))
        .as_array_mut()
        .ok_or_else(|| wrong("trust.private_addresses"))?;
    add_missing(private, &other.private_addresses);
    let Some(storage) = document.get_mut("storage") else {
        return Ok(document.to_string());
    };
    let allowed = storage
        .as_table_mut()
        .ok_or_else(|| wrong("storage"))?
        .entry("outbound")
        .or_insert_with(|| Item::Table(Table::new()))
        .as_table_like_mut()
        .ok_or_else(|| wrong("storage.outbound"))?
        .entry("allow")
        .or_insert_with(|| value(toml_edit::Array::new()))
        .as_array_mut()
        .ok_or_else(|| wrong("storage.outbound.allow"))?;
    add_missing(allowed, &other.servers);
    Ok(document.to_string())
}

fn add_missing(list: &mut toml_edit::Array, texts: &[String]) {
    for text in texts {
        if !list.iter().any(|known| known.as_str() == Some(text)) {
            list.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::NamespacePath;
    use penstock_model::quantity::Span;
    use penstock_protocol::token::LIFE_MAX;

    fn new_site() -> NewSite {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 2], port));
        NewSite {
            name: "here \"quoted\"".into(),
            hosts: vec!["127.0.0.2".into(), "se.example.org".into()],
            door: at(8443),
            service: at(8446),
            plain_door: at(8444),
            allow: vec!["127.0.0.2:8443".into(), "se.example.org:8443".into()],
            private_addresses: vec!["127.0.0.2:8443".into()],
            issuer: "https://127.0.0.2:8443".into(),
            pools: vec!["pools/disk1".into(), "/data/\"disk\" 2".into()],
        }
    }

    fn other() -> Acquaintance {
        Acquaintance {
            issuer: ForeignIssuer {
                issuer: "https://127.0.0.3:8443".into(),
                prefix: NamespacePath::root(),
                vo: Some("there".into()),
                vos: None,
                token_life_max: Span(LIFE_MAX),
                client_id: None,
                client_secret_file: None,
            },
            servers: vec!["127.0.0.3:8443".into(), "127.0.0.2:8443".into()],
            private_addresses: vec!["127.0.0.3:8443".into()],
        }
    }

    #[test]
    fn a_new_file_is_valid_and_says_what_was_decided() {
        let config = Config::parse(&render(&new_site())).expect("valid");
        assert_eq!(config.problems(), [""; 0]);
        assert_eq!(config.site.name, "here \"quoted\"");
        assert_eq!(config.door_url().as_deref(), Some("https://127.0.0.2:8443"));
        let transfer = config.transfer.expect("present");
        let spelt_out: crate::site::config::Transfer =
            toml::from_str(&format!("listen = \"{}\"", new_site().service)).expect("valid");
        assert_eq!(transfer, spelt_out, "the file writes the defaults");
    }

    #[test]
    fn every_key_offered_in_a_comment_is_a_real_one() {
        let offered = |line: &str| {
            let rest = line.strip_prefix('#')?.trim_start();
            let key = rest.split(" = ").next()?;
            let is_key =
                rest.contains(" = ") && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            let is_table = rest.starts_with('[') && rest.ends_with(']');
            (is_key || is_table).then(|| rest.to_owned())
        };
        // Indented examples stand before other keys of their section, hence they are moved to the end.
        let (mut text, mut example) = (String::new(), String::new());
        for line in render(&new_site()).lines() {
            match offered(line) {
                Some(rest) if line.starts_with("#   ") => example += &format!("{rest}\n"),
                Some(rest) => text += &format!("{rest}\n"),
                None => text += &format!("{line}\n"),
            }
        }
        let uncommented = text + &example;
        let config = Config::parse(&uncommented).expect(&uncommented);
        assert_eq!(config.trust.issuers.len(), 1);
        assert_eq!(config.transfer.expect("present").links.len(), 1);
        assert!(config.storage.expect("present").plain_listen.is_some());
    }

    #[test]
    fn an_introduction_keeps_comments_and_happens_once() {
        let before = render(&new_site());
        let once = with_acquaintance(&before, &other()).expect("valid");
        let twice = with_acquaintance(&once, &other()).expect("valid");
        assert_eq!(once, twice);
        for line in before.lines().filter(|line| line.starts_with('#')) {
            assert!(once.contains(line), "{line}");
        }
        let config = Config::parse(&once).expect(&once);
        assert_eq!(config.trust.issuers, [other().issuer]);
        let allowed = config.storage.expect("present").outbound.allow;
        assert_eq!(
            allowed,
            ["127.0.0.2:8443", "se.example.org:8443", "127.0.0.3:8443"]
        );
        assert_eq!(
            config.trust.private_addresses,
            ["127.0.0.2:8443", "127.0.0.3:8443"]
        );
    }
}
