//! The site's configuration: `penstock.toml` as typed values, a section per role, with their defaults.
//!
//! Reading is strict: a key that nothing reads is an error, because a misspelt limit that silently does
//! nothing is found on the day it was needed. Nothing here touches the file system beyond reading that one
//! file.

mod administrators;
mod alerts;
mod backup;
mod database;
mod gfal;
mod history;
mod limits;
mod membership;
mod messages;
mod observe;
mod outbound;
#[cfg(test)]
mod reference;
mod staging;
mod storage;
mod tape;
mod transfer;

pub use administrators::Administrator;
pub use alerts::{Alerts, ReceiverAddress};
pub use backup::BackupPlan;
pub use database::{DatabasePlace, without_secrets};
pub use gfal::{Confinement, Gfal};
pub use history::Keep;
pub use limits::Limits;
pub use membership::{Account, Member};
pub use messages::MessageSink;
pub use observe::Observe;
pub use outbound::is_probably_shared;
pub use staging::StagingLimits;
pub use storage::{GroupRule, Pool, PoolMode, Storage, UserRule};
pub use transfer::Transfer;

use crate::exit::CommandError;
use penstock_model::quantity::Span;
use penstock_model::{NamespacePath, Right, VoName};
use penstock_protocol::hosts::HostPattern;
use penstock_protocol::token::LIFE_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use thiserror::Error;
use url::Url;

/// Everything that `penstock.toml` may say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Who this site is.
    pub site: Site,
    /// The certificate that its doors show.
    #[serde(default)]
    pub tls: Tls,
    /// The site's own tokens. Without this section it issues none.
    pub issuer: Option<Issuer>,
    /// Whom the site trusts.
    #[serde(default)]
    pub trust: Trust,
    /// The transfer service. Without this section it does not run.
    pub transfer: Option<Transfer>,
    /// The storage element. Without this section it does not run.
    pub storage: Option<Storage>,
    /// What clients may do to all ports together.
    #[serde(default)]
    pub limits: Limits,
    /// What is shown of the past and the present.
    #[serde(default)]
    pub observe: Observe,
}

/// Who this site is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// For people, and the name of its certification authority.
    pub name: String,
    /// The names and addresses by which others reach it. The first stands in URLs.
    pub hosts: Vec<String>,
}

/// The certificate that the doors show. Paths are relative to the site directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// PEM: the host certificate, then the chain.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
}

impl Default for Tls {
    fn default() -> Tls {
        Tls {
            certificate: "host/cert.pem".into(),
            key: "host/key.pem".into(),
        }
    }
}

/// The site's own tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The issuer's URL: where `/.well-known/openid-configuration` is served.
    pub url: String,
    /// PEM: the key that signs (EC P-256).
    #[serde(default = "default_signing_key")]
    pub signing_key: PathBuf,
    /// The VO that its tokens stand for.
    pub vo: String,
    /// How long its tokens may live: longer ones are neither made nor believed.
    #[serde(default = "token_life_max")]
    pub token_life_max: Span,
}

fn token_life_max() -> Span {
    Span(LIFE_MAX)
}

fn all_rights() -> Vec<Right> {
    Right::ALL.to_vec()
}

fn default_signing_key() -> PathBuf {
    "keys/token-signing.pem".into()
}

/// Whom the site trusts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trust {
    /// A hashed directory of CA certificates, as `X509_CERT_DIR`.
    pub certificates: PathBuf,
    /// VOMS servers whose attributes count, as `X509_VOMS_DIR`: `<vo>/<host>.lsc`. Without the directory,
    /// proxies have none.
    pub vomsdir: PathBuf,
    /// A grid-map file: lines of `"subject" account`.
    pub gridmap: Option<PathBuf>,
    /// What VOs the accounts of the grid-map file stand for.
    #[serde(rename = "account")]
    pub accounts: Vec<Account>,
    /// Members of VOs whose proxies do not say so.
    #[serde(rename = "member")]
    pub members: Vec<Member>,
    /// Token issuers of others. The site's own issuer is trusted without being named here.
    #[serde(rename = "issuer")]
    pub issuers: Vec<ForeignIssuer>,
    /// Users who may do nothing here, whatever they hold: subjects of certificates in slash form, or of tokens.
    pub banned: Vec<String>,
    /// Addresses and networks that are not public and may be connected to all the same, by copies and for the keys of
    /// issuers: `10.0.0.5:8443`, `[fd00::5]:8443`, `10.0.0.0/8:20000-25000`. Without a port, those of storage elements.
    /// Without them nobody can send the site to what only it can reach.
    pub private_addresses: Vec<String>,
}

