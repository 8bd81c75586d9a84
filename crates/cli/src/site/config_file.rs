//! The text of a new `penstock.toml`, and careful edits of an existing one that keep its comments.

use crate::exit::CommandError;
use crate::site::acquaintance::Acquaintance;
use crate::site::config::{Config, ForeignIssuer, Pool, without_secrets};
use crate::site::directory::SiteDirectory;
use penstock_durable_file::{replace_existing, replace_private};
use penstock_model::Right;
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

/// The text of a configuration with an acquaintance, everything else being as it was.
pub fn with_acquaintance(text: &str, other: &Acquaintance) -> Result<String, String> {
    let mut document = parsed(text)?;
    let trust = document
        .entry("trust")
        .or_insert_with(|| Item::Table(Table::new()));
    if let Some(issuer) = &other.issuer {
        add_issuer(trust, issuer)?;
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

fn parsed(text: &str) -> Result<DocumentMut, String> {
    let parsed: Result<DocumentMut, toml_edit::TomlError> = text.parse();
    parsed.map_err(|why| without_secrets(&why))
}

fn wrong(key: &str) -> String {
    format!("'{key}' is not written as a table or list, so it cannot be edited; edit it by hand")
}

fn add_issuer(trust: &mut Item, issuer: &ForeignIssuer) -> Result<(), String> {
    let issuers = trust
        .as_table_mut()
        .ok_or_else(|| wrong("trust"))?
        .entry("issuer")
        .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()))
        .as_array_of_tables_mut()
        .ok_or_else(|| wrong("trust.issuer"))?;
    let known = |table: &Table| table.get("issuer").and_then(Item::as_str) == Some(&issuer.issuer);
    if issuers.iter().any(known) {
        return Ok(());
    }
    let mut table = Table::new();
    table["issuer"] = value(&issuer.issuer);
    table["prefix"] = value(issuer.prefix.to_string());
    if let Some(vo) = &issuer.vo {
        table["vo"] = value(vo);
    }
    if issuer.rights != Right::ALL {
        let names = issuer.rights.iter().map(|right| right.word());
        table["rights"] = value(toml_edit::Array::from_iter(names));
    }
    issuers.push(table);
    Ok(())
}

/// The same without what an acquaintance had brought. What is not there any more is no error.
pub fn without_acquaintance(text: &str, other: &Acquaintance) -> Result<String, String> {
    let mut document = parsed(text)?;
    if let Some(trust) = document.get_mut("trust") {
        let trust = trust.as_table_mut().ok_or_else(|| wrong("trust"))?;
        if let Some(issuer) = &other.issuer
            && let Some(issuers) = trust.get_mut("issuer")
        {
            let issuers = issuers.as_array_of_tables_mut();
            issuers
                .ok_or_else(|| wrong("trust.issuer"))?
                .retain(|table| table.get("issuer").and_then(Item::as_str) != Some(&issuer.issuer));
        }
        if let Some(private) = trust.get_mut("private_addresses") {
            let private = private.as_array_mut();
            let private = private.ok_or_else(|| wrong("trust.private_addresses"))?;
            remove_from(private, &other.private_addresses);
        }
    }
    let outbound = document
        .get_mut("storage")
        .and_then(Item::as_table_mut)
        .and_then(|storage| storage.get_mut("outbound"))
        .and_then(Item::as_table_like_mut);
    if let Some(allowed) = outbound.and_then(|outbound| outbound.get_mut("allow")) {
        let allowed = allowed.as_array_mut();
        let allowed = allowed.ok_or_else(|| wrong("storage.outbound.allow"))?;
        remove_from(allowed, &other.servers);
    }
    Ok(document.to_string())
}

fn remove_from(list: &mut toml_edit::Array, texts: &[String]) {
    list.retain(|known| {
        !known
            .as_str()
            .is_some_and(|known| texts.iter().any(|text| text == known))
    });
}

/// A change of `penstock.toml` that was read and judged whole.
pub struct ConfigEdit {
    /// The text that is there.
    pub before: String,
    /// What it means.
    pub config: Config,
    /// The text that takes its place.
    pub edited: String,
}

impl ConfigEdit {
    /// Puts it in place, unless nothing changes. Gives the copy of the former file.
    pub fn put_in_place(&self, site: &SiteDirectory) -> Result<Option<PathBuf>, CommandError> {
        match self.before == self.edited {
            true => Ok(None),
            false => put_in_place(&site.config_file(), &self.before, &self.edited).map(Some),
        }
    }
}

/// Puts an edited configuration in the place of the present one, of which a copy stays beside it. Tells where.
fn put_in_place(path: &Path, before: &str, edited: &str) -> Result<PathBuf, CommandError> {
    let copy = path.with_extension("toml.before");
    // Addresses of receivers of alerts may be secrets.
    replace_private(&copy, before).map_err(|why| CommandError::local(copy.display(), why))?;
    replace_existing(path, edited).map_err(|why| CommandError::local(path.display(), why))?;
    Ok(copy)
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
            issuer: Some(ForeignIssuer {
                issuer: "https://127.0.0.3:8443".into(),
                prefix: NamespacePath::root(),
                vo: Some("there".into()),
                vos: None,
                token_life_max: Span(LIFE_MAX),
                rights: vec![Right::Read],
                client_id: None,
                client_secret_file: None,
            }),
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
        assert_eq!(Some(&config.trust.issuers[0]), other().issuer.as_ref());
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

    #[test]
    fn what_an_acquaintance_brought_goes_and_nothing_else() {
        let before = render(&new_site());
        let mut brought = other();
        // It was there before, so whoever takes the rest back leaves it out.
        brought.servers.retain(|server| server != "127.0.0.2:8443");
        let with = with_acquaintance(&before, &other()).expect("valid");
        let without = without_acquaintance(&with, &brought).expect("valid");
        assert_eq!(
            Config::parse(&without).expect(&without),
            Config::parse(&before).expect("valid")
        );
        for line in before.lines().filter(|line| line.starts_with('#')) {
            assert!(without.contains(line), "{line}");
        }
        assert_eq!(
            without_acquaintance(&without, &brought),
            Ok(without.clone())
        );
        let by_hand = "[trust]\nissuer = 7\n[storage.outbound]\nallow = \"x\"\n";
        assert!(with_acquaintance(by_hand, &other()).is_err());
        assert!(without_acquaintance(by_hand, &other()).is_err());
    }
}