impl Default for Trust {
    fn default() -> Trust {
        Trust {
            certificates: "certificates".into(),
            vomsdir: "vomsdir".into(),
            gridmap: None,
            accounts: Vec::new(),
            members: Vec::new(),
            issuers: Vec::new(),
            banned: Vec::new(),
            private_addresses: Vec::new(),
        }
    }
}

/// A token issuer of somebody else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignIssuer {
    /// Its URL, exactly as in the `iss` claim.
    pub issuer: String,
    /// The part of the namespace that its tokens can reach; their paths are relative to it.
    #[serde(default = "NamespacePath::root")]
    pub prefix: NamespacePath,
    /// The VO of all its users, whatever groups its tokens name.
    pub vo: Option<String>,
    /// Or the VOs that its tokens' groups may name: who names another one has none. Without either, a group of its tokens
    /// is a VO of a derived name that nothing else has.
    pub vos: Option<Vec<String>>,
    /// How long its tokens may live. Longer ones are not believed.
    #[serde(default = "token_life_max")]
    pub token_life_max: Span,
    /// What its tokens can allow at the storage element at most, whatever their scopes say, and whatever `[[storage.group]]`
    /// says of their groups.
    #[serde(default = "all_rights")]
    pub rights: Vec<Right>,
    /// By what it knows this service as its client: then tokens of jobs with the scope `offline_access` are exchanged
    /// and refreshed there.
    pub client_id: Option<String>,
    /// A file that holds the client's secret on its first line.
    pub client_secret_file: Option<PathBuf>,
}

impl ForeignIssuer {
    /// One of a site like this one.
    pub fn limited(
        issuer: &str,
        prefix: NamespacePath,
        vo: Option<String>,
        rights: Vec<Right>,
    ) -> ForeignIssuer {
        ForeignIssuer {
            issuer: issuer.to_owned(),
            prefix,
            vo,
            vos: None,
            token_life_max: token_life_max(),
            rights,
            client_id: None,
            client_secret_file: None,
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// No file, or it cannot be read.
    #[error(
        "cannot read {path}: {why}; is this a site directory? `penstock init --dir DIR` creates one"
    )]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value of the wrong kind. The text names line and key.
    #[error("{path}: {}", database::without_secrets(why))]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with its place.
        why: Box<toml::de::Error>,
    },
    /// Each value is fine by itself, but not together.
    #[error("{path}: {}", problems.join("; "))]
    Inconsistent {
        /// Which file.
        path: PathBuf,
        /// All that was found, at once.
        problems: Vec<String>,
    },
}

impl From<ConfigError> for CommandError {
    fn from(why: ConfigError) -> CommandError {
        CommandError::Configuration(why.to_string())
    }
}

/// `cms` of `/cms/prod`.
fn first_part(group: &str) -> &str {
    let group = group.trim_start_matches('/');
    group.split('/').next().unwrap_or_default()
}

/// A host as it stands in a URL: an IPv6 address in brackets (RFC 3986 §3.2.2), anything else as it is.
pub fn in_url(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        Ok(IpAddr::V4(_)) | Err(_) => host.to_owned(),
    }
}

impl Config {
    /// Reads and validates one file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|why| ConfigError::Unreadable {
            path: path.to_owned(),
            why,
        })?;
        let config = Config::parse(&text).map_err(|why| ConfigError::Syntax {
            path: path.to_owned(),
            why: Box::new(why),
        })?;
        match config.problems() {
            problems if problems.is_empty() => Ok(config),
            problems => Err(ConfigError::Inconsistent {
                path: path.to_owned(),
                problems,
            }),
        }
    }

    /// Reads the text of a file, without looking at whether its values fit each other.
    pub fn parse(text: &str) -> Result<Config, toml::de::Error> {
        toml::from_str(text)
    }

    /// The host that stands in this site's URLs, in brackets when it is an IPv6 address.
    pub fn url_host(&self) -> String {
        in_url(self.site.hosts.first().map_or("localhost", String::as_str))
    }

    /// The door's URL, without a path: `https://host:8443`.
    pub fn door_url(&self) -> Option<String> {
        let storage = self.storage.as_ref()?;
        Some(format!(
            "https://{}:{}",
            self.url_host(),
            storage.listen.port()
        ))
    }

    /// The transfer service's URL, without a path: `https://host:8446`.
    pub fn service_url(&self) -> Option<String> {
        let transfer = self.transfer.as_ref()?;
        Some(format!(
            "https://{}:{}",
            self.url_host(),
            transfer.listen.port()
        ))
    }

    /// Every subject of a certificate for which the file has a rule: the section, the subject, and the authority that must have
    /// signed it, if any is named.
    pub fn subject_rules(&self) -> impl Iterator<Item = (&'static str, &str, Option<&str>)> {
        let users = self.storage.iter().flat_map(|role| &role.users);
        let users = users.map(|rule| ("storage.user", rule.dn.as_str(), rule.ca.as_deref()));
        let members = self.trust.members.iter();
        let members = members.map(|it| ("trust.member", it.dn.as_str(), it.ca.as_deref()));
        let administrators = self.transfer.iter().flat_map(|role| &role.administrators);
        let administrators = administrators.filter_map(|rule| {
            let dn = rule.dn.as_deref()?;
            Some(("transfer.administrator", dn, rule.ca.as_deref()))
        });
        users.chain(members).chain(administrators)
    }

    /// Every VO for whose members the file has a rule, and the key of that.
    pub fn vos_of_rules(&self) -> Vec<(String, &str)> {
        let groups = self.storage.iter().flat_map(|role| &role.groups);
        let groups = groups.map(|rule| ("storage.group", rule.group.as_str()));
        let administrators = self.transfer.iter().flat_map(|role| &role.administrators);
        let administrators = administrators.flat_map(|rule| {
            let named = [&rule.fqan, &rule.group, &rule.vo].into_iter().flatten();
            named.map(|name| ("transfer.administrator", name.as_str()))
        });
        let all = groups.chain(administrators);
        let all = all.map(|(section, name)| (format!("{section} '{name}'"), first_part(name)));
        all.collect()
    }

    /// Every VO to which the file takes somebody to belong, and the key that says so.
    pub fn named_vos(&self) -> Vec<(String, &str)> {
        let own = self.issuer.iter();
        let own = own.map(|issuer| ("issuer.vo".to_owned(), issuer.vo.as_str()));
        let foreign = self.trust.issuers.iter().flat_map(|issuer| {
            let vos = issuer.vo.iter().chain(issuer.vos.iter().flatten());
            vos.map(|vo| (format!("issuer '{}'", issuer.issuer), vo.as_str()))
        });
        let members = self.trust.members.iter();
        let members = members.map(|it| (format!("trust.member '{}'", it.dn), it.vo.as_str()));
        let accounts = self.trust.accounts.iter();
        let accounts = accounts.map(|it| (format!("trust.account '{}'", it.name), it.vo.as_str()));
        // What else is wrong with members and accounts is told by their own module.
        let local = members.chain(accounts).filter(|(_, vo)| !vo.is_empty());
        own.chain(foreign).chain(local).collect()
    }

    /// Everything that is wrong with the values together, each as one sentence that names the key. Long because each rule has
    /// its sentence, and they are read as a table.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, text: String| {
            if !holds {
                problems.push(text);
            }
        };
        require(
            !self.site.hosts.is_empty(),
            "site.hosts is empty; name the host or address".into(),
        );
        require(
            self.transfer.is_some() || self.storage.is_some(),
            "neither [transfer] nor [storage] is there, so there is nothing to serve".into(),
        );
        let issuers = self
            .trust
            .issuers
            .iter()
            .map(|issuer| issuer.issuer.as_str());
        let mut seen = BTreeSet::new();
        for url in issuers.chain(self.issuer.iter().map(|issuer| issuer.url.as_str())) {
            let https =
                Url::parse(url).is_ok_and(|url| url.scheme() == "https" && url.host().is_some());
            require(https, format!("issuer '{url}' must be an https:// URL"));
            require(seen.insert(url), format!("issuer '{url}' is named twice"));
        }
        if let Some(issuer) = &self.issuer {
            require(
                !issuer.token_life_max.0.is_zero(),
                "issuer.token_life_max is 0, so no token is ever accepted".into(),
            );
        }
        for issuer in &self.trust.issuers {
            require(
                !issuer.token_life_max.0.is_zero(),
                format!(
                    "issuer '{}': token_life_max is 0, so none of its tokens is ever accepted",
                    issuer.issuer
                ),
            );
            require(
                issuer.client_id.is_some() == issuer.client_secret_file.is_some(),
                format!(
                    "issuer '{}': client_id and client_secret_file belong together",
                    issuer.issuer
                ),
            );
            require(
                issuer.vo.is_none() || issuer.vos.is_none(),
                format!(
                    "issuer '{}': give vo (all its users are of that VO) or vos (those that its groups may name), not both",
                    issuer.issuer
                ),
            );
        }
        for (key, vo) in self.named_vos() {
            let is_named = !vo.is_empty() && !VoName::new(vo).is_derived();
            require(
                is_named,
                format!(
                    "{key}: '{vo}' cannot name a VO: the name must not be empty nor have a '~', which stands in names \
                         that are derived from credentials"
                ),
            );
        }
        for problem in membership::problems(&self.trust.members, &self.trust.accounts) {
            require(false, problem);
        }
        if let Some(transfer) = &self.transfer {
            let mut names = BTreeSet::new();
            for sink in &transfer.messages {
                let name = &sink.name;
                require(
                    names.insert(name),
                    format!("transfer.messages '{name}' is there twice"),
                );
                for problem in sink.problems() {
                    require(false, problem);
                }
            }
            for problem in transfer.gfal.problems() {
                require(false, problem);
            }
            for (key, value) in [
                ("active_max_per_link", transfer.active_max_per_link),
                ("active_max_per_storage", transfer.active_max_per_storage),
                ("active_max", transfer.active_max),
                ("open_max", transfer.open_max),
            ] {
                require(
                    value > 0,
                    format!("transfer.{key} is 0, so no file can ever move"),
                );
            }
        }
        if let (Some(transfer), Some(storage)) = (&self.transfer, &self.storage) {
            let clash =
                transfer.listen == storage.listen || storage.plain_listen == Some(transfer.listen);
            require(
                !clash,
                format!(
                    "[transfer] and [storage] both listen on {}",
                    transfer.listen
                ),
            );
        }
        problems.extend(self.outbound_problems());
        problems.extend(self.observe.problems());
        let follow = |key: &str, hosts: &[String]| {
            let wrong = |host: &String| {
                match HostPattern::parse(host) {
                Err(why) => Some(format!("{key}: {why}")),
                // Whoever has any name there would get users' credentials.
                Ok(pattern) => pattern.domain().filter(|domain| !domain.contains('.')).map(|_| {
                    format!("{key}: '{host}' is too wide; name hosts, or a domain of your own such as '*.se.example.org'")
                }),
            }
            };
            hosts.iter().filter_map(wrong).collect::<Vec<_>>()
        };
        if let Some(transfer) = &self.transfer {
            problems.extend(follow(
                "transfer.tokens_unencrypted",
                &transfer.tokens_unencrypted,
            ));
            let grants = transfer.administrators.iter().map(Administrator::grant);
            problems.extend(grants.filter_map(Result::err));
            problems.extend(transfer.history_problems());
            let plans = transfer.backup.iter();
            problems.extend(plans.flat_map(|plan| plan.problems("transfer")));
            problems.extend(follow(
                "transfer.credentials_follow",
                &transfer.credentials_follow,
            ));
        }
        if let Some(storage) = &self.storage {
            let hosts = &storage.outbound.credentials_follow;
            problems.extend(follow("storage.outbound.credentials_follow", hosts));
            problems.extend(storage.problems());
        }
        problems.extend(self.limits.problems());
        problems
    }
}

#[cfg(test)]
#[path = "../../../../fuzz/src/damage.rs"]
mod damage;

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::ChecksumAlgorithm;
    use penstock_model::quantity::Size;

    const SMALLEST: &str = r#"
        [site]
        name = "here"
        hosts = ["127.0.0.2"]
        [storage]
        listen = "127.0.0.2:8443"
        [[storage.pool]]
        name = "disk1"
        path = "pools/disk1"
    "#;

    #[test]
    fn a_misspelt_key_is_an_error_that_names_it() {
        for (section, key) in [
            ("site", "nam"),
            ("storage", "movers"),
            ("transfer", "active"),
            ("observe", "page"),
            ("limits", "connections"),
        ] {
            let text = match SMALLEST.contains(&format!("[{section}]")) {
                true => {
                    SMALLEST.replace(&format!("[{section}]"), &format!("[{section}]\n{key} = 1"))
                }
                false => format!("{SMALLEST}\n[{section}]\n{key} = 1"),
            };
            let error = Config::parse(&text).expect_err(section).to_string();
            assert!(error.contains(&format!("unknown field `{key}`")), "{error}");
        }
    }

    #[test]
    fn defaults_fill_what_is_not_said() {
        let config = Config::parse(SMALLEST).expect("valid");
        assert_eq!(config.problems(), [""; 0]);
        assert_eq!(config.tls, Tls::default());
        let storage = config.storage.clone().expect("present");
        assert_eq!(storage.checksums, [ChecksumAlgorithm::Adler32]);
        assert_eq!(
            (storage.pools[0].movers_max, storage.pools[0].capacity),
            (100, None)
        );
        assert_eq!(config.door_url().as_deref(), Some("https://127.0.0.2:8443"));
        assert_eq!(config.service_url(), None);
    }

    #[test]
    fn effective_values_read_back_as_themselves() {
        let text = format!(
            "{SMALLEST}capacity = \"10 GB\"\n[transfer]\nlisten = \"[::1]:8446\"\nretry_delay = \"1h30m\"\n\
             [[trust.issuer]]\nissuer = \"https://other:8443\"\nprefix = \"/data\""
        );
        let config = Config::parse(&text).expect("valid");
        let written = toml::to_string(&config).expect("serialisable");
        assert_eq!(Config::parse(&written).expect(&written), config);
        assert_eq!(
            config.storage.expect("present").pools[0].capacity,
            Some(Size(10_000_000_000))
        );
        assert_eq!(
            config.transfer.expect("present").retry_delay.0.as_secs(),
            5400
        );
    }

    #[test]
    fn no_name_that_is_derived_from_a_credential_can_be_given_to_a_vo() {
        let problems = |issuer: &str| {
            let text = format!("{SMALLEST}[[trust.issuer]]\nissuer = \"https://idp\"\n{issuer}");
            Config::parse(&text).expect(&text).problems()
        };
        for good in ["", "vo = \"cms\"", "vos = [\"cms\", \"atlas\"]", "vos = []"] {
            assert_eq!(problems(good), [""; 0], "{good}");
        }
        for bad in [
            "vo = \"\"",
            "vo = \"cms@idp~00\"",
            "vos = [\"cms\", \"a~\"]",
            "vo = \"cms\"\nvos = [\"cms\"]",
            "[[trust.member]]\ndn = \"/CN=a\"\nvo = \"a@b~0\"",
            "[[trust.account]]\nname = \"a\"\nvo = \"a@b~0\"",
        ] {
            assert_eq!(problems(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn every_vo_and_every_subject_of_a_rule_is_found() {
        let text = format!(
            "{SMALLEST}[[storage.group]]\ngroup = \"/dteam/prod\"\npath = \"/\"\nrights = [\"read\"]\n\
             [[storage.user]]\ndn = \"/CN=a\"\npath = \"/\"\nrights = [\"read\"]\n\
             [[trust.member]]\ndn = \"/CN=b\"\nca = \"/CN=CA\"\nvo = \"cms\"\n\
             [transfer]\nlisten = \"127.0.0.2:8446\"\n\
             [[transfer.administrator]]\nfqan = \"/ops/Role=production\"\n\
             [[transfer.administrator]]\ndn = \"/CN=c\"\nvo = \"atlas\"\n"
        );
        let config = Config::parse(&text).expect(&text);
        let vos = config.vos_of_rules();
        let vos: Vec<&str> = vos.iter().map(|(_, vo)| *vo).collect();
        assert_eq!(vos, ["dteam", "ops", "atlas"]);
        assert_eq!(
            config.subject_rules().collect::<Vec<_>>(),
            [
                ("storage.user", "/CN=a", None),
                ("trust.member", "/CN=b", Some("/CN=CA")),
                ("transfer.administrator", "/CN=c", None),
            ]
        );
    }

    #[test]
    fn every_contradiction_is_told_at_once() {
        let text = SMALLEST.replace("[\"127.0.0.2\"]", "[]")
            + "[[storage.pool]]\nname = \"disk1\"\npath = \"pools/disk1\"\nmovers_max = 0\n\
               [[storage.user]]\ndn = \"CN=Alice\"\npath = \"/\"\nrights = [\"read\"]\n\
               [[trust.issuer]]\nissuer = \"http://plain\"";
        let problems = Config::parse(&text).expect("well formed").problems();
        assert_eq!(
            problems,
            [
                "site.hosts is empty; name the host or address",
                "issuer 'http://plain' must be an https:// URL",
                "storage.user 'CN=Alice' is not a subject in slash form, such as /DC=org/CN=Alice",
                "pool 'disk1' is named twice",
                "two pools use pools/disk1",
                "pool 'disk1' has movers_max 0, so no file can ever move",
            ]
        );
    }

    #[test]
    fn a_damaged_configuration_is_read_or_refused_and_its_problems_are_told() {
        let seeds = [SMALLEST, include_str!("new_site.toml")];
        let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
        let (mut draw, mut read) = (damage::Draw(7), 0);
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(500) {
            let text = damage::damage(&mut draw, &seeds);
            if let Ok(config) = Config::parse(&String::from_utf8_lossy(&text)) {
                read += 1;
                assert!(config.problems().iter().all(|problem| !problem.is_empty()));
            }
        }
        assert!(read > 0, "some of them are still configurations");
    }
}
